#!/bin/sh
# static_libs.sh PREFIX -- build zlib, jansson, libzip and libpng as small static libraries for tools/release.sh. With them, the program in a
# wheel runs on machines that lack these libraries. The sources are Debian's, and apt checks their signatures. libzip is built without
# encryption, and with no compression except zlib's. The licences are copied to PREFIX/licences.
# SPDX-License-Identifier: Apache-2.0
set -eu
prefix=$(realpath -m "${1:?usage: static_libs.sh PREFIX}")
script=$(realpath "$0")
! cmp -s "$script" "$prefix/complete" || exit 0 # already built by this version of the script
work=$prefix/build
mkdir -p "$work/lists/partial" "$prefix/licences"
cd "$work"
. /etc/os-release
{
    echo "deb-src http://deb.debian.org/debian $VERSION_CODENAME main"
    echo "deb-src http://deb.debian.org/debian-security $VERSION_CODENAME-security main"
} >sources.list

# apt ARGUMENT...: run apt-get with separate package lists, without changing those of the machine
apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists" \
        -o APT::Sandbox::User="$(id -un)" "$@"
}
apt update
# unpack SOURCE: download the source, unpack it into SOURCE.src with Debian's fixes, and copy the licence to licences/
unpack() {
    rm -rf "$1.src" "$1.build"
    apt source --download-only "$1" 2>"$1.err" || # a mirror may lack the files of the security archive
        apt source --download-only "$1/$VERSION_CODENAME" || { cat "$1.err" >&2; exit 1; }
    dpkg-source --no-check -x "$(echo "$1"_*.dsc)" "$1.src" >"$1.log"
    cp "$1.src/debian/copyright" "$prefix/licences/$1"
}
flags="-Os -DNDEBUG -fPIC -fno-asynchronous-unwind-tables -ffunction-sections -fdata-sections -ffile-prefix-map=$work=."
# library SOURCE OPTION...: build and install with CMake
library() {
    name=$1
    shift
    unpack "$name"
    cmake -G Ninja -S "$name.src" -B "$name.build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
        -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$prefix" -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
        -DCMAKE_C_FLAGS_RELEASE="$flags" "$@" >>"$name.log" 2>&1 &&
        cmake --build "$name.build" --target install >>"$name.log" 2>&1 || { tail -n 40 "$name.log" >&2; exit 1; }
}
unpack zlib # built with configure, because Debian's source lacks a file that its CMakeLists.txt needs
(cd zlib.src && CFLAGS=$flags ./configure --static --prefix="$prefix" && make install) >>zlib.log 2>&1 || { tail -n 40 zlib.log >&2; exit 1; }
library jansson -DJANSSON_BUILD_DOCS=OFF -DJANSSON_WITHOUT_TESTS=ON -DJANSSON_EXAMPLES=OFF
library libpng1.6 -DPNG_SHARED=OFF -DPNG_TESTS=OFF -DPNG_EXECUTABLES=OFF
library libzip -DENABLE_COMMONCRYPTO=OFF -DENABLE_GNUTLS=OFF -DENABLE_MBEDTLS=OFF -DENABLE_OPENSSL=OFF -DENABLE_BZIP2=OFF -DENABLE_LZMA=OFF \
    -DBUILD_TOOLS=OFF -DBUILD_REGRESS=OFF -DBUILD_EXAMPLES=OFF -DBUILD_DOC=OFF -DHAVE_ARC4RANDOM=OFF # arc4random needs glibc 2.36
cp "$script" "$prefix/complete"
