#!/usr/bin/env python3
"""Write tests/tokenizer/data/added: a spiece.model of amino acids with an added_tokens.json, as in ProstT5, and the
tokens of some texts in transformers (tested with 5.24.0). Needs sentencepiece, transformers and protobuf.

    tests/tokenizer/make_added.py

SPDX-License-Identifier: Apache-2.0"""
import json
import pathlib

from sentencepiece import sentencepiece_model_pb2
from transformers import T5Tokenizer

FOLDER = pathlib.Path(__file__).parent / "data/added"
EXTRA_IDS = 4
TEXTS = ["<AA2fold> M K T A X", "<AA2fold>MKTAX", "M K T a c", "Ma cK", "mkt", "abc def", "a", "  a  b ", "<fold2AA>",
         "M<AA2fold>K", "<fold2AA> a c d v",
         "<AA2fold> <extra_id_0> M", "M<extra_id_3>K a", "fold2AA a", "M <sep> K", "M<sep>a", "<sep"]


def make_model():
    model = sentencepiece_model_pb2.ModelProto()
    for k, piece in enumerate(["<pad>", "</s>", "<unk>", *("▁" + letter for letter in "ALGVSREDTIPKFQNYMHWCXBOUZ")]):
        model.pieces.add(piece=piece, score=0 if k < 3 else -2 - k / 10, type=(3, 3, 2)[k] if k < 3 else 1)
    model.trainer_spec.model_type = 1
    model.trainer_spec.pad_id, model.trainer_spec.eos_id, model.trainer_spec.unk_id, model.trainer_spec.bos_id = (
        0, 1, 2, -1)
    spec = model.normalizer_spec
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = True
    return model.SerializeToString()


def write(name, content):
    (FOLDER / name).write_text(json.dumps(content, sort_keys=True) + "\n")


def main():
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "spiece.model").write_bytes(make_model())
    first = 28 + EXTRA_IDS
    letters = {letter: first + k for k, letter in enumerate("algvsredtipkfqnymhwc")}
    write("added_tokens.json", {**letters, "<fold2AA>": first + 20, "<AA2fold>": first + 21, "<sep>": first + 22})
    extra = [f"<extra_id_{k}>" for k in range(EXTRA_IDS)]
    write("tokenizer_config.json", {"extra_ids": EXTRA_IDS, "eos_token": "</s>", "pad_token": "<pad>",
                                    "unk_token": "<unk>",
                                    "additional_special_tokens": [*extra, "<sep>"], "tokenizer_class": "T5Tokenizer"})
    write("special_tokens_map.json", {"eos_token": {"content": "</s>"}, "pad_token": "<pad>", "unk_token": "<unk>"})
    tokenizer = T5Tokenizer.from_pretrained(FOLDER)
    with open(FOLDER / "cases.tsv", "w") as cases:
        for text in TEXTS:
            ids = tokenizer(text).input_ids
            print(text, " ".join(map(str, ids)), sep="\t", file=cases)


main()
