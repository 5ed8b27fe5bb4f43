"""relpos.hf: models of transformers with attn_implementation="relpos" against eager and sdpa. Run where transformers is.

SPDX-License-Identifier: Apache-2.0"""
import copy

import pytest

transformers = pytest.importorskip("transformers")
import relpos
import relpos.hf
import torch

IDS = torch.randint(3, 60, (3, 29), generator=torch.Generator().manual_seed(5))
RIGHT = (torch.arange(29) < torch.tensor([29, 11, 20])[:, None]).long()  # padding masks: at the end, at the beginning
LEFT = RIGHT.flip(1)


def made(cls, config):
    """A model with weights that make attention far from uniform."""
    g = torch.Generator().manual_seed(1)
    model = cls(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(std=1.5 / p.shape[-1] ** 0.5 if p.shape[-1] > 8 else 1.0, generator=g)
    return model


def results(model, implementation, keep=None, **inputs):
    """The outputs where keep is true, and the gradients of a sum over them by every weight."""
    model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == implementation
    model.zero_grad()
    out = model(**inputs)
    out = out.logits if "logits" in out else out.last_hidden_state
    out = out if keep is None else out[keep.bool()]
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    return out.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def agree(model, keep=None, implementations=("eager", "sdpa"), **inputs):
    got, gradients = results(model, "relpos", keep, **inputs)
    for implementation in implementations:
        want, expected = results(model, implementation, keep, **inputs)
        assert want.abs().max() > 0.1
        torch.testing.assert_close(got, want, atol=2e-5 * float(want.abs().max()), rtol=0)
        assert gradients.keys() == expected.keys()
        for name in expected:
            largest = float(expected[name].abs().max())
            torch.testing.assert_close(gradients[name], expected[name], atol=1e-4 * largest + 1e-6, rtol=0, msg=lambda m: f"{name}: {m}")


def generated(model, ids, implementations=("relpos", "eager"), **options):
    """The same tokens from every implementation, more than one of them."""
    found = []
    for implementation in implementations:
        model.set_attn_implementation(implementation)
        found.append(model.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0, **options))
    assert len(found[0][0].unique()) > 3
    for other in found[1:]:
        assert torch.equal(found[0], other)
    return found[0]


T5 = dict(vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0, tie_word_embeddings=False,
          relative_attention_num_buckets=12, relative_attention_max_distance=20)
T5_LIKE = ["T5", "MT5", "UMT5", "LongT5", "SwitchTransformers", "Pop2Piano"]


def t5(name="T5", **more):
    more = {"local_radius": 6, **more} if name == "LongT5" else more
    return made(getattr(transformers, f"{name}ForConditionalGeneration"), getattr(transformers, f"{name}Config")(**T5, **more))


@pytest.mark.parametrize("padding", [None, RIGHT, LEFT], ids=["whole", "right", "left"])
@pytest.mark.parametrize("name", ["T5", "MT5", "UMT5"])
def test_t5(name, padding):
    model = t5(name)
    assert "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight" in dict(model.named_parameters())
    agree(model, RIGHT[:, :13], input_ids=IDS, attention_mask=padding, decoder_input_ids=IDS[:, 8:21],
          decoder_attention_mask=RIGHT[:, :13])


@pytest.mark.parametrize("cache", [{}, dict(use_cache=False), dict(cache_implementation="static"), dict(num_beams=3)], ids=str)
def test_t5_generates_the_same(cache):
    generated(t5(), IDS, attention_mask=LEFT, **cache)


def test_a_mask_of_the_caller():
    model = t5().encoder
    square = torch.rand(3, 1, 29, 29, generator=torch.Generator().manual_seed(0)) < 0.5
    square |= torch.eye(29, dtype=torch.bool)
    agree(model, implementations=["sdpa"], input_ids=IDS, attention_mask=square)
    agree(model, input_ids=IDS, attention_mask=torch.where(square, 0.0, -30.0))
