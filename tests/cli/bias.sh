#!/bin/sh
# bias.sh -- test relpos bias
#
#     tests/cli/bias.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh
make_small
make_more

prints 'head,query,key,bias
0,0,0,0
0,0,1,-0.5
0,1,0,-0.25
0,1,1,0' bias linear,left=0.25,right=0.5 --q 2 --k 2 -o -
cp "$T/out" "$T/plain"
ok bias linear,left=0.25,right=0.5 --q 2 --k 2 -o "$T/made/a.csv"
same '.csv in a file' "$T/plain" "$T/made/a.csv"
prints '{"bias_of": "linear", "heads": 1, "q": 2, "k": 3, "q_offset": 1, "bias": [[[-1, 0, -1], [-2, -1, 0]]]}' \
    bias linear --q 2 --k 3 --q-offset 1 --json
ok bias alibi --q 1 --k 2 -o -
check 'the eight slopes of ALiBi' '-0.5 -0.25 -0.125 -0.0625 -0.03125 -0.015625 -0.0078125 -0.00390625' \
    "$(sed -n 's/.*,0,1,//p' "$T/out" | paste -s -d ' ')"
ok bias alibi --heads 2 --q 1 --k 2 -o -
check 'two slopes' '-0.0625 -0.00390625' "$(sed -n 's/.*,0,1,//p' "$T/out" | paste -s -d ' ')"
ok bias log log linear,left=1,right=2 --q 1 --k 2 -o -
check 'terms add up' 0.3,-2.416 "$(awk -F , 'NR == 3 { printf "0.3,%.3f\n", $4 }' "$T/out")"
ok bias log --q 5 --k 5
has '^bias of log' '^1  -0\.2079   0\.0000  -0\.2079  -0\.3296  -0\.4159' 'query downward, key to the right'
ok bias log --q 10 --k 10
has '^1 -0\.208  0\.000 -0\.208 -0\.330 -0\.416 -0\.483 -0\.538 -0\.584 -0\.624 -0\.659$'
ok bias log --q 12 --k 12
has '^ 1 -0\.21  0\.00 -0\.21 -0\.33 -0\.42 -0\.48 -0\.54 -0\.58 -0\.62 -0\.66 -0\.69 -0\.72$'
run bias table,left=4,right=4 --q 10 --k 10
has '^5  0  0  1  2  3  4  5  6  7  8$'
ok bias log
has '^bias of log' 'query downward, key to the right'
run bias t5 --q 4 --k 4
check 'buckets where there is no table' '0 1' "$code $(grep -c '^relpos: t5: no table was given' "$T/err")"
has '^bucket of t5' '^1  *1  *0  *17  *18$'
ok bias t5,table=t5 --input "$small" --q 3 --k 3 --head 2 --json
has '"heads": 4'
ok bias t5,table=t5_table --input "$text" --q 40 --k 40 --head 11
for term in kerple kerple,kind=power sandwich,dim=8 fire,c=1,L=4 fire,c=1,L=4,width2=3 real,max_distance=4 band band,width=2,extent=3 forget \
    swin,grid=3x4 swin,grid=3x4,extra=1 axial,grid=3x4 lookup lookup,entries=300; do
    run bias "$term" --heads 2 --json
    check "$term draws its bias without a file" '0 1' "$code $(grep -c '"heads": 2, "q": \(64\|12\|13\), ' "$T/out")"
done
run bias lookup,entries=5 -o -
check 'entries of a table without a file' '0 1 2 3 4' "$(sed -n 's/^0,.*,//p' "$T/out" | sort -u | paste -s -d ' ')"
run bias swin,grid=2x2 -o -
check 'the window index of Swin' '4 3 1 0 5 4 2 1 7 6 4 3 8 7 5 4' "$(sed -n 's/^0,.*,//p' "$T/out" | paste -s -d ' ')"
ok bias real,table=rt,max_distance=3,q_positions=q_real,k_positions=k_whole --input "$more" --q-offset first --json
has '"heads": 4, "q": 7, "k": 9, "q_offset": 2,'
ok bias fire,w1=w1,b1=b1,w2=w2,b2=b2,c=1,L=2 --input "$more" --json
has '"heads": 4'
for term in log,lambda=0.3 alibi 'bucket,strategy=uniform'; do
    for suffix in png svg; do
        run bias "$term" --q 20 --k 30 -o "$T/made/a.$suffix"
        check "a picture of $term as $suffix" 0 "$code"
        run bias "$term" --q 20 --k 30 -o "$T/made/b.$suffix"
        same 'the same picture again' "$T/made/a.$suffix" "$T/made/b.$suffix"
    done
done
command='relpos bias -o a.png, a.svg'
check 'a .png has its first bytes' ' 89 50 4e 47 0d 0a 1a 0a' "$(head -c 8 "$T/made/a.png" | od -An -t x1)"
check 'a .svg begins and ends' '<?xml version="1.0" encoding="UTF-8"?> </svg>' "$(head -n 1 "$T/made/a.svg") $(tail -n 1 "$T/made/a.svg")"
ok bias "dense,bias=dense" --input "$small" -o "$T/made/a.svg" --head 3
ok bias "dense,bias=dense" --input "$small" -o "$T/made/a.csv"
ok bias "dense,bias=dense,interleave=3,tile=2" --input "$small" -o "$T/made/b.csv"
same 'a bias that six batch entries share' "$T/made/a.csv" "$T/made/b.csv"

refusals <<'END'
2 | no term | bias
2 | rope is not a bias: its effect depends on q, k or v | bias rope
2 | relkey is not a bias: its effect depends on q, k or v | bias relkey,table=keys,left=3,right=4
2 | relval is not a bias: its effect depends on q, k or v | bias relval,table=values,left=3,right=4
2 | no term is called "t6" | bias t6
2 | xl is not a bias: its effect depends on q, k or v | bias xl
2 | sink is not a bias: its effect depends on q, k or v | bias sink
2 | grid is missing | bias swin
2 | grid | bias swin,grid=2x3 --q 5
2 | comes from a file | bias log --q-offset offsets
2 | dense: its array bias was not given | bias dense
2 | comes from a file | bias dense,bias=x
1 | "x" is not in the file | bias dense,bias=x --input "$small"
1 | no_such | bias alibi,slopes=s --input "$T/no_such.npz"
2 | the suffix is unknown | bias log -o "$T/kept/a.pdf"
2 | the suffix is unknown | bias log -o "$T/kept/a"
2 | --json | bias log --json -o -
2 | it must be even if bidirectional | bias t5,buckets=31,table=t5 --input "$small"
END
for option in --q --k --heads; do
    for value in 0 -1 x 1e3 0x10 '' 100000000000000000000; do
        refused 2 "$option" bias log $option "$value"
    done
done
refusals bias <<'END'
2 | --head | log --head 1
2 | --head | alibi --head 8
2 | --head | alibi --head -1
2 | --q-offset | log --q-offset 1.5
2 | reduce --heads, --q or --k | log --q 100000 --k 100000
1 | cannot be written | log -o /dev/full/a.png
END
for suffix in png svg csv npz safetensors; do
    refused 1 "cannot create a file in its directory" bias log -o "$T/no_such/a.$suffix"
    ln -sf /dev/full "$T/full.$suffix"
    refused 1 'No space left' bias log -o "$T/full.$suffix"
done

finish
