# checks.sh -- sourced by the scripts of tests/cli and tests/lab: it reads PATH/TO/relpos, makes the folder $T, goes to the root of
# the project, runs the program as its users do, and counts checks. A check that fails prints the command, what was expected and
# what was found. A check starts as few processes as it can: there are thousands of them.
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
ASAN_OPTIONS=allocator_may_return_null=1:${ASAN_OPTIONS-} # running out of memory is an error to report, not the end
export ASAN_OPTIONS
ulimit -t 300 # a command that runs in a circle ends by the processor time it takes, however busy the machine is; ctest ends one that waits
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$T/kept" "$T/made"
printf 'what was here before\n' | tee "$T/kept/a.npz" >"$T/kept/a.safetensors"
checks=0 failed=0 command='' code=0 without_advice=''

# check WHAT EXPECTED FOUND
check()
{
    checks=$((checks + 1))
    [ "$2" = "$3" ] && return 0
    failed=$((failed + 1))
    printf 'FAILED %s\n  command   %s\n  expected  %s\n  found     %s\n' "$1" "$command" "$2" "$3" | cat -v | cut -c 1-2000
}

# same WHAT FILE FILE: byte for byte
same()
{
    check "$1" '' "$(cmp -- "$2" "$3" 2>&1)"
}

# run ARGUMENT...: leaves $T/out, $T/err, $code
run()
{
    command="relpos $*"
    "$program" "$@" >"$T/out" 2>"$T/err"
    code=$?
}

# succeeded: exit code 0, and nothing on standard error but the progress lines of a slow machine ("train: 40 %, ... 12 s left")
succeeded()
{
    if [ -s "$T/err" ]; then said=$(grep -vE '^[a-z0-9 ]+: [0-9]+ %, .*[0-9]+ s left$' "$T/err" | head -n 3); else said=''; fi
    check 'it succeeds in silence' '0 ' "$code $said"
}

# ok ARGUMENT...
ok()
{
    run "$@"
    succeeded
}

# prints TEXT ARGUMENT...: the same, and TEXT on standard output
prints()
{
    printed=$1
    shift
    ok "$@"
    check 'standard output' "$printed" "$(cat "$T/out")"
}

# has PATTERN...: the last output has lines that match these extended regular expressions
has()
{
    for pattern; do
        if grep -qE -e "$pattern" "$T/out"; then found=$pattern; else found=$(head -n 3 "$T/out"); fi
        check 'a line of the output' "$pattern" "$found"
    done
}

# read_error: the first line of standard error into $said, the number of lines into $lines
read_error()
{
    said='' lines=0
    while IFS= read -r line; do
        [ $lines -gt 0 ] || said=$line
        lines=$((lines + 1))
    done <"$T/err"
}

# says PATTERN: standard error matches the extended regular expression
says()
{
    if grep -qE -e "$1" "$T/err"; then found=$1; else found=$(cat "$T/err"); fi
    check 'message' "$1" "$found"
}

# look: what is in $T/kept, by name, kind and content, into $now
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

# refused CODE PATTERN ARGUMENT...: that exit code; one line on standard error, which matches; nothing on standard output;
# the files of $T/kept are as before, and there is no other. Messages that do not say how to mend are kept for the end.
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
        check 'message without names of C' '' "$said" ;;
    esac
    case $said in *' ('*')') ;; *) without_advice="$without_advice  $said
" ;; esac
    look
    check 'existing files' "$kept" "$now"
    kept=$now
}

# refusals WORD... <<'END': a table with a line for each refusal,
#
#     exit code | pattern of the message | arguments, quoted as for the shell
#
# of a command that begins with the words.
refusals()
{
    while IFS= read -r row; do
        rest=${row#* | }
        wanted=${row%% | *} expected=${rest%% | *}
        eval "refused \"\$wanted\" \"\$expected\" \"\$@\" ${rest#* | }" </dev/null
    done
}

# finish: the last line of every script
finish()
{
    if [ -n "$without_advice" ]; then
        failed=$((failed + 1))
        printf 'FAILED messages that do not end in (how to mend)\n%s' "$without_advice" | cat -v
    fi
    printf '%d checks, %d failed\n' "$checks" "$failed"
    [ "$failed" -eq 0 ]
}
