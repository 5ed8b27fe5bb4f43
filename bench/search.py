#!/usr/bin/env python3
"""Race relpos.Encoder with other runtimes of encoders, one thread: BERT, MPNet, DeBERTa-v3 and ModernBERT of base size
with random weights. Run by hand where relpos, torch, transformers, onnx, onnxruntime and openvino are installed.

    python3 bench/search.py FOLDER -o bench/results/search.json [--models mpnet,bert] [--tokens 16,128,512] [--rounds 5]

FOLDER keeps the models. All sides of a model and length alternate in each round, in one process; times are processor
times of one call for one sequence, without a tokenizer. A side whose result is farther from f32 of transformers than
its bound is left out and named. ONNX Runtime: f32 as exported, f32 after onnxruntime.transformers.optimizer, and int8
of quantize_dynamic, per tensor and per channel. SPDX-License-Identifier: Apache-2.0"""
import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np
import torch
import transformers as T

import relpos

warnings.filterwarnings("ignore")
SIZES = dict(vocab_size=4000)
CONFIGS = {
    "mpnet": lambda: T.MPNetConfig(**SIZES, max_position_embeddings=514, layer_norm_eps=1e-5),
    "bert": lambda: T.BertConfig(**SIZES),
    "deberta": lambda: T.DebertaV2Config(**SIZES, relative_attention=True, position_buckets=256, share_att_key=True,
                                         norm_rel_ebd="layer_norm", pos_att_type=["p2c", "c2p"], type_vocab_size=0,
                                         position_biased_input=False, hidden_size=768, num_hidden_layers=12,
                                         num_attention_heads=12, intermediate_size=3072),
    "modernbert": lambda: T.ModernBertConfig(**SIZES, pad_token_id=0, eos_token_id=2, bos_token_id=1, cls_token_id=1,
                                             sep_token_id=2),
}
WRONG = {"f32": 1e-4, "8 bits": 0.2, "bf16": 0.05}  # largest error / norm


def make(folder, name):
    """Write a model with random weights, biases and tables, and return its folder."""
    to = folder / name
    if not (to / "config.json").exists():
        torch.manual_seed(0)
        model = T.AutoModel.from_config(CONFIGS[name]())
        with torch.no_grad():
            for key, p in model.named_parameters():
                if "relative_attention_bias" in key or "rel_embeddings" in key:
                    p.normal_(0, 0.5 if "bias" in key else 1)
                elif key.endswith("bias"):
                    p.normal_(0, 0.05)
                elif p.dim() == 1:
                    p.uniform_(0.8, 1.2)
        model.save_pretrained(to)
    return to


class Wrapper(torch.nn.Module):
    """The last hidden states as the only output, for the export."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def export(model, path):
    """Write an ONNX file with free sizes."""
    ids = torch.randint(5, 4000, (2, 64))
    axes = {0: "b", 1: "n"}
    torch.onnx.export(Wrapper(model).eval(), (ids, torch.ones_like(ids)), str(path), opset_version=17, dynamo=False,
                      input_names=["input_ids", "attention_mask"], output_names=["out"],
                      dynamic_axes={"input_ids": axes, "attention_mask": axes, "out": axes})


def onnx_files(folder, name, model):
    """Return the ONNX files of a model by kind, after making those that are missing."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions
    plain = folder / f"{name}.onnx"
    files = {"f32": plain, "f32 optimized": folder / f"{name}_opt.onnx", "int8": folder / f"{name}_q8t.onnx",
             "int8 per channel": folder / f"{name}_q8c.onnx"}
    if not plain.exists():
        export(model, plain)
    if not files["f32 optimized"].exists():
        made = optimizer.optimize_model(str(plain), "bert", num_heads=12, hidden_size=768, opt_level=1, use_gpu=False,
                                        optimization_options=FusionOptions("bert"))
        made.save_model_to_file(str(files["f32 optimized"]))
    for kind, channel in (("int8", False), ("int8 per channel", True)):
        if not files[kind].exists():
            quantize_dynamic(str(plain), str(files[kind]), weight_type=QuantType.QInt8, per_channel=channel)
    return files


def of_ort(path):
    """Return a side that runs an ONNX file in ONNX Runtime."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda ids: session.run(None, {"input_ids": ids[None], "attention_mask": np.ones_like(ids)[None]})[0][0]


def of_openvino(path):
    """Return a side that runs an ONNX file in OpenVINO."""
    import openvino
    core = openvino.Core()
    made = core.compile_model(core.read_model(str(path)), "CPU", {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1,
                                                                   "INFERENCE_PRECISION_HINT": "f32"})
    request = made.create_infer_request()
    return lambda ids: request.infer({"input_ids": ids[None], "attention_mask": np.ones_like(ids)[None]})[
        made.output(0)][0].copy()


def of_torch(folder, attention):
    """Return a side that runs transformers."""
    model = T.AutoModel.from_pretrained(folder, attn_implementation=attention).eval()
    return lambda ids: model(input_ids=torch.tensor(ids)[None],
                             attention_mask=torch.ones(1, len(ids), dtype=torch.long)).last_hidden_state[0].numpy()


def of_relpos(folder, kind):
    """Return a side that runs relpos."""
    model = relpos.Encoder(folder, type=kind, threads=1)
    return lambda ids: np.asarray(model.encode(tokens=[ids.tolist()], output_value="token_embeddings")[0])


def sides_of(folder, name):
    """Return the functions by name, and the reasons why some are missing."""
    model, missing, sides = make(folder, name), {}, {}
    ways = {f"relpos {k}": functools.partial(of_relpos, model, k) for k in ("f32", "bf16", "q8", "int8")}
    ways |= {f"transformers {a}": functools.partial(of_torch, model, a) for a in ("eager", "sdpa")}
    net = T.AutoModel.from_pretrained(model, attn_implementation="eager").eval()
    try:
        files = onnx_files(folder, name, net)
        ways |= {f"ONNX Runtime {k}": functools.partial(of_ort, f) for k, f in files.items()}
        ways["OpenVINO f32"] = functools.partial(of_openvino, files["f32"])
    except Exception as e:
        missing["ONNX"] = repr(e)[:200]
    for side, way in ways.items():
        try:
            sides[side] = way()
        except Exception as e:
            missing[side] = repr(e)[:200]
    return sides, missing


def race(sides, tokens, rounds):
    """Return the seconds of each side for one length, and its error."""
    ids = np.random.default_rng(1).integers(5, 4000, tokens)
    right = sides["transformers eager"](ids)
    found, times = {}, {}
    for side, run in sides.items():
        error = float(np.linalg.norm(run(ids) - right) / np.linalg.norm(right))
        limit = WRONG["bf16" if "bf16" in side else "8 bits" if "8" in side else "f32"]
        found[side] = {"error": error} | ({} if error <= limit else {"wrong": True})
        times[side] = []
    repeat = max(1, 256 // tokens)
    for _ in range(rounds):
        for side in (s for s in sides if "wrong" not in found[s]):
            start = time.process_time()
            for _ in range(repeat):
                sides[side](ids)
            times[side].append((time.process_time() - start) / repeat)
    for side, seconds in times.items():
        if seconds:
            found[side] |= {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds)}
    return found


def describe():
    """Return a description of the machine."""
    cpu = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    import onnxruntime
    import openvino
    return {"cpu": next(x.split(":")[1].strip() for x in cpu.splitlines() if x.startswith("Model name")),
            "cores": os.cpu_count(), "load": os.getloadavg()[0], "python": sys.version.split()[0],
            "versions": {"relpos": relpos.__version__, "torch": torch.__version__, "transformers": T.__version__,
                         "onnxruntime": onnxruntime.__version__, "openvino": openvino.__version__},
            "date": time.strftime("%Y-%m-%d"), "threads": 1}


def main():
    """Race the sides."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--models", default=",".join(CONFIGS))
    parser.add_argument("--tokens", default="16,128,512")
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    a.folder.mkdir(parents=True, exist_ok=True)
    result = {"machine": describe(), "command": "python3 " + " ".join(sys.argv), "races": []}
    for name in a.models.split(","):
        sides, missing = sides_of(a.folder, name)
        for tokens in map(int, a.tokens.split(",")):
            found = race(sides, tokens, a.rounds)
            result["races"].append({"model": name, "tokens": tokens, "sides": found, "missing": missing})
            best = min((s["median"], k) for k, s in found.items() if "median" in s and not k.startswith("relpos"))
            shown = {k: round(1e3 * s["median"], 1) for k, s in found.items() if "median" in s}
            print(name, tokens, shown, "best peer", best[1], flush=True)
            a.output.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
