"""Write the numbers of bench/results and lab/results between the marks in README.md, docs/index.md, docs/costs.md, docs/lab-reference.md and
docs/numerics.md. Standard library only.

tools/measure.sh creates the result files and runs this script.  SPDX-License-Identifier: Apache-2.0
"""
import json
import re
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent
results = root / "bench" / "results"
sys.path[0] = str(root / "bench")  # not tools, where this file would hide the standard module numbers
import report  # noqa: E402

sys.path.append(str(root / "lab" / "report"))
import costs as costs_of_lab  # noqa: E402
import results as lab_results  # noqa: E402
import sweeps  # noqa: E402
from page import Page  # noqa: E402

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


def machines():
    """Yield (machine, rows) of each result file of bench/peers.py, newest first."""
    files = sorted(results.glob("peers*.json"), key=lambda path: json.loads(path.read_text())["machine"]["date"], reverse=True)
    for path in files:
        data = json.loads(path.read_text())
        yield data["machine"], data["rows"]


def readme():
    """Write the table of README.md: the time of PyTorch's SDPA divided by the time of relpos, for each measured machine."""
    out = ["Time of PyTorch's `scaled_dot_product_attention` over the time of relpos (f32, 8 heads of 64,",
           "a T5 table, one thread). Above 1, relpos is faster. SDPA adds the bias as an N × N mask.", "",
           "| machine | mask built beforehand: N = 512 | 1,024 | 4,096 | in the call: 4,096 | with gradients |",
           "|---|---|---|---|---|---|"]
    slower = []
    for m, rows in machines():
        t5, both = ({r["n"]: r for r in report.groups(rows).get((report.PASSES[passes], "f32", "T5 table"), [])} for passes in ("fwd", "fwdbwd"))

        def ratio(row, *others):
            found = [report.ratio(row, x) for x in others if row and x in row["times"]]
            return f"{min(found):.2f}" if found else "-"

        gradients = [name for name in both.get(4096, {"times": {}})["times"] if name.startswith(("SDPA", "eager"))]
        cpu = re.sub(r"\(R\)|\(TM\)| Processor", "", m["cpu"])
        out.append(f"| {cpu}, {m['isa'].upper()} | " + " | ".join(ratio(t5.get(n), SDPA) for n in (512, 1024, 4096))
                   + f" | {ratio(t5.get(4096), 'SDPA, bias built in the call')} | {ratio(both.get(4096), *gradients)} |")
        slower.append(f"{len(report.slower(rows))} of {len(rows)}")
    train = {r["implementation"]: r for r in report.training()[0]["results"] if r["length"] == 4096}
    better = min(("eager", "sdpa"), key=lambda name: train[name]["seconds"])
    added = {name: r["peak_bytes"] - r["start_bytes"] for name, r in train.items()}
    memory = lines("memory.jsonl")[0]
    out += ["", f"- Another library is faster in {', '.join(slower[:-1])} and {slower[-1]} problems on these machines,",
            "  mostly short ones. [docs/performance.md](docs/performance.md) starts with them.",
            f"- A training step of a T5 with 8 + 8 layers at 4,096 tokens takes {train['relpos']['seconds']:.1f} s and {added['relpos'] * 1e-9:.1f} GB,",
            f"  with PyTorch's attention {train[better]['seconds']:.1f} s and {added[better] * 1e-9:.1f} GB.",
            f"- Attention over 65,536 tokens needs {memory['bytes_peak'] * 1e-6:.0f} MB of scratch memory. The N × N bias of 8 heads would need",
            f"  {8 * 65536**2 * 4 / 1e9:.0f} GB."]
    put("README.md", "\n".join(out))


def landing():
    """Write the cards of docs/index.md. Each card shows one number."""
    data = report.load()
    t5 = next(r for r in data["rows"] if (r["case"], r["n"], r["pass"], r["dtype"]) == ("T5 table", 4096, "fwd", "f32"))
    train = {r["implementation"]: r for r in report.training()[0]["results"] if r["length"] == 4096}
    models = [x["result"] for x in json.loads((results / "hf_models.json").read_text())["models"]]
    cards = [
        (f"{report.ratio(t5, SDPA):.1f} ×", "performance.md", "faster than PyTorch's SDPA with the biases of T5 (4,096 tokens, forward), and "
         f"{report.ratio(t5, 'SDPA, bias built in the call'):.0f} times as fast when SDPA has to build the mask"),
        (f"{lines('memory.jsonl')[0]['bytes_peak'] * 1e-6:.0f} MB", "costs.md", "of scratch memory for attention over 65,536 tokens with a T5 table. "
         f"The biases of its 8 heads as an array would take {8 * 65536**2 * 4 / 1e9:.0f} GB"),
        (f"{train['relpos']['seconds']:.0f} s", "performance.md", "for a training step of a T5 with 8 + 8 layers at 4,096 tokens. With PyTorch's attention it takes "
         f"{min(train['eager']['seconds'], train['sdpa']['seconds']):.0f} s"),
        (f"{models.count('equal')} of {len(models) - models.count('not tried')}", "hf.md", "model types of transformers give the same results and gradients as their own attention. "
         "The others are refused with a reason, or have no attention"),
    ]
    out = ["::::{grid} 1 2 4 4", ":gutter: 2", ""]
    for number, page, text in cards:
        out += [f":::{{grid-item-card}} {number}", f":link: {page.removesuffix('.md')}", ":link-type: doc", ":class-card: number", text + ".", ":::", ""]
    out += ["::::", "", f"Times use one thread; each card links to the page that names the machine. Another library is faster in {len(report.slower(data['rows']))} of "
            f"{len(data['rows'])} problems: [performance](performance.md) starts with them."]
    put("docs/index.md", "\n".join(out))


def costs():
    """Write the table of docs/costs.md: the time of each term divided by the time of plain attention with the same pass and mask."""
    rows = {r["problem"]: r for r in lines("costs.jsonl")}
    size = "f32:b1h8q2048k2048d64"

    def ms(direction, term, mask=""):
        return rows.get(f"{direction}:{size}:{term}" + (f":{mask}" if mask else ""))

    first = next(iter(rows.values()))
    plain = {d: ms(d, "") for d in ("fwd", "bwd")}
    out = [f"B1 H8 D64 f32, N = 2048, one thread, {first['isa'].upper()}. Plain attention: forward {plain['fwd']['ms']:.1f} ms "
           f"({100 * plain['fwd']['share_of_peak']:.0f} % of the measured peak), backward {plain['bwd']['ms']:.1f} ms "
           f"({100 * plain['bwd']['share_of_peak']:.0f} %). Times in the table are multiples of these. Backward includes the "
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
    worst = max(float(x.split("/")[2]) for x in re.findall(r"[\d.]+ / [\d.]+ / [\d.]+", (results / "errors.md").read_text()))
    out += ["", f"Furthest from the peak: a dense bias array ({100 * terms['dense']['share_of_peak']:.0f} % at N = 4096), "
            + ", ".join(f"{what} ({100 * far[problem]['share_of_peak']:.0f} %)" for problem, what in FAR.items())
            + ". Each instruction set with a T5 table, N = 4096: "
            + ", ".join(f"{name} {r['ms']:.0f} ms ({100 * r['share_of_peak']:.0f} % of its peak)" for name, r in isa.items())
            + f". The largest error over the proved bound, for all terms and instruction sets and logits up to ±1000, is {worst:.3f}."]
    out += ["", f"With a T5 table and its gradient at N = 4096: forward {fwd['ms']:.0f} ms, backward {bwd['ms']:.0f} ms "
            f"({100 * bwd['share_of_peak']:.0f} % of the peak), together {(fwd['ms'] + bwd['ms']) / fwd['ms']:.2f} × forward. With a causal mask, "
            f"backward takes {back[f'bwd:{n}:t5:causal']['ms'] / bwd['ms']:.2f} of this time. Forward and backward of 8 heads at N = 32,768 need "
            f"{memory['bytes_peak'] * 1e-6:.0f} MB in addition to the tensors.", "",
            "`tools/measure.sh` measures these numbers again. The result files are in bench/results."]
    put("docs/costs.md", "\n".join(out))


def lab():
    """Write the results in docs/lab-reference.md: perplexity by position and length, and times compared with PyTorch."""
    folder = root / "lab" / "results"
    groups = {}
    for line in lab_results.read(folder / "length.jsonl"):
        groups.setdefault(line["experiment"]["position"], []).append(line)
    lengths = [x["length"] for x in next(iter(groups.values()))[0]["lengths"]]
    starts = sorted({len(r) for r in groups.values()})
    out = [f"Perplexity per byte, as means over {' or '.join(map(str, starts))} starts, trained at {lengths[0]:,}. The columns in % show the rise beyond that length:", "",
           "| position | " + " | ".join(f"{'at ' if n == 0 else ''}{length:,}" for n, length in enumerate(lengths)) + " |", "|---" * (len(lengths) + 1) + "|"]
    for position, runs in groups.items():
        cells = [f"{lab_results.mean(runs, 0):.2f}", *(sweeps.rise(runs, n) for n in range(1, len(lengths)))]
        out.append(f"| `{position}` | " + " | ".join(cells) + " |")
    out += ["", "Time of a training step compared with the same model in PyTorch, run alternately on one thread: 4 layers, width 256, 4 heads:", "",
            "| batch × length | position | relpos | PyTorch | |", "|---|---|---|---|---|"]
    times = lab_results.read(folder / "oracle.jsonl")
    for x in times:
        out.append(f"| {x['batch']} × {x['length']:,} | `{x['oracle']}` | {x['relpos_ms'][0]:,.0f} ms | {x['torch_ms'][0]:,.0f} ms | {x['torch_ms'][0] / x['relpos_ms'][0]:.1f} × |")
    m = times[0]["machine"]
    out += ["", f"PyTorch {times[0]['torch'].split('+')[0]}; {m['cpu']}, {m['cores']} cores, {m['isa'].upper()}, {m['blas']}. "
            "[The page of results](../lab/results/report.md) has spreads, curves, the other experiments and their commands. `lab/all.sh build/release/relpos out/lab` "
            "creates it again, and `lab/oracle.py build/release/relpos lab/oracle.lab --time 4` measures the times."]
    put("docs/lab-reference.md", "\n".join(out))
    forward = Page(None)
    costs_of_lab.forward(forward, lab_results.read(folder / "forward.jsonl"))
    put("docs/lab-reference.md", forward.finish(), "forward")
    first, other = (lab_results.read(folder / f"{name}.jsonl") for name in ("length", "rate"))
    put("docs/lab-reference.md", "> " + sweeps.preliminary(sweeps.preliminary_of(first), first, other), "preliminary")


readme()
landing()
costs()
lab()
put("docs/numerics.md", (results / "errors.md").read_text())
