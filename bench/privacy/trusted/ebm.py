"""The private explainable boosting machine of interpret-core 0.7.8, called so that it is private.

Nori et al. 2021 (Accuracy, Interpretability, and Differential Privacy via Explainable Boosting):
two classes, one step function per feature, fitted by cyclic boosting on noisy sums. Add/remove of a
row, k features, weights 1:

* binning: the counts of each feature's bins are disjoint, so that one row moves one of them by 1:
  a Gaussian mechanism of multiplier `noise_scale_binning_`, once for each feature;
* boosting: in each round and for each feature, the update of each of its random regions is
  learning_rate times the sum of gradients p - y in (-1, 1) of the rows in it. Regions are disjoint,
  so that one row moves the vector by at most learning_rate. Noise of deviation
  `noise_scale_boosting_` is added before the sum is divided by noisy counts: a Gaussian mechanism
  of multiplier noise_scale_boosting_ / learning_rate, rounds x k times. (One outer bag, no weights:
  with several bags, as many times more.)

The library sets both scales by Gaussian differential privacy, mu = sqrt(queries) / multiplier, from
(epsilon f, delta / 2) and (epsilon (1 - f), delta / 2), and adds the two: more than is needed. Here
the multipliers are given, the ledger composes them, and the library's parameters epsilon and f are
solved for. Afterwards the scales that the library used are compared with those charged.

Findings from reading the library (Python and the C++ of random splits), and what is done about
them:

* `np.unique` takes the categories of a nominal feature, and types that are not given, from the
  rows: every feature is passed as continuous with public bounds, categories as their codes.
* `np.unique(y)` takes the classes from the rows and refuses a single one: one public row of each
  class, at the lower bounds, is always added. A mechanism on D and public rows is as private on D.
* `private_numeric_binning` joins bins up to n / max_bins, the exact n: it receives the declared
  number of rows instead, the same for both neighbours.
* Splits are drawn uniformly from all edges between bins, without reading the rows. No intercept is
  fitted, no rows are held out, and there is no early stopping; the training metric that the booster
  computes is not read, and the last model is used.
* The fitted object keeps the exact number of rows (`bag_weights_`): only cuts, scores, noise scales
  and intercept are returned.
* A `random_state` is cut to a seed of 32 bits, which an attacker finds by trying all: seeded noise
  only is drawn so. `random_state=None` is a mode of its own: `Native.create_rng` returns no
  generator, and `GenerateGaussianRandom` and `GenerateTermUpdate` then draw every word from
  `std::random_device`, without modulo bias. In the library for Linux on x86-64 that reads
  /dev/urandom four bytes at a time (observed by tracing its system calls); that for Linux on ARM
  names the same file; for macOS and Windows the library's authors state /dev/urandom and the
  system's cryptographic generator. `run_secure_ebm` uses this mode under secure noise.
* Noise is a binomial number on a grid of about 2^-56 of its deviation (Google's sampler), but the
  sums of gradients that it is added to, in doubles, are not rounded to that grid: the last bits of
  the scores are not protected as the kernel's answers are.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event

from bench.data.encoder import EncodedRows, Encoder, Floats
from bench.data.schema import Categorical
from bench.errors import PrivacyContractError
from bench.privacy.events import DpEvent
from bench.privacy.rowwise import positive
from bench.privacy.third_party import silenced_output

Array = npt.NDArray[np.float64]

_DELTA = 1e-5
"""Delta passed to the library, which sets its noise scales from it; the scales are charged."""
_MORE = 1e-6
"""Share of noise requested beyond what was charged, to allow for rounding."""


@final
@dataclass(frozen=True)
class FittedEbm:
    """Released part of the model: s(x) = intercept + the sum of one step function per feature."""

    cuts: tuple[Array, ...]
    effects: tuple[Array, ...]
    """Steps of each feature: one number more than it has cuts."""
    intercept: float
    noise_scale_binning: float
    noise_scale_boosting: float

    def log_odds(self, columns: Floats) -> Array:
        """Return the log odds of the second class, from `feature_columns`."""
        total = np.full(len(columns), self.intercept)
        for number, (cuts, effects) in enumerate(zip(self.cuts, self.effects, strict=True)):
            total += effects[np.searchsorted(cuts, columns[:, number], side="right")]
        return total


def feature_columns(encoder: Encoder, values: Floats) -> Array:
    """Return (rows, features): one number per feature; categories by their codes."""
    blocks = encoder.feature_blocks
    columns = np.empty((len(values), len(blocks)))
    for number, block in enumerate(blocks):
        encoded = values[:, block.slice]
        wide = encoded.shape[1] > 1
        columns[:, number] = np.argmax(encoded, axis=1) if wide else encoded[:, 0]
    return columns


def feature_bounds(encoder: Encoder) -> Array:
    """Return (features, 2): each public range; codes are the middles of cells of width 1."""
    blocks = encoder.feature_blocks
    wide = [isinstance(block.column, Categorical) and not block.column.binary for block in blocks]
    return np.array(
        [
            (-0.5, block.stop - block.start - 0.5) if codes else (-1.0, 1.0)
            for block, codes in zip(blocks, wide, strict=True)
        ]
    )


def gaussians(parameters: Mapping[str, Any]) -> DpEvent:
    """Return the events of a call: `features`, `rounds`, multipliers `binning`, `boosting`."""
    features, rounds = int(parameters["features"]), int(parameters["rounds"])
    binning, boosting = positive(parameters["binning"]), positive(parameters["boosting"])
    return dp_event.ComposedDpEvent(
        [
            dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(binning), features),
            dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(boosting), features * rounds),
        ]
    )


def run_ebm(
    rows: EncodedRows,
    encoder: Encoder,
    generator: np.random.Generator,
    parameters: Mapping[str, Any],
) -> FittedEbm:
    """Fit the model with seeded noise. Parameters beside those of `gaussians`: `learning_rate`,
    `bins`, `leaves`, `declared` (the public number of rows)."""
    return _fit(rows, encoder, int(generator.integers(2**31)), parameters)


def run_secure_ebm(rows: EncodedRows, encoder: Encoder, parameters: Mapping[str, Any]) -> FittedEbm:
    """Fit the model with noise that the library draws from the operating system's entropy."""
    return _fit(rows, encoder, None, parameters)


def _fit(
    rows: EncodedRows, encoder: Encoder, seed: int | None, parameters: Mapping[str, Any]
) -> FittedEbm:
    features, rounds = int(parameters["features"]), int(parameters["rounds"])
    rate = positive(parameters["learning_rate"])
    binning, boosting = positive(parameters["binning"]), positive(parameters["boosting"])
    bounds = feature_bounds(encoder)
    if len(encoder.schema.classes) != 2 or len(bounds) != features:
        raise PrivacyContractError(
            f"interpret-dp-ebm was charged for {features} features and two classes; the table has "
            f"{len(bounds)} and {len(encoder.schema.classes)}"
        )
    first = epsilon_of(math.sqrt(features) / (binning * (1.0 + _MORE)))
    second = epsilon_of(math.sqrt(features * rounds) / (boosting * (1.0 + _MORE)))
    table = np.concatenate([feature_columns(encoder, rows.values), np.tile(bounds[:, 0], (2, 1))])
    labels = np.concatenate([np.asarray(rows.labels, dtype=np.int64), [0, 1]])
    with silenced_output(), _declared_length(int(parameters["declared"]) + 2):
        from interpret.privacy import DPExplainableBoostingClassifier

        model = DPExplainableBoostingClassifier(
            feature_names=[f"x{number}" for number in range(features)],
            feature_types=["continuous"] * features,
            max_bins=int(parameters["bins"]),
            max_leaves=int(parameters["leaves"]),
            max_rounds=rounds,
            learning_rate=rate,
            outer_bags=1,
            validation_size=0,
            n_jobs=1,
            random_state=seed,
            epsilon=first + second,
            delta=_DELTA,
            composition="gdp",
            bin_budget_frac=first / (first + second),
            privacy_bounds=bounds,
        ).fit(table, labels)
    check_scale("binning", float(model.noise_scale_binning_), binning)
    check_scale("boosting", float(model.noise_scale_boosting_) / rate, boosting)
    # One term per feature; the first and the last score are for missing and unknown values.
    terms = {
        features_of_term[0]: scores
        for features_of_term, scores in zip(model.term_features_, model.term_scores_, strict=True)
    }
    return FittedEbm(
        tuple(np.asarray(levels[0], dtype=np.float64) for levels in model.bins_),
        tuple(np.asarray(terms[number], dtype=np.float64)[1:-1] for number in range(features)),
        float(np.ravel(model.intercept_)[0]),
        float(model.noise_scale_binning_),
        float(model.noise_scale_boosting_),
    )


def check_scale(what: str, used: float, charged: float) -> None:
    """Refuse a model whose noise is not what was charged."""
    if not charged <= used <= charged * (1.0 + 100.0 * _MORE):
        raise PrivacyContractError(
            f"interpret-dp-ebm: the noise of {what} has multiplier {used!r}, and {charged!r} was "
            "charged; the library does not set its noise as the version that was checked does"
        )


def epsilon_of(mu: float) -> float:
    """Epsilon of a mu-GDP mechanism at half of `_DELTA` (Dong, Roth and Su 2019, corollary 2.13):

    delta(epsilon) = Phi(-epsilon / mu + mu / 2) - exp(epsilon) Phi(-epsilon / mu - mu / 2).
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    def excess(epsilon: float) -> float:
        above = math.exp(log_ndtr(-epsilon / mu + mu / 2.0))
        below = math.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2.0))
        return above - below - _DELTA / 2.0

    high = mu * (mu / 2.0 + 10.0)
    if excess(0.0) <= 0.0 or high > 500.0:
        raise PrivacyContractError(
            f"interpret-dp-ebm cannot run a mechanism of mu {mu:.3g}: its noise is set through "
            "epsilon, which has no such value; use a budget between 0.001 and 30"
        )
    return float(brentq(excess, 0.0, high, xtol=1e-14, rtol=1e-14))


@contextlib.contextmanager
def _declared_length(declared: int) -> Iterator[None]:
    """Make binning use the declared number of rows instead of the true one."""
    from interpret.utils import _preprocessor

    class Declared(np.ndarray):
        """Array whose length is the declared number of rows."""

        def __len__(self) -> int:
            return declared

    original = _preprocessor.private_numeric_binning

    def binning(column: Array, *rest: Any, **named: Any) -> Any:
        return original(column.view(Declared), *rest, **named)

    _preprocessor.private_numeric_binning = binning
    try:
        yield
    finally:
        _preprocessor.private_numeric_binning = original
