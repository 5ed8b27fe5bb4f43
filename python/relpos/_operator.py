"""relpos.attention as a torch operator, for calls traced by torch.compile, torch.export, torch.jit.trace or fake
tensors.

SPDX-License-Identifier: Apache-2.0"""
import functools
import importlib.util
import itertools
import math
import sys
import types
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from . import _core, _terms, _torch, _versions

# The oldest version that the tests run with (tools/python.sh --oldest). Some before it do not trace the terms.
OLDEST = "2.12"
_versions.need("PyTorch", torch.__version__, OLDEST,
               "relpos.torch and traced calls need it; relpos.attention on tensors works without it")



class _After:
    """A module finder that imports the module `name` and then calls `call` with it."""

    def __init__(self, name, call):
        self.name, self.call = name, call

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self.call(module)

        spec.loader.exec_module = exec_module
        return spec


def _after(name, call):
    """Call `call` with the module `name`, now if it is loaded, otherwise once someone imports it. Importing it here
    would take time."""
    if name in sys.modules:
        call(sys.modules[name])
    else:
        sys.meta_path.insert(0, _After(name, call))


_AT = {name: n for n, name in enumerate(_core.NAMES)}
_TERMS = ("bias", "rope", "relkey", "relval", "sink")
_VALUES = {"None": None, "True": True, "False": False}
_MASKS = {
    name: (numbers, array)
    for name, numbers, array in iter(map(_core.mask_info, itertools.count(1)).__next__, None)
}
_NUMBERS = [name for name, (n, _) in _MASKS.items() if n]
_ARRAYS = [name for name, (_, array) in _MASKS.items() if array]
_FLAGS = ("softcap_after", "return_weights", "return_lse", "summary",
          *(name for name, kind in _MASKS.items() if kind == (0, False)))
_REALS = ("scale", "softcap", "dropout")
_AS_INTEGER = "given"

# The schema of an operator supports tensors, integers and strings, but not terms. So the options of a call are encoded
# as a string with one line "name|value|places" for each option. The places are indices into the operator's list of
# tensors, or "-" for an absent array of a term. q_offset and seed change from call to call, so they are passed as
# integers; in the string they would cause a new trace each time.


@functools.lru_cache(256)
def _read(text):
    """Parse encoded options into a list of (name, value, places)."""
    found = []
    for line in text.splitlines():
        name, value, places = line.split("|")
        found.append((name, value, [None if n == "-" else int(n) for n in places.split(",") if n]))
    return found


def _value(name, text):
    """Decode the value of an option."""
    if name in _NUMBERS:
        found = [int(x) if x else None for x in text.split(",")]
        return found[0] if _MASKS[name][0] == 1 else tuple(found)
    return _VALUES[text] if text in _VALUES else _terms._value(text)


def _is_number(value):
    return value.dtype != torch.bool if isinstance(value, Tensor) else not isinstance(value, (bool, np.bool_))


def _word(name, value):
    """Encode the value of an option, which may be a NumPy number, for _value to decode."""
    if isinstance(value, str) and name == "precision":
        return value
    if _terms.wants_gradient(value):
        raise TypeError(f"{name} {_torch.NOT_LEARNED}")
    if name in _FLAGS and isinstance(value, (str, bytes, list, tuple, dict)):
        raise TypeError(f"{name} is of type {type(value).__name__}: expected True or False")
    flag = name in _FLAGS and not (name == "softcap_after" and _is_number(value))
    kind = bool if flag else float if name in (*_REALS, "softcap_after") else int
    try:
        return f"{kind(value)!r}"
    except (TypeError, ValueError):
        raise TypeError(f"{name} is of type {type(value).__name__}: expected a number") from None


def _options(text, arrays, q_offset, seed):
    """Decode a call into the options of _core.attention, in order."""
    options = dict.fromkeys(_core.NAMES)
    options |= {"seed": seed % 2**64, "precision": "highest"}
    for name, value, places in _read(text):
        if value == _AS_INTEGER:
            options[name] = q_offset
            continue
        given = [None if n is None else arrays[n] for n in places]
        if name in _TERMS:
            options[name] = (*(options[name] or ()), _terms._load(value, tuple(given)))
        else:
            options[name] = given[0] if given else _value(name, value)
    return options


def _plain(x):
    """View a tensor subclass as a Tensor, since _core would send a subclass back to this module."""
    return x if x is None or type(x) is Tensor else x.as_subclass(Tensor)


# Each operator has a kernel for autograd, in place of that of torch.library.custom_op, whose operators drop tangents of
# forward-mode derivatives without an error.
_LIBRARY = torch.library.Library("relpos", "FRAGMENT")
_INPUTS = "Tensor[] arrays, str options, SymInt q_offset, SymInt seed"
_LIBRARY.define(f"attention(Tensor q, Tensor k, Tensor v, {_INPUTS}) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.define(
    f"attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor? dlse, Tensor? out, Tensor? lse, {_INPUTS}, "
    "bool[] wanted, Tensor?[] others) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag, ))
_FORWARD, _BACKWARD = torch.ops.relpos.attention.default, torch.ops.relpos.attention_backward.default


@torch.library.impl(_LIBRARY, "attention", "CompositeExplicitAutograd")
def _(q, k, v, arrays, options, q_offset, seed):
    q, k, v, *arrays = map(_plain, (q, k, v, *arrays))
    given = _options(options, arrays, q_offset, seed) | {"return_lse": True}
    with torch.no_grad():
        out, weights, lse, summary = _core.compute(q, k, v, *given.values())
    return [x for x in (out, lse, weights, *(summary or ())) if x is not None]


@torch.library.register_vmap("relpos::attention", lib=_LIBRARY)
def _(info, in_dims, q, k, v, arrays, options, q_offset, seed):
    """Run a call under torch.vmap. If q, k and v are (H, L, D) and only they have the mapped axis, use it as the batch
    axis of one call; otherwise make one call per index of the mapped axis."""
    if any(name == "dropout" and (places or _value(name, value)) for name, value, places in _read(options)):
        raise RuntimeError(_torch.NO_DROPOUT)
    *of_qkv, of_arrays = in_dims[:4]
    of_arrays = of_arrays or [None] * len(arrays)
    if None not in of_qkv and q.dim() == 4 and all(x is None for x in of_arrays):
        found = _FORWARD(*(x.movedim(at, 0) for x, at in zip((q, k, v), of_qkv)), arrays, options, q_offset, seed)
    else:
        def at(n, x, axis):
            return x if axis is None else x.select(axis, n)

        calls = [_FORWARD(*(at(n, x, axis) for x, axis in zip((q, k, v), of_qkv)),
                          [at(n, x, axis) for x, axis in zip(arrays, of_arrays)], options, q_offset, seed)
                 for n in range(info.batch_size)]
        found = [torch.stack(x) for x in zip(*calls)]
    return found, [0] * len(found)


def _requested(text):
    """Return the names of the options that are True, such as "return_weights" and "summary"."""
    return {name for name, value, _ in _read(text) if value == "True"}


@torch.library.register_fake("relpos::attention", lib=_LIBRARY)
def _(q, k, v, arrays, options, q_offset, seed):
    requested = _requested(options)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    rows, lk = q.shape[:-1], k.shape[-2]
    found = [q.new_empty((*rows, v.shape[-1])), q.new_empty(rows, dtype=wide)]
    if "return_weights" in requested:
        found.append(q.new_empty((*rows, lk), dtype=wide))
    if "summary" in requested:
        found += [q.new_empty((*rows[:-1], n), dtype=wide) for n in (rows[-1] + lk - 1, lk, rows[-1])]
    return found


@torch.library.impl(_LIBRARY, "attention_backward", "CompositeExplicitAutograd")
def _(dout, q, k, v, dlse, out, lse, arrays, options, q_offset, seed, wanted, others):
    """Return the wanted gradients of q, k, v and arrays. `others` are the incoming gradients of weights and summary, if
    the options request them. A compiled graph passes zeros for results that the loss does not use; they are omitted,
    since they would only cost time."""
    dout, q, k, v, dlse, out, lse, *arrays = map(_plain, (dout, q, k, v, dlse, out, lse, *arrays))
    others = tuple(_plain(x) if x is not None and x.any() else None for x in others)
    dweights, dsummary = (others[0], others[1:]) if "return_weights" in _requested(options) else (None, others)
    given = _options(options, arrays, q_offset, seed)
    learned = _learned(options)
    names = dict(zip(range(3), "qkv")) | {3 + n: name for n, (_, name) in learned.items()}
    if given["q_offset"] is None:
        given["q_offset"] = 0  # avoids a second warning
    *inner, terms = _core.gradients(dout, q, k, v, tuple(given.values()), dlse, dweights, dsummary or None, out, lse,
                                    [name for n, name in names.items() if wanted[n]])
    of_arrays = {n: terms[term][name] for n, (term, name) in learned.items()}
    every = [*inner, *(of_arrays.get(n) for n in range(len(arrays)))]
    return [gradient for gradient, is_wanted in zip(every, wanted) if is_wanted]


@torch.library.register_fake("relpos::attention_backward", lib=_LIBRARY)
def _(dout, q, k, v, dlse, out, lse, arrays, options, q_offset, seed, wanted, others):
    return [x.new_empty(x.shape) for x, is_wanted in zip((q, k, v, *arrays), wanted) if is_wanted]


@functools.lru_cache(256)
def _places(text):
    """Return {place: (argument, term, name)} of each array, such as ("T5(table)", 0, "table"). `term` is the number of
    the term, in the order in which _core reads them. term and name are None for arrays that have no gradient."""
    lines = _read(text)
    found = {place: (name, None, None) for name, _, places in lines if name not in _TERMS for place in places}
    of_terms = sorted((line for line in lines if line[0] in _TERMS), key=lambda line: _TERMS.index(line[0]))
    for count, (_, value, places) in enumerate(of_terms):
        kind = _terms.TERMS[value.partition(",")[0]]
        for place, array in zip(places, _terms._BY_CLASS[kind]["arrays"]):
            if place is not None:
                name, learned = array["name"], array["use"] == "learned"
                found[place] = f"{kind.__name__}({name})", count if learned else None, name if learned else None
    return found


def _learned(text):
    """Return {place: (term, name)} of each learned array."""
    return {place: (term, name) for place, (_, term, name) in _places(text).items() if name is not None}


def _arguments(text):
    """Return the names of q, k, v and the operator's arrays, in order."""
    return ["q", "k", "v", *(name for _, (name, *_) in sorted(_places(text).items()))]


class _Below:
    """Run an operator below autograd. Function.apply turns gradients off, for outer transforms of torch.func too, so
    turn them on."""

    def __enter__(self):
        self.entered = [
            torch.enable_grad(),
            forward_ad._set_fwd_grad_enabled(True),
            torch._C._AutoDispatchBelowAutograd()
        ]
        for x in self.entered:
            x.__enter__()

    def __exit__(self, *_):
        for x in reversed(self.entered):
            x.__exit__(None, None, None)


# The dispatcher separates the levels of torch.func before it calls a kernel for autograd, so each Function is for a
# single level.
class _Forward(torch.autograd.function._SingleLevelFunction):
    @staticmethod
    def forward(rest, q, k, v, *arrays):
        with _Below():
            return tuple(_FORWARD(q, k, v, arrays, *rest))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.rest, q, k, v, *arrays = inputs
        ctx.save_for_backward(q, k, v, *output[:2], *arrays)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, dout, dlse, *others):
        q, k, v, out, lse, *arrays = ctx.saved_tensors
        for x in (dout, dlse, *others):
            if x is not None:
                _torch.refuse_dual(x)
        half = q.dtype in (torch.float16, torch.bfloat16)  # `out` is rounded to 16 bits, so compute it again
        wanted = list(ctx.needs_input_grad[1:])
        found = iter(
            _BACKWARD(
                torch.zeros_like(out) if dout is None else dout, q, k, v, dlse, None if half else out,
                None if half else lse, arrays, *ctx.rest, wanted, list(others)))
        return None, *(next(found) if x else None for x in wanted)

    @staticmethod
    def jvp(ctx, _, *tangents):
        names = _arguments(ctx.rest[0])
        raise TypeError(_torch.is_dual(next(name for name, x in zip(names, tangents) if x is not None)))


class _Gradients(torch.autograd.function._SingleLevelFunction):
    @staticmethod
    def forward(given, rest, *tensors):
        following = iter(tensors)
        *every, arrays = [
            [next(following) for _ in range(x)] if type(x) is int else next(following) if x else None for x in given]
        with _Below():
            return tuple(_BACKWARD(*every[:7], arrays, *rest, every[7:]))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(_torch.ONLY_ONCE)

    @staticmethod
    def jvp(ctx, *_):
        raise TypeError(_torch.is_dual("an input of the backward pass"))


@torch.library.impl(_LIBRARY, "attention", "Autograd")
def _(q, k, v, arrays, options, q_offset, seed):
    if torch.is_grad_enabled():
        for name, x in zip(_arguments(options), (q, k, v, *arrays)):
            if x.requires_grad and torch._C._are_functorch_transforms_active():
                raise TypeError(_torch.is_of_func(name))
        for place, (name, term, _) in _places(options).items():
            if term is None and arrays[place].requires_grad:
                raise TypeError(f"{name} {_torch.NOT_LEARNED}")
    with enable_single_level_autograd_function():
        return list(_Forward.apply((options, q_offset, seed), q, k, v, *arrays))


@torch.library.impl(_LIBRARY, "attention_backward", "Autograd")
def _(dout, q, k, v, dlse, out, lse, arrays, options, q_offset, seed, wanted, others):
    every = (dout, q, k, v, dlse, out, lse, *others)
    given = *(x is not None for x in every), len(arrays)
    with enable_single_level_autograd_function():
        return list(
            _Gradients.apply(given, (options, q_offset, seed, wanted), *(x for x in every if x is not None), *arrays))


def _flops(q, k, v, *_, **__):
    """Count operations as torch does for scaled_dot_product_attention: count masked pairs too, and ignore the products
    of terms."""
    return 2 * math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


def _backward_flops(_, q, k, v, *__, **___):
    return 2 * math.prod(q[:-1]) * k[-2] * (3 * q[-1] + 2 * v[-1])


def _register_flops(counter):
    counter.register_flop_formula(torch.ops.relpos.attention)(_flops)
    counter.register_flop_formula(torch.ops.relpos.attention_backward)(_backward_flops)


_after("torch.utils.flop_counter", _register_flops)


class TracedTerm(NamedTuple):
    """A term created while torch.compile traces: its text and arrays. When a compiled function returns one, torch calls
    _make, which creates the real term."""

    text: str
    arrays: tuple
    # stops torch.compile from evaluating a sum of constant terms while it traces; it could not return the result
    not_constant: object
    sized: tuple | None = None  # the shape and the q_offset of relpos.torch's PositionBias


_NOT_CONSTANT = types.SimpleNamespace()


def _real(cls, fields):
    text, arrays, _, sized = fields
    term = _terms._load(text, arrays)
    return term if sized is None else cls._sized(term, *sized)


TracedTerm._make = classmethod(_real)
TracedTerm.shape = property(lambda self: self.sized[0])
TracedTerm._text, TracedTerm._arrays = property(lambda self: self.text), property(lambda self: self.arrays)
TracedTerm.__add__, TracedTerm.__radd__ = _terms.Term.__add__, _terms.Term.__radd__


def terms_of(value):
    """Return the terms of one keyword as a tuple. `value` is a term, a sum or a TracedTerm."""
    return value if isinstance(value, tuple) and not isinstance(value, TracedTerm) else (value,)


def _create(cls, text, arrays):
    return TracedTerm(text, arrays, _NOT_CONSTANT)


def _exports_onnx():
    return torch.onnx.is_in_onnx_export()


# Without this attribute, torch.compile treats is_in_onnx_export as the constant False.
# torch.compiler.assume_constant_result sets the attribute too, but imports torch._dynamo.
_exports_onnx._dynamo_marked_constant = True


_NOT_NESTED = (*_ARRAYS, "q_offset", "out", "return_weights", "return_lse", "summary")


def _nested(q, k, v, *options):
    """Compute attention of nested tensors (B, H, ragged L, D) as one packed sequence with a segment for each batch
    entry."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not x.is_nested or x.layout != torch.jagged or x.dim() != 4 or x._ragged_idx != 2 or x.lengths() is not None:
            raise TypeError(
                f"{name}: if one of q, k and v is nested, all must be (B, H, ragged L, D) of layout torch.jagged; use "
                "nested_tensor([(L, H, D), ...], layout=torch.jagged).transpose(1, 2)")
        if x.shape[2] != q.shape[2] and not torch.equal(x.offsets(), q.offsets()):
            raise ValueError(f"{name}: its lengths differ from those of q; nested tensors support only self-attention")
    given = list(options)
    for name in _NOT_NESTED:
        if given[_AT[name]] is not None and given[_AT[name]] is not False:
            raise TypeError(f"{name} is not supported with nested tensors; use causal, window or terms")
    offsets = q.offsets()
    rows = [x.transpose(1, 2).values().transpose(0, 1) for x in (q, k, v)]
    given[_AT["segments"]] = torch.repeat_interleave(torch.arange(len(offsets) - 1), offsets.diff())[None]
    out = _core.attention(*rows, *given)
    return torch.nested.nested_tensor_from_jagged(out.transpose(0, 1), offsets).transpose(1, 2)


def _refuse_mixed(name, x, *values):
    """Raise for a call with a tensor on the meta device whose argument `name`, x, is not a tensor."""
    meta = next((of for of, tensor in _tensors(values) if tensor.is_meta), "an argument")
    raise TypeError(
        f"{meta} is on the meta device, which has no numbers, but {name} is of type {type(x).__name__}; pass "
        "tensors with numbers, or only tensors of the meta device")


def attention(q, k, v, *options):
    """Call the operator in place of _core.attention, while torch traces."""
    if any(getattr(x, "is_nested", False) for x in (q, k, v)):
        return _nested(q, k, v, *options)
    if _exports_onnx():
        raise RuntimeError(
            "relpos.attention cannot be exported to ONNX; export the model with another attention, or use "
            "torch.export or torch.jit.trace")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            _refuse_mixed(name, x, q, k, v, *options)
    q, k, v = _torch.autocast(q, k, v)
    lines, arrays, whole = [], [], {"q_offset": 0, "seed": 0}
    for name, value in zip(_core.NAMES, options):
        if value is None:
            continue
        if name == "out":
            raise TypeError("out is not supported while torch traces; leave it out")
        if name in _TERMS:
            for term in terms_of(value):
                places = []
                for array in term._arrays:
                    places.append("-" if array is None else str(len(arrays)))
                    if array is not None:
                        arrays.append(array if isinstance(array, Tensor) else torch.as_tensor(array))
                lines.append(f"{name}|{term._text}|{','.join(places)}")
        elif (name in _ARRAYS or isinstance(value, torch.Tensor)
              or name == "q_offset" and isinstance(value, (list, tuple))
              or (name not in _FLAGS and not isinstance(value, (int, float, str, tuple, list))
                  and hasattr(value, "ndim"))):
            lines.append(f"{name}||{len(arrays)}")
            arrays.append(value if isinstance(value, Tensor) else torch.as_tensor(value))
        elif name == "seed":  # the schema has only signed integers
            whole[name] = value - 2**64 if value >= 2**63 else value
        elif name == "q_offset":
            whole[name] = value
            lines.append(f"q_offset|{_AS_INTEGER}|")
        elif name in _NUMBERS:
            numbers = value if isinstance(value, (tuple, list)) else (value,)
            lines.append(f"{name}|{','.join('' if x is None else _word(name, x) for x in numbers)}|")
        else:
            lines.append(f"{name}|{_word(name, value)}|")
    out, lse, *more = torch.ops.relpos.attention(q, k, v, arrays, "\n".join(lines), whole["q_offset"], whole["seed"])
    requested = [options[_AT[name]] for name in ("return_weights", "return_lse", "summary")]
    if not any(requested):
        return out
    weights, summary = (more[0], more[1:]) if requested[0] else (None, more)
    return out, weights, lse if requested[1] else None, tuple(summary) if requested[2] else None


def _tensors(values):
    """Yield (argument name, tensor) for each tensor of a call."""
    for name, value in zip(("q", "k", "v", *_core.NAMES), values):
        for term in (value if isinstance(value, tuple) else (value,)) if name in _TERMS and value is not None else ():
            yield from ((f"{type(term).__name__}({key})", x) for key, x in term.arrays.items() if isinstance(x, Tensor))
        if isinstance(value, Tensor):
            yield name, value


def dispatch(*values):
    """Run a call of _core.attention while a torch dispatch mode, torch.func, torch.jit.trace or forward-mode
    differentiation is active."""
    functorch = torch._C._functorch
    traced = (torch._C._len_torch_dispatch_stack() > 0 or torch.jit.is_tracing()
              or torch._C._are_functorch_transforms_active())
    for name, x in _tensors(values):
        if functorch.is_batchedtensor(x):
            inner = functorch.get_unwrapped(x)
            if functorch.is_functorch_wrapped_tensor(inner) and not functorch.is_batchedtensor(inner):
                raise TypeError(
                    f"{name} is a tensor of torch.func inside torch.vmap, which relpos.attention does not support; use "
                    "requires_grad_() and torch.autograd.grad")
        elif functorch.is_functorch_wrapped_tensor(x) and not functorch.is_functionaltensor(x):
            raise TypeError(_torch.is_of_func(name))
        elif forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None:
            raise TypeError(_torch.is_dual(name))
    return (attention if traced else _torch.cast)(*values)


def _substitute(dynamo):
    dynamo.substitute_in_graph(_terms._create)(_create)
    dynamo.substitute_in_graph(_core.attention, skip_signature_check=True)(attention)


def trace_sized(function):
    """Replace `function`, which makes a PositionBias of a term, a shape and a q_offset, while torch.compile traces."""
    TracedTerm._sized = staticmethod(function)

    def traced(term, shape, q_offset):
        return TracedTerm(term._text, term._arrays, _NOT_CONSTANT, (shape, q_offset))

    _after("torch._dynamo", lambda dynamo: dynamo.substitute_in_graph(function)(traced))


_after("torch._dynamo", _substitute)  # torch.compiler.substitute_in_graph does the same, but imports torch._dynamo
