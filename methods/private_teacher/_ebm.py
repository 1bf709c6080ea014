"""The private explainable boosting machine of interpret-core as a teacher, through `delegate`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from bench import Encoder, Floats, NotApplicable, PlannedEvents, PrivateData
from bench.methods.private_teacher._kinds import Array, ScoreTeacher
from bench.privacy.trusted.ebm import FittedEbm, feature_columns, gaussians

MECHANISM = "interpret-dp-ebm"


@final
@dataclass(frozen=True)
class EbmSetting:
    """The library's defaults."""

    rounds: int = 300
    learning_rate: float = 0.01
    bins: int = 32
    leaves: int = 3
    binning_share: float = 0.1
    """Of its squared sensitivity: bins need little, as in the library."""


@final
@dataclass(frozen=True)
class EbmTeacher(ScoreTeacher):
    """A fitted machine, asked about encoded rows."""

    encoder: Encoder
    model: FittedEbm

    def scores(self, values: Floats) -> Array:
        odds = self.model.log_odds(feature_columns(self.encoder, values))
        return np.column_stack([np.zeros(len(odds)), odds])


def ebm_parameters(
    private: PrivateData, noise: float, setting: EbmSetting
) -> dict[str, int | float]:
    """A call that costs one Gaussian mechanism of multiplier `noise`.

    k counts with the multiplier noise sqrt(k / share), and k rounds sums with
    noise sqrt(k rounds / (1 - share)): sum of 1 / multiplier^2 = 1 / noise^2.
    """
    features = len(private.schema.features)
    share = setting.binning_share
    return {
        "features": features,
        "rounds": setting.rounds,
        "binning": noise * math.sqrt(features / share),
        "boosting": noise * math.sqrt(features * setting.rounds / (1.0 - share)),
        "learning_rate": setting.learning_rate,
        "bins": setting.bins,
        "leaves": setting.leaves,
        "declared": private.counts.total,
    }


def ebm_plan(private: PrivateData, noise: float, setting: EbmSetting) -> PlannedEvents:
    """What `fit_ebm` will be charged."""
    return private.plan(gaussians(ebm_parameters(private, noise, setting)))


def fit_ebm(private: PrivateData, noise: float, setting: EbmSetting) -> EbmTeacher:
    """Fit through the harness's table of trusted mechanisms."""
    if len(private.schema.classes) != 2:
        raise NotApplicable(
            "the private boosting machine of interpret-core knows two classes only; the teachers "
            "`additive`, `naive-bayes` and `counts` know more"
        )
    model = private.delegate(MECHANISM, **ebm_parameters(private, noise, setting))
    assert isinstance(model, FittedEbm)
    return EbmTeacher(private.encoder, model)
