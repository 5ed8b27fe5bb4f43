#!/usr/bin/env python3
"""Write tests/encoder/texts: tiny models with tokenizers, as sentence-transformers and transformers save them, and what
these libraries compute for some texts. Run by hand where both are installed.

    python3 tests/encoder/make_texts.py [FOLDER]

search      MPNet with modules.json: mean, normalize; at most 12 tokens
asymmetric  BERT with modules.json in subfolders: cls, Dense with Tanh; two prompts, of which pooling omits the tokens
labels      BERT for classification with three labels
rank        BERT for pairs with one label (a cross-encoder)
protein     ESM-2 with the vocab.txt of EsmTokenizer; proteins.safetensors has the hidden states of the residues of
            tests/t5/data/proteins/proteins.fasta, and the largest error of f32
expected.json in each: texts (or pairs), tokens (of transformers, cut), and vectors or scores, computed in f64, and the
largest error of f32

SPDX-License-Identifier: Apache-2.0"""
import json
import pathlib
import shutil
import sys

import numpy as np
import sentence_transformers
import tokenizers
import torch
import transformers as T
from sentence_transformers.sentence_transformer import modules
from safetensors.numpy import save_file
from tokenizers import normalizers, pre_tokenizers, processors
from transformers.models.esm.configuration_esm import get_default_vocab_list

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_models

HERE = pathlib.Path(__file__).resolve().parent
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = "the cat dog sleeps stocks fell on monday where is ##s ##ing ##er are . , ? ! é ß 日 本".split()
TEXTS = ["The cat sleeps.", "Stocks fell on Monday!", "", "Where are the dogs sleeping, and why?", "Café 日本 straße",
         "a line of text that is much longer than the twelve tokens that this model reads", "ÅNGSTRÖM\t12 345",
         "unfall"]
PAIRS = [["where is the cat", "The cat sleeps on the stocks."], ["dog", ""], ["", "the"],
         ["where is the dog, and where are the stocks of the cat", "On Monday the dogs fell, and fell, and fell."],
         ["the", "a text of a document which is longer than the room that the model has for it, by far and wide"]]
RESIDUES = ["MKTAYIAKQRQISFVKSHF", "", "mkt AYI", "M J X B U Z O . - * K", "MJJK", "<cls>M<mask>K<eos><unk>",
            "<mask><mask>MKTAYIAKQR", "M\x1cK\u3000L \t JJ\x1fJ jé<null_1><nul<pad>", "A" * 50,
            "<MASK>L<cl<cls>s>1<extra>"]
PREFIXES = {"query": "where: ", "document": "the: "}


def save_tokenizer(folder, names, mpnet, max_length):
    """Write the files of a WordPiece tokenizer with the special tokens `names`, and return its size."""
    pieces = names + WORDS + sorted(set(LETTERS) - set(WORDS)) + ["##" + c for c in LETTERS if "##" + c not in WORDS]
    vocab = {p: n for n, p in enumerate(pieces)}
    cls, pad, sep, unk, mask = names
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token=unk))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = (sep, vocab[sep]), (cls, vocab[cls])
    made.post_processor = processors.RobertaProcessing(*ends) if mpnet else processors.BertProcessing(*ends)
    made.add_special_tokens(names)
    folder.mkdir(parents=True, exist_ok=True)
    inputs = ["input_ids", "attention_mask"] if mpnet else ["input_ids", "token_type_ids", "attention_mask"]
    fast = T.PreTrainedTokenizerFast(tokenizer_object=made, cls_token=cls, pad_token=pad, sep_token=sep, unk_token=unk,
                                     mask_token=mask, model_max_length=max_length, model_input_names=inputs)
    fast.save_pretrained(folder)
    return len(vocab)


def save_model(folder, cls, config, seed):
    """Write a model with random weights in f16."""
    model = cls._from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    make_models.fill(model, seed)
    model.half().save_pretrained(folder)


BERT = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
MPNET = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
SIZES = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
             max_position_embeddings=40)


def write_json(path, value):
    """Write a JSON file with a line for each key."""
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_vectors(folder, prompts, texts=TEXTS):
    """Write what sentence-transformers computes for texts, without and with each prompt."""
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu").float().eval()
    narrow = model.encode(texts)
    exact = model.double().encode(texts)
    found = {"texts": texts, "max_tokens": model.max_seq_length, "vectors": exact.tolist(),
             "error": float(np.abs(exact - narrow).max())}
    tokens = model.tokenizer(texts, truncation=True, max_length=model.max_seq_length)["input_ids"]
    found["tokens"] = tokens
    for name in prompts:
        found["vectors." + name] = model.encode(texts, prompt_name=name).tolist()
    write_json(folder / "expected.json", found)


def search(folder):
    """Write the model search."""
    vocab = save_tokenizer(folder, MPNET, True, 38)
    save_model(folder, T.MPNetModel, T.MPNetConfig(vocab_size=vocab, pad_token_id=1, **SIZES), 1)
    word = modules.Transformer(str(folder), max_seq_length=12)
    pool = modules.Pooling(24, pooling_mode="mean")
    sentence_transformers.SentenceTransformer(modules=[word, pool, modules.Normalize()]).save(str(folder))
    write_vectors(folder, [])


def asymmetric(folder):
    """Write the model asymmetric."""
    inner = folder / "plain"
    vocab = save_tokenizer(inner, BERT, False, 20)
    save_model(inner, T.BertModel, T.BertConfig(vocab_size=vocab, pad_token_id=1, **SIZES), 2)
    torch.manual_seed(3)
    word = modules.Transformer(str(inner))
    pool = modules.Pooling(24, pooling_mode="mean", include_prompt=False)
    dense = modules.Dense(24, 10, activation_function=torch.nn.Tanh())
    sentence_transformers.SentenceTransformer(modules=[word, pool, dense], prompts=PREFIXES).save(str(folder))
    shutil.rmtree(inner)
    write_vectors(folder, list(PREFIXES))


def head(folder, n_labels, texts, **more):
    """Write a model with a head, and its logits for texts or pairs."""
    vocab = save_tokenizer(folder, BERT, False, 30)
    config = T.BertConfig(vocab_size=vocab, pad_token_id=1, num_labels=n_labels, **SIZES, **more)
    save_model(folder, T.BertForSequenceClassification, config, 4 + n_labels)
    narrow = T.AutoModelForSequenceClassification.from_pretrained(folder).float().eval()
    model = T.AutoModelForSequenceClassification.from_pretrained(folder).double().eval()
    tokenizer = T.AutoTokenizer.from_pretrained(folder)
    found = {"texts": texts, "tokens": [], "types": [], "logits": [], "error": 0.0}
    for text in texts:
        # a list of one text: a second text "" would be dropped otherwise
        given = tokenizer(*([t] for t in (text if isinstance(text, list) else [text])), truncation=True, max_length=30,
                          return_tensors="pt")
        found["tokens"].append(given["input_ids"][0].tolist())
        found["types"].append(given["token_type_ids"][0].tolist())
        with torch.no_grad():
            exact = model(**given).logits[0]
            found["error"] = max(found["error"], float((exact - narrow(**given).logits[0]).abs().max()))
        found["logits"].append(exact.tolist())
    write_json(folder / "expected.json", found)


def records():
    """Return the residues of the proteins of proteins.fasta."""
    found = []
    for line in (HERE.parent / "t5" / "data" / "proteins" / "proteins.fasta").read_text().splitlines():
        if line.startswith(">"):
            found.append("")
        elif not line.startswith(";"):
            found[-1] += "".join(line.split()).upper().replace("-", "")
    return [one.rstrip("*") for one in found]


def write_residues(folder):
    """Write the hidden states of residues. With spaces between them, EsmTokenizer gives each one token."""
    narrow = T.EsmModel.from_pretrained(folder).float().eval()
    exact = T.EsmModel.from_pretrained(folder).double().eval()
    tokenizer = T.EsmTokenizer.from_pretrained(folder)
    hidden, error = [], 0.0
    for text in records():
        given = tokenizer(" ".join(text), return_tensors="pt")
        with torch.no_grad():
            rows, rounded = exact(**given).last_hidden_state[0], narrow(**given).last_hidden_state[0]
        assert len(rows) == len(text) + 2
        hidden.append(rows[1:-1].numpy())
        error = max(error, float((rows - rounded).abs().max()))
    save_file({"hidden": np.concatenate(hidden).astype(np.float32), "error": np.array([error], np.float32)},
              folder / "proteins.safetensors")


def protein(folder):
    """Write the model protein."""
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(get_default_vocab_list()))
    T.EsmTokenizer(str(folder / "vocab.txt"), model_max_length=38).save_pretrained(folder)
    sizes = {k: v for k, v in SIZES.items() if k != "max_position_embeddings"}
    save_model(folder, T.EsmModel, T.EsmConfig(vocab_size=33, mask_token_id=32, pad_token_id=1, token_dropout=True,
                                               position_embedding_type="rotary", layer_norm_eps=1e-5, **sizes), 6)
    write_vectors(folder, [], RESIDUES)
    write_residues(folder)


def main():
    """Write all."""
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "texts"
    shutil.rmtree(folder, ignore_errors=True)
    search(folder / "search")
    asymmetric(folder / "asymmetric")
    labels = {0: "negative", 1: "neutral", 2: "positive"}
    head(folder / "labels", 3, TEXTS, id2label=labels, label2id={v: k for k, v in labels.items()})
    head(folder / "rank", 1, PAIRS)
    protein(folder / "protein")
    for path in folder.rglob("README.md"):
        path.unlink()
    for path in folder.rglob(".gitattributes"):
        path.unlink()


if __name__ == "__main__":
    main()
