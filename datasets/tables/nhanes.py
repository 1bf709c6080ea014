"""NHANES 2017-2018: which adults were told by a doctor that they have diabetes?

The National Health and Nutrition Examination Survey, as the package `nhanes` joined its files. The
5,261 people of 20 years and older who answered the question are kept: most questions are asked of
adults only. `Borderline` counts as no, as in most analyses of this question.

Left out, of 197 columns: what a diagnosis of diabetes brings with it (treatment, age at diagnosis,
prediabetes, glycohemoglobin, special diets), what is asked of few (children's diets, drug use,
functional limits), the second day of diet, and repeated measurements (of three readings of the
blood pressure the second, which most people have). The number of the respondent is the index of the
file and is left out.

The files spell zero as 5.4e-79 (SAS's smallest number); smaller numbers than a billionth are 0.
Missing measurements are filled with public normal values, missing answers are a category.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import Categorical, DataError, FileSource, Numeric, coerce_columns, read_csv

_FILE = "NHANES_data_2017-2018.tsv"
_ADULT = 20
_TARGET = "DoctorToldYouHaveDiabetes"
_ANSWERS: Mapping[str, str] = {"0": "no", "Borderline": "no", "1": "yes"}
_NO_ANSWER = ("Don't Know", "Refused")
_NO_NUMBER = (7777.0, 9999.0)
"""Codes for refused and unknown, in columns whose bound is below them."""


@final
@dataclass(frozen=True)
class Nhanes(FileSource):
    """5,261 adults, 836 of them with diabetes."""

    name: ClassVar[str] = "nhanes"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        path, schema = paths[_FILE], self.declare().schema
        names = [column.name for column in schema]
        table = read_csv(
            path, _FILE, separator="\t", columns=names, usecols=names, low_memory=False
        )
        age = pd.to_numeric(table["AgeInYearsAtScreening"], errors="coerce")
        table = table[(age >= _ADULT) & table[_TARGET].notna()].reset_index(drop=True)
        if table.empty:
            raise DataError(
                f"{path}: no adult answered the question about diabetes; obtain the original file"
            )
        target = table[_TARGET].astype(str).str.removesuffix(".0")
        strange = int((~target.isin(_ANSWERS)).sum())
        if strange:
            raise DataError(
                f"{path}: {strange} entries of {_TARGET} are none of {', '.join(_ANSWERS)}; obtain "
                "the original file"
            )
        table[_TARGET] = target.map(_ANSWERS)
        for column in schema:
            if isinstance(column, Numeric):
                numbers = pd.to_numeric(table[column.name], errors="coerce")
                wrong = numbers.isna() & table[column.name].notna()
                if not wrong.any():
                    numbers = numbers.mask(
                        numbers.isin(_NO_NUMBER) & (column.high < min(_NO_NUMBER))
                    )
                    table[column.name] = numbers.mask(numbers.abs() < 1e-9, 0.0)
            elif isinstance(column, Categorical) and set(column.categories) >= {"no", "yes"}:
                if column.name == _TARGET:
                    continue
                answers = pd.to_numeric(table[column.name], errors="coerce")
                table[column.name] = answers.map({0.0: "no", 1.0: "yes"})
            else:
                table[column.name] = table[column.name].replace(dict.fromkeys(_NO_ANSWER))
        return coerce_columns(table[names], schema)
