"""More budget must not make a release worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bench.conformance.findings import Finding, Outcome
from bench.conformance.subject import Subject
from bench.errors import NotComputable
from bench.plugins import registry
from bench.plugins.metric import HEADLINES, Evaluation, Metric

_EPSILONS = (0.5, 5.0, 50.0)
_SEEDS = 3
_TOLERANCE = 0.1
"""Scores of small releases of small tables are noisy: less than this is no fall."""


def grows_with_epsilon(subject: Subject) -> Iterator[Finding]:
    """The headline score does not fall by more than the tolerance, in two sets of seeds."""
    check = "utility does not fall as epsilon grows"
    if not subject.method.uses_budget:
        yield Finding(check, Outcome.NOT_CHECKED, "it has no budget")
        return
    falls, words = [], []
    for name in subject.fitting:
        scores = {epsilon: _scores(subject, name, epsilon, 0) for epsilon in _EPSILONS}
        known = {epsilon: float(np.mean(own)) for epsilon, own in scores.items() if own}
        if len(known) < 2:
            continue
        words.append(f"{name}: {_in_words(known)}")
        *earlier, last = known
        best = max(earlier, key=lambda epsilon: known[epsilon])
        # Quick hyperparameters leave a generator half trained, whose scores scatter by chance.
        if _worse(scores[best], scores[last]) and _worse(
            *(_scores(subject, name, epsilon, _SEEDS) for epsilon in (best, last))
        ):
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


def _worse(before: Sequence[float], after: Sequence[float]) -> bool:
    """Lower by more than the tolerance, and every score below every other."""
    if not before or not after:
        return False
    return float(np.mean(after)) < float(np.mean(before)) - _TOLERANCE and max(after) < min(before)


def _in_words(means: Mapping[float, float]) -> str:
    return ", ".join(f"{mean:.3f} at {epsilon:g}" for epsilon, mean in means.items())


def _scores(subject: Subject, name: str, epsilon: float, first_seed: int) -> list[float]:
    values = [
        _score(subject, name, epsilon, seed) for seed in range(first_seed, first_seed + _SEEDS)
    ]
    return [value for value in values if value is not None]


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
