"""Time one thread and several threads alternately in one process, to measure the speed-up and the size above which a
pool is faster.

    build/venv/bin/python bench/threads.py build/release/librelpos.so \
        -o bench/results/threads.json && python3 bench/report.py

Even short calls use the pool (RELPOS_SHORT=0).  SPDX-License-Identifier: Apache-2.0
"""
import argparse
import ctypes
import json
import os
import statistics
import time
from pathlib import Path

os.environ["RELPOS_SHORT"] = "0"

import torch  # noqa: E402

from machine import card  # noqa: E402
from relpos_ctypes import Relpos, load, ptr  # noqa: E402

# name, (batch, heads, queries, keys, head size), with gradients
PROBLEMS = [*((f"forward, {n:,} keys", (1, 8, n, n, 64), False)
              for n in (32, 48, 64, 72, 80, 96, 128, 256, 512, 1024, 2048, 4096)),
            *((f"forward and backward, {n:,} keys", (1, 8, n, n, 64), True) for n in (64, 256, 1024, 2048)),
            ("windows of 49 tokens, 512 x 8 of head size 32", (512, 8, 49, 49, 32), False),
            *((f"one query, {n:,} keys", (1, 8, 1, n, 64), False) for n in (1024, 4096, 32768))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("-o", "--output")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=2, help="for each problem")
    a = parser.parse_args()
    lib, rows = load(a.library), []
    pools = {n: ptr() for n in (1, a.threads)}
    for n, pool in pools.items():
        assert lib.rp_pool_create(ctypes.byref(pool), n) == 0
    for name, (b, h, lq, lk, d), backward in PROBLEMS:
        q, k, v = (torch.randn(b, h, n, d) for n in (lq, lk, lk))
        calls = {n: Relpos(lib, pool, q, k, v, dout=torch.randn(b, h, lq, d) if backward else None)
                 for n, pool in pools.items()}
        times, end = {n: [] for n in pools}, time.perf_counter() + a.seconds
        while time.perf_counter() < end or len(times[1]) < 6:
            for n, call in calls.items():
                start = time.perf_counter()
                call()
                times[n].append(time.perf_counter() - start)
        quartiles = {n: [1e3 * x for x in statistics.quantiles(t[1:], n=4)] for n, t in times.items()}
        rows.append({"problem": name, "multiply_adds": b * h * lq * lk * 2 * d,
                     "ms": {n: x[1] for n, x in quartiles.items()},
                     "quartiles": {n: [x[0], x[2]] for n, x in quartiles.items()}})
        print(name, {n: f"{x[1]:.4g} ms" for n, x in quartiles.items()},
              f"{quartiles[1][1] / quartiles[a.threads][1]:.2f} x", flush=True)
    if a.output:
        machine = card(lib, a.library, a.threads, f"bench/threads.py --threads {a.threads} --seconds {a.seconds:g}")
        Path(a.output).write_text(json.dumps({"machine": machine, "threads": a.threads, "rows": rows}, indent=1,
                                             allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
