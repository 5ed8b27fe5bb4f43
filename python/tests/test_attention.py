"""Compare attention() on NumPy arrays with the definition, for options, masks, types, strides and results.

SPDX-License-Identifier: Apache-2.0"""
import os
import subprocess
import sys
import threading
import time

import ml_dtypes
import pickle

import numpy as np
import oracle
import pytest
import relpos

TOLERANCE = {np.float32: 3e-6, np.float64: 1e-13, np.float16: 4e-3, ml_dtypes.bfloat16: 3e-2}


def arrays(*shapes, dtype=np.float32, seed=7):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def qkv(dtype=np.float32):
    return arrays((2, 4, 13, 8), (2, 2, 17, 8), (2, 2, 17, 5), dtype=dtype)


R = oracle.offsets(13, 17)
rng = np.random.default_rng(3)
KEYS = rng.integers(0, 2, (2, 17))
PAIRS = rng.integers(0, 2, (2, 1, 13, 17)).astype(bool)

OPTIONS = [
    (dict(), dict()),
    (dict(scale=0.5), dict(scale=0.5)),
    (dict(scale=0), dict(scale=0.0)),
    (dict(softcap=2.0), dict(softcap=2.0)),
    (dict(softcap=2.0, softcap_after=True, bias=relpos.LogDecay(3.0)),
     dict(softcap=2.0, softcap_after=True, bias=-3 * np.log1p(abs(R)))),
    (dict(softcap=2.0, bias=relpos.LogDecay(3.0)), dict(softcap=2.0, bias=-3 * np.log1p(abs(R)))),
    (dict(softcap=2.0, softcap_after=1.5, bias=relpos.LogDecay(3.0)),
     dict(softcap=2.0, softcap_after=1.5, bias=-3 * np.log1p(abs(R)))),
    (dict(softcap_after=1.5, bias=relpos.LogDecay(3.0)), dict(softcap_after=1.5, bias=-3 * np.log1p(abs(R)))),
    (dict(causal=True), dict(keep=R <= 0)),
    (dict(causal=True, q_offset=4), dict(keep=R - 4 <= 0)),
    (dict(causal=True, q_offset=np.array([4, 0])), dict(keep=np.stack([R - 4 <= 0, R <= 0])[:, None])),
    (dict(window=(3, 2)), dict(keep=(R >= -3) & (R <= 2))),
    (dict(window=(3, -1)), dict(keep=R >= -3)),
    (dict(window=[None, 2]), dict(keep=R <= 2)),
    (dict(key_mask=KEYS), dict(keep=KEYS[:, None, None] != 0)),
    (dict(key_mask=KEYS.astype(bool)), dict(keep=KEYS[:, None, None] != 0)),
    (dict(mask=PAIRS), dict(keep=PAIRS)),
    (dict(mask=PAIRS[0, 0]), dict(keep=PAIRS[0, 0])),
    (dict(lengths=np.array([5, 0], np.int32)), dict(keep=(np.arange(17) < np.array([5, 0])[:, None])[:, None, None])),
    (dict(sink=relpos.Sink(np.arange(4.0))), dict(sink=np.arange(4.0))),
    (dict(precision="high", threads=2), dict()),
]


@pytest.mark.parametrize("options, definition", OPTIONS,
                         ids=[repr(sorted(o)) + str(n) for n, (o, _) in enumerate(OPTIONS)])
def test_options_equal_the_definition(options, definition):
    q, k, v = qkv()
    out, weights, lse = oracle.attention(q, k, v, **definition)
    tolerance = 3e-5 if "precision" in options else 3e-6
    got = relpos.attention(q, k, v, **options, return_weights=True, return_lse=True)
    np.testing.assert_allclose(got.out, out, atol=tolerance)
    np.testing.assert_allclose(got.weights, weights, atol=1e-6)
    np.testing.assert_allclose(got.lse, lse, atol=1e-5)
    assert got.summary is None


def test_segments():
    q, k, v = arrays((2, 2, 9, 4), (2, 2, 9, 4), (2, 2, 9, 4))
    segments = np.array([[0, 0, 0, 1, 1, 1, 1, 2, 2], [5, 5, 5, 5, 5, 5, 5, 5, 5]])
    want = oracle.attention(q, k, v, keep=(segments[:, None, :, None] == segments[:, None, None, :]))[0]
    np.testing.assert_allclose(relpos.attention(q, k, v, segments=segments), want, atol=3e-6)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda t: t.__name__)
def test_every_type_keeps_its_tolerance(dtype):
    q, k, v = qkv(dtype)
    table, = arrays((32, 4), dtype=dtype, seed=1)
    got = relpos.attention(q, k, v, bias=relpos.T5(table), causal=True, return_lse=True)
    bias = table.astype(np.float64)[oracle.bucket(R)].transpose(2, 0, 1)
    want, _, lse = oracle.attention(q, k, v, bias=bias, keep=R <= 0)
    assert got.out.dtype == dtype
    assert got.lse.dtype == (np.float64 if dtype is np.float64 else np.float32)
    np.testing.assert_allclose(got.out.astype(np.float64), want, atol=TOLERANCE[dtype])
    np.testing.assert_allclose(got.lse, lse, atol=1e-5)


def test_without_a_batch_axis():
    q, k, v = (x[0] for x in qkv())
    want, _, lse = oracle.attention(q[None], k[None], v[None])
    out = np.empty((4, 13, 5), np.float32)
    got = relpos.attention(q, k, v, return_lse=True, return_weights=True, summary=True, out=out)
    assert got.out is out and got.lse.shape == (4, 13) and got.weights.shape == (4, 13, 17)
    assert got.summary.profile.shape == (4, 29) and got.summary.entropy.shape == (4, 13)
    np.testing.assert_allclose(out, want[0], atol=3e-6)
    np.testing.assert_allclose(got.lse, lse[0], atol=1e-5)


def test_summary():
    q, k, v = qkv()
    got = relpos.attention(q, k, v, causal=True, summary=True)
    _, w, _ = oracle.attention(q, k, v, keep=R <= 0)
    np.testing.assert_allclose(got.summary.key_mass, w.sum(2), atol=1e-5)
    np.testing.assert_allclose(got.summary.entropy, -(w * np.log(np.where(w > 0, w, 1))).sum(-1), atol=1e-5)
    profile = np.stack([np.trace(w, t - 12, 2, 3) / np.trace(np.ones((13, 17)), t - 12) for t in range(29)], -1)
    np.testing.assert_allclose(got.summary.profile, profile, atol=1e-6)
    assert got.weights is None and got.lse is None


def test_strides_are_kept():
    q, k, v = qkv()
    want = relpos.attention(q, k, v)
    q2 = np.ascontiguousarray(q.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)  # [B, L, H, D] in memory
    k2 = np.ascontiguousarray(k[:, :, ::-1])[:, :, ::-1]  # a negative stride
    v2 = np.ones((2, 2, 17, 9), np.float32)
    v2[..., 2:7] = v
    out = np.full((2, 13, 4, 5), 9, np.float32)
    got = relpos.attention(q2, k2, v2[..., 2:7], out=out.transpose(0, 2, 1, 3))
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(out.transpose(0, 2, 1, 3), want)


def test_arrays_that_broadcast():
    q, k, v = qkv()
    want = relpos.attention(q[:1].repeat(2, 0), k, v, bias=relpos.Dense(np.ones((2, 4, 13, 17)) * R))
    got = relpos.attention(np.broadcast_to(q[:1], q.shape), k, v, bias=relpos.Dense(np.broadcast_to(R * 1.0, (13, 17))))
    np.testing.assert_array_equal(got, want)


def test_read_only_inputs_and_no_copy_of_out():
    q, k, v = qkv()
    for x in (q, k, v):
        x.flags.writeable = False
    out = np.empty((2, 4, 13, 5), np.float32)
    assert relpos.attention(q, k, v, out=out) is out
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        relpos.attention(q, k, v, out=out)


def test_other_buffers():
    q = memoryview(np.ones((1, 1, 2, 3), np.float32))
    np.testing.assert_array_equal(relpos.attention(q, q, q), np.ones((1, 1, 2, 3)))


@pytest.mark.parametrize("error", [MemoryError, TypeError, KeyboardInterrupt])
def test_what_dlpack_raises_is_raised(error):
    class Fails:
        def __dlpack__(self, **_):
            raise error("of its own")

        def __dlpack_device__(self):
            return 1, 0

    with pytest.raises(error, match="of its own"):
        relpos.attention(Fails(), *np.zeros((2, 1, 1, 2, 2), "f4"))


def test_other_libraries_by_dlpack():
    class Tensor:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

    q, k, v = qkv()
    got = relpos.attention(*map(Tensor, (q, k, v)), return_lse=True)
    assert isinstance(got.out, np.ndarray)
    np.testing.assert_array_equal(got.out, relpos.attention(q, k, v))


OLD_TORCH = """
import sys, types
import numpy as np
import relpos

class Tensor:
    requires_grad = False

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self.array

    __dlpack__ = property(lambda self: self.array.__dlpack__)

    def is_neg(self):
        return False

    def data_ptr(self):
        return self.array.ctypes.data

torch = sys.modules["torch"] = types.ModuleType("torch")
torch.float32 = np.float32
x = np.ones((1, 1, 2, 3), np.float32)
try:
    relpos.attention(*map(Tensor, (x, x, x)))
except AttributeError as error:
    assert "empty" in str(error), error
else:
    sys.exit("torch has no empty")
torch.empty = lambda shape, dtype: Tensor(np.empty(shape, dtype))
out = relpos.attention(*map(Tensor, (x, x, x)))
assert type(out) is Tensor and (out.array == x).all()
"""


def test_tensors_without_exchange_api():
    """Pass tensors of a torch without DLPack's exchange API, at first without torch.empty, in another process, because
    the module caches what it finds in torch."""
    subprocess.run([sys.executable, "-P", "-c", OLD_TORCH], check=True)


def test_no_keys_and_no_rows():
    q, k, v = arrays((1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 4))
    got = relpos.attention(q, k, v, return_lse=True)
    np.testing.assert_array_equal(got.out, 0)
    assert (got.lse == -np.inf).all()
    assert relpos.attention(k, q, q).shape == (1, 2, 0, 4)
    assert relpos.attention(q[:0], q[:0], q[:0]).shape == (0, 2, 3, 4)


def test_dropout():
    q, k, v = qkv()
    got = relpos.attention(q, k, v, dropout=0.5, seed=2**64 - 1)
    np.testing.assert_array_equal(got, relpos.attention(q, k, v, dropout=0.5, seed=2**64 - 1, threads=3))
    assert not np.array_equal(got, relpos.attention(q, k, v, dropout=0.5, seed=1))
    one = np.ones((1, 1, 1, 1), np.float32)
    kept = [float(relpos.attention(one, one, one, dropout=0.25, seed=s).item()) for s in range(400)]
    assert set(kept) == {0.0, float(np.float32(1 / 0.75))} and 240 < sum(x > 0 for x in kept) < 360


def test_dropout_without_a_seed():
    """Each call draws a seed, which the Result names."""
    q = np.random.default_rng(0).normal(size=(1, 2, 9, 8))
    call = lambda **more: relpos.attention(q, q, q, bias=relpos.ALiBi(), dropout=0.5, **more)
    assert not np.array_equal(call(), call())
    found = call(return_lse=True)
    out, weights, lse, summary = found
    assert np.array_equal(out, call(seed=found.seed)) and f"seed={found.seed})" in repr(found)
    assert pickle.loads(pickle.dumps(found)).seed == found.seed != call(return_lse=True).seed
    assert call(return_lse=True, seed=5).seed == 5
    for without in (relpos.attention(q, q, q, return_lse=True, seed=5),
                    relpos.attention(q, q, q, dropout=0, return_lse=True)):
        assert without.seed is None and "seed" not in repr(without)
    with pytest.raises(TypeError, match="relpos.attention_backward: dropout is given without seed"):
        relpos.attention_backward(q, q, q, q, dropout=0.5)
    plan = relpos.Plan(1, 2, 9, 9, 8, dtype="float64", bias=relpos.ALiBi(), dropout=0.5)
    found = plan(q, q, q, return_lse=True)
    assert (np.array_equal(found.out, call(seed=found.seed)) and np.array_equal(found.out, plan(q, q, q))
            and f"seed={found.seed}" in repr(plan))
    want = relpos.attention_backward(q, q, q, q, bias=relpos.ALiBi(), dropout=0.5, seed=found.seed)
    assert np.array_equal(plan.backward(q, q, q, q).q, want.q)



def test_numpy_scalars_as_options():
    q, k, v = qkv()
    want = relpos.attention(q, k, v, scale=0.25, causal=True, window=(3, 3), seed=3, dropout=0.5)
    got = relpos.attention(q, k, v, scale=np.float32(0.25), causal=np.True_, window=np.array([3, 3]), seed=np.int64(3),
                           dropout=0.5)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(relpos.attention(q, k, v, causal=True, q_offset=np.int64(2)),
                                  relpos.attention(q, k, v, causal=True, q_offset=2))


def test_threads_give_the_same_bits():
    q, k, v = arrays((2, 4, 300, 16), (2, 4, 300, 16), (2, 4, 300, 16))
    want = relpos.attention(q, k, v, threads=1)
    for n in range(2, 9):  # more values than there are cached pools
        np.testing.assert_array_equal(relpos.attention(q, k, v, threads=n), want)


def test_as_many_threads_as_asked_for():
    code = """if True:
        import os, numpy, relpos
        q = numpy.ones((2, 4, 600, 16), numpy.float32)
        before = len(os.listdir("/proc/self/task"))
        for n in (1, 3, 3):
            relpos.attention(q, q, q, threads=n)
            print(len(os.listdir("/proc/self/task")) - before)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "2", "2"]


@pytest.mark.skipif(relpos.show_config()["isa"] != "amx", reason="precision changes something with AMX alone")
def test_precision():
    q, k, v = arrays((1, 2, 64, 64), (1, 2, 64, 64), (1, 2, 64, 64))
    got = [relpos.attention(q, k, v, precision=p) for p in ("highest", "high")]
    want = oracle.attention(q, k, v)[0]
    errors = [np.abs(x - want).max() for x in got]
    assert 0 < errors[0] < errors[1] < 1e-4


def test_calls_from_several_threads():
    q, k, v = arrays((1, 4, 200, 16), (1, 4, 200, 16), (1, 4, 200, 16))
    want = relpos.attention(q, k, v, causal=True)
    wrong = []

    def work():
        for _ in range(20):
            if not np.array_equal(relpos.attention(q, k, v, causal=True), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_the_lock_is_released():
    """Another Python thread runs while a call computes. The test sets a long switch interval, so the other thread runs
    only if the call releases the GIL."""
    q, k, v = arrays((1, 8, 1500, 64), (1, 8, 1500, 64), (1, 8, 1500, 64), dtype=np.float64)
    begin, ran = threading.Event(), threading.Event()

    def work():
        begin.wait()
        ran.set()

    thread, interval = threading.Thread(target=work), sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread.start()
        begin.set()
        early = ran.is_set()
        for _ in range(100):  # a busy machine may not run the other thread during the first call
            relpos.attention(q, k, v, threads=1)
            late = ran.is_set()
            if late:
                break
    finally:
        sys.setswitchinterval(interval)
        begin.set()
        thread.join()
    assert late and not early


def test_a_forked_child_computes():
    q, k, v = arrays((2, 4, 300, 16), (2, 4, 300, 16), (2, 4, 300, 16))
    want = relpos.attention(q, k, v, threads=3)  # starts the threads of the pool
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(relpos.attention(q, k, v, threads=3), want) else 1)
    end = time.monotonic() + 30
    while (state := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.01)
    if state == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert state == (child, 0)


def test_nothing_is_leaked():
    """A call releases its references to arrays, whether it succeeds or not."""
    q, k, v = qkv()
    table = np.ones((32, 4), np.float32)
    half = np.ones((2, 4, 13, 8), ml_dtypes.bfloat16)
    objects = (q, k, v, table, half, None)

    def calls():
        relpos.attention(q, k, v, bias=relpos.T5(table), threads=2, return_lse=True, summary=True, window=(1, None))
        relpos.attention(half, half, half)
        relpos.attention_backward(np.ones((2, 4, 13, 5), np.float32), q, k, v, bias=relpos.T5(table),
                                  wanted=("q", "table"))
        relpos.explain(q, k, v)
        relpos.Plan(2, 4, 13, 17, 8, kv_heads=2, dim_v=5, bias=relpos.T5(table), threads=1)(q, k, v)
        for bad in (dict(bias=relpos.T5(table[:3])), dict(window=3), dict(key_mask=[1, 0, 0]), dict(out=q)):
            with pytest.raises((ValueError, TypeError)):
                relpos.attention(q, k, v, **bad)

    calls()
    before = [sys.getrefcount(x) for x in objects]
    for _ in range(300):
        calls()
    after = [sys.getrefcount(x) for x in objects]
    assert all(abs(a - b) < 200 for a, b in zip(after, before)), (before, after)


# ---- ways to give the same arrays

def test_a_last_axis_that_is_not_contiguous():
    """If the last axis of q, k or v is not contiguous, relpos reads a copy: forward, backward, in plans and in
    explain."""
    rng = np.random.default_rng(4)
    q, k, v, dout = (rng.standard_normal((2, 4, 7, 8)).astype(np.float32) for _ in range(4))
    for other in (lambda x: np.asfortranarray(x), lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
                  lambda x: x.repeat(2, -1)[..., ::2],
                  lambda x: memoryview(np.asfortranarray(x))):
        for n in range(3):
            given = [other(x) if n == at else x for at, x in enumerate((q, k, v))]
            np.testing.assert_array_equal(relpos.attention(*given, causal=True), relpos.attention(q, k, v, causal=True))
        g, want = (relpos.attention_backward(f(dout), f(q), f(k), f(v), causal=True) for f in (other, lambda x: x))
        for a, b in zip(g[:3], want[:3]):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(relpos.Plan(2, 4, 7, 7, 8)(np.asfortranarray(q), k, v), relpos.attention(q, k, v))
    np.testing.assert_array_equal(relpos.explain(np.asfortranarray(q), k, v).out, relpos.explain(q, k, v).out)
    wide = np.broadcast_to(q[..., :1], q.shape)
    np.testing.assert_array_equal(relpos.attention(wide, k, v), relpos.attention(wide.copy(), k, v))


def test_lists_of_numbers():
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((2, 4, 7, 8)).astype(np.float32) for _ in range(3))
    for name, value in dict(lengths=[3, 7], q_offset=[2, 0], key_mask=[[1, 0, 1, 1, 1, 0, 1]],
                            segments=[[0, 0, 1, 1, 1, 2, 2]] * 2,
                            mask=((True,), (False,), (True,), (True,), (True,), (True,), (True,))).items():
        want = relpos.attention(q, k, v, causal=True, **{name: np.array(value)})
        np.testing.assert_array_equal(relpos.attention(q, k, v, causal=True, **{name: value}), want)
        if name != "q_offset":
            assert (want != relpos.attention(q, k, v, causal=True)).any()
    np.testing.assert_array_equal(relpos.attention(q, k, v, lengths=3),
                                  relpos.attention(q, k, v, lengths=np.array([3, 3])))
    assert (relpos.attention(q, k, v, lengths=[0, 7])[0] == 0).all()


@pytest.mark.parametrize("batch", [True, False])
def test_heads_beside_channels(batch):
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((2, n, 4, 8)).astype(np.float32)[() if batch else 0] for n in (5, 7, 7))
    swap = lambda x: x.swapaxes(-3, -2)
    want = relpos.attention(*map(swap, (q, k, v)), bias=relpos.ALiBi(), return_weights=True)
    out = np.empty_like(q)
    got = relpos.attention(q, k, v, bias=relpos.ALiBi(), return_weights=True, layout="blhd", out=out)
    np.testing.assert_array_equal(got.out, swap(want.out))
    np.testing.assert_array_equal(out, swap(want.out))
    np.testing.assert_array_equal(got.weights, want.weights)
    np.testing.assert_array_equal(relpos.attention(q, k, v, bias=relpos.ALiBi(), layout="blhd"), out)
