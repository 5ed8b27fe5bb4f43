"""Draw the plots of docs/performance-tables.md from bench/results/peers.json, finetune.json, growth.json and t5.json.
Needs matplotlib (bench/setup.sh).

    build/venv/bin/python bench/plots.py [png]     png: also write PNG files to build/plots
SPDX-License-Identifier: Apache-2.0
"""
import math
import statistics
import sys

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from report import GROWTH, groups, growth, load, power, ratio, root, t5, training

matplotlib.use("Agg")
plt.rcParams |= {"svg.hashsalt": "relpos", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9,
                 "axes.titlesize": 9.5,
                 "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e0e0e0",
                 "lines.linewidth": 1.6,
                 "lines.markersize": 5, "legend.frameon": False, "figure.constrained_layout.use": True}
# The colours are Okabe and Ito's. For readers who cannot distinguish them, each line also has a different
# marker.
STYLE = {"relpos": ("#000000", "o", "-"), "relpos avx512": ("#000000", "o", ":"),
         "SDPA": ("#0072b2", "s", "-"), "SDPA, bias built before": ("#0072b2", "s", "-"),
         "SDPA, bias built in the call": ("#56b4e9", "D", "--"),
         "SDPA, bias as a view of a strip": ("#009e73", "^", "-."),
         "eager": ("#d55e00", "v", "-"), "eager, mask built before": ("#d55e00", "v", "-"),
         "eager, bias built before": ("#d55e00", "v", "-"),
         "eager, bias built in the call": ("#e69f00", "<", "--"), "flex_attention": ("#cc79a7", "P", "-"),
         "ONNX Runtime, Attention": ("#7f7f7f", "X", "-"), "ONNX Runtime, MultiHeadAttention": ("#7f7f7f", "X", "--"),
         "ONNX Runtime, MatMul": ("#7f7f7f", "X", ":")}
GROWTH_STYLE = {"none": ("#7f7f7f", "s"), "t5": ("#0072b2", "D"), "alibi": ("#d55e00", "v"), "forget": ("#000000", "o")}
T5_STYLE = {"relpos f32": ("#000000", "o", "-"), "relpos int8": ("#000000", "o", ":"),
            "relpos bf16": ("#000000", "o", "--"),
            "CTranslate2 float32": ("#0072b2", "s", "-"), "CTranslate2 int8": ("#56b4e9", "D", "--"),
            "transformers f32": ("#d55e00", "v", "-")}
SAME = {"SDPA, bias built before": "SDPA", "eager, bias built before": "eager", "eager, mask built before": "eager"}


def style(name):
    color, mark, line = STYLE.get(name, ("#7f7f7f", ".", ":"))
    return {"color": color, "marker": mark, "linestyle": line}


def lengths(ax, ns):
    ax.set_xscale("log", base=2)
    ax.set_xticks(ns, [f"{n:,}" if n < 1024 else f"{n // 1024}k" for n in ns])
    ax.xaxis.set_minor_locator(NullLocator())


def log_axis(ax, unit=""):
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}{unit}" if y < 1000 else f"{y:,.0f}{unit}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def save(fig, name, axes, columns=2):
    """Save a figure with one legend for all axes. A peer with a bias built before and the same peer without a bias
    share an entry."""
    handles, before = {}, set()
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            handles.setdefault(SAME.get(label, label), handle)
            before |= {SAME[label]} if label in SAME else set()
    fig.legend(handles.values(), [n + " (a bias built before)" * (n in before) for n in handles],
               loc="outside lower center", ncols=columns)
    (root / "docs/performance").mkdir(exist_ok=True)
    fig.savefig(root / f"docs/performance/{name}.svg", metadata={"Date": None})
    if "png" in sys.argv[1:]:
        (root / "build/plots").mkdir(parents=True, exist_ok=True)
        fig.savefig(root / f"build/plots/{name}.png", dpi=100)


def speedups(data, name, panels, shape, size, columns):
    fig, axes = plt.subplots(*shape, figsize=size, sharey=True, squeeze=False)
    by = groups(data["rows"])
    for ax, key in zip(axes.flat, panels):
        rows = by.get(key, [])
        shown = [n for n in STYLE if n in {m for r in rows for m in r["times"]} and not n.startswith("relpos")]
        if any(n.startswith("ONNX") for n in shown):  # show only the fastest of the three at the greatest length
            onnx = [n for n in shown if n.startswith("ONNX")]
            last = [r for r in rows if all(n in r["times"] for n in onnx)][-1]
            best = min(onnx, key=lambda n: ratio(last, n))
            shown = [n for n in shown if n not in onnx or n == best]
        for peer in shown:
            points = [(r["n"], ratio(r, peer)) for r in rows if peer in r["times"]]
            ax.plot(*zip(*points), label="ONNX Runtime (its fastest)" if peer.startswith("ONNX") else peer,
                    **style("ONNX Runtime, Attention" if peer.startswith("ONNX") else peer))
        ax.axhline(1, color="black", linewidth=1.4, label="relpos")
        ax.set_title(f"{key[2]}, {key[1]}")
        lengths(ax, [r["n"] for r in rows])
        log_axis(ax, " ×")
    for ax in axes[-1]:
        ax.set_xlabel("N, queries and keys")
    for row in axes:
        row[0].set_ylabel("time of the peer / time of relpos")
    save(fig, name, list(axes.flat), columns)


def rate(data):
    """Plot the operations per second of relpos and SDPA, and the measured peak."""
    m, by = data["machine"], groups(data["rows"])
    fig, ax = plt.subplots(figsize=(7, 4))
    lines = [("forward", "no bias", "relpos", "#000000", "o", "-"),
             ("forward", "T5 table", "relpos", "#d55e00", "v", "-"),
             ("forward", "T5 table, causal", "relpos", "#cc79a7", "P", "-"),
             ("forward and backward", "T5 table", "relpos", "#009e73", "^", "-"),
             ("forward", "no bias", "SDPA", "#0072b2", "s", "--"),
             ("forward", "T5 table", "SDPA, bias built before", "#56b4e9", "D", "--"),
             ("forward and backward", "T5 table", "SDPA, bias built in the call", "#7f7f7f", "X", "--")]
    for passes, case, peer, color, mark, line in lines:
        rows = [r for r in by.get((passes, "f32", case), []) if peer in r["times"]]
        if rows:
            ax.plot([r["n"] for r in rows], [r["flops"] / r["times"][peer]["ms"] * 1e-6 for r in rows], color=color,
                    marker=mark, linestyle=line,
                    label=f"{peer.split(',')[0]}: {case}{', ' + passes if passes != 'forward' else ''}")
    lengths(ax, sorted({r["n"] for r in by["forward", "f32", "no bias"]}))
    peak = m["peak_gflops"][m["isa"]][str(m["threads"])]
    ax.axhline(peak, color="black", linewidth=1.2)
    ax.text(0.01, peak, f"measured peak of {m['isa']}: {peak:.0f} GFLOP/s", transform=ax.get_yaxis_transform(),
            va="bottom", fontsize=8)
    ax.set(ylim=(0, peak * 1.12), xlabel="N, queries and keys", ylabel="GFLOP/s")
    ax.secondary_yaxis("right", functions=(lambda y: 100 * y / peak, lambda y: y * peak / 100)).set_ylabel(
        "share of the peak, %")
    save(fig, "rate", [ax], 2)


def memory(data):
    fig, axes = plt.subplots(1, 2, figsize=(7, 4), sharey=True)
    for ax, passes, title in zip(axes, ("fwd", "fwdbwd"),
                                 ("forward, T5 table, f32", "forward and backward, T5 table, f32")):
        rows = sorted((r for r in data["memory"] if r["pass"] == passes), key=lambda r: r["n"])
        for peer in STYLE:
            points = [(r["n"], r["bytes"][peer] * 1e-6) for r in rows if peer in r["bytes"]]
            if points and (not peer.startswith("ONNX") or peer.endswith("Attention") and "Multi" not in peer):
                ax.plot(*zip(*points), label=peer, **style(peer))
        lengths(ax, [r["n"] for r in rows])
        log_axis(ax)
        ax.yaxis.set_major_locator(LogLocator())
        ax.set(title=title, xlabel="N, queries and keys")
    axes[0].set_ylabel("MB over the tensors")
    save(fig, "memory", list(axes), 2)


def decode(data):
    m, by = data["machine"], groups(data["rows"])
    fig, axes = plt.subplots(1, 2, figsize=(7, 4), sharey=True)
    reads = m["bytes_per_s"][str(m["threads"])] * 1e-9
    for ax, case in zip(axes, ("decode, no bias", "decode, T5 table")):
        rows = by.get(("forward", "f32", case), [])
        for peer in STYLE:
            points = [(r["n"], r["bytes"] / r["times"][peer]["ms"] * 1e-6) for r in rows if peer in r["times"]]
            if points and (not peer.startswith("ONNX") or peer.endswith("Attention") and "Multi" not in peer):
                ax.plot(*zip(*points), label=peer, **style(peer))
        ax.axhline(reads, color="#7f7f7f", linewidth=1.2, linestyle=(0, (1, 2)), label="memory is read at this speed")
        lengths(ax, [r["n"] for r in rows])
        ax.set(title=case.removeprefix("decode, ") + ", f32", xlabel="keys, 8 heads of 64")
        ax.set_ylim(bottom=0)
    axes[0].set_ylabel("GB/s of keys and values")
    save(fig, "decode", list(axes), 2)


def models():
    data = t5()
    fig, axes = plt.subplots(1, 2, figsize=(7, 4))
    times = sorted((r for r in data["times"] if r["shape"] == "small" and not r["new"]), key=lambda r: r["source"])
    memory = sorted((r for r in data["memory"] if r["shape"] == "small"), key=lambda r: r["tokens"])
    for name, (color, mark, line) in T5_STYLE.items():
        look = {"color": color, "marker": mark, "linestyle": line, "label": name.replace("float32", "f32")}
        axes[0].plot(*zip(*((r["source"], r["source"] / statistics.median(r["seconds"][name])) for r in times)), **look)
        points = [(r["tokens"], r["bytes"][name] * 1e-6) for r in memory if name in r["bytes"]]
        if points:
            axes[1].plot(*zip(*points), **look)
    lengths(axes[0], [r["source"] for r in times])
    lengths(axes[1], [r["tokens"] for r in memory])
    log_axis(axes[1])
    axes[1].yaxis.set_major_locator(LogLocator())
    axes[0].set(xlabel="tokens of the source", ylabel="tokens a second", ylim=(0, None))
    axes[1].set(xlabel="tokens of the source", ylabel="MB over the weights")
    save(fig, "t5", list(axes), 3)


def grow():
    """Plot time by length. The number at each line is its slope at the longest lengths. Dotted lines are calls that
    compute every tile."""
    fig, axes = plt.subplots(1, 3, figsize=(9, 4.4))
    lines = growth()[1]
    for ax, passes in zip(axes, ("forward", "backward", "decode")):
        for term, (color, mark) in GROWTH_STYLE.items():
            points = lines.get((passes, term))
            if not points:
                continue
            last = points[-1][0]
            slope = power([p[:2] for p in points], 16384, last) if last > 16384 else None
            ax.plot(*zip(*((n, t) for n, t, _ in points)), color=color, marker=mark, label=GROWTH[term])
            every = [(n, t) for n, _, t in points if t and term in ("alibi", "forget")]
            if every:
                ax.plot(*zip(*every), color=color, linestyle=":", marker=mark, fillstyle="none", linewidth=1,
                        label=f"{GROWTH[term]}, every tile")
            if slope:
                ax.annotate(f"{slope:.2f}", points[-1][:2], textcoords="offset points",
                            xytext=(4, -7 * (term == "none")), fontsize=8, color=color)
        ax.set_xscale("log", base=2)
        ns = [2**e for e in range(10, 1 + int(math.log2(max(p[-1][0] for (of, _), p in lines.items() if of == passes))),
                                  2)]
        ax.set_xticks(ns, [f"{n // 1024}k" for n in ns])
        ax.xaxis.set_minor_locator(NullLocator())
        log_axis(ax)
        ax.yaxis.set_major_locator(LogLocator())
        ax.set(title="one query" if passes == "decode" else passes, xlabel="N, keys", xlim=(900, 3 * ns[-1]))
    axes[0].set_ylabel("ms, 8 heads; numbers: slope from 16k on")
    save(fig, "growth", list(axes), 3)


def train():
    fig, axes = plt.subplots(1, 3, figsize=(9, 3.4))
    for name, rows in training()[1].items():
        rows = [r for r in rows if "seconds" in r]
        look = dict(label={"sdpa": "SDPA"}.get(name, name), **style({"sdpa": "SDPA"}.get(name, name)))
        ns = [r["length"] for r in rows]
        axes[0].plot(ns, [r["seconds"] for r in rows], **look)
        axes[1].plot(ns, [(r["peak_bytes"] - r["start_bytes"]) * 1e-9 for r in rows], **look)
        axes[2].plot(range(1, 1 + len(rows[-1]["losses"])), rows[-1]["losses"],
                     **look | {"linewidth": 1, "fillstyle": "none"})
        for ax in axes[:2]:
            ax.set_xticks(ns[-3:], [f"{n:,}" for n in ns[-3:]])
            ax.set(xlabel="tokens", ylim=(0, None))
    axes[0].set_title("seconds a step")
    axes[1].set_title("GB that training adds")
    axes[2].set(title=f"loss at {rows[-1]['length']:,} tokens, step by step", xlabel="step")
    save(fig, "training", list(axes), 3)


if __name__ == "__main__":
    found = load()
    train()
    models()
    grow()
    speedups(found, "forward", [("forward", "f32", "no bias"), ("forward", "f32", "T5 table"),
                                ("forward", "f32", "T5 table, causal"),
                                ("forward", "bf16", "T5 table")], (2, 2), (7, 6.6), 2)
    speedups(found, "backward", [("forward and backward", "f32", "no bias"),
                                 ("forward and backward", "f32", "T5 table")], (1, 2), (7, 3.6), 2)
    rate(found)
    memory(found)
    decode(found)
