"""Replace every method and change every attribute of the tutorials' classes: relpos obeys, or refuses in words.

Each class is compared with a plain class that has the same methods and attributes and computes with arrays of all
pairs.

SPDX-License-Identifier: Apache-2.0"""
import contextlib
import copy
import io
import re
import subprocess
import sys
import types

import numpy as np
import pytest
import relpos
import relpos.numpy as rn

torch = pytest.importorskip("torch")
import relpos.torch as rt  # noqa: E402
from torch import nn  # noqa: E402

# The methods and attributes of the classes, copied from the tutorials and from symm_learning.
NAMES = {
    "numpy.RelativePositionBiasAttention": "d_k bias_scale scale _build_bias_matrix _softmax forward explain",
    "numpy.RelativePositionEmbedding": "a_K a_V max_distance get_key_embedding get_value_embedding",
    "numpy.RelativeSelfAttention": "W_q W_k W_v rel_embed d_k forward",
    "torch.RelativePositionBiasAttention": "d_k scale bias_scale num_buckets max_seq_len relative_bias_table "
                                           "_compute_bias forward",
    "torch.RelativePositionEmbedding": "a_K a_V max_distance get_key_embedding get_value_embedding",
    "torch.RelativeSelfAttention": "W_q W_k W_v rel_embed d_k forward",
    "torch.RelativePositionalBias": "num_heads num_buckets max_distance bidirectional relative_attention_bias "
                                    "_relative_position_bucket forward",
    "torch.T5Attention": "dim num_heads head_dim has_relative_bias q_proj k_proj v_proj o_proj relative_bias forward",
    "torch.AdditiveRelMultiheadAttention": "attn embed_dim max_distance num_heads rel_bias forward reset_parameters "
                                           "_positions_or_arange "
                                           "_normalize_positions _positions_are_shared_across_batch _relative_bias "
                                           "_relative_bias_values",
    "torch.AdditivePosMultiheadAttention": "attn embed_dim max_len num_heads pos_emb forward reset_parameters "
                                           "_positions_or_arange "
                                           "_normalize_positions _position_update",
    "torch.RoPEMultiheadAttention": "embed_dim num_heads dropout head_dim q_proj k_proj v_proj out_proj rotary_emb "
                                    "forward reset_parameters "
                                    "_positions_or_arange _normalize_positions _split_heads _merge_heads _merge_masks "
                                    "_attention_with_weights",
    "torch.RotaryEmbedding": "dim base inv_freq forward apply_rope",
}
# dropout: in training only
NO_EFFECT = {"d_k", "max_seq_len", "embed_dim", "max_len", "base", "dropout", "reset_parameters",
             "num_heads of RelativePositionalBias", "num_heads of AdditiveRelMultiheadAttention",
             "num_heads of AdditivePosMultiheadAttention",
             "num_buckets of RelativePositionBiasAttention", "relative_bias_table of RelativePositionBiasAttention"}

RNG = np.random.default_rng(3)
Q, K, V = (RNG.standard_normal((6, 4)) for _ in range(3))
X = RNG.standard_normal((6, 8))
TOKENS = list("abcdef")


@pytest.fixture(autouse=True)
def in_doubles():
    torch.manual_seed(4)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def tensor(x):
    return torch.from_numpy(np.array(x))


def offsets(lq, lk):
    """Return key - query."""
    return torch.arange(lk) - torch.arange(lq)[:, None]


# ---------------------------------------------------------------------------------------------- the plain classes

class PlainBiasNumPy:
    def __init__(self, d_k, bias_scale):
        self.d_k, self.bias_scale, self.scale = d_k, bias_scale, d_k ** 0.5

    def _build_bias_matrix(self, N):
        return -self.bias_scale * np.log1p(abs(np.arange(N) - np.arange(N)[:, None]))

    def _softmax(self, x):
        x = np.exp(x - x.max(-1, keepdims=True))
        return x / x.sum(-1, keepdims=True)

    def forward(self, Q, K, V):
        weights = self._softmax(Q @ K.T / self.scale + self._build_bias_matrix(len(Q)))
        return weights, weights @ V

    def explain(self, Q, K, V, tokens, query_idx=0):
        weights, output = self.forward(Q, K, V)
        B, scaled = self._build_bias_matrix(len(tokens)), Q @ K.T / self.scale
        for name, row in ("Scaled scores:", scaled), ("Bias values:", B), ("Biased scores:", scaled + B):
            print(name, np.round(row[query_idx], 4))
        for j, token in enumerate(tokens):
            print(f"A[{tokens[query_idx]},{token}] = {weights[query_idx, j]:.4f}")
        print(f"Output = {np.round(output[query_idx], 4)}")


class PlainVectors(nn.Module):
    def __init__(self, max_distance, a_K, a_V):
        super().__init__()
        self.max_distance = max_distance
        self.a_K, self.a_V = a_K, a_V

    def get_key_embedding(self, rel_pos):
        return self.a_K[max(-self.max_distance, min(self.max_distance, rel_pos)) + self.max_distance]

    def get_value_embedding(self, rel_pos):
        return self.a_V[max(-self.max_distance, min(self.max_distance, rel_pos)) + self.max_distance]


def plain_scores(q, k, vectors):
    a = torch.stack([torch.stack([torch.as_tensor(vectors.get_key_embedding(j - i)) for j in range(len(k))])
                     for i in range(len(q))])
    return (q @ k.T + (q[:, None] * a).sum(-1)) / q.shape[1] ** 0.5


def plain_output(w, v, vectors):
    a = torch.stack([torch.stack([torch.as_tensor(vectors.get_value_embedding(j - i)) for j in range(len(v))])
                     for i in range(len(w))])
    return (w[..., None] * (v + a)).sum(1)


class PlainSelf(nn.Module):
    def __init__(self, W_q, W_k, W_v, rel_embed):
        super().__init__()
        self.W_q, self.W_k, self.W_v, self.rel_embed, self.d_k = W_q, W_k, W_v, rel_embed, W_q.shape[1]

    def forward(self, x):
        q, k, v = (torch.as_tensor(x) @ torch.as_tensor(w) for w in (self.W_q, self.W_k, self.W_v))
        weights = plain_scores(q, k, self.rel_embed).softmax(-1)
        return plain_output(weights, v, self.rel_embed), weights


class PlainBias(nn.Module):
    def __init__(self, d_k):
        super().__init__()
        self.d_k, self.scale, self.bias_scale, self.num_buckets, self.max_seq_len = d_k, d_k ** 0.5, 0.3, 32, 512
        self.relative_bias_table = nn.Parameter(torch.zeros(32))

    def _compute_bias(self, N):
        return -self.bias_scale * offsets(N, N).abs().double().log1p()

    def forward(self, Q, K, V, mask=None):
        scores = Q @ K.T / self.scale + self._compute_bias(len(Q))
        weights = (scores if mask is None else scores.masked_fill(mask, -torch.inf)).softmax(-1)
        return weights, weights @ V


class PlainTable(nn.Module):
    """Offsets are key - query."""

    def __init__(self, num_heads, weight):
        super().__init__()
        self.num_heads, self.num_buckets, self.max_distance, self.bidirectional = num_heads, 32, 128, True
        self.relative_attention_bias = nn.Embedding(32, num_heads)
        self.relative_attention_bias.weight = nn.Parameter(weight.detach().clone())

    def forward(self, query_length, key_length, device=None):
        buckets = relpos.bucket(offsets(query_length, key_length).numpy(), buckets=self.num_buckets,
                                max_distance=self.max_distance,
                                bidirectional=self.bidirectional)
        return self.relative_attention_bias(torch.from_numpy(buckets)).permute(2, 0, 1)[None]


class PlainT5(nn.Module):
    def __init__(self, ours):
        super().__init__()
        self.dim, self.num_heads, self.head_dim, self.has_relative_bias = ours.dim, ours.num_heads, ours.head_dim, True
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = ours.q_proj, ours.k_proj, ours.v_proj, ours.o_proj
        self.relative_bias = PlainTable(ours.num_heads, ours.relative_bias.relative_attention_bias.weight)

    def forward(self, x, mask=None, position_bias=None):
        q, k, v = (p(x).view(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.mT / self.head_dim ** 0.5
        if self.has_relative_bias:
            position_bias = self.relative_bias(x.shape[1], x.shape[1],
                                               device=x.device) if position_bias is None else position_bias
            scores = scores + position_bias
        return (self.o_proj(((scores if mask is None else scores + mask).softmax(-1)
                             @ v).transpose(1, 2).reshape(*x.shape[:2], self.dim)), None)


def plain_cross(query, key, value, relative_bias):
    scores = query @ key.mT / query.shape[-1] ** 0.5 + relative_bias(query.shape[2], key.shape[2], device=query.device)
    return scores.softmax(-1) @ value


class PlainRel(nn.Module):
    def __init__(self, ours):
        super().__init__()
        self.attn, self.embed_dim, self.num_heads, self.max_distance = (copy.deepcopy(ours.attn), ours.embed_dim,
                                                                        ours.num_heads, ours.max_distance)
        self.rel_bias = ours.rel_bias

    def _relative_bias_values(self, rel_positions):
        return self.rel_bias[rel_positions.clamp(-self.max_distance, self.max_distance).long() + self.max_distance]

    def _relative_bias(self, q_positions, k_positions, q_position_mask, k_position_mask, *, batch_size, tgt_len,
                       src_len, target_dtype):
        bias = self._relative_bias_values(q_positions[..., :, None] - k_positions[..., None, :]).to(target_dtype)
        for mask, at in (q_position_mask, -1), (k_position_mask, -2):
            bias = bias if mask is None else bias * mask.unsqueeze(at)
        return bias if bias.dim() == 2 else bias.expand(batch_size, -1, -1).repeat_interleave(self.num_heads, 0)

    def forward(self, query, key, value, *, q_positions=None, k_positions=None, q_position_mask=None,
                k_position_mask=None, attn_mask=None,
                key_padding_mask=None, need_weights=False, is_causal=False):
        q_positions, k_positions = (torch.arange(x.shape[1]) if p is None else p
                                    for x, p in ((query, q_positions), (key, k_positions)))
        bias = self._relative_bias(q_positions, k_positions, q_position_mask, k_position_mask, batch_size=len(query),
                                   tgt_len=query.shape[1],
                                   src_len=key.shape[1], target_dtype=query.dtype)
        masks = [] if bias is None else [-bias]
        masks += [torch.full((query.shape[1], key.shape[1]), -torch.inf).triu(1)] if is_causal else []
        masks += [] if attn_mask is None else [torch.zeros(attn_mask.shape).masked_fill(attn_mask, -torch.inf)]
        return self.attn(query, key, value, attn_mask=sum(masks) if masks else None, key_padding_mask=key_padding_mask,
                         need_weights=need_weights)


class PlainPos(nn.Module):
    def __init__(self, ours):
        super().__init__()
        self.attn, self.embed_dim, self.num_heads, self.max_len, self.pos_emb = (copy.deepcopy(ours.attn), 16, 2,
                                                                                 ours.max_len, ours.pos_emb)

    def _position_update(self, x, positions, position_mask):
        positions = torch.arange(x.shape[1]) if positions is None else positions
        if position_mask is None:
            return self.pos_emb[positions.long()]
        return self.pos_emb[positions.masked_fill(~position_mask, 0).long()] * position_mask[..., None]

    forward = None  # below


def plain_pos_forward(self, query, key, value, *, q_positions=None, k_positions=None, q_position_mask=None,
                      k_position_mask=None, need_weights=False,
                      is_causal=False, attn_mask=None, key_padding_mask=None):
    query = query + self._position_update(query, q_positions, q_position_mask)
    key = key + self._position_update(key, k_positions, k_position_mask)
    return PlainRel.forward(types.SimpleNamespace(attn=self.attn, _relative_bias=lambda *_, **__: None), query, key,
                            value,
                            need_weights=need_weights, is_causal=is_causal, attn_mask=attn_mask,
                            key_padding_mask=key_padding_mask)


PlainPos.forward = plain_pos_forward


class PlainRotary(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.dim, self.base, self.inv_freq = dim, base, base ** (-torch.arange(0, dim, 2) / dim)

    def forward(self, positions):
        angles = positions[..., None] * self.inv_freq
        return angles.cos(), angles.sin()

    def apply_rope(self, x, positions):
        if x.shape[-1] != self.dim:
            raise ValueError("dim")
        cos, sin = self(positions if positions.dim() == 1 else positions[:, None])
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.complex(cos, sin)
        return torch.view_as_real(pairs).flatten(-2)


class PlainRoPE(nn.Module):
    def __init__(self, ours):
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim, self.dropout = ours.embed_dim, ours.num_heads, ours.head_dim, 0.0
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj
        self.rotary_emb = PlainRotary(ours.head_dim)

    def forward(self, query, key, value, *, q_positions=None, k_positions=None, q_position_mask=None,
                k_position_mask=None, need_weights=False,
                is_causal=False, attn_mask=None, key_padding_mask=None):
        q, k, v = (p(x).view(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)
                   for p, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value)))
        turned = []
        for x, at, mask in (q, q_positions, q_position_mask), (k, k_positions, k_position_mask):
            at = torch.arange(x.shape[2]) if at is None else at
            at = at if mask is None else at.masked_fill(~mask, 0)
            turned.append(self.rotary_emb.apply_rope(x, at))
        scores = turned[0] @ turned[1].mT / self.head_dim ** 0.5
        if is_causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask, -torch.inf)
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None], -torch.inf)
        weights = scores.softmax(-1)
        out = self.out_proj((weights @ v).transpose(1, 2).reshape(*query.shape[:2], self.embed_dim))
        return out, weights.mean(1) if need_weights else None


# ---------------------------------------------------------------------------------------------- both classes, and what
# to compute with them

def numbers(text):
    """Return the numbers of the lines that both explain() print."""
    lines = [line.partition(" (d=")[0] for line in text.splitlines() if re.search(r"(Scaled|Bias|A\[|Output)", line)
             and "bias_scale" not in line]
    return [np.array([float(x) for x in re.findall(r"-?\d+\.\d*", line.rpartition("=")[2])]) for line in lines]


def run_bias_numpy(x):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        x.explain(Q, K, V, TOKENS, 2)
    shown = numbers(said.getvalue())
    return [*x.forward(Q, K, V), *[np.round(s, 3) for s in shown if len(s)]]


def run_vectors(x):
    """Use the vectors in a layer and in every function that accepts them."""
    plain = isinstance(x, PlainVectors)
    q, k, v, w = tensor(Q), tensor(K), tensor(V), tensor(abs(X[:, :6]))
    if plain:
        layer = PlainSelf(*WEIGHTS, x)
        biases = plain_scores(q, torch.zeros_like(k), x)
        return [*layer(X), plain_scores(q, k, x), plain_output(w, v, x), biases]
    layer = (rn.RelativeSelfAttention(8, 4, 4, 3, seed=1) if isinstance(x, rn.RelativePositionEmbedding)
             else rt.RelativeSelfAttention(8, 4, 4, 3))
    for name, array in zip(("W_q", "W_k", "W_v"), WEIGHTS):
        setattr(layer, name, array.numpy() if isinstance(layer, rn.RelativeSelfAttention) else nn.Parameter(array))
    layer.rel_embed = x
    ours = layer.forward(X if isinstance(layer, rn.RelativeSelfAttention) else tensor(X))
    biases = rn.compute_position_biases(Q, x)
    if isinstance(x, nn.Module):
        np.testing.assert_allclose(rt.compute_position_biases(q, x).detach(), biases, atol=1e-12)
    return [*ours, rn.relative_attention_scores(Q, K, x), rn.relative_attention_output(w.numpy(), V, x), biases]


WEIGHTS = [tensor(RNG.standard_normal((8, 4)) / 2) for _ in range(3)]


def run_self(x):
    return x.forward(X if isinstance(x, rn.RelativeSelfAttention) else tensor(X))


def run_bias(x):
    mask = torch.ones(6, 6, dtype=torch.bool).triu(2)
    return [*x(tensor(Q), tensor(K), tensor(V)), *x(tensor(Q), tensor(K), tensor(V), mask)]


SEQUENCE = tensor(RNG.standard_normal((2, 5, 16)))
SHORT = tensor(RNG.standard_normal((2, 7, 16)))


def run_table(x):
    """Call the biases, and use them in a layer and in cross-attention."""
    torch.manual_seed(8)
    layer = rt.T5Attention(16, 2)
    layer = PlainT5(layer) if isinstance(x, PlainTable) else layer
    layer.relative_bias = x
    q, k = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in (SEQUENCE, SHORT))
    cross = plain_cross if isinstance(x, PlainTable) else rt.cross_attention_with_bias
    return [x(5, 7), layer(SEQUENCE)[0], cross(q, k, k, x)]


def run_t5(x):
    return [x(SEQUENCE)[0]]


def run_multihead(x):
    known = torch.tensor([True, True, False, True, True])
    places, batched = torch.tensor([0, 1.5, 4, 9, 11]), torch.tensor([[0, 1, 2, 7, 9], [3, 1, 4, 1, 5]])
    found = []
    for options in ({}, {"q_positions": places, "k_positions": places, "is_causal": True},
                    {"q_positions": batched, "k_positions": batched, "q_position_mask": known.expand(2, 5),
                     "need_weights": True},
                    {"attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(2),
                     "key_padding_mask": torch.tensor([[False] * 5, [False] * 4 + [True]])}):
        found += [y for y in x(SEQUENCE, SEQUENCE, SEQUENCE, **options) if y is not None]
    return found


def run_rotary(x):
    return [x.apply_rope(SEQUENCE.unflatten(-1, (2, 8)).transpose(1, 2), positions=torch.arange(5)),
            *x(torch.arange(4.0))]


def vectors_numpy():
    ours = rn.RelativePositionEmbedding(3, 4, 4, seed=2)
    return ours, PlainVectors(3, ours.a_K, ours.a_V)


def vectors_torch():
    ours = rt.RelativePositionEmbedding(3, 4, 4, seed=2)
    return ours, PlainVectors(3, ours.a_K, ours.a_V)


def self_numpy():
    ours = rn.RelativeSelfAttention(8, 4, 4, 3, seed=2)
    return ours, PlainSelf(ours.W_q, ours.W_k, ours.W_v, PlainVectors(3, ours.rel_embed.a_K, ours.rel_embed.a_V))


def self_torch():
    ours = rt.RelativeSelfAttention(8, 4, 4, 3, seed=2)
    return ours, PlainSelf(ours.W_q, ours.W_k, ours.W_v, PlainVectors(3, ours.rel_embed.a_K, ours.rel_embed.a_V))


def table():
    ours = rt.RelativePositionalBias(2)
    nn.init.normal_(ours.relative_attention_bias.weight)
    return ours, PlainTable(2, ours.relative_attention_bias.weight)


def t5():
    ours = rt.T5Attention(16, 2)
    nn.init.normal_(ours.relative_bias.relative_attention_bias.weight)
    return ours, PlainT5(ours)


def multihead(ours, plain):
    for p in ours.parameters():
        nn.init.normal_(p, std=0.4)
    return ours.eval(), plain(ours).eval()


PAIRS = {  # class: (a function that returns an object of relpos and the same as a plain object, what to compute)
    "numpy.RelativePositionBiasAttention": (lambda: (rn.RelativePositionBiasAttention(4, 0.3),
                                                     PlainBiasNumPy(4, 0.3)), run_bias_numpy),
    "numpy.RelativePositionEmbedding": (vectors_numpy, run_vectors),
    "numpy.RelativeSelfAttention": (self_numpy, run_self),
    "torch.RelativePositionBiasAttention": (lambda: (rt.RelativePositionBiasAttention(4), PlainBias(4)), run_bias),
    "torch.RelativePositionEmbedding": (vectors_torch, run_vectors),
    "torch.RelativeSelfAttention": (self_torch, run_self),
    "torch.RelativePositionalBias": (table, run_table),
    "torch.T5Attention": (t5, run_t5),
    "torch.AdditiveRelMultiheadAttention": (lambda: multihead(rt.AdditiveRelMultiheadAttention(16, 2, max_distance=4),
                                                              PlainRel), run_multihead),
    "torch.AdditivePosMultiheadAttention": (lambda: multihead(rt.AdditivePosMultiheadAttention(16, 2, max_len=12),
                                                              PlainPos), run_multihead),
    "torch.RoPEMultiheadAttention": (lambda: multihead(rt.RoPEMultiheadAttention(16, 2), PlainRoPE), run_multihead),
    "torch.RotaryEmbedding": (lambda: (rt.RotaryEmbedding(8), PlainRotary(8)), run_rotary),
}


# ---------------------------------------------------------------------------------------------- the changes

class Doubled(nn.Embedding):
    def forward(self, x):
        return 2 * super().forward(x)


class OtherAttention(nn.MultiheadAttention):
    def forward(self, query, *args, **options):
        out, weights = super().forward(query, *args, **options)
        return 2 * out, weights


class OtherVectors(nn.Module):
    max_distance = 3

    def get_key_embedding(self, r):
        return np.array([0.1 * r, 1, -r, 0.3])

    def get_value_embedding(self, r):
        return np.array([r, 0.5, 1, -0.2 * r])


def with_hook(name):
    """Return a change that registers a forward hook of torch with a module."""
    def change(x):
        getattr(x,
                name).register_forward_hook(lambda module, inputs, out: (2 * out[0],
                                                                         out[1]) if isinstance(out, tuple) else 2 * out)
    return change


def with_new(name, **attributes):
    """Return a change that sets attributes of a module."""
    def change(x):
        for key, value in attributes.items():
            setattr(getattr(x, name), key, value() if key == "inv_freq" else value)
    return change


def swapped(positions):  # cosines and sines of other angles
    angles = positions[..., None] * torch.tensor([0.1, 0.2, 0.3, 0.4])
    return angles.cos(), angles.sin()


def array(*shape):
    made = np.random.default_rng(9).standard_normal(shape)
    return lambda x: nn.Parameter(tensor(made)) if isinstance(x,
                                                              nn.Module) and not isinstance(
                                                                  getattr(x, "a_K", None), np.ndarray) \
        and not isinstance(getattr(x, "W_q", None), np.ndarray) else made


def doubled(original):  # a method that returns twice the original's result
    return lambda self, *args, **options: 2 * original(self, *args, **options)


def doubled_first(original):  # for forward, which returns a tuple
    def method(self, *args, **options):
        first, second = original(self, *args, **options)
        return 2 * first, second
    return method


def halved_bias(original):
    return lambda self, N: 0.5 * original(self, N)


def explained(original):
    def method(self, Q, *args, **options):
        original(self, Q * 0, *args, **options)
    return method


METHODS = {  # name: a function of the original method that returns a replacement
    "_build_bias_matrix": halved_bias, "_compute_bias": halved_bias, "explain": explained,
    "_softmax": lambda original: lambda self, x: original(self, 2 * x),
    "get_key_embedding": doubled, "get_value_embedding": doubled, "_relative_bias": doubled,
    "_relative_bias_values": doubled,
    "_position_update": doubled, "_relative_position_bucket": doubled, "_positions_or_arange": doubled,
    "_normalize_positions": doubled,
    "_positions_are_shared_across_batch": doubled, "_split_heads": doubled, "_merge_heads": doubled,
    "_merge_masks": doubled,
    "_attention_with_weights": doubled, "apply_rope": doubled, "reset_parameters": lambda original: lambda self: None,
    "forward": doubled_first, "forward of RelativePositionalBias": doubled,
}


def linear(rows, columns):
    return lambda x: nn.Linear(columns, rows, bias=False)


def attention_like(cls):
    def make(x):
        new = cls(16, 2, batch_first=True)
        new.load_state_dict(x.attn.state_dict())
        return new
    return make


# name: new values, or functions of the object that return them; a function named `change` changes the object
ATTRIBUTES = {
    "d_k": [9], "bias_scale": [0.7, 0.0], "scale": [1.0, 3, np.float64(0.5)], "a_K": [array(7, 4)],
    "a_V": [array(7, 4)], "max_distance": [2, 5, 0],
    "W_q": [array(8, 4)], "W_k": [array(8, 4)], "W_v": [array(8, 4)], "rel_embed": [lambda x: OtherVectors()],
    "num_buckets": [16, 64], "max_seq_len": [3], "relative_bias_table": [array(32)], "num_heads": [4],
    "bidirectional": [False],
    "relative_attention_bias": [lambda x: Doubled(32, 2), lambda x: nn.Sequential(nn.Embedding(32, 3), nn.Linear(3, 2)),
                                with_hook("relative_attention_bias"),
                                lambda x: nn.Embedding(32, 2, max_norm=0.1)],
    "dim": [12], "head_dim": [4], "has_relative_bias": [False], "q_proj": [linear(16, 16)], "k_proj": [linear(16, 16)],
    "v_proj": [linear(16, 16)],
    "o_proj": [linear(16, 16)], "out_proj": [linear(16, 16)],
    "relative_bias": [lambda x: PlainTable(2, torch.randn(32, 2)), with_hook("relative_bias")],
    "attn": [attention_like(OtherAttention), with_hook("attn")], "embed_dim": [8, 32], "rel_bias": [array(9)],
    "max_len": [3],
    "pos_emb": [array(12, 16)], "dropout": [0.5],
    "rotary_emb": [lambda x: PlainRotary(8, 10.0), lambda x: rt.RotaryEmbedding(8, base=10.0),
                   with_new("rotary_emb", inv_freq=lambda: torch.arange(4.0)), with_new("rotary_emb", forward=swapped)],
    "base": [3.0], "inv_freq": [lambda x: torch.arange(4.0)],
    "scale of torch.RelativePositionBiasAttention": [1.0, lambda x: nn.Parameter(torch.tensor(1.5))],
    "bias_scale of torch.RelativePositionBiasAttention": [0.7, lambda x: nn.Parameter(torch.tensor(0.9))],
}


def same_seed(make, x):
    torch.manual_seed(12)
    return make(x)


def change_of(cls, name):
    """Return the changes of one name, as functions of (monkeypatch, object) that return the changed object."""
    short = cls.partition(".")[2]
    for_name = f"{name} of {cls}" if f"{name} of {cls}" in ATTRIBUTES else name
    if for_name in ATTRIBUTES:
        for value in ATTRIBUTES[for_name]:
            def attribute(patch, x, value=value):
                if getattr(value, "__name__", "") == "change":
                    value(x)
                else:
                    new = same_seed(value, x) if callable(value) and not isinstance(value, type) else value
                    if isinstance(new, nn.Parameter) and not isinstance(x, nn.Module):
                        new = new.detach().numpy()
                    if isinstance(new, nn.Parameter) and name in vars(x):  # a number becomes a parameter
                        delattr(x, name)
                    setattr(x, name, new)
                return x
            yield attribute
        return
    replacement = METHODS.get(f"{name} of {short}", METHODS[name])

    def subclass(patch, x):
        original = getattr(type(x), name, None)
        x.__class__ = type("Changed", (type(x),), {name: replacement(original)})
        return x

    def patched(patch, x):
        patch.setattr(type(x), name, replacement(getattr(type(x), name, None)), raising=False)
        return x

    def instance(patch, x):
        setattr(x, name, types.MethodType(replacement(getattr(type(x), name, None)), x))
        return x

    yield from (subclass, patched, instance)


CASES = [(cls, name) for cls, names in NAMES.items() for name in names.split()]


def test_every_name_has_a_change():
    """Each name of the lists is changed, and every change is of a name in the lists. The lists have the names of the
    plain classes."""
    listed = {name for _, name in CASES}
    assert {name.partition(" of ")[0] for name in {**ATTRIBUTES, **METHODS}} == listed
    for cls, (make, _) in PAIRS.items():
        plain = make()[1]
        own = {*vars(plain), *getattr(plain, "_parameters", ()), *getattr(plain, "_modules", ()),
               *vars(type(plain))} - {*vars(nn.Module()), *vars(nn.Module)}
        own = {name for name in own if not name.startswith("__")} | {"forward"} & {*vars(type(plain))}
        assert own <= {*NAMES[cls].split()}, cls


@pytest.mark.parametrize("cls, name", CASES, ids=lambda x: x)
def test_each_name_is_obeyed_or_refused(cls, name, monkeypatch):
    """A changed object of relpos gives what the plain object with the same change gives, or raises an error that has
    the name."""
    make, run = PAIRS[cls]
    torch.manual_seed(1)
    unchanged = run(make()[1])
    seen = set()
    for change in change_of(cls, name):
        torch.manual_seed(1)
        ours, plain = make()
        try:
            with monkeypatch.context() as patch:
                got = run(change(patch, ours))
        except (TypeError, ValueError, AttributeError) as refused:
            assert re.search(rf"\b{name}\b", str(refused)), refused
            seen.add("refused")
            continue
        with monkeypatch.context() as patch:
            want = run(change(patch, plain))
        assert len(got) == len(want)
        moved = 0
        for x, y, before in zip(got, want, unchanged):
            x, y, before = (np.asarray(z.detach() if isinstance(z, torch.Tensor) else z) for z in (x, y, before))
            np.testing.assert_allclose(x, y, atol=1.1e-3 if run is run_bias_numpy and x.ndim == 1 else 1e-10, rtol=0)
            moved += x.shape != before.shape or abs(x - before).max() > 1e-3
        no_effect = name in NO_EFFECT or f"{name} of {cls.partition('.')[2]}" in NO_EFFECT
        assert bool(moved) != no_effect
        seen.add("obeyed")
    assert seen


def test_gradients_of_replaced_steps():
    """Steps that are replaced have gradients, and so have tensors in place of numbers."""
    class Keys(rt.RelativePositionEmbedding):
        def get_key_embedding(self, rel_pos):
            return 2 * super().get_key_embedding(rel_pos)

    layer = rt.RelativeSelfAttention(8, 4, 4, 3, seed=2)
    layer.rel_embed = Keys(3, 4, 4, seed=1)
    plain = PlainSelf(layer.W_q, layer.W_k, layer.W_v, layer.rel_embed)
    wanted = [*layer.parameters()]
    for x, y in zip(*(torch.autograd.grad(m(tensor(X))[0].pow(2).sum(), wanted) for m in (layer, plain)), strict=True):
        torch.testing.assert_close(x, y, atol=1e-11, rtol=1e-11)
    module, plain = rt.RelativePositionBiasAttention(4), PlainBias(4)
    for x in module, plain:
        del x.scale, x.bias_scale
        x.scale, x.bias_scale = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.tensor(0.9))
    for x, y in zip(*(torch.autograd.grad(m(tensor(Q), tensor(K), tensor(V))[1].pow(2).sum(), (m.scale, m.bias_scale))
                      for m in (module, plain))):
        torch.testing.assert_close(x, y, atol=1e-11, rtol=1e-11)


def test_offsets_of_replaced_vectors():
    """q_offset moves the offsets for which a replaced get_key_embedding is called."""
    vectors, far = OtherVectors(), rt.RelativeSelfAttention(8, 4, 4, 20, seed=2)
    near = rn.RelativeSelfAttention(8, 4, 4, 3, seed=2)
    near.rel_embed = vectors
    table = rn.RelativePositionEmbedding(20, 4, 4)
    table.a_K, table.a_V = (np.stack([get(r) for r in range(-20, 21)])
                            for get in (vectors.get_key_embedding, vectors.get_value_embedding))
    want = rn.RelativeSelfAttention(8, 4, 4, 3, seed=2)
    want.rel_embed = table
    for offset in 0, 4, 12, np.array(7):
        for x, y in zip(near(X, q_offset=offset), want(X, q_offset=offset)):
            np.testing.assert_array_equal(x, y)
    module = rt.ShawMultiheadAttention(8, 2, max_distance=3)
    plain = copy.deepcopy(module)
    nn.init.zeros_(plain.rel_embed.a_K)
    module.rel_embed.get_key_embedding = lambda r: torch.zeros(4)
    real = torch.tensor([0, 1.5, 7, 2.25, 9, 3])
    for given in {}, {"q_positions": real}, {"k_positions": real, "k_position_mask": real < 5}:
        found, want = (layer(*[tensor(X)[None]] * 3, **given)[0] for layer in (module, plain))
        torch.testing.assert_close(found, want)
    with pytest.raises(ValueError, match="^positions differ by up to .*each offset, up to 65536"):
        module(*[tensor(X)[None]] * 3, q_positions=real * 1e6)
    with pytest.raises(TypeError, match="get_key_embedding is replaced"):
        module.rel_embed.terms()
    far.rel_embed.max_distance = 30
    with pytest.raises(ValueError, match="^max_distance is 30, but a_K has 41 rows, expected 61"):
        far(tensor(X))


class Tutorials:
    """The vectors of the tutorial, whose class knows nothing of relpos."""

    def __init__(self, max_distance, d_k, d_v, seed):
        random = np.random.RandomState(seed)
        self.max_distance = max_distance
        self.a_K = random.randn(2 * max_distance + 1, d_k) * np.sqrt(2 / (2 * max_distance + 1 + d_k))
        self.a_V = random.randn(2 * max_distance + 1, d_v) * np.sqrt(2 / (2 * max_distance + 1 + d_v))

    def get_key_embedding(self, rel_pos):
        return self.a_K[max(-self.max_distance, min(self.max_distance, rel_pos)) + self.max_distance]

    def get_value_embedding(self, rel_pos):
        return self.a_V[max(-self.max_distance, min(self.max_distance, rel_pos)) + self.max_distance]


def test_the_vectors_of_the_tutorial_where_ours_are_accepted():
    theirs, ours = Tutorials(3, 4, 4, seed=5), rt.RelativePositionEmbedding(3, 4, 4)
    ours.a_K, ours.a_V = nn.Parameter(tensor(theirs.a_K)), nn.Parameter(tensor(theirs.a_V))
    x, positions = tensor(RNG.standard_normal((2, 6, 8))), torch.tensor([0.0, 2, 4, 4.5, 7, 1])
    for layer, calls in ((rt.RelativeSelfAttention(8, 4, 4, 3), [([x], {}), ([x], {"causal": True})]),
                         (rt.ShawMultiheadAttention(8, 2, max_distance=3),
                          [([x] * 3, {}), ([x] * 3, {"q_positions": positions, "k_positions": positions})])):
        layer.rel_embed = ours
        want = [layer(*inputs, **options)[0] for inputs, options in calls]
        layer.rel_embed = theirs
        assert not any("rel_embed" in name for name in layer.state_dict())
        for (inputs, options), found in zip(calls, want):
            torch.testing.assert_close(layer(*inputs, **options)[0], found, atol=1e-13, rtol=0)
        layer.rel_embed = ours
        assert "rel_embed.a_K" in layer.state_dict()
    for function, arrays in ((rt.relative_attention_scores, (Q, K)), (rt.efficient_relative_scores, (Q, K)),
                             (rt.relative_attention_output, (abs(X[:, :6]), V)), (rt.compute_position_biases, (Q,))):
        want = getattr(rn, function.__name__)(*arrays, theirs)
        for vectors in theirs, ours:
            np.testing.assert_allclose(function(*map(tensor, arrays), vectors).detach(), want, atol=1e-13)


def test_biases_of_another_module_at_an_offset():
    layer = rt.T5Attention(16, 2)
    want = layer(SEQUENCE[:, -1:], key_value_states=SEQUENCE, q_offset=4)[0]
    layer.relative_bias = PlainTable(2, layer.relative_bias.relative_attention_bias.weight)
    torch.testing.assert_close(layer(SEQUENCE[:, -1:], key_value_states=SEQUENCE, q_offset=4)[0], want)
    with pytest.raises(TypeError, match="^q_offset is .*expected an integer, 0 or more"):
        layer(SEQUENCE, q_offset=torch.tensor([1, 2]))
    torch.testing.assert_close(layer.float()(SEQUENCE.float())[0].double(), layer.double()(SEQUENCE)[0], atol=1e-4,
                               rtol=0)


@pytest.mark.parametrize("name", ["torch.RelativePositionBiasAttention", "torch.RelativeSelfAttention",
                                  "torch.T5Attention"])
def test_compiled_with_a_replaced_step(name):
    make, run = PAIRS[name]
    module = make()[0]
    if name == "torch.RelativeSelfAttention":
        class Keys(rt.RelativePositionEmbedding):
            def get_key_embedding(self, rel_pos):
                return 2 * super().get_key_embedding(rel_pos)
        module.rel_embed = Keys(3, 4, 4, seed=1)
    elif name == "torch.T5Attention":
        module.relative_bias.relative_attention_bias = Doubled(32, 2)
    else:
        module.__class__ = type("Changed", (type(module),),
                                {"_compute_bias": lambda self, N: -0.1 * offsets(N, N).abs().double()})
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="aot_eager")
    arguments = [tensor(Q), tensor(K), tensor(V)] if "Bias" in name else [SEQUENCE if "T5" in name else tensor(X)]
    for x, y in zip(compiled(*arguments), module(*arguments)):
        torch.testing.assert_close(x, y) if isinstance(x, torch.Tensor) else None


ORDER = """
import sys, types
from abc import ABC
import torch
class PositionalAttentionBase(torch.nn.Module, ABC): pass
def load():
    for name in ("symm_learning", "symm_learning.nn"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [sys.argv[2]]
    if sys.argv[1] == "import":
        import symm_learning.nn.activation
    else:
        sys.modules["symm_learning.nn.activation"] = types.SimpleNamespace(
            PositionalAttentionBase=PositionalAttentionBase)
    return sys.modules["symm_learning.nn.activation"].PositionalAttentionBase
"""


@pytest.mark.parametrize("order", ["base = load(); import relpos.torch as rt; x = {}",
                                   "import relpos.torch as rt; base = load(); x = {}",
                                   "import relpos.torch as rt; x = {}; base = load()"])
@pytest.mark.parametrize("how", ["import", "assigned"])
def test_symm_learning_knows_the_modules(order, how, tmp_path):
    """Layers of symm_learning pass positions to subclasses of PositionalAttentionBase."""
    make = ("[rt.AdditiveRelMultiheadAttention(8, 2, max_distance=3), rt.AdditivePosMultiheadAttention(8, 2, "
            "max_len=3), "
            "rt.RoPEMultiheadAttention(8, 2)]")
    if how == "assigned" and order.endswith("load()"):
        # a module that is not imported is found when the next layer is created
        order += "; rt.RoPEMultiheadAttention(8, 2)"
    (tmp_path / "activation.py").write_text("from __main__ import PositionalAttentionBase\n")
    code = (f"{ORDER}{order.format(make)}; assert all(isinstance(y, base) for y in x) and not "
            "isinstance(torch.nn.Linear(2, 2), base)")
    subprocess.run([sys.executable, "-P", "-c", code, how, str(tmp_path)], check=True)


def test_a_missing_module_of_symm_learning(tmp_path):
    code = ORDER + "sys.argv[1] = 'import'\nimport relpos.torch\ntry: load()\nexcept ModuleNotFoundError: sys.exit(7)"
    assert subprocess.run([sys.executable, "-P", "-c", code, "import", str(tmp_path)]).returncode == 7
