"""Grids say which cells, and refuse nonsense with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.engine.grid import BUILT_IN, load_grid, paper_grids, parse_grid
from bench.errors import GridError, InputError

SMALL = """
datasets = ["breast-cancer", "gbsg2"]
methods = ["real", "ldpdc", {name = "gats", label = "gats-9", parameters = {constituents = 9}}]
ipc = [10, 20, "full"]
epsilon = [1, 3.0]
seeds = [0, 1]
"""


def test_methods_without_use_for_an_axis_do_not_multiply() -> None:
    cells = parse_grid(SMALL, "small").cells()
    count = {
        name: sum(cell.method.name == name for cell in cells) for name in ("real", "ldpdc", "gats")
    }
    # real: one size, no budget; ldpdc: 3 sizes x 2 epsilons; gats: 3 sizes; all x 2 x 2 seeds.
    assert count == {"real": 4, "ldpdc": 24, "gats": 12}
    assert {cell.epsilon for cell in cells if cell.method.name == "gats"} == {None}
    assert sum(cell.full_size for cell in cells) == 2 * 2 * (2 + 1)


def test_defaults_are_those_of_the_papers() -> None:
    grid = parse_grid('datasets = ["digits"]\nmethods = ["ldpdc"]', "d")
    assert grid.ipc == (50, 100, 500, 1000)
    assert grid.epsilon == (0.5, 1.0, 3.0, 10.0)
    assert grid.delta is None and {cell.delta for cell in grid.cells()} == {1e-5}


@pytest.mark.parametrize("name", [*BUILT_IN, *paper_grids()])
def test_built_in_grids_are_whole(name: str) -> None:
    grid = load_grid(name)
    grid.check_plugins()
    assert grid.cells()


@pytest.mark.parametrize("name", paper_grids())
def test_labels_of_the_papers_grids_can_be_named_on_the_command_line(name: str) -> None:
    grid = load_grid(name)
    assert not [entry.label for entry in grid.methods if "," in entry.label]


def test_seeds_of_the_split_multiply_the_cells_and_are_run_one_after_the_other() -> None:
    grid = parse_grid(f"split_seeds = [3, 1]\n{SMALL}", "small")
    single = parse_grid(f"split_seed = 3\n{SMALL}", "small")
    assert len(grid.cells()) == 2 * len(single.cells())
    parts = grid.splits()
    assert [part.split_seeds for part in parts] == [(3,), (1,)]
    assert parts[0].cells() == single.cells()
    assert [cell for part in parts for cell in part.cells()] == grid.cells()


def test_quick_covers_four_datasets_and_four_methods() -> None:
    grid = load_grid("quick")
    assert len(grid.datasets) >= 4 and len(grid.methods) >= 4


def test_variants_keep_their_label_and_parameters() -> None:
    grid = parse_grid(SMALL, "small")
    variant = grid.methods[2]
    assert (variant.label, variant.parameters) == ("gats-9", (("constituents", 9),))
    unlabelled = parse_grid(
        'datasets=["digits"]\nmethods=[{name="ldpdc", parameters={group_size=5}}]', "x"
    )
    assert unlabelled.methods[0].label == "ldpdc(group_size=5)"


def test_narrowing() -> None:
    grid = parse_grid(SMALL, "small").narrowed(
        methods=["gats", "marginals"], datasets=["digits"], ipc=[5], epsilon=[2.0], seeds=[7]
    )
    assert [entry.label for entry in grid.methods] == ["gats-9", "marginals"]
    assert [cell.describe() for cell in grid.cells()] == [
        "gats-9 on digits ipc=5 seed=7",
        "marginals on digits ipc=5 eps=2 seed=7",
    ]
    with pytest.raises(GridError, match="did you mean ldpdc"):
        grid.narrowed(methods=["ldpd"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("datasets = [", "not valid TOML"),
        ("datsets = []", "grid 'mine': unknown key 'datsets'; did you mean datasets"),
        ("epslion = [1]", "did you mean epsilon"),
        ("zzz = 1", "known: datasets, delta"),
        ("methods = ['real']", "names no datasets"),
        ("datasets = ['digits']\nmethods = 'real'", "entry of methods|must be a list"),
        ("datasets = ['digits']\nmethods = [3]", "entry of methods"),
        ("datasets = ['digits']\nmethods = ['real']\nipc = [0]", "IPC 0"),
        (
            "datasets = ['digits']\nmethods = ['real']\nipc = [2.5]",
            "ipc: 2.5 is not a whole .* or `full`",
        ),
        ("datasets = ['digits']\nmethods = ['real']\nipc = 50", "must be a list"),
        ("datasets = ['digits']\nmethods = ['real']\nepsilon = [-1]", "epsilon -1"),
        ("datasets = ['digits']\nmethods = ['real']\nepsilon = [0.0]", "epsilon 0"),
        (
            "datasets = ['digits']\nmethods = ['real']\nepsilon = ['a']",
            "grid 'mine': epsilon: 'a' is not a number; expected",
        ),
        ("datasets = ['digits']\nmethods = ['real']\nepsilon = []", "epsilon is empty"),
        ("datasets = ['digits']\nmethods = ['real']\ndelta = 2.0", "delta 2"),
        ("datasets = ['digits']\nmethods = ['real', 'real']", "used twice"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(GridError, match=message):
        parse_grid(text, "mine")


def test_unknown_plugins_and_parameters_are_found_before_running() -> None:
    for text, message in (
        ("datasets = ['digitz']\nmethods = ['real']", "did you mean digits"),
        ("datasets = ['digits']\nmethods = ['reel']", "did you mean real"),
        ("datasets = ['digits']\nmethods = ['real']\nmetrics = ['auroq']", "did you mean auroc"),
        (
            "datasets = ['digits']\nmethods = [{name='ldpdc', parameters={groupsize=1}}]",
            "unknown parameter of method ldpdc 'groupsize'; did you mean group_size",
        ),
    ):
        with pytest.raises(InputError, match=message):
            parse_grid(text, "mine").check_plugins()


def test_grid_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL)
    assert load_grid(str(path)).name == "mine"
    with pytest.raises(GridError, match="cannot be read"):
        load_grid(str(tmp_path / "none.toml"))
    with pytest.raises(GridError, match="built-in grids are"):
        load_grid("huge")


def test_cells_that_a_grid_leaves_out_are_counted_with_the_reason() -> None:
    rules = """
[[left_out]]
methods = ["ldpdc"]
datasets = ["gbsg2"]
because = "slow"

[[left_out]]
ipc = ["full"]
because = "large"
"""
    whole = parse_grid(SMALL, "small")
    grid = parse_grid(SMALL + rules, "small")
    kept = grid.cells()
    gone = [cell for cell in whole.cells() if cell not in kept]
    assert {cell.describe() for cell in gone} == {
        cell.describe()
        for cell in whole.cells()
        if cell.full_size or (cell.method.name, cell.dataset.name) == ("ldpdc", "gbsg2")
    }
    # ldpdc on gbsg2: 3 sizes x 2 epsilons x 2 seeds. Full size elsewhere: 2 x 2, and 2 x 2 of gats.
    assert grid.counts_left_out() == {"slow": 12, "large": 4 + 4}
    # `real` has one size, which is not a size that was asked for.
    assert sum(cell.method.name == "real" for cell in kept) == 4
    assert whole.counts_left_out() == {}
    assert grid.narrowed(methods=["real"]).counts_left_out() == {}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ('because = "slow"', "leave out everything"),
        ('methods = ["ldpdc"]', "the reason in words"),
        ('because = "slow"\nepsilon = [1]', "any of methods, datasets and ipc"),
        ('because = "slow"\nmethods = "ldpdc"', "must be a list"),
        ('because = "slow"\nipc = ["half"]', "whole number"),
    ],
)
def test_a_rule_that_leaves_out_cells_must_be_complete(rule: str, said: str) -> None:
    with pytest.raises(GridError, match=said):
        parse_grid(f"{SMALL}\n[[left_out]]\n{rule}\n", "small")


def test_a_rule_that_leaves_out_an_unknown_name_is_refused() -> None:
    grid = parse_grid(f'{SMALL}\n[[left_out]]\nbecause = "slow"\nmethods = ["ldpd"]\n', "small")
    with pytest.raises(InputError, match="ldpdc"):
        grid.check_plugins()
