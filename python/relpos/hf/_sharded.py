"""Models whose inputs are shared out by relpos.torch.distributed.context_parallel.
SPDX-License-Identifier: Apache-2.0"""
import sys

import relpos
import torch

NAME = "relpos"  # name of the attention function and of the mask function

# Adapters whose options do not depend on the number of tokens that the model sees, which here is that of one process.
SHARDS = frozenset(("t5", "mt5", "umt5", "switch_transformers", "mpnet", "bloom", "mpt", "gptj", "codegen"))


def distributed():
    """Return relpos.torch.distributed inside its context context_parallel, otherwise None."""
    module = sys.modules.get("relpos.torch.distributed")
    return module if module is not None and module.active() is not None else None


def _refuse(what):
    raise ValueError(f'attn_implementation="{NAME}" in context_parallel: {what}')


def whole(options, length):
    """Convert the options of a mask of `length` local tokens to those of the whole sequence. All processes raise the
    same errors."""
    begins = torch.zeros(0)
    if "segments" in options:
        begins = 1 + (options.pop("segments").diff(dim=-1) != 0).any(0).nonzero()[:, 0]
    array, padded = any(name in options for name in ("mask", "starts", "ends")), "key_mask" in options
    first = int(begins[0]) if len(begins) else -1
    rd = distributed()
    found = rd.gather([length, array, padded, len(begins), first])
    if any(one[1] for one in found):
        _refuse("the mask of this model is an array or has intervals; only padding, causal and sliding masks are "
                "supported")
    if len({one[2] for one in found}) > 1:
        _refuse("some processes pass an attention_mask and others do not")
    for at, (*_, count, first) in zip(rd.first_lengths([one[0] for one in found]), found):
        # transformers takes a jump of position_ids, as between the stretches of a process, for the beginning of a
        # packed sequence
        if count > 1 or count == 1 and first != at:
            _refuse("packed sequences are not supported; pass an attention_mask with the position_ids of one sequence")
    if padded:
        keys = rd.unshard(options.pop("key_mask").long(), 1).bool()
        if not keys.all():
            options["key_mask"] = keys
    return options


def _check_rope(module, length):
    """Raise an error if transformers chooses other frequencies of RoPE in this process than in the whole sequence:
    rope_type dynamic and longrope choose them by the largest position that a process sees. `length` is the number of
    local tokens."""
    config = module.config
    given = getattr(config, "rope_parameters", None) or {}
    for one in [given] if "rope_type" in given else [x for x in given.values() if isinstance(x, dict)]:
        kind, trained = one.get("rope_type"), config.max_position_embeddings
        if kind not in ("dynamic", "longrope"):
            continue
        if kind == "longrope":
            trained = one.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings",
                                                                             trained)
        rd = distributed()
        lengths = [n for n, in rd.gather([length])]
        ends = [max(stop for start, stop in rd.owned(sum(lengths), len(lengths), rank) if start < stop)
                for rank, n in enumerate(lengths) if n]
        if len({max(end, trained) if kind == "dynamic" else end > trained for end in ends}) > 1:
            _refuse(f"RoPE of {type(module).__name__} has rope_type={kind}, and each process would choose frequencies "
                    "by its own positions; "
                    f"use at most {trained} tokens, or one process")


def attend(module, query, key, value, options):
    """Compute attention of the rows of this process."""
    from ._adapters import ADAPTERS
    package, _, file = type(module).__module__.rpartition(".modeling_")
    if package.startswith("transformers.models.") and file in ADAPTERS and file not in SHARDS:
        _refuse(f"{type(module).__name__} computes its positions from the number of tokens, which is that of one "
                "process here")
    if "mask" in options or any(type(term) is relpos.Dense for term in options["bias"] or ()):
        _refuse("masks with four axes and arrays of biases are not supported, because they are those of one process")
    _check_rope(module, query.shape[-2])
    return distributed().context_parallel_attention(query, key, value, **options)
