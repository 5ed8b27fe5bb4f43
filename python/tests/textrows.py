"""Read and check the lines of tests/texts/rows.tsv that are Python. The formulas that they compare with are here:
attention by arrays of all pairs, in NumPy.  SPDX-License-Identifier: Apache-2.0"""
import contextlib
import doctest
import io
import math
import re
import warnings
from pathlib import Path

import numpy as np
import relpos
import relpos.numpy as rn

ROOT = Path(__file__).resolve().parents[2]
EPS = {"eps": 2.0**-52, "eps32": 2.0**-23}  # a rounding of a number near 1, in f64 and f32


def rows(kind):
    """Return the lines of a kind as (name, what to run, what is expected)."""
    lines = (ROOT / "tests/texts/rows.tsv").read_text().splitlines()
    split = [(n, line.split("\t")) for n, line in enumerate(lines, 1) if line and not line.startswith("#")]
    return [(f"line {n}, {text}: {what}", run, expected) for n, (text, what, of, run, expected) in split if of == kind]


def array(x):
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def said(text, expected):
    """Return true if a text has the words of `expected` in this order, where ... stands for any words between."""
    rest = f" {' '.join(text.split())} "
    for piece in expected.split(" ... "):
        before, found, rest = rest.partition(f" {piece} ")
        if not found:
            return False
        rest = f" {rest}"
    return True


def check(run, expected, names):
    """Run an expression, and check that it raises an error ("refused: WORDS"), has these words, or has these numbers,
    exactly or within a number of roundings ("NUMBERS within N eps")."""
    if expected.startswith("refused: "):
        try:
            found = eval(run, names)
        except (ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
            assert said(str(error), expected.removeprefix("refused: ")), str(error)
            return
        raise AssertionError(f"not refused: {found}")
    found = eval(run, names)
    if isinstance(found, str):
        assert said(found, expected), found
        return
    numbers, _, bound = expected.partition(" within ")
    want = eval(numbers, names)
    many = isinstance(want, (tuple, list)) and not np.isscalar(want[0])
    for a, b in zip(found, want, strict=True) if many else ((found, want),):
        a, b = array(a), array(b)
        assert a.shape == b.shape, f"{a.shape}, expected {b.shape}"
        if not bound:
            assert (a == b).all(), f"{a}\nexpected {b}"
        else:
            count, unit = bound.split()
            most = float(count) * EPS[unit]
            off = abs(a - b).max() / max(1, abs(b).max())
            assert off <= most, f"off by {off}, more than {most}\n{a}\nexpected {b}"


# ---------------------------------------------------------------------------------------------- numbers and formulas

GOLDEN = (ROOT / "tests/golden/golden.h").read_text()


def golden(name):
    """Return an array of tests/golden/golden.h, in the shape of its comment."""
    comment = r"/\* \[([\d, ]+)\][^\n]*(?:\n \*[^\n]*)*\*/"
    shape, numbers = re.search(rf"{comment}\nstatic const \w+ {name}\[\d+\] = \{{(.*?)\}}", GOLDEN, re.S).groups()
    return np.array([float(x) for x in re.findall(r"[-+.\de]+", numbers)]).reshape([int(n) for n in shape.split(",")])


Q, K, V = golden("CAT_Q"), golden("CAT_K"), golden("CAT_V")
SHAW_Q, SHAW_K, SHAW_V = golden("SHAW_Q"), golden("SHAW_K"), golden("SHAW_V")
TOKENS = "The cat sat on mat".split()
X = np.random.RandomState(42).randn(6, 8)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def offsets(n, m=None):
    """Return key - query."""
    return np.arange(n if m is None else m) - np.arange(n)[:, None]


def log_bias(n, m=None, scale=0.3):
    return -scale * np.log(1.0 + abs(offsets(n, m)))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def attend(q, k, v, bias=0.0, keep=True):
    """Return (weights, output) of attention with a bias."""
    weights = softmax(np.where(keep, q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]) + bias, -np.inf))
    return weights, weights @ v


def bucket(r, buckets=32, far=128, bidirectional=True):
    """Return T5's bucket of an offset key - query."""
    first, r = 0, int(r)
    if bidirectional:
        buckets //= 2
        first, r = buckets * (r > 0), -abs(r)
    exact, d = buckets // 2, -min(r, 0)
    if d < exact:
        return first + d
    step = np.float32(np.log(np.float64(np.float32(d / exact))))
    step = np.float32(step / np.float32(math.log(far / exact))) * np.float32(buckets - exact)
    return first + min(exact + int(step), buckets - 1)


def buckets(at, **options):
    return np.vectorize(lambda r: bucket(r, **options))(np.asarray(at))


def at(far, n, m=None):
    """Return the row of a table of clipped offsets for each pair."""
    return np.clip(offsets(n, m), -far, far) + far


def shaw_scores(q, k, a_k):
    return (q[:, None] * (k + a_k[at(len(a_k) // 2, len(q), len(k))])).sum(-1) / math.sqrt(q.shape[1])


def shaw_output(w, v, a_v):
    return (w[..., None] * (v + a_v[at(len(a_v) // 2, *w.shape)])).sum(1)


def shaw(x, layer):
    """Return (output, weights) of a layer of the tutorial on Shaw's vectors."""
    q, k, v = (x @ array(w) for w in (layer.W_q, layer.W_k, layer.W_v))
    weights = softmax(shaw_scores(q, k, array(layer.rel_embed.a_K)))
    return shaw_output(weights, v, array(layer.rel_embed.a_V)), weights


class OwnVectors:
    """Vectors of offsets with the names of the tutorial, of no class of relpos."""

    def __init__(self):
        self.max_distance, self.a_K, self.a_V = 3, draw(7, 4, seed=1), draw(7, 4, seed=2)

    def get_key_embedding(self, r):
        return self.a_K[max(-3, min(3, r)) + 3]

    def get_value_embedding(self, r):
        return self.a_V[max(-3, min(3, r)) + 3]


def xavier(random, rows, columns):
    return random.randn(rows, columns) * np.sqrt(2.0 / (rows + columns))


def xavier_pair(seed, far, d_k, d_v):
    random = np.random.RandomState(seed)
    return xavier(random, 2 * far + 1, d_k), xavier(random, 2 * far + 1, d_v)


def turned(x, angles):
    """Rotate pairs of neighbouring channels of the rows of x."""
    y = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    return np.stack([y.real, y.imag], -1).reshape(x.shape)


def swin_bias(table, rows, columns):
    """Return the biases (H, N, N) of a table with a row for each offset query - key, by row and by column."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    index = (y[:, None] - y + rows - 1) * (2 * columns - 1) + x[:, None] - x + columns - 1
    return table[index].transpose(2, 0, 1)


def axial_bias(rows_table, columns_table, rows, columns):
    """Return the biases (H, N, N) of a table for rows and one for columns, by key - query."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    return rows_table[:, y - y[:, None] + rows - 1] + columns_table[:, x - x[:, None] + columns - 1]


def four_heads():
    """Return a table of Swin for heads that look right, left, down, and diagonally, on a grid of 3 x 3."""
    table = np.zeros((5, 5, 4))
    for head, (bias, down, right) in enumerate([(0.2, 0, 1), (0.2, 0, -1), (0.3, 1, 0), (0.3, 1, 1)]):
        table[2 - down, 2 - right, head] = bias
    return table.reshape(-1, 4)


def xpos_arrays():
    """Return queries and keys scaled as XPos scales them, for 6 tokens and 8 channels."""
    grow = np.repeat((np.arange(4) / 4 + 0.4) / 1.4, 2) ** (np.arange(6)[:, None] / 512)
    return {"q": draw(6, 8) * grow, "k": draw(6, 8, seed=2) / grow, "v": draw(6, 8)}


def xpos_scores():
    """Return the scores of XPos from pairs of channels as complex numbers: the angle and the decay of each offset."""
    q, k = ((x := draw(6, 8, seed=n))[:, ::2] + 1j * x[:, 1::2] for n in (0, 2))
    r = -offsets(6)[..., None]
    turn = np.exp(1j * r * 10000.0 ** (-np.arange(4) / 4)) * ((np.arange(4) / 4 + 0.4) / 1.4) ** (r / 512)
    return np.einsum("ic,jc,ijc->ij", q, k.conj(), turn).real / np.sqrt(8)


def derived(cls, **methods):
    """Return a subclass with these methods."""
    return type("Own" + cls.__name__, (cls,), methods)


def output_of(function, *arguments, **options):
    """Return what a call prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        function(*arguments, **options)
    return out.getvalue()


def warned(function, *arguments):
    """Return the text of the warnings of a call."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function(*arguments)
    return " ".join(str(w.message) for w in found)


def changed(thing, **attributes):
    """Set attributes, and return the thing."""
    for name, value in attributes.items():
        setattr(thing, name, value)
    return thing


def examples(text):
    """Run the examples of a page of docs/texts; return (number of failures, whether there are any)."""
    page = re.sub(r"^```.*$", "", (ROOT / f"docs/texts/{text}.md").read_text(), flags=re.M)
    test = doctest.DocTestParser().get_doctest(page, {}, text, text, 0)
    found = doctest.DocTestRunner().run(test)
    return found.failed, found.attempted > 0


def rows_alone(n, **options):
    """Return the outputs of queries one by one, at an offset, and of all at once, with causal attention."""
    q, k, v = draw(3, n, 8)
    alone = [relpos.attention(q[i:i + 1], k[:i + 1], v[:i + 1], causal=True, q_offset=i, **options) for i in range(n)]
    return np.concatenate(alone), relpos.attention(q, k, v, causal=True, **options)


def layers(count):
    """Return the largest difference between random layers with a decay and the formula."""
    worst = 0
    for n in range(count):
        q, k, v = draw(3, 2 + n % 9, 1 + n % 5, seed=n)
        found = rn.RelativePositionBiasAttention(q.shape[1], 0.1 * (n % 12)).forward(q, k, v)
        want = attend(q, k, v, log_bias(len(q), scale=0.1 * (n % 12)))
        worst = max(worst, *(abs(a - b).max() for a, b in zip(found, want)))
    return worst


def explained(bias=None, query=None, q=Q, k=K, v=V, **options):
    """Return the biased scores of every query."""
    queries = range(len(q)) if query is None else [query]
    return np.stack([relpos.explain(q, k, v, query=i, bias=bias, **options).score for i in queries])


NAMES = {**globals()}
