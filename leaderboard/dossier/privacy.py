"""What a dossier says about the guarantee: the ledger replayed, the verdict, the four numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from bench.errors import BenchError
from bench.leaderboard.dossier import words
from bench.leaderboard.dossier.words import LedgerStep, steps
from bench.plugins.release import Claim
from bench.privacy.accounting import Budget, Proof
from bench.privacy.ledger import Ledger
from bench.results.records import CellRow, Status
from bench.results.verdicts import Verdict, judge

_AGREES = 1e-6
"""Relative difference that another machine's arithmetic may make."""

_REFUTED = (Verdict.CLAIM_REFUTED, Verdict.PROOF_REFUTED)


@final
@dataclass(frozen=True)
class LedgerReplay:
    """The ledger, read and accounted here and now."""

    proof: Proof | None
    steps: tuple[LedgerStep, ...]
    problems: tuple[str, ...]
    """Contradictions between the ledger and the result row; nothing may be concluded then."""


def replay(row: CellRow, text: str | None) -> LedgerReplay:
    """Account the ledger file anew and compare with the row of the result table."""
    if text is None:
        return LedgerReplay(
            None, (), ("The ledger of this release is missing: nothing can be checked.",)
        )
    try:
        ledger = Ledger.from_json(text)
        proof = ledger.proof()
    except (BenchError, RecursionError, ArithmeticError) as problem:
        return LedgerReplay(
            None, (), (f"The ledger of this release cannot be replayed: {problem}.",)
        )
    return LedgerReplay(proof, steps(ledger), tuple(_contradictions(row, ledger, proof)))


def _contradictions(row: CellRow, ledger: Ledger, proof: Proof) -> Iterable[str]:
    if not _same(proof.epsilon, row.eps_proven):
        yield (
            f"The ledger proves epsilon {_exact(proof.epsilon)}, the result table says "
            f"{_exact(row.eps_proven)}."
        )
    if not _same(proof.delta, row.delta):
        yield f"The ledger is for delta {proof.delta:g}, the result table says {row.delta:g}."
    if ledger.unit != row.unit:
        yield (
            f"The ledger protects each {ledger.unit or '(nothing)'}, the result table says "
            f"{row.unit or '(nothing)'}."
        )
    target = None if ledger.budget is None else ledger.budget.epsilon
    if not _same(target, row.eps_target):
        yield (
            f"The ledger was kept for a target of {_exact(target)}, the result table says "
            f"{_exact(row.eps_target)}."
        )
    budget = None if row.eps_target is None else Budget(row.eps_target, row.delta)
    claim = None if row.eps_claimed is None else Claim(row.eps_claimed, row.delta, row.claim_source)
    if verdict_of(row) in _REFUTED:
        return  # by an attack, which the ledger knows nothing about
    judged = judge(budget, claim, proof)
    if judged.text != row.verdict:
        yield (
            f"From the ledger the verdict is '{judged.text}', the result table says "
            f"'{row.verdict}'."
        )
    if row.eps_audited is not None and row.eps_audited > proof.epsilon:
        yield (
            f"An attack has shown epsilon {_exact(row.eps_audited)}, more than the ledger proves, "
            f"and yet the verdict is '{row.verdict}'."
        )


def _same(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return first == second or math.isclose(first, second, rel_tol=_AGREES)


def _exact(value: float | None) -> str:
    if value is None:
        return "none"
    return "infinite" if math.isinf(value) else f"{value:.6g}"


# The verdict ------------------------------------------------------------------------------------


def verdict_of(row: CellRow) -> Verdict | None:
    """The verdict without the trusted library; None for one that this version does not know."""
    if row.verdict.startswith(Verdict.SOUND_TRUSTING.value):
        return Verdict.SOUND_TRUSTING
    return next((known for known in Verdict if known.value == row.verdict), None)


@final
@dataclass(frozen=True)
class ReleaseConclusion:
    """The one sentence, or why there is none. `tone` is that of the box: plain, bad or study."""

    text: str
    tone: str
    drawn: bool


def conclude(row: CellRow, replayed: LedgerReplay, unit: words.PrivacyUnit) -> ReleaseConclusion:
    """Never more than the evidence; nothing from seeded noise, nothing from a contradiction."""
    if row.study_only:
        return ReleaseConclusion(
            "No conclusion can be drawn from this page. The release was made for study only: its "
            "noise follows from a seed, so that it can be repeated, and whoever knows the seed "
            "and the code can compute the noise and subtract it. What a guarantee would be worth "
            "can be read below. A release that may be decided about is made with --secure-noise.",
            "study",
            False,
        )
    verdict = verdict_of(row)
    if replayed.problems or replayed.proof is None or verdict is None:
        return ReleaseConclusion(
            "No conclusion can be drawn from this page: the files of the run contradict each "
            "other, or cannot be read. See the section on the ledger.",
            "bad",
            False,
        )
    return _sentence(row, verdict, replayed.proof, unit)


def _sentence(
    row: CellRow, verdict: Verdict, proof: Proof, unit: words.PrivacyUnit
) -> ReleaseConclusion:
    if verdict is Verdict.NON_PRIVATE:
        return ReleaseConclusion(
            "This release has no differential privacy, and its method claims none: treat it like "
            f"the private rows themselves ({row.verdict_reason}).",
            "bad",
            True,
        )
    if verdict is Verdict.UNPROVEN:
        return ReleaseConclusion(
            f"The privacy of this release is not shown: it {row.verdict_reason}."
            if row.verdict_reason.startswith("claims ")
            else f"The privacy of this release is not as asked for: {row.verdict_reason}.",
            "bad",
            True,
        )
    if verdict in _REFUTED:
        what = "claim" if verdict is Verdict.CLAIM_REFUTED else "proof"
        return ReleaseConclusion(
            f"An attack has refuted the {what} of privacy behind this release: "
            f"{row.verdict_reason}.",
            "bad",
            True,
        )
    condition = (
        "If the schema is public knowledge"
        if row.private_counts
        else "If the declared counts and the schema are public knowledge"
    )
    if proof.trust:
        condition += f", and {' and '.join(proof.trust)} does what its documentation says"
    return ReleaseConclusion(
        f"{condition}, then this release alone can raise the odds that a given {unit.name} is "
        "recognised as having been in the data by a factor of at most "
        f"{words.factor(proof.epsilon)} (epsilon {words.bound(proof.epsilon)}), apart from a "
        f"probability of {words.chance(proof.delta)} (delta).",
        "plain",
        True,
    )


# Several releases of one dataset ------------------------------------------------------------------


@final
@dataclass(frozen=True)
class ReleaseGroup:
    """Releases of one method with one IPC and one target."""

    method: str
    ipc: str
    target: float | None
    seeds: tuple[int, ...]
    epsilon: float
    """Their proven epsilons added up; infinite where one has no bound."""
    this: bool


@final
@dataclass(frozen=True)
class Composition:
    """What all releases of a dataset in this run spend together (basic composition)."""

    groups: tuple[ReleaseGroup, ...]
    bounded: int
    epsilon: float
    """Sum of the proven epsilons that are finite, and of the targets of lost cells."""
    delta: float
    unbounded: int
    """Releases without any bound: none of them is in the sum."""
    other_unit: int
    """Releases that protect something else: their epsilons are of another kind."""
    lost: int
    """Cells with secure noise that were started and gave no release; charged with their target."""
    unknown: int
    """Cells that were started and of which nothing else is known."""
    repeats: int
    """Releases that differ from this one in the seed only, itself included."""


def compose(row: CellRow, cells: Sequence[CellRow], charged: frozenset[str]) -> Composition:
    """Add up the releases of the row's dataset that were made with the same kind of noise.

    Basic composition: epsilons and deltas add, whatever was chosen in the light of what (Dwork and
    Roth 2014, theorem 3.16). Other splits and parameters of the dataset count too: the people are
    the same. A release whose metrics failed afterwards exists and counts as well.
    """
    alike = [
        cell
        for cell in cells
        if _source(cell) == _source(row) and cell.study_only == row.study_only
    ]
    made = [cell for cell in alike if _made(cell)]
    own = [cell for cell in made if cell.unit == row.unit]
    bounded = [cell for cell in own if math.isfinite(_trusted_bound(cell))]
    # Started and not finished: the harness keeps it charged, whatever became of its output.
    lost = [
        cell
        for cell in alike
        if not _made(cell) and cell.key in charged and cell.eps_target is not None
    ]
    return Composition(
        groups=_groups(row, own),
        bounded=len(bounded),
        epsilon=math.fsum(
            [_trusted_bound(cell) for cell in bounded] + [cell.eps_target or 0.0 for cell in lost]
        ),
        delta=math.fsum(cell.delta for cell in [*bounded, *lost]),
        unbounded=len(own) - len(bounded),
        other_unit=len(made) - len(own),
        lost=len(lost),
        unknown=len(charged - {cell.key for cell in cells}),
        repeats=sum(_setting(cell) == _setting(row) for cell in made),
    )


def ipc_in_words(row: CellRow) -> str:
    """How large a release was asked for."""
    if row.full_size:
        return "as many rows as the training table"
    return "the method's own size" if row.ipc is None else f"{row.ipc:,} rows per class"


def _source(cell: CellRow) -> str:
    return cell.dataset_name or cell.dataset


def _made(cell: CellRow) -> bool:
    return cell.status == Status.OK or cell.eps_proven is not None


def _trusted_bound(cell: CellRow) -> float:
    """The proven epsilon; infinite where an attack has refuted it."""
    if cell.eps_proven is None or verdict_of(cell) is Verdict.PROOF_REFUTED:
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


def _groups(row: CellRow, cells: Sequence[CellRow]) -> tuple[ReleaseGroup, ...]:
    found: dict[tuple[object, ...], list[CellRow]] = {}
    for cell in cells:
        found.setdefault((cell.label, *_setting(cell)), []).append(cell)
    return tuple(
        ReleaseGroup(
            method=own[0].label,
            ipc=ipc_in_words(own[0]),
            target=own[0].eps_target,
            seeds=tuple(sorted({cell.seed for cell in own})),
            epsilon=math.fsum(_trusted_bound(cell) for cell in own),
            this=any(cell.key == row.key for cell in own),
        )
        for own in found.values()
    )
