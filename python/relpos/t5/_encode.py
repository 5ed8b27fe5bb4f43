"""What T5.encode, T5.score and T5.explain do.  SPDX-License-Identifier: Apache-2.0"""
import numpy as np

from .. import explain as explain_row
from .._arguments import index, integer, rows, texts
from .._models import batches, check_prompt, normalized, part
from .._progress import Shown
from .._terms import TERMS
from . import _core

PARTS = ("encoder", "decoder", "cross")


def encode(model, sources, tokens, pool, normalize, pad_to, attend_padding, batch, prompt_name, prompt, progress):
    if pool not in (None, "none", "mean", "first", "last"):
        raise ValueError(f'pool is {pool!r}; it must be None, "none", "mean", "first" or "last"')
    pool = pool or ("modules" if model.config.vector_width else "none")
    prompt = _prompt(model, prompt, prompt_name, pool, tokens)
    if prompt:
        sources = prompt + sources if isinstance(sources, str) else [prompt + one for one in texts("texts", sources)]
    found, many = rows(model, sources, tokens)
    if normalize and pool == "none":
        raise ValueError('normalize: it needs one vector for each text (add pool="mean")')
    if attend_padding and pad_to is None:
        raise ValueError("attend_padding: without pad_to there is no padding (add pad_to)")
    if pad_to is not None:
        found = [_fit(model, row, integer("pad_to", pad_to, 1, 1 << 24), attend_padding) for row in found]
    elif pool == "modules" and model.config.vector_tokens:
        found = [_fit(model, row, model.config.vector_tokens, False) for row in found]
    out = []
    with Shown(progress, "encode") as report:
        for hidden in _hidden(model, found, batch, report):
            if pool == "modules":
                out.append(_vector(model, hidden, prompt, normalize))
            else:
                out.append(hidden if pool == "none" else pooled(hidden, pool, normalize))
    width = model.config.vector_width if pool == "modules" else model.config.d_model
    if pool != "none":
        out = np.array(out, np.float32).reshape(-1, width)
    elif pad_to is not None:
        padded = np.zeros((len(out), pad_to, width), np.float32)
        for to, one in zip(padded, out):
            to[:len(one)] = one
        out = padded
    return out if many else out[0]


def _hidden(model, found, batch, report):
    """Yield the hidden states of each source."""
    return batches(found, batch, model.config.d_model, report, lambda first, end, hidden, progress: _core.encode(
        model._handle, found[first:end], hidden, progress))


def _prompt(model, prompt, name, pool, tokens):
    """Return the text that begins every text."""
    check_prompt(prompt, name, tokens)
    if prompt is not None or tokens is not None or (name is None and pool != "modules"):
        return prompt or ""
    return _core.prompt(model._handle, name)


def _vector(model, hidden, prompt, normalize):
    """Compute the vector of one source as modules.json says."""
    vector = np.empty(model.config.vector_width, np.float32)
    _core.vector(model._handle, prompt, hidden, vector)
    return normalized(vector) if normalize else vector


def _fit(model, row, length, attend):
    if len(row) > length:
        end = row[-1]
        row = row[:length].copy()
        if end == model.config.eos:
            row[-1] = end
    if attend and len(row) < length:
        row = np.concatenate([row, np.full(length - len(row), model.config.pad, np.int32)])
    return row


def pooled(hidden, how, normalize=False):
    """Compute the vector of one source from its hidden states. Sums are in float64, in the order of the tokens."""
    if len(hidden) == 0:
        return np.zeros(hidden.shape[1], np.float32)
    if how == "mean":
        total = np.zeros(hidden.shape[1])
        for row in hidden:
            total += row
        vector = (total / len(hidden)).astype(np.float32)
    else:
        vector = hidden[0 if how == "first" else -1]
    return normalized(vector) if normalize else vector


def score(model, sources, targets, source_tokens, target_tokens, each, progress):
    found, many = rows(model, sources, source_tokens, "sources", "source_tokens")
    other, many_too = rows(model, targets, target_tokens, "targets", "target_tokens")
    if many != many_too or len(found) != len(other):
        raise ValueError(f"{len(found)} sources and {len(other)} targets were given; their numbers must be equal")
    totals, every = np.empty(len(found)), [np.empty(len(target)) for target in other]
    with Shown(progress, "score") as report:
        for n, pair in enumerate(zip(found, other)):
            totals[n] = _core.score(model._handle, pair, every[n], part(report, n, n + 1, len(found)))
    out = every if each else totals
    return out if many else out[0] if each else float(out[0])


def explain(model, text, target, tokens, target_tokens, kind, layer, head, query):
    found, many = rows(model, text, tokens, "text")
    if kind not in PARTS:
        raise ValueError(f'part is {kind!r}; it must be "encoder", "decoder" or "cross"')
    given = target is not None or target_tokens is not None
    if given != (kind != "encoder"):
        raise TypeError("explain: a target was given, but the encoder reads none (remove it)" if given else
                        "explain: no target was given; pass target or target_tokens")
    targets, several = [np.empty(0, np.int32)], False
    if given:
        targets, several = rows(model, target, target_tokens, "target", "target_tokens")
    if many or several:
        raise TypeError("explain: several texts or targets were given, but it accepts one of each (call it for each "
                        "pair)")
    layer = index("layer", layer, model.layers if kind == "encoder" else model.decoder_layers)
    head = index("head", head, model.heads)
    a = _core.attention(model._handle, PARTS.index(kind), layer, head, (found[0], targets[0]), None)
    options = {"scale": 1.0, "causal": bool(a["causal"])}
    if a["window"] >= 0:
        options["window"] = (a["window"], a["window"])
    if a["table"] is not None:
        table = np.frombuffer(a["table"], np.float32).astype(np.float64)[:, None]
        options["bias"] = TERMS["t5"](table, buckets=a["buckets"], max_distance=a["max_distance"],
                                      bidirectional=bool(a["bidirectional"]))
    q, k, v = (np.frombuffer(a[name]).reshape(1, -1, a["d_kv"]) for name in "qkv")
    return explain_row(q, k, v, query=index("query", query, q.shape[1]), **options)
