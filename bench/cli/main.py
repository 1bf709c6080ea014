"""The command `bench`. Heavy imports wait until a command needs them: `bench --help` is fast."""

from __future__ import annotations

from typing import Any

import click

from bench import __version__
from bench.cli.audit import audit
from bench.cli.data import data
from bench.cli.environments import env
from bench.cli.options import fail
from bench.cli.pages import dossier, leaderboard
from bench.cli.plugins import check, list_plugins, new
from bench.cli.run import run, score
from bench.cli.runs import compare, merge, status, sync, ui, verify

COMMANDS: tuple[click.Command, ...] = (
    *(run, score, status, compare, merge, verify, sync, ui),
    *(leaderboard, dossier, audit),
    *(list_plugins, new, check, data, env),
)


class _Commands(click.Group):
    """Turns typed errors into one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        from bench.errors import InputError

        try:
            return super().invoke(ctx)
        except InputError as problem:
            fail(str(problem))


@click.group(
    cls=_Commands, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="bench")
def main() -> None:
    """Benchmark of differentially private synthetic data whose privacy claims are checked."""
