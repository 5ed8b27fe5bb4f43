"""Test terms as Python objects, and compare terms, with fewer key heads than query heads, with formulas written by
hand. test_definitions.py tests every term.

SPDX-License-Identifier: Apache-2.0"""
import copy
import pickle

import numpy as np
import oracle
import pytest
import relpos

B, H, LQ, LK, D, DV = 2, 4, 11, 14, 6, 5
R = oracle.offsets(LQ, LK).astype(float)
GRID = oracle.offsets(12, 12)  # 3 rows of 4 tokens: 12 queries, 12 keys
rng = np.random.default_rng(11)
q, k, v = rng.standard_normal((B, H, LQ, D)), rng.standard_normal((B, 2, LK, D)), rng.standard_normal((B, 2, LK, DV))
q12, k12, v12 = rng.standard_normal((B, H, 12,
                                     D)), rng.standard_normal((B, H, 12, D)), rng.standard_normal((B, H, 12, DV))


def normal(*shape):
    return rng.standard_normal(shape)


def clip(r, left, right):
    return np.clip(r, -left, right).astype(int) + left


def heads(x, dims=2):
    """Reshape an array [H] so that it broadcasts with [Lq, Lk]."""
    return np.asarray(x).reshape(-1, *[1] * dims)


def turned(x, positions, dim, base=10000.0, interleaved=False):
    angle = np.asarray(positions, float)[:, None] * base ** (-2 * np.arange(dim // 2) / dim)
    a, b = (slice(0, dim, 2), slice(1, dim, 2)) if interleaved else (slice(0, dim // 2), slice(dim // 2, dim))
    y = x.copy()
    y[..., a] = x[..., a] * np.cos(angle) - x[..., b] * np.sin(angle)
    y[..., b] = x[..., b] * np.cos(angle) + x[..., a] * np.sin(angle)
    return y


def fire(r, p, w1, b1, w2, b2, w3=None, b3=None, c=1.0, L=1.0, eps=1e-6):
    psi = lambda x: np.log(np.abs(c * x) + 1)
    x = (psi(r) / (psi(np.maximum(L, p)) + eps))[..., None]
    x = np.maximum(x @ w1.T + b1, 0) @ w2.T + b2
    if w3 is not None:
        x = np.maximum(x, 0) @ w3.T + b3
    return x.transpose(2, 0, 1)


def grid_steps(gh=3, gw=4):
    """Return, for each pair, the row of the key minus the row of the query, and the same for columns."""
    y, x = np.divmod(np.arange(gh * gw), gw)
    return y[None] - y[:, None], x[None] - x[:, None]


def band(r, p):
    out = np.zeros((B, H, LQ, LK))
    for i in range(LQ):
        for j in range(LK):
            if 0 <= i - j < p.shape[-1]:
                out[:, :, i, j] = r[:, :, i] @ p[:, i - j]
    return out


def deberta_index(r, span):
    return np.clip(-r + span, 0, 2 * span - 1).astype(int)


scale = D ** -0.5
k4 = np.repeat(k, 2, 1)
table, t5, slopes, rk, rv, rkh = normal(H, 6), normal(32,
                                                      H), abs(normal(H)), normal(6, D), normal(6, DV), normal(H, 6, D)
p, a, dense, logf = 0.2 + abs(normal(H)), 0.2 + abs(normal(H)), normal(1, H, LQ, LK), -abs(normal(B, H, LK))
w = [normal(5, 1), normal(5), normal(H, 5), normal(H)]
w3 = [normal(5, 1), normal(5), normal(3, 5), normal(3), normal(H, 3), normal(H)]
swin, bh, bw, real, r_band, p_band = (normal(5 * 7, H), normal(H, 5), normal(H, 7), normal(H, 9), normal(B, H, LQ, 3),
                                      normal(3, 4))
xl, u, v_xl, rh, rw = normal(H, LQ + LK - 1, D), normal(H, D), normal(H, D), normal(5, D), normal(7, D)
k_pos, q_pos, sink = normal(H, 8, D), normal(H, 8, D), normal(H)
positions = np.cumsum(rng.random(LK))
causal_sum = lambda f: np.cumsum(f, -1)[:, :, :LQ, None] - np.cumsum(f, -1)[:, :, None, :]
dy, dx = grid_steps()

# name: keyword, term, definition, and True if q, k and v form a grid
CASES = {
    "table": ("bias", relpos.Table(table, left=3, right=2), dict(bias=table[:, clip(R, 3, 2)])),
    "t5": ("bias", relpos.T5(t5), dict(bias=t5[oracle.bucket(R.astype(int))].transpose(2, 0, 1))),
    "t5 of one direction": ("bias", relpos.T5(t5[:16], buckets=16, max_distance=20, bidirectional=False),
                            dict(bias=t5[oracle.bucket(R.astype(int), 16, 20, False)].transpose(2, 0, 1))),
    "bucket": ("bias", relpos.Bucket(t5[:8], strategy="uniform", buckets=8, max_distance=8, bidirectional=False),
               dict(bias=t5[np.minimum(np.maximum(-R, 0), 7).astype(int)].transpose(2, 0, 1))),
    "log": ("bias", relpos.LogDecay(0.7), dict(bias=-0.7 * np.log1p(abs(R)))),
    "linear": ("bias", relpos.Linear(left=0.5, right=2), dict(bias=np.where(R < 0, 0.5 * R, -2 * R))),
    "alibi": ("bias", relpos.ALiBi(), dict(bias=-heads(2.0 ** -np.array([2, 4, 6, 8])) * abs(R))),
    "alibi with slopes": ("bias", relpos.ALiBi(slopes), dict(bias=-heads(slopes) * abs(R))),
    "kerple": ("bias", relpos.Kerple(p, a), dict(bias=-heads(p) * np.log1p(heads(a) * abs(R)))),
    "kerple power": ("bias", relpos.Kerple(p, a, kind="power"), dict(bias=-heads(a) * abs(R) ** heads(p))),
    "sandwich": ("bias", relpos.Sandwich(dim=4),
                 dict(bias=(np.cos(R) + np.cos(R / 100)) * H / (8 * heads(np.arange(1, H + 1))))),
    "fire": ("bias", relpos.Fire(*w, c=0.8, L=3), dict(bias=fire(R, np.arange(LQ)[:, None], *w, c=0.8, L=3))),
    "fire of three layers": ("bias", relpos.Fire(*w3, c=0.8, L=3, eps=0.1),
                             dict(bias=fire(R, np.arange(LQ)[:, None], *w3, c=0.8, L=3, eps=0.1))),
    "swin": ("bias", relpos.Swin(swin, grid=(3, 4)), dict(bias=swin[(2 - dy) * 7 + 3 - dx].transpose(2, 0, 1)), True),
    "axial": ("bias", relpos.Axial(bh, bw, grid="3x4"), dict(bias=bh[:, dy + 2] + bw[:, dx + 3]), True),
    "real": ("bias", relpos.Real(real, max_distance=4, k_positions=positions),
             dict(bias=-real[:, np.trunc(np.clip(np.arange(LQ)[:, None] - positions, -4, 4)).astype(int) + 4])),
    "band": ("bias", relpos.Band(r_band, p_band), dict(bias=band(r_band, p_band))),
    "forget": ("bias", relpos.Forget(logf), dict(bias=causal_sum(logf), keep=R <= 0)),
    "dense": ("bias", relpos.Dense(dense), dict(bias=dense)),
    "a sum": ("bias", relpos.ALiBi() + relpos.Dense(dense) + relpos.LogDecay(),
              dict(bias=dense - heads(2.0 ** -np.array([2, 4, 6, 8])) * abs(R) - 0.3 * np.log1p(abs(R)))),
    "relkey": ("relkey", relpos.RelKey(rk, left=2, right=3),
               dict(inner=scale * np.einsum("bhid,ijd->bhij", q, rk[clip(R, 2, 3)]))),
    "relkey for each head": ("relkey", relpos.RelKey(rkh, left=2, right=3),
                             dict(inner=scale * np.einsum("bhid,hijd->bhij", q, rkh[:, clip(R, 2, 3)]))),
    "relval": ("relval", relpos.RelValue(rv, left=2, right=3), dict(values=rv[clip(R, 2, 3)])),
    "xl": ("relkey", relpos.XL(xl, u, v_xl),
           dict(inner=scale * (np.einsum("hd,bhjd->bhj", u, k4)[:, :, None] +
                               np.einsum("bhid,hijd->bhij", q + v_xl[:, None], xl[:, R.astype(int) + LQ - 1])))),
    "axialkey": ("relkey", relpos.AxialKey(rh, rw, grid=(3, 4)),
                 dict(inner=np.einsum("bhid,ijd->bhij", q12, rh[2 - dy] + rw[3 - dx])), True),
    "deberta": ("relkey", relpos.Deberta(k_pos, q_pos),
                dict(inner=scale * (np.einsum("bhid,hijd->bhij", q, k_pos[:, deberta_index(R, 4)]) +
                                    np.einsum("bhjd,hijd->bhij", k4, q_pos[:, deberta_index(R, 4)])))),
    "rope": ("rope", relpos.RoPE(), "turned"),
    "rope interleaved": ("rope", relpos.RoPE(dim=4, base=100.0, layout="interleaved"), "turned"),
    "sink": ("sink", relpos.Sink(sink), dict(sink=sink)),
}


def case(name):
    keyword, term, definition, grid = (*CASES[name], False)[:4]
    x, y, z = (q12, k12, v12) if grid else (q, k, v)
    if definition == "turned":
        o = dict(dim=4, base=100.0, interleaved=True) if "interleaved" in name else dict(dim=D)
        return keyword, term, (x, y, z), ((turned(x, np.arange(LQ), **o), turned(y, np.arange(LK), **o), z), {})
    return keyword, term, (x, y, z), ((x, y, z), definition)


@pytest.mark.parametrize("name", CASES)
def test_definition(name):
    keyword, term, given, (arrays, definition) = case(name)
    want = oracle.attention(*arrays, **definition)[0]
    np.testing.assert_allclose(relpos.attention(*given, **{keyword: term}), want, atol=1e-12)
    np.testing.assert_allclose(relpos.attention(*(x.astype(np.float32) for x in given), **{keyword: term}), want,
                               atol=2e-5)


def remade(term, name, array):
    arrays = dict(term.arrays, **{name: array})
    params = {("lambda_" if key == "lambda" else key): value
              for key, value in relpos._terms._params(term._text).items()}
    return type(term)(**arrays, **params)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if not isinstance(c[1], tuple)])  # sums are tested below
def test_gradients(name):
    """Check gradients along one direction per array by central differences in float64."""
    keyword, term, given, _ = case(name)
    out = relpos.attention(*given, **{keyword: term}, return_lse=True)
    dout = np.random.default_rng(5).standard_normal(out.out.shape)
    loss = lambda x, t: float((relpos.attention(*x, **{keyword: t}) * dout).sum())
    g = relpos.attention_backward(dout, *given, **{keyword: term}, out=out.out, lse=out.lse)
    again = relpos.attention_backward(dout, *given, **{keyword: term})
    step = 1e-5
    for n in range(3):
        way = np.random.default_rng(n).standard_normal(given[n].shape)
        up, down = ([x + s * step * way if m == n else x for m, x in enumerate(given)] for s in (1, -1))
        slope = (loss(up, term) - loss(down, term)) / (2 * step)
        assert (g[n] * way).sum() == pytest.approx(slope, rel=1e-6, abs=1e-7)
        np.testing.assert_allclose(again[n], g[n], rtol=1e-9, atol=1e-12)
    assert len(g.terms) == 1
    assert set(g.terms[0]) == set(term.learned)
    for x, gradient in g.terms[0].items():
        array = term.arrays[x]
        way = np.random.default_rng(9).standard_normal(array.shape)
        slope = (loss(given, remade(term, x, array + step * way))
                 - loss(given, remade(term, x, array - step * way))) / (2 * step)
        assert gradient.shape == array.shape and gradient.dtype == array.dtype
        assert (gradient * way).sum() == pytest.approx(slope, rel=1e-6, abs=1e-7)


def test_gradients_of_a_sum_and_of_parts():
    terms = relpos.ALiBi(slopes.astype(np.float32)) + relpos.Dense(dense) + relpos.LogDecay()
    dout = normal(B, H, LQ, DV)
    g = relpos.attention_backward(dout, q, k, v, bias=terms, rope=relpos.RoPE(),
                                  relval=relpos.RelValue(rv, left=2, right=3))
    assert [sorted(x) for x in g.terms] == [["slopes"], ["bias"], [], [], ["table"]]
    assert g.terms[0]["slopes"].dtype == np.float32
    some = relpos.attention_backward(dout, q, k, v, bias=terms, rope=relpos.RoPE(),
                                     relval=relpos.RelValue(rv, left=2, right=3),
                                     wanted={"k", "bias"})
    assert some.q is None and some.v is None and some.terms[0] == {"slopes": None} and some.terms[4] == {"table": None}
    np.testing.assert_array_equal(some.k, g.k)
    np.testing.assert_array_equal(some.terms[1]["bias"], g.terms[1]["bias"])


def test_gradients_without_a_batch_axis():
    dout = normal(B, H, LQ, DV)
    want = relpos.attention_backward(dout[:1], q[:1], k[:1], v[:1], bias=relpos.ALiBi(slopes))
    got = relpos.attention_backward(dout[0], q[0], k[0], v[0], bias=relpos.ALiBi(slopes))
    np.testing.assert_array_equal(got.q, want.q[0])
    np.testing.assert_array_equal(got.terms[0]["slopes"], want.terms[0]["slopes"])


@pytest.mark.parametrize("name", CASES)
def test_copies(name):
    _, term, *_ = CASES[name]
    for other in (copy.copy(term), copy.deepcopy(term), pickle.loads(pickle.dumps(term))):
        assert type(other) is type(term) and repr(other) == repr(term)
    if isinstance(term, tuple):
        return
    other = pickle.loads(pickle.dumps(term))
    assert other.params == term.params
    for x in term.arrays:
        np.testing.assert_array_equal(other.arrays[x], term.arrays[x])


@pytest.mark.parametrize("term", [relpos.ALiBi(), relpos.LogDecay(0.25), relpos.Linear(left=2, right=0.5),
                                  relpos.Sandwich(dim=8),
                                  relpos.RoPE(dim=4, base=5e5, layout="interleaved", scaling="yarn", factor=8.0,
                                              truncate=False),
                                  relpos.ALiBi() + relpos.LogDecay() + relpos.Linear()], ids=repr)
def test_repr_evaluates(term):
    assert repr(eval(repr(term))) == repr(term)


def test_repr_shows_arrays():
    assert repr(relpos.T5(t5.astype(np.float32), buckets=32)) == "relpos.T5(float32[32, 4])"
    assert repr(relpos.XL(xl, v=u)) == "relpos.XL(float64[4, 24, 6], None, float64[4, 6])"
    assert repr(relpos.Swin(swin, grid=(3, 4))) == "relpos.Swin(float64[35, 4], grid='3x4')"
    assert repr(relpos.ALiBi(k_positions=np.arange(3))) == "relpos.ALiBi(k_positions=int64[3])"


def test_params():
    term = relpos.T5(t5, max_distance=64, bidirectional=False)
    assert term.params == dict(buckets=32, max_distance=64, bidirectional=0)
    with pytest.raises(AttributeError):
        term.buckets = 3
    with pytest.raises(AttributeError):
        term._text = "t5"


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c[0] == "bias" and not isinstance(c[1], tuple)])
def test_matrix(name):
    _, term, given, (_, definition) = case(name)
    told = any(x.ndim > 1 or len(x) == H for x in term.arrays.values())
    got = term.matrix(given[0].shape[2], given[1].shape[2], heads=None if told else H)
    want = np.broadcast_to(definition["bias"], (B, H, *got.shape[-2:]))
    want = want if got.ndim == 4 else want[0]
    keep = np.broadcast_to(definition.get("keep", True), got.shape)
    assert got.dtype == np.float64 and got.shape[-3] == H
    np.testing.assert_allclose(got[keep], want[keep], atol=1e-12)


def test_matrix_of_a_sum():
    terms = relpos.ALiBi(slopes) + relpos.LogDecay()
    np.testing.assert_allclose(terms.matrix(5, q_offset=2), relpos.ALiBi(slopes).matrix(5, q_offset=2) +
                               relpos.LogDecay().matrix(5, heads=1, q_offset=2))


def test_sums_of_sums():
    both, third = relpos.ALiBi() + relpos.LogDecay(), relpos.Linear(left=2)
    for found in (sum([both, third]), sum([both, third], relpos.Sum()), both + third, 0 + both + third,
                  tuple(both) + (0 + third)):
        assert type(found) is relpos.Sum and repr(found) == "relpos.ALiBi() + relpos.LogDecay() + relpos.Linear(left=2)"


@pytest.mark.parametrize("term", [relpos.ALiBi(), relpos.ALiBi() + relpos.LogDecay()])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_scores_plus_a_term(kind, term):
    """Tutorials write scores + position_bias. With a term, this must raise an error with a suggestion, rather than
    return an array of objects or fail with torch's "Boolean value of Tensor"."""
    scores = np.zeros((H, 3, 3)) if kind == "numpy" else pytest.importorskip("torch").zeros(H, 3, 3)
    for add in (lambda: scores + term, lambda: term + scores):
        with pytest.raises(TypeError, match=r"bias=term\) computes with the term, term \+ "
                                            r"relpos.Dense\(array\).*term.matrix\(Lq, Lk\)"):
            add()


@pytest.mark.parametrize("term", [relpos.ALiBi(), relpos.ALiBi() + relpos.LogDecay()])
def test_scores_plus_equals_a_term(term):
    scores = np.zeros((H, 3, 3))
    with pytest.raises(TypeError, match=r"bias=term\) computes with the term, term \+ "
                                        r"relpos.Dense\(array\).*term.matrix\(Lq, Lk\)"):
        scores += term
    assert not (scores == term) and scores != term


@pytest.mark.parametrize("keyword, term",
                         [("rope", relpos.RoPE()), ("relkey", relpos.RelKey(np.zeros((3, D)), left=1, right=1)),
                          ("relval", relpos.RelValue(np.zeros((3, D)), left=1, right=1)),
                          ("sink", relpos.Sink(np.zeros(H))), ("rope", relpos.RoPE() + relpos.ALiBi())])
def test_scores_plus_a_term_that_is_no_bias(keyword, term):
    """The suggestion names the term's keyword. It mentions neither bias= nor matrix(), which do not accept the term."""
    for add in (lambda: np.zeros((H, 3, 3)) + term, lambda: term + np.zeros((H, 3, 3))):
        with pytest.raises(TypeError, match=rf"relpos.attention\(q, k, v, {keyword}=term\)") as caught:
            add()
        assert "bias=term" not in str(caught.value) and "matrix" not in str(caught.value)


def test_docstrings_say_something():
    for cls in relpos.TERMS.values():
        first = cls.__doc__.partition("\n")[0]
        about, _, source = first.lower().rstrip(".").partition(": ")
        assert source not in about or not source, first
    assert "float attn_mask of torch's scaled_dot_product_attention: (Lq, Lk)" in relpos.Dense.__doc__


def test_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    ax = relpos.ALiBi().plot(8, heads=2, head=1)
    assert ax.get_xlabel() == "key" and ax.images[0].get_array().shape == (8, 8)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.array, float])
def test_numbers_of_any_kind(kind):
    assert np.array_equal(relpos.LogDecay(kind(0.5)).matrix(1, 3), relpos.LogDecay(0.5).matrix(1, 3))
    assert relpos.RoPE(base=kind(10000.5)).params["base"] == 10000.5
    assert repr(relpos.T5(np.zeros((32, 1)), bidirectional=np.False_, max_distance=np.int64(64))) == (
        "relpos.T5(float64[32, 1], max_distance=64, bidirectional=0)")
    with pytest.raises(ValueError, match="buckets"):
        relpos.T5(np.zeros((32, 1)), buckets=kind(12.9))


@pytest.mark.parametrize("value", [None, [None], object()])
def test_a_parameter_that_is_no_number(value):
    with pytest.raises(TypeError, match="LogDecay: lambda_ is .*, expected a number"):
        relpos.LogDecay(value)


@pytest.mark.parametrize("left, right", [(4, 0), (0, 4), (0, 0)])
def test_clipped_on_one_side(left, right):
    table = normal(H, left + right + 1)
    term = relpos.Table(table, left=left, right=right)
    assert np.allclose(term.matrix(6), table[:, clip(oracle.offsets(6, 6), left, right)])
    assert repr(term) == f"relpos.Table(float64[4, {left + right + 1}], left={left}, right={right})"
    relpos.attention(q, k, v, relkey=relpos.RelKey(normal(left + right + 1, D), left=left, right=right))


SCALED = {"dynamic": dict(scaling="dynamic", factor=2.0, max_position_embeddings=16),
          "longrope": dict(scaling="longrope", factor=4.0, original_max_position_embeddings=16, short_factor=np.ones(3),
                           long_factor=np.array([1.0, 2.5, 9.0]))}


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("name", SCALED)
def test_rope_with_a_length(name, tensors):
    """An entry of 10 tokens has its own frequencies with padding to 24 and beside an entry of 24, and steps equal one
    pass with length=24."""
    q, k, v = (normal(2, 2, 24, D).astype(np.float32) for _ in range(3))
    if tensors:
        q, k, v = map(pytest.importorskip("torch").tensor, (q, k, v))
    rope = relpos.RoPE(**SCALED[name])
    alone = relpos.attention(q[:1, :, :10], k[:1, :, :10], v[:1, :, :10], rope=rope, causal=True)
    ten = np.arange(24) < np.array([[10], [24]])
    for options in (dict(lengths=[10, 24]), dict(key_mask=ten), dict(mask=ten[:, None, None]),
                    dict(bias=relpos.Dense(np.where(ten, 0, -np.inf)[:, None, None])),
                    dict(ends=np.array([[10], [24]]).repeat(24, 1))):
        assert (relpos.attention(q, k, v, rope=rope, causal=True, **options)[:1, :, :10] == alone).all()
    packed = relpos.attention(q, k, v, rope=rope, causal=True, segments=np.array([0] * 10 + [1] * 14))
    np.testing.assert_allclose(packed[:1, :, :10], alone, atol=3e-6)
    whole = relpos.attention(q, k, v, rope=rope, causal=True)
    assert abs(whole[:1, :, :10] - alone).max() > 1e-3
    final = relpos.RoPE(**SCALED[name], length=24)
    assert (relpos.attention(q, k, v, rope=final, causal=True) == whole).all()
    plan = relpos.Plan(2, 2, 1, 24, D, rope=final, causal=True)
    for i in range(24):
        assert (plan(q[:, :, i:i + 1], k[:, :, :i + 1], v[:, :, :i + 1], q_offset=i) == whole[:, :, i:i + 1]).all()
    with pytest.raises(ValueError, match="RoPE.length. is -1; it must be 0 to 2\\^53"):
        relpos.attention(q, k, v, rope=relpos.RoPE(**SCALED[name], length=-1))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int32, np.int64, np.uint64])
def test_lookup_reads_indices_of_any_integer_type(dtype):
    table, indices = normal(H, 9), rng.integers(0, 9, size=(B, 1, LQ, LK))
    want = relpos.Dense(table[np.arange(H)[:, None, None], indices])
    dout = normal(B, H, LQ, DV)
    for given in (indices.astype(dtype), np.asfortranarray(indices.astype(dtype))):
        bias = relpos.Lookup(table, indices=given)
        np.testing.assert_array_equal(relpos.attention(q, k, v, bias=bias), relpos.attention(q, k, v, bias=want))
        got, g = (relpos.attention_backward(dout, q, k, v, bias=x).terms[0] for x in (bias, want))
        sums = np.array([[g["bias"][:, h][indices[:, 0] == e].sum() for e in range(9)] for h in range(H)])
        np.testing.assert_allclose(got["table"], sums, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("entries", [1, 2, 15, 16, 17, 33, 64, 65, 127, 128, 129, 256, 257, 5000])
def test_lookup_in_tables_of_any_length(entries, dtype):
    """Lengths at which kernels read the table, the indices or the sums in another way."""
    draw = np.random.default_rng(entries)
    x, y, z, dout = (draw.normal(size=(2, 2, n, 8)).astype(dtype) for n in (100, 603, 603, 100))
    table = draw.normal(size=(2, entries)).astype(dtype)
    types = [np.uint8 if entries <= 256 else np.uint16, np.uint16, np.int64]
    for given, heads in zip(types, (1, 2, 1)):
        indices = draw.integers(0, entries, size=(1, heads, 100, 603)).astype(given)
        dense = table[np.arange(2)[:, None, None], indices]
        bias, want = relpos.Lookup(table, indices=indices), relpos.Dense(dense)
        np.testing.assert_array_equal(relpos.attention(x, y, z, bias=bias), relpos.attention(x, y, z, bias=want))
        got, full = (relpos.attention_backward(dout, x, y, z, bias=b) for b in (bias, want))
        np.testing.assert_array_equal(got.q, full.q)
        sums = np.zeros((2, entries))
        np.add.at(sums, (np.arange(2)[:, None, None], indices[0]), full.terms[0]["bias"].sum(0, dtype=float))
        np.testing.assert_allclose(got.terms[0]["table"], sums, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64])
def test_lookup_finds_a_wrong_index_anywhere(dtype):
    info, entries = np.iinfo(dtype), 100
    for value in {100, 101, min(info.max, 2**31), info.max, info.min, min(info.max, 200)} - {0}:
        for place in (0, 1, 15, 16, 31, 32, 39, 40):
            indices = np.full((2, 41), 99, dtype)
            assert relpos.attention(q[:1, :1, :2], *(np.resize(x, (1, 1, 41, x.shape[-1])) for x in (k, v)),
                                    bias=relpos.Lookup(normal(entries), indices=indices)).shape[2] == 2
            indices[1, place] = value
            with pytest.raises(ValueError, match=rf"indices\[0, 0, 1, {place}\]\) is "):
                relpos.attention(q[:1, :1, :2], *(np.resize(x, (1, 1, 41, x.shape[-1])) for x in (k, v)),
                                 bias=relpos.Lookup(normal(entries), indices=indices))


def test_lookup_masks_by_infinity_and_refuses_other_indices():
    indices = rng.integers(0, 3, size=(LQ, LK), dtype=np.uint8)
    table = np.array([0.5, -np.inf, 1.0])
    np.testing.assert_array_equal(relpos.attention(q, k, v, bias=relpos.Lookup(table, indices=indices)),
                                  relpos.attention(q, k, v, bias=relpos.Dense(table[indices])))
    wrong = indices.astype(int)
    for value in (3, -1):
        wrong[2, 5] = value
        with pytest.raises(ValueError, match=rf"Lookup\(indices\[0, 0, 2, 5\]\) is {value}; it must be 0 to 2, because "
                           "the table has 3 entries"):
            relpos.attention(q, k, v, bias=relpos.Lookup(table, indices=wrong))
    with pytest.raises(TypeError, match="indices"):
        relpos.attention(q, k, v, bias=relpos.Lookup(table, indices=indices.astype(float)))
