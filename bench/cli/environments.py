"""`bench env`: the environments of methods whose packages cannot share the main one."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from bench.cli import options as shared

if TYPE_CHECKING:
    from bench.environments.overlays import EnvironmentReport
    from bench.plugins.method import Environment

_names = click.argument("names", nargs=-1, metavar="[NAME]...")


@click.group()
def env() -> None:
    """Environments of some methods: list, build, check, python, clean.

    They hold packages that cannot be installed in the main environment. A run builds what it needs;
    these commands build in advance, and repair. Without NAME they apply to all environments.
    """


@env.command(name="list")
@shared.as_json
@_names
def list_environments(names: tuple[str, ...], as_json: bool) -> None:
    """List which environments are built, their size, and what is wrong with the others."""
    import json

    from bench.environments.overlays import inspect, root, select

    reports = [inspect(environment) for environment in select(names)]
    if as_json:
        rows = [
            {
                "name": report.environment.name,
                "state": report.state.value,
                "why": report.why,
                "python": str(report.python),
                "bytes": report.size,
                "built_at": report.built_at,
                "requirements": list(report.environment.requirements),
            }
            for report in reports
        ]
        click.echo(json.dumps(rows, indent=1))
        return
    for report in reports:
        click.echo(_line(report))
    click.echo(f"{len(reports)} environments in {root()}")


@env.command()
@_names
def build(names: tuple[str, ...]) -> None:
    """Build what is missing or broken; exit code 1 if one cannot be built."""
    from bench.environments.overlays import select

    failed = [environment for environment in select(names) if not _build(environment)]
    sys.exit(1 if failed else 0)


@env.command()
@click.option("--repair", is_flag=True, help="Build broken ones again.")
@_names
def check(names: tuple[str, ...], repair: bool) -> None:
    """Import the modules of every environment; exit code 1 if one is not ready."""
    from bench.environments.overlays import EnvironmentState, inspect, select

    good = True
    for environment in select(names):
        started = time.perf_counter()
        report = inspect(environment, thorough=True)
        click.echo(f"{_line(report)} (checked in {time.perf_counter() - started:.1f} s)")
        ready = report.state in (EnvironmentState.BUILT, EnvironmentState.GIVEN)
        if not ready and repair and report.state is EnvironmentState.BROKEN:
            ready = _build(environment)
        good = good and ready
    sys.exit(0 if good else 1)


@env.command()
@click.argument("name")
def python(name: str) -> None:
    """Print the interpreter of an environment, which is built first if necessary."""
    from bench.environments.overlays import ensure, select
    from bench.errors import EnvironmentUnavailable

    (environment,) = select([name])
    try:
        interpreter = ensure(environment, lambda text: shared.echo_error(f"{name}: {text}"))
    except EnvironmentUnavailable as problem:
        shared.echo_error(f"bench: {problem}")
        sys.exit(1)
    click.echo(interpreter)


@env.command()
@_names
def clean(names: tuple[str, ...]) -> None:
    """Remove environments, also those of earlier versions. Do not use it during a run."""
    from bench.environments import overlays

    if names:
        overlays.select(names)
    freed = 0
    for name, size in overlays.clean(names):
        click.echo(f"removed {name}, {size / 1e6:.0f} MB")
        freed += size
    click.echo(f"{freed / 1e6:.0f} MB freed in {overlays.root()}")


def _build(environment: Environment) -> bool:
    """Make an environment ready, with a line for every step; return False where that fails."""
    from bench.environments.overlays import ensure
    from bench.errors import EnvironmentUnavailable

    started = time.perf_counter()

    def say(text: str) -> None:
        click.echo(f"{time.perf_counter() - started:6.1f} s  {environment.name}: {text}")

    try:
        python = ensure(environment, say, thorough=True)
    except EnvironmentUnavailable as problem:
        shared.echo_error(f"bench: {problem}")
        return False
    say(f"ready, {python}")
    return True


def _line(report: EnvironmentReport) -> str:
    name, state, why = report.environment.name, report.state.value, report.why
    text = f"{name}: {state}: {why}" if why else f"{name}: {state}"
    if report.size:
        text += f", {report.size / 1e6:.0f} MB"
    if report.built_at:
        text += f", since {report.built_at[:10]}"
    return f"{text}, {report.python}" if state == "given path" else text
