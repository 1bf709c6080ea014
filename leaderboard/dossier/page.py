"""The release dossier: one page by which a data-protection officer decides about one release.

Everything comes from a run directory and the public declarations of plugins; no private row is
read. What was computed from private rows is marked internal, and left out of a public page: the
scores with their reasons, and the cell's key and the dataset's fingerprint, which are hashes of
those rows. Somebody who knows all rows but one could test guesses of that row against such a hash.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from markupsafe import Markup

from bench.errors import StoreError
from bench.leaderboard.dossier import attacks, privacy, words
from bench.leaderboard.dossier import points as notes
from bench.leaderboard.dossier.composition import compose, size_of
from bench.leaderboard.dossier.material import Material
from bench.leaderboard.pages import shell
from bench.leaderboard.pages.show import ABSENT
from bench.results.records import CellRow

_SHOWN_GROUPS = 40
_SHOWN_COLUMNS = 60


@final
@dataclass(frozen=True)
class Fact:
    """A line of the header. `code` is set in a fixed-width type."""

    name: str
    text: str
    code: bool = False


def write_dossier(material: Material, output: Path, public: bool = False) -> None:
    """Write the page; a reader sees the old one or the new one, nothing between."""
    page = render(material, public)
    temporary = output.with_name(f".{output.name}.part")
    try:
        temporary.write_text(page, encoding="utf-8")
        os.replace(temporary, output)
    except OSError as problem:
        raise StoreError(
            f"{output}: the dossier cannot be written there ({problem.strerror}); give another -o"
        ) from None


def file_name(row: CellRow, public: bool) -> str:
    """A name that tells releases apart, without the key."""
    target = "" if row.eps_target is None else f"eps{row.eps_target:g}"
    size = "full" if row.full_size else "" if row.ipc is None else f"ipc{row.ipc}"
    parts = ["dossier", row.label, row.dataset, target, size, f"seed{row.seed}"]
    name = "-".join(part for part in [*parts, "public" if public else ""] if part)
    return re.sub(r"[^0-9A-Za-z._-]+", "_", name)[:150] + ".html"


def render(material: Material, public: bool = False) -> str:
    """The page as text."""
    row = material.row
    unit = words.unit_of(row.unit)
    replayed = privacy.replay(row, material.files.ledger)
    conclusion = privacy.conclude(row, replayed, unit)
    delta = notes.delta_against(row, material.facts)
    assessed = attacks.assess(material.scores)
    composed = compose(row, material.cells, material.charged)
    proven = None if replayed.proof is None else replayed.proof.epsilon
    template = shell.environment().get_template("dossier.html")
    return template.render(
        style=Markup(shell.asset("dossier.css")),
        public=public,
        row=row,
        unit=unit,
        facts=material.facts,
        header=_header(material, public),
        files=material.files,
        conclusion=conclusion,
        points=notes.points(material, replayed, delta, assessed, composed, public),
        adjacency=words.adjacency(row.adjacency, unit),
        numbers=privacy.four_numbers(row),
        verdict=privacy.verdict_of(row),
        proven=proven,
        bounded=proven is not None and proven < float("inf"),
        delta=delta,
        replayed=replayed,
        accountant=words.accountant(row.accountant),
        assessed=assessed,
        others=attacks.others(material.scores),
        quality=attacks.quality(row.task, material.scores, material.ceiling),
        untested=attacks.untested(material.known, row.task, material.scores),
        assumptions=notes.assumptions(material, unit, replayed),
        composed=composed,
        groups=composed.groups[:_SHOWN_GROUPS],
        glossary=words.GLOSSARY,
        words=words,
    )


# Header -----------------------------------------------------------------------------------------


def _header(material: Material, public: bool) -> tuple[Fact, ...]:
    row, files = material.row, material.files
    columns = words.several(len(files.columns), "column")
    found = [
        Fact("Method", _method(material)),
        Fact("Source of the method", f"hash {row.source_hash}", code=True),
        Fact("Dataset", _dataset(material)),
        Fact("Released", f"{words.several(files.rows, 'row')} with {columns}"),
        Fact("Columns", _listed(files.columns)),
        Fact("Rows of each class", _by_class(material)),
        Fact("Asked for", f"{size_of(row)}, seed {row.seed}, split {row.split}"),
        Fact("Made", _moment(row.finished_at)),
        Fact("Run", material.run),
        Fact("Software", _software(material)),
    ]
    if files.beside:
        found.insert(6, Fact("Beside the columns", ", ".join(files.beside)))
    if not public:
        found += [
            Fact("Command", str(material.manifest.get("command") or ABSENT), code=True),
            Fact("Cell", row.key, code=True),
            Fact("Fingerprint of the dataset", row.fingerprint or ABSENT, code=True),
        ]
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    """Names; of the pixels of an image the first ones."""
    more = len(names) - _SHOWN_COLUMNS
    tail = [f"and {more:,} more"] if more > 0 else []
    return ", ".join([*names[:_SHOWN_COLUMNS], *tail])


def _method(material: Material) -> str:
    row = material.row
    name = row.label if row.label == row.method else f"{row.label} ({row.method})"
    title = f": {material.method_title}" if material.method_title else ""
    return f"{name}{title}; {_parameters(row.parameters)}"


def _moment(text: str) -> str:
    """`2026-01-31 14:05 UTC`; other text as it is."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return text
    if moment.tzinfo is None:
        return text
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _parameters(text: str) -> str:
    try:
        given = json.loads(text)
    except ValueError:
        return f"parameters {text}"
    if not isinstance(given, dict) or not given:
        return "parameters as in its file"
    return ", ".join(f"{name} = {value}" for name, value in given.items())


def _dataset(material: Material) -> str:
    row, facts = material.row, material.facts
    given = _parameters(row.dataset_parameters)
    name = row.dataset + ("" if given == "parameters as in its file" else f" ({given})")
    if facts is None:
        return name
    return f"{name}: {facts.title}" + (" (simulated: nobody's data)" if facts.simulated else "")


def _by_class(material: Material) -> str:
    facts = material.facts
    shown = [
        f"{facts.class_name(code) if facts is not None else f'class {code}'}: {count:,}"
        for code, count in enumerate(material.files.by_class)
    ]
    return ", ".join(shown) or ABSENT


def _software(material: Material) -> str:
    parts = []
    try:
        versions = json.loads(material.row.versions)
    except ValueError:
        versions = {}
    if isinstance(versions, dict):
        named = ("dp-release-bench", "dp-accounting", "python")
        parts += [f"{name} {versions[name]}" for name in named if name in versions]
    commit = material.manifest.get("commit")
    if commit:
        changed = " with uncommitted changes" if material.manifest.get("dirty") else ""
        parts.append(f"source at commit {str(commit)[:12]}{changed}")
    return ", ".join(parts) or ABSENT
