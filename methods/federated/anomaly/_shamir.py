"""Shamir's secret sharing over a prime field (How to Share a Secret, CACM 1979).

The secret is f(0) of a random polynomial f of degree threshold - 1; the share of x is f(x). Any
`threshold` shares give f(0) by Lagrange interpolation; fewer say nothing, because for every secret
there is exactly one polynomial through them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from bench import InputError

PRIME = 2**256 + 297
"""The smallest prime above 2^256: a field that holds every 256-bit secret."""


def share(
    secret: int, threshold: int, places: Iterable[int], rng: np.random.Generator, prime: int = PRIME
) -> dict[int, int]:
    """The share of every place x: the value there of a random polynomial through (0, secret)."""
    places = list(places)
    if not 1 <= threshold <= len(places):
        raise InputError(f"threshold {threshold} with {len(places)} shares: expected 1 to all")
    coefficients = (uniform(rng, prime) for _ in range(threshold - 1))
    return polynomial([secret, *coefficients], places, prime)


def polynomial(
    coefficients: list[int], places: Iterable[int], prime: int = PRIME
) -> dict[int, int]:
    """Values of a polynomial, constant term first, at distinct places other than 0."""
    places = list(places)
    if not all(0 <= coefficient < prime for coefficient in coefficients):
        raise InputError(f"a secret must lie in 0..{prime - 1}; split it, or take a larger prime")
    if len(set(places)) < len(places) or not all(0 < place < prime for place in places):
        # The share at 0 would be the secret.
        raise InputError(f"shares are given to distinct places in 1..{prime - 1}, got {places}")
    values = {}
    for place in places:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * place + coefficient) % prime
        values[place] = value
    return values


def combine(shares: Mapping[int, int], threshold: int, prime: int = PRIME) -> int:
    """f(0) = sum_i f(x_i) prod_(j != i) x_j / (x_j - x_i), from the first `threshold` shares."""
    if len(shares) < threshold:
        raise InputError(f"{len(shares)} shares of a secret that needs {threshold}")
    chosen = list(shares.items())[:threshold]
    secret = 0
    for place, value in chosen:
        top = bottom = 1
        for other, _ in chosen:
            if other != place:
                top = top * other % prime
                bottom = bottom * (other - place) % prime
        secret = (secret + value * top * pow(bottom, -1, prime)) % prime
    return secret


def uniform(rng: np.random.Generator, prime: int) -> int:
    """A uniform field element, but for a bias below 2^-256: 256 bits more than the prime has."""
    return int.from_bytes(rng.bytes((prime.bit_length() + 7) // 8 + 32), "big") % prime
