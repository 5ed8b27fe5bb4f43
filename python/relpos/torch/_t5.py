"""The learned biases of T5, and attention with them.

SPDX-License-Identifier: Apache-2.0"""
import warnings

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

import relpos

from .. import _operator, _terms
from .._hooks import Refusing, hook, replaced
from ._functional import _dropout, _join, _masked, _need_tensors, _split, _unchanged
from ._numbers import need_dropout, need_sizes


class RelativePositionalBias(Refusing, nn.Module):
    """The learned biases of T5, one for each bucket of offsets and each head.

    Weights  relative_attention_bias.weight (num_buckets, num_heads). A table trained with offsets query - key has the
             same name and shape, but its rows are in another order; load it with from_query_minus_key. With
             bidirectional=True, no offset uses row num_buckets / 2. It is zero in a new table, so that the module knows
             its own tables in files of tensors without metadata, such as .safetensors.
    Sign     the offset is key - query; with bidirectional=False, keys after the query share bucket 0.
    Memory   T5Attention and cross_attention_with_bias use term(), which needs no array of all pairs. If forward is
             replaced or has hooks, or relative_attention_bias is not a plain torch.nn.Embedding, they call forward and
             use its array instead.
    Source   Raffel et al. 2020, section 2.1.
    """

    # in the metadata of a state_dict; relpos 0.1 and other code save 1, and a plain dictionary has no version
    _version = 2

    _never_used = {"_relative_position_bucket": "the library computes the buckets. Use relpos.Bucket for other "
                                                "strategies, relpos.Table for a "
                                                "number for each offset, or replace forward(query_length, key_length, "
                                                "device)"}

    def __init__(self, num_heads: int, num_buckets: int = 32, max_distance: int = 128,
                 bidirectional: bool = True) -> None:
        super().__init__()
        need_sizes(num_heads=num_heads, num_buckets=num_buckets)
        # raises for numbers without a meaning
        relpos.bucket(0, buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional)
        self.num_heads, self.num_buckets = num_heads, num_buckets
        self.max_distance, self.bidirectional = max_distance, bidirectional
        self.relative_attention_bias = nn.Embedding(num_buckets, num_heads)
        nn.init.normal_(self.relative_attention_bias.weight, std=0.02)
        if bidirectional:
            nn.init.zeros_(self.relative_attention_bias.weight[num_buckets // 2])

    @classmethod
    def from_query_minus_key(cls, weight: Tensor, max_distance: int = 128,
                             bidirectional: bool = True) -> "RelativePositionalBias":
        """Create a module from a table (num_buckets, num_heads) that was trained with offsets query - key; T5's offsets
        are key - query.

        The two halves of the buckets are swapped, except bucket 0, which is the query's own key, and the unused bucket
        num_buckets / 2, which becomes 0. With bidirectional=False, code with query - key uses bucket 0 for every key up
        to the query, so all rows become row 0; the result is exact under a causal mask.

        >>> table = torch.arange(8.0)[:, None]
        >>> RelativePositionalBias.from_query_minus_key(table).relative_attention_bias.weight.flatten().tolist()
        [0.0, 5.0, 6.0, 7.0, 0.0, 1.0, 2.0, 3.0]
        """
        buckets, heads = weight.shape
        half = buckets // 2
        weight = weight.detach()
        if bidirectional:
            weight = torch.cat([weight[:1], weight[half + 1:], torch.zeros_like(weight[:1]), weight[1:half]])
        else:
            weight = weight[:1].repeat(buckets, 1)
        module = cls(heads, buckets, max_distance, bidirectional).to(weight)
        module.relative_attention_bias.weight = nn.Parameter(weight)
        return module

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args) -> None:
        table = state_dict.get(f"{prefix}relative_attention_bias.weight")
        if table is not None and not self._is_own(table, local_metadata.get("version")):
            warnings.warn(f"{prefix}relative_attention_bias.weight: the state_dict does not show that this version of "
                          "relpos saved it. If it "
                          "comes from code with offsets query - key, as in some tutorials, its table is mirrored here; "
                          "use "
                          "RelativePositionalBias.from_query_minus_key(table). Tables of T5, transformers and relpos "
                          "are right as they are.",
                          stacklevel=2)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    def _is_own(self, table: Tensor, version: int | None) -> bool:
        """Return true unless other code may have saved this table. A dictionary without metadata has no version. In one
        with bidirectional=False, a table of other code has only noise beside row 0, and does little harm."""
        if version is not None and version >= self._version:
            return True
        if not self.bidirectional:
            return version is None
        half = self.num_buckets // 2
        return table.dim() == 2 and len(table) > half and not table[half].any()

    def _check(self) -> None:
        self._refuse(self)
        table = self.relative_attention_bias
        if isinstance(table, nn.Embedding) and table.num_embeddings < self.num_buckets:
            raise ValueError(f"num_buckets is {self.num_buckets}, but relative_attention_bias has "
                             f"{table.num_embeddings} rows")

    def _has_table(self) -> bool:
        """Return true if the biases are the rows of relative_attention_bias.weight."""
        table = self.relative_attention_bias
        return _unchanged(self, RelativePositionalBias) and _unchanged(table, nn.Embedding) and (
            table.padding_idx, table.max_norm, table.scale_grad_by_freq) == (None, None, False)

    @hook
    def term(self) -> relpos.Term:
        """Return the biases as a term for relpos.attention, for any lengths."""
        self._check()
        if not (self._has_table() or replaced(self, "term")):
            raise TypeError(f"{type(self).__name__}: forward or relative_attention_bias is replaced, so its biases are "
                            "not a table; call the "
                            "module, and pass its array as relpos.Dense(array)")
        table = self.relative_attention_bias.weight
        return relpos.T5(table if len(table) == self.num_buckets else table[:self.num_buckets],
                         buckets=self.num_buckets, max_distance=self.max_distance,
                         bidirectional=self.bidirectional)

    @hook
    def forward(self, query_length: int, key_length: int, device: torch.device | None = None) -> Tensor:
        """Return the biases as an array (1, num_heads, query_length, key_length), for other code. For relpos.attention,
        use term()."""
        self._check()
        need_sizes(0, query_length=query_length, key_length=key_length)
        return _array(self.relative_attention_bias, query_length, key_length, buckets=self.num_buckets,
                      max_distance=self.max_distance, bidirectional=self.bidirectional).to(device)


def _array(rows, lq: int, lk: int, q_offset: int = 0, **buckets) -> Tensor:
    """Return the biases (1, H, lq, lk). `rows` returns the rows of the table for given buckets."""
    offsets = range(1 - max(lq, 1) - q_offset, lk - q_offset)
    strip = rows(torch.from_numpy(relpos.bucket(offsets, **buckets))).T
    return strip.unfold(1, lk, 1).flip(1)[None, :, :lq]


class PositionBias(relpos.T5):
    """The biases that T5Attention returns: a term, which also stands for its array (1, H, L, Lk), with a gradient.
    `shape` needs no array; slices, arithmetic with tensors, functions of torch and the other attributes and methods of
    a tensor create it."""

    __slots__ = ("shape", "_q_offset")

    def __reduce__(self):
        return _sized, (_terms._load(self._text, self._arrays), self.shape, self._q_offset)

    def _dense(self) -> Tensor:
        if not isinstance(self._q_offset, int) or self._q_offset < 0:
            raise TypeError(f"q_offset is {self._q_offset!r}, but the array of position_bias needs an integer, 0 or "
                            "more; pass position_bias to the layers as it is")
        table, params = self.arrays["table"], self.params
        return _array(lambda at: table[at], *self.shape[2:], self._q_offset,
                      **{name: params[name] for name in ("buckets", "max_distance", "bidirectional")})

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._dense(), name)

    def __getitem__(self, at):
        return self._dense()[at]

    def __len__(self):
        return self.shape[0]

    def __add__(self, other):
        return self._dense() + other if isinstance(other, (Tensor, int, float)) else super().__add__(other)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        args, kwargs = tree_map(lambda x: x._dense() if isinstance(x, cls) else x, (args, kwargs or {}))
        return function(*args, **kwargs)


for _name in ("__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__pow__", "__matmul__",
              "__neg__", "__abs__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(PositionBias, _name, lambda self, *other, name=_name: getattr(self._dense(), name)(*other))
_terms.register(PositionBias, relpos.T5)


def _sized(term: relpos.T5, shape: tuple, q_offset) -> PositionBias:
    """Return a term as a PositionBias."""
    found = _terms._create(PositionBias, term._text, term._arrays)
    found.shape, found._q_offset = torch.Size(shape), 0 if q_offset is None else q_offset
    return found


_operator.trace_sized(_sized)


def _biases(relative_bias, query: Tensor, key: Tensor, q_offset=None) -> relpos.Term | Tensor:
    """Return the biases of a RelativePositionalBias as a term, or of another module, called as in the tutorial, as an
    array."""
    if isinstance(relative_bias, RelativePositionalBias) and (relative_bias._has_table()
                                                              or replaced(relative_bias, "term")):
        return relative_bias.term()
    q_offset = 0 if q_offset is None else q_offset
    if not isinstance(q_offset, int) or q_offset < 0:
        raise TypeError(f"q_offset is {q_offset!r}, but relative_bias is a module that returns an array, expected an "
                        "integer, 0 or more")
    return relative_bias(q_offset + query.shape[-2], key.shape[-2],
                         device=query.device)[..., q_offset:, :].to(query.dtype)


class T5Attention(nn.Module):
    """Multi-head attention with the biases of T5: softmax(scale Q K^T + bias[bucket(j - i)]) V, projected.

    Shapes   x (B, L, dim); key_value_states (B, Lk, dim), the source of keys and values in cross-attention; or both
             without B.
             mask: bool (True = attend) or numbers to add, broadcasts to (B, num_heads, L, Lk).
    Weights  q_proj, k_proj, v_proj (num_heads head_dim, dim), o_proj (dim, num_heads head_dim), without biases, and
             relative_bias.relative_attention_bias.weight (num_buckets, num_heads).
    Sign     the offset is key - query.
    Memory   relative_bias can be any module that returns biases (1, num_heads, L, Lk) for (L, Lk, device=...), as an
             array of all pairs.
    Source   Raffel et al. 2020. T5 itself does not divide scores by sqrt(D). For the layer of transformers, use scale=1
             and load its weights q, k, v and o as q_proj, k_proj, v_proj and o_proj.

    >>> first, second = T5Attention(16, 2), T5Attention(16, 2, has_relative_bias=False)
    >>> x, position_bias = first(torch.randn(1, 5, 16))
    >>> second(x, position_bias=position_bias)[0].shape
    torch.Size([1, 5, 16])
    """

    def __init__(self, dim: int, num_heads: int, num_buckets: int = 32, max_distance: int = 128,
                 has_relative_bias: bool = True,
                 bidirectional: bool = True, *, head_dim: int | None = None, scale: float | None = None,
                 dropout: float = 0.0) -> None:
        super().__init__()
        need_sizes(dim=dim, num_heads=num_heads)
        self.dim, self.num_heads, self.head_dim = dim, num_heads, dim // num_heads if head_dim is None else head_dim
        need_sizes(head_dim=self.head_dim)
        need_dropout(dropout=dropout)
        self.has_relative_bias, self.scale, self.dropout = has_relative_bias, scale, dropout
        inner = num_heads * self.head_dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, inner, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(inner, dim, bias=False)
        if has_relative_bias:
            self.relative_bias = RelativePositionalBias(num_heads, num_buckets, max_distance, bidirectional)

    def forward(self, x: Tensor, mask: Tensor | None = None, position_bias: relpos.Term | Tensor | None = None, *,
                key_value_states: Tensor | None = None, **options) -> tuple[Tensor, relpos.Term | Tensor | None]:
        """Return (output, position_bias). Pass position_bias to the following layers, which share it. It is a term that
        contains only the table and works for any lengths, and a slice of it or its sum with a tensor is that of the
        array (1, num_heads, L, Lk). An array (1 or B, num_heads, L, Lk) is accepted too. `options`, such as causal or
        q_offset, are passed to relpos.attention."""
        source = x if key_value_states is None else key_value_states
        _need_tensors("relpos.attention", x=x, key_value_states=source)
        alone = x.dim() == 2
        for name, given in (("x", x), ("key_value_states", source)):
            if given.dim() not in (2, 3) or given.dim() != x.dim():
                raise ValueError(f"{name} has shape {tuple(given.shape)}, expected (B, L, dim), or (L, dim) in both "
                                 "for one sequence")
        if alone:
            x, source = x[None], source[None]
        q, k, v = (_split(x, self.num_heads, self.head_dim)
                   for x in (self.q_proj(x), self.k_proj(source), self.v_proj(source)))
        if position_bias is None and self.has_relative_bias:
            position_bias = _biases(self.relative_bias, q, k, options.get("q_offset"))
            if not (isinstance(position_bias, Tensor) or replaced(self.relative_bias, "term")):
                shape = (1, self.num_heads, q.shape[2], k.shape[2])
                position_bias = _sized(position_bias, shape, options.get("q_offset"))
        out = relpos.attention(q, k, v, scale=self.scale, **_masked(mask, position_bias),
                               **_dropout(self, self.dropout),
                               **options)
        out = self.o_proj(_join(out)[0] if alone else _join(out))
        if out.shape[-1] != self.dim:
            raise ValueError(f"dim is {self.dim}, but o_proj gives {out.shape[-1]} numbers a token")
        return out, position_bias


def cross_attention_with_bias(query: Tensor, key: Tensor, value: Tensor, relative_bias: RelativePositionalBias,
                              mask: Tensor | None = None) -> Tensor:
    """Compute softmax(query key^T / sqrt(head_dim) + bias + mask) value for tensors or arrays (B, num_heads, L,
    head_dim) of any lengths.

    >>> q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 7, 8)
    >>> cross_attention_with_bias(q, k, k, RelativePositionalBias(2)).shape
    torch.Size([1, 2, 3, 8])
    """
    query, key, value = map(torch.as_tensor, (query, key, value))
    bias = _biases(relative_bias, query, key)
    return relpos.attention(query, key, value, **_masked(None if mask is None else torch.as_tensor(mask), bias))
