"""Text encoders as they are published: 8-bit floats with scales. The results equal those of the products that PyTorch
computes.
SPDX-License-Identifier: Apache-2.0"""
import json
import re
from pathlib import Path

import numpy as np
import pytest
import relpos.t5

torch = pytest.importorskip("torch")
load_file = pytest.importorskip("safetensors.torch").load_file
save_file = pytest.importorskip("safetensors.torch").save_file

PLAIN = Path(__file__).resolve().parents[2] / "tests/t5/data/single/plain.safetensors"
Q = "encoder.block.1.layer.0.SelfAttention.q"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def comfy(format, **more):
    """The tensor X.comfy_quant."""
    return torch.frombuffer(bytearray(json.dumps({"format": format, **more}).encode()), dtype=torch.uint8)


def scale_of(weight, shape, seed):
    """Random scales of one of the shapes that are published."""
    rows, columns = weight.shape
    shape = {"one": (), "1": (1,), "1,1": (1, 1), "row": (rows,), "row,1": (rows, 1),
             "block": (rows // 4, columns // 8),
             "along": (rows, columns // 8), "row,1,1": (rows, 1, 1), "along,1": (rows, columns // 4, 1)}[shape]
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 0.1 + 1e-3


def spread(scale, weight):
    """Repeat scales for every number of the weight."""
    scale = scale.float().reshape(scale.shape[:2]) if scale.ndim == 3 else scale.float()
    scale = scale.reshape(-1, 1) if scale.ndim == 1 else scale
    if scale.ndim < 2:
        return scale
    for axis in range(2):
        scale = scale.repeat_interleave(weight.shape[axis] // scale.shape[axis], axis)
    return scale


def make(folder, shape="one", name="weight_scale", dtype=E4M3, scale_type=torch.float32, format=None, marker=False,
         inputs=None,
         prefix="", more=None, edit=None, metadata=None):
    """Write scaled.safetensors and the plain.safetensors with the same numbers. Return their paths."""
    scaled, plain = {}, {}
    for n, (key, weight) in enumerate(load_file(PLAIN).items()):
        if weight.ndim != 2 or "relative_attention_bias" in key or weight.dtype == torch.uint8:
            scaled[prefix + key] = plain[key] = weight
            continue
        layer, scale = prefix + key.removesuffix(".weight"), scale_of(weight, shape, n).to(scale_type)
        scaled[layer + ".weight"] = (weight.float() / spread(scale, weight)).clamp(-400, 400).to(dtype)
        scaled[f"{layer}.{name}"] = scale
        plain[key] = scaled[layer + ".weight"].float() * spread(scale, weight)
        if inputs:
            scaled[f"{layer}.{inputs}"] = torch.ones(())
        if format:
            scaled[layer + ".comfy_quant"] = comfy(format, **(more or {}))
    if marker:
        scaled[prefix + "scaled_fp8"] = torch.zeros(2, dtype=dtype)
    if edit:
        edit(scaled)
    for kind, tensors in (("scaled", scaled), ("plain", plain)):
        save_file({key: one.contiguous() for key, one in tensors.items()}, folder / f"{kind}.safetensors",
                  metadata=metadata if kind == "scaled" else None)
    return folder / "scaled.safetensors", folder / "plain.safetensors"


def hidden(path, type="f32"):
    with relpos.t5.T5(path, type=type) as model:
        return model.encode(tokens=[5, 9, 33, 2, 1])


CASES = [dict(shape=shape, name=name, format=format) for shape in ("one", "1", "1,1", "row", "row,1", "block", "along",
                                                                   "row,1,1", "along,1")
         for name in ("weight_scale", "scale_weight") for format in (None, "float8_e4m3fn")]
CASES += [
    dict(dtype=E5M2), dict(dtype=E5M2, shape="row", name="scale_weight", marker=True),
    dict(dtype=E5M2, shape="block", format="float8_e5m2"),
    dict(marker=True), dict(marker=True, inputs="input_scale"),
    dict(name="scale_weight", marker=True, inputs="scale_input"),
    dict(inputs="input_scale", format="float8_e4m3fn", more={"full_precision_matrix_mult": True}),
    dict(shape="row", format="float8_e4m3fn_rowwise", more={"orig_dtype": "torch.bfloat16", "convrot": False}),
    dict(shape="along", format="float8_e4m3fn_block3d", more={"group_size": 8}),
    dict(scale_type=torch.bfloat16, shape="row"), dict(scale_type=torch.float16, shape="block"),
    dict(scale_type=torch.float64),
    dict(prefix="text_encoders.t5xxl.transformer.", format="float8_e4m3fn", shape="row,1"),
    dict(prefix="module.", name="scale_weight"),
    dict(metadata={"_quantization_metadata": json.dumps({"format_version": "1.0",
                                                         "layers": {Q: {"format": "float8_e4m3fn"}}})}),
]


@pytest.mark.filterwarnings("ignore:.*the prefix module. was removed")
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_scaled_fp8(case, tmp_path):
    scaled, plain = make(tmp_path, **case)
    assert (hidden(scaled) == hidden(plain)).all()


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_scaled_fp8_of_torch_save(dtype, tmp_path):
    scaled, plain = make(tmp_path, dtype=dtype, shape="row", format="float8_e5m2" if dtype == E5M2 else "float8_e4m3fn")
    torch.save(load_file(scaled), tmp_path / "scaled.pt")
    assert (hidden(tmp_path / "scaled.pt") == hidden(plain)).all()


def test_blocks_whose_last_one_is_smaller(tmp_path):
    """With a group_size, the number of rows need not be a multiple of it."""
    def edit(tensors):
        weight = tensors[Q + ".weight"]
        tensors[Q + ".weight_scale"] = torch.tensor([[0.01, 0.03], [0.02, 0.05]])
        tensors[Q + ".comfy_quant"] = comfy("float8_e4m3fn_blockwise", group_size=14)
        assert weight.shape == (24, 16)
    scaled, plain = make(tmp_path, edit=edit)
    tensors, found = load_file(plain), load_file(scaled)
    scale = found[Q + ".weight_scale"].repeat_interleave(14, 0)[:24].repeat_interleave(14, 1)[:, :16]
    save_file({**tensors, Q + ".weight": found[Q + ".weight"].float() * scale}, plain)
    assert (hidden(scaled) == hidden(plain)).all()


def test_scales_change_the_checksum(tmp_path):
    """Otherwise `t5 proteins` could mix results of two models."""
    sums = set()
    for n, edit in enumerate((None,
                              lambda tensors: tensors.update({Q + ".weight_scale": tensors[Q + ".weight_scale"] * 2}))):
        (tmp_path / str(n)).mkdir()
        scaled, _ = make(tmp_path / str(n), edit=edit)
        with relpos.t5.T5(scaled) as model:
            model.pack(tmp_path / "packed")
        with relpos.t5.T5(tmp_path / "packed") as model:
            sums.add(model.source_checksum)
    assert len(sums) == 2


@pytest.mark.parametrize("words, edit", [
    ("its format nvfp4 is not supported", lambda t: t.update({Q + ".comfy_quant": comfy("nvfp4")})),
    ("its format mxfp8 is not supported", lambda t: t.update({Q + ".comfy_quant": comfy("mxfp8")})),
    ("its format int8_tensorwise is not supported", lambda t: t.update({Q + ".comfy_quant": comfy("int8_tensorwise")})),
    ("its comfy_quant has the key convrot",
     lambda t: t.update({Q + ".comfy_quant": comfy("float8_e4m3fn", convrot=True)})),
    ("its comfy_quant says float8_e5m2, but", lambda t: t.update({Q + ".comfy_quant": comfy("float8_e5m2")})),
    ("its comfy_quant names no format",
     lambda t: t.update({Q + ".comfy_quant": torch.tensor([123, 125], dtype=torch.uint8)})),
    ("its comfy_quant is not a JSON object",
     lambda t: t.update({Q + ".comfy_quant": torch.ones(3, dtype=torch.uint8)})),
    ("it has a comfy_quant, but no weight_scale", lambda t: (t.update({Q + ".comfy_quant": comfy("float8_e4m3fn")}),
                                                             t.pop(Q + ".weight_scale"))),
    ("it has two scales, weight_scale and scale_weight", lambda t: t.update({Q + ".scale_weight": torch.ones(())})),
    *((f"its scale has the value {text}", lambda t, x=float(text): t.update({Q + ".weight_scale": torch.tensor(x)}))
      for text in ("nan", "inf", "-inf", "0", "-0.5", "1e+38")),
    ("its scale has the value 0", lambda t: t.update({Q + ".weight_scale": torch.tensor(1e-60, dtype=torch.float64)})),
    ("its scale has the value -1",
     lambda t: t.update({Q + ".weight_scale": torch.cat((torch.ones(23, 1), torch.tensor([[-1.0]])))})),
    *((f"tensor '{layer}.weight': it has no weight_scale, but other 8-bit floats of the file have one",
       lambda t, layer=layer: t.pop(layer + ".weight_scale")) for layer in (Q, "shared")),
    ("tensor 'encoder.final_layer_norm.weight': it has no weight_scale, but other 8-bit", lambda t: t.update({
        "encoder.final_layer_norm.weight": t["encoder.final_layer_norm.weight"].to(E4M3)})),
    *((f"its {end} is for 8-bit floats, but its numbers have the type {name}", lambda t, end=end, dtype=dtype: (
        t.pop(Q + ".weight_scale"),
        t.update({Q + "." + end: torch.ones(()), Q + ".weight": torch.ones(24, 16).to(dtype)})))
      for end in ("weight_scale", "scale_weight") for name, dtype in
      (("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16), ("i8", torch.int8))),
    ("its scale is not of the type F32, F16 or BF16",
     lambda t: t.update({Q + ".weight_scale": torch.ones((24, 1), dtype=torch.uint8)})),
    ("its scale is not of the type F32, F16 or BF16",
     lambda t: t.update({Q + ".weight_scale": torch.ones((24, 1)).to(E4M3)})),
    ("the shape of its scale is neither one number, nor", lambda t: t.update({Q + ".weight_scale": torch.ones(16)})),
    ("the shape of its scale is neither one number, nor", lambda t: t.update({Q + ".weight_scale": torch.ones(5, 3)})),
    ("the shape of its scale is neither one number, nor",
     lambda t: t.update({Q + ".weight_scale": torch.ones(2, 2, 2)})),
    *(("the shape of its scale is neither one number, nor", lambda t, shape=shape: t.update({
        Q + ".weight_scale": torch.ones(shape)})) for shape in ((0,), (24, 0), (24, 16, 2), (16, 1), (1, 1, 1, 2))),
    *((f"tensor 'encoder.block.0.x.{end}' is not in the model",
       lambda t, end=end: t.update({"encoder.block.0.x." + end: torch.ones(())}))
      for end in ("weight_scale", "scale_weight", "input_scale", "scale_input", "comfy_quant", "unscaled_fp8")),
    (f"tensor '{Q}.weight_scale_2' is not in the model", lambda t: t.update({Q + ".weight_scale_2": torch.ones(())})),
])
def test_other_formats_are_refused_in_words(words, edit, tmp_path):
    scaled, _ = make(tmp_path, edit=edit)
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        relpos.t5.T5(scaled)
    text = str(caught.value)
    assert "config.json" not in text and "download" not in text
    assert words.startswith("tensor") or f"tensor '{Q}.weight" in text


@pytest.mark.parametrize("words, metadata", [
    ("its format nvfp4 is not supported", {"layers": {Q: {"format": "nvfp4"}}}),
    ("its format nvfp4 is not supported", {"layers": {Q: "nvfp4"}}),
    ("its format in _quantization_metadata is not a JSON object", {"layers": {Q: 4}}),
    ("_quantization_metadata is not a JSON object with layers", []),
    ("_quantization_metadata is not a JSON object with layers", {"layers": [Q]}),
])
def test_metadata_names_another_format(words, metadata, tmp_path):
    scaled, _ = make(tmp_path, metadata={"_quantization_metadata": json.dumps(metadata)})
    with pytest.raises(ValueError, match=words):
        relpos.t5.T5(scaled)


@pytest.mark.parametrize("words, marker, metadata", [
    ("its file has scaled_fp8, but it has no weight_scale", True, None),
    ("it has a format in _quantization_metadata, but no weight_scale", False,
     {"layers": {Q: {"format": "float8_e4m3fn"}}}),
])
def test_scales_that_are_all_missing(words, marker, metadata, tmp_path):
    """A program that does not know the scales may save a file without them."""
    scaled, _ = make(tmp_path, marker=marker, metadata=metadata and {"_quantization_metadata": json.dumps(metadata)},
                     edit=lambda t: [t.pop(key) for key in list(t) if key.endswith("weight_scale")])
    with pytest.raises(ValueError, match=words):
        relpos.t5.T5(scaled)


def test_plain_8_bit_floats_need_no_scales(tmp_path):
    def edit(tensors):
        for key in [key for key in tensors if key.endswith("weight_scale")]:
            tensors[key.removesuffix("_scale")] = (tensors[key.removesuffix("_scale")].float() * 2**-7).to(E4M3)
            tensors.pop(key)
    scaled, plain = make(tmp_path, edit=edit)
    save_file({key: one.float() if one.dtype == E4M3 else one for key, one in load_file(scaled).items()}, plain)
    assert (hidden(scaled) == hidden(plain)).all()


def test_formats_of_other_models_in_the_file_do_not_matter(tmp_path):
    prefix, other = "text_encoders.t5xxl.transformer.", "model.diffusion_model.x"
    scaled, plain = make(tmp_path, prefix=prefix, edit=lambda t: t.update({
        other + ".weight": torch.ones(8, 8, dtype=torch.uint8), other + ".weight_scale": torch.ones(8, 1).to(E4M3),
        other + ".comfy_quant": comfy("nvfp4")}))
    assert (hidden(scaled) == hidden(plain)).all()
    assert np.isfinite(hidden(scaled, "bf16")).all()
