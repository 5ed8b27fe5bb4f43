"""The operators of relpos.attention under torch.vmap, and under the older vmap of torch.autograd.

SPDX-License-Identifier: Apache-2.0"""
import itertools

import torch

from ._derivatives import LIBRARY, NAMES, leaves, map_tensors, run
from ._encoding import drops, ranks_of, shares_entries, unbroadcast_of


class _Merge:
    """A call under vmap as one call whose batch has the entries of every index. In `call`, the mapped axis of a tensor,
    of length n, is the first one; `mapped` is the same call with True for tensors that have it."""

    def __init__(self, n, call, mapped):
        self.n, self.call, self.mapped, self.ranks = n, call, mapped, ranks_of(call.options)
        self.unbroadcast = unbroadcast_of(call.options)
        self.absent = 4 - self.axes(call.q, mapped.q)
        self.batch = 1 if self.absent else call.q.shape[mapped.q]
        self.arrays = [self.array(*x) for x in zip(itertools.count(), call.arrays, mapped.arrays)]

    @staticmethod
    def axes(x, mapped):
        return x.dim() - mapped

    def shape(self, x, mapped):
        return x.shape[mapped:]

    def possible(self):
        """Return true unless an array that has no axis for the batch has a mapped axis, or the call is wrong."""
        axes = {self.axes(*x) for x in zip(self.call.inputs[:3], self.mapped.inputs[:3])}
        return len(axes) == 1 and 0 <= self.absent <= 2 and not any(x is None for x in self.arrays)

    def rows(self, x, mapped):
        """Merge the mapped axis of q, k, v or a tensor with the same leading axes. A tensor that the indices share is
        copied for each, because the library writes no out whose elements share memory."""
        merged = (x if mapped else x.expand(self.n, *x.shape))[(slice(None), *(None,) * self.absent)].flatten(0, 1)
        return merged if mapped else merged.contiguous()

    def entries(self, x, mapped, missing):
        """Return an array with an element for each entry. `missing` is the number of absent axes, with the batch."""
        x = x if mapped else x.expand(self.n, *x.shape)
        x = x[(slice(None), *(None,) * missing)]
        return x.expand(self.n, self.batch, *x.shape[2:]).flatten(0, 1)

    def has_batch(self, place):
        """Return true if an array has an axis for the batch."""
        return self.axes(self.call.arrays[place], self.mapped.arrays[place]) == self.ranks.get(place)

    def of_entries(self, place):
        """Return true if an array has an element for each entry of the batch."""
        return self.has_batch(place) and self.shape(self.call.arrays[place], self.mapped.arrays[place])[0] > 1

    def array(self, place, x, mapped):
        """Return an array of the call; None if that is impossible."""
        if not mapped and not self.of_entries(place) and place not in self.unbroadcast:
            return x
        missing = self.ranks.get(place, -1) - self.axes(x, mapped)
        return self.entries(x, mapped, missing) if missing >= 0 else None

    def tangent(self, place, t, mapped):
        """Return the tangent of an array."""
        x = self.call.arrays[place]
        if t is None:
            return t
        if self.arrays[place] is not x:
            return self.entries(t, mapped, self.ranks[place] - self.axes(t, mapped))
        if not mapped and t.shape == x.shape:
            return t
        return self.entries(t, mapped, x.dim() - self.has_batch(place) + 1 - self.axes(t, mapped))

    def made(self, kind):
        """Return the call."""
        tangents, wanted = getattr(self.call, "tangents", None), getattr(self.call, "wanted", None)
        others = {"arrays": ()} | ({} if tangents is None else {"tangents": tangents[:3]})
        call = kind(*map_tensors(self.rows, self.call._replace(**others), self.mapped))._replace(arrays=self.arrays)
        if tangents is not None:
            of_arrays = zip(itertools.count(), tangents[3:], self.mapped.tangents[3:])
            call = call._replace(tangents=[*call.tangents, *(self.tangent(*x) for x in of_arrays)])
        return call if wanted is None else call._replace(per_sample=any(wanted[3:]))

    def split(self, found):
        """Return the results for each index."""
        wanted = getattr(self.call, "wanted", None)
        if wanted is None:
            leading = self.shape(self.call.q, self.mapped.q)[:-2]
            return [x.reshape(self.n, *leading, *x.shape[2:]) for x in found]
        at = [n for n, is_wanted in enumerate(wanted) if is_wanted]
        return [self.gradient(n, x) for n, x in zip(at, found)]

    def gradient(self, n, found):
        """Return the gradient of an input for each index."""
        shape = self.shape(self.call.inputs[n], self.mapped.inputs[n])
        if n < 3:
            return found.reshape(self.n, *shape)
        found = found.unflatten(0, (self.n, self.batch))
        if self.call.per_sample:
            return found.reshape(self.n, self.batch, *shape[self.has_batch(n - 3):])
        return (found if self.of_entries(n - 3) else found.sum(1)).reshape(self.n, *shape)


def _batched(kind, n, axes, values):
    """Return the results of a call for each index of the mapped axes, of length n, on a new first axis: by one call if
    possible, otherwise by one call for each index."""
    call = kind(*map_tensors(lambda x, axis: x if axis is None else x.movedim(axis, 0), values, axes))
    mapped = kind(*map_tensors(lambda x, axis: axis is not None, values, axes))
    if not drops(call.options) and not shares_entries(call.options):  # both depend on the batch entry
        merge = _Merge(n, call, mapped)
        if merge.possible():
            return merge.split(run(kind, *merge.made(kind)))

    def call_of(index):
        return run(kind, *map_tensors(lambda x, is_mapped: x[index] if is_mapped else x, call, mapped))

    return [torch.stack(x) for x in zip(*map(call_of, range(n)))]


def _legacy(kind, values):
    """Return the results of a call under the older vmap of torch.autograd, as in is_grads_batched and vectorize."""
    is_legacy, tensors = torch._C._functorch.is_legacy_batchedtensor, []
    leaves(values, tensors)
    level = next(n for n in itertools.count(1) for x in tensors if is_legacy(x) and not is_legacy(_without(x, n)))
    axes = map_tensors(lambda x, _: 0 if is_legacy(x) and not is_legacy(_without(x, level)) else None, values, None)
    inner = map_tensors(lambda x, axis: x if axis is None else _without(x, level), values, axes)
    n = next(len(_without(x, level)) for x in tensors if is_legacy(x) and not is_legacy(_without(x, level)))
    return [torch._add_batch_dim(x, 0, level) for x in _batched(kind, n, axes, inner)]


def _without(x, level):
    """Return a tensor of the older vmap with the axis of a level first, of length 1 if it has none."""
    return torch._remove_batch_dim(x, level, 1, 0)


def _register(kind):
    def rule(info, axes, *values):
        found = _batched(kind, info.batch_size, axes, values)
        return found, [0] * len(found)

    torch.library.register_vmap(f"relpos::{NAMES[kind]}", rule, lib=LIBRARY)
    torch.library.impl(LIBRARY, NAMES[kind], "Batched")(lambda *values: _legacy(kind, values))


for _kind in NAMES:
    _register(_kind)
