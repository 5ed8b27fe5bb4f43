"""Test that calls with tensors use torch's OpenMP threads and no others, and give the same bits for any number of
threads.
SPDX-License-Identifier: Apache-2.0"""
import subprocess
import sys
import threading

import numpy as np
import pytest

import relpos

torch = pytest.importorskip("torch")

BEGIN = """
import os, sys, numpy as np, relpos, torch
torch.manual_seed(0)
q, k, v = (torch.randn(2, 4, 300, 16) for _ in range(3))
term = relpos.T5(torch.randn(32, 4))
def call(**options): return relpos.attention(q, k, v, bias=term, **options)
def threads(): return len(os.listdir("/proc/self/task"))
def torch_works(): return torch.randn(700, 700) @ torch.randn(700, 700) + torch.randn(700, 700).exp().sum()
"""


def run(text, **environment):
    """Run a process, check that it exits by itself, and return its output."""
    variables = {"RELPOS_SHORT": "0", "PATH": "/usr/bin:/bin", **environment}
    done = subprocess.run([sys.executable, "-P", "-c", BEGIN + text], capture_output=True, text=True, timeout=120,
                          env=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_no_threads_beside_those_of_torch():
    before, after, own = run("""
torch.set_num_threads(3)
for n in range(3): torch_works()
before = threads()
call(); call(threads=3)
after = threads()
relpos.attention(q.numpy(), k.numpy(), v.numpy(), threads=3)
print(before, after, threads())
""")
    assert int(before) >= 3
    assert before == after  # it used the existing threads
    assert int(own) == int(after) + 2  # NumPy calls use the library's threads


@pytest.mark.parametrize("limit, environment", [("torch.set_num_threads(1)", {}), ("", {"OMP_NUM_THREADS": "1"}),
                                                ("torch.set_num_threads(3)", {"RELPOS_THREADS": "1"})])
def test_as_many_threads_as_torch_has(limit, environment):
    before, one, more = run(f"""
{limit}
before = threads()
call()
one = threads()
call(threads=3)
print(before, one, threads())
""", **environment)
    assert before == one
    assert int(more) == int(one) + 2


def test_the_number_is_read_in_each_call():
    assert run("""
torch.set_num_threads(2); call(); two = threads()
torch.set_num_threads(4); call(); four = threads()
print(four - two)
""") == ["2"]


def inputs(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 4, n, 16, generator=generator).requires_grad_() for n in (300, 400, 400)]


def gradients(q, k, v, table):
    out = relpos.attention(q, k, v, bias=relpos.T5(table), causal=True, q_offset=100)
    return [out, *torch.autograd.grad(out.square().sum(), (q, k, v, table))]


def test_the_bits_do_not_depend_on_torchs_threads():
    table, before = torch.randn(32, 4).requires_grad_(), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        want = gradients(*inputs(), table)
        for threads in (2, 3, 7):
            torch.set_num_threads(threads)
            for _ in range(3):
                torch.randn(500, 500) @ torch.randn(500, 500)
                for got, x in zip(gradients(*inputs(), table), want):
                    assert torch.equal(got, x)
    finally:
        torch.set_num_threads(before)
    arrays = [x.detach().numpy() for x in inputs()]
    out = relpos.attention(*arrays, bias=relpos.T5(table.detach().numpy()), causal=True, q_offset=100, threads=2)
    np.testing.assert_array_equal(want[0].detach(), out)


def test_several_threads_of_python_at_once():
    table, found = torch.randn(32, 4).requires_grad_(), {}
    want = gradients(*inputs(), table)

    def work(n):
        for _ in range(5):
            found[n] = all(torch.equal(x, y) for x, y in zip(gradients(*inputs(), table), want)) and found.get(n, True)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
    assert found == dict.fromkeys(range(4), True)


def test_a_forked_child_computes():
    """A forked child does not inherit OpenMP's threads. An OpenMP region in the child would wait for them forever, as
    torch's own operations do."""
    assert run("""
torch.set_num_threads(3)
torch_works()
want = call()
child = os.fork()
if child == 0:
    os._exit(0 if all(np.array_equal(x.numpy(), want.numpy()) for x in (call(), call(threads=2))) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), torch.equal(call(), want))
""") == ["0", "True"]


def test_workers_of_a_data_loader():
    assert run("""
want = call()
torch_works()
class Set(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, n): return call()
found = list(torch.utils.data.DataLoader(Set(), batch_size=None, num_workers=2))
print(len(found), all(torch.equal(x, want) for x in found))
""") == ["4", "True"]
