#!/usr/bin/env python3
"""Time relpos t5, CTranslate2 and transformers alternately, on models with random weights and the shapes of T5-small
and FLAN-T5-base, and print medians and ratios. Run by hand where ctranslate2, torch and transformers are installed.

    python3 bench/t5.py build/release/relpos FOLDER [--shape small|base] [--rounds 5] [--threads 1] \
        [--problems NAME,NAME]
                        [--sides NAME,NAME] [--json FILE]
    python3 bench/t5.py build/release/relpos FOLDER --memory 512,1024,2048,4096 [--json FILE]

The models are written to FOLDER (some GB). Unless its name has other sizes, a problem decodes 128 tokens greedily from
a source of 128 tokens. Times are processor times, because the machine may have other users, and follow a warm-up: the
first call of each peer is not timed, and relpos reports the median of three. --memory measures the peak of a process
that encodes N tokens, minus the peak of one that encodes 16. The difference includes the rows of relpos's mapped
embedding that only the longer source reads. --json adds the results to the file.

SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import ctranslate2
import tokenizers
import torch
import transformers
from ctranslate2.converters import TransformersConverter

from machine import processor, version

SHAPES = {
    "small": dict(vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8),
    "base": dict(vocab_size=32128, d_model=768, d_kv=64, d_ff=2048, num_layers=12, num_heads=12,
                 feed_forward_proj="gated-gelu"),
}
clock = time.process_time
# name: source tokens, new tokens, batch, beams
PROBLEMS = {
    "batch 1": (128, 128, 1, 1),
    "batch 8": (128, 128, 8, 1),
    "beams 4": (128, 128, 1, 4),
    "encode 128": (128, 0, 1, 1),
    "encode 512": (512, 0, 1, 1),
    "encode 1024": (1024, 0, 1, 1),
    "encode 2048": (2048, 0, 1, 1),
    "encode 4096": (4096, 0, 1, 1),
}


def make_tokenizer(model):
    """Save a tokenizer of made-up words, because CTranslate2 needs a vocabulary of strings."""
    words = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [(f"w{k}", -10.0) for k in range(32097)]
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(
        tokenizers.models.Unigram(words, unk_id=2)),
                                                pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    fast.save_pretrained(model)


def make(folder, shape):
    model = folder / shape
    if not (model / "model.safetensors").exists():
        torch.manual_seed(0)
        transformers.T5ForConditionalGeneration(transformers.T5Config(**SHAPES[shape],
                                                                      decoder_start_token_id=0)).save_pretrained(model)
        make_tokenizer(model)
    for q in ("float32", "int8"):
        if not (folder / f"ct2_{shape}_{q}").exists():
            TransformersConverter(str(model)).convert(str(folder / f"ct2_{shape}_{q}"), quantization=q)
    return model


def pack(program, model, kind):
    packed = model.parent / f"{model.name}.{kind}"
    # a newer program may have another file layout
    if not packed.exists() or packed.stat().st_mtime < os.stat(program).st_mtime:
        subprocess.run([program, "t5", "pack", model, "--type", kind, "-o", packed], check=True)
    return packed


def relpos(program, model, kind, threads):
    packed = pack(program, model, kind)

    def run(source, new, batch, beams):
        out = subprocess.run([program, "t5", "bench", packed, "--json", "--repeat", "3", "--threads", str(threads),
                              "--source", str(source),
                              "--new", str(new), "--batch", str(batch), "--beams", str(beams)], check=True,
                             capture_output=True, text=True)
        return json.loads(out.stdout)["generate_cpu" if new else "encode_cpu"]
    return run


def ct2(folder, shape, kind, threads):
    translator = ctranslate2.Translator(str(folder / f"ct2_{shape}_{kind}"), compute_type=kind, inter_threads=1,
                                        intra_threads=threads)
    names = transformers.PreTrainedTokenizerFast.from_pretrained(folder / shape).convert_ids_to_tokens(range(100, 1100))

    def run(source, new, batch, beams):
        line = [names[(k * 7919 + 13) % len(names)] for k in range(source)]
        begin = clock()
        translator.translate_batch([line] * batch, beam_size=beams, max_decoding_length=max(new, 1),
                                   min_decoding_length=max(new, 1),
                                   max_input_length=0, return_scores=False)
        return clock() - begin
    return run


def hf(model, threads):
    torch.set_num_threads(threads)
    net = transformers.T5ForConditionalGeneration.from_pretrained(model).eval()

    @torch.no_grad()
    def run(source, new, batch, beams):
        ids = (torch.arange(source) * 7919 + 13).remainder(32000).repeat(batch, 1)
        mask = torch.ones_like(ids)
        begin = clock()
        if new:
            net.generate(ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, num_beams=beams,
                         do_sample=False)
        else:
            net.encoder(ids, attention_mask=mask)
        return clock() - begin
    return run


def encoder_operations(shape, tokens):
    """Return the number of additions and multiplications of an encoder, in linear layers and in attention."""
    c = SHAPES[shape]
    inner, matrices = c["num_heads"] * c["d_kv"], 3 if "gated" in c.get("feed_forward_proj", "") else 2
    linear = 4 * c["d_model"] * inner + matrices * c["d_model"] * c["d_ff"]
    return 2 * c["num_layers"] * tokens * (linear + 2 * tokens * inner)


def fastest(program):
    """Return the peak of f32 operations per second of one thread, as measured by relpos."""
    bench = subprocess.run([program, "bench", "fwd:f32:b1h1q64k64d64", "--seconds", "0.1", "--json"],
                           capture_output=True, text=True, check=True)
    return 1e9 * json.loads(bench.stdout)["peak_gflops"]


def card(program):
    """Return a description of the machine and the versions."""
    cpu = processor()
    return {"cpu": cpu.get("Model name", "?"), "cores": os.cpu_count(), "kernel": platform.release(),
            "flags": [f for f in cpu.get("Flags", "").split() if f.startswith(("avx", "fma", "amx"))],
            "caches": {k: v for k, v in cpu.items() if "cache" in k}, **version(),
            "peak_flops": fastest(program),
            "build": json.loads(subprocess.run([program, "info", "--json"], capture_output=True,
                                               text=True).stdout).get("build"),
            "versions": {"ctranslate2": ctranslate2.__version__, "torch": torch.__version__,
                         "transformers": transformers.__version__}}


def add(path, program, kind, rows):
    """Add rows to the file and replace earlier rows of the same problem."""
    if path is None:
        return
    data = json.loads(path.read_text()) if path.exists() else {"times": [], "memory": []}
    names = {(r["shape"], r["problem"]) for r in rows}
    data["machine"] = card(program)
    data[kind] = [r for r in data[kind] if (r["shape"], r["problem"]) not in names]
    data[kind] += [r | {"commit": data["machine"]["commit"], "load": os.getloadavg()[0]} for r in rows]
    path.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n")


# name: a command that encodes N tokens in a new process.
ENCODERS = {
    "CTranslate2": """import ctranslate2, sys
t = ctranslate2.Translator(sys.argv[1], compute_type=sys.argv[2], inter_threads=1, intra_threads=1)
t.translate_batch([["w%d" % (k % 1000) for k in range(int(sys.argv[3]))]], beam_size=1, max_decoding_length=1, \
max_input_length=0)""",
    "transformers": """import torch, transformers, sys
torch.set_num_threads(1)
net = transformers.T5EncoderModel.from_pretrained(sys.argv[1]).eval()
with torch.no_grad():
    net(torch.arange(int(sys.argv[3])).remainder(32000)[None])""",
}


def peak(command):
    """Run a command. Return the peak resident memory of its process in bytes, which is polled every 2 ms until the
    process ends."""
    child = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    most = 0  # ru_maxrss of wait4 would include the memory of this process before exec
    while child.poll() is None:
        lines = [line for line in pathlib.Path(f"/proc/{child.pid}/status").read_text().splitlines()
                 if line.startswith("VmHWM")]
        most = int(lines[0].split()[1]) if lines else most
        time.sleep(0.002)
    if child.returncode != 0:
        raise RuntimeError(f"{command[0]} failed with {child.returncode}")
    return most * 1024


def memory(a, model):
    def command(side, kind, n):
        if side == "relpos":
            tokens = a.folder / f"tokens.{n}"
            tokens.write_text(" ".join(str((k * 7919 + 13) % 32000) for k in range(n)) + "\n")
            return [a.program, "t5", "encode", pack(a.program, model, kind), tokens, "--tokens", "--pool", "mean",
                    "--threads", "1",
                    "-o", a.folder / "out.npz"]
        where = a.folder / f"ct2_{a.shape}_{kind}" if side == "CTranslate2" else model
        return [sys.executable, "-c", ENCODERS[side], where, kind, n]
    sides = [("relpos", "f32"), ("relpos", "int8"), ("CTranslate2", "float32"), ("CTranslate2", "int8"),
             ("transformers", "f32")]
    small = {side: peak(command(*side, 16)) for side in sides}
    for n in map(int, a.memory.split(",")):
        over = {f"{side} {kind}": peak(command(side, kind, n)) - small[side, kind]
                for side, kind in sides if side == "relpos" or n <= a.longest_peer}
        for side, size in over.items():
            print(f"{a.shape:6} encode {n:6} {side:20} {size / 1e6:8.1f} MB in addition to the weights", flush=True)
        add(a.json, a.program, "memory", [{"shape": a.shape, "problem": f"encode {n}", "tokens": n, "bytes": over}])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--shape", default="small", choices=SHAPES)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--problems", default=",".join(PROBLEMS))
    p.add_argument("--sides", help="the libraries and types to time, such as 'relpos f32,CTranslate2 float32'; "
                                   "default: all")
    p.add_argument("--memory", help="tokens, separated by commas")
    p.add_argument("--longest-peer", type=int, default=4096, help="the others get no more tokens: they make N×N of "
                                                                  "each head")
    p.add_argument("--json", type=pathlib.Path)
    a = p.parse_args()
    model = make(a.folder, a.shape)
    if a.memory:
        memory(a, model)
        return
    sides = {f"relpos {k}": relpos(a.program, model, k, a.threads) for k in ("f32", "bf16", "int8", "int4")}
    sides |= {f"CTranslate2 {k}": ct2(a.folder, a.shape, k, a.threads) for k in ("float32", "int8")}
    sides["transformers f32"] = hf(model, a.threads)
    sides = {side: run for side, run in sides.items() if not a.sides or side in a.sides.split(",")}
    for name in a.problems.split(","):
        source, new, batch, beams = PROBLEMS[name]
        times = {side: [] for side in sides}
        for n in range(a.rounds + 1):  # the first call is a warm-up, like the first of relpos's three
            for side, run in sides.items():
                if n > 0 or not side.startswith("relpos"):
                    times[side].append(run(source, new, batch, beams))
        times = {side: t[-a.rounds:] for side, t in times.items()}
        median = {side: statistics.median(t) for side, t in times.items()}
        for side, t in median.items():
            other = "CTranslate2 int8" if "int" in side else "CTranslate2 float32"
            other = other if other in median else side
            rate = f"{new * batch / t:8.1f} tokens per second" if new else f"{t * 1e3:8.1f} ms"
            print(f"{a.shape:6} {name:12} {side:20} {rate}   {other}: {median[other] / t:.2f} times this", flush=True)
        add(a.json, a.program, "times",
            [{"shape": a.shape, "problem": name, "source": source, "new": new, "batch": batch, "beams": beams,
              "threads": a.threads, "seconds": times}
             | ({} if new else {"operations": batch * encoder_operations(a.shape, source)})])


if __name__ == "__main__":
    main()
