"""python -m relpos, and the command relpos of the wheel: run the program that lies in the package.

It imports nothing of the package: NumPy takes longer to load than most commands take.
SPDX-License-Identifier: Apache-2.0"""
import importlib.util
import os
import sys

places = importlib.util.find_spec("relpos").submodule_search_locations  # two where the installation is editable
programs = [path for path in (os.path.join(place, "bin", "relpos") for place in places) if os.path.exists(path)]
if not programs:
    sys.exit("relpos: the program was left out when this wheel was built, because jansson, libzip or libpng was missing "
             "(Debian: apt-get install pkg-config libjansson-dev libzip-dev libpng-dev, then run pip install . again in the source folder of relpos)")
os.environ.setdefault("RELPOS_PYTHON", sys.executable)  # relpos lab report runs it
os.execv(programs[0], ["relpos", *sys.argv[1:]])
