"""The release dossier: one page by which a data-protection officer decides about one release.

Everything comes from a run directory and the public declarations of plugins; no private row is
read. What was computed from private rows is marked internal, and left out of a public page: the
scores with their reasons, and the cell's key and the dataset's fingerprint, which are hashes of
those rows. Somebody who knows all rows but one could test guesses of that row against such a hash.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from markupsafe import Markup

from bench.errors import StoreError
from bench.leaderboard.dossier import attacks, privacy, words
from bench.leaderboard.dossier.cell import four_epsilons, parameters_in_words
from bench.leaderboard.dossier.material import Material, PublicFacts
from bench.leaderboard.dossier.privacy import Composition, compose, ipc_in_words
from bench.leaderboard.tables import show
from bench.leaderboard.tables.show import ABSENT
from bench.leaderboard.templates import rendering
from bench.results.records import CellRow
from bench.results.reproduce import table

_SHOWN_GROUPS = 40
_SHOWN_COLUMNS = 60


@final
@dataclass(frozen=True)
class HeaderLine:
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
    ipc = "full" if row.full_size else "" if row.ipc is None else f"ipc{row.ipc}"
    parts = ["dossier", row.label, row.dataset, target, ipc, f"seed{row.seed}"]
    name = "-".join(part for part in [*parts, "public" if public else ""] if part)
    return re.sub(r"[^0-9A-Za-z._-]+", "_", name)[:150] + ".html"


def render(material: Material, public: bool = False) -> str:
    """The page as text."""
    row = material.row
    unit = words.unit_of(row.unit)
    replayed = privacy.replay(row, material.files.ledger)
    conclusion = privacy.conclude(row, replayed, unit)
    delta = delta_against(row, material.facts)
    assessed = attacks.assess(material.scores)
    composed = compose(row, material.cells, material.charged)
    proven = None if replayed.proof is None else replayed.proof.epsilon
    template = rendering.environment().get_template("dossier.html")
    return template.render(
        style=Markup(rendering.asset("dossier.css")),
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
        untested=attacks.untested(material.known, row.task, material.scores),
        assumptions=assumptions(material, unit, replayed),
        composed=composed,
        groups=composed.groups[:_SHOWN_GROUPS],
        glossary=words.GLOSSARY,
        words=words,
    )


# Header -----------------------------------------------------------------------------------------


def _header(material: Material, public: bool) -> tuple[HeaderLine, ...]:
    row, files = material.row, material.files
    columns = words.several(len(files.columns), "column")
    found = [
        HeaderLine("Method", _method(material)),
        HeaderLine("Source of the method", f"hash {row.source_hash}", code=True),
        HeaderLine("Dataset", _dataset(material)),
        HeaderLine("Released", f"{words.several(files.rows, 'row')} with {columns}"),
        HeaderLine("Columns", _listed(files.columns)),
        HeaderLine("Rows of each class", _by_class(material)),
        HeaderLine("Asked for", f"{ipc_in_words(row)}, seed {row.seed}, split {row.split}"),
        HeaderLine("Made", show.moment(row.finished_at)),
        HeaderLine("Run", material.run),
        HeaderLine("Software", _software(material)),
    ]
    if files.beside:
        found.insert(6, HeaderLine("Beside the columns", ", ".join(files.beside)))
    if not public:
        found += [
            HeaderLine("Command", str(material.manifest.get("command") or ABSENT), code=True),
            HeaderLine("Cell", row.key, code=True),
            HeaderLine("Fingerprint of the dataset", row.fingerprint or ABSENT, code=True),
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
    return f"{name}{title}; {parameters_in_words(row.parameters) or 'default parameters'}"


def _dataset(material: Material) -> str:
    row, facts = material.row, material.facts
    given = parameters_in_words(row.dataset_parameters)
    name = f"{row.dataset} ({given})" if given else row.dataset
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
    versions = table(material.row.versions)
    named = ("dp-release-bench", "dp-accounting", "python")
    parts += [f"{name} {versions[name]}" for name in named if name in versions]
    commit = material.manifest.get("commit")
    if commit:
        changed = " with uncommitted changes" if material.manifest.get("dirty") else ""
        parts.append(f"source at commit {str(commit)[:12]}{changed}")
    return ", ".join(parts) or ABSENT


# What to look at, and what is assumed -------------------------------------------------------------


_LITTLE = 5.0
"""From this epsilon on, the page says that the bound alone excludes little: whoever starts from a
coin toss may then be right in more than 99% of cases."""


@final
@dataclass(frozen=True)
class DeltaNote:
    """Delta against the number of rows."""

    text: str
    too_large: bool


def delta_against(row: CellRow, facts: PublicFacts | None) -> DeltaNote:
    """Delta should be below 1/(10 n), n the declared number of training rows."""
    warned = "above 1/(10 n)" in row.warnings
    given = f"Delta is {row.delta:g} ({words.chance(row.delta)})"
    if row.private_counts:
        return DeltaNote(
            f"{given}. The number of training rows is not declared here, since counts were paid "
            "for: check that delta is below 1/(10 n).",
            warned,
        )
    rows = 0 if facts is None else sum(facts.training_rows)
    if rows < 1:
        text = f"{given}. The number of training rows is not known here."
        return DeltaNote(text + (f" The run warned: {row.warnings}." if warned else ""), warned)
    limit = 1 / (10 * rows)
    if row.delta > limit:
        return DeltaNote(
            f"{given}, which is too large for {rows:,} training rows: it should be below "
            f"1/(10 n) = {limit:.2g}. A procedure with too large a delta may publish whole rows of "
            "a few people and still keep its promise.",
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
    """What to look at before deciding: (section, text)."""
    row = material.row
    proven = None if replayed.proof is None else replayed.proof.epsilon
    found: list[tuple[str, str]] = [("ledger", text) for text in replayed.problems]
    bounded = proven is not None and math.isfinite(proven)
    if proven is not None and bounded and proven >= _LITTLE:
        right = words.right_guesses(proven, row.delta)
        found.append(
            (
                "numbers",
                "At this epsilon the bound alone excludes little: an attacker who starts from a "
                f"coin toss may be right in up to {right} of cases.",
            )
        )
    if bounded and delta.too_large:
        found.append(("numbers", delta.text))
    if row.eps_audited is None:
        found.append(("untested", "The method was not audited by an attack on itself."))
    loud = attacks.alarms(assessed)
    if loud and not public:
        names = ", ".join(item.metric for item in loud)
        found.append(
            (
                "attacks",
                f"{words.several(len(loud), 'attack score')} found something or "
                f"{'is' if len(loud) == 1 else 'are'} over a threshold: {names} (of "
                f"{_readable(assessed)}; about one in forty does so by chance).",
            )
        )
    if composed.bounded + composed.unbounded > 1:
        found.append(("several", "There are other releases of this dataset: they add up."))
    if material.manifest.get("dirty"):
        found.append(
            ("released", "The source had uncommitted changes: the commit does not tell all.")
        )
    if material.facts is not None and material.facts.simulated:
        found.append(("released", "The dataset is simulated: the page shows how one would look."))
    return tuple(found)


def _readable(assessed: tuple[attacks.AssessedRisk, ...]) -> int:
    return sum(item.tone != "absent" for one in assessed for item in one.findings)


def assumptions(
    material: Material, unit: words.PrivacyUnit, replayed: privacy.LedgerReplay
) -> Iterator[str]:
    """What must be true for the guarantee to hold, in sentences."""
    row, facts = material.row, material.facts
    yield (
        "The schema (columns, bounds, categories) is public, as a data dictionary is."
        if facts is None or not facts.inferred
        else "Bounds and categories were read off the rows: recorded as a look without noise."
    )
    yield (
        "Counts of rows were not assumed to be known: they were paid for with noise."
        if row.private_counts
        else "The declared counts of training rows are public, in total, by class, by site and by "
        "client: the guarantee is conditional on them."
    )
    yield (
        "Noise follows from a seed (study only): the guarantee does not hold against whoever knows "
        "the seed."
        if row.study_only
        else "Noise comes from the operating system's entropy, and nobody has kept it."
    )
    yield (
        "The proof is about exact arithmetic; noise is drawn as floating-point numbers, and "
        "attacks on their last digits are not addressed."
    )
    yield (
        "The method's code goes through the harness for every private row. The harness guards "
        "against mistakes, not against malice: it is taken for granted that somebody has read the "
        "code with the hash above."
    )
    yield "Parameters of the method were not chosen by looking at these rows."
    if replayed.proof is not None:
        for library in replayed.proof.trust:
            yield f"{library} does what its documentation says; its code was not proven here."
    yield (
        f"The promise is for one {unit.name}. For two that belong together, such as relatives, the "
        "factor is squared, and so on."
    )
    yield (
        "What is true of the whole population (for instance, that smokers fall ill more often) may "
        "be learnt from any useful release, and is not what differential privacy hides."
    )
    if row.warnings:
        yield f"The run warned: {row.warnings}."
