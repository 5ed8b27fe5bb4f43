"""Compare Unigram with the steps of XLM-R and DeBERTa-v3 in C with `tokenizers`: tokens, types and spans of hard and
random texts and pairs, with the pieces of tests/tokenizer/data/t5.json.
SPDX-License-Identifier: Apache-2.0"""
import base64
import json

import pytest
from test_wordpiece import RANDOM, compare, pytestmark, root  # noqa: F401

transformers = pytest.importorskip("transformers")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors  # noqa: E402
from hard_texts import bpe_texts  # noqa: E402

FILE = json.loads((root / "tests/tokenizer/data/t5.json").read_text(encoding="utf-8"))
PIECES = [tuple(x) for x in FILE["model"]["vocab"] if not x[0].startswith("<")]
XLMR = [(x, 0.0) for x in ["<s>", "<pad>", "</s>", "<unk>"]] + PIECES + [("<mask>", 0.0)]
DEBERTA = [(x, 0.0) for x in ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]] + PIECES
MAP = normalizers.Precompiled(base64.b64decode(next(
    x["precompiled_charsmap"] for x in FILE["normalizer"]["normalizers"] if x["type"] == "Precompiled")))
META = pre_tokenizers.Metaspace("\u2581", prepend_scheme="always")


def converted(vocab, normalizer, split, single, pair, special):
    """Return a tokenizer as transformers 4 converts it from a SentencePiece model."""
    t = Tokenizer(models.Unigram(vocab, unk_id=3))
    t.normalizer, t.pre_tokenizer = normalizer, pre_tokenizers.Sequence(split)
    t.decoder = decoders.Metaspace("\u2581", prepend_scheme="always")
    t.add_special_tokens([AddedToken(x, lstrip="mask" in x.lower()) for x in special])
    t.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(x, t.token_to_id(x)) for x in special[:2]])
    return t


def xlmr(normalizer):
    return converted(XLMR, normalizer, [pre_tokenizers.WhitespaceSplit(), META], "<s> $A </s>",
                     "<s> $A </s> </s> $B </s>", ["<s>", "</s>", "<pad>", "<unk>", "<mask>"])


KINDS = {
    "xlmr": lambda: xlmr(MAP),
    "xlmr spaces": lambda: xlmr(normalizers.Sequence([MAP, normalizers.Replace(Regex(" {2,}"), " ")])),
    "xlmr 5": lambda: transformers.XLMRobertaTokenizer(vocab=XLMR)._tokenizer,
    "deberta": lambda: converted(DEBERTA, normalizers.Sequence([normalizers.Strip(), MAP]), [META], "[CLS] $A [SEP]",
                                 "[CLS] $A [SEP] $B:1 [SEP]:1", ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"]),
    "deberta 5": lambda: transformers.DebertaV2Tokenizer(vocab=DEBERTA, unk_id=3)._tokenizer,
    "deberta 5 punctuation": lambda: transformers.DebertaV2Tokenizer(
        vocab=DEBERTA, unk_id=3, do_lower_case=True, split_by_punct=True)._tokenizer}


@pytest.mark.parametrize("name", KINDS)
def test_pairs_as_tokenizers(name, tmp_path):
    KINDS[name]().save(str(tmp_path / "tokenizer.json"))
    texts = bpe_texts() + [x for x in RANDOM[:2000] if x.decode("utf-8", "ignore").encode() == x]
    compare(tmp_path / "tokenizer.json", texts, len(texts))
