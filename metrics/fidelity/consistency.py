"""Do released rows break the consistency rules that are declared for the dataset?"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Direction, Evaluation, Family, Metric, NotComputable, Output, Rule, Schema, Scores
from bench.metrics._shared.intervals import Interval, share
from bench.metrics._shared.rows import real_training_rows


@final
class ClinicalConsistency(Metric):
    """Released rows that are impossible, such as a husband who never married."""

    name: ClassVar[str] = "consistency"
    family: ClassVar[Family] = Family.FIDELITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "consistency/broken",
            Direction.LOWER,
            "Share of released rows that break one or more rules. Interval: Clopper-Pearson.",
        ),
        Output(
            "consistency/excess",
            Direction.LOWER,
            "The same share less that among the training rows: real rows break rules too, by "
            "errors of entry or by filled-in missing values, and a faithful release does so as "
            "often. Interval: that of the share, less the share of the training rows.",
        ),
    )
    definition: ClassVar[str] = (
        "Released rows that break the dataset's declared consistency rules (fidelity paper, "
        "section 3.7), every row counted once and without its weight, as a reader does. Rules "
        "are read on decoded rows; the details list each rule's share."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        schema = evaluation.dataset.schema
        if not schema.rules:
            raise NotComputable("the dataset declares no consistency rules")
        encoder, train = evaluation.dataset.encoder, real_training_rows(evaluation)
        # Not complete tables: a missing number breaks no rule, the one that stands in for it might.
        released = encoder.decode(evaluation.rows.values, evaluation.rows.labels)
        real = encoder.decode(train.values, train.labels)
        # A release does not hold the site of a row.
        judged = [rule for rule in schema.rules if _names(rule, schema) <= set(released.columns)]
        if not judged:
            raise NotComputable("every rule needs a column that releases do not hold")
        broken, real_broken = _broken(judged, released), _broken(judged, real)
        expected = float(real_broken.any(axis=1).mean())
        any_broken = share(broken.any(axis=1))
        excess = Interval(
            any_broken.value - expected, any_broken.low - expected, any_broken.high - expected
        )
        scores = (
            any_broken.score(self, "consistency/broken"),
            excess.score(self, "consistency/excess"),
        )
        by_rule = [share(column) for column in broken.T]
        table = pd.DataFrame(
            {
                "rule": [rule.name for rule in judged],
                "released": broken.mean(axis=0),
                "real": real_broken.mean(axis=0),
                "low": [rule.low for rule in by_rule],
                "high": [rule.high for rule in by_rule],
            }
        )
        return Scores(scores, {"consistency": table})


def _broken(rules: list[Rule], frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """(rows, rules): True where the row breaks the rule."""
    return np.column_stack([rule.broken(frame) for rule in rules])


def _names(rule: Rule, schema: Schema) -> set[str]:
    """The columns that a rule names."""
    declared = {column.name for column in schema}
    sides = {name for part in (rule.then, *rule.when) for name in (part.left, part.right)}
    return sides & declared
