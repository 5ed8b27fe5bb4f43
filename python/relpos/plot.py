"""Pictures of terms and results: with matplotlib, and as HTML for notebooks, which needs no other package.

    >>> import numpy as np, relpos
    >>> from relpos import plot                                                                   # doctest: +SKIP
    >>> q = k = v = np.ones((1, 2, 4, 8))
    >>> result = relpos.attention(q, k, v, bias=relpos.ALiBi(), return_weights=True, summary=True)
    >>> plot.attention(result, ["the", "cat", "sat", "down"], head=1)                             # doctest: +SKIP

Each function draws into `ax`, or into a new figure, and returns the axes.

SPDX-License-Identifier: Apache-2.0"""
from __future__ import annotations

import base64
import html
import struct
import zlib
from typing import Any, Sequence

import numpy as np

import relpos

# max number of heads that a notebook shows, and max pixels per side of a picture; larger arrays are subsampled
_MOST = 8, 192
_COLORS = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]])  # viridis, roughly


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as why:
        raise ImportError("plots need matplotlib: pip install matplotlib") from why
    return plt.subplots()[1]


def _array(x: Any) -> np.ndarray:
    return np.asarray(x.detach() if hasattr(x, "detach") else x, dtype=float)


def _field(result: Any, name: str, argument: str) -> Any:
    """Return a field of a Result. Return any other object unchanged."""
    if not isinstance(result, relpos.Result):
        return result
    if getattr(result, name) is None:
        raise ValueError(f"the result has no {name}; pass {argument}=True to relpos.attention")
    return getattr(result, name)


def attention(result: Any, tokens: Sequence[Any] | None = None, *, k_tokens: Sequence[Any] | None = None, head: int = 0,
              batch: int = 0,
              ax: Any = None) -> Any:
    """Draw the weights of one head. `result` is a Result with weights or an array (B, H, Lq, Lk), which may omit its
    first axes. `tokens` label the queries, and `k_tokens`, by default the same, label the keys."""
    weights = _array(_field(result, "weights", "return_weights"))
    weights = weights.reshape((1,) * max(0, 4 - weights.ndim) + weights.shape)[batch, head]
    k_tokens = tokens if k_tokens is None else k_tokens
    for name, labels, length in (("tokens", tokens, weights.shape[0]), ("k_tokens", k_tokens, weights.shape[1])):
        if labels is not None and len(labels) != length:
            raise ValueError(f"{name}: {len(labels)} labels for {length} "
                             f"{'queries' if name == 'tokens' else 'keys; pass k_tokens'}")
    ax = _axes(ax)
    ax.figure.colorbar(ax.imshow(weights, cmap="viridis", vmin=0), ax=ax)
    ax.set(xlabel="key", ylabel="query", title=f"weights of head {head}")
    if tokens is not None:
        ax.set_yticks(range(len(tokens)), map(str, tokens))
    if k_tokens is not None:
        ax.set_xticks(range(len(k_tokens)), map(str, k_tokens), rotation=90)
    return ax


def profile(result: Any, *, batch: int = 0, q_offset: int = 0, ax: Any = None) -> Any:
    """Draw the mean weight of each offset key - query, with one line per head. `result` is a Result with summary=True,
    or its Summary."""
    summary = _field(result, "summary", "summary")
    lines, rows = _array(summary.profile), _array(summary.entropy)
    lines = lines.reshape((1,) * max(0, 3 - lines.ndim) + lines.shape)[batch]
    ax = _axes(ax)
    offsets = np.arange(lines.shape[-1]) - (rows.shape[-1] - 1) - q_offset
    for head, line in enumerate(lines):
        ax.plot(offsets, line, label=f"head {head}")
    ax.set(xlabel="key - query", ylabel="mean weight")
    ax.legend()
    return ax


def rope(term: Any, length: int = 128, *, dim: int | None = None, ax: Any = None) -> Any:
    """Draw <q, k> for two vectors of ones rotated by RoPE, for each offset from 0 to length - 1, divided by its value
    at offset 0."""
    if not isinstance(term, relpos.RoPE):
        raise TypeError(f"term is of type {type(term).__name__}, expected relpos.RoPE")
    ones = np.ones((1, 1, length, dim or term.params["dim"] or 64))
    scaled = relpos.explain(ones, ones, ones, query=0, rope=term, scale=1.0).scaled
    ax = _axes(ax)
    ax.plot(np.arange(length), scaled / scaled[0])
    ax.set(xlabel="key - query", ylabel="product", title=repr(term))
    return ax


# ---------------------------------------------------------------------------------------------- in a notebook

def _png(array: np.ndarray) -> bytes:
    """Encode an array as a PNG. The colors range from the smallest to the largest finite value; NaN and infinity are
    white."""
    step = -(-max(array.shape) // _MOST[1])
    array = array[::step, ::step]
    finite = np.isfinite(array)
    low, high = (array[finite].min(), array[finite].max()) if finite.any() else (0, 0)
    at = np.where(finite, (array - low) / ((high - low) or 1), 0) * (len(_COLORS) - 1)
    colors = [np.interp(at, range(len(_COLORS)), channel) for channel in _COLORS.T]
    pixels = np.where(finite[..., None], np.stack(colors, -1), 255).astype(np.uint8)
    rows = np.insert(pixels.reshape(len(pixels), -1), 0, 0, axis=1).tobytes()
    parts = (b"IHDR", struct.pack(">IIBBBBB", *pixels.shape[1::-1], 8, 2, 0, 0,
                                  0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(data)) + kind + data
                                           + struct.pack(">I", zlib.crc32(kind + data))
                                           for kind, data in parts)


def _maps(title: str, array: np.ndarray, what: str = "head") -> str:
    """Return HTML with a heat map for each of the first matrices of (n, Lq, Lk)."""
    found = [f"<p><code>{html.escape(title)}</code></p>"]
    for n, matrix in enumerate(array[:_MOST[0]]):
        finite = matrix[np.isfinite(matrix)]
        label = f"{what} {n}: {finite.min():.3g} to {finite.max():.3g}" if finite.size else f"{what} {n}"
        data = base64.b64encode(_png(matrix)).decode()
        found.append(f'<figure style="display:inline-block;margin:4px"><img alt="{label}" '
                     f'style="width:160px;image-rendering:pixelated" '
                     f'src="data:image/png;base64,{data}"><figcaption><small>{label}</small></figcaption></figure>')
    if len(array) > _MOST[0]:
        found.append(f"<p><small>{len(array) - _MOST[0]} more</small></p>")
    return "".join(found)


def html_of_terms(terms: Any) -> str | None:
    """Return HTML with the biases of the terms for 32 tokens, or for the size of their grid or array. Return None if
    they are not biases."""
    parts = terms if isinstance(terms, tuple) else (terms,)
    arrays = [x.arrays[name] for x in parts for name in ("bias", "indices") if name in x.arrays]
    shapes = [array.shape for array in arrays if len(array.shape) > 1]
    grids = [(*map(int, str(x.params["grid"]).split("x")), x.params.get("extra", 0)) for x in parts
             if "grid" in x.params]
    lq, lk = shapes[0][-2:] if shapes else (grids[0][0] * grids[0][1] + grids[0][2],) * 2 if grids else (32, 32)
    for heads in ({}, {"heads": 8}):
        try:
            found = terms.matrix(lq, lk, **heads)
            return _maps(repr(terms), found.reshape(-1, *found.shape[-3:])[0])  # of batch entry 0
        except (TypeError, ValueError):
            pass
    return None


def html_of_result(result: Any) -> str:
    """Return HTML with the weights and profiles of a Result, if it has them."""
    shown = [f"{name} {'x'.join(map(str, x.shape))}" for name, x in zip(result._fields, result[:3]) if x is not None]
    found = [f"<p><code>relpos.Result: {', '.join(shown)}</code></p>"]
    if result.weights is not None:
        weights = _array(result.weights)
        found.append(_maps("weights of batch entry 0", weights.reshape(-1, *weights.shape[-3:])[0] if weights.ndim > 2
                           else weights[None]))
    if result.summary is not None:
        lines = _array(result.summary.profile)
        found.append(_maps("profile: the mean weight of each offset, from the lowest up",
                           lines.reshape(-1, 1, lines.shape[-1])))
    return "".join(found)


def html_of_explanation(row: Any) -> str:
    """Return the table of an Explanation's repr as HTML, with bars for the weights."""
    columns = {name: _array(column) for name, column in row._columns().items()}
    weights = columns["weight"]
    shown = np.sort(np.argsort(-weights, kind="stable")[:40])
    head = "".join(f"<th>{name}</th>" for name in ("key", *columns, ""))
    lines = "".join(f"<tr><td>{j}</td>" + "".join(f"<td>{column[j]:.4f}</td>" for column in columns.values()) +
                    f'<td style="min-width:160px"><div '
                    f'style="height:1em;background:#21918c;width:{160 * weights[j]:.0f}px"></div></td></tr>'
                    for j in shown)
    left = len(weights) - len(shown)
    return f"<table><tr>{head}</tr>{lines}</table><p><small>lse {row.lse:.6g}" + (
        f"; {left} keys with smaller weights are not shown" if left else "") + "</small></p>"
