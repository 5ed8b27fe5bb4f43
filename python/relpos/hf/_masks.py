"""Represent masks of transformers by options of relpos.attention instead of N×N arrays.

A mask is a tensor type, because transformers accepts a mask that was created in advance, for a static cache, only as a
tensor with four axes. Mask functions are recognized by their names and the objects in their closures. An unknown
function is evaluated to an array, so a new kind of mask takes more memory but gives the right result.

SPDX-License-Identifier: Apache-2.0"""
import functools

import torch
from transformers import masking_utils

from . import _sharded
from ._sharded import NAME


class Mask(torch.Tensor):
    """A mask (B, 1, Lq, Lk) that stores `options` of relpos.attention instead of elements. Computing with it raises an
    error."""

    __module__ = "relpos.hf"  # relpos.attention recognizes the class by this module name

    @staticmethod
    def __new__(cls, shape, options):
        self = torch.empty((), dtype=torch.bool).expand(shape).as_subclass(cls)
        self.options = options
        # every attention layer reads it; .shape would take 4 µs, because of __torch_function__
        self.lengths = shape[-2:]
        return self

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", str(function))
        if name in ("__get__", "size", "dim"):
            return super().__torch_function__(function, types, args, kwargs or {})
        if name in ("contiguous", "detach", "clone", "to") or name == "__getitem__" and _is_whole(args):
            return args[0]
        if name in ("__invert__", "bitwise_not"):
            return _Inverted(args[0])
        if name == "__set__" and args[1] is False:  # a gradient checkpoint sets requires_grad
            return None
        if name == "add":  # a mask without options masks nothing; return the other
            others = [x for x in args if not isinstance(x, cls) or x.options]
            if len(others) < 2:
                return others[0] if others else args[0]
        if name == "_is_view":  # called by torch.compile
            raise NotImplementedError(f'attn_implementation="{NAME}": torch.compile cannot trace a mask that was made '
                                      f'before the call; '
                                      'pass a mask of tokens, (B, L)')
        raise NotImplementedError(f'attn_implementation="{NAME}": this model computes with its attention mask '
                                  f'({name}), which has '
                                  'no elements here; use "sdpa" or "eager"')

    def __repr__(self):
        return f"relpos.hf.Mask({tuple(self.shape)}, {self.options})"


class _Inverted:
    """The negation of a mask. Its only use is torch.all(~mask, dim=-1), which tells the queries without keys."""

    def __init__(self, mask):
        self.mask = mask

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.all and len(args) == 1 and kwargs == {"dim": -1}:
            return _without_keys(args[0].mask)
        raise NotImplementedError(f'attn_implementation="{NAME}": this model computes with its attention mask '
                                  f'({getattr(function, "__name__", function)}), which has no elements here; use '
                                  f'"sdpa" or "eager"')


def _without_keys(mask):
    """Return (B, 1, Lq), true for the queries that a mask of intervals and of padded keys leaves without keys."""
    options, (lq, lk) = mask.options, mask.lengths
    if options.keys() - {"key_mask", "starts", "ends", "q_offset"}:
        raise NotImplementedError(f'attn_implementation="{NAME}": this model asks which queries have no keys, which '
                                  f'is not known for a mask of {", ".join(options)}; use "sdpa" or "eager"')
    keys = options["key_mask"] if "key_mask" in options else torch.ones(1, lk, dtype=torch.bool)
    before = torch.nn.functional.pad(keys.cumsum(1), (1, 0)).expand(mask.shape[0], -1)  # kept keys before each key
    ends = [options.get(name, torch.tensor([[at]])).clamp(0, lk).expand(mask.shape[0], lq)
            for name, at in (("starts", 0), ("ends", lk))]
    first, last = (before.gather(1, x) for x in ends)
    return (last <= first)[:, None]


def _is_whole(args):
    """Return true if the index is [:, :, :, :n] and keeps every element of the mask."""
    mask, at = args
    return (isinstance(at, tuple) and at[:-1] == (slice(None),) * 3 and at[-1] == slice(None, at[-1].stop)
            and at[-1].stop >= mask.lengths[1])


class TracedMask:
    """Replaces Mask while torch traces and inside torch.vmap, which do not support tensors without elements."""

    def __init__(self, shape, options):
        self.shape, self.options, self.lengths = shape, options, shape[-2:]

    dtype = torch.bool

    def to(self, *_):
        return self

    def __invert__(self):
        return _Inverted(self)

    def __radd__(self, other):
        """A mask without options masks nothing; return the other."""
        return NotImplemented if self.options else other


MASKS = (Mask, TracedMask)


def traces():
    """Return true while torch.compile or torch.jit.trace records the call, and inside torch.vmap. Control flow must
    then not depend on tensor values."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or _inside_vmap()


def _inside_vmap():
    levels = torch._C._functorch.get_interpreter_stack()
    return levels is not None and any(x.key() == torch._C._functorch.TransformType.Vmap for x in levels)


def made(shape, options):
    """Return a Mask, or a TracedMask where one is needed."""
    return (TracedMask if traces() else Mask)(shape, options)


def masks_nothing(mask):
    """Return true if every element is true. While torch traces, return false."""
    return not traces() and bool(mask.all())


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=masking_utils.causal_mask_function,
         attention_mask=None, **others):
    """Return a Mask. The signature is the one that transformers expects of a mask function. The Mask of an unknown
    mask_function contains an N×N array."""
    options = {}
    shape = (batch_size, 1, q_length, kv_length)
    sharded = _sharded.distributed() is not None
    if _read(mask_function, options) or _read_intervals(mask_function, options := {}, torch.arange(q_length) + q_offset,
                                                        kv_offset):
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        if padding is not None:
            padding = padding[:, kv_offset:kv_offset + kv_length].bool()
            if sharded or not masks_nothing(padding):
                options["key_mask"] = padding.contiguous()
        if q_length != kv_length or isinstance(q_offset, torch.Tensor) or q_offset != kv_offset:
            options["q_offset"] = offset(q_offset - kv_offset)
        return made(shape, _sharded.whole(options, q_length) if sharded else options)
    others.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    if sharded:
        _sharded.whole({"mask": None}, q_length)  # raises
    array = masking_utils.sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function=mask_function,
                                    attention_mask=attention_mask, **others)
    return made(shape, {"mask": array})


def offset(q_offset):
    """Return the position of query 0 as an int. A static cache passes it as a tensor; while torch traces, keep the
    tensor, so the trace is valid for every value."""
    return int(q_offset) if not isinstance(q_offset, torch.Tensor) or not traces() else q_offset.clone().reshape(1)


def _read(function, options):
    """Add the options that are equivalent to a mask function of transformers. Return false if the function is
    unknown."""
    if function is masking_utils.bidirectional_mask_function:
        return True
    if function is masking_utils.causal_mask_function:
        options["causal"] = True
        return True
    maker, closed = _closure(function)
    if maker == "and_masks":
        labels_first = sorted(closed["mask_functions"],
                              key=lambda part: _closure(part)[0] != "packed_sequence_mask_function")
        return all(_read(part, options) for part in labels_first)
    # within a segment, differences of positions equal differences of indices
    if maker == "remap_positions_for_packed_sequence":
        return "segments" in options and _read(closed["mask_function"], options)
    if maker == "sliding_window_overlay":
        name, value = "window", (closed["sliding_window"] - 1, None)
    elif maker == "sliding_window_bidirectional_overlay":
        name, value = "window", (closed["sliding_window"], closed["sliding_window"])
    elif maker == "packed_sequence_mask_function":
        name, value = "segments", closed["packed_sequence_mask"]
    else:
        return False
    return options.setdefault(name, value) is value  # false if the option is already set


def _read_intervals(function, options, queries, kv_offset):
    """Add `starts` and `ends` to options if every query attends to one interval of keys, as in causal text with images,
    chunks and windows. Otherwise return false."""
    interval = _interval(function, queries[None])
    if interval:
        options["starts"], options["ends"] = (x - kv_offset for x in interval)
    return interval is not None


def _closure(function):
    """Return the name of the transformers function that created a mask function, and the variables in its closure. For
    other functions, return None and {}."""
    if getattr(function, "__module__", None) != masking_utils.__name__ or not function.__closure__:
        return None, {}
    return (function.__qualname__.partition(".")[0],
            {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__)})


_FAR = 2**40  # a position beyond every key


class Intervals:
    """A mask function of a model in which each query attends to an interval of keys: `interval` of positions (1, Lq)
    returns the first key and one past the last, each (1, Lq), as _interval does."""

    def __init__(self, function, interval):
        self.function, self.interval = function, interval

    def __call__(self, *args):
        return self.function(*args)


def _interval(function, at):
    """Return the interval of keys that a mask function allows for each query: the first key, and one past the last,
    each (1 or B, Lq). `at` has the positions of the queries, (1, Lq).

    Return None if the function is unknown. Every interval contains the query's own position, so the union of two is an
    interval too."""
    lo, hi = torch.full_like(at, -_FAR), torch.full_like(at, _FAR)
    maker, closed = _closure(function)
    if isinstance(function, Intervals):
        return function.interval(at)
    if function is masking_utils.bidirectional_mask_function:
        return lo, hi
    if function is masking_utils.causal_mask_function:
        return lo, at + 1
    if maker == "sliding_window_overlay":
        return at - closed["sliding_window"] + 1, hi
    if maker == "sliding_window_bidirectional_overlay":
        return at - closed["sliding_window"], at + closed["sliding_window"] + 1
    if maker == "chunked_overlay":
        size, padding = closed["chunk_size"], closed["left_padding"][:, None]
        first = (at - padding).div(size, rounding_mode="floor") * size + padding
        return first, first + size
    if maker in ("and_masks", "or_masks"):
        parts = [_interval(part, at) or maker == "or_masks" and _blocks(part, at) for part in closed["mask_functions"]]
        if all(parts):
            outwards = torch.minimum, torch.maximum
            picks = outwards if maker == "or_masks" else outwards[::-1]
            return tuple(functools.reduce(pick, side) for pick, side in zip(picks, zip(*parts)))
    return None


def _blocks(function, at):
    """Return the interval of keys of each query, as _interval does, for a mask in which tokens of an image attend to
    the block of the image, and other tokens to themselves.

    Return None if a block is not contiguous. Also return None while torch traces, since the check depends on tensor
    values."""
    maker, closed = _closure(function)
    ids = closed.get("block_sequence_ids")
    if maker != "blockwise_overlay" or traces():
        return None
    begins = torch.nn.functional.pad(ids[:, 1:] != ids[:, :-1], (1, 0), value=True)
    in_order = ids.sort(1).values
    if ((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)).sum() != (~begins & (ids >= 0)).sum():
        return None
    place = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    last = torch.nn.functional.pad(begins[:, 1:], (0, 1), value=True)
    first = place.where(begins, 0).cummax(1).values
    after = (place + 1).where(last, ids.shape[1]).flip(1).cummin(1).values.flip(1)
    at = at.expand(len(ids), -1)
    inside = ids.gather(1, at) >= 0
    return first.gather(1, at).where(inside, at), after.gather(1, at).where(inside, at + 1)
