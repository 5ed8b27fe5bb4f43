/* returns.h -- checks that the header documents every status that a test gets from a public function. A function may
 * return the statuses in its comment, those of functions that its list names ("as rp_attend"), and those of the
 * paragraph "Errors" at the top of its header. Tests include this file through tests/helpers.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_RETURNS_H
#define RELPOS_TESTS_RETURNS_H
#include <fcntl.h>
#include <relpos/facts.h>
#include <relpos/layers.h>
#include <relpos/t5.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADERS = 5, HEADER_MAX = 1 << 17 };
static char returns_text[HEADERS][HEADER_MAX]; /* static, because tests make allocations fail */

__attribute__((unused)) static void returns_read(void)
{
    static const char *const files[HEADERS] = {"relpos.h", "terms.h", "facts.h", "layers.h", "t5.h"};
    char path[64];
    for (int n = 0; n < HEADERS && !returns_text[HEADERS - 1][0]; n++) {
        snprintf(path, sizeof path, "include/relpos/%s", files[n]);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        const ssize_t size = fd < 0 ? -1 : read(fd, returns_text[n], HEADER_MAX - 1);
        if (size <= 0 || size == HEADER_MAX - 1 || close(fd) != 0) {
            fprintf(stderr, "%s cannot be read\n", path);
            abort();
        }
    }
}

/* Find the declaration of a function in a header, or NULL. */
__attribute__((unused)) static const char *returns_declared(const char *text, const char *function, size_t length)
{
    static const char before[] = " rp_status ";
    for (const char *at = text; (at = strstr(at, before)) != NULL; at++)
        if (strncmp(at + strlen(before), function, length) == 0 && at[strlen(before) + length] == '(')
            return at;
    return NULL;
}

/* Return true if from … end contains the word. */
__attribute__((unused)) static bool returns_contains(const char *from, const char *end, const char *word)
{
    for (const char *at = from; (at = strstr(at, word)) != NULL && at < end; at++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", at[strlen(word)]) || !at[strlen(word)])
            return true;
    return false;
}

/* Return true if the header says that the function may return the status. */
__attribute__((unused)) static bool returns_documented(const char *function, size_t length, const char *status,
                                                       int depth)
{
    const char *text = NULL, *at = NULL;
    for (int n = 0; n < HEADERS && !at; n++)
        at = returns_declared(text = returns_text[n], function, length);
    if (!at || depth == 4)
        return false;
    const char *from = at, *end, *errors = strstr(text, "\n * Errors "), *top = strstr(text, "*/");
    while (from > text && strncmp(from, "*/", 2) != 0)
        from--;
    end = from;
    while (from > text && strncmp(from, "/*", 2) != 0)
        from--;
    if (returns_contains(from, end, status) || (errors && errors < top && returns_contains(errors, top, status)))
        return true;
    for (const char *name = from; (name = strstr(name, "rp_")) != NULL && name < end; name++) {
        const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
        const char *as = name - 3;
        if (!(n == length && strncmp(name, function, n) == 0) &&
            (strncmp(as, "as ", 3) == 0 || strncmp(as, "of ", 3) == 0 || strncmp(as - 2, "like ", 5) == 0 ||
             strncmp(as - 2, "Like ", 5) == 0 || strncmp(as - 1, "See ", 4) == 0 || strncmp(as - 1, "and ", 4) == 0) &&
            returns_documented(name, n, status, depth + 1))
            return true;
    }
    return false;
}

/* Return the status of a call, after checking that the header documents it. */
__attribute__((unused)) static rp_status returned(const char *function, rp_status status)
{
    if (status != RP_OK) {
        returns_read();
        if (!returns_documented(function, strlen(function), rp_status_name(status), 0)) {
            fprintf(stderr, "%s returned %s, which its comment does not list (\"%s\")\n", function,
                    rp_status_name(status), rp_last_error());
            abort();
        }
    }
    return status;
}

#define rp_convert(...)                returned("rp_convert", rp_convert(__VA_ARGS__))
#define rp_term_shape(...)             returned("rp_term_shape", rp_term_shape(__VA_ARGS__))
#define rp_mask_shape(...)             returned("rp_mask_shape", rp_mask_shape(__VA_ARGS__))
#define rp_mask_row(...)               returned("rp_mask_row", rp_mask_row(__VA_ARGS__))
#define rp_plan_create(...)            returned("rp_plan_create", rp_plan_create(__VA_ARGS__))
#define rp_pool_create(...)            returned("rp_pool_create", rp_pool_create(__VA_ARGS__))
#define rp_pool_from(...)              returned("rp_pool_from", rp_pool_from(__VA_ARGS__))
#define rp_pool_run(...)               returned("rp_pool_run", rp_pool_run(__VA_ARGS__))
#define rp_prepare(...)                returned("rp_prepare", rp_prepare(__VA_ARGS__))
#define rp_key_norms(...)              returned("rp_key_norms", rp_key_norms(__VA_ARGS__))
#define rp_attention(...)              returned("rp_attention", rp_attention(__VA_ARGS__))
#define rp_attend(...)                 returned("rp_attend", rp_attend(__VA_ARGS__))
#define rp_backward(...)               returned("rp_backward", rp_backward(__VA_ARGS__))
#define rp_attend_row(...)             returned("rp_attend_row", rp_attend_row(__VA_ARGS__))
#define rp_attend_parts(...)           returned("rp_attend_parts", rp_attend_parts(__VA_ARGS__))
#define rp_bias(...)                   returned("rp_bias", rp_bias(__VA_ARGS__))
#define rp_error_bound(...)            returned("rp_error_bound", rp_error_bound(__VA_ARGS__))
#define rp_gradient_bound(...)         returned("rp_gradient_bound", rp_gradient_bound(__VA_ARGS__))
#define rp_measure_peak(...)           returned("rp_measure_peak", rp_measure_peak(__VA_ARGS__))
#define rp_measure_tile_peak(...)      returned("rp_measure_tile_peak", rp_measure_tile_peak(__VA_ARGS__))
#define rp_measure_bandwidth(...)      returned("rp_measure_bandwidth", rp_measure_bandwidth(__VA_ARGS__))
#define rp_term_parse_sized(...)       returned("rp_term_parse_sized", rp_term_parse_sized(__VA_ARGS__))
#define rp_term_print_sized(...)       returned("rp_term_print_sized", rp_term_print_sized(__VA_ARGS__))
#define rp_term_sizes_sized(...)       returned("rp_term_sizes_sized", rp_term_sizes_sized(__VA_ARGS__))
#define rp_rope_frequencies_sized(...) returned("rp_rope_frequencies_sized", rp_rope_frequencies_sized(__VA_ARGS__))
#define rp_term_parse(...)             returned("rp_term_parse", rp_term_parse(__VA_ARGS__))
#define rp_term_print(...)             returned("rp_term_print", rp_term_print(__VA_ARGS__))
#define rp_term_sizes(...)             returned("rp_term_sizes", rp_term_sizes(__VA_ARGS__))
#define rp_rope_frequencies(...)       returned("rp_rope_frequencies", rp_rope_frequencies(__VA_ARGS__))
#define rp_term_usual_sizes_sized(...) returned("rp_term_usual_sizes_sized", rp_term_usual_sizes_sized(__VA_ARGS__))
#define rp_term_usual_sizes(...)       returned("rp_term_usual_sizes", rp_term_usual_sizes(__VA_ARGS__))
#define rp_layer_create(...)           returned("rp_layer_create", rp_layer_create(__VA_ARGS__))
#define rp_layer_read(...)             returned("rp_layer_read", rp_layer_read(__VA_ARGS__))
#define rp_layer_write(...)            returned("rp_layer_write", rp_layer_write(__VA_ARGS__))
#define rp_layer_cache_create(...)     returned("rp_layer_cache_create", rp_layer_cache_create(__VA_ARGS__))
#define rp_layer_forward(...)          returned("rp_layer_forward", rp_layer_forward(__VA_ARGS__))
#define rp_layer_backward(...)         returned("rp_layer_backward", rp_layer_backward(__VA_ARGS__))
#define rp_layer_biases(...)           returned("rp_layer_biases", rp_layer_biases(__VA_ARGS__))
#define rp_patches(...)                returned("rp_patches", rp_patches(__VA_ARGS__))
#define rp_patches_back(...)           returned("rp_patches_back", rp_patches_back(__VA_ARGS__))
#define rp_resize_table(...)           returned("rp_resize_table", rp_resize_table(__VA_ARGS__))
#define rp_resize_table_back(...)      returned("rp_resize_table_back", rp_resize_table_back(__VA_ARGS__))
#define rp_window_partition(...)       returned("rp_window_partition", rp_window_partition(__VA_ARGS__))
#define rp_window_reverse(...)         returned("rp_window_reverse", rp_window_reverse(__VA_ARGS__))
#define rp_window_labels(...)          returned("rp_window_labels", rp_window_labels(__VA_ARGS__))
#define rp_t5_open(...)                returned("rp_t5_open", rp_t5_open(__VA_ARGS__))
#define rp_t5_pack(...)                returned("rp_t5_pack", rp_t5_pack(__VA_ARGS__))
#define rp_t5_check_file(...)          returned("rp_t5_check_file", rp_t5_check_file(__VA_ARGS__))
#define rp_t5_tokenize(...)            returned("rp_t5_tokenize", rp_t5_tokenize(__VA_ARGS__))
#define rp_t5_tokenize_watched(...)    returned("rp_t5_tokenize_watched", rp_t5_tokenize_watched(__VA_ARGS__))
#define rp_t5_detokenize(...)          returned("rp_t5_detokenize", rp_t5_detokenize(__VA_ARGS__))
#define rp_t5_detokenize_special(...)  returned("rp_t5_detokenize_special", rp_t5_detokenize_special(__VA_ARGS__))
#define rp_t5_encode(...)              returned("rp_t5_encode", rp_t5_encode(__VA_ARGS__))
#define rp_t5_vector(...)              returned("rp_t5_vector", rp_t5_vector(__VA_ARGS__))
#define rp_t5_prompt(...)              returned("rp_t5_prompt", rp_t5_prompt(__VA_ARGS__))
#define rp_t5_checksum(...)            returned("rp_t5_checksum", rp_t5_checksum(__VA_ARGS__))
#define rp_t5_residues(...)            returned("rp_t5_residues", rp_t5_residues(__VA_ARGS__))
#define rp_t5_encode_residues(...)     returned("rp_t5_encode_residues", rp_t5_encode_residues(__VA_ARGS__))
#define rp_t5_structure_open(...)      returned("rp_t5_structure_open", rp_t5_structure_open(__VA_ARGS__))
#define rp_t5_structure_of(...)        returned("rp_t5_structure_of", rp_t5_structure_of(__VA_ARGS__))
#define rp_t5_fasta_open(...)          returned("rp_t5_fasta_open", rp_t5_fasta_open(__VA_ARGS__))
#define rp_t5_fasta_next(...)          returned("rp_t5_fasta_next", rp_t5_fasta_next(__VA_ARGS__))
#define rp_t5_fasta_skip(...)          returned("rp_t5_fasta_skip", rp_t5_fasta_skip(__VA_ARGS__))
#define rp_t5_generate(...)            returned("rp_t5_generate", rp_t5_generate(__VA_ARGS__))
#define rp_t5_score(...)               returned("rp_t5_score", rp_t5_score(__VA_ARGS__))
#define rp_t5_begin(...)               returned("rp_t5_begin", rp_t5_begin(__VA_ARGS__))
#define rp_t5_step(...)                returned("rp_t5_step", rp_t5_step(__VA_ARGS__))
#define rp_t5_attention_of(...)        returned("rp_t5_attention_of", rp_t5_attention_of(__VA_ARGS__))
#define rp_t5_reference(...)           returned("rp_t5_reference", rp_t5_reference(__VA_ARGS__))
#endif
