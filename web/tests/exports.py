"""Test the pictures and tables that the page saves. SPDX-License-Identifier: Apache-2.0"""

import base64
import struct
import xml.dom.minidom

from checks import check, command
from explorer import Page
from screens import COLOURS
from story import STEPS


# the labels beside and below each visible map
LABELS = """[...document.querySelectorAll('main figure:not([hidden]) .framed')].map(({children: [down, , across]}) =>
    [down, across].map(svg => [...svg.querySelectorAll('text')].map(text => text.textContent)))"""


def exports(browser):
    page = Page(browser)
    which = {"rope": {"save": "waves"}, "cost": {"save": "times", "most": 256}}
    charts = {
        "sentence": ("Weights of “The”", ["without a term", "log,lambda=0.3"]),
        "buckets": ("The bucket of every offset: log, 32 buckets, maximum distance 128", []),
        "rope": ("Wavelength of each pair", ["none", "dynamic NTK", "llama3"]),
        "cost": ("Milliseconds a call", ["no bias", "relpos, bias by offset"]),
    }
    for view in page.show("bias").p.evaluate("relpos.views"):
        # reload the page, because a browser limits the downloads of one page
        page.show(view, fresh=True, **which.get(view, {}))
        if view == "cost":
            page.p.click("#measure")
            page.p.wait_for_selector("text=Measured:")
            page.frames()
        png, svg, csv = (page.download(name) for name in ("PNG", "SVG", "CSV"))
        check(
            f"{view}: PNG", png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
            and struct.unpack(">I", png.read_bytes()[16:20])[0] > 300
        )
        text = svg.read_text()
        check(
            f"{view}: SVG", xml.dom.minidom.parseString(text).documentElement.tagName == "svg"
            and ("var(" in text) == (view in STEPS), text[:200]
        )
        if view in charts:
            tree = xml.dom.minidom.parseString(text).documentElement
            said = ["".join(t.data for t in x.childNodes if t.nodeType == t.TEXT_NODE)
                    for x in tree.getElementsByTagName("text")]
            title, keys = charts[view]
            check(f"{view}: its title and legend are saved", said[0].startswith(title) and all(k in said for k in keys),
                  said)
            check(f"{view}: and the address", said[-1].startswith(f"relpos explorer #{view}"), said[-1])
            size = [2 * int(x) for x in tree.getAttribute("viewBox").split()[2:]]
            check(f"{view}: in the PNG too", [*struct.unpack(">II", png.read_bytes()[16:24])] == size, size)
        elif view == "bias":
            said = [x.firstChild.data for x in xml.dom.minidom.parseString(text).getElementsByTagName("text")]
            counts = "0 10 20 30 40 50 60".split()
            want = ["A: alibi, head 0", *counts, "← query", *counts, "key →", "bias", "−31.5000", "0.0000",
                    "relpos explorer #bias"]
            check("bias: the title, axes, scale and address are saved", said == want, said)
        elif view in STEPS:
            many, share = page.p.evaluate(COLOURS, base64.b64encode(png.read_bytes()).decode())
            check(f"{view}: the picture is saved", many > 8 and share > 0.02, f"{many} {share}")
            browser_page = page.context.new_page()
            browser_page.goto(svg.as_uri())
            below = browser_page.evaluate("(({bottom}) => [...document.querySelectorAll('.picture *')].map(e => "
                                          "e.getBoundingClientRect()).filter(r => r.height && r.bottom > bottom + "
                                          "1).length)(document.querySelector('foreignObject').getBoundingClientRect())")
            browser_page.close()
            check(f"{view}: nothing is cut at its end", below == 0, below)
            words = page.p.evaluate("document.createTreeWalker(document.querySelector('.picture'), "
                                    "NodeFilter.SHOW_TEXT).nextNode().data")
            check(f"{view}: with its text", words in text and page.p.text_content("h2") in text
                  and f"relpos explorer #{view}" in text)
        rows = [line.split(",") for line in csv.read_text().splitlines()]
        check(
            f"{view}: CSV",
            len(rows) > 3 and len(rows) == len(page.csv()) and view != "bias"
            or rows[0] == ["head", "query", "key", "bias"],
            rows[:2],
        )
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for view in ("story-dials", "bias"):
        page.show(view, fresh=True)
        page.p.evaluate("relpos.change({at: 77, q: 33})")
        page.frames()
        page.p.get_by_role("button", name="Copy link").click()
        page.until("document.querySelector('[aria-label=Save] [role=status]').textContent === 'copied'")
        copied = page.p.evaluate("navigator.clipboard.readText()")
        check(f"{view}: the link is copied", copied == page.p.url and ("at=77" in copied or "q=33" in copied), copied)
    words = "The cat sat on extraordinarily".split()
    for view, state, nth, beside in (("sentence", {"text": " ".join(words), "save": "map"}, 1, words),
                                     ("images", {"rows": 3, "columns": 4, "save": "offsets"}, 0, [-2, -1, 0, 1, 2])):
        page.show(view, fresh=True, **state)
        text = xml.dom.minidom.parseString(page.download("SVG").read_text()).getElementsByTagName("text")
        said, want = [x.firstChild.data for x in text], page.p.evaluate(LABELS)[nth]
        names = [at for at, x in enumerate(said) if "←" in x or "→" in x]
        check(f"{view}: a saved map has the labels of the page",
              [said[1 : names[0]], said[names[0] + 1 : names[1]]] == want and len(want[0]) == len(beside)
              and all(a == str(b).replace("-", "−") or str(b).startswith(a[:-1]) for a, b in zip(want[0], beside)),
              f"{said} {want}")
    page.show("sentence", text=" ".join(words), save="map")
    all_, plain = page.p.evaluate("['all', 'plain'].map(key => relpos.page().numbers()[key].map(row => "
                                  "[...row.weights]))")
    check("sentence: the table of the map",
          page.csv()[1:] == [[i, j, all_[i][j], plain[i][j]] for i in range(5) for j in range(5)])
    page.show("cost", a="t5", save="cache", step=3)
    check("cost: the map of the cache",
          [row[:2] for row in page.csv()[1:]] == [[t, j] for t in range(4) for j in range(t + 1)])
    page.show("rope", save="product")
    check("rope: the product", len(page.csv()) == 130 and page.csv()[0] == ["offset", "product"])
    page.show("bias", fresh=True, q=2048, k=2048, heads=4)
    page.p.get_by_role("button", name="CSV", exact=True).click()
    page.until("document.querySelector('[aria-label=Save] [role=status]').textContent.includes('has 16777216 lines')")
    page.show("bias", q=500, k=500, heads=1)
    # Let the page's clock advance by a second at every call, so the page pauses after every row of the table.
    page.p.evaluate("let now = 0; performance.now = () => now += 1000; globalThis.turns = 0; const step = () => { "
                    "turns += document.querySelector('[aria-label=Save] [role=status]').textContent === 'writing …'; "
                    "setTimeout(step); }; step();")
    lines = page.download("CSV").read_text().splitlines()
    turns = page.p.evaluate("delete performance.now; turns")
    check("a long table", len(lines) == 500 * 500 + 1
          and float(lines[-1].split(",")[3]) == page.p.evaluate("relpos.page().numbers().map().at(-1)"), lines[-1])
    check("the page lives while a table is written", turns >= 10, turns)
    page.show("bias", q=9, k=7, heads=2)
    mine = [line.split(",") for line in page.download("CSV").read_text().splitlines()]
    want = [line.split(",") for line in command("relpos bias alibi --q 9 --k 7 --heads 2 -o -").splitlines()]
    check(
        "the CSV is that of relpos bias -o -",
        [row[:3] for row in mine] == [row[:3] for row in want]
        and [float(r[3]) for r in mine[1:]] == [float(r[3]) for r in want[1:]],
    )
    page.context.close()
