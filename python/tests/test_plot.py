"""Test relpos.plot, and the HTML of terms and results in a notebook.  SPDX-License-Identifier: Apache-2.0"""
import base64
import re
import struct
import sys
import zlib

import numpy as np
import pytest
import relpos
from relpos import plot

rng = np.random.default_rng(4)
q, k, v = rng.standard_normal((3, 2, 3, 7, 8))
TERMS = {name: line for name, line in relpos._terms.EXAMPLES.items()}


def pictures(text):
    """Decode each PNG in an HTML text to pixels (rows, columns, 3)."""
    found = []
    for data in re.findall(r'src="data:image/png;base64,([^"]+)"', text):
        png, at, parts = base64.b64decode(data), 8, {}
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        while at < len(png):
            length, kind = struct.unpack(">I4s", png[at:at + 8])
            parts[kind] = png[at + 8:at + 8 + length]
            assert struct.unpack(">I", png[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + parts[kind])
            at += 12 + length
        width, height = struct.unpack(">II", parts[b"IHDR"][:8])
        rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
        assert not rows[:, 0].any()
        found.append(rows[:, 1:].reshape(height, width, 3))
    return found


@pytest.mark.parametrize("name", TERMS)
def test_a_term_in_a_notebook(name):
    """The HTML of a bias has one picture of matrix() per head. For terms without a matrix it is None, so the notebook
    shows their repr."""
    space = {"relpos": relpos, "np": np, "rng": np.random.default_rng(0)}
    term = next(iter(eval(f"dict({TERMS[name]})", space).values()))
    shown = term._repr_html_()
    shapes = {name: (2, 48, 48) for name in ("dense", "lookup", "swin", "axial")} | {"alibi": (8, 32, 32)}
    try:
        matrix = term.matrix(*shapes.get(name, (0, 32))[1:], **({"heads": 8} if name in ("alibi", "sandwich") else {}))
    except (TypeError, ValueError):
        assert shown is None and name in ("real", "band", "forget", "rope", "relkey", "relval", "sink", "xl",
                                          "axialkey", "deberta")
        return
    found = pictures(shown)
    assert len(found) == len(matrix) and found[0].shape == (*matrix.shape[1:], 3)
    for picture, numbers in zip(found, matrix):  # dark at the minimum, yellow at the maximum
        assert tuple(picture[np.unravel_index(numbers.argmin(), numbers.shape)]) == (68, 1, 84)
        if numbers.min() < numbers.max():
            assert tuple(picture[np.unravel_index(numbers.argmax(), numbers.shape)]) == (253, 231, 37)


def test_a_sum_in_a_notebook():
    both = relpos.LogDecay() + relpos.Linear(left=0.3)
    assert both._repr_html_() != relpos.LogDecay()._repr_html_() and len(pictures(both._repr_html_())) == 1


def test_what_is_not_finite_is_white_and_what_is_long_is_thinned():
    table = np.zeros((300, 1))
    table[3] = -np.inf
    picture, = pictures(relpos.Table(table.T, left=3, right=296)._repr_html_())
    assert tuple(picture[20, 20]) == (255, 255, 255) or tuple(picture[4, 4]) == (255, 255, 255)
    weights = relpos.attention(*np.ones((3, 1, 12, 400, 4)), return_weights=True)
    found = pictures(weights._repr_html_())
    assert len(found) == 8 and max(found[0].shape) <= 192 and "4 more" in weights._repr_html_()


def test_results_in_a_notebook():
    result = relpos.attention(q, k, v, return_weights=True, summary=True)
    shown = result._repr_html_()
    assert [x.shape for x in pictures(shown)] == [(7, 7, 3)] * 3 + [(1, 13, 3)] * 6 and "out 2x3x7x8" in shown
    assert pictures(relpos.attention(q, k, v, return_lse=True)._repr_html_()) == []
    assert len(pictures(relpos.attention(q[0, 0], k[0, 0], v[0, 0], return_weights=True,
                                         summary=True)._repr_html_())) == 2


def test_an_explanation_in_a_notebook():
    row = relpos.explain(*rng.standard_normal((3, 1, 1, 50, 8)), query=3, causal=True)
    shown = row._repr_html_()
    assert (shown.count("<tr>") == 41 and "10 keys with smaller weights are not shown" in shown
            and f"{row.lse:.6g}" in shown)
    assert f"<td>{row.weights[2]:.4f}</td>" in shown and "<td>-inf</td>" in shown


@pytest.fixture
def drawn():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    yield
    sys.modules["matplotlib.pyplot"].close("all")


def test_attention(drawn):
    result = relpos.attention(q, k, v, return_weights=True)
    words = [f"w{n}" for n in range(7)]
    ax = plot.attention(result, words, head=2, batch=1)
    np.testing.assert_array_equal(ax.images[0].get_array(), result.weights[1, 2])
    assert [x.get_text() for x in ax.get_xticklabels()] == words == [x.get_text() for x in ax.get_yticklabels()]
    same = plot.attention(result.weights[0], ax=ax)
    assert same is ax
    with pytest.raises(ValueError, match="tokens: 3 labels for 7 queries"):
        plot.attention(result, "abc")
    with pytest.raises(ValueError, match="k_tokens: 2 labels for 7 keys"):
        plot.attention(result, words, k_tokens="ab")
    with pytest.raises(ValueError, match="the result has no weights; pass return_weights=True"):
        plot.attention(relpos.attention(q, k, v, return_lse=True))


def test_profile(drawn):
    result = relpos.attention(q, k, v, summary=True, causal=True)
    ax = plot.profile(result, batch=1)
    for head, line in enumerate(ax.lines):
        np.testing.assert_array_equal(line.get_xdata(), range(-6, 7))
        np.testing.assert_array_equal(line.get_ydata(), result.summary.profile[1, head])
    assert len(ax.lines) == 3 and not ax.lines[0].get_ydata()[7:].any()  # causal: no weight after the query
    later = relpos.attention(q[:, :, :2], k, v, summary=True, q_offset=5, causal=True)
    assert list(plot.profile(later.summary, q_offset=5).lines[0].get_xdata()) == list(range(-6, 2))


def test_a_term_of_several_batch_entries(drawn):
    with pytest.raises(ValueError, match=r"^plot: relpos.ALiBi\(.*\) has 2 batch entries"):
        relpos.ALiBi(np.ones((2, 4))).plot(4)
    assert relpos.ALiBi(np.ones((2, 4)))._repr_html_().count("<figure") == 4


def test_rope(drawn):
    angles = 10000.0 ** (-np.arange(0, 8, 2) / 8)
    line = plot.rope(relpos.RoPE(), 30, dim=8).lines[0]
    np.testing.assert_allclose(line.get_ydata(), np.cos(np.outer(np.arange(30), angles)).mean(1), atol=1e-12)
    with pytest.raises(TypeError, match="term is of type ALiBi, expected relpos.RoPE"):
        plot.rope(relpos.ALiBi())


@pytest.mark.parametrize("call", [lambda: plot.attention(np.ones((2, 2))), lambda: plot.rope(relpos.RoPE()),
                                  lambda: plot.profile(relpos.attention(q, k, v, summary=True))])
def test_without_matplotlib(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        call()
