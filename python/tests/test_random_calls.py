"""Compare attention() and attention_backward() with NumPy in float64 for shapes, options, strides and types drawn by
hypothesis. By default, every run uses the same 60 examples; RELPOS_EXAMPLES=5000 draws 5000 new ones.

SPDX-License-Identifier: Apache-2.0"""
import os

import ml_dtypes
import numpy as np
import oracle
import pytest
import relpos

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import strategies as st  # noqa: E402

MANY = os.environ.get("RELPOS_EXAMPLES")
PROFILE = hypothesis.settings(deadline=None, database=None, max_examples=int(MANY or 60), derandomize=not MANY,
                              print_blob=True,
                              suppress_health_check=list(hypothesis.HealthCheck))
# type: (unit roundoff of the arithmetic, unit roundoff of the storage)
TYPES = {np.float32: (2.0 ** -24, 2.0 ** -24), np.float64: (2.0 ** -53, 2.0 ** -53),
         np.float16: (2.0 ** -24, 2.0 ** -11),
         ml_dtypes.bfloat16: (2.0 ** -24, 2.0 ** -8)}


def laid_out(draw, x):
    """Return an array with the values of x in a random memory layout: permuted axes, gaps, negative strides, or
    unchanged."""
    order = draw(st.permutations(range(x.ndim)))
    steps = [draw(st.sampled_from([1, 1, 2, -1, -3])) for _ in range(x.ndim)]
    room = np.full([abs(s) * n + 3 for n, s in zip([x.shape[a] for a in order], steps)], 99, x.dtype)
    view = room[tuple(slice(1, 1 + s * n, s) if s > 0 else slice(-s * n, 0, s)
                      for n, s in zip([x.shape[a] for a in order], steps))]
    view = view.transpose(np.argsort(order))
    view[...] = x
    return view


@st.composite
def calls(draw, types=tuple(TYPES)):
    """Draw a call: arrays, options, and the arguments of oracle.attention."""
    dtype = draw(st.sampled_from(types))
    rng = np.random.default_rng(draw(st.integers(0, 2 ** 32)))
    small = st.integers(1, 4)
    b, hk, group, d, dv = draw(small), draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 19)), draw(
        st.integers(1, 19))
    h, lq = hk * group, draw(st.integers(1, 40) | st.just(130))
    lk = draw(st.integers(1, 40) | st.sampled_from([65, 200, 520]))
    make = lambda *shape: rng.standard_normal(shape).astype(dtype)
    q, k, v = make(b, h, lq, d), make(b, hk, lk, d), make(b, hk, lk, dv)
    exact = lambda x: x.astype(np.float64)
    options, wanted = {}, {}
    offset = 0
    if draw(st.booleans()):
        offset = rng.integers(-5, lk, b) if draw(st.booleans()) else int(rng.integers(-5, lk))
        options["q_offset"] = offset
    r = np.arange(lk) - (np.arange(lq)[:, None] + np.reshape(offset, (-1, 1, 1, 1)))  # [B or 1, 1, Lq, Lk]
    keep = np.ones((b, 1, lq, lk), bool)

    if draw(st.booleans()) and ("q_offset" in options or lq > 1 or lk == 1):
        options["causal"] = True
        keep = keep & (r <= 0)
    if draw(st.integers(0, 3)) == 0:
        left, right = draw(st.integers(0, 9)), draw(st.integers(0, 9) | st.none())
        options["window"] = left, right
        keep = keep & (r >= -left) & (True if right is None else r <= right)
    if draw(st.integers(0, 3)) == 0:
        mask = rng.random((b, lk)) < 0.7
        options["key_mask"] = laid_out(draw, mask) if draw(st.booleans()) else mask.astype(np.int64)
        keep = keep & mask[:, None, None]
    if draw(st.integers(0, 3)) == 0:
        shape = draw(st.sampled_from([(lq, lk), (1, 1, lq, lk), (b, 1, lq, lk), (b, h, lq, lk), (b, 1, 1, lk),
                                      (1, h, lq, 1)]))
        mask = rng.random(shape) < 0.7
        options["mask"] = laid_out(draw, mask)
        keep = keep & mask
    if draw(st.integers(0, 3)) == 0:
        options["lengths"] = rng.integers(0, lk + 1, b)
        keep = keep & (np.arange(lk) < options["lengths"][:, None])[:, None, None]
    for name in ("starts", "ends"):
        if draw(st.integers(0, 5)) == 0:
            options[name] = rng.integers(-1, lk + 2, draw(st.sampled_from([(b, lq), (1, lq), (lq,), (b, 1)])))
            first = np.broadcast_to(options[name], (b, lq))[:, None, :, None]
            keep = keep & (np.arange(lk) >= first if name == "starts" else np.arange(lk) < first)
    if lq == lk and not np.any(offset) and draw(st.integers(0, 2)) == 0:
        segments = np.cumsum(rng.random((b, lk)) < 0.3, -1)
        options["segments"] = segments
        keep = keep & (segments[:, None, :, None] == segments[:, None, None])

    scale = d ** -0.5
    if draw(st.booleans()):
        scale = options["scale"] = draw(st.sampled_from([0.0, 0.125, 1.0, -0.5]))
    biases, terms = [], []
    heads = lambda x: exact(x)[:, None, None]
    for name in draw(st.lists(st.sampled_from(["t5", "alibi", "slopes", "log", "table", "linear", "dense", "kerple"]),
                              max_size=3, unique=True)):
        if name == "t5":
            buckets, two = draw(st.sampled_from([4, 8, 32])), draw(st.booleans())
            table = make(buckets, h)
            terms.append(relpos.T5(laid_out(draw, table), buckets=buckets, max_distance=40, bidirectional=two))
            biases.append(np.moveaxis(exact(table)[oracle.bucket(r[:, 0], buckets, 40, two)], -1, 1))
        elif name == "alibi" and h in (1, 2, 4, 8):
            terms.append(relpos.ALiBi())
            biases.append(-(2.0 ** (-8 * np.arange(1, h + 1) / h))[:, None, None] * abs(r))
        elif name == "slopes":
            slopes = abs(make(h))
            terms.append(relpos.ALiBi(laid_out(draw, slopes)))
            biases.append(-heads(slopes) * abs(r))
        elif name == "log":
            terms.append(relpos.LogDecay(0.7))
            biases.append(-0.7 * np.log1p(abs(r)))
        elif name == "table":
            left, right = draw(st.integers(0, 5)), draw(st.integers(0, 5))
            table = make(h, left + right + 1)
            terms.append(relpos.Table(laid_out(draw, table), left=left, right=right))
            biases.append(np.moveaxis(exact(table)[:, np.clip(r[:, 0], -left, right) + left], 0, 1))
        elif name == "linear":
            terms.append(relpos.Linear(left=0.5, right=0.25))
            biases.append(np.where(r < 0, 0.5 * r, -0.25 * r))
        elif name == "dense":
            dense = make(*draw(st.sampled_from([(1, h, lq, lk), (b, h, lq, lk), (b, 1, lq, lk)])))
            terms.append(relpos.Dense(laid_out(draw, dense)))
            biases.append(exact(dense))
        elif name == "kerple":
            p, a = (0.2 + abs(make(h))).astype(dtype), (0.2 + abs(make(h))).astype(dtype)
            terms.append(relpos.Kerple(p, a))
            biases.append(-heads(p) * np.log1p(heads(a) * abs(r)))
    if terms:
        options["bias"] = sum(terms[1:], terms[0])
        wanted["bias"] = sum(biases[1:], biases[0])
    if draw(st.integers(0, 3)) == 0:
        left, right = draw(st.integers(0, 5)), draw(st.integers(0, 5))
        table = make(left + right + 1, d)
        options["relkey"] = relpos.RelKey(laid_out(draw, table), left=left, right=right)
        wanted["inner"] = scale * np.einsum("bhid,bijd->bhij", exact(q), np.broadcast_to(
            exact(table)[np.clip(r[:, 0], -left, right) + left], (b, lq, lk, d)))
    if not np.ndim(offset) and draw(st.integers(0, 3)) == 0:
        left, right = draw(st.integers(0, 5)), draw(st.integers(0, 5))
        table = make(left + right + 1, dv)
        options["relval"] = relpos.RelValue(laid_out(draw, table), left=left, right=right)
        wanted["values"] = exact(table)[np.clip(r[0, 0], -left, right) + left]
    if draw(st.integers(0, 3)) == 0:
        sink = make(h)
        options["sink"] = relpos.Sink(sink)
        wanted["sink"] = exact(sink)
    if draw(st.integers(0, 3)) == 0:
        options["softcap"] = wanted["softcap"] = draw(st.sampled_from([0.5, 2.0, 30.0]))
        options["softcap_after"] = wanted["softcap_after"] = draw(st.sampled_from([False, True, 1.5]))
    options["threads"] = draw(st.sampled_from([None, 1, 3]))
    return dtype, (q, k, v), tuple(laid_out(draw, x)
                                   for x in (q, k, v)), options, wanted | {"keep": keep, "scale": scale}


def sizes(q, k, v, wanted):
    """Return the largest sum of absolute summands of a score, and the largest absolute value."""
    q, k, v = (abs(x.astype(np.float64)) for x in (q, k, v))
    scores = ((q @ np.repeat(k, q.shape[1] // k.shape[1], 1).swapaxes(2, 3)) * abs(wanted["scale"])
              + abs(wanted.get("inner", 0)) + abs(wanted.get("bias", 0)))
    return scores.max(), v.max() + abs(wanted.get("values", np.zeros(1))).max()


@hypothesis.given(calls())
@PROFILE
def test_a_call_equals_the_definition(call):
    """The error of a score is at most D + 12 roundings of sums, products and functions. A weight is a quotient of
    exponentials of scores, so its relative error is at most twice that, plus the error of a sum of Lk numbers. The sum
    over values and the rounding to the storage type add further errors."""
    dtype, (q, k, v), given, options, wanted = call
    u, stored = TYPES[dtype]
    out, weights, lse = oracle.attention(q, k, v, **wanted)
    score, value = sizes(q, k, v, wanted)
    relative = 2 * (q.shape[3] + 12) * u * (score + 1) + (2 * k.shape[2] + 20) * u
    got = relpos.attention(*given, **options, return_weights=True, return_lse=True)
    assert got.out.dtype == dtype
    np.testing.assert_allclose(got.out.astype(np.float64), out, rtol=0, atol=1.01 * relative * value
                               + stored * abs(out).max() + 2.0 ** -24 * (dtype is np.float16))
    np.testing.assert_allclose(got.weights, weights, rtol=1.01 * relative, atol=2.0 ** -126)
    some = np.isfinite(lse)
    np.testing.assert_array_equal(np.isfinite(got.lse), some)
    np.testing.assert_allclose(got.lse[some], lse[some], rtol=u, atol=1.01 * relative)
    # contiguous arrays, one thread, and an output of any layout give the same bits
    again = np.full((out.shape[0], out.shape[2], out.shape[1], out.shape[3]), 9, dtype).swapaxes(1, 2)
    relpos.attention(q, k, v, **options | {"threads": 1}, out=again)
    np.testing.assert_array_equal(again, got.out)


@hypothesis.given(calls(types=(np.float64,)), st.integers(0, 2 ** 32))
@PROFILE
def test_gradients_are_differences(call, seed):
    """A step in a random direction of q, k and v changes sum(dout * out) as the gradients predict."""
    _, (q, k, v), given, options, wanted = call
    rng = np.random.default_rng(seed)
    dout = rng.standard_normal((*q.shape[:3], v.shape[3]))
    gradients = relpos.attention_backward(dout, *given, **options)
    steps = [rng.standard_normal(x.shape) for x in (q, k, v)]
    slope = sum(float((np.asarray(g) * s).sum()) for g, s in zip((gradients.q, gradients.k, gradients.v), steps))
    def along(t):
        return float((dout * relpos.attention(*(x + t * s for x, s in zip((q, k, v), steps)), **options)).sum())

    eps = 1e-4
    numeric = (8 * (along(eps) - along(-eps)) - (along(2 * eps) - along(-2 * eps))) / (12 * eps)
    size = sum(float(abs(np.asarray(g) * s).sum()) for g, s in zip((gradients.q, gradients.k, gradients.v), steps))
    np.testing.assert_allclose(slope, numeric, rtol=0, atol=1e-7 * (1 + size))
