"""A small two-world audit of the method: finds gross leaks in half a minute, no more."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.audit.engine import audit
from bench.audit.request import FEWEST_TRIALS, Kind, Request, prepare
from bench.cluster.batches import Crew
from bench.conformance.findings import Finding, Outcome
from bench.conformance.subject import DELTA, Subject, table
from bench.engine.options import RunOptions
from bench.results.records import Status, Variant

_EPSILON = 1.0
_SECONDS = 30.0
_TRIALS_AT_MOST = 2000
_CANARIES = 24
"""As many corners as the smallest table has."""
_LEVEL = 1e-3
"""In the first trials and in fresh ones: a sound method is reported once in a million checks."""


def quick_audit(subject: Subject) -> Iterator[Finding]:
    """A canary in or out of the table, some hundred refits: can an attacker tell?"""
    check = "quick audit"
    name = subject.fitting[0]
    kind, trials = _affordable(subject, name)
    request = Request(
        Variant(subject.name, subject.name, ()),
        Variant("toy", name, ()),
        _EPSILON if subject.method.uses_budget else None,
        trials,
        kind,
        ipc=12 if subject.method.uses_ipc else None,
        delta=DELTA,
    )
    prepared = prepare(request, table(name), subject.method)
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        with Crew(RunOptions(folder, cpus=1)) as crew:
            row = audit(prepared, folder, crew)
    if row.status != Status.OK.value:
        yield Finding(check, Outcome.NOT_CHECKED, row.reason)
        return
    seen = (
        f"epsilon at least {row.eps_audited:.3g} by {row.trials} "
        f"{'trials' if kind == 'two-world' else 'canaries'}, which could have shown "
        f"{row.eps_detectable:.3g} (canary {row.canary}, scorer {row.scorer})"
    )
    refuted = [
        f"the {what} epsilon of {number:.3g} does not hold"
        for what, number, first, again in (
            ("claimed", row.eps_claimed, row.p_claim, row.replicated_p_claim),
            ("proven", row.eps_proven, row.p_proof, row.replicated_p_proof),
        )
        if number is not None and max(first, again) < _LEVEL
    ]
    yield Finding(
        check,
        Outcome.FAILED if refuted else Outcome.PASSED,
        "\n".join([*refuted, seen]),
        "something reaches the release without its noise, or the claim is wrong; "
        f"`bench audit {subject.name} --trials 20000` says more",
    )


def _affordable(subject: Subject, name: str) -> tuple[Kind, int]:
    """As many trials as take half a minute, by the time of one more fit.

    Where the fewest would take far longer, many canaries in a few fits.
    """
    subject.again(name, _EPSILON)
    started = time.perf_counter()
    subject.again(name, _EPSILON)
    seconds = max(time.perf_counter() - started, 1e-6)
    if FEWEST_TRIALS * seconds > 4.0 * _SECONDS:
        return "one-run", _CANARIES
    return "two-world", max(FEWEST_TRIALS, min(_TRIALS_AT_MOST, int(_SECONDS / seconds)))
