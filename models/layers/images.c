/* images.c -- patches of images, interpolation of tables, and windows of grids, forward and backward.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layers/layer.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Check the two arrays of a call: one type, these shapes, contiguous, and no common memory. */
static rp_status check_pair(const char *from_name, const rp_array *from, int32_t from_ndim, const int64_t *from_shape,
                            const char *to_name, const rp_array *to, int32_t to_ndim, const int64_t *to_shape)
{
    if (from->dtype != RP_F32 && from->dtype != RP_F64)
        return layers_fail(RP_E_ARG, "%s is of type %s; expected f32 or f64", from_name, rp_dtype_name(from->dtype));
    rp_status status = layers_check_array(from_name, from, from->dtype, from_ndim, from_shape);
    if (status == RP_OK)
        status = layers_check_array(to_name, to, from->dtype, to_ndim, to_shape);
    if (status != RP_OK)
        return status;
    return layers_check_apart(from_name, from, to_name, to);
}

/* ------------------------------------------------------------------------------------------------ patches */

/* Copy between images and patches: `to_patches` gives the direction. */
static rp_status cut(const rp_array *images, int64_t size, const rp_array *patches, bool to_patches)
{
    if (!images || !patches)
        return layers_fail(RP_E_ARG, "images or patches is NULL; pass both");
    const int64_t b = images->shape[0], c = images->shape[1], h = images->shape[2], w = images->shape[3];
    if (images->ndim != 4 || size < 1 || size > INT32_MAX || h < 0 || w < 0 || h % size != 0 || w % size != 0)
        return layers_fail(
            RP_E_SHAPE,
            "images has %d axes, %lld rows and %lld columns, and size is %lld; expected 4 axes, and rows "
            "and columns that are multiples of size (crop or pad the images)",
            (int)images->ndim, (long long)h, (long long)w, (long long)size);
    const int64_t each[3] = {c, size, size};
    if (layers_count(4, images->shape) < 0 || layers_count(3, each) < 0)
        return layers_fail(RP_E_SHAPE,
                           "images has %lld images of %lld channels, %lld rows and %lld columns; sizes must "
                           "be 0 or more, and numbers of bytes must fit in 63 bits",
                           (long long)b, (long long)c, (long long)h, (long long)w);
    const int64_t rows = h / size, columns = w / size, shape[3] = {b, rows * columns, c * size * size};
    const rp_status status = to_patches ? check_pair("images", images, 4, images->shape, "patches", patches, 3, shape)
                                        : check_pair("patches", patches, 3, shape, "images", images, 4, images->shape);
    if (status != RP_OK)
        return status;
    const size_t element = rp_dtype_size(images->dtype), line = (size_t)size * element;
    for (int64_t n = 0; n < b * rows * columns; n++)
        for (int64_t m = 0; m < c * size; m++) { /* line m of patch n */
            const int64_t image = n / (rows * columns), y = n / columns % rows, x = n % columns;
            const int64_t at = ((image * c + m / size) * h + y * size + m % size) * w + x * size;
            char *in_image = (char *)images->data + (size_t)at * element;
            char *in_patch = (char *)patches->data + (size_t)(n * c * size + m) * line;
            memcpy(to_patches ? in_patch : in_image, to_patches ? in_image : in_patch, line);
        }
    return RP_OK;
}

rp_status rp_patches(const rp_array *images, int64_t size, const rp_array *patches)
{
    return cut(images, size, patches, true);
}

rp_status rp_patches_back(const rp_array *patches, int64_t size, const rp_array *images)
{
    return cut(images, size, patches, false);
}

/* ------------------------------------------------------------------------------------------------ tables */

/* The elements of an axis from which one element is interpolated, and their weights. */
typedef struct taps {
    int64_t at[4];
    double weight[4];
} taps;

static int64_t clamp(int64_t x, int64_t n)
{
    return x < 0 ? 0 : x >= n ? n - 1 : x;
}

/* Keys 1981 with a = -0.75: the weight of an element at distance x. */
static double cubic(double x)
{
    const double a = -0.75;
    return x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

static taps taps_of(int64_t i, int64_t from, int64_t to, rp_interpolation how)
{
    double x = ((double)i + 0.5) * ((double)from / (double)to) - 0.5;
    taps t = {{0}, {0}};
    if (how == RP_BILINEAR && x < 0)
        x = 0;
    const double first = floor(x), rest = x - first;
    for (int n = 0; n < 4; n++) {
        t.at[n] = clamp((int64_t)first + n - 1, from);
        t.weight[n] = how == RP_BICUBIC ? cubic(fabs((double)n - 1 - rest)) : n == 1 ? 1 - rest : n == 2 ? rest : 0;
    }
    return t;
}

static double number(const rp_array *a, int64_t at)
{
    return a->dtype == RP_F64 ? ((const double *)a->data)[at] : (double)((const float *)a->data)[at];
}

static void set_number(const rp_array *a, int64_t at, double value)
{
    if (a->dtype == RP_F64)
        ((double *)a->data)[at] = value;
    else
        ((float *)a->data)[at] = (float)value;
}

/* The sizes of the small (from) and large (to) grid; either may be larger. */
typedef struct grids {
    int64_t from_h, from_w, to_h, to_w, extra;
    rp_interpolation how;
} grids;

static rp_status check_grids(const rp_array *from, const char *from_name, const rp_array *to, const char *to_name,
                             const grids *g, bool back)
{
    const int64_t sizes[] = {g->from_h, g->from_w, g->to_h, g->to_w};
    if (!from || !to)
        return layers_fail(RP_E_ARG, "%s or %s is NULL; pass both", from_name, to_name);
    for (int x = 0; x < 4; x++)
        if (sizes[x] < 1 || sizes[x] > INT32_MAX || g->extra < 0 || g->extra > INT32_MAX)
            return layers_fail(RP_E_RANGE,
                               "a grid has %lld rows or columns and extra is %lld; expected 1 or more and 0 "
                               "or more",
                               (long long)sizes[x], (long long)g->extra);
    if (g->how != RP_BILINEAR && g->how != RP_BICUBIC)
        return layers_fail(RP_E_ARG, "how is %d; expected RP_BILINEAR or RP_BICUBIC", (int)g->how);
    const int64_t small[2] = {g->extra + g->from_h * g->from_w, from->shape[1]};
    const int64_t large[2] = {g->extra + g->to_h * g->to_w, from->shape[1]};
    return check_pair(from_name, from, 2, back ? large : small, to_name, to, 2, back ? small : large);
}

rp_status rp_resize_table(const rp_array *table, int64_t from_h, int64_t from_w, int64_t extra, rp_interpolation how,
                          const rp_array *resized, int64_t to_h, int64_t to_w)
{
    const grids g = {from_h, from_w, to_h, to_w, extra, how};
    const rp_status status = check_grids(table, "table", resized, "resized", &g, false);
    if (status != RP_OK)
        return status;
    const int64_t d = table->shape[1];
    if (extra * d > 0)
        memcpy(resized->data, table->data, (size_t)(extra * d) * rp_dtype_size(table->dtype));
    for (int64_t n = 0; n < to_h * to_w; n++) {
        const taps y = taps_of(n / to_w, from_h, to_h, how), x = taps_of(n % to_w, from_w, to_w, how);
        for (int64_t c = 0; c < d; c++) {
            double sum = 0;
            for (int i = 0; i < 16; i++)
                sum += y.weight[i / 4] * x.weight[i % 4] *
                       number(table, (extra + y.at[i / 4] * from_w + x.at[i % 4]) * d + c);
            set_number(resized, (extra + n) * d + c, sum);
        }
    }
    return RP_OK;
}

rp_status rp_resize_table_back(const rp_array *dresized, int64_t to_h, int64_t to_w, int64_t extra,
                               rp_interpolation how, const rp_array *dtable, int64_t from_h, int64_t from_w)
{
    const grids g = {from_h, from_w, to_h, to_w, extra, how};
    const rp_status status = check_grids(dresized, "dresized", dtable, "dtable", &g, true);
    if (status != RP_OK)
        return status;
    const int64_t d = dresized->shape[1], rows = from_h * from_w;
    double *sum = calloc((size_t)(rows * d) + 1, sizeof *sum);
    if (!sum)
        return layers_no_memory("the gradient of a table");
    if (extra * d > 0)
        memcpy(dtable->data, dresized->data, (size_t)(extra * d) * rp_dtype_size(dtable->dtype));
    for (int64_t n = 0; n < to_h * to_w; n++) {
        const taps y = taps_of(n / to_w, from_h, to_h, how), x = taps_of(n % to_w, from_w, to_w, how);
        for (int i = 0; i < 16; i++)
            for (int64_t c = 0; c < d; c++)
                sum[(y.at[i / 4] * from_w + x.at[i % 4]) * d + c] +=
                    y.weight[i / 4] * x.weight[i % 4] * number(dresized, (extra + n) * d + c);
    }
    for (int64_t n = 0; n < rows * d; n++)
        set_number(dtable, extra * d + n, sum[n]);
    free(sum);
    return RP_OK;
}

/* ------------------------------------------------------------------------------------------------ windows */

static rp_status check_windows(const rp_windows *o)
{
    if (!o)
        return layers_fail(RP_E_ARG, "the sizes of the windows are NULL; pass them");
    const struct {
        const char *name;
        int64_t grid, window, shift;
    } axes[] = {{"h", o->h, o->window_h, o->shift_h}, {"w", o->w, o->window_w, o->shift_w}};
    for (int x = 0; x < 2; x++) {
        const char *name = axes[x].name;
        if (axes[x].window < 1 || axes[x].grid < 1 || axes[x].grid > INT32_MAX || axes[x].grid % axes[x].window != 0)
            return layers_fail(RP_E_SHAPE,
                               "%s is %lld and window_%s is %lld; %s must be a multiple of window_%s (pad the "
                               "grid)",
                               name, (long long)axes[x].grid, name, (long long)axes[x].window, name, name);
        if (axes[x].shift < 0 || axes[x].shift >= axes[x].window)
            return layers_fail(RP_E_RANGE, "shift_%s is %lld; expected 0 or more and less than window_%s, %lld", name,
                               (long long)axes[x].shift, name, (long long)axes[x].window);
    }
    return RP_OK;
}

/* Return the token of the unrolled grid that is token i of window n. */
static int64_t token_of(const rp_windows *o, int64_t n, int64_t i)
{
    const int64_t across = o->w / o->window_w;
    const int64_t y = n / across * o->window_h + i / o->window_w, x = n % across * o->window_w + i % o->window_w;
    return (y + o->shift_h) % o->h * o->w + (x + o->shift_w) % o->w;
}

static rp_status move(const rp_array *tokens, const rp_windows *o, const rp_array *windows, bool to_windows)
{
    rp_status status = check_windows(o);
    if (status != RP_OK)
        return status;
    if (!tokens || !windows)
        return layers_fail(RP_E_ARG, "grids or windows is NULL; pass both");
    const int64_t b = tokens->shape[0], c = tokens->shape[3], n = (o->h / o->window_h) * (o->w / o->window_w);
    const int64_t each = o->window_h * o->window_w, grid[4] = {b, o->h, o->w, c};
    if (layers_count(4, grid) < 0)
        return layers_fail(RP_E_SHAPE,
                           "grids has %lld grids of %lld x %lld tokens of width %lld; sizes must be 0 or "
                           "more, and the number of bytes must fit in 63 bits",
                           (long long)b, (long long)o->h, (long long)o->w, (long long)c);
    const int64_t cut_shape[3] = {b * n, each, c};
    status = to_windows ? check_pair("grids", tokens, 4, grid, "windows", windows, 3, cut_shape)
                        : check_pair("windows", windows, 3, cut_shape, "grids", tokens, 4, grid);
    if (status != RP_OK)
        return status;
    const size_t size = (size_t)c * rp_dtype_size(tokens->dtype);
    for (int64_t x = 0; x < b * n * each && size > 0; x++) {
        const int64_t at = x / (n * each) * o->h * o->w + token_of(o, x / each % n, x % each);
        char *in_grid = (char *)tokens->data + (size_t)at * size, *in_window = (char *)windows->data + (size_t)x * size;
        memcpy(to_windows ? in_window : in_grid, to_windows ? in_grid : in_window, size);
    }
    return RP_OK;
}

rp_status rp_window_partition(const rp_array *tokens, const rp_windows *of, const rp_array *windows)
{
    return move(tokens, of, windows, true);
}

rp_status rp_window_reverse(const rp_array *windows, const rp_windows *of, const rp_array *tokens)
{
    return move(tokens, of, windows, false);
}

rp_status rp_window_labels(const rp_windows *of, const rp_array *labels)
{
    rp_status status = check_windows(of);
    if (status != RP_OK)
        return status;
    if (!labels)
        return layers_fail(RP_E_ARG, "labels is NULL; pass an array");
    const int64_t n = (of->h / of->window_h) * (of->w / of->window_w), each = of->window_h * of->window_w;
    const int64_t shape[2] = {labels->shape[0], each};
    if ((status = layers_check_array("labels", labels, RP_I32, 2, shape)) != RP_OK)
        return status;
    if (shape[0] % n != 0)
        return layers_fail(RP_E_SHAPE, "labels has %lld rows; expected a multiple of %lld, the windows of a grid",
                           (long long)shape[0], (long long)n);
    for (int64_t x = 0; x < shape[0] * each; x++) {
        /* in the rolled grid, tokens of the first shift_h rows and shift_w columns come after all others */
        const int64_t token = token_of(of, x / each % n, x % each);
        ((int32_t *)labels->data)[x] = 2 * (token / of->w < of->shift_h) + (token % of->w < of->shift_w);
    }
    return RP_OK;
}
