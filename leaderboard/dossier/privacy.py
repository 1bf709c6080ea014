"""The guarantee in a dossier: replay of the ledger, conclusion, composition of releases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from bench.leaderboard.dossier import words
from bench.leaderboard.dossier.words import LedgerStep, steps
from bench.privacy.accounting import Proof
from bench.results.integrity import (
    UNREADABLE_DIGESTS,
    Ledgers,
    Stated,
    contradictions,
    other_file,
    recorded_digests,
)
from bench.results.records import CellRow, Status
from bench.results.verdicts import Verdict

_REFUTED = (Verdict.CLAIM_REFUTED, Verdict.PROOF_REFUTED)


@final
@dataclass(frozen=True)
class LedgerReplay:
    """The ledger, read and accounted again."""

    proof: Proof | None
    steps: tuple[LedgerStep, ...]
    problems: tuple[str, ...]
    """Inconsistencies between the ledger and the result row, which prevent a conclusion."""


def replay(
    row: CellRow, text: str | None, digests: Mapping[str, str] | None = None
) -> LedgerReplay:
    """Account the ledger file again and compare it with the row of the result table.

    `digests` are those of the files of the release, which the row has too.
    """
    if text is None:
        return LedgerReplay(
            None, (), ("The ledger of this release is missing: nothing can be checked.",)
        )
    found = Ledgers().replay(text)
    if found.ledger is None or found.proof is None:
        problem = f"The ledger of this release cannot be replayed: {found.problem}."
        return LedgerReplay(None, (), (problem,))
    recorded = recorded_digests(row.release_hashes)
    altered = [] if recorded is not None else [UNREADABLE_DIGESTS]
    if recorded:
        altered += [
            other_file(name)
            for name, digest in (digests or {}).items()
            if name not in recorded or recorded[name].sha256 != digest
        ]
    problems = [*altered, *contradictions(Stated.of(row), found.ledger, found.proof)]
    if (
        verdict_of(row) not in _REFUTED
        and row.eps_audited is not None
        and row.eps_audited > found.proof.epsilon
    ):
        problems.append(
            f"An attack measured epsilon {row.eps_audited:.6g}, more than the ledger proves, "
            f"but the verdict is '{row.verdict}'."
        )
    return LedgerReplay(found.proof, steps(found.ledger), tuple(problems))


def checked_row(row: CellRow, replayed: LedgerReplay) -> CellRow:
    """Return the row with the verdict that the ledger leaves of it, as on the leaderboard."""
    if not replayed.problems:
        return row
    reason = " ".join(replayed.problems).removesuffix(".")
    if replayed.proof is not None:
        verdict = Verdict.TAMPERED.value
    elif row.verdict.startswith(Verdict.SOUND.value):
        verdict = Verdict.UNPROVEN.value
    else:
        return row
    return replace(row, verdict=verdict, verdict_reason=reason, eps_proven=math.inf)


# The verdict ------------------------------------------------------------------------------------


def verdict_of(row: CellRow) -> Verdict | None:
    """Return the verdict without the trusted library; None if it is unknown."""
    if row.verdict.startswith(Verdict.SOUND_TRUSTING.value):
        return Verdict.SOUND_TRUSTING
    return next((known for known in Verdict if known.value == row.verdict), None)


@final
@dataclass(frozen=True)
class ReleaseConclusion:
    """The conclusion, or why there is none. `tone` styles its box: plain, bad or study."""

    text: str
    tone: str
    drawn: bool
    head: str = "Conclusion"
    """Headline of the box: what a reader must not miss."""


def conclude(row: CellRow, replayed: LedgerReplay, unit: words.PrivacyUnit) -> ReleaseConclusion:
    """Return a conclusion that the evidence supports; none for inconsistencies or seeded noise.

    What is wrong with a release whatever its noise comes first: secret noise would change nothing
    about rows that were read without any.
    """
    verdict = verdict_of(row)
    if replayed.problems or replayed.proof is None or verdict is None:
        return ReleaseConclusion(
            "No conclusion can be drawn from this page: the files of the run are inconsistent or "
            "cannot be read. See the section on the ledger.",
            "bad",
            False,
            "No conclusion",
        )
    if verdict not in (Verdict.SOUND, Verdict.SOUND_TRUSTING):
        return _warning(row, verdict)
    if row.study_only:
        return ReleaseConclusion(
            "No conclusion can be drawn from this page. The release was made for study only: its "
            "noise is seeded so that it can be repeated, and anyone who knows the seed and the "
            "code can compute the noise and subtract it. The page shows what the guarantee would "
            "be with secret noise. Use --secure-noise for a release that may be published.",
            "study",
            False,
            "No conclusion",
        )
    return _bound(row, replayed.proof, unit)


def _warning(row: CellRow, verdict: Verdict) -> ReleaseConclusion:
    """Return the conclusion about a release whose privacy is absent, unproven or refuted."""
    if verdict is Verdict.NON_PRIVATE:
        head = "Not private"
        text = (
            "This release is not differentially private, and its method does not claim it: treat "
            f"it like the private rows themselves ({row.verdict_reason})."
        )
    elif verdict is Verdict.UNPROVEN:
        head = "Privacy not proven"
        text = (
            f"The privacy of this release is not proven: it {row.verdict_reason}."
            if row.verdict_reason.startswith("claims ")
            else f"The privacy of this release is not as requested: {row.verdict_reason}."
        )
    else:
        head = "Privacy refuted"
        what = "claim" if verdict is Verdict.CLAIM_REFUTED else "proof"
        text = f"An attack has refuted the privacy {what} of this release: {row.verdict_reason}."
    if row.study_only:
        text += " Besides, it was made for study only, with seeded noise; secret noise would not "
        text += "change this conclusion."
    return ReleaseConclusion(text, "bad", True, head)


def _bound(row: CellRow, proof: Proof, unit: words.PrivacyUnit) -> ReleaseConclusion:
    """Return the conclusion about a sound release."""
    condition = (
        "If the schema is public knowledge"
        if row.private_counts
        else "If the declared counts and the schema are public knowledge"
    )
    if proof.trust:
        condition += f", and {' and '.join(proof.trust)} works as documented"
    return ReleaseConclusion(
        f"{condition}, this release alone can increase the odds that a given {unit.name} is "
        "identified as part of the data by a factor of at most "
        f"{words.factor(proof.epsilon)} (epsilon {words.bound(proof.epsilon)}), except with "
        f"probability {words.chance(proof.delta)} (delta).",
        "plain",
        True,
    )


# Several releases of one dataset ------------------------------------------------------------------


@final
@dataclass(frozen=True)
class ReleaseGroup:
    """Releases of one method at one IPC and target."""

    method: str
    ipc: str
    target: float | None
    seeds: tuple[int, ...]
    epsilon: float
    """Sum of their proven epsilons; infinite if one has no bound."""
    this: bool


@final
@dataclass(frozen=True)
class Composition:
    """Total budget of all releases of a dataset in this run (basic composition)."""

    groups: tuple[ReleaseGroup, ...]
    bounded: int
    epsilon: float
    """Sum of the finite proven epsilons and of the targets of lost cells."""
    delta: float
    unbounded: int
    """Number of releases without a bound, which are not in the sum."""
    other_unit: int
    """Number of releases with another unit of privacy."""
    lost: int
    """Number of cells that were started without a release; charged with their target."""
    unknown: int
    """Number of cells that were started without any result."""
    repeats: int
    """Number of releases that differ from this one only in the seed, including itself."""


def compose(row: CellRow, cells: Sequence[CellRow], charged: frozenset[str]) -> Composition:
    """Compose the releases of the dataset of a row that were made with the same kind of noise.

    Basic composition: epsilons and deltas add, also under adaptive choices (Dwork and Roth 2014,
    theorem 3.16). Other splits and parameters of the dataset count too, since the people are the
    same, and so does a release whose metrics failed.
    """
    alike = [
        cell
        for cell in cells
        if _source(cell) == _source(row) and cell.study_only == row.study_only
    ]
    made = [cell for cell in alike if _made(cell)]
    same_unit = [cell for cell in made if cell.unit == row.unit]
    bounded = [cell for cell in same_unit if math.isfinite(_trusted_bound(cell))]
    # Started but not finished: the budget stays charged, whatever became of the output.
    lost = [
        cell
        for cell in alike
        if not _made(cell) and cell.key in charged and cell.eps_target is not None
    ]
    return Composition(
        groups=_groups(row, same_unit),
        bounded=len(bounded),
        epsilon=_total(
            [_trusted_bound(cell) for cell in bounded] + [cell.eps_target or 0.0 for cell in lost]
        ),
        delta=_total(cell.delta for cell in [*bounded, *lost]),
        unbounded=len(same_unit) - len(bounded),
        other_unit=len(made) - len(same_unit),
        lost=len(lost),
        unknown=len(charged - {cell.key for cell in cells}),
        repeats=sum(_setting(cell) == _setting(row) for cell in made),
    )


def ipc_in_words(row: CellRow) -> str:
    """Return the requested number of rows in words."""
    if row.full_size:
        return "as many rows as the training table"
    return "size set by the method" if row.ipc is None else f"{row.ipc:,} rows per class"


def _source(cell: CellRow) -> str:
    return cell.dataset_name or cell.dataset


def _made(cell: CellRow) -> bool:
    return cell.status == Status.OK or cell.eps_proven is not None


def _trusted_bound(cell: CellRow) -> float:
    """Return the proven epsilon; infinite if an attack has refuted it or it was tampered with."""
    unproven = (Verdict.PROOF_REFUTED, Verdict.TAMPERED)
    if cell.eps_proven is None or verdict_of(cell) in unproven:
        return math.inf
    return cell.eps_proven


def _setting(cell: CellRow) -> tuple[object, ...]:
    return (
        cell.method,
        cell.parameters,
        cell.dataset,
        cell.ipc,
        cell.full_size,
        cell.eps_target,
        cell.delta,
        cell.unit,
        cell.private_counts,
    )


def _total(values: Iterable[float]) -> float:
    """Return the exact sum; infinite where it is beyond the numbers, as those of strangers are."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def _groups(row: CellRow, cells: Sequence[CellRow]) -> tuple[ReleaseGroup, ...]:
    groups: dict[tuple[object, ...], list[CellRow]] = {}
    for cell in cells:
        groups.setdefault((cell.label, *_setting(cell)), []).append(cell)
    return tuple(
        ReleaseGroup(
            method=members[0].label,
            ipc=ipc_in_words(members[0]),
            target=members[0].eps_target,
            seeds=tuple(sorted({cell.seed for cell in members})),
            epsilon=_total(_trusted_bound(cell) for cell in members),
            this=any(cell.key == row.key for cell in members),
        )
        for members in groups.values()
    )
