"""Digitalis Investigation Group: digoxin or placebo in 6,800 patients with heart failure. Closed.

As used by the fidelity and privacy paper (section 5.1): all-cause mortality, the primary endpoint
of the trial, and hospitalisation for worsening heart failure. `endpoint` says which: `death` (time
DEATHDAY, event DEATH) or `whf` (WHFDAYS, WHF; death before it censors).

Open stand-in: `actg175` (a randomised trial with a time to event). There is no simulator.

File: `dig/DIG.csv` of the teaching dataset, which BioLINCC sends on request. Its names and codes
are the publisher's (data documentation and SAS programme that come with it): 72 columns in
capitals, of which ID and the 39 that were known at randomisation are read. Etiologies 3, 5 and 6
are `other`, as in the publisher's tables. Doses are in mg.

The publisher warns that teaching datasets are made anonymous by permutations, and unfit for
publication. The full trial dataset of BioLINCC has the same names.

Left out, because they were observed after randomisation: the other outcomes (CVD, DIG, MI, UANG,
STRK, SVA, VENA, CREV, OCVD, RINF, OTH, HOSP, DWHF and their days, NHOSP, REASON; the endpoint that
is not asked for). NHOSP, which the paper attacks as sensitive, is among them.

Counts: deaths (1,181 with digoxin, 1,194 with placebo) and patients in hospital for worsening heart
failure (910 and 1,180), New England Journal of Medicine 336:525, 1997, tables 2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import (
    Declaration,
    FileSource,
    InputError,
    Numeric,
    Role,
    declaration_from_table,
    read_toml,
)
from bench.datasets.closed._closed import NO_YES, TextTable, finish, first_rows

_FILE = "DIG.csv"
_ENDPOINTS = ("death", "whf")

_SYMPTOM: Mapping[str, str] = {
    "0": "none or unknown",
    "1": "present",
    "2": "past",
    "3": "present and past",
}
_CODES: Mapping[str, Mapping[str, str]] = {
    "TRTMT": {"0": "placebo", "1": "digoxin"},
    "RACE": {"1": "white", "2": "non-white"},
    "SEX": {"1": "male", "2": "female"},
    "EJFMETH": {"1": "radionuclide", "2": "angiography", "3": "2-D echo"},
    "FUNCTCLS": {"1": "I", "2": "II", "3": "III", "4": "IV"},
    "CHFETIOL": {
        "1": "ischemic",
        "2": "hypertensive",
        "4": "idiopathic",
        **dict.fromkeys(("3", "5", "6"), "other"),
    },
    **dict.fromkeys(
        (
            "RALES",
            "ELEVJVP",
            "PEDEMA",
            "RESTDYS",
            "EXERTDYS",
            "ACTLIMIT",
            "S3",
            "PULCONG",
        ),
        _SYMPTOM,
    ),
    **dict.fromkeys(
        (
            "PREVMI",
            "ANGINA",
            "DIABETES",
            "HYPERTEN",
            "DIGUSE",
            "DIURETK",
            "DIURET",
            "KSUPP",
            "ACEINHIB",
            "NITRATES",
            "HYDRAL",
            "VASOD",
        ),
        NO_YES,
    ),
}


@final
@dataclass(frozen=True)
class Dig(FileSource):
    """Patients of the main trial: ejection fraction of 45% or less, sinus rhythm."""

    name: ClassVar[str] = "dig"

    endpoint: str = "death"
    """The event: `death`, or `whf` for hospitalisation with worsening heart failure."""

    def __post_init__(self) -> None:
        if self.endpoint not in _ENDPOINTS:
            raise InputError(
                f"dig: endpoint={self.endpoint!r} must be one of {', '.join(_ENDPOINTS)}"
            )

    def declare(self) -> Declaration:
        table = read_toml(self.toml_path())
        outcome = table["endpoints"][self.endpoint]
        table["counts"] = {"by_class": outcome["by_class"]}
        table["columns"] = {**table["columns"], **outcome["columns"]}
        return declaration_from_table(table, str(self.toml_path()))

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        path, schema = paths[_FILE], self.declare().schema
        table = TextTable.read(path, _FILE, ["ID", *(column.name for column in schema)])
        table = table.take(first_rows(table.text("ID"), [], path))
        columns = {name: table.categories(name, codes) for name, codes in _CODES.items()}
        for column in schema.features:
            if isinstance(column, Numeric):
                columns[column.name] = table.numbers(column.name)
        time = schema.with_role(Role.TIME)[0].name
        columns[time] = table.times(time)
        columns[schema.label.name] = table.labels(schema.label.name)
        return finish(columns, schema, path)
