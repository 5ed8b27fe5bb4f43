/* terms/clip.h -- code shared by clipped tables: offsets below -left use the first entry, offsets above right the last.
 * Shaw, Uszkoreit, Vaswani 2018, section 3.2; delta = key - query as in the paper.
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_param clip_params[] = {
    {"left", RP_PARAM_INT, RPI_FIELD(left), .required = true, .max = 0x1p40,
     .meaning = "offsets below -left share the first entry"},
    {"right", RP_PARAM_INT, RPI_FIELD(right), .required = true, .max = 0x1p40,
     .meaning = "offsets above right share the last entry"},
    {0},
};

/* Return the entry for an offset. left and right are integers, so clamping before truncating gives the same entry as
 * truncating first. */
static int64_t clip_to(double delta, int64_t left, int64_t right)
{
    return delta >= (double)right ? left + right : delta > -(double)left ? (int64_t)delta + left : 0;
}

static void clip_reach(const rp_term *t, int64_t *left, int64_t *right)
{
    *left = t->left, *right = t->right;
}

static int64_t clip_count(const rp_desc *d, const rp_term *t)
{
    (void)d;
    return t->left + t->right + 1;
}

static int64_t clip_first(const rp_desc *d, const rp_term *t)
{
    (void)d;
    return -t->left;
}

static double clip_vec(const rpi_pair *p, int64_t e, int64_t c)
{
    return rpi_at(&p->array[0], p->h, e, c, 0);
}

static int64_t clip_row(const rpi_pair *p, int64_t e)
{
    (void)p;
    return e;
}

static void clip_vec_grad(const rpi_pair *p, int64_t e, int64_t c, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->h, e, c, 0, g);
}
