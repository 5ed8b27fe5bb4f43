#!/usr/bin/env python3
"""Compare the model of `relpos lab` with the same model in PyTorch, from the same initial weights and on the same
windows: losses, or the time of a step. Run it by hand from the root of the source:

    lab/oracle.py build/release/relpos lab/oracle.lab [--steps 100] [--time STEPS] [--whole SEEDS]

It supports the positions none, sinusoidal, learned, t5, alibi, kerple (log), relkey, rope (without scaling) and forget,
without dropout. It compares losses in f32 with PyTorch's losses in f64. Rounding errors grow during training, so the
bound is four times the largest difference so far between PyTorch's losses in f32 and in f64. After a few hundred steps
that difference is as large as the difference between two starts. --whole therefore trains to the end with several
starts. It compares the difference of the mean losses over the last tenth of the steps with the spread between starts.
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
        self.w = {n: torch.tensor(a, dtype=dtype, requires_grad=True) for n, a in arrays.items()
                  if not n.startswith("optimizer.")}
        terms = [t for t in config["position"].split("+") if t not in ("none", "sinusoidal", "learned")]
        self.terms = [(t.split(",")[0], dict(p.split("=") for p in t.split(",")[1:])) for t in terms]
        known = ("t5", "alibi", "kerple", "relkey", "rope", "forget")
        unknown = [k for k, _ in self.terms if k not in known]
        if unknown:
            sys.exit(f"position {unknown[0]}: lab/oracle.py does not support it (use none, sinusoidal, learned, "
                     f"{', '.join(known)})")
        length, width = int(config["length"]), int(config["width"])
        angle = torch.arange(length, dtype=torch.float64)[:,
                                                          None] * 10000 ** (-2.0 * (torch.arange(width) // 2) / width)
        self.sinusoids = (0.02 * torch.where(torch.arange(width) % 2 == 1, angle.cos(), angle.sin())).to(dtype)
        r = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        self.future = r > 0
        self.r = r
        self.buckets = None

    def bucket(self, p):  # Raffel 2020, section 2.1
        n, max_distance, bidirectional = int(p.get("buckets",
                                                   32)), int(p.get("max_distance", 128)), int(p.get("bidirectional", 1))
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

    def array(self, layer, name):
        return self.w[f"attn.{name}" if self.c["position_layers"] == "shared" else f"layers.{layer}.attn.{name}"]

    def rotate(self, x):  # Su 2021; channel c forms a pair with channel c + dim / 2
        half = x.shape[-1] // 2
        angle = torch.arange(x.shape[-2],
                             dtype=torch.float64)[:, None] * 10000 ** (-torch.arange(half, dtype=torch.float64) / half)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def bias(self, layer, heads, dtype, q, scale, gates):
        """Return the sum of the terms that are added to the scores, [1 or batch, heads, length, length]; None if there
        is no such term."""
        if all(kind == "rope" for kind, _ in self.terms):
            return None
        total = torch.zeros(heads, *self.r.shape, dtype=dtype).masked_fill(self.future, -math.inf)
        total = total[None]
        for kind, p in self.terms:
            if kind == "t5":
                if self.buckets is None:
                    self.buckets = self.bucket(p)
                total = total + F.embedding(self.buckets, self.array(layer, "t5.table")).permute(2, 0, 1)
            elif kind == "kerple":  # Chi 2022
                a, b = (self.array(layer, f"kerple.{name}")[:, None, None] for name in "pa")
                total = total - a * torch.log1p(b * self.r.abs().to(dtype))
            elif kind == "relkey":  # Shaw 2018
                left, right = int(p["left"]), int(p["right"])
                vectors = self.array(layer, "relkey.table")  # the heads have separate tables or share one
                products = torch.einsum("bhid,rd->bhir" if vectors.ndim == 2 else "bhid,hrd->bhir", q, vectors)
                total = (total + scale
                         * products.gather(-1, (self.r.clamp(-left, right) + left).expand(*products.shape[:3], -1)))
            elif kind == "forget":  # Lin 2025
                sums = F.logsigmoid(gates.transpose(1, 2) + self.array(layer, "forget.logf.bias")[:, None]).cumsum(-1)
                total = total + (sums[..., :, None] - sums[..., None, :])
            elif kind == "alibi":
                slopes = 2.0 ** (-8.0 * (torch.arange(heads, dtype=dtype) + 1) / heads)
                total = total - slopes[:, None, None] * self.r.abs().to(dtype)
        return total

    def norm(self, x, name):
        w = self.w[name + ".weight"]
        if self.c["norm"] == "rmsnorm":
            return F.rms_norm(x, w.shape, w, 1e-5)
        return F.layer_norm(x, w.shape, w, self.w[name + ".bias"], 1e-5)

    def loss(self, tokens, target):
        c, w, heads = self.c, self.w, int(self.c["heads"])
        x = F.embedding(tokens, w["embedding.weight"]) * (float(c["embedding_scale"]) or math.sqrt(int(c["width"])))
        batch, length, width = x.shape
        if "learned" in c["position"].split("+"):
            x = x + w["positions.weight"]
        if "sinusoidal" in c["position"].split("+"):
            x = x + self.sinusoids
        scale = float(c["scale"]) or 1 / math.sqrt(width / heads)
        for n in range(int(c["layers"])):
            at = f"layers.{n}."
            qkv = F.linear(self.norm(x, at + "attn_norm"), w[at + "attn.qkv.weight"])
            q, k, v = (y.view(batch, length, heads, -1).transpose(1, 2) for y in qkv[..., :3 * width].split(width, -1))
            bias = self.bias(n, heads, x.dtype, q, scale, qkv[..., 3 * width:])
            if any(kind == "rope" for kind, _ in self.terms):
                q, k = self.rotate(q), self.rotate(k)
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
    terms = [w for n, w in model.w.items() if n == "positions.weight"
             or any(f"attn.{kind}." in n for kind, _ in model.terms)]
    decays = [w for n, w in model.w.items() if n.endswith(".weight") and w.ndim == 2 and not any(w is x for x in terms)]
    others = [w for n, w in model.w.items() if not any(w is x for x in (*decays, *terms))]
    optimizer = torch.optim.AdamW(
        [{"params": decays, "weight_decay": float(c["weight_decay"])}, {"params": others, "weight_decay": 0.0},
         {"params": terms, "weight_decay": float(c["weight_decay_terms"]), "multiplier": float(c["lr_terms"])}],
        lr=1, betas=(float(c["beta1"]), float(c["beta2"])), eps=float(c["eps"]))
    bounded = [(n, w) for n, w in model.w.items() if ".kerple." in n]  # a and p must stay at or above 0.01
    batch, length, seed = int(c["batch"]), int(c["length"]), int(c["seed"])
    for step in range(steps):
        starts = [random(seed, 1, step * batch + b) % (len(text) - length) for b in range(batch)]
        windows = torch.tensor(np.stack([text[s : s + length + 1] for s in starts]).astype(np.int64))
        begun = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate(c, step) * group.get("multiplier", 1)
        tokens = windows[:, :-1].clone()
        if c["bos"] == "1":
            tokens[:, 0] = int(c["vocab"]) - 1
        loss = model.loss(tokens, windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        if float(c["clip"]) > 0:
            torch.nn.utils.clip_grad_norm_(list(model.w.values()), float(c["clip"]))
        optimizer.step()
        with torch.no_grad():
            for _, w in bounded:
                w.clamp_(min=0.01)
        yield loss.item(), time.perf_counter() - begun


def first_of(run):
    """Return the initial weights of a training run, its configuration and its training text."""
    arrays, meta = read_safetensors(run / "checkpoint.safetensors")
    c = dict(x.split(" = ", 1) for x in meta["relpos.lab"].splitlines() if " = " in x)
    text = np.concatenate([np.frombuffer(pathlib.Path(f).read_bytes(), np.uint8) for f in c["text"].split()])
    return arrays, c, text if c.get("valid") else text[: len(text) - int(len(text) * float(c["valid_share"]))]


def whole(a, run, where):
    """Train to the end in both programs, with several starts, and compare the mean losses over the last tenth of the
    steps."""
    ours, theirs = [], []
    for seed in range(1, a.whole + 1):
        run(where / f"first{seed}", "--set", f"seed={seed}", "--until", "0")
        arrays, c, text = first_of(where / f"first{seed}")
        last = int(c["steps"]) // 10
        ours.append(statistics.mean(x["loss"] for x in run(where / f"run{seed}", "--set", f"seed={seed}")[-last:]))
        theirs.append(statistics.mean([x for x, _ in train(arrays, c, text, torch.float32, int(c["steps"]))][-last:]))
        print(f"start {seed}: relpos {ours[-1]:.4f}, PyTorch {theirs[-1]:.4f}, {ours[-1] - theirs[-1]:+.4f}",
              flush=True)
    spread = max(theirs) - min(theirs)
    apart = abs(statistics.mean(ours) - statistics.mean(theirs))
    print(f"position {c['position']}, {c['steps']} steps: the means are {apart:.4f} apart, PyTorch's starts "
          f"{spread:.4f}")
    if a.save:
        with open(a.save, "a") as to:
            print(json.dumps({"whole": c["position"], "steps": int(c["steps"]), "batch": int(c["batch"]),
                              "length": int(c["length"]), "relpos": ours, "torch": theirs,
                              "version": torch.__version__, "machine": run.machine}, allow_nan=False), file=to)
    sys.exit(apart > spread)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("relpos")
    parser.add_argument("experiment")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--time", type=int, default=0, metavar="STEPS",
                        help="time this many steps of each program, alternately, instead of comparing losses")
    parser.add_argument("--whole", type=int, default=0, metavar="SEEDS",
                        help="train to the end with this many starts instead of comparing the loss of every step")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--save", metavar="FILE", help="append the result as a line of JSON for relpos lab report")
    a = parser.parse_args()
    torch.set_num_threads(1)
    sets = [x for s in a.set for x in ("--set", s)] + ["--set", "log_every=1", "--set", "dropout=0"]

    def run(where, *more):
        command = [a.relpos, "lab", "train", a.experiment, "-o", str(where), "--threads", "1", *sets, *more]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lines = [json.loads(x) for x in (where / "log.jsonl").read_text().splitlines()]
        run.machine = lines[0]["machine"]
        return [x for x in lines if "loss" in x]

    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        if a.whole:
            whole(a, run, where)
            return
        run(where / "first", "--until", "0")
        arrays, c, text = first_of(where / "first")
        if a.time:
            theirs = train(arrays, c, text, torch.float32, a.time * 4)
            tokens, ours, peer = int(c["batch"]) * int(c["length"]), [], []
            for turn in range(4):
                lines = run(where / f"turn{turn}", "--until", str(a.time))
                ours += [1e3 * tokens / x["tokens_per_s"] for x in lines[1:]]
                peer += [1e3 * next(theirs)[1] for _ in range(a.time)][1:]
            x, y = statistics.median(ours), statistics.median(peer)
            print(f"position {c['position']}, batch {c['batch']}, length {c['length']}, one thread, medians of "
                  f"{len(ours)} steps: "
                  f"relpos {x:.0f} ms ({min(ours):.0f} to {max(ours):.0f}), "
                  f"PyTorch {torch.__version__} {y:.0f} ms ({min(peer):.0f} to {max(peer):.0f}), {y / x:.2f} x")
            if a.save:
                line = {"oracle": c["position"], "batch": int(c["batch"]), "length": int(c["length"]),
                        "steps": len(ours), "relpos_ms": [x, min(ours), max(ours)],
                        "torch_ms": [y, min(peer), max(peer)], "torch": torch.__version__, "machine": run.machine}
                with open(a.save, "a") as to:
                    print(json.dumps(line, allow_nan=False), file=to)
            return
        ours = [x["loss"] for x in run(where / "run", "--until", str(a.steps))]
        single = [x for x, _ in train(arrays, c, text, torch.float32, a.steps)]
        double = [x for x, _ in train(arrays, c, text, torch.float64, a.steps)]
    drift = worst = 0.0
    for n in range(a.steps):
        drift = max(drift, abs(single[n] - double[n]), 2.0**-22 * double[n])
        worst = max(worst, abs(ours[n] - double[n]) / (4 * drift))
        if n < 3 or (n + 1) % 20 == 0:
            print(f"step {n + 1:4d}  f64 {double[n]:.9f}  PyTorch f32 {single[n] - double[n]:+.1e}  relpos "
                  f"{ours[n] - double[n]:+.1e}")
    print(f"position {c['position']}: largest difference over its bound: {worst:.3f}")
    sys.exit(worst > 1)


main()
