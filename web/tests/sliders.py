"""Move every slider of every view to both ends, with every term that the view offers.

SPDX-License-Identifier: Apache-2.0"""

from checks import check
from explorer import Page

SLIDERS = """() => [...document.querySelectorAll('main input[type=range]')].map(e => [e.ariaLabel, e.min, e.max,
    e.value])"""
MOVE = """([n, end]) => {
    const slider = document.querySelectorAll('main input[type=range]')[n];
    slider.value = end;
    slider.dispatchEvent(new Event('input'));
    return slider.value;
}"""
PAINTED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def ends(page, what):
    """Move the sliders that are on the page, and move each one back."""
    for n, (name, low, high, start) in enumerate(page.p.evaluate(SLIDERS)):
        for end in (low, high):
            page.p.evaluate(MOVE, [n, end])
            page.p.evaluate(PAINTED)
            check(f"{what}: {name} = {end} is accepted", page.problem() == "", page.problem())
        page.p.evaluate(MOVE, [n, start])
        page.p.evaluate(PAINTED)
        check(f"{what}: {name} = {start} is accepted again", page.problem() == "", page.problem())
    return len(page.p.evaluate(SLIDERS))


def sliders(browser):
    page, moved = Page(browser), 0
    for view in page.show("bias").p.evaluate("relpos.views"):
        page.show(view, fresh=True)
        page.p.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
        moved += ends(page, view)
        for key in page.p.eval_on_selector_all("select[data-key$=-kind]", "all => all.map(e => e.dataset.key)"):
            choices = page.p.eval_on_selector_all(f"[data-key={key}] option", "all => all.map(e => e.value)")
            for name in filter(None, choices):
                page.p.select_option(f"[data-key={key}]", name)
                page.p.evaluate(PAINTED)
                check(f"{view}: {key} {name} is shown", page.problem() == "", page.problem())
                moved += ends(page, f"{view}, {key} {name}")
            page.show(view, fresh=True)
    check("there are sliders to move", moved > 300, moved)
    page.context.close()
