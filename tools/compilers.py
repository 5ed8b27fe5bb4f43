#!/usr/bin/env python3
"""Keep the table of compilers in docs/platforms.md.

    tools/compilers.py --record NAME VERSION STATE TESTS   save the result of a compiler, for tools/compilers.sh
    tools/compilers.py --write                             write the table of docs/platforms.md
    tools/compilers.py --check                             exit with 1 if the table is stale

The results are saved in bench/results/compilers.json. STATE is passed or failed, TESTS the number of tests that ran.
SPDX-License-Identifier: Apache-2.0"""
import datetime
import json
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
from made import between, check, root, write  # noqa: E402

SAVED = root / "bench/results/compilers.json"
PAGE = "docs/platforms.md"


def results():
    return json.loads(SAVED.read_text()) if SAVED.exists() else {}


def record(name, version, state, tests):
    """Save the result of one compiler beside those of the others."""
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    saved = results() | {name: {"version": version, "state": state, "tests": int(tests), "date": day}}
    SAVED.write_text(json.dumps(dict(sorted(saved.items(), key=lambda item: order(item[0]))), indent=1,
                                allow_nan=False) + "\n")


def order(name):
    """Sort gcc before clang before others, and by version."""
    kind, number = re.fullmatch(r"(.*?)-?(\d*)", name).groups()
    return {"gcc": 0, "clang": 1}.get(kind, 2), kind, int(number or 0)


def page():
    rows = ["| compiler | version | warnings as errors | tests | tried on |", "|---|---|---|---|---|"]
    rows += [f"| {name} | {x['version']} | {'none' if x['state'] == 'passed' else 'failed'} | "
             f"{x['tests']}, {'none failed' if x['state'] == 'passed' else 'failed'} | {x['date']} |"
             for name, x in results().items()]
    return {PAGE: between((root / PAGE).read_text(), "<!-- compilers: tools/compilers.py --write -->\n",
                          "<!-- end of compilers -->", "\n".join(rows) + "\n", PAGE)}


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "--record":
        record(*sys.argv[2:])
    elif sys.argv[1:] == ["--write"]:
        write(page())
    elif sys.argv[1:] == ["--check"]:
        check(page(), "tools/compilers.py --write")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
