"""What Encoder.classify, Encoder.predict and Encoder.rank do.  SPDX-License-Identifier: Apache-2.0"""
import numpy as np

from .._arguments import integer, texts
from .._models import part
from .._progress import Shown
from . import _core
from ._encode import delivered, naming, on_tokens, tokens_of


def _pair(name, given):
    """Return a tuple of two texts."""
    found = tuple(given) if isinstance(given, (tuple, list, np.ndarray)) else (given,)
    if len(found) != 2 or not all(isinstance(one, str) for one in found):
        raise TypeError(f"{name} is {_shown(given)}; it must be a pair of str")
    return found


def _shown(given):
    """Describe what was given instead of a text or a pair."""
    if isinstance(given, (tuple, list)):
        return f"a {type(given).__name__} of ({', '.join(type(one).__name__ for one in given[:4])})"
    return f"of type {type(given).__name__}"


def _text(name, given):
    """Return a text or a pair as _core takes them."""
    if isinstance(given, dict):
        if not {"text"} <= given.keys() <= {"text", "text_pair"}:
            raise ValueError(f"{name} has the keys {', '.join(map(str, given))}; give text, and text_pair for a pair")
        pair = given.get("text_pair")
        given = given["text"] if pair is None else (given["text"], pair)
    if isinstance(given, str):
        return given
    return _pair(name, given)


def _need_head(model):
    if not model.config.labels:
        raise ValueError("the model has no classification head (use encode, or a model that config.json names "
                         "…ForSequenceClassification)")


def classify(model, inputs, top_k, progress):
    single = isinstance(inputs, (str, dict, tuple))
    if not single and not isinstance(inputs, list):
        inputs = texts("inputs", inputs)
    default = top_k == ""
    top_k = 1 if default else top_k if top_k is None else integer("top_k", top_k, 1, 2**31 - 1)
    _need_head(model)
    found = [_text("inputs", inputs)] if single else [_text(f"inputs[{n}]", one) for n, one in enumerate(inputs)]
    scores = np.empty((len(found), len(model.config.labels)), np.float32)
    with Shown(progress, "classify") as report, naming("inputs", not single):
        _core.classify(model._handle, found, scores, report)
    every = [sorted(({"label": label, "score": float(score)} for label, score in zip(model.config.labels, row)),
                    key=lambda one: one["score"], reverse=True)[:top_k] for row in scores]
    if default:
        every = [one[0] for one in every]
    return every[0] if single and not (default and isinstance(inputs, str)) else every


def refuse_prompts(prompt_name, prompt):
    for name, value in (("prompt_name", prompt_name), ("prompt", prompt)):
        if value is not None:
            raise ValueError(f"{name} is {value!r}; reranking has no prompts (put the text before the queries)")


def predict(model, inputs, batch, activation, softmax, kind, progress):
    single = isinstance(inputs, (list, tuple, np.ndarray)) and len(inputs) > 0 and isinstance(inputs[0], str)
    if not single and (isinstance(inputs, (str, bytes, dict, set, frozenset)) or not hasattr(inputs, "__iter__")):
        raise TypeError(f"inputs is {_shown(inputs)}; it must be a pair of str or a sequence of pairs")
    _need_head(model)
    pairs = [_pair("inputs", inputs)] if single else [_pair(f"inputs[{n}]", one) for n, one in enumerate(inputs)]
    labels, why = len(model.config.labels), model.config.why_no_scores
    if why and (activation is None or model.config.plain_scores >= 0):
        raise ValueError(f"{why}{'; or pass activation_fn' * (model.config.plain_scores < 0)}")
    with Shown(progress, "predict") as report, naming("inputs", not single):
        if activation is None and labels == 1:
            scores = np.empty(len(pairs), np.float32)
            _core.rerank(model._handle, pairs, scores, report)
        else:
            scores = _logits(model, pairs, batch, report)
    if activation is not None:
        scores = _activated(activation, scores, labels)
    elif labels > 1 and not model.config.plain_scores:
        scores = (1 / (1 + np.exp(-scores.astype(np.float64)))).astype(np.float32)
    if softmax and labels > 1:
        scores = np.exp(scores - scores.max(1, keepdims=True), dtype=np.float32)
        scores /= scores.sum(1, keepdims=True)
    out = delivered(scores, *kind)
    return out[0] if single else out


def _logits(model, pairs, batch, report):
    """Compute the outputs of the classification head for pairs."""
    out = np.empty((len(pairs), len(model.config.labels)), np.float32)
    for n in range(0, len(pairs), batch):
        some = out[n:n + batch]
        with naming("sequences", True, n):  # predict() replaces this name
            on_tokens(model, _core.logits, *tokens_of(model, pairs[n:n + batch]), some,
                      part(report, n, n + len(some), len(pairs)))
    return out


def _activated(function, logits, labels):
    """Return function(logits) as a float32 array: (pairs,) if there is one label."""
    if not callable(function):
        raise TypeError(f"activation_fn is of type {type(function).__name__}; it must be a function of a torch tensor")
    import torch
    with torch.inference_mode():
        scores = np.array(function(torch.from_numpy(logits)).numpy(), np.float32)
    if scores.shape != logits.shape:
        raise ValueError(f"activation_fn returned the shape {scores.shape}; it must be {logits.shape}")
    return scores[:, 0].copy() if labels == 1 else scores


def check_rank(model, query, documents, top_k):
    """Check the arguments of rank. Return the documents as a list, and top_k."""
    if not isinstance(query, str):
        raise TypeError(f"query is of type {type(query).__name__}; it must be a str")
    if isinstance(documents, str):
        raise TypeError("documents is of type str; it must be a sequence of str")
    _need_head(model)
    if len(model.config.labels) > 1:
        raise ValueError(f"the model has {len(model.config.labels)} labels; rank needs a model with one (use classify)")
    top_k = top_k if top_k is None else integer("top_k", top_k, 1, 2**31 - 1)
    return texts("documents", documents), top_k


def ranked(scores, documents, top_k):
    """Return the results of rank, the highest score first."""
    made = [{"corpus_id": n, "score": float(score)} | ({"text": documents[n]} if documents is not None else {})
            for n, score in enumerate(scores)]
    return sorted(made, key=lambda one: one["score"], reverse=True)[:top_k]
