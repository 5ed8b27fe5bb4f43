"""Measure attention over several processes of this machine, for docs/maintainers/scaling.md. Standard library only.

    python3 bench/scaling.py build/release/relpos [--only REGEX] [--list]
    python3 bench/scaling_report.py

Each measurement is short, and its raw lines go to bench/results/scaling.json at once. So a busy machine can be measured
in several runs: `--only 'speed fwd.*16384'`. A repeated measurement replaces the one of the same name if other programs
(or other virtual machines) used less of the processors meanwhile, or little and the commit is another. `--list` prints
the names. The measurements of networks need root and iproute2 (bench/scaling_net.py), and those of torch an interpreter
with torch (--python).
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import scaling_net
from machine import clock, output, processor, version

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "bench/results/scaling.json"
# Few heads where one run would take too long; every head takes the same time.
SPEED = {"fwd": ("b1h8q16384k16384d64:t5:causal", "b1h4q16384k16384d64:t5", "b1h1q65536k65536d64:t5:causal",
                 "b1h1q65536k65536d64:t5"),
         "fwdbwd": ("b1h2q16384k16384d64:t5:causal", "b1h1q16384k16384d64:t5", "b1h2q8192k8192d64:t5:causal")}
TRAFFIC = "b2h2g1q8192k8192d32:t5"
LINKS = {"1 Gbit/s": (1000, 0, 0), "200 Mbit/s, 10 ms": (200, 10, 0), "200 Mbit/s, 10 ms, 0.1 % lost": (200, 10, 0.001)}
OVER_LINKS = ("fwd:f32:b1h8q4096k4096d64:t5", "fwd:f32:b1h8q4096k4096d64:t5:causal", "fwdbwd:f32:b1h2q4096k4096d64:t5")
QUIET = 0.25  # processors that other programs used
MEMORY = {"heads": 8, "rows": 65536, "width": 64}  # with a window of 256 keys, so that it takes seconds


def mpirun(processes, *command):
    root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
    return output("mpirun", *root, "--oversubscribe", "-q", "--timeout", "180", "-n", str(processes), *command)


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def speed(relpos, problem):
    """Time a problem over two processes, and in one of them."""
    return lines(mpirun(2, relpos, "bench", "--mpi", "--json", "--seconds", "1", problem))


def threads(relpos, problem):
    """Time a problem in one process with two threads."""
    return lines(output(relpos, "bench", "--json", "--threads", "2", "--seconds", "1", problem))


def traffic(relpos, problem, processes):
    return lines(mpirun(processes, relpos, "bench", "--mpi", "--json", "--seconds", "0.1", problem))


def messages(_, link):
    """Time messages of several sizes, between processes of this machine or over a link."""
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "pingpong"))
        subprocess.run(("mpicc", "-O2", str(ROOT / "bench/pingpong.c"), "-o", program), check=True)
        return lines(scaling_net.over(LINKS[link], (program,)) if link else mpirun(2, program))


def over_link(relpos, link, problem):
    return lines(scaling_net.over(LINKS[link], (relpos, "bench", "--mpi", "--json", "--seconds", "8", problem)))


def write_file(path, rows):
    """Write q, k and v of zeros to a .safetensors file."""
    shape = [1, MEMORY["heads"], rows, MEMORY["width"]]
    size = 4 * MEMORY["heads"] * rows * MEMORY["width"]
    head = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [n * size, (n + 1) * size]}
                       for n, name in enumerate("qkv")}, allow_nan=False).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.truncate(8 + len(head) + 3 * size)


def memory(relpos, processes):
    """Measure the peak of resident memory of each process of `relpos attend`, and of a problem without rows to speak
    of."""
    found = []
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        for rows in (processes * 1024, MEMORY["rows"]):
            write_file(f"{folder}/in.safetensors", rows)
            for line in lines(mpirun(processes, sys.executable, __file__, "--peak", relpos, "attend",
                                     f"{folder}/in.safetensors", "-o",
                                     f"{folder}/out.safetensors", "--window", "256,0", "--threads", "1")):
                found.append({"rows": rows, **line})
    return found


def peak(command):
    """Run a process of mpirun, and print its peak of resident memory."""
    code = subprocess.run(command).returncode
    kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    line = json.dumps({"rank": int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)), "bytes": 1024 * kib}, allow_nan=False)
    os.write(1, f"{line}\n".encode())  # in one piece, because mpirun mixes the output of its processes
    return code


def torch_answers(_, python):
    return lines(output(python, str(ROOT / "bench/scaling_torch.py")))


def measurements(python):
    """Return all measurements by name: the function and its arguments."""
    found = {}
    for problem in (f"{kind}:f32:{sizes}" for kind, all_sizes in SPEED.items() for sizes in all_sizes):
        found |= {f"speed {problem}": (speed, problem), f"threads {problem}": (threads, problem)}
    for kind in SPEED:
        for mask in ("", ":causal"):
            for processes in (2, 3, 4, 8):
                found[f"traffic {processes} {kind}{mask}"] = (traffic, f"{kind[-3:]}:f32:{TRAFFIC}{mask}", processes)
    found |= {f"memory {processes}": (memory, processes) for processes in (1, 2, 4, 8)}
    found |= {f"messages {link or 'shared memory'}": (messages, link) for link in ("", *LINKS)}
    found |= {f"link {problem} {link}": (over_link, link, problem) for link in LINKS for problem in OVER_LINKS}
    return found | {"torch": (torch_answers, python)}


def busy():
    """Return the processor seconds of all programs so far, with those that other virtual machines took, and of the
    children of this process."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    field = [int(n) for n in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(field[:8]) - field[3] - field[4]) / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


def card(relpos):
    about = json.loads(output(relpos, "info", "--json"))
    return {"cpu": processor().get("Model name", "unknown"), "cores": os.cpu_count(), "clock_hz": clock(),
            "isa": about["isa"], "relpos": about["version"],
            "compiler": about["build"]["compiler"], "build": about["build"]["type"],
            "mpi": output("mpirun", "--version").split("\n")[0],
            "kernel": os.uname().release}


def replaces(name, new, old):
    """Return true if a measurement replaces an older one: counts always; times of another commit on a quiet machine;
    otherwise those with less work of other programs."""
    quiet = new["commit"] != old["commit"] and new["others"] <= QUIET
    return name.startswith("traffic ") or quiet or new["others"] <= old["others"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("relpos")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--python", default=str(ROOT / "build/venv/bin/python"))
    a = parser.parse_args()
    relpos = str(Path(a.relpos).resolve())
    chosen = {name: what for name, what in measurements(a.python).items() if re.search(a.only, name)}
    if a.list:
        return print("\n".join(chosen))
    about = card(relpos)
    for name, (function, *arguments) in chosen.items():
        begin, start = busy(), time.monotonic()
        found = function(relpos, *arguments)
        total, own = (after - before for after, before in zip(busy(), begin))
        others = round(max(total - own, 0) / (time.monotonic() - start), 3)
        print(f"{name}: {others} processors used by others", *(json.dumps(f, allow_nan=False) for f in found),
              sep="\n  ", flush=True)
        if not found:
            sys.exit(f"{name}: no result")
        data = json.loads(FILE.read_text()) if FILE.exists() else {"measured": {}}
        seen = data.get("machine", about)["clock_hz"]  # lower while other programs run
        data["machine"] = {**about, "clock_hz": max(seen, about["clock_hz"])}
        entry = {**version(), "others": others, "lines": found}
        before = data["measured"].get(name, entry)
        if not replaces(name, entry, before):
            continue
        data["measured"][name] = entry
        FILE.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--peak":
        sys.exit(peak(sys.argv[2:]))
    main()
