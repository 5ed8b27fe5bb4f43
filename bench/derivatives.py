"""Measure forward derivatives (jvp) and second derivatives (hvp) of attention beside the passes they extend, and beside
torch's eager attention, which is the only other implementation on CPUs.

    RELPOS_THREADS=1 taskset -c 1 python3 bench/derivatives.py -o bench/results/derivatives.json      1: an idle core

f32, 8 heads of 64 channels, a T5 table, all tangents given, one thread. relpos computes relpos.attention,
attention_jvp, attention_backward and attention_hvp of NumPy arrays; torch computes softmax(q kᵀ / √D + bias) v
under torch.func.jvp, and the jvp of its gradients. Calls alternate in one process, medians of --rounds. Memory is the
largest of a new process during a call, less that before the call (Linux). relpos runs 65,536 tokens with
one head; torch stops where a call would need more than --memory GB. Needs the Python package and PyTorch.

SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("RELPOS_THREADS", "1")
import numpy as np  # noqa: E402
import relpos  # noqa: E402
import torch  # noqa: E402

from machine import processor, reset_peak, status_bytes, version  # noqa: E402

D = 64
LENGTHS = 1024, 2048, 4096
LONG = 65536
ARRAYS = 8  # the least number of arrays of N × N that torch's jvp keeps at once


def arrays(n, heads):
    rng = np.random.default_rng(n)
    q, k, v, dout, tq, tk, tv = rng.standard_normal((7, 1, heads, n, D), np.float32)
    table, t_table = rng.standard_normal((2, 32, heads), np.float32)
    return (q, k, v, table), (tq, tk, tv, t_table), dout


def relpos_calls(n, heads):
    """Return {pass: call} of relpos."""
    (q, k, v, table), (tq, tk, tv, t_table), dout = arrays(n, heads)
    t = relpos.Gradients(tq, tk, tv, ({"table": t_table},))
    more = {"bias": relpos.T5(table)}
    return {"forward": lambda: relpos.attention(q, k, v, **more),
            "jvp": lambda: relpos.attention_jvp(q, k, v, t, **more),
            "backward": lambda: relpos.attention_backward(dout, q, k, v, **more),
            "hvp": lambda: relpos.attention_hvp(dout, q, k, v, t, **more)}


def torch_calls(n, heads):
    """Return {pass: call} of torch's eager attention."""
    from torch.func import jvp, vjp
    primals, tangents, dout = arrays(n, heads)
    primals, tangents = tuple(map(torch.from_numpy, primals)), tuple(map(torch.from_numpy, tangents))
    dout = torch.from_numpy(dout)
    buckets = torch.from_numpy(relpos.T5(np.arange(32, dtype=np.float32)[:, None]).matrix(n, n)[0]).long()

    def attention(q, k, v, table):
        s = q @ k.transpose(-1, -2) * D ** -0.5 + table[buckets].permute(2, 0, 1)
        return torch.softmax(s, -1) @ v

    def gradients(*x):
        return vjp(attention, *x)[1](dout)

    def forward():
        with torch.no_grad():
            return attention(*primals)

    return {"forward": forward, "jvp": lambda: jvp(attention, primals, tangents),
            "backward": lambda: gradients(*primals), "hvp": lambda: jvp(gradients, primals, tangents)}


SIDES = {"relpos": relpos_calls, "torch": torch_calls}


def seconds_of(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def peak(side, what, n, heads):
    """Return bytes and seconds of one call in a new process."""
    done = subprocess.run([sys.executable, __file__, "--one", side, what, str(n), str(heads)], check=True, text=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def one(side, what, n, heads):
    def call_of(length):
        return SIDES[side](length, heads)[what]
    call_of(64)()  # libraries and their own memory
    call = call_of(n)
    before = reset_peak()
    seconds = seconds_of(call)
    print(json.dumps({"bytes": status_bytes("VmHWM") - before, "seconds": seconds}, allow_nan=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--memory", type=float, default=16, help="GB that a call of torch may need")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    a = parser.parse_args()
    torch.set_num_threads(1)
    if a.one:
        return one(*a.one[:2], *map(int, a.one[2:]))
    result = {"machine": {"cpu": processor().get("Model name", ""), "isa": relpos.show_config()["isa"], **version(),
                          "torch": torch.__version__, "command": " ".join(["bench/derivatives.py", *sys.argv[1:]])},
              "times": [], "memory": []}
    for n in LENGTHS:
        calls = {(side, what): call for side in SIDES for what, call in SIDES[side](n, 8).items()
                 if side == "relpos" or ARRAYS * 8 * 4 * n * n < a.memory * 1e9}
        seconds = {key: [] for key in calls}
        for key, call in calls.items():
            call()
        for _ in range(a.rounds):
            for key, call in calls.items():
                seconds[key].append(seconds_of(call))
        result["times"].append({"tokens": n, "seconds": {f"{side} {what}": s for (side, what), s in seconds.items()}})
        middle = {key: statistics.median(s) for key, s in seconds.items()}
        print(n, *(f"{side} {what} {1e3 * t:.1f} ms" for (side, what), t in middle.items()), flush=True)
    for n, heads in ((1024, 8), (2048, 8), (4096, 8), (LONG, 1)):
        for side in SIDES:
            for what in ("jvp", "hvp"):
                if side == "relpos" or ARRAYS * heads * 4 * n * n < a.memory * 1e9:
                    row = {"tokens": n, "heads": heads, "side": side, "pass": what, **peak(side, what, n, heads)}
                    result["memory"].append(row)
                    print(row, flush=True)
    if a.output:
        Path(a.output).write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
