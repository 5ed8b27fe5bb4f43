"""Evaluate the calculations that cells show. SPDX-License-Identifier: Apache-2.0"""

import math
import re

WORDS = re.compile(r"MLP|logf\[|\br\[|masked|gate|product")  # a calculation with one of these words cannot be evaluated


class Table:
    """Return a sample table whose entry c is the number c. With `first`, the axes are (entries, heads), otherwise
    (heads, entries)."""

    def __init__(self, first):
        self.first = first

    def __getitem__(self, at):
        return at[0 if self.first else 1]


def parts(text):
    """Return the calculation and the value in a text such as "query 4, key 0, offset −4: −0.3 · log(1 + 4) =
    −0.4828"."""
    calculation, equals, value = text.rpartition(" = ")
    value = (value if equals else text.rpartition(": ")[2]).replace("−", "-")
    return calculation.rpartition(": ")[2] if equals else "", value


def value_of(calculation, first=True):
    """Return the value of a calculation, or None if it does not consist of numbers."""
    if not calculation or WORDS.search(calculation):
        return None
    for mark, python in (("−", "-"), ("·", "*"), ("^", "**")):
        calculation = calculation.replace(mark, python)
    calculation = re.sub(r"bucket\([^)]*\) = ", "", calculation)
    return eval(calculation, {"__builtins__": {}}, {"log": math.log, "exp": math.exp, "cos": math.cos, "sin": math.sin,
                                                    "max": max, "min": min, "table": Table(first)})


def cells(page):
    """Return, for every cell that shows a calculation, its number and the text below the table while the cell has the
    focus."""
    return page.p.evaluate(
        """() => [...document.querySelectorAll('main .main > div details')].map(part => part.open = true) &&
            [...document.querySelectorAll('main div')].filter(box => box.children.length === 2 &&
            box.children[0].classList.contains('scroll')
            && box.children[1].classList.contains('readout')).flatMap(box => [...box.querySelectorAll('td')].map(cell =>
            {
                cell.focus();
                return [cell.textContent, box.children[1].textContent];
            }))"""
    )


def wrong_cells(found, bound, unit=""):
    """Return the number of cells whose calculation can be evaluated, and the cells in which the value after "=" differs
    from the number in the cell or from the evaluated calculation. `bound` is the rounding error of the numbers in a
    calculation."""
    computed, wrong = 0, []
    for cell, text in found:
        calculation, value = parts(text)
        mine = value_of(calculation)
        if mine is None:
            continue
        computed += 1
        number = float(value.replace(",", "").removesuffix(unit))
        digits = len(cell.partition(".")[2])
        shown = float(cell.replace("−", "-").replace(",", "")) if not unit else number
        if abs(mine - number) > bound * max(1, abs(number)) or abs(number - shown) > 0.51 * 10**-digits:
            wrong.append((cell, text, mine))
    return computed, wrong
