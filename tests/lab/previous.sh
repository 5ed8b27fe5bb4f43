#!/bin/sh
# previous.sh -- test eval_previous: compare the results of a sweep with relpos lab inspect, and check the table
#
#     tests/lab/previous.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh

head -c 17 lab/data/vim.txt >"$T/held.txt" # one window and a byte: all four windows are the same
ok lab sweep "$T/small.lab" -o "$T/results.jsonl" --keep "$T/models" --set eval_previous=8 --set "valid=$T/held.txt" --set 'vary.position=rope | alibi' --set seeds=2
check 'three measurements per run' 4 "$(grep -c '"previous":\[{"step":8,.*{"step":16,.*{"step":24,"weight":[0-9.e-]*,"layer":0,"head":[01]}\]' "$T/results.jsonl")"
ok lab inspect "$T/models/rope-1.safetensors" --text "$T/held.txt" --bytes 16 --json
# each head has "weight":[weight at distance 0, weight at distance 1, ...
most=$(grep -oE '"weight":\[[0-9.e+-]*,[0-9.e+-]*' "$T/out" | sed 's/.*,//' | sort -g | tail -n 1)
ours=$(sed -n 1p "$T/results.jsonl" | sed 's/.*"step":24,"weight":\([0-9.e+-]*\).*/\1/')
check 'the weight in inspect' 1 "$(near "$ours" "$most" 1e-6)"

sed -E 's/"weight":[0-9.e+-]+/"weight":0.05/g' "$T/results.jsonl" >"$T/low.jsonl" # no head attends to the previous token
ok lab report "$T/low.jsonl"
check 'not yet' 2 "$(grep -cE '^\| (rope|alibi) \| no rise \| 0\.05 \| [0-9.]+ \|$' "$T/out")"
sed -E '1s/"step":(16|24),"weight":0.05/"step":\1,"weight":0.75/g' "$T/low.jsonl" >"$T/some.jsonl"
ok lab report "$T/some.jsonl"
check 'in one start' 1 "$(grep -c '^| rope | 16 (16 to no rise) |' "$T/out")"
python3 - "$T/low.jsonl" >"$T/counted.jsonl" <<'END'
import json, sys
for n, text in enumerate(open(sys.argv[1])):
    line = json.loads(text)
    line["losses"], line["ngrams"] = [3.0, 1.9 + n, 1.8 + n], [{"order": 3, "loss": 2.0, "perplexity": 7.389}]
    print(json.dumps(line))
    line["experiment"] = line["experiment"].replace("\nlength = 16\n", "\nlength = 64\n")
    print(json.dumps(line))
END
ok lab report "$T/counted.jsonl"
check 'the loss of counts of three bytes' '1 1' \
    "$(grep -c '^| rope | no rise | 16 (16 to not in 24) |' "$T/out") $(grep -c '^| alibi | no rise | not in 24 |' "$T/out")"
check 'tokens until then, over the root of batch times length' '1 1 3' \
    "$(grep -c '^| loss of counts of three bytes | 2 × 16 | 2 × 64 | ratio |$' "$T/out") $(grep -c '^| rope | 0.1 | 0.2 | 2.00 |$' "$T/out") $(grep -cE '^\| (rope|alibi) \| (not reached \| not reached|no rise \| no rise) \|  \|$' "$T/out")"
# Made-up results of five sizes, in which the tokens grow with the power 0.25 of the batch and 0.5 of the length, and two starts are 2 % apart
python3 - "$T/low.jsonl" >"$T/law.jsonl" <<'END'
import json, sys
line = json.loads(open(sys.argv[1]).readline())
for batch, length in ((16, 128), (64, 32), (4, 512), (4, 128), (64, 128)):
    for seed, times in ((1, 0.99), (2, 1.01)):
        tokens = 2e6 * batch ** 0.25 * length ** 0.5 * times
        steps = tokens / (batch * length)
        keys = {"length": length, "batch": batch, "steps": round(steps * 10), "seed": seed}
        lines = [x for x in line["experiment"].splitlines() if x.split(" = ")[0] not in keys] + [f"{k} = {v}" for k, v in keys.items()]
        previous = [{"step": round(steps * k / 4), "weight": 0.1 + 0.4 * (k >= 4), "layer": 0, "head": 0} for k in range(1, 7)]
        print(json.dumps({**line, "seed": seed, "experiment": "\n".join(lines) + "\n", "previous": previous, "ngrams": [{"order": 3, "loss": 2.0, "perplexity": 7.389}],
                          "losses": [3.0] * 9 + [1.0]}))
END
ok lab report "$T/law.jsonl"
check 'the powers of the batch and the length, and those between batches at 128' 1 "$(grep -cE '^\| rope \| \+0\.25 ± 0\.00 \| \+0\.50 ± 0\.00 \| \+0\.25 ± 0\.00 \| \+0\.50 ± 0\.00 \| \+0\.25 \| \+0\.25 \|$' "$T/out")"
command='powers of lab/report/intervals.py'
check 'powers that cannot be told apart, and too few points' 'None None' "$(python3 -B -c 'import sys; sys.path.insert(0, "lab/report"); from intervals import powers
print(powers([(1, 1, 1.0), (2, 2, 2.0), (4, 4, 3.0), (8, 8, 5.0)]), powers([(1, 1, 1.0), (2, 1, 2.0), (1, 2, 3.0)]))')"
refused 1 'eval_previous: only decoders of text' lab sweep "$T/small.lab" -o "$T/x.jsonl" --set eval_previous=1 --set length=1

finish
