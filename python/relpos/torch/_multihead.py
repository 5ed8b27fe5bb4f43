"""Modules like torch.nn.MultiheadAttention, with relative positions.

SPDX-License-Identifier: Apache-2.0"""
import math
import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import relpos

from .. import _operator, _terms, _torch
from .._hooks import Refusing, hook, replaced
from ..numpy import first_rows, vector_terms
from ._functional import _added, _attend, _causal, _dropout, _is_bool, _join, _masked, _split, _unchanged
from ._numbers import need_dropout, need_heads, need_sizes
from ._textbook import RelativePositionEmbedding, WithVectors, stack_like


def _multihead(module, q: Tensor, k: Tensor, v: Tensor, masks: dict, bias=None,
               **options) -> tuple[Tensor, Tensor | None]:
    """Return (out, weights) for projected q, k and v (B, L, H D). `masks` are the other arguments of
    torch.nn.MultiheadAttention."""
    attn_mask, key_padding_mask = masks["attn_mask"], masks["key_padding_mask"]
    q, k, v = (_split(x, module.num_heads) for x in (q, k, v))
    if attn_mask is not None:
        _is_bool("attn_mask", attn_mask, attend=False)
        attn_mask = _four_axes(attn_mask, *q.shape[:3], k.shape[2])
    if key_padding_mask is not None:
        if _is_bool("key_padding_mask", key_padding_mask, attend=False):
            options["key_mask"] = ~key_padding_mask
        else:
            bias = _added(bias, key_padding_mask[:, None, None])
    options |= {**_causal(masks["is_causal"]), **_masked(attn_mask, bias, attend=False, name="attn_mask"),
                **_dropout(module, module.dropout)}
    out, weights = _attend(q, k, v, masks["need_weights"], options)
    return _join(out), weights.mean(1) if weights is not None and masks["average_attn_weights"] else weights


def _four_axes(mask: Tensor, batch: int, heads: int, lq: int, lk: int) -> Tensor:
    """Reshape an attn_mask of torch.nn.MultiheadAttention, in which any axis may be 1, to a mask that broadcasts to (B,
    H, Lq, Lk)."""
    front = mask.shape[0] if mask.dim() == 3 else 1
    if (mask.dim() in (2, 3) and mask.shape[-2] in (1, lq) and mask.shape[-1] in (1, lk)
            and front in (1, batch, batch * heads)):
        mask = mask.expand(*mask.shape[:-2], lq, lk)
        if mask.dim() == 2:
            return mask
        return mask[:, None] if front in (1, batch) else mask.unflatten(0, (batch, heads))
    raise ValueError(
        f"attn_mask has shape {tuple(mask.shape)}, expected (Lq, Lk), (B, Lq, Lk) or (B num_heads, Lq, Lk), here "
        f"({lq}, {lk}), ({batch}, {lq}, {lk}) or ({batch * heads}, {lq}, {lk})")


def _bool_masks(**masks) -> None:
    """Raise for masks of positions that are not bool."""
    for name, mask in masks.items():
        if mask is not None and not (isinstance(mask, Tensor) and mask.dtype == torch.bool):
            kind = str(mask.dtype).removeprefix("torch.") if isinstance(mask, Tensor) else type(mask).__name__
            raise TypeError(f"{name} is of type {kind}, expected a bool tensor (False = no position)")


def _known(positions: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Replace infinite positions by 2^53, the largest allowed position, and positions whose mask is False by 0. Uses
    float64, since float16 cannot represent 2^53."""
    if positions is None or not positions.is_floating_point():
        return positions
    far = torch.nan_to_num(positions.double(), nan=torch.nan, posinf=2.0**53, neginf=-2.0**53)
    return far if mask is None else far.masked_fill(~mask, 0)


def _at(x: Tensor, positions: Tensor | None, mask: Tensor | None) -> Tensor:
    """Return the positions of the tokens of x, by default their indices. Positions whose mask is False are 0."""
    if positions is None:
        return torch.arange(x.shape[1], device=x.device)
    return positions if mask is None else positions.masked_fill(~mask, 0)


def _rounds(q_positions: Tensor, k_positions: Tensor) -> bool:
    """Return true if differences of positions computed in their own type (the wider of the two) may differ from those
    in float64. They are equal if all finite positions are multiples of a step whose multiples, up to twice the largest
    position, are exact in that type."""
    dtype = torch.promote_types(q_positions.dtype, k_positions.dtype)
    if not dtype.is_floating_point or dtype == torch.float64:
        return False
    if (torch.compiler.is_compiling() or torch.jit.is_tracing() or _torch._modes()
            or torch._C._functorch.maybe_current_level() is not None):
        return True  # a traced graph cannot branch on values
    positions = torch.cat([x.to(dtype).double().flatten() for x in (q_positions, k_positions)])
    if positions.isnan().any():
        return False  # the term raises for NaN
    finite = positions[positions.isfinite()]
    largest = finite.abs().max().item() if len(finite) else 0.0
    steps = finite / (torch.finfo(dtype).eps * 2.0 ** math.frexp(largest)[1])
    return bool((steps != steps.round()).any())


_SYMM_LEARNING = "symm_learning.nn.activation"


class _InProjection(Tensor):
    """Stands for in_proj_weight of torch.nn.MultiheadAttention. torch.nn.TransformerEncoder makes a nested tensor of
    its input unless one of the weights overrides __torch_function__. Any use of this one raises."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise AttributeError(
            "in_proj_weight: the layers of relpos.torch keep it in q_proj, k_proj and v_proj, or in attn; use those")


_IN_PROJECTION = torch.empty(0).as_subclass(_InProjection)


class _WithPositions(Refusing, nn.Module):
    """Base class of the modules whose forward has the arguments of torch.nn.MultiheadAttention and of symm_learning's
    PositionalAttentionBase. They work in torch's TransformerEncoderLayer and TransformerDecoderLayer. If symm_learning
    is loaded, they count as subclasses of its class, so that its layers pass them positions. Subclasses define _compute
    and _of_torch."""

    # torch.nn.TransformerEncoderLayer takes a fast path, which would ignore the positions, unless these two say that it
    # cannot.
    _qkv_same_embed_dim, in_proj_bias = False, None
    in_proj_weight = property(lambda self: _IN_PROJECTION)
    add_zero_attn, bias_k, bias_v = False, None, None

    def __init__(self, embed_dim: int, num_heads: int, dropout: float, add_bias_kv: bool, add_zero_attn: bool,
                 kdim: int | None, vdim: int | None, batch_first: bool) -> None:
        super().__init__()
        need_heads(embed_dim, num_heads)
        need_dropout(dropout=dropout)
        if _SYMM_LEARNING in sys.modules:
            _register(sys.modules[_SYMM_LEARNING])
        for name, value in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
            if value is not False:
                raise ValueError(
                    f"{name} is {value!r}, expected False: a key without a position is not supported; leave it out")
        for name, value in (("kdim", kdim), ("vdim", vdim)):
            if value not in (None, embed_dim):
                raise ValueError(
                    f"{name} is {value!r}, expected None or embed_dim, {embed_dim}; project the input to embed_dim "
                    "before the layer"
                )
        if not isinstance(batch_first, bool):
            raise TypeError(f"batch_first is {batch_first!r}, expected True or False")
        self.embed_dim = self.kdim = self.vdim = embed_dim
        self.num_heads, self.batch_first = num_heads, batch_first

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
                need_weights: bool = False, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False, *, q_positions: Tensor | None = None, k_positions: Tensor | None = None,
                q_position_mask: Tensor | None = None,
                k_position_mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return (output, weights or None). Arguments before the positions are those of torch.nn.MultiheadAttention,
        except that need_weights is False by default. Shapes are as in AdditiveRelMultiheadAttention. is_causal masks
        later keys by index, with or without attn_mask, and ignores positions."""
        self._refuse(self)
        _bool_masks(q_position_mask=q_position_mask, k_position_mask=k_position_mask)
        inputs = query, key, value
        for name, x in zip(("query", "key", "value"), inputs):
            if x.is_nested:
                raise TypeError(f"{name} is a nested tensor; pass a padded tensor and key_padding_mask")
            if x.dim() not in (2, 3) or x.dim() != query.dim():
                raise ValueError(
                    f"{name} has shape {tuple(x.shape)}, expected three axes, or two in query, key and value for "
                    "one sequence"
                )
        for name, x in (("q_positions", q_positions), ("k_positions", k_positions)):
            if _terms.wants_gradient(x):
                raise TypeError(f"{name} {_torch.NOT_LEARNED}")
        alone = query.dim() == 2
        if alone:
            inputs = [x[None] for x in inputs]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            inputs = [x.transpose(0, 1) for x in inputs]
        masks = {"key_padding_mask": key_padding_mask, "need_weights": need_weights, "attn_mask": attn_mask,
                 "average_attn_weights": average_attn_weights, "is_causal": is_causal}
        out, weights = self._compute(*inputs, masks, q_positions, k_positions, q_position_mask, k_position_mask)
        if alone:
            return out[0], None if weights is None else weights[0]
        return out if self.batch_first else out.transpose(0, 1), weights

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        """Accept a state dict of torch.nn.MultiheadAttention too. Parameters that it has not, those of the positions,
        keep their values."""
        found = {
            name: state_dict.pop(f"{prefix}in_proj_{name}")
            for name in ("weight", "bias") if f"{prefix}in_proj_{name}" in state_dict
        }
        if found:
            state_dict |= {prefix + name: x for name, x in self._of_torch(found, state_dict, prefix).items()}
            for name, parameter in self.named_parameters():
                if name.partition(".")[0] not in ("attn", "q_proj", "k_proj", "v_proj", "out_proj"):
                    state_dict.setdefault(prefix + name, parameter.detach())
        super()._load_from_state_dict(state_dict, prefix, *args)


def _register(activation) -> None:
    base = getattr(activation, "PositionalAttentionBase", None)
    if base is not None:
        base.register(_WithPositions)


_operator._after(_SYMM_LEARNING, _register)

_NOT_CALLED = dict.fromkeys(("_positions_or_arange", "_normalize_positions", "_positions_are_shared_across_batch"),
                            "convert the positions before you pass them, or replace another method")


class _Wrapping(_WithPositions):
    """Base class of the layers that keep the projections in `attn`, a torch.nn.MultiheadAttention, as in
    symm_learning."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = True, device=None, dtype=None) -> None:
        super().__init__(embed_dim, num_heads, dropout, add_bias_kv, add_zero_attn, kdim, vdim, batch_first)
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, dropout, bias, batch_first=True, device=device,
                                          dtype=dtype)

    out_proj = property(lambda self: self.attn.out_proj)

    def reset_parameters(self) -> None:
        """Initialize the projections as torch.nn.MultiheadAttention does."""
        self.attn.out_proj.reset_parameters()
        self.attn._reset_parameters()

    def _of_torch(self, found, state_dict, prefix) -> dict:
        outer = [name for name in ("out_proj.weight", "out_proj.bias") if prefix + name in state_dict]
        inner = {f"attn.in_proj_{name}": x for name, x in found.items()}
        return inner | {f"attn.{name}": state_dict.pop(prefix + name) for name in outer}

    def _attended(self, query: Tensor, key: Tensor, value: Tensor, masks: dict,
                  bias=None) -> tuple[Tensor, Tensor | None]:
        """Return (output, weights), computed by relpos with the parameters of attn, or by attn if it is another module
        or has hooks."""
        attn = self.attn
        if not _unchanged(attn, nn.MultiheadAttention):
            given = {name: x for name, x in masks.items() if name != "average_attn_weights" or not x}
            given |= {
                "attn_mask": _one_mask(masks["attn_mask"], masks["is_causal"], bias, query, key), "is_causal": False
            }
            return attn(query, key, value, **given)
        if self.num_heads != attn.num_heads:
            raise ValueError(f"num_heads is {self.num_heads}, but attn.num_heads is {attn.num_heads}; set both")
        biases = (None,) * 3 if attn.in_proj_bias is None else attn.in_proj_bias.chunk(3)
        q, k, v = map(F.linear, (query, key, value), attn.in_proj_weight.chunk(3), biases)
        out, weights = _multihead(attn, q, k, v, masks, bias=bias)
        return attn.out_proj(out), weights


class AdditiveRelMultiheadAttention(_Wrapping):
    """torch.nn.MultiheadAttention that subtracts a learned function of the difference of two positions from the logits:
    A[i, j] = <q_i, k_j> / sqrt(d_h) - rel_bias[trunc(clamp(P_Q[i] - P_K[j], -m, m)) + m], m = max_distance.

    Shapes   query (B, Lq, embed_dim), key and value (B, Lk, embed_dim), or all three without B; with batch_first=False,
             torch's default, (Lq, B, embed_dim) and (Lk, B, embed_dim). q_positions (Lq) or (B, Lq), k_positions (Lk)
             or (B, Lk), integer or real; infinite positions are far from all others. Position masks have the same
             shapes: False = the token has no position (the given one may be NaN), so its pairs attend without a bias.
             attn_mask (Lq, Lk), (B, Lq, Lk) or (B num_heads, Lq, Lk), where any axis may be 1, and key_padding_mask (B,
             Lk) are as in torch: bool, True = masked, or numbers to add. Returns an output of the shape of query and,
             with need_weights, the weights (B, Lq, Lk) after dropout, averaged over heads unless
             average_attn_weights=False.
    Weights  rel_bias (2 max_distance + 1,), shared by the heads, initially zero; attn.in_proj_weight,
             attn.in_proj_bias, attn.out_proj.weight, attn.out_proj.bias.
    Sign     query - key, and the bias is subtracted. A row with all keys masked gives the output projection's bias, not
             NaN.
    Memory   differences of positions are rounded to the type of the positions, as in symm_learning. If this changes a
             difference, as with decimal fractions in float32, the biases are stored as an array of Lq Lk numbers; a
             compiled module does so for every type narrower than float64. Otherwise, for example with
             positions.double(), memory grows linearly with the length. If _relative_bias_values or _relative_bias is
             replaced, its array of all pairs is used. If attn is a module of another class or has hooks, it is called
             with that array as its mask.
    Source   symm_learning.
    """

    _never_used = _NOT_CALLED

    def __init__(self, embed_dim: int, num_heads: int, *parameters, max_distance: int, **options) -> None:
        need_sizes(0, max_distance=max_distance)
        super().__init__(embed_dim, num_heads, *parameters, **options)
        self.max_distance = max_distance
        self.rel_bias = nn.Parameter(self.attn.in_proj_weight.new_zeros(2 * max_distance + 1))

    def reset_parameters(self) -> None:
        """Initialize as torch.nn.MultiheadAttention does, and set the bias to zero."""
        super().reset_parameters()
        nn.init.zeros_(self.rel_bias)

    def _compute(self, query: Tensor, key: Tensor, value: Tensor, masks: dict,
                 *positions: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return self._attended(query, key, value, masks, self._term(query, key, *positions))

    def _term(self, query: Tensor, key: Tensor, q_positions: Tensor | None, k_positions: Tensor | None,
              q_position_mask: Tensor | None, k_position_mask: Tensor | None) -> relpos.Term | None:
        """Return the bias, which is a Dense term if it cannot be a Real term."""
        at_q, at_k = _at(query, q_positions, q_position_mask), _at(key, k_positions, k_position_mask)
        masks = q_position_mask, k_position_mask
        if (replaced(self, "_relative_bias", "_relative_bias_values")
                or not _unchanged(self.attn, nn.MultiheadAttention)):
            batch, lq, lk = len(query), query.shape[1], key.shape[1]
            bias = self._relative_bias(at_q, at_k, *masks, batch_size=batch, tgt_len=lq, src_len=lk,
                                       target_dtype=query.dtype)
            if bias is None:
                return None
            return relpos.Dense(-bias if bias.dim() == 2 else -bias.unflatten(0, (batch, self.num_heads)))
        if (q_positions is not None or k_positions is not None) and _rounds(at_q, at_k):
            bias = self._pairs(at_q, at_k, *masks)
            return relpos.Dense(-bias if bias.dim() == 2 else -bias[:, None])
        table = first_rows("rel_bias", self.rel_bias, 2 * self.max_distance + 1, f"max_distance is {self.max_distance}")
        return relpos.Real(table[None], max_distance=self.max_distance,
                           q_positions=_known(q_positions, q_position_mask),
                           k_positions=_known(k_positions, k_position_mask), q_position_mask=q_position_mask,
                           k_position_mask=k_position_mask)

    @hook
    def _relative_bias_values(self, rel_positions: Tensor) -> Tensor:
        """Return the numbers that are subtracted from the scores of pairs, for their differences q_positions -
        k_positions."""
        at = rel_positions.double().nan_to_num(0.0).clamp(-self.max_distance, self.max_distance).long()
        return torch.where(rel_positions.isnan(), torch.nan, self.rel_bias[at + self.max_distance])

    def _pairs(self, q_positions: Tensor, k_positions: Tensor, q_position_mask: Tensor | None,
               k_position_mask: Tensor | None) -> Tensor:
        """Return _relative_bias_values for all pairs, (Lq, Lk) or (B, Lq, Lk). Differences are computed in the type of
        the positions. Pairs with a token whose mask is False have 0."""
        p, k = q_positions[..., :, None], k_positions[..., None, :]
        bias = self._relative_bias_values(torch.where(p == k, 0, p - k))  # equal infinite positions have difference 0
        for mask, at in ((q_position_mask, -1), (k_position_mask, -2)):
            if mask is not None:
                bias = torch.where(mask.unsqueeze(at), bias, 0)
        return bias

    @hook
    def _relative_bias(self, q_positions: Tensor, k_positions: Tensor, q_position_mask: Tensor | None,
                       k_position_mask: Tensor | None, *, batch_size: int, tgt_len: int, src_len: int,
                       target_dtype: torch.dtype) -> Tensor | None:
        """Return the bias that is subtracted from the scores, (Lq, Lk) or (B num_heads, Lq, Lk), or None."""
        bias = self._pairs(q_positions, k_positions, q_position_mask, k_position_mask).to(target_dtype)
        if bias.dim() == 2:
            return bias
        return bias.expand(batch_size, tgt_len, src_len).repeat_interleave(self.num_heads, 0)


class AdditivePosMultiheadAttention(_Wrapping):
    """torch.nn.MultiheadAttention that adds a learned vector for each position to queries and keys, but not to values:
    q' = query + pos_emb[P_Q], k' = key + pos_emb[P_K].

    Shapes   as in AdditiveRelMultiheadAttention. Positions are finite, 0 to max_len - 1; fractions are rounded down.
             Position masks: False = add no vector.
    Weights  pos_emb (max_len, embed_dim), initially zero; attn.in_proj_weight, attn.in_proj_bias, attn.out_proj.weight,
             attn.out_proj.bias.
    Errors   IndexError if a position is outside the table.
    Source   symm_learning; the absolute positions of Vaswani et al. 2017, learned, and added in every layer.
    """

    _never_used = _NOT_CALLED

    def __init__(self, embed_dim: int, num_heads: int, *parameters, max_len: int, **options) -> None:
        need_sizes(max_len=max_len)
        super().__init__(embed_dim, num_heads, *parameters, **options)
        self.max_len = max_len
        self.pos_emb = nn.Parameter(self.attn.in_proj_weight.new_zeros(max_len, embed_dim))

    def reset_parameters(self) -> None:
        """Initialize as torch.nn.MultiheadAttention does, and set the vectors to zero."""
        super().reset_parameters()
        nn.init.zeros_(self.pos_emb)

    @hook
    def _position_update(self, x: Tensor, positions: Tensor | None, position_mask: Tensor | None) -> Tensor:
        """Return the vectors that are added to x."""
        return self._vectors("", x, positions, position_mask)

    def _vectors(self, side: str, x: Tensor, positions: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return the vectors of the positions of one side, "q_" or "k_"."""
        if side and replaced(self, "_position_update"):
            return self._position_update(x, positions, mask)
        at = _at(x, positions, mask)
        try:
            added = F.embedding(at.floor().long(), self.pos_emb)
        except IndexError:
            raise IndexError(
                f"{side}positions has {at.min().item():g} to {at.max().item():g}, expected 0 to "
                f"{len(self.pos_emb) - 1}, finite; use a larger max_len, or a position mask to skip tokens") from None
        return added if mask is None else added * mask[..., None]

    def _compute(self, query: Tensor, key: Tensor, value: Tensor, masks: dict, q_positions: Tensor | None,
                 k_positions: Tensor | None, q_position_mask: Tensor | None,
                 k_position_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        q = query + self._vectors("q_", query, q_positions, q_position_mask)
        k = key + self._vectors("k_", key, k_positions, k_position_mask)
        return self._attended(q, k, value, masks)


def _one_mask(attn_mask: Tensor | None, is_causal: bool, bias: relpos.Term | None, query: Tensor,
              key: Tensor) -> Tensor | None:
    """Return an attn_mask, is_causal and a Dense term as one attn_mask of numbers, (Lq, Lk) or (B num_heads, Lq,
    Lk)."""
    masks = []
    if bias is not None:
        array = bias.arrays["bias"]
        masks.append(array if array.dim() == 2 else array.flatten(0, 1))
    if is_causal:
        masks.append(torch.ones(query.shape[1], key.shape[1], dtype=torch.bool).triu(1))
    if attn_mask is not None:
        masks.append(attn_mask)
    masks = [
        x.new_zeros(x.shape, dtype=query.dtype).masked_fill(x, -math.inf) if x.dtype == torch.bool else x for x in masks
    ]
    return sum(masks) if masks else None


class _MultiheadAttention(_WithPositions):
    """Base class of the multi-head layers below: it has the projections, the masks, and the averaging of weights over
    heads."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = True, device=None, dtype=None) -> None:
        super().__init__(embed_dim, num_heads, dropout, add_bias_kv, add_zero_attn, kdim, vdim, batch_first)
        self.head_dim, self.dropout = embed_dim // num_heads, dropout
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype) for _ in range(4))

    def reset_parameters(self) -> None:
        """Draw the weights of the projections from the Xavier uniform distribution, and set their biases to zero.
        Subclasses also initialize their own parameters."""
        for linear in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def terms(self, **positions) -> dict:
        """Return the terms as arguments of relpos.attention, in a dictionary."""
        raise NotImplementedError

    def _positioned(self, q: Tensor, k: Tensor, positions: dict) -> tuple[Tensor, Tensor, dict]:
        """Return projected queries and keys (B, L, H D), and the terms as arguments of relpos.attention."""
        return q, k, self.terms(**positions)

    def _positions(self, side: str, x: Tensor, positions: Tensor | None, mask: Tensor | None) -> dict:
        """Return the arguments of terms() for the positions of one side, "q" or "k"."""
        found = {f"{side}_positions": _known(positions, mask)}
        return found if mask is None else found | {f"{side}_position_mask": mask}

    def _compute(self, query: Tensor, key: Tensor, value: Tensor, masks: dict, q_positions: Tensor | None,
                 k_positions: Tensor | None, q_position_mask: Tensor | None,
                 k_position_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        positions = self._positions("q", query, q_positions, q_position_mask) | self._positions(
            "k", key, k_positions, k_position_mask)
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        if not q.shape[-1] == self.embed_dim == self.num_heads * self.head_dim:
            raise ValueError(
                f"embed_dim is {self.embed_dim}, num_heads {self.num_heads} and head_dim {self.head_dim}, but "
                f"q_proj gives {q.shape[-1]} numbers a token; make them match")
        q, k, terms = self._positioned(q, k, positions)
        out, weights = _multihead(self, q, k, v, masks, **terms)
        return self.out_proj(out), weights

    def _of_torch(self, found, state_dict, prefix) -> dict:
        return {f"{side}_proj.{name}": part for name, x in found.items() for side, part in zip("qkv", x.chunk(3))}


class ClippedBiasMultiheadAttention(_MultiheadAttention):
    """Multi-head attention with a bias for each clipped offset and head:
    A[i, j] = <q_i, k_j> / sqrt(d) + relative_bias[h, trunc(clamp(P_Q[i] - P_K[j], -R, R)) + R], R = max_distance,
    d = head_dim.

    Shapes   as in AdditiveRelMultiheadAttention, including infinite positions and position masks.
    Weights  relative_bias (num_heads, 2 max_distance + 1), or (2 max_distance + 1,) with shared=True, initially zero;
             q_proj, k_proj, v_proj and out_proj.
    Sign     query - key.
    Source   Shaw, Uszkoreit, Vaswani 2018 for the clipping.
    """

    def __init__(self, embed_dim: int, num_heads: int, *parameters, max_distance: int, shared: bool = False,
                 **options) -> None:
        need_sizes(0, max_distance=max_distance)
        super().__init__(embed_dim, num_heads, *parameters, **options)
        self.max_distance = max_distance
        shape = (2 * max_distance + 1,) if shared else (num_heads, 2 * max_distance + 1)
        self.relative_bias = nn.Parameter(self.q_proj.weight.new_zeros(shape))

    def reset_parameters(self) -> None:
        """Initialize the projections, and set the bias to zero."""
        super().reset_parameters()
        nn.init.zeros_(self.relative_bias)

    def terms(self, **positions) -> dict:
        """Return the argument `bias` of relpos.attention, as a dictionary: a Real term if there are position masks,
        otherwise a Table term, which is faster. Table uses offsets key - query, so its table is reversed."""
        table = self.relative_bias if self.relative_bias.dim() == 2 else self.relative_bias[None]
        if any(name.endswith("mask") for name in positions):
            return {"bias": relpos.Real(table, max_distance=self.max_distance, sign=1, **positions)}
        return {"bias": relpos.Table(table.flip(-1), left=self.max_distance, right=self.max_distance, **positions)}


class ShawMultiheadAttention(WithVectors, _MultiheadAttention):
    """Multi-head attention with vectors for keys and values at each clipped offset, as in RelativeSelfAttention.

    Shapes   as in AdditiveRelMultiheadAttention, including infinite positions and position masks: False = no vectors
             for keys or values.
    Weights  rel_embed.a_K and rel_embed.a_V (2 max_distance + 1, head_dim), shared by the heads; q_proj, k_proj,
             v_proj, out_proj.
    Sign     key - query.
    Source   Shaw, Uszkoreit, Vaswani 2018, equations 3 and 4.
    """

    def __init__(self, embed_dim: int, num_heads: int, *parameters, max_distance: int, **options) -> None:
        super().__init__(embed_dim, num_heads, *parameters, **options)
        self.rel_embed = RelativePositionEmbedding(max_distance, self.head_dim, self.head_dim)
        self.rel_embed.to(self.q_proj.weight)

    def reset_parameters(self) -> None:
        """Initialize the projections, and draw new vectors."""
        super().reset_parameters()
        if hasattr(self.rel_embed, "reset_parameters"):
            self.rel_embed.reset_parameters()

    def terms(self, **positions) -> dict:
        """Return the vectors as arguments of relpos.attention, in a dictionary."""
        return vector_terms(self.rel_embed, **positions)

    def _positioned(self, q: Tensor, k: Tensor, positions: dict) -> tuple[Tensor, Tensor, dict]:
        """Call get_key_embedding and get_value_embedding for each offset that may occur, if they are replaced."""
        if not replaced(self.rel_embed, "get_key_embedding", "get_value_embedding"):
            return super()._positioned(q, k, positions)
        (low_q, high_q), (low_k, high_k) = (
            (0, x.shape[1] - 1) if at is None else (at.min().item(), at.max().item())
            for x, at in ((q, positions["q_positions"]), (k, positions["k_positions"])))
        reach = max(high_q - low_k, high_k - low_q, 0)
        if reach > _MAX_REACH:
            raise ValueError(f"positions differ by up to {reach:g}, and {type(self.rel_embed).__name__} is called for "
                             f"each offset, up to {_MAX_REACH}; use a RelativePositionEmbedding of relpos.torch")
        lengths = (int(reach) + 1,) * 2
        return q, k, vector_terms(self.rel_embed, lengths, stack_like(q), **positions)


_MAX_REACH = 2**16


class RoPEMultiheadAttention(_MultiheadAttention):
    """Multi-head attention that rotates queries and keys by their positions: channels (2c, 2c + 1) of a token at
    position p by the angle p / rope_base^(2c / head_dim).

    Shapes   as in AdditiveRelMultiheadAttention, but with finite positions. Position masks: False = not rotated.
             layout="half" pairs channel c with c + head_dim / 2 instead; rotary_emb is None then.
             rotary_emb is a RotaryEmbedding. If it is replaced or changed, its apply_rope rotates.
    Weights  q_proj, k_proj, v_proj, out_proj.
    Sign     scores depend only on key - query.
    Errors   ValueError if a position is not finite.
    Source   Su et al. 2021, equation 15; layout and names as in symm_learning.
    """

    _never_used = {
        **_NOT_CALLED, **dict.fromkeys(("_split_heads", "_merge_heads", "_merge_masks", "_attention_with_weights"),
                        "replace forward, and call relpos.attention there")
    }

    def __init__(self, embed_dim: int, num_heads: int, *parameters, rope_base: float = 10000.0,
                 layout: str = "interleaved", **options) -> None:
        if len(parameters) > 2 and not isinstance(parameters[2], bool):
            raise TypeError(
                f"the fifth argument is {parameters[2]!r}, expected add_bias_kv of torch.nn.MultiheadAttention; pass "
                "rope_base by name")
        super().__init__(embed_dim, num_heads, *parameters, **options)
        self.layout, self.rotary_emb = layout, None
        self.rope_base = rope_base

    @property
    def rope_base(self) -> float:
        """The base of the frequencies. A new one creates a new rotary_emb."""
        return self._rope_base

    @rope_base.setter
    def rope_base(self, base: float) -> None:
        self._rope_base = base
        if self.layout == "interleaved":
            self.rotary_emb = RotaryEmbedding(self.head_dim, base, device=self.q_proj.weight.device)

    def _rotates_by_base(self) -> bool:
        """Return true if rotary_emb rotates as the term does."""
        rotary = self.rotary_emb
        if rotary is None:
            return True
        if not _unchanged(rotary, RotaryEmbedding) or replaced(rotary, "apply_rope"):
            return False
        found = rotary.inv_freq
        if torch.compiler.is_compiling() or found.is_meta:
            return rotary.base == self.rope_base
        want = _frequencies(self.head_dim, self.rope_base, device=found.device, dtype=torch.float64)
        rounded = (want.float().to(dtype).double() for dtype in (torch.float32, torch.bfloat16, torch.float16))
        return found.shape == want.shape and any(torch.allclose(found.double(), x, rtol=4e-6, atol=0) for x in rounded)

    def _positioned(self, q: Tensor, k: Tensor, positions: dict) -> tuple[Tensor, Tensor, dict]:
        if self._rotates_by_base():
            return super()._positioned(q, k, positions)
        q, k = (_join(self.rotary_emb.apply_rope(_split(x, self.num_heads), _at(x, positions[name], None)))
                for x, name in ((q, "q_positions"), (k, "k_positions")))
        return q, k, {}

    def _positions(self, side: str, x: Tensor, positions: Tensor | None, mask: Tensor | None) -> dict:
        """Return the positions of one side. Tokens without a position get 0, which means no rotation."""
        if mask is not None:
            positions = torch.arange(x.shape[1], device=x.device) if positions is None else positions
            positions = positions.masked_fill(~mask, 0)
        return {f"{side}_positions": positions}

    def terms(self, **positions) -> dict:
        """Return the argument `rope` of relpos.attention, as a dictionary."""
        return {"rope": relpos.RoPE(base=self.rope_base, layout=self.layout, **positions)}


def _frequencies(dim: int, base: float, **options) -> Tensor:
    """Return the angle of each pair of channels at position 1."""
    return base**(-torch.arange(0, dim, 2, **options) / dim)


class RotaryEmbedding(nn.Module):
    """The cosines and sines of RoPE for given positions, and the rotation of vectors, for your own attention code.
    RoPEMultiheadAttention has one as rotary_emb, but relpos.attention rotates unless it is changed.

    Shapes   positions (P) or (B, P), integer or real; cosines and sines (..., P, dim/2). apply_rope: x (B, H, P, dim).
    Layout   channels 2c and 2c + 1 form a pair, which is rotated by p / base^(2c / dim).
    Errors   ValueError if dim is not even and positive, or if x has another width.
    Source   Su et al. 2021, equation 15; names as in symm_learning.
    """

    def __init__(self, dim: int, base: float = 10000.0, device=None, dtype=None) -> None:
        super().__init__()
        need_sizes(2, dim=dim)
        if dim % 2:
            raise ValueError(f"dim is {dim}, expected an even number")
        self.dim, self.base = dim, base
        self.register_buffer("inv_freq", _frequencies(dim, base, device=device, dtype=dtype), persistent=False)

    @hook
    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return (cosines, sines)."""
        angles = positions[..., None] * self.inv_freq
        return angles.cos(), angles.sin()

    @hook
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
    """Multi-head attention with a penalty that grows with the distance: A[i, j] = <q_i, k_j> / sqrt(d) - m_h |i - j|, d
    = head_dim. If num_heads is a power of two, the slopes are m_h = 2^(-8 h / num_heads), h = 1, 2, ...; otherwise they
    follow the rule of the authors' published code.

    Shapes   as in AdditiveRelMultiheadAttention, including infinite positions and position masks. An infinitely far key
             has weight 0 if another key is at a finite distance; a query infinitely far from all keys weights them
             equally.
    Weights  q_proj, k_proj, v_proj, out_proj.
    Sign     the penalty is symmetric. The paper's attention is causal: pass is_causal=True.
    Source   Press, Smith, Lewis 2022, section 3.
    """

    def terms(self, **positions) -> dict:
        """Return the argument `bias` of relpos.attention, as a dictionary."""
        return {"bias": relpos.ALiBi(**positions)}
