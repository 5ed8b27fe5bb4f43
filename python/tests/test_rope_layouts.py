"""relpos.rope_layout against the classes of transformers: cosines and sines of each channel, and attention with the
functions that rotate q and k there.

The classes compute angles in f32. With u = 2^-24, the exponent 2c/dim, the power, the division and the product with the
position round once or twice each, and an error of the exponent e grows by e log(base), at most 15.5 for a base of 5e6.
So an angle t has an error of at most 20 u |t|, and its cosine one of 20 u |t| + 2 u.

SPDX-License-Identifier: Apache-2.0"""
import importlib
import re
from types import SimpleNamespace

import numpy as np
import pytest
import relpos
from relpos import _rope_layouts

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.24")
import relpos.torch  # noqa: E402 torch.compile needs it

L, U = 7, 2.0 ** -24
rng = np.random.default_rng(0)

TEXTS = {  # name: (module, class, dim, base, sections)
    "qwen2_vl": ("qwen2_vl", "Qwen2VLRotaryEmbedding", 128, 1e6, (16, 24, 24)),
    "qwen2_5_vl": ("qwen2_5_vl", "Qwen2_5_VLRotaryEmbedding", 128, 1e6, (16, 24, 24)),
    "qwen2_5_omni": ("qwen2_5_omni", "Qwen2_5OmniRotaryEmbedding", 24, 1e6, (2, 3, 3, 2, 1, 1)),
    "paddleocr_vl": ("paddleocr_vl", "PaddleOCRRotaryEmbedding", 128, 5e5, (16, 24, 24)),
    "qwen3_vl": ("qwen3_vl", "Qwen3VLTextRotaryEmbedding", 128, 5e6, (24, 20, 20)),
    "qwen3_vl_moe": ("qwen3_vl_moe", "Qwen3VLMoeTextRotaryEmbedding", 64, 5e6, (8, 12, 12)),
    "qwen3_omni_moe": ("qwen3_omni_moe", "Qwen3OmniMoeThinkerTextRotaryEmbedding", 128, 1e6, (24, 20, 20)),
    "qwen3_5": ("qwen3_5", "Qwen3_5TextRotaryEmbedding", 64, 1e6, (11, 11, 10)),
    "qwen3_5_moe": ("qwen3_5_moe", "Qwen3_5MoeTextRotaryEmbedding", 64, 1e6, (11, 11, 10)),
    "cosmos3_edge": ("cosmos3_edge", "Cosmos3EdgeTextRotaryEmbedding", 128, 5e6, (24, 20, 20)),
    "hy_v4_vl": ("hy_v4_vl", "HYV4VLRotaryEmbedding", 64, 1e4, (12, 10, 10)),
    "cohere_compass": ("cohere_compass", "CohereCompassRotaryEmbedding", 128, 5e4, (24, 20, 20)),
    "qwen4_exp": ("qwen4_exp", "Qwen4ExpTextRotaryEmbedding", 64, 1e6, (11, 11, 10)),
    "glm4v": ("glm4v", "Glm4vTextRotaryEmbedding", 64, 1e4, (8, 12, 12)),
    "glm_ocr": ("glm_ocr", "GlmOcrTextRotaryEmbedding", 64, 1e4, (8, 12, 12)),
    "glm4v_moe": ("glm4v_moe", "Glm4vMoeTextRotaryEmbedding", 64, 1e4, (8, 12, 12)),
    "glm_image": ("glm_image", "GlmImageTextRotaryEmbedding", 64, 1e4, (8, 12, 12)),
    "ernie4_5_vl_moe": ("ernie4_5_vl_moe", "Ernie4_5_VLMoeTextRotaryEmbedding", 128, 5e5, (22, 22, 20)),
    "neomme": ("neomme", "NeoMMERotaryEmbedding", 64, 1e4, None),
    "hunyuan_vl": ("hunyuan_vl", "HunYuanVLRotaryEmbedding", 32, 1e4, (5, 3, 6, 2)),
}
AXIAL = {name: (name.removesuffix("_vision"), 2) for name in (
    "qwen2_vl_vision", *_rope_layouts.LAYOUTS["qwen2_vl_vision"].also.split(), "pixtral", "sam3", "sam2_video",
    "sam3_tracker_video", "edgetam_video", "inkling2_vision", "kimi_k25_vision", "step3p7_vision")}
AXIAL.update(minimax_m3_vl_vision=("minimax_m3_vl", 3), sam3_vit=("sam3", 2), step3p5_vision=("step3p7", 2))
GRIDS = {"llama4_vision": "llama4", "dinov3": "dinov3_vit", "dinov3_vit": "dinov3_vit", "eomt_dinov3": "eomt_dinov3",
         "sapiens2": "sapiens2"}


def config(dim, base, kind, sections=None, **others):
    """Return a configuration with two heads of `dim` channels."""
    rope = {"rope_type": kind, "rope_theta": base}
    if sections:
        rope["mrope_section"] = list(sections)
    sizes = dict(head_dim=dim, hidden_size=2 * dim, embed_dim=2 * dim, num_attention_heads=2, num_heads=2,
                 memory_attention_hidden_size=dim, memory_attention_downsample_rate=1,
                 memory_attention_num_attention_heads=1, max_position_embeddings=4096, rope_theta=base)
    return SimpleNamespace(rope_parameters=rope, **sizes, **others)


def module_of(name):
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def of_texts(name):
    """Return the RoPE, its positions (A, L), and the cosines and sines of the class, (L, dim)."""
    module, cls, dim, base, sections = TEXTS[name]
    options = config(dim, base, "default", sections)
    axes, more = {"neomme": 2, "hunyuan_vl": 4}.get(name, 3), {}
    if name in ("neomme", "cohere_compass"):
        more = {"layer_type": "full_attention"}
        options.layer_types, options.rope_parameters = ["full_attention"], {"full_attention": options.rope_parameters}
    positions = rng.permuted(np.arange(axes * L).reshape(axes, L), axis=1)
    rope = relpos.rope_layout(name, dim, base=base, sections=sections, positions=positions)
    found = getattr(module_of(module), cls)(options)(torch.zeros(1), torch.tensor(positions)[:, None], **more)
    found = [x.numpy().reshape(L, -1) for x in found]
    if name == "hy_v4_vl":  # for pairs (c, c + dim/2), but the function that rotates takes the first half, twice each
        return rope, positions, [x[:, :dim // 2].repeat(2, -1) for x in found]
    return rope, positions, found


def of_axial(name):
    file, axes = AXIAL[name]
    module, dim = module_of("mlcd" if name == "mlcd_vision" else file), 40
    cls = next(x for n, x in vars(module).items() if re.fullmatch(
        r"\w*Vi(sion|T)RotaryEmbedding|MLCDRotaryEmbedding", n) and x.__module__ == module.__name__)
    base = _rope_layouts._row(name).base
    positions = rng.permuted(np.arange(axes * L).reshape(axes, L), axis=1)
    rope = relpos.rope_layout(name, dim, positions=positions)
    found = cls(config(dim, base, "axial"))(torch.zeros(1), torch.tensor(positions.T))
    return rope, positions, [x.numpy().reshape(L, -1) for x in found]


def of_grids(name):
    """Classes that compute the positions of an image of rows x columns themselves."""
    module, dim = module_of(GRIDS[name]), 32
    if name == "llama4_vision":
        size = 3
        y, x = np.divmod(np.arange(size * size), size)
        positions = np.stack([np.r_[x + 1, 0], np.r_[y + 1, 0]])  # the class token is the last
        turns = module.Llama4VisionRotaryEmbedding(config(dim, 1e4, "default", image_size=12, patch_size=4))(
            torch.zeros(1))
        found = [part.numpy()[:, 0].repeat(2, -1) for part in (turns.real, turns.imag)]
    else:
        rows, columns = 2, 4
        y, x = np.divmod(np.arange(rows * columns), columns)
        positions = np.stack([2 * (y + 0.5) / rows - 1, 2 * (x + 0.5) / columns - 1])
        cls = next(x for n, x in vars(module).items() if re.fullmatch(r"\w*(RopePosition|Rotary)Embedding", n))
        options = config(dim, 100.0, "default", image_size=16, patch_size=4)
        found = cls(options).eval()(torch.zeros(1, 3, 4 * rows, 4 * columns))
        found = [x.numpy().reshape(rows * columns, -1) for x in found]
    return relpos.rope_layout(name, dim, positions=positions), positions, found


def case(name):
    return (of_texts if name in TEXTS else of_axial if name in AXIAL else of_grids)(name)


def channels(rope, positions):
    """Return the angles (L, dim) of the channels."""
    if rope.params["by_channel"]:
        return rope.arrays["angles"]
    found = angles(rope, positions)
    return np.tile(found, 2) if rope.params["layout"] == "half" else np.repeat(found, 2, -1)


def angles(rope, positions):
    """Return the angles (L, pairs) in double, or (L, dim) if the channels have angles of their own."""
    if rope.params["by_channel"]:
        return rope.arrays["angles"]
    return np.einsum("al,ac->lc", positions, rope.arrays["frequencies"][:, 0])


@pytest.mark.parametrize("name", [*TEXTS, *AXIAL, *GRIDS])
def test_angles_of_the_class(name):
    rope, positions, found = case(name)
    t = channels(rope, positions)
    for got, want in zip(found, (np.cos(t), np.sin(t))):
        assert got.shape == want.shape
        assert (abs(got - want) <= 20 * U * abs(t) + 2 * U).all(), abs(got - want).max()


def turned(name, q, k, cosine, sine):
    """Rotate q and k (1, H, L, D) by the function of the module."""
    rows = {n: row[0] for n, row in (TEXTS | AXIAL).items()} | GRIDS
    module, cosine, sine = module_of(rows[name]), torch.tensor(cosine), torch.tensor(sine)
    names = ["vision_apply_rotary_emb", *("apply_rotary_pos_emb" + end for end in (
        "_vision", "_2d", "_2d_self_attn", ""))]
    rotate = next(n for n in (names if name in AXIAL or name in GRIDS else names[-1:]) if hasattr(module, n))
    if rotate in names[:2]:  # (1, L, H, D)
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        if rotate == names[0]:
            found = getattr(module, rotate)(q, k, torch.complex(cosine[:, None, ::2], sine[:, None, ::2]))
        else:
            found = [x[None] for x in getattr(module, rotate)(q[0], k[0], cosine, sine)]
        return [x.transpose(1, 2) for x in found]
    if name == "hy_v4_vl":
        cosine, sine = (x[:, ::2].repeat(1, 2) for x in (cosine, sine))
    of_batch = name in TEXTS or name == "pixtral"
    return getattr(module, rotate)(q, k, *(x[None] if of_batch else x for x in (cosine, sine)))


def bound_of(q, k, v, angles, scale):
    """Scores have an error of at most 2 |q| |k| times the sum of that of a cosine and of the operations in f32. Outputs
    are means of values with weights whose errors sum to at most twice the largest error of a score."""
    error = 20 * U * abs(angles).max() + 8 * U
    return 2 * 2 * error * scale * (q.norm(dim=-1).max() * k.norm(dim=-1).max() * v.abs().max()).item()


@pytest.mark.parametrize("name", [*TEXTS, *AXIAL, *GRIDS])
def test_attention_with_the_rotation_of_the_class(name):
    rope, positions, (cosine, sine) = case(name)
    rotated = rope.params["dim"]
    assert cosine.shape[-1] == rotated
    partial = name in ("glm4v", "glm_ocr", "glm4v_moe", "glm_image", "qwen3_5", "qwen4_exp", "minimax_m3_vl_vision")
    q, k, v = torch.tensor(rng.normal(size=(3, 1, 2, len(cosine), rotated + 4 * partial)), dtype=torch.float32)
    scale = rotated ** -0.5
    scores = scale * torch.matmul(*(x if n == 0 else x.mT for n, x in enumerate(
        x.double() for x in turned(name, q, k, cosine, sine))))
    want = torch.softmax(scores, -1) @ v.double()
    q, k, v = q.double(), k.double(), v.double()
    bound = bound_of(q, k, v, angles(rope, positions), scale)
    assert abs(relpos.attention(q, k, v, rope=rope, scale=scale) - want).max() <= bound
    other = "half" if rope.params["layout"] == "interleaved" else "interleaved"
    for wrong in dict(positions=positions[::-1].copy()), dict(layout=other):
        options = dict(layout=rope.params["layout"], positions=positions) | wrong
        if name == "hunyuan_vl":  # its angles follow from the positions
            del options["positions"]
            given = rope.arrays["angles"]
            options |= {"angles": given[:, ::-1].copy() if "positions" in wrong else given, "by_channel": True}
        else:
            options["frequencies"] = rope.arrays["frequencies"]
        swapped = relpos.RoPE(rotated, **options)
        assert abs(relpos.attention(q, k, v, rope=swapped, scale=scale) - want).max() > 10 * bound


def test_every_name_is_tested():
    others = {"ernie4_5_vl", "esmfold2", "vjepa2"}
    assert set(_rope_layouts._BY_NAME) - others == TEXTS.keys() | AXIAL.keys() | GRIDS.keys()


def test_names_and_sections():
    same = [relpos.rope_layout(name, 64, base=1e4).arrays["frequencies"] for name in (
        "glm4v", "GLM4V", "glm4v-text", "glm-ocr")]
    assert all((x == same[0]).all() for x in same)
    # a section of the interleaved kind may be too long, as in the class, and the first is not read
    f = relpos.rope_layout("qwen3-vl", 12, base=10.0, sections=(99, 4, 1)).arrays["frequencies"]
    assert f[:, 0].argmax(0).tolist() == [0, 1, 2, 0, 1, 0]


def test_two_arrays_of_positions():
    """Positions of queries and of keys, of each batch entry, as tensors."""
    qp, kp = torch.rand(2, 2, 3), torch.rand(2, 2, 5)
    q, k = torch.rand(2, 1, 3, 8), torch.rand(2, 1, 5, 8)
    got = relpos.attention(q, k, k, rope=relpos.rope_layout("pixtral", 8, q_positions=qp, k_positions=kp))
    f = relpos.rope_layout("pixtral", 8).arrays["frequencies"]
    assert torch.equal(got, relpos.attention(q, k, k, rope=relpos.RoPE(frequencies=f, q_positions=qp, k_positions=kp)))


def test_memory_attention_of_sam2():
    """Queries are a grid; keys are this grid for each of three frames, and two object pointers, which do not rotate."""
    module, dim = module_of("sam2_video"), 16
    positions = rng.permuted(np.arange(2 * L).reshape(2, L), axis=1)
    embedding = module.Sam2VideoVisionRotaryEmbedding(config(dim, 1e4, "axial"))
    cosine, sine = embedding(torch.zeros(1), torch.tensor(positions.T))
    q, k, v = (torch.tensor(rng.normal(size=(1, 2, n, dim)), dtype=torch.float32) for n in (L, 3 * L + 2, 3 * L + 2))
    a, b = module.apply_rotary_pos_emb_2d(q, k, cosine, sine, num_k_exclude_rope=2, repeat_freqs_k=True)
    q, k, v = q.double(), k.double(), v.double()
    want = torch.softmax(a.double() @ b.double().mT / dim ** 0.5, -1) @ v
    rope = relpos.rope_layout("sam2-video", dim, q_positions=positions, k_positions=np.concatenate(
        [*3 * [positions], np.zeros((2, 2))], 1))
    bound = bound_of(q, k, v, angles(rope, positions), dim ** -0.5)
    assert abs(relpos.attention(q, k, v, rope=rope) - want).max() <= bound


@pytest.mark.parametrize("tensors", [False, True])
def test_vjepa2(tensors):
    """V-JEPA 2, whose channels of a pair have different frequencies. It computes in f64 if q and k are f64."""
    module, dim = module_of("vjepa2"), 22  # the last four channels do not rotate
    positions = rng.permuted(np.arange(3 * L).reshape(3, L), axis=1)
    q, k, v = torch.tensor(rng.normal(size=(3, 2, 2, L, dim)))
    layer = SimpleNamespace(d_dim=6, h_dim=6, w_dim=6, attention_head_size=dim)
    rotate = module.VJEPA2RopeAttention.apply_rotary_embeddings
    a, b = (rotate(layer, x, torch.tensor(positions)) for x in (q, k))
    want = torch.softmax(a @ b.mT / dim ** 0.5, -1) @ v
    given = [torch.tensor(positions), torch.tensor(positions[None])] if tensors else [positions, positions[None]]
    for x in given:
        rope = relpos.rope_layout("vjepa2", dim, positions=x)
        assert abs(relpos.attention(q, k, v, rope=rope) - want).max() <= 1e-12
    assert "by_channel" in repr(rope) and rope.params["dim"] == 18


def test_the_last_channels():
    q = torch.tensor(rng.normal(size=(1, 2, L, 24)))
    rope = relpos.rope_layout("pixtral", 16, positions=np.arange(2 * L).reshape(2, L), first=8)
    other = relpos.rope_layout("pixtral", 16, positions=np.arange(2 * L).reshape(2, L))
    turned = torch.cat([q[..., 8:], q[..., :8]], -1)
    torch.testing.assert_close(relpos.attention(q, q, q, rope=rope), relpos.attention(turned, turned, q, rope=other))


def test_compiled():
    """A layout in a compiled function, also with positions that are tensors."""
    def call(q, positions):
        return relpos.attention(q, q, q, rope=relpos.rope_layout("sam3", 8, positions=positions))
    q, positions = torch.rand(1, 2, 5, 8), torch.rand(2, 5)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(q, positions), call(q, positions))
    torch._dynamo.reset()


@pytest.mark.parametrize("bases", [(20.0, 1e4), (7.0, 100.0)])
def test_esmfold2(bases):
    """Places of atoms in space and the number of their residue, real positions of each batch entry."""
    module = pytest.importorskip("transformers.models.esmfold2.modeling_esmfold2")
    options = SimpleNamespace(num_spatial_rope_pairs_per_axis=2, num_uid_rope_pairs=7, head_dim=32,
                              spatial_rope_base_frequency=bases[0], uid_rope_base_frequency=bases[1])
    place, residue = torch.tensor(rng.normal(size=(3, L, 3)) * 8, dtype=torch.float32), torch.tensor(
        rng.integers(0, 4, size=(3, L)))
    cosine, sine = module.EsmFold2RotaryEmbedding(options)(place, residue, torch.float32)
    positions = torch.cat([place, residue[..., None].float()], -1).mT  # (B, 4, L)
    given = {} if bases == (20.0, 1e4) else {"base": (*3 * bases[:1], bases[1])}
    rope = relpos.rope_layout("esmfold2", 32, positions=positions, sections=(2, 2, 2, 7), **given)
    t = np.einsum("bal,ac->blc", positions.double(), rope.arrays["frequencies"][:, 0])
    assert (t[..., 13:] == 0).all() and len(np.unique(t[0, 0, :13])) == 13
    for got, want in zip((cosine, sine), (np.cos(t), np.sin(t))):
        assert (abs(got.numpy() - np.tile(want, 2)) <= 20 * U * np.tile(abs(t), 2) + 2 * U).all()
    q, k, v = torch.tensor(rng.normal(size=(3, 3, 2, L, 32)))
    a, b = module.apply_rotary_pos_emb(q, k, cosine.double(), sine.double())
    want = torch.softmax(a @ b.mT / 32 ** 0.5, -1) @ v
    assert abs(relpos.attention(q, k, v, rope=rope) - want).max() <= bound_of(q, k, v, t, 32 ** -0.5)


ERRORS = {
    "unknown": (lambda: relpos.rope_layout("mrope", 8), ValueError, "name is 'mrope'; the layouts are qwen2_vl, "),
    "near": (lambda: relpos.rope_layout("qwen2-vl-visoin", 8), ValueError, "did you mean 'qwen2_vl_vision'.; the lay"),
    "class": (lambda: relpos.rope_layout("Qwen3VLTextModel", 8), ValueError, "did you mean 'qwen3_vl'.; the layouts"),
    "no positions": (lambda: relpos.rope_layout("vjepa2", 8), TypeError, "positions is missing; the angles of vjepa2"),
    "shape": (lambda: relpos.rope_layout("vjepa2", 8, positions=np.zeros((2, 5))), ValueError,
              r"positions have shape \(2, 5\), expected \(A, L\) or \(B, A, L\) with A = 3 axes"),
    "gemma": (lambda: relpos.rope_layout("gemma4_vision", 8), ValueError, "swap the second and the third quarter"),
    "base": (lambda: relpos.rope_layout("qwen3_vl", 128), TypeError, "base is missing; pass rope_theta of the config"),
    "bases": (lambda: relpos.rope_layout("pixtral", 8, base=(1.0, 2.0, 3.0)), ValueError, "expected a number above 0, "
              "or one for each of the 2 axes"),
    "zero": (lambda: relpos.rope_layout("pixtral", 8, base=0), ValueError, "base is 0; expected a number above 0"),
    "gradient": (lambda: relpos.rope_layout("pixtral", 8, base=torch.ones((), requires_grad=True)), TypeError,
                 "base requires a gradient, which the layout does not pass on; use .detach"),
    "sum": (lambda: relpos.rope_layout("qwen2_vl", 128, base=1e6, sections=(16, 24, 23)), ValueError,
            r"sections \(16, 24, 23\) are 63 pairs, but dim = 128 has 64; pass the mrope_section"),
    "sections": (lambda: relpos.rope_layout("qwen3_5", 64, base=1e6), TypeError,
                 r"sections is missing, and \(24, 20, 20\) of qwen3_5 are for dim=128; pass mrope_section"),
    "no sections": (lambda: relpos.rope_layout("pixtral", 8, sections=(1, 1, 2)), ValueError,
                    "the layout of pixtral has none"),
    "two": (lambda: relpos.rope_layout("qwen2-vl", 8, base=1e6, sections=(2, 2)), ValueError,
            r"sections is \(2, 2\); expected three or more numbers of pairs"),
    "ernie": (lambda: relpos.rope_layout("ernie4.5-vl", 8, base=1e6, sections=(2, 1, 1)), ValueError,
              "rows and columns, the first two, must have as many pairs"),
    "dim": (lambda: relpos.rope_layout("pixtral", 10), ValueError, "dim is 10; it must be a multiple of 4"),
    "thirds": (lambda: relpos.rope_layout("minimax-m3-vl-vision", 4), ValueError, "dim is 4; it must be 6 or more"),
    "esmfold2": (lambda: relpos.rope_layout("esmfold2", 24), ValueError,
                 "expected numbers of pairs for x, y, z and the residue, at most 12"),
    "axes": (lambda: relpos.attention(*torch.ones(3, 1, 4, 8), rope=relpos.rope_layout(
        "pixtral", 8, positions=np.zeros((3, 4)))), ValueError, r"RoPE\(positions\): shape is \(3, 4\); it must be"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call()


def test_swapped_quarters_are_gemma_4():
    """What the error of gemma4_vision says."""
    module = pytest.importorskip("transformers.models.gemma4.modeling_gemma4")
    dim, positions = 16, rng.permuted(np.arange(2 * L).reshape(2, L), axis=1)
    at = torch.tensor(positions.T)[None]
    cosine, sine = module.Gemma4VisionRotaryEmbedding(config(dim, 100.0, "axial"))(torch.zeros(1), at)
    q, k, v = torch.tensor(rng.normal(size=(3, 1, 2, L, dim)))
    scores = torch.matmul(*(x if n == 0 else x.mT for n, x in enumerate(module.apply_multidimensional_rope(
        x.transpose(1, 2), cosine.double(), sine.double(), at).transpose(1, 2) for x in (q, k))))
    q, k = (x.unflatten(-1, (2, 2, -1)).transpose(-2, -3).flatten(-3) for x in (q, k))
    rope = relpos.rope_layout("qwen2-vl-vision", dim, base=100.0, positions=positions)
    want = torch.softmax(scores / dim ** 0.5, -1) @ v
    bound = bound_of(q, k, v, angles(rope, positions), dim ** -0.5)
    assert abs(relpos.attention(q, k, v, rope=rope) - want).max() <= bound
