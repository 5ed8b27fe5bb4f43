"""Time transformers' T5-small with random weights in one process, alternately with attn_implementation="relpos", "sdpa" and "eager": encoding
128, 512 and 2,048 tokens, and generating 64 tokens from 128, for each number of threads. Also time each part of a decoding step separately.

    python3 bench/hf.py -o bench/results/hf.json

SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import time
import timeit
from pathlib import Path

import relpos.hf
import torch
import transformers

KINDS = ("relpos", "sdpa", "eager")


def make():
    config = transformers.T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_decoder_layers=6, num_heads=8,
                                   decoder_start_token_id=0, eos_token_id=None)
    torch.manual_seed(0)
    return transformers.T5ForConditionalGeneration(config).eval()


def measure(model, problem, threads, run, rounds):
    """Time run() with each implementation of KINDS in turn. Return a row of results: for each implementation the median, first and third
    quartile of the milliseconds, elapsed and of the processor. On a shared machine, use the processor time of one thread; with several
    threads it includes time in which threads wait for each other."""
    clocks = {"ms": time.perf_counter, "processor_ms": time.process_time}
    times = {name: {kind: [] for kind in KINDS} for name in clocks}
    for n in range(rounds + 1):
        for kind in KINDS[n % 3:] + KINDS[:n % 3]:
            model.set_attn_implementation(kind)  # all kinds use the same weights in the same memory
            start = {name: clock() for name, clock in clocks.items()}
            run()
            for name, clock in clocks.items():
                times[name][kind].append(1e3 * (clock() - start[name]))
    row = {"problem": problem, "threads": threads}
    for name in clocks:
        row[name] = {kind: [statistics.quantiles(t[1:], n=4)[x] for x in (1, 0, 2)] for kind, t in times[name].items()}
        ms = {kind: x[0] for kind, x in row[name].items()}
        print(f"{problem:21} {threads} threads {name:12}", *(f"{kind} {x:7.1f}" for kind, x in ms.items()),
              *(f"{ms[kind] / ms['relpos']:.2f} x {kind}" for kind in KINDS[1:]), flush=True)
    return row


def microseconds(call, number=1000):
    return 1e6 * min(timeit.repeat(call, number=number, repeat=5)) / number


def parts():
    """Return the microseconds of one attention call of a decoder (8 heads of 64 channels, one query, 128 keys) and of its
    parts."""
    one = relpos.hf

    class Module:
        is_causal, num_key_value_groups, training = True, 1, False

    q, x = torch.randn(1, 1, 8, 64).transpose(1, 2), torch.randn(1, 8, 128, 64)
    small, bias, table = torch.ones(1, 1, 1, 4), torch.randn(1, 8, 1, 128), torch.randn(32, 8)
    term = relpos.T5(table, bidirectional=False)
    mask, given = one.Mask((1, 1, 1, 128), {"causal": True, "q_offset": 127}), {"bias": term, "q_offset": 127}
    plan = relpos.Plan(1, 8, 1, 256, 64, bias=term, causal=True)
    sdpa = transformers.integrations.sdpa_attention.sdpa_attention_forward
    return {name: microseconds(call) for name, call in {
        "relpos.hf.attention, T5's bias": lambda: one.attention(Module, q, x, x, mask, scaling=1.0, position_bias=given),
        "relpos.hf.attention, no bias": lambda: one.attention(Module, q, x, x, None, scaling=1.0, is_causal=False),
        "relpos.attention, T5's bias": lambda: relpos.attention(q, x, x, bias=term, causal=True, q_offset=127),
        "relpos.attention, no bias": lambda: relpos.attention(q, x, x),
        "relpos.Plan, T5's bias": lambda: plan(q, x, x, q_offset=127),
        "relpos.attention of one number": lambda: relpos.attention(small, small, small),
        "making the term": lambda: relpos.T5(table, bidirectional=False),
        "making the mask": lambda: one.mask(1, 1, 128, 127),
        "transformers' sdpa, an array of biases": lambda: sdpa(Module, q, x, x, None, scaling=1.0, position_bias=bias),
    }.items()}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def card():
    names = ("Model name", "L1d cache", "L2 cache", "L3 cache")
    cpu = dict(line.split(":", 1) for line in output("lscpu").splitlines() if ":" in line)
    return {"cpu": {n: cpu[n].strip() for n in names if n in cpu}, "cores": os.cpu_count(), "kernel": platform.release(),
            "commit": output("git", "describe", "--always", "--dirty=+"), "isa": relpos.show_config()["isa"], "torch": torch.__version__,
            "transformers": transformers.__version__, "python": platform.python_version(), "date": time.strftime("%Y-%m-%d")}


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--lengths", type=int, nargs="*", default=[128, 512, 2048])
    parser.add_argument("--rounds", type=int, default=9)
    a = parser.parse_args()
    model, rows = make(), []
    for threads in a.threads:
        torch.set_num_threads(threads)
        for length in a.lengths:
            ids = torch.randint(1, 32000, (1, length))
            rounds = a.rounds if length > 1000 else 3 * a.rounds
            rows.append(measure(model, f"encode {length}", threads, lambda: model.encoder(input_ids=ids), rounds))
        ids = torch.randint(1, 32000, (1, 128))
        rows.append(measure(model, "generate 64 from 128", threads, lambda: model.generate(
            ids, min_new_tokens=64, max_new_tokens=64, do_sample=False), a.rounds))
    torch.set_num_threads(1)
    found = {"machine": card(), "rows": rows, "parts_us": parts()}
    for name, time_us in found["parts_us"].items():
        print(f"{name:40} {time_us:6.1f} us")
    if a.output:
        Path(a.output).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
