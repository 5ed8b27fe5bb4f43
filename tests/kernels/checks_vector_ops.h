/* checks_vector_ops.h -- the vector operations, and the functions exp and tanh that use them.
 * SPDX-License-Identifier: Apache-2.0 */

CHECK(vector_operations_match_plain_loops)
{
    for (int turn = 0; turn < 20; turn++) {
        const real *x = random_numbers(VL * VL, (uint64_t)turn + 1);
        real *y = numbers(VL * VL), lane[VL], kept[VL];
        vf rows[VL];
        double sum = 0, size = 0, top = -INFINITY;
        uint8_t keep[VL];
        int32_t index[VL];
        for (int r = 0; r < VL; r++)
            rows[r] = vf_load(x + r * VL);
        vf_transpose(rows);
        for (int r = 0; r < VL; r++)
            vf_store(y + r * VL, rows[r]);
        for (int r = 0; r < VL; r++)
            for (int c = 0; c < VL; c++)
                kernel_same(&y[r * VL + c], &x[c * VL + r], sizeof *y, "vf_transpose", r, c);
        for (int c = 0; c < VL; c++) {
            sum += (double)x[c];
            size += fabs((double)x[c]);
            top = fmax(top, (double)x[c]);
            keep[c] = (uint8_t)((turn >> c % 4) & 1);
            index[c] = (c * 7 + turn) % (VL * VL);
        }
        kernel_close((double)vf_sum(vf_load(x)), sum, VL * EPS * size, "vf_sum", turn, 0);
        kernel_close((double)vf_max_lane(vf_load(x)), top, 0, "vf_max_lane", turn, 0);
        vf_store(lane, vf_gather(x, index));
        vf_store(kept, vf_keep(vf_load(x), keep));
        for (int c = 0; c < VL; c++) {
            const real none = (real)-INFINITY;
            kernel_same(&lane[c], &x[index[c]], sizeof *x, "vf_gather", turn, c);
            kernel_same(&kept[c], keep[c] ? &x[c] : &none, sizeof *x, "vf_keep", turn, c);
        }
    }
}

/* Check every 16-bit code in the arithmetic of the kernels, which flushes numbers below 2^-126 to zero. */
CHECK(halves_are_widened_exactly)
{
#if !RPI_F64
    const bool loses = kernel_loses_small_halves();
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    for (int type = 0; type < 2; type++)
        for (int h = 0; h < 65536; h += VL) {
            const rp_dtype dtype = type ? RP_BF16 : RP_F16;
            uint16_t from[VL];
            uint32_t words[VL];
            real loaded[VL], widened[VL], want[VL];
            for (int c = 0; c < VL; c++)
                words[c] = from[c] = (uint16_t)(h + c);
            vf_store(loaded, load_halves(from, dtype));
            vf_store(widened, widen_halves((vu)vf_bits(words), dtype));
            rpi_load_f32(want, from, dtype, VL);
            for (int c = 0; c < VL; c++) {
                if (loses && dtype == RP_F16 && ((h + c) & 0x7c00) == 0)
                    continue;
                if (isnan(want[c])) {
                    kernel_true(isnan(loaded[c]) && isnan(widened[c]), "NaN of 16 bits", type, h + c);
                    continue;
                }
                kernel_same(&loaded[c], &want[c], sizeof *want, "load_halves", type, h + c);
                kernel_same(&widened[c], &want[c], sizeof *want, "widen_halves", type, h + c);
            }
        }
    rpi_float_end(before);
#endif
}

/* Reducing the argument is almost exact. The last two roundings of the polynomial and all smaller errors add up to at
 * most 3 EPS. */
CHECK(exp_and_tanh_keep_their_bounds)
{
    const double lowest = RPI_F64 ? -708 : -87;
    real x[VL], e[VL], t[VL];
    for (int64_t n = 0; n < 4000; n++) {
        for (int c = 0; c < VL; c++)
            x[c] = (real)(lowest * (double)(n * VL + c) / (4000.0 * VL));
        vf_store(e, vf_exp(vf_load(x)));
        for (int c = 0; c < VL; c++) {
            const double want = exp((double)x[c]);
            kernel_close((double)e[c], want, 3 * EPS * want, "vf_exp", n, c);
        }
        for (int c = 0; c < VL; c++)
            x[c] = (real)((double)(n * VL + c - 2000 * VL) / (200.0 * VL));
        vf_store(t, vf_tanh(vf_load(x)));
        for (int c = 0; c < VL; c++) {
            const double want = tanh((double)x[c]);
            kernel_close((double)t[c], want, 4 * EPS * fabs(want), "vf_tanh", n, c);
        }
    }
    for (int c = 0; c < VL; c++)
        x[c] = c % 3 == 0 ? (real)-INFINITY : c % 3 == 1 ? (real)NAN : (real)-1e4;
    vf_store(e, vf_exp(vf_load(x)));
    for (int c = 0; c < VL; c++)
        kernel_close((double)e[c], c % 3 == 1 ? NAN : 0, 0, "vf_exp of -infinity, NaN and -10000", 0, c);
    vf_store(t, vf_tanh(vf_load(x)));
    for (int c = 0; c < VL; c++)
        kernel_close((double)t[c], c % 3 == 1 ? NAN : -1, 0, "vf_tanh of -infinity, NaN and -10000", 0, c);
}
