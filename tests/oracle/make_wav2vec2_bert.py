#!/usr/bin/env python3
"""make_wav2vec2_bert.py -- Hugging Face Wav2Vec2BertSelfAttention, relative_key: Shaw's key vectors, in float64.

distance_embedding has left + right + 1 rows for the clamped key - query, shared by all heads. It is the relkey table of
the contract without changes.

SPDX-License-Identifier: Apache-2.0
"""
import torch
from transformers import Wav2Vec2BertConfig
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

from common import Family, Tap, gradients, heads, randn, randomize, seed

F = Family("w2vbert")
TOL = 1e-12
H, D = 2, 4


def case(name, length, left, right, batch=1, padded=0):
    seed(name)
    config = Wav2Vec2BertConfig(hidden_size=H * D, num_attention_heads=H, position_embeddings_type="relative_key",
                                left_max_position_embeddings=left, right_max_position_embeddings=right,
                                attention_dropout=0.0)
    config._attn_implementation = "eager"
    m = randomize(Wav2Vec2BertSelfAttention(config))
    keep = torch.ones(batch, length, dtype=torch.int64)
    mask = None
    if padded:
        keep[-1, -padded:] = 0
        mask = torch.zeros(batch, 1, 1, length, dtype=torch.float64).masked_fill((keep == 0)[:, None, None, :],
                                                                                 float("-inf"))
    tap = Tap(q=m.linear_q, k=m.linear_k, v=m.linear_v, out=(m.linear_out,))
    _, w = m(randn(batch, length, H * D), mask)
    out, dout = tap["out"], randn(batch, length, H * D)
    g = gradients(out, dout, q=tap["q"], k=tap["k"], v=tap["v"], distance=m.distance_embedding.weight)
    want = {n: x if n == "ddistance" else heads(x, H) for n, x in g.items()}
    want.update(out=heads(out, H), weights=w)
    arrays = {n: heads(tap[n], H) for n in ("q", "k", "v")}
    arrays.update(dout=heads(dout, H), distance=m.distance_embedding.weight)
    arguments = "--relkey table=distance,left=%d,right=%d --weights --grad" % (left, right)
    if padded:
        arrays["keep"], arguments = keep, "--key-mask keep " + arguments
    F.case(name, TOL, arguments, arrays, want)


case("w2vbert_clipped", 13, 5, 2)
case("w2vbert_wide", 9, 64, 8)
case("w2vbert_padded", 7, 3, 3, batch=2, padded=2)
F.finish()
