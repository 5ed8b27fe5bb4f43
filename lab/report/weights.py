"""Section on the number of weights, computed from the array shapes in `relpos info --json`.
SPDX-License-Identifier: Apache-2.0"""
import ast
import math
import operator
import re

from claims import WEIGHTS

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}
# position vectors that `relpos lab` adds to the input; they are not terms of the library
OUTSIDE = {"learned": "[L, D]", "sinusoidal": "none"}


def number(text, sizes):
    """Return the length of an axis such as left+right+1."""
    def of(node):
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](of(node.left), of(node.right))
        return node.value if isinstance(node, ast.Constant) else sizes[node.id]
    return of(ast.parse(text, mode="eval").body)


def chosen(shape, sizes):
    """Resolve a shape that depends on a parameter, such as "width2 ? [H, width2] : none"."""
    found = re.fullmatch(r"(\w+) \? (.+) : (.+)", shape)
    return shape if not found else found[2] if sizes[found[1]] else found[3]


def weights(shape, sizes):
    """Return the number of elements of a shape such as [H?, left+right+1, Dk]. H? means that the heads may share the
    array; it counts as 1."""
    axes = [] if shape == "none" else shape.strip("[]").split(",")
    return math.prod(1 if axis.strip() == "H?" else number(axis.strip(), sizes) for axis in axes) if axes else 0


def shapes(position, terms, sizes):
    """Yield the shape of each learned array of a position scheme, with the sizes and parameters on which it depends."""
    for text in position.split("+"):
        name, *settings = text.split(",")
        if name in OUTSIDE:
            yield OUTSIDE[name], sizes
            continue
        own = {p["key"]: int(p["default"]) for p in terms[name]["parameters"]
               if re.fullmatch(r"\d+", p["default"] or "")} | sizes
        own |= {key: int(value) for key, _, value in (x.partition("=") for x in settings) if value.isdecimal()}
        for a in terms[name]["arrays"]:
            if a["use"] == "learned" and a["presence"] in ("needed", "conditional"):
                yield chosen(a["shape"], own), own


def shapes_and_counts(page, lines):
    terms = {term["name"]: term for term in lines[-1]["terms"]}
    rows = []
    for position, sizes, printed in WEIGHTS:
        found = [(shape, own) for shape, own in shapes(position, terms, sizes) if shape != "none"]
        given = ", ".join(f"{key} = {value:,}" for key, value in sizes.items())
        rows.append([position, given, " + ".join(shape for shape, _ in found) or "none",
                     f"{sum(weights(*x) for x in found):,}", "" if printed is None else f"{printed:,}"])
    page.text("The number of weights in the learned arrays of each position, for one layer or for all layers that "
              "share them, computed from the shapes in `relpos info --json`. An axis H? that heads may share "
              "counts as 1. ALiBi's slopes can be learned too; then there are H of them. The last column has printed "
              "numbers from other sources.")
    page.table(["", "sizes", "shapes", "weights", "printed"], rows)
