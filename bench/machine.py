"""Describe the machine for the results of a benchmark: processor, compiler, versions, and measured peaks.

    python3 bench/machine.py RELPOS NAME...    describe this machine in bench/results/cards.json, for files of results
                                               without a description

SPDX-License-Identifier: Apache-2.0"""
import ctypes
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

CLOCK = """#include <stdio.h>
#include <time.h>
int main(void) { volatile unsigned long one = 1; double best = 0;
for (int run = 0; run < 20; run++) { struct timespec a, b; unsigned long x = one, y = one; \
clock_gettime(CLOCK_MONOTONIC, &a);
for (int n = 0; n < 10000000; n++) { x *= y; __asm__ volatile("" : "+r"(x)); }
clock_gettime(CLOCK_MONOTONIC, &b); one = x; double s = (b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec);
if (3e7 / s > best) best = 3e7 / s; } printf("%.0f\\n", best); }"""


def output(*command, **more):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, **more).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def processor():
    """Return what lscpu says, by name."""
    return dict(re.findall(r"^ *([^:\n]+): *(.*)$", output("lscpu"), re.M))


def version():
    """Return the commit and today's date."""
    return {"commit": output("git", "describe", "--always", "--dirty=+", cwd=Path(__file__).parent),
            "date": time.strftime("%Y-%m-%d")}


def package_card():
    """Return the description of the machine for results of the Python package beside those of transformers."""
    import torch
    import transformers

    import relpos
    names = ("Model name", "L1d cache", "L2 cache", "L3 cache")
    cpu = processor()
    return {"cpu": {n: cpu[n] for n in names if n in cpu}, "cores": os.cpu_count(), "kernel": platform.release(),
            "isa": relpos.show_config()["isa"], "torch": torch.__version__, "transformers": transformers.__version__,
            "python": platform.python_version()}


def status_bytes(name):
    """Return a number of bytes of this process: its resident memory now (VmRSS), or at most (VmHWM)."""
    return 1024 * int(re.search(rf"^{name}:\s+(\d+)", Path("/proc/self/status").read_text(), re.M)[1])


def reset_peak():
    """Reset the largest resident memory of this process to the present one, and return it."""
    Path("/proc/self/clear_refs").write_text("5")
    return status_bytes("VmRSS")


def clock():
    """Return the frequency of one core in Hz, or 0 if it is unknown. It is measured with a chain of integer
    multiplications of three cycles each (x86-64)."""
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"clock.{os.getpid()}"
    output("cc", "-O2", "-x", "c", "-", "-o", str(path), input=CLOCK)
    found = output(str(path)) if platform.machine() == "x86_64" else ""
    path.unlink(missing_ok=True)
    return float(found or 0)


def card(lib, library, threads, command):
    """Return the description of the machine for results of `command`, with peaks for each number of threads. `lib` is
    the library, loaded from the path `library`."""
    import numpy as np
    import onnxruntime
    import torch

    from relpos_ctypes import f64, ptr
    info = json.loads(output(str(Path(library).parent / "relpos"), "info", "--json") or "{}")
    cpu = processor()
    ninja = Path(library).parent / "build.ninja"
    flags = re.search(r"src/api/attend\.c\.o:.*?FLAGS = (.*?)\n", ninja.read_text(), re.S) if ninja.exists() else None
    peaks, reads = {}, {}
    for count in sorted({1, threads, len(os.sched_getaffinity(0))}):
        pool, found = ptr(), f64()
        assert lib.rp_pool_create(ctypes.byref(pool), count) == 0
        for n in range(32):
            isa = lib.rp_isa_name(n)
            if isa and lib.rp_isa_found(isa) == 1 and lib.rp_measure_peak(isa, pool, ctypes.byref(found)) == 0:
                peaks.setdefault(isa.decode(), {})[str(count)] = found.value
        if lib.rp_measure_tile_peak(pool, ctypes.byref(found)) == 0:
            peaks.setdefault("amx tiles, bf16", {})[str(count)] = found.value
        assert lib.rp_measure_bandwidth(pool, ctypes.byref(found)) == 0, lib.rp_last_error()
        reads[str(count)] = found.value
        lib.rp_pool_destroy(pool)
    return {"cpu": cpu.get("Model name", "unknown"), "cores": os.cpu_count(), "clock_hz": clock(),
            "caches": {n: cpu[n] for n in ("L1d cache", "L2 cache", "L3 cache") if n in cpu},
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "kernel": platform.release(),
            "relpos": lib.rp_version().decode(), **version(),
            "isa": lib.rp_isa_default().decode(), "compiler": info.get("build", {}).get("compiler", "unknown"),
            "build": info.get("build", {}).get("type", "unknown"),
            "flags": " ".join(f for f in flags.group(1).split() if "prefix-map" not in f) if flags else "unknown",
            "threads": threads, "peak_gflops": peaks, "bytes_per_s": reads, "python": platform.python_version(),
            "torch": torch.__version__, "torch_cpu": torch.backends.cpu.get_cpu_capability(),
            "onnxruntime": onnxruntime.__version__,
            "numpy": np.__version__, "load": os.getloadavg()[0], "command": command}


def describe(relpos, names):
    """Write the description of this machine to bench/results/cards.json, for the result files `names` of the program
    `relpos`."""
    path = Path(__file__).resolve().parent / "results/cards.json"
    info = json.loads(output(relpos, "info", "--json"))
    found = {"cpu": processor().get("Model name", "unknown"), "cores": os.cpu_count(), "isa": info["isa"],
             "compiler": info["build"]["compiler"], **version()}
    cards = json.loads(path.read_text())
    cards.update({name: found for name in names})
    path.write_text(json.dumps(cards, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    describe(sys.argv[1], sys.argv[2:])
