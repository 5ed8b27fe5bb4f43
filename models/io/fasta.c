/* fasta.c -- reads proteins from a FASTA file, plain or compressed by gzip.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/fasta.h"
#include "io/formats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { BLOCK = 1 << 16, HEADER_MAX = 60000, TAR = 257 /* where the mark of a tar archive is */ };

/* The bytes of the file. zlib's gzread would end without an error where bytes follow that are no gzip. */
typedef struct source {
    int fd;
    enum { UNKNOWN, PLAIN, BETWEEN, INSIDE } state; /* of compressed data: between members, or inside of one */
    bool opened;                                    /* z is to be ended */
    z_stream z;
    unsigned char bytes[2 * BLOCK]; /* z.next_in and z.avail_in are those that are left */
} source;

struct io_fasta {
    char *path;
    source file;
    bool regular;
    bool begun; /* the first header was found */
    bool bad;   /* the last record was refused, and the rest of it was not read */
    bool start; /* the next byte begins a line */
    bool old;   /* lines end with \r, as on old Macs; the block has \n in its place */
    unsigned char block[BLOCK];
    size_t at, size;     /* the next byte of the block, and its end */
    int64_t line;        /* number of the line of the next byte */
    int64_t record_line; /* number of the line of the last header */
    char *header;        /* [HEADER_MAX + 1] */
    char *residues;
    int64_t n, capacity; /* of `residues` */
};

io_fasta *io_fasta_open(const char *path, char err[IO_ERR_MAX])
{
    const bool standard = io_is_standard(path, "/dev/stdin");
    struct stat st;
    const int fd = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) != 0) {
        io_fail(err, path, "cannot be opened: %s (give a FASTA file, or - for standard input)", strerror(errno));
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    if (S_ISDIR(st.st_mode)) {
        io_fail(err, path, "it is a directory (give a FASTA file)");
        close(fd);
        return NULL;
    }
    io_fasta *f = calloc(1, sizeof *f);
    if (f != NULL) {
        f->line = 1;
        f->regular = !standard && S_ISREG(st.st_mode);
        f->path = strdup(path);
        f->header = malloc(HEADER_MAX + 1);
        f->file.fd = fd;
        f->file.z.next_in = f->file.bytes;
        if (f->path != NULL && f->header != NULL)
            return f;
    } else {
        close(fd);
    }
    io_fail(err, path, "out of memory");
    io_fasta_close(f);
    return NULL;
}

bool io_fasta_regular(const io_fasta *f)
{
    return f->regular;
}

void io_fasta_close(io_fasta *f)
{
    if (f == NULL)
        return;
    if (f->file.opened)
        inflateEnd(&f->file.z);
    close(f->file.fd);
    free(f->path);
    free(f->header);
    free(f->residues);
    free(f);
}

/* Read bytes of the file after those that are left, until there are `n`. Return false, and set errno, if that fails. */
static bool fetch(source *s, size_t n)
{
    while (s->z.avail_in < n) {
        memmove(s->bytes, s->z.next_in, s->z.avail_in);
        s->z.next_in = s->bytes;
        const ssize_t got = read(s->fd, s->bytes + s->z.avail_in, sizeof s->bytes - s->z.avail_in);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0;
        s->z.avail_in += (unsigned)got;
    }
    return true;
}

static bool at_member(const source *s)
{
    return s->z.avail_in >= 2 && s->z.next_in[0] == 0x1f && s->z.next_in[1] == 0x8b;
}

/* Begin a member of compressed data. Return a status of zlib. */
static int begin_member(source *s)
{
    const int code = s->opened ? inflateReset(&s->z) : inflateInit2(&s->z, 15 + 16); /* 16: gzip */
    s->opened = s->opened || code == Z_OK;
    s->state = INSIDE;
    return code;
}

/* Read at most `room` bytes of text. Return their number, 0 at the end, or -1 and the reason in *why. An error after
 * some bytes is found again by the next call. */
static int read_text(source *s, unsigned char *to, unsigned room, const char **why)
{
    for (;;) {
        if (!fetch(s, s->state == INSIDE ? 1 : 2)) {
            *why = strerror(errno);
            return -1;
        }
        if (s->state == UNKNOWN)
            s->state = at_member(s) ? BETWEEN : PLAIN;
        if (s->z.avail_in == 0 && s->state != INSIDE)
            return 0;
        if (s->state == PLAIN) {
            const unsigned n = s->z.avail_in < room ? s->z.avail_in : room;
            memcpy(to, s->z.next_in, n);
            s->z.next_in += n;
            s->z.avail_in -= n;
            return (int)n;
        }
        if (s->state == BETWEEN && !at_member(s)) {
            *why = "bytes that are no gzip follow the compressed data (copy the file again, or compress all of it)";
            return -1;
        }
        int code = s->state == BETWEEN ? begin_member(s) : s->z.avail_in == 0 ? Z_BUF_ERROR : Z_OK;
        s->z.next_out = to;
        s->z.avail_out = room;
        if (code == Z_OK)
            code = inflate(&s->z, Z_NO_FLUSH);
        if (code == Z_STREAM_END)
            s->state = BETWEEN;
        if (s->z.avail_out < room)
            return (int)(room - s->z.avail_out);
        if (code != Z_OK && code != Z_STREAM_END) {
            *why = code == Z_BUF_ERROR   ? "the compressed data ends too early (copy the file again)"
                   : code == Z_MEM_ERROR ? "out of memory"
                   : s->z.msg != NULL    ? s->z.msg
                                         : "damaged compressed data";
            return -1;
        }
    }
}

/* Replace every \r by \n. Return true if there was a \n. */
static bool replace_returns(unsigned char *text, size_t n)
{
    bool found = false;
    for (size_t k = 0; k < n; k++) {
        found = found || text[k] == '\n';
        text[k] = text[k] == '\r' ? '\n' : text[k];
    }
    return found;
}

/* Read more bytes after those of the block that were not taken. Return 1, or 0 at the end of the file, or -1. */
static int read_more(io_fasta *f, char err[IO_ERR_MAX])
{
    const char *why = NULL;
    memmove(f->block, f->block + f->at, f->size - f->at);
    f->size -= f->at;
    f->at = 0;
    const int n = read_text(&f->file, f->block + f->size, (unsigned)(BLOCK - f->size), &why);
    if (n > 0 && f->old && replace_returns(f->block + f->size, (size_t)n))
        return io_fail(err, f->path, "some lines end with \\r alone and some with \\n (end all with \\n)");
    f->size += n > 0 ? (size_t)n : 0;
    return n >= 0 ? n > 0 : io_fail(err, f->path, "line %lld: cannot be read: %s", (long long)f->line, why);
}

/* Read until the block has `n` more bytes, or all that are left in the file. Return false after an error. */
static bool ahead(io_fasta *f, size_t n, char err[IO_ERR_MAX])
{
    int got = 1;
    while (got > 0 && f->size - f->at < n)
        got = read_more(f, err);
    return got >= 0;
}

static bool begins_with(const io_fasta *f, const char *bytes, size_t n)
{
    return f->size - f->at >= n && memcmp(f->block + f->at, bytes, n) == 0;
}

/* Refuse other formats by name, from the first bytes of the file. */
static int check_format(io_fasta *f, char err[IO_ERR_MAX])
{
#define UTF16 "text in UTF-16 (convert it to UTF-8 with iconv -f UTF-16 -t UTF-8)"
#define UTF32 "text in UTF-32 (convert it to UTF-8 with iconv -f UTF-32 -t UTF-8)"
#define GIVE  " (give the proteins as FASTA)"
    static const struct {
        char bytes[8];
        unsigned short n, at;
        const char *what;
    } formats[] = {
        {"\xff\xfe\0\0", 4, 0, UTF32},
        {"\0\0\xfe\xff", 4, 0, UTF32},
        {"\xff\xfe", 2, 0, UTF16},
        {"\xfe\xff", 2, 0, UTF16},
        {">\0", 2, 0, UTF16}, /* without a byte order mark */
        {"\0>", 2, 0, UTF16},
        {"BZh", 3, 0, "compressed with bzip2 (decompress it with bunzip2)"},
        {"\xfd"
         "7zXZ",
         6, 0, "compressed with xz (decompress it with unxz)"},
        {"\x5d\0\0", 3, 0, "compressed with LZMA (decompress it with unlzma)"},
        {"\x28\xb5\x2f\xfd", 4, 0, "compressed with Zstandard (decompress it with unzstd)"},
        {"\x04\x22\x4d\x18", 4, 0, "compressed with LZ4 (decompress it with unlz4)"},
        {"\x2a\x4d\x18", 3, 1, "compressed with Zstandard or LZ4 (decompress it with unzstd or unlz4)"},
        {"LZIP\1", 5, 0, "compressed with lzip (decompress it with lzip -d)"},
        {"\x1f\x9d", 2, 0, "compressed with compress (decompress it with uncompress)"},
        {"\x1f\x8b", 2, 0, "compressed twice with gzip (decompress it once with gunzip)"},
        {"PK\3\4", 4, 0, "a zip archive (extract it with unzip)"},
        {"7z\xbc\xaf\x27\x1c", 6, 0, "a 7z archive (extract it with 7z x)"},
        {"Rar!\x1a\7", 6, 0, "a RAR archive (extract it with unrar x)"},
        {"ustar", 5, TAR, "a tar archive (extract it with tar -xf)"},
        {"\x89HDF\r\n", 6, 0, "HDF5" GIVE},
        {"%PDF-", 5, 0, "PDF" GIVE},
    };
    if (!ahead(f, TAR + 8, err))
        return -1;
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++)
        if (f->size - f->at >= formats[k].at + (size_t)formats[k].n &&
            memcmp(f->block + f->at + formats[k].at, formats[k].bytes, formats[k].n) == 0)
            return io_fail(err, f->path, "it is not FASTA, but %s", formats[k].what);
    return 0;
}

/* Refuse other formats of text by name, from their first bytes that are not white space. */
static int check_text(io_fasta *f, char err[IO_ERR_MAX])
{
#define CONVERT " (convert it to FASTA, for example with Biopython)"
#define PAGE    "a web page (download the file again, from its own address)"
    static const struct {
        const char *begin, *what;
    } formats[] = {
        {"@HD\t", "SAM" GIVE},
        {"@SQ\t", "SAM" GIVE},
        {"@", "FASTQ: reads with qualities (give proteins as FASTA)"},
        {"LOCUS  ", "GenBank" CONVERT},
        {"ID   ", "EMBL or UniProt text" CONVERT},
        {"CLUSTAL", "a Clustal alignment" CONVERT},
        {"MUSCLE (", "a Clustal alignment" CONVERT},
        {"# STOCKHOLM", "a Stockholm alignment" CONVERT},
        {"#NEXUS", "NEXUS" CONVERT},
        {"!!AA_", "GCG" CONVERT},
        {">P1;", "PIR" CONVERT}, /* its second line is a title */
        {">F1;", "PIR" CONVERT},
        {"HEADER  ", "PDB" CONVERT},
        {"ATOM  ", "PDB" CONVERT},
        {"REMARK  ", "PDB" CONVERT},
        {"TITLE  ", "PDB" CONVERT},
        {"MODEL  ", "PDB" CONVERT},
        {"CRYST1", "PDB" CONVERT},
        {"data_", "mmCIF" CONVERT},
        {"##gff", "GFF" GIVE},
        {"{\\rtf", "RTF (save it as plain text)"},
        {"{", "JSON" GIVE},
        {"[", "JSON" GIVE},
        {"<!DOCTYPE html", PAGE},
        {"<html", PAGE},
        {"<", "XML" GIVE},
        {"version https://git-lfs.", "a pointer of Git LFS (run git lfs pull)"},
    };
    if (!ahead(f, 32, err))
        return -1;
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        const size_t n = strlen(formats[k].begin);
        if (f->size - f->at >= n && strncasecmp((const char *)f->block + f->at, formats[k].begin, n) == 0)
            return io_fail(err, f->path, "it is not FASTA, but %s", formats[k].what);
    }
    return 0;
}

/* Find out whether lines end with \r: then the first block has \r and no \n. */
static int check_line_ends(io_fasta *f, char err[IO_ERR_MAX])
{
    int got = 1;
    while (got > 0 && f->size < BLOCK && memchr(f->block, '\n', f->size) == NULL)
        got = read_more(f, err);
    f->old = memchr(f->block, '\n', f->size) == NULL && memchr(f->block, '\r', f->size) != NULL;
    if (f->old)
        replace_returns(f->block, f->size);
    return got < 0 ? -1 : 0;
}

/* Return the next byte without taking it; -1 at the end of the file, -2 after an error. */
static int peek(io_fasta *f, char err[IO_ERR_MAX])
{
    if (f->at == f->size) {
        const int got = read_more(f, err);
        if (got <= 0)
            return got == 0 ? -1 : -2;
    }
    return f->block[f->at];
}

/* Like peek, at the start of a line, whose byte order mark is skipped. Joined files have such marks in the middle. */
static int peek_line(io_fasta *f, char err[IO_ERR_MAX])
{
    static const char mark[] = "\xef\xbb\xbf";
    const int c = peek(f, err);
    if (c != 0xef)
        return c;
    if (!ahead(f, 3, err))
        return -2;
    if (!begins_with(f, mark, 3))
        return c;
    f->at += 3;
    return peek(f, err);
}

static bool is_space(int c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Read the rest of a line. Store it in f->header without '>', if `keep`. */
static int read_header(io_fasta *f, bool keep, char err[IO_ERR_MAX])
{
    size_t n = 0;
    int c;
    f->header[0] = 0;
    f->start = false;
    while ((c = peek(f, err)) >= 0 && c != '\n') {
        f->at++;
        if (!keep || c == '>')
            continue;
        f->header[n] = 0;
        if (n == HEADER_MAX)
            return io_fail(err, f->path, "line %lld: the header is longer than %d bytes (shorten it)",
                           (long long)f->line, HEADER_MAX);
        f->header[n++] = (char)c;
    }
    if (c == -2)
        return -1;
    if (c == '\n') {
        f->at++;
        f->line++;
        f->start = true;
    }
    while (n > 0 && is_space((unsigned char)f->header[n - 1]))
        n--;
    f->header[n] = 0;
    size_t first = 0;
    while (first < n && is_space((unsigned char)f->header[first]))
        first++;
    memmove(f->header, f->header + first, n - first + 1);
    return (int)(n - first);
}

/* Check the header of a record, of n bytes. */
static int check_header(const io_fasta *f, int64_t line, size_t n, char err[IO_ERR_MAX])
{
    if (n == 0)
        return io_fail(err, f->path, "line %lld: the protein has no name (write one after the >)", (long long)line);
    if (memchr(f->header, '\r', n) != NULL)
        return io_fail(err, f->path,
                       "line %lld: the header contains a carriage return (end all lines with \\n, for example with tr "
                       "'\\r' '\\n')",
                       (long long)line);
    for (size_t k = 0; k < n; k++)
        if ((unsigned char)f->header[k] < ' ' && f->header[k] != '\t')
            return io_fail(err, f->path, "line %lld: the header contains the control character 0x%02x (remove it)",
                           (long long)line, (unsigned char)f->header[k]);
    if (!io_utf8_all(f->header, n))
        return io_fail(err, f->path, "line %lld: the header is not UTF-8 (convert the file to UTF-8)", (long long)line);
    return 0;
}

/* Append n residues. */
static int append(io_fasta *f, const unsigned char *letters, int64_t n, char err[IO_ERR_MAX])
{
    if (f->n + n >= f->capacity) {
        const int64_t capacity = 2 * (f->n + n) + 256;
        char *more = realloc(f->residues, (size_t)capacity);
        if (more == NULL)
            return io_fail(err, f->path, "line %lld: out of memory for a protein of %lld residues", (long long)f->line,
                           (long long)(f->n + n));
        f->residues = more;
        f->capacity = capacity;
    }
    memcpy(f->residues + f->n, letters, (size_t)n);
    f->n += n;
    return 0;
}

/* Report a byte that is not a residue. */
static int bad_byte(const io_fasta *f, int c, bool in_record, char err[IO_ERR_MAX])
{
    if (!in_record)
        return io_fail(err, f->path, "line %lld: no header comes before it (begin each protein with a line \">NAME\")",
                       (long long)f->line);
    if (c > ' ' && c < 127)
        return io_fail(err, f->path,
                       "line %lld: the character '%c' is not a residue (use A to Z, * or . for a stop, - for a gap)",
                       (long long)f->line, c);
    return io_fail(err, f->path,
                   "line %lld: the byte 0x%02x is not a residue (use A to Z, * or . for a stop, - for a gap)",
                   (long long)f->line, c);
}

/* Take the residues of the block up to the end of the line, in upper case and without gaps. A stop is '*' or '.';
 * *stops counts those at the end so far. */
static int take_residues(io_fasta *f, bool keep, int64_t *stops, char err[IO_ERR_MAX])
{
    unsigned char *to = f->block + f->at; /* letters are moved to the front */
    const unsigned char *first = to;
    for (; f->at < f->size; f->at++) {
        const int c = f->block[f->at], residue = io_residue((unsigned char)c);
        if (c == '\n')
            break;
        if (residue < 0)
            return bad_byte(f, c, true, err);
        if (residue > 0) {
            *to++ = (unsigned char)residue;
            *stops = residue == '*' ? *stops + 1 : 0;
        }
    }
    if (keep)
        return append(f, first, to - first, err);
    f->n += to - first;
    return 0;
}

/* Read lines up to the next header. */
static int read_residues(io_fasta *f, bool keep, int64_t max, int64_t *stops, char err[IO_ERR_MAX])
{
    char safe[100];
    int c;
    *stops = f->n = 0;
    while ((c = f->start ? peek_line(f, err) : peek(f, err)) >= 0 && !(f->start && c == '>')) {
        const bool comment = f->start && c == ';';
        f->start = false;
        if (comment) {
            for (; c >= 0 && c != '\n'; c = peek(f, err))
                f->at++;
        } else if (c != '\n' && take_residues(f, keep, stops, err) != 0) {
            return -1;
        }
        if (f->n - (*stops > 0) > max) {
            io_fail(err, f->path,
                    "line %lld: the protein %s has more than %lld residues, which is the limit (remove it)",
                    (long long)f->line, io_safe(safe, sizeof safe, f->header), (long long)max);
            return IO_FASTA_LONG;
        }
        f->start = f->at < f->size && f->block[f->at] == '\n';
        if (f->start) {
            f->at++;
            f->line++;
        }
    }
    return c == -2 ? -1 : 0;
}

/* Skip blank lines and comments before the first header. */
static int skip_front(io_fasta *f, char err[IO_ERR_MAX])
{
    int c;
    if (check_format(f, err) != 0 || check_line_ends(f, err) != 0)
        return -1;
    while ((c = peek_line(f, err)) >= 0 && c != '>') {
        if (c == ';') {
            if (read_header(f, false, err) < 0)
                return -1;
        } else if (is_space(c)) {
            f->line += c == '\n';
            f->at++;
        } else {
            return check_text(f, err) != 0 ? -1 : bad_byte(f, c, false, err);
        }
    }
    if (c == -1)
        return io_fail(err, f->path, "it has no proteins (each begins with a line \">NAME\")");
    return c == -2 ? -1 : check_text(f, err);
}

int io_fasta_next(io_fasta *f, bool keep, int64_t max, io_record *record, char err[IO_ERR_MAX])
{
    char safe[100];
    int64_t stops;
    *record = (io_record){0};
    f->bad = false;
    if (!f->begun && skip_front(f, err) != 0)
        return -1;
    f->begun = true;
    const int c = peek(f, err);
    if (c < 0)
        return c == -1 ? 0 : -1;
    f->record_line = record->line = f->line;
    f->bad = true; /* until the record is read whole */
    const int length = read_header(f, true, err);
    if (length < 0 || check_header(f, record->line, (size_t)length, err) != 0)
        return -1;
    const int read = read_residues(f, keep, max, &stops, err);
    if (read != 0)
        return read;
    f->n -= stops;
    if (f->n == 0)
        return io_fail(err, f->path, "line %lld: the protein %s has no residues (remove the record)",
                       (long long)record->line, io_safe(safe, sizeof safe, f->header));
    if (keep)
        f->residues[f->n] = 0;
    f->bad = false;
    record->header = f->header;
    record->residues = keep ? f->residues : NULL;
    record->n = f->n;
    return 1;
}

int io_fasta_skip(io_fasta *f, io_record *record, char err[IO_ERR_MAX])
{
    int c;
    *record = (io_record){0};
    if (!f->bad)
        return -1;
    while ((c = f->start ? peek_line(f, err) : peek(f, err)) >= 0 && !(f->start && c == '>')) {
        const unsigned char *end = memchr(f->block + f->at, '\n', f->size - f->at);
        f->start = end != NULL;
        f->line += f->start;
        f->at = end != NULL ? (size_t)(end + 1 - f->block) : f->size;
    }
    if (c == -2)
        return -1;
    f->bad = false;
    *record = (io_record){.header = f->header, .line = f->record_line};
    return 0;
}
