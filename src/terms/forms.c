/* terms/forms.c -- check that a scheme defines the functions that its form requires, and only functions that its form
 * allows. scheme.h has the same table as text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "term_registry.h"
#include <stdio.h>
#include <string.h>

/* The functions that a scheme may define, depending on its form: name of the bit, name for messages, member of
 * rpi_scheme. */
#define FUNCTIONS(X)                                                                                                   \
    X(PAIR, "pair", pair)                                                                                              \
    X(GRAD, "grad", grad)                                                                                              \
    X(TANGENT_GRAD, "tangent_grad", tangent_grad)                                                                      \
    X(SHARED, "shared", shared)                                                                                        \
    X(REACH, "reach", reach)                                                                                           \
    X(OFFSETS, "offsets", offsets)                                                                                     \
    X(ENTRIES, "entries", entries)                                                                                     \
    X(INDEX, "index", index)                                                                                           \
    X(ENTRY, "entry", entry)                                                                                           \
    X(ENTRY_GRAD, "entry_grad", entry_grad)                                                                            \
    X(ROW, "row", row)                                                                                                 \
    X(REDUCE, "reduce", reduce)                                                                                        \
    X(BATCH_ENTRY, "batch_entry", batch_entry)                                                                         \
    X(LARGEST, "largest", largest)                                                                                     \
    X(ROW_GRAD, "row_grad", row_grad)                                                                                  \
    X(SUMS_SIZE, "sums_size", sums_size)                                                                               \
    X(REDUCE_SUMS, "reduce_sums", reduce_sums)                                                                         \
    X(PRODUCT_0, "product[0]", product[0].count)                                                                       \
    X(PRODUCT_1, "product[1]", product[1].count)                                                                       \
    X(PREPARE, "prepare", prepare)                                                                                     \
    X(PREPARE_SIZE, "prepare_size", prepare_size)
#define NUMBER(bit, name, member) NUMBER_##bit,
#define BIT(bit, name, member)    bit = 1 << NUMBER_##bit,
#define NAME(bit, name, member)   name,
#define HAS(bit, name, member)    s->member != NULL,
enum { FUNCTIONS(NUMBER) };
enum { FUNCTIONS(BIT) };
static const char *const function_names[] = {FUNCTIONS(NAME)};

static const struct {
    rpi_form form;
    const char *name;
    unsigned required, optional;
} forms[] = {
    {RPI_OFFSET, "OFFSET", PAIR, GRAD | TANGENT_GRAD | SHARED | REACH | OFFSETS},
    {RPI_INDEX, "INDEX", ENTRIES | INDEX | ENTRY, ENTRY_GRAD | REACH},
    {RPI_TILE, "TILE", PAIR,
     GRAD | TANGENT_GRAD | ROW | REDUCE | LARGEST | BATCH_ENTRY | ROW_GRAD | SUMS_SIZE | REDUCE_SUMS},
    {RPI_VEC, "VEC", PRODUCT_0, PRODUCT_1},
    {RPI_VALVEC, "VALVEC", PRODUCT_0, 0},
    {RPI_ROTATE, "ROTATE", 0, 0},
    {RPI_SINK, "SINK", PAIR, GRAD},
};

/* Functions that require other functions. */
static const struct {
    unsigned has, needs;
} pairs[] = {{ROW_GRAD, ROW | SUMS_SIZE | REDUCE_SUMS | GRAD},
             {SUMS_SIZE, ROW_GRAD},
             {REDUCE_SUMS, ROW_GRAD},
             {REDUCE, GRAD},
             {TANGENT_GRAD, GRAD},
             {PREPARE, PREPARE_SIZE},
             {PREPARE_SIZE, PREPARE}};

static unsigned functions_of(const rpi_scheme *s)
{
    const bool has[] = {FUNCTIONS(HAS)};
    unsigned bits = 0;
    for (unsigned n = 0; n < sizeof has / sizeof *has; n++)
        bits |= has[n] ? 1u << n : 0;
    return bits;
}

static const char *names_of(unsigned bits, char to[256])
{
    size_t used = 0;
    to[0] = 0;
    for (unsigned n = 0; bits >> n; n++)
        if (bits >> n & 1)
            used += (size_t)snprintf(to + used, 256 - used, "%s%s", used ? ", " : "", function_names[n]);
    return to;
}

const char *rpi_form_name(rpi_form form)
{
    size_t n = 0;
    while (forms[n].form != form)
        n++;
    return forms[n].name;
}

static const char *lacks_in_products(const rpi_scheme *s, bool gradient)
{
    for (int n = 0; n < 2; n++) {
        const rpi_product *p = &s->product[n];
        if (!p->count)
            continue;
        if (!p->vec || !p->first == !p->index)
            return "a product needs count, vec, and either first or index";
        if (s->form == RPI_VALVEC && !p->width)
            return "the product of VALVEC needs width, the width of the values";
        if (gradient && !p->vec_grad)
            return "a product of a term with a learned array needs vec_grad";
    }
    return NULL;
}

const char *rpi_scheme_lacks(const rpi_scheme *s, bool gradient)
{
    static _Thread_local char line[512];
    char names[256];
    size_t n = 0;
    while (forms[n].form != s->form)
        n++;
    unsigned required = forms[n].required;
    if (gradient)
        required |= required & PAIR ? GRAD : required & ENTRY ? ENTRY_GRAD : 0;
    const unsigned missing = required & ~functions_of(s);
    if (missing) {
        snprintf(line, sizeof line, "form %s requires %s", forms[n].name, names_of(missing, names));
        return line;
    }
    return lacks_in_products(s, gradient);
}

static const char *fault_of_products(const rpi_scheme *s)
{
    for (int n = 0; n < 2; n++) {
        const rpi_product *p = &s->product[n];
        if (!p->count)
            continue;
        if (!p->query != !p->query_grad)
            return "query needs query_grad, and query_grad needs query";
        if (!p->shown)
            return "a product needs .shown, which explain prints";
    }
    return NULL;
}

static const char *fault_of_facts(const rpi_scheme *s)
{
    if (!s->facts.formula || !s->facts.about)
        return ".facts needs formula and about";
    for (const rp_param *p = s->params; p && p->key; p++) {
        if (!p->field || !p->meaning)
            return "every parameter needs a field and a meaning";
        if (p->type == RP_PARAM_CHOICE && !p->choices)
            return "a parameter of type CHOICE needs choices";
        if (p->max < p->min)
            return "a parameter has max below min";
    }
    for (int x = 0; x < rpi_count_arrays(s); x++) {
        const bool position = strcmp(s->array[x].name, "q_positions") == 0;
        if (position && s->positions != x)
            return ".positions must be the index of the array q_positions";
        if (position && !(s->array[x + 1].name && strcmp(s->array[x + 1].name, "k_positions") == 0))
            return "k_positions must follow q_positions";
        if (!s->array[x].shape)
            return "every array needs a shape";
    }
    const rp_desc d = rp_desc_init(2, 3, 6, 6, 8);
    rp_term t = {.kind = RP_TERM_NONE};
    rpi_shape shape;
    for (const rp_param *p = s->params; p && p->key; p++)
        if (p->type == RP_PARAM_INT) /* the default, by which a shape may divide */
            memcpy((char *)&t + p->offset, &(int64_t){(int64_t)p->value}, sizeof(int64_t));
    for (int x = 0; x < rpi_count_arrays(s); x++)
        if (!rpi_read_shape(s->array[x].shape, &d, &t, s->params, &shape))
            return "the shape of an array is not valid: see facts.h for the syntax; names are keys of parameters";
    return NULL;
}

const char *rpi_scheme_fault(const rpi_scheme *s)
{
    static _Thread_local char line[512];
    char names[256];
    bool learned = false;
    for (int x = 0; x < rpi_count_arrays(s); x++)
        learned |= s->array[x].use == RP_USE_LEARNED;
    const char *fault = rpi_scheme_lacks(s, learned);
    if (fault)
        return fault;
    const unsigned has = functions_of(s);
    size_t form = 0;
    while (forms[form].form != s->form)
        form++;
    const unsigned excess = has & ~(forms[form].required | forms[form].optional | PREPARE | PREPARE_SIZE);
    if (excess) {
        snprintf(line, sizeof line, "form %s does not allow %s", forms[form].name, names_of(excess, names));
        return line;
    }
    for (size_t n = 0; n < sizeof pairs / sizeof *pairs; n++)
        if (has & pairs[n].has && pairs[n].needs & ~has) {
            char missing[256];
            snprintf(line, sizeof line, "%s requires %s", names_of(has & pairs[n].has, names),
                     names_of(pairs[n].needs & ~has, missing));
            return line;
        }
    if ((s->in_place || s->causal) && s->form != RPI_TILE)
        return "in_place and causal are only for form TILE";
    if (s->batch_entry && !(s->in_place && s->sharing))
        return "batch_entry needs in_place and sharing";
    if (s->same_heads && s->form != RPI_OFFSET)
        return "same_heads is only for form OFFSET";
    if ((s->bias || s->unscaled) && s->form != RPI_VEC)
        return "bias and unscaled are only for form VEC";
    if (s->class_token && s->form != RPI_INDEX)
        return "class_token is only for form INDEX";
    if (s->index_array && (s->form != RPI_INDEX || s->array[s->index_array].use != RP_USE_INDEX))
        return "index_array is only for form INDEX, and names an array of indices";
    fault = fault_of_products(s);
    return fault ? fault : fault_of_facts(s);
}
