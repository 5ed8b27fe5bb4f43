"""Section on generated tasks: the fraction of lines that are answered exactly, by task, position scheme and size.
SPDX-License-Identifier: Apache-2.0"""
import statistics

from curves import curves
from intervals import wilson
from results import grouped, over, short
from sweeps import shown

SOLVED = 0.9  # the share of the lines of the trained size that a model which has learned its task answers
TASKS = {
    "copy": "abc=abc",
    "reverse": "abc=cba",
    "recall": "ab1cd2ef3cd=2: names of two letters with a digit each, then the digit of one of them",
    "passkey": "a repeated sentence that hides five digits, then those digits",
    "addition": "21+93=150 is 12 + 39 = 051: every number begins with its lowest digit",
}


def generated(lines):
    return lines[0].get("experiment", {}).get("generate", "none") != "none"


def learned(line):
    """Return True if SOLVED of the lines of the trained size or more have an exact answer."""
    return share(line, int(line["experiment"]["generate_size"])) >= SOLVED


def share(line, size):
    """Return the share of the lines of a size that are answered exactly; 0 if there are none."""
    return next((x["exact"] / x["lines"] for x in line["lengths"] if x["length"] == size and x["lines"]), 0.0)


def percent(lines, n):
    """Return the mean over the starts with the smallest and the largest, or the share of one start with Wilson's
    interval for other lines, in %."""
    found = (over(lines,
                  lambda line: line["lengths"][n]["exact"] / line["lengths"][n]["lines"] if line["lengths"][n]["lines"]
                  else None))
    if found and len(lines) == 1:
        found = found[0], *wilson(found[0], lines[0]["lengths"][n]["lines"])
    return shown(found and [100 * x for x in found], 1)


def starts_learned(lines):
    """Return how many starts have learned, with Wilson's interval for other starts."""
    n = sum(map(learned, lines))
    low, high = wilson(n / len(lines), len(lines))
    return f"{n} of {len(lines)} ({100 * low:.0f} to {100 * high:.0f} %)"


def one_each(groups):
    """Return True if every group has another position."""
    return len({g[0]["experiment"]["position"] for g in groups.values()}) == len(groups)


def answered(page, lines, pictures=True):
    sizes = [x["length"] for x in lines[0]["lengths"]]
    counts = [x["lines"] for line in lines for x in line["lengths"] if x["lines"]]
    of_task = {}
    for line in lines:
        of_task.setdefault(line["experiment"]["generate"], []).append(line)
    several = max(len(g) for some in of_task.values() for g in grouped(some, ("generate",)).values()) > 1
    page.text(f"Lines with an exact answer in %, of at least {min(counts):,} lines of each size, "
              + ("as means over the starts with the smallest and the largest in brackets. " if several
                 else "with the 95 % interval of Wilson (1927) for other lines in brackets. ")
              + "The lines are the same for all models and starts, and no training used them. A heading gives the "
                "sizes in training; larger sizes were not trained."
              + f" A start has learned if it answers {100 * SOLVED:.0f} % or more of the lines of the largest trained "
                "size; the interval is that of Wilson (1927) for other starts." * several)
    for task, some in of_task.items():
        rates = {}
        for line in some:
            rates.setdefault(line["experiment"]["position"], set()).add(line["experiment"].get("lr_terms"))
        one = all(len(found) == 1 for found in rates.values())  # a position without arrays has only lr_terms=1
        groups = grouped(some, ("generate", "lr_terms") if one else ("generate",))
        trained = ", ".join(sorted({line["experiment"].get("generate_size", "20") for line in some}, key=int))
        starts = sorted({len(g) for g in groups.values()})
        page.heading(f"{task}, sizes of 1 to {trained}", 3)
        tuned = sorted({g[0]["vary"]["lr"] for g in groups.values() if "lr" in g[0].get("vary", {})})
        each = bool(tuned) and one_each(groups)
        by_rate = each and len(tuned) > 1
        trained_last = int(trained.rsplit(", ", 1)[-1])
        order = (sorted(groups.items(),
                        key=lambda pair: -statistics.mean(share(line, trained_last) for line in pair[1])) if each
                 and trained_last in sizes else groups.items())
        counted = max(starts) > 1 and {int(line["experiment"].get("generate_size", "20"))
                                       for line in some} <= set(sizes)
        page.table(["", *["learning rate"] * by_rate, *["starts that learned"] * counted,
                    *[f"size {n:,}" for n in sizes]],
                   [[short(g[0]["experiment"]["position"]) if each else what, *[g[0]["experiment"]["lr"]] * by_rate,
                     *([starts_learned(g)] if counted else []), *[percent(g, n) for n in range(len(sizes))]]
                    for what, g in order],
                   f"Exact answers: {TASKS.get(task, task)}. {' or '.join(map(str, starts))} "
                   f"start{'s' * (starts != [1])} for "
                   f"each{f', learning rate {tuned[0]}' if each and not by_rate else ''}.")
        if pictures and len(sizes) > 1:
            page.picture(curves(groups, lambda line: [x["length"] for x in line["lengths"]],
                                lambda line: [100 * x["exact"] / x["lines"] if x["lines"] else None
                                              for x in line["lengths"]], "size", "answered, %", task),
                         f"{task}: lines answered by their size")
