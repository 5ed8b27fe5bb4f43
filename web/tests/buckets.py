"""The view of buckets. SPDX-License-Identifier: Apache-2.0"""

from checks import build, check, command, root, work
from programs import python_program


def buckets(page):
    for state in (
        {},
        {"strategy": "uniform"},
        {"strategy": "quadratic", "buckets": 16, "max": 64},
        {"bidirectional": 0},
        {"strategy": "linear", "bidirectional": 0, "offset": -77},
        {"buckets": 40, "max": 320, "offset": -160},
    ):
        page.show("buckets", **state)
        lines = [line.split() for line in command(page.code()).splitlines()]
        of = dict(lines)
        for label, sign in (("before", "-"), ("after", "")):
            check(
                f"buckets {state}: {label}", page.cells(f"{label} the query") == [of[sign + d] for d in "1 5 10 50 100".split()]
            )
        check(
            f"buckets {state}: the offset",
            f"falls in bucket {lines[-1][1]}," in page.p.locator("[role=status]").first.text_content(),
        )
        (work / "bucket.c").write_text(page.code("C"))
        rows = command(f"cc -I{root}/include bucket.c -o bucket -L{build} -lrelpos -Wl,-rpath,{build} && ./bucket")
        check(f"buckets {state}: every offset", [" ".join(map(str, row)) for row in page.csv()[1:]] == rows.splitlines())
        marked = page.p.evaluate("[...document.querySelectorAll('main tr')].filter(r => r.querySelector('.mark')).map(r => [...r.cells].every(c => c.className === 'mark'))")
        check(f"buckets {state}: all of a row is marked", marked and all(marked), marked)
        python_program(page)
