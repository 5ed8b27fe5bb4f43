#!/usr/bin/env python3
"""make_llama_rope.py -- Hugging Face LlamaAttention with LlamaRotaryEmbedding and every rope scaling.

The contract uses the names of rope_parameters, except base for rope_theta and scaling for rope_type. The layout is
"half". LlamaRotaryEmbedding computes frequencies, angles, cosines and sines in float32, and the eager softmax is
float32 too. So a case with largest position P may be off by a few times P * 6e-8 * |q||k| * scale: TOL(P) allows four
of these, and at least 2e-6.

SPDX-License-Identifier: Apache-2.0
"""
import torch
import transformers
from transformers import DynamicCache, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

from common import Family, Tap, gradients, heads, randn, randomize, seed

transformers.logging.set_verbosity_error()
F = Family("llama")
H, HK = 2, 1


def tolerance(largest):
    return max(2e-6, float("%.0e" % (4 * largest * 6e-8)))


def module(longest, rope, dim, sdpa=False):
    config = LlamaConfig(hidden_size=16, num_attention_heads=H, num_key_value_heads=HK, head_dim=dim,
                         attention_bias=True,
                         max_position_embeddings=longest, rope_parameters=dict({"rope_theta": 10000.0}, **rope))
    config._attn_implementation = "sdpa" if sdpa else "eager"
    return randomize(LlamaAttention(config, 0)), LlamaRotaryEmbedding(config)


def rope_argument(rope, dim, longest, arrays):
    words = ["dim=%d" % dim, "layout=half"]
    for key, value in rope.items():
        if isinstance(value, list):
            arrays[key], value = torch.tensor(value, dtype=torch.float64), key
        name = {"rope_theta": "base", "rope_type": "scaling"}.get(key, key)
        if (name, value) == ("scaling", "default"):
            continue
        words.append("%s=%s" % (name, int(value) if isinstance(value, bool) else value))
    if rope["rope_type"] == "dynamic" or (rope["rope_type"] == "longrope" and "factor" not in rope):
        words.append("max_position_embeddings=%d" % longest)
    return "--rope " + ",".join(words)


def case(name, rope, positions, longest=2048, dim=8, causal=True, sdpa=False):
    """Write a case. `positions` is (L) or (B,L)."""
    seed(name)
    m, rotary = module(longest, rope, dim, sdpa)
    positions = torch.as_tensor(positions)
    ids = positions if positions.dim() == 2 else positions[None]
    batch, length = ids.shape
    mask = torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1)[None, None] if causal else None
    x = randn(batch, length, 16)
    tap = Tap(q=m.q_proj, k=m.k_proj, v=m.v_proj, out=(m.o_proj,))
    _, w = m(x, rotary(x, ids), mask)
    out, dout = tap["out"], randn(batch, length, H * dim)
    want = gradients(out, dout, q=tap["q"], k=tap["k"], v=tap["v"])
    want = {n: heads(g, H if n == "dq" else HK) for n, g in want.items()}
    want["out"] = heads(out, H)
    if not sdpa:
        want["weights"] = w
    arrays = {"q": heads(tap["q"], H), "k": heads(tap["k"], HK), "v": heads(tap["v"], HK), "dout": heads(dout, H)}
    argument = rope_argument(rope, dim, longest, arrays)
    if not torch.equal(positions, torch.arange(length)):
        arrays["pos"], argument = positions, argument + ",positions=pos"
    F.case(name, tolerance(int(ids.max())), argument + (" --causal" if causal else "") + ("" if sdpa else " --weights")
           + " --grad",
           arrays, want)


def decode(name, before, now, dim=8):
    """Keys are rotated once, when they enter the cache. The file has the unrotated keys, as the contract requires."""
    seed(name)
    m, rotary = module(2048, {"rope_type": "default"}, dim)
    cache, x = DynamicCache(), randn(1, before + now, 16)
    ids = torch.arange(before + now)[None]
    mask = torch.full((before + now, before + now), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    with torch.no_grad():
        first = Tap(k=m.k_proj, v=m.v_proj)
        m(x[:, :before], rotary(x, ids[:, :before]), mask[..., :before, :before], past_key_values=cache)
        first.close()
        tap = Tap(q=m.q_proj, k=m.k_proj, v=m.v_proj, out=(m.o_proj,))
        _, w = m(x[:, before:], rotary(x, ids[:, before:]), mask[..., before:, :], past_key_values=cache)
    arrays = {"q": heads(tap["q"], H), "k": heads(torch.cat([first["k"], tap["k"]], 1), HK),
              "v": heads(torch.cat([first["v"], tap["v"]], 1), HK)}
    F.case(name, tolerance(before + now), "--rope dim=%d,layout=half --causal --q-offset %d --weights" % (dim, before),
           arrays,
           {"out": heads(tap["out"], H), "weights": w})


L = torch.arange(9)
case("llama_default", {"rope_type": "default"}, L)
case("llama_sdpa", {"rope_type": "default"}, L, sdpa=True)
case("llama_base", {"rope_type": "default", "rope_theta": 500000.0}, L, causal=False)
case("llama_positions", {"rope_type": "default"}, [[0, 1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 1, 2, 3, 4]])
case("llama_packed", {"rope_type": "default"}, [0, 1, 2, 3, 0, 1, 2, 0, 1])
decode("llama_decode", 11, 3)
case("llama_linear", {"rope_type": "linear", "factor": 4.0}, L)
case("llama_dynamic_below", {"rope_type": "dynamic", "factor": 2.0}, L, longest=16)
case("llama_dynamic_above", {"rope_type": "dynamic", "factor": 2.0}, L + 30, longest=16)
case("llama_dynamic_one_above", {"rope_type": "dynamic", "factor": 4.0}, L, longest=8)
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}
case("llama_yarn", YARN, L + 20, longest=256)
case("llama_yarn_betas", dict(YARN, beta_fast=8.0, beta_slow=0.5, truncate=False), L + 20, longest=256)
case("llama_yarn_mscale", dict(YARN, mscale=0.707, mscale_all_dim=1.0), L, longest=256)
case("llama_yarn_attention_factor", dict(YARN, attention_factor=1.25), L, longest=256)
case("llama_llama3", {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                      "original_max_position_embeddings": 64,
                      "low_freq_factor": 1.0, "high_freq_factor": 4.0}, L + 20, longest=512, dim=16)
LONGROPE = {"rope_type": "longrope", "original_max_position_embeddings": 8,
            "short_factor": [1.0, 1.1, 1.5, 2.0], "long_factor": [1.25, 2.0, 4.5, 9.0]}
case("llama_longrope_short", LONGROPE, torch.arange(8), longest=32)
case("llama_longrope_long", LONGROPE, torch.arange(9), longest=32)
case("llama_longrope_factor", dict(LONGROPE, factor=2.0), L + 30, longest=64)
case("llama_longrope_attention_factor", dict(LONGROPE, factor=2.0, attention_factor=1.3), L, longest=64)
F.finish()
