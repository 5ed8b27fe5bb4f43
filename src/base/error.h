/* base/error.h -- the last error of a thread. Independent of terms, masks and calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ERROR_H
#define RELPOS_ERROR_H
#include <relpos/relpos.h>

/* Store a one-line message for rp_last_error and return the status. Messages name fields in the notation below;
 * rp_last_error_in replaces it by the names that a client program uses.
 *
 *     desc.q_offset  tensors.q_offset  pages.len_k     a field; arrays of rp_tensors such as q, k, v, out
 *                                                      have no prefix
 *     terms[0]  terms[0].left                          a term, one of its parameters
 *     term[0].table                                    one of its arrays
 *     masks[0]  masks[0].left  mask[0]                 a mask, a parameter, its array
 *
 * Append " (of t5)" to a term or mask to show its kind. The rest of a message must suit users of all client programs:
 * name C types, constants or functions only for mistakes that only a C program can make. Quote text from users, such as
 * names: "%s". Fields inside quotes are not replaced, and quotes in the text become '. */
__attribute__((format(printf, 2, 3))) rp_status rpi_fail(rp_status status, const char *format, ...);

#endif
