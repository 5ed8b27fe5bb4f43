#!/bin/sh
# coverage.sh -- count which branches the tests take, in each file of io, the argument checks, the command line, and the readers of models and tokenizers.
#   tools/coverage.sh               build with clang's counters (preset coverage), run the tests that lack the label full, run every command
#                                   with failing allocations and system calls (tests/faults), and print a table
#   tools/coverage.sh CTEST...      run only the tests selected by these ctest options, without failing calls
#   tools/coverage.sh --more CTEST... | --more faults POINTS [NAME]
#                                   do the same and add the counts to those of the last run, for tests that were added since; for changed
#                                   code, run everything again
#   tools/coverage.sh --show FILE   print the outcomes that never occurred in a file in the last run, by line
#   tools/coverage.sh --list        print the functions with such outcomes in the last run, by reason
#   tools/coverage.sh --write       write the table of docs/reliability.md from the last run
# A branch has two outcomes, true and false. The counters are memory-mapped files (%c), so they include killed processes and those that call _exit.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
. tools/need.sh
build=build/coverage
more=
case ${1-} in
    --show | --list)
        exec tools/branches.py $build/coverage.json "$@"
        ;;
    --write)
        exec tools/branches.py $build/coverage.json --write "$(date -r $build/coverage.json +%F)"
        ;;
    --more)
        more=yes
        shift
        [ $# -gt 0 ] || { echo "coverage.sh: --more needs options of ctest, or faults POINTS [NAME]" >&2; exit 2; }
        ;;
esac

tests() { # tests CTEST... -- run tests and count
    LLVM_PROFILE_FILE=$PWD/$build/counts/tests/%c%4m.profraw ctest --test-dir $build -j2 -LE full -E '^(wasm_few|install|faults)$' --output-on-failure "$@" \
        >$build/tests.log || grep -E 'Failed|Timeout' $build/tests.log >&2
}

faults() { # faults POINTS [NAME] -- run the commands whose names begin with NAME with failing calls, and count
    LLVM_PROFILE_FILE=$PWD/$build/counts/faults/%c%4m.profraw \
        tests/faults/faults.py $build/relpos $build/tests/inject $build/tests/starve.so --points "$1" --ways --only "${2-}" >$build/faults.log || tail -n 1 $build/faults.log >&2
}

llvm=$(clang --version | sed -n '1s/.*version \([0-9]*\).*/\1/p')
need clang "llvm-$llvm" libclang-rt-dev cmake ninja-build
cmake --preset coverage >/dev/null
cmake --build --preset coverage >$build.log 2>&1 || { tail -n 60 $build.log; exit 1; }
[ "$more" ] || rm -rf $build/counts
mkdir -p $build/counts/tests $build/counts/faults
if [ "${1-}" = faults ]; then
    shift
    faults "$@"
else
    tests "$@"
    [ $# != 0 ] || faults 2
fi
# skip invalid files of counters: the system call that creates one may have been made to fail
"llvm-profdata-$llvm" merge -sparse -failure-mode=all -o $build/all.profdata $build/counts/*/*.profraw 2>$build/merge.log
# shellcheck disable=SC2046
"llvm-cov-$llvm" export -skip-expansions -instr-profile=$build/all.profdata $(find $build/relpos $build/tests -maxdepth 1 -type f -executable -printf '-object %p ') \
    >$build/coverage.json 2>$build/export.log
tools/branches.py $build/coverage.json
