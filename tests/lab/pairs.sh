#!/bin/sh
# pairs.sh -- test encoder-decoders: training on pairs of lines and on span corruption, comparison with the losses of transformers' T5, measuring,
# sampling and exporting
#
#     tests/lab/pairs.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# tests/lab/data/t5_losses.txt is written by lab/oracle_t5.py build/release/relpos lab/numbers.lab --steps 12 --set width=32 --set mlp=48 \
#     --set batch=16 --set warmup=2 --write tests/lab/data/t5_losses.txt. Columns: step, loss of transformers in f64, bound.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh

# compare with the losses of transformers
ok lab train lab/numbers.lab -o "$T/first" --threads 1 --until 12 --set width=32 --set mlp=48 --set batch=16 --set warmup=2 --set dropout=0 --set log_every=1
sed -n 's/.*"step":\([0-9]*\),"loss":\([0-9.]*\),.*/\1 \2/p' "$T/first/log.jsonl" >"$T/ours"
check 'steps' "$(wc -l <tests/lab/data/t5_losses.txt)" "$(wc -l <"$T/ours")"
worst=$(paste -d ' ' "$T/ours" tests/lab/data/t5_losses.txt |
    awk '{d = ($2 - $4) / $5; d = d < 0 ? -d : d; if (d > worst) worst = d; if ($1 != $3) worst = 99} END {printf "%.3f", worst}')
echo "largest difference from the losses of transformers over its bound: $worst"
check 'within the bound' 1 "$(awk -v w="$worst" 'BEGIN {print (w <= 1)}')"

# copying is a task that a model learns in seconds
awk 'BEGIN {for (n = 0; n < 2000; n++) {s = ""; x = (16807 * x + 12345) % 2147483647; for (k = 1 + x % 4; k >= 0; k--) {
    x = (16807 * x + 12345) % 2147483647; s = s substr("abcdefgh", int(x / 65536) % 8 + 1, 1)} print s "\t" s}}' >"$T/copy.txt"
sed 's/^layers = .*/layers = 1/; s/^decoder_layers = .*/decoder_layers = 1/; s/^width = .*/width = 32/; s/^mlp = .*/mlp = 32/
    s/^length = .*/length = 6/; s/^target_length = .*/target_length = 6/; s/^steps = .*/steps = 600/; s/^lr = .*/lr = 0.003/' lab/numbers.lab |
    sed "s|^text = .*|text = $T/copy.txt|" >"$T/copy.lab"
ok lab train "$T/copy.lab" -o "$T/copy"
ok lab eval "$T/copy" --json
check 'the loss is near zero' 1 "$(awk -v x="$(number loss "$T/out")" 'BEGIN {print (x < 0.1)}')"
check 'nine of ten are right' 1 "$(awk -v x="$(number exact "$T/out")" -v n="$(number sources "$T/out")" 'BEGIN {print (n == 200 && x > 0.9 * n)}')"
valid=$(grep -oE '"valid_loss":[0-9.]*' "$T/copy/log.jsonl")
check 'the loss at the end of training' "${valid#*:}" "$(number loss "$T/out")"
ok lab sample "$T/copy" --prompt abab
check 'it writes' abab "$(cat "$T/out")"
ok lab eval "$T/copy"
check 'as text' 1 "$(grep -cE '^200 sources, [0-9.]+ % with an exact target' "$T/out")"

# Consecutive lines with the same source are alternative targets of one source. The nearest target counts.
printf 'abab\tx y\nabab\tabab\nba\tba\nabab\tab z\n' >"$T/other.txt"
ok lab eval "$T/copy" --text "$T/other.txt" --json
check 'three sources, two right, in the third one word changed and one missing' '3 2 2 4' \
    "$(number sources "$T/out") $(number exact "$T/out") $(number edits "$T/out") $(number words "$T/out")"
printf 'abab\tx y\n' >"$T/other.txt"
ok lab eval "$T/copy" --text "$T/other.txt" --json
check 'one changed, one added' '0 2 2' "$(number exact "$T/out") $(number edits "$T/out") $(number words "$T/out")"

# A run can be stopped and resumed with another number of threads, within an epoch and at its end, also with span
# corruption.
sed 's/^steps = .*/steps = 70/; s/^warmup = .*/warmup = 5/; $a dropout = 0.1' "$T/copy.lab" >"$T/short.lab"
sed 's/^length = .*/length = 40/; s/^target_length = .*/target_length = 20/; s/^text = .*/text = examples\/data\/gettysburg.txt/; $a noise = 0.15' \
    "$T/short.lab" >"$T/spans.lab"
for kind in short spans; do
    ok lab train "$T/$kind.lab" -o "$T/$kind.1" --threads 1
    ok lab train "$T/$kind.lab" -o "$T/$kind.2" --threads 2 --until 60
    ok lab train "$T/$kind.lab" -o "$T/$kind.2" --threads 3 --resume
    same 'the same bytes' "$T/$kind.1/checkpoint.safetensors" "$T/$kind.2/checkpoint.safetensors"
done
ok lab eval "$T/spans.1"
check 'spans only have a loss' '1 0' "$(grep -c 'loss [0-9.]*, perplexity' "$T/out") $(grep -c 'sources' "$T/out")"
cp "$T/copy.txt" "$T/copy.before" && echo 'a	a' >>"$T/copy.txt"
refused 1 'text: it has changed' lab train "$T/copy.lab" -o "$T/copy" --resume
cp "$T/copy.before" "$T/copy.txt"

# export in the format of transformers
ok lab export "$T/copy" --transformers --dtype bf16 -o "$T/t5"
check 'its files' 'config.json generation_config.json model.safetensors tokenizer_config.json' "$(cd "$T/t5" && echo *)"
check 'its shape' '32 8 32 1 1 4 "gated-gelu" false' "$(for key in d_model d_kv d_ff num_layers num_decoder_layers num_heads feed_forward_proj tie_word_embeddings; do
    sed -n "s/.*\"$key\": \(.*\),.*/\1/p" "$T/t5/config.json"; done | tr '\n' ' ' | sed 's/ $//')"
ok lab export "$T/short.1" --transformers -o "$T/t5.short"
check 'its numbers' '0.1 1e-06' "$(for key in dropout_rate layer_norm_epsilon; do
    sed -n "s/.*\"$key\": \(.*\),.*/\1/p" "$T/t5.short/config.json"; done | tr '\n' ' ' | sed 's/ $//')"
refused 1 't5: it already exists' lab export "$T/copy" --transformers -o "$T/t5/"
refused 1 't5: it already exists' lab export "$T/copy" --transformers -o "$T/t5"
refused 1 'GPT-2, GPT-NeoX and Llama do not have it' lab export "$T/run" --transformers -o "$T/no"
refused 2 'model writes another form' lab export "$T/copy" --transformers --model -o "$T/no"
refused 2 'transformers takes no text' lab export "$T/copy" --transformers --prompt ab -o "$T/no"
check 'nothing is left' 0 "$(find "$T" -name 'no*' | wc -l)"
ok lab export "$T/copy" --model --dtype f16 -o "$T/copy.safetensors"
ok lab sample "$T/copy.safetensors" --prompt abab
check 'it writes' abab "$(cat "$T/out")"

# lines that are not pairs
printf 'a\tb\n' >"$T/good.txt"
n=0
while IFS='|' read -r line said; do
    n=$((n + 1))
    # shellcheck disable=SC2059
    printf "a\tb\n$line\n" >"$T/bad$n.txt"
    refused 1 "bad$n.txt:2: $said" lab train "$T/short.lab" -o "$T/bad" --set "text=$T/good.txt $T/bad$n.txt"
done <<'END'
ab|the line has 0 tabs .write a source, one tab and a target.
a\tb\tc|the line has 2 tabs
\tb|the source is empty
a\t|the target is empty
abcdef\tb|the source has 6 bytes and an end token, which is more than 6 tokens .set a larger length, or use a shorter source.
a\tbcdefg|the target has 6 bytes and an end token, which is more than 6 tokens .set a larger target_length, or use a shorter target.
END
check 'the cases' 6 "$n"
refused 1 '4 training pairs, but batch is 32' lab train "$T/short.lab" -o "$T/few" --set "text=$T/good.txt $T/good.txt $T/good.txt $T/good.txt" --set valid_share=0
refused 1 'no pair to measure on in 1 bytes' lab eval "$T/copy" --bytes 1
refused 1 'no pair to measure on in 1 bytes' lab train "$T/short.lab" -o "$T/little" --set eval_bytes=1
check 'no step was made' no "$([ -e "$T/little/log.jsonl" ] && echo yes || echo no)"
refused 2 'vocab = 256: an encoder-decoder needs at least 259' lab train "$T/short.lab" -o "$T/bad" --set vocab=256
refused 2 'tokenizer: an encoder-decoder uses' lab train "$T/short.lab" -o "$T/bad" --set tokenizer=x.model
refused 1 'noise: windows of two bytes do not fit' lab train "$T/spans.lab" -o "$T/bad" --set length=2
refused 2 'prompt: an encoder-decoder needs a source' lab sample "$T/copy"
refused 1 'length 11 is out of range .1 to 6.' lab sample "$T/copy" --prompt abcdefghij
refused 2 'lengths: an encoder-decoder is measured on whole pairs' lab eval "$T/copy" --lengths 4
refused 1 'layers of an encoder-decoder cannot be written' lab export "$T/copy" --prompt ab -o "$T/x.npz"
refused 1 'the model is a classifier, an encoder-decoder' lab inspect "$T/copy"
refused 1 'task = encoder-decoder: a sweep cannot measure it' lab sweep "$T/short.lab" -o "$T/x.jsonl"

finish
