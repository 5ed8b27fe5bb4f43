"""Add t5_table to gettysburg.safetensors: an invented table in the shape of T5's, (32 buckets, 12 heads).

Run by hand, with numpy and safetensors:  python3 examples/data/make_t5_table.py
Bucket c of T5 (32 buckets, max_distance 128, bidirectional) has a distance d and a side. Entry [c, h] is
    2 exp(-d / reach_h) - 0.1 log(1 + d) + side_h / (1 + d / reach_h),  reach_h = 1.5 * 1.5^h, side_h = ±0.5
    alternately.
SPDX-License-Identifier: Apache-2.0
"""
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

path = Path(__file__).with_name("gettysburg.safetensors")
with safe_open(path, "np") as f:
    arrays = {name: f.get_tensor(name) for name in ("q", "k", "v")}
    metadata = f.metadata()

# the mean distance of each of the 16 buckets of one side
edges = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91, 128]
distance = np.array([(edges[c] + edges[c + 1] - 1) / 2 for c in range(16)])
table = np.empty((32, 12))
for h in range(12):
    reach, tilt = 1.5 * 1.5**h, (0.5 if h % 2 else -0.5)
    base = 2 * np.exp(-distance / reach) - 0.1 * np.log1p(distance)
    side = tilt / (1 + distance / reach)
    table[:16, h] = base - side  # keys before the query
    table[16:, h] = base + side  # keys after it
arrays["t5_table"] = table.astype(np.float32)
save_file(arrays, path, metadata)
