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

# Ray starts its workers with the lowest priority but four. Beside processes that test at the usual
# one, a cell of a few milliseconds would take as long as all other tests.
os.environ.setdefault("RAY_worker_niceness", "0")


class _Sharing:
    """Schedules tests by file: what a file builds or imports once is built by one process.

    Tests that start Ray are one unit, which begins first: two of them would meet on both cores, and
    the last one would leave a core to nobody. The two largest files are split: the contract of a
    method is tested by one process, which then calibrates its noise once, that of metrics function
    by function. (`--dist worksteal` and `load` build fixtures of a module in every process, and
    `loadgroup` is ignored by xdist 3.8 with pytest 9.)
    """

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from xdist.scheduler import LoadScopeScheduling

        class Scheduling(LoadScopeScheduling):
            def _split_scope(self, nodeid: str) -> str:
                file = nodeid.split("::", 1)[0]
                if file.startswith(_CLUSTER):
                    return _CLUSTER
                if file == _METHODS:
                    return f"{file} {_method(nodeid)}"
                return nodeid.split("[", 1)[0] if file == _METRICS else file

        if config.getvalue("dist") != "loadscope":
            return None
        config.option.loadscopereorder = False  # the order is that of the items below
        return Scheduling(config, log)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Begin with what takes longest, so that small files fill the gaps at the end."""
        if hasattr(config, "workerinput"):
            items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    file = item.nodeid.split("::", 1)[0]
    if file.startswith(_CLUSTER):
        return 0
    if file in (_METHODS, _METRICS):
        return 1
    return 2 if _shares(item.path) else 3


_CLUSTER = "tests/cluster/"
_METRICS = "tests/contract/test_metrics.py"
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
