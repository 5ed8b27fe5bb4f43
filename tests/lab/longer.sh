#!/bin/sh
# longer.sh -- test stage 7 of the ranking: its experiment, and the section of lab/report on models that go on at 4,096 or at 128
#
#     tests/lab/longer.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

# The experiment, from made-up results of stage 3
for position in t5,bidirectional=0 kerple alibi; do
    for seed in 11 12 13 14; do
        printf '{"experiment":"task = decoder\\nposition = %s\\nlength = 128\\nbatch = 2\\nsteps = 9\\nseed = %s\\nlr = 0.008\\n","vary":{"position":"%s","lr":"0.008"},' "$position" $seed "$position"
        printf '"seed":%s,"train_loss":1,"weights":9,"position_weights":0,"ms_per_step":1,"bytes":1,"lengths":[{"length":128,"loss":1.5,"perplexity":4.5,"positions":[]}],' $seed
        echo '"machine":{"threads":1,"version":"0","isa":"x","blas":"y"}}'
    done
done >"$T/three.jsonl"
command='lab/stages.py 7'
python3 lab/stages.py 7 "$T/three.jsonl" >"$T/seven.lab" 2>"$T/err"
check 'exit code' '0 ' "$? $(cat "$T/err")"
check 'three starts of KERPLE and T5, at two lengths, and readings of T5' '6 12 3' \
    "$(grep -c '^run = position=kerple ' "$T/seven.lab") $(grep -c '^run = position=t5,' "$T/seven.lab") $(grep -c ' eval_position=t5,' "$T/seven.lab")"
ok lab sweep "$T/seven.lab" --list
check 'all differ' 18 "$(sort -u "$T/out" | wc -l)"

# Made-up results: the loss is 1.5, plus 0.1 for models that go on at 128, plus 0.2 beyond the length of that training, plus 0.05 for another max_distance.
# In the second and third start the last two are two and three times as large.
mkdir "$T/seven"
python3 -B - "$T/seven.lab" >"$T/seven/ranking-7.jsonl" <<'END'
import json, math, sys
runs = [dict(x.split("=", 1) for x in line[6:].split()) for line in open(sys.argv[1]) if line.startswith("run = ")]
for vary in runs:
    lengths = []
    for length in (128, 512, 2048, 4096, 8192):
        loss = 1.5 + 0.1 * (vary["length"] == "128") + (int(vary["seed"]) - 10) * (0.2 * (length > int(vary["length"])) + 0.05 * ("eval_position" in vary))
        lengths.append({"length": length, "loss": loss, "perplexity": math.exp(loss), "positions": []})
    experiment = {"task": "decoder", "steps": 250, "eval_stride": 128, "eval_bytes": 16384, "eval_position": "", **vary}
    print(json.dumps({"experiment": "".join(f"{k} = {v}\n" for k, v in experiment.items()), "vary": vary, "seed": int(vary["seed"]), "train_loss": 1.5, "lengths": lengths,
                      "weights": 214720, "position_weights": 512, "ms_per_step": 300.0, "bytes": 95000000,
                      "machine": {"threads": 1, "version": "0", "isa": "x", "blas": "y"}}))
END
row() { grep -F "| $1 |" "$T/out" | sed "s/^| $1 | //; s/ |\$//"; }
ok lab report "$T/seven/ranking-7.jsonl"
check 'bytes and starts' '1 1' "$(grep -c 'for 1\.0 MB more, in windows of 128 or 4,096 bytes' "$T/out") $(grep -c 'as means over 3 starts' "$T/out")"
check 'a row for each training and reading' 6 "$(sed -n '/^| +| trained more\|^|  | trained more/,/^$/p' "$T/out" | grep -cE '^\| (t5|kerple) ')"
check 'the means of perplexity' 'at 4,096 | 4.48 | 4.48 | 4.48 | 4.48 | 6.78 (5.47 to 8.17)' "$(row kerple | sed -n 2p)" # (exp(1.7) + exp(1.9) + exp(2.1)) / 3 = 6.78
check '4,096 − 128' 'at 4,096 − at 128 | −0.100 ± 0.000 | −0.500 ± 0.497 | −0.500 ± 0.497 | −0.500 ± 0.497 | −0.100 ± 0.000' "$(row kerple | sed -n 3p)" # t = 4.303, deviation 0.2
check 'another max_distance' 'at 128, max_distance 128, read with 4,096 − at 128, max_distance 128 | +0.100 ± 0.124 | +0.100 ± 0.124 | +0.100 ± 0.124 | +0.100 ± 0.124 | +0.100 ± 0.124' \
    "$(row t5 | grep '^at 128.* − ')"
if python3 -c 'import matplotlib' 2>/dev/null; then
    ok lab report "$T/seven/ranking-7.jsonl" -o "$T/page.md"
    check 'a picture' 1 "$(find "$T" -name 'page-*.svg' | wc -l)"
fi

# A start without its control is not compared; a loss that is not finite has no perplexity.
grep -v '"length": "128".*"seed": "13"' "$T/seven/ranking-7.jsonl" | sed '1s/"perplexity": [0-9.]*/"perplexity": null/; 1s/"loss": [0-9.]*/"loss": null/' >"$T/ranking-7.jsonl"
ok lab report "$T/ranking-7.jsonl"
check 'two pairs' '1 1' "$(grep -c 'as means over 2 starts or 3 starts' "$T/out") $(row kerple | grep -c '^at 4,096 − at 128 | .* | −0.400 ± 1.271 | −0.400 ± 1.271 | ')" # t = 12.706, deviation 0.141
check 'not finite' 1 "$(row t5 | grep -c '^at 4,096, max_distance 128 | none | ')"

finish
