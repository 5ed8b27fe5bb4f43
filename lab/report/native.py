"""Section on models trained at a long length beside models trained at a short one, and on tables that are read with another max_distance.
SPDX-License-Identifier: Apache-2.0"""
import math

from curves import curves
from intervals import minus
from results import counted, mean, over, short


def reading(line):
    """Return (scheme, trained length, position, the position that the model was read with)."""
    some = line["experiment"]
    position = short(some["position"])
    return position.split(",")[0], int(some["length"]), position, short(some.get("eval_position", some["position"]))


def max_distance(position):
    return next((p for p in position.split(",") if p.startswith("max_distance=")), "")


def read(line):
    """Return the number of bytes that a model was trained on."""
    return math.prod(int(line["experiment"][k]) for k in ("steps", "batch", "length"))


def difference(lines, others, n):
    """Return the mean difference of the losses at the n-th length over the seeds that both have, with the smallest and the largest."""
    by_seed = {line["experiment"]["seed"]: line for line in others}
    pairs = [(line["lengths"][n]["loss"], by_seed[line["experiment"]["seed"]]["lengths"][n]["loss"]) for line in lines if line["experiment"]["seed"] in by_seed]
    found = over(pairs, lambda pair: None if None in pair else pair[0] - pair[1]) if pairs else None
    return "" if found is None else minus(f"{found[0]:+.3f}" if len(pairs) == 1 else f"{found[0]:+.3f} ({found[1]:+.3f} to {found[2]:+.3f})")


def native(page, lines):
    groups = {}
    for line in sorted(lines, key=lambda line: (*reading(line)[:3], reading(line)[2] != reading(line)[3])):
        groups.setdefault(reading(line), []).append(line)
    lengths = [x["length"] for x in lines[0]["lengths"]]
    columns = [f"{n:,}" for n in lengths]
    starts = sorted({len(g) for g in groups.values()})
    page.table(["position", "trained at", "on", "read with", *columns],
               [[position, f"{trained:,}", f"{read(g[0]) / 1e6:.1f} MB", "" if position == other else max_distance(other) or other, *[f"{mean(g, n):.3f}" if mean(g, n) else "none" for n in range(len(lengths))]]
                for (_, trained, position, other), g in groups.items()],
               f"Perplexity by the length of the window; {'one start of each' if starts == [1] else 'means over ' + ' or '.join(map(counted, starts))}. All lengths predict the same bytes. "
               "Read with another max_distance, a T5 table has the weights of its training, but its buckets hold other distances.")

    own = {(scheme, max_distance(position), trained): g for (scheme, trained, position, other), g in groups.items() if position == other}
    rows = []
    for (scheme, distance, trained), g in own.items():
        shorter = [t for s, d, t in own if (s, d) == (scheme, distance) and t < trained]
        rows += [[f"{scheme}{',' * bool(distance)}{distance}: trained at {trained:,} − at {t:,}", *[difference(g, own[scheme, distance, t], n) for n in range(len(lengths))]] for t in shorter]
    for (scheme, trained, position, other), g in groups.items():
        before = own.get((scheme, max_distance(position), trained))
        if position != other and before:
            rows.append([f"{position} trained at {trained:,}: read with {max_distance(other) or other} − as trained", *[difference(g, before, n) for n in range(len(lengths))]])
    if rows:
        page.table(["", *columns], rows, "Differences of the losses in nats; below 0 the first of the two is better. Each is a mean over pairs of models with the same seed, with the smallest and the largest "
                   "of them in brackets.")
    named = {f"{position}, trained at {trained:,}" + (f", read with {max_distance(other) or other}" if position != other else ""): g
             for (_, trained, position, other), g in groups.items()}
    page.picture(curves(named, lambda line: [x["length"] for x in line["lengths"]], lambda line: [x["perplexity"] for x in line["lengths"]],
                        "length of the window", "perplexity"), "perplexity by the length of the window, by trained length")
