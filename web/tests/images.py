"""The view of images. SPDX-License-Identifier: Apache-2.0"""

import json
import re

from checks import check, command, fixed
from programs import c_program, golden


def images(page):
    for state in ({}, {"rows": 3, "columns": 5, "extra": 1, "patch": 0}, {"kind": "axial", "rows": 2, "columns": 7, "patch": 13}):
        page.show("images", **state)
        found = json.loads(command(page.code().splitlines()[1].split("#")[0]))
        check(f"images {state}: every number", fixed([row[3] for row in page.csv()[1:]]) == fixed(found["bias"]))
        query = page.p.evaluate("relpos.state().patch")
        digits = 2 if state.get("kind") == "axial" else 0
        shown = page.p.evaluate(
            "[...document.querySelectorAll('main .row > button[aria-label], .grid button')].map(b => b.textContent.replace('class token: ', ''))"
        )
        shown = [x for x in shown if re.fullmatch(r"-?[\d.]+", x)]
        check(
            f"images {state}: patches",
            shown == fixed(found["bias"][0][query], digits),
            f"{shown[:5]} {fixed(found['bias'][0][query], digits)[:5]}",
        )
    page.show("images")
    for nth, name in enumerate(("VIT4_CONTENT", "VIT4_ABSOLUTE", "VIT4_RELATIVE")):
        for i, row in enumerate(("(0,0)", "(0,1)", "(1,0)", "(1,1)")):
            check(
                f"images: {name} {row}",
                page.cells(row, 2 * nth) == fixed(golden(name)[4 * i : 4 * i + 4], 3),
                str(page.cells(row, 2 * nth)),
            )
    check("images: the C program", c_program("images", page) == fixed([row[3] for row in page.csv()[1 + 5 * 16 : 1 + 6 * 16]]))
