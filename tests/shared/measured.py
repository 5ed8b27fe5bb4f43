"""Run a command, and measure what it needs. Used by tests/cli/memory.py and hostile.py. Standard library only.

SPDX-License-Identifier: Apache-2.0"""
import os
import resource
import subprocess

MB = 2**20
SECONDS = 120  # of processor time, after which a command is killed


def measured(command, folder):
    """Run a command in a folder. Return (exit code, processor seconds, largest resident MB, first line of the error).
    The memory is at least that of this process, from which the command is forked."""
    def limits():
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    child = subprocess.Popen([str(x) for x in command], cwd=folder, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=limits)
    said = child.stderr.read().decode(errors="replace")
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said.split("\n")[0]
