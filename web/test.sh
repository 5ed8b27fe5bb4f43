#!/bin/sh
# test.sh [PRESET] -- make the explorer in build/PRESET (dev) and try it in chromium, and in firefox-esr where it is, from an environment of its own under build/.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
build=build/${1:-dev}
place=build/web
mkdir -p $place
cmake --build "$build" --target all explorer >$place/explorer.log 2>&1 || { tail -n 60 $place/explorer.log; exit 1; }
[ -x $place/venv/bin/pip ] || python3 -m venv $place/venv
$place/venv/bin/python -m pip install -q --disable-pip-version-check playwright numpy
$place/venv/bin/python web/tests/run.py "$build"
