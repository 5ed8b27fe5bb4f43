"""Modules of attention with relative positions, and relpos.attention under torch.compile, torch.export and torch.jit.trace.

    >>> import torch, relpos.torch
    >>> layer = relpos.torch.T5Attention(64, num_heads=8)
    >>> out, position_bias = layer(torch.randn(2, 100, 64))     # position_bias is for the layers after it
    >>> out.shape
    torch.Size([2, 100, 64])

Every module calls relpos.attention, so its memory grows linearly with the length, forward and backward. Parameters have the names and
shapes of the text or library that the module comes from, so saved weights load. Offsets are key - query unless a docstring states
otherwise. Tested with PyTorch 2.8 and 2.15; older versions raise at import.

Attention weights that a module returns have no gradient: a loss that depends on them raises in the backward pass. Use .detach(), or see
"A loss on the weights" in docs/python-reference.md. Second derivatives, forward-mode derivatives and torch.func transforms other than
vmap raise. torch.autocast casts queries, keys and values as for torch's own attention; float64 and learned arrays keep their types.
torch.jit.trace records relpos.attention as an operator; import this module before you load the trace. ONNX export raises.

SPDX-License-Identifier: Apache-2.0"""
import math
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import relpos

from .numpy import clip_relative_position, count_position_pairs, own_bias
from . import _torch
from . import _operator  # registers relpos.attention as an operator for traced calls

__all__ = ["RelativePositionBiasAttention", "RelativePositionEmbedding", "RelativeSelfAttention", "RelativePositionalBias",
           "T5Attention", "AdditiveRelMultiheadAttention", "AdditivePosMultiheadAttention", "ClippedBiasMultiheadAttention",
           "ShawMultiheadAttention", "RoPEMultiheadAttention", "RotaryEmbedding", "ALiBiMultiheadAttention", "WindowAttention",
           "FactorisedWindowAttention", "clip_relative_position", "compute_position_biases", "analyze_position_bias",
           "count_position_pairs", "cross_attention_with_bias", "scaled_dot_product_attention"]


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, **options) -> Tensor:
    """relpos.attention with the arguments of torch.nn.functional.scaled_dot_product_attention, followed by its own, such as bias.

    Shapes   query (B, H, L, E), key (B, Hk, S, E), value (B, Hk, S, Ev); all three may omit B, or B and H. attn_mask broadcasts to
             (B, H, L, S): bool, True = attends, or numbers to add. Hk < H requires enable_gqa=True.
    Sign     is_causal aligns query 0 with key 0, as in torch, unless q_offset is given.
    Unlike   torch, a query without keys gives zeros, and is_causal can be combined with attn_mask. torch.manual_seed seeds dropout_p.

    >>> q, k = torch.randn(2, 4, 5, 16), torch.randn(2, 4, 7, 16)
    >>> want = F.scaled_dot_product_attention(q, k, k, is_causal=True)
    >>> torch.allclose(scaled_dot_product_attention(q, k, k, is_causal=True), want, atol=1e-6)
    True
    >>> scaled_dot_product_attention(q, k, k, bias=relpos.ALiBi()).shape
    torch.Size([2, 4, 5, 16])
    """
    _need_tensors("relpos.attention", query=query, key=key, value=value)
    if query.dim() > 2 and key.shape[-3] != query.shape[-3] and not enable_gqa:
        raise ValueError(f"key has {key.shape[-3]} heads and query has {query.shape[-3]}; pass enable_gqa=True")
    if dropout_p:
        options |= _drawn(dropout_p)
    options |= _masked(attn_mask, options.pop("bias", None))
    return relpos.attention(query, key, value, scale=scale, **_causal(is_causal) | options)


# ---------------------------------------------------------------------------------------------- shared functions

def _split(x: Tensor, heads: int) -> Tensor:
    """Reshape (B, L, H D) to (B, H, L, D)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _join(x: Tensor) -> Tensor:
    """Reshape (B, H, L, D) to (B, L, H D)."""
    return x.transpose(1, 2).flatten(2)


def _attend(q: Tensor, k: Tensor, v: Tensor, need_weights: bool, options: dict) -> tuple[Tensor, Tensor | None]:
    """Return (out, weights), or (out, None) without need_weights, which avoids an Lq x Lk array."""
    if not need_weights:
        return relpos.attention(q, k, v, **options), None
    found = relpos.attention(q, k, v, **options, return_weights=True)
    return found.out, found.weights


def _drawn(p: float) -> dict:
    """Return the options of dropout, with a seed from torch's generator, so that torch.manual_seed applies."""
    return {"dropout": p, "seed": torch.randint(2**62, (), device="cpu")}


def _causal(is_causal: bool) -> dict:
    """Return the options of torch's is_causal, which aligns query 0 with key 0."""
    return {"causal": True, "q_offset": 0} if is_causal else {}


def _need_tensors(alternative: str, **given) -> None:
    """Raise TypeError for inputs that are not tensors. `alternative` is the function for arrays."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is of type {type(x).__name__}, expected a tensor; use {alternative} for arrays")


def _dropout(module: nn.Module, p: float) -> dict:
    return _drawn(p) if module.training and p > 0 else {}


def _added(*biases) -> tuple:
    """Return terms, sums and arrays of biases as one tuple of terms. Skips None."""
    terms = []
    for bias in biases:
        if isinstance(bias, Tensor):
            terms.append(relpos.Dense(bias))
        elif bias is not None:
            terms.extend(_operator.terms_of(bias))
    return tuple(terms)


def _masked(mask: Tensor | None, bias=None, attend: bool = True) -> dict:
    """Return the options for a bias and a mask. True in a bool mask means attend, or with attend=False, masked. Other masks are added to
    the scores."""
    if mask is None or mask.dtype != torch.bool:
        return {"bias": _added(bias, mask)}
    return {"bias": _added(bias), "mask": mask if attend else ~mask}


# ---------------------------------------------------------------------------------------------- decay and buckets, one head

class RelativePositionBiasAttention(nn.Module):
    """softmax(Q K^T / sqrt(d_k) + B) V, where B[i, j] = -bias_scale * log(1 + |i - j|), or with learned=True,
    relative_bias_table[bucket(j - i)] with the buckets of T5.

    Shapes   Q (..., N, d_k), K (..., M, d_k), V (..., M, d_v), with up to two leading axes; weights (..., N, M), output
             (..., N, d_v).
             mask: bool, broadcasts to (..., N, M), True = masked. A row with all keys masked gives zeros.
    Sign     the decay is symmetric; the offset of a bucket is key - query.
    Weights  relative_bias_table (num_buckets,), unused by the logarithmic decay.
    Source   Raffel et al. 2020 for the buckets.

    max_seq_len is accepted for compatibility and has no effect.
    """

    def __init__(self, d_k: int, max_seq_len: int = 512, num_buckets: int = 32, bias_scale: float = 0.3, *, learned: bool = False,
                 max_distance: int = 128) -> None:
        super().__init__()
        self.d_k, self.max_seq_len, self.num_buckets, self.bias_scale = d_k, max_seq_len, num_buckets, bias_scale
        self.learned, self.max_distance = learned, max_distance
        self.relative_bias_table = nn.Parameter(torch.zeros(num_buckets))

    def term(self) -> relpos.Term:
        """Return the bias B as a term."""
        if self.learned:
            return relpos.T5(self.relative_bias_table[:, None], buckets=self.num_buckets, max_distance=self.max_distance)
        return relpos.LogDecay(self.bias_scale)

    def _compute_bias(self, N: int, M: int | None = None) -> Tensor:
        """Return B for N queries and M keys; M defaults to N. A subclass can override this method, with the parameter N or with N and M;
        attention then uses the overridden bias."""
        M = N if M is None else M
        if not self.learned:
            return torch.from_numpy(self.term().matrix(N, M, heads=1)[0]).to(self.relative_bias_table)
        offsets = torch.arange(M) - torch.arange(N)[:, None]
        buckets = relpos.bucket(offsets.numpy(), buckets=self.num_buckets, max_distance=self.max_distance)
        return self.relative_bias_table[torch.from_numpy(buckets)]

    def _bias(self, N: int, M: int) -> relpos.Term:
        """Return the term, or a Dense term if a subclass overrides the bias."""
        if type(self)._compute_bias is RelativePositionBiasAttention._compute_bias:
            return self.term()
        return relpos.Dense(own_bias(self._compute_bias, N, M))

    def _options(self, mask: Tensor | None, Q: Tensor, K: Tensor) -> dict:
        return {"scale": self.d_k**-0.5, **_masked(mask, self._bias(Q.shape[-2], K.shape[-2]), attend=False)}

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, *,
                need_weights: bool = True) -> tuple[Tensor | None, Tensor]:
        """Return (weights, output); weights are None with need_weights=False."""
        _need_tensors("relpos.numpy.RelativePositionBiasAttention", Q=Q, K=K, V=V)
        front = 4 - Q.dim()
        q, k, v = (x[(None,) * front] for x in (Q, K, V))
        out, weights = _attend(q, k, v, need_weights, self._options(mask, Q, K))
        return None if weights is None else weights.reshape(weights.shape[front:]), out.reshape(out.shape[front:])

    def explain(self, Q: Tensor, K: Tensor, V: Tensor, tokens: list[str], query_idx: int = 0) -> relpos.Explanation:
        """Print and return the computation of one token's row, for Q, K and V with two axes."""
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
    """Vectors a_K and a_V for each offset from -max_distance to max_distance. Offsets beyond are clipped.

    Weights  a_K (2 max_distance + 1, d_k), a_V (2 max_distance + 1, d_v), initially normal with variance 2 / (rows + columns)
             (Xavier). A seed uses a separate generator, and gives other numbers than in relpos.numpy.
    Sign     the offset is key - query; row 0 is offset -max_distance.
    Source   Shaw, Uszkoreit, Vaswani 2018, sections 3.1 and 3.2.
    """

    def __init__(self, max_distance: int, d_k: int, d_v: int, seed: int | None = None) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.a_K, self.a_V = (_xavier(2 * max_distance + 1, d, seed, at) for at, d in enumerate((d_k, d_v)))

    def reset_parameters(self) -> None:
        """Draw new vectors from torch's generator."""
        nn.init.xavier_normal_(self.a_K)
        nn.init.xavier_normal_(self.a_V)

    def get_key_embedding(self, rel_pos: int) -> Tensor:
        """Return the vector a_K of an offset."""
        return self.a_K[clip_relative_position(rel_pos, 0, self.max_distance) + self.max_distance]

    def get_value_embedding(self, rel_pos: int) -> Tensor:
        """Return the vector a_V of an offset."""
        return self.a_V[clip_relative_position(rel_pos, 0, self.max_distance) + self.max_distance]

    def terms(self, **positions) -> dict:
        """Return the options relkey and relval of relpos.attention."""
        reach = {"left": self.max_distance, "right": self.max_distance, **positions}
        return {"relkey": relpos.RelKey(self.a_K, **reach), "relval": relpos.RelValue(self.a_V, **reach)}


def _xavier(rows: int, columns: int, seed: int | None = None, at: int = 0) -> nn.Parameter:
    """Draw a Xavier normal matrix. With a seed, the numbers depend only on the seed and `at`, the number of the matrix."""
    generator = None if seed is None else torch.Generator().manual_seed(seed * 8 + at)
    return nn.Parameter(nn.init.xavier_normal_(torch.empty(rows, columns), generator=generator))


class RelativeSelfAttention(nn.Module):
    """One head of self-attention with relative positions in keys and values:
    e[i, j] = <q_i, k_j + a_K[j - i]> / sqrt(d_k), out_i = sum_j softmax(e)[i, j] (v_j + a_V[j - i]), q = X W_q and so on.

    Shapes   X (N, embed_dim) or (B, N, embed_dim); output (..., N, d_v), weights (..., N, N).
    Weights  W_q, W_k (embed_dim, d_k), W_v (embed_dim, d_v), rel_embed.a_K, rel_embed.a_V; all Xavier. Only
             relpos.numpy.RelativeSelfAttention gives the numbers of a text that uses np.random.seed.
    Sign     key - query, clipped to max_distance.
    Source   Shaw, Uszkoreit, Vaswani 2018, equations 3 and 4.
    """

    def __init__(self, embed_dim: int, d_k: int, d_v: int, max_distance: int = 16, seed: int | None = None) -> None:
        super().__init__()
        self.d_k = d_k
        self.W_q, self.W_k, self.W_v = (_xavier(embed_dim, d, seed, 2 + at) for at, d in enumerate((d_k, d_k, d_v)))
        self.rel_embed = RelativePositionEmbedding(max_distance, d_k, d_v, seed)

    def forward(self, X: Tensor, *, need_weights: bool = True, **options) -> tuple[Tensor, Tensor | None]:
        """Return (output, weights); weights are None with need_weights=False. `options`, such as causal, are passed to
        relpos.attention."""
        _need_tensors("relpos.numpy.RelativeSelfAttention", X=X)
        q, k, v = (x.unsqueeze(-3) for x in (X @ self.W_q, X @ self.W_k, X @ self.W_v))
        out, weights = _attend(q, k, v, need_weights, self.rel_embed.terms() | options)
        return out.squeeze(-3), None if weights is None else weights.squeeze(-3)


def compute_position_biases(Q: Tensor, rel_embed: RelativePositionEmbedding) -> Tensor:
    """Compute the position part of the scores, <Q[i], a_K[j - i]> / sqrt(d_k), for every pair, in float64 and without a gradient. Q is
    (N, d_k), a tensor or an array.

    >>> compute_position_biases(torch.ones(3, 4), RelativePositionEmbedding(2, 4, 4)).shape
    torch.Size([3, 3])
    """
    q = torch.as_tensor(Q).detach()[None]
    key = rel_embed.terms()["relkey"]
    with torch.no_grad():
        return torch.stack([relpos.explain(q, q, q, query=i, relkey=key).parts["relkey"] for i in range(len(Q))])


def analyze_position_bias(attention_weights: Tensor, max_offset: int = 5) -> dict[int, float]:
    """Return the mean weight of each offset key - query from -max_offset to max_offset that occurs in weights (..., N, M), a tensor or
    an array. For long sequences, relpos.attention(..., summary=True).summary.profile computes it without an array of weights.

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

    Weights  relative_attention_bias.weight (num_buckets, num_heads). A table trained with offsets query - key has the same name and
             shape but other rows; load it with from_query_minus_key.
    Sign     the offset is key - query; with bidirectional=False, keys after the query share bucket 0.
    Source   Raffel et al. 2020, section 2.1.
    """

    _version = 2  # in the metadata of a state_dict; other code and relpos 0.1 save 1, and a plain dictionary has none

    def __init_subclass__(cls, **options) -> None:
        super().__init_subclass__(**options)
        if hasattr(cls, "_relative_position_bucket"):
            raise TypeError(f"{cls.__name__}._relative_position_bucket would never be called, since the library computes the buckets; use "
                            "relpos.Bucket for other strategies, or relpos.Table for a number for each offset")

    def __init__(self, num_heads: int, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__()
        self.num_heads, self.num_buckets = num_heads, num_buckets
        self.max_distance, self.bidirectional = max_distance, bidirectional
        self.relative_attention_bias = nn.Embedding(num_buckets, num_heads)
        nn.init.normal_(self.relative_attention_bias.weight, std=0.02)

    @classmethod
    def from_query_minus_key(cls, weight: Tensor, max_distance: int = 128, bidirectional: bool = True) -> "RelativePositionalBias":
        """Convert a table (num_buckets, num_heads) trained with offsets query - key instead of T5's key - query to a module.

        The two halves of the buckets are swapped, except for bucket 0, the query's own key. With bidirectional=False, such code uses
        bucket 0 for every key up to the query, so all rows become row 0; the result is exact under a causal mask.

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
        """Return the biases as a term for relpos.attention, for any lengths."""
        return relpos.T5(self.relative_attention_bias.weight, buckets=self.num_buckets, max_distance=self.max_distance,
                         bidirectional=self.bidirectional)

    def forward(self, query_length: int, key_length: int, device: torch.device | None = None) -> Tensor:
        """Return the biases as an array (1, num_heads, query_length, key_length), for other code. relpos.attention takes term()."""
        offsets = range(1 - query_length, key_length)
        buckets = relpos.bucket(offsets, buckets=self.num_buckets, max_distance=self.max_distance,
                                bidirectional=self.bidirectional)
        strip = self.relative_attention_bias(torch.from_numpy(buckets)).T
        return strip.unfold(1, key_length, 1).flip(1)[None].to(device)


class T5Attention(nn.Module):
    """Multi-head attention with the biases of T5: softmax(scale Q K^T + bias[bucket(j - i)]) V, projected.

    Shapes   x (B, L, dim); key_value_states (B, Lk, dim), the source of keys and values in cross-attention.
             mask: bool (True = attend) or numbers to add, broadcasts to (B, num_heads, L, Lk).
    Weights  q_proj, k_proj, v_proj (num_heads head_dim, dim), o_proj (dim, num_heads head_dim), without biases, and
             relative_bias.relative_attention_bias.weight (num_buckets, num_heads).
    Sign     the offset is key - query.
    Source   Raffel et al. 2020. T5 itself does not divide scores by sqrt(D). For the layer of transformers, use scale=1 and load its
             weights q, k, v and o as q_proj, k_proj, v_proj and o_proj.

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
        """Return (output, position_bias). Pass position_bias, a term that holds only the table and works for any lengths, to the
        following layers, which share it. An array (1 or B, num_heads, L, Lk) is accepted too. `options`, such as causal or q_offset, are
        passed to relpos.attention."""
        if position_bias is None and self.has_relative_bias:
            position_bias = self.relative_bias.term()
        source = x if key_value_states is None else key_value_states
        q, k, v = (_split(x, self.num_heads) for x in (self.q_proj(x), self.k_proj(source), self.v_proj(source)))
        out = relpos.attention(q, k, v, scale=self.scale, **_masked(mask, position_bias), **_dropout(self, self.dropout),
                               **options)
        return self.o_proj(_join(out)), position_bias


def cross_attention_with_bias(query: Tensor, key: Tensor, value: Tensor, relative_bias: RelativePositionalBias,
                              mask: Tensor | None = None) -> Tensor:
    """Compute softmax(query key^T / sqrt(head_dim) + bias + mask) value for tensors or arrays (B, num_heads, L, head_dim) of any lengths.

    >>> q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 7, 8)
    >>> cross_attention_with_bias(q, k, k, RelativePositionalBias(2)).shape
    torch.Size([1, 2, 3, 8])
    """
    query, key, value = map(torch.as_tensor, (query, key, value))
    return relpos.attention(query, key, value, **_masked(None if mask is None else torch.as_tensor(mask), relative_bias.term()))


# ---------------------------------------------------------------------------------------------- like torch.nn.MultiheadAttention

def _multihead(module, q: Tensor, k: Tensor, v: Tensor, dropout: float, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
               need_weights: bool, is_causal: bool, bias=None, **options) -> tuple[Tensor, Tensor | None]:
    """Return (out, mean weights) for projected q, k and v (B, L, H D), with the masks of torch.nn.MultiheadAttention."""
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
    """Convert a mask that broadcasts to those of torch.nn.MultiheadAttention to one that broadcasts to (B, H, Lq, Lk)."""
    front = mask.shape[0] if mask.dim() == 3 else 1
    if mask.dim() in (2, 3) and mask.shape[-2] in (1, lq) and mask.shape[-1] in (1, lk) and front in (1, batch, batch * heads):
        mask = mask.expand(*mask.shape[:-2], lq, lk)
        if mask.dim() == 2:
            return mask
        return mask[:, None] if front in (1, batch) else mask.unflatten(0, (batch, heads))
    raise ValueError(f"attn_mask has shape {tuple(mask.shape)}, expected (Lq, Lk), (B, Lq, Lk) or (B num_heads, Lq, Lk), here "
                     f"({lq}, {lk}), ({batch}, {lq}, {lk}) or ({batch * heads}, {lq}, {lk})")


def _known(positions: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Replace infinite positions by 2^53, the largest allowed position, and positions whose mask is False by 0. Uses float64, since
    float16 cannot represent 2^53."""
    if positions is None or not positions.is_floating_point():
        return positions
    far = torch.nan_to_num(positions.double(), nan=torch.nan, posinf=2.0**53, neginf=-2.0**53)
    return far if mask is None else far.masked_fill(~mask, 0)


def _at(x: Tensor, positions: Tensor | None, mask: Tensor | None) -> Tensor:
    """Return the positions of x, by default its indices, with 0 where the mask is False."""
    if positions is None:
        return torch.arange(x.shape[1], device=x.device)
    return positions if mask is None else positions.masked_fill(~mask, 0)


def _rounds(q_positions: Tensor, k_positions: Tensor) -> bool:
    """Return true if differences computed in the type of the positions (the wider of the two) may differ from differences in float64.
    They are equal if all finite positions are multiples of a step whose multiples, up to twice the largest position, are exact in that
    type."""
    dtype = torch.promote_types(q_positions.dtype, k_positions.dtype)
    if not dtype.is_floating_point or dtype == torch.float64:
        return False
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or _torch._modes() or torch._C._functorch.maybe_current_level() is not None:
        return True  # a traced graph cannot branch on values
    positions = torch.cat([x.to(dtype).double().flatten() for x in (q_positions, k_positions)])
    if positions.isnan().any():
        return False  # the term raises for NaN
    finite = positions[positions.isfinite()]
    largest = finite.abs().max().item() if len(finite) else 0.0
    steps = finite / (torch.finfo(dtype).eps * 2.0 ** math.frexp(largest)[1])
    return bool((steps != steps.round()).any())


def _pairs_of_rounded_positions(table: Tensor, max_distance: int, q_positions: Tensor, k_positions: Tensor, q_mask: Tensor | None,
                                k_mask: Tensor | None) -> relpos.Term:
    """Return -table[trunc(clamp(P_Q - P_K))] as an array of all pairs, with differences in the type of the positions."""
    p, k = q_positions[..., :, None], k_positions[..., None, :]
    difference = torch.where(p == k, 0, p - k).double()  # equal infinite positions have difference 0
    bias = -table[difference.nan_to_num(0.0).clamp(-max_distance, max_distance).long() + max_distance]
    bias = torch.where(difference.isnan(), torch.nan, bias)
    for mask, at in ((q_mask, -1), (k_mask, -2)):
        if mask is not None:
            bias = torch.where(mask.unsqueeze(at), bias, 0)
    return relpos.Dense(bias[:, None] if bias.dim() == 3 else bias)


class AdditiveRelMultiheadAttention(nn.Module):
    """torch.nn.MultiheadAttention that subtracts a learned function of the difference of two positions from the logits:
    A[i, j] = <q_i, k_j> / sqrt(d_h) - rel_bias[trunc(clamp(P_Q[i] - P_K[j], -m, m)) + m], m = max_distance.

    Shapes   query (B, Lq, embed_dim), key and value (B, Lk, embed_dim); q_positions (Lq) or (B, Lq), k_positions (Lk) or (B, Lk),
             integer or real; infinite positions are far from all others. Position masks have the same shapes: False = the token has
             no position (it may be NaN), so its pairs attend without a bias. attn_mask (Lq, Lk), (B, Lq, Lk) or
             (B num_heads, Lq, Lk), where any axis may be 1, and key_padding_mask (B, Lk) are as in torch, bool (True = masked) or
             added. Returns (B, Lq, embed_dim) and, with need_weights, the weights (B, Lq, Lk) after dropout, averaged over heads.
    Weights  rel_bias (2 max_distance + 1,), shared by the heads, initially zero; attn.in_proj_weight, attn.in_proj_bias,
             attn.out_proj.weight, attn.out_proj.bias.
    Sign     query - key, and the bias is subtracted. A row with all keys masked gives the output projection's bias, not NaN.
    Memory   differences of positions are rounded to the type of the positions, as in symm_learning. If this changes a difference, as
             with decimal fractions in float32 (or, in a compiled module, with any type below float64), the biases take an array of
             Lq Lk numbers. Otherwise, and with positions.double(), memory grows linearly with the length.
    Source   symm_learning.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, max_distance: int, dropout: float = 0.0, bias: bool = True, device=None,
                 dtype=None) -> None:
        super().__init__()
        if max_distance < 0:
            raise ValueError(f"max_distance is {max_distance}, expected 0 or more")
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, dropout, bias, batch_first=True, device=device, dtype=dtype)
        self.embed_dim, self.num_heads, self.max_distance = embed_dim, num_heads, max_distance
        self.rel_bias = nn.Parameter(torch.zeros(2 * max_distance + 1, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Initialize as torch.nn.MultiheadAttention does, and set the bias to zero."""
        _reset_wrapped(self.attn)
        nn.init.zeros_(self.rel_bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, q_positions: Tensor | None = None,
                k_positions: Tensor | None = None, q_position_mask: Tensor | None = None, k_position_mask: Tensor | None = None,
                attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, need_weights: bool = False,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return (output, weights or None). is_causal masks later keys by index and ignores positions."""
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
    """torch.nn.MultiheadAttention that adds a learned vector for each position to queries and keys, but not to values:
    q' = query + pos_emb[P_Q], k' = key + pos_emb[P_K].

    Shapes   as in AdditiveRelMultiheadAttention. Positions are finite, 0 to max_len - 1; fractions are rounded down. Position masks:
             False = add no vector.
    Weights  pos_emb (max_len, embed_dim), initially zero; attn.in_proj_weight, attn.in_proj_bias, attn.out_proj.weight,
             attn.out_proj.bias.
    Errors   IndexError if a position is outside the table.
    Source   symm_learning; the absolute positions of Vaswani et al. 2017, learned, and added in every layer.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, max_len: int, dropout: float = 0.0, bias: bool = True, device=None,
                 dtype=None) -> None:
        super().__init__()
        if max_len < 1:
            raise ValueError(f"max_len is {max_len}, expected 1 or more")
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, dropout, bias, batch_first=True, device=device, dtype=dtype)
        self.embed_dim, self.num_heads, self.max_len = embed_dim, num_heads, max_len
        self.pos_emb = nn.Parameter(torch.zeros(max_len, embed_dim, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Initialize as torch.nn.MultiheadAttention does, and set the vectors to zero."""
        _reset_wrapped(self.attn)
        nn.init.zeros_(self.pos_emb)

    def _moved(self, side: str, x: Tensor, positions: Tensor | None, mask: Tensor | None) -> Tensor:
        """Add the vectors of the positions to x."""
        at = torch.arange(x.shape[1], device=x.device) if positions is None else positions
        at = at if mask is None else at.masked_fill(~mask, 0)
        try:
            added = F.embedding(at.floor().long(), self.pos_emb)
        except IndexError:
            raise IndexError(f"{side}_positions has {at.min().item():g} to {at.max().item():g}, expected 0 to {self.max_len - 1}, finite; "
                             "use a larger max_len, or a position mask to skip tokens") from None
        return x + (added if mask is None else added * mask[..., None])

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, q_positions: Tensor | None = None,
                k_positions: Tensor | None = None, q_position_mask: Tensor | None = None, k_position_mask: Tensor | None = None,
                attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, need_weights: bool = False,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return (output, weights or None). Masks are as in AdditiveRelMultiheadAttention."""
        q = self._moved("q", query, q_positions, q_position_mask)
        k = self._moved("k", key, k_positions, k_position_mask)
        return _wrapped(self, q, k, value, attn_mask, key_padding_mask, need_weights, is_causal)


def _reset_wrapped(attn: nn.MultiheadAttention) -> None:
    """Initialize a torch.nn.MultiheadAttention again."""
    attn.out_proj.reset_parameters()
    attn._reset_parameters()


def _wrapped(module, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
             need_weights: bool, is_causal: bool, bias=None) -> tuple[Tensor, Tensor | None]:
    """Return (output, weights) computed with the parameters of module.attn, a torch.nn.MultiheadAttention that never runs itself."""
    attn = module.attn
    biases = (None,) * 3 if attn.in_proj_bias is None else attn.in_proj_bias.chunk(3)
    q, k, v = map(F.linear, (query, key, value), attn.in_proj_weight.chunk(3), biases)
    out, weights = _multihead(module, q, k, v, attn.dropout, attn_mask, key_padding_mask, need_weights, is_causal, bias=bias)
    return attn.out_proj(out), weights


class _MultiheadAttention(nn.Module):
    """The base of the four classes below: projections, masks, and weights averaged over heads."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, device=None, dtype=None) -> None:
        super().__init__()
        if embed_dim % num_heads != 0:
            raise ValueError(f"embed_dim is {embed_dim}, expected a multiple of num_heads, {num_heads}")
        self.embed_dim, self.num_heads, self.head_dim, self.dropout = embed_dim, num_heads, embed_dim // num_heads, dropout
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype) for _ in range(4))

    def reset_parameters(self) -> None:
        """Draw matrices from Xavier uniform, set biases to zero, and initialize the parameters of the class."""
        for linear in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def terms(self, **positions) -> dict:
        """Return the terms as options of relpos.attention."""
        raise NotImplementedError

    def _positions(self, side: str, x: Tensor, positions: Tensor | None, mask: Tensor | None) -> dict:
        """Return the arguments of terms() for the positions of one side, "q" or "k". The term skips pairs with a masked position."""
        found = {f"{side}_positions": _known(positions, mask)}
        return found if mask is None else found | {f"{side}_position_mask": mask}

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, q_positions: Tensor | None = None,
                k_positions: Tensor | None = None, q_position_mask: Tensor | None = None, k_position_mask: Tensor | None = None,
                attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, need_weights: bool = False,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return (output, weights or None). Shapes and masks are as in AdditiveRelMultiheadAttention; the class documents the positions
        that it accepts."""
        positions = (self._positions("q", query, q_positions, q_position_mask)
                     | self._positions("k", key, k_positions, k_position_mask))
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        out, weights = _multihead(self, q, k, v, self.dropout, attn_mask, key_padding_mask, need_weights, is_causal,
                                  **self.terms(**positions))
        return self.out_proj(out), weights


class ClippedBiasMultiheadAttention(_MultiheadAttention):
    """A bias for each clipped offset and head: A[i, j] = <q_i, k_j> / sqrt(d) + relative_bias[h, clamp(i - j, -R, R) + R].

    Shapes   as in AdditiveRelMultiheadAttention, including infinite positions and position masks.
    Weights  relative_bias (num_heads, 2 max_distance + 1), or (2 max_distance + 1,) with shared=True, initially zero; q_proj,
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
        """Initialize the projections, and set the bias to zero."""
        super().reset_parameters()
        nn.init.zeros_(self.relative_bias)

    def terms(self, **positions) -> dict:
        """Return the table as options of relpos.attention: as Real if there are masks, otherwise as Table, which is faster. Table uses
        key - query, so the table is reversed."""
        table = self.relative_bias if self.relative_bias.dim() == 2 else self.relative_bias[None]
        if any(name.endswith("mask") for name in positions):
            return {"bias": relpos.Real(table, max_distance=self.max_distance, sign=1, **positions)}
        return {"bias": relpos.Table(table.flip(-1), left=self.max_distance, right=self.max_distance, **positions)}


class ShawMultiheadAttention(_MultiheadAttention):
    """Vectors for keys and values at each clipped offset, as in RelativeSelfAttention, for several heads.

    Shapes   as in AdditiveRelMultiheadAttention, including infinite positions and position masks: False = no vectors for keys or
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
        """Initialize the projections, and draw new vectors."""
        super().reset_parameters()
        self.rel_embed.reset_parameters()

    def terms(self, **positions) -> dict:
        """Return the vectors as options of relpos.attention."""
        return self.rel_embed.terms(**positions)


class RoPEMultiheadAttention(_MultiheadAttention):
    """Rotates queries and keys by their positions: the pair of channels (2c, 2c + 1) by the angle p / rope_base^(2c / head_dim).

    Shapes   as in AdditiveRelMultiheadAttention, but with finite positions. Position masks: False = not rotated. layout="half" pairs
             channel c with c + head_dim / 2 instead.
    Weights  q_proj, k_proj, v_proj, out_proj.
    Sign     scores depend only on key - query.
    Errors   ValueError if a position is not finite.
    Source   Su et al. 2021, equation 15; layout and names as in symm_learning.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, rope_base: float = 10000.0,
                 device=None, dtype=None, *, layout: str = "interleaved") -> None:
        super().__init__(embed_dim, num_heads, dropout, bias, device, dtype)
        self.rope_base, self.layout = rope_base, layout

    def _positions(self, side: str, x: Tensor, positions: Tensor | None, mask: Tensor | None) -> dict:
        """Return the positions of one side, with 0, which means no rotation, for tokens without a position."""
        if mask is not None:
            positions = torch.arange(x.shape[1], device=x.device) if positions is None else positions
            positions = positions.masked_fill(~mask, 0)
        return {f"{side}_positions": positions}

    def terms(self, **positions) -> dict:
        """Return the option rope of relpos.attention."""
        return {"rope": relpos.RoPE(base=self.rope_base, layout=self.layout, **positions)}


class RotaryEmbedding(nn.Module):
    """The cosines and sines of RoPE for given positions, and a rotation by them, for attention of your own. RoPEMultiheadAttention does
    not need it, since relpos.attention rotates.

    Shapes   positions (P) or (B, P), integer or real; cosines and sines (..., P, dim/2). apply_rope: x (B, H, P, dim).
    Layout   channels 2c and 2c + 1 form a pair, which is rotated by p / base^(2c / dim).
    Errors   ValueError if dim is not even and positive, or if x has another width.
    Source   Su et al. 2021, equation 15; names as in symm_learning.
    """

    def __init__(self, dim: int, base: float = 10000.0, device=None, dtype=None) -> None:
        super().__init__()
        if dim <= 0 or dim % 2:
            raise ValueError(f"dim is {dim}, expected a positive even number")
        self.dim, self.base = dim, base
        self.register_buffer("inv_freq", base ** (-torch.arange(0, dim, 2, device=device, dtype=dtype) / dim), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return (cosines, sines)."""
        angles = positions[..., None] * self.inv_freq
        return angles.cos(), angles.sin()

    def apply_rope(self, x: Tensor, positions: Tensor, position_mask: Tensor | None = None) -> Tensor:
        """Rotate x by its positions. Tokens whose mask is False are not rotated."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"x has width {x.shape[-1]}, expected {self.dim}, the dim of this RotaryEmbedding")
        if position_mask is not None:
            positions = positions.masked_fill(~position_mask, 0)
        cos, sin = (y.to(x.dtype).reshape(-1, 1, *y.shape[-2:]) for y in self(positions))
        first, second = x[..., ::2], x[..., 1::2]
        return torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)


class ALiBiMultiheadAttention(_MultiheadAttention):
    """A penalty that grows with the distance: A[i, j] = <q_i, k_j> / sqrt(d) - m_h |i - j|. If num_heads is a power of two, the slopes
    are m_h = 2^(-8 h / num_heads), h = 1, 2, ...; other numbers of heads use the paper's slopes.

    Shapes   as in AdditiveRelMultiheadAttention, including infinite positions and position masks. An infinitely far key has weight 0
             if another key is at a finite distance; a query infinitely far from all keys weights them equally.
    Weights  q_proj, k_proj, v_proj, out_proj.
    Sign     none. The paper's attention is causal: is_causal=True.
    Source   Press, Smith, Lewis 2022, section 3.
    """

    def terms(self, **positions) -> dict:
        """Return the option bias of relpos.attention."""
        return {"bias": relpos.ALiBi(**positions)}


# ---------------------------------------------------------------------------------------------- windows of a grid

class WindowAttention(nn.Module):
    """Multi-head self-attention in windows of a grid, with a learned bias for each difference of grid positions:
    softmax(q k^T / sqrt(head_dim) + relative_position_bias_table[index(i, j)] + mask) v, projected.

    Shapes   x (windows, N, dim), N = Wh Ww, with the windows of one image in sequence; mask (m, N, N), numbers to add, where m divides
             the number of windows: window w uses mask w mod m.
    Weights  relative_position_bias_table ((2 Wh - 1)(2 Ww - 1), num_heads), qkv (3 num_heads head_dim, dim), proj, as in timm's and
             Swin's WindowAttention. A relative_position_index in the state dict is ignored.
    Sign     query - key: the row of the table is (y_i - y_j + Wh - 1)(2 Ww - 1) + x_i - x_j + Ww - 1.
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
        """Return the biases of a window as a term."""
        return relpos.Swin(self.relative_position_bias_table, grid=self.window_size)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the output, (windows, N, dim)."""
        q, k, v = (_split(part, self.num_heads) for part in self.qkv(x).chunk(3, -1))
        if mask is not None:
            mask = mask.repeat(len(x) // len(mask), 1, 1)[:, None]
        out = relpos.attention(q, k, v, **_masked(mask, self.term()), **_dropout(self, self.attn_drop))
        return self.proj_drop(self.proj(_join(out)))

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        state_dict.pop(prefix + "relative_position_index", None)  # follows from the grid
        super()._load_from_state_dict(state_dict, prefix, *args)


class FactorisedWindowAttention(WindowAttention):
    """WindowAttention whose bias is the sum of a bias for rows and a bias for columns, b_h[y_j - y_i] + b_w[x_j - x_i]. It has
    2 Wh + 2 Ww - 2 numbers per head instead of (2 Wh - 1)(2 Ww - 1).

    Shapes   as in WindowAttention.
    Weights  bias_h (num_heads, 2 Wh - 1), bias_w (num_heads, 2 Ww - 1), initially zero; qkv and proj as in WindowAttention.
    Sign     key - query; column Wh - 1 of bias_h is difference 0.
    Source   the term axial. A table of Swin that is such a sum gives the same bias.
    """

    def _make_tables(self, height: int, width: int, **of) -> None:
        self.bias_h = nn.Parameter(torch.zeros(self.num_heads, 2 * height - 1, **of))
        self.bias_w = nn.Parameter(torch.zeros(self.num_heads, 2 * width - 1, **of))

    def term(self) -> relpos.Term:
        """Return the biases of a window as a term."""
        return relpos.Axial(self.bias_h, self.bias_w, grid=self.window_size)


def __dir__():
    return [*__all__]
