"""Comparison with an auditor of other authors: jax-privacy's, in an environment of its own.

Three mechanisms of known epsilon are replayed as in a transcript audit (`self_test`). Their scores
go to `jax_privacy.auditing.CanaryScoreAuditor`, which must give the same Clopper-Pearson bound at
the same threshold; the bound that it finds with a threshold of its own, corrected for all of them,
must be no larger than the true epsilon.

Its bound by the Gaussian curve is not compared: `epsilon_from_gdp` of version 2.0.0 takes the
absolute value of lower ends of mu, which turns a negative one into a large bound. For a Gaussian
mechanism of epsilon 0.5 and 1,000 scores of each world it was seen to give 6.2.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

from bench.audit.audits import AuditProcedure, instance_cell
from bench.audit.replays import replayed
from bench.audit.self_test import ExactGaussian, SampledSums, TinyTable, Votes
from bench.audit.transcripts import recorded
from bench.audit.trials import Say, Stage, TrialId
from bench.engine import keys
from bench.environments import overlays
from bench.errors import BenchError
from bench.plugins.method import Environment
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.results.records import TRANSCRIPT, AuditSpec
from bench.stats.bounds import best_threshold, epsilon_bound

ENVIRONMENT = Environment("jax-privacy", ("jax-privacy==2.0.0",), ("jax_privacy",))

TRIALS = 4000
"""Trials of each world that choose the threshold, and as many that are counted."""
_DELTA = 1e-5
_SAME = 1e-6
_SECONDS = 600

_SCRIPT = """
import json, sys
from jax_privacy.auditing import CanaryScoreAuditor, Explicit
asked = json.load(sys.stdin)
auditor = CanaryScoreAuditor(asked["inside"], asked["outside"])
print(json.dumps({
    "same": float(auditor.epsilon_clopper_pearson(
        0.05, asked["delta"], one_sided=False, threshold_strategy=Explicit(asked["threshold"]))),
    "all": float(auditor.epsilon_clopper_pearson(0.05, asked["delta"], one_sided=False)),
}))
"""


@final
@dataclass(frozen=True)
class Compared:
    """Bounds of both auditors on the same scores."""

    mechanism: str
    epsilon: float
    """The true epsilon."""
    ours: float
    theirs: float
    """By Clopper-Pearson at the same threshold, like ours."""
    theirs_any: float
    """By Clopper-Pearson with a threshold of its own."""

    @property
    def good(self) -> bool:
        """Whether both agree, and no bound is above the true epsilon."""
        bounds = (self.ours, self.theirs_any)
        return abs(self.ours - self.theirs) <= _SAME and max(bounds) <= self.epsilon

    @property
    def line(self) -> str:
        """Summary in one line."""
        return (
            f"{'ok' if self.good else 'WRONG':<7} {self.mechanism} at epsilon {self.epsilon:g}: "
            f"ours {self.ours:.6g}, jax-privacy {self.theirs:.6g} at the same threshold, "
            f"{self.theirs_any:.4g} at its own"
        )


def compared(seed: int = 0, say: Say = lambda text: None) -> Iterator[Compared]:
    """Build the environment if necessary, and compare both auditors on three mechanisms."""
    python = overlays.ensure(ENVIRONMENT, say)
    dataset = build_dataset(TinyTable())
    for method, epsilon in ((ExactGaussian(), 4.0), (SampledSums(), 4.0), (Votes(), 2.0)):
        cell = instance_cell(
            method, dataset, epsilon, AuditSpec(TRANSCRIPT, 4 * TRIALS), delta=_DELTA, seed=seed
        )
        target = AuditProcedure(cell, dataset, Path(), method).shared
        transcript = recorded(target, TrialId(Stage.RECORD, 0, 0)).transcript
        choosing, counting = (
            tuple(
                replayed(
                    [transcript],
                    TRIALS,
                    inside,
                    SeededNoise(keys.generator(target.seed_key, f"foreign/{part}/{inside}")),
                )
                for inside in (True, False)
            )
            for part in ("choose", "count")
        )
        threshold = best_threshold(choosing[0], choosing[1], _DELTA)
        # Of the other auditor the larger score means `in`.
        sign = 1.0 if threshold.above else -1.0
        asked = {
            "inside": (sign * counting[0]).tolist(),
            "outside": (sign * counting[1]).tolist(),
            "threshold": sign * threshold.value,
            "delta": _DELTA,
        }
        answer = _ask(python, asked)
        yield Compared(
            method.name,
            epsilon,
            epsilon_bound(threshold.tally(counting[0], counting[1]), _DELTA),
            answer["same"],
            answer["all"],
        )


def _ask(python: Path, asked: dict[str, object]) -> dict[str, float]:
    try:
        done = subprocess.run(
            [str(python), "-P", "-c", _SCRIPT],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        )
        answer: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as problem:
        raise BenchError(
            f"the auditor of jax-privacy did not answer ({type(problem).__name__}); run "
            "`bench audit --self-test --foreign` again, or leave --foreign out"
        ) from None
    return answer
