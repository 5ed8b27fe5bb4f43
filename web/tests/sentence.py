"""Test the view of a sentence. SPDX-License-Identifier: Apache-2.0"""

import re

import json

from calculations import parts, value_of
from checks import check, command, fixed, printed
from programs import c_program, python_program


def cells(page, state, want):
    """Check that cells of the scores and of the biased weights show their calculations, with the mouse and with the
    keyboard."""
    box = page.p.locator("main .scroll", has=page.p.locator("caption", has_text="Scores"))
    said = box.locator("xpath=..").locator(".readout")
    rows = [("raw", want["raw"]), *((part["name"], part["values"]) for part in want["parts"]), ("score", want["score"])]
    check(f"sentence {state}: a row for each part", box.locator("tbody tr").count() == len(rows))
    for r, (name, numbers) in enumerate(rows):
        for c in (0, 2):
            cell = box.locator("tbody tr").nth(r).locator("td").nth(c)
            cell.hover()
            text, number = said.text_content(), numbers[c]
            calculation, value = parts(text)
            check(f"sentence {state}: the cell {name} {c}", value == ("masked" if number is None else fixed(number)[0]),
                  text)
            found = value_of(calculation)
            check(f"sentence {state}: its calculation",
                  found is None or abs(found - number) < (2e-3 if r == 0 else 2e-4), f"{text} {number}")
    page.p.mouse.move(0, 0)
    stops = box.locator("td[tabindex='0']")
    check(f"sentence {state}: one cell is a stop of Tab", stops.count() == 1)
    stops.focus()
    page.p.keyboard.press("ArrowDown")
    page.p.keyboard.press("ArrowDown")
    check(f"sentence {state}: by keyboard", parts(said.text_content())[1] in fixed(rows[2][1][0]), said.text_content())
    if state == {}:
        page.p.keyboard.press("ArrowRight")
        text = said.text_content()
        check("sentence: the calculation of the worked example", text == "offset 1: −0.3 · log(1 + 1) = −0.2079", text)
    figure = page.p.locator("figure:not([hidden])", has=page.p.locator("figcaption", has_text="Biased weights"))
    query = page.p.evaluate("relpos.state().query")
    text, weight = figure.locator(".readout").text_content(), want["weights"][0]
    calculation, value = parts(text)
    right = (value == "masked" if want["score"][0] is None else value == fixed(weight)[0]
             and abs(value_of(calculation) - weight) < 2e-4)
    check(f"sentence {state}: a weight of query {query}", right, text)
    text = page.p.locator("figure:not([hidden])",
                          has=page.p.locator("figcaption", has_text="Difference")).locator(".readout").text_content()
    calculation, value = parts(text)
    number = want["difference"][0]
    check(f"sentence {state}: a difference", value == ("masked" if want["score"][0] is None else fixed(number)[0])
          and (value == "masked" or abs(value_of(calculation) - number) < 1.1e-4), text)


def sentence(page):
    states = [
        {},
        *({"a": f"log,lambda={x}"} for x in (0, 0.5, 1)),
        {"a": "linear,left=0.1,right=1", "query": 2},
        {"a": "alibi", "head": 5, "query": 1},
        {"text": "attention is all you need", "a": "rope", "query": 3},
        {"text": "-v --help is a word", "a": "linear,left=1,right=1", "query": 1},
        {"text": "un deux trois quatre", "a": "sandwich,dim=8", "query": 1, "masks": "causal"},
        {"query": 3, "masks": "window=2,1"},
        {"query": 2, "masks": "causal+window=1,0"},
    ]
    masks = json.loads(command("relpos info --json"))["masks"]
    labels = page.show("sentence").p.evaluate(
        "[...document.querySelectorAll('fieldset')].find(f => f.querySelector('legend').textContent === "
        "'Masks').innerText.split('\\n').filter(Boolean)"
    )
    check("the masks of the library that need no array",
          labels[1:] == [f"{m['name']}: {m['text'].replace('-1', '−1')}" for m in masks if not m["array"]], labels)
    page.p.get_by_label("window: ").check()
    page.frames()
    page.p.locator("[data-key=mask-window-left]").fill("1")
    page.p.keyboard.press("Tab")
    page.frames()
    check("a mask is set by its controls", page.p.evaluate("relpos.state().masks") == "window=1,-1",
          page.p.evaluate("relpos.state()"))
    check("and is written as an option", "--window 1,-1" in page.code(), page.code())
    page.show("sentence", masks="windows=3")
    check("a mask that is none", "no mask is called windows" in page.problem(), page.problem())
    for state in states:
        page.show("sentence", **state)
        text = command(page.code())
        found = json.loads(command(page.code().replace("relpos explain", "relpos explain --json", 1)))
        kinds = [part["kind"] for part in found["parts"]]
        labels = {"content": "Content" if "rotation" in kinds else "Scaled scores", "rotation": "Rotation",
                  "bias": "Bias values", "mask": "Mask"}
        for label in ("Raw scores", *(labels[kind] for kind in kinds), "Biased scores", "Standard", "Biased",
                      "Difference"):
            want = printed(text, label)
            nth = 1 if label == "Biased" else 0
            check(f"sentence {state}: {label}", want and page.cells(label, nth) == want,
                  f"{page.cells(label, nth)} {want}")
        want = re.findall(r"A\[.*?\] = (\S+) \(", text)
        check(
            f"sentence {state}: weights",
            want
            and page.p.evaluate(
                "[...document.querySelectorAll('main tr')].filter(r => r.cells[0].textContent.startsWith('A[')).map(r "
                "=> r.cells[1].textContent)"
            )
            == want,
        )
        output = re.search(r"Output\[.*?\] = \[([^]]*)\]", text)[1].split()
        check(
            f"sentence {state}: output",
            page.p.evaluate("[...document.querySelectorAll('main pre')].map(x => x.textContent)[0]")
            == f"[{' '.join(output)}]",
        )
        rows = re.findall(r"Output\[.*?\] = \[([^]]*)\]", text.split("All outputs")[1])
        mine = page.p.evaluate(
            "[...[...document.querySelectorAll('main table')].find(t => t.rows[0].cells[0].textContent === "
            "'Output').tBodies[0].rows].map(r => [...r.cells].slice(1).map(c => c.textContent))"
        )
        check(f"sentence {state}: all outputs",
              len(rows) > 2 and mine == [row.replace("-", "−").split() for row in rows], f"{mine} {rows}")
        cells(page, state, found)
        if not state.get("a", "").startswith("alibi"):
            check(f"sentence {state}: the C program", c_program("sentence", page) == page.cells("Biased", 1))
        python_program(page)
