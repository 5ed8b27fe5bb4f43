#!/bin/sh
# build.sh -- build the documentation site in build/docs/html and run its examples, in a virtual environment under build/. Warnings are
# errors. The script uses the wheel of tools/python.sh, and runs that script if the wheel is missing or older than its sources.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
. tools/need.sh
need doxygen gcc g++ clang cmake ninja-build python3 python3-dev python3-venv pkg-config libjansson-dev libzip-dev libpng-dev
place=build/docs
mkdir -p $place
newer() { # newer FILE PATH...: succeed if FILE is missing or a file in the paths is newer
    file=$1 && shift
    [ ! -e "$file" ] || [ -n "$(find "$@" -type f -newer "$file" -not -path '*__pycache__*' -print -quit)" ]
}

wheel=$(echo build/python/dist/*.whl)
if newer "$wheel" include src python/relpos CMakeLists.txt pyproject.toml; then
    tools/python.sh
    wheel=$(echo build/python/dist/*.whl)
fi
python=$place/venv/bin/python
if newer $place/installed "$wheel" docs/requirements.txt; then
    [ -x $place/venv/bin/pip ] || python3 -m venv $place/venv
    $python -m pip install -q --disable-pip-version-check --no-compile -r docs/requirements.txt
    $python -m pip install -q --disable-pip-version-check --no-deps --force-reinstall "$wheel"
    touch $place/installed
fi
if newer $place/html/index.html $place/installed docs/*.py tools/terms.py; then # build all pages and pictures again
    rm -rf $place/html $place/doctrees $place/plot_directive docs/api
fi
if newer $place/tutorials/serve.ipynb $place/installed docs/tutorials docs/tutorials.py; then
    $python -P docs/tutorials.py
fi

python3 docs/term_values.py >/dev/null # doxygen ignores failures of its filter
doxygen docs/Doxyfile
sphinx() { # after a failure, force the next run to read all pages, because Sphinx repeats warnings only for pages that it reads
    $python -m sphinx -q -W -d $place/doctrees "$@" || { rm -rf $place/doctrees docs/api; return 1; }
}
sphinx --keep-going -j 2 -b html docs $place/html
sphinx -b doctest docs $place/doctest || { cat $place/doctest/output.txt; exit 1; }
echo "$place/html/index.html"
