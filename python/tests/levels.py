"""End the levels of transforms of torch that a failed trace leaves behind: later code would run in them.

SPDX-License-Identifier: Apache-2.0"""


def levels_end():
    import torch
    from torch.autograd import forward_ad
    while torch._C._functorch.peek_interpreter_stack() is not None:
        torch._C._functorch.pop_dynamic_layer_stack()
    while forward_ad._current_level >= 0:
        forward_ad.exit_dual_level()
