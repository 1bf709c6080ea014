"""What `bench new` writes works as it stands."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.conformance import contract, privacy
from bench.conformance.subject import CheckStatus, Subject
from bench.conformance.tables import toy_dataset
from bench.errors import InputError
from bench.plugins.method import Method
from bench.plugins.metric import Evaluation, Metric
from bench.plugins.release import Release, Rows
from bench.plugins.scaffold import KINDS, write_plugin
from bench.plugins.source import DatasetSource, build_dataset
from tests.support.places import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for folder in ("methods", "datasets", "metrics", "tests", "docs/methods"):
        (tmp_path / folder).mkdir(parents=True)
    page = (ROOT / "docs/methods/index.md").read_text(encoding="utf-8")
    (tmp_path / "docs/methods/index.md").write_text(page, encoding="utf-8")
    return tmp_path


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # inspect.getmodule finds the docstring through this.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def plugin(path: Path, base: type[Any]) -> type[Any]:
    module = loaded(path)
    (found,) = (
        item
        for _, item in inspect.getmembers(module, inspect.isclass)
        if issubclass(item, base) and item.__module__ == module.__name__
    )
    return found


def test_a_new_method_passes_the_checks(checkout: Path) -> None:
    written = write_plugin("method", "brand-new-means", checkout)
    assert written.created == (
        "methods/brand_new_means.py",
        "tests/methods/test_brand_new_means.py",
    )
    subject = Subject(plugin(checkout / "methods/brand_new_means.py", Method))
    assert subject.fitting == ("table", "three classes", "survival", "images")
    for check in (
        contract.source_has_no_bypass,
        contract.has_a_description,
        contract.releases_what_was_asked,
        contract.repeats_under_a_seed,
        contract.survives_awkward_tables,
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


def test_a_new_dataset_is_read_as_declared(checkout: Path) -> None:
    written = write_plugin("dataset", "our-ward", checkout)
    assert "datasets/our_ward.toml" in written.created
    source: DatasetSource = plugin(checkout / "datasets/our_ward.py", DatasetSource)()
    dataset = build_dataset(source)
    assert not any(dataset.clipped.values())
    assert source.declare().by_class == (260, 140)
    assert sum(map(len, (dataset.train, dataset.validation, dataset.control, dataset.test))) == 400


def test_a_new_metric_gives_a_number_with_its_interval(checkout: Path) -> None:
    write_plugin("metric", "mean-gap", checkout)
    metric: Metric = plugin(checkout / "metrics/mean_gap.py", Metric)()
    train = toy_dataset("table").train.rows
    release = Release(Rows(train.values, train.labels))
    (score,) = metric.compute(Evaluation(toy_dataset("table"), release, seed=0)).scores
    assert score.value == pytest.approx(0.0, abs=1e-12)
    assert score.low is not None and score.high is not None and 0 < score.low < score.high


@pytest.mark.parametrize("kind", KINDS)
def test_the_tests_that_are_written_run(kind: str, checkout: Path) -> None:
    """They ask the registry by name, which knows the checkout only once the file is there."""
    write_plugin(kind, "brand-new", checkout)
    text = (checkout / f"tests/{kind}s/test_brand_new.py").read_text(encoding="utf-8")
    compile(text, "test", "exec")
    assert re.search(r"registry\.\w+\(\"brand-new\"\)", text)
    assert "$" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_keeps_the_style(kind: str, checkout: Path) -> None:
    written = write_plugin(kind, "brand-new", checkout)
    files = [str(checkout / path) for path in written.created if path.endswith(".py")]
    settings = ["--no-cache", "--config", str(ROOT / "pyproject.toml")]
    for command in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, *settings, *files]
        done = subprocess.run(ruff, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


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
