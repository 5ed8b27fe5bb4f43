"""Calls that torch traces or transforms run as an operator or raise, even if relpos.torch has not been imported. Also
tests unusual tensors and old versions of PyTorch.

SPDX-License-Identifier: Apache-2.0"""
import re
import subprocess
import sys

import pytest
import relpos

torch = pytest.importorskip("torch")
from torch.autograd import forward_ad  # noqa: E402

q, k, v = (torch.randn(2, 3, n, 4, generator=torch.Generator().manual_seed(n)) for n in (5, 7, 8))
k, v = k.clone(), v[..., :7, :].clone()


def call(q, k=k, v=v, **more):
    return relpos.attention(q, k, v, bias=relpos.ALiBi(torch.ones(3)), causal=True, **more)


TRACED = """
import sys, torch, relpos
from torch.fx.experimental.proxy_tensor import make_fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
x, y = (torch.randn(1, 2, 5, 4) for _ in range(2))
f = lambda x: relpos.attention(x, x, x, causal=True)
assert "relpos._operator" not in sys.modules
graph = make_fx(f)(x)
assert "relpos.attention" in graph.code, graph.code
assert torch.equal(graph(y), f(y))

class Names(TorchDispatchMode):
    found = []
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.found.append(str(function))
        return function(*args, **(kwargs or {}))

with Names():
    assert torch.equal(f(x), f(y)) is False
assert Names.found.count("relpos.attention.default") == 2, Names.found
with FakeTensorMode():
    fake = torch.empty(1, 2, 5, 4)
    assert type(f(fake)).__name__ == "FakeTensor"
with FunctionalTensorMode():
    assert torch.equal(f(x), f(x))
assert torch.equal(torch.func.functionalize(f)(x), f(x))
trace = torch.jit.trace(f, (x,))
assert torch.equal(trace(y), f(y)) and "relpos::attention" in str(trace.graph), trace.graph
assert "relpos.torch" not in sys.modules
"""


JIT = """
import torch, relpos
f = lambda x: relpos.attention(x, x, x, causal=True)
x, y = (torch.randn(1, 2, 5, 4) for _ in range(2))
assert torch.equal(torch.jit.trace(f, (x,))(y), f(y))
for other in (lambda x: relpos.Plan(1, 2, 5, 5, 4)(x, x, x), lambda x: relpos.attention_backward(x, x, x, x).q,
              lambda x: relpos.explain(x, x, x).out):
    try:
        torch.jit.trace(other, (x,))
    except TypeError as why:
        assert "torch.jit.trace" in str(why), why
    else:
        raise AssertionError("traced as a constant")
"""


@pytest.mark.parametrize("text", [TRACED, JIT], ids=["modes", "jit"])
def test_modes_without_relpos_torch(text):
    subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", text], check=True)


@pytest.mark.parametrize("transform", [
    lambda f: torch.func.grad(lambda x: f(x).sum())(q), lambda f: torch.func.jvp(f, (q,), (q,)), lambda f: torch.vmap(f)
    (q[None])], ids=["grad", "jvp", "vmap"])
def test_transforms_of_other_functions_are_refused(transform):
    for call in (relpos.Plan(2, 3, 5, 7, 4), lambda *x: relpos.attention_backward(q, *x).q,
                 lambda *x: relpos.attention_jvp(*x, (q, None, None)).out):
        with pytest.raises(TypeError, match="torch traces or transforms this call"):
            transform(lambda x: call(x, k, v))


def test_other_tensors_of_a_transform():
    """Inside a transform of torch.func, tensors that it does not wrap work as usual."""
    want = call(q)
    got = torch.vmap(lambda x: x + call(q).sum())(torch.zeros(3))
    torch.testing.assert_close(got, want.sum().expand(3))


def test_inside_a_dual_level():
    """Tensors without tangents are computed as usual."""
    with forward_ad.dual_level():
        with pytest.raises(TypeError, match="q: torch traces or transforms this call"):
            relpos.attention_backward(q, q, k, v)
        dual = forward_ad.make_dual(q, q)
        assert torch.equal(call(dual.detach()), call(q))
        x = q.clone().requires_grad_()
        call(x).sum().backward()
        assert x.grad.abs().sum() > 0
    assert torch.equal(call(q), call(q))


def test_gradients_under_a_mode():
    from torch.utils.flop_counter import FlopCounterMode
    x = q.clone().requires_grad_()
    want, = torch.autograd.grad(call(x).sin().sum(), x)
    with FlopCounterMode(display=False):
        got, = torch.autograd.grad(call(x).sin().sum(), x)
    assert torch.equal(got, want)
    out = call(x).sin().sum()
    with FlopCounterMode(display=False):
        got, = torch.autograd.grad(out, x)
    assert torch.equal(got, want)
    with FlopCounterMode(display=False):
        out = call(x).sin().sum()
    assert torch.equal(torch.autograd.grad(out, x)[0], want)


def test_a_backward_pass_alone():
    """An incoming gradient may be a dual tensor. Tracing the backward pass without the forward pass raises, because
    torch would record the gradients as constants."""
    import relpos._operator  # noqa: F401
    from torch.fx.experimental.proxy_tensor import make_fx
    x = q.clone().requires_grad_()
    outs = [call(x), torch.ops.relpos.attention(x, k, v, [], "", 0, 0)[0]]
    for out in outs:
        one, other = torch.ones_like(out), torch.randn_like(out)
        with forward_ad.dual_level():
            found, = torch.autograd.grad(out, x, forward_ad.make_dual(one, other), retain_graph=True)
            tangent = forward_ad.unpack_dual(found).tangent
        torch.testing.assert_close(tangent, torch.autograd.grad(out, x, other, retain_graph=True)[0])
    alone = lambda dout: torch.autograd.grad(outs[0], x, dout, retain_graph=True)[0].detach()
    with pytest.raises(TypeError, match="traces the backward pass of relpos.attention but not its forward pass"):
        make_fx(alone)(torch.ones_like(outs[0]))
    both = lambda x: torch.autograd.grad(call(x).sum(), x)[0]
    graph = make_fx(both)(x)
    y = torch.randn_like(x).requires_grad_()
    assert torch.equal(graph(y), both(y))


@pytest.mark.parametrize("version, module, text", [
    ("torch.__version__ = '2.11.1'", "relpos.torch", "PyTorch is version 2.11.1, expected 2.12 or later"),
    ("torch.__version__ = '2.4.0a0+cpu'", "relpos._operator",
     "PyTorch is version 2.4.0a0[+]cpu, expected 2.12 or later"),
    ("torch.__version__ = '2.12.0+cu128'", "relpos.torch", ""),
    ("import transformers; transformers.__version__ = '5.21.3'", "relpos.hf",
     "transformers is version 5.21.3, expected 5.22 or later"),
    ("import transformers; transformers.__version__ = '4.57.1'", "relpos.hf",
     "transformers is version 4.57.1, expected 5.22 or later"),
])
def test_older_versions_are_refused(version, module, text):
    if "transformers" in version:
        pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", f"import torch; {version}; import {module}"],
                          capture_output=True,
                          text=True)
    assert (done.returncode == 0) == (text == "")
    if text:
        assert re.search(f"ImportError: {text}", done.stderr), done.stderr


@pytest.mark.parametrize("options", [
    dict(causal=False), dict(scale=0.3, softcap=2.0), dict(seed=2**64 - 1, dropout=0.5), dict(q_offset=3, causal=True),
    dict(q_offset=torch.tensor([3, 1]), causal=True), dict(return_weights=1, return_lse=True, summary=True)],
                         ids=lambda options: "-".join(options))
def test_numbers_of_numpy(options):
    import numpy as np
    from torch.fx.experimental.proxy_tensor import make_fx
    kinds = {"causal": np.bool_, "scale": np.float64, "softcap": np.float32,
             "q_offset": lambda x: x.numpy() if torch.is_tensor(x) else np.int64(x)}
    given = {name: kinds.get(name, lambda x: x)(value) for name, value in options.items()}
    plain = relpos.attention(q, k, v, **options)
    traced = make_fx(lambda q: relpos.attention(q, k, v, **given))(q)(q)
    for a, b in zip(*(torch.utils._pytree.tree_leaves(x) for x in (plain, traced))):
        assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))


def test_what_is_no_number_is_named():
    from torch.fx.experimental.proxy_tensor import make_fx
    with pytest.raises(TypeError, match="scale is of type list: expected a number"):
        make_fx(lambda q: relpos.attention(q, k, v, scale=[1]))(q)


# ---- batched, nested and fake tensors

@pytest.mark.parametrize("name", ["three axes", "four axes", "in_dims", "one alone", "slopes", "nested", "lse"])
def test_vmap(name):
    """A call under vmap equals one call per index of the mapped axis, with the same gradients."""
    g = torch.Generator().manual_seed(7)
    x, y, slopes = torch.randn(3, 2, 5, 4,
                               generator=g), torch.randn(3, 2, 6, 4, generator=g), torch.rand(3, 2, generator=g)
    call = lambda a, b, s: relpos.attention(a, b, b, bias=relpos.ALiBi(s), causal=True)
    lse = lambda a, b, s: relpos.attention(a, b, b, return_lse=True).lse
    f, dims, args = {
        "three axes": (call, (0, 0, None), (x, y, slopes[0])),
        "four axes": (call, (0, 0, None), (x[:, None], y[:, None], slopes[0])),
        "in_dims": (call, (2, 1, None), (x.movedim(0, 2), y.movedim(0, 1), slopes[0])),
        "one alone": (call, (0, None, None), (x, y[0], slopes[0])),
        "slopes": (call, (0, 0, 0), (x, y, slopes)),
        "nested": (torch.vmap(call, (0, 0, None)), (0, 0, None),
                   (torch.stack([x, 2 * x]), torch.stack([y, y]), slopes[0])),
        "lse": (lse, (0, 0, None), (x, y, slopes[0])),
    }[name]
    results = []
    for form in (torch.vmap(f, dims),
                 lambda *a: torch.stack([f(*(x if at is None else x.select(at, n) for x, at in zip(a, dims)))
                                        for n in range(a[0].shape[dims[0]])])):
        inputs = [x.clone().requires_grad_(name != "lse") for x in args]
        out = form(*inputs)
        results.append([out.detach(), *(torch.autograd.grad(out.sin().sum(), inputs) if name != "lse" else ())])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=0)
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(lambda a: relpos.attention(a, a, a, dropout=0.5))(x)


def test_tensors_of_the_device_meta():
    for q, k in ((torch.empty(2, 3, 5, 4), torch.empty(2, 3, 7, 4)), (torch.empty(3, 5, 4, dtype=torch.bfloat16),) * 2):
        want = relpos.attention(q, k, k, bias=relpos.ALiBi(), return_lse=True)
        got = relpos.attention(q.to("meta"), k.to("meta"), k.to("meta"), bias=relpos.ALiBi(), return_lse=True)
        assert got.out.is_meta and got.out.shape == want.out.shape and got.out.dtype == want.out.dtype
        assert got.lse.shape == want.lse.shape and got.lse.dtype == want.lse.dtype
    with pytest.raises(ValueError, match="q has no memory that relpos can read.*meta"):
        relpos.Plan(2, 3, 5, 7, 4)(q.to("meta"), k, k)


def test_nested_tensors():
    """Each entry gives the result of a separate call, forward and backward."""
    g = torch.Generator().manual_seed(7)
    rows = [torch.randn(n, 2, 4, generator=g) for n in (3, 6, 1)]
    table = torch.randn(32, 2, generator=g, requires_grad=True)
    call = lambda x: relpos.attention(x, x, x, bias=relpos.T5(table), rope=relpos.RoPE(), window=(3, 1))
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    out = call(nested.transpose(1, 2))
    out.transpose(1, 2).values().sin().sum().backward()
    got, table.grad = table.grad, None
    for n, (row, found, gradient) in enumerate(zip(rows, out.unbind(), nested.grad.unbind())):
        x = row.clone().requires_grad_()
        want = call(x.transpose(0, 1))
        torch.testing.assert_close(found, want, atol=1e-6, rtol=0)
        want.sin().sum().backward()
        torch.testing.assert_close(gradient, x.grad, atol=1e-5, rtol=0)
    torch.testing.assert_close(got, table.grad, atol=1e-5, rtol=0)
    x = nested.transpose(1, 2)
    other = torch.nested.nested_tensor([row.repeat(2, 1, 1) for row in rows], layout=torch.jagged).transpose(1, 2)
    for args, options, error, text in (((x, x, x), dict(key_mask=torch.ones(3)), TypeError,
                                        "key_mask is not supported with nested tensors"),
                                       ((x, x, x), dict(return_lse=True), TypeError,
                                        "return_lse is not supported with nested"),
                                       ((x, other, other), {}, ValueError, "k: its lengths differ from those of q"),
                                       ((nested,) * 3, {}, TypeError, "q: if one of q, k and v is nested"),
                                       ((x, q, q), {}, TypeError, "k: if one of q, k and v is nested")):
        with pytest.raises(error, match=text):
            relpos.attention(*args, **options)


def test_tensors_that_stand_for_a_mask():
    from torch.nn.attention.bias import causal_lower_right
    for options in (dict(mask=causal_lower_right(5, 7)), dict(bias=relpos.Dense(causal_lower_right(5, 7)))):
        with pytest.raises(TypeError, match="of type CausalBias: it represents a mask without storing it"):
            relpos.attention(q, k, v, **options)


def test_a_last_axis_that_is_not_contiguous():
    turned = lambda x: x.mT.contiguous().mT.detach().requires_grad_()
    plain = lambda x: x.clone().requires_grad_()
    results = []
    for form in (turned, plain):
        x = [form(a) for a in (q, k, v)]
        out = call(*x)
        results.append([out, *torch.autograd.grad(out, x, form(torch.ones_like(out)).detach())])
    for a, b in zip(*results):
        assert torch.equal(a, b)


@pytest.mark.parametrize("options, error, text", [
    (dict(causal="False"), TypeError, "causal is of type str"),
    (dict(return_lse=[]), TypeError, "return_lse is of type list"),
    (dict(lengths=[3, 8]), ValueError, "lengths contains 8, expected 0 to 7"),
    (dict(mask=-torch.ones(5, 7).long()), ValueError, "mask contains -1")])
def test_what_is_refused_where_torch_traces(options, error, text):
    from torch.fx.experimental.proxy_tensor import make_fx
    with pytest.raises(error, match=text):
        make_fx(lambda q: relpos.attention(q, k, v, **options))(q)
    with pytest.raises(ValueError, match="causal=True with one query and 7 keys"):
        make_fx(lambda q: relpos.attention(q[:, :, :1], k, v, causal=True))(q)
    one = lambda q: relpos.attention(q[:, :, :1], k, v, causal=True, q_offset=[4, 6], lengths=[5, 7])
    assert torch.equal(make_fx(one)(q)(q), one(q))


CONTEXT_PARALLEL = """
import torch, relpos, torch.distributed as dist, os, tempfile
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
F, x = torch.nn.functional, torch.randn(1, 2, 4, 8)
own, want = F.scaled_dot_product_attention, relpos.attention(x, x, x)
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method="file://" + folder + "/init", rank=0, world_size=1)
    try:
        with context_parallel(init_device_mesh("cpu", (1,)), buffers=[x], buffer_seq_dims=[2]):
            relpos.attention(x, x, x)
    except RuntimeError as why:
        assert "context_parallel would see only this process's part of the keys" in str(why), why
    else:
        raise AssertionError("not refused")
    dist.destroy_process_group()
F.scaled_dot_product_attention = own  # torch 2.12 leaves its own after an exception
assert torch.equal(relpos.attention(x, x, x), want)
F.scaled_dot_product_attention = lambda *args: own(*args)
assert torch.equal(relpos.attention(x, x, x), want)
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_context_parallel_is_refused():
    subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", CONTEXT_PARALLEL], check=True)
