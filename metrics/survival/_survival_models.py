"""Survival probabilities by models trained on released rows, and on real rows.

Ranking patients (C-index, time-dependent AUC) uses the models as they are trained on the rows as
released. Whatever describes absolute survival or the population (Brier score, predicted
curves, hazard ratios) trains on rows weighted to the real shares of events and censored rows,
times the release's own weights: a release of half events would otherwise be blamed for a death
rate that nobody claimed. For a release with the real shares both are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from bench import Categorical, Encoder, Evaluation, Floats, NotComputable
from bench.metrics._shared import downstream_models
from bench.metrics._shared.downstream_models import Examples
from bench.metrics._shared.rows import real_test_rows, real_training_rows
from bench.metrics.survival import _curves
from bench.metrics.survival._cox import CoxFit, fit_weighted_cox
from bench.metrics.survival._curves import Array, Flags, StepFunction

MODELS = ("cox", "aft")


class SurvivalModel(ABC):
    """Predicts the probability of no event up to given times."""

    @abstractmethod
    def at(self, features: Floats, times: Array) -> Array:
        """(rows, times) probabilities."""


@final
@dataclass(frozen=True)
class CoxSurvival(SurvivalModel):
    """S(t | x) = exp(-H(t) exp(b'x)), H by Breslow from the rows that b was fitted to."""

    coefficients: Array
    mean_log_risk: float
    baseline: StepFunction

    def at(self, features: Floats, times: Array) -> Array:
        log_risks = np.asarray(features, dtype=np.float64) @ self.coefficients - self.mean_log_risk
        with np.errstate(over="ignore"):
            hazards = np.exp(log_risks)[:, None] * self.baseline.at(times)
        # 0 times infinity: nobody had the event yet, however high the risk.
        return np.exp(-np.where(self.baseline.at(times) == 0, 0.0, hazards))


@final
@dataclass(frozen=True)
class AftSurvival(SurvivalModel):
    """S(t | x) = 1 - Phi(log(t / s) - m(x)): log times are normal around m with scale 1.

    s is the scale of equation 1 of the zero-order paper, by which times were divided in training.
    """

    model: downstream_models.TreeSurvival
    scale: float
    shortest: float

    def at(self, features: Floats, times: Array) -> Array:
        from scipy.stats import norm

        log_times = np.log(np.maximum(times, self.shortest) / self.scale)
        result: Array = norm.sf(log_times[None, :] + self.model.predict(features)[:, None])
        return result


def population_examples(evaluation: Evaluation) -> Examples:
    """The released rows, weighted to the real shares of events and censored rows."""

    def build() -> Examples:
        examples = downstream_models.released_examples(evaluation)
        real = evaluation.dataset.training_class_counts
        weights = _curves.population_weights(examples.labels, examples.weights, real)
        kept = weights > 0  # rows of a status that no training row has count for nothing
        weighted = replace(examples, weights=weights / weights[kept].mean(), soft_labels=None)
        return weighted.take(kept)

    return evaluation.shared("survival/examples", build)


def real_examples(evaluation: Evaluation) -> Examples:
    """The real training rows."""
    rows = real_training_rows(evaluation)
    return evaluation.reference(
        "survival/examples",
        lambda _: Examples.of(evaluation.dataset.encoder, rows.values, rows.labels),
    )


def held_out_examples(evaluation: Evaluation) -> Examples:
    """The real test rows."""
    rows = real_test_rows(evaluation)
    examples = evaluation.shared(
        "examples/test",
        lambda: Examples.of(evaluation.dataset.encoder, rows.values, rows.labels),
    )
    if examples.times is None:
        raise NotComputable("the dataset has no time column")
    return examples


def times_and_events(examples: Examples) -> tuple[Array, Flags]:
    """Times and events of rows; rows without time or event are refused."""
    return examples.survival_times(), np.asarray(examples.labels) == 1


def released_cox(evaluation: Evaluation) -> CoxFit:
    """Penalised Cox model of the released rows, weighted to the real shares."""
    return evaluation.shared("survival/cox", lambda: _penalised(population_examples(evaluation)))


def real_cox(evaluation: Evaluation) -> CoxFit:
    """The same of the real training rows."""
    return evaluation.reference("survival/cox", lambda _: _penalised(real_examples(evaluation)))


def released_survival(evaluation: Evaluation, model: str) -> SurvivalModel:
    """A model trained on the released rows, weighted to the real shares."""
    if evaluation.predictor is not None:
        raise NotComputable("the released model gives a risk only, no survival probabilities")

    def build() -> SurvivalModel:
        examples = population_examples(evaluation)
        if model == "cox":
            return _cox_survival(examples, released_cox(evaluation))
        # The same seed as the model of the C-index: with real shares it is the same model.
        return _aft_survival(evaluation, examples, evaluation.generator("model/xgboost-aft"))

    return evaluation.shared(("survival", model), build)


def real_survival(evaluation: Evaluation, model: str) -> SurvivalModel:
    """The same model trained on the real training rows."""

    def build(rng: np.random.Generator) -> SurvivalModel:
        examples = real_examples(evaluation)
        if model == "cox":
            return _cox_survival(examples, real_cox(evaluation))
        return _aft_survival(evaluation, examples, rng)

    return evaluation.reference(f"survival/{model}/curve", build)


def real_trees(evaluation: Evaluation) -> downstream_models.TreeSurvival:
    """XGBoost-AFT trained on the real training rows."""
    survival = real_survival(evaluation, "aft")
    if not isinstance(survival, AftSurvival):  # pragma: no cover
        raise TypeError("the trees of the real rows are no AFT model")
    return survival.model


def readable(encoder: Encoder, features: Floats) -> Array:
    """Features as they read after decoding: numbers within bounds, one category in each block."""
    values = np.clip(np.asarray(features, dtype=np.float64), -1.0, 1.0)
    for block in encoder.blocks:
        column = block.column
        if not isinstance(column, Categorical):
            continue
        if column.binary:
            values[:, block.start] = np.where(values[:, block.start] >= 0, 1.0, -1.0)
        else:
            chosen = np.argmax(np.asarray(features)[:, block.slice], axis=1)
            values[:, block.slice] = np.arange(block.stop - block.start) == chosen[:, None]
    return values


def _penalised(examples: Examples) -> CoxFit:
    times, events = times_and_events(examples)
    return fit_weighted_cox(
        examples.features, times, events, examples.weights, downstream_models.COX_PENALTY
    )


def _cox_survival(examples: Examples, fit: CoxFit) -> CoxSurvival:
    times, events = times_and_events(examples)
    log_risks = np.asarray(examples.features, dtype=np.float64) @ fit.coefficients
    mean = float(log_risks.mean())
    baseline = _curves.breslow(times, events, examples.weights, log_risks - mean)
    return CoxSurvival(fit.coefficients, mean, baseline)


def _aft_survival(
    evaluation: Evaluation, examples: Examples, rng: np.random.Generator
) -> AftSurvival:
    time = evaluation.dataset.schema.time
    longest = 0.0 if time is None else time.high
    model = downstream_models.fit_tree_survival(examples, longest, rng, evaluation.threads)
    times, events = times_and_events(examples)
    shortest = downstream_models.SHORTEST_TIME * longest
    scale = downstream_models.time_scale(np.maximum(times, shortest)[events])
    return AftSurvival(model, scale, shortest)
