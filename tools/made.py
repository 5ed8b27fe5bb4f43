"""What tools/terms.py and tools/masks.py share: what the program says of itself, text between two marks, and files that are written or
found stale. Standard library only.  SPDX-License-Identifier: Apache-2.0"""
import json
import subprocess
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent


def fail(why):
    sys.exit(f"{Path(sys.argv[0]).name}: {why}")


def program_of(arguments):
    """The program that is named, or that of build/dev, or the one that was built last."""
    if len(arguments) > 1 or any(a.startswith("-") for a in arguments):
        sys.exit(sys.modules["__main__"].__doc__)
    if arguments:
        return Path(arguments[0])
    built = sorted(root.glob("build/*/relpos"), key=lambda path: (path.parent.name == "dev", path.stat().st_mtime))
    return built[-1] if built else fail("build the program first: cmake --preset dev && cmake --build --preset dev")


def said_by(program, of):
    """What `relpos info --json` says of "terms" or of "masks"."""
    try:
        return json.loads(subprocess.run([program, "info", "--json"], check=True, capture_output=True, text=True).stdout)[of]
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as why:
        fail(f"{program} info --json: {why} (build the program first)")


def between(text, begin, end, new, where):
    """The text with what stands between two lines, or pieces of them, replaced."""
    before, mark, rest = text.partition(begin)
    _, last, after = rest.partition(end)
    if not mark or not last:
        fail(f"{where}: {begin!r} and then {end!r} are missing")
    return before + begin + new + end + after


def write(files):
    """Write what is not there yet, of path -> text, and say so."""
    for path, text in files.items():
        if not (root / path).exists() or (root / path).read_text() != text:
            (root / path).write_text(text)
            print(path)


def check(files, command):
    """End with exit code 1 where a file is not what would be written."""
    stale = [path for path, text in files.items() if not (root / path).exists() or (root / path).read_text() != text]
    if stale:
        fail(f"stale: {', '.join(stale)}; run {command}")
