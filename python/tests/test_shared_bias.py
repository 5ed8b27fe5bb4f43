"""Batch entries that share those of a dense bias, compared with torch's operations and with the triangle attention of
ESMFold.

SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import pytest
import relpos

torch = pytest.importorskip("torch")
from torch import func  # noqa: E402

B, ROWS, H, L, D = 2, 3, 4, 7, 5  # two entries of the bias and a batch of six, for which the two orders differ
g = torch.Generator().manual_seed(1)
Q, K, V, DOUT = (torch.randn(B * ROWS, H, L, D, generator=g, dtype=torch.float64) for _ in range(4))
BIAS = torch.randn(B, H, L, L, generator=g, dtype=torch.float64)
ORDERS = {"interleave": lambda bias: bias.repeat_interleave(ROWS, 0), "tile": lambda bias: bias.repeat(ROWS, 1, 1, 1)}


def near(a, b):
    torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=0, atol=1e-12)


def eager(q, k, v, bias, order):
    return torch.softmax(q @ k.transpose(-2, -1) * D ** -0.5 + ORDERS[order](bias), -1) @ v


def ours(q, k, v, bias, order):
    return relpos.attention(q, k, v, bias=relpos.Dense(bias, **{order: ROWS}))


def loss_of(f, order):
    return lambda *x: (f(*x, order) * DOUT.cos()).sin().sum()


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_equal_those_of_a_repeated_bias(order):
    grad = [func.grad(loss_of(f, order), (0, 1, 2, 3)) for f in (ours, eager)]
    leaves = [x.clone().requires_grad_() for x in (Q, K, V, BIAS)]
    loss_of(ours, order)(*leaves).backward()
    for got, own, want in zip(leaves, grad[0](Q, K, V, BIAS), grad[1](Q, K, V, BIAS)):
        near(got.grad, want)
        near(own, want)
    near(func.jvp(grad[0], (Q, K, V, BIAS), (K, V, Q, BIAS.cos()))[1][3],
         func.jvp(grad[1], (Q, K, V, BIAS), (K, V, Q, BIAS.cos()))[1][3])


@pytest.mark.parametrize("order", ORDERS)
def test_numpy_has_the_derivatives_of_a_repeated_bias(order):
    q, k, v, dout, bias = (x.numpy() for x in (Q, K, V, DOUT, BIAS))
    one, whole = relpos.Dense(bias, **{order: ROWS}), relpos.Dense(ORDERS[order](BIAS).numpy())
    np.testing.assert_array_equal(relpos.attention(q, k, v, bias=one), relpos.attention(q, k, v, bias=whole))
    np.testing.assert_array_equal(one.matrix(L), whole.matrix(L))
    got, want = (relpos.attention_backward(dout, q, k, v, bias=x, per_sample=True) for x in (one, whole))
    np.testing.assert_array_equal(got.terms[0]["bias"], want.terms[0]["bias"])
    t = relpos.Gradients(k, v, q, ({"bias": np.cos(bias)},))
    wide = t._replace(terms=({"bias": ORDERS[order](torch.from_numpy(np.cos(bias))).numpy()},))
    for x in (t, wide):  # the tangent of the array, or of each batch entry
        near(relpos.attention_jvp(q, k, v, x, bias=one).out, relpos.attention_jvp(q, k, v, wide, bias=whole).out)
        near(relpos.attention_hvp(dout, q, k, v, x, bias=one).q,
             relpos.attention_hvp(dout, q, k, v, wide, bias=whole).q)


def test_the_matrix_of_one_entry_that_all_share():
    for bias in (BIAS[:1].numpy(), BIAS[0].numpy()):
        for interleave, tile in ((1, 3), (3, 1), (2, 3)):
            found = relpos.Dense(bias, interleave=interleave, tile=tile).matrix(L)
            np.testing.assert_array_equal(found, np.broadcast_to(bias, (interleave * tile, H, L, L)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mapped", [None, 0])
def test_vmap_and_compile(order, mapped):
    x = [torch.stack([a, a.roll(1, 0)]) for a in (Q, K, V)]
    bias = BIAS if mapped is None else torch.stack([BIAS, 2 * BIAS])
    got, want = (func.vmap(func.grad(loss_of(f, order), (0, 3)), (0, 0, 0, mapped))(*x, bias) for f in (ours, eager))
    for a, b in zip(got, want):
        near(a, b)
    near(torch.compile(loss_of(ours, order), backend="aot_eager", fullgraph=True)(Q, K, V, BIAS),
         loss_of(eager, order)(Q, K, V, BIAS))


def test_triangle_attention_of_esmfold():
    module = pytest.importorskip("transformers.models.esm.modeling_esmfold").EsmFoldTriangleAttention(8, 4, 2).double()
    for p in module.parameters():
        torch.nn.init.normal_(p, generator=g)
    x = torch.randn(B, L, L, 8, generator=g, dtype=torch.float64)
    mask = (torch.rand(B, L, L, generator=g) < 0.8).double()
    mask[..., 0] = 1

    def attention(x):
        y, mha = module.layer_norm(x), module.mha
        q, k, v = (f(y).flatten(0, 1).unflatten(-1, (2, -1)).transpose(1, 2)
                   for f in (mha.linear_q, mha.linear_k, mha.linear_v))
        bias = relpos.Dense(module.linear(y).permute(0, 3, 1, 2), interleave=L)
        out = relpos.attention(q, k, v, bias=bias, key_mask=mask.flatten(0, 1).bool())
        return mha.linear_o(torch.sigmoid(mha.linear_g(y)) * out.transpose(1, 2).flatten(2).unflatten(0, (B, L)))

    inputs = [x.requires_grad_(), *module.parameters()]
    near(attention(x), module(x, mask))
    grads = [torch.autograd.grad(f.square().sum(), inputs) for f in (attention(x), module(x, mask))]
    for a, b in zip(*grads):
        # roundings in sums of products as large as the largest gradient
        torch.testing.assert_close(a, b, rtol=0, atol=64 * torch.finfo(a.dtype).eps * float(b.abs().max()))


@pytest.mark.parametrize("shape, options, said", [
    (2, {}, r"Dense\(bias\): the first axis of the shape is 2; it must be 6, for the batch, or 1 \(interleave=N lets N "
            "neighbours in the batch share an entry, tile=N repeats all entries N times"),
    (2, dict(tile=2), "the first axis of the shape is 2; it must be 3, for the batch"),
    (1, dict(interleave=2, tile=2), "with interleave=2 and tile=2, 4 batch entries share one of bias; the number of "
                                    "batch entries must be a multiple of this, but is 6"),
    (2, dict(tile=0), "tile.* is 0; it must be 1 to"),
])
def test_errors_name_the_parameters(shape, options, said):
    with pytest.raises(ValueError, match=said):
        relpos.attention(Q.numpy(), K.numpy(), V.numpy(), bias=relpos.Dense(BIAS[:shape].numpy(), **options))
