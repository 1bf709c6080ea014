"""Audits of a run directory, and what they refute together.

`audits/<key>/audit.json` is the row of one audit; `audits.parquet` is compiled from all of them.

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

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import pyarrow as pa
import pyarrow.parquet as pq

from bench.errors import InputError, StoreError
from bench.results.journal import plain
from bench.results.reading import AUDITS, read_audit, read_audits
from bench.results.records import AuditRow, Status, to_table
from bench.results.run_directory import write_atomically
from bench.stats.inference import holm

_Method = tuple[str, str, str]


def folder_of(directory: Path, key: str) -> Path:
    """Return the folder of one audit."""
    return directory / "audits" / key


def write_audit(directory: Path, row: AuditRow) -> None:
    """Write the row of an audit and compile the table anew."""
    try:
        path = folder_of(directory, row.key) / "audit.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(plain(asdict(row)), indent=1).encode() + b"\n")
        table = pa.BufferOutputStream()
        pq.write_table(to_table(read_audits(directory), AuditRow), table)
        write_atomically(directory / AUDITS, table.getvalue().to_pybytes())
    except OSError as problem:
        raise StoreError(
            f"{directory}: cannot be written ({problem.strerror or problem}); name another --out"
        ) from None


def stored_audit(directory: Path, key: str) -> AuditRow | None:
    """Return the row of an audit, if there is one."""
    path = folder_of(directory, key) / "audit.json"
    return read_audit(path) if path.is_file() else None


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


def refutations(audits: Sequence[AuditRow], alpha: float = 0.05) -> Mapping[str, Refutation]:
    """Return what all finished audits together refute, by audit key (see the module docstring)."""
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha {alpha} is not between 0 and 1; 0.05 is usual")
    distinct = _distinct([row for row in audits if row.status == Status.OK.value])
    claims = _corrected(distinct, alpha, lambda row: (row.p_claim, row.replicated_p_claim))
    proofs = _corrected(distinct, alpha, lambda row: (row.p_proof, row.replicated_p_proof))
    methods = len({_method(row) for row in distinct})
    by_key: dict[str, Refutation] = {}
    for row, p_claim, p_proof in zip(distinct, claims, proofs, strict=True):
        claim = row.eps_claimed is not None and p_claim < alpha
        # A refuted claim refutes every smaller number with it.
        implied = claim and _proven(row) <= (row.eps_claimed or 0.0)
        proof = math.isfinite(_proven(row)) and (p_proof < alpha or implied)
        audited = _audited(row, claim, proof)
        by_key[row.key] = Refutation(claim, proof, p_claim, p_proof, methods, audited)
    return by_key


def _corrected(
    audits: Sequence[AuditRow],
    alpha: float,
    p_values: Callable[[AuditRow], tuple[float, float]],
) -> list[float]:
    """Return the replication's p-value of each audit, corrected within and over methods."""
    pairs = [p_values(row) for row in audits]
    counts = Counter(
        _method(row) for row, (first, _) in zip(audits, pairs, strict=True) if first < alpha
    )
    within = [
        min(1.0, second * counts[_method(row)]) if first < alpha else 1.0
        for row, (first, second) in zip(audits, pairs, strict=True)
    ]
    smallest: dict[_Method, float] = {}
    for row, p_value in zip(audits, within, strict=True):
        smallest[_method(row)] = min(p_value, smallest.get(_method(row), 1.0))
    adjusted = dict(zip(smallest, holm(list(smallest.values())).tolist(), strict=True))
    ranked = sorted(smallest, key=lambda method: smallest[method])
    factor = {method: len(ranked) - rank for rank, method in enumerate(ranked)}
    # A method's other audits pay the factor of its strongest one.
    return [
        min(1.0, max(adjusted[_method(row)], p_value * factor[_method(row)]))
        for row, p_value in zip(audits, within, strict=True)
    ]


def _audited(row: AuditRow, claim: bool, proof: bool) -> float | None:
    """Return the replicated bound, above what is refuted and not above what is not.

    A curve can be refuted at a point other than its delta; the bound at delta is uninformative
    then, and the number is just above the proven one.
    """
    bound = row.replicated_eps or 0.0
    if proof:
        return max(bound, math.nextafter(_proven(row), math.inf))
    if claim and row.eps_claimed is not None:
        return min(max(bound, math.nextafter(row.eps_claimed, math.inf)), _proven(row))
    return None


def _distinct(audits: Sequence[AuditRow]) -> list[AuditRow]:
    rows: dict[str, AuditRow] = {}
    for row in audits:
        known = rows.setdefault(row.key, row)
        if _numbers(known) != _numbers(row):
            raise InputError(
                f"two audits of {row.method} have the key {row.key} and other numbers; one key is "
                "one audit: remove the run directory that is wrong"
            )
    return list(rows.values())


def _numbers(row: AuditRow) -> tuple[float, ...]:
    return (row.p_claim, row.p_proof, row.replicated_p_claim, row.replicated_p_proof)


def _proven(row: AuditRow) -> float:
    return math.inf if row.eps_proven is None else row.eps_proven


def _method(row: AuditRow) -> _Method:
    return (row.method, row.parameters, row.source_hash)
