"""Compare models of transformers under attn_implementation="relpos" with the same models under "eager" and "sdpa".
Skipped without transformers.

SPDX-License-Identifier: Apache-2.0"""
import copy
import pickle
import shutil
import subprocess
import sys

import pytest

transformers = pytest.importorskip("transformers")
import relpos
import relpos.hf
import torch
from transformers import masking_utils

IDS = torch.randint(3, 60, (3, 29), generator=torch.Generator().manual_seed(5))
RIGHT = (torch.arange(29) < torch.tensor([29, 11, 20])[:, None]).long()  # padding at the end, and at the beginning
LEFT = RIGHT.flip(1)


def made(cls, config):
    """Return a model whose random weights make attention far from uniform."""
    g = torch.Generator().manual_seed(1)
    model = cls(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(std=1.5 / p.shape[-1] ** 0.5 if p.shape[-1] > 8 else 1.0, generator=g)
    return model


def results(model, implementation, keep=None, **inputs):
    """Return the outputs where keep is true, and the gradients of a random sum of them with respect to every weight."""
    model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == implementation
    model.zero_grad()
    out = model(**inputs)
    out = out.logits if "logits" in out else out.last_hidden_state
    out = out if keep is None else out[keep.bool()]
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    return out.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def exact_results(model, implementation, keep=None, **inputs):
    """Return the outputs of the model in float64."""
    double = {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}
    return results(copy.deepcopy(model).double(), implementation, keep, **double)[0]


def agree(model, keep=None, implementations=("eager", "sdpa"), **inputs):
    """Check that outputs and gradients with relpos equal those of other implementations."""
    got, gradients = results(model, "relpos", keep, **inputs)
    for implementation in implementations:
        want, expected = results(model, implementation, keep, **inputs)
        assert want.abs().max() > 0.1
        assert got.shape == want.shape and got.dtype == want.dtype and got.isfinite().all()
        if (got - want).abs().max() > 2e-5 * want.abs().max():  # where a model makes rounding errors larger
            exact = exact_results(model, implementation, keep, **inputs)
            errors = [float((x - exact).abs().max()) for x in (got, want)]
            assert errors[0] < 3 * errors[1] and errors[0] < 1e-4 * want.abs().max(), errors
        assert gradients.keys() == expected.keys()
        size = {name: float(x.abs().max()) for name, x in expected.items()}
        for name in expected:  # the exact gradients of key biases are 0, so the computed ones are rounding errors
            torch.testing.assert_close(gradients[name], expected[name],
                                       atol=1e-4 * size[name] + 1e-6 * max(size.values()), rtol=0,
                                       msg=lambda m: f"{name}: {m}")


def generated(model, ids, implementations=("relpos", "eager"), **options):
    """Check that all implementations generate the same tokens, and at least 4 distinct ones. Return the tokens."""
    found = []
    for implementation in implementations:
        model.set_attn_implementation(implementation)
        found.append(model.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0,
                                    **options))
    assert len(found[0][0].unique()) > 3
    for other in found[1:]:
        assert torch.equal(found[0], other)
    return found[0]


T5 = dict(vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0,
          tie_word_embeddings=False, relative_attention_num_buckets=12, relative_attention_max_distance=20)


def t5(name="T5", **more):
    more = {"local_radius": 6, **more} if name == "LongT5" else more
    return made(getattr(transformers, f"{name}ForConditionalGeneration"),
                getattr(transformers, f"{name}Config")(**T5, **more))


@pytest.mark.parametrize("padding", [None, RIGHT, LEFT], ids=["whole", "right", "left"])
@pytest.mark.parametrize("name", ["T5", "MT5", "UMT5", "SwitchTransformers"])
def test_t5(name, padding):
    model = t5(name)
    assert "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight" in dict(model.named_parameters())
    agree(model, RIGHT[:, :13], ["eager"] if name == "SwitchTransformers" else ["eager", "sdpa"], input_ids=IDS,
          attention_mask=padding, decoder_input_ids=IDS[:, 8:21], decoder_attention_mask=RIGHT[:, :13])


@pytest.mark.parametrize("cache", [{}, dict(use_cache=False), dict(cache_implementation="static"), dict(num_beams=3)],
                         ids=str)
def test_t5_generates_the_same(cache):
    generated(t5(), IDS, attention_mask=LEFT, **cache)


def test_longt5():
    for padding in (None, RIGHT, LEFT):
        agree(t5("LongT5"), implementations=["eager"], keep=RIGHT[:, :13], input_ids=IDS, attention_mask=padding,
              decoder_input_ids=IDS[:, 8:21], decoder_attention_mask=RIGHT[:, :13])
    generated(t5("LongT5"), IDS, attention_mask=LEFT)


LLAMA = dict(vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2,
             tie_word_embeddings=False, max_position_embeddings=64)
CAUSAL = {  # name: options of the config in addition to LLAMA
    "Llama": {}, "Mistral": dict(sliding_window=7),
    "Gemma2": dict(head_dim=8, sliding_window=9, attn_logit_softcapping=3.0),
    "GptOss": dict(head_dim=8, sliding_window=9, num_local_experts=2, num_experts_per_tok=1),
    "Bloom": dict(hidden_size=48, n_head=6, n_layer=2)}


def causal(name):
    config = {**({} if name == "Bloom" else LLAMA), "vocab_size": 60, **CAUSAL[name]}
    return made(getattr(transformers, f"{name}ForCausalLM"), getattr(transformers, f"{name}Config")(**config))


@pytest.mark.parametrize("padding", [None, RIGHT, LEFT], ids=["whole", "right", "left"])
@pytest.mark.parametrize("name", CAUSAL)
def test_causal(name, padding):
    others = ("eager",) if name in ("Bloom", "GptOss", "Gemma2") else ("eager", "sdpa")
    agree(causal(name), padding, others, input_ids=IDS, attention_mask=padding)


@pytest.mark.parametrize("cache", [{}, dict(use_cache=False), dict(cache_implementation="static"), dict(num_beams=3)],
                         ids=str)
@pytest.mark.parametrize("name", CAUSAL)
def test_causal_generates_the_same(name, cache):
    generated(causal(name), IDS, attention_mask=LEFT, **cache)


@pytest.mark.parametrize("name", ["T5", *CAUSAL])
def test_a_chunk_after_a_cache(name):
    """Nine queries follow twenty tokens, which are in the cache unless a sliding window has dropped them."""
    model = t5() if name == "T5" else causal(name)
    ids = "decoder_input_ids" if name == "T5" else "input_ids"
    mask = "decoder_attention_mask" if name == "T5" else "attention_mask"
    more = dict(input_ids=IDS, attention_mask=RIGHT) if name == "T5" else {}
    found = {}
    with torch.no_grad():
        for implementation in ("relpos", "eager"):
            model.set_attn_implementation(implementation)
            first = model(**{ids: IDS[:, :20], mask: LEFT[:, :20]}, **more, use_cache=True)
            then = model(**{ids: IDS[:, 20:], mask: LEFT}, **more, past_key_values=first.past_key_values)
            found[implementation] = then.logits[:, 5:]
    torch.testing.assert_close(found["relpos"], found["eager"], atol=2e-5 * float(found["eager"].abs().max()), rtol=0)


@pytest.mark.parametrize("name", ["Bloom", "Mpt"])
def test_caches_keep_norms(name, monkeypatch):
    """With ALiBi, layers of a DynamicCache keep norms. Steps with norms are bit-identical to steps without, after any
    change of the cache."""
    monkeypatch.setenv("RELPOS_SKIP", "check")
    model = causal("Bloom") if name == "Bloom" else tokens("Mpt", "ForCausalLM", vocab_size=60, d_model=48, n_layers=2,
                                                           n_heads=6, max_seq_len=2048)[0]
    model.set_attn_implementation("relpos")
    ids = torch.randint(3, 60, (2, 1300), generator=torch.Generator().manual_seed(6))
    used = []
    original = relpos.attention
    monkeypatch.setattr(relpos, "attention",
                        lambda *args, key_norms=None, **more: (used.append(key_norms is not None),
                                                               original(*args, key_norms=key_norms, **more))[1])

    def step(cache, tokens):
        """Return the logits of a step, and of a step with a copy of the cache whose layers concatenate and keep no
        norms."""
        plain = transformers.DynamicCache()
        for n, layer in enumerate(cache.layers):
            plain.update(layer.keys.clone(), layer.values.clone(), n)
        used.clear()
        found = model(tokens, past_key_values=cache, use_cache=True).logits
        assert used == [True, True] and all(type(x) is relpos.hf._cache.Layer for x in cache.layers)
        with monkeypatch.context() as m:
            m.setattr(relpos.hf._adapters, "update",
                      lambda cache, key, value, index: (*cache.update(key, value, index), {}))
            want = model(tokens, past_key_values=plain, use_cache=True).logits
        assert used == [True, True, False, False]
        assert torch.equal(found, want)
        return found

    with torch.no_grad():
        cache = transformers.DynamicCache(config=model.config)
        model(ids, past_key_values=cache, use_cache=True)
        assert cache.layers[0].key_norms.shape == (2, 6, 21)
        for n in range(3):
            step(cache, ids[:, n:n + 1])
        cache.reorder_cache(torch.tensor([1, 1]))
        step(cache, ids[:, :1])
        cache.batch_repeat_interleave(2)
        step(cache, ids[:, :1].repeat(2, 1))
        cache.batch_select_indices(torch.tensor([2, 0]))
        step(cache, ids[:, :2])
        cache.crop(-5)
        step(cache, ids[:, :1])
        cache.layers[0].keys[0, 1, 40] *= 50  # by other code
        step(cache, ids[:, :1])
        cache.layers[1].keys = cache.layers[1].keys * 3
        step(cache, ids[:, :1])
        step(pickle.loads(pickle.dumps(cache)), ids[:, :1])
        step(copy.deepcopy(cache), ids[:, :1])
        model.set_attn_implementation("eager")
        other = copy.deepcopy(cache)
        model(ids[:, :1], past_key_values=other, use_cache=True)
        model.set_attn_implementation("relpos")
        step(other, ids[:, :1])
        cache.reset()
        assert cache.layers[0].key_norms is None
        model(ids[:, :1100], past_key_values=cache, use_cache=True)
        step(cache, ids[:, :1])
    with torch.inference_mode():
        cache = transformers.DynamicCache()
        model(ids, past_key_values=cache, use_cache=True)
        step(cache, ids[:, :1])
    cache = transformers.DynamicCache()  # with gradients, keys are concatenated
    model(ids[:, :50], past_key_values=cache, use_cache=True)
    used.clear()
    model(ids[:, 50:51], past_key_values=cache, use_cache=True).logits.sum().backward()
    assert used == [False, False] and cache.layers[0].key_norms is None


def test_bloom_with_padding_between_tokens():
    padding = LEFT.clone()
    padding[:, 20:23] = 0
    agree(causal("Bloom"), padding, ["eager"], input_ids=IDS, attention_mask=padding)
    generated(causal("Bloom"), IDS, attention_mask=padding)


def scaled(name):
    """Return a model whose RoPE has a length of the batch (trained for 16 tokens)."""
    shape = dict(vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                 pad_token_id=0)
    if name == "dynamic":
        rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100.0}
        return made(transformers.LlamaForCausalLM,
                    transformers.LlamaConfig(**shape, max_position_embeddings=16, rope_parameters=rope))
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0],
            "rope_theta": 100.0,
            "original_max_position_embeddings": 16}
    return made(transformers.Phi3ForCausalLM,
                transformers.Phi3Config(**shape, max_position_embeddings=64, original_max_position_embeddings=16,
                                         rope_parameters=rope))


@pytest.mark.parametrize("padding", [None, "right", "left"])
@pytest.mark.parametrize("name", ["dynamic", "longrope"])
def test_rope_with_a_length(name, padding):
    """transformers chooses frequencies by the largest position of the batch, and relpos follows: entries of 11 tokens
    too."""
    keep = {None: torch.ones_like(RIGHT), "right": RIGHT, "left": LEFT}[padding]
    at = (keep.cumsum(1) - 1).clamp(0) if padding == "left" else None
    agree(scaled(name), keep, input_ids=IDS, attention_mask=None if padding is None else keep, position_ids=at)
    # the next tokens pass the trained length; a model keeps its frequencies, so take a new one
    for ids in IDS[:, :11], IDS[:1]:
        assert torch.equal(*(generated(scaled(name), ids, (implementation,)) for implementation in ("relpos", "eager")))


def test_packed_sequences(monkeypatch):
    positions = torch.tensor([[*range(10), *range(12), *range(7)]])
    masks, made = [], relpos.hf.mask
    monkeypatch.setitem(masking_utils.ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "relpos",
                        lambda *args, **kwargs: masks.append(made(*args, **kwargs)) or masks[-1])
    agree(causal("Llama"), input_ids=IDS[:1], position_ids=positions, use_cache=False)
    assert all(x.options.keys() == {"causal", "segments"} for x in masks) and masks, "no N×N array"


@pytest.mark.parametrize("model", [lambda: causal("Llama"), lambda: t5().encoder], ids=["Llama", "T5"])
def test_a_mask_of_the_caller(model):
    square = torch.rand(3, 1, 29, 29, generator=torch.Generator().manual_seed(0)) < 0.5
    square |= torch.eye(29, dtype=torch.bool)
    agree(model(), implementations=["sdpa"], input_ids=IDS, attention_mask=square)
    agree(model(), input_ids=IDS, attention_mask=torch.where(square, 0.0, -30.0))


@pytest.mark.parametrize("image", [32, 28])
def test_swin(image):
    config = transformers.SwinConfig(image_size=image, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4],
                                     window_size=4,
                                     drop_path_rate=0.0)
    pixels = torch.randn(2, 3, image, image, generator=torch.Generator().manual_seed(0))
    model = made(transformers.SwinModel, config)
    agree(model, pixel_values=pixels)


@pytest.mark.parametrize("layers, shared", [(True, False), (False, True), (True, True)])
def test_beit(layers, shared):
    """Each layer has a table, or all share one. With both, the sum of the biases is an array."""
    config = transformers.BeitConfig(image_size=16, patch_size=4, hidden_size=32, num_hidden_layers=2,
                                     num_attention_heads=4,
                                     intermediate_size=48, use_relative_position_bias=layers,
                                     use_shared_relative_position_bias=shared,
                                     drop_path_rate=0.0)
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    model = made(transformers.BeitModel, config)
    agree(model, pixel_values=pixels)
    found = []
    model.set_attn_implementation("relpos")
    for x in model.modules():
        if type(x).__name__ == "BeitRelativePositionBias":
            x.register_forward_hook(lambda module, args, out: found.append(type(out)))
    with torch.no_grad():
        model(pixel_values=pixels)
    assert found == [torch.Tensor] * 3 if layers and shared else set(found) == {relpos.hf.Mask}


def test_beit_of_another_image_size_has_an_array():
    """The model interpolates its table, so relpos gets the bias as an array."""
    config = transformers.BeitConfig(image_size=16, patch_size=4, hidden_size=32, num_hidden_layers=2,
                                     num_attention_heads=4,
                                     intermediate_size=48, use_relative_position_bias=True, drop_path_rate=0.0)
    pixels = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    agree(made(transformers.BeitModel, config), pixel_values=pixels)


DEBERTA = dict(vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
               relative_attention=True, max_position_embeddings=64, position_biased_input=False,
               norm_rel_ebd="layer_norm", pad_token_id=0)


@pytest.mark.parametrize("more", [
    dict(pos_att_type=["c2p", "p2c"], position_buckets=8, share_att_key=True),
    dict(pos_att_type=["c2p", "p2c"], position_buckets=8, share_att_key=False, conv_kernel_size=3),
    dict(pos_att_type=["p2c"], max_relative_positions=10), dict(pos_att_type=["c2p"], max_relative_positions=40),
    # 29 tokens use the vectors of 57 distances
    dict(pos_att_type=["c2p", "p2c"], position_buckets=58, share_att_key=True),
    dict(relative_attention=False)], ids=str)
def test_deberta(more):
    model = made(transformers.DebertaV2Model, transformers.DebertaV2Config(**{**DEBERTA, **more}))
    for padding in (None, RIGHT, LEFT):
        agree(model, padding, ["eager"], input_ids=IDS, attention_mask=padding)


def vision(name, keep=None, **config):
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return made(getattr(transformers, f"{name}Model"),
                getattr(transformers, f"{name}Config")(**config)), dict(pixel_values=pixels), keep


def tokens(name, kind="Model", **config):
    model = made(getattr(transformers, name + kind), getattr(transformers, f"{name}Config")(**config))
    return model, dict(input_ids=IDS, attention_mask=RIGHT), RIGHT


def layout():
    """Return LayoutLMv3 and inputs: boxes of words of different heights, from left to right and down the page."""
    at = torch.arange(29).expand(3, -1)
    boxes = torch.stack([at % 7 * 30, at // 7 * 40, at % 7 * 30 + 25, at // 7 * 40 + 10 + 12 * (at % 4)], -1)
    model, inputs, keep = tokens("LayoutLMv3", **BERT, coordinate_size=6, shape_size=4, input_size=32, patch_size=16,
                                 visual_embed=False,
                                 max_2d_position_embeddings=256, rel_pos_bins=16, rel_2d_pos_bins=32)
    return model, {**inputs, "bbox": boxes}, keep


def xlnet(**more):
    model, inputs, keep = tokens("XLNet", vocab_size=60, d_model=32, n_layer=2, n_head=4, d_inner=48, **more)
    return model, inputs, keep


def speech(name, kind):
    model, _, _ = tokens(name, vocab_size=60, **BERT, position_embeddings_type=kind, add_adapter=False,
                         left_max_position_embeddings=7,
                         right_max_position_embeddings=3, feature_projection_input_dim=20, conv_depthwise_kernel_size=3,
                         output_hidden_size=32,
                         conv_dim=(20, 20), conv_kernel=(3, 3), conv_stride=(2, 2), num_conv_pos_embeddings=8,
                         num_conv_pos_embedding_groups=2, mask_time_prob=0.0, max_source_positions=64)
    g = torch.Generator().manual_seed(0)
    return model, {"input_features": torch.randn(2, 33, 20, generator=g)} if "Bert" in name else {
        "input_values": torch.randn(2, 150, generator=g)}, None


def sound():
    """Return CLAP and inputs: windows of a spectrogram, which the model treats as an image."""
    config = transformers.ClapAudioConfig(window_size=4, num_mel_bins=16, spec_size=64, patch_size=4,
                                          patch_stride=(4, 4), hidden_size=64,
                                          patch_embeds_hidden_size=16, depths=[2, 2, 2], num_attention_heads=[2, 4, 4],
                                          enable_fusion=False, drop_path_rate=0.0)
    g = torch.Generator().manual_seed(0)
    return made(transformers.ClapAudioModel, config), {"input_features": torch.randn(2, 1, 256, 16, generator=g)}, None


def siglip2():
    """Return SigLIP 2 and inputs: patches of three images. The second and the third are smaller. A learned query pools
    each image."""
    config = transformers.Siglip2VisionConfig(**BERT, num_patches=16, patch_size=4)
    pixels = torch.randn(3, 12, 48, generator=torch.Generator().manual_seed(0))
    shapes = torch.tensor([[3, 4], [2, 2], [3, 3]])
    mask = (torch.arange(12) < shapes.prod(1)[:, None]).long()
    return made(transformers.Siglip2VisionModel, config), dict(pixel_values=pixels, pixel_attention_mask=mask,
                                                               spatial_shapes=shapes), None


def wavlm(**more):
    """Return WavLM and inputs: sounds of 29 frames of 20 samples. The second and the third end earlier. Some distances
    are beyond the last bucket."""
    config = transformers.WavLMConfig(**{**BERT, "num_hidden_layers": 3}, conv_dim=[16], conv_kernel=[20],
                                      conv_stride=[20], num_buckets=16,
                                      max_bucket_distance=12, num_conv_pos_embeddings=4,
                                      num_conv_pos_embedding_groups=2,
                                      feat_extract_norm="layer", **more)
    sounds = torch.randn(3, 29 * 20, generator=torch.Generator().manual_seed(0))
    return made(transformers.WavLMModel, config), {"input_values": sounds,
                                                   "attention_mask": RIGHT.repeat_interleave(20, 1)}, None


BERT = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
SWIN = dict(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
            drop_path_rate=0.0)
DETECTOR = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=4,
                drop_path_rate=0.0)
INKLING = dict(vocab_size=60, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
               head_dim=8, swa_num_attention_heads=4, swa_num_key_value_heads=2, swa_head_dim=8, d_rel=4, rel_extent=9,
               log_scaling_n_floor=5, moe_intermediate_size=24, n_routed_experts=4, num_experts_per_tok=2,
               bos_token_id=1, eos_token_id=2, pad_token_id=0, sliding_window_size=7)


def inkling(name="Inkling", kind="TextModel", **more):
    """Return Inkling, with a layer of a sliding window and layers with the temperature from token 5 on."""
    config = getattr(transformers, name + "TextConfig")(**{**INKLING, **more},
                                                        layer_types=["hybrid_sliding", "hybrid", "hybrid"])
    return made(getattr(transformers, name + kind), config), dict(input_ids=IDS, attention_mask=RIGHT), RIGHT


ADAPTED = {  # models with an adapter: they compute their own attention, or make N×N arrays for it
    "Swinv2": lambda: vision("Swinv2", **SWIN),
    "Swin2SR": lambda: vision("Swin2SR", **{key: x for key, x in SWIN.items() if key != "patch_size"}, patch_size=1),
    "DonutSwin": lambda: vision("DonutSwin", **SWIN),
    "Beit": lambda: vision("Beit", image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2,
                           num_attention_heads=4, intermediate_size=40,
                           use_relative_position_bias=True, drop_path_rate=0.0),
    "MaskFormerSwin": lambda: vision("MaskFormerSwin", **SWIN),
    "ClapAudio": sound,
    "VitDet": lambda: vision("VitDet", **DETECTOR, window_size=3, window_block_indices=[0],
                             use_relative_position_embeddings=True),
    "VitDet without positions": lambda: vision("VitDet", **DETECTOR),
    "Sam": lambda: vision("SamVision", **{**DETECTOR, "patch_size": 4}, mlp_dim=32, output_channels=16, window_size=3,
                          global_attn_indexes=[1]),
    "Siglip2": lambda: siglip2(),
    "SamHQ": lambda: vision("SamHQVision", **DETECTOR, mlp_dim=32, output_channels=16, window_size=3,
                            global_attn_indexes=[1]),
    "Deberta": lambda: tokens("Deberta", **DEBERTA, pos_att_type=["c2p", "p2c"]),
    "Deberta up to 10": lambda: tokens("Deberta", **DEBERTA, pos_att_type=["p2c"], max_relative_positions=10),
    "Deberta without positions": lambda: tokens("Deberta", **{**DEBERTA, "relative_attention": False},
                                                pos_att_type=["c2p"]),
    "MPNet": lambda: tokens("MPNet", vocab_size=60, **BERT),
    "LayoutLMv3": layout,
    "XLNet": lambda: xlnet(),
    # a causal XLNet accepts padding with no implementation
    "XLNet, causal": lambda: xlnet(attn_type="uni")[:1] + (dict(input_ids=IDS), None),
    "XLNet, to and fro": lambda: (lambda model, inputs, keep: (model, {x: y[:2] for x, y in inputs.items()},
                                                               keep[:2]))(*xlnet(bi_data=True)),
    "XLNet, segments": lambda: (lambda model, inputs, keep: (model, {**inputs, "token_type_ids": (IDS > 30).long()
                                                                     + (IDS > 40)}, keep))(*xlnet()),
    "XLNet, many segments": lambda: (lambda model, inputs, keep: (model, {**inputs, "token_type_ids": IDS},
                                                                  keep))(*xlnet()),
    "Wav2Vec2Bert": lambda: speech("Wav2Vec2Bert", "relative_key"),
    "Wav2Vec2Bert, relative": lambda: speech("Wav2Vec2Bert", "relative"),
    "Wav2Vec2Conformer": lambda: speech("Wav2Vec2Conformer", "relative"),
    "WavLM": lambda: wavlm(),
    "WavLM, norms first": lambda: wavlm(do_stable_layer_norm=True),
    "GPTJ": lambda: tokens("GPTJ", "ForCausalLM", vocab_size=60, n_embd=32, n_layer=2, n_head=4, rotary_dim=4,
                           n_positions=64),
    "CodeGen": lambda: tokens("CodeGen", "ForCausalLM", vocab_size=60, n_embd=32, n_layer=2, n_head=4, rotary_dim=4,
                              n_positions=64),
    "RoFormer": lambda: tokens("RoFormer", vocab_size=60, **BERT),
    "RoFormer, values too": lambda: tokens("RoFormer", vocab_size=60, **BERT, rotary_value=True),
    "Mpt": lambda: tokens("Mpt", "ForCausalLM", vocab_size=60, d_model=48, n_layers=2, n_heads=6, max_seq_len=64),
    "Falcon": lambda: tokens("Falcon", "ForCausalLM", vocab_size=60, **BERT),
    "Falcon, ALiBi": lambda: tokens("Falcon", "ForCausalLM", vocab_size=60, **BERT, alibi=True, multi_query=False,
                                    parallel_attn=False),
    **{name: lambda name=name: inkling(name) for name in ("Inkling", "Inkling2", "Inkling2Loop")
       if hasattr(transformers, name + "TextConfig")},  # the last two since 5.24
}


@pytest.mark.parametrize("name", ADAPTED)
def test_models_with_an_adapter(name):
    model, inputs, keep = ADAPTED[name]()
    other = "sdpa" if "Falcon" in name else "eager"  # eager attention adds ALiBi twice: docs/hf.md
    for padding in (keep,) if keep is None else (keep, keep.flip(1)):
        given = inputs if keep is None else {**inputs, "attention_mask": padding}
        agree(model, padding, [other], **given)


# eager attention of Falcon adds ALiBi twice, the weight norm of WavLM has no forward mode in torch, Inkling is in f32
@pytest.mark.parametrize("name", [name for name in ADAPTED if name != "Falcon, ALiBi" and "WavLM" not in name
                                  and "Inkling" not in name])
def test_forward_mode_of_models_with_an_adapter(name):
    model, inputs, keep = ADAPTED[name]()
    inputs = {n: x.double() if torch.is_tensor(x) and x.is_floating_point() else x for n, x in inputs.items()}
    parameters = {n: p.detach() for n, p in model.double().named_parameters()}
    g = torch.Generator().manual_seed(3)
    tangents = {n: torch.randn(p.shape, generator=g, dtype=p.dtype) for n, p in parameters.items()}

    def outputs(parameters):
        out = torch.func.functional_call(model, parameters, (), inputs)
        out = out.logits if "logits" in out else out.last_hidden_state
        return out if keep is None else out[keep.bool()]

    found = []
    for implementation in ("relpos", "eager"):
        model.set_attn_implementation(implementation)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # only this one has forward mode
            found.append(torch.func.jvp(outputs, (parameters,), (tangents,))[1])
    torch.testing.assert_close(*found, atol=1e-6 * float(found[1].abs().max()), rtol=0)


def test_falcon_adds_alibi_once():
    """Falcon was trained with softmax((q k^T + alibi) / sqrt(D)). In transformers, eager attention adds alibi / sqrt(D)
    twice, once as part of its mask; sdpa adds it once."""
    model, inputs, _ = ADAPTED["Falcon, ALiBi"]()
    layer, found = model.transformer.h[0].self_attention, {}
    layer.dense.register_forward_pre_hook(lambda module, given: found.update(out=given[0]))
    layer.query_key_value.register_forward_hook(lambda module, given, out: found.update(mixed=out))
    for implementation in ("relpos", "sdpa", "eager"):
        model.set_attn_implementation(implementation)
        model(input_ids=inputs["input_ids"][:1])
        q, k, v = (x.transpose(1, 2) for x in layer._split_heads(found["mixed"]))
        module = sys.modules[type(layer).__module__]
        alibi = module.build_alibi_tensor(torch.ones(1, 29, dtype=torch.long), 4, torch.float32)[None]
        times = 2 if implementation == "eager" else 1
        scores = (q @ k.transpose(-1, -2) + times * alibi.view(1, 4, 1, 29)) / q.shape[-1] ** 0.5
        want = (scores + torch.full((29, 29), -torch.inf).triu(1)).softmax(-1) @ v
        torch.testing.assert_close(found["out"], want.transpose(1, 2).flatten(2), atol=1e-5, rtol=0)


def test_siglip2_pools_unmasked_patches():
    model, inputs, _ = siglip2()
    found = []
    for implementation in ("relpos", "eager"):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        out = model(**inputs).pooler_output
        (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
        found.append([out.detach()] + [p.grad for p in model.head.parameters()])
    for got, want in zip(*found):
        torch.testing.assert_close(got, want, atol=2e-5 * float(want.abs().max()) + 1e-6, rtol=0)


@pytest.mark.parametrize("name", [name for name in ADAPTED if name not in (
    # with eager attention, these fail too or return no weights
    "Sam", "SamHQ", "VitDet without positions", "MaskFormerSwin")])
def test_weights_of_adapted_models(name):
    model, inputs, keep = ADAPTED[name]()
    found = []
    for implementation in ("relpos", "eager"):
        model.set_attn_implementation(implementation)
        found.append(model(**inputs, output_attentions=True).attentions)
    assert len(found[0]) == len(found[1]) > 0
    for got, want in zip(*found):
        if "ALiBi" in name:  # the weights of eager attention are wrong, since it adds ALiBi twice
            torch.testing.assert_close(got.sum(-1)[:, 0][RIGHT > 0], torch.ones(int(RIGHT.sum())))
            continue
        assert got.shape == want.shape
        rows = torch.ones(got.shape[:3],
                          dtype=torch.bool) if keep is None else keep[:, None].bool().expand(got.shape[:3])
        # the tolerance of `agree`
        torch.testing.assert_close(got[rows], want[rows], atol=2e-5 * float(want[rows].max()), rtol=0)


@pytest.mark.parametrize("cache", [{}, dict(use_cache=False), dict(num_beams=3)], ids=str)
@pytest.mark.parametrize("name", ["GPTJ", "CodeGen", "Mpt", "Falcon", "Falcon, ALiBi"])
def test_adapted_models_generate_the_same(name, cache):
    generated(ADAPTED[name]()[0], IDS, ("relpos", "sdpa" if "Falcon" in name else "eager"), attention_mask=LEFT,
              **cache)


@pytest.mark.parametrize("name", ["GPTJ", "CodeGen", "Mpt", "Falcon", "Falcon, ALiBi", "T5", *CAUSAL])
def test_a_step_with_a_cache_has_one_query_and_every_key(name, monkeypatch):
    """Only this test covers MPT with a cache, because the config of MPT sets use_cache=False."""
    model = t5() if name == "T5" else causal(name) if name in CAUSAL else ADAPTED[name]()[0]
    steps, attend = [], relpos.attention

    def counted(q, k, v, **options):
        if steps:  # T5's encoder runs before the first step
            steps[-1].append((q.shape[-2], k.shape[-2]))
        return attend(q, k, v, **options)

    monkeypatch.setattr(relpos, "attention", counted)
    model.register_forward_pre_hook(lambda *_: steps.append([]))
    generated(model, IDS, ("relpos", "sdpa" if "Falcon" in name else "eager"), attention_mask=LEFT, use_cache=True)
    assert len(steps) == 24 and not any(steps[12:])
    for n, step in enumerate(steps[1:12], 2):
        assert {queries for queries, _ in step} == {1}
        # keys of T5's target and text, of the whole text, or of a sliding window
        assert {keys for _, keys in step} <= {n, 29, 29 + n - 1, 7, 9}
        assert max(keys for _, keys in step) >= 29 or name == "Mistral"


@pytest.mark.parametrize("cache", [{}, dict(use_cache=False), dict(num_beams=3)], ids=str)
@pytest.mark.parametrize("name", [name for name in ADAPTED if "Inkling" in name])
def test_inkling_generates_the_same(name, cache):
    """The first layer, a window of seven, drops keys from its cache. Eager attention fails with a static cache."""
    model = inkling(name, "ForCausalLM", unpadded_vocab_size=60)[0]
    generated(model, IDS, attention_mask=LEFT, **cache)


def test_sinks_of_each_query():
    """A sink is one more score of the softmax, without a value. Row 2 has no keys, so its output is zero."""
    g = torch.Generator().manual_seed(0)
    q, k, v, sinks, seed = (torch.randn(shape, generator=g, dtype=torch.float64, requires_grad=True) for shape in (
        (2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8), (2, 4, 5, 1), (2, 5, 4, 8)))
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    mask[:, :, 2] = mask[:, :, :, 5:] = False
    found, module = [], torch.nn.Module()
    for wants in (False, True):
        out, weights = relpos.hf.attention(module, q, k, v, mask, scaling=0.3, sinks=sinks, output_attentions=wants)
        assert (weights is not None) == wants
        found.append((out, *torch.autograd.grad((out * seed).sum(), (q, k, v, sinks))))
    keys, values = (x.repeat_interleave(2, 1) for x in (k, v))
    scores = (0.3 * q @ keys.mT).masked_fill(~mask, -torch.inf)
    want = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
    out = (want @ values).transpose(1, 2)
    expected = out, *torch.autograd.grad((out * seed).sum(), (q, k, v, sinks))
    torch.testing.assert_close(weights, want, atol=1e-14, rtol=0)
    for got in found:
        for a, b in zip(got, expected):
            torch.testing.assert_close(a, b, atol=1e-13, rtol=0)
    with pytest.raises(ValueError, match=r"sinks has shape \(2, 4, 1, 1\), but Module has queries of shape "
                                         r"\(2, 4, 5, 8\); pass one number for each query, \(2, 4, 5, 1\)"):
        relpos.hf.attention(module, q, k, v, mask, sinks=sinks[:, :, :1])


def test_xlnet_generates_the_same():
    """Each step of XLNet has a memory, a permutation and one target. One run has padding before the text."""
    model = tokens("XLNet", "LMHeadModel", vocab_size=60, d_model=32, n_layer=2, n_head=4, d_inner=48)[0]
    for options in (dict(attention_mask=torch.ones_like(IDS)), dict(attention_mask=LEFT), dict(use_mems=False)):
        generated(model, IDS, **options)


@pytest.mark.parametrize("name", ["Swinv2", "Deberta", "MPNet", "Mpt", "Falcon", "GPTJ", "VitDet",
                                  *(name for name in ADAPTED if "Inkling" in name)])
def test_adapted_models_compile(name):
    model, inputs, keep = ADAPTED[name]()
    model.set_attn_implementation("relpos")
    inputs = {**inputs, "use_cache": False} if name in ("Mpt", "Falcon", "GPTJ") or "Inkling" in name else inputs
    want = model(**inputs, return_dict=False)[0].detach()
    torch._dynamo.reset()
    got = torch.compile(model, backend="aot_eager", fullgraph="Inkling" in name)(**inputs, return_dict=False)[0]
    torch.testing.assert_close(got, want, atol=2e-5 * float(want.abs().max()), rtol=0)


def test_pix2struct():
    config = transformers.Pix2StructConfig(
        text_config=dict(vocab_size=60, hidden_size=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                         relative_attention_num_buckets=12,
                         relative_attention_max_distance=20, decoder_start_token_id=0, eos_token_id=None,
                         pad_token_id=0),
        vision_config=dict(hidden_size=32, patch_embed_hidden_size=20, d_ff=48, d_kv=8, num_hidden_layers=2,
                           num_attention_heads=4, seq_len=24))
    model = made(transformers.Pix2StructForConditionalGeneration, config)
    patches = torch.randn(3, 24, 20 + 2, generator=torch.Generator().manual_seed(0))
    patches[..., :2] = torch.stack([torch.arange(24) // 6 + 1, torch.arange(24) % 6 + 1], -1).float()
    agree(model, RIGHT, ["eager"], flattened_patches=patches, decoder_input_ids=IDS, decoder_attention_mask=RIGHT)
    found = []
    for implementation in ("relpos", "eager"):
        model.set_attn_implementation(implementation)
        found.append(model.generate(flattened_patches=patches, max_new_tokens=12, do_sample=False))
    assert torch.equal(*found)


def test_a_model_loaded_with_relpos_equals_one_switched_later():
    """Modules without a config get the config of their model, whether relpos is selected at loading or later."""
    config = transformers.Swinv2Config(**SWIN)
    first = transformers.Swinv2Model._from_config(config, attn_implementation="relpos").eval()
    second = transformers.Swinv2Model(transformers.Swinv2Config(**SWIN)).eval()
    second.load_state_dict(first.state_dict())
    pixels = torch.ones(1, 3, 32, 32).cumsum(-1)
    want = second(pixels).last_hidden_state
    second.set_attn_implementation("relpos")
    got = first(pixels).last_hidden_state
    assert torch.equal(got, second(pixels).last_hidden_state) and not torch.equal(got, want)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name, config", [
    ("RoFormer", dict(is_decoder=True)), ("Deberta", dict(talking_head=True)), ("GPTNeo", {}), ("Funnel", {}),
    ("BridgeTower", {})], ids=str)
def test_own_attention_is_refused_at_loading(name, config):
    sizes = dict(attention_types=[[["global"], 12]], num_layers=12) if name == "GPTNeo" else {}
    config = getattr(transformers, f"{name}Config")(**config, **sizes)
    with torch.device("meta"), pytest.raises(relpos.hf.Refused, match=f"{name}Model computes its own attention"):
        getattr(transformers, f"{name}Model")._from_config(config, attn_implementation="relpos")


@pytest.mark.parametrize("name, said", [x for x in (
    ("BigBirdPegasus", "BigBirdPegasusBlockSparseAttention, and it computes attention itself"),
    ("Doge", "DogeAttention, and it computes with its mask .torch.where.attention_mask"),
    ("DeepseekV4", "DeepseekV4Attention, and it computes with its mask .torch.cat"),
    ("HYV4", "HYV4Attention, and it passes its attention function the argument indices"),
    ("HYV4VL", "HYV4VLAttention, and it passes its attention function the argument indices"),
    ("LasrEncoder", "LasrEncoderConvolutionModule, and it computes with its mask"),
    ("T5Gemma2", "T5Gemma2Decoder, and it computes with its mask .torch.cat"))
                                        if hasattr(transformers, x[0] + "Config")])
def test_unsupported_code_is_refused_at_loading(name, said):
    """relpos.hf examines the code of a model, so it also refuses unsupported models that it has no entry for,
    such as HYV4VL of transformers 5.24."""
    config, cls = getattr(transformers, name + "Config"), getattr(transformers, name if "Encoder" in name else name
                                                                  + "Model")
    with torch.device("meta"), pytest.raises(relpos.hf.Refused, match=said):
        cls._from_config(config(), attn_implementation="relpos")
    with torch.device("meta"):
        model = cls(config())
        with pytest.raises(relpos.hf.Refused, match=said):
            model.set_attn_implementation("relpos")


def donut_and(decoder):
    """Return a composite model of Donut's image encoder and a decoder."""
    encoder = transformers.DonutSwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[2], num_heads=[2],
                                           window_size=4)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    return transformers.VisionEncoderDecoderModel(config)


AFTER_EAGER = """
import torch, transformers, relpos.hf
encoder = transformers.DonutSwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[2], num_heads=[2],
                                       window_size=4)
decoder = transformers.FalconConfig(vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                                    alibi=True)
for model in (transformers.DonutSwinModel(encoder), transformers.FalconForCausalLM(decoder)):
    model.set_attn_implementation("eager")
    model.set_attn_implementation("relpos")
    assert model.config._attn_implementation == "relpos"
"""


def test_relpos_after_eager():
    """transformers caches in the class of a model that its attention implementation cannot be changed. The test needs a
    new process, which has an empty cache."""
    subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", AFTER_EAGER], check=True)


GPT = dict(vocab_size=60, n_embd=32, n_layer=1, n_head=2)


def test_a_dictionary_is_refused_as_a_name_is():
    """In a dictionary of implementations, the key "" means the whole model, and the name of a config means a part."""
    doge = transformers.DogeConfig(vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                                   num_attention_heads=2)
    for config, said in ((transformers.OpenAIGPTConfig(**GPT), "OpenAIGPTModel computes its own attention"),
                         (doge, "DogeModel has a DogeAttention, and it computes with its mask")):
        model = transformers.AutoModel.from_config(config)
        was = model.config._attn_implementation
        for requested in ("relpos", {"": "relpos"}):
            with pytest.raises(relpos.hf.Refused, match=said):
                model.set_attn_implementation(requested)
            assert model.config._attn_implementation == was
            with pytest.raises(relpos.hf.Refused, match=said):
                transformers.AutoModel.from_config(type(config)(**config.to_diff_dict()), attn_implementation=requested)
    neo = transformers.GPTNeoConfig(vocab_size=60, hidden_size=16, num_layers=1, attention_types=[[["global"], 1]],
                                    num_heads=2,
                                       is_decoder=True, add_cross_attention=False)
    model = donut_and(neo)
    for requested in ("relpos", {"": "eager", "decoder": "relpos"}, {"encoder": "relpos", "decoder": {"": "relpos"}}):
        with pytest.raises(relpos.hf.Refused, match="GPTNeoForCausalLM computes its own attention"):
            model.set_attn_implementation(requested)
    model.set_attn_implementation({"": "eager", "encoder": "relpos", "decoder": "eager"})
    assert (model.encoder.config._attn_implementation, model.decoder.config._attn_implementation) == ("relpos", "eager")


def test_the_same_training():
    losses = {}
    for implementation in ("relpos", "eager"):
        torch.manual_seed(3)
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(**T5, dropout_rate=0.0)).train()
        model.set_attn_implementation(implementation)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        g = torch.Generator().manual_seed(7)
        losses[implementation] = []
        for _ in range(20):
            ids = torch.randint(3, 60, (4, 24), generator=g)
            loss = model(input_ids=ids, attention_mask=(torch.arange(24) < 20).expand(4, 24),
                         labels=ids[:, :9].contiguous()).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[implementation].append(loss.item())
    assert losses["eager"][-1] < losses["eager"][0] - 0.5
    assert losses["relpos"] == pytest.approx(losses["eager"], abs=1e-4)


class Storage(torch.utils._python_dispatch.TorchDispatchMode):
    """Record the size in bytes of the largest tensor."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for x in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(x, torch.Tensor):
                self.largest = max(self.largest, x.untyped_storage().nbytes())
        return found


LONG = {  # name: options of the config, for long texts
    "MPNet": dict(max_position_embeddings=1100),
    "LayoutLMv3": dict(max_position_embeddings=1100, visual_embed=False, coordinate_size=6,
                       shape_size=4),
    "GPTJ": dict(n_embd=32, n_layer=1, n_head=2, rotary_dim=4, n_positions=1100),
    "Mpt": dict(d_model=32, n_layers=1, n_heads=2, max_seq_len=99),
    "Falcon": dict(alibi=True), "RoFormer": dict(max_position_embeddings=1100),
    "XLNet": dict(d_model=32, n_layer=1, n_head=2, d_inner=48)}


@pytest.mark.parametrize("name", ["T5", "UMT5", "LongT5", "Llama", "Mistral", "Bloom", "DebertaV2", "Deberta", "WavLM",
                                  *(name for name in ADAPTED if "Inkling" in name), *LONG])
def test_no_square_array_is_made(name):
    n = 1024
    ids = torch.randint(3, 60, (1, n), generator=torch.Generator().manual_seed(0))
    inputs = dict(input_ids=ids, attention_mask=(torch.arange(n) < 1000).long()[None])
    if "T5" in name:
        model = t5(name)
        inputs["decoder_input_ids"] = ids
    elif name == "DebertaV2":
        config = transformers.DebertaV2Config(**DEBERTA, pos_att_type=["c2p", "p2c"], position_buckets=8)
        model = made(transformers.DebertaV2Model, config)
    elif name == "Deberta" or "Inkling" in name:
        model = ADAPTED[name]()[0]
    elif name == "WavLM":
        model, g = wavlm()[0], torch.Generator().manual_seed(0)
        inputs = dict(input_values=torch.randn(1, n * 20, generator=g),
                      attention_mask=(torch.arange(n * 20) < 20000).long()[None])
    elif name in LONG:
        sizes = BERT if name in ("MPNet", "LayoutLMv3", "Falcon", "RoFormer") else {}
        model = tokens(name, vocab_size=60, **sizes, **LONG[name])[0]
        inputs |= {"LayoutLMv3": {"bbox": torch.zeros(1, n, 4, dtype=torch.long)},
                   "XLNet": {"token_type_ids": torch.arange(n)[None] // 400}}.get(name, {})
    else:
        model = causal(name)
    # MPT's eager attention is limited to max_seq_len
    for implementation in ("relpos", *(["eager"] if name != "Mpt" else [])):
        with Storage() as storage:
            results(model, implementation, **inputs)
        assert (storage.largest < n * n) == (implementation == "relpos"), storage.largest


def with_dropout(name):
    """Return a model with dropout of attention weights only, and its inputs."""
    if "T5" in name:
        model = t5(name, dropout_rate=0.4)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        return model.encoder, dict(input_ids=IDS)
    if name == "Swin":
        config = transformers.SwinConfig(image_size=16, patch_size=2, embed_dim=16, depths=[2], num_heads=[2],
                                         window_size=4,
                                         drop_path_rate=0.0, attention_probs_dropout_prob=0.4)
        return made(transformers.SwinModel, config), dict(pixel_values=torch.ones(1, 3, 16, 16).cumsum(-1))
    if name == "DebertaV2":
        config = transformers.DebertaV2Config(**DEBERTA, pos_att_type=["c2p"], hidden_dropout_prob=0.0,
                                              attention_probs_dropout_prob=0.4)
        return made(transformers.DebertaV2Model, config), dict(input_ids=IDS)
    config = dict(hidden_size=48, n_head=6, n_layer=2) if name == "Bloom" else LLAMA
    return made(getattr(transformers, f"{name}Model"), getattr(transformers, f"{name}Config")(
        **{**config, "vocab_size": 60}, attention_dropout=0.4)), dict(input_ids=IDS, use_cache=False)


@pytest.mark.parametrize("name", ["T5", "LongT5", "Llama", "Bloom", "Swin", "DebertaV2"])
def test_dropout(name):
    """torch's seed determines the dropout, and a recomputation for gradients drops the same weights."""
    model, inputs = with_dropout(name)
    model.train()
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(results(model, "relpos", **inputs))
    assert torch.equal(found[0][0], found[1][0]) and not torch.equal(found[0][0], found[2][0])
    torch.manual_seed(1)
    # the older name, before 5.23
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    out, gradients = results(model, "relpos", **inputs)
    assert torch.equal(out, found[0][0])
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, found[0][1][key], atol=1e-5 * float(gradient.abs().max()), rtol=0)


def test_dropout_keeps_the_mean():
    module, one = torch.nn.Module(), torch.ones(1, 4, 400, 8)
    torch.manual_seed(0)
    out, weights = relpos.hf.attention(module, one, one, one, None, dropout=0.25, is_causal=False)
    assert weights is None and out.shape == (1, 400, 4, 8)
    assert out.mean() == pytest.approx(1, abs=0.003) and out.std() == pytest.approx((1 / 3 / 400) ** 0.5, rel=0.1)


def test_a_new_model_and_attentions():
    config = transformers.LlamaConfig(**LLAMA)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="relpos").eval()
    assert model.config._attn_implementation == "relpos"
    got = model(IDS, attention_mask=RIGHT, output_attentions=True)
    model.set_attn_implementation("eager")
    want = model(IDS, attention_mask=RIGHT, output_attentions=True)
    assert len(got.attentions) == 2
    for a, b in zip(got.attentions, want.attentions):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    gradients = []
    for found in (got, want):
        model.zero_grad()
        found.logits.sin().sum().backward(retain_graph=True)
        gradients.append(model.model.layers[0].self_attn.q_proj.weight.grad.clone())
    torch.testing.assert_close(*gradients, atol=1e-4 * float(gradients[1].abs().max()), rtol=0)
    gradients = []
    for found in (got, want):
        model.zero_grad()
        found.attentions[1].pow(2).sum().backward()
        gradients.append(model.model.layers[0].self_attn.q_proj.weight.grad.clone())
    torch.testing.assert_close(*gradients, atol=1e-4 * float(gradients[1].abs().max()), rtol=0)


def test_bfloat16():
    model = causal("Llama").bfloat16()
    got, _ = results(model, "relpos", RIGHT, input_ids=IDS, attention_mask=RIGHT)
    want, _ = results(model.float(), "eager", RIGHT, input_ids=IDS, attention_mask=RIGHT)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), want, atol=0.15 * float(want.abs().max()), rtol=0)


AUTOCAST = {  # under autocast, rotary positions convert queries and keys to f32, and a cache converts values
    "Llama": lambda: (causal("Llama"), dict(input_ids=IDS, attention_mask=RIGHT, use_cache=False), RIGHT, "sdpa"),
    "Llama with a cache": lambda: (causal("Llama"), dict(input_ids=IDS), None, "sdpa"),
    "Mistral": lambda: (causal("Mistral"), dict(input_ids=IDS, attention_mask=LEFT, use_cache=False), LEFT, "sdpa"),
    "Qwen2": lambda: (made(transformers.Qwen2ForCausalLM, transformers.Qwen2Config(**LLAMA)),
                      dict(input_ids=IDS, use_cache=False), None,
                      "sdpa"),
    "GPTNeoX": lambda: (small("GPTNeoX"), dict(input_ids=IDS, attention_mask=RIGHT, use_cache=False), RIGHT, "sdpa"),
    "NomicBert": lambda: (small("NomicBert", pad_token_id=0), dict(input_ids=IDS, attention_mask=RIGHT), RIGHT, "sdpa"),
    "Bloom": lambda: (causal("Bloom"), dict(input_ids=IDS, attention_mask=LEFT), LEFT, "eager"),
    "T5": lambda: (t5(), dict(input_ids=IDS, attention_mask=RIGHT, decoder_input_ids=IDS[:, 8:21]), RIGHT[:, :13],
                   "sdpa"),
    "Bert": lambda: (small("Bert"), dict(input_ids=IDS, attention_mask=RIGHT), RIGHT, "sdpa"),
    "DebertaV2": lambda: COMPILED["DebertaV2"]() + ("eager",),
    "ViT": lambda: COMPILED["ViT"]() + ("sdpa",),
    "Swin": lambda: COMPILED["Swin"]() + ("sdpa",),
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast(name):
    """Under torch.autocast, the errors against float32 are at most 1.5 times those of another implementation, for
    outputs and gradients."""
    model, inputs, keep, other = AUTOCAST[name]()
    exact = results(model, "eager", keep, **inputs)
    error = {}
    for implementation in ("relpos", other):
        with torch.autocast("cpu", torch.bfloat16):
            out, gradients = results(model, implementation, keep, **inputs)
        assert gradients.keys() == exact[1].keys()
        for key, x in gradients.items():
            assert x.dtype == torch.float32, key
        of = lambda x, y: float((x.float() - y).norm() / y.norm())
        every = [torch.cat([x.flatten() for x in side.values()]) for side in (gradients, exact[1])]
        error[implementation] = out.dtype, of(out, exact[0]), of(*every)
    assert error["relpos"][0] == error[other][0]
    for got, want in zip(error["relpos"][1:], error[other][1:]):
        assert 0 < got < 1.5 * want < 0.3, error


def test_autocast_of_a_compiled_model():
    model, inputs, keep = COMPILED["Llama"]()
    model.set_attn_implementation("relpos")
    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16):
        want = model(**inputs).last_hidden_state
        got = torch.compile(model, backend="aot_eager", fullgraph=True)(**inputs).last_hidden_state
    torch.testing.assert_close(got[keep.bool()], want[keep.bool()], atol=0.02 * float(want.detach().abs().max()),
                               rtol=0)


def masks_of_transformers():
    """Return {name: (mask function, True if each query attends to one interval of keys)}."""
    from transformers import masking_utils
    causal, window = masking_utils.causal_mask_function, masking_utils.sliding_window_causal_mask_function
    blocks = masking_utils.blockwise_overlay
    images = torch.tensor([[-1, 0, 0, 0, -1, -1, 1, 1, 1, 1, -1, -1], [-1] * 5 + [0] * 4 + [2] * 3])
    split = torch.tensor([[-1, 0, 0, -1, 0, 0, 0, 0, 0, 1, 1, 1]]).expand(2, -1)
    return {"chunks": (masking_utils.chunked_causal_mask_function(4, torch.tensor([0, 3])), True),
            "two windows": (masking_utils.and_masks(*map(masking_utils.sliding_window_bidirectional_overlay, (3, 5))),
                            True),
            "images": (masking_utils.or_masks(causal, blocks(images)), True),
            "images beside windows": (masking_utils.or_masks(window(3), blocks(images)), True),
            "an image in two pieces": (masking_utils.or_masks(causal, blocks(split)), False),
            "blocks alone": (blocks(images), False),
            "anything": (lambda b, h, i, j: (i + j) % 3 == 0, False)}


@pytest.mark.parametrize("name", masks_of_transformers())
def test_masks_of_transformers(name):
    """If each query attends to one interval of keys, the mask is stored as two numbers per query. Another mask becomes
    an N×N array."""
    from transformers import masking_utils
    function, is_interval = masks_of_transformers()[name]
    padding = RIGHT[:2, :12].bool()
    options = dict(mask_function=function, attention_mask=padding, q_offset=5, dtype=torch.float32)
    mask = relpos.hf.mask(2, 7, 12, **options)
    want = masking_utils.sdpa_mask(2, 7, 12, **options, allow_is_causal_skip=False)
    assert mask.shape == (2, 1, 7, 12) and want.any() and not want.all()
    if not is_interval:
        assert list(mask.options) == ["mask"] and torch.equal(mask.options["mask"], want)
        return
    starts, ends, keys = mask.options["starts"], mask.options["ends"], torch.arange(12)
    assert "mask" not in mask.options and max(starts.numel(), ends.numel()) <= 2 * 7
    found = (keys >= starts[..., None]) & (keys < ends[..., None]) & mask.options["key_mask"][:, None]
    assert torch.equal(found[:, None], want)
    q, k, v = (torch.randn(2, 2, n, 8, generator=torch.Generator().manual_seed(n)) for n in (7, 12, 12))
    got, _ = relpos.hf.attention(torch.nn.Module(), q, k, v, mask)
    keep = want.any(-1, keepdim=True)  # relpos gives zeros for a row without a key
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=want | ~keep) * keep
    torch.testing.assert_close(got.transpose(1, 2), expected, atol=1e-6, rtol=0)


def test_refusals():
    small = transformers.OpenAIGPTConfig(vocab_size=60, n_embd=32, n_layer=1, n_head=2)
    with pytest.raises(ValueError, match="OpenAIGPTModel computes its own attention"):
        transformers.OpenAIGPTModel._from_config(small, attn_implementation="relpos")
    with pytest.raises(ValueError, match="OpenAIGPTModel computes its own attention"):
        transformers.OpenAIGPTModel(small).set_attn_implementation("relpos")
    with pytest.raises(ValueError, match="LongT5Model computes its own attention"):
        transformers.LongT5Model._from_config(transformers.LongT5Config(**T5,
                                                                        encoder_attention_type="transient-global"),
                                              attn_implementation="relpos")
    q = torch.ones(1, 1, 3, 4)
    mask = relpos.hf.mask(1, 3, 3)
    with pytest.raises(NotImplementedError, match="computes with its attention mask"):
        mask + 1
    with pytest.raises(ValueError, match=r"for \(3, 3\) queries and keys, but Module has \(2, 3\)"):
        relpos.hf.attention(torch.nn.Module(), q[:, :, :2], q, q, mask)
    with pytest.raises(ValueError, match="has no is_causal"):
        relpos.hf.attention(torch.nn.Module(), q, q, q, None)
    for name in ("indices", "block_indices", "anything"):
        with pytest.raises(ValueError, match=f"argument {name} of Module"):
            relpos.hf.attention(torch.nn.Module(), q, q, q, mask, **{name: q})
    # these have no effect
    relpos.hf.attention(torch.nn.Module(), q, q, q, mask, anything=None, use_cache=True, sliding_window=2)
    with pytest.raises(ValueError, match="query 0 is at position 2 for the bias, but at 0 for the mask"):
        relpos.hf.attention(torch.nn.Module(), q, q, q, mask, position_bias={"q_offset": 2})


PIXELS = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
COMPILED = {  # name: a model, its inputs, and the outputs that are compared
    "T5": lambda: (t5(), dict(input_ids=IDS, attention_mask=RIGHT, decoder_input_ids=IDS[:, 8:21]), RIGHT[:, :13]),
    "T5Encoder": lambda: (t5().encoder, dict(input_ids=IDS, attention_mask=LEFT), LEFT),
    "Llama": lambda: (small("Llama"), dict(input_ids=IDS, attention_mask=LEFT), LEFT),
    "Mistral": lambda: (small("Mistral", sliding_window=7, num_key_value_heads=2), dict(input_ids=IDS), None),
    "GPT2": lambda: (small("GPT2", eos_token_id=1, bos_token_id=0), dict(input_ids=IDS, attention_mask=RIGHT), RIGHT),
    "Bert": lambda: (small("Bert"), dict(input_ids=IDS, attention_mask=RIGHT), RIGHT),
    "Bart": lambda: (made(transformers.BartModel, transformers.BartConfig(
        vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64)),
        dict(input_ids=IDS, attention_mask=RIGHT, decoder_input_ids=IDS[:, 8:21]), RIGHT[:, :13]),
    "DebertaV2": lambda: (small("DebertaV2", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8,
                                norm_rel_ebd="layer_norm", share_att_key=True),
                          dict(input_ids=IDS, attention_mask=RIGHT), RIGHT),
    "Bloom": lambda: (small("Bloom", n_layer=2, n_head=4), dict(input_ids=IDS, attention_mask=RIGHT), RIGHT),
    "ViT": lambda: (small("ViT", image_size=16, patch_size=4), dict(pixel_values=PIXELS), None),
    "Swin": lambda: (made(transformers.SwinModel, transformers.SwinConfig(
        image_size=16, patch_size=2, embed_dim=16, depths=[2], num_heads=[2], window_size=4, drop_path_rate=0.0)),
        dict(pixel_values=PIXELS), None),
}


def small(name, **more):
    sizes = dict(vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    return made(getattr(transformers, f"{name}Model"), getattr(transformers, f"{name}Config")(**sizes, **more))


def agrees_compiled(name, backend):
    """Check that the model, compiled to one graph, has the same outputs and gradients as with eager attention and no
    torch.compile."""
    model, inputs, keep = COMPILED[name]()
    want, expected = results(model, "eager", keep, **inputs)
    model.set_attn_implementation("relpos")
    torch._dynamo.reset()
    out = torch.compile(model, backend=backend, fullgraph=True)(**inputs)
    out = out.logits if "logits" in out else out.last_hidden_state
    out = out if keep is None else out[keep.bool()]
    torch.testing.assert_close(out, want, atol=2e-5 * float(want.abs().max()), rtol=0)
    model.zero_grad()
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    got, most = {n: p.grad for n, p in model.named_parameters()
                 if p.grad is not None}, max(float(x.abs().max()) for x in expected.values())
    for n, x in expected.items():
        torch.testing.assert_close(got[n], x, atol=1e-4 * float(x.abs().max()) + 1e-6 * most, rtol=0)


@pytest.mark.parametrize("name", COMPILED)
def test_compile(name):
    agrees_compiled(name, "aot_eager")


@pytest.mark.parametrize("name", ["T5", "Llama", "GPT2", "Bert", "DebertaV2", "Swin"])
def test_gradients_of_each_sample(name):
    """torch.vmap(torch.func.grad(...)) over a batch with padding gives the gradients of eager attention, one sample at
    a time."""
    model, inputs, keep = COMPILED[name]()
    parameters = {n: p.detach() for n, p in model.named_parameters()}
    keep = torch.ones(len(next(iter(inputs.values())))) if keep is None else keep

    def loss(parameters, inputs, keep):
        out = torch.func.functional_call(model, parameters, (), {n: x[None] for n, x in inputs.items()})
        out = out.logits if "logits" in out else out.last_hidden_state
        return (out.sin() * (keep[None, :, None] if keep.dim() else keep)).sum()

    model.set_attn_implementation("relpos")
    got = torch.vmap(torch.func.grad(loss), (None, 0, 0))(parameters, inputs, keep)
    model.set_attn_implementation("eager")
    each = [torch.func.grad(loss)(parameters, {n: x[b] for n, x in inputs.items()}, keep[b]) for b in range(len(keep))]
    most = max(float(x.abs().max()) for one in each for x in one.values())
    for n, x in got.items():
        want = torch.stack([one[n] for one in each])
        torch.testing.assert_close(x, want, atol=1e-4 * float(want.abs().max()) + 1e-6 * most, rtol=0)


@pytest.mark.skipif(not shutil.which("g++"), reason="inductor, torch's compiler, writes C++: g++ is needed")
def test_inductor():
    agrees_compiled("T5Encoder", "inductor")


@pytest.mark.parametrize("name", COMPILED)
def test_jit_trace(name):
    """A trace is valid for other tokens, other padding and twice the length."""
    model, inputs, _ = COMPILED[name]()
    model.set_attn_implementation("relpos")

    class First(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *values):
            return self.model(**dict(zip(inputs, values)), return_dict=False,
                              **({} if "pixel_values" in inputs else {"use_cache": False}))[0]

    first = First()
    trace = torch.jit.trace(first, tuple(inputs.values()), check_trace=False)
    other = [x.flip(0) if x.is_floating_point() else torch.cat([x, x], 1).flip(1) for x in inputs.values()]
    with torch.no_grad():
        got, want = trace(*other), first(*other)
    torch.testing.assert_close(got, want, atol=2e-5 * float(want.abs().max()), rtol=0)


def test_generate_with_a_compiled_model():
    model = t5()
    want = generated(model, IDS)
    model.set_attn_implementation("relpos")
    torch._dynamo.reset()
    model.forward = torch.compile(model.forward, backend="aot_eager")
    assert torch.equal(generated(model, IDS, ("relpos",)), want)


@pytest.mark.parametrize("name", ["GPT2", "Llama", "T5"])
def test_a_static_cache_with_a_compiled_forward(name):
    """The number of tokens in the cache is a tensor, so torch does not compile a graph for each step: a whole
    generation has at most four."""
    model = t5() if name == "T5" else causal("Llama") if name == "Llama" else made(transformers.GPT2LMHeadModel,
                                                                                   transformers.GPT2Config(
vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64, eos_token_id=1, bos_token_id=0))
    options = dict(attention_mask=LEFT)
    want = generated(model, IDS, **options)
    model.set_attn_implementation("relpos")
    assert torch.equal(generated(model, IDS, ("relpos",), cache_implementation="static", **options), want)
    torch._dynamo.reset()
    graphs = []
    model.forward = torch.compile(model.forward, fullgraph=True,
                                  backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    assert torch.equal(generated(model, IDS, ("relpos",), cache_implementation="static", **options), want)
    assert len(graphs) <= 4, "graphs of the first token, of a step, and of a step with symbolic lengths"


def without_dropout(model):
    for module in model.train().modules():
        for key, value in vars(module).items():
            if "drop" in key and isinstance(value, float):
                setattr(module, key, 0.0)
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


CHECKPOINTED = "T5", "Bert", "GPT2", "Llama", "Bart", "DebertaV2", "Bloom"


@pytest.mark.parametrize("name, reentrant",
                         [(x, y) for x in CHECKPOINTED for y in (True, False) if (x, y) != ("DebertaV2", True)])
def test_checkpoints(name, reentrant):
    """Reentrant checkpoints fail for DeBERTa, with eager attention too: each layer frees the graph of the shared
    position vectors."""
    model, inputs, keep = COMPILED[name]()
    model = without_dropout(model)
    inputs = inputs | ({} if name in ("Bert", "DebertaV2") else {"use_cache": False})
    want, expected = results(model, "relpos", keep, **inputs)
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": reentrant})
    got, gradients = results(model, "relpos", keep, **inputs)
    assert torch.equal(got, want) and gradients.keys() == expected.keys()
    most = max(float(x.abs().max()) for x in expected.values())
    for key, x in expected.items():
        torch.testing.assert_close(gradients[key], x, atol=1e-6 * most, rtol=0)


@pytest.mark.parametrize("name", ["T5", "Llama", "GPT2", "Bert", "Bart", "DebertaV2", "Bloom", "ViT"])
def test_attentions_of_every_layer(name):
    """The weights equal those of eager attention, whether the model requests them with an argument or collects them
    with hooks."""
    model, inputs, _ = COMPILED[name]()
    found = []
    for implementation in ("relpos", "eager"):
        model.set_attn_implementation(implementation)
        out = model(**inputs, output_attentions=True)
        found.append({key: value for key, value in out.items() if "attentions" in key})
    assert found[0].keys() == found[1].keys() and any(len(x) == 2 for x in found[0].values())
    keep = inputs.get("attention_mask")
    for key, want in found[1].items():
        for a, b in zip(found[0][key], want, strict=True):
            rows = torch.ones(a.shape[:3], dtype=torch.bool)
            if keep is not None and keep.shape[1] == a.shape[2]:
                rows &= keep[:, None].bool()
            # the tolerance of `agree`
            torch.testing.assert_close(a[rows], b[rows], atol=2e-5 * float(b[rows].max()), rtol=0)


def test_a_model_without_attention_gets_a_warning():
    resnet = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic")
    with pytest.warns(UserWarning, match='attn_implementation="relpos" changes nothing in ResNetModel'):
        model = transformers.ResNetModel._from_config(resnet, attn_implementation="relpos")
    with pytest.warns(UserWarning, match="changes nothing in ResNetModel"):
        model.set_attn_implementation("relpos")


def test_continuous_batching_is_refused():
    model = causal("Llama")
    model.set_attn_implementation("relpos")
    config = transformers.GenerationConfig(max_new_tokens=3, eos_token_id=2, pad_token_id=0, do_sample=False)
    with pytest.raises(ValueError, match="relpos is not supported for continuous batching"):
        model.generate_batch([[5, 6, 7], [8, 9]], generation_config=config)


def test_a_mask_made_ahead_is_not_traced():
    model = small("Llama")
    model.set_attn_implementation("relpos")
    ahead = relpos.hf.Mask((3, 1, 29, 29), {"causal": True})
    torch._dynamo.reset()
    with pytest.raises(Exception, match="torch.compile cannot trace a mask that was made before the call"):
        torch.compile(model, backend="aot_eager")(input_ids=IDS, attention_mask=ahead)
