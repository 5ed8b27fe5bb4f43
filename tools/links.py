#!/usr/bin/env python3
"""Check that files named docs/… anywhere in the tree exist, and that links between Markdown files, with their anchors,
lead somewhere. Sphinx checks the links of the site's pages; this also covers README.md, docs/maintainers and comments.
Print each name or link that leads nowhere, and exit with 1. Standard library only.

    tools/links.py

SPDX-License-Identifier: Apache-2.0"""
import re
import sys

from made import root

NAMED = re.compile(r"(?<![\w./-])docs/[\w./-]+\.(?:md|py|sh|scd|svg|png|gif|txt|sed|json|ipynb)\b")
LINK = re.compile(r"\]\(([^()\s#]*)(?:#([^()\s]*))?\)")
FENCED, CODE = (re.compile(pattern, re.M | re.S) for pattern in (r"^```.*?^```", r"^```.*?^```|`[^`\n]*`"))
FOLDERS = ("bench", "cli", "docs", "examples", "include", "lab", "models", "mpi", "packaging", "python", "src", "tests",
           "tools", "web")
# names in instructions, and terms that tools/try_term.sh adds to a copy
EXAMPLES = re.compile(r"NAME|docs/terms/(name|slowlog|nearby)\.md")
OLD = {"CHANGELOG.md"}  # names files of older versions
SITE = re.compile(r"docs/(?!maintainers/)")  # Sphinx checks these, and has anchors of its own


def anchors(page):
    """Return the anchors that GitHub gives the headings of a page."""
    found = re.findall(r"^#+ +(.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.M)
    text = [re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in found]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in text}


def lost(path, text):
    """Yield (line, name) for each name or link in a file that leads nowhere."""
    for found in NAMED.finditer(text):
        if not EXAMPLES.search(found[0]) and not (root / found[0]).exists():
            yield text.count("\n", 0, found.start()) + 1, found[0]
    if path.suffix != ".md" or SITE.match(path.relative_to(root).as_posix()):
        return
    for found in LINK.finditer(CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)):
        to, anchor = found[1], found[2]
        if re.match(r"\w+:", to):
            continue
        page = path.parent / to if to else path
        if not page.exists() or anchor and page.suffix == ".md" and anchor not in anchors(page):
            yield text.count("\n", 0, found.start()) + 1, found[0][2:-1]


def texts():
    """Yield (path, text) of each file of the source that is text."""
    for path in sorted([*root.glob("*"), *(p for folder in FOLDERS for p in (root / folder).rglob("*"))]):
        if not path.is_file() or "__pycache__" in path.parts or path.name in OLD or path.stat().st_size > 1_000_000:
            continue
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            pass


def main():
    n = wrong = 0
    for path, text in texts():
        n += 1
        for line, where in lost(path, text):
            print(f"{path.relative_to(root)}:{line}: {where} does not exist")
            wrong += 1
    print(f"{n} files, {wrong} names or links that lead nowhere")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
