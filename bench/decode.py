"""Time one query against a cache of keys: relpos, PyTorch's SDPA with its mask ready, and other builds of relpos,
alternately in one process.

    build/venv/bin/python bench/decode.py build/release/librelpos.so [--other OLD.so]

Each line has the median and, in parentheses, the smallest time of a call, the ratio of SDPA's median to relpos's, and
the bandwidth at which relpos reads keys and values. "cold" reads other memory before each call, until it fills the
caches. "prepared" uses rp_prepare, as a decoder does; otherwise a call computes its biases too. "norms" times relpos
with key norms too, which let it skip keys of weight 0.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import ctypes
import statistics
import time

import torch
import torch.nn.functional as F

from relpos_ctypes import Relpos, array, load, ptr

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
COLD = 1 << 27  # bytes read before a cold call
SLOPES = {"alibi": lambda h: torch.tensor([2 ** (-8 * (i + 1) / h) for i in range(h)])}


def mask_of(term, heads, n, table, dtype):
    """Return the biases of the last of n tokens as [1, H, 1, n], or None."""
    delta = torch.arange(n) - (n - 1)
    if term == "alibi":
        return (SLOPES["alibi"](heads)[:, None] * delta)[None, :, None].to(dtype)
    return torch.randn(1, heads, 1, n).to(dtype) if table is not None else None  # the values do not change the time


def arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lib")
    parser.add_argument("--other", default=[], action="append", help="another build of the library")
    parser.add_argument("--lengths", default="128,512,1024,4096,16384,30000,65536")
    parser.add_argument("--terms", default=",alibi,t5")
    parser.add_argument("--types", default="f32")
    parser.add_argument("--states", default="cold,warm")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=0, help="0: as many as heads")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each line")
    parser.add_argument("--prepared", action="store_true")
    parser.add_argument("--norms", action="store_true")
    return parser.parse_args()


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    libs = [load(x) for x in [a.lib, *a.other]]
    pools = []
    for lib in libs:
        pools.append(ptr())
        assert lib.rp_pool_create(ctypes.byref(pools[-1]), a.threads) == 0, lib.rp_last_error()
    others = torch.zeros(COLD // 4)
    for dtype in a.types.split(","):
        for n in map(int, a.lengths.split(",")):
            torch.manual_seed(0)
            q, k, v = (torch.randn(a.batch, h, m, a.dim).to(TYPES[dtype])
                       for h, m in ((a.heads, 1), (a.kv_heads or a.heads, n), (a.kv_heads or a.heads, n)))
            for term in a.terms.split(","):
                table = torch.randn(32, a.heads).to(q.dtype) if term.startswith("t5") else None
                mask = mask_of(term, a.heads, n, table, q.dtype)
                grouped = {"enable_gqa": True} if a.kv_heads not in (0, a.heads) else {}
                calls = {"SDPA": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **grouped)}
                for i, (lib, pool) in enumerate(zip(libs, pools)):
                    call = Relpos(lib, pool, q, k, v, term=term, table=table)
                    if not a.prepared:
                        call.t.prepared = None
                    calls["relpos" if i == 0 else f"other {i}"] = call
                    if a.norms:
                        norms, call = torch.empty(a.batch, k.shape[1],
                                                  -(-n // 64)), Relpos(lib, pool, q, k, v, term=term, table=table)
                        call.keep += (norms,)
                        call.t.key_norms = array(norms)
                        call.check(lib.rp_key_norms(call.plan, ctypes.byref(call.t), ctypes.c_int64(0),
                                                    ctypes.byref(call.t.key_norms)))
                        if not a.prepared:
                            call.t.prepared = None
                        calls["norms" if i == 0 else f"other {i} norms"] = call
                out = {name: call().float().clone() for name, call in calls.items()}
                if not term.startswith("t5"):
                    assert (out["SDPA"] - out["relpos"]).abs().max() < 2e-2, "SDPA computes something else"
                same = all(torch.equal(x, out["relpos"]) for name, x in out.items()
                           if name.startswith(("other", "norms")))
                for state in a.states.split(","):
                    times = {name: [] for name in calls}
                    end = time.perf_counter() + a.seconds
                    while time.perf_counter() < end or len(times["SDPA"]) < 5:
                        for name, call in calls.items():
                            if state == "cold":
                                others.sum()
                            elif len(times[name]) == 0:
                                call()
                            if a.threads > 1:
                                time.sleep(0.005)  # lets the threads of the previous call go to sleep
                            start = time.perf_counter()
                            call()
                            times[name].append(1e6 * (time.perf_counter() - start))
                    median = {name: statistics.median(t) for name, t in times.items()}
                    moved = k.nbytes + v.nbytes
                    print(f"{dtype:5} k {n:6} {term or 'none':6} {state}  " + "  ".join(
                        f"{name} {median[name]:8.1f} ({min(t):8.1f}) us" for name, t in times.items())
                        + f"  SDPA/relpos {median['SDPA'] / median['relpos']:.2f}  "
                          f"{moved / median['relpos'] / 1e3:.1f} GB/s"
                        + "".join(f"  {name}/relpos {median[name] / median['relpos']:.2f}" for name in times
                                  if name.startswith(("other", "norms")))
                        + ("" if same else "  bits differ"), flush=True)


if __name__ == "__main__":
    main()
