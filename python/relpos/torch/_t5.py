"""The learned biases of T5, and attention with them.

SPDX-License-Identifier: Apache-2.0"""
import warnings

import torch
from torch import Tensor, nn

import relpos

from ._functional import _dropout, _join, _masked, _split


class RelativePositionalBias(nn.Module):
    """The learned biases of T5, one for each bucket of offsets and each head.

    Weights  relative_attention_bias.weight (num_buckets, num_heads). A table trained with offsets query - key has the same name and
             shape, but its rows are in another order; load it with from_query_minus_key.
    Sign     the offset is key - query; with bidirectional=False, keys after the query share bucket 0.
    Source   Raffel et al. 2020, section 2.1.
    """

    _version = 2  # in the metadata of a state_dict; relpos 0.1 and other code save 1, and a plain dictionary has no version

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
        """Create a module from a table (num_buckets, num_heads) that was trained with offsets query - key; T5's offsets are key - query.

        The two halves of the buckets are swapped, except bucket 0, which is the query's own key. With bidirectional=False, code with
        query - key uses bucket 0 for every key up to the query, so all rows become row 0; the result is exact under a causal mask.

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
        """Return the biases as an array (1, num_heads, query_length, key_length), for other code. For relpos.attention, use term()."""
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
        """Return (output, position_bias). Pass position_bias to the following layers, which share it. It is a term that contains only the
        table and works for any lengths; an array (1 or B, num_heads, L, Lk) is accepted too. `options`, such as causal or q_offset, are
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
