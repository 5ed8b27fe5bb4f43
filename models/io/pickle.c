/* pickle.c -- reads pickles of torch.save, protocols 2 to 5. A pickle is a program for a machine with a stack and a
 * memo. This machine has only the operations of the table `operations`, which build values, and the globals of the
 * table `globals`, whose meaning it knows. Anything else is refused by name. It calls nothing and never recurses.
 *
 * Every value costs the pickle at least one byte, so memory is at most about 100 bytes per byte of the pickle.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/pickle.h"
#include "io/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PICKLE_MAX IO_SAFETENSORS_HEADER_MAX /* max bytes of a pickle, as of a .safetensors header */
#define STACK_MAX  100000                    /* pickle.py puts at most 1,000 members of a container on the stack */
#define ADVICE     "(load it with torch.load, and save model.state_dict() with torch.save or safetensors)"

typedef enum kind { OTHER, MARK, INTEGER, TEXT, GLOBAL, TUPLE, DICT, STORAGE, TENSOR } kind;

/* A value. OTHER is anything whose contents do not matter: None, a boolean, a fraction, a list. */
typedef struct value {
    kind kind;
    uint32_t n; /* TEXT: bytes; TUPLE: items */
    union {
        int64_t number;   /* INTEGER */
        const char *text; /* TEXT: in the pickle */
        size_t at;        /* index: TUPLE: its first item; GLOBAL, STORAGE, TENSOR: in their lists; DICT: its number */
    } is;
} value;

typedef struct storage {
    rp_dtype dtype;
    value key;
    size_t bytes;
} storage;

typedef struct tensor {
    size_t storage; /* index */
    rp_dtype dtype;
    int64_t offset;
    value shape, strides; /* tuples of integers */
} tensor;

/* A member of a dictionary, which is a tensor or a dictionary. Others do not matter. */
typedef struct entry {
    size_t dict;
    value key, value;
} entry;

/* A list that grows. */
#define LIST(TYPE)                                                                                                     \
    struct {                                                                                                           \
        TYPE *at;                                                                                                      \
        size_t n, capacity;                                                                                            \
    }

typedef struct machine {
    const unsigned char *data;
    size_t size, at, begin; /* begin: where the current operation begins */
    LIST(value) stack;
    LIST(value) memo;
    LIST(value) items; /* of all tuples */
    LIST(storage) storages;
    LIST(tensor) tensors;
    LIST(entry) entries;
    size_t dicts;
    bool *has_tensors; /* [dicts] at the end: that dictionary has */
    bool stopped;
    void *grown; /* used by APPEND */
    char *why;
} machine;

/* Append to a list of the machine `m`. The condition is false if out of memory. */
#define APPEND(list, ...)                                                                                              \
    ((m->grown = io_grow((list).at, &(list).capacity, (list).n, sizeof *(list).at)) != NULL &&                         \
     ((list).at = m->grown, (list).at[(list).n++] = (__VA_ARGS__), true))

/* ------------------------------------------------------------------------------------------------ globals */

typedef enum meaning { ORDERED_DICT, REBUILD, REBUILD_WITH_TYPE, PARAMETER, STORAGE_TYPE, UNTYPED, DTYPE } meaning;

static const struct global {
    const char *module, *name;
    meaning meaning;
    rp_dtype dtype; /* of STORAGE_TYPE and DTYPE */
} globals[] = {
    {"collections", "OrderedDict", ORDERED_DICT, IO_NO_DTYPE},
    {"torch._utils", "_rebuild_tensor_v2", REBUILD, IO_NO_DTYPE},
    {"torch._utils", "_rebuild_tensor_v3", REBUILD_WITH_TYPE, IO_NO_DTYPE},
    {"torch._utils", "_rebuild_parameter", PARAMETER, IO_NO_DTYPE},
    {"torch.storage", "UntypedStorage", UNTYPED, RP_U8},
    {"torch", "FloatStorage", STORAGE_TYPE, RP_F32},
    {"torch", "DoubleStorage", STORAGE_TYPE, RP_F64},
    {"torch", "HalfStorage", STORAGE_TYPE, RP_F16},
    {"torch", "BFloat16Storage", STORAGE_TYPE, RP_BF16},
    {"torch", "LongStorage", STORAGE_TYPE, RP_I64},
    {"torch", "IntStorage", STORAGE_TYPE, RP_I32},
    {"torch", "ShortStorage", STORAGE_TYPE, RP_I16},
    {"torch", "CharStorage", STORAGE_TYPE, RP_I8},
    {"torch", "ByteStorage", STORAGE_TYPE, RP_U8},
    {"torch", "BoolStorage", STORAGE_TYPE, RP_BOOL},
    {"torch", "float32", DTYPE, RP_F32},
    {"torch", "float64", DTYPE, RP_F64},
    {"torch", "float16", DTYPE, RP_F16},
    {"torch", "bfloat16", DTYPE, RP_BF16},
    {"torch", "float8_e4m3fn", DTYPE, IO_F8_E4M3},
    {"torch", "float8_e5m2", DTYPE, IO_F8_E5M2},
    {"torch", "uint16", DTYPE, RP_U16},
    {"torch", "uint32", DTYPE, RP_U32},
    {"torch", "uint64", DTYPE, RP_U64},
};
enum { GLOBALS = sizeof globals / sizeof *globals };

size_t io_pickle_element(rp_dtype dtype)
{
    return dtype == IO_F8_E4M3 || dtype == IO_F8_E5M2 ? 1 : io_dtype_size(dtype);
}

/* ------------------------------------------------------------------------------------------------ the stack */

static io_status fault(machine *m, const char *what)
{
    return io_why(m->why, "its pickle is damaged at byte %zu: %s", m->begin, what);
}

static io_status push(machine *m, value v)
{
    if (m->stack.n == STACK_MAX)
        return fault(m, "it nests more than 100000 values");
    return APPEND(m->stack, v) ? IO_OK : io_no_memory(m->why);
}

static io_status pop(machine *m, value *v)
{
    if (m->stack.n == 0 || m->stack.at[m->stack.n - 1].kind == MARK)
        return fault(m, "a value is missing");
    *v = m->stack.at[--m->stack.n];
    return IO_OK;
}

/* Set *first to the position above the last mark. */
static io_status find_mark(machine *m, size_t *first)
{
    size_t at = m->stack.n;
    while (at > 0 && m->stack.at[at - 1].kind != MARK)
        at--;
    *first = at;
    return at > 0 ? IO_OK : fault(m, "a mark is missing");
}

/* Operations of the machine. `argument` has the number or text that follows the operation, or is unused. */
typedef struct argument {
    int64_t number;
    const char *text;
    size_t size;
} argument;
typedef io_status operation(machine *m, const argument *a);

static io_status skip(machine *m, const argument *a)
{
    (void)m, (void)a;
    return IO_OK;
}

static io_status push_other(machine *m, const argument *a)
{
    (void)a;
    return push(m, (value){.kind = OTHER});
}

static io_status push_mark(machine *m, const argument *a)
{
    (void)a;
    return push(m, (value){.kind = MARK});
}

static io_status push_integer(machine *m, const argument *a)
{
    return push(m, (value){.kind = INTEGER, .is.number = a->number});
}

/* Push an integer of a->size bytes, least significant first. One that does not fit in 64 bits is not a size. */
static io_status push_long(machine *m, const argument *a)
{
    uint64_t number = 0;
    if (a->size > 8)
        return push_other(m, a);
    const bool negative = a->size > 0 && (a->text[a->size - 1] & 0x80) != 0;
    for (size_t k = 0; k < 8; k++)
        number |= (uint64_t)(k < a->size ? (unsigned char)a->text[k] : negative ? 0xff : 0) << 8 * k;
    return push(m, (value){.kind = INTEGER, .is.number = (int64_t)number});
}

static io_status push_text(machine *m, const argument *a)
{
    return push(m, (value){.kind = TEXT, .n = (uint32_t)a->size, .is.text = a->text});
}

static io_status push_dict(machine *m, const argument *a)
{
    (void)a;
    return push(m, (value){.kind = DICT, .is.at = m->dicts++});
}

/* Replace the values from position `first` by a tuple of them. */
static io_status make_tuple(machine *m, size_t first)
{
    const value tuple = {.kind = TUPLE, .n = (uint32_t)(m->stack.n - first), .is.at = m->items.n};
    for (size_t k = first; k < m->stack.n; k++)
        if (!APPEND(m->items, m->stack.at[k]))
            return io_no_memory(m->why);
    m->stack.n = first;
    return push(m, tuple);
}

static io_status tuple_from_mark(machine *m, const argument *a)
{
    size_t first = 0;
    (void)a;
    const io_status status = find_mark(m, &first);
    if (status != IO_OK)
        return status;
    const value *above = &m->stack.at[first];
    const size_t n = m->stack.n - first;
    memmove(m->stack.at + first - 1, above, n * sizeof *above); /* over the mark */
    m->stack.n--;
    return make_tuple(m, first - 1);
}

/* Make a tuple of the last n values; the operation is n = 0 … 3. */
static io_status tuple_of(machine *m, size_t n)
{
    for (size_t k = 1; k <= n; k++)
        if (m->stack.n < k || m->stack.at[m->stack.n - k].kind == MARK)
            return fault(m, "a value is missing");
    return make_tuple(m, m->stack.n - n);
}

/* Make a tuple of no, one, two or three values, as the code of the operation says. */
static io_status short_tuple(machine *m, const argument *a)
{
    const unsigned char code = m->data[m->begin];
    (void)a;
    return tuple_of(m, code == ')' ? 0 : (size_t)(code - 0x84));
}

/* ------------------------------------------------------------------------------------------------ the memo */

/* Store the last value under a number. Numbers are given in order, so the memo has no gaps. */
static io_status put(machine *m, const argument *a)
{
    if (m->stack.n == 0 || m->stack.at[m->stack.n - 1].kind == MARK)
        return fault(m, "a value is missing");
    const value v = m->stack.at[m->stack.n - 1];
    if (a->number > (int64_t)m->memo.n)
        return fault(m, "it leaves a gap in the memo");
    if (a->number < (int64_t)m->memo.n) {
        m->memo.at[a->number] = v;
        return IO_OK;
    }
    return APPEND(m->memo, v) ? IO_OK : io_no_memory(m->why);
}

static io_status put_next(machine *m, const argument *a)
{
    (void)a;
    return put(m, &(argument){.number = (int64_t)m->memo.n});
}

static io_status get(machine *m, const argument *a)
{
    return a->number < (int64_t)m->memo.n ? push(m, m->memo.at[a->number]) : fault(m, "the memo has no such value");
}

/* ------------------------------------------------------------------------------------------------ containers */

/* Add members to a dictionary: pairs of key and value from position `first` on the stack. */
static io_status add_members(machine *m, size_t first)
{
    const size_t n = m->stack.n - first;
    if (first == 0 || m->stack.at[first - 1].kind != DICT || n % 2 != 0)
        return fault(m, "members are added to a value that is not a dictionary");
    for (size_t k = first; k < m->stack.n; k += 2) {
        const value *pair = m->stack.at + k;
        if (pair[0].kind == TEXT && (pair[1].kind == TENSOR || pair[1].kind == DICT) &&
            !APPEND(m->entries, (entry){m->stack.at[first - 1].is.at, pair[0], pair[1]}))
            return io_no_memory(m->why);
    }
    m->stack.n = first;
    return IO_OK;
}

static io_status set_items(machine *m, const argument *a)
{
    size_t first = 0;
    (void)a;
    const io_status status = find_mark(m, &first);
    if (status != IO_OK)
        return status;
    const size_t n = m->stack.n - first;
    memmove(m->stack.at + first - 1, m->stack.at + first, n * sizeof(value)); /* over the mark */
    m->stack.n--;
    return add_members(m, first - 1);
}

static io_status set_item(machine *m, const argument *a)
{
    (void)a;
    if (m->stack.n < 3 || m->stack.at[m->stack.n - 1].kind == MARK || m->stack.at[m->stack.n - 2].kind == MARK)
        return fault(m, "a value is missing");
    return add_members(m, m->stack.n - 2);
}

/* Drop the items of a list. */
static io_status append(machine *m, const argument *a)
{
    value item;
    (void)a;
    const io_status status = pop(m, &item);
    if (status == IO_OK && (m->stack.n == 0 || m->stack.at[m->stack.n - 1].kind != OTHER))
        return fault(m, "items are added to a value that is not a list");
    return status;
}

static io_status append_all(machine *m, const argument *a)
{
    size_t first = 0;
    (void)a;
    const io_status status = find_mark(m, &first);
    if (status != IO_OK)
        return status;
    m->stack.n = first - 1;
    return m->stack.n > 0 && m->stack.at[m->stack.n - 1].kind == OTHER
               ? IO_OK
               : fault(m, "items are added to a value that is not a list");
}

/* Drop the attributes of a dictionary, such as _metadata. */
static io_status build(machine *m, const argument *a)
{
    value state;
    (void)a;
    const io_status status = pop(m, &state);
    if (status == IO_OK && (m->stack.n == 0 || m->stack.at[m->stack.n - 1].kind != DICT))
        return fault(m, "attributes are set on a value that is not a dictionary");
    return status;
}

/* ---------------------------------------------------------------------------------------------- globals and tensors */

static bool equals(const char *text, size_t size, const char *word)
{
    return strlen(word) == size && memcmp(text, word, size) == 0;
}

/* Copy a text from the pickle for a message, at most 60 bytes of it. */
static const char *printable(const char *text, size_t size, char safe[96])
{
    char copy[64];
    const size_t n = size < 60 ? size : 60;
    memcpy(copy, text, n);
    copy[n] = 0;
    return io_safe(safe, 96, copy);
}

static io_status find_global(machine *m, const char *module, size_t module_size, const char *name, size_t name_size)
{
    char safe_module[96], safe_name[96];
    for (size_t g = 0; g < GLOBALS; g++)
        if (equals(module, module_size, globals[g].module) && equals(name, name_size, globals[g].name))
            return push(m, (value){.kind = GLOBAL, .is.at = g});
    return io_why(m->why, "its pickle uses %.50s.%.50s, which is not part of a tensor " ADVICE,
                  printable(module, module_size, safe_module), printable(name, name_size, safe_name));
}

/* The argument has two lines: module and name. */
static io_status push_global(machine *m, const argument *a)
{
    const char *line = memchr(a->text, '\n', a->size);
    const size_t module = (size_t)(line - a->text);
    return find_global(m, a->text, module, line + 1, a->size - module - 2);
}

static io_status push_stack_global(machine *m, const argument *a)
{
    value module = {0}, name = {0};
    (void)a;
    io_status status = pop(m, &name);
    if (status == IO_OK)
        status = pop(m, &module);
    if (status == IO_OK && (module.kind != TEXT || name.kind != TEXT))
        return fault(m, "the name of a global is no text");
    return status != IO_OK ? status : find_global(m, module.is.text, module.n, name.is.text, name.n);
}

/* Read a persistent id: ("storage", type, key, location, number of elements). */
static io_status push_storage(machine *m, const argument *a)
{
    value id = {0};
    size_t bytes;
    (void)a;
    const io_status status = pop(m, &id);
    if (status != IO_OK)
        return status;
    const value *i = m->items.at + (id.kind == TUPLE ? id.is.at : 0);
    if (id.kind != TUPLE || id.n != 5 || i[0].kind != TEXT || !equals(i[0].is.text, i[0].n, "storage") ||
        i[1].kind != GLOBAL || i[2].kind != TEXT || i[4].kind != INTEGER || i[4].is.number < 0)
        return fault(m, "a persistent id does not describe a storage");
    const struct global *g = &globals[i[1].is.at];
    if (g->meaning != STORAGE_TYPE && g->meaning != UNTYPED)
        return fault(m, "a storage has no type");
    if (!io_mul((size_t)i[4].is.number, io_pickle_element(g->dtype), &bytes))
        return fault(m, "a storage is too large");
    const storage s = {g->meaning == UNTYPED ? IO_NO_DTYPE : g->dtype, i[2], bytes};
    return APPEND(m->storages, s) ? push(m, (value){.kind = STORAGE, .is.at = m->storages.n - 1})
                                  : io_no_memory(m->why);
}

static bool is_sizes(const machine *m, const value *v)
{
    bool good = v->kind == TUPLE && v->n <= IO_MAX_AXES;
    for (size_t k = 0; good && k < v->n; k++)
        good = m->items.at[v->is.at + k].kind == INTEGER && m->items.at[v->is.at + k].is.number >= 0;
    return good;
}

/* Make a tensor of the arguments (storage, offset, shape, strides, requires_grad, hooks), and with `typed` a dtype. */
static io_status make_tensor(machine *m, const value *arguments, bool typed)
{
    const value *i = m->items.at + arguments->is.at;
    if (arguments->n < (typed ? 7 : 6) || i[0].kind != STORAGE || i[1].kind != INTEGER || i[1].is.number < 0 ||
        !is_sizes(m, &i[2]) || !is_sizes(m, &i[3]) || i[2].n != i[3].n)
        return fault(m, "the description of a tensor is not valid");
    rp_dtype dtype = m->storages.at[i[0].is.at].dtype;
    if (typed && (i[6].kind != GLOBAL || globals[i[6].is.at].meaning != DTYPE))
        return fault(m, "a tensor has no type");
    if (typed)
        dtype = globals[i[6].is.at].dtype;
    if (dtype == IO_NO_DTYPE)
        return fault(m, "a tensor has no type");
    const tensor t = {i[0].is.at, dtype, i[1].is.number, i[2], i[3]};
    return APPEND(m->tensors, t) ? push(m, (value){.kind = TENSOR, .is.at = m->tensors.n - 1}) : io_no_memory(m->why);
}

/* Make what a call of one of the globals would make. */
static io_status reduce(machine *m, const argument *a)
{
    value arguments = {0}, called = {0};
    io_status status = pop(m, &arguments);
    if (status == IO_OK)
        status = pop(m, &called);
    if (status != IO_OK)
        return status;
    if (called.kind != GLOBAL || arguments.kind != TUPLE)
        return fault(m, "it calls something that is no function");
    const value *first = m->items.at + arguments.is.at;
    switch (globals[called.is.at].meaning) {
    case ORDERED_DICT:
        return arguments.n == 0 ? push_dict(m, a) : fault(m, "an OrderedDict is made with arguments " ADVICE);
    case REBUILD: return make_tensor(m, &arguments, false);
    case REBUILD_WITH_TYPE: return make_tensor(m, &arguments, true);
    case PARAMETER:
        return arguments.n > 0 && first->kind == TENSOR ? push(m, *first) : fault(m, "a parameter has no tensor");
    default: return fault(m, "it calls something that is no function");
    }
}

static io_status stop(machine *m, const argument *a)
{
    (void)a;
    m->stopped = true;
    return m->at == m->size ? IO_OK : fault(m, "there are bytes after its end");
}

/* ------------------------------------------------------------------------------------------------ running */

/* What follows an operation: a number of n bytes; n bytes; a text whose length is a number of n bytes; or two lines. */
typedef enum follows { NUMBER, BYTES, SIZED, LINES } follows;

static const struct {
    unsigned char code;
    follows follows;
    unsigned char n;
    operation *run;
} operations[] = {
    {0x80, NUMBER, 1, skip},                                       /* protocol */
    {0x95, NUMBER, 8, skip},                                       /* frame */
    {'N', NUMBER, 0, push_other},   {0x88, NUMBER, 0, push_other}, /* true, false */
    {0x89, NUMBER, 0, push_other},  {'G', BYTES, 8, push_other},   /* a fraction */
    {']', NUMBER, 0, push_other},   {'B', SIZED, 4, push_other},   /* bytes */
    {'C', SIZED, 1, push_other},    {'K', NUMBER, 1, push_integer},
    {'M', NUMBER, 2, push_integer}, {'J', BYTES, 4, push_long},
    {0x8a, SIZED, 1, push_long},    {0x8b, SIZED, 4, push_long},
    {'X', SIZED, 4, push_text},     {0x8c, SIZED, 1, push_text},
    {0x8d, SIZED, 8, push_text},    {'}', NUMBER, 0, push_dict},
    {'(', NUMBER, 0, push_mark},    {'t', NUMBER, 0, tuple_from_mark},
    {')', NUMBER, 0, short_tuple},  {0x85, NUMBER, 0, short_tuple},
    {0x86, NUMBER, 0, short_tuple}, {0x87, NUMBER, 0, short_tuple},
    {'q', NUMBER, 1, put},          {'r', NUMBER, 4, put},
    {0x94, NUMBER, 0, put_next},    {'h', NUMBER, 1, get},
    {'j', NUMBER, 4, get},          {'s', NUMBER, 0, set_item},
    {'u', NUMBER, 0, set_items},    {'a', NUMBER, 0, append},
    {'e', NUMBER, 0, append_all},   {'b', NUMBER, 0, build},
    {'c', LINES, 0, push_global},   {0x93, NUMBER, 0, push_stack_global},
    {'Q', NUMBER, 0, push_storage}, {'R', NUMBER, 0, reduce},
    {'.', NUMBER, 0, stop},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* Take n bytes of the pickle. */
static const char *take_bytes(machine *m, uint64_t n)
{
    if (n > m->size - m->at)
        return NULL;
    m->at += (size_t)n;
    return (const char *)m->data + m->at - n;
}

/* Take two lines, with their ends. */
static bool take_lines(machine *m, argument *a)
{
    a->text = (const char *)m->data + m->at;
    const char *end = (const char *)m->data + m->size, *next = a->text;
    for (int line = 0; line < 2 && next != NULL; line++) {
        next = memchr(next, '\n', (size_t)(end - next));
        next = next != NULL ? next + 1 : NULL;
    }
    a->size = next != NULL ? (size_t)(next - a->text) : 0;
    return take_bytes(m, a->size) != NULL && next != NULL;
}

static bool take_argument(machine *m, follows how, unsigned n, argument *a)
{
    uint64_t number = 0;
    if (how == LINES)
        return take_lines(m, a);
    const char *bytes = take_bytes(m, n);
    if (bytes == NULL)
        return false;
    if (how == BYTES) {
        *a = (argument){.text = bytes, .size = n};
        return true;
    }
    memcpy(&number, bytes, n); /* little-endian, as this machine */
    a->number = (int64_t)number;
    if (how == NUMBER)
        return true;
    a->size = (size_t)number;
    a->text = take_bytes(m, number);
    return a->text != NULL;
}

/* Run the next operation. */
static io_status step(machine *m)
{
    m->begin = m->at;
    const unsigned char code = m->data[m->at++];
    for (size_t o = 0; o < OPERATIONS; o++)
        if (operations[o].code == code) {
            argument a = {0};
            return take_argument(m, operations[o].follows, operations[o].n, &a) ? operations[o].run(m, &a)
                                                                                : fault(m, "it is cut short");
        }
    return io_why(m->why, "its pickle has the operation 0x%02x at byte %zu, which no tensor needs " ADVICE, code,
                  m->begin);
}

/* ------------------------------------------------------------------------------------------------ the result */

/* Return true if the tensor's elements are in row-major order without gaps. The stride of an axis of size 1 does not
 * matter. */
static bool is_contiguous(const value *shape, const value *strides, size_t n)
{
    int64_t expected = 1;
    bool good = true, empty = false;
    for (size_t x = 0; x < n; x++)
        empty = empty || shape[x].is.number == 0;
    for (size_t x = n; x-- > 0 && good && !empty;) {
        good = shape[x].is.number == 1 || strides[x].is.number == expected;
        good = good && !__builtin_mul_overflow(expected, shape[x].is.number, &expected);
    }
    return good;
}

static io_status visit_tensor(const machine *m, const entry *e, io_pickle_visitor *visit, void *context)
{
    const tensor *t = &m->tensors.at[e->value.is.at];
    const storage *s = &m->storages.at[t->storage];
    const value *shape = m->items.at + t->shape.is.at;
    io_pickle_tensor found = {.name = e->key.is.text,
                              .name_size = e->key.n,
                              .storage = s->key.is.text,
                              .storage_size = s->key.n,
                              .storage_bytes = s->bytes,
                              .dtype = t->dtype,
                              .offset = t->offset,
                              .ndim = (int32_t)t->shape.n,
                              .contiguous = is_contiguous(shape, m->items.at + t->strides.is.at, t->shape.n)};
    for (size_t x = 0; x < t->shape.n; x++)
        found.shape[x] = shape[x].is.number;
    return visit(context, &found, m->why);
}

/* Return true if an entry is a dictionary with tensors. */
static bool is_weights(const machine *m, const entry *e)
{
    return e->value.kind == DICT && m->has_tensors[e->value.is.at];
}

/* Find the member of `dict` with this name that has tensors. */
static const entry *find_weights(const machine *m, size_t dict, const char *name)
{
    for (size_t k = 0; k < m->entries.n; k++) {
        const entry *e = &m->entries.at[k];
        if (e->dict == dict && equals(e->key.is.text, e->key.n, name) && is_weights(m, e))
            return e;
    }
    return NULL;
}

/* Return the name of a member for a message. */
static const char *name_of(const entry *e, char *safe, size_t size)
{
    char name[64];
    const size_t n = e->key.n < sizeof name - 1 ? e->key.n : sizeof name - 1;
    memcpy(name, e->key.is.text, n);
    name[n] = 0;
    return io_safe(safe, size, name);
}

/* Choose the dictionary of tensors: `dict`, or a member of it, which is then in *member. Fail if only others have
 * tensors. */
static io_status choose_dict(const machine *m, size_t *dict, const entry **member)
{
    static const char *const names[] = {"state_dict", "model", "model_state_dict", "module"};
    char safe[80];
    *member = NULL;
    if (m->has_tensors[*dict])
        return IO_OK;
    for (size_t n = 0; n < sizeof names / sizeof *names && *member == NULL; n++)
        *member = find_weights(m, *dict, names[n]);
    if (*member != NULL) {
        *dict = (*member)->value.is.at;
        return IO_OK;
    }
    for (size_t k = 0; k < m->entries.n; k++)
        if (is_weights(m, &m->entries.at[k]))
            return io_why(m->why,
                          "its tensors are in a member '%s', which is not read (load it with torch.load, and save that "
                          "member with torch.save or safetensors)",
                          name_of(&m->entries.at[k], safe, sizeof safe));
    return IO_OK;
}

/* Write which members of the dictionary `all` have tensors that are not in `dict`. */
static void note_others(const machine *m, size_t all, size_t dict, const entry *member, char note[IO_WHY_MAX])
{
    char safe[80];
    size_t n = 0;
    note[0] = 0;
    for (size_t k = 0; k < m->entries.n; k++) {
        const entry *e = &m->entries.at[k];
        if (e->dict != all || !is_weights(m, e) || e->value.is.at == dict || e->value.is.at == all)
            continue;
        if (n == 0 && member != NULL)
            n = (size_t)snprintf(note, IO_WHY_MAX, "the tensors of its member '%s' are read; not those of",
                                 name_of(member, safe, sizeof safe));
        else if (n == 0)
            n = (size_t)snprintf(note, IO_WHY_MAX, "its own tensors are read; not those of its members");
        name_of(e, safe, sizeof safe);
        if (n + strlen(safe) + sizeof " '', ..." > IO_WHY_MAX) {
            snprintf(note + n, IO_WHY_MAX - n, " ...");
            return;
        }
        n += (size_t)snprintf(note + n, IO_WHY_MAX - n, "%s '%s'", note[n - 1] == '\'' ? "," : "", safe);
    }
}

static io_status visit_all(machine *m, io_pickle_visitor *visit, void *context, char note[IO_WHY_MAX])
{
    const entry *member;
    if (m->stack.n != 1 || m->stack.at[0].kind != DICT)
        return io_why(m->why, "its pickle holds no dictionary of tensors " ADVICE);
    m->has_tensors = calloc(m->dicts, sizeof *m->has_tensors);
    if (m->has_tensors == NULL)
        return io_no_memory(m->why);
    for (size_t k = 0; k < m->entries.n; k++)
        if (m->entries.at[k].value.kind == TENSOR)
            m->has_tensors[m->entries.at[k].dict] = true;
    const size_t all = m->stack.at[0].is.at;
    size_t dict = all;
    io_status status = choose_dict(m, &dict, &member);
    if (status == IO_OK)
        note_others(m, all, dict, member, note);
    for (size_t k = 0; k < m->entries.n && status == IO_OK; k++)
        if (m->entries.at[k].dict == dict && m->entries.at[k].value.kind == TENSOR)
            status = visit_tensor(m, &m->entries.at[k], visit, context);
    return status;
}

io_status io_pickle_read(const unsigned char *data, size_t size, io_pickle_visitor *visit, void *context,
                         char note[IO_WHY_MAX], char why[IO_WHY_MAX])
{
    machine all = {.data = data, .size = size, .why = why}, *m = &all;
    if (size > PICKLE_MAX)
        return io_why(why, "its pickle has %zu bytes (at most %d are supported)", size, PICKLE_MAX);
    io_status status = APPEND(m->items, (value){.kind = OTHER}) ? IO_OK : io_no_memory(why); /* items.at is not NULL */
    while (status == IO_OK && !m->stopped)
        status = m->at < m->size ? step(m) : fault(m, "it is cut short");
    if (status == IO_OK)
        status = visit_all(m, visit, context, note);
    free(m->stack.at);
    free(m->memo.at);
    free(m->items.at);
    free(m->storages.at);
    free(m->tensors.at);
    free(m->entries.at);
    free(m->has_tensors);
    return status;
}
