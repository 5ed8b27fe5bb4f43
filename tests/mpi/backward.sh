#!/bin/sh
# backward.sh -- test rp_mpi_backward over several processes of mpirun: it gives the bits of rp_backward
#
#     tests/mpi/backward.sh PATH/TO/relpos PATH/TO/test_ranks
#
# SPDX-License-Identifier: Apache-2.0
ranks_program=${2:?usage: $0 PATH/TO/relpos PATH/TO/test_ranks}
case $ranks_program in /*) ;; *) ranks_program=$PWD/$ranks_program ;; esac
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/mpi.sh

for ranks in $counts; do
    mpi -n $ranks "$ranks_program" gradients
    compared 26
done
if ! quick; then
    WITHOUT_THREADS=1 mpi -n 3 "$ranks_program" gradients
    compared 26
fi
while read -r ranks seed count; do
    quick && count=$((count / 3))
    mpi -n "$ranks" "$ranks_program" gradients "$seed" "$count"
    compared "$count"
done <<'END'
1 1 50
2 2 55
3 3 55
4 4 55
8 5 10
END
mpi -n 3 "$ranks_program" gradient_mistakes
compared 6
finish
