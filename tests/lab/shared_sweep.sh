#!/bin/sh
# shared_sweep.sh -- test several processes of relpos lab sweep with one results file: each experiment once, also when a process dies
#
#     tests/lab/shared_sweep.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh
make_sweep

# begin NAME ARGUMENT...: start a sweep in the background, with its errors in $T/NAME.err
begin()
{
    name=$1
    shift
    command="relpos lab sweep $*"
    "$program" lab sweep "$@" >"$T/$name.out" 2>"$T/$name.err" &
}

# await COUNT PATTERN ARGUMENT...: wait until --state prints as many lines that match
await()
{
    count=$1 pattern=$2 waited=0
    shift 2
    until [ "$("$program" lab sweep "$@" --state | grep -c -e "$pattern")" = "$count" ] || [ $waited = 300 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    check "$count lines: $pattern" yes "$([ $waited -lt 300 ] && echo yes || echo no)"
}

# processes that run at the same time, on one experiment file
set -- "$T/sweep.lab" --set steps=40 --set seeds=6 --threads 1
ok lab sweep "$@" -o "$T/one.jsonl"
lines "$T/one.jsonl" >"$T/one.lines"
begin a "$@" -o "$T/many.jsonl"
a=$!
begin b "$@" -o "$T/many.jsonl"
b=$!
begin c "$@" -o "$T/many.jsonl"
c=$!
wait $a
check 'exit code' 0 $?
wait $b
check 'exit code' 0 $?
wait $c
check 'exit code' 0 $?
lines "$T/many.jsonl" >"$T/many.lines"
same 'three processes' "$T/one.lines" "$T/many.lines"
check 'no folder is left' no "$([ -e "$T/many.jsonl.training" ] && echo yes || echo no)"

# Two long trainings, one for each process. A process that is killed or stopped leaves its training to the other, which waits for it.
set -- "$T/sweep.lab" --set steps=6000 --set seeds=2 --set vary.position_layers=own --threads 1
ok lab sweep "$@" -o "$T/long.jsonl"
lines "$T/long.jsonl" >"$T/long.lines"
for signal in KILL INT; do
    rm -f "$T/died.jsonl"
    begin a "$@" -o "$T/died.jsonl"
    a=$!
    await 1 ', running$' "$@" -o "$T/died.jsonl"
    begin b "$@" -o "$T/died.jsonl"
    b=$!
    await 2 ', running$' "$@" -o "$T/died.jsonl"
    kill -s $signal $a
    wait $a
    check 'it has ended early' no "$([ $? = 0 ] && echo yes || echo no)"
    left=$([ -s "$T/died.jsonl" ] && echo 0 || echo 1) # 0: its training had ended, and it waited for the other
    wait $b
    check 'the other makes both' '0 2' "$? $(wc -l <"$T/died.jsonl")"
    lines "$T/died.jsonl" >"$T/died.lines"
    same "after $signal" "$T/long.lines" "$T/died.lines"
    case $signal in INT) check 'it continues from the state of the first' "$left" "$(grep -c 'continues at step' "$T/b.err")" ;; esac
    check 'no folder is left' no "$([ -e "$T/died.jsonl.training" ] && echo yes || echo no)"
done

# an experiment that fails is tried once while processes share the file, and again by the next command
(
    grep -v '^position ' "$T/small.lab"
    echo 'position = rope'
    echo 'vary.eval_position = t5 | rope'
    echo 'seeds = 2'
) | sed 's/^steps = .*/steps = 4000/' >"$T/fails.lab"
begin a "$T/fails.lab" -o "$T/fails.jsonl" --threads 1
a=$!
await 1 'rope.*seed 1: .*, running$' "$T/fails.lab" -o "$T/fails.jsonl"
begin b "$T/fails.lab" -o "$T/fails.jsonl" --threads 1
b=$!
wait $a
check 'exit code' 1 $?
wait $b
check 'exit code' 1 $?
check 'each is tried once' '1 1' "$(cat "$T/a.err" "$T/b.err" | grep -c 'seed 1: position = t5: it has other weights') \
$(cat "$T/a.err" "$T/b.err" | grep -c 'seed 2: position = t5: it has other weights')"
check 'both count them' 2 "$(cat "$T/a.err" "$T/b.err" | grep -c '2 of 4 experiments failed')"
check 'the others have results' 2 "$(wc -l <"$T/fails.jsonl")"
run lab sweep "$T/fails.lab" -o "$T/fails.jsonl"
check 'tried again' '1 2' "$code $(grep -c 'it has other weights' "$T/err")"

# Parts with one results file; a command without --shard makes what a dead part has left.
set -- "$T/sweep.lab" --set steps=40 --set seeds=6 --threads 1
begin a "$@" -o "$T/parts.jsonl" --shard 1/3
a=$!
begin b "$@" -o "$T/parts.jsonl" --shard 2/3
b=$!
wait $a
check 'exit code' 0 $?
wait $b
check 'exit code' 0 $?
check 'two parts of three' 8 "$(wc -l <"$T/parts.jsonl")"
printf '{"experiment":"lay' >>"$T/parts.jsonl" # the third was killed while it wrote
ok lab sweep "$@" -o "$T/parts.jsonl"
lines "$T/parts.jsonl" >"$T/parts.lines"
same 'all parts' "$T/one.lines" "$T/parts.lines"

# parts with a file each, of which one is incomplete, joined
ok lab sweep "$@" -o "$T/part1.jsonl" --shard 1/2
ok lab sweep "$@" -o "$T/part2.jsonl" --shard 2/2
(cat "$T/part1.jsonl" && head -n 3 "$T/part2.jsonl") >"$T/joined.jsonl"
ok lab sweep "$@" -o "$T/joined.jsonl"
lines "$T/joined.jsonl" >"$T/joined.lines"
same 'joined parts' "$T/one.lines" "$T/joined.lines"

# A sweep of version 0.2 locks the whole file.
if command -v flock >/dev/null; then
    command="relpos lab sweep while another program has locked the file"
    flock -x "$T/one.jsonl" "$program" lab sweep "$@" -o "$T/one.jsonl" >"$T/out" 2>"$T/err"
    check 'exit code' 1 $?
    says 'one.jsonl: another program is writing there'
fi
finish
