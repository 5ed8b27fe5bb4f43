#!/usr/bin/env python3
"""make_sam.py -- decomposed relative positions: Hugging Face's SamVisionAttention and VitDetAttention, in float64.

rel_pos_h and rel_pos_w are rh and rw of the contract (axialkey). They are indexed by query - key and multiplied with
the unscaled query. Sam runs in its sdpa class, because the eager softmax is float32 (one case uses it, for the
weights).

SPDX-License-Identifier: Apache-2.0
"""
from transformers import SamVisionConfig, VitDetConfig
from transformers.models.sam.modeling_sam import SamVisionAttention, SamVisionSdpaAttention
from transformers.models.vitdet.modeling_vitdet import VitDetAttention

from common import Family, Tap, gradients, heads, randn, randomize, seed

F = Family("sam")
TOL = 1e-12
H, D = 2, 4


def case(name, m, grid, batch, weights=True, tolerance=TOL):
    randomize(m)
    n = grid[0] * grid[1]
    tap = Tap(qkv=m.qkv, out=(m.proj,))
    answer = m(randn(batch, *grid, H * D), output_attentions=weights)
    split = lambda x: dict(zip(("q", "k", "v"), (heads(y, H) for y in x.reshape(batch, n, -1).chunk(3, -1))))
    out = tap["out"].reshape(batch, n, -1)
    dout = randn(batch, n, H * D)
    g = gradients(out, dout, qkv=tap["qkv"], rh=m.rel_pos_h, rw=m.rel_pos_w)
    want = {"d" + x: y for x, y in split(g["dqkv"]).items()}
    want.update(drh=g["drh"], drw=g["drw"], out=heads(out, H))
    if weights:
        want["weights"] = answer[1].reshape(batch, H, n, n)
    F.case(name, tolerance, "--axialkey rh=rh,rw=rw,grid=%dx%d --grad%s" % (*grid, " --weights" if weights else ""),
           dict(split(tap["qkv"]), dout=heads(dout, H), rh=m.rel_pos_h, rw=m.rel_pos_w), want)


def sam(name, side, batch, eager=False):
    seed(name)
    config = SamVisionConfig(hidden_size=H * D, num_attention_heads=H, use_rel_pos=True, attention_dropout=0.0)
    m = (SamVisionAttention if eager else SamVisionSdpaAttention)(config, side)
    case(name, m, (side, side), batch, weights=eager, tolerance=1e-6 if eager else TOL)


def vitdet(name, grid, batch=1):
    seed(name)
    config = VitDetConfig(hidden_size=H * D, num_attention_heads=H, use_relative_position_embeddings=True)
    case(name, VitDetAttention(config, input_size=grid), grid, batch)


sam("sam_window", 4, 1)
sam("sam_window_batch", 3, 2)
sam("sam_window_weights", 3, 1, eager=True)
vitdet("sam_vitdet_square", (3, 3))
vitdet("sam_vitdet_wide", (2, 6))
vitdet("sam_vitdet_tall", (5, 3))
F.finish()
