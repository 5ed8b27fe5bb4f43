/* protein_hdf5.c -- the HDF5 files of `relpos t5 proteins`, one dataset per protein.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/formats.h"
#include "t5/cli/proteins.h"

bool protein_hdf5_built(void)
{
    return false;
}

int protein_hdf5_list(const char *path, char *note, size_t note_size, protein_found *found, void *context,
                      char err[IO_ERR_MAX])
{
    (void)note;
    (void)note_size;
    (void)found;
    (void)context;
    return io_fail(err, path, "this program was built without HDF5");
}

int protein_hdf5_write(const char *path, const char *part, const char *note, char err[IO_ERR_MAX])
{
    (void)part;
    (void)note;
    return io_fail(err, path, "this program was built without HDF5");
}
