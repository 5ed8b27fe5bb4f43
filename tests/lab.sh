#!/bin/sh
# lab.sh -- relpos lab as its users run it: training, stopping and going on with the same bits, measuring, sampling, sweeps, and
# every refusal.
#
#     tests/lab.sh PATH/TO/relpos        from the root of the project; exit code 77 where there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
set -u
program=${1:?usage: tests/lab.sh PATH/TO/relpos}
. tests/checks.sh

# lab ARGUMENT...: leaves $T/out, $T/err, $code
lab()
{
    command="relpos lab $*"
    timeout 100 "$program" lab "$@" >"$T/out" 2>"$T/err"
    code=$?
}

ok()
{
    lab "$@"
    check 'it succeeds in silence' '0 ' "$code $(head -n 3 "$T/err")"
}

# refused CODE PATTERN ARGUMENT...: one line on standard error
refused()
{
    want=$1 pattern=$2
    shift 2
    lab "$@"
    check 'exit code, and lines on standard error' "$want 1" "$code $(wc -l <"$T/err")"
    check 'what it says' "$pattern" "$(if grep -qE -e "$pattern" "$T/err"; then printf '%s' "$pattern"; else cat "$T/err"; fi)"
}

same()
{
    checks=$((checks + 1))
    cmp -s "$1" "$2" && return 0
    failed=$((failed + 1))
    printf 'FAILED same bytes: %s and %s after %s\n' "$1" "$2" "$command"
}

cat >"$T/small.lab" <<END
# as small as it gets
layers = 1
width = 16
heads = 2
mlp = 32
length = 16
batch = 2
steps = 24      # a comment
warmup = 2
lr = 0.01
log_every = 4
dropout = 0.1
position = t5,buckets=8,max_distance=16,bidirectional=0+rope
valid_share = 0.2
eval_bytes = 200
text = examples/data/gettysburg.txt
END

RELPOS_BLAS=/nothing.so lab train "$T/small.lab" -o "$T/none"
check 'without a CBLAS it says what is missing' "1 relpos: lab: /nothing.so cannot be loaded (install Debian's libopenblas0, or name a CBLAS in RELPOS_BLAS)" \
    "$code $(cat "$T/err")"
lab train "$T/small.lab" -o "$T/run" --threads 1
if grep -q 'cannot be loaded' "$T/err"; then
    echo "skipped: $(cat "$T/err")"
    exit 77
fi
check 'it succeeds in silence' '0 ' "$code $(cat "$T/err")"

# ---------------------------------------------------------------------------------------------------- training
first=$(grep -m 1 '"loss"' "$T/run/log.jsonl" | sed 's/.*"loss":\([0-9.]*\),.*/\1/')
last=$(grep '"loss"' "$T/run/log.jsonl" | tail -n 1 | sed 's/.*"loss":\([0-9.]*\),.*/\1/')
check 'the loss falls' 1 "$(awk -v a="$first" -v b="$last" 'BEGIN {print (a - b > 0.5)}')"
check 'lines of the log' '8' "$(wc -l <"$T/run/log.jsonl")" # the experiment, six of training, one of measuring
ok train "$T/small.lab" -o "$T/two" --threads 3
same "$T/run/checkpoint.safetensors" "$T/two/checkpoint.safetensors"

# stopped and gone on, with other numbers of threads, twice
ok train "$T/small.lab" -o "$T/three" --threads 2 --until 7
ok train "$T/small.lab" -o "$T/three" --threads 1 --until 18 --resume
ok train "$T/small.lab" -o "$T/three" --threads 3 --resume
same "$T/run/checkpoint.safetensors" "$T/three/checkpoint.safetensors"
for file in run three; do
    sed 's/,"tokens_per_s":[0-9.e+]*//; s/"threads":[0-9]*//' "$T/$file/log.jsonl" >"$T/$file.log"
done
same "$T/run.log" "$T/three.log"

# Ctrl-C
command='relpos lab train, and SIGINT'
"$program" lab train "$T/small.lab" -o "$T/long" --set steps=100000 --set warmup=10 --set log_every=1 2>"$T/err" >"$T/out" &
pid=$!
waited=0
while [ "$waited" -lt 300 ]; do
    waited=$((waited + 1))
    sleep 0.2
    [ -s "$T/long/log.jsonl" ] && [ "$(wc -l <"$T/long/log.jsonl")" -gt 3 ] && break
done
kill -INT "$pid"
wait "$pid"
check 'exit code' 1 $?
check 'what it says' 'stopped at step' "$(grep -oE 'stopped at step' "$T/err")"
check 'its checkpoint' yes "$([ -s "$T/long/checkpoint.safetensors" ] && echo yes)"

refused 1 'holds a run already' train "$T/small.lab" -o "$T/run"
refused 1 'begun with "width = 16"' train "$T/small.lab" -o "$T/run" --resume --set width=32
refused 1 'cannot be opened' train "$T/small.lab" -o "$T/fresh" --resume

# a damaged checkpoint is named, and the one before is used
cp -r "$T/three" "$T/four"
printf 'X' | dd of="$T/four/checkpoint.safetensors" bs=1 seek=9000 conv=notrunc 2>"$T/dd"
lab train "$T/small.lab" -o "$T/four" --resume
check 'it goes on' 0 "$code"
check 'what it says' 'damaged: its checksum' "$(grep -oE 'damaged: its checksum' "$T/err")"
same "$T/run/checkpoint.safetensors" "$T/four/checkpoint.safetensors"
cp -r "$T/three" "$T/five"
head -c 700 "$T/three/checkpoint.safetensors" >"$T/five/checkpoint.safetensors"
cp "$T/five/checkpoint.safetensors" "$T/five/previous.safetensors"
refused 1 'checkpoint.safetensors' train "$T/small.lab" -o "$T/five" --resume

# a full disk, for which a limit on the size of files stands: what was there stays
ok train "$T/small.lab" -o "$T/six" --until 8
cp "$T/six/checkpoint.safetensors" "$T/six.before"
command='relpos lab train, with files of 8 KiB at most'
(ulimit -f 16 && timeout 100 "$program" lab train "$T/small.lab" -o "$T/six" --resume) >"$T/out" 2>"$T/err"
check 'exit code' 1 $?
check 'what it says' 'cannot be written' "$(grep -oE 'cannot be written' "$T/err")"
same "$T/six.before" "$T/six/checkpoint.safetensors"
check 'nothing is left over' 'checkpoint.safetensors log.jsonl' "$(cd "$T/six" && echo *)"

# a loss that is no number stops the run
refused 1 'step [0-9]+: the (loss|norm of the gradients) is .*(checkpoint of step 4 is kept|before any)' \
    train "$T/small.lab" -o "$T/nan" --set lr=100 --set lr_min=100 --set clip=0 --set warmup=0 --set steps=400 --set checkpoint_every=4 \
    --set weight_decay=100

# ---------------------------------------------------------------------------------------------------- measuring and sampling
ok eval "$T/run" --lengths 16,32 --json
check 'lengths' '"length":16 "length":32' "$(grep -oE '"length":[0-9]+' "$T/out" | tr '\n' ' ' | sed 's/ $//')"
valid=$(grep -oE '"valid_loss":[0-9.]*' "$T/run/log.jsonl")
ok eval "$T/run" --lengths 16 --bytes 200 --json
check 'the loss at the end of training' "${valid#*:}" "$(grep -oE '"loss":[0-9.]*' "$T/out" | sed 's/.*://')"
ok eval "$T/run/checkpoint.safetensors" --text README.md --bytes 500
ok sample "$T/run" --prompt 'We are' --bytes 50 --threads 1
cp "$T/out" "$T/sample"
ok sample "$T/run" --prompt 'We are' --bytes 50 --threads 3
same "$T/sample" "$T/out"
check 'it begins with the prompt' 'We are' "$(head -c 6 "$T/out")"
ok sample "$T/run" --temperature 0 --bytes 5
refused 1 'GB are needed .* GB are free' sample "$T/run" --bytes 1000000000000
ok sample "$T/run" --top-k 1 --bytes 5 --seed 2
refused 1 'cannot be opened' eval "$T/nothing"
ok train "$T/small.lab" -o "$T/learned" --set position=learned --set steps=3
ok eval "$T/learned" --lengths 16,32
check 'a length without positions' 1 "$(grep -c '^length     32   learned positions end before$' "$T/out")"
ok sample "$T/learned" --bytes 100

# what is exported is what relpos attend reads, to the bit: out lies last in both files
ok export "$T/run" --prompt 'We are met' -o "$T/x.safetensors"
options=$(sed "s|OUT|$T/y.safetensors|; s|^relpos ||" "$T/out")
grep -q "\"options\":\"${options#*/y.safetensors }\"" "$T/x.safetensors" || untold=1
check 'the options are in the metadata' 0 "${untold:-0}"
command="relpos $options"
# shellcheck disable=SC2086
timeout 100 "$program" $options >"$T/out" 2>"$T/err"
check 'the command that was printed' '0 ' "$? $(cat "$T/err")"
for file in x y; do
    tail -c 640 "$T/$file.safetensors" >"$T/$file.tail" # 10 tokens of 2 heads of 8 channels of f32
done
same "$T/x.tail" "$T/y.tail"
refused 1 'layer: 1 \(0 to 0\)' export "$T/run" --prompt 'We are met' --layer 1 -o "$T/x.npz"
refused 2 'not .safetensors or .npz' export "$T/run" --prompt 'We are met' -o "$T/x.txt"
refused 2 'no text' export "$T/run" -o "$T/x.npz"
ok export "$T/run" --model -o "$T/model.safetensors"
check 'the weights alone are a third' 1 "$(($(wc -c <"$T/model.safetensors") * 2 < $(wc -c <"$T/run/checkpoint.safetensors")))"
ok sample "$T/model.safetensors" --prompt 'We are' --bytes 50
same "$T/sample" "$T/out"

# a file that lies about itself; nothing is made that it could not hold
sed 's/width = 16/width = 96/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'damaged: [0-9]+ bytes of arrays cannot be a model of' sample "$T/lie.safetensors"
sed 's/vocab = 256/vocab = 255/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'embedding.weight. has another shape' sample "$T/lie.safetensors"
sed 's/heads = 2/heads = 4/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'has another shape' sample "$T/lie.safetensors"
sed 's/seed = 1/seed = 2/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'damaged: its checksum' sample "$T/lie.safetensors"
mkdir "$T/resumed" && cp "$T/model.safetensors" "$T/resumed/checkpoint.safetensors"
refused 1 'no averages of the optimizer' train "$T/small.lab" -o "$T/resumed" --resume

# ---------------------------------------------------------------------------------------------------- sweeps
(
    cat "$T/small.lab"
    echo 'vary.position_layers = own | shared'
    echo 'seeds = 2'
    echo 'eval_lengths = 16 32'
) | sed 's/^steps = .*/steps = 3/' >"$T/sweep.lab"
ok sweep "$T/sweep.lab" -o "$T/results.jsonl"
check 'results' 4 "$(wc -l <"$T/results.jsonl")"
head -n 3 "$T/results.jsonl" >"$T/part.jsonl"
ok sweep "$T/sweep.lab" -o "$T/part.jsonl"
for file in results part; do
    sed 's/"ms_per_step":[0-9.]*//' "$T/$file.jsonl" >"$T/$file.lines"
done
same "$T/results.lines" "$T/part.lines"
ok report "$T/results.jsonl"
check 'rows of the table' 4 "$(wc -l <"$T/out")"
check 'a row' 1 "$(grep -cE '^\| position_layers = shared \| [0-9.]+ \([0-9.]+ to [0-9.]+\) \| .* \| 2 \|$' "$T/out")"

# what is short, what is set, what is kept
(
    cat "$T/sweep.lab"
    echo 'quick.steps = 2'
    echo 'quick.seeds = 1'
    echo 'quick.vary.position_layers = shared'
) >"$T/quick.lab"
ok sweep "$T/quick.lab" -o "$T/quick.jsonl" --quick --set batch=1 --keep "$T/kept"
check 'one result' 1 "$(wc -l <"$T/quick.jsonl")"
check 'its experiment' 1 "$(grep -c 'batch = 1.n.*steps = 2.n' "$T/quick.jsonl")"
ok eval "$T/kept/shared-1.safetensors"
refused 2 'has no line quick' sweep "$T/sweep.lab" -o "$T/quick.jsonl" --quick
refused 2 'no key is called "stepz"' sweep "$T/sweep.lab" -o "$T/quick.jsonl" --set stepz=2

# one model measured with several positions: the first as it was trained
(
    grep -v '^position ' "$T/small.lab"
    echo 'position = rope'
    echo 'vary.eval_position = rope | rope,base=100 | alibi | t5'
) | sed 's/^steps = .*/steps = 3/' >"$T/other.lab"
lab sweep "$T/other.lab" -o "$T/other.jsonl"
check 'three are measured, one has other weights' '1 3 2' "$code $(wc -l <"$T/other.jsonl") $(wc -l <"$T/err")"
check 'which' 1 "$(grep -c 't5 has other weights than rope' "$T/err")"
check 'one training, three measurements' '1 3' "$(sed 's/.*"train_loss":\([0-9.]*\).*/\1/' "$T/other.jsonl" | sort -u | wc -l) \
$(sed 's/.*"lengths":.{"length":16,"loss":\([0-9.]*\).*/\1/' "$T/other.jsonl" | sort -u | wc -l)"

# the experiments that come with the source
for file in lab/*.lab; do
    if grep -q '^vary' "$file"; then
        ok sweep "$file" --list
        ok sweep "$file" --list --quick
    else
        ok train "$file" -o "$T/own.$(basename "$file")" --until 0
    fi
done

# ---------------------------------------------------------------------------------------------------- refusals
train() # train PATTERN LINE: the small experiment with a line more
{
    (
        grep -v "^${2%% *} " "$T/small.lab"
        echo "$2"
    ) >"$T/bad.lab"
    refused "$3" "$1" train "$T/bad.lab" -o "$T/bad"
}
train 'did you mean width' 'widht = 3' 2
train 'no key is called "colour"' 'colour = 3' 2
train 'is not key = value' 'nonsense' 2
train 'bad.lab:16: width: "x" is no whole number' 'width = x' 2
train 'out of range' 'layers = 0' 2
train 'multiple of heads' 'heads = 3' 2
train 'activation: "tanh" is none of gelu' 'activation = tanh' 2
train 'did you mean "alibi"' 'position = alibl' 1
train 'no projection' 'position = forget' 1
train 'buckets' 'position = t5,buckets=1' 1
train 'no file is named' 'text =' 1
train 'cannot be read' 'text = nothing.txt' 1
train 'no regular file' 'text = docs' 1
train 'GB are needed' 'width = 60000' 1
: >"$T/empty.txt"
train 'empty' "text = $T/empty.txt" 1
printf 'a\0b' >"$T/nul.txt"
train 'nul.txt:1:2: a NUL byte' "text = $T/nul.txt" 1
printf 'line\nab\377c' >"$T/latin.txt"
train 'latin.txt:2:3: not valid UTF-8' "text = $T/latin.txt" 1
printf 'short' >"$T/short.txt"
train 'at least 18 are needed' "text = $T/short.txt" 1
check 'nothing was begun' no "$([ -e "$T/bad/checkpoint.safetensors" ] && echo yes || echo no)"
refused 2 'no experiment' train
refused 2 'no directory' train "$T/small.lab"
train 'given twice' "$(printf 'width = 8\nwidth = 16')" 2
refused 2 'multiple of heads' train "$T/small.lab" -o "$T/bad" --set 'width = 3'
refused 2 'no command is called "trian"' trian
refused 1 'no result of relpos lab sweep' report README.md

echo "$checks checks, $failed failed"
[ "$failed" = 0 ]
