"""Draw the pictures of the terms for the documentation site. SPDX-License-Identifier: Apache-2.0"""
import matplotlib.pyplot as plt
import numpy as np
import relpos

ROOM = {"left": 0.06, "right": 0.98, "bottom": 0.14, "top": 0.92, "wspace": 0.2}


def draw(q, k, v, **options):
    """Draw the effect of the term in the options. For relval and sink, draw outputs or weights; for other terms, draw
    the scores as an image and by offset."""
    if "relval" in options:
        return _beside(_outputs(q, k, v), _outputs(q, k, v, **options))
    if "sink" in options:
        return _sink(q, k, v, **options)
    where = ""
    if "rope" in options:  # with the same vector at every position, the scores depend only on offsets
        q = k = np.ones_like(q)
        where = ", where all of q and k is 1"
    with_it, without = _scores(q, k, v, **options), _scores(q, k, v)
    added = np.where(np.isfinite(with_it), with_it - without, np.nan)
    figure, (image, curve) = plt.subplots(1, 2, figsize=(7.2, 2.9), width_ratios=(1.15, 1), gridspec_kw=ROOM)
    figure.colorbar(image.imshow(added[0], cmap="viridis"), ax=image, shrink=0.9)
    image.set(title=f"added to the scores of head 0{where}", xlabel="key", ylabel="query")
    grid = next((term.params["grid"] for term in options.values() if "grid" in getattr(term, "params", ())), None)
    if grid:
        _places(curve, added[0], *map(int, grid.split("x")))
    else:
        _curves(curve, added)


def _scores(q, k, v, **options):
    """Return the scores before the softmax, (H, Lq, Lk)."""
    rows = [[relpos.explain(q, k, v, head=h, query=i, **options).score for i in range(q.shape[2])]
            for h in range(q.shape[1])]
    return np.array(rows)


def _curves(ax, added):
    lq, lk = added.shape[1:]
    for h, matrix in enumerate(added):
        offsets = [n for n in range(1 - lq, lk) if np.isfinite(matrix.diagonal(n)).any()]
        pairs = [(n, x) for n in offsets for x in matrix.diagonal(n)]
        ax.plot(*zip(*pairs), ".", ms=1.5, alpha=0.25, color=f"C{h}", rasterized=True)
        ax.plot(offsets, [np.nanmean(matrix.diagonal(n)) for n in offsets], lw=1.2, color=f"C{h}", label=f"head {h}")
    ax.set(title="by offset: each pair, and the mean", xlabel="offset, key - query")
    ax.legend(frameon=False)


def _places(ax, matrix, rows, columns):
    """Draw the scores of one query over the grid of keys."""
    y, x = rows // 2, columns // 2
    ax.imshow(matrix[y * columns + x].reshape(rows, columns), cmap="viridis", vmin=matrix.min(), vmax=matrix.max())
    ax.plot(x, y, "s", ms=14, mfc="none", mec="white")
    ax.set(title=f"the same for the query in row {y}, column {x}", xlabel="column of the key", ylabel="row of the key")


def _outputs(q, k, v, **options):
    return relpos.attention(q, k, v, **options)[0, 0]


def _beside(without, with_it):
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.9), sharey=True, gridspec_kw=ROOM | {"wspace": 0.08})
    top = max(abs(without).max(), abs(with_it).max())
    for ax, name, array in zip(axes, ("out without it", "out with it", "difference"),
                               (without, with_it, with_it - without)):
        image = ax.imshow(array, cmap="RdBu", vmin=-top, vmax=top, aspect="auto", interpolation="none")
        ax.set(title=f"{name}, head 0", xlabel="channel")
    axes[0].set_ylabel("query")
    figure.colorbar(image, ax=axes, shrink=0.85)


def _sink(q, k, v, **options):
    without = relpos.attention(q, k, v, return_weights=True).weights[0]
    with_it = relpos.attention(q, k, v, return_weights=True, **options).weights[0]
    figure, (image, curve) = plt.subplots(1, 2, figsize=(7.2, 2.9), width_ratios=(1.15, 1), gridspec_kw=ROOM)
    figure.colorbar(image.imshow(with_it[1] - without[1], cmap="viridis"), ax=image, shrink=0.9)
    image.set(title="change of the weights of head 1", xlabel="key", ylabel="query")
    for h, weights in enumerate(with_it):
        curve.plot(weights.sum(-1), lw=1.2, color=f"C{h}", label=f"head {h}")
    curve.set(title="sum of the weights of each row", xlabel="query", ylim=(0, 1.05))
    curve.legend(frameon=False)
