"""Check relpos.numpy against the examples printed in the tutorials (docs/texts.md) and against plain loops.

SPDX-License-Identifier: Apache-2.0"""
import doctest
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import relpos
import relpos.numpy as text

TOKENS = ["The", "cat", "sat", "on", "mat"]
Q = np.array([[1, 0, 1, 0], [0, 2, 0, 1], [1, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]], float)
K = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0.5, 0.5]])
V = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0.5, 0.5, 0.5, 0.5]])


def test_printed_weights_and_output():
    weights, output = text.RelativePositionBiasAttention(d_k=4, bias_scale=0.3).forward(Q, K, V)
    np.testing.assert_array_equal(np.round(weights, 4), [
        [0.1473, 0.3253, 0.1747, 0.1603, 0.1924], [0.4099, 0.1126, 0.2486, 0.1335, 0.0954],
        [0.1321, 0.2460, 0.3029, 0.1492, 0.1697],
        [0.1523, 0.1660, 0.1137, 0.3805, 0.1875], [0.1508, 0.1612, 0.1758, 0.1985, 0.3138]])
    np.testing.assert_array_equal(np.round(output, 4), [
        [0.2435, 0.4215, 0.2709, 0.2565], [0.4576, 0.1603, 0.2963, 0.1812], [0.2170, 0.3309, 0.3877, 0.2341],
        [0.2460, 0.2597, 0.2074, 0.4743], [0.3077, 0.3181, 0.3326, 0.3554]])
    plain, _ = text.RelativePositionBiasAttention(4, bias_scale=0.0).forward(Q, K, V)
    np.testing.assert_array_equal(np.round(plain[0], 4), [0.1095, 0.2976, 0.1805, 0.1805, 0.2318])
    np.testing.assert_array_equal(np.round((weights - plain)[0], 4), [0.0378, 0.0276, -0.0058, -0.0203, -0.0394])
    masked, _ = text.RelativePositionBiasAttention(4)(Q, K, V, mask=np.triu(np.ones((5, 5), bool), 1))
    assert not np.triu(masked, 1).any()
    np.testing.assert_allclose(masked.sum(1), 1)


def test_printed_trace(capsys):
    text.RelativePositionBiasAttention(4).explain(Q, K, V, TOKENS, query_idx=0)
    said = capsys.readouterr().out
    assert said.startswith("\n=== Relative Position Bias trace for 'The' ===\nbias_scale = 0.3, d_k = 4\n\nRaw scores: "
                           "   [0.  2.  1.  1.  1.5]\n")
    assert "Bias values:   [ 0.     -0.2079 -0.3296 -0.4159 -0.4828]\n" in said  # see docs/texts/s0.md
    assert "Biased scores: [0.     0.7921 0.1704 0.0841 0.2672]\n" in said
    assert "  A[The,cat] = 0.3253 (d=1) |################|\n" in said
    assert said.endswith("Output[The] = [0.2435 0.4215 0.2709 0.2565]\n")


@pytest.mark.parametrize("query", range(5))
def test_the_trace_counts_negative_queries_from_the_end(query, capsys):
    layer = text.RelativePositionBiasAttention(4)
    layer.explain(Q, K, V, TOKENS, query_idx=query)
    said = capsys.readouterr().out
    assert re.findall(r"\(d=(\d)\)", said) == [str(abs(query - j)) for j in range(5)]
    layer.explain(Q, K, V, TOKENS, query_idx=query - 5)
    assert capsys.readouterr().out == said


def test_bias_matrix():
    layer = text.RelativePositionBiasAttention(4, 0.3)
    i, j = np.ogrid[:5, :7]
    np.testing.assert_allclose(layer.bias_matrix(5, 7), -0.3 * np.log1p(abs(i - j)))
    assert layer._build_bias_matrix(5).shape == (5, 5)


@pytest.mark.parametrize("name, both", [("_build_bias_matrix", False), ("bias_matrix", False), ("bias_matrix", True)])
def test_a_bias_of_a_subclass(name, both, capsys):
    """Exercise 2 of the tutorial, a linear decay, solved with a subclass of the tutorial's class."""
    def linear(self, N, M=None):
        return -0.3 * abs(np.arange(M or N) - np.arange(N)[:, None])

    layer = type("Linear", (text.RelativePositionBiasAttention,),
                 {name: linear if both else lambda self, N: linear(self, N)})(d_k=4)
    weights, output = layer.forward(Q, K, V)
    assert weights[0].round(4).tolist() == [0.1913, 0.3853, 0.1731, 0.1283, 0.122]
    want = relpos.attention(Q, K, V, bias=relpos.Linear(left=0.3, right=0.3))
    np.testing.assert_allclose(output, want, atol=1e-15, rtol=0)
    layer.explain(Q, K, V, TOKENS)
    assert "-0.3 -0.6 -0.9 -1.2]" in capsys.readouterr().out
    if both:
        np.testing.assert_allclose(layer.forward(Q[:2], K, V)[1], want[:2], atol=1e-15, rtol=0)
    else:
        with pytest.raises(ValueError, match="has one parameter, but there are 2 queries and 5 keys"):
            layer.forward(Q[:2], K, V)


def test_printed_weights_of_the_seeded_layer():
    np.random.seed(42)
    X = np.random.randn(6, 8)
    before = np.random.get_state()[1].copy()
    output, weights = text.RelativeSelfAttention(8, 4, 4, max_distance=3, seed=123).forward(X)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # NumPy's state does not change
    np.testing.assert_array_equal(np.round(weights, 3), [
        [0.008, 0.028, 0.001, 0.12, 0.62, 0.223], [0.26, 0.098, 0.35, 0.157, 0.052, 0.083],
        [0.794, 0.002, 0.077, 0.122, 0.002, 0.002],
        [0.016, 0.394, 0.025, 0.108, 0.356, 0.101], [0.475, 0.023, 0.002, 0.13, 0.069, 0.301],
        [0.002, 0.227, 0.001, 0.014, 0.66, 0.097]])
    assert output.shape == (6, 4)


@pytest.mark.parametrize("n, m", [(6, 6), (5, 9), (9, 2), (0, 3), (1, 1)])
def test_functions_beside_loops(n, m):
    rng = np.random.default_rng(n * 10 + m)
    table = text.RelativePositionEmbedding(3, 4, 5, seed=1)
    q, k, v, w = rng.normal(size=(n, 4)), rng.normal(size=(m, 4)), rng.normal(size=(m, 5)), rng.random((n, m))
    scores, output, biases = np.zeros((n, m)), np.zeros((n, 5)), np.zeros((n, m))
    for i in range(n):
        for j in range(m):
            biases[i, j] = q[i] @ table.get_key_embedding(j - i) / 2
            scores[i, j] = q[i] @ k[j] / 2 + biases[i, j]
            output[i] += w[i, j] * (v[j] + table.get_value_embedding(j - i))
    np.testing.assert_allclose(text.relative_attention_scores(q, k, table), scores, atol=4e-15)
    np.testing.assert_allclose(text.efficient_relative_scores(q, k, table), scores, atol=4e-15)
    np.testing.assert_allclose(text.compute_position_biases(q, table, m), biases, atol=4e-15)
    np.testing.assert_allclose(text.relative_attention_output(w, v, table), output, atol=4e-14)


def test_vectors_of_relpos_torch():
    """The functions accept a RelativePositionEmbedding of relpos.torch."""
    torch = pytest.importorskip("torch")
    import relpos.torch
    ours, theirs = text.RelativePositionEmbedding(3, 4, 5,
                                                  seed=1), relpos.torch.RelativePositionEmbedding(3, 4, 5).double()
    with torch.no_grad():
        theirs.a_K.copy_(torch.from_numpy(ours.a_K))
        theirs.a_V.copy_(torch.from_numpy(ours.a_V))
    rng = np.random.default_rng(0)
    q, k, v, w = rng.normal(size=(6, 4)), rng.normal(size=(9, 4)), rng.normal(size=(9, 5)), rng.random((6, 9))
    for function, arrays in ((text.compute_position_biases, [q]), (text.efficient_relative_scores, [q, k]),
                             (text.relative_attention_scores, [q, k]), (text.relative_attention_output, [w, v])):
        want = function(*arrays, ours)
        np.testing.assert_array_equal(function(*arrays, theirs), want)
        np.testing.assert_array_equal(function(*(torch.from_numpy(x).requires_grad_() for x in arrays), theirs), want)
    assert text.compute_position_biases(q, theirs.bfloat16()).shape == (6, 6)


def test_clipping_of_arrays():
    rows, want = np.arange(10), [-4, -4, -3, -2, -1, 0, 1, 2, 3, 4]
    np.testing.assert_array_equal(text.clip_relative_position(rows, 5, 4), want)
    assert text.clip_relative_position(rows, rows[:, None], 4).shape == (10, 10)
    assert repr(text.clip_relative_position(0, 5, 4)) == "-4" and text.clip_relative_position(np.int64(9), 5, 3) == 3
    table = text.RelativePositionEmbedding(4, 2, 3, seed=1)
    np.testing.assert_array_equal(table.get_key_embedding(rows - 5), table.a_K[np.array(want) + 4])
    torch = pytest.importorskip("torch")
    assert text.clip_relative_position(torch.arange(10), 5, 4).tolist() == want


def test_without_a_seed_numpys_state_is_used():
    tables = []
    for _ in range(2):
        np.random.seed(7)
        tables.append(text.RelativePositionEmbedding(2, 3, 4).a_K)
    np.testing.assert_array_equal(*tables)
    np.testing.assert_array_equal(tables[0], text.RelativePositionEmbedding(2, 3, 4, seed=7).a_K)


def test_counts_and_profiles():
    assert text.count_position_pairs(128, 256) == (49152, 65536)
    for call, error, words in ((lambda: text.count_position_pairs(-1, 3), ValueError, "max_len_train is -1, expected 0 "
                                                                                      "or more"),
                               (lambda: text.count_position_pairs(2.5, 3), TypeError, "max_len_train is 2.5, expected "
                                                                                      "an integer"),
                               (lambda: text.count_position_pairs(2, -3), ValueError, "max_len_test is -3"),
                               (lambda: text.RelativePositionEmbedding(-1, 4, 4), ValueError,
                                "max_distance is -1, expected 0 or more"),
                               (lambda: text.RelativeSelfAttention(8, 4, 4, -1), ValueError, "max_distance is -1")):
        with pytest.raises(error, match=words):
            call()
    assert [text.clip_relative_position(j, 5, 4) for j in range(10)] == [-4, -4, -3, -2, -1, 0, 1, 2, 3, 4]
    w = np.random.default_rng(0).random((2, 4, 6))
    found = text.analyze_position_bias(w)
    assert list(found) == list(range(-3, 6))
    assert found[2] == pytest.approx(np.mean([w[b, i, i + 2] for b in range(2) for i in range(4)]))


def test_example_data():
    """The files in examples/data contain the numbers of these examples."""
    data = Path(__file__).resolve().parents[2] / "examples/data"
    cat, shaw, three = (np.load(data / f"{name}.npz") for name in ("cat", "shaw", "three"))
    for name, x in (("q", Q), ("k", K), ("v", V)):
        np.testing.assert_array_equal(cat[name], x[None, None])
    layer = text.RelativeSelfAttention(8, 4, 4, max_distance=3, seed=123)
    np.testing.assert_array_equal(shaw["a_k"], layer.rel_embed.a_K)
    np.testing.assert_array_equal(shaw["a_v"], layer.rel_embed.a_V)
    np.testing.assert_allclose(shaw["q"][0, 0], np.random.RandomState(42).randn(6, 8) @ layer.W_q, atol=1e-14)
    row = relpos.explain(three["q"], three["k"], three["v"], query=1,
                         rope=relpos.RoPE(dim=2, positions=three["angles"]))
    np.testing.assert_array_equal(np.round(row.scaled, 3), [-0.354, 0.707, 0.966])


def test_torch_is_not_imported():
    code = "import sys, relpos.numpy; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code]).returncode == 0


def test_one_head_needs_no_axes():
    """(L, D) means (1, 1, L, D), and results omit the same axes."""
    full = [x[None, None] for x in (Q, K, V)]
    options = dict(bias=relpos.LogDecay(0.3), causal=True, mask=np.tril(np.ones((5, 5), bool)))
    want = relpos.attention(*full, **options, return_weights=True, return_lse=True, summary=True)
    got = relpos.attention(Q, K, V, **options, return_weights=True, return_lse=True, summary=True)
    for x, y in zip((*got[:3], *got.summary), (*want[:3], *want.summary)):
        np.testing.assert_array_equal(x, y[0, 0])
    dout = np.ones_like(V)
    want, got = relpos.attention_backward(dout[None, None], *full,
                                          **options), relpos.attention_backward(dout, Q, K, V, **options)
    for x, y in zip(got[:3], want[:3]):
        np.testing.assert_array_equal(x, y[0, 0])
    np.testing.assert_array_equal(relpos.explain(Q, K, V, query=1).weights, relpos.explain(*full, query=1).weights)
    to = np.empty_like(V)
    assert relpos.attention(Q, K, V, **options, out=to) is to


def test_matrices_are_needed():
    with pytest.raises(ValueError, match="Q has 3 axes, expected 2"):
        text.RelativePositionBiasAttention(4).forward(Q[None], K, V)
    with pytest.raises(ValueError, match=r"q has 1 axes, expected \(B, H, L, D\), \(H, L, D\) or \(L, D\)"):
        relpos.attention(Q[0], K[0], V[0])


def test_documentation():
    found = doctest.testmod(text)
    assert found.attempted > 10 and found.failed == 0


def test_dir_lists_public_names():
    assert dir(relpos.numpy) == sorted(relpos.numpy.__all__)
