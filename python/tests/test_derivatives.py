"""attention_jvp and attention_hvp: against torch's autograd of plain operations in double, against attention_backward
for every term, and wrong arguments. Gradients and tangents of each batch entry.

SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import pytest
import relpos
from test_definitions import CASES, Case, chosen

B, H, HK, LQ, LK, D, DV = 2, 4, 2, 7, 9, 6, 5


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


q, k, v, dout, dlse = (draw(*shape, seed=n) for n, shape in enumerate(
    [(B, H, LQ, D), (B, HK, LK, D), (B, HK, LK, DV), (B, H, LQ, DV), (B, H, LQ)]))
tq, tk, tv = draw(B, H, LQ, D, seed=10), draw(B, HK, LK, D, seed=11), draw(B, HK, LK, DV, seed=12)
table, ttable, sink, tsink = draw(8, H, seed=13), draw(8, H, seed=14), draw(H, seed=15), draw(H, seed=16)
BUCKETS = relpos.bucket(np.arange(LK)[None] - np.arange(LQ)[:, None], buckets=8, max_distance=6)
MASK = np.random.default_rng(17).random((B, H, LQ, LK)) < 0.8
MASK[0, 1, 3] = False  # a row without keys

SETTINGS = {
    "plain": {},
    "masked": {"mask": MASK},
    "softcap": {"softcap": 1.5, "mask": MASK},
    "softcap after": {"softcap_after": 2.0, "scale": 0.7},
    "both softcaps": {"softcap": 1.5, "softcap_after": 2.0},
}


def eager(torch, q, k, v, table, sink, mask=None, softcap=None, softcap_after=None, scale=D**-0.5):
    """Return out and lse of attention with T5's table and a sink, with plain operations of torch."""
    k, v = (x.repeat_interleave(H // HK, 1) for x in (k, v))
    s = q @ k.transpose(-2, -1) * scale
    s = softcap * torch.tanh(s / softcap) if softcap else s
    s = s + table[torch.as_tensor(BUCKETS)].permute(2, 0, 1)
    s = softcap_after * torch.tanh(s / softcap_after) if softcap_after else s
    if mask is not None:
        s = s.masked_fill(~torch.as_tensor(mask), -torch.inf)
    s = torch.cat([s, sink[None, :, None, None].expand(B, H, LQ, 1)], -1)
    return torch.softmax(s, -1)[..., :-1] @ v, torch.logsumexp(s, -1)


def options(setting):
    return dict(bias=relpos.T5(table, buckets=8, max_distance=6), sink=relpos.Sink(sink), **setting)


def near(got, want):
    want = want.detach().numpy() if hasattr(want, "detach") else np.asarray(want)
    np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=1e-12 * (1 + abs(want).max()))


TANGENTS = relpos.Gradients(tq, tk, tv, ({"table": ttable}, {"sink": tsink}))


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_equal_those_of_torch(setting):
    torch = pytest.importorskip("torch")
    primals = [torch.tensor(x, requires_grad=True) for x in (q, k, v, table, sink)]
    tangents = [torch.tensor(x) for x in (tq, tk, tv, ttable, tsink)]
    cotangents = [torch.tensor(x, requires_grad=True) for x in (dout, dlse)]

    def function(*x):
        return eager(torch, *x, **setting)

    want = torch.func.jvp(function, tuple(x.detach() for x in primals), tuple(tangents))[1]
    got = relpos.attention_jvp(q, k, v, TANGENTS, **options(setting))
    near(got.out, want[0])
    near(got.lse, want[1])
    out, lse = function(*primals)
    gradients = torch.autograd.grad((cotangents[0] * out).sum() + (cotangents[1] * lse).sum(), primals,
                                    create_graph=True)
    phi = sum((g * t).sum() for g, t in zip(gradients, tangents))
    want = torch.autograd.grad(phi, [*primals, *cotangents])
    got = relpos.attention_hvp(dout, q, k, v, TANGENTS, dlse=dlse, **options(setting))
    for x, y in zip((got.q, got.k, got.v, got.terms[0]["table"], got.terms[1]["sink"], got.out, got.lse), want):
        near(x, y)


@pytest.mark.parametrize("name, sample, given", CASES)
def test_every_term_agrees_with_attention_backward(name, sample, given):
    case = Case(name, sample, given)
    options = case.options()
    shape = case.q.shape[:3] + (case.v.shape[-1], )
    dout, u = draw(*shape, seed=1), draw(*shape, seed=2)
    g = relpos.attention_backward(dout, case.q, case.k, case.v, **options)
    t = relpos.Gradients(*(draw(*x.shape, seed=n) for n, x in enumerate(g[:3])),
                         tuple({key: draw(*x.shape, seed=9) for key, x in one.items()} for one in g.terms))
    by_tangents = (dout * relpos.attention_jvp(case.q, case.k, case.v, t, **options).out).sum()
    near(by_tangents, dot(g, t))
    h = relpos.attention_hvp(dout, case.q, case.k, case.v, t, **options)
    other = relpos.Gradients(*(draw(*x.shape, seed=n) for n, x in enumerate(g[:3], 20)),
                             tuple({key: draw(*x.shape, seed=29) for key, x in one.items()} for one in g.terms))
    near(dot(h, other), dot(relpos.attention_hvp(dout, case.q, case.k, case.v, other, **options), t))
    near(relpos.attention_hvp(u, case.q, case.k, case.v, t, **options).out, h.out)


@pytest.mark.parametrize("name, sample, given", CASES)
def test_every_entry_has_the_derivatives_of_its_own_call(name, sample, given):
    case = Case(name, sample, given)
    q, k, v, arrays, options = case.q, case.k, case.v, dict(case.arrays), case.options()
    batched = {a["name"] for a in case.facts["arrays"]
               if a["name"] in arrays and "[B" in chosen(a["shape"], case.names)}
    dout = draw(*q.shape[:3], v.shape[-1], seed=1)
    g = relpos.attention_backward(dout, q, k, v, per_sample=True, **options)
    shared = relpos.attention_backward(dout, q, k, v, **options)
    t = relpos.Gradients(*(draw(*x.shape, seed=n) for n, x in enumerate(g[:3])),
                         tuple({key: draw(*x.shape, seed=9) for key, x in one.items()} for one in g.terms))
    h = relpos.attention_hvp(dout, q, k, v, t, per_sample=True, **options)
    for b in range(B):
        case.arrays = {key: x[b:b + 1] if key in batched else x for key, x in arrays.items()}
        own, entry = case.options(), slice(b, b + 1)
        given = dout[entry], q[entry], k[entry], v[entry]
        alone = relpos.attention_backward(*given, **own)
        tangents = relpos.Gradients(*(x[entry] for x in t[:3]), tuple(
            {key: x[entry] if key in batched else x[b] for key, x in one.items()} for one in t.terms))
        for each, one in ((g, alone), (h, relpos.attention_hvp(*given, tangents, **own))):
            for x, y in zip(each[:3], one[:3]):
                np.testing.assert_array_equal(x[entry], y)
            for x, y in zip(each.terms, one.terms):
                for key in x:
                    np.testing.assert_array_equal(x[key][b], y[key][0] if key in batched else y[key])
        near(relpos.attention_jvp(*given[1:], tangents, **own).out, h.out[entry])  # attention_jvp has kernels
    for x, y in zip(g.terms, shared.terms):
        for key in x:
            near(x[key] if key in batched else x[key].sum(0), y[key])


def test_arrays_that_the_batch_shares_on_an_axis_of_1():
    bias = draw(1, H, LQ, LK, seed=5)
    for own in (bias, bias[0], bias[0, :1], bias[0, 0], bias[:, :, :, :1]):
        g = relpos.attention_backward(dout, q, k, v, bias=relpos.Dense(own), per_sample=True).terms[0]["bias"]
        assert g.shape == (B, *own.shape[own.ndim == 4:])
        for b in range(B):
            alone = relpos.attention_backward(*(x[b:b + 1] for x in (dout, q, k, v)), bias=relpos.Dense(own))
            np.testing.assert_array_equal(g[b].reshape(own.shape), alone.terms[0]["bias"])
    plan = relpos.Plan(B, H, LQ, LK, D, kv_heads=HK, dim_v=DV, dtype="float64", bias=relpos.T5(table, buckets=8))
    g = plan.backward(dout, q, k, v, per_sample=True).terms[0]["table"]
    want = relpos.attention_backward(dout, q, k, v, bias=relpos.T5(table, buckets=8), per_sample=True).terms[0]["table"]
    assert g.shape == (B, 8, H) and (g == want).all()
    one = relpos.attention_backward(dout[0], q[0], k[0], v[0], sink=relpos.Sink(sink), per_sample=True)
    assert one.terms[0]["sink"].shape == (1, H) and one.q.shape == q[0].shape


def dot(g, t):
    return sum((x * y).sum() for x, y in zip(g[:3], t[:3])) + sum(
        (one[key] * two[key]).sum() for one, two in zip(g.terms, t.terms) for key in two)


def test_shapes_types_and_libraries():
    plain = relpos.attention_jvp(q, k, v, (tq, tk, tv))
    assert type(plain) is relpos.Tangents and plain.out.shape == dout.shape and plain.lse.shape == dlse.shape
    one = relpos.attention_jvp(q[0, 0], k[0, 0], v[0, 0], (tq[0, 0], None, tv[0, 0]))
    assert one.out.shape == (LQ, DV) and one.lse.shape == (LQ, )
    zero = relpos.attention_jvp(q, k, v, (None, None, None, None))
    assert not zero.out.any() and not zero.lse.any()
    half = relpos.attention_jvp(*(x.astype(np.float32) for x in (q, k, v)), (tq, None, None))
    assert half.out.dtype == half.lse.dtype == np.float32
    h = relpos.attention_hvp(dout, q, k, v, (tq, tk, tv), wanted=("k", ))
    assert type(h) is relpos.SecondDerivatives and h.q is None and h.v is None and h.k.shape == k.shape
    near(plain.out, h.out)  # attention_jvp has kernels
    near(plain.lse, h.lse)
    torch = pytest.importorskip("torch")
    of_torch = relpos.attention_jvp(*map(torch.tensor, (q, k, v)), tuple(map(torch.tensor, (tq, tk, tv))))
    assert isinstance(of_torch.out, torch.Tensor) and (of_torch.out.numpy() == plain.out).all()


def test_dropout_needs_its_seed():
    with pytest.raises(TypeError, match="relpos.attention_jvp: dropout is given without seed"):
        relpos.attention_jvp(q, k, v, (tq, tk, tv), dropout=0.3)
    with pytest.raises(TypeError, match="relpos.attention_hvp: dropout is given without seed"):
        relpos.attention_hvp(dout, q, k, v, (tq, tk, tv), dropout=0.3)
    h, step = 1e-6, relpos.attention_jvp(q, k, v, (tq, None, None), dropout=0.3, seed=5)
    a, b = (relpos.attention(q + x * tq, k, v, dropout=0.3, seed=5) for x in (h, -h))
    np.testing.assert_allclose(step.out, (a - b) / (2 * h), atol=1e-8)


WRONG = [
    (lambda: relpos.attention_jvp(q, k, v, tq), TypeError, "tangents is of type ndarray"),
    (lambda: relpos.attention_jvp(q, k, v, (tq, tk)), TypeError, r"expected relpos.Gradients, or a tuple \(q, k, v\)"),
    (lambda: relpos.attention_jvp(q, k, v, (3, tk, tv)), TypeError, "tangents.q is of type int"),
    (lambda: relpos.attention_jvp(q, k, v, (tq[:, :, 1:], tk, tv)), ValueError, "the tangent of q: shape is"),
    (lambda: relpos.attention_jvp(q, k, v, (tq, tk, tv, {})), TypeError, "tangents.terms is of type dict"),
    (lambda: relpos.attention_jvp(q, k, v, (tq, tk, tv, ({}, ))), ValueError,
     "tangents.terms has 1 dictionaries, expected one for each of 0 terms"),
    (lambda: relpos.attention_jvp(q, k, v, (tq, tk, tv, (3, )), bias=relpos.ALiBi(sink)), TypeError,
     "tangents.terms is of type int"),
    (lambda: relpos.attention_jvp(q, k, v, (tq, tk, tv, ({"slope": sink}, )), bias=relpos.ALiBi(sink)), ValueError,
     r"tangents.terms\[0\] contains 'slope', expected names of learned arrays of ALiBi"),
    (lambda: relpos.attention_jvp(q, k, v, (tq, tk, tv, ({"slopes": sink[1:]}, )), bias=relpos.ALiBi(sink)), ValueError,
     r"the tangent of ALiBi\(slopes\): shape is"),
    (lambda: relpos.attention_jvp(q, k, v, (tq, tk, tv, ({"slopes": sink}, )), bias=relpos.ALiBi()), TypeError,
     r"the tangent of ALiBi\(slopes\) was given without its array"),
    (lambda: relpos.attention_jvp(q, k, v, (tq, tk, tv), return_lse=True), TypeError, 'unknown argument "return_lse"'),
    (lambda: relpos.attention_jvp(q, k, v, (tq, tk, tv), 3), TypeError, "attention_jvp"),
    (lambda: relpos.attention_hvp(None, q, k, v, (tq, tk, tv)), TypeError, "dout is of type NoneType"),
    (lambda: relpos.attention_hvp(dout[1:], q, k, v, (tq, tk, tv)), ValueError, "dout: shape is"),
    (lambda: relpos.attention_hvp(dout, q, k, v, tq), TypeError, "tangents is of type ndarray"),
    (lambda: relpos.attention_hvp(dout, q, k, v, (tq, tk, tv), wanted=("x", )), ValueError, "wanted contains 'x'"),
    (lambda: relpos.attention_hvp(dout, q, k, v, (tq, tk, tv), per_sample=q), TypeError,
     "per_sample is of type ndarray"),
    (lambda: relpos.attention_backward(dout, q, k, v, per_sample="yes"), TypeError, "per_sample is of type str"),
    (lambda: relpos.attention_jvp(q, k, v, (tq, tk, tv, ({"slopes": draw(3, H)}, )), bias=relpos.ALiBi(sink)),
     ValueError, r"the tangent of ALiBi\(slopes\): shape is \(3, 4\); it must be \(2, 4\)"),
    (lambda: relpos.attention_hvp(dout, q, k, v, (tq, tk, tv), dweights=dlse), TypeError,
     'unknown argument "dweights"'),
]


@pytest.mark.parametrize("call, error, match", WRONG)
def test_wrong_arguments_are_named(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_progress_can_stop_a_call():
    def stop(fraction):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        relpos.attention_jvp(*(draw(1, 8, 400, 32), ) * 3, (draw(1, 8, 400, 32), None, None), progress=stop)


def test_layout():
    """layout="blhd" is that of q, k, v, out, their gradients and their tangents."""
    rng = np.random.default_rng(3)
    q, k, v, dout, t = (rng.normal(size=(2, n, 5, 4)) for n in (4, 2, 2, 4, 4))
    lse, terms = rng.normal(size=(2, 4, 5)), {"bias": relpos.ALiBi(rng.normal(size=4)), "causal": True}
    swap = lambda x: x.swapaxes(1, 2)
    tangents = t, None, v, ({"slopes": np.ones(4)},)
    swapped = swap(t), None, swap(v), tangents[3]
    calls = {
        "backward": (relpos.attention_backward(dout, q, k, v, dlse=lse, **terms),
                     relpos.attention_backward(*map(swap, (dout, q, k, v)), dlse=lse, layout="blhd", **terms)),
        "jvp": (relpos.attention_jvp(q, k, v, tangents, **terms),
                relpos.attention_jvp(*map(swap, (q, k, v)), swapped, layout="blhd", **terms)),
        "hvp": (relpos.attention_hvp(dout, q, k, v, tangents, dlse=lse, **terms),
                relpos.attention_hvp(*map(swap, (dout, q, k, v)), swapped, dlse=lse, layout="blhd", **terms)),
        "explain": (relpos.explain(q, k, v, query=3, head=2, batch=1, **terms),
                    relpos.explain(*map(swap, (q, k, v)), query=3, head=2, batch=1, layout="blhd", **terms)),
    }
    for name, (want, found) in calls.items():
        for field, x in want._asdict().items():
            y = getattr(found, field)
            if field == "terms":
                x, y = (z[0]["slopes"] for z in (x, y))
            if isinstance(x, np.ndarray):
                is_swapped = name != "explain" and field in ("q", "k", "v", "out")
                np.testing.assert_array_equal(swap(y) if is_swapped else y, x, f"{name}: {field}")
    one = relpos.attention_backward(*map(swap, (dout, q, k, v)), wanted=("k",), layout="blhd", **terms)
    assert one.q is None and one.k.shape == (2, 5, 2, 4)
    known = relpos.attention(*map(swap, (q, k, v)), return_lse=True, layout="blhd", **terms)
    again = relpos.attention_backward(*map(swap, (dout, q, k, v)), out=known.out, lse=known.lse, layout="blhd", **terms)
    np.testing.assert_allclose(swap(again.q), relpos.attention_backward(dout, q, k, v, **terms).q, atol=1e-12)


def test_matrix_of_several_batch_entries():
    slopes = np.arange(6.0).reshape(3, 2)
    found = relpos.ALiBi(slopes).matrix(4, 5)
    assert found.shape == (3, 2, 4, 5)
    np.testing.assert_array_equal(found, [relpos.ALiBi(x).matrix(4, 5) for x in slopes])
    assert relpos.ALiBi(slopes[:1]).matrix(4).shape == (2, 4, 4)
    np.testing.assert_array_equal(relpos.Dense(np.ones((3, 1, 2, 2))).matrix(2), np.ones((3, 1, 2, 2)))
