#!/bin/sh
# sweep.sh -- test relpos lab sweep
#
#     tests/lab/sweep.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh
make_sweep

ok lab sweep "$T/sweep.lab" -o "$T/results.jsonl"
check 'results' 4 "$(wc -l <"$T/results.jsonl")"
head -n 3 "$T/results.jsonl" >"$T/part.jsonl"
ok lab sweep "$T/sweep.lab" -o "$T/part.jsonl"
for file in results part; do
    sed 's/"\(ms_per_step\|processor_share\)":[0-9.e-]*//g' "$T/$file.jsonl" >"$T/$file.lines"
done
same 'the same bytes' "$T/results.lines" "$T/part.lines"
cp "$T/results.jsonl" "$T/before.jsonl"
ok lab sweep "$T/sweep.lab" -o "$T/results.jsonl" # nothing is left to do
same 'the same bytes' "$T/before.jsonl" "$T/results.jsonl"
ok lab sweep "$T/sweep.lab" -o "$T/results.jsonl" --set checkpoint_every=1 --set log_every=7 --set eval_every=3 # these settings do not change results
same 'the same bytes' "$T/before.jsonl" "$T/results.jsonl"
printf '{"experiment":"lay' >>"$T/results.jsonl" # an incomplete last line
ok lab sweep "$T/sweep.lab" -o "$T/results.jsonl"
same 'the same bytes' "$T/before.jsonl" "$T/results.jsonl"
for text in '{"a": 1}' 'plain text'; do
    printf '%s' "$text" >"$T/not.jsonl"
    refused 1 'not.jsonl: its last line is not a result' lab sweep "$T/sweep.lab" -o "$T/not.jsonl"
    echo >>"$T/not.jsonl"
    refused 1 'not.jsonl:1: not a result' lab sweep "$T/sweep.lab" -o "$T/not.jsonl"
    check 'it is unchanged' "$text" "$(cat "$T/not.jsonl")"
done
ok lab sweep "$T/sweep.lab" -o "$T/new/folder/same.jsonl" --set 'vary.position_layers=own | own' --set seeds=1
check 'the same experiment once' 1 "$(wc -l <"$T/new/folder/same.jsonl")"
refused 1 'the longest length is 99999' lab sweep "$T/sweep.lab" -o "$T/long.jsonl" --set eval_lengths=99999
refused 1 'a sweep needs a held-out text' lab sweep "$T/sweep.lab" -o "$T/long.jsonl" --set valid_share=0
refused 1 'keep: .*README.md: cannot be created: Not a directory' lab sweep "$T/sweep.lab" -o "$T/long.jsonl" --keep README.md
check 'before any training' no "$([ -e "$T/long.jsonl" ] && echo yes || echo no)"

# several processes can share a sweep, and write the same results as one process
ok lab sweep "$T/sweep.lab" -o "$T/part1.jsonl" --shard 1/3
ok lab sweep "$T/sweep.lab" -o "$T/part2.jsonl" --shard 2/3
ok lab sweep "$T/sweep.lab" -o "$T/part3.jsonl" --shard 3/3
check 'parts' '2 1 1' "$(wc -l <"$T/part1.jsonl") $(wc -l <"$T/part2.jsonl") $(wc -l <"$T/part3.jsonl")"
cat "$T/part1.jsonl" "$T/part2.jsonl" "$T/part3.jsonl" | sed 's/"\(ms_per_step\|processor_share\)":[0-9.e-]*//g' | sort >"$T/parts.lines"
sort "$T/results.lines" >"$T/sorted.lines"
same 'the same bytes' "$T/sorted.lines" "$T/parts.lines"
for bad in 0/2 3/2 1 1/2x; do
    refused 2 "shard: \"$bad\" is not I/N" lab sweep "$T/sweep.lab" -o "$T/part1.jsonl" --shard $bad
done

# for a model without learned arrays, the sweep tries only one learning rate for arrays
ok lab sweep "$T/sweep.lab" --list --set 'vary.position=none | alibi | t5' --set 'vary.lr_terms=1 | 5 | 10' --set seeds=1 --set vary.position_layers=own
check 'three for the table, one for each of the others' 5 "$(wc -l <"$T/out")"
check 'the rate is the default' 2 "$(grep -cE '"position": "(none|alibi)".*"lr_terms": "1"' "$T/out")"

# lines "run" list experiments; --set replaces all of them
(
    cat "$T/sweep.lab"
    echo 'run = lr=0.01 weight_decay=0.2'
    echo 'run = lr=0.02 position=alibi'
) >"$T/runs.lab"
ok lab sweep "$T/runs.lab" --list --set seeds=1
check 'each with both values of position_layers' 4 "$(wc -l <"$T/out")"
check 'all keys' 1 "$(grep -c '"lr": "0.02", "position": "alibi", "position_layers": "own"}, seed 1' "$T/out")"
ok lab sweep "$T/runs.lab" --list --set 'run=lr=0.03'
check 'only this one' 4 "$(grep -c '"lr": "0.03"' "$T/out")"
refused 2 'bad.lab:[0-9]*: run: "steps" is not KEY=VALUE' lab sweep "$(sed 's/alibi/alibi steps/' "$T/runs.lab" >"$T/bad.lab"; echo "$T/bad.lab")" --list
refused 2 'run: position_layers also has a line vary.position_layers' lab sweep "$T/runs.lab" --list --set 'run=position_layers=own'

# --state
ok lab sweep "$T/sweep.lab" -o "$T/none.jsonl" --state
check 'nothing is done' '0 of 4 experiments are done; 12 steps are left; the sweep is not running' "$(tail -n 1 "$T/out")"
check 'and no file is written' no "$([ -e "$T/none.jsonl" ] && echo yes || echo no)"
sed 's/"ms_per_step":[0-9.]*/"ms_per_step":200000/' "$T/before.jsonl" | head -n 2 >"$T/half.jsonl"
ok lab sweep "$T/sweep.lab" -o "$T/half.jsonl" --state
check 'half is done' '2 of 4 experiments are done; 6 steps are left, 0.3 hours at 200000 ms per step; the sweep is not running' "$(tail -n 1 "$T/out")"
check 'each has a line' '2 2' "$(grep -c 'seed 1: done$' "$T/out") $(grep -c 'seed 2: 3 steps to do$' "$T/out")"
ok lab sweep "$T/sweep.lab" -o "$T/before.jsonl" --state
check 'all are done' '4 of 4 experiments are done; 0 steps are left' "$(tail -n 1 "$T/out")"

# an interrupted training run continues, and its results equal those of an uninterrupted run
long() { run lab sweep "$T/sweep.lab" -o "$1" --set seeds=1 --set 'vary.position_layers=own' --set steps=8000 --set eval_previous=1000 --set eval_every=500 --threads 1; }
for_so_long() { # for_so_long SECONDS: run a sweep and interrupt it after this time
    command="relpos lab sweep, stopped after $1 s"
    timeout -s INT "$1" "$program" lab sweep "$T/sweep.lab" -o "$T/stopped.jsonl" --set seeds=1 --set 'vary.position_layers=own' --set steps=8000 \
        --set eval_previous=1000 --set eval_every=500 --threads 1 >"$T/out" 2>"$T/err"
    code=$?
}
began=$(date +%s.%N)
long "$T/long.jsonl"
part=$(python3 -c "print(round(max(0.1, ($(date +%s.%N) - $began) / 4), 2))") # seconds after which a run is certainly in its training
stopped=0 resumed=0 seconds=$part
until for_so_long "$seconds"
    resumed=$((resumed + $(grep -c 'seed 1 continues at step' "$T/err")))
    [ $code = 0 ] || [ $seconds = 1000 ]; do
    if [ -e "$T"/stopped.jsonl.training/*/checkpoint.safetensors ] && [ ! -s "$T/stopped.jsonl" ]; then # after the first step, before the measurement
        stopped=$((stopped + $(grep -c 'stopped (run the same command' "$T/err")))
    fi
    seconds=$(python3 -c "print(round(min(1000, 2 * $seconds), 1))")
done
check 'it was stopped' yes "$([ $stopped -gt 0 ] && echo yes || echo no)"
check 'and continued each time' "$stopped" "$resumed"
for file in long stopped; do
    sed 's/"\(ms_per_step\|processor_share\)":[0-9.e-]*//g' "$T/$file.jsonl" >"$T/$file.lines"
done
same 'the same bytes' "$T/long.lines" "$T/stopped.lines"
check 'a curve, and losses of 50 parts' '16 50' "$(grep -o '"curve":\[[^]]*' "$T/long.jsonl" | grep -o '"step"' | wc -l) \
$(grep -o '"losses":\[[^]]*' "$T/long.jsonl" | tr ',' '\n' | wc -l)"
ok lab sweep "$T/sweep.lab" -o "$T/curve.jsonl" --set seeds=1 --set eval_every=3 --set eval_lengths=16 --set vary.position_layers=own
check 'the curve ends at the result' "$(sed 's/.*"length":16,"loss":\([0-9.]*\).*/\1/' "$T/curve.jsonl")" \
    "$(sed 's/.*"curve":.{"step":3,"loss":\([0-9.]*\).*/\1/' "$T/curve.jsonl")"
check 'nothing is left next to the results' no "$([ -e "$T/stopped.jsonl.training" ] && echo yes || echo no)"

# version 0.2 had one state, in the parent of the folders; it continues
rm "$T/stopped.jsonl"
for_so_long "$part"
state=$(echo "$T"/stopped.jsonl.training/*)
mv "$state"/* "$T/stopped.jsonl.training"
: >"$state/.relpos-0123456789abcdef-1-2-3.tmp" # unfinished files of a killed process
: >"$state/next.safetensors"
for_so_long 1000
check 'it continues' '0 1' "$code $(grep -c 'seed 1 continues at step' "$T/err")"
check 'and nothing is left' no "$([ -e "$T/stopped.jsonl.training" ] && echo yes || echo no)"

# a damaged state concerns only its training
mkdir -p "$T/cut.jsonl.training/${state##*/}"
head -c 3000 "$T/run/checkpoint.safetensors" >"$T/cut.jsonl.training/${state##*/}/checkpoint.safetensors"
run lab sweep "$T/sweep.lab" -o "$T/cut.jsonl" --set seeds=1 --set steps=8000 --set eval_previous=1000 --set eval_every=500
check 'one of two reports it' '1 1 1' \
    "$code $(grep -c "cut short: .*; remove .*/cut.jsonl.training/${state##*/} to begin this training again" "$T/err") $(wc -l <"$T/cut.jsonl")"

# the keys quick.*, --set and --keep
(
    cat "$T/sweep.lab"
    echo 'quick.steps = 2'
    echo 'quick.seeds = 1'
    echo 'quick.vary.position_layers = shared'
) >"$T/quick.lab"
ok lab sweep "$T/quick.lab" -o "$T/quick.jsonl" --quick --set batch=1 --keep "$T/weights"
check 'one result' 1 "$(wc -l <"$T/quick.jsonl")"
check 'its experiment' 1 "$(grep -c 'batch = 1.n.*steps = 2.n' "$T/quick.jsonl")"
ok lab eval "$T/weights/shared-1.safetensors"
ok lab sweep "$T/sweep.lab" -o "$T/two.jsonl" --set 'vary.batch=1 | 11' --set 'vary.mlp=12 | 2' --set seeds=1 --set 'vary.position_layers=own' --keep "$T/both"
check 'each has a name' 4 "$(find "$T/both" -name '*.safetensors' | wc -l)"
rm -r "$T/both"
ok lab sweep "$T/sweep.lab" -o "$T/two.jsonl" --set 'vary.batch=1 | 11' --set 'vary.mlp=12 | 2' --set seeds=1 --set 'vary.position_layers=own' --keep "$T/both"
check 'missing files are written again' '4 4' "$(find "$T/both" -name '*.safetensors' | wc -l) $(wc -l <"$T/two.jsonl")"
refused 2 'has no line quick' lab sweep "$T/sweep.lab" -o "$T/quick.jsonl" --quick
refused 2 'no key is called "stepz"' lab sweep "$T/sweep.lab" -o "$T/quick.jsonl" --set stepz=2

# a model is measured with several position schemes; it was trained with the first
(
    grep -v '^position ' "$T/small.lab"
    echo 'position = rope'
    echo 'vary.eval_position = rope | rope,base=100 | alibi | t5'
) | sed 's/^steps = .*/steps = 3/' >"$T/other.lab"
grep -v '^vary' "$T/other.lab" >"$T/other.lab.one"
run lab sweep "$T/other.lab" -o "$T/other.jsonl"
check 'three are measured, one has other weights' '1 3 2' "$code $(wc -l <"$T/other.jsonl") $(wc -l <"$T/err")"
check 'which' 1 "$(grep -c 'position = t5: it has other weights than rope' "$T/err")"
check 'one training, three measurements' '1 3' "$(sed 's/.*"train_loss":\([0-9.]*\).*/\1/' "$T/other.jsonl" | sort -u | wc -l) \
$(sed 's/.*"lengths":.{"length":16,"loss":\([0-9.]*\).*/\1/' "$T/other.jsonl" | sort -u | wc -l)"

ok lab train "$T/other.lab.one" -o "$T/rope"
ok lab eval "$T/rope" --lengths 16,32 --bytes 200 --position rope,base=100 --json
check 'eval finds what the sweep found' 1 "$(sed 's/.*"lengths":.{"length":16,"loss":\([0-9.]*\).*/\1/' "$T/out" |
    xargs -I '{}' grep -c '"eval_position":"rope,base=100".*"length":16,"loss":{}' "$T/other.jsonl")"
ok lab eval "$T/rope" --position rope,base=100
check 'it reports this' 1 "$(grep -c 'steps; measured with rope,base=100$' "$T/out")"
refused 1 'position = t5: it has other weights than rope' lab eval "$T/rope" --position t5

# the n-gram baseline on the measured bytes
ok lab sweep "$T/sweep.lab" -o "$T/counts.jsonl" --set seeds=1 --set eval_pieces=2 --set eval_ngrams=2 --keep "$T/counts"
ok lab eval "$T/counts/own-1.safetensors" --lengths 16,32 --pieces 2 --bytes 200 --ngrams 2 --json
check 'each result has the numbers of eval' 2 "$(grep -cF "$(grep -o '"ngrams":.*' "$T/out")" "$T/counts.jsonl")"
refused 1 'eval_ngrams: the n-gram baseline is only for decoders of bytes' lab sweep "$T/other.lab" -o "$T/no.jsonl" --set task=classifier \
    --set classes=2 --set eval_ngrams=2

finish
