#!/usr/bin/env python3
"""The explorer in a browser: its numbers against the program's, keyboard, narrow screens, colours, files that lie, no network.

    test.py BUILD [PART...]               all parts, or those named
    test.py BUILD --screenshots FOLDER    needs playwright and numpy in this Python, and chromium (CHROMIUM names another)

RELPOS_PYTHON names a Python that has the package relpos: then the Python that views show runs too. Figures of speed are printed and
not judged. SPDX-License-Identifier: Apache-2.0
"""

import ast
import io
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import xml.dom.minidom
import zipfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

root = Path(__file__).resolve().parent.parent
build = Path(sys.argv[1]).resolve()
page_file = build / "web/relpos-explorer.html"
url = page_file.as_uri()
work = Path(tempfile.mkdtemp())
environment = {
    **os.environ,
    "PATH": f"{build}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    "NO_COLOR": "1",
    "COLUMNS": "80",
}
failures, checks = [], 0


def check(what, good, detail=""):
    global checks
    checks += 1
    if not good:
        failures.append(what)
        print(f"FAILED {what} {detail}")


def command(text):
    done = subprocess.run(["bash", "-euc", text], cwd=work, env=environment, capture_output=True, text=True)
    check(f"runs: {text[:90]}", done.returncode == 0, done.stderr[-300:])
    return done.stdout


def fixed(numbers, digits=4):
    """As the program and the page print them; no negative zero."""
    return [re.sub(r"^-(0\.?0*)$", r"\1", f"{x:.{digits}f}") for x in np.ravel(np.asarray(numbers, dtype=float))]


class Page:
    """A page that nothing may be fetched for, and that may not complain."""

    def __init__(self, browser, **options):
        self.context = browser.new_context(accept_downloads=True, **{"viewport": {"width": 1280, "height": 900}, **options})
        self.context.set_offline(True)
        self.p = self.context.new_page()
        self.p.on("console", lambda m: check("no console message", m.type not in ("error", "warning"), m.text))
        self.p.on("pageerror", lambda e: check("no error in the page", False, str(e)))
        self.p.on("request", lambda r: check("no request", r.url.split(":")[0] in ("file", "data", "blob"), r.url))

    def show(self, view, fresh=False, **state):
        from urllib.parse import urlencode

        self.shown = getattr(self, "shown", 0) + 1
        to = f"#{view}?" + urlencode({**state, "shown": self.shown})
        if self.shown == 1 or fresh:
            self.p.goto("about:blank")
            self.p.goto(url + to)
            self.p.wait_for_selector("html[data-ready]")
        else:
            self.p.evaluate(
                "to => new Promise(done => { addEventListener('hashchange', done, {once: true}); location.hash = to; })", to
            )
        self.frames()
        return self

    def until(self, what, seconds=20):
        """wait_for_function would want eval, which the page forbids."""
        for _ in range(20 * seconds):
            if self.p.evaluate(what):
                return
            self.p.wait_for_timeout(50)
        check(f"in {seconds} s: {what}", False)

    def frames(self, n=3):
        self.p.evaluate("n => new Promise(done => { const f = () => n-- > 0 ? requestAnimationFrame(f) : done(); f(); })", n)

    def code(self, language="CLI"):
        return self.p.evaluate("l => relpos.page().code()[l]", language)

    def csv(self):
        return self.p.evaluate("relpos.page().csv()")

    def problem(self):
        return self.p.eval_on_selector_all(".problem", "all => all.map(x => x.textContent).join('')")

    def cells(self, label, nth=0):
        """The numbers of a table's row that begins so, as they are on the screen."""
        return self.p.evaluate(
            """([label, nth]) => [...document.querySelectorAll('main tr')].filter(r => r.cells[0]?.textContent.startsWith(label))
            .map(r => [...r.cells].slice(1).map(c => c.textContent))[nth] ?? []""",
            [label, nth],
        )

    def download(self, name):
        with self.p.expect_download() as got:
            self.p.get_by_role("button", name=name, exact=True).click()
        path = work / got.value.suggested_filename
        got.value.save_as(path)
        return path


def printed(text, label, nth=0):
    """The numbers of a line of `relpos explain`."""
    lines = [line.strip() for line in text.splitlines() if re.match(rf"\s*{label}\s+(?:[-+]?\d|-inf)", line)]
    return re.findall(r"(?<![\w.])(?:[-+]?\d+\.\d{4}(?!\d)|-inf)", lines[nth][len(label) :]) if len(lines) > nth else []


def c_program(name, page):
    """What the page's C program prints first."""
    (work / f"{name}.c").write_text(page.code("C"))
    return (
        command(
            f"cc -Wall -Werror -I{root}/include {name}.c -o {name} {'-L' + str(build)} -lrelpos -Wl,-rpath,{build} -lm && ./{name}"
        )
        .splitlines()[0]
        .split()
    )


def python_program(page):
    """What the page's Python prints, where RELPOS_PYTHON has the package."""
    if not os.environ.get("RELPOS_PYTHON"):
        return None
    (work / "show.py").write_text(page.code("Python"))
    return command(f"{os.environ['RELPOS_PYTHON']} show.py")


# ---------------------------------------------------------------------------------------------------- numbers


def bias(page):
    terms = page.show("bias").p.evaluate(
        "relpos.core.kinds.filter(k => k.bias && k.name !== 'dense').map(k => [k.name, relpos.facts.terms[k.name].picture.split(' ')[0] || k.name])"
    )
    check("view a has every bias", len(terms) > 12)
    states = [dict(a=text) for _, text in terms if "grid" not in text] + [
        dict(a=text, q=tokens, k=tokens)
        for _, text in terms
        if "grid" in text
        for tokens in [int(np.prod([int(n) for n in re.search(r"(\d+)x(\d+)", text).groups()]))]
    ]
    states += [
        dict(a="alibi", heads=6, q=20, k=33, offset=13, head=5),
        dict(a="t5,bidirectional=0", b="linear,left=0.5,right=2", q=40, k=40, heads=2),
        dict(a="log,lambda=0.3", b="kerple", q=17, k=9, heads=3, head=1, query=4),
        dict(a="table,left=5,right=2", b="forget", q=12, k=12, heads=2),
        dict(a="alibi", b="t5,buckets=8", q=31, k=4, heads=3, offset=-2),
        dict(a="linear,left=0.5,right=2", q=9, k=1, heads=1),
    ]
    for state in states:
        page.show("bias", **{"q": 24, "k": 24, **state})
        check(f"bias {state}: no problem", page.problem() == "", page.problem())
        found = json.loads(command(page.code().splitlines()[1].split("#")[0]))
        now = page.p.evaluate("relpos.state()")
        key = "sum" if now["b"] else "a"
        page.p.evaluate("save => relpos.change({save})", key)
        page.frames()
        mine = [row[3] for row in page.csv()[1:]]
        want = np.array([[[-np.inf if x is None else x for x in row] for row in head] for head in found["bias"]], dtype=float)
        mine = [-np.inf if x is None else x for x in mine]
        check(f"bias {state}: every number", fixed(mine) == fixed(want), f"{mine[:4]} {want.ravel()[:4]}")
        query = min(now["query"], now["q"] - 1)
        check(f"bias {state}: the map", fixed(page.p.evaluate("relpos.page().numbers().map()")) == fixed(want[now["head"]]))
        curves = page.p.evaluate("relpos.page().numbers().curves()")
        check(
            f"bias {state}: the curves",
            len(curves) == min(now["heads"], 8) and all(fixed(y) == fixed(want[n][query]) for n, *y in curves),
        )
        read = page.p.evaluate(
            "document.querySelectorAll('figure:not([hidden]) .readout')[%d].textContent" % (2 if now["b"] else 0)
        )
        here = want[now["head"], query, 0]
        check(
            f"bias {state}: what the cursor says", read.endswith("masked" if here == -np.inf else f": {fixed([here])[0]}"), read
        )
        if "random" not in page.code("C")[:120] and "count" not in page.code("C")[:120]:
            check(f"bias {state}: the C program", c_program("bias", page) == [f"{x:.4f}" for x in want[now["head"], query]])
        else:
            check(f"bias {state}: the C program runs", len(c_program("bias", page)) == now["k"])
        python = python_program(page)
        if python and "default_rng" not in page.code("Python"):
            check(f"bias {state}: the Python", python.strip() == str(want[now["head"]].round(4)), python[:200])


def run_row(name, page, arrays, *names):
    """What the C function of a page gives for arrays of a file, as printed: scores, then weights."""
    text = page.code("C")
    found = re.search(r"rp_status look\(([^)]*)\)", text)[1].split(", ")[:-2]
    n = int(re.search(r"scores and weights \[(\d+)\]", text)[1])
    calls = []
    for k, (parameter, array) in enumerate(zip(found, names, strict=True)):
        arrays[array].tofile(work / f"{k}.bin")
        calls.append(f'read_all("{k}.bin", {arrays[array].size})')
    (work / f"{name}.c").write_text(
        text
        + """#include <stdio.h>
#include <stdlib.h>
static double *read_all(const char *path, size_t n)
{
    double *x = malloc(n * sizeof *x);
    FILE *f = fopen(path, "rb");
    if (!x || !f || fread(x, sizeof *x, n, f) != n)
        exit(1);
    fclose(f);
    return x;
}
int main(void)
{
    static double s[%d], w[%d];
    if (look(%s, s, w) != RP_OK)
        return puts(rp_last_error()), 1;
    for (int j = 0; j < %d; j++)
        printf("%%.4f %%.4f\\n", s[j], w[j]);
    return 0;
}
"""
        % (n, n, ", ".join(calls), n)
    )
    out = command(
        f"cc -Wall -Werror -I{root}/include {name}.c -o {name} -L{build} -lrelpos -Wl,-rpath,{build} -lm && ./{name}"
    ).split()
    return out[::2], out[1::2]


def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8 : 8 + size])
    kinds = {"F64": np.float64, "F32": np.float32}
    return {
        name: np.frombuffer(data[8 + size + x["data_offsets"][0] : 8 + size + x["data_offsets"][1]], kinds[x["dtype"]])
        for name, x in head.items()
        if name != "__metadata__"
    }


def effects(page):
    """Terms that are no bias, or need an array: what they change, against two commands over the arrays that the page saves."""
    page.show("bias")
    every = re.findall(r"^RP_X\(\w+, (\w+),", (root / "include/relpos/terms.def").read_text(), re.M)
    offered = page.p.eval_on_selector_all("#a-kind option", "all => all.map(x => x.value)")
    check("view a offers every term", len(every) == 22 and sorted(offered) == sorted(every), sorted(set(every) - set(offered)))
    started = {}
    for name in every:
        page.p.select_option("#a-kind", name)
        page.frames()
        started[name] = page.p.evaluate("relpos.state().a")
        check(f"{name}: a map of its own", page.problem() == "" and started[name].split(",")[0] == name, page.problem())
    which = dict(rope="scores", relkey="scores", xl="scores", axialkey="scores", deberta="scores", sink="weights", relval="out")
    states = [dict(a=started[name], q=16, k=16, heads=2, head=1, query=5) for name in which]
    states += [
        dict(a="rope,base=100,layout=interleaved", q=7, k=11, heads=1, offset=4, words="The cat sat", query=6),
        dict(a="relkey,left=2,right=0", b="t5,buckets=8,max_distance=16", q=9, k=9, heads=2, words="a b c d e", query=8),
        dict(a="alibi", b="rope", q=9, k=9, heads=4, head=3, words="one two", query=2),
        dict(a="xl,u=mine,v=yours", q=5, k=8, heads=2, offset=3, words="w", query=4),
        dict(a="sink", b="relval,left=1,right=1", q=6, k=6, heads=1, words="x y", query=3),
        dict(a="relkey,left=3,right=3", b="relval,left=3,right=3", q=6, k=6, heads=3, head=2, words="p q r s", query=1),
    ]
    for state in states:
        page.show("bias", **state)
        page.p.evaluate("save => relpos.change({save})", "sum" if state.get("b") else "a")
        page.frames()
        said = page.problem()
        check(f"effect {state}: no problem", said == "", said)
        path = page.download("Save the arrays")
        lines = page.code().splitlines()
        head, query = state.get("head", 0), state["query"]
        what = re.search(r": (\w+) of the first less", lines[1])[1]
        check(
            f"effect {state}: what changes",
            what.rstrip("s") == which.get(state["a"].split(",")[0], "scores").rstrip("s") or state["a"] == "alibi",
            what,
        )
        head_of, *rows = page.csv()
        check(f"effect {state}: the columns", head_of[2] == ("channel" if what == "out" else "key"), head_of)
        for i in {0, query}:
            first, second = (json.loads(command(x.replace(f"--query {query}", f"--query {i}") + " --json")) for x in lines[2:4])
            want = np.array(first[what]) - np.array(second[what])
            mine = [row[3] for row in rows if row[0] == head and row[1] == i]
            check(f"effect {state}: row {i}", fixed(mine) == fixed(want), f"{mine[:4]} {want[:4]}")
            if i == query:
                read = page.p.evaluate(
                    "document.querySelectorAll('figure:not([hidden]) .readout')[%d].textContent" % (2 if state.get("b") else 0)
                )
                check(f"effect {state}: what the cursor says", read.endswith(f": {fixed([want[0]])[0]}"), read)
                arrays = read_safetensors(path)
                names = re.findall(r"(?:\w+|^--sink \S*)=([a-z]\w*(?:\.\w+)?)(?=[, ]|$)", lines[2])
                names = [n for n in arrays if n in names or n.startswith("sink.")]
                scores, weights = run_row("effect", page, arrays, "q", "k", *names)
                check(f"effect {state}: the C function", (scores, weights) == (fixed(first["score"]), fixed(first["weights"])))
        check(
            f"effect {state}: the map",
            fixed(page.p.evaluate("relpos.page().numbers().map()")) == fixed([row[3] for row in rows if row[0] == head]),
        )
        check(f"effect {state}: not nothing", np.abs([row[3] for row in rows]).max() > 1e-3)
        python = python_program(page)
        if python:
            got = [float(x) for x in re.findall(r"[-\d.]+(?:e-\d+)?", python)]
            want = [row[3] for row in rows if row[0] == head and row[1] == query]
            check(f"effect {state}: the Python", np.allclose(got, want, atol=6e-5), python)
    for state in (dict(a=started["dense"]), dict(a="alibi,slopes=mine", heads=3), dict(a="t5,table=t", b="dense,bias=d", heads=2)):
        page.show("bias", q=9, k=7, query=3, **state)
        page.p.evaluate("save => relpos.change({save})", "sum" if state.get("b") else "a")
        page.frames()
        page.download("Save the arrays")
        found = json.loads(command(page.code().splitlines()[2].split("#")[0]))
        check(f"{state}: every number", fixed([row[3] for row in page.csv()[1:]]) == fixed(found["bias"]), page.problem())
        c_program("named", page)
        python_program(page)
    for a, b in (
        ("relkey,left=2,right=2,table=double", 'relval,left=2,right=2,table=a"); exit(1); ("\\'),
        ("relkey,left=1,right=1,table=a.b", "relval,left=1,right=1,table=a_b"),
        ('t5,table=q"\\\n??/', "alibi"),
    ):
        page.show("bias", a=a, b=b, q=5, k=5, heads=1, query=2, save="sum")
        said = page.problem()
        check(f"{a} {b}: no problem", said == "", said)
        (work / "named.c").write_text(page.code("C"))
        command(f"cc -Wall -Wextra -Werror -c -I{root}/include named.c -o named.o")
        ast.parse(page.code("Python"))
        page.download("Save the arrays")
        lines = page.code().splitlines()
        found = [json.loads(command(x + " --json")) for x in lines[2:4]] if "explain" in lines[2] else []
        for what in re.findall(r": (\w+) of the first less", lines[1]):
            got = np.subtract(found[0][what], found[1][what])
            check(f"{a} {b}: the command", fixed(got) == fixed([row[3] for row in page.csv()[1:] if row[1] == 2]))
        python_program(page)
    page.show("bias", a="relkey,left=1,right=1", words="   ")
    check("no words: a sentence", "give one word" in page.problem(), page.problem())
    for name, view in (("rope", "rope"), ("relval", "shaw"), ("swin", "images"), ("bucket", "buckets")):
        page.show("bias", a=started[name], q=16, k=16)
        check(f"{name}: the way to its view", page.p.evaluate("!!document.querySelector('main p.note a[data-view=%s]')" % view))


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


def explained(page, view, states, rows):
    """Views whose command is `relpos explain` over a file of their own."""
    for state in states:
        page.show(view, **state)
        text = command(page.code())
        for label, mine, nth in rows:
            want = printed(text, label)
            check(
                f"{view} {state}: {label}", want and page.cells(mine, nth)[: len(want)] == want, f"{page.cells(mine, nth)} {want}"
            )
        python_program(page)


def shaw(page):
    explained(
        page,
        "shaw",
        [{}, {"query": 4}, {"clip": 1, "query": 2}],
        [("Biased", "weights", 1), ("Standard", "weights, content alone", 0)],
    )
    page.show("shaw")
    golden = (root / "tests/golden/golden.h").read_text()
    want = [float(x) for x in re.findall(r"[-\d.e]+", re.search(r"SHAW_PROFILE\[11\] = \{([^}]*)\}", golden)[1])]
    check("shaw: the profile", fixed(page.p.evaluate("[...relpos.page().numbers().mean]")) == fixed(want))
    check(
        "shaw: unseen pairs",
        page.cells("pairs of positions that no text")[0] == "49,152",
        str(page.cells("pairs of positions that no text")),
    )
    check("shaw: the C program", c_program("shaw", page) == page.cells("weights", 1))


def rope(page):
    explained(page, "rope", [{}, {"m": 40, "n": 2, "shift": 500, "layout": "interleaved"}, {"base": 500000}], [])
    for state in ({}, {"m": 40, "n": 2, "shift": 500, "layout": "interleaved"}):
        page.show("rope", **state)
        want = printed(command(page.code()), "Raw scores")
        now = page.p.evaluate("relpos.state()")
        mine = page.cells(f"{now['m'] + now['shift']}, {now['n'] + now['shift']}")[1:]
        check(f"rope {state}: the product", want and mine == want, f"{mine} {want}")
        check(f"rope {state}: does not change with a shift", page.cells(f"{now['m']}, {now['n']}")[1] == mine[0])
        check(f"rope {state}: the C program", c_program("rope", page) == want)
    rows = np.array([row[1:] for row in page.show("rope", dim=128, base=500000, factor=8, trained=4096, save="waves").csv()[1:]], dtype=float)
    plain = 500000.0 ** (-np.arange(64) / 64)
    check("rope: frequencies", np.allclose(rows[:, 0], plain, rtol=1e-14))
    check("rope: linear", np.allclose(rows[:, 1], plain / 8, rtol=1e-14))
    turns = 4096 * plain / 2 / np.pi  # Llama 3.1, with low 1 and high 4
    smooth = np.clip((turns - 1) / 3, 0, 1)
    check("rope: llama3", np.allclose(rows[:, 4], smooth * plain + (1 - smooth) * plain / 8, rtol=1e-12))
    ntk = 500000 * (8 * 8.0 - 7) ** (128 / 126)
    check("rope: dynamic", np.allclose(rows[:, 2], ntk ** (-np.arange(64) / 64), rtol=1e-12))


def golden(name):
    text = (root / "tests/golden/golden.h").read_text()
    return [float(x) for x in re.findall(r"[-\d.e]+", re.search(rf"{name}\[\d+\] = {{([^}}]*)}}", text)[1])]


def images(page):
    for state in ({}, {"rows": 3, "columns": 5, "extra": 1, "patch": 0}, {"kind": "axial", "rows": 2, "columns": 7, "patch": 13}):
        page.show("images", **state)
        found = json.loads(command(page.code().splitlines()[1].split("#")[0]))
        check(f"images {state}: every number", fixed([row[3] for row in page.csv()[1:]]) == fixed(found["bias"]))
        query = page.p.evaluate("relpos.state().patch")
        digits = 2 if state.get("kind") == "axial" else 0
        shown = page.p.evaluate(
            "[...document.querySelectorAll('main .row > button[aria-label], .grid button')].map(b => b.textContent.replace('class token: ', ''))"
        )
        shown = [x for x in shown if re.fullmatch(r"-?[\d.]+", x)]
        check(
            f"images {state}: patches",
            shown == fixed(found["bias"][0][query], digits),
            f"{shown[:5]} {fixed(found['bias'][0][query], digits)[:5]}",
        )
    page.show("images")
    for nth, name in enumerate(("VIT4_CONTENT", "VIT4_ABSOLUTE", "VIT4_RELATIVE")):
        for i, row in enumerate(("(0,0)", "(0,1)", "(1,0)", "(1,1)")):
            check(
                f"images: {name} {row}",
                page.cells(row, 2 * nth) == fixed(golden(name)[4 * i : 4 * i + 4], 3),
                str(page.cells(row, 2 * nth)),
            )
    check("images: the C program", c_program("images", page) == fixed([row[3] for row in page.csv()[1 + 5 * 16 : 1 + 6 * 16]]))


def families(page):
    for family in ("additive", "shaw", "rotary", "linear"):
        for query, strength in ((0, 1), (2, 7.5)):
            page.show("families", family=family, query=query, strength=strength)
            want = printed(command(page.code()), "Biased scores")
            nth = 2 * ["content", "additive", "shaw", "rotary", "linear"].index(family)
            found = [float(x) for x in want]
            mine = page.p.evaluate(
                "relpos.page().csv().filter(r => r[0] === '%s' && r[1] === %d).map(r => r[3])" % (family, query)
            )
            check(f"families {family} {strength}: scores", want and fixed(mine) == want, f"{mine} {found}")
            check(f"families {family} {strength}: the table", page.cells(f"token {query}", nth) == fixed(mine, 3))
            check(f"families {family}: the C program", c_program("families", page) == want)
            python_program(page)
    page.show("families")
    for nth, name in ((1, "VIT3_BIAS_PRINT"), (2, "VIT3_SHAW_PRINT"), (3, "VIT3_ROPE30"), (4, "VIT3_LINEAR_PRINT")):
        for i in range(3):
            check(
                f"families: {name} {i}",
                page.cells(f"token {i}", 2 * nth) == fixed(golden(name)[3 * i : 3 * i + 3], 3),
                str(page.cells(f"token {i}", 2 * nth)),
            )


def cost(page):
    page.show("cost", most=256)
    *benches, row = page.code().splitlines()[1:]
    for line in benches:
        command(line + " --threads 1")
    check("cost: the three that are measured, and on which machine", len(benches) == 3 and "not those of the browser" in page.code(), page.code())
    want = json.loads(command(row + " --json"))["bias"][0][0]
    python = page.code("Python")
    ast.parse(python)
    check("cost: the Python has the bias", "bias=bias" in python and "relpos.T5(" in python and "not those of the browser" in python, python)
    out = python_program(page)
    check("cost: the row by Python", not out or " ".join(out.split("[", 1)[1].strip("[] \n").split()).split(" ") == [f"{x:g}." for x in want], out)
    check("cost: bytes depend on the instruction set", "depend on the instruction set" in page.code("C"))
    check("cost: the row of the cache", [row for row in page.p.evaluate("[...relpos.page().numbers().row]")] == want)
    check(
        "cost: the row of the cache", "from those of the whole matrix: 0." in page.p.locator("p[role=status]").last.text_content()
    )
    check("cost: N x N", page.cells("N × N biases")[-1] == "137 GB")
    page.p.click("#measure")
    page.p.wait_for_selector("text=Measured:", timeout=60000)
    check("cost: measured", page.problem() == "" and len(page.cells("by offset")) == 3)
    print(
        "   ",
        page.p.locator("#measure + p").text_content(),
        *(f"{label}: {page.cells(label)}" for label in ("no bias", "by offset", "array, made before", "making the array")),
        "ms",
    )
    (work / "size.c").write_text(page.code("C"))
    command(f"cc -Wall -Werror -I{root}/include size.c -o size -L{build} -lrelpos -Wl,-rpath,{build} && ./size")


def model(page):
    page.show("model")
    page.download("Save the arrays")
    for state in (
        {},
        {"a": "alibi", "head": 7, "query": 100},
        {"a": "log,lambda=0.8", "causal": 1, "query": 200},
        {"a": "", "head": 0},
    ):
        page.show("model", **state)
        found = json.loads(command(page.code().splitlines()[1].replace("--brief", "--json")))
        rows = page.csv()[1:]
        check(f"model {state}: weights", fixed([row[4] for row in rows]) == fixed(found["weights"]))
        check(f"model {state}: weights without", fixed([row[3] for row in rows]) == fixed(found["weights_plain"]))
        text = command(page.code().splitlines()[1])
        line = text.splitlines()[3:] and [line for line in text.splitlines() if re.match(r"  \S.*\d\.\d{4}", line)]
        want = [re.findall(r"\d\.\d{4}", x) for x in line[:5]]
        shown = [[page.cells(str(n + 1))[2], page.cells(str(n + 1))[5]] for n in range(5)]
        check(f"model {state}: the heaviest keys", shown == want, f"{shown} {want}")
    page.show("model", a="alibi", head=4)
    found = json.loads(command(page.code().splitlines()[2] + " --json"))["bias"]
    curves = page.p.evaluate("relpos.page().numbers().bias()")
    check("model: eight heads of twelve, the chosen one among them", len(curves) == 8 and [n for n, *_ in curves if n == 4] == [4])
    check("model: their curves", all(fixed(y) == fixed(found[n][17]) for n, *y in curves))
    figure = page.p.locator("figure", has_text="Bias of each head")
    lines = figure.evaluate("f => [...f.querySelectorAll('svg.chart path')].map(p => p.getAttribute('stroke') + p.getAttribute('stroke-dasharray'))")
    check("model: no two heads look alike", len(lines) == 8 == len(set(lines)), lines)
    check("model: which heads are drawn", "8 of 12 heads" in figure.text_content(), figure.text_content())
    element = page.p.locator("figure", has=page.p.locator("canvas[tabindex]")).first
    top = np.sort(page.p.evaluate("relpos.page().numbers().weights()"))[-1]
    last = float(re.fullmatch(r"([\d.]+) and more", element.locator(".scale span").last.text_content())[1])
    check("model: the bar says where its colours end", last < top and f"to {last:.4f} and more" in element.locator("canvas").first.get_attribute("aria-label"), f"{last} {top}")
    page.show("cost", most=256)
    check("cost: entries of a table are called so", page.p.locator("main .scale").first.text_content().startswith("bucket"))
    page.show("bias", a="alibi", q=9, k=9)
    check("bias: a whole bar ends with its data", page.p.locator("figure:not([hidden]) .scale span").all_text_contents()[::2] == ["bias", "0.0000"])
    page.show("model")
    file = work / "relpos-heads.safetensors"
    scores, weights = run_row("model", page.show("model"), read_safetensors(file), "q", "k", "t5_table")
    check("model: the C function", weights == fixed([row[4] for row in page.csv()[1:]]))
    for layer in (0, 1):
        page.show("model")
        page.p.select_option("[data-key=source]", f"lab{layer}")
        page.frames()
        now = page.p.evaluate("relpos.state()")
        check(
            f"laboratory, layer {layer}: its own options",
            now["a"] == "t5,buckets=32,max_distance=128,bidirectional=0,table=t5.table" and now["causal"] and page.problem() == "",
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


# ---------------------------------------------------------------------------------------------------- people


def every_view(browser, call, **options):
    page = Page(browser, **options)
    for view in page.show("bias").p.evaluate("relpos.views"):
        call(page.show(view, fresh=True), view)
    page.context.close()


def narrow(browser):
    for width in (360, 768, 3840):
        every_view(
            browser,
            lambda page, view: check(
                f"{view} fits {width}",
                page.p.evaluate("document.documentElement.scrollWidth") <= width,
                page.p.evaluate("document.documentElement.scrollWidth"),
            ),
            viewport={"width": width, "height": 800},
        )


    page = Page(browser, viewport={"width": 768, "height": 800})
    page.show("sentence", text="x" * 3000 + " and " + "y" * 3000, a="alibi")
    wide = page.p.evaluate("[document.documentElement.scrollWidth, ...[...document.querySelectorAll('main th, main button, main figcaption, main h3')].map(e => e.getBoundingClientRect().width)]")
    check("long words fit", page.problem() == "" and max(wide) <= 768, wide)
    page.context.close()


def names(browser):
    def call(page, view):
        bad = page.p.evaluate(
            """[...document.querySelectorAll('input, select, button, canvas[tabindex], svg.chart')].filter(e => !e.closest('[hidden]') &&
            !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim())).map(e => e.outerHTML.slice(0, 80))"""
        )
        check(f"{view}: everything has a name", not bad, bad)
        check(
            f"{view}: one h1 and one h2",
            page.p.evaluate("[document.querySelectorAll('h1').length, document.querySelectorAll('h2').length]") == [1, 1],
        )
        shift = page.p.evaluate(
            "new Promise(done => { let sum = 0; new PerformanceObserver(l => { for (const e of l.getEntries()) sum += e.value; }).observe({type: 'layout-shift', buffered: true}); setTimeout(() => done(sum), 100); })"
        )
        check(f"{view}: nothing jumps while it loads", shift < 0.1, shift)

    every_view(browser, call)


def colours(browser):
    contrast = """() => { const rgb = n => { const c = document.createElement('canvas').getContext('2d'); c.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(n); c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3); };
        const light = c => { const [r, g, b] = c.map(x => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const ratio = (a, b) => { const [x, y] = [light(rgb(a)), light(rgb(b))].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
        return [['--ink', '--bg'], ['--soft', '--bg'], ['--soft', '--panel'], ['--ink', '--panel'], ['--on-accent', '--accent'], ['--bad', '--bg'], ...[0, 1, 2, 3, 4, 5, 6, 7].map(n => [`--s${n}`, '--bg'])].map(p => [...p, ratio(...p)]); }"""
    for scheme in ("light", "dark"):
        page = Page(browser, color_scheme=scheme)
        page.show("bias")
        back = page.p.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        check(f"{scheme}: as the system", (back == "rgb(255, 255, 255)") == (scheme == "light"), back)
        for a, b, ratio in page.p.evaluate(contrast):
            check(f"{scheme}: {a} on {b} can be read", ratio >= 4.5, f"{ratio:.2f}")
        other = "dark" if scheme == "light" else "light"
        page.p.select_option("#theme", other)
        page.frames()
        check(
            f"{scheme}: the other one on request",
            page.p.evaluate("getComputedStyle(document.documentElement).backgroundColor") != back,
        )
        page.p.emulate_media(media="print")
        check(f"{scheme}: paper is white", page.p.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)")
        check(f"{scheme}: the settings are not printed", not page.p.is_visible(".controls") and page.p.is_visible("main canvas"))
        page.p.emulate_media(media="screen")
        page.p.wait_for_timeout(300)
        check("the colours are in the address", f"theme={other}" in page.p.url, page.p.url)
        page.context.close()


def keyboard(browser):
    page = Page(browser)
    page.show("bias", q=16, k=16, heads=2)
    p = page.p
    p.keyboard.press("Tab")
    check("the first stop leads to the view", p.evaluate("document.activeElement.className") == "skip")
    seen = []
    for _ in range(60):
        p.keyboard.press("Tab")
        seen.append(
            p.evaluate(
                "document.activeElement.tagName + (document.activeElement.dataset.key ?? '') + (document.activeElement.type ?? '')"
            )
        )
    for what in ("A", "SELECTa-kindselect-one", "INPUTrange", "INPUTqnumber", "INPUTatext", "CANVAS", "BUTTONbutton", "SUMMARY"):
        check(f"Tab reaches {what}", what in seen, sorted(set(seen)))
    p.focus("input[aria-label=Queries]")
    p.keyboard.press("ArrowRight")
    page.frames()
    p.wait_for_timeout(300)
    check("an arrow moves a slider", p.evaluate("relpos.state().q") == 17 and "q=17" in p.url, p.url)
    p.focus("figure:not([hidden]) canvas[tabindex]")
    before = p.locator("figure:not([hidden]) .readout").first.text_content()
    p.keyboard.press("ArrowRight")
    p.keyboard.press("ArrowDown")
    page.frames()
    after = p.locator("figure:not([hidden]) .readout").first.text_content()
    check("arrows move the cursor of a map", before != after and "key 1" in after, after)
    p.focus("[data-key=a-kind]")
    p.keyboard.type("log")
    page.frames()
    check("letters choose a term", p.evaluate("relpos.state().a").startswith("log"), p.evaluate("relpos.state().a"))
    p.focus("nav a[data-view=buckets]")
    p.keyboard.press("Enter")
    page.frames()
    check("Enter opens a view", p.evaluate("document.querySelector('h2').textContent").startswith("Buckets"))
    p.go_back()
    page.frames()
    check("and back", p.evaluate("document.querySelector('h2').textContent").startswith("Bias"))
    page.show("images")
    p.focus(".grid button:nth-child(6)")
    p.keyboard.press("ArrowRight")
    page.frames()
    check(
        "arrows move among patches",
        p.evaluate("relpos.state().patch") == 6 and p.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true",
    )
    page.show("sentence")
    p.focus(".words button:nth-child(3)")
    p.keyboard.press("Enter")
    page.frames()
    check("Enter chooses a word", p.evaluate("relpos.state().query") == 2)
    check("and stays on it", p.evaluate("[...document.querySelectorAll('.words button')].indexOf(document.activeElement)") == 2)
    page.context.close()


def navigation(browser):
    page = Page(browser)
    page.show("bias", q=16, k=16, heads=2)
    p, here = page.p, lambda: page.p.evaluate("[document.querySelector('h2').textContent.split(':')[0], location.hash]")
    p.wait_for_timeout(300)
    p.keyboard.press("Tab")
    before = here()
    p.keyboard.press("Enter")
    page.frames()
    check("the way to the view: the focus, and nothing else", p.evaluate("document.activeElement.id") == "main" and here() == before, here())
    p.select_option("#theme", "dark")
    p.select_option("#a-kind", "rope")
    page.frames()
    p.evaluate("scrollTo(0, 400); relpos.change({q: 21})")
    p.click("main a[data-view=rope]")  # at once, before the address is written
    page.frames()
    dark = "document.documentElement.dataset.theme === 'dark'"
    check("a link keeps the colours", p.evaluate(dark) and here()[0] == "RoPE", here())
    check("a view begins at its top", p.evaluate("scrollY") == 0)
    p.evaluate("relpos.change({m: 44})")
    p.click("nav a[data-view=buckets]")
    page.frames()
    check("and so does the navigation", p.evaluate(dark) and here()[0] == "Buckets", here())
    p.go_back()
    page.frames()
    check("Back has the last change", p.evaluate("relpos.state().m") == 44 and here()[0] == "RoPE", here())
    p.go_back()
    page.frames()
    check("and the one before", p.evaluate("[relpos.state().q, relpos.state().heads]") == [21, 2], here())
    check("Back keeps the colours", p.evaluate(dark))
    p.click("nav a[data-view=rope]")
    page.frames()
    check("a view is as it was left", p.evaluate("relpos.state().m") == 44)
    p.wait_for_timeout(300)
    check("its link says so", "m=44" in p.get_attribute("nav a[data-view=rope]", "href") and "m=44" in p.url, p.url)
    page.show("buckets", fresh=True, theme="dark")
    check("an address brings its colours", p.evaluate(dark))
    page.context.close()


def address(browser):
    page = Page(browser)
    page.show("bias", a="t5,buckets=16", q=30, k=20, head=1)
    check(
        "the state is that of the address",
        page.p.evaluate("(({a, q, k, head}) => [a, q, k, head])(relpos.state())") == ["t5,buckets=16", 30, 20, 1],
    )
    check("and on the controls", page.p.input_value("[data-key=q]") == "30" and page.p.input_value("[data-key=buckets]") == "16")
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
        check(f"{view}: as long as it takes", said == "" and len(page.csv()) > 262, said)
    page.show("nothing")
    check("no such view: the first", page.p.evaluate("document.querySelector('h2').textContent").startswith("Bias"))
    page.show("bias", a="t5,buckets=7")
    said = page.problem()
    check("what is wrong is said", "buckets" in said and len(said) < 300, said)
    page.p.evaluate("relpos.core.problem({lenQ: 4, lenK: 4, terms: ['alibi']})")
    for call in ("place(2 ** 32 + 8)", "place(NaN)", "problem({lenQ: 2 ** 32 + 1, lenK: 1})", "problem({lenQ: 2.5, lenK: 1})"):
        said = page.p.evaluate(f"(() => {{ try {{ relpos.core.{call}; return ''; }} catch (e) {{ return e.message; }} }})()")
        check(f"core.{call}: refused", "at most" in said or "more than this page takes" in said, said)
    javascript = r"undefined|is not|Invalid|null|constructor\b.*\bfunction|stack|TypeError|RangeError"
    for view, given, want in (  # what the settings hold is held in the address too
        ("shaw", {"length": 23171}, {"length": 512}),
        ("shaw", {"length": 0, "clip": -1}, {"length": 1, "clip": 0}),
        ("images", {"rows": 256, "columns": 256}, {"rows": 24, "columns": 24}),
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
        ("model", {"source": "constructor"}, {"source": "minilm"}),
        ("model", {"source": "lab0"}, {"a": "t5,buckets=32,max_distance=128,bidirectional=0,table=t5.table", "causal": True, "query": 60}),
    ):
        page.show(view, **given)
        now = page.p.evaluate("relpos.state()")
        check(f"{view} {given}: within the settings", want.items() <= now.items() and page.problem() == "", f"{now} {page.problem()}")
        page.p.evaluate("given => relpos.change(given)", {k: str(v) for k, v in given.items()})
        page.frames()
        if view != "model":
            check(f"{view} {given}: and by the fields", page.p.evaluate("relpos.state()") == now, page.p.evaluate("relpos.state()"))
    page.show("bias", q=9, k=9)
    page.p.fill("[data-key=offset]", "2.5")
    page.p.press("[data-key=offset]", "Enter")
    page.frames()
    check("a field of whole numbers", page.p.evaluate("relpos.state().offset") == 3 and page.p.input_value("[data-key=offset]") == "3")
    page.show("rope", m=-5, n=1.5, base=1e12)
    command(page.code())
    c_program("rope", page)
    python_program(page)
    for a in ("constructor", "__proto__", "toString"):
        for view in ("bias", "sentence", "cost", "model"):
            said = page.show(view, a=a).problem()
            check(f"{view} {a}: a sentence of the library", re.search(rf"^[^:]*{a}", said) and not re.search(javascript, said), said)
    for view in ("bias", "sentence", "cost", "model"):
        page.show(view, fresh=True, a="bogus")
        check(f"{view}: nothing to save or to move in before there is something", page.problem() != "" and page.p.evaluate(
            "![...document.querySelectorAll('main canvas, main button')].some(e => e.checkVisibility() && !e.closest('.drop'))"))
        page.p.evaluate("document.querySelectorAll('canvas[tabindex]').forEach(c => ['keydown', 'click', 'pointermove', 'pointerleave'].forEach(e => c.dispatchEvent(e === 'keydown' ? new KeyboardEvent(e, {key: 'End'}) : new PointerEvent(e, {clientX: 1, clientY: 1}))))")
        page.p.evaluate("relpos.change({a: 'alibi'})")
        page.frames()
        check(f"{view}: then there is", page.problem() == "" and page.p.evaluate("document.querySelector('figure:not([hidden]) canvas').width > 100"))
        page.p.evaluate("relpos.change({a: 'bogus'})")
        page.frames()
        check(f"{view}: what is refused leaves the picture, and shows that it is the old one", page.p.evaluate("[...document.querySelectorAll('.stale')].length") == 3)
    page.show("model", source="file")
    check("a file that is not there", "drop it again" in page.problem(), page.problem())
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


def exports(browser):
    page = Page(browser)
    which = {"rope": {"save": "waves"}, "cost": {"save": "times", "most": 256}}
    charts = {
        "sentence": ("Weights of “The”", ["without a term", "log,lambda=0.3"]),
        "buckets": ("The bucket of every offset: log, 32 buckets, 128", []),
        "rope": ("Wavelength of each pair", ["none", "dynamic NTK", "llama3"]),
        "cost": ("Milliseconds a call", ["no bias", "relpos, bias by offset"]),
    }
    for view in page.show("bias").p.evaluate("relpos.views"):
        page.show(view, fresh=True, **which.get(view, {}))  # browsers hold back many files from one page
        if view == "cost":
            page.p.click("#measure")
            page.p.wait_for_selector("text=Measured:", timeout=60000)
            page.frames()
        png, svg, csv = (page.download(name) for name in ("PNG", "SVG", "CSV"))
        check(
            f"{view}: PNG", png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">I", png.read_bytes()[16:20])[0] > 300
        )
        text = svg.read_text()
        check(
            f"{view}: SVG", xml.dom.minidom.parseString(text).documentElement.tagName == "svg" and "var(" not in text, text[:200]
        )
        if view in charts:
            tree = xml.dom.minidom.parseString(text).documentElement
            said = ["".join(t.data for t in x.childNodes if t.nodeType == t.TEXT_NODE) for x in tree.getElementsByTagName("text")]
            title, keys = charts[view]
            check(f"{view}: its title and legend are saved", said[0].startswith(title) and all(k in said for k in keys), said)
            size = [2 * int(x) for x in tree.getAttribute("viewBox").split()[2:]]
            check(f"{view}: in the PNG too", [*struct.unpack(">II", png.read_bytes()[16:24])] == size, size)
        rows = [line.split(",") for line in csv.read_text().splitlines()]
        check(
            f"{view}: CSV",
            len(rows) > 3 and len(rows) == len(page.csv()) and view != "bias" or rows[0] == ["head", "query", "key", "bias"],
            rows[:2],
        )
    page.show("bias", q=9, k=7, heads=2)
    page.show("cost", save="cache", step=3)
    check("cost: the map of the cache", [row[:2] for row in page.csv()[1:]] == [[t, j] for t in range(4) for j in range(t + 1)])
    page.show("rope", save="product")
    check("rope: the product", len(page.csv()) == 130 and page.csv()[0] == ["offset", "product"])
    page.show("bias", fresh=True, q=2048, k=2048, heads=4)
    page.p.get_by_role("button", name="CSV", exact=True).click()
    page.until("document.querySelector('[aria-label=Save] [role=status]').textContent.includes('16777216 lines are more')")
    page.show("bias", q=500, k=500, heads=1)
    page.p.evaluate("globalThis.longest = 0; let last = performance.now(); const step = () => { const now = performance.now(); longest = Math.max(longest, now - last); last = now; requestAnimationFrame(step); }; step();")
    lines = page.download("CSV").read_text().splitlines()
    longest = page.p.evaluate("longest")
    check("a long table", len(lines) == 500 * 500 + 1 and float(lines[-1].split(",")[3]) == page.p.evaluate("relpos.page().numbers().map().at(-1)"), lines[-1])
    check("the page lives while a table is written", longest < 500, longest)
    page.show("bias", q=9, k=7, heads=2)
    mine = [line.split(",") for line in page.download("CSV").read_text().splitlines()]
    want = [line.split(",") for line in command("relpos bias alibi --q 9 --k 7 --heads 2 -o -").splitlines()]
    check(
        "the CSV is that of relpos bias -o -",
        [row[:3] for row in mine] == [row[:3] for row in want]
        and [float(r[3]) for r in mine[1:]] == [float(r[3]) for r in want[1:]],
    )
    page.context.close()


# ---------------------------------------------------------------------------------------------------- files


def safetensors(arrays, change=lambda head: head, size=None):
    head, data = {}, b""
    for name, x in arrays.items():
        kind = {"float32": "F32", "float64": "F64", "float16": "F16"}[str(x.dtype)]
        head[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(change(head)).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def npz(arrays, save=np.savez):
    to = io.BytesIO()
    save(to, **arrays)
    return to.getvalue()


def files(browser):
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 2, 6, 4)).astype(np.float32) for _ in range(3))
    good = {"q": q, "k": k, "v": v}

    def edit(name, **what):
        return lambda head: {**head, name: {**head[name], **what}}

    archive = npz(good, np.savez_compressed)
    lie = bytearray(npz(good))
    at = lie.rindex(b"PK\x01\x02")
    lie[at + 42 : at + 46] = struct.pack("<I", 0x7FFFFFFF)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("q.npy", b"\0" * 300_000_000)
    small = bytearray(npz({"q": np.zeros((1, 2, 500, 64))}, np.savez_compressed))
    for mark in (b"PK\x01\x02",):  # says it unpacks to 100 bytes
        small[small.index(mark) + 24 : small.index(mark) + 28] = struct.pack("<I", 100)
    hostile = {
        "empty.npz": b"",
        "short.safetensors": b"\1\2\3",
        "noise.npz": rng.bytes(5000),
        "zeros.safetensors": bytes(4096),
        "text.safetensors": b"hello, this is no file of arrays at all\n" * 9,
        "header.safetensors": safetensors(good, size=1 << 62),
        "json.safetensors": struct.pack("<Q", 20) + b"{" * 20 + bytes(40),
        "list.safetensors": struct.pack("<Q", 24) + b"[1, 2, 3]".ljust(24) + bytes(40),
        "deep.safetensors": struct.pack("<Q", 200000) + b"[" * 200000,
        "offsets.safetensors": safetensors(good, edit("q", data_offsets=[0, 1 << 40])),
        "negative.safetensors": safetensors(good, edit("q", data_offsets=[-8, 184])),
        "backward.safetensors": safetensors(good, edit("q", data_offsets=[192, 0])),
        "shape.safetensors": safetensors(good, edit("q", shape=[1, 2, 60000, 4])),
        "same.safetensors": safetensors(good, edit("k", data_offsets=[0, 192])),
        "over.safetensors": safetensors(good, edit("v", data_offsets=[380, 572])),
        "hole.safetensors": safetensors({"q": q, "x": v, "k": k}, lambda head: {n: x for n, x in head.items() if n != "x"}),
        "after.safetensors": safetensors(good) + b"more",
        "three.safetensors": safetensors(good, edit("q", data_offsets=[0, 192, 192])),
        "batch.safetensors": safetensors({**good, "v": v[:0].copy()}),
        "vheads.safetensors": safetensors({**good, "v": v[:, :1].copy()}),
        "out.safetensors": safetensors({**good, "out": q[:0].copy()}),
        "many.safetensors": safetensors({**good, "x": np.zeros(33_000_000, np.float16)}),
        "fraction.safetensors": safetensors(good, edit("q", shape=[1, 2, 1.5, 16])),
        "words.safetensors": safetensors(good, edit("q", shape=["1", "2"])),
        "huge.safetensors": safetensors(good, edit("q", shape=[1 << 31, 1 << 31, 1 << 31, 4])),
        "null.safetensors": safetensors(good, lambda head: {**head, "q": None}),
        "proto.safetensors": safetensors(good, lambda head: {"__proto__": {"q": 1}, "constructor": head["k"]}),
        "axes.safetensors": safetensors({"q": q[0], "k": k[0]}),
        "noq.safetensors": safetensors({"x": q}),
        "widths.safetensors": safetensors({"q": q, "k": k[..., :3].copy()}),
        "heads.safetensors": safetensors({"q": q, "k": np.repeat(k, 2, 1)[:, :3].copy()}),
        "long.safetensors": safetensors({"q": np.zeros((1, 1, 2000, 4), np.float32), "k": np.zeros((1, 1, 2000, 4), np.float32)}),
        "nothing.safetensors": safetensors({"q": q[:, :, :0].copy(), "k": k}),
        "cut.safetensors": safetensors(good)[:-100],
        "cut.npz": archive[: len(archive) // 2],
        "tail.npz": archive[:-30],
        "lie.npz": bytes(lie),
        "bomb.npz": bomb.getvalue(),
        "small.npz": bytes(small),
        "flip.npz": archive[:200] + bytes(b ^ 0xFF for b in archive[200:400]) + archive[400:],
        "object.npz": npz({"q": np.array([{}, 1], dtype=object)}),
        "fortran.npz": npz({"q": np.asfortranarray(rng.standard_normal((1, 2, 6, 4))), "k": k}),
    }
    page = Page(browser)
    page.show("model", a="alibi")
    before = page.csv()
    for name, data in hostile.items():
        (work / name).write_bytes(data)
        page.p.evaluate("document.querySelector('.drop .problem').textContent = ''")
        page.p.set_input_files("#file", work / name)
        page.until("document.querySelector('.drop .problem').textContent !== ''")
        said = page.problem()
        check(f"{name}: refused with a sentence", said.startswith("the file was not taken: ") and 30 < len(said) < 400, said)
    page.frames()
    check("the page is as it was", page.csv() == before)
    for name, data in {
        "good.safetensors": safetensors(good),
        "good.npz": npz(good),
        "packed.npz": archive,
        "half.npz": npz({n: x.astype(np.float16) for n, x in good.items()}),
    }.items():
        (work / name).write_bytes(data)
        page.p.set_input_files("#file", work / name)
        page.until(f"document.querySelector('main').textContent.includes('{name}')")
        page.frames()
        page.p.evaluate("relpos.change({head: 1, query: 3, a: 'alibi'})")
        page.frames()
        found = json.loads(command(f"relpos explain --input {name} --head 1 --query 3 --bias alibi --json"))
        check(f"{name}: its weights", fixed([row[4] for row in page.csv()[1:]]) == fixed(found["weights"]), page.problem())
    real = (root / "examples/data/lab_t5_layer1.safetensors").read_bytes()

    def dropped(name, data):
        (work / name).write_bytes(data)
        page.show("model", a="alibi", causal=0)
        page.p.set_input_files("#file", work / name)
        page.until(f"document.querySelector('main').textContent.includes('{name}')")
        page.frames()
        return page.p.evaluate("relpos.state()"), page.p.text_content("main")

    size = struct.unpack("<Q", real[:8])[0]
    meta = json.loads(real[8 : 8 + size])

    def with_options(text):
        head = {**meta, "__metadata__": {**meta["__metadata__"], "options": text}}
        if text is None:
            del head["__metadata__"]["options"]
        packed = json.dumps(head).encode()
        return struct.pack("<Q", len(packed)) + packed + real[8 + size :]

    now, said = dropped("lab.safetensors", real)
    check("a laboratory's file brings its options", "table=t5.table" in now["a"] and now["causal"] and now["query"] == 60, now)
    for head in range(4):
        page.p.evaluate("head => relpos.change({head, query: 40})", head)
        page.frames()
        found = json.loads(
            command(page.code().splitlines()[1].replace("--brief", "--json").replace("relpos-heads.safetensors", "lab.safetensors"))
        )
        check(f"lab.safetensors: weights of head {head}", fixed([row[4] for row in page.csv()[1:]]) == fixed(found["weights"]))
        far = float(re.search(r"that in the file by ([\d.e-]+) at most", page.p.text_content("main"))[1])
        check(f"lab.safetensors: the output of head {head} is the model's", far < 1e-5, far)
    page.p.evaluate("relpos.change({a: 'alibi'})")
    page.frames()
    far = page.p.evaluate("relpos.page().numbers().far")
    check("another term: another output", far > 0.01, far)
    page.p.evaluate("relpos.change({a: 't5,bidirectional=0,table=t5.table', scale: 1})")
    page.frames()
    page.download("Save the arrays")
    found = json.loads(command(page.code().splitlines()[1].replace("--brief", "--json")))
    check(
        "a scale of its own",
        " --scale 1 " in page.code() and fixed([row[4] for row in page.csv()[1:]]) == fixed(found["weights"]),
    )
    for name, text, want in (
        ("two.safetensors", "--bias t5,bidirectional=0,table=t5.table --bias log,lambda=0.1 --scale 1 --causal", None),
        ("rope.safetensors", "--rope base=100 --causal", None),
        ("unknown.safetensors", "--bias t5,table=t5.table --window 3,0", "--window is not known here"),
        ("three.safetensors", "--bias log --bias log --bias log", "takes two"),
        ("absent.safetensors", "--bias t5,table=nothing", "no array of the file is called nothing"),
        ("constructor.safetensors", "--bias constructor", "Choose a term"),
        ("nonsense.safetensors", "--bias <img/src=x/onerror=alert(1)>", "Choose a term"),
        ("wrong.safetensors", "--bias t5,buckets=7,table=t5.table", "Choose a term"),
    ):
        now, said = dropped(name, with_options(text))
        if want:
            check(f"{name}: said and left out", want in said and now["a"] in ("alibi", "") and page.problem() == "", said[-300:])
        else:
            expect = text.replace("--bias ", "").replace("--rope ", "rope,").split(" --")[0].split()
            check(f"{name}: taken", [now["a"], now["b"]][: len(expect)] == expect and page.problem() == "", now)
    odd = {**good, "q": q.copy()}
    odd["q"][0, 0, 3, 1], odd["q"][0, 1, 2, 0] = np.nan, np.inf
    now, said = dropped("odd.safetensors", safetensors(odd))
    check("NaN and infinity are told", "Not every number of the file is finite: 2 of q" in said and page.problem() == "", said[:300])
    page.p.evaluate("relpos.change({head: 0, query: 3, a: 'alibi', causal: true})")
    page.frames()
    read = lambda: page.p.locator("main figure:not([hidden]) .readout").first.text_content()
    check("NaN is no mask", read().endswith("not a number"), read())
    page.p.focus("main figure:not([hidden]) canvas[tabindex]")
    page.p.keyboard.press("End")
    page.frames()
    check("a mask is no NaN", read().endswith("masked"), read())
    shapes = safetensors({**good, "t5.table": np.ones((7, 3), np.float32)})
    for name, data in (("seven.safetensors", shapes), ("scale.safetensors", with_options("--bias t5,table=t5.table --scale 1e308"))):
        now, said = dropped(name, data)
        page.frames()
        check(f"{name}: said and left out", "Choose a term" in said and now["source"] == "file" and page.problem() == "", f"{now} {said[-300:]}")
        saved = read_safetensors(page.download("Save the arrays"))["q"].size
        check(f"{name}: what is on the screen is saved", f"{saved // (2 * 4 if 'seven' in name else 4 * 32)} tokens" in said, saved)
    names = np.frombuffer(rng.standard_normal(9 * 4).tobytes()).reshape(9, 4)
    (work / "vectors.safetensors").write_bytes(safetensors({**good, "relkey.table": names}))
    page.p.set_input_files("#file", work / "vectors.safetensors")
    page.until("document.querySelector('main').textContent.includes('vectors.safetensors')")
    page.p.select_option("#b-kind", "")
    page.p.select_option("#a-kind", "relkey")
    page.frames()
    page.p.evaluate("relpos.change({a: 'relkey,left=4,right=4,table=relkey.table', head: 1, query: 5})")
    page.frames()
    found = json.loads(command("relpos explain --input vectors.safetensors --head 1 --query 5 --relkey table=relkey.table,left=4,right=4 --json"))
    check("vectors of a file", fixed([row[4] for row in page.csv()[1:]]) == fixed(found["weights"]), page.problem())
    page.p.select_option("#a-kind", "xl")
    page.frames()
    check("arrays that are not there are asked for", "xl needs an array: write ,r=NAME" in page.problem(), page.problem())
    now, said = dropped("bare.safetensors", with_options(None))
    check("names of arrays tell the term", now["a"] == "t5,table=t5.table" and "the parameters are the defaults" in said, now)
    page.p.evaluate("relpos.change({a: 't5,table=none'})")
    page.frames()
    check("an array that is not there", "no array of the file is called none" in page.problem(), page.problem())
    page.context.close()


# ---------------------------------------------------------------------------------------------------- the machine


def modules(browser):
    page = Page(browser)
    page.show("bias", a="t5", b="fire,c=1,L=8", q=40, k=40)
    first, vectors = page.csv(), page.p.evaluate("relpos.core.vectors")
    page.p.add_init_script(
        "const real = WebAssembly.compile; let calls = 0; WebAssembly.compile = (...a) => calls++ ? real(...a) : Promise.reject(new WebAssembly.CompileError('no relaxed SIMD'))"
    )
    page.show("bias", fresh=True, a="t5", b="fire,c=1,L=8", q=40, k=40)
    check(
        "SIMD128 where there is no relaxed SIMD",
        page.p.evaluate("relpos.core.vectors") == "SIMD128" and vectors == "relaxed SIMD",
        vectors,
    )
    check("both modules say the same", page.csv() == first)
    page.context.close()


def speed(browser):
    page = Page(browser)
    ready = sorted(
        int(page.show(view, fresh=True).p.get_attribute("html", "data-ready"))
        for view in ("bias", "sentence", "model")
        for _ in range(3)
    )
    print(f"    ready {ready[0]} to {ready[-1]} ms after the page began to load, median {ready[len(ready) // 2]} ms")
    for state, label in (
        ({"a": "log,lambda=0.3"}, "lambda"),
        ({"a": "t5,buckets=32,max_distance=128"}, "max distance"),
        ({"a": "t5,buckets=32,max_distance=128", "heads": 8}, "max distance"),
        ({"a": "alibi", "heads": 8}, "Position of query 0"),
        ({"a": "fire,c=1,L=8"}, "c"),
        ({"a": "rope"}, "base"),
        ({"a": "relkey,left=8,right=8"}, "left"),
        ({"a": "axialkey,grid=16x32"}, "Query of the curve"),
        ({"a": "xl"}, "Position of query 0"),
    ):
        page.show("bias", **{"q": 512, "k": 512, "heads": 1, **state})
        rate = page.p.evaluate("""label => new Promise(done => {
            const slider = document.querySelector(`input[type=range][aria-label="${label}"]`);
            let frames = 0, start = performance.now();
            const step = () => { slider.value = (+slider.max - +slider.min) * (frames % 50 + 5) / 60 + +slider.min; slider.dispatchEvent(new Event('input', {bubbles: true}));
                if (performance.now() - start > 3000) done(frames / (performance.now() - start) * 1000); else { frames++; requestAnimationFrame(step); } };
            requestAnimationFrame(step); })""", label)
        check(f"a moving slider: {state}", page.problem() == "", page.problem())
        print(
            f"    a 512 x 512 map of {state['a']}, {state.get('heads', 1)} head(s), under a moving slider: {rate:.0f} frames a second"
        )
    page.context.close()


def screenshots(browser, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for view in ("bias", "sentence", "buckets", "shaw", "rope", "images", "families", "cost", "model"):
        for name, width, scheme in (("", 1280, "light"), ("-dark", 1280, "dark"), ("-narrow", 360, "light")):
            page = Page(browser, viewport={"width": width, "height": 860}, color_scheme=scheme)
            page.show(view, **({"a": "t5,buckets=32,max_distance=128", "b": "alibi", "q": 48, "k": 48} if view == "bias" else {}))
            page.p.wait_for_timeout(200)
            page.p.screenshot(path=folder / f"{view}{name}.png", full_page=True)
            page.context.close()


class Firefox:
    """Firefox without a driver of its own: Marionette, which it has within, over a socket."""

    def __init__(self):
        self.place, self.n = Path(tempfile.mkdtemp(dir=work)), 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        prefs = {
            "marionette.port": port,
            "browser.download.folderList": 2,
            "browser.download.dir": str(self.place),
            "browser.shell.checkDefaultBrowser": False,
        }
        (self.place / "user.js").write_text("".join(f'user_pref("{k}", {json.dumps(v)});\n' for k, v in prefs.items()))
        line = [shutil.which("firefox-esr") or "firefox", "--headless", "--marionette", "--no-remote", "--profile", self.place]
        self.process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.1)
        self.stream = self.socket.makefile("rb")
        self.answer()
        self("WebDriver:NewSession", capabilities={})

    def answer(self):
        size = b""
        while (byte := self.stream.read(1)) != b":":
            size += byte
        return json.loads(self.stream.read(int(size)))

    def __call__(self, command, **parameters):
        self.n += 1
        text = json.dumps([0, self.n, command, parameters]).encode()
        self.socket.sendall(f"{len(text)}:".encode() + text)
        _, _, error, found = self.answer()
        if error:
            raise RuntimeError(error["message"])
        return found.get("value") if isinstance(found, dict) else found

    def js(self, script):
        return self("WebDriver:ExecuteScript", script=script, args=[])

    def until(self, script, seconds=20):
        for _ in range(20 * seconds):
            if found := self.js(script):
                return found
            time.sleep(0.05)
        check(f"Firefox, in {seconds} s: {script}", False)

    def show(self, to):
        self("WebDriver:Navigate", url="about:blank")
        self("WebDriver:Navigate", url=url + to)
        self.until("return document.documentElement.dataset.ready")
        self.until("return document.querySelector('.work') !== null")

    def saved(self, button, name):
        self.js(f"[...document.querySelectorAll('button')].find(b => b.textContent === '{button}').click()")
        for _ in range(200):
            if (self.place / name).exists() and (self.place / name).stat().st_size:
                break
            time.sleep(0.05)
        return self.place / name


def firefox(browser):
    """The same page in Firefox, where Debian's firefox-esr is installed: the numbers of chromium, exports, a file of one's own."""
    if not shutil.which("firefox-esr"):
        print("    skipped: firefox-esr is missing")
        return
    page, other = Page(browser), Firefox()
    try:
        for to in [f"#{view}" for view in page.show("bias").p.evaluate("relpos.views")] + [
            "#bias?a=deberta,k_pos=k_pos,q_pos=q_pos&b=alibi&q=20&k=20&save=sum",
            "#bias?a=t5&b=fire,c=1,L=8&q=30&k=41&save=sum",
            "#model?source=lab0&a=t5,bidirectional=0,table=t5.table&causal=1&query=60&head=2",
        ]:
            other.show(to)
            page.p.goto("about:blank")
            page.p.goto(url + to)
            page.p.wait_for_selector("html[data-ready]")
            page.frames()
            said = other.js("return [...document.querySelectorAll('.problem')].map(x => x.textContent).join('')")
            check(f"Firefox {to}: no problem", said == "", said)
            mine, theirs = page.csv(), json.loads(other.js("return JSON.stringify(relpos.page().csv())"))

            def same(x, y):
                if isinstance(x, float) and np.isinf(x):
                    return y is None  # JSON has no infinity
                return fixed([x]) == fixed([y]) if isinstance(x, float) else x == y

            check(
                f"Firefox {to}: the numbers of chromium",
                len(mine) == len(theirs) and all(same(x, y) for a, b in zip(mine, theirs) for x, y in zip(a, b)),
            )
            check(f"Firefox {to}: fits", other.js("return document.documentElement.scrollWidth <= innerWidth"))
        other.show("#bias?a=alibi&q=9&k=9")
        check("Firefox: PNG", other.saved("PNG", "bias-alibi.png").read_bytes()[:4] == b"\x89PNG")
        check("Firefox: SVG", other.saved("SVG", "bias-alibi.svg").read_text().startswith("<svg"))
        check("Firefox: CSV", other.saved("CSV", "bias-alibi.csv").read_text().startswith("head,query,key,bias"))
        other.show("#sentence")
        check("Firefox: PNG of a chart", other.saved("PNG", "sentence.png").read_bytes()[:4] == b"\x89PNG")
        other.show("#model")
        for name, data, want in (("bad.npz", b"PK nothing of the kind at all", "was not taken"), ("lab.safetensors", None, "lab.safetensors")):
            (work / name).write_bytes(data or (root / "examples/data/lab_t5_layer1.safetensors").read_bytes())
            box = other("WebDriver:FindElement", using="css selector", value="#file")
            other("WebDriver:ElementSendKeys", id=next(iter(box.values())), text=str(work / name))
            other.until(f"return document.querySelector('main').textContent.includes('{want}')")
        check("Firefox: a laboratory's file", "differs from that in the file by" in other.js("return document.querySelector('main').textContent"))
    finally:
        other.process.terminate()
        other.process.wait(30)
        page.context.close()


def run(part, on):
    start, before, bad = time.monotonic(), checks, len(failures)
    part(on)
    print(
        f"{'ok' if len(failures) == bad else 'FAILED'} {part.__name__}: {checks - before} checks, {time.monotonic() - start:.0f} s",
        flush=True,
    )


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"), args=["--no-sandbox"]
    )
    check("less than 1.5 MB", page_file.stat().st_size < 1_500_000)
    parts = sys.argv[2:]
    if parts[:1] == ["--screenshots"]:
        screenshots(browser, Path(parts[1]))
    else:
        page = Page(browser)
        for part in (bias, effects, sentence, buckets, shaw, rope, images, families, cost, model):
            if not parts or part.__name__ in parts:
                run(part, page)
        page.context.close()
        for part in (keyboard, navigation, narrow, colours, names, address, exports, files, modules, firefox, speed):
            if not parts or part.__name__ in parts:
                run(part, browser)
    browser.close()
shutil.rmtree(work)
print(f"{checks} checks, {len(failures)} failed; the page has {page_file.stat().st_size} bytes")
sys.exit(1 if failures else 0)
