#!/bin/sh
# explain.sh -- test relpos explain
#
#     tests/cli/explain.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh
make_small
make_square
make_more
make_no_keys

ok explain
check 'the worked example, byte for byte' '' "$(diff tests/golden/explain.txt "$T/out" | head -n 5)"
ok explain --bias log,lambda=0.3 --query 0
same 'its defaults' tests/golden/explain.txt "$T/out"
ok explain --query 2
has "for 'sat' \(query 2 of 0 to 4\)" '^Raw scores  *1\.0000  *2\.0000  *2\.0000  *1\.0000  *1\.5000' \
    '^Attention weights: exp\(biased score - 1\.0000\) / 3\.3013' '^Exponentials  *0\.4362  *0\.8123  *1\.0000  *0\.4927  *0\.5601' \
    '^ *A\[sat,sat\] = 0\.3029 \(d=0\) \|###############\|$' '^Output\[sat\] = \[0\.2170 0\.3309 0\.3877 0\.2341\]$' \
    '^Difference  *-0\.0198  *-0\.0045  *\+0\.0524  *-0\.0027  *-0\.0254'
ok explain --json
has '^\{"tokens": \["The", "cat", "sat", "on", "mat"\], "query": 0, "raw": \[0, 2, 1, 1, 1\.5\], "scaled": \[0, 1, 0\.5, 0\.5, 0\.75\], "bias": \[0, -0\.2079'
has '"parts": \[\{"name": "content", "kind": "content", "formula": "scale \* q \. k", "values": \[0, 1, 0\.5, 0\.5, 0\.75\]\}, \{"name": "log", "kind": "bias"'
for key in score weights weights_plain difference out; do
    has "\"$key\": \\[[-0-9.e, ]+\\]"
done
has '"lse": 1\.915[0-9]*\}$'
ok explain --outputs --query 2
has '^All outputs$' '^Output\[sat\] = \[0\.2170 0\.3309 0\.3877 0\.2341\]$'
sed '1,/^All outputs/d' "$T/out" >"$T/rows"
for query in 0 1 2 3 4; do # each row equals the row printed for that query alone
    "$program" explain --query $query | grep '^Output'
done >"$T/single"
same 'all outputs' "$T/single" "$T/rows"
ok explain --outputs --json
check 'all outputs as JSON' "$(sed 's/.*\[\([^]]*\)\]$/\1/; s/ /, /g' "$T/single" | tr '\n' ';')" \
    "$(sed 's/.*"outputs": \[\[//; s/\]\]}$//; s/\], \[/\n/g' "$T/out" | awk -F', ' '{ printf "%.4f, %.4f, %.4f, %.4f;", $1, $2, $3, $4 }')"
ok explain --no-bias --query 4
has '^Standard  *0\.1892  *0\.1892  *0\.1892  *0\.1892  *0\.2430' '^Output\[mat\] = \[0\.3108 0\.3108 0\.3108 0\.3108\]'
ok explain --causal --query 0 --json
has '"score": \[0, null, null, null, null\], "weights": \[1, 0, 0, 0, 0\]'
ok explain --causal --q-offset -1 --json
has '"lse": null'
ok explain --causal --q-offset -1
has 'every key is masked'
ok explain 'the cat sat on the mat' --query 2 --bias linear,left=0.5,right=1
has '^q, k and v are computed from the letters' "for 'sat' \(query 2 of 0 to 5\)" 'd \* \(0\.5 before the query, 1 after it\)'
cp "$T/out" "$T/plain"
ok explain the cat sat on the mat --query 2 --bias linear,left=0.5,right=1
same 'words or a sentence' "$T/plain" "$T/out"
command='printf ... | relpos explain -'
printf ' the\tcat\nsat  on the\r\nmat\n' | "$program" explain - --query 2 --bias linear,left=0.5,right=1 >"$T/out"
same 'a sentence through a pipe' "$T/plain" "$T/out"
ok explain 'one two three four five six seven eight nine ten eleven twelve thirteen fourteen'
has '^The 12 heaviest of 14 keys' '^Heaviest keys without any position term'
ok explain --all 'one two three four five six seven eight nine ten eleven twelve thirteen fourteen'
has '^ *13  *fourteen '
check 'no list of the heaviest' 0 "$(grep -c heaviest "$T/out")"
ok explain --rope dim=4 --scale 1 --softcap 5 --window 2,1 a b c
has '^Raw scores ' '^Content ' '^Rotation ' '^Softcap ' '^Mask  *0\.0000 ' '^Biased scores '
# Shaw 2018 with the numbers of the worked example: the output has a row for position, and the content equals raw times
# the scale.
ok explain --input examples/data/shaw.npz --relkey table=a_k,left=3,right=3 --relval table=a_v,left=3,right=3
has '^Raw scores  *-1\.8301 ' '^Scaled scores  *-0\.9150 ' '^relkey  *0\.4036 ' '^Biased scores  *-0\.5114 ' \
    '^values\[word 0\] = \[-0\.1622 ' '^relval\[word 0\] = \[0\.7179 ' '^Output\[word 0\] = \[0\.5557 '
check 'no row of biases without a bias' 0 "$(grep -c '^Bias values' "$T/out")"
ok explain --bias alibi --head 7 a b c
ok explain --input "$text" --query 17 --head 2 --bias alibi
has "for 'nation' \(query 17 of 0 to 330\)" '^Heaviest keys without any position term'
ok explain --brief
has "query 0 'The'" '^  cat .*\+1 .*0\.2976 #+ +cat .*\+1 .*0\.3253 #+$' '^Share of weight by distance' \
    '^ *0  *20\.1 %  #+  *25\.1 %  #+$' '^ *1  *36\.8 % .* 37\.6 % '
ok explain --input "$text" --head 2 --query 17 --bias alibi --brief -o "$T/made/head.svg"
ok attend "$text" -o "$T/made/head.safetensors" --bias alibi --summary
ok attend "$text" -o "$T/made/head_plain.safetensors" --summary
shares=$(for file in head_plain head; do # offset 0 of head 2: each head has 661 offsets, from -330
    numbers "$T/made/$file.safetensors" profile | awk 'NR == 2 * 661 + 331 { printf "%.1f %%\n", 100 * $1 }'
done | paste -s -d ' ')
ok explain --input "$text" --head 2 --query 17 --bias alibi --brief
check 'the weight of distance 0 matches attend --summary' "$shares" \
    "$(sed -n '/^Share/,$s/^ *0  *\([0-9.]* %\) .* \([0-9.]* %\) .*/\1 \2/p' "$T/out")"
begin
for array in q k v; do
    put $array F32 1,2,1500,4 some 0 12000
done
save "$T/made/long.safetensors"
steep="--input $T/made/long.safetensors --bias linear,left=3,right=3 --causal"
ok explain $steep --json
has '"pairs": \{"allowed": 2251500, "computed": [1-9][0-9]{5}\}'
share=$(sed 's/.*"allowed": \([0-9]*\), "computed": \([0-9]*\).*/\1 \2/' "$T/out" | awk '{ printf "%.1f %%", 100 * $2 / $1 }')
ok explain $steep --brief
check 'the same fraction as text' "$share" "$(sed -n 's/^Pairs computed, of all heads: \([0-9.]* %\) (.*/\1/p' "$T/out")"
export RELPOS_SKIP=0
ok explain $steep --json
has '"pairs": \{"allowed": 2251500, "computed": 2251500\}'
ok explain $steep --brief
check 'no message if every pair is computed' 0 "$(grep -c '^Pairs computed' "$T/out")"
unset RELPOS_SKIP
for suffix in png svg; do
    ok explain -o "$T/made/a.$suffix"
    same 'the text is printed too' tests/golden/explain.txt "$T/out"
    ok explain --json -o "$T/made/b.$suffix"
    same 'the same picture again' "$T/made/a.$suffix" "$T/made/b.$suffix"
    refused 1 'cannot create a file' explain -o "$T/no_such/a.$suffix"
    ln -s /dev/full "$T/full.$suffix"
    refused 1 'No space left' explain -o "$T/full.$suffix"
done
check 'a .png has its first bytes' ' 89 50 4e 47 0d 0a 1a 0a' "$(head -c 8 "$T/made/a.png" | od -An -t x1)"
check 'a .svg begins and ends' '<?xml version="1.0" encoding="UTF-8"?> </svg>' "$(head -n 1 "$T/made/a.svg") $(tail -n 1 "$T/made/a.svg")"
ok explain --input "$small" --batch 1 --head 3 --query 6 --bias t5,table=t5 --bias dense,bias=dense --relkey table=keys,left=3,right=4 \
    --relval table=values,left=3,right=4 --rope dim=8 --key-mask key_BOOL --mask row --lengths lengths --softcap-after 20
ok explain --input "$square" --segments segments
ok explain --input "$more" --batch 1 --head 2 --query 3 --xl r=xr,u=xu --sink slopes --bias band,r=br,p=bp --bias log,q_positions=q_real \
    --q-offset first
has ' \+ P \+ B\) V' 'P = position scores of xl,r=xr,u=xu' 'a sink adds' 'over all keys and the sink' ',sink\] = [0-9.]* \(logit ' \
    ' xl\.r  *xl\.u  *band  *Bias values  *Biased'
"$program" explain "$(printf 'plain \033[31mred\033[0m \377\376 caf\303\251')" >"$T/out"
check 'control characters in words are escaped' 0 "$(grep -c "$(printf '\033\\|\377')" "$T/out")"
has 'x1b\[31mred' "$(printf 'caf\303\251')"
printf 'a\000b\n' | "$program" explain - >"$T/out" 2>"$T/err"
check 'a text with a NUL' yes "$([ $? -le 1 ] && echo yes)"

refused 2 '--query: 5 is out of range \(0 to 4\)' explain --query 5
for value in -1 x 1.0 '' 100000000000000000000; do
    refused 2 '--query' explain --query "$value"
    refused 2 '--head' explain --head "$value"
    refused 2 '--batch' explain --batch "$value"
done
refusals explain <<'END'
2 | --head | --head 1
2 | --head | --bias alibi --head 8
2 | --batch | --batch 1
2 | --head | --input "$small" --head 4
2 | no words | ''
2 | no words | '  ' ' '
2 | the suffix is unknown | -o "$T/kept/a.npz"
2 | the suffix is unknown | -o "$T/kept/a"
2 | the suffix is unknown | -o ''
2 | --no-bias | --no-bias --bias log
2 | --input | --input "$small" a b
2 | --input | --bias t5
2 | --input | --bias dense,bias=x
2 | --input | --bias alibi,slopes=x
2 | --input | --key-mask x
2 | --input | --mask x
2 | --input | --segments x
2 | --input | --bias kerple
2 | --input | --sink s
2 | --input | --q-offset offsets
2 | max_position|original | --rope scaling=yarn
2 | dim | --rope dim=3
2 | no term is called | --bias t6
1 | no_such | --input "$T/no_such.npz"
1 | it is a directory | --input "$T"
1 | "x" is not in the file | --input "$small" --mask x
1 | axis of length 0 | --input "$no_keys"
END

# special characters of JSON are escaped
ok explain "$(printf 'say "a\\b" \001x \302\233y \303\251')" --json
has '"tokens": \["say", "\\"a\\\\b\\"", "\\\\x01x", "\\\\x9by", "é"\]'

finish
