"""A step of fine-tuning a small T5 with random weights, on a CPU: time, memory and loss with torch's eager attention, with SDPA and
with relpos.

    bench/finetune.py [-o bench/results/finetune.json] [--length 4096] [--threads 1] [--steps 5]

Each implementation runs in a process of its own, with the same weights and the same tokens, and takes one step that is not timed
first. peak_bytes is the largest resident size of that process, start_bytes what it had before its first step. It needs the Python
package, torch and transformers.

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

IMPLEMENTATIONS = ("eager", "sdpa", "relpos")
MODEL = dict(vocab_size=32128, d_model=512, d_kv=64, d_ff=1024, num_layers=8, num_decoder_layers=8, num_heads=6,
             feed_forward_proj="gated-gelu", decoder_start_token_id=0, dropout_rate=0.0)  # as in T5 v1.1 small


def status_bytes(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":"))
    return 1024 * int(line.split()[1])


def run(a):
    import torch
    import transformers
    torch.set_num_threads(a.threads)
    if a.one == "relpos":
        import relpos.hf  # noqa: F401
    torch.manual_seed(1)
    model = transformers.T5ForConditionalGeneration._from_config(transformers.T5Config(**MODEL), attn_implementation=a.one).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(3, MODEL["vocab_size"], (a.batch, a.length))
    labels = torch.randint(3, MODEL["vocab_size"], (a.batch, a.target))
    start, seconds, losses = status_bytes("VmHWM"), [], []
    for _ in range(1 + a.steps):
        begin = time.perf_counter()
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
    timed = sorted(seconds[1:])
    return dict(implementation=a.one, seconds=statistics.median(timed), seconds_min=timed[0], seconds_max=timed[-1],
                peak_bytes=status_bytes("VmHWM"), start_bytes=start, losses=losses)


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("-o", "--output", help="where the results go as JSON")
    options.add_argument("--length", type=int, default=4096, help="tokens of the encoder")
    options.add_argument("--target", type=int, default=128, help="tokens of the decoder")
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--steps", type=int, default=5, help="that are timed")
    options.add_argument("--one", choices=IMPLEMENTATIONS, help=argparse.SUPPRESS)  # of a process for one implementation
    a = options.parse_args()
    if a.one:
        json.dump(run(a), sys.stdout)
        return
    given = [f"--{name}={getattr(a, name)}" for name in ("length", "target", "batch", "threads", "steps")]
    found = []
    for name in IMPLEMENTATIONS:
        done = subprocess.run([sys.executable, __file__, "--one", name, *given], stdout=subprocess.PIPE, text=True)
        if done.returncode:  # such as too little memory
            found.append(dict(implementation=name, failed=done.returncode))
            print(f"{name:7} failed with {done.returncode}")
            continue
        found.append(json.loads(done.stdout))
        x = found[-1]
        print(f"{name:7} {x['seconds']:8.3f} s a step ({x['seconds_min']:.3f} to {x['seconds_max']:.3f}), "
              f"{x['peak_bytes'] / 1e6:7.0f} MB at most, {x['start_bytes'] / 1e6:.0f} MB before, last loss {x['losses'][-1]:.5f}")
    import relpos
    import torch
    import transformers
    cpu = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    result = dict(machine=dict(cpu=cpu, cores=os.cpu_count(), relpos=relpos.show_config(), torch=torch.__version__,
                               transformers=transformers.__version__),
                  problem=dict(model=MODEL, length=a.length, target=a.target, batch=a.batch, threads=a.threads, steps=a.steps),
                  results=found)
    if a.output:
        Path(a.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
