"""Methods with the mistakes that the conformance kit is there to find. One mistake each.

Those that break privacy without being seen are in `bench.conformance.mistakes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import PrivateData
from bench.conformance.mistakes.sound import around_class_means as class_means
from bench.data.encoder import EncodedRows
from bench.errors import NotApplicable
from bench.plugins.method import Method, Spec
from bench.plugins.release import Release, Rows


@dataclass(frozen=True)
class Mistaken(Method):
    """What all of them say about themselves."""

    title: ClassVar[str] = "One mistake"
    paper: ClassVar[str] = "none"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        return class_means(private, spec, rng)


@final
@dataclass(frozen=True)
class Sound(Mistaken):
    """No mistake at all."""

    name: ClassVar[str] = "sound"


@final
@dataclass(frozen=True)
class Peeks(Mistaken):
    """Scales by the largest value among the rows, which it reads around the kernel."""

    name: ClassVar[str] = "peeks"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        release = class_means(private, spec, rng)
        assert release.rows is not None
        largest = float(np.abs(private._rows.values).max())
        values = np.clip(release.rows.values * largest, -1.0, 1.0)
        return Release(Rows(values * 0.99, release.rows.labels), claim=release.claim)


@final
@dataclass(frozen=True)
class Hoards(Mistaken):
    """Its row function keeps the rows that it was shown, and one of them is released."""

    name: ClassVar[str] = "hoards"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        seen: list[npt.NDArray[np.floating[Any]]] = []

        def remember(rows: EncodedRows) -> npt.NDArray[np.floating[Any]]:
            seen.append(rows.values)
            return rows.values

        release = class_means(private, spec, rng, function=remember)
        assert release.rows is not None
        values = np.array(release.rows.values)
        values[0] = max(seen, key=len)[0]
        return Release(Rows(values, release.rows.labels), claim=release.claim)


@final
@dataclass(frozen=True)
class Overspends(Mistaken):
    """Noise that does not follow the budget."""

    name: ClassVar[str] = "overspends"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        return class_means(private, spec, rng, noise=1.0)


@final
@dataclass(frozen=True)
class Backwards(Mistaken):
    """More noise at a larger budget."""

    name: ClassVar[str] = "backwards"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        assert spec.budget is not None
        return class_means(private, spec, rng, noise=20.0 * spec.budget.epsilon + 20.0)


@final
@dataclass(frozen=True)
class Forgetful(Mistaken):
    """Draws from a generator that nobody seeds."""

    name: ClassVar[str] = "forgetful"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        return class_means(private, spec, np.random.default_rng())


@final
@dataclass(frozen=True)
class Stingy(Mistaken):
    """Half as many rows as asked for."""

    name: ClassVar[str] = "stingy"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        release = class_means(private, spec, rng)
        assert release.rows is not None
        rows = Rows(release.rows.values[::2], release.rows.labels[::2])
        return Release(rows, claim=release.claim)


@final
@dataclass(frozen=True)
class Fragile(Mistaken):
    """Cannot do with fewer than ten rows a class."""

    name: ClassVar[str] = "fragile"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        if min(private.counts.by_class) < 10:
            raise ZeroDivisionError("division by zero")
        return class_means(private, spec, rng)


@final
@dataclass(frozen=True)
class Silent(Mistaken):
    """Refuses without a word."""

    name: ClassVar[str] = "silent"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        if private.schema.image_shape is not None:
            raise NotApplicable
        return class_means(private, spec, rng)


@final
@dataclass(frozen=True)
class Choosy(Mistaken):
    """No mistake either, but it needs many rows."""

    name: ClassVar[str] = "choosy"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        if private.counts.total < 1000:
            raise NotApplicable("it needs 1000 rows")
        return class_means(private, spec, rng)


@final
@dataclass(frozen=True)
class Averse(Mistaken):
    """Gets worse with a larger budget: it exchanges the labels then."""

    name: ClassVar[str] = "averse"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        release = class_means(private, spec, rng)
        assert release.rows is not None and spec.budget is not None
        if spec.budget.epsilon < 20:
            return release
        values = release.rows.values[::-1]
        return Release(Rows(values, release.rows.labels), claim=release.claim)


@final
@dataclass(frozen=True)
class Unwritable(Mistaken):
    """A hyperparameter that no table can hold."""

    name: ClassVar[str] = "unwritable"
    scale: complex = field(default=1j)


@final
@dataclass(frozen=True)
class Copies(Mistaken):
    """One released row is a private one: the one furthest out."""

    name: ClassVar[str] = "copies"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        release = class_means(private, spec, rng)
        assert release.rows is not None
        values = np.array(release.rows.values)
        rows = private._rows.values
        values[0] = rows[np.argmax(np.linalg.norm(rows, axis=1))]
        return Release(Rows(values, release.rows.labels), claim=release.claim)
