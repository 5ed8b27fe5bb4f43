/* test_packed.c -- names of tensors, and metadata of packed files, for a model other than T5 (models/checkpoint/names.h
 * and packed.h). tests/t5 and tests/cli test the same for T5.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/error.h"
#include "checkpoint/names.h"
#include "checkpoint/packed.h"
#include "tests/io/files.h"
#include <sys/mman.h>

static const char *const prefixes[] = {"module.", "fish."};
static const model_naming naming = {.prefixes = prefixes, .n_prefixes = 2, .tensor = "head.weight", .kind = "fish"};

/* Open a file with tensors of these names, separated by spaces. */
static io_checkpoint *open_names(const char *names)
{
    char text[256], *next = text;
    io_set set = {0};
    io_checkpoint *file;
    float x[2] = {1, 2};
    snprintf(text, sizeof text, "%s", names);
    for (char *name; (name = strsep(&next, " ")) != NULL;)
        assert_int_equal(io_add(&set, name, RP_F32, 1, (int64_t[]){2}, x, true), 0);
    assert_int_equal(io_write(in_dir("m.safetensors"), IO_SAFETENSORS, &set, err), 0);
    io_free(&set);
    assert_int_equal(io_checkpoint_open(&file, in_dir("m.safetensors"), err), 0);
    return file;
}

static void shared_prefixes_are_removed(void **state)
{
    (void)state;
    model_notes notes = {0};
    io_checkpoint *file = open_names("module.fish.a module.fish.head.weight");
    assert_int_equal(model_strip_prefixes(file, &naming, &notes, "m"), RP_OK);
    assert_non_null(io_checkpoint_find(file, "a"));
    assert_non_null(io_checkpoint_find(file, "head.weight"));
    assert_string_equal(model_note(&notes, 0), "m: the prefix module.fish. was removed from the names of the tensors");
    assert_null(model_note(&notes, 1));
    assert_int_equal(model_check_names(file, &naming, "m"), RP_OK);
    io_checkpoint_close(file);
    file = open_names("module.a head.weight");
    assert_int_equal(model_strip_prefixes(file, &naming, &notes, "m"), RP_OK);
    assert_null(model_note(&notes, 1));
    io_checkpoint_close(file);
    model_notes_free(&notes);
}

static void other_names_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *names, *message;
    } cases[] = {
        {"module.a b head.weight",
         "m: the names of its tensors do not begin with module., except 'module.a' (rename it, or remove it from the "
         "file)"},
        {"fish.a fish.b head.weight",
         "m: the names of its tensors begin with fish., except 'head.weight' (rename it, or remove it from the file)"},
        {"tank.a tank.head.weight", "m: the names of its tensors begin with tank. (save the fish in this model with "
                                    "save_pretrained, or remove the "
                                    "prefix from all names)"},
        {"a.lora_A.weight", "m: it is an adapter of PEFT, not a whole model (load it with peft, call merge_and_unload "
                            "and then save_pretrained, and give that folder)"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        io_checkpoint *file = open_names(cases[n].names);
        assert_int_equal(model_check_names(file, &naming, "m"), RP_E_UNSUPPORTED);
        assert_string_equal(model_error(), cases[n].message);
        io_checkpoint_close(file);
    }
}

static const char *const keys[] = {"extra"};
static const model_packed kind = {.format = "fish 1", .keys = keys, .n_keys = 1};

/* Write a packed file whose metadata "extra" and "checksum" are given; checksum = NULL: the right one. */
static io_checkpoint *open_packed(const model_origin *o, const char *extra, const char *checksum)
{
    io_set set = {0};
    io_checkpoint *file;
    unsigned char x[2] = {1, 2};
    assert_int_equal(io_add(&set, "a", RP_U8, 1, (int64_t[]){2}, x, true), 0);
    assert_int_equal(model_describe_packed(&set, &kind, LINEAR_INT8, "{}", 3), RP_OK);
    assert_int_equal(io_add_meta(&set, "extra", extra), 0);
    assert_int_equal(model_describe_origin(o, NULL, &set), RP_OK);
    if (checksum == NULL)
        assert_int_equal(model_write_packed(&set, &kind, in_dir("packed")), RP_OK);
    else {
        assert_int_equal(io_add_meta(&set, "checksum", checksum), 0);
        assert_int_equal(io_write(in_dir("packed"), IO_SAFETENSORS, &set, err), 0);
    }
    io_free(&set);
    assert_int_equal(io_checkpoint_open(&file, in_dir("packed"), err), 0);
    return file;
}

/* A file without a name keeps its path, and a path that does not exist is refused. */
static void origins_exist(void **state)
{
    (void)state;
    model_origin of = {0};
    char wanted[600];
    assert_int_equal(model_note_origin(&of, in_dir("nowhere")), RP_E_ARG);
    snprintf(wanted, sizeof wanted, "%s: cannot be read: No such file or directory (check the path)",
             in_dir("nowhere"));
    assert_string_equal(model_error(), wanted);
    const int fd = memfd_create("fish", 0);
    assert_true(fd >= 0);
    snprintf(wanted, sizeof wanted, "/proc/self/fd/%d", fd);
    assert_int_equal(model_note_origin(&of, wanted), RP_OK);
    assert_string_equal(of.folder, wanted);
    assert_string_equal(of.name, strrchr(wanted, '/') + 1);
    model_origin_free(&of);
    close(fd);
}

static void packed_files_have_checksums_and_origins(void **state)
{
    (void)state;
    model_origin from = {0}, copied = {0};
    char sum[MODEL_CHECKSUM], again[MODEL_CHECKSUM], kept[MODEL_CHECKSUM];
    io_checkpoint_close(open_names("a b"));
    assert_int_equal(model_note_origin(&from, in_dir("m.safetensors")), RP_OK);
    assert_string_equal(from.name, "m.safetensors");
    assert_int_equal(model_origin_checksum(&from, NULL, sum), RP_OK);
    io_checkpoint *file = open_packed(&from, "yes", NULL);
    assert_string_equal(io_checkpoint_meta(file, "format"), "fish 1");
    assert_string_equal(io_checkpoint_meta(file, "not_finite"), "3");
    snprintf(kept, sizeof kept, "%s", io_checkpoint_meta(file, "checksum"));
    assert_int_equal(model_check_packed(file, "p", LINEAR_INT8, true), RP_OK);
    assert_int_equal(model_check_packed(file, "p", LINEAR_F32, true), RP_E_ARG);
    assert_string_equal(model_error(), "p: its weights are int8 and not f32 (pack the folder again)");
    assert_int_equal(model_check_checksum(file, &kind, NULL, NULL), RP_OK);
    assert_int_equal(model_copy_origin(&copied, file), RP_OK);
    assert_string_equal(copied.name, "m.safetensors");
    assert_null(copied.folder);
    assert_int_equal(model_origin_checksum(&copied, file, again), RP_OK);
    assert_string_equal(sum, again);
    io_checkpoint_close(file);
    file = open_packed(&from, "no", kept); /* the checksum covers the keys of this kind */
    assert_int_equal(model_check_checksum(file, &kind, NULL, NULL), RP_E_ARG);
    assert_non_null(strstr(model_error(), kept));
    io_checkpoint_close(file);
    model_origin_free(&from);
    model_origin_free(&copied);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_prefixes_are_removed),
        cmocka_unit_test(other_names_are_refused),
        cmocka_unit_test(origins_exist),
        cmocka_unit_test(packed_files_have_checksums_and_origins),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
