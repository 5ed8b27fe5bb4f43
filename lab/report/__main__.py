"""Show results of relpos lab sweep and inspect as a page with tables, curves, heat maps, and the command and limits of
each experiment.

    relpos lab report FILE.jsonl... [-o PAGE.html|PAGE.md]

Each file becomes a section named after its experiment. Without -o, print tables in Markdown. An HTML page contains its
charts; the charts of a Markdown page are SVG files beside it. Charts need matplotlib; tables need only Python.
SPDX-License-Identifier: Apache-2.0"""
import argparse
import pathlib
import sys

sys.dont_write_bytecode = True  # do not write into the installation
from budget import budget  # noqa: E402
from costs import forward, overhead  # noqa: E402
from dropped import dropped  # noqa: E402
from heads import inspected  # noqa: E402
from longer import longer  # noqa: E402
from oracle import beside_torch, to_the_end  # noqa: E402
from page import Page, put, write  # noqa: E402
from previous import first_heads, watched  # noqa: E402
from ranking import ranked  # noqa: E402
from results import read, tokens_read  # noqa: E402
from sweeps import preliminary, preliminary_of, sweep  # noqa: E402
from tasks import answered, generated  # noqa: E402
from weights import shapes_and_counts  # noqa: E402

# Experiment: heading of its section.
EXPERIMENTS = {
    "length": "Length generalization: trained at one length, measured at up to eight times that length",
    "ranking-1": "Seven positions, stage 1: four rates and a second setting",
    "ranking-2": "Seven positions, stage 2: the best two settings of each, four times as long",
    "ranking-3": "Seven positions, stage 3: the best setting of each, five new starts",
    "ranking-4": "Seven positions, stage 4: twice as long",
    "ranking-6": "Seven positions, stage 6: positions dropped after the training",
    "tasks": "Tasks with one right answer, beyond the sizes of the training",
    "previous": "How many steps it takes until a head attends to the previous token",
    "scaling": "RoPE scaled to read more than the trained length",
    "buckets": "The number of buckets, and max_distance",
    "strategies": "How distances are assigned to 32 buckets",
    "sharing": "One table for all layers, and for all heads",
    "clip": "Shaw's clipping distance",
    "overhead": "The cost of positions in a training step",
    "forward": "The cost of positions in attention",
    "terms": "The number of weights of positions",
    "inspect": "What the heads learned",
    "oracle": "Compared with PyTorch",
    "whole": "Trained to the end, compared with PyTorch",
}
LIMITS = """Models this small show how schemes are used. They do not rank schemes, for small models or for large ones. \
Each experiment has few starts.
Perplexities are per byte, of one text. Windows do not overlap: a longer window gains from context and loses where \
positions fail, and the tables by position separate
the two. A scheme that ends near the perplexity of byte bigrams has not learned to use single earlier bytes in this \
number of steps;
longer training may change that. All times are of one machine."""

# File name: (function that writes the section, command that creates the file).
KINDS = {
    "inspect": (inspected, "relpos lab inspect MODEL --length 1024 --json >>out/inspect.jsonl"),
    "oracle": (beside_torch, "lab/oracle.py build/release/relpos lab/oracle.lab --time 4 --save out/oracle.jsonl "
                             "[--set position=none] "
                             "[--set batch=1 --set length=4096]"),
    "whole": (to_the_end, "lab/oracle.py build/release/relpos lab/oracle.lab --whole 3 --save out/whole.jsonl --set "
                          "layers=2 --set width=64 --set mlp=256 --set length=128 "
                          "--set batch=8 --set position=rope"),
    "overhead": (overhead, None),
    **{f"ranking-{stage}": (ranked, "lab/ranking.sh build/release/relpos out/ranking") for stage in (1, 2, 3, 4)},
    "ranking-7": (longer, "lab/ranking.sh build/release/relpos out/ranking"),
    "ranking-6": (dropped, "lab/ranking.sh build/release/relpos out/ranking"),
    "forward": (forward, "build/python/venv/bin/python lab/forward.py -o out/forward.jsonl"),
    "terms": (shapes_and_counts, "relpos info --json >out/terms.jsonl"),
}


def main():
    parser = argparse.ArgumentParser(prog="relpos lab report", description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("files", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("-o", "--output", metavar="PAGE", help="write PAGE.html or PAGE.md; default: print tables")
    q = parser.parse_args()
    if q.output and pathlib.Path(q.output).suffix not in (".html", ".md"):
        sys.exit(f"relpos: lab report: --output: {q.output}: neither .html nor .md (name PAGE.html or PAGE.md)")
    page = Page(pathlib.Path(q.output) if q.output else None)
    if page.path:
        page.heading("Position schemes on text", 1)
    machines, weights, tokens = [], 0, 0
    files = [(path, read(path)) for path in map(pathlib.Path, q.files)]
    words = next(filter(None, (preliminary_of(lines) for path, lines in files if path.stem not in KINDS
                               and not generated(lines) and not watched(lines))), None)
    if words:
        page.note(preliminary(words))
    for path, lines in files:
        stem = path.stem
        section, command = KINDS.get(stem, (None, None))
        if page.path or len(q.files) > 1:
            page.heading(EXPERIMENTS.get(stem, stem))
        if page.path:
            page.code(command or f"relpos lab sweep lab/{stem}.lab -o out/{path.name}")
        section = answered if generated(lines) else first_heads if watched(lines) and section != ranked else section
        section(page, lines) if section else sweep(page, stem, lines)
        for line in lines:
            # the models of overhead are timed but not trained to the end
            if "experiment" in line and section not in (overhead, answered):
                weights, tokens = max(weights, line["weights"]), max(tokens, tokens_read(line))
            if "machine" in line and line["machine"] not in machines:
                machines.append(line["machine"])
    stages = {path.stem: lines for path, lines in files}
    if {"ranking-1", "ranking-3"} <= stages.keys():
        budget(page, stages["ranking-1"], stages["ranking-3"])
    if page.path:
        page.heading("What it does not show")
        page.text(f"The models measured on text have at most {weights:,} weights, and each was trained on at most "
                  f"{tokens:,} tokens. " * (weights > 0)
                  + " ".join(LIMITS.split()))
        page.heading("Machine")
        for m in machines:
            page.text(f"{m.get('cpu', 'a processor')}, {m.get('cores', '?')} cores, {m['threads']} "
                      f"thread{'s' * (m['threads'] > 1)}, relpos {m['version']} ({m['isa']}), {m['blas']}."
                      + f" {m.get('blas_note', '')}." * ("blas_note" in m))
        write({page.path: page.finish(), **page.pictures})
    else:
        put(page.finish())


if __name__ == "__main__":
    main()
