"""Sinks of heads and of rows: results, derivatives, torch and decoding, compared with plain formulas in f64.

SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import pytest
import relpos

B, H, HK, LQ, LK, D, DV = 2, 4, 2, 6, 9, 8, 5
SHAPES = [(H,), (H, LQ), (1, LQ), (B, H, LQ), (1, H, LQ), (B, 1, LQ)]


def drawn(seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    shapes = (B, H, LQ, D), (B, HK, LK, D), (B, HK, LK, DV)
    return rng, *(rng.normal(size=shape).astype(dtype) for shape in shapes)


def logits(rng, shape):
    """Return logits, of which one is -inf if they are those of rows."""
    sink = rng.normal(size=shape)
    if len(shape) > 1:
        sink[..., 2] = -np.inf
    return sink


def plain(q, k, v, sink, causal=False):
    """Compute out, lse and the weights, with one more column for the sink."""
    k, v = (x.repeat(H // HK, 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / D ** 0.5
    if causal:
        scores = np.where(np.arange(LK) <= np.arange(LQ)[:, None] - 2, scores, -np.inf)  # rows 0 and 1 have no key
    sink = (sink if sink.ndim > 1 else sink[:, None])[..., None]
    scores = np.concatenate([scores, np.broadcast_to(sink, (B, H, LQ, 1))], -1)
    with np.errstate(divide="ignore"):
        lse = np.log(np.exp(scores).sum(-1))
    weights = np.exp(scores - np.where(np.isinf(lse), 0, lse)[..., None])
    return weights[..., :-1] @ v, lse, weights


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_values_and_gradients(shape, causal):
    rng, q, k, v = drawn()
    sink, options = logits(rng, shape), {"causal": True, "q_offset": -2} if causal else {}
    out, lse, weights = plain(q, k, v, sink, causal)
    term = relpos.Sink(sink)
    assert ("rows=1" in repr(term)) == (len(shape) > 1)
    found = relpos.attention(q, k, v, sink=term, return_lse=True, return_weights=True, **options)
    np.testing.assert_allclose(found.out, out, atol=1e-12)
    np.testing.assert_allclose(found.lse, lse, atol=1e-12)
    np.testing.assert_allclose(found.weights, weights[..., :-1], atol=1e-12)
    dout, dlse = rng.normal(size=out.shape), rng.normal(size=lse.shape)
    g = relpos.attention_backward(dout, q, k, v, dlse=dlse, sink=term, **options)
    want = weights[..., -1] * (dlse - (dout * out).sum(-1))
    if len(shape) == 1:
        want = want.sum((0, 2))
    for axis, n in enumerate((1,) * (3 - len(shape)) + shape if len(shape) > 1 else ()):
        want = want.sum(axis, keepdims=True) if n == 1 else want
    np.testing.assert_allclose(g.terms[0]["sink"], want.reshape(shape), atol=1e-12)


def test_each_entry_has_the_gradient_of_its_call():
    rng, q, k, v = drawn()
    dout = rng.normal(size=(B, H, LQ, DV))
    for shape in ((B, H, LQ), (1, H, LQ), (H, LQ)):
        sink = rng.normal(size=shape)
        g = relpos.attention_backward(dout, q, k, v, sink=relpos.Sink(sink), per_sample=True).terms[0]["sink"]
        assert g.shape == (B, H, LQ)
        for b in range(B):
            own = sink if len(shape) == 2 else sink[min(b, len(sink) - 1)]
            one = relpos.attention_backward(dout[b], q[b], k[b], v[b], sink=relpos.Sink(own)).terms[0]["sink"]
            np.testing.assert_array_equal(g[b], one.reshape(H, LQ))


def test_rows_of_decoding_have_the_bits_of_prefill():
    """A call has the logits of its rows. Threads and the batch change no bit."""
    rng, q, k, v = drawn(dtype=np.float32)
    q = rng.normal(size=(B, H, LK, D)).astype(np.float32)
    sink = rng.normal(size=(B, H, LK)).astype(np.float32)
    options = {"causal": True, "bias": relpos.ALiBi()}
    want = relpos.attention(q, k, v, sink=relpos.Sink(sink), threads=1, **options)
    np.testing.assert_array_equal(relpos.attention(q, k, v, sink=relpos.Sink(sink), threads=3, **options), want)
    for n in range(LK):
        got = relpos.attention(q[:, :, n:n + 1], k, v, sink=relpos.Sink(sink[:, :, n:n + 1]), q_offset=n, **options)
        np.testing.assert_array_equal(got, want[:, :, n:n + 1])
    for b in range(B):
        got = relpos.attention(q[b:b + 1], k[b:b + 1], v[b:b + 1], sink=relpos.Sink(sink[b:b + 1]), **options)
        np.testing.assert_array_equal(got, want[b:b + 1])


def test_errors():
    rng, q, k, v = drawn()
    sink = rng.normal(size=(B, H, LQ))
    with pytest.raises(ValueError, match=r"shape is \(2, 4, 5\); it must be \(2, 4, 6\), or 1 on axis 0, 1"):
        relpos.attention(q, k, v, sink=relpos.Sink(sink[..., :5]))
    sink[1, 2, 3] = np.nan
    with pytest.raises(ValueError, match=r"element \[1, 2, 3\] is nan; it must be finite, or -inf for none"):
        relpos.attention(q, k, v, sink=relpos.Sink(sink))
    with pytest.raises(ValueError, match=r"element 1 is inf; it must be finite, or -inf for none"):
        relpos.attention(q, k, v, sink=relpos.Sink(np.array([0, np.inf, 0, 0])))


def of_torch(torch, shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    shapes = (B, H, LQ, D), (B, HK, LK, D), (B, HK, LK, DV), shape
    return [torch.randn(x, generator=g, dtype=torch.float64, requires_grad=True) for x in shapes]


def eager(torch, q, k, v, sink):
    k, v = (x.repeat_interleave(H // HK, -3) for x in (k, v))
    sink = (sink if sink.ndim > 1 else sink[:, None])[..., None]
    scores = q @ k.mT / D ** 0.5
    scores = torch.cat([scores, sink.expand(*scores.shape[:-1], 1)], -1)
    return scores.softmax(-1)[..., :-1] @ v, scores.logsumexp(-1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_torch_derivatives(shape):
    torch = pytest.importorskip("torch")
    inputs = of_torch(torch, shape)

    def ours(q, k, v, sink):
        found = relpos.attention(q, k, v, sink=relpos.Sink(sink), return_lse=True)
        return found.out, found.lse

    def plain(*x):
        return eager(torch, *x)

    seeds = [torch.randn(x.shape, dtype=x.dtype) for x in plain(*inputs)]
    ahead = tuple(torch.randn(x.shape, dtype=x.dtype) for x in inputs)
    results = []
    for function in (ours, plain):
        out = function(*inputs)
        first = torch.autograd.grad(out, inputs, seeds, create_graph=True)
        second = torch.autograd.grad(sum((a * b).sum() for a, b in zip(first, ahead)), inputs)
        results.append((*out, *first, *second, *torch.func.jvp(function, tuple(inputs), ahead)[1]))
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


def test_torch_transforms():
    """torch.compile, and torch.vmap over logits, over queries, and over both."""
    torch = pytest.importorskip("torch")
    q, k, v, sink = (x.detach() for x in of_torch(torch, (B, H, LQ)))

    def ours(q, k, v, sink):
        return relpos.attention(q, k, v, sink=relpos.Sink(sink))

    want = eager(torch, q, k, v, sink)[0]
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(q, k, v, sink), want, atol=1e-12, rtol=0)
    torch.testing.assert_close(torch.vmap(ours)(q, k, v, sink), want, atol=1e-12, rtol=0)
    found = torch.vmap(ours, (None, None, None, 0))(q[0], k[0], v[0], sink)
    torch.testing.assert_close(found, eager(torch, q[:1].expand_as(q), k[:1].expand_as(k), v[:1].expand_as(v),
                                            sink)[0], atol=1e-12, rtol=0)
    found = torch.vmap(torch.func.grad(lambda *x: ours(*x).sum(), (0, 3)))(q, k, v, sink)
    inputs = [x.clone().requires_grad_() for x in (q, k, v, sink)]
    wanted = torch.autograd.grad(eager(torch, *inputs)[0].sum(), (inputs[0], inputs[3]))
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
