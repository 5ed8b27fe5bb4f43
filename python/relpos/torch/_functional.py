"""scaled_dot_product_attention, and functions that the modules of relpos.torch share.

SPDX-License-Identifier: Apache-2.0"""
import torch
from torch import Tensor, nn

import relpos

from .. import _hooks, _operator  # the import registers relpos.attention as a torch operator, for traced calls


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False, **options) -> Tensor:
    """Compute relpos.attention with the arguments of torch.nn.functional.scaled_dot_product_attention. `options` are
    further arguments of relpos.attention, such as bias.

    Shapes   query (B, H, L, E), key (B, Hk, S, E), value (B, Hk, S, Ev); all three may omit B, or B and H. attn_mask
             broadcasts to (B, H, L, S): bool, True = attends, or numbers to add. Hk < H requires enable_gqa=True.
    Sign     is_causal aligns query 0 with key 0, as in torch, unless q_offset is given.
    Edges    unlike in torch, a query without keys gives zeros, and is_causal can be combined with attn_mask.
    Dropout  torch.manual_seed determines which weights dropout_p drops.

    >>> q, k = torch.randn(2, 4, 5, 16), torch.randn(2, 4, 7, 16)
    >>> want = nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True)
    >>> torch.allclose(scaled_dot_product_attention(q, k, k, is_causal=True), want, atol=1e-6)
    True
    >>> scaled_dot_product_attention(q, k, k, bias=relpos.ALiBi()).shape
    torch.Size([2, 4, 5, 16])
    """
    _need_tensors("relpos.attention", query=query, key=key, value=value)
    if query.dim() > 2 and key.shape[-3] != query.shape[-3] and not enable_gqa:
        raise ValueError(f"key has {key.shape[-3]} heads and query has {query.shape[-3]}; pass enable_gqa=True")
    options |= _masked(attn_mask, options.pop("bias", None), name="attn_mask")
    return relpos.attention(query, key, value, dropout=dropout_p, scale=scale, **_causal(is_causal) | options)


# ---------------------------------------------------------------------------------------------- shared functions

def _split(x: Tensor, heads: int, head_dim: int = -1) -> Tensor:
    """Reshape (B, L, H D) to (B, H, L, D)."""
    if head_dim != -1 and x.shape[-1] != heads * head_dim:
        raise ValueError(
            f"num_heads is {heads} and head_dim is {head_dim}, but the projections give {x.shape[-1]} numbers a "
            f"token, expected {heads * head_dim}; set both attributes to match")
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


for _cls in (nn.Embedding, nn.MultiheadAttention):
    _hooks.hook(_cls.forward)


def _unchanged(module, cls: type) -> bool:
    """Return true if a call of `module` does what `cls` does: its class has the same forward, and it has no hooks of
    torch."""
    return isinstance(module, cls) and not _hooks.replaced(module, "forward") and not any(
        (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))


def _join(x: Tensor) -> Tensor:
    """Reshape (B, H, L, D) to (B, L, H D)."""
    return x.transpose(1, 2).flatten(2)


def _attend(q: Tensor, k: Tensor, v: Tensor, need_weights: bool, options: dict) -> tuple[Tensor, Tensor | None]:
    """Return (out, weights), or (out, None) without need_weights, which avoids an Lq x Lk array."""
    if "return_weights" in options:
        raise TypeError("return_weights is an option of relpos.attention; pass need_weights to this module")
    if not need_weights:
        return relpos.attention(q, k, v, **options), None
    found = relpos.attention(q, k, v, **options, return_weights=True)
    return found.out, found.weights


def _causal(is_causal: bool) -> dict:
    """Return the options of torch's is_causal, which aligns query 0 with key 0."""
    return {"causal": True, "q_offset": 0} if is_causal else {}


def _need_tensors(alternative: str, **given) -> None:
    """Raise TypeError for inputs that are not tensors. `alternative` is the function for arrays."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is of type {type(x).__name__}, expected a tensor; use {alternative} for arrays")


def _dropout(module: nn.Module, p: float) -> dict:
    return {"dropout": p} if module.training else {}


def _added(*biases) -> tuple:
    """Return terms, sums of terms and arrays of biases as one tuple of terms. None is skipped."""
    terms = []
    for bias in biases:
        if isinstance(bias, Tensor):
            terms.append(relpos.Dense(bias))
        elif bias is not None:
            terms.extend(_operator.terms_of(bias))
    return tuple(terms)


def _masked(mask: Tensor | None, bias=None, attend: bool = True, name: str = "mask") -> dict:
    """Return the options for a bias and a mask. True in a bool mask means attend, or with attend=False, masked. Other
    masks are added to the scores."""
    if mask is None:
        return {"bias": _added(bias)}
    if not _is_bool(name, mask, attend):
        return {"bias": _added(bias, mask)}
    return {"bias": _added(bias), "mask": mask if attend else ~mask}


def _is_bool(name: str, mask: Tensor, attend: bool) -> bool:
    """Return true for a bool mask, and false for one of floating-point numbers. Raise for others, as torch does."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name} is of type {type(mask).__name__}, expected a tensor")
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"{name} has elements of {str(mask.dtype).removeprefix('torch.')}, expected bool (True = "
            f"{'attends' if attend else 'masked'}) or floating-point numbers to add to the scores; use "
            f"{name}.bool() or {name} == 0")
    return mask.dtype == torch.bool
