"""Load the page in a browser without network. SPDX-License-Identifier: Apache-2.0"""

from urllib.parse import urlencode

from checks import build, check, work

page_file = build / "web/relpos-explorer.html"
url = page_file.as_uri()


class Page:
    """The explorer in a tab. Network requests and console messages are failures."""

    def __init__(self, browser, **options):
        self.context = browser.new_context(accept_downloads=True,
                                           **{"viewport": {"width": 1280, "height": 900}, **options})
        self.context.set_offline(True)
        self.p = self.context.new_page()
        self.p.set_default_timeout(100_000)  # long enough for a busy machine, short enough to detect a page that hangs
        self.p.on("console", lambda m: check("no console message", m.type not in ("error", "warning"), m.text))
        self.p.on("pageerror", lambda e: check("no error in the page", False, str(e)))
        self.p.on("request", lambda r: check("no request", r.url.split(":")[0] in ("file", "data", "blob"), r.url))

    def show(self, view, fresh=False, **state):
        self.shown = getattr(self, "shown", 0) + 1
        to = f"#{view}?" + urlencode(state) + "&" * (1 + self.shown % 2)  # an address other than the present one
        if self.shown == 1 or fresh:
            self.p.goto("about:blank")
            self.p.goto(url + to)
            self.p.wait_for_selector("html[data-ready]")
        else:
            self.p.evaluate(
                "to => new Promise(done => { addEventListener('hashchange', done, {once: true}); "
                "location.hash = to; })",
                to
            )
        self.frames()
        return self

    def until(self, what, seconds=100):
        """Wait until an expression is true. wait_for_function would need eval, which the page forbids."""
        for _ in range(20 * seconds):
            if self.p.evaluate(what):
                return
            self.p.wait_for_timeout(50)
        check(f"in {seconds} s: {what}", False)

    def frames(self, n=3):
        self.p.evaluate(
            "n => new Promise(done => { const f = () => n-- > 0 ? requestAnimationFrame(f) : done(); f(); })", n)
        self.until("!document.querySelector('[aria-busy]')")  # pictures that are computed in pieces

    def code(self, language="CLI"):
        return self.p.evaluate("l => relpos.page().code()[l]", language)

    def csv(self):
        return self.p.evaluate("relpos.page().csv()")

    def problem(self):
        return self.p.eval_on_selector_all(".problem", "all => all.map(x => x.textContent).join('')")

    def cells(self, label, nth=0):
        """Return the numbers, as shown on the screen, of the table row whose label begins with `label`."""
        return self.p.evaluate(
            """([label, nth]) => [...document.querySelectorAll('main tr')].filter(r =>
                r.cells[0]?.textContent.startsWith(label))
            .map(r => [...r.cells].slice(1).map(c => c.textContent.replace('−', '-')))[nth] ?? []""",
            [label, nth],
        )

    def slants(self):
        """Return the lines of the charts that have a part which is neither level nor upright, or no upright part."""
        return self.p.evaluate(
            """[...document.querySelectorAll('main svg.chart > path')].map(path => path.getAttribute('d')).filter(d => {
                const at = d.slice(1).split('L').map(point => point.split(' ').map(Number)), pairs = at.slice(1).map((b,
                n) => [at[n], b]);
                return pairs.some(([a, b]) => a[0] !== b[0] && a[1] !== b[1]) || !pairs.some(([a, b]) => a[1] !== b[1]);
                })"""
        )

    def download(self, name):
        with self.p.expect_download() as got:
            self.p.get_by_role("button", name=name, exact=True).click()
        path = work / got.value.suggested_filename
        got.value.save_as(path)
        return path


def every_view(browser, call, **options):
    page = Page(browser, **options)
    for view in page.show("bias").p.evaluate("relpos.views"):
        call(page.show(view, fresh=True), view)
    page.context.close()
