#!/usr/bin/env python3
"""Write the tokenizers with byte-level BPE in tests/tokenizer/data, and their results as make_wordpiece.py does.

    tests/tokenizer/make_bpe.py docs/*.md      or other training texts

SPDX-License-Identifier: Apache-2.0"""
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hard_texts import bpe_texts, hard_texts  # noqa: E402
from make_wordpiece import write  # noqa: E402

ROBERTA, BERT = ["<s>", "<pad>", "</s>", "<unk>"], ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
PATTERNS = {
    "llama3": CONTRACTIONS + r"\p{N}{1,3}" + REST,
    "qwen2": CONTRACTIONS + r"\p{N}" + REST,
    "phi4": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
            r"\s+(?!\S)|\s+",
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "gpt2 b": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"}
ADDED = [AddedToken("<e>", rstrip=True, normalized=False), AddedToken("Ab c", normalized=True),
         AddedToken("the", single_word=True, normalized=True), AddedToken("e\u0301", normalized=True),
         AddedToken("|||IP_ADDRESS|||", normalized=True)]
SPACES = [AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)]
KINDS = ["roberta", "modernbert", "gpt2", "llama3", "qwen2", "phi4", "unknown", "fused", "none"]
KEPT = ["roberta", "modernbert", "gpt2", "llama3", "fused", "none"]  # in the tree


def byte_level(space=False, regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=regex)


def split(name):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"), byte_level(regex=False)])


def train(lines, name, size):
    """Return a trained tokenizer."""
    unknown = {"unknown": "[UNK]", "fused": "[UNK]"}.get(name)
    t = Tokenizer(models.BPE(unk_token=unknown, fuse_unk=name == "fused", ignore_merges=name == "llama3"))
    t.decoder = decoders.ByteLevel()
    t.pre_tokenizer = split(name) if name in PATTERNS and name != "gpt2" else byte_level(name in ("gpt2", "fused"))
    if name in ("modernbert", "qwen2"):
        t.normalizer = normalizers.NFC()
    every = name not in ("unknown", "fused", "none")
    special = [*ROBERTA, AddedToken("<mask>", lstrip=True, normalized=False)] if name == "roberta" else BERT
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, limit_alphabet=256 if every else 80, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if every else []))
    number = t.token_to_id
    around = [] if name == "roberta" else [(x, number(x)) for x in BERT[1:3]]
    template = around and processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=around)
    if name == "roberta":
        t.post_processor = processors.RobertaProcessing(("</s>", number("</s>")), ("<s>", number("<s>")),
                                                        trim_offsets=True, add_prefix_space=False)
        t.add_tokens(ADDED)
    elif name == "gpt2":
        t.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=True)
    elif name == "llama3":
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    elif name != "phi4":
        t.post_processor = template
    if name == "modernbert":
        t.add_tokens([AddedToken("[MASK]", lstrip=True, special=True), *ADDED, *SPACES])
    t.enable_truncation(128)  # relpos ignores both
    t.enable_padding(length=128)
    return t


def main():
    lines = [line for path in sys.argv[1:] for line in open(path, encoding="utf-8", errors="replace")]
    texts = bpe_texts()
    for name in KEPT:
        t = train(lines + 3 * [x.decode().replace("\0", "") for x in texts], name, 500)
        write(name, t, [x for x in texts if len(x) < 120], 250 if name == "roberta" else 100,
              hard_texts() if name == "modernbert" else None)


if __name__ == "__main__":
    main()
