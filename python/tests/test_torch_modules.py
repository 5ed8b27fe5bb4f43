"""Compare the modules of relpos.torch with the original classes, or with their formulas: outputs and gradients for the
same weights.

SPDX-License-Identifier: Apache-2.0"""
import copy
import doctest
import inspect
import math
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import relpos

torch = pytest.importorskip("torch")
import relpos.torch as rt  # noqa: E402
from torch import nn  # noqa: E402

B, LQ, LK, DIM, HEADS = 3, 7, 11, 12, 2


@pytest.fixture(autouse=True)
def in_doubles():
    torch.manual_seed(5)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def draw(*shape):
    return torch.randn(shape, requires_grad=True)


def shake(module):
    """Randomize the weights of a module, since some are initially zero."""
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn_like(p) * 0.5)
    return module


def split(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def join(x):
    return x.transpose(1, 2).flatten(2)


def offsets(lq, lk):
    """Return key - query."""
    return torch.arange(lk) - torch.arange(lq)[:, None]


def softmax(scores, v, keep=None):
    weights = (scores if keep is None else scores.masked_fill(~keep, -math.inf)).softmax(-1)
    return weights @ v, weights


def agree(got, want, inputs, tolerance=1e-11):
    """Compare two results, and their gradients with respect to two lists of tensors: those of the module and those of
    the reference."""
    torch.testing.assert_close(got, want, atol=tolerance, rtol=tolerance)
    dout = torch.randn_like(want)
    mine, others = inputs if isinstance(inputs, tuple) else (inputs, inputs)
    gradients = (torch.autograd.grad(x, to, dout, retain_graph=True) for x, to in ((got, mine), (want, others)))
    for a, b in zip(*gradients, strict=True):
        assert b.abs().max() > 0
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def weights_agree(got, want, inputs):
    """Compare weights as `agree` does, for those inputs on which they depend."""
    gradients = torch.autograd.grad(want, inputs, torch.randn_like(want), retain_graph=True, allow_unused=True)
    used = [x for x, gradient in zip(inputs, gradients) if gradient is not None and gradient.abs().max() > 1e-9]
    assert len(used) >= 2
    agree(got, want, used, 1e-10)


KEEP = torch.rand(LQ, LK, generator=torch.Generator().manual_seed(9)) < 0.6
KEEP[:, 0] = True
PAD = torch.arange(LK) >= torch.tensor([11, 8, 4])[:, None]  # True = padding


# ---------------------------------------------------------------------------------------------- one head

@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("front", [(), (B,), (B, HEADS)])
def test_relative_position_bias_attention(learned, front):
    module = shake(rt.RelativePositionBiasAttention(4, learned=learned))
    assert {n: tuple(p.shape) for n, p in module.state_dict().items()} == {"relative_bias_table": (32,)}
    q, k, v = draw(*front, LQ, 4), draw(*front, LK, 4), draw(*front, LK, 3)
    r = offsets(LQ, LK)
    bias = module.relative_bias_table[torch.from_numpy(relpos.bucket(r))] if learned else -0.3 * torch.log(1 + r.abs())
    want, weights = softmax(q @ k.mT / 2 + bias, v, KEEP)
    got = module(q, k, v, ~KEEP)
    weights_agree(got[0], weights, [q, k, v, *module.parameters()][:4 if learned else 3])
    agree(got[1], want, [q, k, v, *module.parameters()][:4 if learned else 3])
    none, out = module(q, k, v, ~KEEP, need_weights=False)
    assert none is None and torch.equal(out, got[1])


def test_relative_position_bias_attention_of_the_worked_example(capsys):
    """Check the weights of the query "The" among the five tokens in docs/texts/s0.md, without a decay and with a decay
    of 0.3."""
    q = torch.tensor([[1., 0, 1, 0], [0, 2, 0, 1], [1, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]])
    k = torch.tensor([[0., 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, .5, .5]])
    v = torch.cat([torch.eye(4), torch.full((1, 4), 0.5)])
    module = rt.RelativePositionBiasAttention(d_k=4, bias_scale=0.3)
    weights, out = module(q, k, v)
    torch.testing.assert_close(weights[0], torch.tensor([.1473, .3253, .1747, .1603, .1924]), atol=5e-5, rtol=0)
    torch.testing.assert_close(out[0], torch.tensor([.2435, .4215, .2709, .2565]), atol=5e-5, rtol=0)
    row = module.explain(q, k, v, ["The", "cat", "sat", "on", "mat"], query_idx=1)
    torch.testing.assert_close(row.weights, weights[1], atol=1e-12, rtol=0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("query 'cat', d_k 4") and len(lines) == 8
    assert lines[4].split()[:6] == ["sat", "2.0000", "1.0000", "-0.2079", "0.7921", "0.2486"]


@pytest.mark.parametrize("both", [False, True])
def test_a_bias_of_a_subclass(both, capsys):
    """Exercise 3 of the tutorial, an asymmetric bias, solved with a subclass of the tutorial's class that has a learned
    parameter."""
    class Asymmetric(rt.RelativePositionBiasAttention):
        def __init__(self):
            super().__init__(d_k=4)
            self.rates = nn.Parameter(torch.tensor([0.1, 0.3]))

        def _compute_bias(self, N, *M):
            r = offsets(N, *M) if both and M else offsets(N, N)
            return self.rates[0] * r.clamp(max=0) - self.rates[1] * r.clamp(min=0)

    if not both:
        Asymmetric._compute_bias = lambda self, N, compute=Asymmetric._compute_bias: compute(self, N)
        Asymmetric._compute_bias.__signature__ = (
            inspect.Signature([inspect.Parameter(x, inspect.Parameter.POSITIONAL_ONLY) for x in "sN"]))
    module, lk = Asymmetric(), LK if both else LQ
    q, k, v = draw(B, LQ, 4), draw(B, lk, 4), draw(B, lk, 3)
    r = offsets(LQ, lk)
    want, weights = softmax(q @ k.mT / 2 + module.rates[0] * r.clamp(max=0) - module.rates[1] * r.clamp(min=0), v)
    got = module(q, k, v)
    weights_agree(got[0], weights, [q, k, v, module.rates])
    agree(got[1], want, [q, k, v, module.rates])
    row = module.explain(q[0], k[0], v[0], "abcdefghijk"[:lk], 2)
    torch.testing.assert_close(row.weights, weights[0, 2].detach(), atol=1e-12, rtol=0)
    if not both:
        with pytest.raises(ValueError, match="has one parameter, but there are 3 queries and 7 keys"):
            module(q[:, :3], k, v)


@pytest.mark.parametrize("learned", [False, True])
def test_the_bias_that_a_subclass_may_build_on(learned):
    module = shake(rt.RelativePositionBiasAttention(4, learned=learned))
    for shape in ((5,), (LQ, LK)):
        torch.testing.assert_close(module._compute_bias(*shape),
                                   torch.from_numpy(module.term().matrix(*shape, heads=1)[0]))
    assert module._compute_bias(3).requires_grad == learned


def test_arrays_are_refused_in_words():
    x = np.eye(4)
    with pytest.raises(TypeError, match="Q is of type ndarray, expected a tensor; use "
                                        "relpos.numpy.RelativePositionBiasAttention for arrays"):
        rt.RelativePositionBiasAttention(4)(x, x, x)
    with pytest.raises(TypeError, match="value is of type ndarray, expected a tensor; use relpos.attention for arrays"):
        rt.scaled_dot_product_attention(torch.eye(4), torch.eye(4), x)


def test_relative_self_attention():
    module = rt.RelativeSelfAttention(DIM, 4, 6, max_distance=3)
    assert {n: tuple(p.shape) for n, p in module.state_dict().items()} == {
        "W_q": (DIM, 4), "W_k": (DIM, 4), "W_v": (DIM, 6), "rel_embed.a_K": (7, 4), "rel_embed.a_V": (7, 6)}
    x = draw(B, LK, DIM)
    at = offsets(LK, LK).clamp(-3, 3) + 3
    q, k, v = x @ module.W_q, x @ module.W_k, x @ module.W_v
    a_k, a_v = module.rel_embed.a_K[at], module.rel_embed.a_V[at]
    for causal in (False, True):
        keep = offsets(LK, LK) <= 0 if causal else None
        weights = softmax((q @ k.mT + torch.einsum("bid,ijd->bij", q, a_k)) / 2, v, keep)[1]
        want = weights @ v + torch.einsum("bij,ijd->bid", weights, a_v)
        out, got = module(x, causal=causal)
        weights_agree(got, weights, [x, *module.parameters()])
        agree(out, want, [x, *module.parameters()])
    torch.testing.assert_close(module(x[0], causal=True, need_weights=False)[0], out[0])


def test_relative_self_attention_of_the_worked_example():
    """Six tokens from NumPy's seed 42 and weights from seed 123 give the matrix that the tutorial prints, to three
    digits."""
    def glorot(random, rows, columns):
        return torch.from_numpy(random.randn(rows, columns) * np.sqrt(2 / (rows + columns)))

    random = np.random.RandomState(123)
    weights = {name: glorot(random, 8, 4) for name in ("W_q", "W_k", "W_v")}
    random = np.random.RandomState(123)  # the tutorial seeds NumPy again before it creates the embedding
    weights |= {name: glorot(random, 7, 4) for name in ("rel_embed.a_K", "rel_embed.a_V")}
    module = rt.RelativeSelfAttention(8, 4, 4, max_distance=3)
    module.load_state_dict(weights)
    got = module(torch.from_numpy(np.random.RandomState(42).randn(6, 8)))[1]
    want = torch.tensor([[.008, .028, .001, .12, .62, .223], [.26, .098, .35, .157, .052, .083],
                         [.794, .002, .077, .122, .002, .002], [.016, .394, .025, .108, .356, .101],
                         [.475, .023, .002, .13, .069, .301], [.002, .227, .001, .014, .66, .097]])
    torch.testing.assert_close(got, want, atol=5.1e-4, rtol=0)


def test_a_text_of_numpy():
    """For a seed, only relpos.numpy draws the numbers of the tutorial, as both docstrings state. relpos.torch refuses
    arrays."""
    import relpos.numpy
    for module in (rt, relpos.numpy):
        assert "of a text that uses np.random.seed" in " ".join(module.RelativeSelfAttention.__doc__.split())
    assert ("relpos.numpy" in rt.RelativeSelfAttention.__doc__
            and "relpos.torch" in relpos.numpy.RelativeSelfAttention.__doc__)
    with pytest.raises(TypeError, match="X is of type ndarray, expected a tensor; use "
                                        "relpos.numpy.RelativeSelfAttention for arrays"):
        rt.RelativeSelfAttention(8, 4, 4)(np.zeros((6, 8)))


def test_cross_attention_of_arrays():
    q, k, keep = np.random.randn(1, 2, 3, 8), np.random.randn(1, 2, 7, 8), np.random.rand(3, 7) < 0.7
    bias = shake(rt.RelativePositionalBias(2))
    want = rt.cross_attention_with_bias(*map(torch.from_numpy, (q, k, k)), bias, torch.from_numpy(keep))
    assert torch.equal(rt.cross_attention_with_bias(q, k, k, bias, keep), want)
    assert rt.cross_attention_with_bias(q, k, k, bias).shape == (1, 2, 3, 8)


def test_xavier():
    embed = rt.RelativePositionEmbedding(200, 100, 300, seed=4)
    for p, columns in ((embed.a_K, 100), (embed.a_V, 300)):
        assert abs(p.std().item() / math.sqrt(2 / (401 + columns)) - 1) < 0.02
    assert torch.equal(embed.a_K, rt.RelativePositionEmbedding(200, 100, 300, seed=4).a_K)
    assert not torch.equal(embed.a_K, rt.RelativePositionEmbedding(200, 100, 300, seed=5).a_K)
    assert torch.equal(embed.get_key_embedding(-999),
                       embed.a_K[0]) and torch.equal(embed.get_value_embedding(7), embed.a_V[207])


@pytest.mark.parametrize("n, m", [(6, 6), (3, 9), (7, 2), (0, 4), (1, 1)])
def test_functions_of_relative_vectors(n, m):
    """Scores and outputs by the loops of the tutorial, with gradients of all inputs; leading axes are batches."""
    embed = rt.RelativePositionEmbedding(2, 4, 5)
    q, k, v, w = draw(n, 4), draw(m, 4), draw(m, 5), draw(n, m)

    def loops(of):
        rows = [torch.stack([of(i, j) for j in range(m)]) for i in range(n)]
        return torch.stack(rows) if rows else torch.zeros(0, m)

    biases = loops(lambda i, j: q[i] @ embed.get_key_embedding(j - i) / 2)
    scores = loops(lambda i, j: q[i] @ (k[j] + embed.get_key_embedding(j - i)) / 2)
    output = loops(lambda i, j: w[i, j] * (v[j] + embed.get_value_embedding(j - i))).sum(1) if n else torch.zeros(0, 5)
    for function, inputs, want in ((rt.compute_position_biases, (q,), biases),
                                   (rt.relative_attention_scores, (q, k), scores),
                                   (rt.efficient_relative_scores, (q, k), scores),
                                   (rt.relative_attention_output, (w, v), output)):
        options = {"M": m} if len(inputs) == 1 else {}
        got, learned = function(*inputs, embed, **options), embed.a_V if inputs[0] is w else embed.a_K
        if n:
            agree(got, want, [*inputs, learned])
        assert got.shape == want.shape
        twice = function(*(torch.stack([x, 2 * x]) for x in inputs), embed, **options)
        torch.testing.assert_close(twice[1], function(*(2 * x for x in inputs), embed, **options))
        single = function(*(x.float() for x in inputs), embed, **options)
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), got, atol=1e-5, rtol=0)


def test_the_rotation_of_a_rope_layer():
    layer = rt.RoPEMultiheadAttention(DIM, HEADS, rope_base=50.0)
    x, p = draw(B, HEADS, LQ, DIM // HEADS), torch.rand(LQ) * 9
    assert torch.equal(layer.rotary_emb.apply_rope(x, p), rt.RotaryEmbedding(DIM // HEADS, 50.0).apply_rope(x, p))
    assert not any("rotary" in name for name in layer.state_dict())
    tokens = draw(B, LQ, DIM)
    want = layer(tokens, tokens, tokens, q_positions=p, k_positions=p)[0]
    layer.rotary_emb.register_forward_hook(lambda *_: None)  # now apply_rope is called
    torch.testing.assert_close(layer(tokens, tokens, tokens, q_positions=p, k_positions=p)[0], want, atol=1e-12, rtol=0)
    layer.rope_base = 7.0
    other = rt.RoPEMultiheadAttention(DIM, HEADS, rope_base=7.0)
    other.load_state_dict(layer.state_dict())
    assert layer.rotary_emb.base == 7.0 and torch.equal(layer(*[tokens] * 3)[0], other(*[tokens] * 3)[0])
    for dtype in (torch.float32, torch.bfloat16, torch.float64):  # rounded frequencies are not changed ones
        assert other.to(dtype)._rotates_by_base()
    other.rotary_emb.inv_freq.mul_(1.5)
    assert not other._rotates_by_base()
    assert rt.RoPEMultiheadAttention(DIM, HEADS, layout="half").rotary_emb is None


def test_analysis():
    embed = rt.RelativePositionEmbedding(2, 4, 4)
    q = draw(6, 4)
    want = torch.einsum("id,ijd->ij", q, embed.a_K[offsets(6, 6).clamp(-2, 2) + 2]) / 2
    torch.testing.assert_close(rt.compute_position_biases(q, embed), want, atol=1e-12, rtol=0)
    weights = torch.rand(B, 5, 6)
    got = rt.analyze_position_bias(weights, 9)
    assert list(got) == list(range(-4, 6))
    assert got[-1] == pytest.approx(weights[:, [1, 2, 3, 4], [0, 1, 2, 3]].mean().item())
    assert rt.count_position_pairs(128, 256) == (49152, 65536) and rt.count_position_pairs(9, 4) == (0, 16)
    assert [rt.clip_relative_position(j, 5, 4) for j in (0, 1, 6, 99)] == [-4, -4, 1, 4]


# ---------------------------------------------------------------------------------------------- T5

def t5_of_transformers(module, is_decoder, **config):
    models = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = models.T5Config(d_model=DIM, d_kv=module.head_dim, num_heads=HEADS, is_decoder=is_decoder,
                             dropout_rate=0.0, **config)
    config._attn_implementation = "eager"
    peer = models.T5Attention(config, has_relative_attention_bias=module.has_relative_bias, layer_idx=0)
    weights = {name.replace("_proj", "").replace("relative_bias.", ""): w for name, w in module.state_dict().items()}
    peer.load_state_dict(weights)
    return peer.double()


@pytest.mark.parametrize("is_decoder", [False, True])
def test_t5_attention_beside_transformers(is_decoder):
    module = shake(rt.T5Attention(DIM, HEADS, 8, 10, bidirectional=not is_decoder, head_dim=5, scale=1.0))
    peer = t5_of_transformers(module, is_decoder, relative_attention_num_buckets=8, relative_attention_max_distance=10)
    x = draw(B, LK, DIM)
    mask = torch.zeros(B, 1, LK, LK).masked_fill(PAD[:, None, None], torch.finfo(torch.float64).min)
    if is_decoder:
        mask = mask.masked_fill(offsets(LK, LK) > 0, torch.finfo(torch.float64).min)
    (got, position_bias), (want, dense, _) = module(x, mask), peer(x, mask=mask)
    parameters = [x, *module.parameters()], [x, *peer.parameters()]
    agree(got, want, parameters)
    torch.testing.assert_close(module.relative_bias(LK, LK), dense)
    keep = ~PAD[:, None, None] & (offsets(LK, LK) <= 0 if is_decoder else True)
    agree(module(x, keep)[0], want, parameters)
    # the next layer accepts the shared bias as a term or as an array
    module = shake(rt.T5Attention(DIM, HEADS, has_relative_bias=False, head_dim=5, scale=1.0))
    peer = t5_of_transformers(module, is_decoder)
    want = peer(x, mask=mask, position_bias=dense)[0]
    torch.testing.assert_close(module(x, mask, position_bias)[0], want)
    torch.testing.assert_close(module(x, mask, dense)[0], want)


def test_cross_attention_beside_transformers():
    module = shake(rt.T5Attention(DIM, HEADS, has_relative_bias=False, scale=1.0))
    peer = t5_of_transformers(module, True)
    x, memory = draw(B, LQ, DIM), draw(B, LK, DIM)
    mask = torch.zeros(B, 1, 1, LK).masked_fill(PAD[:, None, None], torch.finfo(torch.float64).min)
    (got, none), want = module(x, mask, key_value_states=memory), peer(x, mask=mask, key_value_states=memory)[0]
    assert none is None
    agree(got, want, ([x, memory, *module.parameters()], [x, memory, *peer.parameters()]))


def test_relative_positional_bias():
    bias = rt.RelativePositionalBias(HEADS, 16, 20, bidirectional=False)
    assert {n: tuple(p.shape) for n, p in bias.state_dict().items()} == {"relative_attention_bias.weight": (16, HEADS)}
    dense = bias(LQ, LK)
    assert dense.shape == (1, HEADS, LQ, LK)
    torch.testing.assert_close(dense[0].detach(), torch.from_numpy(bias.term().matrix(LQ, LK)))
    assert dense[0, 0, 3, 4] == bias.relative_attention_bias.weight[0, 0]  # a key after the query: bucket 0
    q, k, v = (draw(B, HEADS, n, 4) for n in (LQ, LK, LK))
    agree(rt.cross_attention_with_bias(q, k, v, bias, ~PAD[:, None, None]),
          softmax(q @ k.mT / 2 + dense, v, ~PAD[:, None, None])[0], [q, k, v, *bias.parameters()])


@pytest.mark.parametrize("buckets, max_distance", [(32, 128), (8, 20)])
def test_a_table_of_query_minus_key(buckets, max_distance):
    """A table trained with offsets query - key gives the same bias after conversion. With bidirectional=False, the bias
    differs for later keys, which a causal mask hides."""
    weight = torch.randn(buckets, HEADS)
    for both in (True, False):
        module = rt.RelativePositionalBias.from_query_minus_key(weight, max_distance, both)
        theirs = weight[torch.from_numpy(relpos.bucket(-offsets(40, 40), buckets=buckets, max_distance=max_distance,
                                                       bidirectional=both))]
        seen = torch.ones(40, 40, dtype=torch.bool) if both else offsets(40, 40) <= 0
        assert torch.equal(module(40, 40)[0].permute(1, 2, 0)[seen], theirs[seen])
        assert (module.num_buckets, module.max_distance, module.bidirectional) == (buckets, max_distance, both)
        assert (type(module.relative_attention_bias.weight) is nn.Parameter
                and module.relative_attention_bias.weight.requires_grad)
    assert torch.equal(rt.RelativePositionalBias.from_query_minus_key(
        theirs.new_tensor(range(32))[:, None]).relative_attention_bias.weight[:, 0],
                       theirs.new_tensor([0, *range(17, 32), 0, *range(1, 16)]))


def test_a_note_where_a_table_may_be_of_query_minus_key():
    class Theirs(nn.Module):
        def __init__(self):
            super().__init__()
            self.relative_bias = nn.Module()
            self.relative_bias.relative_attention_bias = nn.Embedding(32, 2)

    ours, theirs = rt.T5Attention(8, 2), Theirs()
    with pytest.warns(UserWarning, match=r"^relative_bias.relative_attention_bias.weight: the state_dict does not "
                                         r"show.*from_query_minus_key"):
        ours.load_state_dict(theirs.state_dict(), strict=False)
    assert torch.equal(ours.relative_bias.relative_attention_bias.weight,
                       theirs.relative_bias.relative_attention_bias.weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.load_state_dict(rt.T5Attention(8, 2).state_dict())
        ours.load_state_dict(copy.deepcopy(ours.state_dict()))
    # as safetensors' load_file gives it
    with pytest.warns(UserWarning, match="^relative_attention_bias.weight: the state_dict does not show"):
        rt.RelativePositionalBias(2).load_state_dict({"relative_attention_bias.weight": torch.ones(32, 2)})
    # tables of other code with bidirectional=False
    with pytest.warns(UserWarning, match="^relative_bias.relative_attention_bias.weight: the state_dict does not show"):
        rt.T5Attention(8, 2, bidirectional=False).load_state_dict(theirs.state_dict(), strict=False)


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("buckets", [4, 32])
def test_no_note_for_a_table_of_relpos(both, buckets, tmp_path):
    """A trained table that was saved as tensors only is known."""
    safetensors = pytest.importorskip("safetensors.torch")
    layer = rt.T5Attention(8, 2, buckets, 64, bidirectional=both)
    steps = torch.optim.AdamW(layer.parameters(), lr=0.1)
    for _ in range(3):
        steps.zero_grad()
        layer(torch.randn(2, 9, 8))[0].pow(2).sum().backward()
        steps.step()
    other = rt.T5Attention(8, 2, buckets, 64, bidirectional=both)
    safetensors.save_model(layer, tmp_path / "a.safetensors")
    torch.save(dict(layer.state_dict()), tmp_path / "a.pt")
    converted = rt.RelativePositionalBias.from_query_minus_key(torch.randn(buckets, 2), 64, both)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        safetensors.load_model(other, tmp_path / "a.safetensors")
        other.load_state_dict(torch.load(tmp_path / "a.pt"))
        other.load_state_dict({name: x.clone() for name, x in layer.state_dict().items()})
        other.half().load_state_dict(dict(layer.half().state_dict()))
        other.relative_bias.load_state_dict(dict(converted.state_dict()))
    used = relpos.bucket(range(-300, 300), buckets=buckets, max_distance=64, bidirectional=both)
    assert (buckets // 2 in used) != both  # the row that is zero is used by no offset


def of_definition(bias, lq, lk, q_offset=0):
    """Return the biases (1, H, lq, lk) of a RelativePositionalBias, pair by pair."""
    buckets = relpos.bucket((offsets(lq, lk) - q_offset).numpy(), buckets=bias.num_buckets,
                            max_distance=bias.max_distance, bidirectional=bias.bidirectional)
    return bias.relative_attention_bias.weight[torch.from_numpy(buckets)].permute(2, 0, 1)[None]


@pytest.mark.parametrize("lq, lk", [(0, 3), (3, 0), (0, 0), (1, 1), (1, 4), (4, 1), (3, 5)])
def test_biases_of_any_lengths(lq, lk):
    bias = shake(rt.RelativePositionalBias(HEADS))
    assert torch.equal(bias(lq, lk), of_definition(bias, lq, lk))
    for lengths, name in (((-1, lk), "query_length"), ((lq, -2), "key_length")):
        with pytest.raises(ValueError, match=f"^{name} is -[12], expected an integer, 0 or more"):
            bias(*lengths)


@pytest.mark.parametrize("given", [{}, {"q_offset": 3}, {"keys": 7}])
def test_the_returned_bias_is_also_an_array(given):
    """Code of the tutorial slices the bias for decoding, and adds it to scores."""
    layer = shake(rt.T5Attention(DIM, HEADS, 8, 10))
    x, keys = draw(B, LQ, DIM), given.get("keys", LQ)
    options = {"key_value_states": draw(B, keys, DIM)} if "keys" in given else given
    bias = layer(x, **options)[1]
    want = of_definition(layer.relative_bias, LQ, keys, given.get("q_offset", 0))
    scores, table = draw(B, HEADS, LQ, keys), layer.relative_bias.relative_attention_bias.weight
    assert isinstance(bias, relpos.T5) and (bias.shape, bias.ndim, len(bias)) == (want.shape, 4, 1)
    assert (bias.dtype, bias.device, bias.size(2), bias.dim()) == (want.dtype, want.device, LQ, 4)
    for got, expected in (
            (bias[:, :, -1:], want[:, :, -1:]), (bias[0, 1], want[0, 1]), (bias[..., 1:, None], want[..., 1:, None]),
            (scores + bias, scores + want), (bias + scores, scores + want), (scores - bias, scores - want),
            (bias - scores, want - scores), (2 * bias, 2 * want), (bias * scores, want * scores), (-bias, -want),
            (bias / 2, want / 2), (bias + 1.0, want + 1), (bias.expand(B, -1, -1, -1), want.expand(B, -1, -1, -1)),
            (torch.cat([bias, bias]), torch.cat([want, want])), (torch.softmax(bias, -1), want.softmax(-1))):
        assert torch.equal(got, expected)
        weights = torch.randn(got.shape)
        for x, y in zip(*(torch.autograd.grad((z * weights).sum(), table, retain_graph=True)
                          for z in (got, expected))):
            torch.testing.assert_close(x, y)
    # it is a term too
    assert repr(bias) == repr(layer.relative_bias.term()) and repr(bias + relpos.ALiBi()).endswith(" + relpos.ALiBi()")
    for copied in (copy.deepcopy(bias.detach()), pickle.loads(pickle.dumps(bias))):
        assert torch.equal(copied[:], want)
    with pytest.raises(AttributeError, match="no_such"):
        bias.no_such
    with pytest.raises(TypeError, match="^q_offset is .*expected|^q_offset is .*needs an integer"):
        layer(x=draw(B, LQ, DIM), q_offset=torch.arange(B))[1][0]


def test_one_sequence_of_t5_attention():
    layer, later = shake(rt.T5Attention(DIM, HEADS)), shake(rt.T5Attention(DIM, HEADS, has_relative_bias=False))
    x, memory, mask = draw(LQ, DIM), draw(LK, DIM), torch.rand(LQ, LK) < 0.8
    (got, bias), (want, _) = layer(x), layer(x[None])
    assert bias.shape == (1, HEADS, LQ, LQ) and torch.equal(got, want[0])
    agree(got, want[0], [x, *layer.parameters()])
    assert torch.equal(later(x, position_bias=bias)[0], later(x[None], position_bias=bias)[0][0])
    assert torch.equal(layer(x, mask, key_value_states=memory)[0],
                       layer(x[None], mask, key_value_states=memory[None])[0][0])
    for given, name in (([x[None, None]], "x"), ([x[0]], "x"), ([x, None, None, memory[None]], "key_value_states")):
        options = {"key_value_states": given[3]} if len(given) == 4 else {}
        with pytest.raises(ValueError, match=rf"^{name} has shape \(.*expected \(B, L, dim\), or \(L, dim\)"):
            layer(given[0], **options)


def test_buckets_of_a_subclass_are_refused():
    with pytest.raises(TypeError, match="Mine._relative_position_bucket would never be used.*relpos.Bucket"):
        class Mine(rt.RelativePositionalBias):
            def _relative_position_bucket(self, relative_position):
                return relative_position * 0


def test_t5_attention_step_by_step():
    module = shake(rt.T5Attention(DIM, HEADS, bidirectional=False))
    x = draw(B, LK, DIM)
    whole = module(x, causal=True)[0]
    last = module(x[:, -1:], key_value_states=x, q_offset=LK - 1)[0]
    torch.testing.assert_close(last, whole[:, -1:])


# ---------------------------------------------------------------------------------------------- modules like
# torch.nn.MultiheadAttention

def additive(module, query, key, value, p_q=None, p_k=None, seen_q=None, seen_k=None, **options):
    """Compute the module with torch.nn.MultiheadAttention and the bias as a float mask."""
    m = module.max_distance
    p_q = torch.arange(query.shape[1]) if p_q is None else p_q
    p_k = torch.arange(key.shape[1]) if p_k is None else p_k
    difference = p_q[..., :, None] - p_k[..., None, :]
    bias = module.rel_bias[difference.clamp(-m, m).long() + m]
    if seen_q is not None:
        bias = bias * (seen_q[..., :, None] & seen_k[..., None, :])
    bias = bias.expand(len(query), *bias.shape[-2:]).repeat_interleave(HEADS, 0)
    mask = options.pop("attn_mask", None)
    if mask is not None:
        mask = torch.zeros(mask.shape).masked_fill(mask, -math.inf) if mask.dtype == torch.bool else mask
    return module.attn(query, key, value, attn_mask=-bias if mask is None else mask - bias, **options)


REAL_Q, REAL_K = torch.randn(B, LQ, generator=torch.Generator().manual_seed(1)) * 4, torch.arange(LK) * 0.75


@pytest.mark.parametrize("p_q, p_k", [(None, None), (REAL_Q, REAL_K), (REAL_Q[0], None),
                                      (torch.arange(LQ) + 3, torch.arange(LK).flip(0))])
@pytest.mark.parametrize("masks", ["", "pairs", "heads", "numbers", "padding", "padding numbers"])
def test_additive_rel_multihead_attention(p_q, p_k, masks):
    module = shake(rt.AdditiveRelMultiheadAttention(DIM, HEADS, max_distance=4))
    query, key, value = draw(B, LQ, DIM), draw(B, LK, DIM), draw(B, LK, DIM)
    options = {"": {}, "pairs": {"attn_mask": ~KEEP},
               "heads": {"attn_mask": torch.stack([~KEEP, ~KEEP.roll(0, 0)] * B)},
               "numbers": {"attn_mask": torch.randn(LQ, LK)}, "padding": {"key_padding_mask": PAD},
               "padding numbers": {"key_padding_mask": torch.randn(B, LK)}}[masks]
    got, weights = module(query, key, value, q_positions=p_q, k_positions=p_k, need_weights=True, **options)
    if "key_padding_mask" in options and options["key_padding_mask"].dtype == torch.bool:
        options["key_padding_mask"] = torch.zeros(B, LK).masked_fill(PAD, -math.inf)
    want, mean = additive(module, query, key, value, p_q, p_k, need_weights=True, **options)
    weights_agree(weights, mean, [query, key, value, *module.parameters()])
    agree(got, want, [query, key, value, *module.parameters()])


def test_additive_rel_multihead_attention_elsewhere():
    module = shake(rt.AdditiveRelMultiheadAttention(DIM, HEADS, max_distance=4, bias=False))
    assert {n: tuple(p.shape) for n, p in module.state_dict().items()} == {
        "rel_bias": (9,), "attn.in_proj_weight": (3 * DIM, DIM), "attn.out_proj.weight": (DIM, DIM)}
    x, seen_q, seen_k = draw(B, LK, DIM), torch.rand(B, LK) < 0.6, torch.rand(LK) < 0.6
    got = module(x, x, x, q_positions=REAL_K, q_position_mask=seen_q, k_position_mask=seen_k)
    assert got[1] is None
    agree(got[0], additive(module, x, x, x, REAL_K, None, seen_q, seen_k)[0], [x, *module.parameters()])
    causal = offsets(LK, LK) > 0
    agree(module(x, x, x, is_causal=True)[0], additive(module, x, x, x, attn_mask=causal)[0], [x, *module.parameters()])
    full = torch.zeros(LK, LK, dtype=torch.bool)
    full[2] = True
    assert torch.equal(module(x, x, x, attn_mask=full)[0][:, 2], torch.zeros(B, DIM))
    with pytest.raises(ValueError, match="max_distance is -1"):
        rt.AdditiveRelMultiheadAttention(DIM, HEADS, max_distance=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("masks", [False, True])
def test_differences_are_rounded_as_the_positions_are(dtype, masks):
    """For positions in steps of 0.1, 74 of the 10,201 differences computed in float32 round to an integer that the
    exact difference does not reach."""
    module = shake(rt.AdditiveRelMultiheadAttention(DIM, HEADS, max_distance=8))
    p, x = (torch.arange(101, dtype=torch.float32) * 0.1).to(dtype), draw(B, 101, DIM)
    index = lambda p: (p[:, None] - p).clamp(-8, 8).long()
    differ = (index(p) != index(p.double())).sum().item()
    assert differ == 74 if dtype == torch.float32 else differ > 0
    seen = (torch.rand(B, 101) < 0.8, torch.rand(B, 101) < 0.8) if masks else (None, None)
    got = module(x, x, x, q_positions=p.expand(B, -1), k_positions=p, q_position_mask=seen[0],
                 k_position_mask=seen[1])[0]
    agree(got, additive(module, x, x, x, p.expand(B, -1), p, *seen)[0], [x, *module.parameters()])
    whole = module(x, x, x, k_positions=p)[0]  # float key positions and integer query positions
    agree(whole, additive(module, x, x, x, None, p)[0], [x, *module.parameters()])


def test_differences_that_no_type_rounds_need_no_array():
    p = torch.arange(101.0, dtype=torch.float32)
    for exact in (p, p / 4, p + 1e6, p.double() * 0.1, p.long(), torch.tensor([0.5, math.inf, -math.inf, 3]).float(),
                  p.to(torch.bfloat16)):
        assert not rt._multihead._rounds(exact, exact)
    for rounded in (p * 0.1, p + 1 / 3, p / 64 + 2**18, p.to(torch.float16) + 0.1):
        assert rt._multihead._rounds(rounded, rounded)
    assert rt._multihead._rounds(p * 0.1, p.long()) and not rt._multihead._rounds(p * 0.1, p.double())


def test_rounded_positions_in_a_compiled_layer():
    torch._dynamo.reset()
    module, x = shake(rt.AdditiveRelMultiheadAttention(8, 2, max_distance=3)), draw(2, 31, 8)
    p = torch.arange(31, dtype=torch.float32) * 0.1
    p[4], p[5], p[6] = math.inf, math.inf, -math.inf
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    agree(compiled(x, x, x, q_positions=p, k_positions=p)[0], module(x, x, x, q_positions=p, k_positions=p)[0], [x])


def test_positions_that_are_far_or_not_known():
    """An infinite position is farther than max_distance from all others. A position whose mask is False can be NaN."""
    module = shake(rt.AdditiveRelMultiheadAttention(DIM, HEADS, max_distance=4))
    x, p = draw(B, LK, DIM), REAL_K.clone()
    far, near = p.clone(), p.clone()
    far[2], far[5], near[2], near[5] = math.inf, -math.inf, 1e6, -1e6
    torch.testing.assert_close(module(x, x, x, q_positions=far, k_positions=p)[0],
                               module(x, x, x, q_positions=near, k_positions=p)[0])
    seen = torch.ones(LK, dtype=torch.bool)
    seen[3] = False
    p[3] = math.nan
    want = module(x, x, x, q_positions=REAL_K, k_positions=REAL_K, q_position_mask=seen, k_position_mask=seen)[0]
    assert torch.equal(module(x, x, x, q_positions=p, k_positions=p, q_position_mask=seen, k_position_mask=seen)[0],
                       want)
    with pytest.raises(ValueError, match="positions must be finite"):
        module(x, x, x, q_positions=p)


@pytest.mark.parametrize("make", [lambda: rt.AdditiveRelMultiheadAttention(DIM, HEADS, max_distance=4),
                                  lambda: rt.ClippedBiasMultiheadAttention(DIM, HEADS, max_distance=4),
                                  lambda: rt.ShawMultiheadAttention(DIM, HEADS, max_distance=4)])
def test_infinite_positions_are_far_from_any_other(make):
    """Positions can be large, even in types that cannot represent 2^53."""
    module, x = shake(make()), draw(B, 4, DIM)
    for large in (1.7e12, 4.0e15):
        p = large + torch.arange(4.0)
        infinite, other = p.clone(), p.clone()
        infinite[3], other[3] = math.inf, 9.0e15
        for side in ("q_positions", "k_positions"):
            given = {"q_positions": p, "k_positions": p}
            assert torch.equal(module(x, x, x, **given | {side: infinite})[0],
                               module(x, x, x, **given | {side: other})[0])
    small = torch.tensor([0, 1, -math.inf, math.inf])
    want = module(x, x, x, q_positions=torch.tensor([0, 1, -100, 100]), k_positions=torch.arange(4))[0]
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.equal(module(x, x, x, q_positions=small.to(dtype), k_positions=torch.arange(4))[0], want)


def test_positions_that_have_to_be_finite():
    x, p = draw(B, 3, DIM), torch.tensor([0, 1, math.inf])
    assert "with finite positions" in rt.RoPEMultiheadAttention.__doc__
    with pytest.raises(ValueError, match="positions must be finite"):
        rt.RoPEMultiheadAttention(DIM, HEADS)(x, x, x, k_positions=p)
    with pytest.raises(IndexError, match="k_positions has 0 to inf, expected 0 to 8, finite"):
        rt.AdditivePosMultiheadAttention(DIM, HEADS, max_len=9)(x, x, x, k_positions=p)


@pytest.mark.parametrize("shared", [False, True])
def test_clipped_biases_where_positions_are_not_known(shared):
    module = shake(rt.ClippedBiasMultiheadAttention(DIM, HEADS, max_distance=3, shared=shared))
    x, p = draw(B, LK, DIM), REAL_K.clone()
    seen_q, seen_k = torch.rand(B, LK) < 0.6, torch.rand(LK) < 0.6
    p[~seen_k] = math.nan
    for given in ({}, {"q_positions": REAL_K * 2, "k_positions": p}):
        at_q, at_k = (REAL_K * 2, REAL_K) if given else (torch.arange(LK), torch.arange(LK))
        index = (at_q[:, None] - at_k).clamp(-3, 3).long() + 3
        bias = (module.relative_bias[None] if shared else module.relative_bias)[:, index]
        bias = bias * (seen_q[:, None, :, None] & seen_k)
        q, k, v = (split(f(x)) for f in (module.q_proj, module.k_proj, module.v_proj))
        out, weights = softmax(q @ k.mT / (DIM / HEADS)**0.5 + bias, v)
        got, mean = module(x, x, x, **given, q_position_mask=seen_q, k_position_mask=seen_k, need_weights=True)
        weights_agree(mean, weights.mean(1), [x, *module.parameters()])
        agree(got, module.out_proj(join(out)), [x, *(p for n, p in module.named_parameters() if n != "k_proj.bias")],
              1e-10)
    all_seen = torch.ones(LK, dtype=torch.bool)  # with and without a mask agree
    torch.testing.assert_close(module(x, x, x, q_position_mask=all_seen)[0], module(x, x, x)[0])


@pytest.mark.parametrize("given", [{}, {"q_positions": REAL_K * 2, "k_positions": REAL_K}])
@pytest.mark.parametrize("causal", [False, True])
def test_shaw_where_positions_are_not_known(given, causal):
    """A pair with a masked position has no vectors. The reference loops over all pairs, and autograd computes its
    gradients."""
    module = shake(rt.ShawMultiheadAttention(DIM, HEADS, max_distance=3))
    x, seen_q, seen_k = draw(B, LK, DIM), torch.rand(B, LK) < 0.6, torch.rand(LK) < 0.6
    at_q, at_k = given.values() if given else (torch.arange(LK), torch.arange(LK))
    both = seen_q[:, :, None] & seen_k
    index = (at_k - at_q[:, None]).clamp(-3, 3).long() + 3
    q, k, v = (split(f(x)) for f in (module.q_proj, module.k_proj, module.v_proj))
    a_k, a_v = (a[index] * both[..., None] for a in (module.rel_embed.a_K, module.rel_embed.a_V))
    scores = (q @ k.mT + torch.einsum("bhid,bijd->bhij", q, a_k)) / (DIM / HEADS)**0.5
    plain, weights = softmax(scores, v, offsets(LK, LK) <= 0 if causal else None)
    want = plain + torch.einsum("bhij,bijd->bhid", weights, a_v)
    if given:
        given = given | {"k_positions": REAL_K.masked_fill(~seen_k, math.nan)}
    got, mean = module(x, x, x, **given, q_position_mask=seen_q, k_position_mask=seen_k, is_causal=causal,
                       need_weights=True)
    weights_agree(mean, weights.mean(1), [x, *module.parameters()])
    agree(got, module.out_proj(join(want)), [x, *(p for n, p in module.named_parameters() if n != "k_proj.bias")],
          1e-10)

    q, k, v, tk, tv = (y.detach().numpy() for y in (q, k, v, module.rel_embed.a_K, module.rel_embed.a_V))
    looped = np.zeros_like(v)
    for b, h, i in np.ndindex(B, HEADS, LK):
        pairs = range(i + 1 if causal else LK)
        known = [bool(both[b, i, j]) for j in pairs]
        s = np.array([q[b, h, i] @ (k[b, h, j] + (tk[index[i, j]] if known[j] else 0))
                      for j in pairs]) / (DIM / HEADS)**0.5
        w = np.exp(s - s.max())
        w /= w.sum()
        looped[b, h, i] = sum(w[j] * (v[b, h, j] + (tv[index[i, j]] if known[j] else 0)) for j in pairs)
    np.testing.assert_allclose(got.detach(), module.out_proj(join(torch.from_numpy(looped))).detach(), atol=1e-12)


@pytest.mark.parametrize("given",
                         [{}, {"q_positions": torch.arange(LK) * 3, "k_positions": torch.arange(LK).expand(B, LK) ** 2},
                          {"q_positions": REAL_K * 2, "k_positions": REAL_K}])
def test_alibi_where_positions_are_not_known(given):
    """A pair with a masked position has no penalty. The reference loops over all pairs, and autograd computes its
    gradients."""
    module = shake(rt.ALiBiMultiheadAttention(DIM, HEADS))
    x, seen_q, seen_k = draw(B, LK, DIM), torch.rand(LK) < 0.6, torch.rand(B, LK) < 0.6
    at_q, at_k = given.values() if given else (torch.arange(LK), torch.arange(LK))
    both = seen_q[:, None] & seen_k[:, None]
    distance = (at_k.expand(B, LK)[:, None] - at_q[:, None]).abs()
    slopes = torch.tensor([2.0**-4, 2.0**-8])
    q, k, v = (split(f(x)) for f in (module.q_proj, module.k_proj, module.v_proj))
    want, weights = softmax(q @ k.mT / (DIM / HEADS)**0.5 - slopes[:, None, None] * (distance * both)[:, None], v)
    if given and given["q_positions"].is_floating_point():
        given = {"q_positions": given["q_positions"].masked_fill(~seen_q, math.nan),
                 "k_positions": given["k_positions"]}
    got, mean = module(x, x, x, **given, q_position_mask=seen_q, k_position_mask=seen_k, need_weights=True)
    weights_agree(mean, weights.mean(1), [x, *module.parameters()])
    agree(got, module.out_proj(join(want)), [x, *(p for n, p in module.named_parameters() if n != "k_proj.bias")],
          1e-10)

    q, k, v = (y.detach().numpy() for y in (q, k, v))
    looped = np.zeros_like(v)
    for b, h, i in np.ndindex(B, HEADS, LK):
        s = [q[b, h, i] @ k[b, h, j] / (DIM / HEADS)**0.5
             - (float(slopes[h] * distance[b, i, j]) if both[b, i, j] else 0) for j in range(LK)]
        w = np.exp(np.array(s) - max(s))
        looped[b, h, i] = (w / w.sum()) @ v[b, h]
    np.testing.assert_allclose(got.detach(), module.out_proj(join(torch.from_numpy(looped))).detach(), atol=1e-12)


def test_alibi_with_infinite_positions():
    """An infinitely far key has weight 0; a query at infinity attends only to keys at the same position."""
    module, x = shake(rt.ALiBiMultiheadAttention(DIM, HEADS)), draw(B, 4, DIM)
    for dtype in (torch.float64, torch.float16):
        p = torch.tensor([0, 1, -math.inf, math.inf], dtype=dtype)
        out, weights = module(x, x, x, q_positions=p, k_positions=p, need_weights=True)
        near = module(x[:, :2], x[:, :2], x[:, :2])[0]
        torch.testing.assert_close(out[:, :2], near, atol=1e-12, rtol=0)
        assert torch.equal(weights[:, 2:], torch.eye(4)[2:].expand(B, 2, 4))


def test_a_mask_for_each_batch_entry():
    module, x = shake(rt.AdditiveRelMultiheadAttention(DIM, HEADS, max_distance=4)), draw(B, LK, DIM)
    mask = torch.rand(B, LK, LK) < 0.3
    assert torch.equal(module(x, x, x, attn_mask=mask)[0],
                       module(x, x, x, attn_mask=mask.repeat_interleave(HEADS, 0))[0])


def test_shapes_of_masks():
    """Any axis of a mask can be 1. Other shapes raise."""
    module = shake(rt.AdditiveRelMultiheadAttention(DIM, HEADS, max_distance=4))
    query, key = draw(B, LQ, DIM), draw(B, LK, DIM)
    for shape in ((1, LQ, LK), (B, 1, LK), (B, LQ, 1), (1, LK), (LQ, 1), (B * HEADS, 1, LK), (1, 1, 1)):
        full = (LQ, LK) if len(shape) == 2 else (B * HEADS if shape[0] > B else B, LQ, LK)
        for mask in (torch.rand(shape) < 0.3, torch.randn(shape)):
            assert torch.equal(module(query, key, key, attn_mask=mask)[0],
                               module(query, key, key, attn_mask=mask.expand(full))[0])
    for shape in ((5, LQ, LK), (B, LK, LQ), (LQ,), (LQ, LK + 1), (2 * B * HEADS, LQ, LK), (B, HEADS, LQ, LK),
                  (HEADS, LQ, LK)):
        with pytest.raises(ValueError) as found:
            module(query, key, key, attn_mask=torch.zeros(shape))
        assert str(found.value) == (f"attn_mask has shape {shape}, expected (Lq, Lk), (B, Lq, Lk) or (B num_heads, Lq, "
                                    "Lk), here (7, 11), "
                                    "(3, 7, 11) or (6, 7, 11)")


def test_additive_pos_multihead_attention():
    module = shake(rt.AdditivePosMultiheadAttention(DIM, HEADS, max_len=40))
    query, key, value = draw(B, LQ, DIM), draw(B, LK, DIM), draw(B, LK, DIM)
    for p_q, p_k, seen in ((None, None, None), (torch.arange(LQ) + 7, (REAL_K * 2).expand(B, LK),
                                                torch.rand(B, LK) < 0.6)):
        at_q, at_k = (torch.arange(n) if p is None else p.long() for n, p in ((LQ, p_q), (LK, p_k)))
        added = module.pos_emb[at_k] * (1 if seen is None else seen[..., None])
        want = module.attn(query + module.pos_emb[at_q], key + added, value, need_weights=True)
        got = module(query, key, value, q_positions=p_q, k_positions=p_k, k_position_mask=seen, need_weights=True)
        agree(got[0], want[0], [query, key, value, *module.parameters()])
        weights_agree(got[1], want[1], [query, key, value, *module.parameters()])
    with pytest.raises(IndexError, match="q_positions has 40 to 46, expected 0 to 39, finite; use a larger max_len"):
        module(query, key, value, q_positions=torch.arange(LQ) + 40)
    with pytest.raises(ValueError, match="max_len is 0"):
        rt.AdditivePosMultiheadAttention(DIM, HEADS, max_len=0)


def test_rotary_embedding():
    """apply_rope rotates as relpos.attention does."""
    rotary, p = rt.RotaryEmbedding(DIM // HEADS, base=100.0,
                                   dtype=torch.float64), torch.rand(B, LK, dtype=torch.float64) * 9
    q, k, v = draw(B, HEADS, LK, DIM // HEADS), draw(B, HEADS, LK, DIM // HEADS), draw(B, HEADS, LK, DIM // HEADS)
    want = relpos.attention(q, k, v, rope=relpos.RoPE(base=100.0, layout="interleaved", positions=p))
    agree(relpos.attention(rotary.apply_rope(q, p), rotary.apply_rope(k, p), v), want, [q, k, v])
    seen = torch.rand(B, LK) < 0.5
    kept = rotary.apply_rope(q, p, seen)
    assert torch.equal(kept[0, :, ~seen[0]], q[0, :, ~seen[0]])
    assert rotary(torch.arange(3))[0].shape == (3, DIM // HEADS // 2)
    module, x = shake(rt.RoPEMultiheadAttention(DIM, HEADS)), draw(B, LK, DIM)
    assert torch.equal(module(x, x, x, q_positions=p, q_position_mask=seen)[0],
                       module(x, x, x, q_positions=p * seen)[0])
    with pytest.raises(ValueError, match="dim is 5"):
        rt.RotaryEmbedding(5)


@pytest.mark.parametrize("make", [lambda: rt.AdditiveRelMultiheadAttention(DIM, HEADS, max_distance=4),
                                  lambda: rt.AdditivePosMultiheadAttention(DIM, HEADS, max_len=9),
                                  lambda: rt.RoPEMultiheadAttention(DIM, HEADS),
                                  lambda: rt.ClippedBiasMultiheadAttention(DIM, HEADS, max_distance=4),
                                  lambda: rt.ALiBiMultiheadAttention(DIM, HEADS),
                                  lambda: rt.ShawMultiheadAttention(DIM, HEADS, max_distance=4)])
def test_reset_parameters(make):
    module = shake(make())
    module.reset_parameters()
    for name, parameter in module.named_parameters():
        if parameter.dim() == 1 or name in ("pos_emb", "relative_bias"):
            assert not parameter.any()
        elif name.startswith("rel_embed"):  # normal, not uniform
            assert 0.5 < parameter.std() * ((9 + DIM / HEADS) / 2) ** 0.5 < 1.5
        else:
            assert 0 < parameter.abs().max() <= (6 / (2 * DIM)) ** 0.5


def test_dropout():
    module = shake(rt.AdditiveRelMultiheadAttention(DIM, HEADS, max_distance=4, dropout=0.4))
    x = draw(200, LK, DIM)
    one = module(x[:1].expand(200, -1, -1), x[:1].expand(200, -1, -1), x[:1].expand(200, -1, -1))[0]
    assert not torch.equal(one[0], one[1])
    torch.manual_seed(1)
    first = module(x, x, x)[0]
    assert not torch.equal(first, module(x, x, x)[0])
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for again in (module, compiled):
        torch.manual_seed(1)
        agree(again(x, x, x)[0], first, [x, *module.parameters()])
    assert not torch.equal(compiled(x, x, x)[0], first)
    module.eval()
    assert ((one.mean(0) - module(x[:1], x[:1], x[:1])[0][0]).abs() < 5 * one.std(0) / 200**0.5).all()
    assert torch.equal(module(x, x, x)[0], module(x, x, x)[0])


def turn(x, positions, layout):
    """Rotate pairs of channels as complex numbers."""
    d = x.shape[-1]
    angle = positions[..., None] / 10000 ** (torch.arange(0, d, 2) / d)
    angle = angle[:, None] if angle.dim() == 3 else angle
    pairs = x.unflatten(-1, (-1, 2)) if layout == "interleaved" else x.unflatten(-1, (2, -1)).mT
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angle), angle))
    return (turned if layout == "interleaved" else turned.mT).flatten(-2)


FAMILIES = {
    "clipped": lambda **o: rt.ClippedBiasMultiheadAttention(DIM, HEADS, max_distance=3, **o),
    "shared": lambda **o: rt.ClippedBiasMultiheadAttention(DIM, HEADS, max_distance=3, shared=True, **o),
    "shaw": lambda **o: rt.ShawMultiheadAttention(DIM, HEADS, max_distance=3, **o),
    "alibi": lambda **o: rt.ALiBiMultiheadAttention(DIM, HEADS, **o),
    "rope": lambda **o: rt.RoPEMultiheadAttention(DIM, HEADS, **o),
    "half": lambda **o: rt.RoPEMultiheadAttention(DIM, HEADS, layout="half", **o),
}


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_families(family, causal, given):
    module = shake(FAMILIES[family]())
    query, key = draw(B, LQ, DIM), draw(B, LK, DIM)
    at_q, at_k = (torch.arange(LQ) * 2 - 5,
                  torch.randint(-9, 9, (B, LK))) if given else (torch.arange(LQ), torch.arange(LK))
    q, k, v = (split(f(x)) for f, x in ((module.q_proj, query), (module.k_proj, key), (module.v_proj, key)))
    r = at_k[..., None, :] - at_q[:, None]
    r = r[:, None] if given else r  # (B, 1, Lq, Lk) or (Lq, Lk)
    keep = ~PAD[:, None, None] & (offsets(LQ, LK) <= 0 if causal else True)
    index, extra = r.clamp(-3, 3) + 3, 0
    if family in ("rope", "half"):
        q, k = turn(q, at_q, module.layout), turn(k, at_k, module.layout)
    scores = q @ k.mT
    if family == "shaw":
        scores = scores + (q[..., None, :] * module.rel_embed.a_K[index]).sum(-1)
    scores = scores / (DIM / HEADS)**0.5
    if family == "alibi":
        scores = scores - torch.tensor([2.0**-4, 2.0**-8])[:, None, None] * r.abs()
    if family == "shared":
        scores = scores + module.relative_bias[6 - index]
    if family == "clipped":
        scores = scores + torch.stack([module.relative_bias[h][6 - index].expand(B, 1, LQ, LK)[:, 0]
                                       for h in range(HEADS)], 1)
    out, weights = softmax(scores, v, keep)
    if family == "shaw":
        out = out + (weights[..., None] * module.rel_embed.a_V[index]).sum(-2)
    positions = {"q_positions": at_q, "k_positions": at_k} if given else {}
    got, mean = module(query, key, key, key_padding_mask=PAD, need_weights=True, is_causal=causal, **positions)
    weights_agree(mean, weights.mean(1), [query, key, *module.parameters()])
    agree(got, module.out_proj(join(out)),
          [query, key, *(p for n, p in module.named_parameters() if n != "k_proj.bias")], 1e-10)


def test_shapes_of_the_families():
    for family, make in FAMILIES.items():
        made = make(dtype=torch.float32, bias=False, dropout=0.1)
        assert made.dropout == 0.1 and all(p.dtype == torch.float32 for p in made.parameters())
        want = dict.fromkeys(("q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight"), (DIM, DIM))
        want |= {"clipped": {"relative_bias": (HEADS, 7)}, "shared": {"relative_bias": (7,)},
                 "shaw": {"rel_embed.a_K": (7, DIM // HEADS), "rel_embed.a_V": (7, DIM // HEADS)}}.get(family, {})
        assert {n: tuple(p.shape) for n, p in made.state_dict().items()} == want
    with pytest.raises(ValueError, match="embed_dim is 9, expected a multiple of num_heads, 2"):
        rt.ALiBiMultiheadAttention(9, 2)


# ---------------------------------------------------------------------------------------------- windows of a grid

@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("head_dim", [None, 4])
def test_window_attention_beside_timm(head_dim, fused):
    timm = pytest.importorskip("timm.models.swin_transformer")
    module = shake(rt.WindowAttention(DIM, HEADS, head_dim, window_size=(2, 3)))
    peer = timm.WindowAttention(DIM, HEADS, head_dim, window_size=(2, 3))
    peer.fused_attn = fused
    peer.load_state_dict(module.state_dict())
    weights = {"a." + name: w for name, w in peer.state_dict().items()}
    weights["a.relative_position_index"] = peer.relative_position_index  # as in Swin checkpoints
    holder = nn.ModuleDict({"a": rt.WindowAttention(DIM, HEADS, head_dim, window_size=(2, 3))})
    holder.load_state_dict(weights)
    x, mask = draw(8, 6, DIM), torch.zeros(4, 6, 6).masked_fill(torch.rand(4, 6, 6) < 0.4, -100.0)
    for options in ((), (mask,)):
        agree(holder["a"](x, *options), peer(x, *options),
              ([x, *holder.parameters()], [x, *by_name(peer, holder["a"])]))


def test_attributes_of_timms_window_attention():
    """scale and attn_drop are obeyed as timm obeys them; a learned scale is refused."""
    timm = pytest.importorskip("timm.models.swin_transformer")
    module, x = shake(rt.WindowAttention(DIM, HEADS, window_size=(2, 3))), draw(8, 6, DIM)
    peer = timm.WindowAttention(DIM, HEADS, window_size=(2, 3))
    peer.load_state_dict(module.state_dict(), strict=False)
    peer.fused_attn = False
    assert module.scale == pytest.approx(peer.scale, rel=1e-15)
    module.scale = peer.scale = 0.7
    module.attn_drop, peer.attn_drop = nn.Dropout(0.5), nn.Dropout(0.5)
    module.eval(), peer.eval()
    agree(module(x), peer(x), ([x], [x]))
    module.train()
    assert not torch.equal(module(x), module(x))
    module.eval()
    module.scale, peer.scale = nn.Parameter(torch.tensor(0.7)), nn.Parameter(torch.tensor(0.7))
    agree(module(x), peer(x), ([x, module.scale], [x, peer.scale]))


def by_name(peer, module):
    named = dict(peer.named_parameters())
    return [named[name] for name, _ in module.named_parameters()]


def test_factorized_window_attention():
    module = shake(rt.FactorisedWindowAttention(DIM, HEADS, window_size=(2, 3)))
    assert module.bias_h.shape == (HEADS, 3) and module.bias_w.shape == (HEADS, 5)
    x, mask = draw(8, 6, DIM), torch.randn(2, 6, 6)
    y, x_ = torch.arange(6) // 3, torch.arange(6) % 3
    bias = module.bias_h[:, y - y[:, None] + 1] + module.bias_w[:, x_ - x_[:, None] + 2]
    q, k, v = (split(part) for part in module.qkv(x).chunk(3, -1))
    want = softmax(q @ k.mT / (DIM / HEADS)**0.5 + bias + mask.repeat(4, 1, 1)[:, None], v)[0]
    agree(module(x, mask), module.proj(join(want)), [x, *module.parameters()])


# ---------------------------------------------------------------------------------------------- every module

def selfish(module, x):
    return module(x, x, x)[0]


MODULES = {
    "RelativePositionBiasAttention": (lambda: rt.RelativePositionBiasAttention(8, learned=True),
                                      lambda m, x: m(x, x, x, need_weights=False)[1]),
    "RelativeSelfAttention": (lambda: rt.RelativeSelfAttention(8, 4, 4), lambda m, x: m(x, need_weights=False)[0]),
    "T5Attention": (lambda: rt.T5Attention(8, 2), lambda m, x: m(x)[0]),
    "AdditiveRelMultiheadAttention": (lambda: rt.AdditiveRelMultiheadAttention(8, 2, max_distance=5), selfish),
    "AdditivePosMultiheadAttention": (lambda: rt.AdditivePosMultiheadAttention(8, 2, max_len=512), selfish),
    "ClippedBiasMultiheadAttention": (lambda: rt.ClippedBiasMultiheadAttention(8, 2, max_distance=5), selfish),
    "ShawMultiheadAttention": (lambda: rt.ShawMultiheadAttention(8, 2, max_distance=5), selfish),
    "RoPEMultiheadAttention": (lambda: rt.RoPEMultiheadAttention(8, 2), selfish),
    "ALiBiMultiheadAttention": (lambda: rt.ALiBiMultiheadAttention(8, 2), selfish),
    "WindowAttention": (lambda: rt.WindowAttention(8, 2, window_size=4), lambda m, x: m(x)),
    "FactorisedWindowAttention": (lambda: rt.FactorisedWindowAttention(8, 2, window_size=4), lambda m, x: m(x)),
}


@pytest.mark.parametrize("name", MODULES)
def test_every_module(name):
    make, call = MODULES[name]
    module, x = shake(make()), torch.randn(2, 16, 8)
    want = call(module, x)
    others = [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), make()]
    others[2].load_state_dict(module.state_dict())
    for other in others:
        assert torch.equal(call(other, x), want)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(call, fullgraph=True, backend="aot_eager")(module, x), want)
    # a training step lowers the loss
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (call(module, x) - 1).pow(2).mean()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]
    module.float()
    want = call(module, x.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = call(module, x.float())
    torch.testing.assert_close(got.float(), want, atol=0.1, rtol=0.1)
    got.float().sum().backward()
    narrow = module.to(torch.bfloat16)
    assert call(narrow, x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("name", MODULES)
def test_derivatives_of_every_module(name):
    """Gradients of each sample, forward mode and a Hessian-vector product agree with gradients of a whole call."""
    make, call = MODULES[name]
    module, x = shake(make()), torch.randn(3, 16, 8)
    p = {n: a.detach() for n, a in module.named_parameters()}
    t = {n: torch.randn_like(a) for n, a in p.items()}
    f = lambda p, x: torch.func.functional_call(Calls(module, call), {f"module.{n}": a for n, a in p.items()}, (x,)
                                                ).pow(2).sum()
    dot = lambda a, b: sum((a[n] * b[n]).sum() for n in a)
    each = torch.vmap(torch.func.grad(f), (None, 0))(p, x[:, None])
    for b in range(3):
        for n, a in torch.func.grad(f)(p, x[b:b + 1]).items():
            torch.testing.assert_close(each[n][b], a)
    gradient = torch.func.grad(f)
    torch.testing.assert_close(torch.func.jvp(lambda p: f(p, x), (p,), (t,))[1], dot(gradient(p, x), t))
    product = torch.func.jvp(lambda p: gradient(p, x), (p,), (t,))[1]
    other = torch.func.grad(lambda p: dot(gradient(p, x), t))(p)
    for n, a in product.items():
        torch.testing.assert_close(a, other[n])


class Calls(nn.Module):
    def __init__(self, module, call):
        super().__init__()
        self.module, self.call = module, call

    def forward(self, x):
        return self.call(self.module, x)


@pytest.mark.parametrize("name", MODULES)
def test_nothing_grows_with_the_square(name):
    make, call = MODULES[name]
    sizes, n = [], 512

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            sizes.extend(x.numel() for x in torch.utils._pytree.tree_leaves(found) if isinstance(x, torch.Tensor))
            return found

    module, x = make(), torch.randn(1, n, 8, requires_grad=True)
    if hasattr(module, "window_size"):
        module = type(module)(8, 2, window_size=(16, 32))
    with Watch():
        call(module, x).sum().backward()
    assert max(sizes) <= 3 * n * 8


def test_the_recipe_for_a_loss_on_weights():
    """The code in docs/python-reference.md has the gradients of the same loss in torch operations."""
    page = (Path(__file__).parents[2] / "docs/python-reference.md").read_text()
    code, names = re.search(r"### A loss on the weights\n.*?```python\n(.*?)```", page, re.S)[1], {}
    exec(code, names)
    q, k, v, bias = (names[x] for x in ("q", "k", "v", "bias"))
    table = bias.relative_attention_bias.weight
    out, weights = softmax(q @ k.mT / 16**0.5 + bias(10, 10), v)
    loss = out.square().mean() + 0.01 * torch.special.entr(weights).sum(-1).mean() + weights.diagonal(0, -2, -1).mean()
    torch.testing.assert_close(table.grad, torch.autograd.grad(loss, table)[0], atol=1e-11, rtol=1e-11)


def test_positions_of_a_compiled_layer():
    seen, p, x = torch.arange(6) % 3 > 0, torch.arange(6.0), draw(2, 6, 8)
    p[3] = math.inf
    for module, given in ((rt.ClippedBiasMultiheadAttention(8, 2, max_distance=3),
                           {"q_positions": p, "q_position_mask": seen}),
                          (rt.ShawMultiheadAttention(8, 2, max_distance=3), {"q_positions": p}),
                          (rt.ShawMultiheadAttention(8, 2, max_distance=3),
                           {"q_positions": p, "k_position_mask": seen}),
                          (rt.ALiBiMultiheadAttention(8, 2), {"k_positions": p, "q_position_mask": seen}),
                          (rt.AdditivePosMultiheadAttention(8, 2, max_len=9), {"k_positions": torch.arange(6.0)}),
                          (rt.RoPEMultiheadAttention(8, 2), {"k_position_mask": seen})):
        torch._dynamo.reset()
        compiled = torch.compile(shake(module), fullgraph=True, backend="aot_eager")
        agree(compiled(x, x, x, **given)[0], module(x, x, x, **given)[0], [x])


def test_a_bias_out_of_a_compiled_layer():
    torch._dynamo.reset()
    first, second = rt.T5Attention(8, 2), rt.T5Attention(8, 2, has_relative_bias=False)
    x = torch.randn(2, 6, 8)
    position_bias = torch.compile(first, fullgraph=True, backend="aot_eager")(x)[1]
    assert isinstance(position_bias, relpos.T5) and repr(position_bias) == repr(first(x)[1])
    assert position_bias.shape == (1, 2, 6, 6) and torch.equal(position_bias[0], first.relative_bias(6, 6)[0])
    assert position_bias.learned["table"] is not None and (position_bias.matrix(4) == first(x)[1].matrix(4)).all()
    assert torch.equal(second(x, position_bias=position_bias)[0], second(x, position_bias=first(x)[1])[0])


def test_terms_out_of_a_compiled_function():
    torch._dynamo.reset()

    def terms(x):
        both = relpos.ALiBi() + relpos.T5(x)
        return relpos.ALiBi(), both, sum([relpos.LogDecay(), relpos.T5(x)]), relpos.Linear() + both

    table = torch.randn(32, 2)
    for got, want in zip(torch.compile(terms, fullgraph=True, backend="aot_eager")(table), terms(table)):
        assert type(got) is type(want) and repr(got) == repr(want)


def test_documentation():
    torch.set_default_dtype(torch.float32)
    for part in (rt, rt._functional, rt._multihead, rt._t5, rt._textbook, rt._window):
        assert doctest.testmod(part).failed == 0
    for name in rt.__all__:
        assert getattr(rt, name).__doc__, name
    parts = {"RelativePositionEmbedding", "RelativePositionalBias", "RotaryEmbedding"}  # parts of modules
    assert {name for name in rt.__all__ if isinstance(getattr(rt, name), type)} - parts == set(MODULES)


@pytest.mark.parametrize("options", [{}, dict(is_causal=True), dict(attn_mask="bool"), dict(attn_mask="numbers"),
                                     dict(scale=0.3),
                                     dict(enable_gqa=True), dict(is_causal=True, one=True)],
                         ids=lambda x: "-".join(x) or "plain")
def test_scaled_dot_product_attention_of_torch(options):
    g = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, heads, n, 8, generator=g, requires_grad=True)
               for heads, n in ((4, 5), *((2 if "enable_gqa" in options else 4, 7),) * 2))
    if "attn_mask" in options:
        numbers = torch.randn(4, 5, 7, generator=g)
        options = {"attn_mask": numbers > -0.5 if options["attn_mask"] == "bool" else numbers}
    if "one" in options:
        q, options = q[:, :, :1], dict(is_causal=True)
    results = []
    for f in (relpos.torch.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention):
        out = f(q, k, v, **options)
        results.append((out, *torch.autograd.grad(out.sin().sum(), (q, k, v))))
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, atol=5e-6, rtol=0)


def test_is_causal_of_the_modules_is_by_index():
    """Query 0 is aligned with key 0 for any number of queries, including one."""
    x, module = draw(B, 7, DIM), shake(rt.ALiBiMultiheadAttention(DIM, HEADS))
    whole = module(x, x, x, is_causal=True)[0]
    for n in (1, 3):
        torch.testing.assert_close(module(x[:, :n], x, x, is_causal=True)[0], whole[:, :n])


def test_what_torchs_attention_has_and_this():
    q, k = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 7, 8)
    call = relpos.torch.scaled_dot_product_attention
    with pytest.raises(ValueError, match="key has 2 heads and query has 4; pass enable_gqa=True"):
        call(q, k, k)
    torch.manual_seed(1)
    first = call(q, q, q, dropout_p=0.5)
    assert not torch.equal(first, call(q, q, q, dropout_p=0.5))
    torch.manual_seed(1)
    assert torch.equal(first, call(q, q, q, dropout_p=0.5))
    want = relpos.attention(q, q, q, bias=relpos.ALiBi() + relpos.Dense(torch.eye(5)), causal=True)
    assert torch.equal(call(q, q, q, torch.eye(5), 0.0, True, bias=relpos.ALiBi()), want)


def test_dir_lists_public_names():
    assert dir(relpos.torch) == sorted(relpos.torch.__all__)


def test_an_embedding_as_a_bias():
    q = torch.zeros(1, 4, 3, 8)
    with pytest.raises(TypeError, match=r"^bias is of type Embedding, expected a term; use relpos.T5\(x.weight\)"):
        relpos.attention(q, q, q, bias=nn.Embedding(32, 4))


CLASSES = {name: cls for name in rt.__all__ if inspect.isclass(cls := getattr(rt, name))}
SIZES = {"d_k", "d_v", "dim", "embed_dim", "head_dim", "max_distance", "max_len", "max_seq_len", "num_buckets",
         "num_heads"}
RATES = {"dropout", "attn_drop", "proj_drop"}
NOT_NUMBERS = {"self", "parameters", "options", "device", "dtype", "bias", "add_bias_kv", "add_zero_attn", "kdim",
               "vdim", "batch_first", "learned", "has_relative_bias", "bidirectional", "shared", "layout", "qkv_bias",
               "seed", "window_size", "bias_scale", "scale", "rope_base", "base"}
GOOD = {"d_k": 4, "d_v": 4, "dim": 16, "embed_dim": 16, "num_heads": 4, "max_distance": 128, "max_len": 8}


@pytest.mark.parametrize("name", CLASSES)
def test_numbers_that_make_no_module(name):
    """Each size and rate of each module is refused by its own name. A parameter that this test doesn't know fails."""
    parameters = inspect.signature(CLASSES[name]).parameters
    needed = {p: GOOD[p] for p, x in parameters.items() if x.default is x.empty and p in GOOD}
    CLASSES[name](**needed)
    for p in parameters:
        bad = (0.5, "4", True, -1, None) if p in SIZES else (-0.1, 1.5, float("nan"), "a") if p in RATES else ()
        assert bad or p in NOT_NUMBERS, p
        for x in bad:
            if x is not None or parameters[p].default is not None:
                with pytest.raises((TypeError, ValueError), match=p):
                    CLASSES[name](**needed | {p: x})
    for p in SIZES & set(parameters) - {"max_distance"}:
        with pytest.raises(ValueError, match=f"{p} is 0, expected an integer, "):
            CLASSES[name](**needed | {p: 0})


@pytest.mark.parametrize("numbers, text", [((3, 128), "buckets is 3"), ((32, 8), "above 8"),
                                           ((1024, 128), "max_distance is 128; it must be above 256")])
def test_buckets_that_have_no_meaning_make_no_module(numbers, text):
    for make in (lambda: rt.RelativePositionalBias(2, *numbers), lambda: rt.T5Attention(8, 2, *numbers)):
        with pytest.raises(ValueError, match=text):
            make()
