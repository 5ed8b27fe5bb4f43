"""Execute the tutorials of docs/tutorials, and make pages of the site and notebooks of them.

A tutorial is Markdown whose blocks of Python are cells, executed one after the other in the root of the source. A run leaves a notebook, which
holds the cells and what they gave: so the notebook itself shows whether it was made of the present text. docs/build.sh runs the tutorials that
need no PyTorch; their notebooks lie in build/docs/tutorials. Those of the others are kept in docs/tutorials: ./check --torch executes them
anew, and the site refuses one whose text has changed since. What the build runs tells no times, since a site made twice has the same bytes.

    python docs/tutorials.py            what docs/build.sh does: run where something changed, and look at what is kept
    python docs/tutorials.py --torch    run those that need PyTorch; notebooks go to build/docs/torch
    python docs/tutorials.py --save     the same, and keep the notebooks: after a change of such a tutorial

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
NAMES = {"bias": 2, "train": 2, "long": 1, "serve": 2}  # in the order of reading; the picture that stands for each


def read(name):
    return (here / f"tutorials/{name}.md").read_text()


def needs_torch(name):
    return "import torch" in read(name)


def kept(name):
    """Where the notebook is that the site shows."""
    return (here / "tutorials" if needs_torch(name) else made) / f"{name}.ipynb"


def cells(text):
    """(is code, text) of each part: blocks of Python and what stands between."""
    parts = re.split(r"^```python\n(.*?)^```\n", text, flags=re.M | re.S)
    return [(n % 2 == 1, part.strip("\n")) for n, part in enumerate(parts) if part.strip()]


# ---------------------------------------------------------------------------------------------- run

def run(name):
    """The notebook of a tutorial, executed."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"figure.constrained_layout.use": True, "figure.dpi": 80, "savefig.dpi": 160, "font.size": 9,
                                "axes.spines.top": False, "axes.spines.right": False})
    names, made_of, count = {"__name__": "__main__"}, [], 0
    for is_code, text in cells(read(name)):
        cell = {"id": f"{name}-{len(made_of)}", "metadata": {}, "source": text if is_code else for_notebook(text)}
        if is_code:
            count += 1
            cell |= {"cell_type": "code", "execution_count": count, "outputs": outputs(text, names, f"{name}, cell {count}")}
        else:
            cell["cell_type"] = "markdown"
        made_of.append(cell)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": made_of, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}


def outputs(code, names, where):
    """What a cell prints, the value of its last expression, and the pictures that it draws, as a notebook has them."""
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
        titles = [title for ax in figure.axes if (title := ax.get_title())] + ([figure.get_suptitle()] if figure.get_suptitle() else [])
        data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": "; ".join(titles)}
        width = struct.unpack(">I", picture.getvalue()[16:20])[0] // 2  # as it is shown: two pixels for each of the screen's
        found.append({"output_type": "display_data", "data": data, "metadata": {"image/png": {"width": width}}})
    plt.close("all")
    return found


def for_notebook(text):
    """MyST's marks as a notebook knows them: formulas between dollars; a link to another page of the site is its words."""
    text = re.sub(r"^```\{math\}\n(.*?)^```$", r"$$\n\1$$", text, flags=re.M | re.S)
    text = re.sub(r"\{math\}`([^`]+)`", r"$\1$", text)
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)


# ---------------------------------------------------------------------------------------------- the site

def is_of_text(name, notebook):
    return [cell["source"] for cell in notebook["cells"]] == [text if is_code else for_notebook(text) for is_code, text in cells(read(name))]


def pictures(notebook, name):
    """Write the pictures of a notebook beside those in build, and say where each is, by the number of the output."""
    found = {}
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                found[id(output)] = made / f"{name}-{len(found) + 1}.png"
                found[id(output)].write_bytes(base64.b64decode(output["data"]["image/png"]))
    return found


def page(name):
    """The page: the tutorial with what each cell gave below it."""
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
    """A card for each tutorial: its title, its picture and its first sentence."""
    out = ["::::{grid} 1 2 2 2", ":gutter: 2", ""]
    for name, number in NAMES.items():
        picture = list(pictures(json.loads(kept(name).read_text()), name).values())[number - 1]
        title, _, text = read(name).partition("\n")
        out += [f":::{{grid-item-card}} {title.strip('# ')}", f":link: tutorials/{name}", ":link-type: doc", ":class-card: tutorial",
                f":img-top: {os.path.relpath(picture, here)}", "", re.split(r"(?<=[.:])\s", text.strip())[0].rstrip(".:") + ".", ":::", ""]
    return "\n".join([*out, "::::"])


def main(arguments):
    if arguments not in ([], ["--torch"], ["--save"]):
        sys.exit(f"tutorials.py: {' '.join(arguments)}: --torch, --save or nothing")
    os.chdir(here.parent)
    made.mkdir(parents=True, exist_ok=True)
    if not arguments:
        for name in filter(needs_torch, NAMES):
            if not (kept(name).exists() and is_of_text(name, json.loads(kept(name).read_text()))):
                sys.exit(f"docs/tutorials/{name}.ipynb was not made of the present docs/tutorials/{name}.md: run "
                         "python docs/tutorials.py --save, with the wheel, torch, transformers and matplotlib")
    for name in (name for name in NAMES if needs_torch(name) == bool(arguments)):
        path = kept(name)
        if arguments == ["--torch"]:
            path = made.parent / f"torch/{name}.ipynb"
            path.parent.mkdir(exist_ok=True)
        started = time.perf_counter()
        text = json.dumps(run(name), indent=1, ensure_ascii=False) + "\n"
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)
        print(f"{name}: {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
