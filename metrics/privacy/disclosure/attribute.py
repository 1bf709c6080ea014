"""Attribute inference by regression: does the release give away what a person did not tell?

A model trained on any rows of the population can guess an attribute from the others. What it
guesses about the training rows is therefore reported beside the same attack from control rows,
and beside its own guesses about control rows: only what exceeds those is leakage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Direction, Evaluation, Family, Metric, Output, Score, Scores
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared.records import occurring_once, real_records
from bench.metrics.privacy.disclosure import _targets
from bench.metrics.privacy.disclosure._attribute_attack import REPEATS, Attacks, Comparison, attack
from bench.metrics.privacy.disclosure._attribute_statistics import (
    Resampled,
    Samples,
    Statistic,
    accuracy,
    auroc,
    r2,
)

Array = npt.NDArray[np.float64]
_Number = tuple[float, float, float]
"""Value and interval."""

_INTERVAL = "bootstrap interval over the judged rows"
_TABLES = "over tables of so many rows"


@final
class AttributeInference(Metric):
    """Gradient-boosted regression of each sensitive attribute on all other columns.

    * The attacked attribute leaves the predictors with all its encoded columns; the label is one
      of the predictors, for the release holds it too. Weights of released rows count. Values
      beyond the public bounds are clipped.
    * A column of K > 2 categories is K regressions, one for each category: one R2 of all of them,
      and the category with the largest prediction is the guess.
    * Section 4.6 repeats the attack with five seeds. The model has no randomness: on the same
      rows five seeds give one result. What is random is which rows are compared with the control
      rows: equally many are drawn from both tables, five times, so that neither attacker learns
      from more rows (`Comparison`). The excesses are means over the draws; where the release is
      the larger table they speak about parts of it.
    * An excess comes from two tables, and even of fresh rows one gives a better attack than the
      other. Its interval therefore counts how much the attack varies between draws (`_spread`).
    * Section 4.6 takes the AUROC "after applying the threshold". Here it is that of the
      predictions themselves: the area of thresholded ones is the balanced accuracy.
    """

    name: ClassVar[str] = "aia"
    family: ClassVar[Family] = Family.PRIVACY
    cost: ClassVar[str] = "seconds; more for attributes of many categories"
    definition: ClassVar[str] = (
        "Attribute inference attack (zero-order paper, section 4.6): gradient boosting (100 trees, "
        "depth 3, rate 0.1; by XGBoost) trained on the release predicts each sensitive attribute "
        "of the training rows from all other columns. Means over the attributes that the schema "
        "declares sensitive; where it declares none, over up to five numeric or binary features. "
        "Beside it the same attack from control rows, and on control rows."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "aia/r2",
            Direction.LOWER,
            f"R2 on the training rows, mean over attributes; {_INTERVAL}",
        ),
        Output(
            "aia/r2-control",
            Direction.NEUTRAL,
            "R2 on the training rows from control rows, as many as released or fewer (five draws): "
            f"what the population gives away; {_INTERVAL} and {_TABLES}",
        ),
        Output(
            "aia/r2-excess",
            Direction.LOWER,
            "R2 from released minus R2 from control rows, equally many of both (five draws); "
            f"{_INTERVAL} and {_TABLES}",
        ),
        Output(
            "aia/accuracy",
            Direction.LOWER,
            "share of training rows whose category is guessed (binary: threshold 0.5; else the "
            f"largest prediction), mean over categorical attributes; {_INTERVAL}",
        ),
        Output(
            "aia/accuracy-control",
            Direction.NEUTRAL,
            f"the same share, from control rows as in aia/r2-control; {_INTERVAL} and {_TABLES}",
        ),
        Output(
            "aia/accuracy-excess",
            Direction.LOWER,
            f"the difference of the shares, as in aia/r2-excess; {_INTERVAL} and {_TABLES}",
        ),
        Output(
            "aia/auroc",
            Direction.LOWER,
            "AUROC of the predictions on the training rows, mean over binary attributes; "
            f"{_INTERVAL}, linearised (DeLong)",
        ),
        Output(
            "aia/auroc-control",
            Direction.NEUTRAL,
            f"the same area, from control rows as in aia/r2-control; {_INTERVAL} and {_TABLES}",
        ),
        Output(
            "aia/auroc-excess",
            Direction.LOWER,
            f"the difference of the areas, as in aia/r2-excess; {_INTERVAL} and {_TABLES}",
        ),
        Output(
            "aia/gap",
            Direction.LOWER,
            "R2 on training rows minus R2 on control rows of the attack from the release, both "
            "without records that occur more than once in the two, mean over attributes: above 0 "
            "the release says more about those it was made from; bootstrap interval, both sides",
            shown=True,
        ),
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        attacks = attack(evaluation, _targets.attacked(evaluation.dataset.schema))
        measured = _measured(evaluation, attacks)
        everything: dict[str, _Number] = {}
        for kind in _KINDS:
            found = [one.kinds[kind] for one in measured if kind in one.kinds]
            if found:
                everything |= _numbers(kind, _Kind.mean(found), attacks.comparison)
        gaps = [one.gap for one in measured if one.gap is not None]
        if gaps:
            everything["gap"] = _number(np.mean(gaps, axis=0))
        scores = [self._score_of(output.name, attacks, everything) for output in self.outputs]
        return Scores(tuple(scores), {"aia": _table(evaluation, attacks, measured)})

    def _score_of(self, output: str, attacks: Attacks, numbers: dict[str, _Number]) -> Score:
        name = output.removeprefix("aia/")
        if name in numbers:
            return self.score(output, *numbers[name])
        kind, _, beside = name.partition("-")
        if beside and kind in numbers:
            reason = (
                f"{attacks.comparison.control} control and {attacks.comparison.released} released "
                f"rows; at least {_targets.LEAST_ROWS} of each and twice as many of one are needed"
            )
            return self.absent(output, reason)
        return self.absent(output, _ABSENT[kind])


_ABSENT = {
    "r2": "no attacked attribute varies in the training rows",
    "accuracy": "no categorical attribute is attacked",
    "auroc": "no binary attribute that varies in the training rows is attacked",
    "gap": f"fewer than {_targets.LEAST_ROWS} training or control rows occur only once in the two, "
    "or no attacked attribute varies in both",
}


@final
@dataclass(frozen=True)
class _Kind:
    """One statistic of the attacks on one attribute, or its mean over several."""

    whole: Samples
    released: Array
    """(draws, samples)"""
    control: Array

    @classmethod
    def mean(cls, several: Sequence[_Kind]) -> _Kind:
        return cls(
            np.mean([one.whole for one in several], axis=0),
            np.mean([one.released for one in several], axis=0),
            np.mean([one.control for one in several], axis=0),
        )


@final
@dataclass(frozen=True)
class _Measured:
    """What was measured about one attribute."""

    kinds: dict[str, _Kind]
    gap: Samples | None


def _measured(evaluation: Evaluation, attacks: Attacks) -> list[_Measured]:
    dataset = evaluation.dataset
    rng = evaluation.generator("bootstrap/aia")
    train_once, control_once = occurring_once(
        real_records(evaluation, "train", dataset.train),
        real_records(evaluation, "control", dataset.control),
    )
    on_train = Resampled(len(attacks.train), rng)
    on_control = Resampled(len(attacks.control), rng)
    everybody = np.ones(len(attacks.train), dtype=bool)
    enough = min(train_once.sum(), control_once.sum()) >= _targets.LEAST_ROWS
    # Statistics are planned first and computed together: all of them share one set of resamples.
    plans: list[dict[str, list[Statistic]]] = []
    gaps: list[tuple[Statistic | None, Statistic | None]] = []
    for one in attacks.attributes:
        truth = attacks.train.target(one.column)
        plan: dict[str, list[Statistic]] = {}
        for kind, statistic in _KINDS.items():
            wanted = (one.on_train, *one.from_released, *one.from_control)
            made = [statistic(on_train, truth, answers, everybody) for answers in wanted]
            plan[kind] = [statistic for statistic in made if statistic is not None]
        plans.append(plan)
        near = far = None
        if enough:
            near = r2(on_train, truth, one.on_train, train_once, unbiased=True)
            far = r2(
                on_control,
                attacks.control.target(one.column),
                one.on_control,
                control_once,
                unbiased=True,
            )
        gaps.append((near, far))
    results = []
    for one, plan, (near, far) in zip(attacks.attributes, plans, gaps, strict=True):
        kinds = {}
        for kind, statistics in plan.items():
            if statistics:
                samples = np.array([statistic() for statistic in statistics])
                middle = 1 + len(one.from_released)
                kinds[kind] = _Kind(samples[0], samples[1:middle], samples[middle:])
        gap = None if near is None or far is None else near() - far()
        results.append(_Measured(kinds, gap))
    return results


def _numbers(kind: str, measured: _Kind, comparison: Comparison) -> dict[str, _Number]:
    numbers = {kind: _number(measured.whole)}
    # Shares and areas end at 1; a normal tail does not know.
    bound = np.inf if kind == "r2" else 1.0
    if comparison.size:
        mine, theirs = measured.released.mean(axis=0), measured.control.mean(axis=0)
        of_mine, of_theirs = _spread(measured, comparison)
        numbers[f"{kind}-control"] = _number(theirs, of_theirs)
        numbers[f"{kind}-excess"] = _number(mine - theirs, float(np.hypot(of_mine, of_theirs)))
    return {
        name: (value, max(low, -bound), min(high, bound))
        for name, (value, low, high) in numbers.items()
    }


def _spread(measured: _Kind, comparison: Comparison) -> tuple[float, float]:
    """Standard errors of the means over draws, if either table were rows of the population.

    Let V be the variance of the attack between tables of m rows. Draws of m from N rows share
    m / N of them: they vary among themselves by V (1 - m / N), and the mean of D draws varies by
    V (1 / D + (1 - 1 / D) m / N). V is taken from the draws of both tables.
    """
    tables = ((measured.released, comparison.released), (measured.control, comparison.control))
    estimates = [
        draws[:, 0].var(ddof=1) / (1 - comparison.size / rows)
        for draws, rows in tables
        if len(draws) > 1
    ]
    between = float(np.mean(estimates))
    errors = []
    for draws, rows in tables:
        share = 1 / len(draws)
        errors.append(float(np.sqrt(between * (share + (1 - share) * comparison.size / rows))))
    return errors[0], errors[1]


def _number(samples: Samples, between_tables: float = 0.0) -> _Number:
    """Value and interval; the two sources of error are independent."""
    from scipy.stats import t

    value = float(samples[0])
    low, high = _bootstrap.Estimate(value, samples[1:]).interval
    tail = float(t.ppf((1 + _bootstrap.LEVEL) / 2, REPEATS - 1)) * between_tables
    return (
        value,
        value - float(np.hypot(value - low, tail)),
        value + float(np.hypot(high - value, tail)),
    )


_KINDS: dict[str, Callable[..., Statistic | None]] = {
    "r2": r2,
    "accuracy": accuracy,
    "auroc": auroc,
}


def _table(evaluation: Evaluation, attacks: Attacks, measured: Sequence[_Measured]) -> pd.DataFrame:
    """One row for each attribute and number."""
    sensitive = evaluation.dataset.schema.sensitive
    rows = []
    for one, found in zip(attacks.attributes, measured, strict=True):
        numbers: dict[str, _Number] = {}
        for kind, values in found.kinds.items():
            numbers |= _numbers(kind, values, attacks.comparison)
        if found.gap is not None:
            numbers["gap"] = _number(found.gap)
        for name, (value, low, high) in numbers.items():
            rows.append(
                {
                    "attribute": one.column.name,
                    "declared": one.column.name in sensitive,
                    "number": name,
                    "value": value,
                    "low": low,
                    "high": high,
                    "released-rows": attacks.comparison.released,
                    "compared-rows": attacks.comparison.size,
                }
            )
    names = ["attribute", "declared", "number", "value", "low", "high"]
    return pd.DataFrame(rows, columns=[*names, "released-rows", "compared-rows"])
