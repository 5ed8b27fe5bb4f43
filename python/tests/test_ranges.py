"""Calls of a Plan over ranges of keys give the bits of one call over all keys, forward and backward, for NumPy and
torch.
SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import pytest

import relpos

try:
    import ml_dtypes
    import torch
except ImportError:
    ml_dtypes = torch = None

RNG = np.random.default_rng(3)
TABLE, SLOPES = RNG.standard_normal((32, 4)).astype("f"), np.float32([2, 0.5, 0.1, 0.02])
CASES = {
    "plain": {},
    "t5": {"bias": relpos.T5(TABLE), "causal": True},
    "alibi": {"bias": relpos.ALiBi(SLOPES), "sink": relpos.Sink(np.float32([0, 1, 2, 3]))},
    "rope": {"rope": relpos.RoPE(), "causal": True, "softcap": 20.0},
    "relkey": {"relkey": relpos.RelKey(RNG.standard_normal((21, 16)).astype("f"), left=10, right=10),
               "window": (700, 300)},
}
CUTS = ((0, 512, 1700), (0, 1024, 1024, 1536, 1700), (0, 1700))


def arrays(lq=150, lk=1700, dtype="float32", kind="numpy"):
    found = [RNG.standard_normal(shape).astype(dtype) for shape in ((1, 4, lq, 16), (1, 2, lk, 16), (1, 2, lk, 24),
                                                                    (1, 4, lq, 24))]
    return found if kind == "numpy" else [torch.from_numpy(x) for x in found]


def same(x, y):
    """Compare bits, not only values."""
    x, y = np.asarray(x), np.asarray(y)
    assert x.dtype == y.dtype and x.shape == y.shape
    np.testing.assert_array_equal(np.ascontiguousarray(x).view("u1"), np.ascontiguousarray(y).view("u1"))


def forward(plan, q, k, v, cuts, **options):
    """Call the plan over the ranges between the cuts, and return the result of the last call."""
    state, keys = None, options.pop("own_keys", None)
    for start, stop in zip(cuts, cuts[1:]):
        last = stop == cuts[-1]
        extra = {"return_lse": True} if last else {"state_out": True if state is None else state}
        found = plan(q, k[:, :, start:stop], v[:, :, start:stop], key_from=start, key_to=stop, state_in=state,
                     own_keys=keys, **extra)
        state = found
    return found


def backward(plan, dout, q, k, v, cuts, whole):
    """Return the gradients from calls over the ranges between the cuts."""
    sums, parts = None, []
    for start, stop in zip(cuts, cuts[1:]):
        last = stop == cuts[-1]
        parts.append(plan.backward(dout, q, k[:, :, start:stop], v[:, :, start:stop], out=whole.out, lse=whole.lse,
                                   key_from=start, key_to=stop,
                                   dq_in=sums, dq_out=None if last else True))
        sums = parts[-1].q
    dk, dv = (np.concatenate([np.asarray(getattr(x, name)) for x in parts], 2) for name in "kv")
    terms = [{name: sum(np.asarray(x.terms[n][name]) for x in parts) for name in one}
             for n, one in enumerate(parts[0].terms)]
    return np.asarray(sums), dk, dv, terms


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("name", CASES)
def test_ranges_have_the_bits_of_one_call(name, cuts, kind):
    if kind == "torch":
        pytest.importorskip("torch")
    q, k, v, dout = arrays(kind=kind)
    options = CASES[name] | {"q_offset": 1100}
    plan = relpos.Plan(1, 4, 200, 1700, 16, kv_heads=2, dim_v=24, **options)
    one = relpos.attention(q, k, v, return_lse=True, **options)
    found = forward(plan, q, k, v, cuts, own_keys=k[:, :, 1100:1250])
    same(found.out, one.out)
    same(found.lse, one.lse)
    want = relpos.attention_backward(dout, q, k, v, out=one.out, lse=one.lse, **options)
    dq, dk, dv, terms = backward(plan, dout, q, k, v, cuts, one)
    for x, y in ((dq, want.q), (dk, want.k), (dv, want.v)):
        same(x, y)
    for x, y in zip(terms, want.terms):
        for key in y:  # one call rounds its f64 sums to f32
            np.testing.assert_allclose(x[key], np.asarray(y[key]), rtol=3e-7, atol=3e-7 * np.abs(y[key]).max())
            assert x[key].dtype == np.float64


@pytest.mark.parametrize("name", ["plain", "alibi", "relkey"])
def test_ranges_of_rows_and_keys_have_the_bits_of_one_call(name):
    q, k, v, dout = arrays(lq=450)
    options = CASES[name] | {"q_offset": 1100}
    plan = relpos.Plan(1, 4, 450, 1700, 16, kv_heads=2, dim_v=24, **options)
    one = relpos.attention(q, k, v, return_lse=True, **options)
    want = relpos.attention_backward(dout, q, k, v, out=one.out, lse=one.lse, **options)
    rows, keys = ((0, 192), (192, 450)), ((0, 1024), (1024, 1700))
    assert plan.row_step == 96
    dq, dk, dv, terms, sums = np.empty_like(q), np.empty_like(k), np.empty_like(v), None, [None, None]
    for i, stop in rows:
        state = dq_sums = None
        at = slice(i, stop)
        for n, (j, end) in enumerate(keys):
            span = {"key_from": j, "key_to": end, "row_from": i, "row_to": stop}
            state = plan(q[:, :, at], k[:, :, j:end], v[:, :, j:end], state_in=state, state_out=n == 0,
                         own_keys=k[:, :, 1100 + i:1100 + stop],
                         **span)
            g = plan.backward(dout[:, :, at], q[:, :, at], k[:, :, j:end], v[:, :, j:end], out=one.out[:, :, at],
                              lse=one.lse[:, :, at], **span,
                              dq_in=dq_sums, dq_out=n == 0, dkv_in=sums[n], dkv_out=i == 0)
            dq_sums, sums[n] = g.q, g.k
            if n == 1:
                dq[:, :, at] = g.q
            if i > 0:
                dk[:, :, j:end], dv[:, :, j:end] = g.k, g.v
            else:
                assert g.v is None and g.k.shape[:3] == (1, 4, end - j)
        same(state, one.out[:, :, at])
    for x, y in ((dq, want.q), (dk, want.k), (dv, want.v)):
        same(x, y)


def test_bfloat16():
    if ml_dtypes is None:
        pytest.skip("needs ml_dtypes and torch")
    q, k, v, dout = arrays(dtype=ml_dtypes.bfloat16)
    plan = relpos.Plan(1, 4, 150, 1700, 16, kv_heads=2, dim_v=24, dtype="bfloat16")
    one = relpos.attention(q, k, v, return_lse=True)
    found = forward(plan, q, k, v, CUTS[0])
    same(found.out.view("u2"), one.out.view("u2"))
    want = relpos.attention_backward(dout, q, k, v, out=one.out, lse=one.lse)
    dq, dk, dv, _ = backward(plan, dout, q, k, v, CUTS[0], one)
    assert dk.dtype == dv.dtype == np.float32  # not rounded to 16 bits, so that parts can be added
    for x, y in ((dq, want.q), (dk.astype(q.dtype), want.k), (dv.astype(q.dtype), want.v)):
        same(x.view("u2"), y.view("u2"))


def test_fewer_axes_and_a_state_in_place():
    q, k, v, _ = (x[0, 0] for x in arrays())
    plan = relpos.Plan(1, 1, 150, 1700, 16, dim_v=24)
    one = relpos.attention(q, k, v)
    state = plan(q, k[:1024], v[:1024], key_to=1024, state_out=True)
    assert state.shape == (150, 26) and plan.key_step == 512
    again = plan(q, k[:512], v[:512], key_to=512, state_out=state)
    assert again is state
    assert plan(q, k[512:1024], v[512:1024], key_from=512, key_to=1024, state_in=state, state_out=state) is state
    same(plan(q, k[1024:], v[1024:], key_from=1024, state_in=state), one)


def test_hidden_ranges_can_be_left_out():
    q, k, v, _ = arrays()
    plan = relpos.Plan(1, 4, 150, 1700, 16, kv_heads=2, dim_v=24, window=(100, 0), q_offset=1100)
    found = plan(q, k[:, :, 512:1536], v[:, :, 512:1536], key_from=512, key_to=1536)
    same(found, relpos.attention(q, k, v, window=(100, 0), q_offset=1100))


def test_torch_sees_that_a_state_was_written():
    torch = pytest.importorskip("torch")
    q, k, v, _ = arrays(kind="torch")
    plan = relpos.Plan(1, 4, 150, 1700, 16, kv_heads=2, dim_v=24)
    state = plan(q, k[:, :, :512], v[:, :, :512], key_to=512, state_out=True)
    before = state._version
    assert plan(q, k[:, :, 512:1024], v[:, :, 512:1024], key_from=512, key_to=1024, state_in=state,
                state_out=state) is state
    assert state._version == before + 1 and isinstance(state, torch.Tensor)


@pytest.mark.parametrize("options, error", [
    ({"key_from": 3}, "key_from is 3; it must be a multiple of 512"),
    ({"key_to": 1701}, "key_to is 1701; they must be 0 to 1700"),
    ({"key_to": 512.0}, "key_to is of type float: expected an integer"),
    ({"key_to": 512, "state_out": np.ones((1, 4, 150, 3), "f")}, "state_out: shape"),
    ({"key_to": 512, "state_in": np.ones((1, 4, 150, 26))}, "state_in: dtype is f64; it must be f32"),
    ({"key_to": 512, "state_out": True, "out": np.ones((1, 4, 150, 24), "f")}, "out is given with state_out"),
    ({"key_to": 512, "state_out": True, "return_lse": True}, "lse was given with state_out"),
    ({"row_from": 0, "row_to": 160}, "row_to is 160; they must be 0 to 150"),
    ({"key_to": 512, "summary": True}, "profile needs all rows and keys"),
    ({"key_to": 512, "own_keys": np.ones((1, 2, 150, 9), "f")}, "own_keys: shape"),
])
def test_wrong_ranges(options, error):
    q, k, v, _ = arrays()
    plan = relpos.Plan(1, 4, 150, 1700, 16, kv_heads=2, dim_v=24)
    with pytest.raises((ValueError, TypeError), match=error.replace("(", r"\(")):
        plan(q, k[:, :, :512], v[:, :, :512], **options)


def test_a_row_needs_its_own_key():
    q, k, v, _ = arrays()
    plan = relpos.Plan(1, 4, 150, 1700, 16, kv_heads=2, dim_v=24, bias=relpos.ALiBi(SLOPES), q_offset=1100)
    with pytest.raises(TypeError, match="own_keys is missing"):
        plan(q, k[:, :, :512], v[:, :, :512], key_to=512, state_out=True)


def test_rows_of_a_backward_call_are_blocks():
    q, k, v, dout = arrays()
    one = relpos.attention(q, k, v, return_lse=True)
    plan = relpos.Plan(1, 4, 150, 1700, 16, kv_heads=2, dim_v=24)
    with pytest.raises(ValueError, match="row_to is 90; in a backward call it must be a multiple of 96"):
        plan.backward(dout[:, :, :90], q[:, :, :90], k, v, out=one.out[:, :, :90], lse=one.lse[:, :, :90], row_to=90)


def test_backward_of_a_range_needs_out_and_lse():
    q, k, v, dout = arrays()
    plan = relpos.Plan(1, 4, 150, 1700, 16, kv_heads=2, dim_v=24)
    with pytest.raises(TypeError, match="out or lse is missing"):
        plan.backward(dout, q, k[:, :, :512], v[:, :, :512], key_to=512, dq_out=True)


def test_backward_of_all_keys():
    q, k, v, dout = arrays()
    options = {"bias": relpos.T5(TABLE), "causal": True, "q_offset": 1100}
    plan = relpos.Plan(1, 4, 150, 1700, 16, kv_heads=2, dim_v=24, **options)
    found, want = plan.backward(dout, q, k, v,
                                wanted=("k", "table")), relpos.attention_backward(dout, q, k, v, **options)
    assert found.q is None and found.v is None
    same(found.k, want.k)
    same(found.terms[0]["table"], want.terms[0]["table"])
