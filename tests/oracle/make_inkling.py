#!/usr/bin/env python3
"""make_inkling.py -- Hugging Face Inkling 2: the attention of the module, with a band and a sink of each query.

The eager function of the module computes its softmax in float32. Its gradients reach the vectors r of the band, the
profiles p, and the sinks.

SPDX-License-Identifier: Apache-2.0
"""
import torch
from transformers import Inkling2TextConfig
from transformers.models.inkling2.modeling_inkling2 import Inkling2RelativePositionBias, eager_attention_forward

from common import Family, Tap, gradients, randn, randomize, seed

F = Family("inkling")
TOL = 1e-6
B, H, HK, D, EXTENT = 2, 4, 2, 4, 5


class Module(torch.nn.Module):
    num_key_value_groups = H // HK


def case(name, len_q, len_k, causal):
    seed(name)
    config = Inkling2TextConfig(hidden_size=8, d_rel=3)
    bias = randomize(Inkling2RelativePositionBias(config, H, EXTENT, log_scaling=False))
    distance = torch.arange(len_q)[:, None] + len_k - len_q - torch.arange(len_k)
    mask = torch.zeros(len_q, len_k, dtype=torch.float64).masked_fill(distance < 0, -torch.inf) if causal else None
    q, k, v, dout = (randn(B, h, n, D) for h, n in ((H, len_q), (HK, len_k), (HK, len_k), (H, len_q)))
    sinks, hidden = randn(B, H, len_q, 1), randn(B, len_q, 8)
    inputs = [x.requires_grad_() for x in (q, k, v, sinks)]
    tap = Tap(r=bias.norm)
    position_bias = bias(hidden, distance, None)
    out, w = eager_attention_forward(Module().eval(), q, k, v, mask, D ** -0.5, position_bias=position_bias,
                                     sinks=sinks)
    g = gradients(out.transpose(1, 2), dout, q=q, k=k, v=v, sink=inputs[3], r=tap["r"], p=bias.proj)
    want = {**g, "dsink": g["dsink"][..., 0], "dr": g["dr"].transpose(1, 2), "dp": g["dp"][None],
            "out": out.transpose(1, 2), "weights": w}
    arrays = {"q": q, "k": k, "v": v, "dout": dout, "sink": sinks[..., 0], "r": tap["r"].transpose(1, 2),
              "p": bias.proj[None]}
    F.case(name, TOL, "--bias band,r=r,p=p --sink sink %s --q-offset %d --weights --grad" % (
        "--causal" if causal else "", len_k - len_q), arrays, want)


case("inkling_decoder", 9, 9, True)
case("inkling_cached", 2, 9, True)
case("inkling_all_keys", 7, 7, False)
F.finish()
