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
    assert looks_like_identifier(name, different=0, kind="whole") == "by its name"


@pytest.mark.parametrize(
    "name",
    [
        *("age", "birth_weight", "idiopathic", "acid", "drug_name", "solid", "paid", "mid_range"),
        *("number_of_visits", "dosage", "Diabetes_binary", "covid", "year_of_birth", "hdl"),
    ],
)
def test_names_of_measurements_are_none(name: str) -> None:
    assert not looks_like_identifier(name, different=0, kind="whole")


def test_entries_that_never_repeat() -> None:
    def found(kind: str, different: int) -> str:
        return looks_like_identifier("x", different=different, kind=kind)

    assert found("text", 20) == found("whole", 100) == "no entry occurs twice"
    assert not found("text", 19) and not found("whole", 99) and not found("decimal", 9999)
