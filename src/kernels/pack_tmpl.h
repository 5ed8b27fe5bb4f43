/* pack_tmpl.h -- keys and values laid out for the register tiles.
 * Compiled once per instruction set. */

/* The turned channels of one row, each multiplied by scale: channel x goes to to[x * step]. */
static void turn_row(const rp_term *t, const float *turn, const float *from, float scale, float *to, int64_t step)
{
    for (int64_t c = 0; c < t->dim / 2; c++) {
        int64_t u, v;
        rpi_rotate_channels(t, c, &u, &v);
        const float a = from[u] * scale, b = from[v] * scale, cosine = turn[2 * c], sine = turn[2 * c + 1];
        to[u * step] = a * cosine - b * sine;
        to[v * step] = a * sine + b * cosine;
    }
}

/* Keys as panels of NR, transposed, so that a register tile reads NR keys of one channel as NV vectors; values as columns
 * of up to NR channels, so that it reads one key as vectors. Values that are not finite become 0 here and are added
 * where they are attended to: 0 * NaN must not reach the others. */
static void pack_kv(const rpi_call *c, int64_t kv, int64_t panel0, int64_t panel1)
{
    const rp_plan *plan = c->plan;
    const rp_desc *d = &plan->desc;
    const rpi_args *a = c->args;
    const int64_t b = (c->g0 + kv) / d->kv_heads, g = (c->g0 + kv) % d->kv_heads, D = d->dim_k, panels = c->pad_k / NR;
    const rp_term *rotate = plan->rotate >= 0 ? &plan->terms[plan->rotate] : NULL;
    float *keys = c->keys + kv * c->pad_k * D, *values = c->values + kv * c->pad_k * c->pad_v;
    for (int64_t panel = panel0; panel < panel1; panel++) {
        float *to = keys + panel * NR * D;
        uint8_t wild = 0;
        for (int64_t n = 0; n < NR; n++) {
            const int64_t j = panel * NR + n;
            if (j >= d->len_k) {
                for (int64_t x = 0; x < D; x++)
                    to[x * NR + n] = 0;
                continue;
            }
            const float *from = (const float *)a->k.data + rpi_index(&a->k, b, g, j, 0);
            for (int64_t x = 0; x < D; x++) {
                to[x * NR + n] = from[x];
                wild |= !(fabsf(from[x]) <= RPI_TAME);
            }
            if (rotate)
                turn_row(rotate, c->turn_k + j * rotate->dim, from, 1.0f, to + n, NR);
        }
        c->wild_k[kv * panels + panel] = wild;
        for (int64_t n = 0; n < NR; n++) {
            const int64_t j = panel * NR + n;
            const bool real = j < d->len_k && a->v.data; /* v may be absent where out is */
            const float *from = real ? (const float *)a->v.data + rpi_index(&a->v, b, g, j, 0) : NULL;
            float finite = 0;
            for (int64_t x = 0; real && x < d->dim_v; x++)
                finite += from[x] * 0.0f; /* 0, or NaN from one that is not finite */
            const bool use = real && finite == 0.0f;
            c->wild_v[kv * c->pad_k + j] = real && !use;
            for (int64_t x0 = 0; x0 < c->pad_v; x0 += NR) {
                const int64_t width = rpi_min(NR, c->pad_v - x0);
                float *at = values + x0 * c->pad_k + j * width;
                for (int64_t x = 0; x < width; x++)
                    at[x] = use && x0 + x < d->dim_v ? from[x0 + x] : 0.0f;
            }
        }
    }
}
