#!/usr/bin/env python3
"""Race relpos.Encoder with other runtimes of encoders, one thread: MPNet, BERT, DeBERTa-v3 and ModernBERT of base size
with random weights. Run by hand where relpos, torch, transformers, onnx, onnxruntime, openvino and ctranslate2 are
installed.

    python3 bench/search.py FOLDER [--models mpnet,bert] [--tokens 16,128,512] [--rounds 5]     times of one sequence
    python3 bench/search.py FOLDER --mixed          96 sequences of mixed lengths, in batches of 32
    python3 bench/search.py FOLDER --memory 8192    memory of ModernBERT in addition to the weights
    python3 bench/search.py FOLDER --trained MODEL  cosine of 200 vectors of a trained all-mpnet-base-v2 with f32

FOLDER keeps the models. A run replaces its rows in bench/results/search.json (-o FILE: in FILE). All sides of a model
and length alternate in each round, in one process; times are processor times of one call for one sequence, without a
tokenizer. A side whose result is farther from f32 of transformers than its bound is left out and named. ONNX Runtime:
f32 as exported, f32 after onnxruntime.transformers.optimizer, and int8 of quantize_dynamic, per tensor and per channel.
SPDX-License-Identifier: Apache-2.0"""
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
from machine import processor, reset_peak, status_bytes, version

import relpos

warnings.filterwarnings("ignore")
ROOT = pathlib.Path(__file__).resolve().parent.parent
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
    """Return the ONNX files of the model in a folder by kind, after making those that are missing."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions
    plain = folder / f"{name}.onnx"
    files = {"f32": plain, "f32 optimized": folder / f"{name}_opt.onnx", "int8": folder / f"{name}_q8t.onnx",
             "int8 per channel": folder / f"{name}_q8c.onnx"}
    if not plain.exists():
        export(T.AutoModel.from_pretrained(model, attn_implementation="eager"), plain)
    if not files["f32 optimized"].exists():
        made = optimizer.optimize_model(str(plain), "bert", num_heads=12, hidden_size=768, opt_level=1, use_gpu=False,
                                        optimization_options=FusionOptions("bert"))
        made.save_model_to_file(str(files["f32 optimized"]))
    for kind, channel in (("int8", False), ("int8 per channel", True)):
        if not files[kind].exists():
            quantize_dynamic(str(plain), str(files[kind]), weight_type=QuantType.QInt8, per_channel=channel)
    return files


def session_of(path):
    """Return a session of ONNX Runtime with one thread."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def of_ort(path):
    """Return a side that runs an ONNX file in ONNX Runtime."""
    session = session_of(path)
    return lambda ids: session.run(None, {"input_ids": ids[None], "attention_mask": np.ones_like(ids)[None]})[0][0]


def padded(session, texts, size):
    """Yield the last hidden states of texts that ONNX Runtime computes in batches of this size, padded to the longest
    text of the batch."""
    for k in range(0, len(texts), size):
        batch = texts[k:k + size]
        ids = np.ones((len(batch), max(map(len, batch))), np.int64)
        mask = np.zeros_like(ids)
        for row, text in enumerate(batch):
            ids[row, :len(text)], mask[row, :len(text)] = text, 1
        for text, states in zip(batch, session.run(None, {"input_ids": ids, "attention_mask": mask})[0]):
            yield states[:len(text)]


def of_openvino(path):
    """Return a side that runs an ONNX file in OpenVINO."""
    import openvino
    core = openvino.Core()
    made = core.compile_model(core.read_model(str(path)), "CPU", {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1,
                                                                   "INFERENCE_PRECISION_HINT": "f32"})
    request = made.create_infer_request()
    return lambda ids: request.infer({"input_ids": ids[None], "attention_mask": np.ones_like(ids)[None]})[
        made.output(0)][0].copy()


def of_ctranslate2(folder, kind):
    """Return a side that runs CTranslate2, which has BERT only."""
    import ctranslate2
    from ctranslate2.converters import TransformersConverter
    made = folder.with_name(folder.name + ".ct2")
    if not made.exists():
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"position_embedding_type": "absolute"},
                                                       allow_nan=False))
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words = special + [f"w{n}" for n in range(len(special), SIZES["vocab_size"])]
        (folder / "vocab.txt").write_text("".join(f"{w}\n" for w in words))
        TransformersConverter(str(folder)).convert(str(made))
    model = ctranslate2.Encoder(str(made), device="cpu", compute_type=kind, intra_threads=1, inter_threads=1)
    return lambda ids: np.array(model.forward_batch([ids.tolist()]).last_hidden_state)[0]


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
    files = onnx_files(folder, name, model)
    ways |= {f"ONNX Runtime {k}": functools.partial(of_ort, f) for k, f in files.items()}
    ways["OpenVINO f32"] = functools.partial(of_openvino, files["f32"])
    if name == "bert":
        ways |= {f"CTranslate2 {k}": functools.partial(of_ctranslate2, model, k) for k in ("float32", "int8")}
    for side, way in ways.items():
        try:
            sides[side] = way()
        except Exception as e:
            missing[side] = repr(e)[:200]
    return sides, missing


def time_of(run):
    """Return the processor time of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def race(name, sides, tokens, rounds):
    """Return a row: the seconds of each side for one length, and its error."""
    ids = np.random.default_rng(1).integers(5, 4000, tokens)
    right = sides["transformers eager"](ids)
    errors, repeat = {}, max(1, 256 // tokens)
    for side, run in sides.items():
        errors[side] = float(np.linalg.norm(run(ids) - right) / np.linalg.norm(right))
    wrong = [s for s, e in errors.items() if not e <= WRONG["bf16" if "bf16" in s else "8 bits" if "8" in s else "f32"]]
    seconds = {side: [] for side in sides if side not in wrong}
    for _ in range(rounds):
        for side, found in seconds.items():
            found.append(time_of(lambda run=sides[side]: [run(ids) for _ in range(repeat)]) / repeat)
    return {"model": name, "tokens": tokens, "seconds": seconds, "errors": errors, "wrong": wrong}


# ------------------------------------------------------------------------------------------------------ mixed lengths

def mixed(folder, rounds):
    """Return a row: the seconds for 96 sequences of mixed lengths in batches of 32, as sentences of a page have them:
    median 22, least 9, most 105. ONNX Runtime pads to the longest of a batch."""
    draw = np.random.default_rng(2)
    lengths = np.clip(np.exp(draw.normal(np.log(22), 0.6, 96)).astype(int), 9, 105)
    texts = [draw.integers(5, 4000, n).tolist() for n in lengths]
    model, ordered = make(folder, "mpnet"), sorted(texts, key=len)
    files = onnx_files(folder, "mpnet", model)

    sides = {}
    for kind in ("f32", "q8", "int8"):
        net = relpos.Encoder(model, type=kind, threads=1)
        sides[f"relpos {kind}"] = lambda net=net: net.encode(tokens=texts, batch_size=32)
    for kind in ("f32", "int8", "int8 per channel"):
        session = session_of(files[kind])
        sides[f"ONNX Runtime {kind}"] = lambda session=session: list(padded(session, texts, 32))
        sides[f"ONNX Runtime {kind}, sorted"] = lambda session=session: list(padded(session, ordered, 32))
    seconds = {side: [] for side in sides}
    for _ in range(rounds):
        for side, run in sides.items():
            seconds[side].append(time_of(run))
    return {"model": "mpnet", "texts": len(texts), "tokens": int(lengths.sum()), "seconds": seconds}


# ------------------------------------------------------------------------------------------------------------- memory

def memory_of(folder, side, tokens):
    """Print the memory that a call needs in addition to one with 16 tokens."""
    model = folder / "modernbert"
    kind = side.split(" ", 1)[1]
    run = {"relpos": lambda: of_relpos(model, kind), "transformers": lambda: of_torch(model, kind),
           "ONNX": lambda: of_ort(folder / "modernbert.onnx")}[side.split(" ")[0]]()
    ids = np.random.default_rng(1).integers(5, 4000, tokens)
    run(ids[:16])
    before = reset_peak()  # forgets what opening the model took
    seconds = time_of(lambda: run(ids))
    print(json.dumps({"bytes": status_bytes("VmHWM") - before, "seconds": seconds}, allow_nan=False))


def memory(a):
    """Return a row: the memory of each side, each in a process of its own."""
    onnx_files(a.folder, "modernbert", make(a.folder, "modernbert"))
    sides = ["relpos f32", "relpos q8", "transformers sdpa"] + ["ONNX Runtime f32"] * (a.memory <= 2048)
    found = {side: json.loads(subprocess.run([sys.executable, __file__, a.folder, "--memory", str(a.memory), "--side",
                                              side], check=True, capture_output=True, text=True).stdout)
             for side in sides}
    return {"model": "modernbert", "tokens": a.memory, "sides": found}


# ------------------------------------------------------------------------------------------------------------ quality

def trained(folder, model):
    """Return a row: for 200 sentences, the least and the mean cosine of the vectors of each side with those of f32, and
    how many vectors change in a batch."""
    sys.path.append(str(ROOT / "tools"))
    from trained import sentences
    texts = sentences(200)
    tokens = [t[:384] for t in T.AutoTokenizer.from_pretrained(model)(texts, truncation=True, max_length=384)[
        "input_ids"]]
    net = T.AutoModel.from_pretrained(model, attn_implementation="eager").eval()

    def mean(states):
        v = states.mean(0)
        return v / np.linalg.norm(v)
    right = np.stack([mean(net(torch.tensor([t])).last_hidden_state[0].double().numpy()) for t in tokens])
    files, found = onnx_files(folder, "trained", model), {}

    def compare(side, alone, together):
        cosines = (alone * right).sum(1)
        found[side] = {"mean": float(cosines.mean()), "least": float(cosines.min()),
                       "changed in a batch": int((alone != together).any(1).sum())}
    for kind in ("f32", "q8", "int8"):
        own = relpos.Encoder(model, type=kind, threads=1)
        alone, together = (np.asarray(own.encode(tokens=tokens, batch_size=n), np.float64) for n in (1, 8))
        compare(f"relpos {kind}", alone, together)
    for kind in ("f32", "int8", "int8 per channel"):
        session = session_of(files[kind])
        compare(f"ONNX Runtime {kind}", *(np.stack([mean(x.astype(np.float64)) for x in padded(session, tokens, n)])
                                          for n in (1, 8)))
    return {"model": "all-mpnet-base-v2", "texts": len(texts), "sides": found}


# --------------------------------------------------------------------------------------------------------------- main

def describe():
    """Return a description of the machine."""
    import ctranslate2
    import onnxruntime
    import openvino
    own = relpos.show_config()
    return {"cpu": processor().get("Model name", "unknown"), "cores": os.cpu_count(), "isa": own["isa"], **version(),
            "versions": {"relpos": relpos.__version__, "torch": torch.__version__, "transformers": T.__version__,
                         "onnxruntime": onnxruntime.__version__, "openvino": openvino.__version__,
                         "ctranslate2": ctranslate2.__version__}, "threads": 1}


def record(path, kind, row):
    """Replace a row of the file."""
    data = json.loads(path.read_text()) if path.exists() else {"machine": None, "times": [], "mixed": [], "memory": [],
                                                               "trained": []}
    data["machine"] = describe()
    same = [r for r in data[kind] if (r["model"], r.get("tokens")) == (row["model"], row.get("tokens"))]
    data[kind] = [r for r in data[kind] if r not in same] + [
        row | {"commit": data["machine"]["commit"], "load": os.getloadavg()[0]}]
    path.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n")
    seconds = {k: round(1e3 * statistics.median(s), 1) for k, s in row.get("seconds", {}).items()}
    print(row["model"], row.get("tokens", ""), seconds or row["sides"], row.get("missing", ""), flush=True)


def main():
    """Race the sides."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=ROOT / "bench/results/search.json")
    parser.add_argument("--models", default=",".join(CONFIGS))
    parser.add_argument("--tokens", default="16,128,512")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--memory", type=int, metavar="TOKENS")
    parser.add_argument("--side", help="with --memory, measure one side in this process")
    parser.add_argument("--trained", type=pathlib.Path, metavar="MODEL")
    a = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    a.folder.mkdir(parents=True, exist_ok=True)
    if a.side:
        memory_of(a.folder, a.side, a.memory)
    elif a.memory:
        record(a.output, "memory", memory(a))
    elif a.mixed:
        record(a.output, "mixed", mixed(a.folder, a.rounds))
    elif a.trained:
        record(a.output, "trained", trained(a.folder, a.trained))
    else:
        for name in a.models.split(","):
            sides, missing = sides_of(a.folder, name)
            for tokens in map(int, a.tokens.split(",")):
                record(a.output, "times", race(name, sides, tokens, a.rounds) | {"missing": missing})


if __name__ == "__main__":
    main()
