"""What `bench new` writes works as it stands."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.conformance import contract, privacy
from bench.conformance.subject import CheckStatus, Subject
from bench.conformance.tables import toy_dataset
from bench.engine import code
from bench.errors import InputError
from bench.plugins import registry
from bench.plugins.metric import Evaluation, Family, Metric
from bench.plugins.release import Release, Rows
from bench.plugins.scaffold import KINDS, Written, write_plugin
from bench.plugins.source import build_dataset
from tests.support.places import ROOT

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "method": ("method", {}),
    "method in a folder": ("method", {"as_folder": True}),
    "wrapped library": ("method", {"wraps": True}),
    "dataset": ("dataset", {}),
    "metric": ("metric", {}),
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for folder in ("methods", "tests", "docs/methods"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("datasets/tables", "metrics/fidelity", "metrics/privacy"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    page = (ROOT / "docs/methods/index.md").read_text(encoding="utf-8")
    (tmp_path / "docs/methods/index.md").write_text(page, encoding="utf-8")
    return tmp_path


@pytest.fixture
def installed(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The checkout, whose plugins are found as if it were installed beside ours."""
    before = set(sys.modules)
    for kind in KINDS:
        room = importlib.import_module(f"bench.{kind}s")
        paths = [*room.__path__, str(checkout / f"{kind}s")]
        monkeypatch.setattr(room, "__path__", paths)
        monkeypatch.setattr(room.__spec__, "submodule_search_locations", paths)
        for folder in [path for path in (checkout / f"{kind}s").iterdir() if path.is_dir()]:
            package = importlib.import_module(f"bench.{kind}s.{folder.name}")
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    _forget()
    yield checkout
    _forget()
    for name in set(sys.modules) - before:
        if "brand_new" in name:
            del sys.modules[name]


def _forget() -> None:
    for cached in (registry._modules, registry._load, registry._surveyed):
        cached.cache_clear()
    code.forget()


def installed_plugin(kind: str, name: str, root: Path, **options: Any) -> Written:
    written = write_plugin(kind, name, root, **options)
    # It asked the registry which names are taken.
    _forget()
    return written


def run_tests(path: Path) -> int:
    """Run the test functions of a written file; returns how many there are."""
    spec = importlib.util.spec_from_file_location(f"brand_new_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = [value for name, value in vars(module).items() if name.startswith("test_")]
    for test in tests:
        test()
    return len(tests)


@pytest.mark.parametrize("as_folder", [False, True])
def test_a_new_method_passes_the_checks(as_folder: bool, installed: Path) -> None:
    written = installed_plugin("method", "brand-new-means", installed, as_folder=as_folder)
    place = "methods/brand_new_means" if as_folder else "methods"
    assert f"{place}/brand_new_means.py" in written.created
    assert written.created[-1] == f"tests/{place}/test_brand_new_means.py"
    assert (f"{place}/_moments.py" in written.created) is as_folder
    subject = Subject(registry.method_class("brand-new-means"))
    assert subject.fitting == ("table", "three classes", "survival", "images")
    for check in (
        contract.source_has_no_bypass,
        contract.has_a_description,
        contract.releases_what_was_asked,
        contract.repeats_under_a_seed,
        contract.survives_difficult_tables,
        privacy.keeps_the_budget,
        privacy.noise_falls_with_epsilon,
        privacy.rows_come_through_the_kernel,
    ):
        results = list(check(subject))
        assert {result.status for result in results} == {CheckStatus.PASSED}, results


def test_its_card_stands_in_the_table_and_at_the_end(checkout: Path) -> None:
    write_plugin("method", "brand-new-means", checkout)
    page = (checkout / "docs/methods/index.md").read_text(encoding="utf-8")
    assert page.count("| [`brand-new-means`](#brand-new-means) |") == 1
    assert page.rstrip().split("\n## ")[-1].startswith("brand-new-means\n")


def test_a_new_dataset_is_read_as_declared(installed: Path) -> None:
    written = installed_plugin("dataset", "brand-new-ward", installed)
    assert "datasets/tables/brand_new_ward.toml" in written.created
    source = registry.build_source("brand-new-ward")
    dataset = build_dataset(source)
    assert not any(dataset.clipped.values())
    assert source.declare().by_class == (260, 140)
    assert sum(map(len, (dataset.train, dataset.validation, dataset.control, dataset.test))) == 400


@pytest.mark.parametrize("group", [None, "privacy"])
def test_a_new_metric_gives_a_number_with_its_interval(group: str | None, installed: Path) -> None:
    installed_plugin("metric", "brand-new-gap", installed, group=group)
    assert (installed / "metrics" / (group or "fidelity") / "brand_new_gap.py").is_file()
    metric = registry.metric("brand-new-gap")
    assert isinstance(metric, Metric) and metric.family is Family(group or "fidelity")
    train = toy_dataset("table").train.rows
    release = Release(Rows(train.values, train.labels))
    (score,) = metric.compute(Evaluation(toy_dataset("table"), release, seed=0)).scores
    assert score.value == pytest.approx(0.0, abs=1e-12)
    assert score.low is not None and score.high is not None and 0 < score.low < score.high


@pytest.mark.parametrize(("kind", "options"), VARIANTS.values(), ids=VARIANTS)
def test_the_tests_that_are_written_pass(
    kind: str, options: dict[str, Any], installed: Path
) -> None:
    written = installed_plugin(kind, "brand-new", installed, **options)
    assert run_tests(installed / written.created[-1]) >= 1


@pytest.mark.parametrize(("kind", "options"), VARIANTS.values(), ids=VARIANTS)
def test_what_is_written_keeps_the_style(
    kind: str, options: dict[str, Any], checkout: Path
) -> None:
    written = write_plugin(kind, "brand-new", checkout, **options)
    files = [str(checkout / path) for path in written.created if path.endswith(".py")]
    settings = ["--no-cache", "--config", str(ROOT / "pyproject.toml")]
    for command in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, *settings, *files]
        done = subprocess.run(ruff, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    for path in files:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        modules = [line.split()[1] for line in lines if line.startswith("from bench")]
        assert set(modules) <= {"bench", "bench.methods.brand_new"}


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("method", "ldpdc", "there is a method 'ldpdc' already"),
        ("method", "My Method", "lower-case letters"),
        ("method", "../evil", "lower-case letters"),
        ("dataset", "adult", "there is a dataset"),
        ("metric", "auroc", "there is a metric"),
        ("grid", "x", "no kind of plugin"),
    ],
)
def test_what_cannot_be_is_refused(kind: str, name: str, message: str, checkout: Path) -> None:
    with pytest.raises(InputError, match=message):
        write_plugin(kind, name, checkout)


def test_the_folder_must_be_there_and_only_a_method_can_be_one(checkout: Path) -> None:
    with pytest.raises(InputError, match="no folder metrics/speed; there are fidelity, privacy"):
        write_plugin("metric", "mine", checkout, group="speed")
    with pytest.raises(InputError, match="only a method can be a folder"):
        write_plugin("metric", "mine", checkout, as_folder=True)


def test_nothing_is_overwritten_and_only_a_checkout_is_written_to(
    checkout: Path, tmp_path: Path
) -> None:
    write_plugin("method", "mine", checkout)
    with pytest.raises(InputError, match="already there"):
        write_plugin("method", "mine", checkout)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(InputError, match="no checkout"):
        write_plugin("method", "mine", tmp_path / "elsewhere")


def test_the_command_says_what_it_wrote_and_what_comes_next(checkout: Path) -> None:
    result = CliRunner().invoke(main, ["new", "method", "mine-too", "--root", str(checkout)])
    assert result.exit_code == 0, result.output
    assert "wrote methods/mine_too.py" in result.output
    assert "bench check mine-too" in result.output
    arguments = ["new", "metric", "mine", "--group", "privacy", "--root", str(checkout)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "pytest tests/metrics/privacy/test_mine.py" in result.output
