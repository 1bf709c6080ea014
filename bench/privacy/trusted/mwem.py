"""MWEM of smartnoise-synth 1.0.8, called so that what is charged is what runs.

Hardt, Ligett and McSherry 2012: a histogram over all combinations of codes starts uniform; each
iteration chooses the marginal that it misses most by the exponential mechanism, counts that
marginal with Laplace noise, and moves the histogram towards all noisy counts so far. Add/remove of
a row:

* the score of a marginal is its mean absolute error per cell, of sensitivity 1 at most, so that the
  choice at e is e-DP and e^2/8-zCDP (Cesar and Rogers 2021);
* the cells of a marginal are disjoint: Laplace noise of scale 1/e on each is e-DP.

The ledger has one of each per iteration, for all histograms of one table.

Findings from reading the library, and what is done about them:

* `_histogram_from_data_attributes` takes the codes' range from the rows: here the histograms are
  built over public numbers of codes.
* `fit` takes iterations and the width of marginals from the exact number of rows: parameters here.
* `_initialize_a` starts with the exact number of rows: the declared one is used.
* `_exponential_mechanism` draws again when a marginal was measured before, and after eleven draws
  takes any: the probability of that is a power of one that depends on the rows, so that a rare
  choice can be more than exp(e) times as likely for a neighbour. Here it receives the remaining
  marginals only, and draws once.
* `mwem` returns the exact histograms beside the noisy ones: they are discarded.

Noise is OpenDP's Laplace, which takes no seed (OpenSSL's generator, see `smartnoise.py`), on the
grid of `smartnoise.on_grid`. Choices are drawn from Python's global generator (one double of 53
bits each, without modulo bias), which is seeded for the call with 256 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event

from bench.data.encoder import EncodedRows, Encoder
from bench.privacy.events import DpEvent
from bench.privacy.rowwise import codes_within, evaluate, positive
from bench.privacy.third_party import seeded_global_generators, silenced_output
from bench.privacy.trusted.ratio import LikelihoodRatio
from bench.privacy.trusted.smartnoise import on_grid

Array = npt.NDArray[np.float64]
ColumnGroup = tuple[int, ...]


def iterations_of(group: ColumnGroup, width: int, iterations: int) -> int:
    """Number of iterations: at most the number of marginals, since none is measured twice."""
    columns = len(group)
    return min(iterations, columns + (columns * (columns - 1) // 2 if width > 1 else 0))


def choices_and_counts(parameters: Mapping[str, Any]) -> DpEvent:
    """Return the events of a call: `groups`, `iterations`, `width`, `epsilon` of each step."""
    epsilon = positive(parameters["epsilon"])
    times = sum(
        iterations_of(group, parameters["width"], parameters["iterations"])
        for group in parameters["groups"]
    )
    return dp_event.ComposedDpEvent(
        [
            dp_event.SelfComposedDpEvent(dp_event.ZCDpEvent(epsilon**2 / 8.0), times),
            dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(1.0 / epsilon), times),
        ]
    )


def run_mwem(
    rows: EncodedRows,
    encoder: Encoder,
    generator: np.random.Generator,
    parameters: Mapping[str, Any],
) -> tuple[tuple[Array, ...], ...]:
    """Return, for each class, one histogram of every group of columns. Parameters:

    * `codes` (rows to codes, row by row, the label last), `sizes` (numbers of codes), `totals`
      (declared rows of each class: classes are disjoint, each is measured with the whole budget);
    * `groups` of columns, `width` of marginals (1 or 2), `iterations` for each group at most,
      `epsilon` of each choice and of each count, `updates` of the weights per iteration.
    """
    sizes: Sequence[int] = parameters["sizes"]
    with silenced_output(), seeded_global_generators(generator):
        codes = codes_within(evaluate(parameters["codes"], rows, check_rows=True), sizes)
        return tuple(
            tuple(
                _histogram(codes[codes[:, -1] == label], group, float(total), parameters)
                for group in parameters["groups"]
            )
            for label, total in enumerate(parameters["totals"])
        )


def observe_mwem(
    rows: tuple[EncodedRows, EncodedRows],
    encoder: Encoder,
    generator: np.random.Generator,
    parameters: Mapping[str, Any],
    inside: bool,
) -> float:
    """Run MWEM on the class of the canary and return the log-likelihood ratio of its steps."""
    ratio, sizes = LikelihoodRatio(inside), parameters["sizes"]
    with silenced_output(), seeded_global_generators(generator):
        here, other = (
            codes_within(evaluate(parameters["codes"], rows[world], check_rows=True), sizes)
            for world in (int(inside), 1 - int(inside))
        )
        for label, total in enumerate(parameters["totals"]):
            one, two = (codes[codes[:, -1] == label] for codes in (here, other))
            # Tables of other classes are the same in both worlds: their ratio is 0.
            for group in parameters["groups"] if len(one) != len(two) else ():
                _histogram(one, group, float(total), parameters, (two, ratio))
    return ratio.total


def _histogram(
    codes: npt.NDArray[np.int64],
    group: ColumnGroup,
    total: float,
    parameters: Mapping[str, Any],
    watch: tuple[npt.NDArray[np.int64], LikelihoodRatio] | None = None,
) -> Array:
    """Run MWEM on one group of columns; `watch` is for audits, and changes nothing."""
    from snsynth.mwem import Histogram, MWEMSynthesizer

    expected: list[tuple[float, float]] = []
    """For audits: counts of the chosen marginal, in this world and in the other one."""

    class Declared(MWEMSynthesizer):
        """MWEM with a public start, choosing among the marginals not yet measured."""

        def _initialize_a(self, histogram: Array, dimensions: Sequence[int]) -> Array:
            return np.full(histogram.shape, total / histogram.size)

        def _laplace(self, scale: float) -> float:
            noise = float(on_grid(super()._laplace(scale)))
            if watch is not None:
                here, there = expected.pop(0)
                watch[1].laplace(here + noise, here, there, scale)
            return noise

        def _exponential_mechanism(
            self,
            hist: Array,
            synth_hist: Array,
            queries: Sequence[Any],
            eps: float,
            measurements: Mapping[int, Any],
            iteration: int,
        ) -> int:
            remaining = [number for number in range(len(queries)) if number not in measurements]
            rest = [queries[number] for number in remaining]
            chosen = super()._exponential_mechanism(hist, synth_hist, rest, eps, {}, iteration)
            if watch is not None:
                weights = [
                    np.array([eps / 2.0 * float(query.error(world, synth_hist)) for query in rest])
                    for world in (hist, others)
                ]
                watch[1].choice(weights[0], weights[1], int(chosen))
                expected.extend(
                    (float(query.evaluate(hist)), float(query.evaluate(others)))
                    for query in rest[int(chosen)].queries
                )
            return remaining[int(chosen)]

    shape = [int(parameters["sizes"][column]) for column in group]

    def counted(table: npt.NDArray[np.int64]) -> Array:
        counted_codes = Histogram.histogramdd_indexes(table[:, list(group)], shape)
        return np.asarray(counted_codes, dtype=np.float64)

    counts = counted(codes)
    others = counts if watch is None else counted(watch[0])
    histogram = Histogram(counts, shape, shape, list(group))
    histogram.add_cuboid_queries(parameters["width"])
    histogram.iterations = iterations_of(group, parameters["width"], parameters["iterations"])
    histogram.meas_eps = positive(parameters["epsilon"])
    mechanism = Declared(mult_weights_iterations=parameters["updates"])
    mechanism.histograms = [histogram]
    ((noisy, _, _),) = mechanism.mwem()
    return np.asarray(noisy, dtype=np.float64)
