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

# A command that hangs is ended by the processor time it takes, or long before ctest ends all of this: not by the time that a busy
# machine takes.
ulimit -t 300
longest=1000

# lab ARGUMENT...: leaves $T/out, $T/err, $code
lab()
{
    command="relpos lab $*"
    timeout $longest env PATH="$path" "$program" lab "$@" >"$T/out" 2>"$T/err"
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

# number NAME FILE: of the JSON; near A B BOUND: 1 where they differ by at most BOUND of B
number()
{
    grep -oE "\"$1\":[-0-9.e+]*" "$2" | head -n 1 | sed 's/.*://'
}

near()
{
    awk -v a="$1" -v b="$2" -v bound="$3" 'BEGIN {d = a - b; print d * d <= bound * bound * b * b && b != 0}'
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

# a core of OpenBLAS that the user names is taken, and told where it is slower than the processor; the log has it too
note=$(grep -c '"blas_note"' "$T/run/log.jsonl")
check 'nothing is told of the core that is taken by itself' 0 "$note"
if grep -q '"blas":"OpenBLAS [^"]* ' "$T/run/log.jsonl" && "$program" info | grep -q 'avx2 yes'; then
    OPENBLAS_CORETYPE=Prescott lab train "$T/small.lab" -o "$T/core" --until 1
    check 'one line says so' '0 1 1' "$code $(wc -l <"$T/err") $(grep -cE '^relpos: lab: OpenBLAS runs its kernels for Prescott, and this processor could run those for (SkylakeX|Haswell) .OPENBLAS_CORETYPE is set: unset it.$' "$T/err")"
    check 'and the log' 1 "$(grep -c '"blas":"OpenBLAS [^"]* Prescott","blas_note":"OpenBLAS runs its kernels for Prescott' "$T/core/log.jsonl")"
fi

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
while kill -0 "$pid" 2>/dev/null && ! { [ -s "$T/long/log.jsonl" ] && [ "$(wc -l <"$T/long/log.jsonl")" -gt 3 ]; }; do
    sleep 0.1
done
kill -INT "$pid"
wait "$pid"
check 'exit code' 1 $?
check 'what it says' 'stopped at step' "$(grep -oE 'stopped at step' "$T/err")"
check 'its checkpoint' yes "$([ -s "$T/long/checkpoint.safetensors" ] && echo yes)"

refused 1 'holds a run already' train "$T/small.lab" -o "$T/run"
mkdir "$T/half" && cp "$T/run/checkpoint.safetensors" "$T/half/previous.safetensors"
refused 1 'holds a run already' train "$T/small.lab" -o "$T/half"

# one run at a time
command='relpos lab train, twice into one folder'
"$program" lab train "$T/small.lab" -o "$T/twice" --set steps=100000 --set warmup=10 --set log_every=1 2>"$T/err" >"$T/out" &
pid=$!
while kill -0 "$pid" 2>/dev/null && [ ! -s "$T/twice/log.jsonl" ]; do
    sleep 0.1
done
refused 1 'another run is writing there' train "$T/small.lab" -o "$T/twice"
refused 1 'another run is writing there' train "$T/small.lab" -o "$T/twice" --resume
kill -INT "$pid"
wait "$pid"

# folders above; another text of the same name; what is no file
ok train "$T/small.lab" -o "$T/a/b/c" --until 0
head -c 60000 lab/data/vim.txt >"$T/text.txt"
ok train "$T/small.lab" -o "$T/text" --set "text=$T/text.txt" --until 4
cp "$T/text.txt" "$T/text.before" && echo more >>"$T/text.txt"
refused 1 'text: it is another one than when the run was begun' train "$T/small.lab" -o "$T/text" --set "text=$T/text.txt" --resume
cp "$T/text.before" "$T/text.txt"
ok train "$T/small.lab" -o "$T/text" --set "text=$T/text.txt" --resume
mkfifo "$T/pipe"
refused 1 'pipe: no regular file' train "$T/small.lab" -o "$T/pipes" --set "text=$T/pipe"
refused 1 'tokenizer: .*pipe: no regular file' train "$T/small.lab" -o "$T/pipes" --set "tokenizer=$T/pipe" --set vocab=300
refused 2 'pipe: no regular file' sweep "$T/pipe" -o "$T/pipes.jsonl"

# what cannot be measured is said before the first step; a perplexity beyond all numbers is null, and the weights are kept
refused 1 '10 tokens to measure on, of 10 bytes at most, and the longest length is 16' train "$T/small.lab" -o "$T/little" --set eval_bytes=10
check 'no step was made' no "$([ -e "$T/little/log.jsonl" ] && echo yes || echo no)"
ok train "$T/small.lab" -o "$T/far" --set lr=5 --set lr_min=5 --set weight_decay=0 --set warmup=0 --set steps=300 --set dropout=0
check 'a perplexity without end' 1 "$(grep -c '"valid_loss":[0-9.]*,"valid_perplexity":null' "$T/far/log.jsonl")"
ok eval "$T/far" --bytes 400
check 'as text' 1 "$(grep -c 'perplexity     inf' "$T/out")"
refused 2 'seeds is for many runs' train "$T/small.lab" -o "$T/x" --set seeds=2
refused 1 'begun with "width = 16"' train "$T/small.lab" -o "$T/run" --resume --set width=32
refused 1 'cannot be opened' train "$T/small.lab" -o "$T/fresh" --resume

# a damaged checkpoint is named, and the one before is used
cp -r "$T/three" "$T/four"
printf 'X' | dd of="$T/four/checkpoint.safetensors" bs=1 seek=9000 conv=notrunc 2>"$T/dd"
lab train "$T/small.lab" -o "$T/four" --resume
check 'it goes on' 0 "$code"
check 'what it says' 'damaged: its checksum' "$(grep -oE 'damaged: its checksum' "$T/err")"
check 'it is kept, and takes no place of a good one' 1 "$(grep -c 'kept as damaged.safetensors' "$T/err")"
ok eval "$T/four/previous.safetensors"
refused 1 'damaged: its checksum' eval "$T/four/damaged.safetensors"
same "$T/run/checkpoint.safetensors" "$T/four/checkpoint.safetensors"
cp -r "$T/three" "$T/five"
head -c 700 "$T/three/checkpoint.safetensors" >"$T/five/checkpoint.safetensors"
cp "$T/five/checkpoint.safetensors" "$T/five/previous.safetensors"
refused 1 'checkpoint.safetensors' train "$T/small.lab" -o "$T/five" --resume

# a checkpoint that cannot be read may be whole: no older weights in its place
for kind in loop folder memory; do
    cp -r "$T/three" "$T/$kind" && rm "$T/$kind/checkpoint.safetensors"
    case $kind in
    loop) ln -s checkpoint.safetensors "$T/$kind/checkpoint.safetensors" && why='cannot be opened: Too many levels' ;;
    folder) mkdir "$T/$kind/checkpoint.safetensors" && why='it is a directory' ;;
    memory) ln -s /proc/self/mem "$T/$kind/checkpoint.safetensors" && why='cannot be read: Input/output error' ;;
    esac
    for word in eval sample inspect; do
        refused 1 "$kind/checkpoint.safetensors: $why" $word "$T/$kind"
    done
    refused 1 "$kind/checkpoint.safetensors: $why" train "$T/small.lab" -o "$T/$kind" --resume
    refused 1 'holds a run already' train "$T/small.lab" -o "$T/$kind"
    same "$T/three/previous.safetensors" "$T/$kind/previous.safetensors"
done
cp -r "$T/three" "$T/absent" && rm "$T/absent/checkpoint.safetensors"
lab eval "$T/absent" # one that is not there has one before it
check 'the one before is used' '0 1' "$code $(grep -c 'cannot be opened: No such file.*the one before it is used' "$T/err")"
cp -r "$T/three" "$T/log" 
ln -sf log.jsonl "$T/log/log.jsonl"
refused 1 'log.jsonl: cannot be read: Too many levels' train "$T/small.lab" -o "$T/log" --resume

# a full disk, for which a limit on the size of files stands: what was there stays
ok train "$T/small.lab" -o "$T/six" --until 8
cp "$T/six/checkpoint.safetensors" "$T/six.before"
command='relpos lab train, with files of 8 KiB at most'
(ulimit -f 16 && timeout $longest "$program" lab train "$T/small.lab" -o "$T/six" --resume) >"$T/out" 2>"$T/err"
check 'exit code' 1 $?
check 'what it says' 'cannot be written' "$(grep -oE 'cannot be written' "$T/err")"
same "$T/six.before" "$T/six/checkpoint.safetensors"
check 'nothing is left over' 'checkpoint.safetensors log.jsonl' "$(cd "$T/six" && echo *)"

# a loss that is no number stops the run
refused 1 'step [0-9]+: the (loss|norm of the gradients) is .*(checkpoint of step 4 is kept|there is no checkpoint yet)' \
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
timeout $longest "$program" $options >"$T/out" 2>"$T/err"
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

# inspect: weights of all pairs sum to one for each query; what ALiBi adds is its slope times the distance, the same for all
# pairs; nothing adds nothing; and the mean weights are those that attend finds on its own path
numbers() # numbers FILE HEAD KEY: of the first layer, one to a line
{
    sed 's/.*"layers":\[\[//' "$1" | tr '{' '\n' | sed -n "$(($2 + 2))p" | sed "s/.*\"$3\":\[\([^]]*\).*/\1/" | tr ',' '\n'
}
ok train "$T/small.lab" -o "$T/alibi" --set position=alibi --set steps=3
ok inspect "$T/alibi" --bytes 32 --json
cp "$T/out" "$T/inspect.json"
check 'each query has a weight of one' 1 "$(numbers "$T/inspect.json" 1 weight |
    awk '{ sum += $1 * (16 - n++) / 16 } END { print(n == 16 && (sum - 1) ^ 2 < 1e-12) }')"
check 'the slopes of two heads, 1/16 and 1/256' 1 "$({ numbers "$T/inspect.json" 0 position; numbers "$T/inspect.json" 1 position; } |
    awk '{ n++; want = n <= 16 ? -(n - 1) / 16 : -(n - 17) / 256; if (($1 - want) ^ 2 > 1e-20) wrong = 1 } END { print(n == 32 && !wrong) }')"
check 'which all pairs have' 1 "$(numbers "$T/inspect.json" 0 spread | awk '{ if ($1 > 1e-6) wrong = 1 } END { print(NR == 16 && !wrong) }')"
ok train "$T/small.lab" -o "$T/plain" --set position=none --set steps=3
ok inspect "$T/plain" --bytes 16
check 'two heads, no share' 2 "$(grep -cE '^    0    [01]         0.0 ' "$T/out")"
printf 'In a larger sense we have no way' >"$T/some.txt"
ok inspect "$T/run" --text "$T/some.txt" --length 32 --json
numbers "$T/out" 1 weight >"$T/mean.lab"
ok export "$T/run" --prompt 'In a larger sense we have no way' -o "$T/some.safetensors"
sed "s|OUT|$T/profile.safetensors --summary|; s|^relpos ||" "$T/out" >"$T/options"
# shellcheck disable=SC2046
timeout $longest "$program" $(cat "$T/options") >"$T/out" 2>"$T/err"
check 'mean weights as attend finds them: the largest difference is below 32 roundings' 1 "$(python3 - "$T/profile.safetensors" "$T/mean.lab" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
at = json.loads(data[8:8 + size])["profile"]
a, b = (8 + size + x for x in at["data_offsets"])
kind = {"F32": "f", "F64": "d"}[at["dtype"]]
profile = struct.unpack(f"<{(b - a) // struct.calcsize(kind)}{kind}", data[a:b])
mine = [float(x) for x in open(sys.argv[2])]
theirs = profile[63:126][31::-1]
print(int(len(mine) == 32 and max(abs(x - y) for x, y in zip(mine, theirs)) < 32 * 2**-24))
END
)"
refused 1 'text: 32 bytes, and the length is 33' inspect "$T/run" --text "$T/some.txt" --length 33
refused 2 'no run' inspect

# the weights in half the bytes: the same model to three digits, and the same file when it is written again
ok eval "$T/run" --json
perplexity=$(number perplexity "$T/out")
for type in f16 bf16; do
    ok export "$T/run" --model --dtype "$type" -o "$T/$type.safetensors"
    check "$type: about half of f32" 1 "$(($(wc -c <"$T/$type.safetensors") * 5 < $(wc -c <"$T/model.safetensors") * 3))"
    ok eval "$T/$type.safetensors" --json
    check "$type: its perplexity" 1 "$(near "$(number perplexity "$T/out")" "$perplexity" 5e-3)"
    ok export "$T/$type.safetensors" --model --dtype "$type" -o "$T/again.safetensors"
    same "$T/$type.safetensors" "$T/again.safetensors"
    cp "$T/$type.safetensors" "$T/lie.safetensors"
    printf 'X' | dd of="$T/lie.safetensors" bs=1 seek=9000 conv=notrunc 2>"$T/dd"
    refused 1 'damaged: its checksum' sample "$T/lie.safetensors"
    mkdir "$T/resumed.$type" && cp "$T/$type.safetensors" "$T/resumed.$type/checkpoint.safetensors"
    refused 1 'no averages of the optimizer' train "$T/small.lab" -o "$T/resumed.$type" --resume
done
refused 2 'layer: not with --model' export "$T/run" --model --layer 0 -o "$T/x.safetensors"
refused 2 'dtype: only with --model' export "$T/run" --prompt 'We are met' --dtype f16 -o "$T/x.npz"
refused 2 'dtype: f64 .f32, f16 or bf16' export "$T/run" --model --dtype f64 -o "$T/x.safetensors"
refused 2 'dtype: "f8" is no type' export "$T/run" --model --dtype f8 -o "$T/x.safetensors"

# ---------------------------------------------------------------------------------------------------- the model that ships
model=lab/model/vim.safetensors
card=$(sed -n 's/^| 4,096 bytes | \([0-9.]*\) |.*/\1/p' lab/model/README.md)
ok eval $model --bytes 4096 --json
check 'its perplexity is that of its card' 1 "$(near "$(number perplexity "$T/out")" "$card" 5e-4)"
cp $model "$T/lie.safetensors"
printf 'XY' | dd of="$T/lie.safetensors" bs=1 seek=900000 conv=notrunc 2>"$T/dd"
refused 1 'damaged: its checksum' eval "$T/lie.safetensors" --bytes 4096

# What explain shows of it is what relpos attend computes from its q, k and the table, summed by word.
text='the cursor is moved to the next line of the text'
explain()
{
    command="relpos explain $*"
    timeout $longest "$program" explain "$@" >"$T/out" 2>"$T/err"
    code=$?
    check 'it succeeds in silence' '0 ' "$code $(head -n 3 "$T/err")"
}
array() # array NAME FILE: of the JSON, a number a line
{
    grep -oE "\"$1\": \[[^]]*" "$2" | head -n 1 | sed 's/.*\[//' | tr -d ' ' | tr ',' '\n'
}
ok export $model --prompt "$text" --layer 1 -o "$T/x.safetensors"
options=$(sed "s|OUT|$T/y.safetensors --weights|; s|^relpos ||" "$T/out")
# shellcheck disable=SC2086
"$program" $options >"$T/out" 2>"$T/err" || check 'attend' '' "$(cat "$T/err")"
start=$(grep -aoE '"weights":[^}]*"data_offsets":\[[0-9]+' "$T/y.safetensors" | sed 's/.*\[//')
start=$(($(od -A n -t u8 -N 8 "$T/y.safetensors") + 8 + ${start:-0}))
explain --model $model --text "$text" --layer 1 --head 2 --word 7 --json
cp "$T/out" "$T/head.json"
grep -oE '"from": [0-9]+, "to": [0-9]+, "content": [^,]*, "position": [^,]*, "weight": [^}]*' "$T/head.json" |
    sed 's/"[a-z]*": //g; s/,//g' >"$T/words"
n=${#text}
od -A n -v -t f4 -w4 -j $((start + 4 * n * n * 2)) -N $((4 * n * n)) "$T/y.safetensors" >"$T/weights"
check 'the words up to the query' '8 0 3' "$(wc -l <"$T/words") $(head -n 1 "$T/words" | cut -d ' ' -f 1,2)"
for name in weights weights_plain bias scaled; do
    array $name "$T/head.json" >"$T/$name.json"
done
# shellcheck disable=SC2016 # of awk
check 'weights of words, sums and products' 'ok' "$(awk -v n="$n" '
    function off(a, b) {return a > b ? a - b : b - a}
    BEGIN {words = 0}
    FILENAME ~ /words$/ {from[words] = $1; to[words] = $2; content[words] = $3; position[words] = $4; both[words++] = $5; i = $2 - 1}
    FILENAME ~ /weights$/ {w[x++] = $1}
    FILENAME ~ /weights.json$/ {true[a++] = $1}
    FILENAME ~ /weights_plain.json$/ {plain[b++] = $1}
    FILENAME ~ /bias.json$/ {bias[c++] = $1}
    FILENAME ~ /scaled.json$/ {scaled[d++] = $1}
    END {
        for (j = 0; j <= i; j++) {both_sum += plain[j] * exp(bias[j]); bias_sum += exp(bias[j])}
        for (j = 0; j <= i; j++) worst = off(plain[j] * exp(bias[j]) / both_sum, true[j]) > worst ? off(plain[j] * exp(bias[j]) / both_sum, true[j]) : worst
        if (worst > 1e-12) print "weights of bytes are no products: " worst
        for (k = 0; k < words; k++) {
            s = 0; p = 0; q = 0
            for (j = from[k]; j < to[k]; j++) {s += w[i * n + j]; p += exp(bias[j]) / bias_sum; q += plain[j]}
            if (off(s, both[k]) > 5e-5) print "word " k ": " both[k] ", and by attend " s
            if (off(p, position[k]) > 1e-12) print "word " k ": position " position[k] ", and by its biases " p
            if (off(q, content[k]) > 1e-12) print "word " k ": content " content[k] ", and by its bytes " q
            all += both[k]; all_p += position[k]; all_c += content[k]
        }
        if (off(all, 1) > 1e-12 || off(all_p, 1) > 1e-12 || off(all_c, 1) > 1e-12) print "sums: " all " " all_p " " all_c
        for (j = 0; j <= i; j++) {mean_b += bias[j] / (i + 1); mean_s += scaled[j] / (i + 1)}
        for (j = 0; j <= i; j++) {var_b += (bias[j] - mean_b) ^ 2 / (i + 1); var_s += (scaled[j] - mean_s) ^ 2 / (i + 1)}
        printf "%.9f %.9f\n", var_s, var_b >SPREAD
        print "ok"
    }' SPREAD="$T/spread" "$T/words" "$T/weights" "$T/weights.json" "$T/weights_plain.json" "$T/bias.json" "$T/scaled.json")"
check 'spread' "$(cat "$T/spread")" "$(grep -oE '"spread": [^}]*' "$T/head.json" | sed 's/[^0-9. ]//g' | awk '{printf "%.9f %.9f", $1, $2}')"

# The table of the heads: the mean distance from the weights of attend, and one head's part of position.
explain --model $model --text "$text" --word 7 --json
check 'all heads' 16 "$(grep -oE '"layer"' "$T/out" | wc -l)"
grep -oE '"layer": 1, "head": 2, [^}]*' "$T/out" | sed 's/"[a-z_]*": //g; s/,//g' >"$T/row"
check 'distance, own word, word before' 'ok' "$(awk -v n="$n" -v text="$text" '
    function off(a, b) {return a > b ? a - b : b - a}
    NR == FNR {distance = $3; own = $5; before = $6; next}
    {w[x++] = $1}
    END {
        for (i = 0; i < n; i++) {
            if (i == 0 || substr(text, i + 1, 1) == " ") {last = first; first = i}
            for (j = 0; j <= i; j++) {
                y = w[i * n + j] / n
                d += y * (i - j)
                if (j >= first) o += y
                else if (j >= last) b += y
            }
        }
        good = (off(d, distance) < 5e-5 && off(o, own) < 5e-5 && off(b, before) < 5e-5)
        print good ? "ok" : d " " distance " " o " " own " " b " " before
    }' "$T/row" "$T/weights")"
check 'the heaviest word' "$(sort -k 5 -g -r "$T/words" | head -n 1 | cut -d ' ' -f 5)" "$(cut -d ' ' -f 8 "$T/row")"
grep -oE '"distance": [^,]*, "position": [^,]*' "$T/out" | sed 's/"[a-z]*": //g; s/,//g' >"$T/heads"
printf '%s' "$text" >"$T/text.txt"
ok inspect $model --text "$T/text.txt" --length "$n" --json
check 'part of position and distance, as inspect finds them' '16 0' "$(grep -oE '"share":[^,]*,"distance":[^,]*' "$T/out" |
    sed 's/"[a-z]*"://g; s/,/ /' | paste -d ' ' "$T/heads" - |
    awk '{if (($1 - $4) ^ 2 > 1e-18 || ($2 - $3) ^ 2 > 1e-18) wrong++} END {print NR, wrong + 0}')"

# as text; blanks around words; a picture
explain --model $model --text "$text"
check 'a table of 16 heads in 80 columns' '16 0' "$(grep -cE '^ +[0-3] +[0-3] .* %' "$T/out") $(grep -cE '.{81}' "$T/out")"
explain --model $model --text "$text" --head 2 --layer 1 --word 7
check '80 columns' 0 "$(grep -cE '.{81}' "$T/out")"
explain --model $model --text ' one  two ' --head 0 --json
check 'blanks belong to the word behind them' '0 4 4 9 9 10' "$(grep -oE '"from": [0-9]+, "to": [0-9]+, "content"' "$T/out" | tr -d -c '0-9 \n' | awk '{printf "%s%s %s", (NR > 1) ? " " : "", $1, $2}')"
explain --model $model --text 'a b c d e f g h i j k l m n' --head 0 --brief
check 'twelve words' 12 "$(grep -cE '^ +[0-9]+  [a-n] ' "$T/out")"
explain --model $model --text 'a b c d e f g h i j k l m n' --head 0 --brief --all
check 'all words' 14 "$(grep -cE '^ +[0-9]+  [a-n] ' "$T/out")"
explain --model $model --text "$text" --head 0 --brief -o "$T/head.svg"
check 'a picture' yes "$(grep -q 'Attention weights of layer 0, head 0: t5' "$T/head.svg" && echo yes)"

# where terms are no biases: rope turns the products, and position cannot be told from content; vectors for keys add to them
explain --model "$T/run" --text 'We are met' --head 1 --json
check 'rope' '"position": null "content": null' "$(grep -oE '"to": 10, "content": [^,]*, "position": [^,]*|"spread": ..content": null' "$T/out" |
    grep -oE '"(position|content)": null' | tr '\n' ' ' | sed 's/ $//')"
explain --model "$T/run" --text 'We are met' --head 1
check 'rope, as text' 1 "$(grep -c 'unturned: the weights without it' "$T/out")"
explain --model "$T/learned" --text 'We are met' --head 1
check 'positions that are added' 1 "$(grep -c '^The model adds positions to what it reads' "$T/out")"
for position in relkey,left=4,right=0+relval,left=4,right=0 xl none sink+alibi; do
    ok train "$T/small.lab" -o "$T/at.$position" --set position=$position --set steps=3
    explain --model "$T/at.$position" --text 'We are met' --head 1 --json
    grep -oE '"content": [^,]*, "position": [^,]*, "weight": [^}]*' "$T/out" | sed 's/"[a-z]*": //g; s/,//g' >"$T/words"
    check 'sums; a sink takes some' "1.000000 1.000000 $([ "$position" = sink+alibi ] && echo less || echo whole)" \
        "$(awk '{c += $1; p += $2; w += $3} END {printf "%.6f %.6f %s", c, p, (w < 0.9999999) ? "less" : (w < 1.0000001) ? "whole" : w}' "$T/words")"
    explain --model "$T/at.$position" --text 'We are met'
done

# refusals
bad() # bad CODE PATTERN ARGUMENT...
{
    want=$1 pattern=$2
    shift 2
    command="relpos explain $*"
    timeout $longest "$program" explain "$@" >"$T/out" 2>"$T/err"
    check 'exit code, and lines on standard error' "$want 1" "$? $(wc -l <"$T/err")"
    check 'what it says' "$pattern" "$(if grep -qE -e "$pattern" "$T/err"; then printf '%s' "$pattern"; else cat "$T/err"; fi)"
}
bad 2 'a model reads a text .--text' --model $model
bad 2 'a model reads a text .--text' --model $model --text ''
bad 2 '^relpos: --text: 1025 bytes .at most 1024: a shorter text' --model $model --text "$(printf '%1025d' 1)"
bad 2 '^relpos: --word: 2 is out of range .0 to 1' --model $model --text 'one two' --word 2
bad 2 '^relpos: --layer: 4 is out of range .0 to 3' --model $model --text 'one two' --layer 4
bad 2 '^relpos: --head: 4 is out of range .0 to 3' --model $model --text 'one two' --head 4
bad 2 '^relpos: --word: "x"' --model $model --text 'one two' --word x
bad 1 'nothing.safetensors: .*cannot be opened' --model "$T/nothing.safetensors" --text 'one two'
bad 1 'no model of relpos lab: its metadata lacks relpos.lab .relpos lab train' --model "$T/x.safetensors" --text 'one two'
bad 1 'learned ones end at 16, and the length is 17 .*shorter text' --model "$T/learned" --text '12345678 12345678'
bad 2 'a model has its own terms' --model $model --text 'one two' --bias alibi
bad 2 'a model has its own terms' --model $model --text 'one two' --no-bias
bad 2 'a model has its own terms' --model $model --text 'one two' --causal
bad 2 'word says who attends' --model $model --text 'one two' --query 1
bad 2 'leave the sentence out' --model $model --text 'one two' three
bad 2 'leave --input out' --model $model --text 'one two' --input "$T/x.safetensors"
bad 2 'are of a model' --text 'one two'
bad 2 'are of a model' --layer 1
bad 2 'is of one head' --model $model --text 'one two' -o "$T/all.svg"
bad 2 'is of one head' --model $model --text 'one two' --brief
RELPOS_BLAS=/nothing.so bad 1 'install Debian.s libopenblas0' --model $model --text 'one two'

# a file that lies about itself; nothing is made that it could not hold
sed 's/width = 16/width = 96/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'damaged: [0-9]+ bytes of arrays cannot be a model of' sample "$T/lie.safetensors"
sed 's/vocab = 256/vocab = 255/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'embedding.weight. has another shape' sample "$T/lie.safetensors"
sed 's/heads = 2/heads = 4/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'has another shape' sample "$T/lie.safetensors"
sed 's/seed = 1/seed = 2/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'damaged: its checksum' sample "$T/lie.safetensors"
size=$(($(wc -c <"$T/model.safetensors") - 4))
(head -c "$size" "$T/model.safetensors" && printf '\377\377\377\177') >"$T/lie.safetensors"
refused 1 'has -*nan at [0-9]+ .weights are finite' sample "$T/lie.safetensors"
# one letter of a type, and there is no data: whatever reads the array says so, and a run goes on from the checkpoint before
sed 's/"embedding.weight":{"dtype":"F32"/"embedding.weight":{"dtype":"G32"/' "$T/model.safetensors" >"$T/lie.safetensors"
no_type='lie.safetensors: array "embedding.weight": it has the dtype .G32. .save it as F32'
refused 1 "$no_type" eval "$T/lie.safetensors"
refused 1 "$no_type" sample "$T/lie.safetensors"
refused 1 "$no_type" inspect "$T/lie.safetensors"
refused 1 "$no_type" export "$T/lie.safetensors" --model -o "$T/nothing.safetensors"
refused 1 "$no_type" export "$T/lie.safetensors" --prompt 'We are' -o "$T/nothing.safetensors"
bad 1 "$no_type" --model "$T/lie.safetensors" --text 'one two'
cp -r "$T/three" "$T/no_type"
sed -i 's/"optimizer.v.norm.weight":{"dtype":"F32"/"optimizer.v.norm.weight":{"dtype":"G32"/' "$T/no_type/checkpoint.safetensors"
lab train "$T/small.lab" -o "$T/no_type" --resume
check 'the one before is used' '0 1' "$code $(grep -cE 'has the dtype .G32. .*the one before it is used, of step [0-9]+, and it is kept as damaged.safetensors' "$T/err")"
same "$T/run/checkpoint.safetensors" "$T/no_type/checkpoint.safetensors"
for name in q k v; do # and in an exported layer
    sed "s/\"$name\":{\"dtype\":\"F32\"/\"$name\":{\"dtype\":\"G32\"/" "$T/x.safetensors" >"$T/odd.safetensors"
    bad 1 "^relpos: array \"$name\": it has the dtype .G32. .save it as F32.*type.\$" --input "$T/odd.safetensors"
    command="relpos attend, $name of type G32"
    timeout $longest "$program" attend "$T/odd.safetensors" -o "$T/nothing.safetensors" >"$T/out" 2>"$T/err"
    check 'it is refused' "1 1" "$? $(grep -c "array \"$name\": it has the dtype 'G32'" "$T/err")"
done
check 'nothing was written' no "$([ -e "$T/nothing.safetensors" ] && echo yes || echo no)"

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
timeout $longest "$program" $options >"$T/out" 2>"$T/err"
for file in x y; do
    tail -c 512 "$T/$file.safetensors" >"$T/$file.tail" # 8 tokens of 2 heads of 8 channels of f32
done
same "$T/x.tail" "$T/y.tail"
refused 1 'is a classifier, which does not write' sample "$T/c1"
refused 1 'no decoder of bytes' inspect "$T/c1"
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
sed 's/"accuracy":[0-9.]*/"accuracy":null/' "$T/classes.jsonl" >"$T/ends.jsonl" # as where learned positions end
ok report "$T/ends.jsonl"
check 'no accuracy' 1 "$(grep -c '^| all | none | ' "$T/out")"
ok report "$T/classes.jsonl"
check 'a table of accuracies' 1 "$(grep -c '^|  | accuracy at 16 |' "$T/out")"

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
cp "$T/results.jsonl" "$T/before.jsonl"
ok sweep "$T/sweep.lab" -o "$T/results.jsonl" # nothing is left to do
same "$T/before.jsonl" "$T/results.jsonl"
printf '{"experiment":"lay' >>"$T/results.jsonl" # a line that was not ended
ok sweep "$T/sweep.lab" -o "$T/results.jsonl"
same "$T/before.jsonl" "$T/results.jsonl"
for text in '{"a": 1}' 'plain text'; do
    printf '%s' "$text" >"$T/not.jsonl"
    refused 1 'not.jsonl: its last line is no result' sweep "$T/sweep.lab" -o "$T/not.jsonl"
    echo >>"$T/not.jsonl"
    refused 1 'not.jsonl:1: no result' sweep "$T/sweep.lab" -o "$T/not.jsonl"
    check 'it stays' "$text" "$(cat "$T/not.jsonl")"
done
ok sweep "$T/sweep.lab" -o "$T/new/folder/same.jsonl" --set 'vary.position_layers=own | own' --set seeds=1
check 'the same experiment once' 1 "$(wc -l <"$T/new/folder/same.jsonl")"
refused 1 'the longest length is 99999' sweep "$T/sweep.lab" -o "$T/long.jsonl" --set eval_lengths=99999
refused 1 'a sweep measures on what is held out' sweep "$T/sweep.lab" -o "$T/long.jsonl" --set valid_share=0
refused 1 'keep: .*README.md: cannot be made: Not a directory' sweep "$T/sweep.lab" -o "$T/long.jsonl" --keep README.md
check 'before any training' no "$([ -e "$T/long.jsonl" ] && echo yes || echo no)"
ok report "$T/results.jsonl"
check 'a row' 1 "$(grep -cE '^\| position_layers = shared \| [0-9.]+ \([0-9.]+ to [0-9.]+\) \|.* [0-9]+ \|$' "$T/out")"
check 'the rise' 1 "$(grep -cE '^\| position_layers = own \| [-+][0-9.]+ % \|$' "$T/out")"
sed 's/"length":16/"length":128/; s/{"from":0,"to":16,/{"from":0,"to":64,"perplexity":9},{"from":64,"to":128,/' "$T/results.jsonl" \
    >"$T/long.jsonl"
ok report "$T/long.jsonl"
check 'no word of a picture that is not there' 0 "$(grep -c '^By position' "$T/out")"
# 2 and 4, 6 and 4 are a rise of 3 to 5, not the mean of those of each start
sed 's/"length":16,\(.*\)"perplexity":[0-9.]*,"bits\(.*\)"perplexity":[0-9.]*,"bits/"length":16,\1"perplexity":2,"bits\2"perplexity":6,"bits/' "$T/results.jsonl" |
    awk '/"seed":2/ {gsub(/"perplexity":[26],/, "\"perplexity\":4,")} {print}' >"$T/rise.jsonl"
ok report "$T/rise.jsonl"
check 'the rise is that of the means' 1 "$(grep -c '^| position_layers = own | +66.7 % |' "$T/out")"
refused 1 'nothing.jsonl: cannot be read' report "$T/nothing.jsonl"
refused 1 'small.lab:1: no result' report "$T/small.lab"
refused 1 'x.pdf: neither .html nor .md' report "$T/results.jsonl" -o "$T/x.pdf"

# positions that were trained at one learning rate each are not ranked, and the page says so before anything else
mkdir "$T/rates"
sed 's/\\nposition = [^\\]*/\\nposition = alibi/' "$T/results.jsonl" | cat "$T/results.jsonl" - >"$T/rates/length.jsonl"
sed 's/\\nlr = [^\\]*/\\nlr = 0.5/' "$T/rates/length.jsonl" >"$T/rates/rate.jsonl"
ok report "$T/rates/length.jsonl"
check 'one learning rate' 1 "$(sed 1q "$T/out" | grep -c '^> Preliminary: one learning rate for all, undertrained\..* do not rank positions\.$')"
ok report "$T/rates/length.jsonl" "$T/rates/rate.jsonl"
check 'and what another one does' 1 "$(sed 1q "$T/out" | grep -cE "Another rate .* with a rate of [0-9.]+, .* alibi [0-9.]+; with a rate of 0.5, .* alibi [0-9.]+ ")"
cat "$T/rates/length.jsonl" "$T/rates/rate.jsonl" >"$T/rates/both.jsonl"
ok report "$T/rates/both.jsonl"
check 'several rates for each' 1 "$(sed 1q "$T/out" | grep -c '^> Preliminary: few learning rates for each, undertrained\.')"
sed 's/\\nposition = [^\\]*/\\nposition = alibi/; s/\\nlr = [^\\]*/\\nlr = 0.5/' "$T/results.jsonl" | cat "$T/results.jsonl" - >"$T/rates/each.jsonl"
ok report "$T/rates/each.jsonl"
check 'a rate for each' 1 "$(sed 1q "$T/out" | grep -c '^> Preliminary: one learning rate for each, undertrained\.')"
ok report "$T/results.jsonl"
check 'one position' 0 "$(grep -c Preliminary "$T/out")"

# damaged PATTERN NAME SED-EXPRESSION FROM: a file of results, the second line of which is not as it was
damaged()
{
    mkdir -p "$T/damaged"
    sed "2$3" "$4" >"$T/damaged/$2.jsonl"
    refused 1 "damaged/$2.jsonl:2: no result of .*: $1 \(" report "$T/results.jsonl" "$T/damaged/$2.jsonl"
    check 'nothing is printed' 0 "$(wc -c <"$T/out")"
}
damaged 'not JSON' sweep 's/.....$//' "$T/results.jsonl"
damaged 'the line is 5, not an object' sweep 's/.*/5/' "$T/results.jsonl"
damaged 'experiment is missing' sweep 's/"experiment"/"x"/' "$T/results.jsonl"
damaged 'experiment is ".*\.\.\., not an experiment' sweep 's/seed = /sead = /' "$T/results.jsonl"
damaged 'vary is missing' sweep 's/"vary"/"x"/' "$T/results.jsonl"
damaged 'vary is 3, not an object of texts' sweep 's/"vary":{[^}]*}/"vary":3/' "$T/results.jsonl"
damaged 'lengths is \[\], not a list with something in it' sweep 's/"lengths":.*,"weights"/"lengths":[],"weights"/' "$T/results.jsonl"
damaged 'lengths is 5, not a list with something in it' sweep 's/"lengths":.*,"weights"/"lengths":5,"weights"/' "$T/results.jsonl"
damaged 'lengths\[1\].perplexity is missing' sweep 's/"perplexity"\(:[^,]*,"bits\)/"x"\1/2' "$T/results.jsonl"
damaged 'lengths\[0\].perplexity is 0, not a number above 0' sweep 's/"perplexity":[0-9.e+]*/"perplexity":0/' "$T/results.jsonl"
damaged 'position_weights is "many", not a whole number' sweep 's/"position_weights":[0-9]*/"position_weights":"many"/' "$T/results.jsonl"
damaged 'weights is NaN, not a whole number above 0' sweep 's/"weights":[0-9]*/"weights":NaN/' "$T/results.jsonl"
damaged 'machine.isa is missing' sweep 's/"isa"/"x"/' "$T/results.jsonl"
damaged 'trained is missing' inspect 's/.*/{"inspect":"t5"}/' lab/results/inspect.jsonl
damaged 'layers\[0\]\[0\].position is \[1\], not a list of 72' inspect 's/"position":[^]]*]/"position":[1]/' lab/results/inspect.jsonl
damaged 'batch is missing' oracle 's/.*/{"oracle":"t5"}/' lab/results/oracle.jsonl
damaged 'torch_ms is \[1.5\], not a list of 3' oracle 's/"torch_ms": [^]]*]/"torch_ms":[1.5]/' lab/results/oracle.jsonl
cat "$T/results.jsonl" "$T/classes.jsonl" >"$T/mixed.jsonl"
refused 1 'mixed.jsonl:5: task is classifier, and that of line 1 decoder' report "$T/mixed.jsonl"
sed '2s/"length":32/"length":64/' "$T/results.jsonl" >"$T/mixed.jsonl"
refused 1 'mixed.jsonl:2: eval_lengths are 16, 64, and those of line 1 16, 32' report "$T/mixed.jsonl"
sed '2s/"to":16/"to":15/' "$T/results.jsonl" >"$T/mixed.jsonl"
refused 1 'mixed.jsonl:2: positions of length 16 are not those' report "$T/mixed.jsonl"

# starts of one experiment, and of one alone
ok report "$T/results.jsonl"
cp "$T/out" "$T/table"
cat "$T/results.jsonl" "$T/results.jsonl" >"$T/mixed.jsonl"
ok report "$T/mixed.jsonl"
same "$T/out" "$T/table" # each counts once
sed '2s/"train_loss":[0-9.]*/"train_loss":1.5/' "$T/results.jsonl" | cat "$T/results.jsonl" - >"$T/mixed.jsonl"
refused 1 'mixed.jsonl:6: the same experiment and seed as line 2, and another train_loss' report "$T/mixed.jsonl"
sed 's/steps = 3/steps = 4/' "$T/results.jsonl" | cat "$T/results.jsonl" - >"$T/mixed.jsonl"
ok report "$T/mixed.jsonl"
check 'other steps are a row of their own' '2 2' "$(grep -c '^| position_layers = shared, steps = 3 |' "$T/out") $(grep -c '^| position_layers = shared, steps = 4 |' "$T/out")"
check 'of two starts' 1 "$(grep -c '^Means over 2 starts' "$T/out")"
ok report "$T/classes.jsonl"
check 'seeds that vary are starts' '1 1' "$(grep -c '^Means over 2 starts' "$T/out") $(grep -c '^| all |' "$T/out")"
for position in t5 t5,bidirectional=0; do
    sed "s/position = [^\\\\]*/position = $position/; s/\"vary\":{[^}]*}/\"vary\":{\"position\":\"$position\"}/" "$T/results.jsonl" | head -n 1
done >"$T/mixed.jsonl"
ok report "$T/mixed.jsonl"
check 'two that are short for one name' '1 1' "$(grep -c '^| t5 | [0-9.]* |' "$T/out") $(grep -c '^| t5,bidirectional=0 | [0-9.]* |' "$T/out")"

cp "$T/results.jsonl" "$T/overhead.jsonl"
refused 1 'overhead.jsonl:1: no result without positions at length 16' report "$T/overhead.jsonl"
sed 's/position = [^\]*/position = none/; s/"vary":{[^}]*}/"vary":{"position":"none"}/' "$T/results.jsonl" | grep 'layers = own' >"$T/overhead.jsonl"
mkdir "$T/cells"
ok report "$T/overhead.jsonl" # with the length from the experiment
check 'the cost of nothing' 1 "$(grep -cE '^\| none \| [0-9.]+ ms \|' "$T/out")"
check 'its starts' 1 "$(grep -c 'There are 2 starts of each\. Without' "$T/out")"
(
    cat "$T/overhead.jsonl"
    sed 's/position = none/position = alibi/; s/"position":"none"/"position":"alibi"/' "$T/overhead.jsonl" | head -n 1
    sed 's/length = 16/length = 32/' "$T/overhead.jsonl" | tail -n 1
) >"$T/cells/overhead.jsonl"
ok report "$T/cells/overhead.jsonl"
check 'starts of cells that differ' '1 1 1' "$(grep -c 'There are 2 starts at 16, 1 start at 32 but where' "$T/out") $(grep -c 'ms, measured once, at 32' "$T/out") $(
    grep -cE '^\| alibi \| [-+0-9.]+ %, 1 start \|  \|' "$T/out")"
head -n 3 "$T/results.jsonl" >"$T/part.jsonl"
ok report "$T/part.jsonl"
check 'a column of starts where they differ' '1 1' "$(grep -c '^| *| starts |' "$T/out") $(grep -c '^| position_layers = shared | 1 |' "$T/out")"
if [ -w /dev/full ]; then
    timeout $longest "$program" lab report "$T/results.jsonl" >/dev/full 2>"$T/err"
    check 'a full disk' '1 relpos: standard output: No space left on device (free some space, or write elsewhere)' "$? $(cat "$T/err")"
fi
# no file but the page and its pictures is written, whatever lies beside them; and they are as others may read them
mkdir "$T/links"
echo kept >"$T/links/kept"
for name in page.md.new page-1.svg.new page.md page-1.svg; do
    ln -s kept "$T/links/$name"
done
command='write of lab/report.py'
(umask 027 && python3 -B -c 'import pathlib, sys; sys.path.insert(0, "lab"); import report
report.write({pathlib.Path(sys.argv[1], name): name for name in ("page.md", "page-1.svg")})' "$T/links")
check 'what links point to stays' kept "$(cat "$T/links/kept")"
check 'what was there, the page and its picture' 'kept page-1.svg page-1.svg.new page.md page.md.new ' "$(ls -A "$T/links" | tr '\n' ' ')"
check 'modes by the umask' '640 640 ' "$(stat -c %a "$T/links/page.md" "$T/links/page-1.svg" | tr '\n' ' ')"
if python3 -c 'import matplotlib' 2>/dev/null; then
    ok report "$T/results.jsonl" -o "$T/page.html"
    check 'pictures' 1 "$(grep -c '<svg' "$T/page.html")"
    ok report "$T/results.jsonl" -o "$T/page.md"
    check 'a picture' 1 "$(grep -c '!\[.*\](page-1.svg)' "$T/page.md" && test -s "$T/page-1.svg")"
    check 'how small it was' 1 "$(grep -c "at most, and 96 tokens at most" "$T/page.md")"
    ok report "$T/long.jsonl" -o "$T/long.md"
    check 'by position, with its picture' 1 "$(grep -A 2 '^By position in windows of 128' "$T/long.md" | grep -c '(long-2.svg)')"
    sed '1s/"to":64,"perplexity":[^}]*/"to":64,"perplexity":null/' "$T/long.jsonl" >"$T/rise.jsonl"
    ok report "$T/rise.jsonl" -o "$T/long.md"
    check 'a perplexity that is no number' 1 "$(grep -c '>none<' "$T/long-2.svg")"
    mkdir -p "$T/pages/x.md"
    refused 1 'x.md: cannot be written' report "$T/results.jsonl" -o "$T/pages/x.md"
    check 'no picture without its page' x.md "$(ls -A "$T/pages")"
else
    refused 1 'pictures need matplotlib' report "$T/results.jsonl" -o "$T/page.html"
fi

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
ok sweep "$T/sweep.lab" -o "$T/two.jsonl" --set 'vary.batch=1 | 11' --set 'vary.mlp=12 | 2' --set seeds=1 --set 'vary.position_layers=own' --keep "$T/both"
check 'each has a name' 4 "$(find "$T/both" -name '*.safetensors' | wc -l)"
rm -r "$T/both"
ok sweep "$T/sweep.lab" -o "$T/two.jsonl" --set 'vary.batch=1 | 11' --set 'vary.mlp=12 | 2' --set seeds=1 --set 'vary.position_layers=own' --keep "$T/both"
check 'what is not there is made again' '4 4' "$(find "$T/both" -name '*.safetensors' | wc -l) $(wc -l <"$T/two.jsonl")"
refused 2 'has no line quick' sweep "$T/sweep.lab" -o "$T/quick.jsonl" --quick
refused 2 'no key is called "stepz"' sweep "$T/sweep.lab" -o "$T/quick.jsonl" --set stepz=2

# one model measured with several positions: the first as it was trained
(
    grep -v '^position ' "$T/small.lab"
    echo 'position = rope'
    echo 'vary.eval_position = rope | rope,base=100 | alibi | t5'
) | sed 's/^steps = .*/steps = 3/' >"$T/other.lab"
grep -v '^vary' "$T/other.lab" >"$T/other.lab.one"
lab sweep "$T/other.lab" -o "$T/other.jsonl"
check 'three are measured, one has other weights' '1 3 2' "$code $(wc -l <"$T/other.jsonl") $(wc -l <"$T/err")"
check 'which' 1 "$(grep -c 't5 has other weights than rope' "$T/err")"
check 'one training, three measurements' '1 3' "$(sed 's/.*"train_loss":\([0-9.]*\).*/\1/' "$T/other.jsonl" | sort -u | wc -l) \
$(sed 's/.*"lengths":.{"length":16,"loss":\([0-9.]*\).*/\1/' "$T/other.jsonl" | sort -u | wc -l)"

ok train "$T/other.lab.one" -o "$T/rope"
ok eval "$T/rope" --lengths 16,32 --bytes 200 --position rope,base=100 --json
check 'eval finds what the sweep found' 1 "$(sed 's/.*"lengths":.{"length":16,"loss":\([0-9.]*\).*/\1/' "$T/out" |
    xargs -I '{}' grep -c '"eval_position":"rope,base=100".*"length":16,"loss":{}' "$T/other.jsonl")"
ok eval "$T/rope" --position rope,base=100
check 'it says so' 1 "$(grep -c 'steps; measured with rope,base=100$' "$T/out")"
refused 1 't5 has other weights than rope' eval "$T/rope" --position t5

# the experiments that come with the source
for file in lab/*.lab; do
    if grep -q '^vary' "$file"; then
        ok sweep "$file" --list
        ok sweep "$file" --list --quick
    else
        ok train "$file" -o "$T/own.$(basename "$file")" --until 0
    fi
done

# all of them: what the page needs is told before anything is trained
mkdir "$T/bin"
printf '#!/bin/sh\nexit 1\n' >"$T/bin/python3"
chmod +x "$T/bin/python3"
command='lab/all.sh without matplotlib'
PATH="$T/bin:$PATH" lab/all.sh /bin/true "$T/all" --quick >"$T/out" 2>"$T/err"
check 'exit code, and what it says' '1 all.sh: the page needs matplotlib (Debian: python3-matplotlib)' "$? $(cat "$T/err")"
check 'nothing was begun' no "$([ -e "$T/all" ] && echo yes || echo no)"

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
train 'did you mean "alibi"' 'position = alibl' 2
train 'no projection' 'position = forget' 2
train 'w3 is given, and its size is 0' 'position = fire,c=1,L=8,w3=w,b3=b' 2
train 'buckets' 'position = t5,buckets=1' 2
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
