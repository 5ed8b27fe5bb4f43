#!/usr/bin/env python3
"""A page of the results of relpos lab sweep: tables, curves by length and by position, the command of each, and what they do not show.

    lab/report.py OUT.html RESULTS.jsonl...

One file holds its plots. Run by hand; needs matplotlib. SPDX-License-Identifier: Apache-2.0"""
import html
import io
import json
import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "relpos"
import matplotlib.pyplot as plt  # noqa: E402

LIMITS = """Models of some hundred thousand weights, trained for minutes, show how schemes are used and whether they generalise in length at
all; they do not rank schemes for large models. Spreads are over few starts. Perplexities are of bytes, of one text. Windows do not overlap: a
longer one gains by context and loses where positions fail, and the table by position tells the two apart. Times are of one machine, and of
whatever else it did."""


def svg(figure):
    to = io.StringIO()
    figure.savefig(to, format="svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
    return to.getvalue()[to.getvalue().index("<svg") :]


def name(line):
    return ", ".join(f"{k} = {v}" for k, v in line["vary"].items()) or "all"


def row(cells, tag="td"):
    return "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"


def curves(groups, x_of, y_of, label):
    figure, axes = plt.subplots(figsize=(9, 5))
    styles = ["-", "--", ":", "-."]
    for n, (what, lines) in enumerate(groups.items()):
        xs = x_of(lines[0])
        ys = [[y_of(line)[i] for line in lines] for i in range(len(xs))]
        (drawn,) = axes.plot(xs, [statistics.mean(y) for y in ys], styles[n // 10 % 4], marker="o", markersize=3, label=what)
        axes.fill_between(xs, [min(y) for y in ys], [max(y) for y in ys], alpha=0.15, color=drawn.get_color())
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("perplexity of bytes")
    axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.grid(alpha=0.3, which="both")
    return svg(figure)


def section(path):
    results = [json.loads(line) for line in path.read_text().splitlines()]
    groups = {}
    for line in results:
        groups.setdefault(name(line), []).append(line)
    first = results[0]
    lengths = [x["length"] for x in first["lengths"]]
    longest = max(range(len(lengths)), key=lambda n: lengths[n])
    base = min(statistics.mean(x["ms_per_step"] for x in g) for g in groups.values())
    out = [f"<h2>{html.escape(path.stem)}</h2>", f"<pre>relpos lab sweep lab/{html.escape(path.stem)}.lab -o out/{html.escape(path.name)}</pre>"]
    out.append("<table>" + row(["", *[f"perplexity at {n}" for n in lengths], "weights of positions", "ms a step", "% of the fastest", "MB of activations", "starts"], "th"))
    for what, lines in groups.items():
        ms = statistics.mean(x["ms_per_step"] for x in lines)
        cells = []
        for n in range(len(lengths)):
            p = [x["lengths"][n]["perplexity"] for x in lines]
            cells.append(f"{statistics.mean(p):.3f} ({min(p):.3f} to {max(p):.3f})")
        out.append(row([what, *cells, lines[0]["position_weights"], f"{ms:.1f}", f"{100 * ms / base:.0f}", f"{lines[0]['bytes'] / 1e6:.1f}", len(lines)]))
    out.append("</table>")
    if len(lengths) > 1:
        out.append("<h3>by length</h3>" + curves(groups, lambda line: [x["length"] for x in line["lengths"]],
                                                 lambda line: [x["perplexity"] for x in line["lengths"]], "length of the window"))
    if len(first["lengths"][longest]["positions"]) > 1:
        out.append(f"<h3>by position, windows of {lengths[longest]}</h3>" +
                   curves(groups, lambda line: [x["to"] for x in line["lengths"][longest]["positions"]],
                          lambda line: [x["perplexity"] for x in line["lengths"][longest]["positions"]], "position, up to"))
    out.append("<details><summary>the experiment of the first line, and the machine</summary><pre>" + html.escape(first["experiment"]) + "\n" +
               html.escape(json.dumps(first["machine"])) + "</pre></details>")
    return "\n".join(out)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    body = "\n".join(section(pathlib.Path(p)) for p in sys.argv[2:])
    page = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>relpos lab</title>
<style>body{{font:15px sans-serif;max-width:75em;margin:2em auto;padding:0 1em}}table{{border-collapse:collapse;font-size:13px}}
td,th{{border-bottom:1px solid #ddd;padding:.2em .6em;text-align:right}}td:first-child{{text-align:left}}svg{{max-width:100%;height:auto}}</style>
<h1>relpos lab: position schemes on text</h1>{body}<h2>What it does not show</h2><p>{LIMITS}</p></html>
"""
    pathlib.Path(sys.argv[1]).write_text(page)


main()
