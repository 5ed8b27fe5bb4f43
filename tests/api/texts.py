#!/usr/bin/env python3
"""Run the programs examples/s0 … s4, compiled in a folder, and compare what they print with the definitions, computed
here in plain Python: as they are, and with another input. Gradients are finite differences.

    tests/api/texts.py FOLDER

SPDX-License-Identifier: Apache-2.0"""
import math
import random
import re
import subprocess
import sys

folder = sys.argv[1]


def matmul(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def transposed(a):
    return [list(row) for row in zip(*a)]


def plus(a, bias):
    return [[x + y for x, y in zip(row, bias)] for row in a]


def softmax(row):
    most = max(row)
    exps = [math.exp(x - most) for x in row]
    return [x / sum(exps) for x in exps]


def attend(q, k, v, bias, vectors=None, scale=None, keys=None):
    """Return (weights, output) of one head. bias(i, j) is added to a score; vectors(i, j) returns vectors that are
    added to the key and to the value; keys(i, j) is false where masked."""
    scale = scale or 1 / math.sqrt(len(q[0]))
    weights, out = [], []
    for i, query in enumerate(q):
        added = [vectors(i, j) if vectors else ([0] * len(query), [0] * len(v[0])) for j in range(len(k))]
        scores = [scale * sum(x * (y + z) for x, y, z in zip(query, key, added[j][0])) + bias(i, j)
                  if not keys or keys(i, j) else -math.inf for j, key in enumerate(k)]
        weights.append(softmax(scores))
        out.append([sum(w * (value[c] + more[1][c]) for w, value, more in zip(weights[-1], v, added))
                    for c in range(len(v[0]))])
    return weights, out


def heads_of(x, n):
    size = len(x[0]) // n
    return [[row[h * size:(h + 1) * size] for row in x] for h in range(n)]


def joined(heads):
    return [sum((list(head[i]) for head in heads), []) for i in range(len(heads[0]))]


def half_square(x, target=None):
    return sum((y - (target[i][j] if target else 0)) ** 2 / 2 for i, row in enumerate(x) for j, y in enumerate(row))


def gradients(loss, lists):
    """Return the derivatives of loss() by every number of nested lists, by central differences."""
    found = []
    for x in lists:
        if isinstance(x[0], list):
            found.append(gradients(loss, x))
            continue
        found.append([])
        for i, old in enumerate(x):
            values = []
            for step in (1e-5, -1e-5):
                x[i] = old + step
                values.append(loss())
            x[i] = old
            found[-1].append((values[0] - values[1]) / 2e-5)
    return found


def descend(lists, found, rate):
    for x, g in zip(lists, found):
        if isinstance(x[0], list):
            descend(x, g, rate)
        else:
            x[:] = [a - rate * b for a, b in zip(x, g)]


def bucket(offset, buckets=32, far=128, bidirectional=True):
    distance, first = -min(offset, 0), 0
    if bidirectional:
        buckets //= 2
        first, distance = buckets * (offset > 0), abs(offset)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    return first + min(buckets - 1, exact + int(math.log(distance / exact) / math.log(far / exact) * (buckets - exact)))


def lines(rows, form, indent="", between=" "):
    return "".join(indent + between.join(format(x, form) for x in row) + "\n" for row in rows)


def s0(first):
    q = [[1 + first, 0, 1, 0], [0, 2, 0, 1], [1, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]
    k = [[0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0.5, 0.5]]
    v = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0.5, 0.5, 0.5, 0.5]]
    weights, out = attend(q, k, v, lambda i, j: -0.3 * math.log(1 + abs(i - j)))
    plain, _ = attend(q, k, v, lambda i, j: 0)
    text = "=== Relative Position Bias Attention ===\nWeights:\n" + lines(weights, "7.4f")
    text += "\nOutput:\n" + lines(out, "7.4f") + "\nAttention weights of The:\n"
    for j, token in enumerate(["The", "cat", "sat", "on", "mat"]):
        text += f"  A[The,{token}] = {weights[0][j]:.4f} (d={j}) |{'#' * int(weights[0][j] * 50)}|\n"
    change = [x - y for x, y in zip(weights[0], plain[0])]
    text += "\n=== Standard vs Biased (The) ==="
    for title, row in (("Standard", plain[0]), ("Biased", weights[0]), ("Diff", change)):
        text += f"\n{title}:\n" + lines([row], "7.4f")
    table = [0.0] * 32
    loss = lambda: half_square(attend(q, k, v, lambda i, j: table[bucket(j - i)])[1], v)
    text += f"\nOne step of training the table of 32 buckets\nloss {loss():.6f}\n"
    found = gradients(loss, [table])
    for offset in range(-2, 3):
        text += f"gradient of offset {offset:+d}: {found[0][bucket(offset)]:9.6f}\n"
    descend([table], found, 1.0)
    return text + f"loss {loss():.6f}\n"


class Normal:
    """np.random.RandomState(seed).randn."""

    def __init__(self, seed):
        state = [seed]
        for i in range(1, 624):
            state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) % 2**32)
        self.random, self.spare = random.Random(), None
        self.random.setstate((3, (*state, 624), None))

    def __call__(self):
        if self.spare is not None:
            x, self.spare = self.spare, None
            return x
        while True:
            x, y = (2 * self.random.random() - 1 for _ in range(2))
            r = x * x + y * y
            if 0 < r < 1:
                factor = math.sqrt(-2 * math.log(r) / r)
                self.spare = factor * x
                return factor * y

    def matrix(self, rows, columns, scale=1.0):
        return [[self() * scale for _ in range(columns)] for _ in range(rows)]


def s1(seed):
    x = Normal(int(seed)).matrix(6, 8)
    layer, tables = Normal(123), Normal(123)
    weights = [layer.matrix(8, 4, math.sqrt(2 / 12)) for _ in range(3)]
    weights += [tables.matrix(7, 4, math.sqrt(2 / 11)) for _ in range(2)]

    def forward():
        at = lambda i, j: max(-3, min(3, j - i)) + 3
        q, k, v = (matmul(x, w) for w in weights[:3])
        return attend(q, k, v, lambda i, j: 0, lambda i, j: (weights[3][at(i, j)], weights[4][at(i, j)]))

    loss = lambda: half_square(forward()[1])
    text = "Attention weights (rows sum to 1):\n" + lines(forward()[0], ".3f", "  ")
    text += f"loss sum(out^2)/2 before: {loss():.6f}\n"
    descend(weights, gradients(loss, weights), 0.1)
    return text + f"loss sum(out^2)/2 after one step: {loss():.6f}\n"


def cosines(shapes):
    """Return arrays whose elements are cos(i + 10 n) / 2, for array n."""
    found = []
    for n, (rows, columns) in enumerate(shapes):
        numbers = [math.cos(i + 10 * n) / 2 for i in range(rows * columns)]
        found.append([numbers[r * columns:(r + 1) * columns] for r in range(rows)])
    return found


def s2(first):
    x = [[1 + first, 0], [0, 1], [1, 1], [0, 0]]
    place = [(0, 0), (0, 1), (1, 0), (1, 1)]
    bias = {(0, 0): 0, (0, 1): -0.2, (1, 0): -0.1, (1, 1): -0.3, (-1, 0): 0.1, (0, -1): 0.2, (-1, -1): 0.3}
    with_positions = [[a + 0.5 * b for a, b in zip(row, at)] for row, at in zip(x, place)]
    text = ""
    for title, rows, table in (("content only (6.2)", x, {}), ("absolute positions (6.3)", with_positions, {}),
                               ("relative bias, query minus key (6.4)", x, bias)):
        scores = [[sum(a * b for a, b in zip(q, k)) / math.sqrt(2) +
                   table.get((place[i][0] - place[j][0], place[i][1] - place[j][1]), 0)
                   for j, k in enumerate(rows)] for i, q in enumerate(rows)]
        text += title + ":\n" + lines(scores, "7.3f", "  ")
    image = [[math.sin(8 * i + j) + (first if i == j == 0 else 0) for j in range(8)] for i in range(8)]
    patch = lambda y, c: [image[2 * y + dy][2 * c + dx] for dy in range(2) for dx in range(2)]
    windows = []  # the tokens of each window: (row and column in the rolled grid)
    for wy in range(2):
        for wx in range(2):
            windows.append([(2 * wy + dy, 2 * wx + dx) for dy in range(2) for dx in range(2)])
    weights = cosines([(12, 4), (1, 12), (4, 4), (1, 4), (9, 2)])

    def forward():
        out = []
        for tokens in windows:
            rows = [patch((y + 1) % 4, (c + 1) % 4) for y, c in tokens]
            part = [(y == 3, c == 3) for y, c in tokens]  # the last row and column come from the other side
            qkv = plus(matmul(rows, transposed(weights[0])), weights[1][0])
            q, k, v = (heads_of([row[4 * n:4 * n + 4] for row in qkv], 2) for n in range(3))
            heads = []
            for h in range(2):
                entry = lambda i, j: (tokens[i][0] - tokens[j][0] + 1) * 3 + tokens[i][1] - tokens[j][1] + 1
                table = lambda i, j: weights[4][entry(i, j)][h]
                heads.append(attend(q[h], k[h], v[h], table, keys=lambda i, j: part[i] == part[j])[1])
            out += plus(matmul(joined(heads), transposed(weights[2])), weights[3][0])
        return out

    loss = lambda: half_square(forward())
    text += f"shifted windows of 2 x 2 patches, one step of training:\n  loss {loss():.6f}\n"
    descend(weights, gradients(loss, weights), 0.01)
    return text + f"  loss {loss():.6f}\n"


def s3(first):
    offsets = [-100, -50, -10, -5, -1, 0, 1, 5, 10, 50, 100]
    text = "32 buckets, maximum distance 128\noffset " + " ".join(map(str, offsets))
    for name, both in (("bidirectional", True), ("causal", False)):
        text += f"\n{name} " + " ".join(str(bucket(x, bidirectional=both)) for x in offsets)
    x = [[math.sin(8 * i + j) + (first if i == j == 0 else 0) for j in range(8)] for i in range(6)]
    weights = cosines([(8, 8)] * 4 + [(32, 2)] + [(8, 8)] * 4)
    table = weights[4]
    text += "\nbiases (1, 2, 6, 6), head 0:\n"
    text += lines([[table[bucket(j - i)][0] for j in range(6)] for i in range(6)], "7.4f", "  ")

    def layer(x, w):
        q, k, v = (heads_of(matmul(x, transposed(m)), 2) for m in w[:3])
        heads = [attend(q[h], k[h], v[h], lambda i, j: table[bucket(j - i)][h])[1] for h in range(2)]
        return matmul(joined(heads), transposed(w[3]))

    loss = lambda: half_square(layer(layer(x, weights[:4]), weights[5:]))
    text += f"two layers with one table, one step of training:\n  loss {loss():.6f}\n"
    found = gradients(loss, weights)
    text += f"  gradient of bucket 0: {found[4][0][0]:.6f}, {found[4][0][1]:.6f}\n"
    descend(weights, found, 0.01)
    return text + f"  loss {loss():.6f}\n"


def s4(shift):
    weights = cosines([(12, 4), (1, 12), (4, 4), (1, 4), (1, 5)])
    at = [0.5, 1.3, 4.1], [0, 0.8, 1.7, 2.2, 9]
    query, key = ([[math.cos(4 * i + c + start) / 2 for c in range(4)] for i in range(rows)]
                  for rows, start in ((3, 100), (5, 200)))

    def forward():
        q, k, v = (heads_of(plus(matmul(x, transposed(weights[0][4 * n:4 * n + 4])), weights[1][0][4 * n:4 * n + 4]), 2)
                   for n, x in enumerate((query, key, key)))
        bias = lambda i, j: 0 if j == 4 else -weights[4][0][int(max(-2, min(2, at[0][i] - at[1][j]))) + 2]
        maps, heads = zip(*(attend(q[h], k[h], v[h], bias) for h in range(2)))
        mean = [[(a + b) / 2 for a, b in zip(*rows)] for rows in zip(*maps)]
        return mean, plus(matmul(joined(heads), transposed(weights[2])), weights[3][0])

    loss = lambda: half_square(forward()[1])
    text = "weights of the layer:\n"
    for name, n in (("attn.in_proj_weight", 48), ("attn.in_proj_bias", 12), ("attn.out_proj.weight", 16),
                    ("attn.out_proj.bias", 4), ("rel_bias", 5)):
        text += f"  {name} {n} numbers\n"
    text += "attention weights, mean over the heads:\n" + lines(forward()[0], ".4f", "  ") + f"loss {loss():.6f}\n"
    found = gradients(loss, weights)
    text += "gradient of rel_bias: " + " ".join(f"{x:.6f}" for x in found[4][0]) + "\n"
    descend(weights, found, 0.1)
    return text + f"loss {loss():.6f}\n"


NUMBER = re.compile(r"[-+]?\d+\.\d+")


def check(name, expected, *arguments):
    """Compare the words; numbers with a point may differ by one in the last digit that is printed."""
    printed = subprocess.run([f"{folder}/{name}", *arguments], check=True, capture_output=True, text=True).stdout
    said = f"{name} {' '.join(arguments)}"
    got, want = printed.split(), expected.split()
    if len(got) != len(want):
        sys.exit(f"{said}: {len(got)} words, expected {len(want)}:\n{printed}\nexpected:\n{expected}")
    for a, b in zip(got, want):
        a_numbers, b_numbers = NUMBER.findall(a), NUMBER.findall(b)
        same = NUMBER.sub("", a) == NUMBER.sub("", b) and len(a_numbers) == len(b_numbers)
        if not same or any(abs(float(x) - float(y)) > 1.01 * 10.0 ** -len(y.split(".")[1])
                           for x, y in zip(a_numbers, b_numbers)):
            sys.exit(f"{said}: {a}, expected {b}:\n{printed}\nexpected:\n{expected}")


for name, own, other in ((s0, 0.0, 0.7), (s1, 42, 7), (s2, 0.0, -0.4), (s3, 0.0, 1.3), (s4, 0.0, 1000.0)):
    check(name.__name__, name(own))
    check(name.__name__, name(other), str(other))
    with open(f"tests/golden/texts/{name.__name__}.txt") as file:
        golden = file.read()
    now = subprocess.run([f"{folder}/{name.__name__}"], check=True, capture_output=True, text=True).stdout
    if now != golden:
        sys.exit(f"{name.__name__} prints:\n{now}\ninstead of tests/golden/texts/{name.__name__}.txt:\n{golden}")
print("the programs of the five texts print the numbers of the definitions")
