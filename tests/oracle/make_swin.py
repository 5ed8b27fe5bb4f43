#!/usr/bin/env python3
"""make_swin.py -- window attention of Swin: Hugging Face's (square) and timm's (square or not), in float64.

Tables are ((2Gh-1)(2Gw-1), heads), indexed by query - key with the row first, in both peers and in the contract. The
windows of a picture form the batch. Hugging Face runs in its sdpa path, because the eager softmax is float32.

SPDX-License-Identifier: Apache-2.0
"""
from timm.models.swin_transformer import WindowAttention
from transformers import SwinConfig
from transformers.models.swin.modeling_swin import SwinAttention

from common import Family, Tap, gradients, heads, randn, randomize, seed

F = Family("swin")
TOL = 1e-12
H, D = 2, 4


def write(name, grid, q, k, v, table, out, dout, g, weights=None, tolerance=TOL):
    want = dict(g, out=heads(out, H))
    if weights is not None:
        want["weights"] = weights
    F.case(name, tolerance,
           "--bias swin,table=table,grid=%dx%d%s --grad" % (*grid, "" if weights is None else " --weights"),
           {"q": q, "k": k, "v": v, "dout": heads(dout, H), "table": table}, want)


def hugging_face(name, side, windows, eager=False):
    seed(name)
    config = SwinConfig(attention_probs_dropout_prob=0.0)
    config._attn_implementation = "eager" if eager else "sdpa"
    m = randomize(SwinAttention(config, H * D, H, side))
    tap = Tap(q=m.q_proj, k=m.k_proj, v=m.v_proj, out=(m.o_proj,))
    _, w = m(randn(windows, side * side, H * D))
    table, out, dout = (m.relative_position_bias.relative_position_bias_table, tap["out"],
                        randn(windows, side * side, H * D))
    g = gradients(out, dout, q=tap["q"], k=tap["k"], v=tap["v"], table=table)
    g = {n: x if n == "dtable" else heads(x, H) for n, x in g.items()}
    write(name, (side, side), *(heads(tap[n], H) for n in "qkv"), table, out, dout, g, w, 1e-6 if eager else TOL)


def timm(name, grid, windows):
    seed(name)
    m = randomize(WindowAttention(H * D, H, window_size=grid))
    n = grid[0] * grid[1]
    tap = Tap(qkv=m.qkv, out=(m.proj,))
    m(randn(windows, n, H * D))
    # qkv holds q of all heads, then k, then v
    split = lambda x: dict(zip(("q", "k", "v"), (heads(y, H) for y in x.chunk(3, -1))))
    table, out, dout = m.relative_position_bias_table, tap["out"], randn(windows, n, H * D)
    g = gradients(out, dout, qkv=tap["qkv"], table=table)
    g = dict({"d" + n: x for n, x in split(g["dqkv"]).items()}, dtable=g["dtable"])
    write(name, grid, *split(tap["qkv"]).values(), table, out, dout, g)


hugging_face("swin_hf", 4, 1)
hugging_face("swin_hf_windows", 3, 2)
hugging_face("swin_hf_weights", 3, 1, eager=True)       # the eager softmax is float32
timm("swin_timm_square", (4, 4), 1)
timm("swin_timm_wide", (3, 5), 1)
timm("swin_timm_tall", (5, 2), 2)
timm("swin_timm_row", (1, 6), 1)
F.finish()
