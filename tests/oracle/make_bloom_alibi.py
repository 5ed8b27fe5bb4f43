#!/usr/bin/env python3
"""make_bloom_alibi.py -- Hugging Face BloomAttention with build_alibi_tensor.

Bloom adds slope * j instead of -slope * (i - j). Under a causal mask the two differ by one number per row, which the
softmax cancels. So outputs and weights are equal, and lse is not compared. The slopes of 3, 4 and 6 heads are powers
of two.

SPDX-License-Identifier: Apache-2.0
"""
import torch
from transformers import BloomConfig
from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor

from common import Family, Tap, heads, randn, randomize, seed

F = Family("bloom")
TOL = 1e-6                                              # Bloom rounds its weights to f32 (6e-8 each) for every type


def case(name, n, length, batch=1, padded=0):
    """Write a case. `padded` is the number of masked keys at the end of the last batch entry."""
    seed(name)
    m = randomize(BloomAttention(BloomConfig(hidden_size=4 * n, n_head=n, hidden_dropout=0.0, attention_dropout=0.0),
                                 layer_idx=0))
    there = torch.ones(batch, length, dtype=torch.int64)
    if padded:
        there[-1, -padded:] = 0
    blocked = torch.ones(length, length).triu(1).bool()[None, None] | (there == 0)[:, None, None, :]
    mask = torch.zeros(blocked.shape, dtype=torch.float64).masked_fill(blocked, torch.finfo(torch.float32).min)
    alibi = build_alibi_tensor(there, n, torch.float64)
    tap = Tap(qkv=m.query_key_value, out=(m.dense,))
    x = randn(batch, length, 4 * n)
    with torch.no_grad():
        _, w = m(x, torch.zeros_like(x), alibi, mask)
    q, k, v = m._reshape(tap["qkv"])
    arrays = {"q": q, "k": k, "v": v}
    arguments = "--bias alibi --causal --weights"
    if padded:
        arrays["keep"], arguments = there, "--bias alibi --causal --key-mask keep --weights"
    F.case(name, TOL, arguments, arrays, {"out": heads(tap["out"], n), "weights": w})


case("bloom_four_heads", 4, 12)
case("bloom_three_heads", 3, 12)
case("bloom_six_heads", 6, 8)
case("bloom_padded", 2, 9, batch=2, padded=3)
F.finish()
