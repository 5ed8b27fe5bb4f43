#!/usr/bin/env python3
"""Write the files in this folder with NumPy and safetensors. tests/io/test_files.c checks their content:

x[i] = i in the shape (2, 3, 4), in every type that both sides support.
SPDX-License-Identifier: Apache-2.0
"""
import io
import os
import numpy as np
import safetensors

here = os.path.dirname(os.path.abspath(__file__))
x = np.arange(24).reshape(2, 3, 4)
types = {"f32": "<f4", "f64": "<f8", "f16": "<f2", "bool": "?", "u8": "u1", "i8": "i1", "u16": "<u2", "i16": "<i2",
         "u32": "<u4", "i32": "<i4", "u64": "<u8", "i64": "<i8"}
arrays = {name: x.astype(code) for name, code in types.items()}
odd = {
    "big": x.astype(">f8"), "fortran": np.asfortranarray(x.astype("<f4")), "both": np.asfortranarray(x.astype(">i2")),
    "rank0": np.float32(7), "empty": np.zeros((3, 0, 2)), "one": np.ones(1, "<f4"),
    "object": np.array([1, "two"], dtype=object), "fields": np.zeros(2, [("a", "<f4"), ("b", "<i2", (3,))]),
    "complex": np.zeros(2, "<c8"), "text": np.array(["ab"]), "void": np.zeros(3, "V2"), "naïve/ключ": np.arange(3),
}


def path(name):
    return os.path.join(here, name)


class Unseekable(io.RawIOBase):
    """A file that cannot seek, so zipfile writes data descriptors after the members."""

    def __init__(self, name):
        self.file = open(name, "wb")

    def writable(self):
        return True

    def write(self, data):
        return self.file.write(data)

    def close(self):
        self.file.close()


np.savez(path("numpy.npz"), **arrays)
np.savez_compressed(path("numpy_deflated.npz"), **arrays)
np.savez_compressed(path("numpy_odd.npz"), **odd)
with Unseekable(path("numpy_pipe.npz")) as pipe:
    np.savez(pipe, **arrays)
np.savez(path("numpy_empty.npz"))

spelt = {"f": "float", "i": "int", "u": "uint", "b": "bool"}
raw = {name: (spelt[name[0]] + name[1:] if name != "bool" else "bool", x.shape, a) for name, a in arrays.items()}
raw["bf16"] = ("bfloat16", x.shape, (x.astype("<f4").view("<u4") >> 16).astype("<u2"))
raw["fp8"] = ("float8_e4m3fn", (4,), np.zeros(4, "u1"))
tensors = {name: safetensors.TensorSpec(dtype=dtype, shape=list(shape), data_ptr=a.ctypes.data, data_len=a.nbytes)
           for name, (dtype, shape, a) in raw.items()}
with open(path("reference.safetensors"), "wb") as file:
    file.write(safetensors.serialize(tensors, {"source": "make.py"}))
