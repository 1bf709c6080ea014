"""What the audits of a run directory refute together.

*When a number is refuted.* A number (claimed or proven) is refuted when

1. the first run's p-value is below alpha,
2. and so is the p-value of a replication with fresh seeds, after Holm's correction over all
   methods audited. A method is (name, parameters, source hash), whatever datasets and epsilons it
   was audited on; one that was not replicated counts with p = 1. Of a method with k replicated
   audits, each p-value is first multiplied by k (Bonferroni).

*Error controlled.* Call a method innocent if all its claimed numbers that were audited hold.
Replications are independent of first runs, so given those the replications' p-values are valid,
and which were replicated is fixed. Holm keeps the probability that **any** innocent method's claim
is refuted at most alpha, whatever the dependence between methods. Since the first run of that
audit must have erred too, it is at most alpha^2 (by the union bound over its audits). The same
holds for proofs, separately. For a method that is not innocent the correction implies that some
number is wrong; which one follows from its audits at level alpha for this method alone.

Not covered: picking which audits to show after looking (`audits` must hold all that were run), and
trials that are not independent. An audit that did not finish is not counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from bench.errors import InputError
from bench.results.records import AuditRow, CellRow, Outcome
from bench.stats.inference import holm

_Method = tuple[str, str, str]
_Finished = tuple[CellRow, AuditRow]


@final
@dataclass(frozen=True)
class Refutation:
    """What one audit refutes, after correction for all methods."""

    claim: bool
    proof: bool
    p_claim: float
    """p-value of the replication, corrected; 1 where there was none."""
    p_proof: float
    methods: int
    """Number of methods that the correction is over."""
    audited: float | None
    """Bound for `bench.results.verdicts.judge`: it exceeds the refuted number, and no number that
    is not refuted; None where nothing is."""


def refutations(audits: Sequence[Outcome], alpha: float = 0.05) -> Mapping[str, Refutation]:
    """Return what all finished audits together refute, by cell key (see the module docstring)."""
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha {alpha} is not between 0 and 1; 0.05 is usual")
    distinct = _distinct([(one.row, one.audit) for one in audits if one.audit is not None])
    claims = _corrected(distinct, alpha, lambda audit: (audit.p_claim, audit.replicated_p_claim))
    proofs = _corrected(distinct, alpha, lambda audit: (audit.p_proof, audit.replicated_p_proof))
    methods = len({_method(row) for row, _ in distinct})
    by_key: dict[str, Refutation] = {}
    for (row, audit), p_claim, p_proof in zip(distinct, claims, proofs, strict=True):
        claim = row.eps_claimed is not None and p_claim < alpha
        # A refuted claim refutes every smaller number with it.
        implied = claim and _proven(row) <= (row.eps_claimed or 0.0)
        proof = math.isfinite(_proven(row)) and (p_proof < alpha or implied)
        audited = _audited(row, audit.replicated_eps or 0.0, claim, proof)
        by_key[row.key] = Refutation(claim, proof, p_claim, p_proof, methods, audited)
    return by_key


def _corrected(
    audits: Sequence[_Finished],
    alpha: float,
    p_values: Callable[[AuditRow], tuple[float, float]],
) -> list[float]:
    """Return the replication's p-value of each audit, corrected within and over methods."""
    pairs = [p_values(audit) for _, audit in audits]
    audited = [_method(row) for row, _ in audits]
    counts = Counter(
        method for method, (first, _) in zip(audited, pairs, strict=True) if first < alpha
    )
    within = [
        min(1.0, second * counts[method]) if first < alpha else 1.0
        for method, (first, second) in zip(audited, pairs, strict=True)
    ]
    smallest: dict[_Method, float] = {}
    for method, p_value in zip(audited, within, strict=True):
        smallest[method] = min(p_value, smallest.get(method, 1.0))
    adjusted = dict(zip(smallest, holm(list(smallest.values())).tolist(), strict=True))
    ranked = sorted(smallest, key=lambda method: smallest[method])
    factor = {method: len(ranked) - rank for rank, method in enumerate(ranked)}
    # A method's other audits pay the factor of its strongest one.
    return [
        min(1.0, max(adjusted[method], p_value * factor[method]))
        for method, p_value in zip(audited, within, strict=True)
    ]


def _audited(row: CellRow, bound: float, claim: bool, proof: bool) -> float | None:
    """Return the replicated bound, above what is refuted and not above what is not.

    A curve can be refuted at a point other than its delta; the bound at delta is uninformative
    then, and the number is just above the proven one.
    """
    if proof:
        return max(bound, math.nextafter(_proven(row), math.inf))
    if claim and row.eps_claimed is not None:
        return min(max(bound, math.nextafter(row.eps_claimed, math.inf)), _proven(row))
    return None


def _distinct(audits: Sequence[_Finished]) -> list[_Finished]:
    by_key: dict[str, _Finished] = {}
    for row, audit in audits:
        _, known = by_key.setdefault(row.key, (row, audit))
        if _numbers(known) != _numbers(audit):
            raise InputError(
                f"two audits of {row.method} have the key {row.key} and other numbers; one key is "
                "one audit: remove the run directory that is wrong"
            )
    return list(by_key.values())


def _numbers(audit: AuditRow) -> tuple[float, ...]:
    return (audit.p_claim, audit.p_proof, audit.replicated_p_claim, audit.replicated_p_proof)


def _proven(row: CellRow) -> float:
    return math.inf if row.eps_proven is None else row.eps_proven


def _method(row: CellRow) -> _Method:
    return (row.method, row.parameters, row.source_hash)


NO_POWER = "no power"


def has_no_power(audit: AuditRow) -> bool:
    """Return True for an audit that found its planted bug in no repetition."""
    return audit.planted == 0.0


def power_in_words(audit: AuditRow) -> str:
    """Return how often an audit found the planted bug, and what it means where that is never."""
    if audit.planted is None:
        return f"-: {audit.planted_bug}"
    found = f"found in {100 * audit.planted:.0f}%: {audit.planted_bug}"
    if not has_no_power(audit):
        return found
    return (
        f"{found}. This audit has {NO_POWER}: it misses a bug of this size every time, so that a "
        "low bound says nothing about the method"
    )


def power_in_a_table(audit: AuditRow) -> str:
    """Return the share of planted bugs that were found, for a cell of a table."""
    if audit.planted is None:
        return "-"
    return f"{100 * audit.planted:.0f}%" + (f" ({NO_POWER})" if has_no_power(audit) else "")
