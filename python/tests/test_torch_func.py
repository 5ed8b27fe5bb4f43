"""Derivatives of relpos.attention by torch.func, forward_ad and autograd, one in another, compiled and traced: compared
with the formula in torch's operations, and for every term with finite differences.

SPDX-License-Identifier: Apache-2.0"""
import sys

import pytest
import relpos
from levels import levels_end
from test_definitions import CASES, Case, chosen

torch = pytest.importorskip("torch")
import relpos.torch  # noqa: E402
from relpos import _derivatives, _encoding, _vmap  # noqa: E402
from torch import func  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

B, H, HK, LQ, LK, D, DV = 2, 4, 2, 5, 6, 4, 3
g = torch.Generator().manual_seed(0)
SHAPES = [(B, H, LQ, D), (B, HK, LK, D), (B, HK, LK, DV), (8, H), (H,)]
X, T, U = ([torch.randn(s, generator=g, dtype=torch.float64) for s in SHAPES] for _ in range(3))
BUCKETS = torch.from_numpy(relpos.bucket((torch.arange(LK) - torch.arange(LQ)[:, None]).numpy(), buckets=8,
                                         max_distance=6))
MASK = torch.rand(B, 1, LQ, LK, generator=g) < 0.8
MASK[0, :, 1] = False  # a row without keys
ALL = tuple(range(5))


@pytest.fixture(autouse=True)
def compiled_functions():
    """Forget compiled functions."""
    yield
    torch._dynamo.reset()


def eager(q, k, v, table, sink):
    """Attention with grouped heads, both softcaps, T5's table, a mask and a sink, in operations of torch."""
    k, v = (x.repeat_interleave(H // HK, -3) for x in (k, v))
    s = 1.5 * torch.tanh(q @ k.transpose(-2, -1) * 0.7 / 1.5) + table[BUCKETS].permute(2, 0, 1)
    s = 2 * torch.tanh(s / 2)
    s = s.masked_fill(~(MASK if q.dim() == 4 else MASK[1]), -torch.inf)
    s = torch.cat([s, sink[:, None, None].expand(*s.shape[:-1], 1)], -1)
    return torch.softmax(s, -1)[..., :-1] @ v, torch.logsumexp(s, -1)


def ours(q, k, v, table, sink):
    found = relpos.attention(q, k, v, bias=relpos.T5(table, buckets=8, max_distance=6), sink=relpos.Sink(sink),
                             mask=MASK if q.dim() == 4 else MASK[1], scale=0.7, softcap=1.5, softcap_after=2.0,
                             return_lse=True)
    return found.out, found.lse


def loss_of(f):
    """A loss that depends on out and lse, not linearly."""
    def loss(*x):
        out, lse = f(*x)
        return (out ** 2 * torch.linspace(1, 2, DV, dtype=out.dtype)).sum() + (lse ** 2).sum()
    return loss


def near(got, want, bound=1e-12):
    got, want = tree_leaves(got), tree_leaves(want)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.shape == b.shape and a.dtype == b.dtype
        torch.testing.assert_close(a, b, atol=bound * (1 + b.abs().max().item()), rtol=0)


def along(values, directions):
    return sum((a * b).sum() for a, b in zip(values, directions))


def by_grad(f):
    return lambda *x: along(func.grad(f, ALL)(*x), U)


def by_vjp(f):
    return lambda *x: along(func.vjp(f, *x)[1](torch.ones((), dtype=x[0].dtype)), T)


def by_jvp(f):
    return lambda *x: func.jvp(f, x, tuple(T))[1]


def by_dual(f):
    def run(*x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(*map(forward_ad.make_dual, x, T))).tangent
    return run


def by_autograd(f):
    def run(*x):
        x = [a if a.requires_grad else a.clone().requires_grad_() for a in x]
        return along(torch.autograd.grad(f(*x), x, create_graph=True), U)
    return run


def by_vmap(f):
    return lambda *x: func.vmap(lambda s: f(*[a * s for a in x]))(torch.tensor([1.0, 0.5], dtype=x[0].dtype)).sum()


def by_linearize(f):
    return lambda *x: func.linearize(f, *x)[1](*T)


LEVELS = {"grad": by_grad, "vjp": by_vjp, "jvp": by_jvp, "forward_ad": by_dual, "autograd": by_autograd,
          "vmap": by_vmap, "linearize": by_linearize}
# The same derivatives of the formula, by levels that nest.
FORMULA = LEVELS | {"forward_ad": by_jvp, "linearize": by_jvp, "autograd": by_grad}
NESTED, NO_RULE = "Nested forward mode AD is not supported", "Batching rule not implemented for aten::_make_dual"
REQUIRES = r"You are attempting to call Tensor.requires_grad_\(\)"
OF_TORCH = {  # what torch itself refuses, for every function
    ("jvp", "forward_ad"): NESTED, ("jvp", "linearize"): NESTED, ("forward_ad", "jvp"): NESTED,
    ("forward_ad", "forward_ad"): NESTED, ("forward_ad", "linearize"): NESTED, ("linearize", "jvp"): NESTED,
    ("linearize", "forward_ad"): NESTED, ("linearize", "linearize"): NESTED, ("jvp", "autograd"): REQUIRES,
    ("vmap", "autograd"): REQUIRES, ("vmap", "forward_ad"): NO_RULE, ("vmap", "linearize"): NO_RULE,
}
# torch.func.linearize reads memory that it never wrote if a gradient is taken of it, for every function.
PAIRS = [(outer, inner) for outer in [None, *LEVELS] for inner in LEVELS
         if (outer, inner) not in [("grad", "linearize"), ("vjp", "linearize"), ("autograd", "linearize")]]


def compiled(f):
    return torch.compile(f, fullgraph=True, backend="aot_eager")


def level(name, f, levels=LEVELS):
    return f if name is None else levels[name](f)


@pytest.mark.parametrize("outer, inner", PAIRS)
def test_two_levels(outer, inner):
    def nest(f):
        return level(outer, level(inner, loss_of(f)))

    if (outer, inner) in OF_TORCH:
        for f in (eager, ours):
            with pytest.raises(RuntimeError, match=OF_TORCH[outer, inner]):
                nest(f)(*X)
            levels_end()
    elif (outer, inner) == ("jvp", "jvp"):
        with pytest.raises(RuntimeError, match="no forward-mode derivatives of forward-mode derivatives"):
            nest(ours)(*X)
    else:
        near(nest(ours)(*X), level(outer, level(inner, loss_of(eager), FORMULA), FORMULA)(*X))


@pytest.mark.parametrize("shape", [(1, 2, 5, 4), (2, 2, 5, 4), (2, 5, 4), (5, 4)])
def test_jacobians_for_any_batch(shape):
    """vmap maps the gradient of the output alone; q, k, v, out and lse are shared by its indices."""
    q, k, v = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def formula(q, k, v):
        s = (q @ k.mT / shape[-1] ** 0.5).masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), -torch.inf)
        return torch.softmax(s, -1) @ v

    def attention(q, k, v):
        return relpos.attention(q, k, v, causal=True)

    ways = [lambda f: func.jacrev(f, (0, 1, 2))(q, k, v), lambda f: func.jacfwd(func.jacrev(f))(q, k, v),
            lambda f: func.hessian(lambda *x: f(*x).square().sum(), (0, 2))(q, k, v),
            lambda f: func.vmap(lambda t: func.jvp(func.grad(lambda q: f(q, k, v).square().sum()), (q,), (t,))[1])(
                torch.stack([q, k])),
            lambda f: torch.autograd.functional.jacobian(f, (q, k, v), vectorize=True),
            lambda f: torch.autograd.functional.hessian(lambda q: f(q, k, v).square().sum(), q, vectorize=True)]
    for way in ways:
        near(way(attention), way(formula))


COMPILED = [("grad", "grad"), ("grad", "jvp"), ("jvp", "grad"), ("vmap", "grad"), ("vmap", "jvp"), ("jvp", "vmap")]


@pytest.mark.parametrize("outer, inner", COMPILED)
def test_two_levels_in_one_graph(outer, inner):
    found = compiled(level(outer, level(inner, loss_of(ours))))(*X)
    near(found, level(outer, level(inner, loss_of(eager)))(*X))


@pytest.mark.parametrize("guard", range(3))
def test_every_guard_matters(guard, monkeypatch):
    """Without one of the three guards of _derivatives._BELOW, a nesting of two levels is wrong or raises."""
    monkeypatch.setattr(_derivatives, "_BELOW", [x for n, x in enumerate(_derivatives._BELOW) if n != guard])
    limit, wrong = sys.getrecursionlimit(), []
    sys.setrecursionlimit(400)
    try:
        for outer, inner in (("grad", "jvp"), ("jvp", "grad"), ("grad", "grad")):
            try:
                near(level(outer, level(inner, loss_of(ours)))(*X), level(outer, level(inner, loss_of(eager)))(*X))
            except (AssertionError, RuntimeError, AttributeError):
                wrong.append((outer, inner))
            levels_end()
    finally:
        sys.setrecursionlimit(limit)
    assert wrong == [[("grad", "jvp"), ("grad", "grad")], [("jvp", "grad")],
                     [("grad", "jvp"), ("jvp", "grad"), ("grad", "grad")]][guard]


# ---- every term

# without the long tables, which take seconds each
@pytest.mark.parametrize("name, sample, given", [case for case in CASES if "left=1500" not in case[1]])
def test_every_term_by_finite_differences(name, sample, given):
    case = Case(name, sample, given)
    learned = [a["name"] for a in case.facts["arrays"] if a["use"] == "learned" and a["name"] in case.arrays]
    arrays = dict(case.arrays)

    def f(q, k, v, *values):
        case.arrays = arrays | dict(zip(learned, values))
        found = relpos.attention(q, k, v, return_lse=True, **case.options())
        return found.out, found.lse

    inputs = [torch.tensor(x).requires_grad_() for x in (case.q, case.k, case.v, *(arrays[x] for x in learned))]
    assert torch.autograd.gradcheck(f, inputs, fast_mode=True, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, inputs, fast_mode=True, check_fwd_over_rev=True)


def test_a_call_with_dropout():
    def f(q, k, v):
        return relpos.attention(q, k, v, dropout=0.4, seed=5)

    inputs = [x.clone().requires_grad_() for x in X[:3]]
    assert torch.autograd.gradcheck(f, inputs, fast_mode=True, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, inputs, fast_mode=True, check_fwd_over_rev=True)
    at = X[0], X[1], X[2]
    near = lambda got, want: torch.testing.assert_close(got, want, atol=1e-12, rtol=0)
    by_q = lambda q: f(q, *at[1:])
    want = torch.autograd.functional.jacobian(by_q, at[0])
    near(func.jacrev(by_q)(at[0]), want)
    near(func.jacfwd(by_q)(at[0]), want)
    loss = lambda q: by_q(q).sin().sum()
    near(func.hessian(loss)(at[0]), torch.autograd.functional.hessian(loss, at[0]))
    several = torch.stack([at[0], 2 * at[0], at[0]])
    near(func.vmap(func.grad(loss))(several), torch.stack([func.grad(loss)(x) for x in several]))
    v, = torch.autograd.grad(by_q(x := at[0].clone().requires_grad_()), x, several.new_ones(3, *by_q(at[0]).shape),
                             is_grads_batched=True)
    near(v, func.vjp(by_q, at[0])[1](torch.ones_like(by_q(at[0])))[0].expand(3, *x.shape))


def test_seeds_that_vmap_draws():
    """The randomness of vmap says whether the indices drop the same weights, as for torch's dropout."""
    same = X[0].expand(3, *X[0].shape)
    call = lambda q: relpos.attention(q, X[1], X[2], dropout=0.4)
    for randomness, equal in (("same", True), ("different", False)):
        one, two, _ = func.vmap(call, randomness=randomness)(same)
        assert torch.equal(one, two) == equal
    with pytest.raises(RuntimeError, match="randomness"):
        func.vmap(call)(same)
    found = func.vmap(func.grad(lambda q: call(q).sin().sum()), randomness="different")(same)
    assert not torch.equal(found[0], found[1])


# ---- parts of the inputs, tangents that are absent or zero

@pytest.mark.parametrize("which", [(0,), (2,), (3,), (4,), (1, 4)])
def test_some_inputs(which):
    """Derivatives with respect to some inputs only; the others have no tangents and need no gradients."""
    def part(f):
        return lambda *some: loss_of(f)(*[some[which.index(n)] if n in which else X[n] for n in ALL])

    x, t = [X[n] for n in which], [T[n] for n in which]
    every = tuple(range(len(which)))
    for run in (lambda f: func.jvp(part(f), tuple(x), tuple(t)),
                lambda f: func.jvp(func.grad(part(f), every), tuple(x), tuple(t)),
                lambda f: func.jvp(part(f), tuple(x), tuple(torch.zeros_like(a) for a in t))):
        near(run(ours), run(eager))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_types(dtype):
    """Results and derivatives have the types of the formula, and its values up to rounding."""
    x, t = [a.to(dtype) for a in X], [a.to(dtype) for a in T]
    wide = [a.to(dtype).double() for a in X], [a.to(dtype).double() for a in T]
    bound = 30 * torch.finfo(dtype).eps
    (out, lse), (out_t, lse_t) = func.jvp(ours, tuple(x), tuple(t))
    assert out_t.dtype == out.dtype == dtype and lse_t.dtype == lse.dtype == torch.float32
    want = func.jvp(eager, *map(tuple, wide))[1]
    near((out_t.double(), lse_t.double()), want, bound)
    scalar = lambda f: lambda *a: f(*a)[0].sum()
    found = func.jvp(func.grad(scalar(ours), ALL), tuple(x), tuple(t))[1]
    assert all(a.dtype == dtype for a in found)
    near([a.double() for a in found], func.jvp(func.grad(scalar(eager), ALL), *map(tuple, wide))[1], bound)


def by_grad_of(f, x):
    return (func.grad(f)(x) * U[0]).sum()


def test_arrays_of_numpy():
    """k, v and arrays of terms may be NumPy arrays, as without transforms."""
    x = [a.numpy() for a in X]
    for f in (lambda q: ours(q, x[1], x[2], X[3], x[4])[0], lambda q: ours(q, X[1], x[2], x[3], X[4])[0]):
        near(func.jvp(f, (X[0],), (T[0],)), func.jvp(lambda q: eager(q, *X[1:])[0], (X[0],), (T[0],)))
        near(by_autograd(lambda q: f(q).sin().sum())(X[0]), by_grad_of(lambda q: eager(q, *X[1:])[0].sin().sum(), X[0]))
    with pytest.raises(TypeError, match="q is of type ndarray, but torch traces or transforms another argument"):
        func.jvp(lambda k: relpos.attention(x[0], k, X[2]), (X[1],), (T[1],))
    with pytest.raises(TypeError, match="out is not supported while torch traces or transforms the call"):
        func.grad(lambda q: relpos.attention(q, q, q, out=torch.empty_like(X[0])).sum())(X[0])


# ---- derivatives of many elements at once

@pytest.mark.parametrize("n", [0, 3, 4])
@pytest.mark.parametrize("jacobian", [func.jacfwd, func.jacrev])
def test_jacobians(jacobian, n):
    near(jacobian(ours, n)(*X), func.jacrev(eager, n)(*X))


@pytest.mark.parametrize("hessian", [func.hessian, lambda f: func.jacrev(func.jacrev(f)),
                                     lambda f: func.jacrev(func.jacfwd(f)),
                                     lambda f: lambda x: torch.autograd.functional.hessian(f, x),
                                     lambda f: lambda x: torch.autograd.functional.hessian(f, x, vectorize=True)],
                         ids=["hessian", "jacrev twice", "jacrev of jacfwd", "autograd", "vectorized"])
def test_hessians(hessian):
    of_table = lambda f: lambda table: loss_of(f)(*X[:3], table, X[4])
    near(hessian(of_table(ours))(X[3]), func.hessian(of_table(eager))(X[3]))


def test_jacfwd_of_jacfwd_is_refused():
    with pytest.raises(RuntimeError, match="forward-mode derivatives of forward-mode.*use torch.func.hessian"):
        func.jacfwd(func.jacfwd(lambda table: loss_of(ours)(*X[:3], table, X[4])))(X[3])


@pytest.mark.parametrize("by", [
    lambda f, x: torch.autograd.grad(f(x), x, torch.stack([T[0][..., :DV], U[0][..., :DV]]), is_grads_batched=True),
    lambda f, x: torch.autograd.functional.jacobian(f, x, vectorize=True),
    lambda f, x: torch.autograd.functional.jacobian(f, x, vectorize=True, strategy="forward-mode"),
    lambda f, x: torch.autograd.functional.vhp(lambda x: f(x).sin().sum(), x, T[0])[1],
    lambda f, x: torch.autograd.functional.hvp(lambda x: f(x).sin().sum(), x, T[0])[1],
    lambda f, x: torch.autograd.functional.jvp(f, x, T[0])[1],
], ids=["is_grads_batched", "jacobian", "forward jacobian", "vhp", "hvp", "jvp"])
def test_functions_of_autograd(by):
    near(*(by(lambda q: f(q, *X[1:])[0], X[0].clone().requires_grad_()) for f in (ours, eager)))


def test_gradients_of_each_sample():
    """Arrays that the samples share get the gradient of each sample, with the bits of one call a sample."""
    for axes in ((0, 0, 0, None, None), (0, None, None, None, 0)):
        rows = [(X[n] if axes[n] == 0 else X[n][1]) if n < 3 else X[n] if axes[n] is None else
                torch.stack([X[n], 2 * X[n]]) for n in ALL]
        for f in (loss_of(ours), lambda *x: func.jvp(loss_of(ours), x, tuple(a.clone() for a in x))[1]):
            each = [func.grad(f, ALL)(*(x if at is None else x[n] for x, at in zip(rows, axes))) for n in range(B)]
            for found in (func.vmap(func.grad(f, ALL), axes)(*rows),
                          func.vmap(func.grad(f, ALL), axes, chunk_size=1)(*rows)):
                assert all(torch.equal(a, torch.stack(b)) for a, b in zip(found, zip(*each)))


def test_gradients_of_each_sample_are_one_call(monkeypatch):
    calls = []
    for name in ("compute", "gradients", "derive"):
        run = getattr(relpos._core, name)
        monkeypatch.setattr(relpos._core, name, lambda *x, name=name, run=run: calls.append(name) or run(*x))
    axes = (0, 0, 0, None, None)
    func.vmap(func.grad(loss_of(ours), ALL), axes)(*X)
    assert calls == ["compute", "gradients"]
    calls.clear()
    tangents = [T[0], T[1], T[2], torch.stack([T[3], -T[3]]), torch.stack([T[4], 2 * T[4]])]
    both = lambda *x: func.jvp(func.grad(loss_of(ours), ALL), x[:5], x[5:])[1]
    found = func.vmap(both, (*axes, 0, 0, 0, 0, 0))(*X, *tangents)
    assert calls.count("compute") == 1 and len(calls) < 8
    near(found, func.vmap(lambda *x: func.jvp(func.grad(loss_of(eager), ALL), x[:5], x[5:])[1],
                          (*axes, 0, 0, 0, 0, 0))(*X, *tangents))


@pytest.mark.parametrize("outer", [
    lambda f: func.jacrev(f), lambda f: func.jacfwd(f), lambda f: lambda x: func.jvp(f, (x,), (T[3],))[1],
    lambda f: func.grad(lambda x: f(x).sin().sum()), lambda f: compiled(f)],
    ids=["jacrev", "jacfwd", "jvp", "grad", "compile"])
def test_derivatives_of_the_gradients_of_each_sample(outer):
    def each(f):
        grad = func.grad(lambda table, q, k, v: loss_of(f)(q, k, v, table, X[4]))
        return lambda table: func.vmap(grad, (None, 0, 0, 0))(table, *X[:3])

    near(outer(each(ours))(X[3]), outer(each(eager))(X[3]))


@pytest.mark.parametrize("name, sample, given", CASES)
def test_vmap_of_every_term(name, sample, given):
    """Samples (H, L, D) that share the arrays of a term equal one call a sample, with the gradients of each."""
    case = Case(name, sample, given)
    batched = {a["name"] for a in case.facts["arrays"] if "[B" in chosen(a["shape"], case.names)}
    learned = [a["name"] for a in case.facts["arrays"] if a["use"] == "learned" and a["name"] in case.arrays]
    arrays = {key: torch.from_numpy(x[:1] if key in batched else x) for key, x in case.arrays.items()}
    rows = [torch.from_numpy(x) for x in (case.q, case.k, case.v)]

    def loss(q, k, v, *of):
        case.arrays = arrays | dict(zip(learned, of))
        return relpos.attention(q, k, v, **case.options()).sin().sum()

    shared = [arrays[x] for x in learned]
    grad = func.grad(loss, tuple(range(3 + len(learned))))
    each = [grad(*(x[n] for x in rows), *shared) for n in range(2)]
    found = func.vmap(grad, (0, 0, 0, *[None] * len(learned)))(*rows, *shared)
    assert all(torch.equal(a, torch.stack(b)) for a, b in zip(found, zip(*each)))


@pytest.fixture
def calls(monkeypatch):
    """Return a list that receives the operator of each call that torch.vmap makes."""
    found, run = [], _vmap.run
    monkeypatch.setattr(_vmap, "run", lambda kind, *values: found.append(kind) or run(kind, *values))
    return found


def of_each(f, axes, n, *x):
    """Return what vmap of f returns, by a loop."""
    def at(x, axis, index):
        return x if axis is None else x.select(axis, index)

    found = [tree_leaves(f(*(at(a, axis, index) for a, axis in zip(x, axes)))) for index in range(n)]
    return [torch.stack(a) for a in zip(*found)]


@pytest.mark.parametrize("name, sample, given", CASES)
def test_every_term_for_each_sample(name, sample, given, calls):
    """The gradients of each sample have the bits of its own call, and torch.vmap makes one call of each operator."""
    case = Case(name, sample, given)
    q, k, v, arrays = (*map(torch.tensor, (case.q, case.k, case.v)), dict(case.arrays))
    learned = [a["name"] for a in case.facts["arrays"] if a["use"] == "learned" and a["name"] in arrays]
    batched = [a["name"] for a in case.facts["arrays"]
               if a["name"] in arrays and "[B" in chosen(a["shape"], case.names)]
    values = [torch.tensor(x)[:, None] if n in batched else torch.tensor(x) for n, x in arrays.items()]
    axes = (0, 0, 0, *(0 if n in batched else None for n in arrays))

    def loss(*x):
        case.arrays = dict(zip(arrays, x[3:]))
        found = relpos.attention(*x[:3], return_lse=True, **case.options())
        return (found.out ** 2).sum() + found.lse.sum()

    numbers = (0, 1, 2, *(3 + n for n, x in enumerate(arrays) if x in learned))
    gradient = func.grad(loss, numbers)

    def product(*x):
        t = [torch.cos(x[n]) for n in numbers]
        return func.jvp(lambda *y: gradient(*(y[numbers.index(n)] if n in numbers else a for n, a in enumerate(x))),
                        tuple(x[n] for n in numbers), tuple(t))[1]

    for f, made in ((gradient, 2), (product, 5)):
        calls.clear()
        found = func.vmap(f, axes)(q, k, v, *values)
        assert 0 < len(calls) <= made
        for a, b in zip(found, of_each(f, axes, len(q), q, k, v, *values)):
            assert torch.equal(a, b)


OPTIONS = {  # what one sample may have: an option, its shape in a call of B entries, and how to draw it
    "key_mask": ((B, LK), lambda s: torch.rand(s, generator=g) < 0.7),
    "mask": ((B, H, LQ, LK), lambda s: torch.rand(s, generator=g) < 0.7),
    "lengths": ((B,), lambda s: torch.randint(1, LK + 1, s, generator=g)),
    "segments": ((B, LQ), lambda s: torch.randint(0, 2, s, generator=g).sort(-1).values),
    "starts": ((B, LQ), lambda s: torch.randint(0, 2, s, generator=g)),
    "ends": ((B, LQ), lambda s: torch.randint(3, LK + 1, s, generator=g)),
    "q_offset": ((B,), lambda s: torch.randint(0, 4, s, generator=g)),
    "bias": ((B, H, LQ, LK), lambda s: torch.randn(s, generator=g, dtype=torch.float64)),
    "q_positions": ((B, LQ), lambda s: torch.rand(s, generator=g, dtype=torch.float64)),
}


def test_every_option_for_each_sample():
    assert {name for name, (_, array) in _encoding.MASKS.items() if array} <= OPTIONS.keys()


@pytest.mark.parametrize("kind", ["shared", "of the batch", "mapped", "mapped without a batch"])
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_for_each_sample(name, kind, calls):
    """Arrays that samples share or not, with an element for each entry of the batch of a sample or not."""
    shape, draw = OPTIONS[name]
    n, shape = 3, shape if kind in ("mapped", "of the batch") else shape[1:]
    x = draw((n, *shape) if kind.startswith("mapped") else shape)
    q, k, v = (torch.randn(n, *a.shape, generator=g, dtype=torch.float64) for a in X[:3])
    if name == "segments":  # as many keys as queries
        k, v = k[..., :LQ, :], v[..., :LQ, :]
    axes = (0, None, 0, 0 if kind.startswith("mapped") else None, None)

    def loss(q, k, v, x, table):
        bias = relpos.T5(table, buckets=8, max_distance=6)
        options = {name: x, "bias": bias}
        if name == "bias":
            options = {"bias": bias + relpos.Dense(x)}
        elif name == "q_positions":
            options = {"bias": bias + relpos.ALiBi(q_positions=x, k_positions=torch.arange(LK).double() / 3)}
        found = relpos.attention(q, k, v, return_lse=True, causal=name == "q_offset", **options)
        return (found.out ** 2).sum() + found.lse.exp().sum()

    numbers = (0, 1, 2, 4, *((3,) if name == "bias" else ()))
    arguments = q, k[0], v, x, X[3]

    def product(*y):
        f = lambda *some: func.grad(loss, numbers)(*(some[numbers.index(n)] if n in numbers else a
                                                     for n, a in enumerate(y)))
        some = tuple(y[n] for n in numbers)
        return func.jvp(f, some, tuple(torch.arange(a.numel()).double().cos().reshape(a.shape) for a in some))[1]

    for f in (loss, func.grad(loss, numbers), product):
        calls.clear()
        found = func.vmap(f, axes)(*arguments)
        assert 0 < len(calls) <= 5
        near(tree_leaves(found), of_each(f, axes, n, *arguments))
    one = [a[:, 0, 0] if axis == 0 else a[0, 0] for a, axis in zip(arguments[:3], axes)]  # without batch and heads
    two = lambda *y: relpos.attention(*y, return_lse=True)[::2]
    near(tree_leaves(func.vmap(two, axes[:3])(*one)), of_each(two, axes[:3], n, *one))


def test_samples_of_samples(calls):
    """vmap in vmap, and derivatives of gradients of each sample."""
    q, k, v = (torch.randn(2, 3, *a.shape[1:], generator=g, dtype=torch.float64) for a in X[:3])
    for f in (ours, eager):
        def loss(q, k, v, table, sink):
            return loss_of(f)(q, k, v, table, sink)

        each = lambda table, sink: func.vmap(func.vmap(func.grad(loss, (0, 3, 4)), (0, 0, 0, None, None)),
                                             (0, 0, 0, None, None))(q, k, v, table, sink)
        total = lambda table, sink: sum((a ** 2).sum() for a in each(table, sink))
        found = (each(*X[3:]), func.grad(total, (0, 1))(*X[3:]), func.jvp(total, tuple(X[3:]), tuple(T[3:])))
        if f is ours:
            got = found
            assert len(calls) <= 60
    near(got, found)


def test_arrays_of_each_sample():
    """Tables without an axis for the batch, one for each sample: one call for each."""
    tables = torch.stack([X[3], 2 * X[3]])
    f = func.grad(loss_of(ours), ALL)
    axes = (None, None, None, 0, None)
    near(list(func.vmap(f, axes)(*X[:3], tables, X[4])), of_each(f, axes, 2, *X[:3], tables, X[4]))


# ---- programs

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(X[3].clone())
        self.project = torch.nn.Linear(D, D, dtype=torch.float64)

    def forward(self, q, k, v):
        return self.attend(self.project(q), k, v, self.table, X[4])[0]


class Ours(Model):
    attend = staticmethod(ours)


class Eager(Model):
    attend = staticmethod(eager)


def models():
    model, formula = Ours(), Eager()
    formula.load_state_dict(model.state_dict())
    return model, formula, {name: x.detach() for name, x in model.named_parameters()}


def test_functional_call():
    *both, parameters = models()
    near(*(func.vmap(func.grad(lambda p, *x: func.functional_call(model, p, x).sin().sum()),
                     (None, 0, 0, 0))(parameters, *X[:3]) for model in both))


def test_a_loss_of_a_jvp():
    """The derivative of a jvp, as flows are trained, eager and compiled, with backward outside."""
    def loss(f):
        def run(*x):
            out, tangent = func.jvp(lambda *x: f(*x)[0], x, tuple(T))
            return ((out - tangent.detach()) ** 2).sum() + (tangent ** 2).sum()
        return run

    x = [a.clone().requires_grad_() for a in X]
    want = torch.autograd.grad(loss(eager)(*x), x)
    near(torch.autograd.grad(loss(ours)(*x), x), want)
    near(torch.autograd.grad(compiled(loss(ours))(*x), x), want)


class Wrapped(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *x):
        return self.f(*x)


def exported(f):
    return torch.export.export(Wrapped(f), tuple(X)).module()


PROGRAMS = {
    "make_fx": lambda f: make_fx(f)(*X), "functionalize": func.functionalize,
    "export": exported, "jit.trace": lambda f: torch.jit.trace(f, tuple(X)),
    "inductor": lambda f: torch.compile(f, fullgraph=True),
    "dynamic": lambda f: torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=True),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", ["make_fx", "functionalize", "export", "jit.trace"])
def test_derivatives_of_programs(program):
    call = PROGRAMS[program](loss_of(ours))
    for derive in (by_jvp, by_dual, lambda f: by_jvp(by_grad(f))):
        near(derive(call)(*X), derive(loss_of(eager))(*X))


@pytest.mark.parametrize("program", ["make_fx", "functionalize", "inductor", "dynamic"])
def test_programs_of_derivatives(program):
    for derive in (by_jvp, lambda f: by_jvp(by_grad(f))):
        near(PROGRAMS[program](derive(loss_of(ours)))(*X), derive(loss_of(eager))(*X))


def test_export_of_a_jvp():
    near(exported(lambda *x: func.jvp(ours, x, x))(*X), func.jvp(eager, tuple(X), tuple(X)))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    def gradients(f):
        x = [a.clone().requires_grad_() for a in X]
        checkpoint(loss_of(f), *x, use_reentrant=reentrant).backward()
        return [a.grad for a in x]

    near(gradients(ours), gradients(eager))
    x = [a.clone().requires_grad_() for a in X]
    near(*(torch.autograd.grad(by_autograd(lambda *x: checkpoint(loss_of(f), *x, use_reentrant=False))(*x), x)
           for f in (ours, eager)))


def test_autocast():
    x, t = [a.float() for a in X], [a.float() for a in T]
    with torch.autocast("cpu", torch.bfloat16):
        (out, _), (tangent, _) = func.jvp(ours, tuple(x), tuple(t))
        gradients = func.grad(lambda *x: ours(*x)[0].float().sum(), ALL)(*x)
    assert out.dtype == tangent.dtype == torch.bfloat16 and all(a.dtype == torch.float32 for a in gradients)
    short = lambda a: [x.bfloat16() for x in a[:3]] + a[3:]
    assert torch.equal(tangent, func.jvp(ours, tuple(short(x)), tuple(short(t)))[1][0])


@pytest.mark.parametrize("name", ["attention", "attention_backward", "attention_jvp", "attention_hvp"])
@pytest.mark.parametrize("per_sample", [False, True])
def test_opcheck(name, per_sample):
    text = "bias|t5,buckets=8,max_distance=6|0,-,-,-,-,-,-,-\nmask||1"
    q, k, v, table, _ = (x.clone().requires_grad_() for x in X)
    out, lse = (x.detach().clone().requires_grad_() for x in ours(*X))
    tangents = [*T[:3], torch.stack([T[3]] * B) if per_sample else T[3], None]
    problem, wanted = ([table, MASK], text, 0, 0), [True, False, True, True, False]
    arguments = {"attention": (q, k, v, *problem),
                 "attention_backward": (out, q, k, v, lse, None, None, *problem, wanted, [], per_sample),
                 "attention_jvp": (q, k, v, *problem, tangents),
                 "attention_hvp": (out, q, k, v, lse, *problem, tangents, wanted, per_sample)}[name]
    if name == "attention_hvp":
        arguments = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, arguments)
    torch.library.opcheck(getattr(torch.ops.relpos, name).default, arguments)


# ---- what is refused

@pytest.mark.parametrize("third", [
    lambda f: by_autograd3(f, X[3].clone().requires_grad_()).backward(),
    lambda f: func.jacrev(func.hessian(f))(X[3]), lambda f: func.jacfwd(func.hessian(f))(X[3]),
    lambda f: compiled(lambda x: func.grad(lambda x: func.grad(lambda x: func.grad(f)(x).sum())(x).sum())(x))(X[3]),
    lambda f: func.jvp(func.grad(lambda x: func.grad(f)(x).sum()), (X[3],), (T[3],)),
], ids=["autograd", "jacrev", "jacfwd", "compiled", "jvp"])
def test_third_derivatives_are_refused(third):
    with pytest.raises(RuntimeError, match="relpos.attention has no (third|forward-mode) derivatives"):
        third(lambda table: loss_of(ours)(*X[:3], table, X[4]))


def by_autograd3(f, x):
    first, = torch.autograd.grad(f(x), x, create_graph=True)
    second, = torch.autograd.grad(first.sin().sum(), x, create_graph=True)
    return second.sum()


@pytest.mark.parametrize("name", ["return_weights", "summary"])
def test_derivatives_of_weights(name):
    """Gradients of weights and summaries exist; second and forward derivatives of their calls are refused."""
    def loss(q, squared=True):
        found = relpos.attention(q, *X[1:3], **{name: True})
        x = found.weights if name == "return_weights" else found.summary.entropy
        return (x ** 2).sum() if squared else (found.out ** 2).sum()

    x = X[0].clone().requires_grad_()
    want, = torch.autograd.grad(loss(x), x)
    near(func.grad(loss)(X[0]), want)
    for refused in (lambda: by_jvp1(loss), lambda: func.hessian(loss)(X[0]), lambda: func.grad(
            lambda q: func.grad(loss)(q).sum())(X[0]), lambda: torch.autograd.grad(
                torch.autograd.grad(loss(x), x, create_graph=True)[0].sum(), x)):
        with pytest.raises(RuntimeError, match="no forward-mode or second derivatives of a call with weights"):
            refused()
        levels_end()
    plain = lambda q: (relpos.attention(q, *X[1:3])**2).sum()
    twice = lambda f: func.grad(lambda q: func.grad(f)(q).sum())(X[0])
    near(twice(lambda q: loss(q, False)), twice(plain))


def by_jvp1(f):
    return func.jvp(f, (X[0],), (T[0],))


@pytest.mark.parametrize("way", ["jvp", "dual", "grad"])
def test_positions_have_no_derivatives(way):
    p = torch.arange(6.0, dtype=torch.float64)
    call = lambda p: relpos.attention(X[1], X[1], X[1], bias=relpos.ALiBi(q_positions=p, k_positions=p)).sum()
    with pytest.raises(TypeError, match=r"ALiBi\(q_positions\) (is a dual tensor|requires a gradient)"):
        {"jvp": lambda: func.jvp(call, (p,), (p,)), "grad": lambda: func.grad(call)(p),
         "dual": lambda: by_dual_of(call, p)}[way]()


def by_dual_of(f, x):
    with forward_ad.dual_level():
        f(forward_ad.make_dual(x, x))


def test_what_torch_refuses():
    """Limits of torch for every function, here with the formula in torch's operations."""
    for f in (eager, ours):
        x = [a.clone().requires_grad_() for a in X]
        gradient, *_ = torch.autograd.grad(compiled(loss_of(f))(*x), x, create_graph=True)
        with pytest.raises(RuntimeError, match="not .*support double backward|have been used in the graph"):
            torch.autograd.grad(gradient.sum(), x)
        torch._dynamo.reset()
        with pytest.raises(RuntimeError, match="don't yet support saved tensor hooks"):
            func.grad(lambda *x: checkpoint(loss_of(f), *x, use_reentrant=False))(*X)
        levels_end()
