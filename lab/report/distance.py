"""Section on T5 tables: how perplexity beyond the trained length depends on the ratio of max_distance to that length.
SPDX-License-Identifier: Apache-2.0"""
import math
import statistics

from intervals import interval
from results import counted


def max_distance(line):
    found = [p.partition("=")[2] for p in line["experiment"]["position"].split(",") if p.startswith("max_distance=")]
    return int(found[0]) if found else 128


def rise(line, times):
    """Return log(perplexity at `times` times the trained length / perplexity at the trained length), or None if either was not measured."""
    at = {x["length"]: x["perplexity"] for x in line["lengths"]}
    trained = int(line["experiment"]["length"])
    return math.log(at[trained * times] / at[trained]) if at.get(trained) and at.get(trained * times) else None


def percent(values):
    if not values or None in values:
        return ""
    if len(values) < 2:
        return f"{100 * math.expm1(values[0]):+.1f} %"
    middle, half = interval(values)
    return f"{100 * math.expm1(middle):+.1f} % ({100 * math.expm1(middle - half):+.1f} to {100 * math.expm1(middle + half):+.1f})"


def by_ratio(page, lines):
    times = [2, 4, 8, 16]
    groups = {}
    for line in lines:
        groups.setdefault((max_distance(line) / int(line["experiment"]["length"]), int(line["experiment"]["length"])), []).append(line)
    times = [t for t in times if any(rise(line, t) is not None for line in lines)]
    starts = sorted({len(g) for g in groups.values()})
    page.table(["max_distance / trained length", "max_distance", "trained at", "perplexity there", *[f"{t} ×" for t in times]],
               [[f"{ratio:g}", f"{max_distance(g[0])}", f"{length}", f"{statistics.mean(next(x['perplexity'] for x in line['lengths'] if x['length'] == length) for line in g):.3f}",
                 *[percent([rise(line, t) for line in g]) for t in times]] for (ratio, length), g in sorted(groups.items())],
               "T5 tables of 32 buckets, ordered by max_distance / trained length. All lengths predict the same bytes. The columns 2 ×, 4 × and so on show by how much the perplexity in windows that many "
               f"times as long is above the perplexity at the trained length; means over {' or '.join(map(counted, starts))}, with 95 % intervals over the starts.")
    if not times:
        return

    def make(plt):
        figure, at = plt.subplots(figsize=(7, 4))
        for k, length in enumerate(sorted({length for _, length in groups})):
            for style, t in zip(("-o", "--s", ":^", "-.x"), times):
                points = sorted((ratio, 100 * math.expm1(statistics.mean(rise(line, t) for line in g))) for (ratio, n), g in groups.items()
                                if n == length and None not in [rise(line, t) for line in g])
                if points:
                    at.plot(*zip(*points), style, markersize=3, color=f"C{k}", label=f"trained at {length}, read at {t} ×")
        at.set_xscale("log", base=2)
        at.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        at.set_xlabel("max_distance / trained length")
        at.set_ylabel("perplexity, % above the trained length")
        at.axhline(0, color="black", linewidth=0.5)
        at.grid(alpha=0.3)
        at.legend(fontsize=7)
        figure.tight_layout()
        return figure
    page.picture(make, "perplexity beyond the trained length by max_distance over that length")
