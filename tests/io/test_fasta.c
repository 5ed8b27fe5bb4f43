/* test_fasta.c -- reads FASTA files in whole and in small blocks, and archives that grow array by array.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/append.h"
#include "io/fasta.h"
#include "io/zip_write.h"
#include "tests/io/files.h"

/* Read a FASTA text. Return "header=RESIDUES@line " for each record, then the error if there is one. */
static const char *read_text(const char *text, size_t n, bool keep, int64_t max)
{
    static char found[4096];
    io_record r;
    const char *path = in_dir("x.fasta");
    save(path, text, n);
    io_fasta *f = io_fasta_open(path, err);
    assert_non_null(f);
    found[0] = 0;
    int got;
    while ((got = io_fasta_next(f, keep, max, &r, err)) == 1) {
        const size_t at = strlen(found);
        if (keep)
            snprintf(found + at, sizeof found - at, "%s=%s@%d ", r.header, r.residues, (int)r.line);
        else
            snprintf(found + at, sizeof found - at, "%s=%d@%d ", r.header, (int)r.n, (int)r.line);
    }
    if (got < 0)
        snprintf(found + strlen(found), sizeof found - strlen(found), "! %s", err + strlen(path) + 2);
    io_fasta_close(f);
    return found;
}

static void becomes(const char *text, const char *expected)
{
    assert_string_equal(read_text(text, strlen(text), true, 1000), expected);
}

static void test_records(void **state)
{
    (void)state;
    becomes(">a\nMK\n>b\nL\n", "a=MK@1 b=L@3 ");
    becomes("\n\n; comment\n>a b \t\r\nmk\r\n;>c\n\n l-V* \n", "a b=MKLV@4 ");
    becomes(">a\nM*K**\n*", "a=M*K@1 ");
    becomes("> > x>y\nM", "xy=M@1 "); /* prott5_embedder.py removes every > of a header */
    becomes(">a>b\nM\n>c\nK", "ab=M@1 c=K@3 ");
    becomes(">a\nM.K.*.\n", "a=M*K@1 "); /* both are stops */
    becomes(">a\n.\nM\n.", "a=*M@1 ");
    becomes("\xef\xbb\xbf>a\nM\n", "a=M@1 "); /* a byte order mark, also of files that were joined */
    becomes("\xef\xbb\xbf\n;c\n>a\nM\n\xef\xbb\xbf>b\n\xef\xbb\xbf"
            "K\n",
            "a=M@3 b=K@5 ");
    becomes(">\xce\xb1\nM", "\xce\xb1=M@1 ");
    const char *text = ">a\nMK\nL\n>b\nM";
    assert_string_equal(read_text(text, strlen(text), false, 3), "a=3@1 b=1@4 ");
}

static void test_refusals(void **state)
{
    (void)state;
    becomes(">a\nMKL\n>b\n>c\nM", "a=MKL@1 ! line 3: the protein b has no residues (remove the record)");
    becomes("M", "! line 1: no header comes before it (begin each protein with a line \">NAME\")");
    becomes("\xef\xbb\xbf", "! it has no proteins (each begins with a line \">NAME\")");
    becomes("\xef\xbbM", "! line 1: no header comes before it (begin each protein with a line \">NAME\")");
    becomes(">a\nM\xef\xbb\xbfK",
            "! line 2: the byte 0xef is not a residue (use A to Z, * or . for a stop, - for a gap)");
    becomes(">a\nM>K\n>b\nM",
            "! line 2: the character '>' is not a residue (use A to Z, * or . for a stop, - for a gap)");
    becomes(">a\nM >b\nM", "! line 2: the character '>' is not a residue (use A to Z, * or . for a stop, - for a gap)");
    becomes(">a\nM>K", "! line 2: the character '>' is not a residue (use A to Z, * or . for a stop, - for a gap)");
    const char *text = ">a\nMK\nL\n";
    assert_string_equal(read_text(text, strlen(text), true, 2),
                        "! line 3: the protein a has more than 2 residues, which is the limit (remove it)");
    assert_string_equal(read_text(">a\nM\0", 5, true, 9),
                        "! line 2: the byte 0x00 is not a residue (use A to Z, * or . for a stop, - for a gap)");
    assert_null(io_fasta_open(in_dir("none"), err));
    assert_null(io_fasta_open(dir, err));
}

/* Files of other formats are refused by name. */
static void test_formats(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } cases[] = {
        {"\xff\xfe>\0a\0\n\0M\0", 10, "! it is not FASTA, but text in UTF-16 (convert"},
        {"\xfe\xff\0>\0a\0\n\0M", 10, "! it is not FASTA, but text in UTF-16 (convert"},
        {">\0a\0\n\0M\0", 8, "! it is not FASTA, but text in UTF-16 (convert"},
        {"\0>\0a\0\n\0M", 8, "! it is not FASTA, but text in UTF-16 (convert"},
        {"\xff\xfe\0\0>\0\0\0", 8, "! it is not FASTA, but text in UTF-32 (convert"},
        {"\0\0\xfe\xff\0\0\0>", 8, "! it is not FASTA, but text in UTF-32 (convert"},
        {"BZh91AY&SY", 10, "! it is not FASTA, but compressed with bzip2 (decompress it with bunzip2)"},
        {"\xfd"
         "7zXZ\0\0\4",
         8, "! it is not FASTA, but compressed with xz (decompress it with unxz)"},
        {"\x28\xb5\x2f\xfd\x24", 5, "! it is not FASTA, but compressed with Zstandard (decompress it with unzstd)"},
        {"\x04\x22\x4d\x18", 4, "! it is not FASTA, but compressed with LZ4 (decompress it with unlz4)"},
        {"\x1f\x9d\x90", 3, "! it is not FASTA, but compressed with compress (decompress it with uncompress)"},
        {"PK\3\4\24\0", 6, "! it is not FASTA, but a zip archive (extract it with unzip)"},
        {"7z\xbc\xaf\x27\x1c", 6, "! it is not FASTA, but a 7z archive (extract it with 7z x)"},
        {"@read\nACGT\n+\nIIII\n", 19, "! it is not FASTA, but FASTQ: reads with qualities (give proteins as FASTA)"},
        {"\xef\xbb\xbf\n@read\nACGT\n+\nIIII\n", 23, "! it is not FASTA, but FASTQ"},
        {"\x5d\0\0\x80\0\xff\xff\xff\xff", 9,
         "! it is not FASTA, but compressed with LZMA (decompress it with unlzma)"},
        {"\x5d\0\0\0\4\x0b\0\0\0", 9, "! it is not FASTA, but compressed with LZMA"},
        {"\x5b\x2a\x4d\x18\1\0\0\0x", 9, "! it is not FASTA, but compressed with Zstandard or LZ4"},
        {"LZIP\1\x0c", 6, "! it is not FASTA, but compressed with lzip (decompress it with lzip -d)"},
        {"Rar!\x1a\7\1", 7, "! it is not FASTA, but a RAR archive (extract it with unrar x)"},
        {"\x89HDF\r\n\x1a\n", 8, "! it is not FASTA, but HDF5 (give the proteins as FASTA)"},
        {"%PDF-1.4\n", 9, "! it is not FASTA, but PDF (give the proteins as FASTA)"},
    };
    static const struct {
        const char *text, *words;
    } texts[] = {
        {"LOCUS       AAA 10 aa\n", "GenBank (convert it to FASTA, for example with Biopython)"},
        {"ID   001R_FRG3G  Reviewed; 256 AA.\n", "EMBL or UniProt text (convert"},
        {"CLUSTAL W (1.83) multiple sequence alignment\n\na MKV\n", "a Clustal alignment (convert"},
        {"CLUSTALW\n\na MKV\n", "a Clustal alignment (convert"},
        {"MUSCLE (3.8) multiple sequence alignment\n", "a Clustal alignment (convert"},
        {"# STOCKHOLM 1.0\na MKV\n//\n", "a Stockholm alignment (convert"},
        {"#NEXUS\n", "NEXUS (convert"},
        {"!!AA_MULTIPLE_ALIGNMENT 1.0\n", "GCG (convert"},
        {">P1;CRAB\nALPHA CRYSTALLIN\nMDIT*\n", "PIR (convert"},
        {">F1;CRAB\nALPHA CRYSTALLIN\nMDIT*\n", "PIR (convert"},
        {"HEADER    OXYGEN TRANSPORT\n", "PDB (convert"},
        {"ATOM      1  N   MET A   1\n", "PDB (convert"},
        {"REMARK   1\n", "PDB (convert"},
        {"TITLE     X\n", "PDB (convert"},
        {"MODEL        1\n", "PDB (convert"},
        {"CRYST1   10\n", "PDB (convert"},
        {"data_1ABC\n#\n", "mmCIF (convert"},
        {"##gff-version 3\n", "GFF (give the proteins as FASTA)"},
        {"@HD\tVN:1.6\n", "SAM (give the proteins as FASTA)"},
        {"@SQ\tSN:x\n", "SAM (give the proteins as FASTA)"},
        {"{\"a\": \"MKV\"}\n", "JSON (give the proteins as FASTA)"},
        {"[\"MKV\"]\n", "JSON (give the proteins as FASTA)"},
        {"{\\rtf1\\ansi", "RTF (save it as plain text)"},
        {"<!DOCTYPE html>\n", "a web page (download the file again, from its own address)"},
        {"<!doctype HTML>\n", "a web page (download"},
        {"<HTML><body>", "a web page (download"},
        {"<?xml version=\"1.0\"?>", "XML (give the proteins as FASTA)"},
        {"<uniprot>", "XML (give the proteins as FASTA)"},
        {"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS (run git lfs pull)"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const char *found = read_text(cases[k].bytes, cases[k].n, k % 2 == 0, 1000);
        if (strncmp(found, cases[k].words, strlen(cases[k].words)) != 0)
            fail_msg("%s: %s", cases[k].words, found);
    }
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        for (int before = 0; before < 3; before++) {
            char text[200], words[200];
            snprintf(text, sizeof text, "%s%s",
                     before == 0   ? ""
                     : before == 1 ? "\xef\xbb\xbf"
                                   : " \r\n",
                     texts[k].text);
            snprintf(words, sizeof words, "! it is not FASTA, but %s", texts[k].words);
            const char *found = read_text(text, strlen(text), before == 0, 1000);
            if (strncmp(found, words, strlen(words)) != 0)
                fail_msg("%s: %s", words, found);
        }
    char tar[1024] = "proteins.fasta"; /* the name of the first file */
    memcpy(tar + 257, "ustar", 5);
    memcpy(tar + 512, ">a\nMKV\n", 7);
    const char *words = "! it is not FASTA, but a tar archive (extract it with tar -xf)";
    assert_int_equal(strncmp(read_text(tar, sizeof tar, true, 1000), words, strlen(words)), 0);
}

/* Files of old Macs end their lines with \r. A file may not mix that with \n. */
static void test_line_ends(void **state)
{
    enum { BLOCK = 1 << 16 };
    (void)state;
    becomes(">a b\rMK\r>c\rL", "a b=MK@1 c=L@3 ");
    becomes("\r; comment\r\r>a\rM K\r-\rL\r\r>b\rV*\r", "a=MKL@4 b=V@9 ");
    becomes("\xef\xbb\xbf>a\rM\r\xef\xbb\xbf>b\rK", "a=M@1 b=K@3 ");
    becomes(">a\rMKV", "a=MKV@1 ");
    becomes(">a\r\nM\r\n>b\r\r\nK\r\rV\r\n", "a=M@1 b=KV@3 ");
    char *text = malloc(2 * BLOCK); /* a comment that fills the first block */
    memset(text, 'x', BLOCK);
    strcpy(text + BLOCK, "\n>a\nM\n");
    text[0] = ';';
    becomes(text, "a=M@2 ");
    free(text);
    becomes(
        ">a x\rMORE\nMKV\n",
        "! line 1: the header contains a carriage return (end all lines with \\n, for example with tr '\\r' '\\n')");
    for (int shift = -3; shift <= 3; shift++)
        for (int last = 0; last < 2; last++) {
            const size_t n = (size_t)(BLOCK + shift), size = n + 8;
            text = malloc(size + 1);
            memset(text, 'A', size);
            memcpy(text, ">x\r", 3);
            memcpy(text + n, "\rC\r>y\rM", 7);
            text[size - 1] = last ? '\n' : '\r';
            save(in_dir("m.fasta"), text, size);
            io_record r;
            io_fasta *f = io_fasta_open(in_dir("m.fasta"), err);
            const int got = io_fasta_next(f, true, 2 * BLOCK, &r, err);
            if (last) {
                assert_int_equal(got, -1);
                assert_non_null(strstr(err, "some lines end with \\r alone and some with \\n (end all with \\n)"));
            } else {
                assert_int_equal(r.n, n - 2);
                assert_int_equal(io_fasta_next(f, true, 2 * BLOCK, &r, err), 1);
                assert_int_equal(r.line, 4);
                assert_int_equal(io_fasta_next(f, true, 2 * BLOCK, &r, err), 0);
            }
            io_fasta_close(f);
            free(text);
        }
}

/* After a bad record, the reader goes on to the next one, also where the fault is at the border of a block. */
static void test_skip(void **state)
{
    static const struct {
        const char *record, *words;
        int64_t lines;
    } cases[] = {
        {">b\nM1K\nL>K\n", "line 3: the character '1' is not a residue", 3},
        {">b\nM>K\n", "line 3: the character '>'", 2},
        {">b\n", "line 2: the protein b has no residues", 1},
        {">b\n*.\n\n", "line 2: the protein b has no residues", 3},
        {">\nM\n", "line 2: the protein has no name", 2},
        {">b\x01\nM\n", "line 2: the header contains the control character 0x01", 2},
        {">b\xff\nM\n", "line 2: the header is not UTF-8", 2},
        {">b\nAAAAAAAAA\nAAAAA\n;x\nA\n", "line 4: the protein b has more than 12 residues", 5},
        {">b\nAAAAAAAAAAAAA\n", "line 3: the protein b has more than 12 residues", 2},
    };
    enum { BLOCK = 1 << 16 };
    io_record r;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int keep = 0; keep < 2; keep++)
            for (int before = 0; before < 40; before++) {
                const size_t first = before == 0 ? 0 : (size_t)(BLOCK - before);
                char *text = malloc(BLOCK + 200);
                memset(text, 'x', BLOCK);
                text[0] = ';'; /* a comment, of many bytes unless before is 0 */
                strcpy(text + first, before > 0 ? "\n" : ";\n");
                sprintf(text + strlen(text), "%s>c d\nKK\n", cases[k].record);
                save(in_dir("s.fasta"), text, strlen(text));
                io_fasta *f = io_fasta_open(in_dir("s.fasta"), err);
                const int got = io_fasta_next(f, keep, 12, &r, err);
                assert_int_equal(got, strstr(cases[k].words, "more than") != NULL ? IO_FASTA_LONG : -1);
                if (strstr(err, cases[k].words) == NULL)
                    fail_msg("%s, not %s", err, cases[k].words);
                assert_int_equal(io_fasta_skip(f, &r, err), 0);
                assert_int_equal(r.line, 2);
                assert_int_equal(r.header[0], cases[k].record[1] == '\n' ? 0 : 'b');
                assert_int_equal(io_fasta_skip(f, &r, err), -1); /* nothing is left to skip */
                assert_int_equal(io_fasta_next(f, keep, 12, &r, err), 1);
                assert_string_equal(r.header, "c d");
                assert_int_equal(r.n, 2);
                assert_int_equal(r.line, 2 + cases[k].lines);
                assert_int_equal(io_fasta_next(f, keep, 12, &r, err), 0);
                io_fasta_close(f);
                free(text);
            }
    char *text = malloc(60100); /* a header that is too long */
    memset(text, 'h', 60100);
    memcpy(text, ">b", 2);
    memcpy(text + 60080, "\nM\n>c\nK", 7);
    save(in_dir("s.fasta"), text, 60087);
    io_fasta *f = io_fasta_open(in_dir("s.fasta"), err);
    assert_int_equal(io_fasta_next(f, true, 12, &r, err), -1);
    assert_int_equal(io_fasta_skip(f, &r, err), 0);
    assert_int_equal(strlen(r.header), 60000);
    assert_int_equal(io_fasta_next(f, true, 12, &r, err), 1);
    assert_string_equal(r.residues, "K");
    io_fasta_close(f);
    free(text);
    save(in_dir("s.fasta"), "MK", 2); /* a fault of the file, not of a record */
    f = io_fasta_open(in_dir("s.fasta"), err);
    assert_int_equal(io_fasta_next(f, true, 12, &r, err), -1);
    assert_int_equal(io_fasta_skip(f, &r, err), -1);
    io_fasta_close(f);
}

/* A record that is longer than the reader's block, with a line end on each side of its border. */
static void test_blocks(void **state)
{
    (void)state;
    enum { BLOCK = 1 << 16 };
    for (int shift = -3; shift <= 3; shift++) {
        const int n = BLOCK + shift;
        char *text = malloc((size_t)n + 100);
        memset(text, 'A', (size_t)n + 100);
        memcpy(text, ">x\n", 3);
        memcpy(text + n, "\n;c\nC\n>y\nM", 10);
        save(in_dir("y.fasta"), text, (size_t)n + 10);
        io_record r;
        io_fasta *f = io_fasta_open(in_dir("y.fasta"), err);
        assert_int_equal(io_fasta_next(f, true, n, &r, err), 1);
        assert_int_equal(r.n, n - 2);
        assert_int_equal(strspn(r.residues, "A"), n - 3);
        assert_int_equal(r.residues[n - 3], 'C');
        assert_int_equal(io_fasta_next(f, false, n, &r, err), 1);
        assert_int_equal(r.line, 5);
        assert_int_equal(io_fasta_next(f, true, n, &r, err), 0);
        io_fasta_close(f);
        free(text);
    }
}

/* ------------------------------------------------------------------------------------------------ archives */

static int n_syncs;

/* Replaces the function of libc: thousands of files are written here, and the tests count the calls. */
int fsync(int fd)
{
    n_syncs += fcntl(fd, F_GETFD) >= 0;
    return 0;
}

enum { MAX_ARRAYS = 8 };

/* What an archive already has. */
typedef struct having {
    bool has[MAX_ARRAYS];
    int n, n_damaged;
} having;

static int count(void *context, const io_array *array, uint64_t tag, off_t at, char why[IO_ERR_MAX])
{
    having *h = context;
    int k = -1;
    (void)why;
    assert_int_equal(sscanf(array->name, "array%d", &k), 1);
    assert_true(k >= 0 && k < MAX_ARRAYS);
    assert_int_equal(tag, 7 + k);
    assert_false(h->has[k]);
    if (at == IO_APPEND_DAMAGED) {
        h->n_damaged++;
        return 0;
    }
    assert_true(at > 0);
    assert_int_equal(array->ndim, 1);
    assert_int_equal(array->shape[0], 3 + k);
    h->has[k] = true;
    h->n++;
    return 0;
}

/* Write the array `k`. */
static int append(io_append *a, int k)
{
    static const float numbers[100] = {1, 2, 3, 4, 5, 6, 7, 8};
    char name[24];
    int64_t size = 3 + k;
    snprintf(name, sizeof name, "array%d", k);
    const io_array array = {.name = name,
                            .dtype = RP_F32,
                            .ndim = 1,
                            .shape = &size,
                            .bytes = 4 * (size_t)size,
                            .data = (void *)(uintptr_t)numbers,
                            .borrowed = true};
    return io_append_array(a, &array, (uint64_t)(7 + k), err);
}

/* Add the arrays of 0 … n - 1 that the archive lacks, and close it. Return what it had; n is -1 if it was refused. */
static having add_lacking(const char *path, const char *from, int n, bool flush, const char *to)
{
    having h = {.n = 0};
    errno = EWOULDBLOCK; /* of an earlier call: only that of a failed lock counts */
    io_append *a = io_append_open(path, from, "a note", count, &h, err);
    if (a == NULL)
        return (having){.n = -1};
    assert_int_equal(io_append_count(a), h.n);
    for (int k = 0; k < n; k++) {
        if (h.has[k])
            continue;
        assert_int_equal(append(a, k), 0);
        if (flush) {
            n_syncs = 0;
            assert_int_equal(io_append_flush(a, err), 0);
            assert_true(n_syncs == 1 || n_syncs == 2); /* the file, and its folder once */
        }
    }
    n_syncs = 0;
    const uint64_t written = io_append_count(a);
    assert_int_equal(io_append_close(a, to, err), 0);
    assert_true(n_syncs > 0 || (written == 0 && to == NULL)); /* also if the run is only stopped */
    return h;
}

/* As add_lacking, for an archive that is not damaged. */
static int add(const char *path, const char *from, int n, bool flush, const char *to)
{
    const having h = add_lacking(path, from, n, flush, to);
    if (h.n < 0)
        fail_msg("%s", err);
    assert_int_equal(h.n_damaged, 0);
    return h.n;
}

static void check_archive(const char *path, size_t n)
{
    io_set set;
    if (io_read(path, &set, NULL, err) != IO_OK)
        fail_msg("%s", err);
    assert_int_equal(set.n_arrays, n);
    io_free(&set);
}

static void test_append(void **state)
{
    (void)state;
    const char *part = in_dir("a.npz.part"), *out = in_dir("a.npz");
    assert_int_equal(add(part, out, 3, false, NULL), 0);
    check_archive(part, 3);
    assert_int_equal(add(part, out, 5, true, NULL), 3);
    check_archive(part, 5);
    assert_int_equal(add(part, out, 6, false, out), 5);
    check_archive(out, 6);
    assert_int_equal(access(part, F_OK), -1);
    assert_int_equal(add(part, out, 8, true, out), 6); /* begins with a copy */
    check_archive(out, 8);
    assert_int_equal(add(part, NULL, 0, false, NULL), 0); /* nothing was added: no file */
    assert_int_equal(access(part, F_OK), -1);
}

static void check_same(const char *path, const void *wanted, size_t n)
{
    const bytes found = load_file(path);
    assert_int_equal(found.n, n);
    assert_memory_equal(found.p, wanted, n);
    free(found.p);
}

/* When an array does not fit into a limit on file sizes, wherever that is, the archive has the arrays before it, and
 * goes on after them. */
static void test_limit(void **state)
{
    (void)state;
    const char *part = in_dir("limit.part"), *out = in_dir("limit.npz");
    having h = {.n = 0};
    struct rlimit old, limit;
    struct stat before;
    add(part, NULL, 3, false, out);
    const bytes whole = load_file(out);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t more = 0; more < 60; more += 7) {
        io_append *a = io_append_open(part, NULL, "a note", count, &h, err);
        assert_non_null(a);
        assert_int_equal(append(a, 0), 0);
        assert_int_equal(append(a, 1), 0);
        assert_int_equal(stat(part, &before), 0);
        limit.rlim_cur = (rlim_t)before.st_size + more;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        const int result = append(a, 2);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(result, -1);
        assert_non_null(strstr(err, "File too large"));
        assert_int_equal(io_append_count(a), 2);
        assert_int_equal(append(a, 2), 0);
        assert_int_equal(io_append_close(a, out, err), 0);
        check_same(out, whole.p, whole.n);
    }
    signal(SIGXFSZ, SIG_DFL);
    free(whole.p);
}

/* Wherever the file ends after its first header, the arrays before that are found, and the rest can be added. A shorter
 * file may be anyone's. */
static void test_cut(void **state)
{
    (void)state;
    const char *out = in_dir("whole.npz"), *part = in_dir("cut.part"), *second = in_dir("cut.npz");
    add(in_dir("whole.part"), NULL, 4, false, out);
    const bytes whole = load_file(out);
    const size_t header = 30 + strlen("array0.npy") + 16 + strlen("a note");
    int before = 0;
    for (size_t size = 0; size <= whole.n; size++) {
        save(part, whole.p, size);
        const having h = add_lacking(part, NULL, 4, false, second);
        if (size > 0 && size < header) {
            assert_int_equal(h.n, -1);
            assert_non_null(strstr(err, "cut.part: it exists, and this command did not write it"));
            check_same(part, whole.p, size);
            continue;
        }
        assert_true(h.n >= before);
        before = h.n;
        check_same(second, whole.p, whole.n);
    }
    assert_int_equal(before, 4);
    free(whole.p);
}

/* With a bit of any byte changed, and with 100 bytes set to zero anywhere, the arrays that are intact stay, the others
 * can be added again, and the file has the bytes of an undisturbed run; or it is refused and unchanged. Archives begin
 * with OUT.part, or with a copy of OUT. */
static void test_damage(void **state)
{
    (void)state;
    enum { BIT, BIT_OF_COPY, ZEROS };
    const char *out = in_dir("whole.npz"), *part = in_dir("hurt.part"), *second = in_dir("hurt.npz");
    add(in_dir("whole.part"), NULL, 4, false, out);
    const bytes whole = load_file(out);
    unsigned char *hurt = malloc(whole.n);
    int refused = 0, repaired = 0, one_again = 0;
    for (size_t at = 0; at < whole.n; at++)
        for (int how = BIT; how <= ZEROS; how++) {
            memcpy(hurt, whole.p, whole.n);
            if (how != ZEROS)
                hurt[at] ^= (unsigned char)(1 << at % 8);
            else
                memset(hurt + at, 0, whole.n - at < 100 ? whole.n - at : 100);
            const bool copied = how == BIT_OF_COPY;
            save(copied ? second : part, hurt, whole.n);
            const having h = add_lacking(part, copied ? second : NULL, 4, false, second);
            if (h.n < 0) {
                check_same(copied ? second : part, hurt, whole.n);
                refused++;
                unlink(second);
                unlink(part);
                continue;
            }
            repaired += h.n < 4;
            one_again += h.n == 3 && h.n_damaged == 1;
            check_same(second, whole.p, whole.n);
            unlink(second);
        }
    assert_true(refused >= 1);         /* the first signature, or an identifier that says who wrote a member */
    assert_true(one_again >= 4 * 100); /* the other arrays stay */
    assert_true(repaired >= one_again + 4 * 100);
    assert_true((size_t)refused <= whole.n);
    free(hurt);
    free(whole.p);
}

/* With any bit of the file changed, or without its end, or with more after it, a list either fails, or lacks an array,
 * or says what is wrong. A program that has nothing to add then knows whether others can read the file. */
static void test_list(void **state)
{
    (void)state;
    const char *out = in_dir("whole.npz"), *hurt = in_dir("hurt.npz");
    add(in_dir("whole.part"), NULL, 4, false, out);
    const bytes whole = load_file(out);
    unsigned char *copy = malloc(whole.n + 1);
    size_t mended = 0;
    for (size_t bit = 0; bit <= 8 * whole.n + 2; bit++) {
        const size_t size = bit < 8 * whole.n ? whole.n : whole.n + 1 - (bit - 8 * whole.n);
        char note[20];
        io_append_end end = IO_APPEND_MORE;
        having h = {.n = 0};
        memcpy(copy, whole.p, whole.n);
        copy[whole.n] = 0;
        if (bit < 8 * whole.n)
            copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
        save(hurt, copy, size);
        const bool ours = io_append_list(hurt, note, sizeof note, count, &h, &end, err) == 0 && note[0] != 0;
        const bool same = size == whole.n && memcmp(copy, whole.p, size) == 0;
        assert_int_equal(ours && end == IO_APPEND_WHOLE, same);
        assert_true(!same || h.n == 4);
        mended += ours && end == IO_APPEND_MEND;
        assert_true(end != IO_APPEND_MEND || h.n == 4);
    }
    assert_int_equal(mended, 8 * (22 + 4 * (46 + strlen("array0.npy"))) + 1);
    free(copy);
    free(whole.p);
}

/* An array that is not written again is not in the archive. */
static void test_left_out(void **state)
{
    (void)state;
    const char *out = in_dir("whole.npz"), *part = in_dir("hurt.part");
    char note[20];
    io_append_end end;
    add(in_dir("whole.part"), NULL, 4, false, out);
    bytes whole = load_file(out);
    whole.p[whole.n / 4] ^= 1;
    save(part, whole.p, whole.n);
    having h = add_lacking(part, NULL, 0, false, NULL);
    assert_int_equal(h.n, 3);
    assert_int_equal(h.n_damaged, 1);
    check_archive(part, 3);
    h = (having){.n = 0};
    assert_int_equal(io_append_list(part, note, sizeof note, count, &h, &end, err), 0);
    assert_int_equal(end, IO_APPEND_WHOLE);
    assert_int_equal(h.n, 3);
    assert_int_equal(h.n_damaged, 1);
    free(whole.p);
}

static void test_other_files(void **state)
{
    (void)state;
    having h = {.n = 0};
    const char *part = in_dir("other.part"), *out = in_dir("whole.npz");
    static const struct {
        const char *bytes;
        size_t n;
    } others[] = {{"something", 9},
                  {"\0\0\0\0", 4},
                  {"\0\0\0\0 more after four zeros", 26},
                  {"\0", 1},
                  {"P", 1},
                  {"PK", 2},
                  {"PK\3\4", 4},
                  {"PK\3\4 not a zip archive, only a text that begins like one", 56}};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        for (int copied = 0; copied < 2; copied++) {
            save(part, others[k].bytes, others[k].n);
            assert_null(io_append_open(part, copied ? out : NULL, "a note", count, &h, err));
            assert_non_null(strstr(err, "other.part: it exists, and this command did not write it"));
            check_same(part, others[k].bytes, others[k].n);
        }
    save(part, "", 0);
    assert_null(io_append_open(part, out, "another note", count, &h, err));
    assert_non_null(strstr(err, "it was written with a note, but this run has another note"));
    assert_null(io_append_open(dir, NULL, "a note", count, &h, err));
    assert_null(io_append_open("/none/x", NULL, "a note", count, &h, err));
    unlink(part);

    /* an archive to which another program added an array */
    const io_array more = {.name = "more", .dtype = RP_F32, .ndim = 0, .bytes = 4, .data = &(float){1}};
    io_out file = {.path = part, .temp = (char *)(uintptr_t)part};
    io_zip zip = {.out = &file};
    add(part, NULL, 2, false, NULL);
    bytes two = load_file(part);
    file.fd = open(part, O_RDWR);
    zip.at = two.n - 22 - 2 * (46 + strlen("array0.npy"));
    assert_int_equal(lseek(file.fd, (off_t)zip.at, SEEK_SET), zip.at);
    assert_int_equal(io_zip_array(&zip, &more, err), 0);
    assert_int_equal(io_zip_finish(&zip, err), 0);
    io_zip_free(&zip);
    close(file.fd);
    free(two.p);
    two = load_file(part);
    assert_int_equal(add_lacking(part, NULL, 4, false, NULL).n, -1);
    assert_non_null(strstr(err, "it contains more.npy, which this command did not write"));
    check_same(part, two.p, two.n);
    free(two.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records),     cmocka_unit_test(test_refusals), cmocka_unit_test(test_formats),
        cmocka_unit_test(test_line_ends),   cmocka_unit_test(test_skip),     cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_append),      cmocka_unit_test(test_limit),    cmocka_unit_test(test_cut),
        cmocka_unit_test(test_damage),      cmocka_unit_test(test_list),     cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_other_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
