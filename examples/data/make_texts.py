"""Write the arrays of examples in tutorials, as input for relpos attend: cat.npz, shaw.npz, patches.npz and three.npz
in this folder. Needs only NumPy.

    python3 examples/data/make_texts.py       gives the same bytes in each run

SPDX-License-Identifier: Apache-2.0"""
from pathlib import Path

import numpy as np

here = Path(__file__).resolve().parent


def save(name, q, k, v, tokens, **arrays):
    """Save q, k and v (L, D), with axes for one batch entry and one head, and the names of the tokens."""
    np.savez(here / name, q=q[None, None], k=k[None, None], v=v[None, None], tokens=np.array(tokens),
             **{n: np.asarray(x, float) for n, x in arrays.items()})


# "The cat sat on mat"
save("cat.npz", np.array([[1, 0, 1, 0], [0, 2, 0, 1], [1, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1.0]]),
     np.array([[0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0.5, 0.5]]),
     np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0.5, 0.5, 0.5, 0.5]]),
     ["The", "cat", "sat", "on", "mat"])

# Six random tokens in a layer whose tables begin with the same random numbers as its projections, because the tutorial
# seeds NumPy with 123 twice.
x, layer, tables = np.random.RandomState(42).randn(6, 8), np.random.RandomState(123), np.random.RandomState(123)
w_q, w_k, w_v = (layer.randn(8, 4) * np.sqrt(2 / 12) for _ in range(3))
a_k, a_v = (tables.randn(7, 4) * np.sqrt(2 / 11) for _ in range(2))
save("shaw.npz", x @ w_q, x @ w_k, x @ w_v, [f"word {i}" for i in range(6)], a_k=a_k, a_v=a_v)

# Four patches of a 2 x 2 grid. The biases depend on the row and column of the query minus those of the
# key.
patches = np.array([[1, 0], [0, 1], [1, 1], [0, 0.0]])
save("patches.npz", patches, patches, patches, ["(0,0)", "(0,1)", "(1,0)", "(1,1)"],
     b=[[0, 0.2, 0.1, 0.3], [-0.2, 0, 0, 0.1], [-0.1, 0, 0, 0.2], [-0.3, -0.1, -0.2, 0]])

# Three tokens, with RoPE positions in steps of 30 degrees, a table of numbers and a table of vectors for delta = -2 …
# 2.
three = np.array([[1, 0], [0, 1], [1, 1.0]])
save("three.npz", three, three, three, ["token 0", "token 1", "token 2"], angles=np.arange(3) * np.pi / 6,
     table=[[0.3, 0.2, 0, -0.2, -0.3]],
     a_k=[[1, 0], [0.5, 0], [0, 0], [-0.5, 0], [-1, 0]])
