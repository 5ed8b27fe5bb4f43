/* terms/xl.h -- Transformer-XL: scale (<q_i + u_h, k_j> + <q_i + v_h, r[h, j-i+Lq-1]>) in place of scale <q_i, k_j>.
 * Dai et al. 2019, section 3.3. r is in ascending order of j - i; q_offset does not matter. Product 0 is <q_i + v_h,
 * r>, product 1 is <u_h, k_j>. Every score already contains <q_i, k_j>.
 * SPDX-License-Identifier: Apache-2.0 */

static int64_t xl_count(const rp_desc *d, const rp_term *t)
{
    (void)t;
    return rpi_max(d->len_q + d->len_k - 1, 0);
}

static int64_t xl_first(const rp_desc *d, const rp_term *t)
{
    (void)t;
    return 1 - d->len_q;
}

static double xl_query(const rpi_pair *p, int64_t c)
{
    return p->q[c] + (p->array[2].data ? rpi_at(&p->array[2], p->h, c, 0, 0) : 0.0);
}

static void xl_query_grad(const rpi_pair *p, int64_t c, double g, const rpi_sums *to)
{
    add_query(to, c, g);
    rpi_add(to, 2, p->h, c, 0, 0, g);
}

static bool xl_has_u(const rpi_view *array)
{
    return array[1].data != NULL;
}

static int64_t xl_one(const rp_desc *d, const rp_term *t)
{
    (void)d, (void)t;
    return 1;
}

static int64_t xl_zero(const rp_desc *d, const rp_term *t)
{
    (void)d, (void)t;
    return 0;
}

static double xl_u(const rpi_pair *p, int64_t e, int64_t c)
{
    (void)e;
    return rpi_at(&p->array[1], p->h, c, 0, 0);
}

static void xl_u_grad(const rpi_pair *p, int64_t e, int64_t c, double g, const rpi_sums *to)
{
    (void)e;
    rpi_add(to, 1, p->h, c, 0, 0, g);
}

RPI_SCHEME(
    XL, .form = RPI_VEC,
    .facts = {.formula = "scale (<q_i + u_h, k_j> + <q_i + v_h, r[h, j - i + Lq-1]>) in place of scale <q_i, k_j>",
              .about = "relative positions of Transformer-XL",
              .class_name = "XL"},
    .array = {{"r", .shape = "[H?, Lq+Lk-1, Dk]", .start = {.rule = RP_RULE_SINUSOIDS}},
              {"u", .presence = RP_OPTIONAL, .shape = "[H?, Dk]", .start = {.rule = RP_RULE_ZERO}},
              {"v", .presence = RP_OPTIONAL, .shape = "[H?, Dk]", .start = {.rule = RP_RULE_ZERO}}},
    .product = {{.shown = "scale * (q + v) . r",
                 .count = xl_count,
                 .first = xl_first,
                 .without_q_offset = true,
                 .vec = clip_vec,
                 .row = clip_row,
                 .vec_grad = clip_vec_grad,
                 .query = xl_query,
                 .query_grad = xl_query_grad},
                {.array = 1,
                 .shown = "scale * u . k",
                 .key_side = true,
                 .present = xl_has_u,
                 .count = xl_one,
                 .first = xl_zero,
                 .vec = xl_u,
                 .vec_grad = xl_u_grad}})
