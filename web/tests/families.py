"""The view of families of terms. SPDX-License-Identifier: Apache-2.0"""

from checks import check, command, fixed, printed
from programs import c_program, golden, python_program


def families(page):
    for family in ("additive", "shaw", "rotary", "linear"):
        for query, strength in ((0, 1), (2, 7.5)):
            page.show("families", family=family, query=query, strength=strength)
            want = printed(command(page.code()), "Biased scores")
            nth = 2 * ["content", "additive", "shaw", "rotary", "linear"].index(family)
            found = [float(x) for x in want]
            mine = page.p.evaluate(
                "relpos.page().csv().filter(r => r[0] === '%s' && r[1] === %d).map(r => r[3])" % (family, query)
            )
            check(f"families {family} {strength}: scores", want and fixed(mine) == want, f"{mine} {found}")
            check(f"families {family} {strength}: the table", page.cells(f"token {query}", nth) == fixed(mine, 3))
            check(f"families {family}: the C program", c_program("families", page) == want)
            python_program(page)
    page.show("families")
    for nth, name in ((1, "VIT3_BIAS_PRINT"), (2, "VIT3_SHAW_PRINT"), (3, "VIT3_ROPE30"), (4, "VIT3_LINEAR_PRINT")):
        for i in range(3):
            check(
                f"families: {name} {i}",
                page.cells(f"token {i}", 2 * nth) == fixed(golden(name)[3 * i : 3 * i + 3], 3),
                str(page.cells(f"token {i}", 2 * nth)),
            )
