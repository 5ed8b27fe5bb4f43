#!/bin/sh
# sample.sh -- test relpos lab eval and relpos lab sample
#
#     tests/lab/sample.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh

ok lab eval "$T/run" --lengths 16,32 --json
check 'lengths' '"length":16 "length":32' "$(grep -oE '"length":[0-9]+' "$T/out" | tr '\n' ' ' | sed 's/ $//')"
valid=$(grep -oE '"valid_loss":[0-9.]*' "$T/run/log.jsonl")
ok lab eval "$T/run" --lengths 16 --bytes 200 --json
check 'the loss at the end of training' "${valid#*:}" "$(grep -oE '"loss":[0-9.]*' "$T/out" | sed 's/.*://')"
ok lab eval "$T/run/checkpoint.safetensors" --text README.md --bytes 500
ok lab sample "$T/run" --prompt 'We are' --bytes 50 --threads 1
cp "$T/out" "$T/sample"
ok lab sample "$T/run" --prompt 'We are' --bytes 50 --threads 3
same 'the same bytes' "$T/sample" "$T/out"
check 'it begins with the prompt' 'We are' "$(head -c 6 "$T/out")"
ok lab sample "$T/run" --temperature 0 --bytes 5
refused 1 'GB are needed, .* GB are free' lab sample "$T/run" --bytes 1000000000000
ok lab sample "$T/run" --top-k 1 --bytes 5 --seed 2
refused 1 'cannot be opened' lab eval "$T/nothing"
ok lab train "$T/small.lab" -o "$T/learned" --set position=learned --set steps=3
ok lab eval "$T/learned" --lengths 16,32
check 'a length without positions' 1 "$(grep -c '^length     32   beyond the last position$' "$T/out")"
ok lab sample "$T/learned" --bytes 100

finish
