"""Is the noise that the kernel adds the noise that the ledger records?

The kernel is asked again and again with the parameters that the method's ledger holds, about rows
whose exact answer is known. What comes back minus that answer is the noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.conformance.findings import Finding, Outcome
from bench.conformance.subject import Subject, table
from bench.data.encoder import EncodedRows
from bench.privacy import events
from bench.privacy.kernel import PrivateData
from bench.privacy.noise import NoiseSource, SeededNoise
from bench.privacy.opening import open_private
from bench.stats.noise_check import Noise, check_noise, check_sampling

_CALLS = 200
_WIDTH = 16
_EVENTS = 4
"""Different events of one ledger that are tried; calibrated methods have one or two."""


@final
class _Witness(NoiseSource):
    """Noise that remembers which rows were sampled."""

    reproducible = True

    def __init__(self, seed: int) -> None:
        self._inner = SeededNoise(np.random.default_rng(seed))
        self.sampled: list[npt.NDArray[np.intp]] = []

    def normal(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        return self._inner.normal(size)

    def laplace(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        return self._inner.laplace(size)

    def poisson_sample(self, rows: int, rate: float) -> npt.NDArray[np.intp]:
        self.sampled.append(self._inner.poisson_sample(rows, rate))
        return self.sampled[-1]

    def generator(self) -> np.random.Generator:
        return self._inner.generator()


def noise_is_as_recorded(subject: Subject) -> Iterator[Finding]:
    """Repeated calls with the ledger's parameters have the recorded noise and sampling rate."""
    check = "noise and sampling are as recorded"
    ledger = subject.run(subject.fitting[0]).ledger
    recorded = [
        event
        for event in dict.fromkeys(entry.event for entry in ledger.entries if not entry.trust)
        if not events.is_non_private(event) and parameters_of(event) is not None
    ]
    if not recorded:
        yield Finding(check, Outcome.NOT_CHECKED, "the ledger holds no Gaussian or Laplace event")
        return
    seen, problems = [], []
    for number, event in enumerate(recorded[:_EVENTS]):
        text, wrong = _tried(event, number)
        seen.append(text)
        problems += wrong
    yield Finding(
        check,
        Outcome.FAILED if problems else Outcome.PASSED,
        "\n".join(problems or seen),
        "this is a mistake in the kernel or in the libraries under it, not in the method: "
        "please report it",
    )


def parameters_of(event: Any) -> tuple[str, float, float] | None:
    """(kind, noise, sampling rate) of an event that can be asked for again."""
    kind = type(event).__name__
    if kind == "PoissonSampledDpEvent" and type(event.event).__name__ == "GaussianDpEvent":
        return "gaussian", float(event.event.noise_multiplier), float(event.sampling_probability)
    if kind in ("GaussianDpEvent", "LaplaceDpEvent"):
        return kind.removesuffix("DpEvent").lower(), float(event.noise_multiplier), 1.0
    return None


def _tried(event: Any, seed: int) -> tuple[str, list[str]]:
    found = parameters_of(event)
    if found is None:
        raise TypeError(f"{events.in_words(event)} cannot be asked for")
    kind, level, rate = found
    dataset = table("table")
    witness = _Witness(seed)
    private, _ = open_private(dataset, None, witness)
    count = len(dataset.train)
    if kind == "laplace":
        noise = np.stack([_histogram(private, level, count) for _ in range(_CALLS)])
        found_noise = check_noise(noise, Noise.LAPLACE, level)
    else:
        noise = np.stack([_sum(private, level, rate, witness, count) for _ in range(_CALLS)])
        found_noise = check_noise(noise, Noise.GAUSSIAN, level)
    words = f"{events.in_words(event)}: measured {found_noise.measured:.4g}"
    problems = [] if found_noise.passed() else [f"{words}, p = {found_noise.p_value:.2g}"]
    if rate < 1.0:
        inside = np.zeros((_CALLS, count))
        for call, rows in enumerate(witness.sampled):
            inside[call, rows] = 1.0
        sampling = check_sampling(inside, rate, np.random.default_rng([seed, 9]))
        words += f", rate {sampling.measured:.4g}"
        if not sampling.passed():
            problems.append(f"{words}, p = {sampling.p_value:.2g}")
    return words, problems


def _sum(
    private: PrivateData, level: float, rate: float, witness: _Witness, count: int
) -> npt.NDArray[np.float64]:
    """Noise of one sum of unit vectors whose exact value is the number of rows in it."""

    def unit(rows: EncodedRows) -> npt.NDArray[np.float64]:
        return np.full((len(rows), _WIDTH), 1.0 / math.sqrt(_WIDTH))

    answer = private.poisson_sum(unit, 1.0, level, rate)
    rows = len(witness.sampled[-1]) if rate < 1.0 else count
    return answer - rows / math.sqrt(_WIDTH)


def _histogram(private: PrivateData, level: float, count: int) -> npt.NDArray[np.float64]:
    (answer,) = private.histograms(
        lambda rows: np.zeros((len(rows), 1)), [_WIDTH], level, mechanism="laplace"
    )
    answer[0] -= count
    return answer
