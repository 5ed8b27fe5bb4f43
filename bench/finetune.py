"""Fine-tune a small T5 with random weights on a CPU, with torch's eager attention, SDPA and relpos, and measure the
time per step, memory and losses.

    bench/finetune.py -o bench/results/finetune.json [--lengths 512,1024,2048,4096] [--threads 1] [--steps 3]

Each implementation runs in a separate process, with the same weights and tokens. The first step is not timed. A last
step times only the linear layers (linear_seconds), which torch computes in all three. peak_bytes is the largest
resident size of the process, and start_bytes the resident size before the first step. Needs the Python package, torch
and transformers. bench/report.py and bench/plots.py show the results.

SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from machine import status_bytes

IMPLEMENTATIONS = ("eager", "sdpa", "relpos")
MODEL = dict(vocab_size=32128, d_model=512, d_kv=64, d_ff=1024, num_layers=8, num_decoder_layers=8, num_heads=6,
             feed_forward_proj="gated-gelu", decoder_start_token_id=0, dropout_rate=0.0)  # as in T5 v1.1 small


def run(a):
    import torch
    import transformers
    torch.set_num_threads(a.threads)
    if a.one == "relpos":
        import relpos.hf  # noqa: F401
    torch.manual_seed(1)
    model = transformers.T5ForConditionalGeneration._from_config(transformers.T5Config(**MODEL),
                                                                 attn_implementation=a.one).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(3, MODEL["vocab_size"], (a.batch, a.one_length))
    labels = torch.randint(3, MODEL["vocab_size"], (a.batch, a.target))
    start, seconds, losses = status_bytes("VmHWM"), [], []

    def step():
        begin = time.perf_counter()
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())

    for _ in range(1 + a.steps):
        step()
    timed, peak = sorted(seconds[1:]), status_bytes("VmHWM")
    linear = 0

    class Products(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            nonlocal linear
            begin = time.perf_counter()
            result = operator(*args, **kwargs or {})
            if operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
                linear += time.perf_counter() - begin
            return result

    with Products():
        step()
    return dict(implementation=a.one, length=a.one_length, seconds=statistics.median(timed), seconds_min=timed[0],
                seconds_max=timed[-1], linear_seconds=linear, peak_bytes=peak, start_bytes=start, losses=losses)


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("-o", "--output", help="file for the results, as JSON")
    options.add_argument("--lengths", default="512,1024,2048,4096", help="tokens of the encoder")
    options.add_argument("--target", type=int, default=128, help="tokens of the decoder")
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--steps", type=int, default=3, help="number of timed steps")
    # set when this script runs itself for one implementation
    options.add_argument("--one", choices=IMPLEMENTATIONS, help=argparse.SUPPRESS)
    options.add_argument("--one-length", type=int, help=argparse.SUPPRESS)
    a = options.parse_args()
    if a.one:
        json.dump(run(a), sys.stdout, allow_nan=False)
        return
    given = [f"--{name}={getattr(a, name)}" for name in ("target", "batch", "threads", "steps")]
    found = []
    for length in map(int, a.lengths.split(",")):
        for name in IMPLEMENTATIONS:
            command = [sys.executable, __file__, "--one", name, "--one-length", str(length), *given]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            if done.returncode:  # for example out of memory
                found.append(dict(implementation=name, length=length, failed=done.returncode))
                print(f"{length:6} {name:7} failed with {done.returncode}")
                continue
            found.append(json.loads(done.stdout))
            x = found[-1]
            print(f"{length:6} {name:7} {x['seconds']:8.3f} s per step ({x['seconds_min']:.3f} to "
                  f"{x['seconds_max']:.3f}), "
                  f"{x['linear_seconds']:.3f} s of them in linear layers, peak {x['peak_bytes'] / 1e6:.0f} MB, "
                  f"{x['start_bytes'] / 1e6:.0f} MB at the start, last loss {x['losses'][-1]:.5f}", flush=True)
    import relpos
    import torch
    import transformers
    cpu = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    result = dict(machine=dict(cpu=cpu, cores=os.cpu_count(), relpos=relpos.show_config(), torch=torch.__version__,
                               transformers=transformers.__version__),
                  problem=dict(model=MODEL, target=a.target, batch=a.batch, threads=a.threads, steps=a.steps),
                  results=found)
    if a.output:
        Path(a.output).write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
