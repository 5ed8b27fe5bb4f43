# mpi.sh -- sourced after checks.sh by the scripts in tests/mpi. It sets the variables of Open MPI, and defines functions that run
# commands over several processes. Exit code 77: there is no mpirun.
# SPDX-License-Identifier: Apache-2.0
command -v mpirun >/dev/null || exit 77
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ASAN_OPTIONS=detect_leaks=0:$ASAN_OPTIONS # Open MPI does not free everything
OMPI_MCA_orte_tmpdir_base=$T/ompi # apart from those of other commands
OMPI_MCA_pml=ob1 # without a search for fast networks, which takes a quarter of a second
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_orte_tmpdir_base OMPI_MCA_pml ASAN_OPTIONS
mkdir "$T/ompi"
unset RELPOS_MPI RELPOS_MPI_SILENCE

# quick: true unless the tests of `./check full` run, which use more numbers of processes, problems and signals
quick()
{
    [ "${RELPOS_TESTS:-}" != all ]
}
quick && counts=3 || counts='1 2 3 4 8'

# mpi ARGUMENT...: run mpirun without its own messages, for a few minutes at most (a busy disk delays fsync; tools/mutate.py sets a shorter
# time), and set $code
mpi()
{
    command="mpirun $*"
    timeout -k 5 "${RELPOS_TEST_SECONDS:-200}" mpirun -q --oversubscribe "$@" >"$T/out" 2>"$T/err"
    code=$?
}

# one_line CODE PATTERN: check the exit code, and that relpos printed one line, which matches
one_line()
{
    check 'exit code' "$1" "$code"
    check 'lines of relpos' 1 "$(grep -c '^relpos: ' "$T/err")"
    says "^relpos: .*$2"
    look
    check 'existing files' "$kept" "$now"
}

# all_ended: check that the processes of the files $T/pid.RANK have ended, at most 10 s after mpirun
all_ended()
{
    waited=0
    for rank in 0 1 2; do
        while state=$(ps -o stat= -p "$(cat "$T/pid.$rank")" | grep -v Z) && [ $waited -lt 100 ]; do
            sleep 0.1
            waited=$((waited + 1))
        done
        check "rank $rank has ended" '' "$state"
    done
}

# start_three ARGUMENT...: start a command with three processes, and wait until all have begun. A process that stops is noticed after 3 s of
# silence.
start_three()
{
    rm -f "$T"/pid.*
    command="mpirun -n 3 relpos $*"
    RELPOS_MPI_SILENCE=3 timeout -k 5 "${RELPOS_TEST_SECONDS:-200}" mpirun -q --oversubscribe -n 3 sh -c 'echo $$ >"$0/pid.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$T" \
        "$program" "$@" >"$T/out" 2>"$T/err" &
    job=$!
    await "$T/pid.0"
    await "$T/pid.1"
    await "$T/pid.2"
}

# await FILE: wait at most 30 s until a file exists and is not empty
await()
{
    waited=0
    while [ ! -s "$1" ] && [ $waited -lt 300 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
}

# end_three SIGNAL RANK: send a signal to one of the three processes. Check that all end.
end_three()
{
    command="$command, $1 to rank $2"
    kill -s "$1" "$(cat "$T/pid.$2")"
    wait $job
    code=$?
    case $code in 0 | 124) check 'exit code' 'that of a failure' "$code" ;; esac # 124: timeout ended it
    all_ended
}

# interrupt SIGNAL RANK FILE ARGUMENT...: run a command with three processes, and send a signal to one of them when FILE exists and is not
# empty. Check that all processes end.
interrupt()
{
    signal=$1 stopped=$2 file=$3
    shift 3
    start_three "$@"
    await "$file"
    end_three "$signal" "$stopped"
}

# compared N: check that the last test_ranks succeeded, and compared N problems
compared()
{
    check 'exit code' 0 "$code"
    check 'failures' '' "$(grep FAILED "$T/out" | head -n 3)"
    has "^$1 compared"
}

# equal NAME ARGUMENT...: with the folders $T/one and $T/many, write $T/one/NAME with one process, and $T/many/NAME with others
equal()
{
    name=$1
    shift
    rm -f "$T/one/$name"
    "$program" "$@" -o "$T/one/$name" >"$T/out" 2>"$T/err" </dev/null
    check 'exit code of one process' 0 $?
    for ranks in $counts; do
        mpi -n $ranks "$program" "$@" -o "$T/many/$name"
        check 'exit code' 0 "$code"
        same "$ranks processes: $*" "$T/one/$name" "$T/many/$name"
        rm -f "$T/many/$name"
    done
    check 'no other file' '' "$(ls -A "$T/many")"
}

# make_apart EXPERIMENT: create the folders $T/here and $T/there, both with this file of $T and its text a.txt
make_apart()
{
    mkdir "$T/here" "$T/there"
    cp "$T/$1" "$T/here"
    cp examples/data/gettysburg.txt "$T/here/a.txt"
    sed -i 's/^text.*/text = a.txt/' "$T/here/$1"
    cp "$T/here/"* "$T/there"
}

# apart ARGUMENT...: run relpos with rank 0 in $T/here and rank 1 in $T/there
apart()
{
    mpi -n 1 -wdir "$T/here" "$program" "$@" : -n 1 -wdir "$T/there" "$program" "$@"
}
