/* test_checkpoints.c -- checkpoints that are damaged, missing or unreadable, and links in place of their files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "lab/engine/nn.h"
#include "tests/helpers.h"
#include "tests/starve.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Weights beyond the range of f16 are an error; they are not stored as infinity. */
static void weights_beyond_f16_are_refused(void **state)
{
    char err[NN_ERR_MAX] = "", warning[NN_ERR_MAX], path[] = "/tmp/relpos-XXXXXX";
    nn_config c;
    nn_model m, back;
    int64_t step;
    (void)state;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    nn_config_init(&c);
    c.width = c.mlp = 8;
    assert_int_equal(nn_model_create(&m, &c, false, err), 0);
    m.w[1] = -65519;
    assert_int_equal(nn_checkpoint_save(&m, path, 3, RP_F16, err), 0);
    assert_int_equal(nn_checkpoint_read(&back, path, false, &step, warning, err), 0);
    assert_true(back.w[1] == -65504 && step == 3);
    nn_model_destroy(&back);
    m.w[1] = 65520;
    assert_int_equal(nn_checkpoint_save(&m, path, 3, RP_F16, err), -1);
    assert_string_equal(err, "embedding.weight: 65520 does not fit in f16, whose values are below 65520 (use bf16)");
    assert_int_equal(nn_checkpoint_save(&m, path, 3, RP_BF16, err), 0);
    assert_int_equal(nn_checkpoint_read(&back, path, false, &step, warning, err), 0);
    assert_true(back.w[1] == 65536);
    nn_model_destroy(&back);
    nn_model_destroy(&m);
    unlink(path);
}

static void small_model(nn_model *m)
{
    char err[NN_ERR_MAX];
    nn_config c;
    nn_config_init(&c);
    c.layers = c.heads = 1;
    c.width = c.mlp = 2;
    c.vocab = 2;
    snprintf(c.position, sizeof c.position, "none");
    if (nn_model_create(m, &c, true, err) != 0)
        fail_msg("%s", err);
}

/* The file of a small model, its bytes, and the size of its header. */
typedef struct stored {
    char path[32];
    nn_model m;
    unsigned char *bytes;
    size_t size, header;
    int fd;
} stored;

static void store(stored *s)
{
    char err[NN_ERR_MAX] = "";
    uint64_t length;
    snprintf(s->path, sizeof s->path, "/tmp/relpos-XXXXXX");
    s->fd = mkstemp(s->path);
    assert_true(s->fd >= 0);
    close(s->fd);
    small_model(&s->m);
    if (nn_checkpoint_save(&s->m, s->path, 3, RP_F32, err) != 0)
        fail_msg("%s", err);
    s->bytes = nn_read_file(s->path, &s->size, err);
    s->fd = open(s->path, O_RDWR | O_CLOEXEC);
    assert_true(s->bytes && s->fd >= 0);
    memcpy(&length, s->bytes, sizeof length);
    s->header = (size_t)length + sizeof length;
    assert_true(s->header < s->size);
}

static void discard(stored *s)
{
    close(s->fd);
    unlink(s->path);
    free(s->bytes);
    nn_model_destroy(&s->m);
}

/* Flip a bit of every byte of the header, and replace every byte by characters of JSON. The file is either rejected,
 * with a line that names it, or gives the same model. This runs in a child process, so if it crashes, the byte is
 * reported. test_damage tries every value, without a model. */
static void damaged_headers_are_refused_or_the_same_model(void **state)
{
    stored s;
    int how = 0;
    static const char values[] = "\x01\x20\"}9-"; /* two masks of bits to flip, then replacement bytes */
    size_t *at = mmap(NULL, 2 * sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_true(at != MAP_FAILED);
    store(&s);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        char err[NN_ERR_MAX], warning[NN_ERR_MAX];
        for (int n = 1; n < NSIG; n++)
            signal(n, SIG_DFL);
        for (at[0] = 0; at[0] < s.header; at[0]++) {
            for (at[1] = 0; at[1] < sizeof values; at[1]++) {
                nn_model m;
                int64_t step = -1;
                const char changed = (char)(at[1] < 2 ? (char)s.bytes[at[0]] ^ values[at[1]] : values[at[1]]);
                err[0] = 0;
                if (pwrite(s.fd, &changed, 1, (off_t)at[0]) != 1)
                    _exit(1);
                if (nn_checkpoint_read(&m, s.path, true, &step, warning, err) != 0) {
                    if (strncmp(err, s.path, strlen(s.path)) != 0)
                        _exit(2);
                    continue;
                }
                if (step != 3 || memcmp(m.w, s.m.w, (size_t)m.n_weights * sizeof *m.w) != 0)
                    _exit(3);
                nn_model_destroy(&m);
            }
            if (pwrite(s.fd, &s.bytes[at[0]], 1, (off_t)at[0]) != 1)
                _exit(1);
        }
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &how, 0) == child);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        fail_msg("byte %zu, value %zu: %s %d", at[0], at[1], WIFEXITED(how) ? "exit code" : "signal",
                 WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
    munmap(at, 2 * sizeof *at);
    discard(&s);
}

/* The folder of a run, with the checkpoint of step 2 and the previous one of step 1. */
typedef struct run {
    char dir[32], now[64], before[64], damaged[64];
} run;

static void run_begin(run *r)
{
    char err[NN_ERR_MAX];
    nn_model m;
    snprintf(r->dir, sizeof r->dir, "/tmp/relpos-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->now, sizeof r->now, "%s/checkpoint.safetensors", r->dir);
    snprintf(r->before, sizeof r->before, "%s/previous.safetensors", r->dir);
    snprintf(r->damaged, sizeof r->damaged, "%s/damaged.safetensors", r->dir);
    small_model(&m);
    if (nn_checkpoint_write(&m, r->dir, 1, err) != 0 || nn_checkpoint_write(&m, r->dir, 2, err) != 0)
        fail_msg("%s", err);
    nn_model_destroy(&m);
}

static void run_end(const run *r)
{
    remove(r->now);
    unlink(r->before);
    unlink(r->damaged);
    assert_int_equal(rmdir(r->dir), 0);
}

/* Read the checkpoint of a run. Return its step, or -1 with an error. */
static int64_t read_step(const run *r, char warning[NN_ERR_MAX], char err[NN_ERR_MAX])
{
    nn_model m;
    int64_t step = 0;
    err[0] = warning[0] = 0;
    if (nn_checkpoint_read(&m, r->dir, true, &step, warning, err) != 0)
        return -1;
    nn_model_destroy(&m);
    return step;
}

/* A failure that may not be the fault of the file is an error that names the file and the reason. Older weights are
 * never used instead. */
static void failed_reads_never_give_older_weights(void **state)
{
    char err[NN_ERR_MAX], warning[NN_ERR_MAX];
    struct rlimit files, none;
    run r;
    (void)state;
    static const char *const targets[] = {"checkpoint.safetensors", "/proc/self/mem", "/dev/zero",
                                          "previous.safetensors/x", "gone/away"};
    static const char *const words[] = {"cannot be opened: Too many levels",
                                        "cannot be read: Input/output error",
                                        "it is a device",
                                        "cannot be opened: Not a directory",
                                        "or a link whose target does not exist",
                                        "it is a directory",
                                        "it is a pipe, or a link whose target does not exist",
                                        "Too many open files"};
    enum { LINKS = 5, DIRECTORY = LINKS, PIPE, FILES, CASES };
    for (int n = 0; n < CASES; n++) {
        run_begin(&r);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
        none = files;
        none.rlim_cur = 0;
        if (n != FILES)
            assert_int_equal(unlink(r.now), 0);
        if (n < LINKS)
            assert_int_equal(symlink(targets[n], r.now), 0);
        else if (n == DIRECTORY)
            assert_int_equal(mkdir(r.now, 0700), 0);
        else if (n == PIPE)
            assert_int_equal(mkfifo(r.now, 0600), 0);
        else
            assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        const int64_t step = read_step(&r, warning, err);
        setrlimit(RLIMIT_NOFILE, &files);
        if (step != -1 || !strstr(err, words[n]) || strncmp(err, r.now, strlen(r.now)) != 0)
            fail_msg("case %d: step %d: %s%s", n, (int)step, err, warning);
        struct stat st;
        assert_int_equal(lstat(r.now, &st), 0);
        assert_int_equal(access(r.damaged, F_OK), -1);
        run_end(&r);
    }
}

/* Let each allocation fail, alone or with all later ones. */
static void reads_without_memory_report_it(void **state)
{
    char err[NN_ERR_MAX], warning[NN_ERR_MAX];
    run r;
    (void)state;
    if (!STARVES)
        print_message("allocations: not tested, because sanitizers have their own allocator\n");
    run_begin(&r);
    for (int ever = 0; ever < 2; ever++) {
        long n = 1, count;
        do {
            starve(n, ever);
            const int64_t step = read_step(&r, warning, err);
            count = starve_end();
            if (step == 2 ? warning[0] != 0 : step != -1 || !strstr(err, "memory"))
                fail_msg("allocation %ld: step %d: %s%s", n, (int)step, err, warning);
        } while (count >= n++);
        assert_true(!STARVES || n > 300);
    }
    run_end(&r);
}

/* If one of the run's file names is a link, the link is replaced, and its target stays. */
static void links_at_the_names_of_a_run_are_replaced(void **state)
{
    static const char *const names[] = {"next.safetensors", ".next.safetensors.tmp", ".previous.tmp",
                                        "previous.safetensors", "checkpoint.safetensors"};
    char err[NN_ERR_MAX], warning[NN_ERR_MAX], path[96], kept[64];
    nn_model m;
    run r;
    (void)state;
    small_model(&m);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        run_begin(&r);
        snprintf(path, sizeof path, "%s/%s", r.dir, names[n]);
        snprintf(kept, sizeof kept, "%s/kept", r.dir);
        unlink(path);
        FILE *f = fopen(kept, "w");
        assert_true(f && fputs("kept", f) > 0 && fclose(f) == 0);
        assert_int_equal(symlink("kept", path), 0);
        if (nn_checkpoint_write(&m, r.dir, 3, err) != 0)
            fail_msg("%s: %s", names[n], err);
        assert_int_equal(read_step(&r, warning, err), 3);
        size_t size;
        unsigned char *bytes = nn_read_file(kept, &size, err);
        if (!bytes || strcmp((char *)bytes, "kept") != 0)
            fail_msg("%s: its target is gone", names[n]);
        free(bytes);
        unlink(kept);
        run_end(&r);
    }
    nn_model_destroy(&m);
}

/* The next checkpoint removes temporary files of a killed run. */
static void temporaries_of_a_killed_run_are_replaced(void **state)
{
    static const char *const names[] = {"next.safetensors", ".next.safetensors.tmp", ".previous.tmp"};
    char err[NN_ERR_MAX], path[96];
    nn_model m;
    run r;
    (void)state;
    small_model(&m);
    run_begin(&r);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        snprintf(path, sizeof path, "%s/%s", r.dir, names[n]);
        FILE *f = fopen(path, "w");
        assert_true(f && fputs("half a file", f) > 0 && fclose(f) == 0);
    }
    if (nn_checkpoint_write(&m, r.dir, 3, err) != 0)
        fail_msg("%s", err);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        snprintf(path, sizeof path, "%s/%s", r.dir, names[n]);
        assert_int_equal(access(path, F_OK), -1);
    }
    run_end(&r);
    nn_model_destroy(&m);
}

/* If a checkpoint is missing, truncated or changed, the previous one is used, with a warning. */
static void a_damaged_checkpoint_gives_the_previous_one(void **state)
{
    char err[NN_ERR_MAX], warning[NN_ERR_MAX];
    run r;
    (void)state;
    static const long sizes[] = {-1, 0, 7, 8, 9, 100, 2000, 4000};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        run_begin(&r);
        assert_int_equal(sizes[n] < 0 ? unlink(r.now) : truncate(r.now, sizes[n]), 0);
        const int64_t step = read_step(&r, warning, err);
        if (step != 1 || !strstr(warning, "using the previous checkpoint, of step 1") ||
            (access(r.damaged, F_OK) == 0) != (sizes[n] >= 0))
            fail_msg("cut to %ld: step %d: %s%s", sizes[n], (int)step, err, warning);
        run_end(&r);
    }
    run_begin(&r); /* if both are damaged, the error names both */
    assert_int_equal(unlink(r.now), 0);
    assert_int_equal(truncate(r.before, 9), 0);
    assert_int_equal(read_step(&r, warning, err), -1);
    assert_true(strstr(err, r.now) && strstr(err, "No such file") && strstr(err, r.before) && strstr(err, "cut short"));
    run_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_beyond_f16_are_refused),
        cmocka_unit_test(damaged_headers_are_refused_or_the_same_model),
        cmocka_unit_test(failed_reads_never_give_older_weights),
        cmocka_unit_test(reads_without_memory_report_it),
        cmocka_unit_test(a_damaged_checkpoint_gives_the_previous_one),
        cmocka_unit_test(links_at_the_names_of_a_run_are_replaced),
        cmocka_unit_test(temporaries_of_a_killed_run_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
