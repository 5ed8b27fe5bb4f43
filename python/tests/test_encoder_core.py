"""The extension module relpos.encoder._core: wrong arguments raise, no call keeps references or memory, and a model
that is closed during a call is freed after it.  SPDX-License-Identifier: Apache-2.0"""
import gc
import pathlib
import signal
import sys
import threading
import weakref

import leaks
import numpy as np
import pytest
import relpos.encoder

core = relpos.encoder._core
DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/encoder/texts"
PATH = str(DATA / "labels").encode()
ROW, LENGTHS = np.array([4, 20, 30, 5], np.int32), np.array([3, 1], np.int64)
WIDTH, LABELS = 24, 3
TEXTS, PAIRS = ["the cat", "a\0é"], [("the cat", "sleeps"), ("dog", "")]


def open_model(name="labels"):
    return core.open(str(DATA / name).encode(), "f32", 1)


@pytest.fixture
def model():
    return open_model()


def stop(*_):
    raise KeyError("enough")


def out(*shape, dtype=np.float32):
    return np.empty(shape, dtype)


CALLS = {  # name: a call with a model
    "tokenize": lambda m: core.tokenize(m, "a\0é", 0),
    "tokenize: a tuple of one": lambda m: core.tokenize(m, ("a",), 5),
    "tokenize: a pair": lambda m: core.tokenize(m, ("a", "é"), 5),
    "tokenize: three texts": lambda m: core.tokenize(m, ("a", "b", "c"), 5),
    "tokenize: no text": lambda m: core.tokenize(m, (), 5),
    "tokenize: bytes": lambda m: core.tokenize(m, b"a", 5),
    "tokenize: surrogates": lambda m: core.tokenize(m, ("a", "\udc80"), 5),
    "tokenize: no room": lambda m: core.tokenize(m, "a", 1),
    "tokenize: negative": lambda m: core.tokenize(m, "a", -1),
    "info": core.info,
    "notes": core.notes,
    "labels": core.labels,
    "pack: no folder": lambda m: core.pack(m, b"/nowhere/x"),
    "prompt: no modules.json": lambda m: core.prompt(m, "x"),
    "embed": lambda m: core.embed(m, "the ", TEXTS, out(2, WIDTH), lambda _: None),
    "embed: a tuple": lambda m: core.embed(m, None, tuple(TEXTS), out(2, WIDTH), None),
    "embed: an iterator": lambda m: core.embed(m, None, iter(TEXTS), out(2, WIDTH), None),
    "embed: no texts": lambda m: core.embed(m, None, [], out(0, WIDTH), None),
    "embed: progress raises": lambda m: core.embed(m, None, TEXTS, out(2, WIDTH), stop),
    "embed: too few rows": lambda m: core.embed(m, None, TEXTS, out(1, WIDTH), None),
    "embed: float64": lambda m: core.embed(m, None, TEXTS, out(2, WIDTH, dtype=np.float64), None),
    "embed: read-only": lambda m: core.embed(m, None, TEXTS, np.frombuffer(bytes(8 * WIDTH), np.float32), None),
    "embed: transposed": lambda m: core.embed(m, None, TEXTS, np.asfortranarray(out(2, WIDTH)), None),
    "embed: a number": lambda m: core.embed(m, None, ["a", 3], out(2, WIDTH), None),
    "embed: no sequence": lambda m: core.embed(m, None, 3, out(2, WIDTH), None),
    "embed: prompt with null": lambda m: core.embed(m, "a\0", TEXTS, out(2, WIDTH), None),
    "classify": lambda m: core.classify(m, [*TEXTS, *PAIRS], out(4, LABELS), lambda _: None),
    "classify: progress raises": lambda m: core.classify(m, TEXTS, out(2, LABELS), stop),
    "classify: too many numbers": lambda m: core.classify(m, TEXTS, out(3, LABELS), None),
    "rerank: three labels": lambda m: core.rerank(m, PAIRS, out(2), None),
    "hidden": lambda m: core.hidden(m, ROW, None, LENGTHS, out(4, WIDTH), lambda _: None),
    "hidden: types": lambda m: core.hidden(m, ROW, ROW % 2, LENGTHS, out(4, WIDTH), None),
    "hidden: progress raises": lambda m: core.hidden(m, ROW, None, LENGTHS, out(4, WIDTH), stop),
    "hidden: too few types": lambda m: core.hidden(m, ROW, ROW[:3], LENGTHS, out(4, WIDTH), None),
    "hidden: type 9": lambda m: core.hidden(m, ROW, ROW * 0 + 9, LENGTHS, out(4, WIDTH), None),
    "hidden: int64": lambda m: core.hidden(m, ROW.astype(np.int64), None, LENGTHS, out(4, WIDTH), None),
    "hidden: outside the vocabulary": lambda m: core.hidden(m, ROW + 10**6, None, LENGTHS, out(4, WIDTH), None),
    "hidden: lengths too long": lambda m: core.hidden(m, ROW, None, LENGTHS + 1, out(4, WIDTH), None),
    "hidden: lengths too short": lambda m: core.hidden(m, ROW, None, LENGTHS[:1], out(4, WIDTH), None),
    "hidden: a negative length": lambda m: core.hidden(m, ROW, None, np.array([5, -1]), out(4, WIDTH), None),
    "hidden: a huge length": lambda m: core.hidden(m, ROW, None, np.array([2**62, 2**62]), out(4, WIDTH), None),
    "hidden: int32 lengths": lambda m: core.hidden(m, ROW, None, LENGTHS.astype(np.int32), out(4, WIDTH), None),
    "logits": lambda m: core.logits(m, ROW, None, LENGTHS, out(2, LABELS), lambda _: None),
    "logits: too few numbers": lambda m: core.logits(m, ROW, None, LENGTHS, out(2), None),
    "vector": lambda m: core.vector(m, "", np.zeros((4, WIDTH), np.float32), out(WIDTH)),
    "vector: too few numbers": lambda m: core.vector(m, "", out(4, WIDTH), out(WIDTH - 1)),
    "vector: float64": lambda m: core.vector(m, "", out(4, WIDTH, dtype=np.float64), out(WIDTH)),
    "open: no folder": lambda _: core.open(b"/nowhere", None, 2),
    "open: wrong type": lambda _: core.open(PATH, "f8", 2),
    "open: threads": lambda _: core.open(PATH, None, -1),
    "open: a second model": lambda _: core.open(PATH, "f16", 2),
}
RAISES = {name for name in CALLS if ":" in name} - {
    "tokenize: a tuple of one", "tokenize: a pair", "embed: a tuple", "embed: an iterator", "embed: no texts",
    "hidden: types", "open: a second model"}


def run(name, model):
    try:
        CALLS[name](model)
    except (ValueError, TypeError, KeyError, OSError, BufferError) as error:
        assert name in RAISES and "\n" not in str(error), error
    else:
        assert name not in RAISES


@pytest.mark.parametrize("name", CALLS)
def test_a_call_keeps_nothing(name):
    leaks.check_that_nothing_is_kept(open_model, core.close, lambda model: run(name, model),
                                     (ROW, LENGTHS, TEXTS, PAIRS, *TEXTS, *PAIRS, stop))


@pytest.mark.parametrize("name", sorted({name.partition(":")[0] for name in CALLS} - {"open"}))
def test_a_closed_model(model, name):
    core.close(model)
    core.close(model)
    for call in (call for one, call in CALLS.items() if one.partition(":")[0] == name):
        with pytest.raises(ValueError, match="the model is closed"):
            call(model)
    with pytest.raises(ValueError):
        core.info(None)


@pytest.mark.parametrize("lengths", [[3], [3, 2], [5, -1], [-1, 5], [2**62, 2**62], [2**63 - 1, 2**63 - 1, 6], []])
def test_lengths_that_are_not_of_the_tokens(model, lengths):
    with pytest.raises(TypeError, match="the lengths are not those of the tokens"):
        core.hidden(model, ROW, None, np.array(lengths, np.int64), out(4, WIDTH), None)


class Stop(Exception):
    pass


def raise_stop(*_):
    raise Stop


MANY = ["the cat sleeps on monday"] * 200000
LONG = np.full(30 * 20000, 20, np.int32)


@pytest.mark.parametrize("call", [
    lambda m: core.embed(m, None, MANY, out(len(MANY), WIDTH), None),
    lambda m: core.embed(m, None, MANY, out(len(MANY), WIDTH), lambda _: None),
    lambda m: core.classify(m, MANY, out(len(MANY), LABELS), None),
    lambda m: core.hidden(m, LONG, None, np.full(20000, 30), out(len(LONG), WIDTH), None),
    lambda m: core.logits(m, LONG, None, np.full(20000, 30), out(20000, LABELS), None)])
def test_a_signal_ends_a_call(model, call):
    references, before = [sys.getrefcount(x) for x in (MANY[0], MANY, LONG)], signal.signal(signal.SIGALRM, raise_stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Stop):
            call(model)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [sys.getrefcount(x) for x in (MANY[0], MANY, LONG)] == references
    core.close(model)  # no call uses it
    with pytest.raises(ValueError, match="closed"):
        core.info(model)


def test_a_model_that_is_closed_in_a_call(model):
    want, got = out(200, LABELS), out(200, LABELS)
    core.classify(model, MANY[:200], want, None)
    thread = threading.Thread(target=lambda: core.classify(model, MANY[:200], got, lambda _: core.close(model)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="closed"):
        core.info(model)


def test_a_text_that_is_deleted_in_a_call(model):
    """The call keeps the texts, even if another thread clears their list."""
    texts, want, got = [f"the cat {n} sleeps" for n in range(200)], out(200, LABELS), out(200, LABELS)
    core.classify(model, texts, want, None)
    core.classify(model, texts, got, lambda _: texts.clear())
    np.testing.assert_array_equal(got, want)
    assert texts == []


def test_a_model_without_references_is_freed():
    made = relpos.Encoder(DATA / "labels", threads=2)
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None
