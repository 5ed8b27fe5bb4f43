#!/bin/sh
# export.sh -- test relpos lab export of a layer for relpos attend, and of a model, also with 16-bit weights
#
#     tests/lab/export.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh
prepare lab sample "$T/run" --prompt 'We are' --bytes 50
cp "$T/out" "$T/sample"

# relpos attend computes the same bits as the array `out` in the exported layer; `out` is the last array in both files
ok lab export "$T/run" --prompt 'We are met' -o "$T/x.safetensors"
options=$(sed "s|OUT|$T/y.safetensors|; s|^relpos ||" "$T/out")
grep -q "\"options\":\"${options#*/y.safetensors }\"" "$T/x.safetensors" || untold=1
check 'the options are in the metadata' 0 "${untold:-0}"
command="relpos $options"
# shellcheck disable=SC2086
"$program" $options >"$T/out" 2>"$T/err"
check 'the printed command' '0 ' "$? $(cat "$T/err")"
for file in x y; do
    tail -c 640 "$T/$file.safetensors" >"$T/$file.tail" # 640 bytes: 10 tokens, 2 heads, 8 channels, f32
done
same 'the same bytes' "$T/x.tail" "$T/y.tail"

# the exported layer includes gates, queries scaled by log(n), drawn positions, and the learned c and L of fire
for set in 'position=forget log_scale=learned' 'position=rope+alibi random_positions=64' 'position=fire,c=0.1,L=8 fire_scales=learned'; do
    ok lab train "$T/small.lab" -o "$T/run.${set#* }" --set "${set% *}" --set "${set#* }" --set steps=3
    ok lab export "$T/run.${set#* }" --prompt 'We are met' -o "$T/x.safetensors"
    options=$(sed "s|OUT|$T/y.safetensors|; s|^relpos ||" "$T/out")
    command="relpos $options"
    # shellcheck disable=SC2086
    "$program" $options >"$T/out" 2>"$T/err"
    check 'the printed command' '0 ' "$? $(cat "$T/err")"
    for file in x y; do
        tail -c 640 "$T/$file.safetensors" >"$T/$file.tail"
    done
    same 'the same bytes' "$T/x.tail" "$T/y.tail"
done
refused 1 'layer: 1 is out of range \(0 to 0\)' lab export "$T/run" --prompt 'We are met' --layer 1 -o "$T/x.npz"
refused 2 'suffix is not .safetensors or .npz' lab export "$T/run" --prompt 'We are met' -o "$T/x.txt"
refused 2 'no text' lab export "$T/run" -o "$T/x.npz"
ok lab export "$T/run" --model -o "$T/model.safetensors"
check 'the weights are a third of the checkpoint' 1 "$(($(wc -c <"$T/model.safetensors") * 2 < $(wc -c <"$T/run/checkpoint.safetensors")))"
ok lab sample "$T/model.safetensors" --prompt 'We are' --bytes 50
same 'the same bytes' "$T/sample" "$T/out"

# 16-bit weights give the same model to three digits, and exporting again gives the same file
ok lab eval "$T/run" --json
perplexity=$(number perplexity "$T/out")
for type in f16 bf16; do
    ok lab export "$T/run" --model --dtype "$type" -o "$T/$type.safetensors"
    check "$type: about half of f32" 1 "$(($(wc -c <"$T/$type.safetensors") * 5 < $(wc -c <"$T/model.safetensors") * 3))"
    ok lab eval "$T/$type.safetensors" --json
    check "$type: its perplexity" 1 "$(near "$(number perplexity "$T/out")" "$perplexity" 5e-3)"
    ok lab export "$T/$type.safetensors" --model --dtype "$type" -o "$T/again.safetensors"
    same 'the same bytes' "$T/$type.safetensors" "$T/again.safetensors"
    cp "$T/$type.safetensors" "$T/lie.safetensors"
    printf 'X' | dd of="$T/lie.safetensors" bs=1 seek=9000 conv=notrunc 2>"$T/dd"
    refused 1 'damaged: its checksum' lab sample "$T/lie.safetensors"
    mkdir "$T/resumed.$type" && cp "$T/$type.safetensors" "$T/resumed.$type/checkpoint.safetensors"
    refused 1 'no averages of the optimizer' lab train "$T/small.lab" -o "$T/resumed.$type" --resume
done
refused 2 'layer: --model writes all layers' lab export "$T/run" --model --layer 0 -o "$T/x.safetensors"
refused 2 'dtype: the arrays of a layer are f32' lab export "$T/run" --prompt 'We are met' --dtype f16 -o "$T/x.npz"
refused 2 'dtype: f64 is not supported, because the weights are f32 .use f32, f16 or bf16' lab export "$T/run" --model --dtype f64 -o "$T/x.safetensors"
refused 2 'dtype: "f8" is not a type' lab export "$T/run" --model --dtype f8 -o "$T/x.safetensors"

finish
