#!/usr/bin/env python3
"""Run long tests: libFuzzer on every fuzz target, random problems, commands with failing system calls, and training
runs that are killed and resumed. Standard library only.

    tools/soak.py HOURS [--save]     run for HOURS, like `./check soak HOURS`
    tools/soak.py --write            write the table of docs/reliability.md from bench/results/soak.json
    tools/soak.py --check            exit with 1 if that table is stale

The tool builds the presets fuzz and dev, starts from the inputs in build/soak/corpus, and writes findings to
build/soak/findings. Once a finding is fixed, add it to tests/fuzz/corpus. --save adds the counts to
bench/results/soak.json after each target, so the counts of an interrupted run are kept. If there is a finding, the
exit code is 1.
SPDX-License-Identifier: Apache-2.0
"""
import copy
import datetime
import filecmp
import json
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "faults"))
from faults import MODEL, Faults  # noqa: E402
from made import between, check, root, write  # noqa: E402

SAVED = root / "bench" / "results" / "soak.json"
HERE = root / "build" / "soak"
MORE = {"checkpoint": "tests/t5/data/switch/model.safetensors"}  # inputs in addition to tests/fuzz/corpus
WHAT = {"io": "inputs for the readers of .npz, .npy and .safetensors", "terms": "terms and problems as text",
        "tokenizer": "tokenizer files, with text to encode", "settings": "configurations of training runs",
        "checkpoint": "checkpoints of training runs and of T5",
        "encoder": "packed encoder files",
        "torch": "pickled weights, pytorch_model.bin", "t5": "packed T5 files", "gguf": "GGUF files",
        "fasta": "FASTA files, plain or gzip, and archives of a killed run",
        "sentence": "folders of sentence-transformers",
        "single": "T5 weights without config.json",
        "problem": "problems computed by every instruction set", "command": "command lines",
        "random": "random problems, with every check of `relpos verify` on every instruction set",
        "exact": "random problems against the definition in arithmetic with 113 bits",
        "faults": "failing allocations and system calls, in every command",
        "kills": "kills of training runs at random moments; the resumed runs give the same bits"}
# counts that the campaign should reach; 10**7 for readers that compute nothing
GOALS = {"random": 10**5, "exact": 10**5, "problem": 10**5, "kills": 2000, "faults": 10**5, "checkpoint": 10**6,
         "t5": 10**6, "encoder": 10**6, "single": 10**6, "command": 10**6}
SLICE = 120  # seconds per target and round
TRAINING = MODEL + """steps = 400
warmup = 10
checkpoint_every = 20
vocab = 256
"""


def build():
    for preset in ("fuzz", "dev"):
        subprocess.run(["cmake", "--preset", preset], cwd=root, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", "--preset", preset], cwd=root, check=True, stdout=subprocess.DEVNULL)


def fuzz(target, seconds):
    """Run a fuzz target. Return the number of inputs and the number of findings."""
    corpus = HERE / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = [str(root / "tests" / "fuzz" / "corpus" / target)] + ([str(root / MORE[target])] if target in MORE else [])
    folder = HERE / "seeds" / target  # libFuzzer accepts only folders
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for seed in seeds:
        for file in sorted(Path(seed).iterdir()) if Path(seed).is_dir() else [Path(seed)]:
            shutil.copy(file, folder)
    ran = subprocess.run([root / "build" / "fuzz" / "tests" / f"fuzz_{target}", f"-max_total_time={seconds:.0f}",
                          "-timeout=600", "-rss_limit_mb=3000",
                          "-print_final_stats=1", "-max_len=40000", "-close_fd_mask=1",
                          f"-artifact_prefix={HERE}/findings/{target}-", corpus, folder],
                         capture_output=True, text=True, errors="replace", cwd=root)
    done = re.search(r"number_of_executed_units: (\d+)", ran.stderr)
    if ran.returncode != 0:
        (HERE / "findings" / f"{target}.log").write_text(ran.stderr)
    return int(done[1]) if done else 0, int(ran.returncode != 0)


def problems(seconds):
    """Run random problems in groups of 100 until the time is up."""
    program, until, count, found = root / "build" / "dev" / "relpos", time.monotonic() + seconds, 0, 0
    while time.monotonic() < until:
        seed = random.randrange(2**40)
        ran = subprocess.run([program, "verify", "--random", "100", "--seed", str(seed)], capture_output=True,
                             text=True)
        said = re.search(r"^(\d+) problems checked, (\d+) failed", ran.stdout, re.M)
        count += 100 if said else 0
        if ran.returncode != 0:
            found += 1
            (HERE / "findings" / f"random-{seed}.log").write_text(ran.stdout + ran.stderr)
    return count, found


def program(name):
    """Return a function that runs a test program on groups of random problems until the time is up: NAME COUNT SEED
    prints "COUNT problems checked, N failed" and exits with 1 if some failed."""
    def run_it(seconds):
        path, until, count, found = root / "build" / "dev" / "tests" / name, time.monotonic() + seconds, 0, 0
        while path.exists() and time.monotonic() < until:
            seed = random.randrange(2**40)
            ran = subprocess.run([path, "200", str(seed)], capture_output=True, text=True, cwd=root)
            said = re.search(r"^(\d+) problems checked", ran.stdout, re.M)
            count += int(said[1]) if said else 0
            if ran.returncode != 0:
                found += 1
                (HERE / "findings" / f"{name}-{seed}.log").write_text(ran.stdout + ran.stderr)
        return count, found
    return run_it


def train(folder, *options, **more):
    return subprocess.Popen([root / "build" / "dev" / "relpos", "lab", "train", "../training.lab", "-o", folder,
                             "--threads", "1", *options], cwd=HERE / "runs",
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)


def kills(seconds):
    """Kill a training run at random moments and resume it until it ends. Its last checkpoint must equal the one of an
    uninterrupted run."""
    runs, until, count, found = HERE / "runs", time.monotonic() + seconds, 0, 0
    shutil.rmtree(runs, ignore_errors=True)
    runs.mkdir(parents=True)
    (HERE / "training.lab").write_text(TRAINING)
    (runs / "text.txt").write_text("the cat sat on the mat, and the dog sat on the log. " * 400)
    began = time.monotonic()
    assert train("whole").wait() == 0, "the training run without kills fails"
    whole = time.monotonic() - began
    while time.monotonic() < until:
        shutil.rmtree(runs / "killed", ignore_errors=True)
        ended = False
        while not ended:
            run = train("killed", *(["--resume"] if (runs / "killed" / "checkpoint.safetensors").exists() else []))
            try:
                run.wait(random.uniform(0, whole))
                ended = True
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
                count += 1
                if not (runs / "killed" / "checkpoint.safetensors").exists():
                    shutil.rmtree(runs / "killed", ignore_errors=True)
        if run.returncode != 0 or not filecmp.cmp(runs / "whole" / "checkpoint.safetensors",
                                                  runs / "killed" / "checkpoint.safetensors", shallow=False):
            found += 1
            shutil.copytree(runs / "killed", HERE / "findings" / f"killed-{count}", dirs_exist_ok=True)
    return count, found


def fail(seconds, session=[]):
    """Run commands in which an allocation or a system call fails at a random point."""
    if not session:
        folder, tests = HERE / "faults", root / "build" / "dev" / "tests"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        session.append(Faults(root / "build" / "dev" / "relpos", tests / "inject", tests / "starve.so", folder))
    count = session[0].at_random(seconds)
    found, session[0].findings = session[0].findings, []
    if found:
        with open(HERE / "findings" / "faults.jsonl", "a") as to:
            to.writelines(json.dumps(one, allow_nan=False) + "\n" for one in found)
    return count, len(found)


def save(before, counts, about, hours):
    """Write the counts of earlier runs plus those of this one."""
    all_ = copy.deepcopy(before)
    all_["runs"].append({"date": datetime.date.today().isoformat(), "hours": round(hours, 2), **about})
    for name, (count, found) in counts.items():
        old = all_["counts"].get(name, {"count": 0, "findings": 0})
        all_["counts"][name] = {"count": old["count"] + count, "findings": old["findings"] + found}
    new = SAVED.with_suffix(".new")
    new.write_text(json.dumps(all_, indent=1, allow_nan=False) + "\n")
    new.replace(SAVED)


def machine():
    """Return what is tested, and on which machine."""
    about = json.loads(subprocess.run([root / "build" / "dev" / "relpos", "info", "--json"], capture_output=True,
                                      text=True, check=True).stdout)
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, cwd=root)
    return {"isa": about["isa"], "build": about["build"], "commit": commit.stdout.strip() or None}


OTHERS = {"random": problems, "exact": program("test_exact"), "kills": kills, "faults": fail}


def run(hours, saves):
    """Run all tests in turn for some hours. With `saves`, add the counts to SAVED after each test."""
    build()
    about = machine()
    (HERE / "findings").mkdir(parents=True, exist_ok=True)
    before = json.loads(SAVED.read_text()) if SAVED.exists() else {"runs": [], "counts": {}}
    began, counts = time.monotonic(), {name: [0, 0] for name in WHAT}
    while (left := began + hours * 3600 - time.monotonic()) > 1:
        part = min(SLICE, left / len(WHAT))
        for name in WHAT:
            count, found = OTHERS[name](part) if name in OTHERS else fuzz(name, part)
            counts[name][0] += count
            counts[name][1] += found
            if saves:
                save(before, counts, about, (time.monotonic() - began) / 3600)
        print(f"{(time.monotonic() - began) / 3600:.2f} h: "
              + ", ".join(f"{name} {n:,}" + (f" ({bad} FINDINGS)" if bad else "") for name, (n, bad) in counts.items()),
              flush=True)
    return counts


def page():
    """Return the text of docs/reliability.md with an up-to-date table."""
    saved = json.loads(SAVED.read_text())
    rows = ["| test | count | goal | open findings |", "|---|---|---|---|"]
    missing = {x.stem for x in (root / "tests" / "fuzz").glob("*.c")} - {"standalone"} - set(WHAT)
    assert not missing, f"fuzz targets that this tool never runs: {missing}"
    for name, row in saved["counts"].items():
        rows.append(f"| {WHAT[name]} | {row['count']:,} | {GOALS.get(name, 10**7):,} "
                    f"| {row['findings'] - row.get('mended', 0)} |")
    hours, last = sum(one["hours"] for one in saved["runs"]), saved["runs"][-1]
    rows += ["", f"{len(saved['runs'])} run{'s'[:len(saved['runs']) > 1]} took {hours:.1f} hours in total. The last "
                 f"run was on {last['date']} on a machine with {last['isa']} (bench/results/soak.json)."]
    path = "docs/reliability.md"
    return {path: between((root / path).read_text(), "<!-- soak: tools/soak.py --write -->\n", "<!-- end of soak -->",
                          "\n".join(rows) + "\n", path)}


def main():
    arguments = sys.argv[1:]
    if arguments == ["--write"]:
        write(page())
    elif arguments == ["--check"]:
        check(page(), "tools/soak.py --write")
    elif arguments and re.fullmatch(r"\d*\.?\d+", arguments[0]) and arguments[1:] in ([], ["--save"]):
        counts = run(float(arguments[0]), bool(arguments[1:]))
        if any(found for _, found in counts.values()):
            sys.exit(f"soak: see {HERE / 'findings'}")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
