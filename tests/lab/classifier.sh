#!/bin/sh
# classifier.sh -- test a model that classifies files
#
#     tests/lab/classifier.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh
make_classes

ok lab train "$T/classes.lab" -o "$T/c1" --threads 1
ok lab train "$T/classes.lab" -o "$T/c2" --threads 2 --until 25
ok lab train "$T/classes.lab" -o "$T/c2" --threads 3 --resume
same 'the same bytes' "$T/c1/checkpoint.safetensors" "$T/c2/checkpoint.safetensors"
ok lab eval "$T/c1" --lengths 16,48 --bytes 20000 --json
# Guessing is right in a third of the n windows. Ten standard deviations more are impossible by chance. All files have the
# same number of windows.
check 'it learns, and at another length' '2 2' "$(tr '{' '\n' <"$T/out" | sed -n 's/.*"length":\([0-9]*\).*"accuracy":\([0-9.]*\),"windows":\([0-9]*\),.*/\1 \2 \3/p' |
    awk '{right += $2 > 1 / 3 + 10 * sqrt(2 / 9 / $3); same += $3 == 3 * int(1000 / 48) * 48 / $1} END {print right, same}')"
check 'the predicted classes of its windows' 1 "$(sed 's/.*"accuracy":\([0-9.]*\),"windows":\([0-9]*\),"taken":\[\[\([0-9,]*\)\],\[\([0-9,]*\)\],\[\([0-9,]*\)\].*/\1,\2,\3,\4,\5/' \
    "$T/out" | awk -F, '{print $1 * $2 == $3 + $7 + $11 && $2 == $3 + $4 + $5 + $6 + $7 + $8 + $9 + $10 + $11 && $3 + $4 + $5 == $9 + $10 + $11}')"
valid=$(grep -oE '"valid_loss":[0-9.]*' "$T/c1/log.jsonl")
ok lab eval "$T/c1" --bytes 20000 --json
check 'the loss at the end of training' "${valid#*:}" "$(grep -oE '"loss":[0-9.]*' "$T/out" | sed 's/.*://')"
ok lab eval "$T/c1" --text "$T/two.txt $T/one.txt $T/three.txt"
check 'files in another order are recognized' 1 "$(awk '/^length/ {print $4 < 60}' "$T/out")"
check 'with the right classes' '3 1 2' "$(awk '/predicted/ {m = 4; for (x = 5; x < 7; x++) if ($x > $m) m = x; printf sep m - 3; sep = " "}' "$T/out")"
ok lab export "$T/c1" --prompt 'red blue' -o "$T/x.safetensors"
check 'it sees all of a text' 0 "$(grep -c causal "$T/out")"
options=$(sed "s|OUT|$T/y.safetensors|; s|^relpos ||" "$T/out")
# shellcheck disable=SC2086
"$program" $options >"$T/out" 2>"$T/err"
for file in x y; do
    tail -c 512 "$T/$file.safetensors" >"$T/$file.tail" # 512 bytes: 8 tokens, 2 heads, 8 channels, f32
done
same 'the same bytes' "$T/x.tail" "$T/y.tail"
refused 1 'is a classifier, which cannot write' lab sample "$T/c1"
refused 1 'the model is a classifier' lab inspect "$T/c1"
refused 1 'text: it names one file' lab train "$T/classes.lab" -o "$T/bad" --set "text = $T/one.txt"
refused 1 'classes = 3: text names 2 files' lab train "$T/classes.lab" -o "$T/bad" --set "text = $T/one.txt $T/two.txt"
refused 1 'classes = 3: text names 2 files' lab eval "$T/c1" --text "$T/one.txt $T/two.txt"
head -c 60 "$T/one.txt" >"$T/little.txt" # 48 tokens for training, 12 held out
refused 1 'little.txt has 12 tokens for training or held out, fewer than length, 16' lab train "$T/classes.lab" -o "$T/bad" \
    --set "text = $T/one.txt $T/two.txt $T/little.txt"
refused 1 '12 tokens of each file to measure on' lab eval "$T/c1" --text "$T/one.txt $T/two.txt $T/little.txt" --lengths 48 --bytes 36
ok lab sweep "$T/classes_sweep.lab" -o "$T/classes.jsonl"
ok lab report "$T/classes.jsonl"
sed 's/"accuracy":[0-9.]*/"accuracy":null/' "$T/classes.jsonl" >"$T/ends.jsonl" # results have null for lengths beyond the learned positions
ok lab report "$T/ends.jsonl"
check 'no accuracy' 1 "$(grep -c '^| all | none | ' "$T/out")"
ok lab report "$T/classes.jsonl"
check 'a table of accuracies' 1 "$(grep -c '^|  | accuracy at 16 |' "$T/out")"

finish
