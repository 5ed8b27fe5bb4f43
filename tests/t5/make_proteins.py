#!/usr/bin/env python3
"""Write tests/t5/data/proteins: tiny models of the shapes of ProtT5, ProstT5 and Ankh with random weights, a FASTA
file, and what the families' own scripts compute from it. Run by hand where torch, transformers (tested with 5.24) and
sentencepiece are installed.

    python3 tests/t5/make_proteins.py [FOLDER]

    proteins.fasta         the proteins
    MODEL/                 config.json, model.safetensors, tokenizer files; prostt5 also has cnn.safetensors
    MODEL/expected.safetensors
      lengths [n] i64      residues of each protein
      hidden [sum, d] f32  hidden states of the residues, computed in f64
      replaced [1] i64     number of residues that the script replaces
      letters [sum] u8     prostt5: 3Di letters

The tokens come from the tokenizer of the family, as in prott5_embedder.py of ProtTrans and predict_3Di_encoderOnly.py
of ProstT5. For Ankh they come from the library tokenizers, because transformers 5.24 does not read this tokenizer.json
correctly.

SPDX-License-Identifier: Apache-2.0"""
import copy
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, processors
from transformers import T5Config, T5EncoderModel, T5Tokenizer

from make_models import doubled

HERE = pathlib.Path(__file__).resolve().parent
LETTERS = "ALGVSREDTIPKFQNYMHWCXBOUZ"
THREE_DI = "ACDEFGHIKLMNPQRSTVWY"
SMALL = dict(d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=3, relative_attention_num_buckets=8,
             relative_attention_max_distance=12)
MODELS = {"prott5": (128, "relu", 1), "prostt5": (150, "relu", 2), "ankh": (144, "gated-silu", 3)}
FASTA = """; a comment
>sp|P69905.2|HBA_HUMAN Hemoglobin subunit alpha/chain
MVLSPADKTNVKAAWGKVGAHAGEYGAEALERMFLSFPTTKTYFPHFDLSHGSAQVKGHG
KKVADALTNAVAHVDDMPNALSALSDLHAHKLRVDPVNFKLLSHCLLVTLAAHLPAEFTPAVHASLDKFLASVSTVLTSKYR

>one
M
>lower case, with gaps
mkt--aYIAKqrqis
  fvkshf srqleerlglievq
>unknown.letters
MUOZBJXACDEFGHIKLMNPQRSTVWYUU*
>A>B
GGGGG
>sp|Q1|LAST
MNIFEMLRIDEGLRLKIYKDTEGYYTIGIGHLLTKSPSLNAAKSELDKAIGRNTNGVITKDEAEKLFNQDVDAAVRGILRNAKLKPVYDSLDAVRRAALI\
NMVFQMGETGVAGFTNSLRMLQQKRWDEAAVNLAKSRWYNQTPNRAKRVITTFRTGTWDAYKNL
"""


def spiece():
    """Return a spiece.model with one piece for each residue."""
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    for k, piece in enumerate(["<pad>", "</s>", "<unk>", *("▁" + letter for letter in LETTERS)]):
        model.pieces.add(piece=piece, score=0 if k < 3 else -2 - k / 10, type=(3, 3, 2)[k] if k < 3 else 1)
    t, n = model.trainer_spec, model.normalizer_spec
    t.model_type, t.pad_id, t.eos_id, t.unk_id, t.bos_id = 1, 0, 1, 2, -1
    n.add_dummy_prefix = n.remove_extra_whitespaces = n.escape_whitespaces = True
    return model.SerializeToString()


def write_tokenizer(folder, name):
    if name == "ankh":
        vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [(c, -2 - 0.1 * k) for k, c in enumerate(LETTERS)]
        t = Tokenizer(models.Unigram(vocab, unk_id=2))
        t.add_special_tokens(["<pad>", "</s>", "<unk>", *(f"<extra_id_{k}>" for k in range(3))])
        t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                         special_tokens=[("</s>", 1)])
        t.save(str(folder / "tokenizer.json"))
        return
    (folder / "spiece.model").write_bytes(spiece())
    write = lambda file, content: (folder / file).write_text(json.dumps(content, sort_keys=True) + "\n")  # noqa: E731
    special = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    write("special_tokens_map.json", special)
    write("tokenizer_config.json",
          {**special, "extra_ids": 100, "additional_special_tokens": [f"<extra_id_{k}>" for k in range(100)],
           "tokenizer_class": "T5Tokenizer", "do_lower_case": False})
    if name == "prostt5":
        added = {letter: 128 + k for k, letter in enumerate("algvsredtipkfqnymhwc")}
        write("added_tokens.json", {**added, "<fold2AA>": 148, "<AA2fold>": 149})


def read_fasta(text):
    """read_fasta of prott5_embedder.py; comments and stop codons, which it does not know, are removed before."""
    sequences = {}
    for line in text.replace("*", "").splitlines():
        if line.startswith(";"):
            continue
        if line.startswith(">"):
            name = line.replace(">", "").strip().replace("/", "_").replace(".", "_")
            sequences[name] = ""
        elif line.strip():
            sequences[name] += "".join(line.split()).upper().replace("-", "")
    return sequences


def tokens_of(folder, name, residues):
    """Return the tokens of a protein, the number of tokens before the residues, and the number of replaced residues."""
    read = {"prott5": "UX ZX OX JX", "prostt5": "BD ZE JL UX OX", "ankh": ""}[name].split()
    replaced = sum(residues.count(pair[0]) for pair in read) + (residues.count("J") if name == "ankh" else 0)
    for pair in read:
        residues = residues.replace(*pair)
    if name == "ankh":
        return Tokenizer.from_file(str(folder / "tokenizer.json")).encode(residues).ids, 0, replaced
    prefix = "<AA2fold> " if name == "prostt5" else ""
    ids = T5Tokenizer.from_pretrained(folder, do_lower_case=False)(prefix + " ".join(residues),
                                                                   add_special_tokens=True).input_ids
    return ids, int(name == "prostt5"), replaced


def fill(model, seed):
    random = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        x = torch.randn(p.shape, generator=random)
        p.data = (1 + 0.3 * x if "layer_norm" in name else x if "relative_attention_bias" in name or "embed" in name
                  or "shared" in name else x * 1.3 / p.shape[-1] ** 0.5)


def three_di(head, rows):
    """The class CNN of predict_3Di_encoderOnly.py, in f64."""
    with torch.no_grad():
        scores = head(rows.T[None, :, :, None])[0, :, :, 0].T
    best = scores.topk(2).values
    assert (best[:, 0] - best[:, 1]).min() > 1e-4, "two letters are too close (change the seed)"
    return [THREE_DI[k] for k in scores.argmax(1)]


@torch.no_grad()
def make(folder, name):
    vocab, feed, seed = MODELS[name]
    folder.mkdir(parents=True, exist_ok=True)
    model = T5EncoderModel(T5Config(vocab_size=vocab, feed_forward_proj=feed, **SMALL)).eval()
    fill(model, seed)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_tokenizer(folder, name)
    d, exact = SMALL["d_model"], doubled(model)
    torch.manual_seed(seed)
    head = torch.nn.Sequential(torch.nn.Conv2d(d, 32, (7, 1), padding=(3, 0)), torch.nn.ReLU(), torch.nn.Dropout(0.0),
                               torch.nn.Conv2d(32, 20, (7, 1), padding=(3, 0))).eval()
    for p in head.parameters():
        p.data *= 4  # scores that differ clearly
    hidden, letters, replaced, lengths = [], [], 0, []
    for residues in read_fasta(FASTA).values():
        ids, before, n = tokens_of(folder, name, residues)
        assert len(ids) == before + len(residues) + 1, (name, residues, ids)
        rows = exact(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids))).last_hidden_state[0]
        rows = rows[before:-1]
        hidden.append(rows.float())
        if name == "prostt5":
            letters += three_di(copy.deepcopy(head).double(), rows)
        replaced += n
        lengths.append(len(residues))
    expected = {"lengths": torch.tensor(lengths), "hidden": torch.cat(hidden), "replaced": torch.tensor([replaced])}
    if name == "prostt5":
        save_file({f"classifier.{k}": v for k, v in head.state_dict().items()}, folder / "cnn.safetensors")
        expected["letters"] = torch.tensor([ord(c) for c in letters], dtype=torch.uint8)
    save_file(expected, folder / "expected.safetensors")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "data" / "proteins"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "proteins.fasta").write_text(FASTA)
    for name in MODELS:
        make(folder / name, name)


if __name__ == "__main__":
    main()
