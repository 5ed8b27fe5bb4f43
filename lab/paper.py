#!/usr/bin/env python3
"""Write the page on the ranking of seven position schemes, with its tables and figures, from the raw results.

    lab/paper.py [RESULTS] [-o PAGE.md] [--check]

RESULTS is the folder with ranking-1.jsonl to ranking-7.jsonl and the other results (default: lab/results). The text is
in lab/paper.txt. Every number of a result in it is computed here from these files, and so is every word such as
"better" or "tie": a function for each block of the text returns them in a dictionary, or None if the block is left out.
With --check, compare the page with the results and write nothing. tests/lab/ranking.sh computes some of the numbers
again without this code.
SPDX-License-Identifier: Apache-2.0"""
import argparse
import itertools
import math
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
root = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(root / "lab"), str(root / "lab" / "report")]
import budget  # noqa: E402
import dropped  # noqa: E402
import longer  # noqa: E402
import previous  # noqa: E402
import prose  # noqa: E402
import ranking  # noqa: E402
import tasks  # noqa: E402
from intervals import TIE, chance, change, interval, minus, nats, p_value, verdict  # noqa: E402
from page import Page, write  # noqa: E402
from prose import joined  # noqa: E402
from ranking import at_length, beyond, differences, gate, mean_loss, scheme  # noqa: E402
from results import contended, read, step_ms, tokens_read  # noqa: E402

NAMES = {"none": "no positions", "sinusoidal": "sinusoidal positions", "learned": "learned positions", "alibi": "ALiBi",
         "kerple": "KERPLE", "t5": "T5", "rope": "RoPE"}
STAGES = {1: "four rates, then two values of a second setting at the best rate", 2: "the best two settings of each",
          3: "the best setting of each, {starts} new starts, report pieces", 4: "the same setting, one start",
          6: "the models of stage 3 with RoPE, T5, KERPLE and ALiBi, with positions and without",
          7: "models of stage 3 with T5, KERPLE and RoPE, at 4,096 and at 128"}
SIGNS = {"lower": "<", "higher": "<", "tie": "≈", "undecided": "≲"}  # between neighbours in the order of the losses
FLAT = math.log(1.01)  # a perplexity that rises by less than this does not rise
ABLE = 0.02  # a model that answers at least this share of the lines of a size answers some
AXES = ("batch", "length")


class Study:
    """The results of all stages. Missing files give empty lists, and their sections are left out."""

    def __init__(self, folder):
        def of(name):
            path = folder / f"{name}.jsonl"
            return read(path) if path.exists() else []
        self.stages = {stage: of(f"ranking-{stage}") for stage in STAGES}
        self.tasks, self.tasks2, self.tasks3, self.addition, self.classify, self.classify2, self.previous = others = [
            of(name) for name in ("tasks", "tasks-2", "tasks-3", "addition", "classify", "classify-2", "previous")]
        self.trainings = trainings(line for lines in (*self.stages.values(), *others) for line in lines)
        self.ms = {id(line): ms for ms, line in zip(step_ms(self.trainings), self.trainings)}
        self.groups = ranking.of_schemes(self.stages[3])
        self.trained = int(self.stages[3][0]["experiment"]["length"])
        self.lengths = [x["length"] for x in self.stages[3][0]["lengths"]]
        self.starts = min(map(len, self.groups.values()))
        self.final = {what: mean_loss(lines, self.trained) for what, lines in self.groups.items()}
        self.order = sorted(self.groups, key=self.final.get)
        # the steps until the training loss is below counts of three bytes
        self.steps = {what: median_steps(lines, previous.steps_below) for what, lines in self.groups.items()}

    def rise(self, what, length):
        return beyond(self.groups[what], self.trained, length)

    def difference(self, a, b, length):
        return differences(self.groups[a], self.groups[b], length)

    def counts(self, order):
        return next(x["perplexity"] for x in self.stages[3][0]["ngrams"] if x["order"] == order)

    def hours(self, lines):
        """Return the core-hours of the steps of trainings."""
        return sum(self.ms[id(line)] * int(line["experiment"]["steps"]) for line in lines) / 3.6e6

    def fits(self, by="loss"):
        """Return {scheme: powers of the batch and the length in the tokens until the loss is below counts of three
        bytes, or until the weight of the previous token has half its rise}, for the schemes that reach it."""
        found = {}
        for some in previous.by_size(self.previous).values():
            powers = previous.fitted(some)[by]
            if powers:
                found[scheme(next(iter(some.values()))[0])] = powers
        return found

    def everywhere(self):
        """Return the numbers that every block can use."""
        return {"starts": self.starts, "trained": self.trained, "longest": self.lengths[-1], "tie": TIE,
                "one": self.counts(1), "three": self.counts(3), "six": self.counts(6)}


def median_steps(lines, steps):
    """Return the median of the steps of the starts, infinite if they are not reached."""
    return statistics.median_low([steps(line) or math.inf for line in lines])


def trainings(lines):
    """Return the results that are trainings, not second readings of one."""
    return [line for line in lines if not line["experiment"].get("eval_position")]


def megabytes(line):
    """Return the MB of text that a training reads."""
    return tokens_read(line) / 1e6


def perplexity(lines, length):
    """Return the mean perplexity of the starts."""
    return statistics.mean(at_length(line, length)["perplexity"] for line in lines)


def sign(values):
    """Return "rises", "falls" or "no sure change", for changes in several starts."""
    middle, half = interval(values)
    return "rises" if middle - half > 0 else "falls" if middle + half < 0 else "no sure change"


def be(what):
    return "are" if what in ("none", "sinusoidal", "learned") else "is"


def ranks(found):
    """Return the items of a dictionary, the smallest value first."""
    return sorted(found.items(), key=lambda pair: pair[1])


def last_first(found):
    """Return the items of a dictionary, the largest value first."""
    return sorted(found.items(), key=lambda pair: -pair[1])


def rates_of(lines):
    return sorted({line["vary"]["lr"] for line in lines}, key=float)


# ------------------------------------------------------------------------------------------------------------ summary

def answer(s):
    signs = [""]
    for a, b in itertools.pairwise(s.order):
        values = s.difference(a, b, s.trained)
        signs.append(SIGNS[verdict(values, p_value(values))] + " ")
    found = {what: s.rise(what, s.lengths[-1]) for what in s.order}
    read = {what: values for what, values in found.items() if len(values) == len(s.groups[what])}
    return {"order": [{"sign": sign, "scheme": NAMES[what], "perplexity": perplexity(s.groups[what], s.trained)}
                      for sign, what in zip(signs, s.order)],
            "contrasts": [words for found in ranking.contrasts(s.groups) for words in [contrast(s, *found)] if words],
            "changes": [{"scheme": NAMES[what], "change": change(values)}
                        for what, values in sorted(read.items(), key=lambda pair: statistics.mean(pair[1]))],
            "unread": [{"scheme": NAMES[what]} for what in s.order if what not in read]}


def contrast(s, a, b, length, values, p, words):
    """Return the words and numbers of a comparison of two schemes, or None if it was not measured."""
    n = s.lengths.index(s.trained)
    out = [NAMES[what] for what in (a, b) if what in s.groups and gate(s.groups[what], n)]
    found = {"length": length, "a": NAMES[a], "b": NAMES[b], "out": out, "tied": False, "undecided": False,
             "decided": False, "poor": False}
    if out:
        return found
    if not values:
        return None
    better, worse = (a, b) if statistics.mean(values) < 0 else (b, a)
    middle, half = interval(values)
    decided = words not in ("tie", "undecided")
    return {**found, "better": NAMES[better], "better_is": be(better), "worse": NAMES[worse], "worse_is": be(worse),
            "middle": abs(middle), "half": half, "p": chance(p),
            "tied": words == "tie", "undecided": words == "undecided", "decided": decided,
            "perplexity": decided and perplexity(s.groups[worse], length),
            "poor": decided and perplexity(s.groups[worse], length) > s.counts(1)}


def emergence(s):
    """Return when heads attend to the previous token, and whether that order agrees with the order of the final
    losses."""
    if len(s.groups) < 3 or not all(map(previous.steps_below, s.stages[3])) or not previous.watched(s.stages[3]):
        return None
    rises = {what: median_steps(lines, previous.steps_to) for what, lines in s.groups.items()}
    names = list(s.groups)
    pairs = [(names[n], names[m]) for n, m in budget.differ_surely(s.groups, s.trained)]
    signs = [(rises[a] - rises[b]) * (s.final[a] - s.final[b]) for a, b in pairs]
    some = s.stages[3][0]
    return {"limit": previous.trigrams(some),
            "medians": [{"steps": n, "scheme": NAMES[what]} for what, n in ranks(s.steps)],
            "pairs": len(signs), "same": sum(x > 0 for x in signs), "opposite": sum(x < 0 for x in signs),
            "equal": sum(x == 0 for x in signs),
            "every": some["previous"][0]["step"], "warmup": some["experiment"]["warmup"]}


def law(s):
    """Return how the tokens until heads attend to the previous token depend on the size of a step."""
    fits = s.fits()
    if not fits:
        return None
    weight = s.fits("weight")
    by_weight = excluded(weight)
    every = sorted(line["previous"][0]["step"] for line in s.previous)
    wide = [f"{NAMES[what]}'s for the {axis}" for what, powers in fits.items()
            for axis, (power, half) in zip(AXES, powers)
            if power - half <= 0 and power + half >= 1]
    return {"batch": span(fits, 0), "length": span(fits, 1), "schemes": len(fits),
            "sizes": len({previous.size(line) for line in s.previous}), "missed": excluded(fits),
            "wide": wide, "wide_contain": "contains" if len(wide) == 1 else "contain",
            "weight": len(weight), "by_weight": by_weight or "none",
            "exclude": "excludes" if len(by_weight) == 1 else "exclude",
            "first": every[0], "last": every[-1], "no_positions": slowest(s)}


def slowest(s):
    """Return how many times the tokens of the fastest scheme no positions need, or None if another scheme needs
    most."""
    largest, t = previous.t_of_all(s.previous)
    if not t or max(t, key=t.get) != "none":
        return None
    fast = min(t, key=t.get)
    slow_steps, fast_steps = ([previous.steps_below(line) for line in s.previous if scheme(line) == what
                               and previous.size(line) == largest]
                              for what in ("none", fast))
    own = [s.steps[what] for what in ("none", fast) if what in s.steps]  # stage 3, each at its own rate
    return {"batch": largest[0], "length": largest[1], "times": t["none"] / t[fast], "fast": NAMES[fast],
            "least": min(slow_steps) / max(fast_steps), "most": max(slow_steps) / min(fast_steps),
            "own": own[0] / own[1] if len(own) == 2 and max(own) < math.inf else None}


def excluded(fits):
    """Return the powers whose interval does not contain 0.5, in words."""
    found = {what: [axis for axis, (power, half) in zip(AXES, powers) if abs(power - 0.5) > half]
             for what, powers in fits.items()}
    return [f"{NAMES[what]} ({joined(axes)})" for what, axes in found.items() if axes]


def span(fits, n):
    found = sorted(powers[n][0] for powers in fits.values())
    return minus(f"{found[0]:.2f} to {found[-1]:.2f}")


def scaffolds(s):
    """Return what models lose and win that go on without their positions."""
    pairs = {what: pair for what, pair in dropped.by_scaffold(s.stages[6]).items() if min(map(len, pair)) > 1}
    if not pairs:
        return None

    def worse(what):
        kept, gone = pairs[what]
        (middle, half), (middle2, half2) = (interval(differences(gone, kept, n)) for n in (s.trained, 2 * s.trained))
        return {"scheme": NAMES[what], "middle": abs(middle), "half": half, "middle2": abs(middle2), "half2": half2}

    learned = [what for what, (_, gone) in pairs.items() if perplexity(gone, s.trained) < s.counts(3)]
    others = len(learned) < len(pairs)
    scalings = dropped.scaled(s.stages[6])
    best = [(n, best_scaling(scalings, n)) for n in (2 * s.trained, s.lengths[-1]) if scalings]
    return {"mb": megabytes(s.stages[6][0]), "twice": 2 * s.trained,
            "pairs": [{"scheme": NAMES[what], "gone": perplexity(pairs[what][1], s.trained),
                       "kept": perplexity(pairs[what][0], s.trained)}
                      for what in sorted(pairs, key=lambda what: mean_loss(pairs[what][1], s.trained))],
            "learned": [NAMES[what] for what in learned] or "None", "others": others,
            "worse": [worse(what) for what in learned if others],
            "scaled": bool(scalings), "scalings": len(scalings),
            "best": [{"perplexity": perplexity(scalings[name], n), "length": n, "scaling": name} for n, name in best]}


def best_scaling(scalings, length):
    """Return the name of the scaling of RoPE with the lowest loss at a length."""
    return min(scalings, key=lambda name: mean_loss(scalings[name], length))


def lengthened(s):
    """Return what training on longer windows changes."""
    groups = longer.by_reading(s.stages[7])

    def at(group, base, *lengths):
        return [{"nats": nats(differences(group, base, n)), "length": n} for n in lengths]

    changes, trained_with, read_with = [], [], []
    for what, some in groups.items():
        base = longer.control(some)
        for key, group in some.items():
            if (base and key[1:] == (longer.read_with(base[0])[1],) * 2
                and key[0] > int(base[0]["experiment"]["length"])):
                changes.append({"scheme": NAMES[what], "distance": key[1] and int(key[1]),
                                "at": at(group, base, s.trained, 4096, 8192)})
    if not changes:
        return None
    for what, some in groups.items():
        first, *others = longer.at_longest(some)
        trained_with += [{"scheme": NAMES[what], "window": key[0], "distance": int(key[1]), "other": int(first[1]),
                          "starts": len(some[key]), "at": at(some[key], some[first], 128, 4096, 8192)}
                         for key in others]
        for (length, distance, other), group in some.items():
            if distance != other and (length, distance, distance) in some:
                read_with.append({"scheme": NAMES[what], "distance": int(other), "other": int(distance),
                                  "at": at(group, some[length, distance, distance], s.trained, 4096)})
    return {"mb": megabytes(s.stages[7][0]),
            "starts": min(len(group) for some in groups.values() for group in some.values()),
            "changes": changes, "trained_with": trained_with, "read_with": read_with}


def tasks_solved(s):
    if not s.tasks2:
        return None
    size = int(s.tasks2[0]["experiment"]["generate_size"])
    return {**learned_of(s.tasks2), "solved": 100 * tasks.SOLVED, "size": size,
            "most": 100 * max(tasks.share(line, 2 * size) for line in s.tasks2),
            "repeated": len(s.tasks3), "repeated_learned": sum(map(tasks.learned, s.tasks3))}


def learned_of(lines):
    """Return how many models learn their task, and how many starts of each scheme fail."""
    counts = {}
    for line in lines:
        counts.setdefault((line["experiment"]["generate"], scheme(line)), []).append(not tasks.learned(line))
    failed = [(task, {"scheme": NAMES[what], "failed": sum(some), "starts": len(some)})
              for (task, what), some in sorted(counts.items(), key=lambda pair: -sum(pair[1])) if any(some)]
    by_task = {task: [words for other, words in failed if other == task] for task, _ in counts}
    learned = sum(map(tasks.learned, lines))
    return {"models": len(lines), "learned": learned, "failed": len(lines) - learned,
            "failures": [{"task": task, "schemes": schemes} for task, schemes in by_task.items() if schemes]}


def changed_by(s):
    """Return from which budget on the order is the final one."""
    tried = budget.settings_tried(s.stages[1], s.groups, s.final)
    sure = budget.differ_surely({what: s.groups[what] for what in s.final}, s.trained)
    by_bytes = budget.bytes_read(s.groups, s.final, sure) if sure else []
    if not tried or not by_bytes:
        return None
    same = next((mb for n, (mb, _) in enumerate(by_bytes) if all(tau == 1 for _, tau in by_bytes[n:])), None)
    _, mean, least, most = tried[0]
    return {"one_setting": mean, "least": least, "most": most, "six_settings": tried[-1][1],
            "pairs": len(budget.same_budget(s.stages[1], s.groups, s.final)), "same": same, "read": by_bytes[-1][0]}


# ------------------------------------------------------------------------------------------------------------ sections

def protocol(s):
    some = s.stages[3][0]["experiment"]
    weights = [line["weights"] for line in s.stages[3]]
    length, stride = int(some["length"]), int(some["eval_stride"])
    machines = {f"{m['cpu']} ({m['isa']}, {m['blas']})" for m in (line["machine"] for line in s.trainings)
                if "cpu" in m}
    sizes = len({previous.size(line) for line in s.previous})
    wanted = {"stage 4 (20 MB)": s.stages[4], "stage 6 (positions dropped)": s.stages[6],
              "copying and reversing (lab/tasks.lab)": s.tasks,
              "new starts of copying and reversing (lab/stages.py tasks)": s.tasks2 or not s.tasks,
              "addition": s.addition or not s.tasks,
              f"{5 - sizes} of the five sizes of a step (lab/previous.lab)": sizes == 5,
              "stage 7 (longer windows)": s.stages[7]}
    missing = [name for name, found in wanted.items() if not found]
    return {"layers": some["layers"], "width": some["width"], "heads": some["heads"], "batch": some["batch"],
            "length": length,
            "least_weights": min(weights), "most_weights": max(weights),
            "decay": float(some["weight_decay"]), "clip": float(some["clip"]),
            "stride": stride, "before": length - stride, "last": length - 1,
            "trainings": costs(s), "every": len(s.trainings), "hours": s.hours(s.trainings), **slower(s),
            "machines": [{"machine": machine} for machine in sorted(machines)],
            "contended": sum(map(contended, s.trainings)),
            "missing": missing, "not_run": bool(missing)}


def costs(s):
    """Return the rows of the table of trainings."""
    def row(stage, what, lines, mb=""):
        return [[stage, what, len(lines), mb, f"{s.hours(lines):.2f}"]] if lines else []

    rows = []
    for stage, lines in s.stages.items():
        lines = trainings(lines)
        sizes = sorted({megabytes(line) for line in lines})
        rows += row(stage, STAGES[stage].format(starts=s.starts), lines, " or ".join(f"{x:.1f}" for x in sizes))
    rows[-2:-2] = row(5, "copy and reverse: three rates, five new starts, and those that failed again",
                      s.tasks + s.tasks2 + s.tasks3)
    return [*rows, *row("", "addition", s.addition), *row("", "an encoder task", s.classify + s.classify2),
            *row("", "previous token", s.previous)]


def slower(s):
    """Return how the time of a step differs between stages that train the same models on different machines."""
    times = {stage: statistics.median(s.ms[id(line)] for line in s.stages[stage]) for stage in (2, 3)
             if s.stages[stage]}
    if len(times) < 2 or max(times.values()) < 1.5 * min(times.values()):
        return {"slower": False}
    slow, fast = sorted(times, key=times.get, reverse=True)
    return {"slower": True, "slow": slow, "fast": fast, "slow_ms": times[slow], "fast_ms": times[fast]}


def settings(s):
    rows = []
    if s.stages[2]:
        for what, some in ((what, ranking.by_scheme(s.stages[2])[what]) for what in s.order):
            found = sorted((perplexity(lines, s.trained), words) for words, lines in some.items())
            rows.append([what, *(cell for x, words in found for cell in (words, f"{x:.3f}"))])
    return {"stage_1": lambda page: ranking.ranked(page, s.stages[1]), "stage_2": bool(rows), "settings": rows}


def results(s):
    return {"stage_3": lambda page: ranking.ranked(page, s.stages[3])}


def twice_as_long(s):
    """Return the losses after the long trainings of stage 4, and how their order agrees with that of stage 3."""
    lines = s.stages[4]
    if not lines:
        return None
    last = {scheme(line): at_length(line, s.trained)["loss"] for line in lines}
    swapped = [(a, b) for a, b in itertools.combinations(sorted(last, key=s.final.get), 2)
               if (last[a] - last[b]) * (s.final[a] - s.final[b]) < 0]
    intervals = [interval(s.difference(a, b, s.trained)) for a, b in swapped]
    unsure = all(abs(middle) <= half for middle, half in intervals)
    below = [NAMES[what] for what, loss in ranks(last) if math.exp(loss) < s.counts(6)]
    lengths = [x["length"] for x in lines[0]["lengths"]]

    def cell(line, length):
        return f"{at_length(line, length)['perplexity']:.2f}" if at_length(line, length) else "none"

    return {"mb": megabytes(lines[0]), "tau": budget.tau(list(last.values()), [s.final[what] for what in last]),
            "swapped": [{"a": NAMES[a], "b": NAMES[b]} for a, b in swapped],
            "unsure_pair": unsure and len(swapped) == 1, "unsure_pairs": unsure and len(swapped) > 1,
            "few": len(last) < len(s.groups) and len(last), "schemes": len(s.groups),
            "below": below, "below_are": "are" if len(below) > 1 else "is", "lengths": [{"at": x} for x in lengths],
            "losses": [[scheme(line), *(cell(line, x) for x in lengths)]
                       for line in sorted(lines, key=lambda line: last[scheme(line)])]}


def budget_of_settings(s):
    return {"budget": lambda page: budget.budget(page, s.stages[1], s.stages[3])}


def previous_token(s):
    if not s.previous:
        return None
    own = s.previous[0]["experiment"]
    return {"layers": own["layers"], "rate": float(own["lr"]),
            "heads": lambda page: previous.first_heads(page, s.previous)}


def positions_dropped(s):
    return {"dropped": lambda page: dropped.dropped(page, s.stages[6], s.stages[3])} if s.stages[6] else None


def longer_windows(s):
    return {"longer": lambda page: longer.longer(page, s.stages[7])} if s.stages[7] else None


def copy_and_reverse(s):
    if not s.tasks2:
        return None
    own, rates = s.tasks2[0]["experiment"], rates_of(s.tasks)

    def by_rate(lines):
        found = {rate: [tasks.learned(line) for line in lines if line["vary"]["lr"] == rate] for rate in rates}
        return [{"rate": rate, "learned": sum(some), "models": len(some)} for rate, some in found.items()]

    return {"layers": own["layers"], "batch": own["batch"], "length": own["length"], "size": own["generate_size"],
            "rates": len(rates),
            "answered": lambda page: tasks.answered(page, s.tasks2, pictures=False),  # the curves would coincide
            "first": by_rate(s.tasks), "new": [x for x in by_rate(s.tasks2) if x["models"]],
            "again": s.tasks3 and {**learned_of(s.tasks3), "steps": int(s.tasks[0]["experiment"]["steps"])},
            **beyond_trained(s), "addition": addition(s)}


def beyond_trained(s):
    """Return which trainings answer lines that are longer than those of training."""
    sizes, every = beyond_sizes(s), s.tasks + s.tasks2 + s.tasks3
    shares = {what: [tasks.share(line, sizes[0]) for line in lines]
              for what, lines in ranking.of_schemes(every).items()}
    able = {what: sum(x >= ABLE for x in found) for what, found in shares.items() if max(found) >= ABLE}
    others = {what: max(found) for what, found in shares.items() if what not in able}
    best = max(every, key=lambda line: tasks.share(line, sizes[0]))
    own = best["experiment"]
    return {"every": len(every), "near": sizes[0],
            "able": [{"models": sum(tasks.share(line, n) >= ABLE for line in every) or "none", "size": n}
                     for n in sizes],
            "best": able and {"most": 100 * tasks.share(best, sizes[0]), "scheme": NAMES[scheme(best)],
                              "task": own["generate"], "rate": own["lr"], "steps": int(own["steps"])},
            "some": [{"able": n, "models": len(shares[what]), "scheme": NAMES[what]} for what, n in last_first(able)],
            "others": [{"most": 100 * x, "scheme": NAMES[what]} for what, x in last_first(others) if able]}


def addition(s):
    """Return why addition is not compared, or None if it was not trained."""
    if not s.addition:
        return None
    size = int(s.addition[0]["experiment"]["generate_size"])
    fewer = max(tasks.share(line, x["length"]) for line in s.addition for x in line["lengths"] if x["length"] < size)
    most, fewer = (f"{100 * x:.1f} %" if x >= 0.0005 else "none"
                   for x in (max(tasks.share(line, size) for line in s.addition), fewer))
    models = sorted({scheme(line) for line in s.addition}, key=list(NAMES).index)
    return {"size": size, "schemes": [NAMES[what] for what in models], "rates": rates_of(s.addition),
            "most": most, "fewer": fewer, "same": most == fewer}


def encoder_task(s):
    """Return the accuracies of the encoder task as means over the starts with their 95 % intervals."""
    if not s.classify2:
        return None
    some, groups = s.classify2[0]["experiment"], ranking.of_schemes(s.classify2)
    lengths = [x["length"] for x in s.classify2[0]["lengths"]]
    trained = lengths.index(int(some["length"]))
    windows = s.classify2[0]["lengths"][trained]["windows"]

    def cell(lines, n):
        return "{:.1f} % ± {:.1f}".format(*interval([100 * line["lengths"][n]["accuracy"] for line in lines]))

    at = {what: {line["seed"]: 100 * line["lengths"][trained]["accuracy"] for line in lines}
          for what, lines in groups.items()}
    means = {what: statistics.mean(line["lengths"][trained]["accuracy"] for line in lines)
             for what, lines in groups.items()}
    best, *others = order = [what for what, _ in last_first(means)]
    margins = [interval([at[best][seed] - at[what][seed] for seed in sorted(at[best].keys() & at[what].keys())])
               for what in others]
    sure = sum(middle > half for middle, half in margins)
    return {"layers": some["layers"], "length": some["length"], "classes": some["classes"],
            "rates": len(rates_of(s.classify)),
            "windows": windows, "shift": 100 * 1.96 * math.sqrt(0.75 * 0.25 / windows),
            "starts": min(map(len, groups.values())),
            "lengths": [{"at": x} for x in lengths],
            "accuracies": [[what, groups[what][0]["vary"]["lr"], *(cell(groups[what], n) for n in range(len(lengths)))]
                           for what in order],
            "best": NAMES[best], "sure": sure or "none", "intervals": len(margins),
            "exclude": "exclude" if sure > 1 else "excludes",
            "others": [{"middle": middle, "half": half, "scheme": NAMES[what]}
                       for what, (middle, half) in zip(others, margins)]}


def threats(s):
    """Return the size of the trainings, and the schemes whose final models have a second setting that is not the
    default, with its value."""
    found = {what: ranking.setting(lines[0]).partition(", ")[2] for what, lines in s.groups.items()}
    return {"mb": int(s.stages[3][0]["experiment"]["steps"]) * 2048 / 1e6,
            "edges": [f"{NAMES[what]} ({found[what]})" for what in s.order if found[what]] or "no scheme"}


def again(s):
    return {"hours": math.ceil(s.hours(s.trainings))}


# ------------------------------------------------------------------------------------------------------------ claims

def judged(seen, sign):
    """Return the cells of a claim: what was observed, whether it agrees, and whether a reason is due if it does not."""
    return {"seen": seen, "sign": sign, "why": sign != "agrees"}


def by_interval(values, agrees, disagrees):
    """Return "agrees" or "disagrees" if one of two functions is true of the mean of values and half the width of its
    interval, or "open"."""
    middle, half = interval(values)
    return "agrees" if agrees(middle, half) else "disagrees" if disagrees(middle, half) else "open"


def stays(s, what, length):
    """Judge the claim that the perplexity does not rise from the trained length on."""
    if what not in s.groups or len(s.rise(what, length)) < 2:
        return judged("not measured", "open")
    values = s.rise(what, length)
    rises = sign(values) == "rises"
    signs = by_interval(values, lambda middle, half: middle + half < FLAT,
                        lambda middle, half: rises and middle + half - 2 * half > FLAT)
    return judged(f"{change(values)} at {length:,}", signs)


def moves(s, what, length, expected):
    """Judge the claim that the perplexity rises or falls from the trained length to another."""
    if what not in s.groups or len(s.rise(what, length)) < 2:
        return judged("not measured", "open")
    values = s.rise(what, length)
    signs = "agrees" if sign(values) == expected else "open" if sign(values).startswith("no") else "disagrees"
    return judged(f"{sign(values)}: {change(values)} at {length:,}", signs)


def between(s, a, b, length, lower):
    """Judge the claim that scheme `lower` has the lower loss of a and b."""
    values = s.difference(a, b, length)
    middle, half = interval(values)
    seen = a if middle < 0 else b
    sure = "agrees" if seen == lower else "disagrees"
    signs = "tie" if abs(middle) + half <= TIE else "open" if abs(middle) <= half else sure
    return judged(f"{NAMES[a]} − {NAMES[b]} at {length:,}: {nats(values)} nats", signs)


def also_at(s, a, b, length, trained):
    """Judge the claim that a is better than b at a length, beside the same difference at the trained length."""
    found = between(s, a, b, length, a)
    return judged(f"{found['seen']}; at {trained}: {nats(s.difference(a, b, trained))}", found["sign"])


def close(s, a, b, length, most):
    """Judge the claim that a and b differ by at most a share of the perplexity."""
    values, most = s.difference(a, b, length), math.log1p(most)
    signs = by_interval(values,
                        lambda middle, half: abs(middle) + half < most, lambda middle, half: abs(middle) - half > most)
    return judged(f"{NAMES[a]} against {NAMES[b]} at {length:,}: {change(values)}", signs)


def claims(s):
    twice, four, long = 2 * s.trained, 4 * s.trained, s.lengths[-1]
    weight = {what: statistics.mean(line["previous"][-1]["weight"] for line in lines)
              for what, lines in s.groups.items() if previous.watched(lines)}
    return {"none_steps": s.steps["none"], "learned_steps": s.steps["learned"],
            "weights": {"alibi", "rope"} <= weight.keys() and weight,
            "t5_rope": between(s, "t5", "rope", s.trained, "t5"),
            "alibi_rope": between(s, "alibi", "rope", s.trained, "alibi"),
            "alibi_stays": stays(s, "alibi", long),
            "sinusoidal_rises": moves(s, "sinusoidal", twice, "rises"),
            "rope_rises": moves(s, "rope", twice, "rises"),
            "t5_falls": moves(s, "t5", twice, "falls"),
            "kerple_stays": stays(s, "kerple", long),
            "kerple_alibi": also_at(s, "kerple", "alibi", four, s.trained),
            "none_worse": between(s, "none", "learned", s.trained, "learned"),
            "none_close": close(s, "none", "learned", s.trained, 0.04),
            "sinusoidal_learned": between(s, "sinusoidal", "learned", s.trained, "sinusoidal"),
            "alibi_sinusoidal": between(s, "alibi", "sinusoidal", s.trained, "alibi"),
            **claims_on_dropping(s, four, long), "powers": claim_on_powers(s), "tasks": claims_on_tasks(s)}


def claims_on_dropping(s, four, long):
    kept, gone = dropped.by_scaffold(s.stages[6]).get("rope", ([], []))
    if len(kept) < 2 or len(gone) < 2:
        return dict.fromkeys(("dropped_near", "dropped_far", "dropped_scaled"))
    enough = perplexity(gone, s.trained) < s.counts(3)
    scalings = dropped.scaled(s.stages[6])
    scaling = scalings and best_scaling(scalings, long)

    def row(others, length, most):
        values = differences(gone, others, length)
        signs = by_interval(values,
                            lambda middle, half: middle + half <= most, lambda middle, half: middle - half > most)
        return {**judged("", signs if enough else "not comparable"), "nats": nats(values), "length": length}

    return {"dropped_near": {**row(kept, s.trained, TIE), "steps": int(gone[0]["experiment"]["steps"])},
            "dropped_far": {**row(kept, four, 0.0), "short": not enough},
            "dropped_scaled": scaling and {**row(scalings[scaling], long, 0.0), "scaling": scaling}}


def claim_on_powers(s):
    fits, weight = s.fits(), s.fits("weight")
    if not fits:
        return None
    within = all(abs(power - 0.5) + half <= 0.1 for powers in fits.values() for power, half in powers)
    outside = any(all(abs(power - 0.5) > half for power, half in some) for some in zip(*fits.values()))
    return {**judged("", "agrees" if within else "disagrees" if outside else "open"),
            "batch": span(fits, 0), "length": span(fits, 1), "schemes": len(fits),
            "weight": len(weight), **{f"weight_{axis}": span(weight, n) for n, axis in enumerate(AXES) if weight}}


def claims_on_tasks(s):
    rows = []
    for task in ("copy", "reverse"):
        shares = {n: exact(s, task, n) for n in beyond_sizes(s)[:2]}
        if not any(shares.values()):
            continue
        near, far = shares
        best = {n: max(found, key=lambda what: statistics.mean(found[what])) for n, found in shares.items()}
        most = {n: statistics.mean(shares[n][best[n]]) for n in shares}
        rows.append({"task": task, "near": near,
                     "sizes": [{"size": n, "most": 100 * most[n] * (most[n] >= 0.0005), "scheme": NAMES[best[n]]}
                               for n in shares],
                     "learned": [{"scheme": NAMES[what],
                                  "shares": [f"{100 * x:.1f}" for x in exact(s, task, near, tasks.learned)[what]]}
                                 for what in (best[near], "none") if most[near] >= ABLE],
                     "copy": task == "copy" and {"far": far, "most": 100 * most[far],
                                                 "sign": "agrees" if most[far] < ABLE else "open"}})
    return rows


def beyond_sizes(s):
    """Return the sizes of lines above the trained size, or [] if there are no results."""
    if not s.tasks2:
        return []
    trained = int(s.tasks2[0]["experiment"]["generate_size"])
    return [x["length"] for x in s.tasks2[0]["lengths"] if x["length"] > trained]


def exact(s, task, size, which=lambda line: True):
    """Return {scheme: share of the lines with an exact answer of each start, or only of those that `which` returns True
    for}."""
    lines = [line for line in s.tasks2 if line["experiment"]["generate"] == task and which(line)]
    return {what: [tasks.share(line, size) for line in some] for what, some in ranking.of_schemes(lines).items()}


# ------------------------------------------------------------------------------------------------------------ the page

BLOCKS = (answer, emergence, law, scaffolds, lengthened, tasks_solved, changed_by, protocol, settings, results,
          twice_as_long, budget_of_settings, previous_token, positions_dropped, longer_windows, copy_and_reverse,
          encoder_task, claims, threats, again)


def paper(folder, path, draw):
    page = Page(path, draw, numbered=True)
    study = Study(folder)
    texts = prose.blocks((root / "lab" / "paper.txt").read_text(encoding="utf-8"))
    for block in BLOCKS:
        data = block(study)
        if data is not None:
            prose.add(page, texts[block.__name__], {**study.everywhere(), **data})
    return {path: page.finish(), **page.pictures}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", nargs="?", type=pathlib.Path, default=root / "lab" / "results")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=root / "lab" / "results" / "ranking.md")
    parser.add_argument("--check", action="store_true", help="compare the page with the results and write nothing")
    q = parser.parse_args()
    files = paper(q.results, q.output, not q.check)
    if not q.check:
        write(files)
        return
    old = q.output.read_text() if q.output.exists() else ""
    for n, (here, there) in enumerate(zip(old.split("\n"), files[q.output].split("\n")), 1):
        if here != there:
            sys.exit(f"{q.output}:{n}: differs from the results (run lab/paper.py):\n  {here}\n  {there}")
    if old != files[q.output]:
        sys.exit(f"{q.output}: differs from the results (run lab/paper.py)")


if __name__ == "__main__":
    main()
