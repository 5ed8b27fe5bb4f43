"""Modules and functions from tutorials (docs/texts.md), for one head: a bias that decays with distance, and Shaw's
relative vectors.

SPDX-License-Identifier: Apache-2.0"""
import math

import torch
from torch import Tensor, nn

import relpos

from .._hooks import hook, replaced
from ..numpy import (clip_relative_position, inverse, need_same, need_tokens, need_weights, own_bias, vector_terms,
                     vectors_of)
from ._functional import _attend, _masked, _need_tensors
from ._numbers import need_sizes


# ---------------------------------------------------------------------------------------------- decay and buckets, one
# head

class RelativePositionBiasAttention(nn.Module):
    """softmax(Q K^T / sqrt(d_k) + B) V, where B[i, j] = -bias_scale * log(1 + |i - j|), or with learned=True,
    relative_bias_table[bucket(j - i)] with the buckets of T5.

    Shapes   Q (..., N, d_k), K (..., M, d_k), V (..., M, d_v), with up to two leading axes; weights (..., N, M), output
             (..., N, d_v).
             mask: bool, broadcasts to (..., N, M), True = masked. A row with all keys masked gives zeros.
    Sign     the decay is symmetric; the offset of a bucket is key - query.
    Weights  relative_bias_table (num_buckets,), unused by the logarithmic decay.
    Source   Raffel et al. 2020 for the buckets.

    max_seq_len is accepted for compatibility and has no effect. `scale` divides the scores, initially sqrt(d_k); it and
    bias_scale may be tensors, which then have gradients. forward calls the method _compute_bias of a subclass or an
    instance that replaces it.
    """

    def __init__(self, d_k: int, max_seq_len: int = 512, num_buckets: int = 32, bias_scale: float = 0.3, *,
                 learned: bool = False,
                 max_distance: int = 128) -> None:
        super().__init__()
        need_sizes(d_k=d_k, max_seq_len=max_seq_len, num_buckets=num_buckets, max_distance=max_distance)
        if learned:
            relpos.bucket(0, buckets=num_buckets, max_distance=max_distance)  # raises for numbers without a meaning
        self.d_k, self.max_seq_len, self.num_buckets, self.bias_scale = d_k, max_seq_len, num_buckets, bias_scale
        self.learned, self.max_distance, self.scale = learned, max_distance, math.sqrt(d_k)
        self.relative_bias_table = nn.Parameter(torch.zeros(num_buckets))

    def term(self) -> relpos.Term:
        """Return the bias B as a term."""
        if self.learned:
            return relpos.T5(self.relative_bias_table[:, None], buckets=self.num_buckets,
                             max_distance=self.max_distance)
        return relpos.LogDecay(self.bias_scale)

    @hook
    def _compute_bias(self, N: int, M: int | None = None) -> Tensor:
        """Return B, (N, M), for N queries and M keys; M defaults to N. A method that replaces it takes N, or N and
        M."""
        M = N if M is None else M
        offsets = torch.arange(M) - torch.arange(N)[:, None]
        if not self.learned and isinstance(self.bias_scale, Tensor):
            return -self.bias_scale * offsets.abs().to(self.bias_scale).log1p()
        if not self.learned:
            return torch.from_numpy(self.term().matrix(N, M, heads=1)[0]).to(self.relative_bias_table)
        buckets = relpos.bucket(offsets.numpy(), buckets=self.num_buckets, max_distance=self.max_distance)
        return self.relative_bias_table[torch.from_numpy(buckets)]

    def _bias(self, N: int, M: int) -> relpos.Term:
        """Return the term, or a Dense term if _compute_bias is replaced or bias_scale is a tensor."""
        if replaced(self, "_compute_bias") or isinstance(self.bias_scale, Tensor) and not self.learned:
            return relpos.Dense(own_bias(self._compute_bias, N, M))
        return self.term()

    def _options(self, mask: Tensor | None, Q: Tensor, K: Tensor) -> dict:
        return _masked(mask, self._bias(Q.shape[-2], K.shape[-2]), attend=False)

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, *,
                need_weights: bool = True) -> tuple[Tensor | None, Tensor]:
        """Return (weights, output); weights are None with need_weights=False."""
        _need_tensors("relpos.numpy.RelativePositionBiasAttention", Q=Q, K=K, V=V)
        front = 4 - Q.dim()
        # attention has no gradient of its scale, so the queries are scaled instead
        learned = isinstance(self.scale, Tensor)
        q, k, v = (x[(None,) * front] for x in (Q / self.scale if learned else Q, K, V))
        options = {"scale": 1.0 if learned else inverse(self.scale), **self._options(mask, Q, K)}
        out, weights = _attend(q, k, v, need_weights, options)
        return None if weights is None else weights.reshape(weights.shape[front:]), out.reshape(out.shape[front:])

    def explain(self, Q: Tensor, K: Tensor, V: Tensor, tokens: list[str], query_idx: int = 0) -> relpos.Explanation:
        """Print and return the computation of one token's row, for Q (N, d_k), K (M, d_k) and V (M, d_v)."""
        with torch.no_grad():
            row = relpos.explain(Q[None], K[None], V[None], query=query_idx, scale=inverse(float(self.scale)),
                                 **self._options(None, Q, K))
        need_tokens(tokens, query_idx, len(Q), len(K))
        print(f"query {tokens[query_idx]!r}, d_k {self.d_k}, bias {self._bias(len(Q), len(K))!r}")
        print(f"{'key':>12}{'raw':>10}{'scaled':>10}{'bias':>10}{'score':>10}{'weight':>10}")
        for token, *numbers in zip(tokens, *row[:5]):
            print(f"{token:>12}{''.join(f'{float(x):10.4f}' for x in numbers)}  "
                  f"{'#' * round(40 * float(numbers[-1]))}".rstrip())
        print("output", " ".join(f"{x:.4f}" for x in row.out.tolist()))
        return row


# ---------------------------------------------------------------------------------------------- vectors for keys and
# values

class RelativePositionEmbedding(nn.Module):
    """Vectors a_K and a_V for each offset from -max_distance to max_distance. Larger offsets are clipped.

    Weights  a_K (2 max_distance + 1, d_k), a_V (2 max_distance + 1, d_v), initially normal with variance 2 / (rows +
             columns) (Xavier). A seed uses a separate generator, whose numbers differ from those of relpos.numpy.
    Sign     the offset is key - query; row 0 is offset -max_distance.
    Source   Shaw, Uszkoreit, Vaswani 2018, sections 3.1 and 3.2.
    """

    def __init__(self, max_distance: int, d_k: int, d_v: int, seed: int | None = None) -> None:
        super().__init__()
        need_sizes(0, max_distance=max_distance)
        need_sizes(d_k=d_k, d_v=d_v)
        self.max_distance = max_distance
        self.a_K, self.a_V = (_xavier(2 * max_distance + 1, d, seed, at) for at, d in enumerate((d_k, d_v)))

    def reset_parameters(self) -> None:
        """Draw new vectors from torch's generator."""
        nn.init.xavier_normal_(self.a_K)
        nn.init.xavier_normal_(self.a_V)

    @hook
    def get_key_embedding(self, rel_pos: int) -> Tensor:
        """Return the vector a_K of an offset."""
        return self.a_K[clip_relative_position(rel_pos, 0, self.max_distance) + self.max_distance]

    @hook
    def get_value_embedding(self, rel_pos: int) -> Tensor:
        """Return the vector a_V of an offset."""
        return self.a_V[clip_relative_position(rel_pos, 0, self.max_distance) + self.max_distance]

    def terms(self, **positions) -> dict:
        """Return the options relkey and relval of relpos.attention."""
        return vector_terms(self, **positions)


def _xavier(rows: int, columns: int, seed: int | None = None, at: int = 0) -> nn.Parameter:
    """Draw a Xavier normal matrix. With a seed, the numbers depend only on the seed and on `at`, the index of the
    matrix."""
    generator = None if seed is None else torch.Generator().manual_seed(seed * 8 + at)
    return nn.Parameter(nn.init.xavier_normal_(torch.empty(rows, columns), generator=generator))


class WithVectors(nn.Module):
    """A module whose rel_embed may be any object with the methods and attributes of RelativePositionEmbedding, such as
    a tutorial's own class for arrays. Vectors that are not parameters of a module are not trained."""

    def __setattr__(self, name, value):
        if name == "rel_embed" and not isinstance(value, nn.Module):
            self._modules.pop(name, None)  # torch would only replace it by a module
        super().__setattr__(name, value)


class RelativeSelfAttention(WithVectors):
    """One head of self-attention with relative positions in keys and values:
    e[i, j] = <q_i, k_j + a_K[j - i]> / sqrt(d_k), out_i = sum_j softmax(e)[i, j] (v_j + a_V[j - i]), q = X W_q and so
    on.

    Shapes   X (N, embed_dim) or (B, N, embed_dim); output (..., N, d_v), weights (..., N, N).
    Weights  W_q, W_k (embed_dim, d_k), W_v (embed_dim, d_v), rel_embed.a_K, rel_embed.a_V; all initially Xavier normal.
             Only relpos.numpy.RelativeSelfAttention gives the numbers of a text that uses np.random.seed.
    Sign     key - query, clipped to max_distance.
    Source   Shaw, Uszkoreit, Vaswani 2018, equations 3 and 4.

    forward calls get_key_embedding and get_value_embedding of rel_embed, for each offset once, if they are replaced.
    """

    def __init__(self, embed_dim: int, d_k: int, d_v: int, max_distance: int = 16, seed: int | None = None) -> None:
        super().__init__()
        need_sizes(embed_dim=embed_dim, d_k=d_k, d_v=d_v)
        self.d_k = d_k
        self.W_q, self.W_k, self.W_v = (_xavier(embed_dim, d, seed, 2 + at) for at, d in enumerate((d_k, d_k, d_v)))
        self.rel_embed = RelativePositionEmbedding(max_distance, d_k, d_v, seed)

    def forward(self, X: Tensor, *, need_weights: bool = True, **options) -> tuple[Tensor, Tensor | None]:
        """Return (output, weights); weights are None with need_weights=False. `options`, such as causal, are passed to
        relpos.attention."""
        _need_tensors("relpos.numpy.RelativeSelfAttention", X=X)
        need_same("X", X.shape[-1], "each of W_q, W_k and W_v", len(self.W_q), "channels")
        q, k, v = (x.unsqueeze(-3) for x in (X @ self.W_q, X @ self.W_k, X @ self.W_v))
        terms = vector_terms(self.rel_embed, (X.shape[-2], X.shape[-2], options.get("q_offset")), stack_like(q))
        out, weights = _attend(q, k, v, need_weights, terms | options)
        return out.squeeze(-3), None if weights is None else weights.squeeze(-3)


def stack_like(q: Tensor):
    """Return a function that stacks vectors, tensors or arrays, as a tensor of q's type."""
    return lambda rows: torch.stack([torch.as_tensor(x) for x in rows]).to(q)


def _offsets(far: int, N: int, M: int, like: Tensor) -> Tensor:
    """Return the index of the vectors for each pair, (N, M)."""
    at = torch.arange(max(N, M), device=like.device)
    return clip_relative_position(at[:M], at[:N, None], far) + far


def _vectors(rel_embed, side: str, lengths: tuple, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vectors of keys or values in the type of `like`, and their index for each pair."""
    table, far = vectors_of(rel_embed, side, lengths, stack_like(like))
    return torch.as_tensor(table).to(like), _offsets(far, *lengths, like)


def _position_scores(Q: Tensor, table: Tensor, at: Tensor) -> Tensor:
    """Compute <Q[i], table[at[i, j]]> / sqrt(d_k), (..., N, M)."""
    need_same("a_K", table.shape[1], "Q", Q.shape[-1])
    products = Q @ table.T
    return products.gather(-1, at.expand(*products.shape[:-2], *at.shape)) / math.sqrt(Q.shape[-1])


def relative_attention_scores(Q: Tensor, K: Tensor, rel_embed: RelativePositionEmbedding) -> Tensor:
    """Compute <Q[i], K[j] + a_K[j - i]> / sqrt(d_k) for every pair, from the definition, in the type of Q and with
    gradients. It uses N M d_k numbers; efficient_relative_scores returns the same scores, up to rounding, with less.

    Shapes   Q (..., N, d_k), K (..., M, d_k), tensors or arrays; result (..., N, M).
    """
    Q = torch.as_tensor(Q)
    K = torch.as_tensor(K).to(Q)
    need_same("K", K.shape[-1], "Q", Q.shape[-1])
    table, at = _vectors(rel_embed, "relkey", (Q.shape[-2], K.shape[-2]), Q)
    need_same("a_K", table.shape[1], "Q", Q.shape[-1])
    return (Q[..., :, None, :] * (K[..., None, :, :] + table[at])).sum(-1) / math.sqrt(Q.shape[-1])


def efficient_relative_scores(Q: Tensor, K: Tensor, rel_embed: RelativePositionEmbedding) -> Tensor:
    """Compute the scores of relative_attention_scores with two matrix products, Q K^T and Q a_K^T. As in the tutorial,
    this function reads a_K, not get_key_embedding.

    >>> Q, K = torch.randn(2, 6, 4)
    >>> embed = RelativePositionEmbedding(3, 4, 4)
    >>> torch.allclose(relative_attention_scores(Q, K, embed), efficient_relative_scores(Q, K, embed), atol=1e-6)
    True
    """
    Q = torch.as_tensor(Q)
    K = torch.as_tensor(K).to(Q)
    need_same("K", K.shape[-1], "Q", Q.shape[-1])
    at = _offsets(rel_embed.max_distance, Q.shape[-2], K.shape[-2], Q)
    return Q @ K.mT / math.sqrt(Q.shape[-1]) + _position_scores(Q, torch.as_tensor(rel_embed.a_K).to(Q), at)


def relative_attention_output(attention_weights: Tensor, V: Tensor, rel_embed: RelativePositionEmbedding) -> Tensor:
    """Compute sum_j attention_weights[i, j] (V[j] + a_V[j - i]) in the type of V, with gradients. The weights need not
    sum to one.

    Shapes   attention_weights (..., N, M), V (..., M, d_v), tensors or arrays; result (..., N, d_v).
    """
    V = torch.as_tensor(V)
    w = torch.as_tensor(attention_weights).to(V)
    need_same("V", V.shape[-2], "attention_weights", w.shape[-1], "keys")
    table, at = _vectors(rel_embed, "relval", w.shape[-2:], V)
    need_same("a_V", table.shape[1], "V", V.shape[-1])
    by_offset = w.new_zeros(*w.shape[:-1], len(table)).scatter_add(-1, at.expand(w.shape), w)
    return w @ V + by_offset @ table


def compute_position_biases(Q: Tensor, rel_embed: RelativePositionEmbedding, M: int | None = None) -> Tensor:
    """Compute the position part of the scores, <Q[i], a_K[j - i]> / sqrt(d_k), (..., N, M), in the type of Q and with
    gradients, for Q (..., N, d_k), a tensor or an array, and M keys. M defaults to N.

    >>> compute_position_biases(torch.ones(3, 4), RelativePositionEmbedding(2, 4, 4)).shape
    torch.Size([3, 3])
    """
    Q = torch.as_tensor(Q)
    return _position_scores(Q, *_vectors(rel_embed, "relkey", (Q.shape[-2], Q.shape[-2] if M is None else M), Q))


def analyze_position_bias(attention_weights: Tensor, max_offset: int = 5) -> dict[int, float]:
    """Return {offset: mean weight} for weights (..., N, M), a tensor or an array, and every offset key - query from
    -max_offset to max_offset that occurs. For long sequences, relpos.attention(..., summary=True).summary.profile
    computes the means without an array of weights.

    >>> analyze_position_bias(torch.eye(3), 1)
    {-1: 0.0, 0: 1.0, 1: 0.0}
    """
    attention_weights = torch.as_tensor(attention_weights)
    need_weights(attention_weights)
    n, m = attention_weights.shape[-2:]
    return {offset: attention_weights.diagonal(offset, -2, -1).mean().item()
            for offset in range(-max_offset, max_offset + 1) if -n < offset < m}
