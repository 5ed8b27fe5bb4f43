#!/usr/bin/env python3
"""make_t5.py -- Hugging Face T5Attention with its bucket table, in float64.

T5 stores its table as (buckets, heads), like the contract, and adds it to unscaled scores (--scale 1). Its buckets are
of memory - context, which is key - query. A T5 decoder is one-sided: bidirectional=0.

SPDX-License-Identifier: Apache-2.0
"""
import torch
from transformers import DynamicCache, T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from common import Family, Tap, gradients, heads, randn, randomize, seed

F = Family("t5")
TOL = 1e-12                                             # f64 in every step
H, D = 2, 4


def module(buckets, distance, decoder):
    config = T5Config(d_model=8, d_kv=D, num_heads=H, relative_attention_num_buckets=buckets,
                      relative_attention_max_distance=distance, is_decoder=decoder, dropout_rate=0.0)
    config._attn_implementation = "eager"
    m = randomize(T5Attention(config, has_relative_attention_bias=True, layer_idx=0, is_causal=decoder))
    with torch.no_grad():
        m.relative_attention_bias.weight.normal_()
    return m


def causal_mask(lq, lk):
    return torch.full((lq, lk), float("-inf"), dtype=torch.float64).triu(1 + lk - lq)


def term(buckets, distance, decoder):
    return ("--bias t5,table=rel_bias,buckets=%d,max_distance=%d,bidirectional=%d --scale 1"
            % (buckets, distance, not decoder))


def self_attention(name, length, buckets=32, distance=128, decoder=False, keep=None, batch=1, weights=True):
    seed(name)
    m = module(buckets, distance, decoder)
    mask = causal_mask(length, length) if decoder else None
    if keep is not None:                                # T5 masks by adding the lowest finite number
        mask = (keep[:, None, None, :] == 0).to(torch.float64) * torch.finfo(torch.float64).min
    tap = Tap(q=m.q, k=m.k, v=m.v, out=(m.o,))
    _, _, w = m(randn(batch, length, 8), mask=mask)
    out, dout = tap["out"], randn(batch, length, H * D)
    want = gradients(out, dout, q=tap["q"], k=tap["k"], v=tap["v"], rel_bias=m.relative_attention_bias.weight)
    want = {n: g if n == "drel_bias" else heads(g, H) for n, g in want.items()}
    want["out"] = heads(out, H)
    if weights:
        want["weights"] = w
    arrays = {n: heads(tap[n], H) for n in ("q", "k", "v")}
    arrays.update(dout=heads(dout, H), rel_bias=m.relative_attention_bias.weight)
    arguments = term(buckets, distance, decoder) + (" --causal" if decoder else "")
    if keep is not None:
        arrays["keep"], arguments = keep, arguments + " --key-mask keep"
    F.case(name, TOL, arguments + (" --weights" if weights else "") + " --grad", arrays, want)


def decode(name, before, now, buckets, distance):
    """Write a case with cached keys: a prefill, then a few more tokens. q_offset is the number of cached keys."""
    seed(name)
    m, cache = module(buckets, distance, True), DynamicCache()
    m(randn(1, before, 8), mask=causal_mask(before, before), past_key_values=cache)
    tap = Tap(q=m.q, out=(m.o,))
    with torch.no_grad():
        _, _, w = m(randn(1, now, 8), mask=causal_mask(now, before + now), past_key_values=cache)
    arrays = {"q": heads(tap["q"], H), "k": cache.layers[0].keys, "v": cache.layers[0].values,
              "rel_bias": m.relative_attention_bias.weight}
    F.case(name, TOL, term(buckets, distance, True) + " --causal --q-offset %d --weights" % before, arrays,
           {"out": heads(tap["out"], H), "weights": w})


def cross(name, lq, lk):
    """Write a case with queries and keys of different lengths, both of which start at position 0."""
    seed(name)
    m = module(32, 128, False)
    tap = Tap(q=m.q, k=m.k, v=m.v, out=(m.o,))
    with torch.no_grad():
        _, _, w = m(randn(1, lq, 8), key_value_states=randn(1, lk, 8))
    arrays = {n: heads(tap[n], H) for n in ("q", "k", "v")}
    arrays["rel_bias"] = m.relative_attention_bias.weight
    F.case(name, TOL, term(32, 128, False) + " --weights", arrays, {"out": heads(tap["out"], H), "weights": w})


self_attention("t5_encoder", 40, weights=False)
self_attention("t5_encoder_small_buckets", 16, buckets=16, distance=18)
self_attention("t5_encoder_padded", 9, buckets=8, distance=12, batch=2,
               keep=torch.tensor([[1] * 9, [1, 1, 1, 1, 1, 1, 0, 0, 0]]))
self_attention("t5_decoder", 18, buckets=16, distance=20, decoder=True)
decode("t5_decode_cached", 29, 3, 32, 25)
decode("t5_decode_one", 39, 1, 32, 128)
cross("t5_cross", 5, 37)
F.finish()
