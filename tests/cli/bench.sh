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
refused 2 'no problem' bench
refused 2 'avx1024' bench fwd:f32:b1h1q1k1d1 --isa avx1024
for value in 0 -1 x 5000; do
    refused 2 '--threads' bench fwd:f32:b1h1q1k1d1 --threads "$value"
done
for value in 0 -1 x nan ''; do
    refused 2 '--seconds' bench fwd:f32:b1h1q1k1d1 --seconds "$value"
done

finish
