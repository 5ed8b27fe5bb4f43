"""Compare WordPiece, pairs and spans in C with `tokenizers`: hard and random texts and pairs, with tokenizers trained
here, and the normalizers and word boundaries of every character of Unicode. RELPOS_TOKENIZERS adds
tokenizer.json files, separated by colons.
SPDX-License-Identifier: Apache-2.0"""
import itertools
import json
import os
import pathlib
import random
import struct
import subprocess
import sys

import pytest

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import Regex, normalizers, pre_tokenizers  # noqa: E402

pytest.importorskip("sentencepiece")

root = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(root / "tests/tokenizer"))
from hard_texts import random_texts, wordpiece_texts  # noqa: E402
import make_data  # noqa: E402
from make_data import white  # noqa: E402
from make_wordpiece import encoded, kinds, pairs, train  # noqa: E402

PROGRAM = next((p for p in [root / "build/dev/tests/tokens", root / "build/release/tests/tokens"] if p.exists()), None)
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="build/dev has no tests/tokens")

LINES = [line for path in sorted(root.glob("docs/*.md")) for line in path.read_text(encoding="utf-8").split("\n")]
TEXTS = wordpiece_texts()
RANDOM = [t.encode() for t in random_texts(3_000, 13)]


def sized(text):
    return struct.pack("<I", 0xFFFFFFFF) if text is None else struct.pack("<I", len(text)) + text


def run(path, mode, items, option):
    """Return what the program writes for each item: the bytes of a list of 32-bit numbers or of a text."""
    width = {"pairs": 20, "encode": 4, "normalize": 1, "decode": 1}[mode]
    done = subprocess.run([PROGRAM, path, "0", mode, str(option)], input=b"".join(items), capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stderr.decode()
    made, at = [], 0
    while at < len(done.stdout):
        size = width * struct.unpack_from("<I", done.stdout, at)[0]
        made.append(done.stdout[at + 4:at + 4 + size])
        at += 4 + size
    assert len(made) == len(items)
    return made


def numbers(made):
    return list(struct.unpack(f"<{len(made) // 4}i", made))


def compare(path, texts, n, t=None):
    """Compare n pairs, each limit of tokens in one run; and decoding."""
    t = t or tokenizers.Tokenizer.from_file(str(path))
    by_limit = {}
    for a, b, most in pairs(t, texts, n, 7):
        by_limit.setdefault(most, []).append((a, b))
    for most, given in by_limit.items():
        found = run(path, "pairs", [sized(a) + sized(b) for a, b in given], most)
        for (a, b), made in zip(given, found):
            wanted = [x for part in encoded(t, a, b, most) for x in part]
            assert numbers(made) == wanted, (a, b, most)
    t.no_truncation()
    draw = random.Random(3)
    lists = [t.encode(a.decode("utf-8", "replace")).ids for a in texts[:3000]]
    lists += [[draw.randrange(t.get_vocab_size()) for _ in range(draw.randrange(1, 9))] for _ in range(3000)]
    for skip in (False, True):
        found = run(path, "decode", [struct.pack(f"<I{len(x)}i", len(x), *x) for x in lists], int(skip))
        for ids, made in zip(lists, found):
            assert made.decode() == t.decode(ids, skip_special_tokens=skip), ids


@pytest.mark.parametrize("name", kinds(0))
def test_pairs_as_tokenizers(name, tmp_path):
    t = train(LINES + [x.decode().replace("\0", "") for x in TEXTS], name, 3000)
    t.save(str(tmp_path / "tokenizer.json"))
    valid = TEXTS + [x for x in RANDOM if x.decode("utf-8", "ignore").encode() == x]
    compare(tmp_path / "tokenizer.json", valid, len(valid) + 1000)


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "<pad>", "</s>", "<mask>", "Cafe", "Café", "cafe",
          "é", "##é", "the", "The", "日", "本", "日本", "##本", "##e", "e", "a", "##a", "b", "##b", "x", "##x",
          "##\u0301", "", "once \u2003", "once", "!", ",", "<", ">", "mask", "i", "##\u0307", "[", "]"]
N = len(PIECES)
FOLDERS = {  # class: settings in tokenizer_config.json, special_tokens_map.json, added_tokens.json
    "bert": [({}, None, None), ({"do_lower_case": False}, None, None),
             ({"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}, None, None),
             ({"strip_accents": False, "unk_token": "[PAD]", "sep_token": "[MASK]"}, None, None),
             ({"mask_token": {"content": "[MASK]", "lstrip": True, "normalized": False,
                               "__type": "AddedToken"}}, None, None),
             ({"additional_special_tokens": ["[E1]", "[E2]"]}, None, {"[E1]": N, "[E2]": N + 1}),
             ({"added_tokens_decoder": {"4": {"content": "[MASK]", "special": True, "lstrip": True},
                                        str(N): {"content": "Ab C", "normalized": True},
                                        str(N + 1): {"content": "a b", "single_word": True}}}, None, None),
             (None, None, None)],
    "mpnet": [({}, None, None), ({"do_lower_case": False, "mask_token": "<mask>"}, None, None),
              ({"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "<pad>"}, None, None), (None, None, None)]}


@pytest.mark.parametrize("name, number", [(name, k) for name, all in FOLDERS.items() for k in range(len(all))])
def test_folders_as_transformers(name, number, tmp_path):
    """vocab.txt and tokenizer.json get the rules of the class and of tokenizer_config.json."""
    transformers = pytest.importorskip("transformers")
    config, *beside = FOLDERS[name][number]
    texts = [x for x in TEXTS + RANDOM[:400] if x.decode("utf-8", "ignore").encode() == x]
    texts.append("Café CAFE\u0301 the The THE Ab C a b  [MASK] x<mask>, [E1][E2] 日本 once İ <S> <pad> [pad]".encode())
    pieces = PIECES if number == 0 else [p.replace(" ", "_") for p in PIECES]  # of equal lines, the last counts
    (tmp_path / "vocab.txt").write_bytes("\n".join(pieces).encode())
    for file, content in zip(["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"],
                             [config, *beside]):
        if content is not None:
            (tmp_path / file).write_text(json.dumps(content))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
    for file in ["vocab.txt", "tokenizer.json"]:
        if file == "tokenizer.json":  # its normalizer and settings differ from those of the class
            t, _ = kinds(1)["accents"]
            t.model = tokenizers.models.WordPiece(dict(zip(pieces, range(N))), unk_token="[UNK]",
                                                  max_input_chars_per_word=7)
            t.add_special_tokens([tokenizers.AddedToken("[MASK]", rstrip=True, normalized=False)])
            t.save(str(tmp_path / file))
        made = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert name in type(made).__name__.lower()
        compare(f"{name}:{tmp_path / file}", texts, len(texts), made.backend_tokenizer)


META = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
UNIGRAM = {  # options of SentencePiece, parts of the tokenizer.json
    "as T5": ({}, {}), "identity": (dict(normalization_rule_name="identity"), dict(pre_tokenizer=None, steps=[])),
    "as DeBERTa": (dict(normalization_rule_name="identity"), dict(steps=[
        {"type": "Lowercase"}, {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "},
        {"type": "NFC"}, {"type": "Strip", "strip_left": False, "strip_right": True}])),
    "punctuation": ({}, dict(pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Punctuation", "behavior": "Isolated"},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]})),
    "first": ({}, dict(pre_tokenizer=META, steps=[{"type": "Strip", "strip_left": True, "strip_right": True}])),
    "words": ({}, dict(pre_tokenizer=white("always"), steps=[{"type": "Replace", "pattern": {"String": "e"},
                                                              "content": "<é>"}])),
    "bytes": (dict(byte_fallback=True, normalization_rule_name="nfkc_cf"), dict(byte_fallback=True))}


@pytest.mark.parametrize("name", UNIGRAM)
def test_spans_of_unigram(name, tmp_path):
    """The tokenizers of T5 and DeBERTa; test_tokenizer.py has more about their tokens."""
    options, parts = UNIGRAM[name]
    model = make_data.train((line for line in LINES if line.strip()), vocab_size=1500, pad_id=0, eos_id=1, unk_id=2,
                            bos_id=-1, **options)
    (tmp_path / "tokenizer.json").write_bytes(make_data.converted(model, **parts))
    texts = [x for x in TEXTS + RANDOM if x.decode("utf-8", "ignore").encode() == x]
    compare(tmp_path / "tokenizer.json", texts, len(texts))


def test_given_files():
    """Compare the files in RELPOS_TOKENIZERS with a model WordPiece; by default there are none."""
    for path in filter(None, os.environ.get("RELPOS_TOKENIZERS", "").split(":")):
        if path.endswith(".json") and "WordPiece" in pathlib.Path(path).read_text(encoding="utf-8"):
            compare(path, TEXTS + RANDOM, 2 * len(RANDOM))


CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def around(form, each=64):
    """Return texts that contain every character, in a form such as "a{0}b"."""
    return ["".join(form.format(c) for c in CHARACTERS[k:k + each]) for k in range(0, len(CHARACTERS), each)]


# normalizer, pre-tokenizer, form of the texts; marks of several classes around a character show its own class in NFD
EVERY = {
    "bert": (normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), "a{0}b "),
    "clean, lower": (normalizers.BertNormalizer(strip_accents=False), None, "a{0}b "),
    "marks": (normalizers.StripAccents(), pre_tokenizers.Whitespace(), "a{0}b "),
    "nfc": (normalizers.NFC(), None, "A{0}\u0345\u0301\u0323\u0334{0}\u0334{0}\u1161 "),
    "white": (normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), pre_tokenizers.Punctuation(), "a{0}b{0}{0}c "),
    "nfd": (normalizers.NFD(), None, "A{0}\u0345\u0301\u0323\u0334{0}\u0334 ")}


@pytest.mark.parametrize("name", EVERY)
def test_every_character(name, tmp_path):
    """The words of a tokenizer whose only piece is [UNK] are its tokens."""
    normalizer, split, form = EVERY[name]
    t = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizer, split or pre_tokenizers.WhitespaceSplit()
    t.save(str(tmp_path / "tokenizer.json"))
    texts = around(form)
    found = run(tmp_path / "tokenizer.json", "normalize", [sized(x.encode()) for x in texts], 0)
    for text, made in zip(texts, found):
        assert made.decode() == t.normalizer.normalize_str(text), text
    if split is None:
        return
    found = run(tmp_path / "tokenizer.json", "pairs", [sized(x.encode()) + sized(None) for x in texts], 0)
    for text, e, made in zip(texts, t.encode_batch(texts), found):
        places = list(itertools.accumulate((len(c.encode()) for c in text), initial=0))
        begins, ends = zip(*e.offsets)
        assert numbers(made)[3 * len(e.ids):] == [places[x] for x in begins + ends], text
