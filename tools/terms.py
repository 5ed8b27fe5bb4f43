#!/usr/bin/env python3
"""Generate documentation and stubs for the position terms. Each scheme has a description in C (src/terms/scheme.h),
`relpos info --json` prints the descriptions, and this script writes them into other files. Standard library only.

    tools/terms.py --write [PROGRAM]     write all files; PROGRAM: relpos in its build folder, by default the newest
                                         under build/
    tools/terms.py --check [PROGRAM]     exit with 1 if a file is stale, or if a term has no text, example or picture
    tools/terms.py --images [PROGRAM]    draw the pictures docs/images/term_*.png
    tools/terms.py --json                print facts and texts as one JSON object, for the explorer

The script writes docs/terms/facts.json (the output of the program), docs/terms.md, python/relpos/_terms.pyi and
_examples.py, and src/terms/schemes.inc (a copy of the file that CMake generates). It also replaces the text between
marks: the table in include/relpos/terms.h and the lists in README.md, docs/costs.md and docs/man/*.scd.

The text of a term, docs/terms/NAME.md, begins with its title and these lines: "family:"; "python:", a call that the
documentation site executes and draws; "example:", a case of tests/oracle whose command the page shows; and "picture:",
the arguments of `relpos bias` for a picture. The definition begins with "**In NumPy.**";
python/tests/test_definitions.py evaluates it. docs/conf.py creates the pages of the site with `site_page` and
`site_contents`.
SPDX-License-Identifier: Apache-2.0
"""
import importlib.util
import json
import re
import struct
import subprocess
import sys
import tempfile
import textwrap
import types
import zlib
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
from made import between, check, fail, program_of, root, said_by, write  # noqa: E402

texts, page, images = root / "docs/terms", root / "docs/terms.md", root / "docs/images"
stored = texts / "facts.json"
header = (root / "include/relpos/relpos.h").read_text()

FAMILIES = ["Biases by offset", "Biases on a grid", "Dense and data-dependent biases", "Products with vectors",
            "Rotation", "Values and row sums"]
# The arrays of the Python examples: 48 tokens, which also form 6 rows of 8. docs/terms/head.md describes
# the arrays.
EXAMPLE = """import numpy as np, relpos
rng = np.random.default_rng(0)
q, k, v = rng.normal(size=(3, 1, 2, 48, 16))    # batch, heads, tokens, width"""
TERMS = json.loads(stored.read_text()) if stored.exists() else []


def spoken(shape):
    """Convert a shape to its form in the documentation: "[H?, n, Dk]" becomes "(H, n, Dk) or (n, Dk)"."""
    condition = re.match(r"([\w=]+) \? (.+) : (.+)", shape)
    if condition:
        key, yes, no = condition.groups()
        return f"{spoken(yes)} with {key}" + ("" if no == "none" else f", else {spoken(no)}")
    axes = [axis.strip() for axis in shape.strip("[]").split(",")]
    optional = sum(axis.endswith("?") for axis in axes)
    axes = [axis.rstrip("?").replace("*", " ") for axis in axes]
    if optional == len(axes) > 1:
        return f"any shape that broadcasts to ({', '.join(axes)})"
    return " or ".join(f"({', '.join(axes[n:])})" for n in ([0, optional] if optional else [0]))


def default_of(p):
    return f"{float(p['default']):g}" if p["type"] == "real" else p["default"]


def bounds(p):
    """Return the bounds of a parameter, such as "2 to 2^30" or "above 0", or an empty string."""
    def number(x):
        power = int(x).bit_length() - 1 if x == int(x) and x > 1024 else 0
        return f"2^{power}" if power and x == 2 ** power else f"{x:g}"
    if "above" in p:
        return f"above {number(p['above'])}" + (f", at most {number(p['max'])}" if "max" in p else "")
    return f"{number(p['min'])} to {number(p['max'])}" if "min" in p else ""


def of_parameters(term):
    """Return the parameters of a term as Markdown: `key` = default, with choices or bounds."""
    result = []
    for p in term["parameters"]:
        inside = ", ".join(p["choices"]) if "choices" in p else ", ".join(x for x in (bounds(p), p["meaning"]) if x)
        value = " required" if p["required"] else f" = {default_of(p)}"
        unset = p["unset"]
        if unset == "none":
            value = " none"
        elif unset and unset.isidentifier():
            value = f" = {unset}"
        elif unset:
            value, inside = ", optional", f"{inside}; default: {unset}"
        result.append(f"`{p['key']}`{value} ({inside})")
    return result


def of_arrays(term):
    """Return the arrays of a term as Markdown: `name`, shape, learned or not, optional or not."""
    result, names = [], [a["name"] for a in term["arrays"]]
    for a in term["arrays"]:
        if a["name"] == "q_positions" and "k_positions" in names:
            result.append("`q_positions` and `k_positions` in place of i + q_offset and j, optional")
        elif a["name"] == "q_position_mask":
            result.append("`q_position_mask` and `k_position_mask`, 0 where a token has no position, optional")
        elif a["name"] not in ("k_positions", "k_position_mask"):
            result.append(f"`{a['name']}` {spoken(a['shape'])}, "
                          + ({"learned": "learned", "index": "integers"}.get(a["use"], "not learned")) +
                          ("" if a["presence"] in ("needed", "conditional") else ", optional"))
    return result


def read_text(name):
    path = texts / f"{name}.md"
    if not path.exists():
        fail(f"{name} has no text: write docs/terms/{name}.md")
    first, _, body = path.read_text().partition("\n\n")
    title, *settings = first.splitlines()
    return title.lstrip("# "), dict(s.split(": ", 1) for s in settings), body.strip("\n")


def facts(term):
    """Return the Markdown lines with formula, parameters and arrays that precede the text of a term."""
    said = [("Formula", ["`" + term["formula"] + "`"]), ("Parameters", of_parameters(term)),
            ("Arrays", of_arrays(term))]
    said = [textwrap.fill(f"- {what}: {'; '.join(items)}.", 130, subsequent_indent="  ", break_long_words=False,
                          break_on_hyphens=False) for what, items in said if items]
    return [f"    {term['option']}", "\n".join(said)]


def definition(name):
    """Return the NumPy definition in docs/terms/NAME.md."""
    found = re.search(r"^\*\*In NumPy\.\*\*.*?\n\n((?:    .*\n|\n)+)", read_text(name)[2] + "\n", re.M)
    return textwrap.dedent(found[1]) if found else None


def section(term, cases):
    name, source = term["name"], term["source"]
    title, settings, body = read_text(name)
    if settings.get("family") not in FAMILIES:
        fail(f'docs/terms/{name}.md: "family:" must be one of {"; ".join(FAMILIES)}')
    if "example" in settings and settings["example"] not in cases:
        fail(f'docs/terms/{name}.md: "example:" must name a case of tests/oracle/cases.txt')
    if "python" not in settings:
        fail(f'docs/terms/{name}.md: "python:" is missing; add the argument of relpos.attention, for the arrays in '
             f'docs/terms/head.md')
    if not definition(name):
        fail(f'docs/terms/{name}.md: the definition is missing; add it after a line "**In NumPy.**" and an empty line, '
             f'indented by four (see docs/terms/head.md)')
    out = [f"**{title}.** {source[0].upper()}{source[1:]}."] + facts(term)
    out.append(f"    relpos.attention(q, k, v, {settings['python']})")
    out.append(body)
    if "example" in settings:
        case = settings["example"]
        out += ["An example from the tests:",
                f"    relpos attend tests/oracle/cases/{case}.safetensors -o out.safetensors {cases[case]}"]
    if "picture" in settings:
        out += [f"    relpos bias {settings['picture']} -o {name}.png"]
        if (images / f"term_{name}.png").exists():
            out += [f"![{name}](images/term_{name}.png)"]
    return settings["family"], name, title, out, settings


def sections():
    lines = [line.split("|") for line in (root / "tests/oracle/cases.txt").read_text().splitlines()]
    cases = {line[0].strip(): line[2].strip() for line in lines if len(line) == 3}
    for path in texts.glob("*.md"):
        if path.stem not in [t["name"] for t in TERMS] + ["head"]:
            fail(f"docs/terms/{path.name}: no term in terms.def has this name; rename or remove the file")
    return [section(term, cases) for term in TERMS]


def names_of(key, value):
    """Return the names of the terms whose fact `key` has this value; with the key "array", of those that have this
    array."""
    return ", ".join(f"`{t['name']}`" for t in TERMS
                     if (value in [a["name"] for a in t["arrays"]] if key == "array" else t[key] == value))


def contents(link):
    """Return the beginning of docs/terms.md, with a table of the terms. link(name) returns the address of a term. A
    mark such as <!-- terms: role product --> is replaced by the names of these terms."""
    text = re.sub(r"<!-- terms: (\w+) (\w+) -->",
                  lambda mark: names_of(*mark.groups()), (texts / "head.md").read_text())
    head, mark, tail = text.partition("<!-- contents -->\n")
    if not mark:
        fail("docs/terms/head.md: the line <!-- contents --> is missing")
    rows = ["| | |", "|---|---|"]
    for family in FAMILIES:
        own = [s for s in sections() if s[0] == family]
        rows += [f"| {family if n == 0 else ''} | [{name}]({link(name)}): {title} |"
                 for n, (_, name, title, *_) in enumerate(own)]
    return "\n\n".join([head.rstrip("\n"), "\n".join(rows), tail.strip("\n")])


def make():
    body = [contents(lambda name: f"#{name}")]
    for family in FAMILIES:
        body += [f"## {family}"] + ["\n\n".join([f"### {name}", *out]) for of, name, _, out, _ in sections()
                                    if of == family]
    return "\n\n".join(body) + "\n"


def site_contents():
    """Return the page of the documentation site that lists all terms, with its navigation entries."""
    names = [f"terms/{s[1]}" for family in FAMILIES for s in sections() if s[0] == family]
    return contents(lambda name: f"terms/{name}.md") + "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"


def site_page(name):
    """Return the page of the documentation site for one term: its call, which the site executes and draws, and its
    section."""
    title, out, settings = next(s[2:] for s in sections() if s[1] == name)
    lead, syntax, *rest = [part for part in out if not part.startswith("    relpos.attention(")]
    call = textwrap.fill(f"out = relpos.attention(q, k, v, {settings['python']})", 94, subsequent_indent=" " * 23,
                         break_long_words=False, break_on_hyphens=False)
    code = EXAMPLE + "\n" + call
    drawn = EXAMPLE + f"\nfrom pictures import draw\ndraw(q, k, v, {settings['python']})"
    plot = f"```{{eval-rst}}\n.. plot::\n   :alt: What {name} adds\n\n" + textwrap.indent(drawn, "   ") + "\n```"
    tex = [f"```{{math}}\n{settings['tex']}\n```"] if "tex" in settings else []
    parts = [f"# {name}", lead, *tex, f"```python\n{code}\n```", plot, syntax, *rest]
    return re.sub(r"\]\((?=[a-z]+[./])", "](../", "\n\n".join(parts)) + "\n"


def every_fact():
    """Return {name: facts, text, and descriptions of parameters and arrays}."""
    result = {}
    for term in TERMS:
        title, settings, body = read_text(term["name"])
        result[term["name"]] = term | {"title": title, "family": settings["family"], "text": body,
                                       "picture": settings.get("picture", ""),
                                       "said": of_parameters(term), "said_arrays": of_arrays(term)}
    return result


# ---------------------------------------------------------------------------------------------- parts of other files

def bound(x):
    """Return a bound in few characters: 2^40 for 1099511627776."""
    power = int(x).bit_length() - 1
    return f"2^{power}" if x == 2 ** power and power > 12 else f"{x:g}"


def bounds_of(parameter):
    """Return the range of a parameter in a list: ["1 … 2^20"], ["> 0"], or [] if it has no bounds of its own."""
    at_most = f", <= {bound(parameter['max'])}" if "max" in parameter else ""
    if "above" in parameter:
        return [f"> {bound(parameter['above'])}{at_most}"]
    return [f"{bound(parameter['min'])} … {bound(parameter['max'])}"] if "max" in parameter else []


def header_table():
    """Return the table of terms.h: formula, arrays, those with gradients, and fields of rp_term."""
    lines = []
    for term in TERMS:
        last = term["arrays"][-1]["name"] if term["arrays"] else ""
        star = {"k_positions": "(*)", "k_position_mask": "(**)"}.get(last)
        arrays = []
        for a in term["arrays"]:
            if not star or a["use"] not in ("positions", "truth"):
                one = f"{a['name']} {a['shape']}"
                arrays.append(f"({one})" if a["presence"] in ("optional", "replaces") else one)
        learned = [a["name"] for a in term["arrays"] if a["use"] == "learned"]
        reads = [p["field"] + ("" if p["required"] or p["unset"] else f" = {default_of(p)}")
                 + (f" ({said})" if (said := "; ".join([p["key"]] * ("[" in p["field"]) + bounds_of(p)
                                               + [f"0 = {p['unset']}"] * bool(p["unset"]))) else "")
                 for p in term["parameters"]]
        parts = [term["formula"], "arrays  " + " ".join([", ".join(arrays)] * bool(arrays) + [star] * bool(star))
                 if arrays or star else "",
                 "learned " + ", ".join(learned) if learned else "",
                 "reads   " + ", ".join(reads) if reads else ""]
        for n, part in enumerate(p for p in parts if p):
            lead = f" *   {term['name'].upper() if n == 0 else '':<9}"
            lines += textwrap.wrap(part, 120, initial_indent=lead, subsequent_indent=" *   " + " " * 9
                                   + ("  " if n == 0 else " " * 8),
                                   break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def costs_of_forms():
    """Return the paragraph of docs/costs.md about biases of each form."""
    return textwrap.fill("Without a bias, the sums of a tile start at zero. With strips "
                         f"({names_of('form', 'OFFSET')}), they start at a loaded bias. "
                         f"Terms that read a list ({names_of('form', 'INDEX')}) or compute rows "
                         f"({names_of('form', 'TILE')}) first write a tile of "
                         "biases, which takes additional time.", 155) + "\n"


def man(text):
    """Escape _ and *, which are markup in scdoc."""
    return re.sub(r"([_*\\])", r"\\\1", text)


def man_terms(biases):
    """Return the list of terms for relpos(1)."""
    parts = []
    for term in TERMS:
        if (term["role"] == "bias") != biases:
            continue
        keys = re.sub(r"=(NAME|N|X|D|F|GhxGw)\b", r"=_\1_", re.sub(r"_(?=\w)", r"\\_", term["syntax"]))
        said = [term["formula"] + "."]
        if of_arrays(term):
            said.append("Arrays: " + "; ".join(of_arrays(term)) + ".")
        if of_parameters(term):
            said.append("Parameters: " + "; ".join(of_parameters(term)) + ".")
        body = man(" ".join(said).replace("`", ""))
        filled = textwrap.fill(body, 120, initial_indent="\t", subsequent_indent="\t", break_long_words=False,
                               break_on_hyphens=False)
        # not a list item
        parts.append(f"*{term['name']}*{keys[len(term['name']):]}\n" + filled.replace("\t-", "\t\\-"))
    return "\n" + "\n\n".join(parts) + "\n\n"


def man_options():
    """Return the options for terms that are not biases, for relpos-attend(1) and relpos-explain(1)."""
    parts = []
    for term in TERMS:
        if term["role"] != "bias":
            value = "_NAME_" if term["option"].endswith(" NAME") else "_key=value_,..."
            keys = [] if value == "_NAME_" else re.findall(r"(\w+)=", term["syntax"])
            parts.append(f"*--{term['name']}* {value}\n" + textwrap.fill(
                man(term["about"][0].upper() + term["about"][1:] + (": " + ", ".join(keys) if keys else "") + "."), 120,
                initial_indent="\t", subsequent_indent="\t"))
    return "\n" + "\n\n".join(parts) + "\n\n"


def readme_list():
    lines = []
    for family in FAMILIES:
        names = [name for of, name, *_ in sections() if of == family]
        links = ", ".join(f"[{name}](docs/terms.md#{name})" for name in names)
        lines.append(textwrap.fill(f"- {family}: {links}", 100, subsequent_indent="  ", break_long_words=False,
                                   break_on_hyphens=False))
    return "\n".join(lines) + "\n"


def stubs():
    """Return the content of _terms.pyi. It is derived from _terms.py, loaded with a stub in place of the extension
    module."""
    def load(name, path, **given):
        spec = importlib.util.spec_from_file_location(name, root / path, **given)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    package, core = types.ModuleType("relpos"), types.ModuleType("relpos._core")
    package.__path__ = [str(root / "python/relpos")]
    core.Term, core.MAX_ARRAYS = type("Term", (), {}), 8
    core.term_info = lambda kind: json.dumps(TERMS[kind - 1], allow_nan=False) if kind <= len(TERMS) else None
    package._core = core
    kept = {name: sys.modules.get(name) for name in ("relpos", "relpos._core", "relpos._terms")}
    sys.modules |= {"relpos": package, "relpos._core": core}
    try:
        package._terms = load("relpos._terms", "python/relpos/_terms.py")
        package.TERMS = package._terms.TERMS
        return load("python_stubs", "tools/python_stubs.py").text()
    finally:
        for name, module in kept.items():
            sys.modules.pop(name) if module is None else sys.modules.__setitem__(name, module)


def examples():
    """Return the content of _examples.py, the Python calls in docs/terms."""
    lines = [f"    {term['name']!r}: {read_text(term['name'])[1]['python']!r},\n" for term in TERMS]
    return ('"""The arguments of relpos.attention in the example of each term. Made by tools/terms.py from '
            'docs/terms.\n\n'
            'SPDX-License-Identifier: Apache-2.0"""\nEXAMPLES = {\n' + "".join(lines) + "}\n")


def made_files(program):
    """Return {path: text} of all generated files, from the output of the program."""
    TERMS[:] = said_by(program, "terms")

    def filled(path, *marked):
        """Return the text of a file with the parts between marks replaced. Each element of `marked` is (begin, end,
        text)."""
        text = (root / path).read_text()
        for begin, end, new in marked:
            text = between(text, begin, end, new, path)
        return text

    options = "; options of terms: made by tools/terms.py\n", "; end of options of terms\n", man_options()
    return {
        # written by CMake beside the program, from the schemes in src/terms
        "src/terms/schemes.inc": (program.parent / "schemes/terms/schemes.inc").read_text(),
        "docs/terms/facts.json": json.dumps(TERMS, ensure_ascii=False, indent=1, allow_nan=False) + "\n",
        "docs/terms.md": make(),
        "docs/python-reference.md": filled("docs/python-reference.md",
                                           ("<!-- classes: made by tools/terms.py -->\n", "<!-- end of classes -->\n",
                        "```{eval-rst}\n.. autosummary::\n   :toctree: api\n\n" +
                        "".join(f"   {t['class']}\n" for t in TERMS) + "```\n")),
        "python/relpos/_terms.pyi": stubs(),
        "python/relpos/_examples.py": examples(),
        "include/relpos/terms.h": filled(
            "include/relpos/terms.h",
            (" *   table    generated by tools/terms.py: formula; arrays in the order of rp_tensors.term; learned "
             "arrays; fields\n",
             " *   end of table\n", header_table())),
        "docs/costs.md": filled("docs/costs.md", ("<!-- forms: made by tools/terms.py -->\n", "<!-- end of forms -->\n",
                                                  costs_of_forms())),
        "README.md": filled("README.md", ("<!-- terms: made by tools/terms.py -->\n", "<!-- end of terms -->\n",
                                          readme_list())),
        "docs/man/relpos.1.scd": filled("docs/man/relpos.1.scd",
                                        ("; terms: made by tools/terms.py\n", "; end of terms\n", man_terms(True)),
                                   ("; others: made by tools/terms.py\n", "; end of others\n", man_terms(False))),
        "docs/man/relpos-attend.1.scd": filled("docs/man/relpos-attend.1.scd", options),
        "docs/man/relpos-explain.1.scd": filled("docs/man/relpos-explain.1.scd", options),
    }


def chunks_of(png):
    """Return the chunks of a PNG as (kind, body), except its image data, and the image data decompressed."""
    at, chunks, data = 8, [], b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IDAT":
            data += png[at + 8:at + 8 + size]
        else:
            chunks.append((kind, png[at + 8:at + 8 + size]))
        at += size + 12
    return chunks, zlib.decompress(data)


def smaller(png):
    """Compress a PNG again, without loss. Rows are stored as differences from the row above, with zlib's best
    compression."""
    chunks, raw = chunks_of(png)
    width, height, depth, colour = struct.unpack(">IIBB", chunks[0][1][:10])
    row = 3 * width + 1
    if (depth, colour) != (8, 2) or any(raw[n * row] for n in range(height)):
        return png
    rows = [bytes(row)] + [raw[n * row:(n + 1) * row] for n in range(height)]
    raw = b"".join(b"\2" + bytes((a - b) & 255 for a, b in zip(now[1:], before[1:]))
                   for before, now in zip(rows, rows[1:]))
    chunks.insert(-1, (b"IDAT", zlib.compress(raw, 9)))
    new = png[:8] + b"".join(struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
                             for kind, body in chunks)
    return min(png, new, key=len)


def pictures():
    """Return (path, arguments of relpos bias) of each picture in docs/terms."""
    settings = {term["name"]: read_text(term["name"])[1] for term in TERMS}
    return [(images / f"term_{name}.png", s["picture"].split()) for name, s in settings.items() if "picture" in s]


def pixels(png):
    """Return the width and the rows of an 8-bit RGB image. Each row must be stored unfiltered or as differences from
    the row above."""
    chunks, raw = chunks_of(png)
    width, height = struct.unpack(">II", chunks[0][1][:8])
    rows = [bytes(3 * width)]
    for n in range(height):
        filtered = raw[n * (3 * width + 1):(n + 1) * (3 * width + 1)]
        above = rows[-1] if filtered[0] == 2 else bytes(3 * width)
        rows.append(bytes((a + b) & 255 for a, b in zip(filtered[1:], above)))
    return width, rows[1:]


def draw(program, path, arguments):
    subprocess.run([program, "bias", *arguments, "-o", path], check=True, stderr=subprocess.DEVNULL)
    path.write_bytes(smaller(path.read_bytes()))


def main():
    what, *rest = sys.argv[1:] or [""]
    if what == "--write":
        program = program_of(rest)
        TERMS[:] = said_by(program, "terms")
        for path, arguments in pictures():  # before the page, because it shows only pictures that exist
            if not path.exists():
                draw(program, path, arguments)
        write(made_files(program))
    elif what == "--check":
        program = program_of(rest)
        check(made_files(program), "tools/terms.py --write")
        missing = [path.name for path, _ in pictures() if not path.exists()]
        if missing:
            fail(f"docs/images: missing {', '.join(missing)}; run tools/terms.py --write")
        with tempfile.TemporaryDirectory() as folder:
            new = Path(folder, "term.png")
            for path, arguments in pictures():
                draw(program, new, arguments)
                if pixels(new.read_bytes()) != pixels(path.read_bytes()):
                    fail(f"{path.relative_to(root)} is stale; run tools/terms.py --images")
    elif what == "--images":
        program = program_of(rest)
        for path, arguments in pictures():
            draw(program, path, arguments)
    elif what == "--json" and not rest:
        json.dump(every_fact(), sys.stdout, ensure_ascii=False, indent=1, allow_nan=False)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
