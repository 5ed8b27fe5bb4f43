"""Section on generated tasks: the fraction of lines that are answered exactly, by task, position scheme and size.
SPDX-License-Identifier: Apache-2.0"""
from curves import curves
from intervals import wilson
from results import grouped, over, short

TASKS = {
    "copy": "abc=abc",
    "reverse": "abc=cba",
    "recall": "ab1cd2ef3cd=2: names of two letters with a digit each, then the digit of one of them",
    "passkey": "a repeated sentence that hides five digits, then those digits",
    "addition": "21+93=150 is 12 + 39 = 051: every number begins with its lowest digit",
}


def generated(lines):
    return lines[0].get("experiment", {}).get("generate", "none") != "none"


def percent(lines, n):
    found = over(lines, lambda line: line["lengths"][n]["exact"] / line["lengths"][n]["lines"] if line["lengths"][n]["lines"] else None)
    if not found:
        return "none"
    mean, low, high = found
    ends = wilson(mean, lines[0]["lengths"][n]["lines"])
    least, most = (f"{100 * x:.0f}" for x in (low, high))
    return f"{100 * mean:.1f} % ({100 * ends[0]:.1f} to {100 * ends[1]:.1f})" + (f", starts {least} to {most}" if least != most else "")


def one_each(groups):
    """Return True if every group has another position."""
    return len({g[0]["experiment"]["position"] for g in groups.values()}) == len(groups)


def answered(page, lines, pictures=True):
    sizes = [x["length"] for x in lines[0]["lengths"]]
    counts = [x["lines"] for line in lines for x in line["lengths"] if x["lines"]]
    of_task = {}
    for line in lines:
        of_task.setdefault(line["experiment"]["generate"], []).append(line)
    page.text(f"Fraction of lines with an exact answer, of at least {min(counts):,} lines of each size, as a mean over the starts. The lines are the same for all models and starts, and no training used them. "
              "Brackets have the 95 % interval of Wilson (1927) for other lines; different starts are named with the smallest and the largest. "
              "A heading gives the sizes in training; a larger size tests what was not trained.")
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
        page.table(["", *["learning rate"] * by_rate, *[f"size {n:,}" for n in sizes]],
                   [[short(g[0]["experiment"]["position"]) if each else what, *[g[0]["experiment"]["lr"]] * by_rate, *[percent(g, n) for n in range(len(sizes))]] for what, g in groups.items()],
                   f"Exact answers: {TASKS.get(task, task)}. {' or '.join(map(str, starts))} start{'s' * (starts != [1])} for each{f', learning rate {tuned[0]}' if each and not by_rate else ''}.")
        if pictures and len(sizes) > 1:
            page.picture(curves(groups, lambda line: [x["length"] for x in line["lengths"]],
                                lambda line: [100 * x["exact"] / x["lines"] if x["lines"] else None for x in line["lengths"]], "size", "answered, %", task),
                         f"{task}: lines answered by their size")
