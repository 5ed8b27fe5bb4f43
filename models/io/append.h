/* append.h -- an .npz archive that grows for hours, array by array, and survives a killed program. It is written to
 * OUT.part, which is renamed to OUT at the end. Opening it again continues it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_APPEND_H
#define RELPOS_IO_APPEND_H

#include "io/io.h"

typedef struct io_append io_append;

#define IO_APPEND_DAMAGED ((off_t)-1)

/* Called for each array that the archive already contains. `array` has a name, a type and a shape, but no data: its
 * elements are at offset `at` of the file. If its data does not match its checksum, `at` is IO_APPEND_DAMAGED and
 * the array has only a name. Return 0; or -1, after writing to err, to stop. */
typedef int io_append_found(void *context, const io_array *array, uint64_t tag, off_t at, char err[IO_ERR_MAX]);

/* What follows the intact arrays of an archive: bit for bit their directory; a damaged one, which io_append_open
 * replaces; or more bytes than that has, such as damaged arrays. Other programs may be unable to read the last two. */
typedef enum io_append_end { IO_APPEND_WHOLE, IO_APPEND_MEND, IO_APPEND_MORE } io_append_end;

/* Open the file OUT.part, or create it. If it does not exist and `from` does, begin with a copy of the arrays of `from`
 * (NULL: none). `note` describes how the arrays are made; a file with another note, or that relpos did not write, is an
 * error and stays unchanged. Only one process can have the file open. Return NULL on failure. */
io_append *io_append_open(const char *path, const char *from, const char *note, io_append_found *found, void *context,
                          char err[IO_ERR_MAX]);

/* Write an array with its data, over its damaged copy if there is one. `tag` is a number that the caller gets back from
 * io_append_found. After a failure (a full disk) the archive contains the arrays before it. */
int io_append_array(io_append *a, const io_array *array, uint64_t tag, char err[IO_ERR_MAX]);

/* Return the number of intact arrays. */
uint64_t io_append_count(const io_append *a);

/* Write the directory of the archive after the last array, so that other programs can open the file, and sync the file.
 * The next array replaces the directory. */
int io_append_flush(io_append *a, char err[IO_ERR_MAX]);

/* Close the file after a flush, synced. If `to` is not NULL, rename it to that path. */
int io_append_close(io_append *a, const char *to, char err[IO_ERR_MAX]);

/* Close the file and remove it. */
void io_append_remove(io_append *a);

/* Call found for each array of a complete archive, or of the complete members of OUT.part. note[note_size] receives
 * its note, "" if it has none; *end, unless `end` is NULL, what follows the intact arrays. */
int io_append_list(const char *path, char *note, size_t note_size, io_append_found *found, void *context,
                   io_append_end *end, char err[IO_ERR_MAX]);

#endif
