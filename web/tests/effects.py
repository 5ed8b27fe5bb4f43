"""Test the view of biases with terms that are not biases or need an array. SPDX-License-Identifier: Apache-2.0"""

import ast
import json
import re

import numpy as np

from calculations import parts, value_of
from checks import check, command, fixed, root, work
from programs import c_program, python_program, read_safetensors, run_row


def effects(page):
    """Compare the effects of terms that are not biases or need an array with two commands, which read the arrays that
    the page saves."""
    page.show("bias")
    facts = {term["name"]: term for term in json.loads((root / "docs/terms/facts.json").read_text())}
    every = list(facts)
    offered = page.p.eval_on_selector_all("#a-kind option", "all => all.map(x => x.value)")
    check("view a offers every term", sorted(offered) == sorted(every), sorted(set(every) - set(offered)))
    started = {}
    for name in every:
        page.p.select_option("#a-kind", name)
        page.frames()
        started[name] = page.p.evaluate("relpos.state().a")
        check(f"{name}: a map of its own", page.problem() == "" and started[name].split(",")[0] == name, page.problem())
    changed = dict(rotation="scores", product="scores", sink="weights", value="out")
    only_name = tuple(f"{name}." for name, term in facts.items() if term["option"].endswith(" NAME"))  # --sink NAME
    which = {name: changed[term["role"]] for name, term in facts.items() if term["role"] in changed}
    states = [dict(a=started[name], q=16, k=16, heads=2, head=1, query=5) for name in which]
    states += [
        dict(a="rope,base=100,layout=interleaved", q=7, k=11, heads=1, offset=4, words="The cat sat", query=6),
        dict(a="relkey,left=2,right=0", b="t5,buckets=8,max_distance=16", q=9, k=9, heads=2, words="a b c d e",
             query=8),
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
        what = re.search(r": (\w+) of the first minus", lines[1])[1]
        check(
            f"effect {state}: what changes",
            what.rstrip("s") == which.get(state["a"].split(",")[0], "scores").rstrip("s") or state["a"] == "alibi",
            what,
        )
        head_of, *rows = page.csv()
        check(f"effect {state}: the columns", head_of[2] == ("channel" if what == "out" else "key"), head_of)
        for i in {0, query}:
            first, second = (json.loads(command(x.replace(f"--query {query}", f"--query {i}") + " --json"))
                             for x in lines[2:4])
            want = np.array(first[what]) - np.array(second[what])
            mine = [row[3] for row in rows if row[0] == head and row[1] == i]
            check(f"effect {state}: row {i}", fixed(mine) == fixed(want), f"{mine[:4]} {want[:4]}")
            if i == query:
                read = page.p.evaluate(
                    "document.querySelectorAll('figure:not([hidden]) .readout')[%d].textContent"
                    % (2 if state.get("b") else 0)
                )
                calculation, value = parts(read)
                check(f"effect {state}: the text of the cursor", value == fixed([want[0]])[0], read)
                check(f"effect {state}: with minus without", abs(value_of(calculation) - want[0]) < 1.1e-4, read)
                arrays = read_safetensors(path)
                names = re.findall(r"(?:\w+|^--sink \S*)=([a-z]\w*(?:\.\w+)?)(?=[, ]|$)", lines[2])
                names = [n for n in arrays if n in names or n.startswith(only_name)]
                scores, weights = run_row("effect", page, arrays, "q", "k", *names)
                check(f"effect {state}: the C function",
                      (scores, weights) == (fixed(first["score"]), fixed(first["weights"])))
        check(
            f"effect {state}: the map",
            fixed(page.p.evaluate("relpos.page().numbers().map()"))
            == fixed([row[3] for row in rows if row[0] == head]),
        )
        check(f"effect {state}: not nothing", np.abs([row[3] for row in rows]).max() > 1e-3)
        python = python_program(page)
        if python:
            got = [float(x) for x in re.findall(r"[-\d.]+(?:e-\d+)?", python)]
            want = [row[3] for row in rows if row[0] == head and row[1] == query]
            check(f"effect {state}: the Python", np.allclose(got, want, atol=6e-5), python)
    for state in (dict(a=started["dense"]), dict(a="alibi,slopes=mine", heads=3),
                  dict(a="t5,table=t", b="dense,bias=d", heads=2)):
        page.show("bias", q=9, k=7, query=3, **state)
        page.p.evaluate("save => relpos.change({save})", "sum" if state.get("b") else "a")
        page.frames()
        page.download("Save the arrays")
        found = json.loads(command(page.code().splitlines()[2].split("#")[0]))
        check(f"{state}: every number", fixed([row[3] for row in page.csv()[1:]]) == fixed(found["bias"]),
              page.problem())
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
        for what in re.findall(r": (\w+) of the first minus", lines[1]):
            got = np.subtract(found[0][what], found[1][what])
            check(f"{a} {b}: the command", fixed(got) == fixed([row[3] for row in page.csv()[1:] if row[1] == 2]))
        python_program(page)
    page.show("bias", a="relkey,left=1,right=1", words="   ")
    check("no words: a sentence", "enter at least one word" in page.problem(), page.problem())
    for name, view in (("rope", "rope"), ("relval", "shaw"), ("swin", "images"), ("bucket", "buckets")):
        page.show("bias", a=started[name], q=16, k=16)
        check(f"{name}: the way to its view",
              page.p.evaluate("!!document.querySelector('main p.note a[data-view=%s]')" % view))
