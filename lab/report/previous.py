"""Section on a sweep with eval_previous: the number of training steps until a head attends to the previous token, by its weight, and by the training loss
that falls below counts of two bytes.
SPDX-License-Identifier: Apache-2.0"""
import statistics

from curves import curves
from results import grouped

HALF = 0.5


def watched(lines):
    return bool(lines[0].get("previous"))


def steps_to(line):
    """Return the first measured step at which a head gives more than half of its weight to the previous token, or None."""
    return next((x["step"] for x in line["previous"] if x["weight"] > HALF), None)


def bigrams(line):
    """Return the loss of counts of two bytes, or None if they were not counted."""
    return next((x["loss"] for x in line.get("ngrams", []) if x["order"] == 2 and "loss" in x), None)


def steps_below(line):
    """Return the first step at which the training loss is below that of counts of two bytes, or None. A model that predicts from the present byte only
    stays above. A result has means of the training loss over equal numbers of steps."""
    found, limit = line["losses"], bigrams(line)
    return next((round((n + 1) * int(line["experiment"]["steps"]) / len(found)) for n, x in enumerate(found) if x is not None and x < limit), None)


def cell(lines, steps):
    found = sorted(steps(line) or float("inf") for line in lines)
    last = int(lines[0]["experiment"]["steps"])

    def words(x):
        return f"{x:,.0f}" if x < float("inf") else f"not in {last:,}"

    middle = statistics.median_low(found)
    return words(middle) if found[0] == found[-1] else f"{words(middle)} ({words(found[0])} to {words(found[-1])})"


def first_heads(page, lines):
    groups = grouped(lines)
    starts = sorted({len(g) for g in groups.values()})
    every = lines[0]["previous"][0]["step"]
    counted = all(bigrams(line) and line.get("losses") for line in lines)
    page.text(f"Steps until a head gives more than half of its weight to the previous token, measured every {every:,} steps as a mean over four windows of held-out text: the "
              f"median of {' or '.join(map(str, starts))} start{'s' * (starts != [1])}, with the smallest and the largest in brackets. " + "The next column has the steps until the training loss is below that of counts of two bytes, which a model cannot reach that uses the present byte only. " * counted + "The last columns have that weight and the loss at the end of the training, as means over the starts.")

    def end(g, what):
        return f"{statistics.mean(what(line) for line in g):.2f}"

    page.table(["", "steps to a weight of ½", *["steps to the loss"] * counted, "weight at the end", "loss at the end"],
               [[what, cell(g, steps_to), *([cell(g, steps_below)] if counted else []), end(g, lambda line: line["previous"][-1]["weight"]), end(g, lambda line: line["train_loss"])] for what, g in groups.items()])
    page.picture(curves(groups, lambda line: [x["step"] for x in line["previous"]], lambda line: [x["weight"] for x in line["previous"]], "step", "weight of the previous token"),
                 "largest weight that a head gives to the previous token, by step")
