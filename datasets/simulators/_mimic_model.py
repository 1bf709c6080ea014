"""A model of adults in intensive care and their death in hospital, in place of MIMIC-III.

The variables are the 17 of the MIMIC-III benchmark (H. Harutyunyan et al., Scientific Data 6:96,
2019), each as one number for the first 48 hours (mean; the lowest for the coma scale), and age and
gender, which the benchmark leaves out, because attacks need quasi-identifiers. Scores are normal
with CORRELATIONS and become measurements by Johnson's bounded transform; medians are near the
normal values that the benchmark imputes. Diastolic pressure and pulse pressure make the other
pressures, and three thresholded scores the coma scale.

Death follows a logistic model of the *reported* values, so that `log_odds` is exact for the table
that a user sees:

    log p / (1 - p) = INTERCEPT + sum over TERMS of slope * term(x).

Directions are those that severity scores agree on (APACHE II, SAPS II): older, faster breathing and
heart, low pressure, low saturation for much oxygen, cold or hot, acid, unconscious, badly perfused.
The benchmark reports a mortality of 13.23% (of 21,139 stays) and AUROCs of 0.85 (logistic
regression) to 0.87; the federated distillation paper, which states no mortality and takes 42,000
stays, an AUC of 0.91 without noise (its table 5). The slopes put the best AUROC between the two.
Its accuracies of 76% to 83% are below the 87% of predicting survival for everybody at this
mortality, so that they cannot be compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import auroc_with_error
from bench.datasets.simulators._simulation import (
    Array,
    Labels,
    Measurement,
    correlated_scores,
    correlation_matrix,
    with_counts,
)

FULL_ROWS: int = 21_139
DEATH_SHARE: float = 2_797 / 21_139
MINIMUM_ROWS: int = 200
TARGET_COLUMN = "hospital_expire_flag"
GENDERS: tuple[str, str] = ("F", "M")
MALE_SHARE: float = 0.56

MEASUREMENTS: tuple[Measurement, ...] = (
    Measurement("admission_age", 18, 90, 0, 66, 78),
    Measurement("heartrate_mean", 20, 250, 1, 86, 97),
    Measurement("diasbp_mean", 10, 200, 1, 60, 67),
    Measurement("pulse_pressure", 10, 180, 1, 58, 69),
    Measurement("resprate_mean", 2, 70, 1, 18.8, 21.6),
    Measurement("tempc_mean", 25, 43, 2, 36.9, 37.3),
    Measurement("spo2_mean", 50, 100, 1, 97.3, 98.5),
    Measurement("fio2_mean", 0.21, 1, 2, 0.40, 0.52),
    Measurement("glucose_mean", 20, 1000, 1, 128, 156),
    Measurement("ph_mean", 6.5, 8, 2, 7.38, 7.42),
    Measurement("height", 100, 230, 0, 169, 176),
    Measurement("weight", 25, 350, 1, 79, 94),
)
BOUNDS: Mapping[str, tuple[float, float]] = {
    **{one.name: (one.low, one.high) for one in MEASUREMENTS if one.name != "pulse_pressure"},
    "sysbp_mean": (20, 380),
    "meanbp_mean": (13, 260),
}
MALE_SHIFTS: Mapping[str, float] = {
    "admission_age": -0.15,
    "height": 1.3,
    "weight": 0.7,
    "diasbp_mean": 0.15,
}
COMA_PARTS: Mapping[str, tuple[float, ...]] = {
    "gcseyes": (-0.95, -0.70, -0.25),
    "gcsverbal": (-0.45, -0.40, -0.33, 0.10),
    "gcsmotor": (-1.30, -1.22, -1.15, -0.95, -0.70),
}
"""Cuts between 1, 2, ... on the score of consciousness; no verbal response with a tube in place."""
COMA_PART_NOISE: float = 0.35
REFILL_CUT: float = 1.75
SCORES: tuple[str, ...] = (*(one.name for one in MEASUREMENTS), "consciousness", "refill")

CORRELATIONS: Mapping[tuple[str, str], float] = {
    ("admission_age", "heartrate_mean"): -0.22,
    ("admission_age", "diasbp_mean"): -0.25,
    ("admission_age", "pulse_pressure"): 0.28,
    ("admission_age", "tempc_mean"): -0.18,
    ("admission_age", "weight"): -0.18,
    ("heartrate_mean", "diasbp_mean"): 0.15,
    ("heartrate_mean", "pulse_pressure"): -0.15,
    ("heartrate_mean", "resprate_mean"): 0.32,
    ("heartrate_mean", "tempc_mean"): 0.32,
    ("heartrate_mean", "ph_mean"): -0.05,
    ("heartrate_mean", "refill"): 0.12,
    ("diasbp_mean", "pulse_pressure"): 0.12,
    ("diasbp_mean", "refill"): -0.15,
    ("pulse_pressure", "refill"): -0.12,
    ("resprate_mean", "tempc_mean"): 0.12,
    ("resprate_mean", "spo2_mean"): -0.22,
    ("resprate_mean", "fio2_mean"): 0.15,
    ("spo2_mean", "fio2_mean"): -0.15,
    ("spo2_mean", "ph_mean"): 0.10,
    ("fio2_mean", "ph_mean"): -0.22,
    ("fio2_mean", "consciousness"): -0.35,
    ("fio2_mean", "weight"): 0.08,
    ("fio2_mean", "refill"): 0.12,
    ("glucose_mean", "ph_mean"): -0.10,
    ("glucose_mean", "weight"): 0.12,
    ("ph_mean", "refill"): -0.15,
    ("consciousness", "tempc_mean"): -0.05,
    ("consciousness", "refill"): -0.12,
    ("height", "weight"): 0.35,
}

SLOPES: Mapping[str, float] = {
    "age above 65, years": 0.047,
    "heart rate above 86": 0.028,
    "respiratory rate above 19": 0.14,
    "mean pressure below 70": 0.12,
    "saturation below 97": 0.19,
    "inspired oxygen above 0.4": 4.2,
    "degrees from 37": 0.9,
    "acidity below 7.4, tenths": 0.95,
    "glucose above 130, tens": 0.06,
    "coma scale points lost": 0.22,
    "slow capillary refill": 1.1,
    "weight below 80, tens": 0.12,
    "coma and acidity": 0.08,
}
# `solve_intercept` and `bayes_auroc` with a million rows give these; a test repeats it.
INTERCEPT: float = -5.742
BAYES_AUROC: float = 0.8902
BAYES_AUROC_ERROR: float = 0.0005


def class_counts(rows: int) -> tuple[int, int]:
    """Survivors and deaths of a table of `rows` rows: constants, not draws."""
    deaths = round(rows * DEATH_SHARE)
    return rows - deaths, deaths


def simulate(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw a table with exactly `class_counts(rows)`; rows come in random order."""

    def draw(count: int) -> tuple[pd.DataFrame, Labels]:
        frame = stays(count, rng)
        deaths = (rng.random(count) < 1.0 / (1.0 + np.exp(-log_odds(frame)))).astype(np.int64)
        frame[TARGET_COLUMN] = deaths
        return frame, deaths

    return with_counts(class_counts(rows), draw, rng)


def stays(count: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw stays without their outcome."""
    male = rng.random(count) < MALE_SHARE
    scores = correlated_scores(count, correlation_matrix(SCORES, CORRELATIONS), rng)
    values: dict[str, Array] = {}
    for position, one in enumerate(MEASUREMENTS):
        shift = MALE_SHIFTS.get(one.name, 0.0)
        middle = np.where(male, (1.0 - MALE_SHARE) * shift, -MALE_SHARE * shift)
        values[one.name] = one.report(middle + scores[:, position])
    pulse = values.pop("pulse_pressure")
    values["sysbp_mean"] = np.round(values["diasbp_mean"] + pulse, 1)
    # The mean lies a third of the way up; where exactly differs with the shape of the pulse.
    rise = pulse * np.clip(0.34 + 0.03 * rng.standard_normal(count), 0.25, 0.45)
    values["meanbp_mean"] = np.round(values["diasbp_mean"] + rise, 1)
    consciousness = scores[:, SCORES.index("consciousness")]
    total = np.zeros(count)
    for name, cuts in COMA_PARTS.items():
        response = consciousness + COMA_PART_NOISE * rng.standard_normal(count)
        values[name] = 1.0 + np.searchsorted(np.array(cuts), response).astype(np.float64)
        total += values[name]
    values["mingcs"] = total
    slow = scores[:, SCORES.index("refill")] > REFILL_CUT
    frame = pd.DataFrame(values)
    frame["capillary_refill"] = pd.Categorical.from_codes(
        slow.astype(np.int8), categories=pd.Index(["normal", "slow"])
    )
    frame["gender"] = pd.Categorical.from_codes(male.astype(np.int8), categories=pd.Index(GENDERS))
    return frame


def log_odds(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    """True log-odds of death in hospital for each row."""
    total = np.full(len(frame), INTERCEPT)
    for name, values in terms(frame).items():
        total += SLOPES[name] * values
    return total


def terms(frame: pd.DataFrame) -> dict[str, Array]:
    """Return the functions of the reported values that the log-odds are linear in."""

    def column(name: str) -> Array:
        return frame[name].to_numpy(dtype=np.float64)

    lost = 15.0 - column("mingcs")
    acidity = np.maximum(7.4 - column("ph_mean"), 0.0) / 0.1
    return {
        "age above 65, years": column("admission_age") - 65.0,
        "heart rate above 86": np.maximum(column("heartrate_mean") - 86.0, 0.0),
        "respiratory rate above 19": np.maximum(column("resprate_mean") - 19.0, 0.0),
        "mean pressure below 70": np.maximum(70.0 - column("meanbp_mean"), 0.0),
        "saturation below 97": np.maximum(97.0 - column("spo2_mean"), 0.0),
        "inspired oxygen above 0.4": np.maximum(column("fio2_mean") - 0.4, 0.0),
        "degrees from 37": np.abs(column("tempc_mean") - 37.0),
        "acidity below 7.4, tenths": acidity,
        "glucose above 130, tens": np.maximum(column("glucose_mean") - 130.0, 0.0) / 10.0,
        "coma scale points lost": lost,
        "slow capillary refill": (frame["capillary_refill"] == "slow").to_numpy(dtype=np.float64),
        "weight below 80, tens": np.maximum(80.0 - column("weight"), 0.0) / 10.0,
        "coma and acidity": lost * acidity,
    }


def bayes_auroc(rows: int, rng: np.random.Generator) -> tuple[float, float]:
    """Monte Carlo estimate of the best AUROC any classifier can reach, and its standard error."""
    frame = simulate(rows, rng)
    odds, died = log_odds(frame), frame[TARGET_COLUMN].to_numpy() == 1
    return auroc_with_error(odds[~died], odds[died])


def solve_intercept(frame: pd.DataFrame) -> float:
    """Return the intercept at which DEATH_SHARE of these patients are expected to die."""
    from scipy.optimize import brentq

    rest = log_odds(frame) - INTERCEPT

    def surplus(intercept: float) -> float:
        return float((1.0 / (1.0 + np.exp(-(rest + intercept)))).mean()) - DEATH_SHARE

    return float(brentq(surplus, -20.0, 5.0))
