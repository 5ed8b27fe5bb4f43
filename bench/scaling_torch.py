"""Ask torch's own context parallelism for attention over two processes of this machine (gloo), and print what it
answers as JSON lines.

    build/venv/bin/python bench/scaling_torch.py          bench/scaling.py runs this and keeps the answers

Each case calls scaled_dot_product_attention in torch.distributed.tensor.experimental.context_parallel. A line has the
case, and the error, or the largest differences from one process and from attention of each process's rows to its own
keys only.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import socket

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention as sdpa

H, N, D = 2, 1024, 64
CASES = {"no bias": {}, "causal": {"is_causal": True}, "dense bias": {"bias": True}}


def answer(mesh, how):
    from torch.distributed.tensor.experimental._attention import context_parallel, context_parallel_unshard
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, H, N, D) for _ in range(3))
    bias = torch.randn(1, H, N, N) if how.get("bias") else None
    causal = how.get("is_causal", False)
    whole = sdpa(q, k, v, attn_mask=bias, is_causal=causal)
    buffers, axes = [q, k, v], [2, 2, 2]
    if bias is not None:  # the rows of the bias are those of the queries
        buffers, axes = [*buffers, bias], [*axes, 2]
    with context_parallel(mesh, buffers=buffers, buffer_seq_dims=axes, no_restore_buffers=set(buffers)):
        out = sdpa(q, k, v, attn_mask=bias, is_causal=causal)
    local = sdpa(q, k, v, attn_mask=bias, is_causal=causal)
    gathered = context_parallel_unshard(mesh, [out], [2])[0]
    return {"difference": float((gathered - whole).abs().max()),
            "difference_from_local": float((out - local).abs().max())}


def work(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    mesh = dist.init_device_mesh("cpu", (2,))
    for name, how in CASES.items():
        try:
            found = answer(mesh, how)
        except Exception as error:  # what it answers is the result
            found = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        if rank == 0:
            print(json.dumps({"case": name, "torch": torch.__version__, **found}, allow_nan=False), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(work, (port,), nprocs=2)
