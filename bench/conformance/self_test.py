"""The kit checked against mistakes that are known: which of them does it catch, and by what?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from bench.conformance import contract, coupling, privacy
from bench.conformance.kit import Check, check_subject
from bench.conformance.mistakes import MISTAKES, SOUND
from bench.conformance.subject import CheckStatus, Subject
from bench.conformance.tables import toy_dataset
from bench.plugins.method import Method
from bench.privacy.interception import PassThrough
from bench.privacy.noise import SeededNoise

TABLE = "table"
"""The only table that the examples are tried on: others show the same, slower."""

CHECKS: tuple[Check, ...] = (
    contract.releases_what_was_asked,
    contract.repeats_under_a_seed,
    privacy.keeps_the_budget,
    privacy.noise_falls_with_epsilon,
    privacy.rows_come_through_the_kernel,
    coupling.coupled_neighbours,
)
"""Without the checks of utility, noise, difficult tables and the audit: they are slow, and every
mistake is caught without them."""


@final
@dataclass(frozen=True)
class Examined:
    """One example of the kit, with what its checks said."""

    method: type[Method]
    proven: float
    """Epsilon that the ledger of a run at epsilon 1 proves: the mistake is not visible in it."""
    failed: tuple[str, ...]
    """Names of the checks that failed."""


@final
@dataclass(frozen=True)
class SelfTest:
    """What the kit said about all examples."""

    mistakes: tuple[Examined, ...]
    sound: tuple[Examined, ...]

    @property
    def caught(self) -> int:
        """Number of mistakes that some check found."""
        return sum(bool(example.failed) for example in self.mistakes)

    @property
    def passed(self) -> bool:
        """True if every mistake was caught, and nothing was reported for a sound method."""
        silent = not any(example.failed for example in self.sound)
        return silent and self.caught == len(self.mistakes)


def self_test(say: Callable[[str], None] = lambda text: None) -> SelfTest:
    """Check all mistakes, and the sound methods that they were made in."""

    def examined(kinds: tuple[type[Method], ...]) -> Iterator[Examined]:
        for kind in kinds:
            say(kind.title)
            yield examine(kind)

    return SelfTest(tuple(examined(MISTAKES)), tuple(examined(SOUND)))


def examine(kind: type[Method]) -> Examined:
    """Check one example."""
    subject = Subject(kind, tables=(TABLE,))
    # As in a benchmark run: rows are evaluated once, and not alone.
    noise = SeededNoise(np.random.default_rng([0, 0]))
    run = subject.open(toy_dataset(TABLE), noise, interceptor=PassThrough())
    report = check_subject(subject, checks=CHECKS)
    failed = [result.check for result in report.results if result.status is CheckStatus.FAILED]
    return Examined(kind, run.ledger.proof().epsilon, tuple(dict.fromkeys(failed)))


def to_text(result: SelfTest) -> str:
    """Return the table for a terminal."""
    examples = (*result.mistakes, *result.sound)
    width = max(len(example.method.title) for example in examples)
    lines = [f"{'mistake':<{width}}  proven  caught by"]
    lines += [_line(example, width, "MISSED") for example in result.mistakes]
    lines += ["", f"{'sound method':<{width}}  proven  wrongly reported by"]
    lines += [_line(example, width, "none") for example in result.sound]
    wrong = sum(bool(example.failed) for example in result.sound)
    lines += [
        "",
        f"{result.caught} of {len(result.mistakes)} mistakes caught; {wrong} of "
        f"{len(result.sound)} sound methods reported. Proven: the epsilon that the ledger proves "
        "at epsilon 1.",
        "The checks of difficult tables, noise, utility and the quick audit are not part of it.",
    ]
    return "\n".join(lines)


def _line(example: Examined, width: int, otherwise: str) -> str:
    said = "; ".join(example.failed) or otherwise
    return f"{example.method.title:<{width}}  {example.proven:<6.3f}  {said}"
