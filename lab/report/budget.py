"""Section on the budget of the ranking: how soon the order of the schemes agrees with the final order, by the number of settings tried (stage 1) and
by the bytes read (the curves of stage 3).
SPDX-License-Identifier: Apache-2.0"""
import itertools
import statistics

from ranking import by_scheme, losses, scheme

SLOTS = 6  # settings of each scheme in stage 1


def tau(some, other):
    """Return Kendall's τ between two lists of losses: the fraction of pairs in the same order minus the fraction in the opposite order."""
    signs = [(a - c) * (b - d) for (a, b), (c, d) in itertools.combinations(zip(some, other), 2)]
    return (sum(x > 0 for x in signs) - sum(x < 0 for x in signs)) / len(signs)


def settings_tried(first, final):
    """Return [(k, mean, smallest, largest τ)]: each scheme has the best of k of its settings, for all choices of k settings, the same for all schemes."""
    grid = by_scheme(first)
    slots = {what: [losses(lines, int(lines[0]["experiment"]["length"])) for lines in grid.get(what, {}).values()] for what in final}
    if any(len(some) != SLOTS for some in slots.values()):
        return []
    found = []
    for k in range(1, SLOTS + 1):
        taus = [tau([min(min(slots[what][n].values(), default=float("inf")) for n in chosen) for what in final], list(final.values()))
                for chosen in itertools.combinations(range(SLOTS), k)]
        found.append((k, statistics.mean(taus), min(taus), max(taus)))
    return found


def bytes_read(groups, final):
    """Return [(MB, τ)] from the mean curves of the schemes."""
    some = groups[next(iter(final))][0]
    each = int(some["experiment"]["batch"]) * int(some["experiment"]["length"])
    points = min(len(line.get("curve", [])) for lines in groups.values() for line in lines)
    found = []
    for n in range(points):
        means = [[line["curve"][n]["loss"] for line in groups[what]] for what in final]
        if all(x is not None for values in means for x in values):
            found.append((some["curve"][n]["step"] * each / 1e6, tau([statistics.mean(values) for values in means], list(final.values()))))
    return found


def budget(page, first, last):
    """Add the section from the results of stage 1 and stage 3."""
    groups = {}
    for line in last:
        groups.setdefault(scheme(line), []).append(line)
    length = int(last[0]["experiment"]["length"])
    final = {what: statistics.mean(losses(lines, length).values()) for what, lines in groups.items() if losses(lines, length)}
    if len(final) < 3:
        return
    page.heading("The order by the budget", 2)
    page.text(f"Kendall's τ between the order of {len(final)} schemes with a smaller budget and the final order, that of the mean losses of stage 3 at {length:,}: 1 if all pairs agree, 0 if a half does.")
    tried = settings_tried(first, final)
    if tried:
        page.text(f"By the number of settings tried in stage 1: each scheme has its best of k settings. Mean over all choices of k of the {SLOTS}, with the smallest and the largest in brackets.")
        page.table(["settings tried", *(str(k) for k, *_ in tried)], [["τ", *(f"{mean:.2f} ({low:.2f} to {high:.2f})" for _, mean, low, high in tried)]])
    read = bytes_read(groups, final)
    if read:
        page.text("By the bytes read in the trainings of stage 3, whose learning rate falls to the end:")
        page.table(["MB", *(f"{x:.1f}" for x, _ in read)], [["τ", *(f"{y:.2f}" for _, y in read)]])
