/* json_members.c -- reads members of the objects in a tokenizer.json, and reports errors with the name of the file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "tokenizer/read_json.h"

#include <stdarg.h>
#include <stdio.h>

tok_status tok_reader_fail(const tok_reader *r, tok_status status, const char *format, ...)
{
    char line[TOK_ERR_MAX];
    const int n = snprintf(line, sizeof(line), "%s: ", r->name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + n, sizeof(line) - (size_t)n, format, arguments);
    va_end(arguments);
    io_safe(r->err, TOK_ERR_MAX, line); /* messages of jansson quote bytes of the file */
    return status;
}

tok_status tok_reader_memory(const tok_reader *r)
{
    return tok_reader_fail(r, TOK_FAILED, "out of memory");
}

tok_status tok_json_string(const tok_reader *r, const json_t *object, const char *where, const char *key,
                           const char **text, int64_t *size)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return tok_reader_fail(r, TOK_DAMAGED, "%s has no text \"%s\"", where, key);
    *text = json_string_value(value);
    *size = (int64_t)json_string_length(value);
    return TOK_OK;
}

tok_status tok_json_bool(const tok_reader *r, const json_t *object, const char *where, const char *key, bool *to)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL || json_is_null(value))
        return TOK_OK;
    if (!json_is_boolean(value))
        return tok_reader_fail(r, TOK_DAMAGED, "%s has a \"%s\" that is not true or false", where, key);
    *to = json_is_true(value);
    return TOK_OK;
}

tok_status tok_json_type(const tok_reader *r, const json_t *object, const char *where, const char **type)
{
    int64_t size;
    return tok_json_string(r, object, where, "type", type, &size);
}
