#!/usr/bin/env python3
"""Write .gguf files with the package gguf, as llama.cpp's conversion of T5 does.

    tests/t5/make_gguf.py                            the files of tests/io, tests/t5 and tests/tokenizer
    tests/t5/make_gguf.py CHECKPOINT FILE [TYPE]     one file; TYPE: F32 (default), F16, BF16, Q8_0, Q4_0, Q5_0, Q5_1,
                                                     or random blocks of Q2_K … Q6_K, whose dequantized numbers are
                                                     written to FILE.safetensors

Needs gguf, numpy, ml_dtypes or torch for BF16, safetensors and sentencepiece.

SPDX-License-Identifier: Apache-2.0"""
import json
import pathlib
import sys
import tempfile

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from safetensors.numpy import save_file
from safetensors.torch import load_file

TESTS = pathlib.Path(__file__).resolve().parent.parent
SPIECE_TYPES = {1: 1, 2: 2, 3: 3, 4: 1, 5: 5, 6: 6}  # the conversion makes user-defined pieces normal
LAYER = {"SelfAttention.q": "attn_q", "SelfAttention.k": "attn_k", "SelfAttention.v": "attn_v",
         "SelfAttention.o": "attn_o",
         "SelfAttention.relative_attention_bias": "attn_rel_b", "EncDecAttention.q": "cross_attn_q",
         "EncDecAttention.k": "cross_attn_k",
         "EncDecAttention.v": "cross_attn_v", "EncDecAttention.o": "cross_attn_o", "DenseReluDense.wi": "ffn_up",
         "DenseReluDense.wi_0": "ffn_gate", "DenseReluDense.wi_1": "ffn_up", "DenseReluDense.wo": "ffn_down"}
NORMS = {"encoder": ["attn_norm", "ffn_norm"], "decoder": ["attn_norm", "cross_attn_norm", "ffn_norm"]}


def name_of(name):
    parts = name.split(".")
    if name == "shared.weight":
        return "token_embd.weight"
    if name == "lm_head.weight":
        return "output.weight"
    if parts[1] == "final_layer_norm":
        return f"{parts[0][:3]}.output_norm.weight"
    rest = ".".join(parts[5:-1])
    return (f"{parts[0][:3]}.blk.{parts[2]}."
            f"{NORMS[parts[0]][int(parts[4])] if rest == 'layer_norm' else LAYER[rest]}.weight")


def random_blocks(shape, kind, random):
    """Return random blocks with scales for which the numbers have a deviation of about 1.3 / sqrt(shape[1])."""
    numbers, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (shape[0], shape[1] // numbers, size), dtype=np.uint8)
    ends = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q5_0: [0], Type.Q4_1: [0, 2], Type.Q5_1: [0, 2], Type.Q2_K: [80, 82],
            Type.Q3_K: [108],
            Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}[kind]
    for at in ends:
        blocks[:, :, at:at + 2] = np.float16([1]).view(np.uint8)
    deviation = gguf.quants.dequantize(blocks.reshape(shape[0], -1), kind).std()
    for at in ends:
        d = (random.uniform(0.7, 1.4, blocks.shape[:2]) * 1.3 / shape[1] ** 0.5 / deviation).astype(np.float16)
        blocks[:, :, at:at + 2] = d[..., None].view(np.uint8)
    return blocks.reshape(shape[0], -1)


def tokens_of(spiece, vocab, added=None):
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto.FromString(pathlib.Path(spiece).read_bytes())
    tokens = [(f"[PAD{k}]", -10000.0, 5) for k in range(vocab)]
    tokens[:len(proto.pieces)] = [(p.piece, p.score, SPIECE_TYPES[p.type]) for p in proto.pieces]
    for token, k in (added or {}).items():
        tokens[k] = (token, -1000.0, 4)
    eos = next((k for k, p in enumerate(proto.pieces) if p.piece == (proto.trainer_spec.eos_piece or "</s>")), 1)
    return tokens, proto.normalizer_spec, eos


def add_tokenizer(writer, spiece, vocab, added=None):
    tokens, rules, eos = tokens_of(spiece, vocab, added)
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([t.encode() for t, _, _ in tokens])
    writer.add_token_scores([s for _, s, _ in tokens])
    writer.add_token_types([k for _, _, k in tokens])
    writer.add_add_space_prefix(rules.add_dummy_prefix)
    writer.add_remove_extra_whitespaces(rules.remove_extra_whitespaces)
    if rules.precompiled_charsmap:
        writer.add_precompiled_charsmap(rules.precompiled_charsmap)
    writer.add_eos_token_id(eos)
    writer.add_pad_token_id(0)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(folder, to, kind=Type.F32, spiece=None, added=None):
    folder = pathlib.Path(folder)
    c = json.loads((folder / "config.json").read_text())
    tensors = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors |= load_file(file)
    tensors = {n: t.float().numpy() for n, t in tensors.items() if n != "encoder.embed_tokens.weight"
               and "EncDecAttention.rel" not in n}
    decoder = any(n.startswith("decoder.") for n in tensors)
    w = gguf.GGUFWriter(to, "t5" if decoder else "t5encoder")
    w.add_context_length(512)
    w.add_embedding_length(c["d_model"])
    w.add_feed_forward_length(c["d_ff"])
    w.add_block_count(c["num_layers"])
    if decoder:
        w.add_decoder_block_count(c["num_decoder_layers"])
        w.add_decoder_start_token_id(c["decoder_start_token_id"])
    w.add_head_count(c["num_heads"])
    w.add_key_length(c["d_kv"])
    w.add_value_length(c["d_kv"])
    w.add_layer_norm_eps(c["layer_norm_epsilon"])
    w.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
    w.add_relative_attn_buckets_count(c["relative_attention_num_buckets"])
    if spiece:
        add_tokenizer(w, spiece, c["vocab_size"], added)
    random, golden = np.random.default_rng(1), {}
    for name, x in tensors.items():
        if x.ndim < 2 or "relative_attention_bias" in name or kind == Type.F32:
            w.add_tensor(name_of(name), x)
            golden[name] = x
            continue
        if kind in (Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K):
            data = random_blocks(x.shape, kind, random)
        else:
            data = gguf.quants.quantize(x, kind)
        golden[name] = gguf.quants.dequantize(data, kind).reshape(x.shape)
        w.add_tensor(name_of(name), data, raw_dtype=None if kind == Type.F16 else kind)
    finish(w)
    return {n: np.ascontiguousarray(x) for n, x in golden.items()}


def blocks(to):
    """Write two rows of one block of random bytes for each type, and their numbers."""
    random, golden = np.random.default_rng(3), {}
    w = gguf.GGUFWriter(to.with_suffix(".gguf"), "blocks")
    w.add_custom_alignment(64)
    for kind in (Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K,
                 Type.Q6_K, Type.BF16):
        numbers = GGML_QUANT_SIZES[kind][0]
        x = (random_blocks((2, numbers), kind, random) if numbers > 1
             else gguf.quants.quantize(random.standard_normal((2, 8), np.float32), kind))
        w.add_tensor(kind.name, x, raw_dtype=kind)
        golden[kind.name] = np.ascontiguousarray(gguf.quants.dequantize(x, kind))
    finish(w)
    save_file(golden, to.with_suffix(".safetensors"))


def small(to, kind, width=32, words=160, added=None, stacks=("encoder",)):
    """Write a model of one layer, with a tokenizer of 28 pieces and `added` tokens; the other tokens are
    placeholders."""
    random = np.random.default_rng(5)
    c = dict(model_type="t5", vocab_size=words, d_model=width, d_kv=width // 4, d_ff=width, num_heads=4, num_layers=1,
             num_decoder_layers=1,
             relative_attention_num_buckets=width, layer_norm_epsilon=1e-6, feed_forward_proj="gated-gelu",
             decoder_start_token_id=0)
    shapes = {}
    for stack in stacks:
        parts = ["SelfAttention", "EncDecAttention"][:1 if stack == "encoder" else 2]
        layer, last = stack + ".block.0.layer.", len(parts)
        shapes |= {layer + f"{k}.{part}.{n}.weight": (width, width) for k, part in enumerate(parts) for n in "qkvo"}
        shapes |= {layer + f"{last}.DenseReluDense.{n}.weight": (width, width) for n in ("wi_0", "wi_1", "wo")}
        shapes |= {"shared.weight": (words, width),
                   layer + "0.SelfAttention.relative_attention_bias.weight": (width, 4)}
    tensors = {n: random.standard_normal(shape, np.float32) / 4 for n, shape in shapes.items()}
    for stack in stacks:
        tensors |= {f"{stack}.block.0.layer.{k}.layer_norm.weight": np.ones(width, np.float32)
                    for k in range(2 if stack == "encoder" else 3)}
        tensors |= {f"{stack}.final_layer_norm.weight": np.ones(width, np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(c))
        save_file(tensors, pathlib.Path(folder) / "model.safetensors")
        convert(folder, to, kind, TESTS / "tokenizer/data/added/spiece.model", added)


def main():
    if len(sys.argv) > 2:
        kind = Type[sys.argv[3]] if len(sys.argv) > 3 else Type.F32
        spiece = pathlib.Path(sys.argv[1]) / "spiece.model"
        golden = convert(sys.argv[1], sys.argv[2], kind, spiece if spiece.exists() else None)
        save_file(golden, sys.argv[2] + ".safetensors", {"format": "pt"})
        return
    blocks(TESTS / "io/data/blocks")
    for name, kind in ("t5", Type.F16), ("v11", Type.F32), ("umt5", Type.BF16), ("encoder", Type.BF16):
        convert(TESTS / "t5/data" / name, TESTS / "t5/gguf" / f"{name}.gguf", kind)
    # the tokens that ProstT5 adds
    added = {t: 128 + k for k, t in enumerate("almgvsredtipkfqnyhwc")} | {"<fold2AA>": 148, "<AA2fold>": 149}
    small(TESTS / "t5/gguf/small.gguf", Type.Q8_0, added=added)
    small(TESTS / "t5/gguf/q4.gguf", Type.Q4_0, added=added)
    small(TESTS / "fuzz/corpus/gguf/encoder", Type.F16, 4, 32)
    small(TESTS / "fuzz/corpus/gguf/decoder", Type.BF16, 4, 32, stacks=("encoder", "decoder"))
    for name in "t5", "fallback", "plain":
        spiece = TESTS / f"tokenizer/data/{name}.model"
        w = gguf.GGUFWriter(TESTS / f"tokenizer/data/{name}.gguf", "t5encoder")
        add_tokenizer(w, spiece, len(tokens_of(spiece, 0)[0]) + (104 if name != "plain" else 7))
        w.add_tensor("x", np.zeros(1, np.float32))
        finish(w)


main()
