/* zip_members.h -- finds the stored members of a zip archive in memory, without copying them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_ZIP_MEMBERS_H
#define RELPOS_IO_ZIP_MEMBERS_H

#include "io/formats.h"

typedef struct io_zip_member {
    const char *name; /* in the archive; not NUL-terminated */
    size_t name_size;
    const unsigned char *data; /* as stored: compressed if method is not 0 */
    size_t size;               /* bytes at data */
    unsigned method;           /* 0: stored */
    bool encrypted;
} io_zip_member;

/* The members, sorted by name. `members` comes from malloc. */
typedef struct io_zip_list {
    io_zip_member *members;
    size_t n;
} io_zip_list;

/* Read the directory of an archive, with or without zip64 records. Fail if a member does not lie within the archive, or
 * if two members have the same name. On failure the list is empty. */
io_status io_zip_members(const unsigned char *data, size_t size, io_zip_list *list, char why[IO_WHY_MAX]);
const io_zip_member *io_zip_find(const io_zip_list *list, const char *name, size_t name_size);

#endif
