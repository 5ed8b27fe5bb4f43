/* json.h -- JSON read by jansson.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_JSON_H
#define RELPOS_JSON_H

#include <jansson.h>
#include <stdbool.h>

/* json_loadb; NULL with *error, and with *no_memory where memory was wanting, which says nothing of the text. */
json_t *io_json(const char *text, size_t size, size_t flags, json_error_t *error, bool *no_memory);

#endif
