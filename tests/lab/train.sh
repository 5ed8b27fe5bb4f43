#!/bin/sh
# train.sh -- test relpos lab train: the same bits after any interruption, one run at a time, and errors
#
#     tests/lab/train.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh

succeeded # the run of tests/shared/lab.sh
RELPOS_BLAS=/nothing.so run lab train "$T/small.lab" -o "$T/none"
check 'without a CBLAS the message names it' "1 relpos: lab: /nothing.so cannot be loaded: /nothing.so: cannot open shared object file: No such file or directory (install Debian's libopenblas0, or name a CBLAS in RELPOS_BLAS)" \
    "$code $(cat "$T/err")"

first=$(grep -m 1 '"loss"' "$T/run/log.jsonl" | sed 's/.*"loss":\([0-9.]*\),.*/\1/')
last=$(grep '"loss"' "$T/run/log.jsonl" | tail -n 1 | sed 's/.*"loss":\([0-9.]*\),.*/\1/')
check 'the loss falls' 1 "$(awk -v a="$first" -v b="$last" 'BEGIN {print (a - b > 0.5)}')"
check 'lines of the log' '8' "$(wc -l <"$T/run/log.jsonl")" # one line for the experiment, six for training steps, one for a measurement
ok lab train "$T/small.lab" -o "$T/two" --threads 3
same 'the same bytes' "$T/run/checkpoint.safetensors" "$T/two/checkpoint.safetensors"
RELPOS_THREADS=5 run lab train "$T/small.lab" -o "$T/five" --until 1
check 'RELPOS_THREADS is the default of --threads' '0 "threads":5' "$code $(grep -o '"threads":[0-9]*' "$T/five/log.jsonl")"

# If the user requests a core of OpenBLAS, it is used. If a faster core is possible, a note on standard error and in the
# log says so.
note=$(grep -c '"blas_note"' "$T/run/log.jsonl")
check 'no note about the core that OpenBLAS chooses' 0 "$note"
if grep -q '"blas":"OpenBLAS [^"]* ' "$T/run/log.jsonl" && "$program" info | grep -q 'avx2 yes'; then
    OPENBLAS_CORETYPE=Prescott run lab train "$T/small.lab" -o "$T/core" --until 1
    check 'one line reports it' '0 1 1' "$code $(wc -l <"$T/err") $(grep -cE '^relpos: lab: OpenBLAS runs its kernels for Prescott, but this processor can run the faster ones for (SkylakeX|Haswell) .unset OPENBLAS_CORETYPE.$' "$T/err")"
    check 'and the log' 1 "$(grep -c '"blas":"OpenBLAS [^"]* Prescott","blas_note":"OpenBLAS runs its kernels for Prescott' "$T/core/log.jsonl")"
fi

# a run that is stopped and resumed twice, each time with another number of threads
ok lab train "$T/small.lab" -o "$T/three" --threads 2 --until 7
ok lab train "$T/small.lab" -o "$T/three" --threads 1 --until 18 --resume
ok lab train "$T/small.lab" -o "$T/three" --threads 3 --resume
same 'the same bytes' "$T/run/checkpoint.safetensors" "$T/three/checkpoint.safetensors"
for file in run three; do
    sed 's/,"tokens_per_s":[0-9.e+]*//; s/"threads":[0-9]*//' "$T/$file/log.jsonl" >"$T/$file.log"
done
same 'the same bytes' "$T/run.log" "$T/three.log"

# A step of two accumulated batches uses twice the windows in the memory of one batch, and its first loss is that of
# both batches. bos adds a token at the start of every window. Terms have separate learning rates and initial values.
first_loss()
{
    grep -m 1 '"loss"' "$T/$1/log.jsonl" | sed 's/.*"loss":\([0-9.]*\),.*/\1/'
}
ok lab train "$T/small.lab" -o "$T/four" --set batch=4 --set log_every=1 --set dropout=0 --until 1
ok lab train "$T/small.lab" -o "$T/twice2" --set accumulate=2 --set log_every=1 --set dropout=0 --until 1
check 'the same windows' 1 "$(near "$(first_loss four)" "$(first_loss twice2)" 1e-6)"
check 'tokens' "$(number tokens "$T/four/log.jsonl")" "$(number tokens "$T/twice2/log.jsonl")"
set -- --set accumulate=3 --set bos=1 --set vocab=257 --set lr_terms=5 --set weight_decay_terms=0.1 --set embedding_scale=0 --set init=0.05 \
    --set position=forget+rope --set log_scale=learned
ok lab train "$T/small.lab" -o "$T/added" --threads 1 "$@"
ok lab train "$T/small.lab" -o "$T/added2" --threads 3 --until 7 "$@"
ok lab train "$T/small.lab" -o "$T/added2" --threads 2 --resume "$@"
same 'the same bytes' "$T/added/checkpoint.safetensors" "$T/added2/checkpoint.safetensors"
ok lab eval "$T/added" --bytes 200
ok lab inspect "$T/added" --bytes 64
ok lab sample "$T/added" --prompt ab --bytes 10
check 'the first token is not written' ab "$(head -c 2 "$T/out")"
ok lab export "$T/added" --prompt ab -o "$T/added.safetensors"
refused 1 'begin with a token that is not a byte' explain --model "$T/added" --text 'a text'
refused 1 'vocab = 256: without a tokenizer and with bos = 1, tokens are bytes .set vocab = 257' lab train "$T/small.lab" -o "$T/no" --set bos=1
refused 2 'bos = 1: only decoders' lab train "$T/small.lab" -o "$T/no" --set bos=1 --set task=classifier

# A run can start from the weights of another. With another position scheme, it uses the arrays that both have; with longer
# windows, it uses all arrays.
ok lab train "$T/small.lab" -o "$T/more" --init "$T/run" --until 0 --set position=rope+alibi,slopes=learned --set length=32
check 'the arrays that it used' 1 "$(grep -c "more: 11 arrays of $T/run; with initial values: layers.0.attn.alibi.slopes$" "$T/out")"
check 'and the log' 1 "$(grep -c '"init":{"file":"[^"]*run","step":24,"taken":11,"anew":."layers.0.attn.alibi.slopes".}' "$T/more/log.jsonl")"
ok lab train "$T/small.lab" -o "$T/same" --init "$T/run" --set steps=40 --set length=20 --until 0
ok lab eval "$T/run" --bytes 200 --lengths 20 --json
loss=$(number loss "$T/out")
ok lab eval "$T/same" --bytes 200 --lengths 20 --json
check 'the weights are the same' "$loss" "$(number loss "$T/out")"
ok lab train "$T/small.lab" -o "$T/same" --set steps=40 --set length=20 --resume --until 4
# the key init_from does the same, also in a sweep
ok lab train "$T/small.lab" -o "$T/from" --set "init_from=$T/run" --set steps=40 --set length=20 --until 0
ok lab export "$T/from" --model -o "$T/from.safetensors"
ok lab train "$T/small.lab" -o "$T/init" --init "$T/run" --set steps=40 --set length=20 --until 0
ok lab export "$T/init" --model -o "$T/init.safetensors"
tail -c 2000 "$T/from.safetensors" >"$T/from.end" # weights, without the experiment in the header
tail -c 2000 "$T/init.safetensors" >"$T/init.end"
same 'the same weights' "$T/from.end" "$T/init.end"
ok lab sweep "$T/small.lab" -o "$T/from.jsonl" --set steps=1 --set warmup=0 --set lr=0 --set lr_min=0 --set weight_decay=0 --set "init_from=$T/run" --set dropout=0
ok lab eval "$T/run" --bytes 200 --json
check 'the loss of that model' 1 "$(near "$(sed 's/.*"length":16,"loss":\([0-9.]*\).*/\1/' "$T/from.jsonl")" "$(number loss "$T/out")" 1e-6)"
refused 1 'init_from: no array of' lab train "$T/small.lab" -o "$T/other" --set "init_from=$T/run" --set width=32 --set heads=4 --set mlp=64
refused 2 'init: --resume continues with the weights' lab train "$T/small.lab" -o "$T/same" --init "$T/run" --resume
refused 1 'has the name and shape of an array of this model' lab train "$T/small.lab" -o "$T/other" --init "$T/run" --set width=32 --set heads=4 --set mlp=64
refused 1 'nothing: ' lab train "$T/small.lab" -o "$T/other" --init "$T/nothing"

# the logged mean of the losses, and the default interval of checkpoints
ok lab train "$T/small.lab" -o "$T/means" --set log_every=1
check 'the mean of all so far' 1 "$(sed -n 's/.*"loss":\([0-9.]*\),"loss_mean":\([0-9.]*\),.*/\1 \2/p' "$T/means/log.jsonl" |
    awk '{s += $1; d = s / NR - $2; if (d * d > 1e-24) bad = 1} END {print (NR == 24 && !bad)}')"
check 'the previous checkpoint' yes "$([ -s "$T/run/previous.safetensors" ] && echo yes)"
ok lab train "$T/small.lab" -o "$T/once" --set checkpoint_every=0
check 'none' no "$([ -s "$T/once/previous.safetensors" ] && echo yes || echo no)"

# Ctrl-C
for signal in INT TERM; do
    command="relpos lab train, and SIG$signal"
    rm -rf "$T/long"
    "$program" lab train "$T/small.lab" -o "$T/long" --set steps=100000 --set warmup=10 --set log_every=1 2>"$T/err" >"$T/out" &
    pid=$!
    while kill -0 "$pid" 2>/dev/null && ! { [ -s "$T/long/log.jsonl" ] && [ "$(wc -l <"$T/long/log.jsonl")" -gt 3 ]; }; do
        sleep 0.1
    done
    kill -"$signal" "$pid"
    wait "$pid"
    check 'exit code' 1 $?
    check 'the message' 'stopped at step' "$(grep -oE 'stopped at step' "$T/err")"
    check 'its checkpoint' yes "$([ -s "$T/long/checkpoint.safetensors" ] && echo yes)"
done
command='relpos lab train, SIGINT twice at once, and once more while a step goes on that takes seconds'
"$program" lab train "$T/small.lab" -o "$T/slow" --set steps=2 --set warmup=1 --set text=lab/data/vim.txt --set eval_bytes=4000 --set length=2000 \
    --set batch=100 --set position=fire,c=1,L=64 --threads 1 2>"$T/err" >"$T/out" &
pid=$!
while kill -0 "$pid" 2>/dev/null && [ ! -e "$T/slow/log.jsonl" ]; do
    sleep 0.1
done
kill -INT "$pid"
sleep 0.02
kill -INT "$pid" # as timeout(1) does
sleep 0.6
check 'it runs to the end of its step' yes "$(kill -INT "$pid" && echo yes)"
wait "$pid"
check 'exit code' 130 $?

refused 1 'it already has a run' lab train "$T/small.lab" -o "$T/run"
mkdir "$T/half" && cp "$T/run/checkpoint.safetensors" "$T/half/previous.safetensors"
refused 1 'it already has a run' lab train "$T/small.lab" -o "$T/half"

# only one process can train a run at a time
command='relpos lab train, twice into one folder'
"$program" lab train "$T/small.lab" -o "$T/twice" --set steps=100000 --set warmup=10 --set log_every=1 2>"$T/err" >"$T/out" &
pid=$!
while kill -0 "$pid" 2>/dev/null && [ ! -s "$T/twice/log.jsonl" ]; do
    sleep 0.1
done
refused 1 'another run is writing there' lab train "$T/small.lab" -o "$T/twice"
refused 1 'another run is writing there' lab train "$T/small.lab" -o "$T/twice" --resume
kill -INT "$pid"
wait "$pid"

# missing parent folders, a different text under the same name, and paths that are not files
ok lab train "$T/small.lab" -o "$T/a/b/c" --until 0
head -c 60000 lab/data/vim.txt >"$T/text.txt"
ok lab train "$T/small.lab" -o "$T/text" --set "text=$T/text.txt" --until 4
cp "$T/text.txt" "$T/text.before" && echo more >>"$T/text.txt"
refused 1 'text: it has changed since the run was started' lab train "$T/small.lab" -o "$T/text" --set "text=$T/text.txt" --resume
cp "$T/text.before" "$T/text.txt"
ok lab train "$T/small.lab" -o "$T/text" --set "text=$T/text.txt" --resume
mkfifo "$T/pipe"
refused 1 'pipe: it is not a regular file' lab train "$T/small.lab" -o "$T/pipes" --set "text=$T/pipe"
refused 1 'tokenizer: .*pipe: it is not a regular file' lab train "$T/small.lab" -o "$T/pipes" --set "tokenizer=$T/pipe" --set vocab=300
refused 1 'pipe: it is not a regular file' lab sweep "$T/pipe" -o "$T/pipes.jsonl"

# An impossible measurement is an error before the first step. A perplexity that overflows is null, and the weights are
# saved.
refused 1 '10 tokens to measure on, in at most 10 bytes, but the longest length is 16' lab train "$T/small.lab" -o "$T/little" --set eval_bytes=10
check 'no step was made' no "$([ -e "$T/little/log.jsonl" ] && echo yes || echo no)"
ok lab train "$T/small.lab" -o "$T/far" --set lr=20 --set lr_min=20 --set weight_decay=0 --set warmup=0 --set steps=300 --set dropout=0
check 'an infinite perplexity' 1 "$(grep -c '"valid_loss":[0-9.]*,"valid_perplexity":null' "$T/far/log.jsonl")"
ok lab eval "$T/far" --bytes 400
check 'as text' 1 "$(grep -c 'perplexity     inf' "$T/out")"
refused 2 'seeds: relpos lab train makes only one run' lab train "$T/small.lab" -o "$T/x" --set seeds=2
refused 1 'started with "width = 16"' lab train "$T/small.lab" -o "$T/run" --resume --set width=32
refused 1 'cannot be opened' lab train "$T/small.lab" -o "$T/fresh" --resume

finish
