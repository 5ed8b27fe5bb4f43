"""Helpers of the tools that generate text in files: read `relpos info --json`, describe the machine, replace text
between two marks, write files, or check that they are up to date. Standard library only.

SPDX-License-Identifier: Apache-2.0"""
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent


def fail(why):
    sys.exit(f"{Path(sys.argv[0]).name}: {why}")


def program_of(arguments):
    """Return the path of the relpos program: the argument if there is one, else build/dev/relpos, else the newest
    build."""
    if len(arguments) > 1 or any(a.startswith("-") for a in arguments):
        sys.exit(sys.modules["__main__"].__doc__)
    if arguments:
        return Path(arguments[0])
    built = sorted(root.glob("build/*/relpos"), key=lambda path: (path.parent.name == "dev", path.stat().st_mtime))
    return built[-1] if built else fail("build the program first: cmake --preset dev && cmake --build --preset dev")


def said_by(program, of):
    """Return the list "terms" or "masks" from `relpos info --json`."""
    try:
        return json.loads(subprocess.run([program, "info", "--json"], check=True, capture_output=True,
                                         text=True).stdout)[of]
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as why:
        fail(f"{program} info --json: {why} (build the program first)")


def card():
    """Describe the machine and the source."""
    cpu = dict(line.split(":", 1) for line in subprocess.run(["lscpu"], capture_output=True,
                                                             text=True).stdout.splitlines() if ":" in line)
    version = subprocess.run(["gcc", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    return {"cpu": cpu.get("Model name", "?").strip(), "cores": os.cpu_count(), "kernel": platform.release(),
            "compiler": version,
            "commit": subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=root, capture_output=True,
                                     text=True).stdout.strip(),
            "date": datetime.date.today().isoformat()}


def between(text, begin, end, new, where):
    """Return the text with the part between two marks replaced. A mark is a line or part of a line."""
    before, mark, rest = text.partition(begin)
    _, last, after = rest.partition(end)
    if not mark or not last:
        fail(f"{where}: {begin!r} and then {end!r} are missing")
    return before + begin + new + end + after


def write(files):
    """Write the files (path -> text) that differ, and print their names."""
    for path, text in files.items():
        if not (root / path).exists() or (root / path).read_text() != text:
            (root / path).write_text(text)
            print(path)


def check(files, command):
    """Exit with 1 if any of the files (path -> text) differs from its text."""
    stale = [path for path, text in files.items() if not (root / path).exists() or (root / path).read_text() != text]
    if stale:
        fail(f"stale: {', '.join(stale)}; run {command}")
