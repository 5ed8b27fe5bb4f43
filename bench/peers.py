"""Time relpos and other implementations of attention with relative positions on a CPU (peers), and write the results
with a description of the machine.

    bench/setup.sh build/venv
    build/venv/bin/python bench/peers.py build/release/librelpos.so -o bench/results/peers.json
    python3 bench/report.py && build/venv/bin/python bench/plots.py          # docs/performance-tables.md and its plots

For each problem, relpos and all peers are called alternately in one process, so a slow moment of the machine affects
all of them. Each peer gets its preferred layout and one call before timing. Compilation is not timed; if the name of a
peer says "built before", building its bias is not timed either. Every result is compared with f64, or with relpos if
f64 would take too long. A peer whose result differs is skipped. Skipped peers are recorded with the reason. Memory is
measured in a separate process for each peer: the peak of a call, with everything that it builds, minus the tensors q,
k, v and the table.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import ctypes
import dataclasses
import functools
import gc
import json
import logging
import math
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from machine import card, reset_peak, status_bytes
from relpos_ctypes import Relpos, load, ptr

# variant: fields of rp_desc
VARIANTS = {"default": {}, "high": {"precision": 1}, "amx": {"isa": b"amx"}, "avx512": {"isa": b"avx512"},
            "avx2": {"isa": b"avx2"}}
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
CASES = {"": "no bias", "t5": "T5 table", "t5,bidirectional=0": "T5 table", "alibi": "ALiBi",
         "table,left=64,right=64": "clipped table",
         "relkey,left=64,right=64": "Shaw keys", "swin,grid=7x7": "Swin windows", "swin,grid=8x8": "Swin windows"}
CLIP = 64
SHORT = (16, 32, 64, 128)  # lengths of short problems, for batch 1 and BATCH
BATCH = 32
WINDOWS = 4096  # number of windows in a Swin model
LENGTHS = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
FLEX_LENGTHS = (512, 2048, 8192)  # compiling takes seconds for each length
SLOW = {"fwd": 0.5, "fwdbwd": 2}  # seconds per call; a peer that takes longer at one length is skipped at the next
COLD = 1 << 28  # bytes read before a cold call
LONG = 8  # seconds; if a round takes longer, three rounds run instead of five
# timed at every length, even if slow
ALWAYS = ("relpos", "SDPA", "SDPA, bias built before", "SDPA, bias as a view of a strip")
# largest error / largest result; above it, the peer computes something else
WRONG = {"f32": 1e-3, "f16": 1e-2, "bf16": 5e-2}


class Skip(Exception):
    """Raised with the reason why a peer is not timed."""


@dataclasses.dataclass(frozen=True)
class Problem:
    passes: str  # fwd or fwdbwd
    dtype: str
    lq: int
    lk: int
    term: str = ""
    causal: bool = False
    b: int = 1
    h: int = 8
    d: int = 64
    cold: bool = False  # before each call, fill the caches with other memory

    @property
    def text(self):
        """Return the problem as text for relpos bench."""
        offset = f"o{self.lk - self.lq}" if self.lk != self.lq else ""
        return (f"{self.passes}:{self.dtype}:b{self.b}h{self.h}q{self.lq}k{self.lk}d{self.d}{offset}:{self.term}"
                + (":causal" if self.causal else "")).rstrip(":") + " cold" * self.cold

    @property
    def case(self):
        return ("decode, " + "cold, " * self.cold if self.lq == 1 else f"batch {self.b}, " if self.b == BATCH
                else f"{self.b:,} of {self.h} heads, "
                if self.b == WINDOWS else "") + f"width {self.d}, " * (self.d > 64) + CASES[self.term] + (
                    ", causal" if self.causal and self.lq > 1 else "")

    @property
    def side(self):
        """Return the number of tokens on a side of a window."""
        return math.isqrt(self.lq)

    @property
    def scores(self):
        """Return the size of an array [B, H, Lq, Lk] in bytes."""
        return self.b * self.h * self.lq * self.lk * TYPES[self.dtype].itemsize

    @property
    def flops(self):
        pairs = self.lq * (self.lq + 1) // 2 if self.causal else self.lq * self.lk
        return (4 if self.passes == "fwd" else 14) * self.b * self.h * pairs * self.d

    @property
    def offsets(self):
        return torch.arange(self.lk)[None, :] - torch.arange(self.lq)[:, None] - (self.lk - self.lq)

    def tensors(self, n=None):
        torch.manual_seed(0)
        shape = {"t5": (32, self.h), "table": (self.h, 2 * CLIP + 1), "relkey": (2 * CLIP + 1, self.d),
                 "swin": ((2 * self.side - 1) ** 2, self.h)}.get(self.term.split(",")[0])
        q, k, v, dout = (torch.randn(self.b, self.h, n, self.d).to(TYPES[self.dtype])
                         for n in (self.lq, self.lk, self.lk, self.lq))
        return {"q": q, "k": k, "v": v, "table": torch.randn(shape).to(q.dtype) if shape else None,
                "dout": dout if self.passes == "fwdbwd" else None}


def problems(quick):
    lengths = [n for n in LENGTHS if n <= 1024] if quick else LENGTHS
    for n in lengths:
        for term in ("", "t5", "alibi", "table,left=64,right=64"):
            yield Problem("fwd", "f32", n, n, term)
        yield Problem("fwd", "f32", n, n, causal=True)
        yield Problem("fwd", "f32", n, n, "t5,bidirectional=0", True)
        if 512 <= n <= 4096:
            yield Problem("fwd", "f32", n, n, "relkey,left=64,right=64")
        if 512 <= n <= 8192:
            yield Problem("fwd", "bf16", n, n)
            yield Problem("fwd", "bf16", n, n, "t5")
        if n <= 8192:
            yield Problem("fwdbwd", "f32", n, n)
            yield Problem("fwdbwd", "f32", n, n, "t5")
        if 1024 <= n <= 4096:
            yield Problem("fwd", "f32", n, n, d=128)
            yield Problem("fwdbwd", "f32", n, n, d=128)
            yield Problem("fwd", "f16", n, n)
            yield Problem("fwd", "f16", n, n, "t5")
    for side in (7, 8):
        yield Problem("fwd", "f32", side ** 2, side ** 2, f"swin,grid={side}x{side}", b=512, d=32)
    for passes in ("fwd", "fwdbwd"):
        for n, b, term in ((n, b, term) for b in (1, BATCH) for n in SHORT for term in ("", "t5") if b > 1
                           or n < lengths[0]):
            yield Problem(passes, "f32", n, n, term, b=b)
        for h in () if quick else (3, 4):
            yield Problem(passes, "f32", 49, 49, "swin,grid=7x7", b=WINDOWS, h=h, d=32)
    for n in (1024, 2048) if quick else (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536):
        for dtype, cold in ((dtype, cold) for dtype in ("f32", "f16", "bf16") for cold in (False, True)):
            for term in ("", "t5,bidirectional=0", "alibi"):
                yield Problem("fwd", dtype, 1, n, term, cold=cold)


def memory_problems(quick):
    for n in (512,) if quick else (4096, 8192, 16384):
        yield Problem("fwd", "f32", n, n, "t5")
    for n in (512,) if quick else (2048, 4096):
        yield Problem("fwdbwd", "f32", n, n, "t5")


# ---------------------------------------------------------------------------------------------------- biases

def t5_bucket(delta, bidirectional):
    """Compute the buckets of T5 as transformers does, with 32 buckets and max_distance 128."""
    buckets = 16 if bidirectional else 32
    d = delta.abs() if bidirectional else (-delta).clamp(min=0)
    exact = buckets // 2
    large = exact + (torch.log(d.clamp(min=1).float() / exact) / math.log(128 / exact) * (buckets - exact)).long()
    bucket = torch.where(d < exact, d, large.clamp(max=buckets - 1))
    return bucket + (delta > 0) * 16 if bidirectional else bucket


def values(p, table, delta):
    """Return the biases [H, *delta.shape] of offsets, computed as models do."""
    if p.term.startswith("t5"):
        bias = F.embedding(t5_bucket(delta, p.term == "t5"), table).movedim(-1, 0)
    elif p.term == "alibi":
        slopes = torch.tensor([2.0 ** (-8 * (h + 1) / p.h) for h in range(p.h)], dtype=TYPES[p.dtype])
        bias = slopes.view(-1, *[1] * delta.ndim) * -delta.abs()
    else:
        bias = table[:, delta.clamp(-CLIP, CLIP) + CLIP]
    return bias.masked_fill(delta > 0, -math.inf) if p.causal else bias


def swin_index(side):
    y, x = torch.arange(side ** 2) // side, torch.arange(side ** 2) % side
    return (y[:, None] - y + side - 1) * (2 * side - 1) + x[:, None] - x + side - 1


def built(p, table):
    """Return the bias [1, H, Lq, Lk], computed as models do in each call. Without a term, return the causal triangle or
    None."""
    if p.term.startswith("swin"):
        return table[swin_index(p.side)].permute(2, 0, 1)[None].contiguous()
    if p.term:
        return values(p, table, p.offsets)[None].contiguous()
    return torch.zeros(p.lq, p.lk, dtype=TYPES[p.dtype]).masked_fill(p.offsets > 0, -math.inf) if p.causal else None


def strip(p, table):
    """Return the biases of all offsets in ascending order, [H, Lq+Lk-1]."""
    return values(p, table, torch.arange(1 - p.lk, p.lq))


def view(p, s):
    """Return the bias [1, H, Lq, Lk], for queries in reverse order, as a view of a strip. Nothing is copied."""
    return s.contiguous().as_strided((1, p.h, p.lq, p.lk), (0, s.shape[1], 1, 1))


@functools.lru_cache(maxsize=1)  # shared by all peers of a problem
def dense(p, table):
    """Return the bias [1, H, Lq, Lk] that a peer adds to the scores. If it depends only on the offset, expand a strip,
    which is faster than built() and needs less memory."""
    if not p.term or p.term.startswith("swin"):
        return built(p, table)
    return view(p, strip(p, table)).flip(-2).contiguous()


def shaw(p, q, table):
    """Return scale <q_i, table[offset]>: multiply q_i with every vector of the table, then gather one product for each
    pair."""
    index = (p.offsets.clamp(-CLIP, CLIP) + CLIP).expand(p.b, p.h, -1, -1)
    return (q @ table.T / math.sqrt(p.d)).gather(-1, index)


def shaw_vectors(p, q, table):
    """Return scale <q_i, table[offset]>: gather a vector for each pair, like relative_key in BERT."""
    return torch.einsum("bhld,lrd->bhlr", q, table[p.offsets.clamp(-CLIP, CLIP) + CLIP]) / math.sqrt(p.d)


# ---------------------------------------------------------------------------------------------------- peers

def eager(q, k, v, bias):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.softmax(s if bias is None else s + bias, -1) @ v


def backward(forward, x, dout):
    """Return a function that runs `forward` on q, k, v and the table and computes their gradients."""
    inputs = {n: t.detach().requires_grad_() for n, t in x.items() if t is not None and n != "dout"}

    def call():
        with torch.enable_grad():
            out = forward(*(inputs.get(n) for n in ("q", "k", "v", "table")))
        return (out.detach(), *torch.autograd.grad(out, list(inputs.values()), dout))
    return call


def torch_peers(p, x):
    """Return {name of the peer: (estimated peak bytes, function that prepares the call)}."""
    q, k, v, table = (x[n] for n in ("q", "k", "v", "table"))
    sdpa, P = F.scaled_dot_product_attention, p.scores
    if p.term.startswith("relkey"):
        return {"SDPA, products gathered": (4 * P, lambda: lambda: sdpa(q, k, v, shaw(p, q, table))),
                "eager, products gathered": (6 * P, lambda: lambda: eager(q, k, v, shaw(p, q, table))),
                "eager, a vector for each pair": (4 * P + P // p.h * p.d,
                                                  lambda: lambda: eager(q, k, v, shaw_vectors(p, q, table)))}
    if p.passes == "fwdbwd":
        def run(kernel, weight):
            return weight * P, lambda: backward(lambda q, k, v, t: kernel(q, k, v, built(p, t)), x, x["dout"])
        tail = ", bias built in the call" if p.term else ""
        return {"SDPA" + tail: run(sdpa, 12 if p.term else 0), "eager" + tail: run(eager, 10)}
    if not p.term:
        def plain():
            return lambda: sdpa(q, k, v, is_causal=p.causal)
        if p.causal:
            return {"SDPA": (0, plain),
                    "eager, mask built before": (4 * P, lambda: functools.partial(eager, q, k, v, built(p, None)))}
        return {"SDPA": (0, plain), "eager": (3 * P, lambda: lambda: eager(q, k, v, None))}
    peers = {"SDPA, bias built before": (P, lambda: functools.partial(sdpa, q, k, v, dense(p, table))),
             "SDPA, bias built in the call": (5 * P, lambda: lambda: sdpa(q, k, v, built(p, table))),
             "eager, bias built before": (4 * P, lambda: functools.partial(eager, q, k, v, dense(p, table))),
             "eager, bias built in the call": (6 * P, lambda: lambda: eager(q, k, v, built(p, table)))}
    if p.term.startswith("t5"):  # the fastest way to give SDPA this bias, though nobody uses it
        peers["SDPA, bias as a view of a strip"] = (
            0, lambda: lambda: sdpa(q.flip(-2), k, v, view(p, strip(p, table))).flip(-2))
    return peers


@functools.cache
def flex_compiled(b, lq, lk, dtype):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    torch._dynamo.reset()
    return torch.compile(flex_attention, dynamic=False), create_block_mask


def flex_peer(p, x):
    if p.passes == "fwdbwd":
        raise Skip("has no backward pass on a CPU")
    if p.term.startswith("relkey"):
        raise Skip("score_mod does not see the query")
    if p.lk not in (*FLEX_LENGTHS, 49):
        raise Skip("compiles for seconds: timed at 512, 2048 and 8192")
    attend, create_block_mask = flex_compiled(p.b, p.lq, p.lk, p.dtype)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, p.lq, p.lk, device="cpu") if p.causal else None
    if p.term.startswith("swin"):
        bias = built(p, x["table"])[0]
        mod = lambda s, b, h, i, j: s + bias[h, i, j]  # noqa: E731
    elif p.term:  # a lookup in a strip is faster than computing buckets or slopes in score_mod
        bias, last = strip(dataclasses.replace(p, causal=False), x["table"]).contiguous(), p.lq - 1
        mod = lambda s, b, h, i, j: s + bias[h, j - i + last]  # noqa: E731
    else:
        mod = None
    return lambda: attend(x["q"], x["k"], x["v"], score_mod=mod, block_mask=mask)


def onnx_session(kind, bias, causal, heads, dim, threads):
    import onnxruntime
    from onnx import TensorProto, helper
    ins = ["q", "k", "v"] + ["bias"] * bias
    if kind == "MultiHeadAttention":
        nodes = [helper.make_node(kind, ins[:3] + ["", "", "bias"] * bias, ["out"], domain="com.microsoft",
                                  num_heads=heads,
                                  unidirectional=int(causal))]
    elif kind == "Attention":
        nodes = [helper.make_node(kind, ins, ["out"], is_causal=int(causal))]
    else:
        add = [helper.make_node("Add", ["s", "bias"], ["sb"])] * bias
        nodes = [helper.make_node("Mul", ["q", "scale"], ["qs"]),
                 helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
                 helper.make_node("MatMul", ["qs", "kt"], ["s"]), *add,
                 helper.make_node("Softmax", ["sb" if bias else "s"], ["w"], axis=-1),
                 helper.make_node("MatMul", ["w", "v"], ["out"])]
    axes = 3 if kind == "MultiHeadAttention" else 4
    graph = helper.make_graph(nodes, kind, [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * (4 if n == "bias" else axes)) for n in ins],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [helper.make_tensor("scale", TensorProto.FLOAT, [], [dim ** -0.5])] if kind == "MatMul" else [])
    model = helper.make_model(graph, ir_version=10,
                              opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    # idle threads must not spin while other peers are timed
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def onnx_peer(p, x, kind, threads):
    if p.dtype != "f32":
        raise Skip(f"has no {p.dtype} kernels on a CPU")
    if p.passes == "fwdbwd":
        raise Skip("inference only")
    if p.term.startswith("relkey"):
        raise Skip("no operator takes vectors of offsets")
    bias = dense(p, x["table"]) if p.term or (p.causal and kind == "MatMul") else None
    session = onnx_session(kind, bias is not None, p.causal and not p.term, p.h, p.d, threads)
    own = {n: x[n].transpose(1, 2).reshape(p.b, -1, p.h * p.d) if kind == "MultiHeadAttention" else x[n] for n in "qkv"}
    feed = {n: t.numpy() for n, t in own.items()} | ({} if bias is None
                                                     else {"bias": bias.reshape(-1, *bias.shape[-3:]).numpy()
                                   if bias.ndim == 4 else bias[None, None].numpy()})

    def call():
        out = torch.from_numpy(session.run(None, feed)[0])
        return out.view(p.b, p.lq, p.h, p.d).transpose(1, 2) if kind == "MultiHeadAttention" else out
    return call


class Racer:
    def __init__(self, lib, a):
        self.lib, self.pool, self.threads, self.variants = lib, ptr(), a.threads, a.variants.split(",")
        assert lib.rp_pool_create(ctypes.byref(self.pool), a.threads) == 0, lib.rp_last_error()
        self.slow, self.reserve = {}, 0

    def peers(self, p, x):
        return {f"relpos {n}" if i else "relpos": (0, functools.partial(  # the first peer is the baseline
            Relpos, self.lib, self.pool, term=p.term, causal=p.causal, **x, **VARIANTS[n]))
                for i, n in enumerate(self.variants)
        } | torch_peers(p, x) | {
                "flex_attention": (0, lambda: flex_peer(p, x))} | {
                f"ONNX Runtime, {kind}": (4 * p.scores, functools.partial(onnx_peer, p, x, kind, self.threads))
                for kind in ("Attention", "MultiHeadAttention", "MatMul")}

    def make(self, p, x, name, need, maker):
        """Return the call of a peer, or Skip. The memory of earlier peers is still in use."""
        before = self.slow.get((p.passes, p.dtype, p.case, name))
        if before and not name.startswith("relpos") and name not in ALWAYS and before[0] < p.lk:
            raise Skip(f"a call took {before[1]:.1f} s at N = {before[0]}")
        free = next(int(line.split()[1]) * 1024 for line in open("/proc/meminfo") if line.startswith("MemAvailable"))
        if need + self.reserve > 0.85 * free:
            raise Skip(f"needs up to {need * 1e-9:.0f} GB in addition to {self.reserve * 1e-9:.0f} GB of the others, "
                       f"but {free * 1e-9:.0f} GB are free")
        self.reserve = max(self.reserve, need)
        return maker()

    def race(self, p, seconds, rounds):
        x = p.tensors()
        row = {"problem": p.text, "case": p.case, "pass": p.passes, "dtype": p.dtype, "n": p.lk, "flops": p.flops,
               "bytes": sum(t.nbytes for t in x.values() if t is not None) + x["q"].nbytes, "isa": {}, "errors": {},
               "times": {}, "skipped": {}}
        exact = reference(p, x) if p.scores <= 8 * 2048 ** 2 * 4 else None
        row["errors_from"] = "f64" if exact else "relpos"
        calls, first, other, self.reserve = {}, {}, exact, 0
        for name, (need, maker) in self.peers(p, x).items():
            try:
                call = self.make(p, x, name, need, maker)
                # a long call needs no warm-up
                for _ in range(2 if p.scores < 2**30 or name == "flex_attention" else 1):
                    start = time.perf_counter()
                    found = call()
                    first[name] = time.perf_counter() - start
                found = found if isinstance(found, tuple) else (found,)
                other = other or tuple(t.double() for t in found)
                row["errors"][name] = errors(found, other)
                if not row["errors"][name]["max"] < WRONG[p.dtype]:
                    raise Skip(f"computes something else: {row['errors'][name]['max']:.1e} off")
            except Exception as e:
                row["skipped"][name] = (str(e) if isinstance(e, Skip) else f"{type(e).__name__}: "
                                                                           f"{str(e).strip().splitlines()[0]:.120s}")
                continue
            if isinstance(call, Relpos):
                row["isa"][name] = call.isa
            if first[name] > SLOW[p.passes]:
                self.slow.setdefault((p.passes, p.dtype, p.case, name), (p.lk, first[name]))
            calls[name] = call
        others = torch.zeros(COLD // 4) if p.cold else None
        rounds = min(rounds, 3) if sum(first.values()) > LONG else rounds
        times, fastest, end = {name: [] for name in calls}, min(first.values()), time.perf_counter() + seconds
        while time.perf_counter() < end or len(times["relpos"]) < rounds:
            for name, call in calls.items():
                if len(times[name]) >= 2 and first[name] > max(SLOW["fwd"], 4 * fastest):
                    continue  # far slower than the others, so two measurements suffice
                if self.threads > 1:
                    time.sleep(0.002)  # let the threads of the previous call go to sleep
                if p.cold:
                    others.sum()
                start = time.perf_counter()
                call()
                times[name].append(1e3 * (time.perf_counter() - start))
        for name, t in times.items():
            low, median, high = statistics.quantiles(t, n=4, method="inclusive")
            found = {"ms": median, "ms_min": min(t), "ms_low": low, "ms_high": high, "ms_max": max(t)}
            row["times"][name] = {n: float(f"{x:.5g}") for n, x in found.items()} | {"runs": len(t)}
        dense.cache_clear()
        return row

    def memory(self, p, name):
        """Return the peak memory of a call in bytes, minus the tensors. Before, this process has run only one small
        problem of this kind."""
        for q in (dataclasses.replace(p, lq=64, lk=64), p):
            x = q.tensors()
            need, maker = self.peers(q, x)[name]
            gc.collect()
            before = reset_peak()
            call = self.make(q, x, name, need, maker)
            call()
        return status_bytes("VmHWM") - before


def reference(p, x):
    """Return the results of a problem, computed in f64 by torch operations that store the score matrix."""
    x = {n: t.double() if t is not None else None for n, t in x.items()}
    p = dataclasses.replace(p, dtype="f64")
    bias = functools.partial(shaw, p, x["q"]) if p.term.startswith("relkey") else functools.partial(built, p)
    if p.passes == "fwdbwd":
        return backward(lambda q, k, v, t: eager(q, k, v, bias(t)), x, x["dout"])()
    return (eager(x["q"], x["k"], x["v"], bias(x["table"])),)


def errors(found, exact):
    """Return two errors, each the worst over the results of a call: largest error / largest number, and mean error /
    mean absolute value."""
    pairs = [((a.double() - b).abs(), b.abs()) for a, b in zip(found, exact, strict=True)]
    return {n: float(f"{max((of(e) / of(b)).item() for e, b in pairs):.3g}")
            for n, of in (("max", torch.max), ("mean", torch.mean))}


def measure_memory(racer, p, a):
    row = {"problem": p.text, "case": p.case, "pass": p.passes, "n": p.lk, "bytes": {}, "skipped": {}}
    for name in racer.peers(p, p.tensors()):
        if name == "flex_attention":
            continue  # its peak would include the memory of the compiler
        child = subprocess.run([sys.executable, __file__, a.library, "--threads", str(a.threads), "--variants",
                                a.variants,
                                "--memory", p.text + "|" + name], capture_output=True, text=True)
        answer = (child.stdout.strip().splitlines() or [f"ended with status {child.returncode}"])[-1]
        row["bytes" if answer.isdigit() else "skipped"][name] = int(answer) if answer.isdigit() else answer
        print(f"{p.text:44s} {name:34s} {int(answer) * 1e-6:.1f} MB" if answer.isdigit()
              else f"  skipped: {name}: {answer}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("-o", "--output", help="with --only, the rows of this file that do not match are kept")
    parser.add_argument("--only", default="", metavar="REGEX", help="problems whose text matches, such as fwd:f32.*t5")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1, help="for each problem")
    parser.add_argument("--variants", default="",
                        help=f"variants of relpos, separated by commas: {', '.join(VARIANTS)}")
    parser.add_argument("--rounds", type=int, default=5, help="minimum number of rounds; three if a round takes long")
    parser.add_argument("--quick", action="store_true", help="short problems, two rounds: does everything run?")
    parser.add_argument("--memory", help=argparse.SUPPRESS)  # PROBLEM|PEER, for a child process
    a = parser.parse_args()
    lib = load(a.library)
    if not a.variants:
        a.variants = "default" + (",amx,avx512" if lib.rp_isa_found(b"amx") == 1 else "")
    logging.disable(logging.WARNING)  # torch.compile queries CUDA
    torch.set_num_threads(a.threads)
    racer = Racer(lib, a)
    torch.set_grad_enabled(False)
    if a.memory:
        text, name = a.memory.split("|")
        p = next(p for quick in (False, True) for p in memory_problems(quick) if p.text == text)
        try:
            print(racer.memory(p, name))
        except Skip as e:
            print(e)
        return
    command = f"bench/peers.py --threads {a.threads} --seconds {a.seconds:g} --variants {a.variants}"
    result = {"machine": card(lib, a.library, a.threads, command), "rows": [], "memory": []}
    if a.only and a.output and Path(a.output).exists():
        result |= {n: rows for n, rows in json.loads(Path(a.output).read_text()).items() if n != "machine"}

    def keep(kind, row):
        row["commit"] = result["machine"]["commit"]
        result[kind] = [r for r in result[kind] if r["problem"] != row["problem"]] + [row]
        if a.output:
            Path(a.output).write_text("{\n" + ",\n".join(
                f'"{n}": ' + ("[\n" + ",\n".join(json.dumps(x, allow_nan=False) for x in v)
                              + "\n]" if isinstance(v, list) else json.dumps(v, indent=1, allow_nan=False))
                for n, v in result.items()) + "\n}\n")

    printed = set()
    for p in problems(a.quick):
        if not re.search(a.only, p.text):
            continue
        row = racer.race(p, 0 if a.quick else a.seconds, 2 if a.quick else a.rounds)
        ours = row["times"]["relpos"]["ms"]
        print(f"{p.text:44s} relpos {ours:9.3f} ms",
              *(f"{name} {t['ms'] / ours:.2f}" for name, t in row["times"].items()
                if name != "relpos"), sep="; ", flush=True)
        for name, why in row["skipped"].items():
            if (name, why) not in printed:
                print(f"  skipped: {name}: {why}", flush=True)
            printed.add((name, why))
        keep("rows", row)
        gc.collect()
    for p in memory_problems(a.quick):
        if re.search(a.only, "memory:" + p.text):
            keep("memory", measure_memory(racer, p, a))


if __name__ == "__main__":
    main()
