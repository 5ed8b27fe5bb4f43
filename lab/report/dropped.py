"""Section on stage 6 of the ranking: models that were trained with positions and go on for a short time without them (DroPE, arXiv 2512.12167), beside
models that go on with them.
SPDX-License-Identifier: Apache-2.0"""
from curves import curves
from intervals import interval
from ranking import at_length, differences, scheme
from results import counted, over, short
from sweeps import shown


def scaffold(line):
    """Return the name of the scheme that a model had before: it is in the file name of `init_from`."""
    return short(line["vary"]["init_from"].rsplit("/", 1)[-1].split("+")[0]).split(",base")[0]


def by_scaffold(lines):
    """Return {scheme: (results with the scheme, results without)}."""
    found = {}
    for line in lines:
        found.setdefault(scaffold(line), ([], []))[line["experiment"]["position"] == "none"].append(line)
    return found


def dropped(page, lines, before=()):
    """Add the section; `before` are the results of stage 3, whose models these trainings continue."""
    groups = by_scaffold(lines)
    lengths = [x["length"] for x in lines[0]["lengths"]]
    trained = int(lines[0]["experiment"]["length"])
    each = int(lines[0]["experiment"]["batch"]) * trained
    stage3 = {}
    for line in before:
        stage3.setdefault(scheme(line), []).append(line)
    starts = sorted({len(group) for pair in groups.values() for group in pair})
    page.text(f"The models of stage 3 were trained for {int(lines[0]['experiment']['steps']) * each / 1e6:.1f} MB more: with their positions, and without (position = none). "
              f"Perplexity as means over {' or '.join(map(counted, starts))}, with the smallest and the largest in brackets.")

    def cells(group):
        return [shown(over(group, lambda line, n=n: (at_length(line, n) or {}).get("perplexity")), 2) for n in lengths]

    rows = []
    for what, (kept, gone) in groups.items():
        if what in stage3:
            rows.append([what, "before", *cells(stage3[what])])
        rows += [[what, name, *cells(group)] for name, group in (("more training", kept), ("more training without positions", gone)) if group]
    page.table(["trained with", "", *(f"at {n:,}" for n in lengths)], rows)
    page.text("The same in nats: the loss without positions minus that with them, after the same training, with 95 % intervals of Student's t over the starts.")

    def difference(kept, gone, length):
        values = differences(gone, kept, length)
        return "{:+.3f} ± {:.3f}".format(*interval(values)) if len(values) > 1 else f"{values[0]:+.3f}" if values else ""

    page.table(["trained with", *(f"at {n:,}" for n in lengths)], [[what, *(difference(kept, gone, n) for n in lengths)] for what, (kept, gone) in groups.items()])
    pictured = {f"{what}{name}": group for what, (kept, gone) in groups.items() for name, group in (("", kept), (", without", gone)) if group}
    if len(lengths) > 1:
        page.picture(curves(pictured, lambda line: [x["length"] for x in line["lengths"]], lambda line: [x["perplexity"] for x in line["lengths"]],
                            "length of the window", "perplexity"), "perplexity by the length of the window, with positions and without")
