#!/bin/sh
# train.sh -- test relpos lab train over several processes of mpirun: equal bits for any number of processes, and processes that die, stop
# or differ
#
#     tests/mpi/train.sh PATH/TO/relpos        exit code 77: there is no mpirun or no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/mpi.sh
. tests/shared/lab.sh

# without_times FILE: print a log without what differs from run to run
without_times()
{
    sed 's/,"\(tokens\|pairs\)_per_s":[0-9.e+]*//; s/"threads":[0-9]*//' "$1"
}

# equal EXPERIMENT ARGUMENT...: train with one process and with several, and compare checkpoints and logs
equal()
{
    rm -rf "$T/one"
    ok lab train "$@" -o "$T/one"
    without_times "$T/one/log.jsonl" >"$T/one.log"
    for ranks in 1 2 3 4; do
        rm -rf "$T/many"
        mpi -n $ranks "$program" lab train "$@" -o "$T/many"
        check 'exit code and messages' '0 ' "$code $(cat "$T/err")"
        check 'one line' 1 "$(wc -l <"$T/out")"
        same "$ranks processes: $*" "$T/one/checkpoint.safetensors" "$T/many/checkpoint.safetensors"
        without_times "$T/many/log.jsonl" >"$T/many.log"
        same 'log' "$T/one.log" "$T/many.log"
        check 'files' 'checkpoint.safetensors log.jsonl previous.safetensors ' "$(find "$T/many" -type f -printf '%f\n' | sort | tr '\n' ' ')"
    done
}
equal "$T/small.lab" --set accumulate=4 --set eval_every=8
equal "$T/small.lab" --set accumulate=7 --set bos=1 --set vocab=257 --set position=forget+xl --set log_scale=learned --threads 2
equal "$T/small.lab" --set accumulate=13 --set batch=1 --set position=t5,buckets=8,max_distance=16 --set random_positions=64
grep -v '^text\|^position\|^dropout' "$T/small.lab" >"$T/generated.lab"
equal "$T/generated.lab" --set accumulate=4 --set generate=copy --set length=41 --set position=alibi
equal lab/numbers.lab --set steps=20 --set warmup=2 --set layers=1 --set decoder_layers=1 --set width=16 --set mlp=16 --set batch=8 --set accumulate=5 \
    --set eval_bytes=100 --set checkpoint_every=10

# a run that is stopped and continued with other numbers of processes
mpi -n 3 "$program" lab train "$T/small.lab" -o "$T/on" --set accumulate=4 --set eval_every=8 --until 5
check 'exit code' 0 "$code"
ok lab train "$T/small.lab" -o "$T/on" --set accumulate=4 --set eval_every=8 --until 11 --resume
mpi -n 2 "$program" lab train "$T/small.lab" -o "$T/on" --set accumulate=4 --set eval_every=8 --until 17 --resume
mpi -n 4 "$program" lab train "$T/small.lab" -o "$T/on" --set accumulate=4 --set eval_every=8 --resume
check 'exit code' 0 "$code"
ok lab train "$T/small.lab" -o "$T/whole" --set accumulate=4 --set eval_every=8
same 'the same bytes' "$T/whole/checkpoint.safetensors" "$T/on/checkpoint.safetensors"

# what the processes cannot share, and errors of all processes, which are printed once
mpi -n 2 "$program" lab train "$T/small.lab" -o "$T/no"
one_line 2 'accumulate = 1: 2 processes cannot share 1 batch of a step \(set batch = 1 and accumulate = 2 for steps of the same size'
mpi -n 4 "$program" lab train "$T/small.lab" -o "$T/no" --set accumulate=2 --set batch=6
one_line 2 'accumulate = 2: 4 processes .*set batch = 3 and accumulate = 4'
mpi -n 4 "$program" lab train "$T/small.lab" -o "$T/no" --set accumulate=2 --set batch=1
one_line 2 'accumulate = 2: 4 processes cannot share 2 batches of a step \(start at most 2'
mpi -n 2 "$program" lab train "$T/small.lab" -o "$T/no" --set accumulate=2 --set text=nothing.txt
one_line 1 'nothing.txt'
mpi -n 2 "$program" lab train "$T/small.lab" -o "$T/whole" --set accumulate=4
one_line 1 'whole: it already has a run'
mpi -n 2 "$program" lab train "$T/small.lab" -o "$T/no" --set accumulate=2 --set lr=100 --set steps=2000
one_line 1 'train: step [0-9]+: the .* is (-?nan|inf)'
rm -rf "$T/no"

# processes that differ
pair() # pair PREFIX-OF-RANK-1 ARGUMENT...: run rank 1 after a prefix, such as env and a variable
{
    prefix=$1
    shift
    # shellcheck disable=SC2086 # the prefix has several words
    mpi -n 1 "$program" "$@" : -n 1 $prefix "$program" "$@"
}
set -- lab train small.lab -o "$T/no" --set accumulate=2
make_apart small.lab
echo 'one more line' >>"$T/there/a.txt"
apart "$@"
one_line 1 'rank 1: its text differs from rank 0: "checksum [0-9a-f]{16}", not "checksum [0-9a-f]{16}" \(use the same files on all machines'
cp "$T/here/a.txt" "$T/there/a.txt"
sed -i 's/^mlp.*/mlp = 48/' "$T/there/small.lab"
apart "$@"
one_line 1 'rank 1: its experiment differs from rank 0: "mlp = 48", not "mlp = 32" \(use the same file on all machines\)'
check 'no folder' no "$([ -e "$T/no" ] && echo yes || echo no)"
set -- lab train "$T/small.lab" -o "$T/no" --set accumulate=2
mpi -n 1 "$program" "$@" : -n 1 "$program" "$@" --threads 1
one_line 1 'rank 1: its arguments differ from rank 0: "lab train .* --threads 1", not "'
case $("$program" info | sed -n 's/^chosen *//p') in
generic) ;;
*)
    pair 'env RELPOS_ISA=generic' "$@"
    one_line 1 'rank 1: its instruction sets differ from rank 0: "generic of '
    ;;
esac
if grep -q '"blas":"OpenBLAS [^"]* [HSZC]' "$T/run/log.jsonl"; then
    pair 'env OPENBLAS_CORETYPE=Prescott' "$@"
    one_line 1 'rank 1: its CBLAS differs from rank 0: "OpenBLAS [^"]* Prescott", not "OpenBLAS'
fi
check 'no folder' no "$([ -e "$T/no" ] && echo yes || echo no)"

# processes that die or stop: a run continues from its last checkpoint, with the same bits
set -- lab train "$T/small.lab" --set accumulate=4 --set steps=3000 --set checkpoint_every=100 --threads 1
ok "$@" -o "$T/long"
for how in 'KILL 1' 'KILL 0' 'STOP 2' 'STOP 0' 'TERM 1' 'TERM 0' 'INT 0'; do
    rm -rf "$T/cut"
    # shellcheck disable=SC2086 # a signal and a rank
    interrupt $how "$T/cut/checkpoint.safetensors" "$@" -o "$T/cut"
    case $how in
    'STOP 2') says '^relpos: rank 2 on .*: it has been silent for 3 s' ;;
    'STOP 0') says '^relpos: rank 0 on .*: it has been silent for 3 s' ;;
    'TERM 1' | 'TERM 0' | 'INT 0') says '^relpos: train: stopped at step [0-9]+ of 3000, with a checkpoint' ;;
    esac
    case $how in
    KILL*) ;; # mpirun names the process
    'STOP 0') ;; # when mpirun ends rank 0, this may write a checkpoint and say so
    *) check 'lines of relpos' 1 "$(grep -c '^relpos: ' "$T/err")" ;;
    esac
    mpi -n 2 "$program" "$@" -o "$T/cut" --resume
    check 'it continues' 0 "$code"
    same "$how, then resumed" "$T/long/checkpoint.safetensors" "$T/cut/checkpoint.safetensors"
    check 'no unfinished files' '' "$(find "$T/cut" -name '*.tmp' -o -name 'next*')"
done
finish
