"""Write the numbers of bench/results and lab/results between the marks in README.md, lab/model/README.md and in docs/:
costs.md, hf-performance.md, lab-reference.md, maintainers/numerics.md and maintainers/tried.md. Standard library
only.

tools/measure.sh writes the result files and runs this script.  SPDX-License-Identifier: Apache-2.0
"""
import json
import math
import re
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent
results = root / "bench" / "results"
sys.path[0] = str(root / "bench")  # instead of tools, where this file would hide the standard module numbers
import statistics  # noqa: E402

import report  # noqa: E402

sys.path.append(str(root / "lab" / "report"))
import claims  # noqa: E402
import costs as costs_of_lab  # noqa: E402
import intervals  # noqa: E402
import ranking  # noqa: E402
import results as lab_results  # noqa: E402
from page import Page  # noqa: E402
from sweeps import printed_rise, rise, shown  # noqa: E402

FAR = {"fwd:f32:b32h12q49k49d32:dense": "windows of 49 keys",
       "fwd:f32:b1h8q1k65536d64o65535": "one query against 65,536 keys"}


def lines(name):
    return [json.loads(line) for line in (results / name).read_text().splitlines()]


def put(path, text, what="numbers"):
    path = root / path
    old = path.read_text()
    new, n = re.subn(rf"(<!-- {what}: .*?-->\n).*?(<!-- end of {what} -->)",
                     lambda m: m.group(1) + text.strip("\n") + "\n" + m.group(2), old, flags=re.S)
    assert n == 1, f"{path}: marks of {what} are missing"
    path.write_text(new)


def training_step():
    """Return (seconds, GB) of a training step on 4,096 tokens with relpos, and with PyTorch's faster attention."""
    return [side[-1][1:] for side in report.training_sides(report.training()[0])]


def long_memory():
    """Return the MB that attention over 65,536 tokens needs, and the GB of an N × N bias of 8 heads in f32."""
    return lines("memory.jsonl")[0]["bytes_peak"] * 1e-6, 8 * 65536**2 * 4 / 1e9


def parts():
    """Write the table of docs/hf-performance.md: the parts of an attention call of a decoding step."""
    data = json.loads((results / "hf.json").read_text())
    m, source = data["machine"], data["parts_from"]
    put("docs/hf-performance.md", "\n".join([
        *report.table(("", "µs"), [(name, f"{us:.1f}") for name, us in data["parts_us"].items()]),
        f"Measured on {report.models_machine(data)}, {m['cores']} cores, {source['date']}, commit "
        f"{source['commit']}{report.before(source)}."]))


def sound():
    """Write the table of docs/hf-performance.md: layers of Parakeet's encoder on a long sound."""
    data = json.loads((results / "sound.json").read_text())
    source = data["rows"][-1]

    def cell(row, kind):
        whole, times = statistics.median(row["seconds"][kind]), row["layers_seconds"][kind]
        return (f"{whole:.1f} s", f"{statistics.median(times):.1f} s ({min(times):.1f} to {max(times):.1f}), "
                                  f"{row['layers_bytes'][kind] * 1e-6:,.0f} MB")
    rows = [(f"{row['minutes']:g} minutes, {row['frames']:,} frames", *cell(row, "relpos"), *cell(row, "sdpa"))
            for row in data["rows"]]
    put("docs/hf-performance.md", "\n".join([
        *report.table(("", "relpos", "its layers", "sdpa", "its layers"), rows),
        f"Medians, and the fastest and slowest, of {len(source['seconds']['sdpa'])} calls of {source['layers']} "
        f"layers, {source['threads']} thread, f32, with other programs on the same cores; results differ by "
        f"{max(row['largest_relative_difference'] for row in data['rows']):.0e} of the largest. Measured on "
        f"{report.models_machine(data)}, {data['machine']['cores']} cores, {source['date']}, commit "
        f"{source['commit']}."]), "sound")


def gains():
    """Return the table of README.md: seconds and memory beside those of the usual way."""
    step, usual = (f"{seconds:.1f} s, {gigabytes:.1f} GB" for seconds, gigabytes in training_step())
    megabytes, dense_gigabytes = long_memory()
    protein = next(r for r in report.encoders()["times"] if (r["shape"], r["tokens"]) == ("prott5", 4096))
    mixed = report.search()["mixed"][0]

    def seconds(row, side):
        return statistics.median(row["seconds"][side])

    def rate(side):
        return f"{mixed['texts'] / seconds(mixed, side):,.0f}"
    training = report.training()[0]
    rows = [(f"a training step of a T5 with 8 + 8 layers, 4,096 tokens in and {training['problem']['target']} out "
             f"(measured with relpos {training['machine']['relpos']['version']})", f"**{step}**", f"PyTorch {usual}"),
            (f"{protein['layers']} layers of ProtT5's shape read a protein of 4,096 residues, f32",
             f"**{seconds(protein, 'relpos f32'):.1f} s**; int8 {seconds(protein, 'relpos int8'):.1f} s",
             f"transformers {seconds(protein, 'transformers f32'):.1f} s"),
            (f"MPNet-base embeds {mixed['texts']} texts of mixed lengths, batches of 32, int8",
             f"**{rate('relpos int8')} texts/s**; q8 {rate('relpos q8')}",
             f"ONNX Runtime {rate('ONNX Runtime int8')} texts/s"),
            ("memory for attention over 65,536 tokens, 8 heads, two threads", f"**{megabytes:.0f} MB**",
             f"an N × N bias {dense_gigabytes:.0f} GB")]
    return report.table(("one thread of a CPU unless stated, random weights", "relpos", "the usual way"), rows)


def readme():
    """Write the numbers of README.md."""
    put("README.md", "\n".join(gains()))


def costs():
    """Write the table of docs/costs.md: the time of each term over that of plain attention with the same pass and
    mask."""
    rows = {r["problem"]: r for r in lines("costs.jsonl")}
    size = "f32:b1h8q2048k2048d64"

    def ms(direction, term, mask=""):
        return rows.get(f"{direction}:{size}:{term}" + (f":{mask}" if mask else ""))

    plain = {d: ms(d, "") for d in ("fwd", "bwd")}
    out = [f"Times are for B1 H8 D64 f32, N = 2048, one thread of {report.label(report.card('costs.jsonl'))}. Plain "
           f"attention takes {plain['fwd']['ms']:.1f} ms forward "
           f"({100 * plain['fwd']['share_of_peak']:.0f} % of the measured peak) and {plain['bwd']['ms']:.1f} ms "
           "backward "
           f"({100 * plain['bwd']['share_of_peak']:.0f} %). Times in the table are multiples of these. Backward "
           "includes the "
           "gradients of all learned arrays of the term.", "",
           "| term | forward | backward |", "|---|---|---|"]
    for problem in rows:
        parts = problem.split(":")
        mask = parts[4] if len(parts) > 4 else ""
        if parts[0] != "fwd" or (parts[3] == "" and mask in ("", "causal")):
            continue
        against = "causal" if mask == "causal" else ""
        cells = []
        for d in ("fwd", "bwd"):
            row, base = ms(d, parts[3], mask), ms(d, "", against)
            cells.append(f"{row['ms'] / base['ms']:.2f} ×" if row and base else "")
        name = parts[3] or "none"
        out.append(f"| `{name}`{', ' + mask.replace('=', ' ') if mask else ''} | {cells[0]} | {cells[1]} |")
    back = {r["problem"]: r for r in lines("backward.jsonl")}
    n = "f32:b1h8q4096k4096d64"
    fwd, bwd = back[f"fwd:{n}:t5"], back[f"bwd:{n}:t5"]
    memory = [r for r in lines("memory.jsonl") if r["problem"].startswith("fwdbwd")][0]
    isa = {r["isa"]: r for r in lines("isa.jsonl") if r["problem"].endswith(":t5")}
    far = {r["problem"]: r for r in lines("far.jsonl")}
    terms = {r["problem"].split(":", 3)[3]: r for r in lines("terms.jsonl") if r["problem"].count(":") > 2}
    worst = max(float(x.split("/")[2]) for x in re.findall(r"[\d.]+ / [\d.]+ / [\d.]+",
                                                           (results / "errors.md").read_text()))
    out += ["", "The slowest calls, relative to the peak, are: a dense bias array "
                f"({100 * terms['dense']['share_of_peak']:.0f} % at N = 4096), "
            + ", ".join(f"{what} ({100 * far[problem]['share_of_peak']:.0f} %)" for problem, what in FAR.items())
            + ". With a T5 table and N = 4096, the instruction sets take: "
            + ", ".join(f"{name} {r['ms']:.0f} ms ({100 * r['share_of_peak']:.0f} % of its peak)"
                        for name, r in isa.items())
            + ". The largest ratio of error to proved bound, for all terms and instruction sets and logits up to "
              f"±1000, is {worst:.3f}."]
    out += ["",
            f"With a T5 table and its gradient at N = 4096, forward takes {fwd['ms']:.0f} ms and backward "
            f"{bwd['ms']:.0f} ms "
            f"({100 * bwd['share_of_peak']:.0f} % of the peak); both together take "
            f"{(fwd['ms'] + bwd['ms']) / fwd['ms']:.2f} × the time of forward. With a causal mask, "
            f"backward takes {back[f'bwd:{n}:t5:causal']['ms'] / bwd['ms']:.2f} of this time. Forward and backward of "
            "8 heads at N = 32,768 need "
            f"{memory['bytes_peak'] * 1e-6:.0f} MB in addition to the tensors.", "",
            "`tools/measure.sh` measures these numbers again. The result files are in bench/results. They were "
            "measured on these machines:", ""]
    origins = {}
    for name in ("costs.jsonl", "terms.jsonl", "isa.jsonl", "far.jsonl", "backward.jsonl", "memory.jsonl"):
        origins.setdefault(report.origin(report.card(name)), []).append(name)
    out += [f"- {', '.join(names)}: {text}." for text, names in origins.items()]
    put("docs/costs.md", "\n".join(out))


def lab():
    """The results in docs/lab-reference.md: perplexity by position and length, and times beside PyTorch."""
    folder = root / "lab" / "results"
    groups = {}
    for line in lab_results.read(folder / "ranking-3.jsonl"):
        groups.setdefault(line["experiment"]["position"], []).append(line)
    lengths = [x["length"] for x in next(iter(groups.values()))[0]["lengths"]]
    base = lengths.index(int(next(iter(groups.values()))[0]["experiment"]["length"]))
    starts = sorted({len(r) for r in groups.values()})
    out = [f"The table shows perplexity per byte of models trained at length {lengths[base]:,}, each scheme at the "
           f"best of six settings, as means over {' or '.join(map(str, starts))} starts. "
           "The other columns show the change beyond that length, with 95 % intervals. [The page on the "
           "ranking](../lab/results/ranking.md) has the protocol, intervals and tests:", "",
           "| position | " + " | ".join(f"{'at ' if n == base else ''}{lengths[n]:,}"
                                        for n in range(base, len(lengths))) + " |", "|---" * (len(lengths) - base + 1)
           + "|"]
    for position, runs in sorted(groups.items(), key=lambda pair: lab_results.mean(pair[1], base)):
        cells = [f"{lab_results.mean(runs, base):.2f}"]
        for n in range(base + 1, len(lengths)):
            values = ranking.beyond(runs, lengths[base], lengths[n])
            cells.append(intervals.change(values) if len(values) == len(runs) else "none")
        out.append(f"| `{position}` | " + " | ".join(cells) + " |")
    out += ["", "The next table compares the time of a training step with the same model in PyTorch, in alternating "
                "runs on one thread: 4 layers, width 256, 4 heads:", "",
            "| batch × length | position | relpos | PyTorch | |", "|---|---|---|---|---|"]
    times = lab_results.read(folder / "oracle.jsonl")
    for x in times:
        out.append(f"| {x['batch']} × {x['length']:,} | `{x['oracle']}` | {x['relpos_ms'][0]:,.0f} ms | "
                   f"{x['torch_ms'][0]:,.0f} ms | {x['torch_ms'][0] / x['relpos_ms'][0]:.1f} × |")
    m = times[0]["machine"]
    out += ["",
            f"PyTorch {times[0]['torch'].split('+')[0]}; {m['cpu']}, {m['cores']} cores, {m['isa'].upper()}, "
            f"{m['blas']}. "
            "[The page of results](../lab/results/report.md) has spreads, curves, the other experiments and their "
            "commands. `lab/all.sh build/release/relpos out/lab` "
            "creates it again, and `lab/oracle.py build/release/relpos lab/oracle.lab --time 4` measures the times."]
    put("docs/lab-reference.md", "\n".join(out))
    forward = Page(None)
    costs_of_lab.forward(forward, lab_results.read(folder / "forward.jsonl"))
    put("docs/lab-reference.md", forward.finish(), "forward")
    printed_lengths(ranking.of_schemes(lab_results.read(folder / "ranking-3.jsonl")))
    printed_buckets(folder)


def printed_lengths(groups):
    """The printed perplexities beyond the trained length in docs/lab-reference.md, beside those of the ranking."""
    some = groups["t5"][0]
    trained, tables = int(some["experiment"]["length"]), claims.LENGTHS.items()
    out = ["| position | " + " | ".join(f"{n} ×: printed for {', '.join(f'{of:,}' for of in claims.LENGTHS)} | "
                                        f"measured for {trained:,}" for n in (2, 4, 8)) + " |", "|---" * 7 + "|"]
    for what in next(iter(claims.LENGTHS.values())):
        cells = []
        for at, n in enumerate((2, 4, 8), 1):
            values = ranking.beyond(groups[what], trained, n * trained)
            cells += [", ".join(printed_rise(table.get(what), at) or "–" for _, table in tables),
                      intervals.change(values) if values else "no entry"]
        out.append(f"| {what} | " + " | ".join(cells) + " |")
    put("docs/lab-reference.md", "\n".join(out), "lengths")


def printed_buckets(folder):
    """The printed perplexities of numbers of buckets and of strategies in docs/lab-reference.md, beside those
    measured."""
    out = ["| position | printed as trained | at 2 × | rise | measured at 512 | at 1,024 | rise |", "|---" * 7 + "|"]
    for stem in ("buckets", "strategies"):
        groups = lab_results.grouped(lab_results.read(folder / f"{stem}.jsonl"))
        for what, theirs in claims.CLAIMS[stem][1].items():
            lines = groups[what]
            assert [x["length"] for x in lines[0]["lengths"][:2]] == [512, 1024] and len(lines) == 3
            cells = (shown(lab_results.over(lines, lambda line, n=n: line["lengths"][n]["perplexity"]), 2)
                     for n in range(2))
            out.append(f"| `{what}` | {theirs[0]} | {theirs[1]} | {printed_rise(theirs, 1)} | "
                       + " | ".join(cells) + f" | {intervals.minus(rise(lines, 1))} |")
    put("docs/lab-reference.md", "\n".join(out), "buckets")


def length_models():
    """The table of the models of lab/model/length in lab/model/README.md."""
    names = {"t5,bidirectional=0": "t5", "none": "none", "alibi": "alibi", "rope": "rope", "learned": "learned"}
    runs = {name: [] for name in names}
    for line in lab_results.read(root / "lab" / "results" / "model-length.jsonl"):
        runs[line["experiment"]["position"]].append(line)
    rounding = json.loads((root / "web" / "lengths.json").read_text())["rounding"]
    lengths = [256, 512, 1024, 2048]
    out = ["| file | learning rate | weights | " + " | ".join(f"at {n:,}" for n in lengths)
           + " | in the file, in the page |", "|---" * 8 + "|"]
    for position, lines in runs.items():
        rate = min((r for r in lines if r["seed"] == 1), key=lambda r: r["lengths"][0]["loss"])["experiment"]["lr"]
        starts = [r for r in lines if r["experiment"]["lr"] == rate]
        assert len(starts) == 3, f"{position}: {len(starts)} starts"
        cells = []
        for n in range(len(lengths)):
            found = sorted(math.exp(r["lengths"][n]["loss"]) for r in starts if r["lengths"][n]["loss"] is not None)
            digits = 2 if found and found[0] < 10 else 1
            cells.append(f"{statistics.mean(found):.{digits}f} ({found[0]:.{digits}f} to {found[-1]:.{digits}f})"
                         if found else "no entry")
        both = ", ".join(f"{x:.3f}" for x in rounding[f"length/{names[position]}"])
        out.append(f"| {names[position]} | {rate} | {lines[0]['weights']:,} | " + " | ".join(cells) + f" | {both} |")
    put("lab/model/README.md", "\n".join(out), "length")


def encoders():
    """The goals of encoders in docs/maintainers/tried.md, with the ratios of bench/results/t5_encoders.json and
    t5_avx2.json."""
    data = report.encoders()
    small = {r["problem"]: r for r in json.loads((results / "t5_avx2.json").read_text())["times"]}
    rows = {(r["shape"], r["tokens"]): {side: statistics.median(s) for side, s in r["seconds"].items()}
            for r in data["times"]}

    def ratio(shape, tokens, kind, *others):
        seconds = rows[shape, tokens]
        return min(seconds[other] for other in others) / seconds["relpos " + kind]
    four = "llama.cpp Q4_0", "llama.cpp Q4_K"
    found = [("T5-XXL, 512 tokens", "int8", "llama.cpp Q8_0", 2, ratio("xxl", 512, "int8", "llama.cpp Q8_0")),
             ("", "q8", "llama.cpp Q8_0", 2, ratio("xxl", 512, "q8", "llama.cpp Q8_0")),
             ("", "int4", "llama.cpp Q4_0 or Q4_K", 2, ratio("xxl", 512, "int4", *four)),
             ("", "file of Q4_K", "llama.cpp Q4_0 or Q4_K", 2, ratio("xxl", 512, "Q4_K file", *four)),
             ("", "file of Q4_K", "CTranslate2 int8", 1.2, ratio("xxl", 512, "Q4_K file", "CTranslate2 int8")),
             ("", "int8", "CTranslate2 int8", 1.2, ratio("xxl", 512, "int8", "CTranslate2 int8")),
             ("", "int4", "CTranslate2 int8", 1.2, ratio("xxl", 512, "int4", "CTranslate2 int8")),
             ("", "bf16", "transformers bf16", 5, ratio("xxl", 512, "bf16", "transformers bf16"))]
    found += [(f"ProtT5, {n:,} tokens", kind, "transformers f32", goal, ratio("prott5", n, kind, "transformers f32"))
              for n, goal in ((1024, 1.5), (4096, 2.5)) for kind in ("f32", "int8")]
    found += [(f"T5-small, {what}", kind, f"CTranslate2 {report.SMALL[kind]}", goal,
               report.small_ratio(small[problem], kind))
              for problem, what, goals in (("batch 8", "8 sources", (2, 2)), ("encode 512", "512 tokens", (1.2, 1.5)))
              for kind, goal in zip(report.SMALL, goals)]
    out = report.table(("problem", "relpos", "compared with", "goal", "measured", ""),
                       [(what, kind, other, f"{goal:g}", f"{x:.2f}", "" if x >= goal else "missed")
                        for what, kind, other, goal, x in found])
    whole = next(r for r in data["whole"] if r["shape"] == "xxl")
    out += [f"All {whole['layers']} layers of T5-XXL's shape in int4 encode {whole['tokens']} tokens in "
            f"{whole['seconds']:.0f} s of processor time of one thread, with a largest resident "
            f"memory of {whole['bytes'] * 1e-9:.2f} GB (goal: 3.3 GB)."]
    put("docs/maintainers/tried.md", "\n".join(out), "encoders")


readme()
costs()
parts()
sound()
encoders()
lab()
length_models()
put("docs/maintainers/numerics.md", (results / "errors.md").read_text())
