#!/usr/bin/env python3
"""Write the page on the ranking of seven position schemes, with its tables and figures, from the raw results.

    lab/paper.py [RESULTS] [-o PAGE.md] [--check]

RESULTS is the folder with ranking-1.jsonl to ranking-7.jsonl and the other results (default: lab/results). Every number of a result is computed here from
these files, and so is every word such as "better" or "tie". With --check, compare the page with the results and write nothing. tests/lab/ranking.sh computes
some of the numbers again without this code.
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
import ranking  # noqa: E402
import tasks  # noqa: E402
from intervals import TIE, chance, change, interval, minus, nats, p_value, verdict  # noqa: E402
from page import Page, write  # noqa: E402
from ranking import at_length, beyond, differences, gate, mean_loss, scheme  # noqa: E402
from results import contended, read, step_ms, tokens_read  # noqa: E402

NAMES = {"none": "no positions", "sinusoidal": "sinusoidal positions", "learned": "learned positions", "alibi": "ALiBi", "kerple": "KERPLE", "t5": "T5", "rope": "RoPE"}

SIGNS = {"lower": "<", "higher": "<", "tie": "≈", "undecided": "≲"}  # between neighbours in the order of the losses
FLAT = math.log(1.01)  # a perplexity that rises by less than this does not rise
PLURAL = ("none", "sinusoidal", "learned")


class Study:
    """The results of all stages. Missing files give empty lists, and their sections are left out."""

    def __init__(self, folder):
        def of(name):
            path = folder / f"{name}.jsonl"
            return read(path) if path.exists() else []
        self.stages = {stage: of(f"ranking-{stage}") for stage in (1, 2, 3, 4, 6, 7)}
        self.tasks, self.tasks2, self.tasks3, self.addition, self.classify, self.classify2, self.previous = others = list(map(of, (
            "tasks", "tasks-2", "tasks-3", "addition", "classify", "classify-2", "previous")))
        self.trainings = trainings(line for lines in (*self.stages.values(), *others) for line in lines)
        self.ms = {id(line): ms for ms, line in zip(step_ms(self.trainings), self.trainings)}
        self.groups = ranking.of_schemes(self.stages[3])
        self.trained = int(self.stages[3][0]["experiment"]["length"])
        self.lengths = [x["length"] for x in self.stages[3][0]["lengths"]]
        self.starts = min(map(len, self.groups.values()))
        self.final = {what: mean_loss(lines, self.trained) for what, lines in self.groups.items()}
        self.order = sorted(self.groups, key=self.final.get)
        # the steps until the training loss is below counts of three bytes: the median of the starts, infinite if it is not reached
        self.steps = {what: statistics.median_low([previous.steps_below(line) or math.inf for line in lines]) for what, lines in self.groups.items()}

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
        """Return {scheme: powers of the batch and the length in the tokens until the loss is below counts of three bytes, or until the weight of the previous token has half its rise}, for the schemes that reach it."""
        return {scheme(next(iter(some.values()))[0]): powers for some in previous.by_size(self.previous).values() for powers in [previous.fitted(some)[by]] if powers}


def trainings(lines):
    """Return the results that are trainings, not second readings of one."""
    return [line for line in lines if not line["experiment"].get("eval_position")]


def megabytes(line):
    """Return the MB of text that a training reads."""
    return tokens_read(line) / 1e6


def perplexity(lines, length):
    """Return the mean perplexity of the starts."""
    return statistics.mean(at_length(line, length)["perplexity"] for line in lines)


def joined(words):
    words = list(words)
    return ", ".join(words) if len(words) < 2 else ", ".join(words[:-1]) + " and " + words[-1]


def sign(values):
    """Return "rises", "falls" or "no sure change", for changes in several starts."""
    middle, half = interval(values)
    return "rises" if middle - half > 0 else "falls" if middle + half < 0 else "no sure change"


# ------------------------------------------------------------------------------------------------------------ sections

def answer(page, s):
    words = [f"{NAMES[s.order[0]]} {perplexity(s.groups[s.order[0]], s.trained):.2f}"]
    for a, b in zip(s.order, s.order[1:]):
        values = s.difference(a, b, s.trained)
        words.append(f"{SIGNS[verdict(values, p_value(values))]} {NAMES[b]} {perplexity(s.groups[b], s.trained):.2f}")
    page.text(f"Seven schemes in small decoders of bytes, each at the best of six settings, with {s.starts} new random starts. Perplexity at the trained length of {s.trained}: {' '.join(words)} "
              f"(<: the difference of these neighbours has a 95 % interval without 0, not adjusted for their number; ≈: an interval within ± {TIE:g} nats; ≲: neither). A table of counts of six bytes reaches {s.counts(6):.2f}. Differences below are of the mean loss of a byte, in nats: 0.01 nats are 1 % of the perplexity.")
    n = s.lengths.index(s.trained)
    for a, b, length, values, p, words in ranking.contrasts(s.groups):
        out = [NAMES[what] for what in (a, b) if what in s.groups and gate(s.groups[what], n)]
        if out:
            page.item(f"At {length:,}, {NAMES[a]} and {NAMES[b]} are not compared: {joined(out)} did not learn enough.")
        elif values:
            first, second = (a, b) if statistics.mean(values) < 0 else (b, a)
            middle, half = interval(values)
            by = f"{abs(middle):.3f} ± {half:.3f} nats"
            page.item({"tie": f"At {length:,}, {NAMES[a]} and {NAMES[b]} tie: they differ by {by} (p {chance(p)}, adjusted for the six comparisons).",
                       "undecided": f"At {length:,}, {NAMES[second]} is {by} worse than {NAMES[first]}: undecided (p {chance(p)})."}
                      .get(words, f"At {length:,}, {NAMES[first]} {'are' if first in PLURAL else 'is'} better than {NAMES[second]}, by {by} (p {chance(p)})."
                           + worse_than_counts(s, second, length)))
    long = s.lengths[-1]
    found = {what: s.rise(what, long) for what in s.order if len(s.rise(what, long)) == len(s.groups[what])}
    page.item(f"From {s.trained} to {long:,} bytes, the perplexity changes, with 95 % intervals: " + "; ".join(f"{NAMES[what]} {change(values)}"
              for what, values in sorted(found.items(), key=lambda pair: statistics.mean(pair[1]))) + "."
              + "".join(f" A model with {NAMES[what]} cannot read more than {s.trained}." for what in s.order if what not in found))


def worse_than_counts(s, what, length):
    """Say so if a scheme is worse at a length than counts of single bytes, which use no context."""
    found = perplexity(s.groups[what], length)
    return f" {NAMES[what]} {'are' if what in PLURAL else 'is'} worse there than counts of single bytes ({found:.1f} against {s.counts(1):.1f})." if found > s.counts(1) else ""


def scaffolds(page, s):
    """Say what models lose and win that go on without their positions."""
    pairs = {what: pair for what, pair in dropped.by_scaffold(s.stages[6]).items() if min(map(len, pair)) > 1}
    if not pairs:
        return
    mb = megabytes(s.stages[6][0])

    def beside(what, n):
        kept, gone = pairs[what]
        return f"{perplexity(gone, n):.2f} and {perplexity(kept, n):.2f}"

    scalings = dropped.scaled(s.stages[6])
    learned = [what for what, (_, gone) in pairs.items() if perplexity(gone, s.trained) < s.counts(3)]
    page.item(f"Positions that are dropped after the training: after {mb:.0f} MB more, the perplexity at {s.trained} without and with positions is "
              + "; ".join(f"{beside(what, s.trained)} ({NAMES[what]})" for what in sorted(pairs, key=lambda what: mean_loss(pairs[what][1], s.trained))) + ". "
              + f"{'Only ' * (len(learned) < len(pairs))}{joined(NAMES[what] for what in learned) if learned else 'None'} is below counts of three bytes ({s.counts(3):.2f}) then"
              + (f", so {mb:.0f} MB is too little to compare the others beyond {s.trained}. " + "".join(f"{NAMES[what]} without positions is then {nats_of(differences(pairs[what][1], pairs[what][0], s.trained))} nats worse at {s.trained} and {nats_of(differences(pairs[what][1], pairs[what][0], 2 * s.trained))} at {2 * s.trained}." for what in learned) if len(learned) < len(pairs) else ". "))
    if scalings:
        best = joined(f"{perplexity(scalings[name], n):.2f} at {n:,} ({name})" for n in (2 * s.trained, s.lengths[-1]) for name in [best_scaling(scalings, n)])
        page.item(f"RoPE with its positions and {mb:.0f} MB more, read with a scaling of its angles for longer windows, reaches perplexity {best}, the best of {len(scalings)} scalings on these pieces.")


def nats_of(values):
    """Return the size of a mean difference with the half width of its interval."""
    middle, half = interval(values)
    return f"{abs(middle):.2f} ± {half:.2f}"


def best_scaling(scalings, length):
    """Return the name of the scaling of RoPE with the lowest loss at a length."""
    return min(scalings, key=lambda name: mean_loss(scalings[name], length))


def changed_by(page, s):
    """Say from which budget on the order is the final one."""
    tried = budget.settings_tried(s.stages[1], s.groups, s.final)
    sure = budget.differ_surely({what: s.groups[what] for what in s.final}, s.trained)
    by_bytes = budget.bytes_read(s.groups, s.final, sure) if sure else []
    if tried and by_bytes:
        same = next((x for n, (x, _) in enumerate(by_bytes) if all(tau == 1 for _, tau in by_bytes[n:])), None)
        page.item(f"One setting for each scheme and a short training give Kendall's τ of {tried[0][1]:.2f} to the final order, on average (from {tried[0][2]:.2f} to {tried[0][3]:.2f}); the best of six settings gives {tried[-1][1]:.2f} "
                  f"(1: the same order; 0: half of the pairs agree). {len(budget.same_budget(s.stages[1], s.groups, s.final))} pairs count: those that read equal bytes and differ surely in the end. "
                  + (f"In the final trainings, pairs that differ surely have their final order from {same:.1f} of {by_bytes[-1][0]:.1f} MB on." if same else ""))


def emergence(page, s):
    """Say when heads attend to the previous token, and whether that order agrees with the order of the final losses."""
    if len(s.groups) < 3 or not all(map(previous.steps_below, s.stages[3])) or not previous.watched(s.stages[3]):
        return
    rises = {what: statistics.median_low([previous.steps_to(line) or math.inf for line in lines]) for what, lines in s.groups.items()}
    names = list(s.groups)
    signs = [(rises[a] - rises[b]) * (s.final[a] - s.final[b]) for n, m in budget.differ_surely(s.groups, s.trained) for a, b in [(names[n], names[m])]]
    some = s.stages[3][0]
    limit = previous.trigrams(some)
    page.item(f"The training loss falls below {limit:.3f} nats, that of counts of three bytes (which use the previous byte), after a median of " + joined(f"{n:,} steps ({NAMES[what]})" for what, n in sorted(s.steps.items(), key=lambda pair: pair[1]))
              + f". Schemes whose head attends to the previous token earlier also end with a lower loss, in {sum(x > 0 for x in signs)} of the {len(signs)} pairs that differ surely in the end ({sum(x < 0 for x in signs)} opposite, {sum(x == 0 for x in signs)} equal); "
              f"this weight is read every {some['previous'][0]['step']} steps, and the warm-up has {some['experiment']['warmup']}.")


def lengthened(page, s):
    """Say what training on longer windows changes."""
    words, groups = [], longer.by_reading(s.stages[7])
    for what, some in groups.items():
        base = longer.control(some)
        for key, group in some.items():
            if base and key[1:] == (longer.read_with(base[0])[1],) * 2 and key[0] > int(base[0]["experiment"]["length"]):
                words.append(f"{NAMES[what]}{f' with max_distance {int(key[1]):,}' if key[1] else ''} " + joined(f"{nats(differences(group, base, n))} at {n:,}" for n in (s.trained, 4096, 8192)))
    if words:
        starts = min(len(group) for some in groups.values() for group in some.values())
        page.item(f"{megabytes(s.stages[7][0]):.0f} MB more in windows of 4,096 instead of {s.trained} changes the loss, in nats, over {starts} starts: {'; '.join(words)}.")
        page.item("T5's max_distance is the distance from which all keys share a bucket." + between_distances(groups)
                  + "".join(f" Tables of {NAMES[what]} from windows of {s.trained}, read with max_distance {int(key[2]):,} instead of {int(key[1]):,}: " + joined(f"{nats(differences(group, some[key[0], key[1], key[1]], n))} at {n:,}" for n in (s.trained, 4096)) + "."
                            for what, some in groups.items() for key, group in some.items() if key[1] != key[2] and (key[0], key[1], key[1]) in some))


def between_distances(groups):
    """Say what max_distance changes in models that are trained on long windows."""
    words = []
    for what, some in groups.items():
        first, *others = longer.at_longest(some)
        for key in others:
            words.append(f" {NAMES[what]} in windows of {key[0]:,}, trained with max_distance {int(key[1]):,} instead of {int(first[1]):,} ({len(some[key])} starts): "
                         + joined(f"{nats(differences(some[key], some[first], n))} at {n:,}" for n in (128, 4096, 8192)) + ".")
    return "".join(words)


def law(page, s):
    """Say how the tokens until heads attend to the previous token depend on the size of a step."""
    fits = s.fits()
    if fits:
        weight, sizes = s.fits("weight"), len({previous.size(line) for line in s.previous})
        missed, by_weight = excluded(fits), excluded(weight)
        every = sorted(line["previous"][0]["step"] for line in s.previous)
        reading = f"{every[0]} to {every[-1]}"
        wide = [f"{NAMES[what]}'s for the {axis}" for what, powers in fits.items() for axis, (power, half) in zip(AXES, powers) if power - half <= 0 and power + half >= 1]
        largest, t = previous.t_of_all(s.previous)
        page.item(f"The tokens until the training loss is below counts of three bytes grow with the batch to the power of {span(fits, 0)} and with the length to the power of {span(fits, 1)} "
                  f"({len(fits)} schemes); a law for induction heads says 0.5 and 0.5. "
                  + (f"The 95 % intervals of these powers, over {sizes} sizes of a step, all contain 0.5" if not missed else f"The 95 % intervals of these powers, over {sizes} sizes of a step, contain 0.5 except those of {joined(missed)}")
                  + (f", but {joined(wide)} also contain{'s' * (len(wide) == 1)} 0 and 1, so {sizes} sizes are too few to test the law. " if wide else ". ")
                  + (f"By half the rise of the weight of the previous token, {joined(by_weight) or 'none'} exclude{'' if len(by_weight) != 1 else 's'} 0.5 ({len(weight)} schemes), but a warm-up of fixed steps moves these powers towards 1, and the weight is read only every {reading} steps, so this does not refute the law." if weight else ""))
        if t and max(t, key=t.get) == "none":
            fast = min(t, key=t.get)
            page.item(f"That number of tokens depends on the scheme: in steps of {largest[0]} × {largest[1]} bytes, no positions need {t['none'] / t[fast]:.1f} times the tokens of {NAMES[fast]} "
                      f"({ratios(s, largest, fast)}{own_rates(s, fast)}).")


AXES = ("batch", "length")


def ratios(s, largest, fast):
    """Return the smallest and the largest ratio of the steps of two starts, one without positions and one of the scheme `fast`, in words."""
    steps = {what: [previous.steps_below(line) for line in s.previous if scheme(line) == what and previous.size(line) == largest] for what in ("none", fast)}
    return f"{min(steps['none']) / max(steps[fast]):.1f} to {max(steps['none']) / min(steps[fast]):.1f} between single starts"


def own_rates(s, fast):
    """Return the same factor between the models of stage 3, each at its own rate, in words."""
    steps = [s.steps[what] for what in ("none", fast) if what in s.steps]
    return f"; in stage 3, each at its own rate, {steps[0] / steps[1]:.1f} times" if len(steps) == 2 and max(steps) < math.inf else ""


def excluded(fits):
    """Return the powers whose interval does not contain 0.5, in words."""
    found = {what: [axis for axis, (power, half) in zip(AXES, powers) if abs(power - 0.5) > half] for what, powers in fits.items()}
    return [f"{NAMES[what]} (batch and length)" if len(axes) > 1 else f"{NAMES[what]} ({axes[0]})" for what, axes in found.items() if axes]


def span(fits, n):
    found = sorted(powers[n][0] for powers in fits.values())
    return minus(f"{found[0]:.2f} to {found[-1]:.2f}")


def tasks_solved(page, s):
    lines = s.tasks2
    if lines:
        size = int(lines[0]["experiment"]["generate_size"])
        most = max(tasks.share(line, 2 * size) for line in lines)
        learned = sum(map(tasks.learned, lines))
        page.item(f"Copying and reversing letters: {learned} of {len(lines)} models answer {100 * tasks.SOLVED:.0f} % or more of the lines of the largest trained size, {size}, and "
                  f"{f'no model more than {100 * most:.1f} %' if most else 'none answers a line'} of those of twice that size."
                  + f" {len(lines) - learned} fail: {failures(lines)}." * (learned < len(lines))
                  + f" Trained again at half the rate with twice the steps, {sum(map(tasks.learned, s.tasks3))} of these {len(s.tasks3)} learn the task." * bool(s.tasks3))


def failures(lines):
    """Return how many starts of each scheme did not learn each task."""
    counts = {}
    for line in lines:
        counts.setdefault((scheme(line), line["experiment"]["generate"]), []).append(not tasks.learned(line))
    tasks_of = {task: [f"{NAMES[what]} {sum(some)} of {len(some)} starts" for (what, other), some in sorted(counts.items(), key=lambda pair: -sum(pair[1])) if other == task and any(some)] for _, task in counts}
    return "; ".join(f"in {task}, {joined(some)}" for task, some in tasks_of.items() if some)


def question(page, s):
    page.heading("Question")
    page.text("Which scheme predicts best at the length that a model was trained at, and which still predicts beyond it? Comparisons often give each scheme the same settings, which suit "
              "some schemes and not others, and report one start. Here each scheme gets the same budget of settings, the comparisons were chosen before the final trainings, and each of them has an interval.")


def protocol(page, s):
    some = s.stages[3][0]["experiment"]
    weights = [line["weights"] for line in s.stages[3]]
    page.heading("Protocol")
    page.text(f"Stages 1 to 6 train decoders of {some['layers']} layers × width {some['width']} with {some['heads']} heads, {min(weights):,} to {max(weights):,} weights, depending on the positions; a first token before the text (BOS) and tied embeddings. "
              f"A step has {some['batch']} windows of {some['length']} bytes. AdamW with weight decay {float(some['weight_decay']):g} of matrices (arrays of positions are not decayed), gradients clipped at norm {float(some['clip']):g}, a warm-up of 5 % of the steps, then a rate that falls along a cosine. "
              "T5 and KERPLE have a table or parameters in each layer (the papers share them over layers); T5 has 32 buckets up to distance 128.")
    page.text("The text is 16 MB of documentation: Vim's help, manual pages, topics of Python. lab/split.py splits documents by their hash into training, selection and report (5 % each, 10 % of the topics); very large documents go to training. "
              "Held-out documents and pieces are excluded if a third of them occurs in training, and so are tables. 32 pieces of 1,024 bytes from the selection documents choose the settings; 32 from the report documents measure the results.")
    page.text(f"Every length predicts the same bytes. Windows move by {some['eval_stride']} bytes, and only the last {some['eval_stride']} bytes of each are measured: in windows of {some['length']} they follow BOS and {int(some['length']) - int(some['eval_stride'])} to {int(some['length']) - 1} bytes. Lengths up to {s.lengths[-1]:,} are measured; longer ones only in stage 7, with three schemes, because a window of 8,192 predicts few bytes for its cost.")
    kinds = {1: "four rates, then two values of a second setting at the best rate", 2: "the best two settings of each", 3: f"the best setting of each, {s.starts} new starts, report pieces",
             4: "the same setting, one start", 6: "the models of stage 3 with RoPE, T5, KERPLE and ALiBi, with positions and without",
             7: "models of stage 3 with T5, KERPLE and RoPE, at 4,096 and at 128"}
    rows = []
    for stage, lines in s.stages.items():
        lines = trainings(lines)
        if lines:
            sizes = sorted({megabytes(line) for line in lines})
            rows.append([stage, kinds[stage], len(lines), " or ".join(f"{x:.1f}" for x in sizes), f"{s.hours(lines):.2f}"])
    others = {"addition": s.addition, "an encoder task": s.classify + s.classify2, "previous token": s.previous}
    rows[-2:-2] = [[5, "copy and reverse: three rates, five new starts, and those that failed again", len(lines), "", f"{s.hours(lines):.2f}"] for lines in [s.tasks + s.tasks2 + s.tasks3] if lines]
    rows += [["", name, len(lines), "", f"{s.hours(lines):.2f}"] for name, lines in others.items() if lines]
    every = s.trainings
    rows.append(["all", "", len(every), "", f"{s.hours(every):.1f}"])
    page.table(["stage", "what", "trainings", "MB each", "core-hours"], rows,
               "Trainings and their cost. Core-hours: processor time of the training steps, without measuring. A contended training, which shared the processor with other programs, counts as the median of those on that machine "
               "that did not; if there are none, as its own time, which is more." + slower(s))
    machines = sorted({f"{m['cpu']} ({m['isa']}, {m['blas']})" for m in (line["machine"] for line in every) if "cpu" in m})
    page.text(f"Machines: {'; '.join(machines)}." * bool(machines) + f" {sum(map(contended, every))} of {len(every)} trainings were contended." * any(map(contended, every)))
    sizes = len({previous.size(line) for line in s.previous})
    missing = [name for name, lines in (("stage 4 (20 MB)", s.stages[4]), ("stage 6 (positions dropped)", s.stages[6]), ("copying and reversing (lab/tasks.lab)", s.tasks), ("new starts of copying and reversing (lab/stages.py tasks)", s.tasks2 or not s.tasks), ("addition", s.addition or not s.tasks), (f"{5 - sizes} of the five sizes of a step (lab/previous.lab)", sizes == 5),
                                        ("stage 7 (longer windows)", s.stages[7])) if not lines]
    if missing:
        page.text(f"Not run yet: {joined(missing)}.")
    page.text("The six comparisons were written into lab/report/ranking.py before stage 3 was trained. Their tests are Student's t over the starts, adjusted for all six (Holm 1979). "
              "In simulated experiments in which all schemes are equal, with the spread of starts of these trainings, these tests call at least one pair different in at most 6 % (tests/lab/ranking.sh). "
              f"A tie needs an interval within ± {TIE:g} nats. No other interval of this page is adjusted for the number of comparisons. A scheme is compared only if it is below counts of three bytes ({s.counts(3):.2f}) and its loss still falls.")


def slower(s):
    """Say how the time of a step differs between stages that train the same models on different machines."""
    times = {stage: statistics.median(s.ms[id(line)] for line in s.stages[stage]) for stage in (2, 3) if s.stages[stage]}
    if len(times) < 2 or max(times.values()) < 1.5 * min(times.values()):
        return ""
    slow, fast = sorted(times, key=times.get, reverse=True)
    return f" Stage {slow} ran on a slower machine than stage {fast}: {times[slow]:.0f} ms a step instead of {times[fast]:.0f}."


def settings(page, s):
    page.heading("Settings")
    ranking.ranked(page, s.stages[1])
    if s.stages[2]:
        found = ranking.by_scheme(s.stages[2])
        rows = [sorted((statistics.mean(at_length(line, s.trained)["perplexity"] for line in lines), words) for words, lines in found[what].items()) for what in s.order]
        page.table(["", "chosen", "perplexity", "other", "perplexity"], [[what, *(x for perplexity, words in row for x in (words, f"{perplexity:.3f}"))] for what, row in zip(s.order, rows)],
                   "Stage 2: the two best settings of each scheme, trained longer. The lower loss was chosen; one start each, so close settings are chosen by chance.")


def results(page, s):
    page.heading("Results at each scheme's best setting")
    ranking.ranked(page, s.stages[3])
    if s.stages[4]:
        page.heading("Twice as long", 3)
        last, mb = twice_as_long(s)
        page.text(f"One start of each, for {mb:.0f} MB. {agreement(s, last)}" + f" Only {len(last)} of {len(s.groups)} schemes are trained." * (len(last) < len(s.groups)))
        below = [NAMES[what] for what in sorted(last, key=last.get) if math.exp(last[what]) < s.counts(6)]
        page.text(f"{joined(below)} {'are' if len(below) > 1 else 'is'} below counts of six bytes ({s.counts(6):.2f}) then." if below else f"No scheme is below counts of six bytes ({s.counts(6):.2f}) then either.")
        lengths = [x["length"] for x in s.stages[4][0]["lengths"]]
        page.table(["", *(f"perplexity at {x:,}" for x in lengths)], [[what, *(f"{at_length(line, x)['perplexity']:.2f}" if at_length(line, x) else "none" for x in lengths)]
                   for what, line in sorted(((scheme(line), line) for line in s.stages[4]), key=lambda pair: last[pair[0]])], f"Stage 4: perplexity after {mb:.0f} MB, one start of each.")


def twice_as_long(s):
    """Return {scheme: loss at the trained length} after the long trainings of stage 4, and their MB."""
    return {scheme(line): at_length(line, s.trained)["loss"] for line in s.stages[4]}, megabytes(s.stages[4][0])


def agreement(s, last):
    """Say how the order after longer trainings agrees with that of stage 3."""
    swapped = [(a, b) for a, b in itertools.combinations(sorted(last, key=s.final.get), 2) if (last[a] - last[b]) * (s.final[a] - s.final[b]) < 0]
    sure = [pair for pair in swapped if abs(interval(s.difference(*pair, s.trained))[0]) > interval(s.difference(*pair, s.trained))[1]]
    words = f"Kendall's τ between this order and that of stage 3 is {budget.tau(list(last.values()), [s.final[what] for what in last]):.2f}"
    return words + (f"; {joined(f'{NAMES[a]} and {NAMES[b]}' for a, b in swapped)} change places"
                    + (", a pair that stage 3 does not decide." if not sure and len(swapped) == 1 else ", pairs that stage 3 does not decide." if not sure else ".")
                    if swapped else ": the same order.")


def more(page, s):
    budget.budget(page, s.stages[1], s.stages[3])
    if s.previous:
        page.heading("When a head attends to the previous token")
        own = s.previous[0]["experiment"]
        page.text(f"These are other models: decoders of {own['layers']} layers, all trained at a learning rate of {float(own['lr']):g}. So the steps differ from those of the models of stage 3 above.")
        previous.first_heads(page, s.previous)
    if s.stages[6]:
        page.heading("Positions as scaffolds")
        dropped.dropped(page, s.stages[6], s.stages[3])
    if s.stages[7]:
        page.heading("Trained further on longer windows")
        longer.longer(page, s.stages[7])
    if s.tasks2:
        page.heading("Copy and reverse")
        own = s.tasks2[0]["experiment"]
        page.text(f"Decoders of {own['layers']} layers, with steps of {own['batch']} windows of {own['length']} bytes, answer lines of letters. Each scheme has the rate, of {len({line['vary']['lr'] for line in s.tasks})}, whose worse of two starts has the "
                  f"lower loss at size {own['generate_size']}, and new starts at that rate. Learned positions are left out, because they cannot read lines longer than those of training.")
        tasks.answered(page, s.tasks2, pictures=False)  # the curves would coincide
        page.text(rates_tried(s))
        if s.tasks3:
            learned = sum(map(tasks.learned, s.tasks3))
            page.text(f"Each start that did not learn its task was trained again, with the same seed, at half the rate with twice as many steps: {learned} of {len(s.tasks3)} "
                      "learn it then" + (f", and {len(s.tasks3) - learned} fail again: {failures(s.tasks3)}" if learned < len(s.tasks3) else "")
                      + f". The rate and the steps changed together, so we do not know which of them helps. The tables show how often a scheme learns a task in {int(s.tasks[0]['experiment']['steps']):,} steps at one rate, not whether it can.")
        page.text(beyond_trained(s))
        page.text(no_addition(s))
    if s.classify2:
        classified(page, s)


def rates_tried(s):
    """Say how many of the first trainings learn at each rate, and how many of the new starts."""
    rates = sorted({line["vary"]["lr"] for line in s.tasks}, key=float)
    first, new = ({rate: [tasks.learned(line) for line in lines if line["vary"]["lr"] == rate] for rate in rates} for lines in (s.tasks, s.tasks2))
    return (f"Of the first trainings, {joined(f'{sum(first[rate])} of {len(first[rate])} at {rate}' for rate in rates)} learn their task; of the new starts, "
            f"{joined(f'{sum(new[rate])} of {len(new[rate])} at {rate}' for rate in rates if new[rate])}. Each rate was chosen by two starts, so others can do worse at it.")


def beyond_trained(s):
    """Say which trainings answer lines that are longer than those of training."""
    sizes, every = beyond_sizes(s), s.tasks + s.tasks2 + s.tasks3
    able = [f"{sum(tasks.share(line, n) >= 0.02 for line in every) or 'none'} of size {n}" for n in sizes]
    shares = {what: [tasks.share(line, sizes[0]) for line in lines] for what, lines in ranking.of_schemes(every).items()}
    some = {what: sum(x >= 0.02 for x in found) for what, found in shares.items() if max(found) >= 0.02}
    most = max(every, key=lambda line: tasks.share(line, sizes[0]))
    text = f"Of all {len(every)} trainings, some answer 2 % or more of longer lines than those of training: {joined(able)}."
    if some:
        text += (f" At size {sizes[0]} these are " + joined(f"{n} of {len(shares[what])} with {NAMES[what]}" for what, n in sorted(some.items(), key=lambda pair: -pair[1]))
                 + f"; the most is {100 * tasks.share(most, sizes[0]):.1f} % ({NAMES[scheme(most)]}, {most['experiment']['generate']}, {most['experiment']['lr']}, {int(most['experiment']['steps']):,} steps).")
    least = joined(f"{100 * max(found):.1f} % with {NAMES[what]}" for what, found in sorted(shares.items(), key=lambda pair: -max(pair[1])) if what not in some)
    return text + (f" The others answer at most {least}." if some and len(some) < len(shares) else "")


def no_addition(s):
    """Say why addition is not compared."""
    if not s.addition:
        return ""
    some = s.addition[0]["experiment"]
    size, models = int(some["generate_size"]), sorted({scheme(line) for line in s.addition}, key=list(NAMES).index)
    rates = sorted({line["vary"]["lr"] for line in s.addition}, key=float)
    smaller = max(tasks.share(line, x["length"]) for line in s.addition for x in line["lengths"] if x["length"] < size)
    most = [f"{100 * x:.1f} %" if x >= 0.0005 else "none" for x in (max(tasks.share(line, size) for line in s.addition), smaller)]
    return (f"Addition is not compared, because no model learns it: trained on numbers of up to {size} digits, the lowest digit first, models with {joined(NAMES[what] for what in models)} at rates of {joined(rates)} answer "
            + (f"{most[0]} of the sums, also of those with fewer digits. " if most[0] == most[1] else f"at most {most[0]} of the sums of {size} digits and {most[1]} of those with fewer. ") +
            "Zhou 2024 (arXiv 2402.09371) also gives each digit a hint of its place, which this laboratory does not have.")


def classified(page, s):
    """Add the section on the encoder task, with the accuracy as a mean over the starts and its 95 % interval."""
    some = s.classify2[0]["experiment"]
    lengths = [x["length"] for x in s.classify2[0]["lengths"]]
    page.heading("An encoder task")
    page.text(f"A classifier with two-sided positions, {some['layers']} layers and a mean over the tokens says which chapter of Vim's help a window of {some['length']} bytes comes from: {some['classes']} chapters, so guessing is right for a third. "
              f"Each position has the best of {len({line['vary']['lr'] for line in s.classify})} learning rates and new starts. The last part of each chapter, "
              f"{s.classify2[0]['lengths'][lengths.index(int(some['length']))]['windows']:,} windows in all, both chose the rates and gives these results. Another such text would shift them by about "
              f"{100 * 1.96 * math.sqrt(0.75 * 0.25 / s.classify2[0]['lengths'][lengths.index(int(some['length']))]['windows']):.0f} points, which the intervals do not include.")
    groups = ranking.of_schemes(s.classify2)

    def cell(lines, n):
        middle, half = interval([100 * line["lengths"][n]["accuracy"] for line in lines])
        return f"{middle:.1f} % ± {half:.1f}"

    order = sorted(groups, key=lambda what: -statistics.mean(line["lengths"][lengths.index(int(some["length"]))]["accuracy"] for line in groups[what]))
    page.table(["", "learning rate", *(f"accuracy at {x:,}" for x in lengths)], [[what, groups[what][0]["vary"]["lr"], *(cell(groups[what], n) for n in range(len(lengths)))] for what in order],
               f"Accuracy, as means over {min(map(len, groups.values()))} starts, with 95 % intervals over the starts.")
    at = {what: {line["seed"]: 100 * line["lengths"][lengths.index(int(some["length"]))]["accuracy"] for line in lines} for what, lines in groups.items()}
    words = []
    for what in order[1:]:
        middle, half = interval([at[order[0]][seed] - at[what][seed] for seed in sorted(at[order[0]].keys() & at[what].keys())])
        words.append((f"{middle:.1f} ± {half:.1f} points ({NAMES[what]})", middle > half))
    sure = sum(sure for _, sure in words)
    page.text(f"At {some['length']}, {NAMES[order[0]]} has the highest mean, by {joined(text for text, _ in words)}; {sure or 'none'} of these {len(words)} intervals, which are not adjusted, {'exclude' if sure > 1 else 'excludes'} 0. "
              "KERPLE and learned positions were left out to save time.")


def threats(page, s):
    page.heading("Threats to validity")
    for text in (
            f"One size: 0.2 million weights, {int(s.stages[3][0]['experiment']['steps']) * 2048 / 1e6:.0f} MB. Published models have 500 to 32,000 times as many weights; we only compare signs with them.",
            "One kind of text: documentation. The intervals describe new starts on the same 32 pieces, not other texts. The table without each source shows how far one source decides.",
            f"The settings were chosen at {s.trained} bytes, so no scheme is tuned to read more. RoPE reads further with a scaling (stage 6), and may with another base.",
            f"Six settings each is a small budget, and the second setting is another one for each scheme, with two values beside the default. The final models of {joined(edges(s))} have one of these two, so a value further out may be better. The best rates of the ranking lie within those that were tried; those of copy, reverse and the encoder task are often at an edge, "
            "and were chosen on the lines and windows that also measure the new starts.",
            "Trainings that go on (stages 6 and 7) begin again with the first windows of the text, at a rate that was not tuned: half of the scheme's own in stage 6, 0.002 in stage 7.",
            "Counts of six bytes predict from five bytes of context and tables of the whole training text. A model above them predicts worse than such a table.",
            "T5, KERPLE and learned positions have additional learned arrays (32 to 8,192 numbers); the other schemes have none."):
        page.item(text)


def edges(s):
    """Return the schemes whose final models have a second setting that is not the default, with its value."""
    found = {what: ranking.setting(lines[0]).partition(", ")[2] for what, lines in s.groups.items()}
    return [f"{NAMES[what]} ({found[what]})" for what in s.order if found[what]] or ["no scheme"]


def again(page, s):
    page.heading("Make it again")
    page.text(f"From the root of the source, in {math.ceil(s.hours(s.trainings))} core-hours for the steps, and about two more to measure the models; results that exist are kept. tests/lab/ranking.sh computes more than a hundred numbers of this page again, with other code:")
    page.code("lab/corpus.sh out/corpus.txt\nlab/ranking.sh build/release/relpos out/ranking\nlab/paper.py out/ranking -o out/ranking/ranking.md")


def paper(folder, path, draw):
    page = Page(path, draw, numbered=True)
    study = Study(folder)
    page.heading("Seven position schemes, each at its best settings", 1)
    for section in (answer, emergence, law, scaffolds, lengthened, tasks_solved, changed_by, question, protocol, settings, results, more, claims, threats, again):
        section(page, study)
    return {path: page.finish(), **page.pictures}


# ------------------------------------------------------------------------------------------------------------ claims

def observed(s, what, length, expected):
    """Return (what was observed, verdict) for a claim on the sign of the change from the trained length."""
    if what not in s.groups or len(s.rise(what, length)) < 2:
        return "not measured", "open"
    values = s.rise(what, length)
    if expected == "does not rise":
        most = interval(values)[0] + interval(values)[1]
        return f"{change(values)} at {length:,}", "agrees" if most < FLAT else "disagrees" if sign(values) == "rises" and most - 2 * interval(values)[1] > FLAT else "open"
    return f"{sign(values)}: {change(values)} at {length:,}", "agrees" if sign(values) == expected else "open" if sign(values).startswith("no") else "disagrees"


def between(s, a, b, length, lower):
    """Return (what was observed, verdict) for a claim that scheme `lower` has the lower loss of a and b."""
    values = s.difference(a, b, length)
    middle, half = interval(values)
    seen = a if middle < 0 else b
    return f"{NAMES[a]} − {NAMES[b]} at {length:,}: {nats(values)} nats", "tie" if abs(middle) + half <= TIE else "open" if abs(middle) <= half else "agrees" if seen == lower else "disagrees"


def also_at(s, a, b, length, trained):
    """Return (what was observed, verdict) for a claim that a is better than b at a length, beside the same difference at the trained length."""
    seen, signs = between(s, a, b, length, a)
    return f"{seen}; at {trained}: {nats(s.difference(a, b, trained))}", signs


def close(s, a, b, length, most):
    """Return (what was observed, verdict) for a claim that a and b differ by at most a share of the perplexity."""
    values = s.difference(a, b, length)
    middle, half = interval(values)
    return f"{NAMES[a]} against {NAMES[b]} at {length:,}: {change(values)}", "agrees" if abs(middle) + half < math.log1p(most) else "disagrees" if abs(middle) - half > math.log1p(most) else "open"


def claims(page, s):
    page.heading("Beside published claims")
    twice, four, long = 2 * s.trained, 4 * s.trained, s.lengths[-1]
    weight = {what: statistics.mean(line["previous"][-1]["weight"] for line in lines) for what, lines in s.groups.items() if previous.watched(lines)}
    sharp = "bytes instead of words: RoPE can select an exact offset, a slope cannot" + (f" (the largest mean weight of the previous byte is {weight['alibi']:.2f} with ALiBi and {weight['rope']:.2f} with RoPE)" if {"alibi", "rope"} <= weight.keys() else "")
    amplitude = "our sinusoids have an amplitude of 0.02 beside embeddings as small; 0.007 and 0.06 were worse at one rate"
    plateau = f"these small models take {s.steps['none']:,} steps without positions until the training loss is below counts of three bytes, and {s.steps['learned']:,} with learned positions"
    rows = [
        ("Press 2022", "T5 is better than RoPE at the trained length", *between(s, "t5", "rope", s.trained, "t5"), "short windows of bytes, where both can attend to the nearest bytes"),
        ("Press 2022", "ALiBi is better than RoPE at the trained length", *between(s, "alibi", "rope", s.trained, "alibi"), sharp),
        ("Press 2022", "ALiBi: perplexity does not rise beyond the trained length (by 1 %)", *observed(s, "alibi", long, "does not rise"), ""),
        ("Press 2022", "sinusoidal: it rises", *observed(s, "sinusoidal", twice, "rises"), ""),
        ("Press 2022", "RoPE: it rises", *observed(s, "rope", twice, "rises"), ""),
        ("Press 2022", "T5: it falls at twice the length, in windows that do not overlap", observed(s, "t5", twice, "falls")[0], "not comparable",
         "windows that do not overlap have fewer early tokens if they are longer; here, every length predicts the same bytes"),
        ("Chi 2022", "KERPLE: it does not rise (by 1 %)", *observed(s, "kerple", long, "does not rise"), ""),
        ("Chi 2022", "KERPLE is better than ALiBi beyond the trained length", *also_at(s, "kerple", "alibi", four, s.trained), ""),
        ("Haviv 2022", "no positions is worse than learned positions", *between(s, "none", "learned", s.trained, "learned"), plateau),
        ("Haviv 2022", "no positions is close to learned positions (4 %)", *close(s, "none", "learned", s.trained, 0.04), plateau),
        ("Haviv 2022", "sinusoidal is better than learned positions", *between(s, "sinusoidal", "learned", s.trained, "sinusoidal"), amplitude),
        ("Haviv 2022", "ALiBi is better than sinusoidal positions", *between(s, "alibi", "sinusoidal", s.trained, "alibi"), ""),
    ]
    kept, gone = dropped.by_scaffold(s.stages[6]).get("rope", ([], []))
    if len(kept) > 1 and len(gone) > 1:
        enough = perplexity(gone, s.trained) < s.counts(3)
        short = f"this stage has {int(gone[0]['experiment']['steps']):,} steps, and models of this size that never have positions take {s.steps['none']:,} until the training loss is below counts of three bytes"

        def row(claim, others, length, most, why):
            values = differences(gone, others, length)
            middle, half = interval(values)
            signs = "agrees" if middle + half <= most else "disagrees" if middle - half > most else "open"
            rows.append(("DroPE 2025", claim, f"without − with at {length:,}: {nats(values)} nats", signs if enough else "not comparable", why))

        row(f"RoPE: without its positions, a model is as good at the trained length after a short training (within {TIE:g} nats)", kept, s.trained, TIE, short)
        row("RoPE: and it is better beyond it than the model with RoPE", kept, four, 0.0, "without positions, the model is still above counts of three bytes" if not enough else "")
        scalings = dropped.scaled(s.stages[6])
        if scalings:
            name = best_scaling(scalings, long)
            values = differences(gone, scalings[name], long)
            rows.append(("DroPE 2025", "RoPE: and better than with a scaling", f"without − with {name} at {long:,}: {nats(values)} nats", "not comparable", "the paper measures retrieval and tasks with long contexts, not perplexity"))
    fits = s.fits()
    if fits:
        within = [abs(power - 0.5) + half <= 0.1 for powers in fits.values() for power, half in powers]
        outside = [[abs(power - 0.5) > half for power, half in some] for some in zip(*fits.values())]
        seen, weight = " and ".join(f"of the {what} {span(fits, n)}" for n, what in enumerate(AXES)), s.fits("weight")
        rows.append(("arXiv 2511.16893", "the tokens until induction heads form grow with √(batch × length); here: until the loss is below counts of three bytes",
                     f"powers {seen}, in {len(fits)} schemes" + (f"; until half the rise of the weight, {span(weight, 0)} and {span(weight, 1)}, in {len(weight)}" if weight else ""), "agrees" if all(within) else "disagrees" if any(map(all, outside)) else "open",
                     "heads for the previous token, which are only a part of induction; one rate and one warm-up for all sizes of a step"))
    for task in ("copy", "reverse"):
        shares = {n: exact(s, task, n) for n in beyond_sizes(s)[:2]}
        if not any(shares.values()):
            continue
        near, far = shares
        best = {n: max(shares[n], key=lambda what: statistics.mean(shares[n][what])) for n in shares}
        most = {n: statistics.mean(shares[n][best[n]]) for n in shares}
        seen = "; ".join(f"size {n}: " + (f"at most {100 * most[n]:.1f} % ({NAMES[best[n]]})" if most[n] >= 0.0005 else "none") for n in shares)
        if most[near] >= 0.02:
            seen += "; starts that learned the task: " + "; ".join(f"{NAMES[what]} " + joined(f"{100 * x:.1f}" for x in exact(s, task, near, tasks.learned)[what]) + " %" for what in (best[near], "none"))
        rows.append(("Kazemnejad 2023", f"no positions answers most beyond the trained size, over a battery of tasks; here only: {task}", seen, "open",
                     f"models of this size answer almost no line of twice the trained size; the best scheme at {near} was chosen by its result" if most[near] >= 0.02 else
                     "models of this size answer almost no line beyond the trained size"))
        if task == "copy":
            rows.append(("Ruoss 2023", f"the usual positions fail beyond the trained size, even at repeating a text; here: copy at size {far}", f"at most {100 * most[far]:.1f} % for all schemes", "agrees" if most[far] < 0.02 else "open", ""))
    page.table(["source", "claim", "observed here", "sign", "why it may differ"], [[*row[:4], "" if row[3] == "agrees" else row[4]] for row in rows],
               "Signs of published claims. The models, texts and sizes differ, so only the sign of an effect can agree. \"open\" means that our intervals do not decide. These rows are exploratory: their intervals are "
               f"not adjusted for their number, and margins of 1 %, 4 %, {TIE:g} nats and 0.1 of a power are ours. The last column has what we suspect, which these trainings do not prove.")
    page.text("Not comparable: Li 2024 (FIRE, 2,048 tokens of C4 and larger models), the random positions of Ruoss 2023, and the size of any effect.")
    page.text("Sources: Press 2022, arXiv 2108.12409. Chi 2022, arXiv 2205.09921. Haviv 2022, arXiv 2203.16634. Kazemnejad 2023, arXiv 2305.19466. Ruoss 2023, arXiv 2305.16843. Li 2024, arXiv 2310.04418. DroPE 2025, arXiv 2512.12167.")


def beyond_sizes(s):
    """Return the sizes of lines above the trained size, or [] if there are no results."""
    return [x["length"] for x in s.tasks2[0]["lengths"] if x["length"] > int(s.tasks2[0]["experiment"]["generate_size"])] if s.tasks2 else []


def exact(s, task, size, which=lambda line: True):
    """Return {scheme: share of the lines with an exact answer of each start, or only of those that `which` returns True for}."""
    lines = [line for line in s.tasks2 if line["experiment"]["generate"] == task and which(line)]
    return {what: [tasks.share(line, size) for line in some] for what, some in ranking.of_schemes(lines).items()}


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
