#!/usr/bin/env python3
"""Generate the text of python/relpos/_terms.pyi, the types of the classes that _terms.py creates. tools/terms.py writes
the file, and a test compares it with the installed package.  SPDX-License-Identifier: Apache-2.0"""
from relpos import TERMS, _terms

HEAD = '''# Made by tools/terms.py. SPDX-License-Identifier: Apache-2.0
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

class Term:
    @property
    def arrays(self) -> dict[str, Any]: ...
    @property
    def learned(self) -> dict[str, Any]: ...
    @property
    def params(self) -> dict[str, int | float | str]: ...
    def matrix(self, lq: int, lk: int | None = None, *, heads: int | None = None,
               q_offset: int = 0) -> NDArray[np.float64]: ...
    def plot(self, lq: int = 64, lk: int | None = None, *, head: int = 0, ax: Any = None, heads: int | None = None,
             q_offset: int = 0) -> Any: ...
    def __add__(self, other: Term | Sum) -> Sum: ...
    def __radd__(self, other: int) -> Sum: ...

class Sum(tuple[Term, ...]):
    def __add__(self, other: Term | tuple[Term, ...]) -> Sum: ...  # type: ignore[override]
    def matrix(self, lq: int, lk: int | None = None, *, heads: int | None = None,
               q_offset: int = 0) -> NDArray[np.float64]: ...
    def plot(self, lq: int = 64, lk: int | None = None, *, head: int = 0, ax: Any = None, heads: int | None = None,
             q_offset: int = 0) -> Any: ...

TERMS: dict[str, type[Term]]
'''


KINDS = {"int": "int", "real": "float", "flag": "bool | int", "sign": "int", "grid": "str | tuple[int, int]"}


def kind(parameter):
    """Return the Python type of a parameter. For a choice, it is Literal[...]."""
    choices = ", ".join(map(repr, parameter.get("choices", ())))
    return f"Literal[{choices}]" if parameter["type"] == "choice" else KINDS[parameter["type"]]


def argument(text, kinds):
    """Return an argument with its type, such as "left: float = 1" for "left=1". The type of an array is Any."""
    name, _, default = text.partition("=")
    return f"{name}: {kinds.get(name, 'Any')}" + (f" = {default}" if default else "")


def text():
    parts = [HEAD]
    for cls in TERMS.values():
        info = _terms._BY_CLASS[cls]
        by_position, by_name = _terms._signature(info)
        kinds = {_terms._KEYWORDS.get(p["key"], p["key"]): kind(p) for p in info["parameters"]}
        words = ["self", *(argument(x, kinds) for x in by_position)]
        words += ["*", *(argument(x, kinds) for x in by_name)] if by_name else []
        parts.append(f"\nclass {cls.__name__}(Term):\n    def __init__({', '.join(words)}) -> None: ...\n")
    parts.append("\n# The types of the keywords of relpos.attention.\n")
    # relpos.torch registers more classes, which are not part of relpos
    keywords = {cls.__name__: _terms._BY_CLASS[cls]["keyword"] for cls in TERMS.values()}
    for keyword in dict.fromkeys(keywords.values()):
        classes = [name for name, of in keywords.items() if of == keyword]
        parts.append(f"_{keyword.capitalize()} = {' | '.join(classes)}\n")
    return "".join(parts)
