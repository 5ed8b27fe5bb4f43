"""Test the view of images. SPDX-License-Identifier: Apache-2.0"""

import json
import re

import numpy as np

from checks import check, command, fixed, root
from programs import c_program, golden, python_program


def offsets(page):
    """Compare the map of offsets, (2H-1) x (2W-1), with the biases that `relpos bias` prints for every pair. Also test
    mouse and keyboard."""
    for state in ({}, {"table": "entries", "rows": 4, "columns": 4}, {"table": "near"},
                  {"table": "row", "rows": 3, "columns": 5, "extra": 1, "patch": 5},
                  {"table": "below", "rows": 5, "columns": 2, "patch": 5},
                  {"table": "trained2", "rows": 7, "columns": 7, "patch": 24},
                  {"kind": "axial", "rows": 3, "columns": 4}):
        page.show("images", **state)
        lines = page.code().splitlines()
        found = json.loads(command("\n".join([*lines[:-2], lines[-1]])))["bias"][0]
        now = page.p.evaluate("relpos.state()")
        rows, columns = now["rows"], now["columns"]
        extra = len(found) - rows * columns
        page.p.evaluate("relpos.change({save: 'offsets'})")
        page.frames()
        mine = {(down, right): x for down, right, x in page.csv()[1:]}
        check(f"images {state}: as many offsets", len(mine) == (2 * rows - 1) * (2 * columns - 1), len(mine))
        wrong = [
            (i, j)
            for i in range(rows * columns)
            for j in range(rows * columns)
            if fixed([found[i + extra][j + extra]])
            != fixed([mine[j // columns - i // columns, j % columns - i % columns]])
        ]
        check(f"images {state}: every pair reads the entry of its offset", not wrong, wrong[:5])
        if state.get("table", "entries") != "entries":
            # row (dy + 6) 13 + dx + 6 of the file, where dy and dx are query minus key
            if state["table"] == "trained2":
                file = (root / "examples/data/window.safetensors").read_bytes()
                learned = np.frombuffer(file, "<f4",
                                        offset=8 + int.from_bytes(file[:8], "little")).reshape(13, 13, 4)[::-1, ::-1, 2]
                check("images: the trained table",
                      all(abs(mine[dy, dx] - learned[dy + 6, dx + 6]) < 1e-4 for dy, dx in mine), mine)
            else:
                check(f"images {state}: the structure", mine[0, 0] == 0 and len(set(mine.values())) > 3, mine)
            text = c_program("images", page)
            check(f"images {state}: the C program", text == fixed(found[now["patch"]]), text)
        python_program(page)
    page.p.mouse.move(0, 0)  # a map under the mouse would show the value there
    page.show("images", table="near", rows=4, columns=4, patch=5)
    figure = page.p.locator("figure", has=page.p.locator("figcaption", has_text="Every offset: 7 × 7"))
    said = figure.locator(".readout")
    check("images: the offset itself", said.text_content() == "the patch itself: table[(0 + 3) · 7 + (0 + 3), 0] = "
                                                              "0.0000; 16 of 256 pairs read it", said.text_content())
    page.p.locator(".grid button").nth(3).hover()
    check("images: a patch under the mouse", said.text_content().startswith("1 up, 2 right: ")
          and said.text_content().endswith("6 of 256 pairs read it"), said.text_content())
    figure.locator("canvas[tabindex]").focus()
    page.p.keyboard.press("ArrowDown")
    page.frames()
    check("images: the next offset by keyboard", said.text_content().startswith("2 right: ")
          and page.p.evaluate("relpos.state().right") == 2, said.text_content())
    stops = "[...document.querySelectorAll('.grid button')].filter(b => b.tabIndex === 0).map(b => b.ariaPressed)"
    check("images: Tab reaches one patch, the chosen one", page.p.evaluate(stops) == ["true"], page.p.evaluate(stops))
    check("images: its patch is outlined", page.p.evaluate("[...document.querySelectorAll('.grid button')].findIndex(b "
                                                           "=> b.classList.contains('look'))") == 7)


def moved(page):
    """Compare the object that moves with `relpos shift`: every number, and what the page shows for each shift."""
    kinds = ("absolute", "relative", "windows", "shifted_windows")
    said = page.p.locator("main div > svg[role=img] ~ p[role=status]")
    page.show("images", save="moved")
    line = page.p.locator("main code", has_text="relpos shift").text_content()
    full = json.loads(command(line[:line.index(" --by")] + " --json"))
    expected = [[s["by"], *(s[kind]["pairs" if "windows" in kind else "change"] for kind in kinds)]
                for s in full["shifts"]]
    found = page.csv()[1:]
    check("images: the numbers of relpos shift", len(found) == 7 and np.allclose(found, expected, rtol=1e-12, atol=0),
          f"{found} {expected}")
    check("images: only absolute positions change scores", all(row[2] == 0 for row in found)
          and all(row[1] > 0.1 for row in found[1:]), found)
    for by, row in enumerate(expected):
        page.show("images", moved=by)
        line = page.p.locator("main code", has_text="relpos shift").text_content()
        one = json.loads(command(line + " --json"))["shifts"]
        check(f"images, moved by {by}: the command", [s["by"] for s in one] == [by], line)
        shown = [*fixed(row[1:3]), *map(str, row[3:])]
        numbers = re.findall(r"\d+\.\d{4}|\d+(?= of 16 pairs)|\d+(?=\.$)", said.text_content())
        check(f"images, moved by {by}: the sentence", numbers == shown, f"{said.text_content()} {shown}")
        maps = page.p.evaluate("relpos.page().numbers().moved")
        check(f"images, moved by {by}: the maps", [len(x) for x in maps] == [16, 16]
              and np.allclose(np.abs(maps).max(axis=1), row[1:3], rtol=1e-12, atol=0), maps)
        marked = page.p.locator("main th.mark").all_text_contents()
        check(f"images, moved by {by}: the marked row", marked == [str(by)], marked)
        label = page.p.locator("main svg[role=img][aria-label^='A grid of 8 × 8']").get_attribute("aria-label")
        check(f"images, moved by {by}: the picture", f"rows and columns {by} to {by + 1}." in label, label)
    page.p.get_by_label("Object moved by").first.focus()
    page.p.keyboard.press("ArrowLeft")
    page.frames()
    check("images: the arrow keys move the object", page.p.evaluate("relpos.state().moved") == 5
          and said.text_content().startswith("Moved by 5: "), said.text_content())


def images(page):
    for state in ({}, {"table": "entries", "rows": 4, "columns": 4, "patch": 5},
                  {"rows": 3, "columns": 5, "extra": 1, "patch": 0},
                  {"kind": "axial", "rows": 2, "columns": 7, "patch": 13}):
        page.show("images", **state)
        lines = page.code().splitlines()
        found = json.loads(command("\n".join([*lines[:-2], lines[-1]])))
        check(f"images {state}: every number", fixed([row[3] for row in page.csv()[1:]]) == fixed(found["bias"]))
        query = page.p.evaluate("relpos.state().patch")
        digits = 0 if state.get("table") == "entries" else 2
        shown = page.p.evaluate(
            "[...document.querySelectorAll('main .row > button[aria-label], .grid button')].map(b => "
            "b.textContent.replace('class token: ', '').replace('−', '-'))"
        )
        shown = [x for x in shown if re.fullmatch(r"-?[\d.]+", x)]
        check(
            f"images {state}: patches",
            shown == fixed(found["bias"][0][query], digits),
            f"{shown[:5]} {fixed(found['bias'][0][query], digits)[:5]}",
        )
    offsets(page)
    moved(page)
    page.show("images", fresh=True, save="patches")
    bias = (json.loads(command(page.code().splitlines()[0] + "\n" + page.code().splitlines()[2]))["bias"][0][24]
            if len(page.code().splitlines()) > 2 else None)
    rows = page.csv()[1:]
    weights = np.exp([row[1] for row in rows])
    check("images: the picture's numbers", len(rows) == 49 and rows[8][0] == "row 1, column 1"
          and np.allclose([row[2] for row in rows], weights / weights.sum(), rtol=1e-12)
          and (bias is None or fixed([row[1] for row in rows]) == fixed(bias)), rows[:2])
    page.show("images", fresh=True)
    readings = lambda: page.p.locator("main figure .readout").all_text_contents()
    value = lambda text: text.rsplit("= ", 1)[1].split(";")[0]
    check("images: both maps mark the same pair", value(readings()[0]) == value(readings()[1])
          and "row 3, column 3 → row 3, column 3" in readings()[1], readings())
    page.p.locator("main figure canvas").first.focus()
    page.p.keyboard.press("ArrowRight")
    page.frames()
    check("images: and another offset is marked in both", value(readings()[0]) == value(readings()[1])
          and "row 3, column 3 → row 3, column 4" in readings()[1], readings())
    page.show("images")
    for nth, name in enumerate(("VIT4_CONTENT", "VIT4_ABSOLUTE", "VIT4_RELATIVE")):
        for i, row in enumerate(("(0,0)", "(0,1)", "(1,0)", "(1,1)")):
            check(
                f"images: {name} {row}",
                page.cells(row, 2 * nth) == fixed(golden(name)[4 * i : 4 * i + 4], 3),
                str(page.cells(row, 2 * nth)),
            )
    check("images: the C program",
          c_program("images", page) == fixed([row[3] for row in page.csv()[1 + 24 * 49 : 1 + 25 * 49]]))
    bias = np.array([row[3] for row in page.csv()[1:]]).reshape(49, 49)[24]
    weights = np.exp(bias) / np.exp(bias).sum()
    found = (np.array(page.p.evaluate("[...document.querySelectorAll('.grid button')].map(b => "
                                      "[+b.ariaLabel.match(/weight ([\\d.]+)/)[1], "
                                      "+getComputedStyle(b).backgroundColor.match(/[\\d.]+/g)[3]])")))
    off = np.abs(found - np.stack([weights, 0.8 * (weights.max() - weights) / np.ptp(weights)], 1)).max(0)
    # three digits; the browser rounds an opacity to 8 bits, and prints it with the fewest digits that give these bits
    check("images: it opens with a picture, and the weight of a patch lifts the veil over it",
          off[0] <= 5e-4 and off[1] <= 5e-4 + 1 / 255
          and page.p.evaluate("getComputedStyle(document.querySelector('.grid')).backgroundImage.startsWith('url')"),
          off)
    check("images: the numbers are folded", not page.p.locator("main details:not([open]) table").first.is_visible()
          and page.cells("row 3")[3] == fixed([bias[24]], 2)[0], page.cells("row 3"))
