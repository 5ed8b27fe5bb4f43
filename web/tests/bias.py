"""Test the view of biases: compare every number of a term with `relpos bias`. SPDX-License-Identifier: Apache-2.0"""

import json
import re

import numpy as np

from calculations import parts, value_of
from checks import check, command, fixed
from programs import c_program, python_program


ENTRIES_FIRST = ("t5", "bucket", "swin")  # tables of [entries, heads]; the others have [heads, entries]
computed = set()


def calculations(page, state, now, want):
    """Check that the calculations shown for the first column and some other cells give the numbers that `relpos bias`
    prints."""
    kinds = {text.split(",")[0] for text in (now["a"], now["b"]) if text}
    figure = page.p.locator("figure:not([hidden])").nth(2 if now["b"] else 0)
    for r, c in {(r, 0) for r in range(0, now["q"], 5)} | {(0, now["k"] - 1), (now["q"] // 2, now["k"] // 2)}:
        canvas = figure.locator("canvas[tabindex]")
        box = canvas.bounding_box()
        canvas.hover(position={"x": (c + 0.5) / now["k"] * box["width"], "y": (r + 0.5) / now["q"] * box["height"]})
        text = figure.locator(".readout").text_content()
        calculation, value = parts(text)
        check(f"bias {state}: cell {r}, {c}", text.startswith(f"query {r}, key {c},")
              and value == ("masked" if want[r, c] == -np.inf else fixed(want[r, c])[0]), text)
        found = value_of(calculation, kinds & set(ENTRIES_FIRST))
        if found is not None:
            computed.update(kinds)
            check(f"bias {state}: its calculation", abs(found - want[r, c]) <= 1e-5 * (1 + abs(want[r, c])),
                  f"{text} {want[r, c]}")


# of each kind of term: the numbers that differ, bit for bit, between rows computed together, whose biases are added by
# offset, and single rows
ROWS = """() => {
    const {core} = relpos, lenQ = 9, lenK = 13, dimK = 8, wave = n => Float64Array.from({length: n}, (_, i) =>
    Math.sin(7 * i) + i % 3),
          [q, k, v] = [lenQ, lenK, lenK].map(n => wave(2 * n * dimK)), found = {};
    for (const kind of Object.keys(core.kindOf))
        for (const [how, more] of Object.entries({plain: {}, offset: {qOffset: 4}, causal: {masks:
        [{...core.masks.find(({name}) => name === 'causal'), values: []}]}, cap: {softcap: 5}, two: {also:
        ['alibi']}})) {
            const {also = [], ...rest} = more;
            try {
                core.problem({heads: 2, lenQ, lenK, dimK, terms: [kind, ...also], q, k, v, ...rest});
            } catch { continue; }  // the term needs an array or other sizes
            for (const what of ['scores', 'weights', 'out', 'masked']) {
                let all;
                try { all = core.rows(what, 1); } catch { continue; }
                const each = all.length / lenQ;
                for (let i = 0; i < lenQ; i++)
                    if (!core.rows(what, 1, i, 1).every((x, j) => Object.is(x, all[i * each + j]))) (found.differ ??=
                    []).push([kind, how, what, i]);
                found.compared = (found.compared ?? 0) + 1;
            }
        }
    return found;
}"""


def rows_together(page):
    """Check that rows that are computed together have the bits of single rows, which the library's reference
    computes."""
    page.show("bias")
    found = page.p.evaluate(ROWS)
    check("rows computed together have the bits of single rows", not found.get("differ") and found["compared"] > 200,
          f"{found.get('differ', [])[:5]} {found['compared']}")


def bias(page):
    rows_together(page)
    terms = page.show("bias").p.evaluate(
        "relpos.core.kinds.filter(k => k.bias && k.name !== 'dense').map(k => [k.name, "
        "relpos.facts.terms[k.name].picture.split(' ')[0] || k.name])"
    )
    check("view a has every bias", len(terms) > 12)
    states = [dict(a=text) for _, text in terms if "grid" not in text] + [
        dict(a=text, q=tokens, k=tokens)
        for _, text in terms
        if "grid" in text
        for tokens in [int(np.prod([int(n) for n in re.search(r"(\d+)x(\d+)", text).groups()]))]
    ]
    states += [
        dict(a="alibi", heads=6, q=20, k=33, offset=13, head=5),
        dict(a="t5,bidirectional=0", b="linear,left=0.5,right=2", q=40, k=40, heads=2),
        dict(a="log,lambda=0.3", b="kerple", q=17, k=9, heads=3, head=1, query=4),
        dict(a="table,left=5,right=2", b="forget", q=12, k=12, heads=2),
        dict(a="alibi", b="t5,buckets=8", q=31, k=4, heads=3, offset=-2),
        dict(a="linear,left=0.5,right=2", q=9, k=1, heads=1),
    ]
    for state in states:
        page.show("bias", **{"q": 24, "k": 24, **state})
        check(f"bias {state}: no problem", page.problem() == "", page.problem())
        found = json.loads(command(page.code().splitlines()[1].split("#")[0]))
        now = page.p.evaluate("relpos.state()")
        key = "sum" if now["b"] else "a"
        page.p.evaluate("save => relpos.change({save})", key)
        page.frames()
        mine = [row[3] for row in page.csv()[1:]]
        want = np.array([[[-np.inf if x is None else x for x in row] for row in head] for head in found["bias"]],
                        dtype=float)
        mine = [-np.inf if x is None else x for x in mine]
        check(f"bias {state}: every number", fixed(mine) == fixed(want), f"{mine[:4]} {want.ravel()[:4]}")
        query = min(now["query"], now["q"] - 1)
        check(f"bias {state}: the map", fixed(page.p.evaluate("relpos.page().numbers().map()"))
              == fixed(want[now["head"]]))
        curves = page.p.evaluate("relpos.page().numbers().curves()")
        check(
            f"bias {state}: the curves",
            len(curves) == min(now["heads"], 8) and all(fixed(y) == fixed(want[n][query]) for n, *y in curves),
        )
        read = page.p.evaluate(
            "document.querySelectorAll('figure:not([hidden]) .readout')[%d].textContent" % (2 if now["b"] else 0)
        )
        here = want[now["head"], query, 0]
        calculation, value = parts(read)
        check(f"bias {state}: the text of the cursor", value == ("masked" if here == -np.inf else fixed([here])[0]),
              read)
        calculations(page, state, now, want[now["head"]])
        if "replace them by your arrays" not in page.code("C")[:120]:
            check(f"bias {state}: the C program",
                  c_program("bias", page) == [f"{x:.4f}" for x in want[now["head"], query]])
        else:
            check(f"bias {state}: the C program runs", len(c_program("bias", page)) == now["k"])
        python = python_program(page)
        if python and "default_rng" not in page.code("Python"):
            check(f"bias {state}: the Python", python.strip() == str(want[now["head"]].round(4)), python[:200])
    page.show("bias", a="t5", heads=6, q=40, k=40, head=5)
    page.download("Save the arrays")
    want = json.loads(command(page.code().splitlines()[2].split("#")[0]))["bias"]
    check("bias: t5 is a trained table", page.problem() == "" and fixed([row[3] for row in page.csv()[1:]])
          == fixed(want), page.problem())
    check("bias: later keys do not glow", all(0 < np.abs(np.triu(head, 1)).max() < np.abs(head).max() / 2
                                              for head in want), want)
    page.show("bias", a="t5,bidirectional=0,buckets=16,table=trained")
    check("bias: another shape says what the table needs",
          "buckets=32,max_distance=128,bidirectional=0" in page.problem(), page.problem())
    page.show("bias", a="alibi", b="linear,left=0.5,right=2", q=20, k=20)
    scales = page.p.evaluate("[...document.querySelectorAll('figure:not([hidden]) .scale')].map(e => e.textContent)")
    check("bias: the four maps share their colours", len(scales) == 4 and len(set(scales)) == 1, scales)
    faint = lambda: re.search(r"(A|B) looks pale", page.p.text_content("main")) is not None
    check("bias: no map is called pale", not faint())
    maps = page.p.locator("figure:not([hidden])", has=page.p.locator("canvas[tabindex]"))
    tops, scales = page.p.evaluate("['canvas[tabindex]', '.scale'].map(what => "
                                   "[...document.querySelectorAll(`figure:not([hidden]) ${what}`)].map(e => "
                                   "e.getBoundingClientRect().top))")
    check("bias: maps beside each other begin at the same height, and their scales too", len(set(tops)) <= 2
          and len(tops) == 4 and len(set(scales)) == len(set(tops)), f"{tops} {scales}")
    for a, b, row in (("alibi", "", True), ("alibi", "t5", False)):  # a single map has the curve beside it
        page.show("bias", fresh=True, a=a, b=b)
        page.frames()
        places = page.p.evaluate("['figure:not([hidden]) canvas[tabindex]', 'svg.chart'].map(what => "
                                 "document.querySelector(`.beside ${what}`).getBoundingClientRect()).map(r => [r.left, "
                                 "r.right, r.top, r.bottom])")
        check(f"bias {a} {b}: the place of the curve",
              (places[1][0] >= places[0][1] and abs(places[1][2] - places[0][2]) < 40) == row, places)
    page.show("bias", a="alibi", b="linear,left=0.5,right=2", q=20, k=20)
    maps.first.scroll_into_view_if_needed()
    box = maps.first.locator("canvas").first.bounding_box()
    page.p.mouse.move(box["x"] + 3.5 / 20 * box["width"], box["y"] + 7.5 / 20 * box["height"])
    said = maps.locator(".readout").all_text_contents()
    check("bias: the cursor moves in all maps",
          len(said) == 4 and all(text.startswith("query 7, key 3, offset −4: ") for text in said), said)
    check("bias: and is marked", page.p.locator(".cross:not([hidden])").count() == 3)
    page.p.mouse.move(0, 0)
    check("bias: until the mouse leaves", page.p.locator(".cross:not([hidden])").count() == 0)
    page.show("bias", a="t5", b="alibi")
    check("bias: a map that looks pale is named",
          page.p.evaluate("document.querySelector('main').textContent.includes('A looks pale')") and faint())
    page.show("bias", a="alibi", b="linear,left=0.5,right=2", q=20, k=20)
    page.p.focus("main svg.chart")
    for key, at in (("Home", 0), ("ArrowRight", 1), ("End", 19), ("ArrowLeft", 18)):
        page.p.keyboard.press(key)
        curves = page.p.evaluate("relpos.page().numbers().curves()")
        want = [f"offset {at - 19}", *(f"head {n} {fixed([y[at]])[0]}" for n, *y in curves)]
        said = page.p.locator("figure .tip div").all_text_contents()
        check(f"bias: the values of a chart, {key}", [text.replace("−", "-") for text in said] == want,
              f"{said} {want}")
    box = page.p.locator("main svg.chart").bounding_box()
    page.p.mouse.move(box["x"] + 59 / 720 * box["width"], box["y"] + 80)
    check("bias: under the mouse too", page.p.locator("figure .tip div").first.text_content().startswith("offset −"))
    plain = {"log", "linear", "alibi", "kerple", "table", "t5", "bucket", "swin", "axial", "real", "sandwich"}
    check("terms whose calculations are numbers", computed >= plain, sorted(plain - computed))
