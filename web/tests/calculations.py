"""The calculations that cells show, computed. SPDX-License-Identifier: Apache-2.0"""

import math
import re

WORDS = re.compile(r"MLP|logf\[|\br\[|masked|gate|product")  # of calculations that are not numbers alone


class Table:
    """A table that nobody gave: entry c is the number c. `first`: its first axis has the entries, its second one the heads."""

    def __init__(self, first):
        self.first = first

    def __getitem__(self, at):
        return at[0 if self.first else 1]


def parts(text):
    """What is computed, and its value, of "query 4, key 0, offset −4: −0.3 · log(1 + 4) = −0.4828"."""
    calculation, equals, value = text.rpartition(" = ")
    value = (value if equals else text.rpartition(": ")[2]).replace("−", "-")
    return calculation.rpartition(": ")[2] if equals else "", value


def value_of(calculation, first=True):
    """Its value, or None where it does not consist of numbers."""
    if not calculation or WORDS.search(calculation):
        return None
    for mark, python in (("−", "-"), ("·", "*"), ("^", "**")):
        calculation = calculation.replace(mark, python)
    calculation = re.sub(r"bucket\([^)]*\) = ", "", calculation)
    return eval(calculation, {"__builtins__": {}}, {"log": math.log, "exp": math.exp, "table": Table(first)})
