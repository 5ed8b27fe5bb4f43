#!/usr/bin/env python3
"""make_golden.py -- write tests/layers/data: layers in float64, from the formulas of five texts, with gradients by
autograd.

Nothing here uses relpos. The texts are "Relative Position Bias" (a bias that decays with distance), "Relative Position
Representations" (Shaw 2018), "Relative vs absolute embeddings" (ViT and Swin), "Relative positional bias" (T5) and the
documentation of symm_learning's AdditiveRelMultiheadAttention. Where a text contradicts its source, the source counts:
offsets of T5 are key - query, and a layer without a table adds the bias of another layer.

Each file has the weights under the names of the text, the inputs `in.*` and `dout`, and the results `want.*`, where
`want.d.NAME` is the gradient of NAME. Inputs and weights are float16 numbers, so every type holds them exactly.

    python tests/layers/make_golden.py            (needs torch and safetensors)

SPDX-License-Identifier: Apache-2.0
"""
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

DATA = Path(__file__).parent / "data"
torch.set_default_dtype(torch.float64)


def draw(*shape, size=1.0):
    """Return normal numbers that float16 holds exactly."""
    return (size * torch.randn(*shape)).half().double().requires_grad_()


def linear(rows, columns):
    return draw(rows, columns, size=0.5)


def save(name, given, learned, out, constants=(), **results):
    """Write a case: its inputs, weights and results, and the gradients of sum(dout * out)."""
    dout = draw(*out.shape)
    sources = {**given, **learned}
    gradients = torch.autograd.grad((out * dout).sum(), list(sources.values()))
    arrays = {n: t.half() for n, t in learned.items()}
    arrays.update({"in." + n: t.half() for n, t in given.items()})
    arrays.update({"in." + n: t for n, t in dict(constants).items()})
    arrays["in.dout"] = dout.half()
    arrays["want.out"] = out
    arrays.update({"want." + n: t for n, t in results.items()})
    arrays.update({"want.d." + n: g for n, g in zip(sources, gradients)})
    save_file({n: t.detach().contiguous() for n, t in arrays.items()}, DATA / (name + ".safetensors"))


def offsets(lq, lk):
    """Return key - query of each pair."""
    return torch.arange(lk) - torch.arange(lq)[:, None]


def split(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


# ------------------------------------------------------------------------------------- "Relative Position Bias"

def bucket(r, buckets, max_distance, bidirectional):
    """T5's bucket of the offset r = key - query (Raffel 2020)."""
    base = torch.zeros_like(r)
    if bidirectional:
        buckets //= 2
        base, r = (r > 0) * buckets, r.abs()
    else:
        r = -torch.minimum(r, torch.zeros_like(r))
    exact = buckets // 2
    large = exact + (torch.log(r.float() / exact) / math.log(max_distance / exact) * (buckets - exact)).long()
    return base + torch.where(r < exact, r, large.clamp(max=buckets - 1))


def position_bias():
    q, k, v = draw(2, 6, 4), draw(2, 6, 4), draw(2, 6, 3)
    scores = q @ k.transpose(1, 2) / math.sqrt(4) - 0.3 * torch.log(1 + offsets(6, 6).abs())
    w = scores.softmax(-1)
    save("position_bias", {"query": q, "key": k, "value": v}, {}, w @ v, weights=w)


def position_table():
    q, k, v, table = draw(1, 9, 4), draw(1, 9, 4), draw(1, 9, 3), draw(8)
    scores = q @ k.transpose(1, 2) / math.sqrt(4) + table[bucket(offsets(9, 9), 8, 7, True)]
    w = scores.softmax(-1)
    save("position_table", {"query": q, "key": k, "value": v}, {"relative_bias_table": table}, w @ v, weights=w)


# ----------------------------------------------------------------------------- "Relative Position Representations"

def relative_self_attention():
    x = draw(2, 6, 5)
    names = {"W_q": linear(5, 4), "W_k": linear(5, 4), "W_v": linear(5, 3), "rel_embed.a_K": draw(5, 4),
             "rel_embed.a_V": draw(5, 3)}
    wq, wk, wv, a_k, a_v = names.values()
    q, k, v = x @ wq, x @ wk, x @ wv
    index = offsets(6, 6).clamp(-2, 2) + 2
    scores = (q @ k.transpose(1, 2) + torch.einsum("bid,ijd->bij", q, a_k[index])) / math.sqrt(4)
    w = scores.softmax(-1)
    save("relative_self_attention", {"query": x}, names, w @ v + torch.einsum("bij,ijd->bid", w, a_v[index]), weights=w)


# ------------------------------------------------------------------------------- "Relative vs absolute embeddings"

def packed(x, names, heads, bias=0, keep=None):
    """Attention of a ViT: one projection for queries, keys and values; returns out and weights."""
    qkv = F.linear(x, names["qkv.weight"], names["qkv.bias"])
    q, k, v = qkv.view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + bias
    if keep is not None:
        scores = scores.masked_fill(~keep, -math.inf)
    w = scores.softmax(-1)
    return F.linear(merge(w @ v), names["proj.weight"], names["proj.bias"]), w


def packed_names(dim):
    return {"qkv.weight": linear(3 * dim, dim), "qkv.bias": draw(3 * dim), "proj.weight": linear(dim, dim),
            "proj.bias": draw(dim)}


def vit():
    x, names = draw(2, 5, 6), packed_names(6)
    out, w = packed(x, names, 2)
    save("vit", {"query": x}, names, out, weights=w)


def window():
    """Windows of 2 x 3 tokens in a grid of 4 x 6, shifted by (1, 2), as in Liu 2021."""
    h, w, wh, ww, sh, sw, heads = 4, 6, 2, 3, 1, 2, 2

    def cut(x):  # [B, h, w, C] -> [B n, wh ww, C]
        b, c = x.shape[0], x.shape[-1]
        return x.view(b, h // wh, wh, w // ww, ww, c).transpose(2, 3).reshape(-1, wh * ww, c)

    def back(x, c):
        return x.view(-1, h // wh, w // ww, wh, ww, c).transpose(2, 3).reshape(-1, h, w, c)

    grid, names, table = draw(1, h, w, 4), packed_names(4), draw((2 * wh - 1) * (2 * ww - 1), heads)
    # Swin's index: row and column of the query minus those of the key
    place = torch.stack(torch.meshgrid(torch.arange(wh), torch.arange(ww), indexing="ij")).flatten(1)
    d = place[:, :, None] - place[:, None]
    bias = table[(d[0] + wh - 1) * (2 * ww - 1) + d[1] + ww - 1].permute(2, 0, 1)
    # regions that the roll separates
    region = torch.zeros(1, h, w, 1)
    count = 0
    for rows in (slice(0, -wh), slice(-wh, -sh), slice(-sh, None)):
        for columns in (slice(0, -ww), slice(-ww, -sw), slice(-sw, None)):
            region[:, rows, columns] = count
            count += 1
    region = cut(region)[..., 0]
    keep = region[:, None, :] == region[:, :, None]
    windows = cut(grid.roll((-sh, -sw), (1, 2)))
    names["relative_position_bias_table"] = table
    out, weights = packed(windows, names, heads, bias, keep[:, None])
    out = back(out, 4).roll((sh, sw), (1, 2))
    save("window", {"grid": grid}, names, out, {"windows": windows, "same": keep.to(torch.uint8)}, weights=weights)


# ------------------------------------------------------------------------------------- "Relative positional bias"

def t5_names(dim, prefix=""):
    return {prefix + n + "_proj.weight": linear(dim, dim) for n in "qkvo"}


def t5(x, y, names, heads, bias, keep=None, prefix=""):
    q, k, v = (split(F.linear(z, names[prefix + n + "_proj.weight"]), heads) for z, n in ((x, "q"), (y, "k"), (y, "v")))
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + bias
    if keep is not None:
        scores = scores.masked_fill(~keep, -math.inf)
    w = scores.softmax(-1)
    return F.linear(merge(w @ v), names[prefix + "o_proj.weight"]), w


TABLE = "relative_bias.relative_attention_bias.weight"


def t5_bias(table, lq, lk, bidirectional, max_distance=6):
    return table[bucket(offsets(lq, lk), table.shape[0], max_distance, bidirectional)].permute(2, 0, 1)[None]


def t5_layers():
    """A layer with a table, and one that uses its bias, whose weights have the prefix "1.". Both have inputs of their
    own; out has the outputs of both."""
    x, y, names = draw(2, 5, 4), draw(2, 5, 4), {**t5_names(4), TABLE: draw(8, 2), **t5_names(4, "1.")}
    bias = t5_bias(names[TABLE], 5, 5, True)
    (first, w0), (second, w1) = t5(x, x, names, 2, bias), t5(y, y, names, 2, bias, prefix="1.")
    save("t5_layers", {"query0": x, "query1": y}, names, torch.stack((first, second)), weights0=w0, weights1=w1)


def t5_cross():
    x, y, names = draw(2, 4, 4), draw(2, 6, 4), {**t5_names(4), TABLE: draw(8, 2)}
    out, w = t5(x, y, names, 2, t5_bias(names[TABLE], 4, 6, True))
    save("t5_cross", {"query": x, "key": y}, names, out, weights=w)


def t5_decode():
    x, names = draw(2, 9, 4), {**t5_names(4), TABLE: draw(8, 2)}
    out, w = t5(x, x, names, 2, t5_bias(names[TABLE], 9, 9, False, 20), offsets(9, 9) <= 0)
    save("t5_decode", {"query": x}, names, out, weights=w)


def relative_positional_bias():
    table = draw(8, 3)
    arrays = {"relative_attention_bias.weight": table.half()}
    for both in (False, True):
        arrays["want.bias%d" % both] = t5_bias(table, 7, 9, both)
    save_file({n: t.detach().contiguous() for n, t in arrays.items()}, DATA / "relative_positional_bias.safetensors")


# ------------------------------------------------------------------------------------- symm_learning

def additive_rel():
    """torch.nn.MultiheadAttention with attn_mask = -rel_bias[trunc(clamp(p_q - p_k)) + max_distance]; a pair with a
    masked position gets 0."""
    dim, heads, limit, b, lq, lk = 4, 2, 2, 2, 4, 5
    m = nn.MultiheadAttention(dim, heads, batch_first=True)
    names = {"attn.in_proj_weight": linear(3 * dim, dim), "attn.in_proj_bias": draw(3 * dim),
             "attn.out_proj.weight": linear(dim, dim), "attn.out_proj.bias": draw(dim), "rel_bias": draw(2 * limit + 1)}
    x, y, z = draw(b, lq, dim), draw(b, lk, dim), draw(b, lk, dim)
    pq, pk = (2 * draw(b, lq)).detach(), (2 * draw(lk)).detach()
    mq, mk = torch.ones(b, lq, dtype=torch.bool), torch.ones(lk, dtype=torch.bool)
    mq[1, 2] = mk[3] = False
    padding = torch.zeros(b, lk, dtype=torch.bool)
    padding[1, -1] = True
    d = pq[:, :, None] - pk[None, None]
    bias = names["rel_bias"][d.clamp(-limit, limit).trunc().long() + limit]
    mask = -torch.where(mq[:, :, None] & mk, bias, 0).repeat_interleave(heads, 0)
    state = {n[5:]: t for n, t in names.items() if n.startswith("attn.")}
    out, w = torch.func.functional_call(m, state, (x, y, z), {
        "attn_mask": mask, "key_padding_mask": torch.zeros(b, lk).masked_fill(padding, -math.inf),
        "need_weights": True})
    save("additive_rel", {"query": x, "key": y, "value": z}, names, out,
         {"q_positions": pq, "k_positions": pk, "q_position_mask": mq, "k_position_mask": mk, "keep": ~padding}, mean=w)


# ------------------------------------------------------------------------------------- other layers

def grouped():
    """Four query heads, two key/value heads, all widths different; a causal mask, a key mask and a softcap."""
    b, lq, lk, h, hk, dk, dv = 2, 5, 4, 4, 2, 2, 3
    x, y, z = draw(b, lq, 3), draw(b, lk, 5), draw(b, lk, 4)
    names = {"q_proj.weight": linear(h * dk, 3), "q_proj.bias": draw(h * dk), "k_proj.weight": linear(hk * dk, 5),
             "v_proj.weight": linear(hk * dv, 4), "v_proj.bias": draw(hk * dv), "o_proj.weight": linear(6, h * dv),
             "o_proj.bias": draw(6)}
    q = split(F.linear(x, names["q_proj.weight"], names["q_proj.bias"]), h)
    k = split(F.linear(y, names["k_proj.weight"]), hk).repeat_interleave(h // hk, 1)
    v = split(F.linear(z, names["v_proj.weight"], names["v_proj.bias"]), hk).repeat_interleave(h // hk, 1)
    padding = torch.ones(b, lk, dtype=torch.bool)
    padding[0, 0] = False  # query 0 of batch entry 0 attends to no key
    keep = (offsets(lq, lk) <= 0) & padding[:, None, None]
    scores = 2 * torch.tanh(0.7 * q @ k.transpose(2, 3) / 2)
    # the softmax of a row of -inf has gradient NaN: compute it from scores that are finite in such rows
    safe = torch.where(keep.any(-1, keepdim=True), scores.masked_fill(~keep, -math.inf), torch.zeros(()))
    w = safe.softmax(-1) * keep
    out = F.linear(merge(w @ v), names["o_proj.weight"], names["o_proj.bias"])
    save("grouped", {"query": x, "key": y, "value": z}, names, out, {"keep": padding}, weights=w)


def images():
    """Patches as a convolution sees them, and interpolated tables, with their gradients."""
    x, kernel = draw(2, 3, 4, 6), draw(5, 3, 2, 2)
    embedded = F.conv2d(x, kernel, stride=2).flatten(2).transpose(1, 2)
    dout = draw(*embedded.shape)
    dx, dkernel = torch.autograd.grad((embedded * dout).sum(), (x, kernel))
    arrays = {"images": x.half(), "kernel": kernel.half(), "dembedded": dout.half(), "embedded": embedded,
              "dimages": dx, "dkernel": dkernel}
    for name, mode, extra, size, to in (("linear_up", "bilinear", 1, (3, 4), (5, 7)),
                                        ("linear_down", "bilinear", 0, (5, 4), (2, 3)),
                                        ("cubic_up", "bicubic", 2, (3, 4), (7, 5)),
                                        ("cubic_down", "bicubic", 1, (5, 4), (3, 2))):
        table = draw(extra + size[0] * size[1], 2)
        grid = table[extra:].view(1, *size, 2).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, to, mode=mode, align_corners=False).permute(0, 2, 3, 1).reshape(-1, 2)
        resized = torch.cat((table[:extra], grid))
        dresized = draw(*resized.shape)
        dtable, = torch.autograd.grad((resized * dresized).sum(), table)
        arrays.update({name + ".table": table.half(), name + ".resized": resized, name + ".dresized": dresized.half(),
                       name + ".dtable": dtable})
    save_file({n: t.detach().contiguous() for n, t in arrays.items()}, DATA / "images.safetensors")


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for seed, make in enumerate((position_bias, position_table, relative_self_attention, vit, window, t5_layers,
                                 t5_cross, t5_decode, relative_positional_bias, additive_rel, grouped, images)):
        torch.manual_seed(seed)
        make()
