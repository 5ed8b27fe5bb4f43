"""Fill a text with the numbers and words of a page. The text has blocks that begin with a line @NAME; lines before the
first are comments. Each block is filled with the dictionary that a function of this name returns, and is left out if
that is None.

A block has headings (#), paragraphs, items (-), code (indented by four columns) and tables, with empty lines between
them. A table is a caption that begins with "Table: ", then rows that begin with "|" or are a list of rows {NAME}; lines
that continue a row are indented. In all of them:

    {NAME}, {NAME:FORMAT}   the value with this name; the items of a list are joined as in "a, b and c"
    [NAME?TEXT]             TEXT if the value is neither empty nor 0 nor None
    [!NAME?TEXT]            TEXT if it is
    [NAME&TEXT]             TEXT for each dictionary of a list, joined as in "a, b and c"; that dictionary adds names
    [NAME;TEXT]             the same, joined by semicolons
    [NAME+TEXT]             the same, joined by nothing
    [NAME*TEXT]             the same for paragraphs, items, tables, rows and cells; TEXT can contain several of them

A dictionary or a value that is true is like a list with one item. A paragraph that is one name of a function is what
the function adds to the page. A line break is a space, but nothing between ] and [, and before [ if TEXT begins with a
space.
SPDX-License-Identifier: Apache-2.0"""
import re

PLACE = re.compile(r"\{(\w+)(?::([^}]*))?\}|\[(!?)(\w+)([?&;+])|\]")
REPEATED = re.compile(r"\[(\w+)\*(.*)\]", re.DOTALL)


def joined(words):
    words = list(words)
    return ", ".join(words) if len(words) < 2 else ", ".join(words[:-1]) + " and " + words[-1]


JOINED = {"?": "".join, "+": "".join, ";": "; ".join, "&": joined}


def blocks(text):
    """Return {name: text of the block}."""
    names, texts = re.findall(r"^@(\w+)$", text, re.MULTILINE), re.split(r"^@\w+$", text, flags=re.MULTILINE)[1:]
    return dict(zip(names, texts, strict=True))


def split(text, separator):
    """Split a text at the matches of a regular expression outside brackets."""
    found, start = [], 0
    for match in re.finditer(separator, text):
        before = text[:match.start()]
        if before.count("[") == before.count("]"):
            found.append(text[start:match.start()])
            start = match.end()
    return [*found, text[start:]]


def each(data, name):
    """Return the data for each repetition of a text."""
    value = data[name]
    many = value if isinstance(value, list) else [value] if value else []
    return [{**data, **one} if isinstance(one, dict) else data for one in many]


def repeated(text, data):
    """Return [(text, data)] for each repetition, or only the text and its data if it is not repeated."""
    found = REPEATED.fullmatch(text)
    return [(found[2], one) for one in each(data, found[1])] if found else [(text, data)]


def fill(text, data):
    """Return a text with its values."""
    text = re.sub(r"\n\s*(?=\[!?\w+[?&;+] )|(?<=\])\n\s*(?=\[)", "", text)
    return filled(re.sub(r"\n\s*", " ", text), 0, data)[0]


def filled(text, start, data):
    """Return the text from an index to the next ] or the end, with its values, and the index behind it. Without data,
    the text has no values."""
    out = []
    while found := PLACE.search(text, start):
        out.append(text[start:found.start()])
        start = found.end()
        name, form, negated, condition, kind = found.groups()
        if name and data is not None:
            value = data[name]
            out.append(joined(value) if isinstance(value, list) else format(value, form or ""))
        elif condition:
            chosen = [] if data is None else [data] * (not data[condition]) if negated else each(data, condition)
            if kind == "?":
                chosen = chosen[:1]
            out.append(JOINED[kind]([filled(text, start, one)[0] for one in chosen]))
            start = filled(text, start, None)[1]
        elif found[0] == "]":
            return "".join(out), start
    return "".join(out) + text[start:], len(text)


def rows(text, data):
    """Return the rows of a table, each as a list of cells."""
    found = []
    for row in split(text.strip(), r"\n(?=[|\[{])"):
        if row.startswith("{"):
            found += data[row[1:-1]]
        elif row.startswith("["):
            found += [cells for inner, one in repeated(row, data) for cells in rows(inner, one)]
        else:
            found.append([fill(inner, one) for cell in split(row.strip()[1:-1], r"\|")
                          for inner, one in repeated(cell.strip(), data)])
    return found


def add(page, text, data):
    """Add the paragraphs of a text to a page."""
    for part in split(text.strip("\n"), r"\n\n+"):
        name = part[1:-1]
        if REPEATED.fullmatch(part):
            for inner, one in repeated(part, data):
                add(page, inner, one)
        elif part == f"{{{name}}}" and callable(data[name]):
            data[name](page)
        elif part.startswith("    "):
            page.code(part[4:].replace("\n    ", "\n"))
        elif part.startswith("#"):
            marks, _, words = part.partition(" ")
            page.heading(fill(words, data), len(marks))
        elif part.startswith("- "):
            page.item(fill(part[2:], data))
        elif part.startswith("Table: "):
            caption, *table = split(part.removeprefix("Table: "), r"\n(?=[|\[{])")
            head, *body = rows("\n".join(table), data)
            page.table(head, body, fill(caption, data))
        else:
            page.text(fill(part, data))
