/* test_stream.c -- arrays that are written in parts, through files and pipes; archives with many members; text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/zip_members.h"
#include "io/zip_write.h"
#include "tests/io/files.h"
#include <sys/mman.h>
#include <pthread.h>
#include <unistd.h>

enum { N = 1000 };

static int64_t lengths[3] = {1, 2, 3};
static float numbers[N];

/* A set of two arrays: `lengths`, and `hidden` without data. */
static io_set two_arrays(void)
{
    io_set set = {0};
    for (int k = 0; k < N; k++)
        numbers[k] = (float)k / 7;
    assert_int_equal(io_add(&set, "lengths", RP_I64, 1, (const int64_t[]){3}, lengths, true), 0);
    assert_int_equal(io_add(&set, "hidden", RP_F32, 2, (const int64_t[]){N / 10, 10}, NULL, true), 0);
    return set;
}

/* Write `hidden` to a file in parts of `part` bytes. */
static void write_parts(const char *path, io_format format, size_t part)
{
    io_set set = two_arrays();
    io_stream *s = io_stream_open(path, format, &set, err);
    assert_non_null(s);
    for (size_t at = 0; at < sizeof numbers; at += part)
        assert_int_equal(
            io_stream_put(s, (char *)numbers + at, at + part < sizeof numbers ? part : sizeof numbers - at, err), 0);
    assert_int_equal(io_stream_close(s, 0, err), 0);
    io_free(&set);
}

static void check_read(const char *path)
{
    io_set set;
    if (io_read(path, &set, NULL, err) != IO_OK)
        fail_msg("%s", err);
    assert_int_equal(set.n_arrays, 2);
    const io_array *a = io_find(&set, "hidden"), *b = io_find(&set, "lengths");
    assert_int_equal(a->bytes, sizeof numbers);
    assert_memory_equal(a->data, numbers, sizeof numbers);
    assert_memory_equal(b->data, lengths, sizeof lengths);
    io_free(&set);
}

static void bytes_do_not_depend_on_the_parts(void **state)
{
    (void)state;
    static const struct {
        io_format format;
        const char *whole, *parts;
    } formats[] = {{IO_NPZ, "whole.npz", "parts.npz"}, {IO_SAFETENSORS, "whole.safetensors", "parts.safetensors"}};
    for (int f = 0; f < 2; f++) {
        io_set set = two_arrays();
        set.arrays[1].data = numbers;
        assert_int_equal(io_write(in_dir(formats[f].whole), formats[f].format, &set, err), 0);
        io_free(&set);
        bytes whole = load_file(in_dir(formats[f].whole));
        for (size_t part = 1; part <= sizeof numbers; part = 3 * part + 1) {
            write_parts(in_dir(formats[f].parts), formats[f].format, part);
            bytes found = load_file(in_dir(formats[f].parts));
            assert_int_equal(found.n, whole.n);
            assert_memory_equal(found.p, whole.p, whole.n);
            free(found.p);
        }
        free(whole.p);
        check_read(in_dir(formats[f].parts));
    }
}

static void *copy_pipe(void *to)
{
    char block[4096];
    size_t n;
    FILE *in = fopen(in_dir("pipe.npz"), "rb"), *out = fopen(to, "wb");
    while (in != NULL && out != NULL && (n = fread(block, 1, sizeof block, in)) > 0)
        fwrite(block, 1, n, out);
    fclose(in);
    fclose(out);
    return NULL;
}

/* In a pipe, the checksum of an array in parts follows its data. */
static void a_pipe_gives_a_valid_archive(void **state)
{
    char copy[512];
    pthread_t reader;
    (void)state;
    snprintf(copy, sizeof copy, "%s", in_dir("copy.npz"));
    assert_int_equal(mkfifo(in_dir("pipe.npz"), 0600), 0);
    assert_int_equal(pthread_create(&reader, NULL, copy_pipe, copy), 0);
    int fd; /* wait for the reader: opening a pipe without a reader is an error */
    while ((fd = open(in_dir("pipe.npz"), O_WRONLY | O_NONBLOCK)) < 0)
        usleep(1000);
    write_parts(in_dir("pipe.npz"), IO_NPZ, 100);
    close(fd);
    pthread_join(reader, NULL);
    check_read(copy);
}

/* A file appears only if the array got all its elements. */
static void too_few_and_too_many_elements_are_refused(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        io_set set = two_arrays();
        io_stream *s = io_stream_open(in_dir("never.npz"), IO_NPZ, &set, err);
        assert_non_null(s);
        int result = io_stream_put(s, numbers, sizeof numbers - 4, err);
        if (more) {
            result = io_stream_put(s, numbers, 8, err);
            assert_int_equal(result, -1);
            assert_non_null(strstr(err, "more elements than its shape"));
        }
        assert_int_equal(io_stream_close(s, result, err), -1);
        assert_non_null(strstr(err, more ? "more elements" : "fewer elements than its shape"));
        assert_int_equal(access(in_dir("never.npz"), F_OK), -1);
        io_free(&set);
    }
    io_set set = two_arrays();
    assert_int_equal(io_write(in_dir("never.npz"), IO_NPZ, &set, err), -1);
    assert_non_null(strstr(err, "it has no data"));
    set.arrays[0].data = NULL;
    assert_null(io_stream_open(in_dir("never.npz"), IO_NPZ, &set, err)); /* two arrays without data */
    assert_non_null(strstr(err, "it has no data"));
    io_free(&set);
}

/* More than 65,535 members need the ZIP64 end of the directory. */
static void an_archive_of_many_members_can_be_read(void **state)
{
    enum { MANY = 70000 };
    io_set set = {0}, found;
    char name[16];
    (void)state;
    for (int64_t k = 0; k < MANY; k++) {
        snprintf(name, sizeof name, "a%d", (int)k);
        assert_int_equal(io_add(&set, name, RP_F32, 0, NULL, &numbers[k % N], true), 0);
    }
    assert_int_equal(io_write(in_dir("many.npz"), IO_NPZ, &set, err), 0);
    io_free(&set);
    if (io_read(in_dir("many.npz"), &found, NULL, err) != IO_OK)
        fail_msg("%s", err);
    assert_int_equal(found.n_arrays, MANY);
    for (size_t k = 0; k < MANY; k += 997)
        assert_memory_equal(found.arrays[k].data, &numbers[k % N], 4);
    io_free(&found);
}

static bool wants_x(const void *context, const char *name)
{
    (void)context;
    return strcmp(name, "x") == 0;
}

/* A member of 5 GiB, a hole of the file, and one behind it have ZIP64 fields. */
static void large_members_have_zip64_fields(void **state)
{
    static const int64_t large = INT64_C(5) << 30, shape[1] = {N};
    const io_array big = {.name = (char[]){"big"},
                          .dtype = RP_U8,
                          .ndim = 1,
                          .shape = (int64_t[]){large},
                          .bytes = (size_t)large},
                   small = {.name = (char[]){"x"},
                            .dtype = RP_F32,
                            .ndim = 1,
                            .shape = (int64_t[]){N},
                            .data = numbers,
                            .bytes = sizeof numbers};
    io_out out;
    io_zip z = {.out = &out};
    io_zip_list list;
    io_set set;
    char path[512], why[IO_WHY_MAX];
    (void)state;
    snprintf(path, sizeof path, "%s", in_dir("large.npz"));
    assert_int_equal(io_open_out(&out, path, false, err), 0);
    assert_int_equal(io_zip_begin_array(&z, &big, err), 0);
    const uint64_t header = z.at;
    z.at += big.bytes; /* as if the zeros had been written */
    assert_true(lseek(out.fd, (off_t)large, SEEK_CUR) == (off_t)z.at);
    assert_int_equal(io_zip_end(&z, err), 0);
    assert_int_equal(io_zip_array(&z, &small, err), 0);
    assert_int_equal(io_close_out(&out, io_zip_finish(&z, err), err), 0);
    io_zip_free(&z);

    if (io_read_wanted(path, wants_x, NULL, &set, NULL, err) != IO_OK)
        fail_msg("%s", err);
    const io_array *x = io_find(&set, "x"), *b = io_find(&set, "big");
    assert_true(x->bytes == sizeof numbers && x->shape[0] == shape[0] && b->shape[0] == large);
    assert_memory_equal(x->data, numbers, sizeof numbers);
    io_free(&set);

    const int fd = open(path, O_RDONLY);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(st.st_size > large && st.st_blocks < 1000); /* a hole takes no blocks */
    unsigned char *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    close(fd);
    if (data != MAP_FAILED) { /* a 32-bit or a limited process cannot map it */
        assert_int_equal(io_zip_members(data, (size_t)st.st_size, &list, why), IO_OK);
        assert_int_equal(list.n, 2);
        const io_zip_member *m = io_zip_find(&list, "big.npy", 7), *n = io_zip_find(&list, "x.npy", 5);
        assert_true(m->data < data + header && m->data + m->size == data + header + large);
        assert_memory_equal(n->data + n->size - sizeof numbers, numbers, sizeof numbers);
        free(list.members);
        munmap(data, (size_t)st.st_size);
    }
    assert_int_equal(unlink(path), 0);
}

/* What cannot be an archive is refused before the file is touched. */
static void too_many_arrays_are_refused(void **state)
{
    (void)state;
    const io_set many = {.n_arrays = IO_MAX_ARRAYS + 1};
    assert_int_equal(io_write(in_dir("never.npz"), IO_NPZ, &many, err), -1);
    assert_non_null(strstr(err, "there are 1000001 arrays; a file can have at most 1000000 (write fewer)"));
    assert_int_equal(access(in_dir("never.npz"), F_OK), -1);
    char text[IO_NPY_TEXT_MAX]; /* types without a name in NumPy have no header */
    io_array a = {.dtype = RP_BF16};
    assert_int_equal(io_npy_text(&a, text), 0);
    a.dtype = IO_NO_DTYPE;
    assert_int_equal(io_npy_text(&a, text), 0);
    a.dtype = RP_F32;
    assert_int_equal(io_npy_text(&a, text) % 64, 0);
}

/* Numbers in a mapped file that became shorter. */
static void lost_numbers_are_reported(void **state)
{
    (void)state;
    const long page = sysconf(_SC_PAGESIZE);
    const int fd = open(in_dir("mapped"), O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0 && ftruncate(fd, 2 * page) == 0);
    void *data = mmap(NULL, (size_t)(2 * page), PROT_READ, MAP_SHARED, fd, 0);
    assert_true(data != MAP_FAILED);
    assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    assert_int_equal(io_write_bytes(in_dir("lost"), data, (size_t)(2 * page), err), -1);
    assert_non_null(strstr(err, "a file with its numbers was changed while it was in use"));
    assert_int_equal(access(in_dir("lost"), F_OK), -1);
    munmap(data, (size_t)(2 * page));
}

static void text_appears_whole_or_not_at_all(void **state)
{
    FILE *to;
    (void)state;
    for (int result = -1; result <= 0; result++) {
        io_text *t = io_text_open(in_dir("lines.txt"), &to, err);
        assert_non_null(t);
        for (int k = 0; k < 10000; k++)
            fprintf(to, "line %d\n", k);
        assert_int_equal(access(in_dir("lines.txt"), F_OK), -1);
        assert_int_equal(io_text_close(t, result, err), result);
    }
    bytes found = load_file(in_dir("lines.txt"));
    assert_memory_equal(found.p, "line 0\nline 1\n", 14);
    assert_memory_equal(found.p + found.n - 10, "line 9999\n", 10);
    free(found.p);
    io_text *t = io_text_open("/dev/full", &to, err);
    assert_non_null(t);
    fputs("text", to);
    assert_int_equal(io_text_close(t, 0, err), -1);
    assert_non_null(strstr(err, "/dev/full: cannot be written: No space left on device"));
    t = io_text_open("/dev/full", &to, err); /* the first failure is reported, after more text */
    assert_non_null(t);
    for (int k = 0; k < 10000; k++)
        fprintf(to, "line %d\n", k);
    assert_int_equal(io_text_close(t, 0, err), -1);
    assert_non_null(strstr(err, "/dev/full: cannot be written: No space left on device"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_do_not_depend_on_the_parts),
        cmocka_unit_test(a_pipe_gives_a_valid_archive),
        cmocka_unit_test(too_few_and_too_many_elements_are_refused),
        cmocka_unit_test(an_archive_of_many_members_can_be_read),
        cmocka_unit_test(large_members_have_zip64_fields),
        cmocka_unit_test(too_many_arrays_are_refused),
        cmocka_unit_test(lost_numbers_are_reported),
        cmocka_unit_test(text_appears_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
