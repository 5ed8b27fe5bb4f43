#!/usr/bin/env python3
"""make_xl.py -- Transformer-XL scores: XLNet's rel_attn_core and Wav2Vec2-Conformer's relative attention, in float64.

XLNet: k_head_r has klen + qlen rows for the distances klen ... 1 - qlen (query - key). rel_shift uses row
qlen - i + j and never row 0. The contract's r starts at offset -(Lq - 1 + q_offset), which is row 1, so
r = k_head_r[1:] in the same order, with heads first. With mlen remembered keys, klen = mlen + qlen and q_offset = mlen.
u is r_w_bias (content), and v is r_r_bias (position).

Conformer: linear_pos projects 2L - 1 rows for the distances L - 1 ... 1 - L, which is the order of the contract.

SPDX-License-Identifier: Apache-2.0
"""
import torch
from transformers import Wav2Vec2ConformerConfig, XLNetConfig
from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import (
    Wav2Vec2ConformerRelPositionalEmbedding, Wav2Vec2ConformerSelfAttention)
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

from common import Family, Tap, gradients, heads, randn, randomize, seed

F = Family("xl")
TOL = 1e-12                                             # f64 in every step
H, D = 2, 4
ARGUMENTS = "--xl r=pos,u=content_bias,v=position_bias"


def xlnet(name, qlen, mlen=0, batch=1, causal=False):
    seed(name)
    m = randomize(XLNetRelativeAttention(XLNetConfig(d_model=H * D, n_head=H, d_head=D, d_inner=8, dropout=0.0)))
    klen = mlen + qlen
    # XLNet's axes are (length, batch, head, channel)
    q, k, v = (randn(n, batch, H, D).requires_grad_() for n in (qlen, klen, klen))
    r = randn(klen + qlen, 1, H, D).requires_grad_()
    mask = None
    if causal:
        mask = torch.ones(qlen, klen, dtype=torch.float64).triu(1 + mlen)[:, :, None, None].expand(-1, -1, batch, 1)
    out, w = m.rel_attn_core(q, k, v, r.expand(-1, batch, -1, -1), attn_mask=mask, output_attentions=True)
    dout = randn(*out.shape)
    ours = lambda x: x.permute(1, 2, 0, 3)
    rows = lambda x: x[1:, 0].transpose(0, 1)
    g = gradients(out, dout, q=q, k=k, v=v, pos=r, content_bias=m.r_w_bias, position_bias=m.r_r_bias)
    assert not g["dpos"][0].any()
    want = {n: ours(x) if n in ("dq", "dk", "dv") else rows(x) if n == "dpos" else x for n, x in g.items()}
    want.update(out=ours(out), weights=w.permute(2, 3, 0, 1))
    arrays = {"q": ours(q), "k": ours(k), "v": ours(v), "dout": ours(dout), "pos": rows(r),
              "content_bias": m.r_w_bias, "position_bias": m.r_r_bias}
    F.case(name, TOL, ARGUMENTS + (" --q-offset %d" % mlen if mlen else "") + (" --causal" if causal else "")
           + " --weights --grad",
           arrays, want)


def conformer(name, length, batch=1):
    seed(name)
    config = Wav2Vec2ConformerConfig(hidden_size=H * D, num_attention_heads=H, position_embeddings_type="relative",
                                     max_source_positions=40, attention_dropout=0.0)
    config._attn_implementation = "eager"
    m, table = randomize(Wav2Vec2ConformerSelfAttention(config)), Wav2Vec2ConformerRelPositionalEmbedding(config)
    x = randn(batch, length, H * D)
    tap = Tap(q=m.linear_q, k=m.linear_k, v=m.linear_v, pos=m.linear_pos, out=(m.linear_out,))
    _, w = m(x, relative_position_embeddings=table(x))
    out, dout = tap["out"], randn(batch, length, H * D)
    g = gradients(out, dout, q=tap["q"], k=tap["k"], v=tap["v"], pos=tap["pos"], content_bias=m.pos_bias_u,
                  position_bias=m.pos_bias_v)
    ours = lambda x: heads(x, H)
    want = {n: ours(t) if n in ("dq", "dk", "dv") else ours(t)[0] if n == "dpos" else t for n, t in g.items()}
    want.update(out=ours(out), weights=w)
    arrays = {"q": ours(tap["q"]), "k": ours(tap["k"]), "v": ours(tap["v"]), "dout": ours(dout),
              "pos": ours(tap["pos"])[0],
              "content_bias": m.pos_bias_u, "position_bias": m.pos_bias_v}
    F.case(name, TOL, ARGUMENTS + " --weights --grad", arrays, want)


xlnet("xl_xlnet", 11)
xlnet("xl_xlnet_batch", 6, batch=2)
xlnet("xl_xlnet_memory", 5, mlen=9)
xlnet("xl_xlnet_memory_causal", 7, mlen=4, batch=2, causal=True)
conformer("xl_conformer", 12)
conformer("xl_conformer_batch", 7, batch=2)
F.finish()
