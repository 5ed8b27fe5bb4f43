#!/usr/bin/env python3
"""make_torch_terms.py -- every position term and mask of the contract, from its formula, with gradients by autograd.

The numbers come from contract.py in float64, because no peer has these terms or their gradients on a CPU. Kinks
(|r| = 0, clamps, ReLU) have no effect: random values do not hit them, and integer offsets have no gradient.

SPDX-License-Identifier: Apache-2.0
"""
import torch

from common import Family, randn, seed

F = Family("terms")
TOL = 1e-12                      # sums of a few dozen products of order one in f64; exp and log add a few ulp
ALL = " --weights --lse --grad"


def base(name, B=1, H=2, Hk=None, Lq=7, Lk=9, D=2, Dv=None):
    seed(name)
    Hk, Dv = Hk or H, Dv or D
    return {"q": randn(B, H, Lq, D), "k": randn(B, Hk, Lk, D), "v": randn(B, Hk, Lk, Dv), "dout": randn(B, H, Lq, Dv)}


def case(name, arguments, more=None, tolerance=TOL, stored=None, flags=ALL, **shape):
    """Write a case. `more()` returns the arrays other than q, k, v and dout, and is called after these are drawn."""
    name = "terms_" + name
    arrays = base(name, **shape)
    arrays.update(more() if more else {})
    F.case(name, tolerance, arguments + flags, arrays, stored=stored(arrays) if stored else None)


def ints(*rows):
    return torch.tensor(rows if isinstance(rows[0], (list, tuple)) else list(rows), dtype=torch.int64)


def positive(*shape):
    return torch.rand(*shape, dtype=torch.float64) + 0.25


# ---------------------------------------------------------------------------------- no term: shapes, scales, masks

case("plain", "")
case("plain_shapes", "", B=2, H=4, Hk=2, Lq=5, Lk=11, D=6, Dv=3)
case("one_query", "--causal --q-offset 8", Lq=1)
case("one_key", "", Lk=1)
case("long_rows", "", H=1, Lq=11, Lk=40, D=8)
case("scale_one", "--scale 1")
case("gqa", "", H=4, Hk=2, D=3)
case("mqa_dv", "--causal --q-offset 2", H=4, Hk=1, D=4, Dv=7)
case("causal", "--causal")
case("causal_offset", "--causal --q-offset 2")
case("causal_offset_negative", "--causal --q-offset -3")                      # queries 0 to 2 have no key
case("causal_offset_batch", "--causal --q-offset off", lambda: {"off": ints(3, -2)}, B=2)
case("window", "--window 2,1")
case("window_left", "--window 3,-1 --q-offset 1")
case("window_right", "--window -1,0")
case("window_causal", "--causal --window 2,4 --q-offset 5")
# entry 1: no keys
case("key_mask", "--key-mask keep", lambda: {"keep": ints([1, 1, 0, 1, 0, 1, 1, 1, 0], [0] * 9)}, B=2)
case("mask_full", "--mask keep", lambda: {"keep": torch.rand(2, 2, 7, 9) > 0.4}, B=2)
case("mask_rows", "--mask keep", lambda: {"keep": torch.rand(7, 9) > 0.5}, B=2)
case("mask_batch", "--mask keep", lambda: {"keep": torch.rand(2, 1, 1, 9) > 0.4}, B=2)
case("mask_empty_rows", "--mask keep", lambda: {"keep": (torch.arange(7) % 3 != 1)[:, None].expand(7, 9)})
case("lengths", "--lengths n --causal --q-offset 2", lambda: {"n": ints(4, 9, 0)}, B=3)
case("segments", "--segments seg", lambda: {"seg": ints([0, 0, 0, 1, 1, 2, 2, 2, 2])}, Lq=9)
case("segments_causal_alibi", "--segments seg --causal --bias alibi",
     lambda: {"seg": ints([0, 0, 0, 1, 1, 2, 2, 2, 2], [5, 5, 5, 5, 5, 5, 5, 7, 7])}, B=2, Lq=9)
case("masks_together", "--causal --window 5,-1 --key-mask keep --mask pair --lengths n --q-offset 1",
     lambda: {"keep": ints([1, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9), "pair": torch.rand(1, 2, 7, 9) > 0.2,
              "n": ints(8, 5)}, B=2)


def poison(arrays):
    """NaN and infinities in masked tokens must not reach the result."""
    k, v = arrays["k"].clone(), arrays["v"].clone()
    k[:, :, 4:], v[:, :, 4], v[:, :, 5:] = float("nan"), float("inf"), float("nan")
    return {"k": k, "v": v}


case("masked_nan", "--lengths n", lambda: {"n": ints(4)}, stored=poison)
def poison_pairs(arrays):
    """NaN in every pair that the causal mask hides, and in the query without keys."""
    bias, q = arrays["bias"].clone(), arrays["q"].clone()
    bias[torch.ones(7, 9, dtype=torch.bool).triu(0).expand_as(bias)], q[:, :, 0] = float("nan"), float("nan")
    return {"bias": bias, "q": q}


case("masked_nan_bias", "--bias dense,bias=bias --causal --q-offset -1",
     lambda: {"bias": randn(1, 2, 7, 9)}, stored=poison_pairs)
case("softcap", "--softcap 1.5")
case("softcap_zero", "--softcap 0")
case("sink", "--sink s", lambda: {"s": randn(2)})
case("sink_rows", "--sink s", lambda: {"s": randn(2, 7)})
case("sink_rows_of_entries", "--sink s --causal --q-offset -3", lambda: {"s": randn(2, 2, 7)}, B=2)
case("sink_empty_rows", "--sink s --causal --q-offset -3", lambda: {"s": randn(2)})        # lse is the sink itself
case("summary", "--causal --q-offset 2", flags=" --weights --summary", B=2)
case("summary_alibi_offsets", "--bias alibi --causal --q-offset off",
     lambda: {"off": ints(1, -3)}, flags=" --weights --summary", B=2)

# ---------------------------------------------------------------------------------- tables and buckets

case("table", "--bias table,table=t,left=3,right=2", lambda: {"t": randn(2, 6)})
case("table_shared", "--bias table,table=t,left=3,right=2 --q-offset 1", lambda: {"t": randn(1, 6)})
case("table_wide", "--bias table,table=t,left=20,right=20", lambda: {"t": randn(2, 41)})
case("table_left_only", "--bias table,table=t,left=4,right=0 --causal", lambda: {"t": randn(2, 5)})
case("table_positions", "--bias table,table=t,left=3,right=3,q_positions=qp,k_positions=kp",
     lambda: {"t": randn(2, 7), "qp": ints(5, 0, 1, 9, 2, 2, 7), "kp": ints(3, 4, 0, 1, 8, 2, 2, 9, 6)})
case("table_positions_real", "--bias table,table=t,left=3,right=3,q_positions=qp,k_positions=kp",
     lambda: {"t": randn(2, 7), "qp": randn(2, 7, scale=3), "kp": randn(2, 9, scale=3)}, B=2)
case("table_positions_offset", "--bias table,table=t,left=4,right=4,q_positions=qp --causal --q-offset 3",
     lambda: {"t": randn(2, 9), "qp": ints(5, 0, 1, 9, 2, 2, 7)})              # the offset moves only the mask
case("t5_both", "--bias t5,table=t --scale 1", lambda: {"t": randn(32, 2)}, Lq=8, Lk=40)
case("t5_causal", "--bias t5,table=t,buckets=16,max_distance=20,bidirectional=0 --causal --q-offset 32",
     lambda: {"t": randn(16, 2)}, Lq=8, Lk=40)
case("t5_offset_batch", "--bias t5,table=t,buckets=8,max_distance=16 --q-offset off",
     lambda: {"t": randn(8, 2), "off": ints(-4, 11)}, B=2)
case("t5_shared_heads", "--bias t5,table=t,buckets=8,max_distance=16", lambda: {"t": randn(8, 1)})
case("t5_positions_real", "--bias t5,table=t,buckets=8,max_distance=16,q_positions=qp,k_positions=kp",
     lambda: {"t": randn(8, 2), "qp": randn(7, scale=8), "kp": randn(9, scale=8)})
for strategy in ("log", "uniform", "linear", "quadratic"):
    case("bucket_" + strategy, "--bias bucket,table=t,strategy=%s,buckets=12,max_distance=18" % strategy,
         lambda: {"t": randn(12, 2)}, Lq=7, Lk=29)
    case("bucket_%s_causal" % strategy,
         "--bias bucket,table=t,strategy=%s,buckets=10,max_distance=21,bidirectional=0 --causal --q-offset 24"
         % strategy,
         lambda: {"t": randn(10, 2)}, Lq=5, Lk=29)

# ---------------------------------------------------------------------------------- functions of the offset

case("log", "--bias log")
case("log_positions", "--bias log,lambda=0.7,q_positions=qp,k_positions=kp",
     lambda: {"qp": randn(7, scale=5), "kp": randn(9, scale=5)})
case("linear", "--bias linear,left=0.5,right=0.125 --q-offset 3")
case("linear_default", "--bias linear")
case("alibi", "--bias alibi --q-offset 1", H=4)
case("alibi_three_heads", "--bias alibi --causal --q-offset 2", H=3)
case("alibi_slopes", "--bias alibi,slopes=m --q-offset off", lambda: {"m": positive(2), "off": ints(4, -5)}, B=2)
case("alibi_positions_real", "--bias alibi,slopes=m,q_positions=qp,k_positions=kp",
     lambda: {"m": positive(2), "qp": randn(2, 7, scale=3), "kp": randn(9, scale=3)}, B=2)
case("alibi_masks", "--bias alibi,slopes=m,q_position_mask=qm,k_position_mask=km --q-offset 2",
     lambda: {"m": positive(2), "qm": torch.rand(2, 7) > 0.3, "km": torch.rand(9) > 0.3}, B=2)
case("kerple_log", "--bias kerple,p=kp,a=ka,kind=log --causal --q-offset 2",
     lambda: {"kp": positive(2), "ka": positive(2)})
case("kerple_default", "--bias kerple,p=kp,a=ka", lambda: {"kp": positive(2), "ka": positive(2)})
case("kerple_power", "--bias kerple,p=kp,a=ka,kind=power", lambda: {"kp": positive(2), "ka": positive(2)})
case("kerple_power_positions", "--bias kerple,p=kp,a=ka,kind=power,q_positions=qp,k_positions=kk",
     lambda: {"kp": positive(2), "ka": positive(2), "qp": randn(7, scale=3), "kk": randn(9, scale=3)})
case("sandwich", "--bias sandwich,dim=8 --causal --q-offset 2", H=4)
case("sandwich_base", "--bias sandwich,dim=6,base=100")


def fire(*widths, heads=2):
    sizes = [1, *widths, heads]
    arrays = {}
    for i in range(len(sizes) - 1):
        arrays["w%d" % (i + 1)], arrays["b%d" % (i + 1)] = randn(sizes[i + 1], sizes[i]), randn(sizes[i + 1])
    return arrays


TWO, THREE = "w1=w1,b1=b1,w2=w2,b2=b2", "w1=w1,b1=b1,w2=w2,b2=b2,w3=w3,b3=b3"
case("fire_two", "--bias fire,%s,c=0.1,L=4 --causal --q-offset 2" % TWO, lambda: fire(8))
case("fire_three", "--bias fire,%s,c=0.3,L=5.5,eps=0.001" % THREE, lambda: fire(6, 5))
case("fire_offsets", "--bias fire,%s,c=1.5,L=2 --causal --q-offset off" % TWO,
     lambda: dict(fire(8), off=ints(2, -2)), B=2)
case("fire_positions", "--bias fire,%s,c=0.5,L=2,q_positions=qp,k_positions=kp" % THREE,
     lambda: dict(fire(6, 5), qp=randn(7, scale=4), kp=randn(9, scale=4)))
case("fire_segments", "--bias fire,%s,c=0.5,L=1 --segments seg --causal" % TWO,
     lambda: dict(fire(8), seg=ints([0, 0, 0, 1, 1, 1, 1, 1, 1])), Lq=9)      # positions restart in each segment

# ---------------------------------------------------------------------------------- grids

case("axial", "--bias axial,bh=bh,bw=bw,grid=3x4", lambda: {"bh": randn(2, 5), "bw": randn(2, 7)}, Lq=12, Lk=12)
case("swin", "--bias swin,table=t,grid=3x4", lambda: {"t": randn(35, 2)}, Lq=12, Lk=12)
case("swin_extra", "--bias swin,table=t,grid=2x4,extra=1", lambda: {"t": randn(24, 2)}, Lq=9, Lk=9)
case("axialkey", "--axialkey rh=rh,rw=rw,grid=4x3", lambda: {"rh": randn(7, 4), "rw": randn(5, 4)}, Lq=12, Lk=12, D=4)
case("axialkey_rope_softcap", "--axialkey rh=rh,rw=rw,grid=2x4 --rope dim=4 --softcap 4",
     lambda: {"rh": randn(3, 4), "rw": randn(7, 4)}, Lq=8, Lk=8, D=4)

# ---------------------------------------------------------------------------------- real positions, bands, gates,
# arrays

case("real", "--bias real,table=t,max_distance=3", lambda: {"t": randn(2, 7)})
case("real_shared_offset", "--bias real,table=t,max_distance=3 --q-offset -2", lambda: {"t": randn(1, 7)})
case("real_positions", "--bias real,table=t,max_distance=4,q_positions=qp,k_positions=kp",
     lambda: {"t": randn(2, 9), "qp": randn(7, scale=3), "kp": randn(9, scale=3)})
case("real_masks",
     "--bias real,table=t,max_distance=4,sign=1,q_positions=qp,k_positions=kp,q_position_mask=qm,k_position_mask=km",
     lambda: {"t": randn(2, 9), "qp": randn(2, 7, scale=3), "kp": randn(2, 9, scale=3),
              "qm": torch.rand(2, 7) > 0.3, "km": torch.rand(2, 9) > 0.3}, B=2)
case("real_mask_q_only", "--bias real,table=t,max_distance=4,q_position_mask=qm --causal --q-offset 2",
     lambda: {"t": randn(1, 9), "qm": torch.arange(7) != 3})
case("band", "--bias band,r=rq,p=pp --causal --q-offset 2", lambda: {"rq": randn(1, 2, 7, 3), "pp": randn(3, 5)})
case("band_heads", "--bias band,r=rq,p=pp", lambda: {"rq": randn(1, 2, 7, 3), "pp": randn(2, 3, 4)})
case("band_gqa_offsets", "--bias band,r=rq,p=pp --q-offset off",
     lambda: {"rq": randn(2, 4, 7, 2), "pp": randn(2, 6), "off": ints(5, -3)}, B=2, H=4, Hk=2)
case("forget", "--bias forget,logf=lf --causal", lambda: {"lf": -positive(1, 2, 9)}, Lq=9)
case("forget_offset", "--bias forget,logf=lf --causal --q-offset 2", lambda: {"lf": -positive(1, 2, 9)})
case("forget_gqa", "--bias forget,logf=lf --causal", lambda: {"lf": -positive(1, 4, 9)}, H=4, Hk=2, Lq=9)
for suffix, shape in (("full", (2, 2, 7, 9)), ("heads", (1, 2, 7, 9)), ("batch", (2, 1, 7, 9)), ("pairs", (7, 9)),
                      ("keys", (9,)), ("rows", (2, 1, 7, 1)), ("three_axes", (2, 7, 9)), ("one", (1, 1, 1, 1))):
    case("dense_" + suffix, "--bias dense,bias=bias", lambda: {"bias": randn(*shape)}, B=2)
case("dense_minus_infinity", "--bias dense,bias=bias",
     lambda: {"bias": torch.where(torch.rand(1, 2, 7, 9) > 0.7, float("-inf"),
                                  randn(1, 2, 7, 9)).index_fill(2, ints(4), float("-inf"))})
case("dense_lowest", "--bias dense,bias=bias",
     lambda: {"bias": randn(7, 9).index_fill(0, ints(2), torch.finfo(torch.float32).min)})

# ---------------------------------------------------------------------------------- rotary, with gradients in f64

case("rope", "--rope dim=4", D=4)
case("rope_interleaved", "--rope dim=4,layout=interleaved --q-offset 3", D=4)
case("rope_partial", "--rope dim=4,base=500 --causal --q-offset 2", D=7)
case("rope_partial_interleaved", "--rope dim=6,layout=interleaved", D=8, H=2, Hk=1)
case("rope_offset_batch", "--rope dim=4,base=100 --q-offset off", lambda: {"off": ints(-6, 300)}, B=2, D=4)
case("rope_positions", "--rope dim=4,positions=pos",
     lambda: {"pos": ints([0, 1, 2, 0, 1, 2, 3, 4, 5], [3, 2, 1, 9, 8, 7, 4, 5, 6])}, B=2, Lq=9, D=4)
case("rope_positions_real", "--rope dim=4,q_positions=qp,k_positions=kp --q-offset 2 --causal",
     lambda: {"qp": randn(2, 7, scale=5), "kp": randn(9, scale=5)}, B=2, D=4)
case("rope_segments", "--rope dim=4 --segments seg", lambda: {"seg": ints([0, 0, 0, 1, 1, 1, 1, 2, 2])}, Lq=9, D=4)
case("rope_linear", "--rope dim=8,scaling=linear,factor=4", D=8)
case("rope_dynamic_short", "--rope dim=8,scaling=dynamic,factor=2,max_position_embeddings=16", D=8, H=1)
DYNAMIC = "--rope dim=8,scaling=dynamic,factor=2,max_position_embeddings=4"
case("rope_dynamic_long", DYNAMIC + " --q-offset 40", D=8)      # queries beyond the keys have no effect on the length
case("rope_dynamic_length", DYNAMIC + ",length=50 --causal --q-offset 2", D=8)
case("rope_dynamic_lengths", DYNAMIC + " --lengths n", lambda: {"n": ints(3, 9, 6)}, B=3, D=8)
case("rope_dynamic_key_mask", DYNAMIC + " --key-mask keep --causal --q-offset 2",
     lambda: {"keep": ints([1, 1, 0, 1, 1, 1, 0, 0, 0], [1] * 9)}, B=2, D=8)
case("rope_dynamic_ends", DYNAMIC + " --starts s --ends e",
     lambda: {"s": ints(0, 0, 0, 1, 1, 1, 7), "e": ints(5, 6, 7, 7, 6, 5, 6)}, D=8)
case("rope_dynamic_few_queries", DYNAMIC + " --causal --q-offset 4", D=8, Lq=2)
case("rope_dynamic_mask", DYNAMIC + " --mask keep",
     lambda: {"keep": (torch.rand(2, 2, 7, 9) > 0.4) & (torch.arange(9) < 7)}, B=2, D=8)
case("rope_dynamic_dense", DYNAMIC + " --bias dense,bias=bias",
     lambda: {"bias": torch.where(torch.arange(9) < ints(9, 6)[:, None, None, None], randn(2, 2, 7, 9),
                                  float("-inf"))}, B=2, D=8)
case("rope_dynamic_segments", DYNAMIC + " --segments seg --causal",
     lambda: {"seg": ints([0, 0, 0, 1, 1, 1, 1, 1, 1], [5, 5, 5, 5, 5, 2, 2, 2, 2])},
     B=2, Lq=9, D=8)
case("rope_dynamic_positions", DYNAMIC + ",k_positions=kp,q_positions=qp --key-mask keep",
     lambda: {"qp": randn(2, 7, scale=9), "kp": randn(2, 9, scale=9),
              "keep": ints([1] * 8 + [0], [0] + [1] * 8)}, B=2, D=8)
case("rope_yarn", "--rope dim=8,scaling=yarn,factor=8,original_max_position_embeddings=32 --q-offset 20", D=8, H=1)
case("rope_yarn_untruncated",
     "--rope dim=8,scaling=yarn,factor=8,original_max_position_embeddings=64,beta_fast=16,beta_slow=2,"
     "mscale=0.7,mscale_all_dim=1.2,truncate=0 --q-offset 20", D=8, H=1)
case("rope_llama3",
     "--rope dim=8,base=500000,scaling=llama3,factor=8,original_max_position_embeddings=64,low_freq_factor=1,"
     "high_freq_factor=4 --q-offset 20", D=8, H=1)
LONG = "--rope dim=8,scaling=longrope,factor=4,original_max_position_embeddings=%d,short_factor=sf,long_factor=lf"
factors = lambda: {"sf": 1 + torch.rand(4, dtype=torch.float64), "lf": 2 + 4 * torch.rand(4, dtype=torch.float64)}
case("rope_longrope_short", LONG % 16, factors, D=8)
case("rope_longrope_long", LONG % 8 + ",attention_factor=1.25 --q-offset 20", factors, D=8, H=1)
case("rope_longrope_length", LONG % 16 + ",length=17 --causal --q-offset 2", factors, D=8, H=1)
case("rope_longrope_lengths", LONG % 5 + " --lengths n --causal --q-offset 2",
     lambda: dict(factors(), n=ints(9, 5, 6)), B=3, D=8)
case("rope_longrope_segments", LONG % 4 + " --segments seg",
     lambda: dict(factors(), seg=ints(0, 0, 0, 0, 1, 1, 1, 1, 1)), Lq=9, D=8)

# ---------------------------------------------------------------------------------- vectors for keys and values

case("relkey", "--relkey table=t,left=3,right=2", lambda: {"t": randn(6, 4)}, D=4)
case("relkey_heads", "--relkey table=t,left=3,right=2 --q-offset 2 --causal", lambda: {"t": randn(2, 6, 4)}, D=4)
case("relkey_gqa_scale", "--relkey table=t,left=2,right=2 --scale 0.3", lambda: {"t": randn(4, 5, 4)}, H=4, Hk=2, D=4)
case("relkey_positions", "--relkey table=t,left=3,right=3,q_positions=qp,k_positions=kp",
     lambda: {"t": randn(7, 4), "qp": randn(7, scale=3), "kp": ints(1, 0, 2, 8, 3, 4, 4, 5, 1)}, D=4)
case("relkey_masks", "--relkey table=t,left=3,right=2,k_positions=kp,k_position_mask=km --softcap 2 --bias log",
     lambda: {"t": randn(2, 6, 4), "kp": randn(9, scale=3), "km": torch.arange(9) % 4 != 0}, D=4)
case("shaw_masks", "--relkey table=tk,left=2,right=2,q_position_mask=qm,k_position_mask=km "
                   "--relval table=tv,left=2,right=3,q_position_mask=qm,k_position_mask=km --causal --q-offset 2",
     lambda: {"tk": randn(5, 4), "tv": randn(6, 4), "qm": torch.rand(2, 7) > 0.3,
              "km": torch.rand(2, 9) > 0.3}, D=4, B=2)
case("relval", "--relval table=t,left=3,right=2", lambda: {"t": randn(6, 4)}, D=4)
case("relval_heads_dv", "--relval table=t,left=3,right=2 --causal --q-offset -2",
     lambda: {"t": randn(2, 6, 5)}, Dv=5, D=4)
case("shaw", "--relkey table=tk,left=4,right=4 --relval table=tv,left=2,right=2 --q-offset 1",
     lambda: {"tk": randn(9, 4), "tv": randn(5, 4)}, D=4)
case("shaw_same_table", "--relkey table=t,left=3,right=3 --relval table=t,left=3,right=3",
     lambda: {"t": randn(7, 4)}, D=4)
case("relkey_rope_softcap", "--relkey table=t,left=3,right=2 --rope dim=4 --softcap 2", lambda: {"t": randn(6, 4)}, D=4)
xl = lambda H=2, Lq=7, D=4: {"rr": randn(H, Lq + 8, D), "u": randn(H, D), "vv": randn(H, D)}
case("xl", "--xl r=rr,u=u,v=vv", xl, D=4)
case("xl_offset_causal", "--xl r=rr,u=u,v=vv --causal --q-offset 2", xl, D=4)
case("xl_gqa_softcap", "--xl r=rr,u=u,v=vv --softcap 3 --scale 0.4", lambda: xl(2), H=2, Hk=1, D=4)
deb = lambda span, both=3: {n: x for n, x, bit in (("kp", randn(2, 2 * span, 4), 1), ("qp", randn(2, 2 * span, 4), 2))
                            if both & bit}
case("deberta_both", "--deberta k_pos=kp,q_pos=qp,span=5,buckets=-1,max_position=5 --scale 0.29", lambda: deb(5), D=4)
case("deberta_buckets", "--deberta k_pos=kp,q_pos=qp,span=8,buckets=8,max_position=32 --scale 0.29",
     lambda: deb(8), Lq=9, Lk=24, D=4)
case("deberta_c2p", "--deberta k_pos=kp,span=6,buckets=6,max_position=16", lambda: deb(6, 1), D=4)
case("deberta_p2c_causal", "--deberta q_pos=qp,span=6,buckets=6,max_position=16 --causal --q-offset 2",
     lambda: deb(6, 2), D=4)

# ---------------------------------------------------------------------------------- sums of terms

case("softcap_before_bias", "--softcap 1.2 --bias alibi,slopes=m", lambda: {"m": positive(2)})
case("softcap_after_bias", "--softcap-after 1.2 --bias alibi,slopes=m", lambda: {"m": positive(2)})
case("softcap_before_and_after", "--softcap 1.2 --softcap-after 1.7 --relkey table=t,left=2,right=2 --bias "
                                 "alibi,slopes=m --bias dense,bias=bias",
     lambda: {"t": randn(5, 2), "m": positive(2),
              "bias": torch.where(torch.rand(7, 9) > 0.7, float("-inf"), randn(7, 9))})
case("softcap_after_dense_infinity", "--softcap-after 2 --bias dense,bias=bias",
     lambda: {"bias": torch.where(torch.rand(7, 9) > 0.7, float("-inf"), randn(7, 9))})
case("sum_t5_alibi_rope", "--bias t5,table=t,buckets=8,max_distance=16 --bias alibi,slopes=m --rope dim=4 --causal "
                          "--q-offset 2",
     lambda: {"t": randn(8, 4), "m": positive(4)}, H=4, Hk=2, D=4)
case("sum_same_table", "--bias table,table=t,left=3,right=3 --bias "
                       "table,table=t,left=3,right=3,q_positions=qp,k_positions=kp",
     lambda: {"t": randn(2, 7), "qp": ints(0, 4, 1, 2, 6, 3, 5), "kp": ints(0, 2, 4, 6, 8, 1, 3, 5, 7)})
case("sum_time_and_place", "--bias table,table=t,left=3,right=3 --bias "
                           "real,table=time,max_distance=5,q_positions=qp,k_positions=kp --causal --q-offset 2",
     lambda: {"t": randn(2, 7), "time": randn(2, 11), "qp": randn(2, 7, scale=4), "kp": randn(2, 9, scale=4)}, B=2)
case("sum_everything",
     "--bias log,lambda=0.2 --bias kerple,p=kp,a=ka --bias dense,bias=bias --bias sandwich,dim=4 "
     "--relkey table=tk,left=2,right=2 "
     "--relval table=tv,left=1,right=3 --rope dim=2,base=50 --sink s --softcap 5 --window 6,3 --key-mask keep "
     "--q-offset 1",
     lambda: {"kp": positive(2), "ka": positive(2), "bias": randn(2, 1, 1, 9), "tk": randn(2, 5, 4), "tv": randn(5, 3),
              "s": randn(2),
              "keep": torch.rand(2, 9) > 0.2}, B=2, Dv=3, D=4)
case("sum_xl_relval_band", "--xl r=rr,u=u,v=vv --relval table=tv,left=2,right=2 --bias band,r=rq,p=pp --causal "
                           "--q-offset 2",
     lambda: dict(xl(), tv=randn(5, 4), rq=randn(1, 2, 7, 2), pp=randn(2, 4)), D=4)
case("sum_forget_rope_sink", "--bias forget,logf=lf --rope dim=4 --sink s --causal --q-offset 2",
     lambda: {"lf": -positive(1, 4, 9), "s": randn(4)}, H=4, Hk=2, D=4)

F.finish()
