#!/usr/bin/env python3
"""Write tests/tokenizer/data: small tokenizers, trained by SentencePiece and converted by transformers, and the tokens
of difficult texts in SentencePiece, `tokenizers` and transformers' ByT5Tokenizer. Needs sentencepiece, tokenizers,
transformers and protobuf.

    tests/tokenizer/make_data.py TEXT...      training texts in several languages, such as man pages

SPDX-License-Identifier: Apache-2.0"""
import base64
import io
import itertools
import json
import pathlib
import random
import sys
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hard_texts import hard_texts

DATA = pathlib.Path(__file__).parent / "data"


def rules():
    """Return a part of the rules of nmt_nfkc, whose full map has 300 kB: pairs (characters, replacement)."""
    for c in [*range(1, 9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F, 0x200B, 0x200E, 0x200F, 0xFEFF, 0xFFFD]:
        yield chr(c), "" if c not in (0x200B, 0xFEFF, 0x200E, 0x200F, 0xFFFD) else " "
    for c in (9, 10, 12, 13, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000):
        yield chr(c), " "
    singles = [*range(0xA8, 0xC0), *range(0x2460, 0x2474), *range(0xFB00, 0xFB07), *range(0xFF01, 0xFF5F),
               *range(0xFF71, 0xFF90),
               0x1C4, 0x2DC, 0x385, 0x3C2, 0x2126, 0x212B, 0x2460, 0x3300, 0x3314, 0x33FF, 0xFDFA, 0xFEF7, 0x1D400,
               0x1F100, 0x2F800]
    for c in singles:
        if unicodedata.normalize("NFKC", chr(c)) != chr(c):
            yield chr(c), unicodedata.normalize("NFKC", chr(c))
    for base, mark in itertools.product("aeouAEOUcnsy", "\u0300\u0301\u0302\u0303\u0308\u030a\u0327"):
        if len(unicodedata.normalize("NFC", base + mark)) == 1:
            yield base + mark, unicodedata.normalize("NFC", base + mark)
    for first, vowel, last in itertools.product("\u1100\u1112", "\u1161\u1162", ["", "\u11a8", "\u11ab"]):
        yield first + vowel + last, unicodedata.normalize("NFC", first + vowel + last)
    yield "\u304b\u3099", "\u304c"
    yield "\uff76\uff9e", "\u30ac"
    yield "\r\n", " "


def train(lines, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False,
                                             num_threads=1,
                                             minloglevel=2, **options)
    return model.getvalue()


def converted(model, byte_fallback=False, added=None, **parts):
    """Return a tokenizer.json as transformers' T5Converter writes it. Arguments other than None replace its parts."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    vocab = [[p.piece, p.score] for p in proto.pieces]
    number = {piece: k for k, (piece, _) in enumerate(vocab)}
    if added is None:
        vocab += [[f"<extra_id_{k}>", 0.0] for k in range(9, -1, -1)]
        number = {piece: k for k, (piece, _) in enumerate(vocab)}
        added = [(c, False, False, False, True)
                 for c in ["<pad>", "</s>", "<unk>", *(f"<extra_id_{k}>" for k in range(10))]]
    tokens = []
    for content, lstrip, rstrip, normalized, special in added:
        tokens.append({"id": number.setdefault(content, len(number)), "content": content, "single_word": False,
                       "lstrip": lstrip,
                       "rstrip": rstrip, "normalized": normalized, "special": special})
    charsmap = proto.normalizer_spec.precompiled_charsmap
    steps = [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}] if charsmap else []
    meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    content = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
        "normalizer": {"type": "Sequence", "normalizers": steps + parts.get("steps", [
            {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}])},
        "pre_tokenizer": parts.get("pre_tokenizer", meta),
        "post_processor": {
            "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
                                                     {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [number["</s>"]], "tokens": ["</s>"]}}},
        "decoder": parts.get("decoder", meta),
        "model": {"type": "Unigram", "unk_id": next(k for k, p in enumerate(proto.pieces) if p.type == p.UNKNOWN),
                  "vocab": vocab,
                  "byte_fallback": byte_fallback}}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def white(scheme):
    return {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁",
                                                                                "prepend_scheme": scheme,
                                                                                "split": True}]}


def make_tokenizers(lines):
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as tsv:
        for old, new in dict(rules()).items():
            tsv.write(" ".join(f"{ord(c):X}" for c in old) + "\t" + " ".join(f"{ord(c):X}" for c in new) + "\n")
        tsv.flush()
        some = {"normalization_rule_tsv": tsv.name}
        t5 = train(lines, vocab_size=900, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, character_coverage=0.98, **some)
        fallback = train(lines, vocab_size=900, byte_fallback=True, user_defined_symbols=["<sep>", "ab", "<a b>", "é"],
                         control_symbols=["<ctl>"],
                         remove_extra_whitespaces=False, character_coverage=0.98, **some)
    plain = train(lines, vocab_size=500, normalization_rule_name="identity", remove_extra_whitespaces=False,
                  add_dummy_prefix=False,
                  split_by_whitespace=False, allow_whitespace_only_pieces=True, character_coverage=0.98)
    suffix = train(lines, vocab_size=500, normalization_rule_name="identity", treat_whitespace_as_suffix=True,
                   unk_surface="?",
                   character_coverage=0.98)
    added = [("</s>", False, False, False, True), ("<extra_id_0>", True, True, False, True),
             ("<e>", False, True, False, False),
             ("Ab c", False, False, True, False), ("①x", True, False, True, True), (" z", False, False, False, False)]
    space = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    return {
        "t5.model": t5, "fallback.model": fallback, "plain.model": plain, "suffix.model": suffix,
        "t5.json": converted(t5),
        "white.json": converted(t5, pre_tokenizer=white("always"), steps=[], added=added),
        "first.json": converted(t5, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
                                                   "split": False},
                                steps=[{"type": "Strip", "strip_left": True, "strip_right": True},
                                       {"type": "Replace", "pattern": {"String": "--"}, "content": "—"}], added=added),
        "fallback.json": converted(fallback, byte_fallback=True, added=added,
                                   decoder={"type": "Sequence",
                                            "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}]}),
        "never.json": converted(plain, pre_tokenizer={"type": "Metaspace", "replacement": "▁",
                                                      "prepend_scheme": "never", "split": True},
                                decoder={"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {
                                    "type": "Metaspace", "replacement": "▁", "prepend_scheme": "never",
                                    "split": True}]}, added=added)}


def oracle(name, content):
    """Return two functions of a tokenizer, from bytes to tokens and from tokens to text, and its number of tokens."""
    if name.endswith(".json"):
        t = Tokenizer.from_str(content.decode())
        return (lambda text: t.encode(text.decode("utf-8", "replace")).ids, lambda ids,
                skip: t.decode(ids, skip_special_tokens=skip),
                t.get_vocab_size())
    if name == "bytes":
        from transformers import ByT5Tokenizer
        t = ByT5Tokenizer()
        return (lambda text: t(text.decode("utf-8", "replace")).input_ids,
                lambda ids, skip: t.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False), 384)
    t = sentencepiece.SentencePieceProcessor(model_proto=content)
    return lambda text: [*t.encode(text), t.eos_id()], lambda ids, skip: t.decode(ids), t.get_piece_size()


def cases(name, content, texts):
    encode, decode, size = oracle(name, content)
    draw = random.Random(7)
    if name == "bytes":
        # ByT5 takes the bytes of the other texts unchanged
        texts = [t for t in texts if t.decode("utf-8", "ignore").encode() == t]
    found = [{"text": text.hex(), "ids": encode(text)} for text in texts if len(text) < 400]
    several = [[draw.choice([draw.randrange(size), draw.randrange(min(size, 262))])
                for _ in range(draw.randrange(1, 7))] for _ in range(150)]
    for ids in [case["ids"] for case in found[::3]] + several:
        skip = draw.random() < 0.5
        found.append({"ids": ids, "skip": skip, "decoded": decode(ids, skip).encode().hex()})
    return found


def main():
    lines = [line for path in sys.argv[1:] for line in open(path, encoding="utf-8", errors="replace").read().split("\n")
             if line.strip()]
    DATA.mkdir(exist_ok=True)
    texts = hard_texts()
    for name, content in {**make_tokenizers(lines), "bytes": b""}.items():
        if content:
            (DATA / name).write_bytes(content)
        listed = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases(name, content, texts))
        (DATA / f"{name}.cases").write_text(f"[\n{listed}\n]\n")
        print(name, len(content), (DATA / f"{name}.cases").stat().st_size)


if __name__ == "__main__":
    main()
