"""Exact attention with relative positions, forward and backward, on a CPU.

    >>> import numpy as np, relpos
    >>> q = k = v = np.ones((1, 8, 100, 64), np.float32)
    >>> relpos.attention(q, k, v, bias=relpos.ALiBi(), causal=True).shape
    (1, 8, 100, 64)

NumPy arrays in, NumPy arrays out; torch tensors in, torch tensors out. docs/terms.md has the formula of every term.

SPDX-License-Identifier: Apache-2.0"""
from typing import NamedTuple

from . import _core
from ._terms import TERMS, Sum, Term

globals().update({cls.__name__: cls for cls in TERMS.values()})
__version__ = _core.config()["version"]


class Summary(NamedTuple):
    """What `attention(..., summary=True)` adds: for each head the mean weight of each offset key - query from the lowest up,
    the weight that each key received, and the entropy of each row in nats."""

    profile: object
    key_mass: object
    entropy: object


class Result(NamedTuple):
    """The results of one call; None where not asked for."""

    out: object
    weights: object
    lse: object
    summary: object


def attention(q, k, v, *, bias=None, rope=None, relkey=None, relval=None, sink=None, causal=False, window=None, key_mask=None,
              mask=None, lengths=None, segments=None, scale=None, softcap=None, softcap_after=False, q_offset=None, dropout=0.0,
              seed=0, return_weights=False, return_lse=False, summary=False, threads=None, precision="highest", out=None):
    """softmax(softcap(scale q k^T + relkey) + bias) (v + relval), in memory that grows with the length.

    >>> import numpy as np, relpos
    >>> q = k = v = np.eye(4, dtype=np.float32).reshape(1, 1, 4, 4)
    >>> relpos.attention(q, k, v, bias=relpos.Linear(left=9, right=9)).argmax(-1)
    array([[[0, 1, 2, 3]]])
    """
    result = _core.attention(q, k, v, bias=bias, rope=rope, relkey=relkey, relval=relval, sink=sink, causal=causal, window=window,
                             key_mask=key_mask, mask=mask, lengths=lengths, segments=segments, scale=scale, softcap=softcap,
                             softcap_after=softcap_after, q_offset=q_offset, dropout=dropout, seed=seed, threads=threads,
                             precision=precision, out=out, return_weights=return_weights, return_lse=return_lse, summary=summary)
    if not (return_weights or return_lse or summary):
        return result
    return Result(*result[:3], Summary(*result[3]) if summary else None)


def show_config():
    """What this build and this machine have.

    >>> import relpos
    >>> sorted(relpos.show_config())
    ['compiler', 'isa', 'isas', 'threads', 'version']
    """
    return _core.config()
