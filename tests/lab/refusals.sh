#!/bin/sh
# refusals.sh -- test errors about experiments and commands
#
#     tests/lab/refusals.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh

train() # train PATTERN LINE: check the error for the small experiment with LINE added
{
    (
        grep -v "^${2%% *} " "$T/small.lab"
        echo "$2"
    ) >"$T/bad.lab"
    refused "$3" "$1" lab train "$T/bad.lab" -o "$T/bad"
}
train 'did you mean width' 'widht = 3' 2
train 'no key is called "colour"' 'colour = 3' 2
train 'is not key = value' 'nonsense' 2
train 'bad.lab:16: width: "x" is not an integer' 'width = x' 2
train 'out of range' 'layers = 0' 2
train 'multiple of heads' 'heads = 3' 2
train 'activation: "tanh" is none of gelu' 'activation = tanh' 2
train 'did you mean "alibi"' 'position = alibl' 2
train 'no projection to compute it' 'position = dense' 2
train 'log_scale: only decoders with length 2' "$(printf 'log_scale = fixed\\ntask = classifier')" 2
train 'fire_scales = learned: no layer has the term fire' 'fire_scales = learned' 2
train 'random_positions = 8: it is below length, 16 .set random_positions = 64' 'random_positions = 8' 2
train 'random_positions: xl takes no positions' "$(printf 'position = rope+xl\nrandom_positions = 64')" 2
train 'w3 was given, but with these settings it has no elements' 'position = fire,c=1,L=8,w3=w,b3=b' 2
train 'buckets' 'position = t5,buckets=1' 2
train 'no file was given' 'text =' 1
train 'cannot be read' 'text = nothing.txt' 1
train 'a#b.txt: cannot be read' 'text = a#b.txt # a comment' 1
train 'not a regular file' 'text = docs' 1
train 'GB are needed' 'width = 60000' 1
: >"$T/empty.txt"
train 'empty' "text = $T/empty.txt" 1
printf 'a\0b' >"$T/nul.txt"
train 'nul.txt:1:2: a NUL byte' "text = $T/nul.txt" 1
printf 'line\nab\377c' >"$T/latin.txt"
train 'latin.txt:2:3: not valid UTF-8' "text = $T/latin.txt" 1
printf 'short' >"$T/short.txt"
train 'at least 18 are needed' "text = $T/short.txt" 1
check 'no folder is left' no "$([ -e "$T/bad" ] && echo yes || echo no)"
mkdir "$T/there"
refused 1 'nothing.txt: cannot be read' lab train "$T/small.lab" -o "$T/there/a/b" --set text=nothing.txt
check 'only the folders that existed' '' "$(ls -A "$T/there")"

# the text of an experiment is looked for beside it first, then in the current folder; --set text only in the current folder
mkdir "$T/beside"
sed 's/^text = .*/text = own.txt/' "$T/small.lab" >"$T/beside/x.lab"
cp examples/data/gettysburg.txt "$T/beside/own.txt"
ok lab train "$T/beside/x.lab" -o "$T/beside/run" --until 0
ok lab sweep "$T/beside/x.lab" -o "$T/beside/x.jsonl" --set steps=2
check 'which' 1 "$(grep -c 'text = [^ ]*/beside/own.txt' "$T/beside/x.jsonl")"
refused 1 'own.txt: cannot be read' lab train "$T/beside/x.lab" -o "$T/bad" --set text=own.txt
ok lab train "$T/beside/x.lab" -o "$T/beside/other" --until 0 --set text=examples/data/gettysburg.txt
refused 2 'no experiment' lab train
refused 2 'no directory' lab train "$T/small.lab"
train 'given twice' "$(printf 'width = 8\nwidth = 16')" 2
refused 2 'multiple of heads' lab train "$T/small.lab" -o "$T/bad" --set 'width = 3'
refused 2 'no command is called "trian"' lab trian
refused 1 'not a result of relpos lab sweep' lab report README.md
refused 2 'no results' lab report
RELPOS_PYTHON=$T/none refused 1 'none cannot be run: No such file' lab report README.md
refused 2 'no run was given' lab export
refused 2 'no file to write was given' lab export "$T/run"
refused 2 'transformers: --model writes another format' lab export "$T/run" --model --transformers -o "$T/x.safetensors"
refused 2 'model takes no text' lab export "$T/run" --model --prompt a -o "$T/x.safetensors"
refused 2 'x.npz: the suffix is not .safetensors .rename the file.$' lab export "$T/run" --model -o "$T/x.npz"

sweep() # sweep PATTERN LINE...: check the error of a sweep of the small experiment with the lines added
{
    wanted_line=$1
    shift
    (cat "$T/small.lab" && printf '%s\n' "$@") >"$T/bad.lab"
    refused 2 "$wanted_line" lab sweep "$T/bad.lab" -o "$T/bad.jsonl"
}
refused 2 'no experiment was given' lab sweep
refused 2 'no file for the results was given' lab sweep "$T/small.lab"
for seeds in 0 33 x 1x; do
    sweep "seeds: \"$seeds\" is not a number of seeds \(use 1 to 32\)" "seeds = $seeds"
done
for shard in 0/2 3/2 1/1001 1/2x 1 x/2 -1/2; do
    refused 2 "shard: \"$shard\" is not I/N" lab sweep "$T/small.lab" -o "$T/bad.jsonl" --shard "$shard"
done
sweep 'width: "x" is not an integer' 'vary.width = 8 | x'
sweep 'vary.width: "" is not an integer|width: "" is not an integer' 'vary.width = 8 |  '
for lengths in 0 16x -3 16777217 x '16;32'; do
    refused 2 'is not a list of integers from 1 to 2.24' lab eval "$T/run" --lengths "$lengths"
done
refused 2 'lengths: the list is empty' lab eval "$T/run" --lengths ', '
refused 2 'lengths: there are more than' lab eval "$T/run" --lengths "$(seq -s , 100)"
for temperature in 101 -1 nan; do
    refused 2 'temperature' lab sample "$T/run" --temperature "$temperature"
done
refused 2 'prompt: it is empty' lab sample "$T/run" --prompt ''
sweep 'vary.seed: there are more than 32 values' "vary.seed = $(seq -s '|' 33)"
# shellcheck disable=SC2046
sweep 'vary: there are more than 8 keys' $(printf 'vary.%s=1\n' seed steps batch lr warmup length width heads layers)
# shellcheck disable=SC2046
sweep 'quick: there are more than 32 keys' $("$program" lab --help | sed -n 's/^  \([a-z0-9_]*\) = .*/quick.\1=1/p' | head -n 33)
refused 1 'eval_previous: only decoders of text with length 2 or more' lab sweep "$T/small.lab" -o "$T/bad.jsonl" --set eval_previous=1 --set length=1
refused 1 'eval_ngrams: the n-gram baseline is only for decoders of bytes' lab sweep "$T/small.lab" -o "$T/bad.jsonl" --set eval_ngrams=2 --set generate=copy --set generate_size=4

finish
