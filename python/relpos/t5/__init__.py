"""Run models of the T5 family on the CPU: from text to text, vectors or scores. docs/t5.md lists the supported models.

    import relpos.t5
    model = relpos.t5.T5("flan-t5-small", type="int8")
    model.generate(["translate English to German: Good morning."], num_beams=4)

The C files in _core pass arrays and texts to the library librelpos_t5, which in a wheel also contains the relpos
program. Here are the public functions. _generate, _encode and _proteins have what they do, .._arguments the checks.
SPDX-License-Identifier: Apache-2.0"""
import os
import types

import numpy as np

from .. import _arguments, _models

try:
    import relpos.t5._core as _core
except ModuleNotFoundError:
    raise ImportError(f"relpos.t5: {_models.NO_LIBRARY}") from None

from . import _encode, _generate, _proteins

__all__ = ["T5", "proteins"]


class T5(_models.Model):
    """A model of the T5 family: from a folder that save_pretrained wrote, a .gguf file, a file that `pack` or `relpos
    t5 pack` wrote, or a single file of weights without a config.json.

    path       a str or path
    type       type of the weights: "f32", "f16", "bf16", "int8", "int4" or "q8"; None: the narrowest for the file's
               numbers, exactly; blocks of a .gguf file stay as they are (type "gguf"; "q8" if all are Q8_0). Inputs of
               linear layers are rounded too: to bf16 with bf16, to 8 bits with int8, int4, q8 and blocks. With these
               types the decoder keeps keys and values as bf16
    threads    number of threads; None: all that this process may use. Results do not depend on it
    tokenizer  a folder, a tokenizer.json or a spiece.model; None: the tokenizer of the model; False: no tokenizer
    draft      "int4" or "int8": a second copy of the decoder's layers, of this type, proposes tokens, and the model
               checks several in one pass. The results are the same. A draft is faster for one source at a time with
               greedy search or sampling. `drafted` has its statistics

    The library maps the files into memory: do not change them until the model is closed, by `close`, by `with`, or by
    garbage collection. Any number of Python threads may use a model concurrently, and other threads run while it
    computes.

    Sources are texts: a str gives one result; a sequence of str gives a list or an array with one result each. Instead
    of texts, `tokens=` accepts token numbers: a sequence of integers, or a sequence of such sequences. They include the
    end token of a source, as the result of `tokenize` does. The result of a source does not depend on the other
    sources.

    Invalid arguments and files raise ValueError or TypeError, missing files OSError, and lack of memory MemoryError.
    Messages have one line. What opening changed or ignored in the files, such as a prefix of the tensors' names, is a
    UserWarning.
    """

    def __init__(self, path, *, type=None, threads=None, draft=None, tokenizer=None):
        name = _models.path_of(path)
        if type is not None and not isinstance(type, str):
            raise TypeError(f'type is {type!r}; it must be "f32", "f16", "bf16", "int8", "int4", "q8" or None')
        if draft is not None and not isinstance(draft, str):
            raise TypeError(f'draft is {draft!r}; it must be "int8", "int4" or None')
        with_file = tokenizer is not None and tokenizer is not False
        if with_file:
            os.stat(tokenizer)
        self._open(_core, name, type, _models.threads_of(threads), draft, os.fsencode(tokenizer) if with_file else None,
                   tokenizer is False)

    # ------------------------------------------------------------------------------------------- the model

    @property
    def config(self):
        """Sizes and properties of the model, named as in rp_t5_info: kind, type, vocab, d_model, d_kv, d_ff, heads,
        layers, decoder_layers (0: the model has no decoder), parameters, bytes, gated, tied, has_tokenizer, start, eos,
        pad and others. `model.d_model` is short for `model.config.d_model`."""
        return types.SimpleNamespace(**self._info)

    @property
    def drafted(self):
        """Statistics of the draft over all successful calls: `proposed` and `accepted` tokens, and `passes` of the
        model that checked them."""
        return types.SimpleNamespace(**_core.drafted(self._handle))

    def _layers(self):
        return f"{self.config.layers} + {self.config.decoder_layers}"

    def pack(self, path):
        """Write the packed weights, the configuration and the tokenizer to one file, which opens faster than a folder.
        Weights of the type "gguf" cannot be packed: open the model with another type. A tokenizer that cannot be read
        cannot be packed either: open the model with tokenizer=False to pack it without one."""
        self._pack(path)

    # ------------------------------------------------------------------------------------------- text

    def tokenize(self, text):
        """Convert a text to an int32 array of tokens that includes the end token. A sequence of texts gives a list of
        arrays."""
        if not isinstance(text, str):
            return [self.tokenize(one) for one in _arguments.texts("text", text)]
        return np.frombuffer(_core.tokenize(self._handle, text), np.int32)

    def detokenize(self, tokens, skip_special_tokens=True):
        """Convert tokens to text, without special tokens such as <extra_id_0> and </s>, or with them if
        skip_special_tokens is false. A sequence of sequences gives a list of texts."""
        if _arguments.is_many(tokens):
            return [self.detokenize(one, skip_special_tokens) for one in tokens]
        return _core.detokenize(self._handle, _arguments.row("tokens", tokens), skip_special_tokens)

    # ------------------------------------------------------------------------------------------- generate

    def generate(self, texts=None, *, tokens=None, max_new_tokens=None, min_new_tokens=None, num_beams=None,
                 num_return_sequences=None, length_penalty=None, early_stopping=None, do_sample=None, temperature=None,
                 top_k=None, top_p=None, seed=0, repetition_penalty=None, no_repeat_ngram_size=None,
                 suppress_tokens=None, begin_suppress_tokens=None, bad_words_ids=None, forced_bos_token_id=None,
                 max_length=None, stop_strings=None, begin=None, return_scores=False, skip_special_tokens=True,
                 progress=None):
        """Generate a target for each source by greedy search, beam search or sampling. With the same weights, the
        searches give the tokens of transformers, unless rounding decides between nearly equal scores.

        If an argument is None, the setting of the model's generation_config.json applies, or, without one, the value in
        the second column.

        max_new_tokens         256      end after this number of new tokens
        min_new_tokens         0        do not end before this number of new tokens
        num_beams              1        number of beams; 1: greedy search
        num_return_sequences   1        number of results per source: the best beams, or samples
        length_penalty         1.0      with several beams: divide log-probabilities by the length to this power
        early_stopping         False    with several beams: False, True or "never"
        do_sample              False    sample each token; needs one beam
        temperature            1.0      sampling: divide logits by this. Without sampling, this and the next two raise
                                        ValueError
        top_k                  50       sampling: sample from the top_k likeliest tokens; 0: from all
        top_p                  1.0      sampling: sample from the likeliest tokens that have this total probability
        seed                   0        the same seed gives a source the same samples, whatever the other sources of the
                                        call are
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
        skip_special_tokens    True     False: keep special tokens in the texts, such as the <extra_id_0> of span
                                        filling
        progress               False    as in `relpos.attention`; the fraction of max_new_tokens generated, where a
                                        finished target counts in full

        Returns a text for one source, or a list of texts. With tokens=, results are int32 arrays instead of texts and
        include the end token if it was generated. With num_return_sequences above 1, each result is a list. Scores are
        log-probabilities; with several beams, they are divided by the length to the power length_penalty. They are a
        float64 array (sources,) or (sources, num_return_sequences), without the first axis for one source. Ctrl-C ends
        the call after the current step.
        """
        arguments = locals()
        rows, many = _arguments.rows(self, texts, tokens)
        g = _generate.settings(self, arguments)
        g.scores = int(bool(return_scores))
        found = _generate.generate(self, rows, g, progress)
        out = [row if tokens is not None else self.detokenize(row, skip_special_tokens) for row, _ in found]
        scores = np.array([score for _, score in found], np.float64)
        if g.returned > 1:
            out = [out[n:n + g.returned] for n in range(0, len(out), g.returned)]
            scores = scores.reshape(-1, g.returned)
        if not many:
            out, scores = out[0], scores[0]
        return (out, scores) if return_scores else out

    def stream(self, text=None, *, tokens=None, max_new_tokens=None, min_new_tokens=None, num_beams=None,
               length_penalty=None, early_stopping=None, do_sample=None, temperature=None, top_k=None, top_p=None,
               seed=0, repetition_penalty=None, no_repeat_ngram_size=None, suppress_tokens=None,
               begin_suppress_tokens=None, bad_words_ids=None, forced_bos_token_id=None, max_length=None,
               stop_strings=None, begin=None, skip_special_tokens=True):
        """Generate the target of one source, and yield its text piece by piece. The joined pieces equal the result of
        `generate`. With tokens=, yield token numbers. The arguments are those of `generate`; wrong ones raise before
        the first piece is requested. With several beams, all pieces come at the end.

        A background thread generates the text. It stops when the iterator is closed or deleted, or on Ctrl-C.
        """
        arguments = {**locals(), "num_return_sequences": 1}
        rows, many = _arguments.rows(self, text, tokens, "text")
        if many:
            raise TypeError("stream: several sources were given, but it writes one (use generate for several)")
        g = _generate.settings(self, arguments)
        return _generate.pieces(self, rows, g, tokens is not None, skip_special_tokens)

    def _settled(self, text):
        """Return the part of a text that further tokens cannot change (see rp_t5_detokenize in relpos/t5.h)."""
        if self.config.cleans_up and (space := text.find(" ", max(0, len(text) - 22))) >= 0:
            text = text[:space]
        return text.removesuffix("\ufffd")  # the replacement of an incomplete UTF-8 character

    # ------------------------------------------------------------------------------------------- encode, score

    def encode(self, texts=None, *, tokens=None, pool=None, normalize=False, pad_to=None, attend_padding=False,
               batch_size=32, prompt_name=None, prompt=None, normalize_embeddings=False, show_progress_bar=False,
               progress=None):
        """Compute the encoder's hidden states of sources, after the last norm, or one vector for each source.

        pool             "none": all hidden states; "mean", "first" or "last": one vector per source; None: for a folder
                         of sentence-transformers the vector of SentenceTransformer.encode, by modules.json; otherwise
                         "none"
        normalize        scale vectors to length 1; needs vectors
        pad_to           cut sources to this number of tokens, with the end token kept last, and pad the results with
                         zeros
        attend_padding   pad sources with pad tokens that are attended to, as text encoders of image models do; needs
                         pad_to
        batch_size       number of sources that are computed together; results do not depend on it
        prompt_name      a prompt of config_sentence_transformers.json, which begins every text. None: its
                         default_prompt_name, if modules.json decides the vectors
        prompt           a text that begins every text, instead of that prompt
        progress         as in `relpos.attention`; the fraction of all tokens

        normalize_embeddings and show_progress_bar, as in sentence-transformers, are aliases of normalize and progress.

        Returns float32 arrays: (sources, width) for vectors, (sources, pad_to, d_model) with pad_to, else a list of
        (tokens, d_model). For one source, returns its element instead of the array or list. With "mean", "first" or
        "last", a source without tokens gives a vector of zeros.
        """
        return _encode.encode(self, texts, tokens, pool, normalize or normalize_embeddings, pad_to, attend_padding,
                              _arguments.integer("batch_size", batch_size, 1, 1 << 24), prompt_name, prompt,
                              progress or show_progress_bar)

    def score(self, sources=None, targets=None, *, source_tokens=None, target_tokens=None, each=False, progress=None):
        """Compute the log-probabilities of targets given their sources. Both are texts or tokens, one target per
        source.

        Returns a float64 array (sources,), or a float for one source. With each=True, returns the log-probability of
        each target token: a list of arrays, or one array for one source. The end token of a target counts too. The
        score of a generated target has the same bits as the score from `generate`. progress is as in
        `relpos.attention`.
        """
        return _encode.score(self, sources, targets, source_tokens, target_tokens, each, progress)

    # ------------------------------------------------------------------------------------------- looking inside

    def explain(self, text=None, target=None, *, tokens=None, target_tokens=None, part="encoder", layer=0, head=0,
                query=0):
        """Explain one query of one head step by step. Returns a `relpos.Explanation` in float64, as `relpos.explain`
        does.

        part     "encoder", "decoder" (self-attention) or "cross" (decoder to encoder)
        layer    number of the layer. layer, head and query count from 0; negative numbers count from the end
        head     number of the head
        query    number of the query. In the decoder, query 0 reads the start token, and query n reads token n - 1 of
                 the target

        "decoder" and "cross" need a target or target_tokens. In the result, `raw` is <q, k>, and `bias` comes from T5's
        table; cross-attention has no table.
        """
        return _encode.explain(self, text, target, tokens, target_tokens, part, layer, head, query)


def proteins(model, fasta, output=None, *, family=None, pool=False, dtype="float16", skip_bad=None, progress=None):
    """Embed proteins of any length with a ProtT5, ProstT5 or Ankh model. `relpos t5 proteins` does the same for a whole
    proteome: it needs less memory, and an interrupted run continues.

    model     a T5, or the path of a model
    fasta     the path of a FASTA file (also compressed with gzip), or a dict {name: residues}
    output    None: return a dict {key: array}. A path that ends in .npz or .h5 (needs h5py): write one array per
              protein to it, completely or not at all, and return the number of residues that were read as others
    family    "prott5", "prostt5" or "ankh"; None: what the pieces of the tokenizer say
    pool      False: arrays (residues, d_model), without rows for the end token and ProstT5's prefix. True: (d_model,),
              the mean over residues
    dtype     "float16" or "float32"
    skip_bad  None: a bad record raises ValueError. A path: leave out bad records, and write a line for each to this
              file: the number of its line (in a dict, of its place), its name and its fault, between tabs
    progress  as in `relpos.attention`; the fraction of all residues

    The key of a protein in a FASTA file is its header, with / and . replaced by _, as in prott5_embedder.py. Equal
    sequences are computed once. Lower case is read as upper case; white space and - are dropped; * and . are stops.
    ProtT5 reads J, O, U, Z as X; ProstT5 reads B as D, Z as E, J as L, and O, U as X; Ankh reads J as <unk>.
    """
    if not isinstance(model, T5):
        with T5(model) as opened:
            return proteins(opened, fasta, output, family=family, pool=pool, dtype=dtype, skip_bad=skip_bad,
                            progress=progress)
    return _proteins.embed(model, fasta, output, family, pool, dtype, skip_bad, progress)
