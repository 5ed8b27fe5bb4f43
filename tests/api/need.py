"""Test tools/need.sh with programs that take the place of dpkg-query and apt-get: on a terminal it asks before it
installs packages; elsewhere it installs them.

SPDX-License-Identifier: Apache-2.0"""
import os
import pathlib
import pty
import subprocess
import sys
import tempfile

COMMAND = ["sh", "-euc", ". tools/need.sh; need here gone lost; echo went on"]


def on_terminal(typed, environment):
    """Run the command on a terminal on which `typed` is typed; return its output and its exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(COMMAND[0], COMMAND, environment)
    os.write(terminal, typed)
    output = b""
    try:
        while part := os.read(terminal, 4096):
            output += part
    except OSError:  # the command has ended
        pass
    os.close(terminal)
    return output.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def elsewhere(typed, environment):
    """Run the command without a terminal; return its output and its exit code."""
    done = subprocess.run(COMMAND, input=typed, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout.decode(), done.returncode


# how it runs, what is typed, does it install?
CASES = [(on_terminal, b"\n", True), (on_terminal, b"y\n", True), (on_terminal, b"Yes\n", True),
         (on_terminal, b"n\n", False), (on_terminal, b"what\n", False), (on_terminal, b"\x04", False),
         (elsewhere, b"", True), (elsewhere, b"n\n", True)]
try:
    for end in pty.openpty():
        os.close(end)
    terminals = True
except OSError:  # a system without /dev/pts
    terminals = False
    CASES = [case for case in CASES if case[0] is not on_terminal]
with tempfile.TemporaryDirectory() as folder:
    place = pathlib.Path(folder)
    installed = place / "installed"
    for name, text in {"dpkg-query": '[ "$4" = here ] && echo installed\n', "apt-get": f'echo "$@" >>{installed}\n',
                       "id": "echo 0\n"}.items():
        (place / name).write_text("#!/bin/sh\n" + text)
        (place / name).chmod(0o755)
    for run, typed, installs in CASES:
        output, code = run(typed, {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        case = f"{run.__name__} {typed!r}: exit code {code}\n{output}"
        assert ("Install these Debian packages: gone lost? [Y/n]" in output) == (run is on_terminal), case
        assert ("went on" in output) == (code == 0) == installs == installed.exists(), case
        if installs:
            assert installed.read_text() == "install -y -q --no-install-recommends gone lost\n", case
            installed.unlink()
        else:
            assert "run  apt-get install gone lost" in output, case
print(len(CASES), "cases" + ("" if terminals else "; this system has no terminals for the others"))
sys.exit(0 if terminals else 77)
