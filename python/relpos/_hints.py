"""What an argument is called here that has another name in another library, and a name for calls in profiles.

SPDX-License-Identifier: Apache-2.0"""
import difflib
from sys import modules as _modules

from . import _core

_HERE = {
    "is_causal": "causal",
    "attn_mask": "mask, true where a pair attends, or bias=relpos.Dense(numbers) for numbers that are added",
    "attention_mask": "key_mask (B, Lk), or mask (B, H, Lq, Lk), true where a pair attends",
    "key_padding_mask": "key_mask, true where a key attends",
    "attn_bias": "bias, a term: relpos.Dense(numbers) for an array",
    "position_bias": "bias, a term: relpos.Dense(numbers) for an array",
    "dropout_p": "dropout",
    "p": "dropout",
    "enable_gqa": "no argument, k and v may have fewer heads than q",
    "softmax_scale": "scale",
    "scaling": "scale",
    "window_size": "window",
    "sliding_window": "window=(sliding_window - 1, 0)",
    "logits_soft_cap": "softcap",
    "alibi_slopes": "bias=relpos.ALiBi(slopes)",
    "seqlens": "lengths, the number of keys of each batch entry",
    "need_weights": "return_weights",
    "output_attentions": "return_weights",
    "num_threads": "threads",
    "num_buckets": "buckets",
    "relative_attention_num_buckets": "buckets",
    "relative_attention_max_distance": "max_distance",
    "n_buckets": "buckets",
    "theta": "base",
    "rope_theta": "base",
    "rope_base": "base",
    "max_relative_position": "left and right, or max_distance",
}


def meant(name, known=None):
    """What to add to the message that no argument has this name: nothing where it tells nothing. known: the names there are; None: those of calls.

    >>> meant("is_causal")
    '; here: causal'
    >>> meant("bucket", ["buckets", "max_distance"])
    '; is buckets meant?'
    """
    if name in _HERE:
        return f"; here: {_HERE[name]}"
    near = difflib.get_close_matches(name, _core.NAMES if known is None else known, 1)
    return f"; is {near[0]} meant?" if near else ""


def named(function, name):
    """The function, which torch's profiler, where it listens, shows by this name."""
    profiler = _modules.get("torch.autograd.profiler")
    if profiler is None or not profiler._is_profiler_enabled or _modules["torch"].compiler.is_compiling():  # whose graph has the name
        return function
    return profiler.record_function(name)(function)
