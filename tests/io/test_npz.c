/* test_npz.c -- hostile archives.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/io/archives.h"
#include "tests/memory_limit.h"
#include <zip.h>

static void refuse_zip(const member *members, int n, int claimed, const char *words)
{
    bytes zip = make_zip(members, n, claimed);
    refuse(IO_NPZ, zip.p, zip.n, words);
    free(zip.p);
}

/* Check that an archive is valid. The caller frees the set with io_free. */
static void accept_zip(const member *members, int n, io_set *set)
{
    bytes zip = make_zip(members, n, n);
    if (parse(IO_NPZ, zip.p, zip.n, set) != 0)
        fail_msg("%s", err);
    free(zip.p);
}

static bytes npy; /* three numbers */
static member x;  /* the member x.npy with these numbers */

static int set_up_member(void **state)
{
    npy = make_npy(1, HEADER("(3,)"), strlen(HEADER("(3,)")), 12);
    x = (member){.name = "x.npy", .data = npy.p, .size = npy.n};
    return set_up(state);
}

static int tear_down_member(void **state)
{
    free(npy.p);
    return tear_down(state);
}

/* Inconsistent directories, unsupported methods, overlapping members. */
static void bad_directories_are_refused(void **state)
{
    io_set set;
    member m[3] = {x, x, x};
    (void)state;
    accept_zip(&x, 1, &set);
    io_free(&set);
    refuse_zip(m, 2, 2, ""); /* the same name twice */
    m[1].name = "y.npy";
    refuse_zip(m, 2, 1, ""); /* a wrong count */
    refuse_zip(m, 2, 3, "");
    refuse_zip(m, 2, 65535, "");
    m[1].local_name = "z.npy";
    refuse_zip(m, 2, 2, ""); /* the two headers of a member differ */
    m[1].local_name = NULL;
    m[0].crc = 1;
    refuse_zip(m, 1, 1, "CRC");
    m[0] = x, m[0].flags = 1;
    refuse_zip(m, 1, 1, "encrypted");
    static const int methods[] = {1, 9, 12, 14, 93, 95, 99};
    for (size_t n = 0; n < sizeof methods / sizeof *methods; n++) {
        m[0] = x, m[0].method = methods[n];
        refuse_zip(m, 1, 1, "");
    }
    m[0] = x, m[0].full_size = (uint32_t)npy.n + 1;
    refuse_zip(m, 1, 1, "");        /* stored, but its two sizes differ */
    bytes zip = make_zip(&x, 1, 1); /* a member inside another member */
    m[0] = (member){.name = "a.txt", .data = zip.p, .size = 30 + strlen(x.name) + x.size};
    m[1] = x, m[1].at = 30 + (int)strlen("a.txt");
    refuse_zip(m, 2, 2, "overlap");
    free(zip.p);
    m[1] = (member){.name = "b", .data = "", .size = 0}; /* an empty member inside, and fewer bytes than two headers */
    zip = make_zip(&m[1], 1, 1);
    m[0] = (member){.name = "a", .data = zip.p, .size = 31};
    m[1].at = 31;
    refuse_zip(m, 2, 2, "overlap");
    free(zip.p);
    m[0] = x;
    m[1] = x, m[1].name = "x"; /* two members that give the same array name */
    refuse_zip(m, 2, 2, "two arrays are named 'x'");
}

/* Try an unknown block, a LEN that is not ~NLEN, a distance that is too far, an over-subscribed code, and no last
 * block; then sizes that differ from the directory. */
static void bad_deflation_is_refused(void **state)
{
    (void)state;
    member m[1];
    io_set set;
    static const struct {
        const char *data;
        size_t size;
    } deflated[] = {{"\x07", 1},
                    {"\x01\x05\x00\x00\x00hello", 10},
                    {"\x63\x00\x02\x00", 4},
                    {"\x05\xe0\xff\xff\xff", 5},
                    {"\x00\x05\x00\xfa\xffhello", 10},
                    {"", 0}};
    for (size_t n = 0; n < sizeof deflated / sizeof *deflated; n++) {
        m[0] =
            (member){.name = "x.npy", .data = deflated[n].data, .size = deflated[n].size, .full_size = 90, .method = 8};
        refuse_zip(m, 1, 1, "");
    }
    /* A stored deflate block is valid, unless it is longer or shorter than the archive says. */
    bytes block = {0};
    put_text(&block, "\x01");
    put_int(&block, npy.n, 2);
    put_int(&block, ~npy.n, 2);
    put(&block, npy.p, npy.n);
    m[0] = (member){.name = "x.npy",
                    .data = block.p,
                    .size = block.n,
                    .full_size = (uint32_t)npy.n,
                    .method = 8,
                    .crc = crc32_of(npy.p, npy.n)};
    accept_zip(m, 1, &set);
    io_free(&set);
    m[0].full_size--;
    refuse_zip(m, 1, 1, "needs");
    m[0].full_size += 2;
    refuse_zip(m, 1, 1, "needs");
    free(block.p);
}

/* 4 MB of zeros, compressed to 4 KB. The directory claims 4 GB, or less than the actual size. */
static void a_bomb_is_refused(void **state)
{
    (void)state;
    io_set set;
    const char *path = in_dir("bomb.npz");
    float *zeros = calloc(1 << 20, 4);
    io_set big = {0};
    assert_int_equal(io_add(&big, "x", RP_F32, 1, (int64_t[]){1 << 20}, zeros, false), 0);
    assert_int_equal(io_write(path, IO_NPZ, &big, err), 0);
    zip_t *z = zip_open(path, 0, NULL);
    assert_int_equal(zip_set_file_compression(z, 0, ZIP_CM_DEFLATE, 9), 0);
    assert_int_equal(zip_close(z), 0);
    bytes bomb = load_file(path);
    assert_true(bomb.n < 8192);
    assert_int_equal(parse(IO_NPZ, bomb.p, bomb.n, &set), 0);
    assert_true(same_set(&big, &set));
    io_free(&set);
    for (size_t n = 0; n + 4 < bomb.n; n++)
        if (memcmp(bomb.p + n, "\x80\x00\x40\x00", 4) == 0) /* 4 MB and a header */
            memcpy(bomb.p + n, "\x80\x00\x00\xff", 4);
    refuse(IO_NPZ, bomb.p, bomb.n, "cannot inflate");
    for (size_t n = 0; n + 4 < bomb.n; n++)
        if (memcmp(bomb.p + n, "\x80\x00\x00\xff", 4) == 0)
            memcpy(bomb.p + n, "\x8a\x00\x00\x00", 4);
    refuse(IO_NPZ, bomb.p, bomb.n, "needs");
    free(bomb.p);
    io_free(&big);
}

/* The inner header and the directory claim 12 bytes of data, but 4 MB follow. */
static void data_beyond_the_header_is_refused(void **state)
{
    (void)state;
    const char *path = in_dir("liar.npz");
    bytes liar = {0};
    put(&liar, npy.p, npy.n);
    liar.p = realloc(liar.p, 4 << 20);
    memset(liar.p + liar.n, 0, (4 << 20) - liar.n);
    zip_error_t error;
    zip_source_t *source = zip_source_buffer_create(liar.p, 4 << 20, 0, &error);
    zip_t *z = zip_open(path, ZIP_CREATE, NULL);
    assert_true(zip_file_add(z, "x.npy", source, 0) == 0);
    assert_int_equal(zip_set_file_compression(z, 0, ZIP_CM_DEFLATE, 9), 0);
    assert_int_equal(zip_close(z), 0);
    free(liar.p);
    bytes bomb = load_file(path);
    for (size_t n = 0; n + 4 < bomb.n; n++)
        if (memcmp(bomb.p + n, "\0\0\x40", 4) == 0)
            memcpy(bomb.p + n, &(uint32_t){(uint32_t)npy.n}, 4);
    refuse(IO_NPZ, bomb.p, bomb.n, "data after the last element");
    free(bomb.p);
}

/* Names are keys, never paths, and can be printed safely. */
static void names_are_keys_and_never_paths(void **state)
{
    (void)state;
    member m[3] = {x, x, x};
    io_set set;
    m[0] = x, m[0].name = "../../tmp/x.npy";
    m[1] = x, m[1].name = "/abs\x1b[31m\n.npy";
    m[2] = x, m[2].name = "a\0b.npy", m[2].name_size = 7;
    bytes zip = make_zip(m, 3, 3);
    if (parse(IO_NPZ, zip.p, zip.n, &set) == 0) { /* an error about the NUL would also be right */
        assert_non_null(io_find(&set, "../../tmp/x"));
        assert_non_null(io_find(&set, "/abs\x1b[31m\n"));
        io_free(&set);
    }
    free(zip.p);
    char *name = malloc(65536);
    memset(name, 'n', 65531);
    memcpy(name + 65531, ".npy", 5);
    m[0].name = name;
    accept_zip(m, 1, &set);
    assert_int_equal(strlen(set.arrays[0].name), 65531);
    io_free(&set);
    m[0].crc = 1;
    refuse_zip(m, 1, 1, "nnn...");
    free(name);
    m[0] = x, m[0].name = "\x82.npy"; /* code page 437 */
    accept_zip(m, 1, &set);
    assert_string_equal(set.arrays[0].name, "\xc3\xa9");
    io_free(&set);
    m[0] = x, m[0].name = "\xe0\x9b\x9e.npy"; /* an overlong form, which is no UTF-8 */
    accept_zip(m, 1, &set);
    assert_string_equal(set.arrays[0].name, "\xce\xb1\xc2\xa2\xe2\x82\xa7");
    io_free(&set);
    m[0] = x, m[0].name = "\xed\xa0\x80.npy", m[0].flags = 0x800; /* a surrogate, in a name that is said to be UTF-8 */
    refuse_zip(m, 1, 1, "member 0: its name is not UTF-8, which its header says it is");
    m[0] = x, m[0].name = "\x1b]0;x\n.npy", m[0].crc = 1;
    refuse_zip(m, 1, 1, "\\x0a");
}

/* Try an offset and a size past the end, a zip64 offset of 2^64-8, and a second end record in the comment. */
static void bad_ends_of_the_directory_are_refused(void **state)
{
    io_set set;
    (void)state;
    bytes zip = make_zip(&x, 1, 1);
    bytes bad = {0};
    put(&bad, zip.p, zip.n);
    memcpy(bad.p + bad.n - 6, "\xf0\xff\xff\x7f", 4);
    refuse(IO_NPZ, bad.p, bad.n, "");
    memcpy(bad.p + bad.n - 6, zip.p + zip.n - 6, 4);
    memcpy(bad.p + bad.n - 10, "\xf0\xff\xff\x7f", 4);
    refuse(IO_NPZ, bad.p, bad.n, "");
    bad.n = 0;
    put(&bad, zip.p, zip.n - 22);
    put(&bad, "PK\6\6\54\0\0\0\0\0\0\0\55\0\55\0\0\0\0\0\0\0\0\0", 24);
    put_int(&bad, 1, 8);
    put_int(&bad, 1, 8);
    put_int(&bad, 51, 8);
    put_int(&bad, (uint64_t)-8, 8);
    put(&bad, "PK\6\7\0\0\0\0", 8);
    put_int(&bad, zip.n - 22, 8);
    put_int(&bad, 1, 4);
    put(&bad, "PK\5\6\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0", 22);
    refuse(IO_NPZ, bad.p, bad.n, "");
    bad.n = 0;
    put(&bad, zip.p, zip.n - 2);
    put_int(&bad, 22, 2);
    put(&bad, "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    if (parse(IO_NPZ, bad.p, bad.n, &set) == 0)
        io_free(&set);
    free(bad.p);
    free(zip.p);
}

static bool wants_x(const void *context, const char *name)
{
    (void)context;
    return strcmp(name, "x") == 0;
}

/* A damaged member is neither read nor inflated if it is not requested. */
static void unwanted_members_are_not_read(void **state)
{
    io_set odd; /* what cannot be read is listed with its reason, also if it is not wanted */
    if (io_read_wanted(RELPOS_TEST_DATA "/numpy_odd.npz", wants_x, NULL, &odd, NULL, err) != IO_OK)
        fail_msg("%s", err);
    assert_non_null(strstr(io_find(&odd, "complex")->unsupported, "'<c8'"));
    assert_non_null(strstr(io_find(&odd, "big")->unsupported, "it was not read"));
    io_free(&odd);
    member m[2] = {x, x};
    io_set set;
    (void)state;
    m[1].name = "y.npy";
    m[1].crc = 1;
    bytes zip = make_zip(m, 2, 2);
    FILE *f = fopen(in_dir("wanted.npz"), "wb");
    assert_true(f && fwrite(zip.p, 1, zip.n, f) == zip.n && fclose(f) == 0);
    assert_int_equal(io_read(in_dir("wanted.npz"), &set, NULL, err), IO_DAMAGED);
    if (io_read_wanted(in_dir("wanted.npz"), wants_x, NULL, &set, NULL, err) != IO_OK)
        fail_msg("%s", err);
    assert_int_equal(set.n_arrays, 2);
    assert_non_null(io_take(&set, "x", err));
    assert_null(io_take(&set, "y", err));
    assert_non_null(strstr(err, "it was not read"));
    io_free(&set);
    unlink(in_dir("wanted.npz"));
    free(zip.p);
}

/* Read a file in a child process that has less memory than the file has bytes. Return the status. */
static io_status read_with_little_memory(const char *path, char words[IO_ERR_MAX])
{
    int pipes[2], state;
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
        io_set set;
        limit_memory(SANITIZED ? 1 << 30 : 64);
        const io_status status = io_read(path, &set, NULL, err);
        const bool good = status == IO_OK ? io_find(&set, "x") != NULL : write(pipes[1], err, sizeof err) == sizeof err;
        _exit(good ? -status : 100);
    }
    close(pipes[1]);
    words[0] = 0;
    while (read(pipes[0], words, IO_ERR_MAX) > 0)
        ;
    close(pipes[0]);
    assert_int_equal(waitpid(child, &state, 0), child);
    assert_true(WIFEXITED(state));
    return (io_status)-WEXITSTATUS(state);
}

/* Large holes in a file, after an archive or inside it, are not read. */
static void holes_are_not_read(void **state)
{
    enum { DIRECTORY_AT = 6, END = 22 };
    static const off_t large = (off_t)3 << 30;
    const char *path = in_dir("hole.npz");
    char words[IO_ERR_MAX];
    const bytes zip = make_zip(&x, 1, 1);
    (void)state;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, zip.p, zip.n) == (ssize_t)zip.n);
    assert_int_equal(read_with_little_memory(path, words), IO_OK);
    assert_int_equal(ftruncate(fd, large), 0);
    assert_int_equal(read_with_little_memory(path, words), IO_DAMAGED);
    assert_non_null(strstr(words, "hole.npz: cannot be read as .npz: Not a zip archive"));

    unsigned char *offset = zip.p + zip.n - DIRECTORY_AT; /* the directory is at the end, after the hole */
    uint32_t at;
    memcpy(&at, offset, 4);
    const uint32_t moved = (uint32_t)large;
    memcpy(offset, &moved, 4);
    assert_int_equal(pwrite(fd, zip.p + at, zip.n - at, large), zip.n - at);
    assert_int_equal(read_with_little_memory(path, words), IO_OK);

    io_set set = {0}; /* a file may shrink while it is read */
    assert_int_equal(io_npz_file("file", fd, 0, (size_t)large + 70000, &set, err), IO_FAILED);
    assert_non_null(strstr(err, "file: it became shorter while it was being read"));
    io_free(&set);
    close(fd);
    unlink(path);
    free(zip.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unwanted_members_are_not_read),
        cmocka_unit_test(holes_are_not_read),
        cmocka_unit_test(bad_directories_are_refused),
        cmocka_unit_test(bad_deflation_is_refused),
        cmocka_unit_test(a_bomb_is_refused),
        cmocka_unit_test(data_beyond_the_header_is_refused),
        cmocka_unit_test(names_are_keys_and_never_paths),
        cmocka_unit_test(bad_ends_of_the_directory_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up_member, tear_down_member);
}
