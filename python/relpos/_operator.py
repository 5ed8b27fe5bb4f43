"""relpos.attention as a torch operator, for calls traced by torch.compile, torch.export, torch.jit.trace or fake tensors.

SPDX-License-Identifier: Apache-2.0"""
import functools
import importlib.util
import itertools
import math
import sys
import types
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _core, _terms, _torch, _versions

# 2.8 is the first version whose torch.compile traces the terms.
_versions.need("PyTorch", torch.__version__, "2.8", "relpos.torch and traced calls need it; relpos.attention on tensors works without it")



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
    """Call `call` with the module `name`, now if it is loaded, otherwise once someone imports it. Importing it here would take time."""
    if name in sys.modules:
        call(sys.modules[name])
    else:
        sys.meta_path.insert(0, _After(name, call))


_AT = {name: n for n, name in enumerate(_core.NAMES)}
_TERMS = ("bias", "rope", "relkey", "relval", "sink")
_VALUES = {"None": None, "True": True, "False": False}
_MASKS = {name: (numbers, array) for name, numbers, array in iter(map(_core.mask_info, itertools.count(1)).__next__, None)}
_NUMBERS, _ARRAYS = [name for name, (n, _) in _MASKS.items() if n], [name for name, (_, array) in _MASKS.items() if array]
_FLAGS = ("softcap_after", "return_weights", "return_lse", "summary", *(name for name, kind in _MASKS.items() if kind == (0, False)))
_REALS = ("scale", "softcap", "dropout")
_AS_INTEGER = "given"

# The schema of an operator supports tensors, integers and strings, but not terms. So the options of a call are encoded as a string with
# one line "name|value|places" for each option. The places are indices into the operator's list of tensors, or "-" for an absent array
# of a term. q_offset and seed change from call to call, so they are passed as integers; in the string they would cause a new trace each
# time.


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


# Versions of torch infer different schemas from annotations, so the schema is explicit.
_INPUTS = "Tensor[] arrays, str options, SymInt q_offset, SymInt seed"


@torch.library.custom_op("relpos::attention", mutates_args=(), schema=f"(Tensor q, Tensor k, Tensor v, {_INPUTS}) -> Tensor[]")
def _attention(q: Tensor, k: Tensor, v: Tensor, arrays: Sequence[Tensor], options: str, q_offset: int, seed: int) -> list[Tensor]:
    q, k, v, *arrays = map(_plain, (q, k, v, *arrays))
    given = _options(options, arrays, q_offset, seed) | {"return_lse": True}
    out, weights, lse, summary = _core.compute(q, k, v, *given.values())
    return [x for x in (out, lse, weights, *(summary or ())) if x is not None]


@_attention.register_vmap
def _(info, in_dims, q, k, v, arrays, options, q_offset, seed):
    """Run a call under torch.vmap. If q, k and v are (H, L, D) and only they have the mapped axis, use it as the batch axis of one
    call; otherwise make one call per index of the mapped axis."""
    if any(name == "dropout" and _value(name, value) for name, value, _ in _read(options)):
        raise RuntimeError("relpos.attention has no dropout under torch.vmap, since all samples would drop the same weights; set dropout=0")
    *of_qkv, of_arrays = in_dims[:4]
    of_arrays = of_arrays or [None] * len(arrays)
    if None not in of_qkv and q.dim() == 4 and all(x is None for x in of_arrays):
        found = torch.ops.relpos.attention(*(x.movedim(at, 0) for x, at in zip((q, k, v), of_qkv)), arrays, options, q_offset, seed)
    else:
        def at(n, x, axis):
            return x if axis is None else x.select(axis, n)

        calls = [torch.ops.relpos.attention(*(at(n, x, axis) for x, axis in zip((q, k, v), of_qkv)),
                                            [at(n, x, axis) for x, axis in zip(arrays, of_arrays)], options, q_offset, seed)
                 for n in range(info.batch_size)]
        found = [torch.stack(x) for x in zip(*calls)]
    return found, [0] * len(found)


@_attention.register_fake
def _(q, k, v, arrays, options, q_offset, seed):
    requested = {name for name, value, _ in _read(options) if value == "True"}
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    rows, lk = q.shape[:-1], k.shape[-2]
    found = [q.new_empty((*rows, v.shape[-1])), q.new_empty(rows, dtype=wide)]
    if "return_weights" in requested:
        found.append(q.new_empty((*rows, lk), dtype=wide))
    if "summary" in requested:
        found += [q.new_empty((*rows[:-1], n), dtype=wide) for n in (rows[-1] + lk - 1, lk, rows[-1])]
    return found


@torch.library.custom_op("relpos::attention_backward", mutates_args=(),
                         schema=f"(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor? dlse, Tensor? out, Tensor? lse, {_INPUTS}, bool[] wanted,"
                                " Tensor[] others) -> Tensor[]")
def _backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, dlse: Tensor | None, out: Tensor | None, lse: Tensor | None,
              arrays: Sequence[Tensor], options: str, q_offset: int, seed: int, wanted: Sequence[bool], others: Sequence[Tensor]) -> list[Tensor]:
    """Return the wanted gradients of q, k, v and arrays. `others` are the incoming gradients of weights and summary, which must be
    zero; a compiled graph passes zeros for results that the loss does not use."""
    if any(x.any() for x in others):
        raise RuntimeError(_torch.ONLY_OUT)
    dout, q, k, v, dlse, out, lse, *arrays = map(_plain, (dout, q, k, v, dlse, out, lse, *arrays))
    given = _options(options, arrays, q_offset, seed)
    names = dict(zip(range(3), "qkv")) | {3 + n: name for n, (_, name) in _learned(options).items()}
    if given["q_offset"] is None:
        given["q_offset"] = 0  # avoids a second warning
    *inner, terms = _core.gradients(dout, q, k, v, tuple(given.values()), dlse, out, lse, [name for n, name in names.items() if wanted[n]])
    of_arrays = {n: terms[term][name] for n, (term, name) in _learned(options).items()}
    every = [*inner, *(of_arrays.get(n) for n in range(len(arrays)))]
    return [gradient for gradient, is_wanted in zip(every, wanted) if is_wanted]


@_backward.register_fake
def _(dout, q, k, v, dlse, out, lse, arrays, options, q_offset, seed, wanted, others):
    return [x.new_empty(x.shape) for x, is_wanted in zip((q, k, v, *arrays), wanted) if is_wanted]


@functools.lru_cache(256)
def _learned(text):
    """Return {place: (term, name)} of each learned array. `term` is the number of the term, in the order in which _core reads them."""
    found = {}
    lines = [line for line in _read(text) if line[0] in _TERMS]
    for count, (_, value, places) in enumerate(sorted(lines, key=lambda line: _TERMS.index(line[0]))):
        kind = _terms.TERMS[value.partition(",")[0]]
        for place, array in zip(places, _terms._BY_CLASS[kind]["arrays"]):
            if array["use"] == "learned" and place is not None:
                found[place] = count, array["name"]
    return found


def _save(ctx, inputs, output):
    q, k, v, arrays, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output[:2], *arrays)
    ctx.set_materialize_grads(False)


def _differentiate(ctx, gradients):
    q, k, v, out, lse, *arrays = ctx.saved_tensors
    dout = torch.zeros_like(out) if gradients[0] is None else gradients[0]
    dlse = gradients[1]
    for x in (dout, dlse):
        if x is not None:
            _torch.refuse_dual(x)
    wanted = [*ctx.needs_input_grad[:3], *ctx.needs_input_grad[3]]
    learned = _learned(ctx.rest[0])
    if any(x and n >= 3 and n - 3 not in learned for n, x in enumerate(wanted)):
        raise RuntimeError(f"an option or an array of positions {_torch.NOT_LEARNED}")
    half = q.dtype in (torch.float16, torch.bfloat16)  # `out` is rounded to 16 bits, so compute it again
    found = iter(_backward(dout, q, k, v, dlse, None if half else out, None if half else lse, arrays, *ctx.rest, wanted,
                           [x for x in gradients[2:] if x is not None]))
    every = [next(found) if x else None for x in wanted]
    return *every[:3], every[3:], None, None, None


def _refuse(ctx, *_):
    raise RuntimeError(_torch.ONLY_ONCE)


_attention.register_autograd(_differentiate, setup_context=_save)
_backward.register_autograd(_refuse)


def _flops(q, k, v, *_, **__):
    """Count operations as torch does for scaled_dot_product_attention: count masked pairs too, and ignore the products of terms."""
    return 2 * math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


def _backward_flops(_, q, k, v, *__, **___):
    return 2 * math.prod(q[:-1]) * k[-2] * (3 * q[-1] + 2 * v[-1])


def _register_flops(counter):
    counter.register_flop_formula(torch.ops.relpos.attention)(_flops)
    counter.register_flop_formula(torch.ops.relpos.attention_backward)(_backward_flops)


_after("torch.utils.flop_counter", _register_flops)


class TracedTerm(NamedTuple):
    """A term created while torch.compile traces: its text and arrays. When a compiled function returns one, torch calls _make, which
    creates the real term."""

    text: str
    arrays: tuple
    not_constant: object  # stops torch.compile from evaluating a sum of constant terms while it traces; it could not return the result


_NOT_CONSTANT = types.SimpleNamespace()
TracedTerm._make = classmethod(lambda cls, fields: _terms._load(*[*fields][:2]))
TracedTerm._text, TracedTerm._arrays = property(lambda self: self.text), property(lambda self: self.arrays)
TracedTerm.__add__, TracedTerm.__radd__ = _terms.Term.__add__, _terms.Term.__radd__


def terms_of(value):
    """Return the terms of one keyword as a tuple. `value` is a term, a sum or a TracedTerm."""
    return value if isinstance(value, tuple) and not isinstance(value, TracedTerm) else (value,)


def _create(cls, text, arrays):
    return TracedTerm(text, arrays, _NOT_CONSTANT)


def _exports_onnx():
    return torch.onnx.is_in_onnx_export()


# Without this attribute, torch.compile treats is_in_onnx_export as the constant False. torch.compiler.assume_constant_result sets the
# attribute too, but imports torch._dynamo.
_exports_onnx._dynamo_marked_constant = True


_NOT_NESTED = (*_ARRAYS, "q_offset", "out", "return_weights", "return_lse", "summary")


def _nested(q, k, v, *options):
    """Compute attention of nested tensors (B, H, ragged L, D) as one packed sequence with a segment for each batch entry."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not x.is_nested or x.layout != torch.jagged or x.dim() != 4 or x._ragged_idx != 2 or x.lengths() is not None:
            raise TypeError(f"{name}: if one of q, k and v is nested, all must be (B, H, ragged L, D) of layout torch.jagged; use "
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


def attention(q, k, v, *options):
    """Call the operator in place of _core.attention, while torch traces."""
    if any(getattr(x, "is_nested", False) for x in (q, k, v)):
        return _nested(q, k, v, *options)
    if _exports_onnx():
        raise RuntimeError("relpos.attention cannot be exported to ONNX; export the model with another attention, or use torch.export or "
                           "torch.jit.trace")
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
        elif name in _ARRAYS or isinstance(value, torch.Tensor) or name == "q_offset" and isinstance(value, (list, tuple)) or (
                name not in _FLAGS and not isinstance(value, (int, float, str, tuple, list)) and hasattr(value, "ndim")):
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
    """Run a call of _core.attention while a torch dispatch mode, torch.func, torch.jit.trace or forward-mode differentiation is active."""
    traced = torch._C._len_torch_dispatch_stack() > 0 or torch.jit.is_tracing()
    for name, x in _tensors(values):
        if torch._C._functorch.is_functionaltensor(x):
            traced = True
        elif torch._C._functorch.is_batchedtensor(x):
            inner = torch._C._functorch.get_unwrapped(x)
            if torch._C._functorch.is_functorch_wrapped_tensor(inner) and not torch._C._functorch.is_batchedtensor(inner):
                raise TypeError(f"{name} is a tensor of torch.func inside torch.vmap, which relpos.attention does not support; use "
                                "requires_grad_() and torch.autograd.grad")
            traced = True
        elif torch._C._functorch.is_functorch_wrapped_tensor(x):
            raise TypeError(f"{name} is a tensor of torch.func (grad, vjp, jvp or similar), which relpos.attention does not support; use "
                            "requires_grad_() and torch.autograd.grad")
        elif forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None:
            raise TypeError(f"{name} is a dual tensor, but relpos.attention has no forward-mode derivatives; use torch.autograd.grad, or "
                            f"{name}.detach()")
    return (attention if traced else _torch.cast)(*values)


def _substitute(dynamo):
    dynamo.substitute_in_graph(_terms._create)(_create)
    dynamo.substitute_in_graph(_core.attention, skip_signature_check=True)(attention)


_after("torch._dynamo", _substitute)  # torch.compiler.substitute_in_graph does the same, but imports torch._dynamo
