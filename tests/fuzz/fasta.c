/* fasta.c -- reads the input as FASTA (plain or gzip), or as an archive that a killed program left.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/append.h"
#include "io/fasta.h"
#include "io/formats.h"
#include "tests/fuzz/fuzz.h"

enum { MAX = 5000 };

/* Read all records. Return their number; -1 after an error. *residues receives the sum of their lengths. */
static int64_t read_all(const char *path, bool keep, int64_t *residues, char err[IO_ERR_MAX])
{
    char again[IO_ERR_MAX];
    io_record r;
    int64_t n = 0, line = 0;
    int got;
    io_fasta *f = io_fasta_open(path, err);
    *residues = 0;
    PROMISE(f != NULL, "a file in memory cannot be opened: %s", err);
    while ((got = io_fasta_next(f, keep, MAX, &r, err)) == 1) {
        PROMISE(r.n >= 1 && r.n <= MAX && r.line > line, "%lld residues in line %lld", (long long)r.n,
                (long long)r.line);
        PROMISE(r.header[0] != 0 && io_utf8_all(r.header, strlen(r.header)), "a header that is not UTF-8");
        PROMISE(!keep || strspn(r.residues, "ABCDEFGHIJKLMNOPQRSTUVWXYZ*") == (size_t)r.n, "not only residues");
        line = r.line;
        *residues += r.n;
        n++;
    }
    if (got < 0) { /* go on after bad records */
        strcpy(again, err);
        while (got < 0 && io_fasta_skip(f, &r, again) == 0) {
            PROMISE(r.line >= line, "a record in line %lld", (long long)r.line);
            line = r.line;
            while ((got = io_fasta_next(f, keep, MAX, &r, again)) == 1)
                line = r.line;
        }
        got = -1;
    }
    io_fasta_close(f);
    PROMISE(got < 0 || n > 0, "a file without records was read");
    return got < 0 ? -1 : n;
}

static int look(void *context, const io_array *array, uint64_t tag, off_t at, char err[IO_ERR_MAX])
{
    (void)at;
    (void)tag;
    (void)err;
    PROMISE(array->name[0] != 0 && array->ndim >= 0 && array->ndim <= IO_MAX_AXES, "an array that is not valid");
    ++*(size_t *)context;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[IO_ERR_MAX], again[IO_ERR_MAX], note[200];
    const char *path = file_of(data, size, size);
    int64_t kept, counted;
    const int64_t n = read_all(path, true, &kept, err), m = read_all(path, false, &counted, again);
    PROMISE(n == m && kept == counted, "keeping and counting differ");
    if (n < 0) {
        refusal_is_a_line(err, sizeof err);
        PROMISE(strcmp(err, again) == 0, "two errors for one file: %s, %s", err, again);
    }
    size_t found = 0;
    io_append_end end;
    fuzz_valid += n > 0;
    if (io_append_list(path, note, sizeof note, look, &found, &end, err) != 0)
        refusal_is_a_line(err, sizeof err);
    PROMISE(found <= size / 30, "more arrays than the file has room for");
    return 0;
}
