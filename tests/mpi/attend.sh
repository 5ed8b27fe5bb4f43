#!/bin/sh
# attend.sh -- test attention over several processes of mpirun: rp_mpi_attend and relpos attend give the bits of one process
#
#     tests/mpi/attend.sh PATH/TO/relpos PATH/TO/test_ranks
#
# SPDX-License-Identifier: Apache-2.0
ranks_program=${2:?usage: $0 PATH/TO/relpos PATH/TO/test_ranks}
case $ranks_program in /*) ;; *) ranks_program=$PWD/$ranks_program ;; esac
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/mpi.sh
export OMPI_MCA_odls_base_sigkill_timeout=0 # kill the other processes at once when one has failed, not after a second
. tests/shared/files.sh

# ------------------------------------------------------------------------------------------------ the library

for ranks in $counts; do
    mpi -n $ranks "$ranks_program" named
    compared 34
done
while read -r ranks seed count; do
    quick && count=$((count / 3))
    mpi -n "$ranks" "$ranks_program" random "$seed" "$count"
    compared "$count"
done <<'END'
1 11 30
2 12 60
3 13 60
4 14 50
8 15 20
END
if ! quick; then
    WITHOUT_THREADS=1 mpi -n 3 "$ranks_program" named
    compared 34
    WITHOUT_THREADS=1 mpi -n 3 "$ranks_program" mistakes
    compared 15
fi
mpi -n 2 "$ranks_program" mistakes
compared 15

# ------------------------------------------------------------------------------------------------ relpos attend

# 5200 keys are 11 tiles; 3000 rows are 6
begin
put q F32 2,4,3000,8 some 0 192000
put k F32 2,2,5200,8 some 100000 166400
put v F32 2,2,5200,8 some 150000 166400
put table F32 32,4 some 310000 128
put keys F32 21,8 some 320000 168
put sink F32 4 some 330000 4
put at I64 2 bytes 8 2200 150
put kept U8 2,5200 some 5 2600
save "$T/long.safetensors"
mkdir "$T/one" "$T/many"

# equal NAME OPTION...: check that several processes write the file of one process
equal()
{
    name=$1
    shift
    "$program" attend "$T/long.safetensors" -o "$T/one/$name" "$@" >"$T/out" 2>"$T/err"
    check 'exit code of one process' 0 $?
    for ranks in $counts; do
        mpi -n $ranks "$program" attend "$T/long.safetensors" -o "$T/many/$name" "$@"
        check 'exit code' 0 "$code"
        same "$ranks processes: $*" "$T/one/$name" "$T/many/$name"
        rm -f "$T/many/$name"
    done
    check 'no other file' '' "$(ls -A "$T/many")"
}
equal t5.safetensors --bias t5,table=table --causal --q-offset 2200 --lse
equal plain.npz --lse --threads 1
equal far.safetensors --bias alibi --rope --sink sink --q-offset at --key-mask kept
equal bf16.safetensors --dtype bf16 --relkey table=keys,left=10,right=10 --window 700,20 --q-offset 1000
equal f64.safetensors --dtype f64 --bias alibi --causal --dropout 0.1 --seed 3
mpi -n 2 "$program" attend "$T/long.safetensors" -o - --bias t5,table=table --causal --q-offset 2200 --lse
same 'standard output' "$T/one/t5.safetensors" "$T/out"

# errors of all processes are printed once
mistake() # mistake CODE PATTERN ARGUMENT...
{
    wanted=$1 pattern=$2
    shift 2
    mpi -n 3 "$program" attend "$@"
    one_line "$wanted" "$pattern"
}
in=$T/long.safetensors
mistake 2 'no option is called --no-such-thing' "$in" -o "$T/kept/a.npz" --no-such-thing
mistake 2 '--grad: several processes cannot compute it' "$in" -o "$T/kept/a.npz" --grad
mistake 2 '--memory: each process has a part' "$in" -o "$T/kept/a.npz" --memory 1G
mistake 2 '--isa reference: it computes all rows' "$in" -o "$T/kept/a.npz" --isa reference
mistake 2 'several processes cannot read standard input' - -o "$T/kept/a.npz"
mistake 1 'cannot be opened' "$T/absent.safetensors" -o "$T/kept/a.npz"
mistake 1 'an .npz file cannot be read in parts' "$T/one/plain.npz" -o "$T/kept/a.npz"
mistake 1 'not in the file' "$in" -o "$T/kept/a.npz" --bias t5,table=nothing
mistake 1 '--bias t5,table=keys: shape is .21, 8.; it must be .32, 4.' "$in" -o "$T/kept/a.npz" --bias t5,table=keys
mistake 1 'cannot be written' "$in" -o "$T/nowhere/a.npz"

# relpos bench --mpi
mpi -n 2 "$program" bench --mpi fwd:f32:b1h4g2q3000k3000d16:t5:causal --seconds 0.1
check 'exit code' 0 "$code"
has '^2 processes of 1 thread$' '^fwd:f32:b1h4g2q3000k3000d16:t5:causal +[0-9.]+ ms .* 0\.[0-9] MB sent, .*one process: '
mpi -n 3 "$program" bench --mpi fwd:f32:b1h4g2q3000k3000d16 --seconds 0.1 --json
# every process needs all keys and values: each of 3000 goes to two others, 2 heads * 2 * 16 numbers of 4 bytes
has '"processes": 3, .*"bytes_sent": 1536000,'
# Forward, each of 4096 keys goes to the other process with 16 numbers of 4 bytes. Backward, each row goes from process 0 to
# 1 and back with q, out, dout and dq of 8 numbers and lse; process 1 also sends 2048 rows without dq, and gets their dq:
# 262144 + 2 * 4096 * 132 + 2048 * (100 + 32), and 1 byte for errors with each block.
mpi -n 2 "$program" bench --mpi fwdbwd:f32:b1h1q4096k4096d8:t5 --seconds 0.1 --json
check 'exit code' 0 "$code"
has '"bytes_sent": 16138[0-9][0-9],'
mpi -n 3 "$program" bench --mpi bwd:f16:b1h4g2q3000k3000d16:t5:causal+dlse --seconds 0.1
check 'exit code' 0 "$code"
has '^bwd:f16:b1h4g2q3000k3000d16:t5:causal.dlse +[0-9.]+ ms .*one process: '
mpi -n 2 "$program" bench fwd:f32:b1h1q10k10d4
one_line 2 'mpirun started 2 processes .give --mpi'
run bench fwd:f32:b1h1q10k10d4 --mpi
check 'exit code' 2 "$code"

# commands that do not share their work
for words in explain info 'bucket 1 2' 'verify fwd:f32:b1h1q10k10d4' "t5 info tests/t5/data/v11" 'lab inspect'; do
    # shellcheck disable=SC2086
    mpi -n 2 "$program" $words
    one_line 2 "$(echo "$words" | grep -oE '^(t5|lab)? ?[a-z]+'): mpirun started 2 processes, but this command works in one"
    check 'no output' '' "$(cat "$T/out")"
done
RELPOS_MPI=off mpi -n 2 "$program" bucket 1
check 'each process for itself' '2' "$(wc -l <"$T/out" | tr -d ' ')"
for words in --version --help 't5 --help' 'bucket --help'; do # one process prints
    # shellcheck disable=SC2086
    mpi -n 2 "$program" $words
    # shellcheck disable=SC2086
    check "$words is printed once" "0 $("$program" $words)" "$code $(cat "$T/out")"
done
command='srun relpos bucket 1'
SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=0 "$program" bucket 1 >"$T/out" 2>"$T/err"
check 'exit code' 2 $?
says 'bucket: srun started 3 processes'
SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=1 "$program" bucket 1 >"$T/out" 2>"$T/err"
check 'the others print nothing' '2 ' "$? $(cat "$T/out" "$T/err")"
# srun without PMIx: each process is alone in MPI
SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=0 \
    "$program" bench --mpi fwd:f32:b1h1q10k10d4 >"$T/out" 2>"$T/err"
check 'exit code' 1 $?
says 'srun started 3 processes, but MPI connects 1 .*srun --mpi=pmix'
SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 "$program" bucket 1 >"$T/out" 2>"$T/err"
check 'one process of srun' '0 ' "$? $(cat "$T/err")"

# a process that does not begin is named, once
RELPOS_MPI_SILENCE=3 mpi -n 1 "$program" bench --mpi fwd:f32:b1h1q10k10d4 : -n 1 sleep 60 : -n 2 "$program" bench --mpi fwd:f32:b1h1q10k10d4
one_line 1 'rank 1 of the 4 processes that mpirun started on .* has not begun: MPI has not started within 9 s'
# ... and with several machines, what this one knows
RELPOS_MPI_SILENCE=3 mpi -n 2 env OMPI_COMM_WORLD_LOCAL_SIZE=2 "$program" bench --mpi fwd:f32:b1h1q10k10d4 : -n 1 sleep 60
one_line 1 'of the 3 processes that mpirun started, ranks 0, 1 have begun on .*, so no missing one is on this machine: MPI'

# processes that differ
mkdir "$T/elsewhere"
begin
put q F32 2,4,3000,8 some 0 192000
put k F32 2,2,5200,8 some 100000 166400
put v F32 2,2,5200,8 some 150000 166400
put table F32 32,4 some 310001 128
save "$T/elsewhere/long.safetensors"
differ() # differ PATTERN: rank 1 runs in $T/elsewhere
{
    command='mpirun -n 1 ... : -n 1 -wdir elsewhere ...'
    mpi -n 1 -wdir "$T" "$program" attend long.safetensors -o "$T/many/a.npz" --bias t5,table=table : \
        -n 1 -wdir "$T/elsewhere" "$program" attend long.safetensors -o "$T/many/a.npz" --bias t5,table=table
    one_line 1 "$1"
    check 'no file' '' "$(ls -A "$T/many")"
}
differ 'rank 1: its checksum of the arrays of t5 differs from rank 0: [0-9a-f]{16}, not [0-9a-f]{16}; give all processes the same'
begin
put q F32 2,4,3000,8 some 0 192000
put k F32 2,2,5201,8 some 100000 166432
put v F32 2,2,5201,8 some 150000 166432
put table F32 32,4 some 310000 128
save "$T/elsewhere/long.safetensors"
differ 'rank 1: its arrays differ from rank 0: "q f32 2x4x3000x8, k f32 2x2x5201x8, .*", not "q f32 2x4x3000x8, k f32 2x2x5200x8'

# a process that is killed or stopped: no output, and one line
stopped() # stopped SIGNAL RANK
{
    start_three attend "$T/slow.safetensors" -o "$T/many/slow.safetensors" --threads 1
    sleep 2
    end_three "$1" "$2"
    check 'no output' '' "$(ls "$T/many")"
}
begin
put q F32 1,16,40000,16 zeros 40960000
put k F32 1,1,40000,16 zeros 2560000
put v F32 1,1,40000,16 zeros 2560000
save "$T/slow.safetensors"
stopped KILL 1
stopped STOP 0
says '^relpos: rank 0 on .*: it has been silent for 3 s'
if ! quick; then
    stopped KILL 0
    stopped STOP 2
    says '^relpos: rank 2 on .*: it has been silent for 3 s'
    stopped TERM 1
fi
signals=STOP
quick || signals='KILL STOP'
for signal in $signals; do # rp_mpi_backward waits for messages in the caller's thread
    start_three bench --mpi bwd:f32:b1h16q40000k40000d16 --threads 1
    sleep 3
    end_three $signal 1
done
finish
