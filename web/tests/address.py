"""Test valid and invalid addresses of the page. SPDX-License-Identifier: Apache-2.0"""

import re

from checks import check, command
from explorer import Page
from programs import c_program, python_program


def address(browser):
    page = Page(browser)
    page.show("bias", a="t5,buckets=16", q=30, k=20, head=1)
    check(
        "the state is that of the address",
        page.p.evaluate("(({a, q, k, head}) => [a, q, k, head])(relpos.state())") == ["t5,buckets=16", 30, 20, 1],
    )
    check("and on the controls", page.p.input_value("[data-key=q]") == "30" and page.p.input_value("[data-key=buckets]")
          == "16")
    for state in (
        {"q": "NaN"},
        {"q": "-5"},
        {"q": "1e9", "k": "1e9"},
        {"q": "2.5"},
        {"a": "nothing"},
        {"a": "t5,buckets=-1"},
        {"a": ""},
        {"a": "<img src=x onerror=alert(1)>"},
        {"head": "99999"},
        {"query": "-3"},
        {"heads": "0"},
        {"offset": "1e300"},
        {"a": "swin,grid=9999x9999"},
    ):
        for view in ("bias", "sentence", "model", "cost"):
            page.show(view, **state)
            check(
                f"{view} {state}: the page is there",
                page.p.evaluate("!!document.querySelector('h2') && !document.querySelector('main img')"),
            )
    for view, long in (
        ("sentence", {"text": " ".join(f"w{n}" for n in range(262)), "query": 261, "a": "alibi"}),
        ("buckets", {"max": 65536, "buckets": 64}),
        ("rope", {"dim": 1024, "save": "waves"}),
    ):
        said = page.show(view, **long).problem()
        check(f"{view}: the longest input", said == "" and len(page.csv()) > 262, said)
    page.show("nothing")
    check("unknown view: the first is shown",
          page.p.evaluate("document.querySelector('h2').textContent").startswith("Attention does not see"))
    check("and the page says so", page.problem() == "No view is called “nothing”: this is the beginning of the story.",
          page.problem())
    page.p.evaluate("relpos.change({word: 1})")
    check("until something changes", page.problem() == "", page.problem())
    page.show("bias", a="t5,buckets=7")
    said = page.problem()
    check("the error is shown", "buckets" in said and len(said) < 300, said)
    page.p.evaluate("relpos.core.problem({lenQ: 4, lenK: 4, terms: ['alibi']})")
    for call in ("allocate(2 ** 32 + 8)", "allocate(NaN)", "problem({lenQ: 2 ** 32 + 1, lenK: 1})",
                 "problem({lenQ: 2.5, lenK: 1})"):
        said = page.p.evaluate(f"(() => {{ try {{ relpos.core.{call}; return ''; }} catch (e) {{ return e.message; }} "
                               f"}})()")
        check(f"core.{call}: refused", "at most" in said or "more than this page takes" in said, said)
    javascript = r"undefined|is not|Invalid|null|constructor\b.*\bfunction|stack|TypeError|RangeError"
    for view, given, want in (  # the limits of the settings also apply to the address
        ("shaw", {"length": 23171}, {"length": 512}),
        ("shaw", {"length": 0, "clip": -1}, {"length": 1, "clip": 0}),
        ("images", {"rows": 256, "columns": 256, "table": "near"}, {"rows": 24, "columns": 24}),
        ("images", {"kind": "x", "extra": 1}, {"kind": "swin", "extra": True}),
        ("bias", {"heads": -3}, {"heads": 1}),
        ("bias", {"heads": 2.5, "q": 2.5, "offset": 2.5}, {"heads": 3, "q": 3, "offset": 3}),
        ("bias", {"save": "constructor"}, {"save": "a"}),
        ("rope", {"m": -5, "n": 1.5, "dim": 200000}, {"m": -5, "n": 2, "dim": 1024}),
        ("rope", {"base": 1.5, "layout": "x"}, {"base": 1.5, "layout": "half"}),
        ("sentence", {"query": 1.5}, {"query": 2}),
        ("buckets", {"strategy": '");x("', "offset": 1e300}, {"strategy": "log", "offset": 1e9}),
        ("families", {"family": "constructor", "query": 9}, {"family": "additive", "query": 2}),
        ("cost", {"most": 300, "step": 99}, {"most": 1024, "step": 47}),
        ("model", {"source": "constructor"}, {"source": "lab1"}),
        ("model", {"source": "lab0"}, {"a": "t5,buckets=32,max_distance=128,bidirectional=0,table=t5.table",
                                       "masks": "causal", "query": 60}),
    ):
        page.show(view, **given)
        now = page.p.evaluate("relpos.state()")
        check(f"{view} {given}: within the settings", want.items() <= now.items()
              and page.problem().startswith("The link has ") == any(now[k] != v for k, v in given.items()),
              f"{now} {page.problem()}")
        page.p.evaluate("given => relpos.change(given)", {k: str(v) for k, v in given.items()})
        page.frames()
        if view != "model":
            check(f"{view} {given}: and by the fields", page.p.evaluate("relpos.state()") == now,
                  page.p.evaluate("relpos.state()"))
    page.show("bias", q=99999, head=40)
    check("a link beyond a range says what was given, the range and what is shown", page.problem() ==
        "The link has q=99999, but “Queries” must be a whole number from 1 to 4,096: you see 4096. The link has "
        "head=40, but “Head of the maps” must be a whole number from 0 to 7: you see 7.", page.problem())
    page.show("bias", q=9, k=9)
    check("a link within the ranges says nothing", page.problem() == "", page.problem())
    for view, key, want in (("story-order", "word", 6), ("story-model", "at", 44), ("sentence", "query", 4)):
        page.show(view, **{key: 200})
        said = page.problem()
        page.p.wait_for_timeout(400)
        at = page.p.evaluate("location.hash")
        page.p.reload()
        page.until("!!document.documentElement.dataset.ready")
        check(f"{view}: the address has the value that is shown", bool(said) and f"{key}={want}" in at
              and page.problem() == "", f"{said} {at} {page.problem()}")
    for view, given, want in (
        ("rope", {"d": 999999}, "This view has no setting called “d”."),
        ("length", {"n": -5, "constructor": 1, "length": 70}, "This view has no setting called “n” or “constructor”."),
        ("story-bias", {"foo": 1}, "This view has no setting called “foo”."),
        ("bias", {"q": 0, "x": 1}, "The link has q=0, but “Queries” must be a whole number from 1 to 4,096: you see 1. "
                                   "This view has no setting called “x”."),
        ("sentence", {"query": 300},
         "The link has query=300, but “query” must be a whole number from 0 to 4: you see 4."),
        ("sentence", {"query": 3, "text": "a b c"}, "The link has query=3, but “query” must be a whole number from 0 "
                                                    "to 2: you see 2."),
        ("sentence", {"query": 2, "text": "a b c"}, ""),
        ("bias", {"embed": 0, "theme": "dark", "save": "a", "q": 9}, ""),
        ("story-model", {"embed": 1}, ""),
    ):
        said = page.show(view, **given).problem()
        check(f"{view} {given}: settings that the view does not have are named", said == want, said)
    page.show("bias", q=9, k=9)
    for given, shown, why in (("99999", "4096", "You wrote 99999, but “Queries”"),
                              ("", "4096", "You wrote nothing, but “Queries”")):
        page.p.fill("[data-key=q]", given)
        page.p.press("[data-key=q]", "Enter")
        page.frames()
        check(f"the field of queries with “{given}”", page.p.input_value("[data-key=q]") == shown
              and page.problem().startswith(why), page.problem())
    page.p.fill("[data-key=q]", "9")
    page.p.press("[data-key=q]", "Enter")
    page.frames()
    check("a valid number ends the message", page.problem() == "", page.problem())
    page.p.fill("[data-key=offset]", "2.5")
    page.p.press("[data-key=offset]", "Enter")
    page.frames()
    check("a field of whole numbers", page.p.evaluate("relpos.state().offset") == 3
          and page.p.input_value("[data-key=offset]") == "3")
    page.show("rope", m=-5, n=1.5, base=1e12)
    command(page.code())
    c_program("rope", page)
    python_program(page)
    for a in ("constructor", "__proto__", "toString"):
        for view in ("bias", "sentence", "cost", "model"):
            said = page.show(view, a=a).problem()
            check(f"{view} {a}: a sentence of the library", re.search(rf"default: [^:]*{a}", said)
                  and not re.search(javascript, said), said)
    for view in ("bias", "sentence", "cost", "model"):
        said = page.show(view, fresh=True, a="bogus").problem()
        check(f"{view}: a wrong link says so and shows the default",
              said.startswith("This link cannot be shown, so you see the default: ") and "bogus" in said
            and page.p.evaluate("relpos.state().a !== 'bogus' && document.querySelector('figure:not([hidden]) "
                                "canvas').width > 100"), said)
        page.p.evaluate("relpos.change({a: 'alibi'})")
        page.frames()
        check(f"{view}: until something changes", page.problem() == "")
        page.p.evaluate("relpos.change({a: 'bogus'})")
        page.frames()
        check(f"{view}: a term that is being typed does not dim the page", page.p.locator(".stale").count() == 0
              and "bogus" in page.problem())
        page.until("document.querySelectorAll('.stale').length", 5)
        check(f"{view}: the words say so", "last valid settings" in page.problem(), page.problem())
        check(f"{view}: what is refused leaves the picture, and shows that it is the old one",
              page.p.evaluate("[...document.querySelectorAll('.stale')].length") == 3)
    page.show("model", source="file")
    check("a file that is not there", "drop the file again" in page.problem(), page.problem())
    for view, bad in (
        ("buckets", {"buckets": "3", "max": "1"}),
        ("shaw", {"length": "1e7"}),
        ("rope", {"base": "-1"}),
        ("images", {"rows": "1000"}),
        ("families", {"family": "x"}),
        ("families", {"strength": "1e300"}),
    ):
        page.show(view, **bad)
        check(f"{view} {bad}: the page is there", page.p.evaluate("!!document.querySelector('h2')"))
    page.context.close()
