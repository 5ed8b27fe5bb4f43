/* json.h -- reading JSON with jansson.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_JSON_H
#define RELPOS_JSON_H

#include <jansson.h>
#include <stdbool.h>

/* json_loadb, but if memory runs out, NULL with *no_memory set: the text may be valid then. For text that is not JSON, NULL with *error. */
json_t *io_json(const char *text, size_t size, size_t flags, json_error_t *error, bool *no_memory);

#endif
