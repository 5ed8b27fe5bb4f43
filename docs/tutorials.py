"""Run the tutorials in docs/tutorials, and generate their notebooks and pages.

A tutorial is Markdown. Its Python blocks are cells, which run in order in the root of the source. A run writes a
notebook with the cells and their output. docs/build.sh runs the tutorials without PyTorch and writes their notebooks to
build/docs/tutorials. Notebooks with PyTorch are committed in docs/tutorials; ./check --torch runs them again, and the
build fails if a tutorial has changed since its notebook was written. Tutorials that the build runs print no times, so
two builds of the site are identical.

    python docs/tutorials.py            run tutorials without PyTorch, and check the committed notebooks; docs/build.sh
                                        runs this
    python docs/tutorials.py --torch    run tutorials with PyTorch; notebooks go to build/docs/torch
    python docs/tutorials.py --save     run tutorials with PyTorch, and save their notebooks in docs/tutorials; use
                                        after changing one

SPDX-License-Identifier: Apache-2.0"""
import ast
import base64
import contextlib
import io
import json
import os
import re
import struct
import sys
import time
from pathlib import Path

here = Path(__file__).resolve().parent
made = here.parent / "build/docs/tutorials"
# tutorial: number of the picture on its card; in reading order
NAMES = {"bias": 2, "train": 2, "derivatives": 1, "long": 1, "serve": 2}


def read(name):
    return (here / f"tutorials/{name}.md").read_text()


def needs_torch(name):
    return "import torch" in read(name)


def kept(name):
    """Return the path of the notebook that the site shows for a tutorial."""
    return (here / "tutorials" if needs_torch(name) else made) / f"{name}.ipynb"


def cells(text):
    """Split a tutorial into (is code, text) parts: Python blocks and the text between them."""
    parts = re.split(r"^```python\n(.*?)^```\n", text, flags=re.M | re.S)
    return [(n % 2 == 1, part.strip("\n")) for n, part in enumerate(parts) if part.strip()]


# ---------------------------------------------------------------------------------------------- run

def run(name):
    """Run a tutorial and return its notebook."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"figure.constrained_layout.use": True, "figure.dpi": 80, "savefig.dpi": 160,
                                "font.size": 9,
                                "axes.spines.top": False, "axes.spines.right": False})
    names, made_of, count = {"__name__": "__main__"}, [], 0
    for is_code, text in cells(read(name)):
        cell = {"id": f"{name}-{len(made_of)}", "metadata": {}, "source": text if is_code else for_notebook(text)}
        if is_code:
            count += 1
            cell |= {"cell_type": "code", "execution_count": count,
                     "outputs": outputs(text, names, f"{name}, cell {count}")}
        else:
            cell["cell_type"] = "markdown"
        made_of.append(cell)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": made_of, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}, "nbformat": 4,
            "nbformat_minor": 5}


def outputs(code, names, where):
    """Run a cell and return its outputs in notebook format: printed text, the value of the last expression, and
    pictures."""
    import matplotlib.pyplot as plt
    tree, printed, found = ast.parse(code), io.StringIO(), []
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        value = None if last is None else eval(compile(last, where, "eval"), names)
    if printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    figures = [plt.figure(number) for number in plt.get_fignums()]
    if value is not None and not figures:
        data, html = {"text/plain": repr(value)}, getattr(value, "_repr_html_", None)
        data |= {"text/html": html()} if html else {}
        found.append({"output_type": "display_data", "data": data, "metadata": {}})
    for figure in figures:
        picture = io.BytesIO()
        figure.savefig(picture, format="png", metadata={"Software": None}, bbox_inches="tight")
        titles = [title for ax in figure.axes
                  if (title := ax.get_title())] + ([figure.get_suptitle()] if figure.get_suptitle() else [])
        data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": "; ".join(titles)}
        # displayed width: the PNG has twice the resolution
        width = struct.unpack(">I", picture.getvalue()[16:20])[0] // 2
        found.append({"output_type": "display_data", "data": data, "metadata": {"image/png": {"width": width}}})
    plt.close("all")
    return found


def for_notebook(text):
    """Convert MyST to the Markdown of notebooks: put formulas between dollar signs, and replace links to other pages by
    plain text."""
    text = re.sub(r"^```\{math\}\n(.*?)^```$", r"$$\n\1$$", text, flags=re.M | re.S)
    text = re.sub(r"\{math\}`([^`]+)`", r"$\1$", text)
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)


# ---------------------------------------------------------------------------------------------- the site

def is_of_text(name, notebook):
    return [cell["source"] for cell in notebook["cells"]] == [text if is_code else for_notebook(text)
                                                              for is_code, text in cells(read(name))]


def pictures(notebook, name):
    """Write the pictures of a notebook to build/docs/tutorials, and return {id(output): path}."""
    found = {}
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                found[id(output)] = made / f"{name}-{len(found) + 1}.png"
                found[id(output)].write_bytes(base64.b64decode(output["data"]["image/png"]))
    return found


def page(name):
    """Return the page of a tutorial, with the outputs of each cell below the cell."""
    notebook, parts = json.loads(kept(name).read_text()), []
    drawn = pictures(notebook, name)
    for (is_code, text), cell in zip(cells(read(name)), notebook["cells"]):
        parts.append(f"```python\n{text}\n```" if is_code else text)
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text")})
            if id(output) in drawn:
                link = os.path.relpath(drawn[id(output)], here / "tutorials")
                parts.append(f"````{{container}} picture\n```{{image}} {link}\n:alt: {data['text/plain']}\n"
                             f":width: {output['metadata']['image/png']['width']}px\n```\n````")
            elif "text/html" in data:
                parts.append(f'```{{raw}} html\n<div class="made">{data["text/html"]}</div>\n```')
            else:
                parts.append(f"```{{code-block}} text\n:class: made\n{data['text/plain'].rstrip()}\n```")
    link = os.path.relpath(kept(name), here / "tutorials")
    parts[0] = re.sub("\n(?=\n|$)", f"\n\n{{download}}`This page as a notebook <{link}>`\n", parts[0], count=1)
    return "\n\n".join(parts) + "\n"


def cards():
    """Return a card for each tutorial, with its title, picture and first sentence."""
    out = ["::::{grid} 1 2 2 2", ":gutter: 2", ""]
    for name, number in NAMES.items():
        picture = list(pictures(json.loads(kept(name).read_text()), name).values())[number - 1]
        title, _, text = read(name).partition("\n")
        out += [f":::{{grid-item-card}} {title.strip('# ')}", f":link: tutorials/{name}", ":link-type: doc",
                ":class-card: tutorial",
                f":img-top: {os.path.relpath(picture, here)}", "",
                re.split(r"(?<=[.:])\s", text.strip())[0].rstrip(".:") + ".", ":::", ""]
    return "\n".join([*out, "::::"])


def main(arguments):
    if arguments not in ([], ["--torch"], ["--save"]):
        sys.exit(f"tutorials.py: unknown arguments {' '.join(arguments)}; use --torch, --save or none")
    os.chdir(here.parent)
    made.mkdir(parents=True, exist_ok=True)
    if not arguments:
        for name in filter(needs_torch, NAMES):
            if not (kept(name).exists() and is_of_text(name, json.loads(kept(name).read_text()))):
                sys.exit(f"docs/tutorials/{name}.ipynb does not match docs/tutorials/{name}.md; run python "
                         "docs/tutorials.py --save, with the wheel, torch, transformers and matplotlib installed")
    for name in (name for name in NAMES if needs_torch(name) == bool(arguments)):
        path = kept(name)
        if arguments == ["--torch"]:
            path = made.parent / f"torch/{name}.ipynb"
            path.parent.mkdir(exist_ok=True)
        started = time.perf_counter()
        text = json.dumps(run(name), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)
        print(f"{name}: {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
