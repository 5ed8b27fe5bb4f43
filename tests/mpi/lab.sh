#!/bin/sh
# lab.sh -- test training runs and sweeps of a few steps over processes of mpirun; train.sh and sweep.sh, which take minutes, belong to
# `./check full`
#
#     tests/mpi/lab.sh PATH/TO/relpos        exit code 77: there is no mpirun or no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/mpi.sh
. tests/shared/lab.sh
make_sweep

# the bits of a training run do not depend on the number of processes
set -- lab train "$T/small.lab" --set accumulate=5 --set steps=4 --threads 1
ok "$@" -o "$T/one"
mpi -n 3 "$program" "$@" -o "$T/many" --until 2
check 'exit code and messages' '0 ' "$code $(cat "$T/err")"
mpi -n 2 "$program" "$@" -o "$T/many" --resume
check 'exit code and messages' '0 ' "$code $(cat "$T/err")"
same '3 processes, then 2' "$T/one/checkpoint.safetensors" "$T/many/checkpoint.safetensors"

# a loss that is not finite; steps that the processes cannot share
mpi -n 2 "$program" lab train "$T/small.lab" -o "$T/no" --set accumulate=2 --set lr=100 --set steps=2000
one_line 1 'train: step [0-9]+: the .* is (-?nan|inf)'
mpi -n 2 "$program" lab train "$T/small.lab" -o "$T/no"
one_line 2 'accumulate = 1: 2 processes cannot share 1 batch of a step \(set batch = 1 and accumulate = 2 for steps of the same size'
mpi -n 4 "$program" lab train "$T/small.lab" -o "$T/no" --set accumulate=2 --set batch=1
one_line 2 'accumulate = 2: 4 processes cannot share 2 batches of a step \(start at most 2'

# a sweep: every rank takes the next experiment, and failures are counted once
ok lab sweep "$T/sweep.lab" -o "$T/one.jsonl" --threads 1
mpi -n 2 "$program" lab sweep "$T/sweep.lab" -o "$T/many.jsonl" --threads 1
check 'exit code and messages' '0 ' "$code $(cat "$T/err")"
lines "$T/one.jsonl" >"$T/one.lines"
lines "$T/many.jsonl" >"$T/many.lines"
same '2 processes' "$T/one.lines" "$T/many.lines"
mpi -n 2 "$program" lab sweep "$T/sweep.lab" -o "$T/fails.jsonl" --set 'vary.eval_position=alibi | t5' --set position=rope --set vary.position_layers=own --set seeds=1
check 'exit code, failures' '1 1' "$code $(grep -c 'it has other weights' "$T/err")"
says '^relpos: sweep: 1 of 2 experiments failed'
mpi -n 2 "$program" lab sweep "$T/sweep.lab" -o /dev/null
one_line 1 '/dev/null is not a regular file'

# processes that differ
make_apart sweep.lab
apart lab sweep sweep.lab -o results.jsonl
one_line 1 '-o: results.jsonl of rank 1 is not the file of rank 0'
sed -i 's/^mlp.*/mlp = 48/' "$T/there/sweep.lab"
apart lab sweep sweep.lab -o "$T/shared.jsonl"
one_line 1 'rank 1: its experiments differ from rank 0: "mlp = 48", not "mlp = 32"'
finish
