#!/bin/sh
# arm64.sh DIR -- unpack the arm64 libraries of Debian that the program and its tests link with into DIR. apt selects and
# verifies the packages, but installs nothing on this machine and needs no root.
# SPDX-License-Identifier: Apache-2.0
set -eu
mkdir -p "$1"
root=$(cd "$1" && pwd)
[ -e "$root/complete" ] && exit 0
mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial"
: >"$root/apt/status"
apt() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$root/apt" \
        -o Dir::State::status="$root/apt/status" -o Dir::Cache="$root/apt" -o APT::Sandbox::User= "$@"
}
apt update
apt install -y --download-only --no-install-recommends libcmocka-dev libjansson-dev libzip-dev libpng-dev
for package in "$root"/apt/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
done
rm -r "$root/apt"
: >"$root/complete"
