"""progress= of long calls: a function receives the fraction done, and True displays it.
SPDX-License-Identifier: Apache-2.0"""
import importlib
import importlib.util
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import relpos
from relpos import _progress

ROOT = Path(__file__).resolve().parents[2]
N = 8192
x = np.random.default_rng(1).standard_normal((1, 8, N, 64), dtype=np.float32)


def forward(progress):
    return relpos.attention(x, x, x, bias=relpos.ALiBi(), progress=progress)


def backward(progress):
    return relpos.attention_backward(x, x, x, x, out=x, lse=np.full((1, 8, N), 9, np.float32), progress=progress).q


def plan(progress):
    return relpos.Plan(1, 8, N, N, 64)(x, x, x, progress=progress)


@pytest.mark.parametrize("call", [forward, backward, plan])
def test_a_function_gets_the_share(call, capfd):
    shares = []
    with_it = call(shares.append)
    assert len(shares) > 2 and shares == sorted(shares) and 0 <= shares[0] < shares[-1] == 1
    np.testing.assert_array_equal(with_it, call(False))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("call", [forward, backward, plan])
def test_what_it_raises_ends_the_call(call):
    shares = []

    def stop(share):
        shares.append(share)
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        call(stop)
    assert len(shares) == 1 and shares[0] < 1


def test_short_calls_show_nothing(capfd, monkeypatch):
    monkeypatch.setattr(_progress, "QUIET", float("inf"))  # a slow machine may take longer than QUIET for a short call
    small = x[:, :, :64]
    relpos.attention(small, small, small, progress=True)
    forward(True)
    assert capfd.readouterr() == ("", "")


def test_what_is_no_progress():
    small = x[:, :, :64]
    for call in (lambda **of: relpos.attention(small, small, small,
                                               **of), lambda **of: relpos.attention_backward(
                                                   small, small, small, small, **of),
                 lambda **of: relpos.Plan(1, 8, 64, 64, 64)(small, small, small, **of)):
        with pytest.raises(TypeError, match="progress is of type str, expected True, False, or a function"):
            call(progress="yes")


def test_another_thread_tells_only_the_end():
    shares = []
    thread = threading.Thread(target=forward, args=(shares.append,))
    thread.start()
    thread.join()
    assert shares == [1]


SHOWS = """
import sys
if "as on a terminal" in sys.argv:
    sys.stderr.isatty = lambda: True
if sys.argv[1] == "line":
    sys.modules["tqdm"] = sys.modules["tqdm.auto"] = None  # as if it were not installed
import numpy as np, relpos
from relpos import _progress
_progress.QUIET = 0.1  # show longer calls
x = np.ones((1, 8, 16384, 64), np.float32)
relpos.attention(x, x, x, progress=True)
"""


def shown(how, terminal):
    """Return the output of a call on standard error."""
    words = [how]
    try:
        ours, theirs = pty.openpty() if terminal else os.pipe()
    except OSError:  # the system has no pseudo-terminals, as in a chroot without /dev/pts
        ours, theirs = os.pipe()
        words.append("as on a terminal")
    with subprocess.Popen([sys.executable, "-P", "-c", SHOWS, *words], stderr=theirs) as child:
        os.close(theirs)
        text = b""
        try:
            while more := os.read(ours, 4096):
                text += more
        except OSError:  # the other end of the terminal is closed
            pass
    os.close(ours)
    assert child.returncode == 0, text
    return text.decode().replace("\r\n", "\n")


def test_a_line_on_a_terminal():
    text = shown("line", True)
    assert text.startswith("\rrelpos.attention: ") and text.endswith("\rrelpos.attention: 100%\n")
    assert shown("line", False) == ""


@pytest.mark.skipif(not importlib.util.find_spec("tqdm"), reason="tqdm is not installed")
def test_tqdm():
    text = shown("tqdm", False)
    assert "relpos.attention: 100%|" in text and text.endswith("\n")


def test_a_slow_call_shows_and_a_quick_one_does_not(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with _progress.Shown(True, "call") as report:
        for now[0], share in ((1.9, 0.2), (2.0, 0.4), (2.01, 0.5), (2.1, 0.6)):
            report(share)
    assert capsys.readouterr().err == "\rcall:  40%\rcall:  60%\rcall: 100%\n"
    with pytest.raises(ValueError), _progress.Shown(True, "call") as report:
        for now[0], share in ((3, 0.1), (5, 0.4)):
            report(share)
        raise ValueError
    assert capsys.readouterr().err == "\rcall:  40%\n"


def test_t5(monkeypatch):
    monkeypatch.setattr(_progress, "EVERY", 0)  # each fraction reported by the library
    with relpos.t5.T5(ROOT / "lab/model/phonemes") as model:
        words = ["attention", "position", "a"]
        for call in (lambda **of: model.generate(words, num_beams=2, num_return_sequences=2,
                                                 **of), lambda **of: model.generate("attention", **of),
                     lambda **of: model.generate("attention", max_new_tokens=3,
                                                 **of), lambda **of: model.score(words, words, **of).tolist(),
                     lambda **of: model.encode(words, pool="mean", batch_size=2, **of).tolist()):
            shares = []
            want = call()
            assert call(progress=shares.append) == want
            assert len(shares) > 3 and shares == sorted(shares) and shares[0] < 0.5 and shares[-1] == 1

            def stop(_share):
                raise KeyError("enough")

            with pytest.raises(KeyError, match="enough"):
                call(progress=stop)


def test_torch_takes_it_too():
    torch = pytest.importorskip("torch")
    q = torch.from_numpy(x).requires_grad_()
    shares = []
    relpos.attention(q, q, q, progress=shares.append)
    assert len(shares) > 2 and shares[-1] == 1
    shares.clear()
    small = torch.ones(1, 2, 5, 4)
    importlib.import_module("relpos.torch")
    made = torch.compile(lambda q: relpos.attention(q, q, q, progress=shares.append), backend="eager", fullgraph=True)
    torch.testing.assert_close(made(small), relpos.attention(small, small, small))
    assert shares == []  # a graph reports no progress
