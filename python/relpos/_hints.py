"""What an argument is called here that has another name in another library, which term is meant, and a name for calls in profiles.

SPDX-License-Identifier: Apache-2.0"""
import difflib
import inspect
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


_TERMS = {  # for each keyword: an example of its terms, and what an array may be meant for
    "bias": ("relpos.T5(table)", "relpos.Dense(x) adds an array x to the scores, and relpos.T5(table) makes a bias of its table"),
    "rope": ("relpos.RoPE()", "relpos.RoPE() computes the angles"),
    "relkey": ("relpos.RelKey(table, left=8, right=8)", "relpos.RelKey(x, left=r, right=r) takes 2 r + 1 vectors"),
    "relval": ("relpos.RelValue(table, left=8, right=8)", "relpos.RelValue(x, left=r, right=r) takes 2 r + 1 vectors"),
    "sink": ("relpos.Sink(logits)", "relpos.Sink(x) takes a logit for each head"),
}


def term_needed(keyword, given):
    """The message that the argument is no term, and which one it may be meant for.

    >>> term_needed("bias", 0.3)
    'bias is of type float: a term is needed, such as relpos.T5(table), or a sum of terms'
    >>> import relpos
    >>> term_needed("bias", relpos.T5)
    'bias is the class relpos.T5: a term is needed; make one by relpos.T5(table)'
    """
    example, of_array = _TERMS[keyword]
    if isinstance(given, type) and issubclass(given, _core.Term):
        needed = [x.name if x.kind is x.POSITIONAL_OR_KEYWORD else f"{x.name}=..."
                  for x in inspect.signature(given).parameters.values() if x.default is x.empty]
        return f"{keyword} is the class relpos.{given.__name__}: a term is needed; make one by relpos.{given.__name__}({', '.join(needed)})"
    text = f"{keyword} is of type {type(given).__name__}: a term is needed"
    if callable(getattr(given, "term", None)):
        return f"{text}; its method term() makes one"
    if isinstance(given, list) and given and all(isinstance(x, _core.Term) for x in given):
        return f"{text}; sum(terms) adds up a list of them"
    if hasattr(given, "shape") or isinstance(given, list):
        return f"{text}; {of_array}"
    return f"{text}, such as {example}, or a sum of terms"


def named(function, name):
    """The function, which torch's profiler, where it listens, shows by this name."""
    profiler = _modules.get("torch.autograd.profiler")
    if profiler is None or not profiler._is_profiler_enabled or _modules["torch"].compiler.is_compiling():  # whose graph has the name
        return function
    return profiler.record_function(name)(function)
