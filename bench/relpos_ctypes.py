"""The structs of include/relpos/relpos.h for ctypes, and a class that calls attention on torch tensors.
SPDX-License-Identifier: Apache-2.0"""
import ctypes
import math
import os

import torch

MAX_AXES, MAX_ARRAYS, MAX_TERMS, MAX_MASKS = 4, 10, 16, 8
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
i32, i64, f64, ptr, size, text = (ctypes.c_int32, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p, ctypes.c_size_t,
                                  ctypes.c_char_p)


def fields(kind, names):
    return [(name, kind) for name in names.split()]


class Array(ctypes.Structure):
    _fields_ = [("data", ptr), ("dtype", i32), ("ndim", i32), ("shape", i64 * MAX_AXES), ("stride", i64 * MAX_AXES)]


class Term(ctypes.Structure):
    _fields_ = (fields(i32, "kind bidirectional") + fields(i64, "left right buckets max_distance") +
                fields(i32, "strategy layout") + fields(i64, "dim") + fields(f64, "base lambda_ rate_left rate_right") +
                fields(i32, "kerple sign") + fields(f64, "c L eps") +
                fields(i64, "width width2 extent grid_h grid_w extra span max_position")
                + fields(i32, "scaling truncate") +
                fields(f64, "factor") + fields(i64, "original_max max_embeddings") +
                fields(f64, "beta_fast beta_slow attention_factor mscale mscale_all_dim low_freq_factor "
                            "high_freq_factor"))


class Mask(ctypes.Structure):
    _fields_ = fields(i32, "kind") + fields(i64, "left right")


class Desc(ctypes.Structure):
    _fields_ = (fields(size, "size") + fields(i64, "batch heads kv_heads len_q len_k dim_k dim_v") +
                fields(i32, "dtype") + fields(f64, "scale softcap softcap_after") + fields(i64, "q_offset")
                + fields(ptr, "terms") +
                fields(i32, "n_terms n_masks") + fields(ptr, "masks") + fields(f64, "dropout") +
                fields(ctypes.c_uint64, "seed") + fields(i32, "flexible precision") + fields(text, "isa")
                + fields(size, "term_size mask_size"))


class Tensors(ctypes.Structure):
    _fields_ = (fields(size, "size") + fields(Array, "q k v out lse weights profile key_mass entropy") +
                [("term", Array * MAX_ARRAYS * MAX_TERMS), ("mask", Array * MAX_MASKS), ("q_offset", Array),
                 ("pages", i64 * 11)] + fields(ptr, "prepared pool progress progress_context") +
                [("key_norms", Array), ("pairs", ptr)] + fields(i64, "key_from key_to")
                + fields(Array, "state_in state_out own_keys") + fields(i64, "row_from row_to"))


class Grads(ctypes.Structure):
    _fields_ = (fields(size, "size") + fields(Array, "dout dlse dq dk dv") + [("term", Array * MAX_ARRAYS * MAX_TERMS)]
                + fields(Array, "dq_in dq_out dkv_in dkv_out dweights dprofile dkey_mass dentropy dsoftcap "
                         "dsoftcap_after"))


def load(path):
    lib = ctypes.CDLL(os.path.abspath(path))
    for name in ("rp_last_error", "rp_version", "rp_isa_default", "rp_isa_name", "rp_plan_isa"):
        getattr(lib, name).restype = text
    lib.rp_plan_work_size.restype = lib.rp_plan_backward_size.restype = size
    return lib


def array(x):
    a = Array(x.data_ptr(), DTYPES[x.dtype], x.ndim)
    a.shape[: x.ndim] = x.shape
    a.stride[: x.ndim] = x.stride()
    return a


class Relpos:
    """A plan with its arrays and scratch memory. A call returns out, or, with dout, (out, dq, dk, dv[, gradient of the
    table]). With one query, the call uses prepared data (rp_prepare), as in decoding. `more` has fields of rp_desc,
    such as isa."""

    def __init__(self, lib, pool, q, k, v, term="", table=None, causal=False, dout=None, **more):
        self.lib, self.plan, self.prepared, self.keep = lib, ptr(), ptr(), (q, k, v, table, dout)
        (b, h, n, d), m = q.shape, k.shape[2]
        desc = Desc(ctypes.sizeof(Desc), b, h, k.shape[1], n, m, d, v.shape[3], DTYPES[q.dtype], -math.inf, 0, 0, m - n,
                    term_size=ctypes.sizeof(Term), mask_size=ctypes.sizeof(Mask))
        if term:
            terms, names = Term(), (ctypes.c_char * 256 * MAX_ARRAYS)()
            self.check(lib.rp_term_parse_sized(term.encode(), ctypes.byref(terms), ctypes.sizeof(Term), names))
            desc.terms, desc.n_terms = ctypes.addressof(terms), 1
        if causal:
            masks = Mask(1, 0, 0)
            desc.masks, desc.n_masks = ctypes.addressof(masks), 1
        for name, value in more.items():
            assert hasattr(Desc, name), f"rp_desc has no field {name} in this version"
            setattr(desc, name, value)
        self.check(lib.rp_plan_create(ctypes.byref(self.plan), ctypes.byref(desc)))
        self.isa = lib.rp_plan_isa(self.plan).decode()
        self.out = torch.empty(b, h, n, v.shape[3], dtype=q.dtype)
        self.t = Tensors(ctypes.sizeof(Tensors))
        self.t.q, self.t.k, self.t.v, self.t.out, self.t.pool = array(q), array(k), array(v), array(self.out), pool
        if table is not None:
            self.t.term[0][0] = array(table)
        self.grads = None
        if dout is not None:
            self.lse = torch.empty(b, h, n)
            self.t.lse = array(self.lse)
            self.grads = [torch.empty_like(x) for x in (q, k, v, table) if x is not None]
            self.g = Grads(ctypes.sizeof(Grads))
            self.g.dout = array(dout)
            self.g.dq, self.g.dk, self.g.dv = map(array, self.grads[:3])
            if table is not None:
                self.g.term[0][0] = array(self.grads[3])
        if n == 1:
            self.check(lib.rp_prepare(ctypes.byref(self.prepared), self.plan, ctypes.byref(self.t)))
            self.t.prepared = self.prepared
        bytes_ = max(lib.rp_plan_work_size(self.plan, pool), lib.rp_plan_backward_size(self.plan, pool) if self.grads
                     else 0)
        self.work = torch.empty(bytes_ + 64, dtype=torch.uint8)
        self.at = ptr(self.work.data_ptr() + -self.work.data_ptr() % 64)

    def check(self, status):
        if status:
            raise RuntimeError(self.lib.rp_last_error().decode())

    def __call__(self):
        self.check(self.lib.rp_attend(self.plan, ctypes.byref(self.t), self.at))
        if self.grads is None:
            return self.out
        self.check(self.lib.rp_backward(self.plan, ctypes.byref(self.t), ctypes.byref(self.g), self.at))
        return (self.out, *self.grads)

    def __del__(self):
        if self.plan:
            self.lib.rp_prepared_destroy(self.prepared)
            self.lib.rp_plan_destroy(self.plan)
