/* terms/shaw.h -- learned vectors for clipped offsets, added to keys (relkey) or to values (relval).
 * Shaw, Uszkoreit, Vaswani 2018: equation 4 (keys, inside the scaling) and equation 3 (values).
 * SPDX-License-Identifier: Apache-2.0 */

static int64_t relval_width(const rp_desc *d, const rp_term *t)
{
    (void)t;
    return d->dim_v;
}

RPI_SCHEME(RELKEY, .form = RPI_VEC,
           .facts = {.formula = "scale <q_i, table[clamp(delta, -left, right) + left]>",
                     .about = "vectors for keys by offset (Shaw)",
                     .class_name = "RelKey",
                     .shown = "rel_K",
                     .samples = {"left=6,right=3", "left=1500,right=900",
                                 "left=4,right=5,q_position_mask=given,k_position_mask=given"},
                     .bench = {"left=64,right=64"}},
           .array = {{"table", .shape = "[H?, left+right+1, Dk]", .start = {.rule = RP_RULE_XAVIER}},
                     RPI_TWO_POSITIONS,
                     RPI_POSITION_MASKS},
           .positions = 1, .params = clip_params,
           .product = {{.shown = "scale * q . table",
                        .count = clip_count,
                        .first = clip_first,
                        .vec = clip_vec,
                        .row = clip_row,
                        .vec_grad = clip_vec_grad}})
RPI_SCHEME(RELVAL, .form = RPI_VALVEC,
           .facts = {.formula = "adds table[clamp(delta, -left, right) + left] to v_j",
                     .about = "vectors for values by offset (Shaw)",
                     .class_name = "RelValue",
                     .samples = {"left=4,right=8", "left=1500,right=900",
                                 "left=5,right=4,q_position_mask=given,k_position_mask=given"},
                     .bench = {"left=64,right=64"}},
           .array = {{"table", .shape = "[H?, left+right+1, Dv]", .start = {.rule = RP_RULE_XAVIER}},
                     RPI_TWO_POSITIONS,
                     RPI_POSITION_MASKS},
           .positions = 1, .params = clip_params,
           .product = {{.shown = "sum of w table",
                        .count = clip_count,
                        .first = clip_first,
                        .width = relval_width,
                        .vec = clip_vec,
                        .row = clip_row,
                        .vec_grad = clip_vec_grad}})
