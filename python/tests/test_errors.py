"""Bad input raises an error of one line, which names the argument, its value and the expected value.
SPDX-License-Identifier: Apache-2.0"""
import re
import warnings

import numpy as np
import pytest
import relpos

q = np.ones((2, 4, 13, 8), np.float32)
k = np.ones((2, 2, 17, 8), np.float32)
v = np.ones((2, 2, 17, 5), np.float32)
table = np.ones((32, 4), np.float32)
KEYS = np.ones((2, 17), int)
other = np.dtype(">f4")


def attention(*args, **options):
    return lambda: relpos.attention(*args, **options)


READ_ONLY = np.ones((2, 4, 13, 5), np.float32)
READ_ONLY.flags.writeable = False
plan = relpos.Plan(2, 4, 13, 17, 8, kv_heads=2, dim_v=5)

BAD = [
    (attention(q, k, v[:, :1]), ValueError, r"v: shape is \(2, 1, 17, 5\); it must be \(2, 2, 17, 5\)"),
    (attention(q, k[:1], v), ValueError, r"k: shape is \(1, 2, 17, 8\); it must be \(2, 2, 17, 8\)"),
    (attention(q[:, :3], k,
               v), ValueError, "the number of heads of k is 2; it must divide the number of heads, which is 3"),
    (attention(q[0], k, v), ValueError, "k has 4 axes and q has 3"),
    (attention(q[0, 0], k, v), ValueError, "k has 4 axes and q has 2"),
    (attention(q[None, :], k, v), ValueError, "q has 5 axes, expected 0 to 4"),
    (attention(q[..., :0], k[..., :0], v), ValueError, "the width of q and k is 0"),
    (attention(q[:, :0], k, v), ValueError, "q has an axis of length 0"),
    (attention(q, k[:, :0], v[:, :0]), ValueError, "k has an axis of length 0"),
    (attention(q, k, v[..., :0]), ValueError, "v has an axis of length 0"),
    (attention(q, k.astype(float), v), TypeError, "k has elements of f64 and q of f32"),
    (attention(q.astype(int), k.astype(int),
               v.astype(int)), TypeError, "q has elements of i64, expected f32, f64, f16 or bf16"),
    (attention(q.astype(complex), k, v), TypeError, 'q has elements of complex128'),
    (attention(q.astype(other), k, v), TypeError, 'q has elements of format ">f"'),
    (attention(q, k, v, out=np.empty(
        (2, 4, 13, 10), np.float32)[..., ::2]), ValueError, "out: the stride of the last axis is 2; it must be 1"),
    (attention(np.zeros((2, 4, 13, 8), [("x", "f4"), ("y", "i1")])["x"], k, v), ValueError,
     "q: the stride of axis 3 is 5 bytes, not a multiple of the element size, 4; pass a copy"),
    (attention([[1.0]], k, v), TypeError, "q is of type list: expected a NumPy array or a torch tensor"),
    (attention(q, k, None), TypeError, "v is of type NoneType"),
    (attention(q, k, v, bias=table), TypeError,
     r"^bias is of type ndarray, expected a term; use relpos.Dense\(x\) to add an array x"),
    (attention(q, k, v,
               bias=[[0.0] * 17] * 13), TypeError, r"^bias is of type list, expected a term; use relpos.Dense\(x\)"),
    (attention(q, k, v,
               bias=[relpos.ALiBi()]), TypeError, r"^bias is of type list, expected a term; use sum\(terms\)"),
    (attention(q, k, v, bias=0.5), TypeError,
     r"^bias is of type float, expected a term or a sum of terms, such as relpos.T5\(table\)"),
    (attention(q, k, v, bias=relpos.ALiBi), TypeError,
     r"^bias is the class relpos.ALiBi, expected a term; use relpos.ALiBi\(\)$"),
    (attention(q, k, v,
               relkey=relpos.RelKey), TypeError, r"use relpos.RelKey\(table, left=..., right=...\)$"),
    (attention(q, k, v,
               relkey=table), TypeError, r"^relkey is of type ndarray, expected a term; use relpos.RelKey\(x, left"),
    (attention(q, k, v,
               relval=table), TypeError, r"^relval is of type ndarray, expected a term; use relpos.RelValue\(x, left"),
    (attention(q, k, v, sink=table[0]), TypeError, r"^sink is of type ndarray, expected a term; use relpos.Sink\(x\)"),
    (attention(q, k, v, rope=table), TypeError, r"^rope is of type ndarray, expected a term; use relpos.RoPE\(\)"),
    (attention(q, k, v, bias=relpos.RoPE()), TypeError, "bias: RoPE is not allowed here; pass it as rope="),
    (attention(q, k, v, rope=relpos.ALiBi()), TypeError, "rope: ALiBi is not allowed here; pass it as bias="),
    (attention(q, k, v, relval=relpos.Sink(table[0])), TypeError, "relval: Sink is not allowed here; pass it as sink="),
    (attention(q, k, v,
               bias=sum([relpos.ALiBi()] * 17)), ValueError, "bias: the call has more than 16 terms; use at most 16"),
    (attention(q, k, v, rope=relpos.RoPE() + relpos.RoPE()), ValueError, "RoPE was given twice; give it once"),
    (attention(q, k, v,
               bias=relpos.T5(table[:, :3])), ValueError, r"^T5\(table\): shape is \(32, 3\); it must be \(32, 4\)"),
    (attention(q, k, v, bias=relpos.T5(table.astype(int))), TypeError, r"^T5\(table\): dtype is i64"),
    (attention(q, k, v, bias=relpos.T5([1.0])), TypeError, r"^T5\(table\) is of type list"),
    (attention(q, k, v, bias=relpos.Fire(table[:0, :1], table[0], table, table[0], c=1,
                                         L=1)), ValueError, "^Fire: the shape of its array w1"),
    (attention(q, k, v, key_mask=KEYS[:, :3]), ValueError, r"^key_mask: shape is \(2, 3\); it must be \(2, 17\)"),
    (attention(q, k, v, key_mask=k[:, 0, :, 0]), TypeError, "^key_mask has elements of f32, expected bool or integers"),
    (attention(q, k, v, mask=True), TypeError, "mask is of type bool"),
    (attention(q, k, v, mask=[True, False]), ValueError, r"^mask: shape is \(2\); it must be \(2, 4, 13, 17\)"),
    (attention(q, k, v, key_mask=[[None] * 17]), TypeError, 'key_mask has elements of format "O"'),
    (attention(q, k, v, lengths=[3, 18]), ValueError, "^lengths contains 18, expected 0 to 17, the number of keys"),
    (attention(q, k, v, lengths=np.array([3, -1], np.int8)), ValueError, "^lengths contains -1, expected 0 to 17"),
    (attention(q, k, v,
               lengths=np.array(2**63 + 5,
                                np.uint64)), ValueError, "^lengths contains 9223372036854775807, expected 0 to 17"),
    (attention(q, k, v, lengths=[3.0, 4.0]), TypeError, "lengths"),
    (attention(q, k, v,
               mask=np.where(np.tri(13, 17), 0,
                             -10000)), ValueError, r"^mask contains -10000, expected 0.*bias=relpos.Dense\(mask\)"),
    (attention(q, k, v, key_mask=-KEYS.astype(np.int8)[:, ::-1]), ValueError,
     r"^key_mask contains -1,.*Dense\(key_mask\[:, None, None\]\)"),
    (attention(q, k, v, mask=np.zeros(
        (13, 17), np.float16)), TypeError, r"^mask has elements of f16, expected bool.*bias=relpos.Dense\(mask\)"),
    (attention(np.ma.array(q), k, v), TypeError, "q is of type MaskedArray: relpos does not read its mask"),
    (attention(q, k, v,
               bias=relpos.Dense(np.ma.array(q[..., :1]))), TypeError, r"Dense\(bias\) is of type MaskedArray"),
    (attention(q, k, v, causal="False"), TypeError, "causal is of type str: expected True or False"),
    (attention(q, k, v, causal=[]), TypeError, "causal is of type list: expected True or False"),
    (attention(q, k, v, return_weights="no"), TypeError, "return_weights is of type str"),
    (attention(q[:, :, :1], k, v,
               causal=True), ValueError, "causal=True with one query and 17 keys; pass q_offset=16 if"),
    (lambda: relpos.attention_backward(q[:, :, :1, :5], q[:, :, :1], k, v, causal=True), ValueError,
     "causal=True with one query and 17 keys"),
    (lambda: relpos.explain(q[:, :, :1], k, v, causal=True), ValueError, "causal=True with one query and 17 keys"),
    (lambda: relpos.Plan(2, 4, 1, 17, 8, kv_heads=2, dim_v=5, causal=True)
     (q[:, :, :1], k, v), ValueError, "causal=True with one query"),
    (attention(q, k, v,
               is_causal=True), TypeError, "^attention.. got an unexpected keyword argument 'is_causal'; use causal"),
    (attention(q, k, v,
               attn_mask=KEYS), TypeError, "'attn_mask'; use mask, true for pairs that attend, or bias=relpos.Dense"),
    (attention(q, k, v, sofcap=1), TypeError, "'sofcap'; did you mean softcap"),
    (lambda: relpos.attention_backward(q[..., :5], q, k, v, is_causal=True), TypeError,
     'unknown argument "is_causal"; use causal'),
    (lambda: relpos.Plan(2, 4, 13, 17, 8, windw=(1, 1)), TypeError, 'unknown argument "windw"; did you mean window'),
    (lambda: relpos.T5(table, num_buckets=32), TypeError, "T5: unknown argument 'num_buckets'; use buckets"),
    (lambda: relpos.RoPE(theta=1e4), TypeError, "RoPE: unknown argument 'theta'; use base"),
    (lambda: relpos.ALiBi().matrix(4), TypeError,
     r"matrix: relpos.ALiBi\(\) depends on the number of heads; pass it, as in heads=8"),
    (lambda: (relpos.LogDecay() + relpos.ALiBi()).matrix(4, 5), TypeError, "depends on the number of heads"),
    (attention(k.swapaxes(1, 2), k.swapaxes(1, 2), k.swapaxes(1, 2), bias=relpos.T5(table[:, :2])), ValueError,
     r"^T5\(table\): shape is \(32, 2\); it must be .*with H = 17 and L = 2; "
     r"if it is \(B, L, H, D\), add layout=\"blhd\""
     ), (attention(q, k, v, layout="lbhd"), ValueError, "layout is 'lbhd', expected \"bhld\" or \"blhd\""),
    (attention(q[0, 0], k[0, 0], v[0, 0], layout="blhd"), ValueError, 'q has 2 axes; with layout="blhd", expected'),
    (lambda: relpos.attention_backward(q[..., :5], q, k, v, scale=np.ones(3)), ValueError,
     r"scale has shape \(3,\) with q"),
    (lambda: relpos.attention_backward(q[..., :5], q, k, v, scale=2.0, wanted=("q", "scale")), TypeError,
     "^relpos.attention_backward: wanted contains 'scale', but the scale is no array; pass an array of floating-point"),
    (lambda: relpos.attention_jvp(q, k, v, (None, None, None, ({"scale": np.ones(3)},)), scale=np.ones(4)), ValueError,
     r"the tangent of scale: shape is \(3,\); it must be \(4,\), perhaps with a leading axis of the batch"),
    (lambda: relpos.attention_hvp(q[..., :5], q, k, v, (None, None, None, ({"scale": 1.0},)), scale=np.ones(4)),
     TypeError, r"tangent of scale is of type float, expected ndarray"),
    (lambda: relpos.attention_jvp(q, k, v, (q[1:], None, None), scale=np.ones(4)), ValueError,
     "the tangent of q: shape is"),
    (lambda: relpos.attention_jvp(q, k, v, q, scale=np.ones(4)), TypeError, "tangents"),
    (lambda: relpos.Plan(2, 4, 13, 17, 8, scale=np.ones(4)), TypeError, "relpos.Plan: scale is an array of shape"),
    (lambda: relpos.explain(q, k, v, scale=np.ones(4)), TypeError, "relpos.explain: scale is an array of shape"),
    *[(lambda call=call, name=name: call(**{name: True}), TypeError,
       f'unknown argument "{name}"; only relpos.attention and the calls of a Plan have it')
      for name in ("return_lse", "return_weights", "summary", "key_norms")
      for call in (lambda **x: relpos.attention_backward(q[..., :5], q, k, v, **x),
                   lambda **x: relpos.attention_jvp(q, k, v, (q, None, None), **x),
                   lambda **x: relpos.attention_hvp(q[..., :5], q, k, v, (q, None, None), **x),
                   lambda **x: relpos.explain(q, k, v, **x), lambda **x: relpos.Plan(2, 4, 13, 17, 8, **x))],
    (lambda: relpos.Plan(2, 4, 13, 17, 8, layout="blhd"), TypeError,
     r'unknown argument "layout"; use views with the axes \(B, H, L, D\), such as x.swapaxes\(1, 2\)'),
    (lambda: relpos.attention_jvp(q, k, v, (q, None, None), layout="x"), ValueError, "layout is 'x', expected"),
    (lambda: relpos.attention_hvp(q[..., :5], q, k, v, (q[0, 0], None, None), layout="blhd"), ValueError,
     'tangents.q has 2 axes; with layout="blhd", expected'),
    (attention(q, k, v, scale=np.arange(4)), TypeError,
     r"scale is an array of shape \(4,\) with elements int64, expected floating-point numbers"),
    (lambda: relpos.LogDecay([0.1, 0.2]), TypeError,
     "^LogDecay: lambda_ is a list of 2 elements, expected a number, a NumPy array or a torch tensor"),
    (lambda: relpos.Linear(left=(1, 2)), TypeError, "^Linear: left is a tuple of 2 elements, expected a number$"),
    (lambda: relpos.LogDecay(np.arange(4)), TypeError,
     r"^LogDecay: lambda_ is an array \(ndarray with 1 axes\), expected a number, or floating-point numbers \(H\), "
     r"but its elements are int64"),
    (attention(q, k, v, bias=relpos.LogDecay(np.ones(3))), ValueError,
     r"^LogDecay\(lambda_\): shape is \(3\); it must be \(4\), or one that broadcasts to it"),
    (attention(q, k, v, bias=relpos.Band(q[:1, :, :, :3], np.ones((4, 3, 5)))), ValueError,
     r"^Band\(r\): shape is \(1, 4, 13, 3\); it must be \(2, 4, 13, 3\), or 1 on axis 1$"),
    (attention(q, k, v, window=3), TypeError,
     r"window is of type int: expected \(left, right\), integers or None; for 3 on both sides use window=\(3, 3\)$"),
    (attention(q, k, v, window=np.int64(4)), TypeError, r"window is of type int64: .* use window=\(4, 4\)$"),
    (attention(q, k, v, window=-4), TypeError, r"window is of type int: expected \(left, right\), integers or None$"),
    (attention(q, k, v, bias=[relpos.ALiBi]), TypeError,
     r"^bias is of type list, .*contains the class relpos.ALiBi: use relpos.ALiBi\(\)$"),
    (attention(q, k, v,
               window=True), TypeError, r"window is of type bool: expected \(left, right\), integers or None$"),
    (attention(q, k, v, window=(1, 2, 3)), TypeError, "window is of type tuple"),
    (attention(q, k, v, window=(-2, 1)), ValueError, "^window: left is -2; it must be -1 or more"),
    (attention(q, k, v, window=("a", 1)), TypeError, "window is of type str: expected an integer"),
    (attention(q > 0, k > 0, v > 0), TypeError, "q has elements of bool, expected f32, f64, f16 or bf16"),
    (attention(q, k.astype("M8[s]"), v), TypeError, r"k has elements of dtype datetime64\[s\]; convert"),
    (attention(q, k, v, causal=q), TypeError, "causal is of type ndarray: expected True or False"),
    (attention(q, k, v, return_lse=q), TypeError, "return_lse is of type ndarray: expected True or False"),
    (attention(q, k, v, scale=float("-inf")), ValueError, "scale is -inf, expected -1e20 to 1e20, or None"),
    (attention(q, k, v, scale=float("nan")), ValueError, "scale is nan, expected -1e20 to 1e20, or None"),
    (attention(q, k, v, scale="big"), TypeError, "scale is of type str: expected a number"),
    (attention(q, k, v, scale=1e30), ValueError, r"scale is 1e\+30; it must be -1e20 to 1e20"),
    (attention(q, k, v, softcap=-1), ValueError, "softcap is -1; it must be 0"),
    (attention(q, k, v, dropout=1.0), ValueError, "dropout is 1; it must be at least 0"),
    (attention(q, k, v, seed=-1), ValueError, "seed is -1, expected 0 to"),
    (attention(q, k, v, seed=1.5), TypeError, "seed is of type float: expected an integer"),
    (attention(q, k, v, q_offset=2.5), TypeError, "q_offset is of type float"),
    (attention(q, k, v, q_offset=2**70), ValueError, "q_offset does not fit in 64 bits"),
    (attention(q, k, v, threads=0), ValueError, "threads is 0, expected 1 to 4096"),
    (attention(q, k, v, threads="2"), TypeError, "threads is of type str"),
    (attention(q, k, v, threads=[]), TypeError, "threads is of type list: expected an integer"),
    (lambda: (relpos.attention(q, k, v, threads=2), relpos.attention(q, k, v, threads=2.0)), TypeError,
     "threads is of type float"),
    (attention(q, k, v, out=READ_ONLY), ValueError, r"out is read-only \(ndarray\); pass a writable array"),
    (attention(q, k, v, out=b"out"), ValueError, r"out is read-only \(bytes\)"),
    (attention(q, k, v, precision="low"), ValueError, "precision is 'low', expected \"highest\" or \"high\""),
    (attention(q, k, v, out=q), ValueError, r"out: shape is \(2, 4, 13, 8\); it must be \(2, 4, 13, 5\)"),
    (attention(q, k, k, out=q), ValueError, "out.*overlaps"),
    (attention(q, k, v, out=q[0]), ValueError, "out has 3 axes, expected 4 as in q"),
    (attention(q, k, v, biass=1), TypeError, "biass"),
    (attention(q, k), TypeError, "missing 1 required positional argument: 'v'"),
    (lambda: relpos.attention_backward(q, q, k, v), ValueError,
     r"dout: shape is \(2, 4, 13, 8\); it must be \(2, 4, 13, 5\)"),
    (lambda: relpos.attention_backward(None, q, k, v), TypeError, "dout is of type NoneType"),
    (lambda: relpos.attention_backward(q, q, k, v, return_lse=True), TypeError, 'unknown argument "return_lse"'),
    (lambda: relpos.attention_backward(q[..., :5], q, k, v, wanted=3), TypeError,
     "wanted is of type int: expected a collection"),
    (lambda: relpos.attention_backward(q[..., :5], q, k, v, wanted=("Q", )), ValueError,
     "wanted contains 'Q'; use \"q\", \"k\", \"v\" or"),
    (lambda: relpos.attention_backward(q[..., :5], q, k, v, wanted=("table", )), ValueError, "wanted contains 'table'"),
    (lambda: relpos.attention_backward(q[..., :5], q, k, v, wanted="q"), TypeError,
     "wanted is of type str: expected a collection"),
    (lambda: relpos.attention_backward(q[..., :5], q, k, v, wanted=("q", 1)), TypeError,
     "wanted is of type int: expected names"),
    (lambda: relpos.explain(q, k, v, query=13), ValueError,
     "batch entry 0, head 0, query 13 do not exist; there are 2, 4 and 13"),
    (lambda: relpos.explain(q, k, v, head=4), ValueError,
     "batch entry 0, head 4, query 12 do not exist; there are 2, 4 and 13"),
    (lambda: relpos.explain(q, k, v, out=q), TypeError, 'unknown argument "out"'),
    (lambda: relpos.bucket([1], buckets=3), ValueError, "buckets is 3"),
    (lambda: relpos.bucket([1], strategy="cubic"), ValueError,
     'strategy is "cubic"; it must be one of log, uniform, linear, quadratic'),
    (lambda: relpos.bucket([1.7]), TypeError, r"offsets has elements of float64, expected integers"),
    (lambda: relpos.T5(), TypeError, "missing 1 required positional argument: 'table'"),
    (lambda: relpos.Table(table), TypeError, "missing 2 required keyword-only arguments: 'left' and 'right'"),
    (lambda: relpos.T5(table, bucket=3), TypeError, "bucket"),
    (lambda: relpos.T5(table, buckets="many"), ValueError, '^T5: buckets is "many"; it must be a whole number'),
    (lambda: relpos.Kerple(table[0], table[0], kind="cubic"), ValueError,
     'kind is "cubic"; it must be one of log, power'),
    (lambda: relpos.LogDecay(float("nan")), ValueError, 'lambda is "nan"; it must be a decimal number'),
    (lambda: relpos.ALiBi() + 3, TypeError, "unsupported operand"),
    (lambda: relpos.RoPE().matrix(3), TypeError, "bias: RoPE is not allowed here; pass it as rope="),
    (lambda: relpos.ALiBi().matrix(-1), ValueError, "the number of queries is -1"),
    (lambda: relpos.Plan(1, 2, 3, 4, 8, dtype="int8"), ValueError, "dtype is 'int8'"),
    (lambda: relpos.Plan(1, 2, 3, 4, 8.5), TypeError, "dim is of type float: expected an integer"),
    (lambda: relpos.Plan(1, 2, 3, 4, 8, kv_heads=3), ValueError, "kv_heads is 3"),
    (lambda: relpos.Plan(2, 4, 13, 17, 8, dim_v=5)
     (q, k, v, key_mask=k), TypeError, "key_mask belongs to the plan; pass it to relpos.Plan .a call can replace"),
    (lambda: plan(q, k, v, causal=True), TypeError, "causal belongs to the plan; pass it to relpos.Plan"),
    (lambda: plan(q, k, v, bias=relpos.ALiBi()), TypeError, "bias belongs to the plan"),
    (lambda: plan(q, k, v, scale=1.0), TypeError, "scale belongs to the plan"),
    (lambda: relpos.Plan(2, 4, 13, 16, 8, kv_heads=2, dim_v=5)
     (q, k, v), ValueError, "k: the length is 17; it must be 0 to 16, the length of the plan"),
    (lambda: relpos.Plan(2, 4, 13, 17, 8, kv_heads=2, dim_v=5, dtype="float64")(q, k, v), TypeError, "dtype is f32"),
]


C_NAMES = re.compile(r"\b(terms?|masks?)\[\d|\b(desc|tensors|pages)\.[a-z]|\(of [a-z]|\brp_|NULL")


@pytest.mark.parametrize("call, error, text", BAD, ids=[text for *_, text in BAD])
def test_a_wrong_argument_is_refused_in_words_of_python(call, error, text):
    with pytest.raises(error, match=text) as caught:
        call()
    said = str(caught.value)
    assert "\n" not in said and not C_NAMES.search(said)


def test_no_code_runs_between_the_reading_of_names_and_the_work():
    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            raise AssertionError("asked")

    g = relpos.attention_backward(q[..., :5], q, k, v, wanted=iter([Name("q")]))
    assert g.q.shape == q.shape and g.k is None


def test_plot_without_matplotlib(monkeypatch):
    import sys
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        relpos.ALiBi().plot()


def test_ctypes():
    import ctypes
    x = np.ones((1, 1, 2, 4), np.float32)
    mask = (ctypes.c_bool * 2)(True, True)
    np.testing.assert_array_equal(relpos.attention(x, x, x, mask=mask), relpos.attention(x, x, x))
    out = (ctypes.c_float * 4 * 2 * 1 * 1)()
    assert relpos.attention(x, x, x, out=out) is out and out[0][0][1][3] == 1


def test_bfloat16_of_another_byte_order():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.ones((1, 1, 2, 4), ml_dtypes.bfloat16)
    other = x.astype(x.dtype.newbyteorder())
    if other.dtype.isnative:
        pytest.skip("NumPy keeps one order of bytes of bfloat16")
    with pytest.raises((TypeError, ValueError), match="bfloat16|dtype"):
        relpos.attention(other, x, x)


# ---- every array of every term and mask, with a wrong shape and with a wrong type

def wrong_arrays():
    """Yield (start of the message, keyword, class, arguments) with a wrong array, for each array of every term and
    mask."""
    from relpos import _core, _terms
    for cls in relpos.TERMS.values():
        facts = _terms._BY_CLASS[cls]
        numbers = {_terms._KEYWORDS.get(k, k): x for k, x in _terms._params("," + facts["samples"][0]).items() if k}
        for array in facts["arrays"]:
            for bad in np.zeros((1, 1, 1, 1, 3), np.float32)[0], np.zeros((1, 3), "complex64"), "text":
                others = {
                    a["name"]: np.zeros((7, 7, 7, 7), np.float32)
                    for a in facts["arrays"] if a["presence"] == "needed"
                }
                yield f"{cls.__name__}(", facts["keyword"], cls, {**others, **numbers, array["name"]: bad}
    kind = 1
    while (info := _core.mask_info(kind)) is not None:
        if info[2]:
            for bad in np.zeros((5, 5, 5, 5), bool), np.zeros((2, 17), np.float32), "text":
                yield info[0], None, None, {info[0]: bad}
        kind += 1


def test_every_array_is_named_as_it_was_given():
    seen = set()
    for named, keyword, cls, arrays in wrong_arrays():
        with pytest.raises((TypeError, ValueError)) as caught:
            relpos.attention(q, k, v, **({keyword: cls(**arrays)} if cls else arrays))
        said = str(caught.value)
        assert said.startswith((named, named.replace("(", ": "))), said
        assert not C_NAMES.search(said), said
        seen.add(named)
    assert len(seen) > 20


# ---- every number of every term and every option, with values of wrong types

def wrong_numbers():
    torch = pytest.importorskip("torch")
    return {
        "array": np.arange(6.0).reshape(2, 3), "vector": np.ones(1), "complex array": np.ones(
            (2, 3), complex), "tensor": torch.ones(2,
                                                   3), "meta": torch.ones(2, device="meta"), "meta number": torch.ones(
                                                       (), device="meta"), "sparse": torch.eye(3).to_sparse(),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "fp8": torch.ones(2, 3).to(torch.float8_e4m3fn), "text": "x", "bytes": b"x", "dict": {}, "function": len,
        "complex": 1j, "object": np.array([object()]), "Fraction": object(), "None": None
    }


def numbers_of_terms():
    from relpos import _terms
    for cls in relpos.TERMS.values():
        facts = _terms._BY_CLASS[cls]
        sample = {_terms._KEYWORDS.get(k, k): x for k, x in _terms._params("," + facts["samples"][0]).items() if k}
        arrays = {a["name"]: np.zeros((7, 7), np.float32) for a in facts["arrays"] if a["presence"] == "needed"}
        for p in facts["parameters"]:
            yield cls, _terms._KEYWORDS.get(p["key"], p["key"]), {**arrays, **sample}


@pytest.mark.filterwarnings("ignore")
def test_every_number_of_a_term_is_named():
    """Values that are no numbers raise when the term is made or used, and the error has the name of the term and of the
    number."""
    seen = 0
    for cls, name, others in numbers_of_terms():
        for kind, bad in wrong_numbers().items():
            if cls is relpos.LogDecay and kind == "vector":
                continue  # one number for each head
            with pytest.raises((TypeError, ValueError)) as caught:
                cls(**{**others, name: bad})
            said = str(caught.value)
            assert cls.__name__ in said and re.search(rf"\b{name.rstrip('_')}_?\b", said) and "\n" not in said, (kind,
                                                                                                                 said)
            assert "truth value" not in said and "ambiguous" not in said
            seen += 1
    assert seen > 500


@pytest.mark.filterwarnings("ignore")
def test_every_option_is_named():
    """Every option of attention with a value of every wrong type works, or raises an error of one line with the
    option's name."""
    import inspect
    torch = pytest.importorskip("torch")
    refused = 0
    for name in inspect.signature(relpos.attention).parameters:
        for kind, bad in {**wrong_numbers(), "ragged list": [[1, 2], [3]]}.items():
            for arrays in ((q, k, v), tuple(map(torch.from_numpy, (q, k, v)))):
                given = dict(zip("qkv", arrays)) | {name: bad}
                if name == "progress" and kind == "function" or arrays[
                        0] is not q and "meta" in kind:  # len is a function; meta tensors give meta results
                    continue
                try:
                    relpos.attention(**given)
                except (TypeError, ValueError) as error:
                    said = str(error)
                    assert re.search(rf"\b{name}\b", said) and "\n" not in said, (name, kind, said)
                    assert "truth value" not in said and "ambiguous" not in said
                    refused += 1
    assert refused > 500


def test_positional_arguments_are_explained():
    for call in (lambda x: relpos.attention(q, k, v, x), lambda x: relpos.attention(q, k, v, None, x),
                 lambda x: relpos.explain(q, k, v, x), lambda x: relpos.attention_backward(q[..., :5], q, k, v, x)):
        for x in np.tri(13, 17) > 0, relpos.ALiBi(), 0.5:
            with pytest.raises(
                    TypeError, match=
                    r"takes only (dout, )?q, k and v by position, but got [12] more .*mask=x.*bias=relpos.Dense\(x\)"):
                call(x)


def test_types_of_elements_are_named():
    torch = pytest.importorskip("torch")
    small = [
        getattr(torch, name) for name in dir(torch)
        if name.startswith("float8_") and isinstance(getattr(torch, name), torch.dtype)
    ]
    assert len(small) >= 4
    for dtype in (torch.complex32, torch.complex64, torch.complex128, *small):
        with pytest.warns() if dtype == torch.complex32 else warnings.catch_warnings():
            x = torch.empty(1, 2, 3, 8, dtype=dtype)
        for call in (lambda: relpos.attention(x, x, x), lambda: relpos.attention(q, k, v, bias=relpos.Dense(x))):
            with pytest.raises(TypeError,
                               match=rf"has elements of {str(dtype)[6:]}; convert.*(real part|torch.float32)"):
                call()
    for dtype in "complex64", "complex128":
        with pytest.raises(TypeError, match=f"^v has elements of {dtype}; convert.*real part"):
            relpos.attention(q, k, v.astype(dtype))


def test_masks_of_integers_in_torch():
    """torch refuses masks of integers; an int mask could mean either."""
    torch = pytest.importorskip("torch")
    import relpos.torch as rt
    x, mask = torch.randn(2, 3, 8), torch.tensor([[1, 0, 1]] * 3)
    heads, rel = x.unflatten(-1, (2, 4)).transpose(1, 2), rt.AdditiveRelMultiheadAttention(8, 2, max_distance=2)
    for sense, name, call in (
        ("attends", "attn_mask", lambda m: rt.scaled_dot_product_attention(heads, heads, heads, m)),
        ("masked", "attn_mask", lambda m: rel(x, x, x, attn_mask=m)),
        ("masked", "attn_mask", lambda m: rt.RoPEMultiheadAttention(8, 2)
         (x, x, x, attn_mask=m)), ("masked", "key_padding_mask", lambda m: rel(x, x, x, key_padding_mask=m[:2])),
        ("attends", "mask", lambda m: rt.T5Attention(8, 2)
         (x, m)), ("masked", "mask", lambda m: rt.RelativePositionBiasAttention(8)(x, x, x, m)),
        ("attends", "mask",
         lambda m: rt.cross_attention_with_bias(heads, heads, heads, rt.RelativePositionalBias(2), m))):
        for dtype in torch.int64, torch.uint8, torch.complex64:
            with pytest.raises(
                    TypeError, match=
                    rf"^{name} has elements of {str(dtype)[6:]}, expected bool \(True = {sense}\) or floating-point"):
                call(mask.to(dtype))
        call(mask.bool())
        call(torch.zeros(3, 3))
    for name in "q_position_mask", "k_position_mask":
        for module in rel, rt.AdditivePosMultiheadAttention(8, 2, max_len=4), rt.RoPEMultiheadAttention(8, 2):
            with pytest.raises(TypeError, match=f"^{name} is of type int64, expected a bool tensor"):
                module(x, x, x, **{name: mask[0]})


def test_fewer_causal_queries_than_keys():
    """Libraries differ: torch aligns the queries with the first keys, and flash-attn with the last."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        want = relpos.attention(q, k, v, causal=True, q_offset=0)
        relpos.attention(k, k, k, causal=True)
        relpos.attention(q, k, v)
    with pytest.warns(
            UserWarning,
            match="causal=True with 13 queries and 17 keys aligns the queries with the first keys; pass q_offset=4 if "
            "they are the last.*q_offset=0 if they are the first") as told:
        np.testing.assert_array_equal(relpos.attention(q, k, v, causal=True), want)
    assert told[0].filename == __file__
    for call in (lambda: relpos.explain(q, k, v, causal=True),
                 lambda: relpos.attention_backward(q[..., :5], q, k, v, causal=True),
                 lambda: relpos.Plan(2, 4, 13, 17, 8, kv_heads=2, dim_v=5, causal=True)(q, k, v)):
        with pytest.warns(UserWarning, match="causal=True with 13 queries and 17 keys"):
            call()
