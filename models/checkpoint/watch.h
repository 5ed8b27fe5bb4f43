/* watch.h -- the progress callback of a call of a model, which may cancel the call.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_WATCH_H
#define RELPOS_CHECKPOINT_WATCH_H

#include <relpos/relpos.h>
#include <stdbool.h>
#include <stddef.h>

/* A callback. The functions also take NULL: there is no callback. */
typedef struct model_watch {
    rp_progress *progress; /* NULL: none */
    void *context;
    double from, to; /* begin and end of the current part, as fractions of the whole call */
    double fraction; /* fraction of the whole call that is done */
} model_watch;

static inline model_watch model_watch_of(rp_progress *progress, void *context)
{
    return (model_watch){progress, context, 0, 1, 0};
}

static inline void model_watch_part(model_watch *w, double from, double to)
{
    if (w != NULL)
        w->from = w->fraction = from, w->to = to;
}

/* Record that `fraction` of the current part is done. */
static inline void model_watch_at(model_watch *w, double fraction)
{
    if (w != NULL)
        w->fraction = w->from + (w->to - w->from) * fraction;
}

/* Call the callback, and return true if it cancels the call. */
static inline bool model_stopped(const model_watch *w)
{
    return w != NULL && w->progress != NULL && w->progress(w->context, w->fraction) != 0;
}

#endif
