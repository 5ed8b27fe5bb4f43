/* test_generate.c -- generated lines. Each answer is checked by the definition of its task. Also tests sizes, and the
 * windows for training a decoder.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include "tests/helpers.h"
#include <string.h>

enum { LINES = 300, MOST = 120 };

static bool is_letter(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Check a question q of n bytes and its answer a of m bytes, for this size, by the definition of the task. */
static void check_copy(const char *q, int64_t n, const char *a, int64_t m, int64_t size)
{
    assert_true(n == size && m == size);
    for (int64_t x = 0; x < n; x++)
        assert_true(is_letter(q[x]) && a[x] == q[x]);
}

static void check_reverse(const char *q, int64_t n, const char *a, int64_t m, int64_t size)
{
    assert_true(n == size && m == size);
    for (int64_t x = 0; x < n; x++)
        assert_true(is_letter(q[x]) && a[x] == q[n - 1 - x]);
}

static void check_recall(const char *q, int64_t n, const char *a, int64_t m, int64_t size)
{
    int found = 0;
    assert_true(n == 3 * size + 2 && m == 1);
    for (int64_t x = 0; x < size; x++) {
        assert_true(is_letter(q[3 * x]) && is_letter(q[3 * x + 1]) && is_digit(q[3 * x + 2]));
        for (int64_t y = 0; y < x; y++)
            assert_true(memcmp(q + 3 * x, q + 3 * y, 2) != 0);
        if (memcmp(q + 3 * x, q + 3 * size, 2) == 0) {
            found++;
            assert_int_equal(a[0], q[3 * x + 2]);
        }
    }
    assert_int_equal(found, 1);
}

static void check_passkey(const char *q, int64_t n, const char *a, int64_t m, int64_t size)
{
    int64_t digits = 0, first = -1;
    assert_true(n == size + 5 && m == 5);
    for (int64_t x = 0; x < n; x++)
        if (is_digit(q[x])) {
            first = first < 0 ? x : first;
            assert_true(x == first + digits);
            assert_int_equal(a[digits++], q[x]);
        }
    assert_int_equal(digits, 5);
}

static void check_addition(const char *q, int64_t n, const char *a, int64_t m, int64_t size)
{
    int carry = 0;
    assert_true(n == 2 * size + 1 && q[size] == '+' && m == size + 1);
    for (int64_t x = 0; x <= size; x++) {
        const int sum = carry + (x < size ? q[x] - '0' + q[size + 1 + x] - '0' : 0);
        assert_int_equal(a[x], '0' + sum % 10);
        carry = sum / 10;
    }
    assert_int_equal(carry, 0);
}

static void (*const check_line[])(const char *q, int64_t n, const char *a, int64_t m,
                                  int64_t size) = {[NN_GENERATE_COPY] = check_copy,
                                                   [NN_GENERATE_REVERSE] = check_reverse,
                                                   [NN_GENERATE_RECALL] = check_recall,
                                                   [NN_GENERATE_PASSKEY] = check_passkey,
                                                   [NN_GENERATE_ADDITION] = check_addition};

static void answers_are_right(void **state)
{
    char line[4 * MOST + 64], again[4 * MOST + 64], other[4 * MOST + 64];
    (void)state;
    for (int task = NN_GENERATE_COPY; task <= NN_GENERATE_ADDITION; task++) {
        int same = 0;
        for (int n = 0; n < LINES; n++) {
            const int64_t size = 1 + n % MOST, bytes = nn_generated_bytes(task, size);
            memset(line, '#', sizeof line);
            const int64_t at = nn_generate_line(task, size, 7, (uint64_t)n, line);
            assert_true(at > 1 && at < bytes && bytes < (int64_t)sizeof line);
            assert_true(line[at - 1] == '=' && line[bytes - 1] == '\n' && line[bytes] == '#');
            check_line[task](line, at - 1, line + at, bytes - 1 - at, size);
            nn_generate_line(task, size, 7, (uint64_t)n, again);
            assert_memory_equal(line, again, (size_t)bytes);
            nn_generate_line(task, size, 8, (uint64_t)n, other);
            same += memcmp(line, other, (size_t)bytes) == 0;
        }
        assert_true(same < LINES / 50); /* lines of one letter may repeat */
    }
}

/* Windows for training: the bytes of the line in order. Only the answer and its line feed are targets. */
static void windows_have_targets_for_answers(void **state)
{
    enum { BATCH = 64, SIZE = 9, LENGTH = 40 };
    int32_t tokens[BATCH * LENGTH], target[BATCH * LENGTH], later[BATCH * LENGTH], asked[BATCH * LENGTH];
    char line[64], err[NN_ERR_MAX] = "";
    (void)state;
    for (int bos = 0; bos < 2; bos++)
        for (int task = NN_GENERATE_COPY; task <= NN_GENERATE_ADDITION; task++) {
            bool seen[SIZE + 1] = {false};
            nn_config c;
            nn_config_init(&c);
            c.bos = bos;
            c.vocab = 256 + bos;
            c.generate = task;
            c.generate_size = SIZE;
            c.length = LENGTH;
            assert_int_equal(nn_config_check(&c, err), 0);
            assert_int_equal(nn_generate_batch(&c, 0, 5, 100, BATCH, LENGTH, tokens, target, err), 0);
            for (int b = 0; b < BATCH; b++) {
                const int32_t *t = tokens + b * LENGTH, *y = target + b * LENGTH;
                int64_t bytes = 0, size = 1;
                for (int x = 0; x < LENGTH; x++) /* the last target is the line feed */
                    bytes = y[x] >= 0 ? x + 2 - bos : bytes;
                while (nn_generated_bytes(task, size) < bytes)
                    size++;
                assert_true(size <= SIZE && nn_generated_bytes(task, size) == bytes);
                assert_int_equal(nn_generated_window(&c, size), bytes - 1 + bos);
                seen[size] = true;
                const int64_t at = nn_generate_line(task, size, 5, 100 + (uint64_t)b, line);
                assert_int_equal(t[0], bos ? 256 : line[0]);
                for (int64_t x = 0; x < LENGTH; x++) {
                    const int64_t next = x + 1 - bos;
                    assert_int_equal(y[x], next >= at && next < bytes ? line[next] : -1);
                    if (x + 1 < LENGTH)
                        assert_int_equal(t[x + 1], next < bytes ? line[next] : '\n');
                }
            }
            for (int s = 1; s <= SIZE; s++)
                assert_true(seen[s]);
            /* a line does not depend on other lines in its batch */
            assert_int_equal(nn_generate_batch(&c, 0, 5, 110, 1, LENGTH, later, asked, err), 0);
            assert_memory_equal(later, tokens + 10 * LENGTH, LENGTH * sizeof *later);
            assert_memory_equal(asked, target + 10 * LENGTH, LENGTH * sizeof *asked);
        }
}

static void impossible_lines_are_refused(void **state)
{
    char err[NN_ERR_MAX] = "";
    nn_config c;
    (void)state;
    nn_config_init(&c);
    c.generate = NN_GENERATE_RECALL;
    c.generate_size = 700;
    assert_int_equal(nn_config_check(&c, err), -1);
    assert_string_equal(err, "generate_size = 700: it is too large for this task (use at most 676)");
    c.generate_size = 50;
    assert_int_equal(nn_config_check(&c, err), -1);
    assert_string_equal(err, "length = 128: lines of generate_size 50 have 154 tokens (set length = 154)");
    c.length = 154;
    assert_int_equal(nn_config_check(&c, err), 0);
    c.task = NN_CLASSIFIER;
    assert_int_equal(nn_config_check(&c, err), -1);
    assert_non_null(strstr(err, "only decoders of bytes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_right),
        cmocka_unit_test(windows_have_targets_for_answers),
        cmocka_unit_test(impossible_lines_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
