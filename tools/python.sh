#!/bin/sh
# python.sh -- build the wheel of the Python package, install it in a virtual environment under build/, and run its tests and its command.
# gcc builds the extension modules. clang compiles them too, as a check. Warnings are errors.
#   tools/python.sh            run the tests without PyTorch
#   tools/python.sh --torch    test this wheel in a second environment with PyTorch, transformers and timm, which pip downloads once
#                              (gigabytes). Then run the tests of relpos.hf with the oldest supported transformers
#   tools/python.sh --oldest   test this wheel with the oldest supported PyTorch
# The first environment has the versions of bench/requirements.txt. The second is upgraded to the newest versions each time, because relpos
# must work with the versions that users install today.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
place=build/python
wants_torch=${1:-}
case $wants_torch in
'' | --torch | --oldest) ;;
*)
    echo "python.sh: unknown argument $wants_torch; use --torch, --oldest or no argument" >&2
    exit 2
    ;;
esac
mkdir -p $place

# environment NAME ARGUMENT...: create the environment if it does not exist, and run pip install with the arguments
environment() {
    python=$place/$1/bin/python
    [ -x "$python" ] && "$python" -m pip --version >/dev/null 2>&1 || python3 -m venv $place/"$1"
    shift
    "$python" -m pip install -q --disable-pip-version-check "$@"
}

# tests FILE...: run the tests of the wheel in the environment created last
tests() {
    "$python" -m pip install -q --disable-pip-version-check --no-deps --force-reinstall "$wheel"
    "$python" -P -m pytest -p no:cacheprovider -n 2 "$@"
}

if [ ! "$wants_torch" ]; then
    environment venv -c bench/requirements.txt scikit-build-core numpy pytest pytest-xdist hypothesis ml_dtypes

    include=$($python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    clang -std=c11 -Wall -Wextra -Wpedantic -Wshadow -Werror -DPy_LIMITED_API=0x030b0000 -Iinclude -I. -isystem "$include" \
        -fsyntax-only python/relpos/_core/*.c python/relpos/*/_core/*.c python/relpos/_core/models/*.c

    # Without the libraries of the program, pip stops. With the option that the message names, CMake needs none of them.
    rm -rf $place/alone
    if PKG_CONFIG_LIBDIR=/nowhere $python -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w $place/alone \
        --config-settings=build-dir=$place/alone . >$place/alone.log 2>&1; then
        echo "pip built a wheel without jansson, libzip and libpng; see $place/alone.log"
        exit 1
    fi
    option=$(sed -n 's/.* pip install \. --config-settings=cmake\.define\.//p' $place/alone.log)
    PKG_CONFIG_LIBDIR=/nowhere cmake -D "$option" $place/alone >>$place/alone.log 2>&1 || { tail -n 40 $place/alone.log; exit 1; }
    [ "$(cmake --build $place/alone --target help | sed -n 's/^\(relpos_[a-z0-9]*\): .*/\1/p' | tr '\n' ' ')" = 'relpos_python ' ]

    rm -rf $place/dist
    $python -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w $place/dist \
        --config-settings=cmake.define.RELPOS_WERROR=ON . >$place/wheel.log 2>&1 || { tail -n 60 $place/wheel.log; exit 1; }
    wheel=$(echo $place/dist/*.whl)
    bytes=$(wc -c <"$wheel")
    echo "$(basename "$wheel"): $bytes bytes"
    . tools/wheel_limit.sh
    [ "$bytes" -lt $wheel_limit ] || { echo "the wheel must be smaller than $wheel_limit bytes"; exit 1; }
    $python -m zipfile -l "$wheel" | grep -q relpos/bin/relpos || { echo "the wheel has no program; see $place/wheel.log"; exit 1; }
    [ "$($python -m zipfile -l "$wheel" | grep -c 'relpos/lib/librelpos_t5')" = 1 ] || { echo "the wheel must have one library of T5"; exit 1; }
    tests python/tests
    tools/wheel_test.sh $place/venv
    exit 0
fi

wheel=$(echo $place/dist/*.whl)
[ -e "$wheel" ] || { echo "python.sh: there is no wheel in $place/dist; run tools/python.sh first"; exit 1; }
if [ "$wants_torch" = --oldest ]; then
    environment venv-oldest "torch==$(sed -n 's/^OLDEST = "\(.*\)"/\1/p' python/relpos/_operator.py).*" numpy pytest pytest-xdist hypothesis ml_dtypes
    tests python/tests/test_torch_*.py
    exit 0
fi
environment venv-torch --upgrade numpy pytest pytest-xdist hypothesis ml_dtypes matplotlib torch transformers accelerate timm onnx onnxscript sentencepiece protobuf sentence-transformers
$python -m pip list --disable-pip-version-check | grep -E '^(numpy|torch|transformers|timm|onnx|onnxscript) '
for package in g++ torch transformers accelerate timm onnxscript sentencepiece google.protobuf hypothesis sentence_transformers; do # tests would be skipped without these
    if [ "$package" = g++ ]; then
        command -v g++ >/dev/null || { echo "python.sh: g++ is missing; inductor, torch's compiler, needs it (./check installs it)"; exit 1; }
    else
        $python -P -c "import $package"
    fi
done
export RELPOS_NO_SKIPS=1
tests python/tests

# Test the oldest transformers that relpos.hf supports, with the newest versions of the other packages. Skip the slow tests that compile or trace.
oldest=$("$python" -P -c 'import relpos.hf; print(relpos.hf.OLDEST)')
[ -d $place/transformers-"$oldest" ] ||
    "$python" -m pip install -q --disable-pip-version-check --no-deps --target $place/transformers-"$oldest" "transformers==$oldest.*"
PYTHONPATH=$place/transformers-$oldest "$python" -P -m pytest -p no:cacheprovider -n 2 python/tests/test_hf.py python/tests/test_hf_drift.py \
    python/tests/test_hf_sound.py python/tests/test_t5_keys.py \
    -k "not compile and not inductor and not jit_trace and not activations and not truncate_dim"
