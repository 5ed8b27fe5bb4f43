"""The section of a sweep over rates: perplexity by the learning rate and by the rate of the arrays, the order of the schemes at the best of them, with ties, and when
there is no order to show. Beside them, what counts of bytes reach.
SPDX-License-Identifier: Apache-2.0"""
from curves import curves, perplexity_axis
from intervals import pieces
from results import mean, over, short
from sweeps import by_pieces, rises, shown, sweep, yardsticks

WITHIN = 1.1  # learned, sinusoidal and RoPE have to end within so much of each other


def number(line, key):
    return float(line["experiment"].get(key, 1))


def cells(lines):
    """{position: {(rate, multiplier of the arrays' rate): its starts}}, both in order."""
    found = {}
    for line in sorted(lines, key=lambda line: (number(line, "lr"), number(line, "lr_terms"))):
        found.setdefault(line["experiment"]["position"], {}).setdefault((number(line, "lr"), number(line, "lr_terms")), []).append(line)
    return found


def best(some, n):
    """The rate and the multiplier of the lowest mean perplexity; None where there is none."""
    return min((at for at in some if mean(some[at], n)), key=lambda at: mean(some[at], n), default=None)


def by_rate(grid, n):
    """Perplexity by the rate, a line for each position and multiplier."""
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
    """Why the schemes are not ordered, as text; None where they are."""
    reached = {what: mean(chosen[what], n) for what in ("learned", "sinusoidal", "rope") if what in chosen}
    if len(reached) < 3:
        return "learned, sinusoidal and RoPE have not all been trained"
    ends = ", ".join(f"{what} {x:.2f}" for what, x in reached.items())
    if max(reached.values()) > WITHIN * min(reached.values()):
        return f"learned, sinusoidal and RoPE do not end within {100 * (WITHIN - 1):.0f} % of each other at the trained length ({ends}), so what is left is how fast each is learned"
    three = next((x["perplexity"] for x in counts if x["order"] == 3), None)
    plain = mean(chosen["none"], n) if "none" in chosen else None
    if plain and three and plain > three:
        return f"without positions the model ends at {plain:.2f}, above counts of three bytes ({three:.2f}): it does not tell earlier bytes apart yet"
    losses = {what: pieces(lines, n) for what, lines in chosen.items()}
    if None in losses.values() or len({len(some) for some in losses.values()}) != 1:
        return "the results have no losses of pieces (eval_pieces)"
    return None


def differ(lines):
    """The keys, beside the rates, the position and the seed, in which experiments differ."""
    found = [line["experiment"] for line in lines]
    return [k for k in dict.fromkeys(k for some in found for k in some)
            if k not in ("position", "lr", "lr_terms", "seed") and len({some.get(k) for some in found}) > 1]


def ranked(page, lines):
    if differ(lines):
        page.text(f"These experiments differ in {', '.join(differ(lines))} too, so they are not put together by their rates.")
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
    page.text(f"Perplexity at {lengths[n]:,} by the learning rate and, where it is not 1, the multiplier of the arrays' rate; means over the starts, with the smallest and the largest. "
              "The best of each scheme is marked with an asterisk.")

    def cell(what, at):
        found = grid[what].get(at)
        return "" if not found else shown(over(found, lambda line: line["lengths"][n]["perplexity"])) + " *" * (at == rates[what])

    page.table(["", *[f"{rate:g}" + (f" × {m:g}" if m != 1 else "") for rate, m in columns]], [[short(what), *[cell(what, at) for at in columns]] for what in grid])
    starts = [len(some) for by_at in grid.values() for some in by_at.values()]
    if len(set(starts)) > 1:
        page.text(f"The sweep is not complete: cells have {min(starts)} to {max(starts)} starts.")
    if counts:
        page.text("Counts of " + ", ".join(f"{x['order']}" for x in counts) + " bytes reach " + ", ".join(f"{x['perplexity']:.2f}" for x in counts) + " on the same bytes.")
    if any(mean(some, n) for by_at in grid.values() for some in by_at.values()):
        page.picture(by_rate(grid, n), f"perplexity at {lengths[n]} by the learning rate")
    why = why_no_order(chosen, n, counts)
    if why:
        page.text(f"The schemes are not ordered here: {why}.")
    else:
        page.text("Each scheme at its best rate, which the same text chose.")
        by_pieces(page, {f"{short(what)}, {at[0]:g}" + f" × {at[1]:g}" * (at[1] != 1): chosen[what] for what, at in rates.items() if at}, lengths, n)
    if len(lengths) > 1 and chosen:
        groups = {short(what): some for what, some in chosen.items()}
        page.text(f"At the best rate of each, the perplexity at other lengths, and how much it rises from {lengths[0]:,} on.")
        page.table(["", *[f"{x:,}" for x in lengths]],
                   [[what, *[shown(over(some, lambda line, k=k: line["lengths"][k]["perplexity"])) for k in range(len(lengths))]] for what, some in groups.items()]
                   + yardsticks(lines, len(lengths)))
        page.table(["", *[f"{x:,}" for x in lengths[1:]]], rises(groups, {}, lengths))
        page.picture(curves(groups, lambda line: [x["length"] for x in line["lengths"]], lambda line: [x["perplexity"] for x in line["lengths"]],
                            "length of the window", "perplexity"), "perplexity by the length of the window")
