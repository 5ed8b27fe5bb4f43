"""Write docs/performance.md, what models gain and what is slower, from the results in bench/results. Standard library
only.

    python3 bench/summary.py              write the page
    python3 bench/summary.py --check      exit with 1 if the page is stale
SPDX-License-Identifier: Apache-2.0
"""
import re
import statistics
import sys

import report
from report import check, table, write

TABLES = "performance-tables.md"


def middle(row):
    return {side: statistics.median(seconds) for side, seconds in row["seconds"].items()}


def training():
    data = report.training()[0]
    (model, m), (ours, usual) = (data["problem"]["model"], data["machine"]), report.training_sides(data)
    cell = lambda seconds, gigabytes: f"{seconds:.2f} s, {gigabytes:.1f} GB"  # noqa: E731
    picture = [line for theme in ("light", "dark") for line in (
        f"```{{image}} images/gain-{theme}.svg", f":class: only-{theme}", ":alt: Time and memory by length", "```")]
    return ["## Training", "", *picture, "",
            f"A step with AdamW of a T5 with {model['num_layers']} encoder and {model['num_decoder_layers']} decoder "
            f"layers of transformers, {data['problem']['target']} target tokens, random weights, one thread of an "
            f"{m['cpu']} ({report.ISAS[m['relpos']['isa']]}), relpos {m['relpos']['version']}, PyTorch "
            f"{m['torch'].split('+')[0]}. GB are what training adds to the process. PyTorch computes the linear "
            "layers on both sides:", "",
            *table(("source tokens", "relpos", "PyTorch's attention", "speed-up"),
                   [(f"{a[0]:,}", f"**{cell(*a[1:])}**" if a[1] < b[1] else cell(*a[1:]), cell(*b[1:]),
                     f"{b[1] / a[1]:.2f} ×") for a, b in zip(ours, usual)])]


def t5():
    data = report.t5()
    m = data["machine"]
    names = {"encode 512": "reads 512 tokens", "encode 4096": "reads 4,096 tokens", "batch 1": "writes 128 tokens",
             "batch 8": "writes 8 × 128 tokens"}
    sides, lines = ("relpos f32", "transformers f32", "relpos int8", "CTranslate2 int8"), []
    for shape, title in (("small", "T5-small"), ("base", "FLAN-T5-base")):
        for problem, what in names.items():
            seconds = middle(next(r for r in data["times"] if (r["shape"], r["problem"]) == (shape, problem)))
            lines.append((title if problem == "encode 512" else "", what, *(
                f"**{seconds[side]:.2f}**" if side.startswith("relpos") else f"{seconds[side]:.2f}" for side in sides)))
    versions = m["versions"]
    memory = next(r["bytes"] for r in data["memory"] if (r["shape"], r["tokens"]) == ("base", 4096))
    return ["## T5 in C", "",
            "Seconds of `relpos t5` with the shapes of published models and random weights, one thread of an "
            f"{m['cpu']} with AVX-512, beside CTranslate2 {versions['ctranslate2']} and transformers "
            f"{versions['transformers']}:", "",
            *table(("shape", "", *sides), lines),
            f"Reading 4,096 tokens, FLAN-T5-base's shape needs {memory['relpos f32'] * 1e-6:,.0f} MB in addition to "
            f"its weights with relpos, {memory['transformers f32'] * 1e-6:,.0f} MB with transformers and "
            f"{memory['CTranslate2 float32'] * 1e-6:,.0f} MB with CTranslate2, all in f32.", "",
            f"![{report.PLOTS['t5']}](performance/t5.svg)", ""]


def encoders():
    data = report.encoders()
    m, lines = data["machine"], []
    for r in data["times"]:
        s = middle(r)
        title = {"xxl": "T5-XXL", "prott5": "ProtT5"}[r["shape"]]
        others = {side: t for side, t in s.items() if not side.startswith("relpos")
                  and ("int8" in side or side in ("transformers f32", "llama.cpp Q8_0", "llama.cpp Q4_K"))}
        lines.append((f"{title}, {r['layers']} layers", f"{r['tokens']:,}", f"{s['relpos f32']:.1f}",
                      f"{s['relpos int8']:.1f}",
                      ", ".join(f"{side} {t:.1f}" for side, t in sorted(others.items(), key=lambda x: x[1]))))
    return ["## Proteins and text encoders", "",
            "Seconds of encoding with the widths of published models, few layers and random weights, one thread of an "
            f"{m['cpu']} with AVX2:", "",
            *table(("widths of", "tokens", "relpos f32", "relpos int8", "others"), lines)]


def search():
    data = report.search()
    m, texts = data["machine"], data["mixed"][0]["texts"]
    v = {name: re.split("[-+]", version)[0] for name, version in m["versions"].items()}
    rate = {side: f"{texts / t:.0f}" for side, t in middle(data["mixed"][0]).items()}
    mb = {(r["tokens"], side): f"{x['bytes'] * 1e-6:,.0f} MB" for r in data["memory"] for side, x in r["sides"].items()}
    q = data["trained"][0]["sides"]
    return ["## Encoders for search and classification", "",
            "Milliseconds for one text with `relpos embed` or relpos.Encoder, models of base size with random weights, "
            f"one thread of an {m['cpu']} with AVX-512, and how many times as fast that is as the fastest of ONNX "
            f"Runtime {v['onnxruntime']}, OpenVINO {v['openvino']}, PyTorch {v['torch']} and (BERT) "
            f"CTranslate2 {v['ctranslate2']}. f32 is compared with f32, q8 and int8 with int8:", "",
            *table(("model", "tokens", "f32, ms", "speed-up", "q8, ms", "speed-up", "int8, ms", "speed-up"),
                   [report.search_line(row, lambda _, x: f"{x:.2f} ×") for row in report.search_rows(data)]),
            f"{texts} texts of mixed lengths in batches of 32, MPNet, one thread: {rate['relpos q8']} texts a second "
            f"in q8 and {rate['relpos int8']} in int8; ONNX Runtime int8 {rate['ONNX Runtime int8 per channel']}, or "
            f"{rate['ONNX Runtime int8 per channel, sorted']} if they are sorted by length. ModernBERT needs "
            f"{mb[2048, 'relpos f32']} in addition to its weights for 2,048 tokens, and ONNX Runtime "
            f"{mb[2048, 'ONNX Runtime f32']}; for 8,192 tokens relpos needs {mb[8192, 'relpos f32']}.", "",
            f"The cosine with vectors in f32, trained all-mpnet-base-v2, mean of {data['trained'][0]['texts']} "
            f"sentences: q8 {q['relpos q8']['mean']:.5f}, int8 {q['relpos int8']['mean']:.4f}; ONNX Runtime int8 "
            f"{q['ONNX Runtime int8']['mean']:.3f} per tensor and {q['ONNX Runtime int8 per channel']['mean']:.3f} per "
            f"channel, and {q['ONNX Runtime int8 per channel']['changed in a batch']} of its vectors change with the "
            "batch.", ""]


def transformers():
    data, rows = report.models()
    by = {}
    for r in sorted((r for r in rows if r["threads"] == 1), key=lambda r: -r["ratio"]):
        by.setdefault((r["model"], r["layers"].replace(" + ", "+")), []).append(f"{r['problem']}: {r['ratio']:.2f}")
    return ["## Models of transformers", "",
            "How many times as fast `attn_implementation=\"relpos\"` is as the faster one of `sdpa` and `eager`. "
            f"Random weights, one thread of {report.models_machine(data)}. `encode` and `prefill` read tokens, "
            "`generate 16 of 128` writes 16 after 128, and sound is in seconds:", "",
            *table(("model", "layers", "speed-up, ×"),
                   [(*model, ", ".join(found)) for model, found in by.items()]),
            "PyTorch's linear layers take most of the time of short inputs and of writing, so faster attention "
            f"changes little there. {report.count_models()} give the results of their own attention: "
            "[models](hf-models.md).", ""]


def attention():
    lines = []
    for data in (report.load(), *report.others()):
        if "changed_since" not in data["machine"]:
            by = report.groups(data["rows"])
            for passes, name in (("forward", "SDPA, bias built before"),
                                 ("forward and backward", "SDPA, bias built in the call")):
                rows = {r["n"]: report.ratio(r, name) for r in by[passes, "f32", "T5 table"]}
                lines.append((report.label(data["machine"]) if passes == "forward" else "", passes,
                              *(f"{rows[n]:.2f} ×" for n in (512, 2048))))
    data = report.load()
    mb = {r["n"]: r["bytes"] for r in data["memory"] if r["pass"] == "fwd"}[8192]
    return ["## One call of attention", "",
            "How many times as fast relpos is as PyTorch's `scaled_dot_product_attention` (SDPA): 8 heads of 64, f32, "
            "a T5 table, one thread. Forward, SDPA gets the N × N bias ready made; with gradients, the call builds "
            "it:", "",
            *table(("machine", "", "512 tokens", "2,048 tokens"), lines),
            f"With 8,192 tokens, a forward call needs {mb['relpos'] * 1e-6:.0f} MB in addition to its inputs, and SDPA "
            f"{mb['SDPA, bias built before'] * 1e-6:,.0f} MB ({report.label(data['machine'])}).", "",
            f"![{report.PLOTS['forward']}](performance/forward.svg)", ""]


def derivatives():
    data = report.derivatives()
    memory = report.derivatives_memory(data)
    (ours, seconds), long = memory["jvp", "relpos", 65536], max(n for _, side, n in memory if side == "torch")
    return ["## Derivatives", "",
            "One call along tangents of q, k, v and a T5 table, 8 heads of 64, f32, one thread of "
            f"{report.label(data['machine'])}, beside torch's eager attention, the only other one with these "
            "derivatives on CPUs:", "",
            *table(("", "tokens", "ms", "relpos's passes", "torch's time"), report.derivatives_rows(data)),
            f"A forward derivative of {long:,} tokens needs {memory['jvp', 'relpos', long][0]:,.0f} MB in addition to "
            f"its inputs, and torch {memory['jvp', 'torch', long][0]:,.0f} MB, which grow with the square of the "
            f"length. One head of 65,536 tokens takes {seconds:.0f} s and {ours:,.0f} MB.", ""]


def slower():
    """Return the section on what is slower: the comparisons of bench/report.py, with a line for each type of linear
    layers."""
    current = [d for d in (report.load(), *report.others()) if "changed_since" not in d["machine"]]
    rows = [(f"one call of attention, {report.label(d['machine'])}", "PyTorch and ONNX Runtime",
             [min(report.ratio(r, name) for name in r["times"] if report.is_peer(name)) for r in d["rows"]])
            for d in current]
    for what, who, found in report.comparisons():
        what = re.sub(r", [\d]+ to [\d]+ rows", "", what).replace("(#", f"({TABLES}#")
        who = who.partition(" of the same size")[0]
        if rows[-1][0] == what:
            rows[-1][2].extend(found)
        else:
            rows.append((what, who, list(found)))
    return ["## What is slower", "",
            "The last column is the lowest speed of relpos, as a multiple of that of the fastest other program:", "",
            *table(("comparison", "with", "slower in", "lowest"),
                   [(what, who, f"{sum(r < 1 for r in found)} of {len(found)}", f"{min(found):.2f} ×")
                    for what, who, found in rows]),
            *(f"Not counted, {report.label(d['machine'])}: {d['machine']['not_measured']}" for d in current
              if "not_measured" in d["machine"])]


def page():
    out = ["# Performance", "", "<!-- made by bench/summary.py from bench/results -->",
           f"Medians of alternating runs, and the fastest of many rounds for short calls from Python; "
           f"the [raw tables]({TABLES}) have all times, spreads, commits and commands. "
           "[What is slower](#what-is-slower) is the last section.", ""]
    out += training() + t5() + encoders() + search() + transformers() + attention() + derivatives() + slower()
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    files = {"docs/performance.md": page()}
    if sys.argv[1:] == ["--check"]:
        check(files, "python3 bench/summary.py")
    else:
        write(files)
