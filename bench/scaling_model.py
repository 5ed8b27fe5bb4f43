"""Simulate rp_mpi_attend and rp_mpi_backward over many processes. Standard library only.

    python3 bench/scaling_model.py          simulate larger machines for docs/maintainers/scaling.md, and write
                                            bench/results/scaling_model.json

The model has the stretches, blocks, chains and slots of mpi/, and four numbers: the seconds of a pair of a row and a
key forward and backward, and the latency and bandwidth of a message. MPI asks the receiver before it sends a large
message, so that takes three latencies. A process computes its parts in their order. It receives, computes and sends at
once, but one message after another uses the link. The first stretches are the exception: all that a process has slots
for are on their way together and share the link. bench/scaling_report.py compares the model with measured times.
SPDX-License-Identifier: Apache-2.0
"""
import bisect
import json
import sys
from collections import namedtuple
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "bench/results/scaling_model.json"
# mpi/stretches.c, stripes.c, wave.c and exchange.h
TILE, STRIPES, BLOCKS, AHEAD, CHUNKS, MIN_CHUNK, SLOTS, LATENCIES = 512, 4, 8, 2, 32, 1 << 18, 4, 3
BLOCK_STEP = 96  # rp_plan_row_step with AVX2 and f32

# heads: batch times heads; kv_heads: batch times heads of keys; width: of keys and of values; f32 numbers
Problem = namedtuple("Problem", "rows heads kv_heads width causal")
# seconds of a pair forward and backward, for one head; seconds of a message; bytes per second
Costs = namedtuple("Costs", "pair pair_back latency bandwidth")


def stretches(length, processes):
    tiles, count = -(-length // TILE), 2 * processes
    ends = [min(tiles * n // count * TILE, length) for n in range(count + 1)]
    return list(zip(ends, ends[1:]))


def owner(processes, n):
    return min(n, 2 * processes - 1 - n)


def triangle(n):
    return n * (n + 1) // 2


def one(p, costs, back=False):
    """Return the seconds of one process."""
    return (triangle(p.rows) if p.causal else p.rows * p.rows) * p.heads * (costs.pair_back if back else costs.pair)


def forward(p, processes, costs):
    """Return the seconds of rp_mpi_attend, and the bytes that all processes send. One stretch of keys after another."""
    length = [b - a for a, b in stretches(p.rows, processes)]
    top = 2 * processes - 1
    done, out_free, in_free = ([0.0] * processes for _ in range(3))
    slots = [[0.0] * SLOTS for _ in range(processes)]  # when each slot is free
    latency, together, received = LATENCIES * costs.latency, min(SLOTS, 2 * processes - 2), [0] * processes
    sent = 0
    for n, keys in enumerate(length):
        size = keys * p.kv_heads * 2 * p.width * 4
        if size == 0:
            continue
        chunk = min(max(size // CHUNKS, MIN_CHUNK), size) / costs.bandwidth
        whole, unit = size / costs.bandwidth, keys * p.heads * costs.pair
        first = owner(processes, n)
        up, down = [*range(first, processes), *range(first)], [*range(first, -1, -1), *range(processes - 1, first, -1)]
        chain = up if n < processes else down[:first + 1] if p.causal else down
        begin = end = 0.0  # when a process can send on the first chunk, and when it has the last one
        for at, k in enumerate(chain):
            rows = (length[k] if n < k or not p.causal else 0) + (length[top - k] if n < top - k or not p.causal else 0)
            start = done[k] if done[k] > end else end
            done[k] = start + rows * unit + (triangle(keys) * p.heads * costs.pair if p.causal and k == first else 0)
            release = done[k]
            if at + 1 < len(chain):
                to = chain[at + 1]
                sharing = together if received[to] < together else 1
                start = max(begin, min(slots[to])) if sharing > 1 else max(begin, out_free[k], in_free[to],
                                                                           min(slots[to]))
                out_free[k] = in_free[to] = start + sharing * whole
                release = max(release, out_free[k])
                begin, sent_end = start + sharing * chunk + latency, max(out_free[k], end + sharing * chunk) + latency
                received[to] += 1
                sent += size
            if at > 0:
                slots[k][slots[k].index(min(slots[k]))] = release
            end = sent_end if at + 1 < len(chain) else end
    return max(done), sent


def elsewhere(block, cut, owners, process):
    """Return the rows of a block that another process owns."""
    at, found = bisect.bisect_right(cut, (block[0], 1 << 62)) - 1, 0
    while at < len(cut) and cut[at][0] < block[1]:
        if owners[at] != process:
            found += min(cut[at][1], block[1]) - max(cut[at][0], block[0])
        at += 1
    return found


def stripes(p, processes):
    """Return the stripes of keys for gradients: from, to, the process that keeps the keys and the one that computes."""
    every = stretches(p.rows, processes)
    least = min(-(-(b - a) // TILE) for a, b in every)
    parts = min(least, STRIPES) if p.causal and processes > 1 and least > 1 else 1
    found = []
    for n, (a, b) in enumerate(every):
        tiles = -(-(b - a) // TILE)
        ends = [min(a + tiles * x // parts * TILE, b) for x in range(parts + 1)]
        found += [(c, d, owner(processes, n), owner(processes, (n * parts + x) % (2 * processes)))
                  for x, (c, d) in enumerate(zip(ends, ends[1:])) if d > c]
    return found


def backward(p, processes, costs):
    """Return the seconds of rp_mpi_backward, and the bytes that all processes send. One step of the wavefront after
    another."""
    found = stripes(p, processes)
    cut, owners, count = [s[:2] for s in found], [s[3] for s in found], len(found)
    rows_cut = [c for c in stretches(p.rows, processes) if c[1] > c[0]]
    rows_owners = [owner(processes, n) for n, (a, b) in enumerate(stretches(p.rows, processes)) if b > a]
    step = -(-(-(-p.rows // (2 * processes * BLOCKS))) // BLOCK_STEP) * BLOCK_STEP
    blocks = [(r, min(r + step, p.rows)) for r in range(0, p.rows, step)]
    needs, s = [], 0  # the number of stretches that a block visits
    for _, b in blocks:
        while p.causal and cut[s][1] < b:
            s += 1
        needs.append(s + 1 if p.causal else count)
    unit, bytes_of = p.heads * costs.pair_back, [p.heads * 4 * n for n in (3 * p.width + 1, 4 * p.width + 1, p.width)]
    piece, whole, back = (step * n / costs.bandwidth for n in bytes_of)
    latency = LATENCIES * costs.latency
    free, out_free, in_free = ([0.0] * processes for _ in range(3))
    there = [0.0] * (count + 1)  # when the next block arrives at a stretch
    begun = [0.0] * AHEAD  # when the last blocks began at the first stretch
    sent, last = 0, 0.0
    key = 8 * p.kv_heads * p.width  # bytes of a key and its value
    for c, d, keeper, worker in found:
        if keeper != worker:
            sent += 2 * (d - c) * key  # there, and their gradients back
            out_free[keeper] += (d - c) * key / costs.bandwidth
            in_free[worker] += (d - c) * key / costs.bandwidth
    for t in range(len(blocks) + count - 1):
        before = 0.0  # when the block of the stretch before, in this step, arrives at stretch s
        for s in range(max(0, t - len(blocks) + 1), min(count - 1, t) + 1):
            r = t - s
            if s >= needs[r]:
                break  # blocks of later stretches come earlier in the sequence, and visit fewer stretches
            k, (a, b), (c, d) = owners[s], blocks[r], cut[s]
            ready, there[s] = there[s], before
            if s == 0 and processes > 1:  # the pieces come from the owner of the rows
                ready = max(in_free[k], begun[r % AHEAD]) + piece
                in_free[k], ready = ready, ready + latency
            begin = free[k] if free[k] > ready else ready
            if s == 0:
                begun[r % AHEAD] = begin
                sent += elsewhere(blocks[r], rows_cut, rows_owners, k) * bytes_of[0]
            work = (b - a) * (d - c)
            if p.causal and d > a:  # part of the stretch is after the rows
                x, y = max(a, c), min(b, d)
                work = triangle(y - x) + (y - x) * (x - c) + (b - y) * (d - c)
            end = free[k] = begin + work * unit
            before = end
            if s + 1 == needs[r]:
                out_free[k] = max(end, out_free[k]) + back
                last = max(last, out_free[k] + latency)
                sent += elsewhere(blocks[r], rows_cut, rows_owners, k) * bytes_of[2]
            elif owners[s + 1] != k:
                start = max(end, out_free[k], in_free[owners[s + 1]])
                out_free[k] = in_free[owners[s + 1]] = start + whole
                before = start + whole + latency
                sent += (b - a) * bytes_of[1] + 1  # a byte for errors
        else:
            s += 1
        there[s] = before
    return last + (cut[-1][1] - cut[-1][0]) * key / costs.bandwidth * (found[-1][2] != owners[-1]), sent


NETWORKS = {"10 Gbit/s": (30e-6, 1.25e9), "100 Gbit/s": (5e-6, 12.5e9)}
MACHINES = {"1 core": 1, "64 cores": 64}
ROWS, PROCESSES = (1 << 16, 1 << 20, 1 << 24), (8, 64, 512, 4096)
MAX_BACKWARD = 512  # the steps of the wavefront grow with the square of the number of processes


def lines_for(rows, processes, back, pair):
    """Simulate one size on every machine and network; without a network, to see the balance of the work, on one machine
    only."""
    for causal in (False, True):
        p, run = Problem(rows, 8, 8, 64, causal), backward if back else forward
        for machine, cores in MACHINES.items():
            for network, (latency, bandwidth) in {"none": (0.0, 1e30), **NETWORKS}.items():
                if network == "none" and cores > 1:
                    continue
                costs = Costs(pair / cores, pair / cores, latency, bandwidth)
                seconds, sent = run(p, processes, costs)
                yield {"rows": rows, "processes": processes, "pass": "backward" if back else "forward",
                       "causal": causal, "machine": machine,
                       "network": network, "seconds": seconds, "sent": sent,
                       "efficiency": one(p, costs, back) / seconds / processes}


def simulate(pair, pair_back):
    found = []
    for processes in PROCESSES:
        for rows in ROWS:
            for back in (False, True):
                if 2 * processes * TILE <= rows and not (back and processes > MAX_BACKWARD):
                    found += lines_for(rows, processes, back, pair_back if back else pair)
                    print(json.dumps(found[-1], allow_nan=False), file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    import scaling_report
    pair, pair_back = scaling_report.seconds_per_pair()
    FILE.write_text(json.dumps({"pair": pair, "pair_back": pair_back, "simulated": simulate(pair, pair_back)}, indent=1,
                               allow_nan=False) + "\n")
