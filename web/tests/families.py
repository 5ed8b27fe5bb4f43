"""Test the view of families of terms. SPDX-License-Identifier: Apache-2.0"""

import re

import numpy as np

from calculations import cells, parts, value_of, wrong_cells
from checks import check, command, fixed, printed
from programs import c_program, golden, python_program


def reading(page):
    """Return the readout of the map that compares content with position."""
    return page.p.locator("figure", has_text="for query").locator(".readout").text_content()


def leaders(weights):
    """Return the tokens with the largest weight."""
    return [j for j, weight in enumerate(weights) if max(weights) - weight < 1e-9]


def contest(page, family):
    """Check the map that compares content with position: the cell of the current settings has the weight that the
    command prints, and names the winner. Check the sentence that names the heaviest tokens with positions, and by
    content alone."""
    now, numbers = page.p.evaluate("relpos.state()"), page.p.evaluate("relpos.page().numbers()")
    weights = [float(x) for x in re.findall(r"A\[.*?\] = (\S+) \(", command(page.code()))]
    liked, single = now["relevant"], weights.count(max(weights)) == 1
    if now["strength"] in numbers["strengths"] and now["content"] in numbers["contents"]:
        cell = numbers["grid"][numbers["contents"].index(now["content"])][numbers["strengths"].index(now["strength"])]
        check(f"families {family} {now}: the cell", fixed(cell) == fixed(weights), f"{cell} {weights}")
        readout = reading(page)
        check(f"families {family} {now}: the readout",
              readout.startswith(
                  f"content {now['content']}, positions {now['strength']}: weight {weights[liked]:.4f}; "), readout)
        check(f"families {family} {now}: who wins",
              not single or ("content wins" in readout or "also prefer it" in readout)
              == (weights.index(max(weights)) == liked), f"{readout} {weights}")
    x = np.reshape(golden("VIT3_X"), (3, 2))
    keys = x * np.where(np.arange(3) == liked, now["content"], 1)[:, None]
    said, plain = page.p.locator("main p[role=status]").first.text_content(), leaders(keys @ x[now["query"]])
    mine = [[int(j) for j in re.findall(r"\d", part)] for part in said.partition(": ")[2].split("; by content alone, ")]
    check(f"families {family} {now}: the sentence", said.startswith(f"Query {now['query']}: ")
          and (not single or mine[0] == leaders(weights)) and mine[-1] == plain, f"{said} {weights} {plain}")


def families(page):
    for family in ("additive", "shaw", "rotary", "linear"):
        for query, strength, content in ((0, 1, 1), (2, 7.5, 1), (1, 6, 2.4)):
            page.show("families", family=family, query=query, strength=strength, content=content)
            want = printed(command(page.code()), "Biased scores")
            page.p.locator("summary", has_text="The other families").evaluate("e => e.parentNode.open = true")
            nth = 2  # after the tables of the content
            found = [float(x) for x in want]
            mine = page.p.evaluate(
                "relpos.page().csv().filter(r => r[0] === '%s' && r[1] === %d).map(r => r[3])" % (family, query)
            )
            check(f"families {family} {strength}: scores", want and fixed(mine) == want, f"{mine} {found}")
            check(f"families {family} {strength}: the table", page.cells(f"token {query}", nth) == fixed(mine, 3))
            computed, wrong = wrong_cells(cells(page), 2e-3)
            check(f"families {family} {strength}: every cell and its calculation", computed == 2 * 5 * 9 and not wrong,
                  f"{computed} {wrong[:3]}")
            said = page.p.locator("figure", has_text=": scores").nth(1).locator(".readout").text_content()
            calculation, value = parts(said)
            check(f"families {family} {strength}: the map", [value] == fixed(mine[0])
                  and abs(value_of(calculation) - mine[0]) < 2e-3 * max(1, abs(mine[0])), f"{said} {mine}")
            check(f"families {family}: the C program",
                  [x.replace("-0.0000", "0.0000") for x in c_program("families", page)] == want)
            python_program(page)
            contest(page, family)
    turned = [page.show("families", family="rotary", strength=s).p.evaluate("relpos.page().numbers().rotary")
              for s in (1, 2, 13)]
    check("families: the strength rotates further", turned[0] != turned[1] and fixed(turned[0]) == fixed(turned[2]),
          turned)
    grid = np.array(page.show("families", family="linear", query=0,
                              relevant=2).p.evaluate("relpos.page().numbers().grid"))
    wins = grid.argmax(axis=-1) == 2  # negative strengths lower the scores of keys to the right
    check("families: a negative bias wins over weak content, and strong content over it",
          not wins[5, 5] and not wins[12, 0] and wins[20, 0]
          and (np.diff(wins.astype(int), axis=0)[3:, :10] >= 0).all(), wins.astype(int))
    for strength, content, verdict in ((10, 0, "positions also prefer it"), (10, 4, "positions also prefer it"),
                                       (-10, 4, "content wins"), (-10, 2, "overrides it"), (-10, 0, "too weak")):
        page.show("families", family="linear", query=0, relevant=2, strength=strength, content=content)
        check(f"families: positions {strength}, content {content}: {verdict}", verdict in reading(page), reading(page))
    page.show("families")
    check("families opens where the position overrides the content", "position overrides it" in reading(page),
          reading(page))
    for state, want in (
        ({"query": 1, "strength": 5}, "Query 1: token 0 is heaviest; by content alone, tokens 1 and 2 tie."),
        ({"query": 1, "strength": 0}, "Query 1: tokens 1 and 2 tie, with and without positions."),
        ({"query": 2, "strength": 0}, "Query 2: token 2 is heaviest, with and without positions."),
    ):
        said = page.show("families", family="additive", **state).p.locator("main p[role=status]").first.text_content()
        check(f"families {state}: the heaviest tokens", said == want, said)
    page.show("families", strength=1)
    for nth, name in ((1, "VIT3_BIAS_PRINT"), (2, "VIT3_SHAW_PRINT"), (3, "VIT3_ROPE30"), (4, "VIT3_LINEAR_PRINT")):
        for i in range(3):
            check(
                f"families: {name} {i}",
                page.cells(f"token {i}", 2 * nth) == fixed(golden(name)[3 * i : 3 * i + 3], 3),
                str(page.cells(f"token {i}", 2 * nth)),
            )
