#!/usr/bin/env python3
"""Time relpos t5 beside CTranslate2 and transformers on models with the shapes of T5-small and FLAN-T5-base and random weights, in turns,
and print medians and ratios. Run by hand, where ctranslate2, torch and transformers are.

    python3 bench/t5.py build/release/relpos TOKENIZER_FOLDER FOLDER [--shape small|base] [--rounds 5] [--threads 1] [--json FILE] [--cpu]

FOLDER receives the models (some GB). TOKENIZER_FOLDER has a tokenizer.json of 32,100 tokens, which CTranslate2 wants. Greedy decoding of
128 tokens after a source of 128, unless the name of a problem says otherwise. --cpu counts processor time in place of the clock's: for a
machine that others use too.

SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import time

import ctranslate2
import torch
import transformers
from ctranslate2.converters import TransformersConverter

SHAPES = {
    "small": dict(vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8),
    "base": dict(vocab_size=32128, d_model=768, d_kv=64, d_ff=2048, num_layers=12, num_heads=12, feed_forward_proj="gated-gelu"),
}
# name: source, new tokens, batch, beams
clock = time.perf_counter
PROBLEMS = {
    "batch 1": (128, 128, 1, 1),
    "batch 8": (128, 128, 8, 1),
    "beams 4": (128, 128, 1, 4),
    "encode 512": (512, 0, 1, 1),
    "encode 4096": (4096, 0, 1, 1),
}


def make(folder, tokenizer, shape):
    model = folder / shape
    if not (model / "model.safetensors").exists():
        torch.manual_seed(0)
        transformers.T5ForConditionalGeneration(transformers.T5Config(**SHAPES[shape], decoder_start_token_id=0)).save_pretrained(model)
    for file in tokenizer.glob("tokenizer*.json"):
        shutil.copy(file, model)
    for q in ("float32", "int8"):
        if not (folder / f"ct2_{shape}_{q}").exists():
            TransformersConverter(str(model)).convert(str(folder / f"ct2_{shape}_{q}"), quantization=q)
    return model


def pack(program, model, kind):
    packed = model.parent / f"{model.name}.{kind}"
    if not packed.exists():
        subprocess.run([program, "t5", "pack", model, "--type", kind, "-o", packed], check=True)
    return packed


def relpos(program, model, kind, threads):
    packed = pack(program, model, kind)

    def run(source, new, batch, beams):
        out = subprocess.run([program, "t5", "bench", packed, "--json", "--repeat", "1", "--threads", str(threads), "--source", str(source),
                              "--new", str(new), "--batch", str(batch), "--beams", str(beams)], check=True, capture_output=True, text=True)
        times = json.loads(out.stdout)
        return times[("generate" if new else "encode") + ("_cpu" if clock is time.process_time else "")]
    return run


def ct2(folder, shape, kind, threads):
    translator = ctranslate2.Translator(str(folder / f"ct2_{shape}_{kind}"), compute_type=kind, inter_threads=1, intra_threads=threads)
    names = transformers.PreTrainedTokenizerFast.from_pretrained(folder / shape).convert_ids_to_tokens(range(100, 1100))

    def run(source, new, batch, beams):
        line = [names[(k * 7919 + 13) % len(names)] for k in range(source)]
        begin = clock()
        translator.translate_batch([line] * batch, beam_size=beams, max_decoding_length=max(new, 1), min_decoding_length=max(new, 1),
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
            net.generate(ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, num_beams=beams, do_sample=False)
        else:
            net.encoder(ids, attention_mask=mask)
        return clock() - begin
    return run


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("tokenizer", type=pathlib.Path)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--shape", default="small", choices=SHAPES)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--problems", default=",".join(PROBLEMS))
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    global clock
    clock = time.process_time if a.cpu else clock
    model = make(a.folder, a.tokenizer, a.shape)
    sides = {f"relpos {k}": relpos(a.program, model, k, a.threads) for k in ("f32", "bf16", "int8", "int4")}
    sides |= {f"CTranslate2 {k}": ct2(a.folder, a.shape, k, a.threads) for k in ("float32", "int8")}
    sides["transformers f32"] = hf(model, a.threads)
    result = {}
    for name in a.problems.split(","):
        source, new, batch, beams = PROBLEMS[name]
        times = {side: [] for side in sides}
        for _ in range(a.rounds + 1):  # the first is not counted
            for side, run in sides.items():
                times[side].append(run(source, new, batch, beams))
        median = {side: statistics.median(t[1:]) for side, t in times.items()}
        result[name] = median
        for side, t in median.items():
            other = "CTranslate2 int8" if "int" in side else "CTranslate2 float32"
            rate = f"{new * batch / t:8.1f} tokens a second" if new else f"{t * 1e3:8.1f} ms"
            print(f"{a.shape:6} {name:12} {side:20} {rate}   {other} takes {median[other] / t:.2f} times as long", flush=True)
    if a.json:
        a.json.write_text(json.dumps({"shape": a.shape, "threads": a.threads, "rounds": a.rounds, "seconds": result}, indent=1) + "\n")


main()
