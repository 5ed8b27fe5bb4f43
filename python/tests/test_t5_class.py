"""Test relpos.t5.T5 on the tiny checkpoints of tests/t5/data: compare tokens and numbers with transformers, compare
results bit for bit with the program, and test errors.  SPDX-License-Identifier: Apache-2.0"""
import ast
import inspect
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import relpos

try:
    import relpos.t5
except ImportError as why:  # built with RELPOS_BUILD_CLI=OFF
    pytest.skip(str(why), allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/t5/data"
NAMES = ["t5", "v11", "mt5", "umt5", "byt5", "longt5_local", "longt5_global", "switch", "f16", "silu"]
KINDS = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64}
# the searches in tests/t5/make_models.py
STEPS = 10
SEARCHES = [
    {"num_beams": 4, "num_return_sequences": 2},
    {"num_beams": 3, "num_return_sequences": 3, "early_stopping": True, "length_penalty": 2.0},
    {"num_beams": 2, "early_stopping": "never", "length_penalty": -0.5, "min_new_tokens": 3},
    {"num_beams": 5, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "length_penalty": 0.8},
]


def arrays(name):
    """Load expected.safetensors of a model."""
    data = (DATA / name / "expected.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    table = json.loads(data[8:8 + size])
    return {key: np.frombuffer(data[8 + size + one["data_offsets"][0]:8 + size + one["data_offsets"][1]],
                               KINDS[one["dtype"]])
            .reshape(one["shape"]) for key, one in table.items() if key != "__metadata__"}


def rows(array):
    return [[int(t) for t in row if t >= 0] for row in array]


@pytest.fixture(params=NAMES)
def model(request):
    with relpos.t5.T5(DATA / request.param, type="f32", threads=2) as m:
        m.__dict__["expected"] = arrays(request.param)
        m.__dict__["folder"] = DATA / request.param
        yield m


@pytest.fixture
def byt5():
    with relpos.t5.T5(str(DATA / "byt5"), type="f32") as m:
        yield m


def program(*arguments, lines=""):
    return subprocess.run([sys.executable, "-P", "-m", "relpos", "t5", *map(str, arguments)], input=lines,
                          capture_output=True, text=True,
                          check=True).stdout


def test_greedy_tokens_are_those_of_transformers(model):
    sources, want = rows(model.expected["sources"]), rows(model.expected["targets"])
    got = model.generate(tokens=sources, max_new_tokens=STEPS, num_beams=1)
    assert [one.tolist() for one in got] == want
    assert model.generate(tokens=sources[1], max_new_tokens=STEPS).tolist() == want[1]


@pytest.mark.parametrize("n", range(len(SEARCHES)))
def test_beams_are_those_of_transformers(model, n):
    want = model.expected[f"beams.{n}"]
    got, scores = model.generate(tokens=rows(model.expected["sources"]), max_new_tokens=STEPS, return_scores=True,
                                 **SEARCHES[n])
    got = got if want.shape[1] > 1 else [[one] for one in got]
    assert [[one.tolist() for one in each] for each in got] == [rows(each) for each in want]
    np.testing.assert_allclose(scores.reshape(want.shape[:2]), model.expected[f"beam_scores.{n}"], rtol=1e-4)


def test_hidden_states_are_those_of_transformers(model):
    got = np.concatenate(model.encode(tokens=rows(model.expected["sources"])))
    error, bound = np.abs(got - model.expected["hidden"]).max(), 8 * model.expected["hidden_error"][0]
    print(f"{model.folder.name}: error {error:.3g}, bound {bound:.3g}")
    assert error <= bound


def test_the_program_writes_the_same(model):
    sources = rows(model.expected["sources"])
    lines = "".join(" ".join(map(str, row)) + "\n" for row in sources)
    settings = dict(num_beams=4, num_return_sequences=2, length_penalty=0.7, max_new_tokens=10, no_repeat_ngram_size=2,
                    repetition_penalty=1.3,
                    early_stopping=True)
    out = program("generate", model.folder, "--tokens", "--type", "f32", "--beams", 4, "--return", 2,
                  "--length-penalty", 0.7,
                  "--max-new-tokens", 10, "--no-repeat-ngram", 2, "--repetition-penalty", 1.3, "--early-stopping",
                  "true", "--scores", lines=lines)
    got, scores = model.generate(tokens=sources, return_scores=True, **settings)
    assert out.splitlines() == [f"{s:.6f}\t{' '.join(map(str, t))}" for two, pair in zip(got, scores)
                                for t, s in zip(two, pair)]
    assert scores.shape == (len(sources), 2)
    out = program("generate", model.folder, "--tokens", "--type", "f32", "--sample", "--seed", 7, "--max-new-tokens", 8,
                  "--batch", 2, lines=lines)
    got = model.generate(tokens=sources, do_sample=True, seed=7, max_new_tokens=8)
    assert [list(map(int, line.split())) for line in out.splitlines()] == [one.tolist() for one in got]


def test_vectors_of_the_program(byt5, tmp_path):
    texts = ["one line", "é", "a third one, longer than the others"]
    (tmp_path / "lines").write_text("\n".join(texts) + "\n")
    for pool in ("mean", "first", "last"):
        program("encode", DATA / "byt5", tmp_path / "lines", "--type", "f32", "-o", tmp_path / "v.npz", "--pool", pool,
                "--normalize")
        np.testing.assert_array_equal(byt5.encode(texts, pool=pool, normalize=True),
                                      np.load(tmp_path / "v.npz")["vectors"])
    program("encode", DATA / "byt5", tmp_path / "lines", "--type", "f32", "-o", tmp_path / "h.npz", "--pad-to", 12,
            "--attend-padding")
    np.testing.assert_array_equal(byt5.encode(texts, pad_to=12, attend_padding=True),
                                  np.load(tmp_path / "h.npz")["hidden"])
    cut = byt5.encode(texts, pad_to=5)
    assert cut.shape == (3, 5, byt5.d_model) and not cut[1, 3:].any()
    np.testing.assert_array_equal(cut[1, :3], byt5.encode("é"))


def test_a_score_is_that_of_the_target_written(model):
    sources = rows(model.expected["sources"])
    targets, scores = model.generate(tokens=sources, num_beams=1, max_new_tokens=9, return_scores=True)
    got = model.score(source_tokens=sources, target_tokens=targets)
    np.testing.assert_array_equal(got, scores)
    each = model.score(source_tokens=sources, target_tokens=targets, each=True)
    assert [len(one) for one in each] == [len(one) for one in targets]
    np.testing.assert_allclose([one.sum() for one in each], got, rtol=1e-12)


def test_a_stream_joined_is_the_text(byt5):
    for settings in ({}, {"num_beams": 3}, {"do_sample": True, "seed": 5}, {"begin": "Zü"}, {"stop_strings": "E"}):
        whole = byt5.generate("hello", max_new_tokens=40, **settings)
        pieces = list(byt5.stream("hello", max_new_tokens=40, **settings))
        assert "".join(pieces) == whole and all(pieces)
        assert list(byt5.stream(tokens=[5, 6, 1], max_new_tokens=9)) == byt5.generate(tokens=[5, 6, 1],
                                                                                      max_new_tokens=9).tolist()
    assert byt5.generate("hello", max_new_tokens=40, begin="Zü").startswith("Zü")
    assert byt5.generate("hello", max_new_tokens=40, stop_strings=["E"]).count("E") == 1


def test_a_stream_dropped_ends_its_thread(byt5):
    stream = byt5.stream("hello", max_new_tokens=4000, min_new_tokens=4000)
    next(stream)
    assert any(t.name == "relpos.t5" for t in threading.enumerate())
    stream.close()
    assert not any(t.name == "relpos.t5" for t in threading.enumerate())


def test_shapes(byt5):
    assert isinstance(byt5.generate("a", max_new_tokens=2), str)
    assert len(byt5.generate(["a"], max_new_tokens=2)) == 1 and byt5.generate([]) == []
    two, scores = byt5.generate("a", max_new_tokens=2, num_beams=2, num_return_sequences=2, return_scores=True)
    assert len(two) == 2 and scores.shape == (2,)
    assert byt5.encode([], pool="mean").shape == (0, byt5.d_model) and byt5.encode([]) == []
    assert not byt5.encode(tokens=[], pool="mean").any()
    assert byt5.score([], []).shape == (0,) and isinstance(byt5.score("a", "b"), float)
    assert byt5.tokenize(["a", ""])[1].tolist() == [1] and byt5.detokenize(byt5.tokenize("a\0é")) == "a\0é"
    many = [f"source {n}" for n in range(70)]
    alone = np.array([byt5.encode(one, pool="mean") for one in many])
    np.testing.assert_array_equal(byt5.encode(many, pool="mean"), alone)
    assert byt5.config.kind == "t5" and byt5.type == "f32" and "byt5" not in repr(byt5) and "2 + 1 layers" in repr(byt5)


def test_pack(byt5, tmp_path):
    byt5.pack(tmp_path / "m.relpos")
    with relpos.t5.T5(tmp_path / "m.relpos") as packed:
        assert packed.generate("hello", max_new_tokens=30) == byt5.generate("hello", max_new_tokens=30)
    with pytest.raises(OSError, match="none/m"):
        byt5.pack(tmp_path / "none/m.relpos")
    before = (tmp_path / "m.relpos").read_bytes()
    with relpos.t5.T5(tmp_path / "m.relpos") as packed, pytest.raises(OSError,
                                                                      match="the model was read from this file"):
        packed.pack(tmp_path / "m.relpos")
    assert (tmp_path / "m.relpos").read_bytes() == before and byt5.not_finite == 0


REFUSED = [
    (lambda m: m.generate("a", num_beams=0), ValueError, "num_beams is 0"),
    (lambda m: m.generate("a", num_beams=1.5), TypeError, "num_beams is 1.5"),
    (lambda m: m.generate("a", max_new_tokens=0), ValueError, "max_new_tokens is 0"),
    (lambda m: m.generate("a", temperature=-1), ValueError, "temperature is -1"),
    (lambda m: m.generate("a", top_p="much"), TypeError, "top_p is 'much'"),
    (lambda m: m.generate("a", early_stopping="often"), ValueError, "early_stopping is 'often'"),
    (lambda m: m.generate("a", num_return_sequences=3), ValueError, "returned is 3"),
    (lambda m: m.generate("a", beams=3), TypeError, "beams"),
    (lambda m: m.generate("a", stop_strings=[""]), ValueError, "stop_strings"),
    (lambda m: m.generate(), TypeError, "either texts or tokens"),
    (lambda m: m.generate("a", tokens=[1]), TypeError, "either texts or tokens"),
    (lambda m: m.generate(b"a"), TypeError, "bytes"),
    (lambda m: m.generate(["a", 3]), TypeError, r"texts\[1\] is of type int"),
    (lambda m: m.generate(tokens="1 2"), TypeError, "tokens are of type str"),
    (lambda m: m.generate(tokens=[1.5]), TypeError, "integers"),
    (lambda m: m.generate(tokens=[[1], [-1]]), ValueError, r"tokens\[1\]"),
    (lambda m: m.generate(tokens=[384]), ValueError, "^tokens: token 0 is 384, and the vocabulary has 384"),
    (lambda m: m.encode(tokens=[[1]] * 40 + [[384]]), ValueError, r"^tokens\[40\]: token 0 is 384"),
    (lambda m: m.score(source_tokens=[[1]], target_tokens=[[1, 384]]), ValueError, r"^target_tokens\[0\]: token 1"),
    (lambda m: m.encode({"text": "a"}), TypeError, "texts is of type dict"),
    (lambda m: m.encode({"a", "b"}), TypeError, "texts is of type set"),
    (lambda m: m.stream(["a"]), TypeError, "several sources were given"),
    (lambda m: list(m.stream("a", temperature=0)), ValueError, "temperature"),
    (lambda m: m.encode("a", pool="sum"), ValueError, "pool is 'sum'"),
    (lambda m: m.encode("a", normalize=True), ValueError, "normalize"),
    (lambda m: m.encode("a", attend_padding=True), ValueError, "attend_padding"),
    (lambda m: m.score(["a", "b"], ["c"]), ValueError, "2 sources and 1 targets"),
    (lambda m: m.detokenize([2**31]), ValueError, "vocabulary"),
    (lambda m: m.generate("\udc80"), ValueError, "surrogates"),
    (lambda m: m.nothing, AttributeError, "nothing"),
    (lambda m: relpos.t5.T5(DATA / "byt5", type="f8"), ValueError, '"f8"'),
    (lambda m: relpos.t5.T5(DATA / "byt5", threads=0), ValueError, "threads is 0"),
    (lambda m: relpos.t5.T5(3), TypeError, "int"),
    (lambda m: relpos.t5.T5(DATA / "none"), FileNotFoundError, "none"),
    (lambda m: relpos.t5.T5(DATA), ValueError, "config.json"),
    (lambda m: relpos.t5.T5(DATA / "encoder").generate(tokens=[1]), ValueError, "decoder"),
    (lambda m: relpos.t5.T5(DATA / "t5").generate("a"), ValueError, "tokenizer"),
    (lambda m: relpos.T5("flan-t5-small"), TypeError, r"relpos\.t5\.T5"),
    (lambda m: relpos.T5("flan-t5-small", type="int8", threads=2), TypeError, r"relpos\.t5\.T5"),
    (lambda m: relpos.T5(pathlib.Path("flan-t5-small"), draft="int4"), TypeError, r"relpos\.t5\.T5"),
    (lambda m: m.generate("a", max_length=1), ValueError, "max_length is 1"),
    (lambda m: m.generate("a", max_length=5, max_new_tokens=4), TypeError, "max_length and max_new_tokens were both "
                                                                           "given"),
    (lambda m: m.generate("a", suppress_tokens=[384]), ValueError, "vocabulary has 384"),
    (lambda m: m.generate("a", bad_words_ids=[[]]), ValueError, "bad_words"),
    (lambda m: m.generate("a", bad_words_ids=3), TypeError, "bad_words_ids is of type int"),
    (lambda m: m.generate("a", bad_words_ids=[3]), TypeError, r"bad_words_ids\[0\]"),
    (lambda m: m.generate("a", forced_bos_token_id=384), ValueError, "not in the vocabulary"),
    (lambda m: m.encode("a", batch_size=0), ValueError, "batch_size is 0"),
    (lambda m: m.encode("a", normalize_embeddings=True), ValueError, "normalize"),
]


@pytest.mark.parametrize("n", range(len(REFUSED)))
def test_what_is_refused(byt5, n):
    call, kind, line = REFUSED[n]
    with pytest.raises(kind, match=line) as why:
        call(byt5)
    assert "\n" not in str(why.value)
    assert byt5.generate("a", max_new_tokens=1) is not None


def test_notes_about_a_file_are_warnings(tmp_path):
    shutil.copytree(DATA / "v11", tmp_path, dirs_exist_ok=True)
    data = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    table = {"_orig_mod.module." + name: one for name, one in json.loads(data[8:8 + size]).items()
             if name != "__metadata__"}
    header = json.dumps(table).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size:])
    note = f"{tmp_path}: the prefix _orig_mod.module. was removed from the names of the tensors"
    with pytest.warns(UserWarning, match=re.escape(note)) as caught:
        relpos.t5.T5(tmp_path).close()
    assert [one.filename for one in caught] == [__file__]
    run = subprocess.run([sys.executable, "-P", "-m", "relpos", "t5", "info", str(tmp_path)], capture_output=True,
                         text=True)
    assert (run.returncode, run.stderr) == (0, f"relpos: note: {note}\n")


def test_a_closed_model(byt5):
    other = relpos.t5.T5(DATA / "byt5")
    stream = other.stream("hello", max_new_tokens=30)
    first = next(stream)
    other.close()  # a running stream keeps the model open
    other.close()
    with pytest.raises(ValueError, match="closed"):
        other.generate("a")
    assert first and "closed" in repr(other)
    with pytest.raises(ValueError, match="closed"):  # it converts tokens to text
        list(stream)


def test_threads_share_a_model(byt5):
    want, got = byt5.generate("hello", max_new_tokens=60), {}
    threads = [threading.Thread(target=lambda n=n: got.update({n: byt5.generate("hello", max_new_tokens=60)}))
               for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(got.values()) == {want} and len(got) == 4


CODE = """
import signal, sys, relpos.t5
signal.signal(signal.SIGINT, signal.default_int_handler)
m = relpos.t5.T5(sys.argv[1])
print("begun", flush=True)
try:
    m.generate("hello", max_new_tokens=100000, min_new_tokens=100000)
except KeyboardInterrupt:
    print("ended", m.generate("a", max_new_tokens=1) is not None, flush=True)
"""


def test_ctrl_c():
    with subprocess.Popen([sys.executable, "-P", "-c", CODE, DATA / "byt5"], stdout=subprocess.PIPE,
                          text=True) as child:
        assert child.stdout.readline() == "begun\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=20)[0] == "ended True\n"
        assert child.returncode == 0


def test_an_interpreter_ends_while_a_stream_is_open():
    code = ("import sys, relpos.t5\nm = relpos.t5.T5(sys.argv[1])\ns = m.stream('hello', max_new_tokens=100000, "
            "min_new_tokens=100000)\n"
            "print(len(next(s)))")
    subprocess.run([sys.executable, "-P", "-c", code, DATA / "byt5"], timeout=20, check=True)


@pytest.mark.parametrize("draft", ["int8", "int4"])
def test_a_draft_changes_nothing(draft):
    sources = [[7, 3, 9, 1], [5, 1], list(range(3, 40))]
    with relpos.t5.T5(DATA / "v11", type="f32") as plain, relpos.t5.T5(DATA / "v11", type="f32",
                                                                       draft=draft) as drafted:
        for source in sources:
            want, scores = plain.generate(tokens=source, max_new_tokens=40, return_scores=True)
            found, same = drafted.generate(tokens=source, max_new_tokens=40, return_scores=True)
            assert want.tolist() == found.tolist() and scores == same
            assert list(drafted.stream(tokens=source, max_new_tokens=40)) == want.tolist()
        counts = drafted.drafted
        assert 0 < counts.accepted <= counts.proposed and counts.passes > 0 and plain.drafted.passes == 0


def test_drafts_that_are_refused():
    with pytest.raises(ValueError, match="draft type f32 with weights of f32; it must be int8 or int4"):
        relpos.t5.T5(DATA / "v11", type="f32", draft="f32")
    with pytest.raises(TypeError, match="draft is 4"):
        relpos.t5.T5(DATA / "v11", draft=4)


def golden(name):
    """Return the arrays that transformers computed, by name."""
    data = (DATA / name / "expected.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    kinds = {"F32": np.float32, "I32": np.int32}
    return {key: np.frombuffer(data[8 + size:][slice(*one["data_offsets"])], kinds[one["dtype"]]).reshape(one["shape"])
            for key, one in json.loads(data[8:8 + size]).items() if key != "__metadata__"}


@pytest.mark.parametrize("name", ["t5", "umt5"])
def test_explain_gives_the_attentions_of_transformers(name):
    want = golden(name)
    source, target = ([int(t) for t in want[key][row] if t >= 0] for key, row in (("sources", -1), ("targets", 1)))
    with relpos.t5.T5(DATA / name, type="f32") as model:
        for part in ("encoder", "decoder", "cross"):
            more = {} if part == "encoder" else {"target_tokens": target}
            for layer, heads in enumerate(want[f"attention.{part}"]):
                for head, rows in enumerate(heads):
                    for query in (0, len(rows) - 1):
                        row = model.explain(tokens=source, part=part, layer=layer, head=head, query=query, **more)
                        assert isinstance(row, relpos.Explanation)
                        np.testing.assert_allclose(row.weights, rows[query], rtol=0, atol=2**-24)  # the file stores f32
                        seen = np.isfinite(row.score)
                        np.testing.assert_allclose((row.raw + row.bias)[seen], row.score[seen], rtol=0, atol=1e-12)
        last = model.explain(tokens=source, part="encoder", layer=-1, head=-1, query=-1)
        np.testing.assert_array_equal(last.weights,
                                      model.explain(tokens=source, layer=1, head=1, query=len(source) - 1).weights)
        np.testing.assert_array_equal(model.explain(tokens=source).weights,
                                      model.explain(tokens=source, query=0).weights)
        for arguments, words in (({"layer": 2}, "layer is 2; it must be -2 to 1"), ({"head": 2}, "head is 2"),
                                 ({"query": 34}, "query is 34"),
                                 ({"part": "both"}, "part is 'both'")):
            with pytest.raises(ValueError, match=words):
                model.explain(tokens=source, **arguments)
        for arguments in ({"part": "cross"}, {"target_tokens": [1]}):
            with pytest.raises(TypeError, match="target"):
                model.explain(tokens=source, **arguments)


def test_ctrl_c_ends_encode():
    # background jobs of a shell ignore Ctrl-C, and children inherit that
    code = ("import signal, sys, relpos.t5\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "m = relpos.t5.T5(sys.argv[1])\nprint('begun', flush=True)\n"
            "try:\n    m.encode('a' * 150000)\nexcept KeyboardInterrupt:\n    print('ended', flush=True)\n")
    with subprocess.Popen([sys.executable, "-P", "-c", code, DATA / "byt5"], stdout=subprocess.PIPE,
                          text=True) as child:
        assert child.stdout.readline() == "begun\n"
        time.sleep(1)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=20)[0] == "ended\n"


def test_tokens_that_are_not_written_and_one_that_is():
    source = [5, 9, 2, 4, 4, 7, 1]
    with relpos.t5.T5(DATA / "mt5", type="f32") as m:
        def write(**settings):
            return m.generate(tokens=source, max_new_tokens=6, **settings).tolist()

        plain = write()
        first = plain[0]
        assert len(plain) > 2
        assert first not in write(suppress_tokens=[first])
        assert write(begin_suppress_tokens=np.array([first]))[0] != first
        assert write(bad_words_ids=[plain[:2]])[0] == first
        assert write(bad_words_ids=[plain[:2]])[1] != plain[1]
        assert write(forced_bos_token_id=7)[0] == 7
        assert write(suppress_tokens=[], bad_words_ids=[]) == plain
        assert m.generate(tokens=source, max_length=4).tolist() == m.generate(tokens=source, max_new_tokens=3).tolist()
        assert m.generate(tokens=source, max_length=4,
                          begin=[7]).tolist() == m.generate(tokens=source, max_new_tokens=2, begin=[7]).tolist()
        assert list(m.stream(tokens=source, max_length=4, suppress_tokens=[first])) == \
            m.generate(tokens=source, max_length=4, suppress_tokens=[first]).tolist()


def test_encode_takes_the_names_of_sentence_transformers(byt5, capsys):
    lines = ["one", "another", "a third"]
    want = byt5.encode(lines, pool="mean", normalize=True)
    assert (byt5.encode(lines, pool="mean", normalize_embeddings=True, batch_size=2, show_progress_bar=True)
            == want).all()
    assert capsys.readouterr().err == ""  # a short call shows no progress
    assert (byt5.encode(lines, pool="mean", normalize=True, batch_size=1) == want).all()
    assert capsys.readouterr().err == ""


def test_the_module_is_there_without_an_import_of_its_own():
    line = ("import relpos, sys; assert 'relpos.t5' not in sys.modules; print(relpos.t5.T5.__name__, hasattr(relpos, "
            "'nothing'))")
    assert subprocess.run([sys.executable, "-P", "-c", line], capture_output=True, text=True,
                          check=True).stdout == "T5 False\n"


@pytest.mark.parametrize("name", ["new", "old", "all"])
def test_vectors_of_sentence_transformers(name, tmp_path):
    folder = ROOT / "tests/t5/sentence" / name
    texts = (folder.parent / "lines.txt").read_text().splitlines()
    want = [json.loads(line) for line in (folder.parent / f"{name}.jsonl").read_text().splitlines()]
    with relpos.t5.T5(folder, type="f32") as m:
        for prompt in {one["prompt"]: 0 for one in want}:
            vectors = np.array([one["vector"] for one in want if one["prompt"] == prompt])
            got = m.encode(texts, prompt_name=prompt, batch_size=2)
            assert got.shape == (len(texts), m.vector_width) and got.dtype == np.float32
            assert (np.linalg.norm(got - vectors, axis=1) <= 3e-6 * np.linalg.norm(vectors, axis=1)).all()
            np.testing.assert_array_equal(m.encode(texts[1], prompt_name=prompt), got[1])
            more = [] if prompt is None else ["--prompt", prompt]
            program("encode", folder, folder.parent / "lines.txt", "--type", "f32", "-o", tmp_path / "v.npz", *more)
            np.testing.assert_array_equal(np.load(tmp_path / "v.npz")["vectors"], got)
        program("encode", folder, folder.parent / "lines.txt", "--type", "f32", "-o", tmp_path / "v.npz", "--normalize",
                "--prefix", "a ")
        np.testing.assert_array_equal(np.load(tmp_path / "v.npz")["vectors"],
                                      m.encode(texts, prompt="a ", normalize_embeddings=True))
        assert [len(one) for one in m.encode(texts, pool="none")] == [len(m.tokenize(one)) for one in texts]
        assert m.encode(tokens=m.tokenize("a mat")).shape == (m.vector_width,)
        with pytest.raises(ValueError, match='no prompt has the name "none"'):
            m.encode("a", prompt_name="none")
        with pytest.raises(TypeError, match="give only one"):
            m.encode("a", prompt_name="query", prompt="a")
        with pytest.raises(TypeError, match="tokens= has no text"):
            m.encode(tokens=[5], prompt="a")
        with pytest.raises(OSError, match="cannot be packed"):
            m.pack(tmp_path / "packed")


def fields_of(name):
    """Return the names of the fields of a struct of relpos/t5.h."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include/relpos/t5.h").read_text(), flags=re.S)
    body = re.search(rf"typedef struct rp_t5_{name} {{(.*?)}} rp_t5_{name};", text, re.S)[1]
    return re.findall(r"(\w+)\)?(?:\([^()]*\))?\s*;", body)


def test_fields_are_those_of_the_header(byt5):
    assert list(vars(byt5.config)) == fields_of("info")
    assert list(vars(byt5.drafted)) == fields_of("drafted")
    ours = {"size", "first", "forced_last", "bad_words", "n_bad_words", "stop", "n_stop", "unsupported", "on_token",
            "cancelled", "context"}  # neither a number nor one list of tokens, or left alone
    settings = relpos.t5._core.settings(byt5._handle)
    assert set(fields_of("generation")) == {*settings, *ours} and not ours & set(settings)


def test_stubs_name_what_is_there():
    tree = ast.parse(pathlib.Path(relpos.t5.__file__).with_suffix(".pyi").read_text())
    settings, made = (next(x for x in tree.body if isinstance(x, ast.ClassDef) and x.name == name)
                      for name in ("_Settings", "T5"))
    settings = [line.target.id for line in settings.body]
    assert [line.target.id for line in made.body if isinstance(line, ast.AnnAssign)] == \
        fields_of("info")
    methods = {x.name: x for x in made.body if isinstance(x, ast.FunctionDef)}
    public = {name for name in dir(relpos.t5.T5) if not name.startswith("_")}
    assert public == {name for name in methods if not name.startswith("_")}
    for name in public - {"config", "drafted"}:
        said = [a.arg for a in methods[name].args.args
                + methods[name].args.kwonlyargs] + (settings if methods[name].args.kwarg else [])
        assert sorted(said) == sorted(inspect.signature(getattr(relpos.t5.T5, name)).parameters), name
