"""Ctrl-C ends a long call soon, and releases its references.  SPDX-License-Identifier: Apache-2.0"""
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import relpos

N = 32768
x = np.random.default_rng(1).standard_normal((1, 8, N, 64), dtype=np.float32)


class Stop(Exception):
    pass


# Calls with only the last `rows` queries. Their work is proportional to `rows`.
def forward(rows):
    relpos.attention(x[:, :, -rows:], x, x, bias=relpos.ALiBi())


def backward(rows):
    last = x[:, :, -rows:]
    relpos.attention_backward(last, last, x, x, out=last, lse=np.zeros((1, 8, rows), np.float32))


def plan(rows):
    relpos.Plan(1, 8, rows, N, 64, threads=1)(x[:, :, -rows:], x, x)


def weights(rows):
    relpos.attention(x[:, :1, -(rows // 2):], x[:, :1], x[:, :1], return_weights=True)


@pytest.mark.parametrize("call", [forward, backward, plan, weights])
def test_a_signal_ends_a_call(call):
    """The signal arrives after an eighth of the work, measured in processor time. The call must end before half of the
    work is done."""
    def handler(*_):
        raise Stop

    start = time.process_time()
    call(N // 16)
    sixteenth = time.process_time() - start
    references, before = sys.getrefcount(x), signal.signal(signal.SIGPROF, handler)
    try:
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, 2 * sixteenth)
        with pytest.raises(Stop):
            call(N)
        spent = time.process_time() - start
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert spent < 8 * sixteenth
    assert sys.getrefcount(x) == references
    small = x[:, :, :64]
    np.testing.assert_array_equal(relpos.attention(small, small, small, threads=2),
                                  relpos.attention(small, small, small, threads=1))


def test_a_handler_that_raises_nothing():
    def handler(*_):
        handler.called = True

    part = x[:, :, :4096]
    want = relpos.attention(part, part, part)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        np.testing.assert_array_equal(relpos.attention(part, part, part), want)
        time.sleep(0.05)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert handler.called


CODE = """
import numpy as np, relpos, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets those in its background ignore it
x = np.ones((1, 8, 65536, 64), np.float32)
print("begun", flush=True)
try:
    relpos.attention(x, x, x, return_lse=True)
except KeyboardInterrupt:
    print("ended", flush=True)
"""


def test_ctrl_c():
    with subprocess.Popen([sys.executable, "-P", "-c", CODE], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "begun\n"
        time.sleep(0.5)
        os.kill(child.pid, signal.SIGINT)
        assert child.communicate(timeout=20)[0] == "ended\n"
        assert child.returncode == 0
