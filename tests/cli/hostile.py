#!/usr/bin/env python3
"""Check that files made to waste time or memory do not: each command ends within a time and a memory in proportion to
its file, and refuses the file or reads it.

    tests/cli/hostile.py PATH/TO/relpos            try all files
    tests/cli/hostile.py PATH/TO/relpos --save     and save what they took to bench/results/hostile.json
    tests/cli/hostile.py --write | --check         write the table of docs/SECURITY.md from it, or check it

docs/SECURITY.md has the limits. Standard library only. SPDX-License-Identifier: Apache-2.0"""
import gzip
import io
import json
import re
import shutil
import struct
import sys
import tempfile
import zipfile
from pathlib import Path

root = Path(__file__).resolve().parents[2]
sys.path += [str(root / "tests" / "shared"), str(root / "tools")]
from made import between, card, check, write  # noqa: E402
from measured import MB, measured  # noqa: E402

SAVED = root / "bench" / "results" / "hostile.json"

FIXED, TIMES = 80, 24  # MB of memory: FIXED, of which this process takes up to 64, + TIMES * the size of the file
SECONDS, RATE = 4.0, 1.0  # processor seconds: SECONDS + RATE * the size of the file in MB


def npy(shape, data, descr="<f4"):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text + data


def npz(entries, method=zipfile.ZIP_DEFLATED):
    to = io.BytesIO()
    with zipfile.ZipFile(to, "w", method) as z:
        for name, data in entries:
            z.writestr(name, data)
    return to.getvalue()


def pickled(operations):
    return npz([("archive/data.pkl", b"\x80\x02" + operations + b"."), ("archive/version", b"3\n")], zipfile.ZIP_STORED)


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def gguf(tensors=0, keys=0, body=b""):
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + body


def arrays():
    """Yield (name, file name, bytes) of files of arrays."""
    zeros = bytes(64 * MB)
    yield "npz whose entry expands 1,000 times", "x.npz", npz([("q.npy", npy((1, 1, 4 * MB, 4), zeros))])
    yield "npz whose entry is larger than its header says", "x.npz", npz([("q.npy", npy((1, 1, 1, 4), zeros))])
    yield "npz of 20,000 entries", "x.npz", npz([(f"a{n}.npy", npy((1,), b"abcd")) for n in range(20000)])
    yield "npz that states 2^60 elements", "x.npz", npz([("q.npy", npy((2**30, 2**30), b""))])
    yield "npy header of 60,000 axes", "x.npz", npz([("q.npy", npy("(" + "1," * 30000 + ")", b"abcd"))])
    yield "npz of nested lists as shape", "x.npz", npz([("q.npy", npy("(" * 20000 + "1", b"abcd"))])
    yield "safetensors that states a header of 2^60 bytes", "x.safetensors", struct.pack("<Q", 2**60) + b"{}"
    yield "safetensors of nested lists", "x.safetensors", safetensors(b'{"a":' + b"[" * MB + b"]" * MB + b"}")
    yield "safetensors of 100,000 arrays", "x.safetensors", safetensors(
        {f"a{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(100000)})
    yield "safetensors with one key 100,000 times", "x.safetensors", safetensors(
        b"{" + b",".join([b'"q":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'] * 100000) + b"}")
    yield "safetensors with a name of 4 MB", "x.safetensors", safetensors(
        {"a" * 4 * MB: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    yield "safetensors with a shape of 10^6 ones", "x.safetensors", safetensors(
        {"q": {"dtype": "F32", "shape": [1] * 10**6, "data_offsets": [0, 4]}}, b"abcd")


def alike():
    """Return a tokenizer.json whose pieces begin alike. Its list of pieces, which takes memory, does not live on."""
    pieces = [["a" * (n // 1000 + 1) + str(n % 1000), -1.0] for n in range(200000)]
    return json.dumps({"model": {"type": "Unigram", "unk_id": 0, "vocab": pieces}}).encode()


def models():
    """Yield (name, {file: bytes}) of changes to the folder of a model of T5."""
    yield "config.json of nested objects", {"config.json": b'{"a":' * 200000}
    yield "config.json with a number of 10^6 digits", {"config.json": b'{"d_model": ' + b"9" * 10**6 + b"}"}
    yield "config.json that states 10^9 layers", {"config.json": change("config.json", num_layers=10**9)}
    yield "config.json that states a vocabulary of 10^15", {"config.json": change("config.json", vocab_size=10**15)}
    yield "index of 100,000 files", {"model.safetensors": None, "model.safetensors.index.json": json.dumps(
        {"weight_map": {f"a{n}": f"model-{n}.safetensors" for n in range(100000)}}).encode()}
    yield "tokenizer.json with 200,000 pieces that begin alike", {"tokenizer.json": alike()}
    yield "tokenizer.json of nested lists", {"tokenizer.json": b'{"model":' + b"[" * 500000}
    yield "spiece.model that states a field of 2^60 bytes", {"spiece.model": b"\x0a" + b"\xff" * 8 + b"\x7f"}
    yield "spiece.model of 10^6 empty pieces", {"spiece.model": b"\x0a\x00" * 10**6}
    yield "pickle that duplicates its stack", {"model.safetensors": None, "pytorch_model.bin":
                                               pickled(b"]" + b"2" * 10**6)}
    yield "pickle with a memo of 2^31", {"model.safetensors": None, "pytorch_model.bin": pickled(b"]r\xff\xff\xff\x7f")}
    yield "pickle of nested tuples", {"model.safetensors": None, "pytorch_model.bin": pickled(b"N" + b"\x85" * 10**6)}
    yield "safetensors that states 2^60 elements", {"model.safetensors": safetensors(
        {"shared.weight": {"dtype": "F32", "shape": [2**30, 2**30], "data_offsets": [0, 2**62]}})}


def change(file, **new):
    return json.dumps(json.loads((root / "tests/t5/data/v11" / file).read_text()) | new).encode()


def cases(program, folder):
    """Make each file. Yield (row of the table, name, size in MB, command)."""
    for name, file, data in arrays():
        (folder / file).write_bytes(data)
        yield "arrays: .npz, .safetensors", name, len(data) / MB, [program, "attend", file, "-o", "out.npz"]
    for name, files in models():
        shutil.rmtree(folder / "model", ignore_errors=True)
        shutil.copytree(root / "tests/t5/data/v11", folder / "model")
        for file, data in files.items():
            if data is None:
                (folder / "model" / file).unlink()
            else:
                (folder / "model" / file).write_bytes(data)
        size = sum(len(data) for data in files.values() if data) / MB
        tokens = [] if {"tokenizer.json", "spiece.model"} & set(files) else ["--tokens"]
        command = [program, "t5", "generate", "model", "--max-new-tokens", "2", "--text", "5", *tokens]
        yield "folders of models: JSON, tokenizers, weights", name, size, command
    for name, data in (("gguf that states 2^60 tensors", gguf(2**60)), ("gguf that states 2^60 keys", gguf(0, 2**60)),
                       ("gguf with a key of 2^60 bytes", gguf(0, 1, struct.pack("<Q", 2**60))),
                       ("gguf with an array of 2^60 numbers", gguf(0, 1, struct.pack("<Q", 1) + b"a" + struct.pack(
                           "<IIQ", 9, 4, 2**60))),
                       ("gguf of nested arrays", gguf(0, 1, struct.pack("<Q", 1) + b"a" + struct.pack("<I", 9)
                                                      + struct.pack("<IQ", 9, 1) * 100000))):
        (folder / "m.gguf").write_bytes(data)
        yield "GGUF", name, len(data) / MB, [program, "t5", "generate", "m.gguf", "--tokens", "--text", "5"]
    protein = root / "tests/encoder/texts/protein"
    for name, data in (("FASTA of one residue line of 20 MB", b">a\n" + b"M" * 20 * MB),
                       ("gzip FASTA that expands 1,000 times", gzip.compress(b">a\n" + b"M" * 50 * MB)),
                       ("FASTA of 300,000 empty names", b">\n" * 300000)):
        file = "p.fasta.gz" if data[:2] == b"\x1f\x8b" else "p.fasta"
        (folder / file).write_bytes(data)
        yield "FASTA", name, len(data) / MB, [program, "proteins", protein, file, "-o", "p.npz"]
    search = root / "tests/encoder/texts/search"
    for name, data in (("one text of 4 MB", b"the cat " * (MB // 2)), ("one word of 1 MB", b"a" * MB),
                       ("100,000 empty lines", b"\n" * 100000),
                       ("1 MB of combining marks", "a\u0301".encode() * (MB // 3))):
        (folder / "texts").write_bytes(data)
        yield "text", name, len(data) / MB, [program, "embed", search, "texts", "-o", "v.npz"]
    for name, data in (("experiment of 100,000 lines", b"width = 16\n" * 100000),
                       ("experiment with a line of 4 MB", b"text = " + b"a" * 4 * MB),
                       ("experiment with a value of 10^308", b"text = texts\nwidth = 1e308\n")):
        (folder / "x.lab").write_bytes(data)
        yield "experiments, .lab", name, len(data) / MB, [program, "lab", "train", "x.lab", "-o", "run"]


def page():
    """Return the text of docs/SECURITY.md with an up-to-date table."""
    saved = json.loads(SAVED.read_text())
    rows = ["| hostile files | tried | largest | most processor time | most memory |", "|---|---|---|---|---|"]
    for kind in dict.fromkeys(row["file"] for row in saved["files"]):
        some = [row for row in saved["files"] if row["file"] == kind]
        size, seconds, memory = (max(row[key] for row in some) for key in ("MB", "seconds", "memory_MB"))
        rows.append(f"| {kind} | {len(some)} | {size:.1f} MB | {seconds:.1f} s | {memory:.0f} MB |")
    machine = saved["machine"]
    rows += ["", f"The run is from {machine['date']}, on {machine['cpu']} (bench/results/hostile.json, "
                 "`tests/cli/hostile.py`). Memory is at least that of the Python process that starts the command."]
    path = "docs/SECURITY.md"
    return {path: between((root / path).read_text(), "<!-- hostile: tests/cli/hostile.py --write -->\n",
                          "<!-- end of hostile -->", "\n".join(rows) + "\n", path)}


def try_all(program, saves):
    """Run all commands. Return the number of those that take more than the limits."""
    wrong, rows = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for kind, name, size, command in cases(program, Path(folder)):
            code, seconds, memory, said = measured(command, folder)
            bad = (code not in (0, 1, 2) or seconds > SECONDS + RATE * size or memory > FIXED + TIMES * size
                   or code and not re.match(r"relpos: ", said))
            wrong += bad
            rows.append({"name": name, "file": kind, "MB": round(size, 2), "seconds": round(seconds, 2),
                         "memory_MB": round(memory)})
            print(f"{'FAILED ' if bad else ''}{name}: {size:.1f} MB, exit code {code}, {seconds:.1f} s, "
                  f"{memory:.0f} MB. {said[:150]}")
    if saves and wrong == 0:
        SAVED.write_text(json.dumps({"machine": card(), "files": rows}, indent=1, allow_nan=False) + "\n")
    return wrong


def main():
    arguments = sys.argv[1:]
    if arguments == ["--write"]:
        write(page())
    elif arguments == ["--check"]:
        check(page(), "tests/cli/hostile.py --write")
    elif not arguments or arguments[1:] not in ([], ["--save"]):
        sys.exit(__doc__)
    else:
        wrong = try_all(Path(arguments[0]).resolve(), bool(arguments[1:]))
        sys.exit(f"{wrong} files cost too much" if wrong else 0)


if __name__ == "__main__":
    main()
