"""NumPy versions of two classes from tutorials (docs/texts.md), with their helper functions: a bias that decays with
distance, and Shaw's relative vectors.

    >>> import numpy as np, relpos.numpy
    >>> layer = relpos.numpy.RelativePositionBiasAttention(d_k=4, bias_scale=0.3)
    >>> weights, output = layer.forward(np.eye(4), np.eye(4), np.eye(4))
    >>> weights.round(4)[0]
    array([0.4294, 0.2115, 0.1873, 0.1718])

Arrays have one row for each token, and there is one head. relpos.torch has modules with the same names, which have
gradients. relpos.attention computes the attention in float64. Functions with a parameter rel_embed also accept a
RelativePositionEmbedding of relpos.torch. `seed` draws the same numbers as np.random.seed(seed) and np.random.randn
without changing NumPy's global state; without a seed, the global state is used. Offsets are key - query.

SPDX-License-Identifier: Apache-2.0"""
import inspect
import math
import numbers
import operator

import numpy as np

import relpos

from ._hooks import hook, replaced

__all__ = ["RelativePositionBiasAttention", "RelativePositionEmbedding", "RelativeSelfAttention",
           "clip_relative_position",
           "relative_attention_scores", "efficient_relative_scores", "relative_attention_output",
           "compute_position_biases",
           "analyze_position_bias", "count_position_pairs"]


def _array(x):
    """Convert an array or tensor to float64."""
    return np.asarray(x.detach().double() if hasattr(x, "detach") else x, np.float64)


def _matrix(x, name):
    """Convert an array or tensor to a float64 matrix."""
    x = _array(x)
    if x.ndim != 2:
        raise ValueError(f"{name} has {x.ndim} axes, expected 2, with a row for each token; use relpos.attention for "
                         "batches and heads")
    return x


def _count(name, value):
    """Convert a non-negative integer to int."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected an integer") from None
    if number < 0:
        raise ValueError(f"{name} is {number}, expected 0 or more")
    return number


def need_same(name, count, other, wanted, what="columns"):
    """Refuse two arrays with different numbers of columns or rows."""
    if count != wanted:
        raise ValueError(f"{name} has {count} {what}, but {other} has {wanted}")


def need_weights(w):
    """Refuse weights without an axis for queries and one for keys."""
    if w.ndim < 2:
        raise ValueError(f"attention_weights has {w.ndim} axes, expected 2 or more, the last for queries and keys")


def need_tokens(tokens, query, N, M):
    """Refuse a list of tokens in which a key or the query has none, or that has more tokens than both."""
    if not max(M, query % N + 1) <= len(tokens) <= max(N, M):
        raise ValueError(f"tokens has {len(tokens)} entries, but there are {N} queries and {M} keys")


# ---------------------------------------------------------------------------------------------- a decay with distance

def own_bias(method, N, M):
    """Call the method of a subclass that computes biases: method(N, M), or method(N) if it has one parameter, which
    requires M = N."""
    if len(inspect.signature(method).parameters) > 1:
        return method(N, M)
    if N != M:
        raise ValueError(f"{method.__qualname__} has one parameter, but there are {N} queries and {M} keys; add a "
                         "second parameter, the "
                         "number of keys")
    return method(N)


def inverse(scale):
    """Return 1 / scale, the factor of the scores."""
    if not isinstance(scale, numbers.Real) or scale == 0:
        raise TypeError(f"scale is {scale!r}, expected a number other than 0, which divides the scores")
    return 1 / scale


class RelativePositionBiasAttention:
    """softmax(Q K^T / sqrt(d_k) + B) V, where B[i, j] = -bias_scale log(1 + |i - j|).

    Shapes   Q (N, d_k), K (M, d_k), V (M, d_v); weights (N, M), output (N, d_v).
             mask: bool, broadcasts to (N, M), True = masked. A row with all keys masked gives zeros.
    Sign     the decay is symmetric; a positive bias_scale favors near tokens.
    Errors   ValueError if shapes do not match or bias_scale is not finite.

    forward calls the methods _build_bias_matrix, bias_matrix and _softmax of a subclass or an instance that replaces
    them.
    """

    def __init__(self, d_k, bias_scale=0.3):
        if not isinstance(d_k, numbers.Real) or not d_k > 0:
            raise ValueError(f"d_k is {d_k!r}, expected a number above 0")
        self.d_k, self.bias_scale, self.scale = d_k, bias_scale, d_k ** 0.5

    def term(self):
        """Return the bias as a term of relpos.attention."""
        return relpos.LogDecay(self.bias_scale)

    @hook
    def bias_matrix(self, N, M=None):
        """Return B for N queries and M keys; M defaults to N. Replacements have the parameter N, or N and M."""
        return self.term().matrix(N, M, heads=1)[0]

    @hook
    def _build_bias_matrix(self, N, M=None):
        return self.bias_matrix(N, M)

    @hook
    def _softmax(self, x):
        """Return the softmax of each row. A row of -inf gives zeros."""
        x = np.asarray(x, np.float64)
        rows, columns = np.zeros((math.prod(x.shape[:-1]), 1)), np.zeros((x.shape[-1], 1))
        bias = relpos.Dense(x.reshape(len(rows), len(columns)))
        return relpos.attention(rows, columns, columns, bias=bias, return_weights=True).weights.reshape(x.shape)

    def _options(self, Q, K):
        """Return the scale, and the bias: the term, or a Dense term if a method for the bias is replaced."""
        name = replaced(self, "_build_bias_matrix", "bias_matrix")
        bias = self.term() if name is None else relpos.Dense(_matrix(own_bias(getattr(self, name), len(Q), len(K)),
                                                                     name))
        return {"bias": bias, "scale": inverse(self.scale)}

    @hook
    def forward(self, Q, K, V, mask=None):
        """Return (weights, output)."""
        Q, K, V = _matrix(Q, "Q"), _matrix(K, "K"), _matrix(V, "V")
        options = self._options(Q, K)
        keep = None if mask is None else ~np.asarray(mask, bool)
        if replaced(self, "_softmax"):
            scores = Q @ K.T * options["scale"] + options["bias"].matrix(len(Q), len(K), heads=1)[0]
            weights = _matrix(self._softmax(scores if keep is None else np.where(keep, scores, -np.inf)), "_softmax")
            return weights, weights @ V
        found = relpos.attention(Q, K, V, mask=keep, return_weights=True, **options)
        return found.weights, found.out

    def __call__(self, *args, **options):
        return self.forward(*args, **options)

    def explain(self, Q, K, V, tokens, query_idx=0):
        """Print the computation of one token's row: scores, bias, weights with bars, output."""
        Q, K, V = _matrix(Q, "Q"), _matrix(K, "K"), _matrix(V, "V")
        row = relpos.explain(Q, K, V, query=query_idx, **self._options(Q, K))
        need_tokens(tokens, query_idx, len(Q), len(K))
        weights, output = row.weights, row.out
        if replaced(self, "forward", "_softmax"):
            weights, output = (x[query_idx] for x in self.forward(Q, K, V))
        token, query = tokens[query_idx], query_idx % len(Q)
        print(f"\n=== Relative Position Bias trace for '{token}' ===")
        print(f"bias_scale = {self.bias_scale}, d_k = {self.d_k}\n")
        for name, numbers in (("Raw scores:   ", row.raw), ("Scaled scores:", row.scaled), ("Bias values:  ", row.bias),
                              ("Biased scores:", row.score)):
            print(name, np.round(numbers, 4))
        print("\nAttention weights:")
        for j, (other, w) in enumerate(zip(tokens, weights)):
            print(f"  A[{token},{other}] = {w:.4f} (d={abs(query - j)}) |{'#' * int(w * 50)}|")
        print(f"\nOutput[{token}] = {np.round(output, 4)}")


# ---------------------------------------------------------------------------------------------- vectors for keys and
# values

def _random(seed):
    """Return a generator seeded as np.random.seed does, or NumPy's global generator if seed is None."""
    return np.random if seed is None else np.random.RandomState(seed)


def _xavier(random, rows, columns):
    return random.randn(rows, columns) * np.sqrt(2.0 / (rows + columns))


class RelativePositionEmbedding:
    """Vectors a_K and a_V for each offset from -max_distance to max_distance. Offsets beyond are clipped.

    Arrays   a_K (2 max_distance + 1, d_k), a_V (2 max_distance + 1, d_v), normal with variance 2 / (rows + columns)
             (Xavier).
    Sign     the offset is key - query; row 0 is offset -max_distance.
    Source   Shaw, Uszkoreit, Vaswani 2018, sections 3.1 and 3.2.
    """

    def __init__(self, max_distance, d_k, d_v, seed=None):
        random = _random(seed)
        self.max_distance = max_distance = _count("max_distance", max_distance)
        self.a_K, self.a_V = (_xavier(random, 2 * max_distance + 1, d) for d in (d_k, d_v))

    @hook
    def get_key_embedding(self, rel_pos):
        """Return the vector a_K of an offset."""
        return self.a_K[clip_relative_position(rel_pos, 0, self.max_distance) + self.max_distance]

    @hook
    def get_value_embedding(self, rel_pos):
        """Return the vector a_V of an offset."""
        return self.a_V[clip_relative_position(rel_pos, 0, self.max_distance) + self.max_distance]

    def terms(self):
        """Return the options relkey and relval of relpos.attention."""
        return vector_terms(self)


_SIDES = {"relkey": ("a_K", "get_key_embedding", "RelKey"), "relval": ("a_V", "get_value_embedding", "RelValue")}


def _stacked(rows):
    return np.stack([_array(x) for x in rows])


def vectors_of(rel_embed, side, lengths=None, stack=_stacked):
    """Return the vectors of keys or values by offset, and the largest offset: (a_K, max_distance), or, if
    get_key_embedding is replaced, those of all offsets that occur. `lengths` are the numbers of queries and keys, and
    optionally q_offset."""
    name, method, _ = _SIDES[side]
    if replaced(rel_embed, method):
        if lengths is None:
            raise TypeError(f"{type(rel_embed).__name__}.{method} is replaced, and is called for known lengths without "
                            "positions only; use "
                            "RelativeSelfAttention")
        reach = _reach(*lengths)
        return stack([getattr(rel_embed, method)(r) for r in range(-reach, reach + 1)]), reach
    far = _count("max_distance", rel_embed.max_distance)
    return first_rows(name, getattr(rel_embed, name), 2 * far + 1, f"max_distance is {far}"), far


def first_rows(name, table, rows, why):
    """Return the first rows of a table, which has more of them if its owner's attribute became smaller."""
    if len(table) < rows:
        raise ValueError(f"{why}, but {name} has {len(table)} rows, expected {rows}")
    return table if len(table) == rows else table[:rows]


def _reach(queries, keys, q_offset=None):
    """Return the largest distance of a query and a key."""
    first = [q_offset or 0] if q_offset is None or isinstance(q_offset, int) else np.ravel(q_offset).tolist()
    return max(queries - 1 + max(first), keys - 1 - min(first), 0)


def vector_terms(rel_embed, lengths=None, stack=_stacked, **positions):
    """Return the options relkey and relval of relpos.attention, with the vectors of `vectors_of`."""
    found = {}
    for side, (*_, title) in _SIDES.items():
        table, far = vectors_of(rel_embed, side, lengths, stack)
        found[side] = getattr(relpos, title)(table, left=far, right=far, **positions)
    return found


def _rows(far, N, M):
    """Return the index of the row of the vectors for each pair, (N, M)."""
    return clip_relative_position(np.arange(M), np.arange(N)[:, None], far) + far


class RelativeSelfAttention:
    """One head of self-attention with relative positions in keys and values:
    e[i, j] = <q_i, k_j + a_K[j - i]> / sqrt(d_k), out_i = sum_j softmax(e)[i, j] (v_j + a_V[j - i]), q = X W_q and so
    on.

    Shapes   X (N, embed_dim); output (N, d_v), weights (N, N).
    Arrays   W_q, W_k (embed_dim, d_k), W_v (embed_dim, d_v), and rel_embed, a RelativePositionEmbedding with the same
             seed. A seed gives the numbers of a text that uses np.random.seed; relpos.torch draws different numbers.
    Sign     key - query, clipped to max_distance.
    Source   Shaw, Uszkoreit, Vaswani 2018, equations 3 and 4.

    forward calls get_key_embedding and get_value_embedding of rel_embed, for each offset once, if they are replaced.

    >>> X = np.random.RandomState(42).randn(6, 8)
    >>> output, weights = RelativeSelfAttention(8, 4, 4, max_distance=3, seed=123).forward(X)
    >>> weights.round(3)[0]
    array([0.008, 0.028, 0.001, 0.12 , 0.62 , 0.223])
    """

    def __init__(self, embed_dim, d_k, d_v, max_distance=16, seed=None):
        random = _random(seed)
        self.W_q, self.W_k, self.W_v = (_xavier(random, embed_dim, d) for d in (d_k, d_k, d_v))
        self.rel_embed = RelativePositionEmbedding(max_distance, d_k, d_v, seed)
        self.d_k = d_k

    def forward(self, X, **options):
        """Return (output, weights). `options`, such as causal, are passed to relpos.attention."""
        X = _matrix(X, "X")
        need_same("X", X.shape[1], "each of W_q, W_k and W_v", len(self.W_q), "channels")
        terms = vector_terms(self.rel_embed, (len(X), len(X), options.get("q_offset")))
        found = relpos.attention(X @ self.W_q, X @ self.W_k, X @ self.W_v, return_weights=True, **terms, **options)
        return found.out, found.weights

    def __call__(self, *args, **options):
        return self.forward(*args, **options)


def clip_relative_position(j, i, max_dist):
    """Return j - i clipped to -max_dist to max_dist, for numbers, arrays or tensors.

    >>> clip_relative_position(0, 5, 4)
    -4
    """
    offset = j - i
    return offset.clip(-max_dist, max_dist) if hasattr(offset, "clip") else max(-max_dist, min(max_dist, offset))


def relative_attention_scores(Q, K, rel_embed):
    """Compute <Q[i], K[j] + a_K[j - i]> / sqrt(d_k) for every pair from the definition, row by row with relpos.explain
    in float64. efficient_relative_scores returns the same scores up to rounding, about 1e-15 for numbers of order one.

    Shapes   Q (N, d_k), K (M, d_k); result (N, M).
    """
    Q, K = _matrix(Q, "Q"), _matrix(K, "K")
    table, far = vectors_of(rel_embed, "relkey", (len(Q), len(K)))
    key = relpos.RelKey(_matrix(table, "a_K"), left=far, right=far)
    rows = [relpos.explain(Q, K, K, query=i, relkey=key).score for i in range(len(Q))]
    return np.stack(rows) if rows else np.zeros((0, len(K)))


def efficient_relative_scores(Q, K, rel_embed):
    """Compute the scores of relative_attention_scores with two matrix products, Q K^T and Q a_K^T: each pair adds the
    element of Q a_K^T in the column of its offset. relpos.attention computes scores in this way, tile by tile. As in
    the tutorial, this function reads a_K, not get_key_embedding.

    >>> layer = RelativeSelfAttention(8, 4, 4, max_distance=3, seed=123)
    >>> Q, K = np.random.RandomState(0).randn(2, 6, 4)
    >>> scores = relative_attention_scores(Q, K, layer.rel_embed)
    >>> bool(abs(scores - efficient_relative_scores(Q, K, layer.rel_embed)).max() < 4e-15)
    True
    """
    Q, K = _matrix(Q, "Q"), _matrix(K, "K")
    need_same("K", K.shape[1], "Q", Q.shape[1])
    return Q @ K.T / np.sqrt(Q.shape[1]) + _position_scores(Q, rel_embed.a_K, rel_embed.max_distance, len(K))


def _position_scores(Q, table, far, M):
    """Compute <Q[i], table[clip(j - i) + far]> / sqrt(d_k), (N, M)."""
    table = _matrix(table, "a_K")
    need_same("a_K", table.shape[1], "Q", Q.shape[1])
    return np.take_along_axis(Q @ table.T, _rows(far, len(Q), M), 1) / np.sqrt(Q.shape[1])


def compute_position_biases(Q, rel_embed, M=None):
    """Compute the position part of the scores, <Q[i], a_K[j - i]> / sqrt(d_k), (N, M), for Q (N, d_k) and M keys. M
    defaults to N.

    >>> compute_position_biases(np.ones((3, 4)), RelativePositionEmbedding(2, 4, 4)).shape
    (3, 3)
    """
    Q = _matrix(Q, "Q")
    M = len(Q) if M is None else _count("M", M)
    return _position_scores(Q, *vectors_of(rel_embed, "relkey", (len(Q), M)), M)


def relative_attention_output(attention_weights, V, rel_embed):
    """Compute sum_j attention_weights[i, j] (V[j] + a_V[j - i]). The weights need not sum to one.

    Shapes   attention_weights (N, M), V (M, d_v); result (N, d_v).
    """
    w, V = _matrix(attention_weights, "attention_weights"), _matrix(V, "V")
    need_same("V", len(V), "attention_weights", w.shape[1], "keys")
    table, far = vectors_of(rel_embed, "relval", w.shape)
    table = _matrix(table, "a_V")
    need_same("a_V", table.shape[1], "V", V.shape[1])
    n, offsets = len(w), len(table)
    rows = _rows(far, *w.shape) + offsets * np.arange(n)[:, None]
    by_offset = np.bincount(rows.ravel(), w.ravel(), n * offsets).reshape(n, offsets)
    return w @ V + by_offset @ table


def analyze_position_bias(attention_weights, max_offset=5):
    """Return {offset: mean weight} for weights (..., N, M) and every offset key - query from -max_offset to max_offset
    that occurs. For long sequences, relpos.attention(..., summary=True).summary.profile computes the means without an
    array of weights.

    >>> analyze_position_bias(np.eye(3), 1)
    {-1: 0.0, 0: 1.0, 1: 0.0}
    """
    w = np.asarray(attention_weights)
    need_weights(w)
    n, m = w.shape[-2:]
    return {offset: float(w.diagonal(offset, -2, -1).mean()) for offset in range(-max_offset, max_offset + 1)
            if -n < offset < m}


def count_position_pairs(max_len_train, max_len_test):
    """Return the number of pairs (i, j) in max_len_test that do not occur in max_len_train, and the number of all
    pairs.

    >>> count_position_pairs(128, 256)
    (49152, 65536)
    """
    train, test = _count("max_len_train", max_len_train), _count("max_len_test", max_len_test)
    return test**2 - min(train, test)**2, test**2


def __dir__():
    return [*__all__]
