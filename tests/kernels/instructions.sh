#!/bin/sh
# instructions.sh -- find slow-downs without a quiet machine. Count the instructions that a call executes per score (attended
# pair of query and key), and compare with the counts in tests/kernels/instructions.txt.
#
#     tests/kernels/instructions.sh               count in the preset dev; fail if a number differs by more than 5 %
#     tests/kernels/instructions.sh --record      count and write tests/kernels/instructions.txt
#
# valgrind counts generic and avx2; it does not support AVX-512. perf counts avx512 and amx, on machines whose processor counts
# instructions. The count reveals a loop that runs twice, a lost vector path or an extra copy, but not a cache miss.
# Exit codes: 1: a number differs; 77: skipped, because valgrind is missing or the record is from another compiler.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
LC_ALL=C
export LC_ALL
record=tests/kernels/instructions.txt tolerance=5
case ${1-} in
'') anew=no ;;
--record) anew=yes ;;
*) echo "usage: tests/kernels/instructions.sh [--record]" >&2; exit 2 ;;
esac
command -v valgrind >/dev/null || { echo "skipped: no valgrind (apt-get install valgrind)"; exit 77; }
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
trap 'exit 1' HUP INT TERM
{ cmake --preset dev && cmake --build --preset dev --target count; } >"$T/log" 2>&1 || { tail -n 30 "$T/log"; exit 1; }
cd build/dev/tests # ./count: the length of a path changes the alignment of the stack

compiler=$(./count)
recorded=$(sed -n 's/^# compiler: //p' "$root/$record")
if [ $anew = no ] && [ "$compiler" != "$recorded" ]; then
    echo "skipped: built by $compiler, and $record holds what $recorded makes of the code"
    exit 77
fi
perf=no
if command -v perf >/dev/null && perf stat -x, -e instructions:u -o "$T/perf" true 2>/dev/null && grep -q '^[0-9]' "$T/perf"; then
    perf=yes
fi

# Make the C library copy memory with instructions that every x86-64 processor has, because its choice for this processor
# would change the count.
clean()
{
    without=-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-AVX,-FMA,-FMA4,-BMI2,-SSSE3,-ERMS,-FSRM,-AVX_Fast_Unaligned_Load,-Fast_Unaligned_Copy
    env -i LD_BIND_NOW=1 GLIBC_TUNABLES=glibc.cpu.hwcaps=$without "$@" </dev/null >"$T/pairs" 2>"$T/err"
}

by_perf() # by_perf PROBLEM ISA CALLS: print the number of instructions of the whole program
{
    clean "$(command -v perf)" stat -x, -e instructions:u -o "$T/perf" ./count "$@" && sed -n 's/^\([0-9]*\),.*/\1/p' "$T/perf"
}

# found PROBLEM ISA: print instructions per score, "-" if they cannot be counted on this machine
found()
{
    code=0
    case $2 in
    generic | avx2)
        clean "$(command -v valgrind)" --tool=callgrind --toggle-collect=problem_run --callgrind-out-file="$T/callgrind" \
            ./count "$1" "$2" || code=$?
        [ $code != 0 ] || total=$(sed -n 's/^totals: //p' "$T/callgrind") ;;
    *)
        [ $perf = yes ] || code=77
        [ $code != 0 ] || one=$(by_perf "$1" "$2" 1) || code=$?
        [ $code != 0 ] || five=$(by_perf "$1" "$2" 5) || code=$?
        [ $code != 0 ] || total=$(((five - one) / 4)) ;;
    esac
    case $code in
    0) awk -v n="$total" '{ printf "%.2f\n", n / $1 }' "$T/pairs" ;;
    77) echo - ;;
    *) cat "$T/err" >&2; return 1 ;;
    esac
}

echo "instructions per score, built by $compiler"
printf '%-48s %-8s %9s %9s %11s\n' problem isa found recorded difference
off=0
while read -r line; do
    case $line in
    '# compiler: '*) line="# compiler: $compiler" ;;
    fwd:* | bwd:* | fwdbwd:*)
        # shellcheck disable=SC2086
        set -- $line
        problem=$1 line=$(printf '%-48s' "$1")
        for isa in generic avx2 avx512 amx; do
            shift
            was=$1 now=$(found "$problem" $isa)
            if [ "$now" = - ]; then
                verdict='not counted here'
            elif [ "$was" = - ]; then
                verdict='not recorded'
                case $isa in generic | avx2) off=$((off + 1)) ;; esac
            else
                verdict=$(awk -v n="$now" -v m="$was" -v t=$tolerance \
                    'BEGIN { d = 100 * (n / m - 1); printf "%+.2f %%%s\n", d, (d > t || d < -t ? "  OFF" : "") }')
                case $verdict in *OFF) off=$((off + 1)) ;; esac
            fi
            [ "$now$was" = -- ] || printf '%-48s %-8s %9s %9s %s\n' "$problem" $isa "$now" "$was" "$verdict"
            [ "$now" != - ] || now=$was # keep the recorded number
            line="$line $(printf '%8s' "$now")"
        done ;;
    esac
    printf '%s\n' "$line" >>"$T/new"
done <"$root/$record"

if [ $anew = yes ]; then
    cp "$T/new" "$root/$record"
    echo "recorded in $record"
elif [ $off -gt 0 ]; then
    echo "FAILED $off of these are off by more than $tolerance % or not recorded. Where that is meant, say why in CHANGELOG.md and record" \
        "anew: tests/kernels/instructions.sh --record"
    exit 1
fi
