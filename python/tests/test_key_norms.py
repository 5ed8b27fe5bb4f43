"""With key norms, a call with one query skips the distant keys of a cache.  SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import pytest
import relpos

B, H, HK, LK, D = 2, 4, 2, 2000, 8
FAR = 1024  # the last query gives the first FAR keys weight 0 under ALiBi with slope 1/2
rng = np.random.default_rng(5)
q = rng.standard_normal((B, H, 1, D)).astype(np.float32)
k, v = (rng.standard_normal((B, HK, LK, D)).astype(np.float32) for _ in range(2))
OPTIONS = dict(bias=relpos.ALiBi(np.full(H, 0.5, np.float32)), causal=True, q_offset=LK - 1, return_lse=True)


def norms_of(keys):
    """Compute the norms from their definition: the largest norm in each block of 64 keys."""
    size = np.sqrt((keys.astype(np.float64) ** 2).sum(-1))
    return np.stack([size[..., n:n + 64].max(-1) for n in range(0, keys.shape[-2], 64)], -1)


def same(a, b):
    for x, y in zip(a, b):
        assert (x is None and y is None) or np.array_equal(x, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_largest_norms(dtype):
    keys, values = k.astype(dtype), v.astype(dtype)
    found = relpos.key_norms(keys, values)
    assert found.dtype == np.float32 and found.shape == (B, HK, 32)
    np.testing.assert_allclose(found, norms_of(keys), rtol=1e-6)
    np.testing.assert_array_equal(relpos.key_norms(keys[0], values[0]), found[0])
    np.testing.assert_array_equal(relpos.key_norms(keys[1, 1], values[1, 1]), found[1, 1])


def test_keys_that_have_to_be_read():
    keys, values = k.copy(), v.copy()
    keys[0, 0, 70, 3], keys[1, 1, 1999, 0], values[0, 1, 5, 2] = np.nan, 2e15, np.inf
    found = relpos.key_norms(keys, values)
    assert sorted(map(tuple, np.argwhere(np.isinf(found)).tolist())) == [(0, 0, 1), (0, 1, 0), (1, 1, 31)]


def test_the_same_bits_and_far_keys_unread():
    norms = relpos.key_norms(k, v)
    want = relpos.attention(q, k, v, **OPTIONS)
    same(relpos.attention(q, k, v, **OPTIONS, key_norms=norms), want)
    keys, values = k.copy(), v.copy()
    keys[:, :, :FAR], values[:, :, :FAR] = np.nan, np.inf
    same(relpos.attention(q, keys, values, **OPTIONS, key_norms=norms), want)
    assert np.isnan(relpos.attention(q, keys, values, **OPTIONS).lse).all()
    one = relpos.attention(q[0], keys[0], values[0], **OPTIONS, key_norms=norms[0].astype(np.float64))
    same(one, (want.out[0], None, want.lse[0], None))


def test_a_growing_cache():
    norms = np.full((B, HK, 40), np.nan)
    plan = relpos.Plan(B, H, 1, LK, D, kv_heads=HK, bias=OPTIONS["bias"], causal=True)
    for before, n in [(0, 1), (1, 63), (63, 64), (64, 65), (65, 1500), (1500, 1501), (1501, LK)]:
        keys, values = k[:, :, :n], v[:, :, :n]
        assert relpos.key_norms(keys, values, norms=norms, start=before) is norms
        np.testing.assert_allclose(norms[:, :, :-(-n // 64)], norms_of(keys), rtol=1e-14)
        same(plan(q, keys, values, q_offset=n - 1, return_lse=True, key_norms=norms),
             plan(q, keys, values, q_offset=n - 1, return_lse=True))


def test_pages():
    table = np.array([[3, 0, 5, 1, 7, 9, 11, 12], [2, 4, 6, 8, 10, 13, 14, 15]])
    caches = [rng.standard_normal((16, HK, 256, D)).astype(np.float32) for _ in range(2)]
    norms = relpos.key_norms(*caches)
    plan = relpos.Plan(B, H, 1, 2048, D, kv_heads=HK, bias=OPTIONS["bias"], causal=True)
    more = dict(pages=table, len_k=LK, q_offset=LK - 1)
    want = plan(q, *caches, **more)
    for cache in caches:
        cache[table[:, :4]] = np.nan
    np.testing.assert_array_equal(plan(q, *caches, **more, key_norms=norms), want)
    assert np.isnan(plan(q, *caches, **more)).all()
    for wrong in norms[:, :, :3], norms[:15], norms.astype(np.float64), np.asfortranarray(norms), norms[0]:
        with pytest.raises(ValueError, match=r"expected a contiguous array of f32, \(16, 2, 4\)"):
            plan(q, *caches, **more, key_norms=wrong)
    norms[5, 1, 2] = -1
    with pytest.raises(ValueError, match="^key_norms: element .* is -1; it must be 0 or more"):
        plan(q, *caches, **more, key_norms=norms)


def test_pages_of_16_keys():
    """A call skips distant keys in pages of 16 keys, in any order. Such a page has one norm for each head of keys."""
    pages = np.random.default_rng(1).permutation(B * LK // 16).reshape(B, -1)
    caches = ([np.ascontiguousarray(x.reshape(B, HK, -1, 16,
                                              D).swapaxes(1, 2).reshape(-1, HK, 16, D)[np.argsort(pages.ravel())])
               for x in (k, v)])
    norms = np.zeros((len(caches[0]), HK, 1), np.float32)
    for page in range(len(norms)):  # as a server does: keys 0 to 9 of each page, then the others
        of_page = [x[page:page + 1] for x in caches]
        relpos.key_norms(*[x[:, :, :10] for x in of_page], norms=norms[page:page + 1])
        relpos.key_norms(*of_page, norms=norms[page:page + 1], start=10)
    plan = relpos.Plan(B, H, 1, LK, D, kv_heads=HK, bias=OPTIONS["bias"], causal=True)
    want = plan(q, k, v, q_offset=LK - 1)
    np.testing.assert_array_equal(plan(q, *caches, pages=pages, q_offset=LK - 1, key_norms=norms), want)
    caches[0][pages[:, :FAR // 16]] = np.nan
    np.testing.assert_array_equal(plan(q, *caches, pages=pages, q_offset=LK - 1, key_norms=norms), want)


def test_debugging(monkeypatch):
    """With RELPOS_SKIP=check, norms that do not belong to the keys are an error."""
    keys, norms = k.copy(), relpos.key_norms(k, v)
    want = relpos.attention(q, k, v, **OPTIONS)
    keys[1, 0, 70] *= 9  # a key without weight
    same(relpos.attention(q, keys, v, **OPTIONS, key_norms=norms), want)
    monkeypatch.setenv("RELPOS_SKIP", "check")
    same(relpos.attention(q, k, v, **OPTIONS, key_norms=norms), want)
    with pytest.raises(ValueError, match=r"^key_norms: element \[1, 0, 1\] is .*, but key 70 has norm "):
        relpos.attention(q, keys, v, **OPTIONS, key_norms=norms)


@pytest.mark.parametrize("call, error, said", [
    (lambda: relpos.key_norms(k, v, start=1), ValueError, "start is 1 without norms of the earlier keys"),
    (lambda: relpos.key_norms(k, v, norms=np.empty((B, HK, 32)),
                              start=LK + 1), ValueError, "start is 2001, expected 0 to 2000, the number of keys"),
    (lambda: relpos.key_norms(k, v, norms=np.empty((B, HK, 31), np.float32)), ValueError, "norms has shape (2, 2, 31), "
                                                                                          "expected (2, 2, 32)"),
    (lambda: relpos.key_norms(k, v, norms=np.empty((HK, 32), np.float32)), ValueError, "norms has shape (2, 32), "
                                                                                       "expected (2, 2, 32)"),
    (lambda: relpos.key_norms(k, v, norms=np.empty((B, HK, 32), np.float16)), TypeError, "norms has elements of f16, "
                                                                                         "expected f32 or f64"),
    (lambda: relpos.key_norms(k, v[0]), ValueError, "v has 3 axes, expected"),
    (lambda: relpos.key_norms(k, v[:, :, 1:]), ValueError, "v"),
    (lambda: relpos.key_norms(k, v.astype(np.float64)), TypeError, "v has elements of f64"),
    (lambda: relpos.key_norms(k.astype(np.int32), v), TypeError, "k has elements of i32"),
    (lambda: relpos.key_norms([1], v), TypeError, "k is of type list: expected a NumPy array or a torch tensor"),
    (lambda: relpos.key_norms(k, v, start=0.5), TypeError, "start is of type float: expected an integer"),
    (lambda: relpos.key_norms(k[:, :0], v[:, :0]), ValueError, "k has an axis of length 0"),
    (lambda: relpos.attention(q, k, v, key_norms=np.empty((B, HK, 31), np.float32)), ValueError, "key_norms"),
    (lambda: relpos.attention(q, k, v, key_norms=3), TypeError, "key_norms is of type int"),
    (lambda: relpos.attention_backward(q, q, k, v, key_norms=k), TypeError, 'unknown argument "key_norms"'),
])
def test_refusals(call, error, said):
    with pytest.raises(error) as found:
        call()
    assert said in str(found.value) and "tensors." not in str(found.value)


def test_tensors():
    torch = pytest.importorskip("torch")
    import relpos.torch  # noqa: F401
    tq, tk, tv = (torch.from_numpy(x.copy()) for x in (q, k, v))
    norms = relpos.key_norms(tk, tv)
    assert isinstance(norms, torch.Tensor) and np.array_equal(norms, relpos.key_norms(k, v))
    given, version = torch.zeros(B, HK, 50), norms._version
    assert relpos.key_norms(tk, tv, norms=given) is given and given._version > version
    want = relpos.attention(tq, tk, tv, **OPTIONS)
    tk[:, :, :FAR] = torch.nan
    same(relpos.attention(tq, tk, tv, **OPTIONS, key_norms=given), want)
    compiled = torch.compile(lambda q, k, v, norms: relpos.attention(q, k, v, **OPTIONS,
                                                                     key_norms=norms), backend="aot_eager")
    same(compiled(tq, tk, tv, norms), want)
    with pytest.raises(TypeError, match="key_norms is of type Tensor: it requires a gradient"):
        relpos.attention(tq, tk, tv, key_norms=norms.clone().requires_grad_())
    tk = torch.from_numpy(k.copy()).requires_grad_()
    plain = torch.autograd.grad(relpos.attention(tq, tk, tv, **OPTIONS).out.sum(), tk)[0]
    assert torch.equal(torch.autograd.grad(relpos.attention(tq, tk, tv, **OPTIONS, key_norms=norms).out.sum(), tk)[0],
                       plain)
