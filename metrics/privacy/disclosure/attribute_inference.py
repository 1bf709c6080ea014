"""Attribute inference by regression: does the release disclose what a person did not reveal?

A model trained on any rows of the population can guess an attribute from the others. What it
guesses about the training rows is therefore reported beside the same attack from control rows,
and beside its own guesses about control rows: only what exceeds those is leakage.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Categorical,
    Column,
    Direction,
    Encoder,
    Evaluation,
    Family,
    Metric,
    NotComputable,
    Output,
    Score,
    Scores,
)
from bench.metrics._shared import shallow_trees
from bench.metrics._shared.bootstrap import Array, Estimate, ResampledSums
from bench.metrics._shared.intervals import LEVEL, Interval
from bench.metrics._shared.record_distance import rows_occurring_once
from bench.metrics._shared.rows import encoded_label, row_weights
from bench.metrics._shared.shallow_trees import BinnedRows, ShallowTrees
from bench.metrics.privacy.disclosure import _matching

REPEATS = 5
"""Section 4.6: five random seeds."""

EXACT_ROWS = 1000
"""Rows up to which every split is tried and the trees are scikit-learn's, ties aside; beyond,
splits between 256 bins of about as many rows each."""

Samples = Array
"""A statistic of the rows first, then of each of their resamples."""
Statistic = Callable[[], Samples]

_INTERVAL = "bootstrap interval over the judged rows, in up to 1000 random groups"
_TABLES = "over tables of that many rows"


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
      from more rows (`EqualDraws`). The excesses are means over the draws; where the release is
      the larger table they describe parts of it.
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
        "depth 3, rate 0.1, no penalties) trained on the release predicts each sensitive attribute "
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
            f"what the population discloses; {_INTERVAL} and {_TABLES}",
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
            "Share of training rows whose category is guessed (binary: threshold 0.5; else the "
            f"largest prediction), mean over categorical attributes; {_INTERVAL}",
        ),
        Output(
            "aia/accuracy-control",
            Direction.NEUTRAL,
            f"The same share, from control rows as in aia/r2-control; {_INTERVAL} and {_TABLES}",
        ),
        Output(
            "aia/accuracy-excess",
            Direction.LOWER,
            f"The difference of the shares, as in aia/r2-excess; {_INTERVAL} and {_TABLES}",
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
            f"The same area, from control rows as in aia/r2-control; {_INTERVAL} and {_TABLES}",
        ),
        Output(
            "aia/auroc-excess",
            Direction.LOWER,
            f"The difference of the areas, as in aia/r2-excess; {_INTERVAL} and {_TABLES}",
        ),
        Output(
            "aia/gap",
            Direction.LOWER,
            "R2 on training rows minus R2 on control rows of the attack from the release, both "
            "without records that occur more than once in the two, mean over attributes: above 0 "
            "the release discloses more about those it was made from; bootstrap interval of "
            "both sides, in up to 1000 random groups of rows",
            shown=True,
        ),
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        attacks = attack(evaluation, _matching.attacked(evaluation.dataset.schema))
        measured = _measured(evaluation, attacks)
        everything: dict[str, Interval] = {}
        for kind in _KINDS:
            kinds = [one.kinds[kind] for one in measured if kind in one.kinds]
            if kinds:
                everything |= _numbers(kind, _Kind.mean(kinds), attacks.comparison)
        gaps = [one.gap for one in measured if one.gap is not None]
        if gaps:
            everything["gap"] = _number(np.mean(gaps, axis=0))
        scores = [self._score_of(output.name, attacks, everything) for output in self.outputs]
        return Scores(tuple(scores), {"aia": _table(evaluation, attacks, measured)})

    def _score_of(
        self, output: str, attacks: ReleaseAttacks, numbers: dict[str, Interval]
    ) -> Score:
        name = output.removeprefix("aia/")
        if name in numbers:
            return numbers[name].score(self, output)
        kind, _, beside = name.partition("-")
        if beside and kind in numbers:
            reason = (
                f"{attacks.comparison.control} control and {attacks.comparison.released} released "
                f"rows; at least {_matching.LEAST_ROWS} of each and twice as many of one are needed"
            )
            return self.absent(output, reason)
        return self.absent(output, _ABSENT[kind])


_ABSENT = {
    "r2": "no attacked attribute varies in the training rows",
    "accuracy": "no categorical attribute is attacked",
    "auroc": "no binary attribute that varies in the training rows is attacked",
    "gap": f"fewer than {_matching.LEAST_ROWS} training or control rows occur only once in the "
    "two, or no attacked attribute varies in both",
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
    """Measurements of one attribute."""

    kinds: dict[str, _Kind]
    gap: Samples | None


def _measured(evaluation: Evaluation, attacks: ReleaseAttacks) -> list[_Measured]:
    rng = evaluation.generator("bootstrap/aia")
    train_once, control_once = rows_occurring_once(evaluation)
    on_train = ResampledSums(len(attacks.train), rng)
    on_control = ResampledSums(len(attacks.control), rng)
    everybody = np.ones(len(attacks.train), dtype=bool)
    enough = min(train_once.sum(), control_once.sum()) >= _matching.LEAST_ROWS
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


def _numbers(kind: str, measured: _Kind, comparison: EqualDraws) -> dict[str, Interval]:
    numbers = {kind: _number(measured.whole)}
    # Shares and areas are at most 1; a normal tail may exceed it.
    bound = np.inf if kind == "r2" else 1.0
    if comparison.size:
        mine, theirs = measured.released.mean(axis=0), measured.control.mean(axis=0)
        of_mine, of_theirs = _spread(measured, comparison)
        numbers[f"{kind}-control"] = _number(theirs, of_theirs)
        numbers[f"{kind}-excess"] = _number(mine - theirs, float(np.hypot(of_mine, of_theirs)))
    return {
        name: Interval(number.value, max(number.low, -bound), min(number.high, bound))
        for name, number in numbers.items()
    }


def _spread(measured: _Kind, comparison: EqualDraws) -> tuple[float, float]:
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


def _number(samples: Samples, between_tables: float = 0.0) -> Interval:
    """Value and interval; the two sources of error are independent."""
    from scipy.stats import t

    value = float(samples[0])
    low, high = Estimate.of(samples).interval
    tail = float(t.ppf((1 + LEVEL) / 2, REPEATS - 1)) * between_tables
    return Interval(
        value,
        value - float(np.hypot(value - low, tail)),
        value + float(np.hypot(high - value, tail)),
    )


def _table(
    evaluation: Evaluation, attacks: ReleaseAttacks, measured: Sequence[_Measured]
) -> pd.DataFrame:
    """One row for each attribute and number."""
    sensitive = evaluation.dataset.schema.sensitive
    rows = []
    for one, measurement in zip(attacks.attributes, measured, strict=True):
        numbers: dict[str, Interval] = {}
        for kind, values in measurement.kinds.items():
            numbers |= _numbers(kind, values, attacks.comparison)
        if measurement.gap is not None:
            numbers["gap"] = _number(measurement.gap)
        for name, number in numbers.items():
            rows.append(
                {
                    "attribute": one.column.name,
                    "declared": one.column.name in sensitive,
                    "number": name,
                    **asdict(number),
                    "released-rows": attacks.comparison.released,
                    "compared-rows": attacks.comparison.size,
                }
            )
    names = ["attribute", "declared", "number", "value", "low", "high"]
    return pd.DataFrame(rows, columns=[*names, "released-rows", "compared-rows"])


# The attack (zero-order paper, section 4.6) ------------------------------------------------------


@final
@dataclass(frozen=True)
class AttributeGuesses:
    """Guesses of the attack about one attribute of some rows."""

    errors: Array
    """Squared error of each row; of several categories their sum."""
    right: npt.NDArray[np.bool_] | None
    """Whether the category was guessed; None for a number."""
    predictions: Array | None
    """Predictions for a binary attribute, higher for the second category."""


@final
@dataclass(frozen=True)
class AttributeAttacks:
    """All attacks on one attribute."""

    column: Column
    on_train: AttributeGuesses
    """Guesses from all released rows about the training rows."""
    on_control: AttributeGuesses
    """Guesses of the same model about the control rows."""
    from_released: tuple[AttributeGuesses, ...]
    """Guesses from draws of released rows about the training rows."""
    from_control: tuple[AttributeGuesses, ...]
    """The same, from draws of equally many control rows."""


@final
@dataclass(frozen=True)
class EqualDraws:
    """Draws of equally many rows of the release and of the control rows.

    At most half of the larger table is drawn: draws that hold nearly all of its rows would not
    show how much such an attack varies with the rows it learns from.
    """

    size: int
    released: int
    control: int

    @classmethod
    def of(cls, released: int, control: int) -> EqualDraws:
        """Draws from two tables of these numbers of rows."""
        size = min(released, control, max(released, control) // 2)
        return cls(size if size >= _matching.LEAST_ROWS else 0, released, control)

    def draws(self, rows: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.intp], ...]:
        """Five draws from a table of `rows` rows; one where that is the whole table."""
        if not self.size:
            return ()
        repeats = REPEATS if self.size < rows else 1
        return tuple(
            np.sort(rng.choice(rows, self.size, replace=False)).astype(np.intp)
            for _ in range(repeats)
        )


@final
@dataclass(frozen=True)
class ReleaseAttacks:
    """All attacks that one release is judged by."""

    train: EncodedTable
    control: EncodedTable
    comparison: EqualDraws
    attributes: tuple[AttributeAttacks, ...]


def attack(evaluation: Evaluation, targets: tuple[Column, ...]) -> ReleaseAttacks:
    """Train on the release, on equally many control rows, and ask."""
    dataset = evaluation.dataset
    rows = evaluation.rows
    weights = row_weights(rows)
    kept = np.flatnonzero(weights > 0)
    if len(kept) < 2:
        raise NotComputable(f"{len(kept)} released rows have a weight: nothing to learn from")
    released = EncodedTable.of(dataset.encoder, rows.values[kept], rows.labels[kept])
    weights = weights[kept]
    train, control = _real(evaluation, "train"), _real(evaluation, "control")
    comparison = EqualDraws.of(len(released), len(control))
    parts = comparison.draws(len(released), evaluation.generator("aia/released"))
    purpose = f"aia/control/{comparison.size}"
    others = evaluation.reference(purpose, lambda rng: comparison.draws(len(control), rng))

    drawn = [(released.take(part), weights[part]) for part in parts]
    beside = [control.take(part) for part in others]

    def attributes(column: Column) -> AttributeAttacks:
        whole = trained(released, weights, column)
        return AttributeAttacks(
            column,
            whole.asked(train),
            whole.asked(control),
            tuple(trained(table, heavy, column).asked(train) for table, heavy in drawn),
            evaluation.reference(
                f"{purpose}/{column.name}",
                # Real rows, whatever the release: the same answers beside every release.
                lambda rng: tuple(
                    trained(table, np.ones(len(table)), column).asked(train) for table in beside
                ),
            ),
        )

    return ReleaseAttacks(
        train, control, comparison, tuple(attributes(column) for column in targets)
    )


def _real(evaluation: Evaluation, name: Literal["train", "control"]) -> EncodedTable:
    dataset = evaluation.dataset
    rows = (dataset.train if name == "train" else dataset.control).rows
    return evaluation.reference(
        f"aia/{name}", lambda _: EncodedTable.of(dataset.encoder, rows.values, rows.labels)
    )


@final
@dataclass(frozen=True)
class AttributeModel:
    """A model of one attribute."""

    column: Column
    trees: tuple[ShallowTrees, ...]
    """One model per encoded column of the attribute."""
    mean: Array

    def asked(self, rows: EncodedTable) -> AttributeGuesses:
        """Guesses about some rows."""
        truth = rows.target(self.column)
        sums = np.stack([one.sums(rows.by_column) for one in self.trees], axis=1)
        return _answers(self.column, truth, sums.astype(np.float64) + self.mean)


def trained(table: EncodedTable, weights: Array, column: Column) -> AttributeModel:
    """Gradient boosting of one attribute on all others (section 4.6: 100 trees, depth 3)."""
    values = table.target(column)
    mean_one = weights / weights.mean()
    mean = np.average(values, axis=0, weights=mean_one)
    groups = table.binned.groups_beside(table.places[column.name])
    trees = tuple(
        shallow_trees.grow(table.binned, target, mean_one, groups).trees
        for target in (values - mean).T
    )
    return AttributeModel(column, trees, mean)


def _answers(column: Column, truth: Array, predictions: Array) -> AttributeGuesses:
    errors: Array = ((truth - predictions) ** 2).sum(axis=1)
    if not isinstance(column, Categorical):
        return AttributeGuesses(errors, None, None)
    if column.binary:
        # Categories are encoded as -1 and 1: the middle is the threshold 0.5 of section 4.6.
        one = predictions[:, 0]
        return AttributeGuesses(errors, (one > 0) == (truth[:, 0] > 0), one)
    return AttributeGuesses(errors, predictions.argmax(axis=1) == truth.argmax(axis=1), None)


# Statistics of the attack, as sums over the judged rows -----------------------------------------


def r2(
    rows: ResampledSums,
    truth: Array,
    answers: AttributeGuesses,
    kept: npt.NDArray[np.bool_],
    unbiased: bool = False,
) -> Statistic | None:
    """1 - squared errors / squared deviations from the mean, over all outputs of the attribute.

    The mean is that of the rows in all resamples: it moves the variance of a resample by one part
    in the number of rows. `unbiased` takes the variance with n - 1 instead of n: plain R2 is lower
    in smaller tables, and fresh rows would leave a gap between training and control rows.
    """
    count = int(np.count_nonzero(kept))
    if count < 2:
        return None
    deviations = ((truth - truth[kept].mean(axis=0)) ** 2).sum(axis=1)
    if unbiased:
        deviations *= count / (count - 1)
    if not deviations[kept].sum() > 0:
        return None
    errors, spread = rows.column(answers.errors * kept), rows.column(deviations * kept)
    return lambda: 1.0 - rows.sums(errors) / rows.sums(spread)


def accuracy(
    rows: ResampledSums, truth: Array, answers: AttributeGuesses, kept: npt.NDArray[np.bool_]
) -> Statistic | None:
    """Share of rows whose category was guessed; not defined for a number."""
    if answers.right is None:
        return None
    right, count = rows.column(answers.right & kept), rows.column(kept)
    return lambda: rows.sums(right) / rows.sums(count)


def linearised_auroc(
    rows: ResampledSums, truth: Array, answers: AttributeGuesses, kept: npt.NDArray[np.bool_]
) -> Statistic | None:
    """Area plus the sum of each row's part in its variance (DeLong, DeLong and Clarke-Pearson).

    A positive row's part is the share of negatives below it, minus the area, over the positives;
    a negative row's the share of positives above it. Exact for the rows, linear for resamples.
    """
    from scipy.stats import rankdata

    if answers.predictions is None:
        return None
    positive = truth[:, 0] > 0
    positives, negatives = np.count_nonzero(positive), np.count_nonzero(~positive)
    if not positives or not negatives:
        return None
    ranks = rankdata(answers.predictions)
    wins = np.empty(len(ranks))
    wins[positive] = (ranks[positive] - rankdata(answers.predictions[positive])) / negatives
    wins[~positive] = 1 - (ranks[~positive] - rankdata(answers.predictions[~positive])) / positives
    area = float(wins[positive].mean())
    part = rows.column((wins - area) / np.where(positive, positives, negatives))
    return lambda: area + rows.sums(part)


_KINDS: dict[str, Callable[..., Statistic | None]] = {
    "r2": r2,
    "accuracy": accuracy,
    "auroc": linearised_auroc,
}


# Encoded rows -------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class EncodedTable:
    """Encoded columns, label included: what a regression is trained on and asked about."""

    values: npt.NDArray[np.float32]
    places: Mapping[str, slice]
    one_hot: npt.NDArray[np.bool_]
    """Whether each encoded column represents one of several categories."""

    @classmethod
    def of(cls, encoder: Encoder, values: npt.ArrayLike, labels: npt.ArrayLike) -> EncodedTable:
        """Values beyond the public bounds are clipped: the attacker knows the schema."""
        places = {block.column.name: block.slice for block in encoder.blocks}
        label = encoder.schema.label
        coded = encoded_label(encoder, labels)
        joined = np.column_stack([np.asarray(values, dtype=np.float32), coded]).astype(np.float32)
        places[label.name] = slice(encoder.width, joined.shape[1])
        one_hot = np.zeros(joined.shape[1], dtype=bool)
        for place in places.values():
            one_hot[place] = place.stop - place.start > 1
        low = np.where(one_hot, np.float32(0.0), np.float32(-1.0))
        return cls(np.clip(joined, low, np.float32(1.0)), places, one_hot)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: npt.NDArray[np.intp]) -> EncodedTable:
        """The rows at `index`."""
        return EncodedTable(self.values[index], self.places, self.one_hot)

    @property
    def hard(self) -> bool:
        """True where every row belongs to one category of each column, as real rows do."""
        part = self.values[:, self.one_hot]
        blocks = [place for place in self.places.values() if place.stop - place.start > 1]
        return bool(((part == 0) | (part == 1)).all()) and all(
            bool((self.values[:, place].sum(axis=1) == 1).all()) for place in blocks
        )

    def target(self, column: Column) -> Array:
        """(rows, outputs) of one attribute: one number, or one for each category of several."""
        return self.values[:, self.places[column.name]].astype(np.float64)

    @functools.cached_property
    def binned(self) -> BinnedRows:
        """The rows as trees are grown from them."""
        hard = [place for place in self.places.values() if place.stop - place.start > 1]
        exact = len(self) <= EXACT_ROWS
        return BinnedRows.of(self.values, exact, hard if self.hard else ())

    @functools.cached_property
    def by_column(self) -> npt.NDArray[np.float32]:
        """(columns, rows) of everything."""
        return np.ascontiguousarray(self.values.T)
