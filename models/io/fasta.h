/* fasta.h -- reads proteins from a FASTA file, plain or compressed with gzip, one record at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_FASTA_H
#define RELPOS_IO_FASTA_H

#include "io/io.h"

typedef struct io_fasta io_fasta;

/* A record of the file, valid until the next call. */
typedef struct io_record {
    const char *header;   /* UTF-8 without control characters; not empty, and without white space at its ends */
    const char *residues; /* [n] upper-case letters and '*', NUL-terminated; NULL if they were only counted */
    int64_t n;            /* at least 1 */
    int64_t line;         /* number of the header's line, from 1 */
} io_record;

/* Return how a character of a protein is read: 'A' to 'Z', also for lower case; '*' for a stop, '*' or '.'; 0 for a
 * gap, '-', or white space, which are dropped; -1 for any other character, which is an error. */
static inline int io_residue(unsigned char c)
{
    const int upper = c & ~0x20;
    if (upper >= 'A' && upper <= 'Z')
        return upper;
    return c == '*' || c == '.' ? '*' : c == '-' || c == ' ' || (c >= '\t' && c <= '\r') ? 0 : -1;
}

/* Open a file; "-" is standard input. Directories are refused. Return NULL on failure. */
io_fasta *io_fasta_open(const char *path, char err[IO_ERR_MAX]);

enum { IO_FASTA_LONG = -2 }; /* a record with too many residues */

/* Read the next record. Lower case becomes upper case, and '.' becomes '*'; white space, '-' (gaps) and '*' at the end
 * of a protein (a stop codon) are dropped. Lines that begin with ';' are comments, and byte order marks are skipped. If
 * the file has \r and no \n, lines end with \r.
 * Any other character, a record without a name or without residues, and a protein of more than `max` residues are
 * errors with the number of the line; the rest of the record is not read. Other formats are named. Without `keep`,
 * residues are only counted, which takes no memory.
 *
 * Return 1, or 0 after the last record, or IO_FASTA_LONG, or -1. A file without records is an error. */
int io_fasta_next(io_fasta *f, bool keep, int64_t max, io_record *record, char err[IO_ERR_MAX]);

/* After io_fasta_next refused a record, read to its end, so that the next call reads the record after it. *record gets
 * its line and its header, which may be empty, cut, or contain any bytes but NUL. Return 0; or -1 if the file itself
 * cannot be read: err is then unchanged or says why. */
int io_fasta_skip(io_fasta *f, io_record *record, char err[IO_ERR_MAX]);

/* Return true if the file can be opened and read again: it is neither a pipe nor standard input. */
bool io_fasta_regular(const io_fasta *f);

void io_fasta_close(io_fasta *f); /* f may be NULL */

#endif
