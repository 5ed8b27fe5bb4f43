"""Run the lines of tests/texts/rows.tsv that need only NumPy.  SPDX-License-Identifier: Apache-2.0"""
import pytest
import textrows

ROWS = textrows.rows("python")


@pytest.mark.parametrize("run, expected", [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_row(run, expected):
    textrows.check(run, expected, dict(textrows.NAMES))
