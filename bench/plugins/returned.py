"""The wall: what a plugin returns is checked against its contract before anything else sees it.

A plugin is somebody else's code, and what it returns is stored, sent to other processes and shown.
Here it is checked once, in the process that ran the plugin, and rebuilt from plain parts: arrays
of 32 or 64 bits in C order, Python numbers, text without control characters. What is stored is
exactly what was checked; what breaks the contract is refused by a typed error that says why, which
becomes the status of the cell.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.data.encoder import Encoder
from bench.errors import (
    TEXT_CHARACTERS,
    InvalidReleaseError,
    InvalidScoresError,
    one_line,
    printable,
)
from bench.plugins.metric import Direction, Family, Metric, RefitMetric, Score, Scores
from bench.plugins.release import (
    Claim,
    Clients,
    Federation,
    Release,
    ReleasedModel,
    Rows,
    Transfer,
    TransferDirection,
)
from bench.privacy import events
from bench.privacy.clients import SkewedClients
from bench.privacy.ledger import Ledger

NOTES_AT_MOST: Final = 100
"""Largest number of notes of a release."""
NOTES_CHARACTERS: Final = 20_000
"""Length of all notes of a release together, as JSON."""
NUMBERS_AT_MOST: Final = 2**28
"""Largest number of values of a release, rows times columns: 60,000 images of 3,072 pixels have two
thirds of it. As doubles they take 2 GiB, well below the largest table that is read back."""
_TRANSFERS_AT_MOST = 100_000
_DETAILS_AT_MOST = 100
_INTEGER_LIMIT = 2**63
_FILE_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


# A release ----------------------------------------------------------------------------------------


def check_release(release: Release, encoder: Encoder) -> Release:
    """Return the release as it is stored; refuse what is not a release of this schema.

    The ledger is the harness's own and passes as it is: see `check_ledger`.
    """
    if not isinstance(release, Release):
        raise InvalidReleaseError(f"the method returned a {_kind(release)}, not a Release")
    if (release.rows is None) == (release.model is None):
        raise InvalidReleaseError("a release holds either rows or a model, exactly one of them")
    if release.model is not None and not isinstance(release.model, ReleasedModel):
        raise InvalidReleaseError(
            f"the released model is a {_kind(release.model)}; expected a ReleasedModel"
        )
    return Release(
        rows=None if release.rows is None else _rows(release.rows, encoder),
        model=release.model,
        claim=None if release.claim is None else _claim(release.claim),
        notes=_notes(release.notes),
        ledger=release.ledger,
        federation=None if release.federation is None else _federation(release.federation),
    )


def _rows(rows: Rows, encoder: Encoder) -> Rows:
    if not isinstance(rows, Rows):
        raise InvalidReleaseError(f"the released rows are a {_kind(rows)}; expected Rows")
    classes = len(encoder.schema.classes)
    values = _floats("values", rows.values)
    if values.ndim != 2 or values.shape[1] != encoder.width:
        raise InvalidReleaseError(
            f"rows have shape {values.shape}; expected {encoder.width} encoded columns"
        )
    if not len(values):
        raise InvalidReleaseError("the release holds no rows")
    if not np.isfinite(values).all():
        raise InvalidReleaseError(
            f"{int((~np.isfinite(values)).any(axis=1).sum())} rows hold NaN or infinite values"
        )
    labels = _array("labels", rows.labels)
    if labels.shape != (len(values),) or labels.dtype.kind not in "iu":
        raise InvalidReleaseError(
            f"labels have type {labels.dtype} and shape {labels.shape}; expected one integer class "
            "code per row"
        )
    if labels.min() < 0 or labels.max() >= classes:
        raise InvalidReleaseError(f"labels lie outside 0..{classes - 1}")
    weights = None if rows.weights is None else _floats("weights", rows.weights)
    if weights is not None and (
        weights.shape != (len(values),) or not np.isfinite(weights).all() or (weights < 0).any()
    ):
        raise InvalidReleaseError("weights must be one finite non-negative number per row")
    if weights is not None and not weights.any():
        raise InvalidReleaseError("all weights are zero: no row would count")
    soft = None if rows.soft_labels is None else _floats("soft labels", rows.soft_labels)
    if soft is not None and soft.shape != (len(values), classes):
        raise InvalidReleaseError(
            f"soft labels have shape {soft.shape}; expected ({len(values)}, {classes})"
        )
    if soft is not None and (not np.isfinite(soft).all() or (soft < 0).any()):
        raise InvalidReleaseError("soft labels must be finite and not negative")
    return Rows(values, np.array(labels, dtype=np.int64, order="C"), weights, soft)


def _array(name: str, values: object) -> npt.NDArray[Any]:
    # A masked array would release what is behind its mask.
    if not isinstance(values, np.ndarray) or isinstance(values, np.ma.MaskedArray):
        raise InvalidReleaseError(f"{name} are a {_kind(values)}; expected a numpy array")
    # Before anything is copied: an array that repeats one number has any size and needs no memory.
    if values.size > NUMBERS_AT_MOST:
        raise InvalidReleaseError(
            f"{name} have shape {values.shape}: {values.size:,} numbers; a release holds at most "
            f"{NUMBERS_AT_MOST:,}"
        )
    return np.asarray(values)


def _floats(name: str, values: object) -> npt.NDArray[Any]:
    """A copy of 32 or 64 bits in C order and native byte order; other kinds are refused."""
    array = _array(name, values)
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "fiub" or size > 8:
        raise InvalidReleaseError(
            f"{name} have type {array.dtype}; expected floating-point numbers of 32 or 64 bits"
        )
    wanted = np.float32 if kind == "f" and size <= 4 else np.float64
    return np.array(array, dtype=wanted, order="C", copy=True, subok=False)


def _claim(claim: Claim) -> Claim:
    if not isinstance(claim, Claim):
        raise InvalidReleaseError(f"the claim is a {_kind(claim)}; expected a Claim")
    epsilon, delta = _number(claim.epsilon), _number(claim.delta)
    if epsilon is None or not epsilon >= 0:
        raise InvalidReleaseError(
            f"the claim has epsilon {_short(claim.epsilon)}; expected a number of at least 0"
        )
    if delta is None or not 0 <= delta <= 1:
        raise InvalidReleaseError(
            f"the claim has delta {_short(claim.delta)}; expected a number from 0 to 1"
        )
    return Claim(epsilon, delta, _text("the source of the claim", claim.source))


def _notes(notes: Mapping[str, float | str]) -> dict[str, float | str]:
    if not isinstance(notes, Mapping):
        raise InvalidReleaseError(f"notes are a {_kind(notes)}; expected names with values")
    if len(notes) > NOTES_AT_MOST:
        raise InvalidReleaseError(f"{len(notes)} notes; at most {NOTES_AT_MOST} are kept")
    checked: dict[str, float | str] = {}
    for key, value in notes.items():
        if not isinstance(key, str):
            raise InvalidReleaseError(f"the name of a note is a {_kind(key)}; expected text")
        name = _text("the name of a note", key, 200)
        if isinstance(value, str):
            # Longer than other texts: the limit is that of all notes together.
            checked[name] = _text(f"note {name!r}", value, NOTES_CHARACTERS)
            continue
        number = _number(value)
        if number is None:
            raise InvalidReleaseError(
                f"note {name!r} is {_article(value)}; expected text or a number of up to 64 bits"
            )
        checked[name] = number
    if (size := len(json.dumps(checked))) > NOTES_CHARACTERS:
        raise InvalidReleaseError(
            f"notes have {size:,} characters; at most {NOTES_CHARACTERS:,} are kept"
        )
    return checked


def _federation(federation: Federation) -> Federation:
    if not _all(Federation, federation) or not _all(Clients, federation.clients):
        raise InvalidReleaseError("the federation must be a Federation with its Clients")
    split: object = federation.clients.split
    if isinstance(split, SkewedClients):
        count, alpha, seed = (_number(value) for value in (split.count, split.alpha, split.seed))
        if not isinstance(count, int) or not isinstance(seed, int) or alpha is None:
            raise InvalidReleaseError(
                "the clients of a federation need a whole count and seed, and a number alpha"
            )
        clients = Clients(SkewedClients(count, float(alpha), seed))
    elif isinstance(split, str) and split == "site":
        clients = Clients("site")
    else:
        raise InvalidReleaseError(
            f"the clients of a federation are split by {_short(split)}; expected SkewedClients or "
            "'site'"
        )
    transfers: object = federation.transfers
    if not isinstance(transfers, (tuple, list)) or len(transfers) > _TRANSFERS_AT_MOST:
        raise InvalidReleaseError(
            f"transfers must be a tuple of at most {_TRANSFERS_AT_MOST:,} Transfer records"
        )
    return Federation(clients, tuple(map(_transfer, transfers)))


def _transfer(transfer: object) -> Transfer:
    if not isinstance(transfer, Transfer):
        raise InvalidReleaseError(f"a transfer is a {_kind(transfer)}; expected a Transfer")
    counts = [_number(value) for value in (transfer.round, transfer.messages, transfer.bytes)]
    whole = [count for count in counts if isinstance(count, int) and count >= 0]
    if len(whole) < len(counts):
        raise InvalidReleaseError(
            "round, messages and bytes of a transfer must be whole numbers of at least 0"
        )
    if transfer.direction not in get_args(TransferDirection):
        raise InvalidReleaseError(
            f"a transfer has direction {_short(transfer.direction)}; expected 'up' or 'down'"
        )
    direction: TransferDirection = "up" if transfer.direction == "up" else "down"
    phase = _text("the phase of a transfer", transfer.phase, 200)
    return Transfer(phase, whole[0], direction, whole[1], whole[2])


def check_ledger(ledger: Ledger) -> None:
    """Refuse a ledger that cannot be stored: events and texts come from what a method passed."""
    for entry in ledger.entries:
        for text in (entry.reason, entry.trust, *(part for pair in entry.path for part in pair)):
            _text("a text of the ledger", text)
        try:
            json.dumps(events.to_json(entry.event))
        except (TypeError, ValueError, OverflowError):
            raise InvalidReleaseError(
                f"the ledger has a {_kind(entry.event)} that cannot be stored; reserve events of "
                "`bench` (gaussian, laplace, sampled_gaussian) with Python numbers"
            ) from None


# Scores -------------------------------------------------------------------------------------------


def check_scores(computed: Scores, metric: Metric | RefitMetric) -> Scores:
    """Return what a metric computed as it is stored; refuse what is not what it declares.

    A value that is not a number becomes an absent one.
    """
    if not isinstance(computed, Scores):
        raise InvalidScoresError(f"it returned a {_kind(computed)}; expected Scores")
    if not isinstance(computed.scores, (tuple, list)):
        raise InvalidScoresError(f"its scores are a {_kind(computed.scores)}; expected a tuple")
    declared = {output.name for output in metric.declared()}
    scores: list[Score] = []
    for score in computed.scores:
        if not isinstance(score, Score):
            raise InvalidScoresError(f"a score is a {_kind(score)}; expected a Score")
        if not _all(str, score.metric) or score.metric not in declared:
            raise InvalidScoresError(
                f"it returned a score {_short(score.metric)}, which it does not declare; declared "
                f"are {', '.join(sorted(declared))}"
            )
        if any(known.metric == score.metric for known in scores):
            raise InvalidScoresError(f"it returned {score.metric} twice")
        scores.append(_score(score))
    return Scores(tuple(scores), dict(_details(computed.details)))


def _score(score: Score) -> Score:
    numbers: dict[str, float | None] = {}
    for name in ("value", "low", "high", "limit"):
        given = getattr(score, name)
        number = None if given is None else _number(given)
        if given is not None and number is None:
            raise InvalidScoresError(
                f"{score.metric}: its {name} is {_article(given)}; expected a number or None"
            )
        numbers[name] = None if number is None or math.isnan(number) else float(number)
    if not _all(Direction, score.direction) or not _all(Family, score.family):
        raise InvalidScoresError(f"{score.metric}: expected a Direction and a Family")
    for name in ("reason", "remark"):
        if not isinstance(getattr(score, name), str):
            raise InvalidScoresError(f"{score.metric}: its {name} is no text")
    reason = one_line(score.reason)
    if numbers["value"] is None:
        reason = reason or "the metric gave no number"
    return Score(
        str(score.metric),
        numbers["value"],
        numbers["low"],
        numbers["high"],
        score.direction,
        score.family,
        reason,
        numbers["limit"],
        one_line(score.remark),
        bool(score.shown),
    )


def _details(details: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, pd.DataFrame]]:
    if not _all(Mapping, details) or len(details) > _DETAILS_AT_MOST:
        raise InvalidScoresError(f"details must be at most {_DETAILS_AT_MOST} tables with names")
    for name, frame in details.items():
        # A name becomes that of a file.
        good = _all(str, name) and 0 < len(name) <= 100 and set(name) <= _FILE_NAME
        if not good or name.startswith("."):
            raise InvalidScoresError(
                f"a table of details is called {_short(name)}; expected letters, digits, '.', '_' "
                "and '-'"
            )
        if not isinstance(frame, pd.DataFrame):
            raise InvalidScoresError(f"details {name}: a {_kind(frame)}; expected a DataFrame")
        if frame.size > NUMBERS_AT_MOST:
            raise InvalidScoresError(
                f"details {name}: a table of shape {frame.shape}; at most {NUMBERS_AT_MOST:,} "
                "values are stored"
            )
        yield name, _table(name, frame)


def _table(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    import pyarrow as pa

    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        raise InvalidScoresError(
            f"details {name}: the table cannot be stored as Parquet ({type(problem).__name__}); "
            "give every column one type and every column a different text as name"
        ) from None
    # Columns of objects may hold a plugin's own classes, which must not reach another process.
    plain = all(kind.kind != "O" for kind in frame.dtypes)
    return frame if plain else table.to_pandas()


# Shared -------------------------------------------------------------------------------------------


def _all(kind: type[Any], *values: object) -> bool:
    """True where all are of this type, whatever the annotations promise."""
    return all(isinstance(value, kind) for value in values)


def _number(value: object) -> float | int | None:
    """A plain Python number, also from numpy's; None for what is no number of up to 64 bits."""
    if isinstance(value, np.generic):
        value = value.item() if value.dtype.kind in "fiub" and value.dtype.itemsize <= 8 else None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        plain = int(value)
        return plain if -_INTEGER_LIMIT <= plain < _INTEGER_LIMIT else None
    return float.__float__(value) if isinstance(value, float) else None


def _text(what: str, value: object, limit: int = TEXT_CHARACTERS) -> str:
    if not isinstance(value, str):
        raise InvalidReleaseError(f"{what} is {_article(value)}; expected text")
    if len(value) > limit:
        raise InvalidReleaseError(
            f"{what} has {len(value):,} characters; at most {limit:,} are kept"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidReleaseError(
            f"{what} holds lone surrogates, which are no text; decode bytes before they are noted"
        ) from None
    return printable(str.__str__(value))


def _kind(value: object) -> str:
    return one_line(type(value).__name__, 80)


def _article(value: object) -> str:
    name = _kind(value)
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _short(value: object) -> str:
    """A wrong value, shown only where it cannot be a row: a number or a short text."""
    if isinstance(value, str):
        return repr(one_line(value, 40))
    number = _number(value)
    return _article(value) if number is None else f"{number:g}"
