"""The view of a sentence. SPDX-License-Identifier: Apache-2.0"""

import re

from checks import check, command, printed
from programs import c_program, python_program


def sentence(page):
    states = [
        {},
        *({"a": f"log,lambda={x}"} for x in (0, 0.5, 1)),
        {"a": "linear,left=0.1,right=1", "query": 2},
        {"a": "alibi", "head": 5, "query": 1},
        {"text": "attention is all you need", "a": "rope", "query": 3},
        {"text": "-v --help is a word", "a": "linear,left=1,right=1", "query": 1},
        {"text": "un deux trois quatre", "a": "sandwich,dim=8", "query": 1, "causal": 1},
    ]
    for state in states:
        page.show("sentence", **state)
        text = command(page.code())
        for label, mine in (
            ("Raw scores", "Raw scores"),
            ("Scaled scores", "Scaled scores"),
            ("Bias values", "Bias values"),
            ("Biased scores", "Biased scores"),
            ("Standard", "Standard"),
            ("Biased", "Biased"),
            ("Difference", "Difference"),
        ):
            want = printed(text, label)
            nth = 1 if label == "Biased" else 0
            check(f"sentence {state}: {label}", want and page.cells(mine, nth) == want, f"{page.cells(mine, nth)} {want}")
        want = re.findall(r"A\[.*?\] = (\S+) \(", text)
        check(
            f"sentence {state}: weights",
            want
            and page.p.evaluate(
                "[...document.querySelectorAll('main tr')].filter(r => r.cells[0].textContent.startsWith('A[')).map(r => r.cells[1].textContent)"
            )
            == want,
        )
        output = re.search(r"Output\[.*?\] = \[([^]]*)\]", text)[1].split()
        check(
            f"sentence {state}: output",
            page.p.evaluate("[...document.querySelectorAll('main pre')].map(x => x.textContent)[0]") == f"[{' '.join(output)}]",
        )
        if not state.get("a", "").startswith("alibi"):
            check(f"sentence {state}: the C program", c_program("sentence", page) == page.cells("Biased", 1))
        python_program(page)
