"""Measure how the processor time of one thread grows with the length (causal, f32, B1 D64). Calls that skip tiles and
calls that compute every tile (RELPOS_SKIP=0) run alternately.

    build/venv/bin/python bench/growth.py build/release/librelpos.so [--longest 262144] [--seconds 60]
    build/venv/bin/python bench/growth.py build/release/librelpos.so --model out/forget/checkpoint.safetensors \
        --text lab/data/vim.txt

The first command writes bench/results/growth.json: forward, backward, and one query with key norms computed before.
Calls use 8 heads; beyond 16,384 keys, calls without a bias or with T5's bias use one head, because every head takes the
same time. Forget gates are -0.2 on average. Calls longer than --seconds are skipped. --resume keeps the results in the
file.

The second command adds the layers of a decoder with forget gates, whose queries, keys and gates come from a text. Run
`relpos lab train bench/forget.lab -o out/forget` before. bench/report.py and bench/plots.py create
docs/performance-tables.md and its plot from the results.  SPDX-License-Identifier: Apache-2.0
"""
import argparse
import ctypes
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path

import torch

from machine import card
from relpos_ctypes import Relpos, array, i64, load, ptr

FILE = Path(__file__).resolve().parent.parent / "bench/results/growth.json"
H, D = 8, 64
TERMS = {"": None, "t5": lambda n: torch.randn(32, H), "alibi": None, "forget": lambda n: -0.4 * torch.rand(1, H, n)}
BACKWARD = 3.2  # approximate time relative to forward
QUIET = 4096  # at this length many pairs of calls run, to resolve 0.5 %


def seconds_of(call):
    start = time.process_time()
    call()
    return time.process_time() - start


class Call:
    """A forward call, a backward call or a call of one query, which can run with or without skipping tiles."""

    def __init__(self, lib, pool, term, passes, q, k, v, table):
        self.lib, self.pairs, self.passes = lib, (i64 * 2)(), passes
        self.calls, more = {}, {"causal": True, "dout": torch.randn_like(q) if passes == "backward" else None}
        for skip in ("1", "0"):
            os.environ["RELPOS_SKIP"] = skip
            self.calls[skip] = Relpos(lib, pool, q, k, v, term, table=table, **more)
        os.environ.pop("RELPOS_SKIP")
        one = self.calls["1"]
        if passes == "decode":
            self.norms = torch.empty(1, k.shape[1], -(-k.shape[2] // 64))
            to = array(self.norms)
            one.check(lib.rp_key_norms(one.plan, ctypes.byref(one.t), i64(0), ctypes.byref(to)))
            one.t.key_norms = to
        one.t.pairs = ctypes.addressof(self.pairs)
        self.forward("1")  # counts pairs, and computes the out and lse of the backward pass
        one.t.pairs = None
        self.share = self.pairs[1] / self.pairs[0]

    def forward(self, skip):
        c = self.calls[skip]
        c.check(self.lib.rp_attend(c.plan, ctypes.byref(c.t), c.at))

    def backward(self, skip):
        c = self.calls[skip]
        c.check(self.lib.rp_backward(c.plan, ctypes.byref(c.t), ctypes.byref(c.g), c.at))

    def times(self, runs, both):
        """Return the milliseconds of each run with skipped tiles, and, if `both` is set, of each run with every
        tile."""
        found = {"1": [], "0": []}
        if both and self.passes == "backward":
            self.forward("0")
        run = self.backward if self.passes == "backward" else self.forward
        for turn in range(runs):
            for skip in ("10" if turn % 2 == 0 else "01") if both else "1":
                found[skip].append(1e3 * seconds_of(lambda: run(skip)))  # noqa: B023
        if both:
            a, b = self.calls["1"], self.calls["0"]
            for x, y in [(a.out, b.out)] if self.passes != "backward" else zip(a.grads, b.grads):
                if not torch.equal(x, y):
                    sys.exit(f"{self.passes}: the results differ")
        return found["1"], found["0"]


def inputs(term, passes, n, heads):
    lq = 1 if passes == "decode" else n
    q, (k, v) = torch.randn(1, heads, lq, D), torch.randn(2, 1, heads, n, D)
    table = TERMS[term](n) if TERMS[term] else None
    return (q, k, v, table if table is None else table[..., :heads].contiguous() if term == "t5"
            else table[:, :heads].contiguous())


def growth(lib, pool, a, result):
    before = {}  # (term, pass, skip) -> seconds per head at the previous length
    known = {(r["pass"], r["term"], r["n"]): r for r in result["rows"]}
    def remember(row):
        for skip, ms in (("1", row["ms"]), ("0", row["ms_every_tile"])):
            if ms:
                before[row["term"], row["pass"], skip] = 1e-3 * statistics.median(ms) / row["heads"]
    for n in (2**e for e in range(10, int(math.log2(a.longest)) + 1)):
        for passes in ("decode", "forward", "backward"):
            for term in TERMS:
                name, falls = term or "none", term in ("alibi", "forget")
                heads = H if falls or passes == "decode" or n <= 16384 else 1
                if passes == "backward" and n > 65536 or passes == "decode" and term == "t5":
                    continue
                if (passes, name, n) in known:
                    remember(known[passes, name, n])
                    continue
                def expected(skip):
                    return (2 if passes == "decode" else 4) * before.get((name, passes, skip), 0) * heads  # noqa: B023
                if expected("1") > a.seconds:
                    continue
                both = expected("0") <= a.seconds and (n in (1024, QUIET)
                                                       or (name, passes, "0") in before) and (falls or n == QUIET)
                call = Call(lib, pool, term, passes, *inputs(term, passes, n, heads))
                once = seconds_of(lambda: (call.backward if passes == "backward" else call.forward)("1"))
                runs = 31 if n == QUIET and passes == "forward" else 15 if passes == "decode" else min(5, int(4 / once))
                left, every = call.times(max(runs, 1), both) if runs or both else ([1e3 * once], [])
                row = {"pass": passes, "term": name, "n": n, "heads": heads, "pairs_computed": call.share, "ms": left,
                       "ms_every_tile": every, "load": os.getloadavg()[0]}
                result["rows"].append(row)
                remember(row)
                print(f"{passes:8} {row['term']:6} {n:6} heads {heads}  {statistics.median(left):9.1f} ms"
                      + (f", every tile {statistics.median(every):9.1f}" if every else "")
                      + f", pairs {call.share:.3f}, {len(left)} runs", flush=True)
                save(result)


def save(result):
    FILE.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")


def tensors(path):
    """Read a .safetensors file of f32 arrays. Return them as torch tensors, without those of the optimizer, and the
    metadata."""
    with open(path, "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    arrays = {name: torch.frombuffer(bytearray(data[slice(*x["data_offsets"])]),
                                     dtype=torch.float32).reshape(x["shape"])
              for name, x in head.items() if name != "__metadata__" and not name.startswith("optimizer.")}
    return arrays, head["__metadata__"]


def model(lib, pool, a, result):
    """Time the attention of each layer of a model, on the last bytes of a text, which training did not use. Also
    compute the perplexity there."""
    w, about = tensors(a.model)
    config = dict(line.split(" = ") for line in about["relpos.lab"].splitlines())
    heads, layers, n = int(config["heads"]), int(config["layers"]), QUIET
    tokens = torch.tensor(list(a.text.read_bytes()[-n - 1:]))
    x = w["embedding.weight"][tokens[:-1]]
    norm = lambda x, name: torch.nn.functional.layer_norm(x, x.shape[-1:], w[f"{name}.weight"],
                                                          w[f"{name}.bias"])  # noqa: E731
    rows = []
    for layer in range(layers):
        name = f"layers.{layer}."
        y = norm(x, name + "attn_norm") @ w[name + "attn.qkv.weight"].T
        width = x.shape[1]
        q, k, v = (y[:, s * width:(s + 1) * width].reshape(n, heads, -1).transpose(0, 1)[None].contiguous()
                   for s in range(3))
        gates = torch.nn.functional.logsigmoid(y[:, 3 * width:]
                                               + w[name + "attn.forget.logf.bias"]).T[None].contiguous()
        found = {}
        for passes in ("forward", "backward"):
            call = Call(lib, pool, "forget", passes, q, k, v, gates)
            left, every = call.times(15 if passes == "forward" else 7, True)
            found[passes] = {"ms": left, "ms_every_tile": every}
            out = call.calls["1"].out
        rows.append({"layer": layer, "n": n, "heads": heads, "dim": q.shape[3], "pairs_computed": call.share,
                     "mean_gate": gates.mean((0, 2)).tolist(), **found})
        print({x: rows[-1][x] for x in ("layer", "pairs_computed", "mean_gate")},
              {p: [statistics.median(t) for t in found[p].values()] for p in found}, flush=True)
        x = x + out[0].transpose(0, 1).reshape(n, width) @ w[name + "attn.out.weight"].T
        up = norm(x, name + "mlp_norm") @ w[name + "mlp.up.weight"].T
        x = x + torch.nn.functional.gelu(up, approximate="tanh") @ w[name + "mlp.down.weight"].T
    logits = norm(x, "norm") @ w["embedding.weight"].T
    loss = torch.nn.functional.cross_entropy(logits, tokens[1:])
    result["model"] = {"config": config, "step": int(about["step"]), "perplexity": math.exp(loss), "layers": rows,
                       "load": os.getloadavg()[0]}
    print(f"perplexity {math.exp(loss):.3f}")
    save(result)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("library")
    p.add_argument("--longest", type=int, default=262144)
    p.add_argument("--seconds", type=float, default=60, help="the most that one call may take")
    p.add_argument("--resume", action="store_true", help="keep what was measured")
    p.add_argument("--model", type=Path, help="a checkpoint of relpos lab train: measure its layers instead")
    p.add_argument("--text", type=Path, help="what the model reads")
    a = p.parse_args()
    lib, pool = load(a.library), ptr()
    lib.rp_pool_create(ctypes.byref(pool), 1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    if a.model:
        model(lib, pool, a, json.loads(FILE.read_text()))
    else:
        command = f"bench/growth.py build/release/librelpos.so --longest {a.longest} --seconds {a.seconds:g}"
        result = json.loads(FILE.read_text()) if a.resume else {"machine": card(lib, a.library, 1, command), "rows": []}
        result["machine"]["command"] = command
        growth(lib, pool, a, result)


if __name__ == "__main__":
    main()
