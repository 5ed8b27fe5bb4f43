"""Time relpos against PyTorch on the CPU, in pairs in one process, and write the result with a machine card.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python bench/against_torch.py build/release/librelpos.so -o bench/results/against_torch.json

Each row is one problem at B1 H8 D64 f32. relpos and torch take turns, so that a slow moment of the machine falls on both;
medians are compared. torch is timed in its best way that has the same result: SDPA with the bias built as an
(1, H, N, N) array (building it is timed as a row of its own), and eager attention.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import ctypes
import json
import math
import os
import platform
import statistics
import subprocess
import time

import numpy as np
import torch
import torch.nn.functional as F

MAX_AXES, MAX_ARRAYS, MAX_TERMS, MAX_MASKS = 4, 8, 16, 8
i32, i64, f64, ptr = ctypes.c_int32, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class Array(ctypes.Structure):
    _fields_ = [("data", ptr), ("dtype", i32), ("ndim", i32), ("shape", i64 * MAX_AXES), ("stride", i64 * MAX_AXES)]


class Term(ctypes.Structure):
    _fields_ = [("kind", i32), ("bidirectional", i32), ("left", i64), ("right", i64), ("buckets", i64),
                ("max_distance", i64), ("strategy", i32), ("layout", i32), ("dim", i64), ("base", f64), ("lambda_", f64),
                ("rate_left", f64), ("rate_right", f64), ("kerple", i32), ("sign", i32), ("c", f64), ("L", f64), ("eps", f64)] + [
                    (n, i64) for n in ("width", "width2", "extent", "grid_h", "grid_w", "extra", "span", "max_position")] + [
                ("scaling", i32), ("truncate", i32), ("factor", f64), ("original_max", i64), ("max_embeddings", i64)] + [
                    (n, f64) for n in ("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim",
                                       "low_freq_factor", "high_freq_factor")]


class Mask(ctypes.Structure):
    _fields_ = [("kind", i32), ("left", i64), ("right", i64)]


class Desc(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("batch", i64), ("heads", i64), ("kv_heads", i64), ("len_q", i64), ("len_k", i64),
                ("dim_k", i64), ("dim_v", i64), ("dtype", i32), ("cap_after", i32), ("scale", f64), ("softcap", f64),
                ("q_offset", i64), ("terms", ptr), ("n_terms", i32), ("n_masks", i32), ("masks", ptr),
                ("dropout", f64), ("seed", ctypes.c_uint64), ("flexible", i32), ("reserved", i32), ("isa", ctypes.c_char_p)]


class Tensors(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(n, Array) for n in ("q", "k", "v", "out", "lse", "weights", "profile",
                                                                   "key_mass", "entropy")] + [
        ("term", Array * MAX_ARRAYS * MAX_TERMS), ("mask", Array * MAX_MASKS), ("q_offset", Array),
        ("pages", i64 * 9), ("prepared", ptr), ("pool", ptr), ("progress", ptr),
        ("progress_context", ptr)]


def array(x):
    x = x.numpy()
    a = Array(x.ctypes.data, 0, x.ndim)
    a.shape[: x.ndim] = x.shape
    a.stride[: x.ndim] = [s // x.itemsize for s in x.strides]
    return a


class Relpos:
    """One plan and its arrays."""

    def __init__(self, lib, pool, q, k, v, term=None, table=None, causal=False):
        b, h, n, d = q.shape
        self.desc = Desc(ctypes.sizeof(Desc), b, h, 0, n, k.shape[2], d, 0, 0, 0, -math.inf, 0, 0)
        self.keep = [q, k, v, table]
        if term:
            kind, text = term
            self.term = Term()
            names = (ctypes.c_char * 256 * MAX_ARRAYS)()
            assert lib.rp_term_parse(text, ctypes.byref(self.term), names) == 0, lib.rp_last_error()
            self.desc.terms, self.desc.n_terms = ctypes.addressof(self.term), 1
        if causal:
            self.mask = Mask(1, 0, 0)
            self.desc.masks, self.desc.n_masks = ctypes.addressof(self.mask), 1
        self.out = torch.empty(b, h, n, v.shape[3])
        self.t = Tensors(ctypes.sizeof(Tensors))
        self.t.q, self.t.k, self.t.v, self.t.out = array(q), array(k), array(v), array(self.out)
        if table is not None:
            self.t.term[0][0] = array(table)
        self.t.pool = pool
        self.lib, self.plan = lib, ptr()
        assert lib.rp_plan_create(ctypes.byref(self.plan), ctypes.byref(self.desc)) == 0, lib.rp_last_error()

    def __call__(self):
        assert self.lib.rp_attend(self.plan, ctypes.byref(self.t), None) == 0, self.lib.rp_last_error()
        return self.out


def t5_bias(table, n):
    """(1, H, N, N), as Hugging Face's T5 builds it: buckets 32, max_distance 128, bidirectional."""
    r = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    bucket = (r > 0).long() * 16
    d = r.abs()
    large = 8 + (torch.log(d.float() / 8) / math.log(128 / 8) * 8).long()
    bucket += torch.where(d < 8, d, torch.minimum(large, torch.full_like(large, 15)))
    return F.embedding(bucket, table).permute(2, 0, 1).unsqueeze(0).contiguous()


def eager(q, k, v, bias):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if bias is not None:
        s = s + bias
    return torch.softmax(s, -1) @ v


def pairs(functions, seconds):
    """Median, least and greatest time in ms of each function, taking turns."""
    times = {name: [] for name in functions}
    for f in functions.values():
        f()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 5:
        for name, f in functions.items():
            start = time.perf_counter()
            f()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: {"ms": statistics.median(t), "ms_min": min(t), "ms_max": max(t), "runs": len(t)} for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("-o", "--output")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8)
    a = parser.parse_args()
    lib = ctypes.CDLL(os.path.abspath(a.library))
    lib.rp_last_error.restype = lib.rp_version.restype = lib.rp_isa_default.restype = ctypes.c_char_p
    for name in ("rp_attend", "rp_plan_create", "rp_term_parse", "rp_pool_create"):
        getattr(lib, name).argtypes = None
    pool = ptr()
    assert lib.rp_pool_create(ctypes.byref(pool), a.threads) == 0
    peak = f64()
    assert lib.rp_measure_peak(None, pool, ctypes.byref(peak)) == 0
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    rows = []
    with torch.no_grad():
        for n in a.lengths:
            q, k, v = (torch.randn(1, 8, n, 64) for _ in range(3))
            table = torch.randn(32, 8)
            bias = t5_bias(table, n)
            plain = Relpos(lib, pool, q, k, v)
            t5 = Relpos(lib, pool, q, k, v, ("t5", b"t5"), table)
            causal = Relpos(lib, pool, q, k, v, causal=True)
            cases = {
                "no bias": ({"relpos": plain, "torch SDPA": lambda: F.scaled_dot_product_attention(q, k, v)}),
                "causal": ({"relpos": causal,
                            "torch SDPA": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)}),
                "T5 table": ({"relpos": t5,
                              "torch SDPA, bias built before": lambda: F.scaled_dot_product_attention(q, k, v, bias),
                              "torch SDPA, bias built in the call":
                                  lambda: F.scaled_dot_product_attention(q, k, v, t5_bias(table, n)),
                              "torch eager, bias built before": lambda: eager(q, k, v, bias)}),
            }
            for name, functions in cases.items():
                reference = list(functions.values())[1]()
                difference = (functions["relpos"]() - reference).abs().max().item()
                result = pairs(functions, a.seconds)
                flops = 4.0 * 8 * n * n * 64 * ((n + 1) / (2 * n) if name == "causal" else 1)
                share = flops / result["relpos"]["ms"] * 1e-6 / peak.value
                rows.append({"problem": name, "n": n, "largest_difference": difference, "relpos_share_of_peak": share,
                             "times": result})
                print(f"N {n:5d}  {name:9s} relpos {result['relpos']['ms']:8.2f} ms ({100 * share:.0f} % of peak)", end="")
                for other, t in result.items():
                    if other != "relpos":
                        print(f"; {other} {t['ms']:.2f} ms, {t['ms'] / result['relpos']['ms']:.2f} x", end="")
                print(f"; difference {difference:.1e}", flush=True)
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    card = {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release(), "relpos": lib.rp_version().decode(),
            "commit": commit, "isa": lib.rp_isa_default().decode(), "threads": a.threads, "peak_gflops": peak.value,
            "torch": torch.__version__, "numpy": np.__version__, "date": time.strftime("%Y-%m-%d"),
            "command": f"bench/against_torch.py --threads {a.threads}"}
    if a.output:
        with open(a.output, "w") as f:
            json.dump({"machine": card, "rows": rows}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
