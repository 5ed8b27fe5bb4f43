/* protein_batches.c -- reads windows of proteins, and computes each window from the longest protein to the shortest, in
 * batches of a bounded number of tokens, in one process or several. The bits of a protein do not depend on its batch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/proteins.h"
#include <stdlib.h>
#include <string.h>

/* A protein of the window. */
typedef struct item {
    size_t name;   /* index in the table of names */
    size_t header; /* offsets in window.text: the header, with --3di, and the residues */
    size_t residues;
    int64_t n;
    uint64_t tag;
    bool copy; /* it has the residues of the item before it in the order, and gets the result of that item */
} item;

/* Proteins that were read together. It is freed when the results of all of them have been taken. */
typedef struct window {
    struct window *next;
    char *text;
    size_t size, capacity;
    item *items;
    size_t n, room;
    item **order; /* [n] the items, the longest first; items with equal residues follow each other */
    size_t given, taken;
} window;

/* The computation in progress: batches are made from the last window, and their results belong to the first. */
typedef struct protein_batches {
    protein_job *job;
    window *first, *last;
    int64_t tokens_given;
    bool end; /* of the file */
} protein_batches;

/* A batch that is being computed. */
typedef struct batch {
    const protein_job *job;
    rp_t5_protein *proteins; /* [n] */
    int64_t n;
    double cost;
    int64_t residues;
} batch;

double protein_cost(const protein_facts *f, int64_t n)
{
    const double x = (double)n + 2;
    return x * f->token_cost + x * x * f->pair_cost;
}

static int no_memory(const protein_job *j)
{
    return cli_error(CLI_FAILED, "%s: out of memory for the proteins (close other programs, or give fewer)",
                     j->kind->command);
}

/* Report why a call of the model failed. The command allocates in some of these calls too, without an error text. */
static int call_failed(const protein_job *j, rp_status status)
{
    return status == RP_E_NOMEM ? no_memory(j) : j->kind->refused(j);
}

/* ------------------------------------------------------------------------------------------------ reading */

/* Append a text to the window. Return its offset, or SIZE_MAX if out of memory. */
static size_t keep(window *w, const char *text, size_t length)
{
    if (w->size + length + 1 > w->capacity) {
        const size_t capacity = w->size + length + 1 + w->capacity / 2;
        char *more = realloc(w->text, capacity);
        if (more == NULL)
            return SIZE_MAX;
        w->text = more;
        w->capacity = capacity;
    }
    const size_t at = w->size;
    memcpy(w->text + at, text, length);
    w->text[at + length] = 0;
    w->size += length + 1;
    return at;
}

static bool add_item(window *w, const item *added)
{
    item *items = io_grow(w->items, &w->room, w->n, sizeof *items);
    if (items == NULL)
        return false;
    w->items = items;
    w->items[w->n++] = *added;
    return true;
}

/* Add a record to the window, unless the output has it already. */
static int add_record(protein_job *j, window *w, const rp_t5_record *r)
{
    char safe[160];
    const size_t index = protein_names_add(&j->names, r->header);
    if (index == SIZE_MAX)
        return no_memory(j);
    protein_name *name = &j->names.names[index];
    item added = {.name = index, .n = r->n, .tag = io_checksum(1, r->residues, (size_t)r->n)};
    if (name->read)
        return protein_twice(j, r, index);
    name->read = true;
    name->line = r->line;
    if (name->stored && name->tag != added.tag)
        return cli_error(CLI_FAILED,
                         "%s: line %lld: the output already has a protein %s, with other residues (use another "
                         "output, or rename one)",
                         io_safe(safe, 80, j->fasta), (long long)r->line,
                         io_safe(safe + 80, 80, protein_key(&j->names, index)));
    if (name->stored) {
        j->n_stored++;
        return CLI_OK;
    }
    if (j->letters != NULL && (added.header = keep(w, r->header, strlen(r->header))) == SIZE_MAX)
        return no_memory(j);
    added.residues = keep(w, r->residues, (size_t)r->n);
    return added.residues != SIZE_MAX && add_item(w, &added) ? CLI_OK : no_memory(j);
}

static void free_window(window *w)
{
    if (w == NULL)
        return;
    free(w->text);
    free(w->items);
    free(w->order);
    free(w);
}

/* Compare two items for qsort: the longer one first, then by checksum, which brings equal residues together, then in
 * the order of the file. This order does not depend on the proteins that an earlier run has stored. */
static int by_length(const void *a, const void *b)
{
    const item *x = *(item *const *)a, *y = *(item *const *)b;
    return x->n != y->n       ? (x->n < y->n) - (x->n > y->n)
           : x->tag != y->tag ? (x->tag > y->tag) - (x->tag < y->tag)
                              : (x > y) - (x < y);
}

/* Find the items whose residues equal those of the item before them. */
static void find_copies(window *w)
{
    for (size_t k = 1; k < w->n; k++) {
        const item *a = w->order[k - 1], *b = w->order[k];
        w->order[k]->copy = a->n == b->n && memcmp(w->text + a->residues, w->text + b->residues, (size_t)a->n) == 0;
    }
}

/* Read proteins until the window is full, and sort them. */
static int read_window(protein_batches *p, window *w)
{
    protein_job *j = p->job;
    rp_t5_record r;
    while (!p->end && (w->n == 0 || w->size < (size_t)j->window)) {
        if (cli_stop_requested())
            return CLI_FAILED;
        int code = protein_next(j, j->file, true, &r);
        p->end = code == CLI_OK && r.header == NULL;
        if (code == CLI_OK && !p->end)
            code = add_record(j, w, &r);
        if (code != CLI_OK)
            return code;
    }
    w->order = malloc((w->n + 1) * sizeof *w->order);
    if (w->order == NULL)
        return no_memory(j);
    for (size_t k = 0; k < w->n; k++)
        w->order[k] = &w->items[k];
    qsort(w->order, w->n, sizeof *w->order, by_length);
    find_copies(w);
    return CLI_OK;
}

/* Append a window. At the end of the file it may be empty. */
static int add_window(protein_batches *p)
{
    window *w = calloc(1, sizeof *w);
    const int code = w != NULL ? read_window(p, w) : no_memory(p->job);
    if (code != CLI_OK || w->n == 0) {
        free_window(w);
        return code;
    }
    *(p->last != NULL ? &p->last->next : &p->first) = w;
    p->last = w;
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ batches */

/* Count the proteins of a task without copies. */
static size_t count_different(const window *w, const cli_task *task)
{
    size_t n = 0;
    for (size_t k = 0; k < task->count; k++)
        n += !w->order[task->first + k]->copy;
    return n;
}

/* Write a batch as a task, without copies: the number of proteins, their lengths, and their residues. */
static int pack(const protein_job *j, const window *w, cli_task *task)
{
    const size_t n = count_different(w, task);
    size_t size = (1 + n) * sizeof(int64_t);
    for (size_t k = 0; k < task->count; k++)
        size += w->order[task->first + k]->copy ? 0 : (size_t)w->order[task->first + k]->n;
    int64_t *numbers = malloc(size), *lengths = numbers + 1;
    if (numbers == NULL)
        return no_memory(j);
    char *text = (char *)(numbers + 1 + n);
    numbers[0] = (int64_t)n;
    for (size_t k = 0; k < task->count; k++) {
        const item *i = w->order[task->first + k];
        if (i->copy)
            continue;
        *lengths++ = i->n;
        memcpy(text, w->text + i->residues, (size_t)i->n);
        text += i->n;
    }
    task->data = numbers;
    task->size = size;
    return CLI_OK;
}

/* Make the next batch. */
static int next_batch(void *context, cli_task *task)
{
    protein_batches *p = ((protein_job *)context)->batches;
    if ((p->last == NULL || p->last->given == p->last->n) && !p->end) {
        const int code = add_window(p);
        if (code != CLI_OK)
            return code;
    }
    window *w = p->last;
    if (w == NULL || w->given == w->n || (p->job->letters != NULL && ferror(p->job->letters)))
        return CLI_OK;
    const int64_t most = cli_t5_part(p->job->counted ? p->job->tokens - p->tokens_given : -1, p->job->rows);
    int64_t tokens = 0;
    task->first = w->given;
    for (const item *i; w->given < w->n; w->given++) { /* copies belong to the batch of their original */
        i = w->order[w->given];
        if (!i->copy && tokens > 0 && tokens + i->n + 2 > most)
            break;
        p->tokens_given += i->n + 2;
        tokens += i->copy ? 0 : i->n + 2;
        task->cost += i->copy ? 0 : protein_cost(&p->job->facts, i->n);
    }
    task->count = w->given - task->first;
    return pack(p->job, w, task);
}

/* ------------------------------------------------------------------------------------------------ computing */

/* Show the speed and the fraction of the work that is done. `more`: the work, in residues and in cost, besides that of
 * the results which were taken. */
static void show_done(protein_job *j, double more_residues, double more_cost)
{
    const double seconds = cli_seconds() - j->progress.start;
    if (seconds > 0 && j->progress.start > 0)
        snprintf(j->note, sizeof j->note, "%.0f residues/s", ((double)j->residues_done + more_residues) / seconds);
    if (j->counted && j->cost_done + more_cost > 0)
        cli_progress_show(&j->progress, (j->cost_done + more_cost) / j->cost);
}

static int show(void *context, double fraction)
{
    const batch *b = context;
    if (cli_team_ranks() == 1) /* otherwise another thread shows it */
        show_done((protein_job *)(uintptr_t)b->job, fraction * (double)b->residues, fraction * b->cost);
    return cli_stop_requested();
}

/* Convert the residues of a task to tokens, and count. */
static int make_batch(batch *b, const int64_t *lengths, const char *text)
{
    const protein_job *j = b->job;
    for (int64_t k = 0; k < b->n; k++) {
        rp_t5_protein *p = &b->proteins[k];
        if (j->kind->residues(j, text, lengths[k], p) != RP_OK)
            return j->kind->refused(j);
        b->residues += p->residues;
        b->cost += protein_cost(&j->facts, p->residues);
        text += lengths[k];
    }
    return CLI_OK;
}

/* Replace the hidden states, in place, by what the output needs: letters, means, or all of them. Set *size to its
 * bytes. */
static int reduce(const batch *b, float *hidden, size_t *size)
{
    const protein_job *j = b->job;
    const int64_t d = j->facts.width;
    const float *rows = hidden;
    char *letters = (char *)hidden; /* one byte a residue, behind the rows that are read */
    *size = (size_t)(b->residues * d) * sizeof *hidden;
    for (int64_t k = 0; k < b->n && (j->structure != NULL || j->pooled); k++) {
        const int64_t n = b->proteins[k].residues;
        if (j->structure != NULL) {
            char *made = malloc((size_t)n + 1);
            const rp_status status = made != NULL ? rp_t5_structure_of(j->structure, rows, n, made) : RP_E_NOMEM;
            if (status == RP_OK)
                memcpy(letters, made, (size_t)n);
            free(made);
            if (status != RP_OK)
                return call_failed(j, status);
            letters += n;
            *size = (size_t)(letters - (char *)hidden);
        } else {
            cli_t5_mean((float *)(uintptr_t)rows, n, d);
            memmove(hidden + k * d, rows, (size_t)d * sizeof *hidden);
            *size = (size_t)((k + 1) * d) * sizeof *hidden;
        }
        rows += n * d;
    }
    return CLI_OK;
}

/* Compute a task. The result is the number of replaced residues of each protein, [n] of int64_t, and then letters
 * [residues], means [n, d] or hidden states [residues, d]. */
static int compute_batch(void *context, const void *data, size_t data_size, void **result, size_t *size)
{
    const protein_job *j = (const protein_job *)context;
    const int64_t d = j->facts.width, *numbers = data, n = numbers[0];
    batch b = {.job = j, .proteins = calloc((size_t)n, sizeof *b.proteins), .n = n};
    const size_t counts = (size_t)n * sizeof(int64_t);
    (void)data_size;
    int code = b.proteins != NULL ? make_batch(&b, numbers + 1, (const char *)(numbers + 1 + n)) : no_memory(j);
    int64_t bytes = 0;
    const bool fits = !__builtin_mul_overflow(b.residues, d * (int64_t)sizeof(float), &bytes);
    char *made = code == CLI_OK && fits ? malloc(counts + (size_t)bytes) : NULL;
    float *hidden = (float *)(void *)(made + counts);
    if (code == CLI_OK && made == NULL)
        code = no_memory(j);
    const rp_status status = code == CLI_OK ? j->kind->encode(j, n, b.proteins, hidden, show, &b) : RP_OK;
    if (status != RP_OK)
        code = cli_stop_requested() ? CLI_FAILED : call_failed(j, status);
    if (code == CLI_OK)
        code = reduce(&b, hidden, size);
    for (int64_t k = 0; k < n && code == CLI_OK; k++)
        ((int64_t *)(void *)made)[k] = b.proteins[k].replaced;
    *size += counts;
    *result = made;
    for (int64_t k = 0; b.proteins != NULL && k < n; k++)
        j->kind->free_tokens(b.proteins[k].tokens);
    free(b.proteins);
    return code;
}

/* ------------------------------------------------------------------------------------------------ writing */

/* Write the result of one protein. 3Di letters replace its residues in the window. Return the bytes of the result in
 * *used. */
static int write_protein(protein_job *j, window *w, const item *i, char *at, size_t *used)
{
    const int64_t d = j->facts.width;
    *used = (size_t)i->n;
    if (j->letters != NULL) {
        memcpy(w->text + i->residues, at, (size_t)i->n);
        return CLI_OK;
    }
    *used = (size_t)((j->pooled ? 1 : i->n) * d) * sizeof(float);
    return protein_output_put(j->output, i->name, i->tag, (const float *)(const void *)at, i->n, d);
}

/* Drop the first window when all its results were taken. Its letters are written in the order of the file. */
static void end_window(protein_batches *p)
{
    window *w = p->first;
    protein_job *j = p->job;
    if (w->taken < w->n)
        return;
    for (size_t k = 0; k < w->n && j->letters != NULL; k++)
        fprintf(j->letters, ">%s\n%s\n", w->text + w->items[k].header, w->text + w->items[k].residues);
    p->first = w->next;
    p->last = p->first != NULL ? p->last : NULL;
    free_window(w);
}

/* Write the results of a batch. */
static int take_batch(void *context, const cli_task *task, void *result, size_t size)
{
    protein_batches *p = ((protein_job *)context)->batches;
    protein_job *j = p->job;
    window *w = p->first;
    const int64_t *replaced = result;
    char *at = (char *)result + count_different(w, task) * sizeof *replaced;
    int code = CLI_OK;
    (void)size;
    for (size_t k = 0, used = 0; k < task->count && code == CLI_OK; k++) {
        const item *i = w->order[task->first + k];
        if (k > 0 && !i->copy)
            at += used, replaced++;
        code = write_protein(j, w, i, at, &used);
        j->n_done += code == CLI_OK;
        j->n_copies += i->copy;
        j->residues_done += i->n;
        j->residues_replaced += *replaced;
        j->proteins_replaced += *replaced > 0;
        j->cost_done += protein_cost(&j->facts, i->n);
    }
    if (code == CLI_OK && j->output != NULL)
        code = protein_output_flush(j->output);
    w->taken += task->count;
    if (code == CLI_OK)
        end_window(p);
    show_done(j, 0, 0);
    return code;
}

int protein_compute(protein_job *j)
{
    protein_batches p = {.job = j};
    const cli_farm farm = {j, next_batch, compute_batch, take_batch, PROTEIN_TEAM_TASKS};
    j->batches = &p;
    j->progress = (cli_progress){.what = j->structure != NULL ? "t5 proteins --3di" : j->kind->command,
                                 .start = cli_seconds(),
                                 .note = j->note,
                                 .every = 60};
    const int code = cli_farm_run(&farm);
    cli_progress_end(&j->progress);
    for (window *w = p.first; w != NULL; w = p.first) {
        p.first = w->next;
        free_window(w);
    }
    return code;
}
