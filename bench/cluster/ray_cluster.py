"""Starts or joins Ray, and says which machines it has."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.engine.options import RunOptions
from bench.errors import ClusterLostError

_ANSWER_SECONDS = 10.0


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
        _start_local(options.cpus or os.cpu_count() or 1, shared)
    try:
        yield
    finally:
        ray.shutdown()


def _start_local(cpus: int, shared: Mapping[str, Any]) -> None:
    import ray

    try:
        ray.init(
            address="local",  # not a cluster that somebody else started on this machine
            num_cpus=cpus,
            include_dashboard=False,
            # Workers of two environments take turns. Ray would end those that idle for a second
            # while the others use the CPUs, with all that they have imported and computed.
            _system_config={"num_workers_soft_limit": 2 * cpus},
            **shared,
        )
    except Exception as problem:  # Ray has no type for a start that took too long
        ray.shutdown()
        first = next(iter(str(problem).splitlines()), type(problem).__name__)
        raise ClusterLostError(
            f"Ray did not start on this machine: {first[:200]} A busy machine may need longer than "
            "Ray waits: try again when it has less to do"
        ) from problem


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
