"""Compare gradients of each sample with those of Opacus: a model whose attention has a T5 table and Shaw's vectors, by
torch.vmap of torch.func.grad, and by Opacus's hooks, which differentiate each module again (mode functorch). Prints the
largest differences in float64. Needs `pip install opacus`, which no test of relpos needs.

SPDX-License-Identifier: Apache-2.0"""
import relpos
import relpos.torch  # noqa: F401 registers the operators
import torch
from opacus.grad_sample import GradSampleModule
from torch import func, nn

B, L, H, D = 5, 12, 2, 8


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.vectors = nn.Parameter(torch.randn(32, H)), nn.Parameter(torch.randn(9, D))

    def forward(self, qkv):
        q, k, v = (x.transpose(1, 2) for x in qkv.unflatten(-1, (3, H, D)).unbind(-3))
        return relpos.attention(q, k, v, bias=relpos.T5(self.table), causal=True,
                                relkey=relpos.RelKey(self.vectors, left=4, right=4)).transpose(1, 2).flatten(2)


def main():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    model = nn.Sequential(nn.Linear(6, 3 * H * D), Attend(), nn.Linear(H * D, 3))
    x, y = torch.randn(B, L, 6), torch.randint(3, (B,))
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters, x, y):
        found = func.functional_call(model, parameters, (x[None],)).mean(1)
        return nn.functional.cross_entropy(found, y[None])

    want = func.vmap(func.grad(loss), (None, 0, 0))(parameters, x, y)
    hooked = GradSampleModule(model, loss_reduction="sum")
    nn.functional.cross_entropy(hooked(x).mean(1), y, reduction="sum").backward()
    for name, p in hooked._module.named_parameters():
        difference = (p.grad_sample - want[name]).abs().max()
        print(f"{name:10} largest {want[name].abs().max():.3g}, difference {difference:.2g}")


if __name__ == "__main__":
    main()
