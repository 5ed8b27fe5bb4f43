"""Test the view of buckets. SPDX-License-Identifier: Apache-2.0"""

import json

from checks import build, check, command, root, work
from programs import python_program


def boundary(page, state):
    """Check the end of the exact buckets: every run that `relpos bucket` prints before it has one offset, and the first
    longer run begins there. The line in the chart must be at this place of the axis."""
    exact, now = page.p.evaluate("relpos.page().numbers().exact"), page.p.evaluate("relpos.state()")
    options = f"--buckets {now['buckets']}" + ("" if now["bidirectional"]
                                               else " --causal") + f" --strategy {now['strategy']}"
    lines = page.p.evaluate("[...document.querySelectorAll('svg.chart line.zone')].map(l => +l.getAttribute('x1'))")
    if now["strategy"] == "uniform":
        check(f"buckets {state}: no boundary", exact == 0 and not lines, exact)
        return
    runs = json.loads(command(f"relpos bucket {options} --max-distance {now['max']} --json"))["runs"]
    wide = json.loads(command(f"relpos bucket {options} --max-distance 65536 --json"))["runs"]
    single = [run for run in runs if -exact < run["first"] <= 0]
    check(f"buckets {state}: exact up to the boundary", len(single) == exact
          and all(run["first"] == run["last"] or run["first"] == 0 and not now["bidirectional"] for run in single),
          runs)
    check(f"buckets {state}: and no farther", any(run["last"] == -exact and run["first"] < run["last"] for run in wide),
          wide)
    shown = page.p.locator("[role=status]").first.text_content()
    check(f"buckets {state}: said", f"Each distance from 0 to {exact - 1} has" in shown, shown)
    reach = page.csv()[-1][0]
    half = 0.5 if 2 * reach + 1 <= 120 else 0
    inside = [-(exact - 0.5), exact - 0.5 if now["bidirectional"] else 0.5]
    width = page.p.evaluate("document.querySelector('svg.chart').viewBox.baseVal.width")
    want = [58 + (x + reach + half) / (2 * (reach + half)) * (width - 70) for x in inside]
    check(f"buckets {state}: where the lines are",
          len(lines) == 2 and all(abs(a - b) < 0.1 for a, b in zip(sorted(lines), want)), f"{lines} {want}")
    labels = page.p.evaluate("[...document.querySelectorAll('svg.chart text')].map(t => t.textContent)")
    check(f"buckets {state}: labelled", "exact" in labels
          and ("logarithmic" if now["strategy"] == "log" else now["strategy"]) in labels, labels)


def last_bucket(page, state):
    """Check where the last bucket begins: in the sentence, and in the first row of the table, whose number of offsets
    has no limit."""
    now, first = page.p.evaluate("relpos.state()"), page.csv()[1]
    options = (f"--buckets {now['buckets']}" + ("" if now["bidirectional"] else " --causal")
               + f" --strategy {now['strategy']} --max-distance {now['max']}")
    near = [line.split()
            for line in command(f"relpos bucket {options} -- {' '.join(map(str, range(first[0], 1)))}").splitlines()]
    begins = -max(int(delta) for delta, bucket in near if bucket == near[0][1])
    said = page.p.locator("[role=status]").first.text_content()
    check(f"buckets {state}: where the last bucket begins",
          f"distances of {begins} and more share the last bucket." in said, f"{begins}: {said}")
    rows = page.p.evaluate("[...[...document.querySelectorAll('main table')].find(t => t.rows[0].cells[0].textContent "
                           "=== 'bucket').tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent))")
    after = "0" if not now["bidirectional"] else str(begins)
    check(f"buckets {state}: the first and the last row have no limit", [rows[0][1:], rows[-1][1:]]
          == [[f"−{begins} and before", "no limit"], [f"{after} and after", "no limit"]], rows)
    title = page.p.text_content("main figcaption")
    check(f"buckets {state}: the title names the maximum distance", f"maximum distance {now['max']}" in title, title)


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
                f"buckets {state}: {label}",
                page.cells(f"{label} the query") == [of[sign + d] for d in "1 5 10 50 100".split()]
            )
        check(
            f"buckets {state}: the offset",
            f"falls in bucket {lines[-1][1]}," in page.p.locator("[role=status]").first.text_content(),
        )
        (work / "bucket.c").write_text(page.code("C"))
        rows = command(f"cc -I{root}/include bucket.c -o bucket -L{build} -lrelpos -Wl,-rpath,{build} && ./bucket")
        check(f"buckets {state}: every offset",
              [" ".join(map(str, row)) for row in page.csv()[1:]] == rows.splitlines())
        check(f"buckets {state}: the line jumps from bucket to bucket", not page.slants(), page.slants())
        boundary(page, state)
        last_bucket(page, state)
        marked = page.p.evaluate("[...document.querySelectorAll('main tr')].filter(r => "
                                 "r.querySelector('.mark')).map(r => [...r.cells].every(c => c.className === 'mark'))")
        check(f"buckets {state}: all of a row is marked", marked and all(marked), marked)
        python_program(page)
