"""Numbers of a call that are learned: they have the gradients of the formula, eager, transformed and compiled, or are
refused.

SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import pytest
import relpos

torch = pytest.importorskip("torch")
import relpos.torch  # noqa: E402
from torch import func  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

B, H, L, D = 2, 4, 6, 4
g = torch.Generator().manual_seed(0)
q, k, v = torch.randn(3, B, H, L, D, generator=g, dtype=torch.float64)
ONE, HEADS = torch.tensor(0.7, dtype=torch.float64), torch.linspace(-0.5, 1.5, H, dtype=torch.float64)


def draw(*shape):
    return torch.randn(*shape, generator=g, dtype=torch.float64)


RELKEYS = {
    "none": lambda: None, "rope": lambda: None,
    "relkey": lambda t=draw(H, 5, D): relpos.RelKey(t, left=2, right=2),
    "shared": lambda t=draw(5, D): (relpos.RelKey(t, left=2, right=2),),
    "xl": lambda r=draw(H, 2 * L - 1, D), u=draw(H, D), w=draw(H, D): relpos.XL(r, u, w),
    "deberta": lambda a=draw(H, 6, D), b=draw(6, D): relpos.Deberta(a, b, span=3),
    "axialkey": lambda a=draw(3, D), b=draw(5, D): relpos.AxialKey(a, b, grid="2x3"),
}


def call(scale, name, q=q, k=k, v=v):
    return relpos.attention(q, k, v, relkey=RELKEYS[name](), rope=relpos.RoPE() if name == "rope" else None,
                            bias=relpos.ALiBi(), softcap=2.0, causal=name != "xl", scale=scale)


def near(got, want, bound=1e-12):
    torch.testing.assert_close(got, want, atol=bound, rtol=0)


@pytest.mark.parametrize("name", RELKEYS)
def test_scale_of_each_head(name):
    """A tensor gives the results of numbers, and the gradients of their differences."""
    for value in (-1.5, 0.0, 0.7):
        near(call(torch.tensor(value, dtype=torch.float64), name), call(value, name))
    with torch.no_grad():
        want = torch.stack([call(float(x), name)[:, h] for h, x in enumerate(HEADS)], 1)
    for scale in (HEADS, HEADS.float().double()[:, None, None], HEADS[None, :, None, None]):
        if not (name in ("xl", "deberta") and scale.ndim == 4):
            near(call(scale, name), want, 1e-6 if scale.ndim == 3 else 1e-12)
    near(torch.from_numpy(relpos.attention(*(x.numpy() for x in (q, k, v)), scale=HEADS.numpy())),
         relpos.attention(q, k, v, scale=HEADS))
    for scale in (ONE, HEADS, torch.zeros(H, dtype=torch.float64)):
        scale = scale.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda s: call(s, name), scale)
        assert torch.autograd.gradgradcheck(lambda s: call(s, name), scale)


@pytest.mark.parametrize("name", RELKEYS)
def test_transformed_and_compiled(name):
    loss = lambda s: call(s, name).sin().sum()
    want = torch.autograd.grad(loss(s := HEADS.clone().requires_grad_()), s)[0]
    near(func.grad(loss)(HEADS), want)
    near(func.jvp(loss, (HEADS,), (torch.ones_like(HEADS),))[1], want.sum())
    near(torch.stack([func.grad(loss)(x) for x in (HEADS, 2 * HEADS)]),
         func.vmap(func.grad(loss))(torch.stack([HEADS, 2 * HEADS])))
    for x in (HEADS, ONE):
        s = x.clone().requires_grad_()
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        near(torch.autograd.grad(compiled(s), s)[0], func.grad(loss)(x))
    torch._dynamo.reset()


def test_other_shapes_and_types():
    rows = draw(B, H, L, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: call(s, "relkey"), rows)
    half = [x.bfloat16() for x in (q, k, v)]
    found = relpos.attention(*half, scale=HEADS.float().requires_grad_())
    assert found.dtype == torch.bfloat16 and found.requires_grad
    near(found.detach().double(), relpos.attention(q, k, v, scale=HEADS), 0.05)
    near(relpos.attention(*(x.transpose(1, 2) for x in (q, k, v)), scale=HEADS, layout="blhd").transpose(1, 2),
         relpos.attention(q, k, v, scale=HEADS))
    few = k[:, :2]
    near(relpos.attention(q, few, few, scale=HEADS), relpos.attention(q, few.repeat_interleave(2, 1),
                                                                     few.repeat_interleave(2, 1), scale=HEADS))


@pytest.mark.parametrize("scale, name, match", [
    (HEADS[1:], "none", r"scale has shape \(3,\) with q of shape \(2, 4, 6, 4\); expected a number, \(H\)"),
    (draw(B, H), "none", r"scale has shape \(2, 4\)"),
    (draw(B, H, L, L), "none", r"scale has shape \(2, 4, 6, 6\)"),
    (np.ones((1, 2, 3, 4, 5)), "none", r"scale has shape \(1, 2, 3, 4, 5\)"),
    (draw(B, H, 1, 1), "xl", r"scale has shape \(2, 4, 1, 1\) with XL"),
    (draw(H, L, 1), "deberta", r"scale has shape \(4, 6, 1\) with Deberta"),
    (draw(H, L, 1), "axialkey", r"scale has shape \(4, 6, 1\) with AxialKey"),
])
def test_wrong_shapes_of_scale(scale, name, match):
    inputs = (q, k, v) if isinstance(scale, torch.Tensor) else (x.numpy() for x in (q, k, v))
    with pytest.raises(ValueError, match=match):
        call(scale, name, *inputs)


@pytest.mark.parametrize("value", [torch.tensor(0.3), torch.tensor(0.0), HEADS])
def test_strength_of_log_decay(value):
    value = value.double()
    call = lambda x: relpos.attention(q, k, v, bias=relpos.LogDecay(x))
    want = torch.stack([call(float(value[h] if value.ndim else value))[:, h] for h in range(H)], 1)
    near(call(value), want)
    assert torch.autograd.gradcheck(call, x := value.clone().requires_grad_())
    loss = lambda x: call(x).sin().sum()
    near(torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(x), x)[0], func.grad(loss)(value))
    torch._dynamo.reset()
    if value.ndim:
        near(torch.from_numpy(relpos.attention(*(x.numpy() for x in (q, k, v)), bias=relpos.LogDecay(value.numpy()))),
             want)
    assert repr(relpos.LogDecay(value)).startswith("relpos.Kerple(float64[")
    with pytest.raises(TypeError, match="lambda_ is an array .* with 2 axes"):
        relpos.LogDecay(torch.ones(2, 2))


@pytest.mark.parametrize("more", [{}, {"k_positions": torch.arange(L)[None].expand(B, L) * 1.5}])
def test_slopes_of_each_entry(more):
    slopes = draw(B, H).abs()
    call = lambda s: relpos.attention(q, k, v, bias=relpos.ALiBi(s, **more), causal=True)
    want = torch.stack([call(s)[b] for b, s in enumerate(slopes)])
    near(call(slopes), want)
    assert torch.autograd.gradcheck(call, x := slopes.clone().requires_grad_())
    assert torch.autograd.gradgradcheck(call, x)
    loss = lambda x: call(x).sin().sum()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    near(torch.autograd.grad(compiled(x), x)[0], func.grad(loss)(slopes))
    torch._dynamo.reset()
    term = relpos.ALiBi(slopes)
    assert repr(term) == "relpos.ALiBi(None, float64[2, 4])" and list(term.learned) == ["batch_slopes"]
    assert repr(relpos.ALiBi(batch_slopes=slopes)) == repr(term)
    with pytest.raises(TypeError, match=r"ALiBi\(slopes\) was given with batch_slopes, which replaces it"):
        relpos.attention(q, k, v, bias=relpos.ALiBi(slopes[0], slopes))
    with pytest.raises(ValueError, match=r"shape is \(3, 4\); it must be \(2, 4\)"):
        call(draw(3, H))


DELTA = torch.arange(L, dtype=torch.float64)[None] - torch.arange(L, dtype=torch.float64)[:, None]
SLOPES = [2.0 ** (-8 * (h + 1) / H) for h in range(H)]
C, A = torch.tensor(1.3, dtype=torch.float64), torch.tensor(2.1, dtype=torch.float64)


def capped(x, c):
    return x if c is None else c * torch.tanh(x / c)


def plain(before=None, after=None, q=q, k=k, v=v):
    """Attention in torch operations, with softcaps before and after a bias of ALiBi."""
    bias = -torch.tensor(SLOPES, dtype=torch.float64)[:, None, None] * DELTA.abs()
    s = capped(capped(q @ k.mT / D ** 0.5, before) + bias, after)
    return s.masked_fill(DELTA > 0, -torch.inf).softmax(-1) @ v


def with_caps(before=None, after=None, q=q, k=k, v=v):
    return relpos.attention(q, k, v, bias=relpos.ALiBi(), causal=True, softcap=before, softcap_after=after)


SOFTCAPS = {
    "softcap": (lambda x: with_caps(x), lambda x: plain(x)),
    "softcap_after": (lambda x: with_caps(None, x), lambda x: plain(None, x)),
    "moved": (lambda x: with_caps(x, True), lambda x: plain(None, x)),
    "both": (lambda x: with_caps(x, 2 * x), lambda x: plain(x, 2 * x)),
    "number after": (lambda x: with_caps(x, 2.1), lambda x: plain(x, 2.1)),
}


def same_derivatives(f, g, x):
    """Compare the values and all first and second derivatives of two functions of x."""
    near(f(x), g(x))
    loss, want = (lambda x, f=f: f(x).sin().sum() for f in (f, g))
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    first, of_plain = (torch.autograd.grad(h(y), y, create_graph=True)[0] for h, y in ((loss, one), (want, other)))
    near(first, of_plain)
    near(torch.autograd.grad(first.sum(), one)[0], torch.autograd.grad(of_plain.sum(), other)[0], 1e-11)
    near(func.grad(loss)(x), of_plain)
    near(func.jvp(f, (x,), (torch.ones_like(x),))[1], func.jvp(g, (x,), (torch.ones_like(x),))[1])
    near(func.hessian(loss)(x), func.hessian(want)(x), 1e-11)
    near(func.jacfwd(func.grad(loss))(x), func.hessian(want)(x), 1e-11)
    near(func.grad(lambda x: func.jvp(loss, (x,), (torch.ones_like(x),))[1].sum())(x),
         func.grad(lambda x: func.jvp(want, (x,), (torch.ones_like(x),))[1].sum())(x), 1e-11)
    xs = torch.stack([x, 1.5 * x])
    near(func.vmap(func.grad(loss))(xs), torch.stack([func.grad(want)(y) for y in xs]))
    near(func.vmap(f)(xs), torch.stack([g(y) for y in xs]))


@pytest.mark.parametrize("name", SOFTCAPS)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_softcaps_have_the_derivatives_of_the_formula(name, shape):
    f, g = SOFTCAPS[name]
    x = C.reshape(shape)
    same_derivatives(f, g, x)
    y = x.clone().requires_grad_()
    assert torch.autograd.gradcheck(f, y)
    assert torch.autograd.gradcheck(f, y, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, y)
    loss = lambda x: f(x).sin().sum()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    near(torch.autograd.grad(compiled(y), y)[0], func.grad(loss)(x))
    torch._dynamo.reset()


def test_softcaps_beside_other_inputs():
    """All inputs at once, and the derivatives of a sample by vmap."""
    table = draw(8, H)

    def f(q, k, v, table, before, after):
        bias = relpos.T5(table, buckets=8, max_distance=9)
        return relpos.attention(q, k, v, bias=bias, softcap=before, softcap_after=after)
    inputs = [x[:1, :, :3].clone().requires_grad_() for x in (q, k, v)]
    inputs += [x.clone().requires_grad_() for x in (table, C, A)]
    assert torch.autograd.gradcheck(f, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(f, inputs, fast_mode=True)

    def of_sample(c, a, q, k, v):
        return (with_caps(c, a, q[None], k[None], v[None]) ** 2).sum()
    each = func.vmap(func.grad(of_sample, (0, 1)), (None, None, 0, 0, 0))(C, A, q, k, v)
    want = [func.grad(of_sample, (0, 1))(C, A, q[b], k[b], v[b]) for b in range(B)]
    for n in range(2):
        near(each[n], torch.stack([x[n] for x in want]))
    tangents = torch.stack([torch.ones_like(C), 2 * torch.ones_like(C)])
    near(func.vmap(lambda t: func.jvp(with_caps, (C,), (t,))[1])(tangents),
         torch.stack([func.jvp(plain, (C,), (t,))[1] for t in tangents]))
    near(func.vmap(lambda t: func.jvp(lambda c: func.grad(lambda c: with_caps(c).sin().sum())(c), (C,), (t,))[1])(
        tangents), func.hessian(lambda c: plain(c).sin().sum())(C) * tangents, 1e-11)


def test_softcaps_only_where_they_are_wanted():
    x, y = C.clone().requires_grad_(), A.clone().requires_grad_()
    loss = with_caps(x, y).sin().sum()
    near(torch.autograd.grad(loss, y, retain_graph=True)[0], torch.autograd.grad(plain(x, y).sin().sum(), y)[0])
    assert torch.autograd.grad(loss, x)[0].shape == ()
    with torch.no_grad():
        assert not with_caps(x).requires_grad
    found = with_caps(x)
    x.data.mul_(1)  # no version
    found.sum().backward()
    found = with_caps(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.sum().backward()


def test_softcaps_of_other_types():
    """The gradient has the type of the tensor, whatever the type of q."""
    want = func.grad(lambda c: plain(c).sin().sum())(C)
    for of_q in (torch.float32, torch.bfloat16):
        for of_c in (torch.float64, torch.float32, torch.bfloat16):
            x = C.to(of_c).requires_grad_()
            found = torch.autograd.grad(with_caps(x, q=q.to(of_q), k=k.to(of_q), v=v.to(of_q)).sin().sum(), x)[0]
            assert found.dtype == of_c
            near(found.double(), want, 1e-5 if torch.bfloat16 not in (of_q, of_c) else 0.05)


def test_softcaps_that_are_refused():
    heads = torch.full((H,), 2.0, dtype=torch.float64, requires_grad=True)
    for name in ("softcap", "softcap_after"):
        for x in (heads, heads.detach(), heads.detach().numpy()):
            with pytest.raises((TypeError, ValueError), match="expected one number, which all heads share"):
                relpos.attention(q, k, v, **{name: x})
        with pytest.raises(TypeError, match="it requires a gradient, but 0 means no softcap, which has none"):
            relpos.attention(q, k, v, **{name: torch.tensor(0.0, requires_grad=True)})
        with pytest.raises(TypeError, match="which a Plan does not record"):
            relpos.Plan(B, H, L, L, D, **{name: torch.tensor(2.0, requires_grad=True)})
        with pytest.raises(TypeError, match="q is not a torch tensor"):
            relpos.attention(q.numpy(), k, v, **{name: torch.tensor(2.0, requires_grad=True)})
    with pytest.raises(TypeError, match="softcap is 0"):
        func.grad(lambda x: relpos.attention(q, k, v, softcap=x).sum())(torch.tensor(0.0))


@pytest.mark.parametrize("moved", [False, True])
def test_softcaps_without_autograd(moved):
    """attention_backward, attention_jvp and attention_hvp, in NumPy."""
    numbers = [x.numpy() for x in (q, k, v)]
    dout = draw(B, H, L, D)
    options = {"bias": relpos.ALiBi(), "causal": True, "softcap": 1.3, "softcap_after": moved or 2.1}
    names = ("softcap",) if moved else ("softcap", "softcap_after")
    f = (lambda c: plain(None, c[0])) if moved else lambda c: plain(*c)
    caps = torch.stack([C, A])[:len(names)]
    loss = lambda c: (f(c) * dout).sum()
    g = relpos.attention_backward(dout.numpy(), *numbers, wanted=names, **options)
    assert g.q is None and len(g.terms) == 2 and list(g.terms[1]) == list(names)
    near(torch.tensor([float(g.terms[1][name]) for name in names], dtype=torch.float64), func.grad(loss)(caps))
    each = relpos.attention_backward(dout.numpy(), *numbers, wanted=names, per_sample=True, **options).terms[1]
    assert each["softcap"].shape == (B,)
    near(torch.from_numpy(each["softcap"]).sum(), func.grad(loss)(caps)[0])
    assert len(relpos.attention_backward(dout.numpy(), *numbers, **options).terms) == 1  # only if they are named
    t = torch.tensor([0.7, -0.4], dtype=torch.float64)[:len(names)]
    tangents = None, None, None, ({}, dict(zip(names, map(np.asarray, t.tolist()))))
    near(torch.from_numpy(relpos.attention_jvp(*numbers, tangents, **options).out), func.jvp(f, (caps,), (t,))[1])
    shared = relpos.attention_jvp(*numbers, (None, None, None, ({}, {"softcap": np.full(B, 0.7)})), **options)
    near(torch.from_numpy(shared.out), func.jvp(f, (caps,), (t * torch.eye(len(t))[0],))[1])
    h = relpos.attention_hvp(dout.numpy(), *numbers, tangents, wanted=names, **options)
    near(torch.tensor([float(h.terms[1][name]) for name in names], dtype=torch.float64), func.hessian(loss)(caps) @ t)
    with pytest.raises(ValueError, match="tangents.terms has 3 dictionaries, expected one for each of 1 terms"):
        relpos.attention_jvp(*numbers, (None, None, None, ({}, {}, {})), **options)
    with pytest.raises(ValueError, match=r"tangents.terms\[1\] contains 'scale', expected names of softcaps"):
        relpos.attention_jvp(*numbers, (None, None, None, ({}, {"scale": np.ones(())})), **options)
    with pytest.raises(ValueError, match="wanted contains 'softcap'; use .* or a softcap of the call"):
        relpos.attention_backward(dout.numpy(), *numbers, wanted=("softcap",))


NUMBERS = {
    "dropout": lambda x: relpos.attention(q, k, v, dropout=x, seed=1),
    "RoPE: base": lambda x: relpos.attention(q, k, v, rope=relpos.RoPE(base=x)),
    "RoPE: attention_factor": lambda x: relpos.attention(q, k, v, rope=relpos.RoPE(attention_factor=x, scaling="yarn",
                                                                                  factor=2,
                                                                                  max_position_embeddings=4)),
    "Linear: left": lambda x: relpos.attention(q, k, v, bias=relpos.Linear(left=x)),
    "Linear: right": lambda x: relpos.attention(q, k, v, bias=relpos.Linear(right=x)),
    "ALiBi: max_bias": lambda x: relpos.attention(q, k, v, bias=relpos.ALiBi(max_bias=x)),
    "Sandwich: base": lambda x: relpos.attention(q, k, v, bias=relpos.Sandwich(dim=4, base=x)),
    "plan": lambda x: relpos.Plan(B, H, L, L, D, scale=x),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0, 2.0, 8.0, 10000.0])
def test_numbers_without_gradients_are_refused_at_any_value(name, value):
    x = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    ways = [lambda: NUMBERS[name](x)]
    if name != "plan":
        ways.append(lambda: func.grad(lambda x: NUMBERS[name](x).sum())(x.detach()))
    if value == 2.0 and name != "plan":
        ways.append(lambda: torch.compile(NUMBERS[name], fullgraph=True, backend="eager")(x))
    for way in ways:
        with pytest.raises(Exception, match="requires? a gradient"):
            way()
    torch._dynamo.reset()


NESTINGS = {  # derivatives by x around derivatives by y
    "jvp of grad": lambda f, x, y: func.jvp(lambda x: func.grad(f, 1)(x, y).sum(), (x,), (x,)),
    "jacfwd of jacrev": lambda f, x, y: func.jacfwd(lambda x: func.jacrev(lambda y: f(x, y))(y))(x),
    "jvp of jvp": lambda f, x, y: func.jvp(lambda x: func.jvp(lambda y: f(x, y), (y,), (y,))[1], (x,), (x,)),
    "grad of grad": lambda f, x, y: func.grad(lambda x: func.grad(f, 1)(x, y).sum())(x),
    "grad of jvp": lambda f, x, y: func.grad(lambda x: func.jvp(lambda y: f(x, y), (y,), (y,))[1])(x),
    "grad of vmap": lambda f, x, y: func.grad(lambda x: func.vmap(lambda y: f(x, y))(torch.stack([y, y])).sum())(x),
    "forward_ad of grad": lambda f, x, y: forward_ad_of(lambda x: func.grad(f, 1)(x, y), x),
}


def forward_ad_of(f, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "plan"])
@pytest.mark.parametrize("nesting", NESTINGS)
def test_numbers_without_gradients_are_refused_in_every_nesting(name, nesting):
    def f(x, y):
        return (NUMBERS[name](x) * y).sum()
    x, y = torch.tensor([0.5 if name == "dropout" else 2.0, 1.5], dtype=torch.float64)
    with pytest.raises(Exception, match="requires? a gradient|computes no derivatives with respect to it"):
        NESTINGS[nesting](f, x, y)


@pytest.mark.parametrize("name, nesting", [(name, nesting) for name in NUMBERS for nesting in NESTINGS if name != "plan"
                                           and (name, nesting) != ("dropout", "grad of vmap")])
def test_numbers_that_no_derivative_follows_are_accepted_in_every_nesting(name, nesting):
    number = torch.tensor(0.5 if name == "dropout" else 2.0, dtype=torch.float64)
    x, y = torch.tensor([number, 1.5], dtype=torch.float64)

    def found(value):
        return NESTINGS[nesting](lambda x, y: (NUMBERS[name](value(x)) * y * x).sum(), x, y)
    want = found(lambda _: number.item())
    for value in (lambda _: number, lambda x: x.detach()):
        torch.testing.assert_close(found(value), want, atol=1e-12, rtol=0)


def test_lists_of_numbers_are_refused_inside_transforms_too():
    x = torch.tensor(0.5, dtype=torch.float64)
    for way in (lambda f: f(x), lambda f: func.grad(f)(x), lambda f: func.jvp(f, (x,), (x,))):
        with pytest.raises(TypeError, match=r"ALiBi\(slopes\) is of type list: expected a NumPy array or a torch"):
            way(lambda x: relpos.attention(q, k, v, bias=relpos.ALiBi([x] * H)).sum())
