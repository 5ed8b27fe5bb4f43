/* gradients.h -- problems for testing gradients: every term in a small size, and one problem for each way in which a
 * gradient is summed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_GRADIENTS_H
#define RELPOS_TESTS_GRADIENTS_H
#include "tests/helpers.h"

HELPER const struct {
    const char *text, *sizes; /* NULL: small sizes, which the test chooses in turn */
} terms[] = {
    {"", NULL},
    {"table,left=3,right=2", NULL},
    {"t5,buckets=8,max_distance=9", NULL},
    {"t5,buckets=6,max_distance=20,bidirectional=0,q_positions=x,k_positions=y", NULL},
    {"bucket,strategy=uniform,buckets=8,max_distance=10+bucket,strategy=linear,buckets=8,max_distance=10", NULL},
    {"bucket,strategy=quadratic,buckets=8,max_distance=10", NULL},
    {"log+linear,left=0.2,right=0.4+sandwich,dim=4", NULL},
    {"alibi", NULL},
    {"alibi,slopes=given", NULL},
    {"alibi,slopes=given,q_positions=x", NULL},
    {"alibi,batch_slopes=given", NULL},
    {"alibi,batch_slopes=given,k_positions=x,q_position_mask=given", NULL},
    {"alibi,slopes=given,q_position_mask=given", NULL},
    {"alibi,slopes=given,q_positions=x,k_position_mask=given", NULL},
    {"kerple", NULL},
    {"kerple,kind=power", NULL},
    {"fire,c=1,L=4,width=5", NULL},
    {"fire,c=0.5,L=2,width=4,width2=3", NULL},
    {"swin,grid=2x3", "b2h4g2q6k6d4v3"},
    {"swin,grid=2x4,extra=1", "b1h2q9k9d6v5"},
    {"axial,grid=3x2", "b2h2q6k6d4"},
    {"real,max_distance=3", NULL},
    {"real,max_distance=9,sign=1,q_position_mask=given,k_position_mask=given", NULL},
    {"real,max_distance=4,k_positions=x", NULL},
    {"band,width=3,extent=4", NULL},
    {"forget", NULL},
    {"dense", NULL},
    {"rope", NULL},
    {"rope,layout=interleaved,dim=2+t5,buckets=8,max_distance=9", NULL},
    {"rope,scaling=linear,factor=4,q_positions=x,k_positions=y", NULL},
    {"rope,frequencies=f", NULL},
    {"rope,axes=2,frequencies=f,q_positions=x,k_positions=y", NULL},
    {"rope,angles=a", "b2h4g2q6k6d4v3"},
    {"rope,layout=interleaved,dim=2,q_angles=x,k_angles=y", NULL},
    {"rope,first=1,layout=interleaved", "b2h4g2q6k6d7v3"},
    {"rope,first=1,dim=4,by_channel=1,q_angles=x,k_angles=y", "b2h4g2q5k7d6v3"},
    {"rope,layout=interleaved,dim=2,frequencies=f,q_positions=x,k_positions=y+relkey,left=1,right=1", NULL},
    {"rope,scaling=dynamic,factor=2,max_position_embeddings=5,positions=x", "b2h4g2q6k6d4v3"},
    {"rope,scaling=yarn,factor=8,original_max_position_embeddings=16", NULL},
    {"rope,scaling=llama3,factor=8,original_max_position_embeddings=16", NULL},
    {"rope,scaling=longrope,factor=4,original_max_position_embeddings=6", NULL},
    {"relkey,left=2,right=3", NULL},
    {"relkey,left=2,right=3,q_positions=x,k_positions=y", NULL},
    {"relkey,left=2,right=3,q_position_mask=x,k_position_mask=y+band,width=2,extent=3", NULL},
    {"relval,left=3,right=2", NULL},
    {"relval,left=3,right=2,k_positions=y", NULL},
    {"relval,left=3,right=2,k_positions=y,q_position_mask=x,k_position_mask=z", NULL},
    {"xl", NULL},
    {"axialkey,grid=2x4+axial,grid=2x4", "b2h2q8k8d4v3"},
    {"axialkey,grid=1x20+axial,grid=1x20+swin,grid=1x20", "b1h1q20k20d4v3"}, /* consecutive entries, up and down */
    {"deberta,span=4", NULL},
    {"deberta,buckets=8,max_position=16", NULL},
    {"sink", NULL},
    {"sink+relval,left=1,right=1+relkey,left=1,right=1+rope+dense", NULL},
    {"band,width=2,extent=3+fire,c=1,L=5,width=3+forget+kerple+real,max_distance=2+rope+xl+relval,left=1,right=1+sink",
     NULL},
    {"rope+t5,buckets=4,max_distance=4+alibi,slopes=x+dense+dense+deberta,span=3", NULL},
    {"lookup,entries=5", NULL},
};

HELPER const char *const settings[] = {"",
                                       "causal",
                                       "softcap=1.5+dsoftcap",
                                       "positions",
                                       "mask",
                                       "dropout=0.3+seed=5",
                                       "q_offsets+causal",
                                       "softcap_after=2+window=3,2+dsoftcap",
                                       "softcap=1.5+softcap_after=2+dsoftcap",
                                       "key_mask",
                                       "positions+causal+softcap=2+dsoftcap",
                                       "lengths+scale=0.6",
                                       "mask+dropout=0.2+seed=9+softcap_after=3+dsoftcap",
                                       "window=4,-1+key_mask+q_offsets",
                                       "dlse",
                                       "dlse+lengths+softcap=2+dropout=0.2+seed=3+dsoftcap",
                                       "dweights+key_mask+dropout=0.3+seed=4",
                                       "dsummary+causal+dropout=0.2+seed=6",
                                       "dweights+dsummary+dlse+softcap=2+softcap_after=3+dsoftcap"};

HELPER const char *const small[] = {"b2h4g2q5k7d4v3o2", "b1h2q6k9d6v5o-2", "b2h2q7k4d8v2", "b1h3g1q1k8d2o6"};

enum {
    TERMS = sizeof terms / sizeof *terms,
    SETTINGS = sizeof settings / sizeof *settings,
    SMALL = sizeof small / sizeof *small
};

/* One problem for each way in which a gradient is summed. They have two kv heads, several blocks of keys and of rows,
 * and sums over heads and batch. */
HELPER const char *const sums[] = {
    "b2h4g2q97k300d8v5:t5,buckets=8,max_distance=20+rope:causal",
    "b2h2g1q97k260d5v8o200:relkey,left=9,right=2+relval,left=2,right=9+alibi,slopes=x:",
    ("b2h2g1q97k260d5v8o200:relkey,left=9,right=2,k_position_mask=y+relval,left=2,right=9,q_position_mask=x+alibi,"
     "slopes=z,k_position_mask=y:"),
    "b2h2g1q97k260d6v6:dense+sink:mask+softcap=2+softcap_after=3+dsoftcap",
    "b2h2g1q97k300d6v6o-20:alibi,slopes=x+sink+rope:dlse+causal",
    "b2h2g1q97k300d6v6o-20:alibi,slopes=x+sink,rows=1+rope:dlse+causal",
    "b2h2g1q97k300d6v6:alibi,batch_slopes=x+t5,buckets=8,max_distance=20:causal",
    "b2h2g1q20k260d6v6:fire,c=1,L=9,width=3+real,max_distance=9:positions",
    "b2h2g1q97k260d6v6o250:forget+band,width=3,extent=9:",
    "b2h2g1q97k260d6v6:xl:key_mask+lengths",
    "b2h2g1q97k260d6v6:deberta,span=9:window=100,20",
    "b2h2g1q99k99d6v6:swin,grid=9x11+axialkey,grid=9x11:dropout=0.2+seed=3",
    "b2h2g1q20k260d6v6:relkey,left=9,right=9+t5,buckets=8,max_distance=20:positions+softcap_after=3+dsoftcap",
    "b2h2g1q40k60d1v1:relval,left=9,right=2:causal", /* rows of one channel */
    "b2h4g2q97k300d6v5:t5,buckets=8,max_distance=20+relval,left=3,right=9+sink:causal+dweights+dropout=0.2+seed=3",
    "b2h2g1q99k280d6v6o30:alibi,slopes=x+dense+forget:dsummary+softcap=2+lengths+dsoftcap",
    "b2h2g1q97k300d6v6:deberta,span=9:dweights+dsummary+dlse+mask",
    "b2h4g2q97k260d6v6:lookup,entries=300+t5:causal+softcap=2",
};

enum { SUMS = sizeof sums / sizeof *sums };

/* Cut an axis to its element b, unless it broadcasts. */
HELPER void cut_entry(rp_array *a, int32_t axis, int64_t b)
{
    if (!a->data || axis < 0 || a->shape[axis] == 1)
        return;
    a->shape[axis] = 1;
    a->data = (char *)a->data + b * a->stride[axis] * (int64_t)rp_dtype_size(a->dtype);
}

/* Let a problem have only batch entry b of its description `whole`, arrays t and gradients of outputs g: every axis
 * that is as long as the batch is cut to that entry. Give the gradients `alone` the shapes of the arrays. */
HELPER void take_entry(problem *p, const rp_desc *whole, const rp_tensors *t, const rp_grads *g, int64_t b,
                       rp_grads *alone)
{
    int32_t ndim;
    int64_t before[RP_MAX_AXES], after[RP_MAX_AXES];
    rp_array *const inputs[] = {&p->t.q, &p->t.k, &p->t.v, &p->t.out, &p->t.lse, &p->t.q_offset, &alone->dout};
    p->t = *t;
    p->desc = *whole;
    p->desc.batch = 1;
    alone->dout = g->dout;
    for (int x = 0; x < (int)(sizeof inputs / sizeof *inputs); x++)
        cut_entry(inputs[x], 0, b);
    for (int x = 0; x < OUTPUT_GRADIENTS; x++) {
        rp_grads all = *g;
        *output_gradient(alone, x) = *output_gradient(&all, x);
        cut_entry(output_gradient(alone, x), 0, b);
    }
    for (int m = 3; m < SOFTCAPS; m++) {
        rp_array *a = source_of(p, m);
        if (!a->data)
            continue;
        good(rp_term_shape(whole, (m - 3) / RP_MAX_ARRAYS, (m - 3) % RP_MAX_ARRAYS, &ndim, before));
        good(rp_term_shape(&p->desc, (m - 3) / RP_MAX_ARRAYS, (m - 3) % RP_MAX_ARRAYS, &ndim, after));
        for (int32_t axis = 0; axis < ndim; axis++)
            if (before[axis] != after[axis])
                cut_entry(a, axis - (ndim - a->ndim), b);
    }
    for (int m = 0; m < GRADIENTS; m++) {
        rp_array *to = gradient(alone, m);
        const rp_array *of = source_of(p, m);
        if (to->data)
            *to = rp_array_of(to->data, to->dtype, of->ndim, of->shape);
    }
    for (int32_t m = 0; m < whole->n_masks; m++)
        cut_entry(&p->t.mask[m], 0, b);
}

HELPER void same_gradients(problem *p, const char *isa, const char *what, rp_grads *a, rp_grads *b)
{
    char line[128];
    for (int n = 0; n < GRADIENTS; n++) {
        const rp_array *x = gradient(a, n), *y = gradient(b, n);
        if (!x->data || !y->data)
            continue;
        snprintf(line, sizeof line, "%s: %s", what, gradient_name(p, n));
        same_bits(p, isa, line, x->data, y->data, (size_t)problem_size(x) * rp_dtype_size(x->dtype));
    }
}

#endif
