# checks.sh -- sourced by tests that run the program as its users do: $program, an empty environment, the folder $T, counted checks.
# SPDX-License-Identifier: Apache-2.0
case $program in */*) ;; *) program=./$program ;; esac
exec </dev/null
LC_ALL=C
export LC_ALL
unset RELPOS_ISA RELPOS_THREADS NO_COLOR LANG LANGUAGE COLUMNS
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 1' HUP INT TERM
checks=0 failed=0 command='' code=0

# check WHAT EXPECTED FOUND
check()
{
    checks=$((checks + 1))
    [ "$2" = "$3" ] && return 0
    failed=$((failed + 1))
    printf 'FAILED %s\n  command   %s\n  expected  %s\n  found     %s\n' "$1" "$command" "$2" "$3" | cat -v
}
