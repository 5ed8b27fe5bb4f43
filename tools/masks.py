#!/usr/bin/env python3
"""Write the masks that `relpos info --json` lists into the signature, call and docstring of relpos.attention, its stub,
four manual pages and the README. Standard library only.

    tools/masks.py [RELPOS]              RELPOS: the program; by default the newest build
    tools/masks.py --check [RELPOS]      write nothing; exit with 1 if a file is stale

SPDX-License-Identifier: Apache-2.0"""
import re
import sys
import textwrap

from made import between, check, fail, program_of, root, said_by, write


def renewed(text, begin, end, new, where):
    """Return the text with the part from `begin` up to `end` replaced. Both are regular expressions."""
    first = re.search(begin, text)
    last = first and re.compile(end).search(text, first.end())
    if not last:
        fail(f"{where}: {begin!r} and then {end!r} are missing")
    return text[:first.start()] + new + text[last.start():]


def wrapped(words, first, indent, width=118):
    return textwrap.fill(", ".join(words), width, initial_indent=first, subsequent_indent=" " * indent,
                         break_long_words=False,
                         break_on_hyphens=False)


def sentence(text):
    return text[0].upper() + text[1:] + "."


def numbers(mask):
    return [p["key"] for p in mask["parameters"]]


def default(mask):
    """Return the parameter of a mask in the signature of relpos.attention."""
    return f"{mask['name']}={None if mask['array'] or mask['parameters'] else False}"


def help_text(mask):
    return f"array, broadcast to ({mask['array']['axes']}): {mask['text']}" if mask["array"] else mask["text"]


def package(text, masks):
    """Return the text of python/relpos/__init__.py with the masks updated in signature, docstring and call."""
    where = "python/relpos/__init__.py"

    def renew(text, begin, end, indent, spell):
        start = text.index(begin) + len(begin)
        stop = text.index(end, start)
        words = [w.strip() for w in " ".join(text[start:stop].split()).split(",")]
        at = [n for n, w in enumerate(words) if re.match(r"(causal|scale)\b", w)]
        if len(at) != 2:
            fail(f"{where}: {begin} has no causal or no scale")
        words[at[0]:at[1]] = [spell(m) for m in masks]
        return text[:start - len(begin)] + wrapped(words, begin, indent) + text[stop:]

    text = renew(text, "def attention(", "):\n", 14, default)
    text = renew(text, "    found = attend(", ")\n    if _swaps", 19, lambda m: m["name"])
    lines = []
    for m in masks:
        said = m["text"]
        if m["parameters"]:
            said = f"({', '.join(numbers(m))}): {said}, or None" if len(numbers(m)) > 1 else said
            for name in numbers(m):
                said = re.sub(rf"\b{name.upper()}\b", name, said)
        if m["array"]:
            said = f"({m['array']['axes']}) or broadcastable: {said}"
        lines.append(textwrap.fill(said, 119, initial_indent=f"    {m['name']:<16} ", subsequent_indent=" " * 21)
                     + "\n")
    return renewed(text, r"(?m)^    causal +(?=\S)", r"(?m)^    scale +(?=\S)", "".join(lines), where)


def stub(text, masks):
    kinds = {0: "bool", 1: "int | None", 2: "Pair | None"}
    lines = ["    {}: {}\n".format(m["name"],
                                   "Any" if m["array"] else kinds.get(len(numbers(m)), "tuple[int | None, ...] | None"))
             for m in masks]
    return renewed(text, r"(?m)^    causal: ", r"(?m)^    scale: ", "".join(lines), "python/relpos/__init__.pyi")


def marked(text, new, where):
    return between(text, "; masks: made by tools/masks.py\n", "; end of masks\n", new, where)


def options(masks, more=lambda m: ""):
    out = []
    for m in masks:
        option, _, value = m["option"].partition(" ")
        value = ",".join(f"_{v}_" for v in value.split(",")) if value else ""
        said = textwrap.fill(sentence(help_text(m)) + more(m), 120, initial_indent="\t", subsequent_indent="\t",
                             break_long_words=False, break_on_hyphens=False)
        out.append(f"*{option}*{' ' if value else ''}{value}\n{said}\n\n")
    return "".join(out)


def meaning(mask):
    return f" A pair attends where {mask['meaning']}." + (" The numbers of queries and keys must be equal."
                                                          if mask["same_lengths"] else "")


def problems(masks):
    """Return the sentence of the manual pages about masks in problem strings."""
    spelt = [m["name"] + ("=" + ",".join(n.upper() for n in numbers(m)) if m["parameters"] else "") for m in masks]
    return wrapped(spelt, "Join several masks with *+*: ", 0) + ".\n"


def readme(text, masks):
    """Return the text of the README with an updated list of masks. Lines do not break inside an option."""
    options = [f"`{m['option'].removesuffix(' NAME')}`".replace(" ", "\0") for m in masks]
    line = wrapped(options, "Masks: ", 0, 100).replace("\0", " ")
    return between(text, "<!-- masks: made by tools/masks.py -->\n", "<!-- end of masks -->\n", line + ".\n",
                   "README.md")


def main():
    checks = sys.argv[1:2] == ["--check"]
    masks = said_by(program_of(sys.argv[1 + checks:]), "masks")
    files = {
        "python/relpos/__init__.py": package, "python/relpos/__init__.pyi": stub, "README.md": readme,
        "docs/man/relpos-attend.1.scd": lambda text, m: marked(text, options(m), "docs/man/relpos-attend.1.scd"),
        "docs/man/relpos-explain.1.scd": lambda text, m: marked(text, options(m), "docs/man/relpos-explain.1.scd"),
        "docs/man/relpos.1.scd": lambda text, m: marked(text, options(m, meaning), "docs/man/relpos.1.scd"),
        "docs/man/relpos-verify.1.scd": lambda text, m: marked(text, problems(m), "docs/man/relpos-verify.1.scd"),
    }
    files = {name: make((root / name).read_text(), masks) for name, make in files.items()}
    if checks:
        check(files, "tools/masks.py")
    else:
        write(files)


if __name__ == "__main__":
    main()
