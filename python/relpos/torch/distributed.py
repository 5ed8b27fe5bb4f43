"""Attention of one sequence that is shared out to the processes of a group of torch.distributed.

    import torch.distributed as dist, relpos.torch.distributed as rd
    dist.init_process_group("gloo")
    x = rd.shard(tokens, dim=1)                                    # the rows of this process
    out = rd.context_parallel_attention(q, k, v, bias=relpos.ALiBi(), causal=True)
    every = rd.unshard(out, dim=2)                                 # the whole result, in all processes

docs/distributed.md describes which results have the same bits for any number of processes.

SPDX-License-Identifier: Apache-2.0"""
import collections
import contextlib
import contextvars
import queue
import threading

import torch
import torch.distributed as dist
from torch import Tensor

import relpos

from .. import _core, _hints, _torch
from ._agreement import agree, describe, gather_numbers, resolve
from ._functional import _need_tensors
from ._layout import STEP, Reach, layout, local_length, owned

__all__ = ["context_parallel_attention", "context_parallel", "shard", "unshard", "positions"]

_group = contextvars.ContextVar("relpos.torch.distributed.context_parallel", default=None)
_KEYS, _SUMS, _FINAL = range(3)  # kinds of messages
_AHEAD = 2  # tiles whose messages are received while earlier ones are computed
_REFUSED = ("out", "return_weights", "summary", "key_norms")


# ---------------------------------------------------------------------------------------------- sharding

def _rows(x, dim, spans):
    return torch.cat([x.narrow(dim, start, stop - start) for start, stop in spans], dim)


def shard(x: Tensor, dim: int = 1, group=None) -> Tensor:
    """Return the rows of this process along axis `dim` of a tensor that all processes have: stretches p and 2 P - 1 - p
    of 2 P, one after the other, for process p of P. group is a process group, a mesh with one dimension, or None for
    all processes.

    Stretches begin at multiples of 1,536, so the shares of the processes differ by up to 1,536 rows. Raises ValueError
    if a process would have no row; P processes need more than 1,536 (P - 1) rows."""
    group = resolve(group)
    if min(local_length(x.shape[dim], group.size(), rank) for rank in range(group.size())) == 0:
        raise ValueError(f"x has {x.shape[dim]} rows along axis {dim}, expected at least "
                         f"{(group.size() - 1) * STEP + 1} for {group.size()} processes; "
                         "use fewer processes, or pad the sequence")
    return _rows(x, dim, owned(x.shape[dim], group.size(), group.rank()))


def positions(length: int, group=None) -> Tensor:
    """Return the positions of the rows of this process in a sequence of `length` tokens, for example for
    position_ids."""
    return shard(torch.arange(length), 0, group)


class _Unshard(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ranks, rank = group.size(), group.rank()
        lengths = [n for n, in gather_numbers([x.shape[dim]], group)]
        total = sum(lengths)
        expected = [local_length(total, ranks, n) for n in range(ranks)]
        if lengths != expected:
            raise ValueError(f"x has {lengths} rows on the ranks 0 to {ranks - 1}, expected {expected}; use the result "
                             "of "
                             "relpos.torch.distributed.shard")
        ctx.dim, ctx.group, ctx.total, ctx.length = dim, group, total, x.shape[dim]
        shapes = [[*x.shape[:dim], length, *x.shape[dim + 1:]] for length in lengths]
        parts = _exchange([x] * ranks, shapes, group)
        out = x.new_empty([*x.shape[:dim], total, *x.shape[dim + 1:]])
        for n, part in enumerate(parts):
            at = 0
            for start, stop in owned(total, ranks, n):
                out.narrow(dim, start, stop - start).copy_(part.narrow(dim, at, stop - start))
                at += stop - start
        return out

    @staticmethod
    def backward(ctx, gradient):
        group, dim = ctx.group, ctx.dim
        given = [_rows(gradient, dim, owned(ctx.total, group.size(), n)) for n in range(group.size())]
        found = _exchange(given, [given[group.rank()].shape] * group.size(), group)
        return sum(x.double() for x in found).to(gradient.dtype), None, None


def _exchange(given, shapes, group):
    """Send given[n] to process n. Return what the others sent to this process, tensors of these shapes."""
    rank = group.rank()
    sends = [(n, _send(x.contiguous(), n, 0, group)) for n, x in enumerate(given) if n != rank and x.numel()]
    found = [given[rank] if n == rank else given[rank].new_empty(shape) for n, shape in enumerate(shapes)]
    for n, x in enumerate(found):
        if n != rank and x.numel():
            _wait(dist.irecv(x, group=group, group_src=n), n, group)
    for n, work in sends:
        _wait(work, n, group)
    return found


def unshard(x: Tensor, dim: int = 1, group=None) -> Tensor:
    """Return the whole tensor, in all processes, from the rows of each: the inverse of `shard`. The gradient of x is
    the sum over the processes of the gradients of their results, in the order of the ranks."""
    return _Unshard.apply(x, dim % x.dim(), resolve(group))


# ---------------------------------------------------------------------------------------------- messages

def _send(x, rank, tag, group):
    return dist.isend(x, group=group, group_dst=rank, tag=tag)


def _wait(work, rank, group):
    try:
        work.wait()
    except RuntimeError as why:
        raise RuntimeError(f"rank {group.rank()}: no message from or to rank {rank}; it has ended or cannot be reached "
                           f"({str(why).splitlines()[0]})") from None


class _Mail:
    """The messages of one call. The tag of a message is unique in the call. A thread waits for the sends, so that a
    tensor is freed as soon as it is sent."""

    def __init__(self, group, count):
        self.group, self.count, self.failure = group, count, None
        self.sends = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._await_sends, daemon=True)
        self.thread.start()

    def _await_sends(self):
        for rank, work in iter(self.sends.get, None):
            try:
                _wait(work, rank, self.group)
            except RuntimeError as why:
                self.failure = self.failure or why
            del work

    def _tag(self, kind, stretch, tile):
        return 1 + (stretch * self.count + tile) * 3 + kind

    def send(self, x, rank, kind, stretch, tile):
        self.sends.put((rank, _send(x, rank, self._tag(kind, stretch, tile), self.group)))

    def receive(self, x, rank, kind, stretch, tile):
        """Start to receive x. Return a function that waits for it and returns it."""
        work = dist.irecv(x, group=self.group, group_src=rank, tag=self._tag(kind, stretch, tile))

        def arrived():
            _wait(work, rank, self.group)
            return x
        return arrived

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """Wait until everything is sent, unless the call failed."""
        self.sends.put(None)
        if kind is None:
            self.thread.join()
            if self.failure:
                raise self.failure


def _ahead(starts):
    """Call each function of `starts`, which begins to receive and returns a function that waits. Yield what these
    return, in order, while the next _AHEAD begin."""
    begun, starts = collections.deque(), iter(starts)
    for start in starts:
        begun.append(start())
        if len(begun) > _AHEAD:
            yield begun.popleft()()
    while begun:
        yield begun.popleft()()


# ---------------------------------------------------------------------------------------------- one call

class _Call:
    """A call in one process: the layout, and the options of the Plan of its parts."""

    def __init__(self, group, q, k, v, options, len_q, len_k):
        self.group, self.options = group, options
        self.layout = layout(group.rank(), group.size(), len_q, len_k, _reach(options), _offset(options) or 0,
                             options.get("sink") is not None)
        self.sizes = q.shape[0], q.shape[1], len_q, len_k, q.shape[3]
        self.widths = {"kv_heads": k.shape[1], "dim_v": v.shape[3], "dtype": q.dtype}
        # the key at the position of a query is in the same process
        self.own_keys = len_q == len_k and _offset(options) == 0

    def plan(self):
        return relpos.Plan(*self.sizes, **self.widths, **self.options)

    def mail(self):
        return _Mail(self.group, len(self.layout.tiles))

    def local_rows(self):
        """Return {stretch: (slice of the local rows, options of the range)} for the stretches of this process that have
        rows."""
        found, at = {}, 0
        for n in self.layout.stretches(self.layout.rank):
            start, stop = self.layout.rows[n]
            if start < stop:
                found[n] = slice(at, at + stop - start), {"row_from": start, "row_to": stop}
            at += stop - start
        return found

    def local_keys(self, tile):
        """Return the slice of the local keys that is a tile of this process."""
        of, begin = self.layout.tiles[tile], 0
        for start, stop in owned(self.sizes[3], self.layout.ranks, self.layout.rank):
            if start <= of.start < stop:
                return slice(begin + of.start - start, begin + of.stop - start)
            begin += stop - start
        raise AssertionError(tile)

    def range_of(self, tile):
        return {"key_from": self.layout.tiles[tile].start, "key_to": self.layout.tiles[tile].stop}

    def pack(self, k, v, tile):
        """Return a tile of this process as one array."""
        at = self.local_keys(tile)
        return torch.cat([k[:, :, at].reshape(-1), v[:, :, at].reshape(-1)])

    def unpack(self, packet, tile):
        """Return k and v of a tile, views of the array."""
        batch, heads, (start, stop, _) = self.sizes[0], self.widths["kv_heads"], self.layout.tiles[tile]
        keys = batch * heads * (stop - start) * self.sizes[4]
        return (packet[:keys].view(batch, heads, stop - start, -1),
                packet[keys:].view(batch, heads, stop - start, self.widths["dim_v"]))

    def empty_packet(self, tile):
        start, stop, _ = self.layout.tiles[tile]
        width = self.sizes[4] + self.widths["dim_v"]
        return torch.empty(self.sizes[0] * self.widths["kv_heads"] * (stop - start) * width, dtype=self.widths["dtype"])


def _offset(options):
    """Return q_offset, or None if it differs between batch entries."""
    offset = options.get("q_offset", 0)
    return offset if isinstance(offset, int) else None


def _reach(options):
    """Return the keys that masks of numbers leave to each row. Other masks may hide more."""
    left, right = None, None
    if _offset(options) is None:
        return Reach(None, None)
    if options.get("window") is not None:
        left, right = (None if x is None or x < 0 else int(x) for x in options["window"])
    if options.get("causal"):
        right = 0
    return Reach(left, right)


# ---------------------------------------------------------------------------------------------- forward

def _keys_in_order(call, k, v):
    """Yield (tile, k, v) of the tiles that this process needs, in order. Owners send a tile to all processes that need
    it."""
    of = call.layout
    with call.mail() as mail:
        for tile in of.own_tiles():
            others = [rank for rank in range(of.ranks) if rank != of.rank and tile in of.tiles_of(rank)]
            packet = call.pack(k, v, tile) if others else None
            for rank in others:
                mail.send(packet, rank, _KEYS, 0, tile)

        def start(tile):
            if of.owner(tile) == of.rank:
                at = call.local_keys(tile)
                return lambda: (tile, k[:, :, at], v[:, :, at])
            arrived = mail.receive(call.empty_packet(tile), of.owner(tile), _KEYS, 0, tile)
            return lambda: (tile, *call.unpack(arrived(), tile))

        yield from _ahead(lambda tile=tile: start(tile) for tile in of.tiles_of(of.rank))


def _forward(call, q, k, v):
    """Return out and lse of the rows of this process."""
    plan, rows, states = call.plan(), call.local_rows(), {}
    batch, heads, length, _ = q.shape
    out = q.new_zeros((batch, length, heads, v.shape[3])).transpose(1, 2)
    lse = q.new_full((batch, heads, length), -torch.inf, dtype=torch.promote_types(q.dtype, torch.float32))
    for tile, k_tile, v_tile in _keys_in_order(call, k, v):
        for n, (at, rows_of) in rows.items():
            needed = call.layout.needed[n]
            if tile not in needed:
                continue
            options = rows_of | call.range_of(tile)
            if tile == needed[0] and call.own_keys:
                options["own_keys"] = k[:, :, at]
            if tile == needed[-1]:
                found = plan(q[:, :, at], k_tile, v_tile, state_in=states.pop(n, None), out=out[:, :, at],
                             return_lse=True, **options)
                lse[:, :, at] = found.lse
            else:
                state = states.get(n)
                states[n] = plan(q[:, :, at], k_tile, v_tile, state_in=state,
                                 state_out=True if state is None else state, **options)
    return out, lse


# ---------------------------------------------------------------------------------------------- backward

class _Backward:
    """The backward pass in one process. A tile of keys visits the stretches of queries that need it, in order, with the
    sums of its dk and dv, and returns to its owner. The sums of dq of a stretch go from tile to tile."""

    def __init__(self, call, mail, wanted, q, k, v, out, lse, dout, dlse):
        self.call, self.layout, self.plan, self.mail = call, call.layout, call.plan(), mail
        self.wanted, self.rows = wanted, call.local_rows()
        self.q, self.k, self.v, self.out, self.lse, self.dout, self.dlse = q, k, v, out, lse, dout, dlse
        self.wide, self.width = torch.promote_types(q.dtype, torch.float32), _core.plan_sizes(self.plan._plan)[2]
        self.dq_sums, self.kept, self.terms = {}, {}, {}
        self.dq, self.dk, self.dv = (torch.zeros_like(x) for x in (q, k, v))

    def tile_at(self, stretch, tile):
        """Return a function that starts to receive k, v and the sums of a cell, if they come from another process."""
        of, chain = self.layout, self.layout.chain(tile)
        before = chain[chain.index(stretch) - 1] if stretch != chain[0] else None
        source = of.owner(tile) if before is None else of.rank_of(before)

        def start():
            keys = sums = None
            if source != of.rank and of.owner(tile) != of.rank:
                keys = self.mail.receive(self.call.empty_packet(tile), source, _KEYS, stretch, tile)
            if source != of.rank and before is not None:
                batch, heads, *_ = self.call.sizes
                begin, end, _ = of.tiles[tile]
                sums = self.mail.receive(torch.empty(batch, heads, end - begin, self.width, dtype=self.wide), source,
                                         _SUMS, stretch, tile)
            return lambda: (stretch, tile, keys and keys(), sums and sums())
        return start

    def run(self):
        """Return dq, dk, dv of the rows of this process, and {(term, name): sum over its rows}."""
        of = self.layout
        finals = self.expect_finals()
        for tile in of.own_tiles():
            chain = of.chain(tile)
            if chain and of.rank_of(chain[0]) != of.rank:
                self.mail.send(self.call.pack(self.k, self.v, tile), of.rank_of(chain[0]), _KEYS, chain[0], tile)
        for cell in _ahead(self.tile_at(*cell) for cell in of.cells(of.rank)):
            self.compute(*cell)
        for tile, arrived in finals:
            self.store(tile, *self.call.unpack(arrived(), tile))
        return self.dq, self.dk, self.dv, self.terms

    def expect_finals(self):
        """Start to receive dk and dv of the tiles of this process whose last stretch of queries is elsewhere."""
        found = []
        for tile in self.layout.own_tiles():
            chain = self.layout.chain(tile)
            if chain and self.layout.rank_of(chain[-1]) != self.layout.rank:
                packet = self.call.empty_packet(tile).to(self.wide)
                found.append((tile, self.mail.receive(packet, self.layout.rank_of(chain[-1]), _FINAL, 0, tile)))
        return found

    def compute(self, stretch, tile, packet, sums):
        """Compute a cell, and pass its tile on."""
        of, (at, rows), chain = self.layout, self.rows[stretch], self.layout.chain(tile)
        kept = self.kept.pop(tile, (None, None))  # from the other stretch of this process
        packet, sums = (kept[0] if packet is None else packet), (kept[1] if sums is None else sums)
        if of.owner(tile) == of.rank:
            own = self.call.local_keys(tile)
            k, v = self.k[:, :, own], self.v[:, :, own]
        else:
            k, v = self.call.unpack(packet, tile)
        needed, last_rows = of.needed[stretch], stretch == chain[-1]
        dq_sums, last_keys = self.dq_sums.pop(stretch, None), tile == needed[-1]
        found = self.plan.backward(
            self.dout[:, :, at], self.q[:, :, at], k, v, out=self.out[:, :, at], lse=self.lse[:, :, at],
            dlse=None if self.dlse is None else self.dlse[:, :, at], wanted=("q", "k", "v", *self.wanted), **rows,
            **self.call.range_of(tile),
            dq_in=dq_sums, dq_out=None if last_keys else True if dq_sums is None else dq_sums,
            dkv_in=sums, dkv_out=None if last_rows else True if sums is None else sums)
        if last_keys:
            self.dq[:, :, at] = found.q
        else:
            self.dq_sums[stretch] = found.q
        for n, arrays in enumerate(found.terms):
            for name, x in arrays.items():
                if x is not None:
                    self.terms[n, name] = self.terms[n, name].add_(x) if (n, name) in self.terms else x
        if last_rows:
            self.finish(tile, found.k, found.v)
        else:
            self.pass_on(tile, chain[chain.index(stretch) + 1], packet, found.k)

    def pass_on(self, tile, stretch, packet, sums):
        """Pass a tile to the next stretch of queries."""
        rank = self.layout.rank_of(stretch)
        if rank == self.layout.rank:
            self.kept[tile] = packet, sums
            return
        if rank != self.layout.owner(tile):
            packet = self.call.pack(self.k, self.v, tile) if packet is None else packet
            self.mail.send(packet, rank, _KEYS, stretch, tile)
        self.mail.send(sums, rank, _SUMS, stretch, tile)

    def finish(self, tile, dk, dv):
        """Return dk and dv of a tile to its owner."""
        owner = self.layout.owner(tile)
        if owner == self.layout.rank:
            self.store(tile, dk, dv)
        else:
            self.mail.send(torch.cat([dk.reshape(-1), dv.reshape(-1)]), owner, _FINAL, 0, tile)

    def store(self, tile, dk, dv):
        at = self.call.local_keys(tile)
        self.dk[:, :, at], self.dv[:, :, at] = dk, dv


class _Gradients(torch.autograd.Function):
    """The identity, with the inputs of the call as further arguments. It makes autograd see that the gradients depend
    on the inputs, so differentiating the gradients raises instead of giving zero."""

    @staticmethod
    def forward(ctx, count, *gradients_and_inputs):
        return tuple(x.view_as(x) for x in gradients_and_inputs[:count])

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("context_parallel_attention has no second derivatives; call .detach() on its gradients")


def _only_once(gradients, inputs):
    """Return the gradients of a backward pass; with create_graph, such that differentiating them raises."""
    if not torch.is_grad_enabled():
        return gradients
    made = [x for x in gradients if x is not None]
    final = iter(_Gradients.apply(len(made), *made, *inputs))
    return [x if x is None else next(final) for x in gradients]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, places, q, k, v, *arrays):
        out, lse = _forward(call, q, k, v)
        ctx.call, ctx.places = call, places
        ctx.save_for_backward(q, k, v, out, lse, *arrays)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        q, k, v, out, lse, *arrays = ctx.saved_tensors
        given = [x for x in (dout, dlse) if x is not None]
        if dout is None:
            dout = torch.zeros_like(out)
        wanted = [name for (_, name), need in zip(ctx.places, ctx.needs_input_grad[5:]) if need]
        with torch.no_grad(), ctx.call.mail() as mail:
            *inner, terms = _Backward(ctx.call, mail, wanted, q, k, v, out, lse, dout, dlse).run()
        found = [terms[place].to(x.dtype).reshape(x.shape) if place in terms else torch.zeros_like(x)
                 for place, x in zip(ctx.places, arrays)]
        every = [x if need else None for x, need in zip((*inner, *found), ctx.needs_input_grad[2:])]
        return None, None, *_only_once(every, (q, k, v, *given, *arrays))


# ---------------------------------------------------------------------------------------------- the function

def context_parallel_attention(q: Tensor, k: Tensor, v: Tensor, *, group=None, return_lse: bool = False, **options):
    """Compute relpos.attention of a sequence that is shared out to the processes of a group. All processes make the
    same call.

    q, k, v    the rows of this process, (B, H, L, D) and (B, Hk, L, D), as `shard` returns them; k and v may belong to
               another sequence, which is sharded too
    group      a process group with gloo, a mesh with one dimension such as mesh["cp"], or None: the group of
               `context_parallel`, or all processes
    options    bias, rope, causal and the other options of relpos.attention, except out, weights, summary and key_norms.
               Arrays of terms and masks are those of the whole sequence, in all processes; q_offset is the position of
               query 0 of the whole sequence

    Returns out (B, H, L, Dv) of the rows of this process, or a Result with return_lse. They have the bits of one call
    in one process, for any number of processes, and so have the gradients of q, k and v, except in 16 bits.

    The loss is the sum of the losses of all processes. Gradients of q, k and v are those of this sum. The gradient of
    an array of a term is the part of this process's rows, as for every other parameter; DistributedDataParallel adds up
    the parts.

    A call that differs between processes, in a shape, a type or an option, raises the same error in all of them."""
    _refuse(options)
    _need_tensors("relpos.attention", q=q, k=k, v=v)
    group = resolve(_group.get() if group is None else group)
    q, k, v = _torch.autocast(q, k, v)
    options = {name: value for name, value in options.items() if value is not None and value is not False}
    options.setdefault("q_offset", 0)
    if options.get("dropout"):
        options.setdefault("seed", int(_torch.draw_seed()))  # one seed for the plans of both passes
    given = [options.get(name) for name in _core.NAMES]
    learned, _ = _torch._arrays(given)
    arrays = [array for *_, array in learned]
    records = torch.is_grad_enabled()
    len_q, len_k = agree(group,
                         lambda: describe(q, k, v,
                                          options),
                         lambda: str([records and x.requires_grad for x in (q, k, v, *arrays)]),
                         q.shape[-2], k.shape[-2])
    call = _Call(group, q, k, v, options, len_q, len_k)
    out, lse = _Attention.apply(call, [place[:2] for place in learned], q, k, v, *arrays)
    return relpos._results((out, None, lse, None),
                           options.get("seed") if options.get("dropout") else None) if return_lse else out


def _refuse(options):
    """Raise for options that only one process could compute, and inside torch's own context_parallel."""
    for name in options:
        if name in _REFUSED:
            raise TypeError(f"context_parallel_attention does not support {name}; compute it in one process with "
                            "relpos.attention")
        if name not in _core.NAMES:
            raise TypeError("context_parallel_attention() got an unexpected keyword argument "
                            f"{name!r}{_hints.meant(name)}")
    if _torch.inside_context_parallel():
        raise RuntimeError("context_parallel_attention inside torch's context_parallel would share out the sequence "
                           "twice; leave that context, and "
                           "use relpos.torch.distributed.shard for its buffers")


@contextlib.contextmanager
def context_parallel(group=None):
    """Within this context, models with attn_implementation="relpos" compute the attention of a sequence that is shared
    out to the processes of `group`, and context_parallel_attention without a group uses this one."""
    token = _group.set(resolve(group))
    try:
        yield
    finally:
        _group.reset(token)


def active():
    """Return the group of the innermost `context_parallel`, or None."""
    return _group.get()


def gather(numbers):
    """Return the integers of all processes of `active()`, a list for each."""
    return gather_numbers(numbers, _group.get())


def first_lengths(lengths):
    """Return the number of rows of the first stretch of each process. `lengths` are the numbers of their rows."""
    spans = [owned(sum(lengths), len(lengths), rank)[0] for rank in range(len(lengths))]
    return [stop - start for start, stop in spans]
