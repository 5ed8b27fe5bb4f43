# Types for type checkers. A test compares the names with __init__.py. SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import encoder as encoder
from . import t5 as t5
from ._terms import *
from .encoder import Encoder as Encoder
from ._terms import RoPE, Sum, Term, _Relkey, _Relval, _Rope, _Sink

__version__: str

A = TypeVar("A")  # a NumPy array or a torch tensor
Pair = tuple[int | None, int | None]
_Progress = bool | Callable[[float], object] | None

class Options(TypedDict, total=False):
    bias: Term | Sum | ByOffset | None
    rope: _Rope | None
    relkey: _Relkey | None
    relval: _Relval | None
    sink: _Sink | None
    causal: bool
    window: Pair | None
    key_mask: Any
    mask: Any
    lengths: Any
    segments: Any
    starts: Any
    ends: Any
    scale: float | Any
    softcap: float | Any | None
    softcap_after: bool | float | Any
    q_offset: Any
    dropout: float
    seed: Any
    threads: int | None
    precision: Literal["highest", "high"]

class Summary(NamedTuple, Generic[A]):
    profile: A
    key_mass: A
    entropy: A

class Result(NamedTuple, Generic[A]):
    out: A  # In torch, all fields have gradients; out and lse have second derivatives.
    weights: A | None
    lse: A | None
    summary: Summary[A] | None

class Gradients(NamedTuple, Generic[A]):
    q: A
    k: A
    v: A
    terms: tuple[dict[str, A], ...]

class Tangents(NamedTuple, Generic[A]):
    out: A
    lse: A

class SecondDerivatives(NamedTuple, Generic[A]):
    q: A
    k: A
    v: A
    terms: tuple[dict[str, A], ...]
    out: A
    lse: A

class Explanation(NamedTuple, Generic[A]):
    raw: A
    scaled: A
    bias: A
    score: A
    weights: A
    out: A
    lse: float
    parts: dict[str, A]
    out_parts: dict[str, A]
    sink: float | None

@overload
def attention(q: A, k: A, v: A, *, return_weights: Literal[False] = False, return_lse: Literal[False] = False,
              summary: Literal[False] = False, out: A | None = None, layout: Literal["bhld", "blhd"] = "bhld",
              key_norms: A | None = None, progress: _Progress = None, **options: Unpack[Options]) -> A: ...
@overload
def attention(q: A, k: A, v: A, *, return_weights: bool = False, return_lse: bool = False, summary: bool = False,
              out: A | None = None, layout: Literal["bhld", "blhd"] = "bhld",
              key_norms: A | None = None, progress: _Progress = None, **options: Unpack[Options]) -> Result[A]: ...
def key_norms(k: A, v: A, *, norms: A | None = None, start: int = 0) -> A: ...
def attention_backward(dout: A, q: A, k: A, v: A, *, dlse: A | None = None, dweights: A | None = None,
                       dsummary: Summary[A] | None = None, out: A | None = None, lse: A | None = None,
                       wanted: Collection[str] | None = None, per_sample: bool = False, progress: _Progress = None,
                       layout: Literal["bhld", "blhd"] = "bhld", **options: Unpack[Options]) -> Gradients[A]: ...
def attention_jvp(q: A, k: A, v: A, tangents: tuple[Any, ...], *, progress: _Progress = None,
                  layout: Literal["bhld", "blhd"] = "bhld", **options: Unpack[Options]) -> Tangents[A]: ...
def attention_hvp(dout: A, q: A, k: A, v: A, tangents: tuple[Any, ...], *, dlse: A | None = None,
                  wanted: Collection[str] | None = None, per_sample: bool = False, progress: _Progress = None,
                  layout: Literal["bhld", "blhd"] = "bhld", **options: Unpack[Options]) -> SecondDerivatives[A]: ...
def explain(q: A, k: A, v: A, *, query: int = -1, head: int = 0, batch: int = 0,
            layout: Literal["bhld", "blhd"] = "bhld", **options: Unpack[Options]) -> Explanation[A]: ...
def bucket(offsets: ArrayLike | Iterable[int], *, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True,
           strategy: Literal["log", "uniform", "linear", "quadratic"] = "log") -> NDArray[np.int64]: ...
def rope_layout(name: str, dim: int, *, positions: Any = None, q_positions: Any = None, k_positions: Any = None,
                base: float | tuple[float, ...] | None = None, sections: tuple[int, ...] | list[int] | None = None,
                first: int = 0) -> RoPE: ...
def show_config() -> dict[str, Any]: ...

class ByOffset:
    function: Callable[..., Any]
    grid: tuple[int, int] | None
    def __init__(self, function: Callable[..., Any], *, grid: tuple[int, int] | None = None) -> None: ...
    def term(self, lq: int, lk: int | None = None, *, heads: int, q_offset: Any = 0, like: Any = None) -> Term: ...
    def matrix(self, lq: int, lk: int | None = None, *, heads: int, q_offset: int = 0) -> NDArray[np.float64]: ...
    def __add__(self, other: Term | Sum | ByOffset) -> Sum: ...
    def __radd__(self, other: Term | Sum | int) -> Sum: ...

class Cache:
    k: Any
    v: Any
    key_norms: Any
    def __len__(self) -> int: ...
    def append(self, k: Any, v: Any) -> None: ...
    def reorder(self, rows: Iterable[int]) -> None: ...
    def crop(self, length: int) -> None: ...

class Plan:
    def __init__(self, batch: int, heads: int, len_q: int, len_k: int, dim: int, *, kv_heads: int | None = None,
                 dim_v: int | None = None, dtype: Any = "float32", **options: Unpack[Options]) -> None: ...
    @property
    def key_step(self) -> int: ...
    @property
    def row_step(self) -> int: ...
    def __call__(self, q: A, k: A | Cache, v: A | None = None, *, pages: Any = None, len_k: int | None = None, key_from: int | None = None,
                 key_to: int | None = None, row_from: int | None = None, row_to: int | None = None, state_in: A | None = None,
                 state_out: A | bool | None = None, own_keys: A | None = None, return_weights: bool = False, return_lse: bool = False,
                 summary: bool = False, key_norms: Any = None, progress: _Progress = None, **options: Any) -> Any: ...
    def backward(self, dout: A, q: A, k: A, v: A, *, dlse: A | None = None, dweights: A | None = None,
                       dsummary: Summary[A] | None = None, out: A | None = None, lse: A | None = None,
                 wanted: Collection[str] | None = None, per_sample: bool = False, key_from: int | None = None, key_to: int | None = None, row_from: int | None = None,
                 row_to: int | None = None, dq_in: A | None = None, dq_out: A | bool | None = None, dkv_in: A | None = None,
                 dkv_out: A | bool | None = None, progress: _Progress = None, **options: Any) -> Gradients[A]: ...
