"""The density-ratio attack: is a record likelier under the release than in the population?

DOMIAS (van Breugel et al., 2023, "Membership Inference Attacks against Synthetic Data through
Overfitting Detection") scores a record x by p_S(x) / p_R(x): the density of the release over that
of the population, which the attacker knows from reference rows. A record of a dense region is close
to every release; the ratio asks for more.

Densities come from nearest neighbours in encoded space, p(x) ~ 1 / distance^width: for the release
the nearest row, because what gives a member away is the one row that was made from it, and for the
population the mean distance to the 5 nearest reference rows. Up to the common power the score is

    log mean_5 d(x, R) - log d_1(x, S).

The estimator is not the paper's (kernels and normalising flows; flows were not tried). With all
training rows released, Gaussian kernels on 10 principal components reach an AUROC of 0.70 on
breast-cancer and 0.50 on Adult, boosted trees between release and reference rows 0.68 and 0.53,
these neighbours 1.00 on both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Evaluation, NotComputable
from bench.metrics._shared import neighbours as _neighbours
from bench.metrics.privacy.membership import _candidates

Array = npt.NDArray[np.float64]

REFERENCE_NEIGHBOURS = 5

SHORTEST = 1e-6
"""In encoded units. Shorter distances are rounding: they count as it."""


@final
@dataclass(frozen=True)
class Ratios:
    """Log density ratios, up to a factor, of every record that may be judged."""

    members: Array
    """Of all members that occur once, in the order of the training table."""
    others: Array


def density_ratios(evaluation: Evaluation) -> Ratios:
    """Scores of members and non-members; the reference rows are the validation rows.

    They are neither members nor judged. A method that stops or tunes on validation rows makes the
    release likelier there and this attack a little weaker, but favours no judged row.
    """
    chosen = _candidates.candidates(evaluation)
    dataset = evaluation.dataset
    if len(dataset.validation) < REFERENCE_NEIGHBOURS:
        raise NotComputable(
            f"{len(dataset.validation)} validation rows: the density of the population needs at "
            f"least {REFERENCE_NEIGHBOURS}"
        )
    queries = np.concatenate(
        [
            _candidates.split_points(evaluation, dataset.train)[chosen.all_members],
            _candidates.split_points(evaluation, dataset.control)[chosen.others],
        ]
    )
    population = evaluation.reference(
        "membership/population-distances",
        lambda _: _neighbours.euclidean(
            queries,
            _candidates.split_points(evaluation, dataset.validation),
            REFERENCE_NEIGHBOURS,
            evaluation.threads,
        ).mean(axis=1),
    )
    released = _candidates.released_points(evaluation)
    closest = _neighbours.euclidean(queries, released, 1, evaluation.threads)[:, 0]
    scores = np.log(np.maximum(population, SHORTEST)) - np.log(np.maximum(closest, SHORTEST))
    return Ratios(*np.split(scores, [len(chosen.all_members)]))
