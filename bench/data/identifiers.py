"""Columns that name a person rather than describe one: by their name, or as no entry repeats."""

from __future__ import annotations

import re

_TEXTS_AT_LEAST, _NUMBERS_AT_LEAST = 20, 100
"""In fewer rows any column may happen to have different entries only; ages of 60 people may."""

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


def looks_like_identifier(name: str, *, different: int, kind: str) -> str:
    """Return why a column looks like an identifier of a person; an empty text where it does not.

    `different` is the number of entries where all of them differ, or else 0; `kind` is `text`,
    `whole` or `decimal`: measurements with decimals may well differ in every row.
    """
    words = [part.lower() for part in _PARTS.findall(name)]
    known, joined = set(words), "".join(words)
    reasons: list[str] = []
    by_pair = any(known & first and known & second for first, second in _PAIRS)
    if known & _WORDS or joined in _WORDS or joined == "name" or by_pair:
        reasons.append("by its name")
    least = _TEXTS_AT_LEAST if kind == "text" else _NUMBERS_AT_LEAST
    if kind != "decimal" and different >= least:
        reasons.append("no entry occurs twice")
    return " and ".join(reasons)
