#!/usr/bin/env python3
"""Measure the tests that ./check runs in its stage dev and print their seconds and mutants.

    tools/test_times.py --run [REGEX]    run the tests of build/dev that are not for full, and save their times
    tools/test_times.py --run --missing  only those that are not in the file, after a run that was stopped
    tools/test_times.py [--over 5]       print the saved times, of the tests that take more than 5 processor seconds

The times are saved in bench/results/test_times.json. Processor seconds include child processes and depend little on
other work of the machine. Seconds by the clock depend on it. The mutants are those of bench/results/mutate.json, which
stops at the first test that notices a change.
SPDX-License-Identifier: Apache-2.0"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAVED = ROOT / "bench/results/test_times.json"


def tests(build):
    """The tests of a build folder by name: command, environment, folder and labels."""
    command = ["ctest", "--test-dir", build, "--show-only=json-v1"]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for test in json.loads(shown)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        found[test["name"]] = {
            "command": test.get("command"), "labels": properties.get("LABELS", []),
            "environment": dict(x.split("=", 1) for x in properties.get("ENVIRONMENT", [])),
            "folder": properties.get("WORKING_DIRECTORY", str(build)), "serial": properties.get("RUN_SERIAL", False),
            "skip": properties.get("SKIP_RETURN_CODE")}
    return found


def measure(test):
    """Run one test; return its processor seconds with its children, its seconds by the clock, and its state."""
    start = time.monotonic()
    null = subprocess.DEVNULL
    environment = {**os.environ, **test["environment"]}
    with subprocess.Popen(test["command"], cwd=test["folder"], env=environment, stdin=null, stdout=null,
                          stderr=null) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    code = process.returncode
    state = "passed" if code == 0 else "skipped" if test["skip"] is not None and code == test["skip"] else "failed"
    return {"cpu": round(usage.ru_utime + usage.ru_stime, 2), "clock": round(time.monotonic() - start, 2),
            "state": state, "labels": test["labels"]}


def run(options):
    """Measure the tests that match and save them beside those measured before."""
    saved = json.loads(options.file.read_text())["tests"] if options.file.exists() else {}
    every = {name: t for name, t in tests(options.build).items() if t["command"] and "full" not in t["labels"]}
    saved = {name: t for name, t in saved.items() if name in every}  # without tests that no longer exist
    chosen = {name: t for name, t in every.items()
              if re.search(options.regex, name) and not (options.missing and name in saved)}

    def note(name, result):
        saved[name] = result
        options.file.write_text(json.dumps({"tests": dict(sorted(saved.items()))}, indent=1, allow_nan=False) + "\n")

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(measure, t): name for name, t in chosen.items() if not t["serial"]}
        for done in concurrent.futures.as_completed(waiting):
            note(waiting[done], done.result())
    for name, test in chosen.items():
        if test["serial"]:
            note(name, measure(test))
    failed = [name for name in chosen if saved[name]["state"] == "failed"]
    if failed:
        print("test_times.py: these tests failed:", *failed, file=sys.stderr)
    return not failed


def table(options):
    """The tests by processor seconds, with the mutants that each killed."""
    saved = json.loads(options.file.read_text())["tests"]
    mutants = json.loads((ROOT / "bench/results/mutate.json").read_text())["mutants"]
    killed = collections.Counter(m.get("by") for m in mutants if m.get("state") == "killed")
    lines = [f"{'test':30} {'CPU s':>7} {'clock s':>7} {'killed':>6}  labels"]
    for name, t in sorted(saved.items(), key=lambda item: -item[1]["cpu"]):
        if t["cpu"] > options.over:
            notes = t["labels"] + ([] if t["state"] == "passed" else [f"({t['state']})"])
            lines.append(f"{name:30} {t['cpu']:7.1f} {t['clock']:7.1f} {killed[name]:6}  {' '.join(notes)}".rstrip())
    lines.append(f"{len(saved)} tests, {sum(t['cpu'] for t in saved.values()):.0f} processor seconds; "
                 f"{sum(killed.values())} mutants, {sum(killed[name] for name in saved)} killed by these tests")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--run", action="store_true", help="measure the tests again")
    parser.add_argument("--build", default=str(ROOT / "build/dev"), help="the build folder (build/dev)")
    parser.add_argument("--jobs", type=int, default=1, help="tests at the same time (1)")
    parser.add_argument("--over", type=float, default=0, help="print only tests that take more processor seconds")
    parser.add_argument("--missing", action="store_true", help="measure only tests that are not in the file")
    parser.add_argument("--file", type=Path, default=SAVED, help="the file of the times")
    parser.add_argument("regex", nargs="?", default="", help="measure only the tests whose names match")
    options = parser.parse_args()
    passed = run(options) if options.run else True
    sys.stdout.write(table(options) + "\n")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
