#!/bin/sh
# test.sh [PRESET] -- build the explorer in build/PRESET (default dev) and test it in chromium, and in firefox-esr if it is installed. Python
# packages are installed in build/web/venv.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
build=build/${1:-dev}
place=build/web
mkdir -p $place
cmake --build "$build" --target all explorer >$place/explorer.log 2>&1 || { tail -n 60 $place/explorer.log; exit 1; }
[ -x $place/venv/bin/pip ] || python3 -m venv $place/venv
$place/venv/bin/python -m pip install -q --disable-pip-version-check playwright numpy axe-playwright-python
$place/venv/bin/python web/tests/run.py "$build"
