/* protein_hdf5.c -- the HDF5 files of `relpos t5 proteins`: one dataset per protein, with the checksum of its residues
 * as the attribute relpos; the attribute relpos of the file describes how the datasets are made. Without libhdf5, the
 * functions fail.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/append.h"
#include "io/formats.h"
#include "cli/t5/proteins.h"

#ifdef RELPOS_HDF5
#include <dlfcn.h>
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

/* ------------------------------------------------------------------------------------------------ the library */

/* Macros of HDF5 call the library before they name a constant. protein_hdf5_load has done this. */
#undef H5OPEN
#undef H5CHECK
#define H5OPEN
#define H5CHECK

/* The functions and variables of libhdf5 that this file uses. The program loads libhdf5 only to read or write such a
 * file, because libhdf5 needs 30 other libraries, and loading them would double the time in which every command
 * starts. */
/* clang-format off */
#define SYMBOLS(X) \
    X(H5open) X(H5Aclose) X(H5Acreate2) X(H5Aexists) X(H5Aget_type) X(H5Aopen) X(H5Aread) X(H5Awrite) \
    X(H5Dclose) X(H5Dcreate2) X(H5Dopen2) X(H5Dwrite) X(H5Eset_auto2) X(H5Fclose) X(H5Fcreate) X(H5Fopen) \
    X(H5Lexists) X(H5Literate) X(H5Pclose) X(H5Pcreate) X(H5Pset_obj_track_times) X(H5Sclose) X(H5Screate) \
    X(H5Screate_simple) X(H5Tclose) X(H5Tcopy) X(H5Tget_class) X(H5Tget_size) X(H5Tis_variable_str) \
    X(H5Tset_ebias) X(H5Tset_fields) X(H5Tset_size) X(H5T_NATIVE_UINT64_g) X(H5T_IEEE_F32LE_g) X(H5T_C_S1_g) \
    X(H5P_CLS_DATASET_CREATE_ID_g)
/* clang-format on */
#define MEMBER(name) __typeof__(name) *name;
#define TEXT(name)   #name
#define PLACE(name)  {TEXT(name), &h5.name},
static struct {
    SYMBOLS(MEMBER)
} h5;

const char *protein_hdf5_load(void)
{
    static const struct {
        const char *name;
        void *to;
    } places[] = {SYMBOLS(PLACE)};
    static char why[512];
    void *library = dlopen(RELPOS_HDF5, RTLD_NOW | RTLD_LOCAL);
    for (size_t n = 0; library && n < sizeof places / sizeof *places; n++) {
        void *symbol = dlsym(library, places[n].name);
        memcpy(places[n].to, &symbol, sizeof symbol);
        library = symbol ? library : NULL;
    }
    if (!library)
        snprintf(why, sizeof why, "HDF5 cannot be loaded: %s (write .npz, or install libhdf5)", dlerror());
    else if (h5.H5open() < 0 || h5.H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0) /* it shall print no messages */
        snprintf(why, sizeof why, "HDF5 cannot start (write .npz)");
    return why[0] ? why : NULL;
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
    const hid_t set = h5.H5Dopen2(file, name, H5P_DEFAULT),
                attribute = set >= 0 ? h5.H5Aopen(set, ATTRIBUTE, H5P_DEFAULT) : -1;
    const bool ours = attribute >= 0 && h5.H5Aread(attribute, *h5.H5T_NATIVE_UINT64_g, &tag) >= 0;
    if (attribute >= 0)
        h5.H5Aclose(attribute);
    if (set >= 0)
        h5.H5Dclose(set);
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
    const hid_t attribute = h5.H5Aexists(file, ATTRIBUTE) > 0 ? h5.H5Aopen(file, ATTRIBUTE, H5P_DEFAULT) : -1;
    const hid_t type = attribute >= 0 ? h5.H5Aget_type(attribute) : -1;
    if (type >= 0 && h5.H5Tget_class(type) == H5T_STRING && !h5.H5Tis_variable_str(type) &&
        h5.H5Tget_size(type) < note_size && h5.H5Aread(attribute, type, note) >= 0)
        note[h5.H5Tget_size(type)] = 0;
    else
        note[0] = 0;
    if (type >= 0)
        h5.H5Tclose(type);
    if (attribute >= 0)
        h5.H5Aclose(attribute);
}

int protein_hdf5_list(const char *path, char *note, size_t note_size, io_append_found *found, void *context,
                      char err[IO_ERR_MAX])
{
    listing l = {path, found, context, err, 0};
    note[0] = 0;
    const hid_t file = h5.H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0)
        return io_fail(err, path,
                       "it is not an HDF5 file, or it is open elsewhere (remove it, or write to another file)");
    read_note(file, note, note_size);
    if (note[0] != 0 && h5.H5Literate(file, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, on_link, &l) < 0 && l.result == 0)
        l.result = io_fail(err, path, "its datasets cannot be listed (remove it, or write to another file)");
    h5.H5Fclose(file);
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
    const hid_t type = h5.H5Tcopy(*h5.H5T_IEEE_F32LE_g);
    h5.H5Tset_fields(type, 15, 10, 5, 0, 10);
    h5.H5Tset_size(type, 2);
    h5.H5Tset_ebias(type, 15);
    return type;
}

/* Attach an attribute to an object. */
static bool attach(hid_t to, hid_t type, const void *value)
{
    const hid_t space = h5.H5Screate(H5S_SCALAR);
    const hid_t attribute = h5.H5Acreate2(to, ATTRIBUTE, type, space, H5P_DEFAULT, H5P_DEFAULT);
    const bool written = attribute >= 0 && h5.H5Awrite(attribute, type, value) >= 0;
    if (attribute >= 0)
        h5.H5Aclose(attribute);
    h5.H5Sclose(space);
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
    if (h5.H5Lexists(w->file, array->name, H5P_DEFAULT) > 0) /* a killed program had renamed its file */
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
    const hid_t type = array->dtype == RP_F16 ? w->f16 : *h5.H5T_IEEE_F32LE_g;
    const hid_t space = h5.H5Screate_simple(array->ndim, shape, NULL);
    const hid_t set = h5.H5Dcreate2(w->file, array->name, type, space, H5P_DEFAULT, w->timeless, H5P_DEFAULT);
    const bool written = set >= 0 && h5.H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, w->data) >= 0 &&
                         attach(set, *h5.H5T_NATIVE_UINT64_g, &tag);
    const bool closed = set >= 0 && h5.H5Dclose(set) >= 0;
    h5.H5Sclose(space);
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
        const hid_t file = h5.H5Fcreate(temp, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
                    type = h5.H5Tcopy(*h5.H5T_C_S1_g);
        h5.H5Tset_size(type, strlen(note));
        if (file >= 0 && !attach(file, type, note))
            io_fail(err, path, "cannot be written to HDF5: %s", strerror(errno));
        h5.H5Tclose(type);
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
    return result == 0 ? h5.H5Fopen(temp, H5F_ACC_RDWR, H5P_DEFAULT) : -1;
}

int protein_hdf5_write(const char *path, const char *part, uint64_t n, const char *note, char err[IO_ERR_MAX])
{
    char *temp, old_note[1024];
    const int fd = io_temporary(path, false, 0666, &temp);
    if (fd < 0)
        return io_fail(err, path, "cannot be written: %s", strerror(errno));
    flock(fd, LOCK_UN); /* HDF5 locks the file itself */
    io_fail(err, path, "cannot be written to HDF5");
    writing w = {.file = open_temporary(temp, fd, path, note, err),
                 .f16 = make_f16(),
                 .timeless = h5.H5Pcreate(*h5.H5P_CLS_DATASET_CREATE_ID_g),
                 .part = open(part, O_RDONLY | O_CLOEXEC)};
    h5.H5Pset_obj_track_times(w.timeless, false);
    int result =
        w.file >= 0 && w.part >= 0 ? io_append_list(part, old_note, sizeof old_note, copy_array, &w, NULL, err) : -1;
    if (result == 0 && w.n != n)
        result = io_fail(err, part, "%llu arrays were written, but %llu can be read (check the disk, and start again)",
                         (unsigned long long)n, (unsigned long long)w.n);
    if (w.file >= 0 && h5.H5Fclose(w.file) < 0 && result == 0)
        result = io_fail(err, path, "cannot be written: %s", strerror(errno));
    if (result == 0 && (fsync(fd) != 0 || rename(temp, path) != 0))
        result = io_fail(err, path, "cannot be written: %s", strerror(errno));
    if (result != 0)
        unlink(temp);
    else
        io_sync_directory(path);
    h5.H5Tclose(w.f16);
    h5.H5Pclose(w.timeless);
    if (w.part >= 0)
        close(w.part);
    close(fd);
    free(w.data);
    free(temp);
    return result;
}

#else

const char *protein_hdf5_load(void)
{
    return "this program was built without HDF5 (write .npz, or install libhdf5 and build again)";
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
