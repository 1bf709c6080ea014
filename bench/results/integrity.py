"""Checks that what a row says about a release follows from what is stored with it.

A row can be changed without its ledger, a ledger without its row, and released rows without both.
What anybody can check without the data is checked: the ledger is accounted again and compared with
the row, number by number, and the files are compared with the digests that the journal has of them.
A contradiction makes the verdict `tampered`, and nothing counts as proven then. A release without a
ledger, or with one that cannot be accounted here, is `unproven`.

Somebody who changes row, ledger and digests so that they agree is not found by this: only computing
the cell again (`bench verify`) can show that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import IO, final

from bench.errors import BenchError, StoreError
from bench.plugins.release import Claim
from bench.privacy.accounting import ADJACENCY, Budget, Proof
from bench.privacy.ledger import Ledger
from bench.results import private_rows
from bench.results.ledger_table import read_ledgers
from bench.results.opening import (
    LARGEST_DOCUMENT,
    LARGEST_TABLE,
    in_the_run,
    is_plain_name,
    open_file,
    parse_object,
    read_object,
    read_text,
)
from bench.results.records import CellRow
from bench.results.verdicts import Judgement, Verdict, judge

LEDGER = "ledger.json"
RELEASE_FILES = ("synthetic.parquet", "encoded.parquet", LEDGER, "release.json")
KEPT_FILES = (private_rows.SYNTHETIC, private_rows.ENCODED)
"""Rows without a proven epsilon, which have their own folder where the user asked to keep them."""
_FILES = (*RELEASE_FILES, private_rows.SUMMARY, *KEPT_FILES)

_AGREES = 1e-6
"""Relative difference of an epsilon that the arithmetic of another machine can make."""
_AGREES_BETWEEN_VERSIONS = 1e-2
"""The same between two versions of dp-accounting, whose bounds may become tighter."""

_SECONDS = 8.0
"""Time for the accounting of one ledger, which takes tenths of a second: one can be written that
keeps the accountant busy for hours."""
_SLOW_AT_MOST = 3
"""Ledgers that may use up that time; the next ones are not tried."""

_REFUTED = (Verdict.CLAIM_REFUTED.value, Verdict.PROOF_REFUTED.value)


@final
@dataclass(frozen=True)
class Stated:
    """What the row of a finished cell says about its release."""

    key: str
    eps_target: float | None
    eps_claimed: float | None
    eps_proven: float | None
    delta: float
    verdict: str
    verdict_reason: str
    claim_source: str
    accountant: str
    adjacency: str
    unit: str
    dp_accounting: str
    """Version of the package that computed the epsilon; empty where it is not known."""
    release_hashes: str

    @classmethod
    def of(cls, row: CellRow) -> Stated:
        """Return what a row says."""
        return cls(
            key=row.key,
            eps_target=row.eps_target,
            eps_claimed=row.eps_claimed,
            eps_proven=row.eps_proven,
            delta=row.delta,
            verdict=row.verdict,
            verdict_reason=row.verdict_reason,
            claim_source=row.claim_source,
            accountant=row.accountant,
            adjacency=row.adjacency,
            unit=row.unit,
            dp_accounting=accounting_version(row.versions),
            release_hashes=row.release_hashes,
        )


@final
@dataclass(frozen=True)
class Replay:
    """A ledger that was read and accounted again; `problem` says why it could not be."""

    ledger: Ledger | None = None
    proof: Proof | None = None
    problem: str = ""


@final
@dataclass(frozen=True)
class Checked:
    """What is shown of a release after the check."""

    verdict: str
    reason: str
    eps_proven: float | None
    contradictions: tuple[str, ...] = ()
    """In sentences; empty for what follows from the files, and for what cannot be checked."""


def accounting_version(versions: str) -> str:
    """Return the version of dp-accounting in the column `versions`; empty where there is none."""
    version = (parse_object(versions) or {}).get("dp-accounting")
    return version if isinstance(version, str) else ""


# Ledgers ------------------------------------------------------------------------------------------


@final
class Ledgers:
    """Accounts ledgers again, each distinct one once: cells that differ in their seed share one."""

    def __init__(self) -> None:
        self._known: dict[bytes, Replay] = {}
        self._slow = 0
        self._tables: dict[Path, Mapping[str, str]] = {}

    def text(self, directory: Path, key: str, recorded: str) -> str | None:
        """Return the ledger of a release; None where none is stored.

        Compact results have it in their table of ledgers, by the digest in `release_hashes`.
        """
        text = read_text(directory, "releases", key, LEDGER)
        if text is not None:
            return text
        digest = (recorded_digests(recorded) or {}).get(LEDGER)
        if digest is None:
            return None
        if directory not in self._tables:
            self._tables[directory] = read_ledgers(directory)
        return self._tables[directory].get(digest.sha256)

    def replay(self, text: str) -> Replay:
        """Return the ledger in a file with its proof, which is never taken from the file."""
        digest = hashlib.sha256(text.encode()).digest()
        if digest not in self._known:
            self._known[digest] = self._replayed(text)
        return self._known[digest]

    def _replayed(self, text: str) -> Replay:
        if self._slow >= _SLOW_AT_MOST:
            return Replay(problem="too many ledgers of these runs take too long to account")
        try:
            with _at_most(_SECONDS), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of numbers that no method asks for
                ledger = Ledger.from_json(text)
                return Replay(ledger, ledger.proof())
        except _TooSlowError:
            self._slow += 1
            return Replay(problem=f"its accounting takes more than {_SECONDS:g} s")
        except BenchError as problem:
            return Replay(problem=str(problem))
        except Exception as problem:
            # Whatever a stranger's numbers make the accountants do, it proves nothing.
            return Replay(problem=f"its accounting fails with {type(problem).__name__}")


@final
class _TooSlowError(Exception):
    """The time for one ledger is over."""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise `_TooSlowError` in the block after so many seconds; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_: int, __: FrameType | None) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGALRM, late)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        # Somebody else's alarm goes off later, not never.
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, before)


# A release ----------------------------------------------------------------------------------------


def check_release(directory: Path, stated: Stated, ledgers: Ledgers) -> Checked:
    """Compare the row of a finished cell with the files of its release in a run directory."""
    if not is_plain_name(stated.key):
        return _unchecked(stated, "its key names no folder with a ledger")
    try:
        text = ledgers.text(directory, stated.key, stated.release_hashes)
        changed = changed_files(directory, stated)
        claim = stored_claim(directory, stated.key)
    except StoreError as problem:
        said = in_the_run(problem, directory).replace(f"releases/{stated.key}/", "")
        return _tampered(stated, (f"A file of the release was replaced: {said}.",))
    if text is None:
        return _unchecked(stated, "its ledger.json is not stored with the results")
    replay = ledgers.replay(text)
    if replay.ledger is None or replay.proof is None:
        if changed:
            return _tampered(stated, changed)
        return _unchecked(stated, f"its ledger cannot be replayed: {replay.problem}")
    found = (
        *changed,
        *contradictions(stated, replay.ledger, replay.proof),
        *claim.contradictions(stated),
    )
    if found:
        return _tampered(stated, found)
    reason = judgement(stated, replay.proof).reason
    return Checked(stated.verdict, reason, stated.eps_proven)


def checked_row(directory: Path, row: CellRow, ledgers: Ledgers) -> CellRow:
    """Return the row of a cell with the verdict that its files leave of it."""
    if row.verdict == "" or row.attack:
        return row
    found = check_release(directory, Stated.of(row), ledgers)
    if found.verdict == row.verdict:
        return row
    return replace(
        row, verdict=found.verdict, verdict_reason=found.reason, eps_proven=found.eps_proven
    )


def contradictions(stated: Stated, ledger: Ledger, proof: Proof) -> Iterator[str]:
    """Return, in sentences, what a row says otherwise than its ledger."""
    tolerance = _tolerance(stated)
    if not _same(proof.epsilon, stated.eps_proven, tolerance):
        yield (
            f"The ledger proves epsilon {_exact(proof.epsilon)}, the result table says "
            f"{_exact(stated.eps_proven)}."
        )
    yield from settings_contradictions(stated, ledger)
    other = proof.accountant != stated.accountant and math.isfinite(proof.epsilon)
    if other and tolerance == _AGREES:
        yield (
            f"The ledger is accounted by {proof.accountant or '(nothing)'}, the result table says "
            f"{stated.accountant or '(nothing)'}."
        )
    if stated.verdict in _REFUTED:
        return  # refuted by an attack, which is not in the ledger
    judged = judgement(stated, proof)
    if judged.text != stated.verdict:
        yield (
            f"From the ledger the verdict is '{judged.text}', the result table says "
            f"'{stated.verdict}'."
        )


def settings_contradictions(stated: Stated, ledger: Ledger) -> Iterator[str]:
    """Return what was asked for otherwise than the ledger was kept for.

    Delta and target belong to the identity of the cell: a ledger of another delta proves another
    thing, whatever its epsilon.
    """
    if not _same(ledger.delta, stated.delta):
        yield f"The ledger is for delta {ledger.delta:g}, the result table says {stated.delta:g}."
    if ledger.unit != stated.unit:
        yield (
            f"The ledger protects each {ledger.unit or '(nothing)'}, the result table says "
            f"{stated.unit or '(nothing)'}."
        )
    if stated.adjacency != ADJACENCY:
        yield (
            f"The ledger is for {ADJACENCY} adjacency, the result table says "
            f"{stated.adjacency or '(nothing)'}."
        )
    target = None if ledger.budget is None else ledger.budget.epsilon
    if not _same(target, stated.eps_target):
        yield (
            f"The ledger was kept for a target of {_exact(target)}, the result table says "
            f"{_exact(stated.eps_target)}."
        )


def judgement(stated: Stated, proof: Proof) -> Judgement:
    """Return the verdict that follows from a ledger and what the row says was asked and claimed."""
    budget = None
    if stated.eps_target is not None:
        with contextlib.suppress(BenchError):
            budget = Budget(stated.eps_target, stated.delta)
    claim = None
    if stated.eps_claimed is not None:
        claim = Claim(stated.eps_claimed, stated.delta, stated.claim_source)
    proven = stated.eps_proven
    if proven is not None and _same(proof.epsilon, proven, _tolerance(stated)):
        # Within the tolerance the row counts: rounding must not move a release over its target.
        proof = Proof(proven, proof.delta, proof.accountant, proof.reasons, proof.trust)
    return judge(budget, claim, proof)


@final
@dataclass(frozen=True)
class StoredClaim:
    """The claim in `release.json`."""

    known: bool
    """False where the file does not say, or is absent."""
    epsilon: float | None = None

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """Return what a row says otherwise."""
        if self.known and not _same(self.epsilon, stated.eps_claimed):
            yield (
                f"The method claimed epsilon {_exact(self.epsilon)}, the result table says "
                f"{_exact(stated.eps_claimed)}."
            )


def stored_claim(directory: Path, key: str) -> StoredClaim:
    """Return what a method claimed when its release was stored."""
    about = read_object(directory, "releases", key, "release.json")
    if about is None or "claim" not in about:
        return StoredClaim(False)
    claim = about["claim"]
    if claim is None:
        return StoredClaim(True)
    epsilon = claim.get("epsilon") if isinstance(claim, dict) else None
    if epsilon == "Infinity":
        epsilon = math.inf
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
        raise StoreError("release.json: its claim is no number")
    try:
        return StoredClaim(True, float(epsilon))
    except OverflowError:
        raise StoreError("release.json: its claim is no number") from None


# Files --------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Digest:
    """Size and SHA-256 of a file."""

    size: int
    sha256: str


def release_hashes(directory: Path, key: str) -> str:
    """Return the column `release_hashes` for the files of a release."""
    found = {name: digest_of(directory, *_place(key, name)) for name in _FILES}
    given = {name: [one.size, one.sha256] for name, one in found.items() if one is not None}
    return json.dumps(given, sort_keys=True)


def _place(key: str, name: str) -> tuple[str, ...]:
    return (private_rows.FOLDER if name in KEPT_FILES else "releases", key, name)


def digest_of(directory: Path, *parts: str) -> Digest | None:
    """Return the digest of a file of a run directory; None where it is absent."""
    file = open_file(directory, *parts, most=_largest(parts[-1]))
    if file is None:
        return None
    with file:
        return _digest(file)


def _largest(name: str) -> int:
    return LARGEST_DOCUMENT if name.endswith(".json") else LARGEST_TABLE


def _digest(file: IO[bytes]) -> Digest:
    digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
    return Digest(os.fstat(file.fileno()).st_size, digest.hexdigest())


def recorded_digests(column: str) -> dict[str, Digest] | None:
    """Return what a row has recorded of its files; None where that cannot be read."""
    recorded = parse_object(column or "{}")
    try:
        if recorded is None:
            return None
        return {name: Digest(int(size), str(text)) for name, (size, text) in recorded.items()}
    except (TypeError, ValueError, OverflowError):
        return None


def changed_files(directory: Path, stated: Stated) -> tuple[str, ...]:
    """Return, in sentences, which files of a release are not those that the journal has recorded.

    Directories of earlier versions have recorded none. A copy for others may lack the rows: what is
    absent is not altered.
    """
    recorded = recorded_digests(stated.release_hashes)
    if recorded is None:
        return (UNREADABLE_DIGESTS,)
    changed = []
    for name in _FILES if recorded else ():
        file = open_file(directory, *_place(stated.key, name), most=_largest(name))
        if file is None:
            continue
        with file:
            known = recorded.get(name)
            # A file of another size need not be read, however large it is.
            same = known is not None and os.fstat(file.fileno()).st_size == known.size
            if not same or _digest(file) != known:
                changed.append(other_file(name))
    return tuple(changed)


UNREADABLE_DIGESTS = "The digests of the release cannot be read."


def other_file(name: str) -> str:
    """Say that a file is not the one whose digest was recorded."""
    return f"{name} is not the file that was released: its digest is another."


# Verdicts -----------------------------------------------------------------------------------------


def _tampered(stated: Stated, found: tuple[str, ...]) -> Checked:
    reason = "the stored results contradict each other: " + " ".join(found)
    return Checked(Verdict.TAMPERED.value, reason, math.inf, found)


def _unchecked(stated: Stated, why: str) -> Checked:
    """Return what is left of a verdict without a ledger: what claims a proof has none."""
    if not stated.verdict.startswith(Verdict.SOUND.value):
        return Checked(stated.verdict, stated.verdict_reason, stated.eps_proven)
    stated_as = f"the table says {stated.verdict!r} with epsilon {_exact(stated.eps_proven)}"
    return Checked(Verdict.UNPROVEN.value, f"{stated_as}, but {why}", math.inf)


def _tolerance(stated: Stated) -> float:
    same = stated.dp_accounting in ("", metadata.version("dp-accounting"))
    return _AGREES if same else _AGREES_BETWEEN_VERSIONS


def _same(first: float | None, second: float | None, tolerance: float = _AGREES) -> bool:
    if first is None or second is None:
        return first is second
    return first == second or math.isclose(first, second, rel_tol=tolerance)


def _exact(value: float | None) -> str:
    if value is None:
        return "none"
    return "infinite" if math.isinf(value) else f"{value:.6g}"
