#!/usr/bin/env python3
"""Hold the folders of src/ to the order of docs/design.md: a file includes only what its folder may know. Prints each arrow that is not
allowed, with file and line, and exits with 1. Standard library only.

    tools/arrows.py

SPDX-License-Identifier: Apache-2.0"""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
# What each folder may include beside itself: folders, or single headers.
MAY = {
    "src/base": ["isa/float_state.h"],  # which knows nothing itself
    "src/terms": ["base"],
    "src/masks": ["base"],
    "src/problem": ["base", "terms", "masks"],
    "src/sources": ["base", "terms", "masks", "problem"],
    "src/engine": ["base", "terms", "masks", "problem", "sources"],
    "src/kernels": [],  # templates: isa/*.c include engine/call.h before them
    "src/isa": ["engine/call.h", "problem/ops.h", "base/pool.h", "base/error.h", "kernels"],
    "src/reference": ["base", "terms", "masks", "problem"],  # it judges the fast path and runs nothing of it
    "src/api": ["base", "terms", "masks", "problem", "sources", "engine", "reference"],
    # clients of the public header
    "src/io": [],
    "src/nn": ["io", "base/edits.h", "base/random.h"],
    "cli": ["io", "nn", "base/edits.h"],
    "web": ["cli", "api/inspect.h", "sources/sources.h"],
    "python/relpos": [],
    "examples": [],
}
# Instruction sets are asked for in src/isa alone; the laboratory still has some.
SETS = re.compile(r"^\s*#\s*(el)?if.*(__x86_64__|__aarch64__|__wasm|__AVX|__SSE|__ARM)")
SETS_IN = ("src/isa/", "src/nn/")


def folder_of(path):
    return max((f for f in MAY if path.startswith(f + "/")), key=len, default=None)


def resolve(including, name):
    """The path of a quoted include from the root: beside the file, in src, or in cli."""
    for base in (including.parent, root / "src", root / "cli"):
        if (base / name).is_file():
            return (base / name).resolve().relative_to(root).as_posix()
    return None


def main():
    wrong, graph = [], {}
    for path in sorted(p for f in MAY for p in (root / f).glob("*.[ch]")):
        here = path.relative_to(root).as_posix()
        folder = folder_of(here)
        for number, line in enumerate(path.read_text().split("\n"), 1):
            if SETS.match(line) and folder.startswith("src/") and not here.startswith(SETS_IN):
                wrong.append(f"{here}:{number}: {line.strip()} (what depends on the instruction set belongs in src/isa)")
            found = re.match(r'#include "([^"]+)"', line)
            if not found:
                continue
            if ".." in found[1]:
                wrong.append(f"{here}:{number}: {found[1]} (name it from src)")
            to = resolve(path, found[1])
            if to is None:
                continue  # made by the build, or of the system
            graph.setdefault(here, []).append(to)
            target = folder_of(to)
            allowed = target == folder or any(to == "src/" + m or to.startswith(f"src/{m}/") or to.startswith(m + "/") for m in MAY[folder])
            if not allowed:
                wrong.append(f"{here}:{number}: includes {to}: {folder} may know {', '.join(MAY[folder]) or 'no other folder'}")
    state = {}

    def visit(node, trail):
        if state.get(node) == "done":
            return
        if state.get(node) == "open":
            wrong.append("a circle of includes: " + " -> ".join([*trail[trail.index(node):], node]))
            return
        state[node] = "open"
        for to in graph.get(node, ()):
            visit(to, [*trail, node])
        state[node] = "done"

    for node in list(graph):
        visit(node, [])
    for line in wrong:
        print(line)
    print(f"{sum(map(len, graph.values()))} includes, {len(wrong)} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
