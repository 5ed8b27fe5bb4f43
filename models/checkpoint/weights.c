/* weights.c -- see weights.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/weights.h"
#include "checkpoint/error.h"
#include "io/block_types.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int64_t aligned(int64_t bytes)
{
    return (bytes + LINEAR_ALIGN - 1) / LINEAR_ALIGN * LINEAR_ALIGN;
}

static int64_t bytes_of_blocks(const linear_tensors *tensors)
{
    int64_t bytes = 0;
    for (int n = 0; n < tensors->n; n++) {
        const linear_tensor *t = &tensors->each[n];
        bytes += t->blocks != NULL ? t->w.in / t->blocks->numbers * t->blocks->bytes * t->w.out
                                   : linear_packed_bytes(t->w.type, t->w.in, t->w.out);
    }
    return bytes;
}

/* Return the numbers of each tensor. */
static int64_t numbers_of_tensor(const model_part *p)
{
    return p->rows * (p->columns > 0 ? p->columns : 1) * (p->depth > 0 ? p->depth : 1);
}

int64_t model_part_numbers(const model_part *p)
{
    return numbers_of_tensor(p) * p->n_sources;
}

int64_t model_part_bytes(const model_part *p)
{
    if (p->type == LINEAR_BLOCKS && p->matrix != NULL)
        return bytes_of_blocks(p->matrix->packed);
    if (p->matrix != NULL)
        return linear_packed_bytes(p->type, p->columns, p->rows * p->n_sources);
    return aligned(model_part_numbers(p) * 4);
}

/* ------------------------------------------------------------------------------------------------ from a checkpoint */

/* State of packing a checkpoint. The first round adds up sizes and collects errors, so one message can report as many
 * errors as fit. The second round packs. */
typedef struct packing {
    const model_source *from;
    const void *model;
    bool *used;            /* for each tensor: true if the model has a weight for it; any other tensor is an error */
    unsigned char *memory; /* NULL in the first round */
    int64_t at;            /* bytes used so far */
    linear_tensors *next;  /* where to put the tensors of the next matrix of blocks */
    int64_t mapped;        /* bytes of blocks that are used in the file */
    int64_t not_finite;    /* number of NaN or infinite weights */
    bool scaled;           /* some 8-bit floats have scales */
    rp_pool *pool;
    rp_status status;          /* status of the first error */
    int64_t n_wrong, n_listed; /* number of errors, and number of errors described in `wrong` */
    char wrong[640];           /* messages of the errors */
} packing;

static void shape_text(int32_t ndim, const int64_t *shape, char text[64])
{
    size_t used = 0;
    text[0] = 0;
    for (int32_t x = 0; x < ndim && used < 48; x++)
        used += (size_t)snprintf(text + used, 64 - used, "%s%lld", x ? "," : "", (long long)shape[x]);
}

__attribute__((format(printf, 3, 4))) static void note_wrong(packing *k, rp_status status, const char *format, ...)
{
    char text[320];
    const size_t used = strlen(k->wrong);
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (k->n_wrong++ == 0)
        k->status = status;
    if (used + strlen(text) + 3 > sizeof k->wrong || k->n_listed < k->n_wrong - 1)
        return;
    snprintf(k->wrong + used, sizeof k->wrong - used, "%s%s", used > 0 ? "; " : "", text);
    k->n_listed++;
}

static rp_status refuse_wrong(const packing *k)
{
    if (k->n_wrong == 0)
        return RP_OK;
    char more[40] = "";
    if (k->n_listed < k->n_wrong)
        snprintf(more, sizeof more, "; and %lld more", (long long)(k->n_wrong - k->n_listed));
    return model_fail(k->status, "%s: %s%s%s", k->from->path, k->wrong, more,
                      k->status == RP_E_UNSUPPORTED ? "" : k->from->advice);
}

/* Return the tensor for source s of a weight, or NULL after recording an error: missing, or wrong shape or type. */
static const io_tensor *find(packing *k, const model_part *p, int s)
{
    const io_tensor *t = io_checkpoint_find(k->from->file, p->source[s]);
    char has[64], expected[64];
    if (t == NULL) {
        note_wrong(k, RP_E_ARG, "tensor '%.160s' is missing", p->source[s]);
        return NULL;
    }
    k->used[t - io_checkpoint_at(k->from->file, 0)] = true;
    const int32_t ndim = p->depth > 0 ? 3 : p->columns > 0 ? 2 : 1;
    const int64_t shape[3] = {p->rows, p->columns, p->depth};
    shape_text(ndim, shape, expected);
    shape_text(t->ndim, t->shape, has);
    if (t->ndim != ndim || memcmp(t->shape, shape, (size_t)ndim * sizeof *shape) != 0) {
        note_wrong(k, RP_E_ARG, "tensor '%.160s' has the shape [%s]; expected [%s]", p->source[s], has, expected);
        return NULL;
    }
    if (t->unsupported != NULL) {
        note_wrong(k, RP_E_UNSUPPORTED, "tensor '%.160s': %.150s", p->source[s], t->unsupported);
        return NULL;
    }
    if (!io_tensor_has_numbers(t) || t->dtype == RP_F64) {
        note_wrong(
            k, RP_E_UNSUPPORTED,
            "tensor '%.160s' has the type %s (supported: F32, F16, BF16, F8_E4M3, F8_E5M2 and Q8_0 to Q2_K of GGUF)",
            p->source[s], io_tensor_type_name(t));
        return NULL;
    }
    if (k->scaled && io_tensor_is_f8(t) && t->scales == NULL) {
        note_wrong(k, RP_E_UNSUPPORTED,
                   "tensor '%.160s': it has no weight_scale, but other 8-bit floats of the file have one (convert the "
                   "model again)",
                   p->source[s]);
        return NULL;
    }
    if (k->memory == NULL)
        k->not_finite += io_tensor_not_finite(t);
    return t;
}

/* Find the tensors of a weight. Return false after recording errors. */
static bool find_all(packing *k, const model_part *p, const io_tensor *t[MODEL_MAX_SOURCES])
{
    bool all = true;
    for (int s = 0; s < p->n_sources; s++)
        all = (t[s] = find(k, p, s)) != NULL && all;
    return all;
}

static rp_status pack_array(packing *k, const model_part *p)
{
    const io_tensor *t[MODEL_MAX_SOURCES] = {NULL};
    const int64_t n = numbers_of_tensor(p), bytes = model_part_bytes(p);
    if (!find_all(k, p, t))
        return RP_OK;
    if (k->memory != NULL) {
        float *to = (float *)(void *)(k->memory + k->at);
        memset(to, 0, (size_t)bytes);
        for (int s = 0; s < p->n_sources; s++)
            io_tensor_read(t[s], 0, n, to + s * n);
        *p->array = to;
    }
    k->at += bytes;
    return RP_OK;
}

/* Pack a matrix that stacks several tensors, or that has another type. Convert some rows at a time to f32. */
static rp_status pack_stacked(packing *k, const model_part *p, const io_tensor *const *t, char *packed)
{
    enum { ROWS = 512 }; /* whole panels, whose packed sizes add up */
    const int64_t all = p->rows * p->n_sources, most = all < ROWS ? all : ROWS;
    float *stacked = malloc((size_t)(most * p->columns) * sizeof *stacked);
    rp_status status = stacked != NULL ? RP_OK : RP_E_NOMEM;
    for (int64_t row = 0; row < all && status == RP_OK; row += most) {
        const int64_t n = all - row < most ? all - row : most;
        for (int64_t r = 0; r < n; r++)
            io_tensor_read(t[(row + r) / p->rows], (row + r) % p->rows * p->columns, p->columns,
                           stacked + r * p->columns);
        status = linear_pack(k->pool, p->type, p->columns, n, stacked, RP_F32, p->columns, packed);
        packed += linear_packed_bytes(p->type, p->columns, n);
    }
    free(stacked);
    return status;
}

/* Pack a matrix to `to`, and drop the memory of its tensors. */
static rp_status pack_to(packing *k, const model_part *p, const io_tensor *const *t, unsigned char *to)
{
    /* 0 for types that relpos does not have, and for scaled tensors */
    const size_t element = io_tensor_is_f8(t[0]) || t[0]->scales != NULL ? 0 : rp_dtype_size(t[0]->dtype);
    const bool direct = p->n_sources == 1 && element > 0 && (uintptr_t)t[0]->data % element == 0;
    const rp_status status =
        direct ? linear_pack(k->pool, p->type, p->columns, p->rows, t[0]->data, t[0]->dtype, p->columns, to)
               : pack_stacked(k, p, t, (char *)to);
    for (int s = 0; s < p->n_sources; s++)
        io_tensor_drop(t[s]);
    return status == RP_OK ? RP_OK
           : status == RP_E_NOMEM
               ? model_no_memory_for(p->name, linear_packed_bytes(p->type, p->columns, p->rows * p->n_sources))
               : model_fail(status, "%s: '%s' cannot be packed: %s", k->from->path, p->name, rp_status_name(status));
}

/* Add the packed size of a matrix. */
static rp_status add_packed(packing *k, const model_part *p)
{
    const int64_t bytes = linear_packed_bytes(p->type, p->columns, p->rows * p->n_sources);
    if (bytes >= 0 && k->at <= INT64_MAX - bytes) {
        k->at += bytes;
        return RP_OK;
    }
    return model_fail(RP_E_OVERFLOW, "%s: the size of '%s' does not fit in 63 bits%s", k->from->path, p->name,
                      k->from->advice);
}

/* Return the type of one tensor of a matrix of blocks that cannot be used as it is in the file. */
static linear_type type_of_tensor(const io_tensor *t)
{
    return io_block_of(t->dtype) != NULL               ? LINEAR_Q8
           : t->scales == NULL && t->dtype == RP_F16   ? LINEAR_F16
           : t->dtype == RP_BF16 || io_tensor_is_f8(t) ? LINEAR_BF16
                                                       : LINEAR_F32;
}

/* Use the blocks of tensors as they are in the file. Pack tensors of other types, each in its own. */
static rp_status keep_blocks(packing *k, const model_part *p, const io_tensor *const *t)
{
    linear_tensors *all = k->next++;
    rp_status status = RP_OK;
    all->n = p->n_sources;
    for (int s = 0; s < p->n_sources && status == RP_OK; s++) {
        const linear_blocks *b = io_block_of(t[s]->dtype);
        linear_tensor *one = &all->each[s];
        if (b != NULL && linear_uses(b)) {
            *one = (linear_tensor){b, {LINEAR_BLOCKS, p->columns, p->rows, t[s]->data}};
            k->mapped += (int64_t)t[s]->bytes;
            continue;
        }
        model_part part = *p;
        part.n_sources = 1;
        part.type = type_of_tensor(t[s]);
        *one = (linear_tensor){NULL, {part.type, p->columns, p->rows, k->memory != NULL ? k->memory + k->at : NULL}};
        if (k->memory != NULL)
            status = pack_to(k, &part, t + s, k->memory + k->at);
        if (status == RP_OK)
            status = add_packed(k, &part);
    }
    *p->matrix = (linear_weights){LINEAR_BLOCKS, p->columns, p->rows * p->n_sources, all};
    return status;
}

static rp_status pack_matrix(packing *k, const model_part *p)
{
    const io_tensor *t[MODEL_MAX_SOURCES] = {NULL};
    if (!find_all(k, p, t))
        return RP_OK;
    if (p->type == LINEAR_BLOCKS)
        return keep_blocks(k, p, t);
    if (k->memory != NULL) {
        const rp_status status = pack_to(k, p, t, k->memory + k->at);
        if (status != RP_OK)
            return status;
        *p->matrix = (linear_weights){p->type, p->columns, p->rows * p->n_sources, k->memory + k->at};
    }
    return add_packed(k, p);
}

static rp_status pack_part(void *context, const model_part *p)
{
    return p->matrix != NULL ? pack_matrix(context, p) : pack_array(context, p);
}

/* Return the first of the tensors that must be equal, or NULL if the file has none. */
static const io_tensor *first_equal(const model_source *from)
{
    for (int n = 0; n < from->n_equal; n++) {
        const io_tensor *t = io_checkpoint_find(from->file, from->equal[n]);
        if (t != NULL)
            return t;
    }
    return NULL;
}

static void check_equal(packing *k)
{
    const io_tensor *first = first_equal(k->from);
    for (int n = 0; n < k->from->n_equal; n++) {
        const io_tensor *t = io_checkpoint_find(k->from->file, k->from->equal[n]);
        if (t == NULL || t == first)
            continue;
        k->used[t - io_checkpoint_at(k->from->file, 0)] = true;
        if (!io_tensor_same(t, first))
            note_wrong(k, RP_E_UNSUPPORTED, "tensor '%s' differs from '%s' (%s)", t->name, first->name,
                       k->from->why_equal);
    }
}

static void check_others(packing *k)
{
    for (size_t n = 0; n < io_checkpoint_size(k->from->file); n++) {
        const char *name = io_checkpoint_at(k->from->file, n)->name;
        if (!k->used[n] && (k->from->stray == NULL || !k->from->stray(k->model, name)))
            note_wrong(k, RP_E_ARG, "tensor '%.160s' is not in the model", name);
    }
}

linear_type model_type_of(const io_checkpoint *file, bool (*no_matrix)(const char *name))
{
    bool in_f16 = true, in_bf16 = true, in_q8 = true, in_blocks = false;
    for (size_t n = 0; n < io_checkpoint_size(file); n++) {
        const io_tensor *t = io_checkpoint_at(file, n);
        if (t->ndim != 2 || io_tensor_is_f8(t) || (no_matrix != NULL && no_matrix(t->name)))
            continue;
        const linear_blocks *b = io_block_of(t->dtype);
        in_blocks = in_blocks || b != NULL;
        in_q8 = in_q8 && b != NULL && !linear_uses(b);
        in_f16 = in_f16 && t->dtype == RP_F16;
        in_bf16 = in_bf16 && t->dtype == RP_BF16;
    }
    return in_blocks ? (in_q8 ? LINEAR_Q8 : LINEAR_BLOCKS) : in_bf16 ? LINEAR_BF16 : in_f16 ? LINEAR_F16 : LINEAR_F32;
}

/* Allocate memory for packed weights, in huge pages if possible, because a pass through the model reads all of it. */
static unsigned char *take_memory(int64_t bytes)
{
    enum { LARGE = 2 << 20 };
    const size_t align = bytes >= 4 * LARGE ? LARGE : LINEAR_ALIGN, size = ((size_t)bytes + align - 1) / align * align;
    unsigned char *memory = aligned_alloc(align, size > 0 ? size : align);
    if (memory != NULL && align == LARGE)
        madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

rp_status model_pack(model_store *s, const model_source *from, model_walk *walk, void *model, bool sizes, rp_pool *pool)
{
    const size_t n_tensors = io_checkpoint_size(from->file);
    packing k = {.from = from, .model = model, .pool = pool};
    for (size_t n = 0; n < n_tensors; n++)
        k.scaled = k.scaled || io_checkpoint_at(from->file, n)->scales != NULL;
    k.used = calloc(n_tensors, sizeof *k.used);
    k.next = s->tensors = calloc(n_tensors, sizeof *s->tensors); /* a matrix has at least one tensor */
    rp_status status = k.used != NULL && k.next != NULL ? walk(model, pack_part, &k) : model_no_memory();
    if (status == RP_OK) {
        check_equal(&k);
        check_others(&k);
        status = refuse_wrong(&k);
    }
    s->bytes = k.at + k.mapped;
    s->not_finite = k.not_finite;
    if (status == RP_OK && !sizes) {
        s->memory = k.memory = take_memory(k.at);
        k.at = 0;
        k.next = s->tensors;
        status = s->memory != NULL ? walk(model, pack_part, &k) : model_no_memory_for("the weights", s->bytes);
    }
    free(k.used);
    return status;
}

void model_store_free(model_store *s)
{
    free(s->memory);
    free(s->tensors);
    *s = (model_store){0};
}

/* ------------------------------------------------------------------------------------------------ packed files */

typedef struct mapping {
    const io_checkpoint *file;
    const char *path;
    int64_t bytes;
} mapping;

static rp_status map_part(void *context, const model_part *p)
{
    mapping *k = context;
    const io_tensor *t = io_checkpoint_find(k->file, p->name);
    const int64_t bytes = model_part_bytes(p);
    if (t == NULL)
        return model_fail(RP_E_ARG, "%s: weight '%s' is missing (pack the model again)", k->path, p->name);
    if ((uintptr_t)t->data % LINEAR_ALIGN != 0)
        return model_fail(RP_E_ARG, "%s: weight '%s' does not begin at a multiple of %d bytes (pack the model again)",
                          k->path, p->name, LINEAR_ALIGN);
    if (bytes < 0 || t->dtype != RP_U8 || t->bytes != (size_t)bytes)
        return model_fail(RP_E_ARG, "%s: weight '%s' has %zu bytes; it must have %lld (pack the model again)", k->path,
                          p->name, t->bytes, (long long)bytes);
    if (p->matrix != NULL)
        *p->matrix = (linear_weights){p->type, p->columns, p->rows * p->n_sources, t->data};
    else
        *p->array = (const float *)(const void *)t->data;
    k->bytes += bytes;
    return RP_OK;
}

rp_status model_packed_type(const io_checkpoint *file, const char *path, linear_type *type)
{
    const int n = linear_find_type(io_checkpoint_meta(file, "type"));
    if (n < 0)
        return model_fail(RP_E_ARG, "%s: the type of its weights is missing or unknown (pack the model again)", path);
    *type = (linear_type)n;
    return RP_OK;
}

rp_status model_map(model_store *s, const io_checkpoint *file, const char *path, model_walk *walk, void *model)
{
    const char *not_finite = io_checkpoint_meta(file, "not_finite");
    mapping k = {file, path, 0};
    const rp_status status = walk(model, map_part, &k);
    s->not_finite = strtoll(not_finite != NULL ? not_finite : "0", NULL, 10);
    s->bytes = k.bytes;
    return status;
}

static rp_status list_part(void *context, const model_part *p)
{
    const int64_t bytes = model_part_bytes(p);
    const void *data = p->matrix != NULL ? p->matrix->packed : (const void *)*p->array;
    return io_add(context, p->name, RP_U8, 1, &bytes, (void *)(uintptr_t)data, true) == 0 ? RP_OK : model_no_memory();
}

rp_status model_list(model_walk *walk, void *model, io_set *set)
{
    return walk(model, list_part, set);
}
