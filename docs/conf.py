"""Sphinx settings of the documentation site. docs/build.sh builds it. SPDX-License-Identifier: Apache-2.0"""
import importlib.machinery
import re
import sys
import types
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

here = Path(__file__).resolve().parent
sys.path += [str(here), str(here.parent / "tools")]  # for pictures.py, snippets.py and tutorials.py; for terms.py
import terms  # noqa: E402
import tutorials  # noqa: E402

project, copyright = "relpos", "the relpos authors, Apache-2.0"
version = release = re.search(r'RP_VERSION_STRING "([^"]+)"', terms.header)[1]

extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.doctest",
              "sphinx_copybutton", "sphinx_design",
              "matplotlib.sphinxext.plot_directive"]
# autosummary writes .rst files to docs/api
source_suffix = {".md": "markdown", ".rst": "restructuredtext", ".scd": "markdown"}
exclude_patterns = ["terms/head.md", "maintainers", "templates"]
OUTSIDE = {"performance-tables", "hf-performance", "costs", "ranking", "results", "model"}  # pages that others link to
templates_path = ["templates"]
html_theme, html_title = "furo", f"relpos {version}"
html_static_path, html_css_files = ["static"], ["site.css"]
html_show_sourcelink = html_copy_source = html_show_sphinx = False
highlight_language, smartquotes = "text", False
default_role = "code"  # docstrings write code as `name`

html_math_renderer = "mathml"
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True
copybutton_selector = "div:not(.made) > div.highlight > pre"  # no copy button on the output of tutorial cells

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
breathe_projects, breathe_default_project = {"relpos": str(here.parent / "build/xml")}, "relpos"
breathe_domain_by_extension, breathe_show_include = {"h": "c"}, False
nitpicky, nitpick_ignore_regex = True, [("c:identifier", r"u?int(8|32|64)_t|size_t"), ("ref", "relpos_8h")]
autodoc_member_order, autodoc_typehints = "bysource", "none"
doctest_test_doctest_blocks = ""  # python/tests runs the examples in docstrings
plot_html_show_source_link = plot_html_show_formats = False
plot_formats = [("svg", 100)]
plot_rcparams = {"font.size": 8, "axes.titlesize": 8, "axes.spines.top": False, "axes.spines.right": False,
                 "svg.hashsalt": "relpos"}


# ---------------------------------------------------------------------------------------------- pages generated from
# other sources

def man_page(text):
    """Convert a man page from scdoc to MyST. Replace the markup of *bold* and _underlined_ text, and convert indented
    lines to definitions."""
    title, _, text = text.partition("\n")
    lines, code = [], False
    for line in text.splitlines():
        if line.startswith("; "):  # a comment
            continue
        if line.startswith("```"):
            code = not code
        elif not code:
            line = line.replace("<", "\\<")
            line = re.sub(r"\*(relpos(?:-\w+)?)\*\((\d)\)", r"{doc}`\1(\2) <\1.\2>`", line)
            line = re.sub(r"(?<![\w\\*])\*([^*]+)\*", r"**\1**", line)
            line = re.sub(r"(?<![\w\\])_([^_]+)_(?!\w)", r"*\1*", line)
            line = re.sub(r"\+\+$", r"\\", line)
            line = re.sub(r"^(#+) (.*)", lambda m: f"#{m[1]} {m[2].capitalize()}", line)
            if line.startswith("\t"):
                line = ("" if not lines or lines[-1].startswith((":", "   ")) else ": ") + line[1:]
                line = line if line.startswith(": ") else "  " + line
        lines.append(line)
    return f"# {title}\n" + "\n".join(lines) + "\n"


def readme():
    """Return README.md from below its title to its formula, with links and the picture as this site needs them."""
    text = (here.parent / "README.md").read_text().removeprefix("# relpos\n")
    text, heading, _ = text.partition("## What it computes\n")
    assert heading, "README.md has no section What it computes, where the text of docs/index.md ends"
    text = re.sub(r"\]\((docs/)?(?!\w+:)", lambda m: "](" if m[1] else "](../", text)
    text = re.sub(r"\n!\[.*", "", text)  # the picture of a text's attention: the tutorials show such
    image = "```{{image}} \\{}\n:class: only-{}\n:alt: \\3\n```\n"
    return re.sub(r'<picture>.*srcset="docs/(\S+)">.*src="docs/(\S+)"\nalt="(.*)"></picture>',
                  image.format(1, "dark") + image.format(2, "light"), text)


def read_source(app, name, source):
    """Generate the pages of terms, the man pages and the tutorials. Change links to READMEs outside docs into links to
    their pages on this site."""
    if name == "terms":
        source[0] = terms.site_contents()
    elif name.startswith("terms/"):
        source[0] = terms.site_page(name.removeprefix("terms/"))
    elif name.startswith("man/"):
        source[0] = man_page(source[0])
    elif name == "index":
        source[0] = source[0].replace("<!-- README -->", readme())
        app.env.note_dependency(str(here.parent / "README.md"))
    elif name == "start":
        source[0] = source[0].replace("<!-- tutorials -->", tutorials.cards())
    elif name.startswith("tutorials/"):
        source[0] = tutorials.page(name.removeprefix("tutorials/"))
        app.env.note_dependency(str(tutorials.kept(name.removeprefix("tutorials/"))))
    elif name in OUTSIDE:
        source[0] = "---\norphan: true\n---\n" + source[0]
    for far, near in {"../lab/model/README.md": "model.md",
                      "../lab/results/report.md": "results.md",
                      "../lab/results/ranking.md": "ranking.md"}.items():  # only links: these pages include these files
        source[0] = source[0].replace("](" + far, "](" + ("../" if name.startswith("terms/") else "") + near)
    if name.partition("/")[0] != "terms":
        return
    for path in [*terms.texts.glob("*.md"), *(here.parent / "include/relpos").iterdir(),
                 *(here.parent / "src/terms").iterdir()]:
        app.env.note_dependency(str(path))


# ---------------------------------------------------------------------------------------------- docstrings

def read_docstring(app, what, name, thing, options, lines):
    """Convert rows "name    meaning" of a docstring to a list, and escape characters that are markup in
    reStructuredText."""
    made, column = [], 0
    for line in (line for line in lines if not line.startswith("SPDX-")):
        if line.lstrip().startswith(">>>"):
            made.append(line)
            column = -1  # until the next empty line
            continue
        if not line.strip():
            column = 0
        if column >= 0 and not line.startswith("    >>>"):
            line = re.sub(r"(`[^`]*`)|([*|\\]|(?<=\w)_(?!\w))", lambda m: m[1] or "\\" + m[2], line)
            row = re.match(r"(\w+(?:, \w+)*) {2,}(\S.*)", line)
            if row and (column > 0 or not made or not made[-1].strip() or len(row[1]) < row.start(2) - 1):
                if column == 0 and made and made[-1].strip():
                    made.append("")
                column = row.start(2)
                made.append(f"``{row[1]}``")
                line = "    " + re.sub(r"^\((\w)\)", r"\(\1)", row[2])  # otherwise, "(B) or" would start a list
            elif column > 0 and line.startswith(" "):
                line = "    " + line.strip()
        made.append(line)
    lines[:] = made
    for n, line in enumerate(lines):
        if found := re.match(r"See (\w+) in docs/terms\.md\. Command-line syntax: (.*)\.$", line):
            lines[n] = f"See :doc:`/terms/{found[1]}`. Command-line syntax: ``{found[2].replace(chr(92), '')}``."
        else:
            lines[n] = re.sub(r"\bdocs/([\w-]+)\.md", r":doc:`/\1`", line)


def stand_in_for_torch():
    """Replace torch and transformers by stubs, with which relpos.torch and relpos.hf can be imported for their
    docstrings."""
    class Kind(type):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return Any()

    class Any(metaclass=Kind):
        def __init__(self, *args, **options):
            pass

        def __init_subclass__(cls, **options):
            pass

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return self

        def __call__(self, *args, **options):
            return args[0] if len(args) == 1 and callable(args[0]) and not options else self

        def __or__(self, other):
            return self
        __ror__ = __or__

        def __iter__(self):
            return iter(())

        def __bool__(self):  # torch.compiler.is_compiling() is False
            return False

    class Module(types.ModuleType):
        __version__ = "5.24"  # a version that relpos.torch and relpos.hf accept

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            if name in ("nn", "functional", "masking_utils"):
                return importlib.import_module(f"{self.__name__}.{name}")
            return Kind(name, (Any,), {}) if name[0].isupper() else Any()

    class Finder:
        def find_spec(self, name, path=None, target=None):
            found = name.partition(".")[0] in ("torch", "transformers") or name == "relpos._operator"
            return importlib.machinery.ModuleSpec(name, self, is_package=True) if found else None

        def create_module(self, spec):
            return Module(spec.name)

        def exec_module(self, module):
            pass

    sys.meta_path.insert(0, Finder())


def formula(page, node):
    """Render a formula as MathML, which browsers display without scripts."""
    is_block = isinstance(node, nodes.math_block)
    drawn = convert(node.astext(), display="block" if is_block else "inline")
    page.body.append(f'<div class="formula">{drawn}</div>' if is_block else drawn)
    raise nodes.SkipNode


def setup(app):
    stand_in_for_torch()
    app.add_html_math_renderer("mathml", inline_renderers=(formula, None), block_renderers=(formula, None))
    app.connect("source-read", read_source)
    app.connect("autodoc-process-docstring", read_docstring)
