"""python -m relpos, and the command relpos of the wheel: run the program that lies in the package.

It imports nothing of the package: NumPy takes longer to load than most commands take.
SPDX-License-Identifier: Apache-2.0"""
import os
import sys

program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "relpos")
try:
    os.environ.setdefault("RELPOS_PYTHON", sys.executable)  # relpos lab report runs it
    os.execv(program, ["relpos", *sys.argv[1:]])
except FileNotFoundError:
    sys.exit("relpos: the program was left out when this wheel was built, because jansson, libzip or libpng was missing "
             "(Debian: apt-get install pkg-config libjansson-dev libzip-dev libpng-dev, then pip install relpos again)")
