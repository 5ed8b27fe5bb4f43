"""Compare byte-level BPE in C with `tokenizers`: tokens, types and spans of hard and random texts and pairs, with
tokenizers trained here; the regular expressions for every character of Unicode; and long words.
SPDX-License-Identifier: Apache-2.0"""
import pytest
from test_wordpiece import CHARACTERS, LINES, RANDOM, around, compare, numbers, pytestmark, run, sized  # noqa: F401

from tokenizers import Regex, Tokenizer, models, pre_tokenizers  # noqa: E402
from hard_texts import bpe_texts  # noqa: E402
from make_bpe import KINDS, PATTERNS, train  # noqa: E402

TEXTS = bpe_texts()


@pytest.mark.parametrize("name", KINDS)
def test_pairs_as_tokenizers(name, tmp_path):
    t = train(LINES + [x.decode().replace("\0", "") for x in TEXTS], name, 1500)
    t.save(str(tmp_path / "tokenizer.json"))
    valid = TEXTS + [x for x in RANDOM if x.decode("utf-8", "ignore").encode() == x]
    compare(tmp_path / "tokenizer.json", valid, len(valid) + 1000)


def compare_words(name, texts, path):
    """The only token is that of unknown bytes, and each word has one."""
    t = Tokenizer(models.BPE({"[UNK]": 0}, [], unk_token="[UNK]", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.save(str(path))
    for text, made in zip(texts, run(path, "pairs", [sized(x.encode()) + sized(None) for x in texts], 0)):
        places = [0]
        for c in text:
            places.append(places[-1] + len(c.encode()))
        e = t.encode(text)
        begins, ends = zip(*e.offsets)
        assert numbers(made)[3 * len(e.ids):] == [places[x] for x in begins + ends], text


def test_every_character(tmp_path):
    """Letters join the a, numbers the 1, and white space is apart from both."""
    compare_words("gpt2", around("a{0}1"), tmp_path / "tokenizer.json")


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name, tmp_path):
    """The first characters beside letters, numbers, white space and contractions."""
    form = "a{0}1{0}!{0} {0}{0}\n{0}\t {0}'{0}e'l{0}a'S{0}"
    compare_words(name, [form.format(c) for c in CHARACTERS[:0x3100]], tmp_path / "tokenizer.json")


def test_long_words(tmp_path):
    """Words of 100,000 characters, which take seconds if the time is quadratic."""
    t = train(LINES, "roberta", 1500)
    t.save(str(tmp_path / "tokenizer.json"))
    t.no_padding()
    t.no_truncation()
    words = ["a" * 100_000, "the" * 33_000, "ab\u00e9\u8a9e" * 25_000, " " * 100_000, "-=" * 50_000]
    for word, made in zip(words, run(tmp_path / "tokenizer.json", "encode", [sized(x.encode()) for x in words], 1)):
        assert numbers(made) == t.encode(word).ids
