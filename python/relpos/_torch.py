"""relpos.attention of torch tensors that require a gradient. _core imports this module for such calls, and for
torch.autocast.

SPDX-License-Identifier: Apache-2.0"""
import sys

import numpy as np
import torch
from torch.autograd import forward_ad

from . import _core, _hints
from ._encoding import SOFTCAPS

_AT = {name: n for n, name in enumerate(_core.NAMES)}
_TERMS = [_AT[name] for name in ("bias", "rope", "relkey", "relval", "sink")]
_Q_OFFSET, _OUT, _WEIGHTS, _LSE, _SUMMARY = (_AT[name] for name in ("q_offset", "out", "return_weights", "return_lse",
                                                                    "summary"))
_Tensor = torch.Tensor
_HALF = torch.float16, torch.bfloat16
_is_batched, _is_legacy = torch._C._functorch.is_batchedtensor, torch._C._functorch.is_legacy_batchedtensor
_modes = torch._C._len_torch_dispatch_stack


def _arrays(options):
    """Return (term, name, tensor) of each learned array of the terms, and a list of the other tensors of a call. `term`
    is the number of the term, in the order in which _core reads them; softcaps that require a gradient follow the
    terms. Raises for other tensors that require a gradient."""
    learned, others, softcaps, count = [], [], [], 0
    for name, x in zip(_core.NAMES, options):
        if isinstance(x, _Tensor):
            if x.requires_grad and name in SOFTCAPS:
                softcaps.append((name, x))
                continue
            if x.requires_grad:
                raise TypeError(f"{name} {NOT_LEARNED}")
            others.append(x)
    for at in _TERMS:
        if (terms := options[at]) is None:
            continue
        for term in terms if isinstance(terms, tuple) else (terms,):
            names = term.learned
            for name, array in term.arrays.items():
                if not isinstance(array, _Tensor):
                    continue
                if name in names:
                    learned.append((count, name, array))
                elif array.requires_grad:
                    raise TypeError(f"{type(term).__name__}({name}) {NOT_LEARNED}")
                else:
                    others.append(array)
            count += 1
    return learned + [(count, *x) for x in softcaps], others


def gradient_of(terms, place, array, per_sample=False):
    """Return the gradient of a learned array at place (term, name) in the terms of relpos.Gradients, None if it is not
    wanted. That of a softcap gets the shape and type of its tensor."""
    term, name = place
    found = terms[term].get(name) if term < len(terms) else None
    if name not in SOFTCAPS or found is None:
        return found
    return found.reshape((*found.shape[:1 if per_sample else 0], *array.shape)).to(array.dtype)


def draw_seed():
    """Return a seed from torch's generator, as a tensor, so that graphs draw it in each call."""
    return torch.randint(2**62, (), device="cpu")


def autocast(q, k, v, out=None):
    """Cast q, k and v to the type of torch.autocast, as torch's scaled_dot_product_attention does. float64 stays
    float64, and nothing is cast if `out` is given. Learned arrays and masks keep their types, which may differ from
    those of q, k and v."""
    if not torch.is_autocast_enabled("cpu") or out is not None or not all(isinstance(x, torch.Tensor)
                                                                          for x in (q, k, v)):
        return q, k, v
    dtype = torch.get_autocast_dtype("cpu")
    return [x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 and x.device.type == "cpu" else x
            for x in (q, k, v)]


def cast(q, k, v, *options):
    """Run a call of _core.attention under torch.autocast, or if torch's scaled_dot_product_attention has been
    replaced."""
    if inside_context_parallel():
        raise RuntimeError("relpos.attention inside torch's context_parallel would see only this process's part of the "
                           "keys; use "
                           "scaled_dot_product_attention there, or relpos.torch.distributed.context_parallel_attention "
                           "outside")
    return _core.compute(*autocast(q, k, v, options[_AT["out"]]), *options)


def inside_context_parallel():
    """Return true inside torch's context_parallel, where each process has only a part of the keys and would attend only
    to them."""
    now = torch.nn.functional.scaled_dot_product_attention
    return any(now in getattr(module, "_replaced_functions", ()) for name, module in list(sys.modules.items())
               if name.startswith("torch.distributed.tensor.experimental"))


ONLY_TWICE = ("relpos.attention has no third derivatives; call .detach() on its second derivatives, or write the "
              "attention in torch operations")
NO_TANGENT_OF_SECOND = ("relpos.attention has no third derivatives, such as tangents of its second derivatives. Inside "
                        "forward_ad.dual_level, .backward() of a tangent computes them too; call it after the level "
                        "ends")
FORWARD_TWICE = ("relpos.attention has no forward-mode derivatives of forward-mode derivatives (jvp of jvp); use "
                 "torch.func.hessian, or jvp of grad")
ONLY_OUT = ("relpos.attention has no forward-mode or second derivatives of a call with weights or a summary; leave out "
            "return_weights and summary, and pass need_weights=False to modules")
NO_TANGENT = "is a dual tensor, but relpos.attention computes no derivatives with respect to it; use .detach()"


def _refuse_traces():
    """Raise if torch traces the backward pass but not the forward pass, because it would record the gradients as
    constants."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode  # slow to import
    if get_proxy_mode() is not None:
        raise TypeError("torch traces the backward pass of relpos.attention but not its forward pass; trace both")


NOT_LEARNED = "requires a gradient, which relpos.attention does not compute; use .detach()"


def is_dual(x):
    """Return true for a tensor with a tangent."""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options, places, read, q, k, v, *arrays):
        out, weights, lse, summary = _core.compute(q, k, v, *options)
        if options[_Q_OFFSET] is None:
            options[_Q_OFFSET] = 0  # avoids a second warning
        ctx.options, ctx.places, ctx.has_weights = tuple(options), places, weights is not None
        ctx.save_for_backward(q, k, v, out, lse, *arrays, *read)  # `read`: masks and positions
        ctx.set_materialize_grads(False)  # a gradient other than None shows that the loss depends on that result
        if weights is None and summary is None:
            return out, lse
        return out, *(x for x in (lse, weights, *(summary or ())) if x is not None)

    @staticmethod
    def backward(ctx, dout, dlse, *others):
        needs = ctx.needs_input_grad
        given = [x for x in (dout, dlse, *others) if x is not None]
        if not given:
            return (None,) * len(needs)
        if _modes() > 0:
            _refuse_traces()
        q, k, v, out, lse, *arrays = ctx.saved_tensors  # raises if one was modified in place
        if dout is None:
            dout = torch.zeros_like(out)
        places = ctx.places
        wanted = [name for name, need in zip(("q", "k", "v", *[name for _, name in places]), needs[3:]) if need]
        if q.dtype in _HALF:  # `out` is rounded to 16 bits, so compute it again
            out = lse = None
        if torch.is_grad_enabled() or any(is_dual(x) or _is_batched(x) or _is_legacy(x) for x in given):
            from . import _operator
            return None, None, None, *_operator.gradients(dout, q, k, v, ctx.options, places, dlse, others, out, lse,
                                                          needs[3:])
        dweights, dsummary = (others[0], others[1:]) if ctx.has_weights else (None, others)
        *every, terms = _hints.named(_core.gradients, "relpos::attention_backward")(
            dout, q, k, v, ctx.options, dlse, dweights, dsummary or None, out, lse, wanted)
        every += [gradient_of(terms, place, array) for place, array in zip(places, arrays)]
        return None, None, None, *every


def copied(name, x):
    """Copy an array to a tensor. Without the copy, a change of the array before the backward pass would go
    undetected."""
    try:
        return torch.from_numpy(np.array(x))
    except TypeError:
        raise TypeError(f"{name} is of type {type(x).__name__} with elements {getattr(x, 'dtype', '?')}, which torch "
                        f"cannot read; pass {name} as a tensor") from None


def attention(q, k, v, *options):
    """Run _core.attention and record it for the backward pass."""
    if not isinstance(q, _Tensor):
        raise TypeError("q is not a torch tensor, but another input requires a gradient; pass q, k and v as tensors")
    if not isinstance(k, _Tensor):
        k = copied("k", k)
    if not isinstance(v, _Tensor):
        v = copied("v", v)
    options = list(options)
    weights, lse_too, summary = options[_WEIGHTS], options[_LSE], options[_SUMMARY]
    if options[_OUT] is not None:
        raise TypeError("out: torch cannot record a gradient through it; leave it out, or call under torch.no_grad()")
    options[_LSE] = True  # needed by the backward pass
    learned, read = _arrays(options)
    out, lse, *more = _Attention.apply(options, [place[:2] for place in learned], read, q, k, v,
                                       *[array for *_, array in learned])
    if not (weights or lse_too or summary):
        return out
    return out, more.pop(0) if weights else None, lse if lse_too else None, tuple(more) if summary else None
