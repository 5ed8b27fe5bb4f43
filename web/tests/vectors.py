"""Views of terms that work on vectors: Shaw's, and RoPE. SPDX-License-Identifier: Apache-2.0"""

import re

import numpy as np

from checks import check, command, fixed, printed, root
from programs import c_program, python_program


def explained(page, view, states, rows):
    """Views whose command is `relpos explain` over a file of their own."""
    for state in states:
        page.show(view, **state)
        text = command(page.code())
        for label, mine, nth in rows:
            want = printed(text, label)
            check(
                f"{view} {state}: {label}", want and page.cells(mine, nth)[: len(want)] == want, f"{page.cells(mine, nth)} {want}"
            )
        python_program(page)


def shaw(page):
    explained(
        page,
        "shaw",
        [{}, {"query": 4}, {"clip": 1, "query": 2}],
        [("Biased", "weights", 1), ("Standard", "weights, content alone", 0)],
    )
    page.show("shaw")
    golden = (root / "tests/golden/golden.h").read_text()
    want = [float(x) for x in re.findall(r"[-\d.e]+", re.search(r"SHAW_PROFILE\[11\] = \{([^}]*)\}", golden)[1])]
    check("shaw: the profile", fixed(page.p.evaluate("[...relpos.page().numbers().mean]")) == fixed(want))
    check(
        "shaw: unseen pairs",
        page.cells("pairs of positions that a text of")[0] == "49,152",
        str(page.cells("pairs of positions that a text of")),
    )
    check("shaw: the C program", c_program("shaw", page) == page.cells("weights", 1))


def rope(page):
    explained(page, "rope", [{}, {"m": 40, "n": 2, "shift": 500, "layout": "interleaved"}, {"base": 500000}], [])
    for state in ({}, {"m": 40, "n": 2, "shift": 500, "layout": "interleaved"}):
        page.show("rope", **state)
        want = printed(command(page.code()), "Raw scores")
        now = page.p.evaluate("relpos.state()")
        mine = page.cells(f"{now['m'] + now['shift']}, {now['n'] + now['shift']}")[1:]
        check(f"rope {state}: the product", want and mine == want, f"{mine} {want}")
        check(f"rope {state}: does not change with a shift", page.cells(f"{now['m']}, {now['n']}")[1] == mine[0])
        check(f"rope {state}: the C program", c_program("rope", page) == want)
    rows = np.array([row[1:] for row in page.show("rope", dim=128, base=500000, factor=8, trained=4096, save="waves").csv()[1:]], dtype=float)
    plain = 500000.0 ** (-np.arange(64) / 64)
    check("rope: frequencies", np.allclose(rows[:, 0], plain, rtol=1e-14))
    check("rope: linear", np.allclose(rows[:, 1], plain / 8, rtol=1e-14))
    turns = 4096 * plain / 2 / np.pi  # Llama 3.1, with low 1 and high 4
    smooth = np.clip((turns - 1) / 3, 0, 1)
    check("rope: llama3", np.allclose(rows[:, 4], smooth * plain + (1 - smooth) * plain / 8, rtol=1e-12))
    ntk = 500000 * (8 * 8.0 - 7) ** (128 / 126)
    check("rope: dynamic", np.allclose(rows[:, 2], ntk ** (-np.arange(64) / 64), rtol=1e-12))
