/* s2.c -- the example of "Relative Positional Embedding vs Absolute Positional Embeddings in self-attention": the
 * scores of four patches of a 2 x 2 grid without positions, with absolute positions and with biases of offsets; then
 * attention in windows of an image cut into patches, as in Swin, trained for one step. 04_shift.c shifts an image.
 *
 *     cc s2.c $(pkg-config --cflags --libs relpos_layers relpos) -lm -o s2 && ./s2
 *
 * Scores are right where the text is not. An argument is added to the first number of patch 0: ./s2 0.5
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <relpos/layers.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 4, D = 2, IMAGE = 8, PATCH = 2, SIDE = IMAGE / PATCH, WIDTH = PATCH * PATCH, WINDOW = 2 };

static void stop_on(rp_status status)
{
    if (status != RP_OK) {
        fprintf(stderr, "%s%s\n", rp_layer_last_error(), rp_last_error());
        exit(1);
    }
}

/* Print the scores x x^T / sqrt(2) + bias of four patches. The table has a bias for each row and column of the query
 * minus those of the key, from (-1, -1) to (1, 1); NULL: no bias. */
static void print_scores(const char *title, double x[N][D], const double *table)
{
    const int64_t shape[4] = {1, 1, N, D}, table_shape[2] = {9, 1};
    rp_term term = rp_term_init(RP_TERM_SWIN);
    rp_desc desc = rp_desc_init(1, 1, N, N, D);
    rp_tensors t = rp_tensors_init();
    rp_plan *plan;
    term.grid_h = term.grid_w = 2;
    desc.dtype = RP_F64;
    desc.terms = &term;
    desc.n_terms = table ? 1 : 0;
    t.q = t.k = t.v = rp_array_of(x, RP_F64, 4, shape);
    if (table)
        t.term[0][0] = rp_array_of(table, RP_F64, 2, table_shape);
    stop_on(rp_plan_create(&plan, &desc));
    printf("%s:\n", title);
    for (int i = 0; i < N; i++) {
        double score[N];
        rp_row row = {NULL, NULL, NULL, score, NULL, NULL, 0};
        stop_on(rp_attend_row(plan, &t, 0, 0, i, &row));
        printf("  %7.3f %7.3f %7.3f %7.3f\n", score[0], score[1], score[2], score[3]);
    }
    rp_plan_destroy(plan);
}

/* Cut an image into patches, attend in shifted windows, and train one step towards outputs of 0. */
static void windows(double first)
{
    const rp_windows of = {SIDE, SIDE, WINDOW, WINDOW, 1, 1};
    const int64_t image_shape[4] = {1, 1, IMAGE, IMAGE}, patch_shape[3] = {1, SIDE * SIDE, WIDTH};
    const int64_t grid_shape[4] = {1, SIDE, SIDE, WIDTH}, shape[3] = {SIDE, WINDOW * WINDOW, WIDTH};
    double image[IMAGE][IMAGE], patches[SIDE * SIDE][WIDTH] = {{0}}, cut[SIDE * SIDE][WIDTH] = {{0}};
    double out[SIDE * SIDE][WIDTH];
    int32_t labels[SIDE * SIDE] = {0};
    for (int i = 0; i < IMAGE * IMAGE; i++)
        image[i / IMAGE][i % IMAGE] = sin(i) + (i == 0 ? first : 0);
    const rp_array pixels = rp_array_of(image, RP_F64, 4, image_shape),
                   flat = rp_array_of(patches, RP_F64, 3, patch_shape);
    const rp_array grid = rp_array_of(patches, RP_F64, 4, grid_shape), tokens = rp_array_of(cut, RP_F64, 3, shape);
    const rp_array segments = rp_array_of(labels, RP_I32, 2, shape);
    stop_on(rp_patches(&pixels, PATCH, &flat));
    stop_on(rp_window_partition(&grid, &of, &tokens));
    stop_on(rp_window_labels(&of, &segments));

    rp_layer_desc desc = rp_layer_window_attention(WIDTH, WINDOW, WINDOW, 2);
    rp_layer_call call = rp_layer_call_init();
    rp_layer_grads g = rp_layer_grads_init();
    rp_layer *layer;
    desc.dtype = RP_F64;
    desc.mask[desc.n_masks++] = rp_mask_init(RP_MASK_SEGMENTS);
    stop_on(rp_layer_create(&layer, &desc));
    for (int n = 0; rp_layer_param_at(layer, n); n++) { /* any numbers will do */
        const rp_layer_param *p = rp_layer_param_at(layer, n);
        for (int64_t i = 0; i < p->n; i++)
            ((double *)p->data)[i] = cos((double)(i + 10 * n)) / 2;
    }
    call.query = tokens;
    call.mask[0] = segments;
    call.out = g.dout = rp_array_of(out, RP_F64, 3, shape); /* the gradient of the loss sum(out^2) / 2 is out */
    printf("shifted windows of 2 x 2 patches, one step of training:\n");
    for (int step = 0; step < 2; step++) {
        rp_layer_saved *saved;
        double loss = 0;
        stop_on(rp_layer_forward(layer, &call, &saved));
        for (int i = 0; i < SIDE * SIDE * WIDTH; i++)
            loss += out[i / WIDTH][i % WIDTH] * out[i / WIDTH][i % WIDTH] / 2;
        printf("  loss %.6f\n", loss);
        stop_on(rp_layer_backward(layer, &call, saved, &g));
        rp_layer_step(layer, 0.01);
        rp_layer_saved_free(saved);
    }
    rp_layer_destroy(layer);
}

int main(int argc, char **argv)
{
    double x[N][D] = {{1, 0}, {0, 1}, {1, 1}, {0, 0}}, with_positions[N][D];
    /* row by row: offsets (-1, -1), (-1, 0), (-1, 1), (0, -1), … */
    const double table[9] = {0.3, 0.1, 0, 0.2, 0, -0.2, 0, -0.1, -0.3};
    const double first = argc > 1 ? atof(argv[1]) : 0;
    x[0][0] += first;
    for (int i = 0; i < N; i++) {
        with_positions[i][0] = x[i][0] + 0.5 * (i / 2);
        with_positions[i][1] = x[i][1] + 0.5 * (i % 2);
    }
    print_scores("content only (6.2)", x, NULL);
    print_scores("absolute positions (6.3)", with_positions, NULL);
    print_scores("relative bias, query minus key (6.4)", x, table);
    windows(first);
    return 0;
}
