"""Section on stage 7 of the ranking: models of stage 3 that go on at length 4,096, beside the same models that go on at
128, and T5 tables that are read with another max_distance.
SPDX-License-Identifier: Apache-2.0"""
from curves import curves
from intervals import nats
from ranking import at_length, differences, scheme
from results import counted, over, tokens_read
from sweeps import shown


def read_with(line):
    """Return (length of the windows in training, max_distance in training or "", max_distance that the model is read
    with, or "")."""
    some = line["experiment"]

    def distance(position):
        return next((p.partition("=")[2] for p in position.split(",") if p.startswith("max_distance=")), "")
    return int(some["length"]), distance(some["position"]), distance(some.get("eval_position") or some["position"])


def name(line):
    """Return the name of a scheme, without the max_distance of a T5 table."""
    return scheme(line).split(",max_distance")[0]


def by_reading(lines):
    """Return {scheme: {(length, max_distance, max_distance that it is read with): results of the starts}}."""
    found = {}
    for line in lines:
        found.setdefault(name(line), {}).setdefault(read_with(line), []).append(line)
    return found


def label(length, trained, read):
    return f"at {length:,}" + (f", max_distance {int(trained):,}" if trained
                               else "") + (f", read with {int(read):,}" if read != trained else "")


def control(some):
    """Return the results of the models that go on at the shorter of two lengths, as they were trained, or [] if there
    is only one length."""
    own = sorted((key for key in some if key[1] == key[2]), key=lambda key: (key[0], int(key[1] or 0)))
    return some[own[0]] if len({key[0] for key in own}) > 1 else []


def at_longest(some):
    """Return the keys of models that are trained at the longest length and read as they were trained, in the order of
    max_distance."""
    longest = max(key[0] for key in some)
    return sorted((key for key in some if key[1] == key[2] and key[0] == longest), key=lambda key: int(key[1] or 0))


def both(key, other):
    """Say so if two models differ in more than one thing."""
    return " (both changed)" if sum(a != b for a, b in zip(key[:2], other[:2])) > 1 else ""


def longer(page, lines):
    groups = by_reading(lines)
    lengths = [x["length"] for x in lines[0]["lengths"]]
    experiment = lines[0]["experiment"]
    starts = sorted({len(group) for some in groups.values() for group in some.values()})
    page.text(f"The models of stage 3 were trained for {tokens_read(lines[0]) / 1e6:.1f} MB more, in windows of "
              f"{' or '.join(f'{n:,}' for n in sorted({key[0] for some in groups.values() for key in some}))} bytes, "
              "with as many bytes in a step. Measured are the bytes of stage 3, in windows that move by "
              f"{experiment['eval_stride']} bytes: in windows of 128 they follow BOS and 0 to 127 bytes, "
              "so perplexities at 128 are above those of the other tables. Read with another max_distance, a T5 table "
              "has the same weights, but its buckets hold other distances. "
              "FIRE is left out: it is not one of the seven schemes, and a step with T5 is more than 2 × as fast as "
              "one with FIRE.")
    rows = [(what, label(*key), group) for what, some in groups.items() for key, group in sorted(some.items())]
    page.table(["", "trained more", *(f"at {n:,}" for n in lengths)],
               [[what, words, *(shown(over(group, lambda line, n=n: (at_length(line, n) or {}).get("perplexity")), 2)
                                for n in lengths)] for what, words, group in rows],
               f"Perplexity by the length of the window, as means over {' or '.join(map(counted, starts))}, with the "
               "smallest and the largest in brackets. All lengths predict the same bytes.")

    def cell(group, others, n):
        values = differences(group, others, n)
        return nats(values) if values else ""

    pairs = [(what, words, group, control(groups[what])) for what, words, group in rows if control(groups[what])
             and group is not control(groups[what])]
    for what, some in groups.items():  # models trained at the longer length with two distances
        first, *others = at_longest(some)
        pairs += [(what, label(*key), some[key], some[first]) for key in others]
    page.table(["", "", *(f"at {n:,}" for n in lengths)],
               [[what, f"{words} − {label(*read_with(others[0]))}{both(read_with(group[0]), read_with(others[0]))}",
                 *(cell(group, others, n) for n in lengths)] for what, words, group, others in pairs],
               "Differences of the losses in nats between two models, in the same starts, with 95 % intervals of "
               "Student's t; below 0 the first of the two is better.")
    page.picture(curves({f"{what}, {words}": group for what, words, group in rows},
                        lambda line: [x["length"] for x in line["lengths"]],
                        lambda line: [x["perplexity"] for x in line["lengths"]],
                        "length of the window, bytes", "perplexity", zoom=1.5),
                 "perplexity by the length of the window, of models that go on at 128 or at 4,096; the second panel "
                 "shows the lowest", "A colour is a scheme, and a style of the line is how it was trained and read.")
