"""Run the lines of tests/texts/rows.tsv that need PyTorch.  SPDX-License-Identifier: Apache-2.0"""
import subprocess
import sys

import pytest
import textrows
from textrows import array, at, attend, buckets, draw, offsets, softmax, swin_bias, turned

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
import relpos.torch as rt  # noqa: E402

ROWS = textrows.rows("torch")


def tensors(*arrays):
    return tuple(torch.from_numpy(np.ascontiguousarray(x)) for x in arrays)


def with_numbers(module, **given):
    """Set the parameters of a module to fixed random numbers in double precision, or to given arrays."""
    module = module.double()
    with torch.no_grad():
        for n, (name, p) in enumerate(module.named_parameters()):
            p.copy_(torch.from_numpy(given.get(name, draw(*p.shape, seed=100 + n) / 2)))
    return module


def gradients(function, *arrays):
    """Return the gradients of a weighted sum of the output by the arrays."""
    inputs = [x.requires_grad_() for x in tensors(*(np.array(a) for a in arrays))]
    out = function(*inputs)
    (out * torch.from_numpy(draw(*out.shape, seed=5))).sum().backward()
    return [array(x.grad) for x in inputs]


def parameter_gradients(module, function):
    out = function(module)
    (out * torch.from_numpy(draw(*out.shape, seed=5))).sum().backward()
    return [array(p.grad) for p in module.parameters()]


# ---------------------------------------------------------------------------------------------- formulas in torch

def plain(q, k, v, bias):
    weights = (q @ k.mT / q.shape[-1] ** 0.5 + torch.as_tensor(bias)).softmax(-1)
    return weights, weights @ v


def plain_scores(q, k, a_k):
    return (q[:, None] * (k + a_k[torch.from_numpy(at(3, 6))])).sum(-1) / 2


def vectors(a):
    """Return an embedding of 4 channels whose vectors of keys and of values are `a`."""
    module = rt.RelativePositionEmbedding(3, 4, 4)
    del module.a_K, module.a_V
    module.a_K = module.a_V = torch.as_tensor(a)
    return module


def seeded(module):
    """Set the parameters to those of the NumPy layer with the same seed."""
    of = textrows.rn.RelativeSelfAttention(8, 4, 4, max_distance=3, seed=123)
    return with_numbers(module, W_q=of.W_q, W_k=of.W_k, W_v=of.W_v,
                        **{"rel_embed.a_K": of.rel_embed.a_K, "rel_embed.a_V": of.rel_embed.a_V})


# ---------------------------------------------------------------------------------------------- formulas in NumPy

def heads_of(x, heads=2):
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def joined(x):
    return x.swapaxes(-2, -3).reshape(*x.shape[:-3], x.shape[-2], -1)


def linear(layer, x):
    bias = 0 if layer.bias is None else array(layer.bias)
    return x @ array(layer.weight).T + bias


def projected(module, query, key=None):
    key = query if key is None else key
    return [heads_of(linear(f, x)) for f, x in ((module.q_proj, query), (module.k_proj, key), (module.v_proj, key))]


def shaw_heads(module, x):
    out, weights = with_numbers(module)(*tensors(*[x[None]] * 3), need_weights=True)
    return out, weights


def plain_shaw_heads(module, x):
    module = with_numbers(module)
    q, k, v = projected(module, x)
    a_k, a_v = array(module.rel_embed.a_K), array(module.rel_embed.a_V)
    weights = np.stack([softmax(textrows.shaw_scores(a, b, a_k)) for a, b in zip(q, k)])
    out = np.stack([textrows.shaw_output(w, y, a_v) for w, y in zip(weights, v)])
    return linear(module.out_proj, joined(out))[None], weights.mean(0)[None]


def plain_window(module, x, mask=0.0):
    q, k, v = (heads_of(part) for part in np.split(linear(module.qkv, x), 3, -1))
    bias = swin_bias(array(module.relative_position_bias_table), 2, 2)
    return linear(module.proj, joined(attend(q, k, v, bias + mask)[1]))


def plain_factorised(module, x):
    """Return the attention in windows of 2 x 3 tokens."""
    q, k, v = (heads_of(part) for part in np.split(linear(module.qkv, x), 3, -1))
    bias = textrows.axial_bias(array(module.bias_h), array(module.bias_w), 2, 3)
    return linear(module.proj, joined(attend(q, k, v, bias)[1]))


def plain_clipped(module, x):
    q, k, v = projected(module, x)
    table = array(module.relative_bias)  # by query - key
    weights, out = attend(q, k, v, table[..., 4 - at(2, x.shape[1])])
    return linear(module.out_proj, joined(out)), weights.mean(1)


def plain_t5(module, x, bias=None, keep=True, scale=1.0):
    """Return the output of T5Attention; `scale` multiplies the scores."""
    q, k, v = projected(module, x)
    if bias is None:
        n = x.shape[1]
        bias = array(module.relative_bias.relative_attention_bias.weight)[buckets(offsets(n))].transpose(2, 0, 1)
    return linear(module.o_proj, joined(attend(q * scale, k, v, bias, keep)[1]))


class OtherSlopes(torch.nn.Module):
    """Biases -|j - i| / 4 and -|j - i| / 16, of no class of relpos."""

    def forward(self, query_length, key_length, device=None):
        distance = torch.from_numpy(abs(offsets(query_length, key_length))).double()
        return -distance * torch.tensor([0.25, 0.0625]).double()[None, :, None, None]


class Slopes(rt.RelativePositionalBias):
    forward = OtherSlopes.forward


def causal_weights(bias):
    x = torch.from_numpy(np.broadcast_to(draw(6, 4), (2, 6, 4)).copy())
    return textrows.relpos.attention(x, x, x, bias=bias.term(), causal=True, return_weights=True).weights


def two_steps():
    """Use an array of biases in two steps of training."""
    module = rt.RelativePositionalBias(2)
    kept = module(3, 3)
    for _ in range(2):
        kept.square().sum().backward()


def layers_of():
    first, second = (with_numbers(rt.T5Attention(4, 2, has_relative_bias=b)) for b in (True, False))
    return first, second


def shared_layers():
    first, second = layers_of()
    y, bias = first(*tensors(draw(2, 6, 4)))
    return second(y, position_bias=bias)[0]


def plain_shared_layers():
    first, second = layers_of()
    table = array(first.relative_bias.relative_attention_bias.weight)
    bias = table[buckets(offsets(6))].transpose(2, 0, 1)
    return plain_t5(second, plain_t5(first, draw(2, 6, 4)), bias)


SIDES = draw(2, 3, 4), draw(2, 5, 4, seed=1), draw(2, 5, 4, seed=2)
AT_Q, AT_K = tensors(np.array([0.5, 1.25, 4]), np.array([0, 0.75, 1.5, 2.25, 9]))


def additive(cls=rt.AdditiveRelMultiheadAttention, **options):
    return with_numbers(cls(4, 2, batch_first=True, **(options or {"max_distance": 2})))


def of_attn(module, q, k, v, bias, keep=True):
    """Return the output and mean weights of the wrapped torch.nn.MultiheadAttention."""
    w, b = array(module.attn.in_proj_weight), array(module.attn.in_proj_bias)
    q, k, v = (heads_of(x @ w[4 * n:4 * n + 4].T + b[4 * n:4 * n + 4]) for n, x in enumerate((q, k, v)))
    weights, out = attend(q, k, v, bias, keep)
    return linear(module.attn.out_proj, joined(out)), weights.mean(1)


def functional(module, **parameters):
    """Return a function that calls a module with these parameters."""
    return lambda *arguments, **options: torch.func.functional_call(module, parameters, arguments, options)


def of_torch(module, q, table):
    """Return the mean weights of torch.nn.MultiheadAttention, with the biases as its mask."""
    r = torch.from_numpy(np.clip(-offsets(3, 5), -2, 2) + 2)
    return module.attn(q, *tensors(*SIDES[1:]), attn_mask=-table[r])[1]


def plain_additive(module, at_q=None, at_k=None, known=True, keep=True, values=None):
    at_q, at_k = np.arange(3) if at_q is None else array(at_q), np.arange(5) if at_k is None else array(at_k)
    r = at_q[:, None] - at_k
    table = array(module.rel_bias)
    bias = values(r) if values else table[np.trunc(np.clip(r, -2, 2)).astype(int) + 2]
    return of_attn(module, *SIDES, -np.where(known, bias, 0), keep)


def plain_placed(module):
    place = array(module.pos_emb)
    return of_attn(module, SIDES[0] + place[:3], SIDES[1] + place[:5], SIDES[2], 0.0)


def plain_rotated(module):
    q, k = linear(module.q_proj, SIDES[0]), linear(module.k_proj, SIDES[1])
    q, k, v = heads_of(q), heads_of(k), heads_of(linear(module.v_proj, SIDES[2]))
    weights, out = attend(turned(q, array(AT_Q)[:, None]), turned(k, array(AT_K)[:, None]), v)
    return linear(module.out_proj, joined(out)), weights.mean(1)


def counts_as_positional():
    """Return true if the layers are subclasses of symm_learning's base class, which a module of this name has here."""
    code = """
import sys, types, torch, abc
class Base(torch.nn.Module, abc.ABC): pass
for name in ("symm_learning", "symm_learning.nn"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["symm_learning.nn.activation"] = types.SimpleNamespace(PositionalAttentionBase=Base)
import relpos.torch as rt
layers = (rt.AdditiveRelMultiheadAttention(8, 2, max_distance=3), rt.AdditivePosMultiheadAttention(8, 2, max_len=3),
          rt.RoPEMultiheadAttention(8, 2))
print(all(isinstance(layer, Base) for layer in layers), isinstance(torch.nn.Linear(2, 2), Base))
"""
    return subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True).stdout


NAMES = {**textrows.NAMES, **globals()}


@pytest.mark.parametrize("run, expected", [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_row(run, expected):
    textrows.check(run, expected, dict(NAMES))
