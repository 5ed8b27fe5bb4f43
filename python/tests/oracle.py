"""The reference for the tests: attention computed from its definition, in NumPy and float64. Also finds the program.

SPDX-License-Identifier: Apache-2.0"""
import os
import pathlib

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program():
    """Return the path of the relpos program: RELPOS_PROGRAM, or the one in a build folder."""
    named = os.environ.get("RELPOS_PROGRAM")
    for path in [named] if named else [ROOT / "build/release/relpos", ROOT / "build/dev/relpos"]:
        if pathlib.Path(path).exists():
            return path
    pytest.skip("no program relpos is built (RELPOS_PROGRAM names one)")


def attention(q, k, v, bias=0.0, inner=0.0, keep=True, values=None, scale=None, softcap=0.0, softcap_after=False,
              sink=None):
    """Return (out, weights, lse) for q, k, v [B, H, L, D]. bias, inner (the sum that relkey adds) and keep (true for
    attended pairs) broadcast to [B, H, Lq, Lk]. values [.., Lq, Lk, Dv] are added to v for each pair. sink is [H]."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = (q @ k.swapaxes(2, 3)) * (q.shape[3] ** -0.5 if scale is None else scale) + inner
    if softcap_after is True:
        softcap, softcap_after = 0, softcap
    if softcap:
        s = softcap * np.tanh(s / softcap)
    s = s + bias
    if softcap_after:
        s = softcap_after * np.tanh(s / softcap_after)
    s = np.where(keep, s, -np.inf)
    least = -1e300 if sink is None else np.asarray(sink, np.float64)[:, None, None]
    top = np.maximum(s.max(-1, keepdims=True), least)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(np.asarray(sink, np.float64)[:, None, None] - top)
    with np.errstate(divide="ignore", invalid="ignore"):
        w = np.where(total > 0, e / total, 0.0)
        lse = (np.log(total) + top)[..., 0]
    out = w @ v
    if values is not None:
        out = out + np.einsum("bhij,...ijd->bhid" if values.ndim == 3 else "bhij,hijd->bhid", w, values)
    return out, w, np.where(total[..., 0] > 0, lse, -np.inf)


def offsets(lq, lk, q_offset=0):
    """Return key - query of each pair."""
    return np.arange(lk)[None, :] - (np.arange(lq)[:, None] + q_offset)


def bucket(r, buckets=32, max_distance=128, bidirectional=True):
    """Return T5's buckets. The logarithm is computed in float32, as in T5."""
    r = np.asarray(r)
    first = 0
    if bidirectional:
        buckets //= 2
        first = np.where(r > 0, buckets, 0)
        d = np.abs(r)
    else:
        d = np.maximum(-r, 0)
    exact = buckets // 2
    with np.errstate(divide="ignore"):
        far = np.log(np.float32(d) / np.float32(exact), dtype=np.float32) / np.float32(np.log(max_distance / exact))
    far = exact + np.where(d < 1, 0, far * np.float32(buckets - exact)).astype(np.int64)
    return first + np.where(d < exact, d, np.minimum(far, buckets - 1))
