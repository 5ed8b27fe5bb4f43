"""Run models of the T5 family on the CPU: from text to text, vectors or scores. docs/t5.md lists the supported models.

    import relpos.t5
    model = relpos.t5.T5("flan-t5-small", type="int8")
    model.generate(["translate English to German: Good morning."], num_beams=4)

This module calls the library librelpos_t5, which in a wheel also contains the relpos program, through ctypes. So NumPy stays the only
dependency, no second extension module is built, and the GIL is released while the library computes.
SPDX-License-Identifier: Apache-2.0"""
import contextlib
import ctypes as c
import itertools
import os
import queue
import threading
import types
import warnings
import zipfile

import numpy as np

from . import _core, explain  # _core: librelpos, which librelpos_t5 needs
from ._progress import Shown
from ._terms import TERMS

__all__ = ["T5", "proteins"]
_OK, _NOMEM, _CANCELLED = 0, "RP_E_NOMEM", "RP_E_CANCELLED"


def _fields(text):
    """Convert C fields such as "int64_t vocab d_model; char* type" to ctypes. A test compares them with the header."""
    kinds = {"int64_t": c.c_int64, "int32_t": c.c_int32, "size_t": c.c_size_t, "double": c.c_double, "uint64_t": c.c_uint64,
             "char*": c.c_char_p, "pointer": c.c_void_p, "tokens": _Tokens}
    return [(name, kinds[kind]) for kind, *names in (part.split() for part in text.split(";")) for name in names]


class _Tokens(c.Structure):
    _fields_ = [("tokens", c.POINTER(c.c_int32)), ("n", c.c_int64)]


class _Opening(c.Structure):
    _fields_ = _fields("size_t size; char* type; pointer pool; char* draft; int32_t load; char* tokenizer; int32_t no_tokenizer")


class _Info(c.Structure):
    _fields_ = _fields("char* kind type; int64_t vocab d_model d_kv d_ff heads layers decoder_layers parameters bytes step_bytes;"
                       "int32_t gated tied scaled has_tokenizer start eos pad; char* activation attention; int64_t experts not_finite;"
                       "int32_t packed; char* source source_checksum; int64_t vector_width vector_tokens; int32_t cleans_up")


class _Generation(c.Structure):
    _fields_ = _fields("size_t size; int64_t max_new_tokens min_new_tokens; int32_t beams returned; double length_penalty;"
                       "int32_t early_stopping sample; double temperature; int64_t top_k; double top_p; uint64_t seed; int64_t first;"
                       "double repetition_penalty; int64_t no_repeat_ngram; int32_t forced_first forced_last;"
                       "tokens suppress begin_suppress; pointer bad_words; int64_t n_bad_words; tokens prefix;"
                       "pointer stop; int32_t n_stop scores; char* unsupported; pointer on_token cancelled context")


class _Sequence(c.Structure):
    _fields_ = [*_fields("int64_t source; int32_t index finished"), ("tokens", c.POINTER(c.c_int32)), *_fields("int64_t n; double score")]


class _Drafted(c.Structure):
    _fields_ = _fields("int64_t proposed accepted passes")


class _Attention(c.Structure):
    _fields_ = [*_fields("int64_t heads d_kv len_q len_k"), *((name, c.POINTER(c.c_double)) for name in "qkv"), ("table", c.POINTER(c.c_float)),
                *_fields("int64_t buckets max_distance; int32_t bidirectional causal; int64_t window")]


class _Protein(c.Structure):
    _fields_ = [("tokens", c.POINTER(c.c_int32)), *_fields("int64_t n before residues replaced")]


class _Record(c.Structure):
    _fields_ = _fields("char* header residues; int64_t n line")


_ON_TOKEN = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int64, c.c_int32, c.c_int32)
_PROGRESS = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_double)


def _load():
    """Load librelpos_t5 from the package's folder lib, and declare the types of its functions."""
    folder = os.path.join(os.path.dirname(_core.__file__), "lib")
    found = [name for name in (os.listdir(folder) if os.path.isdir(folder) else []) if name.startswith("librelpos_t5.so")]
    if not found:
        raise ImportError("relpos.t5: this wheel was built without the T5 library, because jansson, libzip or libpng was missing "
                          "(Debian: apt-get install pkg-config libjansson-dev libzip-dev libpng-dev, then rebuild the package by pip install . in the source folder)")
    lib = c.CDLL(os.path.join(folder, found[0]))
    pointer, tokens = c.c_void_p, c.POINTER(_Tokens)
    types_of = {
        "rp_t5_last_error": (c.c_char_p,), "rp_t5_free": (None, pointer), "rp_t5_close": (None, pointer),
        "rp_t5_open": (c.c_int, c.POINTER(pointer), c.c_char_p, c.POINTER(_Opening)),
        "rp_t5_pack": (c.c_int, pointer, c.c_char_p), "rp_t5_about": (c.POINTER(_Info), pointer),
        "rp_t5_note": (c.c_char_p, pointer, c.c_int64),
        "rp_t5_tokenize": (c.c_int, pointer, c.c_char_p, c.c_int64, c.POINTER(c.POINTER(c.c_int32)), c.POINTER(c.c_int64)),
        "rp_t5_detokenize": (c.c_int, pointer, pointer, c.c_int64, c.POINTER(pointer), c.POINTER(c.c_int64)),
        "rp_t5_detokenize_special": (c.c_int, pointer, pointer, c.c_int64, c.POINTER(pointer), c.POINTER(c.c_int64)),
        "rp_t5_encode": (c.c_int, pointer, c.c_int64, tokens, pointer, pointer, pointer),
        "rp_t5_vector": (c.c_int, pointer, c.c_char_p, c.c_int64, pointer, pointer),
        "rp_t5_prompt": (c.c_int, pointer, c.c_char_p, c.POINTER(c.c_char_p)), "rp_t5_generation_of": (_Generation, pointer),
        "rp_t5_generate": (c.c_int, pointer, c.c_int64, tokens, c.POINTER(_Generation), c.POINTER(pointer)),
        "rp_t5_results_size": (c.c_int64, pointer), "rp_t5_result": (c.POINTER(_Sequence), pointer, c.c_int64),
        "rp_t5_results_drafted": (c.POINTER(_Drafted), pointer), "rp_t5_results_free": (None, pointer),
        "rp_t5_score": (c.c_int, pointer, _Tokens, _Tokens, c.POINTER(c.c_double), pointer, pointer, pointer),
        "rp_t5_attention_of": (c.c_int, pointer, c.c_int, c.c_int64, _Tokens, _Tokens, c.POINTER(c.POINTER(_Attention)), pointer, pointer),
        "rp_t5_attention_free": (None, c.POINTER(_Attention)),
        "rp_t5_family": (c.c_char_p, pointer), "rp_t5_fasta_open": (c.c_int, c.POINTER(pointer), c.c_char_p),
        "rp_t5_fasta_next": (c.c_int, pointer, c.c_int32, c.c_int64, c.POINTER(_Record)),
        "rp_t5_fasta_skip": (c.c_int, pointer, c.POINTER(_Record)), "rp_t5_fasta_close": (None, pointer),
        "rp_t5_residues": (c.c_int, pointer, c.c_char_p, c.c_char_p, c.c_int64, c.POINTER(_Protein)),
        "rp_t5_encode_residues": (c.c_int, pointer, c.c_int64, c.POINTER(_Protein), pointer, pointer, pointer),
        "rp_t5_is_set": (c.c_int, pointer), "rp_pool_create": (c.c_int, c.POINTER(pointer), c.c_int32), "rp_pool_destroy": (None, pointer),
        "rp_status_name": (c.c_char_p, c.c_int), "rp_last_error": (c.c_char_p,),
    }
    for name, (result, *arguments) in types_of.items():
        function = getattr(lib, name)  # this also finds functions of librelpos, because librelpos_t5 depends on it
        function.restype, function.argtypes = result, arguments
    return lib


_lib = _load()


def _check(status, error=None, refused=ValueError):
    """Raise the exception for a status, with the library's message. Call this before any other library function, which may overwrite the
    thread's message."""
    if status == _OK:
        return
    line = (error or _lib.rp_t5_last_error)().decode("utf-8", "replace")
    name = _lib.rp_status_name(status).decode()
    raise {_NOMEM: MemoryError, _CANCELLED: InterruptedError}.get(name, refused)(line)


def _integer(name, value, low, high):
    """Return `value` as an int, or raise an error with its name if it is not an integer from low to high."""
    try:
        number = value.__index__()
    except AttributeError:
        raise TypeError(f"{name} is {value!r}; it must be an integer") from None
    if not low <= number <= high:
        raise ValueError(f"{name} is {number}; it must be {low} to {high}")
    return number


def _index(name, value, length):
    """Return an index from 0 to length - 1. Negative values count from the end."""
    number = _integer(name, value, -length, length - 1) if length else 0
    return number + length if number < 0 else number


def _real(name, value):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}; it must be a number") from None


def _row(name, tokens):
    """Copy the tokens of one sequence to an array of int32."""
    row = np.asarray(tokens)
    if row.size == 0:
        row = row.astype(np.int64)
    if row.ndim != 1 or row.dtype.kind not in "iu":
        raise TypeError(f"{name} has type {row.dtype} and {row.ndim} axes; it must be one sequence of integers")
    if row.size and not 0 <= int(row.min()) <= int(row.max()) < 2**31:
        raise ValueError(f"{name} has numbers from {row.min()} to {row.max()}: tokens must be at least 0 and below the size of the vocabulary")
    return np.array(row, np.int32)


def _borrow(rows):
    """Return an array of rp_t5_tokens that refers to these rows. Keep the rows alive while the library reads them."""
    made = (_Tokens * max(len(rows), 1))()
    for n, row in enumerate(rows):
        made[n] = _Tokens(row.ctypes.data_as(c.POINTER(c.c_int32)), len(row))
    return made


_STOPPING = {False: 0, True: 1, "never": 2}


class T5:
    """A model of the T5 family: from a folder that save_pretrained wrote, a .gguf file, a file that `pack` or `relpos t5 pack` wrote, or a
    single file of weights without a config.json.

    path       a str or path
    type       type of the weights: "f32", "f16", "bf16", "int8", "int4" or "q8"; None: the narrowest for the file's numbers,
               exactly; blocks of a .gguf file stay as they are (type "gguf"; "q8" if all are Q8_0). Inputs of linear layers are
               rounded too: to bf16 with bf16, to 8 bits with int8, int4, q8 and blocks. With these types the decoder keeps keys and
               values as bf16
    threads    number of threads; None: all that this process may use. Results do not depend on it
    tokenizer  a folder, a tokenizer.json or a spiece.model; None: the tokenizer of the model; False: no tokenizer
    draft      "int4" or "int8": a second copy of the decoder's layers, of this type, proposes tokens, and the model checks several in
               one pass. The results are the same. A draft is faster for one source at a time with greedy search or sampling. `drafted`
               has its statistics

    The library maps the files into memory: do not change them until the model is closed, by `close`, by `with`, or by garbage
    collection. Any number of Python threads may use a model concurrently, and other threads run while it computes.

    Sources are texts: a str gives one result; a sequence of str gives a list or an array with one result each. Instead of texts,
    `tokens=` accepts token numbers: a sequence of integers, or a sequence of such sequences. They include the end token of a source,
    as the result of `tokenize` does. The result of a source does not depend on the other sources.

    Invalid arguments and files raise ValueError or TypeError, missing files OSError, and lack of memory MemoryError. Messages have one
    line. What opening changed or ignored in the files, such as a prefix of the tensors' names, is a UserWarning.
    """

    def __init__(self, path, *, type=None, threads=None, draft=None, tokenizer=None):
        self._handle = self._pool = None
        self._drafted = dict.fromkeys(("proposed", "accepted", "passes"), 0)
        self._users, self._closing, self._lock = 0, False, threading.Lock()
        name = os.fsencode(path)
        if b"\0" in name:
            raise ValueError("path contains a null character (give another path)")
        os.stat(path)  # raises OSError if it is missing
        if type is not None and not isinstance(type, str):
            raise TypeError(f'type is {type!r}; it must be "f32", "f16", "bf16", "int8", "int4", "q8" or None')
        if draft is not None and not isinstance(draft, str):
            raise TypeError(f'draft is {draft!r}; it must be "int8", "int4" or None')
        with_file = tokenizer is not None and tokenizer is not False
        if with_file:
            os.stat(tokenizer)
        if threads is not None:
            pool = c.c_void_p()
            _check(_lib.rp_pool_create(c.byref(pool), _integer("threads", threads, 1, 4096)), _lib.rp_last_error)
            self._pool = pool
        handle = c.c_void_p()
        opening = _Opening(c.sizeof(_Opening), None if type is None else type.encode(), self._pool, None if draft is None else draft.encode(), 0,
                           os.fsencode(tokenizer) if with_file else None, tokenizer is False)
        try:
            _check(_lib.rp_t5_open(c.byref(handle), name, c.byref(opening)))
            self._handle = handle
            for note in iter(lambda n=itertools.count(): _lib.rp_t5_note(handle, next(n)), None):
                warnings.warn(note.decode("utf-8", "replace"), stacklevel=2)
            self._info = {name: value.decode() if isinstance(value := getattr(_lib.rp_t5_about(handle).contents, name), bytes) else value
                          for name, _ in _Info._fields_}
            if _lib.rp_t5_generation_of(handle).size != c.sizeof(_Generation):
                raise ImportError("relpos.t5 and librelpos_t5 have different versions (install the package again)")
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------------------------------- the model

    @property
    def config(self):
        """Sizes and properties of the model, named as in rp_t5_info: kind, type, vocab, d_model, d_kv, d_ff, heads, layers, decoder_layers
        (0: the model has no decoder), parameters, bytes, gated, tied, has_tokenizer, start, eos, pad and others. `model.d_model` is
        short for `model.config.d_model`."""
        return types.SimpleNamespace(**self._info)

    @property
    def drafted(self):
        """Statistics of the draft over all successful calls: `proposed` and `accepted` tokens, and `passes` of the model that checked them."""
        with self._lock:
            return types.SimpleNamespace(**self._drafted)

    def __getattr__(self, name):
        info = self.__dict__.get("_info", {})
        if name in info:
            return info[name]
        raise AttributeError(f"T5 has no attribute {name!r}")

    def __repr__(self):
        i = self.config
        state = ", closed" if self._closing else ""
        return f"<relpos.t5.T5: {i.kind}, {i.type}, {i.layers} + {i.decoder_layers} layers, {i.parameters:,} parameters{state}>"

    def close(self):
        """Free the model once calls in other threads have ended. Later calls raise ValueError. You may close a model twice."""
        with self._lock:
            self._closing = True
            self._free_if_unused()

    def _free_if_unused(self):
        if self._closing and self._users == 0:
            _lib.rp_t5_close(self._handle)
            _lib.rp_pool_destroy(self._pool)
            self._handle = self._pool = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if "_lock" in self.__dict__ and _lib is not None:
            self.close()

    @contextlib.contextmanager
    def _use(self):
        """Keep the model open during a call, even if another thread calls `close`."""
        with self._lock:
            if self._closing:
                raise ValueError("the model is closed (open it again)")
            self._users += 1
        try:
            yield self._handle
        finally:
            with self._lock:
                self._users -= 1
                self._free_if_unused()

    def pack(self, path):
        """Write the packed weights, the configuration and the tokenizer to one file, which opens faster than a folder. Weights of the
        type "gguf" cannot be packed: open the model with another type. A tokenizer that cannot be read cannot be packed either: open
        the model with tokenizer=False to pack it without one."""
        with self._use() as model:
            _check(_lib.rp_t5_pack(model, os.fsencode(path)), refused=OSError)

    # ------------------------------------------------------------------------------------------- text

    def tokenize(self, text):
        """Convert a text to an int32 array of tokens that includes the end token. A sequence of texts gives a list of arrays."""
        if not isinstance(text, str):
            return [self.tokenize(one) for one in _texts("text", text)]
        data, tokens, n = text.encode(), c.POINTER(c.c_int32)(), c.c_int64()
        with self._use() as model:
            _check(_lib.rp_t5_tokenize(model, data, len(data), c.byref(tokens), c.byref(n)))
            try:
                return np.array(tokens[:n.value], np.int32)
            finally:
                _lib.rp_t5_free(tokens)

    def detokenize(self, tokens, skip_special_tokens=True):
        """Convert tokens to text, without special tokens such as <extra_id_0> and </s>, or with them if skip_special_tokens is false. A
        sequence of sequences gives a list of texts."""
        if _is_many(tokens):
            return [self.detokenize(one, skip_special_tokens) for one in tokens]
        row, text, size = _row("tokens", tokens), c.c_void_p(), c.c_int64()
        with self._use() as model:
            convert = _lib.rp_t5_detokenize if skip_special_tokens else _lib.rp_t5_detokenize_special
            _check(convert(model, row.ctypes.data, len(row), c.byref(text), c.byref(size)))
            try:
                return c.string_at(text, size.value).decode("utf-8", "replace")
            finally:
                _lib.rp_t5_free(text)

    def _rows(self, texts, tokens, what="texts", other="tokens"):
        """Return a list of rows of tokens, and False if the caller gave a single source."""
        if (texts is None) == (tokens is None):
            raise TypeError(f"give either {what} or {other}")
        if tokens is not None:
            many = _is_many(tokens)
            return [_row(f"{other}[{n}]", one) for n, one in enumerate(tokens)] if many else [_row(other, tokens)], many
        many = not isinstance(texts, str)
        return [self.tokenize(one) for one in (_texts(what, texts) if many else [texts])], many

    # ------------------------------------------------------------------------------------------- generate

    def generate(self, texts=None, *, tokens=None, max_new_tokens=None, min_new_tokens=None, num_beams=None, num_return_sequences=None,
                 length_penalty=None, early_stopping=None, do_sample=None, temperature=None, top_k=None, top_p=None, seed=0,
                 repetition_penalty=None, no_repeat_ngram_size=None, suppress_tokens=None, begin_suppress_tokens=None, bad_words_ids=None,
                 forced_bos_token_id=None, max_length=None, stop_strings=None, begin=None, return_scores=False,
                 skip_special_tokens=True, progress=None):
        """Generate a target for each source by greedy search, beam search or sampling. With the same weights, the searches
        give the tokens of transformers, unless rounding decides between nearly equal scores.

        If an argument is None, the setting of the model's generation_config.json applies, or, without one, the value in the second column.

        max_new_tokens         256      end after this number of new tokens
        min_new_tokens         0        do not end before this number of new tokens
        num_beams              1        number of beams; 1: greedy search
        num_return_sequences   1        number of results per source: the best beams, or samples
        length_penalty         1.0      with several beams: divide log-probabilities by the length to this power
        early_stopping         False    with several beams: False, True or "never"
        do_sample              False    sample each token; needs one beam
        temperature            1.0      sampling: divide logits by this. Without sampling, this and the next two raise ValueError
        top_k                  50       sampling: sample from the top_k likeliest tokens; 0: from all
        top_p                  1.0      sampling: sample from the likeliest tokens that have this total probability
        seed                   0        the same seed gives a source the same samples, whatever the other sources of the call are
        repetition_penalty     1.0      above 1: make tokens that were already written less likely
        no_repeat_ngram_size   0        do not repeat this number of consecutive tokens; 0: allow it
        suppress_tokens        none     token numbers that are never generated; an empty list: none
        begin_suppress_tokens  none     token numbers that are not generated first; an empty list: none
        bad_words_ids          none     sequences of token numbers that are never generated
        forced_bos_token_id    none     the token that begins every target
        max_length             none     instead of max_new_tokens: a limit that includes the start token and `begin`
        stop_strings           none     one text or several: end when the target contains one of them; (): none
        begin                  none     the beginning of every target: a text, or token numbers with tokens=
        return_scores          False    return (targets, scores)
        skip_special_tokens    True     False: keep special tokens in the texts, such as the <extra_id_0> of span filling
        progress               False    as in `relpos.attention`; the fraction of max_new_tokens generated, where a finished target counts in full

        Returns a text for one source, or a list of texts. With tokens=, results are int32 arrays instead of texts and include the end
        token if it was generated. With num_return_sequences above 1, each result is a list. Scores are log-probabilities; with several beams,
        they are divided by the length to the power length_penalty. They are a float64 array (sources,) or (sources, num_return_sequences),
        without the first axis for one source.
        Ctrl-C ends the call after the current step.
        """
        settings = {name: value for name, value in locals().items() if name in _SETTINGS or name in _LISTS}
        rows, many = self._rows(texts, tokens)
        with self._use() as model:
            g, kept = self._settings(model, settings, stop_strings, begin, tokens is not None, max_length)
            g.scores = bool(return_scores)
            with Shown(progress, "generate") as report:
                written = report and _written(report, g, len(rows), self.config.eos)
                found = _interruptible(lambda flag: self._write(model, rows, g, flag, kept, written))
            out = [row if tokens is not None else self.detokenize(row, skip_special_tokens) for row, _ in found]
        returned = g.returned
        scores = np.array([score for _, score in found], np.float64)
        if returned > 1:
            out = [out[n:n + returned] for n in range(0, len(out), returned)]
            scores = scores.reshape(-1, returned)
        if not many:
            out, scores = out[0], scores[0]
        return (out, scores) if return_scores else out

    def stream(self, text=None, *, tokens=None, max_new_tokens=None, min_new_tokens=None, num_beams=None, length_penalty=None,
               early_stopping=None, do_sample=None, temperature=None, top_k=None, top_p=None, seed=0, repetition_penalty=None,
               no_repeat_ngram_size=None, suppress_tokens=None, begin_suppress_tokens=None, bad_words_ids=None, forced_bos_token_id=None,
               max_length=None, stop_strings=None, begin=None, skip_special_tokens=True):
        """Generate the target of one source, and yield its text piece by piece. The joined pieces equal the result of `generate`. With
        tokens=, yield token numbers. The arguments are those of `generate`; wrong ones raise before the first piece is requested. With
        several beams, all pieces come at the end.

        A background thread generates the text. It stops when the iterator is closed or deleted, or on Ctrl-C.
        """
        settings = {name: value for name, value in locals().items() if name in _SETTINGS or name in _LISTS}
        rows, many = self._rows(text, tokens, "text")
        if many:
            raise TypeError("stream: several sources were given, but it writes one (use generate for several)")
        with self._use() as model:
            g, kept = self._settings(model, {**settings, "num_return_sequences": 1}, stop_strings, begin, tokens is not None, max_length)
        return self._pieces(rows, g, kept, tokens is not None, skip_special_tokens)

    def _pieces(self, rows, g, kept, numbers, skip_special_tokens):
        """Yield what `stream` promises: pieces of text, or tokens if `numbers` is true. Another thread generates the tokens."""
        tokens, flag, main = queue.SimpleQueue(), c.c_int32(), threading.main_thread()

        def on_token(_context, _source, _index, token):
            tokens.put(token)
            return not main.is_alive()  # stop if the interpreter is shutting down

        callback = _ON_TOKEN(on_token)
        g.on_token = c.cast(callback, c.c_void_p)

        def work():
            try:
                self._write(model, rows, g, flag, (kept, callback))
                tokens.put(None)
            except BaseException as why:
                tokens.put(why)

        thread = threading.Thread(target=work, name="relpos.t5")
        written, shown, token = kept[0].tolist(), "", 0
        with self._use() as model:
            try:
                thread.start()
                if numbers:
                    yield from written
                while token is not None:
                    token = tokens.get()
                    if isinstance(token, BaseException):
                        raise token
                    if numbers:
                        yield from () if token is None else (token,)
                        continue
                    written += [] if token is None else [token]
                    text = self.detokenize(written, skip_special_tokens)
                    if token is not None:
                        text = self._settled(text)
                    if text.startswith(shown) and len(text) > len(shown):
                        piece, shown = text[len(shown):], text
                        yield piece
            finally:
                flag.value = 1
                if thread.ident is not None:
                    thread.join()

    def _settled(self, text):
        """Return the part of a text that further tokens cannot change (see rp_t5_detokenize in relpos/t5.h)."""
        if self.config.cleans_up and (space := text.find(" ", max(0, len(text) - 22))) >= 0:
            text = text[:space]
        return text.removesuffix("\ufffd")  # the replacement of an incomplete UTF-8 character

    def _write(self, model, rows, g, flag, kept, written=None):
        found, drafted = _generate(model, rows, g, flag, kept, written)
        with self._lock:
            for name in self._drafted:
                self._drafted[name] += getattr(drafted, name)
        return found

    def _settings(self, model, settings, stop_strings, begin, numbers, max_length):
        """Return the rp_t5_generation for the arguments, and the objects that its pointers refer to."""
        g = _lib.rp_t5_generation_of(model)
        given = {name: value for name, value in settings.items() if value is not None}
        lists = self._lists(g, {name: given.pop(name) for name in _LISTS if name in given})
        if given.get("do_sample") and "num_beams" not in given:
            g.beams = 1
        if given.get("num_beams") is not None and "do_sample" not in given:
            g.sample = 0
        for name, value in given.items():
            field, low, high = _SETTINGS[name]
            if name == "early_stopping":
                if not isinstance(value, (bool, str)) or value not in _STOPPING:
                    raise ValueError(f'early_stopping is {value!r}; it must be False, True or "never"')
                value = _STOPPING[value]
            elif name == "do_sample":
                value = bool(value)
            else:
                value = _real(name, value) if low is None else _integer(name, value, low, high)
            setattr(g, field, value)
        for name, nothing in _DRAWING.items():
            if not g.sample and name in given and given[name] not in nothing:
                raise ValueError(f"{name} is {given[name]!r}, but only sampling uses it (pass do_sample=True)")
        if max_length is not None and "max_new_tokens" in given:
            raise TypeError("max_length and max_new_tokens were both given (give only one of them)")
        if "num_return_sequences" not in given and not g.sample:
            g.returned = min(g.returned, g.beams)
        if "min_new_tokens" not in given and max_length is None:
            g.min_new_tokens = min(g.min_new_tokens, g.max_new_tokens)
        stops = None if stop_strings is None else [one.encode() for one in ([stop_strings] if isinstance(stop_strings, str) else _texts("stop_strings", stop_strings or ()))]
        for one in stops or ():
            if not one or b"\0" in one:
                raise ValueError("stop_strings: a text is empty, or contains a null character (remove it)")
        array = (c.c_char_p * max(len(stops or ()), 1))(*stops or ())
        if stops is not None:
            g.stop, g.n_stop = c.cast(array, c.c_void_p), len(stops)
        row = np.empty(0, np.int32)
        if begin is not None and numbers:
            row = _row("begin", begin)
        elif begin is not None:
            if not isinstance(begin, str):
                raise TypeError(f"begin is {begin!r}; it must be a text (or token numbers with tokens=)")
            row = self.tokenize(begin)
            row = row[:-1] if len(row) and row[-1] == self.config.eos else row
        row = np.ascontiguousarray(row)
        g.prefix = _borrow([row])[0]
        if max_length is not None:
            before = 1 + len(row)
            g.max_new_tokens = _integer("max_length", max_length, before + 1, 1 << 24) - before
            if "min_new_tokens" not in given:
                g.min_new_tokens = min(g.min_new_tokens, g.max_new_tokens)
        return g, (row, array, lists)

    @staticmethod
    def _lists(g, given):
        """Set the token lists of g, and return the objects that its pointers refer to."""
        kept = []
        for name, value in given.items():
            if name == "bad_words_ids":
                if not isinstance(value, (list, tuple)):
                    raise TypeError(f"bad_words_ids is of type {type(value).__name__}; it must be a list of lists of tokens")
                words = [_row(f"bad_words_ids[{n}]", one) for n, one in enumerate(value)]
                made = _borrow(words)
                g.bad_words, g.n_bad_words = c.cast(made, c.c_void_p), len(words)
                kept += [words, made]
            else:
                row = _row(name, value)
                setattr(g, _LISTS[name], _borrow([row])[0])
                kept.append(row)
        return kept

    # ------------------------------------------------------------------------------------------- encode, score

    def encode(self, texts=None, *, tokens=None, pool=None, normalize=False, pad_to=None, attend_padding=False, batch_size=32,
               prompt_name=None, prompt=None, normalize_embeddings=False, show_progress_bar=False, progress=None):
        """Compute the encoder's hidden states of sources, after the last norm, or one vector for each source.

        pool             "none": all hidden states; "mean", "first" or "last": one vector per source; None: for a folder of
                         sentence-transformers the vector of SentenceTransformer.encode, by modules.json; otherwise "none"
        normalize        scale vectors to length 1; needs vectors
        pad_to           cut sources to this number of tokens, with the end token kept last, and pad the results with zeros
        attend_padding   pad sources with pad tokens that are attended to, as text encoders of image models do; needs pad_to
        batch_size       number of sources that are computed together; results do not depend on it
        prompt_name      a prompt of config_sentence_transformers.json, which begins every text. None: its default_prompt_name, if
                         modules.json decides the vectors
        prompt           a text that begins every text, instead of that prompt
        progress         as in `relpos.attention`; the fraction of all tokens

        normalize_embeddings and show_progress_bar, as in sentence-transformers, are aliases of normalize and progress.

        Returns float32 arrays: (sources, width) for vectors, (sources, pad_to, d_model) with pad_to, else a list of (tokens, d_model).
        For one source, returns its element instead of the array or list. With "mean", "first" or "last", a source without tokens gives a vector of zeros.
        """
        normalize, batch = normalize or normalize_embeddings, _integer("batch_size", batch_size, 1, 1 << 24)
        if pool not in (None, "none", "mean", "first", "last"):
            raise ValueError(f'pool is {pool!r}; it must be None, "none", "mean", "first" or "last"')
        pool = pool or ("modules" if self.config.vector_width else "none")
        prompt = self._prompt(prompt, prompt_name, pool, tokens)
        rows, many = self._rows(texts if prompt == "" else prompt + texts if isinstance(texts, str) else [prompt + one for one in _texts("texts", texts)],
                                tokens)
        if normalize and pool == "none":
            raise ValueError('normalize: it needs one vector for each text (add pool="mean")')
        if attend_padding and pad_to is None:
            raise ValueError("attend_padding: without pad_to there is no padding (add pad_to)")
        if pad_to is not None:
            rows = [self._fit(row, _integer("pad_to", pad_to, 1, 1 << 24), attend_padding) for row in rows]
        elif pool == "modules" and self.config.vector_tokens:
            rows = [self._fit(row, self.config.vector_tokens, False) for row in rows]
        d, out = self.config.d_model, []
        before = np.cumsum([0, *map(len, rows)])
        with Shown(progress or show_progress_bar, "encode") as report:
            for n in range(0, len(rows), batch):  # with pool, only the hidden states of one batch are in memory
                some = rows[n:n + batch]
                places = before[n:n + len(some) + 1]
                hidden = np.empty((places[-1] - places[0], d), np.float32)
                with self._use() as model:
                    _watched(_lib.rp_t5_encode, model, len(some), _borrow(some), hidden.ctypes.data,
                             report=_part(report, places[0], places[-1], before[-1]))
                hidden = np.split(hidden, places[1:-1] - places[0])
                if pool == "modules":
                    out += [self._vector(one, prompt, normalize) for one in hidden]
                else:
                    out += hidden if pool == "none" else [_pool(one, pool, normalize) for one in hidden]
        if pool != "none":
            out = np.array(out, np.float32).reshape(-1, self.config.vector_width if pool == "modules" else d)
        elif pad_to is not None:
            padded = np.zeros((len(out), pad_to, d), np.float32)
            for to, one in zip(padded, out):
                to[:len(one)] = one
            out = padded
        return out if many else out[0]

    def _prompt(self, prompt, name, pool, tokens):
        """Return the text that begins every text."""
        if prompt is not None and name is not None:
            raise TypeError("prompt and prompt_name were both given (give only one of them)")
        if tokens is not None and (prompt is not None or name is not None):
            raise TypeError("prompt: tokens= has no text (put the tokens of the prompt before the others)")
        for key, value in (("prompt", prompt), ("prompt_name", name)):
            if value is not None and (not isinstance(value, str) or "\0" in value):
                raise TypeError(f"{key} is {value!r}; it must be a str without null characters")
        if prompt is not None or tokens is not None or (name is None and pool != "modules"):
            return prompt or ""
        found = c.c_char_p()
        with self._use() as model:
            _check(_lib.rp_t5_prompt(model, name and name.encode(), c.byref(found)))
            return found.value.decode()

    def _vector(self, hidden, prompt, normalize):
        """Compute the vector of one source as modules.json says."""
        vector, hidden = np.empty(self.config.vector_width, np.float32), np.ascontiguousarray(hidden)
        with self._use() as model:
            _check(_lib.rp_t5_vector(model, prompt.encode(), len(hidden), hidden.ctypes.data, vector.ctypes.data))
        return _normalized(vector) if normalize else vector

    def _fit(self, row, length, attend):
        if len(row) > length:
            end = row[-1]
            row = row[:length].copy()
            if end == self.config.eos:
                row[-1] = end
        if attend and len(row) < length:
            row = np.concatenate([row, np.full(length - len(row), self.config.pad, np.int32)])
        return np.ascontiguousarray(row)

    def score(self, sources=None, targets=None, *, source_tokens=None, target_tokens=None, each=False, progress=None):
        """Compute the log-probabilities of targets given their sources. Both are texts or tokens, one target per source.

        Returns a float64 array (sources,), or a float for one source. With each=True, returns the log-probability of each target token: a
        list of arrays, or one array for one source. The end token of a target counts too. The score of a generated target has the same bits
        as the score from `generate`. progress is as in `relpos.attention`.
        """
        rows, many = self._rows(sources, source_tokens, "sources", "source_tokens")
        other, many_too = self._rows(targets, target_tokens, "targets", "target_tokens")
        if many != many_too or len(rows) != len(other):
            raise ValueError(f"{len(rows)} sources and {len(other)} targets were given; their numbers must be equal")
        totals, every = np.empty(len(rows)), []
        with Shown(progress, "score") as report:
            for n, (source, target) in enumerate(zip(rows, other)):
                total, single = c.c_double(), np.empty(len(target))
                with self._use() as model:
                    _watched(_lib.rp_t5_score, model, _borrow([source])[0], _borrow([target])[0], c.byref(total), single.ctypes.data,
                             report=_part(report, n, n + 1, len(rows)))
                totals[n] = total.value
                every.append(single)
        out = every if each else totals
        return out if many else out[0] if each else float(out[0])


    # ------------------------------------------------------------------------------------------- looking inside

    def explain(self, text=None, target=None, *, tokens=None, target_tokens=None, part="encoder", layer=0, head=0, query=0):
        """Explain one query of one head step by step. Returns a `relpos.Explanation` in float64, as `relpos.explain` does.

        part     "encoder", "decoder" (self-attention) or "cross" (decoder to encoder)
        layer    number of the layer. layer, head and query count from 0; negative numbers count from the end
        head     number of the head
        query    number of the query. In the decoder, query 0 reads the start token, and query n reads token n - 1 of the target

        "decoder" and "cross" need a target or target_tokens. In the result, `raw` is <q, k>, and `bias` comes from T5's table;
        cross-attention has no table.
        """
        rows, many = self._rows(text, tokens, "text")
        if part not in _PARTS:
            raise ValueError(f'part is {part!r}; it must be "encoder", "decoder" or "cross"')
        given = target is not None or target_tokens is not None
        if given != (part != "encoder"):
            raise TypeError("explain: a target was given, but the encoder reads none (remove it)" if given else "explain: no target was given; pass target or target_tokens")
        targets, several = self._rows(target, target_tokens, "target", "target_tokens") if given else ([np.empty(0, np.int32)], False)
        if many or several:
            raise TypeError("explain: several texts or targets were given, but it accepts one of each (call it for each pair)")
        layers = self.layers if part == "encoder" else self.decoder_layers
        layer, head = _index("layer", layer, layers), _index("head", head, self.heads)
        made = c.POINTER(_Attention)()
        with self._use() as model:
            _watched(_lib.rp_t5_attention_of, model, _PARTS.index(part), layer, _borrow(rows)[0], _borrow(targets)[0], c.byref(made))
            try:
                a = made.contents
                options = {"scale": 1.0, "causal": bool(a.causal)}
                if a.window >= 0:
                    options["window"] = (a.window, a.window)
                if a.table:
                    table = np.ctypeslib.as_array(a.table, (a.buckets, a.heads)).astype(np.float64)
                    options["bias"] = TERMS["t5"](table, buckets=a.buckets, max_distance=a.max_distance, bidirectional=bool(a.bidirectional))
                q, k, v = (np.ctypeslib.as_array(array, (a.heads, length, a.d_kv)) for array, length in ((a.q, a.len_q), (a.k, a.len_k), (a.v, a.len_k)))
                return explain(q, k, v, query=_index("query", query, a.len_q), head=head, **options)
            finally:
                _lib.rp_t5_attention_free(made)


# ---------------------------------------------------------------------------------------------- helpers of the methods

_PARTS = ("encoder", "decoder", "cross")


# Keyword of transformers: (field of rp_t5_generation, low, high), the bounds of an integer. None: a real number; the library checks it.
_SETTINGS = {
    "max_new_tokens": ("max_new_tokens", 1, 1 << 24), "min_new_tokens": ("min_new_tokens", 0, 1 << 24), "num_beams": ("beams", 1, 4096),
    "num_return_sequences": ("returned", 1, 4096), "length_penalty": ("length_penalty", None, None), "early_stopping": ("early_stopping", 0, 2),
    "do_sample": ("sample", 0, 1), "temperature": ("temperature", None, None), "top_k": ("top_k", 0, 2**31 - 1), "top_p": ("top_p", None, None),
    "seed": ("seed", 0, 2**64 - 1), "repetition_penalty": ("repetition_penalty", None, None),
    "no_repeat_ngram_size": ("no_repeat_ngram", 0, 1 << 24), "forced_bos_token_id": ("forced_first", 0, 2**31 - 1),
}
# Keywords that only sampling uses, and the values that are accepted without sampling: those without an effect, and defaults of transformers.
_DRAWING = {"temperature": (1,), "top_k": (0, 50), "top_p": (1,)}
# Keywords that are lists of tokens: the field of rp_t5_generation.
_LISTS = {"suppress_tokens": "suppress", "begin_suppress_tokens": "begin_suppress", "bad_words_ids": "bad_words"}


def _texts(name, texts):
    """Convert a sequence of texts to a list."""
    if isinstance(texts, (bytes, os.PathLike)) or not hasattr(texts, "__iter__"):
        raise TypeError(f"{name} is of type {type(texts).__name__}; it must be a str or a sequence of str")
    texts = list(texts)
    for n, one in enumerate(texts):
        if not isinstance(one, str):
            raise TypeError(f"{name}[{n}] is of type {type(one).__name__}; it must be a str")
    return texts


def _is_many(tokens):
    """Return True for a sequence of token sequences, False for a single token sequence. [] is one empty sequence; [[]] is a list of one."""
    if isinstance(tokens, np.ndarray):
        return tokens.ndim > 1
    if isinstance(tokens, (str, bytes)) or not hasattr(tokens, "__len__"):
        raise TypeError(f"tokens are of type {type(tokens).__name__}; they must be a sequence of integers or a sequence of such sequences")
    return len(tokens) > 0 and hasattr(tokens[0], "__len__")


def _generate(model, rows, g, flag, _kept, written=None):
    """Run rp_t5_generate, and return a list of (tokens, score) and the draft's statistics. `written(source, index, token)` is called for
    each generated token. The argument `_kept` keeps the objects alive that g points to."""
    guarded = _Guarded(written, flag)
    if written:
        callback = _ON_TOKEN(lambda _context, *token: guarded(*token))
        g.on_token = c.cast(callback, c.c_void_p)
    g.cancelled, g.context = c.cast(_lib.rp_t5_is_set, c.c_void_p), c.addressof(flag)
    results = c.c_void_p()
    guarded.check(_lib.rp_t5_generate(model, len(rows), _borrow(rows), c.byref(g), c.byref(results)))
    try:
        found = (_lib.rp_t5_result(results, n).contents for n in range(_lib.rp_t5_results_size(results)))
        drafted = _Drafted.from_buffer_copy(_lib.rp_t5_results_drafted(results).contents)
        return [(np.array(one.tokens[:one.n], np.int32), one.score) for one in found], drafted
    finally:
        _lib.rp_t5_results_free(results)


def _interruptible(work):
    """Run work(flag), where a non-zero flag cancels the work. Python handles signals in the main thread, so the main thread runs the work in
    another thread and waits for it: if a signal handler raises, as on Ctrl-C, set the flag."""
    flag = c.c_int32()
    if threading.current_thread() is not threading.main_thread():
        return work(flag)
    done = queue.SimpleQueue()

    def run():
        try:
            done.put((work(flag), None))
        except BaseException as why:
            done.put((None, why))

    thread = threading.Thread(target=run, name="relpos.t5")
    try:
        thread.start()
        found, why = done.get()
    finally:
        flag.value = 1
        if thread.ident is not None:
            thread.join()
    if why is not None:
        raise why
    return found


def _written(report, g, sources, end):
    """Return a callback that reports progress: the tokens generated so far, divided by the most that may be generated. A finished target
    counts as if it had reached its limit."""
    counts, total = {}, sources * g.returned * g.max_new_tokens
    done = 0

    def written(source, index, token):
        nonlocal done
        before = counts.get((source, index), 0)
        counts[source, index] = g.max_new_tokens if token == end else min(before + 1, g.max_new_tokens)
        done += counts[source, index] - before
        report(done / total)

    return written


def _part(report, begin, end, of):
    """Return a progress function for one part of a call, which goes from `begin` to `end` of `of` units. Return None without progress."""
    return report and (lambda fraction: report((begin + fraction * (end - begin)) / max(of, 1)))


class _Guarded:
    """Wrap a Python function so that a callback of the library can call it. If the function raises, the library's call is cancelled, and
    check() raises the error."""

    def __init__(self, function, flag):
        self._function, self._flag, self._error = function, flag, None

    def __call__(self, *arguments):
        if self._function and not self._error:
            try:
                self._function(*arguments)
            except BaseException as why:
                self._error, self._flag.value = why, 1
        return self._flag.value

    def check(self, status):
        if self._error:
            raise self._error
        _check(status)


def _watched(call, *arguments, report=None):
    """Call a library function whose last parameters are a progress callback and its context. Ctrl-C ends the call between two layers."""
    def work(flag):
        guarded = _Guarded(report, flag)
        progress = _PROGRESS(lambda _context, fraction: guarded(fraction))
        guarded.check(call(*arguments, c.cast(progress, c.c_void_p), None))

    _interruptible(work)


def _pool(hidden, how, normalize):
    """Compute the vector of one source from its hidden states. Sums are in float64, in the order of the tokens."""
    if len(hidden) == 0:
        return np.zeros(hidden.shape[1], np.float32)
    if how == "mean":
        total = np.zeros(hidden.shape[1])
        for row in hidden:
            total += row
        vector = (total / len(hidden)).astype(np.float32)
    else:
        vector = hidden[0 if how == "first" else -1]
    return _normalized(vector) if normalize else vector


def _normalized(vector):
    wide = vector.astype(np.float64)
    length = np.sqrt(np.cumsum(wide * wide)[-1])  # cumsum adds in order, which gives the same bits as the program
    return (wide / length).astype(np.float32) if length > 0 else vector


# ------------------------------------------------------------------------------------------------ proteins

_BATCH = 8192  # tokens that are computed together, unless one protein is longer


def proteins(model, fasta, output=None, *, family=None, pool=False, dtype="float16", skip_bad=None, progress=None):
    """Embed proteins of any length with a ProtT5, ProstT5 or Ankh model. `relpos t5 proteins` does the same for a whole proteome: it needs
    less memory, and an interrupted run continues.

    model     a T5, or the path of a model
    fasta     the path of a FASTA file (also compressed with gzip), or a dict {name: residues}
    output    None: return a dict {key: array}. A path that ends in .npz or .h5 (needs h5py): write one array per protein to it, completely
              or not at all, and return the number of residues that were read as others
    family    "prott5", "prostt5" or "ankh"; None: what the pieces of the tokenizer say
    pool      False: arrays (residues, d_model), without rows for the end token and ProstT5's prefix. True: (d_model,), the mean over residues
    dtype     "float16" or "float32"
    skip_bad  None: a bad record raises ValueError. A path: leave out bad records, and write a line for each to this file: the number of its
              line (in a dict, of its place), its name and its fault, between tabs
    progress  as in `relpos.attention`; the fraction of all residues

    The key of a protein in a FASTA file is its header, with / and . replaced by _, as in prott5_embedder.py. Equal sequences are computed
    once. Lower case is read as upper case; white space and - are dropped; * and . are stops. ProtT5 reads J, O, U, Z as X; ProstT5 reads B as D, Z as E, J as L, and O, U as X; Ankh reads J as
    <unk>.
    """
    if not isinstance(model, T5):
        with T5(model) as opened:
            return proteins(opened, fasta, output, family=family, pool=pool, dtype=dtype, skip_bad=skip_bad, progress=progress)
    if np.dtype(dtype) not in (np.float16, np.float32):
        raise ValueError(f'dtype is {dtype!r}; it must be "float16" or "float32"')
    suffix = None if output is None else os.path.splitext(os.fspath(output))[1]
    if suffix not in (None, ".npz", ".h5"):
        raise ValueError(f"output ends in {suffix!r}; it must end in .npz or .h5")
    if family is not None and not isinstance(family, str):
        raise TypeError(f'family is {family!r}; it must be "prott5", "prostt5", "ankh" or None')
    name = None if family is None else family.encode()
    bad = None if skip_bad is None else []
    records = _checked(model, fasta, name, bad) if isinstance(fasta, dict) else _fasta(fasta, bad)
    if bad is not None:
        _write_bad(os.fspath(skip_bad), bad)
    with Shown(progress, "proteins") as report:
        made = _embedded(model, records, name, pool, np.dtype(dtype), report)
        if output is None:
            found = {key: array for key, array, _ in made}
            return {key: found[key] for key in records}
        return (_write_npz if suffix == ".npz" else _write_h5)(os.fspath(output), made)


def _refuse(bad, line, name, error):
    """Raise the error of a record, or add the record to the list of bad ones."""
    if bad is None:
        raise error
    bad.append((line, name, str(error)))


def _write_bad(path, bad):
    with _replaced(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for line, *texts in bad:
            file.write("\t".join([str(line), *("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text) for text in texts)]) + "\n")


def _fasta(path, bad):
    """Read a FASTA file. Return {key: residues}."""
    file, record, records, name = c.c_void_p(), _Record(), {}, os.fspath(path)
    _check(_lib.rp_t5_fasta_open(c.byref(file), os.fsencode(path)), refused=OSError)
    try:
        while True:
            try:
                _check(_lib.rp_t5_fasta_next(file, 1, 2**31 - 3, c.byref(record)))
            except ValueError as error:
                if bad is None or _lib.rp_t5_fasta_skip(file, c.byref(record)) != _OK:
                    raise
                _refuse(bad, record.line, record.header.decode("utf-8", "backslashreplace"), str(error).removeprefix(f"{name}: "))
                continue
            if record.header is None:
                return records
            key = record.header.decode().replace("/", "_").replace(".", "_")
            if key in records:
                why = f"line {record.line}: the name {key} occurs twice (rename one)"
                _refuse(bad, record.line, record.header.decode(), why if bad is not None else ValueError(f"{name}: {why}"))
            else:
                records[key] = record.residues
    finally:
        _lib.rp_t5_fasta_close(file)


def _residues(handle, family, residues, protein):
    data = residues.encode() if isinstance(residues, str) else residues
    _check(_lib.rp_t5_residues(handle, family, data, len(data), c.byref(protein)))


def _checked(model, records, family, bad):
    """Return the records of a dict. With a list of bad records, leave out those."""
    if bad is None:
        return dict(records)
    good, protein = {}, _Protein()
    with model._use() as handle:
        for n, (key, residues) in enumerate(records.items()):
            try:
                _residues(handle, family, residues, protein)
            except ValueError as error:
                _refuse(bad, n + 1, key, error)
            else:
                _lib.rp_t5_free(protein.tokens)
                good[key] = residues
    return good


def _plain(residues):
    """Return residues in upper case and without gaps, as bytes: equal proteins become equal."""
    data = residues.encode() if isinstance(residues, str) else residues
    return data.upper().translate(bytes.maketrans(b".", b"*"), b"- \t\n\v\f\r")


def _embedded(model, records, family, pool, dtype, report):
    """Compute proteins, the longest first. Yield (key, array, number of replaced residues). Equal ones are computed once."""
    groups = {}
    for key in records:
        groups.setdefault(_plain(records[key]), []).append(key)
    order = sorted(groups, key=lambda residues: -len(residues))
    total, done = max(sum(len(one) for one in order), 1), 0
    while order:
        tokens, n = 0, 0
        while n < len(order) and (n == 0 or tokens + len(order[n]) + 2 <= _BATCH):
            tokens += len(order[n]) + 2
            n += 1
        batch, order = order[:n], order[n:]
        with model._use() as handle:
            made = (_Protein * n)()
            try:
                for protein, residues in zip(made, batch):
                    _residues(handle, family, records[groups[residues][0]], protein)
                hidden = np.empty((sum(protein.residues for protein in made), model.config.d_model), np.float32)
                _watched(_lib.rp_t5_encode_residues, handle, n, made, hidden.ctypes.data,
                         report=_part(report, done, done + len(hidden), total))
                replaced, lengths = [protein.replaced for protein in made], [protein.residues for protein in made]
            finally:
                for protein in made:
                    _lib.rp_t5_free(protein.tokens)
        done += len(hidden)
        for residues, rows, others in zip(batch, np.split(hidden, np.cumsum(lengths)[:-1]), replaced):
            array = (_pool(rows, "mean", False) if pool else rows).astype(dtype)
            for key in groups[residues]:
                if not np.isfinite(array).all():
                    raise ValueError(f'{key}: a number does not fit float16 (use dtype="float32")')
                yield key, array.copy(), others


@contextlib.contextmanager
def _replaced(path):
    """Give the name of a temporary file that becomes `path`, or is removed after an exception."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def _write_npz(path, made):
    total = 0
    with _replaced(path) as temporary, zipfile.ZipFile(temporary, "w", allowZip64=True) as archive:
        for key, array, others in made:
            with archive.open(key + ".npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
            total += others
    return total


def _write_h5(path, made):
    try:
        import h5py
    except ImportError:
        raise ImportError("proteins: writing .h5 needs the package h5py (pip install h5py, or write .npz)") from None
    total = 0
    with _replaced(path) as temporary, h5py.File(temporary, "w") as file:
        for key, array, others in made:
            file.create_dataset(key, data=array)
            total += others
    return total
