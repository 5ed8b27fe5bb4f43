"""Test the views of terms that act on vectors: Shaw and RoPE. SPDX-License-Identifier: Apache-2.0"""

import re

import numpy as np

from calculations import cells, parts, value_of, wrong_cells
from checks import check, command, fixed, printed, root
from programs import c_program, python_program
from programs import golden as golden_numbers


def explained(page, view, states, rows):
    """Compare the views with the output of their commands, which run `relpos explain` on a file."""
    for state in states:
        page.show(view, **state)
        text = command(page.code())
        for label, mine, nth in rows:
            want = printed(text, label)
            check(
                f"{view} {state}: {label}", want and page.cells(mine, nth)[: len(want)] == want,
                f"{page.cells(mine, nth)} {want}"
            )
        python_program(page)


def shaw(page):
    explained(
        page,
        "shaw",
        [{}, {"query": 4}, {"clip": 1, "query": 2}],
        [("Biased", "weights", 1), ("Standard", "weights, content only", 0)],
    )
    page.show("shaw")
    golden = (root / "tests/golden/golden.h").read_text()
    want = [float(x) for x in re.findall(r"[-\d.e]+", re.search(r"SHAW_PROFILE\[11\] = \{([^}]*)\}", golden)[1])]
    check("shaw: the profile", fixed(page.p.evaluate("[...relpos.page().numbers().mean]")) == fixed(want))
    check(
        "shaw: unseen pairs",
        page.cells("pairs of positions that do not occur")[0] == "49,152",
        str(page.cells("pairs of positions that do not occur")),
    )
    for strength in (1, 0, 0.5):
        page.show("shaw", near=strength)
        mine = page.p.evaluate("relpos.page().numbers().pattern")
        # the table of scores comes last, with a line for each key: the biased score is the fourth number of a line
        text = command(page.code())
        lines = [re.findall(r"-?\d+\.\d{4}", line)
                 for line in text.split("step by step")[-1].split("Attention weights")[0].splitlines()]
        want = [line[3] for line in lines if len(line) == 4]
        check(f"shaw: the pattern {strength}", len(want) == 11 and fixed(mine) == want, f"{fixed(mine)} {want}")
        if strength == 1:
            check("shaw: the pattern of the tutorial", fixed(mine, 9) == fixed(golden_numbers("SHAW_PATTERN"), 9), mine)
            check("shaw: its table", [x.replace("−", "-") for x in page.cells("score")] == fixed(mine, 3),
                  page.cells("score"))
    trained, run, unseen, total = (int(x) for x in golden_numbers("SHAW_PAIRS"))
    page.show("shaw", trained=trained, run=run)
    pairs, offsets = (np.array(x) for x in page.p.evaluate("relpos.page().numbers().seen"))
    check("shaw: the map of pairs", pairs.size == total and (pairs == 0).sum() == unseen and (pairs == 1).sum() == total
          - unseen, pairs.size)
    far = abs(np.subtract.outer(np.arange(run), np.arange(run))) >= trained
    check("shaw: the map of offsets", (offsets.reshape(run, run) == ~far).all() and page.cells("pairs whose offset")[0]
          == f"{far.sum():,}")
    python = python_program(page)
    check("shaw: the count in Python", not python or f"({unseen}, {total})" in python, python and python[-200:])
    page.show("shaw", trained=100, run=1000)
    pairs, offsets = (np.array(x) for x in page.p.evaluate("relpos.page().numbers().seen"))
    sizes = np.diff(np.arange(257) * 1000 // 256)
    area = np.multiply.outer(sizes, sizes).ravel()
    check("shaw: shares of cells add up", abs(pairs @ area - 100**2) < 1e-6
          and abs(offsets @ area - (1000**2 - 900 * 901)) < 1e-6, f"{pairs @ area} {offsets @ area}")
    said = page.p.locator("figure", has_text="Pairs of positions seen").locator(".readout").text_content()
    check("shaw: the text of the cursor", said == "query 0, key 0: this pair of positions was seen", said)
    for state in ({}, {"clip": 1, "query": 5}):
        page.show("shaw", **state)
        computed, wrong = wrong_cells(cells(page), 1e-3)
        check(f"shaw {state}: every cell and its calculation", computed == 24 + 36 + 11 and not wrong,
              f"{computed} {wrong[:3]}")
        numbers = page.p.evaluate("relpos.page().numbers()")
        now = page.p.evaluate("relpos.state()")
        for title, key in (("Scores by content", "content"), ("Scores by position", "position"),
                           ("Weights by content only", "before"), ("Weights", "weights")):
            said = page.p.locator("figure",
                                  has=page.p.get_by_text(title, exact=True)).locator(".readout").text_content()
            calculation, value = parts(said)
            want = numbers[key]["%d" % (6 * now["query"])] if isinstance(numbers[key],
                                                                         dict) else numbers[key][6 * now["query"]]
            check(f"shaw {state}: the map {title}", [value] == fixed(want) and abs(value_of(calculation) - want) < 1e-3,
                  f"{said} {want}")
    page.show("shaw")
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
    rows = np.array([row[1:] for row in page.show("rope", dim=128, base=500000, factor=8, trained=4096,
                                                  save="waves").csv()[1:]], dtype=float)
    plain = 500000.0 ** (-np.arange(64) / 64)
    check("rope: frequencies", np.allclose(rows[:, 0], plain, rtol=1e-14))
    check("rope: linear", np.allclose(rows[:, 1], plain / 8, rtol=1e-14))
    turns = 4096 * plain / 2 / np.pi  # Llama 3.1, with low 1 and high 4
    smooth = np.clip((turns - 1) / 3, 0, 1)
    check("rope: llama3", np.allclose(rows[:, 4], smooth * plain + (1 - smooth) * plain / 8, rtol=1e-12))
    ntk = 500000 * (8 * 8.0 - 7) ** (128 / 126)
    check("rope: dynamic", np.allclose(rows[:, 2], ntk ** (-np.arange(64) / 64), rtol=1e-12))
