#!/usr/bin/env python3
"""Time linear layers of relpos, oneDNN and OpenBLAS, and write bench/results/linear.json. Needs libdnnl-dev and
`ninja -C build/release bench_linear`. Standard library only.

    bench/linear.py [--samples 15] [--out bench/results/linear.json] [--quick] [--types bf16 int8] [--threads 1]
    bench/linear.py --reads [--threads 1 2] [--out bench/results/linear_reads.json]
    bench/linear.py --table bench/results/linear.json        # print tables in Markdown, beginning with the worst ratio

--reads times products with a matrix that is larger than the last-level cache: of one row on one thread, and of 1, 16
and 512 rows on two threads. For one row, the results include the fraction of the memory's read bandwidth. The bandwidth
is measured as by `relpos info`, alternating with the products. Measure two threads on an idle machine.

Times are processor time for one thread, and elapsed time for two. OPENBLAS_CORETYPE is set to the machine's core
(SkylakeX with AVX-512).
SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import os
import platform
import subprocess
import sys
import time

ROWS = (1, 4, 8, 16, 64, 512)
SHAPES = ((512, 512), (512, 2048), (2048, 512), (768, 3072), (512, 32128), (4096, 10240))
LARGE = (8192, 10240)  # 47 MB in int4
TYPES = ("f32", "f16", "bf16", "int8", "int4")
PEERS = ("dnnl_matmul", "dnnl_inner_product", "openblas")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def card():
    """Return a description of the machine and the versions."""
    cpu = {}
    for line in output("lscpu").splitlines():
        key, _, value = line.partition(":")
        cpu[key.strip()] = value.strip()
    versions = {p: output("dpkg-query", "-W", "-f", "${Version}", p) for p in ("libdnnl2", "libopenblas0-pthread")}
    return {"processor": cpu.get("Model name"), "family": cpu.get("CPU family"), "model": cpu.get("Model"),
            "flags": [f for f in cpu.get("Flags", "").split() if f.startswith(("avx", "fma", "amx"))],
            "caches": {k: v for k, v in cpu.items() if "cache" in k}, "cpus": os.cpu_count(),
            "system": platform.release(),
            "compiler": output("cc", "--version").splitlines()[0], "versions": versions,
            "commit": output("git", "rev-parse", "--short", "HEAD"), "date": time.strftime("%Y-%m-%d"),
            "load": os.getloadavg()}


def run(program, threads, kind, rows, k, n, samples):
    flags = open("/proc/cpuinfo").read()
    core = "SkylakeX" if "avx512f" in flags else "Haswell"
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_CORETYPE": core}
    found = subprocess.run([program, *map(str, (threads, kind, rows, k, n, samples))], env=env, capture_output=True,
                           text=True)
    if found.returncode:
        sys.exit(f"linear.py: {kind} {rows} x {k} x {n}: {found.stderr.strip()}")
    return json.loads(found.stdout)


def measured(a, machine):
    """Measure each case, and save each result immediately."""
    results = []
    cases = [(1, t, m, k, n) for t in TYPES for m in ROWS for k, n in SHAPES]
    cases += [(2, t, m, k, n) for m in (1, 512) for k, n in SHAPES for t in TYPES]
    if a.reads:
        cases = [(1, t, 1, *LARGE) for t in TYPES] + [(2, t, m, *LARGE) for m in (1, 16, 512) for t in TYPES]
    cases = [c for c in cases if c[0] in a.threads and c[1] in a.types]
    for threads, kind, rows, k, n in cases[::5] if a.quick else cases:
        samples = max(5, a.samples // 3) if rows * k * n > 1e10 else a.samples
        results.append(run(a.program, threads, kind, rows, k, n, samples))
        print(line(results[-1], results), flush=True)
        machine["load after"] = os.getloadavg()
        with open(a.out, "w") as f:
            rows = ",\n".join(json.dumps(r, allow_nan=False) for r in results)
            f.write(f'{{"machine": {json.dumps(machine, allow_nan=False)},\n"results": [\n{rows}\n]}}\n')


def best(r):
    """Return (time of the fastest peer / time of relpos, name of the peer), or None without a peer."""
    times = [(r[f"{p}/relpos"][1], p) for p in PEERS if f"{p}/relpos" in r]
    return min(times) if times else None


def line(r, results):
    """Return a row of the table. Peak and bandwidth are the maxima over all cases, because other work on the machine
    only lowers them."""
    peak = max(x["peak_gflops"] for x in results if x["threads"] == r["threads"])
    bandwidth = max(x["bandwidth"] for x in results if x["threads"] == r["threads"])
    t, peer = r["relpos"][1], best(r)
    rate = 2e-9 * r["rows"] * r["in"] * r["out"] / t
    share = r["share"][1] if "share" in r else r["bytes"] / t / bandwidth
    alone = "{:.2f} ({:.2f}–{:.2f})".format(r["one_thread/relpos"][1], r["one_thread/relpos"][0],
                                            r["one_thread/relpos"][2]) if "one_thread" in r else ""
    name = {"dnnl_matmul": "oneDNN", "dnnl_inner_product": "oneDNN", "openblas": "OpenBLAS"}
    beside = ("" if peer is None else f"{peer[0]:.2f} "
                                      f"({r[peer[1] + '/relpos'][0]:.2f}–{r[peer[1] + '/relpos'][2]:.2f}) "
                                      f"{name[peer[1]]}")
    blas = f"{r['openblas/relpos'][1]:.2f}" if "openblas/relpos" in r else ""
    return (f"| {r['type']} | {r['rows']} × {r['in']} × {r['out']} | {r['threads']} | {1e6 * t:.4g} | {rate:.0f} "
            f"| {100 * rate / peak:.0f} % | {100 * share:.0f} % | {beside} | {blas} | {alone} |")


def table(results):
    print("| weights | M × K × N | threads | µs | GFLOP/s | of the f32 peak | bytes of weights over read bandwidth | "
          "fastest peer ÷ relpos (quartiles) | OpenBLAS ÷ relpos | one thread ÷ all (quartiles) |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    for r in sorted(results, key=lambda r: best(r)[0] if best(r) else 99):
        print(line(r, results))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--program", default="build/release/bench_linear")
    a.add_argument("--samples", type=int, default=15)
    a.add_argument("--out")
    a.add_argument("--reads", action="store_true")
    a.add_argument("--quick", action="store_true", help="every fifth case")
    a.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    a.add_argument("--threads", nargs="+", type=int, choices=(1, 2), default=(1, 2))
    a.add_argument("--table", metavar="FILE")
    a = a.parse_args()
    if a.table:
        return table(json.load(open(a.table))["results"])
    a.out = a.out or f"bench/results/linear{'_reads' if a.reads else ''}.json"
    measured(a, card())


if __name__ == "__main__":
    main()
