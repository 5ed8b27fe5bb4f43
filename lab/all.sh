#!/bin/sh
# all.sh RELPOS OUT [--quick] -- run the experiments of the laboratory and write a page of the results, OUT/report.html and OUT/report.md. This
# takes hours, or with --quick three minutes on two cores. Results that OUT already has are kept. From the root of the source:
#
#     lab/all.sh build/release/relpos out/lab --quick
#
# Each core runs one experiment on one thread; the results do not depend on the number of threads. overhead.lab measures time and runs alone.
# SPDX-License-Identifier: Apache-2.0
set -eu
usage='usage: lab/all.sh RELPOS OUT [--quick]'
relpos=$(realpath "${1:?$usage}")
out=${2:?$usage}
quick=${3:-}
length=1024 # length of the windows for relpos lab inspect
[ -z "$quick" ] || length=256
export relpos out quick
if ! python3 -c 'import matplotlib' 2>/dev/null; then
    echo 'all.sh: the page needs matplotlib (install Debian'"'"'s python3-matplotlib)' >&2
    exit 1
fi
mkdir -p "$out" out
[ -n "$quick" ] || [ -s out/corpus.txt ] || lab/corpus.sh out/corpus.txt
started=$(date +%s)
# shellcheck disable=SC2016 # the shells that xargs starts expand the variables
printf '%s\n' length buckets strategies clip sharing scaling | xargs -P "$(nproc)" -I '{}' sh -eu -c '
    "$relpos" lab sweep lab/{}.lab $quick --threads 1 -o "$out/{}.jsonl" --keep "$out/models-{}" 2>"$out/{}.log" || {
        cat "$out/{}.log" >&2
        exit 1
    }
    echo "{}: $(wc -l <"$out/{}.jsonl") results"'
"$relpos" lab sweep lab/overhead.lab ${quick:+"$quick"} --threads 1 -o "$out/overhead.jsonl"
for position in t5,bidirectional=0 table,left=128,right=0 relkey,left=64,right=0-relval,left=64,right=0 rope; do
    "$relpos" lab inspect "$out/models-length/$position-1.safetensors" --length "$length" --json
done >"$out/inspect.jsonl"
"$relpos" info --json >"$out/terms.jsonl"
python=build/python/venv/bin/python # tools/python.sh installs the package there
if "$python" -c 'import relpos' 2>/dev/null; then
    "$python" lab/forward.py ${quick:+--rounds 3 --batch 4} -o "$out/forward.jsonl"
fi
cd "$out"
set -- length.jsonl strategies.jsonl buckets.jsonl sharing.jsonl clip.jsonl scaling.jsonl overhead.jsonl terms.jsonl inspect.jsonl
[ ! -s forward.jsonl ] || set -- "$@" forward.jsonl
"$relpos" lab report "$@" -o report.md
"$relpos" lab report "$@" -o report.html
echo "$out/report.html: written after $(($(date +%s) - started)) s"
