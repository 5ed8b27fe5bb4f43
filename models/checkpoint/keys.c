/* keys.c -- see keys.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/keys.h"
#include "checkpoint/error.h"
#include "io/io.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rp_status model_parse_json(json_t **root, const char *path, const char *text, size_t size, size_t flags)
{
    json_error_t error;
    bool no_memory;
    char fault[IO_JSON_FAULT];
    *root = io_json(text, size, JSON_REJECT_DUPLICATES | flags, &error, &no_memory);
    if (no_memory)
        return model_no_memory();
    if (*root != NULL)
        return RP_OK;
    io_json_fault(text, size, &error, fault);
    return model_fail(RP_E_ARG, "%s: %s", path, fault);
}

rp_status model_parse_object(json_t **root, const char *path, const char *text, size_t size, size_t flags)
{
    const rp_status status = model_parse_json(root, path, text, size, flags);
    if (status != RP_OK || json_is_object(*root))
        return status;
    json_decref(*root);
    *root = NULL;
    return model_fail(RP_E_ARG, "%s: it is not a JSON object (it must begin with {)", path);
}

/* Return the next word of a list separated by spaces, and advance *list past it; NULL at the end. */
static const char *next_word(const char **list, size_t *size)
{
    const char *word = *list + strspn(*list, " ");
    *size = strcspn(word, " ");
    *list = word + *size;
    return *size > 0 ? word : NULL;
}

static const model_key_row *find_key_row(const model_keys *k, int file, const char *key)
{
    size_t size;
    for (int n = 0; n < k->n; n++)
        if (k->rows[n].file == file)
            for (const char *list = k->rows[n].keys, *word; (word = next_word(&list, &size)) != NULL;)
                if (strlen(key) == size && strncmp(key, word, size) == 0)
                    return &k->rows[n];
    return NULL;
}

/* Compare two values of JSON; 1 and 1.0 are equal. */
static bool is_equal(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b) != 0;
}

/* Set *allowed to true if a row allows the value. */
static rp_status allows(const model_key_row *r, const json_t *value, bool *allowed)
{
    size_t size;
    json_error_t error;
    bool no_memory;
    *allowed = r->values == NULL || json_is_null(value);
    for (const char *list = r->values, *word; !*allowed && (word = next_word(&list, &size)) != NULL;) {
        json_t *one = io_json(word, size, JSON_DECODE_ANY, &error, &no_memory);
        if (one == NULL)
            return model_no_memory();
        *allowed = is_equal(one, value);
        json_decref(one);
    }
    return RP_OK;
}

/* Describe a value for a message. */
static const char *describe(const json_t *value, char text[64])
{
    char safe[48];
    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    if (json_is_object(value))
        return "an object";
    if (json_is_array(value))
        return "a list";
    if (json_is_string(value))
        snprintf(text, 64, "\"%s\"", io_safe(safe, sizeof safe, json_string_value(value)));
    else
        snprintf(text, 64, "%g", json_number_value(value));
    return text;
}

static rp_status refuse(const model_keys *keys, const model_key_row *r, const char *path, const char *key,
                        const json_t *value)
{
    char given[64], advice[160];
    if (keys->advice != NULL)
        snprintf(advice, sizeof advice, "%s", keys->advice);
    else if (r->values[0] == 0)
        snprintf(advice, sizeof advice, "use a model without this key");
    else
        snprintf(advice, sizeof advice, "use a model where it is %.*s", (int)strcspn(r->values, " "), r->values);
    return model_fail(RP_E_UNSUPPORTED, "%s: \"%s\" is %s, which is not supported: %s (%s)", path, key,
                      describe(value, given), r->text, advice);
}

/* The keys of a file that the table lacks, as text for a note. */
typedef struct unknown {
    char names[320];
    size_t size;
    int64_t n, left_out;
} unknown;

static void add_unknown(unknown *u, const char *key)
{
    char safe[64], name[80];
    const int size = snprintf(name, sizeof name, "%s\"%s\"", u->n > 0 ? ", " : "", io_safe(safe, sizeof safe, key));
    if (u->size + (size_t)size < sizeof u->names) {
        memcpy(u->names + u->size, name, (size_t)size + 1);
        u->size += (size_t)size;
    } else
        u->left_out++;
    u->n++;
}

/* Add a note, unless there is an equal one: several objects of a file may have the same unknown key. */
static rp_status note_unknown(model_notes *notes, const char *path, const unknown *u)
{
    char more[48] = "", text[768], safe[480];
    if (u->n == 0)
        return RP_OK;
    if (u->left_out > 0)
        snprintf(more, sizeof more, " and %lld more", (long long)u->left_out);
    const size_t size = strlen(path),
                 shown = size < 400 ? size : 400; /* the end of a path tells more than its beginning */
    snprintf(text, sizeof text, "%s%s: ignored the unknown key%s %s%s", shown < size ? "..." : "",
             io_safe(safe, sizeof safe, path + size - shown), u->n > 1 ? "s" : "", u->names, more);
    for (int64_t n = 0; n < notes->n; n++)
        if (strcmp(notes->text[n], text) == 0)
            return RP_OK;
    return model_add_note(notes, "%s", text);
}

rp_status model_check_keys(model_notes *notes, const model_keys *keys, const char *path, const json_t *root,
                           const char **refused)
{
    unknown u = {.size = 0};
    rp_status status = RP_OK;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        const model_key_row *r = find_key_row(keys, keys->file, key);
        bool allowed = true;
        if (r == NULL && find_key_row(keys, keys->also, key) == NULL)
            add_unknown(&u, key);
        if (status == RP_OK && r != NULL)
            status = allows(r, value, &allowed);
        if (status != RP_OK || allowed)
            continue;
        if (refused == NULL)
            status = refuse(keys, r, path, key, value);
        else if (*refused == NULL)
            *refused = key;
    }
    return status == RP_OK && notes != NULL ? note_unknown(notes, path, &u) : status;
}
