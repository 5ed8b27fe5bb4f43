"""A tokenizer gives the tokens and texts of transformers in every form: a spiece.model, a tokenizer.json, a .gguf file and a packed file;
for T5, mT5, UMT5 with bytes for unknown characters, and ByT5; with added tokens of every kind.
SPDX-License-Identifier: Apache-2.0"""
import json
import pathlib
import random
import shutil
import struct
import sys

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


def check_bytes(label, model, oracle):
    wanted = [oracle(text).input_ids for text in TEXTS]
    for text, want, found in zip(TEXTS, wanted, model.tokenize(TEXTS)):
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
    path.write_text(json.dumps({**content, "model": {"type": "BPE", "vocab": {}, "merges": []}}), encoding="utf-8")
    with t5.T5(json_folder) as model:
        with pytest.raises(OSError, match='model "BPE" is not supported.*--no-tokenizer'):
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
