/* log.c -- relpos lab log: print the log of a run as CSV, or write it as events for TensorBoard.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <stdlib.h>
#include <string.h>

enum { TENSORBOARD = CLI_FIRST_KEY };

static const cli_option options[] = {
    {"tensorboard", TENSORBOARD, "DIR", "write events for TensorBoard to this directory instead of printing CSV"},
    {0},
};

static int on_option(void *context, int key, const char *value)
{
    if (key != TENSORBOARD)
        return -1;
    *(const char **)context = value;
    return CLI_OK;
}

/* Read all lines of a log that have a step; merge lines with the same step. Return NULL with err on failure. */
static json_t *read_log(const char *path, char err[NN_ERR_MAX])
{
    char *text = lab_read(path, err);
    json_t *all = json_array();
    bool no_memory = false;
    for (const char *from = text; from && *from && !no_memory;) {
        const size_t size = strcspn(from, "\n");
        json_t *line = io_json(from, size, 0, NULL, &no_memory);
        json_t *last = json_array_get(all, json_array_size(all) - 1), *step = json_object_get(line, "step");
        if (json_is_integer(step) && last && json_equal(json_object_get(last, "step"), step))
            json_object_update(last, line);
        else if (json_is_integer(step))
            json_array_append(all, line);
        json_decref(line);
        from += size + (from[size] == '\n');
    }
    const bool read = text != NULL;
    free(text);
    no_memory |= io_json_lost();
    if (read && no_memory)
        nn_fail(err, "%.300s: out of memory while reading its lines (close other programs)", path);
    else if (read && json_array_size(all) == 0)
        nn_fail(err, "%.300s: no line has a step (name a log.jsonl of relpos lab train)", path);
    else if (read)
        return all;
    json_decref(all);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------ CSV */

/* Return an object whose keys are all numeric keys of the lines, in order of first appearance. */
static json_t *columns_of(json_t *all)
{
    json_t *columns = json_object(), *line, *value;
    const char *key;
    size_t n;
    json_array_foreach(all, n, line)
    {
        json_object_foreach(line, key, value)
        {
            if (json_is_number(value) && !json_object_get(columns, key))
                json_object_set_new(columns, key, json_null());
        }
    }
    return columns;
}

static void print_table(json_t *all)
{
    json_t *columns = columns_of(all), *line, *none;
    const char *key, *between = "";
    size_t n;
    json_object_foreach(columns, key, none)
    {
        printf("%s%s", between, key);
        between = ",";
    }
    json_array_foreach(all, n, line)
    {
        between = "\n";
        json_object_foreach(columns, key, none)
        {
            const json_t *x = json_object_get(line, key);
            char number[NN_REAL_MAX] = "";
            if (json_is_integer(x))
                snprintf(number, sizeof number, "%lld", (long long)json_integer_value(x));
            else if (json_is_real(x))
                nn_print_real(number, json_real_value(x));
            printf("%s%s", between, number);
            between = ",";
        }
    }
    putchar('\n');
    json_decref(columns);
}

/* ------------------------------------------------------------------------------------------------ TensorBoard */

/* Return the CRC-32C of the bytes, in the masked form that TFRecord uses. */
static uint32_t masked_crc(const unsigned char *bytes, size_t size)
{
    uint32_t crc = 0xffffffffu;
    for (size_t n = 0; n < size; n++) {
        crc ^= bytes[n];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* A protocol buffer message that is being built. No event in this file is longer than MAX_EVENT bytes. */
enum { MAX_EVENT = 512 };
typedef struct message {
    unsigned char bytes[MAX_EVENT];
    size_t size;
} message;

static void add_bytes(message *m, const void *bytes, size_t size)
{
    if (size <= MAX_EVENT - m->size) {
        memcpy(m->bytes + m->size, bytes, size);
        m->size += size;
    }
}

static void add_varint(message *m, uint64_t x)
{
    for (; x >= 128; x >>= 7)
        add_bytes(m, &(unsigned char){(unsigned char)(x | 128)}, 1);
    add_bytes(m, &(unsigned char){(unsigned char)x}, 1);
}

/* Append x as `size` little-endian bytes. */
static void add_fixed(message *m, uint64_t x, int size)
{
    for (int k = 0; k < size; k++, x >>= 8)
        add_bytes(m, &(unsigned char){(unsigned char)x}, 1);
}

static void add_field(message *m, int number, const void *bytes, size_t size)
{
    add_varint(m, (uint64_t)number << 3 | 2);
    add_varint(m, size);
    add_bytes(m, bytes, size);
}

static void add_real(message *m, int number, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_varint(m, (uint64_t)number << 3 | 1);
    add_fixed(m, bits, 8);
}

static void write_record(FILE *to, const message *event)
{
    message head = {.size = 0}, tail = {.size = 0};
    add_fixed(&head, event->size, 8);
    add_fixed(&head, masked_crc(head.bytes, 8), 4);
    add_fixed(&tail, masked_crc(event->bytes, event->size), 4);
    fwrite(head.bytes, 1, head.size, to);
    fwrite(event->bytes, 1, event->size, to);
    fwrite(tail.bytes, 1, tail.size, to);
}

/* Write an event: wall time, step, and a summary with one value. The value's tag is "valid/loss" for valid_loss and
 * "train/loss" for loss. */
static void write_value(FILE *to, double time, int64_t step, const char *key, double x)
{
    const bool valid = strncmp(key, "valid_", strlen("valid_")) == 0;
    const float number = (float)x;
    message event = {.size = 0}, summary = {.size = 0}, value = {.size = 0};
    char tag[96];
    uint32_t bits;
    snprintf(tag, sizeof tag, "%s/%.80s", valid ? "valid" : "train", key + (valid ? strlen("valid_") : 0));
    memcpy(&bits, &number, sizeof bits);
    add_field(&value, 1, tag, strlen(tag));
    add_varint(&value, 2 << 3 | 5);
    add_fixed(&value, bits, 4);
    add_field(&summary, 1, value.bytes, value.size);
    add_real(&event, 1, time);
    add_varint(&event, 2 << 3);
    add_varint(&event, (uint64_t)step);
    add_field(&event, 5, summary.bytes, summary.size);
    write_record(to, &event);
}

static double real_in(json_t *line, const char *key)
{
    return json_number_value(json_object_get(line, key));
}

/* Write all lines as events. The wall time of an event is the training time so far in seconds, computed from the logged
 * speeds. */
static int write_events(json_t *all, const char *dir, char err[NN_ERR_MAX])
{
    static const char version[] = "brain.Event:2";
    char *bytes = NULL, path[NN_TEXT_MAX], why[IO_ERR_MAX];
    size_t size = 0, n;
    double time = 0, before = 0;
    json_t *line, *value;
    const char *key;
    if (strlen(dir) + 40 > NN_TEXT_MAX)
        return nn_fail(err, "--tensorboard: the name has %zu bytes; it must have at most %d (use a shorter one)",
                       strlen(dir), NN_TEXT_MAX - 40);
    if (lab_make_folder(dir, false, err) != 0)
        return -1;
    FILE *to = open_memstream(&bytes, &size);
    if (!to)
        return nn_fail(err, "lab: out of memory while writing the events (close other programs)");
    message first = {.size = 0};
    add_real(&first, 1, 0);
    add_field(&first, 3, version, strlen(version));
    write_record(to, &first);
    json_array_foreach(all, n, line)
    {
        const char *unit = json_object_get(line, "pairs") ? "pairs" : "tokens";
        const double rate = real_in(line, *unit == 'p' ? "pairs_per_s" : "tokens_per_s"), count = real_in(line, unit);
        time += rate > 0 ? (count - before) / rate : 0;
        before = rate > 0 ? count : before;
        json_object_foreach(line, key, value)
        {
            if (json_is_number(value) && strcmp(key, "step") != 0)
                write_value(to, time, json_integer_value(json_object_get(line, "step")), key, json_number_value(value));
        }
    }
    snprintf(path, sizeof path, "%s/events.out.tfevents.0.relpos", dir);
    int code = cli_close_text(to, &bytes) && !io_json_lost()
                   ? 0
                   : nn_fail(err, "lab: out of memory while writing the events (close other programs)");
    if (code == 0 && io_write_bytes(path, bytes, size, why) != 0)
        code = nn_fail(err, "%.400s", why);
    free(bytes);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    const char *events = NULL, *path;
    char err[NN_ERR_MAX], why[IO_ERR_MAX], file[NN_TEXT_MAX];
    int n, code = cli_options(self, argc, argv, on_option, &events, &path, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(CLI_USAGE, "lab log: no run was given (write relpos lab log out/run)");
    bool folder;
    if (io_is_folder(path, &folder, why) != IO_OK)
        return cli_error(CLI_FAILED, "%s", why);
    snprintf(file, sizeof file, "%.900s%s", path, folder ? "/log.jsonl" : "");
    json_t *all = read_log(file, err);
    if (all && !events)
        print_table(all);
    if (!all || (events && write_events(all, events, err) != 0))
        code = cli_error(CLI_FAILED, "%s", err);
    else
        code = CLI_OK;
    json_decref(all);
    return code;
}

const cli_command lab_log = {
    .name = "lab log",
    .summary = "print the log of a run as CSV, or write it for TensorBoard",
    .usage = "DIR|FILE [options]",
    .example = "  relpos lab log out/run >out/run.csv\n"
               "  relpos lab log out/run --tensorboard out/events/run\n",
    .options = options,
    .run = run,
};
