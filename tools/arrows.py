#!/usr/bin/env python3
"""Check the layering in docs/design.md: a file includes and calls only the folders listed below for its own folder.
Print each include or call that is not allowed and exit with 1. Also check that the .c files of a folder use each
other's functions and variables in one direction only, that every file begins with its path, a description and the
licence, and that docs/design.md names it. Standard library only.

    tools/arrows.py

SPDX-License-Identifier: Apache-2.0"""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
# Folders and single headers that each folder may include, besides itself.
MAY = {
    "src/base": ["src/isa/float_state.h", "src/isa/clones.h"],  # the two headers include nothing
    "src/terms": ["src/base"],
    "src/masks": ["src/base"],
    "src/problem": ["src/base", "src/terms", "src/masks"],
    "src/sources": ["src/base", "src/terms", "src/masks", "src/problem"],
    "src/engine": ["src/base", "src/terms", "src/masks", "src/problem", "src/sources"],
    # Templates: isa/*.c include engine/call.h before them. The FMA and AMX backends do not include each other.
    # editor.h has parameters for an editor that parses a template on its own.
    "src/kernels": ["src/kernels/fma", "src/kernels/amx", "src/engine/call.h", "src/isa/float_state.h",
                    "src/isa/target.h", "src/isa/vector_ops.h"],
    "src/kernels/fma": ["src/kernels/register_tile.h", "src/kernels/softmax.h", "src/kernels/backward_scratch.h"],
    # only for an editor: amx_editor.h, and the templates that template.h includes before those of AMX
    "src/kernels/amx": ["src/engine/call.h", "src/isa/float_state.h", "src/isa/target.h", "src/isa/vector_ops.h",
                        *(f"src/kernels/{name}.h" for name in ("block_sizes", "elements", "rotate_rows", "pack",
                                                               "register_tile", "query_block", "key_tile",
                          "term_vectors", "tile_biases", "softmax", "scores", "value_vectors", "nonfinite", "summary",
                                                               "state", "skip", "forward", "decode",
                                                               "backward_scratch"))],
    "src/isa": ["src/engine/call.h", "src/problem/ops.h", "src/base/pool.h", "src/base/error.h", "src/kernels"],
    # it judges the fast path, so it uses none of its code
    "src/reference": ["src/base", "src/terms", "src/masks", "src/problem"],
    "src/api": ["src/base", "src/terms", "src/masks", "src/problem", "src/sources", "src/engine", "src/reference"],
    # a client of the public header
    "models/linear": ["src/isa/clones.h"],
    # templates; sets/*.c include models/linear/ops.h before them
    "models/linear/kernels": ["models/linear", "src/isa/target.h", "src/isa/float_state.h", "src/isa/vector_ops.h"],
    "models/linear/sets": ["models/linear", "models/linear/kernels", "src/isa/processor.h", "src/isa/target.h",
                           "src/isa/float_state.h", "src/isa/vector_ops.h", "src/isa/avx2.h", "src/isa/avx512.h",
                           "src/isa/amx.h", "src/isa/neon.h"],
    "models/io": ["src/base/random.h", "models/linear/blocks.h", "models/linear/split.h"],
    "cli/support": [],
    "models/tokenizer": ["models/io"],
    "models/t5": ["models/io", "models/linear/linear.h", "models/tokenizer/tokenizer.h", "models/tokenizer/from_gguf.h",
                  "src/isa/clones.h", "src/base/random.h"],
    "lab/engine": ["models/io", "models/tokenizer/tokenizer.h", "src/base/edits.h", "src/base/random.h",
                   "src/isa/clones.h"],
    # processor.h: names for RELPOS_HIDE_ISA
    "cli": ["models/io", "cli/support", "src/base/edits.h", "src/isa/processor.h"],
    "cli/commands": ["models/io", "cli/support", "cli"],
    "cli/verify": ["cli/support", "cli"],
    "cli/picture": ["models/io", "cli"],
    "models/t5/cli": ["models/io", "cli", "cli/explain"],
    "lab/cli": ["models/io", "cli/support", "lab/engine", "cli"],
    "cli/explain": ["models/io", "cli/support", "cli", "lab/cli"],
    "mpi": [],  # a client of the public headers
    "web": ["lab/engine", "cli/support", "cli", "src/api/inspect.h", "src/sources/sources.h"],
    "python/relpos/_core": [],
    "examples": [],
}
# Folders that each folder may call without including them, because an included header declares the functions.
CALLS = {
    "src/kernels": ["src/base", "src/problem", "src/sources", "src/engine"],  # through engine/call.h
    "src/kernels/amx": ["src/base"],
    "src/api": ["src/isa"],  # problem/ops.h: rpi_ops_named
    "src/reference": ["src/isa"],  # problem/ops.h: error bounds depend on where sums are cut
}
# Preprocessor tests for an instruction set are allowed only in src/isa and models/linear/sets.
SETS = re.compile(r"^\s*#\s*(el)?if.*(__x86_64__|__aarch64__|__wasm|__AVX|__SSE|__ARM)")
# In a virtual machine, CPUID causes a trap, so only one file executes it, once per process.
ASKS_PROCESSOR = re.compile(r"\b(__get_cpuid\w*|__builtin_cpu_supports|__cpuid\w*)\(")
PROCESSOR = "src/isa/processor.h"


# Folders that must not show rp_last_error to users, because it names C fields.
TELLS_USERS = ("lab", "cli", "models/t5/cli", "web", "python")


def folder_of(path):
    return max((f for f in MAY if path.startswith(f + "/")), key=len, default=None)


def resolve(including, name):
    """Return the path, from the root, of a quoted include. The included file is beside the including file, in src or in
    the root."""
    for base in (including.parent, root / "src", root / "models", root):
        if (base / name).is_file():
            return (base / name).resolve().relative_to(root).as_posix()
    return None


def calls():
    """Yield (file, function, folder that defines it) for each call in src/ that is not allowed."""
    files = [p for f in MAY if f.startswith("src/") for p in (root / f).glob("*.[ch]")]
    home = {name: p.parent.relative_to(root).as_posix() for p in files if p.suffix == ".c"
            for name in re.findall(r"^[a-z][\w *]*?\b(rpi_\w+)\([^;]*?\)\n\{", p.read_text(), re.M | re.S)}
    for path in files:
        here = path.relative_to(root).as_posix()
        folder = folder_of(here)
        may = [folder, *MAY[folder], *CALLS.get(folder, [])]
        if path.suffix == ".h" and not folder.startswith("src/kernels"):
            continue  # a header: the check of includes covers its inline calls
        for name in set(re.findall(r"\b(rpi_\w+)\(", path.read_text())):
            if name in home and not any(f == home[name] or f.startswith(home[name] + "/") for f in may):
                yield here, name, home[name]


# Comments, strings and characters; the definition of a function or variable that is not static, at the start of a line;
# and a function in a header with its body.
NO_CODE = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)
DEFINITION = re.compile(r"^(?:__attribute__\(\(\w+\)\) )?(?!typedef\b|extern\b|struct "
                        r"\w+;)(?![^;{}=(]*\bstatic\b)[A-Za-z_][\w *]*?\b(\w+)"
                        r"(?:\([^;{}]*\)\s*\{|(?:\[[^\]]*\])*\s*[=;])", re.M)
INLINE = re.compile(r"^static inline\b[^;{}=(]*?\b(\w+)\([^;{}]*\)\s*\{(.*?)^\}", re.M | re.S)


def file_uses(folder):
    """Return (file, file of the same folder) -> a function or variable of the second that the first uses, for the .c
    files."""
    text = {p.name: NO_CODE.sub(" ", p.read_text()) for p in sorted(folder.glob("*.[ch]"))}
    inline = {name: set(re.findall(r"\w+", body)) for file, code in text.items() if file.endswith(".h")
              for name, body in INLINE.findall(code)}
    defined = {file: set(DEFINITION.findall(code)) for file, code in text.items() if file.endswith(".c")}
    home = {name: file for file, names in defined.items() for name in names}
    uses = {}
    for file in defined:
        words, new = set(), set(re.findall(r"\w+", text[file]))
        while new:  # the words of the file, and those of the inline functions that it calls
            words |= new
            new = set().union(*(inline[name] for name in new & inline.keys())) - words
        for name in sorted(home.keys() & words - defined[file]):
            # otherwise another function of this name
            if not re.search(rf"^static\b[^;{{}}=]*\b{name}\b", text[file], re.M):
                uses.setdefault((file, home[name]), name)
    return uses


def circles(graph):
    """Yield each circle that a walk of the graph finds, as a list that begins and ends with the same node."""
    state = {}

    def visit(node, trail):
        if state.get(node) == "open":
            yield [*trail[trail.index(node):], node]
        if node in state:
            return
        state[node] = "open"
        for to in graph.get(node, ()):
            yield from visit(to, [*trail, node])
        state[node] = "done"

    for node in list(graph):
        yield from visit(node, [])


def file_circles():
    """Yield a line for each circle of .c files in a folder."""
    for name in MAY:
        uses, graph = file_uses(root / name), {}
        for file, to in uses:
            graph.setdefault(file, []).append(to)
        for circle in circles(graph):
            steps = ", ".join(f"{a} uses {uses[a, b]} of {b}" for a, b in zip(circle, circle[1:]))
            yield f"{name}: circle of files: {steps} (move what they share to a file that uses neither)"


def is_scheme(path):
    return re.search(r"^RPI_SCHEME\(", path.read_text(), re.M)


def heads():
    """Yield (file, missing part) for each incomplete header comment. Schemes are exempt, because their authors decide
    what their comments say."""
    for path in sorted(p for f in MAY if f.startswith("src/") for p in (root / f).glob("*.[ch]")):
        here, top = path.relative_to(root).as_posix(), "".join(path.read_text().splitlines(True)[:40])
        if is_scheme(path):
            continue
        if not top.startswith(f"/* {here.removeprefix('src/')} -- "):
            yield here, f'"/* {here.removeprefix("src/")} -- " and a description'
        if "SPDX-License-Identifier" not in top:
            yield here, "a licence"


def unnamed():
    """Yield the files of src/ that docs/design.md does not name, except instruction sets and schemes, which it
    describes by folder."""
    words = set(re.findall(r"\w+(?=\.[ch])", (root / "docs/design.md").read_text()))
    for path in sorted(p for f in MAY if f.startswith("src/") for p in (root / f).glob("*.[ch]")):
        alike = path.parent.name == "isa" and path.suffix == ".c" or is_scheme(path)
        if not alike and path.stem not in words:
            yield path.relative_to(root).as_posix()


def main():
    wrong, graph = [f"{here}: its header comment lacks {what}" for here, what in heads()], {}
    wrong += [f"{here}: docs/design.md does not name it" for here in unnamed()]
    for here, name, folder in calls():
        wrong.append(f"{here}: calls {name} of {folder}, which is not in its list")
    for path in sorted(p for f in MAY for p in (root / f).glob("*.[ch]")):
        here = path.relative_to(root).as_posix()
        folder = folder_of(here)
        for number, line in enumerate(path.read_text().split("\n"), 1):
            if SETS.match(line) and folder not in ("src/isa", "models/linear/sets"):
                wrong.append(f"{here}:{number}: {line.strip()} (code that depends on the instruction set belongs in "
                             "src/isa or models/linear/sets)")
            if ASKS_PROCESSOR.search(line) and here != PROCESSOR:
                wrong.append(f"{here}:{number}: {line.strip()} (use {PROCESSOR})")
            if re.search(r"\brp_last_error\(", line) and any((folder + "/").startswith(of + "/") for of in TELLS_USERS):
                wrong.append(f"{here}:{number}: rp_last_error names C fields (use rp_last_error_in, which has the "
                             "user's words)")
            found = re.match(r'#include "([^"]+)"', line)
            if not found:
                continue
            if ".." in found[1]:
                wrong.append(f"{here}:{number}: {found[1]} (write its path from src or from the root)")
            to = resolve(path, found[1])
            if to is None:
                continue  # generated by the build, or a system header
            graph.setdefault(here, []).append(to)
            target = folder_of(to)
            allowed = target == folder or any(to == may or to.startswith(may + "/") for may in MAY[folder])
            if not allowed:
                wrong.append(f"{here}:{number}: includes {to}, which is not in its list: "
                             f"{', '.join(MAY[folder]) or 'no other folder'}")
    wrong += ["circular includes: " + " -> ".join(circle) for circle in circles(graph)]
    wrong += file_circles()
    for line in wrong:
        print(line)
    print(f"{sum(map(len, graph.values()))} includes, {len(wrong)} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
