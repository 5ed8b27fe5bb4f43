#!/usr/bin/env python3
"""The model of `relpos lab` in PyTorch, with the same first weights and the same windows: it compares losses, and the time of a step.
Run by hand, from the root of the source:

    lab/oracle.py build/release/relpos lab/oracle.lab [--steps 100] [--time STEPS]

Positions none, sinusoidal, learned, t5 and alibi; no dropout. Losses in f32 are compared with those of PyTorch in f64. Rounding
errors grow during training, so the bound is four times the largest difference so far between PyTorch's own f32 and f64.
Needs torch, numpy and safetensors. SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F

from random_numbers import random


def read_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    meta = header.pop("__metadata__")
    arrays = {}
    for name, h in header.items():
        a, b = h["data_offsets"]
        arrays[name] = np.frombuffer(data[8 + size + a : 8 + size + b], np.float32).reshape(h["shape"]).copy()
    return arrays, meta


class Model:
    def __init__(self, arrays, config, dtype):
        self.c = config
        self.w = {n: torch.tensor(a, dtype=dtype, requires_grad=True) for n, a in arrays.items() if not n.startswith("optimizer.")}
        terms = [t for t in config["position"].split("+") if t not in ("none", "sinusoidal", "learned")]
        self.terms = [(t.split(",")[0], dict(p.split("=") for p in t.split(",")[1:])) for t in terms]
        unknown = [k for k, _ in self.terms if k not in ("t5", "alibi")]
        if unknown:
            sys.exit(f"position {unknown[0]}: the oracle knows none, sinusoidal, learned, t5 and alibi")
        length, width = int(config["length"]), int(config["width"])
        angle = torch.arange(length, dtype=torch.float64)[:, None] * 10000 ** (-2.0 * (torch.arange(width) // 2) / width)
        self.sinusoids = (0.02 * torch.where(torch.arange(width) % 2 == 1, angle.cos(), angle.sin())).to(dtype)
        r = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        self.future = r > 0
        self.r = r
        self.buckets = None

    def bucket(self, p):  # Raffel 2020, section 2.1
        n, max_distance, bidirectional = int(p.get("buckets", 32)), int(p.get("max_distance", 128)), int(p.get("bidirectional", 1))
        base = torch.zeros_like(self.r)
        if bidirectional:
            n //= 2
            base = (self.r > 0) * n
            d = self.r.abs()
        else:
            d = (-self.r).clamp(min=0)
        exact = n // 2
        far = exact + (torch.log(d.float().clamp(min=1) / exact) / math.log(max_distance / exact) * (n - exact)).long()
        return base + torch.where(d < exact, d, far.clamp(max=n - 1))

    def bias(self, layer, heads, dtype):
        if not self.terms:
            return None
        total = torch.zeros(heads, *self.r.shape, dtype=dtype).masked_fill(self.future, -math.inf)
        for kind, p in self.terms:
            if kind == "t5":
                if self.buckets is None:
                    self.buckets = self.bucket(p)
                name = "attn.t5.table" if self.c["position_layers"] == "shared" else f"layers.{layer}.attn.t5.table"
                total = total + F.embedding(self.buckets, self.w[name]).permute(2, 0, 1)
            else:
                slopes = 2.0 ** (-8.0 * (torch.arange(heads, dtype=dtype) + 1) / heads)
                total = total - slopes[:, None, None] * self.r.abs().to(dtype)
        return total[None]

    def norm(self, x, name):
        w = self.w[name + ".weight"]
        if self.c["norm"] == "rmsnorm":
            return F.rms_norm(x, w.shape, w, 1e-5)
        return F.layer_norm(x, w.shape, w, self.w[name + ".bias"], 1e-5)

    def loss(self, tokens, target):
        c, w, heads = self.c, self.w, int(self.c["heads"])
        x = F.embedding(tokens, w["embedding.weight"])
        batch, length, width = x.shape
        if "learned" in c["position"].split("+"):
            x = x + w["positions.weight"]
        if "sinusoidal" in c["position"].split("+"):
            x = x + self.sinusoids
        scale = float(c["scale"]) or 1 / math.sqrt(width / heads)
        shared = self.bias(0, heads, x.dtype) if c["position_layers"] == "shared" else None
        for n in range(int(c["layers"])):
            at = f"layers.{n}."
            qkv = F.linear(self.norm(x, at + "attn_norm"), w[at + "attn.qkv.weight"])
            q, k, v = (y.view(batch, length, heads, -1).transpose(1, 2) for y in qkv.split(width, -1))
            bias = shared if shared is not None else self.bias(n, heads, x.dtype)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None, scale=scale)
            x = x + F.linear(y.transpose(1, 2).reshape(batch, length, width), w[at + "attn.out.weight"])
            h = F.linear(self.norm(x, at + "mlp_norm"), w[at + "mlp.up.weight"])
            if c["activation"] == "swiglu":
                gate, up = h.chunk(2, -1)
                h = F.silu(gate) * up
            else:
                h = F.gelu(h, approximate="tanh") if c["activation"] == "gelu" else F.relu(h)
            x = x + F.linear(h, w[at + "mlp.down.weight"])
        logits = F.linear(self.norm(x, "norm"), w["embedding.weight" if c["tied"] == "1" else "head.weight"])
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.reshape(-1))


def rate(c, step):
    warmup, steps, lr, lr_min = int(c["warmup"]), int(c["steps"]), float(c["lr"]), float(c["lr_min"])
    if step < warmup:
        return lr * (step + 1) / warmup
    return lr_min + (lr - lr_min) * 0.5 * (1 + math.cos(math.pi * min((step - warmup) / max(steps - warmup, 1), 1)))


def train(arrays, c, text, dtype, steps):
    model = Model(arrays, c, dtype)
    decays = [w for n, w in model.w.items() if n.endswith(".weight") and w.ndim == 2]
    others = [w for n, w in model.w.items() if not (n.endswith(".weight") and w.ndim == 2)]
    optimizer = torch.optim.AdamW(
        [{"params": decays, "weight_decay": float(c["weight_decay"])}, {"params": others, "weight_decay": 0.0}],
        lr=1, betas=(float(c["beta1"]), float(c["beta2"])), eps=float(c["eps"]))
    batch, length, seed = int(c["batch"]), int(c["length"]), int(c["seed"])
    for step in range(steps):
        starts = [random(seed, 1, step * batch + b) % (len(text) - length) for b in range(batch)]
        windows = torch.tensor(np.stack([text[s : s + length + 1] for s in starts]).astype(np.int64))
        begun = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate(c, step)
        loss = model.loss(windows[:, :-1], windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        if float(c["clip"]) > 0:
            torch.nn.utils.clip_grad_norm_(list(model.w.values()), float(c["clip"]))
        optimizer.step()
        yield loss.item(), time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("relpos")
    parser.add_argument("experiment")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--time", type=int, default=0, help="time so many steps of each, alternately, instead of comparing losses")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--save", metavar="FILE", help="append the times as a line of JSON, which relpos lab report reads")
    a = parser.parse_args()
    torch.set_num_threads(1)
    sets = [x for s in a.set for x in ("--set", s)] + ["--set", "log_every=1", "--set", "dropout=0"]

    def run(where, *more):
        command = [a.relpos, "lab", "train", a.experiment, "-o", str(where), "--threads", "1", *sets, *more]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(x) for x in (where / "log.jsonl").read_text().splitlines()]
        run.machine = lines[0]["machine"]
        return [x for x in lines if "loss" in x]

    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        run(where / "first", "--until", "0")
        arrays, meta = read_safetensors(where / "first" / "checkpoint.safetensors")
        c = dict(x.split(" = ", 1) for x in meta["relpos.lab"].splitlines() if " = " in x)
        text = np.concatenate([np.frombuffer(pathlib.Path(f).read_bytes(), np.uint8) for f in c["text"].split()])
        if not c.get("valid"):
            text = text[: len(text) - int(len(text) * float(c["valid_share"]))]
        if a.time:
            theirs = train(arrays, c, text, torch.float32, a.time * 4)
            tokens, ours, peer = int(c["batch"]) * int(c["length"]), [], []
            for turn in range(4):
                lines = run(where / f"turn{turn}", "--until", str(a.time))
                ours += [1e3 * tokens / x["tokens_per_s"] for x in lines[1:]]
                peer += [1e3 * next(theirs)[1] for _ in range(a.time)][1:]
            x, y = statistics.median(ours), statistics.median(peer)
            print(f"position {c['position']}, batch {c['batch']}, length {c['length']}, one thread, medians of {len(ours)} steps: "
                  f"relpos {x:.0f} ms ({min(ours):.0f} to {max(ours):.0f}), "
                  f"PyTorch {torch.__version__} {y:.0f} ms ({min(peer):.0f} to {max(peer):.0f}), {y / x:.2f} x")
            if a.save:
                line = {"oracle": c["position"], "batch": int(c["batch"]), "length": int(c["length"]), "steps": len(ours), "relpos_ms": [x, min(ours), max(ours)],
                        "torch_ms": [y, min(peer), max(peer)], "torch": torch.__version__, "machine": run.machine}
                with open(a.save, "a") as to:
                    print(json.dumps(line), file=to)
            return
        ours = [x["loss"] for x in run(where / "run", "--until", str(a.steps))]
        single = [x for x, _ in train(arrays, c, text, torch.float32, a.steps)]
        double = [x for x, _ in train(arrays, c, text, torch.float64, a.steps)]
    drift = worst = 0.0
    for n in range(a.steps):
        drift = max(drift, abs(single[n] - double[n]), 2.0**-22 * double[n])
        worst = max(worst, abs(ours[n] - double[n]) / (4 * drift))
        if n < 3 or (n + 1) % 20 == 0:
            print(f"step {n + 1:4d}  f64 {double[n]:.9f}  PyTorch f32 {single[n] - double[n]:+.1e}  relpos {ours[n] - double[n]:+.1e}")
    print(f"position {c['position']}: largest difference over its bound: {worst:.3f}")
    sys.exit(worst > 1)


main()
