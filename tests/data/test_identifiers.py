"""Which columns look like identifiers of a person."""

from __future__ import annotations

import pytest

from bench.data.identifiers import looks_like_identifier


@pytest.mark.parametrize(
    "name",
    [
        *("id", "ID", "patient_id", "PatientID", "patientid", "mrn", "NHS number", "nhs_number"),
        *("ssn", "name", "first_name", "Surname", "email", "e-mail", "date_of_birth", "DOB"),
        *("BirthDate", "phone", "home address", "zip", "hospital number", "passportNo"),
    ],
)
def test_by_name(name: str) -> None:
    found = looks_like_identifier(name, all_different=False, discrete=True, rows=5)
    assert found == "by its name"


@pytest.mark.parametrize(
    "name",
    [
        *("age", "birth_weight", "idiopathic", "acid", "drug_name", "solid", "paid", "mid_range"),
        *("number_of_visits", "dosage", "Diabetes_binary", "covid", "year_of_birth", "hdl"),
    ],
)
def test_names_of_measurements_are_none(name: str) -> None:
    assert not looks_like_identifier(name, all_different=False, discrete=True, rows=500)


def test_entries_that_never_repeat() -> None:
    def found(discrete: bool, rows: int) -> str:
        return looks_like_identifier("x", all_different=True, discrete=discrete, rows=rows)

    assert found(True, 20) == "no entry occurs twice"
    assert not found(True, 19) and not found(False, 1000)
