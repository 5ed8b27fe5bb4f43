/* zip_write.c -- writes a zip archive of stored members. If a member's checksum is known only after its data,
 * the header is then completed in place in a temporary file; in a pipe, the checksum follows the data (a data
 * descriptor).
 * Source: APPNOTE.TXT 6.3.10 of PKWARE, sections 4.3 to 4.5.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/zip_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL = 30,       /* bytes of a local header, without name and extra field */
    CENTRAL = 46,     /* the same of an entry of the central directory */
    EXTRA = 4 + 24,   /* max bytes of a ZIP64 extra field: sizes and offset */
    CRC_AT = 14,      /* offset of the checksum in a local header */
    CENTRAL_CRC = 16, /* offset of the checksum in an entry of the central directory */
    LARGE = 0xffff    /* a 16-bit number that says: see the ZIP64 field */
};
#define LARGE32 UINT32_MAX /* a 32-bit number that says: see the ZIP64 field */

/* Store the low n bytes of x, the lowest first. Return the address after them. */
static unsigned char *store(unsigned char *to, uint64_t x, int n)
{
    for (int k = 0; k < n; k++)
        *to++ = (unsigned char)(x >> 8 * k);
    return to;
}

static uint64_t clamp32(uint64_t x)
{
    return x < LARGE32 ? x : LARGE32;
}

uint32_t io_crc(uint32_t crc, const void *data, size_t size)
{
    return size > 0 ? (uint32_t)crc32_z(crc, data, size) : crc;
}

/* Return true if the checksum follows the data of the member: its header is in a pipe and cannot be completed. */
static bool later(const io_zip *z)
{
    return !z->known && z->out->temp == NULL;
}

static int put(io_zip *z, const void *data, size_t size, char err[IO_ERR_MAX])
{
    z->at += size;
    return io_put(z->out, data, size, err);
}

/* Store the fields that both headers share: version to checksum, sizes and the length of the name. Every member is
 * dated 1980-01-01, the first date of zip, as NumPy does. Equal arrays then give equal files. */
static unsigned char *store_common(const io_zip *z, unsigned char *to, uint64_t bytes, bool zip64, size_t name)
{
    const uint64_t size = zip64 ? LARGE32 : bytes;
    to = store(to, zip64 ? 45 : 20, 2);            /* version needed */
    to = store(to, later(z) ? 0x0808 : 0x0800, 2); /* UTF-8 name; data descriptor */
    to = store(to, 0, 2);                          /* stored */
    to = store(to, 0, 2);                          /* 00:00 */
    to = store(to, 0x21, 2);                       /* 1980-01-01 */
    to = store(to, z->known ? z->crc : 0, 4);
    to = store(to, size, 4);
    to = store(to, size, 4);
    return store(to, name, 2);
}

/* Append the entry of the member to the central directory. */
static bool describe(io_zip *z, const char *name, size_t length)
{
    const bool zip64 = z->bytes >= LARGE32 || z->start >= LARGE32;
    const size_t need = z->size + CENTRAL + length + EXTRA;
    if (need > z->capacity) {
        const size_t capacity = 2 * need;
        unsigned char *more = realloc(z->central, capacity);
        if (more == NULL)
            return false;
        z->central = more;
        z->capacity = capacity;
    }
    z->described = z->size;
    unsigned char *to = z->central + z->size;
    to = store(to, 0x02014b50, 4);
    to = store(to, (3 << 8) + 45, 2); /* made by: Unix */
    to = store_common(z, to, z->bytes, zip64, length);
    to = store(to, zip64 ? EXTRA : 0, 2);
    to = store(to, 0, 2 + 2 + 2); /* no comment, first disk, no text */
    to = store(to, (uint64_t)0100644 << 16, 4);
    to = store(to, zip64 ? LARGE32 : z->start, 4);
    memcpy(to, name, length);
    to += length;
    if (zip64) {
        to = store(to, 1, 2);
        to = store(to, EXTRA - 4, 2);
        to = store(to, z->bytes, 8);
        to = store(to, z->bytes, 8);
        to = store(to, z->start, 8);
    }
    z->size = (size_t)(to - z->central);
    z->members++;
    return true;
}

int io_zip_begin(io_zip *z, const char *name, uint64_t bytes, const uint32_t *crc, char err[IO_ERR_MAX])
{
    const size_t length = strlen(name);
    const bool zip64 = bytes >= LARGE32;
    const size_t extra = (zip64 ? 20 : 0) + z->extra_size, header_size = LOCAL + length + extra;
    unsigned char *header = malloc(header_size),
                  *to = header; /* written at once: a killed program leaves all or nothing */
    z->start = z->at;
    z->bytes = bytes;
    z->known = crc != NULL;
    z->crc = z->known ? *crc : 0;
    if (header == NULL || !describe(z, name, length)) {
        free(header);
        return io_fail(err, z->out->path, "out of memory");
    }
    const uint64_t size = later(z) ? 0 : bytes;
    to = store(to, 0x04034b50, 4);
    to = store_common(z, to, size, zip64, length);
    to = store(to, extra, 2);
    memcpy(to, name, length);
    to += length;
    if (zip64) {
        to = store(to, 1, 2);
        to = store(to, 16, 2);
        to = store(to, size, 8);
        to = store(to, size, 8);
    }
    if (z->extra_size > 0)
        memcpy(to, z->extra, z->extra_size);
    if (z->seal_at > 0)
        store(to + z->seal_at, io_crc(0, header, header_size), 4);
    z->extra_size = z->seal_at = 0;
    const int result = put(z, header, header_size, err);
    free(header);
    return result;
}

int io_zip_put(io_zip *z, const void *data, size_t size, char err[IO_ERR_MAX])
{
    if (!z->known)
        z->crc = io_crc(z->crc, data, size);
    return put(z, data, size, err);
}

int io_zip_end(io_zip *z, char err[IO_ERR_MAX])
{
    const int width = z->bytes >= LARGE32 ? 8 : 4;
    unsigned char text[24], *to = text;
    if (z->known)
        return 0;
    store(z->central + z->described + CENTRAL_CRC, z->crc, 4);
    if (!later(z)) {
        store(text, z->crc, 4);
        return io_put_at(z->out, text, 4, (off_t)(z->start + CRC_AT), err);
    }
    to = store(to, 0x08074b50, 4);
    to = store(to, z->crc, 4);
    to = store(to, z->bytes, width);
    to = store(to, z->bytes, width);
    return put(z, text, (size_t)(to - text), err);
}

int io_zip_begin_array(io_zip *z, const io_array *array, char err[IO_ERR_MAX])
{
    char text[IO_NPY_TEXT_MAX], *name = malloc(strlen(array->name) + sizeof ".npy");
    const size_t size = io_npy_text(array, text);
    const bool has_data = array->data != NULL || array->bytes == 0;
    if (name == NULL)
        return io_fail(err, z->out->path, "out of memory");
    snprintf(name, strlen(array->name) + sizeof ".npy", "%s.npy", array->name);
    const uint32_t crc = has_data ? io_crc(io_crc(0, text, size), array->data, array->bytes) : 0;
    const int result = io_zip_begin(z, name, (uint64_t)size + array->bytes, has_data ? &crc : NULL, err);
    free(name);
    return result == 0 ? io_zip_put(z, text, size, err) : result;
}

int io_zip_array(io_zip *z, const io_array *array, char err[IO_ERR_MAX])
{
    return io_zip_begin_array(z, array, err) == 0 && io_zip_put(z, array->data, array->bytes, err) == 0
               ? io_zip_end(z, err)
               : -1;
}

int io_zip_adopt(io_zip *z, const char *name, uint64_t start, uint64_t bytes, uint32_t crc, char err[IO_ERR_MAX])
{
    z->start = start;
    z->bytes = bytes;
    z->crc = crc;
    z->known = true;
    return describe(z, name, strlen(name)) ? 0 : io_fail(err, z->out->path, "out of memory");
}

size_t io_zip_end_records(const io_zip *z, unsigned char end[IO_ZIP_END_MAX])
{
    unsigned char *to = end;
    const uint64_t start = z->at, at = start + z->size;
    if (z->members >= LARGE || start >= LARGE32 || z->size >= LARGE32) {
        to = store(to, 0x06064b50, 4);
        to = store(to, 56 - 12, 8);
        to = store(to, (3 << 8) + 45, 2);
        to = store(to, 45, 2);
        to = store(to, 0, 4 + 4);
        to = store(to, z->members, 8);
        to = store(to, z->members, 8);
        to = store(to, z->size, 8);
        to = store(to, start, 8);
        to = store(to, 0x07064b50, 4);
        to = store(to, 0, 4);
        to = store(to, at, 8);
        to = store(to, 1, 4);
    }
    const uint64_t members = z->members < LARGE ? z->members : LARGE;
    to = store(to, 0x06054b50, 4);
    to = store(to, 0, 2 + 2);
    to = store(to, members, 2);
    to = store(to, members, 2);
    to = store(to, clamp32(z->size), 4);
    to = store(to, clamp32(start), 4);
    to = store(to, 0, 2);
    return (size_t)(to - end);
}

int io_zip_finish(io_zip *z, char err[IO_ERR_MAX])
{
    unsigned char end[IO_ZIP_END_MAX];
    const size_t size = io_zip_end_records(z, end);
    return put(z, z->central, z->size, err) == 0 ? put(z, end, size, err) : -1;
}

void io_zip_free(io_zip *z)
{
    free(z->central);
}
