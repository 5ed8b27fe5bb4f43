#!/usr/bin/env python3
"""Write python/relpos/_terms.pyi, what type checkers read of the classes that _terms.py makes: with relpos installed,
python3 -P tools/python_stubs.py (tools has a numbers.py). The tests compare.  SPDX-License-Identifier: Apache-2.0"""
from pathlib import Path

from relpos import TERMS, _terms

HEAD = '''# Made by tools/python_stubs.py. SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
from numpy.typing import NDArray

class Term:
    @property
    def arrays(self) -> dict[str, Any]: ...
    @property
    def learned(self) -> dict[str, Any]: ...
    @property
    def params(self) -> dict[str, int | float | str]: ...
    def matrix(self, lq: int, lk: int | None = None, *, heads: int | None = None, q_offset: int = 0) -> NDArray[np.float64]: ...
    def plot(self, lq: int = 64, lk: int | None = None, *, head: int = 0, ax: Any = None, heads: int | None = None,
             q_offset: int = 0) -> Any: ...
    def __add__(self, other: Term | Sum) -> Sum: ...
    def __radd__(self, other: int) -> Sum: ...

class Sum(tuple[Term, ...]):
    def __add__(self, other: Term | tuple[Term, ...]) -> Sum: ...  # type: ignore[override]
    def matrix(self, lq: int, lk: int | None = None, *, heads: int | None = None, q_offset: int = 0) -> NDArray[np.float64]: ...
    def plot(self, lq: int = 64, lk: int | None = None, *, head: int = 0, ax: Any = None, heads: int | None = None,
             q_offset: int = 0) -> Any: ...

TERMS: dict[str, type[Term]]
'''


REALS = {"c", "L"}  # which have no default to tell


def argument(text, arrays):
    name, _, default = text.partition("=")
    kind = {"grid": "str | tuple[int, int]", "bidirectional": "bool | int", "truncate": "bool | int"}.get(name)
    if name in arrays:
        kind = "Any"
    elif kind is None:
        kind = "str" if default.startswith("'") else "float" if set(".e") & set(default) or name in REALS else "int"
    return f"{name}: {kind}" + (f" = {default}" if default else "")


def text():
    parts = [HEAD]
    for name, cls in TERMS.items():
        info = _terms._BY_CLASS[cls]
        by_position, by_name = _terms._signature(info)
        arrays = {n for n, *_ in info[4]}
        words = ["self", *(argument(x, arrays) for x in by_position)]
        words += ["*", *(argument(x, arrays) for x in by_name)] if by_name else []
        parts.append(f"\nclass {cls.__name__}(Term):\n    def __init__({', '.join(words)}) -> None: ...\n")
    return "".join(parts)


if __name__ == "__main__":
    (Path(__file__).parents[1] / "python/relpos/_terms.pyi").write_text(text())
