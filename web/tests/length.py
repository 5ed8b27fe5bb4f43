"""Test the view in which trained models read a long text: their perplexities are those of the command.
SPDX-License-Identifier: Apache-2.0"""

import json

import numpy as np

from checks import check, command, work
from trained import LOSS

LOADED = "relpos.page().numbers().read > 0"
LENGTHS = (64, 1024, 8192)
NAMES = ["T5", "no positions", "ALiBi", "RoPE"]


def perplexities(page):
    """Return the perplexities of each range that the page shows, and those of the command."""
    page.frames()
    numbers, lines = page.p.evaluate("relpos.page().numbers()"), page.code().splitlines()[1:]
    found = [json.loads(command(line + " --json"))["lengths"][0] for line in lines]
    return numbers["perplexity"], [[x["perplexity"] for x in one["positions"]] for one in found]


def losses_of(page):
    """Return the losses of the table that the page saves, one row for each byte; NaN where a model has none."""
    rows = np.array([[x if x != "" else "nan" for x in row] for row in page.csv()[1:]], dtype=float)
    check("length: the ranges of the table follow each other", rows[0, 0] == 0 and (rows[1:, 0] == rows[:-1, 1]).all(),
          rows[:3])
    return np.repeat(rows[:, 2:], (rows[:, 1] - rows[:, 0]).astype(int), axis=0)


def reasons(page):
    """Return the text that is folded below the finding."""
    return page.p.locator("main details", has_text="Why?").locator("div").last.text_content()


def column(page, name):
    """Return the numbers of a line in the table, one for each range."""
    return (page.p.evaluate(
        """name => [...document.querySelectorAll('.lines tr')].map((row, n, all) =>
            row.cells[[...all[0].cells].findIndex(e => e.textContent === name)].textContent).slice(1)""", name))


def finding(page, what, rows):
    """Check the sentence that compares the trained length with the last range, or describes the last range."""
    said, n = page.p.text_content("main p[role=status] >> nth=0"), len(rows)
    state = page.p.evaluate("relpos.state()")
    names = [*NAMES, "a learned table" if state["models"] == "own" else state["also"]]

    def of(first, end):
        return sorted((np.exp(mean), name) for mean, name in zip(rows[first:end].mean(axis=0), names)
                      if not np.isnan(mean))

    def texts(first, end):
        found = [f"{x:.1f} with {name}" for x, name in of(first, end)]
        return f"{', '.join(found[:-1])} and {found[-1]}"

    starts = [0, *(64 << k for k in range(8) if 64 << k < n)]
    a, b = [(a, b) for a, b in zip(starts, [*starts[1:], n]) if b - a >= 64 or not a][-1]
    if n < 320:
        want = f"Perplexity in the first {n:,} bytes is {texts(0, n)}."
        return check(f"{what}: the finding", want in said, f"{said} {want}")
    near = [f"{x:.1f}" for x, _ in of(0, 256)]
    want = f"In bytes {a:,} to {b - 1:,}, perplexity is {texts(a, b)}"
    where = f"In the first 256 bytes, the length in training, it is between {near[0]} and {near[-1]}."
    why = reasons(page)
    lines = [line.split()
             for line in command("relpos bucket --causal -- " + " ".join(str(-d) for d in range(160))).splitlines()]
    far = next(-int(delta) for delta, bucket in lines if bucket == lines[-1][1])
    check(f"{what}: the finding", want in said and where in said and f"rom distance {far} on" in why,
          f"{said} {want} {where} {why} {far}")
    check(f"{what}: the end of the table", ("the learned table has no entry" in said) == (state["models"] == "own"),
          said)
    check(f"{what}: what the one model was trained with", ("trained with T5" in said) == (state["models"] == "swapped"),
          said)


def first_pictures(page):
    """Check that the page's own text needs no reading, and that the numbers stored for it are those that the page
    reads."""
    p = page.p
    for models, lines in (("own", 5), ("swapped", 4)):
        for n in LENGTHS:
            page.show("length", fresh=True, models=models, length=n)
            check(f"length {models} {n}: shown at once", p.evaluate("relpos.page().numbers().read") == n
                  and not p.workers, p.workers)
        stored = losses_of(page)
        p.evaluate("relpos.change({text: relpos.facts.text})")
        page.frames()
        page.until(f"relpos.page().csv().length === {LENGTHS[-1] + 1}")
        read = losses_of(page)
        parts = [losses.reshape(-1, 64, lines).mean(axis=1) for losses in (stored, read)]
        ends = [np.isnan(part).any(axis=1).argmax() * 64 for part in parts]
        check(f"length {models}: the learned table ends", ends == [256 if models == "own" else 0] * 2
              and not np.isnan([part[:, :4] for part in parts]).any(), ends)
        worst = np.nanmax(np.abs(parts[0] - parts[1]))
        check(f"length {models}: the stored losses are those of a text that is read", worst < LOSS, worst)
    page.show("length", fresh=True, length=300)
    check("length: a length without stored numbers is read", p.evaluate("relpos.page().numbers().read") == 300
          and len(p.workers) == 1, p.workers)
    page.show("length", length=320)
    check("length: and a stored one shown again", p.evaluate("relpos.page().numbers().read") == 320
          and len(page.csv()) == 6, len(page.csv()))


def short_texts(page):
    """A text of few bytes, a range of one byte, a text that Play ends with, and a file that is too long."""
    p = page.p
    sliders = lambda: p.evaluate("[...document.querySelectorAll('main [data-key=length], main .row > "
                                 "button[aria-pressed]')].filter(e => e.dataset.key || "
                                 "e.textContent.startsWith('Play')).map(e => e.checkVisibility())")
    page.show("length", text="Short text")
    said = p.text_content("main p[role=status] >> nth=0")
    check("length: a short text", p.evaluate("relpos.page().numbers().read") == 9
          and "Your text has 10 bytes; all but the first are predicted" in said and not any(sliders()),
          f"{said} {sliders()}")
    page.show("length", length=65)
    heights = p.eval_on_selector_all("svg.chart > path", "all => all.map(e => e.getBBox().height)")
    check("length: no spike of one byte at the end, but a number", len(heights) == 5 and max(heights) < 1
          and len(column(page, "T5")) == 2 and all(sliders()), heights)
    page.show("length", text="Set the option to a value.\n" * 9, length=100)
    p.get_by_role("button", name="Play: 64 to 242").click()
    page.until("document.querySelector('main p[role=status]').getAttribute('aria-live') === 'off' || "
               "relpos.state().length === 242")
    page.until("relpos.state().length === 242 && document.querySelector('main .row > "
               "button[aria-pressed]').getAttribute('aria-pressed') === 'false'")
    check("length: Play ends with the text, and is quiet until then",
          p.get_attribute("main p[role=status] >> nth=0", "aria-live") == "polite"
          and p.get_by_role("button", name="Play: 64 to 242").count() == 1)
    (work / "long.txt").write_text("é" * 5000)
    page.show("length")
    p.set_input_files("input[type=file]", work / "long.txt")
    page.until("relpos.state().text.length > 4000")
    check("length: a long file is cut in words",
          "long.txt has 10,000 bytes: the models read at most its first 8,193." in p.text_content("main"),
          p.text_content("main")[:200])
    check("length: but not within a character", p.evaluate("relpos.state().text") == "é" * 4096)
    page.show("length", fresh=True)


def save_models(page, own):
    """Save the models of the view."""
    names = [*NAMES, "a learned table"] if own else ["Save the model"]
    files = {page.download(name).name for name in names}
    check("length: the files of the models", len(files) == len(names), files)


def save_beside_the_story(page):
    """The model of the story keeps its last run while another model is saved."""
    page.show("story-model", fresh=True)
    page.until("relpos.page().numbers().perplexity > 0")
    page.show("length").download("ALiBi")
    page.show("story-model", head=3, at=7)
    check("length: after a model is saved, the story goes on", page.problem() == "" and len(page.csv()) > 40,
          page.problem())


def length(page):
    save_beside_the_story(page)
    first_pictures(page)
    p = page.p
    texts = {"text": "Set the option to a value.\n" * 9}
    for state in ({}, {"length": 300}, texts, {"length": 1100},
                  *({**state, "models": "swapped"}
                    for state in ({}, {"length": 300}, texts, {"also": "log,lambda=0.3", "length": 200}))):
        page.show("length", **state)
        page.until(LOADED)
        page.frames()
        save_models(page, "models" not in state)
        page.download("Save the text")
        mine, want = perplexities(page)
        what = f"length {state}"
        check(f"{what}: the perplexity of each range",
              all(np.shape(a) == np.shape(b) and np.abs(np.log(a) - np.log(b)).max() < LOSS
                  for a, b in zip(mine.values(), want)) and len(mine) == len(want) == 4
              + ("also" in state or "models" not in state), f"{mine} {want}")
        digits = [f"{x:.3f}" for x in mine["T5"]]
        check(f"{what}: in the table", column(page, "T5") == digits, f"{column(page, 'T5')} {digits}")
        rows = losses_of(page)
        finding(page, what, rows)
        last = 256 if len(rows) > 256 else 64 if len(rows) < 256 else 128
        check(f"{what}: the losses of the table that is saved",
              abs(np.exp(rows[:64, 1].mean()) - mine["no positions"][0]) < 1e-9 and len(rows) >= last)
    page.show("length")
    said = p.text_content("main p[role=status] >> nth=0")
    check("length: what the models were trained with", "trained with its own positions" in p.text_content("main")
          and "Beyond the trained length" in reasons(page), said)
    check("length: the lines jump from range to range", not page.slants(), page.slants())
    gap = p.evaluate("(svg => Math.min(...[...svg.querySelectorAll(':scope > path')].map(path => path.getBBox().y)) - "
                     "svg.querySelector('rect').getBBox().y)(document.querySelector('svg.chart'))")
    check("length: no line touches the top of the chart", gap >= 8, gap)
    svg = page.show("length").download("SVG").read_text()
    check("length: the legend is saved", all(name in svg for name in NAMES), svg[:200])
    p.focus("svg.chart")
    p.keyboard.press("End")
    check("length: values at a place", "bytes 4,096 to 8,191" in p.text_content(".tip")
          and "ALiBi" in p.text_content(".tip"), p.text_content(".tip"))
    short_texts(page)
    for also, why in (("bogus", "bogus"), ("t5,buckets=16", "it has other weights than")):
        page.show("length", models="swapped", also=also, length=100)
        p.wait_for_timeout(500)
        check(f"length: {also} is refused in words", why in page.problem(), page.problem())
    page.show("length", fresh=True, length=64)
    page.until(LOADED)
    p.evaluate("globalThis.long = [0]; new PerformanceObserver(list => long.push(...list.getEntries().map(e => "
               "e.duration))).observe({type: 'longtask'})")
    p.get_by_role("button", name="Play: 64 to 8,192").click()
    page.until("relpos.state().length > 600")
    p.get_by_role("button", name="Stop").click()
    page.frames()
    print(f"    Play: the longest task has {p.evaluate('Math.max(...long)'):.0f} ms")
    stopped, shown = p.evaluate("[relpos.state().length, relpos.page().numbers().read]")
    check("length: Stop stops at a length", 600 < stopped < 8192 and stopped % 64 == 0 and shown == stopped
          and not p.workers, [stopped, shown])
    page.show("bias")
