"""Audits methods whose true epsilon is known: does the auditor work here?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench.audit.engine import audit
from bench.audit.known_answers import ExactGaussian, HalvedNoise, RowCopier
from bench.audit.laboratory import Say
from bench.audit.request import Request, prepare
from bench.cluster.batches import Crew
from bench.data.dataset import Declaration
from bench.data.schema import Categorical, Column, Numeric, Role, Schema, Task
from bench.plugins.method import Method
from bench.plugins.source import DatasetSource, build_dataset
from bench.results.records import AuditRow, Status, Variant
from bench.results.refutation import refutations

TRIALS = 20_000
_SHARE_FOR_LARGE = 10
"""The audit at epsilon 8 needs this much fewer trials."""


@final
@dataclass(frozen=True)
class TinyTable(DatasetSource):
    """Thirty simulated rows of three numbers: a refit takes a millisecond."""

    name: ClassVar[str] = "tiny-table"

    def declare(self) -> Declaration:
        numbers: tuple[Column, ...] = tuple(
            Numeric(name=f"x{number}", low=-1, high=1) for number in range(3)
        )
        label = Categorical(name="label", categories=("0", "1"), role=Role.TARGET)
        return Declaration(
            title="A tiny simulated table",
            schema=Schema((*numbers, label), Task.CLASSIFICATION),
            by_class=(15, 15),
            by_site_class={},
            licence="CC0",
            citation="none",
            source="simulated",
            simulated=True,
        )

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(5)
        table = {f"x{number}": rng.uniform(-0.5, 0.5, 30) for number in range(3)}
        return pd.DataFrame({**table, "label": np.repeat([0, 1], 15)})


@final
@dataclass(frozen=True)
class Known:
    """A method with its answer."""

    method: Method
    epsilon: float
    broken: bool
    trials: int


@final
@dataclass(frozen=True)
class Checked:
    """An audit of a known answer."""

    known: Known
    row: AuditRow
    refuted: bool

    @property
    def good(self) -> bool:
        """True where the auditor said what is true."""
        return self.row.status == Status.OK.value and self.refuted == self.known.broken

    @property
    def line(self) -> str:
        """One line for people."""
        row = self.row
        if row.status != Status.OK.value:
            return f"FAILED  {row.label} at epsilon {row.eps_target:g}: {row.reason}"
        said = "refuted" if self.refuted else "not refuted"
        wanted = "broken" if self.known.broken else "exact"
        gaussian = "" if row.eps_gaussian is None else f", {row.eps_gaussian:.3g} as a Gaussian"
        again = math.nan if row.replicated_eps is None else row.replicated_eps
        replicated = "" if math.isnan(again) else f", replicated {again:.3g}"
        return (
            f"{'ok' if self.good else 'WRONG':<7} {row.label} at epsilon {row.eps_target:g} "
            f"({wanted}): {said}; audited {row.eps_audited:.3g}{gaussian}{replicated}, ceiling "
            f"{row.eps_detectable:.3g}, p {min(row.p_claim, row.p_proof):.2g}, {row.refits} refits "
            f"in {row.seconds:.0f} s"
        )


def known_answers(trials: int = TRIALS) -> tuple[Known, ...]:
    """Two exact methods and two broken ones."""
    few = max(400, trials // _SHARE_FOR_LARGE)
    return (
        Known(ExactGaussian(), 8.0, False, few),
        Known(ExactGaussian(), 1.0, False, trials),
        Known(HalvedNoise(), 1.0, True, trials),
        Known(RowCopier(), 1.0, True, trials),
    )


def self_test(
    directory: Path,
    crew: Crew,
    trials: int = TRIALS,
    seed: int = 0,
    say: Say = lambda text: None,
) -> Iterator[Checked]:
    """Audit them all; what is refuted is corrected for all of them together."""
    dataset = build_dataset(TinyTable())
    answers = known_answers(trials)
    rows: list[AuditRow] = []
    for known in answers:
        name = known.method.name
        request = Request(
            Variant(name, name),
            Variant(dataset.name, dataset.name),
            known.epsilon,
            known.trials,
            ipc=None,
            seed=seed,
        )
        say(f"{request.describe()}: {known.trials} refits")
        rows.append(audit(prepare(request, dataset, known.method), directory, crew, say))
    found = refutations(rows)
    for known, row in zip(answers, rows, strict=True):
        said = found.get(row.key)
        yield Checked(known, row, said is not None and (said.claim or said.proof))
