#!/usr/bin/env python3
"""docs/terms.md: one section for each term of terms.def, from the code and the texts in docs/terms/. Standard library only.

    tools/terms.py                    write docs/terms.md
    tools/terms.py --check            exit code 1 if it is stale, or if a term, an example or a picture is missing
    tools/terms.py --images PROGRAM   draw the pictures of docs/images/term_*.png with PROGRAM, which is relpos
    tools/terms.py --json             print the same facts as one JSON object, for the explorer

From the code come how a term is written, its source, its parameters with their defaults, and its arrays with their shapes:
terms.def, relpos.h (rp_term, rp_term_init, the table of terms) and the schemes. An example is the command of a case of
tests/oracle, so the tests run it. The text of a term begins with its title and lines "family:", "python:", "example:" and
"picture:". docs/conf.py makes the pages of the documentation site with `site_page` and `site_contents`.
SPDX-License-Identifier: Apache-2.0
"""
import json
import re
import struct
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

root = Path(__file__).resolve().parent.parent
texts, page, images = root / "docs/terms", root / "docs/terms.md", root / "docs/images"
header = (root / "include/relpos/relpos.h").read_text()
schemes = "\n".join(f.read_text() for f in sorted((root / "src/terms").glob("*.h")))

FAMILIES = ["Biases by offset", "Biases on a grid", "Biases by given positions, by content, by array", "Products with vectors",
            "Rotation", "Values and row sums"]
# The arrays of the examples in Python: 48 tokens, which are also 6 rows of 8; docs/terms/head.md says so too.
EXAMPLE = """import numpy as np, relpos
rng = np.random.default_rng(0)
q, k, v = rng.normal(size=(3, 1, 2, 48, 16))    # batch, heads, tokens, width"""
# Shapes of arrays that are not learned: relpos.h says them in sentences.
SHAPES = {"positions": "(L) or (B, L), for Lq = Lk = L", "q_position_mask": "(Lq) or (B, Lq)", "k_position_mask": "(Lk) or (B, Lk)",
          "short_factor": "(dim/2)", "long_factor": "(dim/2)"}


def fail(why):
    sys.exit(f"terms.py: {why}")


def inside(text, start, pair):
    """What lies between the bracket that opens at or after start and the one that closes it."""
    first = text.index(pair[0], start)
    depth = 0
    for at in range(first, len(text)):
        depth += (text[at] == pair[0]) - (text[at] == pair[1])
        if depth == 0:
            return text[first + 1:at]
    fail(f"a bracket stays open after: {text[start:start + 60]}")


def of_definitions():
    """ENUM, name, syntax and source of each line of terms.def."""
    string = r'((?:\s*"[^"]*")+)'
    found = re.findall(r"^RP_X\((\w+),\s*(\w+),%s,%s\)" % (string, string), (root / "include/relpos/terms.def").read_text(), re.M)
    return [(enum, name, *("".join(re.findall(r'"([^"]*)"', s)) for s in strings)) for enum, name, *strings in found]


def of_init(enum):
    """Field -> default, from rp_term_init."""
    body = inside(header, header.index("static inline rp_term rp_term_init"), "{}")
    defaults = {}
    for fields, value in re.findall(r"^    ((?:t\.\w+ = )+)(.+);", body, re.M):
        choice = re.match(r"kind == RP_TERM_(\w+) \? (\S+) : (\S+)", value)
        if choice:
            value = choice[2] if choice[1] == enum else choice[3]
        for field in re.findall(r"t\.(\w+)", fields):
            defaults[field] = re.sub(r"\.0$", "", value)
    return defaults


def listed_parameters(scheme, syntax):
    """Each parameter that the parser reads: key, kind, field, whether it is required, and its choices."""
    use = re.search(r"\.params = (\w+)(?: \+ (\d+))?", scheme)
    if not use:
        return []
    listed = inside(schemes, schemes.index(f"rpi_param {use[1]}[]"), "{}")
    lines = re.findall(r'\{"(\w+)", RPI_(\w+), offsetof\(rp_term, (\w+)\), (\w+), (\w+)\}', listed)
    lines += [(key, kind, key, "false", "NULL") for key, kind in re.findall(r"\{RPI_ROPE\((\w+), RPI_(\w+)\)\}", listed)]
    order = {m[1]: m.start() for m in re.finditer(r'\{(?:"|RPI_ROPE\()(\w+)', listed)}
    lines = sorted(lines, key=lambda line: order[line[0]])[int(use[2] or 0):]
    return [(key, kind, field, required == "true",
             re.findall(r'"(\w+)"', inside(schemes, schemes.index(f"{choices}[]"), "{}")) if choices != "NULL" else [])
            for key, kind, field, required, choices in lines]


def of_parameters(enum, syntax, scheme):
    """What the parser reads: `key` = default, with the choices."""
    result, init = [], of_init(enum)
    for key, kind, field, required, names in listed_parameters(scheme, syntax):
        comment = re.search(r"\b%s;\s*/\* (.*?) \*/" % field, header)
        zero = re.search(r"(?<!\w)0 = ([^;.]+)", comment[1]) if comment else None
        if required:
            value = "required"
        elif field in init:
            value = "= " + re.sub(r"^RP_[A-Z]+_", "", init[field]).lower()
        elif key not in syntax and "..." not in syntax:
            value = "as the arrays say"
        elif zero:
            means = zero[1].strip()
            value = {"none": "= 0", "not given": "none"}.get(means, ("= " if means.isidentifier() else "if left out: ") + means)
        else:
            value = "none"
        result.append(f"`{key}` {value}" + (f" ({', '.join(names)})" if names else ""))
    return result


def of_arrays(enum, scheme):
    """`name` shape, learned or not, optional or not."""
    at = scheme.find(".array = {")
    if at < 0:
        return []
    table = header[header.index(" *   kind     value"):header.index(" * (*) also takes")]
    lines = re.split(r"^ \*   ([A-Z][A-Z0-9]+) ", table, flags=re.M)
    row = re.sub(r"\s*\n \*\s*", " ", lines[lines.index(enum) + 1])
    result = []
    items = r'RPI_(LEARN|MAY_LEARN)\("(\w+)"\)|\{"(\w+)", RPI_(\w+), (\w+)\}|(RPI_TWO_POSITIONS)'
    for how, name, other, _, optional, two in re.findall(items, inside(scheme, at, "{}")):
        if two:
            result.append("`q_positions` and `k_positions` in place of i + q_offset and j, optional")
            continue
        name = name or other
        shapes = [s for m in re.findall(r"\b%s(?:, broadcast to)? \[([^]]*)\](?: or \[([^]]*)\])?" % name, row) for s in m if s]
        shape = SHAPES.get(name) or " or ".join("(" + re.sub(r", *", ", ", s) + ")" for s in shapes)
        if not shape:
            fail(f"relpos.h gives no shape for {name} of {enum}")
        if re.search(r"\b%s, broadcast to" % name, row):
            shape = "any shape that broadcasts to " + shape
        result.append(f"`{name}` {shape}, " + ("learned" if how else "not learned") +
                      (", optional" if how == "MAY_LEARN" or optional == "true" else ""))
    return result


def written(name, syntax, bias):
    """As the user types it."""
    if bias:
        return f"--bias {syntax}"
    rest = syntax[len(name):].lstrip(",")
    return f"--{name} " + ("NAME" if name == "sink" else "[" + rest[2:] if rest.startswith("[,") else rest)


def read_text(name):
    path = texts / f"{name}.md"
    if not path.exists():
        fail(f"{name} has no text: write docs/terms/{name}.md")
    first, _, body = path.read_text().partition("\n\n")
    title, *settings = first.splitlines()
    return title.lstrip("# "), dict(s.split(": ", 1) for s in settings), body.strip("\n")


def facts(enum, name, syntax, source):
    """What the code says of a term: its lines before the text."""
    scheme = inside(schemes, re.search(r"RPI_SCHEME\(\s*%s," % enum, schemes).start(), "()")
    form = re.search(r"\.form = RPI_(\w+)", scheme)[1]
    bias = form in ("OFFSET", "INDEX", "TILE") or ".bias = true" in scheme
    said = [("Parameters", of_parameters(enum, syntax, scheme)), ("Arrays", of_arrays(enum, scheme))]
    said = [textwrap.fill(f"- {what}: {'; '.join(items)}.", 130, subsequent_indent="  ", break_long_words=False,
                          break_on_hyphens=False) for what, items in said if items]
    return [f"    {written(name, syntax, bias)}"] + (["\n".join(said)] if said else [])


def section(enum, name, syntax, source, cases):
    title, settings, body = read_text(name)
    if settings.get("family") not in FAMILIES:
        fail(f'docs/terms/{name}.md: "family:" is one of {"; ".join(FAMILIES)}')
    if settings.get("example") not in cases:
        fail(f'docs/terms/{name}.md: "example:" names a case of tests/oracle/cases.txt')
    if "python" not in settings:
        fail(f'docs/terms/{name}.md: "python:" gives the term to relpos.attention, for the arrays that docs/terms/head.md tells')
    out = [f"**{title}.** {source[0].upper()}{source[1:]}."] + facts(enum, name, syntax, source)
    out.append(f"    relpos.attention(q, k, v, {settings['python']})")
    out.append(body)
    case = settings["example"]
    out += ["An example that the tests run:",
            f"    relpos attend tests/oracle/cases/{case}.safetensors -o out.safetensors {cases[case]}"]
    if "picture" in settings:
        if not (images / f"term_{name}.png").exists():
            fail(f"docs/images/term_{name}.png is missing: tools/terms.py --images build/release/relpos")
        out += [f"    relpos bias {settings['picture']} -o {name}.png", f"![{name}](images/term_{name}.png)"]
    return settings["family"], name, title, out, settings


def sections():
    terms = of_definitions()
    lines = [line.split("|") for line in (root / "tests/oracle/cases.txt").read_text().splitlines()]
    cases = {line[0].strip(): line[2].strip() for line in lines if len(line) == 3}
    for path in texts.glob("*.md"):
        if path.stem not in [t[1] for t in terms] + ["head"]:
            fail(f"docs/terms/{path.name}: no term of terms.def has this name")
    return [section(*term, cases) for term in terms]


def contents(link):
    """The head, with a table of the terms in the place of the mark; link(name) is where a term is."""
    head, mark, tail = (texts / "head.md").read_text().partition("<!-- contents -->\n")
    if not mark:
        fail("docs/terms/head.md: the line <!-- contents --> is missing")
    rows = ["| | |", "|---|---|"]
    for family in FAMILIES:
        own = [s for s in sections() if s[0] == family]
        rows += [f"| {family if n == 0 else ''} | [{name}]({link(name)}): {title} |" for n, (_, name, title, *_) in enumerate(own)]
    return "\n\n".join([head.rstrip("\n"), "\n".join(rows), tail.strip("\n")])


def make():
    body = [contents(lambda name: f"#{name}")]
    for family in FAMILIES:
        body += [f"## {family}"] + ["\n\n".join([f"### {name}", *out]) for of, name, _, out, _ in sections() if of == family]
    return "\n\n".join(body) + "\n"


def site_contents():
    """The page of all terms on the site, with its entries for the navigation."""
    names = [f"terms/{s[1]}" for family in FAMILIES for s in sections() if s[0] == family]
    return contents(lambda name: f"terms/{name}.md") + "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"


def site_page(name):
    """The page of one term on the site: its call, which is executed and drawn, and what its section says."""
    title, out, settings = next(s[2:] for s in sections() if s[1] == name)
    lead, syntax, *rest = [part for part in out if not part.startswith("    relpos.attention(")]
    call = textwrap.fill(f"out = relpos.attention(q, k, v, {settings['python']})", 94, subsequent_indent=" " * 23,
                         break_long_words=False, break_on_hyphens=False)
    code = EXAMPLE + "\n" + call
    drawn = EXAMPLE + f"\nfrom pictures import draw\ndraw(q, k, v, {settings['python']})"
    plot = f"```{{eval-rst}}\n.. plot::\n   :alt: What {name} adds\n\n" + textwrap.indent(drawn, "   ") + "\n```"
    parts = [f"# {name}", lead, f"```python\n{code}\n```", plot, syntax, *rest]
    return re.sub(r"\]\((?=[a-z]+[./])", "](../", "\n\n".join(parts)) + "\n"


def every_fact():
    """Name -> what is known of the term. `python` is its class: a capital, or what the package says."""
    named = re.search(r"_NAMES = (\{.*?\})", (root / "python/relpos/_terms.py").read_text(), re.S)
    classes = json.loads(named[1])
    result = {}
    for enum, name, syntax, source in of_definitions():
        title, settings, body = read_text(name)
        scheme = inside(schemes, re.search(r"RPI_SCHEME\(\s*%s," % enum, schemes).start(), "()")
        result[name] = {
            "title": title, "family": settings["family"], "source": source, "syntax": syntax, "text": body,
            "picture": settings.get("picture", ""), "python": classes.get(name, name.capitalize()),
            "parameters": [{"key": key, "kind": kind, "required": required, "choices": names}
                           for key, kind, _, required, names in listed_parameters(scheme, syntax)],
            "said": of_parameters(enum, syntax, scheme), "arrays": of_arrays(enum, scheme)}
    return result


def smaller(png):
    """The same picture in fewer bytes: each row as its difference from the one above, packed as well as zlib can."""
    at, chunks, data = 8, [], b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IDAT":
            data += png[at + 8:at + 8 + size]
        else:
            chunks.append((kind, png[at + 8:at + 8 + size]))
        at += size + 12
    width, height, depth, colour = struct.unpack(">IIBB", chunks[0][1][:10])
    raw, row = zlib.decompress(data), 3 * width + 1
    if (depth, colour) != (8, 2) or any(raw[n * row] for n in range(height)):
        return png
    rows = [bytes(row)] + [raw[n * row:(n + 1) * row] for n in range(height)]
    raw = b"".join(b"\2" + bytes((a - b) & 255 for a, b in zip(now[1:], before[1:])) for before, now in zip(rows, rows[1:]))
    chunks.insert(-1, (b"IDAT", zlib.compress(raw, 9)))
    new = png[:8] + b"".join(struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
                             for kind, body in chunks)
    return min(png, new, key=len)


def draw(program):
    for _, name, *_ in of_definitions():
        settings = read_text(name)[1]
        path = images / f"term_{name}.png"
        if "picture" in settings:
            subprocess.run([program, "bias", *settings["picture"].split(), "-o", path], check=True, stderr=subprocess.DEVNULL)
            path.write_bytes(smaller(path.read_bytes()))


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--images":
        draw(sys.argv[2])
    elif sys.argv[1:] == ["--json"]:
        json.dump(every_fact(), sys.stdout, ensure_ascii=False, indent=1)
    elif sys.argv[1:] == ["--check"]:
        if not page.exists() or page.read_text() != make():
            fail("docs/terms.md is stale: run tools/terms.py")
    elif len(sys.argv) == 1:
        page.write_text(make())
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
