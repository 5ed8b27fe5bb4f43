"""attention() on NumPy arrays against the definition.  SPDX-License-Identifier: Apache-2.0"""
import numpy as np
import oracle
import pytest
import relpos


@pytest.fixture
def qkv():
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).astype(np.float32) for shape in [(2, 4, 13, 8), (2, 2, 17, 8), (2, 2, 17, 5)]]


def test_t5_causal(qkv):
    table = np.random.default_rng(1).standard_normal((32, 4)).astype(np.float32)
    r = oracle.offsets(13, 17)
    want, _, _ = oracle.attention(*qkv, bias=table[oracle.bucket(r)].transpose(2, 0, 1), keep=r <= 0)
    got = relpos.attention(*qkv, bias=relpos.T5(table), causal=True)
    assert got.dtype == np.float32 and got.shape == (2, 4, 13, 5)
    np.testing.assert_allclose(got, want, atol=2e-6)
