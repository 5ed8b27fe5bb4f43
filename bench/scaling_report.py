"""Write docs/maintainers/scaling.md and the measured gains in docs/mpi.md from bench/results/scaling.json and
scaling_model.json. Standard library only.

    python3 bench/scaling_report.py              write the pages
    python3 bench/scaling_report.py --check      exit with 1 if one is stale

bench/scaling.py measures, and bench/scaling_model.py simulates larger machines.  SPDX-License-Identifier: Apache-2.0
"""
import functools
import json
import re
import sys

import scaling_model as model
from report import check, root, table, write

GUIDE = root / "docs/mpi.md"
RESULTS = root / "bench/results/scaling.json"


@functools.cache
def measured():
    return json.loads(RESULTS.read_text())["measured"]


def first(name):
    return measured()[name]["lines"][0]


def seconds_per_pair():
    """Return the seconds of a pair of a row and a key for one head, forward and backward, in one process."""
    pair = 1e-3 * first("speed fwd:f32:b1h4q16384k16384d64:t5")["one_process_ms"] / (4 * 16384**2)
    return pair, 1e-3 * first("speed fwdbwd:f32:b1h1q16384k16384d64:t5")["one_process_ms"] / 16384**2 - pair


def problem_of(text):
    """Return the passes and the problem of a line such as fwd:f32:b1h8q16384k16384d64:t5:causal."""
    kind, b, h, g, q, d = re.match(r"(\w+):f32:b(\d+)h(\d+)(?:g(\d+))?q(\d+)k\d+d(\d+):t5", text).groups()
    heads, kv = int(b) * int(h), int(b) * int(g or h)
    return kind, model.Problem(int(q), heads, kv, int(d), text.endswith(":causal"))


def link_costs(name):
    """Return the latency and bandwidth of measured messages."""
    found = {line["bytes"]: line["seconds"] for line in measured()[f"messages {name}"]["lines"]}
    return found[8], (1 << 23) / (found[1 << 23] - model.LATENCIES * found[8])


def modelled(line, link):
    """Return the seconds of the model for a measured line, whose work takes as long as in one process."""
    kind, p = problem_of(line["problem"])
    pair, back = seconds_per_pair()
    used = pair * (kind != "bwd") + back * (kind != "fwd")
    scale = 1e-3 * line["one_process_ms"] / model.one(p, model.Costs(used, 0, 0, 0)) if line["one_process_ms"] else 1
    costs = model.Costs(scale * pair, scale * back, *link_costs(link))
    return (model.forward(p, 2, costs)[0] if kind != "bwd" else 0) + (model.backward(p, 2, costs)[0] if kind != "fwd"
                                                                      else 0)


def times(x, digits=2):
    return f"{x:.{digits}f} ×"


def seconds(x):
    return (f"{x:.3g} s" if x < 99.5 else f"{x:,.0f} s" if x < 7200 else f"{x / 3600:,.0f} h" if x < 48 * 3600
            else f"{x / 86400:,.0f} days")


def plain(text):
    """Return a problem in words."""
    kind, p = problem_of(text)
    return (f"{'forward' if kind == 'fwd' else 'forward and backward'}, {p.rows:,} rows, {p.heads} "
            f"head{'s' * (p.heads > 1)}, "
            f"{'causal' if p.causal else 'not causal'}")


def speeds():
    """Return the measured problems: text, line of two processes, line of two threads."""
    found = []
    for name, entry in measured().items():
        if name.startswith("speed "):
            found.append((name[6:], entry["lines"][0], first("threads " + name[6:])))
    return sorted(found, key=lambda f: (f[0].split(":")[0], problem_of(f[0])[1].rows, problem_of(f[0])[1].causal))


def guide():
    """Return docs/mpi.md with the measured gains between its marks."""
    def line(text, two, threads):
        one = two["one_process_ms"]
        return (plain(text), seconds(1e-3 * one) if one else "-", seconds(1e-3 * two["ms_min"]),
                times(one / two["ms_min"]) if one else "-", seconds(1e-3 * threads["ms_min"]))
    text = "\n".join(["f32, width 64, a T5 table, on the two cores of one machine. Times are the fastest of 3 or more "
                      "runs; gains above 2 are within\ntheir spread.", "",
                      *table(("problem", "one process", "two processes", "gain", "one process with two threads"),
                             [line(*found) for found in speeds()])])
    new, n = re.subn(r"(<!-- gains: .*?-->\n).*?(<!-- end of gains -->)",
                     lambda m: m[1] + text.strip() + "\n" + m[2], GUIDE.read_text(), flags=re.S)
    assert n == 1, f"{GUIDE}: marks of gains are missing"
    return new


def traffic_section():
    lines = []
    for name, entry in sorted(measured().items()):
        if not name.startswith("traffic "):
            continue
        line = entry["lines"][0]
        kind, p = problem_of(line["problem"])
        count = (model.forward if kind == "fwd" else model.backward)(p, line["processes"],
                                                                     model.Costs(1e-9, 1e-9, 0, 1e30))[1]
        assert count == line["bytes_sent"], name  # the page says so
        lines.append((kind != "fwd", p.causal, line["processes"], f"{line['bytes_sent']:,}", f"{count:,}"))
    lines.sort()
    return ["## Traffic", "",
            "Forward, a key and its value travel from process to process: `kv_heads * (Dk + Dv)` "
            "numbers for each hop. Without a mask, each key makes P - 1 hops. With a "
            "causal mask, a key of the first half makes P - 1 hops, and one of the second half fewer: 3/4 of the hops "
            "together.", "",
            "Backward, a row travels: `heads * (2 Dk + 2 Dv + 1)` numbers for each hop (q, out, dout, dq and lse). "
            "Without a mask, it goes from process 0 to P - 1 and back, in 2 P - 2 hops. "
            "It comes from its owner without dq, and dq returns there. With a causal mask there are "
            f"{model.STRIPES} times as many stripes, if stretches have that many tiles, and keys, values and their "
            "gradients travel to and from the process that computes with them. The table has the bytes that the "
            "processes counted, and this count, for 8,192 rows.", "",
            *table(("pass", "mask", "processes", "bytes sent", "count on paper"), [
                ("backward" if back else "forward", "causal" if causal else "-", str(processes), sent, count)
                for back, causal, processes, sent, count in lines])]


def memory_section():
    lines = []
    for name, entry in sorted(measured().items()):
        if not name.startswith("memory "):
            continue
        peaks = {}
        for line in entry["lines"]:
            peaks.setdefault(line["rows"], {})[line["rank"]] = line["bytes"]
        small, large = peaks[min(peaks)], peaks[max(peaks)]
        grown = [large[rank] - small[rank] for rank in sorted(large)]
        lines.append((len(grown), grown[0], max(grown[1:], default=grown[0])))
    base = lines[0][1]
    return ["## Memory", "",
            "The peak of resident memory of each process of `mpirun relpos attend` for 65,536 rows (8 "
            "heads, f32, width 64; q, k, v and out have 134 MB each), minus that for 1,024 rows for "
            "each "
            "process. A window of 256 keys keeps the time short; without it, a process also touches up to "
            f"{model.SLOTS} stretches of others, 268 MB × {model.SLOTS} / (2 P). One process computes in place: it "
            "packs no keys and keeps no states. Rank 0 also has one head of out twice.", "",
            *table(("processes", "rank 0, MB", "others, at most, MB", "others × processes, MB"), [
                (str(n), f"{own * 1e-6:,.0f}", f"{other * 1e-6:,.0f}" if n > 1 else "-",
                 f"{n * other * 1e-6:,.0f}" if n > 1 else f"{base * 1e-6:,.0f}")
                for n, own, other in lines])]


def points():
    """Return the measured points of the model: words, link, measured and modelled seconds."""
    found = [(plain(text), "shared memory", 1e-3 * two["ms_min"], modelled(two, "shared memory"))
             for text, two, _ in speeds()]
    for name, entry in sorted(measured().items()):
        link = re.match(r"link (\S+) (.*)", name)
        if link:
            line = entry["lines"][0]
            found.append((plain(line["problem"]), link[2], 1e-3 * line["ms_min"], modelled(line, link[2])))
    return found


def model_section():
    pair, back = seconds_per_pair()
    links = sorted({link for _, link, _, _ in points()})
    return ["## The model", "",
            "[bench/scaling_model.py](../../bench/scaling_model.py) simulates the order of the work "
            "and of the messages: stretches, stripes, chains, slots and blocks as in mpi/. "
            f"It has four numbers. A pair of a row and a key takes {1e9 * pair:.2f} ns forward and {1e9 * back:.2f} ns "
            "backward for one head on one core. The others are the latency and the bandwidth of a message:", "",
            *table(("link", "latency", "bandwidth"), [(link, f"{1e6 * link_costs(link)[0]:,.1f} µs",
                                                       f"{link_costs(link)[1] * 1e-6:,.0f} MB/s") for link in links]),
            "bench/pingpong.c measures them. In this comparison, the time of a pair is that of one process in the same "
            "run:", "",
            *table(("problem", "link", "measured", "model", "model ÷ measured"), [
                (words, link, seconds(real), seconds(simulated), f"{simulated / real:.2f}")
                for words, link, real, simulated in points()]),
            "The links are between two network namespaces of one machine, with TCP of Open MPI "
            "([bench/scaling_net.py](../../bench/scaling_net.py)). 1 Gbit/s is `tc tbf` on a pair of veth devices. "
            "This kernel "
            "has no `netem`, so a program with two TUN devices delays and drops packets of the other links. It needs "
            "some of the processors' time. "
            "These problems are short, so what the model leaves out is visible: packing and checking arrays, and the "
            "work of the kernel for TCP on the same two cores. "
            "No machine with more than two processes was at hand, so larger numbers are not compared."]


@functools.cache
def simulated():
    return json.loads(model.FILE.read_text())["simulated"]


def pick(rows, processes, kind, causal, machine, network):
    for line in simulated():
        if (line["rows"], line["processes"], line["pass"], line["causal"], line["machine"],
            line["network"]) == (rows, processes, kind, causal, machine, network):
            return line
    return None


def share(line):
    return f"{100 * line['efficiency']:.0f} %" if line else "-"


def larger_section():
    all_simulated = model.MAX_BACKWARD >= max(model.PROCESSES)
    unsimulated = "" if all_simulated else f", or not simulated (backward above {model.MAX_BACKWARD})"
    out = ["## Larger machines", "",
           "The model for 8 heads of width 64 in f32. The efficiency is the time of one "
           "process, divided by the number of processes and by their time. A process is one "
           "core as above, or a "
           "machine that is 64 times as fast. The networks have 10 Gbit/s and 30 µs, or 100 Gbit/s and 5 µs; *balance* "
           "has no network, so it shows the order of the work alone. A sequence of N rows has "
           f"work for at most N / {2 * model.TILE:,} processes; \"-\" is beyond "
           f"that{unsimulated}.", ""]
    for kind in ("forward", "backward"):
        for causal in (False, True):
            lines = []
            for rows in model.ROWS:
                for processes in model.PROCESSES:
                    ones = [pick(rows, processes, kind, causal, machine, network) for machine, network in (
                        ("1 core", "none"), ("1 core", "10 Gbit/s"), ("1 core", "100 Gbit/s"),
                        ("64 cores", "10 Gbit/s"), ("64 cores", "100 Gbit/s"))]
                    if ones[0]:
                        lines.append((f"{rows:,}", f"{processes:,}", *map(share, ones), seconds(ones[-1]["seconds"])))
            out += [f"### {kind.capitalize()}, {'causal' if causal else 'not causal'}", "",
                    *table(("rows", "processes", "balance", "1 core, 10 Gbit/s", "1 core, 100 Gbit/s",
                            "64 cores, 10 Gbit/s", "64 cores, 100 Gbit/s", "time of the last"), lines)]
    return out


def torch_section():
    lines = []
    for line in measured()["torch"]["lines"]:
        if "error" in line:
            said = f"`{line['error']}`"
        elif line["difference_from_local"] == 0:
            said = ("each process attends to its own keys only; the result differs from one process by "
                    f"{line['difference']:.2g}")
        else:
            said = f"differs from one process by {line['difference']:.2g}"
        lines.append((line["case"], said))
    version = measured()["torch"]["lines"][0]["torch"].split("+")[0]
    return ["## PyTorch's context parallelism", "", "`torch.distributed.tensor.experimental.context_parallel` of "
                                                    f"PyTorch {version} has no ring for processors (gloo), so there is "
                                                    "no time to compare:", "",
            *table(("case", "result over two processes"), lines),
            "Its rings for GPUs have no bias either: the function for memory-efficient attention raises `attn_bias is "
            "not supported yet`, and the one for flash attention has no argument for it."]


def fewest(kind, causal):
    """Return the lowest balance of the work, with the number of processes, for the longest sequence."""
    lines = [x for x in simulated() if x["pass"] == kind and x["causal"] == causal and x["network"] == "none"
             and x["rows"] == max(model.ROWS)]
    return min(lines, key=lambda x: x["efficiency"])


def gains(kind, causal=None, threads=False):
    """Return how many times as fast two processes are as one, or two threads of one process."""
    return [two["one_process_ms"] / (of_threads if threads else two)["ms_min"] for text, two, of_threads in speeds()
            if text.startswith(kind + ":") and two["one_process_ms"]
            and (causal is None or problem_of(text)[1].causal == causal)]


def limits_section():
    pair, back = seconds_per_pair()
    worst, causal = fewest("backward", True), fewest("forward", True)
    low, threads = gains("fwdbwd", True), gains("fwdbwd", True, threads=True)
    need = [512 / bandwidth / pair * 64 for _, bandwidth in model.NETWORKS.values()]
    return ["## What does not scale", "",
            f"- **Gradients of a causal sequence.** With {worst['processes']:,} processes the efficiency of the "
            f"backward pass is {share(worst)} in the model, without any cost of messages. A block of rows passes "
            f"{model.STRIPES} times as many stripes of keys as without a mask, and every stripe packs its keys and "
            "loads its sums again for each block: on two processes and 8,192 rows all calls together take about 18 % "
            f"more of the processors than one. Measured, two processes are {times(min(low))} to {times(max(low))} as "
            f"fast as one, forward and backward together, and two threads of one process {times(min(threads))} to "
            f"{times(max(threads))}. The goal of 1.85 × is not reached: packed keys and sums would have to stay "
            "between the calls.",
            f"- **Forward, causal, on many processes.** The efficiency falls to {share(causal)} with "
            f"{causal['processes']:,} processes in the model. All processes have the same work, but not at the same "
            "time: "
            "while the first half of the keys passes, the process with the middle rows computes twice as much as the "
            f"one with the first and last rows. A process holds at most {model.SLOTS} stretches of others, so the "
            "slowest sets the pace.",
            f"- **Short sequences.** Stretches begin at multiples of {model.TILE}, and each process has two. So "
            f"{model.ROWS[0]:,} rows are work for at most {model.ROWS[0] // model.TILE // 2} processes.",
            "- **Fast processes on a slow network.** Every key and value passes through every process (forward, "
            "without a mask), whatever their number is. The network keeps up if a process has enough rows: "
            f"with a machine of 64 cores, {need[0]:,.0f} rows at 10 Gbit/s, {need[1]:,.0f} at 100 Gbit/s; one core "
            f"needs {need[0] / 64:,.0f} and {need[1] / 64:,.0f}. A short sequence on many fast processes also waits "
            "until its stretches have passed all of them.",
            "- **Gradients over a link with delay.** Backward has 18 P steps for P processes, 24 P with a causal mask. "
            "Each takes at least the time of a message with a block of rows, because blocks pass a process in both "
            "directions. Forward, messages travel ahead of their use, so a delay costs time only at the start.", ""]


def machine_section():
    m = json.loads(RESULTS.read_text())["machine"]
    commits, dates = ({e[key] for e in measured().values()} for key in ("commit", "date"))
    busy = max((e["others"], name) for name, e in measured().items() if name.split()[0] in ("speed", "threads"))
    return ["## The machine", "", *table(("", ""), [
        ("processor", f"{m['cpu']}, {m['cores']} cores, {m['clock_hz'] * 1e-9:.2f} GHz measured, {m['isa']}"),
        ("relpos", f"{m['relpos']}, commits {', '.join(sorted(commits))}; {m['compiler']}, {m['build']}"),
        ("MPI", m["mpi"]), ("system", f"Linux {m['kernel']}"),
        ("date", ", ".join(sorted(dates))),
        ("used by other programs", f"at most {busy[0]} processors (\"{busy[1]}\"), with the work of the kernel")]),
        "## How to repeat it", "", "```", "cmake --preset release && cmake --build --preset release",
            "python3 bench/scaling.py build/release/relpos",
        "python3 bench/scaling_model.py        # an hour, or less with fewer processes",
            "python3 bench/scaling_report.py", "```", "",
        "bench/results/scaling.json has the raw lines. `./check full` compares the bits of 1, 2, 3, 4 and 8 processes "
        "with those of one call in more than 400 random problems, forward and backward, of which each number of "
        "processes gets its own; `./check` does this for a third of them."]


def page():
    both, grads = gains("fwd"), gains("fwdbwd")
    ratio = [simulated / real for _, _, real, simulated in points()]
    out = ["# Scaling over processes", "", "<!-- made by bench/scaling_report.py from bench/results/scaling.json and "
                                           "scaling_model.json -->",
           f"Two processes compute attention {times(min(both))} to {times(max(both))} as fast as one, about as fast as "
           f"two threads of one process. Gradients gain {times(min(grads))} to "
           f"{times(max(grads))}. The processes send exactly the bytes of the "
           "count on paper, and memory falls with the number of processes. A model, whose times are "
           f"{min(ratio):.2f} to {max(ratio):.2f} times the measured ones, shows what limits larger machines. "
           "[mpi.md](../mpi.md#what-it-gains) has the measured times.", ""]
    for section in (limits_section, larger_section, model_section, traffic_section, memory_section,
                    torch_section, machine_section):
        out += [*section(), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).rstrip() + "\n"


if __name__ == "__main__":
    files = {"docs/maintainers/scaling.md": page(), "docs/mpi.md": guide()}
    if sys.argv[1:] == ["--check"]:
        check(files, "python3 bench/scaling_report.py")
    else:
        write(files)
