"""Test the step of the story in which a trained model reads a text: its numbers are those of the command.
SPDX-License-Identifier: Apache-2.0"""

import json

import numpy as np

from checks import check, command, work

LOADED = "!!relpos.page().numbers()?.loss"
# The page and the program add the products of f32 matrices in different orders. A loss is a difference of sums of about
# 1,000 rounded products, each to 2^-24 of at most 10.
LOSS = 1000 * 10 * 2**-24
TEXTS = ("The cursor is moved to the next line. The cur", "a b", "Größe? 3 > 2; 'quotes' and \"more\" $HOME `x` \\n",
         "z" * 256)


def habit(weights):
    """Return what a head attends to on average, from its weights."""
    rows = weights[4:]
    places = np.arange(4, len(weights))
    names = ("the byte itself", "the byte before", "two bytes before", "three bytes before", "the first byte")
    shares = [np.mean([row[at - back] for row, at in zip(rows, places)]) for back in range(4)] + [rows[:, 0].mean()]
    if max(shares) > 0.3:
        return (f"On average, this head gives {np.floor(100 * max(shares) + 0.5):.0f} % of its weight to "
                f"{names[np.argmax(shares)]}")
    logs = np.log(rows, where=rows > 0, out=np.zeros_like(rows))
    return ("On average, this head spreads its weight over about "
            f"{np.floor(np.exp(-(rows * logs).sum(1)).mean() + 0.5):.0f} bytes")


def axes(page, what):
    """Check that the bars of scores and weights end where the labels beside them say."""
    labels, scores, weights = page.p.evaluate(
        """(() => { const of = what => [...document.querySelectorAll(`.sums svg ${what}`)], number = name => e =>
            +e.getAttribute(name);
        return [of('.tick').map(e => [+e.textContent.replace('−', '-'), +e.getAttribute('y') - 4]),
        of('.score').map(e => +e.getAttribute('y') + 1), of('.share-bar').map(number('height'))]; })()""")
    rows = [row for row in page.csv()[1:] if row[3] != ""]
    (score, *more), (zero, base), (full, top) = labels[:-2], labels[-2], labels[-1]
    slope, start = np.polyfit(*zip(score, *more), 1)
    check(f"{what}: scores have an axis", len(labels) >= 5
          and np.allclose([start + slope * row[3] for row in rows], scores, atol=0.01), labels)
    check(f"{what}: weights have an axis from 0",
          zero == 0 and np.allclose([max((base - top) * row[4] / full, 0.4) for row in rows], weights, atol=0.01)
          and max(row[4] for row in rows) <= full * 1.0001, labels)


def near(a, b, bound=LOSS):
    return np.shape(a) == np.shape(b) and np.abs(np.array(a) - np.array(b)).max() < bound


def losses(text, *options):
    """Return the mean loss of a text in nats, computed by the command."""
    (work / "part.txt").write_text(text)
    size = len(text.encode()) - 1
    return (json.loads(command(" ".join(["relpos lab eval relpos-model.safetensors --text part.txt --json --lengths",
                                         str(size), *options])))["lengths"][0]["loss"])


def trained(page):
    page.show("story-model")
    page.until(LOADED)
    page.download("Save the model")
    page.p.evaluate("relpos.change({})")
    numbers = lambda: page.p.evaluate("relpos.page().numbers()")
    for text in TEXTS:
        page.show("story-model", text=text)
        page.until(LOADED)
        found, lines = numbers(), page.code().splitlines()
        want = json.loads(command("\n".join((lines[0], lines[1] + " --json"))))["lengths"][0]
        check(f"{text[:20]}: the perplexity", abs(np.log(found["perplexity"]) - want["loss"]) < LOSS,
              f"{found['perplexity']} {want}")
        check(f"{text[:20]}: and in words", f"{want['perplexity']:.2f}" in page.p.text_content(".said"),
              page.p.text_content(".said"))
    text = TEXTS[0]
    for n in (1, 7, 30):  # the loss at a position is the difference of two sums
        page.show("story-model")
        part = losses(text[: n + 1]) * n - (losses(text[:n]) * (n - 1) if n > 1 else 0)
        check(f"the loss at byte {n}", abs(numbers()["loss"][n - 1] - part) < 2 * n * LOSS,
              f"{numbers()['loss'][n - 1]} {part}")
    probabilities = numbers()["probabilities"]
    for byte in "sr,":
        want = losses(text + byte) * len(text) - losses(text) * (len(text) - 1)
        check(f"the probability of {byte}", abs(-np.log(probabilities[ord(byte)]) - want) < 2 * len(text) * LOSS,
              f"{probabilities[ord(byte)]} {np.exp(-want)}")
    for head in (0, 5, 15):
        page.show("story-model", head=head)
        want = json.loads(command(page.code().splitlines()[2]))
        rows = [row for row in page.csv()[1:]]
        for column, key in ((2, "scaled"), (3, "score"), (4, "weights")):
            check(f"head {head}: {key}", near([row[column] for row in rows], want[key], 1e-3),
                  f"{[row[column] for row in rows][-3:]} {want[key][-3:]}")
        n = len(text)
        map_ = np.reshape(numbers()["maps"][head // 4], (4, n, n))[head % 4]
        check(f"head {head}: the last row of its map", near(map_[-1], want["weights"], 1e-3))
        said = page.p.get_attribute(f".maps button >> nth={head}", "title")
        check(f"head {head}: what it attends to", said == habit(map_)
              and (head != 0 or page.p.text_content(".maps .habit") == said.replace("this head", "head 0.0") + "."),
              f"{said} {habit(map_)}")
        check(f"head {head}: a map", np.abs(map_.sum(1) - 1).max() < 1e-9 and np.triu(map_, 1).max() == 0)
    for scheme in ("none", "alibi", "rope"):
        page.show("story-model", scheme=scheme)
        want = losses(text, "--position", scheme)
        check(f"{scheme}: the perplexity", abs(np.log(numbers()["perplexity"]) - want) < LOSS,
              f"{numbers()['perplexity']} {np.exp(want)}")
        check(f"{scheme}: what it was trained with", "trained with T5" in page.p.text_content(".said"))
    hands(page)
    writing(page)
    page.show("story-model", fresh=True)
    page.until(LOADED)
    for typed, shown in (("S", False), ("Se", True)):  # nothing of another text stays
        page.p.fill("#own-text", typed)
        page.frames()
        check(f"typing {typed}", page.p.locator(".live canvas >> nth=0").is_visible() == shown and page.problem() == ""
              and ("Type on" in page.p.text_content(".said")) != shown,
              f"{page.problem()} {page.p.text_content('.said')}")


def writing(page):
    """Let the model write: likely bytes, a certain number of them, until the reader stops it or types."""
    p = page.p
    start = "Move the cursor to the "
    text = lambda: p.evaluate("relpos.state().text")
    page.show("story-model", text=start, scheme="")
    button = p.locator(".next-figure > button")
    button.click()
    check("while the model writes, screen readers do not read each byte", p.get_attribute(".said", "aria-live") == "off"
          and button.text_content() == "Stop")
    page.until(f"relpos.state().text.length === {len(start) + 40} && document.querySelector('.next-figure > "
               "button').textContent === 'Write on'")
    written = text()
    loss = np.array(losses(written) * (len(written) - 1) - losses(start) * (len(start) - 1)) / 40
    check("the model writes what it expects", written.startswith(start) and loss < 2, f"{written} {loss}")
    p.wait_for_timeout(400)
    check("and stops after 40 bytes", text() == written and p.get_attribute(".said", "aria-live") == "polite", text())
    for how in (button.click, lambda: p.fill("#own-text", "Set")):
        button.click()
        page.until(f"relpos.state().text.length > {len(text()) + 2}")
        how()
        page.frames()
        before = text()
        p.wait_for_timeout(400)
        check("the reader stops it", text() == before and button.text_content() == "Write on", f"{before} {text()}")


def hands(page):
    """Type, and choose bytes and heads by keyboard and mouse."""
    p = page.p
    page.show("story-model")
    p.fill("#own-text", "")
    p.type("#own-text", "Set the option")
    page.frames()
    check("typing changes the text", p.evaluate("relpos.state().text") == "Set the option"
          and len(p.query_selector_all(".byte")) == 14)
    p.focus(".bytes")
    p.keyboard.press("ArrowLeft")
    p.keyboard.press("ArrowLeft")
    page.frames()
    check("arrows choose a byte", p.evaluate("relpos.state().at") == 11
          and "byte 11, “i”" == p.get_attribute(".bytes", "aria-valuetext"), p.evaluate("relpos.state()"))
    boxes = p.eval_on_selector_all(".byte", "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left + b.width "
                                            "/ 2, b.bottom - 5])")
    p.mouse.move(*boxes[2])
    p.mouse.down()
    chosen = []
    for to in boxes[3:7]:
        p.mouse.move(*to)
        page.frames()
        chosen.append(p.evaluate("relpos.state().at"))
    p.mouse.up()
    check("dragging along the text chooses bytes", chosen == [3, 4, 5, 6], chosen)
    p.evaluate("relpos.change({at: 11})")
    page.frames()
    p.focus(".maps [aria-pressed=true]")
    p.keyboard.press("ArrowRight")
    page.frames()
    check("arrows choose a head", p.evaluate("relpos.state().head") == 9
          and p.evaluate("document.activeElement.ariaLabel") == "layer 2, head 1")
    check("Tab reaches one head", p.evaluate("[...document.querySelectorAll('.maps button')].filter(b => b.tabIndex "
                                             "=== 0).length") == 1)
    p.focus(".sums svg")
    p.keyboard.press("Home")
    page.frames()
    content, score, weights = (page.csv()[1][n] for n in (2, 3, 4))
    shown = p.text_content(".sums .readout")
    middles = p.eval_on_selector_all(".sums .mark, .sums .score",
                                     "all => all.map(e => e.getBoundingClientRect()).map(box => box.left + box."
                                     "width / 2)")
    check("the column that is read is shaded", abs(middles[0] - middles[1]) < 1, middles)
    box = p.eval_on_selector(".sums svg", "e => e.getBoundingClientRect().toJSON()")
    p.mouse.move(middles[6], box["y"] + 9)
    page.frames()
    mark = p.eval_on_selector(".sums .mark", "e => e.getBoundingClientRect().toJSON()")
    check("and that under the mouse", abs(mark["x"] + mark["width"] / 2 - middles[6]) < 1, f"{mark} {middles[6]}")
    want = (f": {content:.2f} {'−' if score < content else '+'} {abs(score - content):.2f} = {score:.2f} → weight "
            f"{weights:.3f}".replace("-", "−"))
    check("a cell says its sum", shown.endswith(want) and shown.startswith("“S”, distance 11"), f"{shown} {want}")
    for text, scheme, size in (("Set the option", "alibi", (1280, 900)), ("Set the option", "", (390, 844)),
                               (TEXTS[0], "rope", (1280, 900))):
        p.set_viewport_size({"width": size[0], "height": size[1]})
        page.show("story-model", text=text, scheme=scheme)
        axes(page, f"{text[:14]!r} {scheme} at {size[0]}")
    p.set_viewport_size({"width": 1280, "height": 900})
    found = {}
    for n in range(p.locator(".tries button").count()):
        p.click(f".tries button >> nth={n}")
        page.frames()
        found[p.input_value("#own-text")] = page.p.evaluate("relpos.page().numbers().perplexity")
        shown, real = (p.locator(".next-bytes > button > :last-child").all_text_contents(),
                       sorted(page.p.evaluate("relpos.page().numbers().probabilities"), reverse=True))
        check(f"example {n}: the next bytes", shown == [f"{x:.3f}" if x >= 5e-4 else "< 0.001" for x in real[:7]],
              f"{shown} {real[:7]}")
    check("examples that the model knows and does not know",
          len(found) == 4 and max(found.values()) > 3 * min(found.values()), found)
    page.show("story-model", text="héllo ʷQ@Z", scheme="")
    drawn = p.eval_on_selector_all(".byte",
                                   """all => all.slice(1).map(e => [e.firstChild.getBoundingClientRect().height,
                                       e.firstChild.classList.contains('over'),
        parseFloat(getComputedStyle(e).paddingTop), e.lastChild.scrollWidth <= e.lastChild.clientWidth + 1])""")
    losses = page.csv()[1:]
    for (high, over, room, fits), (byte, loss, *_) in zip(drawn, losses[1:]):
        want = min(loss / (1.5 * np.log(256)), 1) * room
        check(f"the bar of {byte} ends at its loss, in units of the line", abs(high - want) < 0.6
              and over == (loss > 1.5 * np.log(256)) and fits, f"{high} {want} {over} {fits}")
    formulas = [(page.show("story-model", text="Set the option", scheme=scheme), p.text_content(".formula math"))[1]
                for scheme in ("", "none", "alibi", "rope")]
    check("the formula is of the scheme", len(set(formulas)) == 4 and ["table" in x for x in formulas]
          == [True, False, False, False] and "bucket(j−i)" in formulas[0] and "(i−j)" in formulas[2], formulas)
    page.show("story-model", text="aaaaaaaaaaaaaaaaaaaa", scheme="none")
    check("equal perplexities are called so", "the same as with T5" in p.text_content(".said"), p.text_content(".said"))
    p.click(".guess button >> nth=2")
    page.frames()
    check("each of equal schemes is right",
          p.text_content(".guess [role=status]").startswith("Right. The perplexities of your text: T5, as trained "),
          p.text_content(".guess"))
    page.show("story-model", text=TEXTS[0])
    p.click(".guess button >> nth=0")
    page.frames()
    best = min((("none", 1), ("alibi", 2), ("rope", 3)),
               key=lambda pair: float(p.text_content(".guess [role=status]").split(": ")[-1].strip(".").split(", ")[
                   pair[1] + 1].split()[-1]))[0]
    check("and the answer stays", p.text_content(".guess [role=status]") != "")
    p.fill("#own-text", "hello world")
    page.frames()
    check("another text is read with T5 again", p.evaluate("relpos.state().scheme") == "", p.evaluate("relpos.state()"))
    check("another text has no answer yet", p.text_content(".guess [role=status]") == ""
          and not p.query_selector(".guess [aria-pressed=true]"), p.text_content(".guess"))
    p.fill("#own-text", TEXTS[0])
    p.click(".guess button >> nth=0")
    page.frames()
    check("the guess shows the best scheme", p.evaluate("relpos.state().scheme") == best,
          f"{p.evaluate('relpos.state().scheme')} {p.text_content('.guess')}")
    page.show("story-model", text="", scheme="")
    before = p.text_content(".next-bytes button b")
    p.click(".next-bytes button >> nth=0")
    page.frames()
    check("a click writes the next byte", p.evaluate("relpos.state().text") == TEXTS[0] + before,
          p.evaluate("relpos.state().text"))
    for _ in range(2):
        p.keyboard.press("Enter")
        page.frames()
    check("the buttons of the next byte keep the focus", len(p.evaluate("relpos.state().text")) == len(TEXTS[0]) + 3
          and p.evaluate("document.activeElement.parentNode.className") == "next-bytes")
    page.show("story-model", text="The", scheme="none")
    page.until("!!relpos.page().numbers().loss")
    check("few bytes say little", "A few bytes say little." in p.text_content(".said")
          or "with T5 it is" in p.text_content(".said"), p.text_content(".said"))
