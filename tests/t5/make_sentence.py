#!/usr/bin/env python3
"""Write the tiny sentence-transformers folders of tests/t5/sentence, and the vectors of SentenceTransformer.encode. Run
by hand where sentence-transformers 6.2 is installed. The tests read the files.

    python3 tests/t5/make_sentence.py [FOLDER]

  new     as version 6.2 saves it: mean, a linear layer, length 1; a maximum length and a default prompt
  old     as version 1 saved it: the Transformer in a folder of its own, pooling_mode_mean_tokens, Tanh, a
          pytorch_model.bin
  all     all kinds of pooling, one after the other, without the tokens of the prompt (include_prompt)

lines.txt has the texts. FOLDER.jsonl has a line for each prompt and text: the name of the prompt, and the vector,
computed in f64.

SPDX-License-Identifier: Apache-2.0"""
import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.base.modules.normalize import Normalize
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules.pooling import Pooling
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

HERE = pathlib.Path(__file__).resolve().parent
LINES = ["the cat sat on the mat", "a mat", "", "the mat sat on a cat that sat on the mat and on the hat",
         "it is a test of a cat"]
PROMPTS = {"query": "find: ", "topic": "say the topic of it: "}
WORDS = ["the", "cat", "sat", "on", "mat", "a", "it", "is", "test", "of", "find", "say", "topic"]
MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def tokenizer():
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((f"▁{w}", -2.0 - 0.1 * n) for n, w in enumerate(WORDS)),
              ("▁", -4.0),
              *((letter, -5.0 - 0.1 * n) for n, letter in enumerate("abcdefghijklmnopqrstuvwxyz:"))]
    t = Tokenizer(models.Unigram(pieces, unk_id=2))
    t.normalizer = normalizers.Sequence([normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                     special_tokens=[("</s>", 1)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="</s>",
                                                unk_token="<unk>"), len(pieces)


def encoder(folder):
    """Save an encoder with random weights, large enough for every layer to change the results."""
    tokens, n = tokenizer()
    config = transformers.T5Config(vocab_size=n, d_model=12, d_kv=8, d_ff=20, num_layers=2, num_heads=2,
                                   relative_attention_num_buckets=8,
                                   relative_attention_max_distance=12)
    model, random = transformers.T5EncoderModel(config), torch.Generator().manual_seed(7)
    for name, p in model.named_parameters():
        x = torch.randn(p.shape, generator=random)
        p.data = (1 + 0.3 * x if "layer_norm" in name else x if "bias" in name else 0.3 * x if "shared" in name else x
                  * 1.3 / p.shape[-1] ** 0.5)
        p.data = p.data.bfloat16()
    model.bfloat16().save_pretrained(folder)
    tokens.save_pretrained(folder)


def dense(out, seed, **options):
    made, random = Dense(12, out, **options), torch.Generator().manual_seed(seed)
    for p in made.linear.parameters():
        p.data = torch.randn(p.shape, generator=random) / 3
    return made


def write_json(path, content):
    path.write_text(json.dumps(content, indent=1) + "\n")


def make_old(folder):
    """Change the folder to the form of version 1."""
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "0_Transformer").mkdir()
    for file in list(folder.iterdir()):
        if file.is_file() and file.name not in ("modules.json", "config_sentence_transformers.json"):
            file.rename(folder / "0_Transformer" / file.name)
    (folder / "config_sentence_transformers.json").unlink()
    modules[0]["path"] = "0_Transformer"
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rsplit(".")[-1]
    write_json(folder / "modules.json", modules)
    write_json(folder / "0_Transformer/sentence_bert_config.json", {"max_seq_length": 10, "do_lower_case": False})
    write_json(folder / modules[1]["path"] / "config.json",
               {"word_embedding_dimension": 12, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
                "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False})


def expect(folder):
    model = SentenceTransformer(str(folder), device="cpu").double()
    for module in model.modules():
        if type(module).__name__ == "T5LayerNorm":
            module.forward = lambda x, m=module: m.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)
                                                                            + m.variance_epsilon)
    lines = []
    for name in [None, *(n for n in model.prompts if model.prompts[n])]:
        for vector in model.encode(LINES, prompt_name=name):
            lines.append(json.dumps({"prompt": name, "vector": [float(f"{x:.9g}") for x in vector]}))
    (folder.parent / f"{folder.name}.jsonl").write_text("\n".join(lines) + "\n")


def main():
    to = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "sentence"
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    (to / "lines.txt").write_text("\n".join(LINES) + "\n")
    with tempfile.TemporaryDirectory() as plain:
        encoder(plain)
        folders = {
            "new": ([Pooling(12, "mean"), dense(7, 1, bias=False, activation_function=torch.nn.Identity()),
                     Normalize()], "query", {}),
            "old": ([Pooling(12, "mean"), dense(5, 2), Normalize(), ], None, {"safe_serialization": False}),
            "all": ([Pooling(12, MODES, include_prompt=False)], "topic", {}),
        }
        for name, (modules, default, options) in folders.items():
            first = Transformer(plain, max_seq_length=12 if name == "new" else None)
            model = SentenceTransformer(modules=[first, *modules], device="cpu", prompts=PROMPTS,
                                        default_prompt_name=default)
            model.save(str(to / name), create_model_card=False, **options)
            if name == "old":
                make_old(to / name)
            expect(to / name)


main()
