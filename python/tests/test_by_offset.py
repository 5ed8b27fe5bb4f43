"""Test relpos.ByOffset: biases that the user writes as a function of the offset.

SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import oracle
import pytest
import relpos

B, H, LQ, LK, D = 2, 4, 9, 12, 6
rng = np.random.default_rng(5)
q, k, v = rng.normal(size=(B, H, LQ, D)), rng.normal(size=(B, 2, LK, D)), rng.normal(size=(B, 2, LK, D))
FUNCTIONS = {
    "alibi": lambda delta, head: -abs(delta) * 2.0 ** -(head + 1),
    "shared by heads": lambda delta, head: np.cos(delta * 0.3),
    "one number": lambda delta, head: 0.25,
    "a band": lambda delta, head: np.where((delta > -4 - head) & (delta <= 2), 0.1 * delta, -np.inf),
    "integers": lambda delta, head: delta % (head + 2),
}


def definition(function, q_offset=0):
    """Return the biases (H, LQ, LK), pair by pair."""
    return np.array([[[np.asarray(function(np.array(j - i - q_offset), np.array(h)), float) for j in range(LK)]
                      for i in range(LQ)] for h in range(H)])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("options", [{}, {"causal": True, "q_offset": 3}, {"window": (3, 1)}, {"softcap": 2.0}],
                         ids=str)
def test_equals_the_dense_bias(name, options):
    function = FUNCTIONS[name]
    want = relpos.Dense(definition(function, options.get("q_offset", 0)))
    bias = relpos.ByOffset(function)
    np.testing.assert_allclose(relpos.attention(q, k, v, bias=bias, **options),
                               relpos.attention(q, k, v, bias=want, **options), rtol=0, atol=1e-13)
    dout = rng.normal(size=q.shape)
    got, g = (relpos.attention_backward(dout, q, k, v, bias=x, **options) for x in (bias, want))
    for a, b in zip(got[:3], g[:3]):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
    table = got.terms[0]["table"]
    delta = oracle.offsets(LQ, LK) - options.get("q_offset", 0)
    offsets = delta.min() + np.arange(LQ + LK - 1)
    by_offset = np.array([[g.terms[0]["bias"][h][delta == r].sum() for r in offsets] for h in range(H)])
    np.testing.assert_allclose(table if len(table) == H else table.sum(0)[None],
                               by_offset if len(table) == H else by_offset.sum(0)[None], rtol=0, atol=1e-12)


def test_offsets_of_each_batch_entry_and_other_terms():
    function = FUNCTIONS["alibi"]
    offsets, decay = [0, 3], relpos.LogDecay(0.5)
    got = relpos.attention(q, k, v, bias=decay + relpos.ByOffset(function), q_offset=offsets)
    for b, offset in enumerate(offsets):
        want = relpos.attention(q[b], k[b], v[b], bias=relpos.Dense(definition(function, offset)) + decay,
                                q_offset=offset)
        np.testing.assert_allclose(got[b], want, rtol=0, atol=1e-13)


def test_shapes_of_q_and_layouts():
    bias = relpos.ByOffset(FUNCTIONS["alibi"])
    whole = relpos.attention(q, k, v, bias=bias)
    np.testing.assert_array_equal(relpos.attention(q[0], k[0], v[0], bias=bias), whole[0])
    swapped = relpos.attention(*(x.swapaxes(1, 2) for x in (q, k, v)), bias=bias, layout="blhd")
    np.testing.assert_array_equal(swapped.swapaxes(1, 2), whole)
    one = relpos.attention(q[0, 0], k[0, 0], v[0, 0], bias=bias)
    np.testing.assert_allclose(one, whole[0, 0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("rows, columns", [(2, 3), (1, 6), (4, 5)])
def test_grid_of_tokens(rows, columns):
    n = rows * columns
    x = rng.normal(size=(3, B, H, n, D))

    def function(down, right, head):
        return np.sin(down + 2.0 * right) * (head + 1) - 0.1 * down

    y, at = np.divmod(np.arange(n), columns)
    bias = function(y[None] - y[:, None], at[None] - at[:, None], np.arange(H)[:, None, None])
    got = relpos.attention(*x, bias=relpos.ByOffset(function, grid=(rows, columns)))
    np.testing.assert_allclose(got, relpos.attention(*x, bias=relpos.Dense(bias)), rtol=0, atol=1e-13)


def test_explain_jvp_and_hvp():
    bias = relpos.ByOffset(FUNCTIONS["alibi"])
    want = relpos.Dense(definition(FUNCTIONS["alibi"]))
    np.testing.assert_allclose(relpos.explain(q, k, v, bias=bias).weights, relpos.explain(q, k, v, bias=want).weights,
                               rtol=0, atol=1e-14)
    tangents = (rng.normal(size=q.shape), None, None)
    np.testing.assert_allclose(relpos.attention_jvp(q, k, v, tangents, bias=bias).out,
                               relpos.attention_jvp(q, k, v, tangents, bias=want).out, rtol=0, atol=1e-12)
    np.testing.assert_allclose(relpos.attention_hvp(q, q, k, v, tangents, bias=bias).q,
                               relpos.attention_hvp(q, q, k, v, tangents, bias=want).q, rtol=0, atol=1e-12)


def test_torch_gradients_reach_what_the_function_uses():
    torch = pytest.importorskip("torch")
    slope, x = torch.rand(H, 1, dtype=torch.float64, requires_grad=True), [torch.tensor(x) for x in (q, k, v)]

    def function(delta, head):
        return -slope[head[:, 0]] * torch.log1p(delta.abs())

    delta = torch.tensor(oracle.offsets(LQ, LK))

    def loss(bias):
        return relpos.attention(*x, bias=bias).sin().sum()

    got, = torch.autograd.grad(loss(relpos.ByOffset(function)), slope, create_graph=True)
    dense = relpos.Dense(-slope[:, :, None] * torch.log1p(delta.abs()))
    want, = torch.autograd.grad(loss(dense), slope, create_graph=True)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), slope), torch.autograd.grad(want.sum(), slope), rtol=0,
                               atol=1e-11)


def test_torch_compile_in_one_graph():
    torch = pytest.importorskip("torch")
    slope, x = torch.rand(H, 1, dtype=torch.float64, requires_grad=True), [torch.tensor(x) for x in (q, k, v)]

    def attend(q, k, v, slope):
        return relpos.attention(q, k, v, bias=relpos.ByOffset(lambda delta, head: -slope * delta.abs()))

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    got, want = compiled(*x, slope), attend(*x, slope)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), slope)[0] for y in (got, want)), rtol=0, atol=0)


def test_errors():
    with pytest.raises(TypeError, match="function is of type float, expected a function of delta and head"):
        relpos.ByOffset(0.5)
    with pytest.raises(ValueError, match=r"grid is 7, expected two numbers"):
        relpos.ByOffset(abs, grid=7)
    with pytest.raises(ValueError, match=r"returned shape \(3,\), expected one that broadcasts to \(4, 20\)"):
        relpos.attention(q, k, v, bias=relpos.ByOffset(lambda delta, head: np.zeros(3)))
    with pytest.raises(TypeError, match="the function returned None, expected the biases of delta and head"):
        relpos.ByOffset(lambda delta, head: None).term(9, heads=2)
    with pytest.raises(ValueError, match="q_offset is from 0 to 1000000000, so the table would have .* offsets a head"):
        relpos.ByOffset(lambda delta, head: -abs(delta)).term(9, heads=2, q_offset=np.array([0, 10**9]))
    with pytest.raises(ValueError, match="grid is 3 x 4, and there are 9 queries and 12 keys; expected 12 of both"):
        relpos.attention(q, k, v, bias=relpos.ByOffset(lambda a, b, head: a, grid=(3, 4)))
    with pytest.raises(TypeError, match=r"pass ByOffset\(...\).term"):
        relpos.Plan(1, H, 1, LK, D, bias=relpos.ByOffset(abs))
    with pytest.raises(TypeError, match="a term cannot be combined with an array"):
        np.zeros(3) + relpos.ByOffset(abs)
    both = relpos.ALiBi() + relpos.ByOffset(min)
    with pytest.raises(TypeError, match="pass the number of heads"):
        both.matrix(3)
    both = relpos.LogDecay() + relpos.ByOffset(lambda delta, head: delta + head)
    np.testing.assert_array_equal(both.matrix(2, heads=2),
                                  relpos.LogDecay().matrix(2) + [[[0, 1], [-1, 0]], [[1, 2], [0, 1]]])
    assert repr(relpos.ALiBi() + relpos.ByOffset(max)) == "relpos.ALiBi() + relpos.ByOffset(max)"
