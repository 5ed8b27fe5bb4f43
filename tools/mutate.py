#!/usr/bin/env python3
"""Mutation testing of the library: break random places one at a time and check that a test fails. Standard library
only.

    tools/mutate.py [--limit N] [--files PATH...] [--seed N]   break places until N are judged (default 320), continuing
                                      an earlier run
    tools/mutate.py --survivors       try the surviving mutants again. --long: also run the long tests. --sanitize:
                                      build with gcc's AddressSanitizer and UndefinedBehaviorSanitizer, which detect
                                      wrong reads and writes. --tests REGEX: run only these tests, also if they are
                                      long
    tools/mutate.py --python FILE     run the Python tests with this interpreter, which needs NumPy, pytest,
                                      hypothesis and ml_dtypes; with PyTorch, they also pass tensors
    tools/mutate.py --results FILE    use another file than bench/results/mutate.json
    tools/mutate.py --merge FILE...   add the results of other files to bench/results/mutate.json, and remove those
                                      whose line has changed
    tools/mutate.py --show            print the table and the survivors of bench/results/mutate.json
    tools/mutate.py --write           write the table of docs/reliability.md; --check: exit with 1 if it is stale

A mutant changes an operator or a comparison, changes a number by one, negates a condition, removes a statement, or
exchanges neighbouring arguments. The tool changes only a copy of the source, in build/mutate/source, and builds it at
-O1 with the kernels of three instruction sets: plain vectors, AVX2 and emulated AMX. It does not break code that only
other sets use (src/processor/avx512.h). A mutant that compiles to the same object code does not count. Each test
may use the processor time of five unbroken runs plus three seconds. Tests named like the file run first, then those
that have killed many mutants in little time. tests/equivalent_mutants.txt lists the mutants that no test can detect,
with reasons.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
from made import between, card, check, root, write  # noqa: E402

RESULTS = root / "bench" / "results" / "mutate.json"
EQUIVALENT = root / "tests" / "equivalent_mutants.txt"
WORK = root / "build" / "mutate"
SOURCE, BUILD, TEMPORARY = WORK / "source", WORK / "build", WORK / "tmp"
PACKAGE, ENVIRONMENT = WORK / "package", WORK / "venv"  # the build of the Python package, and what its tests need
PYTHON = ENVIRONMENT / "bin" / "python"
# folder: how many of the default 320 mutants are in it
FOLDERS = {"src": 95, "models/io": 30, "models/linear": 20, "models/layers": 18, "models/tokenizer": 22,
           "models/checkpoint": 18, "models/t5": 20, "models/encoder": 18, "lab/engine": 20, "cli": 30, "mpi": 14,
           "python": 15}
LIMIT = sum(FOLDERS.values())
SKIPPED = (
    re.compile(
        r"src/kernels/amx/amx_peak_rate|src/processor/(?!processor)|src/isa/(?!isa_registry)|models/linear/sets/|models/linear/kernels/amx|(grapheme|unicode)_table"
        r"|t5/reference\.c|python/relpos/_core/torch\.c"))
OTHER_SETS = ("amx", "avx512", "avx512_f64")
# tests that take more processor time, in seconds, run only with --long, except those that no other test can replace:
LONG = 2.9
NEEDED = ("oracle", "test_encoder", "test_linear", "test_blocks", "test_nn", "test_checkpoints", "test_tokenizer",
          "test_tokenizer_damage", "test_t5_laws", "mpi_attend", "mpi_backward", "mpi_encoder", "mpi_t5",
          "python_encoder_core", "python_t5_core")
# The ctest names of the tests of each folder, without tests that need other tools or that test other code.
CORE = (r"test_(formulas|schemes|words|array_forms|option_words|term_text|calculations|descriptions|equal_terms"
        r"|environment|backward_arguments|derivative_arguments|other_calls|masked_rows|convert|offsets|alone|parts|ranges|rows"
        r"|arguments|inspection|identities|large_numbers|gradients|layouts|gradient_laws|masks|dropout|out_of_memory"
        r"|forget_gates|gradient_bounds|nonfinite|samples|second_derivatives|tangents"
        r"|equal_bits|gradient_bits|decode|pools|forks|definition|skipping|memory|stack|float_state|process_numbers)"
        r"|old_client|fuzz_(terms|problem)"
        r"|golden_(generic|avx2|amx_emulated)|oracle|verify_few|verify"
        r"|cli_(attend|attend_memory|bias|explain|info|bad_options|bench|bucket|environments|verify|gradients|tangents)")
TESTS = {
    "src": CORE,
    "models/io":
    r"test_(npy|npz|safetensors|torch|files|paths|damage|scale[ds]|checkpoints?|gguf|fasta|stream|t5_damage|t5_gguf|t5_proteins)"
    r"|fuzz_(io|checkpoint|torch|gguf|fasta|npy|npz|safetensors|json)"
    r"|cli_(bad_files|attend_files|outputs|streams|attend|json|embed|environments|t5_gguf|t5_proteins|t5_changed)",
    "models/linear": r"test_(linear|blocks|screen|t5_golden|t5_screen|t5_reference|t5_laws|encoder)|cli_t5|cli_encoder",
    "models/layers": r"test_layer_.*|test_(matmul|layers|nn)",
    "models/tokenizer": r"test_(tokenizer|tokenizer_damage|encoder_texts)|fuzz_(tokenizer|tokenizer_json|spiece)"
                        r"|cli_t5|cli_encoder",
    "models/checkpoint": r"test_(weights|modules|packed|encoder.*|t5_.*)|fuzz_(checkpoint|config|t5|encoder|sentence)"
                         r"|cli_(t5|encoder|embed)",
    "models/t5": r"test_t5_.*|fuzz_(checkpoint|config|t5|single)|cli_t5.*",
    "models/encoder": r"test_(encoder.*|packed|modules)|fuzz_(config|encoder|sentence)|cli_(encoder|embed)",
    "lab/engine": r"test_(nn|blas|checkpoints|generate|layers|ngrams|pairs|training)|fuzz_settings|lab_.*",
    "cli": r"test_(broken|explain|option_words|picture|progress|random_problem|shift_image|text)"
           r"|fuzz_(command|settings)|cli_.*|lab_.*|mpi_lab",
    "mpi": r"mpi_(attend|backward|t5|encoder)",
    "python": r"python_.*",
}
# Python tests that need no other package than NumPy and are not about the installed files or the documentation
PYTHON_TESTS = ("attention", "by_offset", "cache", "derivatives", "encoder_core", "errors", "hazards", "interrupt",
                "key_norms", "numpy", "pages", "progress", "proteins", "random_calls", "ranges", "rope_angles", "sink",
                "t5_class", "t5_core", "terms", "tokenizer")
SWAPS = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "&&": "||",
         "||": "&&", "<": "<=", "<=": "<",
         ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+=": "-=", "-=": "+=", "*=": "/="}
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
KINDS = ("operator", "comparison", "number", "condition", "statement", "arguments")
TOKEN = re.compile(
    r"""(?P<skip>/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
    |(?P<mark><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||[^\s\w])""", re.S | re.M | re.X)
DECLARES = (
    re.compile(
        r"(?:const|static|struct|enum|unsigned|union|typedef|return|goto|case|default|else|for|while|do|if|switch)\b"
        r"|\w+ \**\w+(?:\[| =|;|,)|\(void\)|__builtin_prefetch"))

# a line, the changed line, and its index among equal lines
Place = collections.namedtuple("Place", "file line kind old new nth")


def places(file):
    """Return the text of a file and its possible mutations, {kind: [(start, end, new)]}: `new` replaces
    text[start:end]."""
    text = (root / file).read_text()
    tokens = [m for m in TOKEN.finditer(text) if m.lastgroup != "skip"]
    # function bodies, in the style of clang-format
    bodies = [(m.start(), text.find("\n}", m.start())) for m in re.finditer(r"^\{$", text, re.M)]
    found = {kind: [] for kind in KINDS}
    body = 0
    for n, token in enumerate(tokens):
        while body < len(bodies) and token.start() > bodies[body][1]:
            body += 1
        if body == len(bodies):
            break
        if token.start() <= bodies[body][0]:
            continue
        at, end, word = token.start(), token.end(), token.group()
        if word in SWAPS and text[at - 1].isspace() and text[end].isspace():
            found["comparison" if word in COMPARISONS else "operator"].append((at, end, SWAPS[word]))
        elif token.lastgroup == "number":
            whole = re.fullmatch(r"(0|[1-9]\d*|0x[0-9a-fA-F]+)([uUlL]*)", word)
            if whole:
                value = int(whole[1], 0)
                found["number"] += [(at, end, f"{value + 1}{whole[2]}")] + ([(at, end, f"{value - 1}{whole[2]}")]
                                                                            if value else [])
            elif re.fullmatch(r"\d+\.\d*f?", word):
                found["number"].append((at, end, f"{float(word.rstrip('f')) + 1}{'f' * word.endswith('f')}"))
        elif token.lastgroup == "word" and tokens[n + 1].group() == "(":
            parts = arguments(text, tokens, n + 1)
            if word == "if" and parts:
                found["condition"].append((parts[0][0], parts[-1][1], f"!({text[parts[0][0]:parts[-1][1]]})"))
            elif word not in ("for", "while", "switch", "sizeof", "return", "if"):
                for (a, b), (c, d) in zip(parts, parts[1:]):
                    if text[a:b] != text[c:d]:
                        found["arguments"].append((a, d, text[c:d] + text[b:c] + text[a:b]))
        line = text.rfind("\n", 0, at) + 1
        if text[line:at].isspace() and tokens[n - 1].group() in (";", "{", "}", ")"):
            whole = text[at:text.find("\n", at)]
            whole = re.sub(r"\s*/\*.*\*/\s*$", "", whole)
            if whole.endswith(";") and not DECLARES.match(whole):
                found["statement"].append((at, at + len(whole), ";"))
    return text, found


def arguments(text, tokens, n):
    """Return the arguments of the call whose opening parenthesis is token n, as [(start, end)]."""
    depth, parts, begin = 0, [], tokens[n].end()
    for token in tokens[n:n + 400]:
        word = token.group()
        if word in ("(", "[", "{"):
            depth += 1
        elif word in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return parts + ([(begin, token.start())] if text[begin:token.start()].strip() else [])
        elif word == ";":
            return []
        elif word == "," and depth == 1:
            parts.append((begin, token.start()))
            begin = token.end() + 1
    return []


def choose(files, seed, missing):
    """Yield random places until 1,000 consecutive draws find no new one. A draw chooses a folder (by missing(folder),
    how many mutants it still needs), a file (by length), a kind and a place."""
    draw = random.Random(seed)
    names = {folder: [f for f in files if f.startswith(folder + "/")] for folder in FOLDERS}
    names = {folder: list_ for folder, list_ in names.items() if list_}
    lengths = {f: len((root / f).read_text()) for f in files}
    known, seen, fails = {}, set(), 0
    while fails < 1000 and any(missing(f) for f in names):
        folder = draw.choices(list(names), [missing(f) for f in names])[0]
        file = draw.choices(names[folder], [lengths[f] for f in names[folder]])[0]
        text, found = known[file] if file in known else known.setdefault(file, places(file))
        kind = draw.choice(KINDS)
        fails += 1
        if not found[kind]:
            continue
        at, end, new = draw.choice(found[kind])
        begin, last = text.rfind("\n", 0, at) + 1, text.find("\n", end)
        old, changed = text[begin:last], text[begin:at] + new + text[end:last]
        place = Place(file, text.count("\n", 0, begin) + 1, kind, old, changed, text.count(old + "\n", 0, begin))
        if place in seen:
            continue
        seen.add(place)
        fails = 0
        yield place, text[:begin] + changed + text[last:]


def split_at(mutant):
    """Return the texts of the current source before and after the line of a mutant; None if the line has changed."""
    path = root / mutant["file"]
    parts = path.read_text().split(mutant["old"] + "\n") if path.exists() else []
    n = mutant["nth"] + 1
    return tuple((mutant["old"] + "\n").join(p) for p in (parts[:n], parts[n:])) if len(parts) > n else None


def survivors(data, files):
    """Yield the survivors in the current sources that are not listed as equivalent, in the same form as choose."""
    listed = equivalents()
    for m in [m for m in data["mutants"] if m["file"] in files and state(m, listed) == "survived" and split_at(m)]:
        before, after = split_at(m)
        yield Place(m["file"], before.count("\n") + 1, m["kind"], m["old"], m["new"],
                    m["nth"]), before + m["new"] + "\n" + after


def key(mutant):
    """Return a key that identifies a mutant even if lines above it change."""
    get = mutant.get if isinstance(mutant, dict) else mutant._asdict().get
    return get("file"), get("old"), get("new"), get("nth")


def equivalents():
    """Return {(file, old, new): reason}. Each entry of the file has four lines: the path; "- " and the old line; "+ "
    and the new line, both without indentation; the reason."""
    listed = {}
    for entry in EQUIVALENT.read_text().split("\n\n") if EQUIVALENT.exists() else []:
        lines = [line for line in entry.strip().splitlines() if not line.startswith("#")]
        if lines:
            file, old, new, reason = lines[0], [l[2:] for l in lines
                                                if l[:2] == "- "], [l[2:] for l in lines if l[:2] == "+ "], lines[-1]
            listed[file, "\n".join(old), "\n".join(new)] = reason
    return listed


def plain(text):
    return "\n".join(line.strip() for line in text.splitlines())


def prepare(flags):
    """Copy all files that git does not ignore, and configure the build. Unchanged files keep their modification
    times."""
    SOURCE.mkdir(parents=True, exist_ok=True)
    TEMPORARY.mkdir(exist_ok=True)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, check=True, capture_output=True,
                            text=True).stdout.splitlines()
    for name in listed:
        if not (root / name).is_file() or name in (f"src/isa/{n}.c" for n in OTHER_SETS):
            continue
        data, to = (root / name).read_bytes(), SOURCE / name
        if name == "src/isa/isa.def":
            data = re.sub(rb"^RPI_X\((avx512|avx512_bf16|amx),.*\n", b"", data, flags=re.M)
        if not to.exists() or to.read_bytes() != data:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(data)
            shutil.copymode(root / name, to)
    configure(BUILD, f"-O1 -Werror=incompatible-pointer-types -Werror=int-conversion {flags}",
              "-DRELPOS_TEST_KERNELS=OFF")


def configure(folder, flags, *options):
    """Configure a build of the copied source."""
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    subprocess.run(["cmake", "-G", "Ninja", "-S", SOURCE, "-B", folder, "-DCMAKE_BUILD_TYPE=None",
                    "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON", f"-DCMAKE_C_FLAGS={flags}", *options, *launcher],
                   check=True, stdout=subprocess.DEVNULL)


def prepare_python():
    """Configure and build the Python package, and make the environment of its tests. Return the finished build."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
        subprocess.run([PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "numpy", "pytest",
                        "hypothesis", "ml_dtypes"], check=True)
    configure(PACKAGE, "-O1 -Werror=incompatible-pointer-types -Werror=int-conversion", "-DRELPOS_BUILD_PYTHON=ON",
              "-DRELPOS_BUILD_TESTS=OFF", f"-DPython_EXECUTABLE={PYTHON}", "-DSKBUILD_SCRIPTS_DIR=bin")
    for file in (SOURCE / "python" / "relpos").rglob("*.py*"):  # beside the modules, which CMake puts into this folder
        to = PACKAGE / file.relative_to(SOURCE)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)
    return build(LIBRARIES["python"], PACKAGE)


def build(targets, folder=None):
    """Build the targets. Return the finished process, whose returncode is 0 if they build."""
    return subprocess.run(["ninja", "-C", folder or BUILD, "-j2", *targets], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          env=os.environ | {"CCACHE_BASEDIR": str(root), "CCACHE_NOHASHDIR": "1"})


RUNNING = set()  # process groups of running tests


def stop(*_):
    """Handle a signal that ends this program: kill the running tests."""
    for group in list(RUNNING):
        os.killpg(group, signal.SIGKILL)
    os._exit(1)


class Test:
    def __init__(self, listed):
        self.name, self.command = listed["name"], listed["command"]
        more = {p["name"]: p["value"] for p in listed["properties"]}
        self.folder = more.get("WORKING_DIRECTORY", str(BUILD))
        self.environment = (os.environ | dict(e.split("=", 1) for e in more.get("ENVIRONMENT", []))
                            | {"TMPDIR": str(TEMPORARY), "CMOCKA_TEST_ABORT": "0",
                               "RELPOS_TEST_STOP": "1", "RELPOS_TEST_SECONDS": "30"})  # tests/shared/checks.sh, mpi.sh
        self.targets = [str(Path(c).relative_to(BUILD)) for c in self.command if c.startswith(str(BUILD) + "/")]
        self.seconds, self.wall = None, None

    def run(self, limit=None):
        """Run the test, for `limit` processor seconds at most, and discard its output. Return (exit code, processor
        seconds, elapsed seconds)."""
        limit = limit or int(5 * self.seconds + 3)

        def limits():
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if BUILD.name == "build":  # sanitizers reserve far more memory than they use
                resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
        began = time.monotonic()
        child = subprocess.Popen(self.command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, preexec_fn=limits)
        RUNNING.add(child.pid)
        wall = 60 + 20 * (self.wall if self.wall is not None else limit / 2)
        while True:
            pid, status, used = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - began > wall:
                os.killpg(child.pid, signal.SIGKILL)
                _, status, used = os.wait4(child.pid, 0)
                break
            time.sleep(0.01)
        try:
            os.killpg(child.pid, signal.SIGKILL)  # processes that the test left running
        except ProcessLookupError:
            pass
        RUNNING.discard(child.pid)
        child.returncode = os.waitstatus_to_exitcode(status)
        return child.returncode, used.ru_utime + used.ru_stime, time.monotonic() - began


def python_test(name):
    """Return the test that runs one file of python/tests."""
    return Test({"name": f"python_{name}",
                 "command": [str(PYTHON), "-P", "-m", "pytest", "-q", "-x", "-p",
                             "no:cacheprovider", f"python/tests/test_{name}.py"],
                 "properties": [{"name": "WORKING_DIRECTORY", "value": str(SOURCE)},
                                {"name": "ENVIRONMENT",
                                 "value": [f"PYTHONPATH={PACKAGE / 'python'}", f"LD_LIBRARY_PATH={PACKAGE}",
                                           "PYTHONDONTWRITEBYTECODE=1", "RELPOS_NO_SKIPS=0"]}]})


def folder_of(path):
    """Return the key of FOLDERS that contains a path."""
    return next(f for f in FOLDERS if path.startswith(f + "/"))


def listed_tests(folders, only):
    """Build the tests of these folders that match `only`, and return those that ctest lists."""
    if not folders:
        return []
    wanted = "|".join(f"(?:{TESTS[f]})" for f in folders)
    sources = ([p.stem for p in SOURCE.glob("tests/*/test_*.c")] + ["test_golden", "old_client"]
               + [f"fuzz_{p.stem}" for p in SOURCE.glob("tests/fuzz/*.c")])
    programs = sorted({f"tests/{name}" for name in sources if re.fullmatch(wanted, name) and re.fullmatch(only, name)
                       or name == "test_golden" and "src" in folders})
    if "mpi" in folders:
        programs.append("tests/test_ranks")
    # ctest prints the commands of tests only if the programs exist; some tests preload shrink
    built = build([*programs, "relpos_program", "relpos_mpi", "relpos", "cases", "shrink"])
    if built.returncode:
        sys.exit(built.stdout[-3000:])
    listed = json.loads(subprocess.run(["ctest", "--show-only=json-v1"], cwd=BUILD, check=True, capture_output=True,
                                       text=True).stdout)["tests"]
    return [Test(t) for t in listed if t.get("command") and re.fullmatch(wanted, t["name"])]


def tests_of(folders, long, only):
    """Return the tests that match `only` and pass on the unbroken source, with their times. The times are cached,
    because measuring takes minutes; a test that failed runs again. Without `long`, tests that take more than LONG are
    stopped and left out."""
    tests = listed_tests([f for f in folders if f != "python"], only)
    if "python" in folders:
        tests += [python_test(name) for name in PYTHON_TESTS]
    tests = [test for test in tests if re.fullmatch(only, test.name)]
    file = BUILD / "times.json"
    times = json.loads(file.read_text()) if file.exists() else {}
    for test in tests:
        all_of_it = long or test.name in NEEDED
        code = times.get(test.name, [1])[0]
        if code is None and all_of_it or code not in (0, None):
            code, used, wall = test.run(600 if all_of_it else int(LONG) + 1)
            if code < 0 and not all_of_it:
                code = None
            times[test.name] = [code, used, wall]
            file.write_text(json.dumps(times, indent=1, allow_nan=False) + "\n")
            print(f"unbroken: {test.name} {'long' if code is None else code} {used:.2f} s", flush=True)
        code, test.seconds, test.wall = times[test.name]
    return {t.name: t for t in tests if times[t.name][0] == 0}


LIBRARIES = {"src": ["relpos"], "models/io": ["relpos", "relpos_io"], "models/linear": ["relpos_linear"],
             "models/layers": ["relpos_layers_f32", "relpos_layers_f64", "relpos_layers"],
             "models/tokenizer": ["relpos_tokenizer"], "models/checkpoint": ["relpos_checkpoint"],
             "models/t5": ["relpos_t5"], "models/encoder": ["relpos_encoder"], "lab/engine": ["relpos_cli"],
             "cli": ["relpos_cli"], "mpi": ["relpos_mpi"],
             "python": ["relpos_python", "relpos_python_t5", "relpos_python_encoder"]}


def tree(folder):
    """Return the build that a folder belongs to."""
    return PACKAGE if folder == "python" else BUILD


def objects(folder):
    """Return a digest of each object file of the libraries, since a header may be used by several of them."""
    return {o: hashlib.sha256(o.read_bytes()).digest()
            for part in sorted({library for list_ in LIBRARIES.values() for library in list_})
            for o in (tree(folder) / "CMakeFiles" / f"{part}.dir").rglob("*.o")}


def judge(place, broken, order, whole):
    """Break one place and run tests. Return (state, name of the test that failed)."""
    folder = folder_of(place.file)
    path, good = SOURCE / place.file, (SOURCE / place.file).read_bytes()
    path.write_text(broken)
    try:
        if build(LIBRARIES[folder], tree(folder)).returncode:
            return "does not compile", ""
        if objects(folder) == whole:
            return "same code", ""
        with concurrent.futures.ThreadPoolExecutor(2) as two:  # run two tests at a time, since a test may wait
            waiting, order, built = {}, list(order), set()
            while order or waiting:
                while order and len(waiting) < 2:
                    if not built.issuperset(order[0].targets):  # these of the next tests, more each time
                        new = {t for test in order[:1 + 2 * len(built)] for t in test.targets}
                        if build(sorted(new)).returncode:
                            return "does not compile", ""
                        built |= new
                    test = order.pop(0)
                    waiting[two.submit(test.run)] = test
                done, _ = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                bad = [waiting[d].name for d in done if d.result()[0] not in (0, 77)]
                if bad:
                    return "killed", bad[0]
                for d in done:
                    del waiting[d]
        return "survived", ""
    finally:
        path.write_bytes(good)
        for left in TEMPORARY.iterdir():
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()


def load():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {"mutants": []}


def save(data):
    data["machine"] = card()
    part = RESULTS.with_suffix(".part")
    part.write_text(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    part.replace(RESULTS)


def merge(others):
    """Add the mutants of other results to RESULTS. A mutant that was killed in any of them is killed."""
    data = load()
    known = {key(m): m for m in data["mutants"]}
    for m in [m for other in others for m in other["mutants"]]:
        if key(m) not in known or m["state"] == "killed":
            known[key(m)] = m
    data["mutants"] = [m for m in known.values() if split_at(m)]
    save(data)


def state(mutant, listed):
    """Return the state of a mutant. A survivor in tests/equivalent_mutants.txt is "equivalent"."""
    reason = listed.get((mutant["file"], plain(mutant["old"]), plain(mutant["new"])))
    return "equivalent" if mutant["state"] == "survived" and reason else mutant["state"]


def show(data):
    listed = equivalents()
    states = ("killed", "survived", "equivalent", "same code", "does not compile")
    for what in ("kind", "folder"):
        count = collections.defaultdict(collections.Counter)
        for m in data["mutants"]:
            count[m["kind"] if what == "kind" else folder_of(m["file"])][state(m, listed)] += 1
            count["all"][state(m, listed)] += what == "kind"
        print(f"\n{what:12}" + "".join(f"{s:>18}" for s in states) + "    killed of killed + survived")
        for name, c in count.items():
            if sum(c.values()):
                print(f"{name:12}" + "".join(f"{c[s]:18}" for s in states)
                      + f"{100 * c['killed'] / max(1, c['killed'] + c['survived']):8.1f} %")
    for m in data["mutants"]:
        if state(m, listed) == "survived":
            print(f"\n{m['file']}:{m['line']} {m['kind']}\n- {plain(m['old'])}\n+ {plain(m['new'])}")


def page():
    """Return the text of docs/reliability.md with an up-to-date table."""
    data, listed = load(), equivalents()
    count = collections.Counter((folder_of(m["file"]), state(m, listed)) for m in data["mutants"])
    rows = ["| folder | broken | found by a test | not found | cannot be found |", "|---|---|---|---|---|"]
    for folder in FOLDERS:
        found, missed, same = count[folder, "killed"], count[folder, "survived"], count[folder, "equivalent"]
        if found + missed + same:
            rows.append(f"| {folder} | {found + missed + same} | {found} | {missed} | {same} |")
    found, missed = (sum(n for (_, s), n in count.items() if s == of) for of in ("killed", "survived"))
    left = sum(n for (_, s), n in count.items() if s in ("same code", "does not compile"))
    rows += ["", f"The tests found {100 * found / max(1, found + missed):.1f} % of the {found + missed} detectable "
                 f"breaks. {left} other breaks did not compile, or compiled to the "
                 f"same code. The run is from {data['machine']['date']} (bench/results/mutate.json)."]
    path = "docs/reliability.md"
    return {path: between((root / path).read_text(), "<!-- mutate: tools/mutate.py --write -->\n",
                          "<!-- end of mutate -->", "\n".join(rows) + "\n", path)}


def order_of(place, tests, data, long):
    """Return the tests of the folder of a place: first those named like the file or that killed much in little time."""
    folder = folder_of(place.file)
    fitting = [t for t in tests.values() if re.fullmatch(TESTS[folder], t.name)
               and (long or t.seconds < LONG or t.name in NEEDED)]
    kills = collections.Counter(m["by"] for m in data["mutants"] if m["file"].startswith(folder + "/"))
    near = collections.Counter(m["by"] for m in data["mutants"] if Path(m["file"]).parent == Path(place.file).parent)
    words = set(re.split(r"\W|_", place.file)) - {"src", "c", "h", "terms"}
    named = lambda t: any(w.startswith(word) or word.startswith(w) for w in t.name.split("_")[1:] for word in words
                          if len(word) > 2)
    return sorted(fitting, key=lambda t: (t.seconds + 0.1) / (kills[t.name] + 3 * near[t.name] + 5 * named(t) + 0.5))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=LIMIT)
    parser.add_argument("--files", nargs="+", default=list(FOLDERS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests")
    parser.add_argument("--results")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--merge", nargs="+")
    for name in ("--survivors", "--long", "--sanitize", "--show", "--write", "--check"):
        parser.add_argument(name, action="store_true")
    a = parser.parse_args()
    global BUILD, PYTHON, RESULTS
    if a.merge:
        return merge([json.loads(Path(name).read_text()) for name in a.merge])
    PYTHON = a.python.absolute() if a.python else PYTHON
    if a.results:
        RESULTS = Path(a.results).resolve()
    data = load()
    if a.show:
        return show(data)
    if a.write or a.check:
        return write(page()) if a.write else check(page(), "tools/mutate.py --write")
    tracked = subprocess.run(["git", "ls-files", *FOLDERS], cwd=root, check=True, capture_output=True,
                             text=True).stdout.splitlines()
    files = [f for f in tracked if f.endswith((".c", ".h")) and not SKIPPED.search(f)
             and any(f == p or f.startswith(p.rstrip("/") + "/") for p in a.files)]
    if a.tests and not a.survivors:
        sys.exit("mutate: --tests: it needs --survivors, because a mutant survives only if all tests pass")
    if not files:
        sys.exit(f"mutate: --files {' '.join(a.files)}: no C file to break; name a file or folder in "
                 f"{', '.join(FOLDERS)}")
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if a.sanitize:
        BUILD = WORK / "sanitized"
    prepare("-fsanitize=address,undefined -fno-sanitize-recover=all" if a.sanitize else "")
    folders = sorted({folder_of(f) for f in files})
    for folder in folders:
        built = build(LIBRARIES[folder]) if folder != "python" else prepare_python()
        if built.returncode:
            sys.exit(built.stdout[-3000:])
    a.long = a.long or a.tests is not None
    tests = tests_of(folders, a.long, a.tests or ".*")
    known = {key(m): m for m in data["mutants"]}
    judged = lambda folder: sum(m["file"].startswith(folder + "/") and m["state"] in ("killed", "survived")
                                for m in data["mutants"])
    missing = lambda folder: max(0, round(a.limit * FOLDERS[folder] / LIMIT) - judged(folder))
    done = 0
    for place, broken in survivors(data, files) if a.survivors else choose(files, a.seed, missing):
        done += 1
        old = known.get(key(place))
        if old and not a.survivors:
            continue
        folder = folder_of(place.file)
        build(LIBRARIES[folder], tree(folder))  # restore the files of the previous mutant
        whole, began = objects(folder), time.monotonic()
        found, by = judge(place, broken, order_of(place, tests, data, a.long), whole)
        if found != "killed" and old:
            continue
        mutant = place._asdict() | {"state": found, "by": by + " (sanitized)" * (a.sanitize and found == "killed"),
                                    "seconds": round(time.monotonic() - began, 1)}
        data["mutants"] = [m for m in data["mutants"] if key(m) != key(place)] + [mutant]
        save(data)
        print(f"{done} {found} {by} ({mutant['seconds']} s): {place.file}:{place.line} {place.kind}\n    - "
              f"{plain(place.old)}\n    + {plain(place.new)}", flush=True)
    for folder in folders:
        build(LIBRARIES[folder], tree(folder))
    show(data)


if __name__ == "__main__":
    main()
