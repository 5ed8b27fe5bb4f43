"""Section on the budget of the ranking: how soon the order of the schemes agrees with the final order, by the number of
settings tried (stage 1) and by the bytes read (the curves of stage 3).
SPDX-License-Identifier: Apache-2.0"""
import itertools
import statistics

from intervals import interval
from ranking import SETTINGS, by_scheme, differences, losses, mean_loss, of_schemes, scheme

SLOTS = 6  # settings of each scheme in stage 1


def tau(some, other, pairs=None):
    """Return Kendall's τ between two lists of losses: the fraction of pairs in the same order minus the fraction in the
    opposite order. `pairs` are the pairs of indices to compare (default: all)."""
    signs = [(some[a] - some[b]) * (other[a] - other[b]) for a, b in pairs
             or itertools.combinations(range(len(some)), 2)]
    return (sum(x > 0 for x in signs) - sum(x < 0 for x in signs)) / len(signs)


def differ_surely(groups, length):
    """Return the pairs of schemes, as indices, whose difference in the same starts has a 95 % interval without 0."""
    found = []
    for (n, a), (m, b) in itertools.combinations(enumerate(groups.values()), 2):
        values = differences(a, b, length)
        if len(values) > 1:
            middle, half = interval(values)
            if abs(middle) > half:
                found.append((n, m))
    return found


def settings_tried(first, groups, final):
    """Return [(k, mean, smallest, largest τ)]: each scheme has the best of k of its settings, for all choices of k
    settings. The settings are four rates in ascending order, then the lower and the higher value of the second setting,
    and the choice is the same for all schemes. τ is over pairs of schemes that read as many bytes in stage 1 and that
    differ surely in the end."""
    grid = by_scheme(first)
    slots = {}
    for what in final:
        runs = sorted((line for lines in grid.get(what, {}).values() for line in lines),
                      key=lambda line: (second_of(line) != "", float(line["experiment"]["lr"]),
                                        float(second_of(line) or 0)))
        slots[what] = [losses([line], int(line["experiment"]["length"])) for line in runs]
    if any(len(some) != SLOTS for some in slots.values()):
        return []
    pairs = same_budget(first, groups, final)
    if not pairs:
        return []
    found = []
    for k in range(1, SLOTS + 1):
        taus = [tau([min(min(slots[what][n].values(), default=float("inf")) for n in chosen) for what in final],
                    list(final.values()), pairs)
                for chosen in itertools.combinations(range(SLOTS), k)]
        found.append((k, statistics.mean(taus), min(taus), max(taus)))
    return found


def same_budget(first, groups, final):
    """Return the pairs of differ_surely that have equal numbers of steps in stage 1."""
    steps = {}
    for line in first:
        steps.setdefault(scheme(line), set()).add(line["experiment"]["steps"])
    names = list(final)
    return ([(n, m) for n, m in differ_surely({what: groups[what] for what in final},
                                              int(first[0]["experiment"]["length"])) if steps[names[n]]
             == steps[names[m]]])


def second_of(line):
    """Return the value of the second setting of a result as a text, or "" if it has the default."""
    return next((line["vary"][key] for key in SETTINGS if key != "lr" and key in line["vary"]),
                line["experiment"]["position"].partition(",base=")[2])


def bytes_read(groups, final, pairs):
    """Return [(MB, τ)] from the mean curves of the schemes, over pairs of their indices in `final`."""
    some = groups[next(iter(final))][0]
    each = int(some["experiment"]["batch"]) * int(some["experiment"]["length"])
    points = min(len(line.get("curve", [])) for lines in groups.values() for line in lines)
    found = []
    for n in range(points):
        means = [[line["curve"][n]["loss"] for line in groups[what]] for what in final]
        if all(x is not None for values in means for x in values):
            found.append((some["curve"][n]["step"] * each / 1e6,
                          tau([statistics.mean(values) for values in means], list(final.values()), pairs)))
    return found


def budget(page, first, last):
    """Add the section from the results of stage 1 and stage 3."""
    groups = of_schemes(last)
    length = int(last[0]["experiment"]["length"])
    final = {what: mean_loss(lines, length) for what, lines in groups.items() if losses(lines, length)}
    if len(final) < 3:
        return
    page.heading("The order by the budget", 2)
    page.text(f"Kendall's τ between the order of {len(final)} schemes with a smaller budget and the final order, that "
              f"of the mean losses of stage 3 at {length:,}: 1 if every pair is in the same order, 0 if half of them "
              "are.")
    sure = differ_surely({what: groups[what] for what in final}, length)
    tried = settings_tried(first, groups, final)
    if tried:
        page.table(["settings tried", *(str(k) for k, *_ in tried)],
                   [["τ", *(f"{mean:.2f} ({low:.2f} to {high:.2f})" for _, mean, low, high in tried)]],
                   "τ by the number of settings tried in stage 1: each scheme has its best of k settings, the same k "
                   f"for all schemes. It uses {len(same_budget(first, groups, final))} of "
                   f"{len(final) * (len(final) - 1) // 2} pairs: those that read "
                   f"equal bytes in stage 1 and differ surely in stage 3. Mean over all choices of k of the {SLOTS}, "
                   "with the smallest and the largest in brackets.")
    read = bytes_read(groups, final, sure)
    if read:
        page.table(["MB", *(f"{x:.1f}" for x, _ in read)], [["τ", *(f"{y:.2f}" for _, y in read)]],
                   "τ by the bytes read in the trainings of stage 3, whose learning rate falls to the end, over the "
                   f"{len(sure)} of {len(final) * (len(final) - 1) // 2} pairs that differ surely at the end (so it is "
                   "1 there).")
