/* test_reading.c -- standard input that is a socket, arrays that are read in parts, and texts that are too large.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/append.h"
#include "io/json.h"
#include "tests/io/files.h"
#include <sys/socket.h>
#include <unistd.h>

static float numbers[30000]; /* more bytes than the first buffer for a pipe has */

/* Write an archive with the array x. Return its bytes, which the caller frees. */
static bytes archive_of_x(const char *path)
{
    io_set set = {0};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        numbers[n] = (float)n;
    assert_int_equal(io_add(&set, "x", RP_F32, 1, (int64_t[]){30000}, numbers, true), 0);
    assert_int_equal(io_write(path, io_format_of(path), &set, err), 0);
    io_free(&set);
    return load_file(path);
}

/* Read standard input, which is a socket that gets these bytes. If `reset`, it is then reset by its other end. */
static io_status read_socket(const char *path, const void *data, size_t n, bool reset, io_set *set)
{
    int ends[2];
    const int old = dup(STDIN_FILENO);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    if (reset) /* the child does not read these bytes, so its end resets the connection */
        assert_int_equal(write(ends[0], "unread", 6), 6);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        for (size_t at = 0; at < n;) {
            const ssize_t wrote = write(ends[1], (const char *)data + at, n - at);
            if (wrote <= 0)
                _exit(1);
            at += (size_t)wrote;
        }
        _exit(0);
    }
    close(ends[1]);
    if (reset)
        assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    const io_status status = io_read(path, set, NULL, err);
    assert_int_equal(dup2(old, STDIN_FILENO), STDIN_FILENO); /* a child that still writes gets an error */
    if (!reset)
        assert_int_equal(waitpid(child, NULL, 0), child);
    close(old);
    return status;
}

static void standard_input_may_be_a_socket(void **state)
{
    static const char *const names[] = {"-", "/dev/stdin"};
    (void)state;
    bytes file = archive_of_x(in_dir("x.npz"));
    assert_true(file.n > 65536);
    for (int n = 0; n < 2; n++) {
        io_set set;
        if (read_socket(names[n], file.p, file.n, false, &set) != IO_OK)
            fail_msg("%s", err);
        assert_memory_equal(io_find(&set, "x")->data, numbers, sizeof numbers);
        io_free(&set);
        assert_int_equal(read_socket(names[n], file.p, 8, true, &set), IO_FAILED);
        assert_non_null(strstr(err, "standard input: cannot be read at byte 8: Connection reset by peer"));
    }
    free(file.p);
}

static bool wants_all(const void *context, const char *name)
{
    (void)context, (void)name;
    return true;
}

/* Only elements of the array can be read, and only from a file that was opened for it. */
static void parts_are_within_the_array(void **state)
{
    static const struct {
        int64_t first, n;
        bool read;
    } parts[] = {{0, 2, true},   {29999, 1, true},  {30000, 0, true}, {-1, 2, false},
                 {0, -1, false}, {29999, 2, false}, {0, 30001, false}};
    float some[2];
    io_set set;
    (void)state;
    bytes file = archive_of_x(in_dir("x.safetensors"));
    free(file.p);
    assert_int_equal(io_read_parts(in_dir("x.safetensors"), wants_all, wants_all, NULL, &set, err), IO_OK);
    const io_array *x = io_find(&set, "x");
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        some[0] = -7;
        const io_status status = io_read_part(&set, x, parts[k].first, parts[k].n, some, err);
        assert_int_equal(status, parts[k].read ? IO_OK : IO_FAILED);
        assert_true(some[0] == (parts[k].read && parts[k].n > 0 ? (float)parts[k].first : -7));
        if (!parts[k].read)
            assert_non_null(strstr(err, "x: elements outside the array were requested"));
    }
    io_free(&set);
    assert_int_equal(io_read(in_dir("x.safetensors"), &set, NULL, err), IO_OK);
    assert_int_equal(io_read_part(&set, io_find(&set, "x"), 0, 1, some, err), IO_FAILED);
    io_free(&set);
    file = archive_of_x(in_dir("x.npz"));
    free(file.p);
    assert_int_equal(rename(in_dir("x.npz"), in_dir("archive")), 0); /* the format is seen in its first bytes */
    assert_int_equal(io_read_parts(in_dir("archive"), wants_all, wants_all, NULL, &set, err), IO_FAILED);
    assert_non_null(strstr(err, "only .safetensors files can be read in parts (convert it)"));
}

/* A text of JSON beyond the limit is refused before it is read. */
static void large_texts_are_refused(void **state)
{
    json_error_t error;
    bool no_memory = true;
    char fault[IO_JSON_FAULT];
    (void)state;
    assert_null(io_json("{}", IO_JSON_MAX + 1, 0, &error, &no_memory));
    assert_false(no_memory);
    assert_string_equal(error.text, "it is larger than 512 MiB");
    io_json_fault("{}", 2, &error, fault);
    assert_non_null(strstr(fault, "it is larger than 512 MiB (give a smaller file)"));
    assert_null(io_json("{}", IO_JSON_MAX + 1, 0, NULL, &no_memory));
    json_t *root = io_json("{}", 2, 0, &error, &no_memory);
    assert_true(json_is_object(root) && !no_memory);
    json_decref(root);
}

static int none_found(void *context, const io_array *array, uint64_t tag, off_t at, char why[IO_ERR_MAX])
{
    (void)array, (void)tag, (void)at, (void)why;
    ++*(int *)context;
    return 0;
}

/* The limits of an archive that grows: its note, and the names of its arrays, which stays usable after an error. */
static void notes_and_names_have_limits(void **state)
{
    static char note[4098], name[65536];
    int found = 0;
    int64_t shape = 1;
    (void)state;
    memset(note, 'n', 4097);
    memset(name, 'a', 65535);
    assert_null(io_append_open(in_dir("grows.npz"), NULL, note, none_found, &found, err));
    assert_non_null(strstr(err, "its note is longer than 4096 bytes"));
    note[4096] = 0;
    io_append *a = io_append_open(in_dir("grows.npz"), NULL, note, none_found, &found, err);
    assert_non_null(a);
    io_array array = {.name = name, .dtype = RP_F32, .ndim = 1, .shape = &shape, .data = numbers, .bytes = 4};
    assert_int_equal(io_append_array(a, &array, 1, err), -1);
    assert_non_null(strstr(err, "a name of 65535 bytes is too long for a zip archive (shorten it)"));
    name[65531] = 0;
    assert_int_equal(io_append_array(a, &array, 1, err), 0);
    assert_int_equal(io_append_close(a, in_dir("grown.npz"), err), 0);
    io_set set;
    if (io_read(in_dir("grown.npz"), &set, NULL, err) != IO_OK)
        fail_msg("%s", err);
    assert_true(set.n_arrays == 1 && found == 0);
    assert_string_equal(set.arrays[0].name, name);
    io_free(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(standard_input_may_be_a_socket),
        cmocka_unit_test(parts_are_within_the_array),
        cmocka_unit_test(large_texts_are_refused),
        cmocka_unit_test(notes_and_names_have_limits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
