#!/bin/sh
# bare_root.sh WHEEL -- install a wheel in a bare root of Debian without compilers, and run there what the first screen of README.md shows: its
# Python block, its lines that begin with relpos, and the help of each command that it names; then tools/wheel_test.sh. The root stays in
# build/bare-root for the next run. Needs root rights, or sudo. SPDX-License-Identifier: Apache-2.0
set -eu
wheel=$(realpath "${1:?usage: bare_root.sh WHEEL}")
cd "$(dirname "$0")/.."
. tools/need.sh
need debootstrap python3-venv
root=$PWD/build/bare-root
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
. /etc/os-release
if [ ! -e "$root/complete" ]; then
    $sudo rm -rf --one-file-system "$root"
    mkdir -p "$root"
    $sudo debootstrap --variant=minbase --include=python3-venv "$VERSION_CODENAME" "$root" >"$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; exit 1; }
    $sudo touch "$root/complete"
fi
# in_root COMMAND...: run a command in the root, with nothing of this machine but the folder /given
in_root() {
    $sudo /usr/sbin/chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 "$@"
}
in_root true # the next lines take a failure for a missing compiler
for compiler in cc gcc clang c++ cmake; do
    if in_root sh -c "command -v $compiler" >/dev/null; then
        echo "bare_root.sh: the root has $compiler; remove build/bare-root" >&2
        exit 1
    fi
done
files=$(mktemp -d)
trap 'rm -rf "$files"; $sudo umount "$root/proc"; $sudo rm -rf "$root/given"' EXIT
mountpoint -q "$root/proc" || $sudo mount -t proc proc "$root/proc" # the loader finds the folder of a program there
cp "$wheel" tools/wheel_test.sh "$files"
[ -x build/bare-venv/bin/python ] || python3 -m venv build/bare-venv
build/bare-venv/bin/python -m pip download -q --disable-pip-version-check -d "$files" numpy # the root needs no network

# the first screen of README.md: before "## What it computes", or 60 lines
sed -n '/^## What it computes/q; 1,60p' README.md >"$files/screen"
awk '/^```python$/ { inside = 1; found = 1; next } /^```/ { inside = 0 } inside; END { exit !found }' "$files/screen" >"$files/first.py" ||
    { echo "bare_root.sh: the first screen of README.md has no block of Python" >&2; exit 1; }
grep -q 'relpos\.' "$files/first.py"
sed -n 's/^    \(relpos .*\)/\1/p' "$files/screen" >"$files/first.sh"
sed -n 's/[^`]*`\(relpos [a-z0-9 ]*\)`[^`]*/\1 --help\n/gp' "$files/screen" | grep '^relpos' >>"$files/first.sh"
cat "$files/first.py" "$files/first.sh"

$sudo rm -rf "$root/given"
$sudo cp -r "$files" "$root/given"
in_root sh -euc 'python3 -m venv /given/venv
/given/venv/bin/pip install -q --disable-pip-version-check --no-index --find-links /given /given/relpos-*.whl
cd /given
PATH=/given/venv/bin:$PATH
python first.py
while read -r line; do $line >out || { echo "$line: failed"; exit 1; }; done <first.sh
sh /given/wheel_test.sh /given/venv page'
echo "README's first screen in a bare root: all passed"
