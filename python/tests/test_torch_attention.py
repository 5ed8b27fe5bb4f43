"""Test relpos.attention on torch tensors: values, types, strides, autograd.  SPDX-License-Identifier: Apache-2.0"""
import importlib

import numpy as np
import pytest
import relpos

torch = pytest.importorskip("torch")
import torch.utils.checkpoint  # noqa: E402


def tensors(dtype=torch.float32, grad=False):
    g = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=g, dtype=torch.float64).to(dtype).requires_grad_(grad)
            for shape in [(2, 4, 13, 8), (2, 2, 17, 8), (2, 2, 17, 6)]]


def eager(q, k, v, bias=0.0, keep=None):
    n = q.shape[1] // k.shape[1]
    s = q @ k.repeat_interleave(n, 1).mT / q.shape[-1] ** 0.5 + bias
    if keep is not None:
        s = s.masked_fill(~keep, float("-inf"))
    return s.softmax(-1) @ v.repeat_interleave(n, 1)


R = torch.arange(17) - torch.arange(13)[:, None]


TOLERANCE = {torch.float64: 1e-13, torch.float32: 3e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.mark.parametrize("dtype, tolerance", TOLERANCE.items())
def test_types(dtype, tolerance):
    q, k, v = tensors(dtype)
    slopes = torch.tensor([0.5, 0.25, 1, 2], dtype=dtype)
    got = relpos.attention(q, k, v, bias=relpos.ALiBi(slopes), causal=True, return_lse=True, return_weights=True,
                           summary=True)
    assert isinstance(got.out, torch.Tensor) and got.out.dtype == dtype and got.out.shape == (2, 4, 13, 6)
    want = eager(*(x.double() for x in (q, k, v)), -slopes.double()[:, None, None] * R.abs(), R <= 0)
    torch.testing.assert_close(got.out.double(), want, atol=tolerance, rtol=0)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert got.lse.dtype == got.weights.dtype == got.summary.entropy.dtype == wide


def test_the_bits_of_numpy():
    q, k, v = tensors()
    got = relpos.attention(q, k, v, key_mask=torch.arange(17).expand(2, 17) != 3)
    want = relpos.attention(*(x.numpy() for x in (q, k, v)), key_mask=np.broadcast_to(np.arange(17) != 3, (2, 17)))
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_types_of_masks(dtype):
    q, k, v = tensors()
    keys = torch.tensor([[1] * 9 + [0] * 8, [0, 1] * 8 + [1]])
    torch.testing.assert_close(relpos.attention(q, k, v, key_mask=keys.to(dtype)),
                               eager(q, k, v, keep=keys.bool()[:, None, None]), atol=3e-6, rtol=0)


def test_strides_and_out():
    q, k, v = tensors()
    want = relpos.attention(q, k, v)
    out = torch.empty(2, 13, 4, 6)
    got = relpos.attention(q.transpose(1, 2).contiguous().transpose(1, 2), k, v, out=out.transpose(1, 2))
    assert got.data_ptr() == out.data_ptr() and torch.equal(got, want) and torch.equal(out.transpose(1, 2), want)
    assert torch.equal(relpos.attention(q[:1].expand_as(q), k, v)[0], want[0])


def test_other_ways_in():
    """A call can mix arrays and tensors. A tensor type without DLPack's exchange API works too, as in older versions of
    torch."""
    q, k, v = tensors()
    table = np.ones((32, 4), np.float32)
    assert isinstance(relpos.attention(q, k.numpy(), v.numpy(), bias=relpos.T5(table)), torch.Tensor)
    assert isinstance(relpos.attention(q.numpy(), k, v), np.ndarray)

    class Old(torch.Tensor):
        __dlpack_c_exchange_api__ = None

    want = relpos.attention(q, k, v, return_lse=True)
    got = relpos.attention(*(x.as_subclass(Old) for x in (q, k, v)), return_lse=True)
    assert torch.equal(got.out, want.out) and torch.equal(got.lse, want.lse)
    half = [x.bfloat16().as_subclass(Old) for x in (q, k, v)]
    assert relpos.attention(*half).dtype == torch.bfloat16
    with torch.no_grad():
        assert torch.equal(relpos.attention(torch.nn.Parameter(q), k, v), want.out)


def test_bad_tensors():
    q, k, v = tensors()
    with pytest.raises(TypeError, match="q has elements of complex64"):
        relpos.attention(q.to(torch.complex64), k, v)
    with pytest.raises(ValueError, match=r"v: shape is \(2, 1, 17, 6\)"):
        relpos.attention(q, k, v[:, :1])
    with pytest.raises(ValueError, match="q has no memory that relpos can read; pass a dense tensor on the CPU"):
        relpos.attention(q.to_sparse(), k, v)
    q.requires_grad_()
    with pytest.raises(TypeError, match="out: torch cannot record a gradient"):
        relpos.attention(q, k, v, out=torch.empty(2, 4, 13, 6))
    with pytest.raises(TypeError, match="a Plan does not record"):
        relpos.Plan(2, 4, 13, 17, 8, kv_heads=2, dim_v=6)(q, k, v)
    with pytest.raises(TypeError, match="q is not a torch tensor"):
        relpos.attention(q.detach().numpy(), k.numpy(), v.numpy(),
                         bias=relpos.Dense(torch.zeros(13, 17, requires_grad=True)))


@pytest.mark.parametrize("compiled", [False, True])
def test_one_warning_of_a_step_of_training(compiled):
    """A causal call with fewer queries than keys warns in the forward pass only."""
    q, k, v = tensors(grad=True)
    call = lambda q, k, v: relpos.attention(q, k, v, causal=True)
    if compiled:
        importlib.import_module("relpos.torch")
        torch._dynamo.reset()
        call = torch.compile(call, backend="aot_eager")
    with pytest.warns(UserWarning, match="causal=True with 13 queries and 17 keys") as told:
        call(q, k, v).sum().backward()
    assert sum("13 queries" in str(x.message) for x in told) == 1


def test_a_gradient_beside_arrays_of_numpy():
    """k and v can be arrays even if q requires a gradient, and the arrays can change after the call."""
    q, k, v = tensors()
    want = torch.autograd.grad(relpos.attention(q.requires_grad_(), k, v).sum(), q)[0]
    keys, values = k.numpy().copy(), v.numpy()[..., ::-1][..., ::-1].copy()
    out = relpos.attention(q, keys, values)
    keys[:] = 0
    assert torch.equal(torch.autograd.grad(out.sum(), q)[0], want)
    k.requires_grad_()
    torch.autograd.grad(relpos.attention(q, k, values[:, :, ::-1]).sum(), (q, k))
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(
            TypeError,
            match="k is of type ndarray with elements bfloat16, which torch cannot read; pass k as a tensor"):
        relpos.attention(q.bfloat16(), keys.astype(ml_dtypes.bfloat16), v.bfloat16())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_tensor_on_a_gpu_is_refused():
    q, k, v = tensors()
    with pytest.raises(ValueError, match=r"k is not on the CPU .*pass k.cpu\(\)"):
        relpos.attention(q, k.cuda(), v)


def test_gradients():
    q, k, v = tensors(torch.float64, grad=True)
    slopes = torch.tensor([0.5, 0.25, 1, 2], dtype=torch.float64, requires_grad=True)
    dense = torch.randn(13, 17, dtype=torch.float64, requires_grad=True)
    inputs = (q, k, v, slopes, dense)
    dout = torch.randn(2, 4, 13, 6, dtype=torch.float64)
    got = relpos.attention(q, k, v, bias=relpos.ALiBi(slopes) + relpos.LogDecay() + relpos.Dense(dense), causal=True)
    want = eager(q, k, v, -slopes[:, None, None] * R.abs() - 0.3 * torch.log1p(R.abs().double()) + dense, R <= 0)
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)
    for a, b in zip(torch.autograd.grad(got, inputs, dout), torch.autograd.grad(want, inputs, dout)):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=1e-11)


def test_gradcheck():
    g = torch.Generator().manual_seed(1)
    shapes = [(1, 2, 4, 3), (1, 2, 5, 3), (1, 2, 5, 2), (8, 2), (3, 3), (3, 2), (2,)]
    x = [torch.randn(s, generator=g, dtype=torch.float64, requires_grad=True) for s in shapes]
    call = lambda q, k, v, t5, rk, rv, sink: relpos.attention(
        q, k, v, bias=relpos.T5(t5, buckets=8), rope=relpos.RoPE(dim=2), relkey=relpos.RelKey(rk, left=1, right=1),
        relval=relpos.RelValue(rv, left=1, right=1), sink=relpos.Sink(sink), softcap=2.0, dropout=0.2, seed=3)
    assert torch.autograd.gradcheck(call, x)


def test_gradients_in_half_precision():
    wide = tensors(torch.float64, grad=True)
    narrow = [x.detach().bfloat16().requires_grad_() for x in wide]
    table = torch.zeros(32, 4, requires_grad=True)  # f32 with bf16
    relpos.attention(*narrow, bias=relpos.T5(table)).float().pow(2).sum().backward()
    eager(*wide).pow(2).sum().backward()
    for a, b in zip(narrow, wide):
        assert a.grad.dtype == torch.bfloat16
        torch.testing.assert_close(a.grad.double(), b.grad, atol=0.06, rtol=0.06)
    assert table.grad.dtype == torch.float32 and table.grad.abs().sum() > 0


def test_gradients_that_are_wanted():
    q, k, v = tensors()
    table = torch.zeros(32, 4, requires_grad=True)
    relpos.attention(q, k, v, bias=relpos.T5(table)).sum().backward()  # a gradient with stride 0
    assert q.grad is None and table.grad.shape == (32, 4)
    got = relpos.attention(q, k, v, bias=relpos.T5(table), return_lse=True, summary=True)
    assert got.out.requires_grad and got.weights is None
    weights = relpos.attention(q, k, v, bias=relpos.T5(table), return_weights=True)
    assert weights.lse is None and weights.weights.shape == (2, 4, 13, 17)
    with torch.no_grad():
        assert not relpos.attention(q, k, v, bias=relpos.T5(table)).requires_grad
    one = torch.randn(1, 1, 4, 8, requires_grad=True)
    relpos.attention(one, one, one).sum().backward()
    two = one.detach().clone().requires_grad_()
    eager(two, two, two).sum().backward()
    torch.testing.assert_close(one.grad, two.grad, atol=1e-5, rtol=0)


OTHERS = {"weights": lambda found: found.weights, "profile": lambda found: found.summary.profile,
          "key_mass": lambda found: found.summary.key_mass, "entropy": lambda found: found.summary.entropy}


def with_weights(q, k, v, table, vectors, sink, mask, factor):
    """Return out and OTHERS in torch operations. `factor` is that of dropout."""
    n, index = q.shape[1] // k.shape[1], R.clamp(-2, 2) + 2
    k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)
    scores = (q @ k.mT / q.shape[-1]**0.5 + table[:, index]).masked_fill(~mask, -torch.inf)
    lse = torch.cat([scores, sink[:, None, None].expand(*q.shape[:3], 1)], -1).logsumexp(-1, keepdim=True)
    w = (scores - lse).exp()
    entropy = -(w * (scores - lse).masked_fill(~mask, 0)).sum(-1)
    profile = torch.stack([w.diagonal(t, -2, -1).mean(-1) for t in range(1 - R.shape[0], R.shape[1])], -1)
    out = (w * factor) @ v + torch.einsum("bhij,ijd->bhid", w * factor, vectors[index])
    return out, [w * factor, profile, w.sum(-2), entropy]


@pytest.mark.parametrize("way", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", [*OTHERS, "all"])
def test_gradients_through_weights_and_summary(name, way):
    """Compare with torch's own autograd: shared keys, terms of several forms, a mask with an empty row, dropout."""
    import relpos.torch  # noqa: F401
    g = torch.Generator().manual_seed(8)
    draw = lambda *shape: torch.randn(shape, generator=g, dtype=torch.float64)
    inputs = [*tensors(torch.float64), draw(4, 5), draw(5, 6), draw(4)]
    for x in inputs:
        x.requires_grad_()
    mask = torch.rand(2, 1, 13, 17, generator=g) < 0.7
    mask[0, 0, 1] = False

    def call(q, k, v, table, vectors, sink):
        found = relpos.attention(q, k, v, bias=relpos.Table(table, left=2, right=2), sink=relpos.Sink(sink), mask=mask,
                                 relval=relpos.RelValue(vectors, left=2, right=2), dropout=0.3, seed=5,
                                 return_weights=True, summary=True)
        return found.out, found.weights, *found.summary

    out, *others = (call if way == "eager" else torch.compile(call, backend=way))(*inputs)
    want_out, want = with_weights(*inputs, mask, (others[0] != 0).double() / 0.7)
    names = [at for at, x in enumerate(OTHERS) if name in (x, "all")]
    for at in names:
        torch.testing.assert_close(others[at], want[at], atol=1e-13, rtol=1e-12)
    numbers = {at: torch.randn_like(want[at]) for at in names}
    for with_out in (False, True):
        one, two = (sum((numbers[at] * x[at]).sum() for at in names) + (y.sin().sum() if with_out else 0)
                    for x, y in ((others, out), (want, want_out)))
        for a, b in zip(torch.autograd.grad(one, inputs, retain_graph=True, allow_unused=True),
                        torch.autograd.grad(two, inputs, retain_graph=True, allow_unused=True)):
            torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b, atol=1e-12, rtol=1e-12)
    if way == "eager":
        dsummary = relpos.Summary(*(numbers.get(at) for at in (1, 2, 3)))
        found = relpos.attention_backward(torch.zeros_like(out), *(x.detach() for x in inputs[:3]), mask=mask,
                                          bias=relpos.Table(inputs[3].detach(), left=2, right=2), dropout=0.3, seed=5,
                                          relval=relpos.RelValue(inputs[4].detach(), left=2, right=2),
                                          sink=relpos.Sink(inputs[5].detach()), dweights=numbers.get(0),
                                          dsummary=dsummary)
        one = sum((numbers[at] * others[at]).sum() for at in names)
        for a, b in zip([*found[:3], *(x for term in found.terms for x in term.values())],
                        torch.autograd.grad(one, [inputs[n] for n in (0, 1, 2, 3, 4, 5)], allow_unused=True)):
            torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_through_weights_of_other_types(dtype):
    """Long rows, several blocks of keys and rows, gradients that broadcast; weights that the loss does not use change
    no bit."""
    q, k, v = (torch.randn(1, 2, n, 8, generator=torch.Generator().manual_seed(n)).to(dtype) for n in (150, 530, 530))
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    weights = relpos.attention(q, k, v, causal=True, q_offset=380, return_weights=True).weights
    keep = torch.arange(530) <= torch.arange(150)[:, None] + 380
    want = (exact[0] @ exact[1].mT / 8**0.5).masked_fill(~keep, -torch.inf).softmax(-1)
    for loss in (lambda w: w.square().sum(), lambda w: w[..., ::7].sum()):
        for a, b in zip(torch.autograd.grad(loss(weights), (q, k), retain_graph=True),
                        torch.autograd.grad(loss(want), exact[:2], retain_graph=True)):
            torch.testing.assert_close(a.double(), b, atol=TOLERANCE[dtype] * b.abs().max().item(), rtol=0)
    plain = torch.autograd.grad(relpos.attention(q, k, v).sin().sum(), (q, k, v))
    found = relpos.attention(q, k, v, return_weights=True, summary=True)
    got = torch.autograd.grad(found.out.sin().sum() + found.weights.detach().sum(), (q, k, v))
    assert all(torch.equal(a, b) for a, b in zip(got, plain))
    with torch.no_grad():
        assert not relpos.attention(q, k, v, return_weights=True).weights.requires_grad


def test_wrong_gradients_of_weights():
    q, k, v = (x.numpy() for x in tensors())
    dout = np.zeros((2, 4, 13, 6), np.float32)
    for options, text in (({"dweights": np.ones((2, 4, 13, 16))}, r"dweights: shape is \(2, 4, 13, 16\)"),
                          ({"dweights": np.ones((2, 4, 13, 17), int)}, "dweights: dtype is i64"),
                          ({"dsummary": np.ones(3)}, "dsummary is of type ndarray: expected a relpos.Summary"),
                          ({"dsummary": (None, np.ones((2, 4, 13)), None)}, r"dkey_mass: shape is \(2, 4, 13\)")):
        with pytest.raises((TypeError, ValueError), match=text):
            relpos.attention_backward(dout, q, k, v, **options)
    q, k = np.ones((1, 2, 5, 8), np.float32), np.ones((1, 2, 600, 8), np.float32)
    plan, whole = relpos.Plan(1, 2, 5, 600, 8), relpos.attention(q, k, k, return_lse=True)
    with pytest.raises(ValueError, match="dweights needs all keys in one call"):
        plan.backward(q, q, k[:, :, :512], k[:, :, :512], out=whole.out, lse=whole.lse, key_to=512,
                      dweights=np.ones((1, 2, 5, 512)))


def test_gradients_through_lse():
    """Compare the gradients of lse with finite differences, also for a z-loss. Attention over two halves of the keys,
    merged by their lse, has the gradients of attention over all keys. A row without keys has gradient 0 for any
    incoming gradient."""
    q, k, v = tensors(torch.float64, grad=True)
    table = torch.randn(q.shape[1], 5, dtype=torch.float64, requires_grad=True)
    sink = torch.randn(q.shape[1], dtype=torch.float64, requires_grad=True)

    def both(q, k, v, table, sink):
        found = relpos.attention(q, k, v, bias=relpos.Table(table, left=2, right=2), sink=relpos.Sink(sink),
                                 return_lse=True)
        return found.out, found.lse

    assert torch.autograd.gradcheck(both, (q, k, v, table, sink))
    lse = lambda q, k, v: relpos.attention(q, k, v, return_lse=True).lse
    scores = torch.logsumexp(q @ k.repeat_interleave(2, 1).mT / q.shape[-1] ** 0.5, -1)
    for a, b in zip(torch.autograd.grad(lse(q, k, v).square().sum(), (q, k)),
                    torch.autograd.grad(scores.square().sum(), (q, k))):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)
    cut = k.shape[2] // 2
    halves = [relpos.attention(q, k[:, :, x], v[:, :, x], return_lse=True) for x in (slice(cut), slice(cut, None))]
    share = torch.softmax(torch.stack([x.lse for x in halves]), 0)
    merged = sum(x.out * s[..., None] for x, s in zip(halves, share))
    whole = relpos.attention(q, k, v)
    torch.testing.assert_close(merged, whole, atol=1e-12, rtol=1e-12)
    for a, b in zip(torch.autograd.grad(merged.sin().sum(), (q, k, v)),
                    torch.autograd.grad(whole.sin().sum(), (q, k, v))):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    mask[1] = False
    found = relpos.attention(q, k, v, mask=mask[None, None], return_lse=True)
    assert found.lse[0, 0, 1] == -torch.inf
    gradient, = torch.autograd.grad(found.lse.square().sum(), q)
    assert torch.isfinite(gradient).all() and not gradient[:, :, 1].any() and gradient[:, :, 0].any()


DRAWS = {
    "eager": lambda f: f, "compiled": lambda f: torch.compile(f, backend="aot_eager", fullgraph=True),
    "inductor": lambda f: torch.compile(f),
    "checkpoint": lambda f: lambda q: torch.utils.checkpoint.checkpoint(f, q, use_reentrant=False),
    "make_fx": lambda f: torch.fx.experimental.proxy_tensor.make_fx(f, tracing_mode="fake")
    (torch.ones(1, 2, 6, 8, dtype=torch.float64)), "functionalize": lambda f: torch.func.functionalize(f),
    "jit.trace": lambda f: torch.jit.trace(f,
                                           torch.ones(1, 2, 6, 8).double(), check_trace=False),
}


@pytest.mark.parametrize("way", DRAWS)
def test_dropout_without_a_seed(way):
    """torch.manual_seed determines the weights that a call drops, and the backward pass drops the same."""
    import relpos.torch  # noqa: F401
    plain = lambda q: relpos.attention(q, q, q, dropout=0.5)
    call, q, t = DRAWS[way](plain), *torch.randn(2, 1, 2, 6, 8, dtype=torch.float64)

    def seeded(f, q):
        torch.manual_seed(1)
        return f(q)

    first = seeded(call, q)
    assert not torch.equal(first, call(q)) and torch.equal(first, seeded(call, q))
    if way != "inductor":  # it draws other numbers for torch's own dropout too
        assert torch.equal(first, seeded(plain, q))
    if way != "functionalize":
        gradient, = torch.autograd.grad(seeded(call, x := q.clone().requires_grad_()).sin().sum(), x)
        step = 1e-6 * t
        difference = (seeded(call, q + step).sin().sum() - seeded(call, q - step).sin().sum()) / 2e-6
        torch.testing.assert_close((gradient * t).sum(), difference, atol=1e-7, rtol=1e-6)


def test_a_seed_of_a_result():
    q = torch.randn(1, 2, 6, 8)
    found = relpos.attention(q, q, q, dropout=0.5, return_lse=True)
    assert torch.equal(found.out, relpos.attention(q, q, q, dropout=0.5, seed=found.seed))
    torch.manual_seed(1)
    one = relpos.Plan(1, 2, 6, 6, 8, dtype=q.dtype, dropout=0.5)
    torch.manual_seed(1)
    assert torch.equal(one(q, q, q), relpos.attention(q, q, q, dropout=0.5))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints(reentrant):
    q, k, v = tensors(grad=True)
    want = torch.autograd.grad(relpos.attention(q, k, v).sin().sum(), (q, k, v))
    torch.utils.checkpoint.checkpoint(relpos.attention, q, k, v, use_reentrant=reentrant).sin().sum().backward()
    assert all(torch.equal(x.grad, y) for x, y in zip((q, k, v), want))


def test_a_change_in_place_is_noticed():
    q, k, v = tensors(grad=True)
    table = torch.zeros(32, 4, requires_grad=True)
    out = relpos.attention(q, k, v, bias=relpos.T5(table))
    with torch.no_grad():
        table.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_copies_of_terms_with_tensors():
    import copy
    import pickle
    term = relpos.T5(torch.randn(32, 4), buckets=32, max_distance=64)
    assert repr(term) == "relpos.T5(float32[32, 4], max_distance=64)"
    for other in (copy.deepcopy(term), pickle.loads(pickle.dumps(term))):
        assert torch.equal(other.arrays["table"], term.arrays["table"]) and other.params == term.params


def test_plan_and_explain():
    q, k, v = tensors()
    plan = relpos.Plan(2, 4, 13, 17, 8, kv_heads=2, dim_v=6, dtype=torch.float32, causal=True)
    assert torch.equal(plan(q, k, v), relpos.attention(q, k, v, causal=True))
    e = relpos.explain(q, k, v, query=4, head=1, causal=True)
    torch.testing.assert_close(e.out, eager(*(x.double() for x in (q, k, v)), keep=R <= 0)[0, 1, 4], atol=1e-12, rtol=0)
    assert len(repr(e).splitlines()) == 19


class Thief:
    """A flag or an array that frees the memory of a tensor when relpos reads it."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __bool__(self):
        self.tensor.untyped_storage().resize_(0)
        return True

    def __dlpack__(self, **_):
        self.tensor.untyped_storage().resize_(0)
        return torch.ones(2, 17, dtype=torch.int32).__dlpack__()


@pytest.mark.parametrize("name", ["causal", "softcap_after", "return_weights", "return_lse", "summary"])
def test_flags_are_read_before_arrays(name):
    q, k, v = tensors()
    with pytest.raises(ValueError, match="q has no memory"):
        relpos.attention(q, k, v, **{name: Thief(q)})


def test_arrays_that_take_the_memory_of_others():
    q, k, v = tensors()
    with pytest.raises(RuntimeError, match="the memory of a tensor changed while another argument was read"):
        relpos.attention(q, k, v, key_mask=Thief(q))
    q, k, v = tensors()
    with pytest.raises(RuntimeError, match="the memory of a tensor changed while another argument was read"):
        relpos.attention_backward(torch.ones(2, 4, 13, 6), q, k, v, key_mask=Thief(k))
    q, k, v = tensors()
    with pytest.raises(RuntimeError, match="the memory of a tensor changed while another argument was read"):
        relpos.Plan(2, 4, 13, 17, 8, kv_heads=2, dim_v=6,
                    key_mask=torch.ones(2, 17, dtype=torch.bool))(q, k, v, key_mask=Thief(v))


def test_freed_storage():
    q, k, v = tensors()
    q.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="q has no memory"):
        relpos.attention(q, k, v)


def test_masks_changed_before_backward():
    q, k, v = tensors(grad=True)
    for name, mask in ("lengths", torch.tensor([17, 12])), ("key_mask", torch.ones(2, 17, dtype=torch.bool)):
        out = relpos.attention(q, k, v, **{name: mask})
        mask.fill_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_out_is_seen_by_autograd():
    q, k, v = tensors()
    out = torch.ones(2, 4, 13, 6)
    weight = torch.ones(2, 4, 13, 6, requires_grad=True)
    loss = (weight * out).sum()
    relpos.attention(q, k, v, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with pytest.raises(TypeError, match="out: torch cannot record a gradient"):
        relpos.attention(q, k, v, out=torch.ones(2, 4, 13, 6, requires_grad=True))
    with torch.inference_mode():
        relpos.attention(q, k, v, out=torch.empty(2, 4, 13, 6))


WITHOUT_GRADIENT = {
    "dropout": lambda s: {"dropout": s, "seed": 1},
    "rates": lambda s: {"bias": relpos.Linear(left=s, right=s)},
    "base": lambda s: {"rope": relpos.RoPE(base=s)},
    "positions": lambda s: {"rope": relpos.RoPE(q_positions=torch.arange(13) * s, k_positions=torch.arange(17) * s)},
    "positions of a bias": lambda s:
    {"bias": relpos.ALiBi(q_positions=torch.arange(13) * s, k_positions=torch.arange(17) * s)},
}


@pytest.mark.parametrize("also", [False, True])
@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_what_has_no_gradient_says_so(name, also):
    """Numbers and positions that require a gradient raise TypeError, even if other inputs have gradients. They do not
    get a gradient of 0."""
    q, k, v = tensors(grad=also)
    s, options = torch.tensor(0.5, requires_grad=True), WITHOUT_GRADIENT[name]
    with pytest.raises(TypeError,
                       match=r"requires a gradient, which relpos.attention does not compute; use .detach\(\)"):
        relpos.attention(q, k, v, **options(s))
    want = relpos.attention(q, k, v, **options(s.detach()))
    with torch.no_grad():
        assert torch.equal(relpos.attention(q, k, v, **options(s)), want)


@pytest.mark.parametrize("name", ["dropout", "positions"])
def test_what_has_no_gradient_says_so_where_it_is_compiled(name):
    import relpos.torch  # noqa: F401
    q, k, v = tensors(grad=True)
    call = torch.compile(lambda q, k, v, s: relpos.attention(q, k, v, **WITHOUT_GRADIENT[name](s)).sum(),
                         backend="aot_eager")
    with pytest.raises(Exception, match="requires a gradient, which relpos.attention does not compute"):
        call(q, k, v, torch.tensor(0.5, requires_grad=True)).backward()


def test_heads_side_by_side_stay_so():
    """If q has the memory layout of a projection, the heads of `out` can be joined without a copy. For other layouts of
    q, and in calls recorded for a backward pass, `out` is contiguous."""
    q, k, v = (torch.randn(2, n, 3, 16).transpose(1, 2) for n in (7, 9, 9))
    out = relpos.attention(q, k, v, bias=relpos.ALiBi())
    assert out.shape == (2, 3, 7, 16) and out.transpose(1, 2).is_contiguous()
    plain = relpos.attention(*(x.contiguous() for x in (q, k, v)), bias=relpos.ALiBi())
    assert plain.is_contiguous() and torch.equal(out, plain)
    assert relpos.attention(q.requires_grad_(), k, v, bias=relpos.ALiBi()).is_contiguous()
