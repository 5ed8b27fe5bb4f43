#!/bin/sh
# measure.sh -- test relpos lab eval: the same bytes with more or less context, pieces of the text, and the n-gram baseline
#
#     tests/lab/measure.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh

head -c 3000 lab/data/vim.txt >"$T/text.txt"
pieces() # print the losses of the pieces at the first length, one per line
{
    sed 's/.*"pieces":\[\([^]]*\)\].*/\1/' "$T/out" | tr ',' '\n'
}

# Three pieces of 96 bytes, the first at the start of the file and the last at its end, have the same losses as these bytes
# in separate files.
ok lab eval "$T/run" --text "$T/text.txt" --bytes 288 --pieces 3 --lengths 32 --json
check 'tokens' 288 "$(number tokens "$T/out")"
pieces >"$T/pieces"
check 'pieces' 3 "$(wc -l <"$T/pieces")"
n=1
for at in 0 1451 2903; do # 2903 = 3000 - 1 - 96 is the last possible start
    dd if="$T/text.txt" of="$T/cut.txt" bs=1 skip=$at count=97 2>"$T/err"
    ok lab eval "$T/run" --text "$T/cut.txt" --bytes 96 --lengths 32 --json
    check "the piece at $at" 1 "$(near "$(number loss "$T/out")" "$(sed -n ${n}p "$T/pieces")" 1e-7)" # another batch rounds f32 sums differently
    n=$((n + 1))
done
ok lab eval "$T/run" --text "$T/text.txt" --bytes 288 --pieces 3 --lengths 32 --stride 32 --json
check 'a stride as long as the window' "$(cat "$T/pieces")" "$(pieces)"

# The loss of the last 8 bytes of a window of 32 is (32 times the mean of all - 24 times the mean of the first 24) / 8.
# Both lengths measure the same bytes.
ok lab eval "$T/run" --text "$T/text.txt" --bytes 8 --lengths 32,16 --stride 8 --json
check 'one window' 8 "$(number tokens "$T/out")"
long=$(number loss "$T/out")
short=$(sed 's/.*"length":16,"loss":\([0-9.]*\).*/\1/' "$T/out")
mean() # mean FROM LENGTH: print the mean loss of a window
{
    dd if="$T/text.txt" of="$T/cut.txt" bs=1 skip="$1" count=$(($2 + 1)) 2>"$T/err"
    run lab eval "$T/run" --text "$T/cut.txt" --bytes "$2" --lengths "$2" --json
    number loss "$T/out"
}
last() # last FROM LENGTH: print the mean loss of the last 8 bytes of a window
{
    a=$(mean "$1" "$2")
    b=$(mean "$1" $(($2 - 8)))
    awk -v a="$a" -v b="$b" -v n="$2" 'BEGIN {printf "%.17g", (n * a - (n - 8) * b) / 8}'
}
check 'with 25 to 32 bytes of context' 1 "$(near "$long" "$(last 0 32)" 1e-6)" # the losses are sums of f32 logits
check 'with 9 to 16' 1 "$(near "$short" "$(last 16 16)" 1e-6)"
check 'a different loss' 0 "$(near "$long" "$short" 1e-4)"

# pieces in a sweep, in the log of a training run, and with a model that has a bos token
ok lab sweep "$T/small.lab" -o "$T/pieces.jsonl" --set steps=2 --set eval_pieces=4 --set eval_stride=4 --set 'eval_lengths=16 32' --set eval_bytes=160
check 'the results have the pieces' '4 4' "$(grep -oE '"pieces":\[[^]]*\]' "$T/pieces.jsonl" | tr -cd ',\n' | awk '{printf "%s%d", (NR > 1 ? " " : ""), length($0) + 1}')"
ok lab train "$T/small.lab" -o "$T/first" --set eval_pieces=2 --set bos=1 --set vocab=257
ok lab eval "$T/first" --pieces 2 --bytes 200 --json
check 'the loss at the end of training' "$(number valid_loss "$T/first/log.jsonl")" "$(number loss "$T/out")"

# Pieces with contexts: each piece is measured as in a file that has only its context and itself.
dd if="$T/text.txt" of="$T/blocks.txt" bs=1 count=192 2>"$T/err" # three pieces of 24 bytes with contexts of 40
ok lab eval "$T/run" --text "$T/blocks.txt" --pieces 3 --stride 8 --context 40 --lengths 16,40 --json
check 'tokens' 72 "$(number tokens "$T/out")"
loss=$(number loss "$T/out")
ok lab eval "$T/run" --text "$T/blocks.txt" --pieces 3 --stride 8 --context 40 --lengths 16 --json
check 'the same bytes without the longer windows' "$loss" "$(number loss "$T/out")"
pieces >"$T/pieces"
for n in 1 2 3; do
    dd if="$T/blocks.txt" of="$T/cut.txt" bs=1 skip=$((64 * (n - 1))) count=64 2>"$T/err"
    ok lab eval "$T/run" --text "$T/cut.txt" --bytes 24 --pieces 1 --stride 8 --context 40 --lengths 16 --json
    check "piece $n" 1 "$(near "$(number loss "$T/out")" "$(sed -n ${n}p "$T/pieces")" 1e-7)"
    dd if="$T/cut.txt" of="$T/end.txt" bs=1 skip=$((64 - 24 - 9)) count=$((24 + 9)) 2>"$T/err"
    ok lab eval "$T/run" --text "$T/end.txt" --bytes 24 --stride 8 --lengths 16 --json # 8 bytes of context, and the byte before the piece
    check "piece $n, without the rest of its context" 1 "$(near "$(number loss "$T/out")" "$(sed -n ${n}p "$T/pieces")" 1e-7)"
done
refused 1 'its 192 tokens are not 5 pieces with contexts of 40, where each piece is a multiple of 8' \
    lab eval "$T/run" --text "$T/blocks.txt" --pieces 5 --stride 8 --context 40
refused 1 'eval_context = 40: length 56 needs a context of 49' lab eval "$T/run" --text "$T/blocks.txt" --pieces 3 --stride 8 --context 40 --lengths 56

# the n-gram baseline
ok lab eval "$T/run" --bytes 200 --ngrams 3 --json
check 'three orders' 3 "$(grep -o '"order"' "$T/out" | wc -l)"
ok lab eval "$T/run" --bytes 200 --ngrams 2
check 'as text' 2 "$(grep -cE '^[12]-gram +perplexity +[0-9.]+ +[0-9.]+ bits/byte$' "$T/out")"
check 'bits are the logarithm of the perplexity' 0 \
    "$(awk '/-gram/ { off = log($3) / log(2) - $4; wrong += off > 0.02 || off < -0.02 } END { print wrong + 0 }' "$T/out")"

refused 1 'eval_stride = 17: it is above the shortest length, 16' lab eval "$T/run" --stride 17 --bytes 200
refused 1 'too few for 5 pieces of 48' lab eval "$T/run" --pieces 5 --bytes 290 --stride 16 --lengths 96
refused 1 'and several pieces, but the longest length is 16' lab eval "$T/run" --pieces 20 --bytes 200
make_classes
prepare lab train "$T/classes.lab" -o "$T/classes" --set steps=2 --set warmup=1
refused 1 'eval_pieces: only decoders' lab eval "$T/classes" --pieces 2 --bytes 2000
refused 1 'ngrams: the n-gram baseline is only for decoders of bytes' lab eval "$T/classes" --ngrams 2 --bytes 2000

finish
