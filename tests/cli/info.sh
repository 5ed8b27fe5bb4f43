#!/bin/sh
# info.sh -- test relpos info, and the environment variables that it reports
#
#     tests/cli/info.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh
make_small

ok info
has '^relpos [0-9]' '^instruction sets .*generic yes' '^chosen ' '^threads ' '^build ' '^  t5 ' '^  --causal '
ok info --json
has '^\{"version": "[0-9.]+", "isa": "[a-z0-9_]+", "isa_f32": "[a-z0-9_]+", "isas": \[\{"name": "generic", "found": true\}.*"threads": [0-9]+, "build": \{' \
    '"terms": \[\{"name": "table", .*"syntax": "table,.*", "source": ".*", "formula": "table\[h, clamp.*"arrays": \[\{"name": "table",.*\}' '"masks": \[\{"name": "causal", "option": "--causal", "meaning": .*\}\]\}$'
RELPOS_THREADS=1 ok info --measure
has '^multiplies  *[0-9.]+ GFLOP/s, generic$' '^reads  *[0-9.]+ GB/s$'
RELPOS_THREADS=1 ok info --measure --json
has '^\{"version": .*"name": "generic", "found": true, "peak_gflops": [1-9].*"bytes_per_s": [1-9]'
for setting in RELPOS_THREADS=x RELPOS_THREADS=0 RELPOS_THREADS=-1 RELPOS_THREADS=1e9 RELPOS_ISA=avx1024 RELPOS_HIDE_ISA=AVX2 RELPOS_HIDE_ISA=avx2,nonsense RELPOS_HIDE_ISA='avx2 '; do
    export "${setting?}"
    refused 2 "${setting%%=*}" info
    refused 2 "${setting%%=*}" attend "$small" -o "$T/kept/a.npz"
    unset "${setting%%=*}"
done
RELPOS_THREADS='' RELPOS_ISA='' "$program" info >"$T/one"
ok info
same 'an empty setting is ignored' "$T/one" "$T/out"
command='RELPOS_THREADS=3 RELPOS_ISA=generic relpos info'
RELPOS_THREADS=3 RELPOS_ISA=generic "$program" info >"$T/out"
has '^threads  *3$' '^chosen  *generic$'

# relpos info reports a hidden instruction set, and the sets that need it, as missing. The registry of linear layers reads
# the same variable.
for hidden in avx2 avx512 avx512_vnni avx512_bf16 amx; do
    RELPOS_HIDE_ISA=$hidden "$program" info >"$T/out"
    has "^instruction sets .*generic yes.*"
    case $hidden in
    avx2) has '^chosen  *(generic|neon)$' ;;
    avx512) has '^chosen  *(generic|avx2|neon)$' ;;
    avx512_vnni | avx512_bf16) has '^chosen  *(generic|avx2|avx512|neon)$' ;;
    amx) has '^chosen  *(generic|avx2|avx512|avx512_bf16|neon)$' ;;
    esac
done
RELPOS_HIDE_ISA=amx,avx2 "$program" info >"$T/out"
has '^chosen  *(generic|neon)$'

finish
