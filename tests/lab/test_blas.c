/* test_blas.c -- which CBLAS is loaded, and which name and warning the laboratory reports.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include "tests/helpers.h"
#include "tests/starve.h"
#include <sys/wait.h>

/* Cores that OpenBLAS may choose, and the faster core that this machine supports. */
static void a_slow_core_is_replaced_by_the_best(void **state)
{
    static const struct {
        const char *core, *with_avx2, *with_avx512; /* the core to use instead, or NULL */
    } cores[] = {{"Prescott", "Haswell", "SkylakeX"},
                 {"Nehalem", "Haswell", "SkylakeX"},
                 {"Sandybridge", "Haswell", "SkylakeX"},
                 {"Barcelona", "Haswell", "SkylakeX"},
                 {"Atom", "Haswell", "SkylakeX"},
                 {"Unknown", "Haswell", "SkylakeX"},
                 {"prescott", "Haswell", "SkylakeX"},
                 {"Haswell", NULL, "SkylakeX"},
                 {"Zen", NULL, "SkylakeX"},
                 {"SkylakeX", NULL, NULL},
                 {"Cooperlake", NULL, NULL},
                 {"SapphireRapids", NULL, NULL},
                 {"a newer one", NULL, NULL},
                 {"armv8", NULL, NULL},
                 {"neoversen1", NULL, NULL},
                 {"", NULL, NULL}};
    (void)state;
    for (size_t n = 0; n < sizeof cores / sizeof *cores; n++)
        for (int set = 0; set < 4; set++) {
            const char *want = set == 0   ? NULL
                               : set == 1 ? cores[n].with_avx2
                                          : cores[n].with_avx512,
                       *found = nn_blas_core(cores[n].core, set & 1, set & 2);
            if ((want == NULL) != (found == NULL) || (want && strcmp(want, found) != 0))
                fail_msg("%s, avx2 %d, avx512 %d: %s, expected %s", cores[n].core, set & 1, set >> 1,
                         found ? found : "none", want ? want : "none");
        }
}

/* Load the library in a child process. An OpenBLAS whose core is slower than the machine's best is loaded again. If the
 * user requested the core, or if OpenBLAS does not change it on request, it is kept, with a warning. */
static void the_requested_library_is_loaded(void **state)
{
    static const struct {
        const char *library, *core, *asked, *deaf;
    } cases[] = {{FAKE_BLAS, "Prescott", NULL, NULL},   {FAKE_BLAS, "Haswell", NULL, NULL},
                 {FAKE_BLAS, "Prescott", "", NULL},     {FAKE_BLAS, "SkylakeX", "Nehalem", NULL},
                 {FAKE_BLAS, "Prescott", NULL, "1"},    {FAKE_BLAS, "Prescott", "Haswell", "1"},
                 {FAKE_BLAS, "Cooperlake", NULL, NULL}, {FAKE_BLAS, "armv8", NULL, NULL},
                 {PLAIN_BLAS, NULL, NULL, NULL}};
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        int how = 0;
        char want[64] = "a CBLAS",
             (*said)[512] = mmap(NULL, 2 * sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        const char *const keys[] = {"RELPOS_BLAS", "FAKE_CORE", "OPENBLAS_CORETYPE", "FAKE_DEAF"};
        const char *const values[] = {cases[n].library, cases[n].core, cases[n].asked, cases[n].deaf};
        const bool chosen = cases[n].asked && *cases[n].asked, deaf = cases[n].deaf != NULL;
        const char *core = chosen && !deaf ? cases[n].asked : cases[n].core;
        const char *better = core ? nn_blas_core(core, rp_isa_found("avx2") == 1, rp_isa_found("avx512") == 1) : NULL;
        const bool again = better && !chosen && !deaf;
        if (core)
            snprintf(want, sizeof want, "OpenBLAS 0.0.1 %s", again ? better : core);
        assert_true(said != MAP_FAILED);
        assert_string_equal(nn_blas_name(), ""); /* this process has not loaded a CBLAS */
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            for (int k = 0; k < 4; k++)
                values[k] ? setenv(keys[k], values[k], 1) : unsetenv(keys[k]);
            const int code = nn_blas_open(said[0]);
            snprintf(said[0], sizeof said[0], "%s", nn_blas_name());
            snprintf(said[1], sizeof said[1], "%s", nn_blas_note());
            const char *left = getenv("OPENBLAS_CORETYPE");
            _exit(code != 0 || (chosen ? !left || strcmp(left, cases[n].asked) != 0 : left && *left));
        }
        assert_true(child > 0 && waitpid(child, &how, 0) == child);
        if (how != 0 || strcmp(said[0], want) != 0 || (said[1][0] != 0) != (better && !again) ||
            (said[1][0] && (!strstr(said[1], core) || !strstr(said[1], better) ||
                            !strstr(said[1], chosen ? "unset OPENBLAS_CORETYPE" : "RELPOS_BLAS"))))
            fail_msg("case %zu: %d: %s; %s; expected %s", n, how, said[0], said[1], want);
        munmap(said, 2 * sizeof *said);
    }
}

/* If an OpenBLAS does not support the requested core, it chooses its slowest one. Its previous choice is then
 * restored. */
static void an_old_library_keeps_its_best_core(void **state)
{
    static const char *const by_itself[] = {"Haswell", "Prescott"};
    (void)state;
    for (int n = 0; n < 2; n++) {
        char *said = mmap(NULL, 512, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), err[NN_ERR_MAX];
        const bool better = rp_isa_found("avx2") == 1;
        int how = 0;
        assert_true(said != MAP_FAILED);
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            setenv("RELPOS_BLAS", FAKE_BLAS, 1);
            setenv("FAKE_CORE", by_itself[n], 1);
            setenv("FAKE_KNOWS", "Haswell", 1);
            unsetenv("OPENBLAS_CORETYPE");
            const int code = nn_blas_open(err);
            snprintf(said, 512, "%s", nn_blas_name());
            _exit(code != 0 || getenv("OPENBLAS_CORETYPE") != NULL);
        }
        assert_true(child > 0 && waitpid(child, &how, 0) == child);
        assert_int_equal(how, 0);
        assert_non_null(strstr(said, better ? "Haswell" : by_itself[n]));
        munmap(said, 512);
    }
}

/* Check in advance that there is memory for the CBLAS buffers, because OpenBLAS would wait for it for ever. */
static void lack_of_memory_for_buffers_is_reported(void **state)
{
    char err[NN_ERR_MAX] = "";
    (void)state;
    assert_int_equal(nn_blas_memory(2, err), 0);
    for (int n = 1; STARVES && n <= 3; n++) { /* the list and the two buffers */
        starve(n, true);
        const int code = nn_blas_memory(2, err);
        assert_int_equal(starve_end(), n);
        assert_int_equal(code, -1);
        assert_non_null(strstr(err, "out of memory while starting the CBLAS"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_core_is_replaced_by_the_best),
        cmocka_unit_test(the_requested_library_is_loaded),
        cmocka_unit_test(an_old_library_keeps_its_best_core),
        cmocka_unit_test(lack_of_memory_for_buffers_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
