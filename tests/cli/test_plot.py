"""`bench plot`: figures of run directories, and one line where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.cli.main import main
from bench.leaderboard.charts.gallery import KINDS, OF_A_CELL
from tests.leaderboard.conftest import Run

Plot = Callable[..., Result]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two methods and the real rows on one dataset."""
    run = Run()
    run.add("real", 0.9, ipc=None, eps_target=None, eps_proven=float("inf"), verdict="non-private")
    for epsilon in (1.0, 10.0):
        run.add("a", 0.6, eps_target=epsilon, eps_proven=epsilon)
        run.add("b", 0.7, eps_target=epsilon, eps_proven=epsilon)
    return run.write(tmp_path / "run")


@pytest.fixture
def plot() -> Plot:
    """Run the command."""

    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(main, ["plot", *map(str, arguments)])

    return invoke


def test_the_specification_holds_the_numbers(directory: Path, tmp_path: Path, plot: Plot) -> None:
    output = tmp_path / "figure.json"
    done = plot(directory, "datasets", "-o", output)
    assert done.exit_code == 0, done.output
    assert done.output == f"wrote {output}\n"
    spec = json.loads(output.read_text())
    values = [(row["series"], row["x"], row["y"]) for row in spec["datasets"]["points"]]
    assert sorted(values) == [("a", 1, 0.6), ("a", 10, 0.6), ("b", 1, 0.7), ("b", 10, 0.7)]
    assert "legend" in json.dumps(spec["layer"])
    assert output.stat().st_mode & 0o077 == 0  # computed from private rows


def test_a_file_for_a_paper(directory: Path, tmp_path: Path, plot: Plot) -> None:
    output = tmp_path / "figure.pdf"
    assert plot(directory, "datasets", "-o", output).exit_code == 0
    assert output.read_bytes().startswith(b"%PDF-")


def test_all_charts_that_there_are_results_for(directory: Path, tmp_path: Path, plot: Plot) -> None:
    done = plot(directory, "all", "-o", tmp_path / "new" / "figures")
    assert done.exit_code == 0, done.output
    names = {path.name for path in (tmp_path / "new" / "figures").iterdir()}
    assert {"datasets.svg", "datasets.pdf", "time.svg", "time.pdf"} <= names
    assert not any(name.startswith(("audit", "ipc")) for name in names)
    # This dataset is not open to everybody: without it nothing is left.
    done = plot(directory, "all", "--public", "-o", tmp_path / "public")
    assert done.exit_code == 2 and "nothing to draw" in done.stderr
    assert not (tmp_path / "public").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing", "-o", "a.pdf"), "kind of chart: pareto, epsilon"),
        (("pareto", "-o", "a.gif"), "-o ends in one of .pdf, .svg, .png, .json"),
        (("roc", "-o", "a.pdf"), "roc needs --cell"),
        (("pareto", "--cell", "a", "-o", "a.pdf"), "drawn from all cells"),
        (("audit", "-o", "a.pdf"), "nothing to draw for 'audit'"),
        (("datasets", "--dataset", "no", "-o", "a.pdf"), "nothing to draw for 'datasets'"),
    ],
)
def test_one_line_where_there_is_no_figure(
    directory: Path, plot: Plot, arguments: tuple[str, ...], said: str
) -> None:
    done = plot(directory, *arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert done.output.count("\n") == 1


def test_the_help_names_every_kind(plot: Plot) -> None:
    words = plot("--help").output.replace(",", " ").split()
    assert {*KINDS, *OF_A_CELL} <= set(words)
