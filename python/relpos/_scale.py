"""The scale of relpos.attention as an array: it multiplies q. torch differentiates this product; the derivatives of
relpos.attention_backward, _jvp and _hvp by an array are here.

SPDX-License-Identifier: Apache-2.0"""
from typing import NamedTuple

from . import _terms


class Product(NamedTuple):
    """An input that the scale multiplies: q, k, or array number `place` of the argument relkey. `factor` is the scale
    with axes that broadcast to those of the input, `x`."""

    name: str
    x: object
    factor: object
    place: int | None = None

    def times(self, factor):
        return _times(self.x, factor)


def fold(q, k, relkey, scale):
    """Return q, k and relkey for scale 1, multiplied by the scale where it enters, and what remains of the scale: 1, or
    the scale itself if it is a number."""
    products = _products(q, k, relkey, scale)
    return (*_multiplied(q, k, relkey, products), scale if products is None else 1)


def _products(q, k, relkey, scale):
    """Return the products of a call, or None if the scale is a number."""
    if not _multiplies(q, scale):
        if scale.ndim and hasattr(q, "ndim") and not getattr(scale, "is_nested", False):
            _refuse_type(q, scale)
        return None
    scale, found = _aligned(q, scale), []
    for term in () if relkey is None else (relkey,) if hasattr(relkey, "_text") else relkey:
        name, arrays = term._text.partition(",")[0], term._arrays
        if name == "axialkey":  # only <q, k> has the factor
            if scale.ndim and (scale.shape[-3] not in (1, k.shape[-3]) or scale.shape[-2] != 1):
                _refuse(scale, "AxialKey", "a number, or one for each head if k has as many heads as q")
            return [Product("k", k, scale)]
        for place, array in {"xl": ((1, "u"), (2, "v")), "deberta": ((1, "q_pos"),)}.get(name, ()):
            if arrays[place] is not None:
                if scale.ndim and (scale.ndim > 3 or scale.shape[-2] != 1):
                    _refuse(scale, type(term).__name__, "a number, or one for each head, (H)")
                by_head = scale.reshape(-1, 1) if scale.ndim and name == "xl" else scale
                found.append(Product(array, arrays[place], by_head, place))
    return [Product("q", q, scale), *found]


def _multiplied(q, k, relkey, products):
    """Return q, k and relkey with the products in place of their inputs."""
    for one in products or ():
        if one.place is None:
            q, k = (one.times(one.factor), k) if one.name == "q" else (q, one.times(one.factor))
        else:
            term = relkey if hasattr(relkey, "_text") else relkey[0]
            arrays = list(term._arrays)
            arrays[one.place] = one.times(one.factor)
            relkey = _terms._load(term._text, tuple(arrays))
    return q, k, relkey


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
    return _typed(x * scale, x)


def _refuse_type(q, scale):
    shape = f"scale is an array of shape {tuple(scale.shape)}"
    if hasattr(scale, "requires_grad") == hasattr(q, "requires_grad"):
        raise TypeError(f"{shape} with elements {str(scale.dtype).removeprefix('torch.')}, expected floating-point "
                        "numbers")
    raise TypeError(f"{shape} of type {type(scale).__name__}, but q is of type {type(q).__name__}; pass both as one "
                    "type")


def _refuse(scale, beside, expected):
    raise ValueError(f"scale has shape {tuple(scale.shape)} with {beside}; expected {expected}")


# ---- derivatives

def derivatives(name, q, k, options, wanted, tangents=None):
    """Return the Derivatives of a call whose scale is an array, or None if it is a number."""
    scale = options.get("scale")
    if tangents is not None and scale is not None and _terms.wants_gradient(scale):
        raise TypeError(f"{name}: scale requires a gradient, which this function does not record; use .detach()")
    if tangents is None and hasattr(scale, "detach"):
        q, k, scale = (x.detach() if hasattr(x, "detach") else x for x in (q, k, scale))
    products = None if getattr(scale, "ndim", None) is None else _products(q, k, options.get("relkey"), scale)
    if products is not None and hasattr(wanted, "__iter__") and not isinstance(wanted, str):
        wanted = tuple(wanted)
    names = [x for x in wanted if type(x) is str] if isinstance(wanted, (list, tuple, set, frozenset)) else []
    if products is not None:
        return Derivatives(products, q, k, options, wanted, names)
    if "scale" in names:
        raise TypeError(f"{name}: wanted contains 'scale', but the scale is no array; pass an array of floating-point "
                        "numbers")
    return None


def _count(options, name):
    given = options.get(name)
    return 0 if given is None else 1 if hasattr(given, "_text") else len(given)


class Derivatives:
    """The derivatives of a call by the scale and by what it multiplies, from those by the products. With y = s x, the
    gradients are dx = s dy and ds = sum(x dy), and the tangent is y' = s' x + s x'; the tangents of the gradients are
    dx' = s' dy + s dy' and ds' = sum(x' dy + x dy')."""

    def __init__(self, products, q, k, options, wanted, names):
        self.scale, self.products, self.names = options["scale"], products, names
        self.wanted, self.of_scale = wanted, "scale" in names
        if self.of_scale:  # the call computes the gradients of all products, and none of the scale
            others = [x for x in wanted if type(x) is not str or x != "scale"]
            self.wanted = (*others, *(one.name for one in products if one.name not in names))
        self.q, self.k, relkey = _multiplied(q, k, options.get("relkey"), products)
        self.options = {**options, "relkey": relkey, "scale": 1}
        self.relkey = _count(options, "bias") + _count(options, "rope")  # number of the term
        self.terms = self.relkey + sum(_count(options, name) for name in ("relkey", "relval", "sink"))
        self.along, self.inputs = None, [None] * len(products)

    def _at(self, one, first, terms):
        """Return the list or dictionary that has the derivative by an input, and its index."""
        return (first, "qk".index(one.name)) if one.place is None else (terms[self.relkey], one.name)

    def turned(self, tangents):
        """Return the tangents for the call. Keep those of the scale and of the inputs."""
        given = (*tangents, None)[3] if isinstance(tangents, tuple) and len(tangents) in (3, 4) else False
        first, terms = list(tangents[:3]) if given is not False else [], [{} for _ in range(self.terms)]
        if given is not None:
            if not isinstance(given, tuple) or len(given) not in (self.terms, self.terms + 1) or any(
                    not isinstance(one, dict) for one in given):
                return tangents  # the call raises
            terms = [dict(one) for one in given]
        if len(terms) > self.terms:
            self.along = terms[-1].pop("scale", None)
            terms = terms if terms[-1] else terms[:-1]
        if self.along is not None:
            self._check(self.along)
        for n, one in enumerate(self.products):
            where, at = self._at(one, first, terms)
            x = where[at] if one.place is None else where.get(at)
            if x is not None and (not hasattr(x, "shape") or hasattr(x, "detach") != hasattr(one.x, "detach") or
                                  one.place is None and tuple(x.shape) != tuple(one.x.shape)):
                return tangents  # the call raises
            self.inputs[n] = x
            parts = ([] if x is None else [_wide(x) * one.factor]) + (
                [] if self.along is None else [_wide(one.x) * self._beside(one)])
            if parts:
                where[at] = _typed(sum(parts), one.x)
        return (*first, tuple(terms))

    def _check(self, along):
        if not hasattr(along, "shape") or hasattr(along, "detach") != hasattr(self.scale, "detach"):
            raise TypeError(f"tangent of scale is of type {type(along).__name__}, expected {type(self.scale).__name__}")
        shape = tuple(self.scale.shape)
        if tuple(along.shape) not in (shape, (*self.q.shape[:self.q.ndim - 3], *shape)):
            raise ValueError(f"the tangent of scale: shape is {tuple(along.shape)}; it must be {shape}, perhaps with a "
                             "leading axis of the batch")

    def _beside(self, one):
        """Return the tangent of the scale with the axes of one.factor, and perhaps one more, of the batch."""
        more = tuple(self.along.shape[:self.along.ndim - self.scale.ndim])
        ones = (1,) * ((3 if one.place is None else one.x.ndim) - one.factor.ndim) if more else ()
        return self.along.reshape((*more, *ones, *one.factor.shape))

    def needs_gradients(self):
        """Return true if the second derivatives need the gradients too."""
        return self.of_scale or self.along is not None

    def gradients(self, found, per_sample, gradients=None):
        """Return (dq, dk, dv, terms, …) from those of the call. With `gradients` of the call, `found` has their
        tangents."""
        first, terms, of_scale = list(found[:3]), [dict(one) for one in found[3]], 0
        for one, x in zip(self.products, self.inputs):
            where, at = self._at(one, first, terms)
            turned = where[at] if one.place is None else where.get(at)
            if turned is None:  # not wanted
                continue
            of, name = (None, None) if gradients is None else self._at(one, gradients[:3], gradients[3])
            plain = None if gradients is None else _wide(of[name])
            turned = _wide(turned)
            if self.of_scale:
                of_scale = of_scale + self._summed(
                    one, turned * one.x + (0 if plain is None or x is None else plain * x), per_sample)
            if self.of_scale and one.name not in self.names:
                where[at] = None
            else:
                more = 0 if plain is None or self.along is None else plain * self._beside(one)
                where[at] = _typed(_summed(turned * one.factor + more, one.x.shape, per_sample and one.place), one.x)
        if self.of_scale:
            terms = terms if len(terms) > self.terms else [*terms, {}]
            terms[-1]["scale"] = _typed(of_scale, self.scale)
        return (*first, tuple(terms), *found[4:])

    def _summed(self, one, found, per_sample):
        """Return the gradient of the scale from the products with an input."""
        found, shape = found.sum(-1), tuple(one.factor.shape[:-1])
        if one.place is None:
            found = found.reshape((1,) * (3 - found.ndim) + tuple(found.shape))
        found, of = _summed(found, shape, per_sample), tuple(self.scale.shape)
        return found.reshape((found.shape[0], *of[len(of) == 4:]) if per_sample else of)


def _summed(found, shape, per_sample):
    """Return the sum over the axes that broadcast to a shape. With per_sample, that of the batch is first and stays."""
    lead = found.ndim - len(shape)
    axes = tuple(n for n in range(1 if per_sample else 0, found.ndim) if n < lead or shape[n - lead] == 1)
    found = found.sum(axes) if axes else found
    return found.reshape((found.shape[0], *shape[0 if lead else 1:]) if per_sample else shape)


def _wide(x):
    return x.double() if hasattr(x, "detach") else x.astype("float64")


def _typed(x, like):
    return x.to(like.dtype) if hasattr(x, "detach") else x.astype(like.dtype)
