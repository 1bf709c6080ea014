"""The attack on floating point: does an answer tell by its bits which table it came from?

For a candidate table the attacker subtracts its exact sum from the answer and asks whether the rest
can be noise at all. With `total + scale * ndtri(u)` in doubles the rest is one of 2^52 numbers, and
for the wrong table nearly all answers are impossible (issue: Mironov 2012). On the grid the rest is
an integer for both tables, and says no more than the mechanism's guarantee allows.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from scipy.special import ndtr, ndtri

from bench.data.dataset import Counts
from bench.data.encoder import EncodedRows, Encoder
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.privacy.kernel import PrivateData, Vault
from bench.privacy.ledger import Ledger
from bench.privacy.noise import NoiseSource, SeededNoise, SystemNoise

COLUMNS, ROWS, TRIALS = 30, 40, 2000
MULTIPLIER = 27.0
CLIP = 3.0

Vector = npt.NDArray[np.float64]
Call = Callable[[PrivateData], Vector]


def tables() -> tuple[EncodedRows, EncodedRows]:
    """Two neighbours: the second has one row more."""
    rng = np.random.default_rng(5)
    values = rng.uniform(-1, 1, size=(ROWS + 1, COLUMNS)).astype(np.float32)
    labels = np.arange(ROWS + 1) % 2
    whole = EncodedRows(values, labels, np.zeros(ROWS + 1, dtype=np.int64), rng.random(ROWS + 1))
    return whole.take(np.arange(ROWS)), whole


def opened(rows: EncodedRows, noise: NoiseSource) -> PrivateData:
    columns = tuple(Numeric(name=f"x{i}", low=-1, high=1) for i in range(COLUMNS))
    label = Categorical(name="label", categories=("0", "1"), role=Role.TARGET)
    schema = Schema(task=Task.CLASSIFICATION, columns=(*columns, label))
    counts = Counts(ROWS, (ROWS // 2, ROWS // 2))
    return PrivateData(rows, Encoder(schema), counts, Vault(Ledger(), noise), ())


def gaussian_sum(private: PrivateData) -> Vector:
    return private.gaussian_sum(lambda rows: rows.values, CLIP, MULTIPLIER)


def poisson_sum(private: PrivateData) -> Vector:
    return private.poisson_sum(lambda rows: rows.values, CLIP, MULTIPLIER, 1.0)


def histograms(private: PrivateData) -> Vector:
    (answer,) = private.histograms(lambda rows: rows.labels[:, None], [2], MULTIPLIER)
    return answer


def laplace(private: PrivateData) -> Vector:
    (answer,) = private.histograms(
        lambda rows: rows.labels[:, None], [2], MULTIPLIER, mechanism="laplace"
    )
    return answer


def partition_sum(private: PrivateData) -> Vector:
    parts = private.partition("teacher", parts=4)
    models = private.fit_parts(parts, lambda rows, rng: rows.values.sum(axis=0))
    return private.partition_sum(models, lambda model: model, CLIP, MULTIPLIER)


def part_vectors(private: PrivateData) -> Vector:
    parts = private.partition("teacher", parts=4)
    models = private.fit_parts(parts, lambda rows, rng: rows.values.sum(axis=0))
    return private.part_vectors(models, lambda model: model, CLIP, MULTIPLIER).reshape(-1)


CALLS: dict[str, Call] = {
    call.__name__: call
    for call in (gaussian_sum, poisson_sum, histograms, laplace, partition_sum, part_vectors)
}


class _Silent(NoiseSource):
    """No noise: what the attacker computes for a candidate table."""

    reproducible = True

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return np.zeros(count, dtype=np.uint64)

    def normal(self, scale: float, size: int) -> npt.NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)

    laplace = normal

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(0)


def fits(rest: Vector, scale: float) -> int:
    """How many numbers of a rest can be scale * ndtri((k + 1/2) / 2^52) up to a few units."""
    k = np.rint(ndtr(rest / scale) * 2.0**52 - 0.5)
    near = [scale * ndtri((k + step + 0.5) * 2.0**-52) for step in range(-3, 4)]
    return int(np.any([candidate == rest for candidate in near], axis=0).sum())


def test_the_attack_works_on_doubles() -> None:
    """What the kernel did before: the attacker is nearly always right."""
    small, large = tables()
    scale = CLIP * MULTIPLIER
    totals = [_old_sum(rows) for rows in (small, large)]
    right = 0
    rng = np.random.default_rng(0)
    for trial in range(200):
        words = np.frombuffer(os.urandom(8 * COLUMNS), dtype=np.uint64)
        u = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        answer = totals[trial % 2] + scale * ndtri(u)
        scores = [fits(answer - total, scale) for total in totals]
        guess = int(scores[1] > scores[0]) if scores[0] != scores[1] else int(rng.integers(2))
        right += guess == trial % 2
    assert right > 180


def _old_sum(rows: EncodedRows) -> Vector:
    vectors = rows.values.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1)
    return np.asarray(np.minimum(1.0, CLIP / norms) @ vectors)


@pytest.mark.parametrize("secure", [False, True], ids=["seeded", "secure"])
@pytest.mark.parametrize("name", CALLS)
def test_bits_of_an_answer_say_nothing_about_the_table(name: str, secure: bool) -> None:
    """Every feature of the bits has the same law for both tables.

    The attacker looks at what is left after subtracting each candidate's sum: whether it is a
    multiple of the grid, its lowest bits, its trailing zeros. He guesses by the best of these
    on half of the trials; on the other half he may be right as often as epsilon allows.
    """
    call = CALLS[name]
    small, large = tables()
    candidates = [call(opened(rows, _Silent())) for rows in (small, large)]
    source: NoiseSource = (
        SystemNoise() if secure else SeededNoise(np.random.default_rng(sum(map(ord, name))))
    )
    grid = _grid([call(opened(small, source)) for _ in range(20)])
    features, worlds = [], np.arange(TRIALS) % 2
    for world in worlds:
        answer = call(opened((small, large)[world], source))
        units = answer / grid
        assert (units == np.rint(units)).all(), "an answer off the grid"
        features.append(
            [float(np.mean(_bits(answer - candidate, grid))) for candidate in candidates]
        )
    scores = np.array(features) @ np.array([-1.0, 1.0])
    train, test = np.arange(TRIALS) < TRIALS // 2, np.arange(TRIALS) >= TRIALS // 2
    sign = (
        1.0 if scores[train & (worlds == 1)].mean() > scores[train & (worlds == 0)].mean() else -1.0
    )
    cut = np.median(scores[train])
    right = int(((sign * (scores[test] - cut) > 0) == (worlds[test] == 1)).sum())
    # The best guess between two neighbours: Phi(mu / 2) for a Gaussian, e^eps / (1 + e^eps) for
    # Laplace, where mu = eps = 1 / multiplier.
    allowed = max(ndtr(0.5 / MULTIPLIER), 1.0 / (1.0 + np.exp(-1.0 / MULTIPLIER)))
    assert stats.binomtest(right, int(test.sum()), allowed, alternative="greater").pvalue > 1e-7


def _grid(answers: list[Vector]) -> float:
    """The largest power of two of which all numbers are multiples."""
    numbers = np.concatenate(answers)
    exponent = -60
    while (numbers / 2.0 ** (exponent + 1) == np.rint(numbers / 2.0 ** (exponent + 1))).all():
        exponent += 1
        if exponent > 0:
            break
    return 2.0**exponent


def _bits(rest: Vector, grid: float) -> Vector:
    """Lowest bits and trailing zeros of a rest in units of the grid."""
    units = np.abs(rest / grid)
    assert (units == np.rint(units)).all()
    whole = units.astype(np.int64)
    zeros = np.log2((whole & -whole) + (whole == 0))
    return np.asarray((whole & 1) + 0.1 * zeros + 0.5 * ((whole >> 1) & 1))
