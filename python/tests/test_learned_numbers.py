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


NUMBERS = {
    "softcap": lambda x: relpos.attention(q, k, v, softcap=x),
    "softcap_after": lambda x: relpos.attention(q, k, v, softcap_after=x),
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
