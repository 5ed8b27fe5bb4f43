"""Test the tables of keys, models/t5/keys.def and models/checkpoint/modules.def: they have every key that the installed
transformers and sentence-transformers know, and a changed value changes the results of relpos and of transformers
alike, or relpos refuses it. tools/python.sh runs this with the oldest supported transformers too.
SPDX-License-Identifier: Apache-2.0"""
import contextlib
import dataclasses
import itertools
import json
import shutil
import subprocess
import sys
import warnings

import numpy as np
import oracle
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import relpos.t5  # noqa: E402

sys.path.append(str(oracle.ROOT / "tools"))
import t5_keys  # noqa: E402

from transformers.models.longt5.configuration_longt5 import LongT5Config  # noqa: E402
from transformers.models.mt5.configuration_mt5 import MT5Config  # noqa: E402
from transformers.models.switch_transformers.configuration_switch_transformers import (
    SwitchTransformersConfig)  # noqa: E402
from transformers.models.t5.configuration_t5 import T5Config  # noqa: E402
from transformers.models.umt5.configuration_umt5 import UMT5Config  # noqa: E402

ROWS = t5_keys.read_rows()
# this transformers ignores the two keys of UMT5's head
SCALES = tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24)
CONFIGS = {"t5": T5Config, "mt5": MT5Config, "umt5": UMT5Config, "longt5": LongT5Config,
           "switch_transformers": SwitchTransformersConfig}
SMALL = dict(vocab_size=50, d_model=32, d_kv=8, num_heads=4, num_layers=2, num_decoder_layers=2, d_ff=24,
             decoder_start_token_id=0, eos_token_id=1,
             pad_token_id=0, relative_attention_num_buckets=8, relative_attention_max_distance=16, local_radius=3,
             num_experts=2,
             num_sparse_encoder_layers=1, num_sparse_decoder_layers=1)
SOURCE, TARGET = [7, 8, 9, 10, 11, 30, 31, 32, 33, 34, 1], [20, 21, 22, 23, 1]
TOLERANCE = 2e-5  # of a log-probability; both compute in f32
torch.set_num_threads(1)  # the layers are too small to benefit from threads
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def known(*files):
    return {key for row in ROWS if row.file in files for key in row.keys}


def row_of(file, key):
    return next(row for row in ROWS if row.file == file and key in row.keys)


def private(names):
    """Leave out the names that transformers keeps for itself and does not write."""
    return {name for name in names if not name.startswith("_")}


# ---------------------------------------------------------------------------------------------- the table has every key

@pytest.mark.parametrize("kind", CONFIGS)
def test_every_key_of_a_config_is_known(kind, tmp_path):
    config = CONFIGS[kind](decoder_start_token_id=0)
    config.save_pretrained(tmp_path)
    names = {*config.to_dict(), *private(vars(config)), *json.loads((tmp_path / "config.json").read_text()),
             *config.attribute_map,
             *(field.name for field in dataclasses.fields(config))}
    assert len(names) > 20
    assert not names - known("CONFIG", "GENERATION"), "add these keys to models/t5/keys.def"


def test_every_key_of_a_generation_config_is_known(tmp_path):
    config = transformers.GenerationConfig()
    config.save_pretrained(tmp_path)
    names = {*config.to_dict(), *private(vars(config)), *json.loads((tmp_path / "generation_config.json").read_text())}
    assert len(names) > 50
    assert not names - known("GENERATION"), "add these keys to models/t5/keys.def"


def tokenizer_folder(path, kind="json"):
    """Write a tokenizer, and return the object of transformers."""
    if kind == "bytes":
        tokenizer = transformers.ByT5Tokenizer()
    else:
        for file in ("spiece.model", "tokenizer.json")[:1 if kind == "spiece" else 2]:
            shutil.copy(oracle.ROOT / f"tests/tokenizer/data/{'t5.json' if file == 'tokenizer.json' else 't5.model'}",
                        path / file)
        tokenizer = transformers.T5TokenizerFast.from_pretrained(path)
    (path / "spiece.model").unlink(missing_ok=True)
    if kind != "spiece":
        tokenizer.save_pretrained(path)
    else:
        shutil.copy(oracle.ROOT / "tests/tokenizer/data/t5.model", path / "spiece.model")
    return tokenizer


@pytest.mark.parametrize("kind", ["json", "bytes"])
def test_every_key_of_a_tokenizer_config_is_known(kind, tmp_path):
    tokenizer_folder(tmp_path, kind)
    names = set(json.loads((tmp_path / "tokenizer_config.json").read_text()))
    assert len(names) > 5
    assert not names - known("TOKENIZER"), "add these keys to models/t5/keys.def"
    assert (not set(transformers.PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES) - known("SPECIAL")
            - {"additional_special_tokens"})


def test_every_key_of_sentence_transformers_is_known():
    st = pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules.dense import Dense
    from sentence_transformers.base.modules.normalize import Normalize
    from sentence_transformers.base.modules.transformer import Transformer
    from sentence_transformers.sentence_transformer.modules import pooling
    for file, module in {"POOLING": pooling.Pooling, "DENSE": Dense, "NORMALIZE": Normalize,
                         "TRANSFORMER": Transformer}.items():
        names = {*module.config_keys, *module.config_key_renames}
        assert names and not names - known(file), "add these keys to models/checkpoint/modules.def"
    assert not set(pooling._LEGACY_POOLING_MODE_KWARGS) - known("POOLING")
    with torch.no_grad():
        model = st.SentenceTransformer(modules=[pooling.Pooling(4)], device="cpu", truncate_dim=3)
    assert not set(model._get_model_config()) - known("SENTENCE")


# ---------------------------------------------------------------------------------------------- values change both
# alike

def make_model(kind, folder, **settings):
    """Save a model whose layers all matter, and return its config.json."""
    fields = {"decoder_start_token_id", *(field.name for field in dataclasses.fields(CONFIGS[kind]))}
    settings = {key: value for key, value in {**SMALL, **settings}.items() if key in fields}
    torch.manual_seed(0)
    model = transformers.AutoModelForSeq2SeqLM.from_config(CONFIGS[kind](**settings)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "layer_norm" not in name:
                p.copy_(torch.randn_like(p) * (0.7 if "bias" in name else 0.3 if "shared" in name else 1.3
                                               / p.shape[-1] ** 0.5))
    model.save_pretrained(folder)
    return json.loads((folder / "config.json").read_text())


def of_transformers(folder):
    """Return the log-probabilities of TARGET; None if transformers does not open the folder, or initializes some
    weights."""
    try:
        model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True,
                                                                         dtype=torch.float32)
        if info["missing_keys"] or info["mismatched_keys"] or info["unexpected_keys"]:
            return None
        start = model.config.decoder_start_token_id
        with torch.no_grad():
            logits = model.eval()(input_ids=torch.tensor([SOURCE]),
                                  decoder_input_ids=torch.tensor([[start, *TARGET[:-1]]])).logits
    except Exception:  # transformers raises many types of exceptions for wrong configs
        return None
    return logits.log_softmax(-1)[0, torch.arange(len(TARGET)), TARGET].numpy()


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def of_relpos(folder):
    """Return the log-probabilities of TARGET, or the message of the error."""
    try:
        with quiet(), relpos.t5.T5(folder, type="f32", threads=1) as model:
            return model.score(source_tokens=[SOURCE], target_tokens=[TARGET], each=True)[0]
    except ValueError as why:
        return str(why)


def compare(folder, config, what, alone=False):
    """Check that both agree on the folder with this config; with `alone`, run only relpos. Return its numbers, or None
    if it refuses."""
    (folder / "config.json").write_text(json.dumps(config))
    found = of_relpos(folder)
    if isinstance(found, str):
        assert (str(folder) in found
                or '"is_encoder_decoder" is false' in found) and "\n" not in found, f"{what}: {found}"
        return None
    wanted = None if alone else of_transformers(folder)
    if wanted is not None:
        assert np.abs(found - wanted).max() < TOLERANCE * max(1, np.abs(wanted).max()), f"{what}: {found} for {wanted}"
    return found


def others(key, value):
    """Return other values for a key of config.json."""
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int):
        return [value + 1, max(value - 1, 0), None]
    if isinstance(value, float):
        return [value * 3 + 0.1, None]
    if isinstance(value, str):
        return ["relu", "gelu", "gelu_new", "silu", "gated-relu", "gated-gelu", "float16", "local", "transient-global",
                "", None]
    return [None, True, False, 3, 0.5, "x"]


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_changed_value_changes_both_alike(kind, tmp_path):
    config = make_model(kind, tmp_path)
    plain = compare(tmp_path, config, "unchanged")
    assert plain is not None and of_transformers(tmp_path) is not None
    optional = {key: None for row in ROWS if row.file == "CONFIG" for key in row.keys if key not in config}
    different = refused = 0
    for key, value in {**optional, **config}.items():
        if key in known("GENERATION") or key in ("model_type", "architectures", "transformers_version"):
            continue
        use = row_of("CONFIG", key).use
        for other in others(key, value):
            alone = ((use == "SAME" and key not in config)
                     or (SCALES and kind == "umt5" and key in ("tie_word_embeddings", "scale_decoder_outputs")))
            found = compare(tmp_path, config | {key: other}, f"{key} = {other!r}", alone)
            different += found is not None and not np.array_equal(found, plain)
            refused += found is None
            if use == "SAME":
                assert np.array_equal(found, plain), f"{key} = {other!r} has an effect"
    assert different > 4 and refused > 20


HEADS = list(itertools.product([..., None, False, True], [..., None, False, True], ["absent", "equal", "other"]))


@pytest.mark.parametrize("kind", CONFIGS)
def test_heads(kind, tmp_path):
    """The factor before the head, for every combination of the two keys and of the head's weights."""
    import safetensors.torch
    config = make_model(kind, tmp_path)
    path = tmp_path / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    weights.pop("lm_head.weight", None)
    other = torch.randn(weights["shared.weight"].shape, generator=torch.Generator().manual_seed(3)) / 5
    seen = set()
    for tie, scale, head in HEADS:
        own = {"absent": {}, "equal": {"lm_head.weight": weights["shared.weight"].clone()},
               "other": {"lm_head.weight": other}}[head]
        safetensors.torch.save_file(weights | own, path, {"format": "pt"})
        made = {key: value for key, value in config.items()
                if key not in ("tie_word_embeddings", "scale_decoder_outputs")}
        made |= {} if tie is ... else {"tie_word_embeddings": tie}
        made |= {} if scale is ... else {"scale_decoder_outputs": scale}
        found = compare(tmp_path, made, f"tie {tie}, scale {scale}, head {head}", alone=SCALES and kind == "umt5")
        seen.add(None if found is None else round(float(found[0]), 3))
    assert len(seen - {None}) == (2 if kind == "mt5" else 4 if kind != "switch_transformers" else 4)


ACTIVATIONS = list(itertools.product(["relu", "gated-gelu", "gated-silu"], [..., None, "relu", "gelu", "gelu_new"],
                                     [..., None, False, True]))


@pytest.mark.parametrize("kind", CONFIGS)
def test_activations(kind, tmp_path):
    """dense_act_fn and is_gated_act replace feed_forward_proj."""
    models = {gate: make_model(kind, tmp_path / gate, feed_forward_proj="gated-gelu" if gate == "gated" else "relu")
              for gate in ("gated", "plain")}
    compared = 0
    for gate, (proj, act, gated) in itertools.product(models, ACTIVATIONS):
        made = {key: value for key, value in models[gate].items()
                if key not in ("feed_forward_proj", "dense_act_fn", "is_gated_act")}
        made |= ({"feed_forward_proj": proj} | ({} if act is ... else {"dense_act_fn": act})
                 | ({} if gated is ... else {"is_gated_act": gated}))
        compared += compare(tmp_path / gate, made, f"{gate}: {proj}, {act}, {gated}") is not None
    assert compared > 20


@pytest.mark.parametrize("kind", CONFIGS)
def test_other_values_are_refused(kind, tmp_path):
    """Every value that the table does not allow is refused by the name of its key, in config.json when the model is
    opened."""
    config = make_model(kind, tmp_path)
    for row in ROWS:
        for key in row.keys if row.file == "CONFIG" and row.use == "ONLY" else []:
            for value in [None, *row.values]:
                assert compare(tmp_path, config | {key: value}, key, alone=True) is not None
            for value in (True, 7, "x", {"a": 1}, [1]):
                (tmp_path / "config.json").write_text(json.dumps(config | {key: value}))
                assert f'"{key}" is ' in of_relpos(tmp_path)


def test_generation_refuses_other_values(tmp_path):
    """The same for the keys of generation, where text is generated, from both files. The other keys have no effect."""
    config = make_model("t5", tmp_path)
    plain = json.loads((tmp_path / "generation_config.json").read_text()) | {"max_new_tokens": 6}

    def written(settings, file="generation_config.json"):
        for name in ("config.json", "generation_config.json"):
            (tmp_path / name).write_text(json.dumps(settings | (config if name == "config.json" else {})))
        if file == "config.json":
            (tmp_path / "generation_config.json").unlink()
        with quiet(), relpos.t5.T5(tmp_path, type="f32", threads=1) as model:
            try:
                return model.generate(tokens=[SOURCE])[0].tolist()
            except ValueError as why:
                return str(why)
    wanted = written(plain)
    assert isinstance(wanted, list)
    for row in ROWS:
        for key in row.keys if row.file == "GENERATION" and row.use != "USED" else []:
            for value in [None, *(row.values if row.use == "ONLY" else (True, False, 3, 0.5, "x", {}, [2]))]:
                assert written(plain | {key: value}) == wanted, (key, value)
            for file in ("generation_config.json", "config.json") if row.use == "ONLY" else ():
                assert written(plain | {key: 0.37}, file).startswith(f'{file} sets "{key}"')


@pytest.mark.parametrize("ends", (None, [], 1))
@pytest.mark.parametrize("file", ("config.json", "generation_config.json"))
def test_end_tokens(file, ends, tmp_path):
    """null is a model without an end token, not the default."""
    make_model("t5", tmp_path)
    for name in ("config.json", "generation_config.json"):
        keys = json.loads((tmp_path / name).read_text()) | {"max_new_tokens": 12}
        keys |= {"eos_token_id": ends} if name == file else {}
        (tmp_path / name).write_text(json.dumps(keys))
    if file == "config.json":
        (tmp_path / "generation_config.json").unlink()
    model = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path).eval()
    with quiet(), relpos.t5.T5(tmp_path, type="f32", threads=1) as ours:
        for source in ([7, 8, 9, 10, 11, 1], [3, 4], SOURCE):
            wanted = model.generate(torch.tensor([source]))[0, 1:].tolist()
            if wanted and ends == wanted[-1]:
                wanted = wanted[:-1]
            assert ours.generate(tokens=[source])[0].tolist() == wanted


INTEGERS = {
    "config.json": ["vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_decoder_layers", "num_heads",
                    "relative_attention_num_buckets", "relative_attention_max_distance", "local_radius", "num_experts",
                    "expert_capacity", "num_sparse_encoder_layers", "num_sparse_decoder_layers", "encoder_sparse_step",
                    "decoder_sparse_step", "pad_token_id", "eos_token_id", "decoder_start_token_id"],
    "generation_config.json": ["max_length", "max_new_tokens", "min_length", "min_new_tokens", "num_beams",
                               "num_return_sequences", "top_k", "no_repeat_ngram_size", "forced_bos_token_id",
                               "forced_eos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id",
                               "bos_token_id", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids"]}


@pytest.mark.parametrize("file, key", [(file, key) for file in INTEGERS for key in INTEGERS[file]])
def test_integers_that_are_written_as_floats(file, key, tmp_path):
    """relpos takes 6.0 for 6 where transformers does, and refuses it in words elsewhere."""
    kind = ("longt5" if key == "local_radius" else
            "switch_transformers" if "expert" in key or "sparse" in key else "t5")
    config = make_model(kind, tmp_path)
    about = json.loads((tmp_path / file).read_text())
    if key == "bos_token_id":  # read only without the other
        about.pop("decoder_start_token_id")
    value = float(about.get(key) or {"pad_token_id": 0, "decoder_start_token_id": 0, "bos_token_id": 0,
                                     "encoder_sparse_step": 2, "decoder_sparse_step": 2, "expert_capacity": 64,
                                     "max_length": 9, "num_return_sequences": 1}.get(key, 5 if "token" in key else 2))
    lists = {"suppress_tokens": [value], "begin_suppress_tokens": [value], "bad_words_ids": [[value]]}
    limits = {} if "max" in key else {"max_new_tokens": 8}
    found = {}
    for number in (value, int(value), value + 0.5):
        written = json.loads(json.dumps(lists.get(key, value)).replace(str(value), str(number)))
        (tmp_path / file).write_text(json.dumps(about | (limits if "generation" in file else {}) | {key: written}))
        try:
            with quiet(), relpos.t5.T5(tmp_path, type="f32", threads=1) as model:
                found[number if type(number) is int else str(number)] = model.generate(tokens=[SOURCE])[0].tolist()
        except ValueError as why:
            found[number if type(number) is int else str(number)] = str(why)
        if number is value:
            try:
                with quiet():
                    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
                    runs = model.generate(torch.tensor([SOURCE])) is not None
            except Exception:  # of many types
                runs = False
    assert isinstance(found[int(value)], list)
    assert f'"{key}" ' in found[str(value + 0.5)]
    if runs:
        assert found[str(value)] == found[int(value)]
    else:
        assert f'"{key}" ' in found[str(value)] and f"{value}" in found[str(value)]


def test_a_length_without_space_is_refused(tmp_path):
    make_model("t5", tmp_path)
    about = json.loads((tmp_path / "generation_config.json").read_text())
    about.pop("max_new_tokens", None)
    (tmp_path / "generation_config.json").write_text(json.dumps(about | {"max_length": 1}))
    with quiet(), relpos.t5.T5(tmp_path, type="f32", threads=1) as ours:
        with pytest.raises(ValueError, match='generation_config.json sets "max_length"'):
            ours.generate(tokens=[SOURCE])


@pytest.mark.parametrize("given", [{}, {"num_beams": 2}, {"num_beams": 3}, {"do_sample": True}, {"temperature": 0.0},
                                   {"num_beams": 2, "top_p": 0.5}])
def test_numbers_of_results(given, tmp_path):
    """relpos refuses num_return_sequences where transformers does, and gives as many results elsewhere."""
    make_model("t5", tmp_path)
    about = json.loads((tmp_path / "generation_config.json").read_text())
    returned = 3 if "temperature" not in given else 1
    about |= given | {"num_return_sequences": returned, "max_new_tokens": 4}
    (tmp_path / "generation_config.json").write_text(json.dumps(about))
    with quiet(), relpos.t5.T5(tmp_path, type="f32", threads=1) as ours:
        try:
            model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
            wanted = len(model.generate(torch.tensor([SOURCE])))
        except ValueError:
            with pytest.raises(ValueError, match='generation_config.json: "num_return_sequences" is 3'):
                ours.generate(tokens=[SOURCE])
        else:
            found = ours.generate(tokens=[SOURCE])[0]
            assert (len(found) if returned > 1 else 1) == wanted == returned


# ---------------------------------------------------------------------------------------------- notes, kinds

def test_an_unknown_key_is_named_once(tmp_path):
    config = make_model("t5", tmp_path)
    for file in ("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"):
        known_keys = json.loads((tmp_path / file).read_text()) if (tmp_path / file).exists() else {}
        (tmp_path / file).write_text(json.dumps(known_keys | {f"new_{file[:3]}": 1, "other": [2]}))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        relpos.t5.T5(tmp_path, type="f32").close()
    assert sorted(str(one.message) for one in seen) == sorted(
        f'{tmp_path}/{file}: ignored the unknown keys "new_{file[:3]}", "other"'
        for file in ("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"))
    assert all(one.filename == __file__ for one in seen)
    relpos_program = oracle.program()
    done = subprocess.run([relpos_program, "t5", "info", tmp_path], capture_output=True, text=True, check=True)
    assert sorted(done.stderr.splitlines()) == sorted(f"relpos: note: {one.message}" for one in seen)
    (tmp_path / "config.json").write_text(json.dumps(config | {f"k{n}": n for n in range(500)}))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        relpos.t5.T5(tmp_path, type="f32").close()
    assert "k0" in str(seen[0].message) and " more" in str(seen[0].message) and len(str(seen[0].message)) < 512


def test_start_tokens_that_differ(tmp_path):
    """transformers begins targets with the token of config.json to score them, and with that of generation_config.json
    to write them."""
    make_model("t5", tmp_path)
    about = json.loads((tmp_path / "generation_config.json").read_text())
    for start in (0, 5):
        (tmp_path / "generation_config.json").write_text(json.dumps(about | {"decoder_start_token_id": start}))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            relpos.t5.T5(tmp_path, type="f32").close()
        assert [str(one.message) for one in seen] == [
            f"{tmp_path}/generation_config.json: targets begin with token 5, although config.json says 0 "
            "(decoder_start_token_id)"] * (start == 5)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_config_without_model_type(kind, tmp_path):
    config = make_model(kind, tmp_path)
    plain = compare(tmp_path, config, "unchanged")
    del config["model_type"]
    assert np.array_equal(compare(tmp_path, config, "architectures"), plain)
    name = config["architectures"][0].removesuffix("ForConditionalGeneration")
    config["architectures"] = [name + "Model", name + "EncoderModel"]
    assert np.array_equal(compare(tmp_path, config, "two architectures"), plain)
    for wrong in ([], ["BertModel"], [name + "Model", "BertModel"],
                  [name + "Model", "MT5Model" if kind != "mt5" else "T5Model"], [3], None, "T5Model"):
        (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": wrong}))
        assert '"model_type" is missing' in of_relpos(tmp_path) and "longt5" in of_relpos(tmp_path)


# ---------------------------------------------------------------------------------------------- tokenizers

TEXTS = ["Hello , world ! It 's  a test .", "do n't <extra_id_0> and  you 've", "I 'm ' here ' ?", "",
         "A B.C ,, we 're"]
VALUES = {"do_lower_case": [True, False], "split_special_tokens": [True, False], "add_bos_token": [True, False],
          "add_eos_token": [True, False],
          "add_prefix_space": [True, False, None], "legacy": [True, False],
          "sp_model_kwargs": [{"enable_sampling": True}, {}],
          "clean_up_tokenization_spaces": [True, False, None], "padding_side": ["left", "right"],
          "truncation_side": ["left", "right"],
          "model_max_length": [4, 100000], "max_length": [3], "stride": [1], "truncation_strategy": ["longest_first"],
          "chat_template": ["x"],
          "spaces_between_special_tokens": [True, False],
          "tokenizer_class": ["T5Tokenizer", "T5TokenizerFast", "PreTrainedTokenizerFast", "MT5Tokenizer",
                              "BertTokenizer"],
          "model_input_names": [["input_ids"]], "name_or_path": ["x"], "use_fast": [False, True]}


@pytest.mark.parametrize("kind", ["json", "spiece", "bytes"])
def test_tokenizers_change_alike(kind, tmp_path):
    """A changed value in tokenizer_config.json gives the tokens and texts of transformers, or is refused."""
    make_model("t5", tmp_path, vocab_size=1200)
    plain = tokenizer_folder(tmp_path, kind)
    if kind == "bytes":
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config | {"tokenizer_class": "ByT5Tokenizer"}))
    about = (json.loads((tmp_path / "tokenizer_config.json").read_text()) if kind != "spiece"
             else {"tokenizer_class": "T5Tokenizer"})
    texts = [text for text in TEXTS if kind != "spiece" or "?" not in text]  # spiece.model has no piece for it
    rows = [plain(text).input_ids for text in texts]
    refused = 0
    for key, value in [(None, None), *((key, value) for key, values in VALUES.items() for value in values)]:
        if key == "tokenizer_class" and kind != "json":
            continue  # other classes do not read spiece.model, and ByT5 has no file
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(about | ({key: value} if key else {})))
        with quiet():
            theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
            ours = relpos.t5.T5(tmp_path, type="f32")
        with ours:
            if not ours.has_tokenizer:
                with pytest.raises(ValueError, match=f'tokenizer_config.json: "{key}" is '):
                    ours.tokenize("a")
                refused += 1
                continue
            theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
            assert [row.tolist() for row in ours.tokenize(texts)] == [theirs(text).input_ids
                                                                      for text in texts], (key, value)
            assert ours.detokenize(rows) == [theirs.decode(row, skip_special_tokens=True) for row in rows], (key, value)
    assert refused == 3 + (kind == "json")


def test_clean_up_in_packed_files_and_streams(tmp_path):
    make_model("t5", tmp_path, vocab_size=1200)
    plain = tokenizer_folder(tmp_path)
    about = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"clean_up_tokenization_spaces": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(about))
    text = "It 's a , test . do n't ' we 've"
    with relpos.t5.T5(tmp_path, type="f32") as model:
        model.pack(tmp_path / "packed")
        row = model.tokenize(text)
        wanted = plain.clean_up_tokenization(plain.decode(row, skip_special_tokens=True))
        assert wanted != plain.decode(row, skip_special_tokens=True) and model.detokenize(row) == wanted
        for n in range(len(row)):
            assert wanted.startswith(model._settled(model.detokenize(row[:n])))
        for begin in ("It 's", "we ' ve n't . "):
            assert "".join(model.stream("test", begin=begin,
                                        max_new_tokens=40)) == model.generate("test", begin=begin, max_new_tokens=40)
    with relpos.t5.T5(tmp_path / "packed") as model:
        assert model.detokenize(row) == wanted


# ---------------------------------------------------------------------------------------------- sentence-transformers

@pytest.mark.parametrize("dim", [None, 1, 5, 7, 12, 13])
def test_truncate_dim(dim, tmp_path):
    st = pytest.importorskip("sentence_transformers")
    data = oracle.ROOT / "tests/t5/sentence"
    for name in ("new", "all"):
        folder = tmp_path / name
        shutil.copytree(data / name, folder)
        about = json.loads((folder / "config_sentence_transformers.json").read_text()) | {"truncate_dim": dim}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(about))
        lines = (data / "lines.txt").read_text().splitlines()
        model = st.SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
        with relpos.t5.T5(folder, type="f32") as ours:
            for normalize in (False, True):
                wanted, found = model.encode(lines,
                                             normalize_embeddings=normalize), ours.encode(lines, normalize=normalize)
                assert found.shape == wanted.shape == (len(lines), ours.vector_width)
                assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()


def test_sentence_values_are_refused(tmp_path):
    """Every value that the table does not allow in the files of sentence-transformers is refused by the name of its
    key."""
    files = {"POOLING": "1_Pooling/config.json", "DENSE": "2_Dense/config.json", "NORMALIZE": "3_Normalize/config.json",
             "TRANSFORMER": "sentence_bert_config.json", "SENTENCE": "config_sentence_transformers.json"}
    shutil.copytree(oracle.ROOT / "tests/t5/sentence/new", tmp_path / "new")
    for row in ROWS:
        path = tmp_path / "new" / files.get(row.file, "modules.json")
        old = path.read_text()
        for key in row.keys if row.file in files and row.use != "USED" else []:
            for value in [None, *row.values] if row.use == "ONLY" else [True, 3, "x", {"a": 1}]:
                path.write_text(json.dumps(json.loads(old) | {key: value}))
                relpos.t5.T5(tmp_path / "new").close()
            for value in (True, 7, "x", {"a": 1}, [1]) if row.use == "ONLY" else ():
                path.write_text(json.dumps(json.loads(old) | {key: value}))
                with pytest.raises(ValueError, match=rf'{path.name}: "{key}" is .*remove modules.json'):
                    relpos.t5.T5(tmp_path / "new")
        path.write_text(old)
    path = tmp_path / "new/config_sentence_transformers.json"
    for wrong in (0, -1, 2.5, "5", True):
        path.write_text(json.dumps({"truncate_dim": wrong}))
        with pytest.raises(ValueError, match="truncate_dim is not a whole number from 1 to"):
            relpos.t5.T5(tmp_path / "new")
