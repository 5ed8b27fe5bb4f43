"""Keys and values of a decoder that grow by appending, with their norms.  SPDX-License-Identifier: Apache-2.0"""
import numpy as np

from . import _core

BLOCK = 64  # keys that share a norm: RP_NORM_KEYS


class Cache:
    """Keys and values that grow, for decoding. When they no longer fit their arrays, they are copied to larger ones, so
    appending a key usually copies only this key.

    A cache keeps `relpos.key_norms` of its keys. With them, a step skips keys that are so far away that their weights
    are 0, as with ALiBi and forget gates, and the result has the same bits. A call of a `Plan` takes the cache in place
    of k and v: plan(q, cache). For `relpos.attention`, pass cache.k, cache.v and key_norms=cache.key_norms.

    k            the keys, (B, Hk, L, D), a view of a larger array; None before the first `append`
    v            the values, (B, Hk, L, Dv)
    key_norms    the largest norm in each block of 64 keys, (B, Hk, ceil(L / 64))

    Change k and v only through the methods, which keep the norms up to date.

    >>> import numpy as np, relpos
    >>> plan, cache = relpos.Plan(1, 8, 1, 64, 16, bias=relpos.ALiBi(), causal=True), relpos.Cache()
    >>> q = k = v = np.ones((1, 8, 1, 16), np.float32)
    >>> for n in range(3):
    ...     cache.append(k, v)
    ...     out = plan(q, cache, q_offset=n)
    >>> len(cache), cache.k.shape, cache.key_norms.shape
    (3, (1, 8, 3, 16), (1, 8, 1))
    """

    __slots__ = ("k", "v", "_arrays")

    def __init__(self):
        self.k = self.v = self._arrays = None

    def __len__(self):
        return 0 if self.k is None else self.k.shape[2]

    @property
    def key_norms(self):
        """The norms of the blocks of 64 keys, as from `relpos.key_norms`; None before the first `append`."""
        return None if self.k is None else self._arrays[2][:, :, :-(-len(self) // BLOCK)]

    def append(self, k, v):
        """Append the keys (B, Hk, n, D) and values (B, Hk, n, Dv) of n tokens."""
        own = (k, v) if self.k is None else (self.k, self.v)
        for name, x, width in ("k", k, own[0].shape[-1]), ("v", v, own[1].shape[-1]):
            if len(x.shape) != 4:
                raise ValueError(f"{name} has {len(x.shape)} axes, expected 4: (B, Hk, n, D)")
            expected = (*own[0].shape[:2], k.shape[2], width)
            if tuple(x.shape) != expected or x.dtype != own[0].dtype:
                raise ValueError(f"{name} has shape {tuple(x.shape)} and elements of {x.dtype}, expected {expected} "
                                 f"and {own[0].dtype}")
        length = len(self)
        new = length + k.shape[2]
        if self.k is None or new > self._arrays[0].shape[2]:
            norm = _core.key_norms(k[:, :, :1], v[:, :, :1], None, 0)  # an array of the same library as k
            self._move((k, v, norm), range(len(k)), new + new // 4)
        self._arrays[0][:, :, length:new], self._arrays[1][:, :, length:new] = k, v
        self._show(new)
        _core.key_norms(self.k, self.v, self._arrays[2], length)

    def reorder(self, rows):
        """Replace the batch entries by those at the indices `rows`, as in beam search. An index may occur several
        times."""
        if self.k is not None:
            self._move(self._arrays, [int(b) for b in rows], self._arrays[0].shape[2])

    def crop(self, length):
        """Keep only the first `length` keys."""
        if not 0 <= length <= len(self):
            raise ValueError(f"length is {length}, expected 0 to {len(self)}, the number of keys")
        if self.k is not None:
            self._show(length)  # a norm may then be larger than those of the keys it covers, which is still a bound

    def _move(self, like, rows, capacity):
        """Copy the batch entries `rows` to new arrays for `capacity` keys, rounded up. `like` has arrays of the same
        types and widths."""
        blocks, length, arrays = -(-capacity // BLOCK), len(self), []
        for n, (x, keys, used) in enumerate(zip(like, (BLOCK * blocks, BLOCK * blocks, blocks),
                                                (length, length, -(-length // BLOCK)))):
            shape = (len(rows), x.shape[1], keys, *x.shape[3:])
            arrays.append(x.new_empty(shape) if hasattr(x, "new_empty") else np.empty(shape, x.dtype))
            for b, row in enumerate(rows if used else ()):
                arrays[n][b, :, :used] = self._arrays[n][row, :, :used]
        self._arrays = arrays
        self._show(length)

    def _show(self, length):
        self.k, self.v = (x[:, :, :length] for x in self._arrays[:2])
