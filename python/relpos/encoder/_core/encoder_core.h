/* encoder_core.h -- functions shared by the files of relpos.encoder._core. They use only relpos/encoder.h and the files
 * shared with relpos.t5._core (python/relpos/_core/models/models.h).
 *
 *     encoder_module.c   the function table; open a model, its sizes and labels
 *     encoder_texts.c    texts and pairs -> tokens, vectors and scores              read this first
 *     encoder_tokens.c   tokens -> hidden states and logits; hidden states -> a vector
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PYTHON_ENCODER_CORE_H
#define RELPOS_PYTHON_ENCODER_CORE_H

#include "python/relpos/_core/models/models.h"
#include <relpos/encoder.h>

/* ---------------------------------------------------------------------------------------------- encoder_texts.c */

PyObject *core_tokenize(PyObject *module, PyObject *args);
PyObject *core_prompt(PyObject *module, PyObject *args);
PyObject *core_embed(PyObject *module, PyObject *args);
PyObject *core_classify(PyObject *module, PyObject *args);
PyObject *core_rerank(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------------------------------------- encoder_tokens.c */

PyObject *core_hidden(PyObject *module, PyObject *args);
PyObject *core_logits(PyObject *module, PyObject *args);
PyObject *core_vector(PyObject *module, PyObject *args);

#endif
