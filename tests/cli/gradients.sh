#!/bin/sh
# gradients.sh -- test relpos attend with the terms that attend.sh does not cover, and with --grad
#
#     tests/cli/gradients.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh
make_small
make_more
prepare plain
prepare log --bias log
prepare causal --causal

# more_to NAME OPTION...: run attend on the file $more, and write the output to $T/made/NAME.safetensors
more_to()
{
    made=$T/made/$1.safetensors
    shift
    ok attend "$more" -o "$made" "$@"
}
more_to more
equal more plain
fire=fire,w1=w1,b1=b1,w2=w2,b2=b2,c=1.5,L=2
fire3=fire,w1=w1,b1=b1,w2=w2m,b2=b2m,w3=w3,b3=b2,c=1.5,L=2
n=0
for option in '--bias kerple,p=slopes,a=slopes' '--bias kerple,p=slopes,a=slopes,kind=power' '--bias sandwich,dim=8' "--bias $fire" "--bias $fire3" \
    '--bias real,table=rt,max_distance=3' '--bias real,table=rt,max_distance=3,sign=1,q_positions=q_real,k_positions=k_whole,q_position_mask=q_keep' \
    '--bias band,r=br,p=bp' '--bias band,r=br,p=bp_h' '--bias forget,logf=logf' '--xl r=xr' '--xl r=xr,u=xu,v=xv' '--deberta k_pos=k_pos' \
    '--deberta k_pos=k_pos,q_pos=q_pos,span=3' '--deberta q_pos=q_pos,buckets=4,max_position=5' '--sink slopes' '--dropout 0.5 --seed 3' \
    '--q-offset first --causal' '--rope q_positions=q_real,k_positions=k_whole' '--rope scaling=linear,factor=2' \
    '--rope scaling=yarn,factor=4,original_max_position_embeddings=8' '--bias alibi,q_positions=q_real'; do
    n=$((n + 1))
    # shellcheck disable=SC2086
    more_to "more_$n" $option --grad
    differs "more_$n" plain
    for name in out dq dk dv; do
        check "$option: $name has numbers" 0 "$(numbers "$made" $name | grep -c '[^-0-9.e+]')"
    done
    # shellcheck disable=SC2086
    more_to double $option --grad --dtype f64
    for name in out dq dk dv; do
        near "$option: f32 and f64" 2e-4 "$T/made/more_$n.safetensors" $name "$made" $name
    done
done
more_to grad --bias table,table=table,left=3,right=4 --bias dense,bias=dense --relkey table=keys,left=3,right=4 --relval table=values,left=3,right=4 --grad
for shape in 'dq 2,4,7,8' 'dk 2,2,9,8' 'dv 2,2,9,5' 'dtable 4,8' 'ddense 4,7,9' 'dkeys 8,8' 'dvalues 8,5'; do
    check 'a gradient has the shape of its array' "${shape#* }" \
        "$(grep -aoE -m 1 "\"${shape% *}\":\{\"dtype\":\"F32\",\"shape\":\[[0-9,]*" "$made" | sed 's/.*\[//')"
done
more_to threads --bias table,table=table,left=3,right=4 --bias dense,bias=dense --relkey table=keys,left=3,right=4 --relval table=values,left=3,right=4 --grad --threads 2
equal grad threads
more_to with_all --bias table,table=table,left=3,right=4 --bias dense,bias=dense --relkey table=keys,left=3,right=4 --relval table=values,left=3,right=4 \
    --grad --weights --lse --summary
for name in out dq dk dv dtable dkeys; do
    near 'with --weights and --summary' 0 "$T/made/grad.safetensors" $name "$made" $name
done
# An array used twice gets the sum of both gradients.
more_to two --bias table,table=table,left=3,right=4 --bias table,table=again,left=3,right=4 --grad
more_to twice --bias table,table=table,left=3,right=4 --bias table,table=table,left=3,right=4 --grad
numbers "$T/made/two.safetensors" dtable >"$T/one"
numbers "$T/made/two.safetensors" dagain >"$T/two"
numbers "$T/made/twice.safetensors" dtable | paste "$T/one" "$T/two" - >"$T/three"
check 'the sum of two gradients' '32 32' "$(awk '{ d = $1 + $2 - $3; n += d < 1e-6 && d > -1e-6 } END { print NR, n }' "$T/three")"
check 'and the file has one array' 1 "$(grep -aoE '"dtable"' "$T/made/twice.safetensors" | grep -c .)"
more_to query --xl r=xr,u=xu,v=xu --grad # xu is both u and v
more_to queries --xl r=xr,u=xu,v=xv --grad
check 'one gradient for u and v' 1 "$(grep -aoE '"dxu"' "$T/made/query.safetensors" | grep -c .)"
for type in bf16 f16; do
    more_to "grad_$type" --bias alibi,slopes=slopes --grad --dtype $type
    check 'all of that type' 5 "$(grep -aoiE "\"dtype\":\"$type\"" "$made" | grep -c .)"
done
ok attend "$more" -o "$T/grad.npz" --bias alibi,slopes=slopes --grad --dtype f16

# The gradients of the scores sum to dlse, because a constant added to a row's scores is added to its lse.
begin
qkv
put dout F32 2,4,7,5 some 2000 280
put dlse F32 2,4,7 some 4200 56
put dense F32 4,7,9 some 500 252
save "$T/dlse.safetensors"
ok attend "$T/dlse.safetensors" -o "$T/made/dlse.safetensors" --bias dense,bias=dense --grad --dtype f64
sum() { awk '{ sum += $1 } END { printf "%.4f\n", sum }'; }
check 'the sum of the gradients of scores' "$(numbers "$T/dlse.safetensors" dlse | sum)" "$(numbers "$T/made/dlse.safetensors" ddense | sum)"

# Two commands that must give the same attention.
more_to no_sink --sink no_sink
near 'a sink of -infinity' 1e-6 "$made" out "$T/made/plain.safetensors" out
more_to no_xl --xl r=x0
near 'vectors of zeros' 1e-6 "$made" out "$T/made/plain.safetensors" out
more_to dropout --dropout 0.5 --seed 3
more_to dropout_again --dropout 0.5 --seed 3 --threads 2
equal dropout dropout_again
more_to dropout_other --dropout 0.5 --seed 4
differs dropout dropout_other
more_to dropout_none --dropout 0 --seed 4
equal dropout_none plain
more_to offset2 --causal --q-offset 2 --bias log
more_to offset2_array --causal --q-offset both --bias log
equal offset2 offset2_array
more_to offset0_array --causal --q-offset start
equal offset0_array causal
more_to positions --bias log,q_positions=q_whole,k_positions=k_whole
near 'the default positions' 1e-6 "$made" out "$T/made/log.safetensors" out
more_to positions_real --bias log,q_positions=q_index,k_positions=k_whole
equal positions_real positions
more_to rope_positions --rope q_positions=q_index,k_positions=k_whole
more_to rope_default --rope dim=8
near 'the default positions' 1e-6 "$made" out "$T/made/rope_positions.safetensors" out

# Grids: 2 rows of 3 tokens, and a class token.
for tokens in 6 7; do
    begin
    put q F32 1,2,$tokens,8 some 0 $((tokens * 16))
    put k F32 1,2,$tokens,8 some 3000 $((tokens * 16))
    put v F32 1,2,$tokens,8 some 6000 $((tokens * 16))
    put dout F32 1,2,$tokens,8 some 7000 $((tokens * 16))
    put table F32 15,2 some 100 30
    put table_class F32 18,2 some 200 36
    put bh F32 2,3 some 300 6
    put bw F32 2,5 some 400 10
    put rh F32 3,8 some 500 24
    put rw F32 5,8 some 600 40
    put pos F32 $tokens some 700 $tokens
    save "$T/grid$tokens.safetensors"
done
for option in '--bias swin,table=table,grid=2x3' '--bias axial,bh=bh,bw=bw,grid=2x3' '--axialkey rh=rh,rw=rw,grid=2x3' '--rope positions=pos'; do
    # shellcheck disable=SC2086
    ok attend "$T/grid6.safetensors" -o "$T/made/grid.safetensors" $option --grad
done
ok attend "$T/grid7.safetensors" -o "$T/made/grid.safetensors" --bias swin,table=table_class,grid=2x3,extra=1 --grad
check 'the gradient of a table with a class token' 36 "$(numbers "$T/made/grid.safetensors" dtable_class | grep -c .)"

bad_grid() # bad_grid CODE PATTERN TOKENS OPTION...: check the error for this number of tokens
{
    grid_code=$1 grid_pattern=$2 grid_tokens=$3
    shift 3
    refused "$grid_code" "$grid_pattern" attend "$T/grid$grid_tokens.safetensors" -o "$T/kept/a.safetensors" "$@"
}
bad_grid 1 'grid is 2x3, which has 6 tokens, but there are 7' 7 --bias swin,table=table,grid=2x3
bad_grid 1 'grid is 2x3, which has 7 tokens with the class token, but there are 6' 6 --bias swin,table=table_class,grid=2x3,extra=1
bad_grid 1 'table' 6 --bias swin,table=table_class,grid=2x3
bad_grid 1 'table' 7 --bias swin,table=table,grid=2x3,extra=1
bad_grid 1 'bh' 6 --bias axial,bh=bw,bw=bh,grid=2x3
bad_grid 1 'rh' 6 --axialkey rh=rw,rw=rh,grid=2x3
bad_grid 1 'grid is 3x3' 6 --bias axial,bh=bw,bw=bw,grid=3x3
bad_grid 2 'grid' 6 --bias axial,bh=bh,bw=bw,grid=2x3 --bias swin,table=table,grid=3x3
bad_grid 2 '--q-offset is 1' 6 --bias axial,bh=bh,bw=bw,grid=2x3 --q-offset 1
bad_grid 2 'extra is 2' 6 --bias swin,table=table,grid=2x3,extra=2
bad_grid 2 'axial has no key "extra"' 6 --bias axial,bh=bh,bw=bw,grid=2x3,extra=1
for grid in 6 2x 2x3x1 x3 2,3 0x3 -2x3 2.0x3 99999999999x99999999999 ''; do
    bad_grid 2 'grid|key=value' 6 --bias "swin,table=table,grid=$grid"
done

bad_more() # bad_more CODE PATTERN OPTION...: check the error for the file $more
{
    more_code=$1 more_pattern=$2
    shift 2
    refused "$more_code" "$more_pattern" attend "$more" -o "$T/kept/a.safetensors" "$@"
}
refused 1 '--grad: array "dout" is not in the file' attend "$small" -o "$T/kept/a.safetensors" --grad
begin
put q F32 1,1,8,8 some 0 64
put k F32 1,1,8,8 some 0 64
put v F32 1,1,8,8 some 0 64
put dout F32 1,1,7,8 some 0 56
save "$T/bad_dout.safetensors"
bad_file_grad=$T/bad_dout.safetensors
refused 1 'dout: shape is \(1, 1, 7, 8\); it must be \(1, 1, 8, 8\)' attend "$bad_file_grad" -o "$T/kept/a.safetensors" --grad
refused 2 'bf16: \.npz does not support this type' attend "$more" -o "$T/kept/a.npz" --grad --dtype bf16
for value in 1 1.5 -0.1 x nan inf ''; do
    bad_more 2 '--dropout' --dropout "$value"
done
for value in -1 x 1.5 '' 99999999999999999999; do
    bad_more 2 '--seed' --dropout 0.1 --seed "$value"
done
refusals attend "$more" -o "$T/kept/a.safetensors" <<'END'
1 | sink.*\(3\) | --sink b1
1 | "absent" is not in the file | --sink absent
2 | --sink.*name | --sink ''
2 | --sink.*name | --sink a,b
2 | sink | --sink slopes --sink slopes
2 | --sink | --bias sink,sink=slopes
2 | --xl | --bias xl,r=xr
2 | kerple has no key "b" | --bias kerple,p=slopes,b=slopes
2 | kerple.* a is missing | --bias kerple,p=slopes
2 | kind is "cubic"; it must be one of log, power | --bias kerple,p=slopes,a=slopes,kind=cubic
1 | kerple.*shape is | --bias kerple,p=slopes,a=b1
2 | dim is missing | --bias sandwich
2 | dim is 3 | --bias sandwich,dim=3
2 | c is missing | --bias fire,w1=w1,b1=b1,w2=w2,b2=b2,L=2
2 | b2 is missing | --bias fire,w1=w1,b1=b1,w2=w2,c=1,L=2
1 | fire: the shape of its array w1 | --bias fire,w1=b1,b1=b1,w2=w2,b2=b2,c=1,L=2
1 | fire,w1=w2: shape is \(4, 3\); it must be \(4, 1\) | --bias fire,w1=w2,b1=b2,w2=w2,b2=b2,c=1,L=2
1 | fire,w2=w2m: shape is \(2, 3\); it must be \(4, 3\) | --bias fire,w1=w1,b1=b1,w2=w2m,b2=b2,c=1,L=2
1 | fire: b3 is missing | --bias fire,w1=w1,b1=b1,w2=w2m,b2=b2m,w3=w3,c=1,L=2
2 | max_distance is missing | --bias real,table=rt
2 | sign is "2"; it must be 1 or -1 | --bias real,table=rt,max_distance=3,sign=2
1 | table.*shape | --bias real,table=rt,max_distance=4
1 | real,q_position_mask=q_real: dtype is f32; it must be bool or an integer type | --bias real,table=rt,max_distance=3,q_position_mask=q_real
1 | band: the shape of its array p | --bias band,r=br,p=slopes
1 | --bias band,r=q: shape | --bias band,r=q,p=bp
1 | --bias forget,logf=slopes: shape | --bias forget,logf=slopes
1 | --xl r=k: shape | --xl r=k
2 | r is missing | --xl u=xu
1 | --xl u=slopes: shape | --xl r=xr,u=slopes
1 | neither k_pos nor q_pos | --deberta span=3
1 | --deberta k_pos=k_pos: shape | --deberta k_pos=k_pos,span=4
2 | relkey|xl | --relkey table=keys,left=3,right=4 --xl r=xr
2 | deberta|xl | --deberta k_pos=k_pos --xl r=xr
1 | q_positions.*element 3 is nan | --bias log,q_positions=q_nan
1 | q_positions.*shape | --bias log,q_positions=k_whole
1 | "absent" is not in the file | --bias alibi,k_positions=absent
1 | positions.*7 queries and 9 keys|positions.*shape | --rope positions=q_real
2 | scaling is "ntk"; it must be one of | --rope scaling=ntk
2 | factor | --rope scaling=linear,factor=0.5
1 | short_factor|long_factor | --rope scaling=longrope,factor=2,original_max_position_embeddings=4
1 | q_offset|shape | --q-offset q_whole
1 | --q-offset: array "slopes" is f32 | --q-offset slopes
END

finish
