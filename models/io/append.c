/* append.c -- an .npz archive that grows array by array. Its directory is at the end of the file, so the next array
 * overwrites it, and a killed program may leave a file without one. Opening the file therefore reads the headers
 * before each member instead, and drops a last member that is incomplete. Each header has an extra field of relpos,
 * which other programs skip:
 *
 *     id "Rp", size, 8 bytes of tag, and in the first member the note
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

enum { LOCAL = 30, FIELD_ID = 0x7052, FIELD_MIN = 8, NOTE_MAX = 4096, COPY = 1 << 20 };
#define LOCAL_SIGNATURE 0x04034b50
#define LARGE32         UINT32_MAX
#define NAME_MAX_BYTES  65535

struct io_append {
    io_out out;
    io_zip zip;
    char *note;
};

/* One member of the archive. */
typedef struct member {
    uint64_t start, data, bytes; /* offsets of its header and its data, and the size of its data */
    uint32_t crc;
    uint64_t tag;
    char name[NAME_MAX_BYTES + 1]; /* without .npy */
    char note[NOTE_MAX + 1];       /* "" if it has none */
    bool ours;                     /* it has the extra field */
} member;

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
    m->ours = false;
    m->note[0] = 0;
    for (size_t at = 0; at + 4 <= size;) {
        const uint64_t id = load(extra + at, 2), n = load(extra + at + 2, 2);
        at += 4;
        if (n > size - at)
            return;
        if (id == 1 && n >= 16)
            m->bytes = load(extra + at, 8);
        if (id == FIELD_ID && n >= FIELD_MIN && n <= FIELD_MIN + NOTE_MAX) {
            m->ours = true;
            m->tag = load(extra + at, 8);
            memcpy(m->note, extra + at + FIELD_MIN, n - FIELD_MIN);
            m->note[n - FIELD_MIN] = 0;
        }
        at += n;
    }
}

/* Read the header of the member at `start`. Return 1; 0 if there is no complete member that relpos wrote; -1 if reading
 * fails or memory runs out. */
static int read_member(int fd, uint64_t start, uint64_t size, member *m, char why[IO_WHY_MAX])
{
    unsigned char header[LOCAL];
    if (size < LOCAL || start > size - LOCAL)
        return 0;
    if (io_pread(fd, (off_t)start, header, LOCAL, why) != IO_OK)
        return -1;
    const size_t name = load(header + 26, 2), extra = load(header + 28, 2);
    if (load(header, 4) != LOCAL_SIGNATURE || load(header + 6, 2) != 0x0800 || load(header + 8, 2) != 0 ||
        name + extra > size - start - LOCAL || name <= 4)
        return 0;
    unsigned char *fields = malloc(extra + 1);
    if (fields == NULL) {
        io_no_memory(why);
        return -1;
    }
    const bool read = io_pread(fd, (off_t)(start + LOCAL), m->name, name, why) == IO_OK &&
                      io_pread(fd, (off_t)(start + LOCAL + name), fields, extra, why) == IO_OK;
    m->bytes = load(header + 22, 4);
    m->crc = (uint32_t)load(header + 14, 4);
    m->start = start;
    m->data = start + LOCAL + name + extra;
    if (read)
        read_extra(m, fields, extra);
    free(fields);
    if (!read)
        return -1;
    m->name[name - 4] = 0;
    return m->ours && memcmp(m->name + name - 3, "npy", 3) == 0 && strlen(m->name) == name - 4 &&
           m->bytes <= size - m->data;
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

/* Pass the type and shape of a member to `found`. Return 1; 0 if the member is no array; -1 after an error. */
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

/* Read the members from the start of a file. Call `found` for each, and count them in `zip` if it is not NULL. *end
 * receives the end of the last complete member. The last one is dropped if its data does not match its checksum: the
 * program was killed while writing it. */
static int walk(int fd, const char *path, uint64_t size, io_zip *zip, const char *note, io_append_found *found,
                void *context, uint64_t *end, char err[IO_ERR_MAX])
{
    member *m = malloc(2 * sizeof *m); /* the current member, and the next */
    char why[IO_WHY_MAX];
    int more = m != NULL ? read_member(fd, 0, size, &m[0], why) : -1, k = 0;
    *end = 0;
    if (m == NULL)
        return io_fail(err, path, "out of memory");
    if (more == 1 && note != NULL && strcmp(m[0].note, note) != 0)
        more = other_note(path, m[0].note, note, err);
    else if (more < 0)
        io_fail(err, path, "%s", why);
    while (more == 1) {
        member *now = &m[k], *next = &m[k ^= 1];
        const uint64_t after = now->data + now->bytes;
        const int following = read_member(fd, after, size, next, why);
        more = following < 0 ? -1 : following == 0 ? check_data(fd, now, why) : 1;
        if (more < 0)
            io_fail(err, path, "%s", why);
        if (more == 1)
            more = report(fd, path, now, found, context, err);
        if (more == 1 && zip != NULL) {
            memcpy(now->name + strlen(now->name), ".npy", 5);
            more = io_zip_adopt(zip, now->name, now->start, now->bytes, now->crc, err) == 0 ? 1 : -1;
        }
        if (more == 1) {
            *end = after;
            more = following;
        }
    }
    free(m);
    return more;
}

int io_append_list(const char *path, char *note, size_t note_size, io_append_found *found, void *context,
                   char err[IO_ERR_MAX])
{
    struct stat st;
    uint64_t end;
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
    else if (result == 1 && strlen(first->note) < note_size)
        strcpy(note, first->note);
    free(first);
    if (result == 1)
        result = walk(fd, path, (uint64_t)st.st_size, NULL, NULL, found, context, &end, err);
    close(fd);
    return result < 0 ? -1 : 0;
}

/* ------------------------------------------------------------------------------------------------ opening */

/* Copy a complete archive to an empty file. Its first bytes are written last: a file that begins with zeros is an
 * interrupted copy. */
static int copy_archive(io_out *out, const char *from, char err[IO_ERR_MAX])
{
    const int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    char why[IO_WHY_MAX], start[4] = {0};
    if (fd < 0)
        return errno == ENOENT ? 0 : io_fail(err, from, "cannot be opened: %s", strerror(errno));
    unsigned char *block = malloc(COPY);
    int result = fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ? io_fail(err, from, "it is not a regular file")
                 : block == NULL                             ? io_fail(err, from, "out of memory")
                                                             : 0;
    for (off_t at = 0, n; result == 0 && at < st.st_size; at += n) {
        n = st.st_size - at < COPY ? st.st_size - at : COPY;
        if (io_pread(fd, at, block, (size_t)n, why) != IO_OK)
            result = io_fail(err, from, "%s", why);
        if (result == 0 && at == 0 && n >= 4) {
            memcpy(start, block, 4);
            memset(block, 0, 4);
        }
        if (result == 0)
            result = io_put(out, block, (size_t)n, err);
    }
    if (result == 0 && fdatasync(out->fd) != 0)
        result = io_fail(err, out->path, "cannot be written: %s", strerror(errno));
    if (result == 0 && st.st_size >= 4)
        result = io_put_at(out, start, 4, 0, err);
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
    if (fstat(fd, &opened) != 0 || !S_ISREG(opened.st_mode))
        io_fail(err, path, "it is not a regular file (remove it, or write to another file)");
    else if ((flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) || stat(path, &named) != 0 ||
             named.st_ino != opened.st_ino || named.st_dev != opened.st_dev)
        io_fail(err, path, "another process is writing it (wait for its end, or write to another file)");
    else
        return fd;
    close(fd);
    return -1;
}

/* Check that an existing archive may be continued: relpos wrote it with the same note. *exists is false if there is
 * none. */
static int check_from(const char *from, const char *note, bool *exists, char err[IO_ERR_MAX])
{
    char why[IO_WHY_MAX];
    struct stat st;
    member *first = malloc(sizeof *first);
    const int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int result = 0;
    *exists = fd >= 0;
    if (fd < 0 && errno != ENOENT)
        result = io_fail(err, from, "cannot be opened: %s", strerror(errno));
    else if (first == NULL)
        result = io_fail(err, from, "out of memory");
    else if (fd >= 0 && fstat(fd, &st) == 0 && !S_ISREG(st.st_mode))
        result = io_fail(err, from, "it is not a regular file (write to another file)");
    else if (fd >= 0 && read_member(fd, 0, (uint64_t)st.st_size, first, why) != 1)
        result =
            io_fail(err, from, "it exists, and this command did not write it (remove it, or write to another file)");
    else if (fd >= 0 && strcmp(first->note, note) != 0)
        result = other_note(from, first->note, note, err);
    if (fd >= 0)
        close(fd);
    free(first);
    return result;
}

/* Return true if a file without a complete member may be overwritten: it ends within its first header, or in the data
 * of a first member with the field of relpos. */
static bool began_here(int fd, uint64_t size)
{
    unsigned char header[LOCAL];
    char why[IO_WHY_MAX];
    const size_t n = size < LOCAL ? size : LOCAL;
    static const unsigned char signature[4] = {'P', 'K', 3, 4};
    if (io_pread(fd, 0, header, n, why) != IO_OK || memcmp(header, signature, n < 4 ? n : 4) != 0)
        return n == 0;
    const uint64_t name = n < LOCAL ? 0 : load(header + 26, 2), extra = n < LOCAL ? 0 : load(header + 28, 2);
    unsigned char id[2];
    return size <= LOCAL + name + extra ||
           (io_pread(fd, (off_t)(LOCAL + name), id, 2, why) == IO_OK && (load(id, 2) == FIELD_ID || load(id, 2) == 1));
}

/* Read the members of the open file, and remove what follows them. */
static int take_up(io_append *a, const char *from, io_append_found *found, void *context, char err[IO_ERR_MAX])
{
    const int fd = a->out.fd;
    unsigned char start[4] = {0};
    char why[IO_WHY_MAX];
    struct stat st;
    uint64_t end;
    if (fstat(fd, &st) != 0 || (st.st_size >= 4 && io_pread(fd, 0, start, 4, why) != IO_OK))
        return io_fail(err, a->out.path, "cannot be read: %s", strerror(errno));
    const bool fresh = st.st_size == 0 || (st.st_size >= 4 && load(start, 4) == 0); /* or an interrupted copy */
    if (fresh && ftruncate(fd, 0) != 0)
        return io_fail(err, a->out.path, "cannot be written: %s", strerror(errno));
    if (fresh && from != NULL && copy_archive(&a->out, from, err) != 0)
        return -1;
    if (fstat(fd, &st) != 0)
        return io_fail(err, a->out.path, "cannot be read: %s", strerror(errno));
    if (walk(fd, a->out.path, (uint64_t)st.st_size, &a->zip, a->note, found, context, &end, err) < 0)
        return -1;
    if (end == 0 && !began_here(fd, (uint64_t)st.st_size))
        return io_fail(err, a->out.path,
                       "it exists, and this command did not write it (remove it, or write to another "
                       "file)");
    a->zip.at = end;
    if (ftruncate(fd, (off_t)end) != 0 || lseek(fd, (off_t)end, SEEK_SET) < 0)
        return io_fail(err, a->out.path, "cannot be written: %s", strerror(errno));
    return 0;
}

static void free_append(io_append *a)
{
    io_zip_free(&a->zip);
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

int io_append_array(io_append *a, const io_array *array, uint64_t tag, char err[IO_ERR_MAX])
{
    const io_zip before = a->zip;
    const size_t note = before.members == 0 ? strlen(a->note) : 0;
    unsigned char field[4 + FIELD_MIN + NOTE_MAX];
    for (int k = 0; k < 2; k++) {
        field[k] = (unsigned char)(FIELD_ID >> 8 * k);
        field[2 + k] = (unsigned char)((FIELD_MIN + note) >> 8 * k);
    }
    for (int k = 0; k < 8; k++)
        field[4 + k] = (unsigned char)(tag >> 8 * k);
    memcpy(field + 4 + FIELD_MIN, a->note, note);
    a->zip.extra = field;
    a->zip.extra_size = 4 + FIELD_MIN + note;
    if (strlen(array->name) > NAME_MAX_BYTES - strlen(".npy"))
        return io_fail(err, a->out.path, "a name of %zu bytes is too long for a zip archive (shorten it)",
                       strlen(array->name));
    if (io_zip_array(&a->zip, array, err) == 0)
        return 0;
    a->zip.at = before.at; /* drop the incomplete member; the directory may have been reallocated */
    a->zip.size = before.size;
    a->zip.members = before.members;
    if (ftruncate(a->out.fd, (off_t)before.at) != 0 || lseek(a->out.fd, (off_t)before.at, SEEK_SET) < 0)
        return -1; /* err has the first failure */
    return -1;
}

int io_append_flush(io_append *a, char err[IO_ERR_MAX])
{
    const uint64_t at = a->zip.at;
    const int result = io_zip_finish(&a->zip, err);
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
    if (result == 0 && to != NULL && fsync(a->out.fd) != 0)
        result = io_fail(err, path, "cannot be written: %s", strerror(errno));
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
