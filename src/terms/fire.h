/* terms/fire.h -- a bias computed by a small network from the distance, which is normalized by the query's position.
 * Li et al. 2024 (FIRE), equation 7: MLP(psi(|delta|) / (psi(max(L, p_i)) + eps))[h], psi(x) = log(|c x| + 1).
 * Attention in the paper is causal; |delta| extends the bias to keys after the query. The arrays have the shapes of
 * torch.nn.Linear.
 *   two layers:     0 w1 [width,1]   1 b1 [width]   2 w2 [H,width]        3 b2 [H]
 *   three layers:   0 w1 [width,1]   1 b1 [width]   2 w2 [width2,width]   3 b2 [width2]   4 w3 [H,width2]   5 b3 [H]
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_param fire_params[] = {
    {"c", RP_PARAM_REAL, RPI_FIELD(c), .required = true, .min = -1e100, .max = 1e100,
     .meaning = "scale of distances inside the logarithm"},
    {"L", RP_PARAM_REAL, RPI_FIELD(L), .required = true, .max = 0x1p53,
     .meaning = "queries before this position are normalized by it"},
    {"eps", RP_PARAM_REAL, RPI_FIELD(eps), .value = 1e-6, .max = 1e100,
     .meaning = "added to the divisor; above 0 if c or L is 0"},
    {"width", RP_PARAM_INT, RPI_FIELD(width), .unset = "the rows of w1", .min = 1, .max = 1 << 20,
     .meaning = "number of units of the first layer"},
    {"width2", RP_PARAM_INT, RPI_FIELD(width2), .unset = "the columns of w3", .max = 1 << 20,
     .meaning = "number of units of the second layer; 0: the network has only two layers"},
    {0},
};

static rp_status fire_check(const rp_desc *d, rp_term *t, int32_t n)
{
    (void)d;
    if (t->eps == 0 && fabs(t->c * t->L) == 0)
        return rpi_fail(RP_E_RANGE, "terms[%d].eps is 0; it must be above 0 if c or L is 0, to avoid 0/0", (int)n);
    return RP_OK;
}

/* Return max(x, 0), or NaN for NaN, which fmax would turn into 0. */
static double relu(double x)
{
    return x <= 0 ? 0.0 : x;
}

static double fire_input(const rpi_pair *p)
{
    const rp_term *t = p->term;
    return log1p(fabs(t->c * p->delta)) / (log1p(fabs(t->c * fmax(t->L, p->at))) + t->eps);
}

/* Compute unit u of the first layer before the ReLU. */
static double fire_first(const rpi_pair *p, int64_t u, double x)
{
    return rpi_at(&p->array[0], u, 0, 0, 0) * x + rpi_at(&p->array[1], u, 0, 0, 0);
}

/* Compute unit u of the second layer before the ReLU. */
static double fire_second(const rpi_pair *p, int64_t u, double x)
{
    double sum = rpi_at(&p->array[3], u, 0, 0, 0);
    for (int64_t c = 0; c < p->term->width; c++)
        sum += rpi_at(&p->array[2], u, c, 0, 0) * relu(fire_first(p, c, x));
    return sum;
}

/* For bounds: return the sums of the absolute values of the summands of fire_first and fire_second. */
static double fire_first_size(const rpi_pair *p, int64_t u, double x)
{
    return fabs(rpi_at(&p->array[0], u, 0, 0, 0)) * x + fabs(rpi_at(&p->array[1], u, 0, 0, 0));
}

static double fire_second_size(const rpi_pair *p, int64_t u, double x)
{
    double sum = fabs(rpi_at(&p->array[3], u, 0, 0, 0));
    for (int64_t c = 0; c < p->term->width; c++)
        sum += fabs(rpi_at(&p->array[2], u, c, 0, 0)) * fire_first_size(p, c, x);
    return sum;
}

/* Return the number of roundings of a sum over the units of both layers, and of its summands. */
static double fire_sum_roundings(const rp_term *t)
{
    return 2 * (double)(t->width + t->width2) + 32;
}

/* Return the derivative of the ReLU of a unit: 0 or 1. If `to` sums bounds, and the unit is so near 0 that rounding
 * errors may activate it, return a factor by which bounds on errors of gradients become bounds on the gradients. */
static double fire_slope(const rpi_sums *to, double value, double size, double roundings)
{
    if (to->absolute && fabs(value) < 0x1p-53 * roundings * size)
        return fmax(to->rounding * 0x1p53, 1);
    return value <= 0 ? 0 : 1;
}

/* Add the gradients of unit u of the second layer. For all inputs that activate the same units as x, they are linear in
 * the input, so the caller sums over these inputs: g0 is the sum of g, g1 the sum of g times the input. */
static void fire_second_grad(const rpi_pair *p, int64_t u, double x, double g0, double g1, const rpi_sums *to)
{
    const double roundings = fire_sum_roundings(p->term);
    rpi_add(to, 3, u, 0, 0, 0, g0);
    for (int64_t c = 0; c < p->term->width; c++) {
        const double w = rpi_at(&p->array[2], u, c, 0, 0), of_w1 = g1 * rpi_at(&p->array[0], c, 0, 0, 0),
                     of_b1 = g0 * rpi_at(&p->array[1], c, 0, 0, 0), size = to->absolute ? fire_first_size(p, c, x) : 0;
        const double slope = fire_slope(to, fire_first(p, c, x), size, roundings);
        if (slope == 0)
            continue;
        rpi_add_sum(to, 2, u, c, 0, of_w1 + of_b1, roundings * (fabs(of_w1) + fabs(of_b1)));
        rpi_add(to, 0, c, 0, 0, 0, slope * g1 * w);
        rpi_add(to, 1, c, 0, 0, 0, slope * g0 * w);
    }
}

static double fire_pair(const rpi_pair *p)
{
    const double x = fire_input(p);
    if (!p->term->width2)
        return fire_second(p, p->h, x);
    double sum = rpi_at(&p->array[5], p->h, 0, 0, 0);
    for (int64_t u = 0; u < p->term->width2; u++)
        sum += rpi_at(&p->array[4], p->h, u, 0, 0) * relu(fire_second(p, u, x));
    return sum;
}

/* Larger than the error of fire_pair: inactive units count, because rounding errors may activate them. */
static double fire_roundings(const rpi_pair *p)
{
    const double x = fire_input(p);
    double sum = 0;
    if (!p->term->width2)
        return fire_sum_roundings(p->term) * fire_second_size(p, p->h, x);
    for (int64_t u = 0; u < p->term->width2; u++)
        sum += fabs(rpi_at(&p->array[4], p->h, u, 0, 0)) * fire_second_size(p, u, x);
    return fire_sum_roundings(p->term) * (sum + fabs(rpi_at(&p->array[5], p->h, 0, 0, 0)));
}

/* Near x, unit u of the second layer is a linear function of the input. Compute its slope and its value at 0. */
static void fire_second_line(const rpi_pair *p, int64_t u, double x, double *slope, double *zero)
{
    *slope = 0;
    *zero = rpi_at(&p->array[3], u, 0, 0, 0);
    for (int64_t c = 0; c < p->term->width; c++) {
        const double w = rpi_at(&p->array[2], u, c, 0, 0);
        if (fire_first(p, c, x) <= 0)
            continue;
        *slope += w * rpi_at(&p->array[0], c, 0, 0, 0);
        *zero += w * rpi_at(&p->array[1], c, 0, 0, 0);
    }
}

static void fire_sums_grad(const rpi_pair *p, double x, double g0, double g1, const rpi_sums *to)
{
    if (!p->term->width2) {
        fire_second_grad(p, p->h, x, g0, g1, to);
        return;
    }
    const double roundings = fire_sum_roundings(p->term);
    rpi_add(to, 5, p->h, 0, 0, 0, g0);
    for (int64_t u = 0; u < p->term->width2; u++) {
        double slope, zero;
        const double w = rpi_at(&p->array[4], p->h, u, 0, 0), size = to->absolute ? fire_second_size(p, u, x) : 0,
                     active = fire_slope(to, fire_second(p, u, x), size, roundings);
        if (active == 0)
            continue;
        fire_second_line(p, u, x, &slope, &zero);
        rpi_add_sum(to, 4, p->h, u, 0, g1 * slope + g0 * zero, roundings * fabs(g0) * size);
        fire_second_grad(p, u, x, active * g0 * w, active * g1 * w, to);
    }
}

static void fire_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    const double x = fire_input(p);
    fire_sums_grad(p, x, g, g * x, to);
}

/* Return the tangent of unit u of the second layer. */
static double fire_second_tangent(const rpi_pair *p, int64_t u, double x, const rpi_view *tangent)
{
    double sum = rpi_at_or_0(&tangent[3], u, 0, 0, 0);
    for (int64_t c = 0; c < p->term->width; c++) {
        const double first = fire_first(p, c, x);
        if (first <= 0)
            continue;
        sum += rpi_at_or_0(&tangent[2], u, c, 0, 0) * first +
               rpi_at(&p->array[2], u, c, 0, 0) *
                   (rpi_at_or_0(&tangent[0], c, 0, 0, 0) * x + rpi_at_or_0(&tangent[1], c, 0, 0, 0));
    }
    return sum;
}

/* Return the sum of the absolute values of its summands. */
static double fire_second_tangent_size(const rpi_pair *p, int64_t u, double x, const rpi_view *tangent)
{
    double sum = fabs(rpi_at_or_0(&tangent[3], u, 0, 0, 0));
    for (int64_t c = 0; c < p->term->width; c++)
        sum += fabs(rpi_at_or_0(&tangent[2], u, c, 0, 0)) * fire_first_size(p, c, x) +
               fabs(rpi_at(&p->array[2], u, c, 0, 0)) *
                   (fabs(rpi_at_or_0(&tangent[0], c, 0, 0, 0)) * x + fabs(rpi_at_or_0(&tangent[1], c, 0, 0, 0)));
    return sum;
}

/* Add g times the derivatives of fire_second_tangent. */
static void fire_second_tangent_grad(const rpi_pair *p, int64_t u, double x, double g, const rpi_view *tangent,
                                     const rpi_sums *to)
{
    const double roundings = fire_sum_roundings(p->term);
    for (int64_t c = 0; c < p->term->width; c++) {
        const double size = to->absolute ? fire_first_size(p, c, x) : 0,
                     slope = fire_slope(to, fire_first(p, c, x), size, roundings),
                     w = slope * g * rpi_at_or_0(&tangent[2], u, c, 0, 0),
                     of_w1 = slope * g * rpi_at_or_0(&tangent[0], c, 0, 0, 0) * x,
                     of_b1 = slope * g * rpi_at_or_0(&tangent[1], c, 0, 0, 0);
        if (slope == 0)
            continue;
        rpi_add(to, 0, c, 0, 0, 0, w * x);
        rpi_add(to, 1, c, 0, 0, 0, w);
        rpi_add_sum(to, 2, u, c, 0, of_w1 + of_b1, roundings * (fabs(of_w1) + fabs(of_b1)));
    }
}

/* The network is linear in the arrays of each layer. Its kinks, where second derivatives do not exist, are ignored. */
static void fire_tangent_grad(const rpi_pair *p, double g, const rpi_view *tangent, const rpi_sums *to)
{
    const double x = fire_input(p), roundings = fire_sum_roundings(p->term);
    if (!p->term->width2)
        fire_second_tangent_grad(p, p->h, x, g, tangent, to);
    for (int64_t u = 0; u < p->term->width2; u++) {
        const double w = rpi_at(&p->array[4], p->h, u, 0, 0), w_tangent = rpi_at_or_0(&tangent[4], p->h, u, 0, 0),
                     size = to->absolute ? fire_second_size(p, u, x) : 0,
                     active = g * fire_slope(to, fire_second(p, u, x), size, roundings);
        if (active == 0)
            continue;
        rpi_add_sum(to, 4, p->h, u, 0, active * fire_second_tangent(p, u, x, tangent),
                    to->absolute ? roundings * fabs(active) * fire_second_tangent_size(p, u, x, tangent) : 0);
        fire_second_grad(p, u, x, active * w_tangent, active * w_tangent * x, to);
        fire_second_tangent_grad(p, u, x, active * w, tangent, to);
    }
}

/* The fast path. A ReLU network with one input is piecewise linear, so a row of biases is piecewise linear in
 * psi(|delta|). Layout of p->prepared:
 *   [0]  number of pieces
 *   [1]  number of entries of psi on each side
 *   psi [2 entries - 1]                psi of the distances …, -1, 0, 1, …
 *   start, middle [max pieces] each    first and middle input of each piece
 *   slope, zero [H][max pieces] each   slope and value at 0 of each piece
 * At distance 0 the input is 0. If a unit switches on exactly there, the input 0 gets a separate piece with
 * middle 0. */
static int64_t fire_max_pieces(const rp_term *t)
{
    return t->width + 2 + (t->width + 1) * t->width2;
}

static int64_t fire_psi_entries(const rp_desc *d)
{
    const int64_t far = d->q_offset < 0 ? -d->q_offset : d->q_offset, both = d->len_q + d->len_k;
    return both + (far < both + 65536 ? far : 0) + 1; /* for longer distances, fire_psi computes the logarithm */
}

static int64_t fire_size(const rp_desc *d, const rp_term *t)
{
    int64_t size;
    const bool fits = rpi_mul(fire_max_pieces(t), 2 + 2 * d->heads, 1, &size) &&
                      !__builtin_add_overflow(size, 2 + 2 * fire_psi_entries(d), &size);
    return fits ? size : RPI_TOO_LARGE;
}

static int fire_ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void fire_middles(double *start, double *middle, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        middle[k] = k + 1 < n ? 0.5 * (start[k] + start[k + 1]) : 2 * start[k] + 1;
}

/* Return true if some unit is inactive at input 0 but active at input x. */
static bool fire_switches_at_0(const rpi_pair *p, double x)
{
    bool some = false;
    for (int64_t c = 0; c < p->term->width; c++)
        some |= fire_first(p, c, 0) <= 0 && fire_first(p, c, x) > 0;
    for (int64_t u = 0; u < p->term->width2; u++)
        some |= fire_second(p, u, 0) <= 0 && fire_second(p, u, x) > 0;
    return some;
}

static void fire_prepare(const rp_desc *d, const rp_term *t, const rpi_view *array, double *to)
{
    const int64_t max = fire_max_pieces(t), entries = fire_psi_entries(d);
    double *psi = to + 2 + entries - 1, *start = psi + entries, *middle = start + max, *slope = middle + max,
           *zero = slope + d->heads * max;
    rpi_pair p = {.desc = d, .term = t, .array = array};
    int64_t n = 1;
    start[0] = 0; /* inputs are not negative */
    for (int64_t c = 0; c < t->width; c++) {
        const double x = -rpi_at(&array[1], c, 0, 0, 0) / rpi_at(&array[0], c, 0, 0, 0);
        if (x > 0 && x < HUGE_VAL)
            start[n++] = x;
    }
    qsort(start, (size_t)n, sizeof *start, fire_ascending);
    fire_middles(start, middle, n);
    const int64_t first = n;
    for (int64_t u = 0; u < t->width2; u++)
        for (int64_t k = 0; k < first; k++) {
            double a, b;
            fire_second_line(&p, u, middle[k], &a, &b);
            const double x = -b / a;
            if (x > start[k] && x < (k + 1 < first ? start[k + 1] : HUGE_VAL))
                start[n++] = x;
        }
    qsort(start, (size_t)n, sizeof *start, fire_ascending);
    fire_middles(start, middle, n);
    if (fire_switches_at_0(&p, middle[0])) {
        memmove(start + 1, start, (size_t)n * sizeof *start);
        start[1] = n > 1 ? fmin(start[2], DBL_MIN) : DBL_MIN; /* the smallest normal input above 0 */
        fire_middles(start, middle, ++n);
        middle[0] = 0;
    }
    to[0] = (double)n;
    to[1] = (double)entries;
    for (int64_t r = 0; r < entries; r++)
        psi[r] = psi[-r] = log1p(fabs(t->c * (double)r));
    for (p.h = 0; p.h < d->heads; p.h++)
        for (int64_t k = 0; k < n; k++) {
            double a, b, *a_sum = &slope[p.h * max + k], *b_sum = &zero[p.h * max + k];
            if (!t->width2) {
                fire_second_line(&p, p.h, middle[k], a_sum, b_sum);
                continue;
            }
            *a_sum = 0;
            *b_sum = rpi_at(&array[5], p.h, 0, 0, 0);
            for (int64_t u = 0; u < t->width2; u++) {
                const double w = rpi_at(&array[4], p.h, u, 0, 0);
                if (fire_second(&p, u, middle[k]) <= 0)
                    continue;
                fire_second_line(&p, u, middle[k], &a, &b);
                *a_sum += w * a;
                *b_sum += w * b;
            }
        }
}

static const double *fire_table(const rpi_pair *p)
{
    return p->prepared + 2 + (int64_t)p->prepared[1] - 1;
}

static const double *fire_starts(const rpi_pair *p)
{
    return fire_table(p) + (int64_t)p->prepared[1];
}

static double fire_psi(const rpi_pair *p, int64_t r)
{
    return (double)r < p->prepared[1] ? fire_table(p)[r] : log1p(fabs(p->term->c * (double)r));
}

/* A run of keys whose inputs are in the same piece: keys position + side * r for r in [from, to). */
typedef struct fire_run {
    int64_t piece, from, to;
} fire_run;

/* Return the run that starts at distance r and ends at or before `past`. The search relies on the input growing with
 * the distance. */
static fire_run fire_next(const rpi_pair *p, double norm, int64_t r, int64_t past)
{
    const int64_t n = (int64_t)p->prepared[0];
    const double *start = fire_starts(p), x = fire_psi(p, r) * norm;
    int64_t low = 0, high = n; /* start[low] <= x < start[high] */
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        *(start[middle] <= x ? &low : &high) = middle;
    }
    int64_t inside = r,
            outside = past; /* inside: a distance known to be in the piece; outside: one known to be beyond it */
    if (low + 1 == n || fire_psi(p, past - 1) * norm < start[low + 1])
        inside = past - 1;
    while (outside - inside > 1) {
        const int64_t middle = inside + (outside - inside) / 2;
        *(fire_psi(p, middle) * norm < start[low + 1] ? &inside : &outside) = middle;
    }
    return (fire_run){low, r, inside + 1};
}

static double fire_norm(const rpi_pair *p)
{
    const rp_term *t = p->term;
    return 1 / (log1p(fabs(t->c * fmax(t->L, p->at))) + t->eps);
}

static void fire_line(double *to, const double *psi, int64_t n, double a, double b)
{
    int64_t c = 0;
    for (; c + 8 <= n; c += 8)
        *(eight_doubles *)(to + c) = *(const eight_doubles *)(psi + c) * a + b;
    for (; c < n; c++)
        to[c] = psi[c] * a + b;
}

static void fire_sum(const double *g, const double *psi, int64_t n, double *g0, double *g1)
{
    double sum0 = 0, sum1 = 0;
    eight_doubles all0 = {0}, all1 = {0};
    int64_t c = 0;
    for (; c + 8 <= n; c += 8) {
        const eight_doubles x = *(const eight_doubles *)(g + c);
        all0 += x;
        all1 += x * *(const eight_doubles *)(psi + c);
    }
    for (int lane = 0; lane < 8; lane++) {
        sum0 += all0[lane];
        sum1 += all1[lane];
    }
    for (; c < n; c++) {
        sum0 += g[c];
        sum1 += g[c] * psi[c];
    }
    *g0 += sum0;
    *g1 += sum1;
}

/* Process keys j0 … j0+n-1 of row (b, h, i) run by run. If g is NULL, write biases to `to`; otherwise add to sums. */
static void fire_walk(const rpi_pair *p, int64_t j0, int64_t n, double *to, const double *g, double *sums)
{
    const int64_t max = fire_max_pieces(p->term);
    const double *slope = fire_starts(p) + 2 * max + p->h * max, *zero = slope + p->desc->heads * max;
    const double norm = fire_norm(p), *table = fire_table(p);
    for (int side = -1; side <= 1; side += 2) {
        /* r is the distance of a key on this side, j = position + side * r; the right side includes r = 0 */
        const int64_t first = side > 0 ? rpi_max(j0 - p->position, 0) : rpi_max(p->position - (j0 + n - 1), 1);
        const int64_t past = side > 0 ? j0 + n - p->position : p->position - j0 + 1;
        for (int64_t r = first; r < past;) {
            const fire_run run = fire_next(p, norm, r, past);
            const double a = slope[run.piece] * norm, b = zero[run.piece];
            /* `at` is the index, relative to j0, of the run's first key in ascending order */
            const int64_t count = run.to - run.from, low = side > 0 ? run.from : 1 - run.to,
                          at = p->position + low - j0;
            double g0 = 0, g1 = 0;
            if ((double)run.to <= p->prepared[1]) {
                if (g)
                    fire_sum(g + at, table + low, count, &g0, &g1);
                else
                    fire_line(to + at, table + low, count, a, b);
            } else {
                for (int64_t c = 0; c < count; c++) {
                    const double psi = fire_psi(p, low + c < 0 ? -(low + c) : low + c);
                    if (g) {
                        g0 += g[at + c];
                        g1 += g[at + c] * psi;
                    } else {
                        to[at + c] = a * psi + b;
                    }
                }
            }
            if (g) {
                sums[2 * run.piece] += g0;
                sums[2 * run.piece + 1] += g1 * norm;
            }
            r = run.to;
        }
    }
}

static void fire_row(const rpi_pair *p, int64_t j0, int64_t n, double *to)
{
    fire_walk(p, j0, n, to, NULL, NULL);
}

static int64_t fire_sums_size(const rp_desc *d, const rp_term *t)
{
    (void)d;
    return 2 * fire_max_pieces(t);
}

static void fire_row_grad(const rpi_pair *p, int64_t j0, int64_t n, const double *g, double *sums)
{
    fire_walk(p, j0, n, NULL, g, sums);
}

static void fire_reduce_sums(const rpi_pair *p, const double *sums, const rpi_sums *to)
{
    const double *middle = fire_starts(p) + fire_max_pieces(p->term);
    for (int64_t k = 0; k < (int64_t)p->prepared[0]; k++)
        if (sums[2 * k] != 0 || sums[2 * k + 1] != 0)
            fire_sums_grad(p, middle[k], sums[2 * k], sums[2 * k + 1], to);
}

/* A layer has one unit for each row of its weights. */
static int fire_sizes(rp_term *t, const rp_array *a)
{
    take_size(&t->width, &a[0], 2, 1);
    take_size(&t->width2, a[4].data ? &a[2] : &a[4], 2, 1);
    return t->width == 0 && a[0].data ? 0 : -1;
}

static void fire_usual_sizes(rp_term *t, int64_t len_k)
{
    (void)len_k;
    t->width = t->width ? t->width : 32;
}

static int fire_example(const rpi_pair *p, char *to, size_t size)
{
    const rp_term *t = p->term;
    return snprintf(to, size, "MLP(log(|%g * %g| + 1) / (log(|%g * %g| + 1) + %g))[%lld]", t->c, fabs(p->delta), t->c,
                    fmax(t->L, p->at), t->eps, (long long)p->h);
}

RPI_SCHEME(
    FIRE, .form = RPI_TILE,
    .facts = {.formula =
                  "MLP(psi(|delta|) / (psi(max(L, p_i)) + eps))[h], psi(x) = log(|c x| + 1), ReLU between layers",
              .about = "a small network of the normalized distance",
              .samples = {"c=1,L=20,width=16", "c=0.5,L=2,width=4,width2=3"},
              .bench = {"c=1,L=512,width=32"}},
    .array = {{"w1", .shape = "[width, 1]", .draw = {.rule = RP_RULE_NORMAL_FAN},
               .start = {.rule = RP_RULE_UNIFORM_FAN, .a = 1}},
              {"b1", .shape = "[width]", .draw = {.rule = RP_RULE_NORMAL_FAN},
               .start = {.rule = RP_RULE_UNIFORM_FAN, .a = 1}},
              {"w2", .shape = "width2 ? [width2, width] : [H, width]", .draw = {.rule = RP_RULE_NORMAL_FAN},
               .start = {.rule = RP_RULE_UNIFORM_FAN}},
              {"b2", .shape = "width2 ? [width2] : [H]", .draw = {.rule = RP_RULE_NORMAL_FAN},
               .start = {.rule = RP_RULE_ZERO}},
              {"w3", .presence = RP_CONDITIONAL, .shape = "width2 ? [H, width2] : none",
               .draw = {.rule = RP_RULE_NORMAL_FAN}, .start = {.rule = RP_RULE_UNIFORM_FAN}},
              {"b3", .presence = RP_CONDITIONAL, .shape = "width2 ? [H] : none", .draw = {.rule = RP_RULE_NORMAL_FAN},
               .start = {.rule = RP_RULE_ZERO}},
              RPI_TWO_POSITIONS},
    .positions = 6, .params = fire_params, .sizes = fire_sizes, .usual_sizes = fire_usual_sizes, .check = fire_check,
    .pair = fire_pair, .roundings = fire_roundings, .example = fire_example, .grad = fire_grad,
    .tangent_grad = fire_tangent_grad, .row = fire_row, .sums_size = fire_sums_size, .row_grad = fire_row_grad,
    .reduce_sums = fire_reduce_sums, .prepare_size = fire_size, .prepare = fire_prepare)
