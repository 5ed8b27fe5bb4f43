#!/bin/sh
# sweep.sh -- test relpos lab sweep over several processes of mpirun: each experiment once, failures, and processes that die, stop or differ
#
#     tests/mpi/sweep.sh PATH/TO/relpos        exit code 77: there is no mpirun or no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/mpi.sh
. tests/shared/lab.sh
make_sweep

# every rank takes the next experiment
set -- lab sweep "$T/sweep.lab" --set seeds=3 --threads 1
ok "$@" -o "$T/one.jsonl"
lines "$T/one.jsonl" >"$T/one.lines"
for ranks in 1 2 3 4; do
    mpi -n $ranks "$program" "$@" -o "$T/many.jsonl"
    check 'exit code and messages' '0 ' "$code $(cat "$T/err")"
    lines "$T/many.jsonl" >"$T/many.lines"
    same "$ranks processes" "$T/one.lines" "$T/many.lines"
    check 'files' '' "$(find "$T" -name 'many.jsonl.*')"
    rm "$T/many.jsonl"
done

# experiments that fail, in any rank
(
    grep -v '^position ' "$T/small.lab"
    echo 'position = rope'
    echo 'vary.eval_position = t5 | rope'
    echo 'seeds = 3'
) >"$T/fails.lab"
mpi -n 3 "$program" lab sweep "$T/fails.lab" -o "$T/fails.jsonl"
check 'exit code, failures, results' '1 3 3' "$code $(grep -c 'position = t5: it has other weights' "$T/err") $(wc -l <"$T/fails.jsonl")"
says '^relpos: sweep: 3 of 6 experiments failed'
check 'once' 1 "$(grep -c 'experiments failed' "$T/err")"

# errors of all processes are printed once
mpi -n 3 "$program" lab sweep "$T/sweep.lab" -o "$T/kept" --set lr=0.02
one_line 1 'kept: cannot be written: Is a directory'
mpi -n 2 "$program" lab sweep "$T/sweep.lab" -o "$T/no.jsonl" --set eval_lengths=99999
one_line 1 'the longest length is 99999'
mpi -n 2 "$program" lab sweep "$T/sweep.lab" -o /dev/null
one_line 1 '/dev/null is not a regular file'

# processes that differ
make_apart sweep.lab
apart lab sweep sweep.lab -o results.jsonl
one_line 1 '-o: results.jsonl of rank 1 is not the file of rank 0'
sed -i 's/^mlp.*/mlp = 48/' "$T/there/sweep.lab"
apart lab sweep sweep.lab -o "$T/shared.jsonl"
one_line 1 'rank 1: its experiments differ from rank 0: "mlp = 48", not "mlp = 32"'
cp "$T/here/sweep.lab" "$T/there/sweep.lab"
echo 'one more line' >>"$T/there/a.txt"
apart lab sweep sweep.lab -o "$T/shared.jsonl"
one_line 1 'rank 1: its text differs from rank 0: "checksum'
check 'no results' 0 "$(wc -c <"$T/shared.jsonl")"

# processes that die or stop: the same command continues
set -- lab sweep "$T/sweep.lab" --set seeds=1 --set vary.position_layers=own --set 'vary.steps=3 | 6000 | 6001 | 6002' --threads 1
ok "$@" -o "$T/long.jsonl"
lines "$T/long.jsonl" >"$T/long.lines"
for how in 'KILL 1' 'KILL 0' 'STOP 2' 'STOP 0' 'TERM 1'; do
    rm -f "$T/cut.jsonl"
    # shellcheck disable=SC2086 # a signal and a rank
    interrupt $how "$T/cut.jsonl" "$@" -o "$T/cut.jsonl"
    case $how in
    'STOP 2') says '^relpos: rank 2 on .*: it has been silent for 3 s' ;;
    'STOP 0') says '^relpos: rank 0 on .*: it has been silent for 3 s' ;;
    'TERM 1') says '^relpos: (rank 1: )?sweep: stopped .run the same command to continue' ;;
    esac
    mpi -n 2 "$program" "$@" -o "$T/cut.jsonl"
    check 'it continues' 0 "$code"
    lines "$T/cut.jsonl" >"$T/cut.lines"
    same "$how, then continued" "$T/long.lines" "$T/cut.lines"
    check 'files' '' "$(find "$T" -name 'cut.jsonl.*')"
done
finish
