"""Test the view in which a trained model reads a long text: its perplexities are those of the command. SPDX-License-Identifier: Apache-2.0"""

import json

import numpy as np

from checks import check, command
from trained import LOSS

LOADED = "relpos.page().numbers().read > 0"
LENGTHS = (64, 1024, 8192)


def perplexities(page):
    """Return the perplexities of each range that the page shows, and those of the command."""
    page.frames()
    numbers, lines = page.p.evaluate("relpos.page().numbers()"), page.code().splitlines()[1:]
    found = [json.loads(command(line + " --json"))["lengths"][0] for line in lines]
    return numbers["perplexity"], [[x["perplexity"] for x in one["positions"]] for one in found]


def losses_of(page):
    """Return the losses of the table that the page saves, one row for each byte."""
    rows = np.array(page.csv()[1:], dtype=float)
    check("length: the ranges of the table follow each other", rows[0, 0] == 0 and (rows[1:, 0] == rows[:-1, 1]).all(), rows[:3])
    return np.repeat(rows[:, 2:], (rows[:, 1] - rows[:, 0]).astype(int), axis=0)


def finding(page, what, rows):
    """Check the sentence on the perplexities beyond the trained length, or on the last range."""
    said, n = page.p.text_content("main p[role=status] >> nth=0"), len(rows)
    first = 256 if n >= 320 else max(x for x in (0, 64, 128, 256) if x < n)
    found, within = (np.exp(rows[a:b].mean(axis=0)) for a, b in ((first, n), (0, 256)))
    names = ["T5", "no positions", "ALiBi", "RoPE", page.p.evaluate("relpos.state().also")]
    texts = [f"{x:.1f} with {name}" for x, name in zip(found, names)]
    want = f"bytes {first:,} to {n - 1:,}, perplexity is {', '.join(texts[:-1])} and {texts[-1]}."
    check(f"{what}: the finding", want in said and ("Beyond the 256 bytes" in said) == (n >= 320), f"{said} {want}")
    if n >= 320:
        times = f"With ALiBi it is {found[2] / found[0]:.1f} times that with T5; in the first 256 bytes, where T5 has {within[0]:.1f}, it is {within[2] / within[0]:.1f} times."
        lines = [line.split() for line in command("relpos bucket --causal -- " + " ".join(str(-d) for d in range(160))).splitlines()]
        far = next(-int(delta) for delta, bucket in lines if bucket == lines[-1][1])
        check(f"{what}: in comparison with the trained length", times in said and f"the same from distance {far} on" in said, f"{said} {times} {far}")


def first_pictures(page):
    """Check that the page's own text needs no reading, and that the numbers stored for it are those that the page reads."""
    p = page.p
    for n in LENGTHS:
        page.show("length", fresh=True, length=n)
        check(f"length {n}: shown at once", p.evaluate("relpos.page().numbers().read") == n and not p.workers, p.workers)
    stored = losses_of(page)
    p.evaluate("relpos.change({text: relpos.facts.text})")
    page.frames()
    page.until(f"relpos.page().csv().length === {LENGTHS[-1] + 1}")
    read = losses_of(page)
    parts = [losses.reshape(-1, 64, 4).mean(axis=1) for losses in (stored, read)]
    check("length: the stored losses are those of a text that is read", np.abs(parts[0] - parts[1]).max() < LOSS, np.abs(parts[0] - parts[1]).max())
    page.show("length", fresh=True, length=300)
    check("length: a length without stored numbers is read", p.evaluate("relpos.page().numbers().read") == 300 and len(p.workers) == 1, p.workers)
    page.show("length", length=320)
    check("length: and a stored one shown again", p.evaluate("relpos.page().numbers().read") == 320 and len(page.csv()) == 6, len(page.csv()))


def length(page):
    first_pictures(page)
    p = page.p
    page.download("Save the model")
    for state in ({}, {"length": max(LENGTHS)}, {"length": 300}, {"text": "Set the option to a value.\n" * 9}, {"also": "log,lambda=0.3", "length": 200}, {"length": 1100}):
        page.show("length", **state)
        page.until(LOADED)
        page.frames()
        page.download("Save the text")
        mine, want = perplexities(page)
        what = f"length {state}"
        check(f"{what}: the perplexity of each range", all(np.shape(a) == np.shape(b) and np.abs(np.log(a) - np.log(b)).max() < LOSS for a, b in zip(mine.values(), want)) and len(mine) == len(want) == 4 + ("also" in state), f"{mine} {want}")
        digits = [f"{x:.3f}" for x in mine["T5, as trained"]]
        check(f"{what}: in the table", page.cells("T5, as trained") == digits, f"{page.cells('T5, as trained')} {digits}")
        rows = losses_of(page)
        finding(page, what, rows)
        last = 256 if len(rows) > 256 else 64 if len(rows) < 256 else 128
        check(f"{what}: the losses of the table that is saved", abs(np.exp(rows[:64, 1].mean()) - mine["no positions"][0]) < 1e-9 and len(rows) >= last)
    said = p.text_content("main p[role=status] >> nth=0")
    check("length: what the model was trained with", "trained with T5" in p.text_content("main") and said, said)
    check("length: the lines jump from range to range", not page.slants(), page.slants())
    gap = p.evaluate("(svg => Math.min(...[...svg.querySelectorAll(':scope > path')].map(path => path.getBBox().y)) - svg.querySelector('rect').getBBox().y)(document.querySelector('svg.chart'))")
    check("length: no line touches the top of the chart", gap >= 8, gap)
    svg = page.show("length").download("SVG").read_text()
    check("length: the legend is saved", all(name in svg for name in mine), svg[:200])
    p.focus("svg.chart")
    p.keyboard.press("End")
    check("length: values at a place", "bytes 512 to 1,023" in p.text_content(".tip") and "ALiBi" in p.text_content(".tip"), p.text_content(".tip"))
    for also, why in (("bogus", "bogus"), ("t5,buckets=16", "it has other weights than")):
        page.show("length", also=also, length=100)
        p.wait_for_timeout(500)
        check(f"length: {also} is refused in words", why in page.problem(), page.problem())
    page.show("length", fresh=True, length=64)
    page.until(LOADED)
    p.evaluate("globalThis.long = [0]; new PerformanceObserver(list => long.push(...list.getEntries().map(e => e.duration))).observe({type: 'longtask'})")
    p.get_by_role("button", name="Play: 64 to 8,192").click()
    page.until("relpos.state().length > 600")
    p.get_by_role("button", name="Stop").click()
    page.frames()
    print(f"    Play: the longest task has {p.evaluate('Math.max(...long)'):.0f} ms")
    stopped, shown = p.evaluate("[relpos.state().length, relpos.page().numbers().read]")
    check("length: Stop stops at a length", 600 < stopped < 8192 and stopped % 64 == 0 and shown == stopped and not p.workers, [stopped, shown])
    page.show("bias")
