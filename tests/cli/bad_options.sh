#!/bin/sh
# bad_options.sh -- test the errors of relpos attend about arrays, terms, numbers and names. Control characters in arguments never reach the terminal.
#
#     tests/cli/bad_options.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh
make_small

bad() # bad CODE PATTERN OPTION...: check the error of these options with the small file
{
    bad_code=$1 bad_pattern=$2
    shift 2
    refused "$bad_code" "$bad_pattern" attend "$small" -o "$T/kept/a.safetensors" "$@"
}
# The array of a term or mask is missing, or has the wrong shape or type.
for option in '--bias table,left=3,right=4,table=' '--bias t5,table=' '--bias bucket,table=' '--bias alibi,slopes=' '--bias dense,bias=' \
    '--relkey left=3,right=4,table=' '--relval left=3,right=4,table=' '--key-mask ' '--mask ' '--lengths ' '--segments '; do
    option_value=${option#* }
    bad 1 '"absent" is not in the file \(it has q, k, v' "${option%% *}" "${option_value}absent"
    bad 1 '\bq\b|mask|lengths|segments|slopes|table|bias' "${option%% *}" "${option_value}q"
    bad 1 '"odd_type"' "${option%% *}" "${option_value}odd_type"
    case $option in
    --*mask* | --lengths* | --segments*) bad 1 'f32|type|numbers must be equal' "${option%% *}" "${option_value}real" ;;
    *) bad 1 '(u8|type)' "${option%% *}" "${option_value}key_U8" ;;
    esac
done
refusals attend "$small" -o "$T/kept/a.safetensors" <<'END'
1 | table | --bias table,table=table,left=3,right=3
1 | table | --bias t5,table=t5,buckets=16
1 | table | --bias t5,table=dense
1 | table | --relkey table=values,left=3,right=4
1 | table | --relval table=keys,left=3,right=4
1 | table | --relkey table=keys_h,left=3,right=5
1 | segments | --segments segments # segments need equal numbers of queries and keys
1 | --key-mask blocks: shape | --key-mask blocks
1 | mask | --mask blocks
1 | lengths | --lengths key_I64
1 | slopes | --bias alibi,slopes=table
END

# Terms: unknown names; keys that are unknown, given twice, missing or without a value.
refusals attend "$small" -o "$T/kept/a.safetensors" <<'END'
2 | ^relpos: --bias: no term is called "t6".*did you mean "t5" | --bias t6
2 | no term is called "" | --bias ''
2 | no term is called "T5" | --bias T5,table=t5
2 | no term is called " t5" | --bias ' t5,table=t5'
2 | t5.*table | --bias t5 # no table is named
2 | dense.*bias | --bias dense
2 | table: left is missing | --bias table,table=table,right=4
2 | relkey: right is missing | --relkey table=keys,left=3
2 | relval.*table | --relval left=3,right=4
2 | t5 has no key "bucket".*did you mean "buckets" | --bias t5,table=t5,bucket=32
2 | buckets was given twice | --bias t5,table=t5,buckets=32,buckets=32
2 | table was given twice | --bias t5,table=t5,table=t5
2 | "buckets" is not key=value | --bias t5,table=t5,buckets
2 | "buckets=" is not key=value | --bias t5,table=t5,buckets=
2 | "" is not key=value | --bias t5,table=t5,
2 | "=3" is not key=value | --bias t5,table=t5,=3
2 | "table=" is not key=value | --bias t5,table=
END
for number in 0x10 1e3 1.5 ' 4' '4 ' nan '' 100000000000000000000; do
    bad 2 'buckets' --bias "t5,table=t5,buckets=$number"
    bad 2 'left' --relkey "table=keys,left=$number,right=4"
done
for number in 0x1p3 nan inf -inf ' 1' '1 ' 1,5 '' 1e999 --1 1e; do
    bad 2 'lambda|5.* is not key=value' --bias "log,lambda=$number"
    bad 2 '--scale' --scale "$number"
    bad 2 '--softcap' --softcap "$number"
    bad 2 '--softcap-after' --softcap-after "$number"
done
refusals attend "$small" -o "$T/kept/a.safetensors" <<'END'
2 | buckets | --bias t5,table=t5,buckets=1
2 | buckets | --bias t5,table=t5,buckets=31
2 | buckets | --bias t5,table=t5,buckets=-32
2 | max_distance | --bias t5,table=t5,max_distance=8
2 | bidirectional is "2"; it must be 0 or 1 | --bias t5,table=t5,bidirectional=2
2 | strategy | --bias bucket,table=t5,strategy=cubic
2 | left | --bias table,table=table,left=-3,right=4
2 | base is 0; it must be above 0 | --rope base=0
2 | base is -1; it must be above 0 | --rope base=-1
2 | dim | --rope dim=7
1 | dim | --rope dim=10 # wider than the q of this file
2 | dim | --rope dim=-2
2 | layout | --rope layout=quarter
2 | --rope | --bias rope,dim=8
2 | --relkey | --bias relkey,table=keys,left=3,right=4
2 | rope | --rope dim=8 --rope dim=8
2 | relkey | --relkey table=keys,left=3,right=4 --relkey table=keys,left=3,right=4
2 | too many terms | --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log
2 | too many masks | --causal --causal --causal --causal --causal --causal --causal --causal --causal
2 | longer than | --bias "t5,table=$(zeros 3000 | tr '\0' n)"
END

# Numbers and names of the other options.
for value in 5 '5,' ',5' 5,0,0 5,x x,0 5,-2 -2,5 ' 5,0' '5, 0' 5:0 0x5,0 5.0,0 99999999999999999999,0 ''; do
    bad 2 '--window' --window "$value"
done
for value in 0 -1 1000000 4097 x 2.0 1e1 '' ' 2' 99999999999999999999; do
    bad 2 '--threads' --threads "$value"
done
for value in 1.5 0x10 1e3 '' ' 4' 99999999999999999999 9223372036854775807; do
    bad 2 '--q-offset' --q-offset "$value"
done
refusals attend "$small" -o "$T/kept/a.safetensors" <<'END'
2 | "-5x" is not a whole number \(write digits, after a minus sign if it is negative\) | --q-offset -5x
2 | "-99999999999999999999" is too small \(-[0-9]* to [0-9]*\) | --q-offset -99999999999999999999
2 | "2x" is not a whole number \(write digits only\) | --threads 2x
1 | "offsets" is not in the file | --q-offset offsets
1 | --q-offset: array "slopes" is f32 \(use whole numbers | --q-offset slopes
1 | --q-offset key_I64: shape | --q-offset key_I64
1 | "Offsets" is not in the file | --q-offset Offsets
1 | "_offsets" is not in the file | --q-offset _offsets
2 | --q-offset: the name is longer than [0-9]+ bytes | --q-offset $(printf "n%0999d" 1)
2 | --sink: it needs the name of an array | --sink a,b
2 | --sink: it needs the name of an array | --sink $(printf "n%0999d" 1)
2 | --softcap: it was given twice | --softcap 3 --softcap-after 4 --softcap 3
2 | --softcap-after: it was given twice | --softcap-after 3 --softcap-after 3
END
for value in f8 F32 float32 ''; do
    bad 2 '--dtype: .*is not a type \(use f32, f64, bf16 or f16\)' --dtype "$value"
done
refusals attend "$small" -o "$T/kept/a.safetensors" <<'END'
2 | --softcap.*below 0 | --softcap -1
2 | --softcap-after.*below 0 | --softcap-after -1
2 | --isa.*"avx1024".*relpos info | --isa avx1024
2 | --isa | --isa ''
2 | --mask.*name | --mask ''
2 | --key-mask.*name | --key-mask ''
END

# Messages that quote arguments: control characters are escaped, and the message stays one line.
evil=$(printf 'a\033[31mb\nc\177')
for option in --bias --dtype --window --isa --threads --scale --softcap --q-offset --mask --key-mask --rope --relkey; do
    run attend "$small" -o "$T/kept/a.npz" "$option" "$evil"
    check 'one line without control characters' '1 0' "$(($(wc -l <"$T/err"))) $(tr -d '\n' <"$T/err" | grep -c '[[:cntrl:]]')"
done
for words in "$evil" "attend	x	$evil	-o	x.npz" "attend	x	-o	$evil" "attend	$evil	-o	x.npz" "attend	-o	x.npz	--$evil" "attend	x	-o	$T/no/$evil.npz" \
    "verify	fwd:f32:b1h1q1k1d1:$evil" "verify	--isa	$evil" "bench	$evil" "bench	fwd:f32:$evil" "bucket	$evil" "bias	$evil" "bias	log	-o	$evil" \
    "bias	t5,table=$evil" "bucket	--strategy	$evil" "explain	--bias	$evil" "explain	--input	$evil" "info	$evil" \
    "attend	$small	-o	x.npz	--bias	log,lambda=$evil" "attend	$small	-o	x.npz	--bias	log,$evil=1" "attend	$small	-o	x.npz	--bias	log,$evil" \
    "attend	$small	-o	x.npz	--bias	rope,layout=$evil" "attend	$small	-o	x.npz	--bias	bucket,strategy=$evil"; do
    IFS='	'
    # shellcheck disable=SC2086
    run $words
    unset IFS
    check 'a failure' failed "$([ $code -eq 1 ] || [ $code -eq 2 ] && echo failed || echo "exit code $code")"
    check 'one line without control characters' '1 0' "$(($(wc -l <"$T/err"))) $(tr -d '\n' <"$T/err" | grep -c '[[:cntrl:]]')"
done

finish
