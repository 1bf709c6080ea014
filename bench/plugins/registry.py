"""Finds plugins: shipped ones by file name, third-party ones by entry point.

Shipped methods and datasets are one module each, named like the plugin, in their room or in a
folder of it, so that names are known without importing anything. Metrics share files, so listing
them imports them; their heavy libraries are imported when they compute.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench.data.files import user_table_files
from bench.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from bench.plugins.method import Method
    from bench.plugins.metric import Metric, RefitMetric
    from bench.plugins.source import DatasetSource

Plugin = TypeVar("Plugin")


def method_names() -> tuple[str, ...]:
    """Return the names of all methods, without importing them."""
    return tuple(sorted({*_modules("methods"), *_entry_points("methods")}))


def dataset_names() -> tuple[str, ...]:
    """Return the names of all datasets, without importing them."""
    return tuple(sorted({*_modules("datasets"), *_entry_points("datasets"), *user_table_files()}))


def metric_names() -> tuple[str, ...]:
    """Return the names of all metrics."""
    return tuple(sorted(_metrics()))


def method_class(name: str) -> type[Method]:
    """Return the class of a method."""
    from bench.plugins.method import Method

    return _load("method", name, Method, method_names())


def dataset_class(name: str) -> type[DatasetSource]:
    """Return the class of a dataset."""
    from bench.plugins.source import DatasetSource

    user_tables = user_table_files()
    if name in user_tables:
        from bench.plugins.user_tables import own_table_class

        return own_table_class(name, user_tables[name])
    return _load("dataset", name, DatasetSource, dataset_names())


def metric(name: str) -> Metric | RefitMetric:
    """Return a metric by name."""
    known = _metrics()
    if name not in known:
        raise UnknownNameError("metric", name, known)
    return known[name]()


def refits(name: str) -> bool:
    """Return True for a metric that fits the method again."""
    from bench.plugins.metric import RefitMetric

    return isinstance(metric(name), RefitMetric)


def select_metrics(wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Return names of metrics, chosen by names of metrics, numbers or families, or by `all`.

    `default`, and asking for nothing, is every metric that is not optional.
    """
    known = _metrics()
    default = {name for name, kind in known.items() if not kind.optional}
    groups: dict[str, set[str]] = {"all": set(known), "default": default}
    for name, kind in known.items():
        if name in default:
            groups.setdefault(kind.family.value, set()).add(name)
    chosen: set[str] = set()
    for item in wanted or ("default",):
        matches = {item} & set(known) or groups.get(item, set())
        matches = matches or {
            name
            for name, kind in known.items()
            if any(output.name == item for output in kind.declared())
        }
        if not matches:
            numbers = [output.name for kind in known.values() for output in kind.declared()]
            raise UnknownNameError("metric", item, {*known, *groups, *numbers})
        chosen |= matches
    return tuple(sorted(chosen))


def build_method(name: str, parameters: Mapping[str, Any] | None = None) -> Method:
    """Build a method with hyperparameters; unknown ones are refused, with the known ones listed."""
    return _construct("method", method_class(name), parameters or {})


def build_source(name: str, parameters: Mapping[str, Any] | None = None) -> DatasetSource:
    """Build a dataset source with parameters."""
    return _construct("dataset", dataset_class(name), parameters or {})


def _construct(kind: str, plugin: type[Plugin], parameters: Mapping[str, Any]) -> Plugin:
    if not is_dataclass(plugin):
        raise InputError(f"{kind} {plugin.__name__} is not a frozen dataclass of its parameters")
    known = {item.name for item in fields(plugin)}
    for name in parameters:
        if name not in known:
            owner = getattr(plugin, "name", plugin.__name__)
            raise UnknownNameError(f"parameter of {kind} {owner}", name, known or {"(none)"})
    try:
        return plugin(**parameters)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{kind} {plugin.__name__}: {problem}") from None


@functools.cache
def _modules(room: str) -> Mapping[str, str]:
    """Return the import names of the plugin modules of a room, by plugin name.

    Nothing is imported.

    A module is a plugin unless its name, or the name of a folder above it, starts with an
    underscore.
    """
    modules: dict[str, str] = {}
    waiting = [(Path(folder), f"bench.{room}") for folder in _package_path(room)]
    while waiting:
        folder, package = waiting.pop()
        for module in pkgutil.iter_modules([str(folder)]):
            if module.name.startswith("_"):
                continue
            place = f"{package}.{module.name}"
            if module.ispkg:
                waiting.append((folder / module.name, place))
            else:
                modules[module.name.replace("_", "-")] = place
    return modules


def _package_path(room: str) -> Sequence[str]:
    return importlib.import_module(f"bench.{room}").__path__


@functools.cache
def _entry_points(folder: str) -> Mapping[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=f"bench.{folder}")}


@functools.cache
def _load(kind: str, name: str, base: type[Plugin], known: tuple[str, ...]) -> type[Plugin]:
    if name not in known:
        raise UnknownNameError(kind, name, known)
    points = _entry_points(f"{kind}s")
    if name in points:
        # A broken third-party plugin must be named.
        try:
            plugin = points[name].load()
        except Exception as problem:
            raise InputError(
                f"{kind} {name!r} ({points[name].value}) cannot be imported: {problem!r}"
            ) from problem
        return _checked(kind, name, plugin, base)
    module = importlib.import_module(_modules(f"{kind}s")[name])
    plugins = [
        item
        for _, item in inspect.getmembers(module, inspect.isclass)
        if issubclass(item, base) and item.__module__ == module.__name__
    ]
    if len(plugins) != 1:
        raise InputError(
            f"{module.__name__} must define exactly one {base.__name__}, has {len(plugins)}"
        )
    return _checked(kind, name, plugins[0], base)


def _checked(kind: str, name: str, plugin: Any, base: type[Plugin]) -> type[Plugin]:
    if not (inspect.isclass(plugin) and issubclass(plugin, base)):
        raise InputError(f"{kind} {name!r} is not a {base.__name__}")
    if getattr(plugin, "name", None) != name:
        raise InputError(
            f"{kind} {name!r} calls itself {getattr(plugin, 'name', None)!r}; the names must agree"
        )
    return plugin


@functools.cache
def _metrics() -> Mapping[str, type[Metric] | type[RefitMetric]]:
    from bench.plugins.metric import Metric, RefitMetric

    metrics: dict[str, type[Metric] | type[RefitMetric]] = {}
    for place in _modules("metrics").values():
        loaded = importlib.import_module(place)
        for _, item in inspect.getmembers(loaded, inspect.isclass):
            if (
                issubclass(item, (Metric, RefitMetric))
                and item.__module__ == loaded.__name__
                and not inspect.isabstract(item)
            ):
                metrics[item.name] = item
    for name, point in _entry_points("metrics").items():
        metrics[name] = _checked("metric", name, point.load(), Metric)
    return metrics
