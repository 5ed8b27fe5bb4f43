#!/usr/bin/env python3
"""Measure the tests that ./check runs in its stage dev and print their seconds and mutants.

    tools/test_times.py --run [REGEX]    run the tests of build/dev that are not for full, and save their times
    tools/test_times.py --run --missing  only those that are not in the file, after a run that was stopped
    tools/test_times.py [--over 5]       print the saved times, of the tests that take more than 5 processor seconds
    tools/test_times.py --write          write the table of docs/contributing.md; --check: exit with 1 if it is stale

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
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
from made import between, check, root, write  # noqa: E402

SAVED = root / "bench/results/test_times.json"
PAGE = "docs/contributing.md"
LONG = 5  # the table of the page lists tests that take more processor seconds


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


def measure(test, timeout):
    """Run one test; return its processor seconds with its children, its seconds by the clock, and its state."""
    start = time.monotonic()
    null = subprocess.DEVNULL
    with subprocess.Popen(test["command"], cwd=test["folder"], env={**os.environ, **test["environment"]}, stdin=null,
                          stdout=null, stderr=null, start_new_session=True) as process:
        while True:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            late = time.monotonic() - start > timeout
            if ended or late:
                break
            time.sleep(0.01)
        if not ended:  # also end the processes that the test started
            os.killpg(process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
    state = ("timed out" if not ended else "passed" if code == 0 else
             "skipped" if test["skip"] is not None and code == test["skip"] else "failed")
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
        waiting = {pool.submit(measure, t, options.timeout): name for name, t in chosen.items() if not t["serial"]}
        for done in concurrent.futures.as_completed(waiting):
            note(waiting[done], done.result())
    for name, test in chosen.items():
        if test["serial"]:
            note(name, measure(test, options.timeout))
    wrong = [f"{name} ({saved[name]['state']})" for name in chosen if saved[name]["state"] in ("failed", "timed out")]
    if wrong:
        print("test_times.py: these tests did not pass:", *wrong, file=sys.stderr)
    return not wrong


def killed_first():
    """How many mutants each test killed first."""
    mutants = json.loads((root / "bench/results/mutate.json").read_text())["mutants"]
    return collections.Counter(m["by"].removesuffix(" (sanitized)") for m in mutants if m.get("state") == "killed")


def table(options):
    """The tests by processor seconds, with the mutants that each killed."""
    saved = json.loads(options.file.read_text())["tests"]
    killed = killed_first()
    lines = [f"{'test':30} {'CPU s':>7} {'clock s':>7} {'killed':>6}  labels"]
    for name, t in sorted(saved.items(), key=lambda item: -item[1]["cpu"]):
        if t["cpu"] > options.over:
            notes = t["labels"] + ([] if t["state"] == "passed" else [f"({t['state']})"])
            lines.append(f"{name:30} {t['cpu']:7.1f} {t['clock']:7.1f} {killed[name]:6}  {' '.join(notes)}".rstrip())
    lines.append(f"{len(saved)} tests, {sum(t['cpu'] for t in saved.values()):.0f} processor seconds; "
                 f"{sum(killed.values())} mutants, {sum(killed[name] for name in saved)} killed by these tests")
    return "\n".join(lines)


def page():
    """The page with its table: the tests that take long, and all others in one row."""
    saved, killed = json.loads(SAVED.read_text())["tests"], killed_first()
    slow = sorted((name for name, t in saved.items() if t["cpu"] > LONG), key=lambda name: -saved[name]["cpu"])
    rest = [name for name in saved if name not in slow]
    rows = ["| test | processor seconds | mutants it killed first |", "|---|---|---|"]
    rows += [f"| {name} | {saved[name]['cpu']:.1f} | {killed[name]} |" for name in slow]
    rows.append(f"| the {len(rest)} others | {sum(saved[name]['cpu'] for name in rest):.0f} | "
                f"{sum(killed[name] for name in rest)} |")
    rows.append(f"| tests of the Python package, which have a stage of their own | | "
                f"{sum(killed[name] for name in killed if name.startswith('python_'))} |")
    return {PAGE: between((root / PAGE).read_text(), "<!-- times: tools/test_times.py --write -->\n",
                          "<!-- end of times -->", "\n".join(rows) + "\n", PAGE)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--run", action="store_true", help="measure the tests again")
    parser.add_argument("--build", default=str(root / "build/dev"), help="the build folder (build/dev)")
    parser.add_argument("--jobs", type=int, default=1, help="tests at the same time (1)")
    parser.add_argument("--over", type=float, default=0, help="print only tests that take more processor seconds")
    parser.add_argument("--missing", action="store_true", help="measure only tests that are not in the file")
    parser.add_argument("--timeout", type=float, default=600, help="seconds after which a test is stopped (600)")
    parser.add_argument("--write", action="store_true", help=f"write the table of {PAGE}")
    parser.add_argument("--check", action="store_true", help=f"exit with 1 if the table of {PAGE} is stale")
    parser.add_argument("--file", type=Path, default=SAVED, help="the file of the times")
    parser.add_argument("regex", nargs="?", default="", help="measure only the tests whose names match")
    options = parser.parse_args()
    if options.check:
        return check(page(), "tools/test_times.py --write")
    passed = run(options) if options.run else True
    if options.write:
        write(page())
    else:
        sys.stdout.write(table(options) + "\n")
    return not passed


if __name__ == "__main__":
    sys.exit(main())
