/* t5_core.h -- types and functions shared by the files of relpos.t5._core. They use only relpos/t5.h and the files
 * shared with relpos.encoder._core (python/relpos/_core/models/models.h).
 *
 *     t5_module.c    the function table
 *     t5_opened.c    open a model; its sizes and statistics
 *     text.c         texts -> tokens, tokens -> text
 *     t5_generate.c  settings, and a call of rp_t5_generate                    read this first
 *     t5_encode.c    hidden states, vectors, log-probabilities, inputs of an attention layer
 *     t5_proteins.c  residues -> tokens, their hidden states, FASTA files
 *     rows.c         sequences of tokens from arrays of Python
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PYTHON_T5_CORE_H
#define RELPOS_PYTHON_T5_CORE_H

#include "python/relpos/_core/models/models.h"
#include <relpos/t5.h>

/* ---------------------------------------------------------------------------------------------- rows.c */

/* Sequences of tokens, which refer to buffers of Python. */
typedef struct rows {
    Py_ssize_t n;
    rp_t5_tokens *tokens;
    Py_buffer *views;
    int64_t total; /* tokens of all rows */
} rows;

int take_row(PyObject *object, Py_buffer *view, rp_t5_tokens *row);
int take_rows(PyObject *sequence, rows *r);
void release_rows(rows *r);

/* ---------------------------------------------------------------------------------------------- t5_opened.c */

/* Return the sums of statistics over all successful calls of a model. */
static inline rp_t5_drafted *drafted_of(opened *m)
{
    _Static_assert(sizeof(rp_t5_drafted) <= sizeof m->sums, "room for the sums");
    return (rp_t5_drafted *)m->sums;
}

PyObject *core_open(PyObject *module, PyObject *args);
PyObject *core_info(PyObject *module, PyObject *args);
PyObject *core_drafted(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------------------------------------- text.c */

PyObject *core_tokenize(PyObject *module, PyObject *args);
PyObject *core_detokenize(PyObject *module, PyObject *args);
PyObject *core_prompt(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------------------------------------- t5_generate.c */

PyObject *core_settings(PyObject *module, PyObject *args);
PyObject *core_generate(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------------------------------------- t5_encode.c */

PyObject *core_encode(PyObject *module, PyObject *args);
PyObject *core_vector(PyObject *module, PyObject *args);
PyObject *core_score(PyObject *module, PyObject *args);
PyObject *core_attention(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------------------------------------- t5_proteins.c */

PyObject *core_residues(PyObject *module, PyObject *args);
PyObject *core_encode_residues(PyObject *module, PyObject *args);
PyObject *core_fasta(PyObject *module, PyObject *args);
PyObject *core_fasta_next(PyObject *module, PyObject *args);
PyObject *core_fasta_skip(PyObject *module, PyObject *args);

#endif
