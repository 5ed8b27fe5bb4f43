/* test_explain.c -- the rows that relpos explain prints, as text and as JSON, add up to the printed scores and output.
 * Tested for every term and every pair of terms in the registry.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

#include "cli/cli.h"
#include "io/io.h"
#include "tests/pairs.h"
#include <jansson.h>

enum { L = PAIR_TOKENS, DV = 5, WORDS = 32, SAID = 1 << 16 };

static const char *const none[] = {NULL}, *const cap[] = {"--softcap", "1.5", "--causal", NULL},
                         *const cap_after[] = {"--softcap-after", "2", "--scale", "0.7", NULL},
                         *const both[] = {"--softcap", "1.5", "--softcap-after", "2", NULL};
static const char *const *const settings[] = {none, cap, cap_after, both};

/* Run a command in this process and return its standard output. */
static const char *run(int argc, char **argv)
{
    static char said[SAID];
    FILE *to = tmpfile();
    assert_non_null(to);
    fflush(NULL);
    const int was = dup(STDOUT_FILENO);
    dup2(fileno(to), STDOUT_FILENO);
    const int code = rp_cli_main(argc, argv);
    fflush(NULL);
    dup2(was, STDOUT_FILENO);
    close(was);
    rewind(to);
    said[fread(said, 1, sizeof said - 1, to)] = 0;
    fclose(to);
    assert_int_equal(code, 0);
    return said;
}

/* Write the options for the terms of a problem, and add their arrays to the set with names such as t0_table. */
static int options_of(const problem *p, io_set *set, char option[RP_MAX_TERMS][2][1500], char **argv)
{
    int argc = 0;
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        const rp_term *t = &p->terms[n];
        const bool bias = rp_term_is_bias(t->kind);
        char *text = option[n][1];
        good(rp_term_print(t, text, 1024));
        snprintf(option[n][0], sizeof option[n][0], "--%s", bias ? "bias" : rp_term_name(t->kind));
        if (!bias) {
            const size_t name = strcspn(text, ",");
            memmove(text, text + name + (text[name] == ','), strlen(text) - name + !text[name]);
        }
        for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(t->kind, x); x++) {
            const rp_array *a = &p->t.term[n][x];
            char name[64];
            if (!a->data)
                continue;
            snprintf(name, sizeof name, "t%d_%s", (int)n, rp_term_array(t->kind, x));
            assert_int_equal(io_add(set, name, a->dtype, a->ndim, a->shape, a->data, true), 0);
            if (rp_term_role(t->kind) == RP_ROLE_SINK) /* --sink NAME */
                snprintf(text, 1024, "%s", name);
            else
                snprintf(text + strlen(text), 128, "%s%s=%s", *text ? "," : "", rp_term_array(t->kind, x), name);
        }
        argv[argc++] = option[n][0];
        argv[argc++] = text;
    }
    return argc;
}

/* Check that the scaled scores equal the raw scores times the scale, and also the sum of content and rotation. */
static void check_scaled(const problem *p, const json_t *root, double scale)
{
    const json_t *parts = json_object_get(root, "parts");
    for (size_t j = 0; j < L; j++) {
        const double raw = json_number_value(json_array_get(json_object_get(root, "raw"), j)),
                     scaled = json_number_value(json_array_get(json_object_get(root, "scaled"), j));
        double sum = 0;
        for (size_t x = 0; x < json_array_size(parts); x++) {
            const json_t *part = json_array_get(parts, x);
            const char *kind = json_string_value(json_object_get(part, "kind"));
            if (strcmp(kind, "content") == 0 || strcmp(kind, "rotation") == 0)
                sum += json_number_value(json_array_get(json_object_get(part, "values"), j));
        }
        if (!(fabs(scaled - scale * raw) <= 1e-12 && fabs(scaled - sum) <= 1e-12))
            wrong(p, "explain --json", "scaled[%d] is %.17g, raw %.17g, content and rotation %.17g", (int)j, scaled,
                  raw, sum);
    }
}

static double number(const json_t *x)
{
    return json_is_null(x) ? -INFINITY : json_number_value(x);
}

/* Check that the lists called `values` in the parts of a JSON object add up to another list of the object. */
static void check_json(const problem *p, const json_t *root, const char *parts, const char *total, size_t n)
{
    const json_t *list = json_object_get(root, parts), *want = json_object_get(root, total);
    if (json_array_size(list) == 0 || json_array_size(want) != n)
        wrong(p, "explain --json", "%s or %s is missing", parts, total);
    for (size_t j = 0; j < n; j++) {
        double sum = 0, size = 1;
        for (size_t x = 0; x < json_array_size(list); x++) {
            const double y = number(json_array_get(json_object_get(json_array_get(list, x), "values"), j));
            sum += y;
            size += isfinite(y) ? fabs(y) : 0;
        }
        const double score = number(json_array_get(want, j));
        if (sum != score && !(fabs(sum - score) <= 64 * DBL_EPSILON * size))
            wrong(p, "explain --json", "%s sum to %.17g, and %s[%d] is %.17g", parts, sum, total, (int)j, score);
    }
}

/* Check that the rows of the table of scores, starting with the scaled scores, add up to its last row. Each number is
 * rounded by at most half a unit of its last digit. */
static void check_text(const problem *p, const char *text)
{
    double sum[L] = {0}, last[L] = {0};
    int rows = 0;
    const char *at = strstr(text, "\nScores\n");
    assert_non_null(at);
    at = strchr(at + 8, '\n') + 1; /* skip the names of the keys */
    for (; *at != '\n'; at = strchr(at, '\n') + 1, rows++) {
        char *x = (char *)(uintptr_t)at + 15, *end = x;
        for (int j = 0; j < L; j++, x = end) {
            sum[j] += rows > 1 ? last[j] : 0; /* add the previous row, except the raw scores */
            last[j] = strtod(x, &end);
            if (end == x)
                wrong(p, "explain", "no number in \"%.60s\"", at);
        }
        if (strncmp(at, "Raw", 3) != 0 && rows == 0)
            wrong(p, "explain", "the first row is \"%.60s\"", at);
    }
    for (int j = 0; j < L; j++)
        if (sum[j] != last[j] && !(fabs(sum[j] - last[j]) <= 0.51e-4 * rows))
            wrong(p, "explain", "the rows of key %d sum to %g, not %g:\n%s", j, sum[j], last[j], text);
}

/* Check the row of the sink, and the rows that add up to out. */
static void check_more(const problem *p, const char *text)
{
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        const rp_role role = rp_term_role(p->terms[n].kind);
        if ((role == RP_ROLE_SINK && !strstr(text, ",sink]")) ||
            (role == RP_ROLE_VALUE && (!strstr(text, "\nvalues[") || !strstr(text, "\nrelval["))))
            wrong(p, "explain", "no row for %s:\n%s", rp_term_name(p->terms[n].kind), text);
    }
}

static void check_problem(const char *terms, const char *const *more)
{
    static char option[RP_MAX_TERMS][2][1500];
    char path[] = "/tmp/relpos-explain-XXXXXX.safetensors", err[IO_ERR_MAX];
    const int fd = mkstemps(path, 12);
    problem p;
    io_set set = {0};
    char *argv[WORDS] = {"relpos", "explain", "--input", path, "--batch", "1", "--head", "2", "--query", "3"};
    int argc = 10;
    assert_true(fd >= 0);
    close(fd);
    pose(&p, 7, "fwd:f64:b2h4g2q%dk%dd8v%d:%s:", L, L, DV, terms);
    const rp_array *const qkv[3] = {&p.t.q, &p.t.k, &p.t.v};
    for (int n = 0; n < 3; n++)
        assert_int_equal(
            io_add(&set, (char[2]){"qkv"[n]}, qkv[n]->dtype, qkv[n]->ndim, qkv[n]->shape, qkv[n]->data, true), 0);
    argc += options_of(&p, &set, option, argv + argc);
    for (int n = 0; more[n]; n++)
        argv[argc++] = (char *)(uintptr_t)more[n];
    if (p.desc.n_terms == 0)
        argv[argc++] = "--no-bias";
    if (io_write(path, IO_SAFETENSORS, &set, err) != 0)
        fail_msg("%s", err);
    const char *text = run(argc, argv);
    check_text(&p, text);
    check_more(&p, text);
    argv[argc++] = "--json";
    json_t *root = json_loads(run(argc, argv), 0, NULL);
    assert_non_null(root);
    check_scaled(&p, root, more == cap_after ? 0.7 : 1 / sqrt(8));
    check_json(&p, root, "parts", "score", L);
    check_json(&p, root, "out_parts", "out", DV);
    json_decref(root);
    unlink(path);
    io_free(&set);
    problem_free(&p);
}

enum { SETTINGS = sizeof settings / sizeof *settings };

/* Test every term with all settings, and each pair of terms with one setting in turn. */
static void rows_of_every_term_and_pair_sum_up(void **state)
{
    char text[2 * TERM_TEXT + 1];
    int pairs = 0;
    (void)state;
    setenv("COLUMNS", "200", 1);
    for (int s = 0; s < SETTINGS; s++)
        check_problem("", settings[s]);
    for (rp_term_kind a = RP_TERM_NONE + 1; a < RP_TERM_COUNT; a++) {
        for (int s = 0; s < SETTINGS && pair_text(a, RP_TERM_NONE, text); s++)
            check_problem(text, settings[s]);
        for (rp_term_kind b = a; b < RP_TERM_COUNT; b++)
            if (pair_text(a, b, text))
                check_problem(text, settings[pairs++ % SETTINGS]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_every_term_and_pair_sum_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
