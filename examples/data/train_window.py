#!/usr/bin/env python3
"""Train the bias table of a 7 x 7 window for the explorer: relpos.torch.WindowAttention learns to fill in hidden
patches of pictures.

    python3 examples/data/train_window.py [OUT]     a minute on one core; OUT: by default window.safetensors in this
                                                    folder

A picture has 28 x 28 pixels. It shows discs of random sizes, places and greys, which cover earlier discs (the
dead-leaves model, whose statistics are similar to those of photographs). Its tokens are 7 x 7 patches of 4 x 4 pixels.
A third of the patches is hidden, and the layer predicts them from the others. The file has the table, (169, 4). Its
metadata has three mean squared errors on pictures outside the training set: of this layer, of a layer trained in the
same way without a table, and of predicting the mean grey of the visible patches. Needs relpos, torch and safetensors.
SPDX-License-Identifier: Apache-2.0"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import relpos.torch

GRID, PATCH, HEADS, WIDTH, STEPS, BATCH = 7, 4, 4, 32, 500, 64


def pictures(rng, n):
    """Return pictures (n, patches, pixels of a patch), each with mean 0."""
    size = GRID * PATCH
    y, x = np.mgrid[:size, :size]
    found = np.zeros((n, size, size), np.float32)
    for picture in found:
        discs = 60
        radius = 2.0 / rng.uniform(0.1, 1, discs)  # 2 to 20 pixels, with a density proportional to 1/r^2
        middle = rng.uniform(-10, size + 10, (2, discs))
        for r, row, column, grey in zip(radius, *middle, rng.normal(size=discs)):
            picture[(y - row) ** 2 + (x - column) ** 2 < r * r] = grey
    found = found.reshape(n, GRID, PATCH, GRID, PATCH).swapaxes(2, 3).reshape(n, GRID * GRID, PATCH * PATCH)
    return torch.from_numpy(found - found.mean((1, 2), keepdims=True))


class Layer(torch.nn.Module):
    """A layer that predicts hidden patches. The input of a hidden patch is zeros and a flag."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(PATCH * PATCH + 1, WIDTH)
        self.window = relpos.torch.WindowAttention(WIDTH, HEADS, window_size=GRID)
        self.say = torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.GELU(), torch.nn.Linear(64, PATCH * PATCH))

    def forward(self, x, hidden):
        flag = hidden[..., None].float()
        return self.say(self.window(self.embed(torch.cat((x * (1 - flag), flag), -1))))


def hide(rng, n):
    """Choose a third of the patches of each picture, which will be hidden."""
    order = rng.random((n, GRID * GRID)).argsort(-1)
    return torch.from_numpy(order < GRID * GRID // 3)


def error(said, x, hidden):
    return ((said - x) ** 2)[hidden].mean()


def train(with_table):
    """Train a layer. Return (table, error on pictures that are not in the training set)."""
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    kept = pictures(rng, 2048)
    layer = Layer()
    table = layer.window.relative_position_bias_table
    torch.nn.init.zeros_(table)
    table.requires_grad_(with_table)
    adam = torch.optim.Adam([p for p in layer.parameters() if p.requires_grad], lr=3e-3)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS)
    for _ in range(STEPS):
        x = kept[torch.from_numpy(rng.integers(0, len(kept), BATCH))]
        hidden = hide(rng, BATCH)
        loss = error(layer(x, hidden), x, hidden)
        adam.zero_grad()
        loss.backward()
        adam.step()
        slower.step()
    with torch.no_grad():
        return table.detach(), error(layer(TEST, HIDDEN), TEST, HIDDEN).item()


out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "window.safetensors"
torch.set_num_threads(1)
fresh = np.random.default_rng(2)
TEST, HIDDEN = pictures(fresh, 512), hide(fresh, 512)
table, learned = train(True)
_, without = train(False)
seen = (~HIDDEN)[..., None].float()
grey = (TEST * seen).sum((1, 2), keepdim=True) / (seen.sum((1, 2), keepdim=True) * PATCH * PATCH)
errors = {"with the table": learned, "without a table": without,
          "mean grey": error(grey.expand_as(TEST), TEST, HIDDEN).item()}
errors = {name: round(x, 3) for name, x in errors.items()}
print(errors)
save_file({"swin.table": table.contiguous()}, out, {"made_by": "examples/data/train_window.py",
                                                    "errors": json.dumps(errors)})
