#!/bin/sh
# shift.sh -- test relpos shift
#
#     tests/cli/shift.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

# The numbers from the formulas, in Python: random numbers, scores, the index of Swin's table, and windows as Swin cuts them: the grid,
# padded to whole windows, is rolled and cut, and patches of a window that were no neighbours before the roll do not attend.
cat >"$T/formulas.py" <<'END'
import itertools, json, math, sys

found = json.load(open(sys.argv[1]))
G, O, W, D = found["grid"], found["object"], found["window"], 8
mask, state = 2**64 - 1, found["seed"]

def draw(n):
    global state
    numbers = []
    for _ in range(n):
        state = z = (state + 0x9E3779B97F4A7C15) & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        numbers.append(((z ^ z >> 31) >> 12) * 2.0**-51 + 2.0**-52 - 1)
    return numbers

patch, position, table = draw(O * O * D), draw(G * G * D), draw((2 * G - 1)**2)

def windows(shift):
    """Return the window and the region of each row (or column): (window in the rolled grid, region before the roll)."""
    padded = -(-G // W) * W
    rolled = [(row + shift) % padded for row in range(padded)]
    return {row: (at // W, row < shift) for at, row in enumerate(rolled)}

def scores(kind, corner):
    cells = [(corner + r, corner + c) for r in range(O) for c in range(O)]
    x = [patch[n * D:(n + 1) * D] for n in range(O * O)]
    if kind == "absolute":
        x = [[a + position[(r * G + c) * D + d] for d, a in enumerate(x[n])] for n, (r, c) in enumerate(cells)]
    of = windows(W // 2 if kind == "shifted_windows" and W < G else 0)
    result = {}
    for (i, (r, c)), (j, (y, z)) in itertools.product(enumerate(cells), repeat=2):
        if "windows" not in kind or (of[r], of[c]) == (of[y], of[z]):
            bias = 0 if kind == "absolute" else table[(r - y + G - 1) * (2 * G - 1) + c - z + G - 1]
            result[i, j] = math.fsum(a * b for a, b in zip(x[i], x[j])) / math.sqrt(D) + bias
    return result

# Each score is a sum of 8 products of numbers below 2, divided by sqrt(8), so an ordered sum in f64 is off by less than
# 10 roundings of 8 * 4 / sqrt(8) < 12, and a change by twice that.
most = 2 * 10 * 12 * 2.0**-53
assert [s["by"] for s in found["shifts"]] in (list(range(G - O + 1)), [int(n) for n in sys.argv[2:]]), "shifts"
for shift in found["shifts"]:
    for kind in ("absolute", "relative", "windows", "shifted_windows"):
        before, after = scores(kind, 0), scores(kind, shift["by"])
        change = max([abs(after[pair] - before[pair]) for pair in before.keys() & after.keys()], default=0)
        pairs = len(before.keys() ^ after.keys())
        at = f"{kind}, shift {shift['by']}"
        assert shift[kind]["pairs"] == pairs, f"{at}: {shift[kind]['pairs']} pairs, expected {pairs}"
        error = abs(shift[kind]["change"] - change)
        assert error <= most, f"{at}: change {shift[kind]['change']}, expected {change}: {error} is above {most}"
        assert kind == "absolute" or shift[kind]["change"] == 0, f"{at}: change {shift[kind]['change']}"
        assert kind != "absolute" or (change > 0) == (shift["by"] > 0), f"{at}: change {change}"
END
formulas() # formulas [BY]: compare the numbers of the last output with the formulas; BY: the only shift
{
    check 'the numbers of the formulas' '' "$(python3 "$T/formulas.py" "$T/out" "$@" 2>&1 | tail -n 1)"
}
for arguments in '' '--grid 9 --object 3 --window 3' '--grid 12 --object 3 --window 6 --seed 9223372036854775807' '--grid 7 --object 2 --window 3' \
    '--grid 6 --object 2 --window 1 --seed 0' '--grid 5 --window 5' '--grid 3' '--grid 1' '--grid 4 --object 4' '--grid 11 --object 1 --window 5'; do
    # shellcheck disable=SC2086
    ok shift $arguments --json
    formulas
done
ok shift --by 3 --json
formulas 3
ok shift --grid 32 --object 3 --window 32 --by 29 --json
formulas 29
ok shift --grid 20 --object 16 --by 4 --json # the largest object
has '"object": 16' '"relative": \{"pairs": 0, "change": 0\}'

# The text has the numbers of JSON, and docs/texts/s2.md has the text.
ok shift --json
cp "$T/out" "$T/json"
ok shift
python3 - "$T/json" <<'END' >"$T/rows"
import json, sys
for s in json.load(open(sys.argv[1]))["shifts"]:
    print(s["by"], f'{s["absolute"]["change"]:.4f} {s["relative"]["change"]:.4f}', s["windows"]["pairs"], s["shifted_windows"]["pairs"])
END
check 'the rows of the text' "$(cat "$T/rows")" "$(sed -nE 's/ +/ /g; s/^ ([0-9])/\1/p' "$T/out")"
check 'docs/texts/s2.md' "$(cat "$T/out")" "$(sed -n '/^\$ relpos shift$/,/^```$/{//d;p;}' docs/texts/s2.md)"
ok shift --by 3
check 'one shift' 1 "$(grep -cE '^ +[0-9]+ +[0-9]+\.[0-9]{4} ' "$T/out")"
refusals shift <<'END'
2 | --grid: 33 is out of range \(1 to 32\) | --grid 33
2 | --grid: 0 is out of range | --grid 0
2 | --grid: "x" is not a whole number | --grid x
2 | --object: 17 is out of range \(1 to 16\) | --grid 32 --object 17
2 | --object: 0 is out of range | --object 0
2 | --object: 9 is more than the 8 rows of the grid | --object 9
2 | --object: 2 is more than the 1 row of the grid | --grid 1 --object 2
2 | --window: 9 is more than the 8 rows of the grid | --window 9
2 | --window: 0 is out of range | --window 0
2 | --by: a shift by 7 moves the object out of the grid \(choose at most 6\) | --by 7
2 | --by: -1 is out of range | --by -1
2 | --seed: -1 is out of range | --seed -1
2 | is one too many | 3
END

finish
