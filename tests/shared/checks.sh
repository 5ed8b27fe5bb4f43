# checks.sh -- sourced by the scripts of tests/cli and tests/lab, whose argument is PATH/TO/relpos. It creates the folder $T, changes to
# the root of the project, and defines functions that run the program and count checks. A failing check prints the command, the expected
# and the actual result. A check starts as few processes as possible, because there are thousands of checks.
#
# Needs coreutils, sed, grep, awk, gzip and cmp. SPDX-License-Identifier: Apache-2.0
set -u
program=${1:?usage: $0 PATH/TO/relpos}
case $program in /*) ;; *) program=$PWD/$program ;; esac
cd "$(dirname "$0")/../.." || exit 1
exec </dev/null
LC_ALL=C
export LC_ALL
unset RELPOS_ISA RELPOS_THREADS OPENBLAS_CORETYPE NO_COLOR LANG LANGUAGE COLUMNS
ASAN_OPTIONS=allocator_may_return_null=1:${ASAN_OPTIONS-} # with AddressSanitizer, malloc must return NULL when out of memory
export ASAN_OPTIONS
ulimit -t 300 # seconds of processor time, which ends an endless loop; ctest stops a command that waits forever
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$T/kept" "$T/made"
printf 'what was here before\n' | tee "$T/kept/a.npz" >"$T/kept/a.safetensors"
checks=0 failed=0 command='' code=0 without_advice=''

# check WHAT EXPECTED FOUND: check that the two texts are equal
check()
{
    checks=$((checks + 1))
    [ "$2" = "$3" ] && return 0
    failed=$((failed + 1))
    printf 'FAILED %s\n  command   %s\n  expected  %s\n  found     %s\n' "$1" "$command" "$2" "$3" | cat -v | cut -c 1-2000
    [ -z "${RELPOS_TEST_STOP-}" ] || exit 1 # tools/mutate.py needs no more than one failure
}

# same WHAT FILE FILE: check that two files have the same bytes
same()
{
    check "$1" '' "$(cmp -- "$2" "$3" 2>&1)"
}

# run ARGUMENT...: run the program, write its output to $T/out and $T/err, and set $code to the exit code
run()
{
    command="relpos $*"
    "$program" "$@" >"$T/out" 2>"$T/err"
    code=$?
}

# succeeded: check exit code 0, and only progress lines on standard error ("train: 40 %, ... 12 s left", on a slow
# machine)
succeeded()
{
    if [ -s "$T/err" ]; then said=$(grep -vE '^[a-z0-9 ]+: [0-9]+ %, .*[0-9]+ s left$' "$T/err" | head -n 3); else said=''; fi
    check 'it succeeds without a message' '0 ' "$code $said"
}

# ok ARGUMENT...: run the program and check that it succeeds
ok()
{
    run "$@"
    succeeded
}

# prints TEXT ARGUMENT...: like ok, and check standard output
prints()
{
    printed=$1
    shift
    ok "$@"
    check 'standard output' "$printed" "$(cat "$T/out")"
}

# has PATTERN...: check that the last output has lines that match these extended regular expressions
has()
{
    for pattern; do
        if grep -qE -e "$pattern" "$T/out"; then found=$pattern; else found=$(head -n 3 "$T/out"); fi
        check 'a line of the output' "$pattern" "$found"
    done
}

# read_error: set $said to the first line of standard error, and $lines to the number of its lines
read_error()
{
    said='' lines=0
    while IFS= read -r line; do
        [ $lines -gt 0 ] || said=$line
        lines=$((lines + 1))
    done <"$T/err"
}

# says PATTERN: check that standard error matches the extended regular expression
says()
{
    if grep -qE -e "$1" "$T/err"; then found=$1; else found=$(cat "$T/err"); fi
    check 'message' "$1" "$found"
}

# look: set $now to the names, kinds and contents of the files in $T/kept
look()
{
    now=''
    for file in "$T"/kept/* "$T"/kept/.[!.]*; do
        [ -L "$file" ] && now="$now link"
        [ -e "$file" ] || continue
        now="$now ${file##*/}: "
        while IFS= read -r line || [ -n "$line" ]; do
            now="$now$line;"
        done <"$file"
    done
}
look
kept=$now

# refused CODE PATTERN ARGUMENT...: check the exit code, that standard error has a single matching line, that standard
# output is empty, and that the files in $T/kept are unchanged. Messages without a remedy in parentheses are collected for
# finish.
refused()
{
    wanted=$1 expected=$2
    shift 2
    run "$@"
    read_error
    if [ -s "$T/out" ]; then output=some; else output=none; fi
    check 'exit code' "$wanted" "$code"
    check 'lines on standard error, and standard output' '1 none' "$lines $output"
    case $said in 'relpos: '*) start='relpos: ' ;; *) start=$said ;; esac
    check 'start of the message' 'relpos: ' "$start"
    says "$expected"
    case $said in *terms[[][0-9]* | *term[[][0-9]* | *masks[[][0-9]* | *mask[[][0-9]* | *desc.[a-z]* | *tensors.[a-z]* | *' (of '*)
        check 'a message without C names' '' "$said" ;;
    esac
    case $said in *' ('*')') ;; *) without_advice="$without_advice  $said
" ;; esac
    look
    check 'existing files' "$kept" "$now"
    kept=$now
}

# refusals WORD... <<'END': check a table of errors, for commands that begin with WORD... Each line is
#
#     exit code | pattern of the message | arguments, quoted for the shell
#
# END ends the table.
refusals()
{
    while IFS= read -r row; do
        rest=${row#* | }
        wanted=${row%% | *} expected=${rest%% | *}
        eval "refused \"\$wanted\" \"\$expected\" \"\$@\" ${rest#* | }" </dev/null
    done
}

# finish: print the totals. Every script ends with this.
finish()
{
    if [ -n "$without_advice" ]; then
        failed=$((failed + 1))
        printf 'FAILED messages that do not end in (how to mend)\n%s' "$without_advice" | cat -v
    fi
    printf '%d checks, %d failed\n' "$checks" "$failed"
    [ "$failed" -eq 0 ]
}
