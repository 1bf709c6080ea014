"""Exceptions of plugins: type and place for everybody, the whole text for the internal log."""

from __future__ import annotations

import errno
import os

import pytest

from bench.engine.failures import cut_middle, failure_of, in_words
from bench.engine.fit import FitResult, guarded
from bench.errors import BenchError, InvalidReleaseError, NotApplicable
from bench.results.records import Status
from tests.support import plugins

ROW = "[67.0, 'relapsed', 'Smith']"


def raised(problem: BaseException) -> BaseException:
    """The exception with a traceback, as a plugin would raise it."""
    try:
        plugins.throw(problem)
    except BaseException as caught:
        return caught
    raise AssertionError


class Mine(BenchError):
    """A plugin's subclass of our error: its text is not ours."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError(ROW)

    __repr__ = __str__


class Unusual(BaseException):
    pass


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (ValueError(f"row content: {ROW}"), "ValueError"),
        (KeyError(ROW), "KeyError"),
        (Mine(ROW), "Mine"),
        (Unusual(ROW), "Unusual"),
        (GeneratorExit(ROW), "GeneratorExit"),
        (MemoryError(ROW), "MemoryError"),
        (Mute(), "Mute"),
        (type(f"Bad\x1b[2J{'x' * 500}", (Exception,), {})(ROW), "Bad?[2Jxx"),
        (OSError(errno.ENOSPC, ROW, ROW), f"OSError ({os.strerror(errno.ENOSPC)})"),
        (OSError(ROW), "OSError"),
        (ModuleNotFoundError(ROW, name="absent.module"), "ModuleNotFoundError (absent.module)"),
        (ImportError(ROW, name=ROW), "ImportError"),
        (SystemExit(3), "the method called sys.exit(3)"),
        (SystemExit(ROW), "the method called sys.exit()"),
    ],
)
def test_nothing_but_type_and_place_is_told(problem: BaseException, words: str) -> None:
    failure = failure_of(raised(problem))
    assert failure.reason.startswith(words)
    assert f"at plugins.py:{plugins.throw.__code__.co_firstlineno + 2}" in failure.reason
    assert "plugins.py" in failure.stack and "in throw" in failure.stack
    for text in (failure.reason, failure.stack):
        assert "Smith" not in text and "\x1b" not in text and len(text) < 3000
    assert "Traceback" in failure.log
    if not isinstance(problem, Mute | ImportError | SystemExit):
        assert ROW in failure.log
    out = isinstance(problem, MemoryError)
    assert failure.status is (Status.OUT_OF_MEMORY if out else Status.ERROR)


def test_an_exception_whose_attributes_are_traps_is_a_failure_too() -> None:
    class Trap(OSError):
        @property
        def errno(self) -> int:
            raise RuntimeError(ROW)

    failure = failure_of(raised(Trap()))
    assert failure.reason == "an exception that cannot be told (RuntimeError)"
    strange = OSError()
    strange.errno = [ROW]  # type: ignore[assignment]
    assert failure_of(raised(strange)).reason.startswith("OSError at ")


def test_typed_errors_keep_their_texts() -> None:
    failure = failure_of(raised(InvalidReleaseError("labels lie outside 0..1")))
    assert (failure.status, failure.reason) == (Status.ERROR, "labels lie outside 0..1")
    skipped = failure_of(raised(NotApplicable("not \x1b[2Jfor this task\n")))
    assert (skipped.status, skipped.reason) == (Status.SKIPPED, "not ?[2Jfor this task")
    assert len(failure_of(NotApplicable("x" * 50_000_000)).reason) < 2100


def test_what_was_raised_without_a_traceback_has_no_place() -> None:
    assert in_words(ValueError(ROW)) == "ValueError"


def test_endless_recursion_is_told_briefly() -> None:
    def endless() -> None:
        endless()

    with pytest.raises(RecursionError) as caught:
        endless()
    failure = failure_of(caught.value)
    assert failure.reason.startswith("RecursionError at test_failures.py:")
    assert len(failure.stack.splitlines()) < 25


def test_very_long_logs_are_cut_in_the_middle() -> None:
    failure = failure_of(raised(ValueError("x" * 50_000_000)))
    assert len(failure.log) < 210_000 and failure.log.startswith("Traceback")
    assert cut_middle("abcdefgh", 4) == "a\n[cut: 4 characters]\nfgh"


def test_any_exception_becomes_a_status_but_the_users_own_interrupt() -> None:
    for problem in (Unusual(), GeneratorExit(), SystemExit(1), Mute()):
        failed = guarded(lambda problem=problem: plugins.throw(problem))  # type: ignore[misc]
        assert isinstance(failed, FitResult) and failed.status is Status.ERROR
    with pytest.raises(KeyboardInterrupt):
        guarded(lambda: plugins.throw(KeyboardInterrupt()))
