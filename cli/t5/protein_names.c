/* protein_names.c -- a hash table of the names of proteins.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/proteins.h"
#include <stdlib.h>
#include <string.h>

/* Write the key of a header after the other keys. Return false if out of memory. */
static bool append_key(protein_names *p, const char *header, size_t length)
{
    if (p->size + length + 1 > p->capacity) {
        const size_t capacity = 2 * (p->size + length + 1);
        char *more = realloc(p->text, capacity);
        if (more == NULL)
            return false;
        p->text = more;
        p->capacity = capacity;
    }
    char *key = p->text + p->size;
    for (size_t k = 0; k < length; k++)
        key[k] = header[k] == '/' || header[k] == '.' ? '_' : header[k];
    key[length] = 0;
    return true;
}

/* Make room for one more name, and keep the table less than half full. */
static bool grow(protein_names *p)
{
    protein_name *names = io_grow(p->names, &p->room, p->n, sizeof *names);
    if (names == NULL)
        return false;
    p->names = names;
    if (2 * (p->n + 1) < p->n_slots)
        return true;
    const size_t n_slots = p->n_slots > 0 ? 2 * p->n_slots : 1024;
    size_t *slots = calloc(n_slots, sizeof *slots);
    if (slots == NULL)
        return false;
    for (size_t k = 0; k < p->n; k++) {
        size_t at = p->names[k].hash & (n_slots - 1);
        while (slots[at] != 0)
            at = (at + 1) & (n_slots - 1);
        slots[at] = k + 1;
    }
    free(p->slots);
    p->slots = slots;
    p->n_slots = n_slots;
    return true;
}

size_t protein_names_add(protein_names *p, const char *header)
{
    const size_t length = strlen(header);
    if (!append_key(p, header, length) || !grow(p))
        return SIZE_MAX;
    const char *key = p->text + p->size;
    const uint64_t hash = io_checksum(1, key, length);
    size_t at = hash & (p->n_slots - 1);
    for (; p->slots[at] != 0; at = (at + 1) & (p->n_slots - 1)) {
        const size_t found = p->slots[at] - 1;
        if (p->names[found].hash == hash && strcmp(p->text + p->names[found].text, key) == 0)
            return found;
    }
    p->names[p->n] = (protein_name){.text = p->size, .hash = hash};
    p->size += length + 1;
    p->slots[at] = ++p->n;
    return p->n - 1;
}

const char *protein_key(const protein_names *p, size_t index)
{
    return p->text + p->names[index].text;
}

void protein_names_free(protein_names *p)
{
    free(p->text);
    free(p->names);
    free(p->slots);
}
