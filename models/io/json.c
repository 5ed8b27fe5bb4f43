/* json.c -- reads JSON with jansson, and distinguishes invalid text from lack of memory. jansson 2.14 reports both as
 * invalid text.
 *
 * If the buffer of a string cannot grow, jansson drops characters, and may then abort. To prevent this, memory is
 * reserved before parsing. Once an allocation fails, later allocations use this reserve, and the input is cut off
 * before the next string.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/json.h"
#include "io/io.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* State of the parser in this thread. */
static _Thread_local struct {
    const char *text, *end;
    char *aside; /* the reserved memory; NULL while not parsing */
    size_t aside_bytes, aside_taken;
    bool failed; /* an allocation of jansson failed */
} reading;
static _Thread_local bool lost; /* an allocation of jansson failed while not parsing */
/* The allocator of jansson before it was replaced: malloc and free, or functions of the program. */
static json_malloc_t plain_malloc;
static json_free_t plain_free;

static void *allocate(size_t size)
{
    void *memory = reading.failed ? NULL : plain_malloc(size);
    lost |= memory == NULL && size > 0 && reading.aside == NULL;
    if (memory == NULL && size > 0 && reading.aside != NULL) {
        const size_t bytes = (size + 15) / 16 * 16;
        reading.failed = true;
        if (bytes <= reading.aside_bytes - reading.aside_taken) {
            memory = reading.aside + reading.aside_taken;
            reading.aside_taken += bytes;
        }
    }
    return memory;
}

static void release(void *memory)
{
    const uintptr_t at = (uintptr_t)memory, aside = (uintptr_t)reading.aside;
    if (reading.aside == NULL || at < aside || at >= aside + reading.aside_bytes)
        plain_free(memory);
}

static void set_allocator(void)
{
    json_get_alloc_funcs(&plain_malloc, &plain_free);
    json_set_alloc_funcs(allocate, release);
}

void io_json_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocator);
}

bool io_json_lost(void)
{
    const bool was = lost;
    lost = false;
    return was;
}

/* Pass the text to jansson in pieces that end before a quotation mark. After a failed allocation, report the end of the
 * text. So jansson never completes a string from which it dropped characters. */
static size_t next_piece(void *buffer, size_t size, void *context)
{
    const size_t left = (size_t)(reading.end - reading.text);
    (void)context;
    if (reading.failed || left == 0)
        return 0;
    const size_t most = left < size ? left : size;
    const char *quote = memchr(reading.text + 1, '"', most - 1);
    const size_t n = quote != NULL ? (size_t)(quote - reading.text) : most;
    memcpy(buffer, reading.text, n);
    reading.text += n;
    return n;
}

json_t *io_json(const char *text, size_t size, size_t flags, json_error_t *error, bool *no_memory)
{
    io_json_watch();
    *no_memory = false;
    if (size > IO_JSON_MAX) {
        if (error != NULL)
            *error = (json_error_t){.text = "it is larger than 512 MiB"};
        return NULL;
    }
    const size_t aside = 4 * size + 4096; /* enough to double the buffer of the longest string and to copy it */
    char *memory = malloc(aside);
    *no_memory = memory == NULL;
    if (*no_memory)
        return NULL;
    reading.text = text;
    reading.end = text + size;
    reading.aside = memory;
    reading.aside_bytes = aside;
    reading.aside_taken = 0;
    reading.failed = false;
    json_t *json = json_load_callback(next_piece, NULL, flags, error);
    *no_memory = reading.failed;
    if (reading.failed) {
        json_decref(json);
        json = NULL;
    }
    reading.aside = NULL;
    reading.failed = false; /* later allocations may succeed again */
    free(memory);
    return json;
}

/* ------------------------------------------------------------------------------------------------ faults */

void io_json_fault(const char *text, size_t size, const json_error_t *error, char fault[IO_JSON_FAULT])
{
    static const struct {
        char bytes[4];
        unsigned char n;
        const char *fault;
    } begins[] = {
        {"\xef\xbb\xbf", 3, "it begins with a byte order mark (save it as UTF-8 without one)"},
        {"\xff\xfe", 2, "it is text in UTF-16 (save it as UTF-8)"},
        {"\xfe\xff", 2, "it is text in UTF-16 (save it as UTF-8)"},
        {"{\0", 2, "it is text in UTF-16 (save it as UTF-8)"},
        {"\0{", 2, "it is text in UTF-16 (save it as UTF-8)"},
    };
    static const struct {
        const char *error, *advice; /* a part of the message of jansson */
    } faults[] = {
        {"duplicate object key", "the key occurs twice: remove one of them"},
        {"near 'NaN'", "JSON has no NaN or infinity: write a number"},
        {"near 'Infinity'", "JSON has no NaN or infinity: write a number"},
        {"near '-'", "JSON has no NaN or infinity: write a number"}, /* -Infinity */
        {"real number overflow", "write a smaller number"},
        {"too big", "write a smaller number"},
        {"end of file expected", "remove what follows the end"},
        {"end of file", "it is cut off: download the file again"},
        {"premature end of input", "it is cut off: download the file again"},
        {"unable to decode byte", "save it as UTF-8"},
        {"larger than", "give a smaller file"},
        {"", "correct the file there"},
    };
    char safe[160];
    size_t k = 0;
    for (size_t n = 0; n < sizeof begins / sizeof *begins; n++)
        if (size >= begins[n].n && memcmp(text, begins[n].bytes, begins[n].n) == 0) {
            snprintf(fault, IO_JSON_FAULT, "%s", begins[n].fault);
            return;
        }
    while (strstr(error->text, faults[k].error) == NULL)
        k++;
    snprintf(fault, IO_JSON_FAULT, "line %d, column %d: %s (%s)", error->line, error->column,
             io_safe(safe, sizeof safe, error->text), faults[k].advice);
}

/* --------------------------------------------------------------------------------------------- members of an object */

static void skip_blanks(io_members *m)
{
    while (m->at < m->size && m->text[m->at] != 0 && strchr(" \t\n\r", m->text[m->at]) != NULL)
        m->at++;
}

/* Skip one character if it is c. */
static bool step(io_members *m, char c)
{
    const bool there = m->at < m->size && m->text[m->at] == c;
    m->at += there;
    return there;
}

/* Skip a string after its opening quotation mark. */
static bool step_string(io_members *m)
{
    while (m->at < m->size && m->text[m->at] != '"')
        m->at += m->text[m->at] == '\\' && m->at + 1 < m->size ? 2 : 1;
    return step(m, '"');
}

int io_next_member(io_members *m, io_piece *key, io_piece *value)
{
    const bool first = !m->begun;
    m->begun = true;
    skip_blanks(m);
    if (first && !step(m, '{'))
        return -1;
    const bool comma = !first && step(m, ',');
    skip_blanks(m);
    if (!comma && step(m, '}')) {
        skip_blanks(m);
        return m->at == m->size ? 0 : -1;
    }
    key->text = m->text + m->at;
    if ((!first && !comma) || !step(m, '"') || !step_string(m))
        return -1;
    key->size = (size_t)(m->text + m->at - key->text);
    skip_blanks(m);
    if (!step(m, ':'))
        return -1;
    value->text = m->text + m->at;
    for (size_t depth = 0; m->at < m->size;) {
        const char c = m->text[m->at];
        if (depth == 0 && (c == ',' || c == '}')) {
            value->size = (size_t)(m->text + m->at - value->text);
            return 1;
        }
        m->at++;
        depth += c == '{' || c == '[';
        depth -= depth > 0 && (c == '}' || c == ']');
        if (c == '"' && !step_string(m))
            return -1;
    }
    return -1;
}

char *io_json_text(const json_t *root)
{
    const size_t size = json_dumpb(root, NULL, 0, JSON_COMPACT);
    char *text = size > 0 ? malloc(size + 1) : NULL;
    if (text == NULL || json_dumpb(root, text, size, JSON_COMPACT) != size) {
        free(text);
        return NULL;
    }
    text[size] = 0;
    return text;
}
