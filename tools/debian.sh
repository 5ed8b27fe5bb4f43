#!/bin/sh
# debian.sh -- build Debian packages from the last commit in build/debian, run their short tests, and check them with lintian. Warnings of
# lintian are errors. DEB_BUILD_OPTIONS=nocheck skips the tests.
# Needs debhelper, devscripts and lintian, and the packages of ./check. SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
. tools/need.sh
need debhelper lintian cmake ninja-build scdoc pkg-config libcmocka-dev libjansson-dev libpng-dev libzip-dev zlib1g-dev clang-19 lld-19 wasi-libc \
    libclang-rt-19-dev-wasm32
version=$(sed -n '1s/.*(\(.*\)-.*/\1/p' packaging/debian/changelog)
grep -q "RP_VERSION_STRING \"$version\"" include/relpos/relpos.h || {
    echo "debian.sh: packaging/debian/changelog begins with version $version, but include/relpos/relpos.h has another version; make them equal" >&2
    exit 1
}
rm -rf build/debian
mkdir -p "build/debian/relpos-$version"
git archive --format=tar HEAD ':(exclude)packaging/debian' | gzip -9n >"build/debian/relpos_$version.orig.tar.gz"
tar -C "build/debian/relpos-$version" -xf "build/debian/relpos_$version.orig.tar.gz"
git archive --format=tar HEAD:packaging debian | tar -C "build/debian/relpos-$version" -xf -
cd "build/debian/relpos-$version"
dpkg-buildpackage -us -uc
lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs ../*.changes # the first upload has no Debian bug to close
cd ..
ls -l ./*.deb
