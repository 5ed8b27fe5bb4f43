"""Measure the overhead of a call from Python, on a problem of one number.

    taskset -c 1 python3 bench/python_call.py RELPOS       RELPOS: the program; 1: an idle core

Needs the Python package. With PyTorch, also measures calls with tensors.

SPDX-License-Identifier: Apache-2.0"""
import json
import os
import subprocess
import sys
import timeit

os.environ["RELPOS_THREADS"] = "1"
import numpy as np
import relpos

CALLS, ROUNDS = 20000, 9


def microseconds(code, **names):
    return min(timeit.repeat(code, globals=names, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def main():
    done = subprocess.run([sys.argv[1], "bench", "fwd:f32:b1h1q1k1d4:", "--threads", "1", "--json"], capture_output=True, check=True)
    own = json.loads(done.stdout)["ms_min"] * 1e3
    print(f"library, with scratch memory  {own:6.2f} µs")
    arrays = {"NumPy": np.ones((1, 1, 1, 4), np.float32)}
    try:
        import torch
        arrays["torch"] = torch.ones(1, 1, 1, 4)
    except ImportError:
        pass
    for name, x in arrays.items():
        for what, code in (("attention", "f(x, x, x)"), ("attention, out given", "f(x, x, x, out=y)"), ("Plan", "plan(x, x, x)")):
            time = microseconds(code, f=relpos.attention, x=x, y=x + 0, plan=relpos.Plan(1, 1, 1, 1, 4))
            print(f"{name:6} {what:24} {time:6.2f} µs, overhead {time - own:6.2f} µs")


if __name__ == "__main__":
    main()
