"""How often the transcript attack refutes what holds: audits of exact mechanisms, repeated.

`python -m bench.audit.soundness FILE` repeats whole transcript audits of two mechanisms that spend
exactly their epsilon, 200 times each at epsilon 1 and 8; only the seed differs. No bug is planted,
which would take most of the time. The counts are stored in FILE and shown on the page of transcript
audits. A single number at 95% confidence may be wrong in 5% of the repetitions; what an audit
reports as refuted needs a replication with fresh noise as well.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from bench.audit.audits import AuditProcedure, instance_cell
from bench.audit.self_test import KnownCalls, SampledSums, TinyTable, TwoSums
from bench.audit.transcript_attack import ALPHA, transcript_audit
from bench.audit.transcripts import run_recordings
from bench.audit.trials import read_trials
from bench.errors import StoreError
from bench.plugins.source import build_dataset
from bench.results.audits import refutations
from bench.results.records import TRANSCRIPT, AuditSpec, Outcome
from bench.results.writing import FOR_ALL, write_atomically, writing
from bench.stats.inference import clopper_pearson_high

FILE = "soundness.json"
"""Name of the stored counts, in the directory of the kept audits."""
REPETITIONS = 200
TRIALS = 2000
EPSILONS = (1.0, 8.0)
MECHANISMS: tuple[KnownCalls, ...] = (TwoSums(), SampledSums())


@final
@dataclass(frozen=True)
class Repeated:
    """Counts over repeated audits of a mechanism that spends exactly its epsilon."""

    mechanism: str
    epsilon: float
    repetitions: int
    trials: int
    direct: int
    """Bounds by Clopper-Pearson above the epsilon."""
    tighter: int
    """Bounds by the Gaussian or the PLD curve above the epsilon."""
    claim: int
    """First trials that contradict the claim at 5%."""
    proof: int
    """First trials that contradict the proof at 5%."""
    refuted: int
    """Audits that report a refutation: the replication contradicts it too."""

    @property
    def allowed(self) -> int:
        """Largest count of single errors at 5% that a correct auditor exceeds in 1% of the cases.

        A limit of 5% of the repetitions would be exceeded in four of ten: that is their mean.
        """
        from scipy.stats import binom

        return int(binom.isf(0.01, self.repetitions, ALPHA))

    @property
    def good(self) -> bool:
        """Whether no single number errs too often, and false refutations are at most 5%."""
        singles = (self.direct, self.tighter, self.claim, self.proof)
        return max(singles) <= self.allowed and self.highest <= ALPHA

    @property
    def highest(self) -> float:
        """Upper end at 95% confidence of how often an audit reports a false refutation."""
        return float(clopper_pearson_high(self.refuted, self.repetitions, ALPHA))


def repeated(
    method: KnownCalls, epsilon: float, repetitions: int = REPETITIONS, trials: int = TRIALS
) -> Repeated:
    """Audit an exact mechanism with so many seeds."""
    outcomes = [_audited(method, epsilon, seed, trials) for seed in range(repetitions)]
    pairs = [(one.row, one.audit) for one in outcomes if one.audit is not None]
    tighter = [
        audit.eps_curve if audit.eps_gaussian is None else audit.eps_gaussian for _, audit in pairs
    ]
    together = [refutations([one])[one.row.key] for one in outcomes]
    return Repeated(
        method.name,
        epsilon,
        repetitions,
        trials,
        direct=sum((row.eps_audited or 0.0) > epsilon for row, _ in pairs),
        tighter=sum((bound or 0.0) > epsilon for bound in tighter),
        claim=sum(audit.p_claim < ALPHA for _, audit in pairs),
        proof=sum(audit.p_proof < ALPHA for _, audit in pairs),
        refuted=sum(one.claim or one.proof for one in together),
    )


def _audited(method: KnownCalls, epsilon: float, seed: int, trials: int) -> Outcome:
    dataset = build_dataset(TinyTable())
    cell = instance_cell(method, dataset, epsilon, AuditSpec(TRANSCRIPT, trials), seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        procedure = AuditProcedure(cell, dataset, Path(folder), method)
        steps = transcript_audit(procedure.shared, trials, procedure.blank, power=False)
        wanted = next(steps)
        while True:
            made = read_trials(procedure.shared, run_recordings(procedure.shared, wanted.trials))
            try:
                wanted = steps.send(made)
            except StopIteration as ended:
                outcome: Outcome = ended.value
                return outcome


def all_repeated(repetitions: int = REPETITIONS) -> Iterator[Repeated]:
    """Yield the counts of all mechanisms and epsilons."""
    for epsilon in EPSILONS:
        for method in MECHANISMS:
            yield repeated(method, epsilon, repetitions)


def write(counts: Sequence[Repeated], file: Path) -> None:
    """Store counts as JSON."""
    text = json.dumps([asdict(one) for one in counts], indent=1) + "\n"
    with writing(file, "then run the same command again"):
        write_atomically(file, text.encode(), FOR_ALL)


def read(file: Path) -> tuple[Repeated, ...]:
    """Return stored counts; none where there is no such file."""
    if not file.is_file():
        return ()
    try:
        return tuple(Repeated(**one) for one in json.loads(file.read_text()))
    except (ValueError, TypeError) as problem:
        raise StoreError(
            f"{file} holds no counts of repeated audits; expected what `python -m "
            "bench.audit.soundness` writes. Remove it and run that again"
        ) from problem


def main(arguments: Sequence[str]) -> None:
    """Repeat all audits and store the counts in the named file."""
    (file,) = arguments
    counts: list[Repeated] = []
    for one in all_repeated():
        counts.append(one)
        print(one)
    write(counts, Path(file))


if __name__ == "__main__":
    main(sys.argv[1:])
