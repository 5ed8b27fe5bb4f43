/* zip_members.c -- the directory of a zip archive in memory. libzip would copy each member; here the caller uses stored
 * members in place. The archive ends with
 *
 *     central directory | zip64 end record | zip64 locator | end record, comment
 *
 * where the zip64 records are optional. PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7 to 4.3.16 and 4.5.3.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/zip_members.h"

#include <stdlib.h>
#include <string.h>

enum { LOCAL = 30, CENTRAL = 46, END = 22, LOCATOR = 20, END64 = 56, COMMENT_MAX = 65535, ZIP64_FIELD = 1 };

static uint64_t number(const unsigned char *p, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, p, bytes); /* formats.h requires a little-endian machine */
    return value;
}

/* An archive, and where its central directory is. */
typedef struct archive {
    const unsigned char *data;
    size_t size, directory, directory_end;
    uint64_t entries;
} archive;

/* Find the end record, which is followed only by its comment. Return false if there is none. */
static bool find_end(const archive *a, size_t *end)
{
    if (a->size < END)
        return false;
    const size_t last = a->size - END, first = last > COMMENT_MAX ? last - COMMENT_MAX : 0;
    for (size_t at = last + 1; at-- > first;)
        if (memcmp(a->data + at, "PK\5\6", 4) == 0 && number(a->data + at + 20, 2) == last - at) {
            *end = at;
            return true;
        }
    return false;
}

static io_status find_directory(archive *a, char why[IO_WHY_MAX])
{
    size_t end;
    if (!find_end(a, &end))
        return io_why(why, "cut short: a zip archive ends with a directory of its members (download the file again)");
    const unsigned char *p = a->data + end;
    uint64_t size = number(p + 12, 4), begin = number(p + 16, 4);
    a->entries = number(p + 10, 2);
    if (end >= LOCATOR && memcmp(p - LOCATOR, "PK\6\7", 4) == 0) {
        const uint64_t at = number(p - LOCATOR + 8, 8);
        end -= LOCATOR;
        if (end < END64 || at > end - END64 || memcmp(a->data + at, "PK\6\6", 4) != 0)
            return io_why(why, "its zip64 record is not at byte %llu", (unsigned long long)at);
        p = a->data + at;
        a->entries = number(p + 32, 8);
        size = number(p + 40, 8);
        begin = number(p + 48, 8);
        end = (size_t)at;
    }
    if (begin > end || size > end - begin)
        return io_why(why, "its directory of %llu bytes at byte %llu is not within the archive",
                      (unsigned long long)size, (unsigned long long)begin);
    if (a->entries > size / CENTRAL || a->entries > IO_MAX_ARRAYS)
        return io_why(why, "its directory of %llu bytes would have %llu members (at most %d are supported)",
                      (unsigned long long)size, (unsigned long long)a->entries, IO_MAX_ARRAYS);
    a->directory = (size_t)begin;
    a->directory_end = (size_t)(begin + size);
    return IO_OK;
}

/* Replace fields of 32 bits that are all ones by those of the zip64 field of a directory entry. */
static void widen(const unsigned char *extra, size_t size, uint64_t *fields[3])
{
    while (size >= 4) {
        size_t length = (size_t)number(extra + 2, 2);
        length = length < size - 4 ? length : size - 4;
        const unsigned char *value = extra + 4;
        for (int f = 0; f < 3 && number(extra, 2) == ZIP64_FIELD; f++)
            if (*fields[f] == UINT32_MAX && value + 8 <= extra + 4 + length) {
                *fields[f] = number(value, 8);
                value += 8;
            }
        extra += 4 + length;
        size -= 4 + length;
    }
}

/* Find the data of a member behind its local header at byte `at`. */
static bool find_data(const archive *a, io_zip_member *m, uint64_t at, uint64_t size)
{
    if (at > a->directory || a->directory - at < LOCAL)
        return false;
    const unsigned char *local = a->data + at;
    const uint64_t begin = at + LOCAL + number(local + 26, 2) + number(local + 28, 2);
    if (memcmp(local, "PK\3\4", 4) != 0 || begin > a->directory || size > a->directory - begin)
        return false;
    m->data = a->data + begin;
    m->size = (size_t)size;
    return number(local + 26, 2) == m->name_size && memcmp(local + LOCAL, m->name, m->name_size) == 0;
}

/* Read the directory entry at byte *at, and move *at behind it. */
static io_status read_entry(const archive *a, size_t *at, io_zip_member *m, char why[IO_WHY_MAX])
{
    const unsigned char *p = a->data + *at;
    const size_t left = a->directory_end - *at;
    char safe[80], name[64];
    if (left < CENTRAL || memcmp(p, "PK\1\2", 4) != 0)
        return io_why(why, "its directory of members is damaged at byte %zu", *at);
    const size_t name_size = (size_t)number(p + 28, 2), extra = (size_t)number(p + 30, 2);
    const size_t length = CENTRAL + name_size + extra + (size_t)number(p + 32, 2);
    if (length > left)
        return io_why(why, "its directory of members is damaged at byte %zu", *at);
    uint64_t size = number(p + 24, 4), packed = number(p + 20, 4), begin = number(p + 42, 4);
    widen(p + CENTRAL + name_size, extra, (uint64_t *[3]){&size, &packed, &begin});
    *m = (io_zip_member){.name = (const char *)p + CENTRAL,
                         .name_size = name_size,
                         .method = (unsigned)number(p + 10, 2),
                         .encrypted = (p[8] & 1) != 0};
    const size_t cut = name_size < sizeof name - 1 ? name_size : sizeof name - 1;
    memcpy(name, m->name, cut);
    name[cut] = 0;
    if (m->method == 0 && size != packed)
        return io_why(why, "its member '%s' is stored, but its two sizes differ", io_safe(safe, sizeof safe, name));
    if (!find_data(a, m, begin, packed))
        return io_why(why, "its member '%s' of %llu bytes at byte %llu is not within the archive",
                      io_safe(safe, sizeof safe, name), (unsigned long long)packed, (unsigned long long)begin);
    *at += length;
    return IO_OK;
}

static int by_name(const void *a, const void *b)
{
    const io_zip_member *x = a, *y = b;
    const size_t n = x->name_size < y->name_size ? x->name_size : y->name_size;
    const int order = memcmp(x->name, y->name, n);
    return order != 0 ? order : (x->name_size > y->name_size) - (x->name_size < y->name_size);
}

const io_zip_member *io_zip_find(const io_zip_list *list, const char *name, size_t name_size)
{
    const io_zip_member key = {.name = name, .name_size = name_size};
    return list->n > 0 ? bsearch(&key, list->members, list->n, sizeof key, by_name) : NULL;
}

io_status io_zip_members(const unsigned char *data, size_t size, io_zip_list *list, char why[IO_WHY_MAX])
{
    archive a = {.data = data, .size = size};
    *list = (io_zip_list){NULL, 0};
    io_status status = find_directory(&a, why);
    if (status != IO_OK)
        return status;
    list->members = malloc(((size_t)a.entries + 1) * sizeof *list->members);
    if (list->members == NULL)
        return io_no_memory(why);
    for (size_t at = a.directory; list->n < a.entries && status == IO_OK; list->n++)
        status = read_entry(&a, &at, &list->members[list->n], why);
    if (status == IO_OK && list->n > 0)
        qsort(list->members, list->n, sizeof *list->members, by_name);
    for (size_t k = 1; k < list->n && status == IO_OK; k++)
        if (by_name(&list->members[k - 1], &list->members[k]) == 0)
            status = io_why(why, "two of its members have the same name");
    if (status != IO_OK) {
        free(list->members);
        *list = (io_zip_list){NULL, 0};
    }
    return status;
}
