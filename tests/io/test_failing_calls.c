/* test_failing_calls.c -- lets each system call and each allocation of reading and writing files fail: the error says
 * why, files are complete or unchanged, and no memory is lost.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/append.h"
#include "io/checkpoint.h"
#include "io/fasta.h"
#include "tests/io/files.h"
#include "tests/failing_calls.h"
#include "tests/starve.h"
#include <dirent.h>
#include <zlib.h>

static float numbers[4] = {1, 2, 3, 4};
static io_set old_set, new_set;
static int seen; /* what the last run read */

/* Make two sets, with other arrays. */
static void make_sets(io_format format)
{
    memset(&old_set, 0, sizeof old_set);
    assert_int_equal(io_add(&old_set, "old", RP_F32, 1, (int64_t[]){4}, numbers, true), 0);
    fill_set(&new_set, format);
}

static bool has_set(const char *path, const io_set *set)
{
    io_set found;
    if (io_read(path, &found, NULL, err) != IO_OK)
        fail_msg("after a failing call: %s", err);
    const bool same = same_set(set, &found);
    io_free(&found);
    return same;
}

/* ------------------------------------------------------------------------------------------------ whole files */

static void prepare_npz(void)
{
    make_sets(IO_NPZ);
    assert_int_equal(io_write(in_dir("x.npz"), IO_NPZ, &old_set, err), 0);
}

static void prepare_safetensors(void)
{
    make_sets(IO_SAFETENSORS);
    assert_int_equal(io_write(in_dir("x.safetensors"), IO_SAFETENSORS, &old_set, err), 0);
}

/* Write the new sets once, for reading. */
static void prepare_read_npz(void)
{
    make_sets(IO_NPZ);
    if (access(in_dir("y.npz"), F_OK) != 0)
        assert_int_equal(io_write(in_dir("y.npz"), IO_NPZ, &new_set, err), 0);
}

static void prepare_read_safetensors(void)
{
    make_sets(IO_SAFETENSORS);
    if (access(in_dir("y.safetensors"), F_OK) != 0)
        assert_int_equal(io_write(in_dir("y.safetensors"), IO_SAFETENSORS, &new_set, err), 0);
}

static bool write_npz(void)
{
    return io_write(in_dir("x.npz"), IO_NPZ, &new_set, err) == 0;
}

static bool replace_safetensors(void)
{
    return io_replace(in_dir("x.safetensors"), IO_SAFETENSORS, &new_set, err) == 0;
}

/* The file has the new arrays, or, after a failure, the old ones. It may have the new ones if only syncing its folder
 * failed. */
static void check_file(const char *path, bool done)
{
    assert_true(has_set(path, &new_set) || (!done && has_set(path, &old_set)));
    io_free(&old_set);
    io_free(&new_set);
}

static void check_npz(bool done)
{
    check_file(in_dir("x.npz"), done);
}

static void check_safetensors(bool done)
{
    check_file(in_dir("x.safetensors"), done);
}

/* Write one array in two parts. */
static bool write_stream(void)
{
    io_array array = {.name = (char[]){"old"}, .dtype = RP_F32, .ndim = 1, .shape = (int64_t[]){4}, .bytes = 16};
    const io_set set = {.arrays = &array, .n_arrays = 1};
    io_stream *s = io_stream_open(in_dir("x.npz"), IO_NPZ, &set, err);
    int result = s == NULL ? -1 : io_stream_put(s, numbers, 4, err);
    if (result == 0)
        result = io_stream_put(s, numbers + 1, 12, err);
    if (s != NULL)
        result = io_stream_close(s, result, err);
    return result == 0;
}

static void check_stream(bool done)
{
    (void)done; /* the same array as before */
    assert_true(has_set(in_dir("x.npz"), &old_set));
    io_free(&old_set);
    io_free(&new_set);
}

/* Compare a set that was read, if it was. */
static bool take_set(io_status status, io_set *found)
{
    if (status != IO_OK)
        return false;
    seen = same_set(found, &new_set);
    io_free(found);
    return true;
}

static bool read_npz(void)
{
    io_set found;
    return take_set(io_read(in_dir("y.npz"), &found, NULL, err), &found);
}

static bool read_safetensors(void)
{
    io_set found;
    return take_set(io_read(in_dir("y.safetensors"), &found, NULL, err), &found);
}

static void check_read(bool done)
{
    assert_true(!done || seen);
    io_free(&old_set);
    io_free(&new_set);
}

static bool any_name(const void *context, const char *name)
{
    (void)context, (void)name;
    return true;
}

static bool read_part(void)
{
    io_set set;
    float x[2];
    if (io_read_parts(in_dir("x.safetensors"), any_name, any_name, NULL, &set, err) != IO_OK)
        return false;
    const bool done = io_read_part(&set, &set.arrays[0], 1, 2, x, err) == IO_OK;
    seen = done && x[0] == 2 && x[1] == 3;
    io_free(&set);
    return done;
}

static bool write_text(void)
{
    FILE *to;
    io_text *t = io_text_open(in_dir("x.txt"), &to, err);
    if (t == NULL)
        return false;
    fprintf(to, "%d words\n", 2);
    return io_text_close(t, 0, err) == 0;
}

static void prepare_text(void)
{
    save(in_dir("x.txt"), "old", 3);
}

static void check_text(bool done)
{
    const bytes found = load_file(in_dir("x.txt"));
    const bool new_text = found.n == 8 && memcmp(found.p, "2 words\n", 8) == 0;
    assert_true(new_text || (!done && found.n == 3 && memcmp(found.p, "old", 3) == 0));
    free(found.p);
}

/* ------------------------------------------------------------------------------------------------ archives */

static int find_array(void *context, const io_array *array, uint64_t tag, off_t at, char why[IO_ERR_MAX])
{
    int *found = context;
    (void)why;
    assert_int_equal(tag, array->name[0]);
    *found |= at == IO_APPEND_DAMAGED ? 0 : 1 << (array->name[0] - 'a');
    return 0;
}

/* Continue the archive x.npz until it has the arrays a to d; flush it after the first that it lacks. */
static bool continue_archive(void)
{
    int found = 0;
    io_append *a = io_append_open(in_dir("x.npz.part"), in_dir("x.npz"), "a note", find_array, &found, err);
    bool done = a != NULL, flushed = false;
    for (int k = 0; done && k < 4; k++) {
        const io_array array = {.name = (char[]){(char)('a' + k), 0},
                                .dtype = RP_F32,
                                .ndim = 1,
                                .shape = (int64_t[]){4},
                                .bytes = sizeof numbers,
                                .data = numbers,
                                .borrowed = true};
        if (found & 1 << k)
            continue;
        done = io_append_array(a, &array, (uint64_t)array.name[0], err) == 0;
        if (done && !flushed)
            done = io_append_flush(a, err) == 0;
        flushed = true;
    }
    char why[IO_ERR_MAX];
    if (a != NULL && io_append_close(a, done ? in_dir("x.npz") : NULL, done ? err : why) != 0)
        done = false;
    return done;
}

/* Make an archive of a to c, of which b is damaged. */
static void prepare_archive(void)
{
    unlink(in_dir("x.npz"));
    unlink(in_dir("x.npz.part"));
    assert_true(continue_archive());
    io_append_end end;
    char note[20];
    seen = 0;
    assert_int_equal(io_append_list(in_dir("x.npz"), note, sizeof note, find_array, &seen, &end, err), 0);
    assert_int_equal(end, IO_APPEND_WHOLE);
    bytes file = load_file(in_dir("x.npz"));
    file.p[file.n / 3] ^= 1; /* the central directory takes the last quarter */
    save(in_dir("x.npz"), file.p, file.n);
    free(file.p);
}

static void check_archive(bool done)
{
    io_append_end end = IO_APPEND_MORE;
    char note[20];
    if (!done) /* another run completes it */
        assert_true(continue_archive());
    seen = 0;
    assert_int_equal(io_append_list(in_dir("x.npz"), note, sizeof note, find_array, &seen, &end, err), 0);
    assert_int_equal(seen, 15);
    assert_int_equal(end, IO_APPEND_WHOLE);
    assert_string_equal(note, "a note");
    assert_int_equal(access(in_dir("x.npz.part"), F_OK), -1);
}

static bool list_archive(void)
{
    io_append_end end;
    char note[20];
    seen = 0;
    return io_append_list(in_dir("x.npz"), note, sizeof note, find_array, &seen, &end, err) == 0;
}

static void check_list(bool done)
{
    int n = 0;
    for (int k = 0; k < 4; k++)
        n += seen >> k & 1;
    assert_true(!done || n == 3);
}

/* ------------------------------------------------------------------------------------------------ models, proteins */

static void prepare_model(void)
{
    io_set set = {0};
    mkdir(in_dir("model"), 0777);
    assert_int_equal(io_add(&set, "x", RP_F32, 1, (int64_t[]){4}, numbers, true), 0);
    assert_int_equal(io_write(in_dir("model/1.safetensors"), IO_SAFETENSORS, &set, err), 0);
    set.arrays[0].name[0] = 'y';
    assert_int_equal(io_write(in_dir("model/2.safetensors"), IO_SAFETENSORS, &set, err), 0);
    io_free(&set);
    const char *index = "{\"weight_map\":{\"x\":\"1.safetensors\",\"y\":\"2.safetensors\"}}";
    save(in_dir("model/model.safetensors.index.json"), index, strlen(index));
}

static bool open_path(const char *path)
{
    io_checkpoint *c;
    if (io_checkpoint_open(&c, path, err) != IO_OK)
        return false;
    const bool done = io_checkpoint_unchanged(c, err) == IO_OK;
    seen = (int)io_checkpoint_size(c);
    io_checkpoint_close(c);
    return done;
}

static bool open_model(void)
{
    return open_path(in_dir("model"));
}

static void check_model(bool done)
{
    assert_true(!done || seen == 2);
}

static bool open_gguf(void)
{
    return open_path(RELPOS_TEST_DATA "/blocks.gguf");
}

static void check_gguf(bool done)
{
    assert_true(!done || seen == 11);
}

static void prepare_fasta(void)
{
    char text[3000] = ">a\nMKV\n>b\n";
    memset(text + 10, 'L', sizeof text - 10);
    save(in_dir("x.fasta"), text, sizeof text);
    gzFile z = gzopen(in_dir("x.fasta.gz"), "wb");
    assert_int_equal(gzwrite(z, text, sizeof text), sizeof text);
    assert_int_equal(gzclose(z), Z_OK);
}

static bool read_proteins(const char *path)
{
    io_record r;
    int got = -1;
    io_fasta *f = io_fasta_open(path, err);
    seen = 0;
    while (f != NULL && (got = io_fasta_next(f, true, 5000, &r, err)) == 1)
        seen += (int)r.n;
    if (f != NULL)
        io_fasta_close(f);
    return got == 0;
}

static bool read_fasta(void)
{
    return read_proteins(in_dir("x.fasta"));
}

static bool read_gzip(void)
{
    return read_proteins(in_dir("x.fasta.gz"));
}

static void check_fasta(bool done)
{
    assert_true(!done || seen == 3 + 3000 - 10);
}

/* ------------------------------------------------------------------------------------------------ all */

static void prepare_nothing(void)
{
}

/* An operation on files. `run` returns true if it succeeded; otherwise err says why. */
static const struct operation {
    const char *name;
    void (*prepare)(void);
    bool (*run)(void);
    void (*check)(bool done);
    bool stream; /* it reads to the end of a file, so CALL_ENDS shortens the file */
    int calls;   /* min number of calls that can fail */
} operations[] = {
    {"io_write .npz", prepare_npz, write_npz, check_npz, false, 40},
    {"io_replace", prepare_safetensors, replace_safetensors, check_safetensors, false, 20},
    {"io_stream", prepare_npz, write_stream, check_stream, false, 10},
    {"io_read .npz", prepare_read_npz, read_npz, check_read, false, 40},
    {"io_read .safetensors", prepare_read_safetensors, read_safetensors, check_read, false, 15},
    {"io_read_part", prepare_safetensors, read_part, check_read, false, 6},
    {"io_text", prepare_text, write_text, check_text, false, 8},
    {"io_append", prepare_archive, continue_archive, check_archive, false, 40},
    {"io_append_list", prepare_archive, list_archive, check_list, false, 12},
    {"io_checkpoint_open", prepare_model, open_model, check_model, false, 14},
    {"io_checkpoint_open .gguf", prepare_nothing, open_gguf, check_gguf, false, 6},
    {"io_fasta", prepare_fasta, read_fasta, check_fasta, true, 5},
    {"io_fasta .gz", prepare_fasta, read_gzip, check_fasta, true, 5},
};

/* Return the number of temporary files. */
static int count_temporary(void)
{
    int n = 0;
    DIR *list = opendir(dir);
    assert_non_null(list);
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;)
        n += strncmp(entry->d_name, ".relpos-", 8) == 0 || strstr(entry->d_name, ".tmp") != NULL;
    closedir(list);
    return n;
}

/* Run an operation while its n-th system call fails, or, with `how` = CALL_FAILURES or more, its n-th allocation, alone
 * or with all later ones. Return the number of calls. A failure that is tolerated lets the operation succeed; otherwise
 * the message must contain `words`. */
static long try_failure(const struct operation *o, int how, long n, const char *words)
{
    const bool memory = how >= CALL_FAILURES, must = how == CALL_INTERRUPTED || how == CALL_SHORT;
    char said[IO_ERR_MAX];
    o->prepare();
    strcpy(err, "no message");
    if (memory)
        starve(n, how > CALL_FAILURES);
    else
        fail_calls(n, (call_failure)how);
    const bool done = o->run();
    const long count = memory ? starve_end() : fail_calls_end();
    strcpy(said, err);
    o->check(done);
    if (!done && (must || strstr(said, words) == NULL))
        fail_msg("%s: failure %d (%s) of call %ld: %s", o->name, how, words, n, said);
    const int left = count_temporary();
    if (left != 0 && failing_error != EWOULDBLOCK) /* a file that another process locked is not removed */
        fail_msg("%s: failure %d (%s) of call %ld: %d temporary files are left", o->name, how, words, n, left);
    return count;
}

/* Run an operation with a failure at each call. */
static void try_each(const struct operation *o, int how, const char *words, int min_calls)
{
    const long calls = try_failure(o, how, 1000000, words), before = starve_blocks;
    if (calls < min_calls)
        fail_msg("%s: only %ld calls", o->name, calls);
    for (long n = 1; n <= calls; n++) {
        try_failure(o, how, n, words);
        if (starve_blocks > before) /* the C library may free a buffer */
            fail_msg("%s: failure %d of call %ld: %ld blocks were not freed", o->name, how, n, starve_blocks - before);
    }
}

#define EACH_OPERATION(o)                                                                                              \
    for (const struct operation *o = operations; o < operations + sizeof operations / sizeof *operations; o++)

static void every_failing_call_is_reported(void **state)
{
    static const struct {
        int error;
        const char *words;
    } errors[] = {
        {EINVAL, "Invalid argument"},
        {ENOENT, ": "}, /* also "another process is writing it", since it was renamed */
        {EWOULDBLOCK, ": "},
    };
    (void)state;
    if (!CALLS_CAN_FAIL)
        skip();
    EACH_OPERATION(o)
    {
        failing_error = EIO;
        for (int how = 0; how < CALL_FAILURES; how++)
            if (how != CALL_ENDS || !o->stream)
                try_each(o, how, how == CALL_ENDS ? ": " : "Input/output error", o->calls);
        for (size_t k = 0; k < sizeof errors / sizeof *errors && (o->run == write_npz || o->run == continue_archive);
             k++) {
            failing_error = errors[k].error;
            try_each(o, CALL_FAILS, errors[k].words, o->calls);
        }
    }
    failing_error = EIO;
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    if (!STARVES)
        skip();
    EACH_OPERATION(o)
    for (int ever = 0; ever < 2 && o->run != read_npz; ever++) /* see test_damage.c; libzip would lose memory */
        try_each(o, CALL_FAILURES + ever, "memory", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_call_is_reported),
        cmocka_unit_test(every_failing_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
