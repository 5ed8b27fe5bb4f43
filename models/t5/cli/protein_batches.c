/* protein_batches.c -- reads windows of proteins, and computes each window from the longest protein to the shortest, in
 * batches of a bounded number of tokens. The bits of a protein do not depend on its batch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/cli/proteins.h"
#include <stdlib.h>
#include <string.h>

/* A protein of the window. */
typedef struct item {
    size_t name;   /* index in the table of names */
    size_t header; /* offsets in window.text: the header, with --3di, and the residues */
    size_t residues;
    int64_t n;
    uint64_t tag;
} item;

typedef struct window {
    char *text;
    size_t size, capacity;
    item *items;
    size_t n, room;
    bool end; /* of the file */
} window;

/* One batch. */
typedef struct batch {
    protein_job *job;
    rp_t5_protein *proteins; /* [n] */
    int64_t n;
    double cost;
    int64_t residues;
} batch;

double protein_cost(const rp_t5_info *i, int64_t n)
{
    const double inner = (double)i->heads * (double)i->d_kv, x = (double)n + 2;
    return x * (4 * (double)i->d_model * inner + (i->gated ? 3 : 2) * (double)i->d_model * (double)i->d_ff) +
           2 * x * x * inner;
}

static int no_memory(void)
{
    return cli_error(CLI_FAILED, "t5 proteins: out of memory for the proteins (close other programs, or give fewer)");
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
static int take(protein_job *j, window *w, const rp_t5_record *r)
{
    char safe[160];
    const size_t index = protein_names_add(&j->names, r->header);
    if (index == SIZE_MAX)
        return no_memory();
    protein_name *name = &j->names.names[index];
    item added = {.name = index, .n = r->n, .tag = io_checksum(1, r->residues, (size_t)r->n)};
    if (name->read)
        return cli_error(CLI_FAILED, "%s: line %lld: the name %s occurs twice, first in line %lld (rename one)",
                         io_safe(safe, 80, j->fasta), (long long)r->line,
                         io_safe(safe + 80, 80, protein_key(&j->names, index)), (long long)name->line);
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
        return no_memory();
    added.residues = keep(w, r->residues, (size_t)r->n);
    return added.residues != SIZE_MAX && add_item(w, &added) ? CLI_OK : no_memory();
}

/* Read proteins until the window is full. */
static int read_window(protein_job *j, window *w)
{
    rp_t5_record r;
    w->size = w->n = 0;
    while (w->n == 0 || w->size < (size_t)j->window) {
        if (cli_stop_requested())
            return CLI_FAILED;
        if (rp_t5_fasta_next(j->file, 1, j->longest, &r) != RP_OK)
            return cli_error(CLI_FAILED, "%s", rp_t5_last_error());
        w->end = r.header == NULL;
        if (w->end)
            return CLI_OK;
        const int code = take(j, w, &r);
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ computing */

static int show(void *context, double fraction)
{
    const batch *b = context;
    protein_job *j = b->job;
    const double seconds = cli_seconds() - j->progress.start;
    if (seconds > 0 && j->progress.start > 0)
        snprintf(j->note, sizeof j->note, "%.0f residues/s",
                 ((double)j->residues_done + fraction * (double)b->residues) / seconds);
    if (j->counted && (fraction > 0 || j->cost_done > 0))
        cli_progress_show(&j->progress, (j->cost_done + fraction * b->cost) / j->cost);
    return cli_stop_requested();
}

/* Convert the residues of the items of a batch to tokens, and count. */
static int make_batch(protein_job *j, const window *w, item *const *items, batch *b)
{
    for (int64_t k = 0; k < b->n; k++) {
        rp_t5_protein *p = &b->proteins[k];
        if (rp_t5_residues(j->common.model, j->family, w->text + items[k]->residues, items[k]->n, p) != RP_OK)
            return cli_t5_refused("t5 proteins");
        j->residues_replaced += p->replaced;
        j->proteins_replaced += p->replaced > 0;
        b->residues += p->residues;
        b->cost += protein_cost(rp_t5_about(j->common.model), p->residues);
    }
    return CLI_OK;
}

/* Write the results of a batch. 3Di letters replace the residues in the window. */
static int write_batch(protein_job *j, const window *w, item *const *items, const batch *b, float *hidden)
{
    const int64_t d = rp_t5_about(j->common.model)->d_model;
    for (int64_t k = 0; k < b->n; k++) {
        const int64_t n = b->proteins[k].residues;
        if (j->letters != NULL) {
            if (rp_t5_structure_of(j->structure, hidden, n, w->text + items[k]->residues) != RP_OK)
                return cli_t5_refused("t5 proteins");
        } else {
            const int code = protein_output_put(j->output, items[k]->name, items[k]->tag, hidden, n, d);
            if (code != CLI_OK)
                return code;
        }
        hidden += n * d;
        j->n_done++;
    }
    return j->output != NULL ? protein_output_flush(j->output) : CLI_OK;
}

/* Compute n proteins together. */
static int compute_batch(protein_job *j, const window *w, item *const *items, int64_t n)
{
    const int64_t d = rp_t5_about(j->common.model)->d_model;
    batch b = {.job = j, .proteins = calloc((size_t)n, sizeof *b.proteins), .n = n};
    int code = b.proteins != NULL ? make_batch(j, w, items, &b) : no_memory();
    int64_t bytes = 0;
    const bool fits = !__builtin_mul_overflow(b.residues, d * (int64_t)sizeof(float), &bytes);
    float *hidden = code == CLI_OK && fits ? malloc((size_t)bytes) : NULL;
    if (code == CLI_OK && hidden == NULL)
        code = no_memory();
    if (code == CLI_OK && rp_t5_encode_residues(j->common.model, n, b.proteins, hidden, show, &b) != RP_OK)
        code = cli_stop_requested() ? CLI_FAILED : cli_t5_refused("t5 proteins");
    if (code == CLI_OK)
        code = write_batch(j, w, items, &b, hidden);
    j->residues_done += b.residues;
    j->cost_done += b.cost;
    for (int64_t k = 0; b.proteins != NULL && k < n; k++)
        rp_t5_free(b.proteins[k].tokens);
    free(b.proteins);
    free(hidden);
    return code;
}

/* Compare two items for qsort: the longer one first, then in the order of the file. */
static int by_length(const void *a, const void *b)
{
    const item *x = *(item *const *)a, *y = *(item *const *)b;
    return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : (x > y) - (x < y);
}

static int compute_window(protein_job *j, window *w)
{
    item **order = malloc((w->n + 1) * sizeof *order);
    if (order == NULL)
        return no_memory();
    for (size_t k = 0; k < w->n; k++)
        order[k] = &w->items[k];
    qsort(order, w->n, sizeof *order, by_length);
    int code = CLI_OK;
    for (size_t from = 0, end; from < w->n && code == CLI_OK; from = end) {
        int64_t tokens = 0;
        for (end = from; end < w->n && (end == from || tokens + order[end]->n + 2 <= j->rows); end++)
            tokens += order[end]->n + 2;
        code = compute_batch(j, w, order + from, (int64_t)(end - from));
    }
    free(order);
    for (size_t k = 0; k < w->n && code == CLI_OK && j->letters != NULL; k++)
        fprintf(j->letters, ">%s\n%s\n", w->text + w->items[k].header, w->text + w->items[k].residues);
    return code;
}

int protein_compute(protein_job *j)
{
    window w = {0};
    j->progress = (cli_progress){.what = j->letters != NULL ? "t5 proteins --3di" : "t5 proteins",
                                 .start = cli_seconds(),
                                 .note = j->note,
                                 .every = 60};
    int code = CLI_OK;
    while (code == CLI_OK && !w.end && (j->letters == NULL || !ferror(j->letters))) {
        code = read_window(j, &w);
        if (code == CLI_OK)
            code = compute_window(j, &w);
    }
    cli_progress_end(&j->progress);
    free(w.text);
    free(w.items);
    return code;
}
