"""Run the C and Python programs that the page shows. SPDX-License-Identifier: Apache-2.0"""

import json
import os
import re
import struct

import numpy as np

from checks import build, command, root, work


def c_program(name, page):
    """Run the page's C program, and return the words on the first line of its output."""
    (work / f"{name}.c").write_text(page.code("C"))
    return (
        command(
            f"cc -Wall -Werror -I{root}/include {name}.c -o {name} {'-L' + str(build)} -lrelpos -Wl,-rpath,{build} -lm "
            f"&& ./{name}"
        )
        .splitlines()[0]
        .split()
    )


def python_program(page):
    """Return the output of the page's Python code, if RELPOS_PYTHON has the package."""
    if not os.environ.get("RELPOS_PYTHON"):
        return None
    (work / "show.py").write_text(page.code("Python"))
    return command(f"{os.environ['RELPOS_PYTHON']} show.py")


def run_row(name, page, arrays, *names):
    """Return the scores and the weights that the page's C function computes from the arrays of a file."""
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


def golden(name):
    text = (root / "tests/golden/golden.h").read_text()
    return [float(x) for x in re.findall(r"[-\d.e]+", re.search(rf"{name}\[\d+\] = {{([^}}]*)}}", text)[1])]
