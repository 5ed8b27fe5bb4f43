"""Compare the tokenizer in C with SentencePiece, `tokenizers` and transformers' ByT5Tokenizer on a megabyte of text in
many languages and 100,000 random strings, with tokenizers trained here. RELPOS_TOKENIZERS adds tokenizer files,
separated by colons.
SPDX-License-Identifier: Apache-2.0"""
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import sys

import pytest

sentencepiece = pytest.importorskip("sentencepiece")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("google.protobuf")

root = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(root / "tests/tokenizer"))
from hard_texts import hard_texts, random_texts  # noqa: E402
from make_data import converted, white  # noqa: E402

PROGRAM = next((p for p in [root / "build/dev/tests/tokens", root / "build/release/tests/tokens"] if p.exists()), None)
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="build/dev has no tests/tokens")

RANDOM = [t.encode() for t in random_texts(100_000, 11)]


def corpus():
    """Return test lines, 1 MB or more in all: docs and sources of the project, license texts, and random words in many
    scripts."""
    import unicodedata
    paths = [*root.glob("docs/*.md"), *root.glob("*.md"), *root.glob("src/*/*.c"),
             *pathlib.Path("/usr/share/common-licenses").glob("*")]
    lines = [line for path in paths for line in path.read_text(encoding="utf-8", errors="replace").split("\n")]
    draw = random.Random(5)
    for low, high in [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x530), (0x5D0, 0x6FF), (0x900, 0xE80), (0x3041, 0x30FF),
                      (0x4E00, 0x9FFF),
                      (0xAC00, 0xD7A4), (0x1E00, 0x2000)]:
        letters = [chr(c) for c in range(low, high) if unicodedata.category(chr(c))[0] in "LMN"]
        common = draw.sample(letters, min(150, len(letters)))
        words = ["".join(draw.choice(common) for _ in range(draw.randrange(1, 9))) for _ in range(400)]
        lines += [" ".join(draw.choice(words) for _ in range(12)) for _ in range(400)]
    return [line for line in lines if "\0" not in line]


LINES = corpus()
TEXTS = hard_texts() + [line.encode() for line in LINES]


def run(path, mode, flag, items, extra=0):
    """Run the program on each item: bytes to token numbers, or token numbers to bytes."""
    encode = mode == "encode"
    given = b"".join(struct.pack("<I", len(x)) + (x if encode else struct.pack(f"<{len(x)}i", *x)) for x in items)
    done = subprocess.run([PROGRAM, path, str(extra), mode, str(int(flag))], input=given, capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stderr.decode()
    made, at = [], 0
    while at < len(done.stdout):
        n, = struct.unpack_from("<I", done.stdout, at)
        size = 4 * n if encode else n
        part = done.stdout[at + 4:at + 4 + size]
        made.append(list(struct.unpack(f"<{n}i", part)) if encode else part)
        at += 4 + size
    return made


def assert_same(found, wanted, given):
    different = [k for k in range(len(given)) if found[k] != wanted[k]]
    assert len(found) == len(given)
    assert not different, (f"{len(different)} of {len(given)}: {given[different[0]]!r} is {found[different[0]]}: "
                           f"{wanted[different[0]]}")


def token_lists(encoded, size):
    draw = random.Random(3)
    return encoded[:20_000] + [[draw.choice([draw.randrange(size), draw.randrange(min(size, 262))])
                                for _ in range(draw.randrange(1, 9))]
                               for _ in range(20_000)]


def compare_json(path):
    content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    t = tokenizers.Tokenizer.from_str(json.dumps(content))
    t.no_truncation()
    t.no_padding()
    texts = TEXTS + RANDOM
    wanted = [e.ids for e in t.encode_batch([text.decode("utf-8", "replace") for text in texts])]
    assert_same(run(path, "encode", True, texts), wanted, texts)
    lists = token_lists(wanted, t.get_vocab_size())
    for skip in (False, True):
        decoded = [t.decode(ids, skip_special_tokens=skip).encode() for ids in lists]
        assert_same(run(path, "decode", skip, lists), decoded, lists)


def compare_model(path):
    t = sentencepiece.SentencePieceProcessor(model_file=str(path))
    texts = TEXTS + RANDOM + [" ".join(LINES[:5000]).encode(), b"x" * 50_000 + b"ab" * 20_000]
    wanted = [t.encode(text) for text in texts]
    assert_same(run(path, "encode", False, texts), wanted, texts)
    lists = token_lists(wanted, t.get_piece_size())
    decoded = [t.decode(ids).encode() for ids in lists]
    assert_same(run(path, "decode", False, lists), decoded, lists)


MODELS = {
    "t5": dict(vocab_size=4000, pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "fallback": dict(vocab_size=2000, byte_fallback=True, normalization_rule_name="nfkc_cf", control_symbols=["<ctl>"],
                     user_defined_symbols=["<sep>", "ab", "<a b>", "é"]),
    "plain": dict(vocab_size=1500, normalization_rule_name="identity", remove_extra_whitespaces=False,
                  add_dummy_prefix=False,
                  split_by_whitespace=False, allow_whitespace_only_pieces=True),
    "suffix": dict(vocab_size=1500, treat_whitespace_as_suffix=True,
                   user_defined_symbols=["q", "ab", "the", "éé", "<sep>"]),
    "keep": dict(vocab_size=1500, remove_extra_whitespaces=False, byte_fallback=True, split_digits=True)}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    made = {}
    for name, options in MODELS.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=(line for line in LINES if line.strip()),
                                                 model_writer=model, minloglevel=2,
                                                 hard_vocab_limit=False, character_coverage=0.98, **options)
        made[name] = tmp_path_factory.mktemp("models") / f"{name}.model"
        made[name].write_bytes(model.getvalue())
    return made


@pytest.mark.parametrize("name", MODELS)
def test_a_model_as_sentencepiece(models, name):
    compare_model(models[name])


ADDED = [("</s>", False, False, False, True), ("<extra_id_0>", True, True, False, True),
         ("<e>", False, True, False, False),
         ("Ab c", False, False, True, False), ("①x", True, False, True, True), (" z", False, False, False, False)]
META = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
SPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
JSON = {
    "as T5": ("t5", {}),
    "white": ("t5", dict(pre_tokenizer=white("always"), steps=[], added=ADDED)),
    "white, first": ("t5", dict(pre_tokenizer=white("first"), steps=[], added=ADDED)),
    "first": ("t5", dict(pre_tokenizer=META, steps=[{"type": "Strip", "strip_left": True, "strip_right": True}],
                         added=ADDED)),
    "bytes": ("keep", dict(byte_fallback=True, added=ADDED, decoder={
        "type": "Sequence", "decoders": [SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}]})),
    "no steps": ("plain", dict(pre_tokenizer=None, decoder=None, steps=[], added=ADDED))}


@pytest.mark.parametrize("name", JSON)
def test_a_json_as_tokenizers(models, name, tmp_path):
    model, parts = JSON[name]
    (tmp_path / "tokenizer.json").write_bytes(converted(models[model].read_bytes(), **parts))
    compare_json(tmp_path / "tokenizer.json")


def test_given_files():
    """Compare the tokenizer files in RELPOS_TOKENIZERS, separated by colons; by default there are none."""
    for path in filter(None, os.environ.get("RELPOS_TOKENIZERS", "").split(":")):
        (compare_json if path.endswith(".json") else compare_model)(path)


@pytest.mark.filterwarnings("ignore:This sequence already has")
def test_bytes_as_byt5():
    pytest.importorskip("transformers")
    from transformers import ByT5Tokenizer
    t = ByT5Tokenizer()
    texts = [text for text in TEXTS[:3000] + RANDOM[:10_000] if text.decode("utf-8", "ignore").encode() == text]
    wanted = [t(text.decode()).input_ids for text in texts]
    assert_same(run("bytes", "encode", True, texts, 125), wanted, texts)
    lists = token_lists(wanted[:2000], 384)
    for skip in (False, True):
        decoded = [t.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False).encode()
                   for ids in lists]
        assert_same(run("bytes", "decode", skip, lists, 125), decoded, lists)
