"""What all tests share: the import path, and which tests one process runs together."""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

# Makes `tests.support` importable without putting the repository root first on the path, where
# `import datasets` would find our folder instead of the well-known package.
sys.path.append(str(Path(__file__).resolve().parent.parent))


class _Sharing:
    """Schedules tests by file where they share a fixture of their module, singly elsewhere.

    Such a fixture is expensive: a whole run through Ray, a site. Two processes would build it
    twice, and tests that start Ray would meet on both cores. Files are started first, and single
    tests fill the gaps. The contract of a method is tested by one process, which then calibrates
    its noise once. (`--dist loadgroup` would be shorter: xdist 3.8 with pytest 9 ignores it.)
    """

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from xdist.scheduler import LoadScopeScheduling

        class Scheduling(LoadScopeScheduling):
            def _split_scope(self, nodeid: str) -> str:
                file = nodeid.split("::", 1)[0]
                if file == _METHODS:
                    return f"{file} {_method(nodeid)}"
                return file if _shares(config.rootpath / file) else nodeid

        return Scheduling(config, log) if config.getvalue("dist") == "loadscope" else None


_METHODS = "tests/contract/test_methods.py"


def _method(nodeid: str) -> str:
    """The method that a test of the contract is about: the last of its parameters."""
    return max((name for name in _methods() if nodeid.endswith(f"{name}]")), key=len, default="")


@functools.cache
def _methods() -> tuple[str, ...]:
    from bench.plugins import registry

    return tuple(registry.method_names())


@functools.cache
def _shares(file: Path) -> bool:
    return 'scope="module"' in file.read_text()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Sharing())
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        gc.disable()  # until tests are collected


def pytest_collection_finish(session: pytest.Session) -> None:
    # Thousands of tests and all libraries were made once and stay: no garbage collection should
    # look at them while they are made, or ever after.
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _environment_of_one_test() -> Iterator[None]:
    """Restore the environment: a command run here puts its `--data-dir` there.

    The tests on real data after it would look into its folder, and skip.
    """
    with mock.patch.dict(os.environ):
        yield
