"""MST and AIM of smartnoise-synth 1.0.8, called so that what is charged is what runs.

Both measure marginals of a table of codes with Gaussian noise and choose which ones with the
exponential mechanism. The proof, in zero-concentrated DP (Bun and Steinke 2016), add/remove of a
row:

* a marginal moves by one in one cell: L2 sensitivity 1, so noise of deviation s is 1/(2 s^2)-zCDP;
* the exponential mechanism at epsilon e with scores of sensitivity 1 is e^2/8-zCDP (Cesar and
  Rogers 2021); the scores are L1 distances of a marginal from one computed from earlier answers
  (AIM: weighted, and divided by the largest weight among the candidates);
* zCDP adds up under adaptive composition, and everything else is post-processing.

Findings from reading the library (smartnoise-synth 1.0.8), and what is done about them:

* `fit` takes the domain from the rows where it makes its own transformer: here the codes and their
  number come from the schema, and its mechanisms are called directly.
* `MSTSynthesizer.MST` passes the exact number of rows to the estimation: the declared one is used.
* `MST` and `AIM` convert (epsilon, delta) to rho by OpenDP's conversion: here rho is a parameter,
  as the harness's accountant allows it.
* `compress_domain` scales the count of merged codes by 1/sqrt(k) but not what it is compared with,
  which makes merged codes too rare: here the sum is compared unscaled, at its own deviation.
* `select` fits a graphical model to single columns to compare pairs with: here the product of the
  single marginals is used, which is the same.
* AIM's limit on the size of its model adds up the measured marginals, but the junction tree can be
  far larger: here candidates are limited by the size of the tree.
* AIM's estimation is a parameter of the caller (it receives noisy answers only).

Private steps are the library's own code: `MSTSynthesizer.measure` and `exponential_mechanism`,
`AIMSynthesizer._worst_approximated` and `snsynth.utils.gaussian_noise`. Noise is OpenDP's Gaussian,
which takes no seed: it is sampled exactly from OpenSSL's generator, which the operating system
seeds with 384 bits (observed by tracing its system calls), also where the cell's noise is seeded.
The library adds it in double precision, where the last bits of a sum can reveal the count (Mironov
2012): here noisy counts are rounded to multiples of 1/1024 (`on_grid`), which makes the sum of a
whole count and its noise exact. The choices are drawn from numpy's global generator (`choice` with
probabilities: one double of 53 bits each, without modulo bias), which is seeded for the call with
256 bits. The returned records contain noisy answers only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event

from bench.data.encoder import EncodedRows, Encoder
from bench.errors import PrivacyContractError
from bench.privacy.events import DpEvent
from bench.privacy.rowwise import codes_within, evaluate, positive
from bench.privacy.third_party import seeded_global_generators, silenced_output
from bench.privacy.trusted.ratio import LikelihoodRatio

Codes = npt.NDArray[np.int64]
Table = npt.NDArray[np.float64]
Columns = tuple[int, ...]


@final
@dataclass(frozen=True)
class NoisyMarginal:
    """Counts of the codes of some columns, with Gaussian noise."""

    columns: Columns
    """Columns in ascending order, one axis of `counts` each."""
    counts: Table
    deviations: Table
    """Standard deviation of the noise on each count."""


@final
@dataclass(frozen=True)
class NoisyMarginals:
    """Complete output of the mechanism."""

    marginals: tuple[NoisyMarginal, ...]
    kept: tuple[npt.NDArray[np.bool_], ...]
    """For each column the codes that are counted separately; the others share one last count."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of counts of each column."""
        return tuple(int(kept.sum()) + (not kept.all()) for kept in self.kept)


class Model(Protocol):
    """Interface that AIM needs of a model fitted to noisy marginals."""

    def counts(self, columns: Columns) -> Table:
        """Return the model's marginal of these columns."""


class Estimator(Protocol):
    """Fits AIM's models. It receives noisy answers only: its work is post-processing."""

    def fit(self, measured: Sequence[NoisyMarginal]) -> Model:
        """Fit a model to these answers."""

    def affordable(self, sets: Sequence[Columns]) -> bool:
        """Whether a model of marginals of these columns is small enough."""


def zero_concentrated(parameters: Mapping[str, Any]) -> DpEvent:
    """Return the event of a mechanism with the parameter `rho`."""
    return dp_event.ZCDpEvent(positive(parameters["rho"]))


def run_mst(
    rows: EncodedRows,
    encoder: Encoder,
    generator: np.random.Generator,
    parameters: Mapping[str, Any],
) -> tuple[NoisyMarginals, ...]:
    """Run MST on the whole table, or on each class separately. Parameters:

    * `rho`, `codes` (rows to codes, row by row, the label last), `sizes` (numbers of codes);
    * `totals`: the declared number of rows, or those of each class. With those, every class is a
      separate table without the label, and has the whole rho: a row lies in one of them.
    """
    with silenced_output(), seeded_global_generators(generator):
        return tuple(
            _mst(data, positive(parameters["rho"]), total)
            for data, total in zip(_tables(rows, parameters), parameters["totals"], strict=True)
        )


def run_aim(
    rows: EncodedRows,
    encoder: Encoder,
    generator: np.random.Generator,
    parameters: Mapping[str, Any],
) -> tuple[NoisyMarginals, ...]:
    """Run AIM on the whole table, or on each class separately. Parameters as of `run_mst`, and:

    * `rounds` (of the first noise level, for each column), `cells` (of a marginal, at most);
    * `estimator`: returns an `Estimator` for a table with these sizes and this total.
    """
    with silenced_output(), seeded_global_generators(generator):
        return tuple(
            _aim(
                data,
                positive(parameters["rho"]),
                parameters["estimator"](data.domain.shape, total),
                parameters["rounds"],
                parameters["cells"],
            )
            for data, total in zip(_tables(rows, parameters), parameters["totals"], strict=True)
        )


def observe_mst(
    rows: tuple[EncodedRows, EncodedRows],
    encoder: Encoder,
    generator: np.random.Generator,
    parameters: Mapping[str, Any],
    inside: bool,
) -> float:
    """Run MST's private steps and return the log-likelihood ratio of what they gave."""
    ratio = LikelihoodRatio(inside)
    with silenced_output(), seeded_global_generators(generator):
        for (data, other), total in _two_worlds(rows, parameters, inside):
            _mst(data, positive(parameters["rho"]), total, _Watch(other, ratio))
    return ratio.total


def observe_aim(
    rows: tuple[EncodedRows, EncodedRows],
    encoder: Encoder,
    generator: np.random.Generator,
    parameters: Mapping[str, Any],
    inside: bool,
) -> float:
    """Run AIM, whose choices need its models, and return the log-likelihood ratio."""
    ratio = LikelihoodRatio(inside)
    with silenced_output(), seeded_global_generators(generator):
        for (data, other), total in _two_worlds(rows, parameters, inside):
            estimator = parameters["estimator"](data.domain.shape, total)
            rho, rounds, cells = (parameters[name] for name in ("rho", "rounds", "cells"))
            _aim(data, positive(rho), estimator, rounds, cells, _Watch(other, ratio))
    return ratio.total


@final
@dataclass(frozen=True)
class _Watch:
    """For audits: the table of the other world, and the ratio of both."""

    other: Any
    ratio: LikelihoodRatio

    def measured(self, data: Any, names: tuple[str, ...], noisy: Table, deviation: float) -> None:
        """Add the noisy counts of a marginal."""
        here, other = (
            np.asarray(one.project(names).datavector(), dtype=np.float64)
            for one in (data, self.other)
        )
        self.ratio.gaussian(noisy.reshape(-1), here, other, deviation)


def _two_worlds(
    rows: tuple[EncodedRows, EncodedRows], parameters: Mapping[str, Any], inside: bool
) -> Iterator[tuple[tuple[Any, Any], float]]:
    """Yield the tables that differ, this world's first, with their declared totals.

    Tables of other classes are the same in both worlds: their ratio is 0.
    """
    here, other = (_tables(rows[world], parameters) for world in (int(inside), 1 - int(inside)))
    for one, two, total in zip(here, other, parameters["totals"], strict=True):
        if _rows_in(one) != _rows_in(two):
            yield (one, two), total


def _rows_in(data: Any) -> int:
    return int(np.asarray(data.project((data.domain.attrs[0],)).datavector()).sum())


def _mst(data: Any, rho: float, total: float, watch: _Watch | None = None) -> NoisyMarginals:
    """Measure the single columns, choose a tree of pairs privately, and measure these pairs.

    Each step has a third of rho (McKenna, Miklau and Sheldon 2021, Algorithm 1 and Theorem 1).
    `watch` is for audits; it changes nothing.
    """
    from snsynth.mst.mst import MSTSynthesizer

    mechanism = MSTSynthesizer()
    deviation = math.sqrt(3.0 / (2.0 * rho))
    single = _read(data, mechanism.measure(data, [(name,) for name in data.domain], deviation))
    kept = tuple(frequent_codes(one) for one in single)
    codes = {name: merging(mask) for name, mask in zip(data.domain.attrs, kept, strict=True)}
    merged = data.compress(codes)
    if watch is not None:
        _watch_all(watch, data, single)
        watch = _Watch(watch.other.compress(codes), watch.ratio)
    single = [merged_counts(one, mask) for one, mask in zip(single, kept, strict=True)]
    estimated = [nearest_counts(one.counts, float(total)) for one in single]
    pairs = _tree(mechanism, merged, estimated, rho / 3.0, watch)
    double = _read(merged, mechanism.measure(merged, pairs, deviation)) if pairs else []
    if watch is not None:
        _watch_all(watch, merged, double)
    return NoisyMarginals((*single, *double), kept)


def _watch_all(watch: _Watch, data: Any, measured: Sequence[NoisyMarginal]) -> None:
    for one in measured:
        names = tuple(data.domain.attrs[column] for column in one.columns)
        watch.measured(data, names, one.counts, float(one.deviations.flat[0]))


def _aim(
    data: Any,
    rho: float,
    estimator: Estimator,
    rounds: float,
    cells: int,
    watch: _Watch | None = None,
) -> NoisyMarginals:
    """Choose and measure the pair that the model approximates worst, until rho is spent.

    McKenna, Mullins, Sheldon and Miklau 2022, Algorithm 2: the noise is halved, and the epsilon of
    the choices doubled, when a round moved the model by less than its noise; the last round spends
    the remaining rho. `watch` is for audits; it changes nothing.
    """
    from snsynth.aim.aim import AIMSynthesizer, compile_workload
    from snsynth.utils import gaussian_noise

    domain, columns = data.domain, _numbers(data.domain)
    mechanism = AIMSynthesizer()
    candidates = compile_workload(mechanism.get_workload(data, degree=2, max_cells=cells))
    # Columns whose pairs are all too large still have their own marginal.
    candidates = {**{(name,): 1 for name in domain.attrs}, **candidates}
    answers = {
        names: np.asarray(data.project(names).datavector(), dtype=np.float64)
        for names in candidates
    }
    measured: list[NoisyMarginal] = []

    def measure(names: tuple[str, ...], deviation: float) -> None:
        noise = on_grid(gaussian_noise(deviation, domain.size(names)))
        shape = domain.project(names).shape
        noisy = (answers[names] + noise).reshape(shape)
        if watch is not None:
            watch.measured(data, names, noisy, deviation)
        measured.append(NoisyMarginal(columns(names), noisy, np.full(shape, deviation)))

    if not rounds >= 1.0:
        raise PrivacyContractError(
            f"AIM with rounds={rounds!r} would spend more than rho on single columns; use 1 or more"
        )
    planned = rounds * len(domain.attrs)
    deviation = math.sqrt(planned / (2.0 * 0.9 * rho))
    epsilon = math.sqrt(8.0 * 0.1 * rho / planned)
    remaining = rho
    for names in candidates:
        if len(names) == 1:
            measure(names, deviation)
            remaining -= 0.5 / deviation**2
    model = estimator.fit(measured)
    last = False
    while not last:
        cost = 0.5 / deviation**2 + epsilon**2 / 8.0
        if remaining < 2.0 * cost:
            deviation, epsilon = math.sqrt(1.0 / (1.8 * remaining)), math.sqrt(0.8 * remaining)
            last, cost = True, remaining
        remaining -= cost
        sets = [one.columns for one in measured]
        small = {
            names: weight
            for names, weight in candidates.items()
            if columns(names) in sets or estimator.affordable([*sets, columns(names)])
        }
        projections = _Projections(domain, model, columns)
        chosen = mechanism._worst_approximated(small, answers, projections, epsilon, deviation)
        if watch is not None:
            _watch_choice(watch, small, answers, projections, epsilon, deviation, chosen)
        before = model.counts(columns(chosen))
        measure(chosen, deviation)
        model = estimator.fit(measured)
        moved = float(np.abs(model.counts(columns(chosen)) - before).sum())
        if moved <= deviation * math.sqrt(2.0 / math.pi) * domain.size(chosen):
            deviation, epsilon = deviation / 2.0, 2.0 * epsilon
    return NoisyMarginals(
        tuple(measured), tuple(np.ones(size, dtype=bool) for size in domain.shape)
    )


def _watch_choice(
    watch: _Watch,
    candidates: Mapping[tuple[str, ...], float],
    answers: Mapping[tuple[str, ...], Table],
    model: _Projections,
    epsilon: float,
    deviation: float,
    chosen: tuple[str, ...],
) -> None:
    """Add the choice of the library's `_worst_approximated`, with its weights in both worlds."""
    names = list(candidates)
    largest = max(abs(weight) for weight in candidates.values())
    here, other = np.empty(len(names)), np.empty(len(names))
    for number, one in enumerate(names):
        bias = math.sqrt(2.0 / math.pi) * deviation * model.domain.size(one)
        expected, factor = (
            model.project(one).datavector(),
            0.5 * epsilon / largest * candidates[one],
        )
        counts = np.asarray(watch.other.project(one).datavector(), dtype=np.float64)
        here[number] = factor * (np.abs(answers[one] - expected).sum() - bias)
        other[number] = factor * (np.abs(counts - expected).sum() - bias)
    watch.ratio.choice(here, other, names.index(chosen))


@final
@dataclass(frozen=True)
class _Projections:
    """A model with the interface that AIM's own code expects."""

    domain: Any
    model: Model
    columns: Callable[[tuple[str, ...]], Columns]

    def project(self, names: tuple[str, ...]) -> Any:
        """Return the marginal with the method `datavector`."""
        return _Vector(self.model.counts(self.columns(names)).ravel())


@final
@dataclass(frozen=True)
class _Vector:
    counts: Table

    def datavector(self) -> Table:
        return self.counts


def _tables(rows: EncodedRows, parameters: Mapping[str, Any]) -> list[Any]:
    """Return the table of codes, or one per class without the label, as mbi's datasets."""
    sizes: Sequence[int] = parameters["sizes"]
    # mbi refuses codes out of range, which would reveal that there is one.
    codes = codes_within(evaluate(parameters["codes"], rows, check_rows=True), sizes)
    if len(parameters["totals"]) == 1:
        return [_dataset(codes, sizes)]
    labels = codes[:, -1]
    return [_dataset(codes[labels == label, :-1], sizes[:-1]) for label in range(sizes[-1])]


def _dataset(codes: Codes, sizes: Sequence[int]) -> Any:
    from mbi import Dataset, Domain

    names = [f"column{number}" for number in range(len(sizes))]
    data = {name: codes[:, number] for number, name in enumerate(names)}
    return Dataset(data, Domain(names, [int(size) for size in sizes]))


def _numbers(domain: Any) -> Callable[[tuple[str, ...]], Columns]:
    place = {name: number for number, name in enumerate(domain.attrs)}
    return lambda names: tuple(place[name] for name in names)


def _read(data: Any, measured: Sequence[Any]) -> list[NoisyMarginal]:
    """Return the library's measurements; the columns of a pair are in order."""
    columns = _numbers(data.domain)
    return [
        NoisyMarginal(
            columns(one.clique),
            on_grid(one.noisy_measurement).reshape(shape),
            np.full(shape, float(one.stddev)),
        )
        for one in measured
        for shape in [data.domain.project(one.clique).shape]
    ]


def frequent_codes(marginal: NoisyMarginal) -> npt.NDArray[np.bool_]:
    """Codes with a count of at least three deviations, or all where fewer than two have one."""
    often = marginal.counts >= 3.0 * marginal.deviations
    return often if often.sum() >= 2 else np.ones(len(often), dtype=bool)


def merging(kept: npt.NDArray[np.bool_]) -> Codes:
    """New codes: the kept ones in order, and one last code for all others."""
    return np.where(kept, np.cumsum(kept) - 1, kept.sum()).astype(np.int64)


def merged_counts(marginal: NoisyMarginal, kept: npt.NDArray[np.bool_]) -> NoisyMarginal:
    """Return the same answer with one count for all codes that are not kept."""
    if kept.all():
        return marginal
    counts, deviations = marginal.counts, marginal.deviations
    return NoisyMarginal(
        marginal.columns,
        np.append(counts[kept], counts[~kept].sum()),
        np.append(deviations[kept], math.sqrt(float(np.square(deviations[~kept]).sum()))),
    )


def _tree(
    mechanism: Any, data: Any, single: Sequence[Table], rho: float, watch: _Watch | None = None
) -> list[Any]:
    """Choose a spanning tree of the most dependent pairs, one pair at a time, privately.

    The score of a pair is the L1 distance of its marginal from that of independent columns with
    the estimated single marginals: one row moves it by at most one.
    """
    import networkx as nx

    names = data.domain.attrs

    def scored(table: Any) -> dict[tuple[str, str], float]:
        return {
            (names[first], names[second]): float(
                np.abs(
                    np.asarray(
                        table.project((names[first], names[second])).datavector(flatten=False)
                    )
                    - np.outer(single[first], single[second]) / single[first].sum()
                ).sum()
            )
            for first, second in itertools.combinations(range(len(names)), 2)
        }

    scores = scored(data)
    others = None if watch is None else scored(watch.other)
    tree = nx.Graph()
    tree.add_nodes_from(names)
    choices = len(names) - 1
    epsilon = math.sqrt(8.0 * rho / max(1, choices))
    chosen: list[Any] = []
    for _ in range(choices):
        piece = {
            name: number
            for number, joined in enumerate(nx.connected_components(tree))
            for name in joined
        }
        pairs = [pair for pair in scores if piece[pair[0]] != piece[pair[1]]]
        values = np.array([scores[pair] for pair in pairs])
        number = int(mechanism.exponential_mechanism(values, epsilon, sensitivity=1.0))
        if watch is not None and others is not None:
            weights = np.array([others[pair] for pair in pairs])
            watch.ratio.choice(0.5 * epsilon * values, 0.5 * epsilon * weights, number)
        chosen.append(pairs[number])
        tree.add_edge(*chosen[-1])
    return chosen


def on_grid(values: npt.ArrayLike) -> Table:
    """Round to multiples of 1/1024: no bit of a whole number plus noise reveals the number."""
    return np.asarray(np.rint(np.asarray(values, dtype=np.float64) * 1024.0) / 1024.0)


def nearest_counts(noisy: Table, total: float) -> Table:
    """Euclidean projection on {x >= 0, sum x = total} (Duchi et al. 2008, Figure 1)."""
    ordered = np.sort(noisy)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(noisy) + 1)
    shift = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.asarray(np.maximum(noisy - shift, 0.0), dtype=np.float64)
