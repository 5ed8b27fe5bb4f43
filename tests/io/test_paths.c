/* test_paths.c -- paths: errors of reading and writing, and failed writes, which must leave an existing file unchanged.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/io/files.h"

static int entries(const char *path)
{
    char command[600];
    int n = -1;
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

static void refuse_path(io_status status, const char *path, const char *words)
{
    io_set set;
    io_format found = IO_NPZ;
    assert_int_equal(io_read(path, &set, &found, err), status);
    assert_true(set.n_arrays == 0 && set.arrays == NULL && found == IO_UNKNOWN);
    if (strstr(err, words) == NULL)
        fail_msg("'%s' does not contain '%s'", err, words);
}

static void unreadable_paths_say_why(void **state)
{
    (void)state;
    refuse_path(IO_ABSENT, in_dir("nowhere.npz"), "No such file");
    refuse_path(IO_FAILED, dir, "directory");
    refuse_path(IO_FAILED, "/dev/zero", "device");
    refuse_path(IO_FAILED, "/dev/null", "device");
    /* The file exists, but the system reports an error. */
    assert_int_equal(symlink("loop.npz", in_dir("loop.npz")), 0);
    refuse_path(IO_FAILED, in_dir("loop.npz"), "cannot be opened: Too many levels of symbolic links");
    refuse_path(IO_FAILED, "/proc/self/mem", "cannot be read: Input/output error");
    struct rlimit files, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    none = files;
    none.rlim_cur = 3;
    save(in_dir("there.npz"), "PK", 2);
    const char *there = in_dir("there.npz");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    refuse_path(IO_FAILED, there, "cannot be opened: Too many open files");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    refuse_path(IO_FAILED, in_dir("there.npz/x.npz"), "cannot be opened: Not a directory");
    assert_int_equal(mkfifo(in_dir("pipe.npz"), 0600), 0);
    refuse_path(IO_DAMAGED, in_dir("pipe.npz"), "empty");
    save(in_dir("empty.npz"), "", 0);
    refuse_path(IO_DAMAGED, in_dir("empty.npz"), "empty");
    save(in_dir("zip0"), "PK\3\4\0\0\0\0\0", 9);
    refuse_path(IO_DAMAGED, in_dir("zip0"), "cut short");
    save(in_dir("short"), "PK", 2);
    refuse_path(IO_DAMAGED, in_dir("short"), "neither");
    save(in_dir("x.npy"), "\x93NUMPY\1\0\0\0\0\0", 12);
    refuse_path(IO_DAMAGED, in_dir("x.npy"), "numpy.savez");
    save(in_dir("line\n\x1b[31m.npz"), "hello, hello", 12);
    refuse_path(IO_DAMAGED, in_dir("line\n\x1b[31m.npz"), "line\\x0a\\x1b[31m.npz: ");
}

/* A file in one format with the suffix of the other format is an error. */
static void the_suffix_decides(void **state)
{
    (void)state;
    io_set set = {0};
    assert_int_equal(io_write(in_dir("really.npz"), IO_SAFETENSORS, &set, err), 0);
    refuse_path(IO_DAMAGED, in_dir("really.npz"), ".npz");
    assert_int_equal(io_write(in_dir("really.safetensors"), IO_NPZ, &set, err), 0);
    refuse_path(IO_DAMAGED, in_dir("really.safetensors"), "safetensors");
}

static void a_sparse_file_is_refused_by_its_first_bytes(void **state)
{
    (void)state;
    save(in_dir("sparse.safetensors"), "", 0);
    if (truncate(in_dir("sparse.safetensors"), (off_t)3 << 30) == 0)
        refuse_path(IO_DAMAGED, in_dir("sparse.safetensors"), "malformed");
}

/* Input that arrives in two pieces, then input that never ends. */
static void standard_input_may_be_a_pipe(void **state)
{
    (void)state;
    io_set set;
    fill_set(&set, IO_NPZ);
    assert_int_equal(io_add(&set, "large", RP_U8, 1, (int64_t[]){300000}, calloc(300000, 1), false), 0);
    const char *path = in_dir("piped.npz");
    assert_int_equal(io_write(path, IO_NPZ, &set, err), 0);
    for (int endless = 0; endless < 2; endless++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) {
            char command[600];
            dup2(ends[1], 1);
            close(ends[0]);
            close(ends[1]);
            snprintf(command, sizeof command, "head -c 5 %s; sleep 0.05; tail -c +6 %s", path, path);
            execl("/bin/sh", "sh", "-c", endless ? "exec cat /dev/zero" : command, (char *)NULL);
            _exit(1);
        }
        close(ends[1]);
        assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0); /* some parents pass a non-blocking standard input */
        const int kept = dup(0);
        dup2(ends[0], 0);
        close(ends[0]);
        io_set back;
        const int result = io_read("-", &back, NULL, err);
        dup2(kept, 0);
        close(kept);
        assert_int_equal(waitpid(child, NULL, 0), child);
        if (endless) {
            assert_int_equal(result, IO_DAMAGED);
            assert_non_null(strstr(err, "standard input: "));
        } else {
            if (result != 0)
                fail_msg("%s", err);
            assert_true(same_set(&set, &back));
            io_free(&back);
        }
    }
    io_free(&set);
}

static void refuse_write(const char *path, io_format format, const io_set *set, const char *words)
{
    assert_int_equal(io_write(path, format, set, err), -1);
    if (strstr(err, words) == NULL)
        fail_msg("'%s' does not contain '%s'", err, words);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode;
}

static void holds(const char *path, const char *text)
{
    bytes b = load_file(path);
    assert_int_equal(b.n, strlen(text));
    assert_memory_equal(b.p, text, b.n);
    free(b.p);
}

/* A file in a temporary folder, whose content must survive. */
static char home[400], path[420], other[420];

static int set_up_home(void **state)
{
    if (set_up(state) != 0)
        return -1;
    snprintf(home, sizeof home, "%s", in_dir("out"));
    snprintf(path, sizeof path, "%s/x.npz", home);
    snprintf(other, sizeof other, "%s/link", home);
    return mkdir(home, 0755);
}

/* A new file follows the umask; an existing one keeps its mode. */
static void modes_are_kept(void **state)
{
    const mode_t mask = umask(027);
    (void)state;
    assert_int_equal(io_write_bytes(path, "one", 3, err), 0);
    assert_int_equal(mode_of(path) & 07777, 0640);
    assert_int_equal(chmod(path, 0606), 0);
    assert_int_equal(io_write_bytes(path, "two", 3, err), 0);
    assert_int_equal(mode_of(path) & 07777, 0606);
    umask(mask);
}

/* Also tests links whose targets do not exist yet. */
static void links_stay_and_their_targets_are_replaced(void **state)
{
    (void)state;
    assert_int_equal(symlink("x.npz", other), 0);
    assert_int_equal(io_write_bytes(other, "three", 5, err), 0);
    assert_true(S_ISLNK(mode_of(other)) && S_ISREG(mode_of(path)));
    holds(path, "three");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(io_write_bytes(other, "four", 4, err), 0);
    assert_true(S_ISLNK(mode_of(other)));
    holds(path, "four");
    assert_int_equal(unlink(other), 0);
    assert_int_equal(symlink(path, other), 0); /* a link with an absolute path */
    assert_int_equal(io_write_bytes(other, "five", 4, err), 0);
    holds(path, "five");
    assert_int_equal(unlink(other), 0);
    assert_int_equal(symlink("link", other), 0);
    assert_int_equal(io_write_bytes(other, "x", 1, err), -1);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(io_write_bytes("/dev/null", "x", 1, err), 0);
    assert_int_equal(io_write_bytes(home, "x", 1, err), -1);
    assert_non_null(strstr(err, "directory"));
}

static void sets_that_cannot_be_written_touch_nothing(void **state)
{
    (void)state;
    io_set set = {0};
    const float x[2] = {1, 2};
    assert_int_equal(io_write_bytes(path, "four", 4, err), 0);
    assert_int_equal(io_add(&set, "a", RP_F32, 1, (int64_t[]){2}, (void *)(uintptr_t)x, true), 0);
    refuse_write(path, IO_UNKNOWN, &set, "suffix");
    assert_int_equal(io_add(&set, "a", RP_F32, 1, (int64_t[]){1}, (void *)(uintptr_t)x, true), 0);
    refuse_write(path, IO_NPZ, &set, "two arrays are named 'a'");
    strcpy(set.arrays[1].name, "\xff");
    refuse_write(path, IO_SAFETENSORS, &set, "'\\xff' cannot be written: its name is not UTF-8");
    set.arrays[1].name[0] = 'b';
    set.arrays[1].dtype = RP_BF16;
    refuse_write(path, IO_NPZ, &set, "bfloat16");
    set.arrays[1].dtype = RP_F32;
    set.arrays[1].data = NULL;
    refuse_write(path, IO_NPZ, &set, "no data");
    set.arrays[1].dtype = (rp_dtype)99;
    refuse_write(path, IO_NPZ, &set, "no dtype");
    assert_true(io_unsupported(&set.arrays[1], "it is odd"));
    refuse_write(path, IO_SAFETENSORS, &set, "it is odd");
    io_free(&set);
    char *name = calloc(65533, 1);
    memset(name, 'n', 65532);
    assert_int_equal(io_add(&set, name, RP_F32, 0, NULL, (void *)(uintptr_t)x, true), 0);
    refuse_write(path, IO_NPZ, &set, "too long");
    io_free(&set);
    free(name);
    assert_int_equal(io_add(&set, "__metadata__", RP_F32, 0, NULL, (void *)(uintptr_t)x, true), 0);
    refuse_write(path, IO_SAFETENSORS, &set, "this name is reserved");
    io_free(&set);
    assert_int_equal(io_add_meta(&set, "k", "\xff"), 0);
    refuse_write(path, IO_SAFETENSORS, &set, "metadata 'k' is not UTF-8");
    io_free(&set);
    assert_int_equal(io_add_meta(&set, "\xfe", "v"), 0);
    refuse_write(path, IO_SAFETENSORS, &set, "metadata '\\xfe' is not UTF-8");
    io_free(&set);
    holds(path, "four");
}

/* Try a full device, a limit on file sizes (with and without the signal), a broken pipe, and a path that cannot be
 * opened. */
static void a_failed_write_harms_nothing(void **state)
{
    (void)state;
    io_set set = {0};
    float *many = calloc(1 << 18, 4);
    assert_int_equal(io_write_bytes(path, "four", 4, err), 0);
    assert_int_equal(io_add(&set, "a", RP_F32, 1, (int64_t[]){1 << 18}, many, false), 0);
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    for (io_format format = IO_NPZ; format <= IO_SAFETENSORS; format++) {
        refuse_write("/dev/full", format, &set, "No space left");
        for (int ignored = 0; ignored < 2; ignored++) {
            for (rlim_t at = 1; at < 1 << 20; at *= 7) {
                limit.rlim_cur = at;
                assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
                signal(SIGXFSZ, ignored ? SIG_IGN : SIG_DFL);
                const int result = io_write(path, format, &set, err);
                setrlimit(RLIMIT_FSIZE, &old);
                signal(SIGXFSZ, SIG_DFL);
                assert_int_equal(result, -1);
                assert_non_null(strstr(err, "File too large"));
            }
        }
        holds(path, "four");
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        close(ends[0]);
        const int kept = dup(1);
        fflush(stdout);
        dup2(ends[1], 1);
        close(ends[1]);
        const int result = io_write("-", format, &set, err);
        dup2(kept, 1);
        close(kept);
        assert_int_equal(result, -1);
        assert_non_null(strstr(err, "standard output: "));
        assert_non_null(strstr(err, "Broken pipe"));
    }
    assert_int_equal(mkfifo(other, 0600), 0);
    refuse_write(other, IO_NPZ, &set, "cannot be opened");
    assert_int_equal(unlink(other), 0);
    refuse_write(in_dir("no/such/dir.npz"), IO_NPZ, &set, "No such file");
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0444), 0);
        refuse_write(path, IO_NPZ, &set, "Permission denied");
        assert_int_equal(chmod(path, 0644), 0);
        assert_int_equal(chmod(home, 0555), 0);
        refuse_write(path, IO_NPZ, &set, "cannot create a file");
        assert_int_equal(chmod(home, 0755), 0);
    }
    holds(path, "four");
    assert_int_equal(entries(home), 1); /* no temporary file is left */
    io_free(&set);
}

/* A write removes temporary files that killed writers left for the same file. It keeps locked ones, temporary files for
 * other files, and the target of a link. */
static void leftover_files_are_removed(void **state)
{
    (void)state;
    char *left, *living, *of_other, *folder, inside[500];
    const int before = entries(home), fd = io_temporary(path, false, 0600, &living);
    assert_true(fd >= 0);
    assert_int_equal(close(io_temporary(path, false, 0600, &left)), 0);
    assert_int_equal(close(io_temporary(other, false, 0600, &of_other)), 0);
    const int folder_fd = io_temporary(path, true, 0700, &folder); /* this also removes `left` */
    assert_int_equal(access(left, F_OK), -1);
    snprintf(inside, sizeof inside, "%s/x", folder);
    save(inside, "x", 1);
    assert_int_equal(entries(home), before + 3);
    assert_int_equal(symlink("x.npz", left), 0);
    assert_int_equal(io_write_bytes(path, "four", 4, err), 0);
    assert_true(access(living, F_OK) == 0 && access(of_other, F_OK) == 0 && access(inside, F_OK) == 0);
    assert_int_equal(close(folder_fd), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(io_write_bytes(path, "four", 4, err), 0);
    assert_true(access(living, F_OK) != 0 && access(of_other, F_OK) == 0 && access(folder, F_OK) != 0);
    assert_true(S_ISLNK(mode_of(left)));
    holds(path, "four");
    io_remove_temporary(-1, of_other);
    assert_int_equal(unlink(left), 0);
    assert_int_equal(entries(home), before);
    free(left);
    free(living);
    free(of_other);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unreadable_paths_say_why),
        cmocka_unit_test(the_suffix_decides),
        cmocka_unit_test(a_sparse_file_is_refused_by_its_first_bytes),
        cmocka_unit_test(standard_input_may_be_a_pipe),
        cmocka_unit_test(modes_are_kept),
        cmocka_unit_test(links_stay_and_their_targets_are_replaced),
        cmocka_unit_test(sets_that_cannot_be_written_touch_nothing),
        cmocka_unit_test(a_failed_write_harms_nothing),
        cmocka_unit_test(leftover_files_are_removed),
    };
    return cmocka_run_group_tests(tests, set_up_home, tear_down);
}
