"""Test the steps of the story: their numbers, guesses, settings and words. SPDX-License-Identifier: Apache-2.0"""

import json
import re

import numpy as np

from checks import check, command, fixed

STEPS = [f"story-{step}" for step in ("order", "bias", "slopes", "buckets", "vectors", "dials", "beyond", "model")]


def command_output(page):
    """Run the command that the step shows, and return its JSON output."""
    return json.loads(command(page.code().replace("relpos explain", "relpos explain --json", 1)))


def columns(page):
    return list(zip(*page.csv()[1:]))


def softmax(x):
    e = np.exp(np.array(x) - max(x))
    return e / e.sum()


def words(page):
    """Compare the weights without positions, and those with a bias, with the output of the command. Without positions,
    the order of the words must not change a weight."""
    for step, states in {
        "story-order": ({}, {"order": "3.1.0.2.4.5.6", "word": 5},
                        {"text": "you eat to live", "order": "3.2.1.0", "word": 0}),
        "story-bias": ({}, {"order": "3.1.6.0.2.5.4", "strength": 2},
                       {"text": "dog bites man", "order": "2.1.0", "strength": 0}),
    }.items():
        for state in states:
            page.show(step, **state)
            _, weights, biases = columns(page)
            want = command_output(page)
            check(f"{step} {state}: the weights", fixed(weights) == fixed(want["weights"]),
                  f"{weights} {want['weights']}")
            check(f"{step} {state}: the biases", fixed(biases) == fixed(want["bias"]), f"{biases} {want['bias']}")
            shown = page.p.eval_on_selector_all(".word", "all => all.map(x => x.querySelector('.number').textContent)")
            order = page.p.evaluate("relpos.state().order").split(".") if state.get("order") else [*range(len(shown))]
            check(f"{step} {state}: under the words", [shown[int(n)] for n in order] == fixed(want["weights"], 2),
                  shown)
            moved = page.p.evaluate("relpos.page().numbers().moved")
            if step == "story-bias" and state.get("strength", 1) > 0 and "order" in state:
                check(f"{step} {state}: the order counts", moved > 0.01, moved)
            else:
                check(f"{step} {state}: no weight moves",
                      moved < 1e-12 and page.p.evaluate("relpos.page().numbers().movedOutput") < 1e-12, moved)
    page.show("story-bias", order="6.5.4.3.2.1.0", strength=2)
    check("a bias of the distance does not see the words reversed",
          page.p.evaluate("relpos.page().numbers().moved") < 1e-12)
    page.show("story-order")
    orders = set()
    for _ in range(8):
        page.p.click("button.main")
        page.frames()
        orders.add(page.p.evaluate("relpos.state().order"))
        check("shuffled words: no weight moves", page.p.evaluate("relpos.page().numbers().moved") < 1e-12)
        first = page.p.evaluate("relpos.state().order") == "0.1.2.3.4.5.6"  # by chance, 1 of 5,039
        check("and the page reports it",
              ("1,260 orders" if first else "no weight has changed: 0.0000") in page.p.text_content(".said"),
              page.p.text_content(".said"))
    check("each time another order", len(orders) > 4, orders)
    check("how many orders there are", page.p.evaluate("relpos.page().numbers().orders") == 1260)
    page.show("story-order", text="word")
    check("one word has one order", "only one order" in page.p.text_content(".said"), page.p.text_content(".said"))
    check("and cannot be shuffled", page.p.get_by_role("button", name="Shuffle the words").is_disabled())
    page.show("story-bias", text="word")
    check("one word has nothing to move", "Enter two or more words" in page.p.text_content(".said"),
          page.p.text_content(".said"))
    page.show("story-bias")
    page.p.get_by_role("button", name="Reverse", exact=True).click()
    page.frames()
    check("Reverse: no weight changes", page.p.evaluate("relpos.state().order") == "6.5.4.3.2.1.0"
          and "no weight has changed: the distances" in page.p.text_content(".said"), page.p.text_content(".said"))
    page.show("story-bias", order="6.5.4.3.2.1.0", strength=0)
    check("without a bias: the reason is another", "Without a bias nothing changes" in page.p.text_content(".said"),
          page.p.text_content(".said"))
    page.show("story-bias")
    added, row = float(page.p.text_content(".said strong")), command_output(page)
    want = np.abs(np.array(row["weights"]) - row["weights_plain"]).max()
    check("a bias: it opens where the bias shows", fixed([added]) == fixed([want]) and added > 0.1, f"{added} {want}")
    for order in ("", "0.1", "0.0.1.2.3.4.5", "a.b", "6.5.4.3.2.1.-1"):
        page.show("story-order", order=order)
        names = [row[0] for row in page.csv()[1:]]
        check(f"the order {order}: as it stands", names == "only she told him she loved him".split(), names)
        check(f"the order {order}: and the page says so", (page.problem() == "") == (order == "")
              and (not order or "must be the places of 7 words" in page.problem()), page.problem())
    page.show("story-order", text="one two three four five six seven eight nine ten eleven twelve thirteen")
    shown = [row[0] for row in page.csv()[1:]]
    check("too many words: the last ones are shown", page.problem() == ""
          and shown == "two three four five six seven eight nine ten eleven twelve thirteen".split(), shown)
    check("too many words: and the page says so",
          page.p.text_content(".said").endswith(" Your text has 13 words; there is space for the last 12."),
          page.p.text_content(".said"))


def schemes(page):
    for state in ({}, {"query": 0}, {"heads": 6, "head": 5, "query": 511}):
        page.show("story-slopes", **state)
        heads, tokens, biases, weights = columns(page)
        want = command_output(page)["bias"]
        check(f"slopes {state}: the biases", fixed(biases) == fixed(want), biases[:5])
        check(f"slopes {state}: the weights",
              fixed(weights) == fixed(np.concatenate([softmax(row[0]) for row in want])), weights[:5])
    for state in ({}, {"layer": 1, "head": 3, "back": 160}, {"back": 0, "head": 2}):
        page.show("story-buckets", **state)
        check(f"buckets {state}: the formula has the offset that relpos bucket reads",
              "bucket(j−i)" in "".join(page.p.text_content(".formula math").split()), page.p.text_content(".formula"))
        check(f"buckets {state}: the curve jumps from bucket to bucket", not page.slants(), page.slants())
        back, buckets, biases = columns(page)
        want = command_output(page)["bias"][page.p.evaluate("relpos.state().head")][0][::-1]
        check(f"buckets {state}: the biases", fixed(biases) == fixed(want), biases[:5])
        lines = command("relpos bucket --buckets 32 --max-distance 128 --causal -- " + " ".join(str(-n) for n in back))
        check(f"buckets {state}: the buckets",
              [str(n) for n in buckets] == [line.split()[1] for line in lines.splitlines()], buckets)
        at = page.p.evaluate("relpos.state().back")
        check(f"buckets {state}: said", f"in bucket {buckets[at]}" in page.p.text_content(".said"),
              page.p.text_content(".said"))
    for state in ({}, {"word": 5, "clip": 0}, {"word": 1, "clip": 8, "offset": 8}):
        page.show("story-vectors", **state)
        offsets, scores = columns(page)
        want = command_output(page)["score"]
        check(f"vectors {state}: the scores", fixed(scores) == fixed(want), f"{scores} {want}")
    check("the same word: the same scores", page.csv() == page.show("story-vectors", word=4, clip=8).csv()
          != page.show("story-vectors", word=0, clip=8).csv())
    for state in ({}, {"at": 150, "back": 33, "base": 10000}, {"back": 0}):
        page.show("story-dials", **state)
        here, there = page.p.evaluate("(({here, there}) => [here, there])(relpos.page().numbers())")
        want = command_output(page)["scaled"][0]
        check(f"dials {state}: the score", fixed([here]) == fixed([want]), f"{here} {want}")
        check(f"dials {state}: the same anywhere", abs(here - there) < 1e-9, f"{here} {there}")
        parts = page.p.evaluate("relpos.page().numbers().parts")
        check(f"dials {state}: four parts sum to the score", len(parts) == 4 and abs(sum(parts) - here) < 1e-12,
              f"{parts} {here}")
        shown = [t.replace("−", "-")
                 for t in page.p.locator("svg.chart[aria-label^='dial 0'] text").all_text_contents()[::2]]
        check(f"dials {state}: and so they are drawn", [f"{float(t):.3f}" for t in shown] == fixed([*parts, here], 3),
              f"{shown} {parts}")
    for length in (64, 600, 8192):
        page.show("story-beyond", length=length)
        page.download("Save the arrays")
        back, *scores = (np.array(column) for column in columns(page))
        text, rows = command(page.code()), []
        while text := text.lstrip():
            row, end = json.JSONDecoder().raw_decode(text)
            rows, text = [*rows, row], text[end:]
        # the command prints all schemes of a head together
        rows = [rows[head * 4 + scheme] for scheme in range(4) for head in range(4)]
        check(f"beyond {length}: every curve is what the command prints", len(scores) == len(rows)
              and all(fixed(x) == fixed(row["score"][::-1]) for x, row in zip(scores, rows)))
        shares = page.p.evaluate("relpos.page().numbers().fractions")
        want = np.reshape([sum(row["weights"][:-512]) for row in rows], (4, 4)).mean(axis=1)
        check(f"beyond {length}: the fraction beyond", np.abs(np.array(shares) - want).max() < 1e-9, f"{shares} {want}")
        titles = page.p.locator(".four figcaption").all_text_contents()
        check(f"beyond {length}: in the titles", [f": {max(1, round(100 * x))} %" in title
                                                  for x, title in zip(want, titles)] == [length > 512] * 4, titles)
        turned = [round(np.degrees(0.001 * (n - 1))) for n in (length, 512)]
        notes = [
            f"its flattest head falls from 2 to {2 - (length - 1) / 256:.1f}".replace("-", "−"),
            "the same number from distance 113 on" if length > 113 else "",
            "the same vector from distance 511 on" if length > 511 else "",
            f"slowest dial: {turned[0]}°" + (f", trained to {turned[1]}°" if length > 512 else ""),
        ]
        check(f"beyond {length}: what happens at the end", [title.endswith(note) for title, note in zip(titles, notes)]
              == [True] * 4, titles)
        for head in range(4):
            check(f"beyond {length}: ALiBi {head}", np.abs(scores[head] - (2 - back / 4 ** (head + 1))).max() < 1e-9)
            check(f"beyond {length}: RoPE {head}", np.abs(scores[12 + head] - 2 * np.cos(back / 10**head)).max() < 1e-9)
            for name, column, last in (("T5", scores[4 + head], 113), ("Shaw", scores[8 + head], 511)):
                check(f"beyond {length}: {name} {head} repeats its last",
                      length <= last or (column[last:] == column[-1]).all() and column[last - 1] != column[-1])


GUESSES = {"story-order": 2, "story-bias": 1, "story-slopes": 1, "story-buckets": 1, "story-vectors": 1,
           "story-dials": 2, "story-beyond": 0, "story-model": 1}


def guesses(page):
    """Check that each step asks for a guess, and that the answer agrees with numbers of the page."""
    for step in STEPS:
        page.show(step)
        page.until("relpos.page().csv().length > 0")
        buttons = page.p.locator(".guess button")
        names = buttons.all_text_contents()
        for n, name in enumerate(names):
            buttons.nth(n).click()
            said = page.p.text_content(".guess [role=status]")
            check(f"{step}: the guess {name}",
                  said.startswith("Right. " if n == GUESSES[step] else f"Not quite: {names[GUESSES[step]]}. "), said)
            check(f"{step}: it is pressed", buttons.nth(n).get_attribute("aria-pressed") == "true")
    def answered(step, n, key, **state):
        page.show(step, **state)
        page.until("relpos.page().csv().length > 0")
        page.p.click(f".guess button >> nth={n}")
        page.frames()
        return page.p.evaluate(f"relpos.state().{key}")

    check("the answer moves one word", answered("story-order", 0, "order", order="", text="one two three") == "2.0.1")
    check("the answer reverses the words", answered("story-bias", 0, "order", order="", text="one two three")
          == "2.1.0")
    check("the answer shows the other place of a word", answered("story-vectors", 0, "word", word=0, text="a b c b a")
          == 4)
    check("or of a word that has one", answered("story-vectors", 0, "word", word=2, text="a b c b a") in (0, 4))
    check("the answer moves both words", answered("story-dials", 0, "at", at=3) == 103
          and answered("story-dials", 0, "at", at=150) == 50)
    perplexity = {}
    page.show("story-model", text="")
    for scheme in ("none", "alibi", "rope"):
        page.p.evaluate("scheme => relpos.change({scheme})", scheme)
        page.frames()
        perplexity[scheme] = page.p.evaluate("relpos.page().numbers().perplexity")
    check("ALiBi reads best", min(perplexity, key=perplexity.get) == "alibi", perplexity)
    page.show("story-beyond", length=8192)
    shares = page.p.evaluate("relpos.page().numbers().fractions")
    check("ALiBi gives far words the least", shares.index(min(shares)) == 0, shares)
    offsets = {bucket for back, bucket, _ in page.show("story-buckets").csv()[1:] if back in (100, 110)}
    check("100 and 110 share a bucket", len(offsets) == 1, offsets)


def flattest_head(page):
    """The answer of ALiBi's step follows the slopes: with 12 heads, the last one is not the flattest."""
    for heads, right in ((8, "the last head"), (12, "another head"), (3, "another head"), (1, "head 0")):
        page.show("story-slopes", heads=heads, head=0)
        rows = np.array(page.csv()[1:], dtype=float)
        bias = rows[rows[:, 1] == 0][:, 2]
        page.p.get_by_role("button", name=right, exact=True).click()
        said = page.p.text_content(".guess [role=status]")
        check(f"slopes: the flattest of {heads} heads", said.startswith("Right. ")
              and f"head {int(bias.argmax())} is the smallest" in said, f"{said} {bias}")


def guess_before_answer(page):
    """Check that step 7 does not answer its question before the reader does, and that its charts give the values that
    they do not draw."""
    titles = lambda: page.p.locator(".four figcaption").all_text_contents()
    page.show("story-beyond", fresh=True)
    check("beyond: opens without the answer", page.p.evaluate("relpos.state().length") == 512
          and not any("%" in title for title in titles()), titles())
    page.p.click(".guess button >> nth=1")
    page.frames()
    check("beyond: a guess shows it", page.p.evaluate("relpos.state().length") == 8192
          and all("% of attention beyond 512" in title for title in titles()), titles())
    page.p.evaluate("relpos.change({length: 900})")
    page.frames()
    page.p.click(".guess button >> nth=0")
    page.frames()
    check("beyond: a later guess keeps the length", page.p.evaluate("relpos.state().length") == 900)
    chart = page.p.locator(".four svg.chart").first
    chart.focus()
    page.p.keyboard.press("End")
    values = page.p.locator(".four .tip").first.inner_text().splitlines()
    want = [f"head {head} {2 - 899 / 4 ** (head + 1):.4f}".replace("-", "−") for head in range(4)]
    check("beyond: all heads have a value, also outside of the frame",
          [v.strip() for v in values] == ["distance 899", *want], values)
    third = page.p.locator(".four svg.chart").nth(2)
    third.focus()
    page.p.keyboard.press("End")
    values = [value.strip() for value in page.p.locator(".four .tip").nth(2).inner_text().splitlines()]
    low, *middle, high = sorted(page.csv()[-1][9:13])
    want = [f"all heads {low:.4f} to {high:.4f}", f"median {np.mean(middle):.4f}"]
    check("beyond: Shaw has the range and the median of its heads",
          values == ["distance 899", *(text.replace("-", "−") for text in want)]
          and third.locator(".band").count() == 1, f"{values} {want}")
    legend = page.p.locator(".four > .legend span").all_text_contents()
    check("beyond: a legend names the heads", legend == [*(f"head {head}" for head in range(4)), "Shaw: all heads",
                                                         "Shaw: their median"], legend)
    tall = page.p.locator(".four path").first.bounding_box()
    frame = chart.bounding_box()
    check("beyond: no curve leaves its frame", frame["y"] <= tall["y"] and tall["y"] + tall["height"] <= frame["y"]
          + frame["height"] - 24, f"{tall} {frame}")


def surprise(page):
    """Check that the losses of step 8 have a colour of their own, and a legend with their unit and mean."""
    page.show("story-model")
    page.until("relpos.page().csv().length > 0")
    used = page.p.evaluate(
        """['.byte:nth-child(3) > i', '.surprise .swatch', ...['content', 'position', 'score', 'weight'].map((_, n) =>
            `.sums .legend > :nth-child(${n + 1}) .swatch`)]
        .map(name => getComputedStyle(document.querySelector(name)).backgroundColor)""")
    check("the losses have a colour of their own", used[0] == used[1] and len(set(used)) == 5, used)
    loss = page.p.evaluate("relpos.page().numbers().loss")
    said = page.p.text_content(".surprise")
    check("the model is saved beside the picture", page.p.locator(".text [aria-label=Save] button").last.inner_text()
          == "Save the model")
    check("and a legend", f"{np.mean(loss):.2f} nats" in said and f"{np.log(256):.2f}" in said, said)


def dials_over_bars(page):
    """Check that each dial of step 6 stands over its bar, and that the sum has the last column."""
    for size in ((1440, 900), (1024, 768), (390, 844), (320, 568)):
        page.p.set_viewport_size({"width": size[0], "height": size[1]})
        page.show("story-dials")
        dials, bars = (
            page.p.eval_on_selector_all(which, "all => all.map(e => e.getBoundingClientRect()).map(r => [(r.left + "
                                               "r.right) / 2, r.bottom])")
            for which in (".dials > *", "svg.chart[aria-label^='dial 0'] rect")
        )
        check(f"dials, {size}: a column has a dial and its bar", len(dials) == len(bars) == 5
              and all(abs(a[0] - b[0]) < 2 and a[1] < b[1] for a, b in zip(dials, bars)), f"{dials} {bars}")
        names = page.p.locator("svg.chart[aria-label^='dial 0'] text").all_text_contents()[1::2]
        check(f"dials, {size}: the last one is the sum",
              names == ["dial 0", "+ dial 1", "+ dial 2", "+ dial 3", "= score"], names)
        sizes = page.p.eval_on_selector_all(".dials > * > svg", "all => all.map(e => e.getBoundingClientRect().height)")
        check(f"dials, {size}: are as high as they are wide, or less", min(sizes) > 50 and max(sizes) <= size[0] / 5
              + 8, sizes)
    page.p.set_viewport_size({"width": 1280, "height": 900})


def axes_of_slopes(page):
    """Check that the map of step 3 has axes: the positions of the keys, the query among them, and the heads."""
    for size, query, heads in (((1440, 900), 400, 8), ((1024, 768), 511, 8), ((390, 844), 20, 16),
                               ((390, 844), 500, 16), ((320, 568), 400, 5)):
        what = f"slopes, {size}, query {query}, {heads} heads"
        page.p.set_viewport_size({"width": size[0], "height": size[1]})
        page.show("story-slopes", query=query, heads=heads)
        map = page.p.eval_on_selector(".framed canvas", "e => (r => [r.left, r.top, r.width, "
                                                        "r.height])(e.getBoundingClientRect())")
        labels = page.p.eval_on_selector_all(".framed text", "all => all.map(e => [e.textContent, "
                                                             "e.getBoundingClientRect()]).map(([t, r]) => [t, (r.left "
                                                             "+ r.right) / 2, (r.top + r.bottom) / 2, r.right, "
                                                             "r.left])")
        check(f"{what}: the axes have names", {"position of the key", "head"} <= {label[0] for label in labels}, labels)
        down, across = ([label for label in labels if label[0].isdigit() and (label[1] < map[0]) == beside]
                        for beside in (True, False))
        want = {text: map[1] + (int(text) + 0.5) / heads * map[3] for text, *_ in down}
        check(f"{what}: a row has the number of its head", len(down) >= min(heads, 4)
              and all(abs(y - want[text]) < 3 for text, _, y, *_ in down), f"{down} {map}")
        check(f"{what}: and a column its position", len(across) >= 2
              and all(abs(x - map[0] - (int(text) + 0.5) / 512 * map[2]) < 2 for text, x, *_ in across),
              f"{across} {map}")
        marks = [label for label in labels if label[0] == f"query {query}"]
        at = map[0] + (query + 0.5) / 512 * map[2]
        check(f"{what}: the query is marked", len(marks) == 1 and marks[0][4] - 1 <= at <= marks[0][3] + 1
              and marks[0][3] <= size[0], f"{marks} {at}")
        row = sorted([*across, *marks], key=lambda label: label[4])
        check(f"{what}: no label is on another", all(a[3] < b[4] for a, b in zip(row, row[1:])), row)
    page.p.set_viewport_size({"width": 1280, "height": 900})


HIDDEN = """([x, y]) => document.elementFromPoint(x, y).closest('.cover') !== null"""


def covered_answers(page):
    """Check that the pictures of steps 3 and 4 open without the answers to their questions, and show them after a
    guess, on request, with settings, and where they are saved."""
    p = page.p

    def covers(step):
        """Return which places are covered: those that answer the question, and one that does not."""
        p.evaluate("scrollTo(0, 0)")
        if step == "story-slopes":
            map = p.eval_on_selector(".framed canvas", "e => (r => [r.left, r.top, r.width, "
                                                       "r.height])(e.getBoundingClientRect())")
            places = [(map[0] + 0.6 * map[2], map[1] + (row + 0.5) / 8 * map[3]) for row in (0, 7, 2)]
        else:
            chart = p.eval_on_selector(".part svg[role=img]",
                                       "e => (r => [r.left, r.top, r.width, r.height])(e.getBoundingClientRect())")
            strip = p.eval_on_selector(".part svg", "e => (r => (r.top + r.bottom) / 2)(e.getBoundingClientRect())")
            at = lambda distance: chart[0] + 58 + distance / 160 * (chart[2] - 70)
            places = [(at(100), chart[1] + chart[3] / 2), (at(110), strip), (at(40), chart[1] + chart[3] / 2)]
        return [p.evaluate(HIDDEN, place) for place in places]

    sizes = lambda: p.evaluate("scrollTo(0, 0), ['.picture', '.picture :is(canvas, svg[role=img])', '.lead', "
                               "'.controls'].map(name => document.querySelector(name).getBoundingClientRect()).map(r "
                               "=> [r.left, r.top, r.width, r.height].map(Math.round))")
    for size in ((1440, 900), (320, 700)):
        p.set_viewport_size({"width": size[0], "height": size[1]})
        for step, change in {"story-slopes": {"query": 401}, "story-buckets": {"back": 41}}.items():
            what = f"{step}, {size}"
            page.show(step, fresh=True)
            found, before = covers(step), sizes()
            check(f"{what}: opens without the answer", found == [True, True, False], found)
            p.evaluate("relpos.change({text: 'one two'})")
            page.frames()
            check(f"{what}: other words keep it so", covers(step) == [True, True, False])
            svg = page.download("SVG").read_text()
            check(f"{what}: what is saved shows all", 'class="cover"' not in svg and "Show " not in svg
                  and covers(step) == found)
            p.click(".guess button >> nth=0")
            page.frames()
            check(f"{what}: a guess shows it", covers(step) == [False] * 3)
            after = sizes()
            check(f"{what}: and moves nothing above the answer", after[:3] == before[:3], f"{before} {after}")
            page.show("story-order")
            page.show(step)
            check(f"{what}: and so it stays", covers(step) == [False] * 3)
            page.show(step, fresh=True)
            p.get_by_role("button", name="Show ").click()
            page.frames()
            check(f"{what}: a button shows it", covers(step) == [False] * 3 and sizes() == before, sizes())
            check(f"{what}: the focus is on the picture",
                  p.evaluate("document.activeElement.closest('.picture') !== null && "
                             "document.activeElement.matches('[role=img]')"))
            page.show(step, fresh=True)
            p.focus(".picture [role=img]")
            p.keyboard.press("ArrowRight")
            page.frames()
            check(f"{what}: so do the arrow keys", covers(step) == [False] * 3)
            page.show(step, fresh=True)
            p.evaluate("change => relpos.change(change)", change)
            page.frames()
            check(f"{what}: and a setting", covers(step) == [False] * 3)
            page.show(step, fresh=True, **change)
            check(f"{what}: and a link with settings", covers(step) == [False] * 3)
    p.set_viewport_size({"width": 1280, "height": 900})


def ends_of_curves(page):
    """Check that the charts of step 7 mark where a curve leaves the frame, and the distances that a text does not
    have."""
    find = """([part, name]) => [...document.querySelectorAll('.four svg.chart')].map(svg => { const {left, top,
        height} = svg.getBoundingClientRect();
        return [...svg.querySelectorAll(part)].filter(e => !name || e.textContent === name).map(e =>
        e.getBoundingClientRect())
            .map(r => [r.left - left, r.right - left, r.top - top, height - (r.bottom - top)]); })"""
    page.p.set_viewport_size({"width": 390, "height": 844})
    page.show("story-beyond", fresh=True)
    end = page.p.eval_on_selector_all(".guess button", "all => Math.max(...all.map(e => "
                                                       "e.getBoundingClientRect().bottom))")
    check("beyond, phone: the guess is on the first screen", end <= 844, end)
    for size in ((1440, 900), (320, 568)):
        page.p.set_viewport_size({"width": size[0], "height": size[1]})
        for length, arrows in ((512, 2), (5000, 4), (8192, 4)):
            page.show("story-beyond", length=length)
            what = f"beyond {length}, {size}"
            tops = [page.p.eval_on_selector_all(f".four {part}", "all => all.map(e => e.getBoundingClientRect().top)")
                    for part in ("figcaption", "svg.chart")]
            check(f"{what}: titles and charts of a row begin at one height",
                  all(abs(x[n] - x[n + 1]) < 0.6 for x in tops for n in (0, 2)), tops)
            found = page.p.evaluate(find, [".leaves", ""])
            check(f"{what}: only ALiBi's curves leave the frame", [len(x) for x in found] == [arrows, 0, 0, 0], found)
            width = page.p.evaluate("document.querySelector('.four svg.chart').getBoundingClientRect().width")
            left = 58 if width > 240 else 36
            at = lambda distance: left + np.log(distance) / np.log(8192) * (width - left - 12)
            want = [at(8 * 4 ** (head + 1)) for head in range(arrows)]  # 2 - distance / 4^(head + 1) = -6
            check(f"{what}: arrows where they do", all(abs((x[0] + x[1]) / 2 - to) < 2 and abs(x[3] - 24) < 1
                                                       for x, to in zip(found[0], want)), f"{found[0]} {want}")
            rest = page.p.evaluate(find, ["text", "not in this text" if width > 360 else "not in text"])
            named = length == 512 or length == 5000 and size[0] > 1000
            check(f"{what}: the rest of the axis has its reason", [len(x) for x in rest] == [named] * 4, rest)
            check(f"{what}: beside the curves, within the frame",
                  all(at(length) <= x[0] + 1 and x[1] <= width - 11 and x[2] >= 5 and x[3] >= 24 for of in rest
                      for x in of), f"{rest} {at(length)} {width}")
    page.p.set_viewport_size({"width": 1280, "height": 900})


def ranges_of_dials(page):
    """Check that step 7 draws the dials of RoPE that turn fast as ranges of their scores."""
    page.show("story-beyond", length=5000)
    bands = page.p.evaluate("[...document.querySelectorAll('.four figure')].map(figure => "
                            "figure.querySelectorAll('.band').length)")
    check("beyond: ranges of Shaw and of two dials", bands == [0, 0, 1, 2], bands)
    page.p.locator(".four svg.chart").nth(3).focus()
    for key, back in (("End", 4999), ("ArrowLeft", None)):
        page.p.keyboard.press(key)
        said = page.p.locator(".four figure").nth(3).locator(".tip div").all_text_contents()
        back = int(said[0].replace(",", "").split()[-1])
        head, *rows = page.csv()
        scores = np.array([row[head.index("RoPE head 0") :][:2] for row in rows])
        near = scores[int(back / 1.18) : int(np.ceil(back * 1.18))]
        want = [f"head {n} {fixed([near[:, n].min()])[0]} to {fixed([near[:, n].max()])[0]}" for n in range(2)]
        found = [text.replace("−", "-") for text in said if " to " in text]
        # the text ends at 5,000, but the range at its end contains a turn beyond it
        check(f"beyond: the ranges at {back}",
              len(found) == 2 and all(abs(float(a) - float(b)) < 2e-3 for x, y in zip(found, want)
                                      for a, b in zip(re.findall(r"-?[0-9.]+", x)[1:],
                                                      re.findall(r"-?[0-9.]+", y)[1:])), f"{found} {want}")


def folded_answers(page):
    """Check that text which answers the question of a step is folded until the reader guesses."""
    for step in ("order", "slopes", "buckets", "dials", "beyond"):
        page.show(f"story-{step}", fresh=True)
        why = page.p.locator(".why p")
        check(f"{step}: the answer is folded", why.count() == 1 and not why.is_visible())
        page.p.click(".guess button >> nth=0")
        page.frames()
        check(f"{step}: until there is a guess", why.is_visible())
        page.show(f"story-{step}", fresh=True)
        page.p.click(".why summary")
        check(f"{step}: or the reader opens it", page.p.locator(".why p").is_visible())

    page.show("story-slopes", fresh=True, heads=6)
    page.p.click(".guess button >> nth=0")
    page.frames()
    slopes = [rows[0][0]
              for rows in json.loads(command("relpos bias alibi --heads 6 --q 1 --k 2 --q-offset 1 --json"))["bias"]]
    check("slopes: a guess chooses the head that sees the farthest", page.p.evaluate("relpos.state().head")
          == int(np.argmax(slopes)), f"{slopes} {page.p.evaluate('relpos.state()')}")
    page.show("story-buckets", fresh=True)
    page.p.click(".guess button >> nth=0")
    page.frames()
    marks = page.p.eval_on_selector_all(".part svg line[stroke-dasharray]",
                                        "all => all.map(e => +e.getAttribute('x1'))")
    check("buckets: a guess marks both distances", page.p.evaluate("relpos.state().back") == 110 and len(marks) == 2
          and "with all distances from" in page.p.text_content(".said"), f"{marks} {page.p.text_content('.said')}")


def sums_of_model(page):
    """Check that the sums of step 8 are high enough on each screen, and as large as they were drawn, and that a link
    leads to longer texts."""
    p = page.p
    for width, height, least in ((390, 844, 140), (320, 568, 130), (640, 400, 110), (700, 600, 130), (800, 500, 110),
                                 (1366, 900, 150), (1440, 900, 200)):
        p.set_viewport_size({"width": width, "height": height})
        page.show("story-model", text="The cursor is moved to the next line. The cur")
        page.until("relpos.page().csv().length > 0")
        page.frames()
        drawn, wide, high, bottom, end = (p.evaluate("(e => [e.viewBox.baseVal.width, e.getBoundingClientRect().width, "
                                                     "e.getBoundingClientRect().height, "
                                                     "e.getBoundingClientRect().bottom, "
                                                     "document.querySelector('.picture').getBoundingClientRect()"
                                                     ".bottom])(document.querySelector('.sums svg'))"))
        check(f"story-model, {width} x {height}: the sums can be read", round(high) >= least
              and 0.97 < wide / drawn < 1.03, f"{drawn} {wide} {high}")
        check(f"story-model, {width} x {height}: the sums are on the first screen", bottom <= height or height < 568,
              bottom)
        edges = p.evaluate("['.maps .scale', '.picture'].map(part => "
                           "document.querySelector(part).getBoundingClientRect().right)")
        check(f"story-model, {width} x {height}: the scale of the maps is in the picture", edges[0] <= edges[1]
              and p.evaluate("document.documentElement.scrollWidth") <= width, edges)
        check(f"story-model, {width} x {height}: the steps and the views share a line",
              p.evaluate("document.querySelector('.steps').clientHeight") < 60)
        check(f"story-model, {width} x {height}: the picture is on the first screen",
              end <= height or (width, height) not in ((390, 844), (1440, 900)), end)
    p.set_viewport_size({"width": 1280, "height": 900})
    p.get_by_role("link", name="read on to 8,192 bytes").click()
    page.frames()
    check("story-model: a link leads to longer texts", p.evaluate("location.hash").startswith("#length"), p.url)


def swapped(page):
    """A scheme that reads a text better than T5 does not get the reason for the opposite."""
    for text, scheme in (("the " * 8, "none"), ("", "none"), ("", "alibi"), ("ab" * 20, "alibi")):
        page.show("story-model", text=text, scheme=scheme)
        page.p.wait_for_function("document.querySelector('.said').textContent.includes('perplexity')")
        said = page.p.text_content(".said")
        now, plain = (float(x) for x in re.findall(r"\d+\.\d+", said)[:2])
        check(f"story-model {text[:8]!r} {scheme}: the reason",
              ("although the model was trained with T5" in said) == (now < plain), said)


def out_of_range(page):
    """Check that a link with values that a step cannot show says which values it may have, and what is shown."""
    for step, given, want in (
        ("slopes", {"query": 9999}, "The link has query=9999, but “Position of the query” must be a whole number from "
                                    "0 to 511: you see 511."),
        ("slopes", {"heads": 4, "head": 9}, "The link has head=9, but “head” must be a whole number from 0 to 3: you "
                                            "see 3."),
        ("bias", {"strength": "much"}, "The link has strength=much, but “Strength λ of the bias” must be a number from "
                                       "0 to 10: you see 2."),
        ("bias", {"text": "dog bites man", "word": 7}, "The link has word=7, but “word” must be a whole number from 0 "
                                                       "to 2: you see 2."),
        ("dials", {"base": 50}, "The link has base=50, but “Base: larger is slower” must be one of “100”, “10,000, as "
                                "in Llama 2”: you see “100”."),
        ("beyond", {"length": 12}, "The link has length=12, but “Length of the text” must be a whole number from 64 to "
                                   "8,192: you see 64."),
        ("buckets", {"back": 2.5, "head": 4}, "The link has back=2.5, but “Distance of the word” must be a whole "
                                              "number from 0 to 160: you see 3. The link has head=4, but “Head” must "
                                              "be a whole number from 0 to 3: you see 3."),
        ("vectors", {"offset": 3, "clip": 8}, ""),
    ):
        page.show(f"story-{step}", **given)
        check(f"{step} {given}: in words", page.problem() == want, page.problem())
        page.p.evaluate("relpos.change({text: 'a b c'})")
        page.frames()
        check(f"{step} {given}: until something changes", page.problem() == "", page.problem())


def sentence_goes_along(page):
    """Check that the words of the reader go from step to step, where they fit."""
    page.show("story-order", fresh=True)
    page.p.fill("[data-key=text]", "you eat to live")
    for step, shown in {"story-bias": ".word button", "story-vectors": ".words button"}.items():
        page.frames()
        page.p.wait_for_timeout(300)
        page.p.click(f".steps a[data-view={step}]")
        page.frames()
        check(f"{step}: the words of the first step",
              page.p.locator(shown).all_text_contents() == "you eat to live".split(), page.p.url)
    page.p.click(".steps a[data-view=story-dials]")
    page.frames()
    check("dials: the last two words", all(f"“{word}”" in page.p.text_content(".said") for word in ("to", "live")),
          page.p.text_content(".said"))
    want = command_output(page)["scaled"][0]
    check("dials: their score", fixed([page.p.evaluate("relpos.page().numbers().here")]) == fixed([want]))
    page.p.click(".steps a[data-view=story-model]")
    page.until("relpos.page().csv().length > 0")
    check("the model reads them", page.p.input_value("#own-text") == "you eat to live")
    page.show("story-order", fresh=True, text="one two")  # forget the words above
    for n, step in enumerate(("story-slopes", "story-buckets", "story-beyond"), 1):
        page.show(step, fresh=True, text=f"you eat {n} to live")
        page.p.wait_for_timeout(300)
        check(f"{step}: a link has the words of the reader", f"text=you+eat+{n}+to+live" in page.p.url, page.p.url)
        if step == "story-beyond":
            marks = (page.p.evaluate("[...document.querySelectorAll('.four figure')].map(figure => { const text = "
                                     "[...figure.querySelectorAll('text')].find(e => "
                                     "e.textContent.startsWith('your')); return text && [text.textContent, "
                                     "+text.getAttribute('x'), ...['1', '8'].map(tick => "
                                     "+[...figure.querySelectorAll('text')].find(e => e.textContent === tick && "
                                     "e.getAttribute('text-anchor') === 'middle').getAttribute('x'))]; })"))
            near = [abs(x - (one + 2 / 3 * (eight - one))) < 0.1 for _, x, one, eight in marks]  # log(4) / log(8)
            check(f"{step}: a line marks their largest distance", near == [True] * 4
                  and {text for text, *_ in marks} == {"your 5 words"}, marks)
        page.p.click(".steps a[data-view=story-bias]")
        page.frames()
        check(f"{step}: and brings them to the other steps",
              page.p.locator(".word button").all_text_contents() == f"you eat {n} to live".split(), page.p.url)
    page.show("story-order", text="dog bites man", order="2.1.0", word=1)
    page.p.fill("[data-key=text]", "man bites dog too")
    page.frames()
    check("new words have the order in which they are typed",
          page.p.evaluate("(({order, word}) => [order, word])(relpos.state())") == ["", 2],
          page.p.evaluate("relpos.state()"))
    page.show("story-model", text="you eat to live")
    page.p.fill("#own-text", "one two three four five six seven eight nine ten eleven twelve thirteen")
    page.frames()
    page.p.wait_for_timeout(300)
    page.p.click(".steps a[data-view=story-order]")
    page.frames()
    shown = page.p.locator(".word button").all_text_contents()
    check("of a text that is too long, the last words are shown",
          shown == "two three four five six seven eight nine ten eleven twelve thirteen".split(), shown)
    said = lambda: page.p.text_content(".said")
    check("and the step says so", page.problem() == ""
          and said().endswith(" Your text has 13 words; there is space for the last 12."), said())
    check("the field keeps all of it", page.p.input_value("[data-key=text]").startswith("one two "))
    page.p.click(".steps a[data-view=story-model]")
    page.frames()
    check("and so does the model", page.p.input_value("#own-text").startswith("one two ") and "Your text" not in said(),
          said())
    page.show("story-model", text=" ".join(["incomprehensibilities"] * 5))
    for step, shown in (("order", ".word button"), ("bias", ".word button"), ("vectors", ".words button")):
        page.p.click(f".steps a[data-view=story-{step}]")
        page.frames()
        found = page.p.locator(shown).all_text_contents()
        check(f"{step}: long words are cut, and fit", found == ["incomprehensibi…"] * 3
              and said().endswith("5 words; there is space for the last 3."), f"{found} {said()}")
    page.p.click(".steps a[data-view=story-dials]")
    page.frames()
    check("dials: too", said().endswith("5 words; there is space for the last 3."), said())
    page.show("story-slopes", text="é" * 150)
    page.p.click(".steps a[data-view=story-model]")
    page.until("relpos.page().csv().length > 1")
    page.frames()
    check("the model reads the last 256 bytes, in whole characters", len(page.csv()) == 257
          and said().endswith(" Your text has 300 bytes; these are the last 256."), said())
    page.show("story-model", text="é" * 127 + "abc")
    check("the last bytes begin with a character", len(page.csv()) == 256
          and said().endswith("257 bytes; these are the last 255."), said())
    page.p.fill("#own-text", "x y " * 1000)
    page.frames()
    page.p.wait_for_timeout(300)
    check("an address does not grow beyond its use", len(page.p.url) < 5000
          and page.p.evaluate("relpos.state().text.length") == 2000, len(page.p.url))
    for step in ("story-slopes", "story-buckets"):
        page.show(step, text="")
        page.p.fill("[data-key=text]", "some other words")
        page.frames()
        check(f"{step}: has a field for words", "words" in said() if step == "story-slopes"
              else page.p.locator(".words button").all_text_contents() == "some other words".split(), said())


def story(page):
    words(page)
    schemes(page)
    guesses(page)
    flattest_head(page)
    guess_before_answer(page)
    surprise(page)
    dials_over_bars(page)
    axes_of_slopes(page)
    covered_answers(page)
    ends_of_curves(page)
    ranges_of_dials(page)
    folded_answers(page)
    sums_of_model(page)
    swapped(page)
    out_of_range(page)
    sentence_goes_along(page)
    page.show("story-beyond")
    page.p.set_viewport_size({"width": 390, "height": 844})
    page.frames()
    check("a figure follows the width",
          page.p.evaluate("document.querySelector('.four svg').getBoundingClientRect().right") <= 390)
    page.p.set_viewport_size({"width": 1280, "height": 900})
