#!/usr/bin/env python3
"""Check that the largest memory of commands is at most a multiple of the files that they read and write, plus PROGRAM.

    tests/cli/memory.py PATH/TO/relpos

The models are those of the tests with wider layers, whose weights are 0. docs/reliability.md has the multiples.
Standard library only. SPDX-License-Identifier: Apache-2.0"""
import array
import json
import os
import random
import shutil
import struct
import sys
import tempfile
from pathlib import Path

PROGRAM = 48  # MB: the program, its libraries, stacks and buffers of threads; and this process before the program
root = Path(__file__).resolve().parents[2]
sys.path.append(str(root / "tests" / "shared"))
from measured import MB, measured  # noqa: E402


def safetensors(path, tensors):
    """Write {name: (dtype, shape, function that returns its bytes)}."""
    at, header = 0, {}
    for name, (dtype, shape, _) in tensors.items():
        size = {"F32": 4, "F16": 2}[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as to:
        to.write(struct.pack("<Q", len(text)) + text)
        for name, (_, _, data) in tensors.items():
            begin, end = header[name]["data_offsets"]
            made = data(end - begin)
            assert len(made) == end - begin
            to.write(made)


def numbers(size):
    """Return bytes of random f32 numbers, in a short period."""
    one = array.array("f", (random.gauss(0, 1) for _ in range(4096))).tobytes()
    return (one * (size // len(one) + 1))[:size]


def widened(model, to, **new):
    """Copy a model, with zeros as weights and other sizes: `new` has two keys of config.json, of the model and of its
    feed-forward layers, which alone have axes of both."""
    shutil.copytree(root / model, to)
    config = json.loads((to / "config.json").read_text())
    narrow, wide = new  # the keys of the sizes of the model and of its feed-forward layers
    sizes = {key: config[key] for key in new}
    config.update(new)
    (to / "config.json").write_text(json.dumps(config))
    raw = (to / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, x in json.loads(raw[8:8 + size]).items():
        if "shape" in x and "inv_freq" not in name:  # computed if it is missing
            forward = "DenseReluDense" in name or ".dense." in name
            shape = [new[narrow] if n == sizes[narrow] else new[wide] if forward and n == sizes[wide] else n
                     for n in x["shape"]]
            tensors[name] = (x["dtype"], shape, bytes)
    safetensors(to / "model.safetensors", tensors)


def bytes_of(*paths):
    return sum(p.stat().st_size for path in paths for p in ([path] if path.is_file() else path.rglob("*"))
               if p.is_file()) / MB


def make(work):
    """Write the inputs of the commands."""
    safetensors(work / "x.safetensors", {name: ("F32", [1, 4, 16384, 64], numbers) for name in "qkv"})
    safetensors(work / "g.safetensors", {name: ("F32", [1, 4, 4096, 64], numbers) for name in ("q", "k", "v", "dout")})
    widened("tests/t5/data/v11", work / "t5", d_model=1024, d_ff=2048)
    for name in "search", "labels", "rank", "protein":
        widened(f"tests/encoder/texts/{name}", work / name, hidden_size=768, intermediate_size=3072)
    widened("tests/t5/data/proteins/prott5", work / "prott5", d_model=1024, d_ff=2048)
    (work / "texts").write_text("the cat sleeps\n" * 50)
    (work / "tokens").write_text("5 9 2 4\n" * 5)
    (work / "pairs").write_text("5 9 2 4\t3 4 1\n" * 5)
    (work / "many.fasta").write_text("".join(f">p{k}\nMSEQLKKAWD\n" for k in range(5)))
    (work / "prose.txt").write_text("the cat sat on the mat, and the dog sat on the log.\n" * 200000)
    (work / "run.lab").write_text("text = prose.txt\nlayers = 1\nwidth = 16\nheads = 2\nmlp = 16\nlength = 16\n"
                                  "batch = 2\nsteps = 2\nwarmup = 1\nvocab = 256\nposition = alibi\n"
                                  "eval_bytes = 4000\n")
    (work / "sweep.lab").write_text((work / "run.lab").read_text() + "vary.seed = 1 | 2\n")


WINDOW = "--bias alibi --causal --window 64,0"
GENERATE = "--tokens --text 5_9_2_4 --max-new-tokens 4"
# a command, the multiple of its files, and these files
COMMANDS = (
    (f"attend x.safetensors -o o.safetensors {WINDOW}", 1, "x.safetensors o.safetensors"),
    (f"attend x.safetensors -o o.npz {WINDOW}", 1, "x.safetensors o.npz"),
    (f"attend g.safetensors -o d.safetensors --grad {WINDOW}", 1, "g.safetensors d.safetensors"),
    ("attend g.safetensors -o w.safetensors --weights", 1, "g.safetensors w.safetensors"),
    (f"explain x.safetensors {WINDOW}", 1, "x.safetensors"),
    ("bias alibi --heads 8 --q 1500 --k 1500 -o b.npz", 1, "b.npz"),
    (f"t5 generate t5 {GENERATE}", 1, "t5"),
    ("t5 encode t5 tokens --tokens -o e.npz", 1, "t5 e.npz"),
    ("t5 pack t5 -o t5.packed", 1, "t5 t5.packed"),
    (f"t5 generate t5.packed {GENERATE}", 1, "t5.packed"),
    ("embed search texts -o v.npz", 1, "search v.npz"),
    ("pack search -o search.packed", 1, "search search.packed"),
    ("embed search.packed texts -o u.npz", 1, "search.packed u.npz"),
    ("classify labels texts", 1, "labels"),
    ("rerank rank texts --query cat", 1, "rank"),
    ("proteins protein many.fasta -o f.npz", 1, "protein f.npz"),
    ("t5 score t5 pairs --tokens", 1, "t5"),
    ("t5 proteins prott5 many.fasta -o h.npz", 1, "prott5 h.npz"),
    ("lab train run.lab -o run", 5, "prose.txt run"),
    ("lab eval run", 5, "prose.txt run"),
    ("lab sample run --prompt the --bytes 100", 1, "run"),
    ("lab sweep sweep.lab -o sweep.jsonl --keep kept", 5, "prose.txt kept"),
)


def main():
    program, wrong, no_blas = Path(sys.argv[1]).resolve(), 0, False
    os.environ["RELPOS_THREADS"] = "2"
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make(folder)
        for command, multiple, files in COMMANDS:
            words = [x.replace("_", " ") for x in command.split()]
            code, _, memory, said = measured([program, *words], folder)
            no_blas = no_blas or "RELPOS_BLAS" in said
            if no_blas and command.startswith("lab "):
                print(f"skipped without CBLAS: {command}")
                continue
            if code != 0:
                sys.exit(f"{command}: exit code {code}: {said}")
            files = bytes_of(*(folder / name for name in files.split()))
            bad = memory > multiple * files + PROGRAM
            wrong += bad
            print(f"{memory:5.0f} MB for {files:4.0f} MB of files; at most {multiple} times and {PROGRAM} MB"
                  f"{' FAILED' if bad else ''}: {command}")
    sys.exit(f"{wrong} commands need more memory than stated" if wrong else 0)


if __name__ == "__main__":
    main()
