"""Test plans, explain, bucket, the configuration, the documentation and the types.
SPDX-License-Identifier: Apache-2.0"""
import ast
import copy
import doctest
import importlib.util
import inspect
import os
import pickle
import re
import subprocess
import sys

import numpy as np
import oracle
import pytest
import relpos

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
rng = np.random.default_rng(2)
q, k, v = (rng.standard_normal((2, 4, 20, 8)).astype(np.float32) for _ in range(3))
table = rng.standard_normal((32, 4)).astype(np.float32)


def test_decoding_has_the_bits_of_the_whole():
    options = dict(bias=relpos.T5(table, bidirectional=False), rope=relpos.RoPE(), causal=True)
    whole = relpos.attention(q, k, v, **options, return_lse=True)
    plan = relpos.Plan(2, 4, 1, 20, 8, **options)
    for n in range(20):
        step = plan(q[:, :, n:n + 1], k[:, :, :n + 1], v[:, :, :n + 1], q_offset=n, return_lse=True)
        np.testing.assert_array_equal(step.out, whole.out[:, :, n:n + 1])
        np.testing.assert_array_equal(step.lse, whole.lse[:, :, n:n + 1])


def test_a_plan_takes_other_masks_and_offsets():
    keys = rng.integers(0, 2, (2, 20))
    plan = relpos.Plan(2, 4, 20, 20, 8, key_mask=keys, causal=True, threads=1)
    np.testing.assert_array_equal(plan(q, k, v), relpos.attention(q, k, v, key_mask=keys, causal=True))
    other, at = 1 - keys, np.array([3, 1])
    out = np.empty_like(q)
    got = plan(q, k, v, key_mask=other, q_offset=at, out=out, summary=True)
    want = relpos.attention(q, k, v, key_mask=other, q_offset=at, causal=True, summary=True)
    assert got.out is out
    np.testing.assert_array_equal(out, want.out)
    np.testing.assert_array_equal(got.summary.key_mass, want.summary.key_mass)
    np.testing.assert_array_equal(plan(q, k, v), relpos.attention(q, k, v, key_mask=keys, causal=True))


def test_a_plan_makes_what_its_calls_share():
    own = table.copy()
    plan = relpos.Plan(2, 4, 20, 20, 8, bias=relpos.T5(own))
    own[:] = 0  # the plan does not see later changes
    np.testing.assert_array_equal(plan(q, k, v), relpos.attention(q, k, v, bias=relpos.T5(table)))


def test_a_plan_keeps_its_arrays():
    plan = relpos.Plan(2, 4, 20, 20, 8, bias=relpos.T5(table.copy()), dtype=np.float32)
    np.testing.assert_array_equal(plan(q, k, v), relpos.attention(q, k, v, bias=relpos.T5(table)))


def test_copies_of_plans():
    for options in (dict(bias=relpos.T5(table), causal=True),
                    dict(key_mask=np.arange(20) % 3 > 0, window=(4, 2), kv_heads=4)):
        plan = relpos.Plan(2, 4, 20, 20, 8, **options)
        for other in (copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
            assert other is not plan and repr(other) == repr(plan)
            np.testing.assert_array_equal(other(q, k, v), plan(q, k, v))
    assert repr(plan) == "relpos.Plan(2, 4, 20, 20, 8, kv_heads=4, key_mask=bool[20], window=(4, 2))"
    assert repr(relpos.Plan(1, 2, 3, 4, 5, dtype=np.float64)) == "relpos.Plan(1, 2, 3, 4, 5, dtype='float64')"


def test_explain():
    e = relpos.explain(q, k, v, query=5, head=2, batch=1, bias=relpos.T5(table), causal=True, scale=0.5)
    r = oracle.offsets(20, 20)
    out, weights, lse = oracle.attention(q, k, v, bias=table[oracle.bucket(r)].transpose(2, 0, 1), keep=r <= 0,
                                         scale=0.5)
    raw = q[1, 2, 5].astype(float) @ k[1, 2].T.astype(float)
    np.testing.assert_allclose(e.raw, raw)
    np.testing.assert_allclose(e.scaled, raw / 2)
    np.testing.assert_allclose(e.bias, table[oracle.bucket(r[5]), 2])
    np.testing.assert_allclose(e.score[:6], (raw / 2 + e.bias)[:6])
    assert (e.score[6:] == -np.inf).all()
    np.testing.assert_allclose(e.weights, weights[1, 2, 5], atol=1e-12)
    np.testing.assert_allclose(e.out, out[1, 2, 5], atol=1e-12)
    assert e.lse == pytest.approx(lse[1, 2, 5])
    assert len(repr(e).splitlines()) == 22
    many = np.ones((1, 1, 100, 4), np.float32)
    many[..., 70, :] = 2
    text = repr(relpos.explain(many, many, many)).splitlines()
    assert len(text) == 43 and text[-3].startswith("   70") and text[-2] == "60 keys with smaller weights are not shown"
    last = relpos.explain(q[0], k[0], v[0])
    np.testing.assert_allclose(last.raw, q[0, 0, -1].astype(float) @ k[0, 0].T)


def test_bucket():
    r = np.arange(-300, 301)
    for options in [{}, dict(buckets=16, max_distance=50), dict(bidirectional=False)]:
        np.testing.assert_array_equal(relpos.bucket(r, **options), oracle.bucket(r, **options))
    assert relpos.bucket(-5) == 5 and relpos.bucket(np.array([[3]])).shape == (1, 1)
    uniform = relpos.bucket([-4, -1], strategy="uniform", buckets=8, max_distance=16, bidirectional=False)
    np.testing.assert_array_equal(uniform, [2, 0])


def test_show_config():
    config = relpos.show_config()
    assert config["version"] == relpos.__version__ and config["isa"] in config["isas"] + ["reference"]
    assert config["threads"] >= 1 and config["compiler"]


def test_signatures():
    assert str(inspect.signature(relpos.T5)) == ("(table, *, buckets=32, max_distance=128, bidirectional=1, "
                                                 "q_positions=None, "
                                                 "k_positions=None)")
    assert str(inspect.signature(relpos.Table)) == "(table, *, left, right, q_positions=None, k_positions=None)"
    assert str(inspect.signature(relpos.LogDecay)) == "(lambda_=0.3, *, q_positions=None, k_positions=None)"


def public():
    found = {"relpos": relpos}
    for name in relpos.__all__:
        thing = getattr(relpos, name)
        found[name] = thing
        if inspect.isclass(thing):
            found |= {f"{name}.{m}": x for m, x in vars(thing).items() if not m.startswith("_")
                      and hasattr(x, "__doc__")}
    return found


def test_all_is_complete():
    assert {c.__name__ for c in relpos.TERMS.values()} < set(relpos.__all__)
    assert all(hasattr(relpos, name) for name in relpos.__all__)


@pytest.mark.parametrize("name", public())
def test_documentation(name):
    """Every public name has a docstring whose examples run."""
    thing = public()[name]
    if name == "TERMS" or inspect.isdatadescriptor(thing) and not isinstance(thing, property):
        return
    assert thing.__doc__, name
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(thing), {}, name, None, None)
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test).failed == 0


@pytest.mark.parametrize("cls", relpos.TERMS.values(), ids=relpos.TERMS)
def test_what_the_documentation_of_a_term_says(cls):
    """A docstring has the formula, arrays with shapes, parameters with meaning and default, and a call that runs."""
    info = relpos._terms._BY_CLASS[cls]
    said = inspect.getdoc(cls)
    assert f"Formula: `{info['formula']}`\n" in said and ">>> relpos.attention(q, k, v, " in said
    for array in info["arrays"]:
        use = re.search(rf"^{array['name']}  +\S.*: (.*)", said, re.M).group(1)
        replaced = {"q_positions": "replaces i + q_offset", "k_positions": "replaces j",
                    "positions": "replaces i + q_offset and j"}.get(array["name"])
        assert ("replaces" not in use if replaced is None else use == f"{replaced}; optional"), array["name"]
    for parameter in info["parameters"]:
        name = relpos._terms._KEYWORDS.get(parameter["key"], parameter["key"])
        assert re.search(rf"^{name}  .*(required|default .*)$", said, re.M), name


def test_readme():
    """The Python blocks of the README run."""
    blocks = open(os.path.join(ROOT, "README.md"), encoding="utf-8").read().split("```python\n")[1:]
    assert blocks
    for block in blocks:
        exec(block.partition("```")[0], {})


def test_examples_of_the_texts_run_alone():
    """Each block runs without the others."""
    runner, n = doctest.DocTestRunner(), 0
    for name in ("s0", "s1", "s2", "s3", "s4"):
        page = open(os.path.join(ROOT, "docs", "texts", f"{name}.md"), encoding="utf-8").read()
        for n, block in enumerate(re.findall(r"^```{doctest}\n(.*?)^```", page, re.M | re.S), n + 1):
            runner.run(doctest.DocTestParser().get_doctest(block, {}, f"block {n} of the texts, in {name}.md", None, 0))
    assert n >= 18
    assert runner.failures == 0


def test_stubs_of_terms_are_what_is_there():
    spec = importlib.util.spec_from_file_location("stubs", os.path.join(ROOT, "tools", "python_stubs.py"))
    stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stubs)
    path = os.path.join(os.path.dirname(relpos.__file__), "_terms.pyi")
    assert open(path, encoding="utf-8").read() == stubs.text(), "tools/terms.py --write makes it again"


def test_stubs_list_the_choices():
    """A type checker rejects RoPE(layout="foo")."""
    tree = ast.parse(open(os.path.join(os.path.dirname(relpos.__file__), "_terms.pyi"), encoding="utf-8").read())
    classes = {x.name: x for x in tree.body if isinstance(x, ast.ClassDef)}
    found = 0
    for cls in relpos.TERMS.values():
        arguments = classes[cls.__name__].body[0].args
        said = {a.arg: ast.unparse(a.annotation) for a in arguments.args + arguments.kwonlyargs if a.annotation}
        for p in relpos._terms._BY_CLASS[cls]["parameters"]:
            if "choices" in p:
                assert said[p["key"]] == f"Literal[{', '.join(map(repr, p['choices']))}]"
                found += 1
    assert found == 4  # strategy of Bucket, layout and scaling of RoPE, kind of Kerple


def test_dir_shows_what_is_public():
    code = "import relpos; print(*dir(relpos)); import relpos.numpy; print('numpy' in dir(relpos))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    names, later = done.stdout.splitlines()
    lazy = {"t5", "encoder", "Encoder"}
    assert set(names.split()) == {*relpos.__all__, *lazy, "__doc__", "__version__"} and later == "True"


def test_stubs_name_what_is_there():
    path = os.path.join(os.path.dirname(relpos.__file__), "__init__.pyi")
    tree = ast.parse(open(path, encoding="utf-8").read())
    options = next([line.target.id for line in x.body] for x in tree.body if isinstance(x, ast.ClassDef)
                   and x.name == "Options")
    names = {"Term", "Sum", "TERMS"} | {c.__name__ for c in relpos.TERMS.values()}  # from ._terms import *
    for thing in tree.body:
        if isinstance(thing, ast.ClassDef) and thing.name != "Options":
            names.add(thing.name)
            if thing.name in ("Cache", "ByOffset"):
                one = getattr(relpos, thing.name)
                assert all(hasattr(one, getattr(x, "name", None) or x.target.id) for x in thing.body)
            elif thing.name != "Plan":
                assert [line.target.id for line in thing.body] == list(getattr(relpos, thing.name)._fields)
        if isinstance(thing, ast.FunctionDef):
            names.add(thing.name)
            said = [a.arg for a in thing.args.args + thing.args.kwonlyargs]
            if thing.name == "attention":
                said += options
            there = [p.name for p in inspect.signature(getattr(relpos, thing.name)).parameters.values()
                     if p.kind != p.VAR_KEYWORD]
            assert sorted(said) == sorted(there), thing.name
    assert names == set(relpos.__all__)


def test_nothing_heavy_is_imported():
    code = ("import sys, relpos; print([m for m in ('torch', 'matplotlib', 'ml_dtypes', 'transformers') if m in "
            "sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_command_says_what_is_missing(tmp_path):
    """The command `relpos` runs the program of the package. If the program was not built, it reports the missing system
    packages."""
    package = tmp_path / "relpos"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('imported')")  # the command does not import the package
    main = os.path.join(os.path.dirname(relpos.__file__), "__main__.py")
    command = f"import runpy; runpy.run_path({main!r}, run_name='__main__')"

    def run():
        return subprocess.run([sys.executable, "-c", "import sys; sys.argv[1:] = ['bucket', '5']; " + command],
                              capture_output=True, text=True,
                              cwd=tmp_path)
    done = run()
    assert done.returncode == 1 and "libjansson-dev" in done.stderr and done.stderr.count("\n") == 1
    # it names no package index, because none has relpos
    assert "rebuild the package by pip install . in the source folder" in done.stderr
    program = package / "bin" / "relpos"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho \"$@\" \"$RELPOS_PYTHON\"\n")
    program.chmod(0o755)
    assert run().stdout == f"bucket 5 {sys.executable}\n"
