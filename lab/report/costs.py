"""Sections on the cost of training steps and of attention.
SPDX-License-Identifier: Apache-2.0"""
from claims import CLAIMS, FORWARD, FORWARD_BASE
from results import contended, counted, grouped, is_base, short


def row_of_costs(what, some, lengths, starts, claims, fastest, without):
    """Return the cells of one kind of position: the time at each length, the memory and the weights."""
    row = [what]
    for n in lengths:
        mine = fastest(some[n])
        if mine is None or fastest(without(mine)) is None:
            row.append("contended" if some[n] else "")
            continue
        if is_base(mine, mine):
            row.append(f"{mine['ms_per_step']:.1f} ms")
        else:
            time = 100 * (mine["ms_per_step"] / fastest(without(mine))["ms_per_step"] - 1)
            row.append(f"{time:+.1f} %" + (f" ({claims[what]})" if what in claims and n == 512 else ""))
        if len(some[n]) < starts[n]:
            row[-1] += f", {counted(len(some[n]))}"
    mine = next(iter(some[lengths[-1]]), None)
    if mine is None:
        row += ["", ""]
    elif is_base(mine, mine):
        row += [f"{mine['bytes'] / 1e6:.1f} MB", f"{mine['weights']:,}"]
    else:
        base = without(mine)[0]
        row += [f"{100 * (mine['bytes'] / base['bytes'] - 1):+.1f} %",
                f"{mine['position_weights']:,}, {100 * mine['position_weights'] / base['weights']:.2f} %"]
    return row


def overhead(page, lines):
    claim, claims = CLAIMS["overhead"]
    lengths = sorted({int(line["experiment"]["length"]) for line in lines})
    groups = grouped(lines, apart=["length"])
    cells = {what: {n: [x for x in group if int(x["experiment"]["length"]) == n] for n in lengths}
             for what, group in groups.items()}

    def fastest(some):  # use the minimum, because other programs on the machine only slow a step down
        return min((line for line in some if not contended(line)), key=lambda line: line["ms_per_step"], default=None)

    def without(line):
        return [x for x in lines if is_base(x, line)]

    spread = {n: [line["ms_per_step"] for some in cells.values() for line in some[n] if is_base(line, line)
                  and not contended(line)] for n in lengths}
    busy = sum(map(contended, lines))
    if busy:
        page.text(f"{busy} of {len(lines)} trainings were contended: other programs took more than a tenth of the "
                  "processor's time. They are not timings and are left out.")
    starts = {n: max(len(some[n]) for some in cells.values()) for n in lengths}  # most starts in each column
    page.text("Time of a training step (the fastest start's median) and memory of activations and weights, as "
              "increases in % over the model without "
              "positions. Brackets have printed numbers from other sources. There "
              f"{'is' if starts[lengths[0]] == 1 else 'are'} "
              + (f"{counted(starts[lengths[0]])} of each" if len(set(starts.values())) == 1
                 else ", ".join(f"{counted(count)} at {n:,}" for n, count in starts.items()))
              + ("" if all(len(some[n]) in (0, starts[n]) for some in cells.values() for n in lengths)
                 else " except where a cell has another number")
              + ". Without positions a step took "
              + ", ".join(f"{min(x):,.0f} to {max(x):,.0f} ms at {n:,}" if len(x) > 1
                          else f"{x[0]:,.0f} ms, measured once, at {n:,}" if x else f"contended at {n:,}"
                          for n, x in spread.items())
              + ". " + " ".join(["Differences within these ranges are noise."]
                                * any(len(x) > 1 for x in spread.values())
                                + ["A few % on a step measured once is noise."]
                                * any(len(x) == 1 for x in spread.values())))
    rows = [row_of_costs(what, some, lengths, starts, claims, fastest, without) for what, some in cells.items()]
    page.table(["", *[f"step at {n:,}" for n in lengths], f"memory at {lengths[-1]:,}", f"weights at {lengths[-1]:,}"],
               rows)
    page.text(f"Printed in other sources: {claim}. A step here is a step of a whole model: forward, backward and "
              "optimizer.")
    dearer = {what: fastest(some[512])["ms_per_step"] for what, some in cells.items() if fastest(some.get(512, []))
              and fastest(without(some[512][0]))
              and fastest(some[512])["ms_per_step"] > 1.05 * fastest(without(some[512][0]))["ms_per_step"]}
    surely = [what for what, ms in dearer.items() if ms > max(spread[512])]
    if dearer:
        page.text(f"At 512, these positions added 5 % or more: {', '.join(dearer)}. "
                  + (f"Of these, {', '.join(surely)} took longer than any step without positions; the spread of those "
                     "steps may explain the others." if surely
                     else "The spread of the steps without positions may explain all of these."))


def forward(page, lines):
    first = lines[0]
    page.text(f"Forward pass of attention in f32, length {first['length']:,}, batch {first['batch']}, {first['heads']} "
              f"heads of {first['width']}, on {first['machine']['threads']} thread. "
              "The time is the median processor time. The added time compares pairs of calls with and without the "
              "position, run alternately: median, and quartiles in brackets. "
              f"learned and sinusoidal add an array of {first['length']:,} × {first['heads'] * first['width']:,} to "
              "the input with NumPy, once per model; the others are part of the "
              "attention of each layer, and build their table in the call.")
    rows = []
    for x in lines:
        what = short(x["forward"])
        added = ("" if what == "none"
                 else "{1:+.1f} % ({0:+.1f} to {2:+.1f})".format(*(100 * (r - 1) for r in sorted(x["ratio"]))))
        rows.append([what, f"{x['ms']:.1f} ms", added, f"{100 * FORWARD[what] / FORWARD_BASE:+.2f} %" if what in FORWARD
                     else ""])
    page.table(["", "time", "added", "printed"], rows)
    dearer = [short(x["forward"]) for x in lines if sorted(x["ratio"])[1] > 1.05]
    page.text("Other sources state that a relative bias adds less than 5 %. " + (
        f"Here {' and '.join(dearer)} add{'s' * (len(dearer) == 1)} more." if dearer
        else "Here none of these adds more.")
              + " This table does not have all terms. docs/costs.md has the others, and several of them add more than "
                "5 %.")
