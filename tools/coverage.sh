#!/bin/sh
# coverage.sh -- which branches of io, of the checks of arguments and of the command line the tests of the preset dev take, file by file.
#   tools/coverage.sh               build with clang's counters (preset coverage), run the tests that are not labelled full, and every command while
#                                   an allocation or a call of the system fails (tests/faults), and print the table
#   tools/coverage.sh CTEST...      the same with those tests alone that options of ctest choose, and without failing calls
#   tools/coverage.sh --show FILE   of the last run: each branch that is never taken, with its line
#   tools/coverage.sh --list        of the last run: the functions with such branches, by reason
#   tools/coverage.sh --write       of the last run: the table of docs/reliability.md
# A branch has two ways. Counts lie in files that the programs map (%c): those of processes that are killed or leave by _exit are there too.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
. tools/need.sh
build=build/coverage
case ${1-} in
    --show | --list)
        exec tools/branches.py $build/coverage.json "$@"
        ;;
    --write)
        exec tools/branches.py $build/coverage.json --write "$(date -r $build/coverage.json +%F)"
        ;;
esac
llvm=$(clang --version | sed -n '1s/.*version \([0-9]*\).*/\1/p')
need clang "llvm-$llvm" libclang-rt-dev cmake ninja-build
cmake --preset coverage >/dev/null
cmake --build --preset coverage >$build.log 2>&1 || { tail -n 60 $build.log; exit 1; }
rm -rf $build/counts
mkdir -p $build/counts/tests $build/counts/faults
LLVM_PROFILE_FILE=$PWD/$build/counts/tests/%c%4m.profraw ctest --test-dir $build -j2 -LE full -E '^(wasm_few|install|faults)$' --output-on-failure "$@" >$build/tests.log ||
    grep -E 'Failed|Timeout' $build/tests.log >&2
if [ $# = 0 ]; then
    LLVM_PROFILE_FILE=$PWD/$build/counts/faults/%c%4m.profraw \
        tests/faults/faults.py $build/relpos $build/tests/inject $build/tests/starve.so --points 2 --ways >$build/faults.log || tail -n 1 $build/faults.log >&2
fi
# a call that fails may be one of those that make a file of counts: such a file is left out
"llvm-profdata-$llvm" merge -sparse -failure-mode=all -o $build/all.profdata $build/counts/*/*.profraw 2>$build/merge.log
# shellcheck disable=SC2046
"llvm-cov-$llvm" export -skip-expansions -instr-profile=$build/all.profdata $(find $build/relpos $build/tests -maxdepth 1 -type f -executable -printf '-object %p ') \
    >$build/coverage.json 2>$build/export.log
tools/branches.py $build/coverage.json
