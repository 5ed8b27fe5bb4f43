#!/bin/sh
# verify.sh -- test relpos verify, and the errors of verify and bench about problem strings
#
#     tests/cli/verify.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

ok verify fwd:f32:b1h2q33k40d16:t5+log:causal
has '^[1-9][0-9]* problems? checked, 0 failed'
ok verify fwd:f32:b1h1q5k5d4 fwd:f32:b1h4g2q7k9d8v5:alibi:window=3,0+key_mask --verbose --isa generic --seed 3
has '^ok .*generic .*b1h1q5k5d4' '^ok .*generic .*b1h4g2q7k9d8v5:alibi' '^2 problems checked, 0 failed' '; 2 also computed without skipping tiles: 0 of them skip some by default'
ok verify fwd:f32:b1h2q100k1500d8o1400:linear,left=0.5,right=0.5 bwd:f32:b1h1q9k1200d8o1191:linear,left=1,right=1:causal fwd:f32:b1h1q5k5d4 --isa generic
has '; 3 also computed without skipping tiles: 2 of them skip some by default'
ok verify fwd:f32:b1h1q5k5d4 --json --isa generic
has '^\{"problem": "fwd:f32:b1h1q5k5d4", "isa": "generic", "seed": 7, "passed": true, "pairs_computed": 1.0000, "found": '
for problem in '' fwd fwd:f32 fwd:f32:b1h1q:t5 fwd:f8:b1h1q1k1d1 sideways:f32:b1h1q1k1d1 fwd:f32:x1 fwd:f32:b1h1q1k1d1:t6 fwd:f32:b1h1q1k1d1:t5:caus \
    fwd:f32:b1h1q1k1d1:t5:window=5 fwd:f32:b1h1q1k1d1:t5:causal:more fwd:f32:b1h1q1k1d1:t5,buckets=x fwd:f32:b1h1q1k1d1:t5+:causal \
    fwd:f32:b1h1q1k1d1::softcap fwd:f32:b1h1q1k1d1::softcap=x fwd:f32:b1b1h1q1k1d1 fwd:f32:b1h1q1k1d1::scale=2+scale=2 fwd:f32:b1h1q1k1d1::softcap_after=2+softcap_after=3 \
    "fwd:f32:" fwd:f32:b1h1q1k1d1::scale= fwd:f32:b1h1q1k1d1::scale=inf fwd:f32:b1h1q1k1d1::softcap=1e fwd:f32:b1h1q1k1d1::window=1 \
    fwd:f32:b1h1q1k1d1::window=1,2,3 fwd:f32:b1h1q1k1d1::seed= fwd:f32:b1h1q1k1d1::seed=1x fwd:f32:b1h1q1k1d1::causal=1 \
    fwd:f32:b1h1q1k1d1::high=1 "fwd:f32:b1h1q1k1d1::causal$(printf '+causal%.0s' 1 2 3 4 5 6 7 8)" \
    "fwd:f32:b1h1q1k1d1:alibi$(printf '+alibi%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)" "fwd:f32:b1h1q1k1d1:$(printf '%0512d' 0)" \
    fwd:f32:b1h1q1k1d1::window=,3 fwd:f32:b1h1q1k1d1::window fwd:f32:b1h1q1k1d1::seed fwd:f32:b1h1q1k1d1::scale=1e+x fwd:f32:b1h1q1k1d1::scale=1e+: \
    fwd:f32:b/1h1q1k1d1 fwd:f32:b:h1 fwd:f32:b1h1q1k1d1:swin,grid=2 fwd:f32:b1h1q1k1d1:swin,grid=2x fwd:f32:b1h1q1k1d1:swin,grid=x2 \
    fwd:f32:b1h1q1k1d1::positions+positions fwd:f32:b1h1q1k1d1::seed=1+causal+seed=1 fwd:f32:b0x10h1q1k1d1 fwd:f32:b99999999999999999999h1q1k1d1; do
    refused 2 'problem' verify "$problem"
    refused 2 'problem' bench "$problem"
done
for problem in bwd:f32:b1h2q33k40d16:t5+relkey,left=3,right=3:causal fwdbwd:f64:b1h2q9k40d16:alibi+sink,rows=1 fwd:bf16:b1h2q9k40d16:xl \
    fwdbwd:f16:b1h2q9k40d16:rope fwd:f32:b2h2q9k12d8:kerple+fire,c=1,L=4+band:positions fwd:f32:b2h2q6k6d8:swin,grid=2x3:dropout=0.5+seed=3 \
    fwd:f32:b2h2q9k12d8:alibi,slopes=given+real,max_distance=3:q_offsets+causal fwd:f32:b1h2q9k9d8:deberta,span=4+forget \
    jvp:f32:b1h4g2q33k40d16v9:t5+rope+sink:causal+softcap=2 jvp:bf16:b1h2q9k40d16:xl hvp:f32:b1h2q9k9d8:alibi,slopes=x+kerple:mask; do
    ok verify "$problem"
    has '^[1-9] problems? checked, 0 failed'
done
for problem in fwd:f32:b1h1q4k4d4::dropout=1 fwd:f32:b1h1q4k5d4:swin,grid=2x2 fwd:f32:b1h1q4k4d4:relkey,left=1,right=1+xl \
    fwd:f32:b1h1q4k4d4:sink+sink; do
    refused 1 'problem' verify "$problem"
done
ok verify fwd:f32:b1h1q5k5d4:none: --isa generic
has '^1 problems checked, 0 failed'
for setting in dropout=x dropout seed=-1 seed=x q_offsets=1 positions=p; do
    refused 2 'problem' bench "fwd:f32:b1h1q4k4d4::$setting"
done
for sizes in b1h0q1k1d1 b1h3g2q1k1d1 b1h1q1k1d0 b-1h1q1k1d1 b1h1q-5k1d1 b4000000000h4000000000q4000000000k1d1 b1h1q1000000000k1000000000d1000; do
    run verify "fwd:f32:$sizes"
    check 'impossible sizes' 'failed 1 0' "$([ $code = 1 ] || [ $code = 2 ] && echo failed) $(grep -vc '^==.*WARNING: AddressSanitizer' "$T/err") $(($(wc -c <"$T/out")))"
done
refused 2 'avx1024' verify fwd:f32:b1h1q1k1d1 --isa avx1024
ok verify --random 40 --seed 11
has '^[1-9][0-9]* problems checked, 0 failed' '^[0-9]+ random problems were refused with a reason and drawn again'
refused 2 '--random' verify --random 0
refused 2 '--random' verify --random 5 fwd:f32:b1h1q1k1d1
refused 2 '--seed' verify fwd:f32:b1h1q1k1d1 --seed x

finish
