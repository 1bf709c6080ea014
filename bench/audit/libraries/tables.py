"""The tables of library audits, and the canaries that only one of two worlds has.

Every trial draws a fresh table from a public simulator, which the attacker knows, and one world
adds one row. An (epsilon, delta)-DP method obeys P(E | with) <= e^epsilon P(E | without) + delta
for each of these tables and every event E of the attacker; so do the means over tables.

Only numpy and pandas are imported: this runs in environments with old versions of both.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

DIAGNOSES = tuple(f"diagnosis {letter}" for letter in "ABCDE")
SMOKERS = ("no", "yes")
OUTCOMES = ("event", "none")
CATEGORIES = {"diagnosis": DIAGNOSES, "smoker": SMOKERS, "outcome": OUTCOMES}
BOUNDS = {"age": (18, 90), "bmi": (15.0, 50.0)}

ONLY = "diagnosis of one person"
"""Category that only the canary has."""
EXTREME = 1e6
"""Number that only the canary has; all others are at most 90."""


def generator(seed: int, *parts: object) -> np.random.Generator:
    """Return the generator of a trial: its table follows from nothing else."""
    text = "/".join(map(str, (seed, *parts)))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))


def patients(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    """Return a table of patients with two numbers and three categories."""
    age = np.clip(rng.normal(55, 14, rows), 18, 90).round().astype(int)
    bmi = np.clip(rng.normal(27, 5, rows), 15, 50).round(1)
    diagnosis = rng.choice(DIAGNOSES, rows, p=[0.35, 0.25, 0.2, 0.12, 0.08])
    smoker = rng.choice(SMOKERS, rows, p=[0.7, 0.3])
    outcome = np.where(rng.random(rows) < 0.2 + 0.3 * (age > 60), OUTCOMES[0], OUTCOMES[1])
    columns = {"age": age, "bmi": bmi, "diagnosis": diagnosis, "smoker": smoker, "outcome": outcome}
    table = pd.DataFrame(columns)
    return table.astype(dict.fromkeys(CATEGORIES, object))


def with_row(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    """Return the table with one more row; columns that are not named have ordinary values."""
    row = {"age": 55, "bmi": 27.0, "diagnosis": DIAGNOSES[0], "smoker": "no", "outcome": "event"}
    row |= values
    added = pd.DataFrame([{name: row[name] for name in table.columns}])
    kept = {name: kind for name, kind in table.dtypes.items() if name not in values}
    return pd.concat([table, added.astype(kept)], ignore_index=True)
