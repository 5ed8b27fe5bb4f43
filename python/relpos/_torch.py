"""attention for torch tensors that require a gradient; _core comes here by itself.  SPDX-License-Identifier: Apache-2.0"""
import sys

import torch
from torch.autograd import forward_ad

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


def autocast(q, k, v, out=None):
    """q, k and v in the type of torch.autocast, as torch's scaled_dot_product_attention takes them: float64 stays as it is, and so
    does everything where `out` is given. Learned arrays and masks keep their types, since any stands beside any other."""
    if not torch.is_autocast_enabled("cpu") or out is not None or not all(isinstance(x, torch.Tensor) for x in (q, k, v)):
        return q, k, v
    dtype = torch.get_autocast_dtype("cpu")
    return [x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 and x.device.type == "cpu" else x for x in (q, k, v)]


def cast(q, k, v, *options):
    """_core.attention comes here under torch.autocast, and where torch.nn.functional has another scaled_dot_product_attention than
    torch's."""
    _refuse_context_parallel()
    return _core.compute(*autocast(q, k, v, options[_AT["out"]]), *options)


def _refuse_context_parallel():
    """Within torch's context_parallel each process has a part of the keys, and would attend to that alone."""
    now = torch.nn.functional.scaled_dot_product_attention
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed.tensor.experimental") and now in getattr(module, "_replaced_functions", ()):
            raise RuntimeError("relpos.attention within torch's context_parallel would attend to this process's part of the keys alone: "
                               "use scaled_dot_product_attention there")


ONLY_OUT = ("relpos.attention has gradients through out alone, and the loss depends on its weights, lse or summary: use .detach() of "
            "them where the loss reads them; for a loss on the weights, write the attention in torch's own operations")
ONLY_ONCE = ("relpos.attention has no second derivatives: use .detach() of its gradients where they are numbers; for a gradient penalty "
             "or a Hessian, write the attention in torch's own operations")


def refuse_dual(dout):
    """Torch would drop what a function made in Python has no rule for."""
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(dout).tangent is not None:
        raise TypeError("the gradient of relpos.attention's out is a dual tensor, and its backward pass has no forward-mode derivatives")


def _refuse_traces():
    """A trace that begins after the forward pass would hold the gradients as constants."""
    if torch._C._len_torch_dispatch_stack() > 0:
        from torch.fx.experimental.proxy_tensor import get_proxy_mode  # takes long to import
        if get_proxy_mode() is not None:
            raise TypeError("torch traces the backward pass of relpos.attention and has not traced its forward pass: trace both")


ONE_AT_A_TIME = ("relpos.attention makes one gradient at a time: leave out is_grads_batched=True of torch.autograd.grad, or vectorize=True of "
                 "torch.autograd.functional")
NOT_LEARNED = "requires a gradient, and relpos.attention has none of it: use .detach()"


class _Gradients(torch.autograd.Function):
    """Gradients that depend on the inputs of the call, and refuse to say how."""

    @staticmethod
    def forward(ctx, count, *gradients_and_inputs):
        return tuple(x.view_as(x) for x in gradients_and_inputs[:count])

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(ONLY_ONCE)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options, places, q, k, v, *arrays):
        out, weights, lse, summary = _core.compute(q, k, v, *options)
        ctx.options, ctx.places = dict(zip(_COMPUTED, options)), places
        terms = [term for keyword in _TERMS for term in _terms_of(options, keyword)]
        read = [x for x in (*options, *(x for term in terms for x in term.arrays.values())) if isinstance(x, torch.Tensor)]
        ctx.save_for_backward(q, k, v, out, lse, *arrays, *read)  # masks and positions too, which the backward pass reads again
        ctx.set_materialize_grads(False)  # a gradient of what has none is seen
        return out, *(x for x in (lse, weights, *(summary or ())) if x is not None)

    @staticmethod
    def backward(ctx, dout, *others):
        if any(x is not None for x in others):
            raise RuntimeError(ONLY_OUT)
        if dout is None:
            return (None,) * len(ctx.needs_input_grad)
        if torch._C._functorch.is_legacy_batchedtensor(dout) or torch._C._functorch.is_batchedtensor(dout):
            raise RuntimeError(ONE_AT_A_TIME)
        refuse_dual(dout)
        _refuse_traces()
        q, k, v, out, lse, *arrays = ctx.saved_tensors  # torch says here if one was changed in place
        inputs = q, k, v, dout, *arrays[:len(ctx.places)]
        names = ["q", "k", "v", *(name for _, name in ctx.places)]
        wanted = {name for name, needs in zip(names, ctx.needs_input_grad[2:]) if needs}
        if q.dtype in (torch.float16, torch.bfloat16):  # rounded to half its bits: computed again
            out = lse = None
        dq, dk, dv, terms = _core.gradients(dout, q, k, v, out=out, lse=lse, wanted=wanted, **ctx.options)
        every = [dq, dk, dv, *(terms[term][name] for term, name in ctx.places)]
        if torch.is_grad_enabled():  # create_graph
            made = [x for x in every if x is not None]
            final = iter(_Gradients.apply(len(made), *made, *inputs))
            every = [x if x is None else next(final) for x in every]
        return None, None, *every


def attention(q, k, v, *options):
    if not isinstance(q, torch.Tensor):
        raise TypeError("q is no torch tensor, and an array of the call requires a gradient from torch: give q, k and v as tensors")
    options = list(options)
    asked = [options[_AT[name]] for name in ("return_weights", "return_lse", "summary")]
    if options[_AT["out"]] is not None:
        raise TypeError("out: torch records no gradient through it: leave it away, or call under torch.no_grad()")
    options[_AT["return_lse"]] = True  # the backward pass reads it
    learned = _learned(options)
    for term in (term for keyword in _TERMS for term in _terms_of(options, keyword)):
        for name, array in term.arrays.items():
            if name not in term.learned and isinstance(array, torch.Tensor) and array.requires_grad:
                raise TypeError(f"{name} {NOT_LEARNED}")
    out, lse, *more = _Attention.apply(options, [place[:2] for place in learned], q, k, v, *(array for *_, array in learned))
    if not any(asked):
        return out
    return out, more.pop(0) if asked[0] else None, lse if asked[1] else None, tuple(more) if asked[2] else None
