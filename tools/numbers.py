"""Fill README.md, docs/costs.md, docs/lab.md and docs/numerics.md with the numbers of bench/results and lab/results, between their marks. Standard library only.

tools/measure.sh makes the result files and runs this.  SPDX-License-Identifier: Apache-2.0
"""
import importlib.util
import json
import re
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent
results = root / "bench" / "results"
sys.path[0] = str(root / "bench")  # in place of tools, where this file hides the module of its name
import report  # noqa: E402

spec = importlib.util.spec_from_file_location("lab_report", root / "lab" / "report.py")
lab_report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lab_report)

SDPA = "SDPA, bias built before"
FAR = {"fwd:f32:b32h12q49k49d32:dense": "windows of 49 keys", "fwd:f32:b1h8q1k65536d64o65535": "one query against 65,536 keys"}


def lines(name):
    return [json.loads(line) for line in (results / name).read_text().splitlines()]


def put(path, text, what="numbers"):
    path = root / path
    old = path.read_text()
    new, n = re.subn(rf"(<!-- {what}: .*?-->\n).*?(<!-- end of {what} -->)",
                     lambda m: m.group(1) + text.strip("\n") + "\n" + m.group(2), old, flags=re.S)
    assert n == 1, f"{path}: marks of {what} are missing"
    path.write_text(new)


def readme():
    data = report.load()
    m, rows = data["machine"], data["rows"]
    by = {(r["case"], r["n"]): r for r in rows if r["pass"] == "fwd" and r["dtype"] == "f32"}
    out = [f"Measured against PyTorch {m['torch']} on {m['threads']} thread{'s' * (m['threads'] > 1)} of a machine with {m['isa'].upper()} "
           f"({m['cpu']}, {m['cores']} cores), B1 H8 D64 f32, forward, medians of calls that take turns; "
           f"a number above 1 says how many times as long PyTorch takes:", "",
           "| N | relpos, T5 table | share of FMA peak | SDPA, N×N bias built before | SDPA, bias built in the call | eager | no bias: SDPA | causal: SDPA |",
           "|---|---|---|---|---|---|---|---|"]
    for n in (512, 1024, 2048, 4096):
        t5 = by["T5 table", n]

        def ratio(row, other):
            return f"{report.ratio(row, other):.2f} ×" if other in row["times"] else ""

        out.append(f"| {n} | {t5['times']['relpos']['ms']:.1f} ms | {100 * report.share(data, t5):.0f} % | "
                   f"{ratio(t5, 'SDPA, bias built before')} | {ratio(t5, 'SDPA, bias built in the call')} | "
                   f"{ratio(t5, 'eager, bias built before')} | {ratio(by['no bias', n], 'SDPA')} | "
                   f"{ratio(by['no bias, causal', n], 'SDPA')} |")
    slower = len(report.slower(rows))
    out += ["", f"[docs/performance.md](docs/performance.md) has {len(rows)} problems, forward and backward, f32 and bf16, N from 64 to 16,384, "
            "beside SDPA, eager PyTorch, flex_attention and ONNX Runtime, and begins with what is slower: "
            + (f"{slower} of them." if slower else "nothing.")]
    for path in sorted(results.glob("peers.*.json")):
        other = json.loads(path.read_text())
        t5, both = ({r["n"]: r for r in report.groups(other["rows"])[report.PASSES[passes], "f32", "T5 table"]} for passes in ("fwd", "fwdbwd"))
        ns = [n for n in (512, 1024, 4096) if n in t5]
        out += ["", f"On another machine ({other['machine']['cpu']}, {other['machine']['isa'].upper()}, PyTorch {other['machine']['torch'].split('+')[0]}) SDPA takes, with the "
                f"bias built before, {', '.join(f'{report.ratio(t5[n], SDPA):.2f}' for n in ns)} times as long at N = {', '.join(map(str, ns))}; forward and backward with the "
                f"bias's gradient, the better of SDPA and eager takes "
                f"{min(report.ratio(both[4096], p) for p in both[4096]['times'] if p.startswith(('SDPA', 'eager'))):.1f} times as long at 4096. "
                f"There {len(report.slower(other['rows']))} of {len(other['rows'])} problems have a faster peer."]
    train = {r["implementation"]: r for r in report.training()[0]["results"] if r["length"] == 4096}
    better = min(("eager", "sdpa"), key=lambda name: train[name]["seconds"])
    added = {name: r["peak_bytes"] - r["start_bytes"] for name, r in train.items()}
    out += ["", f"A whole model: a training step of a T5 of 8 + 8 layers at 4,096 tokens takes {train['relpos']['seconds']:.1f} s, of which "
            f"{train['relpos']['linear_seconds']:.1f} s are PyTorch's linear layers, and {added['relpos'] * 1e-9:.1f} GB; with PyTorch's own attention "
            f"{train[better]['seconds']:.1f} s and {added[better] * 1e-9:.1f} GB ([more](docs/performance.md#training-a-whole-model))."]
    terms = {r["problem"].split(":", 3)[3] if r["problem"].count(":") > 2 else "": r for r in lines("terms.jsonl")}
    base = terms[""]
    t5, memory = terms["t5"], lines("memory.jsonl")[0]
    worst = max(float(x.split("/")[2]) for x in re.findall(r"[\d.]+ / [\d.]+ / [\d.]+", (results / "errors.md").read_text()))
    isa = {r["isa"]: r for r in lines("isa.jsonl") if r["problem"].endswith(":t5")}
    far = {r["problem"]: r for r in lines("far.jsonl")}
    out += ["",
            f"Far from the peak still: a dense bias array ({100 * terms['dense']['share_of_peak']:.0f} % at N = 4096), "
            + ", ".join(f"{what} ({100 * far[problem]['share_of_peak']:.0f} %)" for problem, what in FAR.items())
            + ". Other instruction sets, T5 table, N = 4096: "
            + ", ".join(f"{name} {r['ms']:.0f} ms ({100 * r['share_of_peak']:.0f} % of its own peak)" for name, r in isa.items()) + ".",
            "",
            f"N = 4096: a T5 table costs {100 * (t5['ms'] / base['ms'] - 1):.1f} % over no bias, causal takes "
            f"{terms[':causal']['ms'] / base['ms']:.2f} of the full time. N = 65,536: {memory['bytes_peak'] * 1e-6:.0f} MB over the "
            f"tensors themselves, where the N×N bias of 8 heads would be {8 * 65536**2 * 4 / 1e9:.0f} GB. Largest error over "
            f"the proved bound, every term and instruction set, logits of ±1000 included: {worst:.3f}.",
            "", "`tools/measure.sh PYTHON_WITH_PEERS` makes these numbers again; the files behind them are in bench/results."]
    put("README.md", "\n".join(out))


def costs():
    """The table of docs/costs.md: each term beside plain attention of the same pass and mask."""
    rows = {r["problem"]: r for r in lines("costs.jsonl")}
    size = "f32:b1h8q2048k2048d64"

    def ms(direction, term, mask=""):
        return rows.get(f"{direction}:{size}:{term}" + (f":{mask}" if mask else ""))

    first = next(iter(rows.values()))
    plain = {d: ms(d, "") for d in ("fwd", "bwd")}
    out = [f"B1 H8 D64 f32, N = 2048, one thread, {first['isa'].upper()}. Plain attention: forward {plain['fwd']['ms']:.1f} ms "
           f"({100 * plain['fwd']['share_of_peak']:.0f} % of the measured peak), backward {plain['bwd']['ms']:.1f} ms "
           f"({100 * plain['bwd']['share_of_peak']:.0f} %). Times of the terms are multiples of these; backward includes the "
           "gradient of every learned array of the term.", "",
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
    out += ["", f"N = 4096 with a T5 table and its gradient: forward {fwd['ms']:.0f} ms, backward {bwd['ms']:.0f} ms "
            f"({100 * bwd['share_of_peak']:.0f} % of the peak), together {(fwd['ms'] + bwd['ms']) / fwd['ms']:.2f} × forward; causal, "
            f"backward takes {back[f'bwd:{n}:t5:causal']['ms'] / bwd['ms']:.2f} of the full time. N = 32,768, 8 heads, forward and "
            f"backward: {memory['bytes_peak'] * 1e-6:.0f} MB over the tensors.", "",
            "`tools/measure.sh` makes these numbers again; bench/results holds the files behind them."]
    put("docs/costs.md", "\n".join(out))


def lab():
    """What docs/lab.md says of lab/results: perplexity by position and length, and times beside PyTorch."""
    folder = root / "lab" / "results"
    groups = {}
    for line in lab_report.read(folder / "length.jsonl"):
        groups.setdefault(line["experiment"]["position"], []).append(line)
    lengths = [x["length"] for x in next(iter(groups.values()))[0]["lengths"]]
    starts = sorted({len(r) for r in groups.values()})
    out = [f"Perplexity of bytes, means over {' or '.join(map(str, starts))} starts, trained at {lengths[0]:,}; in % beyond it, by how much it rises:", "",
           "| position | " + " | ".join(f"{'at ' if n == 0 else ''}{length:,}" for n, length in enumerate(lengths)) + " |", "|---" * (len(lengths) + 1) + "|"]
    for position, runs in groups.items():
        cells = [f"{lab_report.mean(runs, 0):.2f}", *(lab_report.rise(runs, n) for n in range(1, len(lengths)))]
        out.append(f"| `{position}` | " + " | ".join(cells) + " |")
    out += ["", "A training step beside the same model in PyTorch, in turns, one thread, 4 layers, width 256, 4 heads, a T5 table in each layer, trained:", "",
            "| batch × length | position | relpos | PyTorch | |", "|---|---|---|---|---|"]
    times = lab_report.read(folder / "oracle.jsonl")
    for x in times:
        out.append(f"| {x['batch']} × {x['length']:,} | `{x['oracle']}` | {x['relpos_ms'][0]:,.0f} ms | {x['torch_ms'][0]:,.0f} ms | {x['torch_ms'][0] / x['relpos_ms'][0]:.1f} × |")
    m = times[0]["machine"]
    out += ["", f"PyTorch {times[0]['torch'].split('+')[0]}; {m['cpu']}, {m['cores']} cores, {m['isa'].upper()}, {m['blas']}. "
            "[The page of results](../lab/results/report.md) has spreads, curves, the other experiments and the command of each; `lab/all.sh build/release/relpos out/lab` "
            "makes it again, `lab/oracle.py build/release/relpos lab/oracle.lab --time 4` the times."]
    put("docs/lab.md", "\n".join(out))
    first, other = (lab_report.read(folder / f"{name}.jsonl") for name in ("length", "rate"))
    for page in ("README.md", "docs/lab.md"):
        put(page, "> " + lab_report.preliminary(lab_report.preliminary_of(first), first, other), "preliminary")


readme()
costs()
lab()
put("docs/numerics.md", (results / "errors.md").read_text())
