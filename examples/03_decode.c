/* 03_decode.c -- decode token by token with one plan; keys and values are in pages, and biases are computed once.
 *
 *     cc 03_decode.c $(pkg-config --cflags --libs relpos) -lm -o 03_decode && ./03_decode
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <relpos/relpos.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 8, HK = 2, D = 64, LONGEST = 600, PAGE = 128, PAGES = (LONGEST + PAGE - 1) / PAGE };

static void fill_random(float *x, int n)
{
    for (int c = 0; c < n; c++)
        x[c] = (float)rand() / (float)RAND_MAX - 0.5f;
}

int main(void)
{
    static float k_pages[PAGES][HK][PAGE][D], v_pages[PAGES][HK][PAGE][D], q[H][D], out[H][D];
    static float norms[PAGES][HK][PAGE / RP_NORM_KEYS];
    const void *k_at[PAGES], *v_at[PAGES];
    void *norms_at[PAGES];
    const int64_t shape[4] = {1, H, 1, D}, one[1] = {1};
    int64_t position = 0;
    for (int n = 0; n < PAGES; n++) { /* a real cache allocates pages as the sequence grows */
        k_at[n] = k_pages[n];
        v_at[n] = v_pages[n];
        norms_at[n] = norms[n];
    }

    rp_term terms[2] = {rp_term_init(RP_TERM_ROPE), rp_term_init(RP_TERM_ALIBI)};
    rp_desc desc = rp_desc_init(1, H, 1, LONGEST, D);
    desc.kv_heads = HK;
    desc.terms = terms, desc.n_terms = 2;
    desc.flexible = 1; /* each call may have a different number of keys, up to LONGEST */
    rp_plan *plan = NULL;
    rp_prepared *prepared = NULL;
    rp_tensors t = rp_tensors_init();
    if (rp_plan_create(&plan, &desc) != RP_OK || rp_prepare(&prepared, plan, &t) != RP_OK) {
        fprintf(stderr, "%s\n", rp_last_error());
        return 1;
    }
    t.prepared = prepared;
    t.q = rp_array_of(q, RP_F32, 4, shape);
    t.out = rp_array_of(out, RP_F32, 4, shape);
    t.q_offset = rp_array_of(&position, RP_I64, 1, one); /* position of the query */
    t.pages = (rp_pages){.k = k_at,
                         .v = v_at,
                         .page = PAGE,
                         .per_batch = PAGES,
                         .k_head = PAGE * D,
                         .k_key = D,
                         .v_head = PAGE * D,
                         .v_key = D,
                         .norms = norms_at};

    for (position = 0; position < LONGEST; position++) {
        for (int h = 0; h < HK; h++) { /* append the new token to the cache */
            fill_random(k_pages[position / PAGE][h][position % PAGE], D);
            fill_random(v_pages[position / PAGE][h][position % PAGE], D);
        }
        fill_random(&q[0][0], H * D);
        t.pages.len_k = position + 1;
        /* with the norm of the new key, ALiBi skips keys that are too far away to have a weight */
        if (rp_key_norms(plan, &t, position, NULL) != RP_OK || rp_attend(plan, &t, NULL) != RP_OK) {
            fprintf(stderr, "%s\n", rp_last_error());
            return 1;
        }
        if (position % 100 == 99)
            printf("token %3d attends to %3d keys: %+.4f %+.4f …\n", (int)position, (int)position + 1,
                   (double)out[0][0], (double)out[0][1]);
    }
    rp_prepared_destroy(prepared);
    rp_plan_destroy(plan);
    return 0;
}
