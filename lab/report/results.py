"""Read files of results, check every line, and group the lines.
SPDX-License-Identifier: Apache-2.0"""
import json
import math
import statistics
import sys

# The expected shape of a value is (test, description), a dict, or a list [shape of items, number of items]. Without the
# number, the list must have at least one item; None allows any number.
TEXT = (lambda x: isinstance(x, str), "a text")
INTEGER = (lambda x: type(x) is int and 0 <= x < 1e15, "an integer")
COUNT = (lambda x: type(x) is int and 0 < x < 1e15, "an integer above 0")
NUMBER = (lambda x: type(x) in (int, float) and -1e300 < x < 1e300, "a number")
POSITIVE = (lambda x: type(x) in (int, float) and 0 < x < 1e300, "a number above 0")
MEASURED = (lambda x: x is None or POSITIVE[0](x), "a number above 0")
SHARE = (lambda x: type(x) in (int, float) and 0 <= x <= 1, "a number from 0 to 1")
MACHINE = {"threads": COUNT, "version": TEXT, "isa": TEXT, "blas": TEXT}


def settings(text):
    """Return the keys and values of an experiment. Empty values are omitted."""
    pairs = (line.partition(" = ") for line in text.splitlines())
    return {key: value for key, _, value in pairs if value}


def is_experiment(text):
    found = settings(text) if isinstance(text, str) else {}
    return {"task", "position"} <= found.keys() and all(found.get(k, "").isdecimal()
                                                        for k in ("seed", "length", "batch", "steps"))


def result_shape(line):
    if not is_experiment(line.get("experiment")):
        return {"experiment": (is_experiment, "an experiment")}
    if settings(line["experiment"])["task"] == "classifier":
        length = {"length": COUNT, "accuracy": (lambda x: x is None or SHARE[0](x), SHARE[1])}
    elif settings(line["experiment"]).get("generate", "none") != "none":
        length = {"length": COUNT, "lines": INTEGER, "exact": INTEGER}
    else:
        length = {"length": COUNT, "perplexity": MEASURED,
                  "positions": [{"from": INTEGER, "to": COUNT, "perplexity": MEASURED}, None]}
    vary = (lambda x: isinstance(x, dict) and all(isinstance(v, str) for v in x.values()), "an object of texts")
    return {"vary": vary, "lengths": [length], "train_loss": NUMBER, "weights": COUNT, "position_weights": INTEGER,
            "ms_per_step": POSITIVE,
            "bytes": COUNT, "machine": MACHINE}


def inspect_shape(line):
    n = len(line["distances"]) if isinstance(line.get("distances"), list) else None
    head = {"share": SHARE, "distance": NUMBER, "position": [NUMBER, n], "weight": [NUMBER, n]}
    return {"inspect": TEXT, "trained": COUNT, "distances": [[INTEGER, 2]], "layers": [[head]]}


def oracle_shape(_):
    return {"oracle": TEXT, "batch": COUNT, "length": COUNT, "relpos_ms": [POSITIVE, 3], "torch_ms": [POSITIVE, 3],
            "torch": TEXT, "machine": MACHINE}


def whole_shape(line):
    starts = len(line["relpos"]) if isinstance(line.get("relpos"), list) else None
    return {"whole": TEXT, "steps": COUNT, "batch": COUNT, "length": COUNT, "relpos": [NUMBER],
            "torch": [NUMBER, starts], "version": TEXT, "machine": MACHINE}


def forward_shape(_):
    return {"forward": TEXT, "batch": COUNT, "length": COUNT, "heads": COUNT, "width": COUNT, "ms": POSITIVE,
            "ratio": [POSITIVE, 3], "machine": MACHINE}


def terms_shape(_):
    array = {"name": TEXT, "use": TEXT, "presence": TEXT, "shape": TEXT}
    return {"version": TEXT, "terms": [{"name": TEXT, "parameters": [{"key": TEXT}, None], "arrays": [array, None]}]}


def wrong(value, shape, at=""):
    """Return a text that says how a value differs from its expected shape, or None."""
    found = json.dumps(value, allow_nan=False)
    found = f"{at or 'the line'} is {found if len(found) <= 40 else found[:37] + '...'}, not "
    if isinstance(shape, tuple):
        return None if shape[0](value) else found + shape[1]
    if isinstance(shape, list):
        inner, n = [*shape, 1][:2]
        if not isinstance(value, list) or (len(shape) == 1
                                           and not value) or (len(shape) == 2 and n not in (None, len(value))):
            return found + (f"a list of {n}" if len(shape) == 2 and n is not None else "a list that is not empty"
                            if len(shape) == 1 else "a list")
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
    """Return the results in a file. A wrong line ends the program, so other functions need no checks."""
    shape_of, makes = {"inspect": (inspect_shape, "relpos lab inspect --json"),
                       "oracle": (oracle_shape, "lab/oracle.py --time"),
                       "whole": (whole_shape, "lab/oracle.py --whole"), "forward": (forward_shape, "lab/forward.py"),
                       "terms": (terms_shape, "relpos info --json")}.get(
path.stem, (result_shape, "relpos lab sweep"))

    def refuse(number, what, mend):
        sys.exit(f"relpos: {path}:{number}: {what} ({mend})")

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        sys.exit(f"relpos: {path}: cannot be read: {getattr(e, 'strerror', None) or 'it is not text'} (name a file "
                 f"that {makes} wrote)")
    if not text.strip():
        sys.exit(f"relpos: {path}: it is empty (name a file that {makes} wrote)")
    lines, ranges = [], {}
    for number, line_text in enumerate(text.rstrip("\n").split("\n"), 1):
        try:
            line = json.loads(line_text)
            found = wrong(line, shape_of(line) if isinstance(line, dict) else {})
        except (ValueError, RecursionError):
            found = "not JSON"
        if found:
            refuse(number, f"not a result of {makes}: {found}", "delete this line to show the others; the same command "
                                                                "makes it again")
        lines.append(line)
        if shape_of is not result_shape:
            continue
        line["experiment"] = settings(line["experiment"])
        first, task = lines[0], line["experiment"]["task"]
        if task != first["experiment"]["task"]:
            refuse(number, f"task is {task}, but that of line 1 is {first['experiment']['task']}",
                   "use one file for each task")
        lengths, others = (", ".join(str(x["length"]) for x in some["lengths"]) for some in (line, first))
        if path.stem != "overhead" and lengths != others:
            refuse(number, f"eval_lengths are {lengths}, but those of line 1 are {others}", "use one file for each")
        extra = [(f"lengths[{n}].pieces", x.get("pieces", []),
                  [(lambda x: x is None or NUMBER[0](x), "a number"), None]) for n, x in enumerate(line["lengths"])]
        extra.append(("previous", line.get("previous", []),
                      [{"step": COUNT, "weight": SHARE}, len(first.get("previous", []))]))
        extra.append(("processor_share", line.get("processor_share", 1.0),
                      (lambda x: NUMBER[0](x) and x >= 0, "a number from 0")))
        extra.append(("losses", line.get("losses", []), [(lambda x: x is None or NUMBER[0](x), "a number"), None]))
        extra.append(("pieces_of_files", line.get("pieces_of_files", []), [INTEGER, None]))
        extra.append(("curve", line.get("curve", []),
                      [{"step": COUNT, "loss": (lambda x: x is None or NUMBER[0](x), "a number")}, None]))
        extra.append(("ngrams", line.get("ngrams", []), [{"order": COUNT, "perplexity": POSITIVE}, None]))
        found = next(filter(None, (wrong(value, shape, at) for at, value, shape in extra)), None)
        if found:
            refuse(number, f"not a result of {makes}: {found}", "delete this line to show the others; the same command "
                                                                "makes it again")
        for x in line["lengths"]:
            found = [(p["from"], p["to"]) for p in x.get("positions", [])]
            if found and ranges.setdefault(x["length"], found) != found:
                refuse(number, f"positions of length {x['length']} differ from those of earlier lines",
                       "delete this line to show the others")
    for number, line in enumerate(lines, 1):
        if path.stem == "overhead" and not any(is_base(other, line) for other in lines):
            refuse(number, f"no result without positions at length {line['experiment']['length']} to compare this one "
                           "with",
                   "add none to the values of vary.position")
    return once(lines, refuse) if shape_of is result_shape else lines


def once(lines, refuse):
    """Of several results with the same experiment and seed, keep the fastest. Their other numbers must be equal."""
    found = {}
    for number, line in enumerate(lines, 1):
        key = tuple(line["experiment"].items())
        before, other = found.setdefault(key, (number, line))
        differ = [k for k in ("train_loss", "lengths", "weights", "position_weights") if line[k] != other[k]]
        if differ:
            refuse(number, f"the same experiment and seed as line {before}, but another {differ[0]}",
                   "delete one of the two to show the others")
        if line["ms_per_step"] < other["ms_per_step"]:
            found[key] = before, line
    return [line for _, line in found.values()]


def step_ms(lines):
    """Return the processor time of a step of each result in ms. A contended training counts with the median of those of
    the same machine that were not."""
    def clean(line):
        return line.get("cpu_ms_per_step") or (line["ms_per_step"] * min(line.get("processor_share", 1), 1)
                                               if not contended(line) else None)

    def machine(line):
        return (line["machine"].get("cpu"), line["machine"]["isa"], line["experiment"]["length"],
                line["experiment"]["batch"], line["experiment"]["layers"])

    found = {}
    for line in lines:
        found.setdefault(machine(line), []).append(clean(line))
    known = {where: [x for x in some if x] for where, some in found.items()}
    return [clean(line) or statistics.median(known[machine(line)] or [line["ms_per_step"]]) for line in lines]


def tokens_read(line):
    """Return how many tokens, bytes of most models, a training reads."""
    return math.prod(int(line["experiment"][key]) for key in ("steps", "batch", "length"))


def contended(line):
    """Return True if other programs took processor time from a training on one thread, so its times are no timings."""
    return line["machine"]["threads"] == 1 and line.get("processor_share", 1) < 0.9


def is_base(base, line):
    """Return True if `base` is the experiment of `line` without positions, with any seed."""
    return {**line["experiment"], "seed": "", "position": "none"} == {**base["experiment"], "seed": ""}


def grouped(lines, apart=()):
    """Return {label: results that differ only in the seed}. A label contains the keys that the sweep varied, and all
    other keys in which the experiments differ, except those in `apart`."""
    groups = {}
    for line in lines:
        key = {k: v for k, v in line["experiment"].items() if k not in ("seed", *apart)}
        groups.setdefault(tuple(key.items()), []).append(line)
    found = [dict(key) for key in groups]
    keys = dict.fromkeys(k for some in (*(line["vary"] for line in lines), *found) for k in some)
    differ = [k for k in keys if len({some.get(k) for some in found}) > 1]

    def label(some, vary, value):
        shown = [k for k in keys if k in differ or k in vary and k not in ("seed", *apart)]
        return ", ".join(value(some[k]) if k.endswith("position") and k in some else f"{k} = {some.get(k, 'none')}"
                         for k in shown) or "all"

    for value in (short, str):  # use full names if two short names are equal
        labels = [label(some, group[0]["vary"], value) for some, group in zip(found, groups.values())]
        if len(set(labels)) == len(labels):
            break
    return dict(zip(labels, groups.values()))


def over(lines, what):
    """Return the mean, smallest and largest value over the starts, or None if a start has no value."""
    values = [what(line) for line in lines]
    return None if None in values else (statistics.mean(values), min(values), max(values))


def mean(lines, n):
    """Return the mean perplexity at the n-th length over the starts, or None if a start has none."""
    found = over(lines, lambda line: line["lengths"][n]["perplexity"])
    return found and found[0]


def counted(starts):
    return f"{starts} start{'s' * (starts != 1)}"


def short(position):
    """Return the text of a position without the parameters that all causal models share."""
    for parameter in (",bidirectional=0", ",right=0"):
        position = position.replace(parameter, "")
    return ",".join(p for p in position.split(",") if not p.startswith(("original_max_position", "max_position")))
