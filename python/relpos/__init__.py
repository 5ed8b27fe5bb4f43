"""Exact attention with relative positions, forward and backward, on a CPU.

    >>> import numpy as np, relpos
    >>> q = k = v = np.ones((1, 8, 100, 64), np.float32)
    >>> relpos.attention(q, k, v, bias=relpos.ALiBi(), causal=True).shape
    (1, 8, 100, 64)

NumPy arrays give NumPy results, and torch tensors give torch tensors. docs/terms.md has the formula of every term.

SPDX-License-Identifier: Apache-2.0"""
import importlib
import inspect
import os
from typing import NamedTuple

import numpy as np

from . import _by_offset, _core, _hints, _progress, _scale, _terms
from ._by_offset import ByOffset
from ._cache import Cache
from ._rope_layouts import rope_layout
from ._terms import TERMS, Sum, Term, plotter

globals().update({cls.__name__: cls for cls in TERMS.values()})
__all__ = [
    "attention", "attention_backward", "attention_jvp", "attention_hvp", "explain", "key_norms", "bucket",
    "rope_layout", "show_config", "Plan", "Cache", "Result", "Summary", "Gradients", "Tangents", "SecondDerivatives",
    "Explanation", "Term", "Sum", "TERMS", "ByOffset", *(cls.__name__ for cls in TERMS.values())
]
__version__ = _core.config()["version"]


class Summary(NamedTuple):
    """A summary of the weights of each head, from `attention(..., summary=True)`.

    profile   (..., Lq + Lk - 1): the mean weight of all pairs with the same offset key - query. Element t belongs to
              the offset t - (Lq - 1 + q_offset). Masked pairs have weight 0
    key_mass  (..., Lk): the sum of the weights of each key over all queries
    entropy   (..., Lq): the entropy of each row of weights, in nats
    """

    profile: object
    key_mass: object
    entropy: object


class Result(NamedTuple):
    """The results of one call. Results that you did not request are None. `seed` is not an element of the tuple."""

    out: object
    weights: object
    lse: object
    summary: object

    @property
    def seed(self):
        """The seed of dropout, or None without dropout."""
        return None

    def _repr_html_(self):
        return plotter().html_of_result(self)


class _ResultOfDropout(Result):
    seed = None

    def __repr__(self):
        return f"{super().__repr__().removeprefix('_').removesuffix(')')}, seed={self.seed})"


def attention(q, k, v, *others, bias=None, rope=None, relkey=None, relval=None, sink=None, causal=False, window=None,
              key_mask=None, mask=None, lengths=None, segments=None, starts=None, ends=None, scale=None, softcap=None,
              softcap_after=False, q_offset=None, dropout=0.0, seed=None, return_weights=False, return_lse=False,
              summary=False, threads=None, precision="highest", out=None, layout="bhld", key_norms=None,
              progress=None, **unknown):
    """Compute attention with relative positions.

    out = softmax(softcap_after(softcap(scale q k^T + relkey) + bias)) (v + relval)

    q is (B, H, Lq, D), k (B, Hk, Lk, D) and v (B, Hk, Lk, Dv), where Hk divides H. You can omit B, or B and H, in all
    three: (H, L, D) or (L, D). Results then omit the same axes. Arrays can have any strides; if the last axis is not
    contiguous (for k: neither the last axis nor the axis of keys), relpos reads a copy. Types are float32, float64,
    float16 and bfloat16 (torch, ml_dtypes); float16 and bfloat16 are summed in float32. The offset of a pair is key -
    query = j - (i + q_offset).

    bias             a term, or a sum of terms: relpos.T5(table) + relpos.ALiBi(). ByOffset is a bias that you write
    rope             RoPE, which rotates q and k
    relkey           a term added to the product of q and k: RelKey, XL or another from "Products with vectors" in
                     docs/terms.md
    relval           RelValue, which adds vectors to v
    sink             Sink, an extra logit in each row; the weights of a row then sum to less than one
    causal           only keys at or before the query
    window           (left, right): only keys from left before to right after the query; -1 = no limit, or None
    key_mask         (B, Lk) or broadcastable: non-zero keys are attended to
    mask             (B, H, Lq, Lk) or broadcastable: non-zero pairs are attended to
    lengths          (B) or broadcastable: the number of valid keys of each batch entry
    segments         (B, Lk) or broadcastable: labels of packed sequences; a token attends only to its own sequence
    starts           (B, Lq) or broadcastable: the first key of each query, for chunks or windows that differ by query
    ends             (B, Lq) or broadcastable: one past the last key of each query, for prefixes or images within
                     causal text
    scale            factor of q k^T and of products of q with vectors, but of no bias and no sink; default 1/sqrt(D).
                     An array or tensor multiplies q, which in float16 and bfloat16 rounds q once more: one number, (H)
                     or (H, 1, 1), or another shape that broadcasts to (B, H, Lq, 1), such as one number for each row. A
                     tensor has a gradient
    softcap          c in c tanh(x/c), applied before the biases. A tensor has a gradient, as for softcap_after
    softcap_after    c of a softcap after the biases, with or without softcap; True applies softcap after the biases
                     instead
    q_offset         position of query 0, an integer or an array (B); default 0. With causal=True and fewer queries than
                     keys, pass Lk - Lq if the queries are the last tokens; without q_offset such a call warns, or
                     raises if Lq is 1
    dropout, seed    fraction of the weights to drop; the same seed drops the same weights on every machine. Without a
                     seed, each call draws one: from torch's generator for tensors, so torch.manual_seed applies, else
                     from the system. Result.seed is the seed that was used
    threads          number of threads; default: all that this process may use, or torch.get_num_threads() for tensors.
                     The result does not depend on it
    precision        "highest" or "high". With AMX, "high" splits each float32 into two bfloat16 parts instead of three
    out              array for the result
    key_norms        norms from relpos.key_norms, which let a call with few queries skip distant keys
    progress         True shows the progress of a long call: a tqdm bar if tqdm is installed, else a line on standard
                     error if it is a terminal. A function is called with the fraction done. Calls outside the main
                     thread report no progress
    layout           "bhld", or "blhd" if q, k, v and out are (B, L, H, D). The layout of other arrays and results does
                     not change

    Returns out, or a Result with return_weights, return_lse (the log of the sum of exp of each row) or summary (see
    Summary). These extra results are float64 for float64 inputs, else float32. A query without keys has out 0, weights
    0 and lse -inf (with a sink, its logit). Ctrl-C ends a long call; the content of `out` is then undefined. Wrong
    arguments raise ValueError or TypeError.

    With torch, all results have gradients with respect to q, k, v, the learned arrays of terms, scale and the softcaps.
    If the loss depends on weights or summary, the backward pass computes the scores a second time. out and lse also
    have forward-mode and second derivatives, as by torch.func and create_graph=True. torch.autocast casts q, k and v
    unless they are float64, as for torch's scaled_dot_product_attention; learned arrays keep their types.
    torch.jit.trace records an operator, so `import relpos.torch` before you load a saved trace. ONNX export raises.

    >>> import numpy as np, relpos
    >>> q = k = v = np.eye(4, dtype=np.float32).reshape(1, 1, 4, 4)
    >>> relpos.attention(q, k, v, bias=relpos.Linear(left=9, right=9)).argmax(-1)
    array([[[0, 1, 2, 3]]])
    >>> relpos.attention(q, k, v, causal=True, return_lse=True).lse.round(2)
    array([[[0.5 , 0.97, 1.29, 1.54]]], dtype=float32)
    """
    if unknown:
        _refuse_keyword(next(iter(unknown)))
    if others:
        _hints.refuse_positions("attention", "q, k and v", others)
    if _swaps(layout):
        q, k, v, out = _swapped(q=q, k=k, v=v, out=out)
    if bias is not None and not isinstance(bias, Term):
        bias = _by_offset.resolve(bias, q, k, q_offset)
    if scale is not None and not isinstance(scale, (int, float)) and hasattr(scale, "ndim"):
        q, k, relkey, scale = _scale.fold(q, k, relkey, scale)
    if seed is None and _drops(dropout):
        seed = _draw_seed(hasattr(q, "requires_grad"))
    attend = _hints.named(_core.attention, "relpos::attention")
    if _progress.wanted(progress):
        attend = _progress.reporting(attend, "relpos.attention")
    found = attend(q, k, v, bias, rope, relkey, relval, sink, causal, window, key_mask, mask, lengths, segments,
                   starts, ends, scale, softcap, softcap_after, q_offset, dropout, seed, threads, precision, out,
                   return_weights, return_lse, summary, key_norms, progress)
    if _swaps(layout):
        found = (found[0].swapaxes(-3, -2), *found[1:]) if type(found) is tuple else found.swapaxes(-3, -2)
    return _results(found, seed if _drops(dropout) else None) if type(found) is tuple else found


def _hide_others(function):
    """Remove the parameters from the signature that exist for the sake of errors."""
    signature = inspect.signature(function)
    function.__signature__ = signature.replace(
        parameters=[x for x in signature.parameters.values() if x.name not in ("others", "unknown")])


_hide_others(attention)


def _refuse_keyword(name):
    raise TypeError(f"attention() got an unexpected keyword argument {name!r}{_hints.meant(name)}")


def _drops(dropout):
    """Return true if a call has dropout. A tensor counts even if it is 0, since torch cannot trace a branch on its
    value."""
    return dropout is not None and not (isinstance(dropout, (int, float)) and dropout == 0)


def _draw_seed(of_torch):
    """Return a new seed for dropout, from torch's generator or from the system."""
    if not of_torch:
        return int.from_bytes(os.urandom(7), "little")
    from ._torch import draw_seed
    return draw_seed()


def _of_call(name, options, layout):
    """Check the options of a call that computes derivatives. Returns true for layout="blhd"."""
    if options.get("seed") is None and _drops(options.get("dropout")):
        raise TypeError(
            f"{name}: dropout is given without seed; pass the seed of the call to relpos.attention, as in its "
            "Result.seed"
        )
    return _swaps(layout)


def _need_number(name, options):
    scale = options.get("scale")
    if getattr(scale, "ndim", 0):
        raise TypeError(
            f"{name}: scale is an array of shape {tuple(scale.shape)}, which only relpos.attention and its "
            "derivatives accept; multiply q by it (also u and v of XL, q_pos of Deberta; with AxialKey, k instead), "
            "and pass scale=1"
        )


def _swaps(layout):
    """Return true for layout="blhd"."""
    if not isinstance(layout, str):
        raise TypeError(f'layout is of type {type(layout).__name__}, expected "bhld" or "blhd"')
    if layout not in ("bhld", "blhd"):
        raise ValueError(f'layout is {layout!r}, expected "bhld" or "blhd"')
    return layout == "blhd"


def _swapped(**arrays):
    """View arrays (B, L, H, D) as (B, H, L, D). None stays None."""
    for name, x in arrays.items():
        if x is not None and getattr(x, "ndim", 0) < 3:
            raise ValueError(
                f'{name} has {getattr(x, "ndim", 0)} axes; with layout="blhd", expected (B, L, H, D) or (L, H, D)')
    return [None if x is None else x.swapaxes(-3, -2) for x in arrays.values()]


def _swapped_tangents(tangents):
    """View the tangents of q, k and v as (B, H, L, D)."""
    if not isinstance(tangents, tuple) or len(tangents) < 3:
        return tangents  # _core raises
    names = ("tangents.q", "tangents.k", "tangents.v")
    return (*_swapped(**dict(zip(names, tangents))), *tangents[3:])


def key_norms(k, v, *, norms=None, start=0):
    """Return the largest Euclidean norm in each block of 64 keys, max sqrt(sum_x k[b, h, j, x]^2).

    With these norms, a call with few queries, such as a decoding step, skips keys that are so far away that their
    weights are 0, as with ALiBi and forget gates. Pass them to `attention` or to a call of a `Plan` as key_norms=; the
    result keeps the same bits. Compute them again when a key or value changes. If a key or value of a block is NaN or
    infinite, or an element of a key is beyond 1e15, the norm of the block is infinite, and its keys are always read.

    k and v are as in `attention`: (B, Hk, Lk, D), both without B, or both (Lk, D). The result is float32, (B, Hk,
    ceil(Lk / 64)), without the axes that k omits.

    norms    array for the result, float32 or float64; its last axis may be longer, for a cache that grows
    start    number of keys that `norms` already covers; only later keys are read. Must be 0 without norms

    For pages (pages, Hk, keys per page, D) the norms are (pages, Hk, ceil(keys per page / 64)), and a call with a table
    of pages takes this array. Raises ValueError if the axes of k, v and norms do not match or start is not in 0 to Lk,
    and TypeError if an array is not floating point.

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


def _results(found, seed):
    """Convert the tuple that _core returns to a Result. `seed` is that of dropout, or None."""
    out, weights, lse, summary = found
    summary = summary and Summary(*summary)
    if seed is None:
        return Result(out, weights, lse, summary)
    result = _ResultOfDropout(out, weights, lse, summary)
    result.seed = seed
    return result


class Gradients(NamedTuple):
    """The gradients of one call. A gradient that `wanted` omits is None. `terms` has one dictionary for each term, in
    the order of the keywords bias, rope, relkey, relval, sink; the dictionary maps the name of each learned array to
    its gradient. If `wanted` names softcap, softcap_after or scale, one more dictionary at the end has their gradients:
    float64 arrays without axes for the softcaps, and an array with the shape and type of scale."""

    q: object
    k: object
    v: object
    terms: tuple


def attention_backward(dout, q, k, v, *others, dlse=None, dweights=None, dsummary=None, out=None, lse=None, wanted=None,
                       per_sample=False, progress=None, layout="bhld", **options):
    """Compute the gradients of sum(dout * out) with respect to q, k, v and every learned array. torch cannot
    differentiate them again.

    dout       (B, H, Lq, Dv), the gradient of the loss with respect to out
    dlse       (B, H, Lq), the gradient of the loss with respect to lse: sum(dlse * lse) is added to the differentiated
               sum. A row without keys contributes to neither sum, except that its dlse adds to the gradient of a sink
    dweights   (B, H, Lq, Lk), the gradient of the loss with respect to the weights that `attention` returns
    dsummary   a Summary: the gradients of the loss with respect to profile, key_mass and entropy, or None for each
    out, lse   results of the forward call; if you omit them, they are computed again
    wanted     names of the gradients to compute, such as ("q", "table"); default: all but softcap, softcap_after and
               scale, which must be an array for this
    per_sample True: gradients of learned arrays have a leading axis B and are those of each batch entry, with the bits
               of a call with this entry alone. Arrays with an axis for the batch have no other axis; if batch entries
               share its elements, its gradient has B elements there
    progress   as in `attention`
    layout     as in `attention`, also of dout, out and the gradients of q, k and v
    options    the options of `attention`; dropout needs the seed of the forward call

    >>> import numpy as np, relpos
    >>> q = k = v = dout = np.ones((1, 2, 5, 4), np.float32)
    >>> g = relpos.attention_backward(dout, q, k, v, bias=relpos.ALiBi(np.ones(2, np.float32)))
    >>> g.q.shape, g.terms[0]["slopes"].shape
    ((1, 2, 5, 4), (2,))
    >>> g = relpos.attention_backward(dout, q, k, v, bias=relpos.ALiBi(np.ones(2, np.float32)), per_sample=True)
    >>> g.terms[0]["slopes"].shape
    (1, 2)
    """
    swaps = _of_call("relpos.attention_backward", options, layout)
    if others:
        _hints.refuse_positions("attention_backward", "dout, q, k and v", others)
    if swaps:
        dout, q, k, v, out = _swapped(dout=dout, q=q, k=k, v=v, out=out)
    call = _progress.reporting(_core.backward,
                               "relpos.attention_backward") if _progress.wanted(progress) else _core.backward
    options = _by_offset.resolved(options, q, k)
    given = {"dlse": dlse, "dweights": dweights, "dsummary": dsummary, "out": out, "lse": lse, "per_sample": per_sample}
    scaled = _scale.derivatives("relpos.attention_backward", q, k, options, wanted)
    if scaled is None:
        found = call(dout, q, k, v, progress, wanted=wanted, **given, **options)
    else:
        found = call(dout, scaled.q, scaled.k, v, progress, wanted=scaled.wanted, **given, **scaled.options)
        found = scaled.gradients(found, per_sample)
    return Gradients(*_swapped(q=found[0], k=found[1], v=found[2]), *found[3:]) if swaps else Gradients(*found)


_hide_others(attention_backward)


class Tangents(NamedTuple):
    """The tangents of out and lse, from `attention_jvp`."""

    out: object
    lse: object


class SecondDerivatives(NamedTuple):
    """The results of `attention_hvp`: q, k, v and terms are as in Gradients; out and lse are as in Tangents."""

    q: object
    k: object
    v: object
    terms: tuple
    out: object
    lse: object


def attention_jvp(q, k, v, tangents, *others, progress=None, layout="bhld", **options):
    """Compute the tangents of out and lse (a Jacobian-vector product, forward mode): how they change if q, k, v and
    the learned arrays change along the given tangents.

    tangents   (q, k, v) or (q, k, v, terms): arrays with the shapes of q, k and v, or None for 0. `terms` has one
               dictionary for each term, as in Gradients, from names of learned arrays to tangents; arrays that it
               omits have the tangent 0. One more dictionary may have tangents of softcap and softcap_after, arrays
               without axes, and of a scale that is an array, of its shape. relpos.Gradients has this form. Like
               gradients with per_sample, the tangent of an array, a softcap or the scale may have a leading axis B for
               tangents of each batch entry
    progress   as in `attention`
    layout     as in `attention`, also of the tangents of q, k, v and out
    options    as in `attention_backward`

    Memory grows with the length, not with its square. Kernels compute about three times the products of `attention`. A
    row without keys has tangents of 0; with a sink, that of lse is the sink's. Tensors that require a gradient raise
    TypeError; torch.func.jvp of `attention` records it.

    >>> import numpy as np, relpos
    >>> q = k = v = np.ones((1, 2, 5, 4), np.float32)
    >>> t = relpos.attention_jvp(q, k, v, (None, None, 2 * v), bias=relpos.ALiBi())
    >>> t.out.shape, float(t.out[0, 0, 0, 0]), float(t.lse[0, 0, 0])
    ((1, 2, 5, 4), 2.0, 0.0)
    """
    swaps = _of_call("relpos.attention_jvp", options, layout)
    if others:
        _hints.refuse_positions("attention_jvp", "q, k, v and tangents", others)
    if swaps:
        q, k, v = _swapped(q=q, k=k, v=v)
        tangents = _swapped_tangents(tangents)
    call = _progress.reporting(_core.jvp, "relpos.attention_jvp") if _progress.wanted(progress) else _core.jvp
    options = _by_offset.resolved(options, q, k)
    scaled = _scale.derivatives("relpos.attention_jvp", q, k, options, None, tangents)
    if scaled is not None:
        q, k, options, tangents = scaled.q, scaled.k, scaled.options, scaled.turned(tangents)
    out, lse = call(q, k, v, tangents, progress, **options)
    return Tangents(out.swapaxes(-3, -2) if swaps else out, lse)


_hide_others(attention_jvp)


def attention_hvp(dout, q, k, v, tangents, *others, dlse=None, wanted=None, per_sample=False, progress=None,
                  layout="bhld", **options):
    """Compute a Hessian-vector product: how the gradients of sum(dout * out) + sum(dlse * lse) with respect to q, k, v
    and the learned arrays change along the given tangents. These are also the gradients of sum(dout * t.out) +
    sum(dlse * t.lse), where t = attention_jvp(q, k, v, tangents) with the same tangents.

    dout, dlse           as in `attention_backward`
    wanted, per_sample   as in `attention_backward`
    tangents, progress   as in `attention_jvp`
    layout               as in `attention`, also of dout and of the tangents and gradients of q, k and v
    options              as in `attention_backward`

    Returns SecondDerivatives. Memory is as for `attention_jvp`; kernels compute about three times the products of
    `attention_backward`.

    >>> import numpy as np, relpos
    >>> q = k = v = dout = np.ones((1, 2, 5, 4), np.float32)
    >>> h = relpos.attention_hvp(dout, q, k, v, (q, None, None), bias=relpos.ALiBi(np.ones(2, np.float32)))
    >>> h.q.shape, h.terms[0]["slopes"].shape, h.out.shape
    ((1, 2, 5, 4), (2,), (1, 2, 5, 4))
    """
    swaps = _of_call("relpos.attention_hvp", options, layout)
    if others:
        _hints.refuse_positions("attention_hvp", "dout, q, k, v and tangents", others)
    if swaps:
        dout, q, k, v = _swapped(dout=dout, q=q, k=k, v=v)
        tangents = _swapped_tangents(tangents)
    call = _progress.reporting(_core.hvp, "relpos.attention_hvp") if _progress.wanted(progress) else _core.hvp
    options = _by_offset.resolved(options, q, k)
    scaled = _scale.derivatives("relpos.attention_hvp", q, k, options, wanted, tangents)
    if scaled is not None:
        q, k, options, tangents, wanted = scaled.q, scaled.k, scaled.options, scaled.turned(tangents), scaled.wanted
    found = call(dout, q, k, v, tangents, dlse, wanted, per_sample, progress, **options)
    if scaled is not None:
        first = _core.backward(dout, q, k, v, progress, dlse=dlse, wanted=wanted, per_sample=per_sample,
                               **options) if scaled.needs_gradients() else None
        found = scaled.gradients(found, per_sample, first)
    if swaps:
        found = (*_swapped(q=found[0], k=found[1], v=found[2]), found[3], found[4].swapaxes(-3, -2), found[5])
    return SecondDerivatives(*found)


_hide_others(attention_hvp)


class Plan:
    """A prepared problem for many calls, such as the steps of decoding. len_q and len_k are upper bounds. Everything
    that depends only on positions and learned arrays, such as tables and the cosines of RoPE, is computed once; create
    a new Plan when a learned array changes.

    kv_heads defaults to heads, and dim_v to dim. `options` are the options of `attention` that define the result. A
    call takes q, k, v, out, key_norms, progress, return_weights, return_lse and summary as `attention` does, or a
    `Cache` in place of k and v. It can replace q_offset, and those mask arrays that the plan was created with. All
    calls of a plan with dropout have one seed.

    With `pages`, k and v are caches (pages, Hk, keys per page, D), and row b of `pages`, integers (B, n), lists the
    pages of batch entry b in order. len_k is the number of keys, by default all keys of the listed pages; `lengths`
    sets it for each batch entry. If your caches are (pages, keys per page, Hk, D), pass k.transpose(1, 2), or
    k.swapaxes(1, 2) in NumPy.

    A call can compute attention over keys key_from ... key_to - 1 only, so that a call never needs all keys: k and v
    then have the keys of this range, and len_k of the plan is the number of keys of the sequence. Ranges begin and end
    at multiples of `key_step`, or at len_k. A call with state_out=True returns the state of the rows, and the next call
    takes it as state_in; the call over the last keys returns out. Ranges in the order of the keys give the bits of one
    call. You can leave out ranges that the masks hide from all queries. If biases fall fast, as those of ALiBi, the
    first call also needs own_keys, the keys (B, Hk, Lq, D) at the positions of the queries, unless its range has them.

    key_from, key_to     the range; default 0 and len_k
    row_from, row_to     a range of queries; q, out, states and own_keys then have only its rows, len_q of the plan is
                         the number of all queries, and arrays of terms and masks are those of all queries
    state_in, state_out  states (B, H, Lq, numbers), float32 (float64 for float64). state_out is True, or an array to
                         write, which may be that of state_in
    own_keys             see above

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
    >>> q, k = np.ones((1, 8, 2, 16), np.float32), np.ones((1, 8, 600, 16), np.float32)
    >>> plan = relpos.Plan(1, 8, 2, 600, 16)
    >>> state = plan(q, k[:, :, :512], k[:, :, :512], key_to=512, state_out=True)
    >>> plan(q, k[:, :, 512:], k[:, :, 512:], key_from=512, state_in=state).shape
    (1, 8, 2, 16)

    Copying or unpickling a Plan creates a new one from the same options.
    """

    __slots__ = ("_plan", "_made")

    def __init__(self, batch, heads, len_q, len_k, dim, *, kv_heads=None, dim_v=None, dtype="float32", **options):
        if options.get("seed") is None and _drops(options.get("dropout")):
            options["seed"] = int(_draw_seed(type(dtype).__module__ == "torch"))
        _need_number("relpos.Plan", options)
        dtype = str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")  # also accepts numpy.float32
        _by_offset.refuse_in_plan(options.get("bias"))
        of = {"kv_heads": kv_heads, "dim_v": dim_v, "dtype": None if dtype == "float32" else dtype}
        self._made = (batch, heads, len_q, len_k, dim), {name: x for name, x in of.items() if x is not None} | options
        self._plan = _core.plan(batch, heads, len_q, len_k, dim, kv_heads or heads, dim_v or dim, dtype, **options)

    def __reduce__(self):
        return _plan_of, self._made

    def __repr__(self):
        sizes, options = self._made
        shown = (f"{name}={_terms._show(x) if hasattr(x, 'shape') else repr(x)}" for name, x in options.items())
        return f"relpos.Plan({', '.join((*map(str, sizes), *shown))})"

    @property
    def key_step(self):
        """The number of keys at whose multiples ranges begin and end: 512, or 0 if the plan computes all keys in one
        call."""
        return _core.plan_sizes(self._plan)[0]

    @property
    def row_step(self):
        """The number of queries at whose multiples ranges of rows begin and end in `backward`: 96. Other calls allow
        any range."""
        return _core.plan_sizes(self._plan)[1]

    def __call__(self, q, k, v=None, *, pages=None, len_k=None, key_from=None, key_to=None, row_from=None, row_to=None,
                 state_in=None, state_out=None, own_keys=None, return_weights=False, return_lse=False, summary=False,
                 progress=None, **options):
        if type(k) is Cache and v is None:
            options["key_norms"] = k.key_norms
            k, v = k.k, k.v
        call = _progress.reporting(_core.plan_call, "relpos.Plan") if _progress.wanted(progress) else _core.plan_call
        found = call(self._plan, q, k, v, pages, len_k,
                     _range(key_from, key_to, row_from, row_to, state_in, state_out, own_keys), progress, **options,
                     return_weights=return_weights, return_lse=return_lse, summary=summary)
        given = self._made[1]
        return _results(found,
                        given["seed"] if _drops(given.get("dropout")) else None) if type(found) is tuple else found

    def backward(self, dout, q, k, v, *, dlse=None, dweights=None, dsummary=None, out=None, lse=None, wanted=None,
                 per_sample=False, key_from=None, key_to=None, row_from=None, row_to=None, dq_in=None, dq_out=None,
                 dkv_in=None, dkv_out=None, progress=None, **options):
        """Compute gradients as `attention_backward` does, of all rows and keys or of a range. A range needs out and lse
        of its rows, from the call over their last keys; dweights and dsummary need all keys, and dweights and the
        gradient of entropy have the rows of the range. Gradients of k and v are those of the keys of the range, in
        float32 (float64 for float64). Gradients of arrays of terms are float64, and those of the pairs of the range:
        add them up.

        key_from, key_to   as in a call
        row_from, row_to   as in a call, but multiples of `row_step`, or len_q
        dq_in, dq_out      sums of dq, which go from range to range of keys as states do. A call with dq_out=True
                           returns them as `q`
        dkv_in, dkv_out    sums of dk and dv, which go from range to range of rows. A call with dkv_out=True returns
                           them as `k`
        options            q_offset and mask arrays, as in a call

        If ranges follow each other, with the sums, the gradients of q, k and v have the bits of one call. Without sums,
        each is the part of the range.

        >>> import numpy as np, relpos
        >>> q, k = np.ones((1, 8, 2, 16), np.float32), np.ones((1, 8, 600, 16), np.float32)
        >>> plan = relpos.Plan(1, 8, 2, 600, 16)
        >>> all = plan(q, k, k, return_lse=True)
        >>> g = plan.backward(q, q, k[:, :, :512], k[:, :, :512], out=all.out, lse=all.lse, key_to=512, dq_out=True)
        >>> h = plan.backward(q, q, k[:, :, 512:], k[:, :, 512:], out=all.out, lse=all.lse, key_from=512, dq_in=g.q)
        >>> g.k.shape, h.k.shape, h.q.shape
        ((1, 8, 512, 16), (1, 8, 88, 16), (1, 8, 2, 16))
        """
        call = _progress.reporting(_core.plan_backward,
                                   "relpos.Plan.backward") if _progress.wanted(progress) else _core.plan_backward
        return Gradients(
            *call(self._plan, dout, q, k, v, _range(key_from, key_to, row_from, row_to, dq_in, dq_out, dkv_in, dkv_out),
                  progress, dlse=dlse, dweights=dweights, dsummary=dsummary, out=out, lse=lse, wanted=wanted,
                  per_sample=per_sample, **options))


def _range(*given):
    """Return the ranges of a call, or None if it computes all rows and keys."""
    return given if any(x is not None for x in given) else None


def _plan_of(sizes, options):
    return Plan(*sizes, **options)


class Explanation(NamedTuple):
    """One row of attention, step by step, in float64.

    raw        <q, k>, with q and k rotated if there is a RoPE
    scaled     scale * raw
    bias       the sum of the biases
    score      the input of the softmax, -inf where masked
    weights    the softmax of score
    out        the output
    lse        the log of the sum of exp(score) and, with a sink, exp(sink)
    parts      the summands of score by name, in the order of addition: "content" (scale * <q, k>), "rope", "relkey",
               "deberta.k_pos", "softcap", "t5", "t5 2" for a second T5, "mask" (0 or -inf) and so on
    out_parts  the summands of out by name: "values", and "relval" with relpos.RelValue
    sink       the logit of the sink, or None
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
        """Return the columns of the table: raw products, the parts, the scores and the weights."""
        return {"raw": self.raw, **self.parts, "score": self.score, "weight": self.weights}

    def __repr__(self):
        columns = {name: [float(x) for x in column] for name, column in self._columns().items()}
        widths = {name: max(10, len(name) + 2) for name in columns}
        weights = columns["weight"]
        keys = range(len(weights))
        shown = sorted(sorted(keys, key=lambda j: -weights[j])[:40])  # the keys with the largest weights
        lines = [f"{'key':>5}{''.join(f'{name:>{widths[name]}}' for name in columns)}"]
        for j in shown:
            numbers = "".join(f"{column[j]:{widths[name]}.4f}" for name, column in columns.items())
            lines.append(f"{j:5}{numbers}  {'#' * round(40 * weights[j])}".rstrip())
        if len(shown) < len(keys):
            lines.append(f"{len(keys) - len(shown)} keys with smaller weights are not shown")
        if self.sink is not None:
            lines.append(f"sink {self.sink:.6g}, weight {np.exp(self.sink - self.lse):.4f}")
        return "\n".join([*lines, f"lse {self.lse:.6g}"])

    def _repr_html_(self):
        return plotter().html_of_explanation(self)


def explain(q, k, v, *others, query=-1, head=0, batch=0, layout="bhld", **options):
    """Compute one row of attention step by step, with the shapes and options of `attention`, and return an Explanation,
    which prints as a table. `query`, `head` and `batch` select the row; negative numbers count from the end. Results
    have no gradient in torch.

    >>> import numpy as np, relpos
    >>> q = k = v = np.ones((1, 1, 3, 4), np.float32)
    >>> relpos.explain(q, k, v, query=1, bias=relpos.LogDecay(1.0), causal=True)
      key       raw   content       log      mask     score    weight
        0    4.0000    2.0000   -0.6931    0.0000    1.3069    0.3333  #############
        1    4.0000    2.0000    0.0000    0.0000    2.0000    0.6667  ###########################
        2    4.0000    2.0000   -0.6931      -inf      -inf    0.0000
    lse 2.40547
    """
    if others:
        _hints.refuse_positions("explain", "q, k and v", others)
    _need_number("relpos.explain", options)
    if _swaps(layout):
        q, k, v = _swapped(q=q, k=k, v=v)
    batches, heads, rows = (1, 1, *q.shape[:-1])[-3:]
    at = (n + length if n < 0 else n for n, length in ((batch, batches), (head, heads), (query, rows)))
    *steps, parts, sink, out_parts = _core.row(q, k, v, *at, **_by_offset.resolved(options, q, k))
    return Explanation(*steps, dict(parts), dict(out_parts), float(sink[0][1][0]) if sink else None)


_hide_others(explain)


def bucket(offsets, *, buckets=32, max_distance=128, bidirectional=True, strategy="log"):
    """Return the bucket of each offset key - query, as int64 with the shape of `offsets`. strategy="log" gives exactly
    the buckets of T5 (Raffel et al. 2020, section 2.1). With bidirectional=False, all keys after the query are in
    bucket 0. Raises TypeError for offsets that are not integers, and ValueError for parameters out of range.

    >>> import relpos
    >>> relpos.bucket(range(-9, 10, 3))
    array([ 8,  6,  3,  0, 19, 22, 24])
    """
    offsets = np.asarray(offsets)
    if offsets.dtype.kind not in "iu" and offsets.size:
        raise TypeError(f"offsets has elements of {offsets.dtype}, expected integers; round them first")
    offsets = offsets.astype(np.int64)
    to = np.empty(offsets.size, dtype=np.int64)
    text = f"buckets={buckets},max_distance={max_distance},bidirectional={int(bidirectional)},strategy={strategy}"
    _core.bucket(offsets.ravel(), to, f"bucket,{text}")
    return to.reshape(offsets.shape)[()]


def __getattr__(name):
    if name in ("t5", "encoder"):  # import them on first use, because they need a library that some builds omit
        return importlib.import_module("relpos." + name)
    if name == "Encoder":
        return importlib.import_module("relpos.encoder").Encoder
    raise AttributeError(f"module 'relpos' has no attribute {name!r}")


def __dir__():
    modules = (name for name in ("hf", "numpy", "plot", "torch") if name in globals())
    return sorted([*__all__, "__doc__", "__version__", "t5", "encoder", "Encoder", *modules])


def show_config():
    """Return the version and compiler of this build, the machine's instruction sets, and the number of threads.

    >>> import relpos
    >>> sorted(relpos.show_config())
    ['compiler', 'isa', 'isas', 'threads', 'version']
    """
    return _core.config()
