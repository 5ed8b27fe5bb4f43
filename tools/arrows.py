#!/usr/bin/env python3
"""Check the layering in docs/maintainers/design.md: a file includes and calls only the folders listed below for its
own folder. Print each include or call that is not allowed and exit with 1. Also check that the .c files of a folder
use each other's functions and variables in one direction only, and that every file of src begins with its path, a
description and the licence. Standard library only.

    tools/arrows.py

SPDX-License-Identifier: Apache-2.0"""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
# The folders, from the bottom up, with the folders and single headers that each may include besides itself. All of them
# are further up in this list, with the exceptions of UPWARDS.
MAY = {
    # src: the library
    "src/processor": [],
    "src/base": ["src/processor"],
    "src/terms": ["src/base"],
    "src/masks": ["src/base"],
    "src/problem": ["src/base", "src/terms", "src/masks"],
    "src/sources": ["src/base", "src/terms", "src/masks", "src/problem"],
    "src/call": ["src/base", "src/sources"],
    # Templates: isa/*.c include call/call.h before them. The FMA and AMX backends do not include each other.
    "src/kernels/fma": ["src/kernels/register_tile.h", "src/kernels/softmax.h", "src/kernels/backward_scratch.h"],
    "src/kernels/amx": ["src/call", "src/processor",
                        *(f"src/kernels/{name}.h" for name in (
                            "block_sizes", "elements", "rotate_rows", "pack", "register_tile", "query_block",
                            "key_tile", "term_vectors", "tile_biases", "softmax", "scores", "value_vectors",
                            "nonfinite", "summary", "state", "skip", "forward", "decode", "backward_scratch"))],
    "src/kernels": ["src/processor", "src/call", "src/kernels/fma", "src/kernels/amx"],
    "src/isa": ["src/processor", "src/base", "src/problem/ops.h", "src/call", "src/kernels"],
    "src/engine": ["src/base", "src/terms", "src/masks", "src/problem", "src/sources", "src/call"],
    # it judges the fast path, so it uses none of its code
    "src/reference": ["src/base", "src/terms", "src/masks", "src/problem"],
    "src/api": ["src/base", "src/terms", "src/masks", "src/problem", "src/sources", "src/call", "src/engine",
                "src/reference"],
    # clients of the public headers
    "models/linear": ["src/processor/clones.h"],
    "models/linear/kernels": ["src/processor", "models/linear"],  # templates; sets/*.c include linear/ops.h before them
    "models/linear/sets": ["src/processor", "models/linear", "models/linear/kernels"],
    "models/io": ["src/base/random.h", "models/linear/block_kinds.h", "models/linear/split.h"],
    "models/layers": ["src/processor/clones.h", "src/base/random.h", "models/io"],
    "models/tokenizer": ["models/io"],
    "models/checkpoint": ["src/processor/clones.h", "models/io", "models/linear/linear.h"],
    "models/t5": ["src/processor/clones.h", "src/base/random.h", "models/io", "models/linear/linear.h",
                  "models/tokenizer/tokenizer.h", "models/tokenizer/from_gguf.h", "models/checkpoint"],
    "models/encoder": ["src/processor/clones.h", "models/io", "models/linear/linear.h", "models/linear/erf.h",
                       "models/tokenizer/tokenizer.h", "models/checkpoint"],
    "mpi": [],
    "lab/engine": ["src/base/edits.h", "src/base/random.h", "models/io",
                   "models/layers/numeric.h", "models/layers/real.h", "models/layers/normal.h",
                   "models/tokenizer/tokenizer.h"],
    # the program
    "cli/support": [],
    "cli": ["src/base/edits.h", "src/processor/processor.h", "models/io", "cli/support"],  # names for RELPOS_HIDE_ISA
    "cli/picture": ["models/io", "cli"],
    "cli/verify": ["cli/support", "cli"],
    "cli/lab": ["models/io", "lab/engine", "cli/support", "cli"],
    "cli/explain": ["models/io", "lab/engine", "cli/support", "cli", "cli/picture", "cli/lab"],
    "cli/t5": ["models/io", "cli", "cli/explain"],
    "cli/encoder": ["models/io", "cli", "cli/t5"],
    "cli/tutorial": ["models/io", "cli"],
    "cli/commands": ["models/io", "cli/support", "cli", "cli/picture"],
    "python/relpos/_core": [],
    "python/relpos/_core/models": ["python/relpos/_core/signals.h"],
    "python/relpos/t5/_core": ["python/relpos/_core/models"],
    "python/relpos/encoder/_core": ["python/relpos/_core/models"],
    "web": ["src/sources/sources.h", "src/api/inspect.h", "lab/engine", "cli/support", "cli"],
    "examples": [],
}
# Includes of folders further down in MAY. They are only for an editor that parses a template on its own: builds include
# the templates in the order of kernels/template.h.
UPWARDS = {("src/kernels/fma", "src/kernels"), ("src/kernels/amx", "src/kernels")}
# Folders that each folder may call without including them, because an included header declares the functions.
CALLS = {
    "src/kernels": ["src/base", "src/problem", "src/sources", "src/call"],  # through call/call.h
    "src/kernels/amx": ["src/base"],
    "src/api": ["src/isa"],  # problem/ops.h: rpi_ops_named
    "src/reference": ["src/isa"],  # problem/ops.h: error bounds depend on where sums are cut
}
# Preprocessor tests for an instruction set are allowed only in these folders.
SET_FOLDERS = ("src/processor", "src/isa", "models/linear/sets")
SETS = re.compile(r"^\s*#\s*(el)?if.*(__x86_64__|__aarch64__|__wasm|__AVX|__SSE|__ARM)")
# In a virtual machine, CPUID causes a trap, so only one file executes it, once per process.
ASKS_PROCESSOR = re.compile(r"\b(__get_cpuid\w*|__builtin_cpu_supports|__cpuid\w*)\(")
PROCESSOR = "src/processor/processor.h"


# Programs that include what they build from.
NOT_PLACED = ("web/wasi",)
# Folders that must not show rp_last_error to users, because it names C fields.
TELLS_USERS = ("lab", "cli", "web", "python")


def folder_of(path):
    return max((f for f in MAY if path.startswith(f + "/")), key=len, default=None)


def resolve(including, name):
    """Return the path, from the root, of a quoted include. The included file is beside the including file, in src or in
    the root."""
    for base in (including.parent, root / "src", root / "models", root):
        if (base / name).is_file():
            return (base / name).resolve().relative_to(root).as_posix()
    return None


def calls(top, prefix):
    """Yield (file, function, folder that defines it) for each call in a top folder that is not allowed. Its functions
    that several files call begin with `prefix`."""
    files = [p for f in MAY if (f + "/").startswith(top + "/") for p in (root / f).glob("*.[ch]")]
    home = {name: p.parent.relative_to(root).as_posix() for p in files if p.suffix == ".c"
            for name in re.findall(rf"^[a-z][\w *]*?\b({prefix}\w+)\([^;]*?\)\n\{{", p.read_text(), re.M | re.S)}
    for path in files:
        here = path.relative_to(root).as_posix()
        folder = folder_of(here)
        may = [folder, *MAY[folder], *CALLS.get(folder, [])]
        if path.suffix == ".h" and not folder.startswith("src/kernels"):
            continue  # a header: the check of includes covers its inline calls
        for name in set(re.findall(rf"\b({prefix}\w+)\(", path.read_text())):
            if name in home and not any((f if f in MAY else folder_of(f)) == home[name] for f in may):
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


def strangers():
    """Yield each folder with C code that MAY does not list. A folder within a listed one must be listed too."""
    for top in sorted({folder.split("/")[0] for folder in MAY}):
        for folder in sorted({p.parent.relative_to(root).as_posix() for p in (root / top).rglob("*.[ch]")}):
            if folder not in MAY and not folder.startswith(NOT_PLACED):
                yield folder


def upwards():
    """Yield (folder, entry) for each entry of MAY whose folder is further down in MAY and not in UPWARDS."""
    order = {folder: n for n, folder in enumerate(MAY)}
    for folder, entries in MAY.items():
        for entry in entries:
            of = entry if entry in MAY else folder_of(entry)
            if order[of] >= order[folder] and (folder, of) not in UPWARDS:
                yield folder, entry


def main():
    wrong, graph = [f"{here}: its header comment lacks {what}" for here, what in heads()], {}
    wrong += [f"{folder}: tools/arrows.py does not list this folder; add it, with what it may include"
              for folder in strangers()]
    wrong += [f"tools/arrows.py: {folder} may include {entry}, which is not below it" for folder, entry in upwards()]
    for here, name, folder in (*calls("src", "rpi_"), *calls("cli", "cli_")):
        wrong.append(f"{here}: calls {name} of {folder}, which is not in its list")
    for path in sorted(p for f in MAY for p in (root / f).glob("*.[ch]")):
        here = path.relative_to(root).as_posix()
        folder = folder_of(here)
        for number, line in enumerate(path.read_text().split("\n"), 1):
            if SETS.match(line) and folder not in SET_FOLDERS:
                wrong.append(f"{here}:{number}: {line.strip()} (code that depends on the instruction set belongs in "
                             f"{', '.join(SET_FOLDERS)})")
            if ASKS_PROCESSOR.search(line) and here != PROCESSOR:
                wrong.append(f"{here}:{number}: {line.strip()} (use {PROCESSOR})")
            if re.search(r"\brp_last_error\(", line) and any((folder + "/").startswith(of + "/") for of in TELLS_USERS):
                wrong.append(f"{here}:{number}: rp_last_error names C fields (use rp_last_error_in, which has the "
                             "user's words)")
            found = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
            if not found:
                continue
            if ".." in found[1]:
                wrong.append(f"{here}:{number}: {found[1]} (write its path from src or from the root)")
            to = resolve(path, found[1])
            if to is None:
                continue  # generated by the build, or a system header
            graph.setdefault(here, []).append(to)
            target = folder_of(to)
            allowed = target == folder or any(may in (to, target) for may in MAY[folder])
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
