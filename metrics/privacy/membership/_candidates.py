"""The rows that membership attacks are judged on: as many members as non-members.

Members are training rows; non-members are control rows, which no method has seen. Both are
restricted to records that occur once in the two tables together (`_records.occurring_once` says
why), and drawn so that both have the same number of rows of each class: given the class, whether
such a record is a training or a control row was decided by the split's chance alone. Without
leakage, members and non-members are therefore exchangeable, and every attack guesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Evaluation, NotComputable, Split
from bench.metrics._shared import neighbours as _neighbours
from bench.metrics._shared.records import occurring_once, real_records

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

LEAST = 50
"""Members, and non-members: with fewer the 95% interval of an AUROC is wider than 0.2."""

COMPARISONS_AT_MOST = 5e11
"""Comparisons of single values: some minutes on one core."""


@final
@dataclass(frozen=True)
class Candidates:
    """Places of the judged rows in their tables, drawn without a look at any release."""

    members: Places
    """Rows of the training table, in ascending order."""
    others: Places
    """Rows of the control table, as many as members, in ascending order."""
    all_members: Places
    """Every training row that could have been drawn."""

    @property
    def membership(self) -> npt.NDArray[np.int64]:
        """1 for the members, which come first, 0 for the others."""
        return np.repeat([1, 0], [len(self.members), len(self.others)])


def candidates(evaluation: Evaluation) -> Candidates:
    """Those of the dataset; the same for all its releases, so that attacks can be compared."""
    return evaluation.reference("membership/candidates", lambda rng: _drawn(evaluation, rng))


def candidate_points(evaluation: Evaluation) -> Array:
    """Encoded records of the candidates, members first."""
    chosen = candidates(evaluation)
    dataset = evaluation.dataset
    members = split_points(evaluation, dataset.train)[chosen.members]
    others = split_points(evaluation, dataset.control)[chosen.others]
    return np.concatenate([members, others])


def split_points(evaluation: Evaluation, split: Split) -> Array:
    """Encoded records of a split, label included."""
    return _neighbours.points(evaluation.dataset.encoder, split.rows.values, split.rows.labels)


def released_points(evaluation: Evaluation) -> Array:
    """Encoded records of the release, as published: fractional values, every row whatever its
    weight, because an attacker reads them all."""
    rows = evaluation.rows
    return evaluation.shared(
        "membership/released",
        lambda: _neighbours.points(evaluation.dataset.encoder, rows.values, rows.labels),
    )


def refuse_hours(queries: int, released: npt.NDArray[np.generic], width: int = 0) -> None:
    """Exact distances only: where they would take hours, the scores are absent and say so."""
    comparisons = queries * len(released) * (width or released.shape[1])
    if comparisons > COMPARISONS_AT_MOST:
        raise NotComputable(
            f"{queries:,} real and {len(released):,} released rows are {comparisons:.2g} "
            f"comparisons, over {COMPARISONS_AT_MOST:.2g}; distances are exact or absent, never "
            "of a sample"
        )


def _drawn(evaluation: Evaluation, rng: np.random.Generator) -> Candidates:
    dataset = evaluation.dataset
    train_once, control_once = occurring_once(
        real_records(evaluation, "train", dataset.train),
        real_records(evaluation, "control", dataset.control),
    )
    members: list[Places] = []
    others: list[Places] = []
    for label in range(len(dataset.schema.classes)):
        inside = np.flatnonzero(train_once & (dataset.train.rows.labels == label))
        outside = np.flatnonzero(control_once & (dataset.control.rows.labels == label))
        size = min(len(inside), len(outside))
        members.append(rng.choice(inside, size, replace=False))
        others.append(rng.choice(outside, size, replace=False))
    chosen = Candidates(
        np.sort(np.concatenate(members)),
        np.sort(np.concatenate(others)),
        np.flatnonzero(train_once),
    )
    if len(chosen.members) < LEAST:
        raise NotComputable(
            f"{len(chosen.members)} training and as many control rows of the same classes occur "
            f"only once in the two; a membership attack needs at least {LEAST} of each"
        )
    return chosen
