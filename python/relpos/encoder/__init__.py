"""Run encoders on the CPU: BERT, RoBERTa, XLM-R, MPNet, DeBERTa-v2 and -v3, ModernBERT, ESM-2.

    import relpos
    model = relpos.Encoder("all-mpnet-base-v2")
    model.encode(["A cat sleeps.", "Stocks fell."])

The methods have the names and arguments of sentence-transformers and of the text-classification pipeline of
transformers. The C files in _core pass texts and arrays to the functions of relpos/encoder.h. Here is the public class,
_encode and _score have what it does.
SPDX-License-Identifier: Apache-2.0"""
import inspect

from .. import _models

try:
    import relpos.encoder._core as _core
except ModuleNotFoundError:
    raise ImportError(f"relpos.encoder: {_models.NO_LIBRARY}") from None

from . import _encode, _score

__all__ = ["Encoder"]


class Encoder(_models.Model):
    """An encoder for search or classification, from a folder that save_pretrained of transformers or of
    sentence-transformers wrote, or from a file that `pack` or `relpos pack` wrote.

    path     a str or path
    type     type of the weights: "f32", "f16", "bf16", "q8" or "int8"; None: the narrowest of the first three that
             represents the file's numbers exactly. Inputs of linear layers are rounded too: to bf16 with bf16, to 8
             bits with q8 and int8. q8 is the type to choose for 8 bits; int8 is faster, and changes vectors noticeably
    threads  number of threads; None: all that this process may use. Results do not depend on it

    Do not change the files of a model until it is closed, by `close`, by `with`, or by garbage collection. Any number
    of Python threads may use a model concurrently, and other threads run while it computes. The result of a text does
    not depend on the other texts. Texts are cut to `max_seq_length` tokens. Ctrl-C ends a call between two layers.

    Invalid arguments and files raise ValueError or TypeError, missing files OSError, and lack of memory MemoryError.
    Messages have one line. What opening changed or ignored in the files is a UserWarning.
    """

    def __init__(self, path, *, type=None, threads=None):
        name = _models.path_of(path)
        if type is not None and not isinstance(type, str):
            raise TypeError(f'type is {type!r}; it must be "f32", "f16", "bf16", "q8", "int8" or None')
        self._open(_core, name, type, _models.threads_of(threads))
        self._info["labels"] = _core.labels(self._handle)

    # ------------------------------------------------------------------------------------------- the model

    @property
    def config(self):
        """Sizes and properties of the model, named as in rp_encoder_info: kind, type, vocab, width, heads, inner,
        layers, max_tokens, parameters, bytes, vector_width, has_tokenizer and others. `labels` is the list of the names
        of labels, empty without a classification head. `model.width` is short for `model.config.width`."""
        return super().config

    @property
    def max_seq_length(self):
        """Texts are cut to this number of tokens; None: they are not cut."""
        return self.config.vector_tokens or None

    def _layers(self):
        return self.config.layers

    def pack(self, path):
        """Write the packed weights, the configuration and the tokenizer to one file, which opens faster than a
        folder."""
        self._pack(path)

    def tokenize(self, text, pair=None, max_tokens=None):
        """Convert a text, or a text and its pair, to an int32 array of tokens with the special tokens of the model.
        max_tokens cuts it: a text at its end, and of a pair the text that is longer. A sequence of texts gives a list
        of arrays."""
        return _encode.tokenize(self, text, pair, max_tokens)

    # ------------------------------------------------------------------------------------------- vectors

    def encode(self, inputs=None, prompt_name=None, prompt=None, batch_size=32, show_progress_bar=None,
               output_value="sentence_embedding", precision="float32", convert_to_numpy=True, convert_to_tensor=False,
               device=None, normalize_embeddings=False, truncate_dim=None, pool=None, chunk_size=None, *,
               sentences=None, tokens=None, progress=None):
        """Compute the vectors of texts, as SentenceTransformer.encode does.

        inputs                a str, which gives one vector, or a sequence of str
        prompt_name           a prompt of config_sentence_transformers.json, which begins every text. None: its
                              default_prompt_name
        prompt                a text that begins every text, instead of that prompt
        batch_size            number of texts that are computed together if hidden states are returned; otherwise relpos
                              chooses it. Results do not depend on it
        show_progress_bar     the same as progress
        output_value          "sentence_embedding"; "token_embeddings": hidden states without pooling; None: a dict with
                              both, and the tokens (`input_ids`)
        precision             "float32"; quantize_embeddings of sentence-transformers converts the result to others
        convert_to_numpy      False: return a list of torch tensors
        convert_to_tensor     True: return a torch tensor
        device                None or "cpu"
        normalize_embeddings  scale vectors to length 1; many models do so themselves
        truncate_dim          keep this number of elements of each vector
        pool, chunk_size      None: a call shares its work over threads, not over processes
        sentences             the older name of inputs
        tokens                token numbers instead of inputs: a sequence of integers, or a sequence of such sequences.
                              They include special tokens, as the result of `tokenize` does
        progress              as in `relpos.attention`

        Returns a float32 array (texts, vector_width); with "token_embeddings", a list of (tokens, width). For one text,
        returns its element instead of the array or list.
        """
        _encode.check(batch_size, precision, device, pool, chunk_size)
        inputs = _encode.given(inputs, sentences, tokens)
        return _encode.encode(self, inputs, tokens, (prompt_name, prompt), batch_size, output_value,
                              (convert_to_numpy, convert_to_tensor), normalize_embeddings, truncate_dim,
                              progress or show_progress_bar)

    def encode_query(self, inputs=None, prompt_name=None, prompt=None, *others, **options):
        """Compute the vectors of queries: `encode` with the prompt "query" of the model, which is empty if the model
        has none."""
        name = _encode.prompt_of_task(self, ("query",), prompt_name, prompt, options)
        return self.encode(inputs, name, prompt, *others, **options)

    def encode_document(self, inputs=None, prompt_name=None, prompt=None, *others, **options):
        """Compute the vectors of documents: `encode` with the prompt "document" of the model, which is empty unless the
        model has one."""
        name = _encode.prompt_of_task(self, ("document", "passage", "corpus"), prompt_name, prompt, options)
        return self.encode(inputs, name, prompt, *others, **options)

    # ------------------------------------------------------------------------------------------- labels and scores

    def classify(self, inputs, *, top_k="", batch_size=32, progress=None):
        """Classify texts, or pairs of texts, as the text-classification pipeline of transformers does.

        inputs      a str, a pair, or a list of these. A pair is a tuple of two str, or a dict {"text", "text_pair"};
                    an empty second text is none, as in the pipeline
        top_k       return this number of labels for each text, best first; None: all; default: one
        batch_size  has no effect: results do not depend on it
        progress    as in `relpos.attention`

        Scores are probabilities: sigmoids if the model has one label or if its problem_type is
        multi_label_classification, else a softmax over the labels. If problem_type is regression, they are the logits.

        Returns what the pipeline does. Without top_k, a list with a dict {"label", "score"} for each text (a dict for
        one pair). With top_k, a list of dicts for one text, or a list of such lists.
        """
        _encode.check(batch_size)
        return _score.classify(self, inputs, top_k, progress)

    def predict(self, inputs, prompt_name=None, prompt=None, batch_size=32, show_progress_bar=None, activation_fn=None,
                apply_softmax=False, convert_to_numpy=True, convert_to_tensor=False, device=None, pool=None,
                chunk_size=None, *, progress=None):
        """Score pairs of a query and a document, as CrossEncoder.predict of sentence-transformers does.

        inputs             a pair of str, which gives one score, or a sequence of pairs
        prompt_name        None: reranking has no prompts. The same holds for prompt
        activation_fn      a function of a torch tensor of logits (pairs, labels), such as torch.nn.Identity(); None:
                           that of config.json; without one, sigmoid, or with several labels none
        apply_softmax      with several labels, apply softmax to the scores of each pair
        convert_to_numpy   and the arguments not listed here are as in `encode`

        Returns a float32 array (pairs,), or (pairs, labels) if the model has several labels. For one pair, returns its
        element.
        """
        _encode.check(batch_size, device=device, pool=pool, chunk_size=chunk_size)
        _score.refuse_prompts(prompt_name, prompt)
        return _score.predict(self, inputs, batch_size, activation_fn, apply_softmax,
                              (convert_to_numpy, convert_to_tensor), progress or show_progress_bar)

    rerank = predict

    def rank(self, query, documents, top_k=None, return_documents=False, prompt_name=None, prompt=None, batch_size=32,
             show_progress_bar=None, activation_fn=None, device=None, pool=None, chunk_size=None, *, progress=None):
        """Rank documents by their scores with a query, as CrossEncoder.rank of sentence-transformers does.

        query             a str
        documents         a sequence of str
        top_k             return the best top_k documents; None: all
        return_documents  add the text of each document as "text"
        batch_size        and the arguments not listed here are as in `predict`

        Returns a list of dicts {"corpus_id", "score"}, the highest score first. "corpus_id" is the place in documents.
        """
        documents, top_k = _score.check_rank(self, query, documents, top_k)
        scores = self.predict([(query, one) for one in documents], prompt_name, prompt, batch_size, show_progress_bar,
                              activation_fn, device=device, pool=pool, chunk_size=chunk_size, progress=progress)
        return _score.ranked(scores, documents if return_documents else None, top_k)


for _method in (Encoder.encode_query, Encoder.encode_document):
    _method.__signature__ = inspect.signature(Encoder.encode)
