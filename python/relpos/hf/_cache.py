"""Caches of transformers that keep key norms, so a decoding step with ALiBi skips distant keys.
SPDX-License-Identifier: Apache-2.0"""
import relpos
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from ._masks import traces


class Layer(DynamicLayer):
    """A DynamicLayer whose keys and values are in a relpos.Cache. If other code replaces or changes them, the next
    update copies them to a new one. Without a relpos.Cache, as when torch records gradients, the layer works like
    DynamicLayer."""

    _cache = None  # relpos.Cache, or None
    _seen = None  # versions of its tensors

    @property
    def key_norms(self):
        return self._cache.key_norms if self._kept() else None

    def _versions(self):
        # inference tensors have no version
        return [x.is_inference() or x._version for x in (self._cache.k, self._cache.v)]

    def _kept(self):
        """Return true if the keys and values are those of the relpos.Cache."""
        cache = self._cache
        return cache is not None and self.keys is cache.k and self.values is cache.v and self._seen == self._versions()

    def _fits(self, new, old):
        return (not torch.is_grad_enabled() and not traces() and type(new) is torch.Tensor and new.is_cpu
                and new.dtype == old.dtype)

    def _take(self):
        self.keys, self.values, self._seen = self._cache.k, self._cache.v, self._versions()

    def update(self, key_states, value_states, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if not self._fits(key_states, self.keys) or not self._fits(value_states, self.values):
            self._cache = None
            return super().update(key_states, value_states, *args, **kwargs)
        if not self._kept():
            self._cache = relpos.Cache()
            if self.get_seq_length() > 0:
                self._cache.append(self.keys, self.values)
        self._cache.append(key_states, value_states)
        self._take()
        return self.keys, self.values

    def reset(self):
        super().reset()
        self._cache = None

    def crop(self, *args, **kwargs):
        kept = self._kept()
        super().crop(*args, **kwargs)
        if kept:
            self._cache.crop(self.get_seq_length())
            self._take()

    def _reorder(self, rows):
        self._cache.reorder(rows.tolist())
        self._take()

    def reorder_cache(self, beam_idx):
        self._reorder(beam_idx) if self._kept() else super().reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats):
        if not self._kept():
            return super().batch_repeat_interleave(repeats)
        self._reorder(torch.arange(len(self.keys)).repeat_interleave(repeats))

    def batch_select_indices(self, indices):
        if not self._kept():
            return super().batch_select_indices(indices)
        self._reorder(torch.arange(len(self.keys))[indices])


def update(cache, key, value, index):
    """Append keys and values to layer `index` of a cache. Return all keys and values, and the options of
    relpos.attention for their norms."""
    if cache is None:
        return key, value, {}
    layers = cache.layers if type(cache) is DynamicCache and not traces() and not cache.offloading else ()
    layer = layers[index] if index < len(layers) else None
    if type(layer) is DynamicLayer:
        layer.__class__ = Layer
    key, value = cache.update(key, value, index)
    norms = layer.key_norms if type(layer) is Layer else None
    return key, value, {} if norms is None else {"key_norms": norms}
