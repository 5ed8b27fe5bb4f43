"""Test relpos.attention as a torch operator: traced calls, and torch's own checks of operators.

SPDX-License-Identifier: Apache-2.0"""
import copy
import io

import numpy as np
import pytest
import relpos

torch = pytest.importorskip("torch")
import torch._dynamo.testing  # noqa: E402
import relpos.torch  # noqa: E402

KEYS = torch.tensor([[1, 1, 0, 1, 1]])
ROPE = relpos.RoPE(dim=2)  # created outside the compiled function


def inputs(dtype=torch.float64):
    g = torch.Generator().manual_seed(1)
    shapes = [(1, 2, 4, 4), (1, 2, 5, 4), (1, 2, 5, 3), (8, 2), (3, 4), (3, 3), (2,)]
    return [torch.randn(s, generator=g, dtype=dtype).requires_grad_() for s in shapes]


def call(q, k, v, t5, rk, rv, sink, q_offset=1, seed=3, **more):
    return relpos.attention(
        q, k, v, bias=relpos.T5(t5, buckets=8) + relpos.LogDecay(0.5) + relpos.ALiBi(np.array([0.5, 1])), rope=ROPE,
        relkey=relpos.RelKey(rk, left=1, right=1), relval=relpos.RelValue(rv, left=1, right=1), sink=relpos.Sink(sink),
        window=(3, None), key_mask=KEYS, scale=0.7, softcap=3.0, dropout=0.2, q_offset=q_offset, seed=seed, **more)


TEXT = ("bias|t5,buckets=8|3,-,-,-,-,-,-,-\nrelkey|relkey,left=1,right=1|0,-,-,-,-,-,-,-\nkey_mask||1\ncausal|True|\n"
        "scale|0.5|")


def operands():
    q, k, v, t5, rk, *_ = inputs()
    return q, k, v, [rk, KEYS, torch.ones(1), t5], TEXT, 1, 0


def test_opcheck():
    args = operands()
    every = (*args[:4], TEXT + "\nsummary|True|\nreturn_weights|True|", 1, 0)
    for given in (args, every):
        numbers = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, given)
        torch.library.opcheck(torch.ops.relpos.attention.default, numbers)
        torch.library.opcheck(torch.ops.relpos.attention.default, given)
    q, k, v, arrays, *rest = numbers[:4] + args[4:]
    out, lse = torch.ops.relpos.attention(q, k, v, arrays, *rest)
    for text, others in ((TEXT, []), (every[4], [None, None, None, lse])):
        torch.library.opcheck(torch.ops.relpos.attention_backward.default,
                              (out, q, k, v, lse, out, lse, arrays, text, 1, 0,
                               [True, False, True, True, False, False, True], others, others == []))


def test_gradcheck_of_the_operator():
    *qkv, (rk, keys, other, t5), text, q_offset, seed = operands()
    call = lambda q, k, v, rk, t5: torch.ops.relpos.attention(q, k, v, [rk, keys, other, t5], text, q_offset, seed)[0]
    assert torch.autograd.gradcheck(call, (*qkv, rk, t5))


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_compile(dtype):
    args, count = inputs(dtype), torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    traced = torch.compile(call, fullgraph=True, backend=count)
    for q_offset, seed in [(1, 3), (2, 4), (3, 5), (4, 6)]:
        got, want = traced(*args, q_offset, seed), call(*args, q_offset, seed)
        assert torch.equal(got, want)
        dout = torch.randn_like(want)
        for a, b in zip(torch.autograd.grad(got, args, dout), torch.autograd.grad(want, args, dout)):
            assert torch.equal(a, b)
    assert count.frame_count <= 3  # q_offset and seed cause no recompilation


def test_compile_with_all_results():
    args = inputs()
    got, want = (f(*args, return_weights=True, return_lse=True, summary=True) for f in (compiled(call), call))
    for a, b in zip((*got[:3], *got.summary), (*want[:3], *want.summary)):
        assert torch.equal(a, b) and a.requires_grad == b.requires_grad
    with pytest.raises(Exception, match="out is not supported while torch traces|Observed exception"):
        compiled(lambda q, k, v: relpos.attention(q, k, v, out=torch.empty(1, 2, 4, 3)))(*args[:3])


def test_compile_with_a_term_from_outside():
    q, k, v, t5, *_ = inputs()
    term = relpos.T5(t5, buckets=8)
    plain = lambda q, k, v: relpos.attention(q, k, v, bias=term + relpos.ALiBi())
    got, = torch.autograd.grad(compiled(plain)(q, k, v).sin().sum(), t5)
    want, = torch.autograd.grad(plain(q, k, v).sin().sum(), t5)
    assert torch.equal(got, want)


@torch.compiler.assume_constant_result
def threads():
    return torch.get_num_threads()


LONG = [torch.randn(1, 2, length, 8, generator=torch.Generator().manual_seed(length)) for length in (7, 9, 11)]
WIDE = [torch.randn(1, 2, 7, dim, generator=torch.Generator().manual_seed(dim)) for dim in (8, 12, 16)]
VALUES = {  # name: (options as a function of q and a number, q of each call, the numbers)
    "threads": (lambda q, n: dict(threads=n), LONG[:1], (1, 2, 3)),
    "threads that are constant": (lambda q, n: dict(threads=threads()), LONG[:1], (1,)),
    "threads of NumPy": (lambda q, n: dict(threads=np.int64(3)), LONG[:1], (1,)),
    "scale": (lambda q, n: dict(scale=n), LONG[:1], (0.1, 0.2, 0.3)),
    "scale that is whole": (lambda q, n: dict(scale=n), LONG[:1], (1, 2, 3)),
    "scale of the size": (lambda q, n: dict(scale=q.shape[-1] ** -0.5), WIDE, (1,)),
    "scale as a tensor": (lambda q, n: dict(scale=n), LONG[:1], (torch.tensor(0.2), torch.tensor(0.4))),
    "softcap": (lambda q, n: dict(softcap=n), LONG[:1], (1.5, 2.5)),
    "softcap_after": (lambda q, n: dict(softcap=2.0, softcap_after=n,
                                        bias=relpos.LogDecay(0.3)), LONG[:1], (False, True, 1.5, 2.5)),
    "dropout": (lambda q, n: dict(dropout=n, seed=1), LONG[:1], (0.1, 0.2, 0.3)),
    "seed": (lambda q, n: dict(dropout=0.5, seed=n), LONG[:1], (0, 3, 2**63, 2**64 - 1)),
    "seed of NumPy": (lambda q, n: dict(dropout=0.5, seed=np.int64(3)), LONG[:1], (1,)),
    "seed as a tensor": (lambda q, n: dict(dropout=0.5, seed=n), LONG[:1], (torch.tensor(3), torch.tensor(2**62))),
    "q_offset": (lambda q, n: dict(causal=True, q_offset=n), LONG[:1], (1, 2, 3)),
    "q_offset of the length": (lambda q, n: dict(causal=True, q_offset=q.shape[2] - 3), LONG, (1,)),
    "window": (lambda q, n: dict(window=(n, 0)), LONG[:1], (1, 2, 3)),
    "window of the length": (lambda q, n: dict(window=(q.shape[2] - 3, None)), LONG, (1,)),
    "causal": (lambda q, n: dict(causal=n), LONG[:1], (True, False)),
    "causal by the length": (lambda q, n: dict(causal=q.shape[2] > 8), LONG, (1,)),
    "precision": (lambda q, n: dict(precision="high"), LONG[:1], (1,)),
    "lambda_": (lambda q, n: dict(bias=relpos.LogDecay(n)), LONG[:1], (0.1, 0.2, 0.3)),
    "max_distance": (lambda q, n: dict(bias=relpos.T5(torch.arange(64.).view(32, 2), max_distance=n)), LONG[:1],
                     (20, 30, 40)),
    "left of the length":
    (lambda q, n: dict(relkey=relpos.RelKey(q.new_ones(q.shape[2] + 1, 8).cumsum(0), left=q.shape[2] - 1, right=1)),
     LONG, (1,)),
    "grid": (lambda q, n: dict(bias=relpos.Swin(torch.arange(4. * n - 2).view(-1, 2), grid=(1, n))), LONG[:1], (7,)),
    "base": (lambda q, n: dict(rope=relpos.RoPE(base=n)), LONG[:1], (1e2, 1e3, 1e4)),
}


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", VALUES)
def test_compile_with_numbers(name, dynamic):
    """Options can be constants, symbols of torch.compile, NumPy numbers and tensors."""
    options, queries, numbers = VALUES[name]
    plain = lambda q, n: relpos.attention(q, q, q, **options(q, n))
    traced = compiled(plain, dynamic=dynamic)
    for q in queries:
        for n in numbers:
            assert torch.equal(traced(q, n), plain(q, n))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.table = torch.nn.Linear(8, 8), torch.nn.Parameter(torch.randn(32, 2))

    def forward(self, x):
        q = self.project(x).unflatten(-1, (2, 4)).transpose(1, 2)
        return relpos.attention(q, q, q, bias=relpos.T5(self.table), causal=True)


def test_lengths_that_change_and_export():
    layer = Layer()
    traced = compiled(layer, dynamic=True)
    for length in (6, 7, 9):
        x = torch.randn(2, length, 8)
        torch.testing.assert_close(traced(x), layer(x))
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), layer(x))


def test_autocast_and_inference_mode():
    layer, x = Layer(), torch.randn(2, 6, 8)
    traced = compiled(copy.deepcopy(layer))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, same = layer(x), traced(x)
    assert out.dtype == same.dtype == torch.bfloat16 and torch.equal(out, same)
    out.float().sum().backward()
    assert layer.table.grad.dtype == torch.float32 and layer.table.grad.abs().sum() > 0
    want = layer(x)
    for function in (layer, traced):
        with torch.inference_mode():
            torch.testing.assert_close(function(x), want)


@pytest.mark.parametrize("name", ["weights", "entropy"])
@pytest.mark.parametrize("way", ["compiled", "traced", "operator"])
def test_gradients_of_weights_and_summary(way, name):
    """They have the bits of eager calls, and unused results change no bit."""
    plain = lambda *args: relpos.attention(*args, return_weights=True, return_lse=True, summary=True)
    as_tuple = lambda *args: (lambda found: (found.out, found.weights, found.lse, found.summary.entropy))(plain(*args))
    q, k, v, *_ = inputs()
    if way == "compiled":
        call = compiled(as_tuple)
    elif way == "traced":
        call = torch.jit.trace(as_tuple, (q.detach(), k.detach(), v.detach()))
    else:
        def call(*args):
            out, lse, weights, _, _, entropy = torch.ops.relpos.attention(*args, [],
                                                                          "return_weights|True|\nsummary|True|", 0, 0)
            return out, weights, lse, entropy
    out, *others = call(q, k, v)
    at = ["weights", "lse", "entropy"].index(name)
    other, (plain_out, *plain_others) = others[at], as_tuple(q, k, v)
    for one, two in ((other.pow(2).sum(), plain_others[at].pow(2).sum()),
                     (out.sum() + other.pow(2).sum(), plain_out.sum() + plain_others[at].pow(2).sum())):
        for a, b in zip(torch.autograd.grad(one, (q, k, v), retain_graph=True, allow_unused=True),
                        torch.autograd.grad(two, (q, k, v), retain_graph=True, allow_unused=True)):
            assert torch.equal(a, b)
    want = torch.autograd.grad(relpos.attention(q, k, v).sin().sum(), (q, k, v))
    for a, b in zip(torch.autograd.grad(out.sin().sum() + other.detach().sum(), (q, k, v), retain_graph=True), want):
        assert torch.equal(a, b)
    found = relpos.attention(q, k, v, return_lse=True)
    want = torch.autograd.grad(found.out.sin().sum() + found.lse.square().sum(), (q, k, v))
    for a, b in zip(torch.autograd.grad(out.sin().sum() + others[1].square().sum(), (q, k, v)), want):
        assert torch.equal(a, b)


def test_jit_trace():
    """A trace is valid for inputs of other sizes, has gradients, and can be saved and loaded."""
    layer, x = Layer(), torch.randn(2, 9, 8)
    trace = torch.jit.trace(layer, (torch.randn(2, 6, 8),))
    memory = io.BytesIO()
    torch.jit.save(trace, memory)
    memory.seek(0)
    want = layer(x)
    expected = torch.autograd.grad(want.sin().sum(), list(layer.parameters()))
    for found in (trace, torch.jit.load(memory)):
        got = found(x)
        assert torch.equal(got, want)
        parameters = dict(found.named_parameters())
        for a, b in zip(torch.autograd.grad(got.sin().sum(),
                                            [parameters[name] for name, _ in layer.named_parameters()]), expected):
            assert torch.equal(a, b)


def test_jit_trace_with_every_option():
    args = inputs()
    trace = torch.jit.trace(call, tuple(x.detach() for x in args))
    other = [x.detach() * 2 for x in args]
    assert torch.equal(trace(*other), call(*other)) and not torch.equal(trace(*other), call(*args))


@pytest.mark.parametrize("dynamo", [False, True])
def test_onnx_is_refused(dynamo):
    pytest.importorskip("onnxscript")
    with pytest.raises(Exception, match="relpos.attention cannot be exported to ONNX; export the model with another "
                                        "attention"):
        torch.onnx.export(Layer(), (torch.randn(2, 6, 8),), io.BytesIO(), dynamo=dynamo)


def test_tensors_without_numbers():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode() as mode:
        q = mode.from_tensor(torch.randn(2, 4, 5, 8, dtype=torch.bfloat16))
        got = relpos.attention(q, q, q[..., :3], bias=relpos.ALiBi(), return_weights=True, summary=True)
        assert got.out.shape == (2, 4, 5, 3) and got.out.dtype == torch.bfloat16 and got.weights.dtype == torch.float32
        assert got.weights.shape == (2, 4, 5, 5) and got.summary.profile.shape == (2, 4, 9) and got.lse is None
        with pytest.raises(TypeError, match="q is of type FakeTensor"):
            relpos.explain(q, q, q)


def test_types_of_tensors_that_see_each_call():
    from torch.testing._internal.two_tensor import TwoTensor
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            seen.append(str(function))
            with torch._C._DisableTorchDispatch():
                return function(*args, **(kwargs or {}))

    q, k, v, t5, *_ = (x.detach() for x in inputs())
    want = relpos.attention(q, k, v, bias=relpos.T5(t5, buckets=8))
    assert torch.equal(relpos.attention(q.as_subclass(Watched), k, v,
                                        bias=relpos.T5(t5.as_subclass(Watched), buckets=8)), want)
    assert seen == ["relpos.attention.default"]
    two = relpos.attention(TwoTensor(q, q + 1), TwoTensor(k, k), TwoTensor(v, v), bias=relpos.T5(t5, buckets=8))
    assert torch.equal(two.a, want) and torch.equal(two.b, relpos.attention(q + 1, k, v, bias=relpos.T5(t5, buckets=8)))


@pytest.mark.parametrize("grad", [False, True])
def test_the_negative_bit(grad):
    q, k, v, t5, *_ = inputs()
    q.requires_grad_(grad), t5.requires_grad_(grad)
    for at in range(4):
        args = [q, k, v, t5]
        args[at] = torch._neg_view(args[at])
        got = relpos.attention(*args[:3], bias=relpos.T5(args[3], buckets=8))
        args[at] = args[at].resolve_neg()
        want = relpos.attention(*args[:3], bias=relpos.T5(args[3], buckets=8))
        assert torch.equal(got, want)
        if grad:
            for a, b in zip(*(torch.autograd.grad(x.sin().sum(), (q, t5)) for x in (got, want))):
                assert torch.equal(a, b)
    with torch.no_grad(), pytest.raises(TypeError, match=r"k has its negative bit set; use k.resolve_neg\(\)"):
        relpos.attention_backward(q, q, torch._neg_view(q), q)
