"""relpos.attention as a torch operator, for calls traced by torch.compile, torch.export, torch.jit.trace or fake
tensors.

SPDX-License-Identifier: Apache-2.0"""
import importlib.util
import math
import sys
import types
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import _core, _terms, _torch, _versions
from ._encoding import AS_INTEGER, MASKS, NUMBERS, TERMS, learned_of

# The oldest version that the tests run with (tools/python.sh --oldest). Some before it do not trace the terms.
OLDEST = "2.12"
_versions.need("PyTorch", torch.__version__, OLDEST,
               "relpos.torch and traced calls need it; relpos.attention on tensors works without it")

from . import _vmap  # noqa: E402, F401 registers the operators


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
_ARRAYS = [name for name, (_, array) in MASKS.items() if array]
_FLAGS = ("softcap_after", "return_weights", "return_lse", "summary",
          *(name for name, kind in MASKS.items() if kind == (0, False)))
_REALS = ("scale", "softcap", "dropout")


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


def _as_tensors(q, k, v, *options):
    """Return q, k and v as tensors, as calls that are recorded for a gradient do."""
    meta = next((of for of, x in _tensors((q, k, v, *options)) if x.is_meta), None)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) and meta:
            raise TypeError(f"{meta} is on the meta device, which has no numbers, but {name} is of type "
                            f"{type(x).__name__}; pass tensors with numbers, or only tensors of the meta device")
    if not isinstance(q, Tensor):
        raise TypeError(f"q is of type {type(q).__name__}, but torch traces or transforms another argument; pass q, k "
                        "and v as tensors")
    return q, *(x if isinstance(x, Tensor) else _torch.copied(name, x) for name, x in (("k", k), ("v", v)))


def _encoded(options):
    """Return the arguments of an operator that stand for the options of a call: arrays, options, q_offset and seed."""
    lines, arrays, whole = [], [], {"q_offset": 0, "seed": 0}
    for name, value in zip(_core.NAMES, options):
        if value is None:
            continue
        if name == "out":
            raise TypeError("out is not supported while torch traces or transforms the call; leave it out")
        if name in TERMS:
            for term in terms_of(value):
                places = []
                for array in term._arrays:
                    places.append("-" if array is None else str(len(arrays)))
                    if isinstance(array, (list, tuple)):
                        key = next(key for key, x in term.arrays.items() if x is array)
                        raise TypeError(f"{type(term).__name__}({key}) is of type {type(array).__name__}: expected a "
                                        "NumPy array or a torch tensor")
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
            lines.append(f"q_offset|{AS_INTEGER}|")
        elif name in NUMBERS:
            numbers = value if isinstance(value, (tuple, list)) else (value,)
            lines.append(f"{name}|{','.join('' if x is None else _word(name, x) for x in numbers)}|")
        else:
            lines.append(f"{name}|{_word(name, value)}|")
    return arrays, "\n".join(lines), whole["q_offset"], whole["seed"]


def attention(q, k, v, *options):
    """Call the operator in place of _core.attention, while torch traces."""
    if any(getattr(x, "is_nested", False) for x in (q, k, v)):
        return _nested(q, k, v, *options)
    if _exports_onnx():
        raise RuntimeError(
            "relpos.attention cannot be exported to ONNX; export the model with another attention, or use "
            "torch.export or torch.jit.trace")
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        q, k, v = _as_tensors(q, k, v, *options)
    q, k, v = _torch.autocast(q, k, v)
    out, lse, *more = torch.ops.relpos.attention(q, k, v, *_encoded(options))
    requested = [options[_AT[name]] for name in ("return_weights", "return_lse", "summary")]
    if not any(requested):
        return out
    weights, summary = (more[0], more[1:]) if requested[0] else (None, more)
    return out, weights, lse if requested[1] else None, tuple(summary) if requested[2] else None


def _tensors(values):
    """Yield (argument name, tensor) for each tensor of a call."""
    for name, value in zip(("q", "k", "v", *_core.NAMES), values):
        for term in (value if isinstance(value, tuple) else (value,)) if name in TERMS and value is not None else ():
            yield from ((f"{type(term).__name__}({key})", x) for key, x in term.arrays.items() if isinstance(x, Tensor))
        if isinstance(value, Tensor):
            yield name, value


def gradients(dout, q, k, v, options, places, dlse, others, out, lse, wanted):
    """Return the gradients of a call by the operator, which records them for second derivatives. `places` has (term,
    name) of learned arrays. `wanted` lists q, k, v and these arrays; the result has None for those that are not
    wanted."""
    arrays, *rest = _encoded(options)
    place_of = {name: place for place, name in learned_of(rest[0]).items()}
    order = [0, 1, 2, *(3 + place_of[name] for name in places)]
    flags = [False] * (3 + len(arrays))
    for at, is_wanted in zip(order, wanted):
        flags[at] = is_wanted
    found = torch.ops.relpos.attention_backward(dout, q, k, v, dlse, out, lse, arrays, *rest, flags, list(others),
                                                 False)
    found = dict(zip((at for at, is_wanted in enumerate(flags) if is_wanted), found))
    return [found.get(at) for at in order]


def dispatch(*values):
    """Run a call of _core.attention while a torch dispatch mode, torch.func, torch.jit.trace or forward-mode
    differentiation is active."""
    traced = (torch._C._len_torch_dispatch_stack() > 0 or torch.jit.is_tracing()
              or torch._C._are_functorch_transforms_active() or any(_torch.is_dual(x) for _, x in _tensors(values)))
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
