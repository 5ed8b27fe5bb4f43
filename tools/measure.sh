#!/bin/sh
# measure.sh -- measure the numbers in README.md, docs/costs.md and docs/maintainers/numerics.md again, and write them there.
#   tools/measure.sh [PYTHON]     PYTHON: the interpreter from bench/setup.sh. Without it, the comparison with other libraries is not repeated
# The script takes about half an hour. Use an idle machine. SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
cmake --preset release >/dev/null && cmake --build --preset release >/dev/null
relpos=build/release/relpos
python=${1:-}
n=fwd:f32:b1h8q4096k4096d64
"$relpos" bench --json --seconds 50 "$n" "$n:t5" "$n:alibi" "$n:log" "$n:rope" "$n:relkey,left=64,right=64" \
    "$n:relval,left=64,right=64" "$n:dense" "$n:t5:causal" "$n::causal" >bench/results/terms.jsonl
for isa in generic avx2 avx512 amx neon; do
    RELPOS_ISA=$isa "$relpos" info >/dev/null 2>&1 || continue # this machine lacks the instruction set
    "$relpos" bench --json --isa $isa --seconds 10 "$n" "$n:t5"
done >bench/results/isa.jsonl
"$relpos" bench --json --seconds 4 fwd:f32:b32h12q49k49d32:dense fwd:f32:b1h8q1k65536d64o65535 >bench/results/far.jsonl
"$relpos" bench --json --threads 2 --seconds 1 fwd:f32:b1h8q65536k65536d64:t5 fwdbwd:f32:b1h8q32768k32768d64:t5 \
    >bench/results/memory.jsonl
"$relpos" bench --json --seconds 40 "$n" "$n:t5" "bwd:${n#fwd:}" "bwd:${n#fwd:}:t5" "bwd:${n#fwd:}:t5:causal" \
    >bench/results/backward.jsonl
# time every term at N = 2048, forward and backward, alternately with plain attention
n=f32:b1h8q2048k2048d64
set -- "fwd:$n:" "bwd:$n:"
for term in $("$relpos" info --json | python3 -c '
import json, sys
for term in json.load(sys.stdin)["terms"]:
    for text in term["bench"]:
        print(term["name"] + (text and "," + text) + (":causal" if term["causal"] else ""))'); do
    set -- "$@" "fwd:$n:$term" "bwd:$n:$term"
done
set -- "$@" "fwd:$n::causal" "bwd:$n::causal" "fwd:$n::dropout=0.1" "fwd:$n:t5:positions"
"$relpos" bench --json --seconds 100 "$@" >bench/results/costs.jsonl
python3 bench/machine.py "$relpos" terms.jsonl isa.jsonl far.jsonl memory.jsonl backward.jsonl costs.jsonl
build/release/errors >bench/results/errors.md
if [ -n "$python" ]; then
    "$python" bench/peers.py build/release/librelpos.so -o bench/results/peers.json
    "$python" bench/plots.py
fi
python3 bench/report.py
python3 bench/gain.py
python3 bench/summary.py
python3 tools/numbers.py
