"""How a sequence is shared out to the processes of a group. No messages are sent here.

With P processes, the sequence is cut into 2 P stretches, and process p owns stretches p and 2 P - 1 - p, so that causal
attention is balanced:

    stretch   0  1  2  3  4  5
    process   0  1  2  2  1  0        (P = 3)

Stretches begin at multiples of STEP tokens, where ranges of keys and of rows may begin. The keys of a stretch travel in
tiles.

SPDX-License-Identifier: Apache-2.0"""
import functools
import itertools
import math
from typing import NamedTuple

STEP = math.lcm(512, 96)  # Plan.key_step and Plan.row_step
KEY_STEP, MIN_TILE, MAX_TILES = 512, 1024, 4


@functools.lru_cache(256)
def bounds(length, ranks):
    """Return where the 2 * ranks stretches of a sequence begin, and its length."""
    blocks = -(-length // STEP)
    shares = [blocks * (n + 1) // ranks - blocks * n // ranks for n in range(ranks)]  # they differ by at most one block
    sizes = [n // 2 for n in shares] + [n - n // 2 for n in reversed(shares)]
    return tuple(min(length, n * STEP) for n in itertools.accumulate(sizes, initial=0))


def owner(stretch, ranks):
    """Return the rank of the process that owns a stretch."""
    return min(stretch, 2 * ranks - 1 - stretch)


def owned(length, ranks, rank):
    """Return (start, stop) of both stretches of a process."""
    at = bounds(length, ranks)
    return [(at[n], at[n + 1]) for n in (rank, 2 * ranks - 1 - rank)]


def local_length(length, ranks, rank):
    """Return the number of tokens of a process."""
    return sum(stop - start for start, stop in owned(length, ranks, rank))


class Tile(NamedTuple):
    """Keys start ... stop - 1, which lie in one stretch."""

    start: int
    stop: int
    stretch: int


@functools.lru_cache(256)
def tiles(length, ranks):
    """Return the tiles of all stretches, in the order of the keys."""
    found, at = [], bounds(length, ranks)
    for stretch, (start, stop) in enumerate(zip(at, at[1:])):
        count = min(max((stop - start) // MIN_TILE, 1), MAX_TILES)
        steps = -(-(stop - start) // KEY_STEP)
        cuts = [min(start + n * steps // count * KEY_STEP, stop) for n in range(count + 1)]
        found += [Tile(a, b, stretch) for a, b in zip(cuts, cuts[1:]) if a < b]
    return tuple(found)


class Reach(NamedTuple):
    """The keys that a row may attend to: from `left` before its position to `right` after it. None: no limit."""

    left: int | None
    right: int | None

    def has(self, rows, tile, q_offset):
        """Return true if a row of [start, stop) may attend to a key of the tile."""
        start, stop = rows
        return (start < stop and (self.left is None or tile.stop > start + q_offset - self.left)
                and (self.right is None or tile.start < stop + q_offset + self.right))


class Layout(NamedTuple):
    """What each process computes: which tiles of keys each stretch of rows needs."""

    rank: int
    ranks: int
    rows: tuple     # (start, stop) of each stretch of queries
    tiles: tuple    # the tiles of the keys
    needed: tuple   # for each stretch of queries, the numbers of its tiles, in order

    def owner(self, tile):
        """Return the rank of the process that owns a tile of this number."""
        return self.rank_of(self.tiles[tile].stretch)

    def rank_of(self, stretch):
        """Return the rank of the process that owns a stretch."""
        return owner(stretch, self.ranks)

    def stretches(self, rank):
        """Return the numbers of the stretches of a process."""
        return rank, 2 * self.ranks - 1 - rank

    def tiles_of(self, rank):
        """Return the numbers of the tiles that a process needs, in order."""
        return sorted({tile for n in self.stretches(rank) for tile in self.needed[n]})

    def own_tiles(self):
        """Return the numbers of the tiles that this process owns."""
        return [n for n in range(len(self.tiles)) if self.owner(n) == self.rank]

    def chain(self, tile):
        """Return the stretches of queries that need a tile, in order."""
        return [n for n, needed in enumerate(self.needed) if tile in needed]

    def cells(self, rank):
        """Return the (stretch, tile) that a process computes in the backward pass, in order. A cell comes after those
        of the same stretch and earlier tiles, and those of the same tile and earlier stretches; so does it in the order
        of diagonals, on all processes."""
        return sorted(((n, tile) for n in self.stretches(rank) for tile in self.needed[n]),
                      key=lambda cell: (sum(cell), cell[0]))


@functools.lru_cache(64)
def layout(rank, ranks, len_q, len_k, reach, q_offset, with_first):
    """Return the Layout of a call. with_first is true if all rows need the tile of key 0."""
    at, every = bounds(len_q, ranks), tiles(len_k, ranks)
    rows = tuple(zip(at, at[1:]))
    needed = tuple(tuple(n for n, tile in enumerate(every)
                         if reach.has(one, tile, q_offset) or with_first and n == 0 and one[0] < one[1])
                   for one in rows)
    return Layout(rank, ranks, rows, every, needed)
