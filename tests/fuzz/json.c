/* json.c -- reads the input as JSON, at once and member by member. What is printed must read as the same JSON, and the
 * parts of an object must be JSON.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/json.h"
#include "io/formats.h"
#include "tests/fuzz/fuzz.h"

static void print(const json_t *root)
{
    json_error_t error;
    bool no_memory;
    char *text = io_json_text(root);
    PROMISE(text != NULL && io_utf8_all(text, strlen(text)), "JSON that is read cannot be printed");
    json_t *again = io_json(text, strlen(text), JSON_DECODE_ANY | JSON_ALLOW_NUL, &error, &no_memory);
    PROMISE(again != NULL, "printed, but refused: %s: %s", error.text, text);
    char *second = io_json_text(again);
    PROMISE(second != NULL && strcmp(text, second) == 0, "printed as %s, and then as %s", text, second);
    json_decref(again);
    free(text);
    free(second);
}

/* Read the members of an object one by one. Return their number; -1 if it is none. */
static int64_t members(const char *text, size_t size)
{
    io_members m = {.text = text, .size = size};
    io_piece key, value;
    int64_t n = 0;
    int got;
    while ((got = io_next_member(&m, &key, &value)) == 1) {
        PROMISE(key.text > text && key.text + key.size <= value.text && value.text + value.size <= text + size,
                "a member outside of the text");
        PROMISE(m.at <= size && key.size >= 2, "a key without quotation marks");
        n++;
    }
    PROMISE(m.at <= size, "the position is outside of the text");
    return got == 0 ? n : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_error_t error;
    bool no_memory;
    char fault[IO_JSON_FAULT];
    const char *text = (const char *)data;
    const int64_t n = members(text, size);
    json_t *root = io_json(text, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error, &no_memory);
    if (root == NULL) {
        PROMISE(!no_memory, "out of memory");
        io_json_fault(text, size, &error, fault);
        refusal_is_a_line(fault, sizeof fault);
    } else {
        fuzz_valid++;
        PROMISE(json_is_object(root) == (n >= 0) && (n < 0 || (size_t)n >= json_object_size(root)),
                "%lld members, or an object of %zu", (long long)n, json_object_size(root));
        if (json_is_object(root) || json_is_array(root)) /* io_json_text prints no other value */
            print(root);
    }
    json_decref(root);
    return 0;
}
