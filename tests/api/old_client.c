/* old_client.c -- a program compiled with the header of an earlier version, and linked with the current library. In
 * that header rp_term and rp_mask end before their newest fields. tests/CMakeLists.txt makes it by removing these
 * fields.
 * SPDX-License-Identifier: Apache-2.0 */
#include <relpos/relpos.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef EXPECTED_TERM_SIZE
#error "EXPECTED_TERM_SIZE is the size of rp_term that this program has to have"
#endif
_Static_assert(sizeof(rp_term) == EXPECTED_TERM_SIZE, "the header was cut");

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "old_client.c:%d: %s: %s\n", __LINE__, #condition, rp_last_error());                       \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Return `bytes` bytes that end at an unmapped page, so an access beyond them ends the program. */
static void *before_the_edge(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || bytes > page || mprotect(at + page, page, PROT_NONE) != 0)
        return NULL;
    return at + page - bytes;
}

int main(void)
{
    /* two terms: the library must find the second by this program's struct size, and read no further than the end of
     * the first */
    rp_term *terms = before_the_edge(2 * sizeof *terms);
    rp_mask *masks = before_the_edge(2 * sizeof *masks);
    REQUIRE(terms && masks);
    terms[0] = rp_term_init(RP_TERM_LOG);
    terms[1] = rp_term_init(RP_TERM_LINEAR);
    terms[1].rate_left = 0.5;
    memset(masks, 0, 2 * sizeof *masks);
    masks[0].kind = RP_MASK_CAUSAL;
    masks[1].kind = RP_MASK_WINDOW;
    masks[1].left = 1;
    rp_desc desc = rp_desc_init(1, 1, 3, 3, 4);
    desc.terms = terms, desc.n_terms = 2;
    desc.masks = masks, desc.n_masks = 2;
    rp_plan *plan;
    REQUIRE(rp_plan_create(&plan, &desc) == RP_OK);
    float bias[9], q[12] = {0}, out[12];
    const int64_t shape[3] = {1, 3, 3}, rows[4] = {1, 1, 3, 4};
    rp_tensors t = rp_tensors_init();
    const rp_array to = rp_array_of(bias, RP_F32, 3, shape);
    REQUIRE(rp_bias(plan, &t, 0, &to) == RP_OK);
    REQUIRE(fabs(bias[6] - (-0.3 * log(3.0) - 0.5 * 2)) < 1e-6); /* query 2, key 0 */
    t.q = t.k = t.v = rp_array_of(q, RP_F32, 4, rows);
    t.out = rp_array_of(out, RP_F32, 4, rows);
    REQUIRE(rp_attend(plan, &t, NULL) == RP_OK);
    rp_plan_destroy(plan);

    /* the library must write no further than the end of this program's rp_term */
    rp_term *term = before_the_edge(sizeof *term);
    char names[RP_MAX_ARRAYS][RP_NAME_MAX], text[1024];
    REQUIRE(term && rp_term_parse("t5,table=rel_bias,buckets=16", term, names) == RP_OK);
    REQUIRE(term->buckets == 16 && strcmp(names[0], "rel_bias") == 0);
    REQUIRE(rp_term_print(term, text, sizeof text) == RP_OK && strstr(text, "buckets=16"));
    REQUIRE(rp_term_parse("rope,dim=4", term, names) == RP_OK);
    double frequency[2], factor;
    REQUIRE(rp_rope_frequencies(term, 1, NULL, NULL, frequency, &factor) == RP_OK && frequency[0] == 1);

    /* errors: a term that needs a field which the old struct lacks, and a struct size that no version had */
    REQUIRE(rp_term_parse("rope,dim=4,scaling=llama3,factor=8,original_max_position_embeddings=64,high_freq_factor=3",
                          term, names) == RP_E_UNSUPPORTED);
    desc.term_size = sizeof *terms + 128;
    REQUIRE(rp_plan_create(&plan, &desc) == RP_E_ARG);
    desc.term_size = sizeof *terms - 1;
    REQUIRE(rp_plan_create(&plan, &desc) == RP_E_ARG);
    desc.term_size = 0;
    REQUIRE(rp_plan_create(&plan, &desc) == RP_E_ARG);
    desc.term_size = sizeof *terms;
    desc.mask_size = 0;
    REQUIRE(rp_plan_create(&plan, &desc) == RP_E_ARG);
    puts("a program of an older header works with this library");
    return 0;
}
