"""MIMIC-III: death in hospital of adults in intensive care. Closed (credentialed access).

The federated distillation paper predicts in-hospital mortality from MIMIC-III with "42,000" samples
(its table 2) and says neither which stays nor which variables. 42,276 stays of 33,798 patients are
the root cohort of the MIMIC-III benchmark (H. Harutyunyan et al., Scientific Data 6:96, 2019):
adults, one stay an admission, no transfer between units. We take this cohort, and as variables the
summaries of the first 24 hours that the MIT Laboratory for Computational Physiology publishes as
SQL (repository MIT-LCP/mimic-code, folder mimic-iii/concepts_postgres).

Open stand-in: `eicu-demo`. Simulator: `mimic-sim`.

A patient has up to dozens of stays. Each patient's first one by `intime` is kept, so that a row is
a patient; with `every_stay` all are kept as in the paper, and privacy is that of a stay.

File: `mimic3_ihm/mimic3_ihm.csv`, the answer to this query in a PostgreSQL database of MIMIC-III
v1.4 with the concepts built and both schemas in the search path. All names are those of MIMIC and
of mimic-code:

    SELECT d.subject_id, d.icustay_id, d.intime, d.admission_age, d.gender, d.ethnicity_grouped,
           a.admission_type, i.first_careunit, v.heartrate_mean, v.sysbp_mean, v.diasbp_mean,
           v.resprate_mean, v.tempc_mean, v.spo2_mean, v.glucose_mean, g.mingcs, u.urineoutput,
           m.vent, l.aniongap_max, l.albumin_min, l.bicarbonate_min, l.bilirubin_max,
           l.creatinine_max, l.hematocrit_min, l.hemoglobin_min, l.lactate_max, l.platelet_min,
           l.potassium_max, l.ptt_max, l.inr_max, l.sodium_min, l.bun_max, l.wbc_max,
           d.hospital_expire_flag
    FROM icustay_detail d
    JOIN icustays i USING (icustay_id)
    JOIN admissions a ON a.hadm_id = d.hadm_id
    LEFT JOIN vitals_first_day v USING (icustay_id)
    LEFT JOIN labs_first_day l USING (icustay_id)
    LEFT JOIN gcs_first_day g USING (icustay_id)
    LEFT JOIN urine_output_first_day u USING (icustay_id)
    LEFT JOIN ventilation_first_day m USING (icustay_id)
    WHERE d.admission_age >= 18
      AND i.first_careunit = i.last_careunit AND i.first_wardid = i.last_wardid
      AND (SELECT count(*) FROM icustays s WHERE s.hadm_id = d.hadm_id) = 1;

Ages above 89 are shifted to 300 by the publisher and become 90. Left out: length of stay, time of
death and discharge (known afterwards), identifiers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import Declaration, FileSource, InputError, Numeric, read_toml
from bench.datasets.closed._closed import NO_YES, UNKNOWN, TextTable, finish, first_rows

_FILE = "mimic3_ihm.csv"
_TARGET = "hospital_expire_flag"
_OLDEST = 90

_CODES: Mapping[str, Mapping[str, str]] = {
    "gender": {"F": "F", "M": "M"},
    "ethnicity_grouped": {
        name: name for name in ("white", "black", "hispanic", "asian", "native", "other", UNKNOWN)
    },
    "admission_type": {name: name for name in ("EMERGENCY", "ELECTIVE", "URGENT")},
    "first_careunit": {name: name for name in ("CCU", "CSRU", "MICU", "SICU", "TSICU")},
    "vent": NO_YES,
}


@final
@dataclass(frozen=True)
class Mimic3Ihm(FileSource):
    """Adults in the intensive care units of one hospital in Boston, 2001 to 2012."""

    name: ClassVar[str] = "mimic3-ihm"

    every_stay: bool = False
    """All stays of a patient instead of the first; the unit of privacy is then a stay."""

    def __post_init__(self) -> None:
        if not isinstance(self.every_stay, bool):
            raise InputError(f"mimic3-ihm: every_stay={self.every_stay!r} must be true or false")

    def declare(self) -> Declaration:
        declared = super().declare()
        if not self.every_stay:
            return declared
        counts = read_toml(self.toml_path())["counts_of_every_stay"]
        return dataclasses.replace(declared, unit="row", by_class=tuple(counts["by_class"]))

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        path, schema = paths[_FILE], self.declare().schema
        names = [column.name for column in schema]
        table = TextTable.read(path, _FILE, ["subject_id", "icustay_id", "intime", *names])
        if not self.every_stay:
            order = [table.text("intime"), table.numbers("icustay_id")]
            table = table.take(first_rows(table.text("subject_id"), order, path))
        columns = {name: table.categories(name, codes) for name, codes in _CODES.items()}
        for column in schema:
            if isinstance(column, Numeric):
                columns[column.name] = table.numbers(column.name)
        columns["admission_age"] = columns["admission_age"].clip(upper=_OLDEST)
        columns[_TARGET] = table.labels(_TARGET)
        return finish(columns, schema, path)
