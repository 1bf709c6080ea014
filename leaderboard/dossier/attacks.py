"""Attacks in a dossier: those that were run, and those that were not.

Grouped by the three risks of the Article 29 Working Party's opinion 05/2014 on anonymisation:
singling out, linkability and inference. Membership is inferred, and belongs to the third.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from bench.leaderboard.dossier import words
from bench.leaderboard.ranking.quantities import is_ratio_of
from bench.leaderboard.tables import show
from bench.leaderboard.tables.meaning import NEEDS, unmeant
from bench.plugins.metric import HEADLINES, Direction, Family
from bench.results.records import ScoreRow

_WEAK = "weak:"
_UNMEANT = "not meaningful"
_NOISE = 1e-12
"""Smaller values are rounding errors of exact zeros."""


def number(value: float | None) -> str:
    """Return a score as on the leaderboard; rounding errors become zero."""
    return show.number(0.0 if value is not None and abs(value) < _NOISE else value)


@final
@dataclass(frozen=True)
class Reading:
    """Interpretation of one metric."""

    metric: str
    question: str
    nothing: float | None = None
    """Its value without a leak; None if only a threshold or another metric gives a meaning."""


@final
@dataclass(frozen=True)
class PrivacyRisk:
    """One of the three risks, with the metrics that measure it."""

    title: str
    question: str
    readings: tuple[Reading, ...]


RISKS: tuple[PrivacyRisk, ...] = (
    PrivacyRisk(
        "Singling out",
        "Does the release contain a description that fits exactly one real person, or a row that "
        "is identical to that of a real person?",
        (
            Reading(
                "singling-out/univariate", "predicates on one column that single out a person", 0.0
            ),
            Reading("singling-out/multivariate", "predicates on three columns", 0.0),
            Reading("dcr/copies", "released rows identical to a training row"),
            Reading("dcr/copies-excess", "the same, in excess of control rows", 0.0),
            Reading("high-risk/train", "rare training rows that were copied"),
            Reading("high-risk/rare-train", "the same, rare in all columns"),
            Reading(
                "high-risk/rare-excess",
                "released copies of rare rows, in excess of control rows",
                0.0,
            ),
            Reading("dcr/gap", "released rows closer to training rows than to control rows", 0.0),
            Reading(
                "dcr/closer-to-train", "released rows whose closest row is a training row", 0.5
            ),
            Reading("nndr/gap", "released rows close to a single person", 0.0),
            Reading("exposure/mean", "exposure of planted outliers (bits)", 1.44),
        ),
    ),
    PrivacyRisk(
        "Linkability",
        "Can someone who knows two parts of a person's record infer from the release that they "
        "belong together?",
        (
            Reading("linkability/k1", "links through the closest released record", 0.0),
            Reading("linkability/k5", "links through the five closest records", 0.0),
        ),
    ),
    PrivacyRisk(
        "Inference",
        "Can someone infer that a person was in the data (membership), or a sensitive value of a "
        "person, better than for people who were not in the data?",
        (
            Reading("mia/auroc", "membership, from distances to released rows", 0.5),
            Reading("mia/advantage-held-out", "true-positive rate minus false-positive rate", 0.0),
            Reading("mia/tpr-at-fpr-0.01", "true-positive rate at 1% false positives", 0.01),
            Reading("domias/auroc", "membership, from local density", 0.5),
            Reading("domias/precision", "precision of its most confident predictions", 0.5),
            Reading("mia-threshold/risk", "membership, from the closest row", 0.0),
            Reading("file-membership/accuracy", "membership of half of the data as a whole", 0.5),
            Reading("file-membership/p", "p-value of the hypothesis of guessing"),
            Reading(
                "aia/gap",
                "sensitive values predicted by a model, in excess of control rows",
                0.0,
            ),
            Reading(
                "qi-match/gap",
                "sensitive values from quasi-identifiers, in excess of control rows",
                0.0,
            ),
            Reading("disclosure-risk/reference", "records at risk of disclosure"),
            Reading(
                "disclosure-risk/gap", "the same without errors, in excess of control rows", 0.0
            ),
        ),
    ),
)


@final
@dataclass(frozen=True)
class AttackScore:
    """One score with its interpretation. `tone`: alarm, quiet or absent."""

    metric: str
    question: str
    value: str
    interval: str
    nothing: str
    limit: str
    outcome: str
    tone: str
    weak: str
    """Result of a weak attack on a known leak; empty for other attacks."""


@final
@dataclass(frozen=True)
class AssessedRisk:
    """One risk with its scores and a summary."""

    risk: PrivacyRisk
    findings: tuple[AttackScore, ...]
    summary: str


def assess(scores: Sequence[ScoreRow]) -> tuple[AssessedRisk, ...]:
    """Return the scores of a release by risk; uninterpreted scores are in the annex."""
    known = {score.metric: score for score in scores if score.family == Family.PRIVACY}
    assessed = []
    for risk in RISKS:
        findings = [
            _finding(reading, known[reading.metric], known)
            for reading in risk.readings
            if reading.metric in known
        ]
        assessed.append(AssessedRisk(risk, _said_once(findings), _summary(findings)))
    return tuple(assessed)


def _said_once(findings: Iterable[AttackScore]) -> tuple[AttackScore, ...]:
    """Give the reason why an attack is weak only at its first score."""
    said: set[str] = set()
    shown = []
    for item in findings:
        shown.append(replace(item, weak="as above") if item.weak in said - {""} else item)
        said.add(item.weak)
    return tuple(shown)


def others(scores: Sequence[ScoreRow]) -> tuple[AttackScore, ...]:
    """Return the privacy scores without an interpretation, for the annex."""
    read = {reading.metric for risk in RISKS for reading in risk.readings}
    return tuple(
        _finding(Reading(score.metric, ""), score, {})
        for score in scores
        if score.family == Family.PRIVACY and score.metric not in read
    )


def alarms(assessed: Sequence[AssessedRisk]) -> tuple[AttackScore, ...]:
    """Return the scores that show a leak or exceed their threshold."""
    return tuple(item for one in assessed for item in one.findings if item.tone == "alarm")


def _finding(reading: Reading, score: ScoreRow, known: Mapping[str, ScoreRow]) -> AttackScore:
    outcome, tone = _outcome(reading, score, known)
    weak = score.remark.startswith(_WEAK)
    meant = not outcome.startswith(_UNMEANT)
    return AttackScore(
        metric=score.metric,
        question=reading.question,
        value=number(score.value if meant else None),
        interval=_interval(score) if meant else "",
        nothing="" if reading.nothing is None else f"{reading.nothing:g}",
        limit="" if score.limit is None else f"{score.limit:g}",
        outcome=outcome,
        tone=tone,
        weak=score.remark.removeprefix(_WEAK).strip() if weak else "",
    )


def _outcome(reading: Reading, score: ScoreRow, known: Mapping[str, ScoreRow]) -> tuple[str, str]:
    value = score.value
    if value is None:
        return f"not measured: {score.reason or 'no reason was given'}", "absent"
    needed = known.get(NEEDS.get(reading.metric, ""))
    reason = "" if needed is None else unmeant(needed.metric, needed.value)
    if reason:
        return reason, "absent"
    higher = score.direction == Direction.HIGHER
    if score.limit is not None and (value < score.limit if higher else value > score.limit):
        return "above the threshold" if not higher else "below the threshold", "alarm"
    if reading.nothing is not None:
        if score.low is None or score.high is None:
            return "no interval: cannot be distinguished from chance", "absent"
        if (score.high < reading.nothing) if higher else (score.low > reading.nothing):
            return "leak detected: the whole interval is beyond chance", "alarm"
        return "no leak detected", "quiet"
    if score.limit is not None:
        return "within the threshold", "quiet"
    return "to be read together with the others", "absent"


def _interval(score: ScoreRow) -> str:
    if score.value is None or score.low is None or score.high is None:
        return ""
    return f"{number(score.low)} to {number(score.high)}"


def _summary(findings: Sequence[AttackScore]) -> str:
    measured = [item for item in findings if item.tone != "absent"]
    if not measured:
        return "No attack of this kind has a score for this release: this risk was not tested."
    loud = [item.metric for item in measured if item.tone == "alarm"]
    quiet = [item for item in measured if item.tone == "quiet"]
    weak = sum(bool(item.weak) for item in quiet)
    text = (
        f"Leak detected, or threshold exceeded: {', '.join(loud)}."
        if loud
        else "No leak detected beyond chance, and no threshold exceeded."
    )
    text += f" {words.several(len(measured), 'score')} could be interpreted."
    if weak:
        text += f" Of the {len(quiet)} that detected no leak, {weak} would miss a small one (weak)."
    return text


# What was not tested ----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class KnownMetric:
    """A privacy metric of this installation."""

    name: str
    optional: bool
    tasks: tuple[str, ...]
    outputs: tuple[str, ...]


@final
@dataclass(frozen=True)
class Untested:
    """A metric without a score in this run, and why. `reason` may depend on private rows."""

    name: str
    why: str
    reason: str = ""


def untested(
    tests: Iterable[KnownMetric], task: str, scores: Sequence[ScoreRow]
) -> tuple[Untested, ...]:
    """Return the privacy metrics without a score for this release."""
    known = {score.metric: score for score in scores}
    missing = []
    for test in tests:
        results = [known[name] for name in test.outputs if name in known]
        if task and task not in test.tasks:
            missing.append(Untested(test.name, f"Does not apply to {task} data"))
        elif not results:
            why = "Optional, not requested" if test.optional else "Not requested in this run"
            missing.append(Untested(test.name, why))
        elif all(score.value is None for score in results):
            reasons = "; ".join(dict.fromkeys(score.reason for score in results if score.reason))
            missing.append(Untested(test.name, "Could not be computed", reasons))
    return tuple(missing)


# Utility and fidelity ---------------------------------------------------------------------------

_MEANINGS: Mapping[str, str] = {
    "auroc": "ranking of real test rows by a model trained on the release (0.5 is guessing)",
    "accuracy/convnet": "accuracy on real test images of a network trained on the release",
    "c-index/cox": "ranking of survival by a Cox model fitted to the release (0.5 is guessing)",
    "c-index/cox-ratio": "the same, divided by that of the real rows",
    "discriminator/auc": "how well a model distinguishes released from real rows (0.5: not at all)",
    "ks": "Kolmogorov-Smirnov distance of numeric columns, mean over columns (0 is best)",
    "tvd": "total variation distance of categorical columns, mean over columns (0 is best)",
    "pcd/l2": "difference of the correlations between columns (0 is best)",
}
_LINES = 5


@final
@dataclass(frozen=True)
class Quality:
    """One score of utility or fidelity."""

    metric: str
    meaning: str
    value: str
    interval: str
    ceiling: str
    """The same score for the real training rows, if the run has it."""


def quality(
    task: str, scores: Sequence[ScoreRow], ceiling: Sequence[ScoreRow]
) -> tuple[Quality, ...]:
    """Return five scores: the headline, then those that the leaderboard shows."""
    best = {score.metric: score.value for score in ceiling}
    headline = HEADLINES.get(task, "")
    # Where the real rows are beside them, shares of another model of the real rows are not shown.
    doubled = {score.metric for score in scores if best and is_ratio_of(score.metric, [headline])}
    order = {headline: 0}
    shown = [
        score
        for score in scores
        if score.value is not None
        and score.metric not in doubled
        and score.family in (Family.UTILITY, Family.FIDELITY)
        and (score.shown or score.metric == headline)
    ]
    utility = [score for score in shown if score.family == Family.UTILITY]
    fidelity = [score for score in shown if score.family == Family.FIDELITY]
    utility.sort(key=lambda score: order.get(score.metric, 1))
    # Both families are included: fidelity needs at most three of the five lines.
    room = max(2, _LINES - len(fidelity))
    chosen = [*utility[:room], *fidelity][:_LINES]
    return tuple(
        Quality(
            metric=score.metric,
            meaning=_MEANINGS.get(score.metric, f"{score.direction} is better"),
            value=number(score.value),
            interval=_interval(score),
            ceiling=number(best.get(score.metric)),
        )
        for score in chosen
    )
