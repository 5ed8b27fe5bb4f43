"""Run the program in the package, for `python -m relpos` and the command `relpos`.

This file imports nothing from the package, because NumPy takes longer to load than most commands run.
SPDX-License-Identifier: Apache-2.0"""
import importlib.util
import os
import sys

places = importlib.util.find_spec("relpos").submodule_search_locations  # an editable installation has two folders
programs = [path for path in (os.path.join(place, "bin", "relpos") for place in places) if os.path.exists(path)]
if not programs:
    sys.exit("relpos: this package was built with RELPOS_BUILD_CLI=OFF, so it has attention alone (Debian: apt-get "
             "install pkg-config libjansson-dev libzip-dev libpng-dev, then rebuild the package by pip install . in "
             "the source folder)")
os.environ.setdefault("RELPOS_PYTHON", sys.executable)  # used by relpos lab report
os.execv(programs[0], ["relpos", *sys.argv[1:]])
