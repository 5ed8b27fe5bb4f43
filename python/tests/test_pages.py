"""Compare decoding with keys and values in pages with decoding with contiguous arrays.
SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import pytest
import relpos

B, H, HK, PAGE, D, DV, MOST = 3, 4, 2, 16, 8, 5, 100
TABLE = np.array([[5, 0, 11, 3, 7, 20, 1], [2, 4, 6, 8, 10, 12, 14], [19, 17, 15, 13, 9, 16, 18]])
rng = np.random.default_rng(3)
k_pages = rng.standard_normal((21, HK, PAGE, D)).astype(np.float32)
v_pages = rng.standard_normal((21, HK, PAGE, DV)).astype(np.float32)
q = rng.standard_normal((B, H, 1, D)).astype(np.float32)
table = rng.standard_normal((32, H)).astype(np.float32)
OPTIONS = dict(bias=relpos.T5(table, bidirectional=False), rope=relpos.RoPE(), causal=True)


def whole(pages, n):
    """Return the first n keys listed in TABLE as an array (B, Hk, n, D)."""
    return np.ascontiguousarray(pages[TABLE].swapaxes(1, 2).reshape(B, HK, -1, pages.shape[-1])[:, :, :n])


def plan(**more):
    return relpos.Plan(B, H, 1, MOST, D, kv_heads=HK, dim_v=DV, **OPTIONS | more)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 63, 100])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_bits_of_arrays(n, dtype):
    p = plan()
    want = p(q, whole(k_pages, n), whole(v_pages, n), q_offset=n - 1, return_lse=True, return_weights=True)
    for keys, values in [(k_pages, v_pages),
                         (np.ascontiguousarray(k_pages.swapaxes(1, 2)).swapaxes(1, 2),
                          np.ascontiguousarray(v_pages.swapaxes(1, 2)).swapaxes(1, 2)),
                         (np.repeat(k_pages, 2, 0)[::2], np.repeat(v_pages, 3, 0)[::3])]:
        got = p(q, keys, values, pages=TABLE.astype(dtype), len_k=n, q_offset=n - 1, return_lse=True,
                return_weights=True)
        for a, b in zip(got[:3], want[:3]):
            np.testing.assert_array_equal(a, b)


def test_all_keys_unless_told():
    p, all_keys = plan(), dict(q_offset=MOST - 1)
    np.testing.assert_array_equal(p(q, k_pages, v_pages, pages=TABLE, **all_keys),
                                  p(q, whole(k_pages, 100), whole(v_pages, 100), **all_keys))
    np.testing.assert_array_equal(p(q, k_pages, v_pages, pages=TABLE[:, :2], q_offset=31),
                                  p(q, whole(k_pages, 32), whole(v_pages, 32), q_offset=31))
    assert not p(q, k_pages, v_pages, pages=TABLE[:, :0]).any()


def test_lengths_of_their_own():
    lengths = np.array([90, 17, 40])
    p = plan(lengths=lengths, threads=2)
    out = np.empty((B, H, 1, DV), np.float32)
    assert p(q, k_pages, v_pages, pages=TABLE, len_k=90, lengths=lengths, q_offset=lengths - 1, out=out) is out
    for b, n in enumerate(lengths):
        one = relpos.attention(q[b:b + 1], whole(k_pages, n)[b:b + 1], whole(v_pages, n)[b:b + 1], **OPTIONS,
                               q_offset=int(n) - 1)
        np.testing.assert_array_equal(out[b:b + 1], one)


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_tensors(name):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    p = relpos.Plan(B, H, 1, MOST, D, kv_heads=HK, dim_v=DV, dtype=dtype, causal=True)
    tensors = [torch.from_numpy(x).to(dtype) for x in (q, k_pages, v_pages)]
    got = p(*tensors, pages=torch.from_numpy(TABLE).int(), len_k=50, q_offset=49)
    keys, values = (x[torch.from_numpy(TABLE)].transpose(1, 2).flatten(2, 3)[:, :, :50] for x in tensors[1:])
    assert isinstance(got, torch.Tensor) and torch.equal(got, p(tensors[0], keys, values, q_offset=49))


BAD = np.where(TABLE == 7, 21, TABLE)


@pytest.mark.parametrize("change, error, text", [
    (dict(pages=BAD), ValueError, r"pages\[0, 4\] is 21; use a page number of k and v, 0 to 20"),
    (dict(pages=-TABLE), ValueError, r"pages\[0, 0\] is -5; use a page number of k and v, 0 to 20"),
    (dict(pages=TABLE[:2]), ValueError, r"pages has shape \(2, 7\), expected \(3, pages per batch entry\)"),
    (dict(pages=TABLE[0]), ValueError, r"pages has shape \(7,\)"),
    (dict(pages=TABLE.astype(float)), TypeError, "pages has elements of f64, expected int32 or int64"),
    (dict(pages=TABLE.astype(np.uint8)), TypeError, "pages has elements of u8"),
    (dict(pages=TABLE.tolist()), TypeError, "pages is of type list"),
    (dict(pages=TABLE[:, :3]), ValueError, "len_k is 100, expected at most the 100 keys of the plan and the 3 pages of "
                                           "16 keys"),
    (dict(len_k=101), ValueError, "len_k is 101, expected at most the 100 keys of the plan"),
    (dict(len_k=-1), ValueError, "len_k is -1"),
    (dict(len_k=2.0), TypeError, "len_k is of type float: expected an integer"),
    (dict(pages=None), TypeError, "len_k is given without pages"),
    (dict(k=k_pages[:, :1]), ValueError, r"k has shape \(21, 1, 16, 8\); with pages=, expected \(pages, 2, keys per "
                                         r"page, 8\)"),
    (dict(v=v_pages[:20]), ValueError, r"v has shape \(20, 2, 16, 5\); with pages=, expected \(pages, 2, keys per "
                                       r"page, 5\)"),
    (dict(v=v_pages[:, :, :8]), ValueError, r"v has shape \(21, 2, 8, 5\)"),
    (dict(k=k_pages[0]), ValueError, r"k has shape \(2, 16, 8\)"),
    (dict(k=k_pages.astype(float)), TypeError, "k has elements of f64, expected f32 as in relpos.Plan"),
    (dict(v=np.repeat(v_pages, 2, 3)[..., ::2]), ValueError, "v: the stride of the last axis is 2, expected 1"),
    (dict(k=k_pages[:, ::-1]), ValueError, "pages: the strides of k are"),
    (dict(q=q[0]), ValueError, "q has 3 axes; with pages=, expected 4"),
    (dict(q=q[:2], pages=TABLE[:2]), ValueError, r"q: shape is \(2, 4, 1, 8\); it must be \(3, 4, 1, 8\)"),
    (dict(out=v_pages.reshape(-1)[:60].reshape(3, 4, 1, 5)), ValueError, "the output overlaps page 1 of v"),
], ids=lambda x: x if isinstance(x, str) else "")
def test_a_wrong_argument_is_refused(change, error, text):
    given = dict(q=q, k=k_pages, v=v_pages, pages=TABLE, len_k=100, q_offset=99) | change
    args = [given.pop(name) for name in "qkv"]
    with pytest.raises(error, match=text) as caught:
        plan()(*args, **given)
    assert "\n" not in str(caught.value)


def test_pages_that_len_k_leaves_out():
    """Entries of the table past len_k can be any number."""
    p = plan()
    np.testing.assert_array_equal(p(q, k_pages, v_pages, pages=np.where(TABLE == 7, -1, TABLE), len_k=64, q_offset=63),
                                  p(q, k_pages, v_pages, pages=TABLE, len_k=64, q_offset=63))
