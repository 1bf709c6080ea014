"""One Ray for several runs of a test: to start it, and its workers, costs more than small cells.

Only for runs that are a test's means. What a run starts, opens, and leaves behind is looked at in
`tests/cluster/test_servers.py` and `test_driver.py`, whose runs have a Ray of their own.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

from bench.cluster import driver, execute
from bench.cluster.private_folders import base_folder, remove
from bench.cluster.ray_cluster import joined
from bench.cluster.watcher import Watchers
from bench.engine.options import RunOptions
from bench.environments.overlays import Say


class _Named:
    """What Ray says about this process, but for the name of the run."""

    def __init__(self, real: Any, name: str) -> None:
        self._real = real
        self.namespace = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _watchers(say: Say) -> Watchers:
    """Watchers of a run with a name of its own: the end of one run closes its folder for good."""
    import ray

    context = _Named(ray.get_runtime_context(), f"bench-{uuid.uuid4().hex[:12]}")
    with mock.patch.object(ray, "get_runtime_context", return_value=context):
        return Watchers(say)


@contextlib.contextmanager
def one_ray(cpus: int) -> Iterator[None]:
    """Give all runs of this process the same Ray, with so many CPUs whatever they ask for."""
    made: list[Watchers] = []

    def watchers(say: Say) -> Watchers:
        made.append(_watchers(say))
        return made[-1]

    @contextlib.contextmanager
    def already(*_: Any) -> Iterator[None]:
        yield

    try:
        with (
            joined(RunOptions(out=None, cpus=cpus)),  # type: ignore[arg-type]
            mock.patch.object(driver, "joined", already),
            mock.patch.object(execute, "Watchers", watchers),
        ):
            yield
    finally:
        for one in made:
            remove(base_folder(one.run))
