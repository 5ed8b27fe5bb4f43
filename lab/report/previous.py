"""Section on a sweep with eval_previous: the number of training steps until a head attends to the previous token, by
its weight, and by the training loss that falls below counts of three bytes.
SPDX-License-Identifier: Apache-2.0"""
import math
import statistics

from curves import curves
from intervals import minus, powers
from results import grouped, short

LEAST = 0.05  # a weight that rises by less than this has not emerged


def watched(lines):
    return bool(lines[0].get("previous"))


def steps_to(line):
    """Return the first measured step at which the weight of the previous token has risen by half of its whole rise, or
    None. The rise begins at the first measurement: the slopes of ALiBi and KERPLE prefer near tokens before any
    training."""
    first, last = (line["previous"][n]["weight"] for n in (0, -1))
    return next((x["step"] for x in line["previous"] if x["weight"] > (first + last) / 2),
                None) if last - first > LEAST else None


def trigrams(line):
    """Return the loss of counts of three bytes, or None if they were not counted."""
    return next((x["loss"] for x in line.get("ngrams", []) if x["order"] == 3 and "loss" in x), None)


def steps_below(line):
    """Return the first step at which the training loss is below that of counts of three bytes, or None. These counts
    use the present and the previous byte. A result has means of the training loss over equal numbers of steps."""
    found, limit = line["losses"], trigrams(line)
    return next((round((n + 1) * int(line["experiment"]["steps"]) / len(found)) for n, x in enumerate(found)
                 if x is not None and x < limit), None)


def cell(lines, steps):
    found = sorted(steps(line) or float("inf") for line in lines)
    last = int(lines[0]["experiment"]["steps"])

    def words(x):
        return f"{x:,.0f}" if x < float("inf") else "no rise" if steps is steps_to else f"not in {last:,}"

    middle = statistics.median_low(found)
    return words(middle) if found[0] == found[-1] else f"{words(middle)} ({words(found[0])} to {words(found[-1])})"


def first_heads(page, every_line, groups=None):
    """Add the section. If the trainings have several sizes of a step, the first table and the picture are of the first
    size."""
    lines = [line for line in every_line if size(line) == size(every_line[0])]
    groups = groups or grouped(lines)
    starts = sorted({len(g) for g in groups.values()})
    every = lines[0]["previous"][0]["step"]
    counted = all(trigrams(line) and line.get("losses") for line in lines)
    caption = (f"A step has {size(lines[0])[0]} windows of {size(lines[0])[1]:,} bytes. "
               * (len(lines) < len(every_line))
               + f"The largest mean weight that a head gives to the previous token, measured every {every:,} steps "
                 "over four windows of held-out text. The first column has the steps until half of its rise since the "
                 f"first measurement: the median of {' or '.join(map(str, starts))} start{'s' * (starts != [1])}, with "
                 "the smallest and the largest in brackets. "
                 f"A rise below {LEAST:g} is shown as \"no rise\". If the weight still rises at the end, the number of "
                 "steps is too small. "
               + ("The next column has the steps until the training loss, as a mean over "
                  f"{int(lines[0]['experiment']['steps']) // len(lines[0]['losses'])} steps, is below that of counts "
                  "of three bytes, "
                  "which use the present and the previous byte, on the held-out text. " if counted else "")
               + "The last columns have that weight and the loss at the end of the training, as means over the starts.")

    def end(g, what):
        return f"{statistics.mean(what(line) for line in g):.2f}"

    page.table(["", "steps to half the rise", *["steps to the loss"] * counted, "weight at the end", "loss at the end"],
               [[what, cell(g, steps_to), *([cell(g, steps_below)] if counted else []),
                 end(g, lambda line: line["previous"][-1]["weight"]), end(g, lambda line: line["train_loss"])]
                for what, g in groups.items()], caption)
    page.picture(curves(groups,
                        lambda line: [x["step"] for x in line["previous"]],
                        lambda line: [x["weight"] for x in line["previous"]], "step", "weight of the previous token"),
                 "largest weight that a head gives to the previous token, by step",
                 f"Decoders of {lines[0]['experiment']['layers']} layers.")
    if counted:
        law(page, every_line)


def law(page, lines):
    """Add a table that tests the law of arXiv 2511.16893: the tokens until induction heads form are proportional to
    √(batch × length)."""
    sizes = sorted({size(line) for line in lines})
    if len(sizes) < 2:
        return
    groups = by_size(lines)
    page.text("A law for induction heads in larger models (arXiv 2511.16893) says that the tokens read until these "
              "heads form, divided by √(batch × length), are a number T that is the same for all batches and lengths.")
    for name, caption, steps in (("half the rise", "the weight of the previous token has half its rise", steps_to),
                                 ("loss of counts of three bytes",
                                  "the training loss is below that of counts of three bytes", steps_below)):
        rows, missing = [], "no rise" if steps is steps_to else "not reached"
        for what, found in ((what, t_of(of_size, steps)) for what, of_size in groups.items()):
            ends = [y for y in found.values() if y < math.inf]
            rows.append([what, *("" if x not in found else f"{found[x] / 1000:.1f}" if found[x] < math.inf else missing
                                 for x in sizes), f"{max(ends) / min(ends):.2f}" if len(ends) > 1 else ""])
        page.table([name, *(f"{batch} × {length}" for batch, length in sizes), "ratio"], rows,
                   f"Tokens read until {caption}, divided by √(batch × length), in thousands: medians over the starts, "
                   "for steps of batch × length bytes. The last column has the largest over the smallest of a row.")
    size_of_all, all_t = t_of_all(lines)
    if all_t:
        page.text(f"T depends on the scheme: by the loss, in steps of {size_of_all[0]} × {size_of_all[1]}, it is "
                  + ", ".join(f"{x / 1000:.0f} thousand ({what})"
                              for what, x in sorted(all_t.items(), key=lambda pair: pair[1])) + ". "
                  + apart(lines, size_of_all))
    fits(page, lines, groups, sizes)


def fits(page, lines, groups, sizes):
    """Add a table of the tokens as powers of the batch and the length, and between two batches of one length, because
    one power may not describe all sizes."""
    batches = {length: sorted(batch for batch, other in sizes if other == length) for _, length in sizes}
    pairs = [((a, length), (b, length)) for length, some in batches.items() if len(some) > 2
             for a, b in zip(some, some[1:])]
    rows = []
    for what, of_size in groups.items():
        tokens, cells = mean_tokens(of_size, steps_below), []
        for name, found in fitted(of_size).items():
            cells += [minus(f"{p:+.2f} ± {half:.2f}")
                      for p, half in found] if found else ["no rise" if name == "weight" else "not reached", ""]
        for a, b in pairs:
            ends = [tokens.get(x, math.inf) for x in (a, b)]
            cells.append(minus(f"{math.log(ends[1] / ends[0]) / math.log(b[0] / a[0]):+.2f}") if max(ends) < math.inf
                         else "not reached")
        rows.append([what, *cells])
    if not any(cell.startswith(("+", "−")) for row in rows for cell in row[1:5]):
        return
    page.table(["", "half the rise: batch", "length", "loss: batch", "length",
                *(f"loss: batch {a} to {b} at {length}" for (a, length), (b, _) in pairs)], rows,
               "The same tokens as powers of the batch and of the length, fitted by least squares to one point for "
               "each size, the mean of the logarithms over the starts, with 95 % intervals over the sizes"
               + ", and the powers between two batches" * bool(pairs) + ". By the law, all powers are 0.5; they are 0 "
                                                                        "if only the number of tokens matters, and 1 "
                                                                        "if only the number of steps does.")
    steps, every = ([ends[0], ends[-1]] for ends in (sorted(int(line["experiment"]["steps"]) for line in lines),
                                                     sorted(line["previous"][0]["step"] for line in lines)))
    some = lines[0]["experiment"]
    page.text(f"The learning rate ({float(some['lr']):g}), {some['warmup']} warm-up steps and the defaults of the "
              f"second settings are the same for all schemes and sizes; trainings have {steps[0]:,} to {steps[1]:,} "
              "steps. "
              f"A warm-up of a fixed number of steps moves powers towards 1, and the weight is read every {every[0]} "
              f"to {every[1]} steps, so powers of a rise within the warm-up are rough. "
              "Windows of 32 bytes have more first bytes, which raises their training loss.")


def apart(lines, of_size):
    """Say how much one reading of the loss changes T, and that no scheme has its own rate."""
    some = next(line for line in lines if size(line) == of_size)
    each = int(some["experiment"]["steps"]) // len(some["losses"])
    return (f"The loss is a mean over {each} steps, which are {each * math.sqrt(math.prod(of_size)) / 1000:.1f} "
            "thousand of T, so neighbours in this list may be equal. "
            f"All schemes have the learning rate {float(some['experiment']['lr']):g}, which is not the best of each.")


def t_of(of_size, steps):
    """Return {(batch, length): the tokens until then divided by √(batch × length), the median of the starts, infinite
    where they do not reach it}."""
    return {x: statistics.median_low(sorted((steps(line) or math.inf) * math.sqrt(math.prod(x)) for line in some))
            for x, some in of_size.items()}


def t_of_all(lines):
    """Return the largest step, (batch, length), in which the starts of every scheme reach the loss of counts of three
    bytes, and {scheme: T}, or (None, {})."""
    found = {what: t_of(of_size, steps_below) for what, of_size in by_size(lines).items()}
    sizes = [x for x in {size(line) for line in lines} if all(t.get(x, math.inf) < math.inf for t in found.values())]
    best = max(sizes, key=math.prod, default=None)
    return best, {what: t[best] for what, t in found.items()} if best else {}


def by_size(lines):
    """Return {position: {(batch, length): results}}."""
    found = {}
    for line in lines:
        found.setdefault(short(line["experiment"]["position"]), {}).setdefault(size(line), []).append(line)
    return found


def mean_tokens(of_size, steps):
    """Return {(batch, length): geometric mean over the starts of the tokens until then, infinite where a start does not
    reach it}."""
    found = {x: [(steps(line) or math.inf) * math.prod(x) for line in some] for x, some in of_size.items()}
    return {x: statistics.geometric_mean(tokens) if max(tokens) < math.inf else math.inf for x, tokens in found.items()}


def fitted(of_size):
    """Return {"weight" or "loss": powers of the batch and the length in the tokens until then}, or None where a start
    does not reach it. A size is one point: one power does not describe all sizes, so the starts of a size are not
    independent points of the law."""
    found = {}
    for name, steps in (("weight", steps_to), ("loss", steps_below)):
        tokens = mean_tokens(of_size, steps)
        found[name] = powers([(*x, y) for x, y in tokens.items()]) if max(tokens.values()) < math.inf else None
    return found


def size(line):
    return int(line["experiment"]["batch"]), int(line["experiment"]["length"])
