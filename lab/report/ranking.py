"""Section on a sweep over learning rates: perplexity by learning rate and by the multiplier for the terms' arrays; the order of the schemes at
their best rates, with ties, or the reason why they are not ordered; and the n-gram baseline.
SPDX-License-Identifier: Apache-2.0"""
from curves import curves, perplexity_axis
from intervals import pieces
from results import mean, over, short
from sweeps import by_pieces, rises, shown, sweep, yardsticks

WITHIN = 1.1  # the schemes are ordered only if the perplexities of learned, sinusoidal and RoPE are within this factor of each other


def number(line, key):
    return float(line["experiment"].get(key, 1))


def cells(lines):
    """Return {position: {(rate, multiplier for the arrays): results of the starts}}, in ascending order of rates and multipliers."""
    found = {}
    for line in sorted(lines, key=lambda line: (number(line, "lr"), number(line, "lr_terms"))):
        found.setdefault(line["experiment"]["position"], {}).setdefault((number(line, "lr"), number(line, "lr_terms")), []).append(line)
    return found


def best(some, n):
    """Return the rate and the multiplier with the lowest mean perplexity, or None if no perplexity was measured."""
    return min((at for at in some if mean(some[at], n)), key=lambda at: mean(some[at], n), default=None)


def by_rate(grid, n):
    """Return a function that draws perplexity by learning rate, with one line for each position and multiplier."""
    def make(plt):
        figure, at = plt.subplots(figsize=(9, 4))
        for k, (what, some) in enumerate(grid.items()):
            for style, multiplier in zip(("-o", "--s", ":^"), sorted({m for _, m in some})):
                points = [(rate, *over(lines, lambda line: line["lengths"][n]["perplexity"])) for (rate, m), lines in some.items()
                          if m == multiplier and mean(lines, n)]
                if not points:
                    continue
                x, middle, low, high = zip(*points)
                at.plot(x, middle, style, markersize=3, color=f"C{k}", label=short(what) + (f", arrays × {multiplier:g}" if multiplier != 1 else ""))
                at.fill_between(x, low, high, alpha=0.15, color=f"C{k}")
        found = [line["lengths"][n]["perplexity"] for some in grid.values() for lines in some.values() for line in lines if line["lengths"][n]["perplexity"]]
        perplexity_axis(plt, at, min(found), max(found))
        at.set_xscale("log", base=2)
        at.set_xticks(sorted({rate for some in grid.values() for rate, _ in some}))
        at.xaxis.set_minor_locator(plt.NullLocator())
        at.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        at.set_xlabel("learning rate")
        at.set_ylabel("perplexity")
        at.grid(alpha=0.3, which="both")
        at.legend(fontsize=7)
        figure.tight_layout()
        return figure
    return make


def why_no_order(chosen, n, counts):
    """Return a text that says why the schemes are not ordered, or None if they are ordered."""
    reached = {what: mean(chosen[what], n) for what in ("learned", "sinusoidal", "rope") if what in chosen}
    if len(reached) < 3:
        return "learned, sinusoidal and RoPE have not all been trained"
    ends = ", ".join(f"{what} {x:.2f}" for what, x in reached.items())
    if max(reached.values()) > WITHIN * min(reached.values()):
        return f"learned, sinusoidal and RoPE do not end within {100 * (WITHIN - 1):.0f} % of each other at the trained length ({ends}), so differences still show how fast each is learned"
    three = next((x["perplexity"] for x in counts if x["order"] == 3), None)
    plain = mean(chosen["none"], n) if "none" in chosen else None
    if plain and three and plain > three:
        return f"without positions the model ends at {plain:.2f}, above counts of three bytes ({three:.2f}): it does not distinguish earlier bytes yet"
    losses = {what: pieces(lines, n) for what, lines in chosen.items()}
    if None in losses.values() or len({len(some) for some in losses.values()}) != 1:
        return "the results have no losses of pieces (eval_pieces)"
    return None


def differ(lines):
    """Return the keys in which experiments differ, except the rates, the position and the seed."""
    found = [line["experiment"] for line in lines]
    return [k for k in dict.fromkeys(k for some in found for k in some)
            if k not in ("position", "lr", "lr_terms", "seed") and len({some.get(k) for some in found}) > 1]


def ranked(page, lines):
    if differ(lines):
        page.text(f"These experiments differ in {', '.join(differ(lines))} too, so they are not grouped by rate.")
        sweep(page, "ranking", lines)
        return
    lengths = [x["length"] for x in lines[0]["lengths"]]
    trained = int(lines[0]["experiment"]["length"])
    n = lengths.index(trained) if trained in lengths else 0
    grid = cells(lines)
    rates = {what: best(some, n) for what, some in grid.items()}
    chosen = {what: grid[what][at] for what, at in rates.items() if at}
    columns = sorted({at for some in grid.values() for at in some})
    counts = lines[0].get("ngrams", [])
    page.text(f"Perplexity at {lengths[n]:,} by learning rate and, if it is not 1, the multiplier for the terms' arrays: means over the starts, with the smallest and the largest in brackets. "
              "An asterisk marks the best rate of each scheme.")

    def cell(what, at):
        found = grid[what].get(at)
        return "" if not found else shown(over(found, lambda line: line["lengths"][n]["perplexity"])) + " *" * (at == rates[what])

    page.table(["", *[f"{rate:g}" + (f" × {m:g}" if m != 1 else "") for rate, m in columns]], [[short(what), *[cell(what, at) for at in columns]] for what in grid])
    starts = [len(some) for by_at in grid.values() for some in by_at.values()]
    if len(set(starts)) > 1:
        page.text(f"The sweep is not complete: cells have {min(starts)} to {max(starts)} starts.")
    if counts:
        page.text("On the same bytes, n-grams of " + ", ".join(f"{x['order']}" for x in counts) + " bytes have the perplexity " + ", ".join(f"{x['perplexity']:.2f}" for x in counts) + ".")
    if any(mean(some, n) for by_at in grid.values() for some in by_at.values()):
        page.picture(by_rate(grid, n), f"perplexity at {lengths[n]} by the learning rate")
    why = why_no_order(chosen, n, counts)
    if why:
        page.text(f"The schemes are not ordered here: {why}.")
    else:
        page.text("Each scheme at its best rate, which was chosen on the same text.")
        by_pieces(page, {f"{short(what)}, {at[0]:g}" + f" × {at[1]:g}" * (at[1] != 1): chosen[what] for what, at in rates.items() if at}, lengths, n)
    if len(lengths) > 1 and chosen:
        groups = {short(what): some for what, some in chosen.items()}
        page.text(f"Perplexity of each scheme at its best rate at all lengths, and its rise from {lengths[0]:,} on.")
        page.table(["", *[f"{x:,}" for x in lengths]],
                   [[what, *[shown(over(some, lambda line, k=k: line["lengths"][k]["perplexity"])) for k in range(len(lengths))]] for what, some in groups.items()]
                   + yardsticks(lines, len(lengths)))
        page.table(["", *[f"{x:,}" for x in lengths[1:]]], rises(groups, {}, lengths))
        page.picture(curves(groups, lambda line: [x["length"] for x in line["lengths"]], lambda line: [x["perplexity"] for x in line["lengths"]],
                            "length of the window", "perplexity"), "perplexity by the length of the window")
