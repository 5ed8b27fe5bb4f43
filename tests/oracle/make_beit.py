#!/usr/bin/env python3
"""make_beit.py -- BEiT: a class token before the window, and three more rows in the table, in float64.

The last rows are class to token, token to class, and class to class, in both peers and in the contract (extra=1).
Hugging Face is used only for square windows: its BeitRelativePositionBias reshapes the table to (width, height) before
resizing it to (height, width). This mixes the entries of a window that is not square, even if the size does not
change. timm is used for both kinds.

SPDX-License-Identifier: Apache-2.0
"""
import timm.models.beit
from transformers import BeitConfig
from transformers.models.beit.modeling_beit import BeitAttention, BeitRelativePositionBias

from common import Family, Tap, gradients, heads, randn, randomize, seed

F = Family("beit")
TOL = 1e-12
H, D = 2, 4


def write(name, grid, q, k, v, table, out, dout, g):
    F.case(name, TOL, "--bias swin,table=table,grid=%dx%d,extra=1 --grad" % grid,
           {"q": q, "k": k, "v": v, "dout": heads(dout, H), "table": table}, dict(g, out=heads(out, H)))


def hugging_face(name, side, batch):
    seed(name)
    config = BeitConfig(hidden_size=H * D, num_attention_heads=H, image_size=side, patch_size=1,
                        attention_probs_dropout_prob=0.0)
    config._attn_implementation = "sdpa"                # the eager softmax is float32
    m, bias = randomize(BeitAttention(config)), randomize(BeitRelativePositionBias(config))
    n = side * side + 1
    tap = Tap(q=m.q_proj, k=m.k_proj, v=m.v_proj, out=(m.o_proj,))
    m(randn(batch, n, H * D), bias((side, side)))
    table, out, dout = bias.relative_position_bias_table, tap["out"], randn(batch, n, H * D)
    g = gradients(out, dout, q=tap["q"], k=tap["k"], v=tap["v"], table=table)
    write(name, (side, side), *(heads(tap[x], H) for x in "qkv"), table, out, dout,
          {x: y if x == "dtable" else heads(y, H) for x, y in g.items()})


def from_timm(name, grid, batch):
    seed(name)
    m = randomize(timm.models.beit.Attention(H * D, H, window_size=grid))
    n = grid[0] * grid[1] + 1
    tap = Tap(qkv=m.qkv, out=(m.proj,))
    m(randn(batch, n, H * D))
    split = lambda x: dict(zip(("q", "k", "v"), (heads(y, H) for y in x.chunk(3, -1))))
    table, out, dout = m.relative_position_bias_table, tap["out"], randn(batch, n, H * D)
    g = gradients(out, dout, qkv=tap["qkv"], table=table)
    write(name, grid, *split(tap["qkv"]).values(), table, out, dout,
          dict({"d" + x: y for x, y in split(g["dqkv"]).items()}, dtable=g["dtable"]))


hugging_face("beit_hf", 4, 1)
hugging_face("beit_hf_batch", 3, 2)
from_timm("beit_timm_square", (3, 3), 1)
from_timm("beit_timm_wide", (2, 5), 1)
from_timm("beit_timm_tall", (4, 3), 1)
F.finish()
