"""The command line. Heavy imports wait until a command needs them: `bench --help` is instant."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import click

from bench import __version__
from bench.cli.audit import audit
from bench.cli.check import check
from bench.cli.data import data
from bench.cli.dossier import dossier
from bench.cli.environments import env
from bench.cli.new import new
from bench.cli.runs import COMMANDS

if TYPE_CHECKING:
    from bench.cluster.driver import RunSummary


class _Commands(click.Group):
    """Turns typed errors into one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        from bench.errors import InputError

        try:
            return super().invoke(ctx)
        except InputError as problem:
            _fail(str(problem))


def _fail(message: str) -> NoReturn:
    click.echo(f"bench: {message}", err=True)
    sys.exit(2)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bench")
def main() -> None:
    """Benchmark of differentially private synthetic data whose privacy claims are checked."""


def _comma(parser: str = "") -> Callable[..., tuple[Any, ...]]:
    """Reads a comma-separated list, each item by that function of `bench.engine.grid`."""

    def parse(_: click.Context, __: click.Parameter, value: str | None) -> tuple[Any, ...]:
        items = [item.strip() for item in (value or "").split(",") if item.strip()]
        if not parser or not items:
            return tuple(items)
        from bench.engine import grid

        return tuple(getattr(grid, parser)(item) for item in items)

    return parse


@main.command()
@click.option(
    "--grid", default="quick", show_default=True, help="smoke, quick, full or a .toml file."
)
@click.option(
    "--out", type=click.Path(), default=None, help="Run directory [default: runs/<grid>]."
)
@click.option("--methods", callback=_comma(), help="Comma-separated methods instead of the grid's.")
@click.option("--datasets", callback=_comma(), help="Comma-separated datasets.")
@click.option(
    "--ipc", callback=_comma("parse_ipc"), help="Rows per class, or `full`; comma-separated."
)
@click.option("--eps", callback=_comma("parse_float"), help="Target epsilons, comma-separated.")
@click.option("--seeds", callback=_comma("parse_integer"), help="Seeds, comma-separated.")
@click.option(
    "--metrics",
    callback=_comma(),
    help="Metrics, families, `default` or `all`; comma-separated [default: the grid's].",
)
@click.option("--dry-run", is_flag=True, help="Print the cells and their number; run nothing.")
@click.option("--cpus", type=click.IntRange(min=1), help="CPUs of the local Ray [default: all].")
@click.option("--ray-address", help="Run on this Ray cluster instead of a local one.")
@click.option("--mlflow-uri", help="MLflow tracking URI [default: sqlite in the run directory].")
@click.option("--no-mlflow", is_flag=True, help="Do not log to MLflow.")
@click.option("--data-dir", help="Folder with data files you obtained [default: $BENCH_DATA].")
@click.option(
    "--secure-noise",
    is_flag=True,
    help="Noise from the operating system's entropy: not reproducible, not `study only`.",
)
@click.option(
    "--private-counts", is_flag=True, help="Pay for class counts instead of declaring them."
)
@click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), help="Minutes a cell may take."
)
@click.option(
    "--memory-limit",
    type=click.FloatRange(min=0, min_open=True),
    help="Megabytes of memory a cell may use [default: by the dataset and the method].",
)
@click.option(
    "--disk-limit",
    type=click.FloatRange(min=0, min_open=True),
    help="Megabytes of temporary files a cell may write [default: 4096].",
)
@click.option(
    "--ship-code",
    is_flag=True,
    help="Send this code and third-party plugins to the cluster's workers.",
)
def run(**options: Any) -> None:
    """Run a grid of cells on Ray; run again to do only what is missing."""
    from pathlib import Path

    from bench.engine.grid import load_grid
    from bench.engine.limits import Asked
    from bench.engine.options import RunOptions, use_data_folder

    use_data_folder(options["data_dir"])
    grid = load_grid(options["grid"]).narrowed(
        methods=options["methods"],
        datasets=options["datasets"],
        ipc=options["ipc"],
        epsilon=options["eps"],
        seeds=options["seeds"],
        metrics=options["metrics"],
    )
    grid.check_plugins()
    if options["dry_run"]:
        cells = grid.cells()
        for cell in cells:
            click.echo(cell.describe())
        click.echo(f"{len(cells)} cells")
        return
    settings = RunOptions(
        out=Path(options["out"] or f"runs/{grid.name}"),
        cpus=options["cpus"],
        ray_address=options["ray_address"],
        mlflow_uri=options["mlflow_uri"],
        tracking=not options["no_mlflow"],
        secure_noise=options["secure_noise"],
        private_counts=options["private_counts"],
        limits=Asked(options["time_limit"], options["memory_limit"], options["disk_limit"]),
        ship_code=options["ship_code"],
    )
    from bench.cli.session import run_with_progress

    sys.exit(_exit_code(run_with_progress(grid, settings)))


@main.command()
@click.argument("directory", type=click.Path())
@click.option(
    "--metrics",
    callback=_comma(),
    help="Metrics, families, `default` or `all`; comma-separated [default: default].",
)
@click.option("--cpus", type=click.IntRange(min=1), help="CPUs of the local Ray [default: all].")
@click.option("--ray-address", help="Run on this Ray cluster instead of a local one.")
@click.option("--mlflow-uri", help="MLflow tracking URI [default: sqlite in the run directory].")
@click.option("--no-mlflow", is_flag=True, help="Do not log to MLflow.")
@click.option("--data-dir", help="Folder with data files you obtained [default: $BENCH_DATA].")
def score(**options: Any) -> None:
    """Score the stored releases of a run directory; nothing is fitted again.

    Only what is missing or was computed by another version of a metric is computed; other scores
    stay. Metrics that need refits fit copies of the method and leave the release as it is.
    """
    from pathlib import Path

    from bench.engine.options import RunOptions, use_data_folder
    from bench.plugins import registry

    use_data_folder(options["data_dir"])
    metrics = registry.select_metrics(options["metrics"])
    settings = RunOptions(
        out=Path(options["directory"]),
        cpus=options["cpus"],
        ray_address=options["ray_address"],
        mlflow_uri=options["mlflow_uri"],
        tracking=not options["no_mlflow"],
    )
    from bench.cli.session import score_with_progress

    sys.exit(_exit_code(score_with_progress(metrics, settings)))


def _exit_code(summary: RunSummary) -> int:
    if summary.interrupted:
        return 130
    return 1 if summary.failed else 0


@main.command(name="list")
@click.argument("kind", type=click.Choice(["methods", "datasets", "metrics"]))
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_plugins(kind: str, as_json: bool) -> None:
    """List plugins with what they are."""
    from bench.plugins.catalogue import listing

    click.echo(listing(kind, as_json))


@main.command()
@click.argument("directory", type=click.Path())
@click.option("--metric", help="What to compare by [default: the headline of each task].")
@click.option("--methods", callback=_comma(), help="Only these, comma-separated.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def compare(directory: str, metric: str | None, methods: tuple[str, ...], as_json: bool) -> None:
    """Compare the methods of a run directory in pairs, on the same resampled test rows.

    Shows the difference with its 95% interval, a p-value, and the p-value after Holm's correction
    for all comparisons shown.
    """
    from pathlib import Path

    from bench.engine import compare as comparison

    found, notices = comparison.compare_run(Path(directory), metric, methods)
    comparison.check_some(found, notices)
    if as_json:
        click.echo(comparison.to_json(found, notices))
        return
    click.echo(comparison.to_text(found))
    for notice in notices:
        click.echo(f"not compared: {notice}")


def _count_or_all(_: click.Context, __: click.Parameter, value: str) -> int:
    """A number; `all` is more than any run has."""
    if value in ("all", "none"):
        return sys.maxsize if value == "all" else 0
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r} is not a number, `all` or `none`")
    return min(int(value), sys.maxsize)


@main.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="Folder of the site.")
@click.option(
    "--check",
    type=click.Path(),
    metavar="OLD",
    help="Compare with this older run: exit code 1 if anything got worse.",
)
@click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Level of all tests.",
)
@click.option(
    "--public",
    is_flag=True,
    help="Leave out what was computed from private rows, and say what was left out.",
)
@click.option(
    "--cells",
    default="200",
    show_default=True,
    metavar="N|all|none",
    callback=_count_or_all,
    help="How many cells get a page of their own.",
)
def leaderboard(
    runs: tuple[str, ...],
    output: str | None,
    check: str | None,
    alpha: float,
    public: bool,
    cells: int,
) -> None:
    """Compile run directories into a static site and tables, or compare them with an older run.

    A check fails if a headline score got significantly worse, a verdict is another one, or a cell
    no longer finishes.
    """
    from pathlib import Path

    if output is None and check is None:
        raise click.UsageError("give -o SITE, --check OLD or both")
    if output is None and public:
        raise click.UsageError("--public is about the site: give -o SITE too")
    if output is not None:
        from bench.leaderboard.pages.site import write_site

        write_site([Path(run) for run in runs], Path(output), alpha, public=public, cells=cells)
        click.echo(f"wrote {Path(output) / 'index.html'}")
    if check is not None:
        from bench.leaderboard.ranking.changes import find_changes, to_text
        from bench.leaderboard.tables.load import load_results

        new = load_results([Path(run) for run in runs])
        found = find_changes(load_results([Path(check)]), new, alpha)
        click.echo(to_text(found))
        sys.exit(1 if found.worse else 0)


@main.command()
@click.argument("directory", type=click.Path())
@click.option("--port", default=5000, show_default=True, type=click.IntRange(1, 65535))
def ui(directory: str, port: int) -> None:
    """Show a run directory in the MLflow interface, on 127.0.0.1."""
    import subprocess
    from pathlib import Path

    from bench.tracking.tracker import ui_address, ui_command

    if not (Path(directory) / "mlflow.db").exists():
        _fail(f"{directory} holds no mlflow.db; run a grid into it first (without --no-mlflow)")
    command, environment = ui_command(Path(directory), port)
    click.echo(f"MLflow on {ui_address(Path(directory), port)} (Ctrl-C to stop)")
    try:
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)
    except KeyboardInterrupt:
        sys.exit(130)


main.add_command(audit)
main.add_command(data)
main.add_command(env)
main.add_command(dossier)
main.add_command(check)
main.add_command(new)
for command in COMMANDS:
    main.add_command(command)


if __name__ == "__main__":
    main()
