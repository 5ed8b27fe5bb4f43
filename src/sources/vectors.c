/* sources/vectors.c -- pack a term's vectors for products with queries, keys or weights. Independent of tiles; names no
 * scheme.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill_tasks.h"
#include <math.h>
#include <string.h>

/* Vectors are transposed in blocks of this many vectors and channels. */
enum { BLOCK_VECTORS = 16, BLOCK_CHANNELS = 64 };
typedef double vector_block[BLOCK_VECTORS][BLOCK_CHANNELS];

/* Return the number, in the product, of packed vector n. */
static int64_t number_of(const rpi_vectors *v, int64_t n)
{
    return v->skip + (v->first_of ? v->first_of[n] : n);
}

/* Return true if packing copies the numbers of the vectors: the array and the plan are f32, and the channels of a
 * vector follow each other. */
static bool copies(const rp_plan *plan, const rpi_pair *p, const rpi_vectors *v)
{
    const rpi_view *a = &p->array[v->product->array];
    return plan->ops->real == (int)sizeof(float) && a->dtype == RP_F32 && a->stride[2] == 1 && v->product->row;
}

/* Return the channels of packed vector n from channel x on, for vectors that are rows of an array. */
static const char *vector_at(const rpi_pair *p, const rpi_vectors *v, int64_t n, int64_t x)
{
    const rpi_view *a = &p->array[v->product->array];
    return (const char *)a->data +
           rpi_index(a, p->h, v->product->row(p, number_of(v, n)), x, 0) * rpi_floating_size(a->dtype);
}

/* Prefetch m channels of packed vector n, if there is one. Vectors are often stored in reverse order, which the
 * processor does not foresee. */
static void fetch_vector(const rpi_pair *p, const rpi_vectors *v, int64_t n, int64_t x, int64_t m)
{
    const int64_t bytes = n < v->packed ? m * rpi_floating_size(p->array[v->product->array].dtype) : 0;
    for (int64_t c = 0; c < bytes; c += 64)
        __builtin_prefetch(vector_at(p, v, n, x) + c, 0, 2);
}

typedef float four __attribute__((vector_size(16)));
typedef int32_t four_numbers __attribute__((vector_size(16)));
#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (four_numbers){__VA_ARGS__})
#endif

/* Transpose four channels of four vectors: channel c of vector i is stored at to[c * step + i]. */
static inline void transpose_four(const float *const from[4], int64_t x, float *to, int64_t step)
{
    four y[4];
    for (int i = 0; i < 4; i++)
        memcpy(&y[i], from[i] + x, sizeof y[i]);
    const four low = PICK(y[0], y[1], 0, 4, 1, 5), high = PICK(y[0], y[1], 2, 6, 3, 7),
               low2 = PICK(y[2], y[3], 0, 4, 1, 5), high2 = PICK(y[2], y[3], 2, 6, 3, 7);
    const four z[4] = {PICK(low, low2, 0, 1, 4, 5), PICK(low, low2, 2, 3, 6, 7), PICK(high, high2, 0, 1, 4, 5),
                       PICK(high, high2, 2, 3, 6, 7)};
    for (int c = 0; c < 4; c++)
        memcpy(to + c * step, &z[c], sizeof z[c]);
}

/* Transpose m channels of n vectors. */
static void transpose_f32(const float *const *from, int64_t n, int64_t m, float *to, int64_t step)
{
    for (int64_t i = 0; i < n; i += 4) {
        int64_t c = 0;
        for (; i + 4 <= n && c + 4 <= m; c += 4)
            transpose_four(from + i, c, to + c * step + i, step);
        for (; c < m; c++)
            for (int64_t e = i; e < rpi_min(i + 4, n); e++)
                to[c * step + e] = from[e][c];
    }
}

/* Load channels [x, x+m) of the packed vectors [at, at+n), and prefetch these channels of the vectors that follow. */
static void load_vectors(const rpi_pair *p, const rpi_vectors *vectors, int64_t at, int64_t n, int64_t x, int64_t m,
                         double to[][BLOCK_CHANNELS])
{
    const rpi_product *product = vectors->product;
    const rpi_view *v = &p->array[product->array];
    const bool contiguous = product->row && v->stride[2] == 1 && rpi_is_floating(v->dtype);
    for (int64_t i = 0; i < n; i++) {
        if (!contiguous) {
            for (int64_t c = 0; c < m; c++)
                to[i][c] = product->vec(p, number_of(vectors, at + i), x + c);
            continue;
        }
        fetch_vector(p, vectors, at + i + BLOCK_VECTORS, x, m);
        rpi_load_f64(to[i], vector_at(p, vectors, at + i, x), v->dtype, m);
    }
}

/* Store a block transposed: channel c of vector i at to[at + c * step + i]. */
static void store_transposed(const rp_plan *plan, double from[][BLOCK_CHANNELS], int64_t n, int64_t m, void *to,
                             int64_t at, int64_t step)
{
    for (int64_t c = 0; c < m; c++)
        for (int64_t i = 0; i < n; i++)
            rpi_put_real(plan, to, at + c * step + i, from[i][c]);
}

/* Pack the vectors of the head of p as panels, transposed like keys. */
static void fill_panels(const rp_plan *plan, const rpi_pair *p, const rpi_vectors *v, void *to, int64_t at)
{
    const int32_t nr = plan->ops->nr;
    for (int64_t e = 0, n; e < v->packed; e += n) {
        n = rpi_min(BLOCK_VECTORS, nr - e % nr);
        for (int64_t x = 0; x < v->width; x += BLOCK_CHANNELS) {
            const int64_t m = rpi_min(BLOCK_CHANNELS, v->width - x);
            const int64_t there = rpi_clamp(v->packed - e, 0, n);
            const int64_t first = at + e / nr * nr * v->width + x * nr + e % nr;
            if (copies(plan, p, v)) {
                static const float zeros[BLOCK_CHANNELS];
                const float *from[BLOCK_VECTORS];
                for (int64_t i = 0; i < n; i++) {
                    from[i] = i < there ? (const float *)(const void *)vector_at(p, v, e + i, x) : zeros;
                    fetch_vector(p, v, e + i + BLOCK_VECTORS, x, m);
                }
                transpose_f32(from, n, m, (float *)to + first, nr);
                continue;
            }
            vector_block block;
            load_vectors(p, v, e, there, x, m, block);
            if (there < n) /* vectors past the last one are 0 */
                memset(block[there], 0, (size_t)(n - there) * sizeof *block);
            store_transposed(plan, block, n, m, to, first, nr);
        }
    }
}

/* Pack the vectors of the head of p as rows, and zeros for the rows that a register tile may read past them. */
static void fill_vector_rows(const rp_plan *plan, const rpi_pair *p, const rpi_vectors *v, void *to, int64_t at)
{
    const int64_t wide = rpi_round_up(v->width, plan->ops->vl), real = plan->ops->real;
    for (int64_t e = 0; e < v->packed; e++)
        for (int64_t x = 0; x < v->width; x += BLOCK_CHANNELS) {
            const int64_t m = rpi_min(BLOCK_CHANNELS, v->width - x);
            double row[1][BLOCK_CHANNELS];
            if (copies(plan, p, v)) {
                fetch_vector(p, v, e + BLOCK_VECTORS, x, m);
                memcpy((float *)to + at + e * wide + x, vector_at(p, v, e, x), (size_t)m * sizeof(float));
                continue;
            }
            load_vectors(p, v, e, 1, x, m, row);
            for (int64_t c = 0; c < m; c++)
                rpi_put_real(plan, to, at + e * wide + x + c, row[0][c]);
        }
    memset((char *)to + (at + v->packed * wide) * real, 0, (size_t)(plan->ops->nr * wide * real));
}

/* Pack the vectors of the head of p as columns of NR channels, like values. Unless `nonfinite` is NULL, a vector that
 * is not finite is packed as 0 and marked there. */
static void fill_columns(const rp_plan *plan, const rpi_pair *p, const rpi_vectors *v, uint8_t *nonfinite)
{
    const int32_t nr = plan->ops->nr;
    const int64_t wide = rpi_round_up(v->width, plan->ops->vl);
    for (int64_t n = 0; n < v->padded; n++) {
        bool finite = true;
        for (int64_t x = 0; nonfinite && x < v->width && n < v->count; x++) {
            const double y = v->product->vec(p, v->skip + n, x);
            finite = finite && isfinite(plan->ops->real == 8 ? y : (double)(float)y);
        }
        for (int64_t x = 0; x < wide; x++) {
            const double y = n < v->count && x < v->width && finite ? v->product->vec(p, v->skip + n, x) : 0;
            const int64_t column = x / nr * nr, step = rpi_min(nr, wide - column);
            rpi_put_real(plan, v->columns, p->h * v->columns_step + column * v->padded + n * step + x - column, y);
        }
        if (nonfinite)
            nonfinite[n] = !finite;
    }
}

void rpi_vectors_share(const rpi_source *s, rpi_vectors *v, const rpi_args *args)
{
    const rpi_pair p = rpi_pair_of(args, s->term, 0, 0, 0);
    int64_t (*const row)(const rpi_pair *, int64_t) = v->product->row;
    v->packed = v->place ? 0 : v->count;
    for (int64_t e = 0; v->place && e < v->count; e++) {
        if (e == 0 || !row || row(&p, v->skip + e) != row(&p, v->skip + e - 1))
            v->first_of[v->packed++] = (int32_t)e;
        v->place[e] = (int32_t)(v->packed - 1);
    }
    for (int64_t e = v->count; v->place && e < v->padded; e++)
        v->place[e] = v->place[v->count - 1];
}

/* Pack the vectors of head h as panels, rows and columns, where the source has them. */
void rpi_vectors_task(void *context, int64_t h, int32_t worker)
{
    const rpi_fill_job *job = context;
    const rpi_source *s = job->s;
    const rpi_vectors *v = rpi_vectors_of(s);
    const rpi_run *run = s->kind == RPI_RUN || s->kind == RPI_VALUES ? &s->run : NULL;
    const rpi_pair p = rpi_pair_of(job->args, s->term, 0, h, 0);
    (void)worker;
    if (run && run->panels)
        fill_panels(job->args->plan, &p, v, run->panels, h * run->panels_step);
    if (s->kind == RPI_KEYS)
        fill_vector_rows(job->args->plan, &p, v, s->keys.rows, h * s->keys.rows_step);
    if (v->columns)
        fill_columns(job->args->plan, &p, v,
                     s->kind == RPI_VALUES ? s->values.nonfinite + h * s->values.nonfinite_step : NULL);
}
