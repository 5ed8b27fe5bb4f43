/* training_state.c -- stores the state of a training run in a file. A checkpoint is written completely or not at all,
 * and verified when it is read. The previous checkpoint is kept.
 *
 * The file is a .safetensors file. It contains every parameter under its name, the optimizer's averages as
 * "optimizer.m.NAME" and "optimizer.v.NAME", and the tokenizer's file as "tokenizer.model". Its metadata contains the
 * configuration, the step, and a checksum of all stored bytes. A model without averages, from which training cannot
 * continue, may be stored in f16 or bf16.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "lab/engine/nn.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CURRENT   "checkpoint.safetensors"
#define PREVIOUS  "previous.safetensors"
#define TOKENIZER "tokenizer.model"
#define TEXTS     "checked_texts" /* older files use the key "texts", which their checksum does not cover */

static const char *const prefixes[] = {"", "optimizer.m.", "optimizer.v."};

static const io_array *find(const io_set *set, int arena, const nn_param *p, char name[128])
{
    snprintf(name, 128, "%s%s", prefixes[arena], p->name);
    return io_find(set, name);
}

/* Return the checksum of the metadata, the arrays and the tokenizer. Arrays are taken in the order of the parameters,
 * whatever their order in the file is. */
static uint64_t set_checksum(const nn_model *m, const io_set *set, const char *config, const char *step)
{
    const char *mean = io_meta(set, "loss_mean");
    uint64_t z = io_checksum(io_checksum(1, config, strlen(config)), step, strlen(step));
    if (mean)
        z = io_checksum(z, mean, strlen(mean));
    const char *texts = io_meta(set, TEXTS);
    if (texts)
        z = io_checksum(z, texts, strlen(texts));
    char name[128];
    for (int a = 0; a < 3; a++)
        for (int32_t n = 0; n < m->n_params; n++) {
            const io_array *array = find(set, a, &m->params[n], name);
            if (array)
                z = io_checksum(z, array->data, array->bytes);
        }
    const io_array *tokenizer = m->c.tokenizer[0] ? io_find(set, TOKENIZER) : NULL;
    return tokenizer ? io_checksum(z, tokenizer->data, tokenizer->bytes) : z;
}

/* Add the weights, averages and tokenizer to the set. The set borrows arrays of type LAYERS_REAL; for other types it
 * owns converted copies. */
static int add_arrays(io_set *set, const nn_model *m, rp_dtype type, char err[NN_ERR_MAX])
{
    real *const arenas[] = {m->w, m->m, m->v};
    nn_fail(err, "lab: out of memory while preparing the arrays of a checkpoint (close other programs)");
    for (int a = 0; a < 3; a++)
        for (int32_t n = 0; n < m->n_params && arenas[a]; n++) {
            const nn_param *p = &m->params[n];
            real *from = arenas[a] + p->offset;
            char name[128];
            snprintf(name, sizeof name, "%s%s", prefixes[a], p->name);
            if (type == LAYERS_REAL) {
                if (io_add(set, name, type, p->ndim, p->shape, from, true) != 0)
                    return -1;
                continue;
            }
            for (int64_t x = 0; type == RP_F16 && x < p->size; x++)
                if (!(from[x] > -65520 && from[x] < 65520)) /* f16 rounds 65520 and above to infinity */
                    return nn_fail(err, "%s: %g does not fit in f16, whose values are below 65520 (use bf16)", name,
                                   (double)from[x]);
            void *to = malloc((size_t)p->size * rp_dtype_size(type) + 1);
            if (!to || rp_convert(to, type, from, LAYERS_REAL, p->size) != RP_OK ||
                io_add(set, name, type, p->ndim, p->shape, to, false) != 0) {
                free(to);
                return -1;
            }
        }
    const int64_t size = m->tokenizer ? (int64_t)m->tokenizer->size : 0;
    return m->tokenizer ? io_add(set, TOKENIZER, RP_U8, 1, &size, m->tokenizer->model, true) : 0;
}

static int save(const nn_model *m, const char *path, int64_t step, rp_dtype type,
                int (*write)(const char *, io_format, const io_set *, char *), char err[NN_ERR_MAX])
{
    char config[NN_PRINT_MAX], number[32], sum[32], texts[32], mean[32], why[IO_ERR_MAX];
    io_set set = {0};
    nn_config_print(&m->c, config);
    snprintf(number, sizeof number, "%lld", (long long)step);
    if (add_arrays(&set, m, type, err) != 0) {
        io_free(&set);
        return -1;
    }
    snprintf(mean, sizeof mean, "%.17g", m->loss_mean);
    if (m->m && isfinite(m->loss_mean) && io_add_meta(&set, "loss_mean", mean) != 0) {
        io_free(&set);
        return nn_fail(err, "lab: out of memory while preparing the header of a checkpoint (close other programs)");
    }
    snprintf(texts, sizeof texts, "%016llx", (unsigned long long)m->texts);
    const bool texts_added = m->texts == 0 || io_add_meta(&set, TEXTS, texts) == 0;
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)set_checksum(m, &set, config, number));
    if (!texts_added || io_add_meta(&set, "relpos.lab", config) != 0 || io_add_meta(&set, "step", number) != 0 ||
        io_add_meta(&set, "checksum", sum) != 0) {
        io_free(&set);
        return nn_fail(err, "lab: out of memory while preparing the header of a checkpoint (close other programs)");
    }
    const int code = write(path, IO_SAFETENSORS, &set, why);
    io_free(&set);
    return code == 0 ? 0 : nn_fail(err, "%.400s", why);
}

int nn_checkpoint_save(const nn_model *m, const char *path, int64_t step, rp_dtype type, char err[NN_ERR_MAX])
{
    return save(m, path, step, type, io_write, err);
}

int nn_checkpoint_write(const nn_model *m, const char *dir, int64_t step, char err[NN_ERR_MAX])
{
    char path[NN_TEXT_MAX], before[NN_TEXT_MAX], next[NN_TEXT_MAX], link_name[NN_TEXT_MAX];
    if (strlen(dir) + 40 > NN_TEXT_MAX)
        return nn_fail(err, "lab: the name of the directory is too long (use at most %d bytes)", NN_TEXT_MAX - 40);
    snprintf(path, sizeof path, "%s/" CURRENT, dir);
    snprintf(before, sizeof before, "%s/" PREVIOUS, dir);
    snprintf(next, sizeof next, "%s/next.safetensors", dir);
    snprintf(link_name, sizeof link_name, "%s/.previous.tmp", dir);
    if (save(m, next, step, LAYERS_REAL, io_replace, err) != 0)
        return -1;
    /* Some complete file is always called CURRENT: first the old file gets a second name, then the new file is renamed
     * to CURRENT. */
    unlink(link_name);
    const bool linked = link(path, link_name) == 0, first = !linked && errno == ENOENT;
    const bool kept = first || (linked && rename(link_name, before) == 0) || rename(path, before) == 0;
    const char *what = "cannot be kept as " PREVIOUS;
    int error = kept ? 0 : errno;
    unlink(link_name); /* rename() keeps this name if it and PREVIOUS are the same file */
    if (kept && rename(next, path) != 0) {
        what = "cannot be replaced";
        error = errno;
    }
    if (error != 0) {
        unlink(next);
        return nn_fail(err, "%.300s: %s: %s (name another directory, or make this one writable)", path, what,
                       strerror(error));
    }
    error = io_sync_directory(path);
    return error == 0 ? 0
                      : nn_fail(err, "%.300s: has been written, but may be lost in a crash: %s", path, strerror(error));
}

/* Write a message to err and return IO_DAMAGED: the file was read, but its content is wrong. */
__attribute__((format(printf, 2, 3))) static io_status damaged(char err[NN_ERR_MAX], const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(err, NN_ERR_MAX, format, list);
    va_end(list);
    return IO_DAMAGED;
}

/* Check that the file is large enough for the model that it describes. This limits the memory that a damaged file can
 * make us allocate. */
static io_status fits_file(const nn_config *c, const io_set *set, const char *path, char err[NN_ERR_MAX])
{
    nn_model m;
    size_t bytes = 0, numbers = 0;
    char why[NN_ERR_MAX];
    for (size_t n = 0; n < set->n_arrays; n++) {
        const io_array *array = io_take(set, set->arrays[n].name, why);
        if (!array) /* unknown type: checkpoints contain only known types */
            return damaged(err, "%.200s: %.300s", path, why);
        bytes += array->bytes;
        numbers += array->bytes / rp_dtype_size(array->dtype);
    }
    io_status status = IO_OK;
    if (nn_model_plan(&m, c, why) != 0) {
        nn_fail(err, "%.200s: %.300s", path, why);
        status = m.no_memory ? IO_FAILED : IO_DAMAGED;
    } else if (m.n_weights > 15 * (int64_t)m.n_params && (size_t)(m.n_weights - 15 * (int64_t)m.n_params) > numbers) {
        status = damaged(
            err,
            "%.300s: the file is damaged: %zu bytes of arrays cannot be a model of %lld weights (use another copy)",
            path, bytes, (long long)m.n_weights);
    }
    nn_model_destroy(&m);
    return status;
}

/* Read the weights and the averages. *averages becomes true if the file has all averages. */
static io_status read_arrays(nn_model *m, const io_set *set, const char *path, bool *averages, char err[NN_ERR_MAX])
{
    real *const arenas[] = {m->w, m->m, m->v};
    *averages = m->n_params > 0;
    for (int a = 0; a < 3; a++)
        for (int32_t n = 0; n < m->n_params; n++) {
            const nn_param *p = &m->params[n];
            char name[128];
            const io_array *from = find(set, a, p, name);
            if (!from && a > 0) { /* a file written without averages */
                *averages = false;
                continue;
            }
            const bool half = from && a == 0 && (from->dtype == RP_F16 || from->dtype == RP_BF16);
            bool fits = from && (half || from->dtype == LAYERS_REAL) && from->ndim == p->ndim;
            for (int32_t x = 0; fits && x < p->ndim; x++)
                fits = from->shape[x] == p->shape[x];
            if (!fits)
                return damaged(err, "%.300s: array \"%s\" %s (a damaged file, or one of another version)", path, name,
                               from ? "has another shape or type" : "is missing");
            rp_convert(arenas[a] + p->offset, LAYERS_REAL, from->data, from->dtype, p->size);
            for (int64_t x = 0; x < p->size; x++)
                if (!isfinite(arenas[a][p->offset + x]))
                    return damaged(err,
                                   "%.300s: array \"%s\" has %g at %lld; weights must be finite (the file is damaged)",
                                   path, name, (double)arenas[a][p->offset + x], (long long)x);
        }
    return IO_OK;
}

/* Create the model that the set describes, and read its arrays. Once the checksum has matched, failures are IO_FAILED,
 * never IO_DAMAGED. */
static io_status read_set(nn_model *m, const io_set *set, const char *path, bool train, int64_t *step,
                          char err[NN_ERR_MAX])
{
    const char *config = io_meta(set, "relpos.lab"), *number = io_meta(set, "step"), *sum = io_meta(set, "checksum");
    const char *checked = io_meta(set, TEXTS), *texts = checked ? checked : io_meta(set, "texts"),
               *mean = io_meta(set, "loss_mean");
    char now[32];
    bool averages;
    nn_config c;
    io_status status;
    nn_config_init(&c);
    if (!config || !number || !sum)
        return damaged(
            err, "%.300s: it is not a model of relpos lab: its metadata has no %s (relpos lab train creates one)", path,
            !config   ? "relpos.lab"
            : !number ? "step"
                      : "checksum");
    if (nn_config_parse(&c, path, config, NULL, NULL, err) != 0)
        return IO_DAMAGED;
    if ((status = fits_file(&c, set, path, err)) != IO_OK)
        return status;
    if (nn_model_create(m, &c, true, err) != 0)
        return IO_FAILED; /* must be lack of memory: the configuration was checked */
    if ((status = read_arrays(m, set, path, &averages, err)) != IO_OK)
        return status;
    const io_array *tokenizer = c.tokenizer[0] ? io_find(set, TOKENIZER) : NULL;
    if (c.tokenizer[0] && (!tokenizer || tokenizer->dtype != RP_U8 || tokenizer->bytes == 0))
        return damaged(err, "%.300s: array \"" TOKENIZER "\" is missing (a damaged file)", path);
    *step = strtoll(number, NULL, 10);
    m->loss_mean = mean ? strtod(mean, NULL) : NAN;
    m->texts = texts ? strtoull(texts, NULL, 16) : 0;
    if (*step < 0 || *step > c.steps)
        return damaged(err, "%.300s: the file is damaged: its step is %lld, and must be 0 to %lld (use another copy)",
                       path, (long long)*step, (long long)c.steps);
    snprintf(now, sizeof now, "%016llx", (unsigned long long)set_checksum(m, set, config, number));
    if (strcmp(now, sum) != 0)
        return damaged(err, "%.300s: the file is damaged: its checksum is %s and should be %.20s (use another copy)",
                       path, now, sum);
    if (tokenizer && nn_tokenizer_parse(&m->tokenizer, tokenizer->data, tokenizer->bytes, path, err) != 0)
        return IO_FAILED;
    if (train && !averages)
        return nn_fail(err,
                       "%.300s: it has no averages of the optimizer, so it cannot be trained further (use it for "
                       "eval and sample, or as --init)",
                       path);
    if (!train || !averages) {
        free(m->m);
        free(m->v);
        m->m = m->v = NULL;
    }
    if (!train) {
        free(m->g);
        m->g = NULL;
    }
    return IO_OK;
}

static io_status read_one(nn_model *m, const char *path, bool train, int64_t *step, char err[NN_ERR_MAX])
{
    char why[IO_ERR_MAX];
    io_set set;
    memset(m, 0, sizeof *m);
    io_status status = io_read(path, &set, NULL, why);
    if (status != IO_OK) {
        nn_fail(err, "%.400s", why);
        return status;
    }
    status = read_set(m, &set, path, train, step, err);
    if (status != IO_OK)
        nn_model_destroy(m);
    io_free(&set);
    return status;
}

int nn_checkpoint_read(nn_model *m, const char *path, bool train, int64_t *step, char warning[NN_ERR_MAX],
                       char err[NN_ERR_MAX])
{
    char file[NN_TEXT_MAX], other[NN_TEXT_MAX], first[NN_ERR_MAX], second[NN_ERR_MAX], why[IO_ERR_MAX];
    struct stat st;
    bool folder;
    warning[0] = 0;
    if (strlen(path) + 40 > NN_TEXT_MAX)
        return nn_fail(err, "lab: the path has %zu bytes; it must have at most %d (use a shorter one)", strlen(path),
                       NN_TEXT_MAX - 40);
    if (io_is_folder(path, &folder, why) != IO_OK)
        return nn_fail(err, "%.400s", why);
    if (!folder)
        return read_one(m, path, train, step, err) == IO_OK ? 0 : -1;
    snprintf(file, sizeof file, "%s/" CURRENT, path);
    if (lstat(file, &st) == 0 &&
        (stat(file, &st) == 0 ? S_ISFIFO(st.st_mode) : errno == ENOENT)) /* the file is neither missing nor damaged */
        return nn_fail(err, "%.300s: it is a pipe, or a link whose target does not exist (replace it, or remove it)",
                       file);
    const io_status status = read_one(m, file, train, step, first);
    if (status == IO_OK)
        return 0;
    if (status == IO_FAILED) /* the file may be intact, so do not silently use older weights */
        return nn_fail(err, "%s", first);
    snprintf(other, sizeof other, "%s/" PREVIOUS, path);
    const io_status before = read_one(m, other, train, step, second);
    if (before == IO_ABSENT)
        return nn_fail(err, "%s", first);
    if (before != IO_OK)
        return nn_fail(err, "%.240s; %.240s", first, second);
    snprintf(other, sizeof other, "%s/damaged.safetensors", path);
    /* Move the damaged file away. Otherwise the next checkpoint would rename it to PREVIOUS and so replace the good
     * one. */
    const bool moved = train && rename(file, other) == 0;
    nn_fail(warning, "%.350s; using the previous checkpoint, of step %lld%s", first, (long long)*step,
            moved ? "; the damaged file is now damaged.safetensors" : "");
    return 0;
}
