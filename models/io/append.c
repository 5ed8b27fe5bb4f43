/* append.c -- an .npz archive that grows array by array. Its directory is at the end of the file, so the next array
 * overwrites it, and a killed program may leave a file without one. Opening the file therefore reads the headers
 * before each member instead, and compares the data with its checksum. A damaged member is not in the directory; if its
 * array is written again, it takes the same place. Each header has an extra field of relpos, which other programs skip:
 *
 *     id "Rp", size, 8 bytes of tag, CRC-32 of the header with 0 here, and in the first member the note
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/append.h"
#include "io/zip_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { LOCAL = 30, FIELD_ID = 0x7052, FIELD_MIN = 12, SEAL_AT = 4 + 8, NOTE_MAX = 4096, COPY = 1 << 20 };
#define LOCAL_SIGNATURE 0x04034b50
#define LARGE32         UINT32_MAX
#define NAME_MAX_BYTES  65535

/* A damaged member between others. */
typedef struct hole {
    uint64_t start, bytes; /* offset of its header, and the size of its data */
    size_t described;      /* where its entry belongs in the directory */
    char *name;            /* with .npy */
} hole;

struct io_append {
    io_out out;
    io_zip zip;
    char *note;
    hole *holes; /* [n_holes], by offset */
    size_t n_holes;
    bool synced; /* the folder has the file */
};

/* One member of the archive. */
typedef struct member {
    uint64_t start, data, bytes; /* offsets of its header and its data, and the size of its data */
    uint32_t crc;
    uint64_t tag;
    char name[NAME_MAX_BYTES + 1]; /* without .npy */
    char note[NOTE_MAX + 1];       /* "" if it has none */
    size_t seal;                   /* offset of the checksum in the extra fields; 0 without the field of relpos */
} member;

enum { NONE, FOUND, FOREIGN }; /* what is at an offset: no complete header of relpos, one, or one of another program */

static uint64_t load(const unsigned char *from, int n)
{
    uint64_t x = 0;
    for (int k = 0; k < n; k++)
        x |= (uint64_t)from[k] << 8 * k;
    return x;
}

static int other_note(const char *path, const char *has, const char *wanted, char err[IO_ERR_MAX])
{
    return io_fail(err, path,
                   "it was written with %.160s, but this run has %.160s (use the same options, or write to another "
                   "file)",
                   has, wanted);
}

/* ------------------------------------------------------------------------------------------------ reading */

/* Read the extra fields of a header: the size of a member of 4 GiB or more, and the field that relpos writes. */
static void read_extra(member *m, const unsigned char *extra, size_t size)
{
    m->note[0] = 0;
    for (size_t at = 0; at + 4 <= size;) {
        const uint64_t id = load(extra + at, 2), n = load(extra + at + 2, 2);
        at += 4;
        if (n > size - at)
            return;
        if (id == 1 && n >= 16)
            m->bytes = load(extra + at, 8);
        if (id == FIELD_ID && n >= FIELD_MIN && n <= FIELD_MIN + NOTE_MAX) {
            m->seal = at - 4 + SEAL_AT;
            m->tag = load(extra + at, 8);
            memcpy(m->note, extra + at + FIELD_MIN, n - FIELD_MIN);
            m->note[n - FIELD_MIN] = 0;
        }
        at += n;
    }
}

/* Read the header of the member at `start`. Return NONE, FOUND or FOREIGN; -1 if reading fails or memory runs out. A
 * member with an incorrect checksum of its header is NONE, but has m->seal. */
static int read_member(int fd, uint64_t start, uint64_t size, member *m, char why[IO_WHY_MAX])
{
    unsigned char fixed[LOCAL];
    m->seal = 0;
    if (size < LOCAL || start > size - LOCAL)
        return NONE;
    if (io_pread(fd, (off_t)start, fixed, LOCAL, why) != IO_OK)
        return -1;
    const size_t name = load(fixed + 26, 2), extra = load(fixed + 28, 2), all = LOCAL + name + extra;
    if (load(fixed, 4) != LOCAL_SIGNATURE || all > size - start)
        return NONE;
    unsigned char *header = malloc(all);
    if (header == NULL) {
        io_no_memory(why);
        return -1;
    }
    if (io_pread(fd, (off_t)start, header, all, why) != IO_OK) {
        free(header);
        return -1;
    }
    m->bytes = load(fixed + 22, 4);
    m->crc = (uint32_t)load(fixed + 14, 4);
    m->start = start;
    m->data = start + all;
    memcpy(m->name, header + LOCAL, name);
    m->name[name] = 0;
    read_extra(m, header + LOCAL + name, extra);
    int result = FOREIGN;
    if (m->seal > 0) {
        unsigned char *seal = header + LOCAL + name + m->seal;
        const uint32_t expected = (uint32_t)load(seal, 4);
        memset(seal, 0, 4);
        result = io_crc(0, header, all) == expected && name > 4 && m->bytes <= size - m->data ? FOUND : NONE;
    }
    free(header);
    if (result == FOUND)
        m->name[name - 4] = 0;
    return result;
}

/* Compare the data of a member with its checksum. Return 1 if they match, 0 if not, -1 if reading fails. */
static int check_data(int fd, const member *m, char why[IO_WHY_MAX])
{
    unsigned char *block = malloc(COPY);
    uint32_t crc = 0;
    int result = block != NULL ? 1 : -1;
    if (block == NULL)
        io_no_memory(why);
    for (uint64_t at = 0, n; result == 1 && at < m->bytes; at += n) {
        n = m->bytes - at < COPY ? m->bytes - at : COPY;
        if (io_pread(fd, (off_t)(m->data + at), block, n, why) != IO_OK)
            result = -1;
        else
            crc = (uint32_t)crc32_z(crc, block, n);
    }
    free(block);
    return result == 1 ? crc == m->crc : result;
}

/* Pass the type and shape of an intact member to `found`. Return 1; 0 if the member is no array; -1 after an error. */
static int report(int fd, const char *path, const member *m, io_append_found *found, void *context,
                  char err[IO_ERR_MAX])
{
    unsigned char start[IO_NPY_START];
    char why[IO_WHY_MAX];
    size_t begin, end;
    if (m->bytes <= sizeof start)
        return 0;
    if (io_pread(fd, (off_t)m->data, start, sizeof start, why) != IO_OK)
        return io_fail(err, path, "%s", why);
    if (!io_npy_extent(start, &begin, &end, why) || end > m->bytes)
        return 0;
    unsigned char *header = malloc(end);
    if (header == NULL)
        return io_fail(err, path, "out of memory");
    io_npy npy;
    int result = io_pread(fd, (off_t)m->data, header, end, why) == IO_OK ? 1 : io_fail(err, path, "%s", why);
    if (result == 1 &&
        (!io_npy_header(header, begin, end, &npy, why) || npy.unsupported[0] != 0 || npy.bytes != m->bytes - end))
        result = 0;
    free(header);
    const io_array array = {
        .name = (char *)(uintptr_t)m->name, .dtype = npy.dtype, .ndim = npy.ndim, .shape = npy.shape};
    return result == 1 && found(context, &array, m->tag, (off_t)(m->data + end), err) != 0 ? -1 : result;
}

/* Free the directory and the holes. */
static void clear(io_append *a)
{
    io_zip_free(&a->zip);
    while (a->n_holes > 0)
        free(a->holes[--a->n_holes].name);
    free(a->holes);
}

/* Remember a damaged member. */
static bool add_hole(io_append *a, const member *m)
{
    hole *more = realloc(a->holes, (a->n_holes + 1) * sizeof *more);
    char *name = malloc(strlen(m->name) + sizeof ".npy");
    if (more != NULL)
        a->holes = more;
    if (more == NULL || name == NULL) {
        free(name);
        return false;
    }
    sprintf(name, "%s.npy", m->name);
    a->holes[a->n_holes++] = (hole){m->start, m->bytes, a->zip.size, name};
    return true;
}

/* Check a member whose header is intact, and pass it to `found`. Return 1 if its data is intact, 0 if not, -1 after an
 * error. */
static int take_member(int fd, const char *path, member *m, io_append *a, io_append_found *found, void *context,
                       char err[IO_ERR_MAX])
{
    char why[IO_WHY_MAX];
    int intact = check_data(fd, m, why);
    if (intact < 0)
        return io_fail(err, path, "%s", why);
    if (intact == 1)
        intact = report(fd, path, m, found, context, err);
    if (intact == 0) {
        const io_array damaged = {.name = m->name};
        if (found(context, &damaged, m->tag, IO_APPEND_DAMAGED, err) != 0)
            return -1;
        return add_hole(a, m) ? 0 : io_fail(err, path, "out of memory");
    }
    if (intact == 1) {
        memcpy(m->name + strlen(m->name), ".npy", 5);
        return io_zip_adopt(&a->zip, m->name, m->start, m->bytes, m->crc, err) == 0 ? 1 : -1;
    }
    return intact;
}

/* Read the members from the start of a file, which must have been written with `note` unless that is NULL. Call `found`
 * for each. Add the intact ones to the directory of `a`, and those before the last intact one that are damaged to its
 * holes. *end receives the end of the last intact member. */
static int walk(int fd, const char *path, uint64_t size, io_append *a, const char *note, io_append_found *found,
                void *context, uint64_t *end, char err[IO_ERR_MAX])
{
    member *m = malloc(sizeof *m);
    char why[IO_WHY_MAX], safe[160];
    uint64_t at = 0;
    size_t n_holes = 0;
    int result = m != NULL ? 0 : io_fail(err, path, "out of memory");
    *end = 0;
    while (result == 0) {
        const int kind = read_member(fd, at, size, m, why);
        if (kind == NONE)
            break;
        if (kind == FOUND && at == 0 && note != NULL && strcmp(m->note, note) != 0)
            result = other_note(path, m->note, note, err);
        else if (kind == FOREIGN && at > 0)
            result = io_fail(err, path, "it contains %s, which this command did not write (use another file)",
                             io_safe(safe, sizeof safe, m->name));
        else if (kind < 0)
            result = io_fail(err, path, "%s", why);
        if (result != 0 || kind == FOREIGN)
            break;
        at = m->data + m->bytes;
        const int intact = take_member(fd, path, m, a, found, context, err);
        if (intact < 0)
            result = -1;
        if (intact == 1) {
            *end = at;
            n_holes = a->n_holes;
        }
    }
    while (a->n_holes > n_holes)
        free(a->holes[--a->n_holes].name);
    free(m);
    return result;
}

/* Compare the bytes of the file from a->zip.at on with the directory of the intact arrays. */
static io_status check_end(int fd, uint64_t size, const io_append *a, io_append_end *end, char why[IO_WHY_MAX])
{
    const io_zip *z = &a->zip;
    unsigned char records[IO_ZIP_END_MAX];
    const size_t n = io_zip_end_records(z, records), all = z->size + n;
    *end = size - z->at > all ? IO_APPEND_MORE : IO_APPEND_MEND;
    if (size - z->at != all)
        return IO_OK;
    unsigned char *has = malloc(all);
    const io_status status = has == NULL ? io_no_memory(why) : io_pread(fd, (off_t)z->at, has, all, why);
    if (status == IO_OK && (z->size == 0 || memcmp(has, z->central, z->size) == 0) &&
        memcmp(has + z->size, records, n) == 0)
        *end = IO_APPEND_WHOLE;
    free(has);
    return status;
}

int io_append_list(const char *path, char *note, size_t note_size, io_append_found *found, void *context,
                   io_append_end *end, char err[IO_ERR_MAX])
{
    struct stat st;
    io_append a = {.out.path = path, .zip.out = &a.out};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        io_fail(err, path, "cannot be opened: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    char why[IO_WHY_MAX];
    member *first = malloc(sizeof *first);
    int result = first != NULL ? read_member(fd, 0, (uint64_t)st.st_size, first, why) : io_no_memory(why);
    note[0] = 0;
    if (result < 0)
        io_fail(err, path, "%s", why);
    else if (result == FOUND && strlen(first->note) < note_size)
        strcpy(note, first->note);
    free(first);
    if (result == FOUND)
        result = walk(fd, path, (uint64_t)st.st_size, &a, NULL, found, context, &a.zip.at, err);
    if (end != NULL && result >= 0 && check_end(fd, (uint64_t)st.st_size, &a, end, why) != IO_OK)
        result = io_fail(err, path, "%s", why);
    close(fd);
    clear(&a);
    return result < 0 ? -1 : 0;
}

/* ------------------------------------------------------------------------------------------------ opening */

/* Set *st to the state of an open file, which must be a regular file. */
static int regular(int fd, const char *path, struct stat *st, char err[IO_ERR_MAX])
{
    if (fstat(fd, st) != 0)
        return io_fail(err, path, "cannot be read: %s", strerror(errno));
    return S_ISREG(st->st_mode) ? 0 : io_fail(err, path, "it is not a regular file (write to another file)");
}

/* Replace the empty file OUT.part by a copy of a complete archive, which appears whole or not at all. */
static int copy_archive(io_out *part, const char *from, char err[IO_ERR_MAX])
{
    const int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    char why[IO_WHY_MAX], *temp;
    if (fd < 0)
        return io_fail(err, from, "cannot be opened: %s", strerror(errno));
    io_out copy = {.path = part->path, .fd = io_temporary(part->path, false, 0666, &temp)};
    if (copy.fd < 0) {
        io_fail(err, part->path, "cannot be written: %s", strerror(errno));
        close(fd);
        return -1;
    }
    unsigned char *block = malloc(COPY);
    int result = regular(fd, from, &st, err);
    if (result == 0 && block == NULL)
        result = io_fail(err, from, "out of memory");
    for (off_t at = 0, n; result == 0 && at < st.st_size; at += n) {
        n = st.st_size - at < COPY ? st.st_size - at : COPY;
        result = io_pread(fd, at, block, (size_t)n, why) == IO_OK ? io_put(&copy, block, (size_t)n, err)
                                                                  : io_fail(err, from, "%s", why);
    }
    if (result == 0 && (fsync(copy.fd) != 0 || rename(temp, part->path) != 0))
        result = io_fail(err, part->path, "cannot be written: %s", strerror(errno));
    if (result != 0)
        unlink(temp);
    close(result == 0 ? part->fd : copy.fd);
    if (result == 0)
        part->fd = copy.fd; /* locked since it was made */
    free(temp);
    free(block);
    close(fd);
    return result;
}

/* Open and lock the file. Another process may rename it between open and flock. */
static int open_locked(const char *path, char err[IO_ERR_MAX])
{
    struct stat opened, named;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0)
        return io_fail(err, path, "cannot be written: %s", strerror(errno));
    const bool ours = regular(fd, path, &opened, err) == 0;
    const bool locked = ours && (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
    const int error = locked && stat(path, &named) != 0 ? errno : 0;
    if (locked && error == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev)
        return fd;
    if (error != 0 && error != ENOENT)
        io_fail(err, path, "cannot be read: %s", strerror(error));
    else if (ours)
        io_fail(err, path, "another process is writing it (wait for its end, or write to another file)");
    close(fd);
    return -1;
}

static int not_ours(const char *path, char err[IO_ERR_MAX])
{
    return io_fail(err, path, "it exists, and this command did not write it (remove it, or write to another file)");
}

/* Check that an existing archive may be continued: relpos wrote it with the same note. *exists is false if there is
 * none. */
static int check_from(const char *from, const char *note, bool *exists, char err[IO_ERR_MAX])
{
    char why[IO_WHY_MAX];
    struct stat st;
    member *first = malloc(sizeof *first);
    const int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int result = 0, kind;
    *exists = fd >= 0;
    if (fd < 0 && errno != ENOENT)
        result = io_fail(err, from, "cannot be opened: %s", strerror(errno));
    else if (first == NULL)
        result = io_fail(err, from, "out of memory");
    else if (fd >= 0 && regular(fd, from, &st, err) != 0)
        result = -1;
    else if (fd >= 0 && (kind = read_member(fd, 0, (uint64_t)st.st_size, first, why)) != FOUND)
        result = kind < 0 ? io_fail(err, from, "%s", why) : not_ours(from, err);
    else if (fd >= 0 && strcmp(first->note, note) != 0)
        result = other_note(from, first->note, note, err);
    if (fd >= 0)
        close(fd);
    free(first);
    return result;
}

/* Check that a file without an intact member may be overwritten: its first header has the field of relpos. A file that
 * ends before that may be anyone's, because relpos writes a header at once. */
static int check_begin(int fd, const char *path, uint64_t size, char err[IO_ERR_MAX])
{
    char why[IO_WHY_MAX];
    member *first = malloc(sizeof *first);
    const int kind = first != NULL ? read_member(fd, 0, size, first, why) : (int)io_no_memory(why);
    const bool ours = first != NULL && first->seal > 0;
    free(first);
    return kind < 0 ? io_fail(err, path, "%s", why) : ours ? 0 : not_ours(path, err);
}

/* Read the members of the open file, and remove what follows them. */
static int take_up(io_append *a, const char *from, io_append_found *found, void *context, char err[IO_ERR_MAX])
{
    struct stat st;
    uint64_t end;
    int result = fstat(a->out.fd, &st);
    if (result == 0 && st.st_size == 0 && from != NULL) {
        if (copy_archive(&a->out, from, err) != 0)
            return -1;
        result = fstat(a->out.fd, &st);
    }
    if (result != 0)
        return io_fail(err, a->out.path, "cannot be read: %s", strerror(errno));
    if (walk(a->out.fd, a->out.path, (uint64_t)st.st_size, a, a->note, found, context, &end, err) < 0)
        return -1;
    if (end == 0 && st.st_size > 0 && check_begin(a->out.fd, a->out.path, (uint64_t)st.st_size, err) != 0)
        return -1;
    a->zip.at = end;
    if (ftruncate(a->out.fd, (off_t)end) != 0 || lseek(a->out.fd, (off_t)end, SEEK_SET) < 0)
        return io_fail(err, a->out.path, "cannot be written: %s", strerror(errno));
    return 0;
}

static void free_append(io_append *a)
{
    clear(a);
    free(a->out.temp);
    free(a->note);
    free(a);
}

io_append *io_append_open(const char *path, const char *from, const char *note, io_append_found *found, void *context,
                          char err[IO_ERR_MAX])
{
    bool exists = false;
    if (strlen(note) > NOTE_MAX) {
        io_fail(err, path, "its note is longer than %d bytes", NOTE_MAX);
        return NULL;
    }
    if (from != NULL && check_from(from, note, &exists, err) != 0)
        return NULL;
    io_append *a = calloc(1, sizeof *a);
    if (a != NULL) {
        a->note = strdup(note);
        a->out.temp = strdup(path);
        a->out.path = a->out.temp;
    }
    if (a == NULL || a->note == NULL || a->out.temp == NULL) {
        io_fail(err, path, "out of memory");
        if (a != NULL)
            free_append(a);
        return NULL;
    }
    a->zip.out = &a->out;
    a->out.fd = open_locked(path, err);
    if (a->out.fd >= 0 && take_up(a, exists ? from : NULL, found, context, err) == 0)
        return a;
    if (a->out.fd >= 0)
        close(a->out.fd);
    free_append(a);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------ writing */

/* Write an array over its damaged copy, which has the same size. */
static int fill_hole(io_append *a, hole *h, const io_array *array, char err[IO_ERR_MAX])
{
    io_zip *z = &a->zip, one = {.out = z->out, .at = h->start};
    one.extra = z->extra;
    one.extra_size = z->extra_size;
    one.seal_at = z->seal_at;
    z->extra_size = z->seal_at = 0;
    const size_t before = z->size;
    int result = lseek(a->out.fd, (off_t)h->start, SEEK_SET) >= 0
                     ? io_zip_array(&one, array, err)
                     : io_fail(err, a->out.path, "cannot be written: %s", strerror(errno));
    io_zip_free(&one);
    if (result == 0)
        result = io_zip_adopt(z, h->name, h->start, h->bytes, one.crc, err);
    if (lseek(a->out.fd, (off_t)z->at, SEEK_SET) < 0 && result == 0)
        result = io_fail(err, a->out.path, "cannot be written: %s", strerror(errno));
    if (result != 0)
        return -1;
    const size_t entry = z->size - before; /* move it from the end of the directory to its place */
    unsigned char *place = z->central + h->described, *copy = malloc(entry);
    if (copy == NULL) {
        z->size = before;
        z->members--;
        return io_fail(err, a->out.path, "out of memory");
    }
    memcpy(copy, z->central + before, entry);
    memmove(place + entry, place, before - h->described);
    memcpy(place, copy, entry);
    free(copy);
    free(h->name);
    a->n_holes--;
    for (; h < a->holes + a->n_holes; h++) {
        *h = h[1];
        h->described += entry;
    }
    return 0;
}

/* Return the hole that an array fills, or NULL. */
static hole *find_hole(const io_append *a, const io_array *array)
{
    char text[IO_NPY_TEXT_MAX];
    const size_t length = strlen(array->name);
    for (size_t k = 0; k < a->n_holes; k++) {
        hole *h = &a->holes[k];
        if (strncmp(h->name, array->name, length) == 0 && strcmp(h->name + length, ".npy") == 0 &&
            h->bytes == io_npy_text(array, text) + array->bytes)
            return h;
    }
    return NULL;
}

int io_append_array(io_append *a, const io_array *array, uint64_t tag, char err[IO_ERR_MAX])
{
    const io_zip before = a->zip;
    hole *h = find_hole(a, array);
    const size_t note = (h != NULL ? h->start : before.at) == 0 ? strlen(a->note) : 0;
    unsigned char field[4 + FIELD_MIN + NOTE_MAX] = {0};
    for (int k = 0; k < 2; k++) {
        field[k] = (unsigned char)(FIELD_ID >> 8 * k);
        field[2 + k] = (unsigned char)((FIELD_MIN + note) >> 8 * k);
    }
    for (int k = 0; k < 8; k++)
        field[4 + k] = (unsigned char)(tag >> 8 * k);
    memcpy(field + 4 + FIELD_MIN, a->note, note);
    if (strlen(array->name) > NAME_MAX_BYTES - strlen(".npy"))
        return io_fail(err, a->out.path, "a name of %zu bytes is too long for a zip archive (shorten it)",
                       strlen(array->name));
    a->zip.extra = field;
    a->zip.extra_size = 4 + FIELD_MIN + note;
    a->zip.seal_at = SEAL_AT;
    if (h != NULL)
        return fill_hole(a, h, array, err);
    if (io_zip_array(&a->zip, array, err) == 0)
        return 0;
    a->zip.at = before.at; /* drop the incomplete member; the directory may have been reallocated */
    a->zip.size = before.size;
    a->zip.members = before.members;
    if (ftruncate(a->out.fd, (off_t)before.at) != 0 || lseek(a->out.fd, (off_t)before.at, SEEK_SET) < 0)
        return -1; /* err has the first failure */
    return -1;
}

uint64_t io_append_count(const io_append *a)
{
    return a->zip.members;
}

/* Bring everything that was written to the disk. */
static int sync_part(io_append *a, char err[IO_ERR_MAX])
{
    if (fsync(a->out.fd) != 0)
        return io_fail(err, a->out.path, "cannot be written: %s", strerror(errno));
    const int error = a->synced ? 0 : io_sync_directory(a->out.path);
    a->synced = error == 0;
    return error == 0 ? 0 : io_fail(err, a->out.path, "cannot be written: %s", strerror(error));
}

int io_append_flush(io_append *a, char err[IO_ERR_MAX])
{
    const uint64_t at = a->zip.at;
    int result = io_zip_finish(&a->zip, err);
    if (result == 0)
        result = sync_part(a, err);
    a->zip.at = at;
    if (lseek(a->out.fd, (off_t)at, SEEK_SET) < 0 && result == 0)
        return io_fail(err, a->out.path, "cannot be written: %s", strerror(errno));
    return result;
}

int io_append_close(io_append *a, const char *to, char err[IO_ERR_MAX])
{
    const char *path = a->out.path;
    const bool empty = a->zip.members == 0 && to == NULL;
    int result = empty ? 0 : io_zip_finish(&a->zip, err);
    if (result == 0 && ftruncate(a->out.fd, (off_t)a->zip.at) != 0)
        result = io_fail(err, path, "cannot be written: %s", strerror(errno));
    if (result == 0 && !empty)
        result = sync_part(a, err);
    if (empty)
        unlink(path);
    else if (result == 0 && to != NULL && rename(path, to) != 0)
        result = io_fail(err, to, "cannot be replaced: %s", strerror(errno));
    else if (result == 0 && to != NULL)
        io_sync_directory(to);
    if (close(a->out.fd) != 0 && result == 0 && errno != EINTR)
        result = io_fail(err, path, "cannot be written: %s", strerror(errno));
    free_append(a);
    return result;
}

void io_append_remove(io_append *a)
{
    unlink(a->out.path); /* before its lock is released */
    close(a->out.fd);
    free_append(a);
}
