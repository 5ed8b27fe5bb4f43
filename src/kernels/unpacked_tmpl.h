/* unpacked_tmpl.h -- one query, or two, against unpacked keys and values: what AMX tiles would give, bit for bit, by vectors.
 * Compiled once per instruction set that has AMX tiles.
 *
 * An AMX tile adds to each of its sums, chunk by chunk and part by part, the products of the first numbers of 16 pairs, those
 * of the second ones, and both together to what it had. Vectors do the same in the same order, and nothing is packed. */

/* Whether few rows read keys and values where they lie; heads that share keys, and more rows, share a packed copy. */
static bool unpacked_pays(int64_t share, int64_t rows)
{
    return share == 1 && rows <= 2;
}

/* x as the parts that split_pair makes of it, each as f32. */
ALWAYS_INLINE void split_vector(vf x, int parts, vf *to)
{
    const vu high = (vu){0} + 0xffff0000u, half = (vu){0} + 0x8000u;
    RPI_UNROLL
    for (int n = 0; n < parts; n++) {
        to[n] = (vf)(((vu)x + (n == 2 ? (vu){0} : half)) & high);
        x = x - to[n];
    }
}

/* The same of cut_pair. */
ALWAYS_INLINE void cut_vector(vf x, int parts, vf *to)
{
    const vu high = (vu){0} + 0xffff0000u, half = (vu){0} + 0x8000u;
    RPI_UNROLL
    for (int n = 0; n < parts; n++) {
        to[n] = (vf)(((vu)x + (n == parts - 1 && n < 2 ? half : (vu){0})) & high);
        x = x - (vf)((vu)x & high);
    }
}

/* Pairs along each of 32 rows of an array, as left operand: [16 rows][chunk][part]. */
ALWAYS_INLINE void along_leaves(packing *s, int64_t chunks, int parts, uint32_t *to)
{
    const int64_t size = s->size;
    watch seen = s->seen;
    for (int64_t r = 0; r < CHUNK; r++) {
        const real *x = s->at[r];
        const char *ahead = s->ahead[r];
        uint32_t *leaf = to + r / SQ * chunks * parts * LEAF + r % SQ * SQ;
        for (int64_t m = 0; m < chunks; m++, x += CHUNK, ahead += CHUNK * size, leaf += parts * LEAF) {
            vu part[3];
            take_pair(&seen, x, x + SQ, ahead, ahead + SQ * size, parts, part);
            RPI_UNROLL
            for (int p = 0; p < parts; p++)
                store_pairs(leaf + p * LEAF, part[p]);
        }
    }
    s->seen = seen;
}

static void split_along(packing *s, int64_t chunks, int parts, uint32_t *to)
{
    switch (parts) {
    case 1: along_leaves(s, chunks, 1, to); break;
    case 2: along_leaves(s, chunks, 2, to); break;
    default: along_leaves(s, chunks, 3, to); break;
    }
}

/* Squares 0 … 3 += A B of one chunk: rows of A are 64 keys, columns of B queries. The parts meet in the order of DOT_CHUNK, where
 * the queries are the left operand. */
#define DOT_KEYS(MT, NT, PA, PB)                                                                                       \
    for (int64_t c = 0; c < chunks; c++, x += a->chunk, y += b->chunk) {                                               \
        RPI_UNROLL                                                                                                     \
        for (int j = PB - 1; j >= 0; j--) {                                                                            \
            amx_load(R, 6, y + j * LEAF, 64);                                                                          \
            RPI_UNROLL                                                                                                 \
            for (int i = PA - 1; i >= 0; i--) {                                                                        \
                if (i + j >= (PA > PB ? PA : PB))                                                                      \
                    continue;                                                                                          \
                amx_load(R, 4, x + i * LEAF, 64);                                                                      \
                amx_dot(R, 0, 4, 6);                                                                                   \
                amx_load(R, 5, x + a->tile + i * LEAF, 64);                                                            \
                amx_dot(R, 1, 5, 6);                                                                                   \
                amx_load(R, 4, x + 2 * a->tile + i * LEAF, 64);                                                        \
                amx_dot(R, 2, 4, 6);                                                                                   \
                amx_load(R, 5, x + 3 * a->tile + i * LEAF, 64);                                                        \
                amx_dot(R, 3, 5, 6);                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
    }

/* s[64 keys][16 queries] += A B */
static void key_product(const operand *a, const operand *b, int64_t chunks, real *s)
{
    const uint32_t *x = a->at, *y = b->at;
    amx_tiles scratch, *R = &scratch;
    (void)R;
    amx_fence();
    amx_load(R, 0, s, 64);
    amx_load(R, 1, s + LEAF, 64);
    amx_load(R, 2, s + 2 * LEAF, 64);
    amx_load(R, 3, s + 3 * LEAF, 64);
    BY_PARTS(DOT_KEYS, 4, 1, a->parts, b->parts)
    amx_store(R, 0, s, 64);
    amx_store(R, 1, s + LEAF, 64);
    amx_store(R, 2, s + 2 * LEAF, 64);
    amx_store(R, 3, s + 3 * LEAF, 64);
    amx_fence();
}

/* k->s as key_scores makes it, of one group of rows: the keys are the left operand, whose leaves need no transposing. false: some
 * key is extreme, and k->s is not made. */
static bool unpacked_scores(block *k, const tile *t, const real *const *in)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    const real *rope = (const real *)c->rope_k + k->b * c->rope_k_step;
    const int64_t head = k->h / (d->heads / d->kv_heads), wide = rpi_round_up(d->dim_k, CHUNK), chunks = wide / CHUNK;
    const int parts = key_parts(c->plan);
    const operand left = {k->unpacked, chunks * parts * LEAF, parts * LEAF, parts};
    const operand right = {k->q_split + 2 * chunks * k->q_parts * LEAF, 0, k->q_parts * LEAF, k->q_parts};
    real s[NR * SQ] = {0};
    int32_t lane[VL];
    packing rows = {.size = 0};
    for (int64_t r = 0; r < SQ; r++) {
        rows.at[r] = k->q_rows + r * wide;
        rows.ahead[r] = (const char *)rows.at[r];
        lane[r] = (int32_t)(r * SQ);
    }
    for (int64_t x = 0; x < chunks; x++)
        split_transposed(&rows, x * CHUNK, k->q_parts, (uint32_t *)right.at + x * right.chunk);
    for (int64_t col = t->from[0]; col < t->to[0]; col += NR) {
        rows.seen = (watch){vf_set1(0)};
        for (int64_t r = 0; r < k->rows; r++)
            for (int64_t j = 0; j < NR; j++)
                s[j * SQ + r] = in ? in[r][col + j] : 0;
        for (int64_t j = 0; j < NR; j += CHUNK) {
            const int64_t at = t->tile0 + col + j;
            rows_at(&rows, &c->args->k, k->b, head, at, CHUNK, d->len_k, d->dim_k, k->rows_scratch);
            watch seen = rows.seen; /* not rotated */
            for (int64_t r = 0; rotate && r < CHUNK; r++)
                watch_row(&seen, rows.at[r], wide);
            if (rotate)
                rotated_copies(&rows, CHUNK, wide, rotate, rope, at, d->len_k, k->rows_scratch);
            split_along(&rows, chunks, parts, (uint32_t *)left.at + j / SQ * left.tile);
            if (rotate)
                rows.seen = seen;
        }
        if (!is_moderate(&rows.seen, (real)RPI_MODERATE))
            return false;
        key_product(&left, &right, chunks, s);
        for (int64_t r = 0; r < k->rows; r++)
            for (int64_t j = 0; j < NR; j += VL)
                vf_store(k->s + r * STEP + col + j, vf_gather(s + j * SQ + r, lane));
    }
    return true;
}

/* sum + the products of a chunk of 32 numbers, whose parts lie `step` apart, and 32 rows of 16 from row[…] + x on. */
ALWAYS_INLINE vf unpacked_chunk(const real *left, int64_t step, const packing *s, int64_t x, int left_parts, int parts,
                                vf sum, watch *seen)
{
    const int max = left_parts > parts ? left_parts : parts;
    vf first[6], second[6];
    RPI_UNROLL
    for (int n = 0; n < 6; n++)
        first[n] = second[n] = vf_set1(0);
    for (int p = 0; p < SQ; p++) {
        const vf a = vf_load(s->at[p] + x), b = vf_load(s->at[p + SQ] + x);
        vf one[3], two[3];
        int n = 0;
        __builtin_prefetch(s->ahead[p] + x * s->size, 0, 2);
        __builtin_prefetch(s->ahead[p + SQ] + x * s->size, 0, 2);
        watch_vector(seen, a);
        watch_vector(seen, b);
        split_vector(a, parts, one);
        split_vector(b, parts, two);
        RPI_UNROLL
        for (int i = left_parts - 1; i >= 0; i--) {
            RPI_UNROLL
            for (int j = parts - 1; j >= 0; j--) {
                if (i + j >= max)
                    continue;
                first[n] = vf_fma(vf_set1(left[i * step + p]), one[j], first[n]);
                second[n] = vf_fma(vf_set1(left[i * step + p + SQ]), two[j], second[n]);
                n++;
            }
        }
    }
    int n = 0;
    RPI_UNROLL
    for (int i = left_parts - 1; i >= 0; i--) {
        RPI_UNROLL
        for (int j = parts - 1; j >= 0; j--)
            if (i + j < max) {
                sum = sum + (first[n] + second[n]);
                n++;
            }
    }
    return sum;
}

/* sums of n vectors += the products of a chunk. */
#define NEAR_CHUNK(MT, NT, PA, PB)                                                                                     \
    for (int64_t x = 0; x < n; x++)                                                                                    \
        vf_store(sums + x * VL, unpacked_chunk(left, step, s, x * VL, PA, PB, vf_load(sums + x * VL), &seen));

static void unpacked_products(const real *left, int64_t step, int left_parts, packing *s, int64_t n, int parts,
                              real *sums)
{
    watch seen = s->seen;
    BY_PARTS(NEAR_CHUNK, 1, 1, left_parts, parts)
    s->seen = seen;
}

/* Weights of row r and their sum; their parts in left[part][KB]. */
static void unpacked_weights(block *k, const tile *t, int64_t r, int parts, bool kept, real *left)
{
    const bool drops = k->c->args->desc.dropout > 0;
    const vf base = base_of(k, r);
    real *s = k->s + r * STEP;
    vf sum = vf_set1(0);
    for (int64_t x = t->from[0]; x < t->to[0]; x += CHUNK) {
        vf w[2] = {vf_exp(vf_load(s + x) - base), vf_exp(vf_load(s + x + SQ) - base)};
        sum = sum + (w[0] + w[1]);
        if (kept) {
            vf_store(s + x, w[0]);
            vf_store(s + x + SQ, w[1]);
        }
        if (drops) {
            drop(k, t, r, x, x + CHUNK, s);
            w[0] = vf_load(s + x);
            w[1] = vf_load(s + x + SQ);
        }
        for (int m = 0; m < 2; m++) {
            vf part[3];
            if (parts == 3)
                cut_vector(w[m], 3, part);
            else
                cut_vector(w[m], 2, part);
            for (int n = 0; n < parts; n++)
                vf_store(left + n * KB + x + m * SQ, part[n]);
        }
    }
    k->sum[r] += vf_sum(sum);
}

/* As weigh_tile, of one group of rows. A value that is extreme ends the attempt to go tile by tile. */
static void unpacked_weigh(block *k, const tile *t, bool values, const real *alpha, real *o, bool kept)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t head = k->h / (d->heads / d->kv_heads), columns = c->pad_v / SQ;
    const int parts = weight_parts(c->plan), v_parts = value_parts(c->plan);
    real *left = k->unpacked;
    packing s = {.seen = {vf_set1(0)}};
    for (int64_t r = 0; r < k->rows; r++)
        unpacked_weights(k, t, r, parts, kept, left + r * parts * KB);
    memset(k->amx_scratch, 0, reals(k->rows, c->pad_v));
    for (int64_t col = t->from[0]; values && col < t->to[0]; col += CHUNK) {
        rows_at(&s, &c->args->v, k->b, head, t->tile0 + col, CHUNK, d->len_k, d->dim_v, k->rows_scratch);
        for (int64_t r = 0; r < k->rows; r++)
            unpacked_products(left + r * parts * KB + col, KB, parts, &s, columns, v_parts,
                              k->amx_scratch + r * c->pad_v);
    }
    if (!is_moderate(&s.seen, (real)MAX_VALUE))
        atomic_store(&c->decode->extreme, 1);
    for (int64_t r = 0; values && r < k->rows; r++)
        for (int64_t x = 0; x < c->pad_v; x += VL)
            vf_store(o + r * c->pad_v + x, vf_fma(vf_set1(alpha[r]), vf_load(o + r * c->pad_v + x),
                                                  vf_load(k->amx_scratch + r * c->pad_v + x)));
}
