"""Runs library audits, keeps their counts, and concludes for all of them together.

Of each target, `trials` fits of each world measure; as many fresh ones replicate. The event was
fixed before, so that nothing is chosen on the counted trials. A claim is refuted where the first
trials contradict it at 5% and so does the replication after Holm's correction over all targets that
have results; those whose first trials do not contradict it count with p = 1.

Results are JSON, one file per target, with the score of every trial: whoever doubts a bound can
compute it again. A target that has a file is not run again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, final

from pydantic import Field, TypeAdapter, ValidationError

from bench.audit.libraries.target import STAGES, WORLDS, LibraryTarget
from bench.audit.libraries.targets import target_named, targets
from bench.audit.trials import Say, write_file
from bench.environments import overlays
from bench.errors import BenchError, StoreError
from bench.plugins.method import Environment
from bench.stats.bounds import epsilon_bound, max_detectable, p_value
from bench.stats.exact_test import Tally
from bench.stats.inference import holm

ALPHA = 0.05


@final
@dataclass(frozen=True)
class LibraryResult:
    """What is kept of an audit."""

    target: str
    version: str
    call: str
    """Digest of the call and of the settings that decide what was run."""
    scores: dict[str, list[float]]
    """By stage and world, such as `bound/in`."""
    seconds: Annotated[float, Field(ge=0)]
    """Processor time of all fits."""

    def tally(self, stage: str) -> Tally:
        """Return the counts of a stage: a score of at least 1 is the event."""
        inside, outside = (self.scores[f"{stage}/{world}"] for world in WORLDS)
        hits, alarms = (sum(score >= 1.0 for score in scores) for scores in (inside, outside))
        return Tally(hits, len(inside), alarms, len(outside))


def digest(target: LibraryTarget) -> str:
    """Return a digest of what is run for a target."""
    settings = (target.code, target.version, target.rows, target.columns, sorted(target.planted))
    return hashlib.sha256(repr((*settings, target.score.__name__)).encode()).hexdigest()[:12]


# Running ------------------------------------------------------------------------------------------


def run_missing(folder: Path, names: Sequence[str], seed: int, say: Say) -> list[str]:
    """Run the targets without a current result and store each; return those that failed."""
    wanted: dict[Environment | None, list[LibraryTarget]] = {}
    for target in [target_named(name) for name in names] or targets():
        known = read(folder, target.name)
        if known is None or known.call != digest(target):
            wanted.setdefault(target.environment, []).append(target)
    failed: list[str] = []
    for environment, members in wanted.items():
        try:
            python = (
                sys.executable
                if environment is None
                else str(overlays.ensure(environment, _of(environment, say)))
            )
        except BenchError as problem:
            say(str(problem))
            failed += [target.name for target in members]
            continue
        failed += _run(python, members, folder, seed, say)
    return failed


def _of(environment: Environment, say: Say) -> Say:
    return lambda text: say(f"{environment.name}: {text}")


def _run(
    python: str, members: Sequence[LibraryTarget], folder: Path, seed: int, say: Say
) -> list[str]:
    """Run targets of one environment; where the process of one fails, resume with the next."""
    failed: list[str] = []
    left = list(members)
    while left:
        try:
            done = _run_until_failure(python, left, folder, seed, say)
        except BenchError as problem:
            say(str(problem))
            return failed + [target.name for target in left]
        if done < len(left):
            failed.append(left[done].name)
        left = left[done + 1 :]
    return failed


def _run_until_failure(
    python: str, members: Sequence[LibraryTarget], folder: Path, seed: int, say: Say
) -> int:
    """Run and store targets in order; return how many were finished."""
    command = [python, "-P", "-m", "bench.audit.libraries.worker", str(seed)]
    command += [target.name for target in members]
    variables = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=variables,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for done, target in enumerate(members):
                say(f"{target.name}: 4 x {target.trials} trials")
                lines = [
                    json.loads(line) for line in itertools.islice(process.stdout, 4 * target.trials)
                ]
                if len(lines) < 4 * target.trials:
                    process.wait()
                    said.seek(0)
                    last = (said.read().strip().splitlines() or ["no message"])[-1]
                    say(f"{target.name}: failed after {len(lines)} trials: {last}")
                    return done
                _store(_result(target, lines), folder)
        except BaseException:
            process.kill()
            raise
    return len(members)


def _result(target: LibraryTarget, lines: Sequence[dict[str, Any]]) -> LibraryResult:
    versions = {str(line["version"]) for line in lines}
    if versions != {target.version}:
        raise BenchError(
            f"library target {target.name}: {target.package} is {', '.join(sorted(versions))}, the "
            f"audit is about {target.version}; rebuild its environment (bench env clean)"
        )
    scores: dict[str, list[float]] = {}
    for line in lines:
        scores.setdefault(line["part"], []).append(round(float(line["score"]), 6))
    seconds = round(sum(float(line["seconds"]) for line in lines), 1)
    return LibraryResult(target.name, target.version, digest(target), scores, seconds)


def _store(result: LibraryResult, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(result), indent=1) + "\n"
    write_file(folder / f"{result.target}.json", text.encode())


def read(folder: Path, name: str) -> LibraryResult | None:
    """Return a stored result; None where there is none."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        return TypeAdapter(LibraryResult).validate_json(path.read_bytes())
    except ValidationError as problem:
        raise StoreError(
            f"{path}: not the result of a library audit ({problem.error_count()} errors); remove "
            "it and run `python -m bench.audit.libraries run` again"
        ) from None


# Conclusions --------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class LibraryFinding:
    """What an audit of a library shows."""

    target: LibraryTarget
    result: LibraryResult
    audited: float
    """Lower bound of epsilon at the claimed delta, of the first trials."""
    detectable: float
    p_value: float
    """Of the first trials, against the claim."""
    replicated: float
    """Of the replication; 1 where the first trials do not contradict the claim."""
    corrected: float
    """The replication's after Holm's correction over all targets with results."""

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted for this call."""
        return self.p_value < ALPHA and self.corrected < ALPHA


def findings(results: Iterable[LibraryResult]) -> list[LibraryFinding]:
    """Return the findings of all results together, in the order of the list of targets."""
    by_name = {result.target: result for result in results}
    pairs = [(one, by_name[one.name]) for one in targets() if one.name in by_name]
    first, again = [], []
    for target, result in pairs:
        p, replicated = (
            p_value(result.tally(stage), target.epsilon, target.delta) for stage in STAGES
        )
        first.append(p)
        again.append(replicated if p < ALPHA else 1.0)
    corrected = holm(again)
    return [
        LibraryFinding(
            target,
            result,
            audited=epsilon_bound(result.tally("bound"), target.delta),
            detectable=max_detectable(
                result.tally("bound").positives, result.tally("bound").negatives, target.delta
            ),
            p_value=first[number],
            replicated=again[number],
            corrected=float(corrected[number]),
        )
        for number, (target, result) in enumerate(pairs)
    ]


def stored(folder: Path) -> list[LibraryResult]:
    """Return the stored results of the listed targets."""
    found = (read(folder, target.name) for target in targets())
    return [result for result in found if result is not None]
