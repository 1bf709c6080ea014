"""The command `bench`. Heavy imports wait until a command needs them: `bench --help` is fast."""

from __future__ import annotations

import errno
import os
import traceback
from pathlib import Path
from typing import Any, NoReturn, final

import click

from bench import __version__
from bench.cli.audit import audit
from bench.cli.data import data
from bench.cli.documents import fill, keep
from bench.cli.environments import env
from bench.cli.options import fail
from bench.cli.pages import dossier, leaderboard, plot
from bench.cli.plugins import check, list_plugins, new
from bench.cli.published import check_submission, publish, submit
from bench.cli.run import run, score
from bench.cli.runs import compare, merge, status, sync, ui, verify
from bench.cli.synthesize import export, synthesize
from bench.cli.tune import tune

COMMANDS: tuple[click.Command, ...] = (
    *(run, score, status, compare, merge, verify, sync, ui),
    *(leaderboard, dossier, plot, audit, tune),
    *(synthesize, export),
    *(keep, fill, publish, submit, check_submission),
    *(list_plugins, new, check, data, env),
)


BUG = 3
"""Exit code of a failure that nobody foresaw."""

TRACEBACK_VARIABLE = "BENCH_TRACEBACK"


@final
class _Commands(click.Group):
    """Turns typed errors into one line and exit code 2, and any other into one line and code 3."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **options)
        except click.UsageError as problem:
            _refuse(problem)

    def invoke(self, ctx: click.Context) -> Any:
        from bench.errors import InputError

        try:
            return super().invoke(ctx)
        except InputError as problem:
            fail(str(problem))
        except click.UsageError as problem:
            _refuse(problem)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as problem:
            if isinstance(problem, OSError) and problem.errno == errno.EPIPE:
                raise  # the reader of our output has left: click ends quietly
            if os.environ.get(TRACEBACK_VARIABLE):
                raise
            fail(_unforeseen(problem), BUG)


def _refuse(problem: click.UsageError) -> NoReturn:
    """Say in one line what click says in four."""
    if type(problem).__name__ == "NoArgsIsHelpError":  # click 8.1 does not have the class
        raise problem
    command = problem.ctx.command_path if problem.ctx else "bench"
    fail(f"{problem.format_message().rstrip('.')}; see `{command} --help`")


def _unforeseen(problem: Exception) -> str:
    """Return one line about a bug: where it is, not the text of the exception.

    The text can hold values of private rows, so that it is neither printed nor kept unless a person
    asks for it.
    """
    if isinstance(problem, OSError) and problem.strerror:
        place = f"{problem.filename}: " if problem.filename else ""
        return f"{place}{problem.strerror} (the operating system refused it)"
    steps = traceback.extract_tb(problem.__traceback__)
    ours = [step for step in steps if f"{os.sep}bench{os.sep}" in step.filename] or list(steps)
    where = f" at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return (
        f"internal error: {type(problem).__name__}{where}. This is a bug: please report it. "
        f"{TRACEBACK_VARIABLE}=1 shows the whole traceback, which may contain values of rows"
    )


@click.group(
    cls=_Commands, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="bench")
def main() -> None:
    """Benchmark of differentially private synthetic data whose privacy claims are checked."""
