"""Helpers that count checks, run shell commands and format numbers. SPDX-License-Identifier: Apache-2.0"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

root = Path(__file__).resolve().parents[2]
build = Path(sys.argv[1]).resolve()
work = Path(tempfile.mkdtemp())
environment = {
    **os.environ,
    "PATH": f"{build}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    "NO_COLOR": "1",
    "COLUMNS": "80",
}
failures, count = [], 0


def check(what, good, detail=""):
    global count
    count += 1
    if not good:
        failures.append(what)
        print(f"FAILED {what} {detail}")


def command(text):
    done = subprocess.run(["bash", "-euc", text], cwd=work, env=environment, capture_output=True, text=True)
    check(f"runs: {text[:90]}", done.returncode == 0, done.stderr[-300:])
    return done.stdout


def fixed(numbers, digits=4):
    """Format numbers as the program and the page do, without negative zeros."""
    return [re.sub(r"^-(0\.?0*)$", r"\1", f"{x:.{digits}f}") for x in np.ravel(np.asarray(numbers, dtype=float))]


def printed(text, label, nth=0):
    """Return the numbers of a line of `relpos explain`."""
    lines = [line.strip() for line in text.splitlines() if re.match(rf"\s*{label}\s+(?:[-+]?\d|-inf)", line)]
    return re.findall(r"(?<![\w.])(?:[-+]?\d+\.\d{4}(?!\d)|-inf)", lines[nth][len(label) :]) if len(lines) > nth else []
