"""Do released rows break the rules that clinicians declared for the dataset?"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Direction, Evaluation, Family, Metric, NotComputable, Output, Rule, Schema, Scores
from bench.metrics._shared.intervals import clopper_pearson
from bench.metrics.fidelity._pooled import decoded_train


@final
class ClinicalConsistency(Metric):
    """Released rows that cannot be, such as a husband who never married."""

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
        "section 3.7), every row counted once and without its weight: a reader sees rows. Rules "
        "are read on decoded rows; each rule's share stands in the details."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        schema = evaluation.dataset.schema
        if not schema.rules:
            raise NotComputable("the dataset declares no consistency rules")
        released, real = evaluation.decoded, decoded_train(evaluation)
        if not len(real):
            raise NotComputable("the dataset has no training rows")
        # A release does not hold the site of a row.
        judged = [rule for rule in schema.rules if _names(rule, schema) <= set(released.columns)]
        if not judged:
            raise NotComputable("every rule needs a column that releases do not hold")
        broken, real_broken = _broken(judged, released), _broken(judged, real)
        count, rows = int(broken.any(axis=1).sum()), len(released)
        expected = float(real_broken.any(axis=1).mean())
        low, high = clopper_pearson(count, rows)
        scores = (
            self.score("consistency/broken", count / rows, low, high),
            self.score(
                "consistency/excess", count / rows - expected, low - expected, high - expected
            ),
        )
        table = pd.DataFrame(
            {
                "rule": [rule.name for rule in judged],
                "released": broken.mean(axis=0),
                "real": real_broken.mean(axis=0),
            }
        )
        intervals = [clopper_pearson(int(times), rows) for times in broken.sum(axis=0)]
        table = table.assign(
            low=[low for low, _ in intervals], high=[high for _, high in intervals]
        )
        return Scores(scores, {"consistency": table})


def _broken(rules: list[Rule], frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """(rows, rules): True where the row breaks the rule."""
    return np.column_stack([rule.broken(frame) for rule in rules])


def _names(rule: Rule, schema: Schema) -> set[str]:
    """The columns that a rule speaks about."""
    declared = {column.name for column in schema}
    sides = {name for part in (rule.then, *rule.when) for name in (part.left, part.right)}
    return sides & declared
