"""Compiled loops: where machine code can be kept on disk, and where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import pytest

from bench.privacy.compiled import compiled


def doubled(number: int) -> int:
    return 2 * number


def without_a_file() -> Callable[[int], int]:
    """Return a function of no source file, for which numba has no place to keep machine code."""
    namespace: dict[str, Any] = {}
    exec("def doubled(number):\n    return 2 * number", namespace)
    function: Callable[[int], int] = namespace["doubled"]
    with pytest.raises(RuntimeError, match="cannot cache function"):
        numba.njit(cache=True)(function)
    return function


@pytest.mark.parametrize("kept", [True, False])
def test_other_threads_run_meanwhile_whether_or_not_machine_code_is_kept(
    kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    asked: list[dict[str, Any]] = []
    original = numba.njit

    def njit(*arguments: Any, **options: Any) -> Any:
        made = original(*arguments, **options)

        def decorate(function: Any) -> Any:
            if function.__name__ == "doubled":  # numba imports compiled functions of its own
                asked.append(options)
            return made(function)

        return made if arguments else decorate

    monkeypatch.setattr(numba, "njit", njit)
    call = compiled(doubled if kept else without_a_file())
    asked.clear()
    assert [call(4), call(number=5)] == [8, 10]
    tried = [{"cache": True, "nogil": True}, {"nogil": True}]
    assert asked == (tried[:1] if kept else tried)
