"""The torch operators of relpos.attention and their derivatives. Each operator runs one function of _core:

    attention            out, lse                                         vjp: backward    jvp: jvp
    attention_backward   gradients of <dout, out> + <dlse, lse>           vjp: hvp, jvp    jvp: hvp + backward
    attention_jvp        tangents out', lse', for tangents of the inputs  vjp: hvp, backward
    attention_hvp        gradients of <dout, out'> + <dlse, lse'>         by the tangents: hvp

Since the Hessian is symmetric, these give every second derivative but the forward-mode derivative of a forward-mode
derivative, which raises, as third derivatives do.

SPDX-License-Identifier: Apache-2.0"""
import contextlib
import functools
from collections import namedtuple

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from . import _core, _torch
from ._encoding import SOFTCAPS, count_terms, learned_of, options_of, places_of, ranks_of, requested

# Each operator has a kernel for autograd, in place of that of torch.library.custom_op, whose operators drop tangents of
# forward-mode derivatives without an error.
LIBRARY = torch.library.Library("relpos", "FRAGMENT")
_TYPES = {
    "options": "str", "q_offset": "SymInt", "seed": "SymInt", "arrays": "Tensor[]", "tangents": "Tensor?[]",
    "others": "Tensor?[]", "wanted": "bool[]", "dlse": "Tensor?", "out": "Tensor?", "lse": "Tensor?",
}
_DEFAULTS = {"per_sample": "bool per_sample=False"}


class _Call:
    """The arguments of an operator. `inputs` and `arrays` are what the derivatives are taken of; `problem` has the
    arguments that all operators share."""

    @property
    def inputs(self):
        return [self.q, self.k, self.v, *self.arrays]

    @property
    def problem(self):
        return self.q, self.k, self.v, self.arrays, self.options, self.q_offset, self.seed

    def like(self, **values):
        """Return a call whose arguments are None, except for these."""
        return type(self)(**dict.fromkeys(self._fields) | values)

    def of_inputs(self, values, **others):
        """Return a call whose inputs are these values."""
        q, k, v, *arrays = values
        return self.like(q=q, k=k, v=v, arrays=arrays, **others)


class Attention(_Call, namedtuple("Attention", "q k v arrays options q_offset seed")):
    """Return out, lse and, if the options request them, weights and the three arrays of a summary."""


class Backward(_Call, namedtuple("Backward", "dout q k v dlse out lse arrays options q_offset seed wanted others "
                                 "per_sample", defaults=[False])):
    """Return the wanted gradients of the inputs. `others` are the incoming gradients of weights and summary, if the
    options request them. With per_sample, gradients of arrays are those of each batch entry."""


class Jvp(_Call, namedtuple("Jvp", "q k v arrays options q_offset seed tangents")):
    """Return the tangents of out and lse. `tangents` has one of each input, or None for 0. Those of arrays may have one
    more, leading axis for the tangents of each batch entry."""


class Hvp(_Call, namedtuple("Hvp", "dout q k v dlse arrays options q_offset seed tangents wanted per_sample",
                            defaults=[False])):
    """Return the wanted gradients of <dout, out'> + <dlse, lse'>, where out' and lse' are the results of Jvp."""


NAMES = {Attention: "attention", Backward: "attention_backward", Jvp: "attention_jvp", Hvp: "attention_hvp"}
for _kind, _name in NAMES.items():
    _inputs = ", ".join(_DEFAULTS.get(x, f"{_TYPES.get(x, 'Tensor')} {x}") for x in _kind._fields)
    LIBRARY.define(f"{_name}({_inputs}) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
_OPERATORS = {kind: getattr(torch.ops.relpos, name).default for kind, name in NAMES.items()}


def run(kind, *values):
    """Call an operator."""
    return _OPERATORS[kind](*values)


# ---- nested lists of tensors

def leaves(values, found):
    """Append the tensors to `found`. Return the values with _TENSOR in place of each tensor."""
    if isinstance(values, Tensor):
        found.append(values)
        return _TENSOR
    return [leaves(x, found) for x in values] if isinstance(values, (list, tuple)) else values


def _filled(form, following):
    """Return a form of _leaves with the following values in place of the tensors."""
    if form is _TENSOR:
        return next(following)
    return [_filled(x, following) for x in form] if isinstance(form, list) else form


def _of_tensors(form, values):
    """Yield the values at the places of the tensors; None stands for a list of them."""
    if form is _TENSOR:
        yield values
    elif isinstance(form, list):
        for n, x in enumerate(form):
            yield from _of_tensors(x, None if values is None else values[n])


_TENSOR = object()


def map_tensors(function, values, axes):
    """Apply function(tensor, axis) to all tensors of nested lists. An axis that is None may stand for a list."""
    if isinstance(values, Tensor):
        return function(values, axes)
    if isinstance(values, (list, tuple)):
        return [map_tensors(function, x, None if axes is None else axes[n]) for n, x in enumerate(values)]
    return values


# ---- kernels

def _plain(x):
    """View a tensor subclass as a Tensor, since _core would send a subclass back to _operator.py."""
    return x if x is None or type(x) is Tensor else x.as_subclass(Tensor)


def _kernel(kind):
    """Register a function of a call as the kernel of an operator. Its tensors are plain, and `given` are the options of
    _core.attention."""
    def register(function):
        @torch.library.impl(LIBRARY, NAMES[kind], "CompositeExplicitAutograd")
        def kernel(*values):
            call = kind(*map_tensors(lambda x, _: _plain(x), values, None))
            return function(call, options_of(call.options, call.arrays, call.q_offset, call.seed))
        return kernel
    return register


@_kernel(Attention)
def _(call, given):
    with torch.no_grad():
        out, weights, lse, summary = _core.compute(call.q, call.k, call.v, *(given | {"return_lse": True}).values())
    return [x for x in (out, lse, weights, *(summary or ())) if x is not None]


def _names(call):
    """Return {index of an input: its name} for the inputs that have gradients."""
    return dict(zip(range(3), "qkv")) | {3 + n: name for n, (_, name) in learned_of(call.options).items()}


def _wanted(call):
    return [name for n, name in _names(call).items() if call.wanted[n]]


def _gradients(call, q, k, v, terms):
    """Return the wanted gradients of a result of _core, in the order of the inputs."""
    of_arrays = {n: _torch.gradient_of(terms, place, call.arrays[n], call.per_sample)
                 for n, place in learned_of(call.options).items()}
    every = [q, k, v, *(of_arrays.get(n) for n in range(len(call.arrays)))]
    return [gradient for gradient, is_wanted in zip(every, call.wanted) if is_wanted]


@_kernel(Backward)
def _(call, given):
    # A compiled graph passes zeros for results that the loss does not use; they are omitted, since they would only cost
    # time.
    others = tuple(x if x is not None and x.any() else None for x in call.others)
    dweights, dsummary = (others[0], others[1:]) if "return_weights" in requested(call.options) else (None, others)
    if given["q_offset"] is None:
        given["q_offset"] = 0  # avoids a second warning
    return _gradients(call, *_core.gradients(call.dout, call.q, call.k, call.v, tuple(given.values()), call.dlse,
                                             dweights, dsummary or None, call.out, call.lse, _wanted(call),
                                             call.per_sample))


def _derive(call, given, *others):
    """Return the results of _core.derive, with the tangents of the call."""
    q, k, v, *of_arrays = call.tangents
    learned = learned_of(call.options)
    terms = [{} for _ in range(max(count_terms(call.options), *(term + 1 for term, _ in learned.values()), 0))]
    for n, (term, name) in learned.items():
        t = of_arrays[n]
        if name in SOFTCAPS and t is not None:  # numbers, or one for each batch entry
            t = t.reshape(t.shape[:t.dim() - call.arrays[n].dim()])
        terms[term][name] = t
    if given["q_offset"] is None:
        given["q_offset"] = 0
    return _core.derive(call.q, call.k, call.v, (q, k, v, tuple(terms)), tuple(given.values()), *others)


@_kernel(Jvp)
def _(call, given):
    return list(_derive(call, given, None, None, None))


@_kernel(Hvp)
def _(call, given):
    return _gradients(call, *_derive(call, given, call.dout, call.dlse, _wanted(call), call.per_sample)[:4])


# ---- shapes of results

def _fake(kind):
    def register(function):
        torch.library.register_fake(f"relpos::{NAMES[kind]}", lambda *values: function(kind(*values)), lib=LIBRARY)
        return function
    return register


@_fake(Jvp)
def _of_rows(call):
    q = call.q
    return [q.new_empty((*q.shape[:-1], call.v.shape[-1])),
            q.new_empty(q.shape[:-1], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)]


@_fake(Attention)
def _(call):
    asked, found = requested(call.options), _of_rows(call)
    rows, lk, wide = call.q.shape[:-1], call.k.shape[-2], found[1].dtype
    if "return_weights" in asked:
        found.append(call.q.new_empty((*rows, lk), dtype=wide))
    if "summary" in asked:
        found += [call.q.new_empty((*rows[:-1], n), dtype=wide) for n in (rows[-1] + lk - 1, lk, rows[-1])]
    return found


@_fake(Backward)
@_fake(Hvp)
def _(call):
    shapes = [x.shape for x in call.inputs]
    if call.per_sample:
        batch, ranks = call.q.shape[0] if call.q.dim() == 4 else 1, ranks_of(call.options)
        shapes[3:] = [(batch, *(x.shape[1:] if x.dim() == ranks.get(place) else x.shape))
                      for place, x in enumerate(call.arrays)]
    return [x.new_empty(shape) for x, shape, is_wanted in zip(call.inputs, shapes, call.wanted) if is_wanted]


# ---- autograd

def _of_sums(call, given):
    """Return dout and dlse, the gradients of out and lse, with zeros for a dout that is None."""
    dout, dlse = given
    return call.q.new_zeros((*call.q.shape[:-1], call.v.shape[-1])) if dout is None else dout, dlse


def _spread(found, wanted):
    """Return the results at the places that are wanted, and None at the others."""
    found = iter(found)
    return [next(found) if x else None for x in wanted]


def _learned_only(call, tangents):
    """Raise for a tangent of an array that has no derivatives."""
    for place, (name, term, _) in places_of(call.options).items():
        if term is None and tangents[3 + place] is not None:
            raise TypeError(f"{name} {_torch.NO_TANGENT}")
    return tangents


def _wants(needs):
    return [bool(x) for x in needs.inputs]


def _attention_vjp(call, needs, given, results):
    dout, dlse, *others = given
    half = call.q.dtype in (torch.float16, torch.bfloat16)  # `out` is rounded to 16 bits, so compute it again
    dout, dlse = _of_sums(call, (dout, dlse))
    out, lse = (None, None) if half else results
    q, k, v, *problem = call.problem
    wanted = _wants(needs)
    return call.of_inputs(_spread(run(Backward, dout, q, k, v, dlse, out, lse, *problem, wanted, others), wanted))


def _attention_jvp(call, t):
    if requested(call.options) & {"return_weights", "summary"}:
        raise RuntimeError(_torch.ONLY_OUT)
    return run(Jvp, *call.problem, _learned_only(call, t.inputs))


def _backward_vjp(call, needs, given, _):
    if any(x is not None for x in call.others):
        raise RuntimeError(_torch.ONLY_OUT)
    tangents, wanted = _spread(given, call.wanted), _wants(needs)
    of_sums = run(Jvp, *call.problem, tangents) if needs.dout or needs.dlse else (None, None)
    of_inputs = _hvp(call, call.dout, call.dlse, tangents, wanted) if any(wanted) else ()
    return call.of_inputs(_spread(of_inputs, wanted), dout=of_sums[0], dlse=of_sums[1])


def _backward_jvp(call, t):
    if any(x is not None for x in (*call.others, *t.others)):
        raise RuntimeError(_torch.ONLY_OUT)
    found = []
    if t.dout is not None or t.dlse is not None:
        found.append(_backward(call, *_of_sums(call, (t.dout, t.dlse)), call.wanted, call.per_sample, call.out,
                               call.lse))
    if any(x is not None for x in t.inputs):
        found.append(_hvp(call, call.dout, call.dlse, _learned_only(call, t.inputs), call.wanted, call.per_sample))
    return _sums(found, call)


def _jvp_vjp(call, needs, given, _):
    wanted = _wants(needs)
    dout, dlse = _of_sums(call, given)
    found = _hvp(call, dout, dlse, call.tangents, wanted) if any(wanted) else ()
    return call.of_inputs(_spread(found, wanted), tangents=_of_tangents(_backward, call, needs, dout, dlse))


def _jvp_jvp(call, t):
    if any(x is not None for x in t.inputs):
        raise RuntimeError(_torch.FORWARD_TWICE)
    return run(Jvp, *call.problem, t.tangents)


def _hvp_vjp(call, needs, given, _):  # by tangents; those of the other inputs raise in _Constant
    by = functools.partial(_hvp, tangents=_spread(given, call.wanted))
    return call.like(arrays=[None] * len(call.arrays),
                     tangents=_of_tangents(by, call, needs, call.dout, call.dlse))


def _hvp_jvp(call, t):
    if any(x is not None for x in t.inputs):
        raise RuntimeError(_torch.NO_TANGENT_OF_SECOND)
    found = []
    if t.dout is not None or t.dlse is not None:
        found.append(_hvp(call, *_of_sums(call, (t.dout, t.dlse)), call.tangents, call.wanted, call.per_sample))
    if any(x is not None for x in t.tangents):
        found.append(_hvp(call, call.dout, call.dlse, t.tangents, call.wanted, call.per_sample))
    return _sums(found, call)


def _sums(found, call):
    """Return the sums of lists of tangents of the wanted gradients."""
    return [sum(x[1:], x[0]) for x in zip(*found)] if found else [None] * sum(call.wanted)


def _of_tangents(derive, call, needs, dout, dlse):
    """Return the gradients of tangents, which are those of the inputs, from derive(call, dout, dlse, wanted=,
    per_sample=)."""
    wanted = [bool(x) for x in needs.tangents]
    # arrays have tangents of each batch entry, or one that all share
    own = [x is not None and x.shape != of.shape for x, of in zip(call.tangents, call.inputs)]
    found = derive(call, dout, dlse, wanted=wanted, per_sample=any(own)) if any(wanted) else ()
    return [x if x is None or is_own or not any(own) or n < 3 else x.sum(0).reshape(call.inputs[n].shape)
            for n, (x, is_own) in enumerate(zip(_spread(found, wanted), own))]


def _backward(call, dout, dlse, wanted, per_sample=False, out=None, lse=None):
    q, k, v, *problem = call.problem
    return run(Backward, dout, q, k, v, dlse, out, lse, *problem, wanted, [], per_sample)


def _hvp(call, dout, dlse, tangents, wanted, per_sample=False):
    q, k, v, *problem = call.problem
    return run(Hvp, dout, q, k, v, dlse, *problem, tangents, wanted, per_sample)


# Function.apply turns both modes of differentiation off, for outer transforms of torch.func too, so turn them on; and
# run the operator below the kernel that calls Function.apply.
_BELOW = torch.enable_grad, lambda: forward_ad._set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd


def _below(function, *values):
    with contextlib.ExitStack() as below:
        for guard in _BELOW:
            below.enter_context(guard())
        return function(*values)


class _Constant(torch.autograd.function._SingleLevelFunction):
    """The identity, whose gradient raises. autograd calls `backward` only if this gradient is asked for, while the
    needs_input_grad of the operator is true for every input that requires a gradient."""

    @staticmethod
    def forward(x):
        return _below(x.view_as, x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, _):
        raise RuntimeError(_torch.ONLY_TWICE)

    @staticmethod
    def jvp(ctx, tangent):
        return tangent.view_as(tangent)


def _constant(x):
    return _Constant.apply(x) if x.requires_grad else x


def _differentiable(kind, vjp, jvp):
    """Register the kernel of an operator for autograd. `vjp` takes a call, a call of the booleans that tell which
    gradients are needed, the gradients of the results, and the results (out, lse); it returns a call of gradients.
    `jvp` takes a call and a call of tangents, and returns the tangents of the results."""
    def forward(form, *tensors):
        return tuple(_below(run, kind, *_filled(form, iter(tensors))))

    def setup_context(ctx, inputs, output):
        ctx.form, *tensors = inputs
        ctx.save_for_backward(*tensors, *(output[:2] if kind is Attention else ()))
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)  # a gradient other than None shows that the loss depends on that result

    def backward(ctx, *given):
        saved = iter(ctx.saved_tensors)
        call = kind(*_filled(ctx.form, saved))
        needs = kind(*_filled(ctx.form, iter(ctx.needs_input_grad[1:])))
        return None, *_of_tensors(ctx.form, vjp(call, needs, given, tuple(saved)))

    def forward_mode(ctx, _, *tangents):
        return tuple(jvp(kind(*_filled(ctx.form, iter(ctx.saved_tensors))), kind(*_filled(ctx.form, iter(tangents)))))

    # The dispatcher separates the levels of torch.func before it calls this kernel, so the Function is for one level.
    function = type(kind.__name__, (torch.autograd.function._SingleLevelFunction,),
                    {"forward": staticmethod(forward), "setup_context": staticmethod(setup_context),
                     "backward": staticmethod(backward), "jvp": staticmethod(forward_mode)})

    @torch.library.impl(LIBRARY, NAMES[kind], "Autograd")
    def kernel(*values):
        call = kind(*values)
        if torch.is_grad_enabled():
            for place, (name, term, _) in places_of(call.options).items():
                if term is None and call.arrays[place].requires_grad:
                    raise TypeError(f"{name} {_torch.NOT_LEARNED}")
        tensors = []
        form = leaves(values, tensors)
        if not (forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()
                or torch.is_grad_enabled() and any(x.requires_grad for x in tensors)):
            with torch._C._AutoDispatchBelowAutograd():  # as Function.apply, but faster
                return run(kind, *values)
        with enable_single_level_autograd_function():
            if kind is Hvp:
                before = len(tensors) - sum(x is not None for x in call.tangents)
                tensors[:before] = map(_constant, tensors[:before])
            return list(function.apply(form, *tensors))


_differentiable(Attention, _attention_vjp, _attention_jvp)
_differentiable(Backward, _backward_vjp, _backward_jvp)
_differentiable(Jvp, _jvp_vjp, _jvp_jvp)
_differentiable(Hvp, _hvp_vjp, _hvp_jvp)


# ---- numbers that have no derivatives

# The dispatcher calls the kernel for autograd once for each level of torch.func, from the innermost one to the
# outermost one, with the tensor of this level.
LIBRARY.define("wants_gradient(Tensor x) -> bool")
torch.library.impl(LIBRARY, "wants_gradient", "CompositeExplicitAutograd")(lambda _: False)
torch.library.register_vmap("relpos::wants_gradient", lambda *values: (_wants_below(values[-1]), None), lib=LIBRARY)


def _wants_below(x):
    return torch.ops.relpos.wants_gradient(x)


@torch.library.impl(LIBRARY, "wants_gradient", "Autograd")
def _(x):
    if torch.is_grad_enabled() and x.requires_grad or _torch.is_dual(x):
        return True
    with torch._C._AutoDispatchBelowAutograd():
        return _wants_below(x)
