#!/bin/sh
# generated.sh -- test generated tasks: a model that learns a task, its measurements by eval and in sweeps, and their page
#
#     tests/lab/generated.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh

cat >"$T/copy.lab" <<END
layers = 2
width = 32
heads = 2
mlp = 64
bos = 1
vocab = 257
length = 6
generate = copy
generate_size = 2
batch = 64
steps = 300
warmup = 10
lr = 0.01
log_every = 100
position = learned
eval_bytes = 600
END
prepare lab train "$T/copy.lab" -o "$T/copy" --threads 2
check 'the log' 1 "$(grep -c '"step":300,.*"valid_lines":100,"valid_exact":' "$T/copy/log.jsonl")"
ok lab eval "$T/copy" --lengths 1,2,5 --bytes 600
check 'sizes' 2 "$(grep -cE '^size +[12] +right +[0-9.]+ % of (150|100) lines ' "$T/out")"
check 'beyond the learned positions' 1 "$(grep -cE '^length +5 +beyond the last position' "$T/out")"
ok lab eval "$T/copy" --json --bytes 600
check 'the trained size' 2 "$(number length "$T/out")"
# eval counts as exact the answers that greedy sampling generates
exact=$(number exact "$T/out")
check 'it has learned' 1 "$((exact > 50))"
for line in ab zq mm; do
    ok lab sample "$T/copy" --prompt "$line=" --temperature 0 --bytes 3
    sed 1q "$T/out" >>"$T/written"
done
check 'copies' 1 "$(($(grep -cE '^(ab=ab|zq=zq|mm=mm)$' "$T/written") >= 2))"

ok lab sweep "$T/copy.lab" -o "$T/results.jsonl" --set steps=3 --set warmup=1 --set 'vary.generate=copy | addition' --set length=10 --set seeds=2 --set 'eval_lengths=2 3' --set eval_bytes=300
check 'results' 4 "$(grep -c '"lines":50,"exact":\|"lines":30,"exact":' "$T/results.jsonl")"
ok lab report "$T/results.jsonl"
check 'a table for each task' '2 1 1' "$(grep -cE '^### (copy|addition), sizes of 1 to 2$' "$T/out") $(grep -c '^| all | 0 of 2 (0 to 66 %) | 0.0 | 0.0 |$' "$T/out") $(grep -c '^| all | 0 of 2 (0 to 66 %) | 0.0 | none |$' "$T/out")"
grep -v '"seed":2' "$T/results.jsonl" >"$T/one.jsonl"
ok lab report "$T/one.jsonl"
check 'one start: intervals for other lines' '1 1' "$(grep -c '^| all | 0.0 (0.0 to 7.1) | 0.0 (0.0 to 9.4) |$' "$T/out") $(grep -c '^| all | 0.0 (0.0 to 11.4) | none |$' "$T/out")"
sed 's/"lengths":\[{"length":2,/"lengths":[{"length":9,/' "$T/results.jsonl" >"$T/other.jsonl"
ok lab report "$T/other.jsonl"
check 'the trained size is not measured' '1 0' "$(grep -c '^|  | size 9 | size 3 |$' "$T/out" | sed 's/2/1/') $(grep -c 'starts that learned' "$T/out")"
sed 's/"exact":0/"exact":15/g; 1s/"exact":15/"exact":30/' "$T/results.jsonl" >"$T/some.jsonl"
ok lab report "$T/some.jsonl"
check 'means and their range' 1 "$(grep -cF '| 45.0 (30.0 to 60.0) |' "$T/out")"

refused 2 'length = 6: lines of generate_size 3 have 8 tokens' lab train "$T/copy.lab" -o "$T/x" --set generate_size=3
refused 2 'generate: only decoders of bytes' lab train "$T/copy.lab" -o "$T/x" --set task=classifier --set bos=0
refused 1 'lengths: size 1000 is too large for this task .use at most 676.' lab sweep "$T/copy.lab" -o "$T/x" --set generate=recall --set length=20 --set 'eval_lengths=2 1000'
ok lab eval "$T/copy" --lengths 2 --bytes 1
ok lab eval "$T/copy" --lengths 2 --bytes 40000
refused 1 'eval_ngrams: the n-gram baseline' lab sweep "$T/copy.lab" -o "$T/x" --set eval_ngrams=2

finish
