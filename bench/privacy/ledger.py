"""The ledger: every DP event that touched the private rows, and what follows from it.

Events carry the path of parts they were charged to, for example `split=train / class=1`. One row
lies in exactly one part of each partition, so its composition is: the events of the whole, plus
those of one part of every partition, recursively. The epsilon of a ledger is the largest over all
such compositions (parallel composition; valid because adjacency is add/remove and a row's part
depends on that row alone). A ledger's file replays to the same epsilon without the data.

That holds for units of one row: a dataset whose unit is the patient has one row for each.
A client has rows in many parts, among them the training and the validation rows: where the unit is
the client, all events compose, whatever part they were charged to.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from bench.errors import InputError, PrivacyContractError
from bench.privacy import accounting as accountant
from bench.privacy import events
from bench.privacy.accounting import ADJACENCY, Budget, ComposedEvents, Proof
from bench.privacy.events import DpEvent

PartPath = tuple[tuple[str, str], ...]
"""Nested parts: ((partition key, part name), ...)."""

UNITS = ("row", "patient", "image", "client")
"""What a guarantee can protect; a patient, or an image, is one row."""

_FORMAT_VERSION = 1
_COMPOSITIONS_AT_MOST = 20_000
_ENTRY_FIELDS = ("path", "event", "in_words", "count", "adaptive", "reason", "trust")
"""Fields of an entry in `ledger.json`, in order."""


@final
@dataclass(frozen=True)
class Entry:
    """One kind of event on one part; the ledger counts how often it happened."""

    path: PartPath
    event: DpEvent
    adaptive: bool = False
    """True for an event not reserved before the first output: its parameters may depend on it."""
    reason: str = ""
    trust: str = ""


@final
@dataclass
class Ledger:
    """Events with counts. Events are added and never removed."""

    budget: Budget | None = None
    delta: float = 1e-5
    unit: str = "row"
    entries: dict[Entry, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.budget is not None:
            self.delta = self.budget.delta

    @property
    def order(self) -> float:
        """RDP order of adaptive accounting; it follows from the budget alone."""
        return accountant.adaptive_order(self.budget)

    def add(self, entry: Entry, count: int = 1) -> None:
        """Record an event `count` times; composed events are split into single ones."""
        for event, times in events.flattened(entry.event, count):
            single = replace(entry, event=event)
            self.entries[single] = self.entries.get(single, 0) + times

    def with_entries(self, entries: Iterable[tuple[Entry, int]]) -> Ledger:
        """Return a copy with more entries, to compute what they would cost."""
        copy = Ledger(self.budget, self.delta, self.unit)
        copy.entries = dict(self.entries)
        for entry, count in entries:
            copy.add(entry, count)
        return copy

    def spent(self, tight: bool = True) -> tuple[float, str]:
        """Return the epsilon of the noisy events alone, and the accountant that bounds it.

        Non-private access is left out: the budget is checked against this number even after it.
        Without `tight`, RDP alone is used.
        """
        noisy = {
            entry: count
            for entry, count in self.entries.items()
            if not events.is_non_private(entry.event)
        }
        composed = compositions(noisy, self.unit)
        if composed is None:
            return math.inf, "none"
        order = self.order if any(entry.adaptive for entry in noisy) else None
        return accountant.worst_epsilon(composed, self.delta, order, tight)

    def proof(self) -> Proof:
        """Return the proven epsilon at the ledger's delta.

        Where parameters could depend on outputs, what an RDP filter proves is its budget, not the
        part of it that happened to be spent: then the target is the proven epsilon.
        """
        reasons = self._reasons()
        trust = tuple(sorted({entry.trust for entry in self.entries if entry.trust}))
        epsilon, name = (math.inf, "none") if reasons else self.spent()
        if not reasons and math.isinf(epsilon):
            reasons = ("the noisy events have no finite bound",)
        elif not reasons and any(entry.adaptive for entry in self.entries):
            if self.budget is None:
                epsilon, name = math.inf, "none"
                reasons = ("calls were not reserved, and without a budget nothing bounds them",)
            else:
                epsilon = max(epsilon, self.budget.epsilon)
        return Proof(epsilon, self.delta, name, reasons, trust)

    def _reasons(self) -> tuple[str, ...]:
        reasons: list[str] = []
        for entry in self.entries:
            if events.is_non_private(entry.event):
                reasons.append(entry.reason)
            elif not accountant.supported(entry.event):
                reasons.append(f"no accountant supports: {events.in_words(entry.event)}")
        return tuple(dict.fromkeys(reasons))

    def to_json(self) -> str:
        """Return the text of `ledger.json`: human-readable, and replayable by `from_json`."""
        record = self.to_record()
        entries = record.pop("entries")
        for entry, row in zip(self.entries, entries, strict=True):
            row["in_words"] = events.in_words(entry.event)
        proof = self.proof()
        document = {
            **record,
            "proven_epsilon": proof.epsilon if math.isfinite(proof.epsilon) else None,
            "accountant": proof.accountant,
            "reasons": list(proof.reasons),
            "entries": [{name: row[name] for name in _ENTRY_FIELDS} for row in entries],
        }
        return json.dumps(document, indent=1)

    def to_record(self) -> dict[str, Any]:
        """Return what `from_record` needs, for JSON: the events alone, without a proof."""
        rows = [
            {
                "path": [list(part) for part in entry.path],
                "event": events.to_json(entry.event),
                "count": count,
                "adaptive": entry.adaptive,
                "reason": entry.reason,
                "trust": entry.trust,
            }
            for entry, count in self.entries.items()
        ]
        return {
            "format_version": _FORMAT_VERSION,
            "adjacency": ADJACENCY,
            "unit": self.unit,
            "target_epsilon": self.budget.epsilon if self.budget else None,
            "delta": self.delta,
            "order": self.order,
            "entries": rows,
        }

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Read a ledger; its epsilon is recomputed, never taken from the file."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise _unreadable(problem) from None
        return cls.from_record(document)

    @classmethod
    def from_record(cls, document: Any) -> Ledger:
        """Build the ledger of a record that `to_record` made, or that a file holds."""
        try:
            # Ledgers of the first releases call it "form".
            version = document.get("format_version", document.get("form"))
            if version != _FORMAT_VERSION or document["adjacency"] != ADJACENCY:
                raise ValueError(
                    f"format version {version}, adjacency {document['adjacency']}; expected "
                    f"format version {_FORMAT_VERSION}, adjacency {ADJACENCY}"
                )
            target, delta = document["target_epsilon"], document["delta"]
            if isinstance(delta, bool) or not 0 < delta < 1:
                raise ValueError(f"delta {delta!r} is not between 0 and 1")
            if not isinstance(document["unit"], str):
                raise ValueError("its unit of privacy is no text")
            ledger = cls(
                budget=None if target is None else Budget(target, delta),
                delta=delta,
                unit=document["unit"],
            )
            if document["order"] != ledger.order:
                raise ValueError(
                    f"order {document['order']}: the target fixes it to {ledger.order:g}"
                )
            for row in document["entries"]:
                ledger.add(_entry(row), row["count"])
        except (
            ArithmeticError,
            AttributeError,
            KeyError,
            RecursionError,
            TypeError,
            ValueError,
            InputError,
            PrivacyContractError,
        ) as problem:
            raise _unreadable(problem) from None
        return ledger


def _unreadable(problem: Exception) -> InputError:
    return InputError(f"not a ledger that this version can read: {problem}")


def _entry(row: Mapping[str, Any]) -> Entry:
    return Entry(
        path=tuple((str(key), str(part)) for key, part in row["path"]),
        event=events.from_json(row["event"]),
        adaptive=bool(row["adaptive"]),
        reason=str(row["reason"]),
        trust=str(row["trust"]),
    )


def compositions(entries: Mapping[Entry, int], unit: str) -> set[ComposedEvents] | None:
    """Return the compositions of all possible units; None for too many combinations of parts."""
    whole = unit == "client"
    flat = [(() if whole else entry.path, entry.event, count) for entry, count in entries.items()]
    try:
        return _combine(flat)
    except OverflowError:
        return None


def _combine(flat: list[tuple[PartPath, DpEvent, int]]) -> set[ComposedEvents]:
    of_the_whole = tuple((event, count) for path, event, count in flat if not path)
    parts: dict[str, dict[str, list[tuple[PartPath, DpEvent, int]]]] = {}
    for path, event, count in flat:
        if path:
            key, part = path[0]
            parts.setdefault(key, {}).setdefault(part, []).append((path[1:], event, count))
    # Equal parts (ten classes charged alike) make one choice, not ten.
    choices = [
        set().union(*(_combine(inside) for inside in by_part.values()))
        for by_part in parts.values()
    ]
    if math.prod(len(choice) for choice in choices) > _COMPOSITIONS_AT_MOST:
        raise OverflowError("too many combinations of parts")
    return {
        accountant.compose_events((*of_the_whole, *itertools.chain.from_iterable(combination)))
        for combination in itertools.product(*choices)
    }


def compose_ledgers(ledgers: Iterable[Ledger], delta: float) -> tuple[float, str]:
    """Return the epsilon of several releases of one table together, and the accountant.

    All events are composed, not the epsilons: whatever part a row has in one release, it may have
    any part in another, so that every combination counts. Each ledger must be fixed in advance (no
    adaptive events), and so must the choice of the releases. Infinite where a ledger has no proof,
    or where there are too many combinations.
    """
    kept = list(ledgers)
    if any(entry.adaptive for ledger in kept for entry in ledger.entries):
        raise InputError("events chosen from earlier answers are not composed with other releases")
    if any(ledger._reasons() for ledger in kept):
        return math.inf, "none"
    choices = [compositions(ledger.entries, ledger.unit) for ledger in kept]
    known = [choice for choice in choices if choice is not None]
    if len(known) < len(choices):
        return math.inf, "none"
    if math.prod(len(choice) for choice in known) > _COMPOSITIONS_AT_MOST:
        return math.inf, "none"
    composed = {
        accountant.compose_events(itertools.chain.from_iterable(combination))
        for combination in itertools.product(*known)
    }
    return accountant.worst_epsilon(composed, delta)
