"""RoPE with given frequencies: compared with torch's operations in f64, and with classes of timm and transformers.

SPDX-License-Identifier: Apache-2.0"""
import json

import numpy as np
import pytest
import relpos

torch = pytest.importorskip("torch")
from torch import func  # noqa: E402

B, H, HK, LQ, LK, D, DV = 2, 4, 2, 9, 11, 10, 6
N = 4  # pairs that rotate: 8 of 10 channels
g = torch.Generator().manual_seed(0)
SHAPES = (B, H, LQ, D), (B, HK, LK, D), (B, HK, LK, DV), (B, H, LQ, DV)
Q, K, V, OUT = (torch.randn(s, generator=g, dtype=torch.float64) for s in SHAPES)
F = torch.rand(N, generator=g, dtype=torch.float64)
QP, KP = (3 * torch.rand(B, n, generator=g, dtype=torch.float64) for n in (LQ, LK))


def rotate(x, angle, layout):
    """Rotate the first channels of x (B, H, L, D) by angles (…, L, n)."""
    n = angle.shape[-1]
    part = x[..., :2 * n]
    a, b = (part[..., :n], part[..., n:]) if layout == "half" else (part[..., ::2], part[..., 1::2])
    turned = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
    turned = torch.cat(turned, -1) if layout == "half" else torch.stack(turned, -1).flatten(-2)
    return torch.cat([turned, x[..., 2 * n:]], -1)


def plain(q, k, v, causal=False):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = 3 * torch.tanh(q @ k.transpose(-2, -1) * 0.4 / 3)
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:]).triu(1).bool(), -torch.inf)
    return torch.softmax(s, -1) @ v


def near(got, want, bound=1e-12):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.shape == b.shape
        torch.testing.assert_close(a.double(), b, atol=bound * (1 + b.abs().max().item()), rtol=0)


def pair(layout, causal, given):
    """Return attention by relpos and by torch's operations, as functions of q, k, v and frequencies."""
    positions = dict(q_positions=QP, k_positions=KP) if given else {}
    qp, kp = (QP, KP) if given else (torch.arange(LQ), torch.arange(LK))
    qp, kp = (x[..., None, :, None] for x in (qp, kp))

    def ours(q, k, v, f):
        rope = relpos.RoPE(2 * N, layout=layout, frequencies=f, **positions)
        return relpos.attention(q, k, v, rope=rope, causal=causal, q_offset=0, scale=0.4, softcap=3.0)

    def eager(q, k, v, f):
        return plain(rotate(q, qp * f, layout), rotate(k, kp * f, layout), v, causal)
    return ours, eager


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("layout, causal", [("half", False), ("interleaved", True)])
def test_frequencies_and_their_derivatives(layout, causal, given):
    """Values, gradients, tangents, Hessian-vector products by autograd and by torch.func, and gradients of tangents."""
    x, t = (Q, K, V, F), tuple(torch.randn(a.shape, generator=g, dtype=a.dtype) for a in (Q, K, V, F))
    results = []
    for f in pair(layout, causal, given):
        loss = lambda *x: (f(*x) ** 2 * OUT).sum()
        of = [a.clone().requires_grad_() for a in x]
        first = torch.autograd.grad(loss(*of), of, create_graph=True)
        second = torch.autograd.grad(sum((a * b).sum() for a, b in zip(first, t)), of)
        results.append([f(*x), *first, *second, *func.jvp(f, x, t)[1:],
                        *func.jvp(func.grad(loss, (0, 1, 2, 3)), x, t)[1],
                        *func.grad(lambda *x: func.jvp(loss, x, t)[1], (0, 1, 2, 3))(*x)])
    near([a.detach() for a in results[0]], [a.detach() for a in results[1]])


@pytest.mark.parametrize("axes, heads", [(0, HK), (0, 1), (1, 1), (2, HK), (3, 1), (4, HK)])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_axes_and_heads(layout, axes, heads):
    """Frequencies of each axis and head of k, with real positions of each batch entry for queries and keys."""
    f = torch.rand(*[axes] * (axes > 0), heads, N, generator=g, dtype=torch.float64)
    shape = (B, axes) if axes else (B, )
    qp, kp = (4 * torch.rand(*shape, n, generator=g, dtype=torch.float64) - 2 for n in (LQ, LK))

    def ours(q, k, v, f):
        rope = relpos.RoPE(2 * N, layout=layout, frequencies=f, q_positions=qp, k_positions=kp)
        return relpos.attention(q, k, v, rope=rope, causal=True, q_offset=0, scale=0.4, softcap=3.0)

    def eager(q, k, v, f):
        angles = [torch.einsum("bal,ahn->bhln", p.reshape(B, -1, p.shape[-1]), f.reshape(max(axes, 1), heads, N))
                  for p in (qp, kp)]
        of_q = angles[0].repeat_interleave(H // HK, 1) if heads > 1 else angles[0]
        return plain(rotate(q, of_q, layout), rotate(k, angles[1], layout), v, True)
    x, t = (Q, K, V, f), tuple(torch.cos(3 * a) for a in (Q, K, V, f))
    found = []
    for call in ours, eager:
        loss = lambda *x: (call(*x) ** 2 * OUT).sum()
        found.append([call(*x), *func.grad(loss, (0, 1, 2, 3))(*x), func.jvp(call, x, t)[1],
                      *func.jvp(func.grad(loss, (0, 1, 2, 3)), x, t)[1]])
    near(*found)
    single = [a.float() for a in x]
    torch.testing.assert_close(ours(*single).double(), eager(*x), atol=1e-5, rtol=0)
    grads = func.grad(lambda *x: (ours(*x) ** 2 * OUT.float()).sum(), (0, 1, 2, 3))(*single)
    near(grads, found[1][1:5], 1e-5)


def test_rope_mixed():
    """RoPE-Mixed as in timm, and its gradient."""
    pos_embed = pytest.importorskip("timm.layers.pos_embed_sincos")
    e = pos_embed.RotaryEmbeddingMixed(2 * N * 3, 1, 3, feat_shape=[4, 5])
    q, k, v = (torch.randn(2, 3, 20, 2 * N, generator=g) for _ in range(3))
    y, x = np.divmod(np.arange(20), 5)
    rope = relpos.RoPE(layout="interleaved", frequencies=e.freqs[:, 0], positions=torch.tensor(np.stack([x, y])))
    angles = e.get_embed()[0]
    turned = [pos_embed.apply_rot_embed_cat(a, angles) for a in (q, k)]
    want = torch.nn.functional.scaled_dot_product_attention(*turned, v)
    got = relpos.attention(q, k, v, rope=rope)
    near([got], [want.double()], 2e-6)
    near(*[torch.autograd.grad((out * out).sum(), e.freqs) if n else [
        a.double() for a in torch.autograd.grad((out * out).sum(), e.freqs)] for n, out in ((1, got), (0, want))], 1e-5)


def test_axes_of_qwen2_vl():
    """The vision tower: the first half of the pairs has the row, the second half the column."""
    modeling = pytest.importorskip("transformers.models.qwen2_vl.modeling_qwen2_vl")
    e = 10000.0 ** (-np.arange(N // 2) / (N // 2))
    zero = np.zeros(N // 2)
    y, x = np.divmod(np.arange(20), 5)
    q, k, v = (torch.randn(1, 3, 20, 2 * N, generator=g) for _ in range(3))
    angles = torch.tensor(np.concatenate([y[:, None] * e, x[:, None] * e], -1))
    emb = torch.cat([angles, angles], -1).float()
    turned = modeling.apply_rotary_pos_emb_vision(q[0].transpose(0, 1), k[0].transpose(0, 1), emb.cos(), emb.sin())
    want = torch.nn.functional.scaled_dot_product_attention(*(a.transpose(0, 1)[None] for a in turned), v)
    rope = relpos.RoPE(frequencies=np.stack([np.r_[e, zero], np.r_[zero, e]])[:, None], positions=np.stack([y, x]))
    near([relpos.attention(q, k, v, rope=rope)], [want.double()], 2e-6)


@pytest.mark.parametrize("which", range(4))
def test_derivatives_along_one_input(which):
    """Only one of q, k, v and the frequencies has a tangent, or a gradient."""
    x = (Q, K, V, F)
    found = []
    for f in pair("half", True, True):
        one = lambda a: f(*x[:which], a, *x[which + 1:])
        loss = lambda a: (one(a) ** 2 * OUT).sum()
        t = torch.cos(torch.arange(x[which].numel(), dtype=torch.float64)).reshape(x[which].shape)
        found.append([func.grad(loss)(x[which]), func.jvp(one, (x[which], ), (t, ))[1],
                      func.jvp(func.grad(loss), (x[which], ), (t, ))[1]])
    near(*found)


@pytest.mark.parametrize("dtype, bound", [(torch.float32, 2e-6), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
def test_types(dtype, bound):
    """Frequencies keep their type, and their gradient has it. q, k and v are rounded for both."""
    found = []
    for f, kind in zip(pair("half", True, False), (dtype, torch.float64)):
        x = [a.to(dtype).to(kind).requires_grad_() for a in (Q, K, V)] + [F.float().to(kind).requires_grad_()]
        x[3] = F.float().to(torch.float32 if kind == dtype else kind).requires_grad_()
        found.append(torch.autograd.grad((f(*x) * OUT.to(kind)).sum(), x))
        assert found[-1][3].dtype == x[3].dtype
    near(*found, bound)


def test_products_of_vectors_beside_frequencies():
    """The vectors of relkey multiply queries that are not rotated, so dq has a part that the frequencies do not get."""
    table = torch.randn(5, D, generator=g, dtype=torch.float64)
    offset = (torch.arange(LK) - torch.arange(LQ)[:, None]).clamp(-2, 2) + 2

    def ours(q, k, v, f):
        return relpos.attention(q, k, v, rope=relpos.RoPE(2 * N, frequencies=f), scale=1.0,
                                relkey=relpos.RelKey(table, left=2, right=2))

    def eager(q, k, v, f):
        a, b = (rotate(x, torch.arange(x.shape[2])[:, None] * f, "half") for x in (q, k.repeat_interleave(2, 1)))
        s = a @ b.transpose(-2, -1) + torch.einsum("bhid,ijd->bhij", q, table[offset])
        return torch.softmax(s, -1) @ v.repeat_interleave(2, 1)
    x, t = (Q, K, V, F), tuple(map(torch.cos, (Q, K, V, F)))
    found = []
    for f in ours, eager:
        loss = lambda *x: (f(*x) ** 2 * OUT).sum()
        found.append([*func.grad(loss, (0, 1, 2, 3))(*x), func.jvp(f, x, t)[1],
                      *func.jvp(func.grad(loss, (0, 1, 2, 3)), x, t)[1]])
    near(*found)


@pytest.mark.parametrize("scaling", ["none", "linear"])
def test_gradient_of_the_base(scaling):
    """A base that requires a gradient gets it through the frequencies, also of second order and compiled."""
    options = {} if scaling == "none" else {"scaling": "linear", "factor": 4.0}
    factor = options.get("factor", 1.0)
    base = torch.tensor(7.0, dtype=torch.float64)
    ours = lambda base: (relpos.attention(Q, K, V, rope=relpos.RoPE(2 * N, base=base, **options)) * OUT).sum()

    def eager(base):
        f = base ** (torch.arange(N, dtype=torch.float64) / -N) / factor
        a, b = (rotate(x, torch.arange(x.shape[2])[:, None] * f, "half") for x in (Q, K.repeat_interleave(2, 1)))
        return (torch.softmax(a @ b.transpose(-2, -1) / D ** 0.5, -1) @ V.repeat_interleave(2, 1) * OUT).sum()
    near([func.grad(ours)(base), func.grad(func.grad(ours))(base)], [func.grad(eager)(base),
                                                                    func.grad(func.grad(eager))(base)])
    x = base.clone().requires_grad_()
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    near(torch.autograd.grad(compiled(x), x), [func.grad(eager)(base)])
    torch._dynamo.reset()
    torch.testing.assert_close(ours(base), eager(base))
    for wrong in dict(base=x), dict(dim=4, base=x, scaling="dynamic", factor=2.0, max_position_embeddings=8):
        with pytest.raises(TypeError, match=r"base requires a gradient, .*; use .detach\(\), or for the gradient"):
            relpos.RoPE(**wrong)


def test_a_base_is_the_same_with_and_without_a_gradient():
    """A tensor as base gives one value and the same errors with a gradient, without one, compiled and under vmap."""
    plain = relpos.attention(Q, K, V, rope=relpos.RoPE(2 * N, base=50.0))
    attend = lambda base: relpos.attention(Q, K, V, rope=relpos.RoPE(2 * N, base=base))
    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
    for shape in (), (1,):
        base = torch.full(shape, 50.0, requires_grad=True)
        for x in base, base.detach():
            near([attend(x), compiled(x)], [plain, plain])
        with torch.no_grad():
            near([attend(base), compiled(base)], [plain, plain])
    torch._dynamo.reset()
    both = torch.tensor([50.0, 9.0])
    near([func.vmap(attend)(both)[0]], [plain])
    product = func.vmap(lambda base: func.grad(lambda q: (relpos.attention(q, K, V, rope=relpos.RoPE(
        2 * N, base=base)) * OUT).sum())(Q))(both)
    near([product[0]], [func.grad(lambda q: (relpos.attention(q, K, V, rope=relpos.RoPE(
        2 * N, base=50.0)) * OUT).sum())(Q)])
    for options, error, said in ((dict(factor=2.0), TypeError, "factor is 2.0, but scaling is none"),
                                 (dict(scaling="linear", factor=0.5), ValueError, "factor. is 0.5; it must be 1 to"),
                                 (dict(scaling="linear", factor=-2.0), ValueError, "factor. is -2.0; it must be 1"),
                                 (dict(base=torch.tensor([5.0, 2.0])), TypeError, r"base is an array .* expected a"),
                                 (dict(base=torch.tensor(-5.0)), ValueError, "base. is -5; it must be above 0"),
                                 (dict(base=torch.tensor(torch.nan)), ValueError, "base. is nan; it must be above 0")):
        for learned in True, False:
            base = options.get("base", torch.tensor(50.0)).clone().requires_grad_(learned)
            with pytest.raises(error, match=said):
                relpos.RoPE(4, **options | {"base": base})


def test_gradients_of_each_batch_entry():
    q, k, v, out = (x.numpy() for x in (Q, K, V, OUT))
    rope = relpos.RoPE(2 * N, frequencies=F.numpy())
    each = relpos.attention_backward(out, q, k, v, rope=rope, per_sample=True).terms[0]["frequencies"]
    assert each.shape == (B, N)
    for b in range(B):
        one = slice(b, b + 1)
        want = relpos.attention_backward(out[one], q[one], k[one], v[one], rope=rope).terms[0]["frequencies"]
        assert (each[b] == want).all()


def test_hidden_keys_have_no_effect():
    """A key that is masked for every query may be NaN."""
    k, v = K.clone(), V.clone()
    k[:, :, -1] = v[:, :, -1] = torch.nan
    mask = torch.ones(B, LK, dtype=torch.bool)
    mask[:, -1] = False
    grads = []
    for k, v in (k, v), (K, V):
        f = F.clone().requires_grad_()
        out = relpos.attention(Q, k, v, rope=relpos.RoPE(2 * N, frequencies=f), key_mask=mask)
        grads.append(torch.autograd.grad((out * OUT).sum(), f)[0])
    assert torch.equal(*grads)


def test_frequencies_of_the_base_have_the_bits_of_the_base():
    f = 10000.0 ** (-np.arange(D // 2) / (D // 2))
    got, want = (relpos.attention(Q, K, V, rope=r) for r in (relpos.RoPE(frequencies=f), relpos.RoPE()))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-15)
    zero = relpos.attention(Q, K, V, rope=relpos.RoPE(frequencies=0 * f))
    assert torch.equal(zero, relpos.attention(Q, K, V))


def test_lists_of_a_config():
    given = dict(scaling="longrope", factor=4.0, original_max_position_embeddings=16)
    short, long = [1.0, 1.5, 2.0, 2.5, 3.0], [1.0, 2, 3, 4, 5]
    config = json.loads(json.dumps({"short_factor": short, "long_factor": long}))
    got = relpos.attention(Q, K, V, rope=relpos.RoPE(**given, **config))
    assert torch.equal(got, relpos.attention(Q, K, V, rope=relpos.RoPE(
        **given, short_factor=np.array(short), long_factor=np.array(long))))


ERRORS = {
    "scaling": (lambda: relpos.RoPE(frequencies=F, scaling="linear", factor=2.0), TypeError,
                "frequencies was given with scaling=linear, which it replaces"),
    "base": (lambda: relpos.RoPE(frequencies=F, base=7.0), TypeError,
             "frequencies was given with base, which it replaces"),
    "shape": (lambda: relpos.attention(Q, K, V, rope=relpos.RoPE(frequencies=F)), ValueError,
              r"RoPE\(frequencies\): shape is \(4\); it must be \(2, 5\), or 1 on axis 0, without"),
    "heads": (lambda: relpos.attention(Q, K, V, rope=relpos.RoPE(frequencies=torch.ones(H, D // 2))), ValueError,
              r"RoPE\(frequencies\): shape is \(4, 5\); it must be \(2, 5\), or 1 on axis 0, without"),
    "positions": (lambda: relpos.attention(Q, K, V, rope=relpos.RoPE(frequencies=torch.ones(2, 1, D // 2))), TypeError,
                  r"RoPE\(positions\) is missing; pass this array, which is needed with axes=2"),
    "frequencies": (lambda: relpos.attention(Q, Q, Q, rope=relpos.RoPE(axes=2, positions=np.zeros((2, LQ)))), TypeError,
                    r"RoPE\(frequencies\) is missing; pass this array, which is needed with axes=2"),
    "position": (lambda: relpos.attention(Q, Q, Q, rope=relpos.RoPE(
        frequencies=torch.ones(2, 1, D // 2), positions=np.full((2, LQ), np.inf))), ValueError,
        r"RoPE\(positions\): element 0 of axis 0 is inf; positions must be finite"),
    "nan": (lambda: relpos.attention(Q, K, V, rope=relpos.RoPE(2 * N, frequencies=F * torch.nan)), ValueError,
            r"RoPE\(frequencies\): an element of pair 0 is nan; it must be finite, from -2\^100 to 2\^100"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call()


def test_text_of_a_term():
    term = relpos.RoPE(2 * N, frequencies=F)
    assert repr(term) == "relpos.RoPE(dim=8, frequencies=float64[4])" and list(term.learned) == ["frequencies"]


@pytest.mark.parametrize("axes", [0, 2])
def test_vmap_over_positions(axes):
    """Positions that differ between the entries of a mapped axis."""
    f = torch.rand(2, 1, N, generator=g, dtype=torch.float64) if axes else F
    p = torch.rand(3, *[axes] * (axes > 0), LQ, generator=g, dtype=torch.float64)
    call = lambda p: relpos.attention(Q, Q, Q, rope=relpos.RoPE(2 * N, frequencies=f, positions=p))
    torch.testing.assert_close(func.vmap(call)(p), torch.stack([call(one) for one in p]), rtol=0, atol=1e-14)
