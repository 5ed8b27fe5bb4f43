#!/usr/bin/env python3
"""make_golden.py -- recompute the published worked examples and write golden.h. Needs NumPy only; run by hand.

    python3 tests/golden/make_golden.py            write tests/golden/golden.h
    python3 tests/golden/make_golden.py --check    recompute and compare with the committed file; exit 1 on a difference
    python3 tests/golden/make_golden.py --errata   list every printed number that differs from its formula

Every printed number below was copied from its source, and the script recomputes it. It asserts that a correct number
equals the value of the formula to the last printed digit, and that a wrong matrix is wrong in exactly the listed cells.
NumPy provides the legacy random numbers of one source. Sums are exact (math.fsum), so the file does not depend on a
BLAS. docs/texts explains the errors.

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import math
import os
import re
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "golden.h")

ERRATA = []   # (where, row, column, printed, right)
BLOCKS = []   # sections and arrays, in order


# ---------------------------------------------------------------------------------------------- small linear algebra

def dot(a, b):
    return math.fsum(float(x) * float(y) for x, y in zip(a, b))


def matmul(a, b):
    return [[dot(row, col) for col in zip(*b)] for row in a]


def transpose(a):
    return [list(c) for c in zip(*a)]


def matadd(a, b):
    return [[x + y for x, y in zip(r, s)] for r, s in zip(a, b)]


def scaled(a, f):
    return [[x * f for x in r] for r in a]


def softmax(rows):
    result = []
    for row in rows:
        top = max(row)
        e = [math.exp(x - top) for x in row]
        total = math.fsum(e)
        result.append([x / total for x in e])
    return result


# ---------------------------------------------------------------------------------------------- checks and output

def numbers(text):
    """Parse the rows of a matrix. A typographic minus sign is allowed."""
    return [[float(x) for x in line.replace("\u2212", "-").split()] for line in text.strip().splitlines()]


def same(where, printed, right, decimals):
    """Assert that every printed number equals the correct number rounded to `decimals`."""
    wrong = differing(printed, right, decimals)
    if wrong:
        raise AssertionError("%s: printed numbers differ from the formula at %s" % (where, wrong))


def differing(printed, right, decimals):
    """Return the cells whose printed number is not the correct number rounded to the same digits (ties may
    round either way)."""
    assert len(printed) == len(right)
    wrong = []
    for i, (p, r) in enumerate(zip(printed, right)):
        assert len(p) == len(r)
        wrong += [(i, j) for j, (x, y) in enumerate(zip(p, r)) if abs(x - y) > 0.5 * 10.0 ** -decimals + 1e-12]
    return wrong


def erratum(where, printed, right, decimals, cells):
    """Assert that the printed matrix is wrong in exactly these cells, and record them."""
    wrong = differing(printed, right, decimals)
    if wrong != cells:
        raise AssertionError("%s: wrong at %s, expected %s" % (where, wrong, cells))
    for i, j in wrong:
        ERRATA.append((where, i, j, printed[i][j], round(right[i][j], decimals) + 0.0))


def section(text):
    BLOCKS.append(("section", text))


def emit(name, rows, note, integer=False):
    """Add an array to the header. `rows` is a matrix or a vector."""
    if not isinstance(rows[0], (list, tuple)):
        rows = [rows]
    BLOCKS.append(("array", name, [[int(x) if integer else float(x) for x in r] for r in rows], note, integer))


def write_number(x):
    return str(x) if isinstance(x, int) else repr(x + 0.0)


def header():
    out = ["/* golden.h -- right numbers of published worked examples; written by make_golden.py.",
           " * Arrays are row-major. An array whose name ends in _PRINT has the decimals printed in its source; the "
           "others",
           " * have the value of the formula in full precision. Offsets are delta = key - query unless noted. Do not "
           "edit.",
           " * SPDX-License-Identifier: Apache-2.0 */",
           "#ifndef RELPOS_TESTS_GOLDEN_H",
           "#define RELPOS_TESTS_GOLDEN_H"]
    for block in BLOCKS:
        if block[0] == "section":
            out += ["", "/* " + "-" * 100, " * " + block[1].replace("\n", "\n * ") + " */"]
            continue
        _, name, rows, note, integer = block
        shape = ", ".join(str(n) for n in ([len(rows)] if len(rows) > 1 else []) + [len(rows[0])])
        out += ["", "/* [%s] %s */" % (shape, note),
                "static const %s %s[%d] = {" % ("int" if integer else "double", name, sum(len(r) for r in rows))]
        for row in rows:
            line = "   "
            for x in row:
                word = " " + write_number(x) + ","
                if len(line) + len(word) > 118:
                    out.append(line)
                    line = "   "
                line += word
            out.append(line)
        out.append("};")
    return "\n".join(out + ["", "#endif", ""])


def parse(text):
    """Return {name: list of numbers} of the arrays in a header."""
    found = re.findall(r"static const (int|double) (\w+)\[(\d+)\] = \{(.*?)\};", text, re.S)
    arrays = {}
    for kind, name, count, body in found:
        values = [float(x) for x in body.replace("\n", " ").split(",") if x.strip()]
        assert len(values) == int(count), name
        arrays[name] = values
    return arrays


# ---------------------------------------------------------------------------------------------- the sentence

def sentence():
    """A course chapter on relative position bias: the sentence "The cat sat on mat"."""
    section('A course chapter on relative position bias (the sentence "The cat sat on mat"): five tokens, width 4,\n'
            "softmax(Q K^T / 2 + B) V with B = -lambda log(1 + |i - j|), lambda = 0.3. Printed to 4 decimals.")
    q = numbers("1 0 1 0\n0 2 0 1\n1 1 1 0\n0 0 1 1\n1 0 0 1")
    k = numbers("0 1 0 1\n1 0 1 0\n1 1 0 0\n0 0 1 1\n1 0 .5 .5")
    v = numbers("1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n.5 .5 .5 .5")
    n, lam = 5, 0.3
    raw = matmul(q, transpose(k))
    score = scaled(raw, 0.5)
    bias = [[-lam * math.log(1 + abs(i - j)) for j in range(n)] for i in range(n)]
    biased = matadd(score, bias)
    weights, std_weights = softmax(biased), softmax(score)
    out, std_out = matmul(weights, v), matmul(std_weights, v)
    diff = matadd(weights, scaled(std_weights, -1.0))

    raw_print = numbers("0 2 1 1 1.5\n3 0 2 1 .5\n1 2 2 1 1.5\n1 1 0 2 1\n1 1 1 1 1.5")
    scaled_print = numbers("0 1 .5 .5 .75\n1.5 0 1 .5 .25\n.5 1 1 .5 .75\n.5 .5 0 1 .5\n.5 .5 .5 .5 .75")
    log_print = numbers(".0000 .6931 1.0986 1.3863 1.6094")
    decay_print = numbers("0 -.2079 -.3296 -.4159 -.4828")
    bias_print = [[decay_print[0][abs(i - j)] for j in range(n)] for i in range(n)]
    biased_print = numbers("0 .7921 .1704 .0841 .2672\n1.2921 0 .7921 .1704 -.1659\n.1704 .7921 1 .2921 .4204\n"
                           ".0841 .1704 -.2079 1 .2921\n.0172 .0841 .1704 .2921 .75")
    shifted_print = numbers("-.7921 0 -.6216 -.7079 -.5249\n0 -1.2921 -.5 -1.1216 -1.4579\n"
                            "-.8296 -.2079 0 -.7079 -.5796\n-.9159 -.8296 -1.2079 0 -.7079\n"
                            "-.7328 -.6659 -.5796 -.4579 0")
    exp_print = numbers(".4529 1 .5371 .4927 .5916\n1 .2747 .6065 .3257 .2327\n.4362 .8123 1 .4927 .5601\n"
                        ".4002 .4362 .2988 1 .4927\n.4805 .5138 .5601 .6326 1")
    sum_print = numbers("3.0743 2.4397 3.3013 2.6279 3.1871")
    weights_print = numbers(".1473 .3253 .1747 .1603 .1924\n.4099 .1126 .2486 .1335 .0954\n"
                            ".1321 .2460 .3029 .1492 .1697\n.1523 .1660 .1137 .3805 .1875\n"
                            ".1508 .1612 .1758 .1985 .3138")
    std_weights_print = numbers(".1095 .2976 .1805 .1805 .2318\n.4026 .0898 .2442 .1481 .1153\n"
                                ".1519 .2505 .2505 .1519 .1951\n.1903 .1903 .1154 .3137 .1903\n"
                                ".1892 .1892 .1892 .1892 .2430")
    out_print = numbers(".2435 .4215 .2709 .2565\n.4576 .1603 .2963 .1812\n.2170 .3309 .3877 .2341\n"
                        ".2460 .2597 .2074 .4743\n.3077 .3181 .3326 .3554")
    std_out_print = numbers(".2254 .4135 .2964 .2964\n.4602 .1475 .3018 .2058\n.2495 .3481 .3481 .2495\n"
                            ".2854 .2854 .2106 .4089\n.3108 .3108 .3108 .3108")
    diff_print = numbers(".0378 .0276 -.0058 -.0203 -.0394\n.0073 .0228 .0044 -.0146 -.0200\n"
                         "-.0198 -.0045 .0524 -.0027 -.0254\n-.0380 -.0243 -.0017 .0668 -.0028\n"
                         "-.0385 -.0280 -.0135 .0092 .0708")
    shifted = [[x - max(r) for x in r] for r in biased]
    exps = [[math.exp(x) for x in r] for r in shifted]
    same("sentence raw", raw_print, raw, 1)
    same("sentence scaled", scaled_print, score, 3)
    same("sentence log(1+d)", log_print, [[math.log(1 + d) for d in range(n)]], 4)
    same("sentence bias", bias_print, bias, 4)
    same("sentence biased", biased_print, biased, 4)
    same("sentence shifted", shifted_print, shifted, 4)
    same("sentence exp", exp_print, exps, 4)
    same("sentence sums", sum_print, [[math.fsum(r) for r in exps]], 4)
    same("sentence weights", weights_print, weights, 4)
    same("sentence standard weights", std_weights_print, std_weights, 4)
    same("sentence output", out_print, out, 4)
    same("sentence standard output", std_out_print, std_out, 4)
    same("sentence difference", diff_print, diff, 4)

    # The vectorised listing computes key - query (a row of positions minus a column) and prints query - key.
    delta = [[float(j - i) for j in range(n)] for i in range(n)]
    erratum("sentence, relative_pos of the vectorised listing", scaled(delta, -1.0), delta, 0,
            [(i, j) for i in range(n) for j in range(n) if i != j])
    ones = [b for d, b in ((d, t5_bucket(-d, 32, 128, True)) for d in range(12, 17))]
    erratum("sentence, distances 12 to 16 in one bucket (buckets of d = 12..16)", [[9.0] * 5], [ones], 0, [(0, 4)])

    emit("CAT_Q", q, "queries")
    emit("CAT_K", k, "keys")
    emit("CAT_V", v, "values")
    emit("CAT_LAMBDA", [lam], "strength of the decay")
    emit("CAT_RAW_PRINT", raw_print, "Q K^T, 1 decimal")
    emit("CAT_SCALED_PRINT", scaled_print, "Q K^T / 2, 3 decimals")
    emit("CAT_BIAS_PRINT", bias_print, "B")
    emit("CAT_BIASED_PRINT", biased_print, "scaled + B")
    emit("CAT_WEIGHTS_PRINT", weights_print, "softmax of each row")
    emit("CAT_OUT_PRINT", out_print, "weights times V")
    emit("CAT_STD_WEIGHTS_PRINT", std_weights_print, "weights without B")
    emit("CAT_STD_OUT_PRINT", std_out_print, "output without B")
    emit("CAT_DIFF_PRINT", diff_print, "weights minus weights without B")
    emit("CAT_WEIGHTS", weights, "softmax of each row, in full")
    emit("CAT_OUT", out, "output, in full")


# ---------------------------------------------------------------------------------------------- Shaw

def shaw():
    """A tutorial on Shaw's relative positions: the seeded random layer."""
    section("A tutorial on Shaw's relative positions: six random tokens (NumPy seed 42), a layer of width 4, clip 3.\n"
            "The layer draws W_q, W_k, W_v with seed 123; its table draws a_K, then a_V with seed 123 again, so a_K\n"
            "is the beginning of W_q with another scale. Tables run from delta = key - query = -3 to 3.")
    n, embed, d, clip = 6, 8, 4, 3
    np.random.seed(42)
    x = np.random.randn(n, embed).tolist()
    np.random.seed(123)
    weight_scale = math.sqrt(2.0 / (embed + d))
    w_q, w_k, w_v = ((np.random.randn(embed, d) * weight_scale).tolist() for _ in range(3))
    np.random.seed(123)
    table_scale = math.sqrt(2.0 / (2 * clip + 1 + d))
    a_k, a_v = ((np.random.randn(2 * clip + 1, d) * table_scale).tolist() for _ in range(2))
    q, k, v = matmul(x, w_q), matmul(x, w_k), matmul(x, w_v)
    at = [[max(-clip, min(clip, j - i)) + clip for j in range(n)] for i in range(n)]
    content = scaled(matmul(q, transpose(k)), 1 / math.sqrt(d))
    position = [[dot(q[i], a_k[at[i][j]]) / math.sqrt(d) for j in range(n)] for i in range(n)]
    weights = softmax(matadd(content, position))
    content_weights = softmax(content)
    out = [[math.fsum(weights[i][j] * (v[j][c] + a_v[at[i][j]][c]) for j in range(n)) for c in range(d)]
           for i in range(n)]
    profile = [math.fsum(weights[i][i + r] for i in range(n) if 0 <= i + r < n) / (n - abs(r)) for r in range(1 - n, n)]

    weights_print = numbers(".008 .028 .001 .12 .62 .223\n.26 .098 .35 .157 .052 .083\n.794 .002 .077 .122 .002 .002\n"
                            ".016 .394 .025 .108 .356 .101\n.475 .023 .002 .13 .069 .301\n.002 .227 .001 .014 .66 .097")
    same("Shaw weights", weights_print, weights, 3)
    clipped = [[max(-4, min(4, j - 5)) for j in range(10)]]
    same("Shaw clip table", numbers("-4 -4 -3 -2 -1 0 1 2 3 4"), clipped, 0)
    total, unseen = 256 * 256, 256 * 256 - 128 * 128
    assert (total, unseen, unseen / total) == (65536, 49152, 0.75)
    assert (2 * 64 + 1) * (64 + 64) == 16512
    assert 2 * 512 - 1 == 1023
    tallest = [float(max(range(len(profile)), key=lambda t: profile[t]) - (n - 1))]
    erratum("Shaw, offset of the tallest bar of the profile", [[0.0]], [tallest], 0, [(0, 0)])
    erratum("Shaw, pairs of offset +1 among 128 tokens ('thousands', here 1000)", [[1000.0]], [[127.0]], 0,
            [(0, 0)])

    np.random.seed(42)
    noise = (np.random.randn(11, 4) * 0.1).tolist()
    pattern = [[x + (math.exp(-0.5 * r * r) if c == 0 else 0.0) for c, x in enumerate(row)]
               for r, row in zip(range(-5, 6), noise)]
    profile_of_pattern = [dot([0.5] * 4, row) for row in pattern]

    emit("SHAW_Q", q, "X W_q")
    emit("SHAW_K", k, "X W_k")
    emit("SHAW_V", v, "X W_v")
    emit("SHAW_A_K", a_k, "key-side table, delta = -3..3")
    emit("SHAW_A_V", a_v, "value-side table, delta = -3..3")
    emit("SHAW_CONTENT", content, "Q K^T / 2")
    emit("SHAW_POSITION", position, "<q_i, a_K[clip(delta)]> / 2")
    emit("SHAW_CONTENT_WEIGHTS", content_weights, "softmax of only the content scores")
    emit("SHAW_WEIGHTS_PRINT", weights_print, "softmax(content + position), 3 decimals")
    emit("SHAW_WEIGHTS", weights, "softmax(content + position), in full")
    emit("SHAW_OUT", out, "sum_j w (v_j + a_V[clip(delta)])")
    emit("SHAW_PROFILE", profile, "mean weight per offset, delta = -5..5")
    emit("SHAW_CLIP5", clipped[0], "clip(j - 5, -4, 4) for keys 0..9: the query is at position 5", integer=True)
    emit("SHAW_PAIRS", [128, 256, unseen, total], "trained on 128, run on 256: unseen position pairs, all pairs",
         integer=True)
    emit("SHAW_NOISE", noise, "NumPy seed 42, times 0.1: the simulated pattern without its preference for near "
                              "offsets, delta = -5..5")
    emit("SHAW_PATTERN", profile_of_pattern, "dot product of (.5, .5, .5, .5) and the noise, after adding exp(-delta^2 "
                                             "/ 2) to channel 0")


# ---------------------------------------------------------------------------------------------- vision notes

def vision():
    """Notes on absolute against relative positions in vision transformers."""
    section("Notes on absolute against relative positions in vision transformers: three tokens of width 2 under four\n"
            "schemes, a grid of 2 x 2 patches, seven clipped offsets. The source has r = i - j, query minus key; the\n"
            "tables here run along delta = key - query = -r, reversed from the source. Printed to 3 decimals.")
    root = 1 / math.sqrt(2.0)
    x = numbers("1 0\n0 1\n1 1")
    n = 3
    content = scaled(matmul(x, transpose(x)), root)
    content_print = numbers(".707 0 .707\n0 .707 .707\n.707 .707 1.414")
    same("three tokens, content", content_print, content, 3)

    by_r = {-2: -.3, -1: -.2, 0: 0., 1: .2, 2: .3}
    bias = [[content[i][j] + by_r[i - j] for j in range(n)] for i in range(n)]
    bias_print = numbers(".707 -.2 .407\n.2 .707 .507\n1.007 .907 1.414")
    same("three tokens, additive bias", bias_print, bias, 3)

    vec = {-2: [-1., 0.], -1: [-.5, 0.], 0: [0., 0.], 1: [.5, 0.], 2: [1., 0.]}
    shaw3 = [[dot(x[i], [x[j][c] + vec[i - j][c] for c in range(2)]) * root for j in range(n)] for i in range(n)]
    shaw_print = numbers(".707 -.354 0\n0 .707 .707\n1.414 1.061 1.414")
    same("three tokens, Shaw", shaw_print, shaw3, 3)

    m = 0.1
    linear = [[content[i][j] - m * (i - j) for j in range(n)] for i in range(n)]
    linear_print = numbers(".707 .1 .907\n-.1 .707 .807\n.507 .607 1.414")
    same("three tokens, signed linear bias", linear_print, linear, 3)

    turned = []
    for p in range(n):
        c, s = math.cos(math.radians(30 * p)), math.sin(math.radians(30 * p))
        turned.append([c * x[p][0] - s * x[p][1], s * x[p][0] + c * x[p][1]])
    erratum("three tokens, rotary: token 2 turned by 60 degrees", numbers(".366 1.366"), [turned[2]], 3, [(0, 0)])
    rope = scaled(matmul(turned, transpose(turned)), root)
    erratum("three tokens, rotary logits", numbers(".707 -.354 .259\n-.354 .707 .707\n.259 .707 1.414"), rope, 3,
            [(0, 2), (1, 2), (2, 0), (2, 1)])

    emit("VIT3_X", x, "the tokens: q = k = x")
    emit("VIT3_CONTENT_PRINT", content_print, "x x^T / sqrt 2")
    emit("VIT3_BIAS_TABLE", [by_r[-t] for t in range(-2, 3)], "bias table, delta = -2..2; the source lists r = -2..2")
    emit("VIT3_BIAS_PRINT", bias_print, "content + b[r]")
    emit("VIT3_SHAW_TABLE", [vec[-t] for t in range(-2, 3)], "key table, delta = -2..2; the source lists r = -2..2")
    emit("VIT3_SHAW_PRINT", shaw_print, "<q_i, k_j + a[r]> / sqrt 2")
    emit("VIT3_SLOPE", [m], "slope of the signed linear bias: -slope * (i - j) = slope * delta")
    emit("VIT3_LINEAR_PRINT", linear_print, "content - slope * (i - j)")
    emit("VIT3_ROPE30", rope, "rotary logits, 30 degrees per position; corrected, in full")

    grid = [(0, 0), (0, 1), (1, 0), (1, 1)]
    patch = numbers("1 0\n0 1\n1 1\n0 0")
    base = scaled(matmul(patch, transpose(patch)), root)
    erratum("four patches, no positions",
            numbers(".707 0 .707 0\n0 .707 .707 0\n.707 .707 1.414 .707\n0 0 .707 0"), base, 3, [(2, 3), (3, 2)])
    placed = [[a + 0.5 * b for a, b in zip(patch[i], grid[i])] for i in range(4)]
    # The text gives patch 1 the vector [0, .5], half of (row, column), so placed is x + p.
    absolute = scaled(matmul(placed, transpose(placed)), root)
    erratum("four patches, absolute positions",
            numbers(".707 0 1.061 .354\n0 .707 .707 .177\n1.061 .707 1.414 .884\n.354 .177 .884 .707"), absolute, 3,
            [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (3, 3)])
    table = {(0, 0): 0., (0, 1): -.2, (1, 0): -.1, (1, 1): -.3, (-1, 0): .1, (0, -1): .2, (-1, -1): .3}
    by_ij = [[table.get((grid[i][0] - grid[j][0], grid[i][1] - grid[j][1]), 0.) for j in range(4)] for i in range(4)]
    relative = matadd(base, by_ij)
    erratum("four patches, relative bias (query minus key)",
            numbers(".707 .2 .807 0\n0 .707 .507 .2\n.607 .707 1.414 .607\n-.3 0 .507 0"), relative, 3,
            [(0, 3), (1, 0), (1, 2), (1, 3), (2, 3), (3, 1), (3, 2)])
    flipped = matadd(base, transpose(by_ij))

    emit("VIT4_X", patch, "the patches (0,0) (0,1) (1,0) (1,1): q = k = x")
    emit("VIT4_CONTENT", base, "x x^T / sqrt 2; corrected: patch 3 is zero, so its row and column are zero")
    emit("VIT4_PLACED", placed, "x + p with p = half of (row, column)")
    emit("VIT4_ABSOLUTE", absolute, "(x + p)(x + p)^T / sqrt 2; corrected")
    emit("VIT4_BIAS", by_ij, "bias of (row, column) of the query minus that of the key; 0 if the source lists none")
    emit("VIT4_RELATIVE", relative, "content + bias, query minus key as in the worked lines of the source; corrected")
    emit("VIT4_RELATIVE_FLIPPED", flipped, "content + bias, key minus query as in the later sections of the source")

    r_max, count = 2, 7
    clip = [[max(-r_max, min(r_max, i - j)) for j in range(count)] for i in range(count)]
    clip_print = numbers("0 -1 -2 -2 -2 -2 -2\n1 0 -1 -2 -2 -2 -2\n2 1 0 -1 -2 -2 -2\n2 2 1 0 -1 -2 -2\n"
                         "2 2 2 1 0 -1 -2\n2 2 2 2 1 0 -1\n2 2 2 2 2 1 0")
    value_print = numbers("0 -.2 -.3 -.3 -.3 -.3 -.3\n.2 0 -.2 -.3 -.3 -.3 -.3\n.3 .2 0 -.2 -.3 -.3 -.3\n"
                          ".3 .3 .2 0 -.2 -.3 -.3\n.3 .3 .3 .2 0 -.2 -.3\n.3 .3 .3 .3 .2 0 -.2\n.3 .3 .3 .3 .3 .2 0")
    same("seven tokens, clipped offsets", clip_print, clip, 0)
    same("seven tokens, biases", value_print, [[by_r[r] for r in row] for row in clip], 1)
    erratum("entries of a table clipped at R (here R = 2)", [[2 * 2 + 14.0]], [[2 * 2 + 1.0]], 0, [(0, 0)])

    emit("VIT7_CLIP_PRINT", clip, "clip(i - j, -2, 2), query minus key as printed", integer=True)
    emit("VIT7_BIAS_PRINT", value_print, "the three-token table at the clipped offsets, 1 decimal")


# ---------------------------------------------------------------------------------------------- T5

def t5_bucket(delta, buckets, max_distance, bidirectional):
    """Return the bucket of T5 for delta = key - query, in its f32 arithmetic (make_t5_buckets.py runs the original)."""
    base = 0
    if bidirectional:
        buckets //= 2
        base = buckets if delta > 0 else 0
        d = abs(delta)
    else:
        d = max(-delta, 0)
    exact = buckets // 2
    if d < exact:
        return base + d
    x = np.float32(math.log(np.float32(d) / np.float32(exact))) / np.float32(math.log(max_distance / exact))
    return base + min(exact + int(x * np.float32(buckets - exact)), buckets - 1)


def t5():
    """A page on T5's relative bias."""
    section("A page on T5's relative bias: 11 offsets in 32 buckets, maximum distance 128. Both tables of the page\n"
            "are wrong: it uses query minus key; T5, like this file, uses key minus query.")
    delta = [-100, -50, -10, -5, -1, 0, 1, 5, 10, 50, 100]
    both = [t5_bucket(r, 32, 128, True) for r in delta]
    causal = [t5_bucket(r, 32, 128, False) for r in delta]
    assert both == [15, 13, 8, 5, 1, 0, 17, 21, 24, 29, 31]
    assert causal == [30, 24, 10, 5, 1, 0, 0, 0, 0, 0, 0]
    erratum("T5 page, list of 11 buckets (columns: offsets -100 -50 -10 -5 -1 0 1 5 10 50 100)",
            numbers("8 13 14 11 15 16 17 21 24 29 31"), [both], 0, [(0, 0), (0, 2), (0, 3), (0, 4), (0, 5)])
    seen = [-10, -5, 0, 5, 10, 15, 20]
    window = [t5_bucket(r, 32, 128, True) for r in seen]
    erratum("T5 page, drawing of the query at position 10 (columns: offsets -10 -5 0 5 10 15 20)",
            numbers("8 12 16 20 24 27 29"), [window], 0, [(0, 1), (0, 2), (0, 3), (0, 5), (0, 6)])
    # pitfall 5: more buckets with one distance than the maximum distance, so the logarithm has the wrong sign
    assert [t5_bucket(r, 1024, 128, True) for r in (-255, -257, 0, -512, -514)] == [255, 255, 0, 0, -1]
    overhead = [[100 * t / 12.3 for t in (.08, .10, .22, .32)]]
    same("T5 page, overhead in percent", numbers(".65 .81 1.79 2.60"), overhead, 2)
    assert (512 * 768, 2048 * 768, 32 * 12, 32 * 16, 32 * 32, 32 * 96) == (393216, 1572864, 384, 512, 1024, 3072)

    emit("T5_DELTA", delta, "offsets, key minus query", integer=True)
    emit("T5_BUCKET", both, "their buckets, bidirectional; corrected", integer=True)
    emit("T5_BUCKET_CAUSAL", causal, "their buckets, causal: every key after the query in bucket 0; corrected",
         integer=True)


# ---------------------------------------------------------------------------------------------- main

def close(a, b):
    return abs(a - b) <= 1e-14 * max(1.0, abs(a), abs(b))


def main():
    parser = argparse.ArgumentParser(description="Write, check or explain tests/golden/golden.h.")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true", help="compare with the committed file instead of writing it")
    group.add_argument("--errata", action="store_true", help="list the printed numbers that are wrong")
    args = parser.parse_args()
    sentence()
    shaw()
    vision()
    t5()
    text = header()
    if args.errata:
        for where, i, j, printed, right in ERRATA:
            print("%-90s [%d,%d]  printed %8g  right %8g" % (where, i, j, printed, right))
        return 0
    if not args.check:
        with open(PATH, "w", encoding="ascii") as f:
            f.write(text)
        print("wrote %d arrays to %s" % (len(parse(text)), os.path.relpath(PATH)))
        return 0
    with open(PATH, encoding="ascii") as f:
        committed = parse(f.read())
    fresh, failed = parse(text), 0
    for name in sorted(set(fresh) | set(committed)):
        a, b = fresh.get(name), committed.get(name)
        if a is None or b is None or len(a) != len(b) or not all(close(x, y) for x, y in zip(a, b)):
            print("%s differs" % name, file=sys.stderr)
            failed += 1
    print("%d arrays compared, %d differ" % (len(fresh), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
