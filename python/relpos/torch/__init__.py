"""Attention modules with relative positions. Importing relpos.torch also registers relpos.attention as an operator for
torch.compile, torch.export and torch.jit.trace.

    >>> import torch, relpos.torch
    >>> layer = relpos.torch.T5Attention(64, num_heads=8)
    >>> out, position_bias = layer(torch.randn(2, 100, 64))     # pass position_bias to the following layers
    >>> out.shape
    torch.Size([2, 100, 64])

The attention modules call relpos.attention, so their memory grows linearly with the length, forward and backward, apart
from masks that you pass, weights that you request, and cases that a docstring names under "Memory". Parameters have the
names and shapes of the tutorial or library that the module comes from, so its saved weights load. Offsets are key -
query unless a docstring states otherwise. Tested with PyTorch 2.12 and 2.15; importing with an older version raises
ImportError.

Attention weights that a module returns have gradients. torch.func, forward-mode and second derivatives work for
outputs, not for attention weights. torch.autocast casts queries, keys and values as for torch's own attention; float64
and learned arrays keep their types. torch.jit.trace records relpos.attention as an operator; import this module before
you load the trace. ONNX export raises.

SPDX-License-Identifier: Apache-2.0"""
from ..numpy import clip_relative_position, count_position_pairs
from ._functional import scaled_dot_product_attention
from ._multihead import (AdditivePosMultiheadAttention, AdditiveRelMultiheadAttention, ALiBiMultiheadAttention,
                         ClippedBiasMultiheadAttention,
                         RoPEMultiheadAttention, RotaryEmbedding, ShawMultiheadAttention)
from ._t5 import RelativePositionalBias, T5Attention, cross_attention_with_bias
from ._textbook import (RelativePositionBiasAttention, RelativePositionEmbedding, RelativeSelfAttention,
                        analyze_position_bias, compute_position_biases, efficient_relative_scores,
                        relative_attention_output, relative_attention_scores)
from ._window import FactorisedWindowAttention, WindowAttention

__all__ = ["RelativePositionBiasAttention", "RelativePositionEmbedding", "RelativeSelfAttention",
           "RelativePositionalBias",
           "T5Attention", "AdditiveRelMultiheadAttention", "AdditivePosMultiheadAttention",
           "ClippedBiasMultiheadAttention",
           "ShawMultiheadAttention", "RoPEMultiheadAttention", "RotaryEmbedding", "ALiBiMultiheadAttention",
           "WindowAttention",
           "FactorisedWindowAttention", "clip_relative_position", "compute_position_biases", "analyze_position_bias",
           "relative_attention_scores", "efficient_relative_scores", "relative_attention_output",
           "count_position_pairs", "cross_attention_with_bias", "scaled_dot_product_attention"]


def __dir__():
    return [*__all__]
