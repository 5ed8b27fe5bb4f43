/* protein_hdf5.c -- the HDF5 files of `relpos t5 proteins`: one dataset per protein, with the checksum of its residues
 * as the attribute relpos; the attribute relpos of the file describes how the datasets are made. Without libhdf5, the
 * functions fail.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/append.h"
#include "io/formats.h"
#include "cli/t5/proteins.h"

#ifdef RELPOS_HDF5
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define ATTRIBUTE "relpos"
enum { BLOCK = 1 << 20 };

bool protein_hdf5_built(void)
{
    return true;
}

/* ------------------------------------------------------------------------------------------------ reading */

typedef struct listing {
    const char *path;
    io_append_found *found;
    void *context;
    char *err;
    int result; /* of `found` */
} listing;

/* Report a dataset. Return a value that ends the iteration after an error. */
static herr_t on_link(hid_t file, const char *name, const H5L_info_t *info, void *context)
{
    listing *l = context;
    uint64_t tag = 0;
    (void)info;
    const hid_t set = H5Dopen2(file, name, H5P_DEFAULT),
                attribute = set >= 0 ? H5Aopen(set, ATTRIBUTE, H5P_DEFAULT) : -1;
    const bool ours = attribute >= 0 && H5Aread(attribute, H5T_NATIVE_UINT64, &tag) >= 0;
    if (attribute >= 0)
        H5Aclose(attribute);
    if (set >= 0)
        H5Dclose(set);
    const io_array array = {.name = (char *)(uintptr_t)name};
    if (!ours)
        l->result =
            io_fail(l->err, l->path, "it contains %.100s, which this command did not write (use another file)", name);
    else
        l->result = l->found(l->context, &array, tag, 0, l->err);
    return l->result;
}

/* Read the note of a file; "" if it has none. */
static void read_note(hid_t file, char *note, size_t note_size)
{
    note[0] = 0;
    const hid_t attribute = H5Aexists(file, ATTRIBUTE) > 0 ? H5Aopen(file, ATTRIBUTE, H5P_DEFAULT) : -1;
    const hid_t type = attribute >= 0 ? H5Aget_type(attribute) : -1;
    if (type >= 0 && H5Tget_class(type) == H5T_STRING && !H5Tis_variable_str(type) && H5Tget_size(type) < note_size &&
        H5Aread(attribute, type, note) >= 0)
        note[H5Tget_size(type)] = 0;
    else
        note[0] = 0;
    if (type >= 0)
        H5Tclose(type);
    if (attribute >= 0)
        H5Aclose(attribute);
}

int protein_hdf5_list(const char *path, char *note, size_t note_size, io_append_found *found, void *context,
                      char err[IO_ERR_MAX])
{
    listing l = {path, found, context, err, 0};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    note[0] = 0;
    const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0)
        return io_fail(err, path,
                       "it is not an HDF5 file, or it is open elsewhere (remove it, or write to another file)");
    read_note(file, note, note_size);
    if (note[0] != 0 && H5Literate(file, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, on_link, &l) < 0 && l.result == 0)
        l.result = io_fail(err, path, "its datasets cannot be listed (remove it, or write to another file)");
    H5Fclose(file);
    return l.result;
}

/* ------------------------------------------------------------------------------------------------ writing */

/* A file that is being written. */
typedef struct writing {
    hid_t file, f16, timeless; /* timeless: properties of datasets without a date, so equal arrays give equal files */
    int part;                  /* descriptor of the archive */
    void *data;
    size_t size;
    uint64_t n; /* intact arrays of the archive */
} writing;

/* Return the type that h5py calls float16. */
static hid_t make_f16(void)
{
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(type, 15, 10, 5, 0, 10);
    H5Tset_size(type, 2);
    H5Tset_ebias(type, 15);
    return type;
}

/* Attach an attribute to an object. */
static bool attach(hid_t to, hid_t type, const void *value)
{
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t attribute = H5Acreate2(to, ATTRIBUTE, type, space, H5P_DEFAULT, H5P_DEFAULT);
    const bool written = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    if (attribute >= 0)
        H5Aclose(attribute);
    H5Sclose(space);
    return written;
}

/* Copy an array of the archive to a dataset. */
static int copy_array(void *context, const io_array *array, uint64_t tag, off_t at, char err[IO_ERR_MAX])
{
    writing *w = context;
    char why[IO_WHY_MAX];
    hsize_t shape[2] = {0, 0};
    if (at == IO_APPEND_DAMAGED)
        return 0;
    w->n++;
    size_t bytes = io_dtype_size(array->dtype);
    if (H5Lexists(w->file, array->name, H5P_DEFAULT) > 0) /* a killed program had renamed its file */
        return 0;
    if (array->ndim > 2)
        return io_fail(err, array->name, "it has %d axes", (int)array->ndim);
    for (int k = 0; k < array->ndim; k++) {
        shape[k] = (hsize_t)array->shape[k];
        bytes *= (size_t)array->shape[k];
    }
    if (bytes > w->size) {
        free(w->data);
        w->data = malloc(bytes);
        w->size = w->data != NULL ? bytes : 0;
    }
    if (w->data == NULL && bytes > 0)
        return io_fail(err, array->name, "out of memory");
    if (io_pread(w->part, at, w->data, bytes, why) != IO_OK)
        return io_fail(err, array->name, "%s", why);
    const hid_t type = array->dtype == RP_F16 ? w->f16 : H5T_IEEE_F32LE;
    const hid_t space = H5Screate_simple(array->ndim, shape, NULL);
    const hid_t set = H5Dcreate2(w->file, array->name, type, space, H5P_DEFAULT, w->timeless, H5P_DEFAULT);
    const bool written = set >= 0 && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, w->data) >= 0 &&
                         attach(set, H5T_NATIVE_UINT64, &tag);
    const bool closed = set >= 0 && H5Dclose(set) >= 0;
    H5Sclose(space);
    return written && closed ? 0 : io_fail(err, array->name, "cannot be written to HDF5: %s", strerror(errno));
}

/* Open the temporary file: empty, with the note, or a copy of the existing output. */
static hid_t open_temporary(const char *temp, int fd, const char *path, const char *note, char err[IO_ERR_MAX])
{
    struct stat st;
    io_out out = {.path = path, .fd = fd};
    const int from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0 || fstat(from, &st) != 0 || st.st_size == 0) {
        if (from >= 0)
            close(from);
        const hid_t file = H5Fcreate(temp, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), type = H5Tcopy(H5T_C_S1);
        H5Tset_size(type, strlen(note));
        if (file >= 0 && !attach(file, type, note))
            io_fail(err, path, "cannot be written to HDF5: %s", strerror(errno));
        H5Tclose(type);
        return file;
    }
    char *block = malloc(BLOCK), why[IO_WHY_MAX];
    int result = block != NULL ? 0 : -1;
    for (off_t at = 0, n; result == 0 && at < st.st_size; at += n) {
        n = st.st_size - at < BLOCK ? st.st_size - at : BLOCK;
        result = io_pread(from, at, block, (size_t)n, why) == IO_OK ? io_put(&out, block, (size_t)n, err) : -1;
    }
    free(block);
    close(from);
    return result == 0 ? H5Fopen(temp, H5F_ACC_RDWR, H5P_DEFAULT) : -1;
}

int protein_hdf5_write(const char *path, const char *part, uint64_t n, const char *note, char err[IO_ERR_MAX])
{
    char *temp, old_note[1024];
    const int fd = io_temporary(path, false, 0666, &temp);
    if (fd < 0)
        return io_fail(err, path, "cannot be written: %s", strerror(errno));
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    flock(fd, LOCK_UN); /* HDF5 locks the file itself */
    io_fail(err, path, "cannot be written to HDF5");
    writing w = {.file = open_temporary(temp, fd, path, note, err),
                 .f16 = make_f16(),
                 .timeless = H5Pcreate(H5P_DATASET_CREATE),
                 .part = open(part, O_RDONLY | O_CLOEXEC)};
    H5Pset_obj_track_times(w.timeless, false);
    int result =
        w.file >= 0 && w.part >= 0 ? io_append_list(part, old_note, sizeof old_note, copy_array, &w, NULL, err) : -1;
    if (result == 0 && w.n != n)
        result = io_fail(err, part, "%llu arrays were written, but %llu can be read (check the disk, and start again)",
                         (unsigned long long)n, (unsigned long long)w.n);
    if (w.file >= 0 && H5Fclose(w.file) < 0 && result == 0)
        result = io_fail(err, path, "cannot be written: %s", strerror(errno));
    if (result == 0 && (fsync(fd) != 0 || rename(temp, path) != 0))
        result = io_fail(err, path, "cannot be written: %s", strerror(errno));
    if (result != 0)
        unlink(temp);
    else
        io_sync_directory(path);
    H5Tclose(w.f16);
    H5Pclose(w.timeless);
    if (w.part >= 0)
        close(w.part);
    close(fd);
    free(w.data);
    free(temp);
    return result;
}

#else

bool protein_hdf5_built(void)
{
    return false;
}

int protein_hdf5_list(const char *path, char *note, size_t note_size, io_append_found *found, void *context,
                      char err[IO_ERR_MAX])
{
    (void)note_size;
    (void)found;
    (void)context;
    note[0] = 0;
    return io_fail(err, path, "this program was built without HDF5");
}

int protein_hdf5_write(const char *path, const char *part, uint64_t n, const char *note, char err[IO_ERR_MAX])
{
    (void)part;
    (void)n;
    (void)note;
    return io_fail(err, path, "this program was built without HDF5");
}

#endif
