/* test_t5_returns.c -- get each error of functions in t5.h that other tests do not get, for the comparison with their
 * Returns paragraphs (tests/returns.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/t5/folders.h"
#include "tests/starve.h"

#define GETS(want, call)                                                                                               \
    do {                                                                                                               \
        const rp_status got_ = call;                                                                                   \
        if (got_ != (want))                                                                                            \
            fail_msg("%s: %s (\"%s\"), not %s", #call, rp_status_name(got_), rp_t5_last_error(),                       \
                     rp_status_name(want));                                                                            \
    } while (0)

#define PROTEINS DATA "/proteins/prostt5"

/* The models of all calls. Their pool has one thread, so no other thread takes part in the count of allocations. */
static rp_pool *pool;
static rp_t5 *plain, *text, *protein; /* without a tokenizer; with one and modules.json; ProstT5 */

static const int32_t numbers[] = {3, 5, 1}, outside[] = {1 << 20};
static const rp_t5_tokens some = {numbers, 3}, none = {NULL, 1}, beyond = {outside, 1};
static float hidden[64 * 64], more[64 * 64];

static rp_t5 *opened(const char *path, rp_t5_loading load)
{
    rp_t5 *m;
    rp_t5_opening o = rp_t5_opening_init();
    o.pool = pool;
    o.load = load;
    fine(rp_t5_open(&m, path, &o));
    return m;
}

static int open_models(void **state)
{
    if (set_up(state) != 0 || rp_pool_create(&pool, 1) != RP_OK)
        return 1;
    plain = opened(DATA "/v11", RP_T5_LOAD_ALL);
    text = opened("tests/t5/sentence/new", RP_T5_LOAD_ALL);
    protein = opened(PROTEINS, RP_T5_LOAD_ALL);
    return 0;
}

static int close_models(void **state)
{
    rp_t5_close(plain);
    rp_t5_close(text);
    rp_t5_close(protein);
    rp_pool_destroy(pool);
    return tear_down(state);
}

static int stop(void *context)
{
    (void)context;
    return 1;
}

static int stop_at(void *context, double done)
{
    (void)context;
    return done >= 0;
}

static void texts(void **state)
{
    (void)state;
    char *string;
    const char *prompt;
    int32_t *tokens;
    int64_t n;
    GETS(RP_E_ARG, rp_t5_tokenize(text, NULL, 1, &tokens, &n));
    GETS(RP_E_ARG, rp_t5_tokenize_watched(text, "a", 1, NULL, NULL, NULL, &n));
    GETS(RP_E_UNSUPPORTED, rp_t5_tokenize_watched(plain, "a", 1, NULL, NULL, &tokens, &n));
    char *line = malloc(3 << 20);
    memset(line, 'a', 3 << 20);
    GETS(RP_E_CANCELLED, rp_t5_tokenize_watched(text, line, 3 << 20, stop, NULL, &tokens, &n));
    free(line);
    GETS(RP_E_ARG, rp_t5_detokenize(text, NULL, 1, &string, NULL));
    GETS(RP_E_ARG, rp_t5_detokenize_special(text, NULL, 1, &string, NULL));
    GETS(RP_E_RANGE, rp_t5_detokenize_special(text, outside, 1, &string, NULL));
    GETS(RP_E_UNSUPPORTED, rp_t5_detokenize_special(plain, numbers, 1, &string, NULL));
    GETS(RP_E_ARG, rp_t5_prompt(text, "unknown", &prompt));
    GETS(RP_E_UNSUPPORTED, rp_t5_prompt(plain, NULL, &prompt));
    GETS(RP_E_ARG, rp_t5_vector(text, NULL, 1, NULL, more));
    GETS(RP_E_UNSUPPORTED, rp_t5_vector(plain, NULL, 1, hidden, more));
    hidden[0] = INFINITY;
    GETS(RP_E_RANGE, rp_t5_vector(text, NULL, 1, hidden, more));
    hidden[0] = 0;
    GETS(RP_E_ARG, rp_t5_checksum(NULL, NULL));
}

static void proteins(void **state)
{
    (void)state;
    rp_t5_protein p, other;
    rp_t5_structure *s;
    rp_t5_fasta *file;
    rp_t5_record r;
    char letters[64];
    GETS(RP_OK, rp_t5_residues(protein, NULL, "MK", 2, &p));
    GETS(RP_E_CANCELLED, rp_t5_encode_residues(protein, 1, &p, hidden, stop_at, NULL));
    rp_t5 *sizes = opened(PROTEINS, RP_T5_LOAD_SIZES);
    GETS(RP_E_UNSUPPORTED, rp_t5_encode_residues(sizes, 1, &p, hidden, NULL, NULL));
    rp_t5_close(sizes);
    other = p;
    other.tokens = (int32_t[]){1 << 20, 1, 1, 1};
    GETS(RP_E_RANGE, rp_t5_encode_residues(protein, 1, &other, hidden, NULL, NULL));
    rp_t5_free(p.tokens);
    GETS(RP_OK, rp_t5_structure_open(&s, protein, PROTEINS "/cnn.safetensors"));
    GETS(RP_E_ARG, rp_t5_structure_of(s, NULL, 1, letters));
    rp_t5_structure_close(s);
    char path[300];
    write_text("bad.fasta", ">long\nMKV\n>bad\nM1\n");
    path_to(path, "bad.fasta");
    GETS(RP_OK, rp_t5_fasta_open(&file, path));
    GETS(RP_E_RANGE, rp_t5_fasta_next(file, 1, 2, &r));
    GETS(RP_OK, rp_t5_fasta_skip(file, &r));
    GETS(RP_E_ARG, rp_t5_fasta_next(file, 1, 2, &r));
    GETS(RP_E_ARG, rp_t5_fasta_skip(file, NULL));
    rp_t5_fasta_close(file);
}

static void models(void **state)
{
    (void)state;
    rp_t5_session *s;
    double total;
    GETS(RP_E_ARG, rp_t5_encode(plain, 1, &some, NULL, NULL, NULL));
    GETS(RP_E_ARG, rp_t5_score(NULL, some, some, &total, NULL, NULL, NULL));
    GETS(RP_E_ARG, rp_t5_begin(NULL, plain, 1, &some, 1));
    GETS(RP_E_RANGE, rp_t5_begin(&s, plain, 1, &some, -1));
    GETS(RP_OK, rp_t5_begin(&s, plain, 1, &some, 1));
    GETS(RP_E_ARG, rp_t5_step(s, 1, NULL, numbers, more));
    rp_t5_end(s);
    GETS(RP_E_ARG, rp_t5_reference(NULL, some, some, NULL, NULL, NULL, NULL, NULL));
    GETS(RP_E_RANGE, rp_t5_reference(plain, beyond, none, NULL, NULL, NULL, NULL, NULL));
}

/* ------------------------------------------------------------------------------------------------ out of memory */

static rp_t5_protein some_protein;
static rp_t5_structure *structure;

static rp_status packs(void)
{
    char path[300];
    path_to(path, "packed");
    return rp_t5_pack(plain, path);
}

static rp_status tokenizes(void)
{
    int32_t *tokens;
    int64_t n;
    const rp_status status = rp_t5_tokenize(text, "a few words", -1, &tokens, &n);
    rp_t5_free(tokens);
    return status;
}

static rp_status tokenizes_watched(void)
{
    int32_t *tokens;
    int64_t n;
    const rp_status status = rp_t5_tokenize_watched(text, "a few words", -1, NULL, NULL, &tokens, &n);
    rp_t5_free(tokens);
    return status;
}

static rp_status detokenizes(void)
{
    char *string = NULL;
    const rp_status status = rp_t5_detokenize(text, numbers, 3, &string, NULL);
    rp_t5_free(string);
    return status;
}

static rp_status detokenizes_special(void)
{
    char *string = NULL;
    const rp_status status = rp_t5_detokenize_special(text, numbers, 3, &string, NULL);
    rp_t5_free(string);
    return status;
}

static rp_status encodes(void)
{
    return rp_t5_encode(plain, 1, &some, more, NULL, NULL);
}

static rp_status makes_vector(void)
{
    return rp_t5_vector(text, NULL, 1, hidden, more);
}

static rp_status reads_residues(void)
{
    rp_t5_protein p = {0};
    const rp_status status = rp_t5_residues(protein, NULL, "MKV", 3, &p);
    rp_t5_free(p.tokens);
    return status;
}

static rp_status encodes_residues(void)
{
    return rp_t5_encode_residues(protein, 1, &some_protein, more, NULL, NULL);
}

static rp_status opens_structure(void)
{
    rp_t5_structure *s;
    const rp_status status = rp_t5_structure_open(&s, protein, PROTEINS "/cnn.safetensors");
    rp_t5_structure_close(s);
    return status;
}

static rp_status predicts(void)
{
    char letters[8];
    return rp_t5_structure_of(structure, hidden, 3, letters);
}

static rp_status opens_fasta(void)
{
    rp_t5_fasta *file;
    const rp_status status = rp_t5_fasta_open(&file, DATA "/proteins/proteins.fasta");
    rp_t5_fasta_close(file);
    return status;
}

static rp_status scores(void)
{
    double total;
    return rp_t5_score(plain, some, some, &total, NULL, NULL, NULL);
}

static rp_status begins(void)
{
    rp_t5_session *s;
    const rp_status status = rp_t5_begin(&s, plain, 1, &some, 1);
    rp_t5_end(s);
    return status;
}

static rp_status looks(void)
{
    rp_t5_attention *a;
    const rp_status status = rp_t5_attention_of(plain, RP_T5_ENCODER, 0, some, some, &a, NULL, NULL);
    rp_t5_attention_free(a);
    return status;
}

static rp_status computes_plainly(void)
{
    static double states[64 * 64];
    return rp_t5_reference(plain, some, some, NULL, states, NULL, NULL, NULL);
}

/* The n-th allocation of each call fails. The error then is RP_E_NOMEM, or RP_E_ARG of a file that cannot be read. No
 * allocated block is left. */
static void memory(void **state)
{
    static rp_status (*const calls[])(void) = {
        packs,          tokenizes,        tokenizes_watched, detokenizes, detokenizes_special, encodes, makes_vector,
        reads_residues, encodes_residues, opens_structure,   predicts,    opens_fasta,         scores,  begins,
        looks,          computes_plainly};
    (void)state;
    GETS(RP_OK, rp_t5_residues(protein, NULL, "MKV", 3, &some_protein));
    GETS(RP_OK, rp_t5_structure_open(&structure, protein, PROTEINS "/cnn.safetensors"));
    for (size_t c = 0; STARVES && c < sizeof calls / sizeof *calls; c++) {
        rp_status status = RP_E_ARG;
        fine(calls[c]()); /* allocates what is kept, such as the memory of error messages */
        for (long n = 1, failed = 0; status != RP_OK; n++, failed += status == RP_E_NOMEM) {
            const long blocks = starve_blocks;
            starve(n, false);
            status = calls[c]();
            starve_end();
            const char *why = rp_t5_last_error();
            if (status != RP_OK && status != RP_E_NOMEM && !strstr(why, "out of memory") &&
                !strstr(why, "Cannot allocate memory"))
                fail_msg("call %d, allocation %ld: %s: %s", (int)c, n, rp_status_name(status), why);
            assert_int_equal(starve_blocks, blocks);
            assert_true(status != RP_OK || failed > 0);
        }
    }
    rp_t5_structure_close(structure);
    rp_t5_free(some_protein.tokens);
}

/* A step fails on allocations of its first row; its session must then end. */
static void step_memory(void **state)
{
    (void)state;
    rp_status status = RP_E_NOMEM;
    long failed = 0;
    for (long n = 1; STARVES && status != RP_OK; n++, failed++) {
        rp_t5_session *s;
        const int32_t first = 0, start = rp_t5_about(plain)->start;
        GETS(RP_OK, rp_t5_begin(&s, plain, 1, &some, 1));
        starve(n, false);
        status = rp_t5_step(s, 1, &first, &start, more);
        starve_end();
        rp_t5_end(s);
        assert_true(status == RP_OK || status == RP_E_NOMEM);
    }
    assert_true(!STARVES || failed > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(proteins), cmocka_unit_test(models),
                                       cmocka_unit_test(memory), cmocka_unit_test(step_memory)};
    return cmocka_run_group_tests(tests, open_models, close_models);
}
