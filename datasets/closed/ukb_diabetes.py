"""UK Biobank: time to diabetes of 474,886 people who did not have it at enrolment. Closed.

As used by the zero-order condensation paper (table 1): twenty covariates (supplementary note 1),
which are nine measurements and the one-hot categories of sex, ethnicity and smoking.

Open stand-in: `support2` (survival, mixed columns). Simulator: `ukb-diabetes-sim`, with
the same columns.

File: `ukb_diabetes/ukb_diabetes.csv`, one row a participant, as the table exporter of the Research
Analysis Platform writes it. Names like `p<field>_i<instance>` are the publisher's (UK Biobank
Showcase; a field without repeats has no instance):

    eid          participant             p30730_i0    gamma glutamyltransferase, U/L
    p31          sex                     p30780_i0    LDL direct, mmol/L
    p21022       age at recruitment      p30870_i0    triglycerides, mmol/L
    p21000_i0    ethnic background       p30770_i0    IGF-1, nmol/L
    p20116_i0    smoking status          p30700_i0    creatinine, umol/L
    p21001_i0    body mass index         p22189       Townsend deprivation index

Sex, ethnic background and smoking may be the codes or their meanings (the exporter offers both).
Three columns are derived and their names are ours:

    hypertension   1: I10 first reported (p131286) on or before the first assessment (p53_i0)
    diabetes       1: any of E10 to E14 first reported (p130706, p130708, p130710, p130712,
                   p130714) after p53_i0; rows with one on or before p53_i0 are left out
    days           from p53_i0 to that date, or to the first of death (p40000_i0), loss to
                   follow-up (p191) and the censoring date of the hospital data

The paper's six ethnicities: Indian, Pakistani and Bangladeshi are South Asian; Chinese and other
Asian backgrounds are other; `do not know` and `prefer not to answer` are unanswered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import FileSource
from bench.datasets.closed._closed import NO_YES, TextTable, finish, first_rows

_FILE = "ukb_diabetes.csv"

_NUMBERS: Mapping[str, str] = {
    "age": "p21022",
    "bmi": "p21001_i0",
    "deprivation_index": "p22189",
    "gamma_glutamyl_transferase": "p30730_i0",
    "low_density_lipoprotein": "p30780_i0",
    "triglycerides": "p30870_i0",
    "igf_1": "p30770_i0",
    "creatinine": "p30700_i0",
}

# Data-codings 9, 1001 and 90 of the Showcase: code and meaning.
_SEXES: Mapping[str, str] = {"0": "female", "Female": "female", "1": "male", "Male": "male"}
_SMOKERS: Mapping[str, str] = {
    "0": "never",
    "Never": "never",
    "1": "previous",
    "Previous": "previous",
    "2": "current",
    "Current": "current",
}
_UNANSWERED = ("-3", "Prefer not to answer")
_ETHNICITIES: Mapping[str, str] = {
    **dict.fromkeys(
        ("1", "1001", "1002", "1003", "White", "British", "Irish", "Any other white background"),
        "White",
    ),
    **dict.fromkeys(("2", "2001", "2002", "2003", "2004", "Mixed"), "Mixed"),
    **dict.fromkeys(
        (
            "White and Black Caribbean",
            "White and Black African",
            "White and Asian",
            "Any other mixed background",
        ),
        "Mixed",
    ),
    **dict.fromkeys(("3001", "3002", "3003", "Indian", "Pakistani", "Bangladeshi"), "South Asian"),
    **dict.fromkeys(("4", "4001", "4002", "4003", "Black or Black British"), "Black"),
    **dict.fromkeys(("Caribbean", "African", "Any other Black background"), "Black"),
    **dict.fromkeys(("3", "3004", "5", "6", "Chinese", "Other ethnic group"), "Other"),
    **dict.fromkeys(("Asian or Asian British", "Any other Asian background"), "Other"),
    **dict.fromkeys(("-1", "Do not know", *_UNANSWERED), "Unanswered"),
}


@final
@dataclass(frozen=True)
class UkbDiabetes(FileSource):
    """Participants without diabetes at enrolment."""

    name: ClassVar[str] = "ukb-diabetes"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        path, schema = paths[_FILE], self.declare().schema
        codes = ["eid", "p31", "p21000_i0", "p20116_i0", "hypertension", "diabetes", "days"]
        table = TextTable.read(path, _FILE, [*codes, *_NUMBERS.values()])
        table = table.take(first_rows(table.text("eid"), [], path))
        columns = {name: table.numbers(field) for name, field in _NUMBERS.items()}
        columns["prev_hypertension"] = table.categories("hypertension", NO_YES)
        columns["sex"] = table.categories("p31", _SEXES)
        columns["ethnicity"] = table.categories("p21000_i0", _ETHNICITIES).fillna("Unanswered")
        # The paper has no category for smoking without an answer: left empty, filled publicly.
        answers = {**_SMOKERS, **dict.fromkeys(_UNANSWERED, "")}
        smoker = table.categories("p20116_i0", answers)
        columns["smoker"] = smoker.mask(smoker == "")
        columns["days"] = table.times("days")
        columns["diabetes"] = table.labels("diabetes")
        return finish(columns, schema, path)
