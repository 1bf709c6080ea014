"""Numbers behind the CURIAL simulator: what is measured, how it varies, how the sites differ.

Everything here is public knowledge: bounds are physiological or assay limits, medians and quartiles
are those a clinical chemistry textbook gives for adults in an emergency department, and the sizes,
prevalences and discrimination of the sites come from the zero-order condensation paper (tables 1, 2
and 4). No value was computed from patient rows, which are closed.

Shifts are in units of one standard deviation of a measurement's latent score (see `_curial_model`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from bench.datasets.simulators._simulation import Measurement


@final
@dataclass(frozen=True)
class Bounds:
    """Public limits of one reported column, and why nothing lies beyond them."""

    low: float
    high: float
    unit: str
    decimals: int
    reason: str


@final
@dataclass(frozen=True)
class Phenotype:
    """A kind of patient: a Gaussian component of the latent scores within one class."""

    name: str
    covid: bool
    male_share: float


@final
@dataclass(frozen=True)
class SiteProfile:
    """One hospital trust.

    `sensitivity`, `specificity`, `positive_predictive_value` and `full_data_auroc` are the paper's
    table 2 (full data); `weights` is the case mix over PHENOTYPES (summing to 1 in each class);
    `device_cuts` are the levels of latent need at which the next delivery device is chosen.
    """

    name: str
    rows: int
    sensitivity: float
    specificity: float
    positive_predictive_value: float
    full_data_auroc: float
    weights: tuple[float, ...]
    device_cuts: tuple[float, ...]


@final
@dataclass(frozen=True)
class EffectGroup:
    """Measurements whose COVID-19 shifts are multiplied by the same gain at a site."""

    names: tuple[str, ...]
    gains: tuple[float, ...]


# Name, low, high, decimals, median and upper quartile of the minor-illness phenotype, unit, reason
# of the bounds, shift of men. The order is the order of generation: each measurement depends on
# those before it.
MEASUREMENTS: tuple[Measurement, ...] = (
    Measurement("age", 18, 105, 0, 52, 67, "years", "adult patients; oldest plausible age"),
    Measurement("temperature", 30, 43, 1, 36.6, 37.0, "degrees Celsius", "survivable range"),
    Measurement("c_reactive_protein", 0.2, 600, 1, 4.0, 13, "mg/L", "assay detection limits"),
    Measurement("heart_rate", 20, 250, 0, 84, 97, "beats/min", "survivable range"),
    Measurement("respiratory_rate", 4, 70, 0, 18, 20, "breaths/min", "survivable range"),
    Measurement("oxygen_saturation", 50, 100, 0, 97, 98, "%", "pulse oximeter range", -0.05),
    Measurement("diastolic_blood_pressure", 20, 160, 0, 76, 85, "mmHg", "cuff range", 0.1),
    Measurement("pulse_pressure", 10, 140, 0, 57, 69, "mmHg", "systolic minus diastolic"),
    Measurement("haemoglobin", 20, 220, 0, 136, 147, "g/L", "survivable range", 0.8),
    Measurement("mean_cell_volume", 50, 140, 1, 90.0, 93.8, "fL", "analyser range", 0.1),
    Measurement("neutrophil_count", 0, 100, 2, 5.1, 7.0, "10^9/L", "analyser range"),
    Measurement("lymphocyte_count", 0, 60, 2, 1.75, 2.35, "10^9/L", "analyser range", -0.1),
    Measurement("monocyte_count", 0, 20, 2, 0.58, 0.76, "10^9/L", "analyser range", 0.2),
    Measurement("eosinophil_count", 0, 10, 2, 0.12, 0.21, "10^9/L", "analyser range", 0.15),
    Measurement("basophil_count", 0, 3, 2, 0.04, 0.06, "10^9/L", "analyser range"),
    Measurement("platelets", 5, 1500, 0, 248, 302, "10^9/L", "analyser range", -0.25),
    Measurement("albumin", 8, 60, 0, 39, 42, "g/L", "assay range", 0.1),
    Measurement("alkaline_phosphatase", 10, 2000, 0, 78, 101, "IU/L", "assay range"),
    Measurement("alanine_aminotransferase", 3, 3000, 0, 19, 32, "IU/L", "assay range", 0.3),
    Measurement("bilirubin", 1, 500, 0, 9, 13, "umol/L", "assay range", 0.2),
    Measurement("creatinine", 15, 1500, 0, 75, 90, "umol/L", "assay range", 0.8),
    Measurement("urea", 0.5, 70, 1, 5.5, 7.3, "mmol/L", "assay range", 0.2),
    Measurement("sodium", 100, 180, 0, 138, 140, "mmol/L", "survivable range"),
    Measurement("potassium", 1.5, 10, 1, 4.2, 4.5, "mmol/L", "survivable range", 0.1),
)

# Quantities that shape a reported column without being reported themselves. They carry no
# information on the outcome, so they leave the likelihood ratio untouched.
MEAN_CELL_HAEMOGLOBIN = Measurement(
    "mean_cell_haemoglobin_concentration", 290, 370, 1, 330, 337, "g/L", "red cell chemistry"
)
UNCLASSIFIED_CELLS = Measurement(
    "unclassified_cell_count", 0, 7, 2, 0.05, 0.09, "10^9/L", "immature and unstained cells"
)

# Oxygen delivery devices in order of support; a latent need for oxygen is cut into these.
DEVICES: tuple[str, ...] = (
    "room air",
    "nasal cannula",
    "simple face mask",
    "reservoir mask",
    "ventilation",
)

# Correlations of latent scores within a phenotype, as clinicians expect them.
CORRELATIONS: Mapping[tuple[str, str], float] = {
    ("age", "urea"): 0.45,
    ("age", "creatinine"): 0.25,
    ("age", "haemoglobin"): -0.2,
    ("age", "pulse_pressure"): 0.35,
    ("age", "diastolic_blood_pressure"): -0.1,
    ("age", "lymphocyte_count"): -0.2,
    ("age", "albumin"): -0.3,
    ("age", "heart_rate"): -0.15,
    ("age", "oxygen_saturation"): -0.2,
    ("age", "mean_cell_volume"): 0.15,
    ("age", "device"): 0.15,
    ("temperature", "heart_rate"): 0.3,
    ("temperature", "c_reactive_protein"): 0.2,
    ("temperature", "respiratory_rate"): 0.15,
    ("c_reactive_protein", "neutrophil_count"): 0.3,
    ("c_reactive_protein", "albumin"): -0.35,
    ("c_reactive_protein", "eosinophil_count"): -0.2,
    ("c_reactive_protein", "lymphocyte_count"): -0.2,
    ("c_reactive_protein", "monocyte_count"): 0.1,
    ("c_reactive_protein", "platelets"): 0.1,
    ("c_reactive_protein", "haemoglobin"): -0.2,
    ("heart_rate", "respiratory_rate"): 0.25,
    ("heart_rate", "diastolic_blood_pressure"): 0.15,
    ("respiratory_rate", "oxygen_saturation"): -0.3,
    ("respiratory_rate", "device"): 0.35,
    ("oxygen_saturation", "device"): -0.5,
    ("diastolic_blood_pressure", "pulse_pressure"): 0.2,
    ("diastolic_blood_pressure", "haemoglobin"): 0.15,
    ("haemoglobin", "mean_cell_volume"): 0.1,
    ("haemoglobin", "albumin"): 0.3,
    ("haemoglobin", "platelets"): -0.15,
    ("haemoglobin", "creatinine"): -0.15,
    ("haemoglobin", "urea"): -0.15,
    ("neutrophil_count", "lymphocyte_count"): -0.05,
    ("neutrophil_count", "monocyte_count"): 0.4,
    ("neutrophil_count", "eosinophil_count"): -0.15,
    ("neutrophil_count", "basophil_count"): 0.1,
    ("neutrophil_count", "platelets"): 0.2,
    ("lymphocyte_count", "monocyte_count"): 0.3,
    ("lymphocyte_count", "eosinophil_count"): 0.25,
    ("lymphocyte_count", "basophil_count"): 0.35,
    ("lymphocyte_count", "platelets"): 0.15,
    ("monocyte_count", "basophil_count"): 0.25,
    ("eosinophil_count", "basophil_count"): 0.4,
    ("albumin", "alkaline_phosphatase"): -0.15,
    ("alkaline_phosphatase", "alanine_aminotransferase"): 0.3,
    ("alkaline_phosphatase", "bilirubin"): 0.25,
    ("alanine_aminotransferase", "bilirubin"): 0.25,
    ("creatinine", "urea"): 0.65,
    ("creatinine", "potassium"): 0.3,
    ("urea", "potassium"): 0.25,
}

PHENOTYPES: tuple[Phenotype, ...] = (
    Phenotype("minor illness", False, 0.48),
    Phenotype("bacterial infection", False, 0.5),
    Phenotype("heart or lung failure", False, 0.54),
    Phenotype("frailty with kidney disease", False, 0.5),
    Phenotype("mild COVID-19", True, 0.5),
    Phenotype("COVID-19 pneumonitis", True, 0.57),
    Phenotype("severe COVID-19", True, 0.63),
)

# Distance of each phenotype (columns: the order of PHENOTYPES) from minor illness.
SHIFTS: Mapping[str, tuple[float, ...]] = {
    "age": (0.0, 0.5, 0.9, 1.1, 0.1, 0.6, 0.8),
    "temperature": (0.0, 1.5, 0.0, -0.2, 1.1, 1.7, 1.6),
    "c_reactive_protein": (0.0, 1.5, 0.6, 0.4, 0.6, 1.3, 1.7),
    "heart_rate": (0.0, 0.9, 0.4, -0.1, 0.3, 0.5, 0.9),
    "respiratory_rate": (0.0, 0.7, 1.2, 0.2, 0.4, 1.2, 2.0),
    "oxygen_saturation": (0.0, -0.4, -1.2, -0.3, -0.3, -1.1, -2.0),
    "diastolic_blood_pressure": (0.0, -0.4, -0.1, -0.4, 0.0, -0.1, -0.3),
    "pulse_pressure": (0.0, -0.2, 0.2, 0.3, 0.0, -0.1, -0.1),
    "haemoglobin": (0.0, -0.4, -0.3, -1.0, 0.0, 0.1, 0.0),
    "mean_cell_volume": (0.0, 0.0, 0.2, 0.2, 0.0, 0.0, 0.0),
    "neutrophil_count": (0.0, 1.4, 0.5, 0.3, -0.6, -0.3, 0.3),
    "lymphocyte_count": (0.0, -0.7, -0.4, -0.5, -0.8, -1.1, -1.3),
    "monocyte_count": (0.0, 0.4, 0.3, 0.0, -0.2, -0.4, -0.4),
    "eosinophil_count": (0.0, -0.9, -0.1, 0.1, -1.1, -1.7, -1.8),
    "basophil_count": (0.0, -0.1, 0.0, 0.0, -0.6, -0.8, -0.6),
    "platelets": (0.0, 0.3, 0.1, 0.0, -0.4, -0.3, -0.1),
    "albumin": (0.0, -0.9, -0.5, -0.8, -0.2, -0.7, -1.1),
    "alkaline_phosphatase": (0.0, 0.5, 0.3, 0.4, 0.0, 0.1, 0.2),
    "alanine_aminotransferase": (0.0, 0.1, 0.0, 0.0, 0.2, 0.5, 0.8),
    "bilirubin": (0.0, 0.3, 0.2, 0.0, -0.1, 0.0, 0.2),
    "creatinine": (0.0, 0.4, 0.5, 2.2, 0.0, 0.3, 0.6),
    "urea": (0.0, 0.6, 0.7, 2.1, -0.1, 0.3, 0.8),
    "sodium": (0.0, -0.4, -0.1, -0.2, -0.3, -0.5, -0.4),
    "potassium": (0.0, -0.1, 0.2, 0.7, -0.1, -0.2, 0.0),
    "device": (0.0, 0.6, 1.5, 0.3, 0.2, 1.2, 2.3),
}

# How strongly COVID-19 shows in each group of measurements at each site (columns: the order of
# SITE_PROFILES). Found by a search against tables 2 and 4 of the zero-order paper, with no
# measurement alone above 0.86 AUROC. Portsmouth leans on C-reactive protein and the blood count,
# Oxford on fever and breathing, Birmingham on lymphocytes, eosinophils and chemistry, which is what
# makes a model from one site lose discrimination at another.
EFFECT_GROUPS: tuple[EffectGroup, ...] = (
    EffectGroup(("temperature", "heart_rate"), (0.5, 0.8, 0.4)),
    EffectGroup(("respiratory_rate", "oxygen_saturation"), (0.95, 1.3, 0.5)),
    EffectGroup(("device",), (0.95, 1.3, 0.7)),
    EffectGroup(("c_reactive_protein",), (1.3, 1.1, 0.85)),
    EffectGroup(("neutrophil_count",), (1.2, 1.0, 0.8)),
    EffectGroup(("eosinophil_count",), (0.6, 0.65, 1.0)),
    EffectGroup(("basophil_count",), (0.4, 0.4, 1.45)),
    EffectGroup(("lymphocyte_count",), (0.75, 0.4, 1.8)),
    EffectGroup(("monocyte_count", "platelets"), (1.7, 0.4, 1.35)),
    EffectGroup(("albumin",), (1.0, 1.0, 0.95)),
    EffectGroup(
        (
            "age",
            "diastolic_blood_pressure",
            "pulse_pressure",
            "haemoglobin",
            "mean_cell_volume",
            "alkaline_phosphatase",
            "alanine_aminotransferase",
            "bilirubin",
            "creatinine",
            "urea",
            "sodium",
            "potassium",
        ),
        (0.4, 1.0, 1.5),
    ),
)

# Site differences that move every patient alike: population, thermometers, analysers, reagents.
OFFSETS: Mapping[str, tuple[float, ...]] = {
    "age": (0.2, 0.05, -0.1),
    "temperature": (-0.1, 0.0, 0.2),
    "respiratory_rate": (0.0, 0.0, 0.15),
    "mean_cell_volume": (0.0, -0.1, 0.0),
    "lymphocyte_count": (0.0, 0.0, 0.1),
    "eosinophil_count": (0.1, 0.0, -0.15),
    "platelets": (0.0, 0.1, 0.0),
    "albumin": (-0.2, 0.0, 0.3),
    "alkaline_phosphatase": (0.0, 0.0, 0.4),
    "alanine_aminotransferase": (0.0, 0.0, -0.2),
    "creatinine": (0.0, 0.0, -0.15),
    "urea": (0.1, 0.0, 0.0),
    "sodium": (0.0, 0.15, 0.0),
}

SITE_PROFILES: tuple[SiteProfile, ...] = (
    SiteProfile(
        name="PUH",
        rows=38_717,
        sensitivity=0.751,
        specificity=0.905,
        positive_predictive_value=0.316,
        full_data_auroc=0.901,
        weights=(0.45, 0.22, 0.18, 0.15, 0.35, 0.45, 0.20),
        device_cuts=(1.3, 2.0, 2.6, 3.3),
    ),
    SiteProfile(
        name="OUH",
        rows=161_955,
        sensitivity=0.756,
        specificity=0.898,
        positive_predictive_value=0.126,
        full_data_auroc=0.911,
        weights=(0.58, 0.18, 0.13, 0.11, 0.40, 0.45, 0.15),
        device_cuts=(1.4, 2.2, 2.7, 3.4),
    ),
    SiteProfile(
        name="UHB",
        rows=95_236,
        sensitivity=0.745,
        specificity=0.936,
        positive_predictive_value=0.135,
        full_data_auroc=0.925,
        weights=(0.64, 0.15, 0.12, 0.09, 0.50, 0.38, 0.12),
        device_cuts=(1.5, 2.0, 2.7, 3.1),
    ),
)

SEXES: tuple[str, ...] = ("female", "male")
SITE_COLUMN = "site"
TARGET_COLUMN = "covid"
# Table S1 in its order (vital signs, blood count, liver and inflammation, urea and electrolytes),
# then delivery device, age and sex.
FEATURES: tuple[str, ...] = (
    "heart_rate",
    "respiratory_rate",
    "oxygen_saturation",
    "systolic_blood_pressure",
    "diastolic_blood_pressure",
    "temperature",
    "haemoglobin",
    "haematocrit",
    "mean_cell_volume",
    "white_cell_count",
    "neutrophil_count",
    "lymphocyte_count",
    "monocyte_count",
    "eosinophil_count",
    "basophil_count",
    "platelets",
    "albumin",
    "alkaline_phosphatase",
    "alanine_aminotransferase",
    "bilirubin",
    "c_reactive_protein",
    "sodium",
    "potassium",
    "creatinine",
    "urea",
    "estimated_glomerular_filtration_rate",
    "delivery_device",
    "age",
    "sex",
)

_DERIVED_BOUNDS: Mapping[str, Bounds] = {
    "systolic_blood_pressure": Bounds(30, 300, "mmHg", 0, "cuff range"),
    "haematocrit": Bounds(0.05, 0.76, "L/L", 3, "haemoglobin over cell concentration"),
    "white_cell_count": Bounds(0, 200, "10^9/L", 2, "sum of the bounds of its parts"),
    "estimated_glomerular_filtration_rate": Bounds(
        1, 210, "mL/min/1.73m2", 0, "CKD-EPI at the bounds of creatinine and age"
    ),
}
BOUNDS: Mapping[str, Bounds] = {
    **{
        one.name: Bounds(one.low, one.high, one.unit, one.decimals, one.reason)
        for one in MEASUREMENTS
        if one.name in FEATURES
    },
    **_DERIVED_BOUNDS,
}
