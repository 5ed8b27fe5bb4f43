"""Attention in windows of a grid, as in Swin.

SPDX-License-Identifier: Apache-2.0"""
import math

import torch
from torch import Tensor, nn

import relpos

from ._functional import _dropout, _join, _masked, _split
from ._numbers import need_dropout, need_sizes


class WindowAttention(nn.Module):
    """Multi-head self-attention in windows of a grid, with a learned bias for each difference of grid positions:
    softmax(q k^T / sqrt(head_dim) + relative_position_bias_table[index(i, j)] + mask) v, followed by the projection
    proj.

    Shapes   x (windows, N, dim), N = Wh Ww, where the windows of one image are consecutive; mask (m, N, N), numbers to
             add, where m divides the number of windows: window w uses mask w mod m.
    Weights  relative_position_bias_table ((2 Wh - 1)(2 Ww - 1), num_heads), qkv (3 num_heads head_dim, dim), proj, as
             in timm's and Swin's WindowAttention. A relative_position_index in the state dict is ignored.
    Sign     query - key: the row of the table is (y_i - y_j + Wh - 1)(2 Ww - 1) + x_i - x_j + Ww - 1.
    Source   Liu et al. 2021, equation 4.

    >>> WindowAttention(32, 4, window_size=(2, 3))(torch.randn(8, 6, 32)).shape
    torch.Size([8, 6, 32])
    """

    def __init__(self, dim: int, num_heads: int, head_dim: int | None = None, window_size: int | tuple[int, int] = 7,
                 qkv_bias: bool = True, attn_drop: float = 0.0, proj_drop: float = 0.0, device=None,
                 dtype=None) -> None:
        super().__init__()
        need_sizes(dim=dim, num_heads=num_heads)
        head_dim = dim // num_heads if head_dim is None else head_dim
        need_dropout(attn_drop=attn_drop, proj_drop=proj_drop)
        of = {"device": device, "dtype": dtype}
        self.dim, self.num_heads, self.attn_drop = dim, num_heads, attn_drop
        height, width = (window_size, window_size) if isinstance(window_size, int) else window_size
        self.window_size = height, width
        need_sizes(head_dim=head_dim, height=height, width=width)
        inner, self.scale = num_heads * head_dim, 1 / math.sqrt(head_dim)
        self._make_tables(height, width, **of)
        self.qkv = nn.Linear(dim, 3 * inner, bias=qkv_bias, **of)
        self.proj = nn.Linear(inner, dim, **of)
        self.proj_drop = nn.Dropout(proj_drop)

    def _make_tables(self, height: int, width: int, **of) -> None:
        self.relative_position_bias_table = nn.Parameter(torch.empty((2 * height - 1) * (2 * width - 1), self.num_heads,
                                                                     **of))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def term(self) -> relpos.Term:
        """Return the biases of a window as a term."""
        return relpos.Swin(self.relative_position_bias_table, grid=self.window_size)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the output, (windows, N, dim)."""
        q, k, v = (_split(part, self.num_heads) for part in self.qkv(x).chunk(3, -1))
        if mask is not None:
            mask = mask.repeat(len(x) // len(mask), 1, 1)[:, None]
        drop = self.attn_drop.p if isinstance(self.attn_drop, nn.Dropout) else self.attn_drop  # a module, as in timm
        out = relpos.attention(q, k, v, scale=self.scale, **_masked(mask, self.term()), **_dropout(self, drop))
        return self.proj_drop(self.proj(_join(out)))

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        state_dict.pop(prefix + "relative_position_index", None)  # the grid determines it
        super()._load_from_state_dict(state_dict, prefix, *args)


class FactorisedWindowAttention(WindowAttention):
    """WindowAttention whose bias is the sum of a bias for rows and a bias for columns, b_h[y_j - y_i] + b_w[x_j - x_i].
    The tables have 2 Wh + 2 Ww - 2 numbers per head instead of (2 Wh - 1)(2 Ww - 1).

    Shapes   as in WindowAttention.
    Weights  bias_h (num_heads, 2 Wh - 1), bias_w (num_heads, 2 Ww - 1), initially zero; qkv and proj as in
             WindowAttention.
    Sign     key - query; column Wh - 1 of bias_h is difference 0.
    Source   the term Axial. A table of Swin whose entries are sums of this form gives the same bias.
    """

    def _make_tables(self, height: int, width: int, **of) -> None:
        self.bias_h = nn.Parameter(torch.zeros(self.num_heads, 2 * height - 1, **of))
        self.bias_w = nn.Parameter(torch.zeros(self.num_heads, 2 * width - 1, **of))

    def term(self) -> relpos.Term:
        """Return the biases of a window as a term."""
        return relpos.Axial(self.bias_h, self.bias_w, grid=self.window_size)
