"""How time grows with the length, where tiles are left out and where not: causal, f32, B1 H8 D64, one thread, processor time.

    build/venv/bin/python bench/growth.py build/release/librelpos.so [longest, default 262144]

Each problem runs with tiles left out and, up to 32,768 keys, with RELPOS_SKIP=0, in turns. The gates of forget are -0.2 on average.
Writes bench/results/growth.json after each length, and prints the slopes of log time over log length from one length to the next.
SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import json
import math
import os
import pathlib
import statistics
import sys
import time

import torch

from relpos_ctypes import Relpos, i64, load, ptr

root = pathlib.Path(__file__).resolve().parent.parent
H, D, ALL_TILES, RUNS = 8, 64, 32768, 3


def arrays(term, n):
    if term == "t5":
        return torch.randn(32, H)
    return -0.4 * torch.rand(1, H, n) if term == "forget" else None


def measure(lib, pool, term, n):
    q, k, v = (torch.randn(1, H, n, D) for _ in range(3))
    calls, times, pairs = {}, {}, (i64 * 2)()
    for skip in ("1", "0") if n <= ALL_TILES else ("1",):
        os.environ["RELPOS_SKIP"] = skip
        calls[skip] = Relpos(lib, pool, q, k, v, term, table=arrays(term, n) if not calls else calls["1"].keep[3], causal=True)
        times[skip] = []
    os.environ.pop("RELPOS_SKIP")
    for run in range(RUNS if n <= ALL_TILES else 1):
        for skip in sorted(calls, reverse=run % 2 == 0):
            calls[skip].t.pairs = ctypes.addressof(pairs) if skip == "1" else None
            start = time.process_time()
            calls[skip]()
            times[skip].append(1e3 * (time.process_time() - start))
    if len(calls) == 2 and not torch.equal(calls["1"].out, calls["0"].out):
        raise SystemExit(f"{term}, {n} keys: the results differ")
    return {"term": term, "n": n, "pairs_computed": pairs[1] / pairs[0], "ms": statistics.median(times["1"]),
            "ms_all_tiles": statistics.median(times["0"]) if "0" in times else None}


def main():
    lib, pool = load(sys.argv[1]), ptr()
    longest = int(sys.argv[2]) if len(sys.argv) > 2 else 262144
    lib.rp_pool_create(ctypes.byref(pool), 1)
    torch.manual_seed(1)
    rows = []
    for n in (2**e for e in range(10, int(math.log2(longest)) + 1)):
        for term in ("alibi", "forget", "t5"):
            rows.append(measure(lib, pool, term, n))
            before = next((r for r in rows[:-1] if r["term"] == term and r["n"] == n // 2), None)
            rows[-1]["slope"] = math.log2(rows[-1]["ms"] / before["ms"]) if before else None
            print(json.dumps(rows[-1]), flush=True)
        result = {"isa": lib.rp_isa_default().decode(), "version": lib.rp_version().decode(), "rows": rows}
        (root / "bench/results/growth.json").write_text(json.dumps(result, indent=1) + "\n")


main()
