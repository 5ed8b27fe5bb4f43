/* starved_runs.h -- lets allocations fail while a model is opened, used and packed: each run fails for lack of memory
 * or gives the usual result, and frees its memory. Include this file once per program, like starve.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_STARVED_RUNS_H
#define RELPOS_TESTS_STARVED_RUNS_H

#include "tests/helpers.h"
#include "tests/starve.h"

static char packed[] = "/tmp/relpos-packed-XXXXXX"; /* a file to which runs may pack a model */

/* Make a run, and set the `size` bytes of its outcome. */
typedef rp_status starved_run(const void *model, void *outcome);

/* Run with each of the first 40 allocations failing, and with some of the later ones, alone and with all after it.
 * `usual` and `found` have room for an outcome. */
static void starve_runs(starved_run *run, const char *path, const void *model, const char *(*last_error)(void),
                        void *usual, void *found, size_t size)
{
    for (int ever = 0; ever < 2; ever++) {
        if (run(model, usual) != RP_OK)
            fail_msg("%s: %s", path, last_error());
        const long before = starve_blocks;
        long failed = 0;
        bool enough = false; /* true if no allocation had to fail */
        for (long n = 1; !enough; n += 1 + n / 40) {
            starve(n, ever);
            const rp_status status = run(model, found);
            enough = starve_end() < n;
            failed += status != RP_OK;
            if (status != RP_OK && status != RP_E_NOMEM && strstr(last_error(), "memory") == NULL)
                fail_msg("%s: allocation %ld: %s: %s", path, n, rp_status_name(status), last_error());
            if (status == RP_OK && memcmp(usual, found, size) != 0)
                fail_msg("%s: allocation %ld: other results", path, n);
            if (starve_blocks > before)
                fail_msg("%s: allocation %ld: %ld blocks were not freed", path, n, starve_blocks - before);
            assert_true(!enough || status == RP_OK);
        }
        print_message("    %s: %ld calls failed\n", path, failed);
        assert_true(failed > 20);
    }
}

/* Set-up and tear-down of a group of tests: make and remove the file `packed`. */
static int make_packed(void **state)
{
    (void)state;
    const int fd = mkstemp(packed);
    return fd < 0 || close(fd) != 0;
}

static int remove_packed(void **state)
{
    (void)state;
    return unlink(packed);
}

#endif
