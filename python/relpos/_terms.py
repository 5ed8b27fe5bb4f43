"""The position terms. The module creates one class for each kind of term, from the description that the C library
returns.

SPDX-License-Identifier: Apache-2.0"""
import inspect
import json
import operator
import os

from . import _core, _hints
from ._examples import EXAMPLES

_KEYWORDS = {"lambda": "lambda_"}  # C parameters whose names are keywords of Python


class Term(_core.Term):
    """A position term: the base class of T5, ALiBi, RoPE and the others in `relpos.TERMS`.

    A term is immutable. `a + b` adds two biases. The repr is the call that creates the term, with the type and shape of
    each array.

    >>> import relpos
    >>> relpos.ALiBi() + relpos.LogDecay(0.5)
    relpos.ALiBi() + relpos.LogDecay(lambda_=0.5)
    """

    __slots__ = ()

    @property
    def arrays(self):
        """The arrays of the term by name.

        >>> import numpy, relpos
        >>> relpos.ALiBi(numpy.ones(3)).arrays
        {'slopes': array([1., 1., 1.])}
        """
        return {a["name"]: array for a, array in zip(_info(self)["arrays"], self._arrays) if array is not None}

    @property
    def learned(self):
        """The arrays that have gradients, by name.

        >>> import numpy, relpos
        >>> list(relpos.RelKey(numpy.ones((3, 8)), left=1, right=1, k_positions=numpy.arange(5)).learned)
        ['table']
        """
        return {a["name"]: array for a, array in zip(_info(self)["arrays"], self._arrays)
                if a["use"] == "learned" and array is not None}

    @property
    def params(self):
        """All parameters of the term by name, including defaults.

        >>> import relpos
        >>> relpos.Linear(left=2).params
        {'left': 2, 'right': 1.0}
        """
        given = _params(self._text)
        return {key: given.get(key, value) for key, value in _DEFAULTS[type(self)].items()}

    def matrix(self, lq, lk=None, **options):
        """Return the biases as a float64 array (H, lq, lk), or (B, H, lq, lk) if an array of the term has several batch
        entries. lk defaults to lq. Pass `heads` if the biases depend on the number of heads and no array of the term
        has an axis of heads, as with ALiBi(). `q_offset` is as in `attention`.

        >>> import relpos
        >>> relpos.LogDecay(1.0).matrix(1, 3).round(2)
        array([[[ 0.  , -0.69, -1.1 ]]])
        """
        return _matrix(self, lq, lk, **options)

    def plot(self, lq=64, lk=None, *, head=0, ax=None, **options):
        """Draw the biases of one head with matplotlib, and return the axes. `options` are heads and q_offset of
        `matrix`."""
        return _plot(self, lq, lk, head, ax, options)

    def __add__(self, other):
        return Sum((self,)) + other

    def __radd__(self, other):
        return self + (() if isinstance(other, int) and other == 0 else other)  # sum(terms) starts at 0

    def __array_ufunc__(self, ufunc, *_, **__):
        """Raise for array + term and array += term, with a suggestion. array == term returns False."""
        if ufunc.__name__ in ("equal", "not_equal"):
            return ufunc.__name__ == "not_equal"
        raise TypeError(_no_array(self))

    def __repr__(self):
        arrays = self.arrays
        learned = _by_position(_info(self))
        parts = [_show(arrays.pop(name)) if name in arrays else "None" for name in learned]
        while parts and parts[-1] == "None":
            parts.pop()
        parts += [f"{_KEYWORDS.get(key, key)}={value!r}" for key, value in _params(self._text).items()]
        parts += [f"{name}={_show(array)}" for name, array in arrays.items()]
        return f"relpos.{_info(self)['class']}({', '.join(parts)})"

    def _repr_html_(self):
        return plotter().html_of_terms(self)

    def __reduce__(self):
        return _load, (self._text, self._arrays)


def _no_array(terms):
    """Return the message for `array + term`. It suggests the keyword of attention() that accepts the term."""
    keywords = [_info(term)["keyword"] for term in (terms if isinstance(terms, tuple) else (terms,))
                if isinstance(term, Term)]
    keyword = next((name for name in keywords if name != "bias"), "bias")
    text = f"a term cannot be combined with an array; relpos.attention(q, k, v, {keyword}=term) computes with the term"
    if keyword != "bias":
        return text
    return (f"{text}, term + relpos.Dense(array) adds an array to it, and term.matrix(Lq, Lk) returns its biases as an "
            "array")


class Sum(tuple):
    """A sum of terms for one keyword.

    >>> import relpos
    >>> sum([relpos.ALiBi(), relpos.LogDecay(), relpos.Linear(left=2)])
    relpos.ALiBi() + relpos.LogDecay() + relpos.Linear(left=2)
    """

    __slots__ = ()

    def __add__(self, other):
        if hasattr(other, "_text"):  # a term
            other = (other,)
        if isinstance(other, tuple):
            return Sum((*self, *other))
        if hasattr(other, "shape"):
            raise TypeError(_no_array(self))
        return NotImplemented

    def __radd__(self, other):
        if isinstance(other, tuple):
            return Sum((*other, *self))
        return self if isinstance(other, int) and other == 0 else self + other

    __array_ufunc__ = Term.__array_ufunc__

    def __repr__(self):
        return " + ".join(map(repr, self))

    matrix, plot, _repr_html_ = Term.matrix, Term.plot, Term._repr_html_


def plotter():
    """Return the module relpos.plot, which is imported on first use."""
    from . import plot
    return plot


def _matrix(terms, lq, lk, *, heads=None, q_offset=0):
    terms = terms if isinstance(terms, tuple) else (terms,)
    lk = lq if lk is None else lk
    if any(not isinstance(term, Term) for term in terms):
        if heads is None:
            raise TypeError(f"matrix: {' + '.join(map(repr, terms))} has a function of the head; pass the number of "
                            "heads, as in heads=8")
        terms = tuple(term if isinstance(term, Term) else term.term(lq, lk, heads=heads, q_offset=q_offset)
                      for term in terms)
    found = _core.matrix(terms, lq, lk, heads or 0, q_offset)
    if heads is None and found.shape[-3] == 1 and not (
            _core.matrix(terms, lq, lk, 2, q_offset)[..., :1, :, :] == found).all():
        raise TypeError(
            f"matrix: {' + '.join(map(repr, terms))} depends on the number of heads; pass it, as in heads=8")
    return found


def _plot(terms, lq, lk, head, ax, options):
    ax = plotter()._axes(ax)
    found = terms.matrix(lq, lk, **options)
    if found.ndim > 3:
        raise ValueError(f"plot: {terms!r} has {len(found)} batch entries; plot a term with one of them")
    image = ax.imshow(found[head], cmap="viridis")
    ax.set(title=repr(terms), xlabel="key", ylabel="query")
    ax.figure.colorbar(image, ax=ax)
    return ax


def _show(array):
    return f"{str(array.dtype).removeprefix('torch.')}{list(array.shape)}"


def _value(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _params(text):
    return {key: _value(value) for key, _, value in (part.partition("=") for part in text.split(",")[1:])}


def _text(value):
    """Format a parameter for the library: True becomes 1, and (7, 5) becomes 7x5. Numbers of NumPy and torch are
    accepted."""
    if isinstance(value, (tuple, list)):
        return "x".join(map(_text, value))
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{int(value)}"
    if isinstance(value, float):
        return f"{float(value)!r}"
    if str(getattr(value, "dtype", "")).endswith("bool"):
        return str(int(value))
    try:
        return str(operator.index(value))
    except TypeError:
        return repr(float(value))


def wants_gradient(value):
    """Return true if a number is a tensor with a tangent, or one that requires a gradient while gradients are enabled,
    at any level of nested transforms. The caller then raises, because relpos computes no derivatives with respect to
    numbers."""
    if isinstance(value, (tuple, list)):
        return any(map(wants_gradient, value))
    if isinstance(value, (str, int, float)) or not hasattr(value, "requires_grad"):
        return False
    import torch
    from torch.autograd import forward_ad  # no function here: torch.compile may trace what _core calls
    if torch.is_grad_enabled() and value.requires_grad or (
            forward_ad._current_level >= 0 and forward_ad.unpack_dual(value).tangent is not None):
        return True
    if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
        return False
    from . import _operator  # noqa: F401 registers the operator
    return torch.ops.relpos.wants_gradient(value)


def _parameter(cls, key, value):
    """Format a parameter for the library. Returns None for a default, which the text of a term omits."""
    if wants_gradient(value):
        raise TypeError(
            f"{cls.__name__}: {_KEYWORDS.get(key, key)} requires a gradient, which relpos.attention does not "
            "compute; use .detach()"
        )
    if isinstance(value, (tuple, list)) and key != "grid":
        more = ", a NumPy array or a torch tensor" if key == "lambda" else ""
        raise TypeError(f"{cls.__name__}: {_KEYWORDS.get(key, key)} is a {type(value).__name__} of {len(value)} "
                        f"elements, expected a number{more}")
    if not isinstance(value, (str, int, float, tuple, list)) and (getattr(value, "ndim", 0) or
                                                                  getattr(value, "is_meta", False)):
        raise TypeError(
            f"{cls.__name__}: {_KEYWORDS.get(key, key)} is an array ({type(value).__name__} with {value.ndim} "
            f"axes), expected a number{_or_strengths(key, value)}"
        )
    if key not in _REQUIRED[cls] and value is not None and value == _DEFAULTS[cls][key]:
        return None
    try:
        return _text(value)
    except (TypeError, ValueError):
        raise TypeError(f"{cls.__name__}: {_KEYWORDS.get(key, key)} is {value!r}, expected a number") from None


def _or_strengths(key, value):
    """Return the end of an error about an array in place of a number."""
    if key != "lambda" or getattr(value, "is_meta", False):
        return ""
    return f", or floating-point numbers (H), but its elements are {str(value.dtype).removeprefix('torch.')}"


def _new(cls, arrays, params):
    _refuse_model(cls.__name__, arrays[0])
    kind = _BY_CLASS[cls]["name"]
    if kind == "log" and has_floats(params["lambda"]):
        return _with_strengths(params["lambda"], arrays)
    if kind == "alibi" and getattr(arrays[0], "ndim", 0) == 2 and arrays[5] is None:  # batch_slopes
        arrays = (None, *arrays[1:5], arrays[0], *arrays[6:])
    if kind == "rope":
        arrays, params = _rope(arrays, params)
    if kind == "sink" and isinstance(params["rows"], int) and not params["rows"] and getattr(arrays[0], "ndim", 0) > 1:
        params = params | {"rows": 1}
    given = [(key, _parameter(cls, key, value)) for key, value in params.items()]
    text = kind + "".join(f",{key}={value}" for key, value in given if value is not None)
    return _create(cls, text, arrays)


def has_floats(value):
    """Return true for a tensor of floating-point numbers, and for such an array that is not a single number."""
    if isinstance(value, (int, float, str, tuple, list)):
        return False
    if hasattr(value, "requires_grad"):
        return (value.is_floating_point() and value.dtype.itemsize > 1 and not value.is_meta and not value.is_nested
                and not value.is_sparse)
    return getattr(value, "ndim", 0) > 0 and getattr(value.dtype, "kind", "") == "f"


def _numbers(values):
    import numpy as np
    return np.array(values, np.float64)


_ROPE_LEARNED = "frequencies", "angles", "q_angles", "k_angles"


def _rope(arrays, params):
    """Return the arrays and parameters of a RoPE: if positions require a gradient, the angles that follow from them, so
    that torch computes the gradient of positions from theirs."""
    arrays, params = _with_frequencies(arrays, params)
    if any(x is not None for x in arrays[6:9]) or not any(map(wants_gradient, arrays[:3])):
        return arrays, params
    refuse = "requires a gradient, which relpos.attention does not compute; use .detach(), or for the gradient pass"
    name = next(name for name, x in zip(("positions", "q_positions", "k_positions"), arrays) if wants_gradient(x))
    if arrays[0] is None and (arrays[1] is None or arrays[2] is None):
        raise TypeError(f"RoPE: {name} {refuse} {'k' if name[0] == 'q' else 'q'}_positions too")
    if params["scaling"] not in ("none", "linear") or arrays[5] is None and not params["dim"]:
        raise TypeError(f"RoPE: {name} {refuse} frequencies" + ", or dim" * (params["scaling"] in ("none", "linear")))
    import torch
    of = next(x for x in arrays[:3] if wants_gradient(x))
    base = torch.as_tensor(params["base"], dtype=torch.float64, device=of.device)
    f = _frequencies(base, params["dim"], params["scaling"], params["factor"]) if arrays[5] is None else arrays[5]
    turns = [x if x is None else _turns(x, f, params["axes"], of) for x in arrays[:3]]
    return (*[None] * 6, *turns, *arrays[9:]), params | _replaced() | {"axes": 0}


def _replaced():
    """Return the parameters of a RoPE that given frequencies replace, with their defaults."""
    return {key: _DEFAULTS[TERMS["rope"]][key] for key in ("base", "scaling", "factor", "length")}


def _turns(positions, frequencies, axes, of):
    """Return the angles (B?, Hk?, L, dim/2) of positions (B?, L) or (B?, axes, L)."""
    import torch
    p, f = (torch.as_tensor(x, device=of.device).double() for x in (positions, frequencies))
    p = p if axes else p.unsqueeze(-2)
    f = f if axes else f.unsqueeze(0)
    f = f.unsqueeze(1) if f.ndim == 2 else f
    return (p.unsqueeze(-3).unsqueeze(-1) * f.transpose(0, 1).unsqueeze(-2)).sum(-3)


def _with_frequencies(arrays, params):
    """Return the arrays and parameters of a RoPE: lists as arrays, and if base is a tensor and dim is given, the
    frequencies that follow from it, so that torch computes the gradient of base from theirs."""
    arrays = [_numbers(x) if isinstance(x, (list, tuple)) else x for x in arrays]
    base, dim, scaling = params["base"], params["dim"], params["scaling"]
    if getattr(arrays[5], "ndim", 0) == 3 and not params["axes"]:
        params = params | {"axes": int(arrays[5].shape[0])}
    default = _DEFAULTS[TERMS["rope"]]["base"]
    given = next((a for a, x in zip(_ROPE_LEARNED, arrays[5:]) if x is not None), None)
    if given and (scaling != "none" or not isinstance(base, (int, float)) or base != default):
        name = "base" if scaling == "none" else f"scaling={scaling}"
        raise TypeError(f"RoPE: {given} was given with {name}, which it replaces; omit one of them")
    if given or not has_floats(base) or not hasattr(base, "requires_grad"):
        return tuple(arrays), params
    fix = ("pass dim, the number of rotated channels" if not dim else
           "pass frequencies, because axes is given" if params["axes"] else
           None if scaling in ("none", "linear") else
           f"pass frequencies that follow from it, because scaling is {scaling}")
    if fix and wants_gradient(base):
        raise TypeError("RoPE: base requires a gradient, which relpos.attention does not compute; use .detach(), or "
                        f"for the gradient {fix}")
    if fix:
        return tuple(arrays), params
    arrays[5] = _frequencies(base, dim, scaling, params["factor"])
    return tuple(arrays), params | _replaced()


def _frequencies(base, dim, scaling, factor):
    """Return the frequencies of a base that is a tensor. They are the same with and without a gradient."""
    import torch
    if base.ndim > 1 or base.ndim and len(base) != 1:
        raise TypeError(f"RoPE: base is an array ({type(base).__name__} of shape {tuple(base.shape)}), expected a "
                        "number; frequencies may be an array")
    if _parameter(TERMS["rope"], "factor", factor) is not None and scaling == "none":
        raise TypeError(f"RoPE: factor is {factor}, but scaling is none; set scaling, or set factor to 1")
    if isinstance(factor, (int, float)) and not 1 <= factor <= 1e10:
        raise ValueError(f"RoPE(factor) is {factor}; it must be 1 to 1e10")
    if not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
            or torch._C._len_torch_dispatch_stack() or base.item() > 0):
        raise ValueError(f"RoPE(base) is {base.item():g}; it must be above 0")
    exponent = torch.arange(0, dim, 2, dtype=torch.float64, device=base.device) / -dim
    return base.reshape(()).double() ** exponent / factor


def _with_strengths(value, positions):
    """Return -value log(1 + |delta|), with a number or one for each head: a Kerple whose a is 1."""
    if value.ndim > 1:
        raise TypeError(f"LogDecay: lambda_ is an array ({type(value).__name__} with {value.ndim} axes), expected a "
                        "number or (H)")
    one = value.new_ones(1) if hasattr(value, "new_ones") else (value * 0 + 1)[:1]
    arrays = value.reshape(-1), one, *positions[:2]
    return _create(_Strengths, "kerple", (*arrays, *[None] * (len(positions) - len(arrays))))


def _load(text, arrays):
    """Create a term from its text and arrays, also of those that an earlier version saved with fewer slots."""
    arrays = (*arrays, *[None] * (_core.MAX_ARRAYS - len(arrays)))
    return _create(TERMS[text.partition(",")[0]], text, arrays)


def _create(cls, text, arrays):
    """Create a term. _operator.py replaces this function while torch.compile traces."""
    return _core.Term.__new__(cls, text, arrays)


def _info(term):
    return _BY_CLASS[type(term)]


def register(cls, base):
    """Register a subclass of the class of a kind of term, `base`."""
    for facts in (_BY_CLASS, _DEFAULTS, _REQUIRED):
        facts[cls] = facts[base]


def _by_position(info):
    """Return the names of the positional arrays of a kind of term: the learned ones, if the first array is one."""
    learned = [a["use"] == "learned" for a in info["arrays"]]
    return [a["name"] for a, one in zip(info["arrays"], learned) if one and learned[0]]


def _signature(info):
    """Return the positional and the keyword-only arguments of a kind of term, with their defaults. Learned arrays are
    positional; parameters and other arrays are keyword-only. If the first array of a kind is not learned, its first
    parameter is positional."""
    names = _by_position(info)
    arrays = [(a["name"], a["presence"] != "needed", a["name"] in names) for a in info["arrays"]]
    by_position = [n if not optional else f"{n}=None" for n, optional, learned in arrays if learned]
    params = [
        _KEYWORDS.get(p["key"], p["key"]) + ("" if p["required"] else f"={_value(p['default'])!r}")
        for p in info["parameters"]
    ]
    by_name = params + [f"{n}=None" for n, _, learned in arrays if not learned]
    return (by_position, by_name) if by_position else (by_name[:1], by_name[1:])


def _refuse_model(title, first):
    if title == "T5" and isinstance(first, (str, os.PathLike)):
        raise TypeError(
            f"T5: table is {os.fspath(first)!r}, expected an array; relpos.T5 is T5's bias, and relpos.t5.T5 loads "
            "a model"
        )


def _refuse(title, name, names, first):
    _refuse_model(title, first)
    raise TypeError(f"{title}: unknown argument {name!r}{_hints.meant(name, names)}")


_NOTES = {
    "alibi": [
        "Slopes (B, H), those of each batch entry, are batch_slopes, even if they are passed as slopes.", ""
    ],
    "rope": [
        "If base is a floating-point tensor and dim is given, frequencies are computed from it when the term is",
        "created, with a gradient: create the term in each step, as in forward of a module.", ""
    ],
    "sink": [
        "rows follows from the number of axes of sink: (H), or (B, H, Lq) or (H, Lq). B and H may be 1.", ""
    ],
    "log": [
        "lambda_ may also be a tensor or an array (H). The term is then a Kerple with p = lambda_ and a = 1, which has",
        "a gradient with respect to p. Create the term in each step, as in forward of a module.", ""
    ],
    "dense": [
        "Adds an array to the scores, such as a float attn_mask of torch's scaled_dot_product_attention: (Lq, Lk),",
        "(H, Lq, Lk) or (B, H, Lq, Lk), where an axis of length 1 broadcasts. The array is not copied, and has a",
        "gradient in torch. Its size grows with Lq Lk; a term with a formula, such as T5 or ALiBi, needs less memory.",
        "interleave=n adds what bias.repeat_interleave(n, 0) adds, and tile=n what bias.tile(n, 1, 1, 1) adds, without",
        "repeating the array.", ""
    ]
}


def _doc(info):
    """Return the docstring of a kind of term: formula, arrays, parameters and an example."""
    def listed(title, rows):
        width = max((len(name) for name, _ in rows), default=0) + 2
        return [f"{title}:", "", *(f"{name:<{width}}{text}" for name, text in rows), ""] if rows else []

    replaced = {"q_positions": "i + q_offset", "k_positions": "j"}

    def use(array):
        if array["use"] == "positions":
            return f"replaces {replaced.get(array['name'], 'i + q_offset and j')}"
        meaning = {"truth": "0 for tokens without a position", "index": "integers from 0 to the number of entries - 1"}
        return meaning.get(array["use"], array["use"])

    arrays = [(a["name"], f"{a['shape'].replace('[', '(').replace(']', ')')}: {use(a)}" +
               ("" if a["presence"] in ("needed", "conditional") else "; optional")) for a in info["arrays"]]
    parameters = [(_KEYWORDS.get(p["key"], p["key"]),
                   f"{p['meaning'] or ''}{' (' + ', '.join(p['choices']) + ')' if 'choices' in p else ''}; " +
                   ("required" if p["required"] else f"default {p['unset'] or p['default']}"))
                  for p in info["parameters"]]
    title = info["about"] if info["source"] in info["about"] else f"{info['about']}: {info['source']}"
    lines = [f"{title[0].upper()}{title[1:]}.", "", *_NOTES.get(info["name"], ()), f"Formula: `{info['formula']}`", ""]
    lines += listed("Arrays; you can omit axes marked ?", arrays) + listed("Parameters", parameters)
    lines += [
        "delta is key - query.", "", f"See {info['name']} in docs/terms.md. Command-line syntax: {info['syntax']}."
    ]
    if info["name"] in EXAMPLES:
        lines += [
            "", ">>> import numpy as np, relpos", ">>> rng = np.random.default_rng(0)",
            ">>> q, k, v = rng.normal(size=(3, 1, 2, 48, 16))",
            f">>> relpos.attention(q, k, v, {EXAMPLES[info['name']]}).shape", "(1, 2, 48, 16)"
        ]
    return "\n".join(lines)


def _make(info):
    """Create the class of one kind of term."""
    by_position, by_name = _signature(info)
    keys = {p["key"]: _KEYWORDS.get(p["key"], p["key"]) for p in info["parameters"]}
    signature = by_position + (["*", *by_name] if by_name else [])
    slots = [a["name"] for a in info["arrays"]] + ["None"] * (_core.MAX_ARRAYS - len(info["arrays"]))
    header = ", ".join(["cls", *signature])
    source_text = (f"def plain({header}): pass\n"
                   f"def __new__({header}, **unknown):\n"
                   f"    if unknown: refuse(next(iter(unknown)), {slots[0]})\n"
                   f"    return _new(cls, ({', '.join(slots)}), {{{', '.join(f'{k!r}: {keys[k]}' for k in keys)}}})\n")
    title, source = info["class"], info["source"]
    names = [x.partition("=")[0] for x in signature if x != "*"]
    space = {"_new": _new, "refuse": lambda name, first: _refuse(title, name, names, first), "__name__": __name__}
    exec(source_text, space)
    cls = type(title, (Term, ),
               {"__slots__": (), "__new__": space["__new__"], "__doc__": _doc(info), "__module__": "relpos"})
    plain = inspect.signature(space["plain"])
    cls.__new__.__signature__ = plain
    cls.__signature__ = plain.replace(parameters=[*plain.parameters.values()][1:])
    cls.__new__.__qualname__ = f"{title}.__new__"
    _BY_CLASS[cls] = info
    _DEFAULTS[cls] = {p["key"]: None if p["required"] else _value(p["default"]) for p in info["parameters"]}
    _REQUIRED[cls] = {p["key"] for p in info["parameters"] if p["required"]}
    return cls


_BY_CLASS, _DEFAULTS, _REQUIRED = {}, {}, {}
TERMS = {}
_kind = 1
while (_one := _core.term_info(_kind)) is not None:
    _one = json.loads(_one)
    TERMS[_one["name"]] = _make(_one)
    _kind += 1
globals().update({cls.__name__: cls for cls in TERMS.values()})


class _Strengths(TERMS["kerple"]):
    """A Kerple that LogDecay made. Errors name the argument of LogDecay."""

    __slots__ = ()


_Strengths.__name__ = "LogDecay"
register(_Strengths, TERMS["kerple"])
