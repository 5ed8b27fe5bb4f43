"""Suggestions for error messages: for arguments that other libraries name differently, and for arguments that must be
terms. Also has `named`, which shows a call by its name in torch's profiler.

SPDX-License-Identifier: Apache-2.0"""
import difflib
import inspect
from sys import modules as _modules

from . import _core

_HERE = {
    "is_causal": "causal",
    "attn_mask": "mask, true for pairs that attend, or bias=relpos.Dense(numbers) to add numbers to the scores",
    "attention_mask": "key_mask (B, Lk) or mask (B, H, Lq, Lk), true for pairs that attend",
    "key_padding_mask": "key_mask, true for keys to attend to",
    "attn_bias": "bias, a term, such as relpos.Dense(array)",
    "position_bias": "bias, a term, such as relpos.Dense(array)",
    "dropout_p": "dropout",
    "p": "dropout",
    "enable_gqa": "no argument, since k and v may have fewer heads than q",
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
    "layout": "views with the axes (B, H, L, D), such as x.swapaxes(1, 2)",
}


def meant(name, known=None):
    """Return a suggestion for an unknown argument, or "". `known` lists the accepted names, by default the options of
    attention().

    >>> meant("is_causal")
    '; use causal'
    >>> meant("bucket", ["buckets", "max_distance"])
    '; did you mean buckets?'
    >>> meant("return_lse")
    '; only relpos.attention and the calls of a Plan have it'
    """
    if name in _HERE:
        return f"; use {_HERE[name]}"
    if known is None and name in _core.NAMES:
        return "; only relpos.attention and the calls of a Plan have it"
    near = difflib.get_close_matches(name, _core.NAMES if known is None else known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def refuse_positions(function, names, others):
    """Raise for arguments that are passed by position but have to be named.

    >>> refuse_positions("attention", "q, k and v", [None])
    Traceback (most recent call last):
    TypeError: attention() takes only q, k and v by position, but got 1 more (NoneType); name it, as in mask=x \
for a mask (true for pairs that attend), or bias=relpos.Dense(x) for numbers to add
    """
    raise TypeError(
        f"{function}() takes only {names} by position, but got {len(others)} more ({type(others[0]).__name__}); "
        "name it, as in mask=x "
        "for a mask (true for pairs that attend), or bias=relpos.Dense(x) for numbers to add")


_TERMS = {  # keyword: (an example of a term, the suggestion if the caller passes an array)
    "bias": ("relpos.T5(table)", "use relpos.Dense(x) to add an array x to the scores, or relpos.T5(x) if x is a "
             "table of T5"),
    "rope": ("relpos.RoPE()", "use relpos.RoPE(), which computes the angles"),
    "relkey": ("relpos.RelKey(table, left=8, right=8)", "use relpos.RelKey(x, left=r, right=r) for 2 r + 1 vectors x"),
    "relval": ("relpos.RelValue(table, left=8, right=8)", "use relpos.RelValue(x, left=r, right=r) for 2 r + 1 "
               "vectors x"),
    "sink": ("relpos.Sink(logits)", "use relpos.Sink(x) for logits of heads, or of heads and rows"),
}


def _is_term_class(x):
    return isinstance(x, type) and issubclass(x, _core.Term)


def _instance(cls):
    """Return the call that makes a term of this class, with its required arguments.

    >>> import relpos
    >>> _instance(relpos.RelKey)
    'relpos.RelKey(table, left=..., right=...)'
    """
    required = [x.name if x.kind is x.POSITIONAL_OR_KEYWORD else f"{x.name}=..."
                for x in inspect.signature(cls).parameters.values() if x.default is x.empty]
    return f"relpos.{cls.__name__}({', '.join(required)})"


def term_needed(keyword, given):
    """Return the message for an argument that is not a term, with a suggestion.

    >>> term_needed("bias", 0.3)
    'bias is of type float, expected a term or a sum of terms, such as relpos.T5(table)'
    >>> import relpos
    >>> term_needed("bias", relpos.T5)
    'bias is the class relpos.T5, expected a term; use relpos.T5(table)'
    """
    example, of_array = _TERMS[keyword]
    if _is_term_class(given):
        return f"{keyword} is the class relpos.{given.__name__}, expected a term; use {_instance(given)}"
    text = f"{keyword} is of type {type(given).__name__}, expected a term"
    if getattr(given, "is_nested", False):
        return f"{text}; a nested tensor is none"
    if callable(getattr(given, "term", None)):
        return f"{text}; use its method term()"
    if isinstance(given, list) and given and all(isinstance(x, _core.Term) or _is_term_class(x) for x in given):
        classes = [x for x in given if _is_term_class(x)]
        if classes:
            return f"{text}; the list contains the class relpos.{classes[0].__name__}: use {_instance(classes[0])}"
        return f"{text}; use sum(terms) to add up a list of terms"
    # torch.nn.Embedding, such as T5's relative_attention_bias
    if keyword == "bias" and hasattr(given, "num_embeddings"):
        return f"{text}; use relpos.T5(x.weight) if the embedding x is a table of T5"
    if hasattr(given, "shape") or isinstance(given, list):
        return f"{text}; {of_array}"
    return f"{text} or a sum of terms, such as {example}"


def named(function, name):
    """Wrap a function so that torch's profiler, if it is recording, shows it under this name."""
    profiler = _modules.get("torch.autograd.profiler")
    # graphs show the operator
    if profiler is None or not profiler._is_profiler_enabled or _modules["torch"].compiler.is_compiling():
        return function
    return profiler.record_function(name)(function)
