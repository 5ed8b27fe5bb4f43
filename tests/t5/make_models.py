#!/usr/bin/env python3
"""Write the tiny checkpoints of tests/t5/data, one for each model of the T5 family, with random weights, and the
results that transformers computes with them. Run by hand where torch and transformers are installed. The tests read the
files.

    python3 tests/t5/make_models.py [FOLDER]

Each folder has config.json, generation_config.json, weights, and expected.safetensors:
  sources [n, longest] i32, padded with -1        targets [n, t] i32, greedy, padded with -1
  hidden [sum of lengths, d]                      logits [t, vocab]: of each token of the last target, given the
                                                  previous tokens
  hidden_error, logits_error [1]: largest error of transformers in f32; hidden and logits are computed in f64
  attention.PART [layers, heads, queries, keys] for the models in ATTENTION: weights of the last source and the second
  target, in f64
  beams.K [n, r, t] i32, beam_scores.K [n, r]     for each search K of SEARCHES, padded with -1

The folder bin has the model of encoder in files of torch.save, and the folder single has files without a config.json.

SPDX-License-Identifier: Apache-2.0"""
import copy
import json
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
SMALL = dict(vocab_size=64, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_decoder_layers=2, num_heads=3,
             relative_attention_num_buckets=8, relative_attention_max_distance=12, decoder_start_token_id=0)
TINY = dict(SMALL, d_model=12, num_heads=2, d_ff=20)
GATED = dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
MANY_ENDS = [1, 5, 12, 20, 33, 47, 60, 18]  # with many end tokens, the targets of random weights end early
T = transformers
# name: class, configuration, seed
MODELS = {
    "t5": (T.T5ForConditionalGeneration, T.T5Config(**TINY), 0),
    "v11": (T.T5ForConditionalGeneration, T.T5Config(**dict(SMALL, num_decoder_layers=1), **GATED,
                                                     eos_token_id=MANY_ENDS), 1),
    "mt5": (T.MT5ForConditionalGeneration, T.MT5Config(**TINY, feed_forward_proj="gated-gelu"), 2),
    "umt5": (T.UMT5ForConditionalGeneration, T.UMT5Config(**TINY, eos_token_id=MANY_ENDS[:4]), 3),
    "byt5": (T.T5ForConditionalGeneration,
             T.T5Config(**dict(TINY, vocab_size=384, num_layers=2, num_decoder_layers=1),
                        feed_forward_proj="gated-gelu", tokenizer_class="ByT5Tokenizer"), 4),
    "longt5_local": (T.LongT5ForConditionalGeneration, T.LongT5Config(**TINY, **GATED, local_radius=5), 5),
    "longt5_global": (T.LongT5ForConditionalGeneration,
                      T.LongT5Config(**TINY, **GATED, local_radius=5, global_block_size=4,
                                     encoder_attention_type="transient-global"), 6),
    "switch": (T.SwitchTransformersForConditionalGeneration,
               T.SwitchTransformersConfig(**TINY, num_experts=3, expert_capacity=6, num_sparse_encoder_layers=1,
                                          num_sparse_decoder_layers=1), 7),
    "encoder": (T.T5EncoderModel, T.T5Config(**SMALL, **GATED), 8),  # bf16, in shards
    "f16": (T.T5ForConditionalGeneration, T.T5Config(**TINY), 9),
    "silu": (T.T5ForConditionalGeneration, T.T5Config(**TINY, feed_forward_proj="gated-silu"), 10),
}
ATTENTION = ("t5", "umt5")  # t5 has one table for all layers, umt5 one per layer
LENGTHS = [1, 5, 19, 34]
STEPS = 10
# beams, results, further settings
SEARCHES = [(4, 2, {}), (3, 3, {"early_stopping": True, "length_penalty": 2.0}),
            (2, 1, {"early_stopping": "never", "length_penalty": -0.5, "min_new_tokens": 3}),
            (5, 1, {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "length_penalty": 0.8})]


def fill(model, seed):
    """Set random weights that are large enough for every layer and table to change the results."""
    random = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        x = torch.randn(p.shape, generator=random)
        if "layer_norm" in name:
            p.data = 1 + 0.3 * x
        elif "relative_attention_bias" in name:
            p.data = x
        # small, because a tied head with large weights would repeat its input
        elif name.endswith(("shared.weight", "embed_tokens.weight")):
            p.data = 0.3 * x
        elif "lm_head" in name:
            p.data = x
        else:
            p.data = x * 1.3 / p.shape[-1] ** 0.5


def padded(rows, width=None):
    width = width or max(map(len, rows))
    return torch.tensor([list(r) + [-1] * (width - len(r)) for r in rows], dtype=torch.int32)


def cut(row, ends):
    """Return the tokens after the start token, up to the first end token."""
    row = row.tolist()[1:]
    return next((row[:k + 1] for k, t in enumerate(row) if t in ends), row)


def encode(model, sources):
    return torch.cat([model.get_encoder()(input_ids=torch.tensor([s]),
                                          attention_mask=torch.ones(1, len(s), dtype=torch.long))
                      .last_hidden_state[0] for s in sources])


def error(exact, other):
    return (exact - other).abs().max().float().reshape(1)


def relative_error(exact, other):
    """Return the norm of the error divided by the norm of the exact numbers."""
    return ((exact - other).norm() / exact.norm()).float().reshape(1)


def doubled(model):
    """Return a copy of the model in f64, including its norms."""
    exact = copy.deepcopy(model).double()
    for module in exact.modules():
        if type(module).__name__.endswith("LayerNorm"):
            module.forward = lambda x, m=module: m.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)
                                                                            + m.variance_epsilon)
    return exact


@torch.no_grad()
def attentions(model, source, target):
    """Return the attention weights of every layer and head."""
    exact = doubled(model)
    exact.set_attn_implementation("eager")
    o = exact(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[0, *target[:-1]]]),
              output_attentions=True)
    parts = {"encoder": o.encoder_attentions, "decoder": o.decoder_attentions, "cross": o.cross_attentions}
    return {f"attention.{part}": torch.cat(layers).float() for part, layers in parts.items()}


@torch.no_grad()
def expect(model, config, seed):
    random = np.random.default_rng(seed)
    sources = [random.integers(2, config.vocab_size, n).tolist() for n in LENGTHS]
    exact = doubled(model)
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    hidden, in_f32 = encode(exact, sources), encode(model, sources)
    in_bf16 = encode(copy.deepcopy(model).bfloat16(), sources)
    out = {"sources": padded(sources), "hidden": hidden.float(), "hidden_error": error(hidden, in_f32),
           "hidden_bf16_share": relative_error(hidden, in_bf16)}
    if not hasattr(model, "lm_head"):
        return out
    targets = []
    found = {k: [] for k in range(len(SEARCHES))}
    scores = {k: [] for k in range(len(SEARCHES))}
    for s in sources:
        ids = torch.tensor([s])
        mask = torch.ones_like(ids)
        t = cut(model.generate(ids, attention_mask=mask, max_new_tokens=STEPS, do_sample=False, num_beams=1)[0], ends)
        targets.append(t)
        # token by token, as generate() does: the capacity of the decoder's experts has no effect then
        logits, in_f32 = (stepwise(m, ids, mask, [0, *t[:-1]]) for m in (exact, model))
        for k, (beams, results, more) in enumerate(SEARCHES):
            g = model.generate(ids, attention_mask=mask, max_new_tokens=STEPS, do_sample=False, num_beams=beams,
                               num_return_sequences=results, return_dict_in_generate=True, output_scores=True, **more)
            found[k].append([cut(r, ends) for r in g.sequences])
            scores[k].append(g.sequences_scores)
    out |= {"targets": padded(targets), "logits": logits.float(), "logits_error": error(logits, in_f32)}
    for k in found:
        width = max(len(r) for rows in found[k] for r in rows)
        out[f"beams.{k}"] = torch.stack([padded(rows, width) for rows in found[k]])
        out[f"beam_scores.{k}"] = torch.stack(scores[k])
    return out


def stepwise(model, ids, mask, tokens):
    encoded = model.get_encoder()(input_ids=ids, attention_mask=mask)
    past, rows = None, []
    for t in tokens:
        o = model(encoder_outputs=encoded, attention_mask=mask, decoder_input_ids=torch.tensor([[t]]),
                  past_key_values=past,
                  use_cache=True)
        past = o.past_key_values
        rows.append(o.logits[0, -1])
    return torch.stack(rows)


def shard(folder):
    """Split a checkpoint into two bf16 files, as save_pretrained does with large ones."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, index = sorted(tensors), {}
    for k, part in enumerate((names[::2], names[1::2])):
        file = f"model-{k + 1:05}-of-00002.safetensors"
        save_file({n: tensors[n].contiguous() for n in part}, folder / file, {"format": "pt"})
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}, indent=1)
                                                         + "\n")


def save_bin(folder, to):
    """Write the sharded checkpoint of `folder` again as shards of torch.save, as save_pretrained of transformers 4
    does."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for file in sorted(set(index["weight_map"].values())):
        torch.save(load_file(folder / file), to / file.replace("model", "pytorch_model").replace("safetensors", "bin"))
    names = {n: f.replace("model", "pytorch_model").replace("safetensors", "bin")
             for n, f in index["weight_map"].items()}
    (to / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}, indent=1) + "\n")
    shutil.copy(folder / "config.json", to)


WAN = [("shared", "token_embedding"), ("encoder.final_layer_norm", "norm"), ("encoder.block", "blocks"),
       (".layer.0.layer_norm", ".norm1"),
       (".layer.1.layer_norm", ".norm2"), (".layer.0.SelfAttention.relative_attention_bias",
                                           ".pos_embedding.embedding"),
       (".layer.0.SelfAttention", ".attn"), (".layer.1.DenseReluDense.wi_0", ".ffn.gate.0"),
       (".layer.1.DenseReluDense.wi_1", ".ffn.fc1"),
       (".layer.1.DenseReluDense.wo", ".ffn.fc2")]


def save_single(data):
    """Write files without a config.json: the encoder of `umt5` with Wan's names, and `encoder` as scaled fp8 within a
    larger file."""
    to = data / "single"
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    wan = {}
    for name, t in load_file(data / "umt5/model.safetensors").items():
        if name.startswith(("encoder.", "shared.")):
            for one, other in WAN:
                name = name.replace(one, other)
            wan[name] = t
    torch.save(wan, to / "wan.pth")
    spiece = HERE.parent / "tokenizer/data/added/spiece.model"
    prefix = "text_encoders.t5xxl.transformer."
    scaled, plain = {"model.diffusion_model.weight": torch.ones(3),
                     prefix + "scaled_fp8": torch.zeros(2, dtype=torch.float8_e4m3fn),
                     "spiece_model": torch.frombuffer(bytearray(spiece.read_bytes()), dtype=torch.uint8)}, {}
    for file in (data / "encoder").glob("model-*.safetensors"):
        for name, t in load_file(file).items():
            plain[name] = t.float()
            if t.ndim == 2 and "relative" not in name and "shared" not in name:
                scale = plain[name].abs().max() / 448
                scaled[prefix + name] = (plain[name] / scale).to(torch.float8_e4m3fn)
                scaled[prefix + name.replace(".weight", ".scale_weight")] = scale.clone()
                scaled[prefix + name.replace(".weight", ".scale_input")] = torch.ones(())
                plain[name] = scaled[prefix + name].float() * scale
            else:
                scaled[prefix + name] = t.half()
                plain[name] = t.half().float()
    save_file(scaled, to / "scaled.safetensors")
    save_file(plain, to / "plain.safetensors", {"format": "pt"})


def rounded(model, dtype):
    for p in model.parameters():
        p.data = p.data.to(dtype).float()


def main():
    torch.set_num_threads(1)
    to = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "data"
    for name, (kind, config, seed) in MODELS.items():
        folder = to / name
        shutil.rmtree(folder, ignore_errors=True)
        torch.manual_seed(seed)
        model = kind(config).eval()
        fill(model, seed)
        stored = torch.float32 if name == "v11" else torch.float16 if name == "f16" else torch.bfloat16
        rounded(model, stored)
        if name == "v11":  # a separate head, as in the first files of v1.1
            model.lm_head.weight = torch.nn.Parameter(torch.randn(64, 16, generator=torch.Generator().manual_seed(99)))
        expected = expect(model, config, seed)
        if name in ATTENTION:
            source, target = ([t for t in expected[key][row].tolist() if t >= 0]
                              for key, row in (("sources", -1), ("targets", 1)))
            expected |= attentions(model, source, target)
        model.save_pretrained(folder)
        file = folder / "model.safetensors"
        tensors = load_file(file)
        if name == "v11":
            tensors["lm_head.weight"] = model.lm_head.weight.detach().clone()
            c = json.loads((folder / "config.json").read_text())
            c["tie_word_embeddings"] = False
            c.pop("scale_decoder_outputs", None)
            (folder / "config.json").write_text(json.dumps(c, indent=2) + "\n")
        if name == "t5":  # extra tensors that old files have
            tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"].clone()
            tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.zeros(8, 2)
        save_file({n: t.to(stored).contiguous() for n, t in tensors.items()}, file, {"format": "pt"})
        if name == "encoder":
            shard(folder)
            save_bin(folder, to / "bin")
        save_file({n: t.contiguous() for n, t in expected.items()}, folder / "expected.safetensors")
        size = sum(f.stat().st_size for f in folder.iterdir())
        print(f"{name:14} {size:7} bytes", expected.get("targets", torch.zeros(0)).tolist())
    save_single(to)


if __name__ == "__main__":
    main()
