# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Iterator, Sequence
from types import SimpleNamespace, TracebackType
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import relpos
from numpy.typing import NDArray

_Texts = str | Sequence[str]
_Tokens = Sequence[int] | Sequence[Sequence[int]] | NDArray[np.integer] | Sequence[NDArray[np.integer]]

class _Settings(TypedDict, total=False):
    max_new_tokens: int | None
    min_new_tokens: int | None
    num_beams: int | None
    length_penalty: float | None
    early_stopping: bool | Literal["never"] | None
    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    suppress_tokens: Sequence[int] | NDArray[np.integer] | None
    begin_suppress_tokens: Sequence[int] | NDArray[np.integer] | None
    bad_words_ids: Sequence[Sequence[int]] | None
    forced_bos_token_id: int | None
    max_length: int | None
    stop_strings: _Texts | None
    begin: str | Sequence[int] | NDArray[np.integer] | None
    skip_special_tokens: bool

class T5:
    kind: str
    type: str
    vocab: int
    d_model: int
    d_kv: int
    d_ff: int
    heads: int
    layers: int
    decoder_layers: int
    parameters: int
    bytes: int
    step_bytes: int
    gated: int
    tied: int
    scaled: int
    has_tokenizer: int
    start: int
    eos: int
    pad: int
    activation: str
    attention: str
    experts: int
    not_finite: int
    packed: int
    source: str
    source_checksum: str
    vector_width: int
    vector_tokens: int
    cleans_up: int
    def __init__(self, path: str | os.PathLike[str], *, type: Literal["f32", "f16", "bf16", "int8", "int4", "q8"] | None = None,
                 threads: int | None = None, draft: Literal["int8", "int4"] | None = None,
                 tokenizer: str | os.PathLike[str] | Literal[False] | None = None) -> None: ...
    @property
    def config(self) -> SimpleNamespace: ...
    @property
    def drafted(self) -> SimpleNamespace: ...
    def close(self) -> None: ...
    def __enter__(self) -> T5: ...
    def __exit__(self, kind: Any, why: BaseException | None, trace: TracebackType | None) -> None: ...
    def pack(self, path: str | os.PathLike[str]) -> None: ...
    def tokenize(self, text: _Texts) -> Any: ...
    def detokenize(self, tokens: _Tokens, skip_special_tokens: bool = True) -> Any: ...
    def generate(self, texts: _Texts | None = None, *, tokens: _Tokens | None = None, num_return_sequences: int | None = None,
                 return_scores: bool = False, progress: relpos._Progress = None, **settings: Unpack[_Settings]) -> Any: ...
    def stream(self, text: str | None = None, *, tokens: Sequence[int] | NDArray[np.integer] | None = None,
               **settings: Unpack[_Settings]) -> Iterator[Any]: ...
    def encode(self, texts: _Texts | None = None, *, tokens: _Tokens | None = None, pool: Literal["none", "mean", "first", "last"] | None = None,
               normalize: bool = False, pad_to: int | None = None, attend_padding: bool = False, batch_size: int = 32,
               prompt_name: str | None = None, prompt: str | None = None,
               normalize_embeddings: bool = False, show_progress_bar: bool | None = False,
               progress: relpos._Progress = None) -> Any: ...
    def score(self, sources: _Texts | None = None, targets: _Texts | None = None, *, source_tokens: _Tokens | None = None,
              target_tokens: _Tokens | None = None, each: bool = False, progress: relpos._Progress = None) -> Any: ...
    def explain(self, text: str | None = None, target: str | None = None, *, tokens: Sequence[int] | NDArray[np.integer] | None = None,
                target_tokens: Sequence[int] | NDArray[np.integer] | None = None, part: Literal["encoder", "decoder", "cross"] = "encoder",
                layer: int = 0, head: int = 0, query: int = 0) -> relpos.Explanation[NDArray[np.float64]]: ...

def proteins(model: T5 | str | os.PathLike[str], fasta: str | os.PathLike[str] | dict[str, str],
             output: str | os.PathLike[str] | None = None, *, family: str | None = None, pool: bool = False,
             dtype: Literal["float16", "float32"] = "float16", skip_bad: str | os.PathLike[str] | None = None,
             progress: relpos._Progress = None) -> Any: ...
