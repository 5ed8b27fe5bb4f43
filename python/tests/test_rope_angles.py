"""RoPE with given angles: compared with torch's operations in f64, and with a class of transformers.

SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import pytest
import relpos
from test_rope import HK, OUT, B, D, H, K, N, Q, V, g, near, plain, rotate, torch

from torch import func  # noqa: E402

LQ, LK = Q.shape[2], K.shape[2]
SHAPES = (), (HK, ), (B, 1), (B, HK), (1, HK)


def draw(*shape):
    """Draw angles of several turns. The last two tokens are not rotated."""
    x = 9 * torch.rand(*shape, N, generator=g, dtype=torch.float64) - 3
    x[..., -2:, :] = 0
    return x


def spread(x, heads):
    """Return angles (B?, Hk?, L, n) for `heads` heads of q or k."""
    return x.repeat_interleave(heads // HK, -3) if x.ndim > 2 and x.shape[-3] > 1 else x


def eager(layout, causal=True):
    def call(q, k, v, a, b):
        return plain(rotate(q, spread(a, H), layout), rotate(k, b, layout), v, causal)
    return call


def ours(layout, causal=True, dim=2 * N, **options):
    def call(q, k, v, a, b):
        angles = {"angles": a} if a is b else {"q_angles": a, "k_angles": b}
        return relpos.attention(q, k, v, rope=relpos.RoPE(dim, layout=layout, **angles), causal=causal, q_offset=0,
                                scale=0.4, softcap=3.0, **options)
    return call


def derivatives(f, x, t):
    """Values, gradients, Hessian-vector products, tangents, and both kinds of second derivatives by torch.func."""
    n = tuple(range(len(x)))
    out = OUT.to(x[0].dtype)[:, :, :x[0].shape[2]]
    loss = lambda *x: (f(*x) ** 2 * out).sum()
    of = [a.clone().requires_grad_() for a in x]
    first = torch.autograd.grad(loss(*of), of, create_graph=True)
    second = torch.autograd.grad(sum((a * b).sum() for a, b in zip(first, t)), of)
    return [a.detach() for a in (f(*x), *first, *second, *func.jvp(f, x, t)[1:],
                                 *func.jvp(func.grad(loss, n), x, t)[1],
                                 *func.grad(lambda *x: func.jvp(loss, x, t)[1], n)(*x))]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout, causal", [("half", False), ("interleaved", True)])
def test_angles_of_q_and_k(layout, causal, shape):
    x = (Q, K, V, draw(*shape, LQ), draw(*shape[::-1] if shape == (B, 1) else shape, LK))
    t = tuple(torch.randn(a.shape, generator=g, dtype=a.dtype) for a in x)
    near(*(derivatives(f(layout, causal), x, t) for f in (ours, eager)))


@pytest.mark.parametrize("shape", SHAPES)
def test_angles_for_both(shape):
    x = (Q, K[:, :, :LQ], V[:, :, :LQ], draw(*shape, LQ))
    t = tuple(torch.randn(a.shape, generator=g, dtype=a.dtype) for a in x)
    near(*(derivatives(lambda q, k, v, a: f("half")(q, k, v, a, a), x, t) for f in (ours, eager)))


def test_tokens_without_rotation():
    """Tokens with angle 0, such as the last keys of SAM2's memory or a class token, have the bits of no rotation."""
    a = draw(LK)
    a[:] = 0
    q = Q[:, :, :1]
    got = relpos.attention(q, K, V, rope=relpos.RoPE(2 * N, q_angles=a[:1], k_angles=a))
    assert torch.equal(got, relpos.attention(q, K, V))


def test_angles_of_positions():
    """Angles that are products of positions and frequencies give what RoPE computes from positions."""
    f = 10000.0 ** (-np.arange(D // 2) / (D // 2))
    a = np.arange(LQ)[:, None] * f
    k, v = K[:, :, :LQ], V[:, :, :LQ]
    torch.testing.assert_close(relpos.attention(Q, k, v, rope=relpos.RoPE(angles=a)),
                               relpos.attention(Q, k, v, rope=relpos.RoPE()), rtol=0, atol=1e-14)


def test_gradient_by_differences():
    """gradcheck and gradgradcheck of torch, which share no formula with the derivatives."""
    q, k, v = (x[:1, :2, :4].clone().requires_grad_() for x in (Q, K, V))
    a = draw(4).requires_grad_()
    f = lambda q, k, v, a: relpos.attention(q, k, v, rope=relpos.RoPE(2 * N, angles=a), causal=True)
    assert torch.autograd.gradcheck(f, (q, k, v, a))
    assert torch.autograd.gradgradcheck(f, (q, k, v, a))


@pytest.mark.parametrize("dtype, bound", [(torch.float32, 2e-6), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
def test_types(dtype, bound):
    """Angles keep their type, and their gradient has it. q, k and v are rounded for both."""
    found = []
    a, b = draw(HK, LQ), draw(HK, LK)
    for f, kind in ((ours("half"), dtype), (eager("half"), torch.float64)):
        x = [y.to(dtype).to(kind).requires_grad_() for y in (Q, K, V)]
        x += [y.float().to(torch.float32 if kind == dtype else kind).requires_grad_() for y in (a, b)]
        found.append(torch.autograd.grad((f(*x) * OUT.to(kind)).sum(), x))
        assert found[-1][3].dtype == x[3].dtype
    near(*found, bound)


def test_bits_for_any_number_of_threads():
    """Gradients of angles that all heads and batch entries share, over several blocks of rows and keys."""
    q, k, v, out = (torch.randn(3, 4, 700, 8, generator=g) for _ in range(4))
    a = torch.randn(700, 4, generator=g)
    found = []
    for threads in 1, 2, 5:
        grads = relpos.attention_backward(*(x.numpy() for x in (out, q, k, v)), rope=relpos.RoPE(angles=a.numpy()),
                                          causal=True, threads=threads)
        found.append([grads.q, grads.k, grads.terms[0]["angles"]])
    for other in found[1:]:
        assert all((x == y).all() for x, y in zip(found[0], other))
    x = [y.double().requires_grad_() for y in (q, k, v, a)]
    turned = [rotate(y, x[3], "half") for y in x[:2]]
    want = torch.nn.functional.scaled_dot_product_attention(*turned, x[2], is_causal=True)
    want = torch.autograd.grad((want * out).sum(), x[3])[0]
    assert np.abs(found[0][2] - want.numpy()).max() <= 2e-6 * (1 + want.abs().max())


def test_products_of_vectors_beside_angles():
    """The vectors of relkey multiply queries that are not rotated; tangents and second derivatives run in loops."""
    table = torch.randn(5, D, generator=g, dtype=torch.float64)
    offset = (torch.arange(LK) - torch.arange(LQ)[:, None]).clamp(-2, 2) + 2

    def with_table(q, k, v, a, b):
        return relpos.attention(q, k, v, rope=relpos.RoPE(2 * N, q_angles=a, k_angles=b), scale=1.0,
                                relkey=relpos.RelKey(table, left=2, right=2))

    def want(q, k, v, a, b):
        turned, keys = rotate(q, spread(a, H), "half"), rotate(k, b, "half").repeat_interleave(2, 1)
        s = turned @ keys.transpose(-2, -1) + torch.einsum("bhid,ijd->bhij", q, table[offset])
        return torch.softmax(s, -1) @ v.repeat_interleave(2, 1)
    x = (Q, K, V, draw(B, HK, LQ), draw(LK))
    t = tuple(torch.cos(3 * a) for a in x)
    near(*(derivatives(f, x, t) for f in (with_table, want)))


def test_gradients_of_each_batch_entry():
    q, k, v, out = (x.numpy() for x in (Q, K, V, OUT))
    a, b = draw(LQ).numpy(), draw(B, HK, LK).numpy()
    rope = relpos.RoPE(2 * N, q_angles=a, k_angles=b)
    each = relpos.attention_backward(out, q, k, v, rope=rope, per_sample=True).terms[0]
    assert each["q_angles"].shape == (B, LQ, N) and each["k_angles"].shape == b.shape
    for n in range(B):
        one = slice(n, n + 1)
        own = relpos.RoPE(2 * N, q_angles=a, k_angles=b[one])
        want = relpos.attention_backward(out[one], q[one], k[one], v[one], rope=own).terms[0]
        assert (each["q_angles"][n] == want["q_angles"]).all()
        assert (each["k_angles"][one] == want["k_angles"]).all()


def test_class_token_of_mlcd():
    """The angles of the class token are learned: the gradient is that of the class of transformers."""
    modeling = pytest.importorskip("transformers.models.mlcd.modeling_mlcd")
    config = modeling.MLCDVisionConfig(hidden_size=32, num_attention_heads=4, num_key_value_groups=1)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    layer, own = modeling.MLCDAttention(config), torch.randn(1, 4, requires_grad=True)
    h, w = np.divmod(np.arange(12), 4)
    e = 10000.0 ** (-np.arange(2) / 2)
    patches = torch.tensor(np.concatenate([h[:, None] * e, w[:, None] * e], -1)).float()
    angles = torch.cat([own, patches])
    emb = torch.cat([angles, angles], -1)
    x, out = torch.randn(2, 13, 32), torch.randn(2, 13, 32)
    want = layer(x, (emb.cos(), emb.sin()))[0]
    q, k, v = (p(x).reshape(2, 13, 4, 8) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    got = relpos.attention(q, k, v, rope=relpos.RoPE(angles=angles), layout="blhd")
    got = layer.out_proj(got.reshape(2, 13, 32))
    near([got], [want.double()], 1e-6)
    of = [own, *layer.parameters()]
    near(*[[a.double() if n else a for a in torch.autograd.grad((y * out).sum(), of, retain_graph=True)]
           for n, y in enumerate((got, want))], 1e-5)


def test_compiled_and_mapped():
    a, b = draw(HK, LQ), draw(LK)
    f = lambda q, k, v, a, b: ours("half")(q, k, v, a, b)
    x = [y.clone().requires_grad_() for y in (Q, K, V, a, b)]
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    near(*(torch.autograd.grad((h(*x) * OUT).sum(), x) for h in (compiled, f)))
    torch._dynamo.reset()
    many = torch.stack([b, 2 * b, b * b])
    call = lambda b: f(Q, K, V, a, b)
    near([func.vmap(call)(many)], [torch.stack([call(one) for one in many])], 1e-14)
    by = func.grad(lambda b: (call(b) * OUT).sum())
    near([func.vmap(by)(many)], [torch.stack([by(one) for one in many])])
    jacobian = func.jacrev(call)(b)
    near([jacobian], [func.jacrev(lambda b: eager("half")(Q, K, V, a, b))(b)])


def test_hidden_keys_have_no_effect():
    """A key that is masked for every query may be NaN, and its angles get the gradient 0."""
    k, v = K.clone(), V.clone()
    k[:, :, -1] = v[:, :, -1] = torch.nan
    mask = torch.ones(B, LK, dtype=torch.bool)
    mask[:, -1] = False
    grads = []
    for k, v in (k, v), (K, V):
        a, b = draw(LQ) * 0 + 1, torch.ones(LK, N, dtype=torch.float64, requires_grad=True)
        out = relpos.attention(Q, k, v, rope=relpos.RoPE(2 * N, q_angles=a, k_angles=b), key_mask=mask)
        grads.append(torch.autograd.grad((out * OUT).sum(), b)[0])
    assert torch.equal(*grads) and (grads[0][-1] == 0).all() and grads[0][0].abs().max() > 0


def test_steps_of_decoding():
    """Steps of decoding pass the angles of their rows, and have the bits of one pass."""
    a, b = draw(LQ), draw(LQ)
    k, v = K[:, :, :LQ], V[:, :, :LQ]
    whole = relpos.attention(Q, k, v, rope=relpos.RoPE(2 * N, q_angles=a, k_angles=b), causal=True)
    for n in range(1, LQ + 1):
        rope = relpos.RoPE(2 * N, q_angles=a[n - 1:n], k_angles=b[:n])
        step = relpos.attention(Q[:, :, n - 1:n], k[:, :, :n], v[:, :, :n], rope=rope)
        assert torch.equal(step, whole[:, :, n - 1:n])


A = torch.ones(LQ, D // 2)
SAME = lambda **rope: relpos.attention(Q, Q, Q, rope=relpos.RoPE(**rope))
ERRORS = {
    "both": (lambda: SAME(angles=A, k_angles=A), TypeError,
             r"RoPE\(angles\) was given with k_angles, but angles is for both q and k; give only one"),
    "lengths": (lambda: relpos.attention(Q, K, V, rope=relpos.RoPE(angles=A)), ValueError,
                r"RoPE\(angles\): there are 9 queries and 11 keys; give q_angles and k_angles instead"),
    "missing": (lambda: SAME(q_angles=A), TypeError, r"RoPE\(k_angles\) is missing; .* needed with q_angles"),
    "missing q": (lambda: SAME(k_angles=A), TypeError, r"RoPE\(q_angles\) is missing; .* needed with k_angles"),
    "positions": (lambda: SAME(angles=A, positions=np.arange(LQ)), TypeError,
                  r"RoPE\(angles\) was given with positions, which it replaces; give only one of them"),
    "frequencies": (lambda: SAME(angles=A, frequencies=A[0]), TypeError,
                    r"RoPE\(angles\) was given with frequencies, which it replaces; give only one of them"),
    "scaling": (lambda: SAME(angles=A, scaling="linear", factor=2.0), TypeError,
                "angles was given with scaling=linear, which it replaces; omit one of them"),
    "base": (lambda: SAME(k_angles=A, q_angles=A, base=7.0), TypeError,
             "q_angles was given with base, which it replaces; omit one of them"),
    "shape": (lambda: SAME(angles=A[:, 1:]), ValueError, r"RoPE\(angles\): shape is \(9, 4\); it must be "),
    "heads": (lambda: relpos.attention(Q, K, V, rope=relpos.RoPE(
        q_angles=torch.ones(H, LQ, D // 2), k_angles=torch.ones(LK, D // 2))), ValueError,
        r"RoPE\(q_angles\): shape is \(4, 9, 5\); it must be "),
    "nan": (lambda: SAME(angles=A * torch.nan), ValueError,
            r"RoPE\(angles\): element 0 of token 0 is nan; angles must be finite"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call()


def test_text_of_a_term():
    term = relpos.RoPE(2 * N, angles=A[:, :N])
    assert repr(term) == "relpos.RoPE(dim=8, angles=float32[9, 4])" and list(term.learned) == ["angles"]



# ---- the first rotated channel

@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("dtype, bound", [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_first_rotated_channel(layout, dtype, bound):
    """The last channels rotate, as in DeepSeek, or some in the middle: as with slices, with all derivatives."""
    for first, dim in (D - 2 * N, 2 * N), (1, 4), (D - 6, 0):
        n = (dim or D - first) // 2
        f = 10000.0 ** (-torch.arange(n, dtype=torch.float64) / n)

        def whole(q, k, v):
            return relpos.attention(q, k, v, rope=relpos.RoPE(dim, first=first, layout=layout), scale=0.4, softcap=3.0)

        def sliced(q, k, v):
            turned = [torch.cat([x[..., :first], rotate(x[..., first:], torch.arange(x.shape[2])[:, None] * f, layout)],
                                -1) for x in (q, k)]
            return plain(*turned, v)
        x = tuple(a.to(dtype) for a in (Q, K, V))
        t = tuple(torch.cos(3 * a) for a in x)
        near(derivatives(whole, x, t), [a.double() for a in derivatives(
            sliced, tuple(a.double() for a in x), tuple(a.double() for a in t))], bound * (1 if bound < 1e-9 else 20))


def test_channels_of_deepseek():
    modeling = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")
    q, k, v = (torch.randn(1, 2, 7, 12, generator=g) for _ in range(3))
    angles = torch.arange(7)[:, None] * 10000.0 ** (-torch.arange(2) / 2)
    emb = torch.cat([angles, angles], -1)[None]
    turned = modeling.apply_rotary_pos_emb_interleave(q[..., 8:], k[..., 8:], emb.cos(), emb.sin())
    want = torch.nn.functional.scaled_dot_product_attention(
        *(torch.cat([x[..., :8], y], -1) for x, y in zip((q, k), turned)), v, is_causal=True)
    rope = relpos.RoPE(first=8, layout="interleaved")
    near([relpos.attention(q, k, v, rope=rope, causal=True)], [want.double()], 2e-6)


def test_first_is_refused():
    for first, dim, text in ((3, 8, r"RoPE\(first\) is 3; it must be 0 to 2, the width of q and k minus the 8"),
                             (9, 0, r"RoPE\(first\) is 9; it must be 0 to 8"),
                             (-1, 2, r"RoPE\(first\) is -1; it must be"),
                             (1, 0, "RoPE.dim. is 9; it must be even, from 2 to 10")):
        with pytest.raises(ValueError, match=text):
            relpos.attention(Q, K, V, rope=relpos.RoPE(dim, first=first))


# ---- an angle for each channel

def turn(x, a, layout, first=0):
    """(x, y) becomes (x cos a - y sin a, y cos b + x sin b), with the angles a and b of the channels x and y."""
    n = a.shape[-1] // 2
    halves = (slice(0, n), slice(n, 2 * n)) if layout == "half" else (slice(0, None, 2), slice(1, None, 2))
    part = x[..., first:first + 2 * n]
    u, v, a, b = (y[..., half] for y in (part, a) for half in halves)
    turned = u * a.cos() - v * a.sin(), v * b.cos() + u * b.sin()
    turned = torch.cat(turned, -1) if layout == "half" else torch.stack(turned, -1).flatten(-2)
    return torch.cat([x[..., :first], turned, x[..., first + 2 * n:]], -1)


def by_channel(layout, both=False, first=1):
    def ours(q, k, v, a, b=None):
        angles = {"angles": a} if both else {"q_angles": a, "k_angles": b}
        rope = relpos.RoPE(2 * N, first=first, layout=layout, by_channel=True, **angles)
        return relpos.attention(q, k, v, rope=rope, causal=True, q_offset=0, scale=0.4, softcap=3.0)

    def eager(q, k, v, a, b=None):
        return plain(turn(q, spread(a, H), layout, first), turn(k, a if both else b, layout, first), v, True)
    return ours, eager


def wide(*shape):
    return torch.cat([draw(*shape), draw(*shape)], -1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_angles_of_each_channel(layout, shape):
    x = (Q, K, V, wide(*shape, LQ), wide(*shape[::-1] if shape == (B, 1) else shape, LK))
    t = tuple(torch.randn(a.shape, generator=g, dtype=a.dtype) for a in x)
    near(*(derivatives(f, x, t) for f in by_channel(layout)))
    x = (Q, K[:, :, :LQ], V[:, :, :LQ], x[3])
    t = tuple(torch.randn(a.shape, generator=g, dtype=a.dtype) for a in x)
    near(*(derivatives(f, x, t) for f in by_channel(layout, True)))
    ours, eager = by_channel(layout, True)
    gradients = lambda f, x: func.grad(lambda *x: (f(*x) ** 2 * OUT).sum(), (0, 1, 2, 3))(*x)
    near(gradients(ours, [a.float() for a in x]), gradients(eager, x), 2e-5)


def test_equal_angles_of_channels_rotate():
    a = draw(LK)
    rope = [relpos.RoPE(2 * N, q_angles=a[:LQ], k_angles=a),
            relpos.RoPE(2 * N, q_angles=torch.cat([a[:LQ]] * 2, -1), k_angles=torch.cat([a, a], -1), by_channel=True)]
    assert torch.equal(*(relpos.attention(Q, K, V, rope=r) for r in rope))


def test_channels_of_vjepa2():
    """Its cosines are tiled and its pairs are interleaved, so both channels of a pair have angles of their own."""
    modeling = pytest.importorskip("transformers.models.vjepa2.modeling_vjepa2")
    q, k, v = (torch.randn(1, 2, 7, 8, generator=g) for _ in range(3))
    p = torch.arange(7.0)
    want = torch.nn.functional.scaled_dot_product_attention(
        *(modeling.rotate_queries_or_keys(x, p.expand(1, 2, 7)) for x in (q, k)), v)
    angles = (p[:, None] * 10000.0 ** (-torch.arange(4) / 4)).repeat(1, 2)
    rope = relpos.RoPE(angles=angles, by_channel=True, layout="interleaved")
    near([relpos.attention(q, k, v, rope=rope)], [want.double()], 2e-6)


def test_channels_of_hunyuan_vl():
    """Each axis has a quarter of the channels, and pairs are halves, so the channels of a pair are of two axes."""
    modeling = pytest.importorskip("transformers.models.hunyuan_vl.modeling_hunyuan_vl")
    q, k, v = (torch.randn(2, 2, 7, 16, generator=g) for _ in range(3))
    p = torch.randint(0, 9, (4, 2, 7), generator=g)
    f = 10000.0 ** (-torch.arange(8) / 8)
    emb = torch.cat([p[..., None] * f] * 2, -1)
    angles = torch.cat([emb[n, ..., 4 * n:4 * n + 4] for n in range(4)], -1)
    turned = modeling.apply_rotary_pos_emb(q, k, angles.cos(), angles.sin())
    want = torch.nn.functional.scaled_dot_product_attention(*turned, v)
    near([relpos.attention(q, k, v, rope=relpos.RoPE(angles=angles[:, None], by_channel=True))], [want.double()], 2e-6)


def test_channels_need_angles():
    with pytest.raises(TypeError, match=r"RoPE\(angles\) is missing; .* needed with by_channel=1"):
        relpos.attention(Q, K, V, rope=relpos.RoPE(by_channel=True))
    with pytest.raises(ValueError, match=r"RoPE\(angles\): shape is \(9, 5\); it must be .*10"):
        SAME(angles=A, by_channel=True)


# ---- gradients of positions

@pytest.mark.parametrize("axes, heads, entries", [(0, 0, 0), (0, HK, B), (2, 1, 0), (3, HK, B)])
def test_gradient_of_positions(axes, heads, entries):
    """Positions that require a gradient: their gradient, and that of the frequencies, of first and second order."""
    f = torch.rand(*[axes] * (axes > 0), *[heads] * (heads > 0), N, generator=g, dtype=torch.float64)
    p = 3 * torch.rand(*[entries] * (entries > 0), *[axes] * (axes > 0), LQ, generator=g, dtype=torch.float64)
    k, v = K[:, :, :LQ], V[:, :, :LQ]

    def ours(q, p, f):
        return relpos.attention(q, k, v, rope=relpos.RoPE(2 * N, positions=p, frequencies=f), scale=0.4, softcap=3.0)

    def eager(q, p, f):
        angles = torch.einsum("bal,ahn->bhln", p.reshape(entries or 1, axes or 1, LQ),
                              f.reshape(axes or 1, heads or 1, N))
        return plain(rotate(q, spread(angles, H), "half"), rotate(k, angles, "half"), v)
    x = Q, p, f
    t = tuple(torch.randn(a.shape, generator=g, dtype=a.dtype) for a in x)
    near(*(derivatives(h, x, t) for h in (ours, eager)))
    torch.testing.assert_close(ours(*x), ours(Q, p.clone().requires_grad_(), f).detach(), rtol=0, atol=1e-13)


def test_gradient_of_positions_by_the_base():
    p = torch.rand(LQ, generator=g, dtype=torch.float64)
    x = p.clone().requires_grad_()
    options = dict(base=50.0, scaling="linear", factor=2.0)
    rope = lambda p, k: relpos.RoPE(2 * N, q_positions=p, k_positions=k, **options)
    f = 50.0 ** (-torch.arange(N, dtype=torch.float64) / N) / 2
    attend = lambda p: relpos.attention(Q, K, V, rope=rope(p, np.arange(LK)), scale=0.4, softcap=3.0)
    want = plain(rotate(Q, x[:, None] * f, "half"), rotate(K, torch.arange(LK)[:, None] * f, "half"), V)
    want = torch.autograd.grad((want * OUT).sum(), x)
    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
    for call in attend, compiled:
        near(torch.autograd.grad((call(x) * OUT).sum(), x), want)
    torch._dynamo.reset()
    with torch.no_grad():
        near([attend(x)], [attend(p)])
    refuse = r"q_positions requires a gradient, .*; use .detach\(\), or for the gradient pass "
    for make, text in ((lambda: relpos.RoPE(2 * N, q_positions=x), "k_positions too"),
                       (lambda: relpos.RoPE(q_positions=x, k_positions=p), "frequencies, or dim"),
                       (lambda: relpos.RoPE(2 * N, q_positions=x, k_positions=p, scaling="dynamic", factor=2.0,
                                            max_position_embeddings=8), "frequencies$")):
        with pytest.raises(TypeError, match=refuse + text):
            make()
