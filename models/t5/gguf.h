/* gguf.h -- a .gguf file of llama.cpp as a model: names of tensors and config of a folder. Private to gguf.c
 * and model.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_GGUF_H
#define RELPOS_T5_GGUF_H

#include "t5/model.h"

/* Give the tensors of m->file the names of a checkpoint, and set m->config_text to the config.json that describes
 * them. */
rp_status t5_gguf_describe(rp_t5 *m, const char *path);
#endif
