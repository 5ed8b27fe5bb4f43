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
    timeout 100 env PATH="$path" "$program" lab "$@" >"$T/out" 2>"$T/err"
    code=$?
}
path=$PATH # where the program finds others

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

# ---------------------------------------------------------------------------------------------------- word pieces
# model NAME OPTION...: 400 pieces that change no text, but for the options
model()
{
    name=$1
    shift
    spm_train --input="$T/vim.txt" --model_prefix="$T/$name" --model_type=bpe --vocab_size=400 \
        --normalization_rule_name=identity --remove_extra_whitespaces=false --add_dummy_prefix=false --byte_fallback=true \
        --bos_id=-1 --eos_id=-1 "$@" >"$T/spm.log" 2>&1 || tail -n 3 "$T/spm.log"
}

if command -v spm_train >/dev/null; then
    head -c 100000 lab/data/vim.txt >"$T/vim.txt"
    model pieces
    sed "s|^text = .*|text = $T/vim.txt|; s/^steps = .*/steps = 5/" "$T/small.lab" >"$T/pieces.lab"
    printf '%s\n' "tokenizer = $T/pieces.model" 'vocab = 4096' >>"$T/pieces.lab" # most of them no piece
    path=/nothing
    refused 1 'spm_export_vocab cannot be run: .*install Debian.s sentencepiece' train "$T/pieces.lab" -o "$T/p0"
    path=$PATH
    ok train "$T/pieces.lab" -o "$T/p1" --threads 1
    ok train "$T/pieces.lab" -o "$T/p2" --threads 2 --until 3
    ok train "$T/pieces.lab" -o "$T/p2" --resume
    same "$T/p1/checkpoint.safetensors" "$T/p2/checkpoint.safetensors"
    mv "$T/pieces.model" "$T/elsewhere.model" # the checkpoint has it
    printf '\nLine\n\n\n\ttab   blanks \r\n  caf\303\251 <0x0A> \344\270\255' >"$T/odd.txt"
    prompt=$(cat "$T/odd.txt")
    ok sample "$T/p1" --prompt "$prompt" --bytes 1 --temperature 0
    head -c "$(wc -c <"$T/odd.txt")" "$T/out" | tr '\r' '?' >"$T/back.txt"
    sed 's/\r/\xef\xbf\xbd/' "$T/odd.txt" | head -c "$(wc -c <"$T/odd.txt")" | tr '\r' '?' >"$T/there.txt"
    same "$T/there.txt" "$T/back.txt"
    ok sample "$T/p1" --bytes 300
    size=$(tr -d '\277\275' <"$T/out" | wc -c) # U+FFFD as one byte
    check 'so many bytes, not pieces' 1 "$((size > 295 && size < 325))"
    ok eval "$T/p1" --text "$T/odd.txt" --lengths 1 --json # every piece but the first, which is a line feed
    check 'bytes that are predicted' "$(($(wc -c <"$T/odd.txt") - 1))" "$(sed 's/.*"bytes":\([0-9]*\).*/\1/' "$T/out")"
    check 'bits per byte' 1 "$(sed 's/.*"loss":\([0-9.]*\).*"bits_per_byte":\([0-9.]*\),"tokens":\([0-9]*\),"bytes":\([0-9]*\).*/\1 \2 \3 \4/' \
        "$T/out" | awk '{d = $1 * $3 / $4 / log(2) / $2 - 1; print (d * d < 1e-24)}')"
    ok eval "$T/p1" --lengths 1 --json
    size=$(sed 's/.*"bytes":\([0-9]*\).*/\1/' "$T/out")
    check 'a fifth of the bytes is held out' 1 "$((size > 19980 && size <= 20016))"
    ok eval "$T/p1" --lengths 16
    check 'perplexity is of pieces' 1 "$(grep -c 'of pieces .* bits/byte .* pieces, [0-9]* bytes' "$T/out")"
    ok export "$T/p1" --prompt 'the   end' -o "$T/x.safetensors"
    check 'names of the tokens' '_' "$(grep -aoE '"tokens":"\[[^]]*' "$T/x.safetensors" | grep -o _ | head -n 1)"
    ok export "$T/p1" --model -o "$T/model.safetensors"
    ok sample "$T/model.safetensors" --bytes 5
    sed 's/<unk>/<unq>/' "$T/model.safetensors" >"$T/lie.safetensors"
    refused 1 'damaged: its checksum' sample "$T/lie.safetensors"
    refused 1 'tokenizer: .*pieces.model: cannot be read' train "$T/pieces.lab" -o "$T/p0"
    mv "$T/elsewhere.model" "$T/pieces.model"
    refused 1 'vocab: 399 \(.* has 400 pieces: vocab = 400, or more\)' train "$T/pieces.lab" -o "$T/p0" --set vocab=399
    model prefix --add_dummy_prefix=true
    refused 1 'vim.txt: line 1: the pieces stand for another text' train "$T/pieces.lab" -o "$T/p0" --set "tokenizer=$T/prefix.model"
    model chars --byte_fallback=false
    refused 1 'none of its 400 pieces is a line feed' train "$T/pieces.lab" -o "$T/p0" --set "tokenizer=$T/chars.model"
    refused 1 'spm_export_vocab failed' train "$T/pieces.lab" -o "$T/p0" --set tokenizer=README.md
    printf 'a\n\342\226\201\n' >"$T/blank.txt"
    refused 1 'blank.txt: line 2: the pieces stand for another text' eval "$T/p1" --text "$T/blank.txt"
else
    echo 'not tested: word pieces, for which spm_train is missing (Debian: sentencepiece)'
fi

# ---------------------------------------------------------------------------------------------------- classifiers
# Three files in words of their own; a window of 16 has two words at least.
awk 'BEGIN {for (n = 0; n < 4000; n++) {x = (16807 * x + 12345) % 2147483647; printf "%s ", substr("red bluewhit", x % 3 * 4 + 1, 4)}}' >"$T/one.txt"
awk 'BEGIN {for (n = 0; n < 3000; n++) {x = (16807 * x + 12345) % 2147483647; printf "%s ", substr("saltoil herb", x % 3 * 4 + 1, 4)}}' >"$T/two.txt"
awk 'BEGIN {for (n = 0; n < 1000; n++) {x = (16807 * x + 12345) % 2147483647; printf "%s ", substr("leadiron tin", x % 3 * 4 + 1, 4)}}' >"$T/three.txt"
(
    grep -v '^text\|^position\|^dropout\|^eval_bytes' "$T/small.lab"
    printf '%s\n' 'task = classifier' 'classes = 3' 'position = t5,buckets=8,max_distance=16' 'eval_bytes = 20000' 'dropout = 0.1' \
        "text = $T/one.txt $T/three.txt $T/two.txt"
) | sed 's/^steps = .*/steps = 60/; s/^batch = .*/batch = 4/' >"$T/classes.lab"
ok train "$T/classes.lab" -o "$T/c1" --threads 1
ok train "$T/classes.lab" -o "$T/c2" --threads 2 --until 25
ok train "$T/classes.lab" -o "$T/c2" --threads 3 --resume
same "$T/c1/checkpoint.safetensors" "$T/c2/checkpoint.safetensors"
ok eval "$T/c1" --lengths 16,48 --bytes 20000 --json
# A guesser has a third of n windows; ten standard deviations more are never met by chance. All files have as many windows.
check 'it learns, and at another length' '2 2' "$(tr '{' '\n' <"$T/out" | sed -n 's/.*"length":\([0-9]*\).*"accuracy":\([0-9.]*\),"windows":\([0-9]*\),.*/\1 \2 \3/p' |
    awk '{right += $2 > 1 / 3 + 10 * sqrt(2 / 9 / $3); same += $3 == 3 * int(1000 / 48) * 48 / $1} END {print right, same}')"
check 'what its windows were taken for' 1 "$(sed 's/.*"accuracy":\([0-9.]*\),"windows":\([0-9]*\),"taken":\[\[\([0-9,]*\)\],\[\([0-9,]*\)\],\[\([0-9,]*\)\].*/\1,\2,\3,\4,\5/' \
    "$T/out" | awk -F, '{print $1 * $2 == $3 + $7 + $11 && $2 == $3 + $4 + $5 + $6 + $7 + $8 + $9 + $10 + $11 && $3 + $4 + $5 == $9 + $10 + $11}')"
valid=$(grep -oE '"valid_loss":[0-9.]*' "$T/c1/log.jsonl")
ok eval "$T/c1" --bytes 20000 --json
check 'the loss at the end of training' "${valid#*:}" "$(grep -oE '"loss":[0-9.]*' "$T/out" | sed 's/.*://')"
ok eval "$T/c1" --text "$T/two.txt $T/one.txt $T/three.txt"
check 'files that changed places are found out' 1 "$(awk '/^length/ {print $4 < 60}' "$T/out")"
check 'as what they are' '3 1 2' "$(awk '/taken for/ {m = 5; for (x = 6; x < 8; x++) if ($x > $m) m = x; printf sep m - 4; sep = " "}' "$T/out")"
ok export "$T/c1" --prompt 'red blue' -o "$T/x.safetensors"
check 'it sees all of a text' 0 "$(grep -c causal "$T/out")"
options=$(sed "s|OUT|$T/y.safetensors|; s|^relpos ||" "$T/out")
# shellcheck disable=SC2086
timeout 100 "$program" $options >"$T/out" 2>"$T/err"
for file in x y; do
    tail -c 512 "$T/$file.safetensors" >"$T/$file.tail" # 8 tokens of 2 heads of 8 channels of f32
done
same "$T/x.tail" "$T/y.tail"
refused 1 'is a classifier, which does not write' sample "$T/c1"
refused 1 'text: one file' train "$T/classes.lab" -o "$T/bad" --set "text = $T/one.txt"
refused 1 'classes: 3, and there are 2 files' train "$T/classes.lab" -o "$T/bad" --set "text = $T/one.txt $T/two.txt"
refused 1 'classes: 3, and there are 2 files' eval "$T/c1" --text "$T/one.txt $T/two.txt"
head -c 60 "$T/one.txt" >"$T/little.txt" # 48 to learn from, 12 held out
refused 1 'little.txt: 12 tokens to learn from or held out \(at least length, 16' train "$T/classes.lab" -o "$T/bad" \
    --set "text = $T/one.txt $T/two.txt $T/little.txt"
refused 1 '12 tokens of each file to measure on' eval "$T/c1" --text "$T/one.txt $T/two.txt $T/little.txt" --lengths 48 --bytes 36
(cat "$T/classes.lab" && echo 'vary.seed = 1 | 2') | sed 's/^steps = .*/steps = 3/' >"$T/sweep.lab"
ok sweep "$T/sweep.lab" -o "$T/classes.jsonl"
ok report "$T/classes.jsonl"
check 'a table of accuracies' 1 "$(grep -c '^| | accuracy at 16 |' "$T/out")"

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
