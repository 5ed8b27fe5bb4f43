/* test_broken.c -- relpos verify and relpos t5 verify detect faults. One library call is made to give other bits, to
 * write outside its memory, or to fail; the check that covers it must then report a failure. The linker option --wrap
 * redirects the program's calls to this file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

#include "cli/cli.h"
#include "relpos/t5.h"

#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum { NOWHERE, PLAN, ATTEND, BACKWARD, BOUND, GRADIENT_BOUND, ENCODE, SCORE, STEP, REFERENCE } function;
typedef enum { OTHER_BITS, REFUSED, INPUT_CHANGED, WRITES_BEYOND } damage;

/* Which call is broken, how, and its number in the sequence of calls. */
static struct {
    function where;
    damage how;
    int call, calls;
} broken;

static bool breaks(function where, damage how)
{
    return broken.where == where && broken.how == how && broken.calls == broken.call;
}

static void count(function where)
{
    broken.calls += broken.where == where;
}

/* Change the exponent of the last number in `data`. */
static void spoil(void *data, size_t bytes)
{
    ((unsigned char *)data)[bytes - 1] ^= 0x41;
}

static void spoil_array(const rp_array *a)
{
    size_t n = rp_dtype_size(a->dtype);
    for (int32_t x = 0; x < a->ndim; x++)
        n += (size_t)((a->shape[x] - 1) * a->stride[x]) * rp_dtype_size(a->dtype);
    spoil(a->data, n);
}

rp_status __real_rp_plan_create(rp_plan **plan, const rp_desc *desc);
rp_status __wrap_rp_plan_create(rp_plan **plan, const rp_desc *desc);
rp_status __wrap_rp_plan_create(rp_plan **plan, const rp_desc *desc)
{
    rp_desc bad = *desc;
    count(PLAN);
    bad.len_q = breaks(PLAN, REFUSED) ? -1 : bad.len_q;
    return __real_rp_plan_create(plan, &bad);
}

rp_status __real_rp_attend(const rp_plan *plan, const rp_tensors *t, void *work);
rp_status __wrap_rp_attend(const rp_plan *plan, const rp_tensors *t, void *work);
rp_status __wrap_rp_attend(const rp_plan *plan, const rp_tensors *t, void *work)
{
    rp_tensors with = *t;
    count(ATTEND);
    with.q.ndim = breaks(ATTEND, REFUSED) ? 9 : with.q.ndim;
    const rp_status status = __real_rp_attend(plan, &with, work);
    if (breaks(ATTEND, OTHER_BITS))
        spoil_array(&t->out);
    if (breaks(ATTEND, INPUT_CHANGED))
        spoil_array(&t->k);
    if (breaks(ATTEND, WRITES_BEYOND))
        ((unsigned char *)work)[rp_plan_work_size(plan, NULL) + 5] = 1;
    return status;
}

rp_status __real_rp_backward(const rp_plan *plan, const rp_tensors *t, const rp_grads *g, void *work);
rp_status __wrap_rp_backward(const rp_plan *plan, const rp_tensors *t, const rp_grads *g, void *work);
rp_status __wrap_rp_backward(const rp_plan *plan, const rp_tensors *t, const rp_grads *g, void *work)
{
    rp_tensors with = *t;
    count(BACKWARD);
    with.q.ndim = breaks(BACKWARD, REFUSED) ? 9 : with.q.ndim;
    const rp_status status = __real_rp_backward(plan, &with, g, work);
    if (breaks(BACKWARD, OTHER_BITS))
        spoil_array(&g->dk);
    return status;
}

rp_status __real_rp_error_bound(const rp_plan *plan, const rp_tensors *t, const rp_array *bound);
rp_status __wrap_rp_error_bound(const rp_plan *plan, const rp_tensors *t, const rp_array *bound);
rp_status __wrap_rp_error_bound(const rp_plan *plan, const rp_tensors *t, const rp_array *bound)
{
    rp_tensors with = *t;
    count(BOUND);
    with.q.ndim = breaks(BOUND, REFUSED) ? 9 : with.q.ndim;
    return __real_rp_error_bound(plan, &with, bound);
}

rp_status __real_rp_gradient_bound(const rp_plan *plan, const rp_tensors *t, const rp_grads *bounds);
rp_status __wrap_rp_gradient_bound(const rp_plan *plan, const rp_tensors *t, const rp_grads *bounds);
rp_status __wrap_rp_gradient_bound(const rp_plan *plan, const rp_tensors *t, const rp_grads *bounds)
{
    rp_tensors with = *t;
    count(GRADIENT_BOUND);
    with.q.ndim = breaks(GRADIENT_BOUND, REFUSED) ? 9 : with.q.ndim;
    return __real_rp_gradient_bound(plan, &with, bounds);
}

rp_status __real_rp_t5_encode(const rp_t5 *model, int64_t n, const rp_t5_tokens *sources, float *out, rp_progress *p,
                              void *context);
rp_status __wrap_rp_t5_encode(const rp_t5 *model, int64_t n, const rp_t5_tokens *sources, float *out, rp_progress *p,
                              void *context);
rp_status __wrap_rp_t5_encode(const rp_t5 *model, int64_t n, const rp_t5_tokens *sources, float *out, rp_progress *p,
                              void *context)
{
    count(ENCODE);
    const rp_status status = __real_rp_t5_encode(breaks(ENCODE, REFUSED) ? NULL : model, n, sources, out, p, context);
    if (breaks(ENCODE, OTHER_BITS))
        spoil(out, sizeof *out);
    return status;
}

rp_status __real_rp_t5_score(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target, double *total, double *each,
                             rp_progress *p, void *context);
rp_status __wrap_rp_t5_score(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target, double *total, double *each,
                             rp_progress *p, void *context);
rp_status __wrap_rp_t5_score(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target, double *total, double *each,
                             rp_progress *p, void *context)
{
    count(SCORE);
    const rp_status status =
        __real_rp_t5_score(breaks(SCORE, REFUSED) ? NULL : model, source, target, total, each, p, context);
    if (breaks(SCORE, OTHER_BITS))
        spoil(total, sizeof *total);
    return status;
}

rp_status __real_rp_t5_step(rp_t5_session *session, int64_t rows, const int32_t *parents, const int32_t *tokens,
                            float *logits);
rp_status __wrap_rp_t5_step(rp_t5_session *session, int64_t rows, const int32_t *parents, const int32_t *tokens,
                            float *logits);
rp_status __wrap_rp_t5_step(rp_t5_session *session, int64_t rows, const int32_t *parents, const int32_t *tokens,
                            float *logits)
{
    count(STEP);
    const rp_status status = __real_rp_t5_step(breaks(STEP, REFUSED) ? NULL : session, rows, parents, tokens, logits);
    if (breaks(STEP, OTHER_BITS))
        *logits += 1000;
    return status;
}

rp_status __real_rp_t5_reference(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target,
                                 const rp_t5_rounding *rounding, double *hidden, double *logits, rp_progress *p,
                                 void *context);
rp_status __wrap_rp_t5_reference(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target,
                                 const rp_t5_rounding *rounding, double *hidden, double *logits, rp_progress *p,
                                 void *context);
rp_status __wrap_rp_t5_reference(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target,
                                 const rp_t5_rounding *rounding, double *hidden, double *logits, rp_progress *p,
                                 void *context)
{
    count(REFERENCE);
    return __real_rp_t5_reference(breaks(REFERENCE, REFUSED) ? NULL : model, source, target, rounding, hidden, logits,
                                  p, context);
}

/* Run a command in this process. Return its exit code; `said` receives standard output and standard error. */
static int run(const char *line, char *said, size_t size)
{
    char words[512], *argv[16] = {(char *)(uintptr_t) "relpos"};
    int argc = 1;
    FILE *to = tmpfile();
    assert_non_null(to);
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    fflush(NULL);
    const int was[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
    dup2(fileno(to), STDOUT_FILENO);
    dup2(fileno(to), STDERR_FILENO);
    const int code = rp_cli_main(argc, argv);
    fflush(NULL);
    for (int n = 0; n < 2; n++) {
        dup2(was[n], n == 0 ? STDOUT_FILENO : STDERR_FILENO);
        close(was[n]);
    }
    rewind(to);
    said[fread(said, 1, size - 1, to)] = 0;
    fclose(to);
    return code;
}

/* Check that a command with a broken call exits with code 1 and prints a line that matches the extended regular
 * expression. */
static void expect(function where, damage how, int call, const char *line, const char *pattern)
{
    char said[4096];
    regex_t like;
    broken.where = where, broken.how = how, broken.call = call, broken.calls = 0;
    const int code = run(line, said, sizeof said);
    assert_int_equal(regcomp(&like, pattern, REG_EXTENDED | REG_NEWLINE | REG_NOSUB), 0);
    if (code != 1 || broken.calls < call || regexec(&like, said, 0, NULL, 0) != 0)
        fail_msg("relpos %s, call %d of %d broken: exit code %d, expected 1 and \"%s\":\n%s", line, call, broken.calls,
                 code, pattern, said);
    regfree(&like);
}

#define FORWARD      "verify fwd:f32:b1h2q5k7d4:t5:causal --isa generic"
#define BACKWARD_TOO "verify bwd:f32:b1h1q3k3d4:alibi --isa generic"

static void test_verify(void **state)
{
    (void)state;
    char said[4096];
    broken.where = NOWHERE;
    assert_int_equal(run(FORWARD, said, sizeof said), 0);
    /* the calls are, in order: the reference, one thread, three threads, every tile, gaps, the last queries, rows of
     * ones */
    expect(ATTEND, OTHER_BITS, 1, FORWARD, "^FAILED oracle: error .*, bound .*, ratio");
    expect(ATTEND, OTHER_BITS, 2, FORWARD, "^FAILED oracle: error .*, bound .*, ratio");
    expect(ATTEND, OTHER_BITS, 3, FORWARD, "^FAILED threads: 3 threads against 1: element 39 differs$");
    expect(ATTEND, OTHER_BITS, 4, FORWARD,
           "^FAILED skipping: without skipping against with skipping: element 39 differs$");
    expect(ATTEND, OTHER_BITS, 5, FORWARD,
           "^FAILED arrays: arrays: with padding between its rows, out differs, or the padding was overwritten$");
    expect(ATTEND, INPUT_CHANGED, 5, FORWARD, "^FAILED arrays: arrays: the input k was changed$");
    expect(ATTEND, WRITES_BEYOND, 5, FORWARD, "^FAILED arrays: arrays: byte 5 beyond the scratch memory was written$");
    expect(ATTEND, OTHER_BITS, 6, FORWARD,
           "^FAILED decode: decode against prefill: query 4 of batch entry 0, head 1 differs$");
    expect(ATTEND, OTHER_BITS, 7, FORWARD, "^FAILED rows: rows sum to one: ");
    expect(ATTEND, OTHER_BITS, 3, FORWARD " --json", "\"passed\": false, .*\"found\": \"3 threads against 1: ");
    expect(ATTEND, OTHER_BITS, 3, FORWARD, "^1 problems checked, 1 failed");
    /* let each call fail in turn */
    static const char *const checks[] = {"reference", "attend", "threads", "skipping", "arrays", "decode", "rows"};
    for (int n = 0; n < 7; n++) {
        char pattern[64];
        snprintf(pattern, sizeof pattern, "^FAILED %s: .*9", checks[n]);
        expect(ATTEND, REFUSED, n + 1, FORWARD, pattern);
    }
    expect(BOUND, REFUSED, 1, FORWARD, "^FAILED oracle: .*9");
    expect(PLAN, REFUSED, 1, FORWARD, "^relpos: problem fwd:.*: size q is -1");
    static const char *const plans[] = {"reference", "attend", "oracle", "threads",
                                        "skipping",  "arrays", "decode", "rows"};
    for (int n = 0; n < 8; n++) {
        char pattern[64];
        snprintf(pattern, sizeof pattern, "^FAILED %s: .*-1", plans[n]);
        expect(PLAN, REFUSED, n + 2, FORWARD, pattern);
    }
}

static void test_verify_gradients(void **state)
{
    (void)state;
    /* the calls are, in order: the reference, without out, with out, three threads, every tile */
    static const char *const checks[] = {"reference", "gradients", "gradients", "gradient threads",
                                         "gradient skipping"};
    char pattern[64];
    for (int n = 0; n < 5; n++) {
        snprintf(pattern, sizeof pattern, "^FAILED %s: .*9", checks[n]);
        expect(BACKWARD, REFUSED, n + 1, BACKWARD_TOO, pattern);
    }
    for (int n = 0; n < 3; n++)
        expect(BACKWARD, OTHER_BITS, n + 1, BACKWARD_TOO, "^FAILED gradients: dk: error .*, bound .*, ratio");
    expect(BACKWARD, OTHER_BITS, 4, BACKWARD_TOO,
           "^FAILED gradient threads: 3 threads against 1: element 11 of the gradient dk differs$");
    expect(BACKWARD, OTHER_BITS, 5, BACKWARD_TOO,
           "^FAILED gradient skipping: without skipping against with skipping: element 11 of the gradient dk differs$");
    expect(GRADIENT_BOUND, REFUSED, 1, BACKWARD_TOO, "^FAILED gradients: .*9");
}

#define T5 "t5 verify tests/t5/data/v11 --type f32 --tokens --text 5,9,2"

static void test_t5_verify(void **state)
{
    (void)state;
    char said[4096];
    broken.where = NOWHERE;
    assert_int_equal(run(T5, said, sizeof said), 0);
    expect(ENCODE, OTHER_BITS, 1, T5, "^f32   hidden states +error .*, bound .*   FAILED$");
    expect(ENCODE, OTHER_BITS, 2, T5, "^f32   one line, or a batch +different bits   FAILED$");
    expect(ENCODE, OTHER_BITS, 3, T5, "^f32   one thread, or several +different bits   FAILED$");
    expect(ENCODE, OTHER_BITS, 3, T5, " checks, 1 failed; ");
    expect(SCORE, OTHER_BITS, 1, T5, "^f32   token by token, or one step +different bits   FAILED$");
    expect(STEP, OTHER_BITS, 1, T5, "^f32   logits +error .*, bound .*   FAILED$");
    expect(ENCODE, REFUSED, 1, T5, "^relpos: t5 verify: .*model");
    expect(ENCODE, REFUSED, 2, T5, "^relpos: t5 verify: .*model");
    expect(ENCODE, REFUSED, 3, T5, "^relpos: t5 verify: .*model");
    expect(SCORE, REFUSED, 1, T5, "^relpos: t5 verify: .*model");
    expect(STEP, REFUSED, 1, T5, "^relpos: t5 verify: .*session");
    for (int n = 1; n <= 4; n++)
        expect(REFERENCE, REFUSED, n, T5, "^relpos: t5 verify: .*model");
    broken.where = STEP, broken.how = OTHER_BITS, broken.call = 0, broken.calls = 0;
    assert_int_equal(run(T5, said, sizeof said), 0);
    expect(STEP, OTHER_BITS, broken.calls / 2 + 1, T5, "^f32   greedy tokens +not the likeliest   FAILED$");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_verify), cmocka_unit_test(test_verify_gradients),
                                       cmocka_unit_test(test_t5_verify)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
