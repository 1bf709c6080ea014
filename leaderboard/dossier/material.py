"""What a dossier is written from: read from a run directory by `bench.engine.dossier_source`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from bench.leaderboard.dossier.attacks import KnownMetric
from bench.results.records import CellRow, ScoreRow


@final
@dataclass(frozen=True)
class FileDigest:
    """A file of the release, so that it can be recognised."""

    name: str
    size: int
    sha256: str


@final
@dataclass(frozen=True)
class ReleaseFiles:
    """What lies in `releases/<key>/`."""

    digests: tuple[FileDigest, ...]
    ledger: str | None
    columns: tuple[str, ...]
    by_class: tuple[int, ...]
    """Released rows of each class, by class code."""
    rows: int
    beside: tuple[str, ...] = ()
    """What every row carries beside its columns: weights, soft labels."""


@final
@dataclass(frozen=True)
class PublicFacts:
    """What the dataset's own file declares; nothing here was read off rows."""

    title: str
    classes: tuple[str, ...]
    training_rows: tuple[int, ...]
    """Declared training rows of each class."""
    label: str = ""
    """The column that tells the classes apart."""
    quasi_identifiers: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    simulated: bool = False
    inferred: bool = False

    def class_name(self, code: int) -> str:
        """`cens = 1`."""
        name = self.classes[code] if code < len(self.classes) else f"class {code}"
        return f"{self.label} = {name}" if self.label else name

    @property
    def counted(self) -> str:
        """The declared training rows of each class in words."""
        counts = enumerate(self.training_rows)
        return ", ".join(f"{self.class_name(code)}: {count:,}" for code, count in counts)


@final
@dataclass(frozen=True)
class Material:
    """Everything a dossier is written from."""

    run: str
    """Name of the run directory, without the path."""
    manifest: Mapping[str, Any]
    row: CellRow
    scores: tuple[ScoreRow, ...]
    cells: tuple[CellRow, ...]
    """All cells of the run."""
    files: ReleaseFiles
    facts: PublicFacts | None = None
    """None where the dataset's plugin is not installed here."""
    ceiling: tuple[ScoreRow, ...] = ()
    """Scores of the real training rows in this run, if it has them."""
    charged: frozenset[str] = frozenset()
    known: tuple[KnownMetric, ...] = ()
    method_title: str = ""
    """What the method calls itself; empty where its plugin is not installed here."""
