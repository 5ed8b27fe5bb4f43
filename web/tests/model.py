"""Test the view of models: heads of a sentence encoder, and of a model trained by relpos lab.
SPDX-License-Identifier: Apache-2.0"""

import json
import re

import numpy as np

from calculations import cells, parts, value_of, wrong_cells
from checks import check, command, fixed, work
from machine import long_file
from programs import python_program, read_safetensors, run_row


def every_term(page):
    """Choose each term: missing arrays are filled, and the command computes the same weights from the saved arrays."""
    for source in ("minilm", "lab1"):
        for kind in page.show("model", fresh=True, source=source).p.eval_on_selector_all(
                "#a-kind option", "all => all.map(e => e.value)")[1:]:
            page.show("model", source=source, query=40)
            page.p.select_option("#a-kind", kind)
            page.frames()
            now = page.p.evaluate("relpos.state().a")
            problem = page.problem()
            check(f"model {source} {kind}: no error", problem == "" and now.split(",")[0] == kind, problem)
            if source == "minilm":
                continue
            page.download("Save the arrays")
            line = next(line for line in page.code().splitlines() if line.startswith("relpos explain"))
            found, rows = json.loads(command(line.replace("--brief", "--json"))), page.csv()[1:]
            check(f"model {source} {now}: weights", fixed([row[4] for row in rows]) == fixed(found["weights"]), line)
            named = re.search(r"Without (arrays|a table)", page.p.text_content("main"))
            check(f"model {source} {now}: what was filled is said",
                  (named is None) == (kind in ("t5", "log", "linear", "alibi", "rope", "sandwich")), named)
    page.show("model", a="relkey,left=1,right=1", b="relkey,left=2,right=2", query=9)
    page.download("Save the arrays")
    found = json.loads(command(page.code().splitlines()[1].replace("--brief", "--json")))
    check("model: two terms with arrays of the same name",
          fixed([row[4] for row in page.csv()[1:]]) == fixed(found["weights"]), page.code())


def model(page):
    every_term(page)
    found = page.show("model").p.evaluate("[relpos.state(), relpos.page().numbers().far]")
    check("model opens on a trained head", found[0]["source"] == "lab1" and found[1] < 1e-3 and page.problem() == "",
          found)
    untrained = {"source": "minilm"}
    page.show("model", **untrained)
    page.download("Save the arrays")
    for state in (
        {},
        {"a": "alibi", "head": 7, "query": 100},
        {"a": "log,lambda=0.8", "masks": "causal", "query": 200},
        {"a": "", "head": 0},
    ):
        page.show("model", **untrained, **state)
        found = json.loads(command(page.code().splitlines()[1].replace("--brief", "--json")))
        rows = page.csv()[1:]
        check(f"model {state}: weights", fixed([row[4] for row in rows]) == fixed(found["weights"]))
        check(f"model {state}: weights without", fixed([row[3] for row in rows]) == fixed(found["weights_plain"]))
        text = command(page.code().splitlines()[1])
        line = text.splitlines()[3:] and [line for line in text.splitlines() if re.match(r"  \S.*\d\.\d{4}", line)]
        want = [re.findall(r"\d\.\d{4}", x) for x in line[:5]]
        shown = [[page.cells(str(n + 1))[2], page.cells(str(n + 1))[5]] for n in range(5)]
        check(f"model {state}: the heaviest keys", shown == want, f"{shown} {want}")
        found = {key: [np.nan if x is None else x for x in found[key]]
                 for key in ("scaled", "bias", "score", "weights", "weights_plain")}
        query = page.p.evaluate("relpos.state().query")
        for nth, key in enumerate(("weights_plain", "weights", "difference")[: 3 if state.get("a", "t5") else 1]):
            element = page.p.locator("figure:not([hidden])", has=page.p.locator("canvas[tabindex]")).nth(nth)
            element.locator("canvas").first.focus()
            page.p.keyboard.press("Home")
            page.p.keyboard.press("ArrowRight")
            page.frames()
            text = element.locator(".readout").text_content()
            calculation, value = parts(text)
            want = found["weights"][1] - found["weights_plain"][1] if key == "difference" else found[key][1]
            check(f"model {state}: the calculation of a cell of map {nth}",
                  f"offset {1 - query}:".replace("-", "−") in text and [value] == fixed(want)
                  and abs(value_of(calculation) - want) < 2e-4, f"{text} {want}")
        computed, wrong = wrong_cells([cell for cell in cells(page) if " = " in cell[1]
                                       and re.fullmatch(r"\d\.\d{4}", cell[0])], 2e-4)
        check(f"model {state}: the weights of the heaviest keys", computed == 16 and not wrong,
              f"{computed} {wrong[:2]}")
    weights = {}
    for head in (3, 4, 5, 3, 4, 4, 3):  # the arrays of one head serve another one later
        page.p.evaluate("head => relpos.change({head})", head)
        page.frames()
        found = page.p.evaluate("[relpos.page().numbers().weights(), relpos.page().numbers().without()]")
        check(f"model: head {head} has its own numbers again", weights.setdefault(head, found) == found)
    check("model: three heads differ", len({str(found) for found in weights.values()}) == 3)
    page.show("model", **untrained, a="alibi", head=4)
    found = json.loads(command(page.code().splitlines()[2] + " --json"))["bias"]
    curves = page.p.evaluate("relpos.page().numbers().bias()")
    check("model: eight heads of twelve, the chosen one among them", len(curves) == 8
          and [n for n, *_ in curves if n == 4] == [4])
    check("model: their curves", all(fixed(y) == fixed(found[n][17]) for n, *y in curves))
    figure = page.p.locator("figure", has_text="Bias of each head")
    lines = figure.evaluate("f => [...f.querySelectorAll('svg.chart path')].map(p => p.getAttribute('stroke') + "
                            "p.getAttribute('stroke-dasharray'))")
    check("model: no two heads look alike", len(lines) == 8 == len(set(lines)), lines)
    check("model: which heads are drawn", "8 of 12 heads" in figure.text_content(), figure.text_content())
    element = page.p.locator("figure", has=page.p.locator("canvas[tabindex]")).first
    top = np.sort(page.p.evaluate("relpos.page().numbers().weights()"))[-1]
    last = float(re.fullmatch(r"([\d.]+) or more", element.locator(".scale span").last.text_content())[1])
    check("model: the bar says where its colours end", last < top
          and f"to {last:.4f} or more" in element.locator("canvas").first.get_attribute("aria-label"), f"{last} {top}")
    page.show("cost", a="t5", most=256)
    check("cost: entries of a table are called so",
          page.p.locator("main .scale").first.text_content().startswith("bucket"))
    page.show("bias", a="alibi", q=9, k=9)
    check("bias: a whole bar ends with its data",
          page.p.locator("figure:not([hidden]) .scale span").all_text_contents()[::2] == ["bias", "0.0000"])
    check("bias: minus signs", page.p.locator("figure:not([hidden]) .scale span").nth(1).text_content() == "−4.0000")
    page.show("model", **untrained)
    file = work / "relpos-heads.safetensors"
    scores, weights = run_row("model", page.show("model", **untrained), read_safetensors(file), "q", "k", "t5_table")
    check("model: the C function", weights == fixed([row[4] for row in page.csv()[1:]]))
    page.p.set_input_files("#file", path := long_file(1024))
    page.until("relpos.state().source === 'file'")
    page.p.evaluate("relpos.change({a: 'alibi', masks: 'causal', head: 2, query: 1000})")
    page.frames(1)
    lines = page.p.evaluate("relpos.page().numbers().weights()")
    values, (q, k) = np.array(lines).reshape(1024, 1024), (x.reshape(4, 1024, 64)[2].astype(float)
                                                           for x in read_safetensors(path).values())
    scores = q @ k.T / 8 - np.abs(np.subtract.outer(range(1024), range(1024))) * 2**-6
    scores[np.triu_indices(1024, 1)] = -np.inf
    want = np.exp(scores - scores.max(axis=1, keepdims=True))
    want /= want.sum(axis=1, keepdims=True)
    check("a file of 1,024 tokens, computed in pieces: every weight",
          np.abs(np.where(np.isinf(values), 0, values) - want).max() < 1e-12)
    check("masked keys are marked", (np.isinf(values) == np.isinf(scores)).all())
    for layer in (0, 1):
        page.show("model", **untrained)
        page.p.select_option("[data-key=source]", f"lab{layer}")
        page.frames()
        now = page.p.evaluate("relpos.state()")
        check(
            f"laboratory, layer {layer}: its own options",
            now["a"] == "t5,buckets=32,max_distance=128,bidirectional=0,table=t5.table" and now["masks"] == "causal"
            and page.problem() == "",
            now,
        )
        page.download("Save the arrays")
        for head, query, b in ((0, 60, ""), (3, 60, ""), (2, 31, ""), (1, 44, "log,lambda=0.5")):
            page.p.evaluate("x => relpos.change(x)", {"head": head, "query": query, "b": b})
            page.frames()
            lines = page.code().splitlines()
            found = json.loads(command(lines[1].replace("--brief", "--json")))
            rows, what = page.csv()[1:], f"laboratory, layer {layer}, head {head}, query {query} {b}"
            check(f"{what}: weights", fixed([row[4] for row in rows]) == fixed(found["weights"]))
            check(f"{what}: weights without", fixed([row[3] for row in rows]) == fixed(found["weights_plain"]))
            want = json.loads(command(lines[2] + " --json"))["bias"]
            mine = page.p.evaluate("relpos.page().numbers().bias()")
            check(
                f"{what}: the curve of each head",
                [n for n, *_ in mine] == [0, 1, 2, 3] and all(fixed(y) == fixed(want[n][query]) for n, *y in mine),
            )
            check(f"{what}: the curves differ", len({str(y) for _, *y in mine}) == 4)
            python_program(page)
        scores, weights = run_row("lab", page, read_safetensors(file), "q", "k", "t5.table")
        check(f"laboratory, layer {layer}: the C function", weights == fixed([row[4] for row in rows]))
