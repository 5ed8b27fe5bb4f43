#!/usr/bin/env python3
"""The results of relpos lab sweep and inspect as a page: tables, curves, heat maps, the command of each, and what they do not show.

    relpos lab report FILE.jsonl... [-o PAGE.html|PAGE.md]

Each file is a section, named after its experiment. Without -o, tables in Markdown are printed. An HTML page contains its pictures; for a
Markdown page they are SVG files beside it. Pictures need matplotlib, tables only Python. This script reads results and knows no model.
SPDX-License-Identifier: Apache-2.0"""
import argparse
import contextlib
import html
import io
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile

# The question of each experiment; and numbers that tutorials print for it, without a way to repeat them.
EXPERIMENTS = {
    "length": "Length generalisation: trained at one length, measured at up to eight times that length",
    "rate": "Two of these positions at a third of the learning rate",
    "scaling": "RoPE scaled to read more than the trained length",
    "buckets": "The number of buckets, and the distance from which on all share the last one",
    "strategies": "How distances are assigned to 32 buckets",
    "sharing": "One table for all layers, for all heads",
    "clip": "Shaw's clipping distance",
    "overhead": "What positions cost",
    "classify": "An encoder with two-sided positions: which chapter is a window from?",
    "inspect": "What the heads learned",
    "oracle": "Beside PyTorch",
}
CLAIMS = {
    "length": ("T5-like bias 18.0, 19.8, 24.1, 32.5 and ALiBi 18.2, 19.1, 20.8, 22.1 at 1, 2, 4 and 8 times the trained length",
               {"t5": (1.0, 19.8 / 18.0, 24.1 / 18.0, 32.5 / 18.0), "alibi": (1.0, 19.1 / 18.2, 20.8 / 18.2, 22.1 / 18.2)}),
    "buckets": ("8 to 128 buckets: 18.5, 18.3, 18.2, 18.1, 18.1 as trained, and 21.2, 20.1, 19.8, 19.7, 19.6 at twice the length",
                {"t5,buckets=8": (1.0, 21.2 / 18.5), "t5,buckets=16": (1.0, 20.1 / 18.3), "t5": (1.0, 19.8 / 18.2),
                 "t5,buckets=64": (1.0, 19.7 / 18.1), "t5,buckets=128": (1.0, 19.6 / 18.1)}),
    "strategies": ("uniform 18.5, logarithmic 18.0, linear 18.2, quadratic 18.3 as trained, and 21.5, 19.8, 20.3, 20.8 at twice the length",
                   {"t5": (1.0, 19.8 / 18.0), "bucket,strategy=uniform": (1.0, 21.5 / 18.5), "bucket,strategy=linear": (1.0, 20.3 / 18.2),
                    "bucket,strategy=quadratic": (1.0, 20.8 / 18.3)}),
    "overhead": ("of attention alone, forward, at 512: learned 0.65 %, sinusoidal 0.81 %, relative bias 1.79 % (elsewhere: less than 5 %), RoPE 2.60 %; "
                 "of training, Shaw 5 to 10 %",
                 {"learned": "0.65", "sinusoidal": "0.81", "t5": "1.79", "rope": "2.60", "relkey,left=64+relval,left=64": "5 to 10"}),
}
LIMITS = """Small models, trained as described here, show how schemes are used; they do not rank them, neither for small models nor for large ones. Spreads are over few starts. Perplexities are per byte, of one text. Windows do not overlap: a longer window gains from context and
loses where positions fail, and the curves by position separate the two. A scheme that ends near the perplexity of counted pairs of bytes (16.5 in the text of lab/corpus.sh) has not
learned in so few steps to use single earlier bytes; longer training may change that. Times are of one machine."""
FAMILIES = (("added to the input, or rotated", ("none", "sinusoidal", "learned", "rope", "alibi+rope")), ("tables", ("t5", "bucket", "table", "real")),
            ("decay", ("log", "linear", "alibi", "kerple", "fire", "sandwich")), ("vectors", ("relkey", "relval", "xl", "band", "deberta")), ("others", ()))


def short(position):
    """The text of a position without the parameters that every causal model needs."""
    for parameter in (",bidirectional=0", ",right=0"):
        position = position.replace(parameter, "")
    return ",".join(p for p in position.split(",") if not p.startswith(("original_max_position", "max_position")))


def family(position):
    for n, (_, kinds) in enumerate(FAMILIES):
        if any(position == k or position.split(",")[0].split("+")[0] == k for k in kinds):
            return 0 if position in FAMILIES[0][1] else n
    return len(FAMILIES) - 1


class Page:
    """Blocks, written as HTML or Markdown."""

    def __init__(self, path):
        self.path, self.out, self.pictures = path, [], {}
        self.html = path is not None and path.suffix == ".html"

    def heading(self, text, level=2):
        self.out.append(f"<h{level}>{html.escape(text)}</h{level}>" if self.html else f"{'#' * level} {text}\n")

    def note(self, text):
        self.out.append(f'<p class="note">{html.escape(text)}</p>' if self.html else f"> {text}\n")

    def text(self, text):
        self.out.append(f"<p>{html.escape(text)}</p>" if self.html else f"{text}\n")

    def code(self, text):
        self.out.append(f"<pre>{html.escape(text)}</pre>" if self.html else "    " + text.replace("\n", "\n    ") + "\n")

    def table(self, head, rows):
        if self.html:
            def line(cells, tag):
                return "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"
            self.out.append('<div class="wide"><table>' + line(head, "th") + "".join(line(r, "td") for r in rows) + "</table></div>")
        else:
            self.out.append("\n".join("| " + " | ".join(str(c).replace("|", "\\|") for c in r) + " |" for r in [head, ["---"] * len(head), *rows]) + "\n")

    def picture(self, make, alt):
        """Add the figure that make(pyplot) returns, if there is a page to show it on."""
        if self.path is None:
            return
        plt = pyplot()
        figure = make(plt)
        to = io.StringIO()
        figure.savefig(to, format="svg", metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)
        svg = to.getvalue()[to.getvalue().index("<svg"):]
        svg = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
        if self.html:
            self.out.append(f'<figure role="img" aria-label="{html.escape(alt)}">{svg}</figure>')
        else:
            name = f"{self.path.stem}-{len(self.pictures) + 1}.svg"
            self.pictures[self.path.with_name(name)] = svg
            self.out.append(f"![{alt}]({name})\n")

    def finish(self):
        if not self.html:
            return "\n".join(self.out)
        return f"""<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>relpos lab</title>
<style>body{{font:16px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222;background:#fff}}table{{border-collapse:collapse;font-size:13px}}
td,th{{border-bottom:1px solid #ddd;padding:.2em .6em;text-align:right}}td:first-child,th:first-child{{text-align:left}}figure{{margin:1em 0}}
svg{{max-width:100%;height:auto}}pre{{background:#f4f4f4;padding:.6em;overflow-x:auto;font-size:13px}}.wide{{overflow-x:auto}}.note{{border-left:4px solid #b35900;background:#fff4e5;padding:.6em 1em}}</style>
{chr(10).join(self.out)}</html>
"""


def write(files):
    """Write {path: text}, all files completely or none: each goes to a temporary file with a random name, which is renamed at the end."""
    new, mask = {}, os.umask(0)
    os.umask(mask)
    try:
        for path, text in files.items():
            fd, new[path] = tempfile.mkstemp(prefix=".relpos-", suffix=".tmp", dir=path.parent)
            with open(fd, "w", encoding="utf-8", errors="replace") as to:
                os.fchmod(fd, 0o666 & ~mask)
                to.write(text)
                to.flush()
                os.fsync(fd)
        for path in files:
            os.replace(new[path], path)
    except BaseException as e:
        for left in new.values():
            with contextlib.suppress(OSError):
                os.unlink(left)
        if not isinstance(e, OSError):
            raise
        sys.exit(f"relpos: {path}: cannot be written: {e.strerror} (another place, or free some space)")


def put(text):
    try:
        with open(1, "w", encoding="utf-8", errors="replace", closefd=False) as to:
            to.write(text + "\n")
    except BrokenPipeError:  # the reader has stopped reading
        pass
    except OSError as e:
        sys.exit(f"relpos: standard output: {e.strerror} (free some space, or write elsewhere)")


def pyplot():
    try:
        import matplotlib
    except ImportError:
        sys.exit("relpos: lab report: pictures need matplotlib (Debian: python3-matplotlib; without -o, only tables are printed)")
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "relpos", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    import matplotlib.pyplot as plt
    return plt


# ---------------------------------------------------------------------------------------------------- what a file holds

# The expected form of a value: a test with its description; a list of the form of its items and their number (left out: at least one; None: any); a dict.
TEXT = (lambda x: isinstance(x, str), "a text")
INTEGER = (lambda x: type(x) is int and 0 <= x < 1e15, "an integer")
COUNT = (lambda x: type(x) is int and 0 < x < 1e15, "an integer above 0")
NUMBER = (lambda x: type(x) in (int, float) and -1e300 < x < 1e300, "a number")
POSITIVE = (lambda x: type(x) in (int, float) and 0 < x < 1e300, "a number above 0")
MEASURED = (lambda x: x is None or POSITIVE[0](x), "a number above 0")
SHARE = (lambda x: type(x) in (int, float) and 0 <= x <= 1, "a number from 0 to 1")
MACHINE = {"threads": COUNT, "version": TEXT, "isa": TEXT, "blas": TEXT}


def settings(text):
    """An experiment's keys and values, without empty values."""
    pairs = (line.partition(" = ") for line in text.splitlines())
    return {key: value for key, _, value in pairs if value}


def is_experiment(text):
    found = settings(text) if isinstance(text, str) else {}
    return {"task", "position"} <= found.keys() and all(found.get(k, "").isdecimal() for k in ("seed", "length", "batch", "steps"))


def result_shape(line):
    if not is_experiment(line.get("experiment")):
        return {"experiment": (is_experiment, "an experiment")}
    if settings(line["experiment"])["task"] == "classifier":
        length = {"length": COUNT, "accuracy": (lambda x: x is None or SHARE[0](x), SHARE[1])}
    else:
        length = {"length": COUNT, "perplexity": MEASURED, "positions": [{"from": INTEGER, "to": COUNT, "perplexity": MEASURED}, None]}
    vary = (lambda x: isinstance(x, dict) and all(isinstance(v, str) for v in x.values()), "an object of texts")
    return {"vary": vary, "lengths": [length], "train_loss": NUMBER, "weights": COUNT, "position_weights": INTEGER, "ms_per_step": POSITIVE,
            "bytes": COUNT, "machine": MACHINE}


def inspect_shape(line):
    n = len(line["distances"]) if isinstance(line.get("distances"), list) else None
    head = {"share": SHARE, "distance": NUMBER, "position": [NUMBER, n], "weight": [NUMBER, n]}
    return {"inspect": TEXT, "trained": COUNT, "distances": [[INTEGER, 2]], "layers": [[head]]}


def oracle_shape(_):
    return {"oracle": TEXT, "batch": COUNT, "length": COUNT, "relpos_ms": [POSITIVE, 3], "torch_ms": [POSITIVE, 3], "torch": TEXT, "machine": MACHINE}


def wrong(value, shape, at=""):
    """How a value differs from its expected shape, or None."""
    found = json.dumps(value)
    found = f"{at or 'the line'} is {found if len(found) <= 40 else found[:37] + '...'}, not "
    if isinstance(shape, tuple):
        return None if shape[0](value) else found + shape[1]
    if isinstance(shape, list):
        inner, n = [*shape, 1][:2]
        if not isinstance(value, list) or (len(shape) == 1 and not value) or (len(shape) == 2 and n not in (None, len(value))):
            return found + (f"a list of {n}" if len(shape) == 2 and n is not None else "a list that is not empty" if len(shape) == 1 else "a list")
        items = [(x, inner, f"{at}[{n}]") for n, x in enumerate(value)]
    else:
        if not isinstance(value, dict):
            return found + "an object"
        items = [(value.get(key), inner, f"{at}.{key}" if at else key) for key, inner in shape.items()]
        missing = [where for (_, _, where), key in zip(items, shape) if key not in value]
        if missing:
            return f"{missing[0]} is missing"
    return next(filter(None, (wrong(*item) for item in items)), None)


def read(path):
    """The results of a file. A wrong one ends the program here, so that the functions below need no checks."""
    shape_of, makes = {"inspect": (inspect_shape, "relpos lab inspect --json"), "oracle": (oracle_shape, "lab/oracle.py --time")}.get(
        path.stem, (result_shape, "relpos lab sweep"))

    def refuse(number, what, mend):
        sys.exit(f"relpos: {path}:{number}: {what} ({mend})")

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        sys.exit(f"relpos: {path}: cannot be read: {getattr(e, 'strerror', None) or 'no text'} ({makes} writes such a file)")
    if not text.strip():
        sys.exit(f"relpos: {path}: empty ({makes} writes results)")
    lines, ranges = [], {}
    for number, line_text in enumerate(text.rstrip("\n").split("\n"), 1):
        try:
            line = json.loads(line_text)
            found = wrong(line, shape_of(line) if isinstance(line, dict) else {})
        except (ValueError, RecursionError):
            found = "not JSON"
        if found:
            refuse(number, f"not a result of {makes}: {found}", "delete this line to show the others; the same command makes it again")
        lines.append(line)
        if shape_of is not result_shape:
            continue
        line["experiment"] = settings(line["experiment"])
        first, task = lines[0], line["experiment"]["task"]
        if task != first["experiment"]["task"]:
            refuse(number, f"task is {task}, and that of line 1 {first['experiment']['task']}", "use a file for each")
        lengths, others = (", ".join(str(x["length"]) for x in some["lengths"]) for some in (line, first))
        if path.stem != "overhead" and lengths != others:
            refuse(number, f"eval_lengths are {lengths}, and those of line 1 {others}", "use a file for each")
        for x in line["lengths"]:
            found = [(p["from"], p["to"]) for p in x.get("positions", [])]
            if found and ranges.setdefault(x["length"], found) != found:
                refuse(number, f"positions of length {x['length']} are not those of the lines before", "delete this line to show the others")
    for number, line in enumerate(lines, 1):
        if path.stem == "overhead" and not any(is_base(other, line) for other in lines):
            refuse(number, f"no result without positions at length {line['experiment']['length']}, which this one is compared with",
                   "add none to the values of vary.position")
    return once(lines, refuse) if shape_of is result_shape else lines


def once(lines, refuse):
    """Keep the fastest of the results with the same experiment and seed. Their other numbers have to be equal."""
    found = {}
    for number, line in enumerate(lines, 1):
        key = tuple(line["experiment"].items())
        before, other = found.setdefault(key, (number, line))
        differ = [k for k in ("train_loss", "lengths", "weights", "position_weights") if line[k] != other[k]]
        if differ:
            refuse(number, f"the same experiment and seed as line {before}, but another {differ[0]}", "delete one of the two to show the others")
        if line["ms_per_step"] < other["ms_per_step"]:
            found[key] = before, line
    return [line for _, line in found.values()]


def is_base(base, line):
    """Whether `base` is the experiment of `line` without positions, with any seed."""
    return {**line["experiment"], "seed": "", "position": "none"} == {**base["experiment"], "seed": ""}


# ---------------------------------------------------------------------------------------------------- results of sweeps

def grouped(lines, apart=()):
    """{label: results of an experiment that differ in the seed alone}. A label has the keys that the sweep varied and others that differ between experiments, but not those in `apart`."""
    groups = {}
    for line in lines:
        key = {k: v for k, v in line["experiment"].items() if k not in ("seed", *apart)}
        groups.setdefault(tuple(key.items()), []).append(line)
    found = [dict(key) for key in groups]
    keys = dict.fromkeys(k for some in (*(line["vary"] for line in lines), *found) for k in some)
    differ = [k for k in keys if len({some.get(k) for some in found}) > 1]

    def label(some, vary, value):
        shown = [k for k in keys if k in differ or k in vary and k not in ("seed", *apart)]
        return ", ".join(value(some[k]) if k.endswith("position") and k in some else f"{k} = {some.get(k, 'none')}" for k in shown) or "all"

    for value in (short, str):  # in full where the short names are the same
        labels = [label(some, group[0]["vary"], value) for some, group in zip(found, groups.values())]
        if len(set(labels)) == len(labels):
            break
    return dict(zip(labels, groups.values()))


def over(lines, what):
    """Mean, smallest and largest value over the starts; None if one has no value."""
    values = [what(line) for line in lines]
    return None if None in values else (statistics.mean(values), min(values), max(values))


def counted(starts):
    return f"{starts} start{'s' * (starts != 1)}"


def shown(found, digits=3):
    if found is None:
        return "none"
    mean, low, high = found
    return f"{mean:.{digits}f}" if low == high else f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def preliminary_of(lines):
    """The first words of the warning above results that compare positions; None for a single position."""
    rates = {}
    for line in lines:
        some = line["experiment"]
        rates.setdefault(some["position"], set()).add(some.get("lr"))
    if len(rates) < 2:
        return None
    if len(set.union(*rates.values())) == 1:
        return "Preliminary: one learning rate for all, undertrained"
    return f"Preliminary: {'one learning rate' if all(len(found) == 1 for found in rates.values()) else 'few learning rates'} for each, undertrained"


def preliminary(words, first, other):
    """The warning above a page that compares positions. words: those of preliminary_of; first, other: results of the same positions at two
    learning rates, or [] without them."""
    text = f"{words}. The models are small and were trained for few steps. The tables show the results of this training; they do not rank positions."
    both = {line["experiment"]["position"] for line in first} & {line["experiment"]["position"] for line in other}
    groups = {}
    for line in (*first, *other):
        if line["experiment"]["position"] in both:
            groups.setdefault(line["experiment"]["lr"], {}).setdefault(line["experiment"]["position"], []).append(line)
    if len(groups) < 2:
        return text
    length = first[0]["lengths"][0]["length"]
    orders = {tuple(sorted(some, key=lambda what: mean(some[what], 0))) for some in groups.values()}
    ends = "; ".join(f"with a rate of {rate}, " + ", ".join(f"{short(what)} {mean(lines, 0):.2f}" for what, lines in some.items()) for rate, some in groups.items())
    starts = sorted({len(lines) for some in groups.values() for lines in some.values()})
    return text + (f" {'Another rate changes the order' if len(orders) > 1 else 'Another rate changes the numbers'}. Mean perplexity at {length:,} over "
                   f"{' or '.join(map(str, starts))} start{'s' * (starts != [1])}: {ends} (lab/rate.lab).")


def curves(groups, xs_of, ys_of, x_label, y_label, title=None):
    """One panel for each family of positions, on the same axes."""
    panels = {}
    for what, lines in groups.items():
        panels.setdefault(family(what) if len(groups) > 8 else 0, {})[what] = lines

    every = [y for lines in groups.values() for line in lines for y in ys_of(line) if y is not None]
    low_of, high_of = min(every), max(every)

    def make(plt):
        columns = 1 if len(panels) == 1 else 2
        figure, axes = plt.subplots(-(-len(panels) // columns), columns, figsize=(9, 4 if len(panels) == 1 else 3.2 * -(-len(panels) // 2)),
                                    squeeze=False, sharex=True, sharey=True)
        for at in axes.flat[len(panels):]:
            at.set_axis_off()
        for at, (which, some) in zip(axes.flat, sorted(panels.items())):
            for n, (what, lines) in enumerate(some.items()):
                xs = xs_of(lines[0])
                found = [over(lines, lambda line, i=i: ys_of(line)[i]) for i in range(len(xs))]
                points = [(x, *y) for x, y in zip(xs, found) if y]
                if not points:
                    continue
                x, mean, low, high = zip(*points)
                at.plot(x, mean, "-o" if n < 10 else "--o", markersize=3, label=what, color=f"C{n}")
                at.fill_between(x, low, high, alpha=0.15, color=f"C{n}")
            at.set_xscale("log", base=2)
            at.grid(alpha=0.3, which="both")
            at.legend(fontsize=7)
            if len(panels) > 1:
                at.set_title(FAMILIES[which][0], fontsize=9)
            at.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            if y_label != "perplexity":
                continue
            at.set_yscale("log", base=2)
            at.set_yticks([2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64, 96, 128, 256])
            at.set_ylim(low_of / 1.03, high_of * 1.03)
            at.yaxis.set_minor_locator(plt.NullLocator())
            at.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        for at in axes[-1]:
            at.set_xlabel(x_label)
        for at in axes[:, 0]:
            at.set_ylabel(y_label)
        if title:
            figure.suptitle(title, fontsize=10)
        figure.tight_layout()
        return figure
    return make


def position_map(some, longest, title=None):
    """Perplexity of each group at each range of positions of the longest window."""
    def make(plt):
        ranges = next(iter(some.values()))[0]["lengths"][longest]["positions"]
        found = [[over(lines, lambda line, n=n: line["lengths"][longest]["positions"][n]["perplexity"]) for n in range(len(ranges))]
                 for lines in some.values()]
        values = [[x[0] if x else math.nan for x in row] for row in found]
        figure, at = plt.subplots(figsize=(8, 0.28 * len(values) + 1))
        drawn = at.imshow([[math.log2(v) for v in row] for row in values], aspect="auto", cmap="cividis")
        middle = (drawn.norm.vmin + drawn.norm.vmax) / 2
        for y, row in enumerate(values):
            for x, v in enumerate(row):
                at.text(x, y, "none" if math.isnan(v) else f"{v:.2f}", ha="center", va="center", fontsize=7, color="white" if math.log2(v) < middle else "black")
        at.set_yticks(range(len(some)), list(some), fontsize=7)
        at.set_xticks(range(len(ranges)), [f"{p['from']:,}-{p['to'] - 1:,}" for p in ranges], fontsize=7)
        at.set_xlabel("position in the window")
        if title:
            at.set_title(title, fontsize=9)
        return figure
    return make


def mean(lines, n):
    """Mean perplexity at the n-th length over the starts; None if one has none."""
    found = over(lines, lambda line: line["lengths"][n]["perplexity"])
    return found and found[0]


def rise(lines, n):
    """By how much the mean perplexity at the n-th length is above that at the first, as text."""
    first, then = mean(lines, 0), mean(lines, n)
    return f"{100 * (then / first - 1):+.1f} %" if first and then else "none"


def rises(groups, claims, lengths):
    """The rise of each group beyond the first length, beside what is claimed."""
    rows = []
    for what, lines in groups.items():
        row = [what]
        for n in range(1, len(lengths)):
            theirs = claims.get(what, ())
            row.append(rise(lines, n) + (f" (claimed {100 * (theirs[n] - 1):+.0f} %)" if n < len(theirs) else ""))
        rows.append(row)
    return rows


def sweep(page, stem, lines):
    groups = grouped(lines)
    lengths = [x["length"] for x in lines[0]["lengths"]]
    longest = max(range(len(lengths)), key=lambda n: lengths[n])
    claim, claims = CLAIMS.get(stem, (None, {}))
    measure = "accuracy" if "accuracy" in lines[0]["lengths"][0] else "perplexity"
    starts = sorted({len(g) for g in groups.values()})
    page.text(f"Means over {' or '.join(map(str, starts))} starts, the smallest and the largest in brackets." if starts != [1] else "One start for each.")
    page.table(["", *["starts"] * (len(starts) > 1), *[f"{measure} at {n:,}" for n in lengths], "weights of positions"],
               [[what, *[len(g)] * (len(starts) > 1), *[shown(over(g, lambda line, n=n: line["lengths"][n][measure])) for n in range(len(lengths))],
                 f"{g[0]['position_weights']:,}"] for what, g in groups.items()])
    if len(lengths) > 1 and measure == "perplexity":
        page.text(f"How much the mean perplexity rises from {lengths[0]:,} on{'; in brackets, numbers printed elsewhere' if claims else ''}.")
        page.table(["", *[f"{n:,}" for n in lengths[1:]]], rises(groups, claims, lengths))
    if claim:
        page.text(f"Printed elsewhere, of other models and texts: {claim}.")
    if len(lengths) > 1 and any(x[measure] is not None for line in lines for x in line["lengths"]):
        page.picture(curves(groups, lambda line: [x["length"] for x in line["lengths"]], lambda line: [x[measure] for x in line["lengths"]],
                            "length of the window", measure, preliminary_of(lines)), f"{measure} by the length of the window")
    mapped = {what: g for what, g in groups.items() if all(len(line["lengths"][longest].get("positions", [])) > 1 for line in g)}
    if page.path and mapped:
        page.text(f"By position in windows of {lengths[longest]:,}:")
        page.picture(position_map(mapped, longest, preliminary_of(lines)), f"perplexity by position in windows of {lengths[longest]}")


def overhead(page, lines):
    claim, claims = CLAIMS["overhead"]
    lengths = sorted({int(line["experiment"]["length"]) for line in lines})
    groups = grouped(lines, apart=["length"])
    cells = {what: {n: [x for x in group if int(x["experiment"]["length"]) == n] for n in lengths} for what, group in groups.items()}

    def fastest(some):  # other work of the machine makes a step slower, never faster
        return min(some, key=lambda line: line["ms_per_step"], default=None)

    def without(line):
        return [x for x in lines if is_base(x, line)]

    spread = {n: [line["ms_per_step"] for some in cells.values() for line in some[n] if is_base(line, line)] for n in lengths}
    starts = {n: max(len(some[n]) for some in cells.values()) for n in lengths}  # of a column
    page.text("Time of a training step (the smallest of the starts' medians) and memory of activations and weights, as increases in % over the model without "
              f"positions. Numbers printed elsewhere are in brackets. There {'is' if starts[lengths[0]] == 1 else 'are'} " + (f"{counted(starts[lengths[0]])} of each" if len(set(starts.values())) == 1 else ", ".join(f"{counted(count)} at {n:,}" for n, count in starts.items()))
              + ("" if all(len(some[n]) in (0, starts[n]) for some in cells.values() for n in lengths) else " but where a cell says otherwise")
              + ". Without positions a step took " + ", ".join(f"{min(x):,.0f} to {max(x):,.0f} ms at {n:,}" if len(x) > 1 else f"{x[0]:,.0f} ms, measured once, at {n:,}" for n, x in spread.items())
              + ": " + " and ".join(["differences of that size mean nothing"] * any(len(x) > 1 for x in spread.values())
                                    + ["a few % of what was measured once mean nothing"] * any(len(x) == 1 for x in spread.values())) + ".")
    rows = []
    for what, some in cells.items():
        row = [what]
        for n in lengths:
            mine = fastest(some[n])
            if mine is None:
                row.append("")
                continue
            if is_base(mine, mine):
                row.append(f"{mine['ms_per_step']:.1f} ms")
            else:
                time = 100 * (mine["ms_per_step"] / fastest(without(mine))["ms_per_step"] - 1)
                row.append(f"{time:+.1f} %" + (f" ({claims[what]})" if what in claims and n == 512 else ""))
            if len(some[n]) < starts[n]:
                row[-1] += f", {counted(len(some[n]))}"
        mine = fastest(some[lengths[-1]])
        if mine is None:
            row += ["", ""]
        elif is_base(mine, mine):
            row += [f"{mine['bytes'] / 1e6:.1f} MB", f"{mine['weights']:,}"]
        else:
            base = without(mine)[0]
            row += [f"{100 * (mine['bytes'] / base['bytes'] - 1):+.1f} %", f"{mine['position_weights']:,}, {100 * mine['position_weights'] / base['weights']:.2f} %"]
        rows.append(row)
    page.table(["", *[f"step at {n:,}" for n in lengths], f"memory at {lengths[-1]:,}", f"weights at {lengths[-1]:,}"], rows)
    page.text(f"Printed elsewhere: {claim}. A step here is that of a whole model, forward, backward and the optimizer.")


# ---------------------------------------------------------------------------------------------------- results of inspect

def inspected(page, lines):
    page.text("The scores of each head are split into what the terms of the model add, and what queries and keys give without them. The share of position is the "
              "variance over keys of the first, summed over queries, divided by the same sum for both.")
    rows, shown_distances = [], range(min(6, *(len(line["distances"]) for line in lines)))
    for line in lines:
        for layer, heads in enumerate(line["layers"]):
            for h, head in enumerate(heads):
                rows.append([f"{short(line['inspect'])}, layer {layer}, head {h}", f"{100 * head['share']:.1f} %", f"{head['distance']:.1f}",
                             *[f"{100 * head['weight'][d]:.2f} %" for d in shown_distances]])
    page.table(["", "share of position", "mean distance", *[f"weight at {-d}" for d in shown_distances]], rows)
    page.text(f"The columns of weight are the mean weights of offsets 0 to {-shown_distances[-1]}, each over all pairs with this offset.")

    def make(plt):
        figure, axes = plt.subplots(len(lines), 2, figsize=(9, 2.4 * len(lines)), squeeze=False, sharex=True)
        for (left, right), line in zip(axes, lines):
            middle = [(a + b) / 2 + 1 for a, b in line["distances"]]
            for layer, heads in enumerate(line["layers"]):
                for h, head in enumerate(heads):
                    top = max(head["position"])
                    left.plot(middle, [p - top for p in head["position"]], "-" if layer == 0 else "--", color=f"C{h}", linewidth=1, label=f"layer {layer}, head {h}")
                    right.plot(middle, head["weight"], "-" if layer == 0 else "--", color=f"C{h}", linewidth=1)
            left.set_title(f"{short(line['inspect'])}: what position adds to a score", fontsize=8)
            right.set_title("mean weight", fontsize=8)
            right.set_yscale("log")
            for at in (left, right):
                at.axvline(line["trained"], color="grey", linewidth=0.7, linestyle=":")
                at.set_xscale("log", base=2)
                at.xaxis.set_major_formatter(lambda x, _: f"{x - 1:g}")
                at.grid(alpha=0.3)
        axes[0][0].legend(fontsize=6, ncols=2)
        for at in axes[-1]:
            at.set_xlabel("distance (dotted: as far as training went)")
        figure.tight_layout()
        return figure
    page.picture(make, "what position adds to the scores of each head, and the mean weight, by distance")

    def heads_map(plt):
        figure, axes = plt.subplots(len(lines), 1, figsize=(9, 1.5 * len(lines) + 0.4), squeeze=False)
        for at, line in zip(axes.flat, lines):
            heads = [h for layer in line["layers"] for h in layer]
            drawn = at.imshow([[p - max(h["position"]) for p in h["position"]] for h in heads], aspect="auto", cmap="cividis", interpolation="nearest")
            figure.colorbar(drawn, ax=at)
            at.set_yticks(range(len(heads)), [f"{n}.{h}" for n, layer in enumerate(line["layers"]) for h in range(len(layer))], fontsize=6)
            ticks = [n for n, (a, _) in enumerate(line["distances"]) if a & (a - 1) == 0]
            at.set_xticks(ticks, [f"{line['distances'][n][0]:,}" for n in ticks], fontsize=7)
            at.set_title(f"{short(line['inspect'])}: what position adds, by head (layer.head) and distance", fontsize=8)
        figure.tight_layout()
        return figure
    page.picture(heads_map, "heat maps of what position adds, by head and distance")

    page.heading("Pairs that do not occur in training", 3)
    page.text("The share of the pairs of a window, two, four and eight times as long as in training, whose two positions (for absolute schemes) or whose offset "
              "(for relative ones) do not occur in training. Clipped offsets, and a bucket that all large distances share, leave none.")
    rows = []
    for n in (128, 512):
        for m in (2 * n, 4 * n, 8 * n):
            rows.append([f"{n:,} to {m:,}", f"{100 * (1 - n * n / m / m):.1f} %", f"{100 * (m - n) * (m - n + 1) / m / m:.1f} %", "0 %"])
    page.table(["trained, read", "absolute positions", "offsets", "clipped offsets, buckets"], rows)


def beside_torch(page, lines):
    page.text("A training step of a model of 4 layers, width 256 and 4 heads on bytes, alternating with the same model in PyTorch, on one thread; medians, with the fastest and "
              "the slowest step in brackets. Above 1, PyTorch takes longer.")
    def times(x):
        return f"{x[0]:,.0f} ms ({x[1]:,.0f} to {x[2]:,.0f})"
    page.table(["position, batch × length", "relpos", f"PyTorch {lines[0]['torch'].split('+')[0]}", "times"],
               [[f"{short(x['oracle'])}, {x['batch']} × {x['length']:,}", times(x["relpos_ms"]), times(x["torch_ms"]), f"{x['torch_ms'][0] / x['relpos_ms'][0]:.2f} ×"] for x in lines])
    for x in lines:
        plain = [y for y in lines if y["oracle"] == "none" and y["length"] == x["length"]]
        if x["oracle"] != "none" and plain:
            page.text(f"At {x['batch']} × {x['length']:,}, relpos with {short(x['oracle'])} takes {x['relpos_ms'][0] / plain[0]['torch_ms'][0]:.2f} times as long as PyTorch without any position.")


# By the name of a file: the function that writes its section, and the command that makes the file.
KINDS = {
    "inspect": (inspected, "relpos lab inspect MODEL --length 1024 --json >>out/inspect.jsonl"),
    "oracle": (beside_torch, "lab/oracle.py build/release/relpos lab/oracle.lab --time 4 --save out/oracle.jsonl [--set position=none] "
               "[--set batch=1 --set length=4096]"),
    "overhead": (overhead, None),
}


def main():
    parser = argparse.ArgumentParser(prog="relpos lab report", description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("files", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("-o", "--output", metavar="PAGE", help="PAGE.html or PAGE.md; without it, tables are printed")
    q = parser.parse_args()
    if q.output and pathlib.Path(q.output).suffix not in (".html", ".md"):
        sys.exit(f"relpos: lab report: --output: {q.output}: neither .html nor .md (PAGE.html or PAGE.md)")
    page = Page(pathlib.Path(q.output) if q.output else None)
    if page.path:
        page.heading("Position schemes on text", 1)
    machines, weights, tokens = [], 0, 0
    files = [(path, read(path)) for path in map(pathlib.Path, q.files)]
    words = next(filter(None, (preliminary_of(lines) for path, lines in files if path.stem not in KINDS)), None)
    if words:
        named = {path.stem: lines for path, lines in files}
        page.note(preliminary(words, named.get("length", []), named.get("rate", [])))
    for path, lines in files:
        stem = path.stem
        section, command = KINDS.get(stem, (None, None))
        if page.path or len(q.files) > 1:
            page.heading(EXPERIMENTS.get(stem, stem))
        if page.path:
            page.code(command or f"relpos lab sweep lab/{stem}.lab -o out/{path.name}")
        section(page, lines) if section else sweep(page, stem, lines)
        for line in lines:
            if "experiment" in line and section is not overhead:  # its models are timed, not trained
                read_in_all = math.prod(int(line["experiment"][k]) for k in ("steps", "batch", "length"))
                weights, tokens = max(weights, line["weights"]), max(tokens, read_in_all)
            if "machine" in line and line["machine"] not in machines:
                machines.append(line["machine"])
    if page.path:
        page.heading("What it does not show")
        page.text(f"The models that were measured on text have at most {weights:,} weights, and each was trained on at most {tokens:,} tokens. " * (weights > 0)
                  + " ".join(LIMITS.split()))
        page.heading("Machine")
        for m in machines:
            page.text(f"{m.get('cpu', 'a processor')}, {m.get('cores', '?')} cores, {m['threads']} thread{'s' * (m['threads'] > 1)}, relpos {m['version']} ({m['isa']}), {m['blas']}." + f" {m.get('blas_note', '')}." * ("blas_note" in m))
        write({page.path: page.finish(), **page.pictures})
    else:
        put(page.finish())


if __name__ == "__main__":
    main()
