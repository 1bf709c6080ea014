"""What a reader of a dossier should look at, and what the guarantee takes for granted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from bench.leaderboard.dossier import attacks, privacy, words
from bench.leaderboard.dossier.composition import Composition
from bench.leaderboard.dossier.material import Material, PublicFacts
from bench.results.records import CellRow

_LITTLE = 5.0
"""From this epsilon on, the page says that the bound alone excludes little: whoever starts from a
coin toss may then be right in more than 99% of cases."""


@final
@dataclass(frozen=True)
class Delta:
    """Delta against the number of rows."""

    text: str
    too_large: bool


def delta_against(row: CellRow, facts: PublicFacts | None) -> Delta:
    """Delta should be below 1/(10 n), n the declared number of training rows."""
    warned = "above 1/(10 n)" in row.warnings
    given = f"Delta is {row.delta:g} ({words.chance(row.delta)})"
    if row.private_counts:
        return Delta(
            f"{given}. The number of training rows is not declared here, since counts were paid "
            "for: check that delta is below 1/(10 n).",
            warned,
        )
    rows = 0 if facts is None else sum(facts.training_rows)
    if rows < 1:
        text = f"{given}. The number of training rows is not known here."
        return Delta(text + (f" The run warned: {row.warnings}." if warned else ""), warned)
    limit = 1 / (10 * rows)
    if row.delta > limit:
        return Delta(
            f"{given}, which is too large for {rows:,} training rows: it should be below "
            f"1/(10 n) = {limit:.2g}. A procedure with too large a delta may publish whole rows of "
            "a few people and still keep its promise.",
            True,
        )
    return Delta(
        f"{given}, below 1/(10 n) = {limit:.2g} for the {rows:,} declared training rows.", warned
    )


def points(
    material: Material,
    replayed: privacy.Replay,
    delta: Delta,
    assessed: tuple[attacks.Assessed, ...],
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


def _readable(assessed: tuple[attacks.Assessed, ...]) -> int:
    return sum(item.tone != "absent" for one in assessed for item in one.findings)


def assumptions(material: Material, unit: words.Unit, replayed: privacy.Replay) -> Iterator[str]:
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
