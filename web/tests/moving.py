"""Test the keyboard, links, and the browser's history. SPDX-License-Identifier: Apache-2.0"""

import re

from checks import check, root
from explorer import Page, page_file, url


def keyboard(browser):
    page = Page(browser)
    page.show("bias", q=16, k=16, heads=2)
    p = page.p
    p.keyboard.press("Tab")
    check("the first stop leads to the view", p.evaluate("document.activeElement.className") == "skip")
    seen = []
    for _ in range(60):
        p.keyboard.press("Tab")
        seen.append(
            p.evaluate(
                "document.activeElement.tagName + (document.activeElement.dataset.key ?? '') + "
                "(document.activeElement.type ?? '')"
            )
        )
    for what in ("A", "SELECTa-kindselect-one", "INPUTrange", "INPUTqnumber", "INPUTatext", "CANVAS", "BUTTONbutton",
                 "SUMMARY"):
        check(f"Tab reaches {what}", what in seen, sorted(set(seen)))
    p.focus("input[aria-label=Queries]")
    p.keyboard.press("ArrowRight")
    page.frames()
    p.wait_for_timeout(300)
    check("an arrow moves a slider", p.evaluate("relpos.state().q") == 17 and "q=17" in p.url, p.url)
    p.focus("figure:not([hidden]) canvas[tabindex]")
    before = p.locator("figure:not([hidden]) .readout").first.text_content()
    p.keyboard.press("ArrowRight")
    p.keyboard.press("ArrowDown")
    page.frames()
    after = p.locator("figure:not([hidden]) .readout").first.text_content()
    check("arrows move the cursor of a map", before != after and "key 1" in after, after)
    p.focus("[data-key=a-kind]")
    p.keyboard.type("log")
    page.frames()
    check("letters choose a term", p.evaluate("relpos.state().a").startswith("log"), p.evaluate("relpos.state().a"))
    p.focus("nav a[data-view=buckets]")
    p.keyboard.press("Enter")
    page.frames()
    check("Enter opens a view", p.evaluate("document.querySelector('h2').textContent").startswith("Buckets"))
    p.go_back()
    page.frames()
    check("and back", p.evaluate("document.querySelector('h2').textContent").startswith("Bias"))
    page.show("images")
    p.focus(".grid button:nth-child(6)")
    p.keyboard.press("ArrowRight")
    page.frames()
    check(
        "arrows move among patches",
        p.evaluate("relpos.state().patch") == 6 and p.evaluate("document.activeElement.getAttribute('aria-pressed')")
        == "true",
    )
    page.show("sentence")
    p.focus(".words button:nth-child(3)")
    p.keyboard.press("Enter")
    page.frames()
    check("Enter chooses a word", p.evaluate("relpos.state().query") == 2)
    check("and stays on it",
          p.evaluate("[...document.querySelectorAll('.words button')].indexOf(document.activeElement)") == 2)
    for key, at in (("ArrowRight", 3), ("ArrowLeft", 2), ("End", -1), ("Home", 0), ("ArrowLeft", 0)):
        p.keyboard.press(key)
        words = p.evaluate("[...document.querySelectorAll('.words button')].map(e => [e === document.activeElement, "
                           "e.tabIndex])")
        check(f"{key} moves among words", [n for n, (focus, _) in enumerate(words) if focus] == [at % len(words)]
              and sum(tab == 0 for _, tab in words) == 1, words)
    page.show("model", source="minilm", a="t5,table=t5_table", masks="")
    p.focus(".words button[aria-pressed=true]")
    stops = 0
    while p.evaluate("document.activeElement.tagName") != "CANVAS" and stops < 20:
        p.keyboard.press("Tab")
        stops += 1
    check("Tab goes from the words of a model to its maps", stops < 8, stops)
    page.context.close()


def navigation(browser):
    page = Page(browser)
    page.show("bias", q=16, k=16, heads=2)
    p, here = page.p, lambda: page.p.evaluate("[document.querySelector('h2').textContent.split(':')[0], location.hash]")
    listed = re.findall(r"^\*(\w+)\*\n\t", (root / "docs/man/relpos-explore.1.scd").read_text(), re.M)
    shown = p.locator("#nav a").all_text_contents()
    check("the views of trained models are first, and the manual has the views in this order",
          shown[:3] == ["The story", "Length", "Model"] and shown[1:] == listed, f"{shown} {listed}")
    question = "How do transformers know word order?"
    source = page_file.read_text()
    check("the title is a question, followed by that of the view", f"<title>{question}</title>" in source
          and p.title() == f"{question} – {p.text_content('h2')}", p.title())
    p.wait_for_timeout(300)
    p.keyboard.press("Tab")
    before = here()
    p.keyboard.press("Enter")
    page.frames()
    check("the way to the view: the focus, and nothing else", p.evaluate("document.activeElement.id") == "main"
          and here() == before, here())
    p.select_option("#theme", "dark")
    p.select_option("#a-kind", "rope")
    page.frames()
    p.evaluate("scrollTo(0, 400); relpos.change({q: 21})")
    p.click("main a[data-view=rope]")  # click before the page writes the address
    page.frames()
    dark = "document.documentElement.dataset.theme === 'dark'"
    check("a link keeps the colours", p.evaluate(dark) and here()[0] == "RoPE", here())
    check("a view begins at its top", p.evaluate("scrollY") == 0)
    p.evaluate("relpos.change({m: 44})")
    p.click("nav a[data-view=buckets]")
    page.frames()
    check("and so does the navigation", p.evaluate(dark) and here()[0] == "Buckets", here())
    p.go_back()
    page.frames()
    check("Back has the last change", p.evaluate("relpos.state().m") == 44 and here()[0] == "RoPE", here())
    p.go_back()
    page.frames()
    check("and the one before", p.evaluate("[relpos.state().q, relpos.state().heads]") == [21, 2], here())
    check("Back keeps the colours", p.evaluate(dark))
    p.click("nav a[data-view=rope]")
    page.frames()
    check("a view is as it was left", p.evaluate("relpos.state().m") == 44)
    p.wait_for_timeout(300)
    check("its link says so", "m=44" in p.get_attribute("nav a[data-view=rope]", "href") and "m=44" in p.url, p.url)
    found = p.evaluate("""() => new Promise(done => {
        const real = setTimeout;
        let late;
        setTimeout = (call, ms) => ms === 200 ? late = call : real(call, ms);
        relpos.change({n: 9});
        location.hash = '#shaw?length=33';
        late();
        setTimeout = real;
        setTimeout(() => done([location.hash, relpos.state().length]), 800); })""")
    check("a busy page follows an address that changes before it has written its own", found == ["#shaw?length=33", 33],
          found)
    page.show("buckets", fresh=True, theme="dark")
    check("an address brings its colours", p.evaluate(dark))
    p.goto("about:blank")
    p.goto(f"{url}?theme=dark&embed=1#buckets")
    p.wait_for_selector("html[data-ready]")
    p.goto("about:blank")
    p.goto(f"{url}#buckets")
    p.wait_for_selector("html[data-ready]")
    p.select_option("#theme", "light")
    p.reload()
    p.wait_for_selector("html[data-ready]")
    check("the tab keeps its colours", p.input_value("#theme") == "light")
    p.select_option("#theme", index=0)
    p.reload()
    p.wait_for_selector("html[data-ready]")
    check("also those of the system", p.evaluate("document.getElementById('theme').selectedIndex") == 0)
    p.goto("about:blank")
    p.goto(f"{url}?theme=dark&embed=1#buckets")
    p.wait_for_selector("html[data-ready]")
    check("also before the #", p.evaluate(dark) and not p.is_visible("header") and page.problem() == "", p.url)
    page.show("buckets", fresh=True)
    source = p.locator("main details", has=p.get_by_label("formula", exact=True))
    for view in page.p.evaluate("relpos.views.filter(view => !view.startsWith('story'))"):
        page.show(view)
        check(f"{view}: formula and source are closed, the commands are open",
              not source.get_by_label("formula").is_visible() and p.get_by_label("code", exact=True).is_visible())
    source.locator("summary").click()
    for view, is_open in (("length", True), ("buckets", True), ("rope", False), ("length", False)):
        if not is_open and source.get_by_label("formula").is_visible():
            source.locator("summary").click()
            page.frames()
        page.show(view)
        check(f"{view}: formula and source are as in the view before",
              source.get_by_label("formula").is_visible() == is_open)
    page.context.close()
