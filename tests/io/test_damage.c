/* test_damage.c -- changes every byte of a file, and lets every allocation fail.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/append.h"
#include "tests/io/files.h"
#include "tests/starve.h"
#include <zip.h>

/* A truncated file is an error. A changed byte in an archive is either detected, or it changes nothing that is read. */
static void damage_is_detected_or_harmless(void **state)
{
    (void)state;
    for (io_format format = IO_NPZ; format <= IO_SAFETENSORS; format++) {
        for (int deflated = 0; deflated <= (format == IO_NPZ); deflated++) {
            const float x[6] = {1, 2, 3, 4, 5, 6};
            io_set set = {0}, back;
            int detected = 0, benign = 0, changed = 0;
            assert_int_equal(io_add(&set, "q", RP_F32, 2, (int64_t[]){2, 3}, (void *)(uintptr_t)x, true), 0);
            assert_int_equal(io_add(&set, "key_mask", RP_U8, 1, (int64_t[]){5}, (void *)(uintptr_t)x, true), 0);
            const char *path = in_dir("damage");
            assert_int_equal(io_write(path, format, &set, err), 0);
            if (deflated) {
                zip_t *zip = zip_open(path, 0, NULL);
                for (zip_uint64_t n = 0; n < 2; n++)
                    assert_int_equal(zip_set_file_compression(zip, n, ZIP_CM_DEFLATE, 9), 0);
                assert_int_equal(zip_close(zip), 0);
            }
            bytes file = load_file(path);
            assert_int_equal(parse(format, file.p, file.n, &back), 0);
            assert_true(same_set(&set, &back));
            io_free(&back);
            const long before = starve_blocks; /* no file that is refused leaves memory */
            for (size_t n = 0; n < file.n; n++) {
                refuse(format, file.p, n, "");
                const unsigned char kept = file.p[n];
                for (int k = 0; k < 10; k++) { /* flip each bit, then all bits, then write a space */
                    file.p[n] = (unsigned char)(k < 8 ? kept ^ 1 << k : k == 8 ? ~kept : ' ');
                    if (file.p[n] == kept)
                        continue;
                    if (parse(format, file.p, file.n, &back) != 0) {
                        detected++;
                        continue;
                    }
                    if (same_set(&set, &back))
                        benign++;
                    else
                        changed++;
                    io_free(&back);
                }
                file.p[n] = kept;
                if (starve_blocks != before)
                    fail_msg("%s: %ld blocks were not freed after damage of byte %zu", suffixes[format],
                             starve_blocks - before, n);
            }
            put(&file, "", 1);
            refuse(format, file.p, file.n, "");
            print_message("%s%s: %zu bytes; single-byte damage: %d detected, %d benign, %d changed\n", suffixes[format],
                          deflated ? " (deflated)" : "", file.n - 1, detected, benign, changed);
            if (format == IO_NPZ)
                assert_int_equal(changed, 0);
            free(file.p);
            io_free(&set);
        }
    }
}

/* Try every value for every byte of the header and for the first data byte. Either reading fails with a reason, or
 * every array that has a type also has all of its data. */
static void every_byte_leaves_arrays_usable_or_refused(void **state)
{
    (void)state;
    static const float data[4] = {1, 2, 3, 4};
    io_set set = {0}, back;
    assert_int_equal(io_add(&set, "a", RP_F32, 2, (int64_t[]){2, 2}, (void *)(uintptr_t)data, true), 0);
    assert_int_equal(io_add(&set, "b", RP_U8, 2, (int64_t[]){0, 9}, NULL, false), 0);
    assert_int_equal(io_add(&set, "c", RP_BF16, 0, NULL, (void *)(uintptr_t)data, true), 0);
    assert_int_equal(io_add_meta(&set, "k", "v"), 0);
    assert_int_equal(io_write(in_dir("bytes.safetensors"), IO_SAFETENSORS, &set, err), 0);
    bytes file = load_file(in_dir("bytes.safetensors"));
    int odd = 0;
    for (size_t at = 0; at < file.n; at++)
        for (int change = 1; change < 256; change++) {
            file.p[at] ^= (unsigned char)change;
            const bool taken = parse(IO_SAFETENSORS, file.p, file.n, &back) == 0;
            file.p[at] ^= (unsigned char)change;
            for (size_t n = 0; taken && n < back.n_arrays; n++) {
                const io_array *a = &back.arrays[n];
                size_t size = rp_dtype_size(a->dtype);
                for (int32_t x = 0; x < a->ndim; x++)
                    size *= (size_t)a->shape[x];
                const bool usable = a->unsupported == NULL && a->bytes == size && (a->data != NULL) == (size > 0);
                const bool unusable =
                    a->unsupported != NULL && a->dtype == IO_NO_DTYPE && a->bytes == 0 && a->data == NULL;
                if (!(io_take(&back, a->name, err) == a ? rp_dtype_size(a->dtype) > 0 && usable : unusable))
                    fail_msg("byte %zu changed by %d: array \"%s\" is neither usable nor unusable", at, change,
                             a->name);
                odd += unusable;
            }
            if (taken)
                io_free(&back);
        }
    assert_true(odd > 100);
    free(file.p);
    io_free(&set);
}

/* Let each allocation fail, alone or with all later ones. Either the file is read completely, or the error is about
 * memory. Lack of memory must not make a file look damaged or truncate a name. */
static void lack_of_memory_is_not_damage(void **state)
{
    (void)state;
    if (!STARVES)
        print_message("allocations: not tested, because sanitizers have their own allocator\n");
    for (io_format format = IO_NPZ; format <= IO_SAFETENSORS; format++) {
        io_set set, back;
        const char *path = in_dir(format == IO_NPZ ? "starved.npz" : "starved.safetensors");
        fill_set(&set, format);
        if (format == IO_SAFETENSORS)
            assert_int_equal(io_add_meta(&set, "a key that is longer than the first buffer", "and its value"), 0);
        assert_int_equal(io_write(path, format, &set, err), 0);
        for (int ever = 0; ever < 2; ever++) {
            long n = 1, count;
            do {
                starve(n, ever);
                const io_status status = io_read(path, &back, NULL, err);
                count = starve_end();
                if (status == IO_OK ? !same_set(&set, &back) : status != IO_FAILED || strstr(err, "memory") == NULL)
                    fail_msg("allocation %ld: status %d: %s", n, (int)status, err);
                if (status == IO_OK)
                    io_free(&back);
            } while (count >= n++);
            assert_true(!STARVES || n > 100); /* includes the allocations of jansson and libzip */
        }
        io_free(&set);
    }
}

static int note_found(void *context, const io_array *array, uint64_t tag, off_t at, char why[IO_ERR_MAX])
{
    (void)array, (void)tag, (void)at, (void)why;
    ++*(int *)context;
    return 0;
}

/* Continue an archive and finish it while one allocation fails. Return true if that succeeded. Otherwise, the error
 * must be about memory. */
static bool continued(long n, bool ever)
{
    static const float numbers[2] = {3, 4};
    const io_array array = {.name = "b",
                            .dtype = RP_F32,
                            .ndim = 1,
                            .shape = (int64_t[]){2},
                            .bytes = 8,
                            .data = (void *)(uintptr_t)numbers,
                            .borrowed = true};
    int found = 0;
    err[0] = 0;
    starve(n, ever);
    io_append *a = io_append_open(in_dir("s.npz.part"), in_dir("s.npz"), "a note", note_found, &found, err);
    bool good = a != NULL && io_append_array(a, &array, 7, err) == 0;
    if (a != NULL && io_append_close(a, good ? in_dir("s.npz") : NULL, good ? err : (char[IO_ERR_MAX]){0}) != 0)
        good = false;
    const long count = starve_end();
    if (!good && strstr(err, "memory") == NULL)
        fail_msg("allocation %ld: %s", n, err);
    if (good)
        assert_int_equal(found, 1);
    return good && count < n;
}

/* As above, for an archive that is continued. No call leaves memory, and the archive can be continued afterwards. */
static void lack_of_memory_leaves_an_archive_usable(void **state)
{
    (void)state;
    for (int ever = 0; ever < 2; ever++) {
        long n = 1, before;
        bool all = false;
        for (; !all; n++) {
            const float x[2] = {1, 2};
            io_set set = {0};
            assert_int_equal(io_add(&set, "a", RP_F32, 1, (int64_t[]){2}, (void *)(uintptr_t)x, true), 0);
            unlink(in_dir("s.npz"));
            unlink(in_dir("s.npz.part"));
            io_append *a = io_append_open(in_dir("s.npz.part"), NULL, "a note", note_found, &(int){0}, err);
            assert_non_null(a);
            assert_int_equal(io_append_array(a, &set.arrays[0], 6, err), 0);
            assert_int_equal(io_append_close(a, in_dir("s.npz"), err), 0);
            io_free(&set);
            before = starve_blocks;
            all = continued(n, ever);
            if (starve_blocks != before)
                fail_msg("allocation %ld: %ld blocks were not freed", n, starve_blocks - before);
        }
        assert_true(!STARVES || n > 10);
        io_set read = {0};
        assert_int_equal(io_read(in_dir("s.npz"), &read, NULL, err), IO_OK);
        io_free(&read);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_detected_or_harmless),
        cmocka_unit_test(every_byte_leaves_arrays_usable_or_refused),
        cmocka_unit_test(lack_of_memory_is_not_damage),
        cmocka_unit_test(lack_of_memory_leaves_an_archive_usable),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
