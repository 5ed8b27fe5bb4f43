"""Run the calls in the tables of migrate.md. The site build runs them, and python/tests compares them with the other
libraries.

SPDX-License-Identifier: Apache-2.0"""
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import relpos

B, H, N, M, D = 2, 4, 24, 3, 16
rng = np.random.default_rng(4)
q, k, v, x, memory = rng.standard_normal((5, B, H, N, D))
causal = np.tri(N, dtype=bool)  # also used as a mask with the opposite meaning
NAMES = {
    "q": q, "k": k, "v": v, "x": x, "memory": memory, "N": N, "M": M,
    "weight": rng.standard_normal((32, H)), "table": rng.standard_normal((H, 9)),
    "window_table": rng.standard_normal((77, H)),
    "array": rng.standard_normal((H, N, N)), "added": rng.standard_normal((N, N)),
    "stacked": rng.standard_normal((B * H, N, N)),
    "keep": np.arange(N) < np.array([[N], [9]]), "padded": np.arange(N) >= np.array([[N], [9]]),
    "upper": ~causal, "blocked": rng.integers(0, 2, (N, N)).astype(bool) & causal & ~np.eye(N, dtype=bool),
    "document": np.repeat([0, 1], [10, 14]), "lengths": np.array([9, N]), "prefix": np.array([4, 11]),
    "rel_bias": rng.standard_normal(9), "p": rng.uniform(-6, 6, N), "known": rng.integers(0, 2, N).astype(bool),
    "at": rng.integers(0, 40, N), "pos_q": rng.standard_normal((H, 40, D)), "pos_k": rng.standard_normal((H, 40, D)),
}


class Row(NamedTuple):
    """A row of a table: its section, the code on the left for the other library, and the code on the right for
    relpos."""

    section: str
    there: list
    here: str


def rows():
    """Return all rows of the tables."""
    found, section = [], ""
    for line in (Path(__file__).parent / "migrate.md").read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("|"):
            cells = [re.findall(r"`([^`]+)`", cell.replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", line)]
            codes = [cell for cell in cells[:-2] if cell]  # without the column of differences
            if codes:
                there, (here,) = codes
                found.append(Row(section, there, here))
    return found


def here(row):
    """Run the code on the right side of a row, and return the result."""
    def call(*arrays, **options):
        return relpos.attention(*(arrays or (q, k, v)), **options)
    return eval(f"call({row.here})", {"call": call, "relpos": relpos, "np": np, **NAMES})
