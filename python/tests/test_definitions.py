"""Compare every term with its definition, the lines "In NumPy" of docs/terms/NAME.md, for every sample in
docs/terms/facts.json: compare values, and compare gradients with finite differences of the definition. The tests find
the terms in that file.

SPDX-License-Identifier: Apache-2.0"""
import json
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
import relpos

TEXTS = Path(__file__).resolve().parents[2] / "docs/terms"
B, H, LQ, LK, D, DV = 2, 3, 9, 11, 8, 5
FACTS = {name: relpos._terms._BY_CLASS[cls] for name, cls in relpos.TERMS.items()}
CASES = [(name, sample, given) for name, facts in FACTS.items() for sample in facts["samples"]
         for given in ([False, True] if any(a["name"] == "k_positions" for a in facts["arrays"])
                       and "angles=" not in sample else [False])]


def lines_of(name):
    found = re.search(r"^\*\*In NumPy\.\*\*.*?\n\n((?:    .*\n|\n)+)",
                      (TEXTS / f"{name}.md").read_text(encoding="utf-8"), re.M)
    return compile(textwrap.dedent(found[1]), f"docs/terms/{name}.md", "exec")


def value(text):
    for kind in int, float:
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def chosen(text, names):
    """Return that of the two texts of a shape which the parameters choose, or the only one."""
    condition = re.match(r"(\w+)(?:=(\w+))? \? (.+) : (.+)", text)
    if not condition:
        return text
    key, choice, yes, no = condition.groups()
    return yes if (names[key] == choice if choice else names[key]) else no


def shape_of(text, names):
    """Evaluate a shape from facts.json for these lengths and parameters. Return None for "none"."""
    text = chosen(text, names)
    return None if text == "none" else tuple(max(eval(axis, {}, names), 0)
                                             for axis in text.strip("[]").replace("?",
                                                                                  "").replace("/", "//").split(","))


class Case:
    """Arrays, parameters and lengths for one sample of a term. With `tokens`, both lengths and the size of a grid equal
    `tokens`."""

    def __init__(self, name, sample, given, tokens=None):
        self.facts, rng = FACTS[name], np.random.default_rng(3)
        texts = dict(part.split("=", 1) for part in sample.split(",") if part)
        arrays = {a["name"] for a in self.facts["arrays"]}
        self.params = {p["key"]: p["default"]
                       for p in self.facts["parameters"]} | {k: x for k, x in texts.items() if k not in arrays}
        self.params = {key: value(x) if x is not None else None for key, x in self.params.items()}
        shapes = " ".join(a["shape"] for a in self.facts["arrays"])
        for key, x in self.params.items():  # if a size is omitted, the arrays determine it
            if x == 0 and self.unset(key) and re.search(rf"\b{key}\b(?! \?)", re.sub(rf"{key} \?[^:]*:", "", shapes)):
                self.params[key] = D if self.unset(key) == "Dk" else 4
        if tokens and self.params.get("grid"):
            self.params["grid"] = f"2x{tokens // 2}"
        names = dict(self.params)
        lq, lk = (tokens, tokens) if tokens else (LQ, LK)
        if names.get("grid"):
            names["grid_h"], names["grid_w"] = map(int, names["grid"].split("x"))
            lq = lk = names["grid_h"] * names["grid_w"] + names.get("extra", 0)
        if any("[B?, L]" in a["shape"] for a in self.facts["arrays"]):
            lk = lq
        names = dict(L=lq) | names | dict(B=B, H=H, Hk=H, Lq=lq, Lk=lk, Dk=D, Dv=DV)
        self.names, self.q_offset = names, 0 if names.get("grid") else 2
        self.q, self.k, self.v = (rng.normal(size=(B, H, n, d)) for n, d in ((lq, D), (lk, D), (lk, DV)))
        self.arrays = {}
        for a in self.facts["arrays"]:
            shape, two = shape_of(a["shape"], names), a["name"] in ("q_positions", "k_positions")
            wanted = given if two else a["presence"] != "replaces" or a["name"] in texts
            if not wanted or shape is None:
                continue
            draw = {"positions": lambda: np.sort(rng.uniform(0, 14, shape),
                                                 -1), "truth": lambda: rng.integers(0, 4, shape) > 0,
                    "index": lambda: rng.integers(0, names[a["draw"]["over"]], shape).astype(np.uint16)}
            self.arrays[a["name"]] = draw.get(a["use"], lambda: self.drawn(a["draw"], shape, rng))()

    def unset(self, key):
        return next(p for p in self.facts["parameters"] if p["key"] == key)["unset"]

    def drawn(self, rule, shape, rng):
        if rule["rule"] == "uniform":
            return rng.uniform(rule["a"], rule["b"], shape)
        normal = rng.normal(size=shape)
        return -rule["a"] * abs(normal) if rule["rule"] == "negative" else normal * 0.5

    def term(self):
        keys = {("lambda_" if k == "lambda" else k): x for k, x in self.params.items() if x is not None
                and not (x == 0 and self.unset(k))}
        return relpos.TERMS[self.facts["name"]](**self.arrays, **keys)

    def options(self):
        return {self.facts["keyword"]: self.term(), "q_offset": self.q_offset}

    def defined(self, lines):
        """Compute `out` from the definition."""
        n = self.names
        b, h, i, j = np.ogrid[:B, :H, :n["Lq"], :n["Lk"]]
        qp, kp = (self.positions(side, index, start) for side, index, start in (("q", i, self.q_offset), ("k", j, 0)))
        delta = kp - qp
        space = {name: getattr(np, name) for name in np.__all__
                 if name not in ("bool", "int", "float", "abs", "sum", "max", "min", "round")}
        space |= {a["name"]: None for a in self.facts["arrays"]}
        space |= dict(b=b, h=h, i=i, j=j, delta=delta, distance=abs(delta), qp=qp, kp=kp,
                      integer=lambda x: np.trunc(x).astype(int),
                      q=self.q, k=self.k, v=self.v, scale=D ** -0.5,
                      **{("lambda_" if x == "lambda" else x): y for x, y in n.items()})
        space |= self.arrays
        exec(lines, space)
        for mask, axis in (("q_position_mask", 3), ("k_position_mask", 2)):  # a pair without a position gets no bias
            name = self.facts["role"]
            if mask in self.arrays:
                known = np.expand_dims(self.arrays[mask], (1, axis))
                space[name] = space[name] * (known[..., None] if name == "value" else known)
        q, k = (space["q"], space["k"]) if self.facts["role"] == "rotation" else (self.q, self.k)
        score = D ** -0.5 * q @ k.swapaxes(-1, -2) + space.get("product", 0)
        if self.facts["role"] == "bias":
            score = score + space["bias"]
        least = score.max(-1, keepdims=True)
        w = np.exp(score - least)
        total = w.sum(-1, keepdims=True)
        if self.facts["role"] == "sink":
            total = total + np.exp(space["sink"][..., None] - least)
        values = self.v[:, :, None] + (space["value"] if self.facts["role"] == "value" else 0)
        return (w[..., None] * values).sum(-2) / total

    def positions(self, side, index, start):
        both = self.arrays.get("positions")
        given = self.arrays.get(f"{side}_positions", both)
        if given is None:
            return (index + start).astype(float)
        return given[:, None, :, None] if side == "q" else given[:, None, None, :]


@pytest.mark.parametrize("name, sample, given", CASES)
def test_value(name, sample, given):
    case = Case(name, sample, given)
    want = case.defined(lines_of(name))
    np.testing.assert_allclose(relpos.attention(case.q, case.k, case.v, **case.options()), want, atol=1e-11, rtol=1e-11)
    single = relpos.attention(*(x.astype(np.float32) for x in (case.q, case.k, case.v)), **case.options())
    np.testing.assert_allclose(single, want, atol=3e-5)


@pytest.mark.parametrize("name, sample, given", CASES)
def test_gradients(name, sample, given):
    """Compare the gradients of q, k, v and each learned array along one direction with finite differences of the
    definition."""
    case, lines = Case(name, sample, given), lines_of(name)
    rng = np.random.default_rng(8)
    dout = rng.normal(size=(B, H, case.names["Lq"], DV))
    found = relpos.attention_backward(dout, case.q, case.k, case.v, **case.options())
    learned = [a["name"] for a in case.facts["arrays"] if a["use"] == "learned" and a["name"] in case.arrays]
    assert set(found.terms[0]) == set(learned)

    def slope(owner, key, step=1e-6):
        kept, way = owner[key], rng.normal(size=owner[key].shape)
        sides = []
        for sign in (1, -1):
            owner[key] = kept + sign * step * way
            sides.append((case.defined(lines) * dout).sum())
        owner[key] = kept
        return (sides[0] - sides[1]) / (2 * step), way

    for key in ("q", "k", "v"):
        want, way = slope(vars(case), key)
        assert (getattr(found, key) * way).sum() == pytest.approx(want, rel=1e-6, abs=1e-6)
    for key in learned:
        want, way = slope(case.arrays, key)
        assert (found.terms[0][key] * way).sum() == pytest.approx(want, rel=1e-6, abs=1e-6)


def composed():
    """Return every term, and every pair of terms that can be combined. Two terms of the same keyword can be combined
    only if they are biases."""
    keyword = {name: facts["keyword"] for name, facts in FACTS.items()}
    names = sorted(FACTS)
    return [(), *((name,) for name in names), *((a, b) for n, a in enumerate(names) for b in names[n:]
                                                if keyword[a] != keyword[b] or keyword[a] == "bias")]


@pytest.mark.parametrize("options", [{}, {"softcap": 1.5, "causal": True}, {"softcap": 2.0, "softcap_after": True},
                                     {"softcap": 1.5, "softcap_after": 2.0}], ids=str)
def test_rows_of_explain_sum_up(options):
    """For every term and pair of terms, the parts sum to the score and to `out`, and the parts of a term equal its
    contribution to the score."""
    tried = 0
    for names in composed():
        cases, given = [Case(name, FACTS[name]["samples"][0], False, tokens=6) for name in names], {}
        for case in cases:
            keyword, term = case.facts["keyword"], case.term()
            given[keyword] = given[keyword] + term if keyword in given else term
        q, k, v = (np.random.default_rng(5).normal(size=(B, H, 6, d)) for d in (D, D, DV))
        row = relpos.explain(q, k, v, query=3, head=1, batch=1, **given, **options)
        summed = sum(np.where(np.isinf(x), -np.inf, x) for x in row.parts.values())
        np.testing.assert_allclose(summed, row.score, atol=1e-12, err_msg=str(names))
        np.testing.assert_allclose(sum(row.out_parts.values()), row.out, atol=1e-12, err_msg=str(names))
        content = D**-0.5 * k[1, 1] @ q[1, 1, 3]
        np.testing.assert_allclose(row.parts["content"], content, atol=1e-12)
        np.testing.assert_allclose(row.scaled, content + row.parts.get("rope", 0), atol=1e-12, err_msg=str(names))
        assert (row.sink is not None) == ("sink" in given) and str(row).count("\n") >= 7
        named = {name.split()[0].split(".")[0]
                 for name in (*row.parts, *row.out_parts)} | ({"sink"} if row.sink is not None else set())
        assert set(names) <= named, f"{names}: {named}"
        tried += 1
    assert tried > 200


def test_facts_are_those_of_the_page():
    """docs/terms/facts.json, which the documentation and the explorer read, matches this library."""
    assert json.loads((TEXTS / "facts.json").read_text(encoding="utf-8")) == list(FACTS.values())
