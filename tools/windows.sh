#!/bin/sh
# windows.sh [PROBLEM...] -- build the library for Windows on x86-64 with clang and MinGW in build/windows, and run relpos_verify under wine on
# the problems, by default all. docs/platforms.md lists the parts of relpos that work on Windows.
# Needs clang, lld, gcc-mingw-w64-x86-64 and wine64. SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
. tools/need.sh
need clang lld cmake ninja-build gcc-mingw-w64-x86-64 wine64
mkdir -p build
cmake -B build/windows -G Ninja --toolchain packaging/cmake/windows.cmake -DCMAKE_BUILD_TYPE=Release -DRELPOS_WERROR=ON >build/windows.log 2>&1 ||
    { tail -n 30 build/windows.log; exit 1; }
cmake --build build/windows >>build/windows.log 2>&1 || { tail -n 60 build/windows.log; exit 1; }
wine=$(PATH=$PATH:/usr/lib/wine command -v wine64)
WINEPREFIX=$PWD/build/wine WINEDEBUG=-all "$wine" build/windows/relpos_verify.exe "$@"
