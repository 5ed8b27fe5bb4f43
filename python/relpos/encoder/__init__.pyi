# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace, TracebackType
from typing import Any, Literal

import numpy as np
import relpos
from numpy.typing import NDArray

_Texts = str | Iterable[str]
_Tokens = Sequence[int] | Sequence[Sequence[int]] | NDArray[np.integer] | Sequence[NDArray[np.integer]]
_Text = str | tuple[str, str] | dict[str, str]
_Pair = tuple[str, str] | list[str] | NDArray[np.str_]

class Encoder:
    kind: str
    type: str
    vocab: int
    width: int
    heads: int
    inner: int
    layers: int
    max_tokens: int
    parameters: int
    bytes: int
    not_finite: int
    vector_width: int
    vector_tokens: int
    labels: list[str]
    has_tokenizer: int
    token_types: int
    pad: int
    packed: int
    plain_scores: int
    why_no_scores: str | None
    def __init__(self, path: str | os.PathLike[str], *, type: Literal["f32", "f16", "bf16", "q8", "int8"] | None = None,
                 threads: int | None = None) -> None: ...
    @property
    def config(self) -> SimpleNamespace: ...
    @property
    def max_seq_length(self) -> int | None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Encoder: ...
    def __exit__(self, kind: Any, why: BaseException | None, trace: TracebackType | None) -> None: ...
    def pack(self, path: str | os.PathLike[str]) -> None: ...
    def tokenize(self, text: _Texts, pair: str | None = None, max_tokens: int | None = None) -> Any: ...
    def encode(self, inputs: _Texts | None = None, prompt_name: str | None = None, prompt: str | None = None, batch_size: int = 32,
               show_progress_bar: bool | None = None,
               output_value: Literal["sentence_embedding", "token_embeddings"] | None = "sentence_embedding",
               precision: Literal["float32"] = "float32", convert_to_numpy: bool = True, convert_to_tensor: bool = False,
               device: Any = None, normalize_embeddings: bool = False, truncate_dim: int | None = None, pool: None = None,
               chunk_size: None = None, *, sentences: _Texts | None = None, tokens: _Tokens | None = None,
               progress: relpos._Progress = None) -> Any: ...
    encode_query = encode
    encode_document = encode
    def classify(self, inputs: _Text | list[_Text] | Iterable[str], *, top_k: Any = "", batch_size: int = 32,
                 progress: relpos._Progress = None) -> Any: ...
    def predict(self, inputs: _Pair | Iterable[_Pair], prompt_name: None = None, prompt: None = None, batch_size: int = 32,
                show_progress_bar: bool | None = None, activation_fn: Callable[..., Any] | None = None,
                apply_softmax: bool | None = False, convert_to_numpy: bool = True, convert_to_tensor: bool = False,
                device: Any = None, pool: None = None, chunk_size: None = None, *, progress: relpos._Progress = None) -> Any: ...
    rerank = predict
    def rank(self, query: str, documents: Iterable[str], top_k: int | None = None, return_documents: bool = False,
             prompt_name: None = None, prompt: None = None, batch_size: int = 32, show_progress_bar: bool | None = None,
             activation_fn: Callable[..., Any] | None = None, device: Any = None, pool: None = None,
             chunk_size: None = None, *, progress: relpos._Progress = None) -> list[dict[str, Any]]: ...
