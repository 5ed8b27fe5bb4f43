/* attend_ranks.c -- relpos attend over the processes that mpirun started. Each reads its rows, keys and values, and
 * sends its rows of the result to rank 0 head by head, which writes them. So only rank 0 needs the folder of the
 * output, and no process needs memory for more than its part and a head.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"
#include "cli/team.h"
#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return cli_error(CLI_FAILED, "attend: out of memory while preparing the arrays (use more processes)");
}

/* Read the rows of this process of q, k or v. Their memory belongs to *made. */
static int read_part(const io_set *in, const char *name, rp_dtype type, io_set *made, rp_array *a)
{
    const io_array *from = io_find(in, name);
    cli_span s[2];
    const int64_t rows = cli_team_rows(from->shape[2], cli_team_rank(), s),
                  shape[4] = {from->shape[0], from->shape[1], rows, from->shape[3]};
    const size_t row = (size_t)shape[3] * rp_dtype_size(type);
    cli_reader r = {in, from, type, from->dtype != type ? malloc((size_t)(rows * shape[3]) * 8 + 1) : NULL};
    char *data = malloc((size_t)(shape[0] * shape[1] * rows) * row + 1);
    int code = CLI_OK;
    if (data == NULL || (from->dtype != type && r.raw == NULL) ||
        io_add(made, name, type, 4, shape, data, false) != 0) {
        free(data);
        code = no_memory();
    }
    for (int w = 0; w < 2 && code == CLI_OK; w++)
        code = cli_read_rows(&r, s[w].from, s[w].to - s[w].from,
                             data + (size_t)(w == 0 ? 0 : s[0].to - s[0].from) * row, rows);
    free(r.raw);
    if (code == CLI_OK)
        *a = rp_array_of(data, type, 4, shape);
    return code;
}

/* Add an array for the rows of this process of an output. */
static int add_part(const rp_desc *d, const char *name, int32_t ndim, io_set *out, rp_array *a)
{
    cli_span s[2];
    const int64_t shape[4] = {d->batch, d->heads, cli_team_rows(d->len_q, cli_team_rank(), s), d->dim_v};
    const int64_t n = shape[0] * shape[1] * shape[2] * (ndim == 4 ? shape[3] : 1);
    void *data = calloc((size_t)n + 1, rp_dtype_size(d->dtype));
    if (data == NULL || io_add(out, name, d->dtype, ndim, shape, data, false) != 0) {
        free(data);
        return no_memory();
    }
    *a = rp_array_of(data, d->dtype, ndim, shape);
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ collecting rows */

/* Return the bytes of a row of an output. */
static size_t row_bytes(const io_array *a)
{
    return (size_t)(a->ndim == 4 ? a->shape[3] : 1) * rp_dtype_size(a->dtype);
}

/* Send the rows of this process when rank 0 asks for those of a head, until it ends the command. The number of a
 * request is the head plus the array times the number of heads. */
static int serve(const io_set *out)
{
    for (;;) {
        cli_team_message m;
        const int code = cli_team_receive(0.1, &m);
        free(m.memory);
        if (code != CLI_OK || m.kind == TEAM_END)
            return code;
        if (m.kind != TEAM_TASK)
            continue;
        const io_array *a = &out->arrays[0];
        const int64_t heads = a->shape[0] * a->shape[1];
        a += m.id / heads;
        const size_t bytes = (size_t)a->shape[2] * row_bytes(a);
        const int sent =
            cli_team_send(0, TEAM_RESULT, m.id, (const char *)a->data + (size_t)(m.id % heads) * bytes, bytes);
        if (sent != CLI_OK)
            return sent;
    }
}

/* Copy rows of a process to a whole head. */
static void place(const char *rows, int32_t rank, int64_t length, size_t row, char *head)
{
    cli_span s[2];
    cli_team_rows(length, rank, s);
    for (int w = 0; w < 2; w++) {
        const size_t bytes = (size_t)(s[w].to - s[w].from) * row;
        memcpy(head + (size_t)s[w].from * row, rows, bytes);
        rows += bytes;
    }
}

/* Collect a head of an output from all processes. */
static int collect(const io_array *own, int64_t number, int64_t head, int64_t length, char *to)
{
    const size_t row = row_bytes(own), bytes = (size_t)own->shape[2] * row;
    int code = CLI_OK;
    for (int32_t k = 1; k < cli_team_ranks() && code == CLI_OK; k++)
        code = cli_team_send(k, TEAM_TASK, number, NULL, 0);
    place((const char *)own->data + (size_t)head * bytes, 0, length, row, to);
    for (int32_t left = cli_team_ranks() - 1; left > 0 && code == CLI_OK;) {
        cli_team_message m;
        if (cli_stop_requested())
            return cli_error(CLI_FAILED, "stopped by a signal (start it again; no file was changed)");
        code = cli_team_receive(0.1, &m);
        if (m.kind == TEAM_RESULT && code == CLI_OK) {
            place(m.data, m.from, length, row, to);
            left--;
        }
        free(m.memory);
    }
    return code;
}

/* List the whole outputs: lse with its data, out without. */
static int list_outputs(const io_set *part, int64_t length, io_set *whole)
{
    const int64_t heads = part->arrays[0].shape[0] * part->arrays[0].shape[1];
    for (size_t n = 0; n < part->n_arrays; n++) {
        const io_array *a = &part->arrays[n];
        const int64_t shape[4] = {a->shape[0], a->shape[1], length, a->ndim == 4 ? a->shape[3] : 1};
        char *data = n > 0 ? malloc((size_t)(heads * length) * row_bytes(a) + 1) : NULL;
        if ((n > 0 && data == NULL) || io_add(whole, a->name, a->dtype, a->ndim, shape, data, false) != 0) {
            free(data);
            return no_memory();
        }
        int code = CLI_OK;
        for (int64_t h = 0; h < heads && n > 0 && code == CLI_OK; h++)
            code = collect(a, (int64_t)n * heads + h, h, length, data + (size_t)(h * length) * row_bytes(a));
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

/* Write the outputs, in rank 0. */
static int write_all(const io_set *part, int64_t length, const char *path, io_format format)
{
    const io_array *a = &part->arrays[0];
    const size_t bytes = (size_t)length * row_bytes(a);
    char err[IO_ERR_MAX], *head = malloc(bytes + 1);
    io_set whole = {0};
    int code = head != NULL ? list_outputs(part, length, &whole) : no_memory();
    io_stream *s = code == CLI_OK ? io_stream_open(path, format, &whole, err) : NULL;
    if (code == CLI_OK && s == NULL)
        code = cli_error(CLI_FAILED, "%s", err);
    for (int64_t h = 0; h < a->shape[0] * a->shape[1] && code == CLI_OK && bytes > 0; h++) {
        code = collect(a, h, h, length, head);
        if (code == CLI_OK && io_stream_put(s, head, bytes, err) != 0)
            code = cli_error(CLI_FAILED, "%s", err);
    }
    if (s != NULL && io_stream_close(s, code == CLI_OK ? 0 : -1, err) != 0 && code == CLI_OK)
        code = cli_error(CLI_FAILED, "%s", err);
    io_free(&whole);
    free(head);
    return code;
}

/* ------------------------------------------------------------------------------------------------ the command */

/* Describe the arrays of the file, to compare them between the processes. */
static void describe(const io_set *in, char *text, size_t size)
{
    size_t n = 0;
    *text = 0;
    for (int x = 0; x < 3 && n < size; x++) {
        const io_array *a = io_find(in, (const char[2]){"qkv"[x], 0});
        n += (size_t)snprintf(text + n, size - n, "%s%c %s %lldx%lldx%lldx%lld", x > 0 ? ", " : "", "qkv"[x],
                              rp_dtype_name(a->dtype), (long long)a -> shape[0], (long long)a -> shape[1],
                              (long long)a -> shape[2], (long long)a -> shape[3]);
    }
}

/* Compute the rows of this process, and convert them to the type of the output. */
static int compute(const cli_problem *p, rp_tensors *t)
{
    struct rp_mpi_plan *plan = NULL;
    cli_progress bar = {.what = "attend"};
    int code = cli_team_plan(p, &plan);
    if (cli_team_rank() == 0) {
        cli_progress_show(&bar, 0);
        t->progress = cli_progress_show;
        t->progress_context = &bar;
    }
    if (code == CLI_OK)
        code = cli_team_attend(p, plan, t);
    if (cli_team_rank() == 0)
        cli_progress_end(&bar);
    cli_team_free_plan(plan);
    return code;
}

int cli_narrow(io_set *out, rp_dtype type)
{
    for (size_t n = 0; n < out->n_arrays; n++) {
        io_array *a = &out->arrays[n];
        const size_t count = a->bytes / rp_dtype_size(a->dtype);
        if (a->dtype == type)
            continue;
        void *data = malloc(count * rp_dtype_size(type) + 1);
        if (!data)
            return cli_error(CLI_FAILED, "%s: out of memory while converting it (close other programs)", a->name);
        rp_convert(data, type, a->data, a->dtype, (int64_t)count);
        free(a->data);
        a->data = data;
        a->dtype = type;
        a->bytes = count * rp_dtype_size(type);
    }
    return CLI_OK;
}

int cli_attend_ranks(const cli_problem *p, const io_set *in, const char *path, io_format format, rp_dtype type,
                     bool lse, rp_tensors *t)
{
    const rp_desc *d = &p->desc;
    io_set made = {0}, part = {0};
    char text[512];
    int code = cli_check_keys(d, io_find(in, "k"), io_find(in, "v"));
    if (code == CLI_OK)
        code = read_part(in, "q", d->dtype, &made, &t->q);
    if (code == CLI_OK)
        code = read_part(in, "k", d->dtype, &made, &t->k);
    if (code == CLI_OK)
        code = read_part(in, "v", d->dtype, &made, &t->v);
    if (code == CLI_OK)
        code = add_part(d, "out", 4, &part, &t->out);
    if (code == CLI_OK && lse)
        code = add_part(d, "lse", 3, &part, &t->lse);
    describe(in, text, sizeof text);
    if (code == CLI_OK)
        code = cli_team_agree(&(cli_team_fact){"arrays", "use the same file on all machines", text}, 1);
    if (code == CLI_OK)
        code = compute(p, t);
    if (code == CLI_OK)
        code = cli_narrow(&part, type);
    if (code == CLI_OK)
        code = cli_team_rank() == 0 ? write_all(&part, d->len_q, path, format) : serve(&part);
    cli_team_settle(code);
    io_free(&made);
    io_free(&part);
    return code;
}
