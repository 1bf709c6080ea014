"""Columns that name a person rather than describe one: by their name, or as no entry repeats."""

from __future__ import annotations

import re

_ROWS_AT_LEAST = 20
"""In fewer rows any column may happen to have different entries only."""

_WORDS = frozenset(
    [
        *("id", "ids", "mrn", "nhs", "ssn", "uuid", "guid", "nino", "passport", "iban"),
        *("email", "mail", "phone", "telephone", "fax", "address", "street", "postcode", "zip"),
        *("zipcode", "surname", "forename", "username", "firstname", "lastname", "fullname"),
        *("patientid", "subjectid", "personid", "dob", "birthdate", "birthday", "dateofbirth"),
    ]
)
_PAIRS = (
    ({"name"}, {"first", "last", "full", "family", "given", "middle", "maiden", "patient"}),
    ({"name"}, {"person", "user", "subject", "client"}),
    ({"birth", "born"}, {"date", "day", "dt"}),
    ({"number", "nr", "code"}, {"hospital", "patient", "record", "insurance", "account"}),
    ({"number", "nr"}, {"person", "personal", "subject", "participant", "social", "medical"}),
)
"""Words of which one of the first stands beside one of the second."""
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def looks_like_identifier(name: str, *, all_different: bool, discrete: bool, rows: int) -> str:
    """Return why a column looks like an identifier of a person; an empty text where it does not.

    Measurements with decimals (not `discrete`) may well differ in every row.
    """
    words = [part.lower() for part in _PARTS.findall(name)]
    known, joined = set(words), "".join(words)
    reasons: list[str] = []
    by_pair = any(known & first and known & second for first, second in _PAIRS)
    if known & _WORDS or joined in _WORDS or joined == "name" or by_pair:
        reasons.append("by its name")
    if all_different and discrete and rows >= _ROWS_AT_LEAST:
        reasons.append("no entry occurs twice")
    return " and ".join(reasons)
