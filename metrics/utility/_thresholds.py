"""Where a score becomes a decision, and the rates of the decisions.

The operating point is the usual one of a screening test: fix the sensitivity, see what it costs.
The threshold is chosen on the real validation rows. That is the evaluator's look at private rows:
it never reaches a method or a release, and the rates are then taken on test rows that the choice
did not see.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from bench import NotComputable
from bench.metrics._shared.statistics import Statistic, average, share

SENSITIVITY = 0.85
"""Of the validation rows, that the threshold must reach."""


def threshold(
    labels: npt.ArrayLike, scores: npt.ArrayLike, sensitivity: float = SENSITIVITY
) -> float:
    """The largest threshold that finds at least this share of the positives.

    A row is positive when its score is at least the threshold, so the threshold is the k-th
    largest score of a positive, where k is the smallest whole number of at least sensitivity x
    positives. Tied scores may make the sensitivity higher than asked for.
    """
    if not 0.0 < sensitivity <= 1.0:
        raise ValueError(f"a sensitivity lies above 0 and is at most 1, got {sensitivity}")
    positive = np.sort(np.asarray(scores, dtype=np.float64)[np.asarray(labels) == 1])[::-1]
    if not len(positive):
        raise NotComputable("the validation rows hold no positive: no threshold can be chosen")
    # 0.07 x 100 is a little more than 7 in floating point.
    needed = math.ceil(sensitivity * len(positive) - 1e-9)
    return float(positive[needed - 1])


def prevalence_threshold(scores: npt.ArrayLike, share: float) -> float:
    """The smallest threshold above which at most this share of the rows scores.

    A row is positive when its score is above it: of tied scores none, if not all fit. No label is
    looked at.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a share of positives lies in 0 to 1, got {share}")
    ordered = np.sort(np.asarray(scores, dtype=np.float64))[::-1]
    if not len(ordered):
        raise NotComputable("there are no validation rows: no threshold can be chosen")
    fitting = math.floor(share * len(ordered) + 1e-9)
    return float(ordered[fitting]) if fitting < len(ordered) else -math.inf


def rates(labels: npt.ArrayLike, decided: npt.ArrayLike) -> dict[str, Statistic]:
    """Of yes-or-no decisions about two classes; each is a share of weights.

    F1 is the harmonic mean of PPV and sensitivity: 2 TP / (positives + decided positives).
    """
    positive, yes = np.asarray(labels) == 1, np.asarray(decided, dtype=bool)
    return {
        "sensitivity": share(positive & yes, positive),
        "specificity": share(~positive & ~yes, ~positive),
        "ppv": share(positive & yes, yes),
        "npv": share(~positive & ~yes, ~yes),
        "f1": _f1(positive, yes),
    }


def macro_f1(labels: npt.ArrayLike, decided: npt.ArrayLike, classes: int) -> Statistic:
    """Mean over classes of the F1 of that class against all others."""
    codes, chosen = np.asarray(labels), np.asarray(decided)
    return average([_f1(codes == code, chosen == code) for code in range(classes)])


def _f1(positive: npt.NDArray[np.bool_], yes: npt.NDArray[np.bool_]) -> Statistic:
    return share(2 * (positive & yes), positive.astype(np.intp) + yes)
