"""Test narrow screens, names for screen readers, colours, and printing. SPDX-License-Identifier: Apache-2.0"""

import re
from pathlib import Path

import axe_playwright_python

from checks import check
from explorer import Page, every_view


# the chosen word, whether it is in sight within the words, and how far the page is scrolled
CHOSEN = """(() => { const box = document.querySelector('.words'), all = [...box.children], at = all.findIndex(e =>
    e.getAttribute('aria-pressed') === 'true'),
    [a, b] = [box, all[at]].map(e => e.getBoundingClientRect()); return [at, b.top > a.top - 1 &&
    b.bottom < a.bottom + 1, scrollY]; })()"""


def narrow(browser):
    for width in (360, 768, 3840):
        every_view(
            browser,
            lambda page, view: check(
                f"{view} fits {width}",
                page.p.evaluate("document.documentElement.scrollWidth") <= width,
                page.p.evaluate("document.documentElement.scrollWidth"),
            ),
            viewport={"width": width, "height": 800},
        )


    page = Page(browser, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    for view, state in (("model", {}), ("model", {"source": "minilm"}),
                        ("sentence", {"text": "some words that fill several lines of a phone " * 8})):
        page.show(view, **state)
        cut = page.p.evaluate(
            """(() => { const box = document.querySelector('.words'), end = box.getBoundingClientRect().bottom;
            return [box.scrollHeight > box.clientHeight, ...[...box.children].map(e =>
            e.getBoundingClientRect()).filter(e => e.top < end - 0.5 && e.bottom > end + 0.5).map(e => [e.top, e.bottom,
            end])]; })()""")
        check(f"{view} {state}: no line of the words is cut", cut == [True], cut[:3])
        faded = []
        for top in (0, 40, 100_000):
            page.p.evaluate("top => document.querySelector('.words').scrollTop = top", top)
            page.frames()
            faded.append(page.p.evaluate("[...document.querySelector('.words').classList].filter(name => "
                                         "name.startsWith('more-')).sort().join(' ')"))
        check(f"{view} {state}: words fade where there are more", faded[0] == "more-below" and faded[2] == "more-above"
              and faded[1] in ("more-above more-below", "more-above"), faded)
        last = page.p.evaluate("document.querySelector('.words').children.length - 1")
        for query in (last, 0, last // 2):
            page.p.evaluate("query => relpos.change({query})", query)
            page.frames()
            found = page.p.evaluate(CHOSEN)
            check(f"{view} {state}: query {query} is in sight in the words, and the page is not scrolled",
                  found == [query, True, 0], found)
        page.p.evaluate("document.querySelector('.words').scrollTop = 0; scrollTo(0, 100); relpos.change({head: 1})")
        page.frames()
        check(f"{view} {state}: the reader may scroll",
              page.p.evaluate("[document.querySelector('.words').scrollTop, scrollY]") == [0, 100])
        page.p.evaluate("scrollTo(0, 0)")
    page.show("model", fresh=True)
    check("model: the query is in sight at first", page.p.evaluate(CHOSEN) == [60, True, 0], page.p.evaluate(CHOSEN))
    page.show("bias").show("model")
    check("model: and after another view", page.p.evaluate(CHOSEN) == [60, True, 0], page.p.evaluate(CHOSEN))
    page.context.close()
    for width, height, state in ((1024, 768, {}), (700, 500, {"embed": 1}), (1440, 900, {}), (390, 844, {}),
                                 (320, 568, {})):
        page = Page(browser, viewport={"width": width, "height": height})
        page.show("bias", **state)
        found = page.p.evaluate(
            """(() => { const box = of => document.querySelector(of).getBoundingClientRect(), map = box('main canvas'),
                summary = box('.sheet > summary'), scale = box('main .scale');
            return [map.width, map.height, scale.bottom, summary.height ? summary.top : innerHeight, scale.width];
            })()""")
        check(f"bias at {width} × {height}: the map is square, and its scale is in sight", abs(found[0] - found[1]) < 1
              and found[0] > 200 and found[2] <= found[3] and found[4] <= found[0] + 40, found)
        page.context.close()
    page = Page(browser, viewport={"width": 320, "height": 568})
    for view, text in (("length", "4,096 to 8,191"), ("shaw", "pairs of positions"), ("cost", "bucket,strategy"),
                       ("images", "(0,0)")):
        page.show(view)
        found = page.p.evaluate(
            """text => [[...document.querySelectorAll('main caption span')].map(e => e.getBoundingClientRect().right),
            [...document.querySelectorAll('main tbody th')].filter(e => e.textContent.startsWith(text)).map(e =>
            e.nextSibling.getBoundingClientRect().right)]""", text)
        check(f"{view} at 320: captions are not cut", all(right <= 320 for right in found[0]), found)
        check(f"{view} at 320: the first numbers of a table are in sight",
              found[1] and all(right <= 320 for right in found[1]), found)
    page.context.close()
    page = Page(browser, viewport={"width": 768, "height": 800})
    page.show("sentence", text="x" * 3000 + " and " + "y" * 3000, a="alibi")
    wide = page.p.evaluate("[document.documentElement.scrollWidth, ...[...document.querySelectorAll('main th, main "
                           "button, main figcaption, main h3')].map(e => e.getBoundingClientRect().width)]")
    check("long words fit", page.problem() == "" and max(wide) <= 768, wide)
    page.show("length")
    button = page.p.evaluate(
        """['#main input[type=file]', '#main button:not(.main)'].map((of, n) => { const style =
            getComputedStyle(document.querySelector(of), n ? undefined : '::file-selector-button');
        return ['fontSize', 'color', 'backgroundColor', 'borderTopColor', 'borderTopLeftRadius',
        'paddingTop'].map(key => style[key]); })""")
    check("the button of a file field looks as other buttons", button[0] == button[1], button)
    page.context.close()


# the labels beside (0) and below (1) the visible maps, and how far each is from the middle of its cell, in cells
LABELS = """[...document.querySelectorAll('main figure:not([hidden]) .framed')].map(frame => { const [down, canvas,
    across] = frame.children, box = canvas.getBoundingClientRect(), page = document.documentElement.clientWidth;
    return [down, across].map((svg, side) => [...svg.querySelectorAll('text')].map(text => { const at =
    text.getBoundingClientRect();
        return [text.textContent, side ? (at.left + at.right) / 2 - box.left : (at.top + at.bottom) / 2 - box.top,
        at.right <= (side ? page : box.left) && at.left >= 0 && (!side || at.top >= box.bottom)]; }))
        .concat([[box.height, box.width]]); })"""


def labels(browser):
    """Check that labels beside and below a map are at their cells, do not overlap the map and fit the page."""
    words = "the cat sat on the mat".split()
    long = "attention with extraordinarily long words has labels that are cut to fit beside the picture".split()
    for size in ((1280, 900), (390, 844), (320, 568)):
        page = Page(browser, viewport={"width": size[0], "height": size[1]})
        cases = (
            ("sentence", {"text": " ".join(words)}, 0, words, words),
            ("sentence", {"text": " ".join(long)}, 0, long, long),
            ("sentence", {"text": "word " * 60}, 0, range(60), range(60)),
            ("shaw", {}, 0, range(6), range(6)),
            ("shaw", {"clip": 2}, 4, range(-2, 3), range(4)),
            ("shaw", {"run": 1000}, 7, range(1000), range(1000)),
            ("families", {}, 0, [x / 5 for x in range(21)], range(-10, 11)),
            ("images", {"rows": 3, "columns": 4}, 0, range(-2, 3), range(-3, 4)),
            ("bias", {"q": 512, "k": 300}, 0, range(512), range(300)),
            ("bias", {"a": "relval,left=2,right=2", "q": 8, "k": 8}, 0, range(8), range(8)),
        )
        for view, state, nth, *axes in cases:
            page.show(view, **state)
            page.p.evaluate("document.querySelectorAll('main .main > div details').forEach(part => part.open = true)")
            page.frames()
            found = page.p.evaluate(LABELS)[nth]
            for side, (values, seen) in enumerate(zip(axes, found)):
                pixels, what = found[2][side], f"{view} {state} at {size[0]}, side {side}"
                count = len(values) if len(values) < 512 or view != "shaw" else 256
                texts = [str(x) if isinstance(x, str) else f"{x:g}".replace("-", "−") for x in values]
                if isinstance(values[0], str):
                    texts = ([text if text in (s[0] for s in seen)
                              else next((s[0] for s in seen if s[0][-1] == "…" and text.startswith(s[0][:-1])), text)
                              for text in texts])
                check(f"{what}: every cell with space has a label",
                      len(seen) == count if pixels / count >= 30 else len(seen) >= 2, f"{seen} {pixels / count}")
                ordered = [texts.index(text)
                           for text, *_ in seen] if len(set(texts)) == len(texts) else range(len(seen))
                places = [(n + 0.5 * len(values) / count) / len(values) * pixels for n in ordered]
                check(f"{what}: the labels are at their cells",
                      all(text in texts and abs(at - place) < max(2, pixels / count / 4)
                          for (text, at, _), place in zip(seen, places)), f"{seen} {places}")
                check(f"{what}: the labels are outside of the map and within the page", all(fits for *_, fits in seen),
                      seen)
            if view == "families":
                check(f"families at {size}: the rows have whole numbers",
                      [text for text, *_ in found[0]] == ["0", "1", "2", "3", "4"], found[0])
            check(f"{view} {state}: fits {size[0]}", page.p.evaluate("document.documentElement.scrollWidth") <= size[0])
        page.show("sentence", text=" ".join(words))
        canvas = page.p.locator("main canvas").first
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        page.p.mouse.move(box["x"] + 4.5 / 6 * box["width"], box["y"] + 1.5 / 6 * box["height"])
        said = page.p.locator("main figure .readout").first.text_content()
        cross = page.p.evaluate("(([a, b]) => [b.left - a.left, b.top - a.top])(['.framed canvas', '.cross'].map(e => "
                                "document.querySelectorAll('main "
                                "figure:not([hidden]):has(.framed)')[1].querySelector(e).getBoundingClientRect()))")
        here = [4 / 6 * box["width"], 1 / 6 * box["height"]]
        check(f"the cursor is at the cell under the mouse at {size[0]}", said.startswith("cat → the:")
              and all(abs(a - b) < 3 for a, b in zip(cross, here)), f"{said} {cross} {here}")
        page.context.close()


def names(browser):
    def call(page, view):
        bad = page.p.evaluate(
            """[...document.querySelectorAll('input, select, button, canvas[tabindex], svg.chart')].filter(e =>
                !e.closest('[hidden]') &&
            !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim())).map(e => e.outerHTML.slice(0,
            80))"""
        )
        check(f"{view}: everything has a name", not bad, bad)
        check(
            f"{view}: one h1 and one h2",
            page.p.evaluate("[document.querySelectorAll('h1').length, document.querySelectorAll('h2').length]")
            == [1, 1],
        )
        shift = page.p.evaluate(
            "new Promise(done => { let sum = 0; new PerformanceObserver(l => { for (const e of l.getEntries()) sum += "
            "e.value; }).observe({type: 'layout-shift', buffered: true}); setTimeout(() => done(sum), 100); })"
        )
        check(f"{view}: nothing jumps while it loads", shift < 0.1, shift)

    every_view(browser, call)


HYPHENS = """() => { const found = [], walk = document.createTreeWalker(document.querySelector('main'),
    NodeFilter.SHOW_TEXT), hyphen = /(^|[^\\w-])-\\s?[\\d.]/;
    for (let n; (n = walk.nextNode());)
        if (hyphen.test(n.data) && !n.parentElement.closest('pre, code, textarea, option, style, .docs')) \
found.push(n.data.slice(0, 90));
    for (const e of document.querySelectorAll('main :is([aria-label], [title])'))
        for (const name of ['aria-label', 'title']) if (hyphen.test(e.getAttribute(name) ??
        '')) found.push(e.getAttribute(name).slice(0, 90));
    return found; }"""


def minus(browser):
    """Check that negative numbers have minus signs, not hyphens."""
    page = Page(browser)
    states = {"rope": {"m": -5}, "images": {"table": "row"}, "sentence": {"a": "alibi"}, "cost": {"a": "alibi"},
              "buckets": {"bidirectional": 0}}
    for view in page.show("bias").p.evaluate("relpos.views"):
        for state in ({}, states[view]) if view in states else ({},):
            page.show(view, **state)
            page.p.evaluate("document.querySelectorAll('svg.chart[tabindex]').forEach(e => e.dispatchEvent(new "
                            "KeyboardEvent('keydown', {key: 'Home'})))")
            found = page.p.evaluate(HYPHENS)
            check(f"{view} {state}: minus signs", not found, found[:3])
    page.context.close()


def colours(browser):
    contrast = """() => { const rgb = n => { const c = document.createElement('canvas').getContext('2d');
        c.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(n); c.fillRect(0, 0, 1, 1);
        return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3); };
        const light = c => { const [r, g, b] = c.map(x => (x /= 255) <= 0.03928 ? x / 12.92 :
        ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const ratio = (a, b) => { const [x, y] = [light(rgb(a)), light(rgb(b))].sort((p, q) => q - p);
        return (x + 0.05) / (y + 0.05); };
        return [['--ink', '--bg'], ['--soft', '--bg'], ['--ink', '--page'], ['--soft', '--page'], ['--accent',
        '--page'], ['--soft', '--panel'], ['--ink', '--panel'], ['--on-accent', '--accent'], ['--bad', '--bg'], ...[0,
        1, 2, 3, 4, 5, 6, 7].map(n => [`--s${n}`, '--bg'])].map(p => [...p, ratio(...p)]); }"""
    for scheme in ("light", "dark"):
        page = Page(browser, color_scheme=scheme)
        page.show("bias")
        back = page.p.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        check(f"{scheme}: as the system", (min(map(int, re.findall("[0-9]+", back))) > 200) == (scheme == "light"),
              back)
        for a, b, ratio in page.p.evaluate(contrast):
            check(f"{scheme}: {a} on {b} can be read", ratio >= 4.5, f"{ratio:.2f}")
        other = "dark" if scheme == "light" else "light"
        page.p.select_option("#theme", other)
        page.frames()
        check(
            f"{scheme}: the other one on request",
            page.p.evaluate("getComputedStyle(document.documentElement).backgroundColor") != back,
        )
        page.p.emulate_media(media="print")
        check(f"{scheme}: paper is white", page.p.evaluate("getComputedStyle(document.documentElement).backgroundColor")
              == "rgb(255, 255, 255)")
        check(f"{scheme}: the settings are not printed", not page.p.is_visible(".controls")
              and page.p.is_visible("main canvas"))
        page.p.emulate_media(media="screen")
        page.p.wait_for_timeout(300)
        check("the colours are not in the address: a link keeps those of its reader", "theme" not in page.p.url,
              page.p.url)
        page.context.close()


def accessible(browser):
    """Check every view with axe, at the top and scrolled: axe takes links out of sight for skip links if they lead to
    an element of the page."""
    script = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
    run = ("async () => (await axe.run(document)).violations.map(v => `${v.id} ${v.nodes.length} "
           "${v.nodes[0].html.slice(0, 100)}`)")
    for size, scheme in (((1280, 800), "light"), ((390, 844), "dark")):

        def call(page, view):
            page.until("!!relpos.page().csv()?.length")
            page.p.evaluate(script)
            found = page.p.evaluate(run)
            check(f"{view}, {scheme}: axe", not found, found)

        every_view(browser, call, viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = Page(browser, viewport={"width": 320, "height": 640}, has_touch=True, is_mobile=True)
    for view in ("images", "families", "story-bias"):
        page.show(view, fresh=True).p.evaluate(script)
        for left, top in ((0, 0), (10_000, 0), (10_000, 500)):
            page.p.evaluate("([left, top]) => { nav.scrollLeft = left; scrollTo(0, top); }", [left, top])
            found = page.p.evaluate(run)
            check(f"{view}, scrolled by {left}, {top}: axe", not found, found)
    page.context.close()
