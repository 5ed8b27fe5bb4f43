#!/usr/bin/env python3
"""Write the page on the ranking of seven position schemes, with its tables and figures, from the raw results.

    lab/paper.py [RESULTS] [-o PAGE.md] [--check]

RESULTS is the folder with ranking-1.jsonl to ranking-6.jsonl and the other results (default: lab/results). Every number of a result is computed here from
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
import stages  # noqa: E402
import tasks  # noqa: E402
from intervals import TIE, chance, change, interval, nats  # noqa: E402
from page import Page, write  # noqa: E402
from ranking import at_length, beyond, differences, gate, mean_loss, scheme  # noqa: E402
from results import contended, read, step_ms  # noqa: E402

NAMES = {"none": "no positions", "sinusoidal": "sinusoidal positions", "learned": "learned positions", "alibi": "ALiBi", "kerple": "KERPLE", "t5": "T5", "rope": "RoPE"}

FLAT = math.log(1.01)  # a perplexity that rises by less than this does not rise
PLURAL = ("none", "sinusoidal", "learned")


class Study:
    """The results of all stages. Missing files give empty lists, and their sections are left out."""

    def __init__(self, folder):
        def of(name):
            path = folder / f"{name}.jsonl"
            return read(path) if path.exists() else []
        self.stages = {stage: of(f"ranking-{stage}") for stage in (1, 2, 3, 4, 6, 7)}
        self.tasks, self.tasks2, self.classify, self.classify2, self.previous = map(of, (
            "tasks", "tasks-2", "classify", "classify-2", "previous"))
        self.groups = {}
        for line in self.stages[3]:
            self.groups.setdefault(scheme(line), []).append(line)
        self.trained = int(self.stages[3][0]["experiment"]["length"])
        self.lengths = [x["length"] for x in self.stages[3][0]["lengths"]]
        self.starts = min(map(len, self.groups.values()))
        self.final = {what: mean_loss(lines, self.trained) for what, lines in self.groups.items()}
        self.order = sorted(self.groups, key=self.final.get)

    def rise(self, what, length):
        return beyond(self.groups[what], self.trained, length)

    def difference(self, a, b, length):
        return differences(self.groups[a], self.groups[b], length)

    def counts(self, order):
        return next(x["perplexity"] for x in self.stages[3][0]["ngrams"] if x["order"] == order)

    def hours(self, lines):
        """Return the core-hours of the steps of trainings."""
        return sum(ms * int(line["experiment"]["steps"]) for ms, line in zip(step_ms(lines), lines)) / 3.6e6


def perplexity(lines, length):
    """Return the mean perplexity of the starts."""
    return statistics.mean(at_length(line, length)["perplexity"] for line in lines)


def joined(words):
    words = list(words)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def sign(values):
    """Return "rises", "falls" or "no sure change", for changes in several starts."""
    middle, half = interval(values)
    return "rises" if middle - half > 0 else "falls" if middle + half < 0 else "no sure change"


# ------------------------------------------------------------------------------------------------------------ sections

def answer(page, s):
    words = [f"{NAMES[s.order[0]]} {perplexity(s.groups[s.order[0]], s.trained):.2f}"]
    for a, b in zip(s.order, s.order[1:]):
        middle, half = interval(s.difference(a, b, s.trained))
        words.append(f"{'≈' if abs(middle) <= half else '<'} {NAMES[b]} {perplexity(s.groups[b], s.trained):.2f}")
    page.text(f"Seven schemes in small decoders of bytes, each at the best of six settings, with {s.starts} new random starts. Perplexity at the trained length of {s.trained}: {' '.join(words)} "
              f"(≈: the 95 % interval of the difference includes 0). A table of counts of six bytes reaches {s.counts(6):.2f}.")
    n = s.lengths.index(s.trained)
    for a, b, length, values, p, words in ranking.contrasts(s.groups):
        out = [NAMES[what] for what in (a, b) if what in s.groups and gate(s.groups[what], n)]
        if out:
            page.item(f"At {length:,}, {NAMES[a]} and {NAMES[b]} are not compared: {joined(out)} did not learn enough.")
        elif values:
            first, second = (a, b) if statistics.mean(values) < 0 else (b, a)
            middle, half = interval(values)
            by = f"{abs(middle):.3f} ± {half:.3f} nats"
            page.item({"tie": f"At {length:,}, {NAMES[a]} and {NAMES[b]} tie: they differ by {by} (p {chance(p)}).",
                       "undecided": f"At {length:,}, {NAMES[second]} is {by} worse than {NAMES[first]}: undecided (p {chance(p)})."}
                      .get(words, f"At {length:,}, {NAMES[first]} {'are' if first in PLURAL else 'is'} better than {NAMES[second]}, by {by} (p {chance(p)})."))
    long = s.lengths[-1]
    found = {what: s.rise(what, long) for what in s.order if len(s.rise(what, long)) == len(s.groups[what])}
    page.item(f"From {s.trained} to {long:,} bytes, the perplexity changes, with 95 % intervals: " + "; ".join(f"{NAMES[what]} {change(values)}"
              for what, values in sorted(found.items(), key=lambda pair: statistics.mean(pair[1]))) + "."
              + "".join(f" A model with {NAMES[what]} cannot read more than {s.trained}." for what in s.order if what not in found))


def scaffolds(page, s):
    """Say what models lose and win that go on without their positions."""
    pairs = {what: pair for what, pair in dropped.by_scaffold(s.stages[6]).items() if min(map(len, pair)) > 1}
    if not pairs:
        return
    some = s.stages[6][0]["experiment"]
    mb = int(some["steps"]) * int(some["batch"]) * s.trained / 1e6

    def beside(what, n):
        kept, gone = pairs[what]
        return f"{perplexity(gone, n):.2f} against {perplexity(kept, n):.2f}"

    gains = [what for what, (kept, gone) in pairs.items() if interval(differences(gone, kept, s.lengths[-1]))[0] + interval(differences(gone, kept, s.lengths[-1]))[1] < 0]
    page.item(f"Positions that are dropped after the training: {mb:.0f} MB more without them, against {mb:.0f} MB more with them, gives perplexity at {s.trained} of "
              + joined(f"{beside(what, s.trained)} ({NAMES[what]})" for what in sorted(pairs, key=lambda what: mean_loss(pairs[what][1], s.trained))) + ". "
              + ("".join(f"Beyond it, {NAMES[what]} gains: " + joined(f"{beside(what, n)} at {n:,}" for n in (2 * s.trained, s.lengths[-1])) + ". " for what in gains) or "No scheme gains beyond it. ")
              + (f"RoPE that is read with a scaling of its angles, without more training, reaches "
                 + joined(f"{perplexity(dropped.scaled(s.stages[6])[name], n):.2f} at {n:,} ({name})" for n in (2 * s.trained, s.lengths[-1]) for name in [best_scaling(s, n)]) + "."
                 if dropped.scaled(s.stages[6]) else ""))


def best_scaling(s, length):
    """Return the name of the scaling of RoPE with the lowest loss at a length."""
    found = dropped.scaled(s.stages[6])
    return min(found, key=lambda name: mean_loss(found[name], length))


def changed_by(page, s):
    """Say from which budget on the order is the final one."""
    tried, by_bytes = budget.settings_tried(s.stages[1], s.groups, s.final), budget.bytes_read(s.groups, s.final)
    if tried and by_bytes:
        same = next((x for n, (x, _) in enumerate(by_bytes) if all(tau == 1 for _, tau in by_bytes[n:])), None)
        page.item(f"With one setting for each scheme and short trainings, Kendall's τ to the final order is {tried[0][1]:.2f} on average (from {tried[0][2]:.2f} to {tried[0][3]:.2f}), with all six {tried[-1][1]:.2f}, "
                  "over pairs with equal budgets that differ surely in the end. "
                  + (f"Within these trainings, the order is the final one from {same:.1f} MB on." if same and same < by_bytes[-1][0] else "Within these trainings, the order of schemes with close losses changes until the end."))


def emergence(page, s):
    """Say when heads attend to the previous token, and whether that order agrees with the order of the final losses."""
    steps = {what: [previous.steps_below(line) for line in lines] for what, lines in s.groups.items() if all(map(previous.trigrams, lines))}
    if len(steps) < 3 or any(None in found for found in steps.values()) or not previous.watched(s.stages[3]):
        return
    middle = {what: statistics.median_low(found) for what, found in steps.items()}
    pairs = [(middle[a] - middle[b]) * (s.final[a] - s.final[b]) for a, b in itertools.combinations(middle, 2)]
    limit = next(x["loss"] for x in s.stages[3][0]["ngrams"] if x["order"] == 3)
    page.item(f"The training loss falls below {limit:.3f} nats, that of counts of three bytes (which use the previous byte), after " + joined(f"{n:,} steps ({NAMES[what]})" for what, n in sorted(middle.items(), key=lambda pair: pair[1]))
              + f". Of {len(pairs)} pairs of schemes, {sum(x > 0 for x in pairs)} end in that order of losses, {sum(x < 0 for x in pairs)} in the opposite one, and {sum(x == 0 for x in pairs)} have equal steps.")


def question(page, s):
    page.heading("Question")
    page.text("Which scheme predicts best at the length that a model was trained at, and which still predicts beyond it? Comparisons often give each scheme the same settings, which suit "
              "some schemes and not others, and report one start. Here each scheme gets the same budget of settings, the comparisons were chosen before the final trainings, and each of them has an interval.")


def protocol(page, s):
    some = s.stages[3][0]["experiment"]
    each = int(some["batch"]) * int(some["length"])
    weights = [line["weights"] for line in s.stages[3]]
    page.heading("Protocol")
    page.text(f"Decoders of {some['layers']} layers × width {some['width']} with {some['heads']} heads, {min(weights):,} to {max(weights):,} weights, depending on the positions; a first token (BOS) and tied embeddings. "
              f"A step has {some['batch']} windows of {some['length']} bytes. AdamW with weight decay {float(some['weight_decay']):g}, gradients clipped at norm {float(some['clip']):g}, a warm-up of 5 % of the steps, then a cosine. "
              "T5 and KERPLE have a table or parameters in each layer (the papers share them over layers); T5 has 32 buckets up to distance 128.")
    page.text("The text is 16 MB of documentation: Vim's help, manual pages, topics of Python. lab/split.py splits documents by their hash into training, selection and report (5 % each, 10 % of the topics); very large documents go to training. "
              "Held-out documents and pieces are excluded if a third of them occurs in training, and so are tables. 32 pieces of 1,024 bytes from the selection documents choose the settings; 32 from the report documents measure the results.")
    page.text(f"Every length predicts the same bytes. Windows move by {some['eval_stride']} bytes, and only the last {some['eval_stride']} bytes of each are measured: in windows of {some['length']} they have {int(some['length']) - int(some['eval_stride']) + 1} to {some['length']} bytes of context.")
    kinds = {1: "four rates, then two values of a second setting at the best rate", 2: "the best two settings of each", 3: f"the best setting of each, {s.starts} new starts, report pieces",
             4: "the same setting, one start", 6: "the models of stage 3 with RoPE, T5, KERPLE and ALiBi, with positions and without",
             7: "models of stage 3 with T5, KERPLE and RoPE, at 4,096 and at 128"}
    trained = {stage: [line for line in lines if not line["experiment"].get("eval_position")] for stage, lines in s.stages.items()}
    rows = []
    for stage, lines in trained.items():
        if lines:
            sizes = sorted({int(line["experiment"]["steps"]) * each / 1e6 for line in lines})
            rows.append([stage, kinds[stage], len(lines), " or ".join(f"{x:.1f}" for x in sizes), f"{s.hours(lines):.2f}"])
    others = {"copy and reverse": s.tasks + s.tasks2, "an encoder task": s.classify + s.classify2, "previous token": s.previous}
    rows += [["", name, len(lines), "", f"{s.hours(lines):.2f}"] for name, lines in others.items() if lines]
    every = [line for lines in (*trained.values(), *others.values()) for line in lines]
    rows.append(["all", "", len(every), "", f"{s.hours(every):.1f}"])
    page.table(["stage", "what", "trainings", "MB each", "core-hours"], rows,
               "Trainings and their cost. Core-hours are the processor time of the training steps, without measuring. For trainings that shared the processor with other programs, they are estimated from the "
               "others on that machine.")
    machines = sorted({f"{m['cpu']} ({m['isa']}, {m['blas']})" for m in (line["machine"] for line in every) if "cpu" in m})
    page.text(f"Machines: {'; '.join(machines)}." * bool(machines) + f" Other programs shared the processor during {sum(map(contended, every))} of {len(every)} trainings." * any(map(contended, every)))
    missing = [name for name, lines in (("stage 4 (20 MB)", s.stages[4]), ("stage 6 (positions dropped)", s.stages[6]), ("copying and reversing (lab/tasks.lab)", s.tasks), ("five sizes of a step (lab/previous.lab)", s.previous),
                                        ("stage 7 (longer windows)", s.stages[7])) if not lines]
    if missing:
        page.text(f"Not run yet: {joined(missing)}.")
    page.text("The six comparisons were written into lab/report/ranking.py before stage 3 was trained. Their tests are Student's t over the starts, adjusted for all six (Holm 1979). "
              f"A tie needs an interval within ± {TIE:g} nats. A scheme is compared only if it is below counts of three bytes ({s.counts(3):.2f}) and its loss still falls.")


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
        last, mb = longer(s)
        page.text(f"One start of each, for {mb:.0f} MB. {agreement(s, last)}")
        lengths = [x["length"] for x in s.stages[4][0]["lengths"]]
        page.table(["", *(f"perplexity at {x:,}" for x in lengths)], [[what, *(f"{at_length(line, x)['perplexity']:.2f}" if at_length(line, x) else "none" for x in lengths)]
                   for what, line in sorted(((scheme(line), line) for line in s.stages[4]), key=lambda pair: last[pair[0]])], f"Stage 4: perplexity after {mb:.0f} MB, one start of each.")


def longer(s):
    """Return {scheme: loss at the trained length} after the long trainings of stage 4, and their MB."""
    some = s.stages[4][0]["experiment"]
    return {scheme(line): at_length(line, s.trained)["loss"] for line in s.stages[4]}, int(some["steps"]) * int(some["batch"]) * int(some["length"]) / 1e6


def agreement(s, last):
    """Say how the order after longer trainings agrees with that of stage 3."""
    swapped = [(a, b) for a, b in itertools.combinations(sorted(last, key=s.final.get), 2) if (last[a] - last[b]) * (s.final[a] - s.final[b]) < 0]
    sure = [pair for pair in swapped if abs(interval(s.difference(*pair, s.trained))[0]) > interval(s.difference(*pair, s.trained))[1]]
    words = f"Kendall's τ between this order and that of stage 3 is {budget.tau(list(last.values()), [s.final[what] for what in last]):.2f}"
    return words + (f"; the order of {joined(f'{NAMES[a]} and {NAMES[b]}' for a, b in swapped)} is the opposite one"
                    + (", whose difference in stage 3 is within its interval." if not sure and len(swapped) == 1 else ", whose differences in stage 3 are within their intervals." if not sure else ".")
                    if swapped else ": the same order.")


def more(page, s):
    budget.budget(page, s.stages[1], s.stages[3])
    if s.previous:
        page.heading("When a head attends to the previous token")
        previous.first_heads(page, s.previous)
    if s.stages[6]:
        page.heading("Positions as scaffolds")
        dropped.dropped(page, s.stages[6], s.stages[3])
    if s.stages[7]:
        page.heading("Longer windows at the end")
        longer.longer(page, s.stages[7])
    if s.tasks2 or s.tasks:
        page.heading("Copy and reverse")
        page.text("At the best of three learning rates: that with the lowest loss at the trained size. " + ("The starts are new." if s.tasks2 else "One start of each scheme."))
        tasks.answered(page, s.tasks2 or stages.best_of_tasks(s.tasks))
    if s.classify2:
        classified(page, s)


def classified(page, s):
    """Add the section on the encoder task, with the accuracy as a mean over the starts and its 95 % interval."""
    some = s.classify2[0]["experiment"]
    lengths = [x["length"] for x in s.classify2[0]["lengths"]]
    page.heading("An encoder task")
    page.text(f"A classifier with two-sided positions, {some['layers']} layers and a mean over the tokens names the chapter of Vim's help that a window of {some['length']} bytes is from: {some['classes']} chapters, so guessing is right for a third. "
              f"Each position has the best of {len({line['vary']['lr'] for line in s.classify})} learning rates and new starts. Held out is the end of each chapter.")
    groups = {}
    for line in s.classify2:
        groups.setdefault(scheme(line), []).append(line)

    def cell(lines, n):
        middle, half = interval([100 * line["lengths"][n]["accuracy"] for line in lines])
        return f"{middle:.1f} % ± {half:.1f}"

    order = sorted(groups, key=lambda what: -statistics.mean(line["lengths"][lengths.index(int(some["length"]))]["accuracy"] for line in groups[what]))
    page.table(["", "learning rate", *(f"accuracy at {x:,}" for x in lengths)], [[what, groups[what][0]["vary"]["lr"], *(cell(groups[what], n) for n in range(len(lengths)))] for what in order],
               f"Accuracy, as means over {min(map(len, groups.values()))} starts, with 95 % intervals over the starts.")


def threats(page, s):
    page.heading("Threats to validity")
    for text in (
            f"One size: 0.2 million weights, {int(s.stages[3][0]['experiment']['steps']) * 2048 / 1e6:.0f} MB. Published models have 500 to 6,000 times as many weights; we only compare signs with them.",
            "One kind of text: documentation. The intervals describe new starts on the same 32 pieces, not other texts. The table without each source shows how far one source decides.",
            f"The settings were chosen at {s.trained} bytes, so no scheme is tuned to read more. RoPE reads further with a scaling (stage 6), and may with another base.",
            "Six settings each is a small budget, and the second setting is another one for each scheme. The best rates lie within those that were tried.",
            "Trainings that go on (stages 6 and 7) begin again with the first windows of the text, at one rate for all schemes.",
            "Counts of six bytes predict from five bytes of context and tables of the whole training text. A model above them has learned less than such a table.",
            "T5, KERPLE and learned positions have additional learned arrays (32 to 8,192 numbers); the other schemes have none."):
        page.item(text)


def again(page, s):
    page.heading("Make it again")
    page.text("From the root of the source, in about eight core-hours with the measuring; results that exist are kept:")
    page.code("lab/corpus.sh out/corpus.txt\nlab/ranking.sh build/release/relpos out/ranking\nlab/paper.py out/ranking -o out/ranking/ranking.md")


def paper(folder, path, draw):
    page = Page(path, draw, numbered=True)
    study = Study(folder)
    page.heading("Seven position schemes, each at its best settings", 1)
    for section in (answer, emergence, scaffolds, changed_by, question, protocol, settings, results, more, claims, threats, again):
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
    return f"{NAMES[a]} − {NAMES[b]} at {length:,}: {nats(values)} nats", "open" if abs(middle) <= half else "agrees" if seen == lower else "disagrees"


def close(s, a, b, length, most):
    """Return (what was observed, verdict) for a claim that a and b differ by at most a share of the perplexity."""
    values = s.difference(a, b, length)
    middle, half = interval(values)
    return f"{NAMES[a]} against {NAMES[b]} at {length:,}: {change(values)}", "agrees" if abs(middle) + half < math.log1p(most) else "disagrees" if abs(middle) - half > math.log1p(most) else "open"


def claims(page, s):
    page.heading("Beside published claims")
    twice, four, long = 2 * s.trained, 4 * s.trained, s.lengths[-1]
    weight = {what: statistics.mean(line["previous"][-1]["weight"] for line in lines) for what, lines in s.groups.items() if previous.watched(lines)}
    steps = {what: statistics.median_low([previous.steps_below(line) or math.inf for line in lines]) for what, lines in s.groups.items()}
    sharp = "the heads of ALiBi attend less sharply, and bytes need the previous byte" + (f": its largest mean weight is {weight['alibi']:.2f} with ALiBi and {weight['rope']:.2f} with RoPE" if {"alibi", "rope"} <= weight.keys() else "")
    amplitude = "our sinusoids have an amplitude of 0.02 beside embeddings as small; larger ones did not learn in pilots"
    plateau = f"these small models take {steps['none']:,} steps without positions until they use the previous byte, and {steps['learned']:,} with learned positions"
    rows = [
        ("Press 2022", "T5 is better than RoPE at the trained length", *between(s, "t5", "rope", s.trained, "t5"), "short windows of bytes, where both can attend to the nearest bytes"),
        ("Press 2022", "ALiBi is better than RoPE at the trained length", *between(s, "alibi", "rope", s.trained, "alibi"), sharp),
        ("Press 2022", "ALiBi: perplexity does not rise beyond the trained length (by 1 %)", *observed(s, "alibi", long, "does not rise"), ""),
        ("Press 2022", "sinusoidal: it rises", *observed(s, "sinusoidal", twice, "rises"), ""),
        ("Press 2022", "RoPE: it rises", *observed(s, "rope", twice, "rises"), ""),
        ("Press 2022", "T5: it falls at twice the length, in windows that do not overlap", observed(s, "t5", twice, "falls")[0], "not comparable",
         "windows that do not overlap have fewer early tokens if they are longer; here, every length predicts the same bytes"),
        ("Chi 2022", "KERPLE: it does not rise (by 1 %)", *observed(s, "kerple", long, "does not rise"), ""),
        ("Chi 2022", "KERPLE is better than ALiBi beyond the trained length", *between(s, "kerple", "alibi", four, "kerple"), ""),
        ("Haviv 2022", "no positions is worse than learned positions", *between(s, "none", "learned", s.trained, "learned"), plateau),
        ("Haviv 2022", "no positions is close to learned positions (4 %)", *close(s, "none", "learned", s.trained, 0.04), plateau),
        ("Haviv 2022", "sinusoidal is better than learned positions", *between(s, "sinusoidal", "learned", s.trained, "sinusoidal"), amplitude),
        ("Haviv 2022", "ALiBi is better than sinusoidal positions", *between(s, "alibi", "sinusoidal", s.trained, "alibi"), ""),
    ]
    kept, gone = dropped.by_scaffold(s.stages[6]).get("rope", ([], []))
    if len(kept) > 1 and len(gone) > 1:
        short = f"this stage has {int(gone[0]['experiment']['steps']):,} steps, and models of this size that never have positions take {steps['none']:,} until they use the previous byte"

        def row(claim, others, length, most, why):
            values = differences(gone, others, length)
            middle, half = interval(values)
            rows.append(("Gelberg 2025 (DroPE)", claim, f"without − with at {length:,}: {nats(values)} nats", "agrees" if middle + half <= most else "disagrees" if middle - half > most else "open", why))

        row(f"RoPE: without its positions, a model is as good at the trained length after a short training (within {TIE:g} nats)", kept, s.trained, TIE, short)
        row("RoPE: and it is better beyond it than the model with RoPE", kept, four, 0.0, "")
        for length in (four, long) if dropped.scaled(s.stages[6]) else ():
            name = best_scaling(s, length)
            row(f"RoPE: and better than with a scaling (here {name}, the best of those tried)", dropped.scaled(s.stages[6])[name], length, 0.0, short)
    fits = [powers for some in previous.by_size(s.previous).values() for powers in [previous.fitted(some)["loss"]] if powers]
    if fits:
        within = [abs(power - 0.5) <= half for powers in fits for power, half in powers]
        seen = " and ".join(f"of the {what} {min(some):.2f} to {max(some):.2f}" for what, some in zip(("batch", "length"), ([powers[n][0] for powers in fits] for n in (0, 1))))
        rows.append(("arXiv 2511.16893", "the tokens until induction heads form grow with √(batch × length); here: until the loss is below counts of three bytes",
                     f"powers {seen}, in {len(fits)} schemes", "agrees" if all(within) else "open" if any(within) else "disagrees",
                     "heads for the previous token, which are only a part of induction; small models, one rate for all sizes"))
    for task in ("copy", "reverse"):
        found = exact(s, task)
        if found:
            size, shares = found
            best = max(shares, key=shares.get)
            seen = f"size {size:,}: " + ", ".join(f"{what} {100 * x:.0f} %" for what, x in sorted(shares.items(), key=lambda pair: -pair[1]))
            verdict = "open" if shares[best] - shares["none"] < 0.02 else "disagrees"
            rows.append(("Kazemnejad 2023", f"no positions answers most beyond the trained size, over a battery of tasks; here only: {task}", seen, "agrees" if best == "none" and shares[best] else verdict,
                         "no model of this size answers lines of twice the trained size" if shares[best] < 0.02 else ""))
    page.table(["source", "claim", "observed here", "sign", "why it may differ"], [[*row[:4], "" if row[3] == "agrees" else row[4]] for row in rows],
               "Signs of published claims. The models, texts and sizes differ, so only the sign of an effect can agree. \"open\" means that our interval includes 0. These rows are exploratory: their intervals are "
               "not adjusted for their number, and margins of 1 % and 4 % are ours. The last column has what we suspect, which these trainings do not prove.")
    page.text("Not comparable: Li 2024 (FIRE, 2,048 tokens of C4 and larger models), Ruoss 2023 (random positions, 15 tasks in 6,000 trainings), and the size of any effect.")


def exact(s, task):
    """Return (twice the trained size, {scheme: mean fraction of lines with an exact answer}), or None."""
    lines = [line for line in s.tasks2 or stages.best_of_tasks(s.tasks) if line["experiment"]["generate"] == task]
    if not lines:
        return None
    size = 2 * int(lines[0]["experiment"]["generate_size"])
    found = {}
    for line in lines:
        x = next(x for x in line["lengths"] if x["length"] == size)
        found.setdefault(scheme(line), []).append(x["exact"] / x["lines"])
    return size, {what: statistics.mean(some) for what, some in found.items()}


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
