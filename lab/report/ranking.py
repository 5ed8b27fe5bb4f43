"""Sections on the ranking: the settings of each scheme that were tried (stages 1, 2 and 4), and the schemes at their
best settings, compared over the starts (stage 3).
SPDX-License-Identifier: Apache-2.0"""
import math
import os
import statistics

from curves import curves, perplexity_axis
from intervals import TIE, adjusted, chance, change, nats, p_value, verdict
from previous import first_heads, watched
from results import contended, mean, over, short, tokens_read
from sweeps import shown, sweep, yardsticks

# The comparisons that were chosen before the trainings of stage 3: two schemes and a length.
CONTRASTS = [("t5", "rope", 128), ("kerple", "alibi", 128), ("learned", "sinusoidal", 128), ("none", "rope", 128),
             ("t5", "rope", 512), ("kerple", "t5", 512)]
# Keys in which the settings of a scheme may differ, with their names in tables.
SETTINGS = {"lr": "", "lr_terms": "arrays × ", "sinusoidal_scale": "amplitude ", "weight_decay": "decay "}


def scheme(line):
    """Return the name of the position scheme of a result, without the base of RoPE."""
    return short(line["experiment"]["position"]).split(",base=")[0]


def setting(line):
    """Return the setting of a result: its learning rate, and the second key if it is not the default."""
    words, base = line["experiment"]["lr"], line["experiment"]["position"].partition(",base=")[2]
    for key, name in SETTINGS.items():
        if name and key in line["vary"]:
            words += f", {name}{line['vary'][key]}"
    return words + (f", base {base}" if base else "")


def of_schemes(lines):
    """Return {scheme: results}."""
    found = {}
    for line in lines:
        found.setdefault(scheme(line), []).append(line)
    return found


def by_scheme(lines):
    """Return {scheme: {setting: results of the starts}}."""
    found = {}
    for line in lines:
        found.setdefault(scheme(line), {}).setdefault(setting(line), []).append(line)
    return found


def at_length(line, length):
    return next((x for x in line["lengths"] if x["length"] == length and x["perplexity"]), None)


def differ(lines):
    """Return the keys in which experiments differ, except those of a ranking."""
    found = [line["experiment"] for line in lines]
    return [k for k in dict.fromkeys(k for some in found for k in some)
            if k not in ("position", "seed", "steps", "warmup", *SETTINGS) and len({some.get(k) for some in found}) > 1]


def counts_text(lines):
    counts = lines[0].get("ngrams", [])
    return ("On the same bytes, n-grams of " + ", ".join(f"{x['order']}" for x in counts)
            + " bytes have the perplexity " + ", ".join(f"{x['perplexity']:.2f}" for x in counts)
            + ".") if counts else ""


def busy_text(lines):
    busy = sum(map(contended, lines))
    return (f"{busy} of {len(lines)} trainings were contended by other programs: their times are not timings." if busy
            else "")


# ------------------------------------------------------------------------------------------------------------ settings

def by_rate(grid, n):
    """Return a function that draws perplexity by learning rate, with a line for each scheme and a point for each second
    setting."""
    def make(plt):
        figure, at = plt.subplots(figsize=(9, 4))
        for k, (what, some) in enumerate(grid.items()):
            points = sorted((float(lines[0]["experiment"]["lr"]), mean(lines, n), "," in words)
                            for words, lines in some.items() if mean(lines, n))
            plain = [(x, y) for x, y, other in points if not other]
            if plain:
                at.plot(*zip(*plain), "-o", markersize=3, color=f"C{k}", label=what)
                best = min(plain, key=lambda point: point[1])
                if len(plain) > 2 and best in (plain[0], plain[-1]):
                    at.annotate("edge", best, fontsize=7, color=f"C{k}", xytext=(0, -9), textcoords="offset points",
                                ha="center")
            at.plot(*zip(*[(x, y) for x, y, other in points if other] or [(math.nan, math.nan)]), "x", markersize=5,
                    color=f"C{k}")
        found = [mean(lines, n) for some in grid.values() for lines in some.values() if mean(lines, n)]
        perplexity_axis(plt, at, min(found), max(found))
        at.set_xscale("log", base=2)
        at.set_xticks(sorted({float(lines[0]["experiment"]["lr"]) for some in grid.values()
                              for lines in some.values()}))
        at.xaxis.set_minor_locator(plt.NullLocator())
        at.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        at.set_xlabel("learning rate (crosses: a second setting)")
        at.set_ylabel("perplexity")
        at.grid(alpha=0.3, which="both")
        at.legend(fontsize=7)
        figure.tight_layout()
        return figure
    return make


def unequal(grid):
    """Say which schemes read more text than the others, or nothing if all read the same."""
    read = {what: max(tokens_read(line) for some in settings.values() for line in some)
            for what, settings in grid.items()}
    if len(set(read.values())) < 2:
        return ""
    return (" Compare within a row: "
            + ", ".join(f"{' and '.join([', '.join(some[:-1]), some[-1]] if len(some) > 1 else some)} read "
                        f"{size / 1e6:.1f} MB" for size in sorted(set(read.values()))
                        for some in [[what for what in read if read[what] == size]]) + ".")


def tuned(page, lines, n):
    grid = by_scheme(lines)
    length = lines[0]["lengths"][n]["length"]
    rates = sorted({line["experiment"]["lr"] for line in lines}, key=float)
    rows, edges = [], []
    for what, some in grid.items():
        found = {words: mean(group, n) for words, group in some.items()}
        best = min((words for words in found if found[words]), key=found.get, default=None)
        plain = {words: x for words, x in found.items() if words in rates and x}
        if len(plain) > 2 and min(plain, key=plain.get) in (min(plain, key=float), max(plain, key=float)):
            edges.append(what)

        def cell(words):
            return (f"{found[words]:.3f}" + " *" * (words == best) if found.get(words) else "none" if words in found
                    else "")

        rows.append([what, *map(cell, rates),
                     "; ".join(f"{words}: {cell(words)}" for words in found if words not in rates)])
    page.table(["", *rates, "second settings"], rows,
               f"Perplexity at {length:,} by learning rate, and for second "
               "settings at one rate. An asterisk marks the best setting of a "
               "scheme. "
               "One start for each setting, so a part of each difference is that between starts. Second settings: "
               "decay is the weight decay (default 0.1), arrays the factor of the learning rate of learned arrays, "
               "amplitude that of the sinusoids (default 0.02), and base that of RoPE's angles (default 10000)."
               + unequal(grid))
    if edges:
        page.text(f"The best rate of {', '.join(edges)} is at the edge of the rates that were tried.")
    page.text(" ".join(filter(None, (counts_text(lines), busy_text(lines)))))
    if any(mean(group, n) for some in grid.values() for group in some.values()):
        page.picture(by_rate(grid, n), f"perplexity at {length} by the learning rate", "Crosses have a second setting."
                     + unequal(grid).replace("within a row", "along a line"))


# ------------------------------------------------------------------------------------------------------------ contrasts

def losses(lines, length):
    """Return {seed: loss at a length}."""
    return {line["seed"]: at_length(line, length)["loss"] for line in lines if at_length(line, length)}


def mean_loss(lines, length):
    """Return the mean loss at a length over the starts."""
    return statistics.mean(losses(lines, length).values())


def differences(lines, others, length):
    """Return the differences of the loss at a length between two groups of results, in the starts that both have."""
    first, second = losses(lines, length), losses(others, length)
    return [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]


def beyond(lines, trained, length):
    """Return the change of the loss from the trained length to another, in each start that has both."""
    return [at_length(line, length)["loss"] - at_length(line, trained)["loss"] for line in lines
            if at_length(line, length) and at_length(line, trained)]


def gate(lines, n):
    """Return why a scheme has not learned enough to be compared, or None: its loss must be below that of counts of
    three bytes, and fall at the end of the training (the last tenth against the tenth before)."""
    three = next((x["perplexity"] for x in lines[0].get("ngrams", []) if x["order"] == 3), None)
    if not mean(lines, n):
        return "it was not measured"
    if three and mean(lines, n) >= three:
        return f"its perplexity of {mean(lines, n):.2f} is not below counts of three bytes, {three:.2f}"
    for line in lines:
        found = line.get("losses", [])
        tenth = len(found) // 10
        if tenth and statistics.mean(found[-tenth:]) >= statistics.mean(found[-2 * tenth:-tenth]):
            return f"its training loss does not fall at the end (seed {line['seed']})"
    return None


def contrasts(groups):
    """Compare the schemes of CONTRASTS that have two starts or more in common. Return [(a, b, length, differences or
    None, adjusted p-value, verdict)]."""
    found = []
    for a, b, length in CONTRASTS:
        values = differences(groups.get(a, []), groups.get(b, []), length)
        found.append((a, b, length, values if len(values) > 1 else None))
    ps = adjusted([p_value(values) if values else 1.0 for *_, values in found])
    return [(a, b, length, values, p, verdict(values, p) if values else "not measured")
            for (a, b, length, values), p in zip(found, ps)]


def sources(line):
    """Return {source: indices of its pieces}, from the file names of the held-out text, or {} if there is only one
    file."""
    names = [os.path.splitext(os.path.basename(name))[0] for name in line["experiment"].get("valid", "").split()]
    counts = line.get("pieces_of_files", [])
    if len(names) < 2 or len(names) != len(counts):
        return {}
    start = os.path.commonprefix(names)
    ends = [sum(counts[:k + 1]) for k in range(len(counts))]
    return {name[len(start):]: range(end - count, end) for name, count, end in zip(names, counts, ends)}


def loss_of(pieces, chosen):
    return statistics.mean(pieces[k] for k in chosen)


def by_source(page, groups, length, lines):
    """Add the table of perplexity by source, and the contrasts without each source."""
    where = sources(lines[0])
    if not where:
        return
    every = range(sum(map(len, where.values())))
    columns = {"all": every, **where}

    def cell(group, chosen):
        return (shown(over(group, lambda line: math.exp(loss_of(at_length(line, length)["pieces"],
                                                                chosen)) if at_length(line, length) else None), 2))

    page.table(["", *(f"{name} ({counted_pieces(chosen)})" for name, chosen in columns.items())],
               [[what, *(cell(group, chosen) for chosen in columns.values())] for what, group in groups.items()]
               + [[f"counts of {x['order']} byte{'s' * (x['order'] > 1)}",
                   *(f"{math.exp(loss_of(x['pieces'], chosen)):.2f}" for chosen in columns.values())]
                  for x in lines[0].get("ngrams", []) if x["order"] in (3, 6) and "pieces" in x],
               f"Perplexity at {length:,} by source, as means over the starts, with the smallest and the largest in "
               "brackets.")

    def difference(a, b, at, chosen):
        first, second = ({line["seed"]: loss_of(at_length(line, at)["pieces"], chosen) for line in groups.get(what, [])
                          if at_length(line, at)} for what in (a, b))
        values = [first[seed] - second[seed] for seed in first.keys() & second.keys()]
        return nats(values) if values else ""

    page.table(["", *("all" if not name else f"without {name}" for name in ("", *where))],
               [[f"{a} − {b} at {at:,}", *(difference(a, b, at, [k for k in every if k not in gone])
                                           for gone in ([], *where.values()))] for a, b, at in CONTRASTS],
               "The chosen differences in nats, without one of the sources, with 95 % intervals over the starts.")


def counted_pieces(chosen):
    return f"{len(chosen)} piece{'s' * (len(chosen) != 1)}"


def loss_by_bytes(groups, counts):
    """Return a function that draws the held-out loss by the bytes that were read, with lines for counts of 3 and 6
    bytes."""
    def make(plt):
        figure, at = plt.subplots(figsize=(9, 4))
        for k, (what, group) in enumerate(groups.items()):
            each = int(group[0]["experiment"]["batch"]) * int(group[0]["experiment"]["length"])
            found = [over(group, lambda line, n=n: line["curve"][n]["loss"])
                     for n in range(min(len(line["curve"]) for line in group))]
            points = [(point["step"] * each / 1e6, *some) for point, some in zip(group[0]["curve"], found) if some]
            if points:
                x, middle, low, high = zip(*points)
                at.plot(x, middle, label=what, color=f"C{k}")
                at.fill_between(x, low, high, alpha=0.15, color=f"C{k}")
        for x in counts:
            if x["order"] in (3, 6):
                at.axhline(x["loss"], color="grey", linestyle="--", linewidth=1)
                at.annotate(f"counts of {x['order']} bytes", (0.5, x["loss"]), xycoords=("axes fraction", "data"),
                            fontsize=7, color="grey", xytext=(3, 2), textcoords="offset points")
        at.set_xlabel("MB of training text that were read")
        at.set_ylabel("held-out loss, nats per byte")
        at.grid(alpha=0.3)
        at.legend(fontsize=7)
        figure.tight_layout()
        return figure
    return make


def compared(page, lines, n):
    groups = of_schemes(lines)
    lengths = [x["length"] for x in lines[0]["lengths"]]
    counts = lines[0].get("ngrams", [])
    starts = sorted({len(group) for group in groups.values()})
    caption = ("Each scheme at the setting that was best on the selection pieces, with "
               f"{' or '.join(map(str, starts))} new starts, measured on the report pieces."
               + " The trainings are not complete." * (len(starts) > 1))
    out = {what: gate(group, n) for what, group in groups.items()}
    for what, why in out.items():
        if why:
            page.text(f"{what} is not compared: {why}.")
    six = next((x for x in counts if x["order"] == 6), None)
    above = [what for what, group in groups.items() if six and mean(group, n) and mean(group, n) > six["perplexity"]]
    which = "All schemes" if len(above) == len(groups) else ", ".join(above)
    page.text(" ".join(filter(None, (counts_text(lines), f"{which} are above counts of six bytes." if above else ""))))

    def spread(group):
        found = list(losses(group, lengths[n]).values())
        return f"{statistics.stdev(found):.3f}" if len(found) > 1 else ""

    by_loss = sorted(groups, key=lambda what: mean(groups[what], n) or math.inf)
    page.table(["", "setting", "starts", *(f"perplexity at {x:,}" for x in lengths), "deviation of the starts, nats"],
               [[what, setting(groups[what][0]), len(groups[what]),
                 *(shown(over(groups[what], lambda line, k=k: line["lengths"][k]["perplexity"]), 2)
                   for k in range(len(lengths))), spread(groups[what])]
                for what in by_loss] + [[what, "", "", *cells, ""] for what, *cells in yardsticks(lines, len(lengths))],
               caption)
    page.table(["", "at", "difference, nats", "p", "the first scheme is"],
               [[f"{a} − {b}", f"{length:,}", nats(values) if values else "",
                 chance(p).removeprefix("= ") if values else "",
                 "not compared" if out.get(a)
                 or out.get(b) else {"lower": "better", "higher": "worse"}.get(words, words)]
                for a, b, length, values, p, words in contrasts(groups)],
               "Six differences that were chosen before these trainings: the loss of the first scheme minus that of "
               "the second in the same starts, with 95 % intervals of Student's t over the starts. "
               f"p is adjusted for all six (Holm). Two schemes tie only if the interval is within ± {TIE:g} nats.")
    by_source(page, {what: groups[what] for what in by_loss}, lengths[n], lines)
    if n + 1 < len(lengths):
        page.table(["", *(f"{x:,}" for x in lengths[n + 1:])],
                   [[what, *(change(values) if len(values) == len(groups[what]) else "none"
                             for values in (beyond(groups[what], lengths[n], x) for x in lengths[n + 1:]))]
                    for what in by_loss],
                   f"Change of the perplexity from {lengths[n]:,} on, as the mean over the starts of the change of the "
                   "loss, with 95 % intervals. Every length predicts the same bytes.")
    if len(lengths) > 1:
        single = next((x for x in counts if x["order"] == 1), None)
        page.picture(curves(groups,
                            lambda line: [x["length"] for x in line["lengths"]],
                            lambda line: [x["perplexity"] for x in line["lengths"]],
                            "length of the window, bytes", "perplexity", zoom=1.35,
                            level=single and (single["perplexity"], "counts of single bytes")),
                     "perplexity by the length of the window; the second panel shows the lowest; shaded from the "
                     "smallest start to the largest", flat(groups, lengths, n))
    if all(line.get("curve") for line in lines):
        page.picture(loss_by_bytes(groups, counts), "held-out loss by the bytes of training text, shaded from the "
                                                    "smallest start to the largest",
                     "A table of counts of three bytes uses the previous byte; the curves pass it when the models do.")
    if watched(lines):
        first_heads(page, lines, groups)
    page.text(busy_text(lines))


def flat(groups, lengths, n):
    """Say which schemes stay within 5 % of their perplexity at the trained length, and which get worse than that."""
    rises = {what: statistics.mean(values) for what, group in groups.items()
             for values in [beyond(group, lengths[n], lengths[-1])] if values}
    stay = [what for what, x in rises.items() if x < math.log(1.05)]
    return (f"At {lengths[-1]:,}, {', '.join(stay)} stay{'s' * (len(stay) == 1)} within 5 % of the perplexity at "
            f"{lengths[n]:,}; {', '.join(what for what in rises if what not in stay)} do not." if stay
            and len(stay) < len(rises) else "")


def ranked(page, lines):
    if differ(lines):
        page.text(f"These experiments differ in {', '.join(differ(lines))} too, so they are not grouped by scheme.")
        sweep(page, "ranking", lines)
        return
    lengths = [x["length"] for x in lines[0]["lengths"]]
    trained = int(lines[0]["experiment"]["length"])
    n = lengths.index(trained) if trained in lengths else 0
    some = by_scheme(lines)
    final = all(len(settings) == 1 for settings in some.values()) and any(len(group) > 1 for settings in some.values()
                                                                          for group in settings.values())
    (compared if final else tuned)(page, lines, n)
