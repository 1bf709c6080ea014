"""The ledger: every DP event that touched the private rows, and what follows from it.

Events carry the path of parts they were charged to, for example `split=train / class=1`. One row
lies in exactly one part of each partition, so its world is: the events of the whole, plus those
of one part of every partition, recursively. The epsilon of a ledger is the largest over worlds
(parallel composition; valid because adjacency is add/remove and a row's part depends on that row
alone). The file form replays to the same epsilon without the data.
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
from bench.privacy.accounting import ADJACENCY, Budget, Proof, World
from bench.privacy.events import DpEvent

Path = tuple[tuple[str, str], ...]
"""Nested parts: ((partition key, part name), ...)."""

_FORM = 1
_WORLDS_AT_MOST = 20_000


@final
@dataclass(frozen=True)
class Entry:
    """One kind of event at one place; the ledger counts how often it happened."""

    path: Path
    event: DpEvent
    adaptive: bool = False
    """True when it was not reserved before the first output: its parameters may depend on it."""
    reason: str = ""
    trust: str = ""


@final
@dataclass
class Ledger:
    """Events with counts. Grows only; nothing is ever taken out."""

    budget: Budget | None = None
    delta: float = 1e-5
    unit: str = "row"
    entries: dict[Entry, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.budget is not None:
            self.delta = self.budget.delta

    @property
    def order(self) -> float:
        """The one RDP order of adaptive accounting: follows from the budget alone."""
        return accountant.adaptive_order(self.budget)

    def add(self, entry: Entry, count: int = 1) -> None:
        """Record an event `count` times; composed events are taken apart."""
        for event, times in events.flattened(entry.event, count):
            single = replace(entry, event=event)
            self.entries[single] = self.entries.get(single, 0) + times

    def with_entries(self, entries: Iterable[tuple[Entry, int]]) -> Ledger:
        """A copy with more entries, to ask what they would cost."""
        copy = Ledger(self.budget, self.delta, self.unit)
        copy.entries = dict(self.entries)
        for entry, count in entries:
            copy.add(entry, count)
        return copy

    def spent(self, tight: bool = True) -> tuple[float, str]:
        """What the noisy events alone have spent, and by which accountant; raw looks left out.

        The budget is checked against this, even after a raw look. Without `tight`, RDP alone.
        """
        counted = {
            entry: count
            for entry, count in self.entries.items()
            if not events.is_non_private(entry.event)
        }
        worlds = _worlds(counted)
        if worlds is None:
            return math.inf, "none"
        adaptive = any(entry.adaptive for entry in counted)
        return accountant.worst_epsilon(worlds, self.delta, self.order if adaptive else None, tight)

    def proof(self) -> Proof:
        """The proven epsilon at the ledger's delta.

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
        """The file form: run-length, human-readable, replayable."""
        rows = [
            {
                "path": [list(part) for part in entry.path],
                "event": events.to_json(entry.event),
                "in_words": events.in_words(entry.event),
                "count": count,
                "adaptive": entry.adaptive,
                "reason": entry.reason,
                "trust": entry.trust,
            }
            for entry, count in self.entries.items()
        ]
        proof = self.proof()
        document = {
            "form": _FORM,
            "adjacency": ADJACENCY,
            "unit": self.unit,
            "target_epsilon": self.budget.epsilon if self.budget else None,
            "delta": self.delta,
            "order": self.order,
            "proven_epsilon": proof.epsilon if math.isfinite(proof.epsilon) else None,
            "accountant": proof.accountant,
            "reasons": list(proof.reasons),
            "entries": rows,
        }
        return json.dumps(document, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Read a ledger back; its epsilon is computed anew, never taken from the file."""
        try:
            document = json.loads(text)
            if document["form"] != _FORM or document["adjacency"] != ADJACENCY:
                raise ValueError(
                    f"form {document['form']}, adjacency {document['adjacency']}: "
                    f"this version reads form {_FORM}, {ADJACENCY}"
                )
            target, delta = document["target_epsilon"], document["delta"]
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
        except (KeyError, TypeError, ValueError, PrivacyContractError) as problem:
            raise InputError(f"not a ledger this version can read: {problem}") from None
        return ledger


def _entry(row: Mapping[str, Any]) -> Entry:
    return Entry(
        path=tuple((str(key), str(part)) for key, part in row["path"]),
        event=events.from_json(row["event"]),
        adaptive=bool(row["adaptive"]),
        reason=str(row["reason"]),
        trust=str(row["trust"]),
    )


def _worlds(counted: Mapping[Entry, int]) -> set[World] | None:
    """All worlds, or None where there are too many combinations of parts to go through."""
    flat = [(entry.path, entry.event, count) for entry, count in counted.items()]
    try:
        return _combine(flat)
    except OverflowError:
        return None


def _combine(flat: list[tuple[Path, DpEvent, int]]) -> set[World]:
    own = tuple((event, count) for path, event, count in flat if not path)
    parts: dict[str, dict[str, list[tuple[Path, DpEvent, int]]]] = {}
    for path, event, count in flat:
        if path:
            key, part = path[0]
            parts.setdefault(key, {}).setdefault(part, []).append((path[1:], event, count))
    # Equal parts (ten classes charged alike) make one choice, not ten.
    choices = [
        set().union(*(_combine(inside) for inside in by_part.values()))
        for by_part in parts.values()
    ]
    if math.prod(len(choice) for choice in choices) > _WORLDS_AT_MOST:
        raise OverflowError("too many combinations of parts")
    return {
        accountant.canonical((*own, *itertools.chain.from_iterable(combination)))
        for combination in itertools.product(*choices)
    }
