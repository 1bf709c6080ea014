"""How a failure is told: type and place for everybody, the whole text for the cell's own log.

The text of an exception may hold values of private rows (`could not convert string to float:
'Smith'`). Tables, terminal, MLflow and pages get the type of the exception and the line of the
plugin that raised it; the text, with the traceback, goes to a log inside the run directory that
only its owner can read. Typed errors of this project hold no values of rows and keep their texts.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import final

from bench.errors import BenchError, NotApplicable, one_line, text_of
from bench.results.records import Status

_LOG_CHARACTERS = 200_000
_STACK_LINES = 20
_PLUGIN_ROOMS = ("bench.methods", "bench.metrics", "bench.datasets")
_MODULE = re.compile(r"[A-Za-z_][\w.]{0,99}")


@final
@dataclass(frozen=True)
class Failure:
    """Why something ended without a result."""

    status: Status
    reason: str
    """What everybody may read."""
    stack: str
    """Places in the code, without any values."""
    log: str
    """The whole text with the traceback: for the internal log only."""


def failure_of(problem: BaseException) -> Failure:
    """Return what is told about an exception; it may be any, also one that cannot be shown."""
    try:
        if type(problem) is NotApplicable:
            return Failure(Status.SKIPPED, text_of(problem), "", "")
        status = Status.OUT_OF_MEMORY if isinstance(problem, MemoryError) else Status.ERROR
        return Failure(status, in_words(problem), _stack(problem), whole_text(problem))
    except Exception as further:
        # Attributes of an exception can be code of the plugin as well.
        kind = one_line(type(further).__name__, 100)
        return Failure(Status.ERROR, f"an exception that cannot be told ({kind})", "", "")


def in_words(problem: BaseException) -> str:
    """Return the text of a typed error of this project; of others type and place only."""
    if is_ours(problem):
        return text_of(problem)
    place = _place(problem)
    at = f" at {place}" if place else ""
    if isinstance(problem, SystemExit):
        # A whole number is an exit status; any other code is a text, which may hold anything.
        code = problem.code if type(problem.code) is int and abs(problem.code) < 1000 else ""
        return f"the method called sys.exit({code}){at}"
    return f"{one_line(type(problem).__name__, 100)}{_known(problem)}{at}"


def is_ours(problem: BaseException) -> bool:
    """Return True for errors whose texts are written here; a plugin's subclasses are not."""
    return isinstance(problem, BenchError) and type(problem).__module__ == BenchError.__module__


def whole_text(problem: BaseException) -> str:
    """Return text and traceback, cut in the middle where they are very long."""
    try:
        text = "".join(traceback.format_exception(problem))
    except Exception:
        # Formatting runs code of the exception and of everything that it refers to.
        text = f"{_stack(problem)}\n{type(problem).__name__} (it cannot be formatted)"
    return cut_middle(text, _LOG_CHARACTERS)


def cut_middle(text: str, limit: int) -> str:
    """Return the beginning and the end of a long text."""
    if len(text) <= limit:
        return text
    start, end = limit // 4, limit - limit // 4
    return f"{text[:start]}\n[cut: {len(text) - limit:,} characters]\n{text[-end:]}"


def _known(problem: BaseException) -> str:
    """What can be said beside the type: words of the operating system, a module's name."""
    if isinstance(problem, OSError):
        number = problem.errno
        known = type(number) is int and number in errno.errorcode
        return f" ({os.strerror(number)})" if known and number is not None else ""
    if isinstance(problem, ImportError) and isinstance(problem.name, str):
        return f" ({problem.name})" if _MODULE.fullmatch(problem.name) else ""
    return ""


def _frames(problem: BaseException) -> list[tuple[FrameType, int]]:
    return list(traceback.walk_tb(problem.__traceback__))


def _place(problem: BaseException) -> str:
    """The innermost line of the plugin; of the code that raised where no plugin was running."""
    frames = _frames(problem)
    owners = [_owner(frame) for frame, _ in frames]
    plugin = next(filter(None, owners), "")
    own = [frame for frame, owner in zip(frames, owners, strict=True) if owner == plugin]
    return _line(*(own if plugin else frames)[-1]) if frames else ""


def _owner(frame: FrameType) -> str:
    """The package of a frame's module; empty for the harness itself."""
    module = frame.f_globals.get("__name__")
    name = module if isinstance(module, str) else ""
    if name == "bench" or name.startswith("bench."):
        return ".".join(name.split(".")[:2]) if name.startswith(_PLUGIN_ROOMS) else ""
    return name.split(".")[0]


def _line(frame: FrameType, number: int) -> str:
    # The folder is left out: it names the machine and its user.
    return one_line(f"{Path(frame.f_code.co_filename).name}:{number}", 120)


def _stack(problem: BaseException) -> str:
    frames = _frames(problem)
    lines = [
        f"{_line(frame, number)} in {one_line(frame.f_code.co_name, 80)}"
        for frame, number in _shortened(frames)
    ]
    return "\n".join([*lines, one_line(type(problem).__name__, 100)])


def _shortened(frames: Sequence[tuple[FrameType, int]]) -> Sequence[tuple[FrameType, int]]:
    """The first and the last ones: endless recursion has thousands."""
    if len(frames) <= _STACK_LINES:
        return frames
    half = _STACK_LINES // 2
    return [*frames[:half], *frames[-half:]]
