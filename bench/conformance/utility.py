"""More budget must not make a release worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from bench.conformance.findings import Finding, Outcome
from bench.conformance.subject import Subject
from bench.core import registry
from bench.core.errors import NotComputable
from bench.core.metric import HEADLINES, Evaluation, Metric

_EPSILONS = (0.5, 5.0, 50.0)
_SEEDS = 3
_TOLERANCE = 0.1
"""Scores of small releases of small tables are noisy: less than this is no fall."""


def grows_with_epsilon(subject: Subject) -> Iterator[Finding]:
    """The headline score, mean over seeds, does not fall by more than the tolerance."""
    check = "utility does not fall as epsilon grows"
    if not subject.method.uses_budget:
        yield Finding(check, Outcome.NOT_CHECKED, "it has no budget")
        return
    falls, words = [], []
    for name in subject.fitting:
        means = {epsilon: _mean_score(subject, name, epsilon) for epsilon in _EPSILONS}
        known = {epsilon: mean for epsilon, mean in means.items() if mean is not None}
        if len(known) < 2:
            continue
        words.append(f"{name}: {_in_words(known)}")
        values = list(known.values())
        if values[-1] < max(values[:-1]) - _TOLERANCE:
            falls.append(name)
    if not words:
        yield Finding(check, Outcome.NOT_CHECKED, "the headline score has no value here")
        return
    yield Finding(
        check,
        Outcome.FAILED if falls else Outcome.PASSED,
        "\n".join(words),
        "is something fixed that should follow the noise (a step size, a number of rounds), or a "
        "budget split the wrong way round?",
    )


def _in_words(means: Mapping[float, float]) -> str:
    return ", ".join(f"{mean:.3f} at {epsilon:g}" for epsilon, mean in means.items())


def _mean_score(subject: Subject, name: str, epsilon: float) -> float | None:
    values = [_score(subject, name, epsilon, seed) for seed in range(_SEEDS)]
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None


def _score(subject: Subject, name: str, epsilon: float, seed: int) -> float | None:
    run = subject.run(name, epsilon, 25, seed)
    headline = HEADLINES[run.dataset.task.value]
    metric = registry.metric(registry.select_metrics([headline])[0])
    if not isinstance(metric, Metric):
        return None
    try:
        scores = metric.compute(Evaluation(run.dataset, run.release, seed)).scores
    except NotComputable:
        return None
    return next((score.value for score in scores if score.metric == headline), None)
