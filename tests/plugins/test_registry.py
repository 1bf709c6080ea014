"""Plugins are found by name, lazily, and wrong names are answered with near ones."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from bench.errors import InputError, UnknownNameError
from bench.plugins import registry
from bench.plugins.metric import HEADLINES


def test_built_in_plugins_are_found_by_file_name() -> None:
    assert {"ldpdc", "marginals", "real"} <= set(registry.method_names())
    assert {"breast-cancer", "digits", "curial-sim"} <= set(registry.dataset_names())


@pytest.mark.parametrize("name", registry.method_names())
def test_every_method_says_what_it_is(name: str) -> None:
    kind = registry.method_class(name)
    assert kind.name == name and kind.title
    assert registry.build_method(name) == registry.build_method(name, {})


@pytest.mark.parametrize("name", registry.metric_names())
def test_every_metric_says_what_it_is(name: str) -> None:
    metric = registry.metric(name)
    assert metric.name == name and len(metric.definition) > 20 and metric.tasks


def test_no_two_metrics_give_a_number_of_one_name() -> None:
    names = [
        output.name
        for metric in registry.metric_names()
        for output in registry.metric(metric).declared()
    ]
    assert len(names) == len(set(names))


def test_metrics_are_chosen_by_name_number_family_or_group() -> None:
    default = registry.select_metrics()
    assert registry.select_metrics(["default"]) == default
    assert set(default) <= set(registry.select_metrics(["all"])) == set(registry.metric_names())
    assert registry.select_metrics(["ks", "dcr/gap"]) == ("dcr", "ks")
    assert {"ks", "tvd"} <= set(registry.select_metrics(["fidelity"])) <= set(default)
    optional = set(registry.metric_names()) - set(default)
    assert all(registry.metric(name).optional for name in optional)
    with pytest.raises(UnknownNameError, match="did you mean fidelity"):
        registry.select_metrics(["fidelty"])


def test_unknown_names_come_with_near_matches() -> None:
    with pytest.raises(UnknownNameError, match="did you mean ldpdc"):
        registry.method_class("lpdpc")
    with pytest.raises(UnknownNameError, match="did you mean breast-cancer"):
        registry.build_source("brest-cancer")
    with pytest.raises(UnknownNameError, match="unknown metric"):
        registry.metric("zzz")


def test_unknown_and_wrong_parameters() -> None:
    with pytest.raises(UnknownNameError, match="did you mean group_size"):
        registry.build_method("ldpdc", {"groupsize": 3})
    with pytest.raises(InputError):
        registry.build_method("real", {"anything": 1})


def test_names_are_known_without_heavy_imports() -> None:
    code = (
        "import sys; from bench.plugins import registry; registry.method_names(); "
        "registry.dataset_names(); heavy = set(sys.modules) & "
        "{'torch', 'ray', 'mlflow', 'xgboost', 'pandas', 'numpy'}; assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_third_party_plugin_comes_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("other", "tests.support.plugins:Other", "bench.methods")
    registry._load.cache_clear()
    monkeypatch.setattr(
        registry, "_entry_points", lambda folder: {"other": point} if folder == "methods" else {}
    )
    assert "other" in registry.method_names()
    assert registry.build_method("other").parameters() == {"level": 1}
    registry._load.cache_clear()


def test_a_broken_third_party_plugin_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("gone", "no_such_module:Thing", "bench.methods")
    registry._load.cache_clear()
    monkeypatch.setattr(
        registry, "_entry_points", lambda folder: {"gone": point} if folder == "methods" else {}
    )
    with pytest.raises(InputError, match=r"'gone' .* cannot be imported"):
        registry.method_class("gone")
    registry._load.cache_clear()


# Names that two plugins have, and metrics that are broken ---------------------------------------


def announced(monkeypatch: pytest.MonkeyPatch, kind: str, **points: str) -> None:
    """Entry points, as if packages were installed."""
    found = {
        name.replace("_", "-"): EntryPoint(name.replace("_", "-"), value, f"bench.{kind}")
        for name, value in points.items()
    }
    monkeypatch.setattr(registry, "_entry_points", lambda room: found if room == kind else {})
    for cached in (registry._load, registry._surveyed):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    for cached in (registry._load, registry._surveyed):
        cached.cache_clear()


def test_a_plugin_named_like_a_built_in_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    announced(monkeypatch, "methods", ldpdc="tests.support.plugins:Other")
    with pytest.raises(InputError, match="'ldpdc' is announced twice") as caught:
        registry.method_class("ldpdc")
    text = str(caught.value)
    assert "the built-in bench.methods.ndpdc.ldpdc" in text
    assert "tests.support.plugins:Other" in text and "rename one of them" in text
    assert registry.method_class("marginals").name == "marginals", "others are not affected"
    announced(monkeypatch, "datasets", gbsg2="tests.support.tables:ToyTable")
    with pytest.raises(InputError, match=r"the built-in .*gbsg2 and by tests\.support\.tables"):
        registry.build_source("gbsg2")


def test_your_own_table_named_like_a_dataset_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry, "user_table_files", lambda: {"gbsg2": tmp_path / "gbsg2.toml"})
    with pytest.raises(InputError, match="both a plugin and your own table"):
        registry.dataset_class("gbsg2")


BROKEN = {
    "absent": ("no_such_module:Metric", "cannot be imported: ModuleNotFoundError: No module named"),
    "leaves": ("tests.support.broken_metrics.leaves:Metric", "SystemExit: enough"),
    "no-class": ("tests.support.broken_metrics.declared:no_class", "is not a Metric"),
    "another-name": ("tests.support.broken_metrics.declared:Another", "calls itself 'another'"),
    "abstract": ("tests.support.broken_metrics.declared:Abstract", "it lacks `compute`"),
    "no-family": ("tests.support.broken_metrics.declared:NoFamily", "`family` must be a Family"),
    "bad-tasks": ("tests.support.broken_metrics.declared:BadTasks", "`tasks` must be a tuple"),
    "bad-outputs": ("tests.support.broken_metrics.declared:BadOutputs", "`outputs` must be"),
    "doubled": ("tests.support.broken_metrics.declared:Doubled", "two of its outputs have one"),
    "taken": ("tests.support.broken_metrics.declared:Taken", "its number 'ks' is one of metric"),
    "ks": ("tests.support.broken_metrics.declared:Ks", "'ks' is announced twice: by bench.metrics"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_metric_is_skipped_and_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value, why = BROKEN[name]
    before = registry.metric_names()
    announced(monkeypatch, "metrics", **{name.replace("-", "_"): value})
    assert registry.metric_names() == before, "the others are all there"
    (line,) = registry.skipped_plugins()
    assert line.startswith("skipped: metric ") and why in line and value.split(":")[0] in line
    assert registry.metric("ks").__module__.startswith("bench.metrics")


def test_a_refitting_metric_comes_by_entry_point_too(monkeypatch: pytest.MonkeyPatch) -> None:
    announced(monkeypatch, "metrics", good="tests.support.broken_metrics.declared:Good")
    assert registry.skipped_plugins() == () and registry.refits("good")


def test_no_shipped_metric_is_skipped() -> None:
    assert registry.skipped_plugins() == ()


def test_a_module_of_metrics_that_cannot_be_imported_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = dict(registry._modules("metrics"))
    monkeypatch.setattr(
        registry, "_modules", lambda room: {**modules, "gone": "bench.metrics.fidelity.gone"}
    )
    registry._surveyed.cache_clear()
    (line,) = registry.skipped_plugins()
    assert "the metrics of bench.metrics.fidelity.gone cannot be imported" in line
    assert "ks" in registry.metric_names()


def test_commands_go_on_without_a_broken_metric(tmp_path: Path) -> None:
    information = tmp_path / "broken-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[bench.metrics]\nbroken = no_such_module:Broken\n"
        "[bench.methods]\nbroken = no_such_module:Broken\n"
    )
    for command in ("list metrics", "list methods", "run --grid smoke --dry-run"):
        done = subprocess.run(
            [sys.executable, "-m", "bench", *command.split()],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        if command.startswith("list"):
            kind = command.split()[1].removesuffix("s")
            said = f"skipped: {kind} 'broken' (no_such_module:Broken of broken) cannot be imported"
            assert said in done.stderr and len(done.stdout.splitlines()) > 5


def test_metrics_can_be_the_headlines_or_none() -> None:
    assert registry.select_metrics(["none"]) == ()
    chosen = registry.select_metrics(["headline"])
    outputs = {output.name for name in chosen for output in registry.metric(name).declared()}
    assert set(HEADLINES.values()) <= outputs and len(chosen) == len(HEADLINES)
    with pytest.raises(InputError, match="`none` excludes all others"):
        registry.select_metrics(["none", "ks"])
