#!/usr/bin/env python3
"""make_neox.py -- Hugging Face GPTNeoXAttention: rotary on the first quarter or half of the channels.

Cosines, sines and the softmax are float32, as in make_llama_rope.py. Positions are below 20.

SPDX-License-Identifier: Apache-2.0
"""
import torch
from transformers import GPTNeoXConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention, GPTNeoXRotaryEmbedding

from common import Family, Tap, gradients, heads, randn, randomize, seed

F = Family("neox")
TOL = 5e-6                                              # 4 * 20 positions * 6e-8
H, D = 2, 8


def case(name, part, base, length, batch=1):
    seed(name)
    config = GPTNeoXConfig(hidden_size=H * D, num_attention_heads=H, attention_dropout=0.0, hidden_dropout=0.0,
                           rope_parameters={"rope_type": "default", "rope_theta": base, "partial_rotary_factor": part})
    config._attn_implementation = "eager"
    m, rotary = randomize(GPTNeoXAttention(config, 0)), GPTNeoXRotaryEmbedding(config)
    x, ids = randn(batch, length, H * D), torch.arange(length)[None]
    mask = torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    tap = Tap(qkv=m.query_key_value, out=(m.dense,))
    _, w = m(x, mask, position_embeddings=rotary(x, ids))
    # query_key_value holds q, k and v of head 0, then of head 1, ...
    q, k, v = heads(tap["qkv"], H).chunk(3, -1)
    out, dout = tap["out"], randn(batch, length, H * D)
    g = heads(gradients(out, dout, qkv=tap["qkv"])["dqkv"], H).chunk(3, -1)
    F.case(name, TOL, "--rope dim=%d,base=%g,layout=half --causal --weights --grad" % (D * part, base),
           {"q": q, "k": k, "v": v, "dout": heads(dout, H)},
           {"out": heads(out, H), "weights": w, "dq": g[0], "dk": g[1], "dv": g[2]})


case("neox_quarter", 0.25, 10000.0, 9)
case("neox_half", 0.5, 10000.0, 9)
case("neox_three_quarters", 0.75, 100.0, 7)
F.finish()
