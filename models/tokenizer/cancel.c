/* cancel.c -- asks the caller whether to cancel the encoding of a text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

bool tok_ask(tok_work *w)
{
    w->until_asked = 1 << 20; /* bytes between calls of the callback, a few tens of milliseconds */
    w->stopped = w->stopped || (w->cancelled != NULL && w->cancelled(w->context) != 0);
    return !w->stopped;
}
