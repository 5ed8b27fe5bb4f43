#!/usr/bin/env python3
"""Check that all files name the version of include/relpos/relpos.h, and the same date of the release. Standard library
only.

    version.py             print the version
    version.py --check     check the files in the list below
    version.py --release   also require that the newest section of CHANGELOG.md has this version and this date

CMakeLists.txt, pyproject.toml, docs/conf.py and the tests read the version from relpos.h.
SPDX-License-Identifier: Apache-2.0
"""

import re
import sys
from email.utils import parsedate_to_datetime

from made import fail, root


def found(path, pattern):
    """Return the first match of a pattern in a file."""
    match = re.search(pattern, (root / path).read_text(), re.M)
    if not match:
        fail(f"{path}: has no line like {pattern}; add it")
    return match[1]


def main(mode):
    header = "include/relpos/relpos.h"
    version = found(header, r'^#define RP_VERSION_STRING "(\d+\.\d+\.\d+)"$')
    minor = version.rpartition(".")[0]
    wrong = []

    def expect(path, what, wanted, given):
        if given != wanted:
            wrong.append(f"{path}: {what} is {given}, expected {wanted}")

    for part, number in zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True):
        expect(header, f"RP_VERSION_{part}", number, found(header, rf"^#define RP_VERSION_{part} +(\d+)$"))
    expect(header, "the example of rp_version", version, found(header, r'linked library, such as "([^"]*)"'))
    debian = "packaging/debian"
    expect(f"{debian}/changelog", "the first version", f"{version}-1",
           found(f"{debian}/changelog", r"^relpos \((.*)\) "))
    library = f"librelpos{minor}"
    expect(f"{debian}/control", "the package of the libraries", library,
           found(f"{debian}/control", r"^Package: (librelpos\d.*)$"))
    expect(f"{debian}/control", "the dependency of librelpos-dev", library,
           found(f"{debian}/control", r"^Depends: (librelpos\S+)"))
    expect(debian, "the list of the libraries", [f"{library}.install"],
           sorted(path.name for path in (root / debian).glob("librelpos[0-9]*.install")))
    expect("CITATION.cff", "version", version, found("CITATION.cff", r"^version: (.*)$"))
    date = found("CITATION.cff", r'^date-released: "(\d{4}-\d\d-\d\d)"$')
    signed = parsedate_to_datetime(found(f"{debian}/changelog", r"^ -- .*>  (.*)$"))
    expect(f"{debian}/changelog", "the first date", date, f"{signed:%Y-%m-%d}")
    if mode == "--release":
        expect("CHANGELOG.md", "the newest section", f"{version} - {date}", found("CHANGELOG.md", r"^## (.*)$"))
    for line in wrong:
        print(f"version.py: {line}; {header} has {version}, CITATION.cff the date", file=sys.stderr)
    if mode is None:
        print(version)
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"], ["--release"]):
        sys.exit(__doc__)
    sys.exit(main(*(sys.argv[1:] or [None])))
