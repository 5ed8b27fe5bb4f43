"""Checks of arguments: numbers, texts and tokens. The errors have the names of the arguments.
SPDX-License-Identifier: Apache-2.0"""
import os

import numpy as np


def integer(name, value, low, high):
    """Return `value` as an int, or raise an error with its name if it is not an integer from low to high."""
    try:
        number = value.__index__()
    except AttributeError:
        raise TypeError(f"{name} is {value!r}; it must be an integer") from None
    if not low <= number <= high:
        raise ValueError(f"{name} is {number}; it must be {low} to {high}")
    return number


def index(name, value, length):
    """Return an index from 0 to length - 1. Negative values count from the end."""
    number = integer(name, value, -length, length - 1) if length else 0
    return number + length if number < 0 else number


def real(name, value):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}; it must be a number") from None


def row(name, tokens):
    """Copy the tokens of one sequence to an array of int32."""
    found = np.asarray(tokens)
    if found.size == 0:
        found = found.astype(np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise TypeError(f"{name} has type {found.dtype} and {found.ndim} axes; it must be one sequence of integers")
    if found.size and not 0 <= int(found.min()) <= int(found.max()) < 2**31:
        raise ValueError(f"{name} has numbers from {found.min()} to {found.max()}: tokens must be at least 0 and below "
                         "the size of the vocabulary")
    return np.array(found, np.int32)


def texts(name, given):
    """Convert a sequence of texts to a list."""
    if isinstance(given, (bytes, os.PathLike, dict, set, frozenset)) or not hasattr(given, "__iter__"):
        raise TypeError(f"{name} is of type {type(given).__name__}; it must be a str or a sequence of str")
    given = list(given)
    for n, one in enumerate(given):
        if not isinstance(one, str):
            raise TypeError(f"{name}[{n}] is of type {type(one).__name__}; it must be a str")
    return given


def is_many(tokens):
    """Return True for a sequence of token sequences, False for a single token sequence. [] is one empty sequence; [[]]
    is a list of one."""
    if isinstance(tokens, np.ndarray):
        return tokens.ndim > 1
    if isinstance(tokens, (str, bytes)) or not hasattr(tokens, "__len__"):
        raise TypeError(f"tokens are of type {type(tokens).__name__}; they must be a sequence of integers or a "
                        "sequence of such sequences")
    return len(tokens) > 0 and hasattr(tokens[0], "__len__")


def rows(model, given, tokens, what="texts", other="tokens"):
    """Return a list of rows of tokens, and False if the caller gave a single source."""
    if (given is None) == (tokens is None):
        raise TypeError(f"give either {what} or {other}")
    if tokens is None:
        many = not isinstance(given, str)
        return [model.tokenize(one) for one in (texts(what, given) if many else [given])], many
    if is_many(tokens):
        return [_known(f"{other}[{n}]", one, model.config.vocab) for n, one in enumerate(tokens)], True
    return [_known(other, tokens, model.config.vocab)], False


def _known(name, tokens, vocab):
    """Like row, for tokens that must be in the vocabulary."""
    found = row(name, tokens)
    outside = np.flatnonzero(found >= vocab)
    if outside.size:
        raise ValueError(f"{name}: token {outside[0]} is {found[outside[0]]}, and the vocabulary has {vocab} (use 0 to "
                         f"{vocab - 1})")
    return found
