"""The settings of T5.generate and T5.stream, and what they do.  SPDX-License-Identifier: Apache-2.0"""
import queue
import threading
import types

import numpy as np

from .._arguments import integer, real, row, texts
from .._progress import Shown
from . import _core

# Keyword of transformers: (field of rp_t5_generation, low, high), the bounds of an integer. None: a real number; the
# library checks it.
_SETTINGS = {
    "max_new_tokens": ("max_new_tokens", 1, 1 << 24), "min_new_tokens": ("min_new_tokens", 0, 1 << 24),
    "num_beams": ("beams", 1, 4096), "num_return_sequences": ("returned", 1, 4096),
    "length_penalty": ("length_penalty", None, None), "early_stopping": ("early_stopping", 0, 2),
    "do_sample": ("sample", 0, 1), "temperature": ("temperature", None, None), "top_k": ("top_k", 0, 2**31 - 1),
    "top_p": ("top_p", None, None), "seed": ("seed", 0, 2**64 - 1),
    "repetition_penalty": ("repetition_penalty", None, None), "no_repeat_ngram_size": ("no_repeat_ngram", 0, 1 << 24),
    "forced_bos_token_id": ("forced_first", 0, 2**31 - 1),
}
_STOPPING = {False: 0, True: 1, "never": 2}
# Keywords that only sampling uses, and the values that are accepted without sampling: those without an effect, and
# defaults of transformers.
_DRAWING = {"temperature": (1,), "top_k": (0, 50), "top_p": (1,)}
# Keywords that are lists of tokens: the field of rp_t5_generation.
_LISTS = {"suppress_tokens": "suppress", "begin_suppress_tokens": "begin_suppress", "bad_words_ids": "bad_words"}


def settings(model, arguments):
    """Return the fields of rp_t5_generation for the arguments of `generate`, which `arguments` has by name."""
    g = types.SimpleNamespace(**_core.settings(model._handle))
    given = {name: value for name, value in arguments.items() if name in _SETTINGS and value is not None}
    max_length = arguments["max_length"]
    _take_lists(g, arguments)
    if given.get("do_sample") and "num_beams" not in given:
        g.beams = 1
    if "num_beams" in given and "do_sample" not in given:
        g.sample = 0
    for name, value in given.items():
        setattr(g, _SETTINGS[name][0], _number(name, value))
    for name, nothing in _DRAWING.items():
        if not g.sample and name in given and given[name] not in nothing:
            raise ValueError(f"{name} is {given[name]!r}, but only sampling uses it (pass do_sample=True)")
    if max_length is not None and "max_new_tokens" in given:
        raise TypeError("max_length and max_new_tokens were both given (give only one of them)")
    if "num_beams" in given and "num_return_sequences" not in given and not g.sample:
        g.returned = min(g.returned, g.beams)
    if "min_new_tokens" not in given and max_length is None:
        g.min_new_tokens = min(g.min_new_tokens, g.max_new_tokens)
    g.stop = _stops(arguments["stop_strings"])
    g.prefix = _prefix(model, arguments["begin"], arguments["tokens"] is not None)
    if max_length is not None:
        before = 1 + len(g.prefix)
        g.max_new_tokens = integer("max_length", max_length, before + 1, 1 << 24) - before
        if "min_new_tokens" not in given:
            g.min_new_tokens = min(g.min_new_tokens, g.max_new_tokens)
    return g


def _number(name, value):
    """Return the number of the field for the value of a keyword."""
    if name == "early_stopping":
        if not isinstance(value, (bool, str)) or value not in _STOPPING:
            raise ValueError(f'early_stopping is {value!r}; it must be False, True or "never"')
        return _STOPPING[value]
    if name == "do_sample":
        return int(bool(value))
    _, low, high = _SETTINGS[name]
    return real(name, value) if low is None else integer(name, value, low, high)


def _take_lists(g, arguments):
    """Set the lists of tokens that are given."""
    for name, field in _LISTS.items():
        value = arguments[name]
        if value is None:
            continue
        if name != "bad_words_ids":
            setattr(g, field, row(name, value))
        elif isinstance(value, (list, tuple)):
            setattr(g, field, [row(f"bad_words_ids[{n}]", one) for n, one in enumerate(value)])
        else:
            raise TypeError(f"bad_words_ids is of type {type(value).__name__}; it must be a list of lists of tokens")


def _stops(given):
    """Return the texts that end a target as bytes. None: those of the model."""
    if given is None:
        return None
    stops = tuple(one.encode() for one in ([given] if isinstance(given, str) else texts("stop_strings", given or ())))
    for one in stops:
        if not one or b"\0" in one:
            raise ValueError("stop_strings: a text is empty, or contains a null character (remove it)")
    return stops


def _prefix(model, begin, numbers):
    """Return the tokens that every target begins with."""
    if begin is None:
        return np.empty(0, np.int32)
    if numbers:
        return row("begin", begin)
    if not isinstance(begin, str):
        raise TypeError(f"begin is {begin!r}; it must be a text (or token numbers with tokens=)")
    found = model.tokenize(begin)
    return found[:-1] if len(found) and found[-1] == model.config.eos else found


def generate(model, rows, g, progress):
    """Return a list of (tokens, score)."""
    with Shown(progress, "generate") as report:
        written = report and _written(report, g, len(rows), model.config.eos)
        found = _core.generate(model._handle, rows, vars(g), written, None)
    return [(np.frombuffer(tokens, np.int32), score) for tokens, score in found]


def _written(report, g, sources, end):
    """Return a callback that reports progress: the tokens generated so far, divided by the most that may be generated.
    A finished target counts as if it had reached its limit."""
    counts, total = {}, sources * g.returned * g.max_new_tokens
    done = 0

    def written(source, index, token):
        nonlocal done
        before = counts.get((source, index), 0)
        counts[source, index] = g.max_new_tokens if token == end else min(before + 1, g.max_new_tokens)
        done += counts[source, index] - before
        report(done / total)

    return written


def pieces(model, rows, g, numbers, skip_special_tokens):
    """Yield what `stream` promises: pieces of text, or tokens if `numbers` is true. Another thread generates the
    tokens."""
    tokens, flag, main = queue.SimpleQueue(), np.zeros(1, np.int32), threading.main_thread()

    def on_token(_source, _index, token):
        tokens.put(token)
        return not main.is_alive()  # stop if the interpreter is shutting down

    def work():
        try:
            _core.generate(model._handle, rows, vars(g), on_token, flag)
            tokens.put(None)
        except BaseException as why:
            tokens.put(why)

    thread = threading.Thread(target=work, name="relpos.t5")
    written, shown, token = g.prefix.tolist(), "", 0
    try:
        thread.start()
        if numbers:
            yield from written
        while token is not None:
            token = tokens.get()
            if isinstance(token, BaseException):
                raise token
            if numbers:
                yield from () if token is None else (token,)
                continue
            written += [] if token is None else [token]
            text = model.detokenize(written, skip_special_tokens)
            if token is not None:
                text = model._settled(text)
            if text.startswith(shown) and len(text) > len(shown):
                piece, shown = text[len(shown):], text
                yield piece
    finally:
        flag[0] = 1
        if thread.ident is not None:
            thread.join()
