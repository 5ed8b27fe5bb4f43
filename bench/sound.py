"""Time layers of Parakeet's encoder with random weights on a long sound, alternately with attn_implementation="relpos"
and "sdpa", and measure their memory.

    python3 bench/sound.py -o bench/results/sound.json [--minutes 10] [--layers 1] [--threads 1] [--rounds 3]

The layers have the shape of the default config, which has 24 of them: 1024 numbers and 8 heads of 128 channels. A
minute has 750 frames. The time and the memory are those of a call of the encoder on vectors of sound, 80 numbers every
10 ms. peak_bytes is the largest resident size during a call minus the size before it. layers_seconds and layers_bytes
are those of the layers alone, after the convolutions that make the frames. Both implementations use the same weights.
Needs the Python package, torch and transformers.

SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import statistics
import time
from pathlib import Path

import relpos.hf  # noqa: F401 registers the implementation
import torch
import transformers

from machine import package_card, reset_peak, status_bytes, version

IMPLEMENTATIONS = ("relpos", "sdpa")


def once(model, features, implementation):
    """Return the seconds of a call and of its layers, the peaks of their memory, and the result."""
    model.set_attn_implementation(implementation)
    found = {}

    def framed(*_):
        found.update(frames=status_bytes("VmHWM"), middle=reset_peak(), time=time.perf_counter())

    hook = model.subsampling.register_forward_hook(framed)
    before, start = reset_peak(), time.perf_counter()
    out = model(features).last_hidden_state
    end, peak = time.perf_counter(), status_bytes("VmHWM")
    hook.remove()
    return end - start, end - found["time"], max(peak, found["frames"]) - before, peak - found["middle"], out


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--minutes", type=float, nargs="+", default=[10])
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="calls of each implementation")
    a = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    config = transformers.ParakeetEncoderConfig(num_hidden_layers=a.layers)
    model = transformers.ParakeetEncoder(config).eval()
    rows = []
    for minutes in a.minutes:
        features = torch.randn(1, int(6000 * minutes), config.num_mel_bins)
        seconds, layers, peaks, layer_peaks, outs = ({kind: [] for kind in IMPLEMENTATIONS} for _ in range(5))
        once(model, features[:, :800], "relpos")  # creates what later calls use again
        for n in range(a.rounds):
            for kind in IMPLEMENTATIONS[::-1 if n % 2 else 1]:
                *found, outs[kind] = once(model, features, kind)
                for into, x in zip((seconds, layers, peaks, layer_peaks), found):
                    into[kind].append(x)
                print(f"{minutes:g} minutes, {kind}: {found[0]:.1f} s, {found[2] / 1e6:.0f} MB, layers {found[1]:.1f} "
                      f"s, {found[3] / 1e6:.0f} MB", flush=True)
        apart = float((outs["relpos"] - outs["sdpa"]).abs().max() / outs["sdpa"].abs().max())
        rows.append({"minutes": minutes, "frames": outs["sdpa"].shape[1], "layers": a.layers, "threads": a.threads,
                     "seconds": seconds, "layers_seconds": layers,
                     "peak_bytes": {kind: max(x) for kind, x in peaks.items()},
                     "layers_bytes": {kind: max(x) for kind, x in layer_peaks.items()},
                     "largest_relative_difference": apart, "over_relpos": statistics.median(
                         x / y for x, y in zip(seconds["sdpa"], seconds["relpos"])), **version()})
        print(json.dumps(rows[-1], allow_nan=False), flush=True)
    if a.output:
        a.output.write_text(json.dumps({"machine": package_card(), "hidden": config.hidden_size,
                                        "heads": config.num_attention_heads, "rows": rows}, indent=1, allow_nan=False)
                            + "\n")


if __name__ == "__main__":
    main()
