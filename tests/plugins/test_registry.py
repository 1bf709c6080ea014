"""Plugins are found by name, lazily, and wrong names are answered with near ones."""

import subprocess
import sys

import pytest

from bench.errors import InputError, UnknownNameError
from bench.plugins import registry


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
    from importlib.metadata import EntryPoint

    point = EntryPoint("other", "tests.support.plugins:Other", "bench.methods")
    registry._load.cache_clear()
    monkeypatch.setattr(
        registry, "_entry_points", lambda folder: {"other": point} if folder == "methods" else {}
    )
    assert "other" in registry.method_names()
    assert registry.build_method("other").parameters() == {"level": 1}
    registry._load.cache_clear()


def test_a_broken_third_party_plugin_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    point = EntryPoint("gone", "no_such_module:Thing", "bench.methods")
    registry._load.cache_clear()
    monkeypatch.setattr(
        registry, "_entry_points", lambda folder: {"gone": point} if folder == "methods" else {}
    )
    with pytest.raises(InputError, match=r"'gone' .* cannot be imported"):
        registry.method_class("gone")
    registry._load.cache_clear()
