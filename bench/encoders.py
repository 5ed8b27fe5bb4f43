#!/usr/bin/env python3
"""Time encoders of the shapes of T5-XXL and ProtT5, with random weights, in relpos, llama.cpp, CTranslate2 and
transformers. Run by hand where ctranslate2, sentencepiece, torch and transformers are installed. llama.cpp is a folder
of its source with build/bin/llama-embedding and build/bin/llama-quantize.

    python3 bench/encoders.py build/release/relpos FOLDER --shape xxl --tokens 512 [--layers 2] [--llama DIR] \
        [--make] [--rounds 1]
                              [--sides NAME,NAME] [--json bench/results/t5_encoders.json]
    python3 bench/encoders.py build/release/relpos FOLDER --shape xxl --tokens 512 --layers 24 --whole \
        --sides 'relpos int4' [--json FILE]
    python3 bench/encoders.py build/release/relpos FOLDER --shape prott5 --fasta titin.fasta --layers 2 \
        --sides 'relpos int8' [--json FILE]

--make only writes the files that the sides read, to FOLDER. The sides alternate in each round, and a run adds its
rounds to those in the JSON file, so that each run can be short. Times are processor times of one thread, without
opening the model. The time of llama.cpp is that of a process that encodes the tokens minus that of a process that
encodes 8. CTranslate2 and transformers first encode 16 tokens. --whole runs one process, `relpos t5 encode`, and
records its processor time, with opening, and its largest resident memory. --fasta does the same for `relpos t5
proteins`.

SPDX-License-Identifier: Apache-2.0"""
import argparse
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import ctranslate2
import torch
import transformers
from ctranslate2.converters.transformers import T5Loader, _SUPPORTED_ACTIVATIONS
from ctranslate2.specs import transformer_spec
from safetensors.torch import save_file

import t5

TOKENIZER = pathlib.Path(__file__).resolve().parent.parent / "tests/t5/data/proteins/prott5"
LETTERS = "ALGVSREDTIPKFQNYMHWC"
COMMON = dict(vocab_size=128, num_heads=32, relative_attention_num_buckets=32, relative_attention_max_distance=128,
              layer_norm_epsilon=1e-6,
              pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, is_encoder_decoder=False, model_type="t5",
              architectures=["T5EncoderModel"])
SHAPES = {
    "xxl": COMMON | dict(d_model=4096, d_kv=64, d_ff=10240, num_heads=64, feed_forward_proj="gated-gelu"),
    "prott5": COMMON | dict(d_model=1024, d_kv=128, d_ff=16384, feed_forward_proj="relu"),
}
RELPOS = ("f32", "bf16", "int8", "q8", "int4")
LLAMA = ("BF16", "Q8_0", "Q4_0", "Q4_K")
SIDES = ([f"relpos {k}" for k in RELPOS] + [f"relpos {k} file" for k in LLAMA[1:]]
         + ["CTranslate2 float32", "CTranslate2 int8"] + ["transformers f32", "transformers bf16"]
         + [f"llama.cpp {k}" for k in LLAMA])


# --------------------------------------------------------------------------------------------------------------- models

def layer_of(c, k):
    """Return the random weights of layer k. Scores have a deviation of about 1, as in a trained model."""
    d, inner, ff = c["d_model"], c["num_heads"] * c["d_kv"], c["d_ff"]
    at, random = f"encoder.block.{k}.layer.", torch.Generator().manual_seed(k)

    def normal(rows, columns, deviation):
        return torch.randn(rows, columns, generator=random).mul_(deviation).bfloat16()
    attention = {"q": (inner, d, (d * c["d_kv"]) ** -0.5), "k": (inner, d, d ** -0.5), "v": (inner, d, d ** -0.5),
                 "o": (d, inner, inner ** -0.5)}
    wide = ("wi_0", "wi_1") if "gated" in c["feed_forward_proj"] else ("wi",)
    found = {f"{at}0.SelfAttention.{n}.weight": normal(*x) for n, x in attention.items()}
    found |= {f"{at}1.DenseReluDense.{n}.weight": normal(ff, d, d ** -0.5) for n in wide}
    found[f"{at}1.DenseReluDense.wo.weight"] = normal(d, ff, ff ** -0.5)
    return found | {f"{at}{n}.layer_norm.weight": torch.ones(d).bfloat16() for n in (0, 1)}


def make(folder, shape, layers):
    """Write a checkpoint of bf16, one file for each layer, and return its folder."""
    c, model = SHAPES[shape], folder / f"{shape}.{layers}"
    if (model / "config.json").exists():
        return model
    model.mkdir(parents=True, exist_ok=True)
    random, where, size = torch.Generator().manual_seed(1000), {}, 0
    ends = {"shared.weight": torch.randn(c["vocab_size"], c["d_model"], generator=random).bfloat16(),
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight":
            torch.randn(32, c["num_heads"], generator=random).bfloat16(),
            "encoder.final_layer_norm.weight": torch.ones(c["d_model"]).bfloat16()}
    for n in range(layers + 1):
        name, tensors = f"model-{n + 1:05}-of-{layers + 1:05}.safetensors", ends if n == layers else layer_of(c, n)
        save_file(tensors, model / name, {"format": "pt"})
        where |= dict.fromkeys(tensors, name)
        size += sum(t.nbytes for t in tensors.values())
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": size},
                                                                    "weight_map": where}, allow_nan=False))
    for file in "spiece.model", "tokenizer_config.json", "special_tokens_map.json":
        shutil.copy(TOKENIZER / file, model)
    (model / "config.json").write_text(json.dumps(c | {"num_layers": layers, "dtype": "bfloat16"}, allow_nan=False))
    return model


def gguf(llama, model, kind):
    """Return a file of llama.cpp with this type of weights. All matrices have the same type."""
    file = model.parent / f"{model.name}.{kind}.gguf"
    if kind != LLAMA[0] and not file.exists():
        subprocess.run([llama / "build/bin/llama-quantize", "--pure", gguf(llama, model, LLAMA[0]), file,
                        kind.replace("Q4_K", "Q4_K_S")], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    elif not file.exists():
        subprocess.run([sys.executable, llama / "convert_hf_to_gguf.py", model, "--outtype", "bf16", "--outfile", file],
                       check=True,
                       env=os.environ | {"PYTHONPATH": f"{llama / 'gguf-py'}:{os.environ.get('PYTHONPATH', '')}"})
    return file


def converted(model, kind):
    """Return a folder of CTranslate2, which has no conversion for T5 encoders without a decoder, but can run them."""
    folder = model.parent / f"{model.name}.ct2.{kind}"
    if not (folder / "model.bin").exists():
        net = transformers.T5EncoderModel.from_pretrained(model, dtype=torch.float32)
        c, loader = net.config, T5Loader()
        encoder = transformer_spec.TransformerEncoderSpec(
            c.num_layers, c.num_heads, pre_norm=True, activation=_SUPPORTED_ACTIVATIONS[c.dense_act_fn],
            ffn_glu=c.is_gated_act, relative_attention_bias=True, rms_norm=True)
        loader.set_stack(encoder, net.encoder)
        spec = transformer_spec.TransformerEncoderModelSpec(encoder)
        spec.config.layer_norm_epsilon, spec.config.unk_token = c.layer_norm_epsilon, "<unk>"
        spec.register_vocabulary(["<pad>", "</s>", "<unk>", *(f"w{k}" for k in range(3, c.vocab_size))])
        spec.validate()
        spec.optimize(quantization=kind)
        folder.mkdir(exist_ok=True)
        spec.save(str(folder))
    return folder


# ---------------------------------------------------------------------------------------------------------------- sides

def tokens_of(n):
    """Return n tokens of residues, the last one the end token."""
    return [3 + k * 7919 % len(LETTERS) for k in range(n - 1)] + [1]


def relpos(a, model, kind):
    def run(n):
        out = subprocess.run([a.program, "t5", "bench", file, "--json", "--repeat", str(a.repeat), "--threads", "1",
                              "--source", str(n), "--new", "0"],
                             check=True, capture_output=True, text=True)
        return json.loads(out.stdout)["encode_cpu"]
    file = gguf(a.llama, model,
                kind.removesuffix(" file")) if kind.endswith(" file") else t5.pack(a.program, model, kind)
    return run


def ct2(a, model, kind):
    folder = converted(model, kind)
    if a.make:
        return None
    encoder = ctranslate2.Encoder(str(folder), compute_type=kind, inter_threads=1, intra_threads=1)

    def run(n):
        begin = t5.clock()
        encoder.forward_batch([tokens_of(n)])
        return t5.clock() - begin
    run(16)
    return run


def hf(a, model, kind):
    if a.make:
        return None
    torch.set_num_threads(1)
    net = transformers.T5EncoderModel.from_pretrained(model,
                                                      dtype=torch.float32 if kind == "f32" else torch.bfloat16).eval()

    @torch.no_grad()
    def run(n):
        begin = t5.clock()
        net(torch.tensor([tokens_of(n)]))
        return t5.clock() - begin
    run(16)
    return run


def llama(a, model, kind):
    file = gguf(a.llama, model, kind)

    def seconds(n, tokens):
        text = " ".join(LETTERS[t - 3] for t in tokens_of(tokens)[:-1])
        room, before = str(max(n, 512)), os.times()
        done = subprocess.run([a.llama / "build/bin/llama-embedding", "-m", file, "-t", "1", "-tb", "1", "-c", room,
                               "-b", room, "-ub", room, "-fit", "off",
                               "--pooling", "mean", "--embd-output-format", "raw", "-lv", "4", "-p", text], check=True,
                              capture_output=True, encoding="utf-8", errors="replace")
        used = os.times()
        if not re.search(rf"n_tokens = {tokens}, n_seq = 1\b", done.stdout + done.stderr):
            raise RuntimeError(f"llama-embedding did not encode {tokens} tokens")
        return used.children_user + used.children_system - before.children_user - before.children_system
    return lambda n: seconds(n, n) - seconds(n, 8)


PEERS = {"relpos": relpos, "CTranslate2": ct2, "transformers": hf, "llama.cpp": llama}


# -------------------------------------------------------------------------------------------------------------- results

def operations(c, tokens):
    """Return the number of additions and multiplications of one layer."""
    t5.SHAPES["one"] = c | {"num_layers": 1}
    return t5.encoder_operations("one", tokens)


def commit():
    """Return the last commit that changed the program, with + if it was changed since."""
    def git(*command):
        return subprocess.run(["git", *command, "--", "include", "src", "models", "cli"], capture_output=True,
                              text=True).stdout.strip()
    return git("log", "-1", "--format=%h") + "+" * bool(git("status", "--porcelain"))


@functools.cache
def card(program, llama):
    """Return a description of the machine and the versions."""
    about = json.loads(subprocess.run([program, "info", "--json"], check=True, capture_output=True, text=True).stdout)
    found = t5.card(program) | {"commit": commit(), "isa": about["isa"]}
    if llama:
        package = llama / "../../llama_cpp/__init__.py"
        version = re.search(r'__version__ = "(.*)"', package.read_text()) if package.exists() else None
        found["versions"]["llama.cpp"] = f"in llama-cpp-python {version[1]}" if version else "unknown version"
    return found


def add(a, kind, row, key):
    """Add the row, or its rounds to those of the row with the same values of key."""
    data = json.loads(a.json.read_text()) if a.json.exists() else {"machine": None, "times": [], "whole": []}
    machine = card(a.program, a.llama)
    machine["versions"] = (data["machine"] or machine)["versions"] | machine["versions"]
    data["machine"] = machine
    row |= {"commit": machine["commit"]}
    old = next((r for r in data[kind] if all(r[k] == row[k] for k in (*key, "commit"))), None)
    if old and kind == "times":
        for side, times in row["seconds"].items():
            old["seconds"].setdefault(side, []).extend(times)
        old["load"] = [*old["load"], os.getloadavg()[0]]
    else:
        data[kind] = [r for r in data[kind]
                      if any(r[k] != row[k] for k in key)] + [row | {"load": [os.getloadavg()[0]]}]
    a.json.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n")


def race(a, model):
    runs = {side: PEERS[side.split()[0]](a, model, side.split(" ", 1)[1]) for side in a.sides}
    if a.make:
        return
    row = {"shape": a.shape, "layers": a.layers, "tokens": a.tokens,
           "operations": a.layers * operations(SHAPES[a.shape], a.tokens)}
    for _ in range(a.rounds):
        for side, run in runs.items():
            seconds = run(a.tokens)
            print(f"{a.shape} {a.layers} layers, {a.tokens} tokens  {side:20} {seconds:8.3f} s", flush=True)
            if a.json:  # immediately, so that a run that is stopped keeps its results
                add(a, "times", row | {"seconds": {side: [seconds]}}, ("shape", "layers", "tokens"))


def watched(command, limit):
    """Run a command, and return its processor seconds and largest resident memory, and whether it ended before the
    limit of processor seconds."""
    child = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    peak, used = 0, 0
    while child.poll() is None and used < limit:
        found = re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{child.pid}/status").read_text())
        peak = int(found[1]) * 1024 if found else peak
        used = (sum(map(int, pathlib.Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
                / os.sysconf("SC_CLK_TCK") or used)
        time.sleep(0.01)
    ended = child.poll() is not None
    if not ended:
        child.kill()
    if child.wait() != 0 and ended:
        raise RuntimeError(f"{command[0]} failed with {child.returncode}")
    return {"seconds": used, "bytes": peak, "ended": ended}


def whole(a, model):
    for side in a.sides:
        kind = side.split(" ", 1)[1]
        file = gguf(a.llama, model,
                    kind.removesuffix(" file")) if kind.endswith(" file") else t5.pack(a.program, model, kind)
        if a.make:
            continue
        if a.fasta:
            command = [a.program, "t5", "proteins", file, a.fasta, "-o", a.folder / "out.npz", "--threads", "1"]
            a.tokens = 1 + sum(len(line.strip()) for line in a.fasta.read_text().splitlines()
                               if not line.startswith(">"))
            for left in a.folder.glob("out.npz*"):
                left.unlink()
        else:
            lines = a.folder / "tokens.txt"
            lines.write_text(" ".join(map(str, tokens_of(a.tokens))) + "\n")
            command = [a.program, "t5", "encode", file, lines, "--tokens", "--threads", "1", "-o", a.folder / "out.npz"]
        row = {"shape": a.shape, "layers": a.layers, "tokens": a.tokens, "side": side,
               "file_bytes": file.stat().st_size, **watched(command, a.limit)}
        print(row, flush=True)
        if a.json:
            add(a, "whole", row, ("shape", "layers", "tokens", "side"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--shape", default="xxl", choices=SHAPES)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--tokens", type=int, default=512)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--repeat", type=int, default=3, help="runs of relpos in one round, of which the median is taken")
    p.add_argument("--sides", default=",".join(SIDES), type=lambda text: text.split(","))
    p.add_argument("--llama", type=pathlib.Path, help="folder of llama.cpp")
    p.add_argument("--make", action="store_true")
    p.add_argument("--whole", action="store_true")
    p.add_argument("--fasta", type=pathlib.Path)
    p.add_argument("--limit", type=float, default=float("inf"),
                   help="end a process of --whole or --fasta after this many processor seconds")
    p.add_argument("--json", type=pathlib.Path)
    a = p.parse_args()
    model = make(a.folder, a.shape, a.layers)
    (whole if a.whole or a.fasta else race)(a, model)


if __name__ == "__main__":
    main()
