#!/usr/bin/env python3
"""Run every command of relpos with a fault at its n-th allocation or system call. The fault is a failure of that call
only, a failure of that call and all later ones, a read or write of only half the bytes, or a kill.

    tests/faults/faults.py PROGRAM INJECT STARVE [--points N] [--ways] [--only NAME]

INJECT is the compiled tests/faults/inject.c, and STARVE the compiled tests/faults/starve.c. A point is a call at which
a fault is tried. If a command has more than 8 N points of a kind, N of them are tried, evenly spread (default: all).
With --ways, also try the first point of each call stack that leads to an allocation or a system call, unless an earlier
command had the same stack.

Each run must end by itself and not by a signal. With exit code 0, everything it wrote and printed must be the same as
without a fault. Otherwise the exit code must be 1, a line on standard error must begin with "relpos: " and name the
failure, each output must be complete or unchanged, and no temporary file may remain. After a kill, each output must be
complete or unchanged too; running the command again must succeed, give the expected outputs and remove the files that
the killed run left. Exit code 77: processes cannot be traced.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import hashlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "t5" / "data"
WAIT = 120  # seconds; the commands take milliseconds, so a longer run hangs
MODEL = """text = text.txt
layers = 1
width = 16
heads = 2
mlp = 16
length = 16
batch = 2
position = t5,buckets=4,bidirectional=0
"""
TRAINING = MODEL + """steps = 6
warmup = 1
log_every = 2
checkpoint_every = 2
eval_bytes = 200
valid_share = 0.2
"""
LINES = """layers = 1
width = 16
heads = 2
mlp = 16
bos = 1
vocab = 257
length = 6
generate = copy
generate_size = 2
batch = 4
steps = 2
warmup = 1
position = learned
eval_bytes = 40
"""
PAIRS = """task = encoder-decoder
layers = 1
decoder_layers = 1
width = 16
heads = 2
mlp = 16
vocab = 384
preset = t5
length = 4
target_length = 32
batch = 2
accumulate = 2
steps = 4
warmup = 1
eval_every = 2
eval_bytes = 64
log_every = 2
checkpoint_every = 2
"""
# (name, arguments). The arguments -o name the files in out/ that the command writes. A name ends in "?" if the printed
# text differs from run to run, in "!" if the command may fail without a fault because an optional part was not built,
# and in "+" if the command writes a growing folder, which another run completes.
COMMANDS = [
    ("attend", "attend in.safetensors -o out/a.safetensors --bias t5,table=table --scale 1 --weights --causal"),
    ("attend npz", "attend in.npz -o out/a.npz"),
    ("attend grad", "attend in.safetensors -o out/g.npz --bias t5,table=table --grad"),
    ("attend stdout", "attend in.npz -o -"),
    ("bias text", "bias log,lambda=0.3 --q 8 --k 8"),
    ("bias json", "bias t5,table=table --input in.safetensors --q 8 --k 8 --json"),
    ("bias png", "bias alibi --q 16 --k 16 -o out/a.png"),
    ("bias svg", "bias alibi --q 4 --k 4 -o out/a.svg"),
    ("bias csv", "bias alibi --q 4 --k 4 -o out/a.csv"),
    ("bias npz", "bias alibi --q 4 --k 4 -o out/a.npz"),
    ("bucket", "bucket --buckets 16 --json"),
    ("shift", "shift --grid 3 --json"),
    ("explain", "explain"),
    ("explain file", "explain --input in.safetensors --head 1 --query 2 --bias alibi --brief -o out/a.png"),
    ("explain model", "explain --model run --text Four --layer 0 --head 1"),
    ("verify", "verify fwd:f32:b1h2q5k7d4:t5:causal bwd:f32:b1h1q3k3d4:alibi: --isa avx2"),
    ("bench?", "bench fwd:f32:b1h1q8k8d8 --seconds 0.001"),
    ("info?", "info"),
    ("info json?", "info --json"),
    ("explore!", "explore --path"),
    ("lab train+", "lab train training.lab -o out/run --threads 1"),
    ("lab train resume+", "lab train training.lab -o out/half --threads 1 --resume"),
    ("lab eval", "lab eval run --lengths 8,16 --threads 1 --json"),
    ("lab sample", "lab sample run --prompt Four --bytes 8 --threads 1"),
    ("lab inspect", "lab inspect run --json"),
    ("lab export", "lab export run --prompt Four -o out/x.safetensors"),
    ("lab export model", "lab export run --model --dtype f16 -o out/m.safetensors"),
    ("lab export transformers", "lab export rope --transformers -o out/hf"),
    ("lab log", "lab log run"),
    ("lab log events", "lab log run --tensorboard out/events"),
    ("lab sweep+", "lab sweep sweep.lab -o out/sweep.jsonl --keep out/kept --threads 1"),
    ("lab sweep counts+", "lab sweep counts.lab -o out/counts.jsonl --threads 1"),
    ("lab sweep lines+", "lab sweep lines.lab -o out/lines.jsonl --threads 1"),
    ("lab train pairs+", "lab train pairs.lab -o out/run --threads 1"),
    ("lab eval pairs", "lab eval pairs --bytes 64 --threads 1 --json"),
    ("lab report", "lab report results.jsonl"),
    ("t5 generate", "t5 generate words -o out/lines.txt --text the --max-new-tokens 4 --threads 1"),
    ("t5 generate beams", "t5 generate packed lines.txt --tokens --beams 2 --max-new-tokens 3 --threads 2"),
    ("t5 encode", "t5 encode encoder lines.txt --tokens -o out/e.npz --pool mean --threads 1"),
    ("t5 proteins+", "t5 proteins prott5 proteins.fasta -o out/p.npz --threads 1"),
    ("t5 proteins 3di", "t5 proteins prostt5 proteins.fasta -o out/p.fasta --3di --threads 1"),
    ("t5 score", "t5 score words pairs.txt --tokens --each --threads 1"),
    ("t5 tokenize", "t5 tokenize words --text 'the text'"),
    ("t5 pack", "t5 pack words --type int8 -o out/packed --threads 1"),
    ("t5 info", "t5 info words --json"),
    ("embed", "embed search lines.txt -o out/v.npz --threads 1"),
    ("embed jsonl", "embed search lines.txt -o out/v.jsonl --threads 1"),
    ("pack", "pack search -o out/packed"),
    ("t5 verify", "t5 verify words --tokens --text '5 9 2' --threads 1"),
    ("t5 explain", "t5 explain byt5 the -o out/a.svg"),
    ("t5 bench?", "t5 bench words --source 4 --new 2 --repeat 1 --threads 1"),
    ("encoder packed", "embed search.relpos --text 'the cat' -o out/w.npz --threads 1"),
    ("encoder classify", "classify labels texts.txt --all --threads 1"),
    ("encoder rerank", "rerank rank texts.txt --query 'a cat' --threads 1"),
    ("encoder pack?", "pack search --type int8 -o out/packed"),
    ("encoder proteins+", "proteins protein proteins.fasta -o out/e.npz --threads 1"),
    ("encoder prompt", "embed asymmetric --text cat --prompt query -o out/w.safetensors --threads 1"),
]
KINDS = ("alloc once", "alloc ever", "call once", "call ever", "call short", "call kill")


def tensors(path, arrays):
    """Write a .safetensors file with f32 arrays of small numbers. `arrays` is {name: shape}."""
    header, at, data = {}, 0, b""
    for name, shape in arrays.items():
        n = 1
        for axis in shape:
            n *= axis
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * n]}
        data += struct.pack(f"<{n}f", *((37 * k + at) % 19 / 8 - 1 for k in range(n)))
        at += 4 * n
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Faults:
    """The commands, in a temporary folder with the files that they read."""
    kinds = KINDS

    def __init__(self, program, inject, starve, folder):
        self.program, self.inject, self.starve, self.here = (Path(program).resolve(), Path(inject).resolve(),
                                                             Path(starve).resolve(), Path(folder))
        self.log, self.out = self.here / "log", self.here / "out"
        self.environment = ({k: v for k, v in os.environ.items()
                             if not k.startswith(("RELPOS_", "OPENBLAS_", "LC_", "LANG"))}
                            | {"LC_ALL": "C", "HOME": str(self.here)})
        self.findings, self.tried, self.expected = [], {}, {}
        self.ways, self.seen = {}, set()
        self.make_inputs()

    def plain(self, line):
        subprocess.run([self.program, *words(line)], cwd=self.here, env=self.environment, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def make_inputs(self):
        (self.here / "text.txt").write_text("Four score and seven years ago our fathers brought forth on this "
                                            "continent. " * 20)
        (self.here / "training.lab").write_text(TRAINING)
        (self.here / "sweep.lab").write_text(TRAINING + "vary.seed = 1 | 2\nquick.steps = 2\n")
        (self.here / "counts.lab").write_text(TRAINING + "eval_previous = 3\neval_ngrams = 2\neval_lengths = 8 16\n")
        (self.here / "lines.lab").write_text(LINES)
        (self.here / "pairs.lab").write_text(PAIRS + f"text = {ROOT}/lab/data/numbers.txt\n")
        (self.here / "lines.txt").write_text("5 9 2 4\n3\n")
        (self.here / "pairs.txt").write_text("5 9 2 4\t3 4 1\n")
        tensors(self.here / "in.safetensors", {"q": (1, 2, 5, 8), "k": (1, 2, 6, 8), "v": (1, 2, 6, 8),
                                               "dout": (1, 2, 5, 8), "table": (32, 2), "unused": (9,)})
        shutil.copy(ROOT / "examples" / "data" / "three.npz", self.here / "in.npz")
        shutil.copytree(DATA / "v11", self.here / "words")
        tokenizer = json.loads((ROOT / "tests" / "tokenizer" / "data" / "t5.json").read_text())
        rows = json.loads((DATA / "v11" / "config.json").read_text())["vocab_size"]
        tokenizer["model"]["vocab"] = tokenizer["model"]["vocab"][:rows]
        tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["id"] < rows]
        (self.here / "words" / "tokenizer.json").write_text(json.dumps(tokenizer))
        for name in ("encoder", "byt5"):
            shutil.copytree(DATA / name, self.here / name)
        for name in ("prott5", "prostt5"):
            shutil.copytree(DATA / "proteins" / name, self.here / name)
        for name in ("search", "labels", "rank", "protein", "asymmetric"):
            shutil.copytree(ROOT / "tests" / "encoder" / "texts" / name, self.here / name)
        (self.here / "texts.txt").write_text("The cat sleeps.\nwhere is a dog\n")
        shutil.copy(DATA / "proteins" / "proteins.fasta", self.here / "proteins.fasta")
        self.out.mkdir()
        self.plain("t5 pack words -o packed")
        self.plain("pack search -o search.relpos")
        self.commands = COMMANDS
        try:
            self.plain("lab train training.lab -o run --threads 1")
        except subprocess.CalledProcessError:
            print("no CBLAS: the laboratory and its models are left out")
            self.commands = [(name, line) for name, line in COMMANDS if not name.startswith("lab")
                             and "--model run" not in line]
            return
        self.plain("lab train training.lab -o half --threads 1 --until 3")
        self.plain("lab train training.lab -o rope --threads 1 --set position=rope")
        self.plain("lab sweep sweep.lab -o results.jsonl --threads 1")
        self.plain("lab train pairs.lab -o pairs --threads 1")

    def reset(self, line):
        """Restore out/ to its state before a command. It has an older file for each output, and, for
        --resume, the first half of a training run."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        if "--resume" in line:
            shutil.copytree(self.here / "half", self.out / "half")
        for name in re.findall(r"-o out/(\S+\.\w+)", line):
            # this command only continues its own files
            if not name.endswith(".jsonl") and "proteins prot" not in line:
                (self.out / name).write_text("what was here before\n")

    def state(self):
        """Return {name: digest} of all files and folders below out/."""
        return {str(path.relative_to(self.out)): "folder" if path.is_dir() else self.digest(path)
                for path in sorted(self.out.rglob("*"))}

    @staticmethod
    def digest(path):
        data = path.read_bytes()
        if path.name.endswith(".jsonl"):  # times differ, and results may be in another order
            lines = [{k: v for k, v in json.loads(line).items() if k not in TIMES}
                     for line in data.decode().splitlines()]
            data = "\n".join(sorted(map(json.dumps, lines))).encode()
        return hashlib.sha256(data).hexdigest()[:16]

    def run(self, line, kind, n):
        """Run a command. Return (exit code, standard output, standard error, points, failed call). Exit code None means
        that it hung."""
        what, how = kind.split()
        environment = self.environment
        command = [self.program, *words(line)]
        if what == "alloc":
            environment = environment | {"LD_PRELOAD": str(self.starve), "STARVE_N": str(n),
                                         "STARVE_EVER": str(int(how == "ever")), "STARVE_LOG": str(self.log)}
        else:
            command = [self.inject, str(n), how, self.log, *command]
        self.log.unlink(missing_ok=True)
        process = subprocess.Popen(command, cwd=self.here, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            printed, said = process.communicate(timeout=WAIT)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, said = process.communicate()
            return None, printed, said.decode(errors="replace"), 0, "?"
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        points, failed, *ways = self.log.read_text().split() if self.log.exists() else (0, "?")
        self.last_ways = dict(zip(ways[1::2], map(int, ways[::2])))
        return code, printed, said.decode(errors="replace"), int(points), failed

    def measure(self, name, line):
        """Run a command without a fault. Return the states before and after, its output and its
        numbers of points. The results are cached."""
        if name not in self.expected:
            points = {}
            for kind in self.kinds:
                self.reset(line)
                before = self.state()
                code, printed, said, points[kind], _ = self.run(line, kind, 0)
                self.ways[name, kind] = self.last_ways
                if code == 77 and "inject:" in said:
                    sys.exit(77)
                if code != 0 and "!" not in name:
                    sys.exit(f"faults: {name}: relpos {line}: exit code {code} without a fault: {said}")
                after = self.state()
            self.expected[name] = before, after, printed, points, said
        return self.expected[name]

    def judge(self, name, line, kind, n):
        """Try a fault at a point. Return a description of the wrong behaviour, or None."""
        before, after, printed, _, usual = self.measure(name, line)
        self.reset(line)
        code, out, said, _, failed = self.run(line, kind, n)
        self.tried[name, kind] = self.tried.get((name, kind), 0) + 1
        now = self.state()
        temporary = r"(^|/)\.relpos-|\.tmp(/|$)|\.new$"
        killed = kind == "call kill" and code == 128 + 9
        left = [x for x in now if re.search(temporary, x)] if failed != "unlink" and not killed else []
        said += printed_too(name, out)
        if code is None:
            return failed, "it hangs", said
        if code >= 128 and not killed:
            return failed, f"it ends by signal {code - 128}", said
        if left:
            return failed, f"exit code {code}, and these stay: {left}", said
        if code == 0:
            if now != after:
                return failed, f"exit code 0, and other files: {sorted(set(now.items()) ^ set(after.items()))}", said
            if out != printed and "?" not in name:
                return (failed, f"exit code 0, and it printed {len(out)} bytes that are not the {len(printed)} of a "
                                "good run", said)
            return None
        if code != 1 and not killed:
            return failed, f"exit code {code}", said
        if not killed and not re.search("^(relpos: |FAILED )", said, re.M):
            return (failed, "no message", said) if "!" not in name else None
        if kind.startswith("alloc") and "memory" not in said and not (usual and said.endswith(usual)):
            return failed, "a message that does not speak of memory", said
        if kind.startswith("call") and not killed and "!" not in name and not re.search(NAMED, said):
            return failed, "a message that does not say what the system said", said
        if "+" not in name:
            wrong = [x for x in {*before, *now} if now.get(x) != before.get(x) and now.get(x) != after.get(x)
                     and not (killed and re.search(temporary, x))]
            if wrong or not killed or "!" in name:
                return (failed, f"files that are neither old nor new: {wrong}", said) if wrong else None
            if "hf" in now:  # an existing folder is never replaced
                shutil.rmtree(self.out / "hf")
        if "--resume" not in line and (self.out / "run" / "checkpoint.safetensors").exists():
            line += " --resume"
        elif "lab train" in line and "--resume" not in line:
            shutil.rmtree(self.out / "run", ignore_errors=True)
        try:
            self.plain(line)
        except subprocess.CalledProcessError:
            return failed, "running it again fails", said
        ignored = {"half/damaged.safetensors"}
        left = [x for x in self.state() if re.search(temporary, x)]
        if left:
            return failed, f"running it again leaves {left}", said
        wrong = [x for x, y in self.state().items() if after.get(x) != y
                 and not x.endswith(("log.jsonl", "previous.safetensors")) and x not in ignored]
        return (failed, f"running it again gives other files: {wrong}", said) if wrong else None

    def check(self, name, line, kind, n):
        wrong = self.judge(name, line, kind, n)
        if wrong:
            failed, why, said = wrong
            self.findings.append({"command": name, "kind": kind, "point": n, "failed": failed, "why": why,
                                  "said": said[-600:]})
        return wrong

    def new_ways(self, name, kind):
        """Return the first point of each call stack of a command that no earlier command had."""
        new = {(kind, way): point for way, point in self.ways[name, kind].items() if (kind, way) not in self.seen}
        self.seen.update(new)
        return new.values()

    def spread(self, commands, most, ways):
        """Try `most` points per command and kind, evenly spread. Try all points if there are at most
        8 * most, or if `most` is None. With `ways`, also try the points of new_ways."""
        for name, line in commands:
            points = self.measure(name, line)[3]
            for kind in KINDS:
                n = points[kind]
                tries = (range(1, n + 1) if most is None
                         or n <= 8 * most else sorted({1 + k * (n - 1) // max(most - 1, 1) for k in range(most)}))
                if ways:
                    tries = sorted({*tries, *self.new_ways(name, kind)})
                for point in tries:
                    self.check(name, line, kind, point)
            yield name, points

    def next_fault(self):
        """Return the command and the kind of the next fault at random."""
        return *random.choice(self.commands), random.choice(self.kinds)

    def at_random(self, seconds):
        """Try random points until the time is up. Return their number."""
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            name, line, kind = self.next_fault()
            points = self.measure(name, line)[3][kind]
            if points > 0:
                self.check(name, line, kind, random.randint(1, points))
                count += 1
        return count


TIMES = {"machine", "ms_per_step", "processor_share", "tokens_per_s", "pairs_per_s", "seconds", "time"}
NAMED = (r"memory|No space left|Input/output error|Too many open files|Permission denied|Operation not "
         r"permitted|Invalid argument|No locks available"
         r"|No such file|Resource temporarily|threads|standard output: it cannot be written|failed to map|cannot "
         r"map|is not found")


def printed_too(name, out):
    """Return the output of verify, which reports failures on standard output."""
    return out.decode(errors="replace") if "verify" in name else ""


def words(line):
    return [w[1:-1] if w.startswith("'") else w for w in re.findall(r"'[^']*'|\S+", line)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("inject")
    parser.add_argument("starve")
    parser.add_argument("--points", type=int)
    parser.add_argument("--ways", action="store_true")
    parser.add_argument("--only", help="commands whose names begin so")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="relpos-faults-") as folder:
        faults = Faults(a.program, a.inject, a.starve, folder)
        commands = [c for c in faults.commands if c[0].startswith(a.only or "")]
        for name, points in faults.spread(commands, a.points, a.ways):
            tried = sum(n for (command, _), n in faults.tried.items() if command == name)
            found = [f for f in faults.findings if f["command"] == name]
            print(f"{name:24} {points['alloc once']:6} allocations, {points['call once']:5} calls of the system: "
                  f"{tried:6} tried, {len(found)} wrong")
            for f in found:
                print(f"    {f['kind']} {f['point']} ({f['failed']}): {f['why']}: {f['said'].strip()[-300:]}")
            sys.stdout.flush()
    print(f"{len(commands)} commands, {sum(faults.tried.values())} faults, {len(faults.findings)} findings")
    sys.exit(bool(faults.findings))


if __name__ == "__main__":
    main()
