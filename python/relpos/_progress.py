"""Report the progress of a long call to a function, or show it to the user.  SPDX-License-Identifier: Apache-2.0"""
import sys
import time

QUIET = 2.0  # seconds before a bar or line appears
EVERY = 0.05  # seconds between reports


def wanted(progress):
    """Return true if a call reports its progress."""
    if progress is not None and progress is not True and not callable(progress) and not (isinstance(progress, int) and
                                                                                         progress == 0):
        raise TypeError(
            f"progress is of type {type(progress).__name__}, expected True, False, or a function of the fraction done")
    return bool(progress)


class Shown:
    """The progress report of one call. As a context manager it yields a function of the fraction done, or None without
    progress.

    progress=True shows a tqdm bar if tqdm is installed, else a line on standard error if it is a terminal. A function
    is called with the fraction done, at most every EVERY seconds, and with 1.0 when a call succeeds."""

    def __init__(self, progress, name):
        self._progress, self._name, self._bar = progress if wanted(progress) else None, name, None
        self._start = self._next = time.monotonic()

    def __enter__(self):
        return self if self._progress else None

    def __call__(self, fraction):
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY
        if self._progress is not True:
            self._progress(fraction)
        elif now >= self._start + QUIET:
            self._bar = self._bar or _bar(self._name, now - self._start)
            self._bar.show(fraction)

    def __exit__(self, kind, *_):
        if self._bar:
            if kind is None:
                self._bar.show(1.0)
            self._bar.close()
        elif self._progress and self._progress is not True and kind is None:
            self._progress(1.0)


def reporting(call, name):
    """Wrap a function of _core, whose last positional argument is `progress`, to show its progress. Under
    torch.compile, return the function unchanged."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        return call

    def wrapped(*args, **options):
        *args, progress = args
        with Shown(progress, name) as report:
            return call(*args, report, **options)

    return wrapped


def _bar(name, seconds):
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(name)
    return _Tqdm(tqdm, name, seconds)


class _Tqdm:
    def __init__(self, tqdm, name, seconds):
        self._bar = tqdm(total=1.0, desc=name, bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}")
        self._bar.start_t -= seconds  # the call started before the bar appeared

    def show(self, fraction):
        self._bar.update(max(fraction - self._bar.n, 0))

    def close(self):
        self._bar.close()


class _Line:
    def __init__(self, name):
        self._name, self._last = name, None

    def show(self, fraction):
        text = f"\r{self._name}: {fraction:4.0%}"
        if text != self._last and sys.stderr is not None and sys.stderr.isatty():
            print(text, end="", file=sys.stderr, flush=True)
            self._last = text

    def close(self):
        if self._last:
            print(file=sys.stderr, flush=True)
