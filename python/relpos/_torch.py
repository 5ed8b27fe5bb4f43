"""attention for torch tensors that require a gradient; _core comes here by itself.  SPDX-License-Identifier: Apache-2.0"""
import torch

from . import _core

_AT = {name: n for n, name in enumerate(_core.NAMES)}
_COMPUTED = _core.NAMES[:_AT["out"]]  # what a backward call is given too


_TERMS = ("bias", "rope", "relkey", "relval", "sink")


def _terms_of(options, keyword):
    terms = options[_AT[keyword]]
    return terms if isinstance(terms, tuple) else () if terms is None else (terms,)


def _learned(options):
    """(term, name, tensor) of each learned array, terms counted in the order in which _core takes them."""
    found, count = [], 0
    for keyword in _TERMS:
        for term in _terms_of(options, keyword):
            found += [(count, name, array) for name, array in term.learned.items() if isinstance(array, torch.Tensor)]
            count += 1
    return found


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options, places, q, k, v, *arrays):
        out, weights, lse, summary = _core.compute(q, k, v, *options)
        ctx.options, ctx.places = dict(zip(_COMPUTED, options)), places
        terms = [term for keyword in _TERMS for term in _terms_of(options, keyword)]
        read = [x for x in (*options, *(x for term in terms for x in term.arrays.values())) if isinstance(x, torch.Tensor)]
        ctx.save_for_backward(q, k, v, out, lse, *arrays, *read)  # masks and positions too, which the backward pass reads again
        more = [x for x in (lse, weights, *(summary or ())) if x is not None]
        ctx.mark_non_differentiable(*more)
        return out, *more

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout, *_):
        q, k, v, out, lse, *_ = ctx.saved_tensors  # torch says here if one was changed in place
        names = ["q", "k", "v", *(name for _, name in ctx.places)]
        wanted = {name for name, needs in zip(names, ctx.needs_input_grad[2:]) if needs}
        if dout.stride(-1) != 1:
            dout = dout.contiguous()
        if q.dtype in (torch.float16, torch.bfloat16):  # rounded to half its bits: computed again
            out = lse = None
        dq, dk, dv, terms = _core.gradients(dout, q, k, v, out=out, lse=lse, wanted=wanted, **ctx.options)
        return None, None, dq, dk, dv, *(terms[term][name] for term, name in ctx.places)


def attention(q, k, v, *options):
    if not isinstance(q, torch.Tensor):
        raise TypeError("q is no torch tensor, and an array of the call requires a gradient from torch: give q, k and v as tensors")
    options = list(options)
    asked = [options[_AT[name]] for name in ("return_weights", "return_lse", "summary")]
    if options[_AT["out"]] is not None:
        raise TypeError("out: torch records no gradient through it: leave it away, or call under torch.no_grad()")
    options[_AT["return_lse"]] = True  # the backward pass reads it
    learned = _learned(options)
    out, lse, *more = _Attention.apply(options, [place[:2] for place in learned], q, k, v, *(array for *_, array in learned))
    if not any(asked):
        return out
    return out, more.pop(0) if asked[0] else None, lse if asked[1] else None, tuple(more) if asked[2] else None
