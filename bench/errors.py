"""Exceptions of the harness. A message names the offender, what was expected, and what to do.

Texts of others' exceptions pass `one_line` before they reach a terminal or a table.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final, final

_SHOWN = 60
"""Characters of somebody's input that a message repeats."""


def shortened(value: object) -> str:
    """Return input as a message shows it: in quotes if it is text, on one line, never long."""
    try:
        text = repr(value)
    except ValueError:  # integers of some thousands of digits have no text
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


class BenchError(Exception):
    """Base of all errors that a user or a plugin can cause."""


class InputError(BenchError):
    """A request that cannot be served as given: reported in one line, exit code 2."""


_LISTED = ("method", "dataset", "metric")
"""Kinds of plugins that `bench list` shows."""


@final
class UnknownNameError(InputError):
    """A name that is not registered; the message suggests similar ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        # Matching takes quadratic time: what is longer than any name is cut.
        near = difflib.get_close_matches(name[:_SHOWN], names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
        listed = f" (see `bench list {kind}s`)" if kind in _LISTED else ""
        super().__init__(f"unknown {kind} {shortened(name)}; {hint}{listed}")
        self.kind = kind
        self.name = name
        self.near = tuple(near)


@final
class GridError(InputError):
    """A grid file or a grid option that cannot be run."""


@final
class SchemaError(InputError):
    """A schema that contradicts itself, or rows that contradict their schema."""


@final
class DataError(InputError):
    """A data file that is missing, unreadable or not what it should be."""


@final
class StoreError(InputError):
    """A run directory that cannot be used."""


@final
class ProgramMissingError(InputError):
    """A program of the system that a command needs is absent, or does not do its work."""


@final
class NotApplicable(BenchError):
    """Raised by a method that does not fit a task: the cell is skipped with this reason."""


@final
class NotComputable(BenchError):
    """Raised by a metric without a value for this release: the score is absent for this reason."""


@final
class EnvironmentUnavailable(BenchError):
    """The environment of a method is not available here; `problem` starts with a verb."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"environment {name} cannot be {problem}")
        self.name = name
        self.problem = problem

    def __reduce__(self) -> tuple[type[EnvironmentUnavailable], tuple[str, str]]:
        return type(self), (self.name, self.problem)


@final
class ClusterLostError(InputError):
    """Ray cannot be reached, or ended in the middle of a run."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"the Ray cluster cannot be reached ({problem}); once it is back, run the same command "
            "to resume: what has finished is kept"
        )


@final
class LimitsLostError(InputError):
    """The limits of cells cannot be enforced: the run is stopped rather than left without them."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"the process that enforces the limits of cells does not stay alive ({problem}); once "
            "the cause is removed, run the same command to resume: what has finished is kept"
        )


@final
class UnsafeFolderError(InputError):
    """A folder for private files that another user prepared, or can read."""

    def __init__(self, folder: object) -> None:
        super().__init__(
            f"{folder}: expected a folder of this user with mode 0700, not a link; remove it, or "
            "name another temporary folder in TMPDIR"
        )
        self.folder = str(folder)

    def __reduce__(self) -> tuple[type[UnsafeFolderError], tuple[str]]:
        return type(self), (self.folder,)


@final
class FolderClosedError(BenchError):
    """A cell that starts when its run has ended."""

    def __init__(self, folder: object) -> None:
        super().__init__(f"{folder}: the run has ended; start it again to run its other cells")
        self.folder = str(folder)

    def __reduce__(self) -> tuple[type[FolderClosedError], tuple[str]]:
        return type(self), (self.folder,)


@final
class InvalidReleaseError(BenchError):
    """A method returned something that is not a release of this dataset."""


@final
class InvalidScoresError(BenchError):
    """A metric returned something other than the scores that it declares."""


@final
class BudgetExceededError(BenchError):
    """A private call would spend more than the budget. Nothing was computed or written."""


@final
class PrivacyContractError(BenchError):
    """A method used the privacy kernel in a way that would void its guarantee."""


@final
class CalibrationError(BenchError):
    """No noise level in the searched range meets the budget."""


TEXT_CHARACTERS: Final = 2_000
"""Length of a text for tables and terminals: a reason, a source, a remark."""


def printable(text: str, kept: str = "\n\t") -> str:
    """Return text of others for a terminal, a table or a page: what cannot be shown becomes `?`.

    Control characters would be obeyed by a terminal, and lone surrogates cannot be encoded. This is
    the one place that decides about them.
    """
    return "".join(c if c.isprintable() or c in kept else "?" for c in text)


def one_line(text: str, limit: int = TEXT_CHARACTERS) -> str:
    """Return a text for a table or a terminal: one line, of bounded length, without control codes.

    Control characters become `?`, as in `printable`, and any white space one blank.
    """
    # What is cut off is not looked at: a message may have fifty megabytes.
    kept = text[: 2 * limit]
    line = " ".join(printable(word) for word in kept.split())
    if len(text) <= len(kept) and len(line) <= limit:
        return line
    # The note counts too: a text that passes here twice is cut once.
    note = f" [cut: {len(text):,} characters]"
    return f"{line[: max(0, limit - len(note))].rstrip()}{note}"


def text_of(problem: BaseException, limit: int = TEXT_CHARACTERS) -> str:
    """Return the text of an exception in one line; exceptions can fail to have one."""
    try:
        return one_line(str(problem), limit)
    except Exception:
        return "(its text cannot be shown: its __str__ failed)"


@final
class FitFailedError(BenchError):
    """A fit in another process that gave no release; the text is the reason that is told."""
