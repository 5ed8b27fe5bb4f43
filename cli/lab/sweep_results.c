/* sweep_results.c -- the results file of a sweep. Several processes, on one machine or on many that share a folder, can
 * write to it: each claims a training that has no result and that no other process has claimed.
 *
 *     file     0 … end                lines of JSON
 *     locks    TURN                   held while a process reads and appends
 *              RANKS + rank           shared; a rank of a team uses this file
 *              TRAININGS + checksum   exclusive; a process trains it
 *              FAILED + checksum      shared; a process has tried the experiment and failed
 *              WORK + checksum        shared; a process has work in a list of experiments
 *
 * Locks of open file descriptions belong to a process, and the system releases them when it dies. On a file system
 * without locks, each process claims everything.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/sweep.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACES    ((int64_t)1 << 56) /* number of places for checksums */
#define TURN      (1 * PLACES)
#define RANKS     (2 * PLACES)
#define TRAININGS (3 * PLACES)
#define FAILED    (4 * PLACES)
#define WORK      (5 * PLACES)

/* ------------------------------------------------------------------------------------------------ locks */

/* Set or remove a lock on one byte; with `wait`, wait for it. Return false if another process prevents it. */
static bool set_lock(const lab_results *r, short type, int64_t at, bool wait)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
    int state;
    while ((state = fcntl(r->fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock)) != 0 && errno == EINTR && wait)
        continue;
    return state == 0 || (errno != EAGAIN && errno != EACCES); /* other errors: a file system without locks */
}

/* Return true if another process has a lock on this byte. */
static bool is_locked(const lab_results *r, int64_t at)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
    return fcntl(r->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static int64_t place(int64_t group, uint64_t checksum)
{
    return group + (int64_t)(checksum % (uint64_t)PLACES);
}

static int64_t failed_place(const char *config)
{
    return place(FAILED, io_checksum(1, config, strlen(config)));
}

bool lab_results_claim(const lab_results *r, uint64_t training)
{
    return set_lock(r, F_WRLCK, place(TRAININGS, training), false);
}

void lab_results_release(const lab_results *r, uint64_t training)
{
    set_lock(r, F_UNLCK, place(TRAININGS, training), false);
}

bool lab_results_claimed(const lab_results *r, uint64_t training)
{
    return is_locked(r, place(TRAININGS, training));
}

void lab_results_fail(const lab_results *r, const char *config)
{
    set_lock(r, F_RDLCK, failed_place(config), false);
}

bool lab_results_failed(const lab_results *r, const char *config)
{
    return is_locked(r, failed_place(config));
}

void lab_results_work(const lab_results *r, uint64_t list, bool has)
{
    set_lock(r, has ? F_RDLCK : F_UNLCK, place(WORK, list), false);
}

bool lab_results_others_work(const lab_results *r, uint64_t list)
{
    return is_locked(r, place(WORK, list));
}

void lab_results_show_rank(const lab_results *r, int32_t rank)
{
    set_lock(r, F_RDLCK, RANKS + rank, false);
}

bool lab_results_shows_rank(const lab_results *r, int32_t rank)
{
    return is_locked(r, RANKS + rank);
}

bool lab_results_in_use(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    const bool used = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return used;
}

/* ------------------------------------------------------------------------------------------------ results */

bool lab_results_has(const lab_results *r, const char *config)
{
    for (int64_t n = 0; n < r->n; n++)
        if (strcmp(r->config[n], config) == 0)
            return true;
    return false;
}

static int add(lab_results *r, const char *config, char err[NN_ERR_MAX])
{
    if (r->n == r->memory) {
        const int64_t memory = 2 * r->memory + 16;
        char **more = realloc(r->config, (size_t)memory * sizeof *more);
        if (!more)
            return nn_fail(err, "lab: out of memory while reading %lld results (close other programs)",
                           (long long)r->n + 1);
        r->config = more;
        r->memory = memory;
    }
    char *copy = strdup(config);
    if (!copy)
        return nn_fail(err, "lab: out of memory while reading %lld results (close other programs)",
                       (long long)r->n + 1);
    r->config[r->n++] = copy;
    return 0;
}

/* Read a line with a result. Keys that it lacks get their defaults. */
static int read_line(lab_results *r, const char *line, size_t size, char err[NN_ERR_MAX])
{
    char config[NN_PRINT_MAX], why[NN_ERR_MAX];
    bool no_memory;
    json_t *result = io_json(line, size, 0, NULL, &no_memory);
    const char *text = json_string_value(json_object_get(result, "experiment"));
    nn_config c;
    nn_config_init(&c);
    const bool valid = text && nn_config_parse(&c, "results", text, NULL, NULL, why) == 0;
    r->ms += json_number_value(json_object_get(result, "ms_per_step"));
    json_decref(result);
    r->lines++;
    if (no_memory)
        return nn_fail(err, "lab: out of memory while reading %d results (close other programs)", r->lines);
    if (!valid)
        return nn_fail(err, "%.300s:%d: not a result of relpos lab sweep (name another file)", r->path, r->lines);
    lab_identify(&c, false, config);
    return add(r, config, err);
}

/* Read the lines after r->read, without an incomplete last line. Set *rest to that line if there is one. */
static int read_new(lab_results *r, const char *text, const char **rest, char err[NN_ERR_MAX])
{
    const char *line = text + r->read;
    for (size_t size; line[size = strcspn(line, "\n")] == '\n'; line += size + 1) {
        if (read_line(r, line, size, err) != 0)
            return -1;
        r->read = line + size + 1 - text;
    }
    *rest = line;
    return 0;
}

int lab_results_read(lab_results *r, const char *path, char err[NN_ERR_MAX])
{
    const char *rest;
    struct stat st;
    *r = (lab_results){.path = path, .fd = -1};
    if (access(path, F_OK) != 0)
        return 0;
    r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY); /* to look at locks; -1 if this fails */
    r->regular = true;
    if (stat(path, &st) == 0 && st.st_size == 0) /* a sweep has begun */
        return 0;
    char *text = lab_read(path, err);
    const int code = text ? read_new(r, text, &rest, err) : -1;
    free(text);
    return code;
}

static int not_written(const lab_results *r, char err[NN_ERR_MAX])
{
    return nn_fail(err, "%.300s: cannot be written: %s (free space, or name another file)", r->path, strerror(errno));
}

/* Read new results during this process's turn, and remove an incomplete last line. */
static int update_in_turn(lab_results *r, char err[NN_ERR_MAX])
{
    static const char start[] = "{\"experiment\":";
    const char *rest = "";
    struct stat st;
    if (!r->regular)
        return 0;
    if (fstat(r->fd, &st) != 0)
        return nn_fail(err, "%.300s: cannot be read: %s", r->path, strerror(errno));
    if (st.st_size == r->read)
        return 0;
    if (st.st_size < r->read)
        return nn_fail(err, "%.300s: it has become shorter while it was used (run the same command again)", r->path);
    char *text = lab_read(r->path, err);
    int code = text ? read_new(r, text, &rest, err) : -1;
    if (code == 0 && strncmp(rest, start, strlen(rest)) != 0 && strncmp(rest, start, strlen(start)) != 0)
        code = nn_fail(err, "%.300s: its last line is not a result of relpos lab sweep (name another file)", r->path);
    if (code == 0 && *rest && ftruncate(r->fd, r->read) != 0)
        code = not_written(r, err);
    free(text);
    return code;
}

int lab_results_update(lab_results *r, char err[NN_ERR_MAX])
{
    set_lock(r, F_WRLCK, TURN, true);
    const int code = update_in_turn(r, err);
    set_lock(r, F_UNLCK, TURN, false);
    return code;
}

static int write_all(const lab_results *r, const char *text, size_t size, char err[NN_ERR_MAX])
{
    for (size_t done = 0; done < size;) {
        const ssize_t n = write(r->fd, text + done, size - done);
        if (n < 0 && errno != EINTR)
            return not_written(r, err);
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int lab_results_append(lab_results *r, const char *config, json_t *line, char err[NN_ERR_MAX])
{
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    const size_t size = text ? strlen(text) : 0;
    json_decref(line);
    if (io_json_lost() || !text) {
        free(text);
        return nn_fail(err, "%.300s: out of memory while writing a line (close other programs)", r->path);
    }
    text[size] = '\n'; /* in place of the NUL, so that one call writes the whole line */
    set_lock(r, F_WRLCK, TURN, true);
    int code = update_in_turn(r, err);
    if (code == 0 && !lab_results_has(r, config)) {
        code = write_all(r, text, size + 1, err);
        code = code == 0 ? add(r, config, err) : code;
        r->read += code == 0 ? (int64_t)size + 1 : 0;
        r->lines++;
    }
    set_lock(r, F_UNLCK, TURN, false);
    free(text);
    return code;
}

/* ------------------------------------------------------------------------------------------------ the file */

/* Move the state that a version up to 0.2 has left to the folder of its training. */
static int move_old_state(const lab_results *r, char err[NN_ERR_MAX])
{
    char parent[NN_TEXT_MAX], folder[NN_TEXT_MAX];
    uint64_t training;
    snprintf(parent, sizeof parent, "%.900s.training", r->path);
    if (!r->regular || !lab_training_old(parent, &training))
        return 0;
    lab_results_folder(r, training, folder);
    return lab_training_move(parent, folder, err);
}

int lab_results_open(lab_results *r, const char *path, char err[NN_ERR_MAX])
{
    struct stat st;
    *r = (lab_results){.path = path, .fd = -1};
    if (lab_make_folder(path, true, err) != 0)
        return -1;
    r->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    if (r->fd < 0)
        return not_written(r, err);
    if (fstat(r->fd, &st) != 0)
        return nn_fail(err, "%.300s: cannot be read: %s", path, strerror(errno));
    r->regular = S_ISREG(st.st_mode);
    if (flock(r->fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return nn_fail(err, "%.300s: another program is writing there (wait for it, or name another file)", path);
    if (lab_results_update(r, err) != 0)
        return -1;
    set_lock(r, F_WRLCK, TURN, true);
    const int code = move_old_state(r, err);
    set_lock(r, F_UNLCK, TURN, false);
    return code;
}

void lab_results_folder(const lab_results *r, uint64_t training, char folder[NN_TEXT_MAX])
{
    folder[0] = 0;
    if (r->regular)
        snprintf(folder, NN_TEXT_MAX, "%.900s.training/%016llx", r->path, (unsigned long long)training);
}

int lab_results_close(lab_results *r)
{
    while (r->n > 0)
        free(r->config[--r->n]);
    free(r->config);
    const int code = r->fd >= 0 ? close(r->fd) : 0;
    *r = (lab_results){.fd = -1};
    return code;
}
