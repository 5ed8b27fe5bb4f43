/* zip_write.h -- writes a zip archive of stored members, one after the other, without keeping their data in memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_ZIP_WRITE_H
#define RELPOS_IO_ZIP_WRITE_H

#include "io/formats.h"

#define IO_ZIP_END_MAX (56 + 20 + 22) /* bytes of the records at the end of an archive, with those of ZIP64 */

/* An archive that is being written. Start from {.out = out}. */
typedef struct io_zip {
    io_out *out;
    uint64_t at;            /* bytes written so far */
    unsigned char *central; /* the central directory so far */
    size_t size, capacity;  /* of `central` */
    uint64_t members;
    const void *extra; /* the caller's extra fields for the local header of the next member */
    size_t extra_size; /* at most 60,000 bytes */
    size_t seal_at;    /* offset in `extra` of 4 zeros that become the CRC-32 of the whole header; 0: none */
    /* the current member */
    uint64_t start;   /* offset of its header */
    uint64_t bytes;   /* its size */
    uint32_t crc;     /* CRC-32 of the data so far */
    bool known;       /* its header has the CRC */
    size_t described; /* offset of its entry in `central` */
} io_zip;

/* Return the CRC-32 of data that follows data with checksum `crc`; 0 at the beginning. */
uint32_t io_crc(uint32_t crc, const void *data, size_t size);

/* Begin a member of `bytes` bytes. `name` is UTF-8 of at most 65,535 bytes. *crc is the CRC-32 of the data, or NULL if
 * it is not known yet. */
int io_zip_begin(io_zip *z, const char *name, uint64_t bytes, const uint32_t *crc, char err[IO_ERR_MAX]);
/* Write the next bytes of the member. */
int io_zip_put(io_zip *z, const void *data, size_t size, char err[IO_ERR_MAX]);
/* End the member, after all of its bytes. */
int io_zip_end(io_zip *z, char err[IO_ERR_MAX]);
/* Write a member that is an array with all of its data, as NumPy does. */
int io_zip_array(io_zip *z, const io_array *array, char err[IO_ERR_MAX]);
/* Begin such a member with the header of the array; the caller puts the data. */
int io_zip_begin_array(io_zip *z, const io_array *array, char err[IO_ERR_MAX]);
/* Count a member that the file already contains: its header begins at `start`. */
int io_zip_adopt(io_zip *z, const char *name, uint64_t start, uint64_t bytes, uint32_t crc, char err[IO_ERR_MAX]);
/* Return the size of the records that follow the central directory, if that begins at z->at; they go to `end`. */
size_t io_zip_end_records(const io_zip *z, unsigned char end[IO_ZIP_END_MAX]);
/* Write the central directory and the records, which end the archive. */
int io_zip_finish(io_zip *z, char err[IO_ERR_MAX]);
void io_zip_free(io_zip *z);

#endif
