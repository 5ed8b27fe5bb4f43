/* returns.h -- notes the status of each failing call of a public function, so that tools/returns.py can compare the
 * notes of all tests with the Returns paragraphs of the headers. Tests include this file through tests/helpers.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_RETURNS_H
#define RELPOS_TESTS_RETURNS_H
#include <fcntl.h>
#include <relpos/facts.h>
#include <relpos/layers.h>
#include <relpos/t5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Append a line to the file that RELPOS_TEST_RETURNS names. It allocates nothing, because tests make allocations
 * fail. */
__attribute__((unused)) static void returns_note(const char *function, rp_status status)
{
    enum { NOTED = 256 };
    static _Thread_local struct {
        const char *function;
        rp_status status;
    } noted[NOTED]; /* lines that this thread has written */
    const char *path = getenv("RELPOS_TEST_RETURNS");
    int n = 0;
    while (n < NOTED && noted[n].function && !(noted[n].status == status && strcmp(noted[n].function, function) == 0))
        n++;
    if (!path || n == NOTED || noted[n].function)
        return;
    char line[1024];
    const int length = snprintf(line, sizeof line, "%s %s %s\n", function, rp_status_name(status), rp_last_error());
    const size_t size = (size_t)length < sizeof line ? (size_t)length : sizeof line;
    line[size - 1] = '\n';
    const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || write(file, line, size) != (ssize_t)size || close(file) != 0) {
        fprintf(stderr, "%s cannot be written\n", path);
        abort();
    }
    noted[n].function = function;
    noted[n].status = status;
}

/* Return the status of a call, and note it if it is an error. */
__attribute__((unused)) static rp_status returned(const char *function, rp_status status)
{
    if (status != RP_OK)
        returns_note(function, status);
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
#define rp_jvp(...)                    returned("rp_jvp", rp_jvp(__VA_ARGS__))
#define rp_hvp(...)                    returned("rp_hvp", rp_hvp(__VA_ARGS__))
#define rp_attend_row(...)             returned("rp_attend_row", rp_attend_row(__VA_ARGS__))
#define rp_attend_parts(...)           returned("rp_attend_parts", rp_attend_parts(__VA_ARGS__))
#define rp_bias(...)                   returned("rp_bias", rp_bias(__VA_ARGS__))
#define rp_error_bound(...)            returned("rp_error_bound", rp_error_bound(__VA_ARGS__))
#define rp_gradient_bound(...)         returned("rp_gradient_bound", rp_gradient_bound(__VA_ARGS__))
#define rp_tangent_bound(...)          returned("rp_tangent_bound", rp_tangent_bound(__VA_ARGS__))
#define rp_hvp_bound(...)              returned("rp_hvp_bound", rp_hvp_bound(__VA_ARGS__))
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
#define rp_mpi_plan_create(...)        returned("rp_mpi_plan_create", rp_mpi_plan_create(__VA_ARGS__))
#define rp_mpi_attend(...)             returned("rp_mpi_attend", rp_mpi_attend(__VA_ARGS__))
#define rp_mpi_backward(...)           returned("rp_mpi_backward", rp_mpi_backward(__VA_ARGS__))
#endif
