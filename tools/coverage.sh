#!/bin/sh
# coverage.sh -- which branches of io, of the checks of arguments and of the command line the tests of the preset dev take, file by file.
#   tools/coverage.sh [CTEST...]    build with clang's counters (preset coverage), run the tests, or those that options of ctest choose, and print
#                                   the table
#   tools/coverage.sh --show FILE   of the last run: each branch that is never taken, with its line
# A branch has two ways. Processes that are killed, or end by _exit, count nothing. cli_outputs fails: it limits the size of files, and so of counts.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
. tools/need.sh
build=build/coverage
llvm=$(clang --version | sed -n '1s/.*version \([0-9]*\).*/\1/p')

# report FILE: the table, or the branches of a file
report() {
    python3 - $build/coverage.json "$1" <<'END'
import json, re, sys
parts = {"io": r"io/", "checks": r"src/api/|src/masks/|src/terms/(text|shape|forms|facts|registry)\.c|src/base/(array|error)", "command line": r"cli/|support/"}
ways, show = {}, sys.argv[2]
for file in json.load(open(sys.argv[1]))["data"][0]["files"]:
    name = file["filename"].split("/./")[-1]
    for line, column, _, _, true, false, *_ in file["branches"]:
        for way, count in ((True, true), (False, false)):
            place = ways.setdefault(name, {})
            place[line, column, way] = place.get((line, column, way), 0) + count
if show:
    lines = open(show).read().splitlines()
    for (line, column, way), count in sorted(ways[show].items()):
        if count == 0:
            print(f"{line}:{column} never {'true' if way else 'false'}: {lines[line - 1][column - 1:].strip()}")
for part, names in parts.items() if not show else ():
    of = {f: (sum(n > 0 for n in w.values()), len(w)) for f, w in ways.items() if re.match(names, f) and w}
    covered, count = (sum(x) for x in zip(*of.values()))
    print(f"{100 * covered / count:5.1f} %  {covered:5} of {count:5} branches of {part}")
    for f, (some, all_) in sorted(of.items(), key=lambda x: x[1][0] / x[1][1]):
        print(f"    {100 * some / all_:5.1f} %  {all_ - some:4} never taken  {f}")
END
}

if [ "${1-}" = --show ]; then
    report "$2"
    exit
fi
need clang "llvm-$llvm" libclang-rt-dev cmake ninja-build
cmake --preset coverage >/dev/null
cmake --build --preset coverage >$build.log 2>&1 || { tail -n 60 $build.log; exit 1; }
rm -rf $build/counts && mkdir $build/counts
LLVM_PROFILE_FILE=$PWD/$build/counts/%4m.profraw ctest --test-dir $build -j2 -E '^(wasm|wasm_few|install)$' --output-on-failure "$@" >$build/tests.log ||
    grep -E 'Failed|Timeout' $build/tests.log >&2
"llvm-profdata-$llvm" merge -sparse -o $build/all.profdata $build/counts/*.profraw
# shellcheck disable=SC2046
"llvm-cov-$llvm" export -skip-expansions -instr-profile=$build/all.profdata $(find $build/relpos $build/tests -maxdepth 1 -type f -executable -printf '-object %p ') \
    >$build/coverage.json 2>$build/export.log
report ''
