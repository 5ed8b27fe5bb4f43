#!/bin/sh
# setup.sh -- create a Python environment for bench/peers.py and bench/plots.py, with the versions of bench/requirements.txt.
#   bench/setup.sh [DIR]     default: build/venv. flex_attention also needs g++ and Python's headers (python3-dev).
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
venv=${1:-build/venv}
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet -r bench/requirements.txt
echo "$venv/bin/python bench/peers.py build/release/librelpos.so -o bench/results/peers.json"
