"""What docs/migrate.md promises of each parameter of the functions and layers that relpos replaces. The parameters come
from the peers' own signatures, so a parameter that a release adds fails here until the list of the page and CHECKS know
it.

SPDX-License-Identifier: Apache-2.0"""
import inspect
import re
from pathlib import Path

import pytest
import relpos

torch = pytest.importorskip("torch")
import relpos.torch as rt  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.attention import flex_attention as flex  # noqa: E402

E, H, L = 16, 4, 6
g = torch.Generator().manual_seed(0)
x, y = torch.randn(2, L, E, generator=g), torch.randn(2, L + 3, E, generator=g)
q, k = torch.randn(1, H, L, 8, generator=g), torch.randn(1, H, L + 3, 8, generator=g)
LAYERS = {
    "ALiBi": lambda *a, **o: rt.ALiBiMultiheadAttention(*a, **o),
    "RoPE": lambda *a, **o: rt.RoPEMultiheadAttention(*a, **o),
    "clipped": lambda *a, **o: rt.ClippedBiasMultiheadAttention(*a, max_distance=3, **o),
    "Shaw": lambda *a, **o: rt.ShawMultiheadAttention(*a, max_distance=3, **o),
    "rel": lambda *a, **o: rt.AdditiveRelMultiheadAttention(*a, max_distance=3, **o),
    "pos": lambda *a, **o: rt.AdditivePosMultiheadAttention(*a, max_len=L + 3, **o),
}
PLAIN = {"clipped", "rel", "pos"}  # with their initial parameters, these equal torch's layer


def same(a, b):
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def refused(call, text, error=ValueError):
    with pytest.raises(error, match=text):
        call()


def pair(name, **options):
    """Return torch's layer, and ours with its weights."""
    torch.manual_seed(3)
    there, here = nn.MultiheadAttention(E, H, batch_first=True, **options), LAYERS[name](E, H, **options)
    here.load_state_dict(there.state_dict())
    return there, here


def both(name, *inputs, make=None, **options):
    """Compare the layers if ours has no effect of positions; otherwise only call ours."""
    there, here = pair(name, **(make or {}))
    found = here(*inputs, **options)
    if name in PLAIN:
        for a, b in zip(found, there(*inputs, **{"need_weights": False, **options})):
            assert (a is None) == (b is None)
            if a is not None:
                same(a, b)
    return found


PAD = torch.arange(L + 3).expand(2, -1) > torch.tensor([[7], [5]])
BLOCKED = torch.ones(L, L + 3, dtype=torch.bool).triu(2)


def dropout(name):
    torch.manual_seed(0)
    here = LAYERS[name](E, H, 0.5)
    assert not torch.equal(here(x, x, x)[0],
                           here(x, x, x)[0]) and torch.equal(here.eval()(x, x, x)[0],
                                                             here(x, x, x)[0])


def batch_first(name):
    here = LAYERS[name](E, H)
    other = LAYERS[name](E, H, batch_first=False)
    other.load_state_dict(here.state_dict())
    assert here.batch_first and not other.batch_first
    out, weights = here(x, y, y, PAD, True)
    turned, same_weights = other(*(a.transpose(0, 1) for a in (x, y, y)), PAD, True)
    same(turned.transpose(0, 1), out)
    same(weights, same_weights)
    one, own = here(x[1], y[1], y[1], PAD[1], True)
    same(one, out[1])
    same(own, weights[1])
    same(other(x[1], y[1], y[1], PAD[1])[0], one)
    refused(lambda: LAYERS[name](E, H, batch_first=1), "batch_first is 1, expected True or False", TypeError)
    refused(lambda: here(x[0], y, y), r"key has shape \(2, 9, 16\)")
    refused(lambda: here(x[None], x[None], x[None]), r"query has shape \(1, 2, 6, 16\)")


def device_and_dtype(name):
    here = LAYERS[name](E, H, 0.0, True, False, False, None, None, True, "meta", torch.float64)
    assert all(p.is_meta and p.dtype == torch.float64 for p in here.parameters())


def key_masks(name):
    for pad in (PAD, torch.zeros(PAD.shape).masked_fill(PAD, -torch.inf)):
        both(name, x, y, y, pad)


def attention_masks(name):
    for mask in (BLOCKED, torch.zeros(BLOCKED.shape).masked_fill(BLOCKED, -torch.inf), BLOCKED.expand(2 * H, -1, -1)):
        both(name, x, y, y, attn_mask=mask)


def causal(name):
    mask = nn.Transformer.generate_square_subsequent_mask(L)
    there = both(name, x, x, x, attn_mask=mask, is_causal=True)[0]
    here = pair(name)[1]
    same(here(x, x, x, is_causal=True)[0], there)


def weights(name):
    assert LAYERS[name](E, H)(x, x, x)[1] is None and both(name, x, y, y, need_weights=True)[1].shape == (2, L, L + 3)


def refusals(key, good, bad):
    def check(name):
        LAYERS[name](E, H, **{key: good})
        refused(lambda: LAYERS[name](E, H, **{key: bad}),
                rf"{key} is {bad}, expected {good if key.startswith('add') else 'None or embed_dim'}")
    return check


def every(check):
    return lambda: [check(name) for name in LAYERS]


def sdpa(*args, **options):
    same(rt.scaled_dot_product_attention(*args, **options), F.scaled_dot_product_attention(*args, **options))


def drops():
    assert not torch.equal(rt.scaled_dot_product_attention(q, k, k, dropout_p=0.5),
                           rt.scaled_dot_product_attention(q, k, k, dropout_p=0.5))


def in_flex(options, **here):
    same(relpos.attention(q, k, k, **here), flex.flex_attention(q, k, k, **options))


def timm_layer():
    return pytest.importorskip("timm.models.swin_transformer").WindowAttention


def window(options, *inputs, drop=False):
    torch.manual_seed(0)
    there, here = timm_layer()(E, H, window_size=(2, 3),
                               **options), rt.WindowAttention(E, H, window_size=(2, 3), **options)
    here.load_state_dict(there.state_dict())
    if drop:
        assert not torch.equal(here(x), here(x))
        there, here = there.eval(), here.eval()
    same(here(x, *inputs), there(x, *inputs))


def same_position(n):
    """A parameter has the same position there and here."""
    names = [list(inspect.signature(layer).parameters) for layer in (timm_layer(), rt.WindowAttention)]
    assert names[0][n] == names[1][n]


def t5():
    return pytest.importorskip("transformers.models.t5.modeling_t5")


def t5_layers(bias=True):
    config = t5().T5Config(d_model=E, d_kv=4, num_heads=H, dropout_rate=0.0, attn_implementation="eager")
    torch.manual_seed(0)
    there, here = t5().T5Attention(config, bias), rt.T5Attention(E, H, has_relative_bias=bias, scale=1)
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
    here.load_state_dict(
        {f"{names[n[0]]}{n[1:]}" if n[1] == "." else f"relative_bias.{n}": w
         for n, w in there.state_dict().items()})
    return there, here


def t5_call(bias=True, there_options=None, **here_options):
    there, here = t5_layers(bias)
    same(here(x, **here_options)[0], there(x, **(there_options or here_options))[0])


def t5_cache():
    here = t5_layers()[1]
    q, k, v = (f(x).unflatten(-1, (H, -1)).transpose(1, 2) for f in (here.q_proj, here.k_proj, here.v_proj))
    cache = relpos.Cache()
    with torch.no_grad():
        cache.append(k, v)
        plan = relpos.Plan(2, H, 1, L, 4, bias=here.relative_bias.term(), scale=1)
        same(plan(q[:, :, -1:], cache, q_offset=L - 1),
             relpos.attention(q, k, v, bias=here.relative_bias.term(), scale=1)[:, :, -1:])


def t5_shares_its_bias():
    there, here = t5_layers()
    later = t5_layers(False)
    _, bias = here(x)
    same(later[1](x, position_bias=bias)[0], later[0](x, position_bias=there(x)[1])[0])


T5_MASK = torch.zeros(2, 1, L, L).masked_fill(PAD[:, None, None, :L], -1e9)
MULTIHEAD, FORWARD = "MultiheadAttention", "MultiheadAttention.forward"
SDPA, FLEX = "scaled_dot_product_attention", "flex_attention"
TIMM, T5 = "timm's WindowAttention", "transformers' T5Attention"
CHECKS = {
    MULTIHEAD: {
        "embed_dim": every(lambda name: both(name, x, x, x)),
        "num_heads": every(lambda name: refused(lambda: LAYERS[name](9, 2), "embed_dim is 9, expected a multiple")),
        "dropout": every(dropout), "bias": every(lambda name: both(name, x, x, x, make={"bias": False})),
        "device": every(device_and_dtype), "dtype": every(device_and_dtype), "batch_first": every(batch_first),
        "add_bias_kv": every(refusals("add_bias_kv", False,
                                      True)), "add_zero_attn": every(refusals("add_zero_attn", False, True)),
        "kdim": every(refusals("kdim", E, 8)), "vdim": every(refusals("vdim", E, 8))
    }, FORWARD: {
        "query": every(lambda name: both(name, x, y, y)), "key": every(lambda name: both(name, x, y, y + 1)),
        "value": every(lambda name: both(name, y, x, x)), "key_padding_mask": every(key_masks),
        "attn_mask": every(attention_masks), "need_weights": every(weights), "is_causal": every(causal),
        "average_attn_weights": every(lambda name: both(name, x, y, y, need_weights=True, average_attn_weights=False))
    }, SDPA: {
        "query": lambda: sdpa(q, k, k), "key": lambda: sdpa(q, k + 1, k), "value": lambda: sdpa(q, k, k + 1),
        "attn_mask": lambda: (sdpa(q, k, k, ~BLOCKED), sdpa(q, k, k, BLOCKED.float())), "dropout_p": drops,
        "is_causal": lambda: sdpa(q, k, k, None, 0.0, True), "scale": lambda: sdpa(q, k, k, scale=0.3),
        "enable_gqa": lambda: sdpa(q, k[:, :2], k[:, :2], enable_gqa=True)
    }, FLEX: {
        "query": lambda: in_flex({}), "key": lambda: in_flex({}), "value": lambda: in_flex({}),
        "scale": lambda: in_flex({"scale": 0.3}, scale=0.3), "return_lse": lambda: same(
            relpos.attention(q, k, k, return_lse=True).lse,
            flex.flex_attention(q, k, k, return_lse=True)[1]),
        "score_mod": lambda: in_flex({"score_mod": lambda s, b, h, i, j: 5 * torch.tanh(
            (s + i - j) / 5)}, softcap=5, softcap_after=True, bias=relpos.Linear(left=-1, right=1)),
        "block_mask": lambda: in_flex(
            {"block_mask": flex.create_block_mask(lambda b, h, i, j: i >= j, 1, H, L, L + 3, "cpu")}, causal=True,
            q_offset=0), "enable_gqa": lambda: same(relpos.attention(q, k[:, :2], k[:, :2]),
                                                    flex.flex_attention(q, k[:, :2], k[:, :2], enable_gqa=True)),
        "kernel_options": lambda: refused(lambda: relpos.attention(q, k, k, kernel_options={}), "kernel_options",
                                          TypeError), "return_aux": lambda: same(
                                              relpos.attention(q, k, k, return_lse=True).lse,
                                              flex.flex_attention(q, k, k, return_aux=flex.AuxRequest(lse=True))[1].lse)
    }, TIMM: {
        "dim": lambda: same_position(0), "num_heads": lambda: same_position(1),
        "head_dim": lambda: window({"head_dim": 8}), "window_size": lambda: window({}),
        "qkv_bias": lambda: window({"qkv_bias": False}), "attn_drop": lambda: window({"attn_drop": 0.5}, drop=True),
        "proj_drop": lambda: window({"proj_drop": 0.5}, drop=True),
        "device": lambda: rt.WindowAttention(E, H, device="meta").proj.weight.is_meta or 1 / 0,
        "dtype": lambda: window({"dtype": torch.float32})
    }, f"{TIMM}.forward": {"x": lambda: window({}), "mask": lambda: window({}, torch.randn(2, L, L, generator=g))},
    T5: {
        "config": lambda: t5_call(), "has_relative_attention_bias": lambda: t5_call(False),
        "layer_idx": lambda: t5_call(), "is_causal": lambda: t5_call()
    }, f"{T5}.forward": {
        "hidden_states": lambda: t5_call(), "mask": lambda: t5_call(mask=T5_MASK),
        "key_value_states": lambda: t5_call(False, key_value_states=y), "position_bias": t5_shares_its_bias,
        "cache": t5_cache, "kwargs": lambda: t5_call(there_options={"mask": T5_MASK}, key_mask=~PAD[:, :L])
    },
}
SIGNATURES = {
    MULTIHEAD: lambda: inspect.signature(nn.MultiheadAttention).parameters,
    FORWARD: lambda: inspect.signature(nn.MultiheadAttention.forward).parameters, SDPA: lambda:
    {a.name: a
     for a in torch._C._jit_get_schemas_for_operator("aten::scaled_dot_product_attention")[0].arguments},
    FLEX: lambda: inspect.signature(flex.flex_attention).parameters,
    TIMM: lambda: inspect.signature(timm_layer()).parameters,
    f"{TIMM}.forward": lambda: inspect.signature(timm_layer().forward).parameters,
    T5: lambda: inspect.signature(t5().T5Attention).parameters,
    f"{T5}.forward": lambda: inspect.signature(t5().T5Attention.forward).parameters,
}


def promised():
    """Return {peer: names} of the list at the end of docs/migrate.md. Names of relpos are in parentheses."""
    page = (Path(__file__).parents[2] /
            "docs/migrate.md").read_text(encoding="utf-8").partition("(relpos-parameters)=")[2].partition("```")[0]
    found = re.findall(r"^- ([^:]+): (.*?)(?=^- |\Z)", page, re.M | re.S)
    return {peer: re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", text)) for peer, text in found}


@pytest.mark.parametrize("peer", SIGNATURES)
def test_every_parameter_of_a_peer_is_known(peer):
    names = [name for name in SIGNATURES[peer]() if name != "self"]
    assert sorted(CHECKS[peer]) == sorted(names) == sorted(promised()[peer])


def test_every_peer_is_known():
    assert set(CHECKS) == set(SIGNATURES) == set(promised())


@pytest.mark.filterwarnings("ignore:causal=True", "ignore:.*enable_nested_tensor", "ignore:Support for mismatched")
@pytest.mark.parametrize("peer, name", [(peer, name) for peer in CHECKS for name in CHECKS[peer]])
def test_a_parameter(peer, name):
    CHECKS[peer][name]()


@pytest.mark.parametrize("layer", LAYERS)
def test_positional_arguments(layer):
    """Every parameter of torch's layer has the same position here, and forward's too."""
    here = LAYERS[layer](E, H, 0.25, False, False, False, E, E, False, "cpu", torch.float64)
    found = here.attn if hasattr(here, "attn") else here
    assert (found.dropout, here.batch_first, here.out_proj.bias, here.out_proj.weight.dtype) == (0.25, False, None,
                                                                                                 torch.float64)
    there = inspect.signature(nn.MultiheadAttention.forward).parameters
    assert list(inspect.signature(type(here).forward).parameters)[:len(there)] == list(there)
    if layer == "RoPE":
        refused(lambda: rt.RoPEMultiheadAttention(E, H, 0.0, True, 500.0),
                "the fifth argument is 500.0.*pass rope_base by name", TypeError)


@pytest.mark.parametrize("layer", LAYERS)
def test_state_dicts(layer):
    for bias in (True, False):
        there, here = nn.ModuleDict({"a": nn.MultiheadAttention(E, H, bias=bias)
                                     }), nn.ModuleDict({"a": LAYERS[layer](E, H, bias=bias)})
        for p in here.parameters():
            nn.init.normal_(p)
        before, given = {n: p.clone() for n, p in here.named_parameters()}, there.state_dict()
        here.load_state_dict(given)
        assert given.keys() == there.state_dict().keys()
        packed = here.a.attn.in_proj_weight if hasattr(here.a, "attn") else torch.cat(
            [here.a.q_proj.weight, here.a.k_proj.weight, here.a.v_proj.weight])
        assert torch.equal(packed, there.a.in_proj_weight) and torch.equal(here.a.out_proj.weight,
                                                                           there.a.out_proj.weight)
        for name, p in here.named_parameters():
            if not re.search("proj|attn", name):
                assert torch.equal(p, before[name])
        own = here.state_dict()
        here.load_state_dict(own)
        with pytest.raises(RuntimeError, match="bias_k"):
            here.load_state_dict(
                nn.ModuleDict({"a": nn.MultiheadAttention(E, H, bias=bias, add_bias_kv=True)}).state_dict())


@pytest.mark.filterwarnings("ignore:.*enable_nested_tensor")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("layer", LAYERS)
def test_inside_the_transformer_of_torch(layer, first):
    """The same result in training and evaluation, with and without gradients, before and after the stack is built,
    equal to a layer whose fast path is off."""
    make = lambda: LAYERS[layer](E, H, batch_first=first)
    options = dict(d_model=E, nhead=H, dim_feedforward=8, dropout=0.0, batch_first=first)
    one, late = nn.TransformerEncoderLayer(**options), nn.TransformerEncoder(nn.TransformerEncoderLayer(**options), 2)
    one.self_attn = make()
    for part in late.layers:
        part.self_attn = make()
    early, mask = nn.TransformerEncoder(one, 2), nn.Transformer.generate_square_subsequent_mask(L)
    given = x if first else x.transpose(0, 1)
    for module in (one, early, late):
        for args, more in (((given, ), {}), ((given, ), {"src_key_padding_mask": PAD[:, :L]
                                                         }), ((given, mask), {}), ((given, mask), {"is_causal": True}),
                           ((x[0], ), {}), ((given, mask), {"src_key_padding_mask": PAD[:, :L]})):
            want = module.train()(*args, **more)
            same(module.eval()(*args, **more), want)
            with torch.no_grad():
                same(module(*args, **more), want)
    x_moved = one(given.roll(1, 1 if first else 0))
    assert layer == "clipped" or layer in PLAIN or not torch.allclose(x_moved.roll(-1, 1 if first else 0), one(given))
    decoder = nn.TransformerDecoderLayer(**options)
    plain = nn.TransformerDecoderLayer(**options)
    decoder.self_attn, decoder.multihead_attn = make(), make()
    decoder.load_state_dict(plain.state_dict())
    memory = y if first else y.transpose(0, 1)
    for mode in (True, False):
        out = decoder.train(mode)(given, memory, tgt_mask=mask, tgt_is_causal=True, memory_key_padding_mask=PAD)
        if layer in PLAIN:
            same(out, plain.train(mode)(given, memory, tgt_mask=mask, tgt_is_causal=True, memory_key_padding_mask=PAD))
    torch._dynamo.reset()
    compiled = torch.compile(one.eval(), backend="aot_eager")
    same(compiled(given, src_key_padding_mask=PAD[:, :L]), one(given, src_key_padding_mask=PAD[:, :L]))


def test_what_has_no_meaning_here_says_so():
    here = rt.ALiBiMultiheadAttention(E, H)
    refused(lambda: nn.init.xavier_uniform_(here.in_proj_weight),
            "in_proj_weight: the layers of relpos.torch keep it in q_proj", AttributeError)
    nested = torch.nested.nested_tensor([x[0], x[1, :3]])
    refused(lambda: here(nested, nested, nested), "query is a nested tensor; pass a padded tensor and key_padding_mask",
            TypeError)
    p = torch.arange(6.0).requires_grad_()
    for name in LAYERS:
        for side in ("q_positions", "k_positions"):
            refused(lambda: LAYERS[name](E, H)(x, x, x, **{side: p}), f"{side} requires a gradient", TypeError)


# ---- tensors without elements

EMPTY = [(0, 2, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0), (0, 2, 0, 0), (1, 2, 0, 0), (0, 2, 3, 0)]


@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize("batch, heads, lq, lk", EMPTY)
def test_gradients_of_tensors_without_elements(batch, heads, lq, lk, way):
    """They have the shapes of SDPA's, and are zero."""
    calls = {
        "plain": lambda q, k, v, t: relpos.attention(q, k, v),
        "term": lambda q, k, v, t: relpos.attention(q, k, v, bias=relpos.T5(t)),
        "masked": lambda q, k, v, t: relpos.attention(q, k, v, bias=relpos.T5(t), rope=relpos.RoPE(dim=4), window=(
            2, 2), q_offset=0, sink=relpos.Sink(t[0]))
    }
    for name, call in calls.items():
        torch._dynamo.reset()
        found = []
        for f in (torch.compile(call, backend="aot_eager") if way == "compiled" else call,
                  lambda q, k, v, t: F.scaled_dot_product_attention(q, k, v)):
            inputs = [torch.ones(batch, heads, n, d, requires_grad=True) for n, d in ((lq, 5), (lk, 5), (lk, 6))]
            table = torch.ones(32, heads, requires_grad=True)
            out = f(*inputs, table)
            out.sum().backward()
            found.append([out.shape, *(a.grad.shape for a in inputs)])
            assert not any(a.grad.any() for a in inputs) and (table.grad is None or not table.grad.any())
        assert found[0] == found[1], name


@pytest.mark.parametrize("shape, text", [((1, 0, 3, 4), "q has an axis of length 0"),
                                         ((1, 2, 3, 0), "v has an axis of length 0")])
def test_no_heads_and_no_channels_are_refused(shape, text):
    refused(lambda: relpos.attention(*[torch.ones(shape)] * 3), f"{text}, expected at least one head and one channel")
