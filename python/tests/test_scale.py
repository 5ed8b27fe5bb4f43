"""A scale that is an array: gradients, tangents and second derivatives in NumPy, against torch's autograd of plain
operations in f64, and temperatures of published models.

SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import pytest
import relpos

torch = pytest.importorskip("torch")
B, H, HK, LQ, LK, D, DV = 2, 4, 2, 7, 9, 6, 5
SHAPES = [(H,), (1,), (H, 1, 1), (1, LQ, 1), (H, LQ, 1), (1, 1, LQ, 1), (B, 1, LQ, 1), (B, H, 1, 1), (B, H, LQ, 1)]


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


INPUTS = [draw(*shape, seed=n) for n, shape in enumerate([
    (B, H, LQ, D), (B, HK, LK, D), (B, HK, LK, DV), (8, H), (5, D), (B, H, LQ)])]  # q, k, v, T5, relkey, sink
TANGENTS = [draw(*x.shape, seed=20 + n) for n, x in enumerate(INPUTS)]
DOUT, DLSE = draw(B, H, LQ, DV, seed=40), draw(B, H, LQ, seed=41)
OFFSETS = np.arange(LK)[None] - np.arange(LQ)[:, None]
BUCKETS = torch.as_tensor(relpos.bucket(OFFSETS, buckets=8, max_distance=6))
PLACES = torch.as_tensor(OFFSETS.clip(-2, 2) + 2)


def plain(scale, q, k, v, table, vectors, sink):
    """The scale multiplies q · k and q · vectors, inside the softcap, and neither the bias nor the sink."""
    k, v = (x.repeat_interleave(H // HK, 1) for x in (k, v))
    s = q @ k.mT + torch.einsum("bhid,ijd->bhij", q, vectors[PLACES])
    s = 1.5 * torch.tanh((scale.reshape(-1, 1, 1) if scale.ndim == 1 else scale) * s / 1.5)
    s = s + table[BUCKETS].permute(2, 0, 1)
    s = torch.cat([s, sink[..., None]], -1)
    return torch.softmax(s, -1)[..., :-1] @ v, torch.logsumexp(s, -1)


def options(scale, table, vectors, sink):
    return dict(bias=relpos.T5(table, buckets=8, max_distance=6), relkey=relpos.RelKey(vectors, left=2, right=2),
                sink=relpos.Sink(sink), softcap=1.5, scale=scale)


def near(got, want, tolerance=1e-12):
    want = np.asarray(want.detach() if hasattr(want, "detach") else want)
    assert np.shape(got) == want.shape
    np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=tolerance * (1 + abs(want).max()))


def all_of(g):
    """Return the derivatives of a call with the terms of `options` in the order of the arguments of plain()."""
    return [g.terms[3]["scale"], g.q, g.k, g.v, g.terms[0]["table"], g.terms[1]["table"], g.terms[2]["sink"]]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equal_those_of_torch(shape):
    scale, along = 0.3 + 0.1 * draw(*shape, seed=50), draw(*shape, seed=51)
    x = [torch.tensor(a, requires_grad=True) for a in (scale, *INPUTS)]
    ahead = tuple(torch.tensor(a) for a in (along, *TANGENTS))
    out, lse = plain(*x)
    first = torch.autograd.grad((out * torch.as_tensor(DOUT)).sum() + (lse * torch.as_tensor(DLSE)).sum(), x,
                                create_graph=True)
    second = torch.autograd.grad(sum((a * b).sum() for a, b in zip(first, ahead)), x)
    turned = torch.func.jvp(plain, tuple(a.detach() for a in x), ahead)[1]
    given = options(scale, *INPUTS[3:])
    tq, tk, tv, ttable, tvectors, tsink = TANGENTS
    tangents = tq, tk, tv, ({"table": ttable}, {"table": tvectors}, {"sink": tsink}, {"scale": along})
    wanted = "scale", "q", "k", "v", "table", "sink"
    found = relpos.attention(*INPUTS[:3], return_lse=True, **given)
    for got, want in zip((found.out, found.lse), (out, lse)):
        near(got, want)
    g = relpos.attention_backward(DOUT, *INPUTS[:3], dlse=DLSE, wanted=wanted, **given)
    for got, want in zip(all_of(g), first):
        near(got, want)
    t = relpos.attention_jvp(*INPUTS[:3], tangents, **given)
    near(t.out, turned[0])
    near(t.lse, turned[1])
    h = relpos.attention_hvp(DOUT, *INPUTS[:3], tangents, dlse=DLSE, wanted=wanted, **given)
    for got, want in zip((*all_of(h), h.out, h.lse), (*second, *turned)):
        near(got, want)
    # without a tangent of the scale, and without a tangent of q
    for n in (0, 1):
        some = [torch.zeros_like(a) if n == m else a for m, a in enumerate(ahead)]
        x = [a.detach().requires_grad_() for a in x]
        out, lse = plain(*x)
        first = torch.autograd.grad((out * torch.as_tensor(DOUT)).sum(), x, create_graph=True)
        second = torch.autograd.grad(sum((a * b).sum() for a, b in zip(first, some)), x)
        fewer = (tangents[0] if n == 0 else None, tk, tv, tangents[3][:3] if n == 0 else tangents[3])
        h = relpos.attention_hvp(DOUT, *INPUTS[:3], fewer, wanted=wanted, **given)
        for got, want in zip(all_of(h), second):
            near(got, want)


def test_what_is_wanted():
    """Without `wanted` there is no gradient of the scale. A product that only the scale needs is not returned."""
    given = options(0.3 + 0.1 * draw(H, LQ, 1, seed=50), *INPUTS[3:])
    g = relpos.attention_backward(DOUT, *INPUTS[:3], **given)
    assert len(g.terms) == 3
    only = relpos.attention_backward(DOUT, *INPUTS[:3], wanted=["scale"], **given)
    assert only[:3] == (None, None, None)
    assert only.terms[:3] == ({"table": None}, {"table": None}, {"sink": None})
    both = relpos.attention_backward(DOUT, *INPUTS[:3], wanted={"scale", "q"}, **given)
    near(both.q, g.q, 0)
    near(both.terms[3]["scale"], only.terms[3]["scale"], 0)
    swapped = [x.swapaxes(1, 2) for x in (DOUT, *INPUTS[:3])]
    got = relpos.attention_backward(*swapped, wanted=["scale", "q"], layout="blhd", **given)
    near(got.q, g.q.swapaxes(1, 2), 0)
    near(got.terms[3]["scale"], only.terms[3]["scale"], 0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_entry_has_the_derivatives_of_its_call(shape):
    scale, batched = 0.3 + 0.1 * draw(*shape, seed=50), len(shape) == 4
    wanted, sink = ("scale", "q"), INPUTS[5]
    along = draw(B, *shape[batched:], seed=51)
    given = options(scale, *INPUTS[3:])
    tangents = *TANGENTS[:3], ({}, {}, {}, {"scale": along if shape[:1] != (1,) or not batched else along[:1]})
    g = relpos.attention_backward(DOUT, *INPUTS[:3], wanted=wanted, per_sample=True, **given).terms[3]["scale"]
    t = relpos.attention_jvp(*INPUTS[:3], tangents, **given)
    h = relpos.attention_hvp(DOUT, *INPUTS[:3], tangents, wanted=wanted, per_sample=True, **given)
    assert g.shape == h.terms[3]["scale"].shape == (B, *shape[batched:])
    for b in range(B):
        own = scale if not batched else scale[b if len(scale) > 1 else 0]
        given = options(own, *INPUTS[3:5], sink[b])
        one = [x[b] for x in INPUTS[:3]]
        turned = *(x[b] for x in TANGENTS[:3]), ({}, {}, {}, {"scale": tangents[3][3]["scale"][
            b if len(tangents[3][3]["scale"]) > 1 else 0]})
        near(g[b], relpos.attention_backward(DOUT[b], *one, wanted=wanted, **given).terms[3]["scale"])
        near(t.out[b], relpos.attention_jvp(*one, turned, **given).out)
        other = relpos.attention_hvp(DOUT[b], *one, turned, wanted=wanted, **given)
        near(h.terms[3]["scale"][b], other.terms[3]["scale"])
        near(h.q[b], other.q)


@pytest.mark.parametrize("name", ["xl", "deberta", "axialkey"])
@pytest.mark.parametrize("shape", [(H,), (1,), (H, 1, 1)], ids=str)
def test_terms_with_their_own_products(name, shape):
    """The scale also multiplies u and v of XL and q_pos of Deberta, and with AxialKey only q · k."""
    n = 6
    q, k, v, dout = (draw(B, H, n, D, seed=x) for x in range(4))
    arrays = {"xl": {"r": draw(H, 2 * n - 1, D, seed=5), "u": draw(H, D, seed=6), "v": draw(H, D, seed=7)},
              "deberta": {"k_pos": draw(H, 8, D, seed=5), "q_pos": draw(H, 8, D, seed=6)},
              "axialkey": {"rh": draw(3, D, seed=5), "rw": draw(5, D, seed=6)}}[name]
    made = {"xl": relpos.XL, "deberta": lambda **x: relpos.Deberta(span=4, **x),
            "axialkey": lambda **x: relpos.AxialKey(grid=(2, 3), **x)}[name]
    scale, along = 0.3 + 0.1 * draw(*shape, seed=8), draw(*shape, seed=9)
    ahead = [draw(*x.shape, seed=30 + m) for m, x in enumerate((q, k, v, *arrays.values()))]

    def of_torch(scale, q, k, v, *x):
        return relpos.attention(q, k, v, relkey=made(**dict(zip(arrays, x))), scale=scale)

    inputs = [torch.tensor(x, requires_grad=True) for x in (scale, q, k, v, *arrays.values())]
    first = torch.autograd.grad((of_torch(*inputs) * torch.as_tensor(dout)).sum(), inputs, create_graph=True)
    turned = [torch.as_tensor(x) for x in (along, *ahead)]
    second = torch.autograd.grad(sum((a * b).sum() for a, b in zip(first, turned)), inputs)
    given = dict(relkey=made(**arrays), scale=scale)
    tangents = *ahead[:3], (dict(zip(arrays, ahead[3:])), {"scale": along})
    wanted = "scale", "q", "k", "v", *arrays
    for found, want in ((relpos.attention_backward(dout, q, k, v, wanted=wanted, **given), first),
                        (relpos.attention_hvp(dout, q, k, v, tangents, wanted=wanted, **given), second)):
        for got, one in zip((found.terms[1]["scale"], *found[:3], *(found.terms[0][x] for x in arrays)), want):
            near(got, one)
    near(relpos.attention_jvp(q, k, v, tangents, **given).out, torch.func.jvp(
        of_torch, tuple(x.detach() for x in inputs), tuple(turned))[1])
    only = relpos.attention_backward(dout, q, k, v, wanted=("scale",), **given)
    near(only.terms[1]["scale"], first[0])
    assert set(only.terms[0].values()) == {None}


def test_tensors():
    """Tensors give tensors. What requires a gradient is refused by tangents, and gradients record nothing."""
    q, k, v, dout = (torch.tensor(x) for x in (*INPUTS[:3], DOUT))
    scale = torch.rand(H, LQ, 1, dtype=torch.float64, requires_grad=True)
    g = relpos.attention_backward(dout, q.requires_grad_(), k, v, scale=scale, wanted=("q", "scale"))
    assert not g.q.requires_grad and not g.terms[0]["scale"].requires_grad
    of = torch.autograd.grad((relpos.attention(q, k, v, scale=scale) * dout).sum(), (q, scale))
    near(g.q, of[0])
    near(g.terms[0]["scale"], of[1])
    q = q.detach()
    with pytest.raises(TypeError, match="attention_jvp: scale requires a gradient, which this function does not"):
        relpos.attention_jvp(q, k, v, (q, None, None), scale=scale)
    half = relpos.attention_backward(*(x.half() for x in (dout, q, k, v)), scale=scale.detach(), wanted=("q", "scale"))
    assert half.q.dtype == torch.float16 and half.terms[0]["scale"].dtype == torch.float64
    torch.testing.assert_close(half.terms[0]["scale"], of[1], atol=0.03, rtol=0.02)


def test_temperatures_of_published_models():
    """Llama 4 and Ministral 3 at positions where their logarithms count, and SSMax with a learned factor."""
    first = 20000  # the position of query 0
    p = first + np.arange(LQ)
    learned = np.random.default_rng(3).uniform(0.3, 0.5, (H, 1, 1))
    temperatures = {"llama4": np.log1p(np.floor((p + 1) / 8192)) * 0.1 + 1,
                    "ministral3": 1 + 0.1 * np.log(1 + np.floor(p / 16384)),
                    "ssmax": learned * np.log(p + 1)[:, None]}
    for name, t in temperatures.items():
        t = np.broadcast_to(t if t.ndim > 1 else t[:, None], (H, LQ, 1))
        scale = torch.tensor(t * D ** -0.5, requires_grad=True)
        q, k, v = (torch.tensor(x, requires_grad=True) for x in INPUTS[:3])
        scores = scale * (q @ k.repeat_interleave(H // HK, 1).mT)
        out = torch.softmax(scores, -1) @ v.repeat_interleave(H // HK, 1)
        want = torch.autograd.grad((out * torch.as_tensor(DOUT)).sum(), (scale, q, k, v))
        near(relpos.attention(*INPUTS[:3], scale=scale.detach().numpy(), q_offset=first), out)
        g = relpos.attention_backward(DOUT, *INPUTS[:3], scale=scale.detach().numpy(), q_offset=first,
                                      wanted=("scale", "q", "k", "v"))
        for got, one in zip((g.terms[0]["scale"], g.q, g.k, g.v), want):
            near(got, one)
        if name == "ssmax":  # the gradient of the factor of a head: one product for each row
            factor = (g.terms[0]["scale"][..., 0] * np.log(p + 1)).sum(-1) * D ** -0.5
            near(factor, (g.q * INPUTS[0]).sum((0, 2, 3)) / learned[:, 0, 0])
