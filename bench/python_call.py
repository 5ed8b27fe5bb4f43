"""Measure what a short call from Python costs: its parts, and whole calls beside torch's scaled_dot_product_attention
(SDPA), forward and with gradients. Calls alternate in one process, on one thread; times are the smallest of many
rounds, in microseconds.

    taskset -c 1 python3 bench/python_call.py RELPOS -o bench/results/python_call.json     RELPOS: the program;
                                                                                           1: an idle core

Needs the Python package and PyTorch.

SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import os
import platform
import subprocess
import time
from pathlib import Path

os.environ["RELPOS_THREADS"] = "1"
import numpy as np  # noqa: E402
import relpos  # noqa: E402
import torch  # noqa: E402
from relpos import _core, _torch  # noqa: E402, F401 (otherwise the first call imports it)

from machine import processor, version  # noqa: E402

LENGTHS = {1: (1, 8, 16, 32, 64, 128), 32: (1, 16, 32, 64, 128)}  # batch: lengths
sdpa = torch.nn.functional.scaled_dot_product_attention


def smallest(calls, rounds, round_s):
    """Return {name: microseconds per call}: each round runs every call for round_s seconds, and the fastest round
    counts."""
    best, repeats = {}, {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(round_s / (time.perf_counter() - start)))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            best[name] = min(best.get(name, 1e9), (time.perf_counter() - start) / repeats[name] * 1e6)
    return {name: round(us, 2) for name, us in best.items()}


class Empty(torch.autograd.Function):
    """Save the inputs and compute nothing."""

    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        return torch.empty_like(q)

    @staticmethod
    def backward(ctx, dout):
        return ctx.saved_tensors


def recorded(call, inputs, dout):
    """Return a call that also runs the backward pass."""
    def run():
        call().backward(dout)
        for x in inputs:
            x.grad = None
    return run


def parts(program, n):
    """Return the times of a call of n tokens, B1 H8 D64, and of its parts."""
    done = subprocess.run([program, "bench", f"fwd:f32:b1h8q{n}k{n}d64:", f"bwd:f32:b1h8q{n}k{n}d64:", "--threads", "1",
                           "--json"],
                          capture_output=True, check=True, text=True)
    kernel = [json.loads(line)["ms_min"] * 1e3 for line in done.stdout.splitlines()]
    q, k, v, dout = torch.randn(4, 1, 8, n, 64)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    arrays = [x.numpy() for x in (q, k, v)]
    none = [None] * len(_core.NAMES)
    lse = [True if name == "return_lse" else None for name in _core.NAMES]
    out, _, sums, _ = _core.compute(q, k, v, *lse)
    plan = relpos.Plan(1, 8, n, n, 64)
    return {"kernel, with work memory": kernel[0], "backward kernel, with work memory": kernel[1]} | smallest({
        "relpos.Plan, NumPy": lambda: plan(*arrays), "relpos.Plan, torch": lambda: plan(q, k, v),
        "relpos.attention, NumPy":
        lambda: relpos.attention(*arrays), "relpos.attention, torch": lambda: relpos.attention(q, k, v),
        "_core.compute, torch: arguments, plan, memory, kernel": lambda: _core.compute(q, k, v, *none),
        "_core.gradients, torch": lambda: _core.gradients(dout, q, k, v, tuple(none), None, out, sums, ["q", "k", "v"]),
        "torch.autograd.Function that computes nothing, with backward":
        recorded(lambda: Empty.apply(*inputs), inputs, dout),
        "relpos.attention, torch, with backward": recorded(lambda: relpos.attention(*inputs), inputs, dout),
        "SDPA": lambda: sdpa(q, k, v), "SDPA, with backward": recorded(lambda: sdpa(*inputs), inputs, dout)}, 15, 0.01)


def whole(batch, n):
    """Return a row: calls of relpos and of SDPA, without a bias and with a T5 table (SDPA: its mask made before the
    call)."""
    q, k, v, dout = torch.randn(4, batch, 8, n, 64)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    term, mask = relpos.T5(torch.randn(32, 8)), torch.randn(1, 8, n, n)
    calls = {"relpos": lambda *x: relpos.attention(*x), "SDPA": lambda *x: sdpa(*x),
             "relpos, T5": lambda *x: relpos.attention(*x,
                                                       bias=term), "SDPA, mask": lambda *x: sdpa(*x, attn_mask=mask)}
    forward = {name: lambda call=call: call(q, k, v) for name, call in calls.items()}
    both = {name: recorded(lambda call=call: call(*inputs), inputs, dout) for name, call in calls.items()}
    row = {"batch": batch, "n": n, "forward": smallest(forward, 12, 0.008), "both": smallest(both, 12, 0.008)}
    print(f"B{batch} N{n}", *(f"{x}: {row[x]['relpos']:.1f} us, {row[x]['SDPA'] / row[x]['relpos']:.2f} x SDPA, "
                              f"T5 {row[x]['SDPA, mask'] / row[x]['relpos, T5']:.2f};" for x in ("forward", "both")),
          flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("-o", "--output")
    a = parser.parse_args()
    torch.set_num_threads(1)
    info = json.loads(subprocess.run([a.program, "info", "--json"], capture_output=True, check=True, text=True).stdout)
    found = {"machine": {"cpu": processor().get("Model name", "unknown"),
                         "isa": relpos.show_config()["isa"], "compiler": info["build"]["compiler"],
                         "torch": torch.__version__, "numpy": np.__version__,
                         "python": platform.python_version(), "kernel": platform.release(), **version()},
             "parts": {str(n): parts(a.program, n) for n in (1, 16, 64)}}
    for n, times in found["parts"].items():
        print(f"{n} tokens, B1 H8 D64")
        for name, us in times.items():
            print(f"  {name:60} {us:7.2f} us")
    found["calls"] = [whole(batch, n) for batch, lengths in LENGTHS.items() for n in lengths]
    if a.output:
        Path(a.output).write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
