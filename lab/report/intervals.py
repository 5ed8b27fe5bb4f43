"""Compute confidence intervals of a mean loss, and test whether two models differ.

The measured text is divided into pieces, and each piece has a loss. A start is a training run with a different seed. The lines of a group
are the results of one experiment, one line per start.

SPDX-License-Identifier: Apache-2.0"""
import functools
import math
import statistics


@functools.lru_cache
def beyond(t, df):
    """Return the two-sided p-value of Student's t: 1 minus the integral of the density from -t to t, computed by Simpson's rule."""
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
    """Return t such that 95 % of Student's t distribution is between -t and t."""
    low, high = 0.0, 200.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle, df) > 0.05 else (low, middle)
    return low


def pieces(lines, n):
    """Return the loss of each piece of the text at the n-th length, averaged over the starts. Return None if there are fewer than two pieces
    or a loss is missing."""
    found = [line["lengths"][n].get("pieces") or [] for line in lines]
    if len({len(some) for some in found}) != 1 or len(found[0]) < 2 or any(x is None for some in found for x in some):
        return None
    return [statistics.mean(some) for some in zip(*found)]


def interval(values):
    """Return the mean of values and half the width of its 95 % confidence interval."""
    return statistics.mean(values), quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def p_value(values):
    """Return the p-value of a t-test of the hypothesis that the mean is 0."""
    mean, sd = statistics.mean(values), statistics.stdev(values)
    return float(mean == 0) if sd == 0 else beyond(mean / sd * math.sqrt(len(values)), len(values) - 1)


def agree(some, other, n):
    """Return True if the same group has the lower loss at the n-th length in every start that both groups have."""
    first, second = ({line["experiment"]["seed"]: line["lengths"][n]["loss"] for line in lines} for lines in (some, other))
    return len({first[seed] < second[seed] for seed in first.keys() & second.keys()}) <= 1


def ordered(groups, n):
    """Return the pairs (better group, worse group) that differ at the n-th length. All other pairs are ties.

    Two groups differ if a paired t-test over the pieces finds a difference, at a level of 5 % for all tests together (Holm 1979), and if the
    same group is better in every start."""
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
    """Return {group: (best possible place, worst possible place)}, best group first. `ordered` determines which groups are better or worse
    than a group. A group with ties has several possible places."""
    sure = ordered(groups, n)
    by_loss = sorted(groups, key=lambda what: statistics.mean(pieces(groups[what], n)))
    return {what: (1 + sum(b == what for _, b in sure), len(groups) - sum(a == what for a, _ in sure)) for what in by_loss}
