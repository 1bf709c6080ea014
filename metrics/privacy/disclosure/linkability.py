"""Linkability: does the release join what is known about a person from two sources?

An attacker has two tables about the same people, without a common key: one with some columns, one
with the others. A released record that is close to a person's part in both tables joins them.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Direction,
    Evaluation,
    Family,
    Metric,
    NotComputable,
    Numeric,
    Output,
    Score,
    Scores,
    Task,
)
from bench.metrics._shared.bootstrap import Array
from bench.metrics._shared.intervals import residual_risk, success_rate
from bench.metrics._shared.record_distance import (
    Records,
    distinct_records,
    real_records,
    released_records,
    rows_occurring_once,
)

Indices = npt.NDArray[np.intp]

LEAST_TARGETS = 10
"""Fewer targets are too few for a rate."""

_PAIRS = 2**16
"""Pairs compared at a time: what is made of them stays in the cache."""


@final
class Linkability(Metric):
    """Risk that the two parts of a training row lead to the same released record.

    For each target: the k closest released records by its first columns, the k closest by its other
    columns (record distance of the fidelity paper, over those columns); the link succeeds when the
    two sets share a record. Among equally close records the k are drawn at random, for each part
    anew. Released records are made distinct before: a copy is a link however often it was released.

    The first columns are the declared quasi-identifiers; without any, or where there are no others,
    a random half of the numbers and of the categories, the same for all releases of a dataset.

    Targets are training rows, against as many control rows, both without records that occur more
    than once in the two. Equal numbers, since Wilson's rates of unequal numbers lean differently.
    """

    name: ClassVar[str] = "linkability"
    family: ClassVar[Family] = Family.PRIVACY
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION, Task.SURVIVAL)
    neighbours: ClassVar[tuple[int, ...]] = (1, 5)
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "linkability/k1",
            Direction.LOWER,
            "Residual risk by the closest record.",
            weak="100 released training rows of Adult gave 0.00 [-0.01, 0.01], 10,000 gave 0.08; "
            "of breast-cancer, 100 gave 0.33",
            shown=True,
        ),
        Output("linkability/k1-control", Direction.NEUTRAL, "Success rate on control rows, k = 1."),
        Output(
            "linkability/k5",
            Direction.LOWER,
            "Residual risk by the five closest records.",
            weak="100 released training rows of Adult gave 0.01 [-0.06, 0.08], 10,000 gave 0.23; "
            "of breast-cancer, 100 gave 0.18, the interval above 0 in 1 of 10 splits",
        ),
        Output("linkability/k5-control", Direction.NEUTRAL, "Success rate on control rows, k = 5."),
    )
    definition: ClassVar[str] = (
        "Share of up to 2,000 training rows whose quasi-identifiers and other columns (a random "
        "half of all columns where none are declared) have a released record in common among the "
        "k closest to each, against as many control rows: (r_main - r_control) / (1 - r_control) "
        "(Giomi et al., PoPETs 2023, linkability attack and residual risk). Not clipped: below 0 "
        "is chance. 95% interval: Wilson's errors, propagated as in the paper."
    )
    cost: ClassVar[str] = "a few seconds"

    targets: ClassVar[int] = 2000

    def compute(self, evaluation: Evaluation) -> Scores:
        train = real_records(evaluation, "train")
        control = real_records(evaluation, "control")
        members, others = map(np.flatnonzero, rows_occurring_once(evaluation))
        count = min(len(members), len(others), self.targets)
        if count < LEAST_TARGETS:
            raise NotComputable(
                f"{len(members)} training and {len(others)} control rows occur only once in the "
                f"two; at least {LEAST_TARGETS} of each are needed"
            )
        released = distinct_records(evaluation)
        rng = evaluation.generator("linkability")
        parts = column_parts(evaluation)
        linked = {
            name: linked_targets(
                rows.take(rng.choice(index, count, replace=False)),
                released,
                parts,
                self.neighbours,
                rng,
            )
            for name, rows, index in (("train", train, members), ("control", control, others))
        }
        scores: list[Score] = []
        for number, k in enumerate(self.neighbours):
            successes = {name: int(links[:, number].sum()) for name, links in linked.items()}
            scores += self._scores(k, successes["train"], successes["control"], count, released)
        return Scores(tuple(scores), {"linkability": self._table(linked, evaluation, parts)})

    def _scores(
        self, k: int, main: int, control: int, count: int, released: Records
    ) -> tuple[Score, Score]:
        risk, rate = f"linkability/k{k}", f"linkability/k{k}-control"
        if len(released) <= k:
            reason = f"{len(released)} distinct released records: any {k} of them are shared"
            return self.absent(risk, reason), self.absent(rate, reason)
        on_control = success_rate(control, count)
        beside = on_control.score(self, rate)
        if control == count:
            return self.absent(risk, "every control row is linked: no room for a risk"), beside
        return residual_risk(success_rate(main, count), on_control).score(self, risk), beside

    def _table(
        self,
        linked: dict[str, npt.NDArray[np.bool_]],
        evaluation: Evaluation,
        parts: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
    ) -> pd.DataFrame:
        """Successes and attacks by k and rows, and which columns were the first."""
        first = ", ".join(np.array(column_names(evaluation))[parts[0]])
        return pd.DataFrame(
            [
                {
                    "k": k,
                    "rows": name,
                    "attacks": len(links),
                    "linked": int(links[:, number].sum()),
                    "first-columns": first,
                }
                for number, k in enumerate(self.neighbours)
                for name, links in linked.items()
            ]
        )


def column_names(evaluation: Evaluation) -> list[str]:
    """Columns in the order of records: numbers first, then categories."""
    encoder = evaluation.dataset.encoder
    columns = [block.column for block in encoder.blocks] + [encoder.schema.label]
    numeric = [column.name for column in columns if isinstance(column, Numeric)]
    return numeric + [column.name for column in columns if not isinstance(column, Numeric)]


def column_parts(
    evaluation: Evaluation,
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Columns of the attacker's two tables: quasi-identifiers and the rest, or random halves."""
    names = column_names(evaluation)
    first = np.isin(names, evaluation.dataset.schema.quasi_identifiers)
    if not first.any() or first.all():
        numeric = released_records(evaluation).numbers.shape[1]
        first = evaluation.reference(
            "linkability/columns", lambda rng: _half(numeric, len(names), rng)
        )
    return first, ~first


def _half(numeric: int, columns: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Every other column, numbers and categories shuffled separately: halves of equal use."""
    order = np.concatenate([rng.permutation(numeric), rng.permutation(range(numeric, columns))])
    half = np.zeros(columns, dtype=np.bool_)
    half[order[::2].astype(np.intp)] = True
    return half


def linked_targets(
    targets: Records,
    released: Records,
    parts: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
    neighbours: tuple[int, ...],
    rng: np.random.Generator,
) -> npt.NDArray[np.bool_]:
    """(targets, numbers of neighbours): do both parts of a target lead to a common record?"""
    most = min(max(neighbours), len(released))
    first, second = (
        nearest_records(select(targets, part), select(released, part), most, rng) for part in parts
    )
    common = [(first[:, :k, None] == second[:, None, :k]).any(axis=(1, 2)) for k in neighbours]
    return np.column_stack(common)


def select(records: Records, columns: npt.NDArray[np.bool_]) -> Records:
    """Some of the columns."""
    numeric = records.numbers.shape[1]
    return Records(records.numbers[:, columns[:numeric]], records.codes[:, columns[numeric:]])


def nearest_records(
    targets: Records, released: Records, most: int, rng: np.random.Generator
) -> Indices:
    """(targets, most): the closest released records, nearest first, ties in random order."""
    height = max(1, _PAIRS // len(released))
    closest = np.empty((len(targets), most), dtype=np.intp)
    for start in range(0, len(targets), height):
        block = targets.take(np.arange(start, min(start + height, len(targets))))
        sums = distance_sums(block, released)
        limits = np.partition(sums, most - 1, axis=1)[:, most - 1]
        for number, (row, limit) in enumerate(zip(sums, limits, strict=True)):
            near = np.flatnonzero(row <= limit)
            order = np.lexsort((rng.random(len(near)), row[near]))
            closest[start + number] = near[order[:most]]
    return closest


def distance_sums(targets: Records, released: Records) -> Array:
    """(targets, released): the record distance of all pairs, times the number of columns.

    The terms are those of `record_distance.distances`, which takes rows side by side.
    """
    from bench.metrics._shared import kernels

    total = np.zeros((len(targets), len(released)))
    kernels.add_exact(
        total,
        np.ascontiguousarray(targets.numbers),
        np.ascontiguousarray(released.numbers.T),
        np.ascontiguousarray(targets.codes),
        np.ascontiguousarray(released.codes.T),
    )
    return total
