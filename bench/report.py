"""Write docs/performance-tables.md from bench/results/peers.json, beginning with the problems in which relpos
is slower. Standard library only.

    python3 bench/report.py              write the page
    python3 bench/report.py --check      exit with 1 if the page is stale or a plot is missing

bench/plots.py draws the plots. Results of bench/peers.py on another machine, saved as bench/results/peers.NAME.json,
get a separate section.
SPDX-License-Identifier: Apache-2.0
"""
import json
import math
import re
import statistics
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))  # at the end: tools/numbers.py is no module
from made import check, fail, root, write  # noqa: E402

PLOTS = {"forward": "Forward: time of each peer over that of relpos, by length",
         "backward": "Forward and backward: time of each peer over that of relpos, by length",
         "rate": "Operations per second and the measured peak, by length",
         "memory": "Memory in addition to the tensors, by length",
         "decode": "One query: bytes of keys and values per second, by the number of keys",
         "training": "Fine-tuning a small T5: time per step, memory, losses",
         "growth": "Time of a causal call by length, with and without skipped tiles",
         "t5": "Encoder of T5-small: tokens per second and memory in addition to the weights, by length"}
GROWTH = {"none": "no bias", "t5": "T5 table", "alibi": "ALiBi", "forget": "forget gates"}
# term: (operations per pair forward, operations per pair backward, other work per pair), in addition to the 4 D
# (forward) and 10 D (backward) operations of plain attention, for N 4096 and D 64 (docs/terms.md). The backward pass
# computes each product again, and one more product for the gradient of each factor.
EXTRA = {"dense": (1, 2, "4 bytes are read; backward 4 are read, and 4 of the gradient read and written"),
         "axialkey,grid=64x64": (8, 24, "two lookups, in the products with rows and with columns of the grid"),
         "fire,c=1,L=512,width=32": (2, 4, "the segments of the network, found by bisection for each row and tile"),
         "xl": (166, 498, ""), "real,max_distance=64": (1, 2, "one lookup in a list; backward one addition to it"),
         "deberta,span=256": (32, 96, "pairs with one vector share products; those with keys move to the diagonals")}
PASSES = {"fwd": "forward", "fwdbwd": "forward and backward"}


def load():
    return json.loads((root / "bench/results/peers.json").read_text())


def groups(rows):
    """Group the rows: return {(pass, type, case): rows sorted by length}."""
    found = {}
    for row in rows:
        found.setdefault((PASSES[row["pass"]], row["dtype"], row["case"]), []).append(row)
    return {key: sorted(rows, key=lambda r: r["n"]) for key, rows in found.items()}


def ratio(row, peer):
    return row["times"][peer]["ms"] / row["times"]["relpos"]["ms"] if peer in row["times"] else None


def is_peer(name):
    return not name.startswith("relpos")


def peers_of(rows):
    return list(dict.fromkeys(name for row in rows for name in row["times"] if name != "relpos"))


# with AMX, f32 uses AVX-512: another_section says so
ISAS = {"amx": "AVX-512 and AMX", "avx512": "AVX-512", "avx512_bf16": "AVX-512", "avx2": "AVX2"}


def card(name):
    """Return the description of the machine of a result file that has no description, from bench/results/cards.json."""
    return json.loads((root / "bench/results/cards.json").read_text())[name]


def before(m):
    """Return the end of a sentence that says what changed since numbers were measured, if anything did."""
    return f", before {m['changed_since']}" if "changed_since" in m else ""


def origin(m):
    """Return where and when numbers were measured, and what changed since then."""
    source = f" (the file has no description; this one is from {m['from']})" if "from" in m else ""
    return f"{label(m)}, {m['cores']} cores, {m['date']}, commit {m['commit']}{source}{before(m)}"


def others():
    """Return the results of the other machines, newest first."""
    return sorted((json.loads(path.read_text()) for path in (root / "bench/results").glob("peers.*.json")),
                  key=lambda d: d["machine"]["date"], reverse=True)


def label(machine):
    """Return a machine's processor and instruction sets, such as "AMD EPYC, AVX2"."""
    return re.sub(r"\(R\)|\(TM\)| Processor", "", machine["cpu"]) + ", " + ISAS.get(machine["isa"], machine["isa"])


def slower(rows):
    """Return (row, fastest peer, number of other faster peers) for every problem in which a peer is faster than relpos,
    the worst first."""
    found = []
    for row in rows:
        faster = sorted((ratio(row, name), name) for name in row["times"] if is_peer(name) and ratio(row, name) < 1)
        if faster:
            found.append((*faster[0], row, len(faster) - 1))
    return [(row, name, others) for _, name, row, others in sorted(found, key=lambda f: f[0])]


def peak_fraction(data, row, name="relpos"):
    """Return the rate as a fraction of the peak of multiply-adds, for the same instruction set and number of
    threads."""
    peak = data["machine"]["peak_gflops"].get(row["isa"].get(name), {}).get(str(data["machine"]["threads"]))
    return row["flops"] / row["times"][name]["ms"] * 1e-6 / peak if peak else 0


def ms(x):
    return f"{x:.3g}" if x < 100 else f"{x:,.0f}"


def table(head, lines):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(line) + " |" for line in lines), ""]


def slower_section():
    """Return the section on problems in which a peer is faster, on any machine whose results are those of the current
    code."""
    current = [d for d in (load(), *others()) if "changed_since" not in d["machine"]]
    worse = sorted(((d, *w) for d in current for w in slower(d["rows"])), key=lambda w: ratio(w[1], w[2]))
    counts = " and ".join(f"{len(slower(d['rows']))} of {len(d['rows'])} problems on {label(d['machine'])}"
                          for d in current)
    out = ["## What is slower", "", f"A peer is faster than relpos in {counts}." + (
        " The table lists them by ratio, the worst first, with the fastest peer. Times of peers exclude the time of "
        "building a bias if it is built before the call:" if worse else ""), ""]

    def line(data, row, name, others):
        ours, its = row["times"]["relpos"], row["times"][name]
        return (label(data["machine"]), f"{PASSES[row['pass']]} {row['dtype']}, {row['case']}", f"{row['n']:,}",
                ms(ours["ms"]), name, ms(its["ms"]),
                f"{ours['ms'] / its['ms']:.2f} ×" + (", within the spread" if ours["ms_low"] <= its["ms_high"] else ""),
                str(others or ""))
    notes = [f"{label(d['machine'])}: {d['machine']['not_measured']}" for d in current
             if "not_measured" in d["machine"]]
    for note in notes:
        out += [note, ""]
    return out + (table(("machine", "problem", "keys", "relpos, ms", "faster", "ms", "relpos takes", "others faster"),
                        [line(*w) for w in worse]) if worse else []) + elsewhere()


# names in python_call.json: relpos, SDPA; the bias
CALLS = (("relpos", "SDPA", "no bias"), ("relpos, T5", "SDPA, mask", "T5 table"))
# file: types
LINEAR = {"linear_avx2.json": ("f32", "int8"), "linear.json": ("f32",), "linear_int8.json": ("int8",),
          "linear_bf16.json": ("bf16",)}


def comparisons():
    """Return (comparison, others, ratios) for what bench/peers.py does not compare: calls from Python, whole models,
    encoders and linear layers. A ratio is the time of the fastest other program over that of relpos."""
    calls = json.loads((root / "bench/results/python_call.json").read_text())
    short = [r[passes][its] / r[passes][ours] for r in calls["calls"] for passes in ("forward", "both")
             for ours, its, _ in CALLS]
    isa = [ISAS[data["machine"]["isa"]] for data in (calls, models()[0], encoders())]
    rows = [{side: statistics.median(s) for side, s in r["seconds"].items()} for r in encoders()["times"]]
    encoder = [r[name] / r["relpos " + kind] for r in rows for kind, names in SAME_SIZE.items() if "relpos " + kind in r
               for name in names if name in r]
    found = [(f"[short calls from Python](#short-calls-from-python), {isa[0]}", "SDPA", short),
             (f"[whole models of transformers](#whole-models-of-transformers), {isa[1]}", "sdpa and eager",
              [r["ratio"] for r in models()[1]]),
             (f"[encoders of T5-XXL and ProtT5](#encoders-of-t5-xxl-and-prott5), {isa[2]}",
              "CTranslate2, llama.cpp and transformers of the same size; also int4 with int8 of CTranslate2, and int8 "
              "with f32 of transformers", encoder)]
    found += [("[encoders for search and classification](#encoders-for-search-and-classification), AVX-512",
               "ONNX Runtime, OpenVINO, transformers and CTranslate2, f32 with f32 and 8 bits with int8",
               [x[2] for r in search_rows(search()) for kind, x in search_ratios(r).items() if kind != "bf16"])]
    for name, kinds in LINEAR.items():
        data = json.loads((root / "bench/results" / name).read_text())
        own = "AVX-512" if "avx512f" in data["machine"]["flags"] else "AVX2"
        found += [(f"linear layers, {kind}, {size} rows, {own}", "oneDNN and OpenBLAS", [
            min(x[1] for side, x in r.items() if side.endswith("/relpos")) for r in data["results"] if r["type"] == kind
            and (r["rows"] < 16) == (size == "1 to 8")])
            for kind in kinds for size in ("1 to 8", "16 to 512")]
    return found


def elsewhere():
    """Return the table of what is slower outside the table of bench/peers.py, with machines with older results."""
    found = comparisons() + [(
        f"calls from C, {label(d['machine'])}, not measured since kernels changed", "the peers above", [
            min((ratio(r, name) for name in r["times"] if is_peer(name)), default=1) for r in d["rows"]])
        for d in others() if "changed_since" in d["machine"]]
    return ["Other comparisons are counted here. The last column has the lowest time of another program divided by the "
            "time of relpos:", "", *table(
("comparison", "with", "another is faster in", "lowest ratio"),
[(what, who, f"{sum(r < 1 for r in ratios)} of {len(ratios)}", f"{min(ratios):.2f}") for what, who, ratios in found])]


def tables(data):
    out = ["## Times", "",
           "The column relpos has the median time in milliseconds (first to third quartile). The next "
           "column has the fraction of the multiply-add "
           "peak. The other columns have the time of each peer divided by the time of relpos. Below 1, the peer is "
           "faster.", ""]
    for (passes, dtype, case), rows in groups(data["rows"]).items():
        peers = peers_of(rows)

        def line(row):
            t = row["times"]["relpos"]
            return (f"{row['n']:,}", f"{ms(t['ms'])} ({ms(t['ms_low'])} to {ms(t['ms_high'])})",
                    f"{100 * peak_fraction(data, row):.0f} %",
                    *(f"{ratio(row, p):.2f}" if p in row["times"] else "" for p in peers))
        out += [f"### {passes[0].upper()}{passes[1:]}, {dtype}: {case}",
                ""] + table(("keys", "relpos", "of peak", *peers), map(line, rows))
    return out


def memory_section(data):
    out = ["## Memory", "", "The tables show the peak memory of one call in MB, in addition to its input tensors: the "
                            "result, scratch memory, and any N×N array that "
                            "the call builds. Each call runs in a separate process.", ""]
    for passes in PASSES:
        rows = [r for r in data["memory"] if r["pass"] == passes]
        peers = list(dict.fromkeys(name for r in rows for name in r["bytes"]))
        if rows:
            out += [f"{PASSES[passes].capitalize()}, f32, {rows[0]['case']}:", ""] + table(("keys", *peers), [
                (f"{r['n']:,}", *(f"{r['bytes'][p] * 1e-6:,.0f}" if p in r["bytes"] else "" for p in peers))
                for r in rows])
    return out


def decode_ranges(rows, reads):
    """Return a table of the range of the read bandwidth that one query reaches, by type and number of keys."""
    def cell(dtype, cold, test):
        found = [100 * r["bytes"] / r["times"]["relpos"]["ms"] * 1e3 / reads for r in rows
                 if r["dtype"] == dtype and r["case"].startswith("decode") and ("cold" in r["case"]) == cold
                 and test(r["n"])]
        return f"{min(found):.0f} to {max(found):.0f} %" if found else ""
    tests = (lambda n: n <= 512), (lambda n: 512 < n <= 4096), (lambda n: n > 4096)
    return ["Cold calls with short caches reach less of the bandwidth than those with long caches, in every type. bf16 "
            "reaches less than f32 with up to 4,096 keys, and f16 with any "
            "number of keys. Only f32 was profiled, so the reason is not known for bf16 and f16:", "",
            *table(("type", "calls", "up to 512 keys", "1,024 to 4,096", "more"), [
                (dtype, "cold" if cold else "warm", *(cell(dtype, cold, test) for test in tests))
                for dtype in ("f32", "bf16", "f16") for cold in (True, False)])]


def decode_section(data):
    m, out = data["machine"], []
    for (passes, dtype, case), rows in groups(data["rows"]).items():
        if not case.startswith("decode"):
            continue
        reads, peers = m["bytes_per_s"][str(m["threads"])], ["relpos", *peers_of(rows)]
        out += [f"{case[0].upper()}{case[1:]}, {dtype}, in GB/s:", ""]
        out += table(("keys", "of memory rate", *peers),
                     [(f"{r['n']:,}", f"{100 * r['bytes'] / r['times']['relpos']['ms'] * 1e3 / reads:.0f} %", *(
f"{r['bytes'] / r['times'][p]['ms'] * 1e-6:.1f}" if p in r["times"] else "" for p in peers)) for r in rows])
    return ["## Decoding: one query", "",
            "relpos uses data prepared by `rp_prepare`, as a decoder with a cache would. "
            "In each table, *of memory rate* is the rate of relpos as a fraction of the "
            f"read bandwidth of this machine, {reads * 1e-9:.1f} GB/s. It exceeds 100 % where keys and values stay in "
            "the caches between calls. Cold calls read them from memory.", "",
            *decode_ranges(data["rows"], reads), *out] if out else []


def threads_section():
    """Return a table for each machine that bench/threads.py has measured."""
    found = [json.loads(path.read_text()) for path in sorted((root / "bench/results").glob("threads*.json"))]
    if not found:
        return []
    cell = lambda r, t: f"{ms(r['ms'][t])} ({ms(r['quartiles'][t][0])} to {ms(r['quartiles'][t][1])})"  # noqa: E731
    out = ["## Threads", "",
           "The tables show times of calls that alternate between one thread and several: f32, no "
           "bias, B1 H8 D64 unless noted, in milliseconds, median (first to "
           "third quartile). Every call in these tables uses a pool. By default, a call with fewer than 4 million "
           "multiply-adds runs on its caller's thread (RELPOS_SHORT). "
           "Measured by [bench/threads.py](../bench/threads.py).", ""]
    for data in found:
        n = str(data["threads"])
        out += [f"{n} threads, on {label(data['machine'])}, at commit {data['machine']['commit']}:", ""] + table(
            ("problem", "million multiply-adds", "1 thread", f"{n} threads", "times as fast"),
            [(r["problem"], f"{r['multiply_adds'] * 1e-6:,.1f}", cell(r, "1"), cell(r, n),
              f"{r['ms']['1'] / r['ms'][n]:.2f}") for r in data["rows"]])
    return out


def overhead_of_calls(parts):
    """Return two sentences on the microseconds of a call from Python in addition to its kernels, for each number of
    tokens of `parts`."""
    def over(name, *kernels):
        found = [parts[n][name] - sum(parts[n][k] for k in kernels) for n in parts]
        return found, " / ".join(f"{x:.0f}" for x in found)
    ahead, back = "kernel, with work memory", "backward kernel, with work memory"
    torch, numpy = (over(f"relpos.attention, {x}", ahead)[1] for x in ("torch", "NumPy"))
    compute, compute_text = over("_core.compute, torch: arguments, plan, memory, kernel", ahead)
    gradients, gradients_text = over("_core.gradients, torch", back)
    empty, empty_text = over("torch.autograd.Function that computes nothing, with backward")
    both, both_text = over("relpos.attention, torch, with backward", ahead, back)
    rest = " / ".join(f"{a - b - c - d:.0f}" for a, b, c, d in zip(both, compute, gradients, empty))
    counts = " / ".join(parts)
    return (f"With {counts} tokens, a forward call takes {torch} µs longer than its kernel from torch, and {numpy} µs "
            f"longer from NumPy. Of the time from torch, {compute_text} µs are "
            "arguments, plan and memory in C (`_core.compute`), and the rest is Python.",
            f"A forward and backward call from torch takes {both_text} µs longer than its two "
            f"kernels: {empty_text} µs are a torch.autograd.Function that computes nothing, {compute_text} µs are the "
            f"forward call in C, {gradients_text} µs are the backward call in C, and "
            f"the table does not attribute the remaining {rest} µs.")


def slower_calls(calls):
    """Return a sentence that names the short calls from Python in which SDPA is faster."""
    found = []
    for passes, name in (("forward", "forward"), ("both", "forward and backward")):
        for ours, its, what in CALLS:
            for batch in sorted({r["batch"] for r in calls}):
                tokens = [str(r["n"]) for r in calls if r["batch"] == batch and r[passes][its] < r[passes][ours]]
                if tokens:
                    found.append(f"{name}, {what}, batch {batch} ({' '.join(tokens)})")
    return (f"SDPA is faster in these calls (tokens in parentheses): {'; '.join(found)}." if found
            else "SDPA is faster in none of these calls.")


def call_section():
    """Return the section on short calls from Python, from the results of bench/python_call.py."""
    path = root / "bench/results/python_call.json"
    if not path.exists():
        return []
    data = json.loads(path.read_text())
    m, parts = data["machine"], data["parts"]
    cell = lambda row, passes, ours, its: f"{row[passes][its] / row[passes][ours]:.2f}"  # noqa: E731
    overhead = {n: parts[n]["torch.autograd.Function that computes nothing, with backward"]
                / parts[n]["SDPA, with backward"] for n in parts}
    first, *others = (f"with {n} token{'s' * (n != '1')}" for n in parts)
    shares = [f"{100 * x:.0f} %" for x in overhead.values()]
    out = ["## Short calls from Python", "",
           f"Each time is the fastest of many rounds on one thread of {m['cpu']}, "
           f"{m['isa'].upper()}, with PyTorch {m['torch'].split('+')[0]}, at commit "
           f"{m['commit']}{before(m)}. The first table has the times, in microseconds, of a call with B1 H8 D64 and of "
           "its parts. A call with gradients consists of a forward kernel, a "
           "backward kernel and the overhead of torch's autograd. relpos uses a torch.autograd.Function written in "
           f"Python. {first.capitalize()}, its overhead alone takes {shares[0]} of "
           "the time of a whole call of SDPA, whose autograd is in C++ "
           f"({', '.join(f'{s} {n}' for s, n in zip(shares[1:], others))}). torch's stable ABI cannot register "
           "autograd functions, so a version in C++ would need a separate build for each version of torch.", ""]
    out += table(("", *(f"{n} token{'s' * (n != '1')}" for n in parts)),
                 [(name, *(f"{parts[n][name]:.1f}" for n in parts)) for name in next(iter(parts.values()))])
    for sentences in (*overhead_of_calls(parts), slower_calls(data["calls"])):
        out += [sentences, ""]
    out += ["The second table has the time of SDPA divided by the time of relpos (H8 D64, f32). Below 1, SDPA is "
            "faster. With a T5 table, SDPA gets a mask that was made before the call:", ""]
    out += table(("batch", "tokens", "forward, µs", "forward", "forward, T5 table", "forward and backward, µs",
                  "forward and backward", "forward and backward, T5 table"),
                 [(str(r["batch"]), str(r["n"]), f"{r['forward']['relpos']:,.0f}", cell(r, "forward", "relpos", "SDPA"),
                   cell(r, "forward", "relpos, T5", "SDPA, mask"),
                   f"{r['both']['relpos']:,.0f}", cell(r, "both", "relpos", "SDPA"),
                   cell(r, "both", "relpos, T5", "SDPA, mask")) for r in data["calls"]])
    return out + ["Measured by `taskset -c 1 python3 bench/python_call.py build/release/relpos -o "
                  "bench/results/python_call.json`.", ""]


def growth():
    """Return the results of bench/growth.py, and {(pass, term): [(length, milliseconds for 8 heads, milliseconds with
    every tile or None)]}."""
    data = json.loads((root / "bench/results/growth.json").read_text())
    lines = {}
    for r in sorted(data["rows"], key=lambda r: r["n"]):
        times = [statistics.median(r[x]) * 8 / r["heads"] if r[x] else None for x in ("ms", "ms_every_tile")]
        lines.setdefault((r["pass"], r["term"]), []).append((r["n"], *times))
    return data, lines


def power(points, first, last):
    """Return p such that time grows as length^p from length `first` to `last`; points are (length, time)."""
    known = dict(points)
    return math.log(known[last] / known[first]) / math.log(last / first)


def growth_section():
    data, lines = growth()
    m, rows = data["machine"], data["rows"]
    times = (lambda r: f"{statistics.median(r['ms_every_tile']) / statistics.median(r['ms']):.2f} ×"
             if r["ms_every_tile"] else "")  # noqa: E731
    middle = lambda t: ms(statistics.median(t)) if t else ""  # noqa: E731
    out = ["## Growth with the length", "", f"![{PLOTS['growth']}](performance/growth.svg)", "",
           "These are medians of processor time of causal calls: f32, 8 heads of 64 channels, one thread of "
           f"{m['cpu']}, {m['isa'].upper()}. ALiBi's slopes are 1/2 to "
           "1/256, and forget gates are -0.2 on average. relpos skips tiles whose weights are all 0, which does not "
           "change a bit. Normal calls alternate with "
           "calls with RELPOS_SKIP=0, which compute every tile.", "",
           "Calls without a bias or with a T5 table use one head beyond 16,384 keys, and their time is multiplied by "
           "eight. The machine had other users: the load was "
           f"{min(r['load'] for r in rows):.0f} to {max(r['load'] for r in rows):.0f} on {m['cores']} cores.", "",
           "Time is proportional to a power of the length. The columns show the exponent:", ""]

    def slopes(passes, term):
        points = [(n, t) for n, t, _ in lines[passes, term]]
        last = points[-1][0]
        return GROWTH[term], passes, *(f"{power(points, a, b):.2f}"
                                       for a, b in ((1024, 4096),
                                                    (4096, 16384))), f"{power(points, 16384, last):.2f}", f"{last:,}"
    out += table(("", "pass", "1,024 to 4,096", "4,096 to 16,384", "16,384 to longest", "longest"),
                 [slopes(p, t) for p in ("forward", "backward") for t in GROWTH if lines[p, t][-1][0] > 16384])
    out += ["The next table has calls in which tiles are skipped (decode: one query after the last key, with key "
            "norms):", ""]
    out += table(("", "pass", "keys", "pairs computed", "ms", "ms, every tile", "times as fast"), [
        (GROWTH[r["term"]], r["pass"], f"{r['n']:,}", f"{100 * r['pairs_computed']:.1f} %", middle(r["ms"]),
         middle(r["ms_every_tile"]), times(r))
        for t in ("alibi", "forget") for p in ("forward", "backward", "decode")
        for r in sorted(rows, key=lambda r: r["n"])
        if (r["term"], r["pass"]) == (t, p) and r["n"] >= 4096])

    def cost(r):
        found = [a / b for a, b in zip(r["ms"], r["ms_every_tile"])]
        low, middle, high = statistics.quantiles(found, n=4)
        return GROWTH[r["term"]], f"{len(found)}", f"{middle:.4f} ({low:.3f} to {high:.3f})"
    out += ["If no tile can be skipped, looking for such tiles takes no measurable time. The ratio is the time of a "
            "normal call divided by the time with every tile, for 4,096 keys, forward, as median (quartiles) of pairs "
            "of calls:", ""]
    out += table(("", "pairs", "ratio"), [cost(r) for r in rows if r["term"] in ("none", "t5")
                                          and r["pass"] == "forward" and r["n"] == 4096])
    if "model" in data:
        found, c = data["model"], data["model"]["config"]
        one = lambda r, p: (  # noqa: E731
            f"{statistics.median(r[p]['ms']):.1f}",
            f"{statistics.median(r[p]['ms_every_tile']) / statistics.median(r[p]['ms']):.2f} ×")
        out += [f"The following table measures the forget gates of a trained decoder with {c['layers']} layers of "
                f"{c['heads']} heads. relpos lab trained it for {found['step']} steps on lab/data/vim.txt, "
                f"{int(c['length']):,} bytes at a "
                f"time (perplexity {found['perplexity']:.2f} on the measured text). The calls use its queries, keys "
                f"and gates for {found['layers'][0]['n']:,} bytes of text:", ""]
        out += table(("layer", "mean gate of each head", "pairs computed", "forward, ms", "times as fast",
                      "backward, ms", "times as fast"), [
(str(r["layer"]), ", ".join(f"{g:.2f}" for g in r["mean_gate"]), f"{100 * r['pairs_computed']:.1f} %",
 *one(r, "forward"), *one(r, "backward"))
for r in found["layers"]])
    return out + [f"Measured by `python {m['command']}`, in several runs with --resume, at commit {m['commit']}, "
                  f"{m['date']}.", ""]


def terms_section():
    """Return the section that compares terms that are not strips with plain attention."""
    rows = {r["problem"]: r for r in map(json.loads,
                                         (root / "bench/results/terms_processor.jsonl").read_text().splitlines())}
    size = "f32:b1h8q4096k4096d64"
    first = rows[f"fwd:{size}:"]

    def line(term):
        (ahead, back), (ahead_0, back_0) = ([rows[f"{p}:{size}:{t}"]["ms"] for p in ("fwd", "bwd")] for t in (term, ""))
        more, more_back, what = EXTRA[term]
        return (f"`{term}`", f"{ahead / ahead_0:.2f} ×", f"{back / back_0:.2f} ×",
                f"{(ahead + back) / (ahead_0 + back_0):.2f} ×", f"{more}, {more_back}",
                f"{1 + more / 256:.2f} ×, {1 + more_back / 640:.2f} ×", what)
    return ["## Terms that take longest", "",
            f"These are medians of processor time of {first['runs']} alternating "
            f"calls: B1 H8 D64 f32, N = 4096, one thread, {first['isa'].upper()}. "
            "The machine had other "
            f"users (load 13 to 20 on 2 cores with shared caches and memory). Plain attention takes {first['ms']:.0f} "
            f"ms forward and {rows[f'bwd:{size}:']['ms']:.0f} ms backward, for 256 and 640 operations per pair. "
            "Times in the table are multiples of these and include the gradients of the term's arrays. [What each term "
            "costs](costs.md) has all terms.", ""] + table(
("term", "forward", "backward", "both", "minimum operations added", "time for these operations", "other work per pair"),
map(line, EXTRA)) + [
f"Measured by `relpos bench --processor --json` of `fwd:{size}:TERM` and `bwd:{size}:TERM` "
f"(bench/results/terms_processor.jsonl) on {origin(card('terms_processor.jsonl'))}.", ""]


def training():
    """Return the results of bench/finetune.py, and {implementation: results by length}."""
    data = json.loads((root / "bench/results/finetune.json").read_text())
    by = {}
    for r in data["results"]:
        by.setdefault(r["implementation"], []).append(r)
    return data, by


def training_sides(data):
    """Return (tokens, seconds, GB) at each length, with relpos and with PyTorch's attention that is faster at the
    longest. GB are the peak of the process minus its memory before the first step."""
    longest = max(r["length"] for r in data["results"])
    better = min((r for r in data["results"] if r["length"] == longest and r["implementation"] != "relpos"),
                 key=lambda r: r["seconds"])["implementation"]
    return [[(r["length"], r["seconds"], (r["peak_bytes"] - r["start_bytes"]) * 1e-9) for r in data["results"]
             if r["implementation"] == name] for name in ("relpos", better)]


def training_section():
    data, by = training()
    m, p = data["machine"], data["problem"]
    threads = f"{p['threads']} thread{'s' * (p['threads'] > 1)}"
    out = ["## Training a whole model", "", f"![{PLOTS['training']}](performance/training.svg)", "",
           f"The table shows the seconds that a training step with AdamW takes: the median of {p['steps']} steps "
           "(fastest to slowest). Each cell also has the peak memory of the process "
           f"minus its memory before the first step. The model is a T5 with {p['model']['num_layers']} encoder and "
           f"{p['model']['num_decoder_layers']} decoder layers, "
           f"{p['model']['num_heads']} heads and random weights (the sizes of T5 v1.1 small). A step has {p['target']} "
           f"target tokens. Measured on {threads} of an {m['cpu']}, with relpos {m['relpos']['version']}, PyTorch "
           f"{m['torch'].split('+')[0]} and transformers {m['transformers']}.", "",
           "With each implementation, PyTorch computes the linear layers, which limits the gain from faster "
           "attention. The last column has the time of the linear layers in a step with relpos. The losses agree.", ""]

    def line(n):
        rows = {name: next((r for r in rows if r["length"] == n and "seconds" in r), None) for name, rows in by.items()}
        ours, peers = rows["relpos"], [r["seconds"] for name, r in rows.items() if name != "relpos" and r]
        cell = (lambda r: f"{r['seconds']:.2f} ({r['seconds_min']:.2f} to {r['seconds_max']:.2f}), "
                          f"{(r['peak_bytes'] - r['start_bytes']) * 1e-6:,.0f} MB" if r else "fails")  # noqa: E731
        return (f"{n:,}", *(cell(r) for r in rows.values()), f"{min(peers) / ours['seconds']:.2f} ×" if peers else "",
                f"{ours['linear_seconds']:.2f} s")
    return out + table(("tokens", *by, "faster than the better peer", "linear layers"),
                       [line(r["length"]) for r in by["relpos"]]) + [
"Measured by `python bench/finetune.py -o bench/results/finetune.json`.", ""]


def t5():
    """Return the results of bench/t5.py."""
    return json.loads((root / "bench/results/t5.json").read_text())


def t5_ratio(row, kind):
    """Return the time of the faster peer divided by the time of relpos with this type. f32 and bf16 are compared with
    f32 of the peer, int8 and int4 with int8."""
    middle = {name: statistics.median(s) for name, s in row["seconds"].items()}
    others = [t for name, t in middle.items() if not name.startswith("relpos")
              and ("int8" in name) == kind.startswith("int")]
    return min(others) / middle["relpos " + kind]


def t5_section():
    data = t5()
    m, types = data["machine"], ("f32", "bf16", "int8", "int4")
    rows = data["times"] + data["memory"]
    rounds = {len(seconds) for r in data["times"] for seconds in r["seconds"].values()}

    def problem(r):
        return r["shape"], r["problem"] if r["new"] else f"{r['problem']} tokens"

    def value(r, name):
        s = statistics.median(r["seconds"][name])
        return f"{r['new'] * r['batch'] / s:,.0f}" if r["new"] else f"{ms(s * 1e3)} ms"

    amx = any(f.startswith("amx") for f in m["flags"])
    instruction_set = "AMX" if amx else "VNNI" if "avx512_vnni" in m["flags"] else "AVX2"
    out = ["## T5 models", "",
           "Models of the shapes of T5-small and FLAN-T5-base with random weights, compared with "
           f"CTranslate2 {m['versions']['ctranslate2']} and transformers "
           f"{m['versions']['transformers']} with SDPA of PyTorch {m['versions']['torch'].split('+')[0]}; one thread "
           f"of {m['cpu']} with "
           f"{instruction_set}, "
           f"commit {', '.join(sorted({r['commit'] for r in rows}))}, {m['date']}. Greedy decoding of 128 tokens after "
           "a source of 128, unless a row has other "
           f"sizes. Processor time, alternating runs, medians of {' or '.join(map(str, sorted(rounds)))} rounds, "
           f"load {min(r['load'] for r in rows):.1f} to {max(r['load'] for r in rows):.1f}.", "",
           "The last column has the time of the faster peer divided by the time of relpos. The table begins with the "
           "lowest ratio. f32 and bf16 are compared with peers in f32, int8 and int4 with int8:", ""]
    ratios = sorted((t5_ratio(r, kind), *problem(r), kind) for r in data["times"] for kind in types)
    out += table(("shape", "problem", "type", "faster peer over relpos"),
                 [(shape, what, kind, f"{x:.2f} ×") for x, shape, what, kind in ratios])
    sides = list(data["times"][0]["seconds"])
    out += ["The next table has tokens per second, including encoding, or milliseconds for encoding only:", ""]
    out += table(("shape", "problem", *sides), [(*problem(r), *(value(r, n) for n in sides)) for r in data["times"]])
    out += [f"One thread of this machine reaches at most {m['peak_flops'] * 1e-9:.0f} GFLOP/s in f32. The table shows "
            "encoding in f32 (attention uses f32 with every type of weights):", ""]
    out += table(("shape", "problem", "GFLOP", "of the peak", "faster peer over relpos",
                  "faster peer over f32 at the peak"),
                 [(*problem(r), f"{r['operations'] * 1e-9:,.0f}",
                   f"{100 * r['operations'] / m['peak_flops'] / least:.0f} %", f"{t5_ratio(r, 'f32'):.2f} ×",
                   f"{t5_ratio(r, 'f32') * least * m['peak_flops'] / r['operations']:.2f} ×")
                  for r in data["times"] if "operations" in r
                  for least in [statistics.median(r["seconds"]["relpos f32"])]])
    out += ["With these models, llama.cpp, CTranslate2 with instruction sets other than its default, and bf16 on a "
            "processor with AMX were not measured. The next section compares the "
            "encoders of T5-XXL and ProtT5 with llama.cpp.", ""]
    sides = list(dict.fromkeys(n for r in data["memory"] for n in r["bytes"]))
    out += ["The following table has the memory of encoding in addition to the weights, in MB: the peak of a process "
            "minus the peak of a process that encodes 16 tokens.", ""]
    out += table(("shape", "tokens", *sides),
                 [(r["shape"], f"{r['tokens']:,}", *(f"{r['bytes'][n] * 1e-6:,.0f}" if n in r["bytes"] else ""
                                                     for n in sides))
                  for r in sorted(data["memory"], key=lambda r: (r["shape"], r["tokens"]))])
    out += [f"![{PLOTS['t5']}](performance/t5.svg)", "", "Measured by [bench/t5.py](../bench/t5.py):", "", "```",
            "python bench/t5.py build/release/relpos FOLDER --shape small --rounds 3 --json bench/results/t5.json",
            "python bench/t5.py build/release/relpos FOLDER --shape base --rounds 3 --json bench/results/t5.json",
            "python bench/t5.py build/release/relpos FOLDER --memory 512,1024,2048,4096,16384 --json "
            "bench/results/t5.json", "```", ""]
    return out


def encoders():
    """Return the results of bench/encoders.py."""
    return json.loads((root / "bench/results/t5_encoders.json").read_text())


SIDES = [f"relpos {k}" for k in ("f32", "bf16", "int8", "q8", "int4", "Q8_0 file", "Q4_0 file", "Q4_K file")] + [
    f"CTranslate2 {k}" for k in ("float32", "int8")] + [f"transformers {k}"
                                                        for k in ("f32", "bf16")] + [f"llama.cpp {k}"
                                                                                     for k in (
                                                                                         "BF16", "Q8_0", "Q4_0",
                                                                                         "Q4_K")]
# type of relpos: peers of the same size; few people have 8 bits in transformers
SAME_SIZE = {"f32": ("CTranslate2 float32", "transformers f32"), "bf16": ("transformers bf16", "llama.cpp BF16"),
             "int8": ("CTranslate2 int8", "llama.cpp Q8_0", "transformers f32"),
             "q8": ("CTranslate2 int8", "llama.cpp Q8_0"), "Q8_0 file": ("llama.cpp Q8_0",),
             "int4": ("CTranslate2 int8", "llama.cpp Q4_0", "llama.cpp Q4_K"),
             "Q4_0 file": ("llama.cpp Q4_0",), "Q4_K file": ("llama.cpp Q4_0", "llama.cpp Q4_K")}


def encoder_table(row, peak):
    """Return a table of the times of one problem: a line for each side, and peers of the same size over relpos."""
    middle = {side: statistics.median(s) for side, s in row["seconds"].items()}

    def line(side):
        s, kind = row["seconds"][side], side.removeprefix("relpos ")
        others = [f"{name} {middle[name] / middle[side]:.2f} ×" for name in SAME_SIZE[kind]
                  if name in middle] if side.startswith("relpos") else []
        return (side, f"{middle[side]:.2f} ({min(s):.2f} to {max(s):.2f})", str(len(s)),
                f"{100 * row['operations'] / middle[side] / peak:.0f} %", ", ".join(others))
    return [f"{row['shape']}, {row['layers']} layers, {row['tokens']:,} tokens:", "",
            *table(("", "seconds (least to most)", "rounds", "of the f32 peak", "time of others divided by this"),
                   map(line, sorted(row["seconds"], key=SIDES.index)))]


SMALL = {"f32": "float32", "int8": "int8"}


def small_ratio(row, kind):
    return (statistics.median(row["seconds"]["CTranslate2 " + SMALL[kind]])
            / statistics.median(row["seconds"]["relpos " + kind]))


def spread(s):
    return f"{statistics.median(s):.3f} ({min(s):.3f} to {max(s):.3f})", str(len(s))


def encoders_section():
    data = encoders()
    m, versions = data["machine"], data["machine"]["versions"]
    out = ["## Encoders of T5-XXL and ProtT5", "",
           "Encoders with the widths of T5-XXL (`xxl`: 4,096, 64 heads of 64, "
           "gated 10,240) and ProtT5 (`prott5`: 1,024, 32 heads of 128, "
           "16,384), "
           f"random weights and fewer layers, compared with llama.cpp ({versions['llama.cpp']}), CTranslate2 "
           f"{versions['ctranslate2']} and transformers {versions['transformers']} with PyTorch "
           f"{versions['torch'].split('+')[0]}. One thread of {m['cpu']} with {m['isa']}, whose f32 peak is "
           f"{m['peak_flops'] * 1e-9:.0f} GFLOP/s, commit "
           f"{', '.join(sorted({r['commit'] for r in data['times'] + data['whole']}))}, {m['date']}. Processor times "
           "of alternating runs without opening the model, while its other jobs were stopped. "
           "The time of llama.cpp is that of a process that encodes the tokens minus that of a process that encodes 8, "
           "and the time of relpos the median of three calls, "
           "or for prott5 and files of llama.cpp the first call, which also reads the weights. \"Q8_0 file\" is relpos "
           "with the .gguf file of llama.cpp, which it opens as q8.", ""]
    small = json.loads((root / "bench/results/t5_avx2.json").read_text())["times"]
    for row in data["times"]:
        out += encoder_table(row, m["peak_flops"])
    out += ["T5-small's shape on the same machine, encoding 512 tokens, or decoding 128 tokens of 8 sources of 128 "
            "tokens, compared with CTranslate2:", ""]
    out += table(("problem", "type", "relpos, seconds (least to most)", "rounds", "CTranslate2, seconds",
                  "CTranslate2 over relpos"),
                 [(r["problem"], kind, *spread(r["seconds"]["relpos " + kind]),
                   f"{statistics.median(r['seconds']['CTranslate2 ' + other]):.3f}", f"{small_ratio(r, kind):.2f} ×")
                  for r in small for kind, other in SMALL.items()])
    out += ["The next table has whole processes: `relpos t5 encode`, or `relpos t5 proteins` for ProtT5 (a protein of "
            "the length of titin, while other programs ran), on a packed file. "
            "The memory is the largest resident memory, weights included:", ""]
    out += table(("shape", "layers", "tokens", "", "file, MB", "memory, MB", "processor seconds", ""),
                 [(r["shape"], str(r["layers"]), f"{r['tokens']:,}", r["side"], f"{r['file_bytes'] * 1e-6:,.0f}",
                   f"{r['bytes'] * 1e-6:,.0f}", f"{r['seconds']:,.1f}",
                   "to the end" if r["ended"] else "stopped before its end") for r in data["whole"]])
    return out + ["Measured by [bench/encoders.py](../bench/encoders.py), in several runs of one round:", "", "```",
                  "python bench/encoders.py build/release/relpos FOLDER --llama LLAMA --shape xxl --tokens 512 --json "
                  "bench/results/t5_encoders.json",
                  "python bench/encoders.py build/release/relpos FOLDER --shape prott5 --tokens 4096 --sides 'relpos "
                  "f32,relpos int8,transformers f32' --json bench/results/t5_encoders.json",
                  "python bench/encoders.py build/release/relpos FOLDER --shape xxl --layers 24 --whole --sides "
                  "'relpos int4' --json bench/results/t5_encoders.json",
                  "python bench/encoders.py build/release/relpos FOLDER --shape prott5 --fasta titin.fasta --sides "
                  "'relpos int8' --json bench/results/t5_encoders.json",
                  "python bench/t5.py build/release/relpos FOLDER --shape small --problems 'encode 512,batch 8' --json "
                  "bench/results/t5_avx2.json", "```", ""]


def search():
    """Return the results of bench/search.py."""
    return json.loads((root / "bench/results/search.json").read_text())


SEARCH = {"mpnet": "MPNet-base", "bert": "BERT-base", "deberta": "DeBERTa-v3-base", "modernbert": "ModernBERT-base"}


def search_ratios(row):
    """Return {type of relpos: (its seconds, the fastest other program, time of that over that of relpos)}: f32 compared
    with f32, q8 and int8 with int8, and bf16 with f32."""
    middle = {side: statistics.median(s) for side, s in row["seconds"].items()}
    found = {}
    for kind, other in (("f32", "f32"), ("bf16", "f32"), ("q8", "int8"), ("int8", "int8")):
        peers = {side: t for side, t in middle.items()
                 if not side.startswith("relpos") and ("int8" in side) == (other == "int8")}
        if peers:
            best = min(peers, key=peers.get)
            found[kind] = middle["relpos " + kind], best, peers[best] / middle["relpos " + kind]
    return found


def search_rows(data):
    """Return the rows of times of bench/search.py, by model and length."""
    return sorted(data["times"], key=lambda r: (list(SEARCH).index(r["model"]), r["tokens"]))


def search_line(row, cell):
    """Return a line of a table: the time of f32, q8 and int8, and what `cell` says of the fastest other program."""
    found = search_ratios(row)
    cells = [(f"{1e3 * statistics.median(row['seconds']['relpos ' + kind]):.1f}",
              cell(*found[kind][1:]) if kind in found else "") for kind in ("f32", "q8", "int8")]
    return (SEARCH[row["model"]], f"{row['tokens']:,}", *cells[0], *cells[1], *cells[2])


def search_section():
    out = ["## Encoders for search and classification", "",
           "Whole models of base size with random weights (vocabulary of 4,000), one sequence, one thread, "
           "milliseconds of processor time without a tokenizer (median of alternating rounds in one process). Beside "
           "each type of relpos.Encoder is the time of the fastest other program divided by that of relpos. f32 is "
           "compared with f32 of ONNX Runtime (as exported, and after its optimizer), OpenVINO, transformers (eager "
           "and sdpa) and, for BERT, CTranslate2; q8 and int8 with int8 of ONNX Runtime (quantize_dynamic, per "
           "tensor and per channel) and CTranslate2.", ""]
    data = search()
    m, v = data["machine"], data["machine"]["versions"]
    out += [f"{m['cpu']}, AVX-512 with VNNI, commit {', '.join(sorted({r['commit'] for r in data['times']}))}, "
            f"{m['date']}; ONNX Runtime {v['onnxruntime']}, OpenVINO {v['openvino'].partition('-')[0]}, PyTorch "
            f"{v['torch'].partition('+')[0]}, transformers {v['transformers']}, CTranslate2 {v['ctranslate2']}:", "",
            *table(("model", "tokens", "f32", "others", "q8", "others", "int8", "others"),
                   [search_line(row, lambda who, x: f"{x:.2f} × ({who})") for row in search_rows(data)])]
    sides = "relpos f32", "relpos q8", "relpos int8", "ONNX Runtime f32", "ONNX Runtime int8"
    out += ["The least and the most of the rounds:", "",
            *table(("model", "tokens", *sides), [(SEARCH[r["model"]], f"{r['tokens']:,}", *(
                f"{1e3 * min(r['seconds'][s]):.1f} to {1e3 * max(r['seconds'][s]):.1f}" for s in sides))
                for r in search_rows(data)])]
    for r in data["mixed"]:
        out += [f"{r['texts']} sequences of mixed lengths ({r['tokens']:,} tokens) in batches of 32, MPNet-base, in "
                "sequences per second. ONNX Runtime pads each batch to its longest sequence; sorted: by length.", "",
                *table(("", "sequences per second"), [(side, f"{r['texts'] / statistics.median(s):.1f}")
                                                      for side, s in r["seconds"].items()])]
    out += ["Memory of one sequence in addition to that of 16 tokens, without the weights, ModernBERT-base:", "",
            *table(("tokens", "", "MB", "processor seconds"), [
                (f"{r['tokens']:,}", side, f"{x['bytes'] * 1e-6:,.0f}", f"{x['seconds']:.1f}")
                for r in sorted(data["memory"], key=lambda r: r["tokens"]) for side, x in r["sides"].items()])]
    for r in data["trained"]:
        out += [f"The trained {r['model']}, {r['texts']} sentences of the documentation: the cosine of each vector "
                "with that of transformers in f32, and the number of vectors whose bits differ in a batch of 8.", "",
                *table(("", "mean cosine", "least", "changed in a batch"), [
                    (side, f"{x['mean']:.5f}", f"{x['least']:.5f}", f"{x['changed in a batch']} of {r['texts']}")
                    for side, x in r["sides"].items()])]
    return out + ["Measured by [bench/search.py](../bench/search.py):", "", "```",
                  "python bench/search.py FOLDER --rounds 3",
                  "python bench/search.py FOLDER --models modernbert --tokens 2048 --rounds 2",
                  "python bench/search.py FOLDER --mixed --rounds 2",
                  "python bench/search.py FOLDER --memory 2048",
                  "python bench/search.py FOLDER --memory 8192",
                  "python bench/search.py FOLDER --trained all-mpnet-base-v2", "```", ""]


def derivatives():
    """Return the results of bench/derivatives.py."""
    return json.loads((root / "bench/results/derivatives.json").read_text())


DERIVATIVES = {"jvp": ("forward derivatives (jvp)", "forward"), "hvp": ("second derivatives (hvp)", "backward")}


def derivatives_rows(data):
    """Return rows (pass, length, milliseconds, multiple of the pass that it extends, torch's time over that of relpos
    or "")."""
    found = []
    for what, (name, base) in DERIVATIVES.items():
        for r in data["times"]:
            middle = {side: 1e3 * statistics.median(s) for side, s in r["seconds"].items()}
            ours, other = middle["relpos " + what], middle.get("torch " + what)
            found.append((name, f"{r['tokens']:,}", ms(ours), f"{ours / middle['relpos ' + base]:.2f} × {base}",
                          f"{other / ours:.2f} ×" if other else ""))
    return found


def derivatives_memory(data):
    """Return {(pass, side, tokens): (megabytes, seconds)}."""
    return {(r["pass"], r["side"], r["tokens"]): (r["bytes"] * 1e-6, r["seconds"]) for r in data["memory"]}


def derivatives_section():
    data = derivatives()
    m = data["machine"]
    sides = [f"{side} {what}" for what in ("forward", "jvp", "backward", "hvp") for side in ("relpos", "torch")]
    spread = lambda s: f"{1e3 * min(s):.0f} to {1e3 * max(s):.0f}"  # noqa: E731
    return ["## Derivatives", "",
            "Processor time of forward derivatives along tangents of q, k, v and the table (jvp), and of second "
            "derivatives along the same tangents (hvp): 8 heads of 64 channels, f32, a T5 table, one thread of "
            f"{label(m)}, commit {m['commit']}, {m['date']}. The backward pass is that of attention_backward, "
            "which computes the forward pass too. The machine had other users. torch's eager attention "
            f"(PyTorch {m['torch'].partition('+')[0]}) runs under torch.func.jvp; its fused attention has no forward "
            "derivative on CPUs. The last column is torch's time divided by that of relpos.", "",
            *table(("", "tokens", "ms", "relpos's passes", "torch eager"), derivatives_rows(data)),
            "The least and the most of the rounds, in milliseconds:", "",
            *table(("tokens", *sides), [(f"{r['tokens']:,}", *(spread(r["seconds"][s]) if s in r["seconds"] else ""
                                                               for s in sides)) for r in data["times"]]),
            "Memory that one call adds to a process, and its time:", "",
            *table(("", "", "tokens", "heads", "MB", "seconds"),
                   [(r["pass"], r["side"], f"{r['tokens']:,}", str(r["heads"]), f"{r['bytes'] * 1e-6:,.0f}",
                     f"{r['seconds']:.2f}") for r in data["memory"]]),
            "Measured by [bench/derivatives.py](../bench/derivatives.py):", "", "```", f"python {m['command']}", "```",
            ""]


def count_models():
    """Return how many model types of transformers work, such as "422 of 533 model types"."""
    found = [x["result"] for x in json.loads((root / "bench/results/hf_models.json").read_text())["models"]]
    return f"{found.count('equal')} of {len(found) - found.count('not tried')} model types"


def models():
    """Return the results of bench/hf.py, and its rows, the lowest ratio first. A row also gets `best`, the faster one
    of sdpa and eager; `ratio`, the time of `best` over that of relpos; `most`, the ratio of an attention that costs
    nothing; and `share`, the part of `best` that is attention."""
    data = json.loads((root / "bench/results/hf.json").read_text())
    for row in data["rows"]:
        over = {kind: x[0] for kind, x in row["over_relpos"].items()}
        row["best"] = min((kind for kind in ("sdpa", "eager") if kind in over), key=over.get)
        row["ratio"], row["most"] = over[row["best"]], over[row["best"]] / over["free"]
        row["share"] = 1 - 1 / row["most"]
    return data, sorted(data["rows"], key=lambda row: row["ratio"])


def models_machine(data):
    m = data["machine"]
    return (f"{m['cpu']['Model name']}, {m['isa'].upper()}, PyTorch {m['torch'].split('+')[0]}, transformers "
            f"{m['transformers']}")


def slower_on_two(rows):
    """Return a sentence on each problem that takes longer on two threads than on one even with attention that only
    returns an array."""
    free = {(r["model"], r["problem"], r["threads"]): r["ms"]["free"][0] for r in rows}
    return [f"{model}, {problem}, takes longer on two threads than on one because of PyTorch's small linear layers, "
            "not of attention: with attention that only returns an "
            f"array, it takes {ms(free[model, problem, 2])} and {ms(one)} ms.\n"
            for (model, problem, threads), one in free.items()
            if threads == 1 and free.get((model, problem, 2), 0) > one]


def far_from_limit(rows):
    """Return the paragraphs on the problems that reach less than 85 % of what attention without any cost would reach,
    and on ratios below 1 of such attention."""
    far = [f"{r['model']}, {r['problem']}, {r['threads']} thread{'s' * (r['threads'] > 1)} "
           f"({100 * r['ratio'] / r['most']:.0f} %)" for r in rows if r["ratio"] < 0.85 * r["most"]]
    out = [f"These problems reach less than 85 % of the limit: {'; '.join(far)}. For each pair of 64 channels, plain "
           "attention needs 256 operations, and the terms of DeBERTa and XLNet at "
           f"least {EXTRA['deberta,span=256'][0]} and {EXTRA['xl'][0]} more (with 4,096 keys, see [terms that take "
           "longest](#terms-that-take-longest)). The work of attention grows with the square of "
           "the length, so for long texts, as for T5-base with 2,048 tokens, attention without any cost is not a limit "
           "that a program can reach.", ""] if far else []
    noisy = [f"{r['model']}, {r['problem']}" for r in rows if r["most"] < 1]
    return out + (["A negative share is noise: the time of attention is smaller than the variation between calls "
                   f"({'; '.join(noisy)}).", ""] if noisy else [])


def models_section():
    data, rows = models()

    def line(r):
        ours = r["ms"]["relpos"]
        within = r["ratio"] < 1 <= r["over_relpos"][r["best"]][2]
        noise = " (noise)" if r["most"] < 1 else ""
        return (r["model"], r["layers"], r["problem"], str(r["threads"]),
                f"{ms(ours[0])} ({ms(ours[1])} to {ms(ours[2])})",
                *(ms(r["ms"][kind][0]) if kind in r["ms"] else "-" for kind in ("sdpa", "eager")),
                f"{r['ratio']:.2f} ×" + (", within the spread" if within else ""),
                f"{100 * r['share']:.0f} %" + noise, f"{r['most']:.2f} ×" + noise,
                f"{100 * r['ratio'] / r['most']:.0f} %")
    older = [r["changed_since"] for r in rows if "changed_since" in r]
    marked = f", {len(older)} of {len(rows)} rows before {' and '.join(sorted(set(older)))}" if older else ""
    return ["## Whole models of transformers", "",
            "Models of transformers with random weights and "
            "`attn_implementation` relpos, sdpa or eager, on "
            f"{models_machine(data)}. They have their published shapes, but some have fewer layers (\"4 of 12\"). "
            "Times are median milliseconds "
            f"(first to third quartile) of {min(r['rounds'] for r in rows)} or more alternating calls, and ratios are "
            "medians of the ratios of calls next to each other; \"-\" means that transformers has no such "
            "implementation. The table begins "
            "with the lowest ratio.", "",
            "PyTorch computes the linear layers of every implementation, which limits the gain from faster attention. "
            "To measure the limit, bench/hf.py replaces the attention "
            "function by one that only returns an array of the right shape. *Attention* is the share of the time of "
            "the faster other implementation that this saves. *At most* "
            "is the ratio that attention without any cost would reach, and *reached* is the part of it that relpos "
            "reaches.", "", *table(
("model", "layers", "problem", "threads", "relpos", "sdpa", "eager", "faster other ÷ relpos", "attention", "at most",
 "reached"), map(line, rows)),
            *far_from_limit(rows), *slower_on_two(rows),
            "Measured by `python3 bench/hf.py -o bench/results/hf.json` at commit "
            f"{', '.join(sorted({r['commit'] for r in rows}))}{marked}. [Performance with "
            "transformers](hf-performance.md) "
            "has the parts of a decoding step.", ""]


def another_section(data):
    m, worse = data["machine"], slower(data["rows"])
    beside = (f" {m['beside']} processes, each with a core of its own, measured at the same time." if m.get("beside")
              else "")
    out = [f"## {label(m)}", "",
           f"{m.get('changed_since', '')}{beside} {m['cores']} cores at "
           f"{m['clock_hz'] * 1e-9:.2f} GHz, "
           f"{m['peak_gflops'][m['isa']][str(m['threads'])]:.0f} GFLOP/s on {m['threads']} "
           f"thread{'s' * (m['threads'] > 1)}, PyTorch {m['torch'].split('+')[0]}, "
           f"ONNX Runtime {m['onnxruntime']}, {m['date'][:10]}, commit "
           f"{', '.join(sorted({r['commit'] for r in data['rows']}))}. In {len(worse)} of {len(data['rows'])} problems "
           "a peer is faster. Columns of peers have the time of the peer divided by the time of relpos. For SDPA and "
           "eager attention, the bias is built before the call unless noted.", ""]
    if m["isa"] == "amx":
        out += ["The rows in f32 use AVX-512, although the machine has AMX: that is the default of relpos, which uses "
                "AMX for bf16, and for f32 only if a lower precision is allowed. "
                "docs/maintainers/tried.md has the cost of biases with AMX.", ""]

    def best(row, test):
        found = [ratio(row, name) for name in row["times"] if is_peer(name) and test(name)]
        return f"{min(found):.2f}" if found else ""
    lines = [(f"{passes} {dtype}, {case}", f"{r['n']:,}", ms(r["times"]["relpos"]["ms"]),
              f"{100 * peak_fraction(data, r):.0f} %",
              best(r, lambda n: n in ("SDPA", "SDPA, bias built before")),
              best(r, lambda n: n == "SDPA, bias built in the call"),
              best(r, lambda n: n.startswith("eager")), best(r, lambda n: n.startswith("flex")),
              best(r, lambda n: n.startswith("ONNX")))
             for (passes, dtype, case), rows in groups(data["rows"]).items() for r in rows]
    return out + table(("problem", "keys", "relpos, ms", "of peak", "SDPA", "SDPA, bias built in the call", "eager",
                        "flex_attention", "ONNX Runtime"), lines)


def error_section(data):
    out = ["## Errors", "", "Errors are relative to the same problem in f64. Each cell has the largest error divided "
                            "by the largest absolute value of the result, and the mean error divided by "
                            "the mean absolute value. For a backward pass, it has the worst of the results.", ""]
    rows = {key: [r for r in rows if r["errors_from"] == "f64"][-1:] for key, rows in groups(data["rows"]).items()}

    def cell(row, test):
        found = [e for name, e in row["errors"].items() if test(name) and name in row["times"]]
        return (f"{min(e['max'] for e in found):.1e}, {min(e['mean'] for e in found):.1e}",) if found else ("",)
    return out + table(("problem", "keys", "relpos", "best of SDPA", "best of the others"), [
        (f"{passes} {dtype}, {case}", f"{row['n']:,}", *cell(row, lambda n: n == "relpos"),
         *cell(row, lambda n: n.startswith("SDPA")),
         *cell(row, lambda n: is_peer(n) and not n.startswith("SDPA")))
        for (passes, dtype, case), found in rows.items() for row in found])


NOT_TIMED = ("f16 with more than 4,096 keys (one query with ALiBi: more than 16,384);",
             "one query with ALiBi and more than 16,384 keys, in f32 and bf16;",
             "a batch of 32 with 8 tokens;",
             "models of transformers: T5-base with 4,096 tokens;",
             "ProtT5 with 4,096 residues in llama.cpp and CTranslate2 (relpos and transformers were timed);",
             "Intel processors that have AVX2 but not AVX-512.")


def skipped_section(data):
    why = {}
    for row in data["rows"] + data["memory"]:
        for name, reason in row["skipped"].items():
            case = f"{PASSES[row['pass']]} {row['dtype']}, {row['case']}" if "dtype" in row else "memory"
            reason = "a call took too long at a shorter length" if reason.startswith("a call took") else reason
            reason = "needs more memory than is free" if reason.startswith("needs up to") else reason
            why.setdefault((name.split(",")[0], reason), {}).setdefault(case, set()).add(row["n"])

    def line(name, reason, cases):
        lengths = {}
        for case, ns in cases.items():
            lengths.setdefault(tuple(f"{n:,}" for n in sorted(ns)), []).append(case)
        return name, reason, "; ".join(f"{', '.join(found)} ({' '.join(ns)})" for ns, found in lengths.items())
    return ["## What was not timed", "", "A peer with several variants is listed if at least one of them was not "
                                         "timed. Lengths are in parentheses.", ""] + table(
("peer", "why", "where"), [line(*key, cases) for key, cases in why.items()]) + ["No program was timed in these "
                                                                                "problems, unless noted:", "",
                                                                                *(f"- {x}" for x in NOT_TIMED), ""]


def machine_section(data):
    m = data["machine"]
    per = lambda d, scale, unit: "; ".join(f"{v * scale:.1f} {unit} on {n} thread{'s' * (n != '1')}"
                                           for n, v in d.items())  # noqa: E731
    commits = sorted({r["commit"] for r in data["rows"] + data["memory"]})
    lines = [("processor", f"{m['cpu']}, {m['cores']} cores, {m['clock_hz'] * 1e-9:.2f} GHz measured"),
             ("caches, memory", ", ".join(f"{k.removesuffix(' cache')} {v}" for k, v in m["caches"].items())
              + f", {m['memory_bytes'] * 2**-30:.0f} GiB"),
             *((f"multiply-adds, {isa}", per(d, 1, "GFLOP/s")) for isa, d in m["peak_gflops"].items()),
             ("reading memory", per(m["bytes_per_s"], 1e-9, "GB/s")),
             ("relpos", f"{m['relpos']}, {m['isa']}, commit {', '.join(commits)}; {m['compiler']}, {m['build']}, "
                        f"`{m['flags']}`"),
             ("peers", f"PyTorch {m['torch']} ({m['torch_cpu']}), ONNX Runtime {m['onnxruntime']}, NumPy {m['numpy']}, "
                       f"Python {m['python']}"),
             ("system", f"Linux {m['kernel']}"), ("threads", str(m["threads"])), ("date", m["date"])]
    return ["## The machine", ""] + table(("", ""), lines) + [
        "## How to repeat it", "", "```", "cmake --preset release && cmake --build --preset release",
        "bench/setup.sh build/venv",
        f"build/venv/bin/python {m['command'].replace('peers.py', 'peers.py build/release/librelpos.so')} -o "
        "bench/results/peers.json",
        "python3 bench/report.py && build/venv/bin/python bench/plots.py", "```", "",
        "`--only 'fwd:f32.*t5'` measures the matching problems again and keeps the other results. `--variants "
        "default,avx512` adds columns for relpos. "
        "[bench/peers.py](../bench/peers.py) describes each peer."]


def page():
    data = load()
    m = data["machine"]
    out = ["# Raw tables of performance", "", "<!-- made by bench/report.py from bench/results/peers.json -->",
           "[Performance](performance.md) is the summary. "
           f"This page compares relpos with PyTorch {m['torch'].split('+')[0]} and ONNX Runtime {m['onnxruntime']} on "
           f"{m['threads']} thread"
           f"{'s' * (m['threads'] > 1)} of {label(m)}. Calls of B1 H8 D64 (windows: B512 H8 D32) alternate in one "
           "process; times are medians. "
           "[bench/peers.py](../bench/peers.py) measures them, and `relpos bench` repeats the times of relpos.", ""]
    out += slower_section() + models_section()
    for name, what in list(PLOTS.items())[:-3]:  # the others have sections
        out += [f"![{what}](performance/{name}.svg)", ""]
    out += (tables(data) + decode_section(data) + call_section() + threads_section() + growth_section()
            + derivatives_section() + terms_section() + training_section() + t5_section() + encoders_section()
            + search_section() + memory_section(data))
    for data_of_another in others():
        out += another_section(data_of_another)
    out += error_section(data) + skipped_section(data) + machine_section(data)
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    files = {"docs/performance-tables.md": page()}
    if sys.argv[1:] == ["--check"]:
        missing = [name for name in PLOTS if not (root / f"docs/performance/{name}.svg").exists()]
        if missing:
            fail(f"plots are missing: {', '.join(missing)}; run bench/plots.py")
        check(files, "python3 bench/report.py")
    else:
        write(files)
