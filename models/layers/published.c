/* published.c -- descriptions of layers from published texts, with the names of their weights.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layers/layer.h"
#include <string.h>

/* Describe one head without projections. */
static rp_layer_desc bare(int64_t d_k, int64_t d_v)
{
    rp_layer_desc d = rp_layer_desc_init(d_k, 1);
    memset(d.weight, 0, sizeof d.weight);
    d.dtype = RP_F64;
    d.dim_k = d_k;
    d.dim_v = d.value_width = d_v;
    d.flat = 1;
    return d;
}

static rp_term *add_term(rp_layer_desc *d, rp_term_kind kind)
{
    d->term[d->n_terms] = rp_term_init(kind);
    return &d->term[d->n_terms++];
}

static void add_buckets(rp_layer_desc *d, int64_t num_buckets, int64_t max_distance, int bidirectional,
                        const char *name)
{
    rp_term *t = add_term(d, RP_TERM_T5);
    t->buckets = num_buckets;
    t->max_distance = max_distance;
    t->bidirectional = bidirectional != 0;
    d->term_name[0][0] = name;
}

/* Pack the projections of Q, K and V. The names are those of their weights and bias vectors, then of the output's. */
static void pack(rp_layer_desc *d, bool bias, const char *const names[4])
{
    for (int x = 0; x < RP_PROJECTIONS; x++)
        d->bias[x] = bias;
    d->packed = 1;
    d->weight_name[RP_Q] = names[0];
    d->bias_name[RP_Q] = names[1];
    d->weight_name[RP_O] = names[2];
    d->bias_name[RP_O] = names[3];
}

rp_layer_desc rp_layer_position_bias_attention(int64_t d_k, int64_t d_v, double bias_scale)
{
    rp_layer_desc d = bare(d_k, d_v);
    add_term(&d, RP_TERM_LOG)->lambda = bias_scale;
    return d;
}

rp_layer_desc rp_layer_position_table_attention(int64_t d_k, int64_t d_v, int64_t num_buckets, int64_t max_distance)
{
    rp_layer_desc d = bare(d_k, d_v);
    add_buckets(&d, num_buckets, max_distance, 1, "relative_bias_table");
    return d;
}

rp_layer_desc rp_layer_relative_self_attention(int64_t embed_dim, int64_t d_k, int64_t d_v, int64_t max_distance)
{
    rp_layer_desc d = rp_layer_desc_init(embed_dim, 1);
    d.dtype = RP_F64;
    d.dim_k = d_k;
    d.dim_v = d_v;
    d.weight[RP_O] = 0;
    d.transposed = 1;
    d.weight_name[RP_Q] = "W_q";
    d.weight_name[RP_K] = "W_k";
    d.weight_name[RP_V] = "W_v";
    const rp_term_kind kinds[] = {RP_TERM_RELKEY, RP_TERM_RELVAL};
    const char *const names[] = {"rel_embed.a_K", "rel_embed.a_V"};
    for (int x = 0; x < 2; x++) {
        rp_term *t = add_term(&d, kinds[x]);
        t->left = t->right = max_distance;
        d.term_name[x][0] = names[x];
    }
    return d;
}

rp_layer_desc rp_layer_vit_attention(int64_t dim, int64_t num_heads)
{
    rp_layer_desc d = rp_layer_desc_init(dim, num_heads);
    pack(&d, true, (const char *const[4]){"qkv.weight", "qkv.bias", "proj.weight", "proj.bias"});
    return d;
}

rp_layer_desc rp_layer_window_attention(int64_t dim, int64_t window_h, int64_t window_w, int64_t num_heads)
{
    rp_layer_desc d = rp_layer_vit_attention(dim, num_heads);
    rp_term *t = add_term(&d, RP_TERM_SWIN);
    t->grid_h = window_h;
    t->grid_w = window_w;
    d.term_name[0][0] = "relative_position_bias_table";
    return d;
}

rp_layer_desc rp_layer_t5_attention(int64_t dim, int64_t num_heads, int64_t num_buckets, int64_t max_distance,
                                    int has_relative_bias, int bidirectional)
{
    rp_layer_desc d = rp_layer_desc_init(dim, num_heads);
    if (has_relative_bias)
        add_buckets(&d, num_buckets, max_distance, bidirectional, "relative_bias.relative_attention_bias.weight");
    return d;
}

rp_layer_desc rp_layer_relative_positional_bias(int64_t num_heads, int64_t num_buckets, int64_t max_distance,
                                                int bidirectional)
{
    rp_layer_desc d = rp_layer_desc_init(num_heads, num_heads);
    memset(d.weight, 0, sizeof d.weight);
    add_buckets(&d, num_buckets, max_distance, bidirectional, "relative_attention_bias.weight");
    return d;
}

rp_layer_desc rp_layer_additive_rel_attention(int64_t embed_dim, int64_t num_heads, int64_t max_distance,
                                              double dropout, int bias)
{
    rp_layer_desc d = rp_layer_desc_init(embed_dim, num_heads);
    pack(&d, bias != 0,
         (const char *const[4]){"attn.in_proj_weight", "attn.in_proj_bias", "attn.out_proj.weight",
                                "attn.out_proj.bias"});
    d.one_table = 1;
    d.flat = 1;
    d.dropout = dropout;
    add_term(&d, RP_TERM_REAL)->max_distance = max_distance;
    d.term_name[0][0] = "rel_bias";
    return d;
}
