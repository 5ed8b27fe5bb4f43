#!/usr/bin/env python3
"""Check that no function of C, JavaScript or Python has more than 70 lines. Its lines are those from its first to its
last, with the functions in it, but without the comment or docstring that documents it. Print each function that is
longer, and exit with 1. Standard library only.

    tools/function_lengths.py

SPDX-License-Identifier: Apache-2.0"""
import ast
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
MOST = 70
FOLDERS = ("include", "src", "models", "lab", "cli", "mpi", "tools", "bench", "examples", "docs", "web",
           "python/relpos")
# Folders in these whose functions may be longer, with the reason. The folders tests and python/tests are not searched.
MAY_BE_LONGER = {
    "src/reference": "the definitions that tests compare with: each is read from top to bottom, beside its formula",
    "web/tests": "tests",
}

# C. clang-format begins a function in column 0, and puts each of its outer braces on a line.
NO_CODE = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
C_FUNCTION = re.compile(r"^([A-Za-z_][^;{}]*\))[^;{}()]*\n\{\n.*?^\}", re.M | re.S)


def spaces(found):
    return re.sub(r"[^\n]", " ", found[0])


def name_in(head):
    """Return the name in the head of a C function: the word before its last brackets."""
    while (inner := re.sub(r"\([^()]*\)", "[]", head)) != head:
        head = inner
    return re.findall(r"(\w+)\s*\[\]", head)[-1]


def c(text):
    """Yield (name, first, last position) of each function of C, and of each macro."""
    code = NO_CODE.sub(spaces, text)
    for found in DIRECTIVE.finditer(code):
        if name := re.match(r"\s*#\s*define (\w+)", found[0]):
            yield name[1], found.start(), found.end()
    for found in C_FUNCTION.finditer(DIRECTIVE.sub(spaces, code)):
        yield name_in(found[1]), found.start(), found.end()


# JavaScript
TOKEN = re.compile(r"""\s+|/\*.*?\*/|//[^\n]*|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
                   r"""|(?P<code>[\w$#]+|=>|.)""", re.S)
TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^\\`$])*(?P<end>`|\$\{)", re.S)  # a template literal up to ${ or its end
PATTERN = re.compile(r"/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")  # a regular expression
BEFORE_PATTERN = re.compile(r"(?:return|typeof|case|of|in|else|yield|await|throw|new|delete|void|[^\w$\")\]}])$")
BRACKETS = {"(": ")", "[": "]", "{": "}", "${": "}"}
CONTROL = {"if", "for", "while", "switch", "catch", "with", "await"}  # for await (...) {


def tokens_of(text):
    """Return the tokens of JavaScript without comments as [(token, position)]. A string, a part of a template literal
    and a regular expression are the token '"'."""
    found, open_, at = [], [], 0
    while at < len(text):
        last = found[-1][0] if found else "("
        if text[at] == "`" or text[at] == "}" and open_[-1:] == ["${"]:
            if text[at] == "}":
                found.append(("}", at))
                open_.pop()
            part = TEMPLATE.match(text, at + 1)
            found.append(('"', at))
            if part["end"] == "${":
                found.append(("${", part.end() - 2))
                open_.append("${")
        elif text[at] == "/" and BEFORE_PATTERN.match(last) and (part := PATTERN.match(text, at)):
            found.append(('"', at))
        else:
            part = TOKEN.match(text, at)
            if part.lastgroup:
                found.append((part[0] if part.lastgroup == "code" else '"', at))
            if part[0] in ("(", "[", "{"):
                open_.append(part[0])
            elif part[0] in (")", "]", "}"):
                del open_[-1:]
        at = part.end()
    return found


def partners(tokens):
    """Return the index of the other bracket, for the index of each bracket."""
    other, open_ = {}, []
    for n, (token, _) in enumerate(tokens):
        if token in BRACKETS:
            open_.append(n)
        elif token in BRACKETS.values():
            if not open_ or BRACKETS[tokens[open_[-1]][0]] != token:
                raise ValueError("brackets that do not match")
            start = open_.pop()
            other[start], other[n] = n, start
    return other


def javascript(text):
    """Yield (name, first, last position) of each function of JavaScript."""
    tokens = tokens_of(text)
    other = partners(tokens)

    def is_word(n):
        return n >= 0 and re.match(r"[\w$#]", tokens[n][0])

    def begin(n):
        """Return the name of a function whose parameters begin with token n, and the token where the function
        begins."""
        while tokens[n - 1][0] in ("async", "*", "function"):
            n -= 1
        return (tokens[n - 2][0], n - 2) if tokens[n - 1][0] in "=:" and is_word(n - 2) else ("a function", n)

    def end(n):
        """Return the last token of an expression that begins with token n, up to a comma."""
        while n < len(tokens) and tokens[n][0] not in (",", ";", ")", "]", "}"):
            n = other.get(n, n) + 1
        return n - 1

    for n, (token, _) in enumerate(tokens):
        before = tokens[n - 1][0]
        if token == "=>":
            name, first = begin(other.get(n - 1, n - 1))
            last = other[n + 1] if tokens[n + 1][0] == "{" else end(n + 1)
        elif token == "{" and before == ")" and tokens[other[n - 1] - 1][0] not in CONTROL:
            at, last = other[n - 1], other[n]
            name, first = begin(at) if tokens[at - 1][0] in ("function", "*") else (tokens[at - 1][0], at - 1)
        else:
            continue
        yield name, tokens[first][1], tokens[last][1]


def python(text):
    """Yield (name, first line, number of lines) of each function of Python."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            said = node.body[0] if ast.get_docstring(node) is not None else None
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1 - (
                said.end_lineno - said.lineno + 1 if said else 0)


def lengths(path):
    """Yield (name, first line, number of lines) of each function of a file."""
    text = path.read_text()
    if path.suffix == ".py":
        yield from python(text)
        return
    for name, first, last in (c if path.suffix in (".c", ".h") else javascript)(text):
        yield name, text.count("\n", 0, first) + 1, text.count("\n", first, last) + 1


def main():
    wrong = n = 0
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*")
                       if path.suffix in (".c", ".h", ".js", ".mjs", ".py")):
        here = path.relative_to(root).as_posix()
        if any(here.startswith(folder + "/") for folder in MAY_BE_LONGER):
            continue
        try:
            found = list(lengths(path))
        except (SyntaxError, ValueError) as error:
            sys.exit(f"{here}: {error}")
        n += len(found)
        for name, line, lines in found:
            if lines > MOST:
                print(f"{here}:{line}: {name} has {lines} lines; at most {MOST}")
                wrong += 1
    print(f"{n} functions, {wrong} too long")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
