#!/usr/bin/env python3
"""Convert the two ONNX files of traceforge-title-model, a T5 of 8 + 8 layers, to a checkpoint for `relpos t5`. The ONNX
files store weights as 8-bit numbers with a scale and a zero point. Needs numpy and onnx.

    python3 examples/titler.py FOLDER_OF_ONNX_FILES CHECKPOINT

SPDX-License-Identifier: Apache-2.0"""
import json
import pathlib
import shutil
import sys

import numpy as np
import onnx
from onnx import numpy_helper

LAYERS = 8
CONFIG = {"model_type": "t5", "vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": LAYERS,
          "num_decoder_layers": LAYERS, "num_heads": 6, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
          "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
SELF = [f"layer.0.SelfAttention.{x}" for x in "qkvo"]
CROSS = [f"layer.1.EncDecAttention.{x}" for x in "qkvo"]


def feed(n):
    return [f"layer.{n}.DenseReluDense.{x}" for x in ("wi_0", "wi_1", "wo")]


def read(path, prefix, stack, matrices):
    """Return the tensors of an ONNX file, named as in a checkpoint, and its embedding."""
    graph = onnx.load(path).graph
    arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}

    def number(name):
        scale, zero = arrays[name + "_scale"].astype(np.float32), arrays[name + "_zero_point"].astype(np.float32)
        return (arrays[name + "_quantized"].astype(np.float32) - zero) * scale

    found = {f"{stack}.{n[len(prefix):]}": a for n, a in arrays.items() if n.endswith("layer_norm.weight")}
    products = {x.input[1] for x in graph.node if x.op_type == "MatMulInteger"} & set(arrays)
    # the numbers in the names follow the order of use
    names = sorted((n.removesuffix("_quantized") for n in products), key=lambda n: int(n.rsplit("_", 1)[1]))
    wanted = [f"{stack}.block.{b}.{m}.weight" for b in range(LAYERS) for m in matrices]
    if stack == "decoder":
        wanted.append("lm_head.weight")
    if len(names) != len(wanted):
        sys.exit(f"{path}: has {len(names)} matrices, expected {len(wanted)} (use the file of version 0.2.0)")
    found |= {w: number(n).T for w, n in zip(wanted, names)}
    table = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    found[f"{stack}.{table}"] = number(prefix + table)
    return found, number("enc.embed_tokens.weight" if stack == "encoder" else "m.shared.weight")


def write(path, arrays):
    """Write f32 arrays to a .safetensors file."""
    header, at = {}, 0
    for name, a in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(a.shape), "data_offsets": [at, at + 4 * a.size]}
        at += 4 * a.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for a in arrays.values():
            f.write(np.ascontiguousarray(a, np.float32).tobytes())


def main():
    onnx_folder, to = map(pathlib.Path, sys.argv[1:3])
    encoder, shared = read(onnx_folder / "encoder.onnx", "enc.", "encoder", SELF + feed(1))
    decoder, same = read(onnx_folder / "decoder.onnx", "m.decoder.", "decoder", SELF + CROSS + feed(2))
    assert np.array_equal(shared, same)
    to.mkdir(parents=True, exist_ok=True)
    write(to / "model.safetensors", {"shared.weight": shared} | encoder | decoder)
    (to / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    shutil.copy(onnx_folder / "tokenizer.json", to)


main()
