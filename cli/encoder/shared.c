/* shared.c -- opening an encoder, and computing numbers for the texts of a file, for all commands that run encoders.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/encoder/encoder.h"
#include "cli/t5/t5.h"
#include "cli/team.h"
#include <stdlib.h>
#include <string.h>

/* A task has at most this many texts and, unless one text is longer, bytes: some thousand tokens. In a team tasks are
 * smaller, so that all processes end at the same time. */
enum { TASK_TEXTS = 512, TASK_BYTES = 65536, TEAM_BYTES = 8192, TASKS = 3 };

int cli_encoder_option(cli_encoder *e, int key, const char *value)
{
    static const char *const types[] = {"f32", "f16", "bf16", "q8", "int8"};
    char safe[64];
    switch (key) {
    case ENCODER_TYPE:
        for (int k = 0; k < 5; k++)
            if (strcmp(value, types[k]) == 0) {
                e->type = types[k];
                return CLI_OK;
            }
        return cli_error(CLI_USAGE, "--type: the type \"%s\" is unknown (use f32, f16, bf16, q8 or int8)",
                         io_safe(safe, sizeof safe, value));
    case ENCODER_THREADS: return cli_integer("--threads", value, 1, 4096, &e->threads);
    case ENCODER_COLUMN: e->in.column = value; return CLI_OK;
    case ENCODER_PAIR: e->in.pair = value; return CLI_OK;
    case ENCODER_TEXT: e->text = value; return CLI_OK;
    default: return -1;
    }
}

bool cli_is_t5(const char *path)
{
    rp_t5 *model = NULL;
    rp_t5_opening o = rp_t5_opening_init();
    o.load = RP_T5_LOAD_TEXT;
    o.no_tokenizer = 1;
    const bool opened = rp_t5_open(&model, path, &o) == RP_OK;
    rp_t5_close(model);
    return opened;
}

int cli_encoder_refused(const cli_encoder *e)
{
    if (cli_stop_requested())
        return cli_error(CLI_FAILED, "%s: stopped by a signal (start it again)", e->command);
    return cli_error(CLI_FAILED, "%s: %s", e->command, rp_encoder_last_error());
}

/* ------------------------------------------------------------------------------------------------ opening */

static int open_model(cli_encoder *e, const char *path)
{
    rp_encoder_opening o = rp_encoder_opening_init();
    e->threads = e->threads > 0 ? e->threads : cli_team_threads();
    if (e->threads > 0 && rp_pool_create(&e->pool, (int32_t)e->threads) != RP_OK)
        return cli_refused(CLI_FAILED, e->command, NULL, "fewer --threads");
    o.type = e->type;
    o.pool = e->pool;
    if (rp_encoder_open(&e->model, path, &o) != RP_OK)
        return cli_error(CLI_FAILED, "%s", rp_encoder_last_error());
    for (int64_t n = 0; cli_team_rank() == 0 && rp_encoder_note(e->model, n) != NULL; n++)
        fprintf(stderr, "relpos: note: %s\n", rp_encoder_note(e->model, n));
    cli_catch_signals(true);
    e->catches = true;
    return CLI_OK;
}

int cli_encoder_keep(const cli_encoder *e, const char *output)
{
    char safe[160];
    if (output == NULL || strcmp(output, "-") == 0 || !rp_encoder_reads(e->model, output))
        return CLI_OK;
    return cli_error(CLI_FAILED, "%s: the model was read from this file (give another name for the output)",
                     io_safe(safe, sizeof safe, output));
}

int cli_encoder_agree(const cli_encoder *e)
{
    char text[256];
    const rp_encoder_info *i = rp_encoder_about(e->model);
    if (cli_team_ranks() == 1)
        return CLI_OK;
    snprintf(text, sizeof text, "%s, %lld weights, %lld bytes as %s", i->kind, (long long)i->parameters,
             (long long)i->bytes, i->type);
    return cli_team_agree(&(cli_team_fact){"model", "use the same file on all machines", text}, 1);
}

int cli_encoder_open(cli_encoder *e, const char *model, const char *output)
{
    int code = output != NULL ? cli_check_output("-o", output) : CLI_OK;
    if (code == CLI_OK)
        code = open_model(e, model);
    return code == CLI_OK ? cli_encoder_keep(e, output) : code;
}

int cli_encoder_begin(cli_encoder *e, const char *model, const char *records, const char *output)
{
    int code = cli_team_rank() == 0 ? cli_records_open(&e->in, records, e->text) : CLI_OK;
    if (code == CLI_OK)
        code = cli_encoder_open(e, model, output);
    return code == CLI_OK ? cli_encoder_agree(e) : code;
}

void cli_encoder_close(cli_encoder *e)
{
    rp_encoder_close(e->model);
    rp_pool_destroy(e->pool);
    if (e->catches)
        cli_catch_signals(false);
}

int cli_encoder_end(cli_encoder *e, int code)
{
    cli_progress_end(&e->progress);
    cli_team_settle(code);
    cli_records_close(&e->in);
    cli_encoder_close(e);
    return code;
}

/* ------------------------------------------------------------------------------------------------ tasks */

/* Texts that are computed together: their sizes (-1: no pair), then all texts. */
typedef struct task {
    int64_t first; /* number of the first text in the file, from 1 */
    int64_t n;
    int64_t bytes[][2];
} task;

/* Return the texts of a task, from malloc; NULL if out of memory. */
static rp_encoder_text *texts_of(const task *t)
{
    const char *at = (const char *)(t->bytes + t->n);
    rp_encoder_text *texts = malloc(((size_t)t->n + 1) * sizeof *texts);
    for (int64_t k = 0; texts != NULL && k < t->n; k++) {
        const int64_t bytes = t->bytes[k][0], pair = t->bytes[k][1];
        texts[k] = (rp_encoder_text){at, bytes, pair >= 0 ? at + bytes : NULL, pair >= 0 ? pair : 0};
        at += bytes + (pair >= 0 ? pair : 0);
    }
    return texts;
}

static int no_memory(const cli_encoder *e)
{
    return cli_error(CLI_FAILED, "%s: out of memory (give shorter texts)", e->command);
}

/* Read the texts of a task: their sizes and their bytes. */
static int read_texts(cli_encoder *e, int64_t (*sizes)[2], int64_t *n, char **text, size_t *bytes)
{
    const size_t most = cli_team_ranks() > 1 ? TEAM_BYTES : TASK_BYTES;
    cli_record record;
    while (*n < TASK_TEXTS && *bytes < most) {
        const int code = cli_records_next(&e->in, &record);
        e->ends = code != CLI_OK || record.text == NULL;
        if (e->ends)
            return code;
        const size_t pair = record.pair != NULL ? (size_t)record.pair_bytes : 0;
        char *more = realloc(*text, *bytes + (size_t)record.bytes + pair + 1);
        if (more == NULL)
            return no_memory(e);
        *text = more;
        memcpy(more + *bytes, record.text, (size_t)record.bytes);
        if (pair > 0)
            memcpy(more + *bytes + record.bytes, record.pair, pair);
        *bytes += (size_t)record.bytes + pair;
        sizes[*n][0] = record.bytes;
        sizes[(*n)++][1] = record.pair != NULL ? record.pair_bytes : -1;
    }
    return CLI_OK;
}

static int next_task(void *context, cli_task *made)
{
    cli_encoder *e = context;
    int64_t sizes[TASK_TEXTS][2], n = 0;
    char *text = NULL;
    size_t bytes = 0;
    int code = e->ends ? CLI_OK : read_texts(e, sizes, &n, &text, &bytes);
    task *t = code == CLI_OK && n > 0 ? malloc(sizeof *t + (size_t)n * sizeof *sizes + bytes) : NULL;
    if (t != NULL) {
        t->first = e->read + 1;
        t->n = n;
        e->read += n;
        memcpy(t->bytes, sizes, (size_t)n * sizeof *sizes);
        if (bytes > 0)
            memcpy(t->bytes + n, text, bytes);
        *made = (cli_task){
            .data = t, .size = sizeof *t + (size_t)n * sizeof *sizes + bytes, .cost = (double)bytes + 16 * (double)n};
    } else if (code == CLI_OK && n > 0)
        code = no_memory(e);
    free(text);
    return code;
}

static int stop_asked(void *context, double fraction)
{
    (void)context;
    (void)fraction;
    return cli_stop_requested();
}

/* Print rp_encoder_last_error. If it is about texts[k], name the number of this text in the file. */
static int task_refused(const cli_encoder *e, const task *t)
{
    const char *text = rp_encoder_last_error();
    long long k;
    int end = 0;
    if (cli_stop_requested() || sscanf(text, "texts[%lld]%n", &k, &end) != 1 || end == 0)
        return cli_encoder_refused(e);
    return cli_error(CLI_FAILED, "%s: text %lld%s", e->command, (long long)t->first + k, text + end);
}

static int compute_task(void *context, const void *data, size_t data_size, void **result, size_t *size)
{
    const cli_encoder *e = context;
    const task *t = data;
    rp_encoder_text *texts = texts_of(t);
    (void)data_size;
    *size = (size_t)(t->n * e->width) * sizeof(float);
    *result = malloc(*size + 1);
    int code = texts != NULL && *result != NULL ? CLI_OK : no_memory(e);
    const rp_status status = code == CLI_OK ? e->compute(e, t->n, texts, *result, stop_asked, NULL) : RP_OK;
    if (status != RP_OK)
        code = status == RP_E_NOMEM ? no_memory(e) : task_refused(e, t);
    free(texts);
    return code;
}

static int take_task(void *context, const cli_task *made, void *result, size_t size)
{
    cli_encoder *e = context;
    const task *t = made->data;
    rp_encoder_text *texts = texts_of(t);
    int code = texts != NULL ? CLI_OK : no_memory(e);
    (void)size;
    for (int64_t k = 0; k < t->n && code == CLI_OK; k++)
        code = e->take(e, &texts[k], (const float *)result + k * e->width);
    free(texts);
    cli_show_lines(&e->progress, &e->in.lines, stdout);
    return code;
}

/* Read the texts whose numbers are known. */
static int pass_known(cli_encoder *e)
{
    cli_record record;
    int code = CLI_OK;
    for (int64_t k = 0; k < e->known && code == CLI_OK; k++) {
        code = cli_records_next(&e->in, &record);
        if (code == CLI_OK && record.text == NULL)
            return cli_error(CLI_FAILED,
                             "%s: there are only %lld texts, but the numbers of %lld are known from an earlier run "
                             "(give the same texts to continue, or write to another file)",
                             e->command, (long long)k, (long long)e->known);
        if (code == CLI_OK)
            code = e->take(e, &(rp_encoder_text){record.text, record.bytes, record.pair, record.pair_bytes}, NULL);
    }
    e->read = e->known;
    e->in.lines.begin = e->in.lines.read;
    return code;
}

int cli_encoder_run(cli_encoder *e)
{
    const cli_farm farm = {e, next_task, compute_task, take_task, TASKS};
    const int code = cli_team_rank() == 0 ? pass_known(e) : CLI_OK;
    return code == CLI_OK ? cli_farm_run(&farm) : code;
}
