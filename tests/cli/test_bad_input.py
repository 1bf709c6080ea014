"""Wrong values on the command line and in grids: one line, exit code 2, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.cli.main import BUG, main
from bench.cli.options import fail

GRID = 'datasets = ["breast-cancer"]\nmethods = ["marginals"]\n'


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(*arguments: str) -> str:
    """Return the one line with which the command ends."""
    result = CliRunner().invoke(main, list(arguments))
    return line_of(result)


def line_of(result: Result) -> str:
    assert result.exit_code == 2, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("bench: "), result.stderr
    assert len(lines[0]) < 5_000
    return lines[0]


@pytest.mark.parametrize("option", ["--ipc", "--seeds"])
@pytest.mark.parametrize("value", ["²", "--5", "٣", "5_0", "5.0", "1e3", "0x10", "+-1", "½"])
def test_what_only_looks_like_a_whole_number(option: str, value: str) -> None:
    assert "is not a whole number" in refused("run", "--dry-run", f"{option}={value}")


@pytest.mark.parametrize("value", ["9" * 5_000, "-" + "9" * 30, str(2**63), str(-(2**63) - 1)])
def test_a_seed_beyond_64_bits_is_refused_before_anything_is_computed(value: str) -> None:
    assert "does not fit into 64 bits" in refused("run", "--dry-run", f"--seeds={value}")


@pytest.mark.parametrize("value", [str(2**63 - 1), str(-(2**63)), "0" * 5_000 + "7", "+7"])
def test_all_seeds_of_64_bits_are_accepted(value: str) -> None:
    arguments = ["run", "--grid", "smoke", "--dry-run", f"--seeds={value}"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert f"seed={value.lstrip('+0')}\n" in result.output


def test_an_ipc_that_no_machine_holds() -> None:
    assert "IPC 1000000001 is too large" in refused("run", "--dry-run", "--ipc", "1000000001")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["leaderboard", "x", "-o", "site", "--alpha", "nan"], "'nan' is not a finite number"),
        (["leaderboard", "x", "-o", "site", "--cells", "9" * 5_000 + "x"], "is not a number"),
        (["leaderboard", "x", "-o", "site", "--cells", "²"], "is not a number"),
        (["verify", "x", "--seed", "-1"], "-1 is not in the range"),
        (["verify", "x", "--seed", "9" * 30], "not in the range"),
        (["run", "--time-limit", "nan"], "not a finite number"),
        (["run", "--memory-limit", "inf"], "not a finite number"),
        (["run", "--disk-limit=-nan"], "not a finite number"),
        (["run", "--cpus", "9" * 30], "not in the range"),
        (["run", "--eps", "nan"], "epsilon nan is not a positive finite number"),
        (["audit", "marginals", "--dataset", "digits", "--eps", "nan"], "not a finite number"),
        (["audit", "marginals", "--dataset", "digits", "--delta", "nan"], "not a finite number"),
        (["audit", "marginals", "--dataset", "digits", "--seed", "-1"], "not in the range"),
        (["audit", "marginals", "--dataset", "digits", "--minutes", "nan"], "not a finite number"),
        (["audit", "marginals", "--dataset", "digits", "--ipc", "²"], "is not a whole number"),
        (["audit", "marginals", "--parameters", "bins=[2020-01-01]"], "a date or a time"),
        (["run", "--no-such-option"], "No such option"),
        (["no-such-command"], "No such command"),
        (["--no-such-option"], "No such option"),
        (["new", "method", "x" * 5_000], "cannot be a name"),
    ],
)
def test_values_that_pass_a_careless_comparison(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    "address",
    ["garbage", "ray://x:y", "a:99999", "a:0", "a:²", ":1", "http://a:1", "a b:1", "\udcff:2", "/"],
)
def test_what_cannot_be_a_ray_address(address: str, tmp_path: Path) -> None:
    line = refused("run", "--grid", "smoke", "--out", "run", "--ray-address", address)
    assert "Ray address" in line and "HOST:PORT" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 1_000 + "]" * 1_000, "nested too deep"),
        ("a = " + "{a=" * 1_000 + "1" + "}" * 1_000, "nested too deep"),
        (".".join("a" * 100_000) + " = 1", "dotted key"),
        ("seeds = [" + "9" * 5_000 + "]", "a number cannot be read"),
        (GRID + f"seeds = [{2**63}]", "seeds: 9223372036854775808 does not fit into 64 bits"),
        (GRID + f"split_seed = {2**64}", "split_seed: 18446744073709551616 does not fit"),
        (GRID + "split_seed = -1", "split_seed -1 is negative"),
        (GRID + "ipc = [2020-01-01]", "ipc: datetime.date(2020, 1, 1) is not a whole number"),
        (GRID + 'name = "../../escaped"', "plain file name"),
        (GRID + 'name = ".."', "plain file name"),
        (GRID + 'name = "a\\u001b[31m"', "plain file name"),
        (GRID + f"seeds = {list(range(100_000))}", "split it into several grids"),
        (f"{'x' * 500_000} = 1", "(500002 characters)"),
        ("#" * (5 << 20), "larger than 2 MiB"),
    ],
)
def test_grids_that_cannot_be_read(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text(text)
    assert message in refused("run", "--dry-run", "--grid", "g.toml")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1979-05-27", "date"),
        ("07:32:00", "time"),
        ("1979-05-27T07:32:00Z", "datetime"),
        ("[1, [1979-05-27]]", "date"),
        ("{a = 1}", "table"),
        ("[" * 30 + "]" * 30, "list more than 20 deep"),
    ],
)
def test_parameters_that_no_table_can_hold(value: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text(
        'datasets = ["breast-cancer"]\n'
        f'methods = [{{name = "marginals", label = "m", parameters = {{bins = {value}}}}}]\n'
    )
    line = refused("run", "--dry-run", "--grid", "g.toml")
    assert f"g.toml: parameters of 'marginals': 'bins' is a {kind};" in line


def test_a_label_that_would_write_to_the_terminal(tmp_path: Path) -> None:
    entry = '{name = "marginals", label = "\\u001b[2J"}'
    (tmp_path / "g.toml").write_text(f'datasets = ["digits"]\nmethods = [{entry}]\n')
    assert "control characters" in refused("run", "--dry-run", "--grid", "g.toml")


def test_a_list_is_a_parameter_like_any_other(tmp_path: Path) -> None:
    """`dp-merf` takes one; cells are looked up by value, which a list does not allow."""
    entry = '{name = "dp-merf", parameters = {hidden = [10, 5]}}'
    (tmp_path / "g.toml").write_text(f'datasets = ["breast-cancer"]\nmethods = [{entry}]\n')
    result = CliRunner().invoke(main, ["run", "--dry-run", "--grid", "g.toml"])
    assert result.exit_code == 0 and "dp-merf(hidden=[10, 5]) on" in result.output


def test_a_grid_is_a_regular_file(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.toml")  # reading it would wait for ever
    (tmp_path / "folder.toml").mkdir()
    assert "not a regular file" in refused("run", "--dry-run", "--grid", "pipe.toml")
    assert "not a regular file" in refused("run", "--dry-run", "--grid", "folder.toml")


@pytest.mark.parametrize("name", ["x" * 10_000, "\ud800", "a\0b"])
@pytest.mark.parametrize("command", [["status"], ["verify"], ["data", "add"], ["score"]])
def test_what_cannot_be_a_file_name(name: str, command: list[str]) -> None:
    assert "not a file name" in (line := refused(*command, name)) or "too long" in line


def test_names_from_files_do_not_reach_the_terminal_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        fail("a\x1b[31m\nb\u202e\udcff" + "x" * 10_000)
    line = capsys.readouterr().err.removesuffix("\n")
    assert line.startswith("bench: a?[31m b??xxx") and line.endswith("[cut: 10,010 characters]")
    assert len(line) < 4_100 and line.isprintable()


def test_a_bug_is_one_line_without_the_text_of_the_exception(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That text can hold rows; BENCH_TRACEBACK=1 shows it to who asks."""

    def broken(*_: object) -> str:
        raise TypeError("patient 12345")

    monkeypatch.setattr("bench.plugins.data_files.listing", broken)
    result = CliRunner().invoke(main, ["data", "list"])
    assert result.exit_code == BUG == 3
    assert "internal error: TypeError" in result.stderr and "12345" not in result.output
    assert len(result.stderr.splitlines()) == 1
    monkeypatch.setenv("BENCH_TRACEBACK", "1")
    assert isinstance(CliRunner().invoke(main, ["data", "list"]).exception, TypeError)


def test_a_refusal_of_the_operating_system_is_not_called_a_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("bench.plugins.data_files.listing", full)
    result = CliRunner().invoke(main, ["data", "list"])
    assert result.exit_code == BUG
    assert result.stderr.startswith("bench: somewhere: No space left on device")


def test_the_commands_still_show_their_help() -> None:
    assert CliRunner().invoke(main, ["--help"]).exit_code == 0
    assert CliRunner().invoke(main, ["data", "add", "--help"]).exit_code == 0
    assert "Usage" in CliRunner().invoke(main, ["data"]).output
