"""attn_implementation="relpos" for models of Hugging Face transformers, on a CPU.

    >>> import relpos.hf                                                                          # doctest: +SKIP
    >>> model = transformers.AutoModel.from_pretrained(name, attn_implementation="relpos")        # doctest: +SKIP

Importing this module registers it. Every model that asks transformers for its attention function can take it; what such a model
hands over as an array (a bias, a mask of its caller) is used as given. No bias and no mask of queries by keys is made for

- masks: padding, causal, sliding windows and packed sequences, in any model;
- T5, mT5, UMT5, LongT5 (local attention), Switch Transformers and Pop2Piano: the table of buckets;
- BLOOM: ALiBi; Swin: the table of a window; DeBERTa-v2 and v3: vectors of positions.

torch.compile makes one graph of a model where eager attention does, a step with a static cache too, and torch.autocast,
torch.jit.trace and checkpoints of gradients take it as they take others. Attentions that a model returns (output_attentions) are for
looking at: a loss that depends on them raises. Continuous batching (generate_batch) is refused by transformers.

A model whose attention cannot be replaced is refused, and one that never asks for an attention function, as a wrapper of another
library's model, gets a warning. A query without a key gives zero, where other implementations give a mean
of masked values; this concerns padding, whose results are not used.

SPDX-License-Identifier: Apache-2.0"""
import functools
import importlib
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
        if name in ("contiguous", "detach", "clone"):
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


class TracedMask:
    """A Mask where torch traces, which knows no tensors without elements: shape and options alone."""

    def __init__(self, shape, options):
        self.shape, self.options, self.lengths = shape, options, shape[-2:]


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
        first = options.get("q_offset", 0)
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
    if _read(mask_function, options):
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
    if getattr(function, "__module__", None) != masking_utils.__name__ or not function.__closure__:
        return False
    held = {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__)}
    maker = function.__qualname__.partition(".")[0]
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


def _asked(module, *_, **__):
    return module.config._attn_implementation == NAME


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
                     max_distance=module.relative_attention_max_distance, bidirectional=not module.is_decoder)
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

    module.BloomPreTrainedModel._can_set_attn_implementation_cached_value = True


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


def _swin(module):
    """Swin: the table of a window, and its shift mask, whose -100 are a mask."""
    @_replace(module.SwinAttention, "forward", _asked)
    def forward(self, original, hidden_states, attention_mask=None, **kwargs):
        *shape, length = hidden_states.shape[:-1]
        query, key, value = (project(hidden_states).view(*shape, length, -1, self.head_dim).transpose(1, 2)
                             for project in (self.q_proj, self.k_proj, self.v_proj))
        bias = self.relative_position_bias
        options = {"bias": relpos.Swin(bias.relative_position_bias_table, grid=bias.window_size)}
        if attention_mask is not None:  # (windows, length, length), the same for each image
            images = len(hidden_states) // len(attention_mask)
            options["mask"] = (attention_mask == 0).expand(images, -1, -1, -1).reshape(-1, 1, length, length)
        out, weights = attention(self, query, key, value, None, scaling=self.scaling, position_bias=options,
                                 dropout=self.attention_dropout if self.training else 0.0, **kwargs)
        return self.o_proj(out.flatten(2)), weights


def _deberta(module):
    """DeBERTa-v2 and v3: content to position and position to content, without positions of queries by keys."""
    @_replace(module.DebertaV2Encoder, "get_rel_pos", lambda self, *_, **__: _asked(self.layer[0].attention))
    def get_rel_pos(self, original, hidden_states, query_states=None, relative_pos=None):
        if relative_pos is not None or query_states is not None:
            raise ValueError(f'attn_implementation="{NAME}": DeBERTa with relative_pos or query_states given: use "eager"')

    @_replace(module.DebertaV2Encoder, "get_attention_mask", lambda self, *_, **__: _asked(self.layer[0].attention))
    def get_attention_mask(self, original, attention_mask):
        batch, length = attention_mask.shape[0], attention_mask.shape[-1]
        given = attention_mask.bool()
        options = {"key_mask": given} if given.dim() <= 2 else {"mask": original(self, given)}
        return _made((batch, 1, length, length), {} if _masks_nothing(given) else options)

    @_replace(module.DisentangledSelfAttention, "forward", _given)
    def forward(self, original, hidden_states, attention_mask, output_attentions=False, query_states=None, relative_pos=None,
                rel_embeddings=None):
        def heads(x):
            return x.view(*x.shape[:-1], self.num_attention_heads, -1).transpose(-2, -3)

        query, key, value = (heads(project(hidden_states)) for project in (self.query_proj, self.key_proj, self.value_proj))
        kinds = [kind for kind in ("c2p", "p2c") if kind in self.pos_att_type]
        options = {}
        if self.relative_attention and kinds:
            vectors = self.pos_dropout(rel_embeddings)[:2 * self.pos_ebd_size]
            to_key, to_query = ((self.key_proj, self.query_proj) if self.share_att_key else
                                (getattr(self, "pos_key_proj", None), getattr(self, "pos_query_proj", None)))
            options["relkey"] = relpos.Deberta(
                heads(to_key(vectors)).contiguous() if "c2p" in kinds else None,
                heads(to_query(vectors)).contiguous() if "p2c" in kinds else None,
                span=self.pos_ebd_size, buckets=self.position_buckets, max_position=self.max_relative_positions)
        out, weights = attention(self, query, key, value, attention_mask, position_bias=options,
                                 output_attentions=output_attentions, scaling=(query.shape[-1] * (1 + len(kinds))) ** -0.5,
                                 dropout=self.dropout.p if self.training else 0.0)
        return out.flatten(2), weights

    module.DebertaV2PreTrainedModel._can_set_attn_implementation_cached_value = True


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


def _tell_unused(model):
    """Warn of a model none of whose modules asks transformers for its attention function, as a wrapper of another library's model."""
    if not any(hasattr(sys.modules.get(type(x).__module__), "ALL_ATTENTION_FUNCTIONS") or getattr(type(x), "_asks_relpos", False)
               for x in model.modules()):
        warnings.warn(f'attn_implementation="{NAME}" changes nothing in {type(model).__name__}: it asks for no attention function, and '
                      'computes as it did', stacklevel=4)


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
            if fixed or not self._can_set_attn_implementation() or getattr(self.config, "encoder_attention_type", "local") != "local":
                raise ValueError(f'attn_implementation="{NAME}": {type(self).__name__} computes its attention by itself, and '
                                 'relpos has no replacement for it: use attn_implementation="eager"')
            found = original(self, *args, **kwargs)
            if original.__name__ == "set_attn_implementation":
                _tell_unused(self)
            return found

    @_replace(PreTrainedModel, "post_init", _asked)
    def post_init(self, original):
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
        return importlib.import_module(f"transformers.models.{name}.modeling_{name}")

    for name, cls in [("t5", "T5Attention"), ("mt5", "MT5Attention"), ("umt5", "UMT5Attention"), ("longt5", "LongT5Attention"),
                      ("switch_transformers", "SwitchTransformersAttention"), ("pop2piano", "Pop2PianoAttention")]:
        _t5(getattr(models(name), cls))
    for name, adapt in [("longt5", _longt5), ("bloom", _bloom), ("swin", _swin), ("deberta_v2", _deberta)]:
        adapt(models(name))


_register()
