"""Compute confidence intervals of a mean, and test whether two models differ.

A start is a training run with its own seed. Two models are compared by the differences between their losses in the same
starts, which read the same windows in the same order.

SPDX-License-Identifier: Apache-2.0"""
import functools
import math
import statistics

TIE = 0.02  # nats: models whose difference is surely smaller are a tie


@functools.lru_cache
def beyond(t, df):
    """Return the two-sided p-value of Student's t (Abramowitz, Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan2(abs(t), math.sqrt(df))
    sine, cosine = math.sin(angle), math.cos(angle)
    term, total = (1.0, 1.0) if df % 2 == 0 else (cosine, cosine if df > 1 else 0.0)
    for n in range(2 + df % 2, df - 1, 2):
        term *= cosine * cosine * (n - 1) / n
        total += term
    return 1 - (sine * total if df % 2 == 0 else 2 / math.pi * (angle + sine * total))


@functools.lru_cache
def quantile(df):
    """Return t such that 95 % of Student's t distribution is between -t and t."""
    low, high = 0.0, 200.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle, df) > 0.05 else (low, middle)
    return low


def interval(values):
    """Return the mean of values and half the width of its 95 % confidence interval."""
    return statistics.mean(values), quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def change(values):
    """Return the change of a perplexity from changes of its loss in nats, one for each start: in %, or as a factor from
    2 on, with the 95 % interval."""
    ends = [statistics.mean(values)]
    if len(values) > 1:
        middle, half = interval(values)
        ends += [middle - half, middle + half]
    if ends[0] >= math.log(2):
        words = [f"{math.exp(x):.1f}" for x in ends]
        return f"× {words[0]}" + (f" ({words[1]} to {words[2]})" if len(words) > 1 else "")
    words = [f"{100 * math.expm1(x):+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0") for x in ends]
    return minus(f"{words[0]} %" + (f" ({words[1]} to {words[2]})" if len(words) > 1 else ""))


def powers(points):
    """Fit y = c · a^p · b^q to points (a, b, y) by least squares of the logarithms. Return p and q, each as (value,
    half the width of its 95 % interval), or None if a and b do not vary separately or fewer than four points are
    left."""
    rows, free = [(1.0, math.log(a), math.log(b)) for a, b, _ in points], len(points) - 3
    if free < 1:
        return None
    # XᵀX beside the identity
    normal = [[sum(r[i] * r[j] for r in rows) for j in range(3)] + [float(i == j) for j in range(3)] for i in range(3)]
    for i in range(3):  # the matrix is positive definite, so no rows are exchanged
        if normal[i][i] < 1e-9:
            return None
        normal[i] = [x / normal[i][i] for x in normal[i]]
        for j in range(3):
            if j != i:
                normal[j] = [x - normal[j][i] * y for x, y in zip(normal[j], normal[i])]
    inverse = [row[3:] for row in normal]
    right = [sum(r[i] * math.log(y) for r, (_, _, y) in zip(rows, points)) for i in range(3)]
    found = [sum(x * y for x, y in zip(row, right)) for row in inverse]
    left = sum((math.log(y) - sum(x * z for x, z in zip(r, found))) ** 2 for r, (_, _, y) in zip(rows, points))
    return [(found[i], quantile(free) * math.sqrt(left / free * inverse[i][i])) for i in (1, 2)]


def minus(text):
    """Return the text of a number with a minus sign in place of a hyphen."""
    return text.replace("-", "−")


def nats(values):
    """Return the mean of differences of the loss, with the half width of its 95 % interval; only the mean if there is
    one value."""
    return minus("{:+.3f} ± {:.3f}".format(*interval(values)) if len(values) > 1 else f"{values[0]:+.3f}")


def wilson(share, n):
    """Return the 95 % interval of a share of n trials (Wilson 1927)."""
    z = 1.959964
    middle, half = ((share + z * z / (2 * n)) / (1 + z * z / n),
                    z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)))
    return max(0.0, middle - half), min(1.0, middle + half)


def chance(p):
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"


def p_value(values):
    """Return the p-value of a t-test of the hypothesis that the mean is 0."""
    mean, sd = statistics.mean(values), statistics.stdev(values)
    return float(mean == 0) if sd == 0 else beyond(mean / sd * math.sqrt(len(values)), len(values) - 1)


def adjusted(ps):
    """Return the p-values adjusted for all tests together (Holm 1979)."""
    found, most = list(ps), 0.0
    for k, n in enumerate(sorted(range(len(ps)), key=lambda n: ps[n])):
        most = found[n] = max(most, min(1.0, (len(ps) - k) * ps[n]))
    return found


def verdict(differences, p):
    """Say what the differences between two models show, where p is the adjusted p-value: "lower" if the first model has
    the lower loss, "higher", "tie" if the 95 % confidence interval of the mean is within TIE nats of 0, or
    "undecided"."""
    middle, half = interval(differences)
    if p <= 0.05:
        return "lower" if middle < 0 else "higher"
    return "tie" if abs(middle) + half <= TIE else "undecided"
