"""Section on stage 6 of the ranking: models that were trained with positions and go on for a short time without them
(DroPE, arXiv 2512.12167), beside models that go on with them. Those with RoPE are also read with scalings of their
angles, without more training.
SPDX-License-Identifier: Apache-2.0"""
from curves import curves
from intervals import nats
from ranking import at_length, differences, of_schemes
from results import counted, over, short, tokens_read
from sweeps import shown


def scaffold(line):
    """Return the name of the scheme that a model had before: it is in the file name of `init_from`."""
    return short(line["vary"]["init_from"].rsplit("/", 1)[-1].split("+")[0]).split(",base")[0]


def by_scaffold(lines):
    """Return {scheme: (results with the scheme, results without)}, of models that are read with the position of their
    training."""
    found = {}
    for line in lines:
        if not line["experiment"].get("eval_position"):
            found.setdefault(scaffold(line), ([], []))[line["experiment"]["position"] == "none"].append(line)
    return found


def scaled(lines):
    """Return {name of the scaling: results of the models with RoPE that are read with it}."""
    found = {}
    for line in lines:
        terms = dict(x.split("=") for x in line["experiment"].get("eval_position", "").split(",")[1:])
        if "scaling" in terms:
            name = {"yarn": "YaRN"}.get(terms["scaling"],
                                        terms["scaling"]) + (f", factor {terms['factor']}" if terms["scaling"]
                                                             != "dynamic" else "")
            found.setdefault(name, []).append(line)
    return found


def dropped(page, lines, before=()):
    """Add the section; `before` are the results of stage 3, whose models these trainings continue."""
    groups = by_scaffold(lines)
    lengths = [x["length"] for x in lines[0]["lengths"]]
    stage3, scalings = of_schemes(before), scaled(lines)
    starts = sorted({len(group) for pair in groups.values() for group in pair})
    page.text(f"The models of stage 3 were trained for {tokens_read(lines[0]) / 1e6:.1f} MB more: with their "
              "positions, and without (position = none)."
              + " The rate begins again at half of its maximum, which worsens even the models that keep their "
                "positions: compare with \"more training\", not with \"before\"."
              + " Those with RoPE are also read with scalings of its angles for longer windows; \"dynamic\" (NTK) "
                "scales by the length of the window." * bool(scalings))

    def cells(group):
        return [shown(over(group, lambda line, n=n: (at_length(line, n) or {}).get("perplexity")), 2) for n in lengths]

    rows = [["none", f"trained without positions, {counted(len(stage3['none']))}",
             *cells(stage3["none"])]] if "none" in stage3 else []
    for what, (kept, gone) in groups.items():
        if what in stage3:
            rows.append([what, "before", *cells(stage3[what])])
        rows += [[what, name, *cells(group)]
                 for name, group in (("more training", kept), ("more training without positions", gone)) if group]
        rows += [[what, f"more training, read with {name}", *cells(group)] for name, group in scalings.items()
                 if what == "rope"]
    rows += [[f"counts of {x['order']} byte{'s' * (x['order'] > 1)}", "", *[f"{x['perplexity']:.2f}"] * len(lengths)]
             for x in lines[0].get("ngrams", []) if x["order"] in (1, 3, 6)]
    page.table(["trained with", "", *(f"at {n:,}" for n in lengths)], rows,
               f"Perplexity as means over {' or '.join(map(counted, starts))}, with the smallest and the largest in "
               "brackets.")

    def difference(kept, gone, length):
        values = differences(gone, kept, length)
        return nats(values) if values else ""

    pairs = groups | {f"rope, read with {name}": (group, groups["rope"][1]) for name, group in scalings.items()
                      if "rope" in groups}
    page.table(["trained with", *(f"at {n:,}" for n in lengths)],
               [[what, *(difference(kept, gone, n) for n in lengths)] for what, (kept, gone) in pairs.items()],
               "The same in nats: the loss without positions minus that with them, after the same training, with 95 % "
               "intervals of Student's t over the starts.")
    pictured = {f"{what}{name}": group for what, (kept, gone) in groups.items()
                for name, group in (("", kept), (", without", gone)) if group}
    if len(lengths) > 1:
        page.picture(curves(pictured,
                            lambda line: [x["length"] for x in line["lengths"]],
                            lambda line: [x["perplexity"] for x in line["lengths"]],
                            "length of the window, bytes", "perplexity", zoom=1.35),
                     "perplexity by the length of the window, with positions and without (dashed); the second panel "
                     "shows the lowest")
