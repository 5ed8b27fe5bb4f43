"""What the tests of the extension modules of models share: memory and references that calls keep.
SPDX-License-Identifier: Apache-2.0"""
import ctypes
import gc
import sys


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def in_use():
    """Return the bytes that malloc has given out, with glibc, and the blocks of Python."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return 0, sys.getallocatedblocks()
    libc.mallinfo2.restype = Memory
    found = libc.mallinfo2()
    return found.uordblks + found.hblkhd, sys.getallocatedblocks()


def check_that_nothing_is_kept(open_model, close, call, objects):
    """Check that calls keep neither references to the objects, nor memory, nor the model open. Caches grow in some
    rounds, by up to 3700 bytes; a leak grows in each, by at least 32 bytes (the smallest block of malloc) or a block of
    Python for each call."""
    grown = []
    gc.collect()
    gc.freeze()  # else each gc.collect would go through all of torch and transformers, if another test has loaded them
    try:
        for _ in range(3):
            before = in_use()
            model = open_model()
            references = [sys.getrefcount(x) for x in (model, *objects)]
            for _ in range(200):
                call(model)
            assert [sys.getrefcount(x) for x in (model, *objects)] == references
            close(model)
            grown.append([now - then for now, then in zip(in_use(), before)])
    finally:
        gc.unfreeze()
    assert min(kept for kept, _ in grown) < 200 * 32 and min(kept for _, kept in grown) < 200, grown
