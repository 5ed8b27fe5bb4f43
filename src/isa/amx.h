/* isa/amx.h -- the tiles of AMX as registers: their shapes, loads and stores (AMX-TILE), for all instruction sets that
 * have products of them. A file that includes it is compiled for amx-tile. It may not know what is computed with them.
 * SPDX-License-Identifier: Apache-2.0 */
typedef struct amx_tiles {
    char none;
} amx_tiles; /* the processor's own registers, of the thread that runs */

/* Tiles 0 to 5 get so many rows of 64 bytes, 1 to 16, tiles 6 and 7 get 16. */
static inline void amx_configure(int rows)
{
    struct {
        uint8_t palette, start_row, zero[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int n = 0; n < 8; n++) {
        shape.bytes[n] = 64;
        shape.rows[n] = (uint8_t)(n < 6 ? rows : 16);
    }
    __asm__ volatile("" ::"r"(&shape) : "memory"); /* all of it is written by now */
    _tile_loadconfig(&shape);
}
#define amx_end(...)             _tile_release()
#define amx_fence()              __asm__ volatile("" ::: "memory") /* what is loaded below was stored above */
#define amx_zero(R, t)           _tile_zero(t)
#define amx_load(R, t, p, step)  _tile_loadd(t, p, step)
#define amx_store(R, t, p, step) _tile_stored(t, p, step)
