/* graphemes.c -- the rules for grapheme clusters of UAX #29.
 *
 * The rules that look back (GB9c, GB11 to GB13) look only at characters of the same cluster. So a search that starts at
 * a cluster needs no earlier text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/graphemes.h"
#include "tokenizer/grapheme_table.h"
#include "tokenizer/text.h"

#include <stdlib.h>

/* Properties cover planes 0 and 1 and 4096 characters of plane 14. All other characters have none. */
enum { LOW_PLANES = 0x20000, TAGS = 0xe0000, N_TAGS = 0x1000 };

static uint32_t place_of(uint32_t c)
{
    return c < LOW_PLANES ? c : c - TAGS < N_TAGS ? LOW_PLANES + (c - TAGS) : UINT32_MAX;
}

_Bool tok_graphemes_open(tok_graphemes *g)
{
    g->properties = calloc(LOW_PLANES + N_TAGS, 1);
    if (g->properties == NULL)
        return 0;
    for (uint32_t c = 0; c < 0x20; c++)
        g->properties[c] = c == '\r' ? GRAPHEME_CR : c == '\n' ? GRAPHEME_LF : GRAPHEME_CONTROL;
    g->properties[0x7f] = GRAPHEME_CONTROL;
    for (uint32_t c = 0xac00; c < 0xac00 + 11172; c++)
        g->properties[c] = (c - 0xac00) % 28 == 0 ? GRAPHEME_LV : GRAPHEME_LVT;
    for (size_t k = 0; k < sizeof(grapheme_ranges) / sizeof(grapheme_ranges[0]); k++)
        for (uint32_t c = grapheme_ranges[k].first; c <= grapheme_ranges[k].last; c++)
            if (place_of(c) != UINT32_MAX)
                g->properties[place_of(c)] = grapheme_ranges[k].property;
    return 1;
}

void tok_graphemes_free(tok_graphemes *g)
{
    free(g->properties);
    g->properties = NULL;
}

static int property(const tok_graphemes *g, uint32_t c)
{
    const uint32_t place = place_of(c);
    return place == UINT32_MAX ? GRAPHEME_ANY : g->properties[place];
}

/* The cluster so far, as far as the rules that look back need it. */
typedef struct history {
    int before;          /* category of the last character */
    bool conjunct;       /* the cluster ends in a consonant, followed only by linkers and extending characters */
    bool linked;         /* at least one of these characters is a linker */
    bool pictograph;     /* the cluster ends in a pictograph, extending characters and an optional ZWJ */
    bool odd_indicators; /* the cluster ends in an odd number of regional indicators */
} history;

static bool joins(const history *h, int after)
{
    const int before = h->before;
    if (before == GRAPHEME_CR && after == GRAPHEME_LF)
        return true;
    if ((before >= GRAPHEME_CR && before <= GRAPHEME_CONTROL) || (after >= GRAPHEME_CR && after <= GRAPHEME_CONTROL))
        return false;
    switch (after) {
    case GRAPHEME_EXTEND:
    case GRAPHEME_ZWJ:
    case GRAPHEME_SPACINGMARK: return true;
    case GRAPHEME_V:
        if (before == GRAPHEME_LV || before == GRAPHEME_V)
            return true;
        /* fall through */
    case GRAPHEME_L:
    case GRAPHEME_LV:
    case GRAPHEME_LVT: return before == GRAPHEME_L || before == GRAPHEME_PREPEND;
    case GRAPHEME_T: return (before >= GRAPHEME_V && before <= GRAPHEME_LVT) || before == GRAPHEME_PREPEND;
    case GRAPHEME_INCB_CONSONANT: return (h->conjunct && h->linked) || before == GRAPHEME_PREPEND;
    case GRAPHEME_EXTENDED_PICTOGRAPHIC: return (before == GRAPHEME_ZWJ && h->pictograph) || before == GRAPHEME_PREPEND;
    case GRAPHEME_REGIONAL_INDICATOR: return h->odd_indicators || before == GRAPHEME_PREPEND;
    default: return before == GRAPHEME_PREPEND;
    }
}

static void remember(history *h, int property)
{
    const int category = property & GRAPHEME_CATEGORY;
    if (category == GRAPHEME_INCB_CONSONANT)
        h->conjunct = true, h->linked = false;
    else if (property & GRAPHEME_INCB_LINKER)
        h->linked = true;
    else if (!(property & GRAPHEME_INCB_EXTEND))
        h->conjunct = false;
    if (category == GRAPHEME_EXTENDED_PICTOGRAPHIC)
        h->pictograph = true;
    else if (category != GRAPHEME_EXTEND && (category != GRAPHEME_ZWJ || h->before == GRAPHEME_ZWJ))
        h->pictograph = false;
    if (category == GRAPHEME_EXTEND && h->before == GRAPHEME_ZWJ)
        h->pictograph = false; /* at most one ZWJ is allowed, and only last */
    h->odd_indicators = category == GRAPHEME_REGIONAL_INDICATOR && !h->odd_indicators;
    h->before = category;
}

int64_t tok_grapheme(const tok_graphemes *g, const char *text, int64_t size)
{
    history h = {0};
    int64_t at = 0;
    while (at < size) {
        uint32_t c;
        const int n = tok_utf8(text + at, size - at, &c);
        if (n == 0)
            break;
        const int p = property(g, c);
        if (at > 0 && !joins(&h, p & GRAPHEME_CATEGORY))
            break;
        remember(&h, p);
        at += n;
    }
    return at > 0 ? at : 1;
}
