"""Run a command over two network namespaces of this machine, which a link of a given bandwidth, delay and loss
connects. Needs root, iproute2 and Open MPI.

    python3 bench/scaling_net.py --mbit 1000 --delay-ms 2 [--loss 0.001] -- PROGRAM ARGUMENT...

starts one process of mpirun in each namespace; they reach each other by TCP over the link only. With a kernel that has
sch_netem, `tc netem` would do the same. Here a program forwards the packets between two TUN devices: it waits for the
time that the bits of a packet take, then for the delay, and drops some packets. Without a delay and loss, `tc tbf`
limits a pair of veth devices instead.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import collections
import fcntl
import os
import random
import select
import stat
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPACES = ("relpos0", "relpos1")
ADDRESSES = ("10.87.0.1", "10.87.0.2")
MTU = {"tun": 65000, "veth": 9000}
TUNSETIFF, TUN, NO_HEADER = 0x400454CA, 1, 0x1000


def run(*command):
    subprocess.run(command, check=True)


def tun(name):
    """Create a TUN device, and return its file."""
    path = Path("/dev/net/tun")
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(10, 200))
    file = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), TUN | NO_HEADER))
    return file


def forward(files, seconds_per_byte, delay, loss, queue_bytes):
    """Forward packets between two TUN devices until the process is killed. A packet that finds the queue full is
    dropped, as in a switch."""
    draw = random.Random(1)
    waiting = [collections.deque(), collections.deque()]  # (when it arrives, packet), for each direction
    free = [0.0, 0.0]  # when the link has sent the last packet
    while True:
        now = time.monotonic()
        due = [w[0][0] - now for w in waiting if w]
        ready = select.select(files, [], [], max(min(due), 0) if due else None)[0]
        now = time.monotonic()
        for n, file in enumerate(files):
            if file in ready:
                packet = os.read(file, 65536)
                behind = max(free[n] - now, 0)
                if draw.random() < loss or behind > queue_bytes * seconds_per_byte:
                    continue
                free[n] = now + behind + len(packet) * seconds_per_byte
                waiting[n].append((free[n] + delay, packet))
            while waiting[n] and waiting[n][0][0] <= time.monotonic():
                try:
                    os.write(files[1 - n], waiting[n].popleft()[1])
                except OSError:
                    pass  # the device is going down


def remove():
    for space in SPACES:
        found = subprocess.run(("ip", "netns", "pids", space), capture_output=True, text=True).stdout.split()
        for process in found:
            os.kill(int(process), 9)
        subprocess.run(("ip", "netns", "del", space), stderr=subprocess.DEVNULL)
    subprocess.run(("ip", "link", "del", "relpos-a"), stderr=subprocess.DEVNULL)


def connect(mbit, delay_ms, loss):
    """Create the namespaces and the link. Return the process that forwards packets, or None."""
    remove()
    kind = "tun" if delay_ms > 0 or loss > 0 else "veth"
    names, child = ("relpos-a", "relpos-b"), None
    for space in SPACES:
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
    files = [tun(name) for name in names] if kind == "tun" else []
    if kind == "veth":
        run("ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1])
    for space, name, address, peer in zip(SPACES, names, ADDRESSES, ADDRESSES[::-1]):
        run("ip", "link", "set", name, "netns", space)
        run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", name)
        run("ip", "-n", space, "link", "set", name, "mtu", str(MTU[kind]), "up")
        if kind == "veth" and mbit:
            run("tc", "-n", space, "qdisc", "add", "dev", name, "root", "tbf", "rate", f"{mbit}mbit", "burst", "64kb",
                "latency", "50ms")
    if kind == "tun":
        child = os.fork()
        if child == 0:
            forward(files, 8 / (mbit * 1e6) if mbit else 0, 1e-3 * delay_ms, loss, 1 << 24)
        for file in files:
            os.close(file)
    return child


def over(link, command, seconds=80):
    """Run a command as two processes of mpirun, one in each namespace. Return its standard output."""
    child = connect(*link)
    try:
        with tempfile.TemporaryDirectory() as folder:
            agent = Path(folder, "agent")  # what mpirun calls instead of ssh
            agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {SPACES[1]} unshare --uts sh -c "hostname node1; '
                             f'$*"\n')
            agent.chmod(0o755)
            link_only = [x for n in ("btl_tcp", "oob_tcp") for x in ("--mca", f"{n}_if_include", "10.87.0.0/24")]
            return subprocess.run(
                ("ip", "netns", "exec", SPACES[0], "mpirun", "--allow-run-as-root", "--host", ",".join(ADDRESSES),
                 "--timeout", str(seconds), "-n", "2", "--map-by", "node",
                 "--bind-to", "none", "--mca", "btl", "tcp,self", "--mca", "pml", "ob1", "--mca", "plm_rsh_agent",
                 str(agent),
                 "--mca", "orte_tmpdir_base", folder, *link_only, *command),
                check=True, stdout=subprocess.PIPE, text=True, timeout=seconds + 10).stdout
    finally:
        if child:
            os.kill(child, 9)
            os.waitpid(child, 0)
        remove()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--mbit", type=float, default=0)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--loss", type=float, default=0)
    parser.add_argument("command", nargs="+")
    a = parser.parse_args()
    sys.stdout.write(over((a.mbit, a.delay_ms, a.loss), a.command))
