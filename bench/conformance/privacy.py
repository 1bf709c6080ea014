"""Checks of privacy: budget, paths from rows to release, noise and sampling, a quick audit."""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.audit.audits import AuditProcedure, instance_cell
from bench.conformance.released import Released, released
from bench.conformance.subject import (
    DELTA,
    CheckResult,
    CheckStatus,
    Subject,
    passed_unless,
)
from bench.conformance.tables import other_tables, toy_dataset
from bench.data.dataset import Dataset
from bench.data.encoder import EncodedRows
from bench.engine.procedure import run_here
from bench.errors import BenchError, BudgetExceededError
from bench.privacy import events
from bench.privacy.interception import Blind
from bench.privacy.kernel import PrivateData
from bench.privacy.ledger import Ledger
from bench.privacy.noise import NoiseSource, SeededNoise
from bench.privacy.opening import open_private
from bench.results.records import FEWEST_TRIALS, ONE_RUN, TWO_WORLD, AuditSpec
from bench.results.verdicts import judge
from bench.stats.noise_check import Noise, check_noise, check_sampling

EPSILONS = (0.5, 1.0, 3.0, 10.0)

_CALLS = 200
_WIDTH = 16
_EVENTS = 4
"""Number of different events of one ledger that are tried; most methods have one or two."""

_EPSILON = 1.0
_SECONDS = 30.0
_TRIALS_AT_MOST = 2000
_CANARIES = 24
"""Number of corners of the smallest table."""
_LEVEL = 1e-3
"""Level of the first trials and of fresh ones: a sound method fails once in a million checks."""


@final
class _Streams(NoiseSource):
    """Seeded noise that remembers samples; sampling may have a separate generator.

    With two generators the number of rows does not change the noise.
    """

    reproducible = True

    def __init__(self, noise: int | list[int], sampling: list[int] | None = None) -> None:
        self._noise = SeededNoise(np.random.default_rng(noise))
        self._sampling = (
            self._noise if sampling is None else SeededNoise(np.random.default_rng(sampling))
        )
        self.sampled: list[npt.NDArray[np.intp]] = []

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return self._noise.words(count)

    def poisson_sample(self, rows: int, rate: float) -> npt.NDArray[np.intp]:
        self.sampled.append(self._sampling.poisson_sample(rows, rate))
        return self.sampled[-1]

    def generator(self) -> np.random.Generator:
        return self._noise.generator()


def keeps_the_budget(subject: Subject) -> Iterator[CheckResult]:
    """The ledger proves at most the target at every target, or gives a reason for no proof."""
    check = "budget"
    problems, spent = [], []
    for name in subject.fitting:
        for epsilon in EPSILONS:
            try:
                run = subject.run(name, epsilon)
            except BudgetExceededError as problem:
                problems.append(f"{name}, epsilon {epsilon:g}: {problem}")
                continue
            proof = run.ledger.proof()
            judged = judge(run.budget, run.release.claim, proof)
            if Ledger.from_json(run.ledger.to_json()).proof() != proof:
                problems.append(f"{name}: the ledger does not replay to the same epsilon")
            if math.isinf(proof.epsilon):
                spent.append(f"{judged.text}: {judged.reason}")
                if not proof.reasons or not all(proof.reasons):
                    problems.append(f"{name}, epsilon {epsilon:g}: unproven without a reason")
            elif run.budget is None or proof.epsilon > epsilon * (1 + 1e-9):
                problems.append(f"{name}, epsilon {epsilon:g}: {proof.epsilon:.4g} is proven")
            else:
                spent.append(f"{judged.text}: {proof.epsilon / epsilon:.1%} of the target")
    shares = dict.fromkeys(spent)
    yield CheckResult(
        check,
        passed_unless(problems),
        "\n".join(problems) or "\n".join(list(shares)[:4]),
        "ask `private.calibrate(plans)` for the noise and `private.reserve_all(plans(noise))` "
        "before the first call; both take the same plans",
    )


def noise_falls_with_epsilon(subject: Subject) -> Iterator[CheckResult]:
    """A larger budget never means more noise of all calls together."""
    check = "noise falls as epsilon grows"
    name = subject.fitting[0]
    try:
        levels = [_noise_together(subject.run(name, epsilon).ledger) for epsilon in EPSILONS]
    except BudgetExceededError as problem:
        yield CheckResult(check, CheckStatus.NOT_CHECKED, f"it exceeds a budget: {problem}")
        return
    if all(math.isinf(level) for level in levels):
        yield CheckResult(check, CheckStatus.NOT_CHECKED, "no noisy call is in the ledger")
        return
    falls = all(a >= b * (1 - 1e-9) for a, b in itertools.pairwise(levels))
    text = ", ".join(f"{s:.3g} at {e:g}" for s, e in zip(levels, EPSILONS, strict=True))
    yield CheckResult(
        check,
        CheckStatus.PASSED if falls else CheckStatus.FAILED,
        f"noise multiplier of all calls together {text}",
        "calibrate the noise to `spec.budget`: `private.calibrate(plans)`",
    )


def _noise_together(ledger: Ledger) -> float:
    """Return the multiplier of one call with the precision of all; infinite without any call.

    A method may ask other questions at another budget, so that single calls cannot be compared.
    Exact for Gaussians on all rows; a sampled one counts with the square of its rate, which is as
    its cost grows, Laplace noise as if it were Gaussian, and calls on disjoint parts as if they
    were not disjoint. Events of other kinds are left out.
    """
    precision = 0.0
    for entry, count in ledger.entries.items():
        parameters = parameters_of(entry.event)
        if parameters is not None:
            _, level, rate = parameters
            precision += count * (rate / level) ** 2
    return precision**-0.5 if precision else math.inf


def rows_come_through_the_kernel(subject: Subject) -> Iterator[CheckResult]:
    """With every noisy call answered as if there were no rows, rows do not change the release.

    The other tables have other values, one row far outside the schema, fewer rows and other numbers
    of each class, while the declared counts stay: what still differs was read other than through a
    recorded call (a private attribute, a list that a row function fills, bounds or counts taken
    from rows).
    """
    check = "rows reach the release through recorded calls only"
    skipped: list[str] = []
    problems: list[str] = []
    compared: list[str] = []
    for name in subject.fitting:
        reason = _not_blind(subject.run(name).ledger)
        if reason:
            skipped.append(f"{name}: {reason}")
            continue
        try:
            first = _blind_release(subject, toy_dataset(name))
        except BenchError as problem:
            skipped.append(f"{name}: no release from pure noise: {problem}")
            continue
        compared.append(name)
        for other, dataset in other_tables(toy_dataset(name)).items():
            try:
                second = _blind_release(subject, dataset)
            except Exception as problem:
                # It did not fail with the first table: the error distinguishes the two.
                problems.append(f"{name}, {other}: {type(problem).__name__}: {problem}")
                continue
            if different := second.differences(first):
                problems.append(
                    f"{name}, {other}: the release changes with the rows although every noisy call "
                    f"ignores the rows: {', '.join(different)}"
                )
    if not compared:
        yield CheckResult(check, CheckStatus.NOT_CHECKED, skipped[0])
        return
    yield CheckResult(
        check,
        passed_unless(problems),
        "\n".join(problems or skipped),
        "use only what `private`'s calls return; no private attributes, no rows kept by a "
        "row function, bounds from the schema, counts from `private.counts`",
    )


def _not_blind(ledger: Ledger) -> str:
    """Say why a method cannot be run blind; empty where it can."""
    reasons = ledger.proof().reasons
    if reasons:
        return f"it has non-private access: {reasons[0]}"
    trusts = any(entry.trust for entry in ledger.entries)
    return "a trusted library reads the rows itself" if trusts else ""


def _blind_release(subject: Subject, dataset: Dataset) -> Released:
    run = subject.open(dataset, _Streams([3, 0], [3, 1]), interceptor=Blind())
    return released(run.release, dataset)


def noise_is_as_recorded(subject: Subject) -> Iterator[CheckResult]:
    """Repeated calls with the ledger's parameters have the recorded noise and sampling rate.

    The kernel is called again and again with the parameters that the method's ledger holds, on rows
    whose exact answer is known. What it returns minus that answer is the noise.
    """
    check = "noise and sampling are as recorded"
    ledger = subject.run(subject.fitting[0]).ledger
    recorded = [
        (event, parameters)
        for event in dict.fromkeys(entry.event for entry in ledger.entries if not entry.trust)
        if (parameters := parameters_of(event)) is not None
    ]
    if not recorded:
        yield CheckResult(
            check, CheckStatus.NOT_CHECKED, "the ledger holds no Gaussian or Laplace event"
        )
        return
    seen, problems = [], []
    for seed, (event, parameters) in enumerate(recorded[:_EVENTS]):
        text, wrong = _tried(events.in_words(event), *parameters, seed)
        seen.append(text)
        problems += wrong
    yield CheckResult(
        check,
        passed_unless(problems),
        "\n".join(problems or seen),
        "this is a mistake in the kernel or in the libraries under it, not in the method: "
        "please report it",
    )


def parameters_of(event: Any) -> tuple[str, float, float] | None:
    """Return (kind, noise, sampling rate) of an event that can be asked for again."""
    kind = type(event).__name__
    if kind == "PoissonSampledDpEvent" and type(event.event).__name__ == "GaussianDpEvent":
        return "gaussian", float(event.event.noise_multiplier), float(event.sampling_probability)
    if kind in ("GaussianDpEvent", "LaplaceDpEvent"):
        return kind.removesuffix("DpEvent").lower(), float(event.noise_multiplier), 1.0
    return None


def _tried(event: str, kind: str, level: float, rate: float, seed: int) -> tuple[str, list[str]]:
    """Return what was measured of an event, and what is wrong with it."""
    dataset = toy_dataset("table")
    witness = _Streams(seed)
    private, _ = open_private(dataset, None, witness)
    count = len(dataset.train)
    if kind == "laplace":
        noise = np.stack([_histogram(private, level, count) for _ in range(_CALLS)])
        measured = check_noise(noise, Noise.LAPLACE, level)
    else:
        noise = np.stack([_sum(private, level, rate, witness, count) for _ in range(_CALLS)])
        measured = check_noise(noise, Noise.GAUSSIAN, level)
    words = f"{event}: measured {measured.measured:.4g}"
    problems = [] if measured.passed() else [f"{words}, p = {measured.p_value:.2g}"]
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
    private: PrivateData, level: float, rate: float, witness: _Streams, count: int
) -> npt.NDArray[np.float64]:
    """Return the noise of one sum of unit vectors, whose exact value follows from the row count."""

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


def quick_audit(subject: Subject) -> Iterator[CheckResult]:
    """A small audit finds no gross leak: some hundred refits, half a minute."""
    check = "quick audit"
    name = subject.fitting[0]
    dataset, spec = toy_dataset(name), _affordable(subject, name)
    cell = instance_cell(
        subject.method,
        dataset,
        _EPSILON if subject.method.uses_budget else None,
        spec,
        ipc=12 if subject.method.uses_ipc else None,
        delta=DELTA,
    )
    with tempfile.TemporaryDirectory() as temporary:
        outcome = run_here(AuditProcedure(cell, dataset, Path(temporary), subject.method))
    row, audit = outcome.row, outcome.audit
    if audit is None:
        # The table is a toy: here the whole text may be shown.
        told = "\n".join([row.reason, *outcome.log.splitlines()[-7:]])
        yield CheckResult(check, CheckStatus.NOT_CHECKED, told)
        return
    seen = (
        f"lower bound {row.eps_audited:.3g} from {audit.trials} "
        f"{'trials' if spec.attack == TWO_WORLD else 'canaries'} (maximum detectable epsilon "
        f"{audit.eps_detectable:.3g}; canary {audit.canary}, scorer {audit.scorer})"
    )
    refuted = [
        f"the {what} epsilon of {number:.3g} does not hold"
        for what, number, first, again in (
            ("claimed", row.eps_claimed, audit.p_claim, audit.replicated_p_claim),
            ("proven", row.eps_proven, audit.p_proof, audit.replicated_p_proof),
        )
        if number is not None and max(first, again) < _LEVEL
    ]
    yield CheckResult(
        check,
        passed_unless(refuted),
        "\n".join([*refuted, seen]),
        "something reaches the release without its noise, or the claim is wrong; "
        f"`bench audit {subject.name} --trials 20000` gives a sharper bound",
    )


def _affordable(subject: Subject, name: str) -> AuditSpec:
    """Return an audit of half a minute, by the time of one more fit.

    Where the fewest trials would take far longer, it has many canaries in a few fits.
    """
    subject.again(name, _EPSILON)
    started = time.perf_counter()
    subject.again(name, _EPSILON)
    seconds = max(time.perf_counter() - started, 1e-6)
    fewest = FEWEST_TRIALS[TWO_WORLD]
    if fewest * seconds > 4.0 * _SECONDS:
        return AuditSpec(ONE_RUN, _CANARIES)
    return AuditSpec(TWO_WORLD, max(fewest, min(_TRIALS_AT_MOST, int(_SECONDS / seconds))))
