"""The attention function that models of transformers call.  SPDX-License-Identifier: Apache-2.0"""
import relpos
import torch
from transformers.utils.output_capturing import _active_collector

from ..torch._functional import _added
from . import _sharded
from ._masks import MASKS, NAME, traces

# Keywords that models pass to every attention function, such as inputs of the model. They do not change its result.
WITHOUT_EFFECT = frozenset((
    "cu_seq_lens_k", "cu_seq_lens_q", "deterministic", "max_length_k", "max_length_q", "num_items_in_batch",
    "output_hidden_states",
    "output_router_logits", "position_ids", "return_dict", "seq_idx", "sliding_window", "use_cache",
    "cache_position", "grid_thw", "image_grid_thw", "input_ids", "inputs_embeds", "labels", "logits_to_keep",
    "mm_token_type_ids",
    "token_type_ids", "video_grid_thw"))
KNOWN = {"scaling", "dropout", "position_bias", "softcap", "s_aux", "sinks", "is_causal", "output_attentions"}


def _records_attentions():
    """Return true if transformers collects attention weights with hooks; it then does not pass output_attentions."""
    collected = _active_collector.global_var if traces() else _active_collector.get()
    return collected is not None and any("attentions" in key for key in collected)


def attention(module, query, key, value, attention_mask, *, scaling=None, dropout=0.0, position_bias=None, softcap=None,
              s_aux=None, sinks=None,
              is_causal=None, output_attentions=False, **others):
    """Compute attention with the signature that transformers expects of an attention function.

    query is (B, H, Lq, D), key and value are (B, Hk, Lk, D). Returns the output (B, Lq, H, D) and the weights (B, H,
    Lq, Lk), or None if they were not requested. attention_mask is a Mask, a bool tensor (True = attend) or a tensor
    that is added to the scores. position_bias is a tensor that is added to the scores, or, from the adapters, a
    dictionary of options of relpos.attention or an object with such `options`. s_aux is a sink of each head, and sinks
    one of each query, (B, H, Lq, 1): one more score of the softmax, whose value is zero."""
    for name, given in others.items():
        if given is not None and name not in WITHOUT_EFFECT:
            raise ValueError(f'attn_implementation="{NAME}" does not support the argument {name} of '
                             f'{type(module).__name__}; '
                             'use another implementation for this model')
    options, bias = {}, []
    if isinstance(attention_mask, MASKS):
        if attention_mask.lengths != (query.shape[-2], key.shape[-2]):
            raise ValueError(f"attention_mask is for {attention_mask.lengths} queries and keys, but "
                             f"{type(module).__name__} has "
                             f"{(query.shape[-2], key.shape[-2])}; pass a mask of these lengths")
        options.update(attention_mask.options)
        bias.append(options.pop("bias", None))
    elif attention_mask is None:  # as for sdpa, is_causal decides, and query 0 is aligned with key 0
        if is_causal is None and (is_causal := getattr(module, "is_causal", None)) is None:
            raise ValueError(f'attn_implementation="{NAME}": {type(module).__name__} passes no attention_mask and has '
                             f'no '
                             'is_causal; pass a mask, or use another implementation')
        options["causal"] = bool(is_causal) and (query.shape[-2] > 1 or _sharded.distributed() is not None)
        if options["causal"]:
            options["q_offset"] = 0
    elif attention_mask.dtype == torch.bool:
        options["mask"] = attention_mask
    else:
        bias.append(attention_mask)
    position_bias = getattr(position_bias, "options", position_bias)
    if isinstance(position_bias, dict):
        first = options.get("q_offset", 0) if isinstance(attention_mask, MASKS) else position_bias.get("q_offset", 0)
        # tensors while torch traces
        numbers = isinstance(first, int) and isinstance(position_bias.get("q_offset", first), int)
        if numbers and position_bias.get("q_offset", first) != first:
            raise ValueError(f"{type(module).__name__}: query 0 is at position {position_bias['q_offset']} for the "
                             f"bias, but at {first} for the "
                             "mask; pass a mask that matches the cache")
        options.update(position_bias)
        bias.append(options.pop("bias", None))
    elif position_bias is not None:
        bias.append(position_bias)
    if sinks is not None and sinks.shape != (*query.shape[:-1], 1):
        raise ValueError(f"sinks has shape {tuple(sinks.shape)}, but {type(module).__name__} has queries of shape "
                         f"{tuple(query.shape)}; pass one number for each query, {(*query.shape[:-1], 1)}")
    if sinks is not None:
        logits = sinks[..., 0] if s_aux is None else torch.logaddexp(sinks[..., 0], s_aux[:, None])
        options["sink"] = relpos.Sink(_sharded.distributed().unshard(logits, 2) if _sharded.distributed() else logits)
    elif s_aux is not None:
        options["sink"] = relpos.Sink(s_aux)
    wants_weights = bool(output_attentions) or _records_attentions()
    options |= {"bias": _added(*bias) or None, "scale": scaling, "softcap": softcap, "dropout": dropout}
    if wants_weights:
        options["return_weights"] = True
    found = _sharded.attend(module, query, key, value,
                            options) if _sharded.distributed() else relpos.attention(query, key, value, **options)
    out, weights = (found.out, found.weights) if wants_weights else (found, None)
    return out.transpose(1, 2).contiguous(), weights
