#!/bin/sh
# t5_gguf.sh -- test relpos t5 with .gguf files, which give the results of the folders that they were converted from
#
#     tests/cli/t5_gguf.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
data=tests/t5/data
source='5 9 2 4 4 7 1 8 30 31 32 33 34 35 36 37 38 39 40 41 42 43'

for model in t5 v11 umt5 encoder; do
    folder=$T/made/$model
    cp -r $data/$model "$folder" # the format has no key for the largest distance, which is 128 in every T5
    sed 's/\("relative_attention_max_distance"\): [0-9]*/\1: 128/' $data/$model/config.json >"$folder/config.json"
    rm -f "$folder/generation_config.json"
    case $model in t5) type=f16 ;; v11) type=f32 ;; *) type=bf16 ;; esac
    ok t5 info tests/t5/gguf/$model.gguf
    has ", $type: "
    for type in f32 $type int8; do
        [ $model$type != t5int8 ] || continue # rounding bf16 to f16 loses some bits of subnormal numbers
        ok t5 encode "$folder" --type $type --tokens --text "$source" -o "$T/made/a.safetensors"
        ok t5 encode tests/t5/gguf/$model.gguf --type $type --tokens --text "$source" -o "$T/made/b.safetensors"
        same "hidden states of $model in $type" "$T/made/a.safetensors" "$T/made/b.safetensors"
    done
    if [ $model != encoder ]; then
        printf '%s\t%s\n' "$source" '30 4 9 1' >"$T/pair"
        ok t5 score "$folder" "$T/pair" --tokens --each --type f32
        cp "$T/out" "$T/lines"
        ok t5 score tests/t5/gguf/$model.gguf "$T/pair" --tokens --each --type f32
        same "scores of $model" "$T/lines" "$T/out"
    fi
    ok t5 pack tests/t5/gguf/$model.gguf --type int8 -o "$T/made/packed"
    ok t5 encode "$T/made/packed" --tokens --text "$source" -o "$T/made/a.safetensors"
    ok t5 encode tests/t5/gguf/$model.gguf --type int8 --tokens --text "$source" -o "$T/made/b.safetensors"
    same "$model, packed" "$T/made/a.safetensors" "$T/made/b.safetensors"
    refused 1 'read from this file|file that the model' t5 pack tests/t5/gguf/$model.gguf -o tests/t5/gguf/$model.gguf
done

# the tokens of a model with added tokens are those of the folder with spiece.model, added_tokens.json and 100 <extra_id_N>
mkdir "$T/made/folder"
cp tests/tokenizer/data/added/spiece.model "$T/made/folder"
echo '{"model_type": "t5", "vocab_size": 160, "d_model": 32, "d_ff": 32, "num_heads": 4, "num_layers": 1}' >"$T/made/folder/config.json"
echo 'a l m g v s r e d t i p k f q n y h w c <fold2AA> <AA2fold>' | tr ' ' '\n' |
    awk 'BEGIN {printf "{"} {printf "%s\"%s\": %d", n++ ? ", " : "", $0, 127 + NR} END {print "}"}' >"$T/made/folder/added_tokens.json"
printf '%s\n' '<AA2fold> M K T A X' '<fold2AA> a c d v' 'MKTaX  m' '<extra_id_0> A<extra_id_99>a' '[PAD28] ' 'A' '' >"$T/lines"
ok t5 tokenize "$T/made/folder" "$T/lines"
cp "$T/out" "$T/tokens"
ok t5 tokenize tests/t5/gguf/small.gguf "$T/lines"
same 'tokens' "$T/tokens" "$T/out"
has '^149 .*1$'
ok t5 info tests/t5/gguf/small.gguf
has ', q8: '
ok t5 pack tests/t5/gguf/small.gguf -o "$T/made/packed"
ok t5 tokenize "$T/made/packed" "$T/lines"
same 'tokens of the packed file' "$T/tokens" "$T/out"

# blocks other than Q8_0 are used as they are in the file
ok t5 info tests/t5/gguf/q4.gguf
has ', gguf: 0.008 MB'
ok t5 verify tests/t5/gguf/q4.gguf --tokens --text "$source"
has '^gguf  hidden states '
run t5 pack tests/t5/gguf/q4.gguf -o "$T/made/packed"
check 'packing says the type' '0 t5 pack: blocks of the .gguf file become q8' "$code $(cut -c 1-43 "$T/err")"
ok t5 info "$T/made/packed"
has ', q8: '
ok t5 encode "$T/made/packed" --tokens --text "$source" -o "$T/made/a.safetensors"
ok t5 encode tests/t5/gguf/q4.gguf --type q8 --tokens --text "$source" -o "$T/made/b.safetensors"
same 'blocks, packed as q8' "$T/made/a.safetensors" "$T/made/b.safetensors"

refused 1 'accepts only token numbers: .*encoder.gguf: it has no tokenizer' t5 encode tests/t5/gguf/encoder.gguf --text a -o "$T/made/x.npz"
refused 1 'general.architecture must be t5 or t5encoder' t5 info tests/io/data/blocks.gguf
refused 1 'tensor token_embd.weight is missing' t5 info tests/tokenizer/data/t5.gguf
head -c 9000 tests/t5/gguf/t5.gguf >"$T/made/cut.gguf"
refused 1 'the file ends within the data|ends at byte' t5 info "$T/made/cut.gguf"
sed 's/enc.blk.1.attn_q/enc.blk.1.attn_x/' tests/t5/gguf/t5.gguf >"$T/made/name.gguf"
refused 1 "tensor 'encoder.block.1.layer.0.SelfAttention.q.weight' is missing; tensor 'enc.blk.1.attn_x.weight' is not in the model" t5 info "$T/made/name.gguf"
sed 's/t5.block_count/t5.block_xount/' tests/t5/gguf/t5.gguf >"$T/made/key.gguf"
refused 1 'key t5.block_count is missing' t5 info "$T/made/key.gguf"
finish
