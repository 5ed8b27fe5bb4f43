#!/usr/bin/env python3
"""Compare the encoder-decoder of `relpos lab` with T5 of Hugging Face's transformers, from the same initial weights and
on the same pairs. Run it by hand from the root of the source:

    lab/oracle_t5.py build/release/relpos lab/numbers.lab [--steps 20] [--set KEY=VALUE] [--write FILE]

The script exports the initial weights with `relpos lab export --transformers`, trains T5ForConditionalGeneration on the
same batches without dropout, and compares the losses of relpos in f32 with the losses of transformers in f64. Rounding
errors grow during training, so the bound is four times the largest difference so far between the losses of transformers
in f32 and in f64. Then it exports the trained model as f32 and as bf16, and compares the loss on held-out pairs and the
generated targets. --write saves the f64 losses and the bounds, which tests/lab/pairs.sh reads. Needs torch and
transformers. SPDX-License-Identifier: Apache-2.0"""
import argparse
import functools
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import ByT5Tokenizer, T5ForConditionalGeneration

from random_numbers import random


def read_pairs(files):
    lines = [line for f in files.split() for line in pathlib.Path(f).read_bytes().split(b"\n") if line]
    return [[[byte + 3 for byte in side] + [1] for side in line.split(b"\t")] for line in lines]


@functools.lru_cache(1)
def order(seed, epoch, n, batch, lengths):  # as order_epoch in lab/engine/pair_data.c does
    pairs = list(range(n))
    for x in range(n - 1, 0, -1):
        y = random(seed, 4, epoch * n + x) % (x + 1)
        pairs[x], pairs[y] = pairs[y], pairs[x]
    batches = n // batch
    placed = [(*lengths[p], x, p) for x, p in enumerate(pairs[: batches * batch])]
    placed = sum((sorted(placed[x : x + 64 * batch]) for x in range(0, len(placed), 64 * batch)), [])
    places = list(range(batches))
    for x in range(batches - 1, 0, -1):
        y = random(seed, 5, epoch * n + x) % (x + 1)
        places[x], places[y] = places[y], places[x]
    return [[p for *_, p in placed[x * batch : (x + 1) * batch]] for x in places]


def pad(rows, value):
    longest = max(len(r) for r in rows)
    return torch.tensor([r + [value] * (longest - len(r)) for r in rows])


def tensors(pairs):
    source = pad([s for s, _ in pairs], 0)
    return {"input_ids": source, "attention_mask": (source != 0).long(), "labels": pad([t for _, t in pairs], -100)}


def rate(c, step):
    warmup, steps, lr, lr_min = int(c["warmup"]), int(c["steps"]), float(c["lr"]), float(c["lr_min"])
    if step < warmup:
        return lr * (step + 1) / warmup
    return lr_min + (lr - lr_min) * 0.5 * (1 + math.cos(math.pi * min((step - warmup) / max(steps - warmup, 1), 1)))


def train(folder, c, pairs, dtype, steps):
    model = T5ForConditionalGeneration.from_pretrained(folder, dtype=dtype)
    named = list(model.named_parameters())
    still = [w for n, w in named if "layer_norm" in n or "relative_attention_bias" in n]  # without weight decay
    decays = [w for n, w in named if all(w is not other for other in still)]
    optimizer = torch.optim.AdamW(
        [{"params": decays, "weight_decay": float(c["weight_decay"])}, {"params": still, "weight_decay": 0.0}],
        lr=1, betas=(float(c["beta1"]), float(c["beta2"])), eps=float(c["eps"]))
    batch, seed = int(c["batch"]), int(c["seed"])
    lengths = tuple((len(t), len(s)) for s, t in pairs)
    per_epoch = len(pairs) // batch
    for step in range(steps):
        chosen = order(seed, step // per_epoch, len(pairs), batch, lengths)[step % per_epoch]
        for group in optimizer.param_groups:
            group["lr"] = rate(c, step)
        loss = model(**tensors([pairs[p] for p in chosen])).loss
        optimizer.zero_grad()
        loss.backward()
        if float(c["clip"]) > 0:
            torch.nn.utils.clip_grad_norm_(list(model.parameters()), float(c["clip"]))
        optimizer.step()
        yield loss.item()


@torch.no_grad()
def measure(folder, pairs, dtype):
    """Return the mean loss per token, and the targets that the model generates by greedy decoding."""
    model = T5ForConditionalGeneration.from_pretrained(folder, dtype=dtype).eval()
    tokenizer, total, count, written = ByT5Tokenizer.from_pretrained(folder), 0.0, 0, []
    for x in range(0, len(pairs), 64):
        batch = tensors(pairs[x : x + 64])
        tokens = int((batch["labels"] >= 0).sum())
        total += model(**batch).loss.item() * tokens
        count += tokens
        out = model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], do_sample=False,
                             num_beams=1)
        written += tokenizer.batch_decode(out, skip_special_tokens=True)
    return total / count, written


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("relpos")
    parser.add_argument("experiment")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--write", metavar="FILE")
    a = parser.parse_args()
    torch.set_num_threads(1)
    sets = [x for s in a.set for x in ("--set", s)] + ["--set", "log_every=1", "--set", "dropout=0"]

    def lab(*arguments):
        return subprocess.run([a.relpos, "lab", *map(str, arguments)], check=True, stdout=subprocess.PIPE,
                              text=True).stdout

    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        lab("train", a.experiment, "-o", where / "run", "--threads", 1, *sets, "--until", 0)
        lab("export", where / "run", "--transformers", "-o", where / "first")
        lab("train", a.experiment, "-o", where / "run", "--threads", 1, *sets, "--until", a.steps, "--resume")
        lines = [json.loads(x) for x in (where / "run" / "log.jsonl").read_text().splitlines()]
        c = dict(x.split(" = ", 1) for x in lines[0]["experiment"].splitlines() if " = " in x)
        pairs = read_pairs(c["text"])
        kept = len(pairs) - int(len(pairs) * float(c["valid_share"]))
        pairs, held = (pairs, read_pairs(c["valid"])) if c.get("valid") else (pairs[:kept], pairs[kept:])
        ours = [x["loss"] for x in lines if "loss" in x]
        single = list(train(where / "first", c, pairs, torch.float32, a.steps))
        double = list(train(where / "first", c, pairs, torch.float64, a.steps))
        drift = worst = 0.0
        bounds = []
        for n in range(a.steps):
            drift = max(drift, abs(single[n] - double[n]), 2.0**-22 * double[n])
            bounds.append(4 * drift)
            worst = max(worst, abs(ours[n] - double[n]) / bounds[n])
            if n < 3 or (n + 1) % 5 == 0:
                print(f"step {n + 1:4d}  f64 {double[n]:.9f}  transformers f32 {single[n] - double[n]:+.1e}  relpos "
                      f"{ours[n] - double[n]:+.1e}")
        print(f"largest difference over its bound: {worst:.3f}")
        if a.write:
            pathlib.Path(a.write).write_text("".join(f"{n + 1} {x:.12g} {b:.3g}\n"
                                                     for n, (x, b) in enumerate(zip(double, bounds))))
        held = held[:500]
        (where / "held.txt").write_bytes(b"".join(b"\t".join(bytes(t - 3 for t in side[:-1]) for side in p) + b"\n"
                                                  for p in held))
        for dtype, bound in (("f32", 1e-5), ("bf16", 2e-2)):
            lab("export", where / "run", "--transformers", "--dtype", dtype, "-o", where / dtype)
            theirs, written = measure(where / dtype, held, torch.float64)
            mine = json.loads(lab("eval", where / "run", "--text", where / "held.txt", "--bytes", 1 << 30, "--json"))
            right = sum(w == bytes(t - 3 for t in p[1][:-1]).decode() for w, p in zip(written, held))
            print(f"{dtype}: held-out loss {theirs:.9f} in transformers, {mine['loss'] - theirs:+.1e} in relpos; exact "
                  f"{right} and {mine['exact']} of {len(held)}")
            worst = max(worst, abs(mine["loss"] - theirs) / (bound * max(theirs, 0.1)))
    sys.exit(worst > 1)


main()
