"""Intervals and tests by pieces of the text that is measured: how sure a mean loss is, and whether two models differ. It reads no files.
SPDX-License-Identifier: Apache-2.0"""
import functools
import math
import statistics


@functools.lru_cache
def beyond(t, df):
    """Two-sided p-value of Student's t: one less the integral of its density from -t to t, by Simpson's rule."""
    steps, t = 2000, abs(t)
    factor = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)

    def density(x):
        return factor * (1 + x * x / df) ** (-(df + 1) / 2)

    if t > 200:
        return 0.0
    step = t / steps
    inner = sum((4 if n % 2 else 2) * density(n * step) for n in range(1, steps))
    return max(0.0, 1 - 2 * step / 3 * (density(0) + inner + density(t)))


@functools.lru_cache
def quantile(df):
    """Where 95 % of Student's t lie between -t and t."""
    low, high = 0.0, 200.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle, df) > 0.05 else (low, middle)
    return low


def pieces(lines, n):
    """The loss of each piece at the n-th length, means over the starts; None where there are fewer than two pieces, or one has no loss."""
    found = [line["lengths"][n].get("pieces") or [] for line in lines]
    if len({len(some) for some in found}) != 1 or len(found[0]) < 2 or any(x is None for some in found for x in some):
        return None
    return [statistics.mean(some) for some in zip(*found)]


def interval(values):
    """The mean of values and half the width of its 95 % interval."""
    return statistics.mean(values), quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def p_value(values):
    """Whether the mean of values is 0: a t-test."""
    mean, sd = statistics.mean(values), statistics.stdev(values)
    return float(mean == 0) if sd == 0 else beyond(mean / sd * math.sqrt(len(values)), len(values) - 1)


def agree(some, other, n):
    """Whether every start that two groups share has the same one of them ahead at the n-th length."""
    first, second = ({line["experiment"]["seed"]: line["lengths"][n]["loss"] for line in lines} for lines in (some, other))
    return len({first[seed] < second[seed] for seed in first.keys() & second.keys()}) <= 1


def ordered(groups, n):
    """Pairs of groups, (the better, the other), that differ at the n-th length: by paired t-tests over the pieces at 5 % in all (Holm 1979), and with the same order in
    each start. All other pairs are ties."""
    names = list(groups)
    losses = {what: pieces(lines, n) for what, lines in groups.items()}
    pairs = [(a, b) for x, a in enumerate(names) for b in names[x + 1:]]
    tests = sorted((p_value([x - y for x, y in zip(losses[a], losses[b])]), a, b) for a, b in pairs)
    found = set()
    for k, (p, a, b) in enumerate(tests):
        if p > 0.05 / (len(tests) - k):
            break
        if agree(groups[a], groups[b], n):
            found.add((a, b) if statistics.mean(losses[a]) < statistics.mean(losses[b]) else (b, a))
    return found


def places(groups, n):
    """{group: its first and last possible place}, the best group first: those that are surely better come before it, those surely worse after it."""
    sure = ordered(groups, n)
    by_loss = sorted(groups, key=lambda what: statistics.mean(pieces(groups[what], n)))
    return {what: (1 + sum(b == what for _, b in sure), len(groups) - sum(a == what for a, _ in sure)) for what in by_loss}
