#!/bin/sh
# python.sh -- build the wheel of the Python package, install it in an environment of its own under build/, and run its tests.
# clang reads the extension module too; gcc builds it, warnings as errors. SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
place=build/python
mkdir -p $place
[ -x $place/venv/bin/pip ] || python3 -m venv $place/venv
python=$place/venv/bin/python
$python -m pip install -q --disable-pip-version-check scikit-build-core numpy pytest ml_dtypes

include=$($python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
clang -std=c11 -Wall -Wextra -Wpedantic -Wshadow -Werror -DPy_LIMITED_API=0x030b0000 -Iinclude -isystem "$include" \
    -fsyntax-only python/relpos/_core.c

rm -rf $place/dist
$python -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w $place/dist \
    --config-settings=cmake.define.RELPOS_WERROR=ON . >$place/wheel.log 2>&1 || { tail -n 60 $place/wheel.log; exit 1; }
wheel=$(echo $place/dist/*.whl)
$python -m pip install -q --disable-pip-version-check --no-deps --force-reinstall "$wheel"
bytes=$(wc -c <"$wheel")
echo "$(basename "$wheel"): $bytes bytes"
[ "$bytes" -lt 1000000 ] || { echo "a wheel has to stay below 1,000,000 bytes"; exit 1; }
$python -P -m pytest -p no:cacheprovider python/tests
