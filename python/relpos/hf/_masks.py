"""Masks of models of transformers: options of relpos.attention in place of an array of queries by keys.

SPDX-License-Identifier: Apache-2.0"""
import functools

import torch
from transformers import masking_utils

NAME = "relpos"  # of the attention function and of the mask function


class Mask(torch.Tensor):
    """What a model carries to its attention in place of a mask (B, 1, Lq, Lk): `options` of relpos.attention. It has that shape and
    no elements, so whoever computes with it gets an error."""

    __module__ = "relpos.hf"  # by which relpos.attention recognises it

    @staticmethod
    def __new__(cls, shape, options):
        self = torch.empty((), dtype=torch.bool).expand(shape).as_subclass(cls)
        self.options = options
        self.lengths = shape[-2:]  # which every attention reads; .shape takes 4 µs, by way of __torch_function__
        return self

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", str(function))
        if name in ("__get__", "size", "dim"):
            return super().__torch_function__(function, types, args, kwargs or {})
        if name in ("contiguous", "detach", "clone", "to") or name == "__getitem__" and _is_whole(args):
            return args[0]
        if name == "__set__" and args[1] is False:  # requires_grad, by a checkpoint
            return None
        if name == "add" and not any(x.options for x in args if isinstance(x, cls)):  # it masks nothing: the other remains
            return next((x for x in args if not isinstance(x, cls)), args[0])
        if name == "_is_view":  # torch.compile asks it
            raise NotImplementedError(f'attn_implementation="{NAME}": torch.compile cannot trace a mask that was made before the call: '
                                      'give the model one of tokens, (B, L), from which it makes its own')
        raise NotImplementedError(f'attn_implementation="{NAME}": this model computes with its attention mask ({name}), which holds '
                                  'no numbers here: use "sdpa" or "eager" for it')

    def __repr__(self):
        return f"relpos.hf.Mask({tuple(self.shape)}, {self.options})"


def _is_whole(args):
    """Whether mask[:, :, :, :n] leaves nothing out."""
    mask, at = args
    return isinstance(at, tuple) and at[:-1] == (slice(None),) * 3 and at[-1] == slice(None, at[-1].stop) and at[-1].stop >= mask.lengths[1]


class TracedMask:
    """A Mask where torch traces, which knows no tensors without elements: shape and options alone."""

    def __init__(self, shape, options):
        self.shape, self.options, self.lengths = shape, options, shape[-2:]

    def to(self, *_):
        return self


MASKS = (Mask, TracedMask)


def traces():
    """Whether torch.compile or torch.jit.trace reads the call: what it looks like may not depend on numbers."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def made(shape, options):
    return (TracedMask if traces() else Mask)(shape, options)


def masks_nothing(mask):
    """False where torch traces."""
    return not traces() and bool(mask.all())


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=masking_utils.causal_mask_function,
         attention_mask=None, **others):
    """The mask function of transformers: a Mask. A mask_function that is not known becomes an array of queries by keys."""
    options = {}
    shape = (batch_size, 1, q_length, kv_length)
    if _read(mask_function, options) or _read_intervals(mask_function, options := {}, torch.arange(q_length) + q_offset, kv_offset):
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        if padding is not None:
            padding = padding[:, kv_offset:kv_offset + kv_length].bool()
            if not masks_nothing(padding):
                options["key_mask"] = padding.contiguous()
        if q_length != kv_length or isinstance(q_offset, torch.Tensor) or q_offset != kv_offset:
            options["q_offset"] = offset(q_offset - kv_offset)
        return made(shape, options)
    others.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    array = masking_utils.sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function=mask_function,
                                    attention_mask=attention_mask, **others)
    return made(shape, {"mask": array})


def offset(q_offset):
    """The position of query 0, of which a static cache has a tensor, which changes as the cache is filled: where torch traces it stays one,
    so that a step is not traced for each value."""
    return int(q_offset) if not isinstance(q_offset, torch.Tensor) or not traces() else q_offset.clone().reshape(1)


def _read(function, options):
    """Add what a mask function of transformers says to options; False if it is not known."""
    if function is masking_utils.bidirectional_mask_function:
        return True
    if function is masking_utils.causal_mask_function:
        options["causal"] = True
        return True
    maker, held = _held(function)
    if maker == "and_masks":
        labels_first = sorted(held["mask_functions"], key=lambda part: _held(part)[0] != "packed_sequence_mask_function")
        return all(_read(part, options) for part in labels_first)
    if maker == "remap_positions_for_packed_sequence":  # beside segments, within which positions differ as indices do
        return "segments" in options and _read(held["mask_function"], options)
    if maker == "sliding_window_overlay":
        name, value = "window", (held["sliding_window"] - 1, None)
    elif maker == "sliding_window_bidirectional_overlay":
        name, value = "window", (held["sliding_window"], held["sliding_window"])
    elif maker == "packed_sequence_mask_function":
        name, value = "segments", held["packed_sequence_mask"]
    else:
        return False
    return options.setdefault(name, value) is value  # there is room for one of each


def _read_intervals(function, options, queries, kv_offset):
    """Add `starts` and `ends` to options for a mask function whose keys are, of each query, those of one interval: causal text with images,
    chunks, windows beside them. False if it is not one of them."""
    interval = _interval(function, queries[None])
    if interval:
        options["starts"], options["ends"] = (x - kv_offset for x in interval)
    return interval is not None


def _held(function):
    """The function of transformers that made a mask function, by name, and what that holds; None and nothing where that is not so."""
    if getattr(function, "__module__", None) != masking_utils.__name__ or not function.__closure__:
        return None, {}
    return (function.__qualname__.partition(".")[0],
            {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__)})


_FAR = 2**40  # beyond every key


def _interval(function, at):
    """The first key and that after the last, (1 or B, Lq) each, that a mask function lets through for queries at places (1, Lq); None if
    it is not known. Each of these intervals has the query's own place, so that two together are one."""
    lo, hi = torch.full_like(at, -_FAR), torch.full_like(at, _FAR)
    maker, held = _held(function)
    if function is masking_utils.bidirectional_mask_function:
        return lo, hi
    if function is masking_utils.causal_mask_function:
        return lo, at + 1
    if maker == "sliding_window_overlay":
        return at - held["sliding_window"] + 1, hi
    if maker == "sliding_window_bidirectional_overlay":
        return at - held["sliding_window"], at + held["sliding_window"] + 1
    if maker == "chunked_overlay":
        size, padding = held["chunk_size"], held["left_padding"][:, None]
        first = (at - padding).div(size, rounding_mode="floor") * size + padding
        return first, first + size
    if maker in ("and_masks", "or_masks"):
        parts = [_interval(part, at) or maker == "or_masks" and _blocks(part, at) for part in held["mask_functions"]]
        if all(parts):
            outwards = torch.minimum, torch.maximum
            picks = outwards if maker == "or_masks" else outwards[::-1]
            return tuple(functools.reduce(pick, side) for pick, side in zip(picks, zip(*parts)))
    return None


def _blocks(function, at):
    """The interval of blocks of images, whose tokens attend to their own block; of tokens outside, their own place alone. None where a block
    is not in one piece, or where torch traces, which may not ask that."""
    maker, held = _held(function)
    ids = held.get("block_sequence_ids")
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
