/* core.h -- types and functions shared by the files of relpos._core. They use only the library's public headers.
 *
 *     module.c      the function table, the module's state, config()
 *     calls.c       a call from arguments to results: attention, backward          read this first
 *     derivatives.c forward and second derivatives
 *     options.c     keywords -> rp_desc, and the arrays of terms and masks
 *     arrays.c      an array of NumPy, torch or another library -> rp_array; outputs; references kept by a call
 *     torch.c       queries of torch's state, and calls redirected to Python functions
 *     threads.c     the threads of a call: the library's or torch's
 *     term.c        the type Term
 *     plan.c        the type Plan and its calls
 *     ranges.c      ranges of keys of a Plan's calls, and the arrays that go from one range to the next
 *     pages.c       keys and values in pages -> rp_pages
 *     norms.c       relpos.key_norms
 *     explanation.c relpos.explain, matrices of biases, buckets
 *     errors.c      a status of the library or a wrong type -> an exception
 *
 * The module uses the limited API of Python 3.11, so one wheel works with every later version. There is no static
 * state: everything the module keeps is in `state`, one for each interpreter. A call reads its arrays in place, creates
 * a plan (which is cheaper than looking one up), and computes without the GIL. On failure a function sets Python's
 * error and returns NULL or -1. Functions that return a PyObject return a new reference.
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

/* The keywords that select the computation, in the order in which the Python functions pass them. */
enum {
    BIAS,
    ROPE,
    RELKEY,
    RELVAL,
    SINK,
    MASKS, /* the first kind of mask; the others follow in the order of masks.def */
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
/* Additional keywords of a forward call, and of a backward call. */
enum { OUT = N_OPTIONS, RETURN_WEIGHTS, RETURN_LSE, SUMMARY, KEY_NORMS, END_FORWARD };
enum {
    FORWARD_OUT = END_FORWARD,
    FORWARD_LSE,
    LSE_GRADIENT,
    WEIGHTS_GRADIENT,
    SUMMARY_GRADIENT,
    WANTED,
    PER_SAMPLE,
    N_NAMES
};

extern const char *const option_names[N_NAMES];

/* a call keeps its arrays, and the tangents of those of terms */
enum { MAX_TYPES = 4, MAX_KEPT = 2 * RP_MAX_TERMS * RP_MAX_ARRAYS + RP_MAX_MASKS + 40 };

/* The torch functions that a call queries at its first tensor. They take no arguments and return a truth value. */
enum { MODES, TRANSFORMS, TRACING, AUTOCAST, N_QUERIES };

typedef struct state {
    PyTypeObject *term, *plan;
    PyObject *name[N_NAMES];  /* interned */
    PyObject *empty;          /* numpy.empty */
    PyObject *dtype[RP_BF16]; /* NumPy's f32, f64, f16 */
    PyObject *pools;          /* {threads: capsule}; negative keys are pools on torch's threads */
    PyObject *num_threads;    /* torch.get_num_threads; NULL before the first tensor */
    void *team;               /* GOMP_parallel of torch's OpenMP; NULL: none */
    long process;             /* the process that imported the module */
    struct {
        PyObject *type;              /* a type with an exchange API */
        const dl_exchange *exchange; /* the exchange API of `type` */
        bool own;                    /* not a class of torch: reading its attributes may run any code */
    } tensor[MAX_TYPES];             /* cache of the latest types */
    int next_tensor;                 /* the slot to replace next */
    PyObject *requires_grad, *is_neg, *grad_enabled, *current_level;
    bool team_loaded;           /* `team` and `num_threads` are set; done at the first tensor */
    bool queries_loaded;        /* the fields below are set; done at the first tensor */
    PyObject *query[N_QUERIES]; /* the queried functions of torch; NULL where torch has none */
    PyObject *forward_ad;       /* the module torch.autograd.forward_ad */
    PyObject *functional, *sdpa,
        *sdpa_name; /* torch.nn.functional, torch's scaled_dot_product_attention, and its name */
} state;

/* Convert a function to the void * of a type slot. The cast through an integer avoids a compiler warning. */
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

#define NO_GRADIENT "it requires a gradient, which relpos.attention does not compute; use .detach()"

/* ---------------------------------------------------------------------------------------------- torch.c: redirects */

/* A Python function that takes over a call. */
typedef struct function {
    const char *module, *name;
} function;
extern const function by_operator, recorded;

/* ---------------------------------------------------------------------------------------------- arrays.c */

typedef enum way { BUFFER, EXCHANGE, CAPSULE } way;

/* The object and library an array came from. make_array uses it to allocate outputs of the same kind. */
typedef struct origin {
    PyObject *object;
    way way;
    const dl_exchange *exchange;
} origin;

/* The state of one call: references and buffers it keeps until it ends, and the tensors of the library call. */
typedef struct call {
    state *st;
    int n_buffers, n_objects;
    bool torch;               /* an array is a torch tensor */
    bool grad;                /* an input requires a gradient */
    bool check_torch;         /* check at the first tensor if torch traces or transforms calls */
    bool check_autocast;      /* check for torch.autocast too; true in relpos.attention */
    bool eager;               /* no graph expects a layout of `out`; true in relpos.attention */
    bool foreign;             /* foreign code has run, or may have run, since the first view */
    const function *redirect; /* the function that takes over this call; NULL: none */
    rp_tensors t;
    Py_buffer buffer[MAX_KEPT];
    PyObject *object[MAX_KEPT]; /* owned */
    int n_views;
    struct {
        PyObject *object;            /* borrowed tensor; the view keeps no reference to its memory */
        const dl_exchange *exchange; /* NULL: none */
        const void *data;            /* the address when it was viewed */
    } view[MAX_KEPT];
    const void **pages; /* pointers to the pages of keys, then of values, then of norms */
    double next;        /* time of the next check for signals, in seconds; 0: not set yet */
    PyObject *progress; /* borrowed callback, called with the fraction done; NULL: none */
    bool raised;        /* a signal's handler, or progress, raised an exception */
    PyThreadState *thread;
} call;

/* The names of float32, float64, float16 and bfloat16 in NumPy and torch, indexed by rp_dtype. */
extern const char *const dtype_words[];

void call_start(call *c, state *st, bool check_torch);
void call_end(call *c);
int keep(call *c, PyObject *object);
int take_array(call *c, PyObject *object, bool writable, const char *name, rp_array *a, origin *o);
int take_rows(call *c, PyObject *object, const char *name, rp_array *a, origin *o);
PyObject *as_array(call *c, PyObject *object, const char *name, bool number);
int check_addresses(const call *c);
PyObject *make_array(call *c, const origin *like, rp_dtype dtype, int32_t ndim, const int64_t *shape, rp_array *a);
PyObject *shape_tuple(int32_t ndim, const int64_t *shape);
void add_axes(rp_array *a, int more);

/* ---------------------------------------------------------------------------------------------- torch.c */

bool dispatches(PyObject *type);
bool is_of_torch(PyObject *type);
int note_torch(call *c, PyObject *object, const char *name);
int note_number(call *c, PyObject *number, const char *name);
bool wants_gradient(PyObject *number);
int needs_record(const call *c);
int refuse_gradient(const call *c, const char *who, const char *instead);
#define PLAN "a Plan", "relpos.attention" /* for refuse_gradient */
int bump_version(PyObject *tensor);
PyObject *call_instead(const function *to, PyObject *const *args, Py_ssize_t n);

/* ---------------------------------------------------------------------------------------------- threads.c */

int take_pool(call *c, int64_t threads);

/* ---------------------------------------------------------------------------------------------- term.c */

/* One position term: its parameters and its array objects. relpos._terms makes a class of each kind. */
typedef struct term {
    PyObject_HEAD rp_term term;
    PyObject *text;   /* as rp_term_parse reads it: "t5,buckets=16" */
    PyObject *arrays; /* tuple of RP_MAX_ARRAYS; None where absent */
} term;

extern PyType_Spec term_spec;
PyObject *core_term_info(PyObject *module, PyObject *object);

/* ---------------------------------------------------------------------------------------------- options.c */

/* A description with its terms and masks, and the Python objects of their arrays. */
typedef struct problem {
    rp_desc desc;
    rp_term terms[RP_MAX_TERMS];
    rp_mask masks[RP_MAX_MASKS];
    term *term[RP_MAX_TERMS];     /* borrowed */
    PyObject *mask[RP_MAX_MASKS]; /* borrowed; NULL: the mask has no array */
    PyObject *q_offset;           /* borrowed array; NULL: use desc.q_offset */
    bool offset_given;            /* the caller passed q_offset */
    /* the softcap that each of the options softcap and softcap_after sets: 0: before the biases, 1: after, -1: none */
    int softcap[2];
    int64_t threads; /* 0: not given */
} problem;

int read_keywords(const state *st, PyObject *const *values, PyObject *names, int first, int end, PyObject **slot);
int read_int(PyObject *object, const char *name, int64_t *n);
int read_flag(PyObject *object, const char *name, int32_t *flag);
enum { N_SOFTCAPS = 2 };
extern const char *const softcap_names[N_SOFTCAPS];
int read_options(problem *p, call *c, PyObject *const *option);
rp_mask_kind mask_of(int option);
PyObject *core_mask_info(PyObject *module, PyObject *object);
int take_terms(problem *p, call *c, origin from[RP_MAX_TERMS][RP_MAX_ARRAYS]);
int take_option_arrays(problem *p, call *c, origin from[RP_MAX_TERMS][RP_MAX_ARRAYS]);
int warn_about_q_offset(const problem *p);

/* ----------------------------------------------------------------------------------------- errors.c: with a problem */

#define WORD_MAX 128
const char *name_array(PyTypeObject *type, const char *array, char text[WORD_MAX]);
void *raise_status(const problem *p, rp_status status);
void *raise_of_term(PyTypeObject *type, rp_term_kind kind);
#pragma GCC poison rp_last_error /* its message names C fields; use raise_status */

/* ---------------------------------------------------------------------------------------------- pages.c */

int take_paged(problem *p, call *c, PyObject *const *args, PyObject *pages, PyObject *len_k, PyObject *norms,
               origin from[3]);

/* ---------------------------------------------------------------------------------------------- ranges.c */

/* Sums that go from one range to the next. The objects are borrowed; None or NULL: not given. */
typedef struct carried {
    PyObject *in, *out;   /* arrays; out may be True */
    const char *names[2]; /* of in and out */
    bool torch;           /* out is a torch tensor of the caller */
} carried;

/* A range of rows and a range of keys of a Plan's call. */
typedef struct range {
    PyObject *key_from, *key_to, *row_from, *row_to;
    carried rows, keys; /* states or sums of dq; sums of dk and dv */
    PyObject *own_keys;
    int64_t len_q, len_k; /* lengths of the plan */
} range;

int read_range(range *r, PyObject *object, bool backward);
int take_range(const range *r, problem *p, call *c, int absent);
int take_sums(carried *s, const problem *p, call *c, const origin *like, int absent, int64_t length, int64_t width,
              rp_array *in, rp_array *out, PyObject **made);
int end_sums(const range *r);

/* ---------------------------------------------------------------------------------------------- calls.c */

/* The parts of a Plan that its calls use, and their range of keys; range is NULL for all keys. */
typedef struct planned {
    const rp_plan *plan;
    const rp_prepared *prepared;
    range *range;
} planned;

bool take_options(PyObject *from, PyObject **option);
void take_progress(call *c, PyObject *const *args, Py_ssize_t n, Py_ssize_t at);
int take_qkv(problem *p, call *c, PyObject *const *args, origin from[3], int *absent);
PyObject *make_output(call *c, const origin *like, int absent, rp_dtype dtype, int32_t ndim, const int64_t *shape,
                      rp_array *a);
rp_dtype result_type(rp_dtype dtype);
PyObject *attend_call(problem *p, call *c, PyObject *const *args, PyObject *const *option, const planned *of,
                      bool *record);
PyObject *differentiate(problem *p, call *c, PyObject *const args[4], PyObject *const *option, const planned *of);
PyObject *core_attention(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *core_compute(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *core_backward(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *core_gradients(PyObject *module, PyObject *const *args, Py_ssize_t n);
int compute(const problem *p, call *c, const rp_plan *plan, const rp_grads *g, const rp_tangents *x);
int read_wanted(PyObject *object, const problem *p, call *c, PyObject **wanted);
int take_results(call *c, PyObject *dout, PyObject *const *option, int absent, rp_grads *g);
int make_gradients(const problem *p, call *c, const origin from[3], origin array_from[RP_MAX_TERMS][RP_MAX_ARRAYS],
                   int absent, PyObject *wanted, bool per_sample, bool ranged, PyObject *part[4], rp_grads *g);
int read_per_sample(PyObject *const *option, bool *per_sample);

/* ---------------------------------------------------------------------------------------------- derivatives.c */

PyObject *core_jvp(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *core_hvp(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *core_derive(PyObject *module, PyObject *const *args, Py_ssize_t n);

/* ---------------------------------------------------------------------------------------------- plan.c */

extern PyType_Spec plan_spec;
PyObject *core_plan(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *core_plan_call(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *core_plan_backward(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *core_plan_sizes(PyObject *module, PyObject *object);

/* ---------------------------------------------------------------------------------------------- norms.c */

PyObject *core_key_norms(PyObject *module, PyObject *const *args, Py_ssize_t n);

/* ---------------------------------------------------------------------------------------------- explanation.c */

PyObject *core_row(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *core_matrix(PyObject *module, PyObject *args);
PyObject *core_bucket(PyObject *module, PyObject *args);

#endif
