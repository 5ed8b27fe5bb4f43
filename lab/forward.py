#!/usr/bin/env python3
"""Measure how much time each position scheme adds to forward attention. Calls with and without the scheme run
alternately, in pairs.

    build/python/venv/bin/python lab/forward.py [-o out/forward.jsonl] [--rounds 15] [--batch 32]

Needs the Python package, which tools/python.sh installs there. `relpos lab report out/forward.jsonl` prints the results
as a table.
SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np
import relpos

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "report"))
from page import write  # noqa: E402

LENGTH, HEADS, WIDTH = 512, 12, 64
rng = np.random.default_rng(1)


def normal(*shape):
    return rng.standard_normal(shape, np.float32)


def sinusoids():
    angle = np.arange(LENGTH)[:, None] / 10000 ** (np.arange(0, HEADS * WIDTH, 2) / (HEADS * WIDTH))
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(LENGTH, HEADS * WIDTH).astype(np.float32)


def calls(batch):
    """Return {position: function that calls attention once with this position scheme}."""
    q, k, v = (normal(batch, HEADS, LENGTH, WIDTH) for _ in range(3))
    x = normal(batch, LENGTH, HEADS * WIDTH)
    out, y = np.empty_like(q), np.empty_like(x)

    def attend(**options):
        return lambda: relpos.attention(q, k, v, out=out, threads=1, **options)

    def add(rows):
        def call():
            np.add(x, rows, out=y)
            relpos.attention(q, k, v, out=out, threads=1)
        return call

    shaw = [normal(129, WIDTH) for _ in range(2)]
    return {"none": attend(), "learned": add(normal(LENGTH, HEADS * WIDTH)), "sinusoidal": add(sinusoids()),
            "t5": attend(bias=relpos.T5(normal(32, HEADS))),
            "log": attend(bias=relpos.LogDecay()), "alibi": attend(bias=relpos.ALiBi()),
            "rope": attend(rope=relpos.RoPE()),
            "relkey,left=64,right=64+relval,left=64,right=64": attend(relkey=relpos.RelKey(shaw[0], left=64, right=64),
                                                                      relval=relpos.RelValue(
                                                                          shaw[1], left=64, right=64))}


def timed(call):
    """Return the processor time of this thread for a call, in milliseconds. Other programs disturb it less than elapsed
    time."""
    start = time.thread_time()
    call()
    return 1e3 * (time.thread_time() - start)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        cpu = next((line.partition(": ")[2].strip() for line in f if line.startswith("model name")), "a processor")
    return {"cpu": cpu, "cores": os.cpu_count(), "version": relpos.__version__, "isa": relpos.show_config()["isa"],
            "blas": f"NumPy {np.__version__}", "threads": 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("-o", "--output", type=pathlib.Path, help="write the results to this file; default: print them")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of calls for each position; default %(default)s")
    parser.add_argument("--batch", type=int, default=32, help="default %(default)s")
    a = parser.parse_args()
    every = calls(a.batch)
    times = {what: [] for what in every}  # position: (time without it, time with it) of each pair
    for call in every.values():
        call()
    for n in range(a.rounds):
        for what, call in every.items():
            order = [every["none"], call]
            pair = [timed(order[n % 2]), timed(order[1 - n % 2])]
            times[what].append(pair[::-1] if n % 2 else pair)
    lines = []
    for what, pairs in times.items():
        ratios = [with_it / without for without, with_it in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        lines.append(json.dumps({"forward": what, "batch": a.batch, "length": LENGTH, "heads": HEADS, "width": WIDTH,
                                 "rounds": a.rounds,
                                 "ms": statistics.median(x for _, x in pairs), "ratio": [low, middle, high],
                                 "machine": machine()}, allow_nan=False))
    text = "\n".join(lines) + "\n"
    if a.output:
        write({a.output: text})
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
