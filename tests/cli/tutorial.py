"""Run the commands in the output of `relpos tutorial NAME --json`, and print those whose output does not have the
numbers of the first row.

    python3 tests/cli/tutorial.py RELPOS FILE

SPDX-License-Identifier: Apache-2.0"""
import json
import re
import subprocess
import sys

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")

for step in json.load(open(sys.argv[2]))["steps"]:
    words = (step["command"] or "").split()
    if not words or words[0] != "relpos":
        continue
    run = subprocess.run([sys.argv[1], *words[1:]], capture_output=True, text=True)
    if step["right"].startswith("refused"):
        if run.returncode != 2:
            print(f"{step['command']}: exit code {run.returncode}, expected 2")
        continue
    found = [float(x) for x in NUMBER.findall(run.stdout)]
    for x in step["right"].split("\n")[0].split():
        digits = len(x.partition(".")[2])
        if run.returncode or not any(abs(float(x) - y) <= 0.51 * 10.0 ** -digits for y in found):
            print(f"{step['command']}: exit code {run.returncode}, no {x} in its output")
