#!/bin/sh
# compilers.sh [COMPILER...] -- build the library, the program and some tests with other compilers, with warnings as errors, and run the
# tests; with musl-gcc, build the library and relpos_verify as a static program, and run it with the few problems of the test verify_few.
# By default: every gcc from 11 and clang from 14 that Debian has for this release, and musl-gcc.
#   tools/compilers.sh --record COMPILER...    also save the results in bench/results/compilers.json and write the table of docs/platforms.md
#   tools/compilers.sh [--record] --newest     the gcc and clang of Debian's unstable release, with its libraries, in a root made by debootstrap
# Builds are in build/compilers. --newest needs root rights, or sudo. A compiler that fails does not stop the others. SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
. tools/need.sh
all_compilers() {
    apt-cache search --names-only '^(gcc|clang)-[0-9]+$' | sed 's/ .*//' | sort -t- -k1,1r -k2,2n |
        awk -F- '($1 == "gcc" && $2 >= 11) || ($1 == "clang" && $2 >= 14)'
    echo musl-gcc
}
record=
if [ "${1-}" = --record ]; then
    record=yes
    shift
fi
if [ "${1-}" = --newest ]; then
    . tools/copy_tree.sh
    need debootstrap
    root=$PWD/build/newest-root
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    if [ ! -e "$root/complete" ]; then
        $sudo rm -rf --one-file-system "$root"
        mkdir -p "$root"
        packages=gcc,clang,libc6-dev,cmake,ninja-build,pkg-config,libjansson-dev,libzip-dev,libpng-dev,libcmocka-dev,libhdf5-dev,python3
        $sudo debootstrap --variant=minbase --include=$packages sid "$root" >"$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; exit 1; }
        $sudo touch "$root/complete"
    fi
    trap '$sudo umount "$root/proc"' EXIT
    mountpoint -q "$root/proc" || $sudo mount -t proc proc "$root/proc"
    $sudo mkdir -p "$root/relpos"
    copy_tree "$root/relpos"
    $sudo /usr/sbin/chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 \
        /relpos/tools/compilers.sh ${record:+--record} gcc clang
    [ -z "$record" ] || cp "$root/relpos/bench/results/compilers.json" bench/results
    [ -z "$record" ] || python3 tools/compilers.py --write
    exit 0
fi
[ $# -gt 0 ] || set -- $(all_compilers)
tests='verify_few|golden_.*|test_(arguments|array_forms|backward_arguments|definition|encoder_pack|explain|forms|masks|returns|tokenizer)'
mkdir -p build/compilers
# try LOG COMMAND...: add the output of a command to a log, and print the end of it if the command fails
try() {
    log=$1
    shift
    "$@" >>"$log" 2>&1 || { grep -E 'error|warning|Failed' "$log" | head -n 20; tail -n 15 "$log"; return 1; }
}
# musl FOLDER: the library and relpos_verify, linked statically
musl() {
    try "$1.log" cmake -B "$1" -G Ninja -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_BUILD_TYPE=Release -DRELPOS_WERROR=ON \
        -DBUILD_SHARED_LIBS=OFF -DCMAKE_EXE_LINKER_FLAGS=-static -DRELPOS_BUILD_CLI=OFF -DRELPOS_BUILD_TESTS=OFF -DRELPOS_BUILD_VERIFY=ON || return 1
    try "$1.log" cmake --build "$1" || return 1
    if readelf -l "$1/relpos_verify" | grep -q INTERP; then
        echo "$1/relpos_verify is not static"
        return 1
    fi
    # a locale that musl lacks, and a small stack, must not matter
    try "$1.log" env LC_ALL=de_DE.UTF-8 sh -c 'ulimit -s 512; exec "$@"' sh "$1/relpos_verify" fwd:f64:b2h2q97k130d17v19:t5+dense:softcap=3 \
        fwd:f32:b1h2q300k300d64:rope+alibi:causal fwd:f64:b1h2q60k60d16:swin,grid=6x10:key_mask bwd:f64:b1h2q33k300d16:t5:causal \
        bwd:bf16:b1h2q33k300d16:t5:causal fwd:f16:b1h2q33k600d16:relval,left=3,right=3:
}
# debian FOLDER COMPILER: the program and tests
debian() {
    try "$1.log" cmake -B "$1" -G Ninja -DCMAKE_C_COMPILER="$2" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRELPOS_WERROR=ON -DRELPOS_COMPLETE=ON \
        -DRELPOS_TEST_KERNELS=OFF || return 1
    targets=$(ctest --test-dir "$1" -N -R "^($tests)\$" | sed -n 's/.*: \(test_[a-z_0-9]*\)$/\1/p')
    # $targets must be split into words
    # shellcheck disable=SC2086
    try "$1.log" cmake --build "$1" --target relpos_program test_golden $targets || return 1
    try "$1.log" ctest --test-dir "$1" -j 2 --output-on-failure -R "^($tests)\$" || return 1
}
failed=''
for compiler in "$@"; do
    case $compiler in
    musl-gcc) need musl-tools ;;
    *) need "$compiler" ;;
    esac
    folder=build/compilers/$compiler began=$(date +%s)
    version=$("$compiler" -dumpfullversion 2>/dev/null || "$compiler" --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p')
    rm -f "$folder.log"
    state=passed
    case $compiler in
    musl-gcc) musl "$folder" ;;
    *) debian "$folder" "$compiler" ;;
    esac || { state=failed && failed="$failed $compiler"; }
    echo "$compiler ($version): $state in $(($(date +%s) - began)) s (log in $folder.log)"
    case $compiler in # gcc and clang without a number are those of --newest
    gcc | clang) compiler=$compiler-${version%%.*} ;;
    esac
    # the number of tests is that of ctest, or that of the problems of relpos_verify
    [ -z "$record" ] || python3 tools/compilers.py --record "$compiler" "$version" $state \
        "$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p; s/^\([0-9]*\) problems.*/\1/p' "$folder.log" | tail -n 1 | grep . || echo 0)"
done
[ -z "$record" ] || python3 tools/compilers.py --write
[ -z "$failed" ] || { echo "compilers.sh: failed with$failed" >&2; exit 1; }
