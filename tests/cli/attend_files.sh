#!/bin/sh
# attend_files.sh -- test relpos attend with file formats, pipes, links, types, empty axes and NaN
#
#     tests/cli/attend_files.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh
make_small
make_small_npz
prepare plain
prepare row --mask row
ok attend "$small_npz" -o "$T/made/npz.safetensors" --mask row
same '.npz and .safetensors in' "$T/made/npz.safetensors" "$T/made/row.safetensors"
ok attend "$small" -o "$T/one.npz" --mask row
ok attend "$small_npz" -o "$T/two.npz" --mask row
same '.npz out of either' "$T/one.npz" "$T/two.npz"
run attend - -o - --mask row <"$small"
check 'through a pipe' '0 ' "$code $(cat "$T/err")"
same '.safetensors through a pipe' "$T/out" "$T/made/row.safetensors"
run attend - -o - --mask row <"$small_npz"
same '.npz through a pipe' "$T/out" "$T/one.npz"
command='cat small.npz | relpos attend - -o - | cat'
# shellcheck disable=SC2002
cat "$small_npz" | "$program" attend - -o - --mask row | cat >"$T/out"
same '.npz through true pipes' "$T/out" "$T/one.npz"
cp "$small" "$T/no_suffix"
ok attend "$T/no_suffix" -o "$T/made/no_suffix.safetensors" --mask row
equal no_suffix row
(cd "$T" && cp small.safetensors -- '-odd name;.safetensors')
ok attend -o "$T/made/odd.safetensors" --mask=row -- "$T/-odd name;.safetensors"
equal odd row
mkdir "$T/deep"
ln -s ../made/linked.safetensors "$T/deep/link.safetensors"
ok attend "$small" -o "$T/deep/link.safetensors" --mask row
check 'the target of a symbolic link is written, the link stays' '../made/linked.safetensors' "$(readlink "$T/deep/link.safetensors")"
equal linked row
ok attend "$small" -o "$T/made/linked.safetensors"
equal linked plain # the link's older output was replaced
check 'no temporary file is left' '' "$(find "$T" -name '.relpos*')"

# A bias array written by `relpos bias` is valid input in both formats.
ok bias alibi --q 6 --k 6 -o "$T/one.npz"
ok bias dense,bias=bias --input "$T/one.npz" -o "$T/one.safetensors"
ok bias dense,bias=bias --input "$T/one.safetensors" -o "$T/two.npz"
same 'from .npz to .safetensors and back' "$T/one.npz" "$T/two.npz"

# Types.
attend_to f64 --dtype f64
attend_to f32 --dtype f32
equal f32 plain
near 'f64 and f32' 1e-5 "$T/made/f64.safetensors" out "$T/made/f32.safetensors" out
attend_to f16 --dtype f16 --weights
attend_to bf16 --dtype bf16 --lse
command='relpos attend --dtype'
check 'two bytes per number' "$((560 + 1008))" "$(($(wc -c <"$T/made/f16.safetensors") - 8 - $(od -An -t u8 -N 8 "$T/made/f16.safetensors")))"
check 'the name of the type' '"dtype":"BF16"' "$(grep -aoE -m 1 '"dtype":"[A-Z0-9]*"' "$T/made/bf16.safetensors" | head -n 1)"
ok attend "$small" -o "$T/f16.npz" --dtype f16
refused 2 'bf16: \.npz does not support this type' attend "$small" -o "$T/kept/a.npz" --dtype bf16
refused 2 'bf16: \.npz does not support this type' attend "$small_npz" -o "$T/kept/b.npz" --dtype bf16
tail -c 560 "$T/made/f16.safetensors" >"$T/half" # f16 numbers, used as q, k and v
middle()
{
    tail -c 256 "$T/half" | head -c 128
}
for type in F16 BF16; do
    begin
    put q $type 1,2,4,8 head -c 128 "$T/half"
    put k $type 1,2,4,8 tail -c 128 "$T/half"
    put v $type 1,2,4,8 middle
    save "$T/$type.safetensors"
    ok attend "$T/$type.safetensors" -o "$T/made/$type.safetensors"
    check "the type of q is the default" "\"dtype\":\"$type\"" "$(grep -aoE -m 1 '"dtype":"[A-Z0-9]*"' "$T/made/$type.safetensors" | head -n 1)"
    ok attend "$T/$type.safetensors" -o "$T/made/wide.safetensors" --dtype f32
done
refused 1 'bf16.*\.npz does not support this type' attend "$T/BF16.safetensors" -o "$T/kept/a.npz"
ok attend "$T/F16.safetensors" -o "$T/half.npz"
begin
put q F64 1,2,4,8 zeros 512
put k F64 1,2,4,8 zeros 512
put v F64 1,2,4,8 zeros 512
save "$T/double.safetensors"
ok attend "$T/double.safetensors" -o "$T/made/double.safetensors"
check 'the type of q is the default' 0 "$(numbers "$T/made/double.safetensors" out | sort -u)"

# No keys, and no queries.
begin
put q F32 1,2,0,8 :
put k F32 1,2,4,8 some 0 64
put v F32 1,2,4,8 some 0 64
save "$T/no_queries.safetensors"
ok attend "$T/no_queries.safetensors" -o "$T/made/no_queries.safetensors" --lse --weights --summary
make_no_keys
ok attend "$no_keys" -o "$T/made/no_keys.safetensors" --lse --weights --summary
check 'rows without a key' '0 -inf' "$(numbers "$T/made/no_keys.safetensors" out | sort -u) $(numbers "$T/made/no_keys.safetensors" lse | sort -u | paste -s -d ' ')"

# A masked NaN has no effect. An attended NaN affects only the rows that attend to it.
around() # around FROM NUMBER...: print three vectors, of which the middle one is NUMBER...
{
    some "$1" 8
    shift
    f32 "$@"
    some 400 8
}
begin
put q F32 1,1,2,8 some 0 16
put k F32 1,1,3,8 around 100 nan nan nan nan nan nan nan nan
put v F32 1,1,3,8 around 300 nan inf -inf nan inf nan nan nan
put open U8 1,3 bytes 1 1 0 1
save "$T/nan.safetensors"
ok attend "$T/nan.safetensors" -o "$T/made/nan.safetensors" --key-mask open
check 'NaN of a masked key' 0 "$(numbers "$T/made/nan.safetensors" out | grep -c nan)"
ok attend "$T/nan.safetensors" -o "$T/made/nan.safetensors" --window 0,0
check 'NaN of the key of row 1' 8 "$(numbers "$T/made/nan.safetensors" out | grep -c nan)"

finish
