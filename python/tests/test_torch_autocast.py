"""Under torch.autocast on the CPU, relpos.attention casts as torch's scaled_dot_product_attention does.

SPDX-License-Identifier: Apache-2.0"""
import itertools

import pytest
import relpos

torch = pytest.importorskip("torch")
import relpos.torch  # noqa: E402

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
sdpa = torch.nn.functional.scaled_dot_product_attention


def inputs(*dtypes):
    g = torch.Generator().manual_seed(3)
    return [torch.randn(1, 2, 5, 4, generator=g).to(dtype).requires_grad_() for dtype in dtypes]


def outcome(call, dtypes, kind, **options):
    """Return the types of the result and of the gradients, and their values; None if the call raises."""
    x = inputs(*dtypes)
    try:
        with torch.autocast("cpu", kind, **options):
            out = call(*x)
    except (TypeError, RuntimeError) as why:
        assert "convert both to the same type" in str(why) or "to have the same dtype" in str(why), why
        return None
    gradients = torch.autograd.grad(out.double().sin().sum(), x)
    return [x.dtype for x in (out, *gradients)], [x.double() for x in (out, *gradients)]


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("kind, options", [(BF16, {}), (F16, {}), (BF16, dict(enabled=False))],
                         ids=["bf16", "f16", "disabled"])
def test_the_types_of_torch(kind, options):
    """relpos accepts the same types of q, k and v as torch, and returns the same types and values."""
    taken = 0
    for dtypes in itertools.product((F32, F64, F16, BF16), repeat=3):
        want, got = (outcome(call, dtypes, kind, **options) for call in (sdpa, relpos.attention))
        assert (want is None) == (got is None), dtypes
        if want is None:
            continue
        taken += 1
        assert got[0] == want[0], dtypes
        tolerance = {F64: 1e-12, F32: 1e-5, F16: 5e-3, BF16: 4e-2}
        for a, b, dtype in zip(got[1], want[1], want[0]):
            torch.testing.assert_close(a, b, atol=max(tolerance[dtype], tolerance[want[0][0]]), rtol=0)
    assert taken == (4 if options else 28)


@pytest.mark.parametrize("way", ["eager", "compiled", "exported", "traced"])
def test_learned_arrays_and_masks_keep_their_types(way):
    """A call gives the same result as a call with q, k and v already cast. Tables and float masks keep their
    precision."""
    q, k, v = inputs(F32, F32, BF16)
    table, slopes = torch.randn(32, 2, requires_grad=True), torch.tensor([0.5, 0.25], dtype=F64, requires_grad=True)
    mask, rows = torch.randn(5, 5), torch.randn(3, 4, dtype=BF16, requires_grad=True)
    call = lambda q, k, v, table, slopes, mask, rows: relpos.attention(
        q, k, v, bias=relpos.T5(table) + relpos.ALiBi(slopes) + relpos.Dense(mask),
        relkey=relpos.RelKey(rows, left=1, right=1))
    args = q, k, v, table, slopes, mask, rows
    with torch.autocast("cpu", BF16):
        if way == "compiled":
            out = compiled(call)(*args)
        elif way == "exported":
            module = torch.nn.Module()
            module.forward = call
            out = torch.export.export(module, args).module()(*args)
        elif way == "traced":
            out = torch.jit.trace(call, tuple(x.detach() for x in args))(*args)
        else:
            out = call(*args)
    want = call(*(x.to(BF16) for x in (q, k, v)), *args[3:])
    assert out.dtype == BF16 and torch.equal(out, want)
    learned = [q, k, v, table, slopes, rows]
    for x, a, b in zip(learned, *(torch.autograd.grad(y.float().sin().sum(), learned) for y in (out, want))):
        assert a.dtype == x.dtype and torch.equal(a, b)


def test_what_does_not_take_part():
    """Calls with `out` or return_weights, calls with NumPy arrays, plans, and calls under disabled autocast or autocast
    for another device cast nothing."""
    q, k, v = (x.detach() for x in inputs(F32, F32, F32))
    want, plan = relpos.attention(q, k, v), relpos.Plan(1, 2, 5, 5, 4)
    with torch.autocast("cpu", BF16):
        assert torch.equal(relpos.attention(q, k, v, out=torch.empty(1, 2, 5, 4)), want)
        assert (relpos.attention(q.numpy(), k.numpy(), v.numpy(), bias=relpos.Dense(torch.zeros(5, 5)))
                == want.numpy()).all()
        assert torch.equal(plan(q, k, v), want)
        assert relpos.attention(q, k, v, return_weights=True).weights.dtype == F32
        with torch.autocast("cpu", enabled=False):
            assert torch.equal(relpos.attention(q, k, v), want)
    with torch.autocast("cuda", F16):
        assert torch.equal(relpos.attention(q, k, v), want)


def test_a_backward_pass_within_autocast():
    q, k, v = inputs(F32, F32, F32)
    with torch.autocast("cpu", BF16):
        within = torch.autograd.grad(relpos.attention(q, k, v).sum(), (q, k, v))
        out = relpos.attention(q, k, v)
    for a, b in zip(within, torch.autograd.grad(out.sum(), (q, k, v))):
        assert a.dtype == F32 and torch.equal(a, b)
