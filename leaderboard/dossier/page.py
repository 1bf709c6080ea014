"""The release dossier: one page on which a data-protection officer bases a decision.

All contents come from a run directory and the public declarations of plugins; no private row is
read. What was computed from private rows is marked internal, and left out of a public page: scores
with their reasons, and the key of the cell and the fingerprint of the dataset, which are hashes of
these rows. Someone who knows all rows but one could test guesses of that row against such a hash.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from markupsafe import Markup

from bench.data.splits import ALL
from bench.leaderboard.charts.cell import figures
from bench.leaderboard.charts.chart import style_sheet, to_svg
from bench.leaderboard.dossier import attacks, privacy, words
from bench.leaderboard.dossier.cell import four_epsilons, parameters_in_words
from bench.leaderboard.dossier.material import Material, PublicFacts
from bench.leaderboard.dossier.privacy import Composition, compose, ipc_in_words
from bench.leaderboard.dossier.schema import SchemaFacts, without_proposals
from bench.leaderboard.tables import show
from bench.leaderboard.tables.details import CellFiles
from bench.leaderboard.tables.show import ABSENT
from bench.leaderboard.templates import rendering
from bench.plugins.method import UNKNOWN
from bench.results.records import CellRow
from bench.results.reproduce import json_object
from bench.results.writing import FOR_ALL, OWNER_ONLY, write_atomically, writing

_SHOWN_GROUPS = 40
_SHOWN_COLUMNS = 60


@final
@dataclass(frozen=True)
class HeaderLine:
    """A line of the header. `code` is set in a fixed-width font."""

    name: str
    text: str
    code: bool = False


def write_dossier(material: Material, output: Path, public: bool = False) -> None:
    """Write the page atomically; one with values computed from private rows for its owner only."""
    page = render(material, public)
    with writing(output, "or give another -o"):
        write_atomically(output, page.encode(), FOR_ALL if public else OWNER_ONLY)


def file_name(row: CellRow, public: bool, ending: str = "html") -> str:
    """Return a file name that identifies the release without its key."""
    target = "" if row.eps_target is None else f"eps{row.eps_target:g}"
    ipc = "full" if row.full_size else "" if row.ipc is None else f"ipc{row.ipc}"
    parts = ["dossier", row.label, row.dataset, target, ipc, f"seed{row.seed}"]
    name = "-".join(part for part in [*parts, "public" if public else ""] if part)
    return re.sub(r"[^0-9A-Za-z._-]+", "_", name)[:150] + f".{ending}"


def concluded(material: Material) -> privacy.ReleaseConclusion:
    """Return the conclusion of the page alone."""
    replayed, row = _replayed(material)
    return privacy.conclude(row, replayed, words.unit_of(row.unit))


def _replayed(material: Material) -> tuple[privacy.LedgerReplay, CellRow]:
    """Account the ledger again; return the row with the verdict that this leaves of it."""
    digests = {digest.name: digest.sha256 for digest in material.files.digests}
    replayed = privacy.replay(material.row, material.files.ledger, digests)
    return replayed, privacy.checked_row(material.row, replayed)


def render(material: Material, public: bool = False) -> str:
    """Return the page as text."""
    replayed, row = _replayed(material)
    unit = words.unit_of(row.unit)
    conclusion = privacy.conclude(row, replayed, unit)
    delta = delta_against(row, material.facts)
    assessed = attacks.assess(material.scores)
    composed = compose(row, material.cells, material.charged)
    proven = None if replayed.proof is None else replayed.proof.epsilon
    template = rendering.environment().get_template("dossier.html")
    return template.render(
        style=Markup(style_sheet(dark=False) + rendering.asset("dossier.css")),
        public=public,
        row=row,
        unit=unit,
        facts=material.facts,
        header=_header(material, public),
        files=material.files,
        conclusion=conclusion,
        points=points(material, replayed, delta, assessed, composed, public),
        adjacency=words.adjacency(row.adjacency, unit),
        epsilons=four_epsilons(row),
        verdict=privacy.verdict_of(row),
        proven=proven,
        bounded=proven is not None and proven < float("inf"),
        delta=delta,
        replayed=replayed,
        accountant=words.accountant(row.accountant),
        assessed=assessed,
        others=attacks.others(material.scores),
        quality=attacks.quality(row.task, material.scores, material.ceiling),
        figures=() if public else _figures(material),
        untested=attacks.untested(material.known, row.task, material.scores),
        assumptions=assumptions(material, unit, replayed),
        schema=schema_section(material, public),
        spending=str(material.manifest.get("spending") or ""),
        composed=composed,
        groups=composed.groups[:_SHOWN_GROUPS],
        glossary=words.GLOSSARY,
        words=words,
    )


_FIGURES = ("attacks", "closest", "roc", "survival")
"""Charts of the cell that the page shows: how exposed rows are, and how useful the release is."""


@final
@dataclass(frozen=True)
class DossierFigure:
    """A figure without scripts, so that it can be printed."""

    title: str
    text: str
    drawings: tuple[tuple[str, Markup], ...]
    """Each chart in words, and drawn."""
    lines: tuple[str, ...]


def _figures(material: Material) -> tuple[DossierFigure, ...]:
    found = figures(
        CellFiles(material.home, material.row.key), material.row.task, material.scores, ()
    )
    return tuple(
        DossierFigure(
            item.kind.title,
            item.figure.text,
            # Vega escapes all texts of a drawing.
            tuple((chart.text, Markup(to_svg(chart))) for chart in item.figure.charts),
            item.figure.lines,
        )
        for item in found
        if item.figure is not None and item.kind.name in _FIGURES
    )


# Header -----------------------------------------------------------------------------------------


def _header(material: Material, public: bool) -> tuple[HeaderLine, ...]:
    row, files = material.row, material.files
    columns = words.several(len(files.columns), "column")
    # A public page has the day only, as a public site does: the time would reveal the duration.
    created = row.finished_at[: len("2026-01-01")] if public else row.finished_at
    lines = [
        HeaderLine("Method", _method(material)),
        HeaderLine("Source of the method", f"hash {row.source_hash}", code=True),
        HeaderLine("Dataset", _dataset(material)),
        HeaderLine("Released", f"{words.several(files.rows, 'row')} with {columns}"),
        HeaderLine("Columns", _listed(files.columns)),
        HeaderLine("Rows per class", _by_class(material)),
        HeaderLine("Requested", f"{ipc_in_words(row)}, seed {row.seed}, split {row.split}"),
        HeaderLine("Created", show.moment(created)),
        HeaderLine("Run", material.run),
        HeaderLine("Software", _software(material)),
    ]
    exported = material.manifest.get("exported")
    if isinstance(exported, dict):
        name, digest = str(exported.get("file", "")), str(exported.get("sha256", ""))
        lines.append(HeaderLine("Given away as", f"{name}, SHA-256 {digest}", code=True))
    if files.beside:
        lines.insert(6, HeaderLine("Besides the columns", ", ".join(files.beside)))
    if not public:
        lines += [
            HeaderLine("Command", str(material.manifest.get("command") or ABSENT), code=True),
            HeaderLine("Cell", row.key, code=True),
            HeaderLine("Fingerprint of the dataset", row.fingerprint or ABSENT, code=True),
        ]
    return tuple(lines)


def _listed(names: Sequence[str]) -> str:
    """Return the names, truncated if there are many."""
    more = len(names) - _SHOWN_COLUMNS
    tail = [f"and {more:,} more"] if more > 0 else []
    return ", ".join([*names[:_SHOWN_COLUMNS], *tail])


def _method(material: Material) -> str:
    row = material.row
    name = row.label if row.label == row.method else f"{row.label} ({row.method})"
    title = f": {material.method_title}" if material.method_title else ""
    return f"{name}{title}; {parameters_in_words(row.parameters) or 'default parameters'}"


def _dataset(material: Material) -> str:
    row, facts = material.row, material.facts
    given = parameters_in_words(row.dataset_parameters)
    name = f"{row.dataset} ({given})" if given else row.dataset
    if facts is None:
        return name
    return f"{name}: {facts.title}" + (" (simulated)" if facts.simulated else "")


def _by_class(material: Material) -> str:
    facts = material.facts
    shown = [
        f"{facts.class_name(code) if facts is not None else f'class {code}'}: {count:,}"
        for code, count in enumerate(material.files.by_class)
    ]
    return ", ".join(shown) or ABSENT


def _software(material: Material) -> str:
    parts = []
    versions = json_object(material.row.versions)
    named = ("dp-release-bench", "dp-accounting", "python")
    parts += [f"{name} {versions[name]}" for name in named if name in versions]
    commit = material.manifest.get("commit")
    if commit:
        changed = " with uncommitted changes" if material.manifest.get("dirty") else ""
        parts.append(f"source at commit {str(commit)[:12]}{changed}")
    return ", ".join(parts) or ABSENT


# What to look at, and what is assumed -------------------------------------------------------------


_LITTLE = 5.0
"""From this epsilon on, the page warns that the bound excludes little: an attacker with a prior of
one half may then be correct in more than 99% of cases."""


@final
@dataclass(frozen=True)
class DeltaNote:
    """Delta compared with the number of rows."""

    text: str
    too_large: bool


def delta_against(row: CellRow, facts: PublicFacts | None) -> DeltaNote:
    """Compare delta with 1/(10 n), where n is the declared number of training rows."""
    warned = "above 1/(10 n)" in row.warnings
    given = f"Delta is {row.delta:g} ({words.chance(row.delta)})"
    if row.private_counts:
        return DeltaNote(
            f"{given}. The number of training rows is not declared, since counts are private: "
            "check that delta is below 1/(10 n).",
            warned,
        )
    rows = 0 if facts is None else sum(facts.training_rows)
    if rows < 1:
        text = f"{given}. The number of training rows is unknown."
        return DeltaNote(text + (f" The run warned: {row.warnings}." if warned else ""), warned)
    limit = 1 / (10 * rows)
    if row.delta > limit:
        return DeltaNote(
            f"{given}, which is too large for {rows:,} training rows: it should be below "
            f"1/(10 n) = {limit:.2g}. A mechanism with too large a delta may publish whole rows of "
            "a few people and still satisfy its guarantee.",
            True,
        )
    return DeltaNote(
        f"{given}, below 1/(10 n) = {limit:.2g} for the {rows:,} declared training rows.", warned
    )


def points(
    material: Material,
    replayed: privacy.LedgerReplay,
    delta: DeltaNote,
    assessed: tuple[attacks.AssessedRisk, ...],
    composed: Composition,
    public: bool,
) -> tuple[tuple[str, str], ...]:
    """Return what to check before deciding: (section, text)."""
    row = material.row
    proven = None if replayed.proof is None else replayed.proof.epsilon
    notes: list[tuple[str, str]] = [("ledger", text) for text in replayed.problems]
    bounded = proven is not None and math.isfinite(proven)
    if proven is not None and bounded and proven >= _LITTLE:
        right = words.right_guesses(proven, row.delta)
        notes.append(
            (
                "numbers",
                "At this epsilon the bound alone excludes little: an attacker with a prior of one "
                f"half may be correct in up to {right} of cases.",
            )
        )
    if bounded and delta.too_large:
        notes.append(("numbers", delta.text))
    if row.split == ALL:
        notes.append(
            (
                "untested",
                "Every row was used for training: no row was left to measure how useful or how "
                "attackable this release is. Such scores are those of another release, made "
                "with the usual split.",
            )
        )
    if row.eps_audited is None:
        notes.append(("untested", "The method was not audited."))
    loud = attacks.alarms(assessed)
    if loud and not public:
        names = ", ".join(item.metric for item in loud)
        notes.append(
            (
                "attacks",
                f"{words.several(len(loud), 'attack score')} above chance or a threshold: {names} "
                f"(of {_readable(assessed)}; about one in forty is above chance without a leak).",
            )
        )
    if composed.bounded + composed.unbounded > 1:
        text = "There are other releases of this dataset: their epsilons add up."
        notes.append(("several", text))
    if tuned_here(material):
        notes.append(
            ("assumptions", "The defaults of the method were chosen with this dataset in view.")
        )
    if material.manifest.get("dirty"):
        notes.append(
            ("released", "The source had uncommitted changes: the commit does not identify it.")
        )
    if material.facts is not None and material.facts.simulated:
        notes.append(("released", "The dataset is simulated: this page is an example."))
    return tuple(notes)


def schema_section(material: Material, public: bool) -> SchemaFacts | None:
    """Return the schema as the page shows it."""
    if material.schema is None or not public:
        return material.schema
    return without_proposals(material.schema)


def _readable(assessed: tuple[attacks.AssessedRisk, ...]) -> int:
    return sum(item.tone != "absent" for one in assessed for item in one.findings)


def tuned_here(material: Material) -> bool:
    """Return True where the method's defaults were chosen with this dataset in view."""
    row = material.row
    return (row.dataset_name or row.dataset) in material.tuned_on


def tuning(material: Material) -> str:
    """Return whether the method's defaults were chosen with this dataset in view."""
    defaults = "the default parameters of the method"
    others = [name for name in material.tuned_on if name != UNKNOWN]
    if tuned_here(material):
        return (
            f"Not met: {defaults} were chosen with this dataset in view, its rows or scores on "
            "them. That is an access to the rows that no epsilon on this page includes."
        )
    if UNKNOWN in material.tuned_on:
        known = f" On record are {', '.join(others)}." if others else ""
        return (
            f"{defaults.capitalize()} were not chosen with this dataset in view: this is assumed, "
            f"because it is not on record.{known}"
        )
    own = material.facts is not None and material.facts.own
    where = "on this table, the user's own" if own else "with this dataset in view"
    seen = f" In view were {', '.join(others)}." if others else ""
    return f"{defaults.capitalize()} were not chosen {where}.{seen}"


def assumptions(
    material: Material, unit: words.PrivacyUnit, replayed: privacy.LedgerReplay
) -> Iterator[str]:
    """Yield the assumptions of the guarantee, in sentences."""
    row, facts = material.row, material.facts
    yield (
        "The schema (columns, bounds, categories) is public, as a data dictionary is."
        if facts is None or not facts.inferred
        else "Bounds and categories were inferred from the rows: recorded as non-private access."
    )
    yield (
        "Counts of rows were not assumed to be known: they were estimated with noise."
        if row.private_counts
        else "The declared counts of training rows are public, in total, by class, by site and by "
        "client: the guarantee is conditional on them."
    )
    yield (
        "Noise is seeded (study only): the guarantee does not hold against anyone who knows the "
        "seed."
        if row.study_only
        else "Noise comes from the entropy of the operating system and was not stored."
    )
    yield (
        "Sums of rows are exact integers on a public grid, and their noise is sampled exactly, so "
        "that no last digit of an answer depends on a row. How long a computation takes is not "
        "protected, and trusted libraries compute in floating point."
    )
    yield (
        f"All rows are training rows; one {unit.name} more or less changes no other row."
        if row.split == ALL
        else "Each row is assigned to training or evaluation by a hash of that row alone: one "
        f"{unit.name} more or less in the table moves no other row."
    )
    yield (
        "The code of the method accesses private rows only through the harness, which guards "
        "against mistakes, not against malice: the code with the hash above is assumed to have "
        "been reviewed."
    )
    yield tuning(material)
    given = parameters_in_words(row.parameters)
    if given:
        yield (
            f"Parameters that were set for this run ({given}) were not chosen by looking at these "
            "rows: whoever set them has to know, it is not recorded."
        )
    if replayed.proof is not None:
        for library in replayed.proof.trust:
            yield f"{library} works as documented; its code is not proven here."
    yield (
        f"The guarantee is for one {unit.name}. For two related ones, such as relatives, the "
        "factor is squared, and so on."
    )
    yield (
        "Facts about the whole population (for instance, that smokers fall ill more often) can be "
        "learnt from any useful release; differential privacy does not hide them."
    )
    if row.warnings:
        yield f"The run warned: {row.warnings}."
