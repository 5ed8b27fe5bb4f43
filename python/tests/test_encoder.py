"""Test relpos.Encoder on the tiny models of tests/encoder/texts: compare vectors, labels and scores with
sentence-transformers and transformers, and bit for bit with the program, and test errors.
SPDX-License-Identifier: Apache-2.0"""
import ast
import copy
import inspect
import json
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import relpos

try:
    import relpos.encoder
except ImportError as why:  # built with RELPOS_BUILD_CLI=OFF
    pytest.skip(str(why), allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/encoder/texts"
PLAIN = ROOT / "tests/encoder/data"  # models without tokenizers


def expected(name):
    return json.loads((DATA / name / "expected.json").read_text())


def open_model(name, **options):
    return relpos.Encoder(DATA / name, **{"type": "f32", "threads": 2, **options})


@pytest.fixture(scope="module")
def models():
    made = {name: open_model(name) for name in ("search", "asymmetric", "labels", "rank")}
    yield made
    for model in made.values():
        model.close()


def program(*arguments, lines=""):
    return subprocess.run([sys.executable, "-P", "-m", "relpos", *map(str, arguments)], input=lines,
                          capture_output=True, text=True, check=True).stdout


def close_to(got, want, error):
    """Check got against results of f64, with the error of f32 in the library that wrote them."""
    error_found, bound = np.abs(got - np.array(want)).max(), 8 * error
    print(f"error {error_found:.3g}, bound {bound:.3g}")
    assert got.dtype == np.float32 and error_found <= bound


def sigmoid(x):
    return 1 / (1 + np.exp(-np.array(x)))


@pytest.mark.parametrize("name", ["search", "asymmetric"])
def test_vectors_are_those_of_sentence_transformers(models, name):
    model, want = models[name], expected(name)
    texts = want["texts"]
    close_to(model.encode(texts), want["vectors"], want["error"])
    for n, text in enumerate(texts):
        assert model.tokenize(text, max_tokens=model.max_seq_length).tolist() == want["tokens"][n]
    if name == "asymmetric":
        for prompt in ("query", "document"):
            close_to(model.encode(texts, prompt), want["vectors." + prompt], want["error"])
    vectors = model.encode(texts)
    assert vectors.shape == (len(texts), model.vector_width)
    for one in (model.encode(sentences=texts), model.encode(np.array(texts)), model.encode(texts, batch_size=1),
                model.encode(tokens=want["tokens"]), np.array([model.encode(text) for text in texts]),
                np.array([each["sentence_embedding"] for each in model.encode(texts, output_value=None)])):
        np.testing.assert_array_equal(one, vectors)
    hidden = model.encode(texts, output_value="token_embeddings", batch_size=3)
    assert [one.shape for one in hidden] == [(len(one), model.width) for one in want["tokens"]]
    for one, each in zip(hidden, model.encode(tokens=want["tokens"], output_value="token_embeddings")):
        np.testing.assert_array_equal(one, each)
    np.testing.assert_array_equal(model.encode(tokens=want["tokens"][1]), vectors[1])


def test_prompts(models):
    model, texts = models["asymmetric"], expected("asymmetric")["texts"]
    query, document = model.encode(texts, prompt_name="query"), model.encode(texts, prompt_name="document")
    for got, want in ((model.encode_query(texts), query), (model.encode_document(texts), document),
                      (model.encode(texts, prompt="where: "), query), (model.encode_query(texts, "document"), document),
                      (model.encode_query(texts, prompt="the: "), document),
                      (model.encode_query(sentences=texts), query),
                      (model.encode_query(tokens=expected("asymmetric")["tokens"]), model.encode(texts)),
                      (np.array([one["sentence_embedding"] for one in model.encode(texts, "query", output_value=None)]),
                       query)):
        np.testing.assert_array_equal(got, want)
    with relpos.Encoder(DATA / "rank") as plain:  # without modules.json
        np.testing.assert_array_equal(plain.encode_document(texts), plain.encode(texts))


def test_results_of_other_kinds(models):
    torch = pytest.importorskip("torch")
    model, texts = models["asymmetric"], expected("asymmetric")["texts"]
    vectors = model.encode(texts)
    tensor, several = model.encode(texts, convert_to_tensor=True), model.encode(texts, convert_to_numpy=False)
    assert isinstance(tensor, torch.Tensor) and isinstance(several, list)
    for one in (tensor, torch.stack(several), model.encode(texts, device=torch.device("cpu"))):
        np.testing.assert_array_equal(np.asarray(one), vectors)
    cut = model.encode(texts, truncate_dim=4)
    np.testing.assert_array_equal(cut, vectors[:, :4])
    unit = model.encode(texts, truncate_dim=4, normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=3e-7)
    np.testing.assert_allclose(unit, cut / np.linalg.norm(cut, axis=1, keepdims=True), atol=3e-7)
    hidden = model.encode(texts[0], output_value="token_embeddings", convert_to_tensor=True)
    each = model.encode(texts[0], output_value=None, convert_to_numpy=False)
    assert isinstance(hidden, torch.Tensor) and (each["token_embeddings"] == hidden).all()
    assert set(each) == {"input_ids", "token_type_ids", "attention_mask", "token_embeddings", "sentence_embedding"}
    assert "token_type_ids" not in models["search"].encode("a", output_value=None)


def test_shapes(models):
    model = models["search"]
    assert [model.encode(one).shape for one in ("a", ["a"], [])] == [(24,), (1, 24), (0, 24)]
    assert model.encode([], output_value=None) == [] and model.encode(tokens=[[5, 6], []]).shape == (2, 24)
    assert model.encode(iter(["a", "b"])).shape == (2, 24)
    assert models["labels"].classify([]) == [] and models["rank"].predict([]).shape == (0,)
    assert models["rank"].rank("a", []) == []
    assert [one.tolist() for one in model.tokenize(["a", ""])] == [model.tokenize("a").tolist(), [0, 2]]
    assert len(model.tokenize("a " * 50)) == 52 and len(model.tokenize("a " * 50, max_tokens=7)) == 7
    rank = expected("rank")
    assert [models["rank"].tokenize(*pair, max_tokens=30).tolist() for pair in rank["texts"]] == rank["tokens"]


def test_properties(models):
    model = models["labels"]
    assert model.labels == model.config.labels == ["negative", "neutral", "positive"] and models["search"].labels == []
    assert (model.kind, model.type, model.width, model.max_tokens) == ("bert", "f32", 24, 40)
    assert models["search"].max_seq_length == 12 and models["asymmetric"].vector_width == 10
    assert re.fullmatch(r"<relpos\.encoder\.Encoder: bert, f32, 2 layers, [\d,]+ parameters>", repr(model))
    with relpos.Encoder(DATA / "labels") as narrow:
        assert narrow.type == "f16" and narrow.bytes < model.bytes and narrow.parameters == model.parameters


def test_fields_are_those_of_the_header(models):
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include/relpos/encoder.h").read_text(), flags=re.S)
    body = re.search(r"typedef struct rp_encoder_info {(.*?)} rp_encoder_info;", text, re.S)[1]
    fields = re.findall(r"(\w+)\s*;", body)
    tree = ast.parse(pathlib.Path(relpos.encoder.__file__).with_suffix(".pyi").read_text())
    stub = next(one for one in tree.body if isinstance(one, ast.ClassDef))
    assert fields == list(vars(models["labels"].config))
    assert fields == [line.target.id for line in stub.body if isinstance(line, ast.AnnAssign)]
    named = {line.targets[0].id: line.value.id for line in stub.body if isinstance(line, ast.Assign)}
    methods = {one.name: one.args for one in stub.body if isinstance(one, ast.FunctionDef)}
    methods |= {name: methods[same] for name, same in named.items()}
    public = {name for name in dir(relpos.Encoder) if not name.startswith("_")}
    assert public == {name for name in methods if not name.startswith("_")}
    for name in public | {"__init__"}:
        if callable(found := getattr(relpos.Encoder, name)):
            listed = [a.arg for a in methods[name].args + methods[name].kwonlyargs]
            assert listed == list(inspect.signature(found).parameters), name


def test_pack(models, tmp_path):
    model, texts = models["search"], expected("search")["texts"]
    model.pack(tmp_path / "m.relpos")
    with relpos.Encoder(tmp_path / "m.relpos") as packed:
        assert packed.packed == 1 and model.packed == 0
        np.testing.assert_array_equal(packed.encode(texts), model.encode(texts))
        with pytest.raises(OSError, match="the model was read from this file"):
            packed.pack(tmp_path / "m.relpos")
    with pytest.raises(OSError, match="none/m"):
        model.pack(tmp_path / "none/m.relpos")


def arrays_of(folder):
    """Load expected.safetensors of a model."""
    data = (folder / "expected.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    kinds = {"F32": np.float32, "I32": np.int32}
    return {key: np.frombuffer(data[8 + size:][slice(*one["data_offsets"])], kinds[one["dtype"]]).reshape(one["shape"])
            for key, one in json.loads(data[8:8 + size]).items() if key != "__metadata__"}


@pytest.mark.parametrize("name", sorted(path.name for path in PLAIN.iterdir() if path.is_dir()))
def test_hidden_states_are_those_of_transformers(name):
    want = arrays_of(PLAIN / name)
    ids = np.split(want["tokens"], np.cumsum(want["lengths"])[:-1])
    types = None if "types" not in want else np.split(want["types"], np.cumsum(want["lengths"])[:-1])
    with relpos.Encoder(PLAIN / name, type="f32") as model:
        assert model.has_tokenizer == 0
        hidden = [np.empty((len(one), model.width), np.float32) for one in ids]
        for n, out in enumerate(hidden):
            relpos.encoder._encode.on_tokens(model, relpos.encoder._core.hidden, ids[n:n + 1], types and types[n:n + 1],
                                             out, None)
        places = [[one[0], one[len(one) // 2], one[-1]] for one in hidden]
        close_to(np.array(places), want["hidden"], want["hidden_error"][0])
        if types is None:
            for one, each in zip(hidden, model.encode(tokens=ids, output_value="token_embeddings", batch_size=4)):
                np.testing.assert_array_equal(one, each)
            vectors = model.encode(tokens=ids)  # without modules.json: means
            np.testing.assert_allclose(vectors, [one.astype(np.float64).mean(0) for one in hidden], atol=1e-6)


@pytest.mark.parametrize("name, keys", [
    ("deberta", {"pos_att_type": []}), ("deberta", {"pos_att_type": None}), ("deberta", {"pos_att_type": ["p2c"]}),
    ("deberta", {"pos_att_type": "c2p"}), ("deberta_conv", {"pos_att_type": ""}),
    ("modernbert", {"rope_parameters": {"full_attention": {"rope_theta": 50.0}}}),
    ("modernbert", {"rope_parameters": {"full_attention": {}, "sliding_attention": {"type": "default"}},
                    "global_rope_theta": 40.0, "local_rope_theta": 30.0}),
    ("modernbert", {"rope_parameters": None, "global_rope_theta": 40.0, "local_rope_theta": 30.0})])
def test_other_configurations_are_those_of_transformers(name, keys, tmp_path):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    want = arrays_of(PLAIN / name)
    folder, ids = with_config(PLAIN / name, tmp_path / "m", **keys), want["tokens"][want["lengths"].cumsum()[-2]:]
    config = transformers.AutoConfig.from_pretrained(str(folder))
    peer = transformers.AutoModel.from_pretrained(str(folder), config=config, attn_implementation="eager",
                                                  dtype=torch.float64).eval()
    with torch.no_grad():
        there = peer(input_ids=torch.tensor(ids[None].astype(np.int64))).last_hidden_state[0].numpy()
    with relpos.Encoder(folder, type="f32") as model, relpos.Encoder(PLAIN / name, type="f32") as plain:
        got, usual = (one.encode(tokens=ids, output_value="token_embeddings") for one in (model, plain))
        close_to(got, there, want["hidden_error"][0])
        assert np.abs(got - usual).max() > 1e-3


# ---------------------------------------------------------------------------------------------- labels and scores

def test_labels_are_those_of_transformers(models):
    model, want = models["labels"], expected("labels")
    logits, texts = np.array(want["logits"]), want["texts"]
    best = model.classify(texts)
    assert [model.labels.index(one["label"]) for one in best] == logits.argmax(1).tolist()
    scores = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    every = model.classify(texts, top_k=None)
    got = np.array([[dict((one["label"], one["score"]) for one in row)[label] for label in model.labels]
                    for row in every], np.float32)
    close_to(got, scores, want["error"])  # softmax changes no difference of logits by more than its size
    assert best == [row[0] for row in every] == [row[0] for row in model.classify(texts, top_k=2)]
    assert [len(row) for row in model.classify(texts, top_k=2)] == [2] * len(texts)
    assert model.classify(texts[0]) == best[:1] and model.classify(texts[0], top_k=None) == every[0]


def test_classify_returns_what_the_pipeline_returns(models):
    transformers = pytest.importorskip("transformers")
    pipeline = transformers.pipeline("text-classification", str(DATA / "labels"), device="cpu", dtype="float32")
    texts, pair = expected("labels")["texts"], {"text": "The cat sleeps.", "text_pair": "where is the dog?"}
    model = models["labels"]
    for inputs in (texts[0], texts, [texts[0]], pair, [pair, pair], [pair], {"text": texts[0]},
                   {"text": texts[0], "text_pair": ""}, {"text": "", "text_pair": "a"}, {"text": "", "text_pair": ""}):
        for options in ({}, {"top_k": 1}, {"top_k": None}, {"top_k": 2}):
            want, got = pipeline(inputs, truncation=True, max_length=30, **options), model.classify(inputs, **options)
            assert same(got, want, 8 * expected("labels")["error"]), (inputs, options)
    other = (pair["text"], pair["text_pair"])
    assert model.classify(other) == model.classify(pair) and model.classify([other, list(other)]) == model.classify(
        [pair, pair])


def with_config(name, folder, **keys):
    """Copy a model, a name in DATA or a folder, with other keys in its config.json."""
    shutil.copytree(DATA / name, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **keys}))
    return folder


@pytest.mark.parametrize("name, problem", [
    (name, problem) for name in ("rank", "labels")
    for problem in ("regression", "multi_label_classification", "single_label_classification", None)
    if (name, problem) != ("rank", "single_label_classification")])  # transformers refuses it
def test_the_problem_type_decides_the_scores(name, problem, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = with_config(name, tmp_path / "m", problem_type=problem)
    pipeline = transformers.pipeline("text-classification", str(folder), device="cpu", dtype="float32")
    texts = expected("labels")["texts"]
    with relpos.Encoder(folder, type="f32") as model:
        want = pipeline(texts, truncation=True, max_length=30, top_k=None)
        assert same(model.classify(texts, top_k=None), want, 16 * expected(name)["error"])


@pytest.mark.parametrize("name", ["rank", "labels"])
@pytest.mark.parametrize("function", [None, "torch.nn.modules.linear.Identity",
                                      "torch.nn.modules.activation.Sigmoid"])
def test_the_activation_function_of_the_config(name, function, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    keys = {} if function is None else {"sentence_transformers": {"activation_fn": function, "version": "6.2.0"}}
    folder = with_config(name, tmp_path / "m", **keys)
    peer = library.CrossEncoder(str(folder), device="cpu", max_length=30)
    peer.model.float()
    pairs = [pair for pair in expected("rank")["texts"] if "" not in pair]
    with relpos.Encoder(folder, type="f32") as model:
        for options in ({}, {"apply_softmax": True}):
            got, want = model.predict(pairs, **options), peer.predict(pairs, **options)
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_allclose(got, want, atol=16 * expected(name)["error"])
        assert model.predict(pairs[0]).shape == want[0].shape


@pytest.mark.parametrize("name", ["rank", "labels"])
def test_another_activation_function_of_the_config(name, tmp_path):
    folder = with_config(name, tmp_path / "m", sentence_transformers={"activation_fn": "torch.nn.Softmax"})
    torch = pytest.importorskip("torch")
    pairs = [("the cat", "sleeps"), ("a dog", "is")]
    with relpos.Encoder(folder, type="f32") as model, relpos.Encoder(DATA / name, type="f32") as plain:
        np.testing.assert_array_equal(model.encode("the cat"), plain.encode("the cat"))
        assert model.classify(pairs) == plain.classify(pairs)
        with pytest.raises(ValueError, match='the activation of scores is "torch.nn.Softmax".*; or pass activation_fn'):
            model.predict(pairs)
        options = {"activation_fn": torch.nn.Identity()}
        np.testing.assert_array_equal(model.predict(pairs, **options), plain.predict(pairs, **options))


@pytest.mark.parametrize("name", ["rank", "labels"])
def test_errors_name_the_place_of_a_text(name, tmp_path):
    """A special token without a row in the embedding is in text 1,300."""
    folder = with_config(name, tmp_path / "m")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"].append({"id": 98, "content": "<extra>", "special": True} | flags)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    texts = ["the cat"] * 1300 + ["the <extra> cat"] + ["a dog"] * 100
    pairs = [(one, "a dog") for one in texts]
    wrong, only = r"^inputs\[1300\]: token [0-9]+ is 98; it must be from 0 to 97", "^inputs: token [0-9]+ is 98;"
    with relpos.Encoder(folder, type="f32") as model:
        calls = [(model.encode, texts, texts[1300]), (model.classify, texts, texts[1300]),
                 (model.predict, pairs, pairs[1300]),
                 (lambda one: model.encode(one, output_value=None, batch_size=7), texts, texts[1300]),
                 (lambda one: model.predict(one, activation_fn=abs, batch_size=7), pairs, pairs[1300])]
        for call, many, one in calls:
            with pytest.raises(ValueError, match=wrong):
                call(many)
            with pytest.raises(ValueError, match=only):
                call(one)


def same(got, want, error):
    """Compare lists and dicts; numbers may differ by `error`."""
    if isinstance(want, float):
        return isinstance(got, float) and abs(got - want) <= error
    if isinstance(want, dict):
        return list(got) == list(want) and all(same(got[key], want[key], error) for key in want)
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(same(*each, error) for each in zip(got, want))
    return type(got) is type(want) and got == want


def test_scores_are_those_of_a_cross_encoder(models):
    model, want = models["rank"], expected("rank")
    pairs, logits = want["texts"], np.array(want["logits"])[:, 0]
    scores = model.predict(pairs)
    close_to(scores, sigmoid(logits), want["error"])
    for one in (model.predict([tuple(pair) for pair in pairs], batch_size=2), model.rerank(pairs),
                model.predict(np.array(pairs)), np.array([model.predict(pair) for pair in pairs]),
                model.predict(pairs, apply_softmax=True)):
        np.testing.assert_array_equal(one, scores)
    query, documents = "where is the cat", [pair[1] for pair in pairs]
    found = model.rank(query, documents, return_documents=True)
    alone = model.predict([(query, one) for one in documents])
    assert found == sorted(({"corpus_id": n, "score": float(s), "text": documents[n]} for n, s in enumerate(alone)),
                           key=lambda one: -one["score"])
    assert model.rank(query, documents, 2) == [{key: one[key] for key in ("corpus_id", "score")} for one in found[:2]]


def test_scores_with_an_activation_function(models):
    torch = pytest.importorskip("torch")
    want = expected("rank")
    got = models["rank"].predict(want["texts"], activation_fn=torch.nn.Identity(), batch_size=2)
    close_to(got, np.array(want["logits"])[:, 0], want["error"])
    scores = models["rank"].predict([("dog", "the"), ("dog", "")], activation_fn=torch.nn.Identity())
    ranked = models["rank"].rank("dog", ["the", ""], activation_fn=torch.nn.Identity())
    assert [one["score"] for one in ranked] == sorted(scores.tolist(), reverse=True)
    pairs = [["where is the cat", "The cat sleeps."], ["dog", "the"]]
    model = models["labels"]
    scores = model.predict(pairs, activation_fn=torch.nn.Identity(), apply_softmax=True)
    every = [dict((one["label"], one["score"]) for one in row) for row in model.classify(pairs, top_k=None)]
    np.testing.assert_allclose(scores, [[row[label] for label in model.labels] for row in every], rtol=1e-6)
    assert model.predict(pairs[0], activation_fn=torch.nn.Identity()).shape == (3,)
    assert isinstance(models["rank"].predict(pairs, convert_to_tensor=True), torch.Tensor)
    with pytest.raises(ValueError, match=r"activation_fn returned the shape \(2, 0\); it must be \(2, 3\)"):
        model.predict(pairs, activation_fn=lambda logits: logits[:, :0])


# ---------------------------------------------------------------------------------------------- the same arguments

class Reported(Exception):
    pass


# For each argument of a method of sentence-transformers other than its inputs: True if relpos obeys it, or a value
# that relpos refuses with these words. kwargs: a call with unknown names raises TypeError.
ENCODE = {"prompt_name": True, "prompt": True, "batch_size": True, "show_progress_bar": True, "output_value": True,
          "precision": ("int8", "quantize_embeddings"), "convert_to_numpy": True, "convert_to_tensor": True,
          "device": ("cuda", "relpos computes on the CPU"), "normalize_embeddings": True, "truncate_dim": True,
          "pool": ({"input": None}, "not over processes"), "chunk_size": (8, "not over processes")}
PREDICT = {"prompt_name": ("query", "reranking has no prompts"), "prompt": ("where: ", "reranking has no prompts"),
           "batch_size": True, "show_progress_bar": True, "activation_fn": True, "apply_softmax": True,
           "convert_to_numpy": True, "convert_to_tensor": True, "device": ENCODE["device"], "pool": ENCODE["pool"],
           "chunk_size": ENCODE["chunk_size"]}
RANK = {name: PREDICT[name] for name in PREDICT if name not in ("apply_softmax", "convert_to_numpy",
                                                                "convert_to_tensor")}
METHODS = [("SentenceTransformer", "encode", "asymmetric", ["the cat"], ENCODE),
           ("SentenceTransformer", "encode_query", "asymmetric", ["the cat"], ENCODE),
           ("SentenceTransformer", "encode_document", "asymmetric", ["the cat"], ENCODE),
           ("CrossEncoder", "predict", "rank", [["the", "cat"]], PREDICT),
           ("CrossEncoder", "rank", "rank", "the", {"top_k": True, "return_documents": True, **RANK})]


@pytest.mark.parametrize("case", METHODS, ids=lambda case: case[1])
def test_arguments_are_those_of_sentence_transformers(models, case):
    library = pytest.importorskip("sentence_transformers")
    of, name, folder, first, arguments = case
    theirs = inspect.signature(getattr(getattr(library, of), name)).parameters.values()
    ours = inspect.signature(getattr(relpos.Encoder, name)).parameters
    named = [p for p in theirs if p.kind == p.POSITIONAL_OR_KEYWORD and p.name not in ("self", "query", "documents")]
    if name != "rank":
        assert named.pop(0).name == "inputs"
    assert [p.name for p in named] == list(arguments)
    inherited = [p.name for p in ours.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    assert inherited == [p.name for p in theirs if p.kind == p.POSITIONAL_OR_KEYWORD]  # the same places
    call = getattr(models[folder], name)
    for p in named:
        assert ours[p.name].default == p.default, p.name
        inputs = (first, ["cat", "dog"]) if name == "rank" else (first,)
        call(*inputs, **{p.name: p.default})
        if arguments[p.name] is not True:
            value, words = arguments[p.name]
            with pytest.raises(ValueError, match=f"{p.name}.*{words}"):
                call(*inputs, **{p.name: value})
    with pytest.raises(TypeError, match="processing_kwargs"):
        call(*inputs, processing_kwargs={})


def test_results_are_those_of_sentence_transformers(models):
    """Each argument that is obeyed changes the result as in sentence-transformers."""
    library, torch = pytest.importorskip("sentence_transformers"), pytest.importorskip("torch")
    texts, want = expected("asymmetric")["texts"], expected("asymmetric")
    peer = library.SentenceTransformer(str(DATA / "asymmetric"), device="cpu").float()
    for options in ({}, {"prompt_name": "query"}, {"prompt": "a dog: "}, {"normalize_embeddings": True},
                    {"truncate_dim": 4}, {"truncate_dim": 4, "normalize_embeddings": True}, {"batch_size": 2},
                    {"convert_to_tensor": True}, {"show_progress_bar": True}):
        for method in ("encode", "encode_query", "encode_document"):
            got, there = (getattr(one, method)(texts, **options) for one in (models["asymmetric"], peer))
            assert type(got) is type(there) and got.shape == there.shape
            np.testing.assert_allclose(np.asarray(got), np.asarray(there), atol=16 * want["error"])
    got = models["asymmetric"].encode(texts, output_value="token_embeddings")
    for one, there in zip(got, peer.encode(texts, output_value="token_embeddings")):
        np.testing.assert_allclose(one, np.asarray(there), atol=1e-5)
    for one, there in zip(models["asymmetric"].encode(texts, output_value=None), peer.encode(texts, output_value=None)):
        assert one.keys() <= there.keys()
        assert one["input_ids"].tolist() == there["input_ids"][there["attention_mask"] == 1].tolist()
    pairs, error = expected("rank")["texts"], expected("rank")["error"]
    peer = library.CrossEncoder(str(DATA / "rank"), device="cpu", max_length=30)
    peer.model.float()
    for options in ({}, {"activation_fn": torch.nn.Identity()}, {"activation_fn": torch.nn.Tanh()}, {"batch_size": 2},
                    {"convert_to_tensor": True}, {"convert_to_numpy": False}, {"apply_softmax": True}):
        some = [pair for pair in pairs if "" not in pair]  # sentence-transformers drops an empty second text
        got, there = models["rank"].predict(some, **options), peer.predict(some, **options)
        assert type(got) is type(there) and len(got) == len(there)
        np.testing.assert_allclose(np.array([float(x) for x in got]), [float(x) for x in there], atol=16 * error)
        assert isinstance(models["rank"].predict(some[0], **options), type(peer.predict(some[0], **options)))
    for options in ({}, {"top_k": 2}, {"return_documents": True}, {"top_k": 1, "return_documents": True}):
        documents = [pair[1] for pair in some]
        assert same(models["rank"].rank("the cat", documents, **options), peer.rank("the cat", documents, **options),
                    16 * error)


@pytest.mark.parametrize("modules", [True, False])
@pytest.mark.parametrize("limit", [{"max_seq_length": 7}, {"max_seq_length": -3}, {"do_lower_case": True}, {}])
def test_sentence_bert_config_counts_only_with_modules_json(modules, limit, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    texts = ["the cat sleeps on monday " * n for n in (1, 2, 9)]
    folder = with_config("search", tmp_path / "m")
    (folder / "sentence_bert_config.json").unlink()
    (folder / "sentence_bert_config.json").write_text(json.dumps(limit))
    if not modules:
        (folder / "modules.json").unlink()
    elif limit not in ({"max_seq_length": 7}, {}):
        with pytest.raises(ValueError, match="remove modules.json to use the Transformer alone"):
            relpos.Encoder(folder)
        return
    there = library.SentenceTransformer(str(folder), device="cpu").float()
    with relpos.Encoder(folder, type="f32") as model:
        assert model.max_seq_length == (7 if modules and limit else there.max_seq_length)
        np.testing.assert_allclose(model.encode(texts), there.encode(texts), atol=1e-5)


@pytest.mark.parametrize("saved", ["by CrossEncoder.save", "with its own modules.json removed", "by transformers"])
def test_the_longest_pair_is_that_of_a_cross_encoder(saved, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    folder = with_config("rank", tmp_path / "m")
    if saved != "by transformers":
        library.CrossEncoder(str(folder), device="cpu", max_length=9).save(str(tmp_path / "saved"))
        folder = tmp_path / "saved"
    if saved == "with its own modules.json removed":
        (folder / "modules.json").unlink()
    limits = folder / "sentence_bert_config.json"
    limits.write_text(json.dumps((json.loads(limits.read_text()) if limits.exists() else {}) | {"max_seq_length": 7}))
    pairs = [("the cat", "a dog sleeps on monday " * n) for n in (1, 3, 9)]
    peer = library.CrossEncoder(str(folder), device="cpu")
    peer.model.float()
    with relpos.Encoder(folder, type="f32") as model:
        np.testing.assert_allclose(model.predict(pairs), peer.predict(pairs), atol=1e-5)


def names_of_tokenizers():
    auto = pytest.importorskip("transformers.models.auto.tokenization_auto")
    transformers = pytest.importorskip("transformers")
    names = {name for name in dir(transformers) if name.endswith(("Tokenizer", "TokenizerFast"))}
    names |= {name for name in auto.TOKENIZER_MAPPING_NAMES.values() if name} | {"LayoutLMTokenizer", "NoTokenizer"}
    names |= {name.removesuffix("Fast") + "Fast" for name in names}
    return sorted(names - {"EsmTokenizer", "EsmTokenizerFast"})  # these need a vocab.txt


@pytest.mark.parametrize("where", ["tokenizer_config.json", "config.json"])
def test_the_class_of_the_tokenizer(where, tmp_path):
    """Any class gives the tokens and token types of AutoTokenizer, or is refused by name."""
    transformers = pytest.importorskip("transformers")
    folder, one, used = with_config("rank", tmp_path / "m"), ("the cat", "Sleeps on monday"), []
    paths = {name: folder / name for name in ("tokenizer_config.json", "config.json")}
    files = {name: json.loads(path.read_text()) for name, path in paths.items()}
    files["tokenizer_config.json"] = {"model_max_length": 30}
    for name in names_of_tokenizers():
        for each, path in paths.items():
            path.unlink()
            path.write_text(json.dumps(files[each] | ({"tokenizer_class": name} if each == where else {})))
        with relpos.Encoder(folder, type="f32") as model:
            if not model.has_tokenizer:
                with pytest.raises(ValueError, match=rf'{where}: "tokenizer_class" is "{name}"|class, {name[:-4]}'):
                    model.predict(one)
                continue
            peer = transformers.AutoTokenizer.from_pretrained(str(folder))(*one)
            (ids, types), used = relpos.encoder._encode._tokens(model, one, 0), [*used, name]
            assert ids.tolist() == peer["input_ids"], name
            assert types.tolist() == peer.get("token_type_ids", [0] * len(ids)), name
    assert {"BertTokenizer", "LayoutLMTokenizer", "MobileBertTokenizer", "SqueezeBertTokenizerFast"} <= {*used}
    assert not {"RobertaTokenizer", "AlbertTokenizer", "RoFormerTokenizer", "XLMRobertaTokenizer"} & {*used}


@pytest.mark.parametrize("file, model", [("bert", "WordPiece"), ("roberta", "BPE"), ("t5", "Unigram")])
def test_the_class_of_another_model_is_refused(file, model, tmp_path):
    folder = with_config("rank", tmp_path / "m", vocab_size=98)
    (folder / "tokenizer.json").unlink()
    shutil.copy(ROOT / f"tests/tokenizer/data/{file}.json", folder / "tokenizer.json")
    needs = {"BertTokenizer": "WordPiece", "SqueezeBertTokenizerFast": "WordPiece", "MPNetTokenizer": "WordPiece",
             "RobertaTokenizer": "BPE", "LongformerTokenizerFast": "BPE", "XLMRobertaTokenizer": "Unigram",
             "DebertaV2TokenizerFast": "Unigram", "PreTrainedTokenizerFast": model}
    for name, needed in needs.items():
        (folder / "tokenizer_config.json").unlink()
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
        words = rf"its model is {model}, but that of the tokenizer's class, {name.removesuffix('Fast')}, is {needed}"
        with relpos.Encoder(folder, type="f32") as opened:
            if needed != model:
                with pytest.raises(ValueError, match=words):
                    opened.tokenize("a")
            elif not opened.has_tokenizer:
                with pytest.raises(ValueError, match=r"it has \d+ tokens, but the embedding has 98 rows"):
                    opened.tokenize("a")


@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize("in_config", [True, False, None, "absent"])
@pytest.mark.parametrize("name", ["RobertaTokenizer", "LongformerTokenizerFast", "PreTrainedTokenizerFast", None])
def test_add_prefix_space(in_file, in_config, name, tmp_path):
    """With RobertaTokenizer, tokenizer_config.json decides; otherwise tokenizer.json does."""
    transformers = pytest.importorskip("transformers")
    made = json.loads((ROOT / "tests/tokenizer/data/roberta.json").read_text())
    made["pre_tokenizer"]["add_prefix_space"] = made["post_processor"]["add_prefix_space"] = in_file
    made["added_tokens"] = made["added_tokens"][:5]
    config = transformers.RobertaConfig(vocab_size=600, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                                        intermediate_size=8, pad_token_id=1)
    transformers.RobertaModel(config).save_pretrained(folder := tmp_path / "m")
    made["normalizer"] = {"type": "Lowercase"} if in_config is False else None
    (folder / "tokenizer.json").write_text(json.dumps(made))
    keys = {"tokenizer_class": name, "add_prefix_space": in_config}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({key: value for key, value in keys.items() if value not in ("absent", None)}))
    peer = transformers.AutoTokenizer.from_pretrained(str(folder))
    with relpos.Encoder(folder, type="f32") as model:
        for text in ("The cat", " the cat", "", "1234 \u00c9t\u00e9's\n x"):
            assert model.tokenize(text).tolist() == peer(text)["input_ids"]
            assert model.tokenize(text, "A b").tolist() == peer(text, "A b")["input_ids"]


@pytest.mark.parametrize("key", ["do_lower_case", "split_by_punct"])
@pytest.mark.parametrize("name", ["DebertaV2Tokenizer", "DebertaV2TokenizerFast", None, "PreTrainedTokenizerFast"])
def test_settings_of_deberta_are_refused(key, name, tmp_path):
    shutil.copytree(PLAIN / "deberta", folder := tmp_path / "m")
    shutil.copy(ROOT / "tests/tokenizer/data/t5.json", folder / "tokenizer.json")
    for value in (True, False, None):
        config = {key: value} | ({} if name is None else {"tokenizer_class": name})
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        with relpos.Encoder(folder, type="f32") as model:
            refused = value is True and name != "PreTrainedTokenizerFast"
            words = f'tokenizer_config.json: "{key}" is not false' if refused else "it has .* tokens, but the embedding"
            with pytest.raises(ValueError, match=words):
                model.tokenize("a")


# ---------------------------------------------------------------------------------------------- the program

@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8", "int8"])
def test_the_program_writes_the_same(kind, tmp_path):
    texts = [text.replace("\t", " ") for text in expected("search")["texts"]]
    (tmp_path / "lines").write_text("\n".join(texts) + "\n")
    for name, options, more in (("search", [], {}), ("asymmetric", ["--prompt", "query"], {"prompt_name": "query"}),
                                ("asymmetric", ["--prefix", "a ", "--normalize"],
                                 {"prompt": "a ", "normalize_embeddings": True})):
        program("embed", DATA / name, tmp_path / "lines", "--type", kind, "-o", tmp_path / "v.npz", *options)
        with open_model(name, type=kind) as model:
            np.testing.assert_array_equal(model.encode(texts, **more), np.load(tmp_path / "v.npz")["vectors"])
    with open_model("labels", type=kind) as model:
        lines = program("classify", DATA / "labels", "--type", kind, lines="\n".join(texts) + "\n").splitlines()
        assert lines == [f"{one['label']}\t{one['score']:.6f}" for one in model.classify(texts)]
    with open_model("rank", type=kind) as model:
        lines = program("rerank", DATA / "rank", "--type", kind, "--query", "where is the cat",
                        lines="\n".join(texts) + "\n").splitlines()
        found = model.rank("where is the cat", texts, return_documents=True)
        assert lines == [f"{one['score']:.9g}\t{one['corpus_id'] + 1}\t{one['text']}" for one in found]


def test_threads_change_nothing(models):
    texts = [f"the cat {n} sleeps on {'monday ' * (n % 9)}" for n in range(200)]
    with open_model("search", threads=1) as one, open_model("search", threads=None) as default:
        np.testing.assert_array_equal(one.encode(texts), models["search"].encode(texts))
        np.testing.assert_array_equal(default.encode(texts), models["search"].encode(texts))
    got = {}
    threads = [threading.Thread(target=lambda n=n: got.update({n: models["search"].encode(texts).tobytes()}))
               for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(got.values()) == {models["search"].encode(texts).tobytes()} and len(got) == 4


# ---------------------------------------------------------------------------------------------- errors

SEARCH = [
    (lambda m: m.encode(), TypeError, "give either inputs or tokens"),
    (lambda m: m.encode("a", tokens=[1]), TypeError, "give either inputs or tokens"),
    (lambda m: m.encode("a", sentences="a"), TypeError, "give either inputs or tokens"),
    (lambda m: m.encode(b"a"), TypeError, "inputs is of type bytes"),
    (lambda m: m.encode(3), TypeError, "inputs is of type int"),
    (lambda m: m.encode(["a", 3]), TypeError, r"inputs\[1\] is of type int"),
    (lambda m: m.encode(["a", ("b", "c")]), TypeError, r"inputs\[1\] is of type tuple"),
    (lambda m: m.encode("\udc80"), ValueError, "surrogates"),
    (lambda m: m.encode(tokens="1 2"), TypeError, "tokens are of type str"),
    (lambda m: m.encode(tokens=[1.5]), TypeError, "integers"),
    (lambda m: m.encode(tokens=[[1], [-1]]), ValueError, r"tokens\[1\]"),
    (lambda m: m.encode(tokens=[10**6]), ValueError, r"^tokens: token 0 is 1000000, and the vocabulary has 98"),
    (lambda m: m.encode(tokens=[[5]] * 40 + [[5, 98]]), ValueError, r"^tokens\[40\]: token 1 is 98"),
    (lambda m: m.encode(tokens=[5] * 39), ValueError, "^tokens has 39 tokens; the model takes at most 38"),
    (lambda m: m.encode(tokens=[[5]] * 40 + [[5] * 39]), ValueError, r"^tokens\[40\] has 39 tokens"),
    (lambda m: m.encode({"text": "a"}), TypeError, "inputs is of type dict"),
    (lambda m: m.encode({"a", "b"}), TypeError, "inputs is of type set"),
    (lambda m: m.encode("a", prompt_name="none"), ValueError, 'no prompt has the name "none"'),
    (lambda m: m.encode("a", prompt_name="query", prompt="b"), TypeError, "give only one"),
    (lambda m: m.encode(tokens=[5], prompt="b"), TypeError, "tokens= has no text"),
    (lambda m: m.encode("a", prompt="a\0"), TypeError, "null characters"),
    (lambda m: m.encode("a", prompt=3), TypeError, "prompt is 3"),
    (lambda m: m.encode("a", batch_size=0), ValueError, "batch_size is 0"),
    (lambda m: m.encode("a", batch_size="8"), TypeError, "batch_size is '8'"),
    (lambda m: m.encode("a", output_value="hidden"), ValueError, "output_value is 'hidden'"),
    (lambda m: m.encode("a", truncate_dim=25), ValueError, "truncate_dim is 25; it must be 1 to 24"),
    (lambda m: m.encode("a", truncate_dim=0), ValueError, "truncate_dim is 0"),
    (lambda m: m.encode("a", output_value=None, truncate_dim=2), ValueError, "truncate_dim: it needs"),
    (lambda m: m.encode("a", output_value="token_embeddings", normalize_embeddings=True), ValueError,
     "normalize_embeddings: it needs"),
    (lambda m: m.encode("a", progress=3), TypeError, "progress is of type int"),
    (lambda m: m.tokenize(3), TypeError, "text is of type int"),
    (lambda m: m.tokenize("a", 3), TypeError, "pair is of type int"),
    (lambda m: m.tokenize(["a"], "b"), TypeError, "pair: several texts"),
    (lambda m: m.tokenize("a", max_tokens=0), ValueError, "max_tokens is 0"),
    (lambda m: m.tokenize("a", max_tokens=1), ValueError, "max_tokens|special"),
    (lambda m: m.classify("a"), ValueError, "no classification head"),
    (lambda m: m.predict([("a", "b")]), ValueError, "no classification head"),
    (lambda m: m.rank("a", ["b"]), ValueError, "no classification head"),
    (lambda m: m.nothing, AttributeError, "Encoder has no attribute 'nothing'"),
    (lambda m: pickle.dumps(m), TypeError, "cannot be copied or pickled"),
    (lambda m: copy.deepcopy(m), TypeError, "cannot be copied or pickled"),
    (lambda m: relpos.Encoder(DATA / "none"), FileNotFoundError, "none"),
    (lambda m: relpos.Encoder(DATA), ValueError, "config.json"),
    (lambda m: relpos.Encoder(3), TypeError, "int"),
    (lambda m: relpos.Encoder("a\0"), ValueError, "null character"),
    (lambda m: relpos.Encoder(DATA / "search", type="f8"), ValueError, '"f8"'),
    (lambda m: relpos.Encoder(DATA / "search", type=8), TypeError, "type is 8"),
    (lambda m: relpos.Encoder(DATA / "search", threads=0), ValueError, "threads is 0"),
    (lambda m: relpos.Encoder(DATA / "search", threads="2"), TypeError, "threads is '2'"),
    (lambda m: relpos.Encoder(ROOT / "tests/t5/data/byt5"), ValueError, 'model_type "t5"'),
    (lambda m: relpos.Encoder(PLAIN / "bert").encode("a"), ValueError, "no tokenizer"),
    (lambda m: relpos.Encoder(PLAIN / "bert").tokenize("a"), ValueError, "no tokenizer"),
]
RANKER = [
    (lambda m: m.predict("a"), TypeError, "inputs is of type str; it must be a pair"),
    (lambda m: m.predict(["a"]), TypeError, "must be a pair"),
    (lambda m: m.predict(["a", "b", "c"]), TypeError, "must be a pair"),
    (lambda m: m.predict([("a", "b"), ("c",)]), TypeError, r"inputs\[1\] is a tuple of \(str\)"),
    (lambda m: m.predict([("a", "b"), ("c", 3)]), TypeError, r"inputs\[1\] is a tuple of \(str, int\)"),
    (lambda m: m.predict([("a", "b"), {"text": "c"}]), TypeError, r"inputs\[1\] is of type dict"),
    (lambda m: m.predict({("a", "b"), ("c", "d")}), TypeError, "inputs is of type set"),
    (lambda m: m.rank("a", {"b": 1}), TypeError, "documents is of type dict"),
    (lambda m: m.predict(None), TypeError, "inputs is of type NoneType"),
    (lambda m: m.predict([("a", "\udc80")]), ValueError, "surrogates"),
    (lambda m: m.predict([("a", "b")], activation_fn="sigmoid"), TypeError, "activation_fn is of type str"),
    (lambda m: m.rank(3, ["a"]), TypeError, "query is of type int"),
    (lambda m: m.rank("a", "b"), TypeError, "documents is of type str"),
    (lambda m: m.rank("a", ["b", 3]), TypeError, r"documents\[1\] is of type int"),
    (lambda m: m.rank("a", ["b"], 0), ValueError, "top_k is 0"),
]
LABELS = [
    (lambda m: m.rank("a", ["b"]), ValueError, "the model has 3 labels"),
    (lambda m: m.classify(3), TypeError, "inputs is of type int"),
    (lambda m: m.classify(["a", 3]), TypeError, r"inputs\[1\] is of type int"),
    (lambda m: m.classify(("a", "b", "c")), TypeError, "must be a pair"),
    (lambda m: m.classify({"text": "a", "pair": "b"}), ValueError, "the keys text, pair"),
    (lambda m: m.classify({"text": "a", "text_pair": 3}), TypeError, "must be a pair"),
    (lambda m: m.classify("a", top_k=0), ValueError, "top_k is 0"),
    (lambda m: m.classify("a", top_k="all"), TypeError, "top_k is 'all'"),
    (lambda m: m.classify("a", batch_size=0), ValueError, "batch_size is 0"),
    (lambda m: m.classify("a", function_to_apply="none"), TypeError, "function_to_apply"),
]


@pytest.mark.parametrize("name, n", [(name, n) for name, some in (("search", SEARCH), ("rank", RANKER),
                                                                  ("labels", LABELS)) for n in range(len(some))])
def test_what_is_refused(models, name, n):
    call, kind, words = {"search": SEARCH, "rank": RANKER, "labels": LABELS}[name][n]
    with pytest.raises(kind, match=words) as why:
        call(models[name])
    assert "\n" not in str(why.value)
    assert models["search"].encode("a").shape == (24,)


def test_a_closed_model():
    model = open_model("rank")
    model.close()
    model.close()
    assert "closed" in repr(model)
    for call in (lambda: model.encode("a"), lambda: model.encode_query("a"), lambda: model.encode(tokens=[1]),
                 lambda: model.classify("a"), lambda: model.predict(("a", "b")), lambda: model.rank("a", ["b"]),
                 lambda: model.tokenize("a"), lambda: model.encode("a", output_value=None)):
        with pytest.raises(ValueError, match="the model is closed"):
            call()


def test_notes_are_warnings(tmp_path):
    folder = with_config("labels", tmp_path / "m", a_new_key=3)
    with pytest.warns(UserWarning, match="a_new_key") as caught:
        relpos.Encoder(folder).close()
    assert [one.filename for one in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            relpos.Encoder(folder)


# ---------------------------------------------------------------------------------------------- progress, Ctrl-C

def test_progress(models, capsys):
    texts, done = ["the cat sleeps"] * 3, []
    model = models["search"]
    want = model.encode(texts)
    np.testing.assert_array_equal(model.encode(texts, progress=done.append), want)
    assert done[-1] == 1.0
    np.testing.assert_array_equal(model.encode(texts, show_progress_bar=True), want)
    assert capsys.readouterr().err == ""  # a short call shows none

    def stop(_):
        raise Reported
    calls = [lambda m, p: m["search"].encode(["the cat sleeps"] * 9000, progress=p),
             lambda m, p: m["search"].encode(["the cat sleeps"] * 9000, output_value=None, progress=p),
             lambda m, p: m["labels"].classify(["the cat sleeps"] * 9000, progress=p),
             lambda m, p: m["rank"].predict([("the cat", "sleeps")] * 9000, progress=p),
             lambda m, p: m["rank"].rank("the cat", ["sleeps"] * 9000, progress=p)]
    for call in calls:
        with pytest.raises(Reported):
            call(models, stop)


def test_progress_of_several_batches_grows(models, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(relpos._progress, "EVERY", 0)
    calls = [lambda p: models["search"].encode(["the cat"] * 9, output_value=None, batch_size=2, progress=p),
             lambda p: models["search"].encode(["the cat"] * 900, progress=p),
             lambda p: models["rank"].predict([("a", "b")] * 9, activation_fn=torch.tanh, batch_size=2, progress=p)]
    for call in calls:
        done = []
        call(done.append)
        assert len(done) > 2 and done == sorted(done) and done[0] < 0.3 and done[-1] == 1.0


def test_ctrl_c():
    code = ("import signal, sys, relpos\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "m = relpos.Encoder(sys.argv[1])\nprint('begun', flush=True)\n"
            "try:\n    m.encode(['the cat sleeps on monday ' * 9] * 3_000_000)\nexcept KeyboardInterrupt:\n"
            "    print('ended', m.encode('a').shape, flush=True)\n")
    with subprocess.Popen([sys.executable, "-P", "-c", code, DATA / "search"], stdout=subprocess.PIPE,
                          text=True) as child:
        assert child.stdout.readline() == "begun\n"
        time.sleep(1)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=20)[0] == "ended (24,)\n"


def test_the_module_is_there_without_an_import_of_its_own():
    line = ("import relpos, sys; assert 'relpos.encoder' not in sys.modules; print(relpos.Encoder is "
            "relpos.encoder.Encoder)")
    assert subprocess.run([sys.executable, "-P", "-c", line], capture_output=True, text=True,
                          check=True).stdout == "True\n"
