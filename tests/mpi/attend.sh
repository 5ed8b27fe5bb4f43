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

# compared N: check that the last test_ranks succeeded, and compared N problems
compared()
{
    check 'exit code' 0 "$code"
    check 'failures' '' "$(grep FAILED "$T/out" | head -n 3)"
    has "^$1 problems compared"
}

for ranks in 1 2 3 4 8; do
    mpi -n $ranks "$ranks_program" named
    compared 24
done
while read -r ranks seed count; do
    mpi -n "$ranks" "$ranks_program" random "$seed" "$count"
    compared "$count"
done <<'END'
1 11 30
2 12 60
3 13 60
4 14 50
8 15 20
END
finish
