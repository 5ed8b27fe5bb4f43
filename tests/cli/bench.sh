#!/bin/sh
# bench.sh -- test relpos bench
#
#     tests/cli/bench.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

ok bench fwd:f32:b1h1q64k64d32:t5:causal fwd:f32:b1h1q64k64d32 --json --seconds 0.1 --threads 1
check 'one object per problem' '2 2' "$(($(wc -l <"$T/out"))) $(grep -c '^{.*}$' "$T/out")"
for key in problem isa threads runs ms ms_min ms_max gflops peak_gflops share_of_peak bytes_per_s bytes_peak pairs_computed clock; do
    check "the key $key, on both lines" 2 "$(grep -cE "[{ ]\"$key\": (\"[^\"]+\"|[0-9.e+-]+)[,}]" "$T/out")"
done
ok bench fwd:f64:b1h1q64k64d32 bwd:f32:b1h1q64k64d32:t5 fwdbwd:bf16:b1h1q64k64d32 --json --seconds 0.1
check 'one object per problem' 3 "$(grep -c '^{.*}$' "$T/out")"
ok bench jvp:f32:b1h1q64k64d32:t5 hvp:f32:b1h1q20k20d8 --json --seconds 0.1
check 'one object per problem' 2 "$(grep -c '^{.*}$' "$T/out")"
ok bench fwd:f32:b1h1q64k64d32 --seconds 0.1 --processor --json
has '"clock": "processor"\}$'
ok bench fwd:f32:b1h1q64k64d32 --seconds 0.1
has '^fwd:f32:b1h1q64k64d32 .* ms .*runs.*GFLOP/s.*% of peak'

# flops PROBLEM NUMBER: check the number of operations: two for each multiply-add of a pair that causal terms and masks without arrays leave
flops()
{
    ok bench "$1" --seconds 0.001 --json
    check 'operations' "$2" "$(sed 's/.*"ms": \([^,]*\),.*"gflops": \([^,]*\),.*/\1 \2/' "$T/out" | awk -v want="$2" '{ n = $1 * $2 * 1e6; print (n > 0.999 * want && n < 1.001 * want ? want : n) }')"
}
flops fwd:f32:b2h1q8k8d8v4::q_offsets+window=2,0 576 # 21 and 3 pairs
flops fwd:f32:b1h1q8k8d8:forget 1152
flops fwd:f32:b1h1q8k5d8:forget 960 # 30 pairs
flops fwd:f32:b1h1q8k8d8::key_mask 2048
flops fwd:f32:b1h1q8k8d8::causal+window=1,3 480 # 15 pairs
flops hvp:f64:b1h1q4k4d4::softcap=2+dsoftcap 2048
flops jvp:f64:b1h1q4k4d4:t5 768
flops bwd:f32:b1h2q4k4d4v2:t5 1024
refused 2 'no problem' bench
refused 2 'avx1024' bench fwd:f32:b1h1q1k1d1 --isa avx1024
for value in 0 -1 x 5000; do
    refused 2 '--threads' bench fwd:f32:b1h1q1k1d1 --threads "$value"
done
for value in 0 -1 x nan ''; do
    refused 2 '--seconds' bench fwd:f32:b1h1q1k1d1 --seconds "$value"
done

finish
