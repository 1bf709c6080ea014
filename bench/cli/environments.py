"""`bench env`: the environments of methods that cannot share ours."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bench.environments.environments import Report
    from bench.plugins.method import Environment

_names = click.argument("names", nargs=-1, metavar="[NAME]...")


@click.group()
def env() -> None:
    """Environments of some methods: list, build, check, python, clean.

    They hold packages that cannot share ours. A run builds what it needs by itself: these commands
    build ahead, and repair. Without NAME they are about all environments.
    """


@env.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@_names
def list_environments(names: tuple[str, ...], as_json: bool) -> None:
    """Say which environments are built, how large they are, and what is wrong with the others."""
    import json

    from bench.environments.environments import inspect, root, select

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
    click.echo(f"{len(reports)} environments; they are kept in {root()}")


@env.command()
@_names
def build(names: tuple[str, ...]) -> None:
    """Build what is missing or broken; exit code 1 if one cannot be built."""
    from bench.environments.environments import select

    failed = [name for name in select(names) if not _built(name)]
    sys.exit(1 if failed else 0)


@env.command()
@click.option("--repair", is_flag=True, help="Build broken ones again.")
@_names
def check(names: tuple[str, ...], repair: bool) -> None:
    """Import the modules of every environment; exit code 1 if one is not ready."""
    from bench.environments.environments import State, inspect, select

    good = True
    for environment in select(names):
        started = time.perf_counter()
        report = inspect(environment, thorough=True)
        click.echo(f"{_line(report)} (checked in {time.perf_counter() - started:.1f} s)")
        ready = report.state in (State.BUILT, State.GIVEN)
        if not ready and repair and report.state is State.BROKEN:
            ready = _built(environment)
        good = good and ready
    sys.exit(0 if good else 1)


@env.command()
@click.argument("name")
def python(name: str) -> None:
    """Print the interpreter of an environment, which is built first if need be."""
    from bench.environments.environments import ensure, select
    from bench.errors import EnvironmentUnavailable

    (environment,) = select([name])
    try:
        interpreter = ensure(environment, lambda text: click.echo(f"{name}: {text}", err=True))
    except EnvironmentUnavailable as problem:
        click.echo(f"bench: {problem}", err=True)
        sys.exit(1)
    click.echo(interpreter)


@env.command()
@_names
def clean(names: tuple[str, ...]) -> None:
    """Remove environments, those of earlier versions too. Not while a run uses them."""
    from bench.environments import environments

    if names:
        environments.select(names)
    freed = 0
    for name, size in environments.clean(names):
        click.echo(f"removed {name}, {size / 1e6:.0f} MB")
        freed += size
    click.echo(f"{freed / 1e6:.0f} MB freed in {environments.root()}")


def _built(environment: Environment) -> bool:
    """Make one ready with a line for every step; False where that fails."""
    from bench.environments.environments import ensure
    from bench.errors import EnvironmentUnavailable

    started = time.perf_counter()

    def say(text: str) -> None:
        click.echo(f"{time.perf_counter() - started:6.1f} s  {environment.name}: {text}")

    try:
        python = ensure(environment, say, thorough=True)
    except EnvironmentUnavailable as problem:
        click.echo(f"bench: {problem}", err=True)
        return False
    say(f"ready, {python}")
    return True


def _line(report: Report) -> str:
    name, state, why = report.environment.name, report.state.value, report.why
    text = f"{name}: {state}: {why}" if why else f"{name}: {state}"
    if report.size:
        text += f", {report.size / 1e6:.0f} MB"
    if report.built_at:
        text += f", since {report.built_at[:10]}"
    return f"{text}, {report.python}" if report.state.value == "given path" else text
