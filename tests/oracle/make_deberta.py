#!/usr/bin/env python3
"""make_deberta.py -- Hugging Face DeBERTa-v2's DisentangledSelfAttention, in float64.

k_pos and q_pos are the projected position embeddings, (heads, 2*span, channels). DeBERTa divides by
sqrt(D * (1 + number of position terms)), computed in float32; --scale passes exactly this number. Both of its gathers
use the clamped bucket of query - key, plus span. For keys, p2c gathers the negated bucket of key - query, which is the
same because the bucket function is odd.

SPDX-License-Identifier: Apache-2.0
"""
import torch
from transformers import DebertaV2Config
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention, scaled_size_sqrt

from common import Family, Tap, gradients, heads, randn, randomize, seed

F = Family("deberta")
TOL = 1e-12                                             # f64, with the scale rounded as in the peer
H, D = 2, 4


def case(name, length, kinds, buckets, longest, batch=1, padded=0, shared=False):
    seed(name)
    config = DebertaV2Config(hidden_size=H * D, num_attention_heads=H, relative_attention=True, pos_att_type=kinds,
                             position_buckets=buckets, max_relative_positions=longest, share_att_key=shared,
                             hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    m = randomize(DisentangledSelfAttention(config))
    span = m.pos_ebd_size
    keep = torch.ones(batch, length, dtype=torch.int64)
    if padded:
        keep[-1, -padded:] = 0
    embeddings = randn(2 * span, H * D)
    sources = {"k": m.key_proj, "v": m.value_proj, "q": m.query_proj}
    if not shared:
        sources.update({n: p for n, p in (("k_pos", getattr(m, "pos_key_proj", None)),
                                          ("q_pos", getattr(m, "pos_query_proj", None))) if p})
    tap = Tap(**sources)
    out, w = m(randn(batch, length, H * D), keep[:, None, None, :], output_attentions=True, rel_embeddings=embeddings)
    tap.close()
    dout = randn(*out.shape)
    g = gradients(out, dout, **{n: tap[n] for n in sources})
    want = {n: heads(x, H) if n in ("dq", "dk", "dv") else heads(x, H)[0] for n, x in g.items()}
    want.update(out=heads(out, H), weights=w)
    arrays = {n: heads(tap[n], H) for n in ("q", "k", "v")}
    arrays["dout"] = heads(dout, H)
    # the content projections are also used for positions, so their gradient mixes both
    if shared:
        want = {n: x for n, x in want.items() if n in ("out", "weights")}
        arrays["k_pos"], arrays["q_pos"] = heads(m.key_proj(embeddings)[None],
                                                 H)[0], heads(m.query_proj(embeddings)[None], H)[0]
    else:
        arrays.update({n: heads(tap[n], H)[0] for n in ("k_pos", "q_pos") if n in sources})
    scale = 1.0 / scaled_size_sqrt(arrays["q"], 1 + len(kinds)).double().item()
    named = "".join("%s=%s," % (n, n) for n in ("k_pos", "q_pos") if n in arrays)
    arguments = ("--deberta %sspan=%d,buckets=%d,max_position=%d --scale %.17g --weights"
                 % (named, span, buckets, m.max_relative_positions, scale))
    if padded:
        arrays["keep"], arguments = keep, arguments + " --key-mask keep"
    F.case(name, TOL, arguments + ("" if shared else " --grad"), arrays, want)


BOTH = ["c2p", "p2c"]
case("deberta_both", 9, BOTH, -1, 12)
case("deberta_both_clamped", 9, BOTH, -1, 5)
case("deberta_c2p", 10, ["c2p"], -1, 8)
case("deberta_p2c", 10, ["p2c"], -1, 8)
case("deberta_buckets", 18, BOTH, 8, 32)
# distance 24: the bucket of the float32 logarithm, not of the exact one
case("deberta_buckets_float32", 25, ["c2p"], 18, 65)
case("deberta_buckets_p2c", 14, ["p2c"], 6, 17)
case("deberta_buckets_padded", 9, BOTH, 6, 16, batch=2, padded=3)
case("deberta_shared", 11, BOTH, 8, 24, shared=True)
F.finish()
