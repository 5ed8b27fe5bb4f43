"""Test the view of costs. SPDX-License-Identifier: Apache-2.0"""

import ast
import json
import math
import re

from calculations import cells, parts, value_of
from checks import build, check, command, root, work
from programs import python_program


def parameters(page):
    """Compare the number of parameters of each term with the shapes that `relpos info` prints."""
    facts = {term["name"]: term for term in json.loads(command("relpos info --json"))["terms"]}
    for heads, dim in ((8, 64), (3, 16)):
        page.show("cost", heads=heads, dim=dim)
        counts = page.p.evaluate("relpos.page().numbers().counts")
        defaults = page.p.evaluate("Object.fromEntries(relpos.core.kinds.map(k => [k.name, k.defaults]))")
        check("cost: every term", {text.split(",")[0] for text, *_ in counts} == set(facts), len(counts))
        for text, many, one in counts:
            name, *given = text.split(",")
            words = {**defaults[name], **dict(word.split("=", 1) for word in given if "=" in word)}
            for key, count in ((many, heads), (one, 1)):
                values = {"H": count, "Dk": dim, "Dv": dim,
                          **{k: int(v) for k, v in words.items() if re.fullmatch(r"-?\d+", v)}}
                if "grid" in words:
                    values["grid_h"], values["grid_w"] = (int(x) for x in words["grid"].split("x"))
                want = 0
                for array in facts[name]["arrays"]:
                    shape = array["shape"]
                    if (array["use"] != "learned" or array["presence"] in ("optional", "replaces")
                        and f"{array['name']}=" not in text or re.search(r"\b(B|L|Lq|Lk)\b", shape)):
                        continue
                    if "?" in shape and ":" in shape:
                        shape = None  # the shape depends on a parameter: the number of layers of fire
                        break
                    axes = shape.strip("[]").split(", ")
                    if len(axes) == 3 and axes[0] == "H?":
                        axes = axes[1:]  # the heads share the vectors
                    want += math.prod(eval(x.rstrip("?"), {}, values) for x in axes
                                      if values.keys() >= set(re.findall(r"[A-Za-z_]\w*", x)))
                if shape and want:
                    check(f"cost: parameters of {text}, {count} heads", key == want, f"{key} {want}")
    page.show("cost", heads=8, dim=64)
    check("cost: Shaw's vectors of the tutorial, shared by the heads", page.cells("together")[-1] == "16,512",
          page.cells("together"))
    check("cost: a table of T5", page.cells("t5,")[1:] == ["256", "32"], page.cells("t5"))
    page.show("cost", also="t5+alibi")
    check("cost: terms of one's own", page.cells("together")[1:] == ["256", "32"], page.cells("together"))
    computed = 0
    for cell, text in cells(page):
        calculation, value = parts(text)
        number = value_of(calculation)
        if number is not None:
            computed += 1
            bare = value.removesuffix(" bytes")
            check(f"cost: {text}", number == float(bare) and (bare != value or cell.replace(",", "") == bare),
                  f"{cell} {number}")
    check("cost: cells with calculations", computed > 2 * 9 + 2 * 15, computed)
    page.show("cost", also="t6")
    check("cost: a term that is none", "no term is called" in page.problem(), page.problem())


def cost(page):
    parameters(page)
    page.show("cost", a="t5", most=256)
    info, _, *benches, row = page.code().splitlines()
    command(info)
    for line in benches:
        command(line + " --threads 1")
    check("cost: the three that are measured, and on which machine", len(benches) == 3
          and "not those of the browser" in page.code(), page.code())
    want = json.loads(command(row + " --json"))["bias"][0][0]
    python = page.code("Python")
    ast.parse(python)
    check("cost: the Python has the bias", "bias=bias" in python and "relpos.T5(" in python
          and "not those of the browser" in python, python)
    out = python_program(page)
    check("cost: the row by Python", not out or " ".join(out.split("[", 1)[1].strip("[] \n").split()).split(" ")
          == [f"{x:g}." for x in want], out)
    check("cost: bytes depend on the instruction set", "depends on the instruction set" in page.code("C"))
    check("cost: the row of the cache", [row for row in page.p.evaluate("[...relpos.page().numbers().row]")] == want)
    check(
        "cost: the row of the cache",
        "and those of the whole matrix: 0." in page.p.locator("p[role=status]").last.text_content()
    )
    said = page.p.locator("figure", has_text="while a text is written").locator(".readout").text_content()
    check("cost: the calculation of a bucket of the cache",
          re.fullmatch(r"step 32, key 0, offset −32: table\[bucket\(−32\) = \d+, 0\] = \d+", said), said)
    check("cost: N x N", page.cells("N × N biases")[-1] == "137 GB")
    page.p.click("#measure")
    page.p.wait_for_selector("text=Measured:")
    check("cost: measured", page.problem() == "" and len(page.cells("by offset")) == 3)
    said = page.p.locator("p.note", has_text="the median of the rounds").text_content()
    noise, times = int(re.search(r"up to (\d+) %", said)[1]), {label: float(page.cells(label)[-1])
                                                               for label in ("by offset", "array, computed before")}
    share = 100 * (times["by offset"] / times["array, computed before"] - 1)
    near = abs(abs(share) - noise) < 3 + 100 * 0.02 / times["by offset"]  # the cells are rounded to 0.01 ms
    check("cost: a difference within the noise is not called one",
          near or ("within this noise" in said) == (abs(share) <= noise), f"{said} {times}")
    print(
        "   ",
        page.p.locator("#measure + p").text_content(),
        *(f"{label}: {page.cells(label)}" for label in ("no bias", "by offset", "array, computed before",
                                                        "computing the array")),
        "ms",
    )
    (work / "size.c").write_text(page.code("C"))
    command(f"cc -Wall -Werror -I{root}/include size.c -o size -L{build} -lrelpos -Wl,-rpath,{build} && ./size")
