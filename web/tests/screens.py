"""Test the steps of the story and the views on several screens: pictures, links, hands and the keyboard.
SPDX-License-Identifier: Apache-2.0"""

import base64

import numpy as np

from checks import check
from explorer import Page, url
from story import STEPS

SCREENS = {  # (width, height), and the part of the picture that must be visible: all, or a number of pixels
    "desktop": (1280, 800, None),
    "small desktop": (1024, 768, None),
    "phone": (390, 844, None),
    "small phone": (320, 640, 160),
    "frame": (700, 600, 200),
    "twice as large": (640, 400, 150),
}

LABELS = """() => [...document.querySelectorAll('.story svg text, .story button, .story a, .story label, .story \
figcaption, .story .number, .story h2')]
    .filter(e => e.checkVisibility() && e.textContent.trim()).filter(e => {
        const box = e.getBoundingClientRect(), out = r => box.left < r.left - 1.5 || box.right > r.right + 1.5 ||
        box.top < r.top - 1.5 || box.bottom > r.bottom + 1.5;
        if (box.left < 0 || box.right > innerWidth || e instanceof HTMLElement && e.clientWidth &&
        e.scrollWidth > e.clientWidth + 1) return true;
        for (let up = e.parentElement; up; up = up.parentElement)
            if (getComputedStyle(up).overflowX !== 'visible' && up !== document.documentElement &&
            out(up.getBoundingClientRect())) return true;
        return false;
    }).map(e => e.textContent)"""
TARGETS = """() => [...document.querySelectorAll('a, button, input, select, summary')].filter(e =>
    e.checkVisibility() && !e.closest('p') && !e.classList.contains('skip'))
    .map(e => [e.outerHTML.slice(0, 70), e.getBoundingClientRect()]).filter(([, r]) => r.width < 24 ||
    r.height < 24).map(([e, r]) => `${e} ${r.width} ${r.height}`)"""
CONTRAST = """() => {
    const rgb = text => { const c = document.createElement('canvas').getContext('2d'); c.fillStyle = text;
    c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data]; };
    const light = c => { const [r, g, b] = c.map(x => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const found = [];
    for (const e of document.querySelectorAll('body *')) {
        const svg = e.tagName === 'text', own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
        if (!own || !e.checkVisibility() || ['SCRIPT', 'STYLE', 'OPTION'].includes(e.tagName) ||
        e.closest('.stale')) continue;
        let up = e, back;
        while (up && !(back = rgb(getComputedStyle(up).backgroundColor))[3]) up = up.parentElement;
        const [x, y] = [light(rgb(getComputedStyle(e)[svg ? 'fill' : 'color']).slice(0, 3)), light((up ? back : [255,
        255, 255]).slice(0, 3))].sort((a, b) => b - a);
        if ((x + 0.05) / (y + 0.05) < 4.5) found.push(`${e.textContent.slice(0,
        40)} ${((x + 0.05) / (y + 0.05)).toFixed(2)}`);
    }
    return found;
}"""
COLOURS = """async data => {
    const image = new Image();
    image.src = 'data:image/png;base64,' + data;
    await image.decode();
    const canvas = document.createElement('canvas'), c = canvas.getContext('2d');
    [canvas.width, canvas.height] = [image.width, image.height];
    c.drawImage(image, 0, 0);
    const pixels = new Uint32Array(c.getImageData(0, 0, image.width, image.height).data.buffer), count = new Map();
    for (const x of pixels) count.set(x, (count.get(x) ?? 0) + 1);
    return [count.size, 1 - Math.max(...count.values()) / pixels.length];
}"""


def pictures(browser):
    """Check each step on each screen: the picture is visible and not blank, no label is cut, and buttons are large
    enough."""
    for name, (width, height, least) in SCREENS.items():
        for scheme in ("light", "dark") if name in ("desktop", "phone") else ("light",):
            page = Page(browser, viewport={"width": width, "height": height}, color_scheme=scheme)
            for step in STEPS:
                page.show(step)
                page.until("relpos.page().csv().length > 0")
                page.p.wait_for_timeout(100)
                what = f"{step}, {name}, {scheme}"
                box = page.p.evaluate("(({top, bottom}) => [top, "
                                      "bottom])(document.querySelector('.picture').getBoundingClientRect())")
                check(f"{what}: the picture is on the first screen",
                      box[1] <= height if least is None else min(box[1], height) - box[0] >= least, box)
                many, share = page.p.evaluate(COLOURS,
                                              base64.b64encode(page.p.locator(".picture").screenshot()).decode())
                check(f"{what}: it is not blank", many > 8 and share > 0.02,
                      f"{many} colours, {share:.3f} of the pixels")
                for wrong, script in (("cut", LABELS), ("too small to press", TARGETS), ("hard to read", CONTRAST)):
                    found = page.p.evaluate(script)
                    check(f"{what}: nothing is {wrong}", not found, found)
                low = page.p.evaluate("[...document.querySelectorAll('.four svg.chart rect:first-child')].map(e => "
                                      "[e.getBoundingClientRect(), "
                                      "e.parentNode.getBoundingClientRect()]).filter(([plot, {width}]) => plot.height "
                                      "< 0.2 * width || plot.height < 60)")
                check(f"{what}: charts are not flat", not low, low)
                sizes = page.p.evaluate("[...document.querySelectorAll('.four svg.chart')].map(e => "
                                        "e.getBoundingClientRect().width / e.viewBox.baseVal.width)")
                check(f"{what}: charts are as large as they were drawn", all(0.97 < x < 1.03 for x in sizes), sizes)
                check(f"{what}: nothing beside the screen", page.p.evaluate("document.documentElement.scrollWidth")
                      <= width)
            page.context.close()
    for width, height, part in ((1440, 900, 0.8), (1920, 1080, 0.7)):
        page = Page(browser, viewport={"width": width, "height": height})
        for step in STEPS:
            page.show(step)
            page.until("relpos.page().csv().length > 0")
            box, beside = page.p.evaluate("['.picture', '.story > h2'].map(name => "
                                          "document.querySelector(name).getBoundingClientRect()).map(r => [r.left, "
                                          "r.right, r.top, r.bottom])")
            check(f"{step}, {width}: the picture fills the screen", part * height <= box[3] - box[2]
                  and box[3] <= height and box[1] - box[0] >= 0.6 * min(width, 1440), box)
            if step in STEPS[:2]:
                texts = page.p.locator(".lane svg text").all_text_contents()
                check(f"{step}, {width}: the rows have names",
                      {"weight", "bias"} & set(texts) == ({"weight"}, {"weight", "bias"})[step == STEPS[1]], texts)
            check(f"{step}, {width}: and is centred with the text", abs(beside[0] - (width - box[1])) <= 24,
                  f"{beside} {box}")
        page.context.close()
    for width in (390, 320):
        page = Page(browser, viewport={"width": width, "height": 844})
        for step in STEPS[:2]:
            page.show(step, text="we eat to live and they live to eat as much fish")
            sizes = page.p.evaluate("[...document.querySelectorAll('.word button')].map(e => "
                                    "e.getBoundingClientRect()).map(r => [r.left, r.right, r.top, r.bottom])")
            check(f"{step}, {width}: twelve words fit", len(sizes) == 12
                  and all(0 <= s[0] and s[1] <= width and s[1] - s[0] > 23.9 for s in sizes), sizes)
            check(f"{step}, {width}: and do not overlap", all(a[1] <= b[0] for a, b in zip(sizes, sizes[1:]))
                  and len({s[2] for s in sizes}) == 1, sizes)
        page.context.close()


def views(browser):
    """Check the layout of the views: on a phone the picture comes first, with the settings in a sheet below; on a
    desktop the settings stay visible. An embedded page shows only the picture."""
    page = Page(browser, viewport={"width": 390, "height": 844})
    p = page.p
    for view in page.show("bias").p.evaluate("relpos.views"):
        if view in STEPS:
            continue
        page.show(view)
        p.wait_for_timeout(100)
        first = """Math.min(...[...document.querySelectorAll('main canvas[tabindex], main svg, .grid')].filter(e =>
            e.checkVisibility()
            && e.getBoundingClientRect().height > 60).map(e => e.getBoundingClientRect().top))"""
        top, sheet = p.evaluate(f"[{first}, document.querySelector('.sheet').getBoundingClientRect().top]")
        check(f"{view}, phone: the picture is on the first screen", top + 150 <= sheet < 844, f"{top} {sheet}")
        p.click(".sheet > summary")
        page.frames()
        box = p.evaluate("(({top, bottom}) => [top, bottom])(document.querySelector('.sheet').getBoundingClientRect())")
        check(f"{view}, phone: the sheet leaves a part of the screen", 844 * 0.4 < box[0] and box[1] <= 845, box)
        check(f"{view}, phone: and has the settings", p.locator(".sheet .controls").is_visible())
        over = p.evaluate(
            """() => { const {left, top, right, bottom} = document.querySelector('.sheet').getBoundingClientRect(),
                found = new Set();
            for (let x = left + 9; x < right; x += 20) for (let y = top + 9; y < Math.min(bottom, innerHeight); y += 20)
                if (!document.elementFromPoint(x, y)?.closest('.sheet')) found.add(document.elementFromPoint(x,
                y)?.outerHTML.slice(0, 60));
            return [...found]; }""")
        check(f"{view}, phone: nothing covers the settings", not over, over)
        check(f"{view}, phone: nothing beside the screen", p.evaluate("document.documentElement.scrollWidth") <= 390)
        top = p.evaluate(first)
        check(f"{view}, phone: open settings leave the picture in sight", 0 <= top and top + 150 <= box[0],
              f"{top} {box}")
    p.set_viewport_size({"width": 320, "height": 568})
    for view in page.p.evaluate("relpos.views"):
        if view in STEPS:
            continue
        page.show(view, fresh=True)
        p.wait_for_timeout(100)
        top, sheet = p.evaluate(f"[{first}, document.querySelector('.sheet').getBoundingClientRect().top]")
        check(f"{view}, small phone: the picture is on the first screen", top + 80 <= sheet < 568, f"{top} {sheet}")
        check(f"{view}, small phone: nothing beside the screen",
              p.evaluate("document.documentElement.scrollWidth") <= 320)
    p.set_viewport_size({"width": 1280, "height": 800})
    page.frames()
    check("a wide screen has no sheet", not p.locator(".sheet > summary").is_visible()
          and p.locator(".controls").is_visible())
    p.set_viewport_size({"width": 1440, "height": 900})
    for view in page.p.evaluate("relpos.views"):
        if view not in STEPS:
            page.show(view)
            p.wait_for_timeout(100)
            top, share = p.evaluate(f"[{first}, document.querySelector('.main').getBoundingClientRect().width / "
                                    "innerWidth]")
            check(f"{view}, desktop: the picture comes first, before the prose", top < 260 and share > 0.7,
                  f"{top} {share}")
            wide = p.evaluate("[...document.querySelectorAll('main svg.chart')].filter(e => e.checkVisibility() && "
                              "!e.closest('.single')).map(e => e.getBoundingClientRect().width)")
            check(f"{view}, desktop: charts are large", all(width > 800 for width in wide), wide)
    p.set_viewport_size({"width": 1024, "height": 768})
    page.frames()
    check("the navigation needs one line at 1024 pixels", p.evaluate("document.querySelector('#nav').clientHeight")
          < 60, p.evaluate("document.querySelector('#nav').clientHeight"))
    p.set_viewport_size({"width": 1280, "height": 800})
    page.show("cost")
    p.evaluate("scrollTo(0, 500)")
    page.frames()
    box = p.evaluate("(({top, bottom}) => [top, bottom])(document.querySelector('.sheet').getBoundingClientRect())")
    check("the settings stay in sight", 0 <= box[0] < 20 and box[1] <= 800, box)
    page.show("story-beyond", fresh=True, embed=1, length=900)
    check("within another page: no header and no footer", not p.is_visible("header") and not p.is_visible("footer")
          and p.is_visible(".picture"))
    p.click(".steps a >> nth=0")
    p.wait_for_timeout(300)
    check("and so at the next step", "embed=1" in p.url and not p.is_visible("header"), p.url)
    page.show("bias", fresh=True)
    check("not otherwise", p.is_visible("header") and "embed" not in p.url)
    page.context.close()


def links(browser):
    """Check that the page begins with the story, that a link opens a step in its state, and that links to views open
    the views."""
    page = Page(browser)
    p = page.p
    page.show("", fresh=True)
    check("the first page is the story", p.evaluate("document.querySelector('h2').textContent")
          == "Attention does not see the order of words")
    check("it says what this is, and how to install it",
          all(text in p.text_content("footer") for text in ("exact attention", "README.md", "pip install .")))
    for n, step in enumerate(STEPS):
        title = p.evaluate("document.querySelector('h2').textContent")
        check(f"step {n + 1}: its number is marked",
              p.evaluate("document.querySelector('[aria-current=step]').textContent") == str(n + 1))
        check(f"step {n + 1}: two or three sentences", 2 <= p.text_content(".story .lead").count(".") <= 3
              and p.locator(".story .formula math").count() >= 1)
        check(f"step {n + 1}: a paper",
              p.get_attribute(".story .text a[rel]", "href").startswith("https://arxiv.org/abs/"))
        if n < len(STEPS) - 1:
            p.click(".turn .next")
            page.frames()
            check(f"step {n + 1}: and on", p.evaluate("document.querySelector('h2').textContent") != title)
    p.click(".turn .next")
    page.frames()
    check("behind it, the workshop", p.evaluate("location.hash").startswith("#length"), p.evaluate("location.hash"))
    p.click("nav a:first-child")
    page.frames()
    check("and back, to where the reader was", "story-model" in p.url, p.url)
    for step, change in {
        "story-order": {"order": "6.5.4.3.2.1.0", "word": 4, "text": "a b c d e f g"},
        "story-bias": {"order": "1.0.2.3.4.5.6", "strength": 1.5},
        "story-slopes": {"query": 20, "heads": 12, "head": 9},
        "story-buckets": {"back": 77, "layer": "1", "head": 3},
        "story-vectors": {"word": 6, "clip": 2, "offset": 5},
        "story-dials": {"at": 99, "back": 11, "base": "10000"},
        "story-beyond": {"length": 5000},
        "story-model": {"text": "Set the option", "scheme": "alibi", "head": 3, "at": 5, "key": 2},
    }.items():
        page.show(step)
        p.evaluate("change => relpos.change(change)", change)
        page.frames()
        p.wait_for_timeout(300)
        state, numbers, link = p.evaluate("relpos.state()"), page.csv(), p.url
        p.goto("about:blank")
        p.goto(link)
        p.wait_for_selector("html[data-ready]")
        page.until("relpos.page().csv().length > 0")
        page.frames()
        check(f"{step}: a link restores it", p.evaluate("relpos.state()") == state and change.items() <= state.items()
              and page.csv() == numbers, link)
    for view, title in {
        "bias?a=alibi&q=20&k=20": "Bias", "sentence?query=3": "A sentence", "buckets?max=64": "Buckets",
        "shaw?clip=2": "Shaw: a vector for every", "rope?m=7": "RoPE: rotation",
        "images?rows=5": "Images", "families": "", "cost": "", "model?head=1": "",
    }.items():
        p.goto("about:blank")
        p.goto(f"{url}#{view}")
        p.wait_for_selector("html[data-ready]")
        page.frames()
        name = view.split("?")[0]
        check(f"{view}: leads to the view", p.get_attribute("nav [aria-current=page]", "data-view") == name
              and p.evaluate("document.querySelector('h2').textContent").startswith(title), p.url)
        if "?" in view:
            key, value = view.split("?")[1].split("&")[0].split("=")
            check(f"{view}: with its state", str(p.evaluate("relpos.state()")[key]) == value,
                  p.evaluate("relpos.state()"))
    page.context.close()


def numbers_in_text(page):
    """Check that numbers in sentences change a setting by mouse, finger and keyboard, together with its slider."""
    p = page.p
    for step, keys in {"bias": ["strength"], "slopes": ["query", "heads"], "buckets": ["back"], "vectors": ["clip"],
                       "dials": ["at", "back"], "beyond": ["length"]}.items():
        page.show(f"story-{step}", fresh=True)
        found = p.locator(".lead [role=slider]")
        check(f"{step}: numbers in the text", found.count() == len(keys), found.count())
        for n, key in enumerate(keys[: found.count()]):
            number, what = found.nth(n), f"{step}: {key} in the text"
            state = lambda: p.evaluate(f"relpos.state().{key}")
            same = lambda: (float(number.get_attribute("aria-valuenow")),
                            float(p.input_value(f"[data-key={key}]"))) == (state(), state()) and float(
                                number.inner_text().strip("↔ −").replace(",", "")) == state()
            low, high = (float(number.get_attribute(f"aria-value{end}")) for end in ("min", "max"))
            check(f"{what}: as its slider", same() and number.get_attribute("aria-label"), number.inner_text())
            number.focus()
            for press, good in (("Home", lambda x: x == low),
                                ("ArrowRight", lambda x: low < x < low + 0.1 * (high - low) + 2),
                                ("ArrowLeft", lambda x: x == low),
                                ("End", lambda x: x == high), ("ArrowUp", lambda x: x == high),
                                ("PageDown", lambda x: x < high)):
                p.keyboard.press(press)
                page.frames()
                check(f"{what}: {press}", good(state()) and same(), state())
            check(f"{what}: keeps the focus", p.evaluate("document.activeElement.className") == "drag-number")
            p.keyboard.press("Home")
            page.frames()
            box = number.bounding_box()
            x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            p.mouse.move(x, y)
            p.mouse.down()
            p.mouse.move(x + 60, y, steps=4)
            p.mouse.up()
            page.frames()
            dragged = state()
            want = low * (high / low) ** 0.25 if key == "length" else low + 0.25 * (high - low)
            check(f"{what}: the mouse drags it", abs(dragged - want) <= 1 and same(), f"{dragged} {want}")
            p.mouse.move(x - 20, y)
            page.frames()
            check(f"{what}: until it is released", state() == dragged, state())
    page.show("story-bias", fresh=True)
    box = p.locator(".lead [role=slider]").bounding_box()
    finger = page.context.new_cdp_session(p)
    for kind, by in (("touchStart", 0), *(("touchMove", -8 * n) for n in range(1, 8)), ("touchEnd", None)):
        finger.send("Input.dispatchTouchEvent",
                    {"type": kind, "touchPoints": [] if by is None else [{"x": box["x"] + 10 + by, "y": box["y"] + 8}]})
    page.frames()
    check("a finger drags a number", 0.8 < p.evaluate("relpos.state().strength") < 1.4,
          p.evaluate("relpos.state().strength"))


def hands(browser):
    """Check that the user can move words by mouse, touch and keyboard, and that a button plays and stops."""
    page = Page(browser, has_touch=True)
    p = page.p
    page.show("story-order", fresh=True)
    for place in (".steps .next", ".turn .next"):
        page.show("story-order")
        p.focus(place)
        for n in range(2, 4):
            p.keyboard.press("Enter")
            page.frames()
            check(f"{place}: keeps the focus at step {n}",
                  p.evaluate("[document.activeElement.className, "
                             "document.querySelector('[aria-current=step]').textContent, scrollY]")
                  == ["next", str(n), 0], p.url)
    p.emulate_media(forced_colors="active")
    page.show("story-order")
    style = lambda what: p.evaluate("what => getComputedStyle(document.querySelector(what)).backgroundColor", what)
    check("forced colours keep the bars", style(".weight") not in (style("html"), "rgba(0, 0, 0, 0)"), style(".weight"))
    lines = p.evaluate("[...document.querySelectorAll('#nav a')].map(a => getComputedStyle(a).borderBottomColor)")
    check("forced colours underline only the current view", lines.count(lines[0]) == 1, lines)
    check("forced colours keep the chosen word",
          style(".word [aria-pressed=true]") != style(".word [aria-pressed=false]"), style(".word [aria-pressed=true]"))
    page.show("story-model")
    page.until("relpos.page().csv().length > 0")
    check("forced colours keep the circles of steps",
          len(set(p.evaluate("['Top', 'Bottom'].map(side => getComputedStyle(document.querySelector('.steps "
                             "a'))[`border${side}Color`])"))) == 1)
    shades = p.evaluate("[...document.querySelectorAll('.byte:not(.query) > span')].map(e => "
                        "getComputedStyle(e).backgroundColor)")
    check("forced colours keep the shades of bytes", len(set(shades)) > 5, shades)
    check("forced colours keep the line of guessing",
          "linear-gradient" in p.evaluate("getComputedStyle(document.querySelector('.byte')).backgroundImage"))
    check("forced colours keep the losses and the query", style(".byte:nth-child(3) > i") != style("html")
          and style(".byte.query > span") != style(".byte > span"))
    p.emulate_media(forced_colors="none")
    page.show("story-order", fresh=True)
    order = lambda: p.evaluate("relpos.state().order")
    for _ in range(40):
        p.keyboard.press("Tab")
        if p.evaluate("document.activeElement.closest('.word') !== null"):
            break
    check("Tab reaches a word", p.evaluate("document.activeElement.textContent") == "only",
          p.evaluate("document.activeElement.outerHTML"))
    p.keyboard.press("ArrowRight")
    p.keyboard.press("ArrowRight")
    page.frames()
    check("arrows move it", order() == "1.2.0.3.4.5.6" and p.evaluate("document.activeElement.textContent") == "only",
          order())
    p.keyboard.press("Enter")
    page.frames()
    check("Enter selects it as the query", p.evaluate("relpos.state().word") == 0
          and ", the query" in p.evaluate("document.activeElement.ariaLabel"))
    p.keyboard.press("ArrowLeft")
    p.keyboard.press("ArrowLeft")
    p.keyboard.press("ArrowLeft")
    page.frames()
    check("to the first place and no farther", order() == "0.1.2.3.4.5.6", order())
    p.wait_for_timeout(600)
    box, end = (p.locator(".word button").nth(n).bounding_box() for n in (1, 6))
    at = lambda b, x=0.5: (b["x"] + x * b["width"], b["y"] + b["height"] / 2)
    p.mouse.move(*at(box))
    p.mouse.down()
    p.mouse.move(*at(end, 0.8), steps=12)
    p.mouse.up()
    page.frames()
    check("the mouse drags a word to the end", order() == "0.2.3.4.5.6.1" and p.evaluate("relpos.state().word") == 0,
          p.evaluate("relpos.state()"))
    p.wait_for_timeout(800)
    places = p.eval_on_selector_all(".word", "all => all.map(x => x.getBoundingClientRect().left)")
    check("all come to rest in their order", [int(n) for n in np.argsort(places)] == [0, 2, 3, 4, 5, 6, 1], places)
    p.mouse.click(*at(p.locator(".word button").nth(3).bounding_box()))
    page.frames()
    check("a click chooses a word", p.evaluate("relpos.state().word") == 3 and order() == "0.2.3.4.5.6.1",
          p.evaluate("relpos.state()"))
    p.get_by_role("button", name="Restore").click()
    page.frames()
    check("and the order is restored", order() == "0.1.2.3.4.5.6")
    finger = page.context.new_cdp_session(p)
    p.wait_for_timeout(800)
    x, y = at(p.locator(".word button").nth(5).bounding_box())
    for kind, by in (("touchStart", 0), *(("touchMove", -40 * n) for n in range(1, 16)), ("touchEnd", None)):
        finger.send("Input.dispatchTouchEvent",
                    {"type": kind, "touchPoints": [] if by is None else [{"x": x + by, "y": y}]})
    page.frames()
    check("a finger drags a word to the front", order().startswith("5."), order())
    for step, key, name in (("story-slopes", "query", "Move the query"), ("story-dials", "at", "Move both words"),
                            ("story-beyond", "length", "Play: 64 to 8,192")):
        page.show(step)
        before = p.evaluate(f"relpos.state().{key}")
        p.get_by_role("button", name=name).click()
        page.until(f"relpos.state().{key} !== {before}")
        p.get_by_role("button", name="Stop").click()
        page.frames()
        stopped = p.evaluate(f"relpos.state().{key}")
        p.wait_for_timeout(300)
        check(f"{step}: stopped", p.evaluate(f"relpos.state().{key}") == stopped)
        p.get_by_role("button", name=name).click()
        page.until(f"relpos.state().{key} !== {stopped}")
        p.evaluate(f"relpos.change({{{key}: 70}})")
        page.until("![...document.querySelectorAll('button')].some(b => b.textContent === 'Stop')", 5)
        check(f"{step}: who moves it stops it", p.evaluate(f"relpos.state().{key}") in (70, 63),
              p.evaluate(f"relpos.state().{key}"))
    numbers_in_text(page)
    page.show("story-beyond")
    p.get_by_role("button", name="Play: 64 to 8,192").click()
    check("Play begins at the shortest text", p.evaluate("relpos.state().length") < 100)
    page.until("relpos.state().length === 8192", 30)
    page.frames()
    check("and stops at the longest", p.get_by_role("button", name="Play: 64 to 8,192").count() == 1
          and p.evaluate("relpos.state().length") == 8192)
    page.show("story-buckets")
    chart = p.locator(".story svg[role=img]").bounding_box()
    p.mouse.move(chart["x"] + 100, chart["y"] + 100)
    p.mouse.down()
    p.mouse.move(chart["x"] + chart["width"] / 2, chart["y"] + 100, steps=5)
    p.mouse.up()
    page.frames()
    check("the chart is dragged", 60 < p.evaluate("relpos.state().back") < 90, p.evaluate("relpos.state()"))
    page.context.close()
