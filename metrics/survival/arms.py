"""Does a released trial show the same difference between its arms as the real one?"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import (
    Categorical,
    Direction,
    Encoder,
    Evaluation,
    Family,
    Floats,
    Metric,
    NotComputable,
    Output,
    Score,
    Scores,
    Task,
)
from bench.metrics._shared.downstream_models import Examples
from bench.metrics.survival import _curves, _survival_models


@final
class Arms(Metric):
    """The log-rank test between the arms of a trial, on released and on real rows."""

    name: ClassVar[str] = "arms"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "arms/log-rank-p",
            Direction.NEUTRAL,
            "p-value between the arms of the released rows. To be close to that of the real rows; "
            "depends on the number of rows. No interval.",
        ),
        Output(
            "arms/log-rank-p-real",
            Direction.NEUTRAL,
            "p-value between the arms of the real training rows. No interval.",
        ),
        Output(
            "arms/excess",
            Direction.NEUTRAL,
            "Events of the first arm beyond those expected if arms made no difference, as a share "
            "of these, in the released rows. No interval.",
        ),
        Output("arms/excess-real", Direction.NEUTRAL, "The same in the real training rows."),
    )
    definition: ClassVar[str] = (
        "Log-rank test between the first arm of a trial and all others (fidelity paper, section "
        "5.2.1 and figure 13a: the p-values of real and of released rows are similar), where the "
        "dataset declares a column of arms. Released rows are weighted to the real shares of "
        "events and censored rows, times their own weights; variance by Lin and Wei within arm. "
        "Without weights the statistic is the classical one; where arms do not differ the p-value "
        "is, too, and where they do it is larger, since the classical variance holds for equal "
        "arms only. The metric `km` tests something else: released rows against real ones."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)

    def compute(self, evaluation: Evaluation) -> Scores:
        arm = evaluation.dataset.declaration.arm
        if not arm:
            raise NotComputable("the dataset declares no column of arms")
        encoder = evaluation.dataset.encoder
        released = _survival_models.population_examples(evaluation)
        real = _survival_models.real_examples(evaluation)
        scores: list[Score] = []
        for suffix, examples, weights in (
            ("", released, np.asarray(released.weights, dtype=np.float64)),
            ("-real", real, np.ones(len(real.labels))),
        ):
            names = (f"arms/log-rank-p{suffix}", f"arms/excess{suffix}")
            try:
                values = _compared(encoder, arm, examples, weights)
            except NotComputable as problem:
                scores += [self.absent(name, str(problem)) for name in names]
                continue
            scores += [self.score(name, value) for name, value in zip(names, values, strict=True)]
        return Scores(tuple(scores))


def _compared(
    encoder: Encoder, arm: str, examples: Examples, weights: npt.NDArray[np.float64]
) -> tuple[float, float]:
    """Return the p-value, and the excess of events in the first arm over those expected."""
    first = in_first_category(encoder, arm, examples.features)
    if first.all() or not first.any():
        raise NotComputable("all rows are in one arm: there is nothing to compare")
    times, events = _survival_models.times_and_events(examples)
    excess, p_value = _curves.log_rank(times, events, first, weights, by_status=False)
    expected = float(weights[first & events].sum()) - excess
    if expected <= 0:
        raise NotComputable("no event is expected in the first arm")
    return p_value, excess / expected


def in_first_category(encoder: Encoder, name: str, features: Floats) -> npt.NDArray[np.bool_]:
    """Return which encoded rows have the first category of a column."""
    (block,) = (block for block in encoder.blocks if block.column.name == name)
    values = np.asarray(features)[:, block.slice]
    assert isinstance(block.column, Categorical)
    first = values[:, 0] < 0 if block.column.binary else values.argmax(axis=1) == 0
    return np.asarray(first, dtype=np.bool_)
