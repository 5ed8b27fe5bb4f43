"""Test calls in difficult situations: pools of processes and threads, interpreter shutdown, resized arrays, subclasses
of arrays.

SPDX-License-Identifier: Apache-2.0"""
import array
import concurrent.futures
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import relpos

x = np.random.default_rng(5).standard_normal((2, 4, 300, 16), dtype=np.float32)


def bits(seed):
    """Compute attention in a worker process."""
    y = x + np.float32(seed)
    return relpos.attention(y, y, y, bias=relpos.ALiBi(), threads=3).tobytes()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools_of_processes(method):
    """Worker processes started by each method compute the same bits as their parent, which has a thread pool and
    computes meanwhile."""
    want = [bits(n) for n in range(6)]
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        found = [pool.submit(bits, n) for n in range(6)]
        assert [bits(n) for n in range(6)] == want
        assert [f.result(timeout=120) for f in found] == want


def test_forks_while_other_threads_compute():
    """A child process forked while other threads compute can itself compute, and exits."""
    want, stop, wrong = bits(0), threading.Event(), []

    def work():
        while not stop.is_set():
            if bits(0) != want:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                os._exit(0 if bits(0) == want else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not wrong


def test_a_plan_serves_many_threads():
    plan = relpos.Plan(2, 4, 300, 300, 16, bias=relpos.ALiBi(), threads=2)
    want = plan(x, x, x)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for got in pool.map(lambda _: plan(x, x, x), range(40)):
            np.testing.assert_array_equal(got, want)


ENDS = """
import atexit, os, sys, threading, time, numpy as np, relpos
x = np.ones((1, 8, 16384, 64), np.float32)
begun = threading.Event()

def work():
    begun.set()
    relpos.attention(x, x, x, threads=2)

threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(0.2)
print("ends", flush=True)
{how}
"""


@pytest.mark.parametrize("how", ["", "sys.exit(0)", "os._exit(0)",
                                 "atexit.register(lambda: relpos.attention(*[x[:, :, :64]] * 3))",
                                 "os.kill(os.getpid(), 15)"])
def test_an_interpreter_that_ends_during_a_call(how):
    """The interpreter shuts down while a daemon thread is in a long call. This used to crash: the thread was killed
    when it requested the GIL to check for signals, and its pool threads kept using its stack frames."""
    done = subprocess.run([sys.executable, "-P", "-c", ENDS.format(how=how)], capture_output=True, text=True,
                          timeout=300)
    assert done.stdout == "ends\n" and done.stderr == ""
    assert done.returncode == (-15 if "kill" in how else 0)


def test_calls_at_exit():
    code = """if True:
        import atexit, weakref, numpy as np, relpos
        x = np.ones((1, 2, 300, 8), np.float32)
        atexit.register(lambda: print(relpos.attention(x, x, x, threads=2).shape))
        class Late:
            def __del__(self):
                relpos.attention(x, x, x)
        late = Late()
        relpos.late = Late()
    """
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "(1, 2, 300, 8)\n")


def test_a_module_that_is_imported_again():
    code = """if True:
        import importlib, sys, numpy as np, relpos
        x = np.ones((1, 2, 30, 8), np.float32)
        want = relpos.attention(x, x, x, bias=relpos.ALiBi())
        for name in [n for n in sys.modules if n.split(".")[0] == "relpos"]:
            del sys.modules[name]
        import relpos as again
        assert np.array_equal(again.attention(x, x, x, bias=again.ALiBi()), want)
    """
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("make",
                         [lambda: bytearray(4 * 2 * 4096 * 64), lambda: array.array("f", bytes(4 * 2 * 4096 * 64))],
                         ids=["bytearray", "array"])
def test_memory_is_not_resized_during_a_call(make):
    """Arrays cannot be resized while a call uses them. They can be resized afterwards."""
    owner = make()
    y = np.frombuffer(owner, np.float32).reshape(1, 2, 4096, 64)
    view = memoryview(y)
    del y
    thread = threading.Thread(target=lambda: relpos.attention(view, view, view, threads=1))
    thread.start()
    with pytest.raises(BufferError):
        owner.extend(owner[:1])
    thread.join()
    view.release()


def test_an_array_is_not_resized_during_a_call():
    """A call keeps references to its arrays, so NumPy refuses to resize them. (refcheck=False would skip this
    check.)"""
    y = np.ones((1, 2, 6000, 64), np.float32)
    begun, refused = threading.Event(), []

    def work():
        begun.set()
        relpos.attention(y, y, y, threads=1)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    while thread.is_alive() and not refused:
        time.sleep(0.01)
        try:
            y.resize((1, 2, 12000, 64))
        except ValueError:
            refused.append(1)
    thread.join()
    assert refused


class Marked(np.ndarray):
    """A subclass of ndarray that sets `mark` on every new array and refuses indexing."""

    def __array_finalize__(self, obj):
        self.mark = getattr(obj, "mark", "new")

    def __getitem__(self, index):
        raise RuntimeError("nobody indexes this")


def test_subclasses_are_read_as_arrays(tmp_path):
    want = relpos.attention(x, x, x, bias=relpos.ALiBi(np.ones(4, np.float32)))
    stored = np.memmap(tmp_path / "x", np.float32, "w+", shape=x.shape)
    stored[...] = x
    read = np.memmap(tmp_path / "x", np.float32, "r", shape=x.shape)
    for y in (x.view(Marked), stored, read, x.view(np.recarray)):
        got = relpos.attention(y, y, y, bias=relpos.ALiBi(np.ones(4, np.float32).view(Marked)))
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, want)
    rows = np.asmatrix(x[0, 0])
    np.testing.assert_array_equal(relpos.attention(rows, rows, rows), relpos.attention(x[0, 0], x[0, 0], x[0, 0]))
    into = np.zeros_like(x).view(Marked)
    assert relpos.attention(x, x, x, bias=relpos.ALiBi(np.ones(4, np.float32)), out=into) is into
    np.testing.assert_array_equal(np.asarray(into), want)
    with pytest.raises(TypeError):
        relpos.attention(np.ma.masked_array(x), x, x)


def test_other_objects_that_are_arrays():
    """A call with an object whose __array__ or buffer changes between reads works or raises, but never crashes."""
    class Lies:
        def __init__(self, shape):
            self.shape, self.asked = shape, 0

        def __array__(self, dtype=None, copy=None):
            self.asked += 1
            return x if self.asked % 2 else x[:1, :1]

    for _ in range(3):
        try:
            got = relpos.attention(Lies(x.shape), Lies((1,)), x)
            assert got.shape == x.shape
        except (TypeError, ValueError):
            pass
