#!/usr/bin/env python3
"""Write the table of keys in docs/t5-reference.md from models/t5/keys.def and models/checkpoint/modules.def. Standard
library only.

    tools/t5_keys.py --write    replace the table between its marks
    tools/t5_keys.py --check    exit with 1 if the table is stale, or if a key has two rows

SPDX-License-Identifier: Apache-2.0"""
import json
import re
import sys
import typing
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
from made import between, check, fail, root, write  # noqa: E402

page = "docs/t5-reference.md"
TABLES = ("models/t5/keys.def", "models/checkpoint/modules.def")
FILES = {"CONFIG": "config.json", "GENERATION": "generation_config.json", "TOKENIZER": "tokenizer_config.json",
         "SPECIAL": "special_tokens_map.json",
         "MODULES": "modules.json", "POOLING": "config.json of Pooling", "DENSE": "config.json of Dense",
         "NORMALIZE": "config.json of Normalize",
         "TRANSFORMER": "sentence_bert_config.json", "SENTENCE": "config_sentence_transformers.json"}


class Row(typing.NamedTuple):
    use: str      # USED, SAME or ONLY
    file: str     # a key of FILES
    keys: list
    values: list  # ONLY: allowed values besides null
    text: str


def read_rows():
    """Return the rows of all tables."""
    source = re.sub(r"/\*.*?\*/", "", "\n".join((root / table).read_text() for table in TABLES), flags=re.S)
    string = r'"(?:[^"\\]|\\.)*"'
    rows = []
    for call in re.finditer(rf"(USED|SAME|ONLY)\((\w+), ((?:{string}|[\s,])+)\)", source):
        use, file, rest = call.groups()
        arguments = [""]
        for part in re.findall(rf"{string}|,", rest):
            if part == ",":
                arguments.append("")
            else:
                arguments[-1] += json.loads(part)
        if file not in FILES or len(arguments) != (3 if use == "ONLY" else 2):
            fail(f"{TABLES}: a row of {file} has {len(arguments)} texts")
        rows.append(Row(use, file, arguments[0].split(), [json.loads(v) for v in arguments[1].split()] if use == "ONLY"
                        else [], arguments[-1]))
        source = source.replace(call[0], "", 1)
    if source.strip():
        fail(f"{TABLES}: cannot read {source.split()[0]!r}")
    names = [(row.file, key) for row in rows for key in row.keys]
    for name in names:
        if names.count(name) > 1:
            fail(f"{TABLES}: {name[1]} has two rows for {name[0]}")
    return rows


def cell(row):
    if row.use == "USED":
        return row.text
    if row.use == "SAME":
        return f"no effect: {row.text}"
    values = " or ".join(f"`{json.dumps(v, allow_nan=False)}`" for v in row.values)
    return f"must be {values}, else {row.text}" if values else f"must be missing, else {row.text}"


def made_files():
    lines = []
    for file, name in FILES.items():
        lines += ["", f"**{name}**", "", "| keys | use |", "|---|---|"]
        lines += [f"| {' '.join(f'`{key}`' for key in row.keys)} | {cell(row)} |" for use in ("USED", "ONLY", "SAME")
                  for row in read_rows() if row.file == file and row.use == use]
    text = "\n".join(lines)
    return {page: between((root / page).read_text(), "<!-- tools/t5_keys.py writes this table. -->\n",
                          "\n<!-- The table ends here. -->", text.lstrip("\n"), page)}


if __name__ == "__main__":
    if sys.argv[1:] not in (["--write"], ["--check"]):
        sys.exit(__doc__)
    (write if sys.argv[1] == "--write" else lambda files: check(files, "tools/t5_keys.py --write"))(made_files())
