/* mass_tmpl.h -- vectors added to values by offset, and numbers that are not finite.
 * Compiled once per instruction set. */

/* Sum of x[from … to), lane by lane from column 0, so that zeros before and after change no bit. */
static float range_sum(const float *x, int64_t from, int64_t to)
{
    vf sum = vf_set1(0.0f);
    for (int64_t j = from / VL * VL; j < to; j += VL) {
        if (j >= from && j + VL <= to) {
            sum = sum + vf_load(x + j);
        } else {
            float lane[VL];
            for (int n = 0; n < VL; n++)
                lane[n] = j + n >= from && j + n < to ? x[j + n] : 0.0f;
            sum = sum + vf_load(lane);
        }
    }
    return vf_sum(sum);
}

/* Add mass * vectors to out and start again at zero. */
static void flush_mass(block *k)
{
    const rpi_call *c = k->c;
    const float *packed = c->vec_v + k->h * c->vec_v_step;
    for (int64_t g = 0; g < k->groups && k->mass_low < k->mass_high; g++)
        add_values(k->mass + g * MR * k->mass_step, k->mass_step, 0, k->mass_high - k->mass_low, packed, k->mass_low,
                   c->pad_rows_v, k->o + g * MR * c->pad_v, c->pad_v, ones);
    memset(k->mass, 0, (size_t)(k->groups * MR * k->mass_step) * sizeof(float));
    k->mass_low = k->mass_high = 0;
}

/* Collect the weights of the tile by vector of VALVEC: to the end of the row where all vectors fit the window, else tile
 * by tile, from a multiple of VB on, so that the order of a row's sums depends on the row alone. */
static void add_mass(block *k, const tile *t)
{
    const rpi_call *c = k->c;
    const rp_term *term = &c->plan->terms[c->plan->valvec];
    const int64_t R = c->plan->rows_v, last = k->groups * MR - 1;
    const int64_t low = rpi_clamp(delta_of(k, t, last) + term->left, 0, R - 1),
                  high = rpi_clamp(delta_of(k, t, 0) + term->left + t->end, 1, R);
    k->mass_low = R <= k->mass_step ? 0 : low / VB * VB;
    k->mass_high = R <= k->mass_step ? R : high;
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t from = t->from[r / MR], to = t->to[r / MR], shift = delta_of(k, t, r) + term->left;
        const int64_t inside = rpi_clamp(-shift, from, to), outside = rpi_clamp(R - shift, inside, to);
        const float *w = k->s + r * STEP;
        float *mass = k->mass + r * k->mass_step;
        const int64_t at = shift - k->mass_low; /* of the column 0 of the tile */
        if (from == to)
            continue;
        if (from < inside)
            mass[-k->mass_low] += range_sum(w, from, inside); /* the window starts at 0 where a row is clipped */
        for (int64_t j = inside; j < outside;) {
            if (j + VL <= outside) {
                vf_store(mass + at + j, vf_load(mass + at + j) + vf_load(w + j));
                j += VL;
            } else {
                mass[at + j] += w[j];
                j++;
            }
        }
        if (outside < to)
            mass[R - 1 - k->mass_low] += range_sum(w, outside, to);
    }
    if (R > k->mass_step)
        flush_mass(k);
}

/* Values, and vectors of VALVEC, that are not finite were packed as 0: add them to the rows that attend to them. */
static void add_wild(block *k, const tile *t)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->plan->desc;
    const rpi_view *v = &c->args->v;
    const rp_term *term = c->plan->valvec >= 0 ? &c->plan->terms[c->plan->valvec] : NULL;
    const uint8_t *wild_vec = c->wild_vec ? c->wild_vec + k->h * c->wild_vec_step : NULL;
    const int64_t g = k->h / (d->heads / d->kv_heads), real = rpi_min(t->end, d->len_k - t->tile0);
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t j = 0; j < real; j++) {
            const float w = k->s[r * STEP + j];
            if (!k->keep[r * KB + j])
                continue;
            if (c->wild_v[k->kv * c->pad_k + t->tile0 + j]) {
                const float *x = (const float *)v->data + rpi_index(v, k->b, g, t->tile0 + j, 0);
                for (int64_t n = 0; n < d->dim_v; n++)
                    k->o[r * c->pad_v + n] += w * x[n];
            }
            if (!wild_vec)
                continue;
            rpi_pair p = {.desc = d, .term = term, .array = c->args->term[c->plan->valvec], .b = k->b, .h = k->h};
            p.delta = delta_of(k, t, r) + j;
            const int64_t index = rpi_clamp(p.delta, -term->left, term->right) + term->left;
            for (int64_t n = 0; wild_vec[index] && n < d->dim_v; n++)
                k->o[r * c->pad_v + n] += w * (float)rpi_scheme_of(term->kind)->vec(&p, n);
        }
}
