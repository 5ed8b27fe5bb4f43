#!/usr/bin/env python3
"""Write the tiny checkpoints of tests/encoder/data, one or more for each architecture, with random weights, and the
results that transformers computes with them; and values of activations. Run by hand where torch and transformers are
installed. The tests read the files.

    python3 tests/encoder/make_models.py [FOLDER]

Each folder has config.json, weights in f16, and expected.safetensors:
  lengths [n] i32             lengths of the sequences
  tokens [sum of lengths] i32
  types [sum of lengths] i32  token types, if the model has several
  hidden [n, 3, width]        hidden states of the first, the middle and the last token, computed in f64
  hidden_error [1]            largest error of transformers in f32
  logits [n, labels]          if the model has a head, computed in f64
  logits_error [1]            largest error of transformers in f32

SPDX-License-Identifier: Apache-2.0"""
import copy
import json
import pathlib
import sys

import numpy as np
import torch
import transformers as T
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent
LENGTHS = [1, 2, 63, 64, 65, 128, 129, 257, 513]
SMALL = dict(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40)
DEBERTA = dict(SMALL, relative_attention=True, type_vocab_size=0, position_biased_input=False,
               norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"])
MODERN = dict(SMALL, num_hidden_layers=4, pad_token_id=0, eos_token_id=2, bos_token_id=1, cls_token_id=1,
              sep_token_id=2)
LONG = dict(max_position_embeddings=515)
ESM = dict(SMALL, mask_token_id=32, pad_token_id=1, layer_norm_eps=1e-5, token_dropout=True)
# name: class, configuration
MODELS = {
    "bert": (T.BertModel, T.BertConfig(**SMALL, **LONG)),
    "bert_head": (T.BertForSequenceClassification, T.BertConfig(**SMALL, max_position_embeddings=70, num_labels=1)),
    "roberta": (T.RobertaModel, T.RobertaConfig(**SMALL, **LONG, type_vocab_size=1, layer_norm_eps=1e-5)),
    "xlm_roberta": (T.XLMRobertaForSequenceClassification,
                    T.XLMRobertaConfig(**SMALL, max_position_embeddings=70, hidden_act="gelu_new", num_labels=3)),
    "mpnet": (T.MPNetModel, T.MPNetConfig(**SMALL, **LONG)),
    "mpnet_head": (T.MPNetForSequenceClassification,
                   T.MPNetConfig(**SMALL, max_position_embeddings=70, hidden_act="relu", num_labels=2)),
    "deberta": (T.DebertaV2ForSequenceClassification,
                T.DebertaV2Config(**DEBERTA, position_buckets=16, max_position_embeddings=128, num_labels=3)),
    "deberta_c2p": (T.DebertaV2Model,
                    T.DebertaV2Config(**dict(DEBERTA, share_att_key=False, pos_att_type="c2p", norm_rel_ebd="none",
                                             type_vocab_size=3, position_biased_input=True), **LONG)),
    "deberta_own": (T.DebertaV2Model,
                    T.DebertaV2Config(**dict(DEBERTA, share_att_key=False, pos_att_type="p2c|c2p"),
                                      position_buckets=8, max_position_embeddings=64)),
    "modernbert": (T.ModernBertForSequenceClassification,
                   T.ModernBertConfig(**MODERN, local_attention=20, num_labels=2)),
    "modernbert_biases": (T.ModernBertForSequenceClassification,
                          T.ModernBertConfig(**MODERN, local_attention=6, norm_bias=True, attention_bias=True,
                                             mlp_bias=True, classifier_bias=True, classifier_pooling="mean")),
    "esm": (T.EsmModel, T.EsmConfig(**ESM, position_embedding_type="rotary", emb_layer_norm_before=False)),
    "esm_head": (T.EsmForSequenceClassification,
                 T.EsmConfig(**dict(ESM, token_dropout=False), position_embedding_type="rotary", rope_theta=500.0,
                             emb_layer_norm_before=True, num_labels=2)),
    "esm1b": (T.EsmModel, T.EsmConfig(**ESM, emb_layer_norm_before=True, **LONG)),
    "deberta_conv": (T.DebertaV2Model,
                     T.DebertaV2Config(**DEBERTA, position_buckets=16, max_position_embeddings=128,
                                       conv_kernel_size=3, conv_act="gelu")),
    "deberta_conv5": (T.DebertaV2ForSequenceClassification,
                      T.DebertaV2Config(**DEBERTA, position_buckets=16, max_position_embeddings=128, num_labels=2,
                                        conv_kernel_size=5, conv_groups=3)),
}


def fill(model, seed):
    """Set random weights in f16 that are large enough for every layer, table and bias to change the results."""
    random = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        x = torch.randn(p.shape, generator=random)
        if p.dim() == 1:
            p.data = 1 + 0.2 * x if name.endswith("weight") else 0.1 * x
        elif "relative_attention_bias" in name or "rel_embeddings" in name:
            p.data = x
        else:
            p.data = x * (0.5 if "embeddings" in name else 1.5 / p.shape[1] ** 0.5)
        p.data = p.data.half().float()
    for name, b in model.named_buffers():
        if name.endswith("rotary_embeddings.inv_freq"):  # the file has them: ESM rotates by the rounded ones
            b.data = b.data.half().float()


def run(model, tokens, types):
    """Return the hidden states and the logits (or None) of one sequence."""
    given = {"input_ids": torch.tensor(tokens)[None], "attention_mask": torch.ones(1, len(tokens), dtype=torch.long)}
    if types is not None:
        given["token_type_ids"] = torch.tensor(types)[None]
    with torch.no_grad():
        base = getattr(model, model.base_model_prefix, model)
        hidden = base(**given).last_hidden_state[0].numpy()
        logits = model(**given).logits[0].numpy() if base is not model else None
    return hidden, logits


def write(folder, name, seed):
    """Write one model and its results."""
    cls, config = MODELS[name]
    model = cls._from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    fill(model, seed)
    exact = copy.deepcopy(model).double()
    random = np.random.default_rng(seed)
    arrays = {"lengths": [], "tokens": [], "types": [], "hidden": [], "logits": []}
    errors = {"hidden": 0.0, "logits": 0.0}
    limit = config.max_position_embeddings - 2 if getattr(config, "position_biased_input", True) else 600
    n_types = getattr(config, "type_vocab_size", 0)
    for n in [n for n in LENGTHS if n <= limit]:
        tokens = random.integers(3, config.vocab_size, n)
        types = random.integers(0, n_types, n) if n_types > 1 else None
        (hidden, logits), (narrow, narrow_logits) = run(exact, tokens, types), run(model, tokens, types)
        arrays["lengths"].append(n)
        arrays["tokens"].append(tokens)
        arrays["hidden"].append(hidden[[0, n // 2, n - 1]])
        errors["hidden"] = max(errors["hidden"], np.abs(hidden - narrow).max())
        if types is not None:
            arrays["types"].append(types)
        if logits is not None:
            arrays["logits"].append(logits)
            errors["logits"] = max(errors["logits"], np.abs(logits - narrow_logits).max())
    made = {"lengths": np.array(arrays["lengths"], np.int32), "hidden": np.array(arrays["hidden"], np.float32),
            "tokens": np.concatenate(arrays["tokens"]).astype(np.int32),
            "hidden_error": np.array([errors["hidden"]], np.float32)}
    if arrays["types"]:
        made["types"] = np.concatenate(arrays["types"]).astype(np.int32)
    if arrays["logits"]:
        made["logits"] = np.array(arrays["logits"], np.float32)
        made["logits_error"] = np.array([errors["logits"]], np.float32)
    to = folder / name
    to.mkdir(parents=True, exist_ok=True)
    save_file({k: v.half().numpy() for k, v in model.state_dict().items() if v.is_floating_point()},
              to / "model.safetensors", metadata={"format": "pt"})
    save_file(made, to / "expected.safetensors")
    kept = {k: v for k, v in json.loads(config.to_json_string(use_diff=False)).items()
            if k not in ("transformers_version", "dtype")}
    (to / "config.json").write_text(json.dumps(dict(kept, architectures=[cls.__name__]), indent=1) + "\n")


ACTIVATIONS = ["gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate",
               "relu", "tanh", "sigmoid", "silu", "swish", "quick_gelu", "mish", "relu2", "relu6", "leaky_relu",
               "hardswish", "linear"]


def write_activations(folder):
    """Write values of the activations, computed in f64."""
    x = torch.tensor([-100, -10, -6, -3.5, -3, -2, -1, -0.5, -0.001, 0, 0.001, 0.5, 1, 2, 3, 3.5, 6, 7, 10, 50, 100],
                     dtype=torch.float64)
    found = {name: T.activations.ACT2FN[name](x.clone()).tolist() for name in ACTIVATIONS}
    lines = ",\n".join(json.dumps(name) + ": " + json.dumps(row) for name, row in {"x": x.tolist(), **found}.items())
    (folder / "activations.json").write_text("{\n" + lines + "\n}\n")


def main():
    """Write all models."""
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "data"
    for seed, name in enumerate(MODELS):
        write(folder, name, seed)
    write_activations(folder)


if __name__ == "__main__":
    main()
