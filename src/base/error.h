/* base/error.h -- the last error of a thread.
 * It may not know terms, masks or calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ERROR_H
#define RELPOS_ERROR_H
#include <relpos/relpos.h>

/* Keep one line for rp_last_error and return the status. A text names fields as C does, in this notation alone, which
 * clients have replaced by their users' words (rp_last_error_in):
 *
 *     desc.q_offset  tensors.q_offset  pages.len_k     a field; q, k, v, out and the other arrays of
 *                                                      rp_tensors by their names alone
 *     terms[0]  terms[0].left                          a term, one of its parameters
 *     term[0].table                                    one of its arrays
 *     masks[0]  masks[0].left  mask[0]                 a mask, a parameter, its array
 *
 * " (of t5)" behind a term or mask tells its kind, to readers of C. Whatever else a text says is for every user: it
 * names no type, constant or function, but for mistakes that only a C program can make. What somebody else wrote, such
 * as a name, stands between quotes, "%s", in which no field is replaced; a quote in it becomes '. */
__attribute__((format(printf, 2, 3))) rp_status rpi_fail(rp_status status, const char *format, ...);

#endif
