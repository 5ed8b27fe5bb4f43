#!/bin/sh
# attend.sh -- test relpos attend: the worked example, every term and mask by name, identities, threads, instruction sets, and a real text
#
#     tests/cli/attend.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh
make_small

# The worked example: the weights and the output of all five words match the digits printed in the
# tutorial.
begin
put q F32 1,1,5,4 f32 1 0 1 0 0 2 0 1 1 1 1 0 0 0 1 1 1 0 0 1
put k F32 1,1,5,4 f32 0 1 0 1 1 0 1 0 1 1 0 0 0 0 1 1 1 0 0.5 0.5
put v F32 1,1,5,4 f32 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1 0.5 0.5 0.5 0.5
save "$T/five.safetensors"
ok attend "$T/five.safetensors" -o "$T/five_out.safetensors" --bias log,lambda=0.3 --weights --lse --summary
check 'the weights of the chapter' '0.1473 0.3253 0.1747 0.1603 0.1924 0.4099 0.1126 0.2486 0.1335 0.0954 0.1321 0.2460 0.3029 0.1492 0.1697 0.1523 0.1660 0.1137 0.3805 0.1875 0.1508 0.1612 0.1758 0.1985 0.3138' \
    "$(numbers "$T/five_out.safetensors" weights | awk '{ printf "%.4f\n", $1 }' | paste -s -d ' ')"
check 'the output of the chapter' '0.2435 0.4215 0.2709 0.2565 0.4576 0.1603 0.2963 0.1812 0.2170 0.3309 0.3877 0.2341 0.2460 0.2597 0.2074 0.4743 0.3077 0.3181 0.3326 0.3554' \
    "$(numbers "$T/five_out.safetensors" out | awk '{ printf "%.4f\n", $1 }' | paste -s -d ' ')"
check 'lse of "The": log 3.0743 + 0.7921' 1.915 "$(numbers "$T/five_out.safetensors" lse | awk 'NR == 1 { printf "%.3f\n", $1 }')"
check 'five rows sum to one each' 5.0000 "$(numbers "$T/five_out.safetensors" key_mass | awk '{ s += $1 } END { printf "%.4f\n", s }')"
check 'nine offsets: the middle one is the mean of the diagonal' '9 0.2514' \
    "$(numbers "$T/five_out.safetensors" profile | awk 'NR == 5 { x = $1 } END { printf "%d %.4f\n", NR, x }')"
check 'entropy of "mat"' 1.5697 "$(numbers "$T/five_out.safetensors" entropy | awk 'NR == 5 { printf "%.4f\n", $1 }')"
ok attend "$T/five.safetensors" -o "$T/five_plain.safetensors" --weights
check 'without bias' '0.1095 0.2976 0.1805 0.1805 0.2318' \
    "$(numbers "$T/five_plain.safetensors" weights | awk 'NR <= 5 { printf "%.4f\n", $1 }' | paste -s -d ' ')"

# Every term and every mask by name, and all of them in one command.
attend_to plain
attend_to table --bias table,table=table,left=3,right=4
attend_to t5 --bias t5,table=t5
attend_to t5_options --bias t5,table=t5,buckets=32,max_distance=64,bidirectional=0
attend_to t5_shared --bias t5,table=t5_one
for strategy in log uniform linear quadratic; do
    attend_to "bucket_$strategy" --bias "bucket,table=t5,strategy=$strategy"
done
equal bucket_log t5
attend_to log --bias log
attend_to linear --bias linear,left=0.5,right=.25
attend_to alibi --bias alibi
attend_to alibi_slopes --bias alibi,slopes=slopes
attend_to dense --bias dense,bias=dense
# parameters that given angles and frequencies replace
begin
put q F32 1,1,2,4 some 0 8
put k F32 1,1,2,4 some 20 8
put v F32 1,1,2,4 some 40 8
put a F32 1,2,2 some 60 4
put f F32 2 some 70 2
save "$T/angles.safetensors"
for array in angles=a frequencies=f; do
    attend_angles="attend $T/angles.safetensors -o $T/made/angles.safetensors --rope $array"
    # shellcheck disable=SC2086
    ok $attend_angles,layout=interleaved
    for given in base=500 length=7 scaling=linear; do
        # shellcheck disable=SC2086
        refused 1 "$array was given with $given, which would have no effect" $attend_angles,$given
    done
done
attend_to rope --rope dim=6,base=500,layout=interleaved
attend_to rope_default --rope dim=8,base=10000,layout=half
attend_to rope_alone --rope --scale 0.3535533905932738
attend_to rope_scaled --rope dim=8,base=10000,layout=half --scale 0.3535533905932738
equal rope_alone rope_scaled
attend_to relkey --relkey table=keys,left=3,right=4
attend_to relkey_heads --relkey table=keys_h,left=3,right=4
attend_to relval --relval table=values,left=3,right=4
attend_to everything --bias table,table=table,left=3,right=4 --bias t5,table=t5 --bias log --bias linear --bias alibi --bias dense,bias=dense \
    --rope dim=8 --relkey table=keys,left=3,right=4 --relval table=values,left=3,right=4 --causal --window 5,0 --key-mask key_U8 --mask row \
    --lengths lengths --scale 0.3 --softcap 20 --q-offset 2 --weights --lse --summary
for name in table t5 t5_options bucket_uniform bucket_linear bucket_quadratic log linear alibi alibi_slopes dense rope rope_default relkey \
    relkey_heads relval everything; do
    differs plain "$name"
done

# Identities: two commands that must give the same attention.
attend_to zero --bias dense,bias=nothing
equal zero plain
attend_to causal --causal
attend_to window --window -1,0
equal causal window
attend_to narrow --window 5,0
attend_to narrow_causal --causal --window 5,-1
equal narrow narrow_causal
attend_to wide --window -1,-1
equal wide plain
attend_to wide --window 9223372036854775807,100
equal wide plain
attend_to uncapped --softcap 0
equal uncapped plain
attend_to full --mask none --weights --lse --summary
check 'every key masked' '0 0 -inf 0 0 0' "$(for name in out weights lse profile key_mass entropy; do
    numbers "$made" $name | sort -u
done | paste -s -d ' ')"
attend_to lengths_zero --lengths no_keys
check 'no valid keys' 0 "$(numbers "$made" out | sort -u)"
attend_to offset --causal --q-offset -3 --lse
check 'three queries before the first key, then one that sees a single key' '-inf -inf -inf number' \
    "$(numbers "$made" lse | awk 'NR <= 4 { print /^-?[0-9.e-]+$/ ? "number" : $1 }' | paste -s -d ' ')"
check 'a query with one key gives its value' "$(numbers "$small" v | head -n 5)" "$(numbers "$made" out | sed -n 16,20p)"
attend_to scale --scale 0 --weights
check 'scale 0: every key has the same weight' 0.1111 "$(numbers "$made" weights | awk '{ printf "%.4f\n", $1 }' | sort -u)"
attend_to scale --scale 0.353553390593273786
near 'the default scale is 1/sqrt(8)' 1e-6 "$made" out "$T/made/plain.safetensors" out
attend_to capped --softcap 1e6
near 'a far cap' 1e-4 "$made" out "$T/made/plain.safetensors" out
attend_to capped --softcap 0.5 --bias alibi
attend_to capped_after --softcap-after 0.5 --bias alibi
differs capped capped_after # a softcap before the bias differs from a softcap after it
attend_to key_U8 --key-mask key_U8
for type in I64 U64 I32 U32 I16 U16 I8 BOOL odd; do
    attend_to "key_$type" --key-mask "key_$type"
    equal "key_$type" key_U8
done
attend_to row --mask row
attend_to row_lengths --mask row --lengths lengths
attend_to row_lengths4 --mask row --lengths lengths4
equal row_lengths row_lengths4

make_square
ok attend "$square" -o "$T/made/segments.safetensors" --segments segments --bias log
ok attend "$square" -o "$T/made/blocks.safetensors" --mask blocks --bias log
near 'two segments are two blocks of a mask' 1e-6 "$T/made/segments.safetensors" out "$T/made/blocks.safetensors" out

# The bias written by `relpos bias`, passed as an array, equals the term.
biases="log,lambda=0.7 linear,left=0.5,right=1 alibi alibi,slopes=slopes t5,table=t5 bucket,table=t5,strategy=quadratic table,table=table,left=3,right=4"
for term in $biases; do
    case $term in *=t5* | *=slopes* | *=table*) with="--input $small" ;; *) with='' ;; esac
    # shellcheck disable=SC2086
    ok bias "$term" $with --heads 4 --q 7 --k 9 --q-offset 1 -o "$T/bias.safetensors"
    begin
    qkv
    numbers "$T/bias.safetensors" bias >"$T/one"
    # shellcheck disable=SC2046
    put b F32 4,7,9 f32 $(cat "$T/one")
    save "$T/given.safetensors"
    ok attend "$T/given.safetensors" -o "$T/made/given.safetensors" --bias dense,bias=b --q-offset 1
    attend_to direct --bias "$term" --q-offset 1
    near "$term as an array" 1e-5 "$T/made/direct.safetensors" out "$T/made/given.safetensors" out
done

# Threads, repeated runs and instruction sets give the same bytes.
attend_to once --bias t5,table=t5 --causal --weights --lse --summary --threads 1
attend_to again --bias t5,table=t5 --causal --weights --lse --summary --threads 1
equal once again
attend_to two --bias t5,table=t5 --causal --weights --lse --summary --threads 2
equal once two
attend_to reference --bias t5,table=t5 --causal --lse --summary --dtype f64
for isa in $("$program" info --json | grep -oE '"name": "[a-z0-9]+", "found": true' | sed 's/"name": "\(.*\)", .*/\1/') reference; do
    attend_to "$isa" --bias t5,table=t5 --causal --lse --summary --isa "$isa"
    for name in out lse profile key_mass entropy; do
        near "$isa" 2e-5 "$made" $name "$T/made/reference.safetensors" $name
    done
    command="RELPOS_ISA=$isa relpos attend"
    RELPOS_ISA=$isa "$program" attend "$small" -o "$T/made/by_name.safetensors" --bias t5,table=t5 --causal --lse --summary
    equal "$isa" by_name
done

# A real text: q, k and v of a trained network.
ok attend "$text" -o "$T/a.npz" --bias alibi --lse
ok attend "$text" -o "$T/b.npz" --bias alibi --lse --threads 1
same 'equal inputs, equal files, on any number of threads' "$T/a.npz" "$T/b.npz"
ok attend "$text" -o "$T/c.npz" --bias t5,table=t5_table --rope base=10000 --summary --causal
ok attend "$text" -o "$T/a.safetensors" --weights
numbers examples/data/minilm_weights_heads01.safetensors weights >"$T/one"
numbers "$T/a.safetensors" weights | head -n "$(($(wc -l <"$T/one")))" >"$T/two"
check "the weights that the network computes in heads 0 and 1" 219122 "$(paste "$T/one" "$T/two" | awk '{ d = $1 - $2; n += d < 2e-5 && d > -2e-5 } END { print n + 0 }')"

finish
