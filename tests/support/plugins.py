"""Methods that only tests use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from bench import Encoder, PrivateData
from bench.errors import NotApplicable
from bench.plugins.method import Method, Spec
from bench.plugins.release import Claim, Release, Rows


@final
@dataclass(frozen=True)
class Other(Method):
    """A third-party plugin, as an entry point would bring it."""

    name: ClassVar[str] = "other"
    title: ClassVar[str] = "A plugin from elsewhere"
    level: int = 1

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        raise NotApplicable("it does nothing")


@final
@dataclass(frozen=True)
class Boaster(Method):
    """Reads the rows without noise and claims to have spent the budget."""

    name: ClassVar[str] = "boaster"
    title: ClassVar[str] = "Claims what it does not do"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        rows = private.raw("fitted on the rows themselves")
        return Release(Rows(rows.values, rows.labels), claim=Claim.of(spec.budget, "its paper"))


@final
@dataclass(frozen=True)
class Talkative(Method):
    """Prints values of a row and writes them into its notes, and claims a budget."""

    name: ClassVar[str] = "talkative"
    title: ClassVar[str] = "Says what it has read"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        rows = private.raw("fitted on the rows themselves")
        first = Encoder(private.schema).decode(rows.values[:1], rows.labels[:1]).iloc[0]
        print(first)
        notes = {"first row": str(first.to_dict()), "first value": float(rows.values[0, 0])}
        return Release(
            Rows(rows.values, rows.labels), claim=Claim.of(spec.budget, "its paper"), notes=notes
        )


@final
@dataclass(frozen=True)
class Faulty(Method):
    """Fails in a chosen way."""

    name: ClassVar[str] = "faulty"
    title: ClassVar[str] = "Fails"
    how: str = "raise"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        match self.how:
            case "raise":
                raise ValueError("something broke")
            case "memory":
                raise MemoryError("too large")
            case "exit":
                import os

                os._exit(3)
            case "nan":
                values = np.full((4, private.width), np.nan)
                return Release(Rows(values, np.array([0, 1, 0, 1])))
            case _:
                raise NotApplicable("not for this task")


def throw(problem: BaseException) -> None:
    """Raise as a plugin would: in a module that is not the harness's."""
    raise problem
