#!/usr/bin/env python3
"""Test attn_implementation="relpos" on every model type of transformers' AutoModel, small and with random weights.
Compare outputs and gradients with eager attention. Record memory use, arrays of queries by keys, and, if a model does
not run, the reason.

    tools/hf_models.py --run [NAME...]   test the named models, by default all that were tried before, in two processes:
                                         ten minutes. Exit with 1 if a model that worked in bench/results/hf_models.json
                                         fails or differs
    tools/hf_models.py --save            test all models and write that file
    tools/hf_models.py --try [NAME...]   test the named models, by default all that were not tried, and add them to that
                                         file
    tools/hf_models.py --memory [NAME...]  measure the memory at 4,096 tokens of the named models, by default of all
                                           working ones not yet measured
    tools/hf_models.py --write           write docs/hf-models.md from that file, and the number in docs/hf.md
    tools/hf_models.py --check           exit with 1 if one of them is stale

--write and --check need only the standard library; the other commands need torch, transformers and relpos. Models run
in eval mode, in f64 if possible, with 2 layers if the config allows it. If eager attention cannot run a model with such
a config, the model counts as not tried.
SPDX-License-Identifier: Apache-2.0"""
import json
import os
import re
import select
import signal
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
import hf_configs  # noqa: E402
from made import between, check, root, write  # noqa: E402

saved = root / "bench/results/hf_models.json"
MAPPINGS = "MODEL_MAPPING", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING"
N, LONG, SHORT, MANY, VOCABULARY, SECONDS, MEMORY = 12, 509, 251, 4096, 120, 40, 8 << 30
LOST = f"more than {SECONDS} s, or {MEMORY >> 30} GB"
# relative to the largest output or gradient; many eager attentions compute the softmax in f32
TOLERANCE = {"f64": 2e-5, "f32": 2e-4}


# ---------------------------------------------------------------------------------------------- tiny configs

LAYERS = r"(num_|n_|encoder_|decoder_|.*_)?(hidden_)?layers?|depth|n_layer|num_blocks|n_blocks"
HEADS = r"(.*_)?(num_|n_)?(attention_|attn_|query_)?heads?|n_head"
WIDTHS = (
    r"(.*_)?(hidden_size|hidden_dim|d_model|n_embd|embed_dim|embedding_size|projection_dim|embedding_dim|model_dim"
    r"|dim|width)")
INNER = (
    r"(.*_)?(intermediate_size|ffn_dim|d_ff|d_inner|n_inner|mlp_dim|feed_forward_dim|dim_feedforward|ffn_hidden_size)")


# Ways to make a config small, tried in order until eager attention runs: (layers, reduce widths, reduce images). Six
# layers are for models with several kinds of layers, such as Jamba, whose first two layers may have no attention.
# Unreduced widths are for configs in which widths must agree with other values.
WAYS = (2, True, True), (6, True, True), (2, False, True)


POSITIONS = r"max_(position_embeddings|seq_len|source_positions|target_positions)|n_positions"
at_least = 0  # minimum number of positions; 0: at most 1100 positions


def size_of(key, value, heads, way):
    """Return a small value for a key of a config with this number of heads, or the current value if it needs no
    change."""
    layers, widths, _ = way
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if re.search(r"vocab_size$", key):
        return min(value, VOCABULARY)
    if re.fullmatch(LAYERS, key) and value > layers and "idx" not in key and (widths or "feat_extract" not in key):
        return layers
    if re.search(r"experts?$", key) and value > 4:
        return 4
    if re.search(r"(experts_per_tok(en)?|top_k|topk|moe_k|n_group|topk_group)$", key):
        return 1 if "group" in key else min(value, 2)
    if re.search(POSITIONS, key) and isinstance(value, int):
        return max(value, at_least) if at_least else min(value, 1100)
    if re.fullmatch(INNER, key) and value > 96:
        return 96 if widths else min(value, 512)
    if not widths:
        return value
    if re.search(r"(kv_heads|key_value_heads|num_kv)$", key):
        return min(value, 4 if value == heads else 2)
    if re.fullmatch(HEADS, key) and value > 4:
        return 4
    if re.fullmatch(r"(.*_)?(head_dim|d_kv|d_head|attention_head_size|head_size|kv_channels|rotary_dim)",
                    key) and value > 16:
        return 16
    if re.fullmatch(WIDTHS, key) and value > 64:
        return 64
    if re.search(r"(q_lora_rank|kv_lora_rank)$", key):
        return min(value, 32)
    if re.search(r"(qk_nope_head_dim|v_head_dim|qk_rope_head_dim)$", key):
        return min(value, 16)
    return value


def small(config, PreTrainedConfig, way=WAYS[0]):
    """Make a config and its sub-configs small, in place."""
    old, heads = getattr(config, "num_hidden_layers", None), getattr(config, "num_attention_heads", 4)
    staged = [key for key in ("depths", "num_heads", "hidden_sizes")
              if isinstance(getattr(config, key, None), (list, tuple))]
    if "depths" in staged:  # keep the widths and heads of the stages consistent
        config.depths = [1 if n < len(config.depths) - 1 else 2 for n in range(len(config.depths))]
    for key, value in list(vars(config).items()):
        if isinstance(value, PreTrainedConfig):
            small(value, PreTrainedConfig, way)
        elif isinstance(value, dict) and way[1] and ("mrope_section" in value or way != WAYS[0]
                                                     and re.fullmatch("rope_(parameters|scaling)", key)):
            value["mrope_section"] = [2, 3, 3]
        elif (not key.startswith("_") and not (staged and re.fullmatch(f"{WIDTHS}|{HEADS}", key))
              and (new := size_of(key, value, heads, way)) != value):
            try:
                setattr(config, key, new)
            except (AttributeError, NotImplementedError, ValueError, TypeError):
                pass
    layers = getattr(config, "num_hidden_layers", None)
    for key, value in list(vars(config).items()):  # lists with one entry per layer: keep the first layer of every kind
        if isinstance(value, list) and isinstance(old, int) and isinstance(layers, int) and len(value) == old != layers:
            try:
                kinds = list(dict.fromkeys(map(str, value)))
                first = [next(x for x in value if str(x) == kind) for kind in kinds]
                setattr(config, key, (first + value)[:layers] if len(first) > 1 else value[:layers])
            except (AttributeError, ValueError, TypeError):
                pass
        if re.search(r"_token_(id|index)$", key) and isinstance(value, int) and value >= VOCABULARY:
            setattr(config, key, VOCABULARY - 1 - sum(map(ord, key)) % 20)
    if hasattr(config, "pad_token_id"):
        config.pad_token_id = 0
    if isinstance(rate := getattr(config, "drop_path_rate", None), (int, float)):
        config.drop_path_rate = type(rate)(0)
    if way != WAYS[0]:  # set values that are None in the config but that the model needs
        width, some = (getattr(config, key, None) for key in ("hidden_size", "num_attention_heads"))
        for key, value in (("vocab_size", VOCABULARY), ("prediction_length", 8), ("num_key_value_heads", some),
                           ("head_dim", width // some if isinstance(width, int) and isinstance(some, int)
                            and some else None)):
            if value is not None and getattr(config, key, 0) is None:
                setattr(config, key, value)
    for key in ("image_size", "input_size") if way[2] else ():
        if isinstance(value := getattr(config, key, None), int) and value > 64:
            patch = getattr(config, "patch_size", 16)
            setattr(config, key, 4 * patch if isinstance(patch, int) and 8 <= patch <= 32 else 64)
    return config


# ---------------------------------------------------------------------------------------------- one model

def sizes(config, key):
    """Return the value of a key in a config, or else in the first sub-config that has the key."""
    if getattr(config, key, None) is not None:
        return getattr(config, key)
    for part in vars(config).values():
        if hasattr(part, "to_dict") and (found := sizes(part, key)) is not None:
            return found
    return None


def inputs_of(model, torch, n=N, batch=2):
    """Return candidates for the inputs of a model, as (arguments, rows to compare or None), from the parameters of its
    forward method."""
    import inspect
    takes, config = inspect.signature(model.forward).parameters, model.config
    g = torch.Generator().manual_seed(5)
    words = sizes(config, "vocab_size")
    ids = torch.randint(20, 90, (batch, n), generator=g).clamp(max=max(words - 1, 0) if isinstance(words, int) else 89)
    keep = (torch.arange(n) < torch.tensor([n, max(n // 2, 1)])[:batch, None]).long()
    given = hf_configs.inputs(config.model_type, ids, torch, g) if n == N else None
    found = [(given, None)] if given else []
    if "input_ids" in takes and "attention_mask" in takes:
        given = {"input_ids": ids, "attention_mask": keep}
        if "bbox" in takes:
            given["bbox"] = torch.arange(n)[None, :, None].expand(batch, n, 4).clone()
        if "decoder_input_ids" in takes:
            given |= {"decoder_input_ids": ids.flip(1),
                      **({"decoder_attention_mask": keep} if "decoder_attention_mask" in takes else {})}
        found.append((given, keep))
    if "input_ids" in takes:
        found.append(({"input_ids": ids}, None))
    add_pictures(found, takes, config, torch, g, ids, batch)
    if "visual_feats" in takes:
        given = {"visual_feats": torch.randn(batch, n, sizes(config, "visual_feat_dim"), generator=g,
                                             dtype=torch.float64),
                 "visual_pos": torch.rand(batch, n, sizes(config, "visual_pos_dim"), generator=g, dtype=torch.float64)}
        found.append(({"input_ids": ids, "attention_mask": keep, **given}, keep))
    if "flattened_patches" in takes:
        patches = torch.randn(batch, 24, sizes(config, "patch_embed_hidden_size") + 2, generator=g, dtype=torch.float64)
        patches[..., :2] = torch.stack([torch.arange(24) // 6 + 1, torch.arange(24) % 6 + 1], -1)
        found.append(({"flattened_patches": patches, "decoder_input_ids": ids, "decoder_attention_mask": keep}, keep))
    add_series(found, takes, config, torch, g, ids, batch)
    return found


def add_pictures(found, takes, config, torch, g, ids, batch):
    """Append inputs with pictures or videos."""
    size, channels = sizes(config, "image_size") or 64, sizes(config, "num_channels") or 3
    size = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    if "pixel_values" in takes:
        pixels = torch.randn(batch, channels, *size, generator=g, dtype=torch.float64)
        found.append(({"pixel_values": pixels}, None))
        frames = sizes(config, "num_frames") or 4
        found.append(({"pixel_values": pixels[:, None].repeat(1, frames, 1, 1, 1)}, None))
        if "input_ids" in takes:
            found.insert(0, ({**found[0][0], "pixel_values": pixels}, None))
        more = {"decoder_input_ids": ids} if "decoder_input_ids" in takes else {}
        found += [({"pixel_values": pixels, **more}, None)] if more else []
    if "grid_thw" in takes:  # patches of two images
        grid = torch.tensor([[1, 4, 4], [1, 4, 8]])
        patch, frames = sizes(config, "patch_size") or 14, sizes(config, "temporal_patch_size") or 1
        channels = sizes(config, "in_channels") or channels
        for key in ("hidden_states", "pixel_values"):
            for depth in (channels * frames * patch * patch,
                          channels * patch * patch) if key in takes and isinstance(patch, int) else ():
                given = {key: torch.randn(int(grid.prod(1).sum()), depth, generator=g, dtype=torch.float64),
                         "grid_thw": grid}
                found.append((given | ({"merge_sizes": torch.tensor([1, 1])} if "merge_sizes" in takes else {}), None))
    if "pixel_values_videos" in takes:
        video = torch.randn(batch, sizes(config, "num_frames") or sizes(config, "frames_per_clip") or 4, channels,
                            *size, generator=g, dtype=torch.float64)
        found.append(({"pixel_values_videos": video}, None))
    if "spatial_shapes" in takes:
        patches = torch.randn(batch, 16, channels * (sizes(config, "patch_size") or 16) ** 2, generator=g,
                              dtype=torch.float64)
        given = {"pixel_values": patches, "spatial_shapes": torch.tensor([[4, 4]] * batch),
                 "pixel_attention_mask": torch.ones(batch, 16).long()}
        found.append((given | ({"input_ids": ids} if "input_ids" in takes else {}), None))


def add_series(found, takes, config, torch, g, ids, batch):
    """Append inputs with time series or sound."""
    if "past_values" in takes:  # time series
        length = sizes(config, "context_length") or sizes(config, "prediction_length") or 32
        many = sizes(config, "num_input_channels")
        found.append(({"past_values": torch.randn(batch, length, many or 1, generator=g, dtype=torch.float64)}, None))
        if "past_time_features" in takes:
            length += max(sizes(config, "lags_sequence") or [0])
            found.append(({"past_values": torch.randn(batch, length, generator=g, dtype=torch.float64),
                           "past_time_features": torch.zeros(batch, length, sizes(config, "num_time_features") or 0,
                                                             dtype=torch.float64),
                           "past_observed_mask": torch.ones(batch, length, dtype=torch.float64)}, None))
    if "input_values" in takes:
        values = torch.randn(batch, 4000, generator=g, dtype=torch.float64)
        found += [({"input_values": x}, None) for x in (values, torch.randn(
            batch, 1024, sizes(config, "num_mel_bins") or 128, generator=g, dtype=torch.float64), values[:, None])]
        if "decoder_input_ids" in takes:
            found.append(({"input_values": values, "decoder_input_ids": ids}, None))
    if "input_features" in takes:
        bins = (sizes(config, "num_mel_bins") or sizes(config, "feature_projection_input_dim")
                or sizes(config, "feature_size") or 80)
        frames = 2 * (sizes(config, "max_source_positions") or 50)
        for shape in ((batch, bins, frames), (batch, 60, bins)):
            more = {"decoder_input_ids": ids.clamp(max=60)} if "decoder_input_ids" in takes else {}
            found.append(({"input_features": torch.randn(shape, generator=g, dtype=torch.float64), **more}, None))


def tensors(x, torch, into, depth=0):
    """Append the floating-point tensors of a model's output to `into`, except caches and attention weights."""
    if isinstance(x, torch.Tensor):
        if x.is_floating_point() and x.numel():
            into.append(x)
    elif isinstance(x, (list, tuple)) and depth < 3:
        for y in x:
            tensors(y, torch, into, depth + 1)
    elif isinstance(x, dict) and depth < 3:
        for key in x:
            if not re.search("past|mems|attentions", key):
                tensors(x[key], torch, into, depth + 1)
    return into


def run(model, torch, implementation, given, keep):
    """Return the outputs and the gradients."""
    model.set_attn_implementation(implementation)
    model.zero_grad()
    torch.manual_seed(0)
    found = []
    for x in tensors(dict(model(**given)), torch, []):
        x = x[keep.bool()] if keep is not None and x.shape[:2] == keep.shape else x if keep is None else None
        if x is not None:
            found.append(x)
    g = torch.Generator().manual_seed(2)
    loss = sum((x * torch.randn(x.shape, generator=g, dtype=x.dtype)).sum() for x in found)
    if getattr(loss, "requires_grad", False):
        loss.backward()
    return [x.detach() for x in found], [p.grad.clone() for p in model.parameters() if p.grad is not None]


def distance(got, want):
    """Return the largest difference, relative to the largest number: of each tensor for outputs, of all tensors for
    gradients."""
    if len(got[0]) != len(want[0]) or len(got[1]) != len(want[1]):
        return float("inf")
    apart = [float((a - b).abs().max()) / max(float(b.abs().max()), 1e-30) for a, b in zip(got[0], want[0])
             if b.abs().max() > 0]
    most = max((float(b.abs().max()) for b in want[1] if b.numel()), default=0) or 1
    return max(apart + [float((a - b).abs().max()) / most for a, b in zip(got[1], want[1]) if b.numel()],
               default=float("inf"))


def prepared(cls, config, torch):
    """Return a model in f64. Its random weights, of variance 1 / inputs, make attention far from uniform."""
    torch.manual_seed(0)
    with torch.device("meta"):
        count = sum(p.numel() for p in cls(config).parameters())
    if count > 4e7:
        raise ValueError(f"{count / 1e6:.0f} million parameters")
    model = cls(config).eval().double()
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1 and p.numel() and p.requires_grad:
                p.normal_(std=1 / p[0].numel() ** 0.5, generator=g)
    return model


def first_line(error):
    # remove the path of the packages of this machine
    said = re.sub(r"/\S*/site-packages/", "", f"{type(error).__name__}: {error}")
    return re.sub(r"\s+", " ", said)[:160]


def kind_of(name, way, transformers, modeling_auto):
    """Return the class of a model, and its config after `way` of WAYS has made it small."""
    config = small(transformers.AutoConfig.for_model(name), transformers.PreTrainedConfig, way)
    hf_configs.complete(config, name)
    config._attn_implementation = "eager"
    mappings = [getattr(modeling_auto, mapping) for mapping in MAPPINGS]
    cls = next(mapping[type(config)] for mapping in mappings if type(config) in mapping)
    return cls[0] if isinstance(cls, tuple) else cls, config


def runs(name, way, row, torch, transformers, modeling_auto):
    """Return a small config, its model, inputs with which eager attention runs, rows to compare, and the eager results.
    `way` is an element of WAYS."""
    cls, config = kind_of(name, way, transformers, modeling_auto)
    row["class"] = cls.__name__
    model = prepared(cls, config, torch)
    error, candidates = None, inputs_of(model, torch)
    # the second half runs in f32, for models that do not run in f64
    for n, (given, keep) in enumerate(candidates + candidates):
        try:
            if n == len(candidates):
                model = model.float()
            if n >= len(candidates):
                given = {key: x.float() if x.is_floating_point() else x for key, x in given.items()}
            want = run(model, torch, "eager", given, keep)
            again = run(model, torch, "eager", given, keep)
            if (want[0] and any(x.abs().max() > 1e-9 for x in want[0]) and all(x.isfinite().all() for x in want[0])
                and distance(again, want) < 1e-6):
                row["type"] = "f32" if n >= len(candidates) else "f64"
                return config, model, given, keep, want
            error = error or ValueError("not finite, or not the same twice")
        except Exception as why:
            error = error or why
    raise error or ValueError("no inputs are known for it")


def try_one(name):
    """Test one model and return its row of the results."""
    import relpos
    import relpos.hf
    import torch
    import transformers
    import warnings
    from transformers.models.auto import modeling_auto
    warnings.simplefilter("ignore")
    calls, original = [0], relpos.attention

    def counted(*args, **kwargs):
        calls[0] += 1
        return original(*args, **kwargs)

    relpos.attention = counted
    row = {"model": name}

    for way in WAYS:
        signal.alarm(SECONDS)
        try:
            config, model, given, keep, want = runs(name, way, row, torch, transformers, modeling_auto)
            break
        except Exception as why:
            row.setdefault("why", first_line(why))
    else:
        return row | {"result": "not tried"}
    row.pop("why", None)
    if way != WAYS[0]:
        row["way"] = WAYS.index(way)
    signal.alarm(SECONDS)
    try:
        model.set_attn_implementation("relpos")
    except relpos.hf.Refused as why:
        return row | {"result": "refused", "why": first_line(why)}
    except ValueError as why:
        return row | {"result": "failed", "why": first_line(why)}
    try:
        calls[0] = 0
        got = run(model, torch, "relpos", given, keep)
        row["calls"] = calls[0]
        if not calls[0]:
            return row | {"result": "not used", "why": "does not use the attention functions of transformers"}
        row["distance"] = distance(got, want)
        if row["distance"] > TOLERANCE[row["type"]]:
            try:
                row["distance_sdpa"] = distance(got, run(model, torch, "sdpa", given, keep))
            except Exception as why:
                row["sdpa"] = first_line(why)
        near = min(row["distance"], row.get("distance_sdpa", float("inf"))) <= TOLERANCE[row["type"]]
        row["result"] = "equal" if near else "differs"
    except Exception as why:
        return row | {"result": "failed", "why": first_line(why)}
    row["square"] = squares(model, torch)
    for mapping in (modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING):
        if type(config) in mapping and "generate" not in row and row["result"] == "equal" and "input_ids" in given:
            row["generate"] = generates(mapping[type(config)], config, torch)
    return row


def squares(model, torch):
    """Return True if a forward pass on a text creates an array of queries by keys, False if not, and None if unknown or
    if eager attention creates none either."""
    found = {}
    for implementation in ("relpos", "eager"):
        try:
            model.set_attn_implementation(implementation)
            found[implementation] = grows_twice(*(shapes(model, torch, n) for n in (LONG, SHORT)))
        except Exception:
            return None
    return found["relpos"] if found["eager"] else None


def shapes(model, torch, n):
    """Return the shapes of the tensors that a forward pass on a text of n tokens creates, without views that repeat
    the elements of a smaller tensor."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Shapes(TorchDispatchMode):
        seen = set()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            for x in found if isinstance(found, (tuple, list)) else (found,):
                if isinstance(x, torch.Tensor) and x.untyped_storage().nbytes() >= x.numel() * x.element_size():
                    self.seen.add(tuple(x.shape))
            return found

    given, _ = inputs_of(model, torch, n, 1)[0]
    given = {key: x.to(model.dtype) if x.is_floating_point() else x for key, x in given.items()}
    if "input_ids" not in given:
        raise ValueError("takes no text")
    given = {key: x for key, x in given.items() if "decoder" not in key or "attention" not in key}
    with torch.no_grad(), Shapes() as mode:
        mode.seen = set()
        model(**given)
    return mode.seen


def grows_twice(long, short):
    """Return true if a tensor of the shapes `long`, of a text of LONG tokens, has two axes of at least LONG that grow
    with the text, or one of at least LONG². Axes of units do not grow: they have the same size in `short`, the shapes
    of a shorter text."""
    units = {size for shape in short for size in shape}
    grown = [[size for size in shape if size >= LONG and size not in units] for shape in long]
    return any(len(sizes) > 1 or sizes and sizes[0] >= LONG * LONG for sizes in grown)


def memory_of(name, way):
    """Return the increase of memory in MB during a forward pass on a text of MANY tokens in f32, with relpos and with
    eager attention, or the reason why it cannot be measured."""
    import relpos.hf  # noqa: F401
    import torch
    import transformers
    import warnings
    from transformers.models.auto import modeling_auto
    global at_least
    at_least = MANY + 8  # in many models, each position is a row of a table
    warnings.simplefilter("ignore")

    def of_process(key):
        return int(re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

    def forward(n):
        for given, _ in inputs_of(model, torch, n, 1):
            if "input_ids" in given and not any(x.is_floating_point() for x in given.values()):
                with torch.no_grad():
                    model(**{key: x for key, x in given.items() if "decoder" not in key or "attention" not in key})
                return True
        return False

    found = {}
    try:
        cls, config = kind_of(name, way, transformers, modeling_auto)
        model = prepared(cls, config, torch).float()
        for implementation in ("relpos", "eager"):
            model.set_attn_implementation(implementation)
            if not forward(64):
                return "takes no text alone"
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
            before = of_process("VmRSS")
            forward(MANY)
            found[implementation] = round(of_process("VmHWM") - before)
    except Exception as why:
        return first_line(why)
    return found


def generates(cls, config, torch):
    """Compare generation with a cache under relpos and under eager attention. Return "equal", followed by the number of
    queries per step if steps have more than one; otherwise "differs", "refused", "failed: ..." or "not tried"."""
    import relpos
    try:
        config._attn_implementation = "eager"
        if not config.is_encoder_decoder:
            config.is_decoder = True
        # the f64 mask of eager attention becomes infinite in its f32 softmax
        model = prepared(cls, config, torch).float()
        ids = torch.randint(20, 90, (2, N), generator=torch.Generator().manual_seed(5))
        left = (torch.arange(N) >= torch.tensor([0, N // 2])[:, None]).long()
        options = dict(attention_mask=left, max_new_tokens=8, min_new_tokens=8, do_sample=False, pad_token_id=0,
                       use_cache=True)
        if config.is_encoder_decoder:
            options["decoder_start_token_id"] = 2
        try:
            want = model.generate(ids, **options)
        except Exception:  # eager attention fails with a cache
            del options["use_cache"]
            want = model.generate(ids, **options)
    except Exception:
        return "not tried"
    steps, attend = [], relpos.attention

    def noted(q, *args, **kwargs):
        if steps:  # ignore the encoder, which runs before the first step
            steps[-1].append(q.shape[-2])
        return attend(q, *args, **kwargs)

    try:
        model.set_attn_implementation("relpos")
        model.register_forward_pre_hook(lambda *_: steps.append([]))
        relpos.attention = noted
        if not torch.equal(model.generate(ids, **options), want):
            return "differs"
        most = max((queries for step in steps[1:] for queries in step), default=1)
        return "equal" if most == 1 else f"equal, {most} queries a step"
    except Exception as why:
        return "refused" if isinstance(why, relpos.hf.Refused) else f"failed: {type(why).__name__}: {why}"[:120]
    finally:
        relpos.attention = attend


# ---------------------------------------------------------------------------------------------- the sweep

def forked(work, seconds):
    """Run `work` in a forked child process. Return (process number, read end of the pipe for its result)."""
    read, wrote = os.pipe()
    child = os.fork()
    if child == 0:
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        signal.alarm(seconds)
        os.write(wrote, json.dumps(work(), allow_nan=False).encode())
        os._exit(0)
    os.close(wrote)
    return child, read


def sweep(names, work, lost, seconds=SECONDS, workers=2):
    """Return work(name) for all names. Each runs in a child process with a time limit; lost(name) replaces the result
    of one that fails."""
    waiting, busy, rows = list(names), {}, {}
    while waiting or busy:
        while waiting and len(busy) < workers:
            name = waiting.pop(0)
            child, read = forked(lambda name=name: work(name), seconds)
            busy[read] = (name, child, b"")
        for read in select.select(list(busy), [], [], 1)[0]:
            name, child, text = busy[read]
            more = os.read(read, 1 << 16)
            if more:
                busy[read] = name, child, text + more
                continue
            os.close(read)
            os.waitpid(child, 0)
            del busy[read]
            rows[name] = json.loads(text) if text else lost(name)
            print(f"{len(rows):4}/{len(names)}", name, rows[name], flush=True)
    return [rows[name] for name in names]


def swept(given):
    """Test the named models, by default all, and return their rows and the versions of the packages."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    import transformers
    from transformers.models.auto import modeling_auto
    import relpos.hf  # noqa: F401
    torch.set_num_threads(1)
    start = time.monotonic()
    rows = sweep(given or sorted({name for mapping in MAPPINGS for name in getattr(modeling_auto, mapping + "_NAMES")}),
                 try_one,
                 lambda name: {"model": name, "result": "not tried", "why": LOST})
    of = {}
    for row in rows:
        of[row["result"]] = of.get(row["result"], 0) + 1
    print(f"{time.monotonic() - start:.0f} s:", ", ".join(f"{count} {result}" for result, count in sorted(of.items())))
    return rows, {"transformers": transformers.__version__, "torch": torch.__version__.partition("+")[0]}


def tried():
    """Return the names of the models that the saved results report as tried."""
    return [row["model"] for row in json.loads(saved.read_text())["models"] if row["result"] != "not tried"]


def merged(names):
    """Test the named models, by default all that were not tried, and add the results to the file. --memory measures
    their memory."""
    found = json.loads(saved.read_text())
    rows, _ = swept(names or [row["model"] for row in found["models"] if row["result"] == "not tried"])
    rows = {row["model"]: row for row in rows}
    keep(found, [rows.get(row["model"], row) for row in found["models"]])


def measured(names):
    """Measure the memory of the named models, by default of all working ones not yet measured, and save it."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    import transformers.models.auto.modeling_auto  # noqa: F401
    import relpos.hf  # noqa: F401
    torch.set_num_threads(1)
    found = json.loads(saved.read_text())
    rows = {row["model"]: row for row in found["models"] if row["result"] == "equal"}
    names = names or [name for name, row in rows.items() if "memory" not in row]
    for name, memory in zip(names,
                            sweep(names, lambda name: memory_of(name, WAYS[rows[name].get("way", 0)]),
                                  lambda name: f"more than {3 * SECONDS} s, or {MEMORY >> 30} GB", 3 * SECONDS)):
        rows[name]["memory"] = memory
    keep(found, found["models"])


def keep(found, models):
    saved.write_text(json.dumps(found | {"models": models}, allow_nan=False).replace('{"model"', '\n{"model"') + "\n")


def compare(rows):
    """Exit with code 1 if a model fails or gives different results, or was equal in the saved results and is no
    longer."""
    before = {row["model"]: row for row in json.loads(saved.read_text())["models"]}
    wrong = [row["model"] for row in rows if row["result"] in ("differs", "failed")
             or row.get("generate", "").startswith(("differs", "failed"))
             or row["result"] != "equal" and row["result"] != "not tried" and before.get(row["model"], {}).get("result")
             == "equal"]
    if wrong:
        sys.exit(f"hf_models.py: failed, differ, or are worse than in {saved.name}: {', '.join(wrong)}")


# ---------------------------------------------------------------------------------------------- the table

def line(row):
    if row["result"] == "equal":
        near = row["distance"] <= TOLERANCE[row["type"]]
        apart = row["distance"] if near else row["distance_sdpa"]
        made = {True: "made", False: "none", None: ""}[row["square"]]
        memory = row.get("memory", "")
        if isinstance(memory, dict):
            memory = f"{memory['relpos']} MB, eager {memory['eager']}"
        generated = row.get("generate", "").replace("not tried", "")
        return (f"| {row['model']} | {'eager' if near else 'sdpa'}, {apart:.0e} | {made} | "
                f"{memory.replace('|', ' ')[:80]} | {generated} | |")
    why = {"refused": "refused when you set it: " + refusal(row.get("why", "")),
           "not used": "has no such attention: relpos warns"}
    return f"| {row['model']} | | | | | {why.get(row['result'], row.get('why', 'differs'))} |"


def refusal(said):
    """Return the reason for an error of relpos.hf in a few words."""
    argument, mask = re.search(r"its attention function the argument (\w+)", said), "computes with its mask" in said
    return (f"the model passes {argument[1]}" if argument else "the model computes with its mask" if mask
            else "the model computes attention itself")


def page():
    found = json.loads(saved.read_text())
    rows = [row for row in found["models"] if row["result"] != "not tried"]
    equal, refused, unused = (sum(row["result"] == kind for row in rows) for kind in ("equal", "refused", "not used"))
    rest = [row["model"] for row in found["models"] if row["result"] == "not tried"]
    text = (f"transformers {found['transformers']}, torch {found['torch']}: {len(rows)} of {len(found['models'])} "
            "model types were tried. "
            f"{equal} give the outputs and gradients of their original attention. relpos refuses {refused}. {unused} "
            "have no attention to "
            f"replace. {len(rows) - equal - refused - unused} failed.\n\n")
    table = ("| model | equal to, largest relative difference | N×N array | memory at 4,096 | generate() | why not |\n"
             "|---|---|---|---|---|---|\n")
    table += "".join(line(row) + "\n" for row in rows)
    return (text + table + "\nThese model types were not tried, because eager attention does not run with the small "
                           f"configs and inputs of this test: {', '.join(rest)}.\n")


HEAD = """# Every model type of transformers
<!-- made by tools/hf_models.py --write -->
This page lists the model types of `AutoModel`, and whether relpos gives the results of their original attention. The \
test uses
small models with random weights and usually two layers, in f64 if possible. Images, sounds and tokens are random, and \
half of the
second text is padding. Gradients are gradients of a random weighted sum of all outputs. [Models of \
transformers](hf.md) explains
how to use a model.

- **equal to**: the implementation that relpos agrees with: eager attention, or torch's attention (sdpa) if eager \
attention computes
  something else. The number is the largest difference of an output or a gradient, divided by the largest absolute \
value. Many
  models compute the eager softmax in f32, so differences are about 1e-7.
- **N×N array**: whether relpos creates an array of queries × keys for a text of 509 tokens: a tensor with two axes \
that grow with
  the text. An empty cell means that eager attention creates none, or that this is unknown.
- **memory at 4,096**: the increase of memory during a forward pass of the small model over 4,096 tokens in f32, with \
relpos and
  with eager attention (`--memory`). An empty cell means not measured.
- **generate()**: whether `generate` with `use_cache=True` gives the same 8 tokens after texts with padding on the \
left, and the number
  of queries per step if it is more than one.

The rows of minimax_m3_vl are about full attention, the only kind in its default config. relpos refuses layers of type
minimax_m3_sparse, which pass the keys that they selected.

The test reduces the widths, heads, layers and vocabulary of a config. If eager attention does not run with the \
reduced config, the
test tries six layers, for models with several kinds of layers. If that fails too, it tries two layers with the \
original widths.
`tools/hf_models.py --save` runs the test, `--try` runs it for models that were not tried, and `--write` writes this \
page from bench/results/hf_models.json.
`./check --torch full` repeats the test.

"""


def made_files():
    """Return the page of all model types, and docs/hf.md with their number."""
    results = [row["result"] for row in json.loads(saved.read_text())["models"]]
    count = (f"[Every model type](hf-models.md) is the list: {results.count('equal')} of the "
             f"{len(results) - results.count('not tried')} that were tried give the results and gradients of their own "
             "attention.\n")
    guide = (root / "docs/hf.md").read_text()
    return {"docs/hf-models.md": HEAD + page(),
            "docs/hf.md": between(guide, "<!-- count: made by tools/hf_models.py -->\n", "<!-- end of count -->", count,
                                  "docs/hf.md")}


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or [""]
    if what == "--run":
        compare(swept(rest or tried())[0])
    elif what == "--save" and not rest:
        found, versions = swept([])
        keep(versions, found)
    elif what == "--try":
        merged(rest)
    elif what == "--memory":
        measured(rest)
    elif what == "--write" and not rest:
        write(made_files())
    elif what == "--check" and not rest:
        check(made_files(), "tools/hf_models.py --write")
    else:
        sys.exit(__doc__)
