"""Section on a sweep: a table, the rise of perplexity with the length, and curves. Also the warning at the top of pages
that compare position schemes.
SPDX-License-Identifier: Apache-2.0"""
from claims import CLAIMS, LENGTHS
from curves import curves, position_map
from results import grouped, mean, over


def shown(found, digits=3):
    if found is None:
        return "none"
    mean, low, high = found
    return f"{mean:.{digits}f}" if low == high else f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def preliminary_of(lines):
    """Return the first sentence of the warning above results that compare position schemes, or None if there is only
    one scheme."""
    rates = {}
    for line in lines:
        some = line["experiment"]
        rates.setdefault(some["position"], set()).add(some.get("lr"))
    if len(rates) < 2:
        return None
    if len(set.union(*rates.values())) == 1:
        return "Preliminary: one learning rate for all, undertrained"
    return ("Preliminary: "
            f"{'one learning rate' if all(len(found) == 1 for found in rates.values()) else 'few learning rates'} for "
            "each, undertrained")


def preliminary(words):
    """Return the warning at the top of a page that compares position schemes. `words` is a result of preliminary_of."""
    return (f"{words}. The models are small and were trained for few steps. The tables show the results of this "
            "training; they do not rank positions, "
            "because another rate may change the order.")


def rise(lines, n):
    """Return a text that says by how much the mean perplexity at the n-th length is above the one at the first
    length."""
    first, then = mean(lines, 0), mean(lines, n)
    return f"{100 * (then / first - 1):+.1f} %" if first and then else "none"


def printed_rise(theirs, n):
    """Return the rise from the first of the printed perplexities to the n-th; "" without them."""
    return "" if not theirs else "infinite" if not theirs[n] else f"{100 * (theirs[n] / theirs[0] - 1):+.0f} %"


def rises(groups, claims, lengths):
    """Return table rows with the rise of each group beyond the first length, and the rise that a tutorial claims, if
    any."""
    rows = []
    for what, lines in groups.items():
        row = [what]
        for n in range(1, len(lengths)):
            theirs = claims.get(what, ())
            row.append(rise(lines, n) + (f" (claimed {printed_rise(theirs, n)})" if n < len(theirs) else ""))
        rows.append(row)
    return rows


def beside_print(page, groups, lengths):
    """Add a table of published rises of perplexity beyond the trained length, beside the rises measured at the same
    multiples of that length."""
    measured = {what: lines for what, lines in groups.items() if any(what in some for some in LENGTHS.values())}
    multiples = [m for m in (2, 4, 8) if m * lengths[0] in lengths]
    if not measured or not multiples:
        return

    def cell(lines, n):
        ends = [line["lengths"][n]["perplexity"] / line["lengths"][0]["perplexity"] for line in lines
                if line["lengths"][n]["perplexity"]]
        return rise(lines, n) + (f" ({100 * (min(ends) - 1):+.1f} to {100 * (max(ends) - 1):+.1f})" if len(ends)
                                 == len(lines) > 1 else "")

    some = next(iter(measured.values()))[0]
    page.heading("Beside published numbers", 3)
    page.text("The rise of perplexity beyond the trained length. The printed columns are from a text that does not "
              "name its models, texts or numbers of starts, and its two tables "
              "do not agree with each other. The measured columns are at the same multiples of the length, for models "
              f"of {some['weights']:,} weights trained at {lengths[0]:,} bytes, with the smallest and "
              "the largest of the starts in brackets.")
    rows = []
    for what, lines in measured.items():
        row = [what]
        for m in multiples:
            row += [printed_rise(table.get(what), (1, 2, 4, 8).index(m)) for table in LENGTHS.values()]
            row.append(cell(lines, lengths.index(m * lengths[0])))
        rows.append(row)
    page.table(["", *[head for m in multiples for head in (*[f"{m} ×, printed for {of:,}" for of in LENGTHS],
                                                           f"{m} ×, measured")]], rows)


def yardsticks(lines, columns):
    """Return table rows of the n-gram baseline with `columns` equal cells, or [] if the results have no common
    baseline."""
    counts = lines[0].get("ngrams", [])
    if any(line.get("ngrams") != counts for line in lines):
        return []
    return [[f"counts of {x['order']} byte{'s' * (x['order'] > 1)}", *[f"{x['perplexity']:.3f}"] * columns]
            for x in counts]


def sweep(page, stem, lines):
    groups = grouped(lines)
    lengths = [x["length"] for x in lines[0]["lengths"]]
    longest = max(range(len(lengths)), key=lambda n: lengths[n])
    claim, claims = CLAIMS.get(stem, (None, {}))
    measure = "accuracy" if "accuracy" in lines[0]["lengths"][0] else "perplexity"
    starts = sorted({len(g) for g in groups.values()})
    page.text(f"Means over {' or '.join(map(str, starts))} starts, with the smallest and the largest in brackets."
              if starts != [1] else "One start for each row.")
    page.table(["", *["starts"] * (len(starts) > 1), *[f"{measure} at {n:,}" for n in lengths], "weights of positions"],
               [[what, *[len(g)] * (len(starts) > 1), *[shown(over(g, lambda line, n=n: line["lengths"][n][measure]))
                                                        for n in range(len(lengths))],
                 f"{g[0]['position_weights']:,}"] for what, g in groups.items()]
               + [[what, *[""] * (len(starts) > 1), *cells, ""] for what, *cells in yardsticks(lines, len(lengths))])
    if len(lengths) > 1 and measure == "perplexity":
        page.text(f"Rise of the mean perplexity from {lengths[0]:,} "
                  f"on{'; brackets have printed numbers from other sources' if claims else ''}.")
        page.table(["", *[f"{n:,}" for n in lengths[1:]]], rises(groups, claims, lengths))
    if claim:
        page.text(f"Printed in other sources, for other models and texts: {claim}.")
    if stem == "length" and measure == "perplexity":
        beside_print(page, groups, lengths)
    if len(lengths) > 1 and any(x[measure] is not None for line in lines for x in line["lengths"]):
        page.picture(curves(groups,
                            lambda line: [x["length"]
                                          for x in line["lengths"]], lambda line: [x[measure] for x in line["lengths"]],
                            "length of the window", measure, preliminary_of(lines)),
                     f"{measure} by the length of the window")
    mapped = {what: g for what, g in groups.items() if all(len(line["lengths"][longest].get("positions", [])) > 1
                                                           for line in g)}
    if page.path and mapped:
        page.text(f"By position in windows of {lengths[longest]:,}:")
        page.picture(position_map(mapped, longest, preliminary_of(lines)),
                     f"perplexity by position in windows of {lengths[longest]}")
