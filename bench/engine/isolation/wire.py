"""What crosses between a process that ran a plugin and one that did not: plain values only.

A message is JSON and the bytes of arrays, nothing that could run code when it is read. Whatever a
plugin has done to its process, the reader gets text, numbers, arrays of 1 to 8 bytes per number,
lists and dictionaries, or a `WireError`. A release is rebuilt from them and passes the wall
(`bench.plugins.returned`) again, on the side of the reader.

    8 bytes    length of the document
    document   JSON; {"\\u0000": 3} stands for the array with number 3
    arrays     their bytes, one after the other, as the document lists them

Requests travel in the other direction, from the harness to a process that it has started: they are
pickled, in the same frame.
"""

from __future__ import annotations

import json
import math
import pickle  # noqa: TID251 (requests of the harness to a process that it started; see below)
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.data.encoder import Encoder
from bench.engine.fit import FitResult
from bench.errors import BenchError, InvalidReleaseError, one_line
from bench.plugins.release import (
    Claim,
    Detector,
    Federation,
    Release,
    ReleasedModel,
    Rows,
    TrainedInRounds,
)
from bench.plugins.returned import check_ledger, check_release
from bench.privacy import events
from bench.privacy.accounting import ComposedEvents, pld_epsilon, rdp_epsilon
from bench.privacy.ledger import Ledger
from bench.results.records import Status

Plain = Any
"""None, bool, int, float, str, array, and lists and dictionaries of them."""

Fill = Callable[[memoryview], None]
"""Fills a piece of memory with the next bytes; raises where there are none."""

_LENGTH = struct.Struct(">Q")
_DOCUMENT_BYTES = 2**28
_ARRAY_BYTES = 2**36
_ARRAYS = 100_000
_KINDS = "fiub"
_ARRAY = "\0"
_REASON_CHARACTERS = 10_000
_LOG_CHARACTERS = 400_000
_ROUNDS = 1_000_000


@final
class WireError(Exception):
    """What came is no message, or not the one that was expected."""


# Messages of a process that ran a plugin ----------------------------------------------------------


def send(channel: socket.socket, value: Plain) -> None:
    """Send a plain value."""
    arrays: list[npt.NDArray[Any]] = []
    document = json.dumps(
        {"value": _taken_apart(value, arrays), "arrays": list(map(_head, arrays))}
    )
    content = document.encode("ascii")
    channel.sendall(_LENGTH.pack(len(content)) + content)
    for array in arrays:
        # Bytes of the array in its own order; an empty one has none.
        if array.size:
            ordered = array if array.flags.c_contiguous else array.T
            channel.sendall(ordered.reshape(-1).data.cast("B"))


def receive(fill: Fill) -> Plain:
    """Return the next plain value; raise `WireError` where there is none."""
    head = bytearray(_LENGTH.size)
    fill(memoryview(head))
    (length,) = _LENGTH.unpack(head)
    if length > _DOCUMENT_BYTES:
        raise WireError("a message is too long")
    content = bytearray(length)
    fill(memoryview(content))
    try:
        message = json.loads(content.decode("ascii"))
        heads = [_array_of(head) for head in message["arrays"]]
        value = message["value"]
    except (
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
        ArithmeticError,
        MemoryError,
    ) as problem:
        raise WireError(f"a message cannot be read ({type(problem).__name__})") from None
    for array in heads:
        if array.size:
            ordered = array if array.flags.c_contiguous else array.T
            fill(ordered.reshape(-1).data.cast("B"))
    try:
        return _put_together(value, heads)
    except (RecursionError, LookupError, TypeError) as problem:
        raise WireError(f"a message cannot be read ({type(problem).__name__})") from None


def _taken_apart(value: Plain, arrays: list[npt.NDArray[Any]]) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(_sendable(value))
        return {_ARRAY: len(arrays) - 1}
    if isinstance(value, Mapping):
        return {_name(name): _taken_apart(item, arrays) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_taken_apart(item, arrays) for item in value]
    return value


def _name(name: object) -> str:
    if not isinstance(name, str) or name == _ARRAY:
        raise WireError("a dictionary has a key that is no text")
    return name


def _sendable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind not in _KINDS or array.dtype.itemsize > 8:
        raise WireError(f"an array has type {array.dtype}")
    plain = np.asarray(array)
    if not plain.dtype.isnative:
        plain = plain.astype(plain.dtype.newbyteorder("="))
    # Sums over an array depend on its order in memory: it stays the same.
    if plain.flags.c_contiguous or plain.flags.f_contiguous:
        return plain
    return np.ascontiguousarray(plain)


def _head(array: npt.NDArray[Any]) -> list[Any]:
    return [array.dtype.str, list(array.shape), "C" if array.flags.c_contiguous else "F"]


def _array_of(head: Sequence[Any]) -> npt.NDArray[Any]:
    """An array to be filled, of the type and shape that a message announces."""
    kind, shape, order = head
    dtype = np.dtype(str(kind))
    sides = [int(side) for side in shape]
    if dtype.kind not in _KINDS or dtype.itemsize > 8 or dtype.hasobject or not dtype.isnative:
        raise ValueError("not a type of plain numbers")
    if len(sides) > 8 or min(sides, default=0) < 0 or order not in ("C", "F"):
        raise ValueError("not a shape")
    if math.prod(sides) * dtype.itemsize > _ARRAY_BYTES:
        raise ValueError("too large")
    return np.empty(sides, dtype, order=order)


def _put_together(value: Any, arrays: Sequence[npt.NDArray[Any]]) -> Plain:
    if isinstance(value, dict):
        if _ARRAY in value:
            number = value[_ARRAY]
            if type(number) is not int or not 0 <= number < len(arrays):
                raise LookupError
            return arrays[number]
        return {name: _put_together(item, arrays) for name, item in value.items()}
    if isinstance(value, list):
        return [_put_together(item, arrays) for item in value]
    return value


# Epsilons that a fit needs ------------------------------------------------------------------------


def of_composition(
    by: str, composition: ComposedEvents, delta: float, order: float | None
) -> Plain:
    """Return the question for the epsilon of a composition."""
    listed = [[events.to_json(event), count] for event, count in composition]
    return {"epsilon": by, "events": listed, "delta": delta, "order": order}


def answered(question: Plain) -> float | None:
    """Return the epsilon that was asked for; None where it cannot be computed here."""
    try:
        composition = tuple(
            (events.from_json(event), _whole(count)) for event, count in question["events"]
        )
        delta, order = float(question["delta"]), question["order"]
        if question["epsilon"] == "pld":
            return pld_epsilon(composition, delta)
        return rdp_epsilon(composition, delta, None if order is None else float(order))
    except Exception:
        # Whatever is wrong with it, the process that asked meets it again, and is told.
        return None


def _whole(count: object) -> int:
    if type(count) is not int or count < 1:
        raise WireError("a count is none")
    return count


# Requests of the harness --------------------------------------------------------------------------


def packed(request: object) -> bytes:
    """Return an object of the harness as bytes, for a process that it has started."""
    return pickle.dumps(request, protocol=5)


def unpacked(content: bytes | bytearray, buffers: Sequence[memoryview] = ()) -> Any:
    """Return what `packed` was given. Never for bytes that a plugin could have written."""
    return pickle.loads(content, buffers=buffers)  # noqa: S301


def send_request(channel: socket.socket, value: object, descriptors: Sequence[int] = ()) -> None:
    """Send an object of the harness, and open files with it."""
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    sizes = [len(content), *(len(view) for view in views)]
    head = _LENGTH.pack(len(sizes))
    if descriptors:
        head = head[socket.send_fds(channel, [head], list(descriptors)) :]
    channel.sendall(head + b"".join(map(_LENGTH.pack, sizes)) + content)
    for view in views:
        channel.sendall(view)


def receive_request(channel: socket.socket) -> tuple[Any, list[int]] | None:
    """Return the next request with its open files; None once the other end is closed."""
    try:
        head, descriptors, _, _ = socket.recv_fds(channel, _LENGTH.size, 1)
    except ConnectionError:
        return None
    if not head:
        return None
    head += _bytes(channel, _LENGTH.size - len(head))
    (count,) = _LENGTH.unpack(head)
    first, *sizes = (size for (size,) in _LENGTH.iter_unpack(_bytes(channel, count * len(head))))
    content = _bytes(channel, first)
    # Read-only, as what Ray shares between its workers.
    views = [memoryview(_bytes(channel, size)).toreadonly() for size in sizes]
    return unpacked(content, views), descriptors


def fill_from(channel: socket.socket) -> Fill:
    """Return a function that reads from the channel, waiting for what is missing."""

    def fill(view: memoryview) -> None:
        while view:
            count = channel.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]

    return fill


def _bytes(channel: socket.socket, count: int) -> bytearray:
    content = bytearray(count)
    fill_from(channel)(memoryview(content))
    return content


# The result of a fit ------------------------------------------------------------------------------


def of_result(fitted: FitResult) -> Plain:
    """Return the plain value of a result; of a model only what kind of model it is."""
    return {
        "status": fitted.status.value,
        "reason": fitted.reason,
        "stack": fitted.stack,
        "log": fitted.log,
        "seconds": fitted.seconds,
        "peak_memory_mb": fitted.peak_memory_mb,
        "processor_seconds": fitted.processor_seconds,
        "versions": dict(fitted.versions),
        "release": None if fitted.release is None else _of_release(fitted.release),
    }


def _of_release(release: Release) -> Plain:
    rows, claim, federation = release.rows, release.claim, release.federation
    return {
        "rows": None
        if rows is None
        else [rows.values, rows.labels, rows.weights, rows.soft_labels],
        "model": None if release.model is None else _of_model(release.model),
        "claim": None if claim is None else [claim.epsilon, claim.delta, claim.source],
        "notes": dict(release.notes),
        "federation": None if federation is None else federation.to_record(),
        "ledger": None if release.ledger is None else release.ledger.to_record(),
    }


def _of_model(model: ReleasedModel) -> Plain:
    rounds = model.rounds if isinstance(model, TrainedInRounds) else None
    threshold = model.threshold if isinstance(model, Detector) else None
    return {
        "rounds": None if rounds is None else int(rounds),
        "threshold": None if threshold is None else float(threshold),
    }


@final
@dataclass(frozen=True)
class ModelFacts:
    """What is known of a released model without calling it."""

    rounds: int | None
    threshold: float | None


def to_result(
    value: Plain, encoder: Encoder, model: Callable[[ModelFacts], ReleasedModel]
) -> FitResult:
    """Rebuild the result of a fit; the wall refuses what is no release of this schema.

    `model` builds what stands for a released model, which stays in the process that made it.
    """
    try:
        fitted = _result(value)
        if value["release"] is None or fitted.status is not Status.OK:
            if fitted.status is Status.OK:
                raise WireError("a fit that is well has no release")
            return fitted
        release = check_release(_release(value["release"], model), encoder)
        if release.ledger is None:
            raise WireError("a release has no ledger")
        check_ledger(release.ledger)
    except InvalidReleaseError as problem:
        return FitResult.failed(problem)
    except (
        WireError, BenchError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError,
        RecursionError,
    ) as problem:  # fmt: skip
        return garbled(problem)
    return FitResult(
        Status.OK,
        release,
        log=fitted.log,
        seconds=fitted.seconds,
        peak_memory_mb=fitted.peak_memory_mb,
        processor_seconds=fitted.processor_seconds,
        versions=fitted.versions,
    )


def to_failure(value: Plain) -> FitResult:
    """Rebuild the result of what failed."""
    try:
        fitted = _result(value)
    except (WireError, LookupError, TypeError, ValueError) as problem:
        return garbled(problem)
    if fitted.status is Status.OK:
        return garbled(WireError("what failed is called well"))
    return fitted


def garbled(problem: Exception) -> FitResult:
    """Return the result of a fit whose process sent what is no result."""
    kind = type(problem).__name__
    return FitResult(
        Status.ERROR,
        reason=f"the process of its fit sent what is no result ({kind}): the method has changed "
        "the harness in its process, or written to a file that is not its own",
        log=one_line(str(problem), 1000),
    )


def _result(value: Plain) -> FitResult:
    versions = value["versions"]
    if not isinstance(versions, dict) or len(versions) > 1000:
        raise WireError("versions are no dictionary")
    return FitResult(
        Status(value["status"]),
        reason=_text(value["reason"], _REASON_CHARACTERS),
        stack=_text(value["stack"], _REASON_CHARACTERS),
        log=_text(value["log"], _LOG_CHARACTERS),
        seconds=_positive(value["seconds"]),
        peak_memory_mb=_positive(value["peak_memory_mb"]),
        processor_seconds=_positive(value["processor_seconds"]),
        versions={_text(name, 200): _text(text, 200) for name, text in versions.items()},
    )


def _release(value: Plain, model: Callable[[ModelFacts], ReleasedModel]) -> Release:
    rows, claim, federation, facts = (
        value[name] for name in ("rows", "claim", "federation", "model")
    )
    return Release(
        rows=None if rows is None else Rows(*rows),
        model=None if facts is None else model(_facts(facts)),
        claim=None if claim is None else Claim(*claim),
        notes=value["notes"],
        ledger=None if value["ledger"] is None else Ledger.from_record(value["ledger"]),
        federation=None if federation is None else Federation.from_record(federation),
    )


def _facts(value: Plain) -> ModelFacts:
    rounds, threshold = value["rounds"], value["threshold"]
    if rounds is not None and (type(rounds) is not int or not 0 <= rounds <= _ROUNDS):
        raise InvalidReleaseError("the rounds of a released model must be a whole number")
    if threshold is not None and type(threshold) not in (int, float):
        raise InvalidReleaseError("the threshold of a released detector must be a number")
    return ModelFacts(rounds, None if threshold is None else float(threshold))


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str):
        raise WireError("a text is none")
    # Lone surrogates are no text; a fit that failed is told nevertheless.
    return value[:limit].encode(errors="replace").decode()


def _positive(value: object) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < math.inf:  # type: ignore[operator]
        raise WireError("a measured number is none")
    return float(value)  # type: ignore[arg-type]
