/* processor/amx.h -- AMX tiles (AMX-TILE): configure, load and store them, for all instruction sets that multiply
 * tiles. A file that includes this one must be compiled for amx-tile.
 * SPDX-License-Identifier: Apache-2.0 */
typedef struct amx_tiles {
    char none;
} amx_tiles; /* unused: the tiles are registers of the thread */

/* Give tiles 0 to 5 `rows` rows (1 to 16) of 64 bytes, and tiles 6 and 7 16 rows. */
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
    __asm__ volatile("" ::"r"(&shape) : "memory"); /* forces the compiler to write `shape` first */
    _tile_loadconfig(&shape);
}
#define amx_end(...) _tile_release()
#define amx_fence()                                                                                                    \
    __asm__ volatile("" ::: "memory") /* stops the compiler from moving tile loads before earlier stores */
#define amx_zero(R, t)           _tile_zero(t)
#define amx_load(R, t, p, step)  _tile_loadd(t, p, step)
#define amx_store(R, t, p, step) _tile_stored(t, p, step)
