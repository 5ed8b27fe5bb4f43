#!/usr/bin/env python3
"""make_symm.py -- symm_learning's AdditiveRelMultiheadAttention and RoPEMultiheadAttention, in float64.

AdditiveRelMultiheadAttention subtracts the entry of a table of 2 * max_distance + 1 numbers, shared by all heads, at
P_q - P_k, clamped and truncated toward zero; a pair with a masked position gets 0. This is the contract's `real` with
its default sign of -1 and a table of one head. The input and output projections are set to the identity, so the
module's inputs and output are the queries, keys, values and outputs. Its weights are means over heads and are only
compared in this script.

Causality is passed as attn_mask, because is_causal=True does not work in this class (see the output of `--is-causal`).

RoPEMultiheadAttention rotates neighbouring channels (layout=interleaved) and does not rotate a masked position. The
contract has no such mask, but position 0 is equivalent.

    python make_symm.py                 write the cases
    python make_symm.py --is-causal     show what is_causal=True does

SPDX-License-Identifier: Apache-2.0
"""
import sys

import torch
from symm_learning.nn import AdditiveRelMultiheadAttention, RoPEMultiheadAttention

import contract
from common import Family, error, gradients, heads, randn, seed

F = Family("symm")
TOL = 1e-12
H, D = 2, 4


def additive(limit):
    m = AdditiveRelMultiheadAttention(H * D, H, max_distance=limit, dtype=torch.float64).eval()
    with torch.no_grad():
        m.attn.in_proj_weight.copy_(torch.eye(H * D, dtype=torch.float64).repeat(3, 1))
        m.attn.in_proj_bias.zero_()
        m.attn.out_proj.weight.copy_(torch.eye(H * D, dtype=torch.float64))
        m.attn.out_proj.bias.zero_()
        m.rel_bias.normal_()
    return m


def inputs(batch, lq, lk):
    return {n: randn(batch, l, H * D).requires_grad_() for n, l in (("q", lq), ("k", lk), ("v", lk))}


def case(name, limit, lq, lk, batch=1, causal=False, padded=0, **positions):
    """Write a case. `positions` has the arguments q_positions, k_positions, q_position_mask and k_position_mask of the
    module."""
    seed(name)
    m, x = additive(limit), inputs(batch, lq, lk)
    dout = randn(batch, lq, H * D)
    given = {n: make() for n, make in positions.items()}
    keep = torch.ones(batch, lk, dtype=torch.bool)
    if padded:
        keep[-1, -padded:] = False
    # in the module, True means masked
    call = dict(given, attn_mask=torch.ones(lq, lk, dtype=torch.bool).triu(1) if causal else None,
                key_padding_mask=~keep if padded else None)
    out, _ = m(x["q"], x["k"], x["v"], **call)
    g = gradients(out, dout, **x, table=m.rel_bias)
    want = {n: t[None] if n == "dtable" else heads(t, H) for n, t in g.items()}
    want["out"] = heads(out, H)
    arrays = {n: heads(t, H) for n, t in x.items()}
    arrays.update(given, dout=heads(dout, H), table=m.rel_bias[None])
    arguments = "--bias real,table=table,max_distance=%d%s" % (limit, "".join(",%s=%s" % (n, n) for n in given))
    if causal:
        arguments += " --causal"
    if padded:
        arrays["keep"], arguments = keep, arguments + " --key-mask keep"
    F.case(name, TOL, arguments + " --grad", arrays, want)
    mean = m(x["q"], x["k"], x["v"], need_weights=True, **call)[1]
    own = contract.evaluate(arguments + " --weights", arrays)["weights"].mean(1)
    assert error(mean, own) < TOL


def rope(name, length, batch, masked=False):
    seed(name)
    m = RoPEMultiheadAttention(H * D, H, dtype=torch.float64).eval()
    with torch.no_grad():
        for p in (m.q_proj, m.k_proj, m.v_proj, m.out_proj):
            p.weight.copy_(torch.eye(H * D, dtype=torch.float64))
            p.bias.zero_()
    x = inputs(batch, length, length)
    dout, position = randn(batch, length, H * D), randn(batch, length, scale=6)
    keep = torch.rand(batch, length) > 0.3 if masked else None
    out, _ = m(x["q"], x["k"], x["v"], q_positions=position, k_positions=position, q_position_mask=keep,
               k_position_mask=keep)
    want = {n: heads(t, H) for n, t in gradients(out, dout, **x).items()}
    want["out"] = heads(out, H)
    arrays = {n: heads(t, H) for n, t in x.items()}
    arrays.update(dout=heads(dout, H), pos=position if keep is None else position.masked_fill(~keep, 0))
    F.case(name, TOL, "--rope dim=%d,layout=interleaved,positions=pos --grad" % D, arrays, want)


def is_causal():
    """Compare the module with is_causal=True with the result that a caller expects."""
    seed("is_causal")
    m, x = additive(3), inputs(1, 6, 6)
    arrays = dict({n: heads(t, H) for n, t in x.items()}, table=m.rel_bias[None])
    bias = " --bias real,table=table,max_distance=3"
    expected = {what: contract.evaluate(arguments + " --weights", arrays) for what, arguments in
                (("causal, with the bias", "--causal" + bias), ("causal, without the bias", "--causal"),
                 ("not causal, with the bias", bias))}
    causal = torch.ones(6, 6, dtype=torch.bool).triu(1)
    for mask_name, mask in (("no attn_mask", None), ("a causal attn_mask", causal)):
        for need in (False, True):
            try:
                out, _ = m(x["q"], x["k"], x["v"], attn_mask=mask, need_weights=need, is_causal=True)
                same = [what for what, r in expected.items() if error(heads(out, H), r["out"]) < 1e-9]
                print("is_causal=True, %s, need_weights=%s: %s"
                      % (mask_name, need, " and ".join(same) or "none of the three"))
            except Exception as e:
                print("is_causal=True, %s, need_weights=%s: %s" % (mask_name, need, e))
    keep = torch.zeros(1, 6, dtype=torch.bool)
    out, _ = m(x["q"], x["k"], x["v"], key_padding_mask=keep, is_causal=True)
    same = [what for what, r in expected.items() if error(heads(out, H), r["out"]) < 1e-9]
    print("is_causal=True, no attn_mask, a key_padding_mask that masks nothing: %s"
          % (" and ".join(same) or "none of the three"))


def main():
    if "--is-causal" in sys.argv:
        return is_causal()
    case("symm_default", 4, 9, 9)
    case("symm_cross", 3, 5, 11)
    case("symm_causal", 5, 9, 9, batch=2, causal=True)
    case("symm_padded", 3, 6, 8, batch=2, padded=3)
    case("symm_real_positions", 4, 7, 9, q_positions=lambda: randn(7, scale=3), k_positions=lambda: randn(9, scale=3))
    case("symm_real_batch_masks", 4, 7, 9, batch=2,
         q_positions=lambda: randn(2, 7, scale=3), k_positions=lambda: randn(2, 9, scale=3),
         q_position_mask=lambda: torch.rand(2, 7) > 0.3, k_position_mask=lambda: torch.rand(2, 9) > 0.3)
    case("symm_shared_masks", 4, 7, 9, batch=2, causal=False, q_position_mask=lambda: torch.rand(7) > 0.3,
         k_position_mask=lambda: torch.rand(9) > 0.3)
    case("symm_integer_positions", 6, 7, 7, q_positions=lambda: torch.tensor([4, 4, 0, -3, 9, 1, 2]),
         k_positions=lambda: torch.tensor([4, 5, 0, 30, -9, 1, 2]))
    rope("symm_rope", 9, 1)
    rope("symm_rope_masked", 7, 2, masked=True)
    F.finish()


main()
