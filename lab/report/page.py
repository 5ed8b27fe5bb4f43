"""A page of headings, texts, tables and charts, as HTML or Markdown. Files are written completely or not at all.
SPDX-License-Identifier: Apache-2.0"""
import contextlib
import fcntl
import html
import io
import os
import re
import sys
import tempfile
import zlib
from urllib.parse import quote


def plain(text):
    """Escape text for Markdown."""
    return " ".join(re.sub(r"([\\`|]|\*(?=\S)|(?<=\S)\*|\](?=[(\[]))", r"\\\1",
                           re.sub(r"&(?=[#\w]+;)", "&amp;", str(text))).replace("<", "&lt;").split("\n"))


class Page:
    """A list of blocks that can be written as HTML or Markdown. With draw=False, a Markdown page names its pictures but
    has none. With numbered=True, tables that have a caption, and all pictures, get numbers."""

    def __init__(self, path, draw=True, numbered=False):
        self.path, self.draw, self.numbered, self.out, self.pictures = path, draw, numbered, [], {}
        self.tables = self.figures = 0
        self.html = path is not None and path.suffix == ".html"

    def heading(self, text, level=2):
        self.out.append(f"<h{level}>{html.escape(text)}</h{level}>" if self.html else f"{'#' * level} {plain(text)}\n")

    def note(self, text):
        self.out.append(f'<p class="note">{html.escape(text)}</p>' if self.html else f"> {plain(text)}\n")

    def text(self, text):
        self.out.append(f"<p>{html.escape(text)}</p>" if self.html else f"{plain(text)}\n")

    def item(self, text):
        """Add an item of a list. Items that follow each other make one list."""
        if self.html:
            self.out.append(f"<ul><li>{html.escape(text)}</li></ul>")
        elif self.out and self.out[-1].startswith("- "):
            self.out[-1] += f"- {plain(text)}\n"
        else:
            self.out.append(f"- {plain(text)}\n")

    def code(self, text):
        self.out.append(f"<pre>{html.escape(text)}</pre>" if self.html else "    " + text.replace("\n", "\n    ")
                        + "\n")

    def table(self, head, rows, caption=""):
        if caption and self.numbered:
            self.tables += 1
            caption = f"Table {self.tables}. {caption}"
        if caption:
            self.text(caption)
        if self.html:
            def line(cells, tag):
                return "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"
            self.out.append('<div class="wide"><table>' + line(head, "th") + "".join(line(r, "td") for r in rows)
                            + "</table></div>")
        else:
            self.out.append("\n".join("| " + " | ".join(plain(c) for c in r) + " |"
                                      for r in [head, ["---"] * len(head), *rows]) + "\n")

    def picture(self, make, alt, shows=""):
        """Add the figure that make(pyplot) returns; alt describes it in words, and the caption also says what it shows.
        Without a page, do nothing."""
        if self.path is None:
            return
        self.figures += 1
        name = f"{self.path.stem}-{self.figures}.svg"
        caption = (f"Figure {self.figures}. {alt[:1].upper()}{alt[1:]}." if self.numbered
                   else "") + f" {shows}" * bool(shows)
        if not self.html:
            self.pictures[self.path.with_name(name)] = ""
            self.out.append(f"![{plain(alt)}]({quote(name)})\n")
            if caption:
                self.text(caption)
        if not self.draw:
            return
        plt = pyplot()
        figure = make(plt)
        to = io.StringIO()
        figure.savefig(to, format="svg", metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)
        svg = to.getvalue()[to.getvalue().index("<svg"):]
        svg = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
        if self.html:
            self.out.append(f'<figure role="img" '
                            f'aria-label="{html.escape(alt)}">{svg}'
                            f'{caption and f"<figcaption>{html.escape(caption)}</figcaption>"}</figure>')
        else:
            self.pictures[self.path.with_name(name)] = svg

    def finish(self):
        if not self.html:
            return "\n".join(self.out)
        return f"""<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" \
content="width=device-width"><title>relpos lab</title>
<style>body{{font:16px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 \
1em;color:#222;background:#fff}}table{{border-collapse:collapse;font-size:13px}}
td,th{{border-bottom:1px solid #ddd;padding:.2em \
.6em;text-align:right}}td:first-child,th:first-child{{text-align:left}}figure{{margin:1em 0}}
svg{{max-width:100%;height:auto}}pre{{background:#f4f4f4;padding:.6em;overflow-x:auto;font-size:13px}}\
.wide{{overflow-x:auto}}.note{{border-left:4px solid #b35900;background:#fff4e5;padding:.6em 1em}}</style>
{chr(10).join(self.out)}</html>
"""


def remove_left(path, start):
    """Remove temporary files that killed programs left beside a path: files whose names begin with `start` and that are
    not locked."""
    for left in path.parent.glob(start + "*.tmp"):
        with contextlib.suppress(OSError):
            fd = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()


def write(files):
    """Write {path: text}. First write all texts to locked temporary files with random names, then rename these. So each
    file is complete, and if a text cannot be written, all old files remain."""
    new, mask = {}, os.umask(0)
    os.umask(mask)
    try:
        with contextlib.ExitStack() as open_files:
            for path, text in files.items():
                start = f".relpos-page-{zlib.crc32(os.fsencode(path.name)):08x}-"
                remove_left(path, start)
                fd, new[path] = tempfile.mkstemp(prefix=start, suffix=".tmp", dir=path.parent)
                to = open_files.enter_context(open(fd, "w", encoding="utf-8", errors="replace"))
                with contextlib.suppress(OSError):  # some file systems do not support locks
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.fchmod(fd, 0o666 & ~mask)
                to.write(text)
                to.flush()
                os.fsync(fd)
            for path in files:
                os.replace(new[path], path)
    except BaseException as e:
        for left in new.values():
            with contextlib.suppress(OSError):
                os.unlink(left)
        if not isinstance(e, OSError):
            raise
        sys.exit(f"relpos: {path}: cannot be written: {e.strerror} (free some space, or name another place)")


def put(text):
    try:
        with open(1, "w", encoding="utf-8", errors="replace", closefd=False) as to:
            to.write(text + "\n")
    except BrokenPipeError:  # the reader of the pipe has exited
        pass
    except OSError as e:
        sys.exit(f"relpos: standard output: {e.strerror} (free some space, or write elsewhere)")


def pyplot():
    try:
        import matplotlib
    except ImportError:
        sys.exit("relpos: lab report: charts need matplotlib (install Debian's python3-matplotlib, or print tables "
                 "without -o)")
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "relpos", "svg.fonttype": "none", "font.size": 9,
                                "axes.spines.top": False, "axes.spines.right": False})
    import matplotlib.pyplot as plt
    return plt
