#!/usr/bin/env python3
"""Run long tests: libFuzzer on every fuzz target, random problems, commands with failing system calls, and commands
that are killed and repeated. Standard library only.

    tools/soak.py HOURS [--save]         run for HOURS, like `./check soak HOURS`, with the lowest priority (nice 19)
    tools/soak.py --corpus [TARGET...]   write the smallest inputs that reach the same code to
                                         bench/results/soak.tar.xz, of these targets or of all
    tools/soak.py --write                write the table of docs/reliability.md from bench/results/soak.json
    tools/soak.py --check                exit with 1 if that table is stale

The tool builds the presets fuzz and dev, starts from the inputs in build/soak/corpus and bench/results/soak.tar.xz, and
writes findings to build/soak/findings. Targets that are near their goals get the time first. A target none of
whose inputs is accepted counts as a finding: it tests only refusals. Once a finding is fixed, add it to
tests/fuzz/corpus. --save adds the counts to bench/results/soak.json after each target, so the counts of an interrupted
run are kept. If there is a finding, the exit code is 1.
SPDX-License-Identifier: Apache-2.0
"""
import collections
import copy
import datetime
import functools
import hashlib
import io
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "faults"))
from faults import Faults, words  # noqa: E402
from made import between, card, check, root, write  # noqa: E402

SAVED = root / "bench" / "results" / "soak.json"
HERE = root / "build" / "soak"
CORPUS = root / "bench" / "results" / "soak.tar.xz"
CORPUS_ROOM = 60_000  # bytes of the inputs of a target in it
# inputs in addition to tests/fuzz/corpus
MORE = {"checkpoint": "tests/t5/data/switch/model.safetensors", "settings": "lab/*.lab", "gguf": "tests/t5/gguf/*.gguf",
        "safetensors": "tests/io/data/reference.safetensors", "npz": "tests/io/data/*.npz",
        "spiece": "tests/tokenizer/data/[psu]*.model", "tokenizer_json": "tests/t5/sentence/new/tokenizer.json",
        "json": "tests/t5/sentence/new/*.json"}
# the most bytes of an input, where short ones reach all code
LONGEST = {"npy": 600, "json": 2000, "settings": 1500, "terms": 500, "command": 400, "config": 4000, "sentence": 4000,
           "fasta": 4000, "problem": 200, "gguf": 8000, "npz": 10000, "safetensors": 6000, "torch": 4000}
COMPUTE = {"encoder", "gguf", "single", "sentence", "config"}  # targets that run on each instruction set in turn
HIDDEN = ("", "avx512_bf16,amx,amx_int8", "avx512,avx2_vnni", "avx2")  # values of RELPOS_HIDE_ISA
WHAT = {"io": "inputs for the readers of .npz, .npy and .safetensors", "terms": "terms and problems as text",
        "safetensors": ".safetensors", "npz": ".npz", "npy": ".npy", "json": "JSON", "spiece": "spiece.model",
        "tokenizer_json": "tokenizer.json, of all models",
        "config": "folders of T5 and BERT: config.json and the other JSON files",
        "tokenizer": "tokenizer files, with text to encode", "settings": "configurations of training runs, .lab",
        "checkpoint": "checkpoints of training runs and of T5",
        "encoder": "packed encoder files",
        "torch": "pickled weights, pytorch_model.bin", "t5": "packed T5 files", "gguf": "GGUF files",
        "fasta": "FASTA files, plain or gzip, and archives of a killed run",
        "sentence": "folders of sentence-transformers: modules.json and its files",
        "single": "T5 weights without config.json",
        "problem": "problems computed by every instruction set", "command": "command lines",
        "random": "random problems, with every check of `relpos verify` on every instruction set",
        "bits": "random problems with the same bits by 2 to 16 threads, alone or in a batch, padded, and in ranges",
        "ranks": "random problems over 2 to 5 processes of MPI: bits of one (gradients of terms: f64, up to rounding)",
        "exact": "random problems against the definition in arithmetic with 113 bits",
        "faults": "failing allocations and system calls, in every command",
        "kills": "kills of commands that write, at random moments; the command gives the same files if it is repeated"}
# Counts that the campaign should reach; 10**7 for readers of small files. "random" and "problem" have none: "exact"
# and "bits" draw problems of the same kinds, and try more of them in a second.
GOALS = {"random": 0, "problem": 0, "exact": 10**5, "bits": 10**5, "ranks": 10**4, "kills": 2000, "faults": 10**5,
         "checkpoint": 10**6, "t5": 10**6, "encoder": 10**6, "single": 10**6, "command": 10**6}
# failing or partial system calls, and kills, that each command that writes files should have
EACH = {"faults": 1000, "kills": 50}
ROUND = 900  # seconds in which each test has a turn
SHORTEST = 10  # seconds of the shortest turn
# For speed: findings are repeated without these options.
SANITIZERS = {"ASAN_OPTIONS": "malloc_context_size=2:quarantine_size_mb=8"}


def build():
    for preset in ("fuzz", "dev"):
        subprocess.run(["cmake", "--preset", preset], cwd=root, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", "--preset", preset], cwd=root, check=True, stdout=subprocess.DEVNULL)


def seeds(target, folder):
    """Copy the inputs of the project to an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = [*(root / "tests" / "fuzz" / "corpus" / target).glob("*"), *root.glob(MORE.get(target, "no/file"))]
    for file in files:
        shutil.copy(file, folder)
    for name, data in kept():
        if name.split("/")[0] == target:
            (folder / name.split("/")[1]).write_bytes(data)


def libfuzzer(target, *arguments, **environment):
    return subprocess.run([root / "build" / "fuzz" / "tests" / f"fuzz_{target}", "-timeout=600", "-rss_limit_mb=3000",
                           f"-max_len={LONGEST.get(target, 40000)}", "-close_fd_mask=1",
                           f"-artifact_prefix={HERE}/findings/{target}-", *arguments],
                          capture_output=True, text=True, errors="replace", cwd=root,
                          env=os.environ | SANITIZERS | environment)


@functools.cache
def info(hidden=""):
    """Return what relpos says of itself if these instruction sets are hidden."""
    said = subprocess.run([root / "build" / "dev" / "relpos", "info", "--json"], capture_output=True, text=True,
                          check=True, env=dict(os.environ, RELPOS_HIDE_ISA=hidden))
    return json.loads(said.stdout)


def fuzz(target, seconds, turn):
    """Run a fuzz target. Return its row: the number of inputs, of findings and of accepted inputs, the inputs of each
    instruction set, and the edges of its code that its corpus reaches."""
    corpus, folder = HERE / "corpus" / target, HERE / "seeds" / target
    corpus.mkdir(parents=True, exist_ok=True)
    seeds(target, folder)
    hidden = HIDDEN[turn % len(HIDDEN)] if target in COMPUTE else ""
    ran = libfuzzer(target, f"-max_total_time={seconds:.0f}", "-print_final_stats=1", corpus, folder,
                    RELPOS_HIDE_ISA=hidden)
    done = re.search(r"number_of_executed_units: (\d+)", ran.stderr)
    accepted = re.search(r"^valid inputs: (\d+)", ran.stderr, re.M)
    count, valid = int(done[1]) if done else 0, int(accepted[1]) if accepted else 0
    refuses = ran.returncode == 0 and valid == 0 and count >= 1000  # a short turn may not read all inputs
    finding = ran.returncode != 0 or refuses
    if finding:
        (HERE / "findings" / f"{target}-{time.time():.0f}.log").write_text(
            f"RELPOS_HIDE_ISA={hidden}\n{ran.stderr}" + "no input is accepted\n" * refuses)
    row = {"count": count, "findings": int(finding), "accepted": valid,
           "edges": max((int(x) for x in re.findall(r"\bcov: (\d+)", ran.stderr)), default=0)}
    return row | ({"sets": {info(hidden)["isa"]: count}} if target in COMPUTE else {})


def kept():
    """Return [(target/name, bytes)] of CORPUS."""
    if not CORPUS.exists():
        return []
    with tarfile.open(CORPUS) as archive:
        return [(member.name, archive.extractfile(member).read()) for member in archive]


def least_inputs(target):
    """Return [(target/name, bytes)] of the inputs that reach more code than shorter ones, as many as fit."""
    least, room, found = HERE / "least" / target, CORPUS_ROOM, []
    seeds(target, HERE / "seeds" / target)
    shutil.rmtree(least, ignore_errors=True)
    least.mkdir(parents=True)
    ran = libfuzzer(target, "-merge=1", least, HERE / "seeds" / target, HERE / "corpus" / target)
    if ran.returncode != 0:
        sys.exit(f"soak: the inputs of {target} cannot be merged:\n{ran.stderr[-2000:]}")
    for file in sorted(least.iterdir(), key=lambda x: (x.stat().st_size, x.name)):
        data = file.read_bytes()
        room -= len(data)
        if room < 0:
            break
        found.append((f"{target}/{hashlib.sha256(data).hexdigest()[:16]}", data))
    return found


def keep_corpus(targets):
    """Write the least inputs of these targets to CORPUS, beside those that it has of other targets."""
    inputs = [x for x in kept() if x[0].split("/")[0] not in targets]
    for target in targets:
        inputs += least_inputs(target)
    with io.BytesIO() as memory:
        with tarfile.open(fileobj=memory, mode="w:xz", preset=9) as archive:
            for name, data in sorted(inputs):
                about = tarfile.TarInfo(name)
                about.size = len(data)
                archive.addfile(about, io.BytesIO(data))
        CORPUS.write_bytes(memory.getvalue())
    print(f"{CORPUS.relative_to(root)}: {CORPUS.stat().st_size:,} bytes")


def groups_of(name, path, count, command, hidden=("",), needs=()):
    """Return a function that runs programs on groups of `count` random problems until the time is up, each group with
    another seed and any of these values of RELPOS_HIDE_ISA. `command` returns the arguments for a program and a seed.
    The program prints "N problems checked" or "N compared" and exits with 1 if some failed. It needs these commands."""
    def run_groups(seconds):
        program, until = root / "build" / "dev" / path, time.monotonic() + seconds
        checked, found, sets = 0, 0, collections.Counter()
        ready = program.exists() and all(map(shutil.which, needs))
        if not ready:  # test_exact needs libquadmath, test_ranks needs MPI
            print(f"{name} is not built here, or needs a command that is missing")
        while ready and time.monotonic() < until:
            seed = random.randrange(2**40)
            hides, run = random.choice(hidden), command(program, seed)
            ran = subprocess.run(run, capture_output=True, text=True, cwd=root,
                                 env=dict(os.environ, RELPOS_HIDE_ISA=hides))
            said = re.search(r"^(\d+) (?:problems checked|compared)", ran.stdout, re.M)
            group = min(count, int(said[1])) if said else 0  # verify counts each instruction set
            checked += group
            if len(hidden) > 1:
                sets[info(hides)["isa"]] += group
            if ran.returncode != 0:
                found += 1
                (HERE / "findings" / f"{name}-{seed}.log").write_text(
                    f"RELPOS_HIDE_ISA={hides} {' '.join(map(str, run))}\n{ran.stdout}{ran.stderr}")
                if not said:  # it does not run at all, or crashed: once is enough
                    break
        return {"count": checked, "findings": found} | ({"sets": dict(sets)} if sets else {})
    return run_groups


def two_hundred(program, seed):
    """Return the command that draws 200 problems."""
    return [program, "200", str(seed)]


def ranks(program, seed):
    """Return the command that compares random problems, forward or backward, over 2 to 5 processes of Open MPI. A
    deadlock is a finding."""
    kind = ["random", str(seed), "100"] if seed // 4 % 2 else ["gradients", str(seed), "25"]
    return ["timeout", "-k", "5", "600", "mpirun", "-q", "--oversubscribe", "--allow-run-as-root", "--mca", "pml",
            "ob1", "-n", str(2 + seed % 4), program, *kind]


class Fails(Faults):
    """Let allocations and system calls of commands fail. Until each command that writes files has had EACH failing or
    partial calls, choose the command with the fewest."""
    row = "faults"  # of WHAT
    counted = ("call once", "call ever", "call short")

    def __init__(self, *arguments):
        super().__init__(*arguments)
        saved = json.loads(SAVED.read_text())["counts"] if SAVED.exists() else {}
        earlier = saved.get(self.row, {}).get("writers", {})
        self.writers = {name: earlier.get(name, 0) for name, line in self.commands if " out/" in line}
        self.now = ""  # the command that runs

    def next_fault(self):
        rarest = min(self.writers, key=self.writers.get)
        name, line, kind = super().next_fault()
        if self.writers[rarest] < EACH[self.row]:
            name, line, kind = rarest, dict(self.commands)[rarest], random.choice(self.counted)
        self.now = name
        return name, line, kind

    def run(self, line, kind, n):
        if n > 0 and kind in self.counted and self.now in self.writers:
            self.writers[self.now] += 1
        return super().run(line, kind, n)


class Kills(Fails):
    """Commands that write files, killed after a number of microseconds; this number takes the place of the point at
    which Faults lets a call fail."""
    row = "kills"
    kinds = counted = ("call kill",)

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.commands = [(name, line) for name, line in self.commands if name in self.writers]

    def run(self, line, kind, n):
        if n > 0:
            return self.killed(line, n / 1e6)
        began = time.monotonic()
        ran = subprocess.run([self.program, *words(line)], cwd=self.here, env=self.environment, capture_output=True,
                             stdin=subprocess.DEVNULL)
        self.last_ways = {}
        return (ran.returncode, ran.stdout, ran.stderr.decode(errors="replace"),
                int(1e6 * (time.monotonic() - began)), "?")

    def killed(self, line, seconds):
        process = subprocess.Popen([self.program, *words(line)], cwd=self.here, env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            printed, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            self.writers[self.now] += 1  # it did not end before
            printed, said = process.communicate()
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        return code, printed, said.decode(errors="replace"), 0, f"after {seconds:.6f} s"


def points(seconds, which, session={}):
    """Run commands with faults of a class at random points. Return its row: the numbers of faults and findings."""
    if which not in session:
        folder, tests = HERE / which.row, root / "build" / "dev" / "tests"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        session[which] = which(root / "build" / "dev" / "relpos", tests / "inject", tests / "starve.so", folder)
    one = session[which]
    before = dict(one.writers)
    count = one.at_random(seconds)
    writers = {name: n - before[name] for name, n in one.writers.items()}
    found, one.findings = one.findings, []
    if found:
        with open(HERE / "findings" / f"{which.row}.jsonl", "a") as to:
            to.writelines(json.dumps(x, allow_nan=False) + "\n" for x in found)
    return {"count": sum(writers.values()) if which is Kills else count, "findings": len(found), "writers": writers}


def fail(seconds):
    """Let an allocation or a system call fail at a random point."""
    return points(seconds, Fails)


def kills(seconds):
    """Kill commands that write files at a random moment."""
    return points(seconds, Kills)


def add(row, more):
    """Add the numbers of a row to those of another one. Of edges, the larger number counts."""
    for key, x in more.items():
        if isinstance(x, dict):
            add(row.setdefault(key, {}), x)
        else:
            row[key] = max(row.get(key, 0), x) if key == "edges" else round(row.get(key, 0) + x, 1)


def save(before, counts, about, hours):
    """Write the counts of earlier runs plus those of this one."""
    all_ = copy.deepcopy(before)
    all_["runs"].append({"date": datetime.date.today().isoformat(), "hours": round(hours, 2), **about})
    for name, row in counts.items():
        add(all_["counts"].setdefault(name, {"count": 0, "findings": 0}), row)
    new = SAVED.with_suffix(".new")
    new.write_text(json.dumps(all_, indent=1, allow_nan=False) + "\n")
    new.replace(SAVED)


def machine():
    """Return what is tested, and on which machine."""
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, cwd=root)
    machine_card = card()
    return {"isa": info()["isa"], "build": info()["build"], "commit": commit.stdout.strip() or None,
            "processor": machine_card["cpu"], "processors": machine_card["cores"]}


OTHERS = {"random": groups_of("random", "relpos", 100,
                              lambda program, seed: [program, "verify", "--random", "100", "--seed", str(seed)]),
          "exact": groups_of("test_exact", "tests/test_exact", 200, two_hundred, HIDDEN),
          "bits": groups_of("test_random_bits", "tests/test_random_bits", 200, two_hundred, HIDDEN),
          "ranks": groups_of("test_ranks", "tests/test_ranks", 100, ranks, needs=("mpirun",)),
          "kills": kills, "faults": fail}


def shares(before, counts, seconds):
    """Return the seconds of a round that each test gets. Those that need the least time for their goal, by what one
    execution took so far, get it first."""
    needs = {}
    for name in WHAT:
        writers = before["counts"].get(name, {}).get("writers", {})
        each = sum(max(0, EACH[name] - n) for n in writers.values())
        rows = [row for row in (before["counts"].get(name), counts[name]) if row]
        count, timed, cpu = (sum(row.get(key, 0) for row in rows) for key in ("count", "timed", "seconds"))
        rate = timed / cpu if cpu > 0 and timed > 0 else 10 if name in OTHERS or name == "problem" else 1000
        needs[name] = max(0, goal(name) - count, each) / rate
    given = {}
    for name in sorted(needs, key=needs.get):
        given[name] = min(needs[name], seconds)
        seconds -= given[name]
    return given


def take_turn(name, seconds, turn):
    """Run a test. Return its row, with the time of processors that it took."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    row = OTHERS[name](seconds) if name in OTHERS else fuzz(name, seconds, turn)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return row | {"timed": row["count"],
                  "seconds": ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime}


def run(hours, saves):
    """Run all tests in turn for some hours. With `saves`, add the counts to SAVED after each test."""
    os.nice(19)
    build()
    about = machine()
    (HERE / "findings").mkdir(parents=True, exist_ok=True)
    before = json.loads(SAVED.read_text()) if SAVED.exists() else {"runs": [], "counts": {}}
    began, counts = time.monotonic(), {name: {"count": 0, "findings": 0} for name in WHAT}
    turn = random.randrange(len(HIDDEN))
    while (left := began + hours * 3600 - time.monotonic()) > 1:
        part = shares(before, counts, min(ROUND, left))
        for name in WHAT:
            most = began + hours * 3600 - time.monotonic()
            if most < 1:
                break
            seconds = max(min(SHORTEST, left / len(WHAT)), part[name])
            add(counts[name], take_turn(name, min(most, seconds), turn))
            if saves:
                save(before, counts, about, (time.monotonic() - began) / 3600)
        turn += 1
        print(f"{(time.monotonic() - began) / 3600:.2f} h: "
              + ", ".join(f"{name} {row['count']:,}" + (f" ({row['findings']} FINDINGS)" if row["findings"] else "")
                          for name, row in counts.items()), flush=True)
    return counts


def goal(name):
    return GOALS.get(name, 10**7)


def by_set(counts):
    """Return the table of the executions that used each instruction set, as far as they were counted."""
    sets = sorted({name for row in counts.values() for name in row.get("sets", {})})
    if not sets:
        return []
    rows = ["", "These tests hide instruction sets in turn. The sets that computed, as far as they were counted:", "",
            "| test | " + " | ".join(sets) + " |", "|---|" + "---|" * len(sets)]
    return rows + [f"| {WHAT[name]} | " + " | ".join(f"{counts[name]['sets'].get(one, 0):,}" for one in sets) + " |"
                   for name in WHAT if "sets" in counts.get(name, {})]


def by_writer(counts):
    """Return what the page says of each command that writes files."""
    rows = [counts.get(name, {}).get("writers", {}) for name in EACH]
    if not all(rows):
        return []
    least = [f"{min(row.values()):,} ({min(row, key=row.get).rstrip('?!+')})" for row in rows]
    return ["", f"Of the {len(rows[0])} commands that write files, each had at least {least[0]} failing or partial "
                f"system calls (goal {EACH['faults']:,}), and at least {least[1]} kills (goal {EACH['kills']}). "
                "Earlier runs did not count them by command."]


def page():
    """Return the text of docs/reliability.md with an up-to-date table."""
    saved = json.loads(SAVED.read_text())
    rows = ["| test | executions | per second | accepted | edges | inputs kept | goal | open findings |",
            "|---|---|---|---|---|---|---|---|"]
    inputs = collections.Counter(name.split("/")[0] for name, _ in kept())
    missing = {x.stem for x in (root / "tests" / "fuzz").glob("*.c")} - {"standalone"} - set(WHAT)
    assert not missing, f"fuzz targets that this tool never runs: {missing}"
    for name in WHAT:
        row = saved["counts"].get(name, {"count": 0, "findings": 0})
        share = f"{100 * row['accepted'] / row['timed']:.1f} %" if row.get("timed") and "accepted" in row else ""
        edges = f"{row['edges']:,}" if "edges" in row else ""
        wanted = f"{goal(name):,}" if goal(name) else "none"
        rate = f"{row['timed'] / row['seconds']:,.0f}" if row.get("seconds") else ""
        cells = (WHAT[name], f"{row['count']:,}", rate, share, edges, inputs.get(name, ""), wanted,
                 row["findings"] - row.get("mended", 0))
        rows.append(f"| {' | '.join(map(str, cells))} |")
    hours, last = sum(one["hours"] for one in saved["runs"]), saved["runs"][-1]
    rows += ["", f"{len(saved['runs'])} run{'s'[:len(saved['runs']) > 1]} took {hours:.1f} hours in total. The last "
                 f"run was on {last['date']}, of commit {last['commit']}, on a machine with {last['isa']} "
                 "(bench/results/soak.json). Per second: executions per second of processor time. Accepted: the share "
                 "of valid inputs. Both cover only the runs that measured them. Edges: of the traced code, those "
                 "that the inputs of a run reached. Inputs kept: in bench/results/soak.tar.xz."]
    rows += by_writer(saved["counts"]) + by_set(saved["counts"])
    path = "docs/reliability.md"
    return {path: between((root / path).read_text(), "<!-- soak: tools/soak.py --write -->\n", "<!-- end of soak -->",
                          "\n".join(rows) + "\n", path)}


def main():
    arguments = sys.argv[1:]
    if arguments == ["--write"]:
        write(page())
    elif arguments == ["--check"]:
        check(page(), "tools/soak.py --write")
    elif arguments[:1] == ["--corpus"]:
        known = [name for name in WHAT if name not in OTHERS and name != "problem"]  # its inputs are dice
        if set(arguments[1:]) - set(known):
            sys.exit(f"soak: the targets are {', '.join(known)}")
        build()
        keep_corpus(arguments[1:] or known)
    elif arguments and re.fullmatch(r"\d*\.?\d+", arguments[0]) and arguments[1:] in ([], ["--save"]):
        counts = run(float(arguments[0]), bool(arguments[1:]))
        if any(row["findings"] for row in counts.values()):
            sys.exit(f"soak: see {HERE / 'findings'}")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
