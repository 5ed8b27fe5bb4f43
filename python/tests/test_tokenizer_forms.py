"""A tokenizer gives the tokens and texts of transformers in every form: a spiece.model, a tokenizer.json, a .gguf file and a packed file;
for T5, mT5, UMT5 with bytes for unknown characters, and ByT5; with added tokens of every kind.
SPDX-License-Identifier: Apache-2.0"""
import json
import pathlib
import random
import shutil
import struct
import sys
import warnings

import numpy as np
import pytest

sentencepiece = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.numpy")
pytest.importorskip("google.protobuf")
t5 = pytest.importorskip("relpos.t5")

root = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(root / "tests/tokenizer"))
from hard_texts import hard_texts, special_texts  # noqa: E402

TEXTS = [*dict.fromkeys([t.decode() for t in hard_texts() if t.decode("utf-8", "ignore").encode() == t] + special_texts())]
D = 32  # width of the models
NAMES = {"shared.weight": "token_embd.weight", "encoder.final_layer_norm.weight": "enc.output_norm.weight"}
BLOCK = {"0.SelfAttention.q": "attn_q", "0.SelfAttention.k": "attn_k", "0.SelfAttention.v": "attn_v", "0.SelfAttention.o": "attn_o",
         "0.SelfAttention.relative_attention_bias": "attn_rel_b", "0.layer_norm": "attn_norm", "1.layer_norm": "ffn_norm",
         "1.DenseReluDense.wi": "ffn_up", "1.DenseReluDense.wo": "ffn_down"}


def tensors(vocab):
    """Return the weights of an encoder of one layer."""
    shapes = {"shared.weight": (vocab, D), "encoder.final_layer_norm.weight": (D,)}
    for name in BLOCK:
        shapes[f"encoder.block.0.layer.{name}.weight"] = (32, 4) if "bias" in name else (D,) if "norm" in name else (D, D)
    draw = np.random.default_rng(1)
    return {name: draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def write_model(folder, vocab, kind="t5", **more):
    """Write the weights and the configuration of a model whose tokenizer the folder has."""
    safetensors.save_file(tensors(vocab), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({
        "model_type": kind, "vocab_size": vocab, "d_model": D, "d_kv": 8, "d_ff": D, "num_heads": 4, "num_layers": 1,
        "feed_forward_proj": "relu", "is_encoder_decoder": False, "architectures": ["T5EncoderModel"], **more}))


def write_gguf(path, spiece, vocab, added=()):
    """Write the model as a .gguf file, as llama.cpp's conversion does."""
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto.FromString(spiece.read_bytes())
    rules = proto.normalizer_spec
    pieces = [(f"[PAD{k}]", -10000.0, 5) for k in range(vocab)]
    pieces[:len(proto.pieces)] = [(p.piece, p.score, 1 if p.type == 4 else p.type) for p in proto.pieces]
    for k, token in added:
        pieces[k] = (token, -1000.0, 4)

    def text(x):
        x = x if isinstance(x, bytes) else x.encode()
        return struct.pack("<Q", len(x)) + x

    def array(kind, code, values):
        items = b"".join(map(text, values)) if kind == 8 else struct.pack(f"<{len(values)}{code}", *values)
        return struct.pack("<IIQ", 9, kind, len(values)) + items

    def number(x):
        return struct.pack("<IB", 7, x) if isinstance(x, bool) else struct.pack("<If", 6, x) if isinstance(x, float) else struct.pack("<II", 4, x)

    tokens = {"tokens": array(8, "", [p for p, _, _ in pieces]), "scores": array(6, "f", [s for _, s, _ in pieces]),
              "token_type": array(5, "i", [k for _, _, k in pieces]), "add_space_prefix": number(bool(rules.add_dummy_prefix)),
              "remove_extra_whitespaces": number(bool(rules.remove_extra_whitespaces)), "eos_token_id": number(1),
              "padding_token_id": number(0), "model": struct.pack("<I", 8) + text("t5")}
    if rules.precompiled_charsmap:
        tokens["precompiled_charsmap"] = array(0, "B", rules.precompiled_charsmap)
    keys = {f"tokenizer.ggml.{name}": value for name, value in tokens.items()}
    keys["general.architecture"] = struct.pack("<I", 8) + text("t5encoder")
    sizes = {"context_length": 512, "embedding_length": D, "feed_forward_length": D, "block_count": 1, "attention.head_count": 4,
             "attention.key_length": 8, "attention.value_length": 8, "attention.layer_norm_epsilon": 1e-6,
             "attention.layer_norm_rms_epsilon": 1e-6, "attention.relative_buckets_count": 32}
    keys |= {f"t5encoder.{name}": number(value) for name, value in sizes.items()}
    info, data = b"", b""
    for name, x in tensors(vocab).items():
        block = name.removeprefix("encoder.block.0.layer.").removesuffix(".weight")
        name = NAMES.get(name) or f"enc.blk.0.{BLOCK[block]}.weight"
        info += text(name) + struct.pack(f"<I{x.ndim}Q", x.ndim, *x.shape[::-1]) + struct.pack("<IQ", 0, len(data))
        data += x.tobytes() + bytes(-x.nbytes % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors(vocab)), len(keys)) + b"".join(text(k) + v for k, v in keys.items()) + info
    path.write_bytes(head + bytes(-len(head) % 32) + data)


@pytest.fixture(scope="module")
def spiece(tmp_path_factory):
    """Return a function that trains a spiece.model."""
    folder, lines = tmp_path_factory.mktemp("spiece"), []
    for path in sorted(root.glob("docs/*.md")):
        lines += [line for line in path.read_text(encoding="utf-8").splitlines() if 10 < len(line) < 400]

    def train(name, **options):
        path = folder / f"{name}.model"
        if not path.exists():
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines[:3000]), model_prefix=str(folder / name), minloglevel=2, hard_vocab_limit=False, num_threads=1,
                **{"vocab_size": 700, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, **options})
        return path

    return train


def differences(model, oracle, texts=TEXTS):
    """Compare both directions with a tokenizer of transformers, with special tokens kept and skipped. Yield what differs."""
    wanted = [oracle(text).input_ids for text in texts]
    for text, want, found in zip(texts, wanted, model.tokenize(texts)):
        if found.tolist() != want:
            yield f"{text!r} is {found.tolist()}: {want}"
    draw, size = random.Random(5), len(oracle)
    lists = wanted + [[draw.choice([draw.randrange(size), draw.randrange(3), size - 1 - draw.randrange(9)]) for _ in range(draw.randrange(1, 9))]
                      for _ in range(300)]
    lists = [ids for ids in lists if max(ids, default=0) < model.vocab]
    assert len(lists) > 400
    for skip in (False, True):
        for ids, found in zip(lists, model.detokenize(lists, skip_special_tokens=skip)):
            want = oracle.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
            if found != want:
                yield f"{ids}, skip {skip}, is {found!r}: {want!r}"


def check(label, model, oracle, texts=TEXTS):
    found = [*differences(model, oracle, texts)]
    assert not found, f"{label}: {len(found)} differences, such as {found[0]}"


CONFIG = {"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def flags(content, *names, special=False):
    known = ("lstrip", "rstrip", "single_word", "normalized")
    return {"content": content, "special": special, **{name: name in names for name in known}}


def decoder(*tokens):
    """Return added_tokens_decoder with these tokens, which have no numbers yet, and the usual special tokens."""
    return [*(flags(content, special=True) for content in ("<pad>", "</s>", "<unk>")), *tokens]


# Files beside a spiece.model of 700 pieces: configuration, added_tokens.json, special_tokens_map.json
BESIDE = {
    "as published": ({**CONFIG, "extra_ids": 100}, None, {"eos_token": {"content": "</s>"}, "pad_token": "<pad>", "unk_token": "<unk>"}),
    "no files": (None, None, None),
    "few": ({**CONFIG, "extra_ids": 7}, None, None),
    "none": ({**CONFIG, "extra_ids": 0}, None, None),
    "legacy": ({**CONFIG, "extra_ids": 10, "legacy": True}, None, None),
    "not legacy": ({**CONFIG, "extra_ids": 10, "legacy": False}, None, None),
    "another end": ({**CONFIG, "extra_ids": 10, "eos_token": "<end>"}, None, None),
    "another end in the map": ({**CONFIG, "extra_ids": 10}, None, {"eos_token": "<e>", "unk_token": "the", "pad_token": "<sep>"}),
    "properties in the map": ({**CONFIG, "extra_ids": 10}, None, {"eos_token": flags("</s>", "lstrip", "rstrip"), "sep_token": flags("<e>", "lstrip")}),
    "a list": ({**CONFIG, "extra_ids": 10, "additional_special_tokens": ["<sep>", *(f"<extra_id_{k}>" for k in range(10))]}, None, None),
    "a short list": ({**CONFIG, "extra_ids": 10, "additional_special_tokens": ["<sep>"]}, None, None),
    "an empty list": ({**CONFIG, "extra_ids": 10, "additional_special_tokens": []}, None, None),
    "no list": ({**CONFIG, "extra_ids": 10, "additional_special_tokens": None}, None, None),
    "a list in the map": ({**CONFIG, "extra_ids": 10}, None, {"additional_special_tokens": ["<sep>", "<x>"]}),
    "a new list": ({**CONFIG, "extra_ids": 10, "extra_special_tokens": ["<sep>", "<extra_id_0>"]}, None, None),
    "names": ({**CONFIG, "extra_ids": 10, "extra_special_tokens": {"image_token": "<sep>"}, "audio_token": "<e>"}, None, None),
    "added": ({**CONFIG, "extra_ids": 10}, ["<x>", "Ab c", "the", "①x"], {"additional_special_tokens": ["<x>"]}),
    "added, special": ({**CONFIG, "extra_ids": 10, "additional_special_tokens": ["<x>", "<sep>"]}, ["<x>", "<y>"], {"cls_token": "<y>"}),
    "decoder": ({**CONFIG, "extra_ids": 10, "added_tokens_decoder": decoder(
        flags("<x>", "lstrip"), flags("<e>", "rstrip"), flags("<sep>", "lstrip", "rstrip", special=True), flags("Ab c", "normalized"),
        flags("①x", "normalized", special=True), flags("the", "single_word"), flags("is", "single_word", "lstrip", "normalized"),
        flags("<mask>", "single_word", "rstrip"))}, ["<y>"], {"eos_token": "<end>"}),
    "decoder with names": ({**CONFIG, "extra_ids": 10, "eos_token": "<e>", "sep_token": "<x>", "added_tokens_decoder": decoder(
        flags("<x>"), flags("<e>", "lstrip", "rstrip"))}, None, None)}


def numbered(spiece_path, beside):
    """Give the added tokens numbers: that of their piece, or the next."""
    config, added, names = beside
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(spiece_path))
    find = {pieces.id_to_piece(k): k for k in range(len(pieces))}
    new = len(pieces) + (config or {}).get("extra_ids", 100)
    given = [token["content"] for token in (config or {}).get("added_tokens_decoder", [])] + [*(added or [])]
    for k, content in enumerate(token for token in given if token not in find):
        find[content] = new + k
    if config and "added_tokens_decoder" in config:
        config = {**config, "added_tokens_decoder": {str(find[token["content"]]): token for token in config["added_tokens_decoder"]}}
    return config, added and {token: find[token] for token in added}, names


def make_folder(folder, spiece_path, beside):
    folder.mkdir()
    shutil.copy(spiece_path, folder / "spiece.model")
    for name, content in zip(("tokenizer_config", "added_tokens", "special_tokens_map"), numbered(spiece_path, beside)):
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def check_forms(tmp_path, folder, oracle, kind, vocab):
    """Check the folder, the tokenizer.json that transformers saves, and packed files of both."""
    write_model(folder, vocab, kind)
    saved = tmp_path / "json"
    oracle.save_pretrained(saved)
    write_model(saved, vocab, kind)
    for label, path in (("spiece.model", folder), ("tokenizer.json", saved)):
        with t5.T5(path) as model:
            check(label, model, oracle)
            model.pack(tmp_path / "packed")
        with t5.T5(tmp_path / "packed") as model:
            check(f"packed {label}", model, oracle)


@pytest.mark.parametrize(("kind", "name"), [*(("t5", name) for name in BESIDE), *(("mt5", name) for name in (
    "no files", "none", "a short list", "decoder with names"))])
def test_t5_has_the_tokens_of_transformers(kind, name, spiece, tmp_path):
    special = {"control_symbols": ["<ctl>"], "user_defined_symbols": ["<e>"]} if kind == "mt5" else {}
    folder = make_folder(tmp_path / "spiece", spiece(kind, character_coverage=0.98, **special), BESIDE[name])
    extra = {"extra_ids": 0} if kind == "mt5" and name == "no files" else {}
    oracle = transformers.T5Tokenizer.from_pretrained(folder, **extra)
    check_forms(tmp_path, folder, oracle, kind, len(oracle))


def with_bytes(oracle, path):
    """Write the tokenizer.json of a tokenizer of transformers, with bytes for unknown characters, and return its tokenizer."""
    content = json.loads(oracle.backend_tokenizer.to_str())
    content["model"]["byte_fallback"] = True
    content["decoder"] = {"type": "Sequence", "decoders": [content["decoder"], {"type": "ByteFallback"}, {"type": "Fuse"}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))


@pytest.mark.parametrize("kind", ["t5", "mt5", "umt5"])
def test_a_gguf_file_has_the_tokens_of_transformers(kind, spiece, tmp_path):
    model, extra = spiece(f"{kind} of gguf", byte_fallback=kind == "umt5"), 100 if kind == "t5" else 0
    folder = make_folder(tmp_path / "spiece", model, ({**CONFIG, "extra_ids": extra}, ["<x>", "Ab c"], None))
    oracle = transformers.T5Tokenizer.from_pretrained(folder)
    first = 700 + extra
    write_gguf(tmp_path / "model.gguf", model, len(oracle), [(first, "<x>"), (first + 1, "Ab c")])
    if kind == "umt5":
        oracle = with_bytes(oracle, tmp_path / "tokenizer.json")
    with t5.T5(tmp_path / "model.gguf") as found:
        check("gguf", found, oracle)
        found.pack(tmp_path / "packed")
    with t5.T5(tmp_path / "packed") as found:
        check("packed gguf", found, oracle)


def test_umt5_has_bytes_for_unknown_characters_in_every_form(spiece, tmp_path):
    """T5Tokenizer has <unk> for them. UMT5 was trained with bytes, which SentencePiece and a tokenizer.json with byte_fallback give."""
    folder = make_folder(tmp_path / "spiece", spiece("umt5", byte_fallback=True), ({**CONFIG, "extra_ids": 10}, None, None))
    (tmp_path / "json").mkdir()
    oracle = with_bytes(transformers.T5Tokenizer.from_pretrained(folder), tmp_path / "json/tokenizer.json")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    for label in ("spiece", "json"):
        write_model(tmp_path / label, len(oracle), "umt5")
        with t5.T5(tmp_path / label) as model:
            check(label, model, oracle)
            assert model.tokenize("a 語 я b").tolist() == [*pieces.encode("a 語 я b"), 1]
            model.pack(tmp_path / "packed")
        with t5.T5(tmp_path / "packed") as model:
            check(f"packed {label}", model, oracle)


def test_other_rules_for_spaces_are_those_of_sentencepiece(spiece, tmp_path):
    model = spiece("plain", normalization_rule_name="identity", remove_extra_whitespaces=False)
    folder = make_folder(tmp_path / "spiece", model, ({**CONFIG, "extra_ids": 10}, None, None))
    write_model(folder, 710)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    with t5.T5(folder) as found:
        for text in (t for t in TEXTS if "<" not in t):
            assert found.tokenize(text).tolist() == [*pieces.encode(text), 1], text
        ids = found.tokenize("a  b <extra_id_0>c</s>").tolist()
        assert ids == [*pieces.encode("a  b "), 709, *pieces.encode("c"), 1, 1]
        assert found.detokenize(ids) == "a  b  c" and found.detokenize(ids, skip_special_tokens=False) == "a  b <extra_id_0> c</s></s>"


SENTINELS = [f"<extra_id_{k}>" for k in range(125)]
BYT5 = {
    "plain": (None, None, None),
    "as published": ({"tokenizer_class": "ByT5Tokenizer", "additional_special_tokens": SENTINELS, "extra_ids": 125, "eos_token": "</s>"}, None,
                     {"eos_token": flags("</s>", "normalized"), "pad_token": "<pad>", "unk_token": "<unk>", "additional_special_tokens": SENTINELS}),
    "few": ({"extra_ids": 3}, None, None),
    "none": ({"extra_ids": 0}, None, None),
    "a gap": ({"extra_ids": 5, "additional_special_tokens": ["<x>"]}, {"<x>": 270, "<e>": 300}, None),
    "saved": ({"extra_ids": 125, "added_tokens_decoder": {str(k): token for k, token in [
        *enumerate([flags("<pad>", "lstrip", "rstrip"), flags("</s>", "lstrip", "rstrip"), flags("<unk>", "lstrip", "rstrip")]),
        *enumerate([flags(s, special=True) for s in SENTINELS], 259), *enumerate([
            flags("<x>", "lstrip"), flags("<e>", "rstrip"), flags("<sep>", "lstrip", "rstrip", special=True), flags("is", "single_word", "lstrip"),
            flags("the", "single_word"), flags("①x", "normalized"), flags("<mask>", "single_word", "rstrip")], 384)]}}, None, None),
    "names": ({"extra_ids": 4, "eos_token": "<end>", "bos_token": "<x>", "image_token": "<e>", "unk_token": "the"}, None,
              {"sep_token": flags("<sep>", "rstrip"), "pad_token": "<mask>"}),
    "a list": ({"extra_ids": 4, "extra_special_tokens": ["<sep>", "<extra_id_0>"]}, None, None),
    "named list": ({"extra_ids": 4, "extra_special_tokens": {"a_token": "<sep>"}}, None, None)}


@pytest.mark.filterwarnings("ignore:This sequence already has")
@pytest.mark.parametrize("name", BYT5)
def test_byt5_has_the_tokens_of_transformers(name, tmp_path):
    folder = tmp_path / "byt5"
    folder.mkdir()
    for file, content in zip(("tokenizer_config", "added_tokens", "special_tokens_map"), BYT5[name]):
        if content is not None:
            (folder / f"{file}.json").write_text(json.dumps(content))
    oracle = transformers.ByT5Tokenizer.from_pretrained(folder)
    write_model(folder, 400, tokenizer_class="ByT5Tokenizer")
    saved = tmp_path / "saved"
    oracle.save_pretrained(saved)
    write_model(saved, 400, tokenizer_class="ByT5Tokenizer")
    for label, path in (("folder", folder), ("saved", saved)):
        with t5.T5(path) as model:
            check_bytes(label, model, oracle)
            model.pack(tmp_path / "packed")
        with t5.T5(tmp_path / "packed") as model:
            check_bytes(f"packed {label}", model, oracle)


def check_bytes(label, model, oracle, texts=TEXTS):
    wanted = [oracle(text).input_ids for text in texts]
    for text, want, found in zip(texts, wanted, model.tokenize(texts)):
        assert found.tolist() == want, f"{label}: {text!r}"
    for skip in (False, True):
        decoded = [oracle.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False) for ids in wanted]
        for ids, want, found in zip(wanted, decoded, model.detokenize(wanted, skip_special_tokens=skip)):
            assert found == want, f"{label}: {ids}, skip {skip}"


@pytest.fixture
def json_folder(spiece, tmp_path):
    """Return a folder with a tokenizer.json of T5."""
    folder = make_folder(tmp_path / "spiece", spiece("t5", character_coverage=0.98), ({**CONFIG, "extra_ids": 10}, None, None))
    oracle = transformers.T5Tokenizer.from_pretrained(folder)
    oracle.save_pretrained(tmp_path / "json")
    write_model(tmp_path / "json", len(oracle))
    return tmp_path / "json"


def test_a_tokenizer_json_without_a_type_is_unigram(json_folder):
    """The first tokenizer.json of t5-small has none. `tokenizers` then tries the models in turn; a list is the vocabulary of Unigram."""
    from tokenizers import Tokenizer
    path = json_folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["model"]["type"], content["model"]["byte_fallback"]
    path.write_text(json.dumps(content), encoding="utf-8")
    oracle = Tokenizer.from_file(str(path))
    with t5.T5(json_folder) as model:
        for text in TEXTS:
            assert model.tokenize(text).tolist() == oracle.encode(text).ids, text


def test_a_tokenizer_that_cannot_be_read_is_not_packed(json_folder, spiece, tmp_path):
    path, packed = json_folder / "tokenizer.json", tmp_path / "packed"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "model": {"type": "WordLevel", "vocab": {}}}), encoding="utf-8")
    with t5.T5(json_folder) as model:
        with pytest.raises(OSError, match='model "WordLevel" is not supported.*--no-tokenizer'):
            model.pack(packed)
        assert not packed.exists()
        shutil.copy(spiece("t5"), json_folder / "spiece.model")
    with t5.T5(json_folder) as model, pytest.raises(ValueError, match="or remove the file, to use spiece.model of the same folder"):
        model.tokenize("a")
    with t5.T5(json_folder, tokenizer=False) as model:
        model.pack(packed)
    with t5.T5(packed) as model, pytest.raises(ValueError, match="packed without a tokenizer"):
        model.tokenize("a")
    path.unlink()
    with t5.T5(json_folder) as model:
        assert model.tokenize("</s>").tolist() == [1, 1]


# ------------------------------------------------------------------------------------------------ classes of a tokenizer.json

def sequence(*steps, key="pretokenizers"):
    return {"type": "Sequence", key: list(steps)}


def meta(**more):
    return {"type": "Metaspace", "replacement": "▁", **more}


def replaced(pattern, content):
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def converted_by_4(**options):
    """Return the change to a tokenizer.json that makes it one of a converter of transformers 4.40 to 4.57."""
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    return lambda x: {"normalizer": sequence(x["normalizer"], strip, replaced(" {2,}", "▁"), key="normalizers"),
                      "pre_tokenizer": meta(**options), "decoder": meta(**options)}


OLD = meta(add_prefix_space=True)
# What other converters write, as changes to the file that transformers 5 saves. T5Tokenizer replaces all of it.
CONVERTERS = {
    "5": lambda x: {},
    "4.0": lambda x: {"pre_tokenizer": sequence({"type": "WhitespaceSplit"}, OLD), "decoder": OLD,
                      "model": {k: v for k, v in x["model"].items() if k not in ("byte_fallback", "type")}},
    "4, always": converted_by_4(prepend_scheme="always", split=True),
    "4, first": converted_by_4(prepend_scheme="first", split=False),
    "4, never": converted_by_4(prepend_scheme="never", split=True),
    "no spaces": lambda x: {"pre_tokenizer": None, "decoder": None},
    "no end": lambda x: {"post_processor": None},
    "another end": lambda x: {"post_processor": {
        "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<pad>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<pad>": {"id": "<pad>", "ids": [0], "tokens": ["<pad>"]}}}},
    "tokenizers": lambda x: {"normalizer": sequence({"type": "Nmt"}, {"type": "NFKC"}, replaced(" {2,}", " "), key="normalizers"),
                             "pre_tokenizer": meta(prepend_scheme="always", split=True)},
    "another order": lambda x: {"normalizer": sequence({"type": "Lowercase"}, x["normalizer"], replaced(r"\s", "▁"), key="normalizers")},
    "no map": lambda x: {"normalizer": None, "pre_tokenizer": sequence({"type": "WhitespaceSplit"}, meta(prepend_scheme="first", split=True))},
    "bytes": lambda x: {"model": {**x["model"], "byte_fallback": True},
                        "decoder": sequence(x["decoder"], {"type": "ByteFallback"}, {"type": "Fuse"}, key="decoders")},
    "another unknown": lambda x: {"model": {**x["model"], "unk_id": 0}},
    "padding": lambda x: {"padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
                                      "pad_token": "<pad>"},
                          "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}}}
READABLE = [name for name in CONVERTERS if name not in ("tokenizers", "another order")]  # with the rules of the file

TEN = [f"<extra_id_{k}>" for k in range(10)]
T5 = {"tokenizer_class": "T5Tokenizer"}
# Files beside a tokenizer.json of 710 pieces, and its additional added tokens, or None for no added tokens at all
CLASSES = {
    "class": (T5, None, None),
    "fast": ({"tokenizer_class": "T5TokenizerFast", "extra_ids": 10}, None, None),
    "as published": ({**CONFIG, "extra_ids": 10, "additional_special_tokens": TEN}, None,
                     {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "additional_special_tokens": TEN}),
    "no class": ({"model_max_length": 512}, None, None),
    "another end": ({**T5, "extra_ids": 10, "eos_token": "<end>"}, None, None),
    "an end that is a piece": ({**T5, "extra_ids": 10, "eos_token": "the"}, None, None),
    "an end in the map": ({**T5, "extra_ids": 10, "eos_token": "<x>"}, None, {"eos_token": flags("<e>", "lstrip")}),
    "no extra ids": ({**T5, "extra_ids": 0}, None, None),
    "few extra ids": ({**T5, "extra_ids": 3}, None, None),
    "no list": ({**T5, "additional_special_tokens": None}, None, None),
    "a short list": ({**T5, "extra_ids": 10, "additional_special_tokens": ["<sep>"]}, None, None),
    "an empty list": ({**T5, "extra_ids": 10, "additional_special_tokens": []}, None, None),
    "a list in the map": ({**T5, "extra_ids": 10}, None, {"additional_special_tokens": ["<sep>", "<x>"]}),
    "a full list in the map": ({**T5, "extra_ids": 10}, None, {"additional_special_tokens": TEN}),
    "a new list in the map": ({**T5, "extra_ids": 10}, None, {"extra_special_tokens": ["<sep>"]}),
    "names": ({**T5, "extra_ids": 10, "extra_special_tokens": {"image_token": "<sep>"}, "sep_token": "<x>"}, None, None),
    "names and a list": ({**T5, "extra_ids": 10, "extra_special_tokens": {"image_token": "<sep>"}, "additional_special_tokens": ["<y>"]}, None, None),
    "two lists": ({**T5, "extra_ids": 10, "extra_special_tokens": ["<sep>"], "additional_special_tokens": ["<y>"]}, None, None),
    "other keys": ({**T5, "extra_ids": 10, "add_eos_token": False, "add_bos_token": True, "bos_token": "<pad>", "add_prefix_space": False,
                    "legacy": False}, None, None),
    "null": ({**T5, "extra_ids": 10, "pad_token": None, "unk_token": None}, None, None),
    "added": ({**T5, "extra_ids": 10}, {"<x>": 710, "<y>": 711}, {"cls_token": "<y>"}),
    "listed": ({**T5, "extra_ids": 10}, None, {"cls_token": "<y>"}, [
        flags("<x>", "lstrip"), flags("<y>", "rstrip"), flags("Ab c", "normalized"), flags("①x", "normalized", special=True),
        flags("is", "single_word", "lstrip")]),
    "listed and added": ({**T5, "extra_ids": 10}, {"<sep>": 710, "<y>": 711, "<e>": 712}, None, [flags("<x>", "lstrip"), flags("<y>", "rstrip")]),
    "listed and in the decoder": ({**T5, "extra_ids": 10, "added_tokens_decoder": {
        "1": flags("</s>", special=True), "700": flags("<extra_id_9>", "lstrip")}}, None, None, [flags("<x>", "lstrip")]),
    "none are listed": (T5, None, None, None),
    "rules of the file": ({**CONFIG, "tokenizer_class": "TokenizersBackend"}, None, None),
    "rules of the file, another end": ({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "add_eos_token": True}, None, None),
    "rules of the file, none are listed": ({"tokenizer_class": "TokenizersBackend", "extra_ids": 10}, None, None, None),
    "only config.json": (None, None, None)}


@pytest.fixture
def class_folder(spiece, tmp_path):
    """Return a function that writes a folder with a tokenizer.json of a converter, files beside it, and a model."""
    models = {"bytes": spiece("umt5", byte_fallback=True), "t5": spiece("t5", character_coverage=0.98)}

    def save(model):
        start = make_folder(tmp_path / model, models[model], ({**CONFIG, "extra_ids": 10}, None, None))
        return json.loads(transformers.T5Tokenizer.from_pretrained(start).backend_tokenizer.to_str())

    files = {model: save(model) for model in models}

    def write(name, converter, config, added=None, names=None, listed=(), kind="t5", **more):
        folder = tmp_path / name
        folder.mkdir()
        saved = files["bytes" if converter == "bytes" else "t5"]
        content = {**saved, **CONVERTERS[converter](saved)}
        numbers = {piece: k for k, (piece, _) in enumerate(content["model"]["vocab"])}
        for token in listed or ():
            numbers.setdefault(token["content"], len(numbers))
        content["added_tokens"] = [] if listed is None else sorted(
            [*content["added_tokens"], *({"id": numbers[token["content"]], **token} for token in listed)], key=lambda token: token["id"])
        for file, value in (("tokenizer", content), ("tokenizer_config", config), ("added_tokens", added), ("special_tokens_map", names)):
            if value is not None:
                (folder / f"{file}.json").write_text(json.dumps(value), encoding="utf-8")
        write_model(folder, 900, kind, **more)
        return folder

    return write


def check_packed_too(folder, oracle, texts=TEXTS, same=check, **options):
    """Check a folder and its packed file. Return the notes that opening the folder gives."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = t5.T5(folder, **options)
    with model:
        same(folder, model, oracle, texts)
        model.pack(folder / "packed")
    with t5.T5(folder / "packed") as model:
        same(f"packed {folder}", model, oracle, texts)
    return [str(one.message) for one in seen]


@pytest.mark.parametrize("converter", CONVERTERS)
def test_t5tokenizer_replaces_the_rules_of_a_file(converter, class_folder):
    """AutoTokenizer gives a class with the name T5Tokenizer its own rules, and takes only pieces, characters and added tokens from the file."""
    folder = class_folder("named", converter, {**T5, "extra_ids": 10})
    oracle = transformers.AutoTokenizer.from_pretrained(folder)
    assert isinstance(oracle, transformers.T5Tokenizer)
    assert check_packed_too(folder, oracle) == []
    own = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    assert (own(TEXTS).input_ids == oracle(TEXTS).input_ids) == (converter in ("5", "4.0", "padding")), "the test proves nothing"


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("converter", ["4, first", "4.0"])
def test_files_beside_a_tokenizer_json(converter, name, class_folder):
    more = {"tokenizer_class": "T5Tokenizer"} if name == "only config.json" else {}
    folder = class_folder("named", converter, *CLASSES[name], **more)
    assert check_packed_too(folder, transformers.AutoTokenizer.from_pretrained(folder)) == []


@pytest.mark.parametrize("name", [name for name in CLASSES if name.startswith("rules")])
@pytest.mark.parametrize("converter", READABLE)
def test_other_classes_keep_the_rules_of_a_file(converter, name, class_folder):
    folder = class_folder("named", converter, *CLASSES[name])
    oracle = transformers.AutoTokenizer.from_pretrained(folder)
    assert type(oracle) is transformers.TokenizersBackend
    assert check_packed_too(folder, oracle) == []


NAMED = ["T5Tokenizer", "T5TokenizerFast", "MT5Tokenizer", "MT5TokenizerFast", "UMT5Tokenizer", "UMT5TokenizerFast", "Umt5Tokenizer",
         "LongT5TokenizerFast", "SwitchTransformersTokenizer", "PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend",
         "PythonBackend", None]
KINDS = {"t5": {}, "mt5": {}, "umt5": {}, "longt5": {"encoder_attention_type": "local", "local_radius": 3}}


@pytest.mark.parametrize("kind", KINDS)
def test_the_class_that_makes_the_tokens(kind, class_folder):
    """The class depends on the name, and on the kind of the model: UMT5 has the rules of the file with every name."""
    seen = set()
    for file in ("tokenizer_config", "config"):
        for k, name in enumerate(NAMED):
            named = {"tokenizer_class": name}
            if file == "config" and kind == "longt5" and name not in ("T5Tokenizer", "T5TokenizerFast", "TokenizersBackend"):
                continue  # AutoTokenizer fails for names that transformers lacks
            folder = class_folder(f"{file}{k}", "4, first", named if file == "tokenizer_config" else {}, kind=kind, **KINDS[kind],
                                  **(named if file == "config" else {}))
            if kind == "longt5":
                weights = {name.replace("SelfAttention", "LocalSelfAttention"): x for name, x in tensors(900).items()}
                safetensors.save_file(weights, folder / "model.safetensors")
            oracle = transformers.AutoTokenizer.from_pretrained(folder)
            assert check_packed_too(folder, oracle, TEXTS[::2]) == [], name
            seen.add(type(oracle).__name__)
    assert seen == ({"T5Tokenizer", "TokenizersBackend"} if kind != "umt5" else {"TokenizersBackend"})


@pytest.mark.filterwarnings("ignore:This sequence already has")
def test_byt5tokenizer_beside_a_tokenizer_json(class_folder):
    for k, name in enumerate(("ByT5Tokenizer", "ByT5TokenizerFast")):
        folder = class_folder(f"bytes{k}", "5", {"tokenizer_class": name, "extra_ids": 125})
        assert check_packed_too(folder, transformers.ByT5Tokenizer(), TEXTS, check_bytes) == [
            f"{folder}/tokenizer.json: not read, because tokenizer_class is ByT5Tokenizer"]


def test_a_tokenizer_json_without_a_class_keeps_its_rules(class_folder):
    """Alone, as a given file, and packed. A note says that AutoTokenizer would replace the rules."""
    folder = class_folder("alone", "4, first", None)
    own = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    note, = check_packed_too(folder, own)
    assert note.startswith(f"{folder}/tokenizer.json: its rules are used, because no file names a tokenizer_class")
    equal = class_folder("equal", "5", None)
    assert check_packed_too(equal, transformers.PreTrainedTokenizerFast(tokenizer_file=str(equal / "tokenizer.json"))) == []
    named = class_folder("named", "5", T5, tokenizer_class="T5Tokenizer")
    assert check_packed_too(named, own, tokenizer=folder / "tokenizer.json") == []
    with_class = class_folder("given", "4, first", {**T5, "extra_ids": 10})
    assert check_packed_too(folder, transformers.AutoTokenizer.from_pretrained(with_class), tokenizer=with_class) == []
    bytes_too = class_folder("of bytes", "5", None, tokenizer_class="ByT5Tokenizer")
    assert check_packed_too(bytes_too, own, tokenizer=folder / "tokenizer.json") == []


def test_pieces_without_marks_keep_the_rules_of_a_file(class_folder):
    """T5Tokenizer of transformers 5 reads every word of Ankh as <unk>, because its pieces do not begin with U+2581."""
    folder = class_folder("unmarked", "no spaces", {**T5, "extra_ids": 10})
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["model"]["vocab"] = [[piece.replace("▁", "") or " ", score] if not piece.startswith("▁") or len(piece) == 1 else [f"x{k}", score]
                                 for k, (piece, score) in enumerate(content["model"]["vocab"])]
    path.write_text(json.dumps(content), encoding="utf-8")
    note, = check_packed_too(folder, transformers.PreTrainedTokenizerFast(tokenizer_file=str(path)))
    assert note.startswith(f"{path}: its rules are used, because no piece begins with U+2581")


def test_other_classes_are_refused(class_folder):
    for k, (config, more) in enumerate((({"tokenizer_class": "LlamaTokenizer"}, {}), ({"tokenizer_class": "BertTokenizerFast"}, {}),
                                        (None, {"tokenizer_class": "LlamaTokenizer"}), ({}, {"tokenizer_class": "BertTokenizer"}))):
        folder = class_folder(f"other{k}", "5", config, **more)
        file = "config.json" if more else "tokenizer_config.json"
        with t5.T5(folder) as model, pytest.raises(ValueError, match=rf'/{file}: "tokenizer_class" is .*another class'):
            model.tokenize("a")
