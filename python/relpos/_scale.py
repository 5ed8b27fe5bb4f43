"""The scale of relpos.attention as an array: it multiplies q, so torch differentiates it.

SPDX-License-Identifier: Apache-2.0"""
from . import _terms


def fold(q, k, relkey, scale):
    """Return q, k and relkey for scale 1, multiplied by the scale where it enters, and what remains of the scale: 1, or
    the scale itself if it is a number."""
    if not _multiplies(q, scale):
        if scale.ndim and hasattr(q, "ndim") and not getattr(scale, "is_nested", False):
            _refuse_type(q, scale)
        return q, k, relkey, scale
    scale = _aligned(q, scale)
    terms = () if relkey is None else (relkey,) if hasattr(relkey, "_text") else relkey
    for term in terms:
        name, arrays = term._text.partition(",")[0], list(term._arrays)
        if name == "axialkey":  # only <q, k> has the factor
            if scale.ndim and (scale.shape[-3] not in (1, k.shape[-3]) or scale.shape[-2] != 1):
                _refuse(scale, "AxialKey", "a number, or one for each head if k has as many heads as q")
            return q, _times(k, scale), relkey, 1
        for place in {"xl": (1, 2), "deberta": (1,)}.get(name, ()):  # u and v, or q_pos
            if arrays[place] is not None:
                if scale.ndim and (scale.ndim > 3 or scale.shape[-2] != 1):
                    _refuse(scale, type(term).__name__, "a number, or one for each head, (H)")
                by_head = scale.reshape(-1, 1) if scale.ndim and name == "xl" else scale
                arrays[place] = _times(arrays[place], by_head)
        relkey = _terms._load(term._text, tuple(arrays))
    return _times(q, scale), k, relkey, 1


def _multiplies(q, scale):
    """Return true for a floating-point tensor, or array with axes, of the library of q. _core reads other numbers."""
    return _terms.has_floats(scale) and hasattr(q, "ndim") and (
        hasattr(scale, "requires_grad") == hasattr(q, "requires_grad"))


def _aligned(q, scale):
    """Return the scale with the axes of q, of which the last has length 1, or none."""
    if scale.ndim == 0:
        return scale
    wanted = (*q.shape[:-1], 1)
    aligned = scale.reshape(-1, 1, 1) if scale.ndim == 1 else scale
    given = tuple(aligned.shape)
    if scale.ndim == 2 or len(given) > len(wanted) or any(
            n not in (1, m) for n, m in zip(given[::-1], wanted[::-1])):
        _refuse(scale, f"q of shape {tuple(q.shape)}",
                "a number, (H), (H, 1, 1) or another shape of three or four axes that broadcasts to (B, H, Lq, 1)")
    return aligned


def _times(x, scale):
    product = x * scale
    return product.to(x.dtype) if hasattr(x, "requires_grad") else product.astype(x.dtype)


def _refuse_type(q, scale):
    shape = f"scale is an array of shape {tuple(scale.shape)}"
    if hasattr(scale, "requires_grad") == hasattr(q, "requires_grad"):
        raise TypeError(f"{shape} with elements {str(scale.dtype).removeprefix('torch.')}, expected floating-point "
                        "numbers")
    raise TypeError(f"{shape} of type {type(scale).__name__}, but q is of type {type(q).__name__}; pass both as one "
                    "type")


def _refuse(scale, beside, expected):
    raise ValueError(f"scale has shape {tuple(scale.shape)} with {beside}; expected {expected}")
