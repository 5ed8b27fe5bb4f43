"""Check that all processes of a group make the same call, before any of them waits for keys of another.

SPDX-License-Identifier: Apache-2.0"""
import hashlib

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import relpos

from .. import _core, _terms
from ._layout import local_length

# Options that may differ: they do not change which messages are sent.
_OWN = {"seed", "threads"}


def resolve(group):
    """Return the process group of a group, a mesh with one dimension or None."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError('torch.distributed is not initialized; call torch.distributed.init_process_group("gloo") '
                           'first')
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise ValueError(f"the mesh has the dimensions {group.mesh_dim_names or group.ndim}, expected one; pass "
                             f'mesh["{(group.mesh_dim_names or ("cp",))[-1]}"]')
        group = group.get_group()
    group = dist.group.WORLD if group is None else group
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"group is of type {type(group).__name__}, expected a process group or a DeviceMesh")
    backend = dist.get_backend(group)
    if not any(name in backend for name in ("gloo", "mpi", "fake", "undefined")):
        raise ValueError(f'the group has the backend {backend}, which has no messages of CPU tensors; use "gloo"')
    return group


def gather_numbers(numbers, group):
    """Return the integers of all processes, a list for each."""
    found = [torch.empty(len(numbers), dtype=torch.int64) for _ in range(group.size())]
    dist.all_gather(found, torch.tensor(numbers, dtype=torch.int64), group=group)
    return [x.tolist() for x in found]


def _shown(value):
    """Describe the value of an option, without the elements of arrays."""
    return _terms._show(value) if hasattr(value, "shape") and value.shape else repr(value)


def describe(q, k, v, options):
    """Return what must be the same in all processes, as a list of (name, value)."""
    found = [("the version of relpos", relpos.__version__), ("the instruction set", _core.config()["isa"])]
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4:
            raise ValueError(f"{name} has {x.dim()} axes, expected (B, H, L, D)")
        shape = ["L" if n == 2 else size for n, size in enumerate(x.shape)]
        found.append((name, f"{str(x.dtype).removeprefix('torch.')}{shape}".replace("'", "")))
    if k.shape[2] != v.shape[2]:
        raise ValueError(f"k has {k.shape[2]} keys and v has {v.shape[2]}")
    found += [(name, _shown(value)) for name, value in sorted(options.items()) if name not in _OWN]
    return found


def agree(group, describe_call, gradients, len_q, len_k):
    """Raise the same error in all processes if a call differs in one of them. Return the lengths of the whole sequence.
    `describe_call` returns the description of this process, or raises the error of a wrong call."""
    try:
        own = [*describe_call(), ("the gradients that are computed", gradients())]
        failed = None
    except (TypeError, ValueError) as why:
        own, failed = [("the call", f"{type(why).__name__}: {why}")], why
    digest = int.from_bytes(hashlib.blake2b(repr(own).encode(), digest_size=7).digest(), "big")
    numbers = gather_numbers([digest, failed is not None, len_q, len_k], group)
    if any(one[1] or one[0] != numbers[0][0] for one in numbers):
        _raise_difference(group, own, failed)
    totals = [sum(one[n] for one in numbers) for n in (2, 3)]
    for n, name, total in ((2, "q", totals[0]), (3, "k", totals[1])):
        lengths, expected = [one[n] for one in numbers], [local_length(total, len(numbers), rank)
                                                          for rank in range(len(numbers))]
        if lengths != expected:
            raise ValueError(f"{name} has {lengths} rows on the ranks 0 to {len(numbers) - 1}, expected {expected}; "
                             "use relpos.torch.distributed.shard")
    return totals


def _raise_difference(group, own, failed):
    """Raise the error of the first process whose call is wrong or differs from that of rank 0."""
    every = [None] * group.size()
    dist.all_gather_object(every, own, group=group)
    for rank, one in enumerate(every):
        if one[0][0] == "the call":
            if failed is not None and rank == group.rank():
                raise failed
            raise ValueError(f"rank {rank}: {one[0][1]}")
    rank, one = next((rank, one) for rank, one in enumerate(every) if one != every[0])
    first, other = dict(every[0]), dict(one)
    name = next(name for name in {**first, **other} if first.get(name) != other.get(name))
    raise ValueError(f"rank {rank}: {name} is {other.get(name, 'not given')}, but {first.get(name, 'not given')} on "
                     "rank 0; make the same call "
                     "in all processes")
