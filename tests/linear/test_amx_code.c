/* test_amx_code.c -- compares the machine code of linear/sets/amx.c with plain code, bit for bit. On a machine without
 * AMX each AMX instruction raises SIGILL, and the signal handler in this file emulates it. This tests the compiled code
 * and the shapes of its tiles, which an AMX processor would check. The code around it needs AVX-512.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* for access to the registers in a signal handler */
#endif
#include "tests/helpers.h"
#include "linear/ops.h"
#include "src/processor/processor.h"
#include <signal.h>
#include <ucontext.h>

extern const linear_ops linear_ops_amx;

/* The state of the tiles; there is only one thread. */
static struct {
    struct shape {
        uint8_t palette, start_row, zero[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape;
    uint8_t at[8][16][64];
    bool configured;
    int64_t dots, begun, ended;
} amx;

/* Abort where the processor would raise an exception. */
static void demand(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "the code for AMX: %s\n", what);
    abort();
}

/* An instruction with a three-byte VEX prefix. */
typedef struct instruction {
    int opcode, prefix, mode, reg, rm, vvvv, bytes;
    uint64_t base, step; /* the memory operand */
    bool sib;
} instruction;

static uint64_t general(const greg_t *g, int n)
{
    static const int at[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                             REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)g[at[n]];
}

static instruction decoded(const greg_t *g, const uint8_t *p)
{
    const int x = ~p[1] >> 6 & 1, b = ~p[1] >> 5 & 1, next = p[4] & 7;
    instruction i = {.opcode = p[3],
                     .prefix = p[2] & 3,
                     .mode = p[4] >> 6,
                     .reg = p[4] >> 3 & 7,
                     .rm = next | b << 3,
                     .vvvv = ~p[2] >> 3 & 15,
                     .bytes = 5};
    demand(p[0] == 0xc4 && (p[1] & 0x9f) == 0x82 && (p[2] & 0x84) == 0, "an instruction that is none of AMX");
    if (i.mode == 3)
        return i;
    i.sib = next == 4;
    const int sib = i.sib ? p[i.bytes++] : 0, index = (sib >> 3 & 7) | x << 3, base = i.sib ? (sib & 7) | b << 3 : i.rm;
    demand(i.mode != 0 || (base & 7) != 5, "an address without a register");
    i.base = general(g, base);
    i.step = i.sib && index != 4 ? general(g, index) << (sib >> 6) : 0;
    if (i.mode == 1) {
        i.base += (uint64_t)(int8_t)p[i.bytes];
        i.bytes += 1;
    } else if (i.mode == 2) {
        int32_t far;
        memcpy(&far, p + i.bytes, sizeof far);
        i.base += (uint64_t)far;
        i.bytes += 4;
    }
    return i;
}

/* LDTILECFG */
static void configure(const void *from)
{
    demand(!amx.configured, "configured again before tiles were released");
    memcpy(&amx.shape, from, sizeof amx.shape);
    memset(amx.at, 0, sizeof amx.at);
    demand(amx.shape.palette == 1 && amx.shape.start_row == 0, "a palette that is not 1");
    for (int n = 0; n < 14; n++)
        demand(amx.shape.zero[n] == 0, "reserved bytes of a shape");
    for (int n = 0; n < 16; n++)
        demand(amx.shape.bytes[n] <= (n < 8 ? 64 : 0) && amx.shape.rows[n] <= (n < 8 ? 16 : 0) &&
                   !amx.shape.bytes[n] == !amx.shape.rows[n],
               "the shape of a tile");
    amx.configured = true;
    amx.begun++;
}

/* TDPBUSD */
static void dot(int c, int a, int b)
{
    const struct shape *s = &amx.shape;
    demand(a < 8 && b < 8 && a != b && b != c && a != c, "the operands of a product");
    demand(s->rows[c] == s->rows[a] && s->bytes[c] == s->bytes[b] && s->bytes[a] == 4 * s->rows[b],
           "tiles of shapes that do not fit");
    for (int m = 0; m < s->rows[c]; m++)
        for (int n = 0; n < s->bytes[c] / 4; n++) {
            uint32_t sum;
            memcpy(&sum, &amx.at[c][m][4 * n], sizeof sum);
            for (int k = 0; k < s->bytes[a]; k++)
                sum += (uint32_t)(amx.at[a][m][k] * (int8_t)amx.at[b][k / 4][4 * n + k % 4]);
            memcpy(&amx.at[c][m][4 * n], &sum, sizeof sum);
        }
    amx.dots++;
}

/* TILELOADD, TILESTORED */
static void move(const instruction *i, bool store)
{
    demand(amx.shape.rows[i->reg] > 0, "a tile without a shape");
    if (!store)
        memset(amx.at[i->reg], 0, sizeof amx.at[i->reg]);
    for (uint64_t m = 0; m < amx.shape.rows[i->reg]; m++) {
        void *memory = (void *)(uintptr_t)(i->base + m * i->step);
        memcpy(store ? memory : amx.at[i->reg][m], store ? amx.at[i->reg][m] : memory, amx.shape.bytes[i->reg]);
    }
}

static void carry_out(int signal, siginfo_t *info, void *context)
{
    enum { NONE, X66, XF3, XF2 }; /* mandatory prefixes */
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    const instruction i = decoded(g, (const uint8_t *)(uintptr_t)g[REG_RIP]);
    (void)signal;
    (void)info;
    if (i.opcode == 0x49 && i.prefix == NONE && i.mode != 3 && i.reg == 0) {
        configure((const void *)(uintptr_t)(i.base + i.step));
    } else {
        demand(amx.configured, "tiles without a shape");
        if (i.opcode == 0x5e && i.prefix == X66 && i.mode == 3)
            dot(i.reg, i.rm, i.vvvv);
        else if (i.opcode == 0x4b && i.sib && (i.prefix == XF2 || i.prefix == XF3))
            move(&i, i.prefix == XF3);
        else if (i.opcode == 0x49 && i.prefix == NONE && i.mode == 3 && i.reg == 0 && i.rm == 0)
            amx.configured = (amx.ended++, false);
        else
            demand(false, "an instruction that linear layers do not need");
    }
    g[REG_RIP] += i.bytes;
}

static void *taken(int64_t bytes)
{
    void *p = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

static float *numbers(int64_t n, uint64_t *seed)
{
    float *x = taken(n * 4);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((double)(draw(seed) >> 11) * 0x1p-52 - 1);
    return x;
}

static void compare(int64_t rows, int64_t in, int64_t out)
{
    uint64_t seed = (uint64_t)(rows * 1000000 + in * 1000 + out);
    float *x = numbers(rows * in, &seed), *w = numbers(out * in, &seed), *want = numbers(rows * out, &seed);
    float *y = taken(rows * out * 4);
    void *packed = taken(linear_packed_bytes(LINEAR_INT8, in, out));
    memcpy(y, want, sizeof(float) * (size_t)(rows * out));
    good(linear_pack(NULL, LINEAR_INT8, in, out, w, RP_F32, in, packed));
    const linear_weights m = {LINEAR_INT8, in, out, packed};
    const linear_call c = {
        .rows = rows, .x = x, .ldx = in, .y = want, .ldy = out, .then = LINEAR_ADD, .bias = w, .isa = "generic"};
    good(linear_apply(NULL, &m, &c));
    linear_job j = {.type = LINEAR_INT8,
                    .then = LINEAR_ADD,
                    .bias = w,
                    .rows = rows,
                    .in = in,
                    .out = out,
                    .ldx = in,
                    .ldy = out,
                    .x = x,
                    .y = y,
                    .packed = packed,
                    .panel_bytes = linear_panel_bytes(LINEAR_INT8, in, LINEAR_COLUMNS),
                    .lines = linear_lines(LINEAR_INT8, in),
                    .row_bytes = linear_row_bytes(LINEAR_INT8, in)};
    j.prepared = taken(rows * j.row_bytes);
    linear_ops_amx.prepare(&j, 0, rows);
    linear_ops_amx.block(&j, 0, rows, 0, linear_ceil(out, LINEAR_PANEL));
    if (memcmp(y, want, sizeof(float) * (size_t)(rows * out)) != 0)
        fail_msg("%d rows, in %d, out %d: the bits differ from generic", (int)rows, (int)in, (int)out);
    assert_false(amx.configured);
    free(x);
    free(w);
    free(want);
    free(y);
    free(packed);
    free(j.prepared);
}

static void test_the_code_has_the_bits_of_plain_code(void **state)
{
    static const int64_t rows[] = {5, 16, 17, 32, 33, 49, 95, 96}, in[] = {1, 33, 64, 65, 100, 512},
                         out[] = {1, 17, 33, 49, 64, 129};
    const struct sigaction act = {.sa_sigaction = carry_out, .sa_flags = SA_SIGINFO};
    /* also where RELPOS_HIDE_ISA hides AMX: without tiles, the processor itself would carry out LDTILECFG, and raise
     * SIGILL at what follows */
    const bool native = rpi_allow_tiles();
    struct sigaction before;
    (void)state;
    if (rp_isa_found("avx512") != 1)
        return; /* amx.c is empty for this machine */
    assert_int_equal(sigaction(SIGILL, &act, &before), 0);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t i = 0; i < sizeof in / sizeof *in; i++)
            for (size_t o = 0; o < sizeof out / sizeof *out; o++)
                compare(rows[r], in[i], out[o]);
    assert_int_equal(sigaction(SIGILL, &before, NULL), 0);
    assert_true(native || (amx.dots > 1000 && amx.begun > 0 && amx.begun == amx.ended));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_code_has_the_bits_of_plain_code)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
