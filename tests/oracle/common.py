"""common.py -- write the cases. Each case is a .safetensors file and a line in cases.txt.

SPDX-License-Identifier: Apache-2.0
"""
import os
import zlib

import torch
from safetensors.torch import save_file

import contract

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(HERE, "cases")
LIST = os.path.join(HERE, "cases.txt")
torch.set_num_threads(1)


def seed(name):
    """Seed the random numbers, so that they depend only on the name of the case."""
    torch.manual_seed(zlib.crc32(name.encode()))


def randn(*shape, scale=1.0):
    return torch.randn(*shape, dtype=torch.float64) * scale


def error(found, want):
    """Return the largest |found - want| / (1 + |want|). Infinities must be equal."""
    found, want = found.to(torch.float64), want.to(torch.float64)
    if found.shape != want.shape:
        raise AssertionError("shape %s, expected %s" % (tuple(found.shape), tuple(want.shape)))
    finite = want.isfinite()
    if not torch.equal(found[~finite], want[~finite]):
        raise AssertionError("infinities or NaN differ")
    return ((found - want).abs() / (1 + want.abs()))[finite].max().item() if finite.any() else 0.0


def heads(x, n):
    """Split the heads of a projection: (B,L,n*D) -> (B,n,L,D)."""
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


class Tap:
    """Records the output or the input of modules of a peer during one forward pass."""

    def __init__(self, **modules):
        """name=module records the output of the module, and name=(module,) its first input."""
        self.seen, self.hooks = {}, []
        for name, m in modules.items():
            if isinstance(m, tuple):
                self.hooks.append(m[0].register_forward_pre_hook(lambda _, args, name=name: self.keep(name, args[0])))
            else:
                self.hooks.append(m.register_forward_hook(lambda _, args, out, name=name: self.keep(name, out)))

    def keep(self, name, x):
        self.seen.setdefault(name, x)

    def __getitem__(self, name):
        return self.seen[name]

    def close(self):
        for h in self.hooks:
            h.remove()


def randomize(module):
    """Set random weights of a size that keeps projections, scores and biases of order one."""
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(0.0, 0.5)
        for m in module.modules():
            if isinstance(m, torch.nn.Linear):
                m.weight.normal_(0.0, m.in_features ** -0.5)
    return module.double().eval()


def gradients(out, dout, **tensors):
    """Return the gradient of sum(out * dout) with respect to each tensor, by autograd through the peer, under the names
    that the results of a case have."""
    found = torch.autograd.grad((out * dout).sum(), list(tensors.values()))
    return {"d" + n: g for n, g in zip(tensors, found)}


class Family:
    """The cases of one script. All their names begin with `prefix` and an underscore."""

    def __init__(self, prefix):
        self.prefix, self.lines = prefix + "_", []

    def case(self, name, tolerance, arguments, arrays, want=None, stored=None):
        """Compare `want` (the peer's numbers) with the contract's formula, and write the case.

        Without `want`, write the formula's numbers. `stored` replaces arrays in the file only.
        """
        assert name.startswith(self.prefix), name
        arguments = " ".join(arguments.split())
        own = contract.evaluate(arguments, arrays)
        worst = 0.0
        if want is None:
            want = own
        else:
            for n in want:
                e = error(own[n], want[n])
                if e > tolerance:
                    raise AssertionError("%s: the peer's %s and the contract's differ by %.3g" % (name, n, e))
                worst = max(worst, e)
        tensors = dict(arrays, **(stored or {}))
        tensors.update({"want." + n: x for n, x in want.items()})
        tensors = {n: x.detach().clone().contiguous() for n, x in tensors.items()}
        os.makedirs(CASES, exist_ok=True)
        path = os.path.join(CASES, name + ".safetensors")
        save_file(tensors, path)
        os.chmod(path, 0o644)
        size = os.path.getsize(path)
        assert size <= 60 * 1024, "%s: %d bytes" % (name, size)
        self.lines.append("%s | %g | %s" % (name, tolerance, arguments))
        print("%-36s %6d bytes   peer against contract %.1e" % (name, size, worst))

    def finish(self):
        """Replace the lines of this script in cases.txt, and remove its cases that no longer exist."""
        old = open(LIST).read().splitlines() if os.path.exists(LIST) else []
        lines = [x for x in old if x.strip() and not x.startswith(self.prefix)] + self.lines
        with open(LIST, "w") as f:
            f.write("\n".join(sorted(lines)) + "\n")
        names = {x.split(" | ")[0] for x in lines}
        for file in os.listdir(CASES):
            if file.startswith(self.prefix) and file.removesuffix(".safetensors") not in names:
                os.remove(os.path.join(CASES, file))
