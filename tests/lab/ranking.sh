#!/bin/sh
# ranking.sh -- test the sections of lab/report on the ranking: tables of settings, contrasts, and the false alarms of the tests
#
#     tests/lab/ranking.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

fake() # fake STAGE RESULTS BEFORE: write the results of a stage that lab/stages.py derives from results
{
    python3 lab/stages.py "$1" "$3" >"$T/$1.lab" && python3 -B tests/lab/fake_ranking.py "$T/$1.lab" "$2" --append || exit 1
}
rows() { grep "^| $1 |" "$T/out"; }
column() { echo "$1" | awk -F ' *[|] *' -v n="$2" '{print $n}'; }

python3 -B tests/lab/fake_ranking.py lab/ranking.lab "$T/ranking-1.jsonl"
fake knobs "$T/ranking-1.jsonl" "$T/ranking-1.jsonl"
fake 2 "$T/ranking-2.jsonl" "$T/ranking-1.jsonl"
fake 3 "$T/ranking-3.jsonl" "$T/ranking-2.jsonl"
ok lab report "$T/ranking-1.jsonl"
check 'rates and second settings' '7 1' "$(grep -cE '^\| [a-z0-9]+ \|( [0-9.]+ \*? ?\|){4} 0.008, ' "$T/out") $(rows t5 | grep -c '0.008, arrays × 3: 4\.[0-9]* \*')"
check 'no best rate is at the edge' 0 "$(grep -c 'edge of the rates' "$T/out")"
check 'counts' 1 "$(grep -c 'n-grams of 1, 2, 3, 4, 5, 6 bytes have the perplexity 14.88, ' "$T/out")"
grep -v 'lr = 0.004' "$T/ranking-1.jsonl" >"$T/ranking-4.jsonl"
ok lab report "$T/ranking-4.jsonl"
check 'the best rates are at the edge' 1 "$(grep -c '^The best rate of none, sinusoidal, learned, alibi, kerple, t5, rope is at the edge' "$T/out")"
sed '2s/"processor_share": 0.97/"processor_share": 0.5/' "$T/ranking-1.jsonl" >"$T/ranking-4.jsonl"
ok lab report "$T/ranking-4.jsonl"
check 'contended' 1 "$(grep -c '1 of 42 trainings were contended by other programs' "$T/out")"

# In the made-up results, t5 and rope are equal up to 0.001 nats at 128, and rope loses 0.6 nats at 512. kerple is 0.005 better than alibi, with
# a deviation of 0.005 between starts. learned is 0.1 better than sinusoidal, and none has a deviation of 0.05.
ok lab report "$T/ranking-3.jsonl"
contrast() { grep "^| $1 | $2 |" "$T/out"; }
check 'a tie' 'tie' "$(column "$(contrast 't5 − rope' 128)" 6)"
check 'rope loses beyond the trained length' 'better' "$(column "$(contrast 't5 − rope' 512)" 6)"
check 'sure differences' 'better worse' "$(column "$(contrast 'learned − sinusoidal' 128)" 6) $(column "$(contrast 'none − rope' 128)" 6)"
check 'the difference and its interval' '−0.10' "$(column "$(contrast 'learned − sinusoidal' 128)" 4 | cut -c1-7)"
check 'the rows of sources' '18 12 2' "$(sed -n 's/.*| vim (\([0-9]*\) pieces) | manual (\([0-9]*\) pieces) | topics (\([0-9]*\) pieces).*/\1 \2 \3/p' "$T/out")"
check 'without each source' 6 "$(grep -cE '^\| [a-z0-9]+ − [a-z0-9]+ at (128|512) \|( (\+|−)[0-9.]+ ± [0-9.]+ \|){4}$' "$T/out")"
check 'above counts of six bytes' 1 "$(grep -c 'All schemes are above counts of six bytes' "$T/out")"
# The order by the budget: in the made-up results it is the same for every rate, except for t5 and rope, which are equal.
ok lab report "$T/ranking-1.jsonl" "$T/ranking-3.jsonl"
check 'six numbers of settings, twenty of bytes' '6 20' "$(sed -n '/^| settings tried/p' "$T/out" | grep -o '| [1-6] ' | wc -l) $(sed -n '/^| MB/p' "$T/out" | grep -oE '\| [0-9.]+ ' | wc -l)"
check 'all six settings give the final order' 1 "$(grep -c '^| τ | 0\.[789].* | 1.00 (1.00 to 1.00) |$' "$T/out")"
# Stage 6: in the made-up results, models without positions have the loss of none.
fake 6 "$T/ranking-6.jsonl" "$T/ranking-3.jsonl"
ok lab report "$T/ranking-6.jsonl"
check 'with positions and without' 8 "$(grep -cE '^\| (alibi|kerple|t5|rope) \| more training( without positions)? \|( [0-9.]+ \(.*\) \|| [0-9.]+ \|){5}$' "$T/out")"
check 'nats: rope is better with positions up to 256, and without from 512 on' 1 \
    "$(grep -cE '^\| rope \|( \+0\.[0-9]+ ± 0\.[0-9]+ \|){2}( −0\.[0-9]+ ± 0\.[0-9]+ \|){3}$' "$T/out")"
check 'RoPE read with three scalings loses half as much beyond 128' '3 3' "$(rows rope | grep -c '| more training, read with .*factor\|| more training, read with dynamic') \
$(grep -cE '^\| rope, read with (YaRN, factor (4|16)|dynamic) \|( \+0\.[0-9]+ ± 0\.[0-9]+ \|){3}( −0\.[0-9]+ ± 0\.[0-9]+ \|){2}$' "$T/out")"
command='wilson of lab/report/intervals.py'
check 'half of 100, none and all of 200' '0.4038 0.5962 0.0000 0.0188 0.9812 1.0000' "$(python3 -B -c 'import sys; sys.path.insert(0, "lab/report"); from intervals import wilson
print(*(f"{x:.4f}" for some in ((0.5, 100), (0, 200), (1, 200)) for x in wilson(*some)))')"
command='joined of lab/paper.py'
check 'lists of words' '|a|a and b|a, b and c' "$(python3 -B -c 'import sys; sys.path.insert(0, "lab"); from paper import joined
print(*(joined("abc"[:n]) for n in range(4)), sep="|")')"
command='lab/prose.py'
cat >"$T/prose.txt" <<'END'
A comment.
@summary
# {title}

- {names} [rises?rise by {by:.1f} %][!rises?do not rise]
  [why? because of {why}].

- One line
  of [items&{n:,} ({name})], [items;{n}], [items+<{n}>].

[left_out*- Left out.]

[items*Text {name}.]

    code {title}

Table: Of {by:.0f}.
| | [items*at {n:,}] |
{rows}
[items*| {name} | {n}
  | |]

{function}
@other
{title}
END
cat >"$T/expected" <<'END'
# T

- b, c and d do not rise because of [x].
- One line of 1 (a) and 2,000 (b), 1; 2000, &lt;1>&lt;2000>.

Text a.

Text b.

    code {title}

Of 2.

|  | at 1 | at 2,000 |
| --- | --- | --- |
| r | s | {n} |
| a | 1 |  |
| b | 2000 |  |

from a function
END
python3 -B - "$T/prose.txt" >"$T/out" <<'END'
import pathlib, sys
sys.path[:0] = ["lab", "lab/report"]
import prose
from page import Page
page, texts = Page(pathlib.Path("page.md")), prose.blocks(open(sys.argv[1]).read())
prose.add(page, texts["summary"], {
    "title": "T", "names": ["b", "c", "d"], "rises": 0, "by": 1.5, "why": "[x]", "left_out": None, "rows": [["r", "s", "{n}"]],
    "items": [{"n": 1, "name": "a"}, {"n": 2000, "name": "b"}], "function": lambda page: page.text("from a function")})
print(page.finish(), end="")
END
check 'every form of text' '' "$(diff "$T/expected" "$T/out")"
command='tau of lab/report/budget.py'
check 'Kendall' '1.0 -1.0 0.33' "$(python3 -B -c 'import sys; sys.path.insert(0, "lab/report"); from budget import tau
print(tau([1, 2, 3], [4, 5, 6]), tau([1, 2, 3], [3, 2, 1]), round(tau([1, 2, 3], [1, 3, 2]), 2))')"
sed '/position = none/ {/seed = 1[1-4]/ d}' "$T/ranking-3.jsonl" >"$T/ranking-4.jsonl"
sed -i 's/alibi\\\\nlr/alibi\\nlr/' "$T/ranking-4.jsonl"
ok lab report "$T/ranking-4.jsonl"
check 'one start is not compared' 'not measured' "$(column "$(contrast 'none − rope' 128)" 6)"
check 'the sweep is not complete' 1 "$(grep -c 'with 1 or 5 new starts, .* The trainings are not complete' "$T/out")"
sed 's/"order": 3, "loss": 2.1, "perplexity": [0-9.]*/"order": 3, "loss": 1.55, "perplexity": 4.711/' "$T/ranking-3.jsonl" >"$T/ranking-4.jsonl"
ok lab report "$T/ranking-4.jsonl"
check 'schemes above counts of three bytes' '5 not compared' "$(grep -c ' is not compared: its perplexity of .* is not below counts of three bytes, 4.71' "$T/out") $(column "$(contrast 'kerple − alibi' 128)" 6)"
python3 - "$T/ranking-3.jsonl" >"$T/ranking-4.jsonl" <<'END'
import json, sys
for text in open(sys.argv[1]):
    line = json.loads(text)
    if line["vary"]["position"] == "alibi" and line["seed"] == 12:
        line["losses"][-5:] = [2.5] * 5
    print(json.dumps(line))
END
ok lab report "$T/ranking-4.jsonl"
check 'a loss that does not fall' 1 "$(grep -c '^alibi is not compared: its training loss does not fall at the end (seed 12)' "$T/out")"
sed '1s/mlp = 256/mlp = 128/' "$T/ranking-1.jsonl" >"$T/ranking-4.jsonl"
ok lab report "$T/ranking-4.jsonl"
check 'experiments that differ in other keys' 1 "$(grep -c '^These experiments differ in mlp too' "$T/out")"
if python3 -c 'import matplotlib' 2>/dev/null; then
    ok lab report "$T/ranking-1.jsonl" "$T/ranking-3.jsonl" -o "$T/page.md"
    check 'pictures: by the rate; by the length, and by bytes' 3 "$(find "$T" -name 'page-*.svg' | wc -l)"
fi

# The page on the ranking: its numbers are those of the results, and --check finds a number that is not
if python3 -c 'import matplotlib' 2>/dev/null; then
    mkdir "$T/study"
    cp "$T"/ranking-[1236].jsonl "$T/study/"
    fake 4 "$T/study/ranking-4.jsonl" "$T/ranking-2.jsonl"
    fake 7 "$T/study/ranking-7.jsonl" "$T/ranking-3.jsonl"
    command='lab/paper.py'
    python3 -B lab/paper.py "$T/study" -o "$T/study/page.md" && python3 -B lab/paper.py "$T/study" -o "$T/study/page.md" --check
    check 'the page agrees with the results' 0 $?
    check 'numbers of the tables and figures' '0 0' "$(sed -n 's/^Table \([0-9]*\)\. .*/\1/p' "$T/study/page.md" | awk '$1 != NR' | wc -l) \
$(sed -n 's/^Figure \([0-9]*\)\. .*/\1/p' "$T/study/page.md" | awk '$1 != NR' | wc -l)"
    check 'no suspected reason for a sign that agrees, and some for others' '0 yes' "$(sed -n '/why it may differ/,/^$/p' "$T/study/page.md" | awk -F ' *[|] *' 'NR > 2 && NF && $6 != "" { if ($5 == "agrees") bad++; else some = "yes" } END { print bad + 0, some }')"
    check 'all stages have sections, and MB' '1 1 1' "$(grep -c '^### Twice as long$' "$T/study/page.md") $(grep -c '^## Trained further on longer windows$' "$T/study/page.md") \
$(grep -c '^| 7 | .* | 21 | 1.0 | ' "$T/study/page.md")"
    check 'neighbours that tie' 1 "$(grep -cE '(RoPE [0-9.]* ≈ T5|T5 [0-9.]* ≈ RoPE) [0-9.]* &lt; KERPLE' "$T/study/page.md")"
    check 'the six comparisons' '4 2' "$(grep -c '^- At 128, ' "$T/study/page.md") $(grep -c '^- At 512, ' "$T/study/page.md")"
    check 'signs of published claims' 1 "$(grep -c '^| Press 2022 | RoPE.* | rises: +3[0-9.]* % .* at 256 | agrees |  |$' "$T/study/page.md")"
    sed -i 's/^\(- At 512, T5 is better than RoPE, by 0.\)[0-9]/\17/' "$T/study/page.md"
    python3 -B lab/paper.py "$T/study" -o "$T/study/page.md" --check 2>"$T/err"
    check 'a number that differs' '1 1' "$? $(grep -c 'page.md:[0-9]*: differs from the results' "$T/err")"
fi

# Numbers of the committed page, computed from the raw lines without lab/report: perplexities, counts, and the six differences with t of 4 degrees of freedom
command='numbers of lab/results/ranking.md'
python3 - >"$T/out" <<'END'
import itertools, json, math, statistics
page, groups = open("lab/results/ranking.md").read(), {}
for line in map(json.loads, open("lab/results/ranking-3.jsonl")):
    groups.setdefault(line["vary"]["position"].split(",")[0], {})[line["seed"]] = {x["length"]: x["loss"] for x in line["lengths"]}
    counts = line["ngrams"]
found = []
for what, starts in groups.items():
    row = next(row for row in page.split("\n") if row.startswith(f"| {what} | 0.0") and "deviation" not in row and row.count("|") == 11)
    for n, length in enumerate((64, 128, 256, 512, 1024, 2048)):
        values = [math.exp(x[length]) for x in starts.values() if x[length] is not None]
        cell = f"{statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else "none"
        found.append(row.split(" | ")[3 + n] == cell)
for a, b, length in (("t5", "rope", 128), ("kerple", "alibi", 128), ("learned", "sinusoidal", 128), ("none", "rope", 128), ("t5", "rope", 512), ("kerple", "t5", 512)):
    values = [groups[a][seed][length] - groups[b][seed][length] for seed in groups[a]]
    half = {5: 2.776445}[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    found.append(f"| {a} − {b} | {length} | {statistics.mean(values):+.3f} ± {half:.3f} |".replace("-", "−") in page)
found += [f"| counts of {x['order']} byte{'s' * (x['order'] > 1)} |  |  | {x['perplexity']:.3f} |" in page for x in counts]
names = {"none": "no positions", "sinusoidal": "sinusoidal positions", "learned": "learned positions", "alibi": "ALiBi", "kerple": "KERPLE", "t5": "T5", "rope": "RoPE"}
plain = page.replace("&lt;", "<")
summary = plain[:plain.index("## Question")]
for what, starts in groups.items():  # the line of the summary, and what its bullets say of each scheme
    perplexity = statistics.mean(math.exp(x[128]) for x in starts.values())
    found.append(f"{names[what]} {perplexity:.2f}" in summary.split("\n")[2])
    rises = [x[2048] - x[128] for x in starts.values() if x[2048] is not None]
    if rises:
        middle, half = statistics.mean(rises), 2.776445 * statistics.stdev(rises) / math.sqrt(len(rises))
        ends = [math.exp(x) for x in (middle, middle - half, middle + half)]
        factor = f"× {ends[0]:.1f} ({ends[1]:.1f} to {ends[2]:.1f})"
        share = "{:+.1f} % ({:+.1f} to {:+.1f})".format(*(100 * (x - 1) for x in ends)).replace("-0.0", "0.0").replace("+0.0", "0.0").replace("-", "−")
        found.append(f"{names[what]} {factor if ends[0] >= 2 else share}" in summary)
for a, b, length in (("t5", "rope", 128), ("kerple", "alibi", 128), ("learned", "sinusoidal", 128), ("none", "rope", 128), ("t5", "rope", 512), ("kerple", "t5", 512)):
    values = [groups[a][seed][length] - groups[b][seed][length] for seed in groups[a]]
    found.append(f"{abs(statistics.mean(values)):.3f} ± {2.776445 * statistics.stdev(values) / math.sqrt(5):.3f} nats" in summary)
steps = {}
for line in map(json.loads, open("lab/results/ranking-3.jsonl")):
    limit = next(x["loss"] for x in line["ngrams"] if x["order"] == 3)
    each = 5000 // len(line["losses"])
    steps.setdefault(line["vary"]["position"].split(",")[0], []).append(each * (1 + next(n for n, x in enumerate(line["losses"]) if x < limit)))
found += [f"{sorted(some)[2]:,} steps ({names[what]})" in summary for what, some in steps.items()]
dropped = {}
for line in map(json.loads, open("lab/results/ranking-6.jsonl")):
    if "eval_position" not in line["vary"]:
        what = line["vary"]["init_from"].split("/")[-1].split("+")[0].split(",")[0]
        dropped.setdefault((what, line["vary"]["position"] == "none"), []).append(next(x["perplexity"] for x in line["lengths"] if x["length"] == 128))
found += [f"{statistics.mean(dropped[what, True]):.2f} and {statistics.mean(some):.2f} ({names[what]})" in summary for (what, gone), some in dropped.items() if not gone]
law = {}  # log(tokens until the loss of counts of three bytes) = a + b log(batch) + c log(length), by the normal equations
for line in map(json.loads, open("lab/results/previous.jsonl")):
    keys = dict(row.split(" = ", 1) for row in line["experiment"].split("\n") if " = " in row)
    batch, length, limit = int(keys["batch"]), int(keys["length"]), next(x["loss"] for x in line["ngrams"] if x["order"] == 3)
    first = next((n for n, x in enumerate(line["losses"]) if x < limit), None)
    tokens = first is not None and (1 + first) * int(keys["steps"]) // len(line["losses"]) * batch * length
    law.setdefault(line["vary"]["position"].split(",")[0], []).append((math.log(batch), math.log(length), tokens and math.log(tokens)))
t = {}  # tokens until the loss / sqrt(batch * length) in steps of 64 x 128, the median of three starts
for what, starts in law.items():
    some = sorted(math.exp(y) / math.sqrt(64 * 128) if y else math.inf for a, b, y in starts if (a, b) == (math.log(64), math.log(128)))
    t[what] = some[1]
found.append("it is " + ", ".join(f"{x / 1000:.0f} thousand ({what})" for what, x in sorted(t.items(), key=lambda pair: pair[1])) in page)
found.append(f"no positions need {t['none'] / t['rope']:.1f} times the tokens of RoPE (" in summary)
found.append(f"; in stage 3, each at its own rate, {sorted(steps['none'])[2] / sorted(steps['rope'])[2]:.1f} times)." in summary)
powers, rows = [], page[page.index("loss: batch 4 to 16 at 128"):].split("\n")
for what, starts in law.items():
    if all(y for _, _, y in starts):
        sizes = {}  # one point for each size, the mean over the starts
        for a, b, y in starts:
            sizes.setdefault((a, b), []).append(y)
        points = [(a, b, statistics.mean(some)) for (a, b), some in sizes.items()]
        u, v, y = ([x - statistics.mean(column) for x in column] for column in zip(*points))
        uu, uv, vv, uy, vy = (sum(map(math.prod, zip(a, b))) for a, b in ((u, u), (u, v), (v, v), (u, y), (v, y)))
        det, p, q = uu * vv - uv * uv, uy * vv - vy * uv, vy * uu - uy * uv
        left = sum((c - p / det * a - q / det * b) ** 2 for a, b, c in zip(u, v, y)) / (len(y) - 3)
        halves = [{2: 4.302653}[len(y) - 3] * math.sqrt(left * x / det) for x in (vv, uu)]
        powers.append((p / det, q / det))
        found.append("| {:+.2f} ± {:.2f} | {:+.2f} ± {:.2f} |".format(p / det, halves[0], q / det, halves[1]) in next(row for row in rows if row.startswith(f"| {what} |")))
spans = [f"{min(some):.2f} to {max(some):.2f}" for some in zip(*powers)]
found.append("all contain 0.5" in summary)
found.append(f"batch to the power of {spans[0]} and with the length to the power of {spans[1]} ({len(powers)} schemes)" in summary)
grid, read = {}, {}  # Kendall's tau: the best of each choice of k of the six settings, over pairs with equal bytes that surely differ in the end
for line in map(json.loads, open("lab/results/ranking-1.jsonl")):
    keys, vary = dict(row.split(" = ", 1) for row in line["experiment"].split("\n") if " = " in row), line["vary"]
    what = vary["position"].split(",")[0]
    second = next((vary[key] for key in ("lr_terms", "sinusoidal_scale", "weight_decay") if key in vary), vary["position"].partition("base=")[2])
    grid.setdefault(what, {})[bool(second), float(keys["lr"]), float(second or 0)] = next(x["loss"] for x in line["lengths"] if x["length"] == 128)
    read[what] = keys["steps"]
final = {what: statistics.mean(x[128] for x in starts.values()) for what, starts in groups.items()}
pairs = []
for a, b in itertools.combinations(groups, 2):
    values = [groups[a][seed][128] - groups[b][seed][128] for seed in groups[a]]
    if read[a] == read[b] and abs(statistics.mean(values)) > 2.776445 * statistics.stdev(values) / math.sqrt(5):
        pairs.append((a, b))
taus = []
for k in range(1, 7):
    some = []
    for chosen in itertools.combinations(range(6), k):
        best = {what: min(values[key] for n, key in enumerate(sorted(values)) if n in chosen) for what, values in grid.items()}
        some.append(sum(math.copysign(1, (best[a] - best[b]) * (final[a] - final[b])) for a, b in pairs) / len(pairs))
    taus.append(f"{statistics.mean(some):.2f} ({min(some):.2f} to {max(some):.2f})")
found.append(f"| τ | {' | '.join(taus)} |" in page)
found.append(f"τ of {taus[0].split()[0]} to the final order, on average (from {taus[0].split('(')[1][:-1]}); the best of six settings gives {taus[5][:4]} " in summary)
found.append(f" {len(pairs)} pairs count: those that read equal bytes" in summary)
gone = {}  # ALiBi without positions against ALiBi with them, after 1 MB more
for line in map(json.loads, open("lab/results/ranking-6.jsonl")):
    if "alibi" in line["vary"]["init_from"].split("/")[-1]:
        for x in line["lengths"]:
            gone.setdefault((line["vary"]["position"] == "none", x["length"]), {})[line["seed"]] = x["loss"]
words = []
for length in (128, 256):
    values = [x - gone[False, length][seed] for seed, x in gone[True, length].items()]
    words.append(f"{statistics.mean(values):.2f} ± {2.776445 * statistics.stdev(values) / math.sqrt(5):.2f}")
found.append(f"ALiBi without positions is then {words[0]} nats worse at 128 and {words[1]} at 256" in summary)
rises, sure, signs = {}, [], []  # steps until half the rise of the weight, in pairs that differ surely
for line in map(json.loads, open("lab/results/ranking-3.jsonl")):
    weights = [(x["step"], x["weight"]) for x in line["previous"]]
    half = (weights[0][1] + weights[-1][1]) / 2
    rises.setdefault(line["vary"]["position"].split(",")[0], []).append(next(step for step, x in weights if x > half))
for a, b in itertools.combinations(groups, 2):
    values = [groups[a][seed][128] - groups[b][seed][128] for seed in groups[a]]
    if abs(statistics.mean(values)) > 2.776445 * statistics.stdev(values) / math.sqrt(5):
        signs.append((sorted(rises[a])[2] - sorted(rises[b])[2]) * statistics.mean(values))
found.append(f"in {sum(x > 0 for x in signs)} of the {len(signs)} pairs that differ surely in the end ({sum(x < 0 for x in signs)} opposite, {sum(x == 0 for x in signs)} equal)" in summary)
encoders = {}
for line in map(json.loads, open("lab/results/classify-2.jsonl")):
    encoders.setdefault(line["vary"]["position"].split(",")[0], {})[line["seed"]] = next(100 * x["accuracy"] for x in line["lengths"] if x["length"] == 128)
for what in ("sinusoidal", "none", "t5", "rope"):
    values = [x - encoders[what][seed] for seed, x in encoders["alibi"].items()]
    found.append(f"{statistics.mean(values):.1f} ± {2.776445 * statistics.stdev(values) / math.sqrt(5):.1f} points ({names[what]})" in page)
scaled, longer = {}, {}
for line in map(json.loads, open("lab/results/ranking-6.jsonl")):
    position = line["vary"].get("eval_position", "")
    if "yarn" in position:
        for x in line["lengths"]:
            scaled.setdefault((position.split("factor=")[1].split(",")[0], x["length"]), []).append(x["perplexity"])
for factor, length in (("4", 256), ("16", 2048)):
    found.append(f"{statistics.mean(scaled[factor, length]):.2f} at {length:,} (YaRN, factor {factor})" in summary)
for line in map(json.loads, open("lab/results/ranking-7.jsonl")):
    keys = dict(row.split(" = ", 1) for row in line["experiment"].split("\n") if " = " in row)
    position = ("read " if keys.get("eval_position") else "") + keys["position"].replace(",bidirectional=0", "")
    for x in line["lengths"]:
        longer.setdefault((position, keys["length"], x["length"]), {})[line["seed"]] = x["loss"]
for what, a, b in (("KERPLE", ("kerple", "4096"), ("kerple", "128")), ("T5 with max_distance 128", ("t5,max_distance=128", "4096"), ("t5,max_distance=128", "128")),
                   ("RoPE", ("rope,base=1000", "4096"), ("rope,base=1000", "128")),
                   ("T5 from windows of 128, read with max_distance 4,096 instead of 128:", ("read t5,max_distance=128", "128"), ("t5,max_distance=128", "128")),
                   ("T5 in windows of 4,096, trained with max_distance 4,096 instead of 128 (3 starts):", ("t5,max_distance=4096", "4096"), ("t5,max_distance=128", "4096"))):
    words = []
    for length in (128, 4096, 8192):
        values = [x - longer[(*b, length)][seed] for seed, x in longer[(*a, length)].items()]
        words.append(f"{statistics.mean(values):+.3f} ± {4.302653 * statistics.stdev(values) / math.sqrt(3):.3f} at {length:,}")
    text = f"{what} {words[0]}, {words[1]} and {words[2]}" if "read" not in what else f"{what} {words[0]} and {words[1]}"
    found.append(text.replace("-", "−") in summary)
def failures(name):
    starts = {}
    for line in map(json.loads, open(f"lab/results/{name}.jsonl")):
        x = next(x for x in line["lengths"] if x["length"] == 20)
        starts.setdefault((line["vary"]["position"].split(",")[0], line["vary"]["generate"]), []).append(10 * x["exact"] >= 9 * x["lines"])
    return starts
starts = failures("tasks-2")
found += [f"{names[what]} {some.count(False)} of {len(some)} starts" in summary.split(f"in {task}, ")[1].split(";" if task == "copy" else ".")[0] for (what, task), some in starts.items() if False in some]
found.append(f"letters: {sum(map(sum, starts.values()))} of {sum(map(len, starts.values()))} models answer 90 % or more" in summary)
copy = {}
for line in map(json.loads, open("lab/results/tasks-2.jsonl")):
    if line["vary"]["generate"] == "copy":
        share = {x["length"]: 100 * x["exact"] / x["lines"] for x in line["lengths"]}
        if share[20] >= 90:
            copy.setdefault(line["vary"]["position"].split(",")[0], []).append(f"{share[25]:.1f}")
words = [f"{name} {', '.join(copy[what][:-1])} and {copy[what][-1]} %" for what, name in (("t5", "T5"), ("none", "no positions"))]
found.append(f"starts that learned the task: {words[0]}; {words[1]} |" in plain)
for what, task in starts:  # a start that learned, in the tables
    some = starts[what, task]
    found.append(any(row.startswith(f"| {what} | ") and f" {sum(some)} of {len(some)} (" in row for row in plain[plain.index(f"### {task}, "):].split("\n")))
again = [x for some in failures("tasks-3").values() for x in some]
found.append(f"{sum(again)} of these {len(again)} learn the task" in summary)
print(found.count(False), len(found))
END
check 'numbers that differ, and all' '0 129' "$(cat "$T/out")"

# The tests of equal schemes find a difference in at most 6 % of experiments. The deviations of the starts are those of the committed results, at
# 128 and at 512. By design it is at most 5 %; 10,000 experiments have a standard error of 0.2 %. An earlier test over the pieces, which
# averaged the starts, found differences in 4 to 78 % of experiments.
command='false differences'
python3 -B - >"$T/out" 2>"$T/err" <<'END'
import json, random, statistics, sys
sys.path.insert(0, "lab/report")
from intervals import adjusted, p_value, verdict
from ranking import CONTRASTS
SPREAD = {}
for line in map(json.loads, open("lab/results/ranking-3.jsonl")):
    for x in line["lengths"]:
        if x["loss"] is not None:
            SPREAD.setdefault((line["vary"]["position"].split(",")[0], x["length"]), []).append(x["loss"])
SPREAD = {key: statistics.stdev(values) for key, values in SPREAD.items()}
draw = random.Random(1)

def experiment(effect=0.0):
    found = []
    at = {key: [draw.gauss(0, sd) + effect * (key == ("rope", 512)) for _ in range(5)] for key, sd in SPREAD.items()}
    values = [[x - y for x, y in zip(at[a, length], at[b, length])] for a, b, length in CONTRASTS]
    return [verdict(some, p) for some, p in zip(values, adjusted(list(map(p_value, values))))]

null = [experiment() for _ in range(10000)]
false = sum(any(x in ("lower", "higher") for x in some) for some in null) / len(null)
power = sum(experiment(1.0)[4] == "lower" for _ in range(200)) / 200
ties = sum(some[5] == "tie" for some in null) / len(null)
print("at most 6 %" if false <= 0.06 else f"{100 * false:.1f} %", "power" if power > 0.9 else power)
print(f"{100 * false:.2f} % false, {100 * power:.0f} % of 1 nat found, {100 * ties:.0f} % of equal KERPLE and T5 called a tie", file=sys.stderr)
END
check 'equal schemes' 'at most 6 % power' "$(cat "$T/out")"

finish
