/* transformers.c -- writes a model as a directory for Hugging Face's transformers, completely or not at all.
 * export_t5.c and decoders.c write the files for each model family.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/transformers.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int nn_transformers_write(const nn_model *m, const char *directory, rp_dtype type, char err[NN_ERR_MAX])
{
    const nn_exporter *family = m->c.task == NN_ENCODER_DECODER ? &nn_t5_family : &nn_decoder_family;
    char *temporary, dir[NN_TEXT_MAX];
    if (family->check(m, err) != 0)
        return -1;
    size_t size = strlen(directory);
    if (size == 0 || size > 800)
        return nn_fail(err, "--output: the name has %zu bytes; it must have 1 to 800 (name another directory)", size);
    while (size > 1 && directory[size - 1] == '/')
        size--;
    snprintf(dir, sizeof dir, "%.*s", (int)size, directory);
    struct stat st;
    if (lstat(dir, &st) == 0)
        return nn_fail(err, "%.300s: it already exists (name another directory)", dir);
    const int lock = io_temporary(dir, true, 0700, &temporary);
    if (lock < 0)
        return nn_fail(err, "%.300s: cannot be created: %s (name another directory)", dir, strerror(errno));
    int code = family->write(m, temporary, type, err);
    if (code == 0 && (chmod(temporary, 0755) != 0 || rename(temporary, dir) != 0))
        code = nn_fail(err, "%.300s: cannot be created: %s (name another directory)", dir, strerror(errno));
    if (code != 0)
        io_remove_temporary(lock, temporary);
    close(lock);
    free(temporary);
    return code;
}
