"""What a long call tells of how far it is: to a function of the caller's, or to the user.  SPDX-License-Identifier: Apache-2.0"""
import sys
import time

QUIET, EVERY = 2.0, 0.05  # seconds: a shorter call shows nothing; how often a longer one tells


class Shown:
    """For the time of one call, what it calls with the share that is done; None where nothing is to be told.

    progress is True: tqdm's bar where tqdm is installed, else a line on standard error, where that is a terminal. A function: it gets
    the share, at most every EVERY seconds, and 1.0 at the end of a call that succeeds."""

    def __init__(self, progress, name):
        if progress and progress is not True and not callable(progress):
            raise TypeError(f"progress is of type {type(progress).__name__}: True, False, or a function of the share that is done is needed")
        self._progress, self._name, self._bar = progress, name, None
        self._start = self._next = time.monotonic()

    def __enter__(self):
        return self if self._progress else None

    def __call__(self, share):
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY
        if self._progress is not True:
            self._progress(share)
        elif now >= self._start + QUIET:
            self._bar = self._bar or _bar(self._name, now - self._start)
            self._bar.show(share)

    def __exit__(self, kind, *_):
        if self._bar:
            if kind is None:
                self._bar.show(1.0)
            self._bar.close()
        elif self._progress and self._progress is not True and kind is None:
            self._progress(1.0)


def told(call, name):
    """The call with `progress`, its last argument by position, in the form in which _core calls it. A graph of torch tells nothing."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        return call

    def telling(*args, **options):
        *args, progress = args
        with Shown(progress, name) as report:
            return call(*args, report, **options)

    return telling


def _bar(name, seconds):
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(name)
    return _Tqdm(tqdm, name, seconds)


class _Tqdm:
    def __init__(self, tqdm, name, seconds):
        self._bar = tqdm(total=1.0, desc=name, bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}")
        self._bar.start_t -= seconds  # the call began before its bar

    def show(self, share):
        self._bar.update(max(share - self._bar.n, 0))

    def close(self):
        self._bar.close()


class _Line:
    def __init__(self, name):
        self._name, self._last = name, None

    def show(self, share):
        text = f"\r{self._name}: {share:4.0%}"
        if text != self._last and sys.stderr is not None and sys.stderr.isatty():
            print(text, end="", file=sys.stderr, flush=True)
            self._last = text

    def close(self):
        if self._last:
            print(file=sys.stderr, flush=True)
