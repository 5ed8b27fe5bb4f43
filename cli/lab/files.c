/* files.c -- helpers of the commands of `relpos lab`: the option --set, folders, locks, and lines of JSON.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------ --set */

int lab_add_set(lab_sets *sets, const char *value)
{
    if (sets->n == LAB_MAX_SETS)
        return cli_error(CLI_USAGE, "--set: it was given more than %d times (write the keys into the experiment)",
                         LAB_MAX_SETS);
    sets->value[sets->n++] = value;
    return CLI_OK;
}

int lab_parse_sets(nn_config *c, const lab_sets *sets, nn_other_key *other, void *context, char err[NN_ERR_MAX])
{
    int code = 0;
    for (int n = 0; n < sets->n && code == 0; n++)
        code = nn_config_parse(c, "--set", sets->value[n], other, context, err);
    return code;
}

int lab_code_of(const char *err)
{
    return strstr(err, "out of memory") ? CLI_FAILED : CLI_USAGE;
}

/* ------------------------------------------------------------------------------------------------ files */

int lab_make_folder(const char *path, bool above, char err[NN_ERR_MAX])
{
    char folder[NN_TEXT_MAX];
    const size_t size = strlen(path);
    if (size >= sizeof folder)
        return nn_fail(err, "the name of a folder has %zu bytes; it must have at most %d (use a shorter one)", size,
                       NN_TEXT_MAX - 1);
    for (size_t n = 1; n <= size; n++) {
        if (n < size ? path[n] != '/' : above)
            continue;
        snprintf(folder, sizeof folder, "%.*s", (int)n, path);
        struct stat st;
        if (mkdir(folder, 0777) == 0)
            continue;
        int why = errno;
        const bool there = stat(folder, &st) == 0;
        if (why == EEXIST)
            why = there ? ENOTDIR : errno;
        if (!there || !S_ISDIR(st.st_mode))
            return nn_fail(err, "%.300s: cannot be created: %s (name another folder)", folder, strerror(why));
    }
    return 0;
}

size_t lab_missing_folder(const char *path)
{
    char folder[NN_TEXT_MAX];
    const size_t size = strlen(path);
    for (size_t n = 1; n <= size && n < sizeof folder; n++) {
        snprintf(folder, sizeof folder, "%.*s", (int)n, path);
        if ((n == size || path[n] == '/') && access(folder, F_OK) != 0)
            return n;
    }
    return 0;
}

void lab_remove_empty(const char *path, size_t from)
{
    char folder[NN_TEXT_MAX];
    for (size_t n = strlen(path); from > 0 && n >= from && n < sizeof folder; n--) {
        snprintf(folder, sizeof folder, "%.*s", (int)n, path);
        if ((!path[n] || path[n] == '/') && rmdir(folder) != 0)
            return;
    }
}

void lab_beside(const char *path, char files[NN_TEXT_MAX])
{
    const char *slash = strrchr(path, '/');
    char all[NN_TEXT_MAX] = "", name[NN_TEXT_MAX], place[2 * NN_TEXT_MAX];
    size_t used = 0;
    if (!slash || strcspn(path, " ") < (size_t)(slash - path)) /* names are separated by spaces */
        return;
    for (int32_t f = 0; nn_text_name(files, f, name); f++) {
        snprintf(place, sizeof place, "%.*s/%s", (int)(slash - path), path, name);
        const char *found = name[0] != '/' && access(place, F_OK) == 0 ? place : name;
        if (used + strlen(found) + 2 > sizeof all)
            return;
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", f > 0 ? " " : "", found);
    }
    snprintf(files, NN_TEXT_MAX, "%s", all);
}

int lab_lock(int fd, const char *path, char err[NN_ERR_MAX])
{
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) /* other failures: a file system without locks */
        return nn_fail(err, "%.300s: another run is writing there (wait for it, or name another place)", path);
    return 0;
}

char *lab_read(const char *path, char err[NN_ERR_MAX])
{
    char place[PATH_MAX];
    size_t size;
    char *text = (char *)nn_read_file(cli_find_shipped(path, place), &size, err);
    if (text && strlen(text) != size) {
        nn_fail(err, "%.300s: it has a NUL byte, so it is not a text file (name a text file)", path);
        free(text);
        text = NULL;
    }
    return text;
}

json_t *lab_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *lab_finished_json(json_t *json, char err[NN_ERR_MAX])
{
    if (json && !io_json_lost())
        return json;
    json_decref(json);
    nn_fail(err, "lab: out of memory while collecting the results (close other programs)");
    return NULL;
}

int lab_write_line(FILE *to, const char *path, json_t *line, char err[NN_ERR_MAX])
{
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (io_json_lost() || !text) {
        free(text);
        return nn_fail(err, "%.300s: out of memory while writing a line (close other programs)", path);
    }
    const bool failed = fprintf(to, "%s\n", text) < 0 || fflush(to) != 0;
    free(text);
    return failed
               ? nn_fail(err, "%.300s: cannot be written: %s (free space, or name another file)", path, strerror(errno))
               : 0;
}
