"""Biases that the user writes as a function of the offset.

SPDX-License-Identifier: Apache-2.0"""
import numpy as np

from . import _terms


MOST_OFFSETS = 2**26  # of a table for an array q_offset


class ByOffset:
    """A bias that you write: a function of the offset key - query and of the head, as in a score_mod of FlexAttention.

    Formula: `function(j - (i + q_offset), h)`

    relpos.attention calls the function once, with all offsets of the call at once, and then computes with a Table of
    these Lq + Lk - 1 numbers a head: as fast, and never with Lq x Lk numbers. If q_offset is an array, the table has
    all offsets from the smallest to the largest. A bias that depends on more than the offset needs Dense, an array of
    Lq x Lk numbers a head.

    function   function(delta, head) returns the biases: delta has the offsets (1, n), in ascending order, and head
               the numbers (H, 1), both integers. The result broadcasts to (H, n). -inf masks a pair. If q is a torch
               tensor, delta and head are tensors, and gradients reach every tensor that the function uses; else they
               are NumPy arrays
    grid       (rows, columns) of tokens: the function is function(rows, columns, head) instead, of the differences
               key - query in rows (1, n) and in columns (1, n). Queries and keys are the tokens of the grid, row by
               row, and the table is that of Swin

    The function must not depend on the order or number of offsets. Gradients of the term from attention_backward, and
    its tangents in attention_jvp, are those of its table. A Plan needs `term(...)`.

    >>> import numpy as np, relpos
    >>> q = k = v = np.ones((1, 2, 5, 4), np.float32)
    >>> bias = relpos.ByOffset(lambda delta, head: -abs(delta) / 2.0 ** (head + 1))
    >>> relpos.attention(q, k, v, bias=bias).shape
    (1, 2, 5, 4)
    >>> bias.term(3, heads=2).matrix(3)[1]
    array([[ 0.  , -0.25, -0.5 ],
           [-0.25,  0.  , -0.25],
           [-0.5 , -0.25,  0.  ]])
    >>> relpos.ByOffset(lambda rows, columns, head: -abs(rows) - abs(columns), grid=(2, 3))
    relpos.ByOffset(<lambda>, grid=(2, 3))
    """

    __slots__ = ("function", "grid")

    _text, _arrays = "by offset", ()

    def __init__(self, function, *, grid=None):
        if not callable(function):
            raise TypeError(f"ByOffset: function is of type {type(function).__name__}, expected a function of delta "
                            "and head; an array of biases is relpos.Table or relpos.Dense")
        if grid is not None:
            if not isinstance(grid, (tuple, list)) or len(grid) != 2 or not all(
                    isinstance(n, (int, np.integer)) and n > 0 for n in grid):
                raise ValueError(f"ByOffset: grid is {grid!r}, expected two numbers, (rows, columns)")
            grid = tuple(int(n) for n in grid)
        self.function, self.grid = function, grid

    def term(self, lq, lk=None, *, heads, q_offset=0, like=None):
        """Return the Table, or with `grid` the Swin, of a call with lq queries and lk keys. lk defaults to lq. With
        several offsets of q, the table has all of them. `like` is a torch tensor if the function works on tensors."""
        lk = lq if lk is None else lk
        if self.grid:
            rows, columns = self.grid
            if not lq == lk == rows * columns:
                raise ValueError(f"ByOffset: grid is {rows} x {columns}, and there are {lq} queries and {lk} keys; "
                                 f"expected {rows * columns} of both")
            # Swin has query - key, so both axes descend
            down, right = (x.reshape(1, -1) for x in np.mgrid[rows - 1:-rows:-1, columns - 1:-columns:-1])
            table = self._values(heads, like, "rows", down, right)
            return _terms.TERMS["swin"](table.T, grid=self.grid)
        first, last = _ends(q_offset)
        left, right = max(lq - 1 + last, 0), max(lk - 1 - first, 0)
        if first != last and left + right + 1 > MOST_OFFSETS:
            raise ValueError(f"ByOffset: q_offset is from {first} to {last}, so the table would have "
                             f"{left + right + 1} offsets a head; expected {MOST_OFFSETS} at most; call "
                             "attention for each batch entry")
        return _terms.TERMS["table"](self._values(heads, like, "delta", np.arange(-left, right + 1)[None]), left=left,
                                     right=right)

    def _values(self, heads, like, name, *offsets):
        """Return the biases (H, n) of offsets (1, n)."""
        places = (*offsets, np.arange(heads)[:, None])
        if like is not None:
            import torch
            places = [torch.from_numpy(np.ascontiguousarray(x)) for x in places]
        values = self.function(*places)
        if values is None:
            raise TypeError(f"ByOffset: the function returned None, expected the biases of {name} and head; does it "
                            "lack a return?")
        n = offsets[0].shape[-1]
        if like is None:
            values = np.asarray(values)
            values = values if values.dtype.kind == "f" else values.astype(np.float64)
            broadcast = np.broadcast_to
        else:
            values = torch.as_tensor(values)
            values = values if values.is_floating_point() else values.to(like.dtype)
            broadcast = torch.broadcast_to
        try:
            return broadcast(values, (heads, n))
        except (RuntimeError, ValueError):
            raise ValueError(
                f"ByOffset: the function returned shape {tuple(values.shape)}, expected one that broadcasts to "
                f"{(heads, n)}; {name} has shape {(1, n)} and head {(heads, 1)}") from None

    __add__, __radd__, __array_ufunc__ = _terms.Term.__add__, _terms.Term.__radd__, _terms.Term.__array_ufunc__

    def matrix(self, lq, lk=None, *, heads, q_offset=0):
        """Return the biases as a float64 array (heads, lq, lk), as the method of terms does."""
        return _terms._matrix(self, lq, lk, heads=heads, q_offset=q_offset)

    def __reduce__(self):
        return _unpickled, (self.function, self.grid)

    def __repr__(self):
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"relpos.ByOffset({name}{f', grid={self.grid}' if self.grid else ''})"


def _unpickled(function, grid):
    return ByOffset(function, grid=grid)


def _ends(q_offset):
    """Return the smallest and the largest position of query 0."""
    if q_offset is None:
        return 0, 0
    if hasattr(q_offset, "min"):
        return int(q_offset.min()), int(q_offset.max())
    return (min(q_offset), max(q_offset)) if isinstance(q_offset, (tuple, list)) else (q_offset, q_offset)


def resolve(bias, q, k, q_offset):
    """Replace each ByOffset of a call by its term."""
    if isinstance(bias, tuple):
        return type(bias)(resolve(term, q, k, q_offset) for term in bias) if any(
            isinstance(term, ByOffset) for term in bias) else bias
    if not isinstance(bias, ByOffset):
        return bias
    shapes = [getattr(x, "shape", ()) for x in (q, k)]
    if min(map(len, shapes)) < 2:
        raise TypeError("q and k must be arrays of at least two axes, (L, D), with relpos.ByOffset")
    heads, lq = (1, *shapes[0][:-1])[-2:]
    return bias.term(lq, shapes[1][-2], heads=heads, q_offset=q_offset, like=q if hasattr(q, "requires_grad") else None)


def resolved(options, q, k):
    """Return the options of a call with each ByOffset replaced by its term."""
    if isinstance(options.get("bias"), (tuple, ByOffset)):
        options["bias"] = resolve(options["bias"], q, k, options.get("q_offset"))
    return options


def refuse_in_plan(bias):
    if any(isinstance(term, ByOffset) for term in (bias if isinstance(bias, tuple) else (bias,))):
        raise TypeError("Plan: ByOffset makes a table for the offsets of one call, but the calls of a Plan may have "
                        "others; pass ByOffset(...).term(lq, lk, heads=..., q_offset=[...]) for all that occur")
