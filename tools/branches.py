#!/usr/bin/env python3
"""Print the branch counts of tools/coverage.sh: by default a table of parts and files.

    tools/branches.py COUNTS [--show FILE | --list | --write DATE]

COUNTS is the JSON of llvm-cov. A branch has two outcomes, true and false. --show prints each outcome that never
occurred in FILE. --list prints the functions with such outcomes, by part and reason. --write writes the table by reason
into docs/reliability.md. The reason is guessed from the text of the condition.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import collections
import json
import re
from pathlib import Path

PARTS = {"files: io": r"models/io/",
         "checks of arguments: src/api, src/masks, text and bounds of terms":
         r"src/api/|src/masks/|src/terms/(term_syntax|shape|forms|facts|term_registry)\.c|src/base/(array|error)",
         "command line: cli, support": r"cli/",
         "readers of models: checkpoint, files of t5 and encoder":
         r"models/checkpoint/|models/t5/(beside|config|gguf|keys|model|packing|proteins|single|tokenize|weights)\.c"
         r"|models/encoder/(architectures|config|open|packed|readers|text|weights)\.c",
         "tokenizers": r"models/tokenizer/"}
# Reason -> pattern. The first pattern that matches the condition, or the rest of its line, determines the reason.
REASONS = {"out of memory":
           r"\bNULL\b|alloc|rpi_arguments_alloc|no_memory|NOMEM|json_lost|strn?dup|^!(data|text|to|line|copy|list"
           r"|name|all|made|made_|args|own|row|work|loss|logits|m)\b",
           "a system call or libzip fails": r"errno|EINTR|E[A-Z]+ "
                                            r"|\b(f?open|close|fclose|fflush|ferror|fprintf|fputs|pread|read|write"
                                            r"|fstat|l?stat|fsync|rename|poll|flock|access|mkdir|waitpid|ftruncate"
                                            r"|posix_spawnp?|rp_pool_create)\(|zip_|sig\w+\(|fd <|got|st\.st_",
           "an error is passed on": r"\b(code|status|error|err|wrong|bad|good|result|s)\b",
           "the default of a switch": r"^default:",
           "the end of a loop or of a buffer": r"; \w*(\+\+|--)|\bused\b|\bsize\b|\blength\b|\bleft\b",
           "others": r""}


def count(path):
    """Return {file: {(line, column, outcome): count}} and {(file, line, column): function}."""
    ways, functions = collections.defaultdict(collections.Counter), {}
    data = json.loads(Path(path).read_text())["data"][0]
    for file in data["files"]:
        name = file["filename"].split("/./")[-1]
        for line, column, _, _, true, false, *_ in file["branches"]:
            ways[name][line, column, True] += true
            ways[name][line, column, False] += false
    for function in data["functions"]:
        name = function["filenames"][0].split("/./")[-1]
        for line, column, *_ in function["branches"]:
            functions[name, line, column] = function["name"].split(":")[-1]
    return ways, functions


def never(ways, name):
    """Yield (line, column, outcome, condition) of each outcome in a file that never occurred."""
    lines = Path(name).read_text().splitlines()
    for (line, column, way), n in sorted(ways[name].items()):
        if n == 0:
            yield line, column, way, lines[line - 1][column - 1:].strip()


def of_part(ways, part):
    return sorted(name for name in ways if re.match(PARTS[part], name) and ways[name])


def by_reason(ways, functions):
    """Return {part: {reason: {(file, function): number of outcomes}}}."""
    found = {part: {reason: collections.Counter() for reason in REASONS} for part in PARTS}
    for part in PARTS:
        for name in of_part(ways, part):
            for line, column, _, condition in never(ways, name):
                reason = next(r for r, pattern in REASONS.items() if re.search(pattern, condition))
                found[part][reason][name, functions.get((name, line, column), "?")] += 1
    return found


def taken(ways, names):
    some, all_ = sum(n > 0 for f in names for n in ways[f].values()), sum(len(ways[f]) for f in names)
    return some, all_, 100 * some / all_


def print_files(ways):
    for part in PARTS:
        names = of_part(ways, part)
        some, all_, percent = taken(ways, names)
        print(f"{percent:5.1f} %  {some:5} of {all_:5} outcomes of {part}")
        for name in sorted(names, key=lambda f: taken(ways, [f])[2]):
            some, all_, percent = taken(ways, [name])
            print(f"    {percent:5.1f} %  {all_ - some:4} never occur  {name}")


def print_reasons(found):
    for part, reasons in found.items():
        for reason, places in reasons.items():
            print(f"{part}: {reason}: {sum(places.values())}")
            for (name, function), n in places.most_common():
                print(f"    {n:4}  {name}  {function}")


def table(ways, found, date):
    lines = ["| part | outcomes that occur | of all | " + " | ".join(REASONS) + " |", "|---" * (3 + len(REASONS)) + "|"]
    for part, reasons in found.items():
        _, all_, percent = taken(ways, of_part(ways, part))
        lines.append(f"| {part} | {percent:.1f} % | {all_:,} | "
                     + " | ".join(str(sum(p.values())) for p in reasons.values()) + " |")
    lines += ["", "The last six columns count the branch outcomes that no test produced, by likely cause "
                  "(tools/branches.py infers it from the condition). Most of them are in:", ""]
    for part, reasons in found.items():
        files = collections.Counter()
        for places in reasons.values():
            for (name, _), n in places.items():
                files[name] += n
        lines.append(f"- {part}: " + ", ".join(f"{name} {n}" for name, n in files.most_common(8)) + ".")
    return "\n".join([*lines, "", f"Measured on {date} by `tools/coverage.sh`; `tools/coverage.sh --list` lists the "
                                  "functions."])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("counts")
    parser.add_argument("--show", metavar="FILE")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write", metavar="DATE")
    given = parser.parse_args()
    ways, functions = count(given.counts)
    if given.show:
        for line, column, way, condition in never(ways, given.show):
            print(f"{line}:{column} never {'true' if way else 'false'}: {condition}")
    elif given.list:
        print_reasons(by_reason(ways, functions))
    elif given.write:
        page = Path("docs/reliability.md")
        begin, end = "<!-- coverage: tools/coverage.sh --write -->\n", "<!-- end of coverage -->"
        text = page.read_text()
        before, rest = text.split(begin)
        page.write_text(before + begin + table(ways, by_reason(ways, functions), given.write) + "\n" + end
                        + rest.split(end)[1])
    else:
        print_files(ways)


if __name__ == "__main__":
    main()
