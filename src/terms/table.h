/* terms/table.h -- a learned bias for each clipped offset: table[h, clamp(delta, -left, right) + left].
 * SPDX-License-Identifier: Apache-2.0 */

static double table_pair(const rpi_pair *p)
{
    return rpi_at(&p->array[0], p->h, clip_to(p->delta, p->term->left, p->term->right), 0, 0);
}

static void table_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->h, clip_to(p->delta, p->term->left, p->term->right), 0, 0, g);
}

static int table_example(const rpi_pair *p, char *to, size_t size)
{
    const long long left = p->term->left, entry = clip_to(p->delta, p->term->left, p->term->right);
    return snprintf(to, size, "table[%lld, %lld + %lld]", (long long)p->h, entry - left, left);
}

RPI_SCHEME(TABLE, .form = RPI_OFFSET,
           .facts = {.formula = "table[h, clamp(delta, -left, right) + left]",
                     .about = "one bias per offset, clipped on both sides",
                     .shown = "+ table[r, within -{left} to {right}]",
                     .samples = {"left=5,right=9"},
                     .bench = {"left=64,right=64"}},
           .array = {{"table", .shape = "[H?, left+right+1]", .shows = "entry"}, RPI_TWO_POSITIONS}, .positions = 1,
           .params = clip_params, .pair = table_pair, .example = table_example, .grad = table_grad, .reach = clip_reach)
