"""What has been spent on one table: a file beside it, to which every release adds.

A release is charged before its method sees a row: the entry is written, and synced, with the
target. When the release is there, its ledger takes the place of the target. A release that was lost
in between stays charged. The total is computed by the accountant from the events of all ledgers; a
release without a ledger, or with events that were chosen from earlier answers, adds its epsilon.

The file is for its owner only, and one process at a time holds it.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import math
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from bench.errors import InputError, StoreError
from bench.privacy.accounting import Budget
from bench.privacy.ledger import UNITS, Ledger, compose_ledgers
from bench.results.writing import OWNER_ONLY, write_atomically, writing

_FORMAT_VERSION = 1
_LARGEST = 256 << 20
_ROUNDING = 1e-9

STARTED, RELEASED = "started", "released"


@final
@dataclass(frozen=True)
class Spent:
    """One release that was started."""

    id: str
    started_at: str
    method: str
    budget: Budget
    unit: str
    output: str
    """Name of the file that was asked for, without its folder."""
    state: str = STARTED
    ledger: Ledger | None = None

    @property
    def epsilon(self) -> float:
        """Epsilon of this release alone: what its ledger proves, or else its target."""
        return self.budget.epsilon if self.ledger is None else self.ledger.proof().epsilon

    @property
    def exact(self) -> bool:
        """True where the events can be composed with those of other releases."""
        return self.ledger is not None and not any(one.adaptive for one in self.ledger.entries)


@final
@dataclass(frozen=True)
class Total:
    """What all releases together have spent."""

    epsilon: float
    delta: float
    releases: int

    def describe(self) -> str:
        """Return it in words."""
        if not self.releases:
            return "nothing has been spent on this table yet"
        releases = "1 release" if self.releases == 1 else f"{self.releases} releases"
        return f"{releases}, epsilon {self.epsilon:.4g} in total at delta {self.delta:.3g}"


@final
@dataclass(frozen=True)
class SpendingLedger:
    """The releases of one table. A value: `held` reads and writes the file."""

    table: str
    """Name of the table's file, without its folder."""
    releases: tuple[Spent, ...] = ()
    limit: float | None = None
    """Largest total epsilon that its owner allows; None for no limit."""

    def total(self) -> Total:
        """Compose all releases; the deltas add up.

        Events of all ledgers together, plus the epsilon of each release that has none to compose
        (basic composition: Dwork and Roth 2014, theorem 3.16). Adding all epsilons is valid too,
        and the smaller of the two bounds is stated.
        """
        delta = math.fsum(one.budget.delta for one in self.releases)
        added = math.fsum(one.epsilon for one in self.releases)
        exact = [one for one in self.releases if one.exact]
        together = math.fsum(one.epsilon for one in self.releases if not one.exact)
        if exact:
            ledgers = [one.ledger for one in exact if one.ledger is not None]
            share = math.fsum(one.budget.delta for one in exact)
            together += compose_ledgers(ledgers, share)[0]
        return Total(min(added, together), delta, len(self.releases))

    def planned(self, budget: Budget, unit: str, method: str, output: str) -> Spent:
        """Return the entry of a new release, or refuse it."""
        others = {one.unit for one in self.releases} - {unit}
        if others:
            raise InputError(
                f"earlier releases of {self.table} protect a {', '.join(sorted(others))}, this one "
                f"would protect a {unit}: no total can be stated. Use the same --patient as before"
            )
        spent = Spent(secrets.token_hex(8), _now(), method, budget, unit, output)
        after = replace(self, releases=(*self.releases, spent)).total()
        if self.limit is not None and after.epsilon > self.limit * (1.0 + _ROUNDING):
            raise InputError(
                f"{self.table}: {self.total().describe()}; with epsilon {budget.epsilon:g} more it "
                f"would be up to {after.epsilon:.4g}, over the limit of {self.limit:g} that its "
                "owner set. Ask for a smaller --eps; --budget sets another limit, which is recorded"
            )
        return spent

    def with_release(self, spent: Spent) -> SpendingLedger:
        """Return the ledger with this release, new or in the place of its earlier state."""
        others = [one for one in self.releases if one.id != spent.id]
        return replace(self, releases=(*others, spent))

    def to_json(self) -> str:
        """Return the text of the file."""
        document = {
            "format_version": _FORMAT_VERSION,
            "table": self.table,
            "limit": self.limit,
            "releases": [
                {
                    "id": one.id,
                    "started_at": one.started_at,
                    "method": one.method,
                    "epsilon": one.budget.epsilon,
                    "delta": one.budget.delta,
                    "unit": one.unit,
                    "output": one.output,
                    "state": one.state,
                    "ledger": None if one.ledger is None else json.loads(one.ledger.to_json()),
                }
                for one in self.releases
            ],
        }
        return json.dumps(document, indent=1)


def spending_file(table: Path) -> Path:
    """Return the file of the spending on a table: beside it."""
    return table.with_name(f"{table.name}.spending.json")


def read_spending(path: Path, table: str) -> SpendingLedger:
    """Read a spending file; without one nothing was spent. A damaged one is an error."""
    try:
        if not path.exists():
            return SpendingLedger(table)
        if path.stat().st_size > _LARGEST:
            raise ValueError("it is too large")
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format_version"] != _FORMAT_VERSION:
            raise ValueError(f"format version {document['format_version']!r}")
        limit = document["limit"]
        releases = tuple(map(_spent, document["releases"]))
        return SpendingLedger(str(document["table"]), releases, _positive(limit))
    except OSError as problem:
        raise StoreError(f"{path}: cannot be read ({problem.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError) as problem:
        raise StoreError(
            f"{path}: not a spending file that this version can read ({problem}); what was spent "
            "on the table is unknown, so that nothing more is spent. Restore it from a copy"
        ) from None


def _positive(limit: Any) -> float | None:
    if limit is not None and not (isinstance(limit, int | float) and 0 < limit < math.inf):
        raise ValueError(f"limit {limit!r}")
    return limit


def _spent(entry: Any) -> Spent:
    ledger = entry["ledger"]
    texts = [entry[key] for key in ("id", "started_at", "method", "unit", "output", "state")]
    if not all(isinstance(text, str) for text in texts) or entry["unit"] not in UNITS:
        raise ValueError("an entry is damaged")
    if entry["state"] not in (STARTED, RELEASED):
        raise ValueError("an entry has an unknown state")
    return Spent(
        id=entry["id"],
        started_at=entry["started_at"],
        method=entry["method"],
        budget=Budget(float(entry["epsilon"]), float(entry["delta"])),
        unit=entry["unit"],
        output=entry["output"],
        state=entry["state"],
        ledger=None if ledger is None else Ledger.from_json(json.dumps(ledger)),
    )


@final
class HeldSpending:
    """The spending file of a table while one process holds it."""

    def __init__(self, path: Path, known: SpendingLedger) -> None:
        self.path, self.known = path, known

    def write(self, known: SpendingLedger) -> None:
        """Write and sync: from here on it is charged, whatever happens to this process."""
        with writing(self.path, "nothing was spent"):
            write_atomically(self.path, known.to_json().encode(), OWNER_ONLY)
        self.known = known


@contextlib.contextmanager
def held(path: Path, table: str) -> Iterator[HeldSpending]:
    """Hold a spending file; a second process that asks for it is refused."""
    lock = path.with_name(f".{path.name}.lock")
    with writing(lock, "or name another place by --ledger"):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(lock, flags, OWNER_ONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(
                f"{path} is in use by another `bench synthesize` of the same table; wait for it"
            ) from None
        yield HeldSpending(path, read_spending(path, table))
    finally:
        os.close(descriptor)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
