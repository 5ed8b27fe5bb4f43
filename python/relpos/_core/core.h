/* core.h -- what the files of relpos._core share, and the map of them. All know the public header of the library alone.
 *
 *     module.c   the functions by name, the module's state, relpos.config()
 *     calls.c    a call from arguments to results: attention, backward          the walk to read first
 *     options.c  keywords -> rp_desc, and the arrays of terms and masks
 *     arrays.c   an array of NumPy, torch or another library -> rp_array; outputs; what a call holds
 *     torch.c    what torch is asked, and the functions of Python that take a call in its place
 *     threads.c  the threads of a call: the library's, or those of torch
 *     term.c     the type Term
 *     plan.c     the type Plan and its calls
 *     pages.c    keys and values in pages -> rp_pages
 *     norms.c    relpos.key_norms
 *     explain.c  relpos.explain, matrices of biases, buckets
 *     errors.c   a status of the library, or a wrong type, -> an exception
 *
 * The limited API of Python 3.11, so that one wheel serves every later version. No file has static state: what the module keeps lies
 * in `state`, one for each interpreter. A call reads its arrays where they lie, makes a plan, which costs less than looking one up
 * would, and computes without the interpreter's lock. A function that fails sets Python's error and returns NULL or -1; one that
 * returns a PyObject gives a new reference.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PYTHON_CORE_H
#define RELPOS_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <relpos/facts.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "dlpack.h"

/* Keywords that say what is computed, in the order in which the Python functions pass them. */
enum {
    BIAS,
    ROPE,
    RELKEY,
    RELVAL,
    SINK,
    MASKS, /* one for each kind of mask, in the order of masks.def */
    SCALE = MASKS + RP_MASK_COUNT - 1,
    SOFTCAP,
    SOFTCAP_AFTER,
    Q_OFFSET,
    DROPOUT,
    SEED,
    THREADS,
    PRECISION,
    N_OPTIONS
};
/* Then those of a forward call alone, and those of a backward call alone. */
enum { OUT = N_OPTIONS, RETURN_WEIGHTS, RETURN_LSE, SUMMARY, KEY_NORMS, END_FORWARD };
enum { FORWARD_OUT = END_FORWARD, FORWARD_LSE, LSE_GRADIENT, WANTED, N_NAMES };

extern const char *const option_names[N_NAMES];

enum { MAX_TYPES = 4, MAX_HELD = RP_MAX_TERMS * RP_MAX_ARRAYS + RP_MAX_MASKS + 32 };

/* What torch is asked at the first tensor of a call, by functions without arguments whose answers are true or false. */
enum { MODES, TRANSFORMS, TRACING, AUTOCAST, N_QUESTIONS };

typedef struct state {
    PyTypeObject *term, *plan;
    PyObject *name[N_NAMES];  /* interned */
    PyObject *empty;          /* numpy.empty */
    PyObject *dtype[RP_BF16]; /* NumPy's f32, f64, f16 */
    PyObject *pools;          /* {threads: capsule}, those of torch below zero */
    PyObject *num_threads;    /* torch.get_num_threads; NULL before the first tensor */
    void *team;               /* GOMP_parallel of torch's OpenMP; NULL: none */
    long process;             /* that imported the module */
    struct {
        PyObject *type; /* a type that has an exchange API, and that API */
        const dl_exchange *exchange;
        bool own;        /* a type that torch has not made: reading its attributes may run any code */
    } tensor[MAX_TYPES]; /* the last ones met */
    int next_tensor;
    PyObject *requires_grad, *is_neg, *grad_enabled, *current_level;
    bool looked_for_team;         /* at the first tensor */
    bool looked;                  /* for the following, at the first tensor */
    PyObject *asked[N_QUESTIONS]; /* functions of torch; NULL where it has none */
    PyObject *forward_ad;
    PyObject *functional, *sdpa, *sdpa_name; /* torch.nn.functional, and scaled_dot_product_attention as torch has it */
} state;

/* Python keeps functions as void *; by way of an integer no compiler minds. */
#define SLOT(f) ((void *)(uintptr_t)(f))

static inline state *state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

static inline bool given(PyObject *value)
{
    return value && value != Py_None;
}

/* ---------------------------------------------------------------------------------------------- errors.c */

int wrong_type(const char *name, PyObject *object, const char *needed);

/* ---------------------------------------------------------------------------------------------- torch.c: whom it hands a call to */

/* Functions of Python to which a call is handed. */
typedef struct function {
    const char *module, *name;
} function;
extern const function by_operator, recorded;

/* ---------------------------------------------------------------------------------------------- arrays.c */

typedef enum way { BUFFER, EXCHANGE, CAPSULE } way;

/* Where an array came from, for those made in its likeness. */
typedef struct origin {
    PyObject *object;
    way way;
    const dl_exchange *exchange;
} origin;

/* What a call holds until it ends. */
typedef struct call {
    state *st;
    int n_buffers, n_objects;
    bool torch;   /* an array is a tensor of torch */
    bool grad;    /* an input wants a gradient from torch */
    bool asks;    /* whether torch has something that reads or transforms calls, once, at the first tensor */
    bool casts;   /* whether torch.autocast is asked about as well: in relpos.attention */
    bool eager;   /* no graph has been told what out looks like: in relpos.attention */
    bool foreign; /* code that is not known has run, or may have, since the first view */
    const function *elsewhere; /* what takes the call instead */
    rp_tensors t;
    Py_buffer buffer[MAX_HELD];
    PyObject *object[MAX_HELD]; /* owned */
    int n_views;
    struct {
        PyObject *object;            /* borrowed: a tensor whose memory is not held */
        const dl_exchange *exchange; /* NULL: none */
        const void *data;
    } view[MAX_HELD];
    const void **pages; /* pointers to pages of keys, then of values */
    double next;        /* seconds: when signals are looked at; 0: not yet known */
    PyObject *progress; /* borrowed: called with the share that is done; NULL: nothing is */
    bool raised;        /* a signal's handler, or progress, raised an exception */
    PyThreadState *thread;
} call;

/* float32, float64, float16, bfloat16: by rp_dtype, as NumPy and torch call them */
extern const char *const dtype_words[];

void call_start(call *c, state *st, bool asks);
void call_end(call *c);
int hold(call *c, PyObject *object);
int take_array(call *c, PyObject *object, bool writable, const char *name, rp_array *a, origin *o);
int take_rows(call *c, PyObject *object, const char *name, rp_array *a, origin *o);
PyObject *listed(call *c, PyObject *object, bool number);
int still_there(const call *c);
PyObject *make_array(call *c, const origin *like, rp_dtype dtype, int32_t ndim, const int64_t *shape, rp_array *a);
PyObject *shape_tuple(int32_t ndim, const int64_t *shape);
void add_axes(rp_array *a, int more);

/* ---------------------------------------------------------------------------------------------- torch.c */

bool dispatches(PyObject *type);
bool is_of_torch(PyObject *type);
int note_torch(call *c, PyObject *object, const char *name);
bool wants_gradient(PyObject *number);
int records(const call *c);
int refuse_gradient(const call *c);
int was_written(PyObject *tensor);
PyObject *hand_over(const function *to, PyObject *const *args, Py_ssize_t n);

/* ---------------------------------------------------------------------------------------------- threads.c */

int take_pool(call *c, int64_t threads);

/* ---------------------------------------------------------------------------------------------- term.c */

/* One position term: its parameters, and the objects that hold its arrays. relpos._terms makes a class of each kind. */
typedef struct term {
    PyObject_HEAD rp_term term;
    PyObject *text;   /* as rp_term_parse reads it: "t5,buckets=16" */
    PyObject *arrays; /* tuple of RP_MAX_ARRAYS; None where absent */
} term;

extern PyType_Spec term_spec;
PyObject *core_term_info(PyObject *module, PyObject *object);

/* ---------------------------------------------------------------------------------------------- options.c */

/* What is computed: a description with its terms and masks, and the Python objects that hold their arrays. */
typedef struct problem {
    rp_desc desc;
    rp_term terms[RP_MAX_TERMS];
    rp_mask masks[RP_MAX_MASKS];
    term *term[RP_MAX_TERMS];     /* borrowed */
    PyObject *mask[RP_MAX_MASKS]; /* borrowed; NULL: without an array */
    PyObject *q_offset;           /* borrowed; NULL: desc.q_offset */
    bool offset_given;
    int64_t threads; /* 0: not given */
} problem;

int read_keywords(const state *st, PyObject *const *values, PyObject *names, int first, int end, PyObject **slot);
int read_int(PyObject *object, const char *name, int64_t *n);
int read_flag(PyObject *object, const char *name, int32_t *flag);
int read_options(problem *p, call *c, PyObject *const *option);
rp_mask_kind mask_of(int option);
PyObject *core_mask_info(PyObject *module, PyObject *object);
int take_terms(problem *p, call *c, origin from[RP_MAX_TERMS][RP_MAX_ARRAYS]);
int take_option_arrays(problem *p, call *c, origin from[RP_MAX_TERMS][RP_MAX_ARRAYS]);
int warn_of_place(const problem *p);

/* ---------------------------------------------------------------------------------------------- errors.c: of a problem */

#define WORD_MAX 128
const char *name_array(PyTypeObject *type, const char *array, char text[WORD_MAX]);
void *raise_status(const problem *p, rp_status status);
void *raise_of_term(PyTypeObject *type, rp_term_kind kind);
#pragma GCC poison rp_last_error /* its fields are those of C */

/* ---------------------------------------------------------------------------------------------- pages.c */

int take_paged(problem *p, call *c, PyObject *const *args, PyObject *pages, PyObject *len_k, origin from[3]);

/* ---------------------------------------------------------------------------------------------- calls.c */

void take_progress(call *c, PyObject *const *args, Py_ssize_t n, Py_ssize_t at);
int take_qkv(problem *p, call *c, PyObject *const *args, origin from[3], int *absent);
PyObject *attend(problem *p, call *c, PyObject *const *args, PyObject *const *option, const rp_plan *plan,
                 const rp_prepared *prepared, bool *record);
PyObject *core_attention(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *core_compute(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *core_backward(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *core_gradients(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* ---------------------------------------------------------------------------------------------- plan.c */

extern PyType_Spec plan_spec;
PyObject *core_plan(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *core_plan_call(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* ---------------------------------------------------------------------------------------------- norms.c */

PyObject *core_key_norms(PyObject *module, PyObject *const *args, Py_ssize_t n);

/* ---------------------------------------------------------------------------------------------- explain.c */

PyObject *core_row(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *core_matrix(PyObject *module, PyObject *args);
PyObject *core_bucket(PyObject *module, PyObject *args);

#endif
