"""Run the code of docs/recipes.md, which compares each recipe with its formula.

SPDX-License-Identifier: Apache-2.0"""
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs/recipes.md").read_text(encoding="utf-8")
SECTIONS = [(part.partition("\n")[0], re.findall(r"^```python\n(.*?)^```$", part, re.M | re.S))
            for part in TEXT.split("\n## ")]
SECTIONS = [(title, blocks) for title, blocks in SECTIONS if blocks]


def test_every_recipe_compares():
    assert len(SECTIONS) == 12
    assert all("same(" in "".join(blocks) for _, blocks in SECTIONS)


@pytest.mark.parametrize("title, blocks", SECTIONS[1:], ids=lambda x: x if isinstance(x, str) else "")
def test_recipe(title, blocks):
    space = {}
    for block in (*SECTIONS[0][1], *blocks):
        exec(block, space)
