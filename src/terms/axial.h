/* terms/axial.h -- terms with a table (axial) or vectors (axialkey) for each axis of a grid.
 * axial: bh[h, dy + grid_h-1] + bw[h, dx + grid_w-1]; dy and dx are key minus query.
 * SPDX-License-Identifier: Apache-2.0 */

static int64_t axial_index(const rpi_pair *p)
{
    const rp_term *t = p->term;
    return grid_rows(t, p->j, p->i) * (2 * t->grid_w - 1) + grid_columns(t, p->j, p->i);
}

static double axial_entry(const rpi_pair *p, int64_t e)
{
    const int64_t across = 2 * p->term->grid_w - 1;
    return rpi_at(&p->array[0], p->h, e / across, 0, 0) + rpi_at(&p->array[1], p->h, e % across, 0, 0);
}

static void axial_entry_grad(const rpi_pair *p, int64_t e, double g, const rpi_sums *to)
{
    const int64_t across = 2 * p->term->grid_w - 1;
    rpi_add(to, 0, p->h, e / across, 0, 0, g);
    rpi_add(to, 1, p->h, e % across, 0, 0, g);
}

static int axial_example(const rpi_pair *p, char *to, size_t size)
{
    const int64_t e = axial_index(p), across = 2 * p->term->grid_w - 1;
    return snprintf(to, size, "%g + %g", rpi_at(&p->array[0], p->h, e / across, 0, 0),
                    rpi_at(&p->array[1], p->h, e % across, 0, 0));
}

RPI_SCHEME(
    AXIAL, .form = RPI_INDEX,
    .facts = {.formula =
                  "bh[h, dy + grid_h-1] + bw[h, dx + grid_w-1]; dy, dx: row and column of the key minus the query",
              .about = "one table for rows and one for columns",
              .samples = {"grid=12x8"},
              .bench = {"grid=32x64"}},
    .array = {{"bh", .shape = "[H?, 2*grid_h-1]"}, {"bw", .shape = "[H?, 2*grid_w-1]"}}, .params = grid_params + 1,
    .check = grid_check, .grid = true, .check_arrays = grid_check_arrays, .entries = grid_entries, .index = axial_index,
    .example = axial_example, .entry = axial_entry, .entry_grad = axial_entry_grad)

/* axialkey: <q_i, rh[dy + grid_h-1] + rw[dx + grid_w-1]>; dy and dx are query minus key. Li et al. 2022 (MViTv2),
 * equation 4; unscaled, as in SAM and ViTDet. */

#define RPI_AXIS(axis, side, number, difference)                                                                       \
    static int64_t axialkey_##axis##_count(const rp_desc *d, const rp_term *t)                                         \
    {                                                                                                                  \
        (void)d;                                                                                                       \
        return 2 * t->side - 1;                                                                                        \
    }                                                                                                                  \
    static int64_t axialkey_##axis##_index(const rpi_pair *p)                                                          \
    {                                                                                                                  \
        return difference(p->term, p->i, p->j);                                                                        \
    }                                                                                                                  \
    static double axialkey_##axis##_vec(const rpi_pair *p, int64_t e, int64_t c)                                       \
    {                                                                                                                  \
        return rpi_at(&p->array[number], e, c, 0, 0);                                                                  \
    }                                                                                                                  \
    static void axialkey_##axis##_grad(const rpi_pair *p, int64_t e, int64_t c, double g, const rpi_sums *to)          \
    {                                                                                                                  \
        (void)p;                                                                                                       \
        rpi_add(to, number, e, c, 0, 0, g);                                                                            \
    }
RPI_AXIS(h, grid_h, 0, grid_rows)
RPI_AXIS(w, grid_w, 1, grid_columns)
#undef RPI_AXIS

#define RPI_AXIS_PRODUCT(axis, number)                                                                                 \
    .array = number, .shown = "q . r" #axis, .count = axialkey_##axis##_count, .index = axialkey_##axis##_index,       \
    .vec = axialkey_##axis##_vec, .vec_grad = axialkey_##axis##_grad
RPI_SCHEME(
    AXIALKEY, .form = RPI_VEC, .unscaled = true,
    .facts = {.formula =
                  "<q_i, rh[dy + grid_h-1] + rw[dx + grid_w-1]>; dy, dx: row and column of the query minus the key",
              .about = "vectors for keys by row and column (MViTv2, SAM)",
              .class_name = "AxialKey",
              .samples = {"grid=7x6"},
              .bench = {"grid=32x64"}},
    .array = {{"rh", .shape = "[2*grid_h-1, Dk]", .draw = {.rule = RP_RULE_NORMAL_FAN}},
              {"rw", .shape = "[2*grid_w-1, Dk]", .draw = {.rule = RP_RULE_NORMAL_FAN}}},
    .params = grid_params + 1, .check = grid_check, .grid = true, .check_arrays = grid_check_arrays,
    .product = {{RPI_AXIS_PRODUCT(h, 0)}, {RPI_AXIS_PRODUCT(w, 1)}})
#undef RPI_AXIS_PRODUCT
