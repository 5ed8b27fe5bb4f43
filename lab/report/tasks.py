"""Section on generated tasks: the fraction of lines that are answered exactly, by task, position scheme and size.
SPDX-License-Identifier: Apache-2.0"""
from curves import curves
from results import grouped, over

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
    mean, low, high = (100 * x for x in found)
    return f"{mean:.1f} %" if low == high else f"{mean:.1f} % ({low:.0f} to {high:.0f})"


def answered(page, lines):
    sizes = [x["length"] for x in lines[0]["lengths"]]
    counts = [x["lines"] for line in lines for x in line["lengths"] if x["lines"]]
    of_task = {}
    for line in lines:
        of_task.setdefault(line["experiment"]["generate"], []).append(line)
    page.text(f"Fraction of lines with an exact answer, of at least {min(counts):,} lines of each size. The lines are the same for all models, and no training used them. Means over the starts, with the "
              "smallest and the largest in brackets. A heading gives the sizes in training; a larger size tests what was not trained.")
    for task, some in of_task.items():
        rates = {}
        for line in some:
            rates.setdefault(line["experiment"]["position"], set()).add(line["experiment"].get("lr_terms"))
        one = all(len(found) == 1 for found in rates.values())  # a position without arrays has only lr_terms=1
        groups = grouped(some, ("generate", "lr_terms") if one else ("generate",))
        trained = ", ".join(sorted({line["experiment"].get("generate_size", "20") for line in some}, key=int))
        starts = sorted({len(g) for g in groups.values()})
        page.heading(f"{task}, sizes of 1 to {trained}", 3)
        page.text(f"{TASKS.get(task, task)}. {' or '.join(map(str, starts))} start{'s' * (starts != [1])} for each.")
        page.table(["", *[f"size {n:,}" for n in sizes]], [[what, *[percent(g, n) for n in range(len(sizes))]] for what, g in groups.items()])
        if len(sizes) > 1:
            page.picture(curves(groups, lambda line: [x["length"] for x in line["lengths"]],
                                lambda line: [100 * x["exact"] / x["lines"] if x["lines"] else None for x in line["lengths"]], "size", "answered, %", task),
                         f"{task}: lines answered by their size")
