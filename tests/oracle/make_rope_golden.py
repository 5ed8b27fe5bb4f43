#!/usr/bin/env python3
"""make_rope_golden.py -- write ../golden/rope_scaling.h: the frequencies of every rope scaling in transformers.

The numbers come from ROPE_INIT_FUNCTIONS of transformers (without scaling, from a rotary embedding class). They are
float32, which %.9g prints exactly. A computation in double agrees to a few parts in 10^7.

SPDX-License-Identifier: Apache-2.0
"""
import os

import transformers
from transformers import GPTNeoXConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

transformers.logging.set_verbosity_error()
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "rope_scaling.h")
NUMBERS = ["base", "factor", "original_max_position_embeddings", "max_position_embeddings", "beta_fast", "beta_slow",
           "attention_factor", "mscale", "mscale_all_dim"]
SHORT = [1.0, 1.05, 1.1, 1.3, 1.6, 2.0, 2.5, 3.0]
LONG = [1.2, 1.5, 2.25, 4.0, 7.5, 12.0, 20.5, 31.0]

# name, head_dim, max_position_embeddings, seq_len (0 = not given), rope_parameters as in a config
CONFIGS = [
    ("default", 16, 2048, 0, dict(rope_type="default", rope_theta=10000.0)),
    ("default_base_500000", 32, 8192, 0, dict(rope_type="default", rope_theta=500000.0)),
    ("default_partial", 32, 2048, 0, dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
    ("linear", 16, 2048, 0, dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
    ("linear_partial", 32, 2048, 0, dict(rope_type="linear", rope_theta=10000.0, factor=2.5,
                                         partial_rotary_factor=0.75)),
    ("dynamic_below", 16, 2048, 1500, dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    ("dynamic_at_max", 16, 2048, 2048, dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    ("dynamic_above", 16, 2048, 5000, dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    ("yarn", 32, 32768, 0, dict(rope_type="yarn", rope_theta=10000.0, factor=8.0,
                                original_max_position_embeddings=4096)),
    ("yarn_factor_from_lengths", 32, 16384, 0,
     dict(rope_type="yarn", rope_theta=10000.0, factor=None, original_max_position_embeddings=4096)),
    ("yarn_mscale", 32, 163840, 0, dict(rope_type="yarn", rope_theta=10000.0, factor=40.0,
                                        original_max_position_embeddings=4096,
                                         beta_fast=32.0, beta_slow=1.0, mscale=0.707, mscale_all_dim=1.0)),
    ("yarn_mscale_alone", 32, 163840, 0, dict(rope_type="yarn", rope_theta=10000.0, factor=40.0,
                                               original_max_position_embeddings=4096, mscale=0.707)),
    ("yarn_untruncated", 32, 131072, 0, dict(rope_type="yarn", rope_theta=150000.0, factor=32.0,
                                             original_max_position_embeddings=4096,
                                              beta_fast=32.0, beta_slow=1.0, truncate=False)),
    ("yarn_attention_factor", 16, 131072, 0, dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0,
                                                   original_max_position_embeddings=32768, beta_fast=16.0,
                                                  beta_slow=2.0,
                                                   attention_factor=1.75)),
    ("yarn_partial", 32, 4096, 0, dict(rope_type="yarn", rope_theta=10000.0, factor=2.0,
                                       original_max_position_embeddings=2048,
                                        partial_rotary_factor=0.5)),
    ("yarn_ramp_of_no_width", 16, 64, 0, dict(rope_type="yarn", rope_theta=10000.0, factor=16.0,
                                              original_max_position_embeddings=4)),
    ("llama3", 32, 131072, 0, dict(rope_type="llama3", rope_theta=500000.0, factor=8.0,
                                   original_max_position_embeddings=8192,
                                    low_freq_factor=1.0, high_freq_factor=4.0)),
    ("llama3_32", 16, 131072, 0, dict(rope_type="llama3", rope_theta=500000.0, factor=32.0,
                                      original_max_position_embeddings=8192,
                                       low_freq_factor=1.0, high_freq_factor=4.0)),
    ("longrope_short", 16, 131072, 4096, dict(rope_type="longrope", rope_theta=10000.0,
                                              original_max_position_embeddings=4096,
                                               short_factor=SHORT, long_factor=LONG)),
    ("longrope_long", 16, 131072, 4097, dict(rope_type="longrope", rope_theta=10000.0,
                                             original_max_position_embeddings=4096,
                                              short_factor=SHORT, long_factor=LONG)),
    ("longrope_factor", 16, 131072, 0, dict(rope_type="longrope", rope_theta=10000.0, factor=8.0,
                                            original_max_position_embeddings=4096,
                                             short_factor=SHORT, long_factor=LONG)),
    ("longrope_attention_factor", 16, 131072, 9000,
     dict(rope_type="longrope", rope_theta=10000.0, factor=32.0, attention_factor=1.3,
          original_max_position_embeddings=4096,
          short_factor=SHORT, long_factor=LONG)),
    ("longrope_partial", 32, 131072, 0, dict(rope_type="longrope", rope_theta=10000.0,
                                             original_max_position_embeddings=4096,
                                              partial_rotary_factor=0.5, short_factor=SHORT, long_factor=LONG)),
]


def frequencies(head_dim, longest, seq_len, given):
    """Return (inv_freq, attention_scaling) as transformers computes them."""
    shape = dict(hidden_size=2 * head_dim, num_attention_heads=2, max_position_embeddings=longest,
                 rope_parameters=dict(given))
    if given["rope_type"] == "default":
        if given.get("partial_rotary_factor", 1.0) != 1.0:
            return GPTNeoXRotaryEmbedding.compute_default_rope_parameters(GPTNeoXConfig(**shape))
        return LlamaRotaryEmbedding.compute_default_rope_parameters(LlamaConfig(**shape))
    config = LlamaConfig(num_key_value_heads=2, head_dim=head_dim, **shape)
    for key, value in given.items():                    # the call must not change the config
        assert config.rope_parameters[key] == value, (key, config.rope_parameters)
    return ROPE_INIT_FUNCTIONS[given["rope_type"]](config, "cpu", seq_len=seq_len or None)


def number(x):
    return "%.9g" % float(x)


def braces(values):
    return "{" + ", ".join(number(x) for x in values) + "}"


def wrapped(text):
    lines, line = [], "     "
    for word in text.split(" "):
        if len(line) + 1 + len(word) > 118:
            lines.append(line)
            line = "     "
        line += " " + word
    return lines + [line]


def main():
    out = ["/* rope_scaling.h -- rotary frequencies as transformers %s computes them in float32; written by"
           % transformers.__version__,
           " * tests/oracle/make_rope_golden.py. A 0 means that the config does not set the number, so transformers "
           "uses its",
           " * default. truncate is 1 unless the config has false. dim is the number of rotated channels, seq_len the",
           " * length for which the frequencies are requested (largest position + 1). Do not edit.",
           " * SPDX-License-Identifier: Apache-2.0 */",
           "#ifndef RELPOS_TESTS_ROPE_SCALING_H", "#define RELPOS_TESTS_ROPE_SCALING_H", "",
           "struct rope_golden {",
           "    const char *name, *type;",
           "    int dim;",
           "    double %s;" % ", ".join(NUMBERS[:6]),
           "    double attention_factor, mscale, mscale_all_dim;",
           "    int truncate;",
           "    double low_freq_factor, high_freq_factor;",
           "    double short_factor[8], long_factor[8];           /* [dim / 2], for longrope */",
           "    double seq_len;",
           "    int n;                                            /* dim / 2 */",
           "    double inv_freq[16];",
           "    double attention_scaling;                         /* multiplies cos and sin */",
           "};", "",
           "static const struct rope_golden ROPE_GOLDEN[] = {"]
    for name, head_dim, longest, seq_len, given in CONFIGS:
        inv_freq, scaling = frequencies(head_dim, longest, seq_len, given)
        dim = int(head_dim * given.get("partial_rotary_factor", 1.0))
        assert len(inv_freq) == dim // 2
        get = lambda key: given.get(key) or 0
        fields = ['.name = "%s"' % name, '.type = "%s"' % given["rope_type"], ".dim = %d" % dim,
                  ".base = %s" % number(given["rope_theta"])]
        fields += [".%s = %s" % (key, number(longest if key == "max_position_embeddings" else get(key)))
                   for key in NUMBERS[1:]]
        fields += [".truncate = %d" % given.get("truncate", True),
                   ".low_freq_factor = %s" % number(get("low_freq_factor")),
                   ".high_freq_factor = %s" % number(get("high_freq_factor"))]
        if "short_factor" in given:
            fields += [".short_factor = " + braces(given["short_factor"]),
                       ".long_factor = " + braces(given["long_factor"])]
        fields += [".seq_len = %d" % seq_len, ".n = %d" % len(inv_freq), ".inv_freq = " + braces(inv_freq.tolist()),
                   ".attention_scaling = %.17g" % scaling]
        body = wrapped(", ".join(fields))
        body[0] = "    { " + body[0].strip()
        out += body[:-1] + [body[-1] + " },"]
    out += ["};", "", "#endif", ""]
    with open(PATH, "w") as f:
        f.write("\n".join(out))
    print("%d configurations" % len(CONFIGS))


main()
