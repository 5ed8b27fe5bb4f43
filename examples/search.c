/* search.c -- find the lines of a file that are most like a question, with an encoder such as all-mpnet-base-v2.
 *
 *     cc search.c $(pkg-config --cflags --libs relpos_encoder) -o search
 *     ./search all-mpnet-base-v2 notes.txt "How do I reset my password?"
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <relpos/encoder.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 100000, SHOWN = 3 };

static rp_encoder_text texts[MOST + 1]; /* the question, then the lines */

/* Return the product of two vectors: the cosine of their angle, as models for search make vectors of length 1. */
static double product(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += (double)a[k] * (double)b[k];
    return sum;
}

/* Read the lines of a file. Return how many there are, or -1. */
static int64_t read_lines(const char *path)
{
    static char line[1 << 16];
    int64_t n = 0;
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return -1;
    while (n < MOST && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *copy = malloc(strlen(line) + 1);
        if (copy == NULL)
            break;
        texts[++n] = (rp_encoder_text){strcpy(copy, line), -1, NULL, 0};
    }
    fclose(f);
    return n;
}

int main(int argc, char **argv)
{
    rp_encoder *model = NULL;
    rp_encoder_opening opening = rp_encoder_opening_init();
    if (argc != 4) {
        fprintf(stderr, "usage: search MODEL FILE QUESTION\n");
        return 2;
    }
    const int64_t n = read_lines(argv[2]);
    if (n < 0) {
        perror(argv[2]);
        return 1;
    }
    texts[0] = (rp_encoder_text){argv[3], -1, NULL, 0};
    opening.type = "q8"; /* 8 bits: a quarter of the memory of f32 */
    rp_status status = rp_encoder_open(&model, argv[1], &opening);
    const int64_t width = status == RP_OK ? rp_encoder_about(model)->vector_width : 0;
    float *vectors = malloc((size_t)((n + 1) * width + 1) * sizeof *vectors);
    if (status == RP_OK && vectors != NULL)
        status = rp_encoder_embed(model, NULL, n + 1, texts, vectors, NULL, NULL);
    for (int shown = 0; status == RP_OK && shown < SHOWN && shown < n; shown++) {
        int64_t best = 1;
        for (int64_t k = 2; k <= n; k++)
            if (product(vectors, vectors + k * width, width) > product(vectors, vectors + best * width, width))
                best = k;
        printf("%.4f  %s\n", product(vectors, vectors + best * width, width), texts[best].text);
        for (int64_t k = 0; k < width; k++) /* do not find it again */
            vectors[best * width + k] = -vectors[k];
    }
    if (status != RP_OK)
        fprintf(stderr, "search: %s\n", rp_encoder_last_error());
    for (int64_t k = 1; k <= n; k++)
        free((void *)texts[k].text);
    free(vectors);
    rp_encoder_close(model);
    return status != RP_OK;
}
