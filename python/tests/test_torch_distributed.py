"""Attention of a sequence that is shared out to the processes of torch.distributed has the bits of one call in one
process.
SPDX-License-Identifier: Apache-2.0"""
import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import processes  # noqa: E402
import relpos  # noqa: E402
import relpos.torch.distributed as rd  # noqa: E402
from relpos.torch import _layout  # noqa: E402

dist = torch.distributed
NAME = __name__.rpartition(".")[2]


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def integers(*shape, most):
    return torch.randint(most, shape, generator=torch.Generator().manual_seed(most))


def sizes(lq=4700, lk=4700, heads=2, kv_heads=2, dim=16, dim_v=16, batch=1, dtype=torch.float32):
    """Return q, k, v, and the gradients of out and lse."""
    shapes = (batch, heads, lq, dim), (batch, kv_heads, lk,
                                       dim), (batch, kv_heads, lk, dim_v), (batch, heads, lq, dim_v), (batch, heads, lq)
    return [random(*shape, seed=n, dtype=dtype) for n, shape in enumerate(shapes)]


F64 = {"dtype": torch.float64}
CASES = {  # name: (arguments of sizes, a function that returns the options)
    "plain": ({"heads": 4, "dim_v": 24, "lq": 3300, "lk": 3300}, dict),
    "t5": ({"lq": 12300, "lk": 12300, "heads": 1, "kv_heads": 1},
           lambda: {"bias": relpos.T5(random(32, 1)), "causal": True, "scale": 1.0}),
    "alibi": ({"batch": 2}, lambda: {"bias": relpos.ALiBi(torch.tensor([2.0, 0.01])), "sink": relpos.Sink(random(2)),
                                     "causal": True}),
    "window": ({"kv_heads": 1, "lq": 9300, "lk": 9300}, lambda: {"rope": relpos.RoPE(), "window": (1600, 200),
                                                                 "sink": relpos.Sink(random(2, 9300))}),
    "vectors": ({"dim": 8, "dim_v": 8, "lq": 3200, "lk": 3200, **F64}, lambda: {
        "relkey": relpos.RelKey(random(12, 8, **F64), left=9, right=2),
        "relval": relpos.RelValue(random(7, 8, **F64), left=3, right=3),
        "softcap": torch.tensor([9.0], **F64), "softcap_after": torch.tensor(11.0, **F64)}),
    "xl": ({"dim": 8, "dim_v": 8, "lq": 3100, "lk": 3100, **F64}, lambda: {
        "relkey": relpos.XL(random(2, 6199, 8, **F64), random(2, 8, seed=1, **F64), random(2, 8, seed=2, **F64)),
        "causal": True}),
    "frequencies": ({"dim": 8, "dim_v": 8, "lq": 3200, "lk": 3200, **F64}, lambda: {
        "rope": relpos.RoPE(frequencies=random(2, 2, 4, **F64), positions=integers(2, 3200, most=40)),
        "lengths": torch.tensor([2900])}),
    "bfloat16": ({"dtype": torch.bfloat16, "heads": 4}, lambda: {"bias": relpos.T5(random(32, 4)), "causal": True}),
    "segments": ({}, lambda: {"segments": torch.arange(4700)[None] // 900, "rope": relpos.RoPE(), "causal": True}),
    "masks": ({"batch": 2}, lambda: {"key_mask": integers(2, 4700, most=3).bool(),
                                     "lengths": torch.tensor([4600, 1700])}),
    "intervals": ({}, lambda: {"starts": torch.arange(4700)[None] // 700 * 700 - 100,
                               "ends": torch.arange(4700)[None] // 700 * 700 + 900}),
    "forget": ({}, lambda: {"bias": relpos.Forget(-random(1, 2, 4700).abs()), "causal": True}),
    "cross": ({"lq": 4700, "lk": 6300}, lambda: {"bias": relpos.LogDecay(0.5), "causal": True, "q_offset": 1600}),
    "offsets": ({"lq": 4700, "lk": 6500, "batch": 2}, lambda: {"causal": True, "q_offset": torch.tensor([1800, 900])}),
    "dense": ({"lq": 1700, "lk": 1700}, lambda: {"bias": relpos.Dense(random(2, 1700, 1700)) + relpos.LogDecay()}),
    "dropout": ({}, lambda: {"dropout": 0.3, "seed": 7, "causal": True}),
}


def learned(options):
    """Return the learned arrays of the terms and the softcaps, with requires_grad set."""
    softcaps = [options[name].requires_grad_() for name in ("softcap", "softcap_after") if name in options]
    return softcaps + [x.requires_grad_() for name in ("bias", "rope", "relkey", "relval", "sink") if name in options
            for term in (options[name] if isinstance(options[name], tuple) else (options[name],))
            for x in term.learned.values() if isinstance(x, torch.Tensor)]


def compute(attend, q, k, v, dout, dlse, options):
    """Return [out, lse, dq, dk, dv] and the gradients of learned arrays."""
    arrays, inner = learned(options), [x.detach().requires_grad_() for x in (q, k, v)]
    found = attend(*inner, return_lse=True, **options)
    gradients = torch.autograd.grad((found.out, found.lse), (*inner, *arrays), (dout, dlse.to(found.lse.dtype)))
    return [found.out.detach(), found.lse.detach(), *gradients[:3]], list(gradients[3:])


def half_bounds(q, k, v, dout, dlse, out, options):
    """Return bounds on the differences of dq, dk, dv and a table's gradient in 16 bits. In one process, <dout, out> of
    a row is computed from out in float32; here out is rounded to bfloat16, which changes it by up to `row`. ds of a
    pair changes by the weight times that. All results are rounded once more, and lse too."""
    row = 2.0**-8 * (dout.double().abs() * out.double().abs()).sum(-1)
    mass = relpos.attention(q, k, v, summary=True, **options).summary.key_mass.max() * q.shape[1] // k.shape[1]
    scale = q.shape[-1] ** -0.5
    return [scale * row.max() * k.abs().max(), scale * row.max() * q.abs().max() * mass,
            2.0**-16 * mass * dout.abs().max(), row.sum()]


def same(x, y):
    return x.dtype == y.dtype and torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))


def check(name, rank, folder):
    """Compare a case with the results of one process."""
    want, of_arrays = torch.load(folder / name)
    given, options = CASES[name]
    whole = sizes(**given)
    found, parts = compute(rd.context_parallel_attention, *(rd.shard(x, 2) for x in whole), options())
    half = given.get("dtype") == torch.bfloat16
    bounds = half_bounds(*whole, want[0], options()) if half else [0] * 4
    for n, (x, y) in enumerate(zip(found, want)):
        y = rd.shard(y, 2)
        if half and n > 1:
            assert bool(((x.double() - y.double()).abs() <= bounds[n - 2]
                         + 2.0**-7 * y.double().abs()).all()), (name, n)
        else:
            assert same(x, y), (name, ("out", "lse", "dq", "dk", "dv")[n])
    # each part is rounded once, and so is y; the order of 2^23 additions in f64 differs
    for part, y in zip(parts, of_arrays):
        total, sizes_of_parts = part.double(), part.double().abs()
        dist.all_reduce(total)
        dist.all_reduce(sizes_of_parts)
        unit = 2**-23 if part.dtype == torch.float32 else 2**-30
        bound = unit * (sizes_of_parts + y.abs().max()) + bounds[3]
        assert bool(((total - y).abs() <= bound).all()), (name, (total - y).abs().max(), y.abs().max())


def check_unshard(rank, folder):
    whole = random(2, 5000, 3)
    local = rd.shard(whole).requires_grad_()
    found = rd.unshard(local)
    assert torch.equal(found, whole)
    assert torch.equal(rd.shard(torch.arange(5000), 0), rd.positions(5000))
    weights = random(2, 5000, 3, seed=rank)
    (found * weights).sum().backward()
    want = sum(random(2, 5000, 3, seed=n).double() for n in range(dist.get_world_size())).float()
    assert torch.equal(local.grad, rd.shard(want))


def check_mesh(rank, folder):
    """A mesh with two dimensions: each group of the dimension cp has a sequence of its own."""
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
    q, k, v, *_ = (x + rank // 2 for x in sizes(3300, 3300))
    out = rd.context_parallel_attention(*(rd.shard(x, 2, mesh["cp"]) for x in (q, k, v)), group=mesh["cp"], causal=True)
    assert torch.equal(rd.unshard(out, 2, mesh["cp"]), relpos.attention(q, k, v, causal=True))
    with rd.context_parallel(mesh["cp"]):
        assert torch.equal(rd.context_parallel_attention(*(rd.shard(x, 2, mesh["cp"]) for x in (q, k, v)), causal=True),
                           out)
    raises(ValueError, "the mesh has the dimensions ('dp', 'cp'), expected one; pass mesh[\"cp\"]",
           lambda: rd.context_parallel_attention(q, k, v, group=mesh))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Parameter(random(16, 96) / 4)
        self.table = torch.nn.Parameter(random(32, 2))

    def forward(self, x, attend):
        q, k, v = (x @ self.qkv).unflatten(-1, (6, 16)).transpose(1, 2).chunk(3, 1)
        return attend(q, k, v, bias=relpos.T5(self.table), causal=True).square()


def check_ddp(rank, folder):
    """The gradients of a model in DistributedDataParallel are those of the mean of the processes' losses."""
    x, ranks = random(1, 3300, 16), dist.get_world_size()
    one = Layer()
    one(x, relpos.attention).sum().backward()
    model = torch.nn.parallel.DistributedDataParallel(Layer())
    (model(rd.shard(x), rd.context_parallel_attention).sum() * ranks).backward()
    for a, b in zip(model.module.parameters(), one.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5 * b.grad.abs().max().item())


def raises(kind, text, call):
    try:
        call()
    except kind as why:
        assert text in str(why), why
    else:
        raise AssertionError(f"no {kind.__name__}: {text}")


def check_faults(rank, folder):
    """If one process makes another call, all raise the same error."""
    last = dist.get_world_size() - 1
    q, k, v, *_ = (rd.shard(x, 2) for x in sizes(3300, 3300))
    one = rank == last

    def attend(*arrays, **options):
        return lambda: rd.context_parallel_attention(*arrays, **options)

    def other(name, there, here, *arrays, **options):
        raises(ValueError, f"rank {last}: {name} is {there}, but {here} on rank 0; make the same call in all processes",
               attend(*arrays, **options))

    other("q", "float64[1, 2, L, 16]", "float32[1, 2, L, 16]",
          *((q.double(), k.double(), v.double()) if one else (q, k, v)))
    other("k", "float32[1, 1, L, 16]", "float32[1, 2, L, 16]", *((q, k[:, :1], v[:, :1]) if one else (q, k, v)))
    other("bias", "relpos.ALiBi()", "not given", q, k, v, **({"bias": relpos.ALiBi()} if one else {}))
    other("bias", "relpos.T5(float32[16, 2], buckets=16)", "relpos.T5(float32[32, 2])", q, k, v,
          bias=relpos.T5(random(16, 2), buckets=16) if one else relpos.T5(random(32, 2)))
    other("causal", "True", "not given", q, k, v, causal=one)
    other("the gradients that are computed", "[True, False, False]", "[False, False, False]",
          q.clone().requires_grad_(one), k, v)
    raises(ValueError, "rows on the ranks 0 to", attend(*((q[:, :, 1:], k, v) if one else (q, k, v))))
    raises(ValueError, "q has 3 axes, expected (B, H, L, D)", attend(*((q[0], k[0], v[0]) if one else (q, k, v))))
    raises(ValueError, "window", attend(q, k, v, window=(5, 5) if one else (4, 5)))
    # the next call works
    assert torch.equal(rd.unshard(rd.context_parallel_attention(q, k, v), 2), relpos.attention(*sizes(3300, 3300)[:3]))


def check_refusals(rank, folder):
    """Calls that are wrong in all processes."""
    q, k, v, *_ = (rd.shard(x, 2) for x in sizes(3300, 3300))
    raises(TypeError, "does not support summary; compute it in one process",
           lambda: rd.context_parallel_attention(q, k, v, summary=True))
    raises(TypeError, "unexpected keyword argument 'is_causal'; use causal",
           lambda: rd.context_parallel_attention(q, k, v, is_causal=True))
    raises(TypeError, "group is of type str, expected a process group or a DeviceMesh",
           lambda: rd.context_parallel_attention(q, k, v, group="cp"))
    raises(TypeError, "q is of type ndarray, expected a tensor", lambda: rd.context_parallel_attention(q.numpy(), k, v))
    raises(ValueError, "x has 700 rows along axis 1, expected at least 1537 for 2 processes",
           lambda: rd.shard(random(1, 700)))
    x = q.detach().requires_grad_()
    gradient, = torch.autograd.grad(rd.context_parallel_attention(x, k, v).sum(), x, create_graph=True)
    raises(RuntimeError, "no second derivatives", lambda: gradient.sum().backward())
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    buffer = random(1, 2, 4096, 16)
    with context_parallel(init_device_mesh("cpu", (dist.get_world_size(),)), buffers=[buffer], buffer_seq_dims=[2]):
        raises(RuntimeError, "inside torch's context_parallel would share out the sequence twice",
               lambda: rd.context_parallel_attention(q, k, v))


for _name in CASES:
    globals()[f"check_{_name}"] = functools.partial(check, _name)

MORE = {1: ["check_ddp"], 2: ["check_ddp", "check_faults", "check_refusals"], 3: ["check_ddp", "check_faults"],
        4: ["check_mesh"]}
NAMES = {ranks: [*(f"check_{name}" for name, (given, _) in CASES.items() if given.get("lq", 4700) > 1536 * (ranks - 1)),
                 "check_unshard", *names]
         for ranks, names in MORE.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Compute the results of one process."""
    folder = tmp_path_factory.mktemp("distributed")
    for name, (given, options) in CASES.items():
        torch.save(compute(relpos.attention, *sizes(**given), options()), folder / name)
    return folder


@pytest.mark.parametrize("ranks", NAMES)
def test_processes(ranks, folder):
    processes.run(ranks, NAME, NAMES[ranks], folder)


# ---------------------------------------------------------------------------------------------- the layout, without
# processes

@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("length", [0, 1, 1535, 1536, 9000, 50000])
def test_layout(length, ranks):
    every = sorted(span for rank in range(ranks) for span in _layout.owned(length, ranks, rank))
    assert every[0][0] == 0 and every[-1][1] == length and all(a[1] == b[0] for a, b in zip(every, every[1:]))
    assert sum(_layout.local_length(length, ranks, rank) for rank in range(ranks)) == length
    at = 0
    for tile in _layout.tiles(length, ranks):
        start, stop = list(zip(_layout.bounds(length, ranks), _layout.bounds(length, ranks)[1:]))[tile.stretch]
        assert start <= tile.start == at < tile.stop <= stop
        assert tile.start % 512 == 0 and (tile.stop % 512 == 0 or tile.stop == length)
        at = tile.stop
    assert at == length


@pytest.mark.parametrize("causal, window", [(False, None), (True, None), (False, (1000, 2000)), (True, (3000, 0))])
def test_each_tile_is_computed_once_and_in_order(causal, window):
    left, right = window or (None, None)
    reach = _layout.Reach(left, 0 if causal else right)
    done = set()
    layouts = [_layout.layout(rank, 3, 20000, 20000, reach, 0, False) for rank in range(3)]
    waiting = [of.cells(rank) for rank, of in enumerate(layouts)]
    while any(waiting):  # a process computes its next cell as soon as the cells before it are done
        ready = [cells for cells in waiting if cells and all(
            (n, cells[0][1]) in done for n in layouts[0].chain(cells[0][1]) if n < cells[0][0]) and all(
            (cells[0][0], tile) in done for tile in layouts[0].needed[cells[0][0]] if tile < cells[0][1])]
        assert ready, "deadlock"
        done.add(ready[0].pop(0))
    positions = np.arange(20000)
    for n, (start, stop) in enumerate(layouts[0].rows):
        for number, tile in enumerate(layouts[0].tiles):
            offset = positions[None, tile.start:tile.stop:37] - positions[start:stop:37, None]
            seen = ((offset <= 0) if causal else np.True_) & ((-left <= offset) & (offset <= right) if window
                                                              else np.True_)
            assert not np.broadcast_to(seen, offset.shape).any() or (n, number) in done


def test_causal_work_is_balanced():
    reach = _layout.Reach(None, 0)
    work = []
    for rank in range(8):
        of = _layout.layout(rank, 8, 2**19, 2**19, reach, 0, False)
        work.append(sum((of.rows[n][1] - of.rows[n][0]) * (of.tiles[t].stop - of.tiles[t].start)
                        for n, t in of.cells(rank)))
    assert max(work) * 8 < 1.05 * sum(work)


def test_without_a_group():
    q, k, v, *_ = sizes(10, 10)
    with pytest.raises(RuntimeError, match="torch.distributed is not initialized"):
        rd.context_parallel_attention(q, k, v)
