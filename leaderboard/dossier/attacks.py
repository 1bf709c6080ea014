"""What a dossier says about the attacks that were tried, and about those that were not.

Grouped by the three risks of the Article 29 Working Party's opinion 05/2014 on anonymisation:
singling out, linkability and inference. Membership is something that is inferred, and stands there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from bench.leaderboard.dossier import words
from bench.leaderboard.tables import show
from bench.plugins.metric import HEADLINES, Direction, Family
from bench.results.records import ScoreRow

_WEAK = "weak:"
_NOISE = 1e-12
"""Rounding errors of exact zeros."""


def number(value: float | None) -> str:
    """A score as on the leaderboard; rounding errors are zero."""
    return show.number(0.0 if value is not None and abs(value) < _NOISE else value)


@final
@dataclass(frozen=True)
class Reading:
    """How one score is read."""

    metric: str
    question: str
    nothing: float | None = None
    """Its value where nothing leaks; None where only a threshold or a neighbour says something."""
    needs: str = ""
    """Another score that must not be negative for this one to mean anything."""


@final
@dataclass(frozen=True)
class PrivacyRisk:
    """One of the three risks, with the scores that speak about it."""

    title: str
    question: str
    readings: tuple[Reading, ...]


RISKS: tuple[PrivacyRisk, ...] = (
    PrivacyRisk(
        "Singling out",
        "Can somebody find, in the release, a description that fits exactly one real person, or a "
        "released row that is a real person's row?",
        (
            Reading("singling-out/univariate", "guesses about one column that fit one person", 0.0),
            Reading("singling-out/multivariate", "guesses about three columns", 0.0),
            Reading("dcr/copies", "released rows that equal a training row"),
            Reading("dcr/copies-excess", "the same, beyond what fresh rows show by chance", 0.0),
            Reading("high-risk/train", "training rows that are rare and were copied"),
            Reading("high-risk/rare-train", "the same, rare by all columns"),
            Reading("high-risk/rare-excess", "released copies of rare rows, beyond chance", 0.0),
            Reading("dcr/gap", "released rows lie nearer to training rows than to strangers", 0.0),
            Reading("dcr/closer-to-train", "released rows whose closest row was used", 0.5),
            Reading("nndr/gap", "released rows that sit at single people", 0.0),
            Reading("exposure/mean", "invented outliers that come back (bits)", 1.44),
        ),
    ),
    PrivacyRisk(
        "Linkability",
        "Can somebody who knows two parts of a person's record see from the release that they "
        "belong together?",
        (
            Reading("linkability/k1", "links by the closest released record", 0.0),
            Reading("linkability/k5", "links by the five closest", 0.0),
        ),
    ),
    PrivacyRisk(
        "Inference",
        "Can somebody infer that a person was in the data (membership), or a sensitive value of a "
        "person, better than for strangers?",
        (
            Reading("mia/auroc", "membership by distances to released rows", 0.5),
            Reading("mia/advantage-held-out", "its hits minus its false alarms", 0.0),
            Reading("mia/tpr-at-fpr-0.01", "members found at 1% false alarms", 0.01),
            Reading("domias/auroc", "membership by local density", 0.5),
            Reading("domias/precision", "its surest claims that are right", 0.5),
            Reading("mia-threshold/risk", "membership by the closest row", 0.0),
            Reading("file-membership/accuracy", "which half of the data was used", 0.5),
            Reading("file-membership/p", "p-value that this is guessing, within 0.05"),
            Reading("aia/gap", "sensitive values by a model, beyond strangers", 0.0, "aia/r2"),
            Reading("qi-match/gap", "sensitive values by quasi-identifiers, beyond strangers", 0.0),
            Reading("disclosure-risk/reference", "records at risk of disclosure"),
            Reading("disclosure-risk/gap", "the same without errors, beyond strangers", 0.0),
        ),
    ),
)


@final
@dataclass(frozen=True)
class AttackScore:
    """One score with what it says. `tone`: alarm, quiet or absent."""

    metric: str
    question: str
    value: str
    interval: str
    nothing: str
    limit: str
    outcome: str
    tone: str
    weak: str
    """What the attack found where a leak was known, for one that misses small leaks."""


@final
@dataclass(frozen=True)
class AssessedRisk:
    """One risk with its findings and a sentence."""

    risk: PrivacyRisk
    findings: tuple[AttackScore, ...]
    summary: str


def assess(scores: Sequence[ScoreRow]) -> tuple[AssessedRisk, ...]:
    """The scores of a release by risk; scores that nobody has a reading for stand in the annex."""
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
    """Why an attack is weak is said where it stands first."""
    said: set[str] = set()
    shown = []
    for item in findings:
        shown.append(replace(item, weak="as above") if item.weak in said - {""} else item)
        said.add(item.weak)
    return tuple(shown)


def others(scores: Sequence[ScoreRow]) -> tuple[AttackScore, ...]:
    """Privacy scores without a reading of their own, for the annex."""
    read = {reading.metric for risk in RISKS for reading in risk.readings}
    return tuple(
        _finding(Reading(score.metric, ""), score, {})
        for score in scores
        if score.family == Family.PRIVACY and score.metric not in read
    )


def alarms(assessed: Sequence[AssessedRisk]) -> tuple[AttackScore, ...]:
    """What found something, or stands over its threshold."""
    return tuple(item for one in assessed for item in one.findings if item.tone == "alarm")


def _finding(reading: Reading, score: ScoreRow, known: Mapping[str, ScoreRow]) -> AttackScore:
    outcome, tone = _outcome(reading, score, known)
    weak = score.remark.startswith(_WEAK)
    return AttackScore(
        metric=score.metric,
        question=reading.question,
        value=number(score.value),
        interval=_interval(score),
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
    needed = known.get(reading.needs)
    if needed is not None and needed.value is not None and needed.value < 0:
        return (
            f"says nothing: the attack guesses worse than the column's mean ({needed.metric} is "
            f"{number(needed.value)})",
            "absent",
        )
    higher = score.direction == Direction.HIGHER
    if score.limit is not None and (value < score.limit if higher else value > score.limit):
        return "over the threshold" if not higher else "below the threshold", "alarm"
    if reading.nothing is not None:
        if score.low is None or score.high is None:
            return "no interval: chance cannot be told from a leak", "absent"
        if (score.high < reading.nothing) if higher else (score.low > reading.nothing):
            return "found something: the whole interval is beyond chance", "alarm"
        return "found nothing", "quiet"
    if score.limit is not None:
        return "within the threshold", "quiet"
    return "to be read beside the others", "absent"


def _interval(score: ScoreRow) -> str:
    if score.value is None or score.low is None or score.high is None:
        return ""
    return f"{number(score.low)} to {number(score.high)}"


def _summary(findings: Sequence[AttackScore]) -> str:
    measured = [item for item in findings if item.tone != "absent"]
    if not measured:
        return "No attack of this kind gave a number for this release: this risk was not tested."
    loud = [item.metric for item in measured if item.tone == "alarm"]
    quiet = [item for item in measured if item.tone == "quiet"]
    weak = sum(bool(item.weak) for item in quiet)
    text = (
        f"Found something, or over the threshold: {', '.join(loud)}."
        if loud
        else "Nothing found beyond chance, and nothing over a threshold."
    )
    text += f" {words.several(len(measured), 'score')} could be read."
    if weak:
        text += f" Of the {len(quiet)} that found nothing, {weak} would miss a small leak (weak)."
    return text


# What was not tested ----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class KnownMetric:
    """A privacy metric that this version of the benchmark knows."""

    name: str
    optional: bool
    tasks: tuple[str, ...]
    outputs: tuple[str, ...]


@final
@dataclass(frozen=True)
class Untested:
    """A metric without a number in this run, and why. `reason` may tell about private rows."""

    name: str
    why: str
    reason: str = ""


def untested(
    tests: Iterable[KnownMetric], task: str, scores: Sequence[ScoreRow]
) -> tuple[Untested, ...]:
    """Privacy metrics that gave no number for this release."""
    known = {score.metric: score for score in scores}
    missing = []
    for test in tests:
        own = [known[name] for name in test.outputs if name in known]
        if task and task not in test.tasks:
            missing.append(Untested(test.name, f"Does not apply to {task} data"))
        elif not own:
            why = "Optional, and not asked for" if test.optional else "Not asked for in this run"
            missing.append(Untested(test.name, why))
        elif all(score.value is None for score in own):
            reasons = "; ".join(dict.fromkeys(score.reason for score in own if score.reason))
            missing.append(Untested(test.name, "Could not be computed", reasons))
    return tuple(missing)


# Utility and fidelity ---------------------------------------------------------------------------

_MEANINGS: Mapping[str, str] = {
    "auroc": "how well a model trained on the release ranks real test rows (0.5 is guessing)",
    "accuracy/convnet": "real test images that a network trained on the release gets right",
    "c-index/cox": "how well a Cox model from the release orders survival (0.5 is guessing)",
    "c-index/cox-ratio": "the same as a share of what real rows reach",
    "discriminator/auc": "how well a model tells released from real rows (0.5: not at all)",
    "ks": "largest distance of the distributions of a number, mean over columns (0 is best)",
    "tvd": "distance of the distributions of a category, mean over columns (0 is best)",
    "pcd/l2": "difference of the correlations between columns (0 is best)",
}
_LINES = 5


@final
@dataclass(frozen=True)
class Quality:
    """One line about what the release is good for."""

    metric: str
    meaning: str
    value: str
    interval: str
    ceiling: str
    """The same number for the real training rows, where the run has it."""


def quality(
    task: str, scores: Sequence[ScoreRow], ceiling: Sequence[ScoreRow]
) -> tuple[Quality, ...]:
    """Five lines: the headline first, then what the leaderboard shows of utility and fidelity."""
    best = {score.metric: score.value for score in ceiling}
    headline = HEADLINES.get(task, "")
    order = {headline: 0}
    shown = [
        score
        for score in scores
        if score.value is not None
        and score.family in (Family.UTILITY, Family.FIDELITY)
        and (score.shown or score.metric == headline)
    ]
    utility = [score for score in shown if score.family == Family.UTILITY]
    fidelity = [score for score in shown if score.family == Family.FIDELITY]
    utility.sort(key=lambda score: order.get(score.metric, 1))
    # Both kinds get their place: fidelity needs at most three of the five lines.
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
