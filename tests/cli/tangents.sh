#!/bin/sh
# tangents.sh -- test relpos attend --tangent: tangents whose result is known, types of files, and mistakes
#
#     tests/cli/tangents.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh
make_small
in=$small

# out is linear in v: along v itself, its tangent is out, and that of lse is 0.
begin
put q F32 1,1,3,2 f32 1 2 0.5 1 -1 0
put k F32 1,1,3,2 f32 1 0 2 1 0 1
put v F32 1,1,3,2 f32 3 1 -2 5 1 0.5
put table F32 1,4 f32 1 2 -1 0.5
put tv F32 1,1,3,2 f32 3 1 -2 5 1 0.5
save "$T/linear.safetensors"
ok attend "$T/linear.safetensors" -o "$T/out.safetensors" --bias table,table=table,left=1,right=2 --tangent "$T/linear.safetensors" --causal
near 'the tangent along v is out' 1e-6 "$T/out.safetensors" out "$T/out.safetensors" out_t
check 'lse does not depend on v' '0 0 0' "$(numbers "$T/out.safetensors" lse_t | awk '{ printf "%g\n", $1 }' | paste -s -d ' ')"

# Adding a number to every bias adds it to lse and does not change out.
begin
put ttable F32 1,4 f32 2 2 2 2
save "$T/shift.safetensors"
ok attend "$T/linear.safetensors" -o "$T/out.safetensors" --bias table,table=table,left=1,right=2 --tangent "$T/shift.safetensors" --dtype f64
check 'the tangent of lse is that of the biases' '2.000000 2.000000 2.000000' \
    "$(numbers "$T/out.safetensors" lse_t | awk '{ printf "%.6f\n", $1 }' | paste -s -d ' ')"
check 'out has no tangent' '0.000000' "$(numbers "$T/out.safetensors" out_t | awk '{ s += $1 * $1 } END { printf "%.6f\n", s }')"
ok attend "$T/linear.safetensors" -o "$T/half.safetensors" --bias table,table=table,left=1,right=2 --tangent "$T/shift.safetensors" --dtype bf16 --lse

begin
put tq F32 1,1,2,2 f32 2 2 2 2
save "$T/short.safetensors"
refused 1 'tangent of q.*shape' attend "$T/linear.safetensors" -o "$T/no.safetensors" --tangent "$T/short.safetensors"
refused 1 'it has none of tq, tk, tv' attend "$T/linear.safetensors" -o "$T/no.safetensors" --tangent "$in"
begin
put tq F32 1,1,3,2 f32 2 2 2 2 2 2
put ttabel F32 1,4 f32 2 2 2 2
save "$T/wrong.safetensors"
refused 1 'ttabel is not a tangent of this call' attend "$T/linear.safetensors" -o "$T/no.safetensors" --bias table,table=table,left=1,right=2 --tangent "$T/wrong.safetensors"
refused 1 'none.npz' attend "$T/linear.safetensors" -o "$T/no.safetensors" --tangent "$T/none.npz"
refused 2 '--memory: --tangent needs all keys' attend "$T/linear.safetensors" -o "$T/no.safetensors" --tangent "$T/shift.safetensors" --memory 1G
refused 2 '--tangent: tangents cannot be read from standard input' attend "$T/linear.safetensors" -o "$T/no.safetensors" --tangent -
refused 2 'it is the file of --tangent' attend "$T/linear.safetensors" -o "$T/shift.safetensors" --tangent "$T/shift.safetensors"
check 'no output of a refused command' no "$([ -e "$T/no.safetensors" ] && echo yes || echo no)"
finish
