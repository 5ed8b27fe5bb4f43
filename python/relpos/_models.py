"""What relpos.t5.T5 and relpos.encoder.Encoder share: opening and closing of a model, and parts of their calls.
SPDX-License-Identifier: Apache-2.0"""
import os
import types
import warnings

import numpy as np

from . import _arguments

NO_LIBRARY = ("this wheel was built with RELPOS_BUILD_CLI=OFF, so it has attention alone (Debian: apt-get install "
              "pkg-config libjansson-dev libzip-dev libpng-dev, then rebuild the package by pip install . in the "
              "source folder)")


def path_of(path):
    """Return a path as bytes, or raise OSError if nothing is there."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("path contains a null character (give another path)")
    os.stat(path)
    return name


def threads_of(threads):
    """Return the number of threads for open() of _core; 0: the default pool."""
    return 0 if threads is None else _arguments.integer("threads", threads, 1, 4096)


class Model:
    """An open model. `_core` is the extension module of its library."""

    def _open(self, core, *arguments):
        """Open the model, and warn about what opening changed or ignored. Call this from __init__."""
        self._core, self._handle = core, core.open(*arguments)
        self._closed, self._info = False, core.info(self._handle)
        try:
            for note in core.notes(self._handle):
                warnings.warn(note, stacklevel=3)
        except BaseException:
            self.close()
            raise

    @property
    def config(self):
        return types.SimpleNamespace(**self._info)

    def __getattr__(self, name):
        info = self.__dict__.get("_info", {})
        if name in info:
            return info[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self):
        i, state = self.config, ", closed" if self._closed else ""
        return (f"<{type(self).__module__}.{type(self).__name__}: {i.kind}, {i.type}, {self._layers()} layers, "
                f"{i.parameters:,} parameters{state}>")

    def close(self):
        """Free the model once calls in other threads have ended. Later calls raise ValueError. You may close a model
        twice."""
        self._closed = True
        self._core.close(self._handle)

    def _pack(self, path):
        self._core.pack(self._handle, os.fsencode(path))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __reduce_ex__(self, _):
        raise TypeError(f"{type(self).__name__}: an open model cannot be copied or pickled (open its path again)")


def part(report, begin, end, of):
    """Return a progress function for one part of a call, which goes from `begin` to `end` of `of` units. Return None
    without progress."""
    return report and (lambda fraction: report((begin + fraction * (end - begin)) / max(of, 1)))


def batches(found, size, width, report, compute):
    """Yield one array (tokens, width) for each sequence. compute(first, end, hidden, report) computes those of the
    sequences first ... end - 1, a batch. The results of one batch are in memory."""
    before = np.cumsum([0, *map(len, found)])
    for first in range(0, len(found), size):
        end = min(first + size, len(found))
        places = before[first:end + 1]
        hidden = np.empty((places[-1] - places[0], width), np.float32)
        compute(first, end, hidden, part(report, places[0], places[-1], before[-1]))
        yield from np.split(hidden, places[1:-1] - places[0])


def check_prompt(prompt, name, tokens):
    """Check the arguments prompt, prompt_name and tokens of encode()."""
    if prompt is not None and name is not None:
        raise TypeError("prompt and prompt_name were both given (give only one of them)")
    if tokens is not None and (prompt is not None or name is not None):
        raise TypeError("prompt: tokens= has no text (put the tokens of the prompt before the others)")
    for key, value in (("prompt", prompt), ("prompt_name", name)):
        if value is not None and (not isinstance(value, str) or "\0" in value):
            raise TypeError(f"{key} is {value!r}; it must be a str without null characters")


def normalized(vector):
    """Scale a vector to length 1."""
    wide = vector.astype(np.float64)
    length = np.sqrt(np.cumsum(wide * wide)[-1])  # cumsum adds in order, which gives the same bits as the program
    return (wide / length).astype(np.float32) if length > 0 else vector
