#!/bin/sh
# native.sh -- test the section of lab/report on models trained at 4,096 and at 128 (lab/native.lab)
#
#     tests/lab/native.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

# Made-up results of lab/native.lab: the loss is 1.5, plus 0.1 for models trained at 128, plus 0.2 beyond the trained length, plus 0.05 for another
# max_distance. In the second start the last two are twice as large.
python3 -B - >"$T/native.jsonl" <<'END'
import json, math
runs = [dict(x.split("=", 1) for x in line[6:].split()) for line in open("lab/native.lab") if line.startswith("run = ")]
for seed in (1, 2):
    for vary in runs:
        lengths = []
        for length in (128, 512, 2048, 4096, 8192):
            loss = 1.5 + 0.1 * (vary["length"] == "128") + seed * (0.2 * (length > int(vary["length"])) + 0.05 * ("eval_position" in vary))
            lengths.append({"length": length, "loss": loss, "perplexity": math.exp(loss), "positions": []})
        experiment = {"task": "decoder", "steps": 1220, "eval_position": "", **vary, "seed": seed}
        print(json.dumps({"experiment": "".join(f"{k} = {v}\n" for k, v in experiment.items()), "vary": vary, "seed": seed, "train_loss": 1.5, "lengths": lengths,
                          "weights": 214720, "position_weights": 512, "ms_per_step": 300.0, "bytes": 95000000,
                          "machine": {"threads": 1, "version": "0", "isa": "x", "blas": "y"}}))
END
row() { grep -F "| $1 |" "$T/out" | sed "s/^| $1 | //; s/ |\$//"; }
ok lab report "$T/native.jsonl"
check 'the number of starts' 1 "$(grep -c 'means over 2 starts\.' "$T/out")"
check 'a row for each training and reading' 12 "$(grep -cE '^\| (t5|kerple|fire).* \| (128|4,096) \|' "$T/out")"
check 'the means of perplexity' '4,096 | 5.0 MB |  | 4.482 | 4.482 | 4.482 | 4.482 | 6.080' "$(row kerple | sed -n 2p)" # (exp(1.7) + exp(1.9)) / 2 = 6.080
check 'other readings' 4 "$(grep -cE '^\| t5,max_distance=[0-9]+ \| [0-9,]+ \| 5.0 MB \| max_distance=[0-9]+ \|' "$T/out")"
check 'the longer training − the shorter' '−0.100 (−0.100 to −0.100) | −0.400 (−0.500 to −0.300) | −0.400 (−0.500 to −0.300) | −0.400 (−0.500 to −0.300) | −0.100 (−0.100 to −0.100)' \
    "$(row 'kerple: trained at 4,096 − at 128')"
check 'of each scheme' 4 "$(grep -c ': trained at 4,096 − at 128 |' "$T/out")"
check 'another max_distance − its own' '+0.075 (+0.050 to +0.100) | +0.075 (+0.050 to +0.100) | +0.075 (+0.050 to +0.100) | +0.075 (+0.050 to +0.100) | +0.075 (+0.050 to +0.100)' \
    "$(row 't5,max_distance=128 trained at 128: read with max_distance=4096 − as trained')"

# A pair needs both models of a seed.
sed '/"seed": 2,/ {/kerple/d}' "$T/native.jsonl" >"$T/some.jsonl"
mkdir "$T/part"
grep -v '"eval_position": "t5' "$T/some.jsonl" | sed '/"seed": 2,/ {/"length": "128", "batch"/d}' >"$T/part/native.jsonl"
ok lab report "$T/part/native.jsonl"
check 'starts that differ' 1 "$(grep -c 'means over 1 start or 2 starts' "$T/out")"
check 'one pair' '−0.100 | −0.300 | −0.300 | −0.300 | −0.100' "$(row 'kerple: trained at 4,096 − at 128')"
check 'no other reading' 0 "$(grep -c ' − as trained' "$T/out")"
sed '1s/"perplexity": [0-9.]*/"perplexity": null/; 1s/"loss": [0-9.]*/"loss": null/' "$T/native.jsonl" >"$T/part/native.jsonl"
ok lab report "$T/part/native.jsonl"
check 'a loss that is not finite' '4,096 | 2.6 MB |  | none | 4.482' "$(row fire,c=0.1,L=1024 | cut -d '|' -f 1-5 | sed 's/ $//')"
if python3 -c 'import matplotlib' 2>/dev/null; then
    ok lab report "$T/native.jsonl" -o "$T/page.md"
    check 'a picture' 1 "$(find "$T" -name 'page-*.svg' | wc -l)"
fi

finish
