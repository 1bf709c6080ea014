"""The schema section of a dossier: what the guarantee takes for public, and who stands for it.

Columns, bounds and categories are those that the run recorded when the release was made. For a
user's own table the section also says what had been proposed from the rows: a bound that was then
accepted as it was deserves a second look.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from bench.data.provenance import SchemaSources, facts_in_words, is_public
from bench.errors import BenchError
from bench.plugins.description import OWN_TABLE, ColumnDescription, DatasetDescription
from bench.plugins.user_tables import own_table
from bench.results.reading import read_descriptions
from bench.results.records import CellRow

_SHOWN = 200
"""Columns that the section lists."""


@final
@dataclass(frozen=True)
class SchemaLine:
    """One column as the release took it for public."""

    name: str
    role: str
    declared: str
    source: str
    public: bool
    """False where nobody stands for it: it was read off the rows."""
    proposed: str = ""
    """What had been proposed from the rows, compared with it; empty where nothing is on record."""


@final
@dataclass(frozen=True)
class SchemaFacts:
    """What a run recorded about the schema of a release."""

    lines: tuple[SchemaLine, ...]
    columns: int
    own: bool
    """True for a user's own table."""
    unread: bool = False
    """True where the record of what the rows proposed is not in the data folder."""

    @property
    def more(self) -> int:
        """Columns that are not listed."""
        return self.columns - len(self.lines)

    @property
    def from_rows(self) -> int:
        """Listed columns that nobody stands for."""
        return sum(not line.public for line in self.lines)

    @property
    def as_proposed(self) -> int:
        """Columns that somebody stands for and that are as the rows proposed them."""
        return sum(line.public and line.proposed == AS_PROPOSED for line in self.lines)


AS_PROPOSED = "as proposed from the rows"
_CHANGED = "not as proposed from the rows"
UNREAD = "not known here"


def schema_facts(directory: Path, row: CellRow) -> SchemaFacts | None:
    """Return the schema of a release; None where the run does not record it."""
    try:
        known = read_descriptions(directory)
    except BenchError:
        return None
    described = [] if known is None else [one for one in known.datasets if _is_of(one, row)]
    if not described:
        return None
    dataset = described[0]
    # By what the run recorded: the data folder may be another one, or not there, and bounds that
    # were read off the rows must not pass for public then.
    own = dataset.origin == OWN_TABLE
    recorded = _recorded(row) if own else None
    lines = tuple(_line(column, own, recorded) for column in dataset.columns[:_SHOWN])
    return SchemaFacts(lines, dataset.column_count, own, own and recorded is None)


def without_proposals(facts: SchemaFacts) -> SchemaFacts:
    """Return the section for a public page: a proposal that was not accepted is about the rows."""
    lines = tuple(
        SchemaLine(
            line.name,
            line.role,
            # What was read off the rows is not for everybody.
            line.declared if line.public or not facts.own else "(read off the rows)",
            line.source,
            line.public,
            line.proposed if line.proposed in ("", AS_PROPOSED, UNREAD) else _CHANGED,
        )
        for line in facts.lines
    )
    return SchemaFacts(lines, facts.columns, facts.own, facts.unread)


def _is_of(dataset: DatasetDescription, row: CellRow) -> bool:
    try:
        same = json.loads(dataset.parameters or "{}") == json.loads(row.dataset_parameters or "{}")
    except ValueError:
        return False
    return same and dataset.name == (row.dataset_name or row.dataset)


def _recorded(row: CellRow) -> SchemaSources | None:
    """Return the sources on record of a user's own table; None where its folder is not here."""
    try:
        return own_table(row.dataset_name or row.dataset).sources()
    except BenchError:
        return None


def _line(column: ColumnDescription, own: bool, recorded: SchemaSources | None) -> SchemaLine:
    declared = _facts(column)
    more = column.category_count - len(column.categories)
    text = facts_in_words(declared) + (f" and {more:,} more" if more > 0 else "")
    if not own:
        source = column.source or "declared in the dataset's file"
        return SchemaLine(column.name, column.role, text, source, True)
    proposal = None if recorded is None else recorded.proposal(column.name)
    proposed = UNREAD if recorded is None else ""
    if proposal is not None:
        plain = {key: value for key, value in proposal.items() if key in declared}
        same = plain == declared
        proposed = AS_PROPOSED if same else f"the rows proposed: {facts_in_words(proposal)}"
    source = column.source or "no source on record"
    return SchemaLine(column.name, column.role, text, source, is_public(source), proposed)


def _facts(column: ColumnDescription) -> Mapping[str, Any]:
    """Return the facts of `provenance.facts_of`, as far as a run records them."""
    written = {"decimal": True} if column.decimal else {}
    if column.low is not None and column.high is not None:
        kind = "integer" if column.kind == "whole number" else "number"
        bounds = {"low": float(column.low), "high": float(column.high)}
        return {"kind": kind, **bounds, "missing": column.missing, **written}
    kind = "ordinal" if column.ordered else "category"
    return {"kind": kind, "categories": list(column.categories), **written}
