"""Check that the structs of bench/relpos_ctypes.py are those of the library: compute one attention and its gradients.
Needs no PyTorch.

    bench_structs.py LIBRELPOS

SPDX-License-Identifier: Apache-2.0"""
import ctypes
import math
import sys
from pathlib import Path
from unittest import mock

sys.modules["torch"] = mock.MagicMock()
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from relpos_ctypes import Array, Desc, Grads, Mask, Tensors, Term, load  # noqa: E402

F32, LENGTH, WIDTH = 0, 3, 4


def array(values, *shape):
    """Return an array of f32, and the memory that it points to."""
    memory = (ctypes.c_float * math.prod(shape))(*values)
    a = Array(ctypes.addressof(memory), F32, len(shape))
    a.shape[: len(shape)] = shape
    for x in range(len(shape)):
        a.stride[x] = math.prod(shape[x + 1:])
    return a, memory


def main():
    lib = load(sys.argv[1])

    def good(status):
        if status:
            sys.exit(f"bench_structs: {lib.rp_last_error().decode()} (compare bench/relpos_ctypes.py with "
                     "include/relpos/relpos.h)")

    desc = Desc(ctypes.sizeof(Desc), 1, 1, 1, LENGTH, LENGTH, WIDTH, WIDTH, F32, -math.inf,
                term_size=ctypes.sizeof(Term), mask_size=ctypes.sizeof(Mask))
    plan, tensors, grads, keep = ctypes.c_void_p(), Tensors(ctypes.sizeof(Tensors)), Grads(ctypes.sizeof(Grads)), {}
    good(lib.rp_plan_create(ctypes.byref(plan), ctypes.byref(desc)))
    for to, names in ((tensors, "q k v out"), (grads, "dout dq dk dv")):
        for n, name in enumerate(names.split()):
            a, keep[name] = array([math.sin(n + 2 * x) for x in range(LENGTH * WIDTH)], 1, 1, LENGTH, WIDTH)
            setattr(to, name, a)
    tensors.lse, keep["lse"] = array([0] * LENGTH, 1, 1, LENGTH)
    good(lib.rp_attend(plan, ctypes.byref(tensors), None))
    good(lib.rp_backward(plan, ctypes.byref(tensors), ctypes.byref(grads), None))
    q, k, v = ([keep[name][x: x + WIDTH] for x in range(0, LENGTH * WIDTH, WIDTH)] for name in "qkv")
    for i in range(LENGTH):
        scores = [math.exp(sum(map(float.__mul__, q[i], k[j])) / math.sqrt(WIDTH)) for j in range(LENGTH)]
        for c in range(WIDTH):
            want = sum(s * v[j][c] for j, s in enumerate(scores)) / sum(scores)
            if not abs(keep["out"][i * WIDTH + c] - want) < 1e-5:
                sys.exit(f"bench_structs: out[{i}][{c}] is {keep['out'][i * WIDTH + c]}; expected {want}")


if __name__ == "__main__":
    main()
