"""Modules of attention with relative positions, and relpos.attention under torch.compile, torch.export and torch.jit.trace.

    >>> import torch, relpos.torch
    >>> layer = relpos.torch.T5Attention(64, num_heads=8)
    >>> out, position_bias = layer(torch.randn(2, 100, 64))     # position_bias is for the layers after it
    >>> out.shape
    torch.Size([2, 100, 64])

Every module attends by relpos.attention, in memory that grows with the length, forward and backward, and has parameters named and shaped
as in the text or library it comes from, so that their weights load. Weights that a module returns are for looking at: they have no
gradient, and a loss that depends on them raises in the backward pass; use .detach(), or, for a loss on the weights, torch's own
operations ("A loss on the weights" in docs/python.md). Offsets are key - query where a docstring says nothing else. Tested with PyTorch 2.8 and 2.15; older ones are refused.

There are no second derivatives and no forward-mode derivatives, and torch.func's transforms but vmap have no rule: such calls are
refused, the second derivative when it is asked for. torch.autocast casts queries, keys and values as it does for torch's own attention, and leaves
float64 and learned arrays as they are. torch.jit.trace records relpos.attention as an operator, and what loads the trace imports this
module first. ONNX has no such operator: its exporters get an error.

SPDX-License-Identifier: Apache-2.0"""
import math
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import relpos

from .numpy import clip_relative_position, count_position_pairs, own_bias
from . import _torch
from . import _operator  # relpos.attention becomes an operator of torch wherever a call is traced

__all__ = ["RelativePositionBiasAttention", "RelativePositionEmbedding", "RelativeSelfAttention", "RelativePositionalBias",
           "T5Attention", "AdditiveRelMultiheadAttention", "AdditivePosMultiheadAttention", "ClippedBiasMultiheadAttention",
           "ShawMultiheadAttention", "RoPEMultiheadAttention", "RotaryEmbedding", "ALiBiMultiheadAttention", "WindowAttention",
           "FactorisedWindowAttention", "clip_relative_position", "compute_position_biases", "analyze_position_bias",
           "count_position_pairs", "cross_attention_with_bias", "scaled_dot_product_attention"]


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, **options) -> Tensor:
    """relpos.attention with the arguments of torch.nn.functional.scaled_dot_product_attention, and its own after them, such as bias.

    Shapes   query (B, H, L, E), key (B, Hk, S, E), value (B, Hk, S, Ev), or all three without B, or without B and H. attn_mask: bool,
             True = attends, or numbers to add, which broadcasts to (B, H, L, S). Hk < H needs enable_gqa=True.
    Sign     is_causal: query 0 is beside key 0, as in torch, unless q_offset is given.
    Unlike   torch's: a query without a key gives zeros, and is_causal goes with attn_mask. dropout_p draws by torch.manual_seed.

    >>> q, k = torch.randn(2, 4, 5, 16), torch.randn(2, 4, 7, 16)
    >>> want = F.scaled_dot_product_attention(q, k, k, is_causal=True)
    >>> torch.allclose(scaled_dot_product_attention(q, k, k, is_causal=True), want, atol=1e-6)
    True
    >>> scaled_dot_product_attention(q, k, k, bias=relpos.ALiBi()).shape
    torch.Size([2, 4, 5, 16])
    """
    _need_tensors("relpos.attention", query=query, key=key, value=value)
    if query.dim() > 2 and key.shape[-3] != query.shape[-3] and not enable_gqa:
        raise ValueError(f"key has {key.shape[-3]} heads and query {query.shape[-3]}: enable_gqa=True is needed")
    if dropout_p:
        options |= _drawn(dropout_p)
    options |= _masked(attn_mask, options.pop("bias", None))
    return relpos.attention(query, key, value, scale=scale, **_causal(is_causal) | options)


# ---------------------------------------------------------------------------------------------- what the modules share

def _split(x: Tensor, heads: int) -> Tensor:
    """(B, L, H D) as (B, H, L, D)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _join(x: Tensor) -> Tensor:
    """(B, H, L, D) as (B, L, H D)."""
    return x.transpose(1, 2).flatten(2)


def _attend(q: Tensor, k: Tensor, v: Tensor, need_weights: bool, options: dict) -> tuple[Tensor, Tensor | None]:
    """(out, weights), or (out, None), which saves their Lq x Lk numbers."""
    if not need_weights:
        return relpos.attention(q, k, v, **options), None
    found = relpos.attention(q, k, v, **options, return_weights=True)
    return found.out, found.weights


def _drawn(share: float) -> dict:
    """The options of dropout, the seed from torch's generator: torch.manual_seed decides."""
    return {"dropout": share, "seed": torch.randint(2**62, (), device="cpu")}


def _causal(is_causal: bool) -> dict:
    """The options of torch's is_causal, for which query 0 is beside key 0."""
    return {"causal": True, "q_offset": 0} if is_causal else {}


def _need_tensors(elsewhere: str, **given) -> None:
    """Refuse what is no tensor; elsewhere is what takes arrays."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is of type {type(x).__name__}: a tensor is needed; {elsewhere} takes arrays")


def _dropout(module: nn.Module, share: float) -> dict:
    return _drawn(share) if module.training and share > 0 else {}


def _added(*biases) -> tuple:
    """Terms and arrays of biases, None among them, as the terms of one call."""
    terms = []
    for bias in biases:
        if isinstance(bias, Tensor):
            terms.append(relpos.Dense(bias))
        elif bias is not None:
            terms.extend(_operator.terms_of(bias))
    return tuple(terms)


def _masked(mask: Tensor | None, bias=None, attend: bool = True) -> dict:
    """The options of biases and a mask: a mask of bool says where to attend (or, with attend=False, where not), another is added
    to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return {"bias": _added(bias, mask)}
    return {"bias": _added(bias), "mask": mask if attend else ~mask}


# ---------------------------------------------------------------------------------------------- decay and buckets, one head

class RelativePositionBiasAttention(nn.Module):
    """softmax(Q K^T / sqrt(d_k) + B) V, where B[i, j] = -bias_scale * log(1 + |i - j|); or, with learned=True,
    relative_bias_table[bucket(j - i)] with the buckets of T5.

    Shapes   Q (..., N, d_k), K (..., M, d_k), V (..., M, d_v), with up to two axes in front; weights (..., N, M), output
             (..., N, d_v).
             mask: bool, broadcasts to (..., N, M), True = masked. A row whose every key is masked gives zeros.
    Sign     the decay is symmetric; the offset of a bucket is key - query.
    Weights  relative_bias_table (num_buckets,). The logarithmic decay has no parameter and leaves it unused.
    Source   Raffel et al. 2020 for the buckets.

    max_seq_len is kept for callers and bounds nothing.
    """

    def __init__(self, d_k: int, max_seq_len: int = 512, num_buckets: int = 32, bias_scale: float = 0.3, *, learned: bool = False,
                 max_distance: int = 128) -> None:
        super().__init__()
        self.d_k, self.max_seq_len, self.num_buckets, self.bias_scale = d_k, max_seq_len, num_buckets, bias_scale
        self.learned, self.max_distance = learned, max_distance
        self.relative_bias_table = nn.Parameter(torch.zeros(num_buckets))

    def term(self) -> relpos.Term:
        """The bias B as a term."""
        if self.learned:
            return relpos.T5(self.relative_bias_table[:, None], buckets=self.num_buckets, max_distance=self.max_distance)
        return relpos.LogDecay(self.bias_scale)

    def _compute_bias(self, N: int, M: int | None = None) -> Tensor:
        """B for N queries and M keys, N unless given. A subclass may have its own, of N alone or of both, which is then the bias."""
        M = N if M is None else M
        if not self.learned:
            return torch.from_numpy(self.term().matrix(N, M, heads=1)[0]).to(self.relative_bias_table)
        offsets = torch.arange(M) - torch.arange(N)[:, None]
        buckets = relpos.bucket(offsets.numpy(), buckets=self.num_buckets, max_distance=self.max_distance)
        return self.relative_bias_table[torch.from_numpy(buckets)]

    def _bias(self, N: int, M: int) -> relpos.Term:
        """The term, or the array of a subclass that computes its own."""
        if type(self)._compute_bias is RelativePositionBiasAttention._compute_bias:
            return self.term()
        return relpos.Dense(own_bias(self._compute_bias, N, M))

    def _options(self, mask: Tensor | None, Q: Tensor, K: Tensor) -> dict:
        return {"scale": self.d_k**-0.5, **_masked(mask, self._bias(Q.shape[-2], K.shape[-2]), attend=False)}

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, *,
                need_weights: bool = True) -> tuple[Tensor | None, Tensor]:
        """(weights, output); weights are None with need_weights=False."""
        _need_tensors("relpos.numpy.RelativePositionBiasAttention", Q=Q, K=K, V=V)
        front = 4 - Q.dim()
        q, k, v = (x[(None,) * front] for x in (Q, K, V))
        out, weights = _attend(q, k, v, need_weights, self._options(mask, Q, K))
        return None if weights is None else weights.reshape(weights.shape[front:]), out.reshape(out.shape[front:])

    def explain(self, Q: Tensor, K: Tensor, V: Tensor, tokens: list[str], query_idx: int = 0) -> relpos.Explanation:
        """Print how the row of one token comes about, for Q, K and V with two axes, and return it."""
        with torch.no_grad():
            row = relpos.explain(Q[None], K[None], V[None], query=query_idx, **self._options(None, Q, K))
        print(f"query {tokens[query_idx]!r}, d_k {self.d_k}, bias {self._bias(len(Q), len(K))!r}")
        print(f"{'key':>12}{'raw':>10}{'scaled':>10}{'bias':>10}{'score':>10}{'weight':>10}")
        for token, *numbers in zip(tokens, *row[:5]):
            print(f"{token:>12}{''.join(f'{float(x):10.4f}' for x in numbers)}  {'#' * round(40 * float(numbers[-1]))}".rstrip())
        print("output", " ".join(f"{x:.4f}" for x in row.out.tolist()))
        return row


# ---------------------------------------------------------------------------------------------- vectors for keys and values

class RelativePositionEmbedding(nn.Module):
    """Vectors a_K and a_V for each offset from -max_distance to max_distance; offsets beyond take the last.

    Weights  a_K (2 max_distance + 1, d_k), a_V (2 max_distance + 1, d_v), drawn from a normal distribution of variance
             2 / (rows + columns) (Xavier); from a generator of its own where a seed is given. The numbers of a seed are not
             those of relpos.numpy.
    Sign     the offset is key - query, that of row 0 is -max_distance.
    Source   Shaw, Uszkoreit, Vaswani 2018, sections 3.1 and 3.2.
    """

    def __init__(self, max_distance: int, d_k: int, d_v: int, seed: int | None = None) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.a_K, self.a_V = (_xavier(2 * max_distance + 1, d, seed, at) for at, d in enumerate((d_k, d_v)))

    def reset_parameters(self) -> None:
        """First values, from torch's generator."""
        nn.init.xavier_normal_(self.a_K)
        nn.init.xavier_normal_(self.a_V)

    def get_key_embedding(self, rel_pos: int) -> Tensor:
        """a_K of an offset."""
        return self.a_K[clip_relative_position(rel_pos, 0, self.max_distance) + self.max_distance]

    def get_value_embedding(self, rel_pos: int) -> Tensor:
        """a_V of an offset."""
        return self.a_V[clip_relative_position(rel_pos, 0, self.max_distance) + self.max_distance]

    def terms(self, **positions) -> dict:
        """The options relkey and relval of relpos.attention."""
        reach = {"left": self.max_distance, "right": self.max_distance, **positions}
        return {"relkey": relpos.RelKey(self.a_K, **reach), "relval": relpos.RelValue(self.a_V, **reach)}


def _xavier(rows: int, columns: int, seed: int | None = None, at: int = 0) -> nn.Parameter:
    """A matrix of its own for each seed and place."""
    generator = None if seed is None else torch.Generator().manual_seed(seed * 8 + at)
    return nn.Parameter(nn.init.xavier_normal_(torch.empty(rows, columns), generator=generator))


class RelativeSelfAttention(nn.Module):
    """One head of self-attention with relative positions in keys and values:
    e[i, j] = <q_i, k_j + a_K[j - i]> / sqrt(d_k), out_i = sum_j softmax(e)[i, j] (v_j + a_V[j - i]), q = X W_q and so on.

    Shapes   X (N, embed_dim) or (B, N, embed_dim); output (..., N, d_v), weights (..., N, N).
    Weights  W_q, W_k (embed_dim, d_k), W_v (embed_dim, d_v), rel_embed.a_K, rel_embed.a_V; all Xavier. A seed repeats the numbers
             of a text that draws them by np.random.seed in relpos.numpy.RelativeSelfAttention alone.
    Sign     key - query, clipped to max_distance.
    Source   Shaw, Uszkoreit, Vaswani 2018, equations 3 and 4.
    """

    def __init__(self, embed_dim: int, d_k: int, d_v: int, max_distance: int = 16, seed: int | None = None) -> None:
        super().__init__()
        self.d_k = d_k
        self.W_q, self.W_k, self.W_v = (_xavier(embed_dim, d, seed, 2 + at) for at, d in enumerate((d_k, d_k, d_v)))
        self.rel_embed = RelativePositionEmbedding(max_distance, d_k, d_v, seed)

    def forward(self, X: Tensor, *, need_weights: bool = True, **options) -> tuple[Tensor, Tensor | None]:
        """(output, weights); weights are None with need_weights=False. `options`, such as causal, go to relpos.attention."""
        _need_tensors("relpos.numpy.RelativeSelfAttention", X=X)
        q, k, v = (x.unsqueeze(-3) for x in (X @ self.W_q, X @ self.W_k, X @ self.W_v))
        out, weights = _attend(q, k, v, need_weights, self.rel_embed.terms() | options)
        return out.squeeze(-3), None if weights is None else weights.squeeze(-3)


def compute_position_biases(Q: Tensor, rel_embed: RelativePositionEmbedding) -> Tensor:
    """What positions add to the scores: <Q[i], a_K[j - i]> / sqrt(d_k) for every pair, in float64, without a gradient; Q (N, d_k),
    a tensor or an array.

    >>> compute_position_biases(torch.ones(3, 4), RelativePositionEmbedding(2, 4, 4)).shape
    torch.Size([3, 3])
    """
    q = torch.as_tensor(Q).detach()[None]
    key = rel_embed.terms()["relkey"]
    with torch.no_grad():
        return torch.stack([relpos.explain(q, q, q, query=i, relkey=key).parts["relkey"] for i in range(len(Q))])


def analyze_position_bias(attention_weights: Tensor, max_offset: int = 5) -> dict[int, float]:
    """The mean weight of each offset key - query from -max_offset to max_offset that weights (..., N, M) have, a
    tensor or an array. relpos.attention(..., summary=True).summary.profile has it for long rows, without their weights.

    >>> analyze_position_bias(torch.eye(3), 1)
    {-1: 0.0, 0: 1.0, 1: 0.0}
    """
    attention_weights = torch.as_tensor(attention_weights)
    n, m = attention_weights.shape[-2:]
    return {offset: attention_weights.diagonal(offset, -2, -1).mean().item()
            for offset in range(-max_offset, max_offset + 1) if -n < offset < m}


# ---------------------------------------------------------------------------------------------- T5

class RelativePositionalBias(nn.Module):
    """The learned biases of T5, one for each bucket of offsets and each head.

    Weights  relative_attention_bias.weight (num_buckets, num_heads). A table trained by code that takes query - key has the same name
             and shape, and the wrong rows: from_query_minus_key.
    Sign     the offset is key - query; with bidirectional=False, keys after the query share bucket 0.
    Source   Raffel et al. 2020, section 2.1.
    """

    _version = 2  # in the metadata of a state_dict; other code and relpos 0.1 save 1, and a plain dictionary has none

    def __init_subclass__(cls, **options) -> None:
        super().__init_subclass__(**options)
        if hasattr(cls, "_relative_position_bucket"):
            raise TypeError(f"{cls.__name__}._relative_position_bucket would never be called, since the library computes the buckets: "
                            "relpos.Bucket has other strategies, and relpos.Table a number for each offset")

    def __init__(self, num_heads: int, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__()
        self.num_heads, self.num_buckets = num_heads, num_buckets
        self.max_distance, self.bidirectional = max_distance, bidirectional
        self.relative_attention_bias = nn.Embedding(num_buckets, num_heads)
        nn.init.normal_(self.relative_attention_bias.weight, std=0.02)

    @classmethod
    def from_query_minus_key(cls, weight: Tensor, max_distance: int = 128, bidirectional: bool = True) -> "RelativePositionalBias":
        """The module for a table (num_buckets, num_heads) that was trained with the offset query - key instead of T5's key - query.

        The two halves of the buckets change places, but for bucket 0, the query's own key. With bidirectional=False such code gives
        every key up to the query bucket 0, so all rows become row 0; they are right under a causal mask.

        >>> table = torch.arange(8.0)[:, None]
        >>> RelativePositionalBias.from_query_minus_key(table).relative_attention_bias.weight.flatten().tolist()
        [0.0, 5.0, 6.0, 7.0, 4.0, 1.0, 2.0, 3.0]
        """
        buckets, heads = weight.shape
        half = buckets // 2
        weight = weight.detach()
        if bidirectional:
            weight = torch.cat([weight[:1], weight[half + 1:], weight[half:half + 1], weight[1:half]])
        else:
            weight = weight[:1].repeat(buckets, 1)
        module = cls(heads, buckets, max_distance, bidirectional).to(weight)
        module.relative_attention_bias.weight = nn.Parameter(weight)
        return module

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args) -> None:
        if local_metadata.get("version", 1) < self._version and f"{prefix}relative_attention_bias.weight" in state_dict:
            warnings.warn(f"{prefix}relative_attention_bias.weight: the state_dict does not show that this version of relpos saved it. If it "
                          "comes from code with offsets query - key, as in some tutorials, its table is mirrored here; use "
                          "RelativePositionalBias.from_query_minus_key(table). Tables of T5, transformers and relpos are right as they are.",
                          stacklevel=2)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    def term(self) -> relpos.Term:
        """The biases as relpos.attention takes them, for any lengths."""
        return relpos.T5(self.relative_attention_bias.weight, buckets=self.num_buckets, max_distance=self.max_distance,
                         bidirectional=self.bidirectional)

    def forward(self, query_length: int, key_length: int, device: torch.device | None = None) -> Tensor:
        """The biases as an array (1, num_heads, query_length, key_length), for other code; the attention here takes term()."""
        offsets = range(1 - query_length, key_length)
        buckets = relpos.bucket(offsets, buckets=self.num_buckets, max_distance=self.max_distance,
                                bidirectional=self.bidirectional)
        strip = self.relative_attention_bias(torch.from_numpy(buckets)).T
        return strip.unfold(1, key_length, 1).flip(1)[None].to(device)


class T5Attention(nn.Module):
    """Multi-head attention with the biases of T5: softmax(scale Q K^T + bias[bucket(j - i)]) V, projected.

    Shapes   x (B, L, dim); key_value_states (B, Lk, dim), where the keys and values of cross-attention come from.
             mask: bool (True = attend) or numbers to add, broadcasts to (B, num_heads, L, Lk).
    Weights  q_proj, k_proj, v_proj (num_heads head_dim, dim), o_proj (dim, num_heads head_dim), without biases, and
             relative_bias.relative_attention_bias.weight (num_buckets, num_heads).
    Sign     the offset is key - query.
    Source   Raffel et al. 2020. T5 itself does not divide scores: scale=1 and transformers' weights q, k, v and o as q_proj,
             k_proj, v_proj and o_proj make the same layer.

    >>> first, second = T5Attention(16, 2), T5Attention(16, 2, has_relative_bias=False)
    >>> x, position_bias = first(torch.randn(1, 5, 16))
    >>> second(x, position_bias=position_bias)[0].shape
    torch.Size([1, 5, 16])
    """

    def __init__(self, dim: int, num_heads: int, num_buckets: int = 32, max_distance: int = 128, has_relative_bias: bool = True,
                 bidirectional: bool = True, *, head_dim: int | None = None, scale: float | None = None,
                 dropout: float = 0.0) -> None:
        super().__init__()
        self.dim, self.num_heads, self.head_dim = dim, num_heads, head_dim or dim // num_heads
        self.has_relative_bias, self.scale, self.dropout = has_relative_bias, scale, dropout
        inner = num_heads * self.head_dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, inner, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(inner, dim, bias=False)
        if has_relative_bias:
            self.relative_bias = RelativePositionalBias(num_heads, num_buckets, max_distance, bidirectional)

    def forward(self, x: Tensor, mask: Tensor | None = None, position_bias: relpos.Term | Tensor | None = None, *,
                key_value_states: Tensor | None = None, **options) -> tuple[Tensor, relpos.Term | Tensor | None]:
        """(output, position_bias). The second is a term, which holds the table alone and serves any lengths: give it to the layers
        after this one, which share it. An array (1 or B, num_heads, L, Lk) is taken too. `options`, such as causal or
        q_offset, go to relpos.attention."""
        if position_bias is None and self.has_relative_bias:
            position_bias = self.relative_bias.term()
        source = x if key_value_states is None else key_value_states
        q, k, v = (_split(x, self.num_heads) for x in (self.q_proj(x), self.k_proj(source), self.v_proj(source)))
        out = relpos.attention(q, k, v, scale=self.scale, **_masked(mask, position_bias), **_dropout(self, self.dropout),
                               **options)
        return self.o_proj(_join(out)), position_bias


def cross_attention_with_bias(query: Tensor, key: Tensor, value: Tensor, relative_bias: RelativePositionalBias,
                              mask: Tensor | None = None) -> Tensor:
    """softmax(query key^T / sqrt(head_dim) + bias + mask) value, for (B, num_heads, L, head_dim) of any lengths, tensors or arrays.

    >>> q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 7, 8)
    >>> cross_attention_with_bias(q, k, k, RelativePositionalBias(2)).shape
    torch.Size([1, 2, 3, 8])
    """
    query, key, value = map(torch.as_tensor, (query, key, value))
    return relpos.attention(query, key, value, **_masked(None if mask is None else torch.as_tensor(mask), relative_bias.term()))


# ---------------------------------------------------------------------------------------------- in the manner of torch

def _multihead(module, q: Tensor, k: Tensor, v: Tensor, dropout: float, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
               need_weights: bool, is_causal: bool, bias=None, **options) -> tuple[Tensor, Tensor | None]:
    """(out, mean weights) of projected q, k and v (B, L, H D), with the masks of torch.nn.MultiheadAttention."""
    q, k, v = (_split(x, module.num_heads) for x in (q, k, v))
    if attn_mask is not None:
        attn_mask = _four_axes(attn_mask, *q.shape[:3], k.shape[2])
    if key_padding_mask is not None:
        if key_padding_mask.dtype == torch.bool:
            options["key_mask"] = ~key_padding_mask
        else:
            bias = _added(bias, key_padding_mask[:, None, None])
    options |= {**_causal(is_causal), **_masked(attn_mask, bias, attend=False), **_dropout(module, dropout)}
    out, weights = _attend(q, k, v, need_weights, options)
    return _join(out), None if weights is None else weights.mean(1)


def _four_axes(mask: Tensor, batch: int, heads: int, lq: int, lk: int) -> Tensor:
    """A mask of torch.nn.MultiheadAttention, or one that broadcasts to it, as one that broadcasts to (B, H, Lq, Lk)."""
    front = mask.shape[0] if mask.dim() == 3 else 1
    if mask.dim() in (2, 3) and mask.shape[-2] in (1, lq) and mask.shape[-1] in (1, lk) and front in (1, batch, batch * heads):
        mask = mask.expand(*mask.shape[:-2], lq, lk)
        if mask.dim() == 2:
            return mask
        return mask[:, None] if front in (1, batch) else mask.unflatten(0, (batch, heads))
    raise ValueError(f"attn_mask: shape is {tuple(mask.shape)}: (Lq, Lk), (B, Lq, Lk) or (B num_heads, Lq, Lk) is needed, here "
                     f"({lq}, {lk}), ({batch}, {lq}, {lk}) or ({batch * heads}, {lq}, {lk})")


def _known(positions: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Positions as numbers: infinite ones are as far as a position may be, 2^53, which float16 does not hold, and those that the
    mask leaves out are 0."""
    if positions is None or not positions.is_floating_point():
        return positions
    far = torch.nan_to_num(positions.double(), nan=torch.nan, posinf=2.0**53, neginf=-2.0**53)
    return far if mask is None else far.masked_fill(~mask, 0)


def _at(x: Tensor, positions: Tensor | None, mask: Tensor | None) -> Tensor:
    """The positions of x, by index unless given, with 0 for those that the mask leaves out."""
    if positions is None:
        return torch.arange(x.shape[1], device=x.device)
    return positions if mask is None else positions.masked_fill(~mask, 0)


def _rounds(q_positions: Tensor, k_positions: Tensor) -> bool:
    """Return true if differences in the type that torch takes them in, the wider of the two, may differ from differences in double. They
    do not if all finite positions are multiples of a step of which the type holds every multiple up to twice the largest."""
    dtype = torch.promote_types(q_positions.dtype, k_positions.dtype)
    if not dtype.is_floating_point or dtype == torch.float64:
        return False
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or _torch._modes() or torch._C._functorch.maybe_current_level() is not None:
        return True  # what is traced may not depend on numbers
    positions = torch.cat([x.to(dtype).double().flatten() for x in (q_positions, k_positions)])
    if positions.isnan().any():
        return False  # the term refuses them
    finite = positions[positions.isfinite()]
    largest = finite.abs().max().item() if len(finite) else 0.0
    steps = finite / (torch.finfo(dtype).eps * 2.0 ** math.frexp(largest)[1])
    return bool((steps != steps.round()).any())


def _pairs_of_rounded_positions(table: Tensor, max_distance: int, q_positions: Tensor, k_positions: Tensor, q_mask: Tensor | None,
                                k_mask: Tensor | None) -> relpos.Term:
    """-table[trunc(clamp(P_Q - P_K))] as an array of all pairs, the difference in the type of the positions."""
    p, k = q_positions[..., :, None], k_positions[..., None, :]
    difference = torch.where(p == k, 0, p - k).double()  # two infinite ones are 0 apart
    bias = -table[difference.nan_to_num(0.0).clamp(-max_distance, max_distance).long() + max_distance]
    bias = torch.where(difference.isnan(), torch.nan, bias)
    for mask, at in ((q_mask, -1), (k_mask, -2)):
        if mask is not None:
            bias = torch.where(mask.unsqueeze(at), bias, 0)
    return relpos.Dense(bias[:, None] if bias.dim() == 3 else bias)


class AdditiveRelMultiheadAttention(nn.Module):
    """torch.nn.MultiheadAttention with a learned function of the difference of two positions subtracted from the logits:
    A[i, j] = <q_i, k_j> / sqrt(d_h) - rel_bias[trunc(clamp(P_Q[i] - P_K[j], -m, m)) + m], m = max_distance.

    Shapes   query (B, Lq, embed_dim), key and value (B, Lk, embed_dim); q_positions (Lq) or (B, Lq), k_positions (Lk) or (B, Lk),
             integer or real, infinite ones are far; their masks alike, False = no bias for the pairs of this position, which
             still attend and may then be NaN. attn_mask (Lq, Lk), (B, Lq, Lk) or (B num_heads, Lq, Lk), of which each axis may be
             1, key_padding_mask (B, Lk): as in torch, bool (True = masked) or added. Returns (B, Lq, embed_dim) and, with
             need_weights, the mean of the heads' weights (B, Lq, Lk), after dropout.
    Weights  rel_bias (2 max_distance + 1,), shared by the heads, zero at first; attn.in_proj_weight, attn.in_proj_bias,
             attn.out_proj.weight, attn.out_proj.bias.
    Sign     query - key, and the bias is subtracted. A row whose every key is masked gives the bias of the output, not NaN.
    Memory   differences of positions are rounded to the type of the positions, as in symm_learning. Where that changes them, as for
             float32 positions with fractions of a decimal grid (in a compiled module: for every type below float64), the biases
             are an array of Lq Lk numbers; else, and with positions.double(), memory grows with the length.
    Source   symm_learning.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, max_distance: int, dropout: float = 0.0, bias: bool = True, device=None,
                 dtype=None) -> None:
        super().__init__()
        if max_distance < 0:
            raise ValueError(f"max_distance is {max_distance}: at least 0")
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, dropout, bias, batch_first=True, device=device, dtype=dtype)
        self.embed_dim, self.num_heads, self.max_distance = embed_dim, num_heads, max_distance
        self.rel_bias = nn.Parameter(torch.zeros(2 * max_distance + 1, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """First values: those of torch.nn.MultiheadAttention, and a bias of zero."""
        _reset_wrapped(self.attn)
        nn.init.zeros_(self.rel_bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, q_positions: Tensor | None = None,
                k_positions: Tensor | None = None, q_position_mask: Tensor | None = None, k_position_mask: Tensor | None = None,
                attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, need_weights: bool = False,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """(output, weights or None). is_causal masks keys after the query by index, whatever their positions."""
        if q_positions is not None or k_positions is not None:
            at_q, at_k = (_at(x, p, mask) for x, p, mask in ((query, q_positions, q_position_mask),
                                                                             (key, k_positions, k_position_mask)))
            if _rounds(at_q, at_k):
                term = _pairs_of_rounded_positions(self.rel_bias, self.max_distance, at_q, at_k, q_position_mask, k_position_mask)
                return _wrapped(self, query, key, value, attn_mask, key_padding_mask, need_weights, is_causal, bias=term)
        term = relpos.Real(self.rel_bias[None], max_distance=self.max_distance, q_positions=_known(q_positions, q_position_mask),
                           k_positions=_known(k_positions, k_position_mask), q_position_mask=q_position_mask,
                           k_position_mask=k_position_mask)
        return _wrapped(self, query, key, value, attn_mask, key_padding_mask, need_weights, is_causal, bias=term)


class AdditivePosMultiheadAttention(nn.Module):
    """torch.nn.MultiheadAttention with a learned vector for each position added to queries and keys, not to values:
    q' = query + pos_emb[P_Q], k' = key + pos_emb[P_K].

    Shapes   as AdditiveRelMultiheadAttention. Positions are finite, 0 to max_len - 1, and a fraction counts as the integer below;
             their masks: False = nothing is added.
    Weights  pos_emb (max_len, embed_dim), zero at first; attn.in_proj_weight, attn.in_proj_bias, attn.out_proj.weight,
             attn.out_proj.bias.
    Errors   IndexError where a position is outside of the table.
    Source   symm_learning; the absolute positions of Vaswani et al. 2017, learned, and added in every layer.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, max_len: int, dropout: float = 0.0, bias: bool = True, device=None,
                 dtype=None) -> None:
        super().__init__()
        if max_len < 1:
            raise ValueError(f"max_len is {max_len}: at least 1")
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, dropout, bias, batch_first=True, device=device, dtype=dtype)
        self.embed_dim, self.num_heads, self.max_len = embed_dim, num_heads, max_len
        self.pos_emb = nn.Parameter(torch.zeros(max_len, embed_dim, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """First values: those of torch.nn.MultiheadAttention, and vectors of zero."""
        _reset_wrapped(self.attn)
        nn.init.zeros_(self.pos_emb)

    def _moved(self, side: str, x: Tensor, positions: Tensor | None, mask: Tensor | None) -> Tensor:
        """x with the vectors of its positions."""
        at = torch.arange(x.shape[1], device=x.device) if positions is None else positions
        at = at if mask is None else at.masked_fill(~mask, 0)
        try:
            added = F.embedding(at.floor().long(), self.pos_emb)
        except IndexError:
            raise IndexError(f"{side}_positions: {at.min().item():g} to {at.max().item():g}: AdditivePosMultiheadAttention has vectors "
                             f"for the finite positions 0 to {self.max_len - 1}; a larger max_len has more, and a position mask "
                             "leaves positions out") from None
        return x + (added if mask is None else added * mask[..., None])

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, q_positions: Tensor | None = None,
                k_positions: Tensor | None = None, q_position_mask: Tensor | None = None, k_position_mask: Tensor | None = None,
                attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, need_weights: bool = False,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """(output, weights or None): masks are those of AdditiveRelMultiheadAttention."""
        q = self._moved("q", query, q_positions, q_position_mask)
        k = self._moved("k", key, k_positions, k_position_mask)
        return _wrapped(self, q, k, value, attn_mask, key_padding_mask, need_weights, is_causal)


def _reset_wrapped(attn: nn.MultiheadAttention) -> None:
    """The values that it is made with."""
    attn.out_proj.reset_parameters()
    attn._reset_parameters()


def _wrapped(module, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
             need_weights: bool, is_causal: bool, bias=None) -> tuple[Tensor, Tensor | None]:
    """(output, weights) of module.attn, a torch.nn.MultiheadAttention that has weights and does not run."""
    attn = module.attn
    biases = (None,) * 3 if attn.in_proj_bias is None else attn.in_proj_bias.chunk(3)
    q, k, v = map(F.linear, (query, key, value), attn.in_proj_weight.chunk(3), biases)
    out, weights = _multihead(module, q, k, v, attn.dropout, attn_mask, key_padding_mask, need_weights, is_causal, bias=bias)
    return attn.out_proj(out), weights


class _MultiheadAttention(nn.Module):
    """What the four classes below share: projections, masks, and weights as the mean of the heads'."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, device=None, dtype=None) -> None:
        super().__init__()
        if embed_dim % num_heads != 0:
            raise ValueError(f"embed_dim is {embed_dim}: a multiple of num_heads, {num_heads}, is needed")
        self.embed_dim, self.num_heads, self.head_dim, self.dropout = embed_dim, num_heads, embed_dim // num_heads, dropout
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype) for _ in range(4))

    def reset_parameters(self) -> None:
        """First values: matrices Xavier uniform, biases zero, and what the class adds as it is made."""
        for linear in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def terms(self, **positions) -> dict:
        """The options of relpos.attention that hold the terms."""
        raise NotImplementedError

    def _positions(self, side: str, x: Tensor, positions: Tensor | None, mask: Tensor | None) -> dict:
        """What terms() takes for the positions of one side, "q" or "k"; the term leaves the pairs of a masked one out."""
        found = {f"{side}_positions": _known(positions, mask)}
        return found if mask is None else found | {f"{side}_position_mask": mask}

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, q_positions: Tensor | None = None,
                k_positions: Tensor | None = None, q_position_mask: Tensor | None = None, k_position_mask: Tensor | None = None,
                attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, need_weights: bool = False,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """(output, weights or None): shapes and masks are those of AdditiveRelMultiheadAttention; the class says which positions it
        takes."""
        positions = (self._positions("q", query, q_positions, q_position_mask)
                     | self._positions("k", key, k_positions, k_position_mask))
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        out, weights = _multihead(self, q, k, v, self.dropout, attn_mask, key_padding_mask, need_weights, is_causal,
                                  **self.terms(**positions))
        return self.out_proj(out), weights


class ClippedBiasMultiheadAttention(_MultiheadAttention):
    """A number for each clipped offset and head: A[i, j] = <q_i, k_j> / sqrt(d) + relative_bias[h, clamp(i - j, -R, R) + R].

    Shapes   as AdditiveRelMultiheadAttention, infinite positions and masks of positions too.
    Weights  relative_bias (num_heads, 2 max_distance + 1), or (2 max_distance + 1,) with shared=True, zero at first; q_proj,
             k_proj, v_proj and out_proj.
    Sign     query - key.
    Source   Shaw, Uszkoreit, Vaswani 2018 for the clipping.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, max_distance: int, shared: bool = False, **options) -> None:
        super().__init__(embed_dim, num_heads, **options)
        self.max_distance = max_distance
        shape = (2 * max_distance + 1,) if shared else (num_heads, 2 * max_distance + 1)
        self.relative_bias = nn.Parameter(torch.zeros(shape, device=options.get("device"), dtype=options.get("dtype")))

    def reset_parameters(self) -> None:
        """First values: as above, and a bias of zero."""
        super().reset_parameters()
        nn.init.zeros_(self.relative_bias)

    def terms(self, **positions) -> dict:
        """The options of relpos.attention that hold the table: Real where there are masks, or else Table, which is faster, reversed
        since it counts key - query."""
        table = self.relative_bias if self.relative_bias.dim() == 2 else self.relative_bias[None]
        if any(name.endswith("mask") for name in positions):
            return {"bias": relpos.Real(table, max_distance=self.max_distance, sign=1, **positions)}
        return {"bias": relpos.Table(table.flip(-1), left=self.max_distance, right=self.max_distance, **positions)}


class ShawMultiheadAttention(_MultiheadAttention):
    """Vectors for keys and values at each clipped offset, as RelativeSelfAttention, in every head.

    Shapes   as AdditiveRelMultiheadAttention, infinite positions and masks of positions too: False = no vectors, for keys and for
             values.
    Weights  rel_embed.a_K and rel_embed.a_V (2 max_distance + 1, head_dim), shared by the heads; q_proj, k_proj, v_proj, out_proj.
    Sign     key - query.
    Source   Shaw, Uszkoreit, Vaswani 2018, equations 3 and 4.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, max_distance: int, **options) -> None:
        super().__init__(embed_dim, num_heads, **options)
        self.rel_embed = RelativePositionEmbedding(max_distance, self.head_dim, self.head_dim)
        self.rel_embed.to(device=options.get("device"), dtype=options.get("dtype"))

    def reset_parameters(self) -> None:
        """First values: as above, and the vectors drawn anew."""
        super().reset_parameters()
        self.rel_embed.reset_parameters()

    def terms(self, **positions) -> dict:
        """The options of relpos.attention that hold the vectors."""
        return self.rel_embed.terms(**positions)


class RoPEMultiheadAttention(_MultiheadAttention):
    """Queries and keys rotated by their positions: the pair of channels (2c, 2c + 1) by the angle p / rope_base^(2c / head_dim).

    Shapes   as AdditiveRelMultiheadAttention, but positions are finite; masks of positions: False = not rotated. layout="half"
             pairs c with c + head_dim / 2 instead.
    Weights  q_proj, k_proj, v_proj, out_proj.
    Sign     a score depends on key - query alone.
    Errors   ValueError where a position is not finite.
    Source   Su et al. 2021, equation 15; the layout and the names of symm_learning.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, rope_base: float = 10000.0,
                 device=None, dtype=None, *, layout: str = "interleaved") -> None:
        super().__init__(embed_dim, num_heads, dropout, bias, device, dtype)
        self.rope_base, self.layout = rope_base, layout

    def _positions(self, side: str, x: Tensor, positions: Tensor | None, mask: Tensor | None) -> dict:
        """Tokens without a position are not rotated, as at position 0."""
        if mask is not None:
            positions = torch.arange(x.shape[1], device=x.device) if positions is None else positions
            positions = positions.masked_fill(~mask, 0)
        return {f"{side}_positions": positions}

    def terms(self, **positions) -> dict:
        """The option rope of relpos.attention."""
        return {"rope": relpos.RoPE(base=self.rope_base, layout=self.layout, **positions)}


class RotaryEmbedding(nn.Module):
    """The cosines and sines of RoPE for given positions, and a rotation by them; RoPEMultiheadAttention needs neither, since
    relpos.attention rotates.

    Shapes   positions (P) or (B, P), integer or real; cosines and sines (..., P, dim/2). apply_rope: x (B, H, P, dim).
    Layout   channels 2c and 2c + 1 make a pair, which is rotated by p / base^(2c / dim).
    Errors   ValueError where dim is not even and positive, or x has another width.
    Source   Su et al. 2021, equation 15; the names of symm_learning.
    """

    def __init__(self, dim: int, base: float = 10000.0, device=None, dtype=None) -> None:
        super().__init__()
        if dim <= 0 or dim % 2:
            raise ValueError(f"dim is {dim}: an even number above 0")
        self.dim, self.base = dim, base
        self.register_buffer("inv_freq", base ** (-torch.arange(0, dim, 2, device=device, dtype=dtype) / dim), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(cosines, sines)."""
        angles = positions[..., None] * self.inv_freq
        return angles.cos(), angles.sin()

    def apply_rope(self, x: Tensor, positions: Tensor, position_mask: Tensor | None = None) -> Tensor:
        """x rotated by its positions; where the mask is False it is left as it is."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"x has a width of {x.shape[-1]}: {self.dim}, the dim of this RotaryEmbedding, is needed")
        if position_mask is not None:
            positions = positions.masked_fill(~position_mask, 0)
        cos, sin = (y.to(x.dtype).reshape(-1, 1, *y.shape[-2:]) for y in self(positions))
        first, second = x[..., ::2], x[..., 1::2]
        return torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)


class ALiBiMultiheadAttention(_MultiheadAttention):
    """A penalty that grows with the distance: A[i, j] = <q_i, k_j> / sqrt(d) - m_h |i - j|, m_h = 2^(-8 h / num_heads), h from 1,
    where the number of heads is a power of two, and the paper's slopes for other numbers.

    Shapes   as AdditiveRelMultiheadAttention, infinite positions and masks of positions too. A key that is infinitely far has
             weight 0 beside one that is not; a query that is infinitely far from all its keys weighs them alike.
    Weights  q_proj, k_proj, v_proj, out_proj.
    Sign     none. The paper is causal: is_causal=True.
    Source   Press, Smith, Lewis 2022, section 3.
    """

    def terms(self, **positions) -> dict:
        """The option bias of relpos.attention."""
        return {"bias": relpos.ALiBi(**positions)}


# ---------------------------------------------------------------------------------------------- windows of a grid

class WindowAttention(nn.Module):
    """Multi-head self-attention within windows of a grid, with a learned bias for each difference of places:
    softmax(q k^T / sqrt(head_dim) + relative_position_bias_table[index(i, j)] + mask) v, projected.

    Shapes   x (windows, N, dim), N = Wh Ww, windows of one image one after the other; mask (m, N, N), numbers to add, where m
             divides the number of windows: window w takes mask w mod m.
    Weights  relative_position_bias_table ((2 Wh - 1)(2 Ww - 1), num_heads), qkv (3 num_heads head_dim, dim), proj: those of timm's
             WindowAttention and of Swin's own, whose relative_position_index is not needed and may be among them.
    Sign     the row of the table is (y_i - y_j + Wh - 1)(2 Ww - 1) + x_i - x_j + Ww - 1: query - key.
    Source   Liu et al. 2021, equation 4.

    >>> WindowAttention(32, 4, window_size=(2, 3))(torch.randn(8, 6, 32)).shape
    torch.Size([8, 6, 32])
    """

    def __init__(self, dim: int, num_heads: int, head_dim: int | None = None, window_size: int | tuple[int, int] = 7,
                 qkv_bias: bool = True, attn_drop: float = 0.0, proj_drop: float = 0.0, device=None, dtype=None) -> None:
        super().__init__()
        of = {"device": device, "dtype": dtype}
        self.dim, self.num_heads, self.attn_drop = dim, num_heads, attn_drop
        height, width = (window_size, window_size) if isinstance(window_size, int) else window_size
        self.window_size = height, width
        inner = num_heads * (head_dim or dim // num_heads)
        self._make_tables(height, width, **of)
        self.qkv = nn.Linear(dim, 3 * inner, bias=qkv_bias, **of)
        self.proj = nn.Linear(inner, dim, **of)
        self.proj_drop = nn.Dropout(proj_drop)

    def _make_tables(self, height: int, width: int, **of) -> None:
        self.relative_position_bias_table = nn.Parameter(torch.empty((2 * height - 1) * (2 * width - 1), self.num_heads, **of))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def term(self) -> relpos.Term:
        """The biases of a window as a term."""
        return relpos.Swin(self.relative_position_bias_table, grid=self.window_size)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(windows, N, dim)."""
        q, k, v = (_split(part, self.num_heads) for part in self.qkv(x).chunk(3, -1))
        if mask is not None:
            mask = mask.repeat(len(x) // len(mask), 1, 1)[:, None]
        out = relpos.attention(q, k, v, **_masked(mask, self.term()), **_dropout(self, self.attn_drop))
        return self.proj_drop(self.proj(_join(out)))

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        state_dict.pop(prefix + "relative_position_index", None)  # the grid says it
        super()._load_from_state_dict(state_dict, prefix, *args)


class FactorisedWindowAttention(WindowAttention):
    """WindowAttention with a bias for the difference of rows and one for that of columns, b_h[y_j - y_i] + b_w[x_j - x_i], which
    takes 2 Wh + 2 Ww - 2 numbers for each head in place of (2 Wh - 1)(2 Ww - 1).

    Shapes   as WindowAttention.
    Weights  bias_h (num_heads, 2 Wh - 1), bias_w (num_heads, 2 Ww - 1), zero at first; qkv and proj as there.
    Sign     key - query; column Wh - 1 of bias_h is difference 0.
    Source   the term axial; a table of Swin that is a sum of the two is the same bias.
    """

    def _make_tables(self, height: int, width: int, **of) -> None:
        self.bias_h = nn.Parameter(torch.zeros(self.num_heads, 2 * height - 1, **of))
        self.bias_w = nn.Parameter(torch.zeros(self.num_heads, 2 * width - 1, **of))

    def term(self) -> relpos.Term:
        """The biases of a window as a term."""
        return relpos.Axial(self.bias_h, self.bias_w, grid=self.window_size)
