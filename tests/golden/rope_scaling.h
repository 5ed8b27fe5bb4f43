/* rope_scaling.h -- rotary frequencies as transformers 5.23.0 computes them in float32; written by
 * tests/oracle/make_rope_golden.py. A 0 means that the config does not set the number, so transformers uses its
 * default. truncate is 1 unless the config has false. dim is the number of rotated channels, seq_len the
 * length for which the frequencies are requested (largest position + 1). Do not edit.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_ROPE_SCALING_H
#define RELPOS_TESTS_ROPE_SCALING_H

struct rope_golden {
    const char *name, *type;
    int dim;
    double base, factor, original_max_position_embeddings, max_position_embeddings, beta_fast, beta_slow;
    double attention_factor, mscale, mscale_all_dim;
    int truncate;
    double low_freq_factor, high_freq_factor;
    double short_factor[8], long_factor[8];           /* [dim / 2], for longrope */
    double seq_len;
    int n;                                            /* dim / 2 */
    double inv_freq[16];
    double attention_scaling;                         /* multiplies cos and sin */
};

static const struct rope_golden ROPE_GOLDEN[] = {
    { .name = "default", .type = "default", .dim = 16, .base = 10000, .factor = 0, .original_max_position_embeddings =
      0, .max_position_embeddings = 2048, .beta_fast = 0, .beta_slow = 0, .attention_factor = 0, .mscale = 0,
      .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor = 0, .seq_len = 0, .n = 8, .inv_freq
      = {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786},
      .attention_scaling = 1 },
    { .name = "default_base_500000", .type = "default", .dim = 32, .base = 500000, .factor = 0,
      .original_max_position_embeddings = 0, .max_position_embeddings = 8192, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .seq_len = 0, .n = 16, .inv_freq = {1, 0.440366626, 0.193922758, 0.0853971019, 0.0376060307, 0.0165604409,
      0.00729266508, 0.00321144611, 0.00141421345, 0.000622772437, 0.000274248188, 0.000120769742, 5.31829573e-05,
      2.34199979e-05, 1.03133852e-05, 4.54167048e-06}, .attention_scaling = 1 },
    { .name = "default_partial", .type = "default", .dim = 16, .base = 10000, .factor = 0,
      .original_max_position_embeddings = 0, .max_position_embeddings = 2048, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .seq_len = 0, .n = 8, .inv_freq = {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786,
      0.00100000005, 0.000316227786}, .attention_scaling = 1 },
    { .name = "linear", .type = "linear", .dim = 16, .base = 10000, .factor = 4, .original_max_position_embeddings =
      0, .max_position_embeddings = 2048, .beta_fast = 0, .beta_slow = 0, .attention_factor = 0, .mscale = 0,
      .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor = 0, .seq_len = 0, .n = 8, .inv_freq
      = {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012,
      7.90569466e-05}, .attention_scaling = 1 },
    { .name = "linear_partial", .type = "linear", .dim = 24, .base = 10000, .factor = 2.5,
      .original_max_position_embeddings = 0, .max_position_embeddings = 2048, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .seq_len = 0, .n = 12, .inv_freq = {0.400000006, 0.185663551, 0.0861773789, 0.0399999991, 0.0185663532,
      0.00861773919, 0.00399999972, 0.00185663591, 0.000861773733, 0.000400000019, 0.000185663579, 8.6177366e-05},
      .attention_scaling = 1 },
    { .name = "dynamic_below", .type = "dynamic", .dim = 16, .base = 10000, .factor = 2,
      .original_max_position_embeddings = 0, .max_position_embeddings = 2048, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .seq_len = 1500, .n = 8, .inv_freq = {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978,
      0.00316227786, 0.00100000005, 0.000316227786}, .attention_scaling = 1 },
    { .name = "dynamic_at_max", .type = "dynamic", .dim = 16, .base = 10000, .factor = 2,
      .original_max_position_embeddings = 0, .max_position_embeddings = 2048, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .seq_len = 2048, .n = 8, .inv_freq = {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978,
      0.00316227786, 0.00100000005, 0.000316227786}, .attention_scaling = 1 },
    { .name = "dynamic_above", .type = "dynamic", .dim = 16, .base = 10000, .factor = 2,
      .original_max_position_embeddings = 0, .max_position_embeddings = 2048, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .seq_len = 5000, .n = 8, .inv_freq = {1, 0.260517091, 0.0678691566, 0.0176810753, 0.00460622227,
      0.00119999971, 0.000312620425, 8.14429659e-05}, .attention_scaling = 1 },
    { .name = "yarn", .type = "yarn", .dim = 32, .base = 10000, .factor = 8, .original_max_position_embeddings = 4096,
      .max_position_embeddings = 32768, .beta_fast = 0, .beta_slow = 0, .attention_factor = 0, .mscale = 0,
      .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor = 0, .seq_len = 0, .n = 16,
      .inv_freq = {1, 0.562341332, 0.316227764, 0.177827939, 0.100000001, 0.0562341288, 0.0276699308, 0.0133370962,
      0.00624999963, 0.00281170662, 0.0011858542, 0.000444569858, 0.000125000006, 7.02926627e-05, 3.95284733e-05,
      2.22284925e-05}, .attention_scaling = 1.2079441541679836 },
    { .name = "yarn_factor_from_lengths", .type = "yarn", .dim = 32, .base = 10000, .factor = 0,
      .original_max_position_embeddings = 4096, .max_position_embeddings = 16384, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .seq_len = 0, .n = 16, .inv_freq = {1, 0.562341332, 0.316227764, 0.177827939, 0.100000001, 0.0562341288,
      0.0282346234, 0.0139721958, 0.00678571407, 0.00321337907, 0.00146820047, 0.00063509983, 0.000250000012,
      0.000140585325, 7.90569466e-05, 4.44569851e-05}, .attention_scaling = 1.1386294361119891 },
    { .name = "yarn_mscale", .type = "yarn", .dim = 32, .base = 10000, .factor = 40, .original_max_position_embeddings
      = 4096, .max_position_embeddings = 163840, .beta_fast = 32, .beta_slow = 1, .attention_factor = 0, .mscale =
      0.707, .mscale_all_dim = 1, .truncate = 1, .low_freq_factor = 0, .high_freq_factor = 0, .seq_len = 0, .n = 16,
      .inv_freq = {1, 0.562341332, 0.316227764, 0.177827939, 0.100000001, 0.0562341288, 0.0272181761, 0.0128290169,
      0.00582142826, 0.00249036867, 0.000959977158, 0.000292145909, 2.49999994e-05, 1.40585325e-05, 7.90569447e-06,
      4.44569832e-06}, .attention_scaling = 0.92104235531633993 },
    { .name = "yarn_mscale_alone", .type = "yarn", .dim = 32, .base = 10000, .factor = 40,
      .original_max_position_embeddings = 4096, .max_position_embeddings = 163840, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0.707, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0,
      .high_freq_factor = 0, .seq_len = 0, .n = 16, .inv_freq = {1, 0.562341332, 0.316227764, 0.177827939,
      0.100000001, 0.0562341288, 0.0272181761, 0.0128290169, 0.00582142826, 0.00249036867, 0.000959977158,
      0.000292145909, 2.49999994e-05, 1.40585325e-05, 7.90569447e-06, 4.44569832e-06}, .attention_scaling =
      1.3688879454113936 },
    { .name = "yarn_untruncated", .type = "yarn", .dim = 32, .base = 150000, .factor = 32,
      .original_max_position_embeddings = 4096, .max_position_embeddings = 131072, .beta_fast = 32, .beta_slow = 1,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 0, .low_freq_factor = 0, .high_freq_factor
      = 0, .seq_len = 0, .n = 16, .inv_freq = {1, 0.47478205, 0.225418001, 0.107024416, 0.0508132726, 0.0193350017,
      0.00679495931, 0.00209379266, 0.000456483918, 3.83088118e-05, 1.8188337e-05, 8.63549576e-06, 4.09997847e-06,
      1.94659629e-06, 9.24208962e-07, 4.38797855e-07}, .attention_scaling = 1.3465735902799727 },
    { .name = "yarn_attention_factor", .type = "yarn", .dim = 16, .base = 1000000, .factor = 4,
      .original_max_position_embeddings = 32768, .max_position_embeddings = 131072, .beta_fast = 16, .beta_slow = 2,
      .attention_factor = 1.75, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0,
      .high_freq_factor = 0, .seq_len = 0, .n = 8, .inv_freq = {1, 0.177827939, 0.0316227786, 0.00562341325,
      0.000625000044, 4.44569851e-05, 7.90569356e-06, 1.40585337e-06}, .attention_scaling = 1.75 },
    { .name = "yarn_partial", .type = "yarn", .dim = 16, .base = 10000, .factor = 2, .original_max_position_embeddings
      = 2048, .max_position_embeddings = 4096, .beta_fast = 0, .beta_slow = 0, .attention_factor = 0, .mscale = 0,
      .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor = 0, .seq_len = 0, .n = 8, .inv_freq
      = {1, 0.316227764, 0.100000001, 0.0276699308, 0.00749999983, 0.00197642366, 0.000500000024, 0.000158113893},
      .attention_scaling = 1.0693147180559945 },
    { .name = "yarn_ramp_of_no_width", .type = "yarn", .dim = 16, .base = 10000, .factor = 16,
      .original_max_position_embeddings = 4, .max_position_embeddings = 64, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .seq_len = 0, .n = 8, .inv_freq = {1, 0.0197642352, 0.00625000009, 0.00197642366, 0.000624999986,
      0.000197642366, 6.2500003e-05, 1.97642366e-05}, .attention_scaling = 1.2772588722239782 },
    { .name = "llama3", .type = "llama3", .dim = 32, .base = 500000, .factor = 8, .original_max_position_embeddings =
      8192, .max_position_embeddings = 131072, .beta_fast = 0, .beta_slow = 0, .attention_factor = 0, .mscale = 0,
      .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 1, .high_freq_factor = 4, .seq_len = 0, .n = 16,
      .inv_freq = {1, 0.440366626, 0.193922758, 0.0853971019, 0.0376060307, 0.0165604409, 0.00729266508,
      0.00321144611, 0.000524846022, 7.78465546e-05, 3.42810235e-05, 1.50962178e-05, 6.64786967e-06, 2.92749974e-06,
      1.28917316e-06, 5.6770881e-07}, .attention_scaling = 1 },
    { .name = "llama3_32", .type = "llama3", .dim = 16, .base = 500000, .factor = 32,
      .original_max_position_embeddings = 8192, .max_position_embeddings = 131072, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 1, .high_freq_factor
      = 4, .seq_len = 0, .n = 8, .inv_freq = {1, 0.193922758, 0.0376060307, 0.00729266508, 0.000429556705,
      8.57025589e-06, 1.66196742e-06, 3.22293289e-07}, .attention_scaling = 1 },
    { .name = "longrope_short", .type = "longrope", .dim = 16, .base = 10000, .factor = 0,
      .original_max_position_embeddings = 4096, .max_position_embeddings = 131072, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .short_factor = {1, 1.05, 1.1, 1.3, 1.6, 2, 2.5, 3}, .long_factor = {1.2, 1.5, 2.25, 4, 7.5, 12, 20.5, 31},
      .seq_len = 4096, .n = 8, .inv_freq = {1, 0.301169306, 0.0909090936, 0.0243252143, 0.00625000009, 0.00158113893,
      0.00039999999, 0.000105409257}, .attention_scaling = 1.1902380714238083 },
    { .name = "longrope_long", .type = "longrope", .dim = 16, .base = 10000, .factor = 0,
      .original_max_position_embeddings = 4096, .max_position_embeddings = 131072, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .short_factor = {1, 1.05, 1.1, 1.3, 1.6, 2, 2.5, 3}, .long_factor = {1.2, 1.5, 2.25, 4, 7.5, 12, 20.5, 31},
      .seq_len = 4097, .n = 8, .inv_freq = {0.833333313, 0.210818499, 0.0444444455, 0.00790569466, 0.00133333332,
      0.000263523165, 4.87804864e-05, 1.02008962e-05}, .attention_scaling = 1.1902380714238083 },
    { .name = "longrope_factor", .type = "longrope", .dim = 16, .base = 10000, .factor = 8,
      .original_max_position_embeddings = 4096, .max_position_embeddings = 131072, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .short_factor = {1, 1.05, 1.1, 1.3, 1.6, 2, 2.5, 3}, .long_factor = {1.2, 1.5, 2.25, 4, 7.5, 12, 20.5, 31},
      .seq_len = 0, .n = 8, .inv_freq = {1, 0.301169306, 0.0909090936, 0.0243252143, 0.00625000009, 0.00158113893,
      0.00039999999, 0.000105409257}, .attention_scaling = 1.1180339887498949 },
    { .name = "longrope_attention_factor", .type = "longrope", .dim = 16, .base = 10000, .factor = 32,
      .original_max_position_embeddings = 4096, .max_position_embeddings = 131072, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 1.3, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0,
      .high_freq_factor = 0, .short_factor = {1, 1.05, 1.1, 1.3, 1.6, 2, 2.5, 3}, .long_factor = {1.2, 1.5, 2.25, 4,
      7.5, 12, 20.5, 31}, .seq_len = 9000, .n = 8, .inv_freq = {0.833333313, 0.210818499, 0.0444444455, 0.00790569466,
      0.00133333332, 0.000263523165, 4.87804864e-05, 1.02008962e-05}, .attention_scaling = 1.3 },
    { .name = "longrope_partial", .type = "longrope", .dim = 16, .base = 10000, .factor = 0,
      .original_max_position_embeddings = 4096, .max_position_embeddings = 131072, .beta_fast = 0, .beta_slow = 0,
      .attention_factor = 0, .mscale = 0, .mscale_all_dim = 0, .truncate = 1, .low_freq_factor = 0, .high_freq_factor
      = 0, .short_factor = {1, 1.05, 1.1, 1.3, 1.6, 2, 2.5, 3}, .long_factor = {1.2, 1.5, 2.25, 4, 7.5, 12, 20.5, 31},
      .seq_len = 0, .n = 8, .inv_freq = {1, 0.301169306, 0.0909090936, 0.0243252143, 0.00625000009, 0.00158113893,
      0.00039999999, 0.000105409257}, .attention_scaling = 1.1902380714238083 },
};

#endif
