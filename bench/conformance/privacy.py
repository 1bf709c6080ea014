"""Checks of privacy: the budget, the ways from rows to release, the noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bench.conformance.findings import Finding, Outcome
from bench.conformance.noise import parameters_of
from bench.conformance.subject import SplitStreams, Subject, table
from bench.data.dataset import Dataset, Split
from bench.data.encoder import EncodedRows
from bench.errors import BenchError
from bench.plugins.release import Release
from bench.privacy.ledger import Ledger
from bench.results.verdicts import judge

EPSILONS = (0.5, 1.0, 3.0, 10.0)
_BEYOND = 1e6


def keeps_the_budget(subject: Subject) -> Iterator[Finding]:
    """The ledger proves no more than the target, at every target, or says why it proves nothing."""
    check = "budget"
    problems, spent = [], []
    for name in subject.fitting:
        for epsilon in EPSILONS:
            run = subject.run(name, epsilon)
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
    yield Finding(
        check,
        Outcome.FAILED if problems else Outcome.PASSED,
        "\n".join(problems) or "\n".join(list(shares)[:4]),
        "ask `private.calibrate(plans)` for the noise and `private.reserve_all(plans(noise))` "
        "before the first call; both take the same plans",
    )


def noise_falls_with_epsilon(subject: Subject) -> Iterator[Finding]:
    """A larger budget never means more noise, of all calls together."""
    check = "noise falls as epsilon grows"
    name = subject.fitting[0]
    levels = [_noise_together(subject.run(name, epsilon).ledger) for epsilon in EPSILONS]
    if all(math.isinf(level) for level in levels):
        yield Finding(check, Outcome.NOT_CHECKED, "no noisy call is in the ledger")
        return
    falls = all(a >= b * (1 - 1e-9) for a, b in itertools.pairwise(levels))
    text = ", ".join(f"{s:.3g} at {e:g}" for s, e in zip(levels, EPSILONS, strict=True))
    yield Finding(
        check,
        Outcome.PASSED if falls else Outcome.FAILED,
        f"noise multiplier of all calls together {text}",
        "calibrate the noise to `spec.budget`: `private.calibrate(plans)`",
    )


def _noise_together(ledger: Ledger) -> float:
    """The one multiplier that all calls are worth: precisions add up. Infinite without any call.

    A method may ask other questions at another budget, so that single calls cannot be compared.
    Exact for Gaussians on all rows; a sampled one counts with the square of its rate, which is as
    its cost grows, Laplace noise as if it were Gaussian, and calls on disjoint parts as if they
    were not disjoint. Events of other kinds are left out.
    """
    precision = 0.0
    for entry, count in ledger.entries.items():
        found = parameters_of(entry.event)
        if found is not None:
            _, level, rate = found
            precision += count * (rate / level) ** 2
    return precision**-0.5 if precision else math.inf


def rows_come_through_the_kernel(subject: Subject) -> Iterator[Finding]:
    """With every noisy call answered as if there were no rows, no row can change the release.

    The rows of the second table are all others, and one of them lies far beyond the schema: what
    still differs was read by another way than a recorded call (an underscored attribute, a list
    that a row function fills, bounds or counts taken from rows).
    """
    check = "rows reach the release through recorded calls only"
    name = subject.fitting[0]
    ledger = subject.run(name).ledger
    reasons = ledger.proof().reasons
    if reasons:
        yield Finding(check, Outcome.NOT_CHECKED, f"it reads rows openly: {reasons[0]}")
        return
    if any(entry.trust for entry in ledger.entries):
        yield Finding(check, Outcome.NOT_CHECKED, "a trusted library reads the rows itself")
        return
    releases = []
    for dataset in (table(name), _other_rows(table(name))):
        try:
            releases.append(_fingerprint(subject, dataset))
        except BenchError as problem:
            yield Finding(check, Outcome.NOT_CHECKED, f"no release from pure noise: {problem}")
            return
    same = releases[0] == releases[1]
    yield Finding(
        check,
        Outcome.PASSED if same else Outcome.FAILED,
        "" if same else "the release changes with the rows although every noisy call is blind",
        "use only what `private`'s calls return; no underscored attributes, no rows kept by a "
        "row function, bounds from the schema, counts from `private.counts`",
    )


def _fingerprint(subject: Subject, dataset: Dataset) -> bytes:
    run = subject.open(dataset, SplitStreams(3), blind=True)
    return released_bytes(run.release, dataset)


def released_bytes(release: Release, dataset: Dataset) -> bytes:
    """What leaves, as bytes: rows, or what the model answers about fixed rows."""
    if release.rows is not None:
        parts = [release.rows.values, release.rows.labels, release.rows.weights]
        return b"".join(np.asarray(part).tobytes() for part in parts if part is not None)
    if release.model is None:
        return b""
    features = dataset.test.rows.values[:, : dataset.encoder.feature_width]
    return np.asarray(release.model.predict(features)).tobytes()


def _other_rows(dataset: Dataset) -> Dataset:
    """As many rows with other values and labels; the first lies far beyond the schema."""
    rng = np.random.default_rng(41)

    def other(split: Split) -> Split:
        rows = split.rows
        values = rng.uniform(-1.0, 1.0, rows.values.shape)
        values[:1] = _BEYOND
        labels = rng.permutation(rows.labels)
        changed = EncodedRows(values, labels, rng.permutation(rows.sites), rows.positions.copy())
        return Split(split.frame, changed)

    return replace(dataset, train=other(dataset.train), validation=other(dataset.validation))
