"""Options that several commands share, and the grammar of `--parameters`."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, final

import click

from bench.errors import one_line, shortened

if TYPE_CHECKING:
    from bench.engine.options import RunOptions

_LONGEST_LINE = 4_000
"""Characters of an error: what comes from a file or a server may be of any length."""

SEED = click.IntRange(0, 2**63 - 1)
DATA_DIR_HELP = "Folder with downloaded data files [default: $BENCH_DATA]."


@final
class FiniteRange(click.FloatRange):
    """A range of numbers without `nan`, which every comparison lets through, and `inf`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{shortened(value)} is not a finite number.", param, ctx)
        return float(number)


@final
class _PathType(click.Path):
    """A path that the operating system accepts as one; too long a name raises at every use."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            path = super().convert(value, param, ctx)
            Path(os.fsdecode(path)).exists()
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or "not a file name"
            self.fail(f"{shortened(str(value))}: {reason}", param, ctx)
        return path


PATH = _PathType(path_type=Path)
POSITIVE = FiniteRange(min=0, min_open=True)

as_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
cpus = click.option(
    "--cpus", type=click.IntRange(1, 100_000), help="CPUs of the local Ray [default: all]."
)
ray_address = click.option("--ray-address", help="Run on this Ray cluster instead of a local one.")
mlflow_uri = click.option(
    "--mlflow-uri", help="MLflow tracking URI [default: sqlite in the run directory]."
)
no_mlflow = click.option("--no-mlflow", is_flag=True, help="Do not log to MLflow.")


_GIVEN = "bench.data_folder"


def _use_data_folder(context: click.Context, _: click.Parameter, value: str | None) -> None:
    from bench.engine.options import use_data_folder

    use_data_folder(value)
    context.meta[_GIVEN] = value


def _fill_data_folder(context: click.Context, _: click.Parameter, value: str | None) -> None:
    from bench.engine.options import use_data_folder

    use_data_folder(value, create=True)
    context.meta[_GIVEN] = value


def data_folder_given() -> str:
    """Return --data-dir as it was given, for a command that is proposed; empty without it."""
    value = click.get_current_context().meta.get(_GIVEN)
    return f" --data-dir {shlex.quote(value)}" if value else ""


data_dir = click.option(
    "--data-dir", callback=_use_data_folder, expose_value=False, help=DATA_DIR_HELP
)
data_dir_to_fill = click.option(
    "--data-dir",
    callback=_fill_data_folder,
    expose_value=False,
    help=f"{DATA_DIR_HELP} Created if absent.",
)


def on_ray(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the commands that compute cells on Ray and log them to MLflow."""
    for option in (data_dir, no_mlflow, mlflow_uri, ray_address, cpus):
        command = option(command)
    return command


def run_options(out: Path, options: Mapping[str, Any], **more: Any) -> RunOptions:
    """Return the settings of a run from the options of `on_ray`."""
    from bench.engine.options import RunOptions

    return RunOptions(
        out=out,
        cpus=options["cpus"],
        ray_address=options["ray_address"],
        mlflow_uri=options["mlflow_uri"],
        tracking=not options["no_mlflow"],
        **more,
    )


def comma_separated(text: str | None) -> tuple[str, ...]:
    """Split a comma-separated list; empty items are dropped."""
    return tuple(item.strip() for item in (text or "").split(",") if item.strip())


def comma(parser: str = "") -> Callable[..., tuple[Any, ...]]:
    """Callback for a comma-separated list; a function of `bench.engine.grid` reads each item."""

    def parse(_: click.Context, __: click.Parameter, value: str | None) -> tuple[Any, ...]:
        items = comma_separated(value)
        if not parser or not items:
            return items
        from bench.engine import grid

        return tuple(getattr(grid, parser)(item) for item in items)

    return parse


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 cell`, `2 cells`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def echo_error(text: str) -> None:
    """Print a line to standard error."""
    click.echo(text, err=True)


def fail(message: str, code: int = 2) -> NoReturn:
    """End with one line on standard error; exit code 2 says that the input was wrong."""
    echo_error(f"bench: {one_line(message, _LONGEST_LINE)}")
    sys.exit(code)


# Parameters of a plugin ---------------------------------------------------------------------------


def _parse_callback(
    _: click.Context, __: click.Parameter, values: Sequence[str]
) -> dict[str, object]:
    return parse_parameters(values)


parameters = click.option(
    "--parameters",
    multiple=True,
    metavar="NAME=VALUE,...",
    callback=_parse_callback,
    help="Hyperparameters of the method: comma-separated or repeated, values in TOML syntax; plain "
    "text needs no quotes.",
)


def parse_parameters(texts: Sequence[str]) -> dict[str, object]:
    """Read `a=1,b=[2, 3]` or several of them: values in TOML syntax, plain text without quotes.

    JSON values that TOML does not know (`null`, objects) are read as JSON.
    """
    chosen: dict[str, object] = {}
    for item in (item for text in texts for item in _items(text)):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name:
            raise click.BadParameter(
                f"{item!r} is not name=value; separate several by commas, and put a text with a "
                "comma in quotes",
                param_hint="--parameters",
            )
        if name in chosen:
            raise click.BadParameter(f"{name} is set twice", param_hint="--parameters")
        chosen[name] = _value(value)
        try:
            json.dumps(chosen[name])
        except TypeError:
            raise click.BadParameter(
                f"{shortened(name)} holds a date or a time; write it as a text, in quotes",
                param_hint="--parameters",
            ) from None
    return chosen


def _items(text: str) -> Iterator[str]:
    """Split at the commas that stand neither in brackets nor in quotes; drop empty items."""
    depth, quote, start = 0, "", 0
    for place, character in enumerate(f"{text},"):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth == 0:
            if text[start:place].strip():
                yield text[start:place].strip()
            start = place + 1
    if text[start:].strip():  # a bracket or a quote is open
        yield text[start:].strip()


def _value(text: str) -> object:
    import tomllib

    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # not TOML, or integers of thousands of digits
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    # TOML also knows dates, which no hyperparameter is.
    return value if isinstance(value, bool | int | float | str | list | dict) else text
