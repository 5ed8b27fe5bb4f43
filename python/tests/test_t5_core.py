"""The extension module relpos.t5._core: wrong arguments raise, no call keeps references or memory, and a model that is
closed during a call is freed after it.  SPDX-License-Identifier: Apache-2.0"""
import gc
import pathlib
import signal
import sys
import threading
import weakref

import leaks
import numpy as np
import pytest
import relpos.t5

core = relpos.t5._core
DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/t5/data"
PATH = str(DATA / "byt5").encode()
ROW = np.array([5, 6, 7, 1], np.int32)
WIDTH = core.info(core.open(PATH, "f32", 1, None, None, False))["d_model"]
FEW = {"max_new_tokens": 3, "min_new_tokens": 0, "scores": 1}


@pytest.fixture
def model():
    return core.open(PATH, "f32", 1, None, None, False)


def stop(*_):
    raise KeyError("enough")


def hidden(n=len(ROW), dtype=np.float32):
    return np.empty((n, WIDTH), dtype)


CALLS = {  # name: a call with a model
    "tokenize": lambda m: core.tokenize(m, "a\0é"),
    "detokenize": lambda m: core.detokenize(m, ROW, True),
    "detokenize: outside the vocabulary": lambda m: core.detokenize(m, ROW + 10**6, True),
    "detokenize: int64": lambda m: core.detokenize(m, ROW.astype(np.int64), True),
    "info": core.info,
    "settings": core.settings,
    "notes": core.notes,
    "drafted": core.drafted,
    "pack: no folder": lambda m: core.pack(m, b"/nowhere/x"),
    "prompt: no modules.json": lambda m: core.prompt(m, "x"),
    "generate": lambda m: core.generate(m, [ROW, ROW], FEW, lambda *_: None, np.zeros(1, np.int32)),
    "generate: with lists": lambda m: core.generate(m, (ROW,), {**FEW, "suppress": ROW, "prefix": ROW[:1],
                                                                "bad_words": [ROW, ROW], "stop": (b"x", b"yz")},
                                                    None, None),
    "generate: on_token raises": lambda m: core.generate(m, [ROW], FEW, stop, None),
    "generate: on_token ends it": lambda m: core.generate(m, [ROW], FEW, lambda *_: True, None),
    "generate: the flag is set": lambda m: core.generate(m, [ROW], FEW, None, np.ones(1, np.int32)),
    "generate: a wide flag": lambda m: core.generate(m, [ROW], FEW, None, np.zeros(1)),
    "generate: no beams": lambda m: core.generate(m, [ROW], {"beams": 0}, None, None),
    "generate: many beams": lambda m: core.generate(m, [ROW], {"beams": 2**40}, None, None),
    "generate: half a beam": lambda m: core.generate(m, [ROW], {"beams": 0.5}, None, None),
    "generate: a source of float": lambda m: core.generate(m, [ROW, ROW.astype(float)], FEW, None, None),
    "generate: no sequence": lambda m: core.generate(m, 3, FEW, None, None),
    "generate: no dict": lambda m: core.generate(m, [ROW], [FEW], None, None),
    "generate: bad words": lambda m: core.generate(m, [ROW], {"suppress": ROW, "bad_words": [ROW, 3]}, None, None),
    "generate: stop is a str": lambda m: core.generate(m, [ROW], {"stop": ("x",)}, None, None),
    "generate: stop is a list": lambda m: core.generate(m, [ROW], {"bad_words": [ROW], "stop": [b"x"]}, None, None),
    "encode": lambda m: core.encode(m, [ROW], hidden(), lambda _: None),
    "encode: progress raises": lambda m: core.encode(m, [ROW], hidden(), stop),
    "encode: too few rows": lambda m: core.encode(m, [ROW], hidden(3), None),
    "encode: float64": lambda m: core.encode(m, [ROW], hidden(dtype=np.float64), None),
    "encode: read-only": lambda m: core.encode(m, [ROW], np.frombuffer(bytes(16 * WIDTH), np.float32), None),
    "encode: transposed": lambda m: core.encode(m, [ROW], np.asfortranarray(hidden()), None),
    "encode: every second token": lambda m: core.encode(m, [ROW[::2]], hidden(2), None),
    "vector: no modules.json": lambda m: core.vector(m, "", hidden(), np.empty(0, np.float32)),
    "score": lambda m: core.score(m, (ROW, ROW), np.empty(4), lambda _: None),
    "score: progress raises": lambda m: core.score(m, (ROW, ROW), np.empty(4), stop),
    "score: too few numbers": lambda m: core.score(m, (ROW, ROW), np.empty(3), None),
    "score: three": lambda m: core.score(m, (ROW, ROW, ROW), np.empty(4), None),
    "attention": lambda m: core.attention(m, 1, 0, 1, (ROW, ROW), None),
    "attention: cross": lambda m: core.attention(m, 2, 0, 0, (ROW, ROW), None),
    "attention: no head": lambda m: core.attention(m, 0, 0, 99, (ROW, ROW), None),
    "attention: no layer": lambda m: core.attention(m, 0, 99, 0, (ROW, ROW), None),
    "attention: no part": lambda m: core.attention(m, 99, 0, 0, (ROW, ROW), None),
    "residues: no protein model": lambda m: core.residues(m, None, [b"MK", b"ML"]),
    "residues: one is bad": lambda m: core.residues(m, "prott5", [b"MK", b"M1"]),
    "residues: a str": lambda m: core.residues(m, "prott5", [b"MK", "ML"]),
    "encode_residues: no proteins": lambda m: core.encode_residues(m, m, hidden(), None),
    "open: no folder": lambda _: core.open(b"/nowhere", None, 2, None, None, False),
    "open: wrong type": lambda _: core.open(PATH, "f8", 2, None, None, False),
    "open: threads": lambda _: core.open(PATH, None, -1, None, None, False),
    "open: a second model": lambda _: core.open(PATH, "f32", 2, None, None, True),
    "fasta: no file": lambda _: core.fasta(b"/nowhere"),
    "fasta: records": lambda _: core.fasta_next(core.fasta(str(DATA / "proteins/proteins.fasta").encode())),
}
RAISES = {name for name in CALLS if ":" in name} - {
    "generate: with lists", "attention: cross", "open: a second model", "fasta: records"}


def run(name, model):
    try:
        CALLS[name](model)
    except (ValueError, TypeError, KeyError, OSError, OverflowError, BufferError) as error:
        assert name in RAISES and "\n" not in str(error), error
    else:
        assert name not in RAISES


@pytest.mark.parametrize("name", CALLS)
def test_a_call_keeps_nothing(name):
    leaks.check_that_nothing_is_kept(lambda: core.open(PATH, "f32", 1, None, None, False), core.close,
                                     lambda model: run(name, model), (ROW, FEW, stop))


@pytest.mark.parametrize("name", sorted({name.partition(":")[0] for name in CALLS} - {"open", "fasta", "drafted"}))
def test_a_closed_model(model, name):
    core.close(model)
    core.close(model)
    assert core.drafted(model)["passes"] == 0
    calls = [call for one, call in CALLS.items() if one.partition(":")[0] == name]
    for call in calls:
        with pytest.raises(ValueError, match="the model is closed"):
            call(model)
    with pytest.raises(ValueError):
        core.info(None)


LONG = np.full(12000, 5, np.int32)


class Stop(Exception):
    pass


def raise_stop(*_):
    raise Stop


@pytest.mark.parametrize("call", [
    lambda m: core.generate(m, [ROW], {"max_new_tokens": 10**6, "min_new_tokens": 10**6}, None, None),
    lambda m: core.generate(m, [ROW], {"max_new_tokens": 10**6, "min_new_tokens": 10**6}, lambda *_: None, None),
    lambda m: core.encode(m, [LONG] * 9, hidden(len(LONG) * 9), None),
    lambda m: core.encode(m, [LONG] * 9, hidden(len(LONG) * 9), lambda _: None),
    lambda m: core.score(m, (LONG, LONG), np.empty(len(LONG)), None),
    lambda m: core.attention(m, 0, 1, 0, (LONG[:800], ROW), None)])
def test_a_signal_ends_a_call(model, call):
    references, before = sys.getrefcount(LONG), signal.signal(signal.SIGALRM, raise_stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Stop):
            call(model)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sys.getrefcount(LONG) == references
    core.close(model)  # no call uses it
    with pytest.raises(ValueError, match="closed"):
        core.info(model)


def test_a_model_that_is_closed_in_a_call(model):
    found = []
    thread = threading.Thread(target=lambda: found.extend(core.generate(model, [ROW], {"max_new_tokens": 200,
                                                                                       "min_new_tokens": 200},
                                                                        lambda *_: core.close(model), None)))
    thread.start()
    thread.join()
    assert len(found[0][0]) == 200 * 4
    with pytest.raises(ValueError, match="closed"):
        core.settings(model)


def test_a_model_without_references_is_freed():
    made = relpos.t5.T5(DATA / "byt5", threads=2)
    gone = weakref.ref(made)
    stream = made.stream("hello", max_new_tokens=3)
    del made
    assert gone() is not None and isinstance("".join(stream), str)
    del stream
    gc.collect()
    assert gone() is None
