#!/bin/sh
# pieces.sh -- test training on word pieces
#
#     tests/lab/pieces.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh

# model NAME OPTION...: train a tokenizer with 400 pieces. It does not normalize the text, unless the options say so
model()
{
    name=$1
    shift
    spm_train --input="$T/vim.txt" --model_prefix="$T/$name" --model_type=unigram --vocab_size=400 \
        --normalization_rule_name=identity --remove_extra_whitespaces=false --add_dummy_prefix=false --byte_fallback=true \
        --bos_id=-1 --eos_id=-1 "$@" >"$T/spm.log" 2>&1 || tail -n 3 "$T/spm.log"
}

if command -v spm_train >/dev/null; then
    head -c 100000 lab/data/vim.txt >"$T/vim.txt"
    model pieces
    sed "s|^text = .*|text = $T/vim.txt|; s/^steps = .*/steps = 5/" "$T/small.lab" >"$T/pieces.lab"
    printf '%s\n' "tokenizer = $T/pieces.model" 'vocab = 4096' >>"$T/pieces.lab" # vocab is larger than the number of pieces
    ok lab train "$T/pieces.lab" -o "$T/p1" --threads 1
    ok lab train "$T/pieces.lab" -o "$T/p2" --threads 2 --until 3
    ok lab train "$T/pieces.lab" -o "$T/p2" --resume
    same 'the same bytes' "$T/p1/checkpoint.safetensors" "$T/p2/checkpoint.safetensors"
    mv "$T/pieces.model" "$T/elsewhere.model" # the checkpoint contains the tokenizer
    printf '\nLine\n\n\n\ttab   blanks \r\n  caf\303\251 <0x0A> \344\270\255' >"$T/odd.txt"
    prompt=$(cat "$T/odd.txt")
    ok lab sample "$T/p1" --prompt "$prompt" --bytes 1 --temperature 0
    head -c "$(wc -c <"$T/odd.txt")" "$T/out" | tr '\r' '?' >"$T/back.txt"
    sed 's/\r/\xef\xbf\xbd/' "$T/odd.txt" | head -c "$(wc -c <"$T/odd.txt")" | tr '\r' '?' >"$T/there.txt"
    same 'the same bytes' "$T/there.txt" "$T/back.txt"
    ok lab sample "$T/p1" --bytes 300
    size=$(tr -d '\277\275' <"$T/out" | wc -c) # count U+FFFD as one byte
    check 'the number counts bytes, not word pieces' 1 "$((size > 295 && size < 325))"
    ok lab eval "$T/p1" --text "$T/odd.txt" --lengths 1 --json # measures every piece except the first, a line feed
    check 'predicted bytes' "$(($(wc -c <"$T/odd.txt") - 1))" "$(sed 's/.*"bytes":\([0-9]*\).*/\1/' "$T/out")"
    check 'bits per byte' 1 "$(sed 's/.*"loss":\([0-9.]*\).*"bits_per_byte":\([0-9.]*\),"tokens":\([0-9]*\),"bytes":\([0-9]*\).*/\1 \2 \3 \4/' \
        "$T/out" | awk '{d = $1 * $3 / $4 / log(2) / $2 - 1; print (d * d < 1e-24)}')"
    ok lab eval "$T/p1" --lengths 1 --json
    size=$(sed 's/.*"bytes":\([0-9]*\).*/\1/' "$T/out")
    check 'a fifth of the bytes is held out' 1 "$((size > 19980 && size <= 20016))"
    ok lab eval "$T/p1" --lengths 16
    check 'perplexity is per word piece' 1 "$(grep -c 'per word piece .* bits/byte .* word pieces, [0-9]* bytes' "$T/out")"
    ok lab export "$T/p1" --prompt 'the   end' -o "$T/x.safetensors"
    check 'names of the tokens' '_' "$(grep -aoE '"tokens":"\[[^]]*' "$T/x.safetensors" | grep -o _ | head -n 1)"
    ok lab export "$T/p1" --model -o "$T/model.safetensors"
    ok lab sample "$T/model.safetensors" --bytes 5
    sed 's/<unk>/<unq>/' "$T/model.safetensors" >"$T/lie.safetensors"
    refused 1 'damaged: its checksum' lab sample "$T/lie.safetensors"
    refused 1 'tokenizer: .*pieces.model: cannot be read' lab train "$T/pieces.lab" -o "$T/p0"
    mv "$T/elsewhere.model" "$T/pieces.model"
    refused 1 'vocab = 399: .* has 400 word pieces \(set vocab = 400 or more\)' lab train "$T/pieces.lab" -o "$T/p0" --set vocab=399
    model prefix --add_dummy_prefix=true
    refused 1 'vim.txt: line 1: the text of the word pieces differs from the file' lab train "$T/pieces.lab" -o "$T/p0" --set "tokenizer=$T/prefix.model"
    model chars --byte_fallback=false
    refused 1 'none of its 400 word pieces is a line feed' lab train "$T/pieces.lab" -o "$T/p0" --set "tokenizer=$T/chars.model"
    model bpe --model_type=bpe
    refused 1 'tokenizer: .*/bpe.model: its model type is 2, BPE; it must be 1, Unigram .*spm_train --model_type=unigram' \
        lab train "$T/pieces.lab" -o "$T/p0" --set "tokenizer=$T/bpe.model"
    refused 1 'tokenizer: README.md: .* is damaged: it is not a SentencePiece model' \
        lab train "$T/pieces.lab" -o "$T/p0" --set tokenizer=README.md
    printf 'a\n\342\226\201\n' >"$T/blank.txt"
    refused 1 'blank.txt: line 2: the text of the word pieces differs from the file' lab eval "$T/p1" --text "$T/blank.txt"
else
    echo 'not tested: word pieces, for which spm_train is missing (Debian: sentencepiece)'
fi

finish
