"""Checks of the numbers that modules are constructed with.

SPDX-License-Identifier: Apache-2.0"""
import operator

from torch import Tensor


def need_sizes(lowest: int = 1, **sizes) -> None:
    """Raise unless each size is an integer, `lowest` or more."""
    for name, size in sizes.items():
        try:
            fits = not isinstance(size, bool) and operator.index(size) >= lowest
        except TypeError:
            fits = None
        if not fits:
            error = TypeError if fits is None else ValueError
            raise error(f"{name} is {size!r}, expected an integer, {lowest} or more")


def need_dropout(**rates) -> None:
    """Raise unless each rate is a number from 0 up to, but not including, 1. relpos.attention checks tensors."""
    for name, rate in rates.items():
        if isinstance(rate, Tensor):
            continue
        if isinstance(rate, bool) or not isinstance(rate, (int, float)):
            raise TypeError(f"{name} is {rate!r}, expected a number")
        if not 0 <= rate < 1:
            raise ValueError(f"{name} is {rate}, expected 0 or more and below 1")


def need_heads(embed_dim: int, num_heads: int) -> None:
    """Raise unless embed_dim is a multiple of num_heads."""
    need_sizes(embed_dim=embed_dim, num_heads=num_heads)
    if embed_dim % num_heads != 0:
        raise ValueError(f"embed_dim is {embed_dim}, expected a multiple of num_heads, {num_heads}")
