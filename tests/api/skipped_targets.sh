#!/bin/sh
# skipped_targets.sh BUILD -- configure without some libraries. The targets that need them are skipped, and CMake prints how to install the libraries.
# A wheel without them is an error.
# SPDX-License-Identifier: Apache-2.0
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
mkdir "$work/all"
pkg-config --variable pc_path pkg-config | tr : '\n' | while read -r folder; do
    cp "$folder"/*.pc "$work/all" 2>"$work/none" || true
done

# configure NAME HIDDEN...: configure with these packages hidden. Sets $said to the line about skipped targets, and $targets to the main targets.
configure()
{
    name=$1
    shift
    cp -r "$work/all" "$work/$name.pc"
    for hidden; do rm -f "$work/$name.pc/$hidden"*.pc; done
    PKG_CONFIG_LIBDIR=$work/$name.pc cmake -G Ninja -S . -B "$work/$name" -DCMAKE_C_COMPILER="$cc" -DCMAKE_INSTALL_PREFIX=/usr >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    said=$(grep '^relpos: skipped' "$work/log" || true)
    targets=$(cmake --build "$work/$name" --target help | sed -n -E 's/^(relpos_t5|relpos_program|test_linear): .*/\1/p' | sort | tr '\n' ' ')
}

# is WHAT EXPECTED FOUND: fail if the two texts differ
is()
{
    [ "$2" = "$3" ] || { printf '%s: expected "%s", found "%s"\n' "$1" "$2" "$3"; exit 1; }
}

end='; then configure again).'
configure no-cmocka cmocka
is cmocka "relpos: skipped: the tests. Not found: cmocka (Debian: apt install libcmocka-dev$end" "$said"
is cmocka 'relpos_program relpos_t5 ' "$targets"
is 'the run path of programs, for the prefix /usr' 0 "$(grep -c rpath "$work/no-cmocka/relpos.pc")"
configure no-png libpng
is libpng "relpos: skipped: the program relpos and the tests. Not found: libpng (Debian: apt install libpng-dev$end" "$said"
is libpng 'relpos_t5 ' "$targets"
configure no-jansson jansson
is jansson "relpos: skipped: the library relpos_t5, the program relpos and the tests. Not found: jansson (Debian: apt install libjansson-dev$end" "$said"
is jansson '' "$targets"
configure nothing jansson libzip libpng cmocka
is nothing "relpos: skipped: the library relpos_t5, the program relpos and the tests. Not found: jansson, libzip, libpng, cmocka (Debian: apt install \
libjansson-dev libzip-dev libpng-dev libcmocka-dev$end" "$said"
is nothing '' "$targets"

# with RELPOS_COMPLETE, configuring fails if anything is missing
if PKG_CONFIG_LIBDIR=$work/nothing.pc cmake -G Ninja -S . -B "$work/complete" -DCMAKE_C_COMPILER="$cc" -DRELPOS_COMPLETE=ON >"$work/log" 2>&1; then
    echo 'RELPOS_COMPLETE: configured without the libraries'
    exit 1
fi
grep -q 'skipped: the library relpos_t5' "$work/log"

# in a wheel too: CMake names the packages, and the option with which tools/python.sh configures without them
for hidden in jansson libzip zlib libpng; do
    package=$(echo "lib${hidden#lib}-dev" | sed s/libzlib-dev/zlib1g-dev/)
    rm -rf "$work/wheel.pc" "$work/wheel" # CMake remembers what pkg-config found
    cp -r "$work/all" "$work/wheel.pc"
    rm -f "$work/wheel.pc/$hidden"*.pc
    if PKG_CONFIG_LIBDIR=$work/wheel.pc cmake -G Ninja -S . -B "$work/wheel" -DCMAKE_C_COMPILER="$cc" -DRELPOS_BUILD_PYTHON=ON -DRELPOS_BUILD_TESTS=OFF \
        >"$work/log" 2>&1; then
        echo "a wheel was configured without $hidden"
        exit 1
    fi
    is "$hidden in a wheel" 1 "$(grep -c '^CMake Error' "$work/log")"
    grep -qx " *apt install .*$package.*" "$work/log" && grep -qx ' *pip install \. --config-settings=cmake.define.RELPOS_BUILD_CLI=OFF' "$work/log" ||
        { cat "$work/log"; exit 1; }
done
