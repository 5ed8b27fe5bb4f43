/* archives.h -- handmade .npy members and zip archives.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_ARCHIVES_H
#define RELPOS_TESTS_ARCHIVES_H
#include "tests/io/files.h"

HELPER uint32_t crc32_of(const unsigned char *p, size_t n)
{
    uint32_t crc = ~0u;
    while (n-- > 0) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* One member of a handmade zip archive. Its local header may differ from the central header. */
typedef struct member {
    const char *name, *local_name; /* local_name: NULL if the same as name */
    size_t name_size;              /* 0: length of the string */
    const void *data;
    size_t size;        /* size of the data in the file */
    uint32_t full_size; /* size after inflation; 0: the same as size */
    uint32_t crc;       /* 0: use the CRC of the data */
    int method, flags;
    int at; /* if not 0: write no member; the central header points to this offset */
} member;

HELPER bytes make_zip(const member *members, int n, int claimed)
{
    bytes file = {0}, central = {0};
    for (int k = 0; k < n; k++) {
        const member *m = &members[k];
        const char *local = m->local_name != NULL ? m->local_name : m->name;
        const size_t name_size = m->name_size > 0 ? m->name_size : strlen(m->name);
        const uint32_t crc = m->crc != 0 ? m->crc : crc32_of(m->data, m->size);
        bytes header = {0};
        put_int(&header, 20, 2);
        put_int(&header, (uint64_t)m->flags, 2);
        put_int(&header, (uint64_t)m->method, 2);
        put_int(&header, 0x00210000, 4);
        put_int(&header, crc, 4);
        put_int(&header, m->size, 4);
        put_int(&header, m->full_size > 0 ? m->full_size : m->size, 4);
        put_int(&header, name_size, 2);
        put_int(&header, 0, 2);
        const size_t offset = m->at > 0 ? (size_t)m->at : file.n;
        if (m->at == 0) {
            put(&file, "PK\3\4", 4);
            put(&file, header.p, header.n);
            put(&file, local, name_size);
            put(&file, m->data, m->size);
        }
        put(&central, "PK\1\2\24", 6);
        put(&central, header.p, header.n);
        put_int(&central, 0, 6);
        put_int(&central, 0, 4);
        put_int(&central, offset, 4);
        put(&central, m->name, name_size);
        free(header.p);
    }
    const size_t start = file.n;
    put(&file, central.p, central.n);
    put(&file, "PK\5\6\0\0\0", 8);
    put_int(&file, (uint64_t)claimed, 2);
    put_int(&file, (uint64_t)claimed, 2);
    put_int(&file, central.n, 4);
    put_int(&file, start, 4);
    put_int(&file, 0, 2);
    free(central.p);
    return file;
}

HELPER bytes make_npy(int version, const char *dictionary, size_t size, size_t data_size)
{
    bytes b = {0};
    put_text(&b, "\x93NUMPY");
    put_int(&b, (uint64_t)version, 2);
    put_int(&b, size, version == 1 ? 2 : 4);
    put(&b, dictionary, size);
    for (size_t n = 0; n < data_size; n++)
        put_int(&b, n + 1, 1);
    return b;
}

#define HEADER(SHAPE) "{'descr': '<f4', 'fortran_order': False, 'shape': " SHAPE ", }"

#endif
