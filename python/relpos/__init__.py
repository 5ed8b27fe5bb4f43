"""Exact attention with relative positions, forward and backward, on a CPU.

    >>> import numpy as np, relpos
    >>> q = k = v = np.ones((1, 8, 100, 64), np.float32)
    >>> relpos.attention(q, k, v, bias=relpos.ALiBi(), causal=True).shape
    (1, 8, 100, 64)

NumPy arrays in, NumPy arrays out; torch tensors in, torch tensors out. docs/terms.md has the formula of every term.

SPDX-License-Identifier: Apache-2.0"""
import importlib
import inspect
from typing import NamedTuple

import numpy as np

from . import _core, _hints, _progress, _terms
from ._terms import TERMS, Sum, Term, plotter

globals().update({cls.__name__: cls for cls in TERMS.values()})
__all__ = ["attention", "attention_backward", "explain", "key_norms", "bucket", "show_config", "Plan", "Result", "Summary", "Gradients",
           "Explanation", "Term", "Sum", "TERMS", *(cls.__name__ for cls in TERMS.values())]
__version__ = _core.config()["version"]


class Summary(NamedTuple):
    """What `attention(..., summary=True)` adds: for each head the mean weight of each offset key - query from the lowest up,
    the weight that each key received, and the entropy of each row in nats."""

    profile: object
    key_mass: object
    entropy: object


class Result(NamedTuple):
    """The results of one call; None where not asked for."""

    out: object
    weights: object
    lse: object
    summary: object

    def _repr_html_(self):
        return plotter().html_of_result(self)


def attention(q, k, v, *, bias=None, rope=None, relkey=None, relval=None, sink=None, causal=False, window=None, key_mask=None,
              mask=None, lengths=None, segments=None, starts=None, ends=None, scale=None, softcap=None, softcap_after=False,
              q_offset=None, dropout=0.0, seed=0, return_weights=False, return_lse=False, summary=False, threads=None,
              precision="highest", out=None, layout="bhld", key_norms=None, progress=None, **unknown):
    """Attention with relative positions: out = softmax(softcap_after(softcap(scale q k^T + relkey) + bias)) (v + relval).

    q is (B, H, Lq, D), k (B, Hk, Lk, D), v (B, Hk, Lk, Dv), where Hk divides H; or all three without B, or of one head, without B
    and H: (L, D). Results lack the same axes. Any strides; where the last axis is not contiguous (of k: nor
    that of the keys), a copy is read. float32, float64, float16 and bfloat16 (torch, ml_dtypes); sums of the last two are float32.
    The offset of a pair is key - query = j - (i + q_offset).

    bias             a term, or a sum of terms: relpos.T5(table) + relpos.ALiBi()
    rope             RoPE, which rotates q and k
    relkey           a term that adds to the product of q and k: RelKey, XL or another of docs/terms.md, "Products with vectors"
    relval           RelValue, which adds to v
    sink             Sink, a logit beside each row: the weights then sum to less than one
    causal           only keys at or before the query
    window           (left, right): only keys from left before to right after the query; -1 = no limit, which None stands for
                     too
    key_mask         (B, Lk) or what broadcasts to it: non-zero keys are attended to
    mask             (B, H, Lq, Lk) or what broadcasts to it: non-zero pairs are attended to
    lengths          (B) or what broadcasts to it: the number of valid keys of each batch entry
    segments         (B, Lk) or what broadcasts to it: labels of packed sequences; a token attends only to its own sequence
    starts           (B, Lq) or what broadcasts to it: the first key of each query, for chunks or windows that differ by query
    ends             (B, Lq) or what broadcasts to it: one past the last key of each query, for prefixes or images within
                     causal text
    scale            1/sqrt(D) unless given
    softcap          c of c tanh(x/c) before the biases
    softcap_after    c of a softcap after the biases, alone or beside softcap; True: softcap is after the biases
    q_offset         position of query 0: an integer, or an array (B); 0 unless given. causal warns without it where
                     there are fewer queries than keys, and refuses one query: Lk - Lq where they are the last
    dropout, seed    share of the weights that are dropped; the seed says which, on any machine
    threads          None = all this process may use; for tensors of torch, torch.get_num_threads(). The result does not depend on it
    precision        "highest", or "high": with AMX, products of float32 from two parts of bfloat16 each instead of three
    out              where the result goes
    key_norms        those of relpos.key_norms: few queries then leave far keys unread
    progress         True: a call that takes long shows how far it is, by tqdm where that is installed, else by a line on standard error
                     where that is a terminal; or a function, which gets the share that is done. In the main thread
    layout           "bhld", or "blhd": q, k, v, out and the result are (B, L, H, D); the other arrays and results are as ever

    out comes back alone; with return_weights, return_lse (the log of each row's sum) or summary (see Summary) a Result. Those
    are float64 for float64, else float32. Ctrl-C ends a long call; what `out` then holds is undefined.

    For torch, out and lse have gradients by q, k, v and the learned arrays of terms. weights and summary have none, and there are no second
    derivatives: a backward pass through those raises, and as numbers they are taken by .detach(). Under torch.autocast the call takes
    part as torch's scaled_dot_product_attention does: q, k and v, unless float64, are cast, and learned arrays keep their types.
    torch.jit.trace records an operator of torch, for which a saved trace needs `import relpos.torch` where it is loaded; an export to
    ONNX raises.

    >>> import numpy as np, relpos
    >>> q = k = v = np.eye(4, dtype=np.float32).reshape(1, 1, 4, 4)
    >>> relpos.attention(q, k, v, bias=relpos.Linear(left=9, right=9)).argmax(-1)
    array([[[0, 1, 2, 3]]])
    >>> relpos.attention(q, k, v, causal=True, return_lse=True).lse.round(2)
    array([[[0.5 , 0.97, 1.29, 1.54]]], dtype=float32)
    """
    if unknown:
        _refuse_keyword(next(iter(unknown)))
    if layout != "bhld":
        if layout != "blhd":
            raise ValueError(f'layout is {layout!r}: "bhld" or "blhd"')
        q, k, v = (_swapped(name, x) for name, x in (("q", q), ("k", k), ("v", v)))
        out = out if out is None else _swapped("out", out)
    attend = _hints.named(_core.attention, "relpos::attention")
    if progress:
        attend = _progress.told(attend, "relpos.attention")
    found = attend(q, k, v, bias, rope, relkey, relval, sink, causal, window, key_mask, mask, lengths, segments, starts, ends,
                   scale, softcap, softcap_after, q_offset, dropout, seed, threads, precision, out, return_weights, return_lse,
                   summary, key_norms, progress)
    if layout != "bhld":
        found = (found[0].swapaxes(-3, -2), *found[1:]) if type(found) is tuple else found.swapaxes(-3, -2)
    return _results(found) if type(found) is tuple else found


_signature = inspect.signature(attention)
attention.__signature__ = _signature.replace(parameters=[x for x in _signature.parameters.values() if x.name != "unknown"])


def _refuse_keyword(name):
    raise TypeError(f"attention() got an unexpected keyword argument {name!r}{_hints.meant(name)}")


def _swapped(name, x):
    """(B, L, H, D) as (B, H, L, D)."""
    if getattr(x, "ndim", 0) < 3:
        raise ValueError(f'{name}: {getattr(x, "ndim", 0)} axes: layout="blhd" needs 4, (B, L, H, D), or 3, (L, H, D)')
    return x.swapaxes(-3, -2)


def key_norms(k, v, *, norms=None, start=0):
    """What lets a call of few queries, such as a step of decoding, leave keys unread whose weights are 0 by their distance, as far keys of
    ALiBi and of forget gates: of each 64 keys the largest Euclidean norm of one, max sqrt(sum_x k[b, h, j, x]^2), in the units of k.
    It is infinite, and these keys are read, where a key or value is NaN or infinite, or a number of a key is beyond 1e15.

    k and v are those of `attention`: (B, Hk, Lk, D), or both without B, or both (Lk, D). The result is (B, Hk, ceil(Lk / 64)) in
    float32, without the axes that k lacks, and goes to `attention` or a call of `Plan` as key_norms=. The result of that call has the
    same bits with it and without. It has to be that of the keys and values of the call: make it again where one of them changes.

    norms    where it goes, float32 or float64, with room for more keys if their number grows
    start    how many keys `norms` covers already: only those from there on are read. 0 without norms

    Keys of pages (pages, Hk, 64 n keys of a page, D) have norms (pages, Hk, n); norms[pages].swapaxes(1, 2).reshape(B, Hk, -1) are those of
    a call with the table `pages`. Raises ValueError where the axes of k, v and norms do not go together or start is not 0 to Lk,
    TypeError where an array has no floating type.

    >>> import numpy as np, relpos
    >>> q, k = np.ones((1, 2, 1, 8), np.float32), np.ones((1, 2, 100, 8), np.float32)
    >>> norms = relpos.key_norms(k, k)
    >>> norms.round(3)
    array([[[2.828, 2.828],
            [2.828, 2.828]]], dtype=float32)
    >>> relpos.attention(q, k, k, bias=relpos.ALiBi(), q_offset=99, key_norms=norms).shape
    (1, 2, 1, 8)
    """
    return _core.key_norms(k, v, norms, start)


def _results(found):
    """What _core gives where more than out was asked for."""
    out, weights, lse, summary = found
    return Result(out, weights, lse, summary and Summary(*summary))


class Gradients(NamedTuple):
    """The gradients of one call; None where not wanted. `terms` has a dictionary for each term, in the order of the keywords bias,
    rope, relkey, relval, sink, from the name of each learned array to its gradient."""

    q: object
    k: object
    v: object
    terms: tuple


def attention_backward(dout, q, k, v, *, dlse=None, out=None, lse=None, wanted=None, progress=None, **options):
    """The gradients of sum(dout * out) by q, k, v and every learned array, for the options of `attention`: numbers, to torch too,
    which has no derivative of them. With `dlse` (B, H, Lq), the gradient of the loss by lse, those of sum(dout * out) +
    sum(dlse * lse); of a row without a key neither counts, but a sink's gradient gets dlse.

    `out` and `lse` of the call before, where given, spare computing them again. `wanted` is a collection of names, such as
    ("q", "table"), where not all gradients are wanted; the work for the others is not done. progress is that of `attention`.

    >>> import numpy as np, relpos
    >>> q = k = v = dout = np.ones((1, 2, 5, 4), np.float32)
    >>> g = relpos.attention_backward(dout, q, k, v, bias=relpos.ALiBi(np.ones(2, np.float32)))
    >>> g.q.shape, g.terms[0]["slopes"].shape
    ((1, 2, 5, 4), (2,))
    """
    call = _progress.told(_core.backward, "relpos.attention_backward") if progress else _core.backward
    return Gradients(*call(dout, q, k, v, progress, dlse=dlse, out=out, lse=lse, wanted=wanted, **options))


class Plan:
    """A checked problem for many calls, such as the steps of decoding: the lengths are bounds, and what depends on positions and
    learned arrays alone, such as tables and the cosines of RoPE, is made once. Make another when a learned array changes.

    Sizes are those of `attention`; kv_heads and dim_v are heads and dim unless given. `options` are those of `attention` that say
    what is computed. A call takes q, k and v, out, key_norms, progress and return_… as there, and may replace q_offset and the arrays of masks that
    the plan was made with.

    With `pages`, k and v are caches of pages, (pages, Hk, keys of a page, D), and row b of `pages`, integers (B, n), names those of
    batch entry b from the first on; len_k says how many keys there are, where it is not all that the pages hold. Caches (pages, keys of
    a page, Hk, D) are given as k.transpose(1, 2), in NumPy k.swapaxes(1, 2). `lengths` lets batch entries differ.

    >>> import numpy as np, relpos
    >>> cache = np.ones((1, 8, 64, 16), np.float32)
    >>> plan = relpos.Plan(1, 8, 1, 64, 16, bias=relpos.ALiBi(), causal=True)
    >>> for n in range(3):
    ...     out = plan(cache[:, :, n:n + 1], cache[:, :, :n + 1], cache[:, :, :n + 1], q_offset=n)
    >>> out.shape
    (1, 8, 1, 16)
    >>> pages = np.ones((9, 8, 16, 16), np.float32)                 # 9 pages of 16 keys
    >>> plan(cache[:, :, :1], pages, pages, pages=np.array([[7, 2]]), len_k=20, q_offset=19).shape
    (1, 8, 1, 16)
    >>> plan
    relpos.Plan(1, 8, 1, 64, 16, bias=relpos.ALiBi(), causal=True)

    A copy, and what pickle restores, is made anew of the same options.
    """

    __slots__ = ("_plan", "_made")

    def __init__(self, batch, heads, len_q, len_k, dim, *, kv_heads=None, dim_v=None, dtype="float32", **options):
        dtype = str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")  # numpy.float32 is "float32"
        of = {"kv_heads": kv_heads, "dim_v": dim_v, "dtype": None if dtype == "float32" else dtype}
        self._made = (batch, heads, len_q, len_k, dim), {name: x for name, x in of.items() if x is not None} | options
        self._plan = _core.plan(batch, heads, len_q, len_k, dim, kv_heads or heads, dim_v or dim, dtype, **options)

    def __reduce__(self):
        return _plan_of, self._made

    def __repr__(self):
        sizes, options = self._made
        shown = (f"{name}={_terms._show(x) if hasattr(x, 'shape') else repr(x)}" for name, x in options.items())
        return f"relpos.Plan({', '.join((*map(str, sizes), *shown))})"

    def __call__(self, q, k, v, *, pages=None, len_k=None, return_weights=False, return_lse=False, summary=False, progress=None,
                 **options):
        call = _progress.told(_core.plan_call, "relpos.Plan") if progress else _core.plan_call
        found = call(self._plan, q, k, v, pages, len_k, progress, **options, return_weights=return_weights, return_lse=return_lse,
                     summary=summary)
        return _results(found) if type(found) is tuple else found


def _plan_of(sizes, options):
    return Plan(*sizes, **options)


class Explanation(NamedTuple):
    """One row of attention, step by step, in float64.

    raw        <q, k>, rotated if there is a RoPE
    scaled     scale * raw
    bias       the sum of the biases
    score      what the softmax sees, -inf where masked
    weights    the softmax
    out        the output
    lse        the log of the sum of exp(score), and of exp(sink)
    parts      what the score is the sum of, by name: "content" (scale * <q, k>), "rope", "relkey", "deberta.k_pos", "softcap", "t5",
               "t5 2" for a second one, "mask" (0 or -inf) and so on, in the order in which they are added
    out_parts  what out is the sum of, by name: "values", and "relval" with relpos.RelValue
    sink       the sink's logit; None without one
    """

    raw: object
    scaled: object
    bias: object
    score: object
    weights: object
    out: object
    lse: float
    parts: dict
    out_parts: dict
    sink: object

    def _columns(self):
        """The columns of a table: raw scores, the parts, their sum, and the weights."""
        return {"raw": self.raw, **self.parts, "score": self.score, "weight": self.weights}

    def __repr__(self):
        columns = {name: [float(x) for x in column] for name, column in self._columns().items()}
        widths = {name: max(10, len(name) + 2) for name in columns}
        weights = columns["weight"]
        keys = range(len(weights))
        shown = sorted(sorted(keys, key=lambda j: -weights[j])[:40])  # of many keys those with the largest weights
        lines = [f"{'key':>5}{''.join(f'{name:>{widths[name]}}' for name in columns)}"]
        for j in shown:
            numbers = "".join(f"{column[j]:{widths[name]}.4f}" for name, column in columns.items())
            lines.append(f"{j:5}{numbers}  {'#' * round(40 * weights[j])}".rstrip())
        if len(shown) < len(keys):
            lines.append(f"{len(keys) - len(shown)} keys of smaller weight are left out")
        if self.sink is not None:
            lines.append(f"sink {self.sink:.6g}, weight {np.exp(self.sink - self.lse):.4f}")
        return "\n".join([*lines, f"lse {self.lse:.6g}"])

    def _repr_html_(self):
        return plotter().html_of_explanation(self)


def explain(q, k, v, *, query=-1, head=0, batch=0, **options):
    """The steps that lead to one row of attention, for the options of `attention`; its repr is a table. To torch they are numbers
    without gradients.

    >>> import numpy as np, relpos
    >>> q = k = v = np.ones((1, 1, 3, 4), np.float32)
    >>> relpos.explain(q, k, v, query=1, bias=relpos.LogDecay(1.0), causal=True)
      key       raw   content       log      mask     score    weight
        0    4.0000    2.0000   -0.6931    0.0000    1.3069    0.3333  #############
        1    4.0000    2.0000    0.0000    0.0000    2.0000    0.6667  ###########################
        2    4.0000    2.0000   -0.6931      -inf      -inf    0.0000
    lse 2.40547
    """
    batches, heads, rows = (1, 1, *q.shape[:-1])[-3:]
    at = (n + length if n < 0 else n for n, length in ((batch, batches), (head, heads), (query, rows)))
    *steps, parts, sink, out_parts = _core.row(q, k, v, *at, **options)
    return Explanation(*steps, dict(parts), dict(out_parts), float(sink[0][1][0]) if sink else None)


def bucket(offsets, *, buckets=32, max_distance=128, bidirectional=True, strategy="log"):
    """The bucket of each offset key - query; with strategy "log" those of T5, bit for bit.

    >>> import relpos
    >>> relpos.bucket(range(-9, 10, 3))
    array([ 8,  6,  3,  0, 19, 22, 24])
    """
    offsets = np.asarray(offsets)
    if offsets.dtype.kind not in "iu" and offsets.size:
        raise TypeError(f"offsets: {offsets.dtype} (whole numbers; round them first, as key - query of real positions is not one bucket)")
    offsets = offsets.astype(np.int64)
    to = np.empty(offsets.size, dtype=np.int64)
    text = f"buckets={buckets},max_distance={max_distance},bidirectional={int(bidirectional)},strategy={strategy}"
    _core.bucket(offsets.ravel(), to, f"bucket,{text}")
    return to.reshape(offsets.shape)[()]


def __getattr__(name):
    if name == "t5":  # which loads a library that not every build has
        return importlib.import_module("relpos.t5")
    raise AttributeError(f"module 'relpos' has no attribute {name!r}")


def __dir__():
    modules = ("hf", "numpy", "plot", "torch")
    return sorted([*__all__, "__doc__", "__version__", "t5", *(name for name in modules if name in globals())])


def show_config():
    """What this build and this machine have.

    >>> import relpos
    >>> sorted(relpos.show_config())
    ['compiler', 'isa', 'isas', 'threads', 'version']
    """
    return _core.config()
