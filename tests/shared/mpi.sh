# mpi.sh -- sourced by the scripts of tests/mpi after checks.sh: starts programs with mpirun
#
# SPDX-License-Identifier: Apache-2.0
command -v mpirun >/dev/null || exit 77
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ASAN_OPTIONS=detect_leaks=0:$ASAN_OPTIONS # Open MPI does not free everything
OMPI_MCA_orte_tmpdir_base=$T/ompi # apart from those of other commands
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_orte_tmpdir_base ASAN_OPTIONS
mkdir "$T/ompi"
unset RELPOS_MPI RELPOS_MPI_SILENCE

# mpi ARGUMENT...: run mpirun without its own messages, for a few minutes at most (a busy disk delays fsync), and set $code
mpi()
{
    command="mpirun $*"
    timeout -k 5 200 mpirun -q --oversubscribe "$@" >"$T/out" 2>"$T/err"
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
