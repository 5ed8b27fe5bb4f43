"""What Encoder.encode does, and the checks of arguments that it shares with other methods.
SPDX-License-Identifier: Apache-2.0"""
import contextlib
import re

import numpy as np

from .._arguments import integer, is_many, rows, texts
from .._models import batches, check_prompt, normalized
from .._progress import Shown
from . import _core


def check(batch_size, precision="float32", device=None, pool=None, chunk_size=None):
    """Check arguments of sentence-transformers that do not change results."""
    integer("batch_size", batch_size, 1, 1 << 24)
    if precision != "float32":
        raise ValueError(f'precision is {precision!r}; it must be "float32" (quantize_embeddings of '
                         "sentence-transformers converts the result)")
    if device is not None and str(device) != "cpu":
        raise ValueError(f'device is {device!r}; relpos computes on the CPU (leave it out)')
    for name, value in (("pool", pool), ("chunk_size", chunk_size)):
        if value is not None:
            raise ValueError(f"{name}: a call is shared over threads, not over processes (leave it out; "
                             "Encoder(path, threads=N) sets the number of threads)")


def given(inputs, sentences, tokens):
    """Return the texts of a call, which has either inputs, sentences or tokens."""
    if sum(one is not None for one in (inputs, sentences, tokens)) != 1:
        raise TypeError("give either inputs or tokens")
    return inputs if sentences is None else sentences


def tokenize(model, text, pair, max_tokens):
    limit = 0 if max_tokens is None else integer("max_tokens", max_tokens, 1, 2**31 - 1)
    if isinstance(text, str):
        if pair is not None and not isinstance(pair, str):
            raise TypeError(f"pair is of type {type(pair).__name__}; it must be a str")
        return _tokens(model, text if pair is None else (text, pair), limit)[0]
    if pair is not None:
        raise TypeError("pair: several texts were given (give one text and its pair)")
    return [_tokens(model, one, limit)[0] for one in texts("text", text)]


def _tokens(model, text, limit):
    """Return the arrays of tokens and of token types of a text or a pair."""
    return [np.frombuffer(one, np.int32) for one in _core.tokenize(model._handle, text, limit)]


def tokens_of(model, found):
    """Return lists of the tokens and types of texts or pairs, which are cut to max_seq_length."""
    made = [_tokens(model, one, model.config.vector_tokens) for one in found]
    return [one[0] for one in made], [one[1] for one in made] if model.config.token_types > 1 else None


def _joined(arrays):
    """Return the elements of all arrays in one array."""
    return np.concatenate([np.empty(0, np.int32), *arrays])


@contextlib.contextmanager
def naming(name, many=True, first=0):
    """Let errors about the texts or sequences of a call name the argument of the user, from element `first` on."""
    def place(found):
        return f"{name}[{first + int(found[1])}]" if many else name
    try:
        yield
    except ValueError as error:
        named = re.sub(r"^(?:texts|sequences)\[(\d+)\]", place, str(error))
        if named == str(error):
            raise
        raise ValueError(named) from None


def on_tokens(model, compute, ids, types, out, report):
    """Call hidden or logits of _core for sequences of tokens."""
    lengths = np.array([len(one) for one in ids], np.int64)
    compute(model._handle, _joined(ids), None if types is None else _joined(types), lengths, out, report)


def prompt_of_task(model, names, prompt_name, prompt, options):
    """Return the name of the prompt for queries or documents. None: the default prompt."""
    if prompt_name is None and prompt is None and options.get("tokens") is None:
        for name in names:
            try:
                _core.prompt(model._handle, name)
            except ValueError:  # the model has no such prompt
                continue
            return name
    return prompt_name


def delivered(array, to_numpy, to_tensor):
    """Return an array as NumPy's array, as a tensor, or as a list of tensors."""
    if to_tensor or not to_numpy:
        import torch
        return torch.from_numpy(array) if to_tensor else list(torch.from_numpy(array))
    return array


def encode(model, inputs, tokens, prompts, batch, value, kind, normalize, truncate, progress):
    name, prompt = prompts
    check_prompt(prompt, name, tokens)
    if value not in ("sentence_embedding", "token_embeddings", None):
        raise ValueError(f'output_value is {value!r}; it must be "sentence_embedding", "token_embeddings" or None')
    if value != "sentence_embedding" and (normalize or truncate is not None):
        raise ValueError(f"{'normalize_embeddings' if normalize else 'truncate_dim'}: it needs "
                         f'output_value="sentence_embedding"')
    if truncate is not None:
        truncate = integer("truncate_dim", truncate, 1, model.config.vector_width)
    many = is_many(tokens) if inputs is None else not isinstance(inputs, str)
    found = None if inputs is None else texts("inputs", inputs) if many else [inputs]
    if name is not None:
        prompt = _core.prompt(model._handle, name)
    with Shown(progress, "encode") as report:
        if found is not None and value == "sentence_embedding":
            out = np.empty((len(found), model.config.vector_width), np.float32)
            with naming("inputs", many):
                _core.embed(model._handle, prompt, found, out, report)
        else:
            out = list(_states(model, found, tokens, prompt, batch, value, report, many))
    if value == "sentence_embedding":
        out = delivered(_shaped(model, out, truncate, normalize), *kind)
    elif kind != (True, False):
        out = [_tensors(one) for one in out]
    return out if many else out[0]


def _shaped(model, vectors, truncate, normalize):
    """Return vectors as one array, cut to `truncate` elements and scaled to length 1."""
    out = np.array(vectors, np.float32).reshape(-1, model.config.vector_width)[:, :truncate]
    return np.array([normalized(one) for one in out] if normalize else out, np.float32).reshape(out.shape)


def _tensors(one):
    """Return hidden states, or the values of a dict, as tensors."""
    return {key: delivered(value, True, True) for key, value in one.items()} if isinstance(one, dict) else delivered(
        one, True, True)


def _states(model, found, tokens, prompt, batch, value, report, many):
    """Yield the hidden states of each text, its vector, or a dict of all results."""
    width, types = model.config.vector_width, None
    if found is None:
        ids, prompt = _fitting(model, *rows(model, None, tokens)), ""
    else:
        prompt = _default_prompt(model) if prompt is None else prompt
        ids, types = tokens_of(model, [prompt + one for one in found])

    def compute(first, end, out, progress):
        with naming("tokens" if found is None else "inputs", many, first):
            on_tokens(model, _core.hidden, ids[first:end], types and types[first:end], out, progress)

    hidden = batches(ids, batch, model.config.width, report, compute)
    for n, states in enumerate(hidden):
        if value == "token_embeddings":
            yield states
            continue
        vector = np.empty(width, np.float32)
        _core.vector(model._handle, prompt, states, vector)
        yield vector if value else {
            "input_ids": ids[n], **({"token_type_ids": types[n]} if types else {}),
            "attention_mask": np.ones(len(ids[n]), np.int32), "token_embeddings": states, "sentence_embedding": vector}


def _fitting(model, ids, many):
    """Return sequences of tokens that the model takes."""
    limit = model.config.max_tokens
    for n, one in enumerate(ids):
        if 0 < limit < len(one):
            raise ValueError(f"tokens{f'[{n}]' * many} has {len(one)} tokens; the model takes at most {limit} (cut it)")
    return ids


def _default_prompt(model):
    try:
        return _core.prompt(model._handle, None)
    except ValueError:  # the model has no modules.json
        return ""
