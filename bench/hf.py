"""Time whole models of transformers with random weights in one process, alternately with attn_implementation="relpos",
"sdpa", "eager" and with an attention that costs nothing.

    python3 bench/hf.py -o bench/results/hf.json                      every model of MODELS
    python3 bench/hf.py -o bench/results/hf.json --models BERT-base   measure one again, and keep the other results

MODELS lists the models. They have their published shapes but fewer layers ("4 of 12"). A vocabulary is divided by the
same number, so the last linear layer keeps its share of a generated token. A problem is one of

    encode N         the encoder, or the model without its head, of N tokens
    image N          an image of N × N pixels
    sound N          N seconds of sound, as 50 vectors of features per second
    generate M of N  M tokens after N, with a cache
    prefill N        a decoder without its head: N tokens fill the cache

"free" is the model with relpos, in which the attention function only returns an array of the right shape that was
allocated before. The model still projects queries, keys, values and positions, updates its cache, and describes its
mask and its bias. So no attention makes the model faster than "free". This gives, with `best` for the faster one of
sdpa and eager:

    share of attention  1 - free / best
    largest gain        best / free
    gain reached        best / relpos; as a share of the largest gain: free / relpos

The script also times the parts of an attention call of a decoding step.  SPDX-License-Identifier: Apache-2.0"""
import argparse
import contextlib
import json
import time
import timeit
from pathlib import Path
from typing import NamedTuple

import numpy as np
import relpos.hf
import torch
import transformers

from machine import package_card, version

KINDS = ("relpos", "sdpa", "eager", "free")


class Model(NamedTuple):
    cls: str  # class of transformers; the class of its config has the same name with Config
    layers: str  # "4 of 12": those in config, of those in the published model
    problems: tuple
    config: dict


T5 = dict(decoder_start_token_id=0, eos_token_id=None)
BASE = dict(hidden_size=768, num_attention_heads=12, intermediate_size=3072, num_hidden_layers=4)
MODELS = {
    "T5-small": Model("T5ForConditionalGeneration", "6 + 6", ("encode 128", "encode 512", "generate 16 of 128"), dict(
        T5, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_decoder_layers=6, num_heads=8)),
    "T5-base": Model("T5ForConditionalGeneration", "4 of 12", ("encode 512", "encode 2048"), dict(
        T5, d_model=768, d_kv=64, d_ff=3072, num_layers=4, num_decoder_layers=1, num_heads=12)),
    "DeBERTa-v3-base": Model("DebertaV2Model", "4 of 12", ("encode 128", "encode 512"), dict(
        BASE, vocab_size=128100 // 3, type_vocab_size=0, position_buckets=256, max_position_embeddings=512,
        max_relative_positions=-1,
        relative_attention=True, pos_att_type=["p2c", "c2p"], share_att_key=True, norm_rel_ebd="layer_norm",
        position_biased_input=False)),
    "XLNet-base": Model("XLNetModel", "4 of 12", ("encode 512",),
                        dict(vocab_size=32000 // 3, d_model=768, n_layer=4, n_head=12, d_inner=3072)),
    "BERT-base": Model("BertModel", "4 of 12", ("encode 512",), dict(BASE, vocab_size=30522 // 3)),
    "Swin-tiny": Model("SwinModel", "2 + 2 + 6 + 2", ("image 224",),
                       dict(embed_dim=96, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24])),
    "BEiT-base": Model("BeitModel", "4 of 12", ("image 224",), dict(BASE, use_relative_position_bias=True)),
    "W2V-BERT 2.0": Model("Wav2Vec2BertModel", "2 of 24", ("sound 10",),
                          dict(num_hidden_layers=2, apply_spec_augment=False)),
    "BLOOM-560m": Model("BloomForCausalLM", "4 of 24", ("prefill 512", "generate 16 of 128"), dict(
        vocab_size=250880 // 6, hidden_size=1024, n_head=16, n_layer=4, eos_token_id=None)),
    "MPT-1b": Model("MptForCausalLM", "2 of 24", ("prefill 512", "generate 16 of 128"), dict(
        vocab_size=50368 // 12, d_model=2048, n_heads=16, n_layers=2, use_cache=True, eos_token_id=None)),
    "Falcon-RW-1b": Model("FalconForCausalLM", "2 of 24", ("prefill 512", "generate 16 of 128"), dict(
        vocab_size=50304 // 12, hidden_size=2048, num_attention_heads=32, num_hidden_layers=2, alibi=True, bias=True,
        multi_query=False,
        parallel_attn=False, new_decoder_architecture=False, eos_token_id=None)),
    "GPT-2": Model("GPT2LMHeadModel", "4 of 12", ("prefill 512", "generate 16 of 128"), dict(
        vocab_size=50257 // 3, n_layer=4, eos_token_id=None)),
}


def make(entry):
    torch.manual_seed(0)
    cls = getattr(transformers, entry.cls)
    return cls(cls.config_class(**entry.config)).eval()


def problem(model, text):
    """Return a function that runs a problem of MODELS."""
    kind, count, *of = text.split()
    ids = torch.randint(3, getattr(model.config, "vocab_size", None) or 9, (1, int(of[-1] if of else count)))
    if kind == "image":
        pixels = torch.randn(1, 3, int(count), int(count))
        return lambda: model(pixel_values=pixels)
    if kind == "sound":
        features = torch.randn(1, 50 * int(count), model.config.feature_projection_input_dim)
        return lambda: model(input_features=features)
    if kind == "generate":
        return lambda: model.generate(ids, min_new_tokens=int(count), max_new_tokens=int(count), do_sample=False)
    part = model.encoder if model.config.is_encoder_decoder else model.base_model
    return lambda: part(input_ids=ids)


class Free:
    """An attention function that costs nothing. It counts its calls."""

    def __init__(self):
        self.found, self.calls = {}, 0

    def __call__(self, module, query, key, value, attention_mask, **_):
        batch, heads, length, _ = query.shape
        shape = batch, length, heads, value.shape[-1]
        self.calls += 1
        if shape not in self.found:
            self.found[shape] = torch.zeros(shape, dtype=query.dtype)
        return self.found[shape], None


@contextlib.contextmanager
def switched(model, kind):
    """Let the model use an implementation of KINDS. All kinds use the same weights in the same memory."""
    model.set_attn_implementation("relpos" if kind == "free" else kind)
    free = Free()
    if kind == "free":
        transformers.AttentionInterface.register("relpos", free)
        relpos.hf._adapters.attention = free
    try:
        yield
        if kind == "free" and not free.calls:
            raise SystemExit(f"{type(model).__name__} with relpos does not call relpos.hf.attention")
    finally:
        transformers.AttentionInterface.register("relpos", relpos.hf.attention)
        relpos.hf._adapters.attention = relpos.hf.attention


def kinds_of(model):
    return [kind for kind in KINDS if kind != "sdpa" or model._supports_sdpa]


def quartiles(x):
    return [float(y) for y in np.percentile(x, (50, 25, 75))]


def measure(model, run, rounds):
    """Time run() with each implementation in turn. Return a row of results: for each implementation the median, first
    and third quartile of the milliseconds, elapsed and of the processor, and of the elapsed time divided by that of
    relpos in the same round. The quotients do not depend on the clock, which changes from round to round on a shared
    machine. With several threads the processor time includes time in which threads wait for each other."""
    clocks = {"ms": time.perf_counter, "processor_ms": time.process_time}
    kinds = kinds_of(model)
    times = {name: {kind: [] for kind in kinds} for name in clocks}
    for n in range(rounds + 1):
        for kind in kinds[n % len(kinds):] + kinds[:n % len(kinds)]:
            with switched(model, kind):
                start = {name: clock() for name, clock in clocks.items()}
                run()
                for name, clock in clocks.items():
                    times[name][kind].append(1e3 * (clock() - start[name]))
    ms = {kind: np.array(t[1:]) for kind, t in times["ms"].items()}  # without the first round
    return {name: {kind: quartiles(t[1:]) for kind, t in times[name].items()} for name in clocks} | {
        "over_relpos": {kind: quartiles(t / ms["relpos"]) for kind, t in ms.items()}}


def show(row):
    ms = {kind: x[0] for kind, x in row["ms"].items()}
    over = {kind: x[0] for kind, x in row["over_relpos"].items()}
    best = min(over[kind] for kind in ("sdpa", "eager") if kind in ms)
    print(f"{row['model']:16} {row['problem']:19} {row['threads']} thread{'s' * (row['threads'] > 1)}",
          *(f"{kind} {x:7.1f}" for kind, x in ms.items()),
          f"ms; best / relpos {best:.2f}, of at most {best / over['free']:.2f}; attention "
          f"{100 * (1 - over['free'] / best):.0f} %", flush=True)


def microseconds(call, number=1000):
    return 1e6 * min(timeit.repeat(call, number=number, repeat=5)) / number


def parts():
    """Return the microseconds of one attention call of a decoder (8 heads of 64 channels, one query, 128 keys) and of
    its parts."""
    one = relpos.hf

    class Module:
        is_causal, num_key_value_groups, training = True, 1, False

    q, x = torch.randn(1, 1, 8, 64).transpose(1, 2), torch.randn(1, 8, 128, 64)
    small, bias, table = torch.ones(1, 1, 1, 4), torch.randn(1, 8, 1, 128), torch.randn(32, 8)
    term = relpos.T5(table, bidirectional=False)
    mask, given = one.Mask((1, 1, 1, 128), {"causal": True, "q_offset": 127}), {"bias": term, "q_offset": 127}
    plan = relpos.Plan(1, 8, 1, 256, 64, bias=term, causal=True)
    sdpa = transformers.integrations.sdpa_attention.sdpa_attention_forward
    return {name: microseconds(call) for name, call in {
        "relpos.hf.attention, T5's bias": lambda: one.attention(Module, q, x, x, mask, scaling=1.0,
                                                                position_bias=given),
        "relpos.hf.attention, no bias": lambda: one.attention(Module, q, x, x, None, scaling=1.0, is_causal=False),
        "relpos.attention, T5's bias": lambda: relpos.attention(q, x, x, bias=term, causal=True, q_offset=127),
        "relpos.attention, no bias": lambda: relpos.attention(q, x, x),
        "relpos.Plan, T5's bias": lambda: plan(q, x, x, q_offset=127),
        "relpos.attention of one number": lambda: relpos.attention(small, small, small),
        "making the term": lambda: relpos.T5(table, bidirectional=False),
        "making the mask": lambda: one.mask(1, 1, 128, 127),
        "transformers' sdpa, an array of biases": lambda: sdpa(Module, q, x, x, None, scaling=1.0, position_bias=bias),
    }.items()}


def merged(path, found):
    """Add the results of a file to those just found: its rows of other problems, and its parts if they were not
    measured. Refuse the results of another machine."""
    old = json.loads(path.read_text()) if path.exists() else found
    if old["machine"] != found["machine"]:
        raise SystemExit(f"{path} has results of another machine or of other versions, {old['machine']}; write to "
                         "another file")
    key = lambda row: (row["model"], row["problem"], row["threads"])  # noqa: E731
    rows = {key(row): row for row in old["rows"] + found["rows"]}
    order = [(name, text) for name, entry in MODELS.items() for text in entry.problems]
    return {"machine": found["machine"], "parts_us": found["parts_us"] or old["parts_us"],
            "parts_from": found["parts_from"] or old["parts_from"],
            "rows": sorted(rows.values(),
                           key=lambda row: (row["threads"], order.index((row["model"], row["problem"]))))}


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="write the results to this file; results of other problems "
                                                          "in it stay")
    parser.add_argument("--models", nargs="*", metavar="NAME", choices=MODELS, default=list(MODELS),
                        help=", ".join(MODELS))
    parser.add_argument("--problem", help="only problems that contain this text")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=5, help="calls of each implementation; three times as many of a "
                                                              "call below 0.5 s")
    parser.add_argument("--parts", action="store_true", help="also time the parts of an attention call of a decoding "
                                                             "step")
    a = parser.parse_args()
    transformers.logging.set_verbosity_error()
    rows = []
    for name in a.models:
        entry = MODELS[name]
        model = make(entry)
        for text in (text for text in entry.problems if (a.problem or "") in text):
            for threads in a.threads:
                torch.set_num_threads(threads)
                run = problem(model, text)
                start = time.perf_counter()
                with switched(model, "relpos"):
                    run()
                rounds = a.rounds * (3 if time.perf_counter() - start < 0.5 else 1)
                rows.append({"model": name, "layers": entry.layers, "problem": text, "threads": threads,
                             "rounds": rounds, **measure(model, run, rounds),
                             **version()})
                show(rows[-1])
    torch.set_num_threads(1)
    found = {"machine": package_card(), "rows": rows, "parts_us": parts() if a.parts else {},
             "parts_from": version() if a.parts else {}}
    for name, time_us in found["parts_us"].items():
        print(f"{name:40} {time_us:6.1f} us")
    if a.output:
        a.output.write_text(json.dumps(merged(a.output, found), indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
