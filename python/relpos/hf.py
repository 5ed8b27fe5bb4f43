"""attn_implementation="relpos" for models of Hugging Face transformers, on a CPU.

    >>> import relpos.hf                                                                          # doctest: +SKIP
    >>> model = transformers.AutoModel.from_pretrained(name, attn_implementation="relpos")        # doctest: +SKIP

Importing this module registers it. Every model that asks transformers for its attention function can take it; what such a model
hands over as an array (a bias, a mask of its caller) is used as given. No bias and no mask of queries by keys is made for

- masks: padding, causal, sliding windows and packed sequences, in any model;
- T5, mT5, UMT5, LongT5 (local attention), Switch Transformers, Pop2Piano, Pix2Struct and MPNet: the table of buckets;
- LayoutLMv3: three such tables, of tokens and of boxes;
- BLOOM, MPT and Falcon: ALiBi; GPT-J, CodeGen and RoFormer (but as a decoder): what they rotate;
- Swin, Swin v2 and their copies in Swin2SR, Donut, MaskFormer and CLAP: the table of a window; SAM, SAM-HQ and ViTDet: vectors by row and column;
- DeBERTa, v2 and v3: vectors of positions; Wav2Vec2-BERT and Wav2Vec2-Conformer: those of keys, or Transformer-XL's;
- WavLM: a table of buckets, times a gate of each query;
- XLNet: Transformer-XL's, where it is given no mask, no permutation and no segments, of which it makes arrays itself.

torch.compile makes one graph of a model where eager attention does, a step with a static cache too, and torch.autocast,
torch.jit.trace and checkpoints of gradients take it as they take others. Attentions that a model returns (output_attentions) are for
looking at: a loss that depends on them raises. Continuous batching (generate_batch) is refused by transformers.

A model whose attention cannot be replaced is refused, and one that never asks for an attention function, as a wrapper of another
library's model, gets a warning. A query without a key gives zero, where other implementations give a mean
of masked values; this concerns padding, whose results are not used.

SPDX-License-Identifier: Apache-2.0"""
import functools
import importlib
import math
import sys
import warnings

import relpos
import torch
import transformers

from . import _versions

_versions.need("transformers", transformers.__version__, "5.22", "relpos.hf replaces methods that older ones have otherwise")
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, masking_utils  # noqa: E402

from transformers.generation import utils as generation_utils  # noqa: E402
from transformers.utils.output_capturing import _active_collector  # noqa: E402

from .torch import _added, _drawn  # noqa: E402

NAME = "relpos"
_REFUSED = ("cache", "indices", "block_indices", "sinks")  # keywords of single models, or of paged caches, that change the result


class Refused(ValueError):
    """A model was told to take this attention, and computes its own, for which there is no replacement."""


class Mask(torch.Tensor):
    """What a model carries to its attention in place of a mask (B, 1, Lq, Lk): `options` of relpos.attention. It has that shape and
    no elements, so whoever computes with it gets an error."""

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


_MASKS = (Mask, TracedMask)


def _traces():
    """Whether torch.compile or torch.jit.trace reads the call: what it looks like may not depend on numbers."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def _made(shape, options):
    return (TracedMask if _traces() else Mask)(shape, options)


def _masks_nothing(mask):
    """False where torch traces."""
    return not _traces() and bool(mask.all())


def _records_attentions():
    """Whether transformers collects what attentions return, which it does not tell every class of attention."""
    collected = _active_collector.global_var if _traces() else _active_collector.get()
    return collected is not None and any("attentions" in key for key in collected)


def attention(module, query, key, value, attention_mask, *, scaling=None, dropout=0.0, position_bias=None, softcap=None, s_aux=None,
              is_causal=None, output_attentions=False, **others):
    """The attention function of transformers: query (B, H, Lq, D), key and value (B, Hk, Lk, D); gives (B, Lq, H, D) and, if
    asked for, the weights. attention_mask is a Mask, bool (True = attend) or added to the scores; position_bias is a tensor,
    or a dictionary of options of relpos.attention, which the models of this module hand over."""
    for name in _REFUSED:
        if others.get(name) is not None:
            raise ValueError(f'attn_implementation="{NAME}" does not know the argument {name} of {type(module).__name__}: '
                             'use another implementation for this model')
    options, bias = {}, []
    if isinstance(attention_mask, _MASKS):
        if attention_mask.lengths != (query.shape[-2], key.shape[-2]):
            raise ValueError(f"attention_mask is for {attention_mask.lengths} queries and keys, which are "
                             f"{(query.shape[-2], key.shape[-2])} in {type(module).__name__}")
        options.update(attention_mask.options)
    elif attention_mask is None:  # as for sdpa: the module says whether it is causal, and its queries begin at key 0
        if is_causal is None and (is_causal := getattr(module, "is_causal", None)) is None:
            raise ValueError(f'attn_implementation="{NAME}": {type(module).__name__} gives no attention_mask and does not say '
                             'whether it is causal: give one, or use another implementation')
        options["causal"] = bool(is_causal) and query.shape[-2] > 1
    elif attention_mask.dtype == torch.bool:
        options["mask"] = attention_mask
    else:
        bias.append(attention_mask)
    if isinstance(position_bias, dict):
        first = options.get("q_offset", 0) if isinstance(attention_mask, _MASKS) else position_bias.get("q_offset", 0)
        numbers = isinstance(first, int) and isinstance(position_bias.get("q_offset", first), int)  # and no tensors, where torch traces
        if numbers and position_bias.get("q_offset", first) != first:
            raise ValueError(f"{type(module).__name__}: the queries begin at {position_bias['q_offset']} for the bias and at "
                             f"{first} for the mask")
        options.update(position_bias)
        bias.append(options.pop("bias", None))
    elif position_bias is not None:
        bias.append(position_bias)
    if s_aux is not None:
        options["sink"] = relpos.Sink(s_aux)
    if dropout:
        options.update(_drawn(dropout))
    wants_weights = bool(output_attentions) or _records_attentions()
    found = relpos.attention(query, key, value, bias=_added(*bias) or None, scale=scaling, softcap=softcap,
                             return_weights=wants_weights, **options)
    out, weights = (found.out, found.weights) if wants_weights else (found, None)
    return out.transpose(1, 2).contiguous(), weights


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=masking_utils.causal_mask_function,
         attention_mask=None, **others):
    """The mask function of transformers: a Mask. A mask_function that is not known becomes an array of queries by keys."""
    options = {}
    shape = (batch_size, 1, q_length, kv_length)
    if _read(mask_function, options) or _read_intervals(mask_function, options := {}, torch.arange(q_length) + q_offset, kv_offset):
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        if padding is not None:
            padding = padding[:, kv_offset:kv_offset + kv_length].bool()
            if not _masks_nothing(padding):
                options["key_mask"] = padding.contiguous()
        if q_length == 1 or isinstance(q_offset, torch.Tensor) or q_offset != kv_offset:
            options["q_offset"] = _offset(q_offset - kv_offset)
        return _made(shape, options)
    others.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    array = masking_utils.sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function=mask_function,
                                    attention_mask=attention_mask, **others)
    return _made(shape, {"mask": array})


def _offset(q_offset):
    """The position of query 0, of which a static cache has a tensor, which changes as the cache is filled: where torch traces it stays one,
    so that a step is not traced for each value."""
    return int(q_offset) if not isinstance(q_offset, torch.Tensor) or not _traces() else q_offset.clone().reshape(1)


def _read(function, options):
    """Add what a mask function of transformers says to options; False if it is not known."""
    if function is masking_utils.bidirectional_mask_function:
        return True
    if function is masking_utils.causal_mask_function:
        options["causal"] = True
        return True
    maker, held = _held(function)
    if maker == "and_masks":
        return all(_read(part, options) for part in held["mask_functions"])
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
    if maker != "blockwise_overlay" or _traces():
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


def _asked(module, *_, **__):
    return getattr(getattr(module, "config", None), "_attn_implementation", None) == NAME


def _replace(cls, name, when):
    """Decorate what takes the place of a method in the calls of which `when` is true; it gets the method after self."""
    def decorate(function):
        original = getattr(cls, name)

        @functools.wraps(original)
        def method(self, *args, **kwargs):
            if when(self, *args, **kwargs):
                return function(self, original, *args, **kwargs)
            return original(self, *args, **kwargs)

        setattr(cls, name, method)
        cls._asks_relpos = cls is not PreTrainedModel
    return decorate


def _t5_bias(module, q_offset=0):
    """The options that stand for the bias of an attention module with T5's table, or without one."""
    if not hasattr(module, "relative_attention_bias"):
        return {}
    term = relpos.T5(module.relative_attention_bias.weight, buckets=module.relative_attention_num_buckets,
                     max_distance=module.relative_attention_max_distance, bidirectional=not getattr(module, "is_decoder", True))
    return {"bias": term, "q_offset": _offset(q_offset)}


def _t5(cls):
    """T5Attention and its copies: compute_bias gives a dictionary, and is asked where forward would make zeros."""
    @_replace(cls, "compute_bias", _asked)
    def compute_bias(self, original, query_length, key_length, device=None, past_seen_tokens=0):
        return _t5_bias(self, past_seen_tokens)

    @_replace(cls, "forward", _asked)
    def forward(self, original, *args, **kwargs):
        self.has_relative_attention_bias = True
        try:
            return original(self, *args, **kwargs)
        finally:
            self.has_relative_attention_bias = hasattr(self, "relative_attention_bias")


def _given(self, *args, **kwargs):
    return any(isinstance(x, _MASKS) for x in (*args, *kwargs.values()))


def _bloom(module):
    """BLOOM: its slopes times key positions are ALiBi but for a constant in each row. Where padding lies between tokens, positions
    count tokens."""
    @_replace(module.BloomAttention, "forward", _given)
    def forward(self, original, hidden_states, residual, alibi, attention_mask, layer_past=None, use_cache=False,
                output_attentions=False, **others):
        if not attention_mask.options.get("causal") or (self.pretraining_tp > 1 and self.slow_but_exact):
            raise ValueError(f'attn_implementation="{NAME}": BLOOM without a causal mask, or with slow_but_exact: use "eager"')
        query, key, value = self._reshape(self.query_key_value(hidden_states))
        if layer_past is not None:
            key, value = layer_past.update(key, value, self.layer_idx)
        out, weights = attention(self, query, key, value, attention_mask, scaling=self.inv_norm_factor,
                                 dropout=self.attention_dropout.p if self.training else 0.0, output_attentions=output_attentions,
                                 position_bias={"bias": relpos.ALiBi(**_token_positions(attention_mask))})
        return module.dropout_add(self.dense(out.flatten(2)), residual, self.hidden_dropout, self.training), weights


def _token_positions(mask):
    """Positions of queries and keys where the key mask has holes, within which indices do not count tokens; where torch traces, for
    any key mask."""
    keys = mask.options.get("key_mask")
    if keys is None:
        return {}
    if not _traces() and not (keys[:, 1:] > keys[:, :-1]).sum(1).add(keys[:, 0]).gt(1).any():
        return {}
    positions, first = keys.cumsum(1) - 1, mask.options.get("q_offset", 0)
    queries = (torch.arange(mask.shape[-2], device=keys.device) + first).expand(len(keys), -1)
    return {"q_positions": positions.gather(1, queries), "k_positions": positions}


def _shifted(mask, windows):
    """The options for the mask of shifted windows (windows of an image, length, length), whose -100 are a mask."""
    if mask is None:
        return {}
    return {"mask": (mask == 0).repeat(windows // len(mask), 1, 1)[:, None]}


def _swin(module):
    """Swin: the table of a window."""
    @_replace(module.SwinAttention, "forward", _asked)
    def forward(self, original, hidden_states, attention_mask=None, **kwargs):
        query, key, value = (_heads(project(hidden_states), self.q_proj.out_features // self.head_dim)
                             for project in (self.q_proj, self.k_proj, self.v_proj))
        bias = self.relative_position_bias
        out, weights = attention(self, query, key, value, None, scaling=self.scaling, **kwargs,
                                 dropout=self.attention_dropout if self.training else 0.0, position_bias={
                                     "bias": relpos.Swin(bias.relative_position_bias_table, grid=bias.window_size),
                                     **_shifted(attention_mask, len(hidden_states))})
        return self.o_proj(out.flatten(2)), weights


def _windows(cls, scores):
    """Attention in windows of an image; scores gives query, key, scaling and table."""
    @_replace(cls, "forward", _asked)
    def forward(self, original, hidden_states, attention_mask=None, output_attentions=False):
        query, key, value = (_heads(project(hidden_states), self.num_attention_heads) for project in (self.query, self.key, self.value))
        query, key, scaling, table = scores(self, query, key)
        out, weights = attention(self, query, key, value, None, is_causal=False, scaling=scaling, output_attentions=output_attentions,
                                 dropout=self.dropout.p if self.training else 0.0, position_bias={
                                     "bias": relpos.Swin(table, grid=self.window_size), **_shifted(attention_mask, len(hidden_states))})
        return (out.flatten(2), weights)[:1 + bool(output_attentions)]


def _swinv2(module, name="Swinv2"):
    """Swin v2 and its copy: a table that a network makes, and cosines for scores."""
    def scores(self, query, key):
        normalize, scale = torch.nn.functional.normalize, self.logit_scale.clamp(max=math.log(100)).exp()
        table = 16 * self.continuous_position_bias_mlp(self.relative_coords_table).flatten(0, -2).sigmoid()
        return normalize(query, dim=-1) * scale, normalize(key, dim=-1), 1.0, table

    _windows(getattr(module, f"{name}SelfAttention"), scores)


def _swin_copy(module, name):
    """Swin as transformers had it before, in models that have copies of it."""
    _windows(getattr(module, f"{name}SelfAttention"),
             lambda self, query, key: (query, key, self.attention_head_size ** -0.5, self.relative_position_bias_table))


def _vitdet(module, names=("VitDetAttention",), always=False):
    """ViTDet, and the images of SAM: vectors by row and column. SAM's return the weights always, or None."""
    def table(x, size):
        size = 2 * size - 1
        return x if len(x) == size else torch.nn.functional.interpolate(x.t()[None], size=size, mode="linear")[0].t().contiguous()

    def forward(self, original, hidden_states, output_attentions=False):
        batch, height, width, _ = hidden_states.shape
        heads = getattr(self, "num_heads", None) or self.num_attention_heads
        query, key, value = self.qkv(hidden_states).view(batch, height * width, 3, heads, -1).permute(2, 0, 3, 1, 4)
        options = {"relkey": relpos.AxialKey(table(self.rel_pos_h, height), table(self.rel_pos_w, width), grid=(height, width))
                   } if hasattr(self, "rel_pos_h") else {}
        out, weights = attention(self, query, key, value, None, is_causal=False, scaling=self.scale, output_attentions=output_attentions,
                                 dropout=getattr(self, "dropout", 0.0) if self.training else 0.0, position_bias=options)
        found = self.proj(out.reshape(batch, height, width, -1)), weights.flatten(0, 1) if always and weights is not None else weights
        return found[:1 + bool(always or output_attentions)]

    for name in names:
        _replace(getattr(module, name), "forward", _asked)(forward)


def _sam(module):
    _vitdet(module, ("SamVisionAttention", "SamVisionSdpaAttention"), True)


def _sam_hq(module):
    _vitdet(module, ("SamHQVisionAttention", "SamHQVisionSdpaAttention"), True)


def _siglip2(module):
    """SigLIP 2: a query pools an image by torch.nn.MultiheadAttention, which cannot take what stands for a mask."""
    @_replace(module.Siglip2MultiheadAttentionPoolingHead, "forward", _asked)
    def forward(self, original, hidden_state, attention_mask=None):
        probe, pool = self.probe.expand(len(hidden_state), -1, -1), self.attention
        if attention_mask is not None:
            attention_mask = module.create_bidirectional_mask(config=self.config, inputs_embeds=probe, attention_mask=attention_mask,
                                                              encoder_hidden_states=hidden_state)
        query, key, value = (_heads(torch.nn.functional.linear(x, weight, bias), self.num_heads) for x, weight, bias in zip(
            (probe, hidden_state, hidden_state), pool.in_proj_weight.chunk(3), pool.in_proj_bias.chunk(3)))
        out, _ = attention(self, query, key, value, attention_mask, is_causal=False, output_attentions=False)
        out = pool.out_proj(out.flatten(2))
        return (out + self.mlp(self.layernorm(out)))[:, 0]


def _gemma4(module):
    """Gemma 4: the attention of its sounds is the model's own, and computes with its mask."""
    @_replace(module.Gemma4AudioModel, "forward", _asked)
    def forward(self, original, *args, **kwargs):
        self.config._attn_implementation = "eager"
        try:
            return original(self, *args, **kwargs)
        finally:
            self.config._attn_implementation = NAME


def _mpnet(module):
    """MPNet: T5's buckets, 32 of them."""
    @_replace(module.MPNetEncoder, "compute_position_bias", _asked)
    def compute_position_bias(self, original, x, position_ids=None, num_buckets=32):
        return {"bias": relpos.T5(self.relative_attention_bias.weight[:num_buckets], buckets=num_buckets)}

    @_replace(module.MPNetSelfAttention, "forward", _asked)
    def forward(self, original, hidden_states, attention_mask=None, position_bias=None, output_attentions=False, **others):
        query, key, value = (_heads(project(hidden_states), self.num_attention_heads) for project in (self.q, self.k, self.v))
        out, weights = attention(self, query, key, value, attention_mask, output_attentions=output_attentions, position_bias=position_bias,
                                 dropout=self.dropout.p if self.training else 0.0)
        return (self.o(out.flatten(2)), weights)[:1 + bool(output_attentions)]


def _layoutlmv3(module):
    """LayoutLMv3: T5's buckets of tokens, and of the boxes' left and lower edges; the model itself gives their tables no gradient."""
    def term(self, bias, positions, max_distance):
        table = bias.weight.detach().t() / (self.config.hidden_size // self.config.num_attention_heads) ** 0.5
        return relpos.T5(table.contiguous(), buckets=len(table), max_distance=max_distance, q_positions=positions, k_positions=positions)

    @_replace(module.LayoutLMv3Encoder, "_cal_1d_pos_emb", _asked)
    def _cal_1d_pos_emb(self, original, position_ids):
        return term(self, self.rel_pos_bias, position_ids, self.max_rel_pos)

    @_replace(module.LayoutLMv3Encoder, "_cal_2d_pos_emb", _asked)
    def _cal_2d_pos_emb(self, original, bbox):
        return sum(term(self, bias, bbox[..., n].contiguous(), self.max_rel_2d_pos)
                   for bias, n in ((self.rel_pos_x_bias, 0), (self.rel_pos_y_bias, 3)))

    if hasattr(module.LayoutLMv3Encoder, "_compute_position_bias"):  # since 5.24, whose attention asks for its function
        @_replace(module.LayoutLMv3Encoder, "_compute_position_bias", _asked)
        def _compute_position_bias(self, original, position_ids, bbox):
            if not self.has_relative_attention_bias:
                return None
            boxes = self._cal_2d_pos_emb(bbox) if self.has_spatial_attention_bias else None
            return {"bias": _added(self._cal_1d_pos_emb(position_ids), boxes)}
        return

    @_replace(module.LayoutLMv3SelfAttention, "forward", _asked)
    def forward(self, original, hidden_states, attention_mask=None, rel_pos=None, rel_2d_pos=None, **others):
        query, key, value = (_heads(project(hidden_states), self.num_attention_heads) for project in (self.query, self.key, self.value))
        boxes = rel_2d_pos if self.has_relative_attention_bias else None  # eager attention reads them with the others alone
        out, weights = attention(self, query, key, value, attention_mask, dropout=self.dropout.p if self.training else 0.0,
                                 output_attentions=others.get("output_attentions"), position_bias={"bias": _added(rel_pos, boxes) or None})
        return out.flatten(2), weights


def _wav2vec2_bert(module):
    """Wav2Vec2-BERT and Wav2Vec2-Conformer: vectors for keys, or Transformer-XL's."""
    for name, make in (("_apply_relative_key_position_encoding", lambda self: relpos.RelKey(
            self.distance_embedding.weight, left=self.left_max_position_embeddings, right=self.right_max_position_embeddings)),
                       ("_apply_relative_position_encoding", lambda self, positions: relpos.XL(
                           _heads(self.linear_pos(positions[0]), self.num_heads).contiguous(), self.pos_bias_u, self.pos_bias_v))):
        if (original := getattr(module, name, None)) is not None:
            def apply(self, query, key, *positions, original=original, make=make):
                return (query, {"relkey": make(self, *positions)}) if _asked(self) else original(self, query, key, *positions)

            setattr(module, name, apply)


def _wavlm(module):
    """WavLM: a table of buckets, times a gate of each query. That is a product with vectors for keys which have one channel more than q, and
    are zero in the others: the gate is q's in that channel, and k's is zero."""
    @_replace(module.WavLMAttention, "forward", _asked)
    def forward(self, original, hidden_states, attention_mask=None, position_bias=None, index=0, output_attentions=False, **others):
        query, key, value = (_heads(project(hidden_states), self.num_heads) for project in (self.q_proj, self.k_proj, self.v_proj))
        reach = min(hidden_states.shape[1] - 1, self.max_distance)  # from there on every offset has the last bucket
        if position_bias is None:  # of the first layer: (H, 2 reach + 1, 1)
            offsets = torch.arange(-reach, reach + 1, device=hidden_states.device)
            position_bias = self.rel_attn_embed(self._relative_positions_bucket(offsets)).t()[..., None]
        gates = self.gru_rel_pos_linear(_heads(hidden_states, self.num_heads)).unflatten(-1, (2, 4)).sum(-1).sigmoid()
        gate = gates[..., :1] * (gates[..., 1:] * self.gru_rel_pos_const - 1) + 2
        pad = torch.nn.functional.pad
        options = {"relkey": relpos.RelKey(pad(position_bias, (self.head_dim, 0)), left=reach, right=reach)}
        if attention_mask is not None:
            options["key_mask"] = attention_mask == 1
        out, weights = attention(self, torch.cat([query, gate / self.scaling], -1), pad(key, (0, 1)), value, None, is_causal=False,
                                 scaling=self.scaling, position_bias=options, output_attentions=output_attentions,
                                 dropout=self.dropout if self.training else 0.0)
        weights = None if weights is None else weights.mean(1, True).expand_as(weights)  # as eager attention has them
        return self.out_proj(out.flatten(2)), weights, position_bias


def _wants_weights(block):
    """Where a block keeps from its attention whether weights are wanted."""
    @_replace(block, "forward", lambda self, *_, **__: _asked(self.attn))
    def forward(self, original, *args, output_attentions=False, **kwargs):
        self.attn.wants_weights = output_attentions
        return original(self, *args, output_attentions=output_attentions, **kwargs)


def _gptj(module, name="GPTJ"):
    """GPT-J and CodeGen, which rotate queries and keys themselves. Since 5.24 their attention asks for its function, and is left alone."""
    if not hasattr(getattr(module, name + "Attention"), "_attn"):
        return
    _wants_weights(getattr(module, name + "Block"))

    @_replace(getattr(module, name + "Attention"), "_attn", _asked)
    def _attn(self, original, query, key, value, attention_mask=None):
        out, weights = attention(self, query.to(value.dtype), key.to(value.dtype), value, attention_mask,
                                 scaling=1 / float(self.scale_attn), output_attentions=self.wants_weights,
                                 dropout=self.attn_dropout.p if self.training else 0.0)
        return out.transpose(1, 2), weights


def _roformer(module):
    """RoFormer, which rotates queries, keys and, where it is told to, values itself."""
    @_replace(module.RoFormerSelfAttention, "forward", _asked)
    def forward(self, original, hidden_states, attention_mask=None, sinusoidal_pos=None, output_attentions=False, **others):
        query, key, value = (_heads(project(hidden_states), self.num_attention_heads) for project in (self.query, self.key, self.value))
        if sinusoidal_pos is not None:
            rotated = self.apply_rotary_position_embeddings(sinusoidal_pos, query, key, value if self.rotary_value else None)
            query, key, value = (*rotated, value)[:3]
        out, weights = attention(self, query, key, value, attention_mask, output_attentions=output_attentions,
                                 dropout=self.dropout.p if self.training else 0.0)
        return out.flatten(2), weights


def _mpt(module):
    """MPT: ALiBi, with slopes of its own, which the last two of its biases tell."""
    _wants_weights(module.MptBlock)

    @_replace(module.MptAttention, "forward", _asked)
    def forward(self, original, hidden_states, position_bias, past_key_values=None, attention_mask=None, cache=None, **others):
        past_key_values = cache if past_key_values is None else past_key_values  # its name since 5.24
        mixed = self.Wqkv(hidden_states)
        if self.clip_qkv:
            mixed = mixed.clamp(min=-self.clip_qkv, max=self.clip_qkv)
        query, key, value = (_heads(x, self.n_heads) for x in mixed.chunk(3, -1))
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        slopes = position_bias[:, 0, -1] - position_bias[:, 0, -2]
        out, weights = attention(self, query, key, value, attention_mask, scaling=self.softmax_scale,
                                 output_attentions=self.wants_weights, position_bias={"bias": relpos.ALiBi(slopes)},
                                 dropout=self.attn_dropout_p if self.training else 0.0)
        return self.out_proj(out.flatten(2)), weights


def _falcon(module):
    """Falcon: rotated, or with a bias of each key, which the model would add to its mask."""
    @_replace(module.FalconModel, "forward", _asked)
    def model(self, original, *args, **kwargs):
        self.use_alibi = False
        try:
            return original(self, *args, **kwargs)
        finally:
            self.use_alibi = self.config.alibi

    @_replace(module.FalconAttention, "forward", _given)
    def forward(self, original, hidden_states, alibi, attention_mask, position_ids=None, layer_past=None, use_cache=False,
                output_attentions=False, position_embeddings=None, **others):
        query, key, value = (x.transpose(1, 2) for x in self._split_heads(self.query_key_value(hidden_states)))
        if not self.config.alibi:
            query, key = module.apply_rotary_pos_emb(query, key, *position_embeddings)
        if layer_past is not None:
            key, value = layer_past.update(key, value, self.layer_idx)
        bias = {}
        if self.config.alibi:
            tokens = attention_mask.options.get("key_mask")
            tokens = torch.ones(len(key), key.shape[-2], dtype=torch.long) if tokens is None else tokens
            columns = module.build_alibi_tensor(tokens, self.num_heads, query.dtype).unflatten(0, (len(key), -1))
            bias["bias"] = relpos.Dense(columns * self.inv_norm_factor)
        out, weights = attention(self, query, key, value, attention_mask, output_attentions=output_attentions, position_bias=bias,
                                 dropout=self.attention_dropout.p if self.training and bias else 0.0)
        return self.dense(out.flatten(2)), weights


def _xlnet(module):
    """XLNet: Transformer-XL's products. Its masks and segments are arrays of queries by keys, which the model makes."""
    @_replace(module.XLNetRelativeAttention, "rel_attn_core", _asked)
    def rel_attn_core(self, original, q_head, k_head_h, v_head_h, k_head_r, seg_mat=None, attn_mask=None, output_attentions=False):
        lq, lk = len(q_head), len(k_head_h)
        vectors = torch.nn.functional.pad(k_head_r[1:lq + lk], (0, 0) * 3 + (0, max(0, lq + lk - len(k_head_r))))
        same = not (self.config.bi_data or self.training and self.dropout.p)  # for every batch entry
        found = []
        for at in [slice(None)] if same else [slice(n, n + 1) for n in range(q_head.shape[1])]:
            query, key, value = (x[:, at].permute(1, 2, 0, 3) for x in (q_head, k_head_h, v_head_h))
            r = vectors[:, at][:, 0].transpose(0, 1).contiguous()
            options = {"q_offset": lk - lq, "relkey": relpos.XL(r, self.r_w_bias, self.r_r_bias)}
            if attn_mask is not None:
                options["mask"] = attn_mask[:, :, at].permute(2, 3, 0, 1) == 0
            if seg_mat is not None:
                of = torch.einsum("bnid,snd->bnis", query + self.r_s_bias[:, None], self.seg_embed) * self.scale
                options["bias"] = relpos.Dense(torch.einsum("ijbs,bnis->bnij", seg_mat[:, :, at], of))
            found.append(attention(self, query, key, value, None, is_causal=False, scaling=self.scale, position_bias=options,
                                   dropout=self.dropout.p if self.training else 0.0, output_attentions=output_attentions))
        out = torch.cat([out for out, _ in found]).transpose(0, 1)
        return (out, torch.cat([weights for _, weights in found]).permute(2, 3, 0, 1)) if output_attentions else out


def _heads(x, count):
    """(..., L, H D) as (..., H, L, D)."""
    return x.unflatten(-1, (count, -1)).transpose(-2, -3)


def _deberta(module, encoder="DebertaEncoder"):
    """DeBERTa: content to position and position to content, without positions of queries by keys."""
    @_replace(getattr(module, encoder), "get_rel_pos", lambda self, *_, **__: _asked(self.layer[0].attention))
    def get_rel_pos(self, original, hidden_states, query_states=None, relative_pos=None):
        if relative_pos is not None or query_states is not None:
            raise ValueError(f'attn_implementation="{NAME}": DeBERTa with relative_pos or query_states given: use "eager"')

    @_replace(getattr(module, encoder), "get_attention_mask", lambda self, *_, **__: _asked(self.layer[0].attention))
    def get_attention_mask(self, original, attention_mask):
        batch, length = attention_mask.shape[0], attention_mask.shape[-1]
        given = attention_mask.bool()
        options = {"key_mask": given} if given.dim() <= 2 else {"mask": original(self, given)}
        return _made((batch, 1, length, length), {} if _masks_nothing(given) else options)

    @_replace(module.DisentangledSelfAttention, "forward", _given)
    def forward(self, original, hidden_states, attention_mask, output_attentions=False, query_states=None, relative_pos=None,
                rel_embeddings=None):
        def heads(x):
            return _heads(x, self.num_attention_heads)

        kinds = [kind for kind in ("c2p", "p2c") if kind in self.pos_att_type]
        if hasattr(self, "in_proj"):  # the first version
            query, key, value = heads(self.in_proj(hidden_states)).chunk(3, -1)
            query, value = query + heads(self.q_bias[None]), value + heads(self.v_bias[None])
            to_key, to_query, options, parts = "pos_proj", "pos_q_proj", {"span": 0, "buckets": -1}, len(self.pos_att_type)
        else:
            query, key, value = (heads(project(hidden_states)) for project in (self.query_proj, self.key_proj, self.value_proj))
            to_key, to_query = ("key_proj", "query_proj") if self.share_att_key else ("pos_key_proj", "pos_query_proj")
            options, parts = {"span": getattr(self, "pos_ebd_size", 0), "buckets": getattr(self, "position_buckets", -1)}, len(kinds)
        relkey = {}
        if self.relative_attention and kinds:
            vectors = self.pos_dropout(rel_embeddings)[:2 * (options["span"] or self.max_relative_positions)]
            relkey["relkey"] = relpos.Deberta(
                heads(getattr(self, to_key)(vectors)).contiguous() if "c2p" in kinds else None,
                heads(getattr(self, to_query)(vectors)).contiguous() if "p2c" in kinds else None,
                max_position=self.max_relative_positions, **options)
        out, weights = attention(self, query, key, value, attention_mask, position_bias=relkey, output_attentions=output_attentions,
                                 scaling=(query.shape[-1] * (1 + parts)) ** -0.5,
                                 dropout=self.dropout.p if self.training else 0.0)
        return out.flatten(2), weights


def _deberta_v2(module):
    _deberta(module, "DebertaV2Encoder")


def _longt5(module):
    """LongT5 with local attention: a window of local_radius to each side."""
    @_replace(module.LongT5Stack, "forward", lambda self, *_, **__: _asked(self) and not self.is_decoder)
    def stack(self, original, input_ids=None, attention_mask=None, encoder_hidden_states=None, encoder_attention_mask=None,
              inputs_embeds=None, **kwargs):
        batch, length = (input_ids if input_ids is not None else inputs_embeds).shape[:2]
        options = {"window": (self.local_radius, self.local_radius)}
        if attention_mask is not None:
            options["key_mask"] = attention_mask.bool()
        return original(self, input_ids, _made((batch, 1, length, length), options), encoder_hidden_states, encoder_attention_mask,
                        inputs_embeds, **kwargs)

    local_mask = module._get_local_attention_mask
    module._get_local_attention_mask = lambda mask, *args: mask if isinstance(mask, _MASKS) else local_mask(mask, *args)

    @_replace(module.LongT5LocalAttention, "forward", _given)
    def forward(self, original, hidden_states, mask=None, position_bias=None, output_attentions=False):
        query, key, value = (project(hidden_states).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
                             for project in (self.q, self.k, self.v))
        position_bias = _t5_bias(self) if position_bias is None else position_bias
        out, weights = attention(self, query, key, value, mask, scaling=1.0, position_bias=position_bias,
                                 dropout=self.dropout if self.training else 0.0, output_attentions=output_attentions)
        found = self.o(out.flatten(2)), position_bias
        return (*found, weights) if output_attentions else found


_LACKS = {"longt5": lambda config: config.encoder_attention_type != "local", "roformer": lambda config: config.is_decoder,
          "deberta": lambda config: getattr(config, "talking_head", False),
          **dict.fromkeys((  # those that compute with their masks or have sinks of their own, and bridgetower, which says that attention
              # is causal where eager attention is not: bench/results/hf_models.json is of a sweep that finds such models
              "axk2", "bigbird_pegasus", "bridgetower", "deepseek_v32", "deepseek_v4", "doge", "glm_moe_dsa", "hy_v4", "informer", "inkling2",
              "inkling2_text", "lasr_ctc", "lasr_encoder", "lightglue", "mistral_large4", "mistral_large4_text", "muse_glimmer_assistant", "t5gemma2"), lambda config: True)}


def _adopt(model):
    """Tell modules that have replacements, and keep no config, which one is theirs."""
    for part in reversed([x for x in model.modules() if isinstance(x, PreTrainedModel)]):  # those within come first
        for x in part.modules():
            if getattr(type(x), "_asks_relpos", False) and not hasattr(x, "config"):
                x.config = part.config


def _tell_unused(model):
    """Warn of a model none of whose modules asks transformers for its attention function, as a wrapper of another library's model."""
    if not any(hasattr(sys.modules.get(type(x).__module__), "ALL_ATTENTION_FUNCTIONS") or getattr(type(x), "_asks_relpos", False)
               for x in model.modules()):
        warnings.warn(f'attn_implementation="{NAME}" changes nothing in {type(model).__name__}: it asks for no attention function, and '
                      'computes as it did', stacklevel=4)


_ADAPTED = {"longt5": _longt5, "bloom": _bloom, "swin": _swin, "swinv2": _swinv2, "swin2sr": functools.partial(_swinv2, name="Swin2SR"),
            "donut.modeling_donut_swin": functools.partial(_swin_copy, name="DonutSwin"), "clap": functools.partial(_swin_copy, name="ClapAudio"),
            "maskformer.modeling_maskformer_swin": functools.partial(_swin_copy, name="MaskFormerSwin"), "vitdet": _vitdet, "sam": _sam, "sam_hq": _sam_hq,
            "siglip2": _siglip2, "gemma4": _gemma4,
            "deberta": _deberta, "deberta_v2": _deberta_v2, "mpnet": _mpnet, "layoutlmv3": _layoutlmv3, "xlnet": _xlnet,
            "wav2vec2_bert": _wav2vec2_bert, "wav2vec2_conformer": _wav2vec2_bert, "gptj": _gptj,
            "wavlm": _wavlm, "codegen": functools.partial(_gptj, name="CodeGen"), "roformer": _roformer, "mpt": _mpt, "falcon": _falcon}


_failed = {}  # module of transformers: why it could not be adapted


def _try(module, adapt):
    """Adapt a module, and note where that fails: its models are refused when they are set, and others work."""
    try:
        adapt(module)
    except Exception as why:
        _failed[module.__name__] = f"{type(why).__name__}: {why}"


def _register():
    if NAME in AttentionInterface():
        return
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)

    for name in ("get_correct_attn_implementation", "set_attn_implementation"):  # of a new model, and of one that is there
        @_replace(PreTrainedModel, name, lambda self, *args, **kwargs: NAME in (*args, *kwargs.values()))
        def refuse(self, original, *args, **kwargs):
            modules = [sys.modules.get(cls.__module__) for cls in type(self).__mro__ if issubclass(cls, PreTrainedModel)]
            fixed = any(name.endswith("ATTENTION_CLASSES") and isinstance(x, dict) and NAME not in x
                        for module in modules for name, x in vars(module).items())
            for module in modules:
                if module is not None and module.__name__ in _failed:
                    raise Refused(f'attn_implementation="{NAME}": {type(self).__name__} of transformers {transformers.__version__} differs '
                                  f'from those that relpos knows ({_failed[module.__name__]}): use attn_implementation="eager", or '
                                  'another version of transformers')
            if fixed or not self._can_set_attn_implementation() or _LACKS.get(self.config.model_type, lambda config: False)(self.config):
                raise Refused(f'attn_implementation="{NAME}": {type(self).__name__} computes its attention by itself, and '
                              'relpos has no replacement for it: use attn_implementation="eager"')
            found = original(self, *args, **kwargs)
            if original.__name__ == "set_attn_implementation":
                _adopt(self)
                _tell_unused(self)
            return found

    @_replace(PreTrainedModel, "post_init", _asked)
    def post_init(self, original):
        _adopt(self)
        _tell_unused(self)
        return original(self)

    @functools.wraps(masking_utils.create_masks_for_generate)
    def create_masks_for_generate(config, *args, **kwargs):
        """None is made ahead of a step, as for a static cache, where it could not be traced: the model makes its own of the padding."""
        if config.get_text_config()._attn_implementation == NAME and "attention_mask" in kwargs:
            return kwargs["attention_mask"]
        return masking_utils.create_masks_for_generate(config, *args, **kwargs)

    generation_utils.create_masks_for_generate = create_masks_for_generate

    def models(name):
        return importlib.import_module(f"transformers.models.{name if '.' in name else f'{name}.modeling_{name}'}")

    for name, cls in [("t5", "T5Attention"), ("mt5", "MT5Attention"), ("umt5", "UMT5Attention"), ("longt5", "LongT5Attention"),
                      ("switch_transformers", "SwitchTransformersAttention"), ("pop2piano", "Pop2PianoAttention"),
                      ("pix2struct", "Pix2StructTextAttention")]:
        _try(models(name), lambda module: _t5(getattr(module, cls)))
    for name, adapt in _ADAPTED.items():
        module = models(name)
        _try(module, adapt)
        for name, x in list(vars(module).items()):
            if name.endswith("ATTENTION_CLASSES"):  # of what a new model takes
                x[NAME] = x["eager"]
            elif name.endswith("PreTrainedModel") and name != "PreTrainedModel":
                x._can_set_attn_implementation_cached_value = True


_register()
