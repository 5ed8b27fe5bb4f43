"""The arguments of relpos.attention in the example of each term. Made by tools/terms.py from docs/terms.

SPDX-License-Identifier: Apache-2.0"""
EXAMPLES = {
    'table': 'bias=relpos.Table(rng.normal(size=(2, 13)), left=8, right=4)',
    't5': 'bias=relpos.T5(rng.normal(size=(32, 2)), max_distance=48)',
    'bucket': "bias=relpos.Bucket(rng.normal(size=(16, 2)), buckets=16, max_distance=48, strategy='quadratic')",
    'log': 'bias=relpos.LogDecay(0.3)',
    'linear': 'bias=relpos.Linear(left=0.1, right=0.3)',
    'alibi': 'bias=relpos.ALiBi(), causal=True',
    'dense': 'bias=relpos.Dense(rng.normal(size=(2, 48, 48)))',
    'rope': 'rope=relpos.RoPE()',
    'relkey': 'relkey=relpos.RelKey(rng.normal(size=(17, 16)), left=8, right=8)',
    'relval': 'relval=relpos.RelValue(rng.normal(size=(17, 16)), left=8, right=8)',
    'kerple': 'bias=relpos.Kerple(np.array([1.0, 2.0]), np.array([1.0, 0.1]))',
    'sandwich': 'bias=relpos.Sandwich(dim=32)',
    'fire': 'bias=relpos.Fire(rng.normal(size=(8, 1)), rng.normal(size=8), rng.normal(size=(2, 8)), np.zeros(2), c=1.0, L=8.0)',
    'swin': 'bias=relpos.Swin(rng.normal(size=(11 * 15, 2)), grid=(6, 8))',
    'axial': 'bias=relpos.Axial(rng.normal(size=(2, 11)), rng.normal(size=(2, 15)), grid=(6, 8))',
    'real': 'bias=relpos.Real(rng.normal(size=(2, 17)), max_distance=8, q_positions=(t := 2 * rng.random(48).cumsum()), k_positions=t)',
    'band': 'bias=relpos.Band(rng.normal(size=(1, 2, 48, 4)), rng.normal(size=(4, 12)))',
    'forget': 'bias=relpos.Forget(np.log(rng.uniform(0.7, 1, size=(1, 2, 48))))',
    'xl': 'relkey=relpos.XL(rng.normal(size=(2, 95, 16)), rng.normal(size=(2, 16)), rng.normal(size=(2, 16)))',
    'axialkey': 'relkey=relpos.AxialKey(rng.normal(size=(11, 16)), rng.normal(size=(15, 16)), grid=(6, 8))',
    'deberta': 'relkey=relpos.Deberta(rng.normal(size=(2, 32, 16)), rng.normal(size=(2, 32, 16)), span=16)',
    'sink': 'sink=relpos.Sink(np.array([0.0, 4.0]))',
    'lookup': 'bias=relpos.Lookup(rng.normal(size=(2, 9)), indices=rng.integers(0, 9, size=(48, 48)).astype(np.uint8))',
}
