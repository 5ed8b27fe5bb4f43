#!/usr/bin/env python3
"""make_t5_buckets.py -- compute the buckets of Hugging Face's T5 and write t5_buckets.h. Needs torch and transformers.

    python3 tests/golden/make_t5_buckets.py            write tests/golden/t5_buckets.h
    python3 tests/golden/make_t5_buckets.py --check    recompute and compare with the committed file; exit 1 on a
                                                       difference
    python3 tests/golden/make_t5_buckets.py --sweep    find where other arithmetic differs, over thousands of settings

The oracle is T5Attention._relative_position_bucket itself, on the CPU, for every offset (key minus query) from -100000
to 100000 under ten settings. A bucket is constant over long runs of offsets, so the header holds the first offset of
each run and its bucket. In the ten settings an f32 and an f64 logarithm give the same buckets. The settings of WITNESS
distinguish them, and those of LOGF_WITNESS distinguish a correctly rounded f32 logarithm from glibc's logf. The header
also has these offsets.

The arithmetic, bit for bit (every step rounded to f32; n = buckets of one direction, E = n / 2, M = max_distance):

    float x = (float)log((double)((float)d / (float)E));
    x = x / (float)log((double)M / (double)E) * (float)(n - E);
    bucket = E + (int64_t)x, at most n - 1

With logf in the first line the buckets differ in about one setting in 80,000 (glibc 2.36 against torch 2.15 with MKL,
random settings up to 512 buckets and distance 8192); the lines above differed in none of 167,000.

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import math
import os
import sys

import numpy as np
import torch
import transformers
from transformers.models.t5.modeling_t5 import T5Attention

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "t5_buckets.h")
SPAN = 100000
SETTINGS = [(32, 128, 1), (32, 128, 0), (32, 256, 1), (16, 64, 1), (16, 64, 0),
            (64, 512, 1), (64, 1024, 0), (320, 800, 1), (8, 32, 1), (128, 20000, 0)]
# Settings for which --sweep finds another bucket in f64, chosen to have few such offsets.
LOGF_WITNESS = [(435, 3283, 0, -2231), (436, 1535, 0, -1481)]
WITNESS = [(9, 128, 0), (18, 128, 1), (20, 320, 0), (40, 320, 1), (36, 32, 0), (72, 50, 1)]


def oracle(r, buckets, max_distance, bidirectional):
    """Return the buckets of the offsets r (int64 array), computed by transformers."""
    return T5Attention._relative_position_bucket(
        torch.from_numpy(r), bidirectional=bool(bidirectional), num_buckets=buckets, max_distance=max_distance).numpy()


def variant(r, buckets, max_distance, bidirectional, kind):
    """Return the buckets of T5 computed in one kind of arithmetic: f32 as in transformers, f64 throughout, or a
    multiplication by the f32 reciprocal."""
    n = buckets // 2 if bidirectional else buckets
    d = np.abs(r) if bidirectional else np.maximum(-r, 0)
    exact = n // 2
    base = np.where(r > 0, n, 0) if bidirectional else 0
    large = np.maximum(d, 1)
    ratio = math.log(max_distance / exact)
    if kind == "f64":
        x = np.log(large / exact) / ratio * (n - exact)
    else:
        log = np.log((large.astype(np.float32) / np.float32(exact)).astype(np.float64)).astype(np.float32)
        if kind == "f32":
            x = log / np.float32(ratio) * np.float32(n - exact)
        else:
            x = log * (np.float32(1) / np.float32(ratio)) * np.float32(n - exact)
    return base + np.where(d < exact, d, np.minimum(exact + x.astype(np.int64), n - 1))


def runs(r, bucket):
    first = np.concatenate([[0], np.flatnonzero(np.diff(bucket)) + 1])
    return [(int(r[i]), int(bucket[i])) for i in first]


def witnesses():
    r = np.arange(-SPAN, SPAN + 1, dtype=np.int64)
    rows = []
    for setting in WITNESS:
        a, b = oracle(r, *setting), variant(r, *setting, "f64")
        rows += [setting + (int(x), int(p), int(q)) for x, p, q in zip(r[a != b], a[a != b], b[a != b])]
    return rows


def pairs(rows):
    """Return lines of `{a, b},` of at most 118 columns."""
    out, line = [], "   "
    for row in rows:
        word = " {" + ", ".join(str(x) for x in row) + "},"
        if len(line) + len(word) > 118:
            out.append(line)
            line = "   "
        line += word
    return out + [line]


def header():
    r = np.arange(-SPAN, SPAN + 1, dtype=np.int64)
    out = ["/* t5_buckets.h -- the buckets of Hugging Face's T5 for offsets of +-%d; written by make_t5_buckets.py."
           % SPAN,
           " * A run is {first offset, bucket}; the last one ends at %d. Offsets: delta = key - query." % SPAN,
           " * Source: T5Attention._relative_position_bucket, which computes the logarithm in f32.",
           " * SPDX-License-Identifier: Apache-2.0 */",
           "#ifndef RELPOS_TESTS_T5_BUCKETS_H",
           "#define RELPOS_TESTS_T5_BUCKETS_H",
           "",
           "#include <stdint.h>",
           "",
           "enum { T5_SPAN = %d };" % SPAN]
    table = []
    for number, setting in enumerate(SETTINGS):
        found = runs(r, oracle(r, *setting))
        name = "T5_RUNS_%d" % number
        out += ["", "/* %d buckets, maximum distance %d, %s */"
                % (setting[0], setting[1], "bidirectional" if setting[2] else "causal"),
                "static const int32_t %s[][2] = {" % name] + pairs(found) + ["};"]
        table.append("    {%d, %d, %d, %d, %s}," % (setting + (len(found), name)))
    out += ["",
            "/* The ten settings. */",
            "static const struct t5_setting {",
            "    int32_t buckets, max_distance, bidirectional;",
            "    int32_t n_runs;",
            "    const int32_t (*runs)[2];",
            "} T5_SETTINGS[%d] = {" % len(SETTINGS)] + table + ["};"]
    rows = witnesses()
    assert {row[:3] for row in rows} == set(WITNESS)
    out += ["",
            "/* Offsets where a logarithm in f64 gives the neighbouring bucket: {buckets, maximum distance, "
            "bidirectional,",
            " * offset, the original's bucket, the bucket in f64}. */",
            "static const int32_t T5_F32_WITNESS[%d][6] = {" % len(rows)] + pairs(rows) + ["};"]
    rows = [w + (int(oracle(np.array([w[3]]), *w[:3])[0]),) for w in LOGF_WITNESS]
    out += ["",
            "/* Offsets where glibc's logf, which is not correctly rounded, does: {buckets, maximum distance, "
            "bidirectional, offset,",
            " * the original's bucket}. */",
            "static const int32_t T5_LOGF_WITNESS[%d][5] = {" % len(rows)] + pairs(rows) + ["};", "", "#endif", ""]
    return "\n".join(out)


def sweep():
    """Count the causal settings in which each arithmetic differs from the original at some distance up to 20000."""
    r = -np.arange(0, 20001, dtype=np.int64)
    counts, total = {"f32": 0, "f64": 0, "reciprocal": 0}, 0
    for buckets in list(range(2, 129)) + [160, 192, 200, 250, 256, 320, 400, 500, 512, 640, 1000, 1024]:
        for most in (20, 32, 40, 48, 50, 64, 80, 96, 100, 120, 128, 150, 160, 192, 200, 250, 256, 300, 320, 384, 400,
                     500, 512, 600, 640, 768, 800, 1000, 1024, 1280, 1500, 1536, 2000, 2048, 3000, 4000, 4096, 5000,
                     8192, 10000, 16384, 20000):
            if most <= buckets // 2:
                continue
            total += 1
            a = oracle(r, buckets, most, 0)
            for kind in counts:
                b = variant(r, buckets, most, 0, kind)
                if (a != b).any():
                    counts[kind] += 1
                    where = [(int(-x), int(p), int(q)) for x, p, q in zip(r[a != b], a[a != b], b[a != b])]
                    print("%-10s %4d buckets, maximum distance %5d: (distance, original, this) %s"
                          % (kind, buckets, most, where))
    print("%d settings; differing: %s" % (total, counts))


def main():
    parser = argparse.ArgumentParser(description="Write, check or explain tests/golden/t5_buckets.h.")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true", help="compare with the committed file instead of writing it")
    group.add_argument("--sweep", action="store_true", help="find the settings in which other arithmetic differs")
    args = parser.parse_args()
    print("torch %s, transformers %s" % (torch.__version__, transformers.__version__))
    if args.sweep:
        sweep()
        return 0
    text = header()
    if args.check:
        with open(PATH, encoding="ascii") as f:
            good = f.read() == text
        print("t5_buckets.h is %s" % ("the original's" if good else "NOT the original's"))
        return 0 if good else 1
    with open(PATH, "w", encoding="ascii") as f:
        f.write(text)
    print("wrote %s" % os.path.relpath(PATH))
    return 0


if __name__ == "__main__":
    sys.exit(main())
