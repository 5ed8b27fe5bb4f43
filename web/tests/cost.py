"""The view of costs. SPDX-License-Identifier: Apache-2.0"""

import ast
import json

from checks import build, check, command, root, work
from programs import python_program


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
    page.p.wait_for_selector("text=Measured:")
    check("cost: measured", page.problem() == "" and len(page.cells("by offset")) == 3)
    print(
        "   ",
        page.p.locator("#measure + p").text_content(),
        *(f"{label}: {page.cells(label)}" for label in ("no bias", "by offset", "array, made before", "making the array")),
        "ms",
    )
    (work / "size.c").write_text(page.code("C"))
    command(f"cc -Wall -Werror -I{root}/include size.c -o size -L{build} -lrelpos -Wl,-rpath,{build} && ./size")
