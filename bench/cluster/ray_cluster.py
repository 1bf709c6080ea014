"""Starts or joins Ray, and says which machines it has.

A Ray that is started here serves this run alone: it listens on the loopback address only, asks for
a token that was drawn for this run, exports no metrics, and keeps its files in a private folder
that is removed at the end.
"""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import logging
import os
import secrets
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.cluster.private_folders import base_folder, hold, remove, remove_left_over
from bench.errors import ClusterLostError

if TYPE_CHECKING:
    # The watcher imports this module, and starts much faster without what options import.
    from bench.engine.options import RunOptions

_ANSWER_SECONDS = 10.0
_START_SECONDS = 180.0
_LOOPBACK = "127.0.0.1"
_BASE = "bench-ray-"
_LONGEST_SOCKET = 100
"""Bytes in the path of a Unix socket; Linux takes 107, macOS 103."""
_SOCKET = "r/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"

_NO_METRICS = {
    # Servers without a token. Ray has no switch for these two, but takes an impossible port for
    # a failure that only its log mentions.
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
    "RAY_enable_metrics_collection": "0",
}
"""Left alone where a user has set them: then metrics are asked for."""


@contextmanager
def joined(options: RunOptions, runtime_env: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Provide Ray for the time of a run: a local one, or the cluster that was named."""
    # Usage statistics would leave the machine; the other switch silences a warning about GPUs.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    shared: dict[str, Any] = {
        "namespace": f"bench-{uuid.uuid4().hex[:12]}",
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "runtime_env": dict(runtime_env or {}),
    }
    local = contextlib.ExitStack()
    if options.ray_address:
        _check_answers(options.ray_address)
        try:
            ray.init(address=options.ray_address, **shared)
        except (OSError, ValueError, RuntimeError) as problem:
            first = next(iter(str(problem).splitlines()), type(problem).__name__)
            raise ClusterLostError(
                f"no answer at {options.ray_address}: {first[:200]} A cluster with a token needs "
                "RAY_AUTH_MODE=token"
            ) from None
    else:
        local = _start_local(options.cpus or os.cpu_count() or 1, shared)
    try:
        yield
    finally:
        ray.shutdown()
        local.close()


# A Ray for this run ------------------------------------------------------------------------------


@contextmanager
def _private_folder() -> Iterator[Path]:
    """Provide a folder for the files of Ray, which nobody else can read; remove it at the end."""
    prefix = f"{_BASE}{os.getuid()}-"
    parent = Path(tempfile.gettempdir())
    if len(os.fsencode(parent / f"{prefix}00000000" / _SOCKET)) > _LONGEST_SOCKET:
        parent = Path("/tmp")
    remove_left_over(prefix, 0.0, parent)
    # Created with mode 0700; Ray opens the folders that it creates below to everybody.
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        lock = hold(folder)
        assert lock is not None, "the name of the folder is new"
        yield folder
        os.close(lock)
    finally:
        remove(folder)


@contextmanager
def _protected(folder: Path) -> Iterator[None]:
    """Set what Ray reads from the environment: a token that nobody else can read, no metrics."""
    token = folder / "token"
    # A file and not a variable: a plugin that prints its environment does not print the token.
    with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    changes: dict[str, str | None] = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_AUTH_TOKEN": None,
    }
    changes |= {name: os.environ.get(name, value) for name, value in _NO_METRICS.items()}
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set_environment(changes)
        yield
    finally:
        # The next run of this process may join a cluster, with another token or without one.
        _set_environment(before)


def _set_environment(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    # Ray reads its settings once per process.
    raylet: Any = importlib.import_module("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def _start_local(cpus: int, shared: Mapping[str, Any]) -> contextlib.ExitStack:
    """Start Ray on this machine; what is returned removes its traces once it is shut down."""
    import ray

    # Where metrics are asked for, the processes that export them are started.
    asked = not set(_NO_METRICS).isdisjoint(os.environ)
    lean: contextlib.AbstractContextManager[None] = (
        contextlib.nullcontext() if asked else _no_helpers()
    )
    with contextlib.ExitStack() as stack:
        # Workers and watcher of this machine have ended by then.
        stack.callback(remove, base_folder(shared["namespace"]))
        folder = stack.enter_context(_private_folder())
        stack.enter_context(_protected(folder))
        try:
            with _on_loopback(), _patience(), lean:
                ray.init(
                    address="local",  # not a cluster that somebody else started on this machine
                    num_cpus=cpus,
                    include_dashboard=False,
                    _node_ip_address=_LOOPBACK,
                    _temp_dir=str(folder / "r"),
                    # Workers of two environments take turns. Ray would end those that idle for a
                    # second while the others use the CPUs, with all that they have imported and
                    # computed.
                    _system_config={"num_workers_soft_limit": 2 * cpus},
                    **shared,
                )
        except Exception as problem:  # Ray has no type for a start that took too long
            ray.shutdown()
            first = next(iter(str(problem).splitlines()), type(problem).__name__)
            raise ClusterLostError(
                f"Ray did not start on this machine: {first[:200]} A busy machine may need longer "
                "than Ray waits: try again when it has less to do"
            ) from problem
        addresses = {str(node["NodeManagerAddress"]) for node in ray.nodes()}
        if not all(ipaddress.ip_address(address).is_loopback for address in addresses):
            ray.shutdown()
            raise ClusterLostError(
                f"Ray {ray.__version__} listens on {', '.join(sorted(addresses))} instead of the "
                "loopback address; install the version of constraints.txt"
            )
        return stack.pop_all()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Make Ray take the loopback address as that of this machine, as it does on macOS.

    Elsewhere Ray replaces a loopback address by one that other machines can reach, and listens on
    all interfaces.
    """
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _patience() -> Iterator[None]:
    """Give the machine's part of Ray three minutes to start.

    Ray's own 30 seconds, which it has no setting for, are too few where many runs share two cores.
    """
    services: Any = importlib.import_module("ray._private.services")
    before = services.get_node
    deadline = time.monotonic() + _START_SECONDS

    def get_node(*arguments: object, **options: object) -> Any:
        while True:
            try:
                return before(*arguments, **options)
            except RuntimeError:  # not there yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    services.get_node = get_node
    try:
        yield
    finally:
        services.get_node = before


@contextmanager
def _no_helpers() -> Iterator[None]:
    """Start Ray without what no run uses: three processes, each a Python that imports Ray.

    They print the workers' output (which `log_to_driver` switches off), add machines to a cluster,
    and serve the dashboard, whose server Ray starts, and waits for, even where there is none. The
    agent of the machine is started as where the packages of the dashboard are missing.
    """
    node: Any = importlib.import_module("ray._private.node").Node
    utils: Any = importlib.import_module("ray._private.utils")

    def nothing(*_: object, **__: object) -> None:
        pass

    def missing() -> ImportError:
        return ImportError("no run has a dashboard")

    changes: list[tuple[Any, str, Any]] = [
        (node, "start_log_monitor", nothing),
        (node, "start_monitor", nothing),
        (node, "start_api_server", nothing),
        (utils, "get_dashboard_dependency_error", missing),
    ]
    before = [getattr(owner, name) for owner, name, _ in changes]
    try:
        for owner, name, replacement in changes:
            setattr(owner, name, replacement)
        yield
    finally:
        for (owner, name, _), original in zip(changes, before, strict=True):
            setattr(owner, name, original)


# Clusters ----------------------------------------------------------------------------------------


def _check_answers(address: str) -> None:
    """Say at once that nobody is there: Ray tries for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        return  # "auto": Ray knows where to look
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except (OSError, UnicodeError) as problem:  # a name that cannot be a host's is a UnicodeError
        raise ClusterLostError(f"no answer at {address}: {problem}") from None


def nodes() -> list[str]:
    """Return the machines that can run cells."""
    import ray

    return [
        str(node["NodeID"])
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
    ]


def only_on(node: str) -> Any:
    """Schedule on this machine or not at all."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def first_line(problem: BaseException) -> str:
    """Return a Ray error in one line."""
    # The loss of a fit reaches us through the task that waited for it.
    problem = getattr(problem, "cause", None) or problem
    return next((line.strip() for line in str(problem).splitlines() if line.strip()), repr(problem))
