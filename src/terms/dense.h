/* terms/dense.h -- a given array of biases, bias[b,h,i,j], with broadcasting. -infinity masks the pair.
 * SPDX-License-Identifier: Apache-2.0 */

static double dense_pair(const rpi_pair *p)
{
    return rpi_at(&p->array[0], p->b, p->h, p->i, p->j);
}

static void dense_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->b, p->h, p->i, p->j, g);
}

static int dense_example(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "bias[%lld, %lld, %lld, %lld]", (long long)p->b, (long long)p->h, (long long)p->i,
                    (long long)p->j);
}

RPI_SCHEME(DENSE, .form = RPI_TILE, .in_place = true,
           .facts = {.formula = "bias[b,h,i,j]; -infinity masks the pair",
                     .about = "an array of biases, added unchanged"},
           .array = {{"bias", .shape = "[B?, H?, Lq?, Lk?]"}}, .pair = dense_pair, .example = dense_example,
           .grad = dense_grad)
