"""relpos.Cache keeps norms of its keys, and steps with norms are bit-identical to steps without.
SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import pytest
import relpos

B, H, HK, LK, D, DV = 2, 4, 2, 2000, 8, 5
rng = np.random.default_rng(5)
q = rng.standard_normal((8, H, 1, D)).astype(np.float32)
k = rng.standard_normal((B, HK, LK, D)).astype(np.float32)
v = rng.standard_normal((B, HK, LK, DV)).astype(np.float32)
SLOPES = np.full(H, 0.5, np.float32)


@pytest.fixture(autouse=True)
def compared(monkeypatch):
    """Compare norms with keys in every call."""
    monkeypatch.setenv("RELPOS_SKIP", "check")


def plan_of(batch=B):
    return relpos.Plan(batch, H, 1, 2 * LK, D, kv_heads=HK, dim_v=DV, bias=relpos.ALiBi(SLOPES), causal=True)


def check(cache, keys, values):
    """Check the contents of a cache, and that a step with its norms equals a step without, bit for bit."""
    n, batch = len(cache), len(keys)
    assert (cache.k.shape == (batch, HK, n, D) and cache.v.shape == (batch, HK, n, DV)
            and cache.key_norms.shape == (batch, HK, -(-n // 64)))
    np.testing.assert_array_equal(np.asarray(cache.k), keys)
    np.testing.assert_array_equal(np.asarray(cache.v), values)
    plan = plan_of(batch)
    query = q[:batch] if isinstance(cache.k, np.ndarray) else tensor(q[:batch])
    want = plan(query, cache.k, cache.v, q_offset=n - 1, return_lse=True)
    for found in plan(query, cache, q_offset=n - 1, return_lse=True), plan(query, cache.k, cache.v, q_offset=n - 1,
                                                                           return_lse=True, key_norms=cache.key_norms):
        assert np.array_equal(found.out, want.out) and np.array_equal(found.lse, want.lse)


def appended(cache, keys, values, ends=(1, 63, 64, 65, 1000, 1001, LK)):
    first = len(cache)
    for n in (x for x in ends if x > first):
        cache.append(keys[:, :, first:n], values[:, :, first:n])
        first = n
    return cache


def tensor(x):
    return pytest.importorskip("torch").from_numpy(x)


@pytest.mark.parametrize("kind", [np.asarray, tensor], ids=["numpy", "torch"])
def test_appending_reordering_cropping(kind):
    cache, keys, values = relpos.Cache(), k, v
    assert len(cache) == 0 and cache.k is None and cache.key_norms is None
    cache.reorder([0])
    cache.crop(0)
    for n in (1, 63, 64, 65, 1000, 1001, LK):
        before = len(cache)
        cache.append(kind(k[:, :, before:n]), kind(v[:, :, before:n]))
        check(cache, k[:, :, :n], v[:, :, :n])
    for rows in ([1, 0], [1, 1, 0], [2, 0]):
        keys, values = keys[rows], values[rows]
        cache.reorder(np.array(rows))
        check(cache, keys, values)
    for length in 1500, 1472, 1472:
        cache.crop(length)
        check(cache, keys[:, :, :length], values[:, :, :length])
    more = rng.standard_normal((2, HK, 700, D)).astype(np.float32) * 3
    cache.append(kind(more), kind(more[..., :DV].copy()))
    check(cache, np.concatenate([keys[:, :, :1472], more], 2), np.concatenate([values[:, :, :1472], more[..., :DV]], 2))
    cache.crop(0)
    cache.append(kind(keys[:, :, :100]), kind(values[:, :, :100]))
    check(cache, keys[:, :, :100], values[:, :, :100])


def test_far_keys_are_not_read(monkeypatch):
    cache = appended(relpos.Cache(), k, v)
    want = plan_of()(q[:B], cache, q_offset=LK - 1)
    cache.k[:, :, :1024] = np.nan
    monkeypatch.delenv("RELPOS_SKIP")
    np.testing.assert_array_equal(plan_of()(q[:B], cache, q_offset=LK - 1), want)
    monkeypatch.setenv("RELPOS_SKIP", "check")
    with pytest.raises(ValueError, match=r"^key_norms: element \[0, 0, 0\] is .*, but key 0 has norm inf; when keys or "
                                         r"values change"):
        plan_of()(q[:B], cache, q_offset=LK - 1)


def test_keys_that_must_be_read_until_they_leave():
    cache, bad = appended(relpos.Cache(), k, v, (1000,)), k[:, :, 1000:1001].copy()
    bad[0, 1] = np.inf
    cache.append(bad, v[:, :, 1000:1001])
    assert np.isinf(cache.key_norms[0, 1, 15])
    cache.crop(1000)
    cache.append(k[:, :, 1000:], v[:, :, 1000:])
    check(cache, k, v)
    cache.crop(960)
    cache.append(k[:, :, 960:], v[:, :, 960:])
    assert np.isfinite(cache.key_norms).all()
    np.testing.assert_array_equal(cache.key_norms, relpos.key_norms(k, v))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_types(dtype):
    cache = appended(relpos.Cache(), k.astype(dtype), v.astype(dtype))
    assert cache.k.dtype == dtype and cache.key_norms.dtype == np.float32
    np.testing.assert_array_equal(cache.key_norms, relpos.key_norms(k.astype(dtype), v.astype(dtype)))


@pytest.mark.parametrize("keys, values", [
    (k[:1], v[:1]), (k[:, :1], v[:, :1]), (k[..., :4], v), (k, v[..., :4]), (k, v[:, :, 1:]), (k[0], v[0]),
    (k.astype(np.float64), v.astype(np.float64)),
    (k, v.astype(np.float64)), (k, v[:1])])
def test_refusals(keys, values):
    cache = appended(relpos.Cache(), k, v, (70,))
    with pytest.raises(ValueError, match="^[kv] has (shape .* and elements of .*, expected|3 axes, expected 4)"):
        cache.append(keys, values)
    check(cache, k[:, :, :70], v[:, :, :70])
    with pytest.raises(IndexError):
        cache.reorder([0, 2])
    check(cache, k[:, :, :70], v[:, :, :70])
    for length in -1, 71:
        with pytest.raises(ValueError, match=f"^length is {length}, expected 0 to 70, the number of keys"):
            cache.crop(length)
