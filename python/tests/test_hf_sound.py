"""Compare speech models of transformers under attn_implementation="relpos" with the same models under "eager" and
"sdpa", in f64. Skipped without transformers.

SPDX-License-Identifier: Apache-2.0"""
import importlib
import inspect

import pytest

transformers = pytest.importorskip("transformers")
import relpos.hf  # noqa: F401
import torch
from test_hf import made, without_dropout

CONFORMER = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)


def features(frames, bins, factor=8):
    """Return spectra of two sounds, and the mask of the second, which has padding. An encoder makes a frame of `factor`
    spectra."""
    x = torch.randn(2, frames * factor, bins, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    keep = torch.arange(frames) < torch.tensor([frames, frames * 2 // 3])[:, None]
    return x, keep.repeat_interleave(factor, 1).long(), keep


def parakeet(frames=29, **more):
    config = transformers.ParakeetEncoderConfig(**CONFORMER, num_mel_bins=16, subsampling_conv_channels=8,
                                                conv_kernel_size=5, **more)
    x, mask, keep = features(frames, 16)
    return made(transformers.ParakeetEncoder, config).double(), dict(input_features=x, attention_mask=mask), keep


def nemotron(frames=29, **more):
    """The last chunk is not whole. A frame sees two chunks of five before its own."""
    config = transformers.NemotronAsrStreamingEncoderConfig(
        **CONFORMER, num_mel_bins=16, subsampling_conv_channels=8, conv_kernel_size=5,
        **{"sliding_window": 11, **more})
    x, mask, _ = features(frames - 1, 16)
    model = made(transformers.NemotronAsrStreamingEncoder, config).double()
    inputs = dict(input_features=x, attention_mask=mask, num_lookahead_tokens=4)
    return model, inputs, model(**inputs).attention_mask.bool()


def seamless(version, frames=29, **more):
    """SeamlessM4T's encoder of speech. In version 2, a frame sees the chunk of seven before its own."""
    name = f"seamless_m4t{'_v2' * (version == 2)}"
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    kind = "SeamlessM4T" + "v2" * (version == 2)
    chunks = dict(speech_encoder_chunk_size=7, speech_encoder_left_chunk_num=1, left_max_position_embeddings=6,
                  right_max_position_embeddings=3) if version == 2 else {}
    config = getattr(transformers, kind + "Config")(
        hidden_size=32, speech_encoder_layers=2, speech_encoder_attention_heads=4, speech_encoder_intermediate_size=48,
        feature_projection_input_dim=20, conv_depthwise_kernel_size=5, add_adapter=False, max_source_positions=16,
        speech_encoder_layerdrop=0.0,
        **{**chunks, **more})
    x, mask, keep = features(frames, 20, 1)
    return (made(getattr(module, kind + "SpeechEncoder"), config).double(), dict(input_features=x, attention_mask=mask),
            keep)


class Texts(torch.nn.Module):
    """The encoder of texts of FastSpeech2Conformer; in f64, only the encoder and the decoder run, which is the same
    class. Its padded frames have values, so they are compared too."""

    def __init__(self):
        super().__init__()
        config = transformers.FastSpeech2ConformerConfig(
            hidden_size=32, encoder_num_attention_heads=4, encoder_layers=2, decoder_layers=1, encoder_linear_units=48,
            decoder_linear_units=48, vocab_size=60)
        self.model = made(transformers.FastSpeech2ConformerModel, config)
        self.set_attn_implementation = self.model.set_attn_implementation

    def forward(self, input_ids, attention_mask=None, **more):
        return self.model.encoder(input_ids, None if attention_mask is None else attention_mask[:, None],
                                  return_dict=True, **more)


def fastspeech2(frames=29):
    _, mask, keep = features(frames, 1, 1)
    ids = torch.randint(3, 60, keep.shape, generator=torch.Generator().manual_seed(0)) * mask
    return Texts().eval().double(), dict(input_ids=ids, attention_mask=mask), torch.ones_like(keep)


SOUND = {  # name: function that returns a model, inputs, and the frames to compare, for a number of frames
    "Parakeet": parakeet,
    "Parakeet, fewer heads of keys": lambda **n: parakeet(num_key_value_heads=2, **n),
    "Nemotron": nemotron,
    "Nemotron, all before": lambda **n: nemotron(sliding_window=0, **n),
    "FastSpeech2": fastspeech2,
    "Seamless": lambda **n: seamless(1, **n),
    "Seamless 2": lambda **n: seamless(2, **n),
    "Seamless 2, all before": lambda **n: seamless(2, speech_encoder_left_chunk_num=-1, **n),
    "Seamless 2, one chunk": lambda **n: seamless(2, speech_encoder_chunk_size=20000, **n),
}
def others(name, padded=True):
    """Yield the implementations to compare with, and the tolerance.

    Eager attention of Parakeet computes its softmax in f32, so with padding its rows without keys are NaN in f64. Eager
    attention of Seamless 2 adds its mask of chunks, ones and zeros, to the scores. Eager attention of Nemotron masks
    the keys that its frames see, because it negates a mask of zeros and infinities."""
    if name in ("Seamless", "FastSpeech2"):
        yield "eager", 1e-12
    if "Parakeet" in name and not padded:
        yield "eager", 1e-6
    if name != "FastSpeech2":
        yield "sdpa", 1e-12


def run(model, inputs, keep, implementation, again=lambda: None):
    """Return the frames that are no padding, and the gradients of a random sum of them."""
    model.set_attn_implementation(implementation)
    model.zero_grad()
    again()
    out = model(**inputs).last_hidden_state[keep]
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    return out.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def agree(found, expected, tolerance):
    (got, gradients), (want, wanted) = found, expected
    assert want.abs().max() > 0.1 and gradients.keys() == wanted.keys()
    torch.testing.assert_close(got, want, atol=tolerance * float(want.abs().max()), rtol=0)
    most = max(float(x.abs().max()) for x in wanted.values())
    for name, x in wanted.items():
        torch.testing.assert_close(gradients[name], x, atol=tolerance * most, rtol=0, msg=lambda m: f"{name}: {m}")


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("name", SOUND)
def test_outputs_and_gradients(name, padded):
    model, inputs, keep = SOUND[name]()
    if not padded:
        del inputs["attention_mask"]
        keep = torch.ones_like(keep)
    found = run(model, inputs, keep, "relpos")
    for implementation, tolerance in others(name, padded):
        agree(found, run(model, inputs, keep, implementation), tolerance)


@pytest.mark.parametrize("name", [name for name in SOUND if "Seamless" not in name and name != "FastSpeech2"])
def test_the_mask_of_frames_is_returned(name):
    model, inputs, _ = SOUND[name]()
    for more in ({}, {"return_dict": False}, {"output_attention_mask": False}):
        found = []
        for implementation in ("relpos", "eager"):
            model.set_attn_implementation(implementation)
            out = model(**inputs, **more)
            found.append(out[1:] if isinstance(out, tuple) else (out.get("attention_mask"),))
        assert len(found[0]) == len(found[1])
        for got, want in zip(*found):
            assert got is want is None or torch.equal(got, want)


@pytest.mark.parametrize("name", [name for name in SOUND if "Parakeet" in name or name in ("Seamless", "FastSpeech2")])
def test_weights_of_attention(name):
    model, inputs, keep = SOUND[name]()
    inputs = {key: x.float() if x.is_floating_point() else x for key, x in inputs.items()}
    found = []
    for implementation in ("relpos", "eager"):
        model.float().set_attn_implementation(implementation)
        found.append(model(**inputs, output_attentions=True).attentions)
    assert len(found[0]) == len(found[1]) == 2
    for got, want in zip(*found):
        assert got.shape == want.shape
        rows = keep[:, None].expand(got.shape[:3])
        torch.testing.assert_close(got[rows], want[rows], atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", SOUND)
def test_forward_mode(name):
    model, inputs, keep = SOUND[name]()
    parameters = {n: p.detach() for n, p in model.named_parameters()}
    g = torch.Generator().manual_seed(3)
    tangents = {n: torch.randn(p.shape, generator=g, dtype=p.dtype) for n, p in parameters.items()}
    found = []
    *_, (other, tolerance) = others(name)
    for implementation in ("relpos", other):
        model.set_attn_implementation(implementation)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # only this one has forward mode
            found.append(torch.func.jvp(
                lambda p: torch.func.functional_call(model, p, (), inputs).last_hidden_state[keep], (parameters,),
                (tangents,))[1])
    torch.testing.assert_close(*found, atol=10 * tolerance * float(found[1].abs().max()), rtol=0)


class Squares(torch.utils._python_dispatch.TorchDispatchMode):
    """Record the shapes of tensors with two axes of at least n elements, or one of at least n²."""

    def __init__(self, n):
        super().__init__()
        self.n, self.shapes = n, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for x in found if isinstance(found, (tuple, list)) else (found,):
            # a Mask has the shape of a square, but one element
            if (isinstance(x, torch.Tensor) and (sum(size >= self.n for size in x.shape) > 1 or max(
                    x.shape, default=0) >= self.n ** 2) and x.untyped_storage().nbytes() > x.element_size()):
                self.shapes.add(tuple(x.shape))
        return found


@pytest.mark.parametrize("name", SOUND)
def test_no_square_array_is_made(name):
    n = 300
    model, inputs, keep = SOUND[name](frames=n)
    for implementation in ("relpos", "eager"):
        with Squares(n) as squares:
            run(model, inputs, keep, implementation)
        assert bool(squares.shapes) == (implementation == "eager"), squares.shapes


@pytest.mark.parametrize("name", SOUND)
def test_compile(name):
    model, inputs, keep = SOUND[name]()
    want = run(model, inputs, keep, "relpos")
    torch._dynamo.reset()
    model.forward = torch.compile(model.forward, backend="aot_eager", fullgraph=True)
    agree(run(model, inputs, keep, "relpos"), want, 1e-12)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", [name for name in SOUND if name != "FastSpeech2"])  # it has none
def test_checkpoints(name, reentrant):
    """A checkpoint runs each layer again, with the mask of its first run."""
    model, inputs, keep = SOUND[name]()
    model = without_dropout(model)
    want = run(model, inputs, keep, "relpos")
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)(
        {"use_reentrant": reentrant})
    agree(run(model, inputs, keep, "relpos"), want, 1e-12)


@pytest.mark.parametrize("name", ["Parakeet", "Nemotron"])
def test_dropout_of_positions(name):
    """In training, each batch entry drops other numbers of its position embeddings."""
    model, inputs, keep = SOUND[name](dropout_positions=0.3, dropout=0.0, activation_dropout=0.0,
                                         attention_dropout=0.0, layerdrop=0.0)
    model.train()
    found = [run(model, inputs, keep, implementation, lambda: torch.manual_seed(4))
             for implementation in ("relpos", "sdpa")]
    agree(*found, 1e-12)
    assert not torch.equal(found[0][0], run(model, inputs, keep, "relpos", lambda: torch.manual_seed(5))[0])


@pytest.mark.parametrize("lookahead", [0, 2, 4])
def test_a_stream_with_a_cache(lookahead):
    """The cache of a stream holds the last ten frames, so a step has 5 queries and up to 15 keys."""
    model, inputs, _ = nemotron()
    cache = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    found = []
    for implementation in ("relpos", "sdpa"):
        model.set_attn_implementation(implementation)
        kept, outs = {}, []
        for part in inputs["input_features"].split(8 * 5, 1):
            out = model(part, num_lookahead_tokens=lookahead, use_cache=True, **kept)
            kept = {cache: out[cache], "padding_cache": out["padding_cache"]}
            outs.append(out.last_hidden_state)
        found.append(torch.cat(outs, 1))
    assert found[0].shape[1] == 28 and len(outs) == 6
    torch.testing.assert_close(*found, atol=1e-12 * float(found[1].abs().max()), rtol=0)


def test_only_one_use_of_a_negated_mask_is_known():
    mask = relpos.hf.Mask((2, 1, 3, 4), {"key_mask": torch.tensor([[True] * 4, [False, False, False, True]]),
                                         "starts": torch.tensor([[0, 1, 2]]), "ends": torch.tensor([[2, 3, 9]])})
    for given in (mask, relpos.hf.TracedMask(mask.shape, mask.options)):
        assert torch.all(~given, dim=-1).tolist() == [[[False] * 3], [[True, True, False]]]
    assert torch.all(~relpos.hf.Mask((2, 1, 3, 4), {}), dim=-1).shape == (2, 1, 3)
    with pytest.raises(NotImplementedError, match="computes with its attention mask .all., which has no elements"):
        torch.all(~mask, dim=2)
    with pytest.raises(NotImplementedError, match="computes with its attention mask .masked_fill."):
        torch.zeros(3, 4).masked_fill(~mask, -1.0)
    with pytest.raises(NotImplementedError, match="queries have no keys, which is not known for a mask of causal"):
        torch.all(~relpos.hf.Mask((2, 1, 3, 4), {"causal": True}), dim=-1)
