"""Measure the cost of mixing a thread pool with torch's threads, in milliseconds. The calls are attention with T5's
bias on tensors (which uses torch's threads), on NumPy arrays (which uses a pool), and torch's
scaled_dot_product_attention with a bias built beforehand. Each call is timed by itself, and after a matrix product of
torch.

    python3 bench/torch_threads.py -o bench/results/torch_threads.json

SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import statistics
import time
from pathlib import Path

import relpos
import torch

from hf import card

SHAPES = {"512 tokens": (512, 512), "1,000 tokens": (1000, 1000), "one query, 30,000 keys": (1, 30000)}


def quartiles(call, before, rounds):
    """Return the median, the first and the third quartile in milliseconds."""
    times = []
    for _ in range(rounds + 5):
        before()
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return [statistics.quantiles(times[5:], n=4)[x] for x in (1, 0, 2)]


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    matrix, rows = torch.randn(512, 512), []
    for name, (queries, keys) in SHAPES.items():
        q, k, v = (torch.randn(1, 8, n, 64) for n in (queries, keys, keys))
        term = relpos.T5(torch.randn(32, 8))
        arrays, bias = [x.numpy() for x in (q, k, v)], torch.from_numpy(term.matrix(queries, keys)).float()[None]
        plain = relpos.T5(term.arrays["table"].numpy())
        calls = {"torch's threads": lambda: relpos.attention(q, k, v, bias=term),
                 "a pool": lambda: relpos.attention(*arrays, bias=plain, threads=a.threads),
                 "SDPA": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)}
        assert (calls["torch's threads"]().numpy() == calls["a pool"]()).all()
        for what, call in calls.items():
            time.sleep(0.1)
            row = {"problem": name, "by": what, "alone": quartiles(call, lambda: None, a.rounds),
                   "after a product": quartiles(call, lambda: matrix @ matrix, a.rounds)}
            rows.append(row)
            print(f"{name:24} {what:16} by itself {row['alone'][0]:6.2f} ms, after a product "
                  f"{row['after a product'][0]:6.2f}", flush=True)
    if a.output:
        Path(a.output).write_text(json.dumps({"machine": card(), "threads": a.threads, "rows": rows}, indent=1,
                                             allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
