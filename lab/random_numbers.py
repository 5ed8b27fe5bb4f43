"""The random numbers of `relpos lab`, as in src/base/random.h. Number n of a stream depends only on n and the seed.
SPDX-License-Identifier: Apache-2.0"""
MASK = (1 << 64) - 1


def mix64(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def random(seed, stream, n):
    z = mix64(seed + 0x9E3779B97F4A7C15 & MASK)
    z = mix64(z ^ (stream + 0xD1B54A32D192ED03 & MASK))
    return mix64(z ^ (n + 0x8CB92BA72F3D8DD7 & MASK))
